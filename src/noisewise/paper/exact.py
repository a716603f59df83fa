"""The exact answers of the paper's examples, by formulas and quadrature that use no sampler of this library.

Count: s ~ Poisson(theta), theta ~ Gamma(alpha, 1), Laplace noise of scale 1/epsilon. The appendix's formula with
incomplete gamma functions, in logs, so that no release and no rate can overflow it. Lalonde: the four-parameter
posterior reduces to sums over one and two dimensions. Written out in docs/derivations/paper.md.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import integrate, interpolate, optimize, special, stats

from noisewise.numerics import Array


def log_gammaincc(a: Any, x: Any) -> Array:
    """log of the regularised upper incomplete gamma function, also where SciPy's, which is without logs, is zero.

    There x is far above a, and Legendre's continued fraction (by Lentz's method) converges fast.
    """
    a, x = np.broadcast_arrays(np.asarray(a, float), np.asarray(x, float))
    with np.errstate(divide="ignore"):
        plain = np.log(special.gammaincc(a, x))
    far = plain < -600.0
    return np.where(far, _by_fraction(a, np.where(far, x, a + 2.0)), plain) if far.any() else plain


def _by_fraction(a: Array, x: Array) -> Array:
    b = x + 1.0 - a
    c, d = np.full_like(b, 1e300), 1.0 / b
    total = d
    for n in range(1, 500):
        step = -n * (n - a)
        b = b + 2.0
        d = 1.0 / (step * d + b)
        c = b + step / c
        total = total * c * d
    return a * np.log(x) - x - special.gammaln(a) + np.log(total)


def log_gammainc(a: Any, x: Any) -> Array:
    """log of the regularised lower incomplete gamma function, also where SciPy's is zero.

    There x is far below a, and the series in x^n / (a + 1) ... (a + n) converges fast.
    """
    a, x = np.broadcast_arrays(np.asarray(a, float), np.asarray(x, float))
    with np.errstate(divide="ignore"):
        plain = np.log(special.gammainc(a, x))
    far = plain < -600.0
    return np.where(far, _by_series(a, np.where(far, x, 0.5 * a)), plain) if far.any() else plain


def _by_series(a: Array, x: Array) -> Array:
    term = total = np.ones_like(a)
    for n in range(1, 500):
        term = term * x / (a + n)
        total = total + term
    with np.errstate(divide="ignore"):  # at x = 0 the function is zero
        return a * np.log(x) - x - special.gammaln(a + 1.0) + np.log(total)


@dataclass(frozen=True)
class Count:
    """The privatised count with prior Gamma(alpha, 1)."""

    released: float = 37.4
    epsilon: float = 0.2
    alpha: float = 25.0

    def log_likelihood(self, theta: Any) -> Array:
        """log pi(s_dp | theta): the counts at or below the release, and those above it (appendix E)."""
        theta = np.asarray(theta, dtype=float)
        up, down = theta * np.exp(self.epsilon), theta * np.exp(-self.epsilon)
        above = down - theta + self.epsilon * self.released
        if self.released < 0.0:  # every count lies above the release
            return np.log(0.5 * self.epsilon) + above
        cells = np.floor(self.released) + 1.0
        below = up - theta - self.epsilon * self.released + log_gammaincc(cells, up)
        return np.log(0.5 * self.epsilon) + np.logaddexp(below, above + log_gammainc(cells, down))

    def log_joint(self, theta: Any) -> Array:
        """log of prior times likelihood."""
        return stats.gamma.logpdf(theta, self.alpha) + self.log_likelihood(theta)

    @cached_property
    def evidence(self) -> float:
        """pi(s_dp), by quadrature."""
        return self._integral(lambda theta: 1.0)

    def _integral(self, weigh: Any) -> float:
        centre, spread = self.alpha, np.sqrt(self.alpha)
        cuts = sorted({0.0, max(centre - 5 * spread, 1e-9), centre, max(self.released, 1.0), centre + 5 * spread})
        top = max(4.0 * max(self.released, 1.0), centre + 40.0 * spread + 40.0)
        edges = [*cuts, top] if cuts[-1] < top else cuts
        parts = [
            integrate.quad(lambda x: weigh(x) * np.exp(self.log_joint(x)), low, high, epsabs=0.0, epsrel=1e-11)[0]
            for low, high in pairwise(edges)
        ]
        return float(sum(parts))

    @property
    def acceptance_rate(self) -> float:
        """Of Algorithm 1: the evidence over the largest noise density, epsilon / 2."""
        return self.evidence / (0.5 * self.epsilon)

    @cached_property
    def mean(self) -> float:
        """Posterior mean."""
        return self._integral(lambda theta: theta) / self.evidence

    @cached_property
    def sd(self) -> float:
        """Posterior standard deviation."""
        return float(np.sqrt(self._integral(lambda theta: (theta - self.mean) ** 2) / self.evidence))

    @cached_property
    def kurtosis(self) -> float:
        """Excess kurtosis of the posterior."""
        return self._integral(lambda theta: (theta - self.mean) ** 4) / self.evidence / self.sd**4 - 3.0

    def density(self, theta: Any) -> Array:
        """The posterior density, normalised by quadrature."""
        return np.exp(self.log_joint(theta)) / self.evidence

    def cdf(self, theta: Any) -> Array:
        """The posterior distribution function, on a fine grid, interpolated."""
        grid = np.linspace(1e-9, max(4.0 * max(self.released, 1.0), self.alpha + 40.0 * np.sqrt(self.alpha)), 40_001)
        mass = integrate.cumulative_simpson(self.density(grid), x=grid, initial=0.0)
        return np.interp(theta, grid, mass / mass[-1])

    def naive_density(self, theta: Any) -> Array:
        """The conjugate posterior that takes the release for the count."""
        return stats.gamma.pdf(theta, self.alpha + self.released, scale=0.5)

    @cached_property
    def maximum(self) -> tuple[float, float]:
        """Maximum likelihood estimate and observed information, by search and a central difference."""
        top = optimize.minimize_scalar(
            lambda x: -float(self.log_likelihood(x)),
            bounds=(1e-6, 4.0 * max(self.released, 1.0)),
            method="bounded",
            options={"xatol": 1e-10},
        ).x
        h = 1e-2
        heights = [float(self.log_likelihood(top + k * h)) for k in (-2, -1, 0, 1, 2)]
        second = (-heights[0] + 16 * heights[1] - 30 * heights[2] + 16 * heights[3] - heights[4]) / (12 * h * h)
        return float(top), -second


class Grid:
    """A density on a grid: its distribution function, quantiles and mean."""

    def __init__(self, points: Array, log_density: Array) -> None:
        density = np.exp(log_density - log_density.max())
        mass = integrate.cumulative_simpson(density, x=points, initial=0.0)
        self.mean = float(integrate.simpson(points * density, x=points) / integrate.simpson(density, x=points))
        # between grid points by the cubic that has the density for its slope
        curve = interpolate.CubicHermiteSpline(points, mass / mass[-1], density / mass[-1])
        self.points = np.unique(np.linspace(points[:-1], points[1:], 11).ravel())
        self.cdf = np.maximum.accumulate(curve(self.points))

    def quantile(self, level: float) -> float:
        """The inverse of the distribution function, interpolated."""
        rising = np.concatenate([[True], np.diff(self.cdf) > 0])
        return float(np.interp(level, self.cdf[rising], self.points[rising]))


@dataclass(frozen=True)
class Lalonde:
    """Two normal groups seen through noisy means and variances (section 5.2).

    `released`: the means of treated and controls, then their variances.
    """

    released: tuple[float, ...]
    sizes: tuple[int, int] = (185, 260)
    scales: tuple[float, float] = (3.0, 6.0)

    @cached_property
    def _sigma(self) -> Array:
        return np.linspace(1e-3, 40.0, 801)

    @cached_property
    def _centre(self) -> Array:
        return np.linspace(-60.0, 60.0, 1201)

    def _group(self, group: int) -> Array:
        """log of sigma's prior, its noisy variance and its noisy mean: over (sigma, the group's mean)."""
        sigma, n = self._sigma, self.sizes[group]
        spread = sigma / np.sqrt(n)
        log_mean = log_normal_laplace(self.released[group] - self._centre[None, :], spread[:, None], self.scales[0])
        nodes, node_weights = np.polynomial.legendre.leggauss(400)
        levels = 0.5 * (nodes + 1.0)
        # the sample variance given sigma is sigma^2 times one fixed law: sum over that law's quantiles
        ratio = stats.gamma.ppf(levels, (n - 1) / 2.0, scale=2.0 / (n - 1))
        gap = np.abs(self.released[2 + group] - sigma[:, None] ** 2 * ratio)
        log_var = special.logsumexp(-gap / self.scales[1], b=0.5 * node_weights, axis=1)
        return stats.gamma.logpdf(sigma, 2.0, scale=5.0)[:, None] + log_var[:, None] + log_mean

    @cached_property
    def posterior(self) -> dict[str, Grid]:
        """Marginals of tau, mu and the two variances."""
        treated, control = self._group(0), self._group(1)
        centre = self._centre
        log_t, log_c = special.logsumexp(treated, axis=0), special.logsumexp(control, axis=0)
        # tau = (treated mean) - mu
        tau = centre[:, None] - centre[None, :]
        prior = stats.norm.logpdf(tau, 0.0, 5.0) + stats.norm.logpdf(centre, 4.0, 5.0)[None, :]
        joint = log_t[:, None] + log_c[None, :] + prior  # (treated mean, mu)
        by_treated, by_mu = special.logsumexp(joint, axis=1), special.logsumexp(joint, axis=0)
        sigma_t = special.logsumexp(treated + (by_treated - log_t)[None, :], axis=1)
        sigma_c = special.logsumexp(control + (by_mu - log_c)[None, :], axis=1)
        # differences of grid points: sums over the joint's diagonals
        size = len(centre)
        weight = np.exp(joint - joint.max())
        sums = np.array([np.trace(weight, offset=-k) for k in range(-(size - 1), size)])
        gaps = np.arange(-(size - 1), size) * (centre[1] - centre[0])
        square = self._sigma**2
        with np.errstate(divide="ignore"):
            return {
                "tau": Grid(gaps, np.log(sums)),
                "mu": Grid(centre, by_mu),
                "sigma_t_squared": Grid(square, sigma_t - np.log(2.0 * self._sigma)),
                "sigma_c_squared": Grid(square, sigma_c - np.log(2.0 * self._sigma)),
            }


@dataclass(frozen=True)
class Noiseless:
    """The same two groups with `observed` taken for the confidential statistics.

    Given the standard deviations tau and mu are jointly normal, so every marginal is a sum over two dimensions.
    """

    observed: tuple[float, ...]
    sizes: tuple[int, int] = (185, 260)

    def _sigma(self, group: int) -> tuple[Array, Array]:
        """A grid over nine standard errors each way, and the log of prior times density of the sample variance."""
        n, variance = self.sizes[group], self.observed[2 + group]
        sigma = np.sqrt(variance) * np.linspace(1.0 - 9.0 / np.sqrt(2.0 * n), 1.0 + 9.0 / np.sqrt(2.0 * n), 121)
        log_density = stats.gamma.logpdf(variance, (n - 1) / 2.0, scale=2.0 * sigma**2 / (n - 1))
        return sigma, stats.gamma.logpdf(sigma, 2.0, scale=5.0) + log_density

    @cached_property
    def posterior(self) -> dict[str, Grid]:
        """Marginals of tau, mu and the two variances."""
        (sigma_t, log_t), (sigma_c, log_c) = self._sigma(0), self._sigma(1)
        # prior of (treated mean, mu): mu ~ N(4, 5), tau ~ N(0, 5)
        shared, prior = np.array([4.0, 4.0]), 25.0 * np.array([[2.0, 1.0], [1.0, 1.0]])
        noise = np.zeros((len(sigma_t), len(sigma_c), 2, 2))
        noise[..., 0, 0], noise[..., 1, 1] = sigma_t[:, None] ** 2 / self.sizes[0], sigma_c**2 / self.sizes[1]
        gap = np.asarray(self.observed[:2]) - shared
        inverse = np.linalg.inv(prior + noise)
        log_weight = 0.5 * np.linalg.slogdet(inverse)[1] - 0.5 * np.einsum("i,...ij,j", gap, inverse, gap)
        log_weight = log_weight + log_t[:, None] + log_c
        mean = shared + prior @ inverse @ gap
        covariance = prior - prior @ inverse @ prior
        tau, mu = (  # the treated mean less mu, and mu
            _mixture(log_weight, mean @ direction, np.sqrt(np.einsum("i,...ij,j", direction, covariance, direction)))
            for direction in (np.array([1.0, -1.0]), np.array([0.0, 1.0]))
        )
        by_t, by_c = special.logsumexp(log_weight, axis=1), special.logsumexp(log_weight, axis=0)
        return {
            "tau": tau,
            "mu": mu,
            "sigma_t_squared": Grid(sigma_t**2, by_t - np.log(2.0 * sigma_t)),
            "sigma_c_squared": Grid(sigma_c**2, by_c - np.log(2.0 * sigma_c)),
        }


def _mixture(log_weight: Array, mean: Array, sd: Array) -> Grid:
    """A mixture of normal laws, on a grid."""
    weight = np.exp(log_weight - special.logsumexp(log_weight)).ravel()
    matters = weight > 1e-14 * weight.max()
    weight, mean, sd = weight[matters], mean.ravel()[matters], sd.ravel()[matters]
    points = np.linspace((mean - 9.0 * sd).min(), (mean + 9.0 * sd).max(), 401)
    with np.errstate(divide="ignore"):
        return Grid(points, np.log([(weight / sd) @ np.exp(-0.5 * ((x - mean) / sd) ** 2) for x in points]))


def log_normal_laplace(x: Array, sd: Array, scale: float) -> Array:
    """log density at x of a centred normal plus Laplace noise, in closed form and in logs."""
    ratio = sd / scale
    right = special.log_ndtr(x / sd - ratio) - x / scale
    left = special.log_ndtr(-x / sd - ratio) + x / scale
    return 0.5 * ratio**2 - np.log(2.0 * scale) + np.logaddexp(right, left)
