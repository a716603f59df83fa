"""Log densities written by hand: of noise, of confidential statistics, of sums of clamped records."""

from typing import Any

import numpy as np
from scipy.special import betaln, gammaln, log_expit, log_ndtr, logsumexp, xlog1py, xlogy

LOG_2PI = float(np.log(2 * np.pi))


# Noise --------------------------------------------------------------------------------------------------


def laplace(z: Any, scale: Any) -> Any:
    return -np.abs(z) / scale - np.log(2 * scale)


def normal(z: Any, scale: Any) -> Any:
    return -0.5 * (z / scale) ** 2 - np.log(scale) - 0.5 * LOG_2PI


def discrete_laplace(z: Any, scale: float) -> Any:
    b = np.exp(-1 / scale)
    return np.log((1 - b) / (1 + b)) - np.abs(z) / scale


def discrete_laplace_below(threshold: Any, scale: float) -> Any:
    """Log of P(z < threshold) of two-sided geometric noise, threshold a whole number."""
    b, k = np.exp(-1 / scale), np.asarray(threshold, dtype=float)
    low = (k - 1) / scale - np.log1p(b)  # b^(1 - k) / (1 + b) for k <= 0
    high = np.log1p(-np.exp(-np.maximum(k, 1) / scale) / (1 + b))
    return np.where(k <= 0, low, high)


def discrete_normal(z: Any, scale: float) -> Any:
    every = np.arange(-int(60 * scale) - 60, int(60 * scale) + 61)
    return -0.5 * (z / scale) ** 2 - logsumexp(-0.5 * (every / scale) ** 2)


def staircase(z: Any, epsilon: float, width: float) -> Any:
    """Steps of `width`, each a factor exp(-epsilon) below the one before; the first ends at gamma width."""
    gamma, b = 1 / (1 + np.exp(epsilon / 2)), np.exp(-epsilon)
    steps = np.maximum(np.floor(np.abs(z) / width - gamma) + 1, 0)
    return np.log((1 - b) / (2 * width * (gamma + b * (1 - gamma)))) - epsilon * steps


def tulap(z: Any, epsilon: float) -> Any:
    """Two-sided geometric noise plus uniform noise on (-1/2, 1/2)."""
    return discrete_laplace(np.floor(np.abs(z) + 0.5), 1 / epsilon)


def truncated_laplace(z: Any, scale: float, bound: float) -> Any:
    inside = -np.abs(z) / scale - np.log(2 * scale * -np.expm1(-bound / scale))
    return np.where(np.abs(z) <= bound, inside, -np.inf)


def generalized_cauchy(z: Any, power: float, scale: float) -> Any:
    constant = power * np.sin(np.pi / power) / (2 * np.pi * scale)
    return np.log(constant) - np.log1p(np.abs(z / scale) ** power)


def laplace_below(z: Any, scale: float) -> Any:
    """Log of the distribution function of Laplace noise."""
    z = np.asarray(z, dtype=float)
    return np.where(z < 0, z / scale - np.log(2.0), np.log1p(-0.5 * np.exp(-np.maximum(z, 0) / scale)))


# Laws of statistics and parameters ----------------------------------------------------------------------


def poisson(k: Any, rate: Any) -> Any:
    return xlogy(k, rate) - rate - gammaln(k + 1.0)


def poisson_log_rate(k: Any, log_rate: Any) -> Any:
    return k * log_rate - np.exp(log_rate) - gammaln(k + 1.0)


def binomial(k: Any, n: Any, p: Any) -> Any:
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0) + xlogy(k, p) + xlog1py(n - k, -p)


def binomial_logit(k: Any, n: Any, x: Any) -> Any:
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0) + k * log_expit(x) + (n - k) * log_expit(-x)


def beta_binomial(k: Any, n: Any, a: float, b: float) -> Any:
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0) + betaln(a + k, b + n - k) - betaln(a, b)


def negative_binomial(k: Any, mean: Any, concentration: Any) -> Any:
    """Variance mean + mean^2 / concentration."""
    c = concentration
    return (
        gammaln(k + c) - gammaln(c) - gammaln(k + 1.0) - c * np.log1p(mean / c) + xlogy(k, mean) - k * np.log(c + mean)
    )


def gamma(x: Any, shape: float, rate: float) -> Any:
    return shape * np.log(rate) - gammaln(shape) + (shape - 1) * np.log(x) - rate * x


def log_gamma(u: Any, shape: float, rate: float) -> Any:
    """Density of u = log x, x ~ Gamma(shape, rate)."""
    return shape * np.log(rate) - gammaln(shape) + shape * u - rate * np.exp(u)


def logit_beta(u: Any, a: float, b: float) -> Any:
    """Density of u = log(p / (1 - p)), p ~ Beta(a, b)."""
    return a * log_expit(u) + b * log_expit(-u) - betaln(a, b)


def log_half_normal(u: Any, scale: float) -> Any:
    """Density of u = log x, x ~ HalfNormal(scale)."""
    return np.log(2.0) + normal(np.exp(u), scale) + u


def student(x: Any, df: float, loc: float, scale: float) -> Any:
    constant = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * np.log(df * np.pi) - np.log(scale)
    return constant - (df + 1) / 2 * np.log1p(((x - loc) / scale) ** 2 / df)


def normal_laplace(z: Any, scale: Any, b: Any) -> Any:
    """Log density of the sum of Normal(0, scale) and Laplace(0, b)."""
    ratio = scale / b
    left = z / b + log_ndtr(-z / scale - ratio)
    right = -z / b + log_ndtr(z / scale - ratio)
    return ratio**2 / 2 - np.log(2 * b) + np.logaddexp(left, right)


def expit(x: Any) -> Any:
    return np.exp(log_expit(x))


# Sums of clamped records --------------------------------------------------------------------------------


class ClampedSum:
    """Density of (sum of n records clamped to [low, high]) + noise, by inverting its characteristic function.

    `density` is the record's density on nodes of [low, high]; the mass below and above lies at the ends. The noise has
    a characteristic function that falls off, so that the integral over frequencies converges.
    """

    def __init__(self, low: float, high: float, noise: Any, highest: float, frequencies: int, nodes: int = 160):
        x, w = np.polynomial.legendre.leggauss(nodes)
        self.x, self.w = low + (high - low) * (x + 1) / 2, w * (high - low) / 2
        self.step = highest / frequencies
        self.t = (np.arange(frequencies) + 0.5) * self.step  # midpoints: half of a period in the sum's own coordinate
        self.wave = np.exp(1j * np.outer(self.x, self.t))
        self.ends = np.exp(1j * low * self.t), np.exp(1j * high * self.t)
        self.noise = noise(self.t)

    def record(self, density: Any, below: Any, above: Any) -> Any:
        """Characteristic function of one clamped record, parameters by frequencies."""
        inside = (density * self.w) @ self.wave
        return inside + below[:, None] * self.ends[0] + above[:, None] * self.ends[1]

    def log_density(self, record: Any, n: Any, released: float) -> Any:
        """Log density of the release; below 1e-16, where rounding would show, that of the floor."""
        turned = record**n * self.noise * np.exp(-1j * released * self.t)
        return np.log(np.maximum(turned.real.sum(axis=-1) * self.step / np.pi, 1e-16))


def clamped_normal(sums: ClampedSum, mu: Any, sigma: Any, low: float, high: float) -> Any:
    """Characteristic function of Normal(mu, sigma) clamped to [low, high]."""
    mu, sigma = np.broadcast_arrays(mu, sigma)
    density = np.exp(normal(sums.x - mu[:, None], sigma[:, None]))
    below, above = np.exp(log_ndtr((low - mu) / sigma)), np.exp(log_ndtr((mu - high) / sigma))
    return sums.record(density, below, above)
