"""Batched JAX samplers for NumPyro's laws: the second column of the variates table, for accelerators.

The same laws as in `variates`, drawn inside a compiled program with one key for a whole batch. Attributes arrive
broadcast against `shape`; whether they obey their rules is computed beside the draws, since a compiled program cannot
raise. Gamma and Poisson variates have files of their own.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.distributions.util import binomial as numpyro_binomial

from noisewise.model.on_device.gamma import log_gamma_variates, standard_gamma
from noisewise.model.on_device.poisson import MOST_RATE, poisson

Key = Any
Draw = Callable[..., Any]


def _gamma(key: Key, shape: Any, concentration: Any) -> Any:
    return standard_gamma(key, concentration, shape)


def _student(key: Key, shape: Any, df: Any, loc: Any, scale: Any) -> Any:
    """A normal variate over the root of an independent chi-square over its degrees of freedom."""
    first, second = random.split(key)
    return loc + scale * _normal(first, shape, loc) * jnp.sqrt(0.5 * df / _gamma(second, shape, 0.5 * df))


def _beta(key: Key, shape: Any, concentration1: Any, concentration0: Any) -> Any:
    """The share of one of two gamma variates, in logs."""
    first, second = random.split(key)
    return jax.nn.sigmoid(
        log_gamma_variates(first, concentration1, shape) - log_gamma_variates(second, concentration0, shape)
    )


def _normal(key: Key, shape: Any, like: Any) -> Any:
    return random.normal(key, shape, like.dtype)


def _truncated(key: Key, shape: Any, loc: Any, scale: Any, low: Any, high: Any) -> Any:
    return loc + scale * random.truncated_normal(key, (low - loc) / scale, (high - loc) / scale, shape, loc.dtype)


def _dirichlet(key: Key, shape: Any, concentration: Any) -> Any:
    full = (*shape, concentration.shape[-1])
    return jax.nn.softmax(log_gamma_variates(key, concentration, full), axis=-1)


def _multivariate_normal(key: Key, shape: Any, loc: Any, scale_tril: Any) -> Any:
    standard = random.normal(key, (*shape, scale_tril.shape[-1]), loc.dtype)
    return loc + jnp.matmul(scale_tril, standard[..., None])[..., 0]


def _binomial(key: Key, shape: Any, probs: Any, total_count: Any) -> Any:
    return numpyro_binomial(key, jnp.clip(probs, 0.0, 1.0), total_count, shape)


def _multinomial(key: Key, shape: Any, probs: Any, total_count: Any) -> Any:
    """One category after the other, each binomial given those before it."""
    probs = jnp.broadcast_to(jnp.clip(probs, 0.0, 1.0), (*shape, probs.shape[-1]))
    remaining = jnp.broadcast_to(total_count, shape)
    tails = jnp.cumsum(probs[..., ::-1], axis=-1)[..., ::-1]
    counts = []
    for j in range(probs.shape[-1] - 1):
        share = jnp.where(tails[..., j] > 0, jnp.clip(probs[..., j] / tails[..., j], 0.0, 1.0), 0.0)
        counts.append(_binomial(random.fold_in(key, j), shape, share, remaining).astype(remaining.dtype))
        remaining = remaining - counts[-1]
    return jnp.stack([*counts, remaining], axis=-1)


def _categorical(key: Key, shape: Any, probs: Any) -> Any:
    thresholds = jnp.cumsum(probs, axis=-1)[..., :-1]
    return jnp.sum(random.uniform(key, shape, probs.dtype)[..., None] >= thresholds, axis=-1)


def _bernoulli(key: Key, shape: Any, probs: Any) -> Any:
    return (random.uniform(key, shape, probs.dtype) < probs).astype(int)


def _geometric(key: Key, shape: Any, probs: Any) -> Any:
    """Failures before the first success: the whole part of an exponential time."""
    time = random.exponential(key, shape, probs.dtype)
    return jnp.where(probs >= 1.0, 0.0, jnp.floor(time / -jnp.log1p(-jnp.minimum(probs, 1.0)))).astype(int)


def _gamma_poisson(key: Key, shape: Any, concentration: Any, rate: Any) -> Any:
    first, second = random.split(key)
    return poisson(second, _gamma(first, shape, concentration) / rate, shape)


def _beta_binomial(key: Key, shape: Any, concentration1: Any, concentration0: Any, total_count: Any) -> Any:
    first, second = random.split(key)
    return _binomial(second, shape, _beta(first, shape, concentration1, concentration0), total_count)


def _zero_inflated(key: Key, shape: Any, gate: Any, rate: Any) -> Any:
    first, second = random.split(key)
    return jnp.where(random.uniform(first, shape, gate.dtype) < gate, 0, poisson(second, rate, shape))


def _left_truncated(key: Key, shape: Any, loc: Any, scale: Any, low: Any) -> Any:
    return _truncated(key, shape, loc, scale, low, jnp.full_like(loc, jnp.inf))


def _right_truncated(key: Key, shape: Any, loc: Any, scale: Any, high: Any) -> Any:
    return _truncated(key, shape, loc, scale, jnp.full_like(loc, -jnp.inf), high)


DRAWS: dict[str, Draw] = {
    "Normal": lambda key, shape, loc, scale: loc + scale * _normal(key, shape, loc),
    "LogNormal": lambda key, shape, loc, scale: jnp.exp(loc + scale * _normal(key, shape, loc)),
    "HalfNormal": lambda key, shape, scale: scale * jnp.abs(_normal(key, shape, scale)),
    "StudentT": _student,
    "Cauchy": lambda key, shape, loc, scale: loc + scale * random.cauchy(key, shape, loc.dtype),
    "HalfCauchy": lambda key, shape, scale: scale * jnp.abs(random.cauchy(key, shape, scale.dtype)),
    "Laplace": lambda key, shape, loc, scale: loc + scale * random.laplace(key, shape, loc.dtype),
    "Logistic": lambda key, shape, loc, scale: loc + scale * random.logistic(key, shape, loc.dtype),
    "Gumbel": lambda key, shape, loc, scale: loc + scale * random.gumbel(key, shape, loc.dtype),
    "Exponential": lambda key, shape, rate: random.exponential(key, shape, rate.dtype) / rate,
    "Gamma": lambda key, shape, concentration, rate: _gamma(key, shape, concentration) / rate,
    "InverseGamma": lambda key, shape, concentration, rate: rate / _gamma(key, shape, concentration),
    "Chi2": lambda key, shape, df: 2.0 * _gamma(key, shape, 0.5 * df),
    "Beta": _beta,
    "Uniform": lambda key, shape, low, high: low + (high - low) * random.uniform(key, shape, low.dtype),
    "Weibull": lambda key, shape, scale, concentration: (
        scale * random.exponential(key, shape, scale.dtype) ** (1.0 / concentration)
    ),
    "Pareto": lambda key, shape, scale, alpha: scale * jnp.exp(random.exponential(key, shape, scale.dtype) / alpha),
    "TwoSidedTruncatedDistribution": _truncated,
    "LeftTruncatedDistribution": _left_truncated,
    "RightTruncatedDistribution": _right_truncated,
    "Dirichlet": _dirichlet,
    "MultivariateNormal": _multivariate_normal,
    "BernoulliProbs": _bernoulli,
    "BernoulliLogits": lambda key, shape, logits: _bernoulli(key, shape, jax.nn.sigmoid(logits)),
    "BinomialProbs": _binomial,
    "BinomialLogits": lambda key, shape, logits, total_count: _binomial(
        key, shape, jax.nn.sigmoid(logits), total_count
    ),
    "BetaBinomial": _beta_binomial,
    "MultinomialProbs": _multinomial,
    "MultinomialLogits": lambda key, shape, logits, total_count: _multinomial(
        key, shape, jax.nn.softmax(logits, axis=-1), total_count
    ),
    "CategoricalProbs": _categorical,
    "CategoricalLogits": lambda key, shape, logits: _categorical(key, shape, jax.nn.softmax(logits, axis=-1)),
    "Poisson": lambda key, shape, rate: poisson(key, rate, shape),
    **dict.fromkeys(
        ("GammaPoisson", "NegativeBinomial2", "NegativeBinomialProbs", "NegativeBinomialLogits"), _gamma_poisson
    ),
    "GeometricProbs": _geometric,
    "GeometricLogits": lambda key, shape, logits: _geometric(key, shape, jax.nn.sigmoid(logits)),
    "ZeroInflatedPoisson": _zero_inflated,
    "Delta": lambda key, shape, v: jnp.broadcast_to(v, shape),
}
"""By the class name of the law, as in `variates.VARIATES`: draw(key, shape, **attributes)."""

_ROUNDING = 1e-6
RULES: dict[str, Callable[[Any], Any]] = {
    "finite": lambda x: jnp.isfinite(x),
    "positive": lambda x: (x > 0) & (x < jnp.inf),
    "rate": lambda x: (x >= 0) & (x < MOST_RATE),
    "count": lambda x: (x >= 0) & (x < MOST_RATE) & (x == jnp.floor(x)),
    "probability": lambda x: (x >= -_ROUNDING) & (x <= 1 + _ROUNDING),
    "chance": lambda x: (x > 0) & (x <= 1 + _ROUNDING),
    "simplex": lambda x: (
        jnp.all((x >= -_ROUNDING) & (x <= 1 + _ROUNDING), axis=-1)
        & (jnp.abs(jnp.sum(x, axis=-1) - 1) <= _ROUNDING * np.shape(x)[-1])
    ),
    "logit": lambda x: ~jnp.isnan(x),
    "logits": lambda x: jnp.isfinite(jnp.max(x, axis=-1)),
    "bound": lambda x: ~jnp.isnan(x),
}
"""Whether an attribute obeys the rule of that name in `variates.RULES`."""
