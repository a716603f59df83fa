"""The joint density of parameters, confidential statistics and release, term by term.

Each step of a Markov chain on (theta, s) needs the terms that its own names touch and no others.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions.distribution import Independent

from noisewise.inference.problem import Problem
from noisewise.mechanisms import Exact
from noisewise.model import Model
from noisewise.model.law import log_density
from noisewise.model.masses import entries
from noisewise.model.supports import declared_ends, inside
from noisewise.numerics import Array, Compiled, Values, double
from noisewise.numerics.compiled import PLAINLY
from noisewise.numerics.tracing import depends

Density = Callable[[Values, Any, Any], Any]
"""(values by name, records of totals by name, release) of one chain -> a log density; traceable."""


@dataclass
class State:
    """Where the chains of one group stand: rows by name, and the records behind each total."""

    values: dict[str, Array]
    records: dict[str, dict[str, Array]] = field(default_factory=dict)

    @property
    def chains(self) -> int:
        """How many chains."""
        return len(next(iter(self.values.values())))

    def some(self, rows: Array) -> "State":
        """The state of these chains only."""
        return State(*jax.tree.map(lambda column: column[rows], (self.values, self.records)))


@dataclass(frozen=True)
class Term:
    """One factor of the joint density, and the names it depends on."""

    touches: frozenset[str]
    density: Density
    law_of: str | None = None
    """The name whose law this term is, if the term is a law."""
    noise_of: str | None = None
    """The released name whose noise density this term is, if the term is one."""


class Joint:
    """log pi0(theta) + log pi(s | theta) + log eta(s_dp | s) for a problem; `totals` by name where there are any."""

    axes: Any = None
    """Axis of the released values over chains; None where all chains share one release. Tests set it."""

    def __init__(self, problem: Problem, totals: Mapping[str, Any]) -> None:
        self.problem, self.model, self.totals = problem, problem.model, totals
        self.measured = problem.measured
        self.steps: dict[str, Any] = {}
        """Steps that take long to construct, by the statistic that they move."""
        exact = {name for name, item in problem.release.items() if isinstance(item.mechanism, Exact)}
        self.fixed = exact - set(self.measured)
        self.release = {n: (i.mechanism, i.value) for n, i in problem.release.items() if n not in self.fixed}
        self.terms = [self._law(name) for name in self.model.order if self._has_law(name)]
        self.terms += [self._total(name) for name in totals]
        self.terms += [self._noise(name) for name in self.release]

    def _has_law(self, name: str) -> bool:
        wanted = name in self.model.parameters or name in self.problem.needed
        return wanted and name not in self.measured and name not in self.totals and self.model.has_density(name)

    def _law(self, name: str) -> Term:
        def density(values: Values, records: Any, release: Any) -> Any:
            return log_density(self.model.law_at(name, values), values[name])

        return Term(frozenset({name, *self.model.parents(name)}), density, name)

    def _total(self, name: str) -> Term:
        def density(values: Values, records: Any, release: Any) -> Any:
            return self.totals[name].log_density(values, records[name])

        return Term(frozenset(self.model.parents(name)), density)

    def _noise(self, name: str) -> Term:
        def density(values: Values, records: Any, release: Any) -> Any:
            mechanism, value = release[name]
            confidential = self.confidential(name, values)
            return jnp.sum(mechanism.log_prob(value, confidential, **{x: values[x] for x in mechanism.inputs}))

        own = self.measured[name].statistic if name in self.measured else name
        return Term(frozenset({own, *self.release[name][0].inputs}), density, noise_of=name)

    def confidential(self, name: str, values: Values) -> Any:
        """What a released value was made from: a statistic, or a measurement of one; traceable."""
        measured = self.measured.get(name)
        return values[name] if measured is None else measured.of(values[measured.statistic])

    def measure(self, values: dict[str, Array]) -> None:
        """Bring measured values up to date with their statistics."""
        for name, measured in self.measured.items():
            values[name] = measured.of_rows(values[measured.statistic])

    def touching(self, names: Iterable[str], also: Iterable[str] = (), never: Iterable[str] = ()) -> Density:
        """The sum of all terms that depend on any of the names; NaN and +inf count as impossible.

        With `also`, only terms that depend on any of these names too; with `never`, only terms that depend on none.
        """
        wanted, besides, barred = frozenset(names), frozenset(also), frozenset(never)
        terms = [term for term in self.terms if term.touches & wanted and not term.touches & barred]
        return self._sum([term for term in terms if not besides or term.touches & besides])

    def without_laws_of(self, names: Iterable[str], marginal: Mapping[str, Density]) -> Density:
        """The sum of all terms but the laws of the names; `marginal` densities replace law and noise of their names."""
        left_out = {*names, *marginal}
        terms = [term for term in self.terms if term.law_of not in left_out and term.noise_of not in marginal]
        return self._sum([*terms, *(Term(frozenset(), density) for density in marginal.values())])

    @staticmethod
    def _sum(terms: list[Term]) -> Density:
        def density(values: Values, records: Any, release: Any) -> Any:
            total = jnp.zeros(())
            for term in terms:
                total = total + term.density(values, records, release)
            return jnp.where(total < jnp.inf, total, -jnp.inf)  # NaN, or a formula beyond its range

        return density

    def children(self, name: str) -> frozenset[str]:
        """Needed statistics and parameters whose law has `name` as a parent; measurements of it do not count."""
        known = {*self.model.parameters, *self.problem.needed} - set(self.measured)
        return frozenset(other for other in self.model.order if other in known and name in self.model.parents(other))

    def readers(self, name: str) -> frozenset[str]:
        """Released statistics whose mechanism reads `name`."""
        return frozenset(other for other, (mechanism, _) in self.release.items() if name in mechanism.inputs)

    def program(self, purpose: Any, build: Callable[[], Callable[..., Any]]) -> Compiled:
        """A program kept on the model, for every release of the same form."""
        form = tuple((name, name in self.fixed, item.mechanism.inputs) for name, item in self.problem.release.items())
        return self.model.compiled.setdefault(
            ("augmentation", purpose, form, self.axes is None), Compiled(build, options=PLAINLY)
        )

    def log_density(self, state: State) -> Array:
        """The whole joint density, chain by chain."""
        density = self.touching(self.model.order)
        program = self.program("joint", lambda: jax.vmap(density, in_axes=(0, 0, self.axes)))
        return self.run(program, state.values, state.records, self.release)

    @staticmethod
    def run(program: Compiled, *arguments: Any) -> Any:
        """Run a program in 64 bits, and return NumPy arrays."""
        with double():
            return jax.tree.map(np.asarray, program(*arguments))


# Entry by entry -------------------------------------------------------------------------------------------------------


def entry_log_prob(model: Model, name: str, values: Values, value: Any) -> Any:
    """log density of each entry by itself, -inf off its support; for laws whose entries are independent."""
    law = model.law_at(name, values)
    while isinstance(law, Independent):
        law = law.base_dist
    log_prob = entries(law, value)
    return jnp.where(inside(law, value) & ~jnp.isnan(log_prob), log_prob, -jnp.inf)


def has_free_entries(joint: Joint, name: str) -> bool:
    """Whether law and noise treat every entry alone, and nothing else depends on the statistic."""
    model, shape = joint.model, joint.model.shape(name)
    many = any(measured.statistic == name for measured in joint.measured.values())
    if joint.children(name) or joint.readers(name) or name not in joint.release or many:
        return False
    struct = model.row(model.order)

    def shapes(values: Values, release: Any) -> tuple[Any, Any]:
        mechanism, value = release[name]
        noise = mechanism.log_prob(value, values[name], **{x: values[x] for x in mechanism.inputs})
        return entries(model.law_at(name, values), values[name]), noise

    with double():
        densities = jax.eval_shape(jax.vmap(shapes, in_axes=(0, None)), struct, joint.release)
    return all(tuple(density.shape[1:]) == shape for density in densities)


def support_of(joint: Joint, name: str) -> tuple[int, int] | None:
    """The ends of a whole-numbered support, where they are finite and the same for all parents' values; else None."""
    model = joint.model
    struct = model.row(model.law(name).parents)

    def ends(values: Values) -> Any:
        low, high = declared_ends(model.law_at(name, values).support)
        if (isinstance(low, float) and low == -np.inf) or (isinstance(high, float) and high == np.inf):
            raise LookupError
        return [jnp.min(jnp.asarray(low)), jnp.max(jnp.asarray(high))]

    try:
        with double():
            if struct:
                if depends(jax.make_jaxpr(jax.vmap(ends))(struct).jaxpr):
                    return None
                low, high = jax.vmap(ends)(
                    {name: np.ones(parent.shape, parent.dtype) for name, parent in struct.items()}
                )
            else:
                low, high = ends({})
    except LookupError:
        return None
    return int(np.ravel(low)[0]), int(np.ravel(high)[0])
