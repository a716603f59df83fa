"""The likelihood's independent parts: each released law, entry by entry where its entries are independent.

A part knows log pi(s | theta) and log eta(s_dp | s). Everything a fit needs is a weighted cloud of values of s for
each entry: nodes of a sum or an integral (EM), or simulated values (MCEM). See docs/derivations/likelihood.md.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np

from noisewise.errors import InputError, Place, refusal
from noisewise.inference.problem import Problem
from noisewise.likelihood.instead import MCEM, SAMPLE
from noisewise.mechanisms import Exact
from noisewise.model.atoms import atoms_move, has_atoms
from noisewise.model.families import Facts, facts_of
from noisewise.model.masses import formula
from noisewise.model.supports import chart, support_ends, support_moves
from noisewise.model.wrappers import kind_of, peel
from noisewise.numerics import Array, Compiled, Values, double
from noisewise.numerics.tracing import depends


class Part:
    """One released statistic: a law of parameters alone, and its mechanism."""

    place = np.int64(0)
    """Its first entry among the statistic's: an argument of its programs, which all pieces share."""
    step = 1
    """The statistic has this many entries for each of the part's own."""

    def __init__(self, problem: Problem, name: str) -> None:
        self.name, self.model, self.item = name, problem.model, problem.release[name]
        self.mechanism = self.item.mechanism
        self.law = problem.model.law(name)
        self.exact = isinstance(self.mechanism, Exact)
        self.shape = problem.model.shape(name)
        self.discrete = problem.model.is_discrete(name)
        self.by_entry = self.mechanism.event_dim == 0 and self._entry_shape() == self.shape
        self.kind, self.chart, atoms = self._kind()
        self.atomic = atoms and not self.discrete
        """Whether single real numbers have positive probability."""
        self._refuse_moving_atoms()
        self._refuse_a_moving_support()
        if self.exact:
            self._refuse_the_impossible()
        self.sweep: Any = None  # an E-step over very many entries keeps its windows here from one step to the next
        self.noise_at: dict[float, Array] = {}  # log eta in windows of whole numbers, by their reach: also kept

    def _entry_shape(self) -> tuple[int, ...]:
        structs = {name: jax.ShapeDtypeStruct((1, *self.model.shape(name)), float) for name in self.law.parents}
        value = jax.ShapeDtypeStruct((1, *self.shape), float)
        with double():
            each = jax.eval_shape(jax.vmap(lambda v, s: formula(self.law.function(**v), s)), structs, value)
        return tuple(each.shape[1:])

    def _kind(self) -> tuple[str, str, bool]:
        structs = {name: jax.ShapeDtypeStruct(self.model.shape(name), float) for name in self.law.parents}
        return traits_of(self.law.function, structs)

    def _refuse_moving_atoms(self) -> None:
        if self.atomic and atoms_move(self.law):
            rule = "must not have an atom that moves with the parameters, where there is no score"
            raise self._refusal(rule, "Use nw.sample.", SAMPLE)

    def _refusal(self, rule: str, advice: str, instead: str) -> InputError:
        """A refusal of the statistic's law."""
        return refusal("fit", Place.of("statistics", self.name), rule, self.kind or "a law", advice, instead=(instead,))

    def refuse_atoms(self) -> None:
        """Refuse atoms among real numbers, which an integral would pass over."""
        if self.atomic and not self.exact:
            rule = "must have no atoms among real numbers, which an integral would pass over"
            raise self._refusal(rule, "Use nw.MCEM(), which simulates it.", MCEM)

    def _refuse_a_moving_support(self) -> None:
        structs = {name: jax.ShapeDtypeStruct(self.model.shape(name), float) for name in self.law.parents}
        if support_moves(lambda given: self.law.function(**given), structs):
            rule = "must have a support that does not depend on the parameters"
            raise self._refusal(rule, "Use nw.sample.", SAMPLE)

    def _refuse_the_impossible(self) -> None:
        """Refuse exact values outside the support, beyond which a density's formula goes on.

        Values between whole numbers, or a turn of an angle further on, are not refused.
        """
        if self.facts.periodic:
            return
        ends = self.bounds({name: np.ones(self.model.shape(name)) for name in self.law.parents})  # the same for all
        value = np.broadcast_to(np.asarray(self.item.value, float), self.shape)
        off = (value < ends[0]) | (value > ends[1])
        if off.any():
            rule = "must lie within the support of its law where it has no noise"
            advice = "Give the noise, or a law that reaches the value; there is no naive fit."
            raise refusal("fit", Place.of("release", self.name), rule, value[off][:3].tolist(), advice)

    @property
    def facts(self) -> Facts:
        """What is known of the law's class."""
        return facts_of(self.kind)

    @property
    def smooth(self) -> bool:
        """Whether s is discrete or exact, or the score known to be absolutely continuous, as Louis's identity needs."""
        return self.discrete or self.exact or self.facts.smooth

    def kink(self, values: Values) -> Array | None:
        """Where the law has a kink of its own, for every entry; None where it has none."""
        place_of_kink = self.facts.kink
        if not place_of_kink:
            return None

        def build() -> Any:
            return lambda given, place: getattr(peel(self.law_at(given, place))[0], place_of_kink)

        with double():
            kink = self.compiled("kink", build)(self.given(values), self.place)
            return np.broadcast_to(np.asarray(kink), self.shape)

    @property
    def entries(self) -> int:
        """How many independent parts it falls into: every entry by itself, or the whole statistic."""
        return int(np.prod(self.shape)) if self.by_entry else 1

    @property
    def numbers(self) -> int:
        """Numbers that one value of s takes."""
        return max(1, int(np.prod(self.shape)))

    def given(self, values: Values) -> Values:
        """The parameters that the law depends on."""
        return {name: values[name] for name in self.law.parents}

    def law_at(self, given: Values, place: Any) -> Any:
        """The law at these parameters; traceable. A whole part has all entries, so `place` changes nothing."""
        return self.law.function(**given)

    def draw(self, rng: np.random.Generator, values: Values, rows: int) -> Array:
        """Independent values of s at one value of the parameters."""
        parents = {name: np.broadcast_to(one, (rows, *np.shape(one))) for name, one in self.given(values).items()}
        return self.law.draw(rng, parents, rows)

    def log_prob(self, values: Values, s: Any, place: Any) -> Any:
        """log pi(s | theta) for one value of s: one number per entry; traceable."""
        each = formula(self.law_at(self.given(values), place), s)
        return each.reshape(self.entries) if self.by_entry else jnp.sum(each).reshape(1)

    def bounds(self, values: Values) -> tuple[Array, Array]:
        """Ends of every entry's support. Density formulas go on beyond them, so sums and integrals must not."""

        def build() -> Any:
            return lambda given, place: support_ends(self.law_at(given, place))

        with double():
            low, high = self.compiled("bounds", build)(self.given(values), self.place)
            return np.broadcast_to(np.asarray(low), self.shape), np.broadcast_to(np.asarray(high), self.shape)

    def log_eta(self, s: Array) -> Array:
        """log eta(s_dp | s) for many values of s: (values, entries)."""
        with np.errstate(over="ignore", under="ignore"):
            log_eta = np.asarray(self.mechanism.log_prob(self.item.value, s)).reshape(len(s), -1)
        return log_eta if self.by_entry else log_eta.sum(axis=1, keepdims=True)

    def log_sup(self) -> Array:
        """The most that `log_eta` can be: one number per entry."""
        log_sup = np.asarray(self.mechanism.log_sup(self.item.value), float).reshape(-1)
        return np.broadcast_to(log_sup, self.entries) if self.by_entry else log_sup.sum(keepdims=True)

    def compiled(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        """A program of this part, kept on the model: other releases and calls use it again."""
        return self.model.compiled.setdefault((purpose, self.name, self.by_entry), Compiled(build))

    def log_prob_many(self, values: Values, s: Array) -> Array:
        """`log_prob` over a leading axis of values of s: (values, entries)."""
        levels = self.levels(s)
        if levels is not None:
            return self.log_prob_many(values, np.arange(levels[0], levels[1] + 1.0))[np.asarray(s, int) - levels[0]]
        program = self.compiled("law", lambda: jax.vmap(self.log_prob, in_axes=(None, 0, None)))
        log_probs = np.empty((len(s), self.entries))
        for start, piece in padded(s, self.entries):
            with double():
                rows = np.asarray(program(self.given(values), piece, self.place))
                log_probs[start : start + len(piece)] = rows[: len(s) - start]
        return log_probs

    def levels(self, s: Array) -> tuple[int, int] | None:
        """Least and greatest of many values of one whole number that repeat a lot: work per level is work saved."""
        if not self.discrete or self.shape != () or len(s) < 2**12 or np.asarray(s).dtype.kind not in "iu":
            return None
        low, high = int(np.min(s)), int(np.max(s))
        return (low, high) if high - low < len(s) // 4 else None


def traits_of(function: Callable[..., Any], structs: Values) -> tuple[str, str, bool]:
    """The class of a law beneath its wrappers, its support's chart, and whether it has atoms.

    A chart is "real", "positive", "unit" or nothing. No class where the law is transformed, or where a size that
    must be known depends on the parameters.
    """
    kinds, charts, atoms = [], [], []

    def look(values: Values) -> Any:
        law = function(**values)
        kinds.append(kind_of(law))
        charts.append(chart(law.support))
        atoms.append(has_atoms(law))
        size = facts_of(kinds[-1]).while_known
        return [jnp.asarray(getattr(peel(law)[0], size))] if size else []

    with double():
        program = jax.make_jaxpr(look)(structs).jaxpr
    return ("" if depends(program) else kinds[-1]), charts[-1], atoms[-1]


def padded(s: Array, cells: int) -> Iterator[tuple[int, Array]]:
    """Pieces of `s` of one length, a power of two that keeps memory small: few shapes to compile, whatever the size."""
    rows = 2**18 // max(1, cells)
    rows = min(1 << max(rows, 1).bit_length() - 1, 1 << (len(s) - 1).bit_length())
    for start in range(0, len(s), rows):
        piece = np.asarray(s[start : start + rows], dtype=np.float64)
        missing = rows - len(piece)
        yield start, np.concatenate([piece, np.repeat(piece[:1], missing, axis=0)]) if missing else piece
