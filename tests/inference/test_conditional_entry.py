"""One entry given its release, by closed form, sum or quadrature: against sums and integrals written out here."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats
from targets import brief_rows, briefly

import noisewise as nw
from noisewise import mechanisms
from noisewise.inference.conditional import entry, enumeration, normal, quadrature
from noisewise.inference.conditional.integrals import Integral
from noisewise.inference.problem import Problem
from noisewise.model.coordinates import Space
from noisewise.model.masses import entries
from noisewise.numerics import double, gamma, kronrod

EXACT = 1e-10
"""Agreement of logs: ten digits of the likelihood."""


def log_integral(log_density, points, low=-np.inf, high=np.inf):
    """log of the integral, by Gauss-Legendre on panels that grow by a tenth from 1e-60 of each point's scale."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    edges = [-1e16, 1e16]
    for point, scale in points:
        steps = scale * np.concatenate([[0.0], np.geomspace(1e-60, 1e14, 1800)])
        edges += [*(point + steps), *(point - steps)]
    edges = np.unique(np.clip(edges, max(low, -1e16), min(high, 1e16)))
    half = 0.5 * np.diff(edges)
    at = edges[:-1, None] + half[:, None] * (1.0 + nodes)
    with np.errstate(all="ignore"):
        terms = log_density(at) + np.log(half[:, None] * weights)
    return special.logsumexp(terms[~np.isnan(terms)])


def generalized_cauchy(power, scale):
    return lambda z: np.log(power * np.sin(np.pi / power) / (2 * np.pi * scale)) - np.log1p(np.abs(z / scale) ** power)


def laplace(scale):
    return lambda z: -np.abs(z) / scale - np.log(2.0 * scale)


def gaussian(scale):
    return lambda z: stats.norm.logpdf(z, scale=scale)


def truncated(scale, bound):
    return lambda z: np.where(np.abs(z) <= bound, laplace(scale)(z) - np.log(-np.expm1(-bound / scale)), -np.inf)


def laplace_cell(low, high, scale):
    """P(low <= s + noise < high), from the survival functions on the side where they are small."""
    cdf = stats.laplace(scale=scale).cdf
    return lambda r, s: np.log(np.where(low > s, cdf(s - low) - cdf(s - high), cdf(high - s) - cdf(low - s)))


def additive(noise):
    return lambda r, s: noise(r - s)


CAUCHY3 = mechanisms.GeneralizedCauchy(power=3.0, scale=0.7), additive(generalized_cauchy(3.0, 0.7))
HEAVY = mechanisms.GeneralizedCauchy(power=1.5, scale=2.0), additive(generalized_cauchy(1.5, 2.0))
NARROW, WIDE = (nw.Laplace(scale=1e-9), additive(laplace(1e-9))), (nw.Laplace(scale=1e9), additive(laplace(1e9)))
UNIT = nw.Laplace(scale=1.0), additive(laplace(1.0))
NORMAL = nw.Gaussian(scale=0.5), additive(gaussian(0.5))
SHORT = mechanisms.TruncatedLaplace(scale=0.5, bound=1.3), additive(truncated(0.5, 1.3))
STAIRS = mechanisms.Staircase(epsilon=1.0, sensitivity=0.4)
TULAP = mechanisms.Tulap(epsilon=1.5, delta=0.01)
R = np.inf

CONTINUOUS = {
    "normal law far below a heavy tail": (dist.Normal(4.0, 0.7), stats.norm(4.0, 0.7), CAUCHY3, 582.0, (-R, R)),
    "normal law close to a heavy tail": (dist.Normal(579.0, 0.7), stats.norm(579.0, 0.7), CAUCHY3, 582.0, (-R, R)),
    "Cauchy law, heavy noise": (dist.Cauchy(1.0, 3.0), stats.cauchy(1.0, 3.0), HEAVY, -400.0, (-R, R)),
    "Cauchy law, narrow noise": (dist.Cauchy(1.0, 3.0), stats.cauchy(1.0, 3.0), NARROW, 0.0, (-R, R)),
    "Student law, Gaussian noise": (dist.StudentT(3.0, 0.0, 2.0), stats.t(3.0, 0.0, 2.0), NORMAL, 30.0, (-R, R)),
    "Laplace law, wide noise": (dist.Laplace(0.0, 1e-3), stats.laplace(0.0, 1e-3), WIDE, 2e9, (-R, R)),
    "logistic law, truncated noise": (dist.Logistic(0.0, 0.4), stats.logistic(0.0, 0.4), SHORT, 5.0, (-R, R)),
    "Gumbel law": (dist.Gumbel(0.0, 0.6), stats.gumbel_r(0.0, 0.6), UNIT, -8.0, (-R, R)),
    "gamma law with a pole": (dist.Gamma(0.3, 2.0), stats.gamma(0.3, scale=0.5), UNIT, -0.4, (0.0, R)),
    "gamma law, concentrated": (dist.Gamma(2e4, 1e3), stats.gamma(2e4, scale=1e-3), NORMAL, 25.0, (0.0, R)),
    "chi-squared law": (dist.Chi2(3.0), stats.chi2(3.0), UNIT, 0.0, (0.0, R)),
    "inverse gamma law": (dist.InverseGamma(1.5, 2.0), stats.invgamma(1.5, scale=2.0), UNIT, 60.0, (0.0, R)),
    "log-normal law, broad": (dist.LogNormal(0.0, 3.0), stats.lognorm(3.0), UNIT, 40.0, (0.0, R)),
    "exponential law": (dist.Exponential(0.01), stats.expon(scale=100.0), HEAVY, -3.0, (0.0, R)),
    "Weibull law": (dist.Weibull(2.0, 0.5), stats.weibull_min(0.5, scale=2.0), NORMAL, 1.0, (0.0, R)),
    "Pareto law": (dist.Pareto(2.0, 0.75), stats.pareto(0.75, scale=2.0), HEAVY, 1e6, (2.0, R)),
    "half-normal law": (dist.HalfNormal(2.0), stats.halfnorm(scale=2.0), UNIT, -30.0, (0.0, R)),
    "half-Cauchy law": (dist.HalfCauchy(2.0), stats.halfcauchy(scale=2.0), CAUCHY3, 1e4, (0.0, R)),
    "beta law with a pole": (dist.Beta(0.4, 1.6), stats.beta(0.4, 1.6), UNIT, 0.0, (0.0, 1.0)),
    "uniform law": (dist.Uniform(-1.0, 3.0), stats.uniform(-1.0, 4.0), NORMAL, 5.0, (-1.0, 3.0)),
    "truncated normal law": (
        dist.TruncatedNormal(0.0, 1.0, low=0.5, high=2.0),
        stats.truncnorm(0.5, 2.0),
        UNIT,
        -7.0,
        (0.5, 2.0),
    ),
}
"""Law here, law by SciPy, noise here and by hand, released value, support."""


def narrowest(mechanism):
    return float(mechanism.scale)


def reference(case):
    _, law, (mechanism, noise), released, (low, high) = case
    centre = 0.0 if law.support()[0] == 0.0 else float(law.median())
    points = [(released, narrowest(mechanism)), (centre, float(law.ppf(0.75) - law.ppf(0.25)))]
    points += [(float(law.median()), float(law.ppf(0.6) - law.ppf(0.4)))]
    points += [(end, 1.0) for end in (low, high) if np.isfinite(end)]
    if hasattr(mechanism, "bound"):
        points += [(released + sign * mechanism.bound, 1.0) for sign in (-1.0, 1.0)]
    return log_integral(lambda s: law.logpdf(s) + noise(released, s), points, low, high)


def found(law, mechanism, released):
    with double():
        wide = jax.tree.map(lambda leaf: jnp.asarray(np.float64(leaf)), law)
        assert entry.unfit(wide, mechanism) is None
        by = entry.route(wide, mechanism)
        value = jax.jit(lambda law, mechanism, released: entry.log_marginal(law, mechanism, released, by))
        return jax.tree.map(np.asarray, value(wide, mechanism, released))


QUICK = ("normal law far below a heavy tail", "gamma law with a pole")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in CONTINUOUS]
)
def test_quadrature_is_the_integral(name):
    law, _, (mechanism, _), released, _ = CONTINUOUS[name]
    value = found(law, mechanism, released)
    assert abs(value.log_kept - reference(CONTINUOUS[name])) < EXACT
    assert value.log_beyond - value.log_kept < np.log(EXACT)


def test_a_pole_at_one_is_the_mirror_image_of_a_pole_at_zero():
    shapes = np.array([0.4, 1.6])
    left, right = found(dist.Beta(shapes, shapes[::-1]), nw.Laplace(scale=0.2), np.array([0.05, 0.95])).log_kept
    assert right == pytest.approx(left, abs=EXACT)


PROCESSED = {
    "rounded": (mechanisms.Rounded(nw.Laplace(scale=0.01), step=3.0), 6.0, laplace_cell(4.5, 7.5, 0.01), [4.5, 7.5]),
    "clipped at its end": (
        mechanisms.Clipped(nw.Laplace(scale=2.0), low=0.0),
        0.0,
        laplace_cell(-np.inf, 0.0, 2.0),
        [0.0],
    ),
    "withheld": (mechanisms.Thresholded(nw.Laplace(scale=2.0), 5.0), np.nan, laplace_cell(-np.inf, 5.0, 2.0), [5.0]),
    "staircase": (STAIRS, 1.0, additive(lambda z: STAIRS.noise_log_prob(z)), None),
    "tulap": (TULAP, 1.0, additive(lambda z: TULAP.noise_log_prob(z)), None),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PROCESSED)
@pytest.mark.parametrize("spread", [1e-3, 1.0, 50.0])
def test_quadrature_with_kinks_and_jumps(name, spread):
    mechanism, released, noise, kinks = PROCESSED[name]
    if kinks is None:
        step, first = (0.4, float(STAIRS.gamma) * 0.4) if name == "staircase" else (1.0, 0.5)
        jumps = [*(step * np.arange(40) + first), *([float(TULAP._bound(np))] if name == "tulap" else [])]
        kinks = [released, *(released + sign * jump for jump in jumps for sign in (-1.0, 1.0))]
    law = stats.norm(0.25, spread)
    points = [(0.25, spread), *((kink, 1.0) for kink in kinks)]
    value = found(dist.Normal(0.25, spread), mechanism, released)
    truth = log_integral(lambda s: law.logpdf(s) + noise(released, s), points)
    assert abs(value.log_kept - truth) < EXACT
    assert value.log_beyond - value.log_kept < np.log(EXACT)


@pytest.mark.parametrize("ratio", [1e-9, 1e-3, 1.0, 1e4, 1e9])
@pytest.mark.parametrize("kind", [nw.Laplace, nw.Gaussian])
def test_quadrature_is_the_closed_form_in_any_unit(kind, ratio):
    """Law and noise are as wide as they are beside numbers of size one: distances from landmarks keep their digits."""
    mu, sigma = 0.3, np.float64(1.0 if ratio < 1.0 else 1.0 / ratio)
    mechanism = kind(scale=ratio if ratio < 1.0 else 1.0)
    released = 0.3 + np.array([0.0, 0.1, 1.0, -7.0, 300.0])
    with double():
        law = dist.Normal(jnp.full(5, mu), jnp.asarray(sigma))
        value = jax.tree.map(np.asarray, _by_panels(law, mechanism, released))
        truth = normal.log_marginal(mechanism, released, mu, sigma)
    assert np.all(np.abs(value.log_kept - truth) <= EXACT + 1e-15 * np.abs(truth))
    assert np.all(value.log_beyond - value.log_kept < np.log(EXACT))


_by_panels = jax.jit(lambda law, mechanism, released: quadrature.log_marginal(law, "Normal", mechanism, released))


@pytest.mark.long
def test_draws_by_quadrature_have_the_law():
    """Uniform variates give the quantiles of s given its release, whose distribution function is known here."""
    mu, sigma, scale, released = 0.0, 1.0, 0.3, 1.5
    uniform = (np.arange(4000) + 0.5) / 4000
    with double():
        law, mechanism = dist.Normal(jnp.asarray(mu), jnp.asarray(sigma)), nw.Laplace(scale=scale)
        drawn = np.asarray(
            jax.jit(lambda u: quadrature.draw(u, law, "Normal", mechanism, jnp.full(4000, released)))(uniform)
        )
        inverted = np.asarray(entry.draw(uniform, law, mechanism, released))
    below, above = normal.log_sides(released - mu, sigma, scale)
    share = np.exp(below - np.logaddexp(below, above))

    def cdf(s):
        left = (
            share
            * stats.norm.cdf(np.minimum(s, released), mu + sigma**2 / scale, sigma)
            / stats.norm.cdf(released, mu + sigma**2 / scale, sigma)
        )
        tail = stats.norm.sf(np.maximum(s, released), mu - sigma**2 / scale, sigma) / stats.norm.sf(
            released, mu - sigma**2 / scale, sigma
        )
        return np.where(s < released, left, 1.0 - (1.0 - share) * tail)

    for draws in (drawn, inverted):
        assert np.max(np.abs(cdf(draws) - uniform)) < 1e-9


@pytest.mark.parametrize("size", [1.0, 1e6, 0.01])
def test_the_closed_form_is_inverted_far_out(size):
    """P(z > alpha + e | z > alpha) at the excess is the share that was asked for, from fifteen digits of the tail."""
    alpha = size * np.array([0.5, 1.0, 8.0, 40.0])
    share = np.array([1e-12, 0.3, 0.5, 0.999])
    with double():
        e, ratio = map(np.asarray, _excess_and_ratio(share, alpha))
    back = np.exp(-alpha * e - 0.5 * e * e + ratio)
    assert np.allclose(back, share, rtol=1e-9, atol=0)


@jax.jit
def _excess_and_ratio(share, alpha):
    e = normal._excess_at(share, alpha)
    return e, normal._log_scaled_tail(-(alpha + e)) - normal._log_scaled_tail(-alpha)


COUNTS = {
    "Poisson": (dist.Poisson(3.0), stats.poisson(3.0), UNIT, 2.5),
    "Poisson in conflict": (
        dist.Poisson(0.07),
        stats.poisson(0.07),
        (nw.Laplace(scale=20.0), additive(laplace(20.0))),
        1000.0,
    ),
    "Poisson, wide noise": (
        dist.Poisson(50.0),
        stats.poisson(50.0),
        (nw.Laplace(scale=1e6), additive(laplace(1e6))),
        -3e5,
    ),
    "Poisson, heavy noise": (dist.Poisson(50.0), stats.poisson(50.0), CAUCHY3, 400.0),
    "binomial": (dist.Binomial(40, 0.25), stats.binom(40, 0.25), NORMAL, 12.25),
    "binomial, many": (dist.Binomial(10_000, 0.25), stats.binom(10_000, 0.25), UNIT, 2_503.0),
    "negative binomial": (dist.NegativeBinomial2(32.0, 0.5), stats.nbinom(0.5, 0.5 / 32.5), UNIT, 7.0),
    "geometric": (dist.Geometric(0.25), stats.geom(0.25, loc=-1), NORMAL, 9.0),
    "beta-binomial": (dist.BetaBinomial(2.0, 0.5, 300), stats.betabinom(300, 2.0, 0.5), UNIT, 310.0),
    "Bernoulli": (dist.Bernoulli(0.25), stats.bernoulli(0.25), NORMAL, 0.75),
}
FURTHER = ("Poisson in conflict", "Poisson, wide noise", "Poisson, heavy noise", "binomial")
"""Of laws that are looked at by others, too."""


@pytest.mark.parametrize("name", briefly(COUNTS, [name for name in COUNTS if name not in FURTHER]))
def test_windows_hold_the_sum(name):
    law, by_scipy, (mechanism, noise), released = COUNTS[name]
    value = found(law, mechanism, released)
    k = np.arange(20_001)
    truth = special.logsumexp(by_scipy.logpmf(k) + noise(released, k))
    assert abs(value.log_kept - truth) < EXACT
    assert value.share < EXACT


CLIPPED = mechanisms.Clipped(nw.DiscreteLaplace(scale=2.0), low=0)
FAR_OUT = {
    "clipped": (dist.Poisson(6.0), stats.poisson(6.0).logpmf, CLIPPED, 40.0),
    "clipped, geometric": (dist.Geometric(0.5), stats.geom(0.5, loc=-1).logpmf, CLIPPED, 60.0),
    "withheld": (
        dist.Poisson(1.0),
        stats.poisson(1.0).logpmf,
        mechanisms.Thresholded(nw.Laplace(scale=1.0), 9.0),
        30.0,
    ),
    "zeros apart": (
        dist.ZeroInflatedPoisson(0.25, 4.0),
        lambda k: np.log(0.25 * (k == 0) + 0.75 * stats.poisson.pmf(k, 4.0)),
        nw.Laplace(scale=2.0),
        200.0,
    ),
    "negative binomial": (
        dist.NegativeBinomial2(20.0, 10.0),
        stats.nbinom(10.0, 1 / 3).logpmf,
        nw.Laplace(scale=1.0),
        300.0,
    ),
    "negative binomial, release below": (
        dist.NegativeBinomial2(160.0, 80.0),
        stats.nbinom(80.0, 1 / 3).logpmf,
        nw.Laplace(scale=1.0),
        10.0,
    ),
    "negative binomial with a pole": (
        dist.NegativeBinomial2(4.0, 0.5),
        stats.nbinom(0.5, 1 / 9).logpmf,
        nw.DiscreteGaussian(scale=2.0),
        200.0,
    ),
}


@pytest.mark.parametrize(
    "name", [name if name == "zeros apart" else pytest.param(name, marks=pytest.mark.long) for name in FAR_OUT]
)
def test_far_out_nothing_but_the_sum_is_left(name):
    """One minus the law's mass in a window is rounding, which times the noise's top would be more than all of m."""
    law, log_law, mechanism, released = FAR_OUT[name]
    k = np.arange(400.0)
    with np.errstate(divide="ignore"):
        truth = special.logsumexp(log_law(k) + np.asarray(mechanism.log_prob(released, k)))
    wide = found(law, mechanism, released)
    assert abs(wide.log_bound - truth) < EXACT
    narrow = jax.jit(lambda: nw.Privatised(law, mechanism).log_prob(released))()
    assert abs(narrow / truth - 1.0) < 1e-5  # 32 bits


SHORT = ((-30.0, 0.3), (15.0, 1.0), (400.0, 40.0))
"""What every run of the tests looks at."""


@pytest.mark.parametrize(
    ("released", "concentration"),
    [
        pytest.param(released, concentration, marks=[pytest.mark.long] * ((released, concentration) not in SHORT))
        for released in (-30.0, 15.0, 400.0)
        for concentration in (0.3, 1.0, 40.0)
    ],
)
def test_short_windows_of_negative_binomial_laws_say_what_they_leave_out(released, concentration):
    """Ratios rise to their limit where the concentration is below one, and fall to it above."""
    law, noise, k = dist.NegativeBinomial2(90.0, concentration), nw.Laplace(scale=25.0), np.arange(20_000.0)
    log_law = stats.nbinom(concentration, concentration / (concentration + 90.0)).logpmf(k)
    truth = special.logsumexp(log_law + laplace(25.0)(released - k))
    with double():
        short = _in_96(law, noise, np.float64(released))
        log_kept, log_beyond = np.asarray(short.log_kept), np.asarray(short.log_beyond)
    missing = np.log(np.maximum(np.exp(truth) - np.exp(log_kept), 0.0))
    assert missing > np.log(1e-3) + truth  # else this tells nothing
    assert missing <= log_beyond + 1e-9
    assert log_beyond < missing + np.log(1000.0)


_in_96 = jax.jit(
    lambda law, noise, released: enumeration.log_marginal(law, "NegativeBinomial2", noise, released, 96, False)
)


RATES = {
    "Poisson": (lambda rate: dist.Poisson(rate), lambda rate: stats.poisson(rate)),
    "GammaPoisson": (lambda rate: dist.GammaPoisson(3.0, 3.0 / rate), lambda rate: stats.nbinom(3, 1 / (1 + rate / 3))),
    "GeometricLogits": (lambda rate: dist.GeometricLogits(-jnp.log(rate)), lambda rate: stats.geom(1 / (1 + rate), -1)),
    "BinomialLogits": (
        lambda rate: dist.BinomialLogits(jnp.log(rate), 100_000),
        lambda rate: stats.binom(100_000, rate / (1 + rate)),
    ),
    "BetaBinomial": (
        lambda rate: dist.BetaBinomial(jnp.minimum(rate, 1e9), 2.0, 100_000),
        lambda rate: stats.betabinom(100_000, min(rate, 1e9), 2.0),
    ),
}
"""Laws whose size is a rate, here and by SciPy."""
FALLS = {
    "Laplace": (nw.Laplace(scale=4.0), laplace(4.0)),
    "discrete Gaussian": (
        mechanisms.DiscreteGaussian(scale=4.0),
        lambda z: stats.norm.logpdf(z, scale=4.0),  # the sum of the weights differs from one by exp(-2 pi^2 16)
    ),
    "generalized Cauchy": (
        mechanisms.GeneralizedCauchy(power=4.0, scale=4.0),
        generalized_cauchy(4.0, 4.0),
    ),
}
LOG_RATES = np.array([-600.0, -40.0, 0.0, 3.0, 5.0, 8.0, 11.0, 15.0, 20.0, 30.0, 40.0, 100.0, 600.0])


FAR = {f"{kind}-{noise}": (kind, noise) for kind in RATES for noise in FALLS}
EVERY_LAW_AND_NOISE = [name for name in FAR if name.startswith("Poisson-") or name.endswith("-Laplace")]


@pytest.mark.parametrize(("kind", "noise"), brief_rows(FAR, EVERY_LAW_AND_NOISE))
def test_a_release_is_never_more_likely_under_a_law_far_away(kind, noise):
    """A chain that strays to such parameters must find its way back: the bound falls as they move off, and is one."""
    (law, by_scipy), (mechanism, log_noise), k = RATES[kind], FALLS[noise], np.arange(400_000.0)
    with double():
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), mechanism)
        size, whole = enumeration.window_size(law(jnp.float64(1.0)), wide)
        assert not whole

        def bound(log_rate):
            at = law(jnp.exp(log_rate))
            return enumeration.log_marginal(at, kind, wide, jnp.float64(25.0), size, whole).log_bound

        bounds = np.asarray(jax.jit(jax.vmap(bound))(jnp.asarray(LOG_RATES)))
    assert np.all(np.isfinite(bounds))
    for log_rate, found in zip(LOG_RATES, bounds, strict=True):
        if abs(log_rate) <= 11.0:
            truth = special.logsumexp(by_scipy(np.exp(log_rate)).logpmf(k) + log_noise(25.0 - k))
            assert found >= truth - 1e-9 * (1.0 + abs(truth))
            assert found <= 2.0 + 0.3 * truth  # where the release lies half-way into a tail, a share of the exponent
    top = np.argmax(bounds)
    far = bounds[top + 1 :] if noise != "generalized Cauchy" else bounds[top + 1 :][LOG_RATES[top + 1 :] <= 20.0]
    assert np.all(np.diff(far) <= 0.01)
    assert np.all(bounds[LOG_RATES >= 11.0] < bounds[top] - 5.0)


_in_window = jax.jit(
    lambda law, noise, released, size, whole: enumeration.log_marginal(
        law, "GeometricProbs", noise, released, size, whole
    ),
    static_argnums=(3, 4),
)


@pytest.mark.parametrize("released", [2650.0, 2750.0])
def test_a_hill_at_a_release_beyond_the_window_is_within_the_bound(released):
    """Law and noise both fall slowly: some of the sum is about the law's mean, some about the release."""
    mechanism, k = mechanisms.GeneralizedCauchy(power=4.0, scale=4.0), np.arange(20_000.0)
    logs = stats.geom(1.0 / 101.0, -1).logpmf(k) + generalized_cauchy(4.0, 4.0)(released - k)
    with double():
        law, wide = dist.GeometricProbs(jnp.float64(1.0 / 101.0)), jax.tree.map(jnp.float64, mechanism)
        size, whole = enumeration.window_size(law, wide)
        found = _in_window(law, wide, np.float64(released), size, whole)
        log_kept, log_beyond = float(found.log_kept), float(found.log_beyond)
    assert abs(log_kept - special.logsumexp(logs[:size])) < EXACT  # the window is that about the law's mean
    assert special.logsumexp(logs[size:]) > log_kept + np.log(1e-4)  # else this tells nothing
    assert special.logsumexp(logs[size:]) <= log_beyond


POLES = {
    "Weibull": lambda a: dist.Weibull(3.0, a),
    "beta": lambda a: dist.Beta(a, 0.8 * a),
    "gamma": lambda a: dist.Gamma(0.1 * a, 0.5),
}


def test_a_pole_in_32_bits_is_integrated():
    """The arcsine law is that of sin^2 of a uniform angle."""
    law, released = dist.Beta(0.5, 0.5), 0.01
    angles = np.pi * (np.arange(20_000) + 0.5) / 40_000
    truth = special.logsumexp(laplace(0.5)(released - np.sin(angles) ** 2)) - np.log(angles.size)
    value = np.asarray(jax.jit(lambda: nw.Privatised(law, nw.Laplace(scale=0.5)).log_prob(released))())
    assert value.dtype == np.float32
    assert abs(value - truth) < 1e-5


@pytest.mark.long
@pytest.mark.parametrize("name", POLES)
def test_poles_in_32_bits_are_those_in_64(name):
    """Places beside a pole are smaller than the least number there; the law's mass is not."""

    def value(a, released):
        return nw.Privatised(POLES[name](a), nw.Laplace(scale=0.5)).log_prob(released)

    released = np.array([-0.5, 0.01, 0.9])
    narrow = [np.asarray(part) for part in jax.jvp(lambda a: value(a, released), (0.7,), (1.0,))]
    with double():
        wide = [np.asarray(part) for part in jax.jvp(lambda a: value(a, released), (0.7,), (1.0,))]
    assert narrow[0].dtype == np.float32
    assert np.allclose(narrow[0], wide[0], rtol=1e-5, atol=1e-5)
    assert np.allclose(narrow[1], wide[1], rtol=1e-4, atol=1e-4)
    drawn = nw.confidential(nw.Privatised(POLES[name](0.7), nw.Laplace(scale=0.5)), np.full(99, 0.5), seed=1)
    assert np.all((drawn >= 0.0) & (drawn < 200.0))


def test_log_factorials():
    k = np.array([0.0, 1.0, 2.0, 7.0, 8.0, 9.0, 20.0, 1e3, 1e7])
    with double():
        found = np.asarray(jax.jit(gamma.log_gamma)(k + 1.0))
    assert np.allclose(found, special.gammaln(k + 1.0), rtol=1e-15, atol=1e-14)


def test_zeros_apart_are_summed_apart():
    """A release of 50 with noise of 1 is as good as impossible from 0, but here nearly all values are 0."""
    gate, rate, released = 1.0 - 1e-17, 50.0, 50.25
    value = found(dist.ZeroInflatedPoisson(1.0 - 2.0**-50, rate), nw.Laplace(scale=1.0), released)
    k = np.arange(2000)
    terms = stats.poisson.logpmf(k, rate) + laplace(1.0)(released - k) - 50 * np.log(2.0)
    assert gate == 1.0
    assert (
        abs(value.log_kept - np.logaddexp(special.logsumexp(terms), np.log1p(-(2.0**-50)) + laplace(1.0)(released)))
        < EXACT
    )


def test_a_window_that_is_too_short_says_so():
    """Negative control: half of the law lies outside, and the bound knows."""
    with double():
        law, mechanism = dist.Poisson(jnp.asarray(1e5)), nw.Laplace(scale=3000.0)
        by = entry.route(law, mechanism, size=400)
        value = jax.jit(lambda law: entry.log_marginal(law, mechanism, 1e5, by))(law)
        value, share = jax.tree.map(float, (value, value.share))
        k = np.arange(90_000, 110_000)
        truth = special.logsumexp(stats.poisson.logpmf(k, 1e5) + laplace(3000.0)(1e5 - k))
    missing = -np.expm1(value.log_kept - truth)
    assert 0.1 < missing <= share


@pytest.mark.long
def test_noise_that_jumps_unseen_is_noticed():
    """Negative control: staircase noise without the landmarks of its jumps is integrated badly, and that is seen."""

    class Hidden(mechanisms.Staircase):
        def landmarks(self, released):
            return [(released, self.sensitivity)]

    value = found(dist.Normal(0.0, 2.0), Hidden(epsilon=1.0, sensitivity=1.0), 1.5)
    truth = found(dist.Normal(0.0, 2.0), mechanisms.Staircase(epsilon=1.0, sensitivity=1.0), 1.5)
    assert abs(value.log_kept - truth.log_kept) > 1e-6
    assert value.share > 1e-6


GRADIENTS = {
    "heavy noise": (lambda t: dist.Normal(t[0], t[1]), CAUCHY3[0], 12.0, (4.0, 0.7)),
    "gamma": (lambda t: dist.Gamma(t[0], t[1]), nw.Laplace(scale=1.0), 2.5, (0.4, 1.5)),
    "uniform, ends that move": (lambda t: dist.Uniform(t[0], t[1]), nw.Gaussian(scale=0.5), 2.0, (0.5, 1.75)),
    "negative binomial": (lambda t: dist.NegativeBinomial2(t[0], t[1]), nw.DiscreteLaplace(scale=2.0), 31, (12.0, 1.5)),
    "Poisson, wide noise": (lambda t: dist.Poisson(t[0] * t[1]), nw.Laplace(scale=1e4), 500.0, (12.0, 1.5)),
}


@pytest.mark.parametrize(
    "name", [name if "end" in name else pytest.param(name, marks=pytest.mark.long) for name in GRADIENTS]
)
def test_gradients_are_those_of_the_integral(name):
    law, mechanism, released, place = GRADIENTS[name]
    with double():
        by = entry.route(law(jnp.asarray(place)), mechanism)
        program = jax.jit(jax.value_and_grad(lambda t: entry.log_marginal(law(t), mechanism, released, by).log_kept))
        at = np.array(place)
        slope = np.asarray(program(at)[1])
        for i, step in enumerate(1e-4 * np.eye(2)):
            around = [float(program(at + k * step * at)[0]) for k in (-2, -1, 1, 2)]
            difference = (around[0] - 8 * around[1] + 8 * around[2] - around[3]) / (12e-4 * at[i])
            assert abs(slope[i] - difference) < 1e-7 * max(1.0, abs(difference))


def test_batches_are_entries_one_by_one():
    rates, released, scales = np.array([[0.5], [3.0], [20.0]]), np.array([1.0, 4.0]), np.array([1.0, 2.0])
    with double():
        mechanism = nw.Laplace(scale=scales)

        def of_a_batch(rates):
            law = dist.Poisson(rates).expand((3, 2)).to_event(1)
            return entry.log_marginal(law, mechanism, released).log_kept

        whole = np.asarray(jax.jit(of_a_batch)(rates))
        mapped = jax.vmap(lambda rate: entry.log_marginal(dist.Poisson(rate), mechanism, released).log_kept)
        assert np.allclose(jax.jit(mapped)(rates), whole, rtol=0, atol=1e-13)
    k = np.arange(200)[:, None, None]
    truth = special.logsumexp(stats.poisson.logpmf(k, rates) + stats.laplace.logpdf(released - k, scale=scales), axis=0)
    assert whole.shape == (3, 2)
    assert np.allclose(whole, truth, rtol=0, atol=EXACT)


@pytest.mark.parametrize(
    ("law", "mechanism", "said"),
    [
        (dist.Dirichlet(np.ones(3)), nw.Laplace(scale=1.0), "depend on each other"),
        (dist.Normal(0.0, 1.0), nw.DiscreteLaplace(scale=1.0), "needs whole numbers"),
        (
            dist.Normal(np.zeros(2), 1.0).to_event(1),
            mechanisms.KNorm(scale=1.0, norm="l2", dimension=2),
            "all entries together",
        ),
        (
            dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.transforms.ExpTransform()),
            nw.Laplace(scale=1.0),
            "is transformed",
        ),
        (dist.VonMises(0.0, 1.0), nw.Laplace(scale=1.0), "not known here"),
        (dist.Normal(0.0, 1.0), mechanisms.Staircase(epsilon=0.01, sensitivity=1.0), "not known here"),
    ],
)
def test_what_cannot_be_integrated_out_is_named(law, mechanism, said):
    assert said in entry.unfit(law, mechanism)


def test_without_noise_the_marginal_is_the_law():
    value = found(dist.Gamma(2.0, 1.0), nw.Exact(), 1.5)
    assert abs(value.log_kept - stats.gamma.logpdf(1.5, 2.0)) < EXACT
    assert value.share == 0.0


def test_the_rule_of_kronrod():
    nodes, weights, gauss = kronrod.rule()
    assert np.allclose(nodes[gauss > 0], np.polynomial.legendre.leggauss(10)[0], rtol=0, atol=1e-15)
    for degree in range(0, 32, 2):
        assert abs(weights @ nodes**degree - 2.0 / (degree + 1)) < 1e-14
    assert abs(weights @ nodes**34 - 2.0 / 35) > 1e-14


def test_the_marginal_of_a_statistic_is_the_product_over_its_entries():
    """A Student law under Laplace noise, two entries: by the integral of each."""
    model = nw.Model({"m": dist.Normal(0.0, 1.0)}, {"s": lambda m: dist.StudentT(4.0, m, 1.0).expand([2])})
    release = nw.Release(s=nw.Laplace(scale=0.5).released(np.array([0.3, 2.0])))
    problem = Problem(model, release)
    integral = Integral.of(problem, Space(model), "s")
    with double():
        found = jax.jit(integral.log_kept)({"m": 0.2}, {"s": (release["s"].mechanism, release["s"].value)})
    law = stats.t(4.0, 0.2, 1.0)
    logs = [
        log_integral(lambda s, r=r: law.logpdf(s) + laplace(0.5)(r - s), [(r, 0.5), (0.2, 1.0)], -np.inf, np.inf)
        for r in (0.3, 2.0)
    ]
    assert float(found) == pytest.approx(sum(logs), abs=1e-9)


def test_laws_keep_their_digits_where_they_are_expanded():
    """NumPyro's own formulas have seven."""
    k = np.arange(30)
    with double():
        exact = {
            dist.BetaBinomial(2.0, 5.0, 40): stats.betabinom.logpmf(k, 40, 2.0, 5.0),
            dist.NegativeBinomial2(9.0, 3.0): stats.nbinom.logpmf(k, 3.0, 3.0 / 12.0),
        }
        for law, logs in exact.items():
            for wrapped in (law.expand([30]), law.expand([30]).to_event(1)):
                assert np.allclose(jax.jit(lambda law=wrapped: entries(law, k))(), logs, rtol=1e-12)


@partial(jax.jit, static_argnames="scale")
def _of_a_mixture(shares, means, spreads, released, scale):
    mixed = dist.MixtureSameFamily(dist.Categorical(shares), dist.Normal(means, spreads)).expand([4])
    by_quadrature = entry.Route("panels", "MixtureSameFamily")  # as mixtures of other laws are
    return entry.log_marginal(mixed, nw.Gaussian(scale=scale), released, by_quadrature)


@pytest.mark.parametrize("scale", briefly([0.05, 2.0], [0.05]))
def test_mixtures_are_integrated_out(scale):
    """Against the sum over components of closed forms; a mixture with a narrow part among its own."""
    released = np.array([-2.9, 0.3, 3.1, 40.0])
    means, spreads, shares = np.array([-2.0, 3.0, 3.5]), np.array([1.0, 0.01, 2.0]), np.array([0.3, 0.1, 0.6])
    exact = special.logsumexp(
        np.log(shares) + stats.norm.logpdf(released[:, None], means, np.hypot(spreads, scale)), axis=1
    )
    with double():
        found, afar = (_of_a_mixture(shares, means + by, spreads, released + by, scale) for by in (0.0, 1e8))
        assert np.allclose(found.log_kept, exact, rtol=1e-12, atol=1e-12)
        assert np.all(np.asarray(found.share) < 1e-10)
        assert np.allclose(afar.log_kept, exact, rtol=1e-6)


def test_mixtures_of_whole_numbers_are_not_taken_for_densities():
    law = dist.MixtureSameFamily(dist.Categorical(np.array([0.5, 0.5])), dist.Poisson(np.array([1.0, 9.0])))
    assert "sum over the whole numbers" in entry.unfit(law, nw.Laplace(scale=1.0))
    scaled = dist.MixtureSameFamily(dist.Categorical(np.array([0.5, 0.5])), dist.Gamma(np.array([1.0, 9.0]), 1.0))
    assert "not known here" in entry.unfit(scaled, nw.Laplace(scale=1.0))
