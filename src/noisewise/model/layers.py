"""Layers of a hierarchy that can be integrated out in closed form, and drawn once everything else is.

A layer is a parameter whose prior depends on other parameters, and each entry of which is read by one entry of one
statistic and by nothing else: rates of counties, say, one behind every count. Where the two laws are a conjugate pair,
the statistic's law with the layer integrated out is known, and so is the layer's law given the statistic. Derivation:
docs/derivations/layers.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import BetaBinomial, DirichletMultinomial, Distribution, GammaPoisson, Normal

from noisewise.model.entering import entering
from noisewise.model.law import Law, law_attributes
from noisewise.model.variates import VARIATES
from noisewise.numerics import Array, Compiled, Values, double
from noisewise.numerics.numpy_programs import fixed_outputs

Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Pair:
    """A law of the layer, and one of the statistic that reads it through slope * layer + rest."""

    reads: str
    """The attribute of the statistic's law that is slope * layer + rest."""
    straight: frozenset[str]
    """Operations allowed between layer and attribute."""
    at: Callable[[tuple[int, ...]], float]
    """(the layer's shape) -> a value of its entries at which the statistic has a law, whatever the slope."""
    predictive: Callable[[Attributes, Attributes, Any, Any], Distribution]
    """(the layer's law, the statistic's, slope, rest) -> the statistic's law without the layer."""
    given: Callable[[Attributes, Attributes, Any, Any, Any], tuple[Any, ...]]
    """(the same four, the statistic) -> parameters of the layer's law given the statistic."""
    draw: Callable[..., Array]
    """(random generator, those parameters) -> a draw of the layer."""
    alone: bool = False
    """Whether it is of use only where no parameter is left: other samplers are better off with the layer."""


def _gamma(layer: Attributes) -> tuple[Any, Any]:
    """Shape and rate; an exponential law has shape 1."""
    return layer.get("concentration", 1.0), layer["rate"]


def _gamma_given(layer: Attributes, _: Attributes, slope: Any, rest: Any, statistic: Any) -> tuple[Any, ...]:
    shape, rate = _gamma(layer)
    return shape + statistic, rate + slope


COUNTS = Pair(
    "rate",
    frozenset({"mul", "div"}),
    at=lambda _: 1.0,
    predictive=lambda layer, _, slope, rest: GammaPoisson(_gamma(layer)[0], _gamma(layer)[1] / slope),
    given=_gamma_given,
    draw=lambda rng, shape, rate: rng.standard_gamma(shape) / rate,
)


def _beta_given(layer: Attributes, law: Attributes, slope: Any, rest: Any, statistic: Any) -> tuple[Any, ...]:
    failures = law["total_count"] - statistic
    return layer["concentration1"] + statistic, layer["concentration0"] + failures


SHARES = Pair(
    "probs",
    frozenset(),
    at=lambda _: 0.5,
    predictive=lambda layer, law, slope, rest: BetaBinomial(
        layer["concentration1"], layer["concentration0"], law["total_count"]
    ),
    given=_beta_given,
    draw=lambda rng, first, second: rng.beta(first, second),
)


def _normal_predictive(layer: Attributes, law: Attributes, slope: Any, rest: Any) -> Distribution:
    return Normal(slope * layer["loc"] + rest, jnp.hypot(slope * layer["scale"], law["scale"]))


def _normal_given(layer: Attributes, law: Attributes, slope: Any, rest: Any, statistic: Any) -> tuple[Any, ...]:
    """Mean and standard deviation, by the ratio of the layer's part in the statistic's spread to the rest of it."""
    ratio = slope * layer["scale"] / law["scale"]
    whole = 1.0 + ratio**2
    surprise = (statistic - rest - slope * layer["loc"]) / law["scale"]
    return layer["loc"] + layer["scale"] * ratio * surprise / whole, layer["scale"] / jnp.sqrt(whole)


AFFINE = frozenset({"mul", "div", "add", "sub", "neg", "add_any"})
MEANS = Pair(
    "loc",
    AFFINE,
    at=lambda _: 0.0,
    predictive=_normal_predictive,
    given=_normal_given,
    draw=lambda rng, mean, sd: mean + sd * rng.standard_normal(mean.shape),
)

CELLS = Pair(
    "probs",
    frozenset(),
    at=lambda shape: 1.0 / shape[-1],
    predictive=lambda layer, law, slope, rest: DirichletMultinomial(layer["concentration"], law["total_count"]),
    given=lambda layer, law, slope, rest, statistic: (layer["concentration"] + statistic,),
    draw=lambda rng, concentration: VARIATES["Dirichlet"].draw(rng, concentration.shape[:-1], concentration),
    alone=True,
)


PAIRS = {
    ("Gamma", "Poisson"): COUNTS,
    ("Exponential", "Poisson"): COUNTS,
    ("Beta", "BinomialProbs"): SHARES,
    ("Normal", "Normal"): MEANS,
    ("Dirichlet", "MultinomialProbs"): CELLS,
}
"""By the classes of the layer's law and of the statistic's."""


class Integrated(Law):
    """The law of a statistic with its layer integrated out. A draw is made by way of a draw of the layer."""

    def __init__(self, layer: "Layer", who: Any, structs: Mapping[str, Any]) -> None:
        super().__init__(who, layer.predictive, layer.parents, structs)
        self.layer = layer

    def draw(self, rng: np.random.Generator, values: Values, rows: int, records: int | None = None) -> Array:
        """Independent draws, one per row."""
        drawn = self.layer.law.draw(rng, values, rows)
        return self.layer.reader.draw(rng, {**values, self.layer.name: drawn}, rows)


@dataclass(frozen=True)
class Layer:
    """One parameter that can be integrated out of one statistic."""

    name: str
    statistic: str
    law: Law
    """The layer's own."""
    reader: Law
    """The statistic's."""

    @property
    def pair(self) -> Pair:
        """The conjugate pair that the two laws are."""
        return PAIRS[self.law.form.kind, self.reader.form.kind]

    @property
    def parents(self) -> tuple[str, ...]:
        """What the statistic depends on once the layer is integrated out."""
        rest = [parent for parent in self.reader.parents if parent != self.name]
        return (*rest, *(parent for parent in self.law.parents if parent not in rest))

    def predictive(self, **values: Any) -> Distribution:
        """The statistic's law, given all but the layer; traceable."""
        law = self.pair.predictive(*self._parts(values))
        return law.expand(self.reader.form.shape) if law.shape() != self.reader.form.shape else law

    def _parts(self, values: Values) -> tuple[Attributes, Attributes, Any, Any]:
        """The first four arguments of a pair's functions; one number in place of many where all units are alike."""
        layer, law, slope, rest = self._whole_parts(values)
        if self.alike:
            law, slope, rest = jax.tree.map(_first, (law, slope, rest))
        return layer, law, slope, rest

    def _whole_parts(self, values: Values) -> tuple[Attributes, Attributes, Any, Any]:
        layer = law_attributes(self.law.function(**{parent: values[parent] for parent in self.law.parents}))
        others = {parent: values[parent] for parent in self.reader.parents if parent != self.name}

        def read(value: Any) -> tuple[Any, Attributes]:
            attributes = law_attributes(self.reader.function(**{**others, self.name: value}))
            return attributes[self.pair.reads], attributes

        at = jnp.full(self.law.form.shape, self.pair.at(self.law.form.shape))
        entered, slope, attributes = jax.jvp(read, (at,), (jnp.ones_like(at),), has_aux=True)
        attributes = {name: value for name, value in attributes.items() if name != self.pair.reads}
        return layer, attributes, slope, entered - slope * at

    @cached_property
    def alike(self) -> bool:
        """Whether all units have the same law, whatever the parameters."""
        sizes: list[int] = []

        def look(row: Values) -> Any:
            layer, law, slope, rest = self._whole_parts(row)
            sizes.extend(np.size(part) for part in jax.tree.leaves(layer))
            return law, slope, rest

        rows = {**self.law.row, **{name: one for name, one in self.reader.row.items() if name != self.name}}
        with double():
            numbers = fixed_outputs(jax.vmap(look, axis_size=1), rows)
        return all(size == 1 for size in sizes) and all(one is not None and np.ptp(one) == 0.0 for one in numbers)

    def given(self, values: Values) -> tuple[Any, ...]:
        """The parameters of the layer's law given one value of everything else; traceable."""
        numbers = self.pair.given(*self._parts(values), values[self.statistic])
        return tuple(jnp.broadcast_to(number, self.law.form.shape) for number in numbers)

    @cached_property
    def _program(self) -> Compiled:
        return Compiled(lambda: jax.vmap(self.given))

    def numbers(self, columns: Mapping[str, Array]) -> tuple[Array, ...]:
        """`given`, for each row of everything else."""
        needed = {name: np.asarray(columns[name]) for name in (*self.parents, self.statistic)}
        with double():
            return tuple(np.asarray(one) for one in self._program(needed))

    def draw(self, rng: np.random.Generator, columns: Mapping[str, Array], skipped: int = 0) -> Array:
        """One draw of the layer for each row of everything else, from row `skipped` on."""
        return self.pair.draw(rng, *(one[skipped:] for one in self.numbers(columns)))


def _first(values: Any) -> Any:
    """The first entry of every axis, which stays."""
    return jnp.asarray(values)[(slice(0, 1),) * jnp.ndim(values)]


def layers_of(
    nodes: Mapping[str, Any], edges: Mapping[str, tuple[str, ...]], names: Iterable[str], first: bool = False
) -> list[Layer]:
    """The layers among the named parameters: `nodes` has every name's law, `edges` the names that it depends on.

    At most one for each statistic: with that integrated out, the law that another layer would be paired with is gone.
    With `first`, parameters whose priors depend on nothing count too.
    """
    names = [name for name in names if first or nodes[name].parents]
    layers = [layer for name in names if (layer := _layer(nodes, edges, name)) and (first or not layer.pair.alone)]
    return list({layer.statistic: layer for layer in reversed(layers)}.values())[::-1]


def _layer(nodes: Mapping[str, Any], edges: Mapping[str, tuple[str, ...]], name: str) -> Layer | None:
    law, readers = nodes[name], [other for other, parents in edges.items() if name in parents]
    reader = nodes[readers[0]] if len(readers) == 1 else None
    if not isinstance(reader, Law) or law.form.shape != reader.form.shape:
        return None
    pair = PAIRS.get((law.form.kind, reader.form.kind))
    if pair is None:
        return None
    ways = entering(reader, name, pair.straight, in_place=True)
    if ways != {attribute: "linear" if attribute == pair.reads else "none" for attribute in ways}:
        return None
    layer = Layer(name, readers[0], law, reader)
    _ = layer.alike  # looked at now, outside of any tracing
    return layer
