"""Normal numbers made in pairs: of the right angle and radius, independent, and as many as asked for."""

from fractions import Fraction
from math import factorial

import numpy as np
import pytest
from exactness import agrees, counts_agree
from scipy import stats

from noisewise.numerics import normal_pairs
from noisewise.numerics.normal_pairs import FEW, PAIRS, fill_with_normals

EXACT_PI = Fraction(3141592653589793238462643383279502884197, 10**39)


class Scripted:
    """In place of a generator: radius and angle are known."""

    def __init__(self, exponential, uniform):
        self.exponential, self.uniform = exponential, uniform

    def standard_exponential(self, out):
        out[:] = self.exponential

    def random(self, out):
        out[:] = self.uniform


def tangent(x):
    """Of a fraction below 1, to 40 digits."""
    sine = sum((-1) ** k * x ** (2 * k + 1) / factorial(2 * k + 1) for k in range(20))
    cosine = sum((-1) ** k * x ** (2 * k) / factorial(2 * k) for k in range(20))
    return sine / cosine


def test_the_quotient_is_the_tangent_up_to_rounding():
    """In rational numbers: what the quotient leaves out, and the rounding of its coefficients; in turns, once more."""
    for step in range(1, 65):
        u = Fraction(step, 128)
        exact = tangent((EXACT_PI / 2 * u).limit_denominator(10**25))
        for unit, above, below in (
            (EXACT_PI / 2, normal_pairs.N, normal_pairs.D),
            (1, normal_pairs._N, normal_pairs._D),
        ):
            n, d = (
                sum(Fraction(one) * (unit * u) ** (2 * k) for k, one in enumerate(coefficients))
                for coefficients in (above, below)
            )
            assert abs(unit * u * n / d / exact - 1) < Fraction(2, 10**16)


@pytest.mark.parametrize("scale", [0.0, -2.0, 1e-310, 1e308, np.inf])
def test_a_scale_out_of_range_is_met_as_by_numpy(scale, seed):
    """And so is memory that is not in one piece, or of another kind."""
    with np.errstate(over="ignore", invalid="ignore"):
        out = fill_with_normals(np.random.default_rng(seed), np.empty(5_000), scale)
        plain = scale * np.random.default_rng(seed).standard_normal(5_000)
    assert np.array_equal(out, plain) if scale != -2.0 else np.isfinite(out).all()
    apart = np.zeros((100, 100), order="F")
    assert np.all(fill_with_normals(np.random.default_rng(seed), apart) != 0.0)
    single = fill_with_normals(np.random.default_rng(seed), np.empty(10_000, np.float32))
    np.testing.assert_allclose(single, np.random.default_rng(seed).standard_normal(10_000), rtol=1e-6)


def test_cosine_and_sine_of_every_angle():
    uniform = np.concatenate([np.linspace(0.0, 1.0, 40_001)[:-1], [1.0 - 2.0**-53, 2.0**-53, 0.5, 0.25, 0.75]])
    x, y = np.empty((2, len(uniform)))
    normal_pairs._fill(Scripted(8.0, uniform), x, y, 1.0)
    angle = 2.0 * np.pi * (uniform - 0.5)
    assert np.allclose(x, 4.0 * np.cos(angle), rtol=0.0, atol=1e-14)
    assert np.allclose(y, 4.0 * np.sin(angle), rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("size", [FEW - 1, FEW, 2 * PAIRS, 2 * PAIRS + 1, 4 * PAIRS + 4_321])
def test_every_place_is_filled_and_no_number_twice(size, seed):
    out = np.full(size + 2, np.nan)
    assert fill_with_normals(np.random.default_rng(seed), out[1:-1]).base is out
    assert np.isnan(out[[0, -1]]).all()
    assert len(np.unique(out[1:-1])) == size
    scaled = fill_with_normals(np.random.default_rng(seed), np.empty(size), 2.5)
    np.testing.assert_allclose(scaled, 2.5 * out[1:-1], rtol=0.0, atol=1e-13)


def test_numbers_are_normal_and_those_of_a_pair_independent(seed):
    size = 8 * PAIRS
    out = fill_with_normals(np.random.default_rng(seed), np.empty(size)).reshape(4, 2, PAIRS)
    x, y = out[:, 0].ravel(), out[:, 1].ravel()
    for one in (x, y):
        moments = np.stack([one, one**2, one**3, one**4, one**6], axis=1)
        assert agrees(moments, [0.0, 1.0, 0.0, 3.0, 15.0])
        edges = stats.norm.ppf(np.arange(1, 256) / 256)
        assert counts_agree(np.bincount(np.searchsorted(edges, one), minlength=256), np.full(256, 1 / 256))
        beyond = np.array([3.0, 3.5, 4.0])
        assert agrees(np.abs(one)[:, None] > beyond, 2.0 * stats.norm.sf(beyond))
    products = np.stack([x * y, x**2 * y, x * y**2, x**2 * y**2, x**3 * y, x * np.roll(y, 1)], axis=1)
    assert agrees(products, [0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    quadrant = 2 * (x > 0) + (y > 0)
    assert counts_agree(np.bincount(quadrant, minlength=4), np.full(4, 0.25))
