"""The E-step by chains over the records of released totals (`augmented.py`); other parts by importance weights."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noisewise.inference.problem import Problem
from noisewise.inference.streams import Columns, Stream
from noisewise.likelihood.e_step.augmented import Augmented
from noisewise.likelihood.e_step.by_weight import Importance
from noisewise.likelihood.e_step.cloud import Cloud, weighted
from noisewise.likelihood.e_step.contract import THICKEN, Drawing, rows_of
from noisewise.likelihood.e_step.independent_parts import Part
from noisewise.numerics import Array

Values = dict[str, Any]


class OverRecords(Importance):
    """States of Markov chains over the records, whose total stays near the release however small the noise."""

    name = "augmented"
    eases = False
    measures = True
    records = Augmented

    def unfit(self, parts: Sequence[Part]) -> str | None:
        """It needs a released total."""
        if self.relative(parts):
            return None
        return "must be another where no Total is released: there are no records to augment"

    def cloud(self, drawing: Drawing, part: Part, values: Values, number: int, size: int) -> Cloud:
        """A cloud of about `size` states of chains, of a total."""
        if isinstance(part, Augmented):
            return _chains(drawing, part, values, number, size)
        return super().cloud(drawing, part, values, number, size)

    def look(self, drawing: Drawing, part: Part, values: Values, number: int, size: int) -> tuple[Array, Array]:
        """Some states, of a total."""
        if isinstance(part, Augmented):
            return _chains(drawing, part, values, number, size).values, np.empty(0)
        return super().look(drawing, part, values, number, size)

    def relative(self, parts: Sequence[Part]) -> list[Any]:
        """Totals: chains know ratios of likelihoods only."""
        return [part for part in parts if isinstance(part, Augmented)]

    def absolute(self, drawing: Drawing, part: Part, cloud: Cloud, values: Values, number: int, most: int) -> Cloud:
        """Of a total: the weights of totals that are simulated whole, which are not kept themselves."""
        if not isinstance(part, Augmented):
            return cloud

        def work(rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]) -> Any:
            return {"log_weights": part.log_eta(part.draw(rng, values, rows))}, np.arange(rows)

        stream = Stream(number, rows_of(part.n * sum(part.widths.values())), work, part.name)
        log_weights = drawing.stream(stream, part.sets(most))["log_weights"]
        return weighted(log_weights, log_weights - math.log(len(log_weights)))

    def advice(self, problem: Problem, name: str) -> str:
        """Chains over records are there already."""
        return THICKEN


def _chains(drawing: Drawing, part: Augmented, values: Values, number: int, size: int) -> Cloud:
    """A cloud of about so many states of chains over the records."""
    blocks, states = part.blocks(size)
    looks = part.looks(states) if drawing.measures else 1

    def work(rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]) -> Any:
        return part.run_chains(rng, values, states, poll, looks=looks), np.arange(rows)

    stream = Stream(number, states * part.chains, work, part.name)
    return part.cloud(drawing.stream(stream, blocks * stream.rows), states)
