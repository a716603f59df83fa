"""From a maximiser and a cloud at it to a `Fit`."""

from typing import Any

import numpy as np

from noisewise.errors import InputError
from noisewise.fit import Fit
from noisewise.likelihood.cloud import Cloud, moved
from noisewise.likelihood.maximise import Objective
from noisewise.samplers.problem import Problem
from noisewise.settings import Estimator

Array = np.ndarray[Any, Any]


def finish(
    estimator: Estimator,
    problem: Problem,
    objective: Objective,
    free: Array,
    clouds: list[Cloud],
    seed: int | None,
    status: str,
    message: str,
    trace: list[dict[str, Any]],
    *,
    diagnostics: dict[str, Any],
    monte_carlo: bool = False,
) -> Fit:
    """Information by Louis's identity at `free`, covariance on the parameters' own scale, Monte Carlo errors."""
    coordinates = objective.coordinates
    score, information, noise, complete = objective.score_and_information(free, clouds)
    inverse, definite = _inverse(information)
    diagnostics = diagnostics | {"standard_errors_left": standard_errors_left(score, information)}
    if not definite and status == "converged":
        status = "flat"
        message = (
            f"the observed information is not positive definite (eigenvalues {np.linalg.eigvalsh(information)}): the "
            "likelihood is flat or the estimate lies on a boundary. Intervals are not available in those directions."
        )
    best, _ = _inverse(complete)
    spread = inverse @ noise @ inverse  # of the maximiser, from the simulated score's own noise
    if not coordinates.is_square:
        jacobian = coordinates.jacobian(free)
        inverse, spread = jacobian @ inverse @ jacobian.T, jacobian @ spread @ jacobian.T
        best = jacobian @ best @ jacobian.T
    estimate = coordinates.values(free)
    fit = Fit(
        estimate=estimate,
        labels=tuple(coordinates.labels),
        covariance=inverse,
        information=information if coordinates.is_square else None,
        score=score,
        log_likelihood=sum(cloud.log_likelihood for cloud in clouds),
        estimator=estimator,
        seed=seed,
        release_hash=problem.release.hash,
        status=status,
        message=message,
        trace=tuple(trace),
        diagnostics=diagnostics,
    )
    object.__setattr__(fit, "efficiency", fit._by_name(np.diag(best) / np.diag(inverse)))
    if monte_carlo:
        object.__setattr__(fit, "monte_carlo_error", fit._by_name(np.sqrt(np.maximum(np.diag(spread), 0.0))))
    return fit


def standard_errors_left(score: Array, information: Array) -> float:
    """How far off the top is by Newton's reckoning, in standard errors; infinite where there is no such top."""
    if not _inverse(information)[1]:
        return float("inf")
    return float(np.sqrt(max(float(score @ np.linalg.solve(information, score)), 0.0)))


EDGE = 15.0
"""Free coordinates beyond this are looked at: a positive parameter of 3e-7, a share within 3e-7 of 0 or 1."""


def at_edge(objective: Objective, free: Array, clouds: list[Cloud]) -> str | None:
    """The parameter, if any, that runs to the edge of its space: far out, and further out is no less likely.

    `clouds` stand at `free`. A large gain further out means that it is on its way to a maximum; and a maximum inside,
    however far out, loses by the step.
    """
    for i, name in enumerate(objective.coordinates.bounded):
        if name is not None and abs(free[i]) > EDGE:
            gain, _ = _gain(objective, free, clouds, i, free[i] + 5.0 * np.sign(free[i]))
            if -1e-12 <= gain < 1e-3:
                return name
    return None


def near_edge(objective: Objective, free: Array, clouds: list[Cloud], score: Array, information: Array) -> str | None:
    """As `at_edge` for simulated clouds, which near an edge may take noise for a maximum.

    Looked at only where something is odd: a top that is not there, or not here, or so broad that an error is as large
    as the parameter. Then the edge must be as likely as here, within five Monte Carlo errors that are small.
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
            gain, error = _gain(objective, free, clouds, i, side * max(10.0, side * free[i] + 5.0))
            if error < 0.05 and gain >= -5.0 * error:
                return name
    return None


def _gain(objective: Objective, free: Array, clouds: list[Cloud], i: int, target: float) -> tuple[float, float]:
    """Log likelihood gained by moving one free coordinate, and its Monte Carlo error by the delta method."""
    further = free.copy()
    further[i] = target
    before, after = objective.coordinates.values(free), objective.coordinates.values(further)
    gain, variance = 0.0, 0.0
    try:
        with np.errstate(all="ignore"):
            for part, cloud in zip(objective.parts, clouds, strict=True):
                new = moved(part, cloud, before, after)
                gain += new.log_likelihood - cloud.log_likelihood
                variance += float(np.sum((new.weights - cloud.weights) ** 2))
    except InputError:  # the release is hopelessly unlikely there
        return -np.inf, np.inf
    return gain, float(np.sqrt(variance))


def edge_message(name: str, values: dict[str, Array]) -> str:
    """What a fit that ends at the edge of the parameter space says."""
    return (
        f"the estimate of '{name}' runs to the edge of its space (now {np.asarray(values[name]).tolist()}): the "
        "likelihood is no lower further out. Standard errors and Wald intervals mean nothing there. Fix the parameter "
        "at the edge, or use nw.sample."
    )


def _inverse(information: Array) -> tuple[Array, bool]:
    values, vectors = np.linalg.eigh(0.5 * (information + information.T))
    diagonal = np.diag(information)
    definite = bool(np.all(diagonal > 0))
    if definite:  # free of the parameters' units: the information's correlations
        unit = information / np.sqrt(np.outer(diagonal, diagonal))
        definite = bool(np.linalg.eigvalsh(unit).min() > 1e-6)
    with np.errstate(divide="ignore"):
        inverted = np.where(values > 0, 1.0 / np.where(values > 0, values, 1.0), np.nan)
    return (vectors * inverted) @ vectors.T, definite
