"""A released `Total` as a part of the likelihood: the records are simulated, and the total weighs them.

The law of a sum of clamped or transformed records seldom has a density, but each record has one. So the missing data of
EM are the records themselves: n of them are drawn at the current parameters, their total gives the weight
eta(s_dp | total), and Q is the weighted sum of the records' log densities. See docs/derivations/likelihood.md.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.errors import Place, refusal
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step.released_law import padded
from noisewise.likelihood.instead import AUGMENTED, SAMPLE
from noisewise.mechanisms import Exact
from noisewise.model.law import log_density
from noisewise.model.supports import support_moves
from noisewise.model.total import BoundTotal
from noisewise.numerics import Array, Compiled, Values, double

MOST_NUMBERS = 2**23
"""Numbers a cloud of records may hold; draws of n records each are limited to this."""
LEAST = 100
"""Fewest values for which a cloud must have room."""


class SimulatedRecords:
    """The records behind one released total; has the interface of a `Part` whose statistic is all n records."""

    kind, by_entry, exact, entries, discrete, smooth = "", False, False, 1, False, False
    place, step = np.int64(0), 1

    def __init__(self, problem: Problem, name: str) -> None:
        self.name, self.model, self.item = name, problem.model, problem.release[name]
        self.mechanism = self.item.mechanism
        self.bound = cast(BoundTotal, problem.model.total(name))
        self._check(problem)
        total = self.bound.total
        self.n = cast(int, total.n)
        self.laws = self.bound.laws
        # Fields whose law does not name a parameter add a constant to Q.
        self.fitted = [field for field, law in self.laws.items() if law.outer]
        wanted = {*total.arguments, *self.fitted, *(p for field in self.fitted for p in self.laws[field].inner)}
        self.fields_used = [field for field in self.laws if field in wanted]
        self.widths = {field: int(np.prod(self.laws[field].form.shape)) for field in self.fields_used}
        self.shape = (self.n, sum(self.widths.values()))
        self.law = self  # as a part's law, for its `parents`
        self.parents = tuple(dict.fromkeys(p for field in self.fitted for p in self.laws[field].outer))
        for field in self.fitted:
            self._refuse_a_moving_support(field)
        self._refuse_too_many()

    def _refuse_too_many(self) -> None:
        if LEAST * self.numbers > MOST_NUMBERS:
            rule = f"must have at most {MOST_NUMBERS // (LEAST * self.shape[1])} records to be simulated whole"
            advice = 'Use nw.MCEM(e_step="augmented"), or nw.sample.'
            raise refusal("fit", Place.of("statistics", self.name), rule, self.n, advice, instead=(AUGMENTED, SAMPLE))

    def _check(self, problem: Problem) -> None:
        total, released = self.bound.total, Place.of("release", self.name)
        refused = partial(refusal, "fit", Place.of("statistics", self.name), instead=(SAMPLE,))
        if isinstance(total.n, str):
            raise refused("must have a known number of records", total.n, "Give n, or use nw.sample.")
        outside = set(self.bound.parents) - set(problem.model.parameters)
        if outside:
            raise refused("must depend on parameters only", sorted(outside), "Use nw.sample.")
        if total.moving:
            rule = "must have a contribution of record fields alone: the noise would depend on the parameters"
            raise refused(rule, total.moving, "Make it a record field's law, or use nw.sample.")
        if isinstance(self.mechanism, Exact):
            raise refusal("fit", released, "must carry noise if it is a Total", "Exact", "Give a law.")
        if self.mechanism.inputs:
            rule = "must not take its scale from another statistic"
            raise refusal("fit", released, rule, self.mechanism, "Use nw.sample.", instead=(SAMPLE,))

    def _refuse_a_moving_support(self, field: str) -> None:
        law = self.laws[field]
        inner = {name: np.zeros(self.laws[name].form.shape) for name in law.inner}
        structs = {name: jax.ShapeDtypeStruct(self.model.shape(name), float) for name in law.outer}
        if support_moves(lambda given: law.function(**given, **inner), structs):
            rule = "must have a support that does not depend on the parameters"
            place = Place(f"statistics['{self.name}'], record['{field}']", ("statistics", self.name, "record", field))
            raise refusal("fit", place, rule, field, "Use nw.sample.", instead=(SAMPLE,))

    @property
    def numbers(self) -> int:
        """Numbers that n records take."""
        return int(np.prod(self.shape))

    def _fields(self, s: Any) -> Values:
        """Fields by name from stacked records of shape (..., width), in their own shapes and types."""
        fields, start = {}, 0
        for field in self.fields_used:
            form = self.laws[field].form
            piece = s[..., start : start + self.widths[field]].reshape((*s.shape[:-1], *form.shape))
            fields[field] = piece.astype(int) if form.discrete else piece
            start += self.widths[field]
        return fields

    def draw(self, rng: np.random.Generator, values: Values, rows: int) -> Array:
        """`rows` times n records at one value of the parameters, each record's fields side by side."""
        everything = {name: np.broadcast_to(one, (rows, *np.shape(one))) for name, one in values.items()}
        for field, law in self.laws.items():
            everything[field] = law.draw(rng, everything, rows, records=self.n)
        pieces = [np.asarray(everything[field], float).reshape(rows, self.n, -1) for field in self.fields_used]
        return np.concatenate(pieces, axis=2)

    def totals(self, s: Array) -> Array:
        """The confidential total of each row of records."""
        fields = self._fields(s)
        given = {name: fields[name] for name in self.bound.total.arguments}
        with double():
            return np.asarray(self.bound.summed(given))

    def log_eta(self, s: Array) -> Array:
        """log eta(s_dp | total of the records): (values, 1)."""
        with np.errstate(over="ignore", under="ignore"):
            log_eta = np.asarray(self.mechanism.log_prob(self.item.value, self.totals(s)))
        return log_eta.reshape(len(s), -1).sum(axis=1, keepdims=True)

    def log_sup(self) -> Array:
        """The most that `log_eta` can be."""
        return np.asarray(self.mechanism.log_sup(self.item.value), float).sum(keepdims=True).reshape(1)

    def log_prob(self, values: Values, s: Any, place: Any) -> Any:
        """The sum of the records' log densities, up to a constant in the parameters; traceable."""

        def one(record: Values) -> Any:
            total: Any = 0.0
            for field in self.fitted:
                law = self.laws[field]
                given = {name: values[name] for name in law.outer} | {name: record[name] for name in law.inner}
                total = total + log_density(law.function(**given), record[field])
            return total

        return jnp.sum(jax.vmap(one)(self._fields(s))).reshape(1)

    def compiled(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        """A program of this part, kept on the model."""
        return self.model.compiled.setdefault((purpose, self.name, "records"), Compiled(build))

    def log_prob_many(self, values: Values, s: Array) -> Array:
        """`log_prob` over a leading axis of values of s: (values, 1)."""
        program = self.compiled("law", lambda: jax.vmap(self.log_prob, in_axes=(None, 0, None)))
        given = {name: values[name] for name in self.parents}
        log_probs = np.empty((len(s), 1))
        for start, piece in padded(s, int(np.prod(self.shape))):
            with double():
                log_probs[start : start + len(piece)] = np.asarray(program(given, piece, self.place))[: len(s) - start]
        return log_probs
