"""Tables with a known total, given their release: against all tables there are, and against sums of cells by hand."""

from collections import Counter

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import agrees, counts_agree
from scipy import stats
from scipy.special import gammaln, logsumexp

import noisewise as nw
from noisewise.errors import InferenceError
from noisewise.inference.problem import Problem
from noisewise.samplers.predictive import Predictive

PREDICTIVE = nw.Rejection(plan="predictive")
N, SHAPES = 7, np.array([0.3, 1.0, 2.5])
TABLES = np.array([(a, b, N - a - b) for a in range(N + 1) for b in range(N + 1 - a)])
NOISE = {
    "discrete": (nw.DiscreteLaplace(scale=1.5), np.array([5, -2, 3])),
    "a scale for each cell": (nw.Gaussian(scale=np.array([0.5, 2.0, 1.0])), np.array([0.3, 4.2, 3.9])),
    "far from the total": (nw.Laplace(scale=40.0), np.array([100.0, -50.0, 0.0])),
    "one table is left": (nw.Laplace(scale=0.02), np.array([500.0, 0.0, 0.0])),
    "bounded": (nw.mechanisms.TruncatedLaplace(scale=1.0, bound=2.5), np.array([2.0, 2.0, 2.0])),
}


def model_of(shapes, total):
    return nw.Model({"p": dist.Dirichlet(shapes)}, {"t": lambda p: dist.Multinomial(total, p)})


def log_joint(mechanism, released):
    law = gammaln(SHAPES.sum()) + gammaln(N + 1) - gammaln(N + SHAPES.sum())
    law = law + (gammaln(TABLES + SHAPES) - gammaln(SHAPES) - gammaln(TABLES + 1)).sum(axis=1)
    return law + np.asarray(mechanism.log_prob(released, TABLES * 1.0)).sum(axis=1)


@pytest.mark.parametrize("name", NOISE)
def test_draws_have_the_law_of_all_tables(name, seed):
    mechanism, released = NOISE[name]
    logs = log_joint(mechanism, released)
    release = nw.Release(t=mechanism.released(released))
    posterior = nw.sample(model_of(SHAPES, N), release, PREDICTIVE, draws=10_000, seed=seed)
    chances = np.exp(logs - logsumexp(logs))
    assert posterior.log_evidence == pytest.approx(logsumexp(logs), abs=1e-12)
    seen = Counter(map(tuple, posterior["t"].tolist()))
    assert counts_agree([seen.get(tuple(table), 0) for table in TABLES.tolist()], chances)
    assert agrees(posterior["p"], chances @ ((TABLES + SHAPES) / (N + SHAPES.sum())))
    assert Predictive.of(Problem(model_of(SHAPES, N), release)).tables[0].neglected < 1e-15


def test_sparse_histogram_of_a_hundred_cells(seed):
    """By sums of all other cells, one cell at a time; chosen by default, where chains do not meet for minutes."""
    rng, cells, total, scale = np.random.default_rng(9), 100, 800, 2.8
    counts = rng.multinomial(total, rng.dirichlet(np.full(cells, 0.1)))
    noise = nw.DiscreteLaplace(scale=scale)
    released = noise.sample(rng, counts)
    posterior = nw.sample(
        model_of(np.full(cells, 0.1), total), nw.Release(t=noise.released(released)), draws=4_000, seed=seed
    )
    assert posterior.sampler == PREDICTIVE
    k = np.arange(total + 1)
    logs = gammaln(k + 0.1) - gammaln(k + 1) - np.abs(released[:, None] - k) / scale
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    for cell in (int(np.argmax(released)), int(np.argsort(released)[-12]), int(np.argmin(released))):
        others = np.ones(1)
        for other in range(cells):
            if other != cell:
                others = np.convolve(others, weights[other])[: total + 1]
                others /= others.max()
        law = weights[cell] * others[::-1]
        law /= law.sum()
        assert agrees(posterior["t"][:, cell], law @ k)
        assert counts_agree(np.bincount(posterior["t"][:, cell], minlength=total + 1), law)
        assert agrees(posterior["p"][:, cell], law @ ((k + 0.1) / (total + 0.1 * cells)))
    assert np.all(posterior["t"].sum(axis=1) == total)


def test_two_tables_and_a_count_beside_them(seed):
    """Each part by its own law; the evidence is the product."""
    mechanism, released = NOISE["discrete"]
    model = nw.Model(
        {"p": dist.Dirichlet(SHAPES), "q": dist.Dirichlet(SHAPES), "rate": dist.Gamma(3.0, 0.5)},
        {
            "t": lambda p: dist.Multinomial(N, p),
            "u": lambda q: dist.Multinomial(N, q),
            "count": lambda rate: dist.Poisson(rate),
        },
    )
    noise = nw.Laplace(scale=2.0)
    release = nw.Release(
        t=mechanism.released(released), u=mechanism.released(released[::-1]), count=noise.released(4.5)
    )
    posterior = nw.sample(model, release, PREDICTIVE, draws=10_000, seed=seed)
    k = np.arange(400)
    count = stats.nbinom.logpmf(k, 3.0, 1.0 / 3.0) + np.asarray(noise.log_prob(4.5, k * 1.0))
    parts = [log_joint(mechanism, released), log_joint(mechanism, released[::-1]), count]
    assert posterior.log_evidence == pytest.approx(sum(map(logsumexp, parts)), abs=1e-9)
    for name, logs in zip(("t", "u"), parts, strict=False):
        chances = np.exp(logs - logsumexp(logs))
        assert agrees(posterior[name], chances @ TABLES)
    assert agrees(posterior["count"], np.exp(count - logsumexp(count)) @ k)


def test_a_release_that_no_table_could_give_is_refused():
    noise = nw.mechanisms.TruncatedLaplace(scale=1.0, bound=1.0)
    release = nw.Release(t=noise.released(np.array([9.0, 9.0, 9.0])))
    with pytest.raises(InferenceError, match="cannot come about"):
        nw.sample(model_of(SHAPES, N), release, draws=10, seed=1)


@pytest.mark.parametrize("shape", [1e6, 1e12, 1e15])
def test_shapes_known_to_many_digits_keep_them(shape):
    """Shares are as good as known, and the law is a multinomial one; log gammas gave an evidence of -6.0 at 1e15."""
    total, noise, released = 15, nw.Gaussian(scale=3.0), np.array([7.0, 9.0, 2.0])
    model = model_of(np.full(3, shape), total)
    exact = Predictive.of(Problem(model, nw.Release(t=noise.released(released))))
    tables = np.array([(a, b, total - a - b) for a in range(total + 1) for b in range(total + 1 - a)])
    # to first order in 1 / shape, which leaves out less than 1e-9
    law = gammaln(total + 1) - gammaln(tables + 1).sum(axis=1) - total * np.log(3.0)
    ratio = (tables * (tables - 1) / 2.0 / shape).sum(axis=1)
    law = law + ratio - total * (total - 1) / 2.0 / (3.0 * shape)
    logs = law + np.asarray(noise.log_prob(released, tables * 1.0)).sum(axis=1)
    assert exact.log_evidence == pytest.approx(logsumexp(logs), abs=1e-9)


def test_what_is_improbable_is_not_called_impossible():
    """The log density of the nearest table is -5,003: others say so, or try."""
    noise, model = nw.DiscreteGaussian(scale=0.01), model_of(np.ones(3), 8)
    reason = Predictive.of(Problem(model, nw.Release(t=noise.released(np.array([2, 3, 4])))))
    assert "less improbably" in reason


def test_wide_noise_on_large_counts_is_left_to_others():
    noise, model = nw.Gaussian(scale=1e3), model_of(np.ones(4), 10**4)
    release = nw.Release(t=noise.released(np.array([2e3, 3e3, 1e3, 4e3])))
    assert "less work" in Predictive.of(Problem(model, release))
    posterior = nw.sample(model, release, draws=200, seed=1)
    assert posterior.sampler != PREDICTIVE


def test_large_tables_and_joint_noise_are_left_to_others():
    large = nw.Release(t=nw.Laplace(scale=2.0).released(np.full(100, 1e4)))
    assert "cells times counts" in Predictive.of(Problem(model_of(np.ones(100), 10**6), large))
    scores = nw.mechanisms.MultivariateGaussian(covariance=np.eye(3))
    joint = nw.Release(t=scores.released(np.array([2.0, 3.0, 2.0])))
    assert "noise on each cell" in Predictive.of(Problem(model_of(SHAPES, N), joint))
