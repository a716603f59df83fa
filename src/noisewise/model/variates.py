"""NumPy samplers for NumPyro's laws: the table that the CPU engines draw from.

NumPy's generators are several times faster than `jax.random` on a CPU and release the interpreter lock,
so the analyst's functions run in JAX and the variates are drawn here. `families.FACTS` says which attributes a law has,
and their domains; an entry draws independent variates of a given shape. A parameter that a generator cannot honour is
an error, never a dropped or altered proposal. Only probabilities are altered: rounding errors are clipped.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import Distribution
from scipy.special import expit, log_ndtr, ndtri_exp, softmax

from noisewise.model.families import FACTS
from noisewise.numerics import Array
from noisewise.numerics.normal_pairs import fill_with_normals

Draw = Callable[..., Array]

MOST = 9e18
"""Beyond this NumPy's 64-bit counts overflow."""
_MOST_BITS = np.float64(MOST).view(np.uint64)
_ROUNDING = 1e-6


class BadParameter(ValueError):
    """A law's parameter outside its domain; `where` marks the offending entries."""

    def __init__(self, message: str, where: Array) -> None:
        super().__init__(message)
        self.where = where


class BeyondRange(BadParameter):
    """A parameter too large or too small for 64 bits, in its domain but for that: `name` tells which.

    It is `finite` where it is a number all the same: a rate whose counts 64 bits do not hold. Infinite, or zero, it may
    have become by degrees, or may be a mistake; `Law` finds out which.
    """

    def __init__(self, message: str, where: Array, name: str, finite: bool) -> None:
        super().__init__(message, where)
        self.name, self.finite = name, finite


@dataclass(frozen=True)
class Variate:
    """How to draw one law: its attributes with the rule each obeys, and the sampler.

    `draw(rng, shape, **attributes)` returns variates of shape `shape` plus the law's own event axes;
    attributes broadcast against `shape` (plus their own `axes`).
    """

    rules: Mapping[str, str]
    draw: Draw
    axes: Mapping[str, int]
    event_dim: int
    in_parts: bool = True
    """Whether the sampler goes through the entries once, in order: drawn part by part, the variates are the same."""
    fills: bool = False
    """Whether the sampler takes `out`, an array of the variates' shape to put them into."""

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...], attributes: dict[str, Array]) -> Array:
        """Check the attributes, then draw."""
        return self.draw(rng, shape, **self.checked(attributes))

    def checked(self, attributes: Mapping[str, Array]) -> dict[str, Array]:
        """The attributes as the sampler takes them; `BadParameter` where one breaks its rule."""
        return {name: RULES[self.rules[name]](name, value) for name, value in attributes.items()}


def _require(condition: Array, name: str, rule: str, value: Array, far: Array | None = None) -> None:
    """Refuse where the condition fails; as `BeyondRange` where it fails only at values that are `far`."""
    if not np.all(condition):
        wrong = ~np.asarray(condition)
        shown, marked = np.broadcast_arrays(value, wrong)
        bad = shown[marked]
        first = bad.flat[0]
        message = f"'{name}' must be {rule}, got {float(f'{first:.6g}') if bad.dtype.kind == 'f' else first}"
        if far is not None and np.all(far | ~wrong):
            raise BeyondRange(message, wrong, name, bool(np.all(np.isfinite(bad) & (bad != 0))))
        raise BadParameter(message, wrong)


def _ends(value: Array) -> tuple[Any, Any]:
    """Least and largest entry, NaN where any entry is NaN: two passes replace a mask of all entries."""
    return (value.min(), value.max()) if np.size(value) else (1.0, 1.0)


def _finite(name: str, value: Array) -> Array:
    if not -np.inf < value.sum() < np.inf:  # one pass; a sum that overflows is looked at again
        _require(np.isfinite(value), name, "finite", value, np.isinf(value))
    return value


def _positive(name: str, value: Array) -> Array:
    low, high = _ends(value)
    if not 0 < low <= high < np.inf:
        far = (value == 0) | (value == np.inf)
        _require((value > 0) & (value < np.inf), name, "positive and finite", value, far)
    return value


def _rate(name: str, value: Array) -> Array:
    # As whole numbers, bits of floats from +0 on are in the order of the floats; negative ones and NaN are above them.
    bits = value.view(np.uint64) if value.dtype == np.float64 and value.size else None
    if bits is None or not bits.max() < _MOST_BITS:
        rule = f"non-negative and below {MOST:g}"
        _require((value >= 0) & (value < MOST), name, rule, value, value >= MOST)
    return value


def _count(name: str, value: Array) -> Array:
    valid = (value >= 0) & (value < MOST) & (value == np.floor(value))
    _require(valid, name, f"a non-negative whole number below {MOST:g}", value, value >= MOST)
    return np.asarray(value).astype(np.int64)


def _probability(name: str, value: Array) -> Array:
    inside = (value >= -_ROUNDING) & (value <= 1 + _ROUNDING)
    _require(inside, name, "a probability", value)
    return np.clip(value, 0.0, 1.0)


def _chance(name: str, value: Array) -> Array:
    value = _probability(name, value)
    _require(value > 0, name, "a positive probability", value, value == 0)
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


def _draws(*names: str, in_parts: bool = True, fills: bool = False) -> Callable[[Draw], Draw]:
    """A decorator that registers the sampler of the laws with these class names."""

    def register(draw: Draw) -> Draw:
        for name in names:
            facts = FACTS[name]
            VARIATES[name] = Variate(facts.parameters, draw, facts.axes, facts.event_dim, in_parts, fills)
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


@_draws("Normal", fills=True)
def _normal(rng: Any, shape: Any, loc: Array, scale: Array, out: Array | None = None) -> Array:
    drawn = _centred_normal(rng, shape, scale, out)
    drawn += loc
    return drawn


def _centred_normal(rng: Any, shape: Any, scale: Array, out: Array | None) -> Array:
    """NumPy's variates; where `out` is given, as for records, variates made in pairs, which take half the time."""
    if out is not None and np.size(scale) == 1:
        return fill_with_normals(rng, out, float(np.ravel(scale)[0]))
    drawn: Array = rng.standard_normal(shape) if out is None else fill_with_normals(rng, out)
    drawn *= scale
    return drawn


@_draws("LogNormal", fills=True)
def _log_normal(rng: Any, shape: Any, loc: Array, scale: Array, out: Array | None = None) -> Array:
    drawn = _normal(rng, shape, loc, scale, out)
    return np.exp(drawn, out=out)


@_draws("HalfNormal", fills=True)
def _half_normal(rng: Any, shape: Any, scale: Array, out: Array | None = None) -> Array:
    drawn = _centred_normal(rng, shape, scale, out)
    return np.abs(drawn, out=drawn)


@_draws("StudentT")
def _student(rng: Any, shape: Any, df: Array, loc: Array, scale: Array) -> Array:
    return loc + scale * rng.standard_t(df, shape)


@_draws("Cauchy")
def _cauchy(rng: Any, shape: Any, loc: Array, scale: Array) -> Array:
    return loc + scale * rng.standard_cauchy(shape)


@_draws("HalfCauchy")
def _half_cauchy(rng: Any, shape: Any, scale: Array) -> Array:
    return scale * np.abs(rng.standard_cauchy(shape))


@_draws("Laplace")
def _laplace(rng: Any, shape: Any, loc: Array, scale: Array) -> Array:
    return loc + scale * rng.laplace(size=shape)


@_draws("Logistic")
def _logistic(rng: Any, shape: Any, loc: Array, scale: Array) -> Array:
    return loc + scale * rng.logistic(size=shape)


@_draws("Gumbel")
def _gumbel(rng: Any, shape: Any, loc: Array, scale: Array) -> Array:
    return loc + scale * rng.gumbel(size=shape)


@_draws("Exponential", fills=True)
def _exponential(rng: Any, shape: Any, rate: Array, out: Array | None = None) -> Array:
    drawn = rng.standard_exponential(shape, out=out)
    drawn /= rate
    return drawn


@_draws("Gamma", fills=True)
def _gamma(rng: Any, shape: Any, concentration: Array, rate: Array, out: Array | None = None) -> Array:
    drawn = rng.standard_gamma(concentration, shape, out=out)
    drawn /= rate
    return drawn


@_draws("InverseGamma")
def _inverse_gamma(rng: Any, shape: Any, concentration: Array, rate: Array) -> Array:
    with np.errstate(divide="ignore", over="ignore"):  # the reciprocal of a tiny gamma variate is beyond range
        return rate / rng.standard_gamma(concentration, shape)


@_draws("Chi2")
def _chi2(rng: Any, shape: Any, df: Array) -> Array:
    return 2.0 * rng.standard_gamma(0.5 * df, shape)


@_draws("Beta")
def _beta(rng: Any, shape: Any, concentration1: Array, concentration0: Array) -> Array:
    return rng.beta(concentration1, concentration0, shape)


@_draws("Uniform", fills=True)
def _uniform(rng: Any, shape: Any, low: Array, high: Array, out: Array | None = None) -> Array:
    _require(low < high, "low", "below 'high'", low)
    drawn = rng.random(shape, out=out)
    drawn *= high - low
    drawn += low
    return drawn


@_draws("Weibull")
def _weibull(rng: Any, shape: Any, scale: Array, concentration: Array) -> Array:
    return scale * rng.standard_exponential(shape) ** (1.0 / concentration)


@_draws("Pareto")
def _pareto(rng: Any, shape: Any, scale: Array, alpha: Array) -> Array:
    return scale * np.exp(rng.standard_exponential(shape) / alpha)


@_draws("TwoSidedTruncatedDistribution")
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


@_draws("LeftTruncatedDistribution")
def _left_truncated_normal(rng: Any, shape: Any, loc: Array, scale: Array, low: Array) -> Array:
    return _truncated_normal(rng, shape, loc, scale, low, np.asarray(np.inf))


@_draws("RightTruncatedDistribution")
def _right_truncated_normal(rng: Any, shape: Any, loc: Array, scale: Array, high: Array) -> Array:
    return _truncated_normal(rng, shape, loc, scale, np.asarray(-np.inf), high)


@_draws("Dirichlet", in_parts=False)
def _dirichlet(rng: Any, shape: Any, concentration: Array) -> Array:
    """Normalised gammas in logs, G(a) = G(a + 1) U^(1/a), so that small concentrations do not underflow."""
    full = (*shape, concentration.shape[-1])
    log_gamma = np.log(rng.standard_gamma(concentration + 1.0, full))
    return softmax(log_gamma - rng.standard_exponential(full) / concentration, axis=-1)


@_draws("MultivariateNormal")
def _multivariate_normal(rng: Any, shape: Any, loc: Array, scale_tril: Array) -> Array:
    standard = rng.standard_normal((*shape, scale_tril.shape[-1]))
    return loc + np.matmul(scale_tril, standard[..., None])[..., 0]


# Discrete laws ---------------------------------------------------------------------------------------


@_draws("BernoulliProbs")
def _bernoulli(rng: Any, shape: Any, probs: Array) -> Array:
    return (rng.random(shape) < probs).astype(np.int64)


@_draws("BernoulliLogits")
def _bernoulli_logits(rng: Any, shape: Any, logits: Array) -> Array:
    return _bernoulli(rng, shape, logits)


@_draws("BinomialProbs")
def _binomial(rng: Any, shape: Any, probs: Array, total_count: Array) -> Array:
    return rng.binomial(total_count, probs, shape)


@_draws("BinomialLogits")
def _binomial_logits(rng: Any, shape: Any, logits: Array, total_count: Array) -> Array:
    return rng.binomial(total_count, logits, shape)


@_draws("BetaBinomial", in_parts=False)
def _beta_binomial(rng: Any, shape: Any, concentration1: Array, concentration0: Array, total_count: Array) -> Array:
    return rng.binomial(total_count, rng.beta(concentration1, concentration0, shape), shape)


@_draws("MultinomialProbs")
def _multinomial(rng: Any, shape: Any, probs: Array, total_count: Array) -> Array:
    return rng.multinomial(np.broadcast_to(total_count, shape), np.broadcast_to(probs, (*shape, probs.shape[-1])))


@_draws("MultinomialLogits")
def _multinomial_logits(rng: Any, shape: Any, logits: Array, total_count: Array) -> Array:
    return _multinomial(rng, shape, logits, total_count)


@_draws("CategoricalProbs")
def _categorical(rng: Any, shape: Any, probs: Array) -> Array:
    """The number of cumulative probabilities, without the last, that are at or below a uniform variate."""
    thresholds = np.cumsum(probs, axis=-1)[..., :-1]
    return np.sum(rng.random(shape)[..., None] >= thresholds, axis=-1)


@_draws("CategoricalLogits")
def _categorical_logits(rng: Any, shape: Any, logits: Array) -> Array:
    return _categorical(rng, shape, logits)


@_draws("Poisson")
def _poisson(rng: Any, shape: Any, rate: Array) -> Array:
    return rng.poisson(rate, shape)


@_draws("GammaPoisson", "NegativeBinomial2", "NegativeBinomialProbs", "NegativeBinomialLogits", in_parts=False)
def _gamma_poisson(rng: Any, shape: Any, concentration: Array, rate: Array) -> Array:
    with np.errstate(over="ignore"):
        mean = np.asarray(rng.standard_gamma(concentration, shape) / rate)
    return rng.poisson(_rate("rate", mean))


@_draws("GeometricProbs")
def _geometric(rng: Any, shape: Any, probs: Array) -> Array:
    """Failures before the first success."""
    return rng.geometric(probs, shape) - 1


@_draws("GeometricLogits")
def _geometric_logits(rng: Any, shape: Any, logits: Array) -> Array:
    return rng.geometric(logits, shape) - 1


@_draws("ZeroInflatedPoisson", in_parts=False)
def _zero_inflated_poisson(rng: Any, shape: Any, gate: Array, rate: Array) -> Array:
    return np.where(rng.random(shape) < gate, 0, rng.poisson(rate, shape))


@_draws("Delta")
def _delta(rng: Any, shape: Any, v: Array) -> Array:
    return np.array(np.broadcast_to(v, shape))
