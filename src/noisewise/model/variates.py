"""NumPy samplers for NumPyro's laws: the table that the CPU engines draw from.

NumPy's generators are several times faster than `jax.random` on a CPU and release the interpreter lock,
so the analyst's functions run in JAX and the variates are drawn here. Every entry says which attributes of
the law it needs and draws independent variates of a given shape; a parameter that a generator cannot honour
is an error, never a dropped or altered proposal. Probabilities alone are clipped, by rounding errors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import Distribution
from scipy.special import expit, log_ndtr, ndtri_exp, softmax

from noisewise.numerics import Array

Draw = Callable[..., Array]

MOST = 9e18
"""Beyond this NumPy's 64-bit counts overflow."""
_ROUNDING = 1e-6


class BadParameter(ValueError):
    """A law's parameter outside its domain; `where` marks the offending entries."""

    def __init__(self, message: str, where: Array) -> None:
        super().__init__(message)
        self.where = where


@dataclass(frozen=True)
class Variate:
    """How to draw one law: its attributes with the rule each obeys, and the sampler.

    `draw(rng, shape, **attributes)` returns variates of shape `shape` plus the law's own event axes;
    attributes broadcast against `shape` (plus their own `axes`).
    """

    rules: dict[str, str]
    draw: Draw
    axes: dict[str, int]
    event_dim: int

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...], attributes: dict[str, Array]) -> Array:
        """Check the attributes, then draw."""
        checked = {name: RULES[rule](name, attributes[name]) for name, rule in self.rules.items()}
        return self.draw(rng, shape, **checked)


def _require(condition: Array, name: str, rule: str, value: Array) -> None:
    if not np.all(condition):
        wrong = ~np.asarray(condition)
        shown, marked = np.broadcast_arrays(value, wrong)
        bad = shown[marked].flat[0]
        raise BadParameter(f"'{name}' must be {rule}, got {bad}", wrong)


def _ends(value: Array) -> tuple[Any, Any]:
    """Least and largest, NaN where one is NaN: two passes settle what a mask of every entry would."""
    return (np.min(value), np.max(value)) if np.size(value) else (1.0, 1.0)


def _finite(name: str, value: Array) -> Array:
    low, high = _ends(value)
    if not -np.inf < low <= high < np.inf:
        _require(np.isfinite(value), name, "finite", value)
    return value


def _positive(name: str, value: Array) -> Array:
    low, high = _ends(value)
    if not 0 < low <= high < np.inf:
        _require((value > 0) & (value < np.inf), name, "positive and finite", value)
    return value


def _rate(name: str, value: Array) -> Array:
    low, high = _ends(value)
    if not 0 <= low <= high < MOST:
        _require((value >= 0) & (value < MOST), name, f"non-negative and below {MOST:g}", value)
    return value


def _count(name: str, value: Array) -> Array:
    whole = (value >= 0) & (value < MOST) & (value == np.floor(value))
    _require(whole, name, f"a non-negative whole number below {MOST:g}", value)
    return np.asarray(value).astype(np.int64)


def _probability(name: str, value: Array) -> Array:
    inside = (value >= -_ROUNDING) & (value <= 1 + _ROUNDING)
    _require(inside, name, "a probability", value)
    return np.clip(value, 0.0, 1.0)


def _chance(name: str, value: Array) -> Array:
    value = _probability(name, value)
    _require(value > 0, name, "a positive probability", value)
    return value


def _simplex(name: str, value: Array) -> Array:
    value = _probability(name, value)
    total = value.sum(axis=-1, keepdims=True)
    _require(np.abs(total - 1) <= _ROUNDING * value.shape[-1], name, "probabilities that sum to 1", total)
    return value / total


def _logit(name: str, value: Array) -> Array:
    _require(~np.isnan(value), name, "a number", value)
    return expit(value)


def _logits(name: str, value: Array) -> Array:
    top = np.max(value, axis=-1, keepdims=True)
    _require(np.isfinite(top), name, "below infinity with one above minus infinity", top)
    return softmax(value, axis=-1)


def _bound(name: str, value: Array) -> Array:
    _require(~np.isnan(value), name, "a number", value)
    return value


RULES: dict[str, Callable[[str, Array], Array]] = {
    "finite": _finite,
    "positive": _positive,
    "rate": _rate,
    "count": _count,
    "probability": _probability,
    "chance": _chance,
    "simplex": _simplex,
    "logit": _logit,
    "logits": _logits,
    "bound": _bound,
}

VARIATES: dict[str, Variate] = {}
"""By the class name of the law."""


def _law(*names: str, axes: dict[str, int] | None = None, event_dim: int = 0, **rules: str) -> Callable[[Draw], Draw]:
    def register(draw: Draw) -> Draw:
        for name in names:
            VARIATES[name] = Variate(rules, draw, axes or {}, event_dim)
        return draw

    return register


def variate_for(law: Distribution) -> Variate | None:
    """The table's entry for this very class, or None (never for a subclass that may differ)."""
    name = type(law).__name__
    if not type(law).__module__.startswith("numpyro."):
        return None
    if name.endswith("TruncatedDistribution"):
        return VARIATES[name] if type(law.base_dist) is dist.Normal else None
    return VARIATES.get(name)


# Continuous laws -------------------------------------------------------------------------------------


@_law("Normal", loc="finite", scale="positive")
def _normal(rng: Any, shape: Any, loc: Array, scale: Array) -> Array:
    return loc + scale * rng.standard_normal(shape)


@_law("LogNormal", loc="finite", scale="positive")
def _log_normal(rng: Any, shape: Any, loc: Array, scale: Array) -> Array:
    return np.exp(loc + scale * rng.standard_normal(shape))


@_law("HalfNormal", scale="positive")
def _half_normal(rng: Any, shape: Any, scale: Array) -> Array:
    return scale * np.abs(rng.standard_normal(shape))


@_law("StudentT", df="positive", loc="finite", scale="positive")
def _student(rng: Any, shape: Any, df: Array, loc: Array, scale: Array) -> Array:
    return loc + scale * rng.standard_t(df, shape)


@_law("Cauchy", loc="finite", scale="positive")
def _cauchy(rng: Any, shape: Any, loc: Array, scale: Array) -> Array:
    return loc + scale * rng.standard_cauchy(shape)


@_law("HalfCauchy", scale="positive")
def _half_cauchy(rng: Any, shape: Any, scale: Array) -> Array:
    return scale * np.abs(rng.standard_cauchy(shape))


@_law("Laplace", loc="finite", scale="positive")
def _laplace(rng: Any, shape: Any, loc: Array, scale: Array) -> Array:
    return loc + scale * rng.laplace(size=shape)


@_law("Logistic", loc="finite", scale="positive")
def _logistic(rng: Any, shape: Any, loc: Array, scale: Array) -> Array:
    return loc + scale * rng.logistic(size=shape)


@_law("Gumbel", loc="finite", scale="positive")
def _gumbel(rng: Any, shape: Any, loc: Array, scale: Array) -> Array:
    return loc + scale * rng.gumbel(size=shape)


@_law("Exponential", rate="positive")
def _exponential(rng: Any, shape: Any, rate: Array) -> Array:
    return rng.standard_exponential(shape) / rate


@_law("Gamma", concentration="positive", rate="positive")
def _gamma(rng: Any, shape: Any, concentration: Array, rate: Array) -> Array:
    return rng.standard_gamma(concentration, shape) / rate


@_law("InverseGamma", concentration="positive", rate="positive")
def _inverse_gamma(rng: Any, shape: Any, concentration: Array, rate: Array) -> Array:
    with np.errstate(divide="ignore", over="ignore"):  # the reciprocal of a tiny gamma variate is beyond range
        return rate / rng.standard_gamma(concentration, shape)


@_law("Chi2", df="positive")
def _chi2(rng: Any, shape: Any, df: Array) -> Array:
    return 2.0 * rng.standard_gamma(0.5 * df, shape)


@_law("Beta", concentration1="positive", concentration0="positive")
def _beta(rng: Any, shape: Any, concentration1: Array, concentration0: Array) -> Array:
    return rng.beta(concentration1, concentration0, shape)


@_law("Uniform", low="finite", high="finite")
def _uniform(rng: Any, shape: Any, low: Array, high: Array) -> Array:
    _require(low < high, "low", "below 'high'", low)
    return low + (high - low) * rng.random(shape)


@_law("Weibull", scale="positive", concentration="positive")
def _weibull(rng: Any, shape: Any, scale: Array, concentration: Array) -> Array:
    return scale * rng.standard_exponential(shape) ** (1.0 / concentration)


@_law("Pareto", scale="positive", alpha="positive")
def _pareto(rng: Any, shape: Any, scale: Array, alpha: Array) -> Array:
    return scale * np.exp(rng.standard_exponential(shape) / alpha)


@_law("TwoSidedTruncatedDistribution", loc="finite", scale="positive", low="bound", high="bound")
def _truncated_normal(rng: Any, shape: Any, loc: Array, scale: Array, low: Array, high: Array) -> Array:
    """Inverse CDF in logs, on the side of the origin where the normal CDF keeps its digits."""
    _require(low < high, "low", "below 'high'", low)
    a, b = (low - loc) / scale, (high - loc) / scale
    flip = np.where(a > 0, -1.0, 1.0)
    lower, upper = np.where(a > 0, -b, a), np.where(a > 0, -a, b)
    u = rng.random(shape)
    with np.errstate(divide="ignore"):
        log_p = np.logaddexp(log_ndtr(lower) + np.log1p(-u), log_ndtr(upper) + np.log(u))
    z = np.clip(ndtri_exp(np.minimum(log_p, 0.0)), lower, upper)
    return np.clip(loc + scale * flip * z, low, high)


@_law("LeftTruncatedDistribution", loc="finite", scale="positive", low="bound")
def _left_truncated_normal(rng: Any, shape: Any, loc: Array, scale: Array, low: Array) -> Array:
    return _truncated_normal(rng, shape, loc, scale, low, np.asarray(np.inf))


@_law("RightTruncatedDistribution", loc="finite", scale="positive", high="bound")
def _right_truncated_normal(rng: Any, shape: Any, loc: Array, scale: Array, high: Array) -> Array:
    return _truncated_normal(rng, shape, loc, scale, np.asarray(-np.inf), high)


@_law("Dirichlet", axes={"concentration": 1}, event_dim=1, concentration="positive")
def _dirichlet(rng: Any, shape: Any, concentration: Array) -> Array:
    """Normalised gammas in logs, G(a) = G(a + 1) U^(1/a), so that small concentrations do not underflow."""
    full = (*shape, concentration.shape[-1])
    log_gamma = np.log(rng.standard_gamma(concentration + 1.0, full))
    return softmax(log_gamma - rng.standard_exponential(full) / concentration, axis=-1)


@_law("MultivariateNormal", axes={"loc": 1, "scale_tril": 2}, event_dim=1, loc="finite", scale_tril="finite")
def _multivariate_normal(rng: Any, shape: Any, loc: Array, scale_tril: Array) -> Array:
    standard = rng.standard_normal((*shape, scale_tril.shape[-1]))
    return loc + np.matmul(scale_tril, standard[..., None])[..., 0]


# Discrete laws ---------------------------------------------------------------------------------------


@_law("BernoulliProbs", probs="probability")
def _bernoulli(rng: Any, shape: Any, probs: Array) -> Array:
    return (rng.random(shape) < probs).astype(np.int64)


@_law("BernoulliLogits", logits="logit")
def _bernoulli_logits(rng: Any, shape: Any, logits: Array) -> Array:
    return _bernoulli(rng, shape, logits)


@_law("BinomialProbs", probs="probability", total_count="count")
def _binomial(rng: Any, shape: Any, probs: Array, total_count: Array) -> Array:
    return rng.binomial(total_count, probs, shape)


@_law("BinomialLogits", logits="logit", total_count="count")
def _binomial_logits(rng: Any, shape: Any, logits: Array, total_count: Array) -> Array:
    return rng.binomial(total_count, logits, shape)


@_law("BetaBinomial", concentration1="positive", concentration0="positive", total_count="count")
def _beta_binomial(rng: Any, shape: Any, concentration1: Array, concentration0: Array, total_count: Array) -> Array:
    return rng.binomial(total_count, rng.beta(concentration1, concentration0, shape), shape)


@_law("MultinomialProbs", axes={"probs": 1}, event_dim=1, probs="simplex", total_count="count")
def _multinomial(rng: Any, shape: Any, probs: Array, total_count: Array) -> Array:
    return rng.multinomial(np.broadcast_to(total_count, shape), np.broadcast_to(probs, (*shape, probs.shape[-1])))


@_law("MultinomialLogits", axes={"logits": 1}, event_dim=1, logits="logits", total_count="count")
def _multinomial_logits(rng: Any, shape: Any, logits: Array, total_count: Array) -> Array:
    return _multinomial(rng, shape, logits, total_count)


@_law("CategoricalProbs", axes={"probs": 1}, probs="simplex")
def _categorical(rng: Any, shape: Any, probs: Array) -> Array:
    """The number of cumulative probabilities, but the last, at or below a uniform."""
    thresholds = np.cumsum(probs, axis=-1)[..., :-1]
    return np.sum(rng.random(shape)[..., None] >= thresholds, axis=-1)


@_law("CategoricalLogits", axes={"logits": 1}, logits="logits")
def _categorical_logits(rng: Any, shape: Any, logits: Array) -> Array:
    return _categorical(rng, shape, logits)


@_law("Poisson", rate="rate")
def _poisson(rng: Any, shape: Any, rate: Array) -> Array:
    return rng.poisson(rate, shape)


@_law(
    *("GammaPoisson", "NegativeBinomial2", "NegativeBinomialProbs", "NegativeBinomialLogits"),
    concentration="positive",
    rate="positive",
)
def _gamma_poisson(rng: Any, shape: Any, concentration: Array, rate: Array) -> Array:
    return rng.poisson(rng.standard_gamma(concentration, shape) / rate)


@_law("GeometricProbs", probs="chance")
def _geometric(rng: Any, shape: Any, probs: Array) -> Array:
    """Failures before the first success."""
    return rng.geometric(probs, shape) - 1


@_law("GeometricLogits", logits="logit")
def _geometric_logits(rng: Any, shape: Any, logits: Array) -> Array:
    return rng.geometric(logits, shape) - 1


@_law("ZeroInflatedPoisson", gate="probability", rate="rate")
def _zero_inflated_poisson(rng: Any, shape: Any, gate: Array, rate: Array) -> Array:
    return np.where(rng.random(shape) < gate, 0, rng.poisson(rate, shape))


@_law("Delta", v="finite")
def _delta(rng: Any, shape: Any, v: Array) -> Array:
    return np.array(np.broadcast_to(v, shape))
