"""The E-step by Markov chains: over the records of released totals, and over measured tables.

The chains are in `augmented.py` and `table_chains.py`. Other parts go by importance weights.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noisewise.inference.blocks import Columns
from noisewise.inference.problem import Problem
from noisewise.inference.stream import Stream
from noisewise.likelihood.e_step.augmented import Augmented, Chained
from noisewise.likelihood.e_step.by_weight import Importance
from noisewise.likelihood.e_step.cloud import Cloud, weighted
from noisewise.likelihood.e_step.contract import THICKEN, Drawing, rows_in_block
from noisewise.likelihood.e_step.released_law import Part
from noisewise.likelihood.e_step.table_chains import ChainedTable
from noisewise.numerics import Array, Values


class OverRecords(Importance):
    """States of Markov chains over records or tables, whose sums stay near the release however small the noise."""

    name = "augmented"
    eases = False
    measures = True
    records = Augmented
    tables = ChainedTable

    def unfit(self, parts: Sequence[Part]) -> str | None:
        """It needs a released total, or a measured table."""
        if self.relative(parts):
            return None
        return "must be another where no Total is released and no table measured: there is nothing to augment"

    def cloud(self, drawing: Drawing, part: Part, values: Values, number: int, size: int) -> Cloud:
        """A cloud of about `size` states of chains, where a part has any."""
        if isinstance(part, Chained):
            return _chains(drawing, part, values, number, size)
        return super().cloud(drawing, part, values, number, size)

    def look(self, drawing: Drawing, part: Part, values: Values, number: int, size: int) -> tuple[Array, Array]:
        """Some states, where a part has chains."""
        if isinstance(part, Chained):
            return _chains(drawing, part, values, number, size).values, np.empty(0)
        return super().look(drawing, part, values, number, size)

    def relative(self, parts: Sequence[Part]) -> list[Any]:
        """The parts with chains, which know ratios of likelihoods only."""
        return [part for part in parts if isinstance(part, Chained)]

    def absolute(self, drawing: Drawing, part: Part, cloud: Cloud, values: Values, number: int, most: int) -> Cloud:
        """For a part with chains, the cloud of values simulated whole, of which only the weights are kept."""
        if not isinstance(part, Chained):
            return cloud

        def work(rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]) -> Any:
            return {"log_weights": part.log_eta(part.draw(rng, values, rows))}, np.arange(rows)

        stream = Stream(number, rows_in_block(part.simulated_numbers), work, part.name)
        log_weights = drawing.stream(stream, part.sets(most))["log_weights"]
        return weighted(log_weights, log_weights - math.log(len(log_weights)))

    def advice(self, problem: Problem, name: str) -> str:
        """The advice for weights: chains are in use already."""
        return THICKEN


def _chains(drawing: Drawing, part: Chained, values: Values, number: int, size: int) -> Cloud:
    """A cloud of about so many states of chains."""
    blocks, states = part.blocks(size)
    looks = part.looks(states) if drawing.measures else 1

    def work(rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]) -> Any:
        return part.run_chains(rng, values, states, poll, looks=looks), np.arange(rows)

    stream = Stream(number, states * part.chains, work, part.name)
    return part.cloud(drawing.stream(stream, blocks * stream.rows), states)
