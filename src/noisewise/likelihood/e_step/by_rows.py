"""A part that is cut into pieces, taken whole: likelihood and derivatives of all its rows in one pass.

Pieces remain for EM's own steps, whose Q needs the nodes; Newton's steps, on all rows, need no nodes.
See docs/likelihood-scale.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noisewise.engine import Engine
from noisewise.inference.conditional import rows
from noisewise.inference.conditional.rows import NoisyRows, RowMoments, RowSource
from noisewise.likelihood.e_step import streamed
from noisewise.likelihood.e_step.cloud import Cloud, Clouds, exact_cloud
from noisewise.likelihood.e_step.entries_in_pieces import Piece, first_pieces, in_pieces
from noisewise.likelihood.e_step.released_law import Part
from noisewise.numerics import Array, Values

LARGE_FAMILY = 2**16
"""Fewest rows of an exponential family that are worth a pass on an accelerator."""


class RowPasses:
    """Passes over the rows of parts that are cut and, on an accelerator, of large exponential families."""

    def __init__(self, parts: Sequence[Part], engine: Engine) -> None:
        families = [part for part in parts if engine.block_rows is not None and _is_large_family(part)]
        pieces = [part for part in parts if isinstance(part, Piece) and _applies(part)]
        wholes = {id(piece.whole): piece.whole for piece in pieces}
        self.passes: list[tuple[Part, NoisyRows]] = []
        for key, whole in wholes.items():
            own = [piece for piece in pieces if id(piece.whole) == key]
            part = whole if len(own) == own[0].step else own[0]
            self.passes.append((part, NoisyRows(_source(part), engine)))
        self.passes += [(part, NoisyRows(_source(part), engine)) for part in families]
        self.others = [number for number, part in enumerate(parts) if part not in [*pieces, *families]]
        """Numbers of the parts that no pass takes."""

    def log_likelihood(self, values: Values) -> float:
        """The log likelihood of all rows that the passes take."""
        return sum(float(np.sum(own.log_likelihoods(part.given(values)))) for part, own in self.passes)

    def moments(self, x: Array, values_at: Callable[[Any], Values], purpose: str) -> list[RowMoments]:
        """Likelihood and derivatives of every part's rows in x; `purpose` names the function `values_at`."""
        return [own.moments(x, _given_at(part, values_at), purpose) for part, own in self.passes]

    def neglected(self) -> tuple[float, float]:
        """The most that the last pass may be off: of the worst row's likelihood, and in the log of all together."""
        errors = [own.errors for _, own in self.passes]
        return max(float(np.max(one)) for one in errors), sum(float(np.sum(one)) for one in errors)


class RowClouds(Clouds):
    """As `Clouds`, except that the likelihood and the derivatives come from passes over all rows."""

    def __init__(self, parts: Sequence[Part], make: Callable[[int], Cloud], held: bool, by: RowPasses, values: Values):
        super().__init__(parts, make, held)
        self.by, self.values = by, values
        self._height: tuple[float, tuple[float, float]] | None = None
        self._moments: dict[str, list[RowMoments]] = {}

    def moments(self, x: Array, values_at: Callable[[Any], Values], purpose: str) -> list[RowMoments]:
        """Derivatives at these parameters, in the coordinates x from which `values_at` computes them."""
        if purpose not in self._moments:
            moments = self._moments[purpose] = self.by.moments(x, values_at, purpose)
            self._height = sum(float(np.sum(one.log_likelihoods)) for one in moments), self.by.neglected()
        return self._moments[purpose]

    def _seen_rows(self) -> tuple[float, tuple[float, float]]:
        if self._height is None:
            self._height = self.by.log_likelihood(self.values), self.by.neglected()
        return self._height

    def _all_seen(self) -> list[tuple[float, Array, float, float]]:
        height, (worst, total) = self._seen_rows()
        for index in self.by.others:
            if index not in self._seen:
                self[index]
        return [(height, np.empty(0), worst, total), *(self._seen[index] for index in self.by.others)]

    @property
    def sizes(self) -> dict[str, Array]:
        """Nothing: all is known exactly."""
        return {}


def exact_clouds(parts: list[Part], values: Values, by: RowPasses) -> Clouds:
    """The exact cloud of every part, with passes over rows where `by` has any."""
    held = not in_pieces(parts) or parts == first_pieces(parts)

    def make(index: int) -> Cloud:
        return exact_cloud(parts[index], values)

    return RowClouds(parts, make, held, by, values) if by.passes else Clouds(parts, make, held)


def _applies(part: Part) -> bool:
    return part.kind not in streamed.FAMILIES and rows.applies(part.kind, part.chart, part.mechanism)


def _is_large_family(part: Part) -> bool:
    """Whether it is an exponential family of very many rows, which an accelerator does in one pass as well."""
    many = part.kind in streamed.FAMILIES and part.by_entry and part.entries >= LARGE_FAMILY
    return many and not part.exact and rows.applies(part.kind, part.chart, part.mechanism)


def _source(part: Part) -> RowSource:
    def law_at(given: Values) -> Any:
        return part.law_at(given, part.place)

    return RowSource(law_at, part.mechanism, part.item.value, part.shape, part.kind, part.chart, part.compiled)


def _given_at(part: Part, values_at: Callable[[Any], Values]) -> Callable[[Any], Values]:
    return lambda x: part.given(values_at(x))
