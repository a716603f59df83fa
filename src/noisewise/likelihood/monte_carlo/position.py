"""Where a run of Monte Carlo EM is, and what it has simulated there."""

from typing import Any

import numpy as np

from noisewise.engine import Engine
from noisewise.errors import Place, refusal
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Prefix, Purpose
from noisewise.likelihood.e_step.augmented import Chained
from noisewise.likelihood.e_step.cloud import Cloud, Clouds
from noisewise.likelihood.e_step.contract import Drawing, EStep
from noisewise.likelihood.e_step.entries_in_pieces import cut_up, divides, first_pieces, in_pieces
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.e_step.released_law import Part
from noisewise.likelihood.e_step.simulated import is_even
from noisewise.likelihood.e_step.simulated_records import LEAST, MOST_NUMBERS, SimulatedRecords
from noisewise.likelihood.e_step.table import E_STEPS
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.m_step.maximise import Objective
from noisewise.numerics import Array, Values

Made = tuple[Array, int, int, int]
"""What an E-step was made with: free coordinates, iteration, batch, size."""

MOST_SIMULATED = 2**25
"""Numbers that an E-step may draw of one statistic, though not fewer than `LEAST` values of every entry."""
GLANCE = 1_000
"""Values of the sample that is made where a run was interrupted before its first sample."""


class Position:
    """Where a run is, the parts of the likelihood that it looks at, and the clouds that it has simulated last.

    Very many entries are cut into pieces: a climb looks at the first piece, and only its end at all of them.
    """

    def __init__(self, problem: Problem, e_step: EStep, start: Values, largest: int, seed: int, engine: Engine) -> None:
        self.problem, self.e_step, self.seed, self.engine = problem, e_step, seed, engine
        self.coordinates = Coordinates(problem.model, problem.axes)
        whole = parts_of(problem, e_step.records, e_step.tables)
        if (rule := e_step.unfit(whole)) is not None:
            raise refusal("MCEM", "e_step", rule, e_step.name, "Leave it out.")
        self.room = room_for(whole, start)
        """Most values an E-step may draw: entries and records take room, and time."""
        self.pieces = [piece for part in whole for piece in cut_up(part, start, min(self.room, largest))]
        self.free = self.coordinates.free_from(start)
        self.simulated = 0
        """Values simulated so far, of all statistics."""
        self._look_at(first_pieces(self.pieces))

    def _look_at(self, parts: list[Part]) -> None:
        self.parts, self.objective = parts, Objective(parts, self.coordinates)
        self.held = not in_pieces(parts) or len(parts) < len(self.pieces)
        """Whether clouds are held, not made anew for every pass over them."""
        self.last: tuple[Values, Clouds] | None = None
        """The clouds simulated last, and the parameters at which they were."""
        self.made: Made | None = None
        """What the last E-step was made with."""

    @property
    def sees_all(self) -> bool:
        """Whether no piece is left out."""
        return len(self.parts) == len(self.pieces)

    def look_at_all(self) -> None:
        """Look at every piece from now on."""
        if not self.sees_all:
            self._look_at(self.pieces)

    @property
    def values(self) -> Values:
        """The parameters."""
        return self.coordinates.values(self.free)

    # E-steps ----------------------------------------------------------------------------------------------------------

    def drawing(self, purpose: Purpose | Prefix, measures: bool = False) -> Drawing:
        """The random numbers of a purpose."""
        return Drawing(self.seed, self.engine, purpose, measures)

    def clouds(self, e_step: EStep, drawing: Drawing, batch: int, size: int) -> Clouds:
        """A simulated cloud for every part."""
        values, parts = self.values, self.parts
        self.simulated += size * len({part.name for part in parts})

        def make(index: int) -> Cloud:
            return e_step.cloud(drawing, parts[index], values, index + len(parts) * batch, size)

        return Clouds(parts, make, self.held)

    def step(self, iteration: int, batch: int, size: int) -> Clouds:
        """The E-step of an iteration, or one more batch of its values."""
        if self.e_step.recycles and batch == 0 and self.last is not None:
            before, drawn = self.last
            moved = drawn.moved(before, self.values)
            if is_even(moved, drawn):
                return moved
        clouds = self.clouds(self.e_step, self.drawing(Purpose.E_STEP.step(iteration)), batch, size)
        self.last, self.made = (self.values, clouds), (self.free, iteration, batch, size)
        return clouds

    def resume(self, made: Made, simulated: int) -> None:
        """Restore the state after an E-step; its clouds are simulated again only if the next step may use them."""
        self.made, self.simulated = made, simulated
        if self.e_step.recycles:
            free, self.free = self.free, made[0]
            self.last = None
            self.step(*made[1:])
            self.free, self.simulated = free, simulated

    @property
    def measuring(self) -> EStep:
        """The E-step of a measurement: the one asked for, if it measures, else importance weights."""
        return self.e_step if self.e_step.measures else E_STEPS["importance"]

    def measure(self, attempt: int, size: int) -> Clouds:
        """Fresh clouds, for a measurement here."""
        drawing = self.drawing(Purpose.MEASUREMENT.step(attempt), measures=True)
        clouds = self.clouds(self.measuring, drawing, 0, size)
        self.last = (self.values, clouds)
        return clouds

    def here(self) -> Clouds:
        """The last clouds, moved to where the run is; a small fresh sample if there are none yet."""
        if self.last is None:
            return self.measure(0, min(GLANCE, self.room))
        before, clouds = self.last
        return clouds.moved(before, self.values)

    def look(self) -> list[Any]:
        """Some numbers of the model, by which a checkpoint of the same model is recognised."""
        values, rows = self.values, 1 if in_pieces(self.pieces) else 64
        drawing = self.drawing(Purpose.CHECK)
        drawn = [self.e_step.look(drawing, part, values, number, rows) for number, part in enumerate(self.pieces)]
        laws = [np.asarray(part.log_prob_many(values, s)) for part, (s, _) in zip(self.pieces, drawn, strict=True)]
        return [drawn, laws]


def room_for(parts: list[Part], values: Values) -> int:
    """Most values that an E-step may draw of every part: very many entries are drawn in pieces, if they can be cut."""
    room = 2**62
    for part in parts:
        if part.exact:
            continue
        if isinstance(part, Chained):
            room = min(room, part.room)
            continue
        most = (MOST_NUMBERS if isinstance(part, SimulatedRecords) else MOST_SIMULATED) // part.numbers
        if most < LEAST and not divides(part, values):
            rule = f"must have at most {MOST_SIMULATED // LEAST} entries to be simulated, unless its law can be cut"
            advice = "Use nw.EM(), with an exponential family such as dist.Normal if need be."
            raise refusal("MCEM", Place.of("statistics", part.name), rule, part.entries, advice)
        room = min(room, max(most, LEAST))
    return room
