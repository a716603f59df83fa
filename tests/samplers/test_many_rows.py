"""The posterior of very many rows: weighted draws about its tops, beside quadrature over parameters and statistics."""

from dataclasses import replace
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees, z_scores
from scipy import stats
from scipy.special import logsumexp, roots_legendre

import noisewise as nw
from noisewise.inference.conditional.rows import ClosedRows, NoisyRows, rows_for
from noisewise.inference.problem import Problem
from noisewise.samplers.choosing.probe import COLLAPSED
from noisewise.samplers.proposals import many_rows
from noisewise.samplers.proposals.many_rows import ManyRows

N = 32
X = np.linspace(-1.0, 1.0, N)


@cache
def problem_of(normal=False):
    rng = np.random.default_rng(3)
    y = 1.0 + X + (rng.normal(size=N) if normal else rng.standard_t(4.0, N)) + rng.laplace(0.0, 0.7, N)

    def law(a, sigma):
        return dist.Normal(a + X, sigma) if normal else dist.StudentT(4.0, a + jnp.asarray(X), sigma)

    prior = {"a": dist.Normal(0.0, 5.0), "sigma": dist.HalfNormal(3.0)}
    return nw.Model(prior=prior, statistics={"y": law}), nw.Release(y=nw.Laplace(scale=0.7).released(y))


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr(many_rows, "MANY", N)


@pytest.fixture
def in_one_thread(few_are_many, monkeypatch):
    """Climbs in the calling thread: every step of theirs would begin new ones."""
    monkeypatch.setattr(many_rows, "rows_for", lambda source, engine, own: rows_for(source, None, own))


@pytest.fixture
def few_climbs(few_are_many, monkeypatch):
    """To one hill, climbs from anywhere lead."""
    for name, number in {"CANDIDATES": 16, "HIGHEST": 2, "FARTHEST": 1}.items():
        monkeypatch.setattr(many_rows, name, number)


@cache
def sampled(seed):
    """The posterior, unasked; call it with `few_climbs`, `in_one_thread`."""
    return nw.sample(*problem_of(), draws=600, seed=seed)


def log_likelihood(release, a, sigma):
    """By plain panels to either side of the release, written apart; of grids of a and sigma: (a, sigma)."""
    y, (node, weight) = release["y"].value, roots_legendre(16)
    total = np.zeros((len(a), len(sigma)))
    for x, value in zip(X, y, strict=True):
        parts = []
        for side in (-1.0, 1.0):
            for low, high in ((0.0, 3.0), (3.0, 9.0), (9.0, 27.0)):
                away = low + 0.5 * (high - low) * (1.0 + node)
                log_rule = np.log(0.5 * (high - low) * weight) - away / 0.7 - np.log(1.4)
                s = value + side * away
                at = (s[:, None, None] - a[:, None] - x) / sigma
                parts.append(logsumexp(stats.t.logpdf(at, 4.0) - np.log(sigma) + log_rule[:, None, None], axis=0))
        total += logsumexp(parts, axis=0)
    return total


@cache
def exact_moments():
    """(mean, variance) of a and sigma, from a grid of both."""
    release = problem_of()[1]
    a, sigma = np.linspace(-0.5, 2.7, 25), np.linspace(0.1, 3.1, 25)
    log_density = log_likelihood(release, a, sigma) + stats.norm.logpdf(a, 0.0, 5.0)[:, None]
    log_density += stats.halfnorm.logpdf(sigma, scale=3.0)
    mass = np.exp(log_density - log_density.max())
    mass /= mass.sum()
    found = {}
    for name, grid, axis in (("a", a, 1), ("sigma", sigma, 0)):
        own = mass.sum(axis=axis)
        mean = own @ grid
        found[name] = mean, own @ (grid - mean) ** 2
    return found


def test_the_posterior_is_that_of_quadrature(few_climbs, in_one_thread, seed):
    """Chosen unasked; negative control: the same draws without their weights."""
    posterior = sampled(seed)
    assert posterior.sampler == COLLAPSED
    assert "very many rows" in posterior.reason
    scores = [z for name, truth in exact_moments().items() for z in z_scores(posterior, name, *truth)]
    assert np.all(np.abs(scores) < LIMIT)
    mean, variance = exact_moments()["a"]
    assert not agrees(np.abs(posterior["a"] - mean) < 2.0 * np.sqrt(variance), 0.95)
    assert posterior.diagnostics["neglected"] < N * 1e-10


def test_the_rows_are_not_among_the_draws(few_climbs, in_one_thread, seed, tmp_path):
    posterior = sampled(seed)
    assert posterior.status == "complete"
    assert posterior.statistics == ()
    assert "y" not in posterior
    assert "not among the draws" in posterior.message
    posterior.save(tmp_path / "rows.nc")
    again = nw.Posterior.load(tmp_path / "rows.nc")
    assert again.message == posterior.message
    assert np.array_equal(again["a"], posterior["a"])


def test_threads_change_nothing(few_climbs):
    model, release = problem_of()
    draws = [
        nw.sample(model, release, COLLAPSED, draws=24, seed=2, engine=engine, on_failure="return")
        for engine in (nw.Threads(1), nw.Threads(3))
    ]
    assert np.array_equal(draws[0]["a"], draws[1]["a"])
    assert np.array_equal(draws[0].log_weights, draws[1].log_weights)
    values = {"a": np.asarray(1.1), "sigma": np.asarray(0.9)}
    here, there = (ManyRows(Problem(model, release), engine) for engine in (None, nw.Device(platform="cpu")))
    assert there.log_likelihood(values) == pytest.approx(here.log_likelihood(values), abs=1e-9)


def test_normal_rows_in_closed_form_are_those_of_quadrature():
    density = ManyRows(Problem(*problem_of(normal=True)), None)
    closed = density.rows["y"]
    assert type(closed) is ClosedRows
    by_panels, given = NoisyRows(closed.source, None), {"a": np.asarray(1.1), "sigma": np.asarray(0.9)}
    assert closed.log_likelihoods(given) == pytest.approx(by_panels.log_likelihoods(given), abs=1e-9)
    x = np.array([1.1, 0.9])
    one, other = (rows.moments(x, lambda x: {"a": x[0], "sigma": x[1]}, "plain") for rows in (closed, by_panels))
    assert one.score == pytest.approx(other.score, rel=1e-8)
    assert one.information == pytest.approx(other.information, rel=1e-8)


def test_what_is_hopeless_is_seen_by_the_noise_alone():
    """A likelihood is given up only where it is below the least that counts."""
    density = ManyRows(Problem(*problem_of()), None)
    near, far = {"a": np.asarray(1.0), "sigma": np.asarray(1.0)}, {"a": np.asarray(40.0), "sigma": np.asarray(0.5)}
    top, low = density.lay(near), ManyRows(density.problem, None).log_likelihood(far)
    assert low < top - 200.0
    assert density.log_likelihood_near(near, top - 1.0) == pytest.approx(top, abs=1e-9)
    assert density.log_likelihood_near(far, low - 1.0) == pytest.approx(low, abs=1e-6)
    assert density.log_likelihood_near(far, low + 1.0) == -np.inf


def test_every_top_is_climbed_to(in_one_thread, seed):
    """Two of equal height: a and -a have one likelihood."""
    rng = np.random.default_rng(5)
    y = 2.0 + rng.standard_t(4.0, 32) + rng.laplace(0.0, 0.5, 32)
    model = nw.Model(
        prior={"a": dist.Normal(0.0, 2.0)},
        statistics={"y": lambda a: dist.StudentT(4.0, (a**2) * jnp.ones(32), 1.0)},
    )
    release = nw.Release(y=nw.Laplace(scale=0.5).released(y))
    posterior = nw.sample(model, release, replace(COLLAPSED, min_ess=50.0), draws=150, seed=seed)
    assert posterior.diagnostics["tops"] == 2
    above = (posterior["a"] > 0).astype(float)
    weight = posterior.weights
    error = np.sqrt(np.sum(weight**2 * (above - 0.5) ** 2))
    assert abs(weight @ above - 0.5) < LIMIT * error


def test_what_is_no_row_is_left_to_others():
    model = nw.Model(prior={"a": dist.Gamma(2.0, 1.0)}, statistics={"y": lambda a: dist.Poisson(a).expand([N])})
    release = nw.Release(y=nw.DiscreteLaplace(scale=1.0).released(np.arange(N)))
    assert not many_rows.applies(Problem(model, release))
    assert many_rows.applies(Problem(*problem_of()))
    assert not many_rows.are_many(Problem(*problem_of()))


ELSEWHERE = {
    "noise that ends": ({"a": dist.Normal(0.0, 1.0)}, lambda a: dist.StudentT(4.0, a + X, 1.0), "truncated"),
    "a law with ends": ({"a": dist.HalfNormal(1.0)}, lambda a: dist.Gamma(a * jnp.ones(N), 1.0), "laplace"),
    "a parameter a row": ({"a": dist.Normal(0.0, 1.0).expand([N])}, lambda a: dist.Normal(a, 1.0), "laplace"),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_it_is_not_taken_unasked_where_less_is_known_of_its_errors(few_are_many, name):
    prior, law, noise = ELSEWHERE[name]
    mechanism = {"laplace": nw.Laplace(0.7), "truncated": nw.mechanisms.TruncatedLaplace(0.7, bound=2.5)}[noise]
    problem = Problem(nw.Model(prior, {"y": law}), nw.Release(y=mechanism.released(1.0 + X)))
    assert not many_rows.are_many(problem)
    assert many_rows.are_many(Problem(*problem_of()))


def test_climbs_start_high_and_far_apart():
    """A hill that no draw of the prior stands high on is looked for too."""
    free = np.array([[0.1 * k] for k in range(20)] + [[-50.0], [np.inf], [30.0]])[:, :1]
    free[21] = 0.0
    heights = np.array([float(k) for k in range(20)] + [-100.0, -np.inf, -200.0])
    starts = [float(start[0]) for start in many_rows._starts(free, heights)]
    assert starts[:8] == pytest.approx([0.1 * k for k in range(19, 11, -1)])
    assert starts[8] == -50.0
    assert starts[9] == 30.0


def test_what_is_given_up_is_faint_by_its_weight(monkeypatch):
    """A row far below the top in likelihood counts where the proposal hardly ever goes there."""
    monkeypatch.setattr(many_rows, "FAINT", 50.0)
    problem = Problem(*problem_of())
    reference = {"a": np.asarray(1.3), "sigma": np.asarray(1.2)}
    top = ManyRows(problem, None).lay(reference)
    rows = {"a": np.array([1.3, 60.0, 60.0]), "sigma": np.full(3, 1.2)}
    weigh = many_rows.WeighRows(problem, lambda *given: (rows, np.array([0.0, 0.0, 2000.0])), reference, top)
    log_weights = weigh(None, {}, 3, lambda: None)[0]["log_weights"]
    assert log_weights[0] == pytest.approx(top, abs=1e-6)
    assert log_weights[1] == -np.inf
    assert np.isfinite(log_weights[2])
