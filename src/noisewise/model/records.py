"""Records of a block of totals, drawn in parts that stay in the processor's cache. docs/derivations/totals.md."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from noisewise.model.law import Law
from noisewise.numerics import Array, Values
from noisewise.numerics.scratch import Scratch

SCRATCH = Scratch()
PART = 2**17
"""Numbers of a field in one part: few enough to stay in a core's cache, enough to be worth the steps in Python."""


class Records:
    """`records` records of each of `rows` rows, drawn again and again.

    The variates, and their order, are those of fields drawn whole, one after the other: every field but the last is
    drawn in all its parts, and kept, before the next field begins. Normal numbers are an exception: in large parts they
    are made in pairs within each part.
    """

    def __init__(self, laws: Mapping[str, Law], outer: Values, rows: int, records: int) -> None:
        self.laws, self.outer, self.rows, self.records = laws, outer, rows, records
        widest = max(int(np.prod(law.form.shape)) for law in laws.values())
        count = -(-rows // max(1, PART // (records * widest)))
        edges = np.linspace(0, rows, count + 1).round().astype(int)
        self.parts = [slice(low, high) for low, high in pairwise(edges.tolist())]
        self._settled = {
            field: law.checked(outer, records) for field, law in laws.items() if law.form.in_parts and not law.inner
        }

    def draw(self, rng: np.random.Generator, whole: bool) -> Iterator[tuple[slice, dict[str, Any]]]:
        """Yields parts of the rows, each with its new records and the values that these depend on.

        With `whole`, all rows are one part. The next call overwrites the records.
        """
        fields = list(self.laws)
        drawn: dict[str, Array] = {}
        for field in fields if whole else fields[:-1]:
            drawn[field] = self._whole(rng, field, drawn)
        if whole:
            yield slice(0, self.rows), {**self.outer, **drawn}
            return
        if not self.laws[fields[-1]].form.in_parts:
            drawn[fields[-1]] = self._whole(rng, fields[-1], drawn)
        for part in self.parts:
            values = {name: value[part] for name, value in {**self.outer, **drawn}.items()}
            if fields[-1] not in values:
                values[fields[-1]] = self._part(rng, fields[-1], values, part)
            yield part, values

    def _whole(self, rng: np.random.Generator, field: str, drawn: Values) -> Array:
        """All rows of one field."""
        law, everything = self.laws[field], {**self.outer, **drawn}
        if not law.form.in_parts:
            return law.draw(rng, everything, self.rows, records=self.records)
        whole = self._memory(field, self.rows)
        for part in self.parts:
            values = {name: everything[name][part] for name in law.parents}
            made = self._part(rng, field, values, part, out=whole[part])
            if not np.shares_memory(made, whole):
                whole[part] = made
        return whole

    def _part(
        self, rng: np.random.Generator, field: str, values: Values, part: slice, out: Array | None = None
    ) -> Array:
        """The next part of one field, in `out` or in memory of its own."""
        law, rows = self.laws[field], part.stop - part.start
        if out is None:
            out = self._memory(field, rows)
        settled = self._settled.get(field)
        if settled is None:
            checked = law.checked(values, self.records)
        else:
            checked = {name: one if name in law.constant else one[part] for name, one in settled.items()}
        return law.drawn(rng, checked, values, (rows, self.records), None if law.form.transformed else out)

    def _memory(self, field: str, rows: int) -> Array:
        """Scratch memory for one field of that many rows."""
        struct = self.laws[field].struct
        return SCRATCH.array(field, (rows, self.records, *struct.shape), struct.dtype)
