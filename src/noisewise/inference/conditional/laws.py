"""A statistic's law: its log density entry by entry, and, by tracing, which facts of it hold for all parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from numpyro.distributions import BetaBinomial, DiscreteUniform, Distribution, GammaPoisson, Poisson
from numpyro.distributions.distribution import Independent

from noisewise.model import Model
from noisewise.model.families import facts_of
from noisewise.model.supports import declared_ends
from noisewise.model.wrappers import kind_of, peel
from noisewise.numerics import Array, Values, double
from noisewise.numerics.compiled import looking
from noisewise.numerics.gamma import log_beta, log_gamma
from noisewise.numerics.numpy_programs import fixed_outputs
from noisewise.numerics.tracing import seen


def entries(law: Distribution, value: Any) -> Any:
    """log density entry by entry where the law's entries are independent."""
    while isinstance(law, Independent):
        law = law.base_dist
    base = peel(law)[0]
    if isinstance(base, (GammaPoisson, BetaBinomial)) and kind_of(law):
        low, high = bounds(law, jnp.shape(value))
        inside = (value >= low) & (value <= high)
        return jnp.where(inside, log_mass(base, jnp.clip(value, low, high) * 1.0), -jnp.inf)
    return law.log_prob(value)


def log_mass(law: Any, k: Any) -> Any:
    """log probability of k; NumPyro's formulas for two laws use JAX's beta function, which has but seven digits."""
    if isinstance(law, Poisson):
        return xlogy(k, law.rate) - law.rate - log_gamma(k + 1.0)
    if isinstance(law, GammaPoisson):
        log_count = log_gamma(k + law.concentration) - log_gamma(law.concentration) - log_gamma(k + 1.0)
        return log_count - law.concentration * jnp.log1p(1.0 / law.rate) - k * jnp.log1p(law.rate)
    if isinstance(law, BetaBinomial):
        first, second, n = law.concentration1, law.concentration0, law.total_count
        log_count = -jnp.log(n + 1.0) - log_beta(k + 1.0, n - k + 1.0)
        return log_count + log_beta(k + first, n - k + second) - log_beta(first, second)
    if isinstance(law, DiscreteUniform):  # NumPyro's own asks for the shape that the law was made with
        return jnp.broadcast_to(-jnp.log(law.high - law.low + 1.0), jnp.shape(k))
    return law.log_prob(k.astype(int))


def bounds(law: Distribution, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Ends of every entry's support; infinite where there are none."""
    low, high = declared_ends(law.support)
    return jnp.broadcast_to(jnp.asarray(low, float), shape), jnp.broadcast_to(jnp.asarray(high, float), shape)


def rows_of(model: Model, names: list[str], rows: int = 1) -> dict[str, Array]:
    """Simulated values of the names, always the same."""
    wanted = [name for name in model.order if name in {*names, *model.ancestors(*names)}]
    with looking():
        drawn = model.draw(np.random.default_rng(0), wanted, rows)
    return {name: drawn[name] for name in names}


def look_at(model: Model, name: str, see: Any) -> Any:
    """What `see(law)` returns for a law whose numbers are known unless a parameter enters them.

    Under `vmap` alone, values that do not depend on a mapped argument are not traced. Each operation is a program of
    its own; so use `sketch_of` where only shapes and kinds are needed, and `fixed_numbers` where only numbers are.
    """
    answers: list[Any] = []
    rows = rows_of(model, list(model.parents(name)))

    def look(row: Values) -> Any:
        answers.append(see(model.law_at(name, row)))
        return 0.0

    with double():
        if rows:
            jax.vmap(look)({parent: jnp.asarray(value) for parent, value in rows.items()})
        else:
            look({})
    return answers[-1]


def sketch_of(model: Model, name: str, see: Any) -> Any:
    """What `see(law)` returns of shapes and kinds: the law is traced, and nothing is computed."""
    return seen(lambda row: see(model.law_at(name, row)), model.law(name).row)


def fixed_numbers(model: Model, name: str, see: Any) -> list[Any]:
    """The numbers that `see(law)` lists, as NumPy where they are the same for all parameters, else None."""

    def look(row: Values) -> Any:
        return [jnp.asarray(number) for number in see(model.law_at(name, row))]

    with double():
        numbers = fixed_outputs(jax.vmap(look, axis_size=1), model.law(name).row)
    return [None if number is None else np.asarray(number[0]) for number in numbers]


def constant_of(model: Model, name: str, attribute: str) -> Any:
    """An attribute of the law that does not depend on the parameters; None where it does, or where there is none."""
    (value,) = fixed_numbers(model, name, lambda law: [getattr(peel(law)[0], attribute, np.nan)])
    return None if value is None or np.any(np.isnan(value)) else value


def is_affine(model: Model, name: str) -> bool:
    """Whether log p(s) = log h(s) + (affine in s), where only the affine part depends on the parameters."""
    facts = facts_of(model.law(name).form.kind)
    if not facts.linear_count:
        return False
    return not facts.while_known or constant_of(model, name, facts.while_known) is not None


def constant_bounds(model: Model, name: str) -> tuple[Array, Array]:
    """Ends of the support that hold for all parameters."""
    shape = model.shape(name)
    low, high = fixed_numbers(model, name, lambda law: bounds(law, shape))
    return (
        np.full(shape, -np.inf) if low is None else low,
        np.full(shape, np.inf) if high is None else high,
    )
