"""The interface of E-steps by simulation: what they draw of a part, how they weigh it, and what their clouds can tell.

The E-steps are in `by_weight.py`, `by_chance.py` and `over_records.py`; `table.py` has them all by name.
Derivations: docs/derivations/likelihood.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from noisewise.engine import Engine
from noisewise.inference.blocks import Columns
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import AFTER_BLOCKS, Prefix, Purpose, generator
from noisewise.inference.record_steps import why_not_in_steps
from noisewise.inference.stream import Stream
from noisewise.inference.streams import run
from noisewise.likelihood.e_step.cloud import Cloud
from noisewise.likelihood.e_step.measured import MeasuredPart
from noisewise.likelihood.e_step.released_law import Part
from noisewise.likelihood.e_step.simulated_records import SimulatedRecords
from noisewise.numerics import Array, Values

ROWS = 2**14
"""Most values in a block."""
NUMBERS = 2**19
"""Numbers that a block should not exceed."""
THICKEN = 'Raise `final`, try e_step="mixture", or use nw.EM() or nw.sample.'
AUGMENT = "Use nw.MCEM(e_step=\"augmented\"), whose records stay near the released '{name}', or nw.sample."


@dataclass(frozen=True)
class Drawing:
    """The random numbers of a sample (`seed`, `purpose`), and the engine that draws it."""

    seed: int
    engine: Engine
    purpose: Purpose | Prefix
    measures: bool = False
    """Whether the sample is a measurement at the top, not a step on the way there."""

    def stream(self, stream: Stream, rows: int) -> Columns:
        """`rows` rows of a stream."""
        outcome = run([stream], rows, self.seed, self.purpose, engine=self.engine, progress=Progress(False, ""))
        if outcome.status == "interrupted":
            raise KeyboardInterrupt
        return outcome.columns

    def after(self, number: int) -> np.random.Generator:
        """Random numbers for what comes after the blocks of stream `number`."""
        return generator(self.seed, self.purpose, number, AFTER_BLOCKS)


class EStep(ABC):
    """One way to simulate the confidential statistic given the release.

    Its clouds hold independent values, unless a subclass says otherwise. A sample of a part is known by its `drawing`
    and by its `number` there.
    """

    name: ClassVar[str]
    """What `nw.MCEM(e_step=...)` calls it."""
    eases: ClassVar[bool] = False
    """Whether weights are densities, which more noise would make more even."""
    recycles: ClassVar[bool] = False
    """Whether a step may begin with the last step's cloud, moved to the new parameters."""
    measures: ClassVar[bool] = False
    """Whether it draws the last sample too; else importance weights do, whose values are independent."""
    records: ClassVar[type[SimulatedRecords]] = SimulatedRecords
    """The class of the part that a released total becomes."""
    tables: ClassVar[type[MeasuredPart]] = MeasuredPart
    """The class of the part that a measured table of whole numbers becomes."""

    @abstractmethod
    def weigh(self, rng: np.random.Generator, part: Part, s: Array, log_weights: Array) -> Cloud:
        """The cloud of values `s` that were drawn, from their log weights."""

    def unfit(self, parts: Sequence[Part]) -> str | None:
        """Why it does not apply to these parts, as a rule for the argument; None where it does."""
        return None

    def draw(self, drawing: Drawing, part: Part, values: Values, number: int, size: int) -> tuple[Array, Array]:
        """Values of s, and their log weights: from the model, with log eta, unless it has other proposals."""
        return from_model(drawing, part, values, number, size)

    def cloud(self, drawing: Drawing, part: Part, values: Values, number: int, size: int) -> Cloud:
        """A cloud of `size` values of a part."""
        s, log_weights = self.draw(drawing, part, values, number, size)
        return self.weigh(drawing.after(number), part, s, log_weights)

    def look(self, drawing: Drawing, part: Part, values: Values, number: int, size: int) -> tuple[Array, Array]:
        """Some numbers by which a checkpoint of the same model is recognised."""
        return from_model(drawing, part, values, number, size)

    def independent(self, terms: Array) -> Array:
        """Terms of a sum over the cloud's values, such that their squares add up to the variance of the sum."""
        return terms

    def relative(self, parts: Sequence[Part]) -> list[Any]:
        """The parts whose clouds know the likelihood only relative to where they were drawn."""
        return []

    def absolute(self, drawing: Drawing, part: Part, cloud: Cloud, values: Values, number: int, most: int) -> Cloud:
        """In place of a relative cloud, one of at most `most` values that knows the likelihood itself."""
        return cloud

    def advice(self, problem: Problem, name: str) -> str:
        """What to do where the noise leaves too few effective values of a statistic."""
        augments = problem.model.total(name) is not None and why_not_in_steps(problem, name) is None
        return AUGMENT.format(name=name) if augments else THICKEN


Weigh = Callable[[np.random.Generator, Array], tuple[Array, Array]]
"""(rng, values from the model) -> (values, log weights)."""


def from_model(
    drawing: Drawing, part: Part, values: Values, number: int, size: int, weigh: Weigh | None = None
) -> tuple[Array, Array]:
    """Values of s from the model, and their log weights: log eta, or what `weigh` makes of them."""
    if part.exact:
        s = np.broadcast_to(np.asarray(part.item.value, float), (1, *part.shape))
        return s, part.log_prob_many(values, s)

    def work(rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]) -> Any:
        s = part.draw(rng, values, rows)
        s, log_weights = (s, part.log_eta(s)) if weigh is None else weigh(rng, s)
        return {"s": s, "log_weights": log_weights}, np.arange(rows)

    drawn = drawing.stream(Stream(number, rows_in_block(part.numbers), work, part.name), size)
    return drawn["s"], drawn["log_weights"]


def rows_in_block(numbers: int) -> int:
    """Rows of a block whose values have so many numbers each."""
    return max(1, min(ROWS, NUMBERS // numbers))
