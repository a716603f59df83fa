"""Conjugate models without a rejection: draws against closed forms, the evidence to all digits, what is refused."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import agrees, counts_agree, variance_agrees
from scipy import integrate, special, stats
from targets import briefly

import noisewise as nw
from noisewise.errors import InputError
from noisewise.inference.conditional import windows
from noisewise.inference.problem import Problem
from noisewise.model.layers import Layer
from noisewise.samplers.choosing import choice
from noisewise.samplers.choosing.choice import COLLAPSED
from noisewise.samplers.predictive import Predictive

PREDICTIVE = nw.Rejection(plan="predictive")
LAPLACE = nw.Laplace(scale=5.0)
DRAWS = 40_000


@cache
def count(shape=25.0, noise=LAPLACE, released=37.4, exposure=1.0):
    model = nw.Model(
        prior={"theta": dist.Gamma(shape, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta * exposure)}
    )
    return model, nw.Release(count=noise.released(released))


@cache
def shares(numbers=(18, 26), released=(14, 9)):
    model = nw.Model(
        prior={"p": dist.Beta(2.0, 3.0).expand([2])},
        statistics={"yes": lambda p: dist.Binomial(np.array(numbers), p)},
        derived={"difference": lambda p: p[1] - p[0]},
        dims={"p": ["arm"], "yes": ["arm"]},
        coords={"arm": ["control", "treated"]},
    )
    return model, nw.Release(yes=nw.DiscreteLaplace(scale=2.0).released(np.array(released)))


@cache
def mean():
    model = nw.Model(
        prior={"mu": dist.Normal(1.0, 2.0)}, statistics={"mean": lambda mu: dist.Normal(0.5 * mu + 1.0, 0.7)}
    )
    return model, nw.Release(mean=nw.Laplace(scale=0.8).released(3.4))


def count_law(shape, noise, released, exposure=1.0):
    """Probabilities of the counts 0, 1, ... given the release, and log evidence: a negative binomial law, weighed."""
    k = np.arange(4000)
    logs = stats.nbinom.logpmf(k, shape, 1.0 / (1.0 + exposure)) + np.asarray(noise.log_prob(released, k))
    whole = special.logsumexp(logs)
    return np.exp(logs - whole), whole


CASES = {
    "count": (25.0, LAPLACE, 37.4, 1.0),
    "conflict, exposure": (2.0, LAPLACE, 140.4, 3.0),
    "hardly any noise": (25.0, nw.Laplace(scale=1e-3), 37.0, 1.0),
    "hardly anything else": (25.0, nw.Laplace(scale=1e4), -500.0, 1.0),
    "clipped": (25.0, nw.mechanisms.Clipped(nw.DiscreteLaplace(scale=3.0), low=0, high=30), 30, 1.0),
}


@pytest.mark.parametrize("case", briefly(CASES, ["conflict, exposure", "clipped"]))
def test_a_count_and_its_rate_have_their_exact_laws(case, seed):
    shape, noise, released, exposure = CASES[case]
    posterior = nw.sample(*count(shape, noise, released, exposure), PREDICTIVE, draws=DRAWS, seed=seed)
    chance, log_evidence = count_law(shape, noise, released, exposure)
    assert posterior.status == "complete"
    assert posterior.weights is None
    assert posterior.ess["theta"] == DRAWS
    assert np.isclose(posterior.log_evidence, log_evidence, rtol=0, atol=1e-9)
    assert posterior.log_evidence_se == 0.0
    assert counts_agree(np.bincount(posterior["count"], minlength=4000), chance)
    rates = (shape + np.arange(4000)) / (1.0 + exposure)
    average = chance @ rates
    assert agrees(posterior["theta"], average)
    spread = chance @ (rates / (1.0 + exposure) + (rates - average) ** 2)
    assert agrees((posterior["theta"] - average) ** 2, spread)
    together = chance @ (rates * np.arange(4000))
    assert agrees(posterior["theta"] * posterior["count"], together)


def test_two_shares_against_enumeration(seed):
    posterior = nw.sample(*shares(), PREDICTIVE, draws=DRAWS, seed=seed)
    log_evidence = 0.0
    for entry, (n, released) in enumerate(((18, 14), (26, 9))):
        k = np.arange(n + 1)
        logs = stats.betabinom.logpmf(k, n, 2.0, 3.0) - np.abs(released - k) / 2.0 + np.log(np.tanh(0.25))
        log_evidence += special.logsumexp(logs)
        chance = np.exp(logs - special.logsumexp(logs))
        assert counts_agree(np.bincount(posterior["yes"][:, entry], minlength=n + 1), chance)
        assert agrees(posterior["p"][:, entry], chance @ ((2.0 + k) / (5.0 + n)))
    assert np.isclose(posterior.log_evidence, log_evidence, rtol=0, atol=1e-10)
    centred = posterior["p"] - posterior["p"].mean(axis=0)
    assert agrees(centred[:, 0] * centred[:, 1], 0.0)


def test_a_normal_mean_against_quadrature(seed):
    posterior = nw.sample(*mean(), PREDICTIVE, draws=DRAWS, seed=seed)
    centre, spread = 0.5 * 1.0 + 1.0, np.hypot(0.5 * 2.0, 0.7)

    def moment(power):
        def density(s):
            return s**power * stats.norm.pdf(s, centre, spread) * stats.laplace.pdf(3.4 - s, scale=0.8)

        return integrate.quad(density, -8.0, 12.0, points=[3.4], epsabs=1e-13)[0]

    evidence, first, second = (moment(power) for power in range(3))
    assert np.isclose(posterior.log_evidence, np.log(evidence), rtol=0, atol=1e-9)
    average, variance = first / evidence, second / evidence - (first / evidence) ** 2
    assert agrees(posterior["mean"], average)
    assert variance_agrees(posterior["mean"], variance)
    gain = 0.5 * 4.0 / (0.25 * 4.0 + 0.49)
    assert agrees(posterior["mu"], 1.0 + gain * (average - centre))
    assert variance_agrees(posterior["mu"], gain**2 * variance + 0.49 * 4.0 / (0.25 * 4.0 + 0.49))


def test_parameters_drawn_without_their_statistic_are_caught(seed, monkeypatch):
    """A negative control: the rate from its prior, as if nothing had been released."""
    monkeypatch.setattr(Layer, "draw", lambda self, rng, columns: rng.gamma(25.0, size=len(columns["count"])))
    posterior = nw.sample(*count(), PREDICTIVE, draws=DRAWS, seed=seed)
    chance, _ = count_law(25.0, LAPLACE, 37.4)
    assert counts_agree(np.bincount(posterior["count"], minlength=4000), chance)
    assert not agrees(posterior["theta"], chance @ ((25.0 + np.arange(4000)) / 2.0))


def test_it_is_chosen_where_a_rejection_would_take_long_and_replayed_by_its_name(monkeypatch):
    problem = shares(numbers=(185, 260), released=(140, 196))
    posterior = nw.sample(*problem, draws=5_000, seed=3)
    assert posterior.sampler == PREDICTIVE
    assert "conjugate" in posterior.reason
    again = nw.sample(*problem, posterior.sampler, draws=5_000, seed=posterior.seed, engine=nw.Threads(1))
    assert all(np.array_equal(posterior[name], again[name]) for name in ("p", "yes"))
    fewer = nw.sample(*problem, posterior.sampler, draws=1_000, seed=posterior.seed)
    assert np.array_equal(posterior["p"][:1_000], fewer["p"])
    cheap = ("Rejection", "predictive", "Importance")  # the others need pilot rounds
    monkeypatch.setattr(choice, "COSTS", {key: choice.COSTS[key] for key in cheap})
    forecast = nw.forecast(*problem, draws=5_000, seed=3)
    assert forecast.choice == PREDICTIVE
    assert nw.sample(*count(), draws=1_000, seed=3).sampler == nw.Rejection()


def test_derived_quantities_and_labels_are_there():
    posterior = nw.sample(*shares(), PREDICTIVE, draws=500, seed=1)
    assert np.allclose(posterior["difference"], posterior["p"][:, 1] - posterior["p"][:, 0])
    assert "p[treated]" in posterior.summary().index


REFUSED = {
    "another prior": nw.Model({"t": dist.LogNormal(3.0, 1.0)}, {"count": lambda t: dist.Poisson(t)}),
    "one rate behind several counts": nw.Model(
        {"t": dist.Gamma(2.0, 1.0)}, {"count": lambda t: dist.Poisson(t * jnp.ones(1))}
    ),
    "a parameter of a parameter": nw.Model(
        {"a": dist.Gamma(2.0, 1.0), "t": lambda a: dist.Gamma(a, 1.0)}, {"count": lambda t: dist.Poisson(t)}
    ),
    "read twice": nw.Model(
        {"t": dist.Gamma(2.0, 1.0)}, {"count": lambda t: dist.Poisson(t), "again": lambda t: dist.Poisson(t)}
    ),
    "not in proportion": nw.Model({"t": dist.Gamma(2.0, 1.0)}, {"count": lambda t: dist.Poisson(t + 1.0)}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_conjugate_is_refused_and_sampled_otherwise(case):
    model = REFUSED[case]
    release = nw.Release({name: LAPLACE.released(np.full(model.shape(name), 37.4)) for name in model.statistics})
    assert PREDICTIVE.unfit(Problem(model, release)) is not None
    with pytest.raises(InputError, match="conjugate"):
        nw.sample(model, release, PREDICTIVE, draws=100, seed=1)


def test_what_has_no_noise_keeps_its_parameters():
    model, _ = count()
    release = nw.Release(count=nw.Exact().released(37))
    assert "conjugate" in PREDICTIVE.unfit(Problem(model, release))


def test_counts_in_thousand_millions_are_left_to_others():
    """The table of a window of millions would be large."""
    model, release = count(shape=1e9, noise=nw.Laplace(scale=1e5), released=1e9 + 3e4)
    assert "1,048,576 values" in PREDICTIVE.unfit(Problem(model, release))
    posterior = nw.sample(model, release, draws=20_000, seed=1)
    assert posterior.status == "complete"
    assert posterior.sampler != PREDICTIVE


def test_a_window_of_many_thousand_values(seed):
    """The law of a negative binomial count of two hundred thousand under wide noise, by enumeration."""
    model, release = count(shape=2e5, noise=nw.Laplace(scale=900.0), released=2e5 + 250.4)
    assert Predictive.of(Problem(model, release)).collapse.cells > 2**13
    posterior = nw.sample(model, release, PREDICTIVE, draws=DRAWS, seed=seed)
    counts = np.arange(240_000)
    logs = stats.nbinom.logpmf(counts, 2e5, 0.5) + stats.laplace.logpdf(2e5 + 250.4 - counts, scale=900.0)
    log_evidence = special.logsumexp(logs)
    chance = np.exp(logs - log_evidence)
    average = chance @ counts
    assert np.isclose(posterior.log_evidence, log_evidence, rtol=0, atol=1e-8)
    assert counts_agree(np.bincount(posterior["count"], minlength=len(counts)), chance)
    assert agrees(posterior["theta"], (2e5 + average) / 2.0)
    assert variance_agrees(posterior["count"], chance @ (counts - average) ** 2)


def test_a_release_that_cannot_come_about_is_refused():
    """More than the noise reaches beyond every answer: there is no posterior, and none is drawn."""
    model = nw.Model({"p": dist.Beta(2.0, 3.0)}, {"yes": lambda p: dist.Binomial(20, p)})
    release = nw.Release(yes=nw.mechanisms.TruncatedLaplace(scale=2.0, bound=10.0).released(40.0))
    assert "can come about" in PREDICTIVE.unfit(Problem(model, release))
    with pytest.raises(InputError, match="can come about"):
        nw.sample(model, release, PREDICTIVE, draws=100, seed=1)
    with pytest.raises(nw.InferenceError, match="cannot come about"):
        nw.sample(model, release, draws=100, seed=1)
    with pytest.raises(nw.InferenceError, match="cannot come about"):
        nw.forecast(model, release, draws=100, seed=1)


@pytest.mark.long
def test_another_route_agrees(seed):
    """The same posterior by weights of the exact likelihood, which know nothing of conjugacy."""
    ours = nw.sample(*count(shape=2.0), PREDICTIVE, draws=DRAWS, seed=seed)
    other = nw.sample(*count(shape=2.0), COLLAPSED, draws=DRAWS, seed=seed)
    row, beside = ours.summary().loc["theta"], other.summary().loc["theta"]
    assert abs(row["mean"] - beside["mean"]) < 4.9 * np.hypot(row["mcse"], beside["mcse"])
    assert abs(ours.log_evidence - other.log_evidence) < 4.9 * other.log_evidence_se


def test_windows_widen_until_nothing_is_left_out(monkeypatch):
    """Windows that are too narrow at first: the law of the count is whole all the same."""
    monkeypatch.setattr(windows, "FALL", 3.0)
    model, release = count(released=37.9)
    found = Predictive.of(Problem(model, release))
    _, log_evidence = count_law(25.0, LAPLACE, 37.9)
    assert found.widened
    assert np.isclose(float(found.collapse.fixed.log_likelihood), log_evidence, rtol=0, atol=1e-9)
