"""Several starts: where they come from, which end wins, and whether they ended at different maxima."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from noisewise.errors import InputError, refusal
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.likelihood.candidates import CLIMBED, FIRST, Point, Score, best_candidates
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.results.fit import Fit


def starting_points(problem: Problem, coordinates: Coordinates, start: Any, seed: int | None) -> list[Point]:
    """The starts given, checked; or the best of many candidates, the same for the same seed.

    Where the likelihood is not known, candidates cannot be compared: then the first draws from the prior.
    """
    if start is None:
        rng, score = generator(seed or 0, Purpose.STARTS), Score(problem)
        points = _drawn(problem.model, coordinates, rng)
        return best_candidates(points, coordinates, score, rng) if score.known else points[:CLIMBED]
    if isinstance(start, Mapping):
        return [coordinates.check_start(dict(start))]
    if not isinstance(start, Sequence) or isinstance(start, str) or not start:
        rule = "must be a dict of values, or a list of such dicts"
        raise refusal("fit", "start", rule, start, "Leave it out to start from draws of the prior.")
    return [coordinates.check_start(dict(one) if isinstance(one, Mapping) else one) for one in start]


def _drawn(model: Model, coordinates: Coordinates, rng: np.random.Generator) -> list[Point]:
    draws = model.draw(rng, list(coordinates.names), FIRST)
    points: list[Point] = []
    problem: InputError | None = None
    for row in range(FIRST):
        try:  # a draw may round to the edge of its support
            points.append(coordinates.check_start({name: draws[name][row] for name in coordinates.names}))
        except InputError as error:
            problem = error
    if not points and problem is not None:
        raise problem
    return points


def best_of(points: list[Point], run: Callable[[int], Fit]) -> Fit:
    """Run every start, and return the highest end, with all ends in its diagnostics.

    A start from which the fit is refused (the release is too unlikely there) is passed over, unless all are.
    """
    fits: dict[int, Fit] = {}
    ends: list[dict[str, Any]] = []
    refused: list[InputError] = []
    for number, point in enumerate(points):
        end: dict[str, Any] = {"start": point}
        ends.append(end)
        try:
            fit = fits[number] = run(number)
        except InputError as error:
            refused.append(error)
            end |= {"status": "refused", "message": str(error)}
            continue
        end |= {"status": fit.status, "message": fit.message}
        end |= {"estimate": dict(fit.estimate), "log_likelihood": fit.log_likelihood}
        if fit.status == "interrupted":
            break
    if not fits:
        raise refused[0]
    best = _highest(list(fits.values()))
    others = [fit for fit in fits.values() if fit.status == best.status == "converged" and _apart(best, fit)]
    message = best.message
    if others:
        message = f"{_other_maxima(best, others, len(points))} {message}".strip()
    status, last = best.status, list(fits.values())[-1]
    if last.status == "interrupted" and best is not last:
        status = "interrupted"
        message = f"interrupted in start {len(ends)} of {len(points)}; this is the best end so far. {message}".strip()
    diagnostics = {**best.diagnostics, "starts": tuple(ends), "multimodal": bool(others)}
    return replace(best, status=status, message=message, diagnostics=diagnostics)


def _other_maxima(best: Fit, others: list[Fit], starts: int) -> str:
    """What to say of other maxima: where, and how high, as far as likelihoods are known."""
    second = _highest(others)
    heights = f"with log likelihood {second.log_likelihood:.6g} at {_shown(second)}"
    heights += f", against {best.log_likelihood:.6g} here"
    if not all(math.isfinite(fit.log_likelihood) for fit in (best, *others)):
        heights = f"at {_shown(second)}: which of them is higher is not known"
    return (
        f"multimodal: {len(others)} of {starts} starts ended at another maximum, the best of them {heights}. "
        "Intervals by standard errors see this maximum only."
    )


def _error(fit: Fit) -> float:
    return float(fit.diagnostics.get("log_likelihood_error", 0.0))


def _highest(fits: list[Fit]) -> Fit:
    """The highest end; where heights are equal within their errors, or not known, one that converged."""
    height = {id(fit): fit.log_likelihood if math.isfinite(fit.log_likelihood) else -math.inf for fit in fits}
    best = max(fits, key=lambda fit: (height[id(fit)], fit.status == "converged"))
    for fit in fits:
        gap = 1e-6 + 4.0 * math.hypot(_error(best), _error(fit))
        if best.status != "converged" and fit.status == "converged" and best.log_likelihood - fit.log_likelihood < gap:
            return fit
    return best


def _apart(one: Fit, other: Fit) -> bool:
    """Whether two ends are different maxima: further apart than their Monte Carlo errors and 1% of a standard error."""
    for name, value in one.estimate.items():
        own, theirs = one.monte_carlo_error.get(name, 0.0), other.monte_carlo_error.get(name, 0.0)
        scale = np.minimum(one.standard_error[name], other.standard_error[name])
        scale = np.where(np.isfinite(scale), scale, np.maximum(np.abs(value), np.abs(other.estimate[name])))
        if np.any(np.abs(value - other.estimate[name]) > 5.0 * np.hypot(own, theirs) + 0.01 * scale):
            return True
    return False


def _shown(fit: Fit) -> str:
    return ", ".join(f"{name}={_rounded(value)}" for name, value in fit.estimate.items())


def _rounded(value: Array) -> Any:
    """Six digits of every number."""
    return np.vectorize(lambda one: float(f"{one:.6g}"))(value).tolist()
