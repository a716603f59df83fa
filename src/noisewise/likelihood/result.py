"""From the end of a climb, with the clouds there, to a `Fit`; and whether a climb has ended at an edge."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisewise.errors import InputError
from noisewise.inference.problem import Problem
from noisewise.inference.settings import Estimator
from noisewise.likelihood.e_step.cloud import Clouds, moved
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.m_step.maximise import Louis, Objective
from noisewise.likelihood.m_step.units import unit_free
from noisewise.numerics import Array, Values
from noisewise.results.fit import Fit, alike

STALLED = 0.05
"""An end farther from the maximum than this many standard errors has not converged."""


@dataclass(frozen=True)
class End:
    """Where and how a run ended, with score, information and likelihood at that place."""

    free: Array
    louis: Louis
    log_likelihood: float
    status: str
    message: str
    trace: list[dict[str, Any]]
    diagnostics: dict[str, Any]
    monte_carlo: bool = False
    tilt: Array | None = None
    """How the information moves with the simulated score, where that is known."""
    information: Array | None = None
    """The information, where Louis's identity does not give it."""


def finish(estimator: Estimator, problem: Problem, seed: int | None, coordinates: Coordinates, end: End) -> Fit:
    """The `Fit` of a run: information at its end, covariance on the parameters' own scale, Monte Carlo errors."""
    louis = end.louis
    information = louis.information if end.information is None else end.information
    score = louis.score
    if end.monte_carlo:
        information, score = information - louis.information_bias, score - louis.bias
    inverse, definite = _inverse(information)
    left = standard_errors_left(score, information)
    status, message = _judged(end, coordinates, information, definite, left)
    best, _ = _inverse(louis.complete)
    spread = inverse @ louis.noise @ inverse  # of the maximiser, from the simulated score's own noise
    if not coordinates.is_square:
        jacobian = coordinates.jacobian(end.free)
        inverse, spread = jacobian @ inverse @ jacobian.T, jacobian @ spread @ jacobian.T
        best = jacobian @ best @ jacobian.T
    estimate = coordinates.values(end.free)
    fit = Fit(
        estimate=estimate,
        labels=tuple(coordinates.labels),
        axes=coordinates.axes.only(coordinates.names),
        covariance=inverse,
        information=information if coordinates.is_square else None,
        score=score,
        log_likelihood=end.log_likelihood,
        estimator=estimator,
        seed=seed,
        release_hash=problem.release.hash,
        status=status,
        message=message,
        trace=tuple(end.trace),
        diagnostics=end.diagnostics | {"standard_errors_left": left},
    )
    efficiency = np.diag(best) / np.diag(inverse)
    if end.information is not None:  # second derivatives do not give it, nor the complete information
        efficiency = np.full_like(efficiency, np.nan)
    fit = replace(fit, efficiency=alike(fit.estimate, efficiency))
    if not end.monte_carlo:
        return fit
    error = alike(fit.estimate, np.sqrt(np.maximum(np.diag(spread), 0.0)))
    variance = louis.information_noise if end.tilt is None else louis.spread(end.tilt)
    of_information = np.sqrt(variance) if coordinates.is_square else None
    of_score = np.sqrt(np.maximum(np.diag(louis.noise), 0.0))
    return replace(fit, monte_carlo_error=error, information_error=of_information, score_error=of_score)


def _judged(end: End, coordinates: Coordinates, information: Array, definite: bool, left: float) -> tuple[str, str]:
    """Status and message, now that information and score are known: the end of a climb need not be a maximum."""
    if end.status != "converged":
        return end.status, end.message
    if not definite:
        message = (
            f"the observed information is not positive definite (eigenvalues {np.linalg.eigvalsh(information)}): the "
            "likelihood is flat or the estimate lies on a boundary. Intervals are not available in those directions."
        )
        doubtful = np.sqrt(np.diag(end.louis.information_noise)) > 0.5 * np.abs(np.diag(information))
        if doubtful.any() and coordinates.is_square:
            names = ", ".join(label for label, one in zip(coordinates.labels, doubtful, strict=True) if one)
            message += f" The simulated sample hardly tells the information about {names}: a larger `final` may."
        return "flat", message
    if left > STALLED and not end.monte_carlo:
        return "stalled", (
            f"no step rises, yet the score says that the top is {left:.2g} standard errors away. Start elsewhere."
        )
    return end.status, end.message


def standard_errors_left(score: Array, information: Array) -> float:
    """Length of Newton's step to the maximum, in standard errors; infinite where the information is not positive."""
    if not _inverse(information)[1]:
        return float("inf")
    return float(np.sqrt(max(float(score @ np.linalg.solve(information, score)), 0.0)))


EDGE = 15.0
"""A free coordinate beyond this may be at an edge: a positive parameter of 3e-7, a share within 3e-7 of 0 or 1."""
LOSS = -1e-6
"""A change of the log likelihood that is put down to rounding: near an edge digits cancel."""


def at_edge(coordinates: Coordinates, free: Array, gained: Callable[[int, float, float], float]) -> str | None:
    """The parameter, if any, that runs to the edge of its space: far out, and further out is no less likely.

    `gained(i, start, end)` is the log likelihood gained by moving free coordinate i. A large gain further out means
    that it is on its way to a maximum. At a maximum inside, however far out, the step loses more than rounding does.
    The step begins just beyond `EDGE`, where enough digits are left.
    """
    for i, name in enumerate(coordinates.bounded):
        place = float(np.clip(free[i], -EDGE - 1.0, EDGE + 1.0))
        if name is not None and abs(place) > EDGE and LOSS <= gained(i, place, place + np.copysign(5.0, place)) < 1e-3:
            return name
    return None


def near_edge(objective: Objective, free: Array, clouds: Clouds, score: Array, information: Array) -> str | None:
    """As `at_edge` for simulated clouds, which near an edge may take noise for a maximum.

    It looks only where something is odd: there is no maximum, or it is not here, or a free coordinate is beyond 4 or
    has a standard error of 1 or more. An edge counts if it is as likely as this place, within five Monte Carlo errors,
    and this error is small.
    """
    bounded = objective.coordinates.bounded
    jacobian = objective.coordinates.jacobian(free) if objective.coordinates.is_square else np.eye(len(free))
    inverse, definite = _inverse(jacobian.T @ information @ jacobian)
    broad = ~(np.diag(inverse) < 1.0)
    odd = not definite or standard_errors_left(score, information) > 0.2
    for i, name in enumerate(bounded):
        if name is None or not (odd or broad[i] or abs(free[i]) > 4.0):
            continue
        for side in (-1.0, 1.0):
            gained, error = gain(objective, free, clouds, i, side * max(10.0, side * free[i] + 5.0))
            if error < 0.05 and gained >= -5.0 * error:
                return name
    return None


def gain(objective: Objective, free: Array, clouds: Clouds, i: int, target: float) -> tuple[float, float]:
    """Log likelihood gained by moving one free coordinate, and its Monte Carlo error by the delta method.

    `clouds` are simulated at `free`.
    """
    further = free.copy()
    further[i] = target
    before, after = objective.coordinates.values(free), objective.coordinates.values(further)
    gained, variance = 0.0, 0.0
    try:
        with np.errstate(all="ignore"):
            for part, cloud in zip(objective.parts, clouds, strict=True):
                new = moved(part, cloud, before, after)
                gained += new.log_likelihood - cloud.log_likelihood
                variance += cloud.variance(new.weights - cloud.weights)
    except InputError:  # the release is hopelessly unlikely there
        return -np.inf, np.inf
    return gained, float(np.sqrt(variance))


def edge_message(name: str, values: Values) -> str:
    """What a fit that ends at the edge of the parameter space says."""
    return (
        f"the estimate of '{name}' runs to the edge of its space (now {np.asarray(values[name]).tolist()}): the "
        "likelihood is no lower further out. Standard errors and Wald intervals mean nothing there. Fix the parameter "
        "at the edge, or use nw.sample."
    )


def _inverse(information: Array) -> tuple[Array, bool]:
    correlations, scale = unit_free(0.5 * (information + information.T))  # free of the parameters' units
    values, vectors = np.linalg.eigh(correlations)
    definite = bool(np.all(np.diag(information) > 0) and values.min() > 1e-6)
    inverted = np.where(values > 0, 1.0 / np.where(values > 0, values, 1.0), np.nan)
    return ((vectors * inverted) @ vectors.T) / np.outer(scale, scale), definite
