"""The adapted proposal with a mixture of its own for every value of the whole-numbered parameters, where these are few.

A switch between two explanations may move everything else. A mixture for all its values together then serves the
likelier one, and the other, which no row comes near, would count as impossible. Derivation:
docs/derivations/importance.md.
"""

from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from noisewise.inference.blocks import Columns
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.samplers.proposals.adapted import FLOOR, Adapted, ValueTable, uniform_tables
from noisewise.samplers.proposals.mixture import StudentMixture
from noisewise.samplers.proposals.parts import number_of_parts, parts

MOST_VALUES = 12
"""Most values, of all whole-numbered parameters with tables together, that have mixtures of their own."""


@dataclass(frozen=True, eq=False)
class ByValue(Adapted):
    """share * prior + (1 - share) * sum over values v of chance_v * (mixture_v of the free coordinates)."""

    values: Array = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    """Of all entries of the parameters with tables, in the tables' order: (values, entries)."""
    mixtures: tuple[StudentMixture, ...] = ()
    chances: Array = field(default_factory=lambda: np.empty(0))

    def _fitted(self, rng: np.random.Generator, rows: int) -> tuple[Array, Columns]:
        number = np.searchsorted(np.cumsum(self.chances)[:-1], rng.random(rows), side="right")
        free = np.empty((rows, self.mixtures[0].size))
        for own, mixture in enumerate(self.mixtures):
            members = number == own
            free[members] = mixture.draw(rng, int(members.sum()))
        tabled, begun = {}, 0
        for name, table in self.tables.items():
            entries = self.values[number, begun : begun + len(table.low)]
            tabled[name] = entries.reshape(rows, *self.space.model.shape(name)).astype(self.space.model.dtype(name))
            begun += len(table.low)
        return free, tabled

    def numbers(self, whole: Columns, rows: int) -> Array:
        """The number of every row's value, -1 where it has none."""
        entries = np.concatenate([whole[name].reshape(rows, -1) for name in self.tables], axis=1)
        same = np.all(entries[:, None] == self.values[None], axis=2)
        return np.where(same.any(axis=1), same.argmax(axis=1), -1)

    def log_gain(self, free: Array, whole: Columns, log_prior: Array, log_chances: Columns) -> Array:
        """log q - log pi0 of each row, as for any adapted proposal."""
        number = self.numbers(whole, len(free))
        log_q = np.full(len(free), -np.inf)
        for own, (chance, mixture) in enumerate(zip(self.chances, self.mixtures, strict=True)):
            members = number == own
            if members.any():
                log_q[members] = np.log(chance) + mixture.log_density(free[members])
        with np.errstate(invalid="ignore"):
            log_gain: Array = log_q - log_prior - sum(log_chances[name].sum(axis=1) for name in self.tables)
        log_gain[np.isnan(log_gain)] = np.inf  # both densities are zero there
        return log_gain

    def refitted(self, mixtures: list[StudentMixture], shares: Array) -> "ByValue":
        """With these mixtures, and chances that follow the shares: no value is passed over."""
        chances = FLOOR / len(shares) + (1.0 - FLOOR) * shares
        return replace(self, mixtures=tuple(mixtures), chances=chances / chances.sum())


def by_value(law: Adapted) -> Adapted:
    """The law with a mixture for each value of whole-numbered parameters, all alike; itself where that is no use."""
    if law.mixture is None or not law.tables:
        return law
    values = _values(law.tables)
    if not 1 < len(values) <= MOST_VALUES:
        return law
    mixtures, chances = (law.mixture,) * len(values), np.full(len(values), 1.0 / len(values))
    return ByValue(law.space, law.mixture, law.share, law.tables, values, mixtures, chances)


def _values(tables: dict[str, ValueTable]) -> Array:
    """The values of all entries together that are not impossible: (values, entries); none where they are many."""
    possible = [
        low + np.flatnonzero(chances > 0.0)
        for table in tables.values()
        for low, chances in zip(table.low, table.chances, strict=True)
    ]
    if not possible or np.prod([len(one) for one in possible], dtype=float) > MOST_VALUES:
        return np.empty((0, len(possible)), dtype=np.int64)
    return np.array(list(product(*possible)), dtype=np.int64)


def has_explanations(model: Model) -> bool:
    """Whether the prior has parts, or whole-numbered parameters few values, that may each explain the release."""
    return number_of_parts(model) > 1 or len(_values(uniform_tables(model))) > 1


def kept_apart(model: Model, columns: Columns) -> Array:
    """What rows are kept apart by: entries of the whole-numbered parameters, where few, and the part of the prior."""
    tables = uniform_tables(model)
    names = list(tables) if len(_values(tables)) else []
    part = parts(model, columns)[:, None]
    return np.concatenate([part, *(columns[name].reshape(len(part), -1) for name in names)], axis=1)
