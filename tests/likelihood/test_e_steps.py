"""What every E-step by simulation promises, and that pages and settings know those there are."""

import math
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import same_draws
from exactness import LIMIT, agrees
from scipy import stats

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose
from noisewise.likelihood.e_step.cloud import exact_cloud, weighted
from noisewise.likelihood.e_step.contract import Drawing, EStep
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.e_step.simulated import joined_clouds, log_likelihood_error
from noisewise.likelihood.e_step.simulated_records import SimulatedRecords
from noisewise.likelihood.e_step.table import E_STEPS

PAGE = Path(__file__).parents[2] / "docs" / "likelihood.md"


def subclasses(cls):
    return {cls}.union(*(subclasses(below) for below in cls.__subclasses__()))


def test_every_e_step_is_in_the_table():
    own = {kind for kind in subclasses(EStep) - {EStep} if kind.__module__.startswith("noisewise.")}
    assert {type(e_step) for e_step in E_STEPS.values()} == own


def test_the_page_and_the_message_name_every_e_step():
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith("- `e_step`"))
    assert re.findall(r'`"(\w+)"`', line) == list(E_STEPS)
    with pytest.raises(nw.InputError, match=", ".join(map(repr, E_STEPS))):
        nw.MCEM(e_step="other")


@pytest.mark.parametrize("name", [name for name in E_STEPS if name != "augmented"])
def test_a_cloud_gives_the_mean_of_the_exact_one(name, seed):
    """Negative control: the mean without the release."""
    model, release = same_draws.count()
    (part,) = parts_of(Problem(model, release))
    values = {"theta": np.asarray(30.0)}
    exact = exact_cloud(part, values)
    truth = float(np.sum(exact.weights[:, 0] * exact.values))
    means = []
    for number in range(60):
        drawing = Drawing(seed, nw.Threads(1), Purpose.E_STEP.step(number))
        cloud = E_STEPS[name].cloud(drawing, part, values, 0, 1_000)
        assert np.sum(cloud.weights) == pytest.approx(1.0)
        means.append(float(np.sum(cloud.weights[:, 0] * cloud.values)))
    assert agrees(means, truth)
    assert not agrees(means, 30.0)


def randomised(n, ones):
    """`ones` reported among `n` people, each of whom told the truth with probability 3/4."""
    model = nw.Model(
        prior={"share": dist.Beta(1.0, 1.0)}, statistics={"yes": lambda share: dist.Binomial(n, probs=share)}
    )
    return model, nw.Release(yes=nw.RandomizedResponse(keep=0.75, on="ones", n=n).released(ones))


def test_noise_is_computed_once_in_a_window_however_many_steps_there_are(monkeypatch):
    """Costly noise: counts of randomised answers. The estimate has a closed form."""
    honest, windows = nw.RandomizedResponse.log_prob, []

    def counted(self, released, confidential):
        windows.append(np.shape(confidential))
        return honest(self, released, confidential)

    monkeypatch.setattr(nw.RandomizedResponse, "log_prob", counted)
    model, release = randomised(100, 46)
    fit = nw.fit(model, release, nw.EM(), start={"share": 0.1})
    assert fit.estimate["share"] == pytest.approx((0.46 - 0.25) / 0.5, abs=1e-6)
    assert fit.standard_error["share"] == pytest.approx(math.sqrt(0.46 * 0.54 / 100) / 0.5, rel=1e-3)
    assert len(fit.trace) > 10
    assert len(windows) == len(set(windows)), "each window once"


def test_a_window_widens_until_next_to_nothing_is_left_out():
    """The first window, 0 to 200, reaches the lower end of the support; the law lies beyond the other."""
    model = nw.Model(prior={"theta": dist.Gamma(4.0, 0.01)}, statistics={"count": lambda theta: dist.Poisson(theta)})
    release = nw.Release(count=nw.DiscreteLaplace(scale=3.0).released(100))
    (part,) = parts_of(Problem(model, release))
    cloud = exact_cloud(part, {"theta": np.asarray(400.0)})
    counts = np.arange(2_000)
    noise = np.tanh(0.5 / 3.0) * np.exp(-np.abs(100 - counts) / 3.0)
    assert cloud.log_likelihood == pytest.approx(math.log(np.sum(noise * stats.poisson.pmf(counts, 400.0))), rel=1e-9)
    assert 0.0 < np.max(cloud.neglected) < 1e-10


def test_a_window_that_holds_the_whole_support_leaves_nothing_out():
    """However small the likelihood: here e^-160, of which no finite window of unbounded noise would be sure."""
    (part,) = parts_of(Problem(*randomised(400, 300)))
    cloud = exact_cloud(part, {"share": np.asarray(1e-9)})
    counts = np.arange(401)
    reported = [
        np.sum(stats.binom.pmf(np.arange(301), yes, 0.75) * stats.binom.pmf(300 - np.arange(301), 400 - yes, 0.25))
        for yes in counts
    ]
    truth = math.log(np.sum(np.array(reported) * stats.binom.pmf(counts, 400, 1e-9)))
    assert cloud.log_likelihood == pytest.approx(truth, rel=1e-9)
    assert np.max(cloud.neglected) == 0.0
    assert len(cloud.values) == 801


def sample_of_a_normal(rng, size):
    """Values of Normal(0, 1) with the log density of a release of 1 by noise of Normal(0, 1)."""
    s = rng.standard_normal(size)
    return s, stats.norm.logpdf(1.0 - s)[:, None]


def test_resampling_is_unbiased(seed):
    rng = np.random.default_rng(seed)
    s, log_weights = sample_of_a_normal(rng, 6)
    weights = weighted(s, log_weights).weights[:, 0]
    drawn = [E_STEPS["resampled"].weigh(rng, None, s, log_weights).weights[:, 0] for _ in range(4_000)]
    assert agrees(drawn, weights)


def test_joined_samples_are_one_sample(seed):
    """A hundred values and three hundred more are four hundred, each with the weight that it has among all."""
    rng = np.random.default_rng(seed)
    s, log_weights = sample_of_a_normal(rng, 400)
    first = weighted(s[:100], log_weights[:100] - math.log(100))
    second = weighted(s[100:], log_weights[100:] - math.log(300))
    whole, found = weighted(s, log_weights - math.log(400)), joined_clouds(first, second, 100, 300)
    assert found.weights == pytest.approx(whole.weights, rel=1e-12)
    assert found.log_likelihoods == pytest.approx(whole.log_likelihoods, rel=1e-12)


def test_the_error_of_a_log_likelihood_is_its_error(seed):
    """Squared normal scores of 600 simulated log likelihoods, their bias taken off, have mean one."""
    rng, truth, scores = np.random.default_rng(seed), stats.norm(0.0, math.sqrt(2.0)).logpdf(1.0), []
    for _ in range(600):
        s, log_weights = sample_of_a_normal(rng, 400)
        cloud = weighted(s, log_weights - math.log(400))
        bias, error = log_likelihood_error([cloud])
        scores.append((cloud.log_likelihood + bias - truth) / error)
    assert agrees(scores, 0.0)
    assert abs(np.mean(np.square(scores)) - 1.0) < 0.05 + 4.9 * np.sqrt(2.0 / 600)


def test_parts_and_batches_have_random_numbers_of_their_own(seed):
    drawing = Drawing(seed, nw.Threads(1), Purpose.E_STEP.step(3))
    assert len({drawing.after(number).random() for number in range(8)}) == 8


def test_records_are_weighed_by_every_entry_of_their_total(seed):
    total = nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: jnp.stack([x, x**2]), n=4)
    model = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"t": total})
    problem = Problem(model, nw.Release(t=nw.Laplace(scale=[1.0, 3.0]).released([2.0, 5.0])))
    (part,) = parts_of(problem, SimulatedRecords)
    s = part.draw(np.random.default_rng(seed), {"mu": np.asarray(0.5)}, 20)
    x = s.reshape(20, 4)
    sums = np.column_stack([x.sum(axis=1), (x**2).sum(axis=1)])
    expected = stats.laplace(sums, [1.0, 3.0]).logpdf([2.0, 5.0]).sum(axis=1)
    assert part.log_eta(s)[:, 0] == pytest.approx(expected, rel=1e-9)


def test_the_height_at_chains_over_records_is_the_likelihood(seed):
    """A sum of five normal records under normal noise has a normal law."""
    total = nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: x, n=5)
    problem = Problem(
        nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"t": total}), nw.Release(t=nw.Gaussian(scale=2.0).released(4.0))
    )
    e_step, drawing = E_STEPS["augmented"], Drawing(seed, nw.Threads(1), Purpose.HEIGHT)
    (part,) = parts_of(problem, e_step.records)
    cloud = e_step.absolute(drawing, part, None, {"mu": np.asarray(0.5)}, 0, 4_000)
    bias, error = log_likelihood_error([cloud])
    assert abs(cloud.log_likelihood + bias - stats.norm(2.5, 3.0).logpdf(4.0)) < LIMIT * error


@pytest.mark.parametrize("name", E_STEPS)
def test_a_sample_is_known_by_its_drawing_and_number(name, seed):
    model, release = same_draws.clamped_mean()
    e_step, values = E_STEPS[name], {"mu": np.asarray(0.4)}
    (part,) = parts_of(Problem(model, release), e_step.records)

    def drawn(step, number):
        drawing = Drawing(seed, nw.Threads(2), Purpose.E_STEP.step(step))
        return e_step.cloud(drawing, part, values, number, 400)

    first, again = drawn(0, 0), drawn(0, 0)
    assert np.array_equal(first.values, again.values)
    assert np.array_equal(first.weights, again.weights)
    assert not np.array_equal(first.values, drawn(0, 1).values)
    assert not np.array_equal(first.values, drawn(1, 0).values)


def test_only_chains_over_records_know_heights_relative_to_a_place(seed):
    model, release = same_draws.clamped_mean()
    for name, e_step in E_STEPS.items():
        parts = parts_of(Problem(model, release), e_step.records)
        assert bool(e_step.relative(parts)) == (name == "augmented")
        assert e_step.unfit(parts) is None
    law = parts_of(Problem(*same_draws.count()))
    assert [name for name, e_step in E_STEPS.items() if e_step.unfit(law)] == ["augmented"]
