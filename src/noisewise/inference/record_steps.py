"""The records behind a `Total`, one at a time (Ju, Awan, Gong and Rao 2022): the part of `Augmentation` for totals.

The law of a sum of clamped records seldom has a density, but each record has one. So the chain carries the records
themselves. One record is proposed from the model while the others stay. The proposal is accepted by the ratio of the
noise densities at the new and the old total; the new total is one addition away. Where each entry of the total adds up
records of its own, entries are accepted one by one. An unknown number of records is drawn anew within a window, by
adding records from the model at the end or removing records there. Derivation: docs/derivations/augmentation-totals.md.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions.distribution import Independent

from noisewise.errors import InputError
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Exact, Mechanism, Projected, Within
from noisewise.mechanisms.additive import Additive
from noisewise.model import Model
from noisewise.model.atoms import atoms_move
from noisewise.model.law import log_density
from noisewise.model.simulator import BoundSimulator
from noisewise.model.total import BoundTotal
from noisewise.numerics import Array, Compiled, Values, double
from noisewise.numerics.compiled import PLAINLY
from noisewise.numerics.tracing import entrywise, in_rows
from noisewise.release import Release

RecordState = dict[str, Array]

MOST_NUMBERS = 2**22
"""Numbers that the records of one chain may hold."""
WINDOWS = (16, 1024)
"""The narrowest and the widest window in which an unknown number of records is drawn."""
LOOKED_AT = 256
"""Prior draws by which the window is chosen, and by which noise that cannot reach every total is noticed."""


class RecordSteps:
    """The records of the total `name`, and the Gibbs steps that leave their law given the rest invariant.

    A state is a dict of arrays, chains first: each record field (chains, capacity, ...), the total under its own
    name and, where the number of records is unknown, that number under its own name. Of the records up to the
    capacity only the first count, as many as that number says. `owned` are the names of the model whose values the
    state holds, `read` the others that the steps depend on.
    """

    shared: int | None = None
    """Axis of the released values over chains; None: all chains explain the same release."""

    def __init__(self, problem: Problem, name: str) -> None:
        self.problem, self.name, self.model = problem, name, problem.model
        self.bound = cast(BoundTotal, problem.model.total(name))
        self.n = self.bound.total.n
        self.fields = tuple(self.bound.laws)
        self.unknown = isinstance(self.n, str)
        self.owned = (name, cast(str, self.n)) if self.unknown else (name,)
        self.released = {
            label: jax.tree.map(np.asarray, (item.mechanism, item.value))
            for label, item in problem.release.items()
            if {label, *item.mechanism.inputs} & set(self.owned)
        }
        self.factors = tuple(_factors(problem.model, self.owned))
        read = {entry for label in self.released for entry in (label, *problem.release[label].mechanism.inputs)}
        read |= {entry for label in self.factors for entry in (label, *problem.model.parents(label))}
        self.read = tuple(sorted(read - set(self.owned)))
        self.window = self._choose_window() if self.unknown else 0
        self.lanes = self._lanes()
        """The total's shape where its entries are sums over records of their own, accepted one by one; else ()."""

    def _choose_window(self) -> int:
        """The window's width: four prior standard deviations of n, rounded up to a power of two within `WINDOWS`.

        It is fixed by the model, not by the chain's state.
        """
        n = self.model.simulate(LOOKED_AT, 0)[cast(str, self.n)]
        width = max(1.0, 4.0 * float(np.std(n)))
        return int(np.clip(2 ** math.ceil(math.log2(width)), *WINDOWS))

    def _lanes(self) -> tuple[int, ...]:
        shape = self.bound.struct.shape
        if math.prod(shape) <= 1 or self.unknown or self.factors or list(self.released) != [self.name]:
            return ()
        mechanism, value = self.released[self.name]
        apart = not mechanism.inputs and records_apart(self.bound)
        with double():
            own = jax.ShapeDtypeStruct(shape, self.bound.struct.dtype)
            density = jax.eval_shape(lambda total: mechanism.log_prob(value, total), own)
        return shape if apart and density.shape == shape else ()

    # What samplers and fits call --------------------------------------------------------------------------------

    def start(self, rng: np.random.Generator, values: Values, chains: int) -> RecordState:
        """Records drawn from the model at each chain's values."""
        size = self.bound.sizes(values, chains).astype(np.int64)
        capacity = _power_of_two(int(size.max()) + self.window) if self.unknown else int(size[0])
        state = self._draw(rng, values, chains, capacity)
        if self.unknown:
            state[cast(str, self.n)] = size
        return self._totalled(state)

    def sweep(self, rng: np.random.Generator, state: RecordState, values: Values) -> tuple[RecordState, dict[str, Any]]:
        """Propose every record once, in sequence; then, if it is unknown, draw their number within a window.

        The info holds `accepted` and `tried` records; `least`, the smallest acceptance probability met; and
        `impossible`, how many chains have a total that could not have given the release, as only a start can.
        """
        state = self._with_room(state)
        chains, capacity = state[self.fields[0]].shape[:2]
        new = self._draw(rng, values, chains, capacity)
        chance: list[Array] = [-rng.standard_exponential((chains, capacity, *self.lanes))]
        if self.unknown:
            chance.append(rng.integers(self.window, size=chains))
            chance.append(rng.gumbel(size=(chains, self.window)))
        size = self._size(state)
        now = {field: state[field] for field in self.fields}
        context = {entry: np.asarray(values[entry]) for entry in self.read}
        with double():
            outcome = self._program("sweep", self._sweep)(now, new, size, chance, context, self.released)
            records, total, size, accepted, least, impossible, finite = jax.tree.map(np.asarray, outcome)
        self._refuse_infinite(finite)
        swept = {**records, self.name: total}
        if self.unknown:
            swept[cast(str, self.n)] = size
        tried = int(self._size(state).sum()) * math.prod(self.lanes)
        info = {"accepted": int(accepted), "tried": tried, "least": math.exp(least), "impossible": int(impossible)}
        return swept, info

    def fresh(self, rng: np.random.Generator, state: RecordState, values: Values) -> RecordState:
        """As many records as in `state`, all drawn anew at `values`: a proposal for parameters and records together.

        Its density cancels against the records' own, so the Metropolis-Hastings ratio of (values, records) is that
        of the prior, the other statistics' laws and the noise densities, at the new total against the old.
        """
        chains, capacity = state[self.fields[0]].shape[:2]
        proposal = self._draw(rng, values, chains, capacity)
        if self.unknown:
            proposal[cast(str, self.n)] = state[cast(str, self.n)]
        return self._totalled(proposal)

    def log_density(self, values: Values, state: Values) -> Any:
        """Sum over present records of log f(record | values), up to a constant in `values`; traceable, one chain."""
        fitted = [field for field in self.fields if self.bound.laws[field].outer]
        if not fitted:
            return jnp.zeros(())
        capacity = state[self.fields[0]].shape[0]
        present = jnp.arange(capacity) < (state[cast(str, self.n)] if self.unknown else capacity)
        # Absent records are evaluated as the first one: their own values may lie off the support here.
        records = {field: _select(present, state[field], state[field][:1]) for field in self.fields}

        def of_record(record: Values) -> Any:
            total: Any = 0.0
            for field in fitted:
                law = self.bound.laws[field]
                arguments = {p: values[p] for p in law.outer} | {p: record[p] for p in law.inner}
                total = total + log_density(law.function(**arguments), record[field])
            return total

        return jnp.sum(jnp.where(present, jax.vmap(of_record)(records), 0.0))

    def total(self, state: RecordState) -> Array:
        """The statistic, one row per chain."""
        return state[self.name]

    def values(self, state: RecordState) -> dict[str, Array]:
        """The values of the model that the state holds: the total, and the number of records if it is unknown."""
        return {name: state[name] for name in self.owned}

    # Inside ------------------------------------------------------------------------------------------------

    def _size(self, state: RecordState) -> Array:
        if self.unknown:
            return state[cast(str, self.n)]
        return np.full(len(state[self.fields[0]]), self.n, dtype=np.int64)

    def _with_room(self, state: RecordState) -> RecordState:
        """The state with capacity for the largest number the window can reach, so that none is ever out of reach."""
        capacity = state[self.fields[0]].shape[1]
        needed = int(self._size(state).max()) + self.window
        if needed <= capacity:
            return state
        more = _power_of_two(needed) - capacity
        # Records beyond the size are replaced before they count.
        grown = {f: np.concatenate([state[f], np.repeat(state[f][:, :1], more, axis=1)], axis=1) for f in self.fields}
        return {**state, **grown}

    def _draw(self, rng: np.random.Generator, values: Values, chains: int, capacity: int) -> RecordState:
        everything = {parent: np.asarray(values[parent]) for parent in self.bound.parents}
        with np.errstate(over="ignore", under="ignore"):
            for field, law in self.bound.laws.items():
                drawn = law.draw(rng, everything, chains, records=capacity)
                everything[field] = drawn.astype(law.struct.dtype, copy=False)
        return {field: everything[field] for field in self.fields}

    def _totalled(self, state: RecordState) -> RecordState:
        now = {field: state[field] for field in self.fields}

        def program(now: Values, size: Any) -> Any:
            contributions = self._contributions(now)
            return _sum_present(contributions, size), jnp.all(jnp.isfinite(contributions))

        with double():
            total, finite = self._program("total", program)(now, self._size(state))
            self._refuse_infinite(finite)
            return {**state, self.name: np.asarray(total)}

    def _program(self, purpose: str, function: Any) -> Compiled:
        key = ("records", purpose, self.name, tuple(self.released), self.shared, self.lanes)
        return self.model.compiled.setdefault(key, Compiled(lambda: function, options=PLAINLY))

    def _refuse_infinite(self, finite: Any) -> None:
        if not finite:
            rule = "is not a finite number at a record of the model"
            advice = "Clamp it as the curator did, or check the records' laws."
            cause = f"'contribution' {rule}. {advice}"
            raise InputError(cause, who=self.bound.who, argument="contribution", rule=rule, advice=advice)

    # Traceable ---------------------------------------------------------------------------------------------

    def _contributions(self, records: Values) -> Any:
        """(chains, capacity, ...): what each record adds."""
        arguments = {name: records[name] for name in self.bound.total.arguments}
        contributions = jax.vmap(jax.vmap(lambda own: jnp.asarray(self.bound.total.contribution(**own))))(arguments)
        return contributions.astype(self.bound.struct.dtype)

    def _log_weight(self, total: Any, size: Any, context: Values, released: Any) -> Any:
        """log of the joint density's factors that read the total or the number of records, without the records' own.

        Entry by entry where entries have records of their own.
        """
        values = {**context, self.name: total}
        if self.unknown:
            values[cast(str, self.n)] = size
        log_weight = jnp.zeros(())
        for name, (mechanism, value) in released.items():
            extra = {entry: values[entry] for entry in mechanism.inputs}
            log_prob = mechanism.log_prob(value, values[name], **extra)
            log_weight = log_weight + (log_prob if self.lanes else jnp.sum(log_prob))
        for name in self.factors:
            law = self.model.law(name)
            distribution = law.function(**{parent: values[parent] for parent in law.parents})
            log_weight = log_weight + log_density(distribution, values[name])
        return log_weight

    def _sweep(self, now: Any, new: Any, size: Any, chance: Any, context: Any, released: Any) -> Any:
        """One pass over the records of all chains; the compiled part of `sweep`."""
        old, proposed = self._contributions(now), self._contributions(new)
        present = jnp.arange(old.shape[1]) < size[:, None]
        finite = jnp.all(jnp.isfinite(proposed))
        # Chains go last here: their axis is then the one that vectorises.
        weigh = jax.vmap(self._log_weight, in_axes=(-1, 0, 0, self.shared), out_axes=-1)

        def step(carry: Any, record: Any) -> Any:
            total, weight, least = carry
            change, log_u, there = record
            moved = total + change
            moved_weight = weigh(moved, size, context, released)
            ratio = moved_weight - weight
            accept = there & ((log_u < ratio) | (weight == -jnp.inf))  # from an impossible start, accept anything
            least = jnp.minimum(least, jnp.where(there, ratio, 0.0))
            return (jnp.where(accept, moved, total), jnp.where(accept, moved_weight, weight), least), accept

        total = jnp.moveaxis(_sum_present(old, size), 0, -1)  # anew: rounding errors do not outlive a sweep
        by_record = tuple(jnp.moveaxis(x, 0, -1) for x in (proposed - old, chance[0], present))
        begin = total, weigh(total, size, context, released), jnp.zeros((*self.lanes, len(size)))
        (_, weight, least), accept = jax.lax.scan(step, begin, by_record)
        accept = jnp.moveaxis(accept, -1, 0)
        absent = ~present.reshape(present.shape + (1,) * len(self.lanes))
        taken = accept | absent  # records that do not count are drawn anew, ready to be added
        records = {field: _select(taken, new[field], now[field]) for field in self.fields}
        contributions = _select(taken, proposed, old)
        if self.unknown:
            size = self._resize(contributions, size, chance[1], chance[2], context, released)
        impossible = jnp.sum(jnp.any((weight == -jnp.inf).reshape(-1, len(size)), axis=0))
        return records, _sum_present(contributions, size), size, jnp.sum(accept), jnp.min(least), impossible, finite

    def _resize(self, contributions: Any, size: Any, offset: Any, gumbel: Any, context: Any, released: Any) -> Any:
        """The number of records given the whole row of them, drawn among `window` numbers around the present one."""
        sums = jnp.concatenate([jnp.zeros_like(contributions[:, :1]), jnp.cumsum(contributions, axis=1)], axis=1)
        weigh = jax.vmap(self._log_weight, in_axes=(0, 0, None, None))

        def of_chain(sums: Any, size: Any, offset: Any, gumbel: Any, context: Any, released: Any) -> Any:
            numbers = size - offset + jnp.arange(self.window)
            inside = jnp.maximum(numbers, 0)
            weight = jnp.where(numbers >= 0, weigh(sums[inside], inside, context, released), -jnp.inf)
            chosen = numbers[jnp.argmax(jnp.where(jnp.isnan(weight), -jnp.inf, weight) + gumbel)]
            return jnp.where(jnp.any(weight > -jnp.inf), chosen, size)

        return jax.vmap(of_chain, in_axes=(0, 0, 0, 0, 0, self.shared))(sums, size, offset, gumbel, context, released)


def records_apart(bound: BoundTotal) -> bool:
    """Whether each entry of the total is a sum over record fields that are independent of the other entries' fields.

    Laws and contribution must be computed entry by entry, all of the total's shape; parameters may be shared.
    """
    shape, fields = bound.struct.shape, bound.laws
    if any(law.struct.shape != shape for law in fields.values()) or bound.total.moving:
        return False

    def contribution(record: Values) -> Any:
        return jnp.asarray(bound.total.contribution(**{name: record[name] for name in bound.total.arguments}))

    def density(field: str, record: Values, outer: Values) -> Any:
        law = fields[field]
        own = law.function(**{p: outer[p] for p in law.outer}, **{p: record[p] for p in law.inner})
        while isinstance(own, Independent):
            own = own.base_dist
        return own.log_prob(record[field])

    record = in_rows({field: law.struct for field, law in fields.items()})
    outer = in_rows({name: law.structs[name] for law in fields.values() for name in law.outer})
    with double():
        programs = [jax.make_jaxpr(jax.vmap(contribution))(record).jaxpr]
        programs += [jax.make_jaxpr(jax.vmap(partial(density, field)))(record, outer).jaxpr for field in fields]
    moving = [index < len(record) for index in range(len(record) + len(outer))]
    return all(entrywise(program, (1, *shape), moving[: len(program.invars)]) for program in programs)


# Whether it applies ----------------------------------------------------------------------------------------


def why_not_in_steps(problem: Problem, name: str) -> str | None:
    """Why the records of the total `name` cannot be updated one at a time, as the end of a sentence; or None."""
    model, bound = problem.model, cast(BoundTotal, problem.model.total(name))
    total = bound.total
    if total.moving:
        return f"needs '{name}' to add up record fields alone, and its contribution reads {_listed(total.moving)}"
    if isinstance(total.n, str) and any(total.n in law.outer for law in bound.laws.values()):
        return f"needs laws of the records of '{name}' that do not read their number, '{total.n}'"
    if isinstance(total.n, str) and total.n not in model.parameters and not model.has_density(total.n):
        return f"needs a density of '{total.n}', the number of records of '{name}'"
    owned = {name, total.n}
    for reader in model.statistics:
        node = model.node(reader)
        if reader != name and isinstance(node, (BoundSimulator, BoundTotal)) and owned & set(node.parents):
            kind = "Simulator" if isinstance(node, BoundSimulator) else "Total"
            return f"needs densities where the records of '{name}' are read on, and '{reader}', a {kind}, has none"
    width = sum(max(1, math.prod(law.form.shape)) for law in bound.laws.values())
    if isinstance(total.n, int) and total.n * width > MOST_NUMBERS:
        return f"holds every record, and the {total.n} of '{name}' are more than {MOST_NUMBERS // width}"
    for field, law in bound.laws.items():
        if atoms_move(law):
            return f"needs a density of '{field}' in the records of '{name}', and its law has an atom that moves"
    return _unreachable(problem, name)


def _unreachable(problem: Problem, name: str) -> str | None:
    """Why steps of single records might not lead from any total to any other: noise that has density zero somewhere."""
    for label, item in problem.release.items():
        if name not in (label, *item.mechanism.inputs):
            continue
        gaps = "needs noise that reaches every total, so that single records can lead from any to any other, and "
        for part in _mechanisms(item.mechanism):
            ends = isinstance(part, Additive) and np.any(np.isfinite(part.noise_bound))
            if ends or isinstance(part, (Exact, Projected, Within)):
                return gaps + f"'{label}' has {type(part).__name__}"
        if not np.all(problem.log_eta(label, problem.model.simulate(LOOKED_AT, 0)) > -np.inf):
            return gaps + f"the noise of '{label}' does not"
    return None


def _mechanisms(mechanism: Mechanism) -> Iterator[Mechanism]:
    """A mechanism and all those inside it."""
    yield mechanism
    for field in mechanism.fields:
        value = getattr(mechanism, field)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Mechanism):
                yield from _mechanisms(part)


def _factors(model: Model, owned: tuple[str, ...]) -> Iterator[str]:
    """Names whose densities read an owned value: the number of records, and what depends on it or on the total."""
    for name in model.order:
        if model.has_density(name) and {name, *model.parents(name)} & set(owned):
            yield name


def acceptance_floor(problem: Problem) -> float | None:
    """The least acceptance probability of a record that the privacy guarantee allows; None where it allows any.

    exp(-epsilon) for pure epsilon-DP under replace-one neighbours, exp(-2 epsilon) under add-remove or where the
    relation is not stated, provided that contributions are clamped as the curator did. Least over the totals.
    """
    floors = []
    for name in problem.model.statistics:
        if problem.model.total(name) is None:
            continue
        readers = [label for label, item in problem.release.items() if name in (label, *item.mechanism.inputs)]
        followers = list(_factors(problem.model, (name,)))
        guarantee = Release({name: problem.release[name]}).guarantee if readers == [name] else None
        if followers or guarantee is None or guarantee.kind != "pure":
            return None
        steps = 1.0 if guarantee.neighbours == "replace-one" else 2.0
        floors.append(math.exp(-steps * cast(float, guarantee.epsilon)))
    return min(floors, default=None)


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _power_of_two(least: int) -> int:
    return 1 << max(0, least - 1).bit_length()


def _select(which: Any, chosen: Any, otherwise: Any) -> Any:
    """`jnp.where` with the condition's axes leading."""
    return jnp.where(which.reshape(which.shape + (1,) * (chosen.ndim - which.ndim)), chosen, otherwise)


def _sum_present(contributions: Any, size: Any) -> Any:
    """Sum over the first `size` records of each chain."""
    present = jnp.arange(contributions.shape[1]) < size[:, None]
    return jnp.sum(_select(present, contributions, 0), axis=1)
