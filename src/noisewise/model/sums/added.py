"""Contributions that are affine in fields whose laws add up. docs/derivations/totals.md."""

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.errors import InputError
from noisewise.model.law import Law, law_attributes
from noisewise.model.sums.summand import KnownSum, Summand, degrees_of
from noisewise.model.variates import MOST, VARIATES, BadParameter
from noisewise.numerics import Array, Compiled, Values, double


def _sum_of_bits(law: Values, n: Array) -> tuple[str, Values]:
    return "BinomialProbs", {"probs": law.get("probs", law.get("logits")), "total_count": n}


def _sum_of_binomials(law: Values, n: Array) -> tuple[str, Values]:
    return "BinomialProbs", {"probs": law.get("probs", law.get("logits")), "total_count": n * law["total_count"]}


def _sum_of_multinomials(law: Values, n: Array) -> tuple[str, Values]:
    return "MultinomialProbs", {"probs": law.get("probs", law.get("logits")), "total_count": n * law["total_count"]}


def _sum_of_geometrics(law: Values, n: Array) -> tuple[str, Values]:
    chance = law.get("probs", law.get("logits"))
    with np.errstate(divide="ignore"):  # certain success: no failure, a rate beyond all bounds
        return "GammaPoisson", {"concentration": n, "rate": chance / (1.0 - chance)}


def _sum_of_gamma_poissons(law: Values, n: Array) -> tuple[str, Values]:
    return "GammaPoisson", {"concentration": n * law["concentration"], "rate": law["rate"]}


ADD_UP: dict[str, Callable[[Values, Array], tuple[str, Values]]] = {
    "Normal": lambda law, n: ("Normal", {"loc": law["loc"], "scale": n**0.5 * law["scale"]}),
    "MultivariateNormal": lambda law, n: (
        "MultivariateNormal",
        {"loc": law["loc"], "scale_tril": (n**0.5)[..., None, None] * law["scale_tril"]},
    ),
    "Cauchy": lambda law, n: ("Cauchy", {"loc": law["loc"], "scale": n * law["scale"]}),
    "Delta": lambda law, n: ("Delta", {"v": law["v"]}),
    "Exponential": lambda law, n: ("Gamma", {"concentration": n, "rate": law["rate"]}),
    "Gamma": lambda law, n: ("Gamma", {"concentration": n * law["concentration"], "rate": law["rate"]}),
    "Chi2": lambda law, n: ("Chi2", {"df": n * law["df"]}),
    "Poisson": lambda law, n: ("Poisson", {"rate": n * law["rate"]}),
    "BernoulliProbs": _sum_of_bits,
    "BernoulliLogits": _sum_of_bits,
    "BinomialProbs": _sum_of_binomials,
    "BinomialLogits": _sum_of_binomials,
    "MultinomialProbs": _sum_of_multinomials,
    "MultinomialLogits": _sum_of_multinomials,
    "GeometricProbs": _sum_of_geometrics,
    "GeometricLogits": _sum_of_geometrics,
    "GammaPoisson": _sum_of_gamma_poissons,
    "NegativeBinomial2": _sum_of_gamma_poissons,
    "NegativeBinomialProbs": _sum_of_gamma_poissons,
    "NegativeBinomialLogits": _sum_of_gamma_poissons,
}
"""By the class of a law: (its attributes, n) -> the law of the sum of n draws; `PLACES` are summed already."""
PLACES = {"loc", "v"}
"""Location attributes: the sum's is the sum of those of the draws, which may differ from record to record."""


class Added(KnownSum):
    """Contributions that are affine in fields whose laws add up: the sum is affine in the fields' sums.

    A field's location may be affine in other fields; everything else about its law is the same for all records.
    """

    def __init__(self, summand: Summand) -> None:
        self.summand = summand
        self.work = sum(max(1, math.prod(law.form.shape)) for law in summand.laws.values())

    @classmethod
    def of(cls, summand: Summand) -> "Added | None":
        """This case for a summand to which it applies, else None."""
        if any(law.form.kind not in ADD_UP or not _adds_up(law) for law in summand.laws.values()):
            return None
        fields = {name: one for name, one in summand.structs.items() if name in summand.laws}
        known = {name: one for name, one in summand.structs.items() if name not in summand.laws}
        degree = degrees_of(lambda moving, rest: summand.at({**moving, **rest}), fields, known)
        return cls(summand) if degree <= 1.0 else None

    def draw(self, rng: np.random.Generator, values: Values, n: Array) -> Array:
        """The total of each row: from the fields' sums, each drawn given those before it."""
        sums: dict[str, Any] = {}
        for field, law in self.summand.laws.items():
            shape = (len(n), *law.form.batch)
            try:
                kind, attributes = self._sum_of(law, {**values, **sums}, n)
                drawn = VARIATES[kind].draw(rng, shape, **attributes)
            except InputError:
                raise  # refused by the law of one record: the message is complete
            except ValueError as error:
                raise law._bad_parameter(error, {**values, **sums}) from error
            sums[field] = drawn.astype(law.struct.dtype, copy=False)
        needed = {name: {**values, **sums}[name] for name in self.summand.arguments}
        with double():
            return np.array(self._contributed(needed, n))

    def _sum_of(self, law: Law, values: Values, n: Array) -> tuple[str, Values]:
        """The law of a field's sum, given the sums of the fields that it reads."""
        inner = {name: np.stack([values[name], np.zeros_like(values[name])], axis=1) for name in law.inner}
        checked = law.checked({**values, **inner}, records=2 if inner else 1)
        size = n.reshape((-1,) + (1,) * len(law.form.batch))
        attributes = {}
        for name, value in checked.items():
            first = value if name in law.constant else value[:, 0]
            if name in PLACES:
                wide = size[..., None] if law.form.kind == "MultivariateNormal" else size
                rest = value[:, 1] if inner and name not in law.constant and value.shape[1] > 1 else first
                first = first + (wide - 1) * rest
            attributes[name] = first
        _refuse_beyond(attributes.get("total_count", np.zeros(())), size)
        return ADD_UP[law.form.kind](attributes, size)

    def of_row(self, values: Values, n: Any) -> Any:
        """f(sum) + (n - 1) f(0), the sum of f for an affine f; whole numbers where f gives these. Traceable."""
        nothing = {name: jnp.zeros_like(one) if name in self.summand.laws else one for name, one in values.items()}
        return jnp.where(n > 0, self.summand.at(values) + (n - 1) * self.summand.at(nothing), 0)

    @cached_property
    def _contributed(self) -> Compiled:
        return Compiled(lambda: jax.vmap(partial(self.of_row)), small=True)


def _refuse_beyond(trials: Array, n: Array) -> None:
    """Refuse `total_count` of all records together where 64 bits do not hold it: integer products would overflow."""
    together = np.asarray(n, float) * trials
    if np.any(together > MOST):
        raise BadParameter(
            f"'total_count' of all records must be at most {MOST:g}, got {together.max():g}", together > MOST
        )


def _adds_up(law: Law) -> bool:
    """Whether other fields enter a field's law through its location alone, which is affine in them."""
    if not law.inner:
        return True

    def look(moving: Values, known: Values) -> Any:
        return law_attributes(law.function(**moving, **known))

    structs = law.structs
    degrees = degrees_of(look, {name: structs[name] for name in law.inner}, {name: structs[name] for name in law.outer})
    return all(degree <= (1.0 if name in PLACES else 0.0) for name, degree in degrees.items())
