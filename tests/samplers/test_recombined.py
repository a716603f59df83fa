"""Totals put together from groups of records, against convolution, quadrature and totals drawn whole."""

import math
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from scipy import stats

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.samplers.proposals import recombined
from noisewise.samplers.proposals.guided import guides_of
from noisewise.samplers.proposals.recombined import Recombined, all_sums, groups_of, recombined_work

ROWS = 4_000


def nothing():
    pass


@cache
def capped_counts(n):
    """Sums of counts up to two each, of which the law is a convolution."""
    total = nw.Total({"x": lambda rate: dist.Poisson(rate)}, lambda x: jnp.minimum(x, 2), n)
    return nw.Model({"rate": dist.Gamma(2.0, 2.0)}, {"t": total})


def law_of_counts(rate, n):
    one = np.array([math.exp(-rate), rate * math.exp(-rate), 0.0])
    one[2] = 1.0 - one.sum()
    law = np.ones(1)
    for _ in range(n):
        law = np.convolve(law, one)
    return law


@pytest.mark.parametrize("n", [17, 41])
def test_weighed_totals_have_their_law_times_the_noise_density(n, seed, monkeypatch):
    """With a rest that fills no group, and a release above what is expected."""
    monkeypatch.setattr(recombined, "LEAST_RECORDS", 8)
    item = nw.DiscreteLaplace(scale=0.7).released(round(0.7 * n))
    problem = Problem(capped_counts(n), nw.Release(t=item))
    given = {"rate": np.full(ROWS, 0.6)}
    drawn, log_weights = guides_of(problem)["t"].draw(np.random.default_rng(seed), given, ROWS, nothing)
    law, weights = law_of_counts(0.6, n), np.exp(log_weights)
    s = np.arange(len(law))
    joint = law * np.exp(np.asarray(item.mechanism.log_prob(item.value, s)))
    for function in (np.ones_like, lambda x: x * 1.0, lambda x: x % 3 == 0, lambda x: x > 0.7 * n):
        terms, truth = weights * function(drawn["t"]), np.sum(joint * function(s))
        assert abs(terms.mean() - truth) < LIMIT * terms.std() / math.sqrt(ROWS)
    assert log_weights.max() <= problem.log_sup("t") + 1e-9
    whole = problem.model.draw(np.random.default_rng(seed), ["t"], ROWS, given)
    less = np.exp(2.0 * problem.log_eta("t", whole)) - weights**2  # what it is for: the same mean, less spread
    assert less.mean() > LIMIT * less.std() / math.sqrt(ROWS)


def test_every_choice_of_versions_is_a_sum_once():
    versions = np.random.default_rng(0).normal(size=(5, 3, 2, 4))
    by_hand = [
        versions[:, 0, a] + versions[:, 1, b] + versions[:, 2, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)
    ]
    order = np.lexsort(all_sums(versions)[0].T)
    assert np.allclose(
        all_sums(versions)[:, order], np.stack(by_hand, axis=1)[:, np.lexsort(np.stack(by_hand, axis=1)[0].T)]
    )


def test_the_posterior_is_that_of_quadrature(seed):
    """A mean and a mean square of three thousand records behind narrow noise; clamping is ten deviations away."""
    n, scale = 3_000, 4.0
    total = nw.Total({"x": lambda m: dist.Normal(m, 1.0)}, lambda x: jnp.clip(x, -10.0, 10.0), n)
    model = nw.Model({"m": dist.Normal(0.0, 0.1)}, {"t": total})
    problem = Problem(model, nw.Release(t=nw.Laplace(scale=scale).released(150.0)))
    assert isinstance(guides_of(problem)["t"], Recombined)
    assert recombined_work(problem) == 2 * n
    sampler = nw.Importance(proposal="adapted", simulations=None)
    posterior = nw.sample(model, problem.release, sampler, draws=3_000, seed=seed)
    m, t = np.linspace(-0.2, 0.3, 501)[:, None], np.linspace(-100.0, 400.0, 1001)
    joint = stats.norm(0.0, 0.1).pdf(m) * stats.norm(n * m, math.sqrt(n)).pdf(t)
    joint *= stats.laplace(150.0, scale).pdf(t)
    joint /= joint.sum()
    weights = posterior.weights
    for values, truth in (
        (posterior["m"], joint * m),
        (posterior["m"] ** 2, joint * m**2),
        (posterior["t"], joint * t),
    ):
        off = weights * (values - truth.sum())
        assert abs(off.sum()) < LIMIT * math.sqrt(np.sum(off**2))


def test_what_is_put_together_from_groups():
    """Totals of many records, with noise, of which the law is not known."""
    noise = nw.DiscreteLaplace(scale=0.7).released(36)
    small = Problem(capped_counts(41), nw.Release(t=noise))
    large = Problem(capped_counts(4_100), nw.Release(t=noise))
    plain = nw.Total({"x": lambda rate: dist.Poisson(rate)}, lambda x: x, 4_100)
    known = Problem(nw.Model({"rate": dist.Gamma(2.0, 2.0)}, {"t": plain}), nw.Release(t=noise))
    assert [set(guides_of(problem)) for problem in (small, large, known)] == [set(), {"t"}, set()]
    assert [recombined_work(problem) for problem in (small, large, known)] == [0, 8_200, 0]
    assert [groups_of(n) for n in (0, 2047, 2048, 10**6, 10**12)] == [0, 0, 9, 17, 20]
