"""Monte Carlo EM (Gong 2022, Algorithms 2 and 3), with the ascent-based schedule of Caffo, Jank and Jones (2005).

The E-step simulates the confidential statistic from the current model and weighs it by the noise density; entries that
are independent are weighted one by one. `e_step/` has its variants, `monte_carlo/` the parts of a run. Derivations:
docs/derivations/likelihood.md.
"""

from dataclasses import dataclass, field
from typing import Any

from noisewise import checks
from noisewise.checkpoint.log import NOTHING, Log
from noisewise.engine import Engine
from noisewise.errors import refusal
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Steps
from noisewise.inference.settings import Estimator
from noisewise.likelihood.e_step.simulated import smallest
from noisewise.likelihood.e_step.table import E_STEPS
from noisewise.likelihood.monte_carlo.climb import Climb, boundary
from noisewise.likelihood.monte_carlo.iterations import Iterations
from noisewise.likelihood.monte_carlo.measurement import ROUGH, FinalMeasurement
from noisewise.likelihood.monte_carlo.position import Position
from noisewise.likelihood.monte_carlo.settling import UNSETTLED, Settling
from noisewise.likelihood.result import End, finish
from noisewise.likelihood.schedules import Ascent, Staged
from noisewise.numerics import Array
from noisewise.results.fit import Fit

CUT = (
    "samples were of at most {room:,} values, not of the {asked:,} asked for: those of all entries or records fill the "
    "room there is. The Monte Carlo errors count that."
)


@dataclass(frozen=True)
class MCEM(Estimator):
    """Settings of Monte Carlo EM: the E-step's variant, the schedule of sample sizes, and the most iterations."""

    simulates = True

    e_step: str = "importance"
    """How to simulate: "importance" (values from the model, with weights), "augmented" (chains over records or measured
    tables), "mixture", "rejection", "resampled", "markov" or "recycled"."""
    schedule: Ascent | Staged = field(default_factory=Ascent)
    max_iterations: int = 500
    final: int = 1_000_000
    """Fresh values at the maximiser, for score, information and Monte Carlo error."""

    def __post_init__(self) -> None:
        checks.choice("MCEM", "e_step", self.e_step, E_STEPS)
        if not isinstance(self.schedule, (Ascent, Staged)):
            raise refusal("MCEM", "schedule", "must be an Ascent or a Staged", self.schedule, "Leave it out if unsure.")
        checks.integer("MCEM", "max_iterations", self.max_iterations, least=1, advice="The default is 500.")
        checks.integer("MCEM", "final", self.final, least=100, advice="The default is 1_000_000.")

    @property
    def asked(self) -> int:
        """Values of the largest sample that the settings ask for; `Ascent` only allows larger ones."""
        return max((self.final, *(self.schedule.sizes if isinstance(self.schedule, Staged) else ())))

    @property
    def largest(self) -> int:
        """Values of the largest E-step."""
        plan = self.schedule
        return max(self.final, plan.most if isinstance(plan, Ascent) else max(plan.sizes))

    def run(
        self,
        problem: Problem,
        start: dict[str, Array],
        seed: int | None,
        engine: Engine,
        progress: Steps,
        log: Log = NOTHING,
    ) -> Fit:
        """Climb; then step to the top by Newton's method on fresh samples, and measure there. Ctrl-C ends early."""
        assert seed is not None
        position = Position(problem, E_STEPS[self.e_step], start, self.largest, seed, engine)
        iterations = Iterations(position, log, self.max_iterations)
        with progress:
            try:
                status, message, measured = self._climbed(position, iterations, progress)
                height = measured.height()
            except KeyboardInterrupt:
                status, message = "interrupted", f"interrupted after {len(iterations.trace)} iterations."
                measured = self._measured_here(position)
                height = measured.height(simulate=False)
        if self.asked > position.room:
            message = f"{message} {CUT.format(room=position.room, asked=self.asked)}".lstrip()
        likelihood, error, unknown = height
        diagnostics: dict[str, Any] = {
            "simulated": position.simulated,
            "final": min(self.final, position.room),
            "ess": smallest(measured.clouds),
            "log_likelihood_error": error,
            "iterations": len(iterations.trace),
        }
        end = End(
            position.free,
            measured.louis,
            likelihood,
            status,
            f"{message} {unknown}".strip(),
            iterations.trace,
            diagnostics,
            tilt=measured.tilt(),
            monte_carlo=True,
        )
        return finish(self, problem, seed, position.coordinates, end)

    def _climbed(
        self, position: Position, iterations: Iterations, progress: Steps
    ) -> tuple[str, str, FinalMeasurement]:
        """Climb to the top and measure there: status, message, measurement."""
        status, message = Climb(self.schedule, position, iterations, progress).run()
        settled = Settling(position, iterations, progress, self.final).run(newton=status != "boundary")
        measured = FinalMeasurement(position, settled.clouds, settled.louis, self.final)
        if settled.edge is not None:
            status, message = boundary(position, settled.edge)
        elif status != "boundary" and (reason := measured.too_thin()):
            status, message = "thin", reason
        elif not settled.at_root:
            status, message = "stalled", UNSETTLED
        elif measured.is_rough():
            status, message = "rough", ROUGH
        return status, message, measured

    def _measured_here(self, position: Position) -> FinalMeasurement:
        """The measurement by the samples there are, after an interruption."""
        position.look_at_all()
        clouds = position.here()
        louis = position.objective.score_and_information(position.free, clouds)
        return FinalMeasurement(position, clouds, louis, self.final)
