"""The words of the expression grammar: functions and laws, by name, and nothing else. See expressions.py."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.special
from numpyro.distributions import constraints

MOST_ENTRIES = 1_000_000
"""The largest `size`: entries of a law that is repeated."""


@dataclass(frozen=True)
class Function:
    """A named function: how many arguments it takes, in JAX and, for plain numbers, in NumPy."""

    least: int
    most: int
    run: Callable[..., Any]
    on_numbers: Callable[..., Any] | None = None
    """None: its arguments are vectors, so that there is nothing to compute beforehand."""


def _stack(*parts: Any) -> Any:
    arrays = [jnp.asarray(part) for part in parts]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return jnp.stack([jnp.broadcast_to(array, shape) for array in arrays])


def _join(*parts: Any) -> Any:
    return jnp.concatenate([jnp.atleast_1d(part) for part in parts])


_BY_ENTRY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "abs": (jnp.abs, np.abs),
    "ceil": (jnp.ceil, np.ceil),
    "cos": (jnp.cos, np.cos),
    "exp": (jnp.exp, np.exp),
    "expit": (jax.nn.sigmoid, scipy.special.expit),
    "expm1": (jnp.expm1, np.expm1),
    "floor": (jnp.floor, np.floor),
    "log": (jnp.log, np.log),
    "log1p": (jnp.log1p, np.log1p),
    "log_gamma": (jax.scipy.special.gammaln, scipy.special.gammaln),
    "logit": (jax.scipy.special.logit, scipy.special.logit),
    "normal_cdf": (jax.scipy.special.ndtr, scipy.special.ndtr),
    "round": (jnp.round, np.round),
    "sign": (jnp.sign, np.sign),
    "sin": (jnp.sin, np.sin),
    "sqrt": (jnp.sqrt, np.sqrt),
    "square": (jnp.square, lambda number: np.asarray(number * number, dtype=object)),  # whole numbers never wrap
    "tanh": (jnp.tanh, np.tanh),
}
_TO_ONE_NUMBER: dict[str, Callable[..., Any]] = {
    "max": jnp.max,
    "mean": jnp.mean,
    "min": jnp.min,
    "prod": jnp.prod,
    "sum": jnp.sum,
}

FUNCTIONS: dict[str, Function] = {
    **{name: Function(1, 1, run, on_numbers) for name, (run, on_numbers) in _BY_ENTRY.items()},
    **{name: Function(1, 1, run) for name, run in _TO_ONE_NUMBER.items()},
    "clip": Function(3, 3, jnp.clip, np.clip),
    "cumsum": Function(1, 1, jnp.cumsum),
    "dot": Function(2, 2, jnp.dot),
    "join": Function(1, 1_000, _join),
    "maximum": Function(2, 2, jnp.maximum, np.maximum),
    "minimum": Function(2, 2, jnp.minimum, np.minimum),
    "softmax": Function(1, 1, jax.nn.softmax),
    "stack": Function(1, 1_000, _stack),
    "where": Function(3, 3, jnp.where),
}

LAWS: dict[str, Any] = {
    name: getattr(dist, name)
    for name in (
        *("Bernoulli", "Beta", "BetaBinomial", "BetaProportion", "Binomial", "Categorical", "Cauchy", "Chi2"),
        *("Delta", "Dirichlet", "DirichletMultinomial", "DiscreteUniform", "Exponential", "Gamma", "GammaPoisson"),
        *("Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "InverseGamma", "Kumaraswamy", "Laplace", "LogNormal"),
        *("LogUniform", "Logistic", "Multinomial", "MultivariateNormal", "NegativeBinomial2"),
        *("NegativeBinomialProbs", "Normal", "Pareto", "Poisson", "StudentT", "TruncatedNormal", "Uniform"),
        *("VonMises", "Weibull", "ZeroInflatedPoisson"),
    )
}
"""NumPyro's laws that an expression may name."""
COUNTED = ("total_count", "low", "high", "v")
"""Parameters in which whole numbers are kept; in all others they become decimal numbers."""

_INTERNAL = ("validate_args", "total_count_max", "is_sparse", "log_density", "event_dim")
_ONE_OF = (("probs", "logits"), ("covariance_matrix", "precision_matrix", "scale_tril"))
_RULES: tuple[tuple[tuple[str, ...], Any, str], ...] = (
    (("probs", "gate"), constraints.unit_interval, "must lie between 0 and 1"),
    (("total_count",), constraints.nonnegative_integer, "must be a whole number from 0 on"),
)
"""Rules for parameters of laws that NumPyro builds by a function, which states no rules itself."""
_WORDS = {
    "Positive": "must be positive",
    "Nonnegative": "must not be negative",
    "GreaterThanEq": "must not be negative",
    "UnitInterval": "must lie between 0 and 1",
    "OpenInterval": "must lie between 0 and 1, both excluded",
    "IntegerNonnegative": "must be a whole number from 0 on",
    "IntegerPositive": "must be a whole number from 1 on",
    "Real": "must be a finite number",
    "PositiveDefinite": "must be a positive definite matrix",
    "LowerCholesky": "must be lower triangular with a positive diagonal",
}


def parameters_of(law: str) -> dict[str, inspect.Parameter]:
    """The parameters that a law takes in an expression, in order; `size` is not among them."""
    parameters = inspect.signature(LAWS[law]).parameters
    return {name: parameter for name, parameter in parameters.items() if name not in _INTERNAL}


def missing_of(law: str, given: set[str]) -> str | None:
    """Which parameter is missing or given in two ways, in words; None where all is there.

    NumPyro's defaults are not taken: Gamma(10) is more likely a slip than a rate of one.
    """
    parameters = parameters_of(law)
    for name, parameter in parameters.items():
        if parameter.default is not None and name not in given:
            return f"needs '{name}'"
    for group in _ONE_OF:
        if group[0] in parameters and len(given & set(group)) != 1:
            return "needs exactly one of " + ", ".join(f"'{name}'" for name in group)
    return None


def broken_rule(law: str, parameter: str, value: Any) -> str | None:
    """The rule that a plain number (or list of them) breaks as a law's parameter, in words; None where it obeys."""
    stated = getattr(LAWS[law], "arg_constraints", {}).get(parameter)
    rules = [(stated, _words(stated))] if stated is not None else []
    rules += [(rule, words) for names, rule, words in _RULES if stated is None and parameter in names]
    numbers = np.asarray(value, dtype=float)
    if not np.all(np.isfinite(numbers)):
        return "must be finite"
    for rule, words in rules:
        if getattr(rule, "is_dependent", False) or type(rule).__name__ == "_Dependent":
            continue
        try:
            holds = np.all(np.asarray(rule(numbers)))
        except Exception:  # a rule that depends on other parameters cannot be checked by itself
            continue
        if not holds:
            return words
    return None


def _words(rule: Any) -> str:
    base = getattr(rule, "base_constraint", rule)
    name = type(base).__name__.lstrip("_")
    return _WORDS.get(name, f"must obey NumPyro's rule '{rule}'")
