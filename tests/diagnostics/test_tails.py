"""Tails of draws: heavy ones are found, ordinary ones left alone, at the rates in docs/derivations/moments.md."""

import numpy as np
import pytest
from scipy import stats

from noisewise.diagnostics.tails import HEAVY, LEAST, heavy_tails, tail_size, without_repeats

SAMPLES = 200
HAVE_NONE = {
    "Cauchy": lambda rng, shape: rng.standard_cauchy(shape),
    "half-Cauchy": lambda rng, shape: np.abs(rng.standard_cauchy(shape)),
    "one side": lambda rng, shape: 1.0 / rng.gamma(0.9, size=shape),
}
HAVE_ALL = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "gamma": lambda rng, shape: rng.gamma(0.5, size=shape),
    "t, 5 df": lambda rng, shape: rng.standard_t(5.0, shape),
    "log-normal": lambda rng, shape: rng.lognormal(size=shape),
    "counts": lambda rng, shape: rng.poisson(0.05, shape).astype(float),
    "one of two": lambda rng, shape: (rng.random(shape) < 0.01).astype(float),
    "zeros": lambda rng, shape: (rng.random(shape) < 0.05) * rng.poisson(50.0, shape),
    "a far mode": lambda rng, shape: rng.normal(size=shape) + 50.0 * (rng.random(shape) < 0.05),
    "all the same": lambda rng, shape: np.ones(shape),
}


@pytest.mark.parametrize("law", HAVE_NONE)
def test_tails_without_moments_are_found(law, seed):
    """A share of 0.0015 is missed, so that more than eight of 200 have a chance below 1e-8."""
    found = heavy_tails(HAVE_NONE[law](np.random.default_rng(seed), (4_000, SAMPLES)))
    assert np.isnan(found).sum() <= stats.binom.isf(1e-8, SAMPLES, 0.0015)
    assert np.nanmin(found) >= HEAVY


@pytest.mark.parametrize("law", HAVE_ALL)
def test_ordinary_tails_keep_their_moments(law, seed):
    """Not one of 2,000 lost them: the rate is below 0.7% but for a chance of 1e-6, and is taken for 1e-4 here."""
    found = heavy_tails(HAVE_ALL[law](np.random.default_rng(seed), (4_000, SAMPLES)))
    assert (~np.isnan(found)).sum() <= stats.binom.isf(1e-6, SAMPLES, 1e-4)


def test_units_and_places_do_not_matter(seed):
    draws = np.random.default_rng(seed).standard_cauchy((4_000, 3, 2))
    assert heavy_tails(1e-9 * draws + 1e-3) == pytest.approx(heavy_tails(draws), rel=1e-3)
    assert heavy_tails(draws).shape == (3, 2)


def test_few_draws_are_not_judged(seed):
    draws = np.random.default_rng(seed).standard_cauchy((LEAST - 1, 5))
    assert np.all(np.isnan(heavy_tails(draws)))
    assert np.all(np.isnan(heavy_tails(np.full((LEAST, 1), np.inf))))
    assert tail_size(400) == 40
    assert tail_size(10_000) == 600


def test_thinning_keeps_as_many_draws_as_all_are_worth():
    assert np.array_equal(without_repeats(8, 4.0, None), [1, 3, 5, 7])
    assert np.array_equal(without_repeats(4, float("nan"), None), np.arange(4))
    assert np.array_equal(without_repeats(4, 4.0, np.array([0.0, 0.5, 0.5, 0.0])), [1, 1, 2, 2])
