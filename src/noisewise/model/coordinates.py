"""Unconstrained coordinates: values of a model as free vectors, with the Jacobian; the prior's density there.

Chains, adapted proposals, gradients and fits move in this space, where no step can leave a law's support.
Whole-numbered values have no such chart; they stay as they are, beside the free vector.

Where the law of a name has a location and a scale that depend on others, its coordinate can be moved between the value
itself and its standardised self (`centring`): docs/derivations/nuts.md says why and by how much.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, biject_to
from numpyro.distributions.transforms import AffineTransform, ComposeTransform

from noisewise.model.atoms import has_atoms, is_fixed
from noisewise.model.families import facts_of
from noisewise.model.law import log_density
from noisewise.model.model import Model
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, Compiled, Values, double
from noisewise.numerics.compiled import AT_ONCE, NO_OPTIONS, looking
from noisewise.numerics.tracing import seen

Centring = Mapping[str, Any]
"""For names of `Chart.located`, per entry: 1 for the value itself, 0 for its standardised self, or between."""
AS_THEY_ARE: Centring = {}

FEW_NUMBERS = 2**18
"""Coordinates up to which a program that finds them is compiled in little time; above, it is made to run fast."""
LOOKED_AT, LEAST_ROWS, CELLS = 2**12, 2**6, 2**18
"""Draws of the prior that are looked at for its edges: at most, at least; between these, as many as have `CELLS`
numbers. `free_from`, too, computes no fewer rows than the least."""
LOST = 1e-4
"""Share of a parameter's prior that coordinates may leave out."""


class Placed(NamedTuple):
    """One name's value at its piece of the free vector."""

    name: str
    law: Distribution
    transform: Any
    piece: Any
    value: Any
    centred: Any = None

    @property
    def log_jacobian(self) -> Any:
        """log |d value / d piece|."""
        return jnp.sum(self.transform.log_abs_det_jacobian(self.piece, self.value))

    @property
    def log_density(self) -> tuple[Any, ...]:
        """The log density of the free piece, as terms to be added.

        Where it is `centred`, the terms are those of the standardised law, at a value computed from the piece itself:
        where the scale is far below the location's last digit, the name's value has lost the digits that this needs.
        """
        if self.centred is None:
            return jnp.sum(self.law.log_prob(self.value)), self.log_jacobian
        loc, scale = location_and_scale(self.law)
        standard, law = (self.piece - self.centred * loc) * scale**-self.centred, _standard(self.law)
        plain = biject_to(law.support)
        value = plain(standard)
        inside = law.log_prob(value) + plain.log_abs_det_jacobian(standard, value)
        return jnp.sum(inside), -jnp.sum(self.centred * jnp.log(scale))


class Chart:
    """Free vectors for some continuous names of a model, at given values of whatever else their laws read; traceable.

    Each name's coordinates are those of its law's support, at the values of its parents. A point (Delta) has none,
    unless `supports` asks for those of its support.
    """

    def __init__(self, model: Model, names: Sequence[str], *, supports: bool = False) -> None:
        self.model, self.supports = model, supports
        self.names = tuple(name for name in model.order if name in names)
        self.shapes = self._free_shapes()
        """Shape of each name's piece of the free vector."""
        self.size = sum(math.prod(shape) for shape in self.shapes.values())
        """Length of the free vector."""

    def _free_shapes(self) -> dict[str, tuple[int, ...]]:
        def shape_of(name: str, law: Distribution) -> tuple[int, ...]:
            return (0,) if self._stays(law) else tuple(biject_to(law.support).inverse_shape(self.model.shape(name)))

        def shapes(values: Values) -> dict[str, tuple[int, ...]]:
            return {name: shape_of(name, self.model.law_at(name, values)) for name in self.names}

        parents = {parent for name in self.names for parent in self.model.parents(name)}
        return seen(shapes, self.model.row(parents))

    def _stays(self, law: Distribution) -> bool:
        return not self.supports and is_fixed(law)

    @property
    def located(self) -> tuple[str, ...]:
        """Names whose law has a location and a scale, and parents that may move them."""
        model = self.model
        return tuple(n for n in self.names if model.parents(n) and facts_of(model.law(n).form.kind).located)

    def transform(self, name: str, values: Values, centring: Centring = AS_THEY_ARE) -> Any:
        """From the name's piece of the free vector to its value, at values of its parents."""
        return _transform(self.model.law_at(name, values), centring.get(name))

    def walk(self, free: Any, values: dict[str, Any], centring: Centring = AS_THEY_ARE) -> Iterator[Placed]:
        """Yields each name in turn, without points.

        Values, those of points too, are put into `values`, which must hold whatever else the laws read.
        """
        start = 0
        for name in self.names:
            law = self.model.law_at(name, values)
            if self._stays(law):
                values[name] = jnp.broadcast_to(law.sample(jax.random.key(0)), self.model.shape(name))
                continue
            centred = centring.get(name)
            transform = _transform(law, centred)
            size = math.prod(self.shapes[name])
            piece = free[start : start + size].reshape(self.shapes[name])
            start += size
            values[name] = transform(piece)
            yield Placed(name, law, transform, piece, values[name], centred)

    def point(self, free: Any, given: Values) -> tuple[dict[str, Any], Any]:
        """`given` values with the chart's names at `free`, and log |d values / d free|."""
        values, total = dict(given), jnp.zeros(())
        for placed in self.walk(free, values):
            total = total + placed.log_jacobian
        return values, total

    def free(self, values: Values, centring: Centring = AS_THEY_ARE) -> Any:
        """The free vector of one value of each name."""
        pieces = [
            jnp.ravel(self.transform(name, values, centring).inv(jnp.asarray(values[name], float)))
            for name in self.names
            if math.prod(self.shapes[name]) > 0
        ]
        return jnp.concatenate(pieces) if pieces else jnp.zeros(0)


def location_and_scale(law: Distribution) -> tuple[Any, Any]:
    """Location and scale of each entry, in its free coordinate, of a law that has them (`Facts.located`)."""
    base = peel(law)[0]
    return jnp.broadcast_to(base.loc, law.shape()), jnp.broadcast_to(base.scale, law.shape())


def _standard(law: Distribution) -> Distribution:
    """The law of the same family (`Facts.located`) with location zero and scale one."""
    base = peel(law)[0]
    others = {name: getattr(base, name) for name in facts_of(type(base).__name__).parameters}
    return type(base)(**{**others, "loc": 0.0, "scale": 1.0})


def _transform(law: Distribution, centred: Any) -> Any:
    """From free coordinates to values: the support's transform, or with location and scale taken out in part."""
    plain = biject_to(law.support)
    if centred is None:
        return plain
    loc, scale = location_and_scale(law)
    power = scale ** (1.0 - centred)
    return ComposeTransform([AffineTransform(loc * (1.0 - centred * power), power), plain])


class Space:
    """Unconstrained coordinates of a model's continuous parameters, hierarchies included, with the prior's density."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.names = tuple(name for name in model.order if name in model.parameters)
        self.discrete = tuple(name for name in self.names if model.is_discrete(name))
        self.continuous = tuple(name for name in self.names if name not in self.discrete)
        self.chart = Chart(model, self.continuous)
        self.shapes, self.size = self.chart.shapes, self.chart.size

    def point(self, free: Any, whole: Values, centring: Centring = AS_THEY_ARE) -> tuple[dict[str, Any], Any]:
        """Parameter values by name at one free vector (and whole-numbered values), and the log density; traceable.

        The density is the prior's, of the free coordinates: log pi0(theta) + log |d theta / d free|, plus the log
        probability of the whole-numbered parameters. -inf where the prior's is, and where a formula gives NaN or inf.
        """
        values: dict[str, Any] = {name: whole[name] for name in self.discrete}
        moved = {placed.name: placed for placed in self.chart.walk(free, values, centring)}
        total = jnp.zeros(())
        for name in self.names:
            if name in self.discrete:
                total = total + log_density(self.model.law_at(name, values), values[name])
            elif name in moved:
                total = sum(moved[name].log_density, total)
        return values, jnp.where(total < jnp.inf, total, -jnp.inf)  # NaN, or a formula beyond its range

    # Rows: NumPy in, NumPy out ---------------------------------------------------------------------------

    def points(self, free: Array, whole: Values | None = None) -> tuple[dict[str, Array], Array]:
        """`point` for each row; the shape of `free` decides what is compiled, so keep it fixed."""
        program = self._program("points", lambda: jax.vmap(self.point))
        discrete = {name: np.asarray((whole or {})[name]) for name in self.discrete}
        with double():
            values, density = program(np.asarray(free, dtype=np.float64), discrete)
            return {name: np.asarray(value) for name, value in values.items()}, np.asarray(density)

    def free_from(self, values: Values) -> Array:
        """The free vector of each row of parameter values: (rows, size)."""
        count = len(values[self.names[0]]) if self.names else 0
        purpose = "free" if count * self.size <= FEW_NUMBERS else "free, many rows"
        program = self._program(purpose, lambda: jax.vmap(self.chart.free))
        more = max(LEAST_ROWS, 1 << max(count - 1, 0).bit_length()) - count  # few programs for all numbers of rows
        rows = {name: np.asarray(values[name]) for name in self.names}
        if count and more:
            rows = {name: np.concatenate([own, np.repeat(own[-1:], more, axis=0)]) for name, own in rows.items()}
        with double():
            return np.asarray(program(rows))[:count]

    def _program(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        options = AT_ONCE if purpose == "free" else NO_OPTIONS  # "free" is compiled for several numbers of rows
        small = purpose != "points"
        return self.model.compiled.setdefault(("space", purpose), Compiled(build, small=small, options=options))


# What coordinates do not reach ------------------------------------------------------------------------------


def unwalkable(model: Model, statistics: Sequence[str] = ()) -> str | None:
    """Why walking in free coordinates would miss part of a law, as the end of a sentence; None where it does not.

    This concerns the prior, and the continuous `statistics` moved as well. Beta(0.01, 0.01) has a third of its mass
    within rounding of 1, where every coordinate is infinite: chains would never go there.
    """
    names = [n for n in model.order if n in statistics or (n in model.parameters and not model.is_discrete(n))]
    against = _without_density(model, names)
    if against is not None:
        return against
    shares = _lost(model, names)
    for name in names:
        if shares[name] > LOST:
            kind = "prior" if name in model.parameters else "law"
            return (
                f"moves in unconstrained coordinates, and {100 * shares[name]:.2g}% of the {kind} of '{name}' lies at "
                "the edge of floating point, where there are none"
            )
    return None


def _lost(model: Model, names: Sequence[str]) -> Mapping[str, float]:
    """By law, the share of draws that coordinates leave out, found out once.

    All continuous laws are looked at by one program, unless there would be fewer draws of those that are asked for.
    """
    known: dict[str, float] = model.compiled.setdefault(("space", "lost"), {})
    missing = [name for name in names if name not in known]
    if missing:
        every = [n for n in model.order if not model.is_discrete(n) and (n in model.parameters or model.has_density(n))]
        alike = _looked_at(model, every) == _looked_at(model, missing) and _without_density(model, every) is None
        looked = every if alike else missing
        program = Compiled(lambda: jax.vmap(lambda values: _edges(model, looked, values)))
        with looking(), double():
            drawn = model.sketched(_with_ancestors(model, looked), _looked_at(model, looked))
            lost = program(drawn)
        known |= {name: float(np.mean(np.asarray(lost.get(name, 0.0)))) for name in looked}
    return known


def _looked_at(model: Model, names: Sequence[str]) -> int:
    """How many draws of these laws are looked at."""
    width = sum(model.cost_of_row(name) for name in _with_ancestors(model, names))
    return max(LEAST_ROWS, min(LOOKED_AT, CELLS // max(1, width)))


def _with_ancestors(model: Model, names: Sequence[str]) -> list[str]:
    return [name for name in model.order if name in {*names, *model.ancestors(*names)}]


def _without_density(model: Model, names: Sequence[str]) -> str | None:
    """The reason, where one of the laws has atoms or no unconstrained coordinates; else None."""

    def look(values: Values) -> str | None:
        for name in names:
            law = model.law_at(name, values)
            kind = "prior" if name in model.parameters else "law"
            if has_atoms(law) and not is_fixed(law):
                return f"compares densities, and the {kind} of '{name}' has atoms, so it has none"
            try:
                biject_to(law.support)
            except NotImplementedError as error:
                return f"moves in unconstrained coordinates, which a {kind}'s support does not have ({error})"
        return None

    against: str | None = seen(look, model.row(_with_ancestors(model, names)))
    return against


def _edges(model: Model, names: Sequence[str], values: Values) -> dict[str, Any]:
    """By law, without points: the share of entries with infinite coordinates or, if larger, of entries that are lost.

    An entry is lost where its coordinates do not lead back to it within a factor of two.
    """
    lost = {}
    for name in names:
        law = model.law_at(name, values)
        if not is_fixed(law):
            transform, value = biject_to(law.support), jnp.asarray(values[name], float)
            free = transform.inv(value)
            before, after = jnp.abs(value), jnp.abs(transform(free))
            back = (after <= 2.0 * before) & (before <= 2.0 * after)  # NaN: no
            lost[name] = jnp.maximum(jnp.mean(~jnp.isfinite(free)), jnp.mean(~back))
    return lost
