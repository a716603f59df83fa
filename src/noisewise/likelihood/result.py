"""From a maximiser and a cloud at it to a `Fit`."""

from typing import Any

import numpy as np

from noisewise.fit import Fit
from noisewise.likelihood.cloud import Cloud
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
