"""Counts with normal log rates or log odds: probabilities against fine panels, sums to one, slopes, and draws."""

import jax
import numpy as np
import pytest
from numpyro.distributions import Binomial, Normal, Poisson
from scipy import stats
from scipy.special import gammaln

from noisewise.model.compound import Compound, draw_given, log_predictive, top_of
from noisewise.numerics import double

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)


def shape(y, k, n, mean, sd):
    """log of the integrand, as a formula of its own."""
    grown = n * np.logaddexp(0.0, y) if n else np.exp(y)
    return k * y - grown - 0.5 * ((y - mean) / sd) ** 2


def panels(k, n, mean, sd):
    """Places and weights of a rule with very many panels, where the integrand is not negligible."""
    ends = mean + np.array([-1.0, 1.0]) * (60.0 * sd + sd**2 * (k + n + np.exp(min(mean, 30.0))))
    for _ in range(60):  # a hundredth of what is left is looked at again
        edges = np.linspace(*ends, 401)
        heights = shape(np.minimum(edges, 700.0), k, n, mean, sd)
        inside = np.flatnonzero(heights > heights.max() - 60.0)
        low, high = edges[max(inside[0] - 1, 0)], edges[min(inside[-1] + 1, 400)]
        if len(inside) > 100:
            break
        ends = np.array([low, high])
    bend = np.linspace(-60.0, 60.0, 1_201)  # where rates and odds change, whatever the spread
    edges = np.union1d(np.linspace(low, high, 1_001), bend[(bend > low) & (bend < high)])
    half = 0.5 * np.diff(edges)
    return (0.5 * (edges[1:] + edges[:-1]))[:, None] + half[:, None] * NODES, half[:, None] * WEIGHTS


def exact(k, n, mean, sd):
    """log q(k); of two ways to count, by the one with the smaller count."""
    if n and 2 * k > n:
        return exact(n - k, n, -mean, sd)
    y, weights = panels(k, n, mean, sd)
    heights = shape(y, k, n, mean, sd)
    base = -gammaln(k + 1.0) + (gammaln(n + 1.0) - gammaln(n - k + 1.0) if n else 0.0)
    total = np.sum(weights * np.exp(heights - heights.max()))
    return base + heights.max() + np.log(total) - np.log(sd) - 0.5 * np.log(2.0 * np.pi)


def cases():
    """Means and spreads far apart, counts from none to many, with and without a limit."""
    rng = np.random.default_rng(0)
    for number in range(60):
        n = (0, 0, 1, 7, 5_000)[number % 5]
        k = int(rng.choice([0, 1, 2, 5, 30, 400, 20_000]))
        yield min(k, n) if n else k, n, float(rng.normal(0.0, 4.0)), float(np.exp(rng.normal(-1.0, 1.5)))


def test_probabilities_are_those_of_very_many_panels():
    given = list(cases())
    with double():
        ours = np.asarray(log_predictive(*np.array(given, dtype=float).T))
    theirs = np.array([exact(*case) for case in given])
    assert np.max(np.abs(ours - theirs) / (1.0 + np.abs(theirs))) < 1e-10


@pytest.mark.parametrize(("mean", "sd", "n"), [(1.0, 0.5, None), (-2.0, 1.5, None), (0.3, 1e-3, 40), (-1.0, 6.0, 40)])
def test_probabilities_add_up_to_one(mean, sd, n):
    values = np.arange(41 if n else 20_000)
    with double():
        total = float(np.exp(np.asarray(Compound(mean, sd, n).log_prob(values))).sum())
    assert total == pytest.approx(1.0, abs=1e-10)


def test_slopes_are_those_of_differences():
    rows = np.array([case for case in cases() if case[3] > 0.02][:40], dtype=float)
    with double():
        for index in (2, 3):
            slopes = jax.vmap(jax.grad(log_predictive, argnums=index))(*rows.T)
            step = np.zeros_like(rows)
            step[:, index] = 1e-5 * rows[:, 3]
            ends = [np.asarray(log_predictive(*(rows + sign * step).T)) for sign in (1.0, -1.0)]
            differences = (ends[0] - ends[1]) / (2.0 * step[:, index])
            assert np.allclose(slopes, differences, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("k", "n", "mean", "sd"),
    [(0, 0, 2.0, 3.0), (3, 0, -4.0, 1.0), (900, 0, 1.0, 0.2), (0, 9, 1.0, 5.0), (9, 9, -1.0, 0.4), (4, 9, 0.0, 40.0)],
)
def test_draws_given_the_count_have_its_density(k, n, mean, sd):
    count = 20_000
    rows = [np.full(count, one, dtype=float) for one in (k, n, mean, sd)]
    with double():
        top = np.asarray(top_of(*rows))
    drawn = draw_given(np.random.default_rng(1), *rows, top)
    y, weights = panels(k, n, mean, sd)
    heights = shape(y, k, n, mean, sd)
    mass = np.cumsum((weights * np.exp(heights - heights.max())).sum(axis=1))
    cdf = np.interp(drawn, y.max(axis=1), mass / mass[-1])
    assert stats.kstest(cdf, "uniform").pvalue > 1e-6


def test_samples_of_the_law_are_those_of_its_two_steps():
    with double():
        for n in (None, 12):
            key = jax.random.key(0)
            first, second = jax.random.split(key)
            y = Normal(1.0, 0.5).sample(first, (5,))
            expected = (Binomial(12, logits=y) if n else Poisson(np.exp(y))).sample(second)
            assert np.array_equal(Compound(1.0, 0.5, n).sample(key, (5,)), expected)
