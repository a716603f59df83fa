"""Parts with very many independent entries, cut into pieces: a piece is a part by itself.

Piece j of m has the entries j, j + m, j + 2 m, ..., so that each looks like the whole. Its law is the statistic's, made
anew from its attributes at these entries. Its first entry is an argument of its programs, so that pieces share them.
See docs/likelihood-scale.md.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution
from numpyro.distributions.distribution import ExpandedDistribution, Independent, TransformedDistribution

from noisewise.likelihood.e_step.cloud import nodes_of
from noisewise.likelihood.e_step.released_law import Part
from noisewise.model.law import law_attributes
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, Compiled, Values, double

HELD = 2**21
"""Numbers in the cloud of a part above which it is cut, and its clouds are made anew for every pass."""
PIECE = 2**20
"""Numbers in the cloud of one piece, if that leaves it `ENTRIES`."""
ENTRIES = 2**10
"""Entries that a piece has at least, to look like the whole."""


class Piece(Part):
    """Every `step`th entry, from `start` on, of a part whose entries are independent."""

    def __init__(self, whole: Part, start: int, step: int) -> None:
        vars(self).update(vars(whole))
        self.whole, self.place, self.step = whole, np.int64(start), step
        self.sweep, self.noise_at = None, {}
        self.shape = (len(range(start, whole.entries, step)),)

        def cut(leaf: Any) -> Any:
            return flat(np.asarray(leaf), whole.shape, np)[start::step] if np.size(leaf) > 1 else leaf

        self.mechanism = jax.tree.map(cut, whole.mechanism)
        self.item = self.mechanism.released(cut(np.asarray(whole.item.value)))

    def law_at(self, given: Values, place: Any) -> Any:
        """The law of the piece's entries; traceable."""
        own = place + self.step * jnp.arange(self.shape[0])
        return cut_law(self.law.function(**given), lambda leaf: flat(leaf, self.whole.shape, jnp)[own])

    def draw(self, rng: np.random.Generator, values: Values, rows: int) -> Array:
        """Independent values of the piece's entries."""

        def attributes_at(given: Values, place: Any) -> Values:
            return law_attributes(self.law_at(given, place))

        def through(given: Values, place: Any, base: Any) -> Any:
            for transform in peel(self.law_at(given, place))[2]:
                base = transform(base)
            return base

        given, variate = self.given(values), self.law.form.variate
        assert variate is not None
        with double():
            attributes = self.compiled("attributes", lambda: attributes_at)(given, self.place)
        base = variate(rng, (rows, *self.shape), {name: np.asarray(one) for name, one in attributes.items()})
        if not self.law.form.transformed:
            return base
        with double():
            return np.asarray(self.compiled("push", lambda: through)(given, self.place, base))

    def compiled(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        """A program of all pieces of this size, kept on the model."""
        return self.model.compiled.setdefault((purpose, self.name, self.shape, self.step), Compiled(build))


def flat(value: Any, shape: tuple[int, ...], xp: Any) -> Any:
    """One number per entry."""
    return xp.broadcast_to(value, shape).reshape(-1)


def cut_law(law: Distribution, cut: Callable[[Any], Any]) -> Distribution:
    """The law of some of its independent entries: made anew from its fields, cut."""
    while isinstance(law, (Independent, ExpandedDistribution)):
        law = law.base_dist

    def one(leaf: Any) -> Any:
        return cut(leaf) if jnp.size(leaf) > 1 else jnp.reshape(leaf, ())

    if type(law) is TransformedDistribution:
        return TransformedDistribution(cut_law(law.base_dist, cut), jax.tree.map(one, law.transforms))
    stored = vars(law)
    fields = {name: one(jnp.asarray(stored[name])) for name in law.arg_constraints if name in stored}
    if "base_dist" in stored:
        fields["base_dist"] = cut_law(stored["base_dist"], cut)
    return type(law)(**fields, validate_args=False)


def divides(part: Part, values: Values) -> bool:
    """Whether the part can be cut, by a comparison of some pieces with the whole."""
    if not part.by_entry or part.exact or part.entries < 2 or part.law.form.variate is None:
        return False
    step = max(2, part.entries // 8)
    s = part.draw(np.random.default_rng(0), values, 1)
    law, eta = part.log_prob_many(values, s), part.log_eta(s)
    try:
        for start in (0, step // 2, step - 1):
            piece, own = Piece(part, start, step), slice(start, None, step)
            mine = s.reshape(1, -1)[:, own]
            divided = np.stack([piece.log_prob_many(values, mine), piece.log_eta(mine)])
            if not np.allclose(divided, [law[:, own], eta[:, own]], rtol=1e-12, atol=1e-12, equal_nan=True):
                return False
            piece.draw(np.random.default_rng(0), values, 1)
    except (TypeError, ValueError, NotImplementedError, AttributeError):  # a law that is not made from its fields
        return False
    return True


def cut_up(part: Part, values: Values, rows: int) -> list[Part]:
    """The part in pieces that have room for `rows` values each; itself where it cannot be cut or need not be."""
    count = min(math.ceil(rows * part.entries / PIECE), part.entries // ENTRIES)
    if rows * part.entries <= HELD or count < 2 or not divides(part, values):
        return [part]
    return [Piece(part, start, count) for start in range(count)]


def first_pieces(parts: list[Part]) -> list[Part]:
    """The first piece of every part (or the part, if uncut): a sample of the entries, on which to climb first."""
    return [part for part in parts if part.place == 0]


def in_pieces(parts: list[Part]) -> bool:
    """Whether some part is cut."""
    return any(isinstance(part, Piece) for part in parts)


# Exact clouds ---------------------------------------------------------------------------------------------------------


def exact_parts(parts: list[Part], values: Values) -> list[Part]:
    """Parts for exact E-steps; those whose nodes would not fit in memory are cut into pieces."""
    for part in parts:
        part.refuse_atoms()
    return [piece for part in parts for piece in cut_up(part, values, nodes_of(part))]
