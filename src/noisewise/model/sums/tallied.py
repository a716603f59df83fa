"""Records of a few categories. docs/derivations/totals.md."""

import itertools
import math
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.errors import InputError
from noisewise.model.law import Law, law_attributes
from noisewise.model.sums.summand import KnownSum, Summand
from noisewise.numerics import Array, Compiled, Values, double

MOST_CATEGORIES = 256
"""Beyond this many categories of a record counting is no cheaper than simulating some hundred records."""


class Tallied(KnownSum):
    """Records of a few categories: the numbers in each are multinomial, whatever a record contributes."""

    def __init__(self, summand: Summand, sizes: Mapping[str, int]) -> None:
        self.summand = summand
        grid = np.array(list(itertools.product(*(range(size) for size in sizes.values()))), dtype=np.int64)
        self.categories = {field: grid[:, number] for number, field in enumerate(sizes)}
        self.work = len(grid)

    @classmethod
    def of(cls, summand: Summand) -> "Tallied | None":
        """This case for a summand to which it applies, else None."""
        sizes = {field: _values_of(law) for field, law in summand.laws.items()}
        possible = all(sizes.values()) and math.prod(sizes.values()) <= MOST_CATEGORIES
        return cls(summand, sizes) if possible else None

    def draw(self, rng: np.random.Generator, values: Values, n: Array) -> Array | None:
        """The total of each row: the number of records in each category, times the contribution of one.

        None where a law is out of its domain in some category, which perhaps no record meets: records are simulated.
        """
        shape = (len(n), self.work)
        records = {field: np.broadcast_to(one, shape) for field, one in self.categories.items()}
        everything = {**values, **records}
        chances: Any = 1.0
        try:
            for field, law in self.summand.laws.items():
                chances = chances * _chance(law, records[field], law.checked(everything, self.work))
        except InputError:
            return None
        counts = rng.multinomial(n, chances / chances.sum(axis=1, keepdims=True))
        with double():
            return np.array(self._summed({name: everything[name] for name in self.summand.arguments}, counts))

    def summed(self, values: Values, counts: Any) -> Any:
        """By row, `counts` of each category times what one contributes; traceable."""

        def of_row(outer: Values, records: Values, counts: Any) -> Any:
            def weighed(record: Values, count: Any) -> Any:  # an empty category's contribution may be infinite
                return jnp.where(count > 0, count * self.summand.at({**outer, **record}), 0)

            return jnp.sum(jax.vmap(weighed)(records, counts), axis=0)

        outer = {name: one for name, one in values.items() if name not in self.summand.laws}
        records = {name: one for name, one in values.items() if name in self.summand.laws}
        return jax.vmap(of_row)(outer, records, counts)

    @cached_property
    def _summed(self) -> Compiled:
        return Compiled(lambda: partial(self.summed))


def _values_of(law: Law) -> int:
    """How many values 0, 1, ... the law of a single number has; 0 where that is not known or not fixed."""
    if law.form.shape != ():
        return 0
    if law.form.kind in ("BernoulliProbs", "BernoulliLogits"):
        return 2
    if law.form.kind not in ("CategoricalProbs", "CategoricalLogits"):
        return 0
    with double():
        shapes = jax.eval_shape(jax.vmap(lambda row: law_attributes(law.function(**row)), axis_size=1), law.row)
    return int(next(iter(shapes.values())).shape[-1])


def _chance(law: Law, value: Array, checked: Values) -> Array:
    """The probability of `value`, by row and category."""
    (chances,) = checked.values()
    if law.form.kind.startswith("Bernoulli"):
        return np.where(value == 1, chances, 1.0 - chances)
    wide = np.broadcast_to(chances, (*value.shape, chances.shape[-1]))
    return np.take_along_axis(wide, value[..., None], axis=-1)[..., 0]
