"""EM with an exact E-step: sums over whole numbers, quadrature over scalars (Gong 2022, Algorithm 2).

Derivation of the E-step, of the bound on what a window neglects and of the information: docs/derivations/likelihood.md.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.fit import Fit
from noisewise.likelihood.cloud import exact_cloud
from noisewise.likelihood.coordinates import Coordinates
from noisewise.likelihood.maximise import Objective
from noisewise.likelihood.parts import parts_of
from noisewise.likelihood.result import finish
from noisewise.likelihood.sufficient import condensed
from noisewise.samplers.problem import Problem
from noisewise.settings import Estimator

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class EM(Estimator):
    """Settings: stop when no free coordinate moves by more than `tolerance`, or after `max_iterations`."""

    tolerance: float = 1e-10
    max_iterations: int = 5_000

    def __post_init__(self) -> None:
        checks.positive_number("EM", "tolerance", self.tolerance, "The default is 1e-10.")
        checks.integer("EM", "max_iterations", self.max_iterations, least=1, advice="The default is 5000.")

    def run(self, problem: Problem, start: dict[str, Array], seed: int | None, engine: Any, progress: Any) -> Fit:
        """Alternate exact E-steps and M-steps."""
        parts, coordinates = parts_of(problem), Coordinates(problem.model)
        objective = Objective(parts, coordinates)
        free = coordinates.free_from(start)
        trace: list[dict[str, Any]] = []
        status, message = "max_iterations", f"EM has not converged in max_iterations={self.max_iterations} steps."
        for iteration in range(self.max_iterations):
            values = coordinates.values(free)
            clouds = [exact_cloud(part, values) for part in parts]
            likelihood = sum(cloud.log_likelihood for cloud in clouds)
            trace.append({"iteration": iteration, "log_likelihood": likelihood, **values})
            new = objective.maximise(free, [condensed(p, c) for p, c in zip(parts, clouds, strict=True)])
            moved = float(np.max(np.abs(new - free)))
            free = new
            if moved <= self.tolerance:
                status, message = "converged", ""
                break
        clouds = [exact_cloud(part, coordinates.values(free)) for part in parts]
        neglected = max(cloud.neglected for cloud in clouds)
        return finish(
            self, problem, objective, free, clouds, seed, status, message, trace, diagnostics={"neglected": neglected}
        )
