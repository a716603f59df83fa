"""All rounds of a pilot as one sample: each row weighed against all the laws that rows came from.

A round fitted to most of the posterior may hardly reach the rest of it, which an earlier round has seen. Weighed
against the average of all proposals, early rows count where the later ones are few, and nowhere else (Cornuet, Marin,
Mira and Robert 2012). Derivation: docs/derivations/importance.md.
"""

from dataclasses import dataclass

import numpy as np

from noisewise.inference.blocks import Columns
from noisewise.model.coordinates import Space
from noisewise.numerics import Array
from noisewise.samplers.proposals.adapted import Adapted, points_given_whole
from noisewise.samplers.proposals.parts import parts


@dataclass(frozen=True, eq=False)
class Round:
    """Rows of one round, with what the density of any proposal there needs."""

    law: Adapted | None
    """None for the prior."""
    log_weights: Array
    """log of likelihood times pi0 / g, g the round's own law; -inf where a row has no free coordinates."""
    free: Array
    whole: Columns
    log_prior: Array
    log_chances: Columns
    parts: Array
    """The part of the prior that each row is in."""

    def log_over_prior(self, law: Adapted | None) -> Array:
        """log g / pi0 of each row, for the law of any round."""
        if law is None:
            return np.zeros(len(self.log_weights))
        return law.log_over_prior(self.free, self.whole, self.log_prior, self.log_chances)

    @property
    def heights(self) -> Array:
        """log of likelihood times the prior's density of the free coordinates, of each row."""
        with np.errstate(invalid="ignore"):
            heights = self.log_weights + self.log_over_prior(self.law) + self.log_prior
        return np.where(self.log_weights > -np.inf, heights, -np.inf)


class Memory:
    """The rounds so far, and the weights of all their rows together."""

    def __init__(self, space: Space, tabled: tuple[str, ...], chunk: int) -> None:
        self.space, self.tabled, self.chunk = space, tabled, chunk
        self.rounds: list[Round] = []

    def add(self, columns: Columns, log_weights: Array, law: Adapted | None) -> None:
        """One more round: parameters, log weights, and the law that they came from."""
        free = self.space.free_from(columns)
        known = np.isfinite(free).all(axis=1)
        whole = {name: columns[name] for name in self.space.discrete}
        pieces = [
            points_given_whole(
                self.space,
                free[start : start + self.chunk],
                {name: column[start : start + self.chunk] for name, column in whole.items()},
                self.tabled,
            )
            for start in range(0, len(free), self.chunk)
        ]
        log_prior = np.concatenate([piece[1] for piece in pieces])
        log_chances = {name: np.concatenate([piece[2][name] for piece in pieces]) for name in self.tabled}
        log_weights = np.where(known & np.isfinite(log_prior), log_weights, -np.inf)
        part = parts(self.space.model, columns)
        self.rounds.append(Round(law, log_weights, free, whole, log_prior, log_chances, part))

    def free(self) -> Array:
        """Free coordinates of all rows."""
        return np.concatenate([one.free for one in self.rounds])

    def parts(self) -> Array:
        """The part of the prior that each row of all rounds is in."""
        return np.concatenate([one.parts for one in self.rounds])

    def whole(self, name: str) -> Array:
        """A whole-numbered parameter's entries in all rows: (rows, entries)."""
        return np.concatenate([one.whole[name].reshape(len(one.free), -1) for one in self.rounds])

    def log_weights(self) -> Array:
        """log of likelihood times pi0 over the average of all the rounds' laws, of all rows."""
        return np.concatenate([self._balanced(one) for one in self.rounds])

    def _balanced(self, one: Round) -> Array:
        over_prior = np.stack([one.log_over_prior(other.law) for other in self.rounds])
        own = one.log_over_prior(one.law)
        average = np.logaddexp.reduce(over_prior, axis=0) - np.log(len(self.rounds))
        with np.errstate(invalid="ignore"):
            balanced = one.log_weights + own - average
        return np.where(one.log_weights > -np.inf, balanced, -np.inf)
