"""A measured table of whole numbers as states of Markov chains along integer directions, at fixed parameters.

Tables simulated whole have weight only where all their sums happen to fall near the release; those of a chain stay
there. The moves are the sampler's own: docs/derivations/measured-tables.md.
"""

import numpy as np

from noisewise.errors import refusal
from noisewise.inference.problem import Problem
from noisewise.inference.tables import lattice
from noisewise.inference.tables.lattice import LatticeMoves
from noisewise.likelihood.e_step.augmented import CHAINS, FEWEST, SIDE_BY_SIDE, Chained, power_of_two
from noisewise.likelihood.e_step.measured import MeasuredPart
from noisewise.likelihood.e_step.simulated_records import MOST_NUMBERS
from noisewise.likelihood.instead import SAMPLE
from noisewise.numerics import Array, Values

RENEWED = 0.5
"""The share of the table that a sweep counts as replacing: a cell moves once, but only as far as the others let it."""


class ChainedTable(MeasuredPart, Chained):
    """One measured table; a state is all its cells."""

    what = "cells"

    def __init__(self, problem: Problem, name: str) -> None:
        super().__init__(problem, name)
        if reason := lattice.unfit(problem, name):
            rule = f"must apply to the release; it {reason}"
            raise refusal("MCEM", "e_step", rule, "augmented", "Leave it out, or use nw.sample.", instead=(SAMPLE,))
        self.lattice = LatticeMoves(problem, name)
        self.chains = max(CHAINS[0], power_of_two(min(CHAINS[1], SIDE_BY_SIDE // (64 * self.numbers))))

    @property
    def simulated_numbers(self) -> int:
        """Numbers drawn to simulate one table whole: its cells."""
        return self.numbers

    @property
    def room(self) -> int:
        """Most states that an E-step may hold."""
        return max(FEWEST, MOST_NUMBERS // self.numbers)

    def begin(self, rng: np.random.Generator, given: Values) -> Array:
        """Tables of the model, moved to where the exact measurements hold and the noisy ones are likely."""
        parents = {parent: given[parent] for parent in self.law.parents}
        return self.lattice.settled(rng, self.law.draw(rng, parents, self.chains), parents)

    def sweep_of(self, rng: np.random.Generator, state: Array, given: Values) -> tuple[Array, float]:
        """One sweep along the directions."""
        return self.lattice.sweep(rng, state, given), RENEWED

    def look_at(self, values: Values, state: Array) -> tuple[Array, Array]:
        """The tables; and, to be watched, their sums, log densities and noise log densities."""
        sums = state.reshape(len(state), -1).sum(axis=1, keepdims=True)
        return state, np.concatenate([sums, self.log_prob_many(values, state), self.log_eta(state)], axis=1)
