"""EM with an exact E-step: sums over whole numbers, quadrature over scalars (Gong 2022, Algorithm 2).

Derivation of the E-step, of the bound on what a window neglects and of the information: docs/derivations/likelihood.md.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import InputError, refusal
from noisewise.fit import Fit
from noisewise.likelihood.cloud import Cloud, exact_cloud, inexact
from noisewise.likelihood.coordinates import Coordinates
from noisewise.likelihood.display import Steps
from noisewise.likelihood.maximise import Objective
from noisewise.likelihood.parts import parts_of
from noisewise.likelihood.result import EDGE, End, at_edge, edge_message, finish, standard_errors_left
from noisewise.likelihood.sufficient import condensed
from noisewise.samplers.problem import Problem
from noisewise.settings import Estimator

Array = np.ndarray[Any, Any]

LOOK = 25
"""Steps after which EM looks ahead to an edge: the way there may take it thousands."""
NEAR = 1.0
"""Standard errors from the top, by Newton's reckoning, within which Newton's step is tried."""


@dataclass(frozen=True)
class EM(Estimator):
    """Settings: stop when no free coordinate u moves by more than `tolerance` (1 + |u|), or after `max_iterations`.

    With `score_tolerance` also stop when the score says that the top is at most so many standard errors away. With
    `accelerate`, Newton steps on the observed likelihood replace EM's near the top (Meilijson 1989); one that would
    lower the likelihood is not taken.
    """

    tolerance: float = 1e-10
    max_iterations: int = 5_000
    accelerate: bool = False
    score_tolerance: float | None = None

    def __post_init__(self) -> None:
        checks.positive_number("EM", "tolerance", self.tolerance, "The default is 1e-10.")
        checks.integer("EM", "max_iterations", self.max_iterations, least=1, advice="The default is 5000.")
        if not isinstance(self.accelerate, bool):
            raise refusal("EM", "accelerate", "must be True or False", self.accelerate, "Leave it out if unsure.")
        if self.score_tolerance is not None:
            advice = "In standard errors, for example 1e-6."
            checks.positive_number("EM", "score_tolerance", self.score_tolerance, advice)

    def run(self, problem: Problem, start: dict[str, Array], seed: int | None, engine: Any, progress: Steps) -> Fit:
        """Alternate exact E-steps and M-steps. Ctrl-C ends with the current state."""
        walk = Walk(self, problem, start)
        with progress:
            try:
                status, message = walk.climb(progress)
            except KeyboardInterrupt:
                status, message = "interrupted", f"interrupted after {len(walk.trace)} iterations."
        clouds = walk.e_step(walk.free)
        diagnostics: dict[str, Any] = {"neglected": max(cloud.neglected for cloud in clouds)}
        diagnostics["iterations"] = len(walk.trace)
        if status == "converged" and (told := inexact(diagnostics["neglected"])):
            status, message = "inexact", told
        slope = walk.slope(clouds)
        diagnostics["information"] = "Louis" if slope is None else "slope of the score"
        end = End(walk.free, clouds, status, message, walk.trace, diagnostics, information=slope)
        return finish(self, problem, seed, walk.objective, end)


class Walk:
    """One run's state: where it is, and the trace."""

    def __init__(self, settings: EM, problem: Problem, start: dict[str, Array]) -> None:
        self.settings, self.parts, self.coordinates = settings, parts_of(problem), Coordinates(problem.model)
        self.objective = Objective(self.parts, self.coordinates)
        self.free = self.coordinates.free_from(start)
        self.trace: list[dict[str, Any]] = []
        self.newton = settings.accelerate
        """Whether Newton steps are tried; on the way to an edge, always."""

    def e_step(self, free: Array) -> list[Cloud]:
        """The exact cloud of every part."""
        values = self.coordinates.values(free)
        return [exact_cloud(part, values) for part in self.parts]

    def slope(self, clouds: list[Cloud]) -> Array | None:
        """The information by differences of the exact score, where Louis's identity does not agree with it."""
        if all(part.smooth for part in self.parts):
            return None
        louis = self.objective.score_and_information(self.free, clouds)
        try:
            found = self.objective.slope(self.free, louis, 1e-3, self.e_step)
        except InputError:  # at an edge
            return None
        size = np.sqrt(np.outer(np.abs(np.diag(found)), np.abs(np.diag(found))))
        return None if np.all(np.abs(found - louis.information) <= 1e-3 * size) else found

    def climb(self, progress: Steps) -> tuple[str, str]:
        """Steps until one is small enough: (status, message)."""
        settings, clouds = self.settings, None
        for iteration in range(settings.max_iterations):
            clouds = clouds or self.e_step(self.free)
            likelihood = sum(cloud.log_likelihood for cloud in clouds)
            values = self.coordinates.values(self.free)
            self.trace.append({"iteration": iteration, "log_likelihood": likelihood, **values})
            progress.step(iteration, f"log likelihood {likelihood:.8g}")
            left, newton = self._newton(clouds)
            if settings.score_tolerance is not None and left <= settings.score_tolerance:
                return "converged", ""
            ahead = self._safe(newton, likelihood) if left < NEAR else None
            if ahead is None:
                small = [condensed(part, cloud) for part, cloud in zip(self.parts, clouds, strict=True)]
                new = self.objective.maximise(self.free, small)
            else:
                new = newton
                self.trace[-1]["newton"] = True
            step = new - self.free
            done = bool(np.all(np.abs(step) <= settings.tolerance * (1.0 + np.abs(new))))
            far = self._outwards(step, likelihood) if iteration % LOOK == LOOK - 1 and not done else None
            leaps, self.newton = self.newton, self.newton or far is not None
            self.free, clouds = (far, None) if far is not None and leaps else (new, ahead)
            if np.any((np.abs(self.free) > EDGE) & (done | (step * self.free > 0))):
                edge = at_edge(self.objective, self.free, self._gained)
                if edge is not None:
                    return "boundary", edge_message(edge, self.coordinates.values(self.free))
            if done:
                return "converged", ""
        limit = f"EM has not converged in max_iterations={settings.max_iterations} steps."
        return "max_iterations", limit if settings.accelerate else f"{limit} Raise it, or use nw.EM(accelerate=True)."

    def _newton(self, clouds: list[Cloud]) -> tuple[float, Array]:
        """Standard errors left to the top, and Newton's step to it, where asked for."""
        if not self.newton and self.settings.score_tolerance is None:
            return float("inf"), self.free
        louis = self.objective.score_and_information(self.free, clouds)
        left = standard_errors_left(louis.score, louis.information)
        if not self.newton or not np.isfinite(left):
            return left, self.free
        return left, self.objective.stepped(self.free, np.linalg.solve(louis.information, louis.score))

    def _likelihood(self, free: Array) -> float:
        try:
            return sum(cloud.log_likelihood for cloud in self.e_step(free))
        except InputError:  # too far out for a sum or an integral
            return -np.inf

    def _gained(self, i: int, start: float, end: float) -> float:
        """Log likelihood gained by moving one free coordinate from start to end, rounding left out."""
        heights = []
        for place in (start, end):
            free = self.free.copy()
            free[i] = place
            heights.append(self._likelihood(free))
        rise = heights[1] - heights[0]
        return 0.0 if abs(rise) <= 1e-10 * abs(heights[0]) else rise

    def _outwards(self, step: Array, likelihood: float) -> Array | None:
        """A place beyond `EDGE` on the way of the coordinate that moves most, if the likelihood rises all the way.

        Where a variance, say, runs to zero, EM's steps shrink with it and would not get there, nor would the other
        parameters to where they belong: Newton's do. Only if these do not either, EM leaps.
        """
        bounded = np.array([name is not None for name in self.coordinates.bounded])
        i = int(np.argmax(np.where(bounded, np.abs(step), -1.0)))
        start, end = self.free[i], (EDGE + 1.0) * np.sign(step[i])
        if not bounded[i] or step[i] == 0 or abs(start) > EDGE:
            return None
        far = self.free.copy()
        for share in (0.1, 0.25, 0.5, 0.75, 1.0):
            far[i] = start + share * (end - start)
            before, likelihood = likelihood, self._likelihood(far)
            if likelihood < before - 1e-12 * abs(before):
                return None
        return far

    def _safe(self, new: Array, likelihood: float) -> list[Cloud] | None:
        """The clouds at `new`, or nothing where the log likelihood would fall (by more than rounding)."""
        if not self.newton:
            return None
        try:
            clouds = self.e_step(new)
        except InputError:  # too far out for a sum or an integral
            return None
        rise = sum(cloud.log_likelihood for cloud in clouds) - likelihood
        return clouds if rise >= -1e-12 * abs(likelihood) else None
