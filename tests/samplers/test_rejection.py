"""Rejection's own promises, and the ways of breaking exactness: each negative control must fail its check."""

import dataclasses
from functools import cache

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees
from scipy import special, stats
from targets import TARGETS, count_model, count_release, lalonde_model, lalonde_release, new_count_model

import noisewise as nw
from noisewise.engine import Threads
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Purpose
from noisewise.inference.stream import Stream
from noisewise.inference.streams import run
from noisewise.mechanisms import CATALOGUE, Mechanism
from noisewise.samplers.rejection import Merge, log_rate, plan_streams

BY_NAME = {target.name: target for target in TARGETS}


def draw_from(roots, draws, seed):
    return run(roots, draws, seed, Purpose.PROPOSALS, engine=Threads(2), progress=Progress(False, "")).columns


def problem_of(name):
    return Problem(*BY_NAME[name].make())


# Negative controls ------------------------------------------------------------------------------------------------


class KeepsParent(Merge):
    """Broken: the upper level is drawn once and kept while the lower one is retried."""

    def __call__(self, rng, inputs, rows, poll):
        model = self.problem.model
        values = model.draw(rng, ["level"], rows)
        pending = np.arange(rows)
        columns = {"level": values["level"]} | {name: np.empty(rows) for name in ("rate", "count")}
        while pending.size:
            tried = model.draw(rng, ["rate", "count"], rows, values)
            ratio = self.problem.log_ratio(["count"], tried)
            kept = pending[(rng.standard_exponential(rows) >= -ratio)[pending]]
            for name in ("rate", "count"):
                columns[name][kept] = tried[name][kept]
            pending = np.setdiff1d(pending, kept)
        return columns, np.arange(rows)


@pytest.mark.long
def test_keeping_a_parent_while_its_child_is_retried_is_caught(seed):
    problem, truth = problem_of("hierarchy"), BY_NAME["hierarchy"].solve()["level"][0]
    (right,) = plan_streams(problem, joint=False)
    broken = Stream(0, 512, KeepsParent(problem, (), ()), "broken")
    assert agrees(draw_from([right], 4_000, seed)["level"], truth)
    assert not agrees(draw_from([broken], 4_000, seed)["level"], truth)


def test_resimulating_an_accepted_statistic_is_caught(seed):
    problem, solution = problem_of("statistic-of-statistic"), BY_NAME["statistic-of-statistic"].solve()
    (root,) = plan_streams(problem, joint=False)
    assert root.work.released == ("yes",)
    root.work = dataclasses.replace(root.work, fresh=("p", "n", "yes"))  # n was accepted below, and is drawn anew
    columns = draw_from([root], 20_000, seed)
    assert not agrees(columns["n"], solution["n"][0])


def test_using_a_draw_twice_is_caught(seed, monkeypatch):
    model, release = lalonde_model(), lalonde_release((7.9, 3.1, 66.0, 27.5))
    right = nw.sample(model, release, nw.Rejection(), draws=50_000, seed=seed)
    assert all(len(np.unique(right[name])) == 50_000 for name in right.parameters)
    take = Stream.take

    def take_again(self, rows):
        """Broken: hands out the same rows twice."""
        pieces = take(self, rows)
        if self.children == [] and pieces and "sigma_t" in pieces[0]:
            self._ready.appendleft(pieces[0])
            self._ready_rows += len(pieces[0]["sigma_t"])
        return pieces

    monkeypatch.setattr(Stream, "take", take_again)
    broken = nw.sample(model, release, nw.Rejection(), draws=50_000, seed=seed)  # of several tasks, which take rows
    assert len(np.unique(broken["sigma_t"])) < 50_000


@cache
def two_groups():
    model = nw.Model(
        prior={"a": dist.Gamma(3.0, 1.0), "b": dist.Gamma(3.0, 1.0)},
        statistics={"x": lambda a: dist.Poisson(a), "y": lambda b: dist.Poisson(b)},
    )
    noise = nw.Laplace(scale=2.0)
    return Problem(model, nw.Release(x=noise.released(4.2), y=noise.released(4.2)))


def correlation_z(columns):
    a, b = columns["a"], columns["b"]
    return np.corrcoef(a, b)[0, 1] * np.sqrt(len(a))


def test_groups_are_independent_and_sharing_a_random_stream_is_caught(seed):
    right = plan_streams(two_groups(), joint=False)
    assert len(right) == 2
    assert abs(correlation_z(draw_from(right, 20_000, seed))) < LIMIT
    broken = plan_streams(two_groups(), joint=False)
    broken[1].index = broken[0].index
    assert abs(correlation_z(draw_from(broken, 20_000, seed))) > LIMIT


class CoarseUniforms(Merge):
    """Broken: acceptance by uniforms of few bits, which are exactly 0 far too often."""

    def __call__(self, rng, inputs, rows, poll):
        values = self.problem.model.draw(rng, list(self.fresh), rows, inputs, poll)
        ratio = self.problem.log_ratio(list(self.released), values)
        accepted = np.flatnonzero(rng.integers(0, 2**12, rows) / 2**12 <= np.exp(ratio))
        return {name: column[accepted] for name, column in values.items()}, accepted


def small_acceptance(released):
    model = nw.Model(prior={"m": dist.Normal(0.0, 1.0)}, statistics={"s": lambda m: dist.Normal(m, 1.0)})
    problem = Problem(model, nw.Release(s=nw.Laplace(scale=0.5).released(released)))
    grid = np.linspace(-12, 16, 40_001)
    weight = stats.norm.pdf(grid, 0, np.sqrt(2)) * np.exp(-np.abs(released - grid) / 0.5)
    return problem, 0.5 * np.sum(weight * grid) / np.sum(weight)


def test_acceptance_has_enough_bits(seed):
    """Acceptance near 6e-6; uniforms of 23 bits would add 2% of unconditioned draws."""
    problem, truth = small_acceptance(8.0)
    assert truth == pytest.approx(2.0, abs=0.01)
    assert agrees(draw_from(plan_streams(problem, joint=False), 100, seed)["m"], truth)


def test_coarse_acceptance_uniforms_are_caught(seed):
    """The flaw of 23 bits at 1e-6, at a size a test can afford: 12 bits at 2e-3."""
    problem, truth = small_acceptance(5.0)
    (right,) = plan_streams(problem, joint=False)
    broken = Stream(0, 2**14, CoarseUniforms(problem, right.work.fresh, right.work.released), "broken")
    assert agrees(draw_from([right], 5_000, seed)["m"], truth)
    assert not agrees(draw_from([broken], 5_000, seed)["m"], truth)


@pytest.mark.parametrize("draws", [100, 1_000_000], ids=["tried at once", "chosen after a probe"])
def test_a_supremum_that_is_no_bound_raises(draws, seed, monkeypatch):
    """Choosing does not go on to a sampler that would not notice."""
    monkeypatch.setattr(nw.Laplace, "log_sup", lambda self, released: np.log(0.5 / self.scale) - 0.7)
    with pytest.raises(nw.InferenceError, match=r"Laplace\.log_sup must bound log_prob for release\['count'\]"):
        nw.sample(new_count_model(), count_release(), draws=draws, seed=seed)


# A mechanism that reads another latent value --------------------------------------------------------------------------


@pytest.fixture
def latent_laplace():
    class LatentLaplace(Mechanism):
        """Laplace noise whose scale is max(bound, a confidential statistic)."""

        fields = ("bound",)
        inputs = ("spread",)
        measure = "density"
        supremum = "bound"

        def __init__(self, bound):
            self._freeze(bound=bound)

        def sample(self, rng, confidential, spread):
            return confidential + np.maximum(self.bound, spread) * rng.laplace(size=np.shape(confidential))

        def log_prob(self, released, confidential, spread):
            scale = np.maximum(self.bound, spread)
            return -np.abs(released - confidential) / scale - np.log(2 * scale)

        def log_sup(self, released):
            return -np.log(2 * self.bound)

    yield LatentLaplace
    del CATALOGUE["LatentLaplace"]


@cache
def latent_truth():
    """Evidence, mean of s, and probability that the spread is at most 1, by quadrature."""

    def panels(*ends):
        node, weight = special.roots_legendre(24)
        half = np.diff(ends)[:, None] / 2
        return (np.array(ends[:-1])[:, None] + half * (1 + node)).ravel(), (half * weight).ravel()

    def integral(*ends, power=0):
        # v integrated out: Exponential(v), v ~ Gamma(2, 1) is Lomax(2)
        (spread, across), (s, along) = panels(*ends), panels(-14, -8, -4, 0, 1.5, 2.5, 3, 3.5, 4.5, 6, 10, 14)
        scale = np.maximum(0.3, spread)[:, None]
        density = across[:, None] * along * stats.norm.pdf(s, 0, np.sqrt(5)) * 2 / (1 + spread[:, None]) ** 3
        return np.sum(s**power * density * np.exp(-np.abs(3.0 - s) / scale) / (2 * scale))

    ends = (0, 0.3, 1, 2, 5, 20, 80, 400)
    total = integral(*ends)
    return total, integral(*ends, power=1) / total, integral(0, 0.3, 1.0) / total


@pytest.mark.parametrize("sampler", [nw.Rejection(), nw.Rejection(plan="joint"), nw.Importance()], ids=str)
def test_a_scale_from_a_latent_statistic(sampler, latent_laplace, seed):
    model = nw.Model(
        prior={"m": dist.Normal(0.0, 2.0), "v": dist.Gamma(2.0, 1.0)},
        statistics={"s": lambda m: dist.Normal(m, 1.0), "spread": lambda v: dist.Exponential(v)},
    )
    release = nw.Release(s=latent_laplace(0.3).released(3.0))
    posterior = nw.sample(model, release, sampler, draws=20_000, seed=seed)
    weight = np.full(20_000, 1 / 20_000) if posterior.weights is None else posterior.weights

    def is_near(values, truth):
        terms = values - truth
        return abs(weight @ terms) < LIMIT * np.sqrt(weight**2 @ terms**2)

    evidence, mean, near = latent_truth()
    assert is_near(posterior["s"], mean)
    assert is_near(posterior["m"], 0.8 * mean)
    assert abs(posterior.log_evidence - np.log(evidence)) < LIMIT * posterior.log_evidence_se
    # the spread has no variance to speak of a mean with: compare a bounded function of it
    assert is_near(posterior["spread"] <= 1.0, near)


# Smaller promises ---------------------------------------------------------------------------------------------------


def test_log_rate_of_nothing_and_of_one():
    for survivors in (0, 1):
        rate, error = log_rate([(survivors, 100)])
        assert np.isnan(rate)
        assert error == np.inf
    assert log_rate([(2, 11)]) == (pytest.approx(np.log(0.1)), np.inf)
    rate, error = log_rate([(11, 101), (6, 6)])
    assert rate == pytest.approx(np.log(0.1))
    assert error == pytest.approx(np.sqrt(0.9 / 9))


def test_a_parameter_nobody_speaks_of_keeps_its_prior(seed):
    with pytest.warns(nw.NoisewiseWarning, match="parameter 'idle' is used by no statistic"):
        model = nw.Model(
            prior={"theta": dist.Gamma(25.0, 1.0), "idle": dist.Normal(3.0, 2.0)},
            statistics={"count": lambda theta: dist.Poisson(theta)},
        )
    posterior = nw.sample(model, count_release(), draws=50_000, seed=seed)
    assert agrees(posterior["idle"], 3.0)
    assert abs(np.corrcoef(posterior["idle"], posterior["theta"])[0, 1]) * np.sqrt(50_000) < LIMIT
    plain = nw.sample(count_model(), count_release(), draws=50_000, seed=seed)
    assert posterior.proposals == plain.proposals  # drawing a prior is no proposal


def test_exact_release_of_a_discrete_statistic(seed):
    """Rejection on an atom: the conjugate posterior of an observed count."""
    release = nw.Release(count=nw.Exact().released(7))
    posterior = nw.sample(count_model(5.0), release, nw.Rejection(), draws=10_000, seed=seed)
    assert np.all(posterior["count"] == 7)
    assert agrees(posterior["theta"], (5 + 7) / 2)


@pytest.mark.long
def test_memory_does_not_grow_with_the_records(seed):
    """A total over 200,000 records stays within a hundred megabytes of one over 4,096."""
    import subprocess
    import sys

    script = f"""
import resource
import numpyro.distributions as dist
import noisewise as nw
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def fit(n):
    model = nw.Model(prior={{"mu": dist.Normal(0.0, 1.0)}},
                     statistics={{"t": nw.Total({{"x": lambda mu: dist.Normal(mu, 1.0)}}, lambda x: x, n=n)}})
    release = nw.Release(t=nw.Laplace(scale=10.0 * n).released(0.0))
    nw.sample(model, release, draws=10, seed={seed}, engine=nw.Threads(2))
fit(4096)
before = peak()
fit(200_000)
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=True)
    assert float(done.stdout) < 100
