"""Criticism of models: replicated releases, evidence, sensitivity to the prior. Truths are closed forms."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees
from scipy import stats

import noisewise as nw
from noisewise.results.power_scaling import _within, sensitivity

TAU, SIGMA, NOISE, PUBLISHED = 1.5, 0.5, 0.7, 2.0
V = 1.0 / (1.0 / TAU**2 + 1.0 / (SIGMA**2 + NOISE**2))
M = V * PUBLISHED / (SIGMA**2 + NOISE**2)
RELEASE = nw.Release(s=nw.Gaussian(scale=NOISE).released(PUBLISHED))


@cache
def normal_model(tau=TAU):
    return nw.Model({"theta": dist.Normal(0.0, tau)}, {"s": lambda theta: dist.Normal(theta, SIGMA)})


@pytest.fixture(scope="module")
def plain():
    return nw.sample(normal_model(), RELEASE, nw.Rejection(), draws=4_000, seed=3)


@pytest.fixture(scope="module")
def weighted():
    return nw.sample(normal_model(), RELEASE, nw.Importance(), draws=8_000, seed=3)


# Replicates -------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_replicates_follow_the_posterior_predictive(plain, weighted):
    """New statistic, new noise: normal about the posterior mean with all three variances."""
    total = V + SIGMA**2 + NOISE**2
    for posterior in (plain, weighted):
        found = posterior.replicate(normal_model(), RELEASE, seed=1)
        row = found.p_values().loc["s"]
        assert row["published"] == PUBLISHED
        assert row["sd"] == pytest.approx(math.sqrt(total), rel=0.1)
        exact = 2.0 * stats.norm.sf(abs(PUBLISHED - M) / math.sqrt(total))
        assert abs(row["p"] - exact) < LIMIT * row["mcse p"]
        assert row["at or below"] + row["at or above"] == pytest.approx(1.0)
    draws = plain.replicate(normal_model(), RELEASE, seed=1).draws["s"]
    assert agrees(draws, M)
    without_noise = plain["s"]
    assert without_noise.std() < 0.8 * math.sqrt(total)


def test_replicates_are_those_of_their_seed(plain):
    one, again, other = (plain.replicate(normal_model(), RELEASE, seed=seed).draws["s"] for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_p_values_are_less_extreme_than_uniform_ones_under_the_model():
    """By the closed form, over releases of the prior: P(p <= a) is at most 2 a, and below a here."""
    rng = np.random.default_rng(3)
    y = rng.normal(0.0, math.sqrt(TAU**2 + SIGMA**2 + NOISE**2), 100_000)
    p = 2.0 * stats.norm.sf(np.abs(y - M / PUBLISHED * y) / math.sqrt(V + SIGMA**2 + NOISE**2))
    assert np.mean(p <= 0.05) < 0.05


def test_a_model_that_does_not_fit_has_a_small_p_value():
    """Counts far more spread out than Poisson: their spread shows it, each by itself need not."""
    model = nw.Model({"rate": dist.Gamma(4.0, 0.2)}, {"count": lambda rate: dist.Poisson(rate).expand([4]).to_event(1)})
    labels = {"county": ["a", "b", "c", "d"]}

    def found(counts):
        release = nw.Release(count=nw.DiscreteLaplace(scale=1.0).released(counts, coords=labels))
        posterior = nw.sample(model, release, nw.Importance(collapse=True), draws=3_000, seed=3)
        return posterior.replicate(model, release, seed=1)

    spread = {"spread": lambda count: count.std()}
    bad, good = found([2, 48, 9, 41]), found([24, 19, 27, 22])
    assert bad.p_values(**spread).loc["spread", "p"] < 0.001
    assert good.p_values(**spread).loc["spread", "p"] > 0.1
    assert list(good.p_values().index)[1] == "count[b]"
    assert list(good.p_values(less=lambda count: count - count.mean()).index)[1] == "less[b]"
    figure = nw.plot_replicates(bad, **spread)
    assert figure.axes[0].get_yticklabels()[0].get_text() == "spread"
    assert len(nw.plot_replicates(good).axes[0].get_yticklabels()) == 4


def test_withheld_values_have_no_p_value():
    mechanism = nw.mechanisms.Thresholded(nw.Laplace(scale=1.0), threshold=3.0)
    release = nw.Release(s=mechanism.released([np.nan, 5.0]))
    model = nw.Model({"theta": dist.Normal(0.0, 5.0)}, {"s": lambda theta: dist.Normal(theta, np.ones(2)).to_event(1)})
    posterior = nw.sample(model, release, nw.Rejection(), draws=500, seed=3)
    table = posterior.replicate(model, release, seed=1).p_values()
    assert np.isnan(table.loc["s[0]", "p"])
    assert 0.0 < table.loc["s[1]", "p"] <= 1.0


# Evidence ---------------------------------------------------------------------------------------------


def test_bayes_factors_are_those_of_the_closed_form(plain, weighted):
    wide = nw.sample(normal_model(5.0), RELEASE, nw.Rejection(), draws=4_000, seed=4)
    exact = {
        name: stats.norm.logpdf(PUBLISHED, 0.0, math.sqrt(tau**2 + SIGMA**2 + NOISE**2))
        for name, tau in (("narrow", TAU), ("wide", 5.0))
    }
    for narrow in (plain, weighted):
        found = nw.evidence({"narrow": narrow, "wide": wide}, prior={"narrow": 0.2, "wide": 0.8})
        ratio, error = found.bayes_factor("narrow", "wide")
        truth = math.exp(exact["narrow"] - exact["wide"])
        assert abs(ratio - truth) < LIMIT * error
        assert error < 0.1 * truth
        odds = 0.2 / 0.8 * truth
        chance, spread = found.probability["narrow"]
        assert abs(chance - odds / (1 + odds)) < LIMIT * spread
        assert abs(chance - 1 / (1 + odds)) > LIMIT * spread  # upside down, it is seen
        assert sum(p for p, _ in found.probability.values()) == pytest.approx(1.0)
    assert "Bayes factor" in repr(found)
    assert found.table()["Bayes factor"].iloc[0] == 1.0


def test_counts_have_the_evidence_of_a_sum():
    """Poisson with a gamma prior is negative binomial; the noise is summed out."""
    release = nw.Release(count=nw.DiscreteLaplace(scale=2.0).released(9))
    model = nw.Model({"rate": dist.Gamma(3.0, 0.5)}, {"count": lambda rate: dist.Poisson(rate)})
    point = nw.Model({"rate": dist.Gamma(300.0, 50.0)}, {"count": lambda rate: dist.Poisson(rate)})
    s = np.arange(400)
    noise = math.tanh(0.25) * np.exp(-np.abs(9 - s) / 2.0)
    exact = [noise @ stats.nbinom.pmf(s, a, b / (1 + b)) for a, b in ((3.0, 0.5), (300.0, 50.0))]
    posteriors = {
        name: nw.sample(each, release, nw.Rejection(), draws=3_000, seed=3)
        for name, each in (("gamma", model), ("point", point))
    }
    ratio, error = nw.evidence(posteriors).bayes_factor("gamma", "point")
    assert abs(ratio - exact[0] / exact[1]) < LIMIT * error


def test_a_factor_beyond_all_numbers_is_infinite():
    found = nw.Evidence({"a": -3.0, "b": -1_003.0}, {"a": 0.1, "b": 0.1}, {"a": 0.5, "b": 0.5})
    assert found.bayes_factor("a", "b") == (math.inf, math.inf)
    assert found.bayes_factor("b", "a") == (0.0, 0.0)


def test_errors_of_probabilities_are_those_of_repetition():
    """The delta method against 100,000 noisy evidences."""
    errors = {"a": 0.1, "b": 0.05, "c": 0.2}
    logs = {"a": -3.0, "b": -2.5, "c": -4.0}
    found = nw.Evidence(logs, errors, dict.fromkeys(logs, 1 / 3)).probability
    rng = np.random.default_rng(3)
    noisy = np.array([logs[name] + errors[name] * rng.normal(size=100_000) for name in logs])
    chances = np.exp(noisy) / np.exp(noisy).sum(axis=0)
    for row, (_, error) in zip(chances, found.values(), strict=True):
        assert error == pytest.approx(row.std(), rel=0.05)


def test_errors_hold_where_runs_share_their_random_numbers():
    """Two models that take the same draws with opposite signs: what raises one evidence lowers the other.

    Over seeds, the error of independent runs is then too small, and that of a sum is not.
    """
    release = nw.Release(s=nw.Gaussian(scale=5.0).released(5.0))
    laws = (lambda theta: dist.Normal(theta, 0.01)), (lambda theta: dist.Normal(-theta, 0.01))
    models = [nw.Model({"theta": dist.Normal(0.0, 1.0)}, {"s": law}) for law in laws]
    runs, logs, errors, how = 120, [], [], {"draws": 500, "engine": nw.Threads(1), "progress": False}
    for seed in range(runs):
        first, second = (nw.sample(model, release, nw.Importance(), seed=seed, **how) for model in models)
        found = nw.evidence({"first": first, "second": second})
        logs.append(first.log_evidence - second.log_evidence)
        ratio, error = found.bayes_factor("first", "second")
        errors.append((error / ratio, math.hypot(*found.standard_error.values())))
    least, most = np.sqrt(stats.chi2.ppf([1e-6, 1 - 1e-6], runs - 1) / (runs - 1))  # of an estimated deviation
    stated, independent = np.mean(errors, axis=0)
    assert np.std(logs, ddof=1) < most * stated
    assert np.std(logs, ddof=1) > most * independent
    assert np.std(logs, ddof=1) > 0.5 * least * stated  # a bound, not an idle one
    assert found.probability["first"][1] == pytest.approx(0.25 * stated, rel=0.2)
    assert "Runs of one seed ('first', 'second') may share" in repr(found)


def test_errors_of_one_seed_add_up_and_those_of_others_do_not():
    logs, errors = dict.fromkeys("abc", -1.0), {"a": 0.3, "b": 0.4, "c": 1.2}
    chances = dict.fromkeys("abc", 1 / 3)
    found = nw.Evidence(logs, errors, chances, {"a": 1, "b": 1, "c": 2})
    assert found.bayes_factor("a", "b") == pytest.approx((1.0, 0.7))
    assert found.bayes_factor("a", "c") == pytest.approx((1.0, math.hypot(0.3, 1.2)))
    own = math.hypot((2 * 0.3 + 0.4) / 9, 1.2 / 9)
    assert found.probability["a"] == pytest.approx((1 / 3, own))
    assert "'a', 'b'" in found.shared
    assert nw.Evidence(logs, errors, chances, {"a": 1, "b": 3, "c": 2}).shared == ""


def test_what_has_no_evidence_is_refused(plain):
    other = nw.Release(s=nw.Gaussian(scale=NOISE).released(1.0))
    chains = replace(plain, log_evidence=None, sampler=nw.NUTS())
    cases = {
        "must be a dict of at least two": {"a": plain},
        "must come from a sampler that estimates the evidence; got 'NUTS'. Sample with nw.Rejection()": {
            "a": plain,
            "b": chains,
        },
        "must come from a complete run": {"a": plain, "b": replace(plain, status="max_seconds")},
        "must be a posterior of the same release": {"a": plain, "b": replace(plain, release_hash=other.hash)},
        "must be a Posterior": {"a": plain, "b": 3},
    }
    for message, posteriors in cases.items():
        with pytest.raises(nw.InputError) as caught:
            nw.evidence(posteriors)
        assert message in str(caught.value)
    for prior, message in (({"a": 1.0}, "for each model"), ({"a": 0.5, "b": 0.6}, "must sum to one")):
        with pytest.raises(nw.InputError, match=message):
            nw.evidence({"a": plain, "b": plain}, prior=prior)


# Sensitivity to the prior -----------------------------------------------------------------------------


def distance(first, second, x):
    """Cumulative Jensen-Shannon distance of two distribution functions on a grid, by the trapezoid rule."""
    p, q = first(x), second(x)
    m = 0.5 * (p + q)
    terms = p * np.log2(p / m) + q * np.log2(q / m)
    return math.sqrt(np.trapezoid(terms, x) / np.trapezoid(p + q, x))


def scaled(prior, likelihood):
    """The posterior with prior and likelihood to these powers: precisions are multiplied by them."""
    variance = 1.0 / (prior / TAU**2 + likelihood / (SIGMA**2 + NOISE**2))
    return stats.norm(variance * likelihood * PUBLISHED / (SIGMA**2 + NOISE**2), math.sqrt(variance))


def exact_sensitivity(kind, low, high):
    """By quadrature over a range, to which the distance is relative."""
    x, slopes = np.linspace(low, high, 20_001), []
    for power in (0.99, 1.01):
        one, other = scaled(1.0, 1.0), scaled(power, 1.0) if kind == "prior" else scaled(1.0, power)
        both = distance(one.cdf, other.cdf, x), distance(one.sf, other.sf, x)
        slopes.append(max(both) / abs(math.log2(power)))
    return np.mean(slopes)


def test_sensitivity_is_that_of_the_scaled_normal_posterior(plain):
    table = plain.prior_sensitivity(normal_model(), RELEASE)
    for kind in ("prior", "likelihood"):
        exact = exact_sensitivity(kind, plain["theta"].min(), plain["theta"].max())
        assert table.loc["theta", kind] == pytest.approx(exact, rel=0.1)


def test_draws_that_weigh_nothing_do_not_count(plain):
    """Where the likelihood is as good as zero a weight may be a bound of it, far above: its power must not matter."""
    draws = {name: values.copy() for name, values in plain.draws.items()}
    draws["theta"][0] = 1e6
    weighed = replace(plain, draws=draws, log_weights=np.where(np.arange(len(plain)) == 0, -650.0, 0.0))
    table, without = (each.prior_sensitivity(normal_model(), RELEASE) for each in (weighed, plain))
    assert np.allclose(
        table.loc["theta", ["prior", "likelihood"]].astype(float), without.iloc[0, :2].astype(float), rtol=0.02
    )


def test_weighted_draws_have_the_sensitivity_of_their_law():
    """Even steps of a law that is wider, weighed to be the posterior: no randomness."""
    wider = stats.norm(M - 0.5, 1.6 * math.sqrt(V))
    theta = wider.ppf((np.arange(8_000) + 0.5) / 8_000)
    base = scaled(1.0, 1.0).logpdf(theta) - wider.logpdf(theta)
    kept = theta[_within(theta, base)]
    assert len(kept) < len(theta)
    densities = {"prior": stats.norm.logpdf(theta, 0.0, TAU)}
    densities["likelihood"] = stats.norm.logpdf(PUBLISHED, theta, math.sqrt(SIGMA**2 + NOISE**2))
    for kind, log_density in densities.items():
        exact = exact_sensitivity(kind, kept.min(), kept.max())
        assert sensitivity(theta, base, log_density) == pytest.approx(exact, rel=0.02)
        assert abs(sensitivity(theta, np.zeros(8_000), log_density) - exact) > 0.1 * exact  # weights forgotten


def test_it_is_that_of_arviz(plain):
    arviz_stats = pytest.importorskip("arviz_stats")
    tree = plain.to_arviz(normal_model(), RELEASE)
    table = plain.prior_sensitivity(normal_model(), RELEASE)
    for kind in ("prior", "likelihood"):
        theirs = float(arviz_stats.psense(tree, group=kind, var_names=["theta"])["theta"])
        assert table.loc["theta", kind] == pytest.approx(theirs, rel=0.02)


def test_the_prior_of_groups_is_that_of_what_they_share():
    """theta_j ~ Normal(mu, 1) are the model; mu ~ Normal(0, 10) is the prior: the precision of that is multiplied."""
    groups, own, wide, released = 4, 1.0, 10.0, np.array([3.1, 1.2, 2.4, 2.9])
    model = nw.Model(
        {
            "mu": dist.Normal(0.0, wide),
            "theta": lambda mu: dist.Normal(mu, own).expand([groups]),
        },
        {"s": lambda theta: dist.Normal(theta, SIGMA)},
    )
    release = nw.Release(s=nw.Gaussian(scale=NOISE).released(released))
    noise = SIGMA**2 + NOISE**2

    def mu(power, spread):
        precision = power / wide**2 + groups / (spread + noise)
        return stats.norm(released.sum() / (spread + noise) / precision, precision**-0.5)

    def exact(power_of_groups, low, high):
        x = np.linspace(low, high, 20_001)
        slopes = []
        for power in (0.99, 1.01):
            one, other = mu(1.0, own), mu(power, own / (power if power_of_groups else 1.0))
            slopes.append(max(distance(one.cdf, other.cdf, x), distance(one.sf, other.sf, x)) / abs(math.log2(power)))
        return np.mean(slopes)

    drawn = mu(1.0, own).ppf((np.arange(8_000) + 0.5) / 8_000)  # even steps: no randomness in what is compared
    precision, z = 1.0 / own + 1.0 / noise, np.random.default_rng(3).normal(size=(8_000, groups))
    theta = (drawn[:, None] / own + released / noise) / precision + z * precision**-0.5
    told = {"released": dict(s=released), "release_hash": release.hash, "sampler": nw.NUTS(), "seed": 1}
    posterior = nw.Posterior({"mu": drawn, "theta": theta, "s": theta}, ("mu", "theta"), **told)
    found = posterior.prior_sensitivity(model, release).loc["mu", "prior"]
    ends = drawn.min(), drawn.max()
    assert found == pytest.approx(exact(False, *ends), rel=0.02)
    assert exact(True, *ends) > 2.0 * exact(False, *ends)  # laws of groups scaled too: another answer


def test_draws_that_could_not_have_given_the_release_have_no_say():
    """Bounded noise about a bounded statistic: at many draws of the prior the likelihood is zero, and has no power."""
    noise = nw.mechanisms.TruncatedLaplace(scale=1.0, bound=2.0)
    release = nw.Release(s=noise.released(2.5))
    model = nw.Model({"theta": dist.Normal(0.0, 3.0)}, {"s": lambda theta: dist.Uniform(theta, theta + 1.0)})
    posterior = nw.sample(model, release, nw.Importance(), draws=4_000, seed=3)
    assert np.mean(posterior.log_weights == -np.inf) > 0.3
    table = posterior.prior_sensitivity()
    assert 0.0 < table.loc["theta", "prior"] < 1.0
    assert 0.0 < table.loc["theta", "likelihood"] < 1.0


def test_disagreement_and_weak_releases_are_told_apart():
    model = nw.Model({"theta": dist.Normal(0.0, 0.5)}, {"s": lambda theta: dist.Normal(theta, 0.5)})
    far = nw.Release(s=nw.Gaussian(scale=0.3).released(2.0))
    near = nw.Release(s=nw.Gaussian(scale=40.0).released(2.0))
    for release, word in ((far, "prior and release disagree"), (near, "prior decides, release says little")):
        posterior = nw.sample(model, release, nw.Rejection(), draws=2_000, seed=3)
        assert posterior.prior_sensitivity(model, release).loc["theta", "diagnosis"] == word


def test_a_likelihood_through_another_statistic_is_not_given():
    model = nw.Model(
        {"theta": dist.Normal(0.0, 1.0)},
        {"s": lambda theta: dist.Normal(theta, 1.0), "t": lambda s: dist.Normal(s, 1.0)},
    )
    release = nw.Release(t=nw.Gaussian(scale=1.0).released(0.5))
    table = nw.sample(model, release, nw.Rejection(), draws=500, seed=3).prior_sensitivity(model, release)
    assert table.loc["theta", "prior"] > 0.0
    assert np.isnan(table.loc["theta", "likelihood"])


def test_another_release_is_refused(plain):
    other = nw.Release(s=nw.Gaussian(scale=NOISE).released(1.0))
    for ask in (
        lambda r: plain.replicate(normal_model(), r, seed=1),
        lambda r: plain.prior_sensitivity(normal_model(), r),
    ):
        with pytest.raises(nw.InputError, match="must be the one that the draws come from"):
            ask(other)
