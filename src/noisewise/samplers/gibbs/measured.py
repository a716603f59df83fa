"""Statistics measured several ways, given their parameters: tables of whole numbers, and normal ones in closed form.

Tables move along integer directions (docs/derivations/measured-tables.md); a normal statistic under Gaussian noise is
drawn at once (docs/derivations/conditional.md).
"""

import numpy as np

from noisewise.inference.conditional.measured_normal import MeasuredNormal
from noisewise.inference.tables.lattice import LatticeMoves
from noisewise.samplers.gibbs.joint import Joint, State


class MeasuredTable:
    """A table of whole numbers, moved along integer directions."""

    def __init__(self, joint: Joint, name: str) -> None:
        self.joint, self.name = joint, name
        self.lattice = LatticeMoves(joint.problem, name)

    @staticmethod
    def of(joint: Joint, name: str) -> "MeasuredTable":
        """The step for one table, made once for a run: finding its directions takes time."""
        step: MeasuredTable = joint.steps.get(name) or joint.steps.setdefault(name, MeasuredTable(joint, name))
        return step

    def settle(self, rng: np.random.Generator, state: State) -> None:
        """Begin at tables that exact measurements allow, near what the noisy ones say."""
        state.values[self.name] = self.lattice.settled(rng, state.values[self.name], state.values)

    def prepare(self, state: State) -> None:
        """Begin to compile the programs that a step will run."""
        self.lattice.prepare(state.values[self.name], state.values, self.joint.release, self.joint.axes)

    def step(self, rng: np.random.Generator, state: State, warm: bool) -> tuple[float, float]:
        """One sweep: (accepted, tried), equal since all draws are exact."""
        joint, before = self.joint, state.values[self.name]
        state.values[self.name] = self.lattice.sweep(rng, before, state.values, joint.release, joint.axes)
        return float(state.chains), float(state.chains)


class Normal:
    """A normal statistic measured several ways with Gaussian noise, drawn from its law given parameters and release."""

    def __init__(self, joint: Joint, name: str) -> None:
        self.joint, self.name = joint, name
        self.conditional = MeasuredNormal(joint.problem, name)

    def step(self, rng: np.random.Generator, state: State, warm: bool) -> tuple[float, float]:
        """One draw for every chain: (accepted, tried)."""
        given = {parent: state.values[parent] for parent in self.joint.model.parents(self.name)}
        state.values[self.name] = self.conditional.drawn(rng, given, state.chains)
        return float(state.chains), float(state.chains)
