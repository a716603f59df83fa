"""Contributions of degree two in normal records. docs/derivations/totals.md."""

import math
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.model.law import law_attributes
from noisewise.model.sums.summand import KnownSum, Summand, degrees_of
from noisewise.numerics import Array, Compiled, Values, double

MOST_NUMBERS = 16
"""Beyond this many normal numbers in a record its scatter is not worth drawing."""


class Scattered(KnownSum):
    """Contributions of degree two in records of normal fields: the sum is known from the records' mean and scatter.

    A record is a function of independent standard normal numbers, and so is its contribution. Of n such vectors
    the mean is normal and the scatter about it Wishart, independent of the mean, drawn as Bartlett (1933) does.
    """

    def __init__(self, summand: Summand) -> None:
        self.summand = summand
        self.numbers = sum(math.prod(law.form.shape) for law in summand.laws.values())
        self.work = self.numbers * (self.numbers + 3)

    @classmethod
    def of(cls, summand: Summand) -> "Scattered | None":
        """This case for a summand to which it applies, else None."""
        if any(law.form.kind != "Normal" for law in summand.laws.values()):
            return None
        scattered = cls(summand)
        if scattered.numbers > MOST_NUMBERS:
            return None
        standard = {"": jax.ShapeDtypeStruct((scattered.numbers,), np.float64)}
        degree, spreads = degrees_of(lambda moving, outer: scattered.record(outer, moving[""]), standard, summand.outer)
        return scattered if degree <= 2.0 and not any(spreads) else None

    def record(self, outer: Values, standard: Any) -> tuple[Any, list[Any]]:
        """The contribution of the record that standard normal numbers make, and its fields' scales; traceable."""
        values, spreads, start = dict(outer), [], 0
        for field, law in self.summand.laws.items():
            own = law_attributes(law.function(**{name: values[name] for name in law.parents}))
            size = math.prod(law.form.shape)
            piece = standard[start : start + size].reshape(law.form.shape)
            values[field] = own["loc"] + own["scale"] * piece
            spreads.append(own["scale"])
            start += size
        return self.summand.at(values), spreads

    def draw(self, rng: np.random.Generator, values: Values, n: Array) -> Array:
        """The total of each row, from the contributions at 2 d + 1 points, for d normal numbers in a record."""
        for law in self.summand.laws.values():
            zeros = {name: np.zeros((len(n), 1, *law.structs[name].shape)) for name in law.inner}
            law.checked({**values, **zeros}, records=1)
        mean = rng.standard_normal((len(n), self.numbers)) / np.sqrt(np.maximum(n, 1))[:, None]
        outer = {name: values[name] for name in self.summand.outer}
        with double():
            return np.array(self._summed(outer, mean, scatter_root(rng, n - 1, self.numbers), n))

    def of_row(self, outer: Values, mean: Any, root: Any, n: Any) -> Any:
        """n f(mean), and for each column w of `root` (f(mean + w) + f(mean - w)) / 2 - f(mean); traceable."""
        middle = self.record(outer, mean)[0]
        around = jax.vmap(lambda w: self.record(outer, mean + w)[0] + self.record(outer, mean - w)[0])(root.T)
        return jnp.where(n > 0, n * middle + jnp.sum(0.5 * around - middle, axis=0), 0)  # n = 0: exactly 0

    @cached_property
    def _summed(self) -> Compiled:
        return Compiled(lambda: jax.vmap(partial(self.of_row)))


def scatter_root(rng: np.random.Generator, freedom: Array, size: int) -> Array:
    """By row a lower triangular B with B B' ~ Wishart(freedom, I), of rank `freedom` where that is below `size`.

    B_jj^2 is chi-square of freedom - j, j = 0, 1, ..., numbers below are standard normal, and columns from `freedom` on
    are zero (Bartlett 1933).
    """
    left = np.maximum(freedom[:, None] - np.arange(size), 0)
    root = np.tril(rng.standard_normal((len(freedom), size, size)), -1)
    diagonal = np.arange(size)
    root[:, diagonal, diagonal] = np.sqrt(2.0 * rng.standard_gamma(0.5 * left))
    return root * (left > 0)[:, None, :]
