"""Sums over independent records: clamped sums, cross-products, counts. docs/derivations/totals.md."""

import functools
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise import checks
from noisewise.errors import InputError, Place, in_a_line, path_of, refusal
from noisewise.model.graph import Poll, as_function, dependencies, ordered
from noisewise.model.law import Law
from noisewise.model.records import Records
from noisewise.model.sums import KnownSum, Summand, law_of_sum
from noisewise.numerics import Array, Compiled, Values, double
from noisewise.numerics.record_sums import PlainSums

Structs = Mapping[str, jax.ShapeDtypeStruct]

SHORT_ROW = 512
"""NumPy may copy rows of fewer records to its buffers, to add their locations; longer rows gain nothing from that."""
RECORDS_AT_ONCE = 2**18
"""Records simulated at a time over a whole block, so that memory does not grow with n."""


class Total:
    """The sum of `contribution` over `n` independent records: clamped sums, cross-products, counts.

    `record` is a small named graph: each field a law, or a function of other fields and of the model's
    parameters that returns one. `contribution` is a function of fields and parameters returning a number or
    an array; write the clamping the curator applied into it. `n` is a whole number or a parameter's name.
    """

    def __init__(self, record: Mapping[str, Any], contribution: Callable[..., Any], n: int | str) -> None:
        if not isinstance(record, Mapping) or not record:
            raise refusal(
                "Total",
                "record",
                "must be a non-empty dict of laws",
                record,
                "Give {'x': dist.Normal(0, 1)}.",
            )
        for field in record:
            checks.name("Total", "record", field)
        if not callable(contribution):
            advice = "For example lambda x: jnp.clip(x, 0, 1)."
            raise refusal("Total", "contribution", "must be a function of record fields", contribution, advice)
        if not isinstance(n, str):
            n = checks.integer("Total", "n", n, least=1, advice="Give the number of records or a parameter's name.")
        self.record = {
            field: as_function(Place.of("record", field, root="Total"), law) for field, law in record.items()
        }
        self.contribution, self.n = contribution, n
        self._edges = {
            field: dependencies(Place.of("record", field, root="Total"), law) for field, law in self.record.items()
        }
        self._order = ordered("Total.record", self._edges)
        self.arguments = dependencies("Total.contribution", contribution)
        """What the contribution reads: fields of the record, and names of the model."""
        if not set(self.arguments) & set(record):
            rule = "must depend on at least one record field"
            raise refusal("Total", "contribution", rule, self.arguments, checks.nearest("", record))

    @property
    def parents(self) -> tuple[str, ...]:
        """What it depends on outside its own records."""
        names = [name for field in self._order for name in self._edges[field]] + list(self.arguments)
        if isinstance(self.n, str):
            names.append(self.n)
        return tuple(dict.fromkeys(name for name in names if name not in self.record))

    @property
    def moving(self) -> list[str]:
        """What the contribution reads beside the record's fields."""
        return [name for name in self.arguments if name not in self.record]

    def bind(self, who: str, structs: Structs) -> "BoundTotal":
        """The total in a model where `structs` gives the parents' shapes."""
        return BoundTotal(self, who, structs)


class BoundTotal:
    """A `Total` whose laws are compiled; drawn by its own law if known, else by sums over records in a fixed order."""

    def __init__(self, total: Total, who: str, structs: Structs) -> None:
        self.who, self.total, self.parents = who, total, total.parents
        everything, self.laws = dict(structs), {}
        inner = frozenset(total.record)
        for field in total._order:
            place = Place(f"{who}.record['{field}']", (*path_of(who), "record", field))
            law = Law(place, total.record[field], total._edges[field], everything, inner)
            self.laws[field], everything[field] = law, law.struct
        if isinstance(total.n, str):
            size = structs[total.n]
            if size.shape != () or size.dtype.kind != "i":
                rule = "must name a single whole number"
                shown = f"'{total.n}' of shape {size.shape} and type {size.dtype}"
                raise refusal(who, "n", rule, shown, "Use a discrete prior such as dist.Poisson.")
        self._structs = {name: everything[name] for name in total.arguments}
        self.struct = self._trace(self._structs)
        self.discrete = bool(np.issubdtype(self.struct.dtype, np.integer))

    def _trace(self, arguments: dict[str, jax.ShapeDtypeStruct]) -> jax.ShapeDtypeStruct:
        try:
            with double():
                rows = {name: jax.ShapeDtypeStruct((1, *s.shape), s.dtype) for name, s in arguments.items()}
                by_row = jax.vmap(lambda values: jnp.asarray(self.total.contribution(**values)))  # as in Law._trace
                result = jax.eval_shape(by_row, rows)
        except Exception as error:
            rule = "must run on one record in jax.numpy and return a number or an array"
            advice = "Use jnp functions, and jnp.where in place of if."
            cause = f"'contribution' {rule}; it raised {in_a_line(error)} {advice}"
            raise InputError(cause, who=self.who, argument="contribution", rule=rule, advice=advice) from error
        whole = result.dtype.kind in "iub"
        return jax.ShapeDtypeStruct(result.shape[1:], np.int64 if whole else np.float64)

    def _contributions(self, values: Values) -> Any:
        """The contributions by row and record; traceable."""
        names, fields = self.total.arguments, self.total.record

        def of_row(outer: Values, inner: Values) -> Any:
            return jax.vmap(lambda record: jnp.asarray(self.total.contribution(**outer, **record)))(inner)

        outer = {name: values[name] for name in names if name not in fields}
        inner = {name: values[name] for name in names if name in fields}
        return jax.vmap(of_row)(outer, inner).astype(self.struct.dtype)

    @cached_property
    def _partial(self) -> Callable[..., Any]:
        def summed(values: Values, count: Any) -> Any:
            """Sums over the first `count` records of each row; None for all."""
            contributions = self._contributions(values)
            if count is None:  # known when the program is compiled, which halves its time
                return jnp.sum(contributions, axis=1)
            keep = jnp.arange(contributions.shape[1]) < count[:, None]
            return jnp.sum(jnp.where(_widened(keep, contributions.ndim), contributions, 0), axis=1)

        return Compiled(lambda: functools.partial(summed))  # a new object each time: JAX keeps no trace of it

    def summed(self, values: Values, count: Array | None = None) -> Any:
        """What the first `count` records of each row add up to; without it, all of them.

        `values` holds the contribution's arguments: record fields by row and record, others by row.
        """
        return self._partial(values, count)

    @cached_property
    def known(self) -> KnownSum | None:
        """The law of the total; None where records are to be simulated (see `law_of_sum`)."""
        total = self.total
        summand = Summand(self.laws, total.contribution, total.arguments, self._structs, self.struct)
        return law_of_sum(summand, total.n if isinstance(total.n, int) else None)

    @cached_property
    def _plain(self) -> PlainSums | None:
        """The sums in NumPy, where the contribution is plain arithmetic; else None."""
        sums = PlainSums(lambda: functools.partial(self._contributions))
        looked_at = {name: (2, 3) if name in self.laws else (2,) for name in self.total.arguments}
        structs = {
            name: jax.ShapeDtypeStruct(lead + self._structs[name].shape, self._structs[name].dtype)
            for name, lead in looked_at.items()
        }
        return sums if sums.program(structs) is not None else None

    def draw(self, rng: np.random.Generator, values: Values, rows: int, poll: Poll) -> Array:
        """One total per row: by its own law where that is known, else by the records."""
        n, outer = self.sizes(values, rows), {name: values[name] for name in self.parents}
        if self.known is not None:
            poll()
            drawn = self.known.draw(rng, outer, n)
            if drawn is not None:
                return drawn
        return self.simulated(rng, outer, n, poll)

    def simulated(self, rng: np.random.Generator, outer: Values, n: Array, poll: Poll) -> Array:
        """One total of `n` simulated records per row; of equally many in all rows where the model knows how many.

        Every row takes as long as the longest, so that rows of half as many records, and less, are done by themselves.
        """
        rows, known = len(n), int(n[0]) if isinstance(self.total.n, int) else None
        chunk, short = chunk_of(rows, known), n <= n.max() // 2
        if n.max() > chunk and short.any():
            total = np.empty((rows, *self.struct.shape), dtype=self.struct.dtype)
            for part in (short, ~short):
                own = {name: column[part] for name, column in outer.items()}
                total[part] = self.simulated(rng, own, n[part], poll)
            return total
        records = Records(self.laws, outer, rows, chunk)
        total = np.zeros((rows, *self.struct.shape), dtype=self.struct.dtype)
        with np.errstate():  # which also restores the size of NumPy's buffers at its end
            np.setbufsize(SHORT_ROW)
            for start in range(0, int(n.max()), chunk):
                poll()
                for part, fields in records.draw(rng, whole=self._plain is None):
                    total[part] += self._added(fields, n[part] - start, chunk, known)
        return total

    def _added(self, values: Values, left: Array, chunk: int, known: int | None) -> Array:
        """Sums over some rows of records, of which only the first `left` of each row count."""
        needed = {name: values[name] for name in self.total.arguments}
        full = known is not None and known % chunk == 0
        if self._plain is not None and known is not None and not full:
            needed = {name: v[:, : left[0]] if name in self.laws else v for name, v in needed.items()}
        if self._plain is not None and self._plain.program(needed) is not None:
            return self._plain(needed, None if known is not None else np.arange(chunk) < left[:, None])
        with double():
            return np.asarray(self.summed(needed, None if full else np.clip(left, 0, chunk)))

    def sizes(self, values: Values, rows: int) -> Array:
        """The number of records of each row."""
        if not isinstance(self.total.n, str):
            return np.full(rows, self.total.n)
        n = np.asarray(values[self.total.n])
        if np.any(n < 0):
            rule = f"must not be negative, as '{self.total.n}' gives it"
            raise refusal(self.who, "n", rule, n.min().item(), "Use a prior on 0, 1, 2, ... such as dist.Poisson.")
        return n


def _widened(mask: Any, rank: int) -> Any:
    """`mask` with axes of length 1 added at its end, up to that rank."""
    return mask.reshape(mask.shape + (1,) * (rank - mask.ndim))


def chunk_of(rows: int, known: int | None) -> int:
    """Records at a time: an equal split of a known number, 64 where it varies."""
    most = max(1, RECORDS_AT_ONCE // rows)
    if known is None:
        return min(most, 64)
    return -(-known // max(1, -(-known // most)))
