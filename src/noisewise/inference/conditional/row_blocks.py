"""Very many rows of one kind of law and noise, cut into blocks of one size and put together again.

Arrays have one number for each row, or one for all. See docs/likelihood-scale.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.inference.conditional.charts import law_of, to_t
from noisewise.mechanisms import Mechanism
from noisewise.mechanisms.additive import Additive
from noisewise.model.variates import VARIATES
from noisewise.numerics import Array, Compiled, Values

STILL = 0.05
"""Panels serve as long as no row's law has moved by more than this share of its spread."""
BLOCK = 2**13
"""Rows worked on at once: what is computed for them stays in a processor's cache."""


@dataclass(frozen=True)
class Laid:
    """What was laid out for all rows, with the centres and spreads that their laws had then."""

    centre: Array
    spread: Array

    def serves(self, centre: Array, spread: Array) -> bool:
        """Whether no row's law has moved much since."""
        shift = np.max(np.abs(centre - self.centre) / self.spread)
        return bool(shift <= STILL and np.max(np.abs(np.log(spread / self.spread))) <= STILL)


class RowBlocks(ABC):
    """All rows of a statistic of this shape, or those numbered `own`, in blocks of `block` rows."""

    def __init__(
        self,
        kind: str,
        chart: str,
        mechanism: Mechanism,
        released: Any,
        shape: tuple[int, ...],
        block: int,
        own: Array | None = None,
    ) -> None:
        self.kind, self.chart, self.shape, self.block, self.own = kind, chart, shape, block, own
        self.entries = int(np.prod(shape)) if own is None else len(own)
        self.released = self.flat(released)
        leaves, self._tree = jax.tree.flatten(mechanism)
        self._leaves = [self.flat(leaf) for leaf in leaves]

    @abstractmethod
    def program(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        """A program for one block."""

    def flat(self, value: Any) -> Array:
        """One number per row; a single number, or an array of another shape, stays as it is."""
        value = np.asarray(value, dtype=np.float64)
        if value.size == 1:
            return value.reshape(())
        try:
            whole = np.ascontiguousarray(np.broadcast_to(value, self.shape)).reshape(-1)
        except ValueError:
            return value
        return whole if self.own is None else whole[self.own]

    def cut(self, start: int, value: Array) -> Array:
        """Rows from `start` on of the last axis, filled up with the last one."""
        if value.ndim == 0 or value.shape[-1] != self.entries:
            return value
        piece = value[..., start : start + self.block]
        missing = self.block - piece.shape[-1]
        return np.concatenate([piece, np.repeat(piece[..., -1:], missing, axis=-1)], axis=-1) if missing else piece

    def block_at(self, start: int, attributes: Mapping[str, Array]) -> tuple[Values, Mechanism, Array]:
        """The block that begins at `start`: attributes of its laws, its noise, and what was released."""
        cut = partial(self.cut, start)
        mechanism = jax.tree.unflatten(self._tree, [cut(leaf) for leaf in self._leaves])
        return {name: cut(value) for name, value in attributes.items()}, mechanism, cut(self.released)

    def location(self, block: Any, cut: Any) -> tuple[Array, Array]:
        """A centre and a spread of every row's law in the chart's coordinate."""
        kind, chart = self.kind, self.chart

        def moments(attributes: Values, like: Any) -> Any:
            law = law_of(kind, attributes)
            return jnp.broadcast_to(law.mean, like.shape), jnp.broadcast_to(law.variance, like.shape)

        try:
            found = self.program("location", lambda: moments)(block[0], np.zeros(self.block))
            mean, variance = (np.asarray(one) for one in found)
        except NotImplementedError:
            mean = variance = np.full(self.block, np.nan)
        centre, spread = to_t(chart, mean), np.sqrt(variance)
        if chart == "positive":
            spread = np.sqrt(np.log1p(variance / mean**2))
        elif chart == "unit":
            spread = spread / (mean * (1.0 - mean))
        if np.all(np.isfinite(centre) & np.isfinite(spread) & (spread > 0)):
            return centre, spread
        draws = VARIATES[kind](np.random.default_rng(0), (64, self.block), block[0])  # no moments: a look at draws
        low, centre, high = np.quantile(to_t(chart, draws), [0.25, 0.5, 0.75], axis=0)
        return centre, np.maximum(high - low, 1e-300)


def noise_scale(mechanism: Any, otherwise: Any) -> Array:
    """The noise's scale, from which panels and windows begin: its own, the wrapped mechanism's, or its median size.

    `otherwise` where none of these is known.
    """
    while not hasattr(mechanism, "scale") and hasattr(mechanism, "base"):
        mechanism = mechanism.base
    if hasattr(mechanism, "scale"):
        return np.asarray(mechanism.scale, dtype=np.float64)
    if isinstance(mechanism, Additive):
        noise = mechanism.noise_sample(np.random.default_rng(0), (64, *np.shape(otherwise)))
        return np.maximum(np.median(np.abs(noise), axis=0), 1e-300)
    return np.asarray(otherwise)


def block_of(rows: int) -> int:
    """Rows of a block on a processor, for `rows` rows in all."""
    return min(BLOCK, 1 << (rows - 1).bit_length())


def place(wholes: Sequence[Array], start: int, pieces: Sequence[Array]) -> None:
    """Put a block's results at their place among all rows, without the rows that filled up the last block."""
    for whole, piece in zip(wholes, pieces, strict=True):
        room = whole[..., start : start + piece.shape[-1]]
        room[...] = piece[..., : room.shape[-1]]
