"""Report noisy max, and permute-and-flip, with their exact selection probabilities."""

import math
from typing import Any

import numpy as np
from scipy.special import roots_legendre

from noisewise import checks
from noisewise.mechanisms.discrete import by_rows, log, log_sum
from noisewise.mechanisms.exponential import log_softmax
from noisewise.mechanisms.selection import Selection, calibrated, largest

_LOG_TWO = math.log(2.0)
_REACH = 45.0
"""exp(-45) is below a relative rounding error of any sum here."""
_PANELS = np.array([0.0, 1.0, 3.0, 8.0, 20.0, _REACH])


class ReportNoisyMax(Selection):
    """Releases the index of the largest of s_i + scale * z_i, z_i independent noise; the noisy values stay secret.

    `noise`: "laplace" (Dwork and Roth 2014, section 3.3), "gumbel" (the exponential mechanism, exactly) or
    "exponential" (permute-and-flip, exactly; Ding et al. 2021).
    P(i) = integral of f(x - s_i / scale) prod_{j != i} F(x - s_j / scale) dx. Gumbel: a closed form. Exponential: a
    polynomial in exp(-x), which Gauss-Legendre quadrature integrates exactly. Laplace: see `log_laplace_choice`, to
    1e-12 of P.
    Calibration: scale = 2 sensitivity / epsilon is epsilon-DP; sensitivity / epsilon where `monotone`.
    Sampler: the definition. Supremum: 1, approached as s_i rises above the others.
    """

    static = ("noise",)
    arguments = Selection.arguments | {"noise": {"enum": ["laplace", "gumbel", "exponential"]}}
    noise: str

    def __init__(
        self,
        scale: Any = None,
        noise: str = "laplace",
        *,
        epsilon: Any = None,
        sensitivity: Any = None,
        monotone: bool = False,
    ) -> None:
        checks.choice("ReportNoisyMax", "noise", noise, ["laplace", "gumbel", "exponential"])
        self._freeze(noise=noise, **calibrated("ReportNoisyMax", scale, epsilon, sensitivity, monotone))

    def log_choice(self, xp: Any, gaps: Any, own: Any) -> Any:
        """The exact probability, by the kind of noise."""
        if self.noise == "gumbel":
            return log_softmax(xp, gaps, own)
        rule = log_flip_choice if self.noise == "exponential" else log_laplace_choice
        return rule(xp, gaps, own)

    def choose(self, rng: np.random.Generator, gaps: Any) -> Any:
        """The largest noisy gap."""
        draw: Any = {"laplace": rng.laplace, "gumbel": rng.gumbel, "exponential": rng.exponential}[self.noise]
        return largest(draw(size=gaps.shape), gaps)


class PermuteAndFlip(Selection):
    """Goes through the candidates in random order and stops at i with probability exp((s_i - max s) / scale).

    P(i) = p_i * integral over t in (0, 1) of prod_{j != i} (1 - p_j t) dt with p_i = exp((s_i - max s) / scale): give
    each candidate a uniform time t; i is selected if it accepts and no earlier one does. The integrand is a
    polynomial of degree k - 1, which Gauss-Legendre quadrature with k / 2 nodes integrates exactly, all terms being
    positive.
    Calibration: scale = 2 sensitivity / epsilon is epsilon-DP; sensitivity / epsilon where `monotone` (McKenna and
    Sheldon 2020). Sampler: the accepting candidate with the smallest time. Supremum: 1, approached as s_i rises
    above the others.
    """

    def __init__(
        self, scale: Any = None, *, epsilon: Any = None, sensitivity: Any = None, monotone: bool = False
    ) -> None:
        self._freeze(**calibrated("PermuteAndFlip", scale, epsilon, sensitivity, monotone))

    def log_choice(self, xp: Any, gaps: Any, own: Any) -> Any:
        """gap_i + log of the integral."""
        return log_flip_choice(xp, gaps, own)

    def choose(self, rng: np.random.Generator, gaps: Any) -> Any:
        """Uniform times; those that do not accept are put after all others."""
        time, coin = rng.random(gaps.shape), rng.random(gaps.shape)
        return np.argmin(np.where(coin < np.exp(gaps), time, 2.0), axis=-1)


# The integrals ------------------------------------------------------------------------------------------------------


def log_flip_choice(xp: Any, gaps: Any, own: Any) -> Any:
    """log of p_i int_0^1 prod_{j != i} (1 - p_j t) dt, p = exp(gaps)."""
    accept = xp.where(own, 0.0, xp.exp(gaps))
    return xp.sum(xp.where(own, gaps, 0.0), axis=-1) + xp.log(_polynomial_integral(xp, accept))


def _polynomial_integral(xp: Any, rates: Any) -> Any:
    """int_0^1 prod_j (1 - rate_j t) dt, exact: Gauss-Legendre nodes for the polynomial's degree, positive terms."""
    nodes, weights = roots_legendre(rates.shape[-1] // 2 + 1)
    time = xp.asarray(0.5 * (1.0 + nodes))
    product: Any = 1.0
    for candidate in range(rates.shape[-1]):
        product = product * (1.0 - rates[..., candidate, None] * time)
    return xp.sum(product * xp.asarray(0.5 * weights), axis=-1)


def log_laplace_choice(xp: Any, gaps: Any, own: Any) -> Any:
    """log P(i has the largest score plus standard Laplace noise).

    Measure from i's own score: d_j = gap_j - gap_i, F and f the Laplace distribution function and density, so that
    P(i) is the integral of f(x) prod_{j != i} F(x - d_j). A candidate above x has the factor exp(x - d_j) / 2, and so
    has i itself (d_i = 0); one below x has 1 - exp(d_j - x) / 2, but i has exp(-x) / 2.
    - Below all scores: a pure exponential, in closed form.
    - Above all scores: a polynomial in exp(-x), exact by Gauss-Legendre.
    - Between consecutive scores a < b: exp(rate x) times a product over those below that is bounded and increasing;
      rate is the number of candidates above, less one if i is below. For rate > 0 only the last 45 / rate matter, for
      rate = 0 the product is 1 beyond 45. What remains is an entire function, integrated on panels that widen from the
      lower end, each with Gauss-Legendre nodes, 24 of them up to 50 candidates.
    """
    lead, candidates = gaps.shape[:-1], gaps.shape[-1]
    rows = (gaps.reshape(-1, candidates), own.reshape(-1, candidates))
    cells = candidates * (len(_PANELS) - 1) * _node_count(candidates)
    return by_rows(xp, lambda gaps, own: _laplace_rows(xp, gaps, own), rows, cells).reshape(lead)


def _node_count(candidates: int) -> int:
    # With these, probabilities sum to one within 1e-12, for scores near and far apart, up to 200 candidates; the
    # steepest slope is the number of candidates.
    return max(24, 12 + candidates // 4)


def _laplace_rows(xp: Any, gaps: Any, own: Any) -> Any:
    candidates = gaps.shape[1]
    ahead = xp.where(own, 0.0, gaps - xp.sum(xp.where(own, gaps, 0.0), axis=1, keepdims=True))  # d_j
    real = ahead > -xp.inf
    lowest = xp.min(xp.where(real, ahead, 0.0), axis=1, keepdims=True)
    # Who is above whom is decided once, by rank: compilers may round a recomputed difference the other way.
    order = xp.argsort(xp.where(real, ahead, lowest), axis=1)
    rank = xp.argsort(order, axis=1)
    steps = xp.take_along_axis(xp.where(real, ahead, lowest), order, axis=1)
    size = xp.sum(real, axis=1)
    under = xp.sum(xp.where(real, lowest - xp.where(real, ahead, 0.0), 0.0), axis=1) - size * _LOG_TWO - xp.log(size)

    top = steps[:, -1:]
    rates = xp.where(own, 0.0, 0.5 * xp.exp(ahead - top))
    over = -_LOG_TWO - top[:, 0] + xp.log(_polynomial_integral(xp, rates))
    if candidates == 1:
        return xp.logaddexp(under, over)

    start, end = steps[:, :-1], steps[:, 1:]
    length = end - start
    index = np.arange(candidates - 1)
    passed = xp.sum(xp.where(own, rank, 0), axis=1)[:, None] <= index  # i is below the interval
    above = candidates - 1.0 - index
    rate = above - passed
    reach = _REACH / xp.maximum(rate, 1.0)
    first = xp.where(rate > 0, xp.maximum(length - reach, 0.0), 0.0)
    span = xp.minimum(length, reach)
    nodes, weights = roots_legendre(_node_count(candidates))
    cuts = xp.minimum(xp.asarray(_PANELS), span[..., None])
    half = 0.5 * (cuts[..., 1:] - cuts[..., :-1])
    place = cuts[..., :-1, None] + half[..., None] * (1.0 + nodes)  # row, interval, panel, node; from `first` on
    decay = xp.exp(-(first[..., None, None] + place))
    product: Any = xp.exp(-rate[..., None, None] * (span[..., None, None] - place))
    for candidate in range(candidates):
        behind = xp.maximum(start - ahead[:, candidate, None], 0.0)
        is_below = (rank[:, candidate, None] <= index) & ~own[:, candidate, None]
        share = xp.where(is_below, 0.5 * xp.exp(-behind), 0.0)
        product = product * (1.0 - share[..., None, None] * decay)
    integral = xp.sum(product * weights * half[..., None], axis=(2, 3))
    integral = integral + xp.where(rate > 0, 0.0, xp.maximum(length - _REACH, 0.0))
    # sum over those above of (end - d_j), less end itself where i is below
    exponent = above * end - xp.cumsum(steps[:, ::-1], axis=1)[:, ::-1][:, 1:]
    between = log(xp, integral) - (above + passed) * _LOG_TWO + exponent - xp.where(passed, end, 0.0)
    return log_sum(xp, xp.concatenate([under[:, None], over[:, None], between], axis=1), axis=1)
