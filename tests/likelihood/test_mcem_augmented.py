"""Totals by augmented records in Monte Carlo EM: chains over records, their errors, and what they do not know."""

from dataclasses import replace
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, LIMIT, agrees
from scipy import stats

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step import augmented, simulated
from noisewise.likelihood.e_step.augmented import Augmented
from noisewise.likelihood.e_step.cloud import Cloud, exact_cloud, moved
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.m_step.maximise import Objective
from noisewise.likelihood.starts import best_of
from noisewise.mechanisms import TruncatedLaplace

BY_CHAINS = float(stats.t.isf(FALSE_ALARM / 2, 63))
"""|z| beyond this is an alarm where the error is known from 64 chains: about 5.4."""
RECORD = {"x": lambda mu, sigma: dist.Normal(mu, sigma)}
PRIOR = {"mu": dist.Normal(0.0, 10.0), "sigma": dist.HalfNormal(5.0)}


def quiet():
    """No interruption."""


def cloud_of(part, values, size, seed, burn=augmented.BURN, looks=None):
    blocks, states = part.blocks(size)
    settings = {"burn": burn, "looks": looks or part.looks(states)}
    rngs = [np.random.default_rng([seed, block]) for block in range(blocks)]
    found = [part.run_chains(rng, values, states, quiet, **settings) for rng in rngs]
    return part.cloud({name: np.concatenate([one[name] for one in found]) for name in found[0]}, states)


def louis_of(model, part, values, cloud):
    objective = Objective([part], Coordinates(model))
    return objective.score_and_information(objective.coordinates.free_from(values), [cloud])


# A sum of Normal records: its own law is known -----------------------------------------------------------------------


@cache
def normal_sum(n=30):
    record = {"x": lambda mu: dist.Normal(mu, 2.0)}
    model = nw.Model(prior={"mu": PRIOR["mu"]}, statistics={"total": nw.Total(record, lambda x: x, n)})
    whole = nw.Model(prior={"mu": PRIOR["mu"]}, statistics={"total": lambda mu: dist.Normal(n * mu, 2.0 * np.sqrt(n))})
    return model, whole, nw.Release(total=nw.Laplace(scale=6.0).released(1.15 * n))


def test_chains_give_the_score_and_information_of_the_sums_own_law(seed):
    """Negative control: the score of the confidential records' own mean, with the release for their total."""
    model, whole, release = normal_sum()
    values = {"mu": np.asarray(0.9)}
    (law,) = parts_of(Problem(whole, release))
    truth = louis_of(whole, law, values, exact_cloud(law, values))
    part = Augmented(Problem(model, release), "total")
    cloud = cloud_of(part, values, 4_096, seed)
    found = louis_of(model, part, values, cloud)
    assert cloud.at_rest
    assert cloud.groups == 64
    assert np.all(np.abs(found.score - truth.score) < BY_CHAINS * np.sqrt(np.diag(found.noise)))
    assert np.all(np.abs(found.information - truth.information) < BY_CHAINS * np.sqrt(found.information_noise))
    assert np.allclose(found.complete, 30 / 4.0)
    naive = (1.15 - 0.9) * 30 / 4.0
    assert abs(found.score[0] - naive) > BY_CHAINS * np.sqrt(found.noise[0, 0])


@pytest.mark.long
def test_estimates_lie_about_the_top_as_far_as_they_say(seed):
    """Chi-square over 20 seeds of z squared. Negative control: errors a third of these."""
    model, whole, release = normal_sum(200)
    exact = nw.fit(whole, release, start={"mu": 1.0})
    settings = nw.MCEM(e_step="augmented", schedule=nw.Ascent(most=2_000), final=4_096)
    fits = [nw.fit(model, release, settings, start={"mu": 0.5}, seed=seed + i) for i in range(20)]
    found = [
        [(fit.estimate["mu"] - exact.estimate["mu"]) / fit.monte_carlo_error["mu"] for fit in fits],
        [(fit.information - exact.information).item() / fit.information_error.item() for fit in fits],
        [(fit.log_likelihood - exact.log_likelihood) / fit.diagnostics["log_likelihood_error"] for fit in fits],
    ]
    sums = np.sum(np.square(found), axis=1)
    assert all(fit.status == "converged" for fit in fits)
    assert np.all(sums < stats.chi2.isf(FALSE_ALARM / 3, 20))
    assert np.all(9.0 * sums > stats.chi2.isf(FALSE_ALARM / 3, 20))


# Clamped sums, whose joint law is an exact convolution ---------------------------------------------------------------

SCALES, RELEASED = np.array([6.0, 9.0]), np.array([70.0, 75.0])


def steps_of(x, xp):
    """Whole numbers: the clamped value in halves, and its square, rounded."""
    clamped = xp.clip(x, -3.0, 3.0)
    return xp.stack([xp.round(2.0 * clamped), xp.round(clamped**2)])


def clamped_model(n=40):
    return nw.Model(prior=PRIOR, statistics={"t": nw.Total(RECORD, lambda x: steps_of(x, jnp), n)})


def height_of(n=40):
    """The log likelihood: cells of x on which both contributions are constant, convolved n times by Fourier."""
    roots = np.sqrt(np.arange(9) + 0.5)
    ends = np.unique(np.concatenate([(np.arange(-6, 6) + 0.5) / 2.0, roots, -roots]))
    places = np.concatenate([[-4.0], 0.5 * (ends[1:] + ends[:-1]), [4.0]])
    shape = (1024, 512)
    first, second = steps_of(places, np).astype(int)
    grid = [np.where(np.arange(shape[0]) < 512, np.arange(shape[0]), np.arange(shape[0]) - 1024), np.arange(shape[1])]
    noise = [stats.laplace.pdf(y, at, scale) for y, at, scale in zip(RELEASED, grid, SCALES, strict=True)]

    def height(mu, sigma):
        mass = np.diff(np.concatenate([[0.0], stats.norm.cdf(ends, mu, sigma), [1.0]]))
        table = np.zeros(shape)
        np.add.at(table, (first, second), mass)
        law = np.fft.irfft2(np.fft.rfft2(table) ** n, shape)
        return float(np.log(noise[0] @ law @ noise[1]))

    return height


def slopes(height, place, step=1e-3):
    """Score and information by central differences."""
    moves = step * np.eye(2)
    score = [(height(*(place + h)) - height(*(place - h))) / (2.0 * step) for h in moves]

    def bend(h, k):
        corners = [height(*(place + a * h + b * k)) * a * b for a in (-1, 1) for b in (-1, 1)]
        return -sum(corners) / (4.0 * step**2)

    return np.array(score), np.array([[bend(h, k) for k in moves] for h in moves])


@pytest.mark.long
def test_clamped_sums_have_the_score_of_their_convolution(seed, monkeypatch):
    """Negative control: chains that count from the start on, with records of the model."""
    model, values = clamped_model(), {"mu": np.asarray(0.5), "sigma": np.asarray(1.0)}
    score, information = slopes(height_of(), np.array([0.5, 1.0]))
    part = Augmented(Problem(model, nw.Release(t=nw.Laplace(scale=SCALES).released(RELEASED))), "t")
    found = louis_of(model, part, values, cloud_of(part, values, 4_096, seed))
    assert np.all(np.abs(found.score - score) < BY_CHAINS * np.sqrt(np.diag(found.noise)))
    assert np.all(np.abs(found.information - information) < BY_CHAINS * np.sqrt(found.information_noise))
    monkeypatch.setattr(augmented, "STRETCH", 1)
    early = louis_of(model, part, values, cloud_of(part, values, 1_024, seed, burn=0.0, looks=1))
    assert np.all(np.abs(early.score - score) > BY_CHAINS * np.sqrt(np.diag(early.noise)))


@pytest.mark.long
def test_fits_of_clamped_sums_end_at_the_top_of_their_convolution(seed):
    """The top solves height's score; chi-square over 20 seeds. Negative control: another top, three errors away."""
    height = height_of()
    place = np.array([0.89, 1.07])
    for _ in range(6):
        score, information = slopes(height, place)
        place = place + np.linalg.solve(information, score)
    release = nw.Release(t=nw.Laplace(scale=SCALES).released(RELEASED))
    settings = nw.MCEM(e_step="augmented", schedule=nw.Ascent(most=2_000), final=4_096)
    start = {"mu": 0.5, "sigma": 1.0}
    fits = [nw.fit(clamped_model(), release, settings, start=start, seed=seed + i) for i in range(20)]
    for name, truth in zip(start, place, strict=True):
        z = [(fit.estimate[name] - truth) / fit.monte_carlo_error[name] for fit in fits]
        assert np.sum(np.square(z)) < stats.chi2.isf(FALSE_ALARM, 20)
        assert np.sum(np.square(np.array(z) + 3.0)) > stats.chi2.isf(FALSE_ALARM, 20)
    for fit in fits:
        assert np.all(np.abs(fit.information - information) < BY_CHAINS * fit.information_error)
        assert abs(fit.log_likelihood - height(*place)) < LIMIT * fit.diagnostics["log_likelihood_error"]


@pytest.mark.long
def test_little_noise_is_no_hindrance(seed):
    """Noise of a hundredth of the totals' own spread: simulated records are thin, chains over them are not."""
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(1.0, 2.0, 2_000), 0.0, 3.0)
    totals = np.array([x.sum(), (x**2).sum()])
    scale = 0.01 * np.array([x.std(), (x**2).std()]) * np.sqrt(2_000)

    def contribution(x):
        clamped = jnp.clip(x, 0.0, 3.0)
        return jnp.stack([clamped, clamped**2])

    model = nw.Model(prior=PRIOR, statistics={"t": nw.Total(RECORD, contribution, 2_000)})
    release = nw.Release(t=nw.Gaussian(scale=scale).released(totals + rng.normal(0.0, scale)))
    start, quick = {"mu": 0.5, "sigma": 1.5}, nw.Ascent(most=1_000)
    settings = nw.MCEM(e_step="augmented", schedule=quick, final=4_096)
    one, two = (nw.fit(model, release, settings, start=start, seed=seed + i) for i in range(2))
    for name, truth in (("mu", 1.0), ("sigma", 2.0)):
        error = np.hypot(one.monte_carlo_error[name], two.monte_carlo_error[name])
        assert abs(one.estimate[name] - two.estimate[name]) < BY_CHAINS * error
        assert abs(one.estimate[name] - truth) < LIMIT * one.standard_error[name]
    assert one.diagnostics["ess"] > 1_000
    assert np.isnan(one.log_likelihood)
    assert "The log likelihood is not known" in one.message
    staged = nw.Staged(tolerances=(1e-3,), sizes=(1_000,), cap=2)
    thin = nw.fit(
        model, release, nw.MCEM(schedule=staged, final=2_000), start=one.estimate, seed=seed, on_failure="return"
    )
    assert thin.status == "thin"
    assert 'Use nw.MCEM(e_step="augmented")' in thin.message


# Errors by groups -----------------------------------------------------------------------------------------------------


def test_errors_of_chains_are_those_between_them(seed):
    """Steps that hang together (correlation 0.9), moved to other parameters, so that weights differ.

    Negative control: the same values taken for independent ones.
    """
    model = nw.Model(prior={"mu": PRIOR["mu"]}, statistics={"s": lambda mu: dist.Normal(mu**2, 1.0)})
    release = nw.Release(s=nw.Gaussian(scale=1.0).released(1.0))
    (part,) = parts_of(Problem(model, release))
    rng = np.random.default_rng(seed)
    chains, states, rho = 16, 16, 0.9
    found, alone, rises = [], [], []
    before, after = {"mu": np.asarray(1.0)}, {"mu": np.asarray(1.1)}
    for _ in range(120):
        s = rng.normal(1.0, np.sqrt(0.5), (states, chains))
        for k in range(1, states):
            s[k] = 1.0 + rho * (s[k - 1] - 1.0) + np.sqrt(1.0 - rho**2) * (s[k] - 1.0)
        weights = np.full((states * chains, 1), 1.0 / (states * chains))
        cloud = Cloud(s.reshape(-1), weights, np.zeros(1), groups=chains)
        there = moved(part, cloud, before, after)
        found.append(louis_of(model, part, after, there))
        alone.append(louis_of(model, part, after, Cloud(there.values, there.weights, there.log_likelihoods)))
        rises.append([there.log_likelihood, there.variance(there.weights - cloud.weights)])
    for name, noise in (("score", "noise"), ("information", "information_noise")):
        values = np.array([getattr(one, name).item() for one in found])
        claimed, single = (np.array([getattr(one, noise).item() for one in many]) for many in (found, alone))
        scatter = (values - values.mean()) ** 2 * 120 / 119
        assert agrees(scatter - claimed, 0.0, truth_error=0.1 * scatter.mean() / LIMIT)
        assert not agrees(scatter - single, 0.0, truth_error=0.1 * scatter.mean() / LIMIT)
    both = [np.array([getattr(one, name).item() for one in found]) for name in ("score", "information")]
    product = (both[0] - both[0].mean()) * (both[1] - both[1].mean()) * 120 / 119
    assert agrees(product - [one.cross.item() for one in found], 0.0, truth_error=0.1 * abs(product.mean()) / LIMIT)
    heights, variances = np.array(rises).T
    scatter = (heights - heights.mean()) ** 2 * 120 / 119
    assert agrees(scatter - variances, 0.0, truth_error=0.1 * scatter.mean() / LIMIT)
    values = {"mu": np.asarray(1.1)}
    truth = louis_of(model, part, values, exact_cloud(part, values))
    assert agrees([one.score - one.bias for one in found], truth.score)
    assert agrees([one.information - one.information_bias for one in found], truth.information)


def test_what_a_state_is_worth(seed):
    """Chains of correlation rho are worth (1 - rho) / (1 + rho) of independent values, for long chains."""
    rng = np.random.default_rng(seed)
    for rho in (0.0, 0.8):
        noise = rng.normal(size=(1, 400, 256, 1))
        chain = noise.copy()
        for k in range(1, 400):
            chain[:, k] = rho * chain[:, k - 1] + np.sqrt(1.0 - rho**2) * noise[:, k]
        expected = (1.0 - rho) / (1.0 + rho)
        found = augmented.worth(chain)
        assert found <= 1.0
        assert abs(found / expected - 1.0) < LIMIT * np.sqrt(2.0 / 255) + 0.02  # the variance of 256 chains' means
        assert not augmented.drifts(chain)
        chain += np.exp(-np.arange(400) / 20.0)[:, None, None]
        assert augmented.drifts(chain)


@pytest.mark.parametrize(("scale", "rests"), [(0.3, False), (8.0, True)])
def test_chains_that_are_caught_where_they_began_do_not_rest(scale, rests, seed):
    """A record of 8 more or less is not taken once the total is near a release with little noise.

    How many such records a chain has is then what its beginning led to. It does not drift. With more noise it moves.
    """
    record = {"b": lambda: dist.Bernoulli(0.02), "z": lambda mu: dist.Normal(mu, 1.0)}
    total = nw.Total(record, lambda b, z: 8.0 * b + z, 40)
    model = nw.Model(prior={"mu": PRIOR["mu"]}, statistics={"total": total})
    part = Augmented(Problem(model, nw.Release(total=nw.Gaussian(scale=scale).released(10.0))), "total")
    assert cloud_of(part, {"mu": np.asarray(0.15)}, 64 * 40, seed).at_rest == rests


def test_numbers_that_are_not_finite_do_not_rest(seed):
    model, _, release = normal_sum()
    part = Augmented(Problem(model, release), "total")
    found = part.run_chains(np.random.default_rng(seed), {"mu": np.asarray(0.9)}, 64, quiet)
    assert part.cloud(found, 64).at_rest
    found["seen"][5, 0, 1] = np.nan
    assert not part.cloud(found, 64).at_rest


def test_joined_chains_keep_their_groups(seed):
    rng = np.random.default_rng(seed)
    clouds = [
        Cloud(rng.normal(size=16 * k), np.full((16 * k, 1), 1 / (16 * k)), np.zeros(1), groups=16) for k in (2, 3)
    ]
    whole = simulated.joined_clouds(clouds[0], clouds[1], 1, 1)
    assert whole.groups == 16
    assert np.allclose(whole.weights, 1 / 80)
    halves = simulated.first_half(None, whole), simulated.second_half(None, whole)
    assert [len(half.values) for half in halves] == [32, 48]
    assert all(half.groups == 16 for half in halves)


# States ---------------------------------------------------------------------------------------------------------------

LAWS = {
    "Normal": (lambda a, b: dist.Normal(a, b), lambda x: jnp.clip(x, 0.0, 2.0)),
    "LogNormal": (lambda a, b: dist.LogNormal(a, b), lambda x: jnp.clip(x, 0.0, 2.0)),
    "Gamma": (lambda a, b: dist.Gamma(a, b), lambda x: jnp.clip(x, 0.0, 2.0)),
    "Beta": (lambda a, b: dist.Beta(a, b), lambda x: x),
    "Poisson": (lambda a, b: dist.Poisson(a * b), lambda x: jnp.minimum(x, 4)),
    "Bernoulli": (lambda a, b: dist.Bernoulli(a / (a + b)), lambda x: x),
    "Dirichlet": (lambda a, b: dist.Dirichlet(jnp.stack([a, b, a])), lambda x: x),
}


@pytest.mark.long  # by default, scores of chains that hold sums beside the exact ones
@pytest.mark.parametrize("name", LAWS)
def test_sums_stand_for_all_records_of_a_family(name, seed):
    """The same chains, with all their records held: score, information and ratios are the same numbers."""
    law, contribution = LAWS[name]
    model = nw.Model(
        prior={"a": dist.Gamma(2.0, 1.0), "b": dist.Gamma(2.0, 1.0)},
        statistics={"t": nw.Total({"x": law}, contribution, 12)},
    )
    release = nw.Release(t=nw.Laplace(scale=3.0).released(np.full(model.shape("t"), 5.5)))
    values, after = ({"a": np.asarray(a), "b": np.asarray(b)} for a, b in ((1.5, 0.8), (1.4, 1.0)))
    found = []
    for by_sums in (True, False):
        part = Augmented(Problem(model, release), "t")
        assert part.by_sums
        if not by_sums:
            part.by_sums, part.shape = False, (12, part.widths["x"])
            part.compiled = lambda purpose, build: augmented.Compiled(build)
        cloud = cloud_of(part, values, 64, seed)
        louis = louis_of(model, part, values, cloud)
        ratio = moved(part, cloud, values, after)
        found.append([louis.score, louis.information, louis.noise, ratio.log_likelihoods, ratio.weights])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.long
def test_records_whose_fields_depend_on_each_other(seed):
    """y given x is Normal(slope x, 1) and x Normal(1, 1), so that y is Normal(slope, slope^2 + 1)."""
    n = 12
    record = {"x": lambda: dist.Normal(1.0, 1.0), "y": lambda slope, x: dist.Normal(slope * x, 1.0)}
    model = nw.Model(
        prior={"slope": dist.HalfNormal(3.0)},
        statistics={"t": nw.Total(record, lambda y: y, n), "count": lambda slope: dist.Poisson(slope)},
    )
    release = nw.Release(t=nw.Gaussian(scale=4.0).released(30.0), count=nw.Laplace(scale=1.0).released(3.2))
    whole = nw.Model(
        prior={"slope": dist.HalfNormal(3.0)},
        statistics={
            "t": lambda slope: dist.Normal(n * slope, jnp.sqrt(n * (slope**2 + 1.0))),
            "count": lambda slope: dist.Poisson(slope),
        },
    )
    exact = nw.fit(whole, release, start={"slope": 2.0})
    settings = nw.MCEM(e_step="augmented", schedule=nw.Ascent(most=4_000), final=16_384)
    fits = [nw.fit(model, release, settings, start={"slope": 2.0}, seed=seed + i) for i in range(6)]
    for fit in fits:
        assert fit.status == "converged"
        assert abs(fit.estimate["slope"] - exact.estimate["slope"]) < BY_CHAINS * fit.monte_carlo_error["slope"]
        assert np.all(np.abs(fit.information - exact.information) < BY_CHAINS * fit.information_error)
        assert abs(fit.log_likelihood - exact.log_likelihood) < LIMIT * fit.diagnostics["log_likelihood_error"]


# What is known, and what is not ---------------------------------------------------------------------------------------


def fitted(seed, engine=None, **settings):
    model, _, release = normal_sum(12)
    estimator = nw.MCEM(e_step="augmented", schedule=nw.Ascent(start=64, most=512), **settings)
    return nw.fit(model, release, estimator, start={"mu": 0.9}, seed=seed, engine=engine, on_failure="return")


def test_one_seed_gives_one_fit_on_any_engine(seed, monkeypatch):
    monkeypatch.setattr(augmented, "STRETCH", 4)  # several blocks of chains
    one, two, other = (fitted(seed + i, nw.Threads(threads), final=512) for i, threads in ((0, 1), (0, 2), (1, 1)))
    assert repr(one) == repr(two)
    assert one.log_likelihood == two.log_likelihood
    assert other.estimate != one.estimate


def test_a_likelihood_of_few_totals_is_not_given(seed, monkeypatch):
    monkeypatch.setattr(augmented, "SIMULATED", 1)
    monkeypatch.setattr(augmented, "FEWEST", 120)
    fit = fitted(seed, final=1_000)
    assert fit.status == "converged"
    assert np.isnan(fit.log_likelihood)
    assert np.isnan(fit.diagnostics["log_likelihood_error"])
    assert "of 120 values simulated for 'total'" in fit.message


def test_chains_that_remember_their_start_are_no_measurement(seed, monkeypatch):
    monkeypatch.setattr(augmented, "PATIENCE", 3)
    fit = fitted(seed, final=1_000)
    assert fit.status == "thin"
    assert "have not forgotten where they began" in fit.message


def test_heights_that_are_not_known_do_not_choose(seed):
    fit = fitted(seed, final=1_000)
    far = {"mu": np.asarray(9.0)}
    ends = {
        0: replace(fit, status="stalled", log_likelihood=np.nan),
        1: replace(fit, log_likelihood=np.nan),
        2: replace(fit, log_likelihood=np.nan, estimate=far),
    }
    best = best_of([{}, {}, {}], ends.__getitem__)
    assert best.status == "converged"
    assert best.estimate == fit.estimate
    assert "which of them is higher is not known" in best.message


REFUSED = {
    "no total": (
        lambda: nw.fit(
            nw.Model(prior={"mu": PRIOR["mu"]}, statistics={"s": lambda mu: dist.Normal(mu, 1.0)}),
            nw.Release(s=nw.Laplace(scale=1.0).released(1.0)),
            nw.MCEM(e_step="augmented"),
            seed=1,
        ),
        "'e_step' must be another where no Total is released",
    ),
    "noise with gaps": (
        lambda: nw.fit(
            normal_sum()[0],
            nw.Release(total=TruncatedLaplace(scale=2.0, bound=8.0).released(3.0)),
            nw.MCEM(e_step="augmented"),
            seed=1,
        ),
        "needs noise that reaches every total",
    ),
    "too many to augment": (
        lambda: nw.fit(normal_sum(300_000)[0], normal_sum()[2], nw.MCEM(e_step="augmented"), seed=1),
        "must have at most 262144 records to be augmented",
    ),
    "too many to simulate": (
        lambda: nw.fit(normal_sum(100_000)[0], normal_sum()[2], nw.MCEM(), seed=1),
        "to be simulated whole; got 100000. Use nw.MCEM",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    call, message = REFUSED[name]
    with pytest.raises(nw.InputError, match=message):
        call()


def test_very_many_records_are_held_as_sums(monkeypatch):
    monkeypatch.setattr(augmented, "_unfit", lambda problem, name: None)  # simulates, which takes long
    part = Augmented(Problem(normal_sum(100_000)[0], normal_sum()[2]), "total")
    assert part.by_sums
    assert part.shape == (2, 1)
    assert part.chains == 32
    assert part.room >= 256
