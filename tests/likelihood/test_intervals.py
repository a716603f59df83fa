"""Intervals and tests around a fit: against closed forms, and against each interval's own coverage."""

from functools import cache
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, LIMIT, agrees
from scipy import integrate, optimize, special, stats
from targets import brief_rows, briefly, count_model, count_release

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.likelihood.intervals import bootstrap, exact_interval, likelihood_ratio_test, profile_interval
from noisewise.likelihood.intervals.parametric_bootstrap import Bootstrap, _simulated

CHI_SQUARE = stats.chi2.ppf(0.95, 1)
Z = stats.norm.isf(0.025)


def fitted(model, release, **start):
    return model, release, nw.fit(model, release, start=start)


def laplace_count(value):
    return nw.Release(count=nw.Laplace(scale=5.0).released(value))


# Profile likelihood ---------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_profile_of_the_count_ends_where_the_likelihood_has_fallen_enough():
    model, release, fit = fitted(count_model(), count_release(), theta=30.0)
    interval = profile_interval(model, release, fit, "theta")
    s = np.arange(400)

    def log_likelihood(theta):
        return special.logsumexp(stats.poisson.logpmf(s, theta) - np.abs(37.4 - s) / 5.0)

    top = log_likelihood(fit.estimate["theta"])
    for end in interval:
        assert 2 * (top - log_likelihood(end)) == pytest.approx(CHI_SQUARE, abs=1e-6)
    assert interval.low < fit.estimate["theta"] < interval.high
    assert (interval.low_end, interval.high_end, interval.message) == ("crossing", "crossing", "")
    narrow = profile_interval(model, release, fit, "theta", level=0.5)
    assert interval.low < narrow.low < narrow.high < interval.high


@cache
def two_shares():
    model = nw.Model(
        prior={"p1": dist.Beta(1.0, 1.0), "p2": dist.Beta(1.0, 1.0)},
        statistics={"yes": lambda p1, p2: dist.Binomial(np.array([40, 60]), jnp.stack([p1, p2])).to_event(1)},
    )
    release = nw.Release(yes=nw.Laplace(scale=2.0).released([31.5, 22.3]))
    return fitted(model, release, p1=0.5, p2=0.5)


def log_likelihood_of_shares(p1, p2):
    total = 0.0
    for n, p, released in ((40, p1, 31.5), (60, p2, 22.3)):
        k = np.arange(n + 1)
        total += special.logsumexp(stats.binom.logpmf(k, n, p) - np.abs(released - k) / 2.0)
    return total


@pytest.mark.parametrize(
    ("function", "first", "most"),
    [
        (lambda p1, p2: p1 - p2, lambda c, p2: c + p2, lambda c: 1.0 - c),
        pytest.param(
            lambda p1, p2: jnp.log(p1 / p2), lambda c, p2: np.exp(c) * p2, lambda c: np.exp(-c), marks=pytest.mark.long
        ),
    ],
    ids=["difference", "log ratio"],
)
def test_profile_of_a_function_is_the_likelihood_where_it_has_that_value(function, first, most):
    """`first` is p1 where the function is c and p2 at most `most`: p2 is maximised out here by itself."""
    model, release, fit = two_shares()
    interval = profile_interval(model, release, fit, function)
    top = log_likelihood_of_shares(fit.estimate["p1"], fit.estimate["p2"])

    def excess(c):
        def fall(p2):
            return top - log_likelihood_of_shares(first(c, p2), p2)

        ends = 0.01, min(0.99, most(c) - 1e-6)
        return 2 * optimize.minimize_scalar(fall, bounds=ends, options={"xatol": 1e-9}).fun - CHI_SQUARE

    assert [excess(end) for end in interval] == pytest.approx([0.0, 0.0], abs=1e-5)
    derived = fit.derive(value=function)
    low, high = derived.interval()["value"]
    assert interval.low < derived.estimate["value"] < interval.high
    assert max(abs(excess(low)), abs(excess(high))) > 1e-2  # the delta method is no profile
    assert interval.parameter == "the function of p1, p2"
    assert (interval.low_end, interval.high_end) == ("crossing", "crossing")


def test_profile_of_a_function_obeys_changes_of_scale():
    model, release, fit = two_shares()

    def log_odds(p1):
        return jnp.log(p1) - jnp.log1p(-p1)

    interval = profile_interval(model, release, fit, log_odds, level=0.9)
    assert tuple(interval) == pytest.approx(special.logit(list(profile_interval(model, release, fit, "p1", 0.9))))
    assert interval.parameter == "log_odds"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda p3: p3, "must take what is known by name"),
        (lambda p1: jnp.stack([p1, p1]), "must be one number, where it is a function"),
        (lambda p1: p1 > 0.5, "must be one number, where it is a function"),
        (lambda p1: float(p1) ** 2, "must be a function that JAX can differentiate"),
        (lambda p1: 0.0 * p1, "must be finite, and change with the parameters"),
    ],
)
def test_functions_without_a_profile_are_refused(function, said):
    with pytest.raises(nw.InputError, match=said):
        profile_interval(*two_shares(), function)


def test_a_value_that_no_parameters_give_is_no_end():
    """Twice the sine of p1 is nowhere above 2 sin(1): the likelihood has not fallen enough there."""
    model, release, fit = vague_answers()
    with pytest.raises(nw.InferenceError, match="perhaps no parameters give this value"):
        profile_interval(model, release, fit, lambda p: 2.0 * jnp.sin(p))


RELEASED = np.array([2.1, -0.7, 4.4, 1.9, 3.2, 0.4, 2.8, 6.1])


def normal_laplace(x, mean, sd, scale):
    """log density of a normal plus a Laplace variate, in closed form."""
    r, b = x - mean, sd / scale
    halves = [
        sign * r / scale + 0.5 * b * b + special.log_ndtr(-sign * r / sd - b) - np.log(2 * scale) for sign in (1, -1)
    ]
    return np.logaddexp(*halves)


@cache
def place_and_spread():
    model = nw.Model(
        prior={"a": dist.Normal(0.0, 10.0), "b": dist.HalfNormal(10.0)},
        statistics={"y": lambda a, b: dist.Normal(a, b).expand([8])},
    )
    return fitted(model, nw.Release(y=nw.Laplace(scale=0.7).released(RELEASED)), a=1.0, b=1.0)


@pytest.mark.parametrize("name", briefly(["a", "b"], ["b"]))
def test_profile_maximises_the_other_parameter_out(name):
    model, release, fit = place_and_spread()

    def log_likelihood(a, b):
        return np.sum(normal_laplace(RELEASED, a, b, 0.7))

    top = log_likelihood(fit.estimate["a"], fit.estimate["b"])
    profiles = {
        "a": lambda a: (
            -optimize.minimize_scalar(lambda b: -log_likelihood(a, b), bounds=(0.2, 9.0), method="bounded").fun
        ),
        "b": lambda b: (
            -optimize.minimize_scalar(lambda a: -log_likelihood(a, b), bounds=(-5.0, 9.0), method="bounded").fun
        ),
    }
    for end in profile_interval(model, release, fit, name):
        assert 2 * (top - profiles[name](end)) == pytest.approx(CHI_SQUARE, abs=1e-5)


@cache
def regression():
    x, scale = np.linspace(-1.0, 2.0, 12), np.linspace(0.2, 1.5, 12)
    y = np.array([0.1, -0.4, 0.3, 0.9, 0.7, 1.9, 1.2, 1.8, 2.9, 2.2, 3.1, 3.3])
    model = nw.Model(
        prior={"beta": dist.Normal(0.0, 10.0).expand([2])},
        statistics={"y": lambda beta: dist.Normal(beta[0] + beta[1] * jnp.asarray(x), 0.5)},
    )
    design = np.column_stack([np.ones(12), x])
    precision = design.T @ (design / (0.25 + scale**2)[:, None])
    return *fitted(model, nw.Release(y=nw.Gaussian(scale=scale).released(y)), beta=np.zeros(2)), precision


def test_a_gaussian_model_has_closed_forms_and_the_right_degrees_of_freedom(seed):
    """The profile interval is Wald's and the statistic a quadratic form, whose law is chi-square exactly."""
    model, release, fit, precision = regression()
    covariance = np.linalg.inv(precision)
    assert fit.information == pytest.approx(precision, rel=1e-7)
    interval, slope = profile_interval(model, release, fit, "beta[1]"), fit.estimate["beta"][1]
    error = Z * np.sqrt(covariance[1, 1])
    assert tuple(interval) == pytest.approx((slope - error, slope + error), abs=1e-6)
    gap = fit.estimate["beta"] - [0.2, 1.1]
    both = likelihood_ratio_test(model, release, fit, {"beta": [0.2, 1.1]})
    assert both.statistic == pytest.approx(gap @ precision @ gap, abs=1e-7)
    assert both.degrees_of_freedom == 2
    assert both.p_value == pytest.approx(stats.chi2.sf(both.statistic, 2))
    one = likelihood_ratio_test(model, release, fit, {"beta[1]": 1.1})
    assert one.statistic == pytest.approx(gap[1] ** 2 / covariance[1, 1], abs=1e-7)
    assert one.degrees_of_freedom == 1
    slope_given = fit.estimate["beta"][0] - covariance[0, 1] / covariance[1, 1] * gap[1]
    assert one.estimate["beta"] == pytest.approx([slope_given, 1.1], abs=1e-5)
    # negative control: over simulated estimates the p-values are uniform with two degrees of freedom, not with one
    gaps = np.random.default_rng(seed).multivariate_normal(np.zeros(2), covariance, 20_000)
    statistics = np.einsum("ki,ij,kj->k", gaps, precision, gaps)
    assert agrees(stats.chi2.sf(statistics, both.degrees_of_freedom) < 0.05, 0.05)
    assert not agrees(stats.chi2.sf(statistics, 1) < 0.05, 0.05)


def test_an_interval_may_end_at_the_boundary():
    model, release, fit = fitted(count_model(), laplace_count(3.0), theta=5.0)
    interval = profile_interval(model, release, fit, "theta")
    assert (interval.low, interval.low_end, interval.high_end) == (0.0, "boundary", "crossing")
    assert "boundary of theta's space, 0." in interval.message


@pytest.mark.bits
def test_an_interval_may_be_unbounded(monkeypatch):
    """All of five said yes, and noise on top: no log odds are too large.

    At odds of 1e10 the density's formula is off by 1e-5, upwards at times: rounding, and no higher top (negative
    control: taken at its face, it would be one).
    """
    model = nw.Model(
        prior={"odds": dist.Normal(0.0, 10.0)}, statistics={"yes": lambda odds: dist.Binomial(5, logits=odds)}
    )
    release = nw.Release(yes=nw.DiscreteLaplace(scale=1.0).released(6))
    s = np.arange(6)
    for start in (-3.0, 1.0, 4.0):
        fit = nw.fit(model, release, nw.EM(max_iterations=30), start={"odds": start}, on_failure="return")
        interval = profile_interval(model, release, fit, "odds")
        assert (interval.high, interval.high_end) == (np.inf, "unbounded")
        likelihood = special.expit(interval.low) ** s * special.expit(-interval.low) ** (5 - s) * special.comb(5, s)
        statistic = 2 * (-1.0 - special.logsumexp(-np.abs(6.0 - s), b=likelihood))
        assert statistic == pytest.approx(CHI_SQUARE, abs=1e-6)
    monkeypatch.setattr("noisewise.likelihood.observed.Observed._rounding", lambda *_: 0.0)
    with pytest.raises(nw.InferenceError, match="several tops"):
        profile_interval(model, release, fit, "odds")


@cache
def large_mean():
    model = nw.Model(prior={"m": dist.Normal(0.0, 1e9)}, statistics={"x": lambda m: dist.Normal(m, 1e9)})
    return fitted(model, nw.Release(x=nw.Gaussian(scale=1e9).released(3e9)), m=0.0)


LARGE_ENDS = 3e9 - Z * np.sqrt(2.0) * 1e9, 3e9 + Z * np.sqrt(2.0) * 1e9


def test_parameters_of_any_size_are_found():
    """A mean of thousands of millions: steps and tolerances in proportion."""
    model, release, fit = large_mean()
    assert fit.diagnostics["iterations"] < 60
    assert fit.interval()["m"] == pytest.approx(LARGE_ENDS, rel=1e-6)
    assert tuple(profile_interval(model, release, fit, "m")) == pytest.approx(LARGE_ENDS, rel=1e-6)


# Exact intervals ------------------------------------------------------------------------------------------------------


@cache
def binomial_model():
    return nw.Model(prior={"p": dist.Beta(1.0, 1.0)}, statistics={"yes": lambda p: dist.Binomial(30, p)})


def test_exact_interval_without_noise_is_garwoods_and_clopper_and_pearsons():
    model, release, fit = fitted(count_model(), nw.Release(count=nw.Exact().released(37)), theta=30.0)
    garwood = stats.chi2.ppf(0.025, 74) / 2, stats.chi2.ppf(0.975, 76) / 2
    assert tuple(exact_interval(model, release, fit)) == pytest.approx(garwood, abs=1e-6)
    model, release, fit = fitted(binomial_model(), nw.Release(yes=nw.Exact().released(19)), p=0.5)
    pearson = stats.beta.ppf(0.025, 19, 12), stats.beta.ppf(0.975, 20, 11)
    assert tuple(exact_interval(model, release, fit)) == pytest.approx(pearson, abs=1e-7)


@cache
def normal_mean():
    return nw.Model(prior={"mu": dist.Normal(0.0, 50.0)}, statistics={"m": lambda mu: dist.Normal(mu, 1.0)})


def test_exact_interval_of_a_falling_and_of_a_continuous_law():
    model = nw.Model(prior={"rate": dist.Gamma(2.0, 1.0)}, statistics={"t": lambda rate: dist.Exponential(rate)})
    model, release, fit = fitted(model, nw.Release(t=nw.Exact().released(0.4)), rate=1.0)
    closed = -np.log1p(-0.025) / 0.4, -np.log(0.025) / 0.4
    assert tuple(exact_interval(model, release, fit)) == pytest.approx(closed, rel=1e-6)
    release = nw.Release(m=nw.Gaussian(scale=0.75).released(2.5))
    model, release, fit = fitted(normal_mean(), release, mu=0.0)
    assert tuple(exact_interval(model, release, fit)) == pytest.approx((2.5 - 1.25 * Z, 2.5 + 1.25 * Z), abs=1e-6)


NOISES = {"Laplace": nw.Laplace, "DiscreteLaplace": nw.DiscreteLaplace, "DiscreteGaussian": nw.DiscreteGaussian}


@pytest.mark.parametrize("kind", briefly(NOISES, ["Laplace"]))
def test_exact_interval_ends_where_a_tail_is_too_small(kind):
    """Tails by plain sums over s and over the noise."""
    model, release, fit = fitted(binomial_model(), nw.Release(yes=NOISES[kind](scale=2.0).released(19)), p=0.5)
    s = np.arange(31)
    if kind == "Laplace":
        at_most = stats.laplace.cdf((19 - s) / 2.0)
        at_least = stats.laplace.sf((19 - s) / 2.0)
    else:
        z = np.arange(-200, 201)
        weight = np.exp(-np.abs(z) / 2.0) if kind == "DiscreteLaplace" else np.exp(-0.5 * (z / 2.0) ** 2)
        weight /= weight.sum()
        at_most = np.array([weight[z <= 19 - one].sum() for one in s])
        at_least = np.array([weight[z >= 19 - one].sum() for one in s])
    low, high = exact_interval(model, release, fit)
    assert stats.binom.pmf(s, 30, low) @ at_least == pytest.approx(0.025, abs=1e-8)
    assert stats.binom.pmf(s, 30, high) @ at_most == pytest.approx(0.025, abs=1e-8)


def test_exact_interval_on_the_integers_covers_at_least_its_level():
    """By enumeration of all releases: those that keep theta = 37 weigh at least 95%, and they are the ones tested."""
    mechanism, theta, s = nw.DiscreteLaplace(scale=5.0), 37.0, np.arange(200)
    y = np.arange(-150, 250)
    probability = np.exp(mechanism.noise_log_prob(y[:, None] - s)) @ stats.poisson.pmf(s, theta)
    below, above = np.cumsum(probability), np.cumsum(probability[::-1])[::-1]
    kept = y[(below >= 0.025) & (above >= 0.025)]
    coverage = probability[np.isin(y, kept)].sum()
    assert 0.95 <= coverage < 0.97
    for value, inside in ((kept[0] - 1, False), (kept[-1], True)):
        release = nw.Release(count=mechanism.released(int(value)))
        low, high = exact_interval(*fitted(count_model(), release, theta=30.0))
        assert (low <= theta <= high) is inside


def test_a_release_that_no_parameter_explains():
    release = laplace_count(-20.0)
    fit = nw.fit(count_model(), release, nw.EM(max_iterations=50), start={"theta": 1.0}, on_failure="return")
    interval = exact_interval(count_model(), release, fit)
    assert tuple(interval) == (0.0, 0.0)
    assert "Every value of theta is rejected" in interval.message


# Coverage: simulation against each interval's own coverage ------------------------------------------------------------

THETA = 37.0
GRID = np.array([17.3, 26.7, 46.6, 63.8])


def count_interval(name, value):
    """The package's interval from one released count."""
    model, release = count_model(), laplace_count(value)
    start = {"theta": max(value, 5.0)}
    if name == "naive":
        return nw.fit(model, release.naive(), start=start).interval()["theta"]
    fit = nw.fit(model, release, start=start)
    if name == "wald":
        return fit.interval()["theta"]
    if name == "exact":
        return exact_interval(model, release, fit)
    return profile_interval(model, release, fit, "theta")


@cache
def kept(name):
    """The releases, from first to last, whose interval holds theta.

    Found by roots, not by interpolation: the ends ripple with the integers between which the release lies.
    """

    def excess(value):
        low, high = count_interval(name, value)
        return max(low - THETA, THETA - high)

    switches = np.flatnonzero(np.diff(np.sign([excess(value) for value in GRID])))
    assert len(switches) == 2  # one stretch of releases
    # a release off by 0.01 is a coverage off by 2e-4, below the error of a simulation of 40,000
    return [optimize.brentq(excess, GRID[k], GRID[k + 1], xtol=1e-2) for k in switches]


def covered(name, released):
    first, last = kept(name)
    return (released >= first) & (released <= last)


@cache
def true_coverage():
    """By enumeration over s and a fine grid of releases, in plain NumPy: EM for all releases at once.

    With the first release and the last that keep theta; "two degrees" has the quantile of two degrees of freedom.
    """
    y, s = np.arange(2.0, 95.0, 0.1), np.arange(200.0)
    fixed = -np.abs(y[:, None] - s) / 5.0 - special.gammaln(s + 1)

    def weights(theta):
        log_weight = fixed + s * np.log(theta)[:, None] - theta[:, None]
        total = special.logsumexp(log_weight, axis=1)
        return np.exp(log_weight - total[:, None]), total

    estimate = np.maximum(y, 1.0)
    for _ in range(60):
        estimate = weights(estimate)[0] @ s
    weight, top = weights(estimate)
    mean = weight @ s
    information = mean / estimate**2 - (weight @ s**2 - mean**2) / estimate**2
    statistic = 2 * (top - weights(np.full(len(y), THETA))[1])
    below = stats.laplace.cdf((y[:, None] - s) / 5.0) @ stats.poisson.pmf(s, THETA)
    criteria = {
        "wald": (estimate - THETA) ** 2 * information - Z**2,
        "profile": statistic - CHI_SQUARE,
        "two degrees": statistic - stats.chi2.ppf(0.95, 2),
        "exact": np.maximum(0.025 - below, below - 0.975),
        "naive": (y - THETA) ** 2 / y - Z**2,
    }
    found, kept_by = {}, {}
    for name, criterion in criteria.items():
        first, last = np.flatnonzero(np.diff(np.sign(criterion)))  # one stretch of releases keeps theta
        ends = [y[i] - criterion[i] * 0.1 / (criterion[i + 1] - criterion[i]) for i in (first, last)]
        found[name] = np.interp(ends[1], y, below) - np.interp(ends[0], y, below)
        kept_by[name] = ends
    return found, kept_by


def simulated_counts(seed, draws=40_000):
    rng = np.random.default_rng(seed)
    return nw.Laplace(scale=5.0).sample(
        rng, count_model().law("count").draw(rng, {"theta": np.full(draws, THETA)}, draws)
    )


@pytest.mark.long  # by default, where an interval ends, and the coverage of a normal mean
@pytest.mark.parametrize("name", ["wald", "profile", "exact", "naive"])
def test_coverage_of_the_count_is_the_intervals_own(name, seed):
    truth = true_coverage()[0][name]
    assert truth == pytest.approx({"wald": 0.90, "profile": 0.93, "exact": 0.95, "naive": 0.81}[name], abs=0.01)
    assert agrees(covered(name, simulated_counts(seed)), truth)


@pytest.mark.long
def test_a_check_of_coverage_can_fail(seed):
    """Negative control: two degrees of freedom for one parameter."""
    coverage, ends = true_coverage()
    released, (first, last) = simulated_counts(seed), ends["two degrees"]
    assert not agrees((released >= first) & (released <= last), coverage["profile"])


@pytest.mark.long
def test_intervals_without_the_noise_do_not_cover(seed):
    """More negative controls."""
    released, (truth, _) = simulated_counts(seed), true_coverage()
    assert not agrees(covered("naive", released), 0.95)
    assert not agrees(covered("naive", released), truth["wald"])
    assert not agrees(covered("wald", released), 0.95)  # nor does Wald's cover 95%: the design says so
    assert truth["naive"] < truth["wald"] - 0.05


def test_coverage_of_a_normal_mean(seed):
    """A location family: every interval is the release plus constants, so one fit gives all of them."""
    model, widths = normal_mean(), {}
    for value in (0.0, 3.3):
        model, release, fit = fitted(model, nw.Release(m=nw.Laplace(scale=1.0).released(value)), mu=1.0)
        pairs = {
            "wald": fit.interval()["mu"],
            "profile": profile_interval(model, release, fit, "mu"),
            "exact": exact_interval(model, release, fit),
        }
        for name, pair in pairs.items():
            assert np.subtract(tuple(pair), value) == pytest.approx(
                widths.setdefault(name, np.subtract(tuple(pair), value)), abs=1e-5
            )

    def density(x):
        return np.exp(normal_laplace(x, 0.0, 1.0, 1.0))

    curvature = (
        -(normal_laplace(1e-3, 0, 1, 1) + normal_laplace(-1e-3, 0, 1, 1) - 2 * normal_laplace(0.0, 0, 1, 1)) / 1e-6
    )
    profile = optimize.brentq(
        lambda x: 2 * (normal_laplace(0.0, 0, 1, 1) - normal_laplace(x, 0, 1, 1)) - CHI_SQUARE, 0, 9
    )
    exact = optimize.brentq(lambda x: integrate.quad(density, x, np.inf)[0] - 0.025, 1, 9)
    halves = {"wald": Z / np.sqrt(curvature), "profile": profile, "exact": exact, "naive": Z}
    rng = np.random.default_rng(seed)
    released = nw.Laplace(scale=1.0).sample(rng, model.law("m").draw(rng, {"mu": np.full(40_000, 0.7)}, 40_000))
    coverage = {name: integrate.quad(density, -half, half)[0] for name, half in halves.items()}
    for name, (low, high) in widths.items():
        assert (low, high) == pytest.approx((-halves[name], halves[name]), abs=1e-4)
        assert agrees((released + low <= 0.7) & (released + high >= 0.7), coverage[name])
    assert coverage["exact"] == pytest.approx(0.95, abs=1e-8)
    assert not agrees(np.abs(released - 0.7) <= Z, 0.95)  # the noise ignored
    assert coverage["naive"] < 0.85


# Bootstrap ------------------------------------------------------------------------------------------------------------


def test_bootstrap_gives_the_sampling_law_of_the_estimate(seed):
    """A normal mean with Gaussian noise: the estimate is the release, its variance the sum of the two."""
    release = nw.Release(x=nw.Gaussian(scale=0.2e9).released(2.5e9))
    model, release, fit = fitted(large_mean()[0], release, m=0.0)
    found = bootstrap(model, release, fit, 20, seed, estimator=nw.EM(tolerance=1e-6))
    estimates = found.estimates["m"] / 1e9
    assert abs(estimates.mean() - 2.5) < LIMIT * np.sqrt(1.04 / 20)

    def variance_agrees(truth):
        low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 19)
        return low < 19 * estimates.var(ddof=1) / truth < high

    assert variance_agrees(1.04)
    assert not variance_agrees(0.04)  # the noise alone: s was simulated too
    assert found.standard_error["m"] == np.std(found.estimates["m"], ddof=1)
    low, high = found.interval()["m"]
    assert np.sum((found.estimates["m"] >= low) & (found.estimates["m"] <= high)) == 18  # all but both ends
    assert found.failed == 0
    fewer = bootstrap(model, release, fit, 3, seed, estimator=nw.EM(tolerance=1e-6))
    assert np.array_equal(fewer.estimates["m"], found.estimates["m"][:3])


@cache
def vague_answers():
    """Noise as wide as the statistic's range."""
    return fitted(binomial_model(), nw.Release(yes=nw.Laplace(scale=30.0).released(19.0)), p=0.5)


def test_bootstrap_refuses_to_speak_where_nearly_all_fail(seed):
    with pytest.raises(nw.InferenceError, match=r"of 3 refits nearly all failed.*max_iterations"):
        bootstrap(*vague_answers(), 3, seed, estimator=nw.EM(max_iterations=1))


@pytest.mark.long
def test_bootstrap_counts_its_failures(seed):
    model, release, fit = fitted(binomial_model(), nw.Release(yes=nw.Laplace(scale=2.0).released(28.0)), p=0.5)
    found = bootstrap(model, release, fit, 15, seed, estimator=nw.EM(max_iterations=200))
    assert found.failed > 0  # many simulated releases lie below 0 or above 30
    assert found.failed + len(found.estimates["p"]) == found.draws == 15


# Bad input ------------------------------------------------------------------------------------------------------------


@cache
def count_fit():
    return fitted(count_model(), count_release(), theta=30.0)


@cache
def two_tops():
    """A fit on the lower of two tops, from two releases."""
    model = nw.Model(
        prior={"x": dist.Normal(0.0, 9.0)},
        statistics={"square": lambda x: dist.Normal(x**2, 0.5), "sign": lambda x: dist.Normal(x, 1.0)},
    )
    noise = nw.Laplace(scale=0.5)
    return fitted(model, nw.Release(square=noise.released(4.0), sign=noise.released(0.5)), x=-2.0)


def squared():
    model = nw.Model(prior={"x": dist.Normal(0.0, 3.0)}, statistics={"m": lambda x: dist.Normal(x**2, 1.0)})
    return fitted(model, nw.Release(m=nw.Laplace(scale=1.0).released(0.3)), x=0.5)


@cache
def shares():
    model = nw.Model(
        prior={"share": dist.Dirichlet(np.ones(3))}, statistics={"cells": lambda share: dist.Multinomial(100, share)}
    )
    return fitted(model, nw.Release(cells=nw.Exact().released([20, 50, 30])), share=np.ones(3) / 3)


REFUSED = {
    "name": (lambda: profile_interval(*count_fit(), "thetas"), "'name' must be one scalar parameter.*'theta'"),
    "vector": (lambda: profile_interval(*regression()[:3], "beta"), r"one entry; got 'beta'.*beta\[0\]"),
    "tied": (lambda: profile_interval(*shares(), "share[0]"), "'name' must move by itself"),
    "level": (lambda: profile_interval(*count_fit(), "theta", level=95), "'level' must lie between 0 and 1; got 95"),
    "other release": (
        lambda: profile_interval(count_model(), laplace_count(30.0), count_fit()[2], "theta"),
        "'fit' must be a fit to this release",
    ),
    "no fit": (lambda: profile_interval(*count_fit()[:2], 37.0, "theta"), "'fit' must be a Fit; got 37.0"),
    "no values": (lambda: likelihood_ratio_test(*count_fit(), {}), "'values' must be a dict"),
    "unknown value": (lambda: likelihood_ratio_test(*count_fit(), {"rate": 1.0}), "'values' must be one scalar.*theta"),
    "value outside": (lambda: likelihood_ratio_test(*count_fit(), {"theta": -1.0}), "inside the prior's support"),
    "value on the edge": (lambda: likelihood_ratio_test(*count_fit(), {"theta": 0.0}), "inside the prior's support"),
    "value shape": (lambda: likelihood_ratio_test(*count_fit(), {"theta": [1.0]}), r"must have the shape \(\)"),
    "twice": (
        lambda: likelihood_ratio_test(*regression()[:3], {"beta": [0.0, 0.0], "beta[0]": 1.0}),
        "must fix a parameter once",
    ),
    "exact, two parameters": (lambda: exact_interval(*regression()[:3]), "'model' must have one scalar parameter"),
    "exact, two releases": (lambda: exact_interval(*two_tops()), "'release' must hold one scalar value"),
    "exact, both ways": (lambda: exact_interval(*squared()), "must move the release one way"),
    "exact, level": (lambda: exact_interval(*count_fit(), level=1.0), "'level' must lie between 0 and 1"),
    "draws": (lambda: bootstrap(*count_fit(), draws=1, seed=1), "'draws' must be a whole number, at least 2"),
    "seed": (lambda: bootstrap(*count_fit(), draws=5, seed=None), "'seed' must be a whole number"),
    "estimator": (lambda: bootstrap(*count_fit(), draws=5, seed=1, estimator="em"), "'estimator' must be an estimator"),
}


@pytest.mark.parametrize(("call", "message"), brief_rows(REFUSED, [name for name in REFUSED if name != "tied"]))
def test_refused(call, message):
    with pytest.raises(nw.InputError, match=message):
        call()


def test_shares_are_tested_whole():
    """Three shares that sum to one are two degrees of freedom."""
    model, release, fit = shares()
    test = likelihood_ratio_test(model, release, fit, {"share": np.ones(3) / 3})
    assert test.degrees_of_freedom == 2
    cells = np.array([20, 50, 30])
    assert test.statistic == pytest.approx(2.0 * cells @ np.log(cells / 100 * 3), abs=1e-6)


def test_a_second_top_is_not_hidden():
    """The fit sits on the lower of two tops; a hypothesis near the higher one says so."""
    model, release, fit = two_tops()
    assert fit.estimate["x"] < 0
    with pytest.raises(nw.InferenceError, match="several tops"):
        likelihood_ratio_test(model, release, fit, {"x": 2.0})


def test_bootstrap_refits_with_the_fits_own_estimator(seed):
    """A total has no density: only simulation fits it, and it is simulated from its records."""
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 5.0)},
        statistics={"total": nw.Total({"x": lambda mu: dist.Normal(mu, 2.0)}, lambda x: x, 10)},
    )
    release = nw.Release(total=nw.Gaussian(scale=6.0).released(15.0))
    quick = nw.MCEM(schedule=nw.Ascent(start=500, most=500), final=1_000)
    fit = nw.fit(model, release, quick, start={"mu": 1.5}, seed=seed)
    found = bootstrap(model, release, fit, 4, seed)
    assert found.failed == 0
    assert np.all(np.abs(found.estimates["mu"] - 1.5) < 6 * np.sqrt(10 * 4 + 36) / 10)
    with pytest.raises(nw.InferenceError, match=r"of 2 refits nearly all failed.*must have a density"):
        bootstrap(model, release, fit, 2, seed, estimator=nw.EM())


def test_bootstrap_intervals_leave_out_the_same_share_on_both_sides():
    found = Bootstrap({"mu": np.arange(1001.0)}, 1001, 1)
    assert found.interval(0.9)["mu"] == pytest.approx((50.0, 950.0))
    assert found.standard_error["mu"] == pytest.approx(np.std(np.arange(1001.0), ddof=1))


def test_releases_of_the_bootstrap_have_law_and_noise(seed):
    model = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"s": lambda mu: dist.Normal(mu, 1.0)})
    problem = Problem(model, nw.Release(s=nw.Laplace(scale=4.0).released(1.0)))
    fit, rng = SimpleNamespace(estimate={"mu": np.asarray(3.0)}), np.random.default_rng(seed)
    drawn = np.array([float(_simulated(problem, fit, rng)["s"].value) for _ in range(3_000)])
    assert agrees(drawn, 3.0)
    assert agrees((drawn - 3.0) ** 2, 1.0 + 2.0 * 4.0**2)
