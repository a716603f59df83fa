"""A normal statistic given its release: marginal density against quadrature and 50-digit values, draws against both."""

from itertools import pairwise

import jax
import numpy as np
import pytest
from exactness import agrees, quantile_agrees
from scipy import integrate, stats

import noisewise as nw
from noisewise.inference.conditional import normal
from noisewise.numerics import double

FIFTY_DIGITS = {
    (2.5, 1.0, 0.7, 0.4): -2.2935417979664305,
    (40.0, 1.0, 1.0, 2.0): -20.761294361119891,
    (-3.0, 5.0, 1e-9, 0.5): -16.0,
    (1.25, 1.0, 1.0, 1e-6): -0.95018853320561024,
    (301.0, 1.0, 30.0, 30000.0): -11.012099341204238,
    (1e7, 0.0, 1.0, 1.0): -10000000.193147181,
}
"""(released, mu, sigma, scale of the Laplace noise) -> log density: mpmath 1.4.1, 50 digits, of the closed form."""
PLACES = [(0.7, 0.0, 1.0, 0.5), (-3.0, 1.0, 0.4, 2.0), (6.0, 0.0, 1.0, 0.3), (2.0, 0.0, 0.05, 1.0)]


def integrand(s, released, mu, sigma, scale):
    return stats.norm.pdf(s, mu, sigma) * stats.laplace.pdf(released - s, scale=scale)


def moment(function, released, mu, sigma, scale):
    """The integral of function times integrand, piece by piece between the kink and around the law."""
    ends = sorted({mu - 12 * sigma, mu, mu + 12 * sigma, released, released - 40 * scale, released + 40 * scale})
    place = (released, mu, sigma, scale)
    pieces = pairwise(ends)
    return sum(
        integrate.quad(lambda s: function(s) * integrand(s, *place), a, b, epsabs=0, epsrel=1e-12)[0] for a, b in pieces
    )


@pytest.mark.parametrize("place", PLACES)
def test_the_marginal_density_is_the_integral(place):
    released, mu, sigma, scale = place
    found = normal.log_marginal(nw.Laplace(scale=scale), released, mu, sigma)
    assert np.isclose(found, np.log(moment(lambda s: 1.0, *place)), rtol=0, atol=1e-10)


def _density(at, spread, mechanism, released):
    return normal.log_marginal(mechanism, released, at, spread)


_traced, _slopes = jax.jit(_density), jax.jit(jax.grad(_density, argnums=(0, 1)))


@pytest.mark.parametrize("place", FIFTY_DIGITS)
def test_far_out_and_in_any_unit_it_keeps_its_digits(place):
    """Relative to the larger of 1 and the value: sixteen digits less what a sum of a dozen terms may lose."""
    released, mu, sigma, scale = (np.float64(one) for one in place)
    found = normal.log_marginal(nw.Laplace(scale=scale), released, mu, sigma)
    truth = FIFTY_DIGITS[place]
    assert abs(found - truth) <= 64 * np.finfo(float).eps * max(1.0, abs(truth))
    with double():
        traced = _traced(mu, sigma, nw.Laplace(scale=scale), released)
        assert abs(float(traced) - truth) <= 64 * np.finfo(float).eps * max(1.0, abs(truth))


@pytest.mark.parametrize("place", [*PLACES, *FIFTY_DIGITS])
def test_gradients_are_numbers_and_differences_of_values(place):
    released, mu, sigma, scale = (np.float64(one) for one in place)

    def density(at, spread):
        return normal.log_marginal(nw.Laplace(scale=scale), released, at, spread)

    with double():
        slopes = [float(one) for one in _slopes(mu, sigma, nw.Laplace(scale=scale), released)]
    assert np.all(np.isfinite(slopes))
    if place in PLACES:
        step = 1e-5 * sigma
        for index in (0, 1):
            ahead, behind = [mu, sigma], [mu, sigma]
            ahead[index] += step
            behind[index] -= step
            assert np.isclose((density(*ahead) - density(*behind)) / (2 * step), slopes[index], rtol=1e-6, atol=1e-7)


def draws(place, seed, size=40_000):
    released, mu, sigma, scale = place
    rng = np.random.default_rng(seed)
    return normal.draw(rng, nw.Laplace(scale=scale), released, np.full(size, mu), np.full(size, sigma))


def right(values, place):
    """Mean, and the share on the release's lower side, against quadrature."""
    total = moment(lambda s: 1.0, *place)
    mean = moment(lambda s: s, *place) / total
    below = moment(lambda s: float(s < place[0]), *place) / total
    return agrees(values, mean) and (not 1e-4 < below < 1 - 1e-4 or quantile_agrees(values, below, place[0]))


@pytest.mark.parametrize("place", PLACES)
def test_draws_are_of_the_conditional_law(place, seed):
    assert right(draws(place, seed), place)


@pytest.mark.parametrize("place", PLACES[:2])
def test_a_wrong_side_is_noticed(place, seed, monkeypatch):
    """Negative control: both sides alike."""
    monkeypatch.setattr(normal, "log_sides", lambda distance, sigma, scale: (0.0 * distance, 0.0 * distance))
    assert not right(draws(place, seed), place)


def test_draws_with_noise_far_smaller_than_the_law_lie_at_the_release(seed):
    """sigma / scale = 1e6: s - r is the noise, mirrored, but for one part in 1e6."""
    values = draws((1.25, 1.0, 1.0, 1e-6), seed)
    assert agrees(np.abs(values - 1.25) / 1e-6, 1.0, truth_error=1e-5)
    assert agrees(values < 1.25, 0.5)


def test_gaussian_noise_gives_the_normal_law_everybody_knows(seed):
    mechanism = nw.Gaussian(scale=0.5)
    assert np.isclose(normal.log_marginal(mechanism, 2.0, 0.5, 1.2), stats.norm.logpdf(2.0, 0.5, np.hypot(1.2, 0.5)))
    values = normal.draw(np.random.default_rng(seed), mechanism, 2.0, np.full(40_000, 0.5), np.full(40_000, 1.2))
    precision = 1 / 1.44 + 1 / 0.25
    assert agrees(values, (0.5 / 1.44 + 2.0 / 0.25) / precision)
    assert agrees((values - values.mean()) ** 2, 1 / precision)
