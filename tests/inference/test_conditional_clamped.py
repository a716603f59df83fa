"""A normal statistic that was clamped before its noise: closed forms against quadrature, draws against both."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import noisewise as nw
from noisewise.inference.conditional import normal, quadrature
from noisewise.mechanisms import Clamped, Clipped, Thresholded
from noisewise.numerics import double

NOISE = {"Laplace": (nw.Laplace, stats.laplace), "Gaussian": (nw.Gaussian, stats.norm)}
PLACES = {
    "inside": (3.0, 2.0, 1.5, 0.7, 0.0, 5.0),
    "release above": (7.0, 4.0, 2.0, 1.0, 0.0, 5.0),
    "release below": (-2.0, 3.0, 1.0, 1.0, 0.0, 5.0),
    "law above": (4.0, 9.0, 1.0, 0.5, 0.0, 5.0),
    "law far below": (1.0, -20.0, 1.0, 0.3, 0.0, 5.0),
    "wide law": (2.0, 1.0, 400.0, 0.5, -3.0, 4.5),
    "little noise": (2.0, 1.0, 1.0, 1e-4, 0.0, 5.0),
    "much noise": (20.0, 1.0, 1.0, 300.0, -3.0, 0.5),
}
"""Release, mean and standard deviation of the law, scale of the noise, bounds."""


def mechanism_of(kind, place):
    return Clamped(NOISE[kind][0](scale=place[3]), *place[4:])


def between(kind, place, start, end):
    """The integral of law times noise over part of the range, piece by piece."""
    released, mu, sigma, scale = place[:4]
    noise = NOISE[kind][1]
    cuts = [released + k * scale for k in (-30, -3, 0, 3, 30)] + [mu + k * sigma for k in (-9, -3, 0, 3, 9)]
    ends = sorted({start, end, *(cut for cut in cuts if start < cut < end)})
    return sum(
        integrate.quad(
            lambda s: stats.norm.pdf(s, mu, sigma) * noise.pdf(released - s, scale=scale), a, b, epsabs=0, epsrel=1e-11
        )[0]
        for a, b in pairwise(ends)
    )


def below(kind, place, s):
    """The integral of law times noise over all below s: masses beyond the bounds, an integral between them."""
    released, mu, sigma, scale, low, high = place
    noise = NOISE[kind][1]
    total = noise.pdf(released - low, scale=scale) * stats.norm.cdf(min(s, low), mu, sigma)
    if s > low:
        total += between(kind, place, low, min(s, high))
    if s > high:
        tails = stats.norm.sf(high, mu, sigma) - stats.norm.sf(s, mu, sigma)
        total += noise.pdf(released - high, scale=scale) * tails
    return total


@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("name", PLACES)
def test_the_marginal_density_is_the_integral(kind, name):
    place = PLACES[name]
    released, mu, sigma = place[:3]
    mechanism, truth = mechanism_of(kind, place), np.log(below(kind, place, np.inf))
    assert normal.log_marginal(mechanism, released, mu, sigma) == pytest.approx(truth, abs=1e-10)
    if name not in ("little noise", "inside"):  # as if it had not been clamped
        assert abs(normal.log_marginal(mechanism.base, released, mu, sigma) - truth) > 1e-4


EACH = pytest.mark.parametrize("kind", ["Laplace", pytest.param("Gaussian", marks=pytest.mark.long)])
"""What takes a second to compile."""


def all_places(kind):
    """All places at once: the mechanism, releases, means and standard deviations."""
    released, mu, sigma, scale, low, high = np.array(list(PLACES.values())).T
    return Clamped(NOISE[kind][0](scale=scale), low, high), released, mu, sigma


@EACH
def test_gradients_are_differences_of_values(kind):
    mechanism, released, mu, sigma = all_places(kind)

    def density(at, spread):
        return normal.log_marginal(mechanism, released, at, spread)

    with double():
        slopes = jax.jit(jax.grad(lambda at, spread: density(at, spread).sum(), argnums=(0, 1)))(mu, sigma)
        slopes = [np.asarray(slope) for slope in slopes]
    step = 1e-5 * sigma
    differences = [density(mu + step, sigma) - density(mu - step, sigma)]
    differences.append(density(mu, sigma + step) - density(mu, sigma - step))
    for slope, difference in zip(slopes, differences, strict=True):
        assert np.all(np.abs(slope - difference / (2 * step)) <= 1e-5 * np.abs(slope) + 1e-7 / sigma)


@EACH
def test_draws_are_quantiles(kind):
    """Of the law of s given its release, whose distribution function is an integral."""
    uniform = np.array([1e-9, 0.02, 0.2, 0.5, 0.8, 0.98, 1 - 1e-9])
    with double():
        many, places = np.tile(uniform, (len(PLACES), 1)).T, all_places(kind)
        drawn = np.asarray(jax.jit(lambda: normal.invert(many, *places))())
    assert np.all(np.diff(drawn, axis=0) >= 0.0)
    for place, column in zip(PLACES.values(), drawn.T, strict=True):
        total = below(kind, place, np.inf)
        found = np.array([below(kind, place, s) / total for s in column])
        assert np.allclose(found, uniform, rtol=0, atol=1e-9)


@EACH
def test_panels_and_closed_form_agree_at_any_ratio_of_scales(kind):
    """Law and noise a million times narrower or wider than the bounds, and far from them: to ten digits."""
    rng = np.random.default_rng(1)
    scale, sigma = 10.0 ** rng.uniform(-6, 6, (2, 40))
    released, mu = rng.normal(0.0, 3.0, (2, 40)) * np.maximum(np.maximum(scale, sigma), 1.0)
    mechanism = Clamped(NOISE[kind][0](scale=scale), -1.0, 2.0)
    with double():
        law = dist.Normal(jnp.asarray(mu), jnp.asarray(sigma))
        by_panels = jax.jit(
            lambda mechanism, law, released: quadrature.log_marginal(law, "Normal", mechanism, released)
        )
        panels = jax.tree.map(np.asarray, by_panels(mechanism, law, released))
    found = normal.log_marginal(mechanism, released, mu, sigma)
    assert np.allclose(found, panels.log_kept, rtol=1e-13, atol=1e-10)
    near = found > -1e4  # farther out, the logarithm itself has no more digits
    assert np.all((panels.log_beyond - panels.log_kept)[near] < np.log(1e-10))


@pytest.mark.parametrize(
    "mechanism",
    [
        Clipped(nw.Laplace(scale=1.0), low=0.0),
        pytest.param(Thresholded(nw.Laplace(scale=1.0), 0.0), marks=pytest.mark.long),
    ],
    ids=["end", "token"],
)
def test_a_heavy_law_under_noise_that_does_not_fall(mechanism):
    """s + z is symmetric about zero, so that half of it is clipped, or withheld: the law's tail counts far out."""
    released = 0.0 if isinstance(mechanism, Clipped) else np.nan
    with double():
        found = jax.jit(lambda: nw.Privatised(dist.Cauchy(0.0, 1.0), mechanism).log_prob(released))()
    assert float(found) == pytest.approx(np.log(0.5), abs=1e-9)


def test_a_heavy_law_that_was_clamped():
    with double():
        law = nw.Privatised(dist.Cauchy(0.0, 1.0), Clamped(nw.Laplace(scale=1.0), -1.0, 1.0))
        found = jax.jit(lambda: law.log_prob(0.0))()
    inside = 2 * integrate.quad(lambda s: stats.cauchy.pdf(s) * np.exp(-s) / 2, 0.0, 1.0, epsrel=1e-12)[0]
    assert float(found) == pytest.approx(np.log(inside + 0.5 * np.exp(-1.0) / 2), abs=1e-9)


def test_releases_are_simulated_of_clamped_values():
    law = nw.Privatised(dist.Normal(50.0, 1.0), Clamped(nw.Laplace(scale=0.1), 0.0, 10.0))
    drawn = np.asarray(jax.jit(lambda key: law.sample(key, (1_000,)))(jax.random.key(1)))
    assert abs(np.median(drawn) - 10.0) < 0.05
