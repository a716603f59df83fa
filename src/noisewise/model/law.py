"""Laws: distribution-valued functions of named values, compiled once and drawn row by row.

A NumPyro distribution never crosses a `vmap` boundary as an object: there its batch shape is lost and
`.sample` would give every lane the same noise. Inside the `vmap` it is *lowered*: wrappers are taken off,
and its attributes leave as plain arrays. Tracing it once tells its sampler, its transforms and its shapes, which
stay fixed.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import Distribution
from numpyro.distributions.distribution import ExpandedDistribution, Independent, TransformedDistribution

from noisewise.errors import InputError, NoisewiseWarning, in_a_line
from noisewise.model.masses import entries
from noisewise.model.supports import possible
from noisewise.model.variates import BadParameter, BeyondRange, Variate, variate_for
from noisewise.model.wrappers import kind_of, laws_within, peel, unchecked
from noisewise.numerics import Array, Compiled, Values, blocks_of, double
from noisewise.numerics.tracing import depending, in_rows

KEYS = "threefry2x32"
LOOKED_AT, HALVINGS = 16, 64
"""Rows of a block whose law is followed to where its numbers leave the range, and halvings of the way there."""
EXTREME = 1e60
"""A number beyond this, or one below its reciprocal, is on its way out of the range: 1e-308 to its fifth root."""
SHOWN = 4
"""Entries of a parent that a message shows, and the digits of each."""
_REFUSED = {
    "ImproperUniform": "is improper: rejection needs a proper prior",
    "MaskedDistribution": "is masked: its draws and its density disagree",
    "Unit": "has no values to draw",
    **{
        f"{kind}CensoredDistribution": "is censored: it draws what the law beneath draws and weighs it as censored"
        for kind in ("Left", "Right", "Interval")
    },
}


@dataclass(frozen=True)
class Form:
    """What tracing tells of a law: everything about it that does not depend on values."""

    variate: Variate | None
    """The innermost law's sampler; None where JAX draws the law, with one key per row."""
    base_shape: tuple[int, ...]
    """Shape of one draw of the innermost law."""
    shape: tuple[int, ...]
    transformed: bool
    discrete: bool
    kind: str
    """The class name, as `kind_of` gives it."""
    passed: Mapping[str, str] = field(default_factory=dict)
    """Attributes that are a parent's value unchanged, each with that parent's name."""
    fixed: frozenset[str] = frozenset()
    """Attributes that no parent enters."""

    @property
    def in_parts(self) -> bool:
        """Whether draws made part by part, one after the other, are those made at once."""
        return self.variate is not None and self.variate.in_parts

    @property
    def settled(self) -> set[str]:
        """Attributes that no program need compute."""
        return {*self.passed, *self.fixed}

    @property
    def batch(self) -> tuple[int, ...]:
        """Shape of the independent draws within one row of the innermost law."""
        assert self.variate is not None
        return self.base_shape[: len(self.base_shape) - self.variate.event_dim]


def form_of(law: Distribution) -> Form:
    """The static description of `law`."""
    base, base_shape, transforms = peel(law)
    variate = variate_for(base)
    if isinstance(base, dist.Delta):
        discrete = jnp.asarray(base.v).dtype.kind == "i"
    else:
        discrete = bool(getattr(law.support, "is_discrete", False))
    transformed = variate is not None and bool(transforms)
    return Form(variate, base_shape, law.shape(), transformed, discrete, kind_of(law))


def law_attributes(law: Distribution) -> dict[str, Any]:
    """The innermost law's attributes, each padded on the left to the rank of its batch."""
    base, shape, _ = peel(law)
    variate = variate_for(base)
    if variate is None:
        return {}
    rank = len(shape) - variate.event_dim
    attributes = {}
    for name in variate.rules:
        value = jnp.asarray(getattr(base, name) if hasattr(base, name) else getattr(base.base_dist, name))
        missing = rank + variate.axes.get(name, 0) - value.ndim
        attributes[name] = value.reshape((1,) * missing + value.shape)
    return attributes


def refused_kind(law: Distribution) -> str | None:
    """Why this kind of law cannot be drawn from, or None."""
    return next((_REFUSED[type(part).__name__] for part in laws_within(law) if type(part).__name__ in _REFUSED), None)


def well_formed(law: Distribution) -> Any:
    """Whether every parameter, of laws inside too, obeys its constraint; for laws that JAX itself draws."""
    obeyed = jnp.asarray(True)
    for part in laws_within(law):
        for name, constraint in part.arg_constraints.items():
            if name not in vars(part):
                continue
            try:
                obeyed &= jnp.all(constraint(vars(part)[name]))
            except (ValueError, NotImplementedError, TypeError):
                continue  # a constraint that depends on other parameters cannot be checked by itself
    return obeyed


def in_64_bit(law: Distribution, used: list[Any]) -> Distribution:
    """`law`, made outside a 64-bit context, rebuilt inside one from the fields it was made with.

    Those fields are appended to `used`, so that the caller can see whether they were rounded already.
    """

    def widened(leaf: Any) -> Any:
        used.append(leaf)
        if isinstance(leaf, jax.Array) and leaf.dtype == np.float32:
            return np.asarray(leaf, dtype=np.float64)
        return leaf

    if isinstance(law, Independent):
        return Independent(in_64_bit(law.base_dist, used), law.reinterpreted_batch_ndims)
    if isinstance(law, ExpandedDistribution):
        return ExpandedDistribution(in_64_bit(law.base_dist, used), law.batch_shape)
    if type(law) is TransformedDistribution:
        return TransformedDistribution(in_64_bit(law.base_dist, used), jax.tree.map(widened, law.transforms))
    stored = vars(law)
    names = [name for name in law.arg_constraints if name in stored]
    if "covariance_matrix" in names or "precision_matrix" in names:
        names.remove("scale_tril")  # derived from the others, in 32 bits
    try:
        if variate_for(law) is None:  # its constructor may take more than its parameters
            raise TypeError
        fields = {name: stored[name] for name in names}
        if "base_dist" in stored and "base_dist" in inspect.signature(type(law)).parameters:
            fields["base_dist"] = in_64_bit(stored["base_dist"], used)
        return type(law)(**{name: widened(value) for name, value in fields.items()})
    except Exception:
        # A class whose constructor does not take its own fields: widen what it stores instead.
        return jax.tree.map(widened, law)


def rounded_to_32_bit(leaves: Any) -> bool:
    """Whether any leaf is a float32 array holding values that 32 bits have rounded (0.1, but not 0.5)."""
    for leaf in jax.tree.leaves(leaves):
        if isinstance(leaf, (jax.Array, np.ndarray)) and leaf.dtype == np.float32:
            narrow = np.asarray(leaf).ravel()
            meant = np.array([float(str(value)) for value in narrow])
            if np.any((meant != narrow.astype(np.float64)) & np.isfinite(narrow)):
                return True
    return False


def log_density(law: Distribution, value: Any) -> Any:
    """log density of one value: -inf outside the support, which the law's own parameters may decide.

    Whole-numbered laws are extended to the numbers between: a Poisson law at 37.4 is evaluated by its formula, as a
    naive analysis would, and so is a multinomial law at noisy counts that do not add up to its total.
    """
    unchecked(law)  # NumPyro's validation would call the numbers between impossible
    inside = possible(law, value)
    try:
        log_prob = entries(law, value)
    except TypeError:  # a formula that looks up whole numbers has no extension
        inside &= jnp.all(value == jnp.floor(value))
        log_prob = entries(law, jnp.floor(value).astype(int))
    return jnp.where(inside, jnp.sum(log_prob), -jnp.inf)


class Law:
    """One named law: a function of values by name, returning a NumPyro distribution.

    `draw` and `log_prob` work on rows; with `records` given, on rows of records, where values named in
    `inner` vary by record and the others by row.
    """

    def __init__(
        self,
        who: str,
        function: Callable[..., Distribution],
        parents: tuple[str, ...],
        structs: Mapping[str, jax.ShapeDtypeStruct],
        inner: frozenset[str] = frozenset(),
    ) -> None:
        self.who, self.function, self.parents = who, function, parents
        self.inner = tuple(name for name in parents if name in inner)
        self.outer = tuple(name for name in parents if name not in inner)
        self.structs = {name: structs[name] for name in parents}
        self.form = self._trace(self.structs)

    def _trace(self, arguments: dict[str, jax.ShapeDtypeStruct]) -> Form:
        forms: list[Form] = []

        def probe(values: Values) -> dict[str, Any]:
            law = self.at(values)
            forms.append(form_of(law))
            return law_attributes(law)

        with double():
            if not arguments:
                probe({})
                return forms[-1]
            # Traced under vmap, as it will run: JAX 0.10 traces NumPy constants outside one in a way that makes
            # 32-bit computations with the same array fail later.
            rows = in_rows(arguments)
            traced, attributes = jax.make_jaxpr(jax.vmap(probe), return_shape=True)(rows)
        if rounded_to_32_bit(traced.consts):
            warn_about_32_bit(self.who)
        inputs = dict(zip(map(id, traced.jaxpr.invars), sorted(rows), strict=True))
        moving, outputs = depending(traced.jaxpr), list(zip(sorted(attributes), traced.jaxpr.outvars, strict=True))
        passed = {name: inputs[id(out)] for name, out in outputs if id(out) in inputs}
        fixed = frozenset(name for name, out in outputs if id(out) not in moving)
        return replace(forms[-1], passed=passed, fixed=fixed)

    def trial(self, rng: np.random.Generator, values: Values) -> Any:
        """One draw at one value of each parent, uncompiled: a law that cannot be drawn from shows now."""
        with double(), numpyro.validation_enabled(False):  # rounding errors of probabilities are clipped, not refused
            law = self.at(jax.device_put({name: values[name] for name in self.parents}))  # `asarray` would compile
            attributes = {name: np.asarray(value) for name, value in law_attributes(law).items()}
            if self.form.variate is None:
                key = jax.random.key(int(rng.integers(2**31)), impl=KEYS)
                if not well_formed(law):
                    raise self._bad_parameter(ValueError("a parameter of it is out of its domain"), values, row=None)
                return np.asarray(law.sample(key))
            try:
                drawn: Any = self.form.variate(rng, self.form.batch, attributes)
            except ValueError as error:
                varies = bool(self.parents) and getattr(error, "name", "") not in self.form.fixed
                far = isinstance(error, BeyondRange) and varies
                raise self._bad_parameter(error, values, row=None, far=far) from error
            for transform in peel(law)[2]:
                drawn = transform(drawn)
            return np.asarray(drawn)

    def at(self, values: Values) -> Distribution:
        """The law at one value of each parent; anything but a proper distribution is refused."""
        try:
            law = self.function(**values)
        except Exception as error:
            rule = f"the function of ({', '.join(self.parents)}) must run on one value of each argument in jax.numpy"
            advice = "Use jnp functions, and jnp.where in place of if."
            raise InputError(f"{rule}; it raised {in_a_line(error)} {advice}", who=self.who, advice=advice) from error
        if not isinstance(law, Distribution):
            rule = "the function must return a NumPyro distribution"
            advice = "Return, for example, dist.Poisson(theta)."
            numbers = f"an array of shape {np.shape(law)}" if np.shape(law) else "a number"
            value = numbers if isinstance(law, (jax.Array, np.ndarray)) else type(law).__name__
            raise InputError(f"{rule}; got {value}. {advice}", who=self.who, value=value, advice=advice)
        reason = refused_kind(law)
        if reason is not None:
            advice = "Give a proper distribution."
            raise InputError(f"{type(law).__name__} {reason}. {advice}", who=self.who, advice=advice)
        return law

    @cached_property
    def struct(self) -> jax.ShapeDtypeStruct:
        """Shape and type of one draw, for tracing what depends on it."""
        return jax.ShapeDtypeStruct(self.form.shape, np.int64 if self.form.discrete else np.float64)

    @property
    def row(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape and type of one row of every parent, for tracing."""
        return in_rows(self.structs)

    # Compiled pieces; each is built on first use and kept -------------------------------------------

    def _mapped(self, body: Callable[[Values, Any], Any], records: bool) -> Compiled:
        def at_row(outer: Values, inner: Values, extra: Any) -> Any:
            return body({**outer, **inner}, extra)

        return Compiled(lambda: jax.vmap(jax.vmap(at_row, in_axes=(None, 0, 0)) if records else at_row), small=True)

    def _attribute_program(self, chosen: Callable[[str], bool], records: bool) -> Compiled:
        def body(values: Values, _: Any) -> dict[str, Any]:
            return {name: value for name, value in law_attributes(self.function(**values)).items() if chosen(name)}

        return self._mapped(body, records)

    @cached_property
    def _attributes(self) -> Compiled:
        return self._attribute_program(lambda name: name not in self.form.settled, bool(self.inner))

    @cached_property
    def constant(self) -> dict[str, Array]:
        """The attributes that no parent enters, computed at a row of ones: the values change nothing."""
        if not self.parents:
            with double():
                return {name: np.asarray(value) for name, value in law_attributes(self.function()).items()}
        if not self.form.fixed:
            return {}
        row = {name: np.ones((1, *struct.shape), struct.dtype) for name, struct in self.structs.items()}
        attributes = self._run(self._attribute_program(lambda name: name in self.form.fixed, False), row, {}, None)
        return {name: value[0] for name, value in attributes.items()}

    @cached_property
    def _known(self) -> dict[str, Array]:
        """The attributes in `constant`, checked once, not with every block."""
        assert self.form.variate is not None
        return self.form.variate.checked(self.constant)

    def push(self, values: Values, base: Any) -> Any:
        """A draw of the law beneath, through the transforms at one value of each parent; traceable."""
        for transform in peel(self.function(**values))[2]:
            base = transform(base)
        return base

    @cached_property
    def _transform(self) -> tuple[Compiled, Compiled]:
        return self._mapped(self.push, False), self._mapped(self.push, True)

    @cached_property
    def _fallback(self) -> tuple[Compiled, Compiled]:
        def sample(values: Values, key: Any) -> tuple[Any, Any]:
            law = self.function(**values)
            return law.sample(jax.random.wrap_key_data(key, impl=KEYS)), well_formed(law)

        return self._mapped(sample, False), self._mapped(sample, True)

    @cached_property
    def _density(self) -> Compiled:
        return self._mapped(lambda values, value: log_density(self.function(**values), value), False)

    # Use --------------------------------------------------------------------------------------------

    def draw(self, rng: np.random.Generator, values: Values, rows: int, records: int | None = None) -> Array:
        """Independent draws, one per row (and record); `rng` may be the generators of several blocks, side by side."""
        blocks = blocks_of(rng)
        outer = {name: values[name] for name in self.outer}
        inner = {name: values[name] for name in self.inner}
        lead = (rows,) if records is None else (rows, records)
        if self.form.variate is None:
            keys = rng.integers(0, 2**32, size=(*lead, 2), dtype=np.uint32)
            drawn, good = self._run(self._fallback[records is not None], outer, inner, keys, blocks=blocks)
            if not np.all(good):
                raise self._bad_parameter(BadParameter("a parameter of it is out of its domain", ~good), values)
            return drawn
        return self.drawn(rng, self.checked(values, records, blocks), values, lead)

    def checked(self, values: Values, records: int | None = None, blocks: int = 1) -> dict[str, Array]:
        """The attributes of the law beneath, as its sampler takes them; refused where one is out of its domain."""
        assert self.form.variate is not None
        outer = {name: values[name] for name in self.outer}
        inner = {name: values[name] for name in self.inner}
        attributes = self._attributes_of(outer, inner, records, blocks)
        try:
            return {**self._known, **self.form.variate.checked(attributes)}
        except ValueError as error:
            far = isinstance(error, BeyondRange) and records is None and self._by_degrees(error, values)
            raise self._bad_parameter(error, values, far=far) from error

    def drawn(
        self,
        rng: np.random.Generator,
        checked: Values,
        values: Values,
        lead: tuple[int, ...],
        out: Array | None = None,
    ) -> Array:
        """Draws from attributes that are `checked`, with leading axes `lead`: rows, or rows and records.

        They may lie in `out`, if that is given and the law beneath can be drawn in place.
        """
        assert self.form.variate is not None
        filled = {"out": out} if self.form.variate.fills and out is not None else {}
        try:
            base = self.form.variate.draw(rng, (*lead, *self.form.batch), **checked, **filled)
        except ValueError as error:
            raise self._bad_parameter(error, values, far=isinstance(error, BeyondRange) and len(lead) == 1) from error
        if self.form.transformed:
            outer, inner = ({name: values[name] for name in names} for names in (self.outer, self.inner))
            base = self._run(self._transform[len(lead) > 1], outer, inner, base, blocks=blocks_of(rng))
        return base

    def _attributes_of(self, outer: Values, inner: Values, records: int | None, blocks: int = 1) -> dict[str, Array]:
        """The varying attributes: first an axis of rows; with `records`, then one of records, or of length 1."""
        assert self.form.variate is not None
        varying: dict[str, Array] = {
            name: np.asarray(inner[of]) for name, of in self.form.passed.items() if of in inner
        }
        by_row = {name: np.asarray(outer[of]) for name, of in self.form.passed.items() if of in outer}
        if not self.form.settled.issuperset(self.form.variate.rules) and self.parents:
            (varying if self.inner else by_row).update(self._run(self._attributes, outer, inner, None, blocks=blocks))
        if records is not None:
            by_row = {name: value[:, None] for name, value in by_row.items()}
        return {**varying, **by_row}

    @staticmethod
    def _run(function: Compiled, *arguments: Any, blocks: int = 1) -> Any:
        plain = function.plain(*arguments)
        if plain is not None:
            return plain(*arguments)
        with double():
            found = function(*arguments) if blocks == 1 else function.by_blocks(blocks, *arguments)
            return jax.tree.map(np.asarray, found)

    def log_prob(self, value: Any, values: Values) -> Array:
        """log density of `value` (one, or one per row) for each row of the parents' values."""
        outer = {name: values[name] for name in self.parents}
        given = np.asarray(value, dtype=float)
        one_each = given.ndim > len(self.form.shape)
        rows = len(next(iter(outer.values()))) if outer else (len(given) if one_each else 1)
        shaped = np.broadcast_to(given, (rows, *self.form.shape))
        return self._run(self._density, outer, {}, shaped)

    def _by_degrees(self, error: BeyondRange, values: Values) -> bool:
        """Whether the law's numbers become infinite or zero by way of very large or small ones, not at a jump.

        So does exp(a), where a is large, and not a / (b > 0), where b is negative. Seen on the way from parents at
        which all is well to some at which it is not. On this way a parent that is to be infinite, or zero, goes through
        all magnitudes, and one of whole numbers has its last value from the beginning.
        """
        if not self.parents or error.name in self.form.fixed:
            return False
        if error.finite:
            return True
        if len(error.where) < 2:
            return False
        wrong = error.where.reshape(len(error.where), -1).any(axis=1)
        ends = {name: np.asarray(values[name]) for name in self.parents}
        with np.errstate(all="ignore"):
            middle = {name: np.median(column, axis=0) for name, column in ends.items()}
            good = {name: middle[name] if wrong.all() else column[np.argmin(wrong)] for name, column in ends.items()}
            chosen = np.resize(np.flatnonzero(wrong), LOOKED_AT)  # always as many: one program
            ends = {name: column[chosen] for name, column in ends.items()}
            low, high = np.zeros(LOOKED_AT), np.ones(LOOKED_AT)
            finite, _ = self._in_range(good, ends, high)  # too large all the same
            for _ in range(HALVINGS):
                half = 0.5 * (low + high)
                inside, _ = self._in_range(good, ends, half)
                low, high = np.where(inside, half, low), np.where(inside, high, half)
            inside, extreme = self._in_range(good, ends, low)
        return bool(np.all(inside & (extreme | finite)))

    def _in_range(self, good: Values, ends: Values, way: Array) -> tuple[Array, Array]:
        """At a share of the way from `good` to each of `ends`: are all numbers in range, and is one of them extreme?"""
        assert self.form.variate is not None
        there = {name: _between(good[name], end, way) for name, end in ends.items()}
        outer, inner = ({name: there[name] for name in names} for names in (self.outer, self.inner))
        inside, extreme = np.ones(len(way), bool), np.zeros(len(way), bool)
        for name, value in self._attributes_of(outer, inner, None).items():
            sizes = np.broadcast_to(np.abs(value.reshape(len(value), -1)), (len(way), value[0].size))
            needed = self.form.variate.rules[name] in ("positive", "chance")
            inside &= np.all(np.isfinite(sizes) & ((sizes > 0) | (not needed)), axis=1)
            extreme |= np.any((sizes > EXTREME) | ((sizes > 0) & (sizes < 1.0 / EXTREME)), axis=1)
        return inside, extreme

    def _bad_parameter(self, error: ValueError, values: Values, row: int | None = 0, far: bool = False) -> InputError:
        lead = getattr(error, "where", None)
        share = ""
        if row is not None and lead is not None and lead.ndim and self.parents:
            wrong = lead.reshape(len(lead), -1).any(axis=1)
            row = int(np.argmax(wrong)) if len(lead) > 1 else 0
            share = f" ({int(wrong.sum())} of {len(wrong)} draws fail)" if len(wrong) > 1 else ""
        shown = {name: np.asarray(values[name]) for name in self.parents}
        at = ", ".join(f"{name}={_in_short(value if row is None else value[row])}" for name, value in shown.items())
        advice = "Check the function, or the prior that lets such values arise."
        cause = f"the law cannot be drawn from{' at ' + at if at else ''}: {error}{share}. {advice}"
        refused = InputError(cause, who=self.who, advice=advice)
        refused.beyond_range = far
        return refused


def _between(start: Array, end: Array, way: Array) -> Array:
    """Values on the way from one start to several ends; through all magnitudes where an end is zero or infinite."""
    if end.dtype.kind != "f":
        return end
    way = way.reshape((-1,) + (1,) * (end.ndim - 1))
    start = np.broadcast_to(np.asarray(start, float), end.shape)
    sign = np.where(end == 0, np.sign(start), np.sign(end))
    near = np.where(np.sign(start) == sign, np.abs(start), 1.0)
    first, last = (np.ascontiguousarray(size).view(np.int64).astype(float) for size in (near, np.abs(end)))
    by_size = sign * np.asarray(first + way * (last - first)).astype(np.int64).view(np.float64)
    return np.where((end == 0) | np.isinf(end), by_size, start + way * (end - start))


def _in_short(value: Array) -> str:
    """A value for a message: few entries, few digits."""
    few = value.ravel()[:SHOWN]
    digits = [float(f"{one:.6g}") for one in few] if value.dtype.kind == "f" else few.tolist()
    if value.size > SHOWN:
        return f"[{', '.join(map(str, digits))}, ...] ({value.size} entries)"
    return str(np.reshape(digits, value.shape).tolist())


def constant_law(law: Distribution, who: str) -> Callable[[], Distribution]:
    """A function without arguments that gives `law` in 64 bits."""
    used: list[Any] = []
    with double():
        wide = in_64_bit(law, used)
    if rounded_to_32_bit(used):
        warn_about_32_bit(who)
    return lambda: wide


def warn_about_32_bit(who: str) -> None:
    """Warn that the numbers of `who` were rounded before they reached us."""
    cause = (
        "holds 32-bit JAX arrays whose values were rounded (0.1 became 0.10000000149). "
        "Make it inside a function, lambda: dist.Normal(...), which runs in 64 bits, or from Python numbers."
    )
    warnings.warn(NoisewiseWarning(cause, who), stacklevel=2)
