"""EM with an exact E-step: sums over whole numbers, quadrature over scalars (Gong 2022, Algorithm 2).

Derivation of the E-step, of the bound on what a window neglects and of the information: docs/derivations/likelihood.md.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.checkpoint.log import NOTHING, Log
from noisewise.engine import Engine
from noisewise.errors import InferenceError, InputError, refusal
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Steps
from noisewise.inference.settings import Estimator
from noisewise.likelihood.e_step.cloud import Clouds, inexact
from noisewise.likelihood.e_step.entries_in_pieces import exact_parts, first_pieces, in_pieces
from noisewise.likelihood.e_step.measured import MeasuredPart
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.e_step.sufficient import condensed
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.m_step.maximise import Louis
from noisewise.likelihood.observed import Surface
from noisewise.likelihood.result import EDGE, LOSS, End, at_edge, edge_message, finish, standard_errors_left
from noisewise.numerics import Array
from noisewise.results.fit import Fit

LOOK = 25
"""Steps after which EM looks ahead to an edge: the way there may take it thousands."""
LEVEL = 5
"""Steps that gain nothing but rounding at the edge, if they are there."""
SLOW = 100
"""Steps after which EM, which may need thousands more, is helped by quasi-Newton and Newton steps."""
NEAR = 1.0
"""Standard errors from the top within which Newton's step is tried; the step itself tells how many are left."""


@dataclass(frozen=True)
class EM(Estimator):
    """EM with exact E-steps: it stops when no free coordinate u moves by more than `tolerance` (unit + |u|).

    The unit is 1 for coordinates of a bounded space (logs, logits), else the standard error that the confidential
    statistic itself would give. After `max_iterations` it gives up.

    With `score_tolerance` it also stops when the score says that the top is at most so many standard errors away. With
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

    def unfit(self, problem: Problem) -> str | None:
        """Why it cannot sum or integrate entry by entry, or None; what `parts_of` refuses is refused here too."""
        for part in parts_of(problem):
            if isinstance(part, MeasuredPart):
                return f"sums or integrates entry by entry, but measurements of '{part.name}' tie its entries together"
            if not part.exact and not part.by_entry:
                dependent = f"the entries of '{part.name}', or their noise, are not independent"
                return f"sums or integrates entry by entry, but {dependent}"
            if not part.exact and part.atomic:
                return f"integrates over densities, but single values of '{part.name}' have positive probability"
        return None

    def run(
        self,
        problem: Problem,
        start: dict[str, Array],
        seed: int | None,
        engine: Engine,
        progress: Steps,
        log: Log = NOTHING,
    ) -> Fit:
        """Alternate exact E-steps and M-steps. Ctrl-C ends with the current state."""
        coordinates = Coordinates(problem.model, problem.axes)
        parts = exact_parts(parts_of(problem), start)
        ascent = ExactAscent(self, Surface(parts, coordinates, engine), coordinates.free_from(start))
        with progress:
            try:
                if in_pieces(parts):
                    some = Surface(first_pieces(parts), coordinates, engine)
                    ascent.begin_with(ExactAscent(self, some, ascent.free), progress)
                status, message = ascent.climb(progress)
            except KeyboardInterrupt:
                status, message = "interrupted", f"interrupted after {len(ascent.trace)} iterations."
        clouds = ascent.surface.clouds(ascent.free)
        louis, neglected = ascent.louis(clouds), clouds.neglected
        if status == "converged" and (reason := inexact(*neglected)):
            status, message = "inexact", reason
        slope = ascent.slope(louis)
        diagnostics: dict[str, Any] = {"neglected": neglected[1], "iterations": len(ascent.trace)}
        diagnostics["information"] = "Louis" if slope is None else "slope of the score"
        height, trace = clouds.log_likelihood, ascent.trace
        end = End(ascent.free, louis, height, status, message, trace, diagnostics, information=slope)
        return finish(self, problem, seed, coordinates, end)


class ExactAscent:
    """One run's state: where it is, and the trace."""

    def __init__(self, settings: EM, surface: Surface, free: Array) -> None:
        self.settings, self.surface, self.free = settings, surface, free
        self.objective, self.coordinates = surface.objective, surface.coordinates
        self.trace: list[dict[str, Any]] = []
        self.unit = self.coordinates.spread
        """The unit of every free coordinate, by which its steps are judged."""
        self.newton, self.near = settings.accelerate, NEAR
        """Whether Newton steps are tried, as in every slow climb, and within how many standard errors of the top."""

    def begin_with(self, other: "ExactAscent", progress: Steps) -> None:
        """Begin where a climb on some of the entries ends, if at a maximum: Newton's steps lead on to that of all."""
        other.newton = True
        if other.climb(progress)[0] == "converged" and other._has_top():
            self.free, self.newton, self.near = other.free, True, math.inf
        self.trace = other.trace

    def louis(self, clouds: Clouds) -> Louis:
        """Score and information where the run is."""
        return self.objective.score_and_information(self.free, clouds)

    def slope(self, louis: Louis) -> Array | None:
        """The information by differences of the exact score, where Louis's identity does not agree with it."""
        if all(part.smooth for part in self.surface.parts):
            return None
        try:
            slope = self.objective.slope(self.free, louis, 1e-3, self.surface.clouds)
        except InputError:  # at an edge
            return None
        size = np.sqrt(np.outer(np.abs(np.diag(slope)), np.abs(np.diag(slope))))
        return None if np.all(np.abs(slope - louis.information) <= 1e-3 * size) else slope

    def climb(self, progress: Steps) -> tuple[str, str]:
        """Steps until one is small enough: (status, message)."""
        settings, clouds = self.settings, None
        for iteration in range(len(self.trace), settings.max_iterations):
            clouds = clouds or self.surface.clouds(self.free)
            likelihood = clouds.log_likelihood
            values = self.coordinates.values(self.free)
            self.trace.append({"iteration": iteration, "log_likelihood": likelihood, **values})
            progress.step(iteration, f"log likelihood {likelihood:.8g}")
            left, newton = self._newton(clouds)
            if settings.score_tolerance is not None and left <= settings.score_tolerance:
                return "converged", ""
            ahead = self._safe(newton, likelihood) if left < self.near else None
            if ahead is None:
                new, self.unit = self.objective.maximise(self.free, clouds.changed(condensed))
            else:
                new = newton
                self.trace[-1]["newton"] = True
            step = new - self.free
            done = bool(np.all(np.abs(step) <= settings.tolerance * (self.unit + np.abs(new))))
            looks = iteration % LOOK == LOOK - 1
            slow = iteration % SLOW == SLOW - 1 or (looks and self._on_its_way(step, likelihood))
            self.free, clouds = new, ahead
            if looks and self._is_level() and (edge := at_edge(self.coordinates, new, self._gained)):
                return "boundary", edge_message(edge, self.coordinates.values(new))
            if done or slow:
                edge, clouds = (at_edge(self.coordinates, new, self._gained) if done else self._helped()), None
                if edge is not None:
                    return "boundary", edge_message(edge, self.coordinates.values(self.free))
            if done or (slow and not self._has_top()):
                return "converged", ""
        limit = f"EM has not converged in max_iterations={settings.max_iterations} steps."
        return "max_iterations", limit if settings.accelerate else f"{limit} Raise it, or use nw.EM(accelerate=True)."

    def _newton(self, clouds: Clouds) -> tuple[float, Array]:
        """Standard errors left to the top, and the free coordinates after Newton's step to it; each where asked for."""
        if not self.newton and self.settings.score_tolerance is None:
            return float("inf"), self.free
        louis = self.louis(clouds)
        left = standard_errors_left(louis.score, louis.information)
        if not self.newton or not np.isfinite(left):
            return left, self.free
        return left, self.objective.stepped(self.free, np.linalg.solve(louis.information, louis.score))

    def _safe(self, new: Array, likelihood: float) -> Clouds | None:
        """The clouds at `new`, or nothing where the log likelihood would fall (by more than rounding)."""
        if not self.newton:
            return None
        clouds = self.surface.clouds(new)
        try:
            rise = clouds.log_likelihood - likelihood
        except InputError:  # too far out for a sum or an integral
            return None
        return clouds if rise >= -1e-12 * abs(likelihood) else None

    def _height(self, free: Array) -> float:
        try:
            return self.surface.clouds(free).log_likelihood
        except InputError:  # too far out for a sum or an integral
            return -np.inf

    # Edges ----------------------------------------------------------------------------------------------------------

    def _gained(self, i: int, start: float, end: float) -> float:
        """Log likelihood gained by moving one free coordinate from start to end, rounding left out."""
        heights = []
        for place in (start, end):
            free = self.free.copy()
            free[i] = place
            heights.append(self._height(free))
        rise = heights[1] - heights[0]
        return 0.0 if abs(rise) <= 1e-10 * abs(heights[0]) else rise

    def _is_level(self) -> bool:
        """Whether the latest steps have gained nothing but rounding: far beyond an edge they lead anywhere."""
        then, now = (self.trace[i]["log_likelihood"] for i in (-LEVEL, -1))
        return bool(abs(now - then) <= 1e-10 * abs(now))

    def _on_its_way(self, step: Array, likelihood: float) -> bool:
        """Whether the likelihood rises all the way to beyond `EDGE` of the bounded coordinate that moves most.

        Where a variance, say, runs to zero, EM's steps shrink with it and would not get there, nor would the other
        parameters to where they belong.
        """
        has_edge = self.coordinates.has_edge
        i = int(np.argmax(np.where(has_edge, np.abs(step), -1.0)))
        start, end = self.free[i], (EDGE + 1.0) * np.sign(step[i])
        if not has_edge[i] or step[i] == 0 or abs(start) > EDGE:
            return False
        far = self.free.copy()
        for share in (0.1, 0.25, 0.5, 0.75, 1.0):
            far[i] = start + share * (end - start)
            before, likelihood = likelihood, self._height(far)
            if likelihood < before - 1e-10 * abs(before):  # by more than rounding
                return False
        return True

    # Help -----------------------------------------------------------------------------------------------------------

    def _helped(self) -> str | None:
        """Climb by quasi-Newton steps, which need not shrink with EM's; the parameter, if any, whose edge is the top.

        Where the likelihood is no lower with one coordinate beyond `EDGE`, the coordinate belongs there, and the
        likelihood is maximised over the others. From now on Newton's steps are tried.
        """
        self.newton = True
        moving = np.ones(self.coordinates.size, bool)
        height = self._climbed(moving)
        for i in np.flatnonzero(self.coordinates.has_edge):
            inside = self.free.copy()
            self.free[i], moving[i] = np.copysign(EDGE + 1.0, self.free[i]), False
            if self._height(self.free) >= height + LOSS and self._climbed(moving) >= height + LOSS:
                return at_edge(self.coordinates, self.free, self._gained)
            self.free, moving[i] = inside, True
        return None

    def _climbed(self, moving: Array) -> float:
        """The height that quasi-Newton steps reach."""
        try:
            self.free, height = self.surface.maximise(self.free, moving, until=EDGE)
        except InferenceError:  # no top within its steps: a ridge
            height = self._height(self.free)
        return height

    def _has_top(self) -> bool:
        """Whether the observed information is positive definite here."""
        louis = self.louis(self.surface.clouds(self.free))
        return bool(np.isfinite(standard_errors_left(louis.score, louis.information)))
