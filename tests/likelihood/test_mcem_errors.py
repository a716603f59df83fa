"""Errors of Monte Carlo EM: the score's bias, chains' batches, samples too thin to know their error, and room."""

import subprocess
import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees
from scipy import optimize, stats
from targets import briefly, count_model, count_release

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step import simulated
from noisewise.likelihood.e_step.by_chance import in_batches
from noisewise.likelihood.e_step.by_weight import mixture
from noisewise.likelihood.e_step.cloud import Clouds, exact_cloud, weighted
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.e_step.table import E_STEPS
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.m_step.maximise import Louis, Objective, _louis
from noisewise.likelihood.monte_carlo import position as positions
from noisewise.likelihood.monte_carlo.climb import Climb
from noisewise.likelihood.monte_carlo.position import Position
from noisewise.likelihood.monte_carlo.settling import bias_left
from noisewise.likelihood.result import End, finish

# The score's bias -----------------------------------------------------------------------------------------------------


@cache
def normal_rows(n, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 10.0), "sigma": dist.HalfNormal(5.0)},
        statistics={"y": lambda mu, sigma: dist.Normal(mu, sigma).expand([n])},
    )
    released = rng.normal(1.0, 1.5, n) + rng.laplace(0.0, scale, n)
    return model, nw.Release(y=nw.Laplace(scale=scale).released(released))


RUNS = 200


@pytest.mark.parametrize("mixed", briefly([False, True], [True]))
def test_few_values_for_many_entries_bias_what_they_measure_and_the_bias_is_taken_off(mixed, seed):
    """Each entry's mean is off by about 1/N, all the same way, so that n entries add up; negative control: left in.

    So it is with the variance that the information lacks, and with the log of the likelihood.
    """
    model, _ = normal_rows(160, seed)
    rows = stats.norm.ppf((np.arange(160) + 0.5) / 160, 1.0, 1.5)  # none far out, whose next order would be large
    release = nw.Release(y=nw.Laplace(scale=1.0).released(rows))
    (part,) = parts_of(Problem(model, release))
    objective = Objective([part], Coordinates(model))
    values = {"mu": np.asarray(0.9), "sigma": np.asarray(1.4)}
    free = objective.coordinates.free_from(values)
    cloud = exact_cloud(part, values)
    truth = objective.score_and_information(free, [cloud])
    position = position_of(model, release, nw.MCEM(), values)
    rng = np.random.default_rng(seed)
    plain, whole, heights = [], [], []
    for _ in range(RUNS):
        s = rng.normal(0.9, 1.4, (30, 160))
        s, log_weights = mixture(part, values, rng, s) if mixed else (s, part.log_eta(s))
        clouds = Clouds([part], lambda _, s=s, w=log_weights: weighted(s, w - np.log(30.0)), held=True)
        louis = objective.score_and_information(free, clouds)
        left = louis + bias_left(position, clouds, louis)
        plain.append((louis.score, np.diag(louis.information)))
        whole.append((left.score - left.bias, np.diag(left.information - left.information_bias)))
        heights.append((clouds.log_likelihood, *simulated.log_likelihood_error(clouds)))
    for of in (0, 1):
        exact = (truth.score, np.diag(truth.information))[of]
        assert not agrees(np.array(plain)[:, of], exact)
        assert agrees(np.array(whole)[:, of], exact)  # what is left is of the third order in 1/N
    height, lacking, error = np.array(heights).T
    assert not agrees(height, cloud.log_likelihood)
    assert np.mean((height + lacking - cloud.log_likelihood) ** 2 / error**2) < stats.chi2.isf(1e-6, RUNS) / RUNS


@pytest.mark.long
def test_the_error_of_the_information_counts_that_of_the_estimate_at_which_it_is_taken(seed):
    """Over repeated runs, beside the information at the exact maximum; negative control: as if the place were known."""
    model, release = normal_rows(20, seed)
    start = {"mu": np.asarray(1.0), "sigma": np.asarray(1.4)}
    exact = nw.fit(model, release, nw.EM(accelerate=True), start=start)
    settings = nw.MCEM(schedule=nw.Ascent(most=5_000), final=5_000)
    runs, held = 40, []
    z = np.zeros((runs, 2, 2))
    for run in range(runs):
        fit = nw.fit(model, release, settings, start=start, seed=seed + run)
        z[run] = (fit.information - exact.information) / fit.information_error
        position = position_of(model, release, settings, fit.estimate)
        louis = position.objective.score_and_information(position.free, position.measure(0, 5_000))
        held.append(np.sqrt(louis.information_noise))
        held[-1] = (fit.information - exact.information) / held[-1]
    limit = stats.chi2.isf(1e-6, runs)
    assert np.all(np.sum(z**2, axis=0) < limit)
    assert np.all(np.sum(z**2, axis=0) > stats.chi2.ppf(1e-6, runs))
    assert np.sum(np.square(held), axis=0)[0, 0] > limit


# Chains ---------------------------------------------------------------------------------------------------------------


def position_of(model, release, settings, start):
    return Position(Problem(model, release), E_STEPS[settings.e_step], start, settings.largest, 1, nw.Threads(1))


def test_the_error_of_a_chains_rise_is_that_of_its_batches(seed):
    """Negative control: the formula for independent weights takes the steps of a chain for more than they are."""
    release = nw.Release(count=nw.Laplace(scale=2.0).released(37.4))
    markov = nw.MCEM(e_step="markov")
    position = position_of(count_model(), release, markov, {"theta": np.asarray(30.0)})
    climb, (part,) = Climb(markov.schedule, position, None, None), position.parts
    new = position.coordinates.free_from({"theta": np.asarray(31.0)})
    rng = np.random.default_rng(seed)
    found, independent = [], []
    for _ in range(120):
        s = rng.poisson(30.0, 1_000)
        clouds = [E_STEPS["markov"].weigh(rng, part, s, part.log_eta(s))]
        found.append(climb.rise(new, clouds))
        position.e_step = E_STEPS["importance"]
        independent.append(climb.rise(new, clouds)[1])
        position.e_step = E_STEPS["markov"]
    rises, errors = np.array(found).T
    scatter = (rises - rises.mean()) ** 2 * 120 / 119
    assert agrees(scatter - errors**2, 0.0, truth_error=0.1 * scatter.mean() / LIMIT)
    assert not agrees(errors**2 - np.square(independent), 0.0)
    assert np.mean(np.square(independent)) < 0.8 * np.mean(errors**2)


def test_batches_of_independent_terms_have_their_variance(seed):
    terms = np.random.default_rng(seed).normal(size=(2_500, 400))
    terms -= terms.mean(axis=0)
    assert agrees(np.sum(in_batches(terms) ** 2, axis=0), 2_500.0)
    assert np.array_equal(in_batches(terms[:3]), terms[:3])


# Too thin to tell -----------------------------------------------------------------------------------------------------


def table(cells, noise):
    count = len(cells)
    model = nw.Model(
        prior={"share": dist.Dirichlet(np.ones(count))},
        statistics={"cells": lambda share: dist.Multinomial(int(np.sum(cells)), share)},
    )
    return model, nw.Release(cells=nw.DiscreteGaussian(scale=noise).released(cells)), np.asarray(cells) / np.sum(cells)


def test_a_last_sample_that_rests_on_a_few_values_is_no_estimate(seed):
    """Cells that the noise hides little: hardly a draw falls near. With more noise the same sample does."""
    staged = nw.MCEM(schedule=nw.Staged(tolerances=(1e-3,), sizes=(500,), cap=2), final=2_000)
    model, release, share = table([300, 500, 700], 1.0)
    with pytest.raises(nw.InferenceError, match=r"of 2,000 values simulated at the end.*effective ones") as caught:
        nw.fit(model, release, staged, start={"share": share}, seed=seed)
    assert caught.value.result.status == "thin"
    assert caught.value.result.diagnostics["ess"] < 100
    release = nw.Release(cells=nw.DiscreteGaussian(scale=20.0).released([300, 500, 700]))
    assert nw.fit(model, release, staged, start={"share": share}, seed=seed).status == "converged"


def test_an_entry_that_rests_on_one_value_is_named(seed):
    """Little noise, and one row far out: no draw falls near it, and the other rows' many values do not help."""
    model = nw.Model(
        prior={"sigma": dist.HalfNormal(5.0)}, statistics={"y": lambda sigma: dist.Normal(0.0, sigma).expand([40])}
    )
    rows = np.append(stats.norm.ppf((np.arange(39) + 0.5) / 39), 9.0)
    release = nw.Release(y=nw.Gaussian(scale=0.1).released(rows))
    settings = nw.MCEM(schedule=nw.Staged(tolerances=(1e-3,), sizes=(500,), cap=2), final=2_000)
    fit = nw.fit(model, release, settings, start={"sigma": 1.2}, seed=seed, on_failure="return")
    assert fit.status == "thin"
    assert "for the worst entry of 'y'" in fit.message


def test_what_is_known_exactly_does_not_count_as_a_sample_of_one(seed):
    model = nw.Model(
        prior={"theta": dist.Gamma(2.0, 1.0)},
        statistics={"a": lambda theta: dist.Poisson(theta), "b": lambda theta: dist.Poisson(2 * theta)},
    )
    release = nw.Release(a=nw.Laplace(scale=3.0).released(7.3), b=nw.Exact().released(13))
    quick = nw.MCEM(schedule=nw.Ascent(most=2_000), final=5_000)
    fit = nw.fit(model, release, quick, start={"theta": 6.0}, seed=seed)
    k = np.arange(60)

    def fall(theta):
        return -stats.poisson.logpmf(13, 2 * theta) - np.log(stats.poisson.pmf(k, theta) @ np.exp(-np.abs(7.3 - k) / 3))

    truth = optimize.minimize_scalar(fall, bounds=(1.0, 20.0), options={"xatol": 1e-8}).x
    assert fit.diagnostics["ess"] > 1_000
    assert all(step["ess"] > 100 for step in fit.trace)
    assert abs(fit.estimate["theta"] - truth) < LIMIT * fit.monte_carlo_error["theta"]
    known = nw.fit(model, release.naive(), quick, start={"theta": 6.0}, seed=seed)
    assert known.estimate["theta"] == pytest.approx((7.3 + 13) / 3, rel=1e-8)
    assert known.diagnostics["ess"] == np.inf


# The last sample ------------------------------------------------------------------------------------------------------


def test_one_last_sample_is_enough_after_a_climb(count_reference, seed):
    """Newton steps go on, on the same sample, to the root of its score: its own error is all that is left."""
    settings = nw.MCEM(schedule=nw.Ascent(most=20_000), final=100_000)
    fit = nw.fit(count_model(), count_release(), settings, start={"theta": 30.0}, seed=seed)
    climb = sum(step["size"] for step in fit.trace)
    assert fit.diagnostics["simulated"] <= climb + 100_000
    assert abs(fit.score[0]) < 0.2 * fit.score_error[0]
    truth = count_reference["maximum_likelihood"]["estimate"]
    assert abs(fit.estimate["theta"] - truth) < LIMIT * fit.monte_carlo_error["theta"]


@pytest.mark.long
@pytest.mark.parametrize("law", ["StudentT", "Weibull"])
def test_laws_that_are_no_exponential_family_agree_with_quadrature(law, seed):
    """The whole weighted sample in Q: nothing is condensed."""
    rows = np.array([2.1, 0.7, 4.4, 1.9, 3.2, 0.4, 2.8, 6.1])
    laws = {
        "StudentT": lambda a, b: dist.StudentT(4.0, a, b).expand([8]),
        "Weibull": lambda a, b: dist.Weibull(a, b).expand([8]),
    }
    model = nw.Model(prior={"a": dist.Gamma(2.0, 1.0), "b": dist.Gamma(2.0, 1.0)}, statistics={"y": laws[law]})
    release = nw.Release(y=nw.Laplace(scale=0.7).released(rows))
    start = {"a": 2.5, "b": 1.5}
    exact = nw.fit(model, release, nw.EM(accelerate=True), start=start)
    settings = nw.MCEM(schedule=nw.Ascent(most=4_000), final=40_000)
    fit = nw.fit(model, release, settings, start=start, seed=seed)
    for name, error in fit.monte_carlo_error.items():
        assert 0 < LIMIT * error < 0.3 * exact.standard_error[name]  # sharp enough to tell wrong weights
        assert abs(fit.estimate[name] - exact.estimate[name]) < LIMIT * error
    assert np.all(np.abs(fit.information - exact.information) < 0.1 * np.abs(np.diag(exact.information)).max())


@pytest.mark.parametrize(("noise", "said"), [(4.0, True), (0.01, False)])
def test_information_that_the_sample_hardly_tells_is_named(noise, said):
    """Below zero it may be flat, or not known; negative control: with a small error it is flat."""
    problem = Problem(count_model(), count_release())
    coordinates, square = Coordinates(problem.model), np.ones((1, 1))
    louis = replace(Louis.nothing(1), information=-square, complete=square, information_noise=noise * square)
    end = End(coordinates.free_from({"theta": 37.0}), louis, 0.0, "converged", "", [], {}, monte_carlo=True)
    fit = finish(nw.MCEM(), problem, 1, coordinates, end)
    assert fit.status == "flat"
    assert ("hardly tells the information about theta" in fit.message) == said


# Room -----------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_many_entries_share_the_room(monkeypatch, seed):
    """Samples are no larger than what fits, whatever was asked for; the error says what that costs."""
    model, release = normal_rows(100, seed)
    monkeypatch.setattr(positions, "MOST_SIMULATED", 100 * 1_000)
    settings = nw.MCEM(schedule=nw.Ascent(tolerance=1e-5), final=10**9)
    fit = nw.fit(model, release, settings, start={"mu": 1.0, "sigma": 1.4}, seed=seed)
    assert max(step["size"] for step in fit.trace) == 1_000
    assert "samples were of at most 1,000 values, not of the 1,000,000,000 asked for" in fit.message
    assert fit.diagnostics["final"] == 1_000
    exact = nw.fit(model, release, nw.EM(accelerate=True), start={"mu": 1.0, "sigma": 1.4})
    for name, error in fit.monte_carlo_error.items():
        assert abs(fit.estimate[name] - exact.estimate[name]) < LIMIT * error
    monkeypatch.setattr(positions, "MOST_SIMULATED", 100 * 99)
    monkeypatch.setattr(
        positions, "divides", lambda part, values: False
    )  # as of a law that is not made from its fields
    with pytest.raises(nw.InputError, match=r"statistics\['y'\].*must have at most 99 entries.*got 100.*nw.EM"):
        nw.fit(model, release, settings, start={"mu": 1.0, "sigma": 1.4}, seed=seed)


STAGED = """
import numpyro.distributions as dist, noisewise as nw
model = nw.Model(prior={"a": dist.Normal(0.0, 10.0)}, statistics={"y": lambda a: dist.StudentT(3.0, a, 1.0)})
release = nw.Release(y=nw.Laplace(scale=1.0).released(2.0))
fit = nw.fit(model, release, nw.MCEM(schedule=nw.Staged(cap=2), final=10**7), start={"a": 1.0}, seed=1)
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
print(fit.trace[-1]["size"], fit.diagnostics["final"], fit.message.count("asked for"), peak)
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from Linux's /proc")
def test_ten_million_values_of_a_law_that_is_no_exponential_family_take_less_than_two_gigabytes():
    done = subprocess.run([sys.executable, "-c", STAGED], capture_output=True, text=True, check=True)
    size, final, cut, peak = map(float, done.stdout.split())
    assert (size, final, cut) == (1e7, 1e7, 0)
    assert peak < 2_000


STAGES = nw.Staged(sizes=(100, 5_000), tolerances=(1.0, 1.0), cap=1)


@pytest.mark.parametrize("schedule", [nw.Ascent(most=1_000), STAGES])
def test_a_sample_smaller_than_asked_for_is_told(schedule, monkeypatch, seed):
    monkeypatch.setattr(positions, "MOST_SIMULATED", 1_000)
    settings = nw.MCEM(schedule=schedule, final=1_000)
    fit = nw.fit(count_model(), count_release(), settings, start={"theta": 37.0}, seed=seed, on_failure="return")
    assert ("not of the 5,000 asked for" in fit.message) == isinstance(schedule, nw.Staged)


# Bad settings ---------------------------------------------------------------------------------------------------------


REFUSED = {
    "growth": (lambda: nw.Ascent(growth=1.0), "'growth' must be above 1; got 1.0"),
    "alpha": (lambda: nw.Ascent(alpha=0.9), "'alpha' must be the probability of a tail"),
    "stages": (lambda: nw.Staged(sizes=(100, 200)), "'sizes' must be as many as the tolerances, 3"),
    "no stages": (lambda: nw.Staged(sizes=()), "'sizes' must be one number for every stage"),
    "size": (lambda: nw.Staged(sizes=(-1, 100, 200)), "'sizes' must be a whole number, at least 10"),
    "stage tolerance": (lambda: nw.Staged(tolerances=(0.1, 0.0, 0.1)), "'tolerances' must be positive"),
    "schedule": (lambda: nw.MCEM(schedule="staged"), "'schedule' must be an Ascent or a Staged; got 'staged'"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(call, message):
    with pytest.raises(nw.InputError, match=message):
        call()


def test_the_noise_of_a_score_is_that_of_normalised_weights(seed):
    """Sums of w^2 (l - m)(l - m)' over values, for scores l whose weighted mean m is far from zero."""
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.ones(40), 2).T
    score, both = 3.0 + rng.standard_normal((40, 2, 3)), rng.standard_normal((40, 2, 3, 3))
    squared, outer = weight**2, score[..., :, None] * score[..., None, :]
    sums = {
        "first": np.einsum("ke,ked->ed", weight, score),
        "second": np.einsum("ke,kedf->edf", weight, both),
        "complete": np.einsum("ke,kedf->edf", weight, both - outer),
        "squared": squared.sum(axis=0),
        "squared score": np.einsum("ke,ked->ed", squared, score),
        "squared outer": np.einsum("ke,kedf->edf", squared, outer),
        "squared both": np.einsum("ke,kedf->edf", squared, both),
        "squared both score": np.einsum("ke,kedf,ked->edf", squared, both, score),
        "squared both both": np.einsum("ke,kedf->edf", squared, both**2),
        "both and score": np.einsum("ke,kedf,keg->dfg", squared, both, score),
    }
    away = score - sums["first"]
    found = _louis(sums)
    assert found.noise == pytest.approx(np.einsum("ke,ked,kef->df", squared, away, away), rel=1e-9)
    assert found.score == pytest.approx(sums["first"].sum(axis=0), rel=1e-12)


def test_what_halves_of_a_sample_add_to_its_bias_is_a_third_of_what_is_left():
    """A bias b/n + c/n^2, of which b/n is known: halves have 4c/n^2 of the rest, the whole sample c/n^2."""

    def louis(n, b=5.0, c=7.0):
        parts = {"score": np.array([1.0 + b / n + c / n**2]), "bias": np.array([b / n])}
        more = {"information": np.array([[2.0 + b / n + c / n**2]]), "information_bias": np.array([[b / n]])}
        return replace(Louis.nothing(1), **parts, **more)

    position = SimpleNamespace(
        parts=[SimpleNamespace(entries=2)],
        free=None,
        objective=SimpleNamespace(score_and_information=lambda free, found: found),
    )
    rest = bias_left(position, SimpleNamespace(changed=lambda half: louis(50)), louis(100))
    assert rest.bias == pytest.approx(7.0 / 100**2)
    assert rest.information_bias == pytest.approx(7.0 / 100**2)


def test_parts_and_batches_are_numbered_apart():
    numbers = []

    def cloud(drawing, part, values, number, size):
        numbers.append(number)
        return weighted(np.zeros(1), np.zeros((1, 1)))

    parts = [SimpleNamespace(name=name) for name in "abc"]
    position = SimpleNamespace(values={}, parts=parts, simulated=0, held=True)
    for batch in range(4):
        list(Position.clouds(position, SimpleNamespace(cloud=cloud), None, batch, 10))
    assert sorted(numbers) == list(range(12))
