"""Noise with a confidential scale, and its calibration to smooth sensitivity."""

import math

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import agrees
from scipy import special, stats

import noisewise as nw
from noisewise.mechanisms import smooth
from noisewise.mechanisms.base import mechanism_from_dict
from noisewise.mechanisms.generalized_cauchy import GeneralizedCauchy
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.mechanisms.latent_scale import LatentScale
from noisewise.numerics import double

LATENT = LatentScale(nw.Laplace(scale=2.0), "spread", 0.5)


def test_density_is_that_of_the_base_at_the_scale():
    s, t = np.array([1.0, 2.0, -3.0]), np.array([0.1, 0.5, 4.0])
    expected = stats.laplace.logpdf(1.7, s, 2.0 * np.array([0.5, 0.5, 4.0]))
    np.testing.assert_allclose(LATENT.log_prob(1.7, s, spread=t), expected, rtol=1e-14)


def test_inputs_follow_from_the_static_name():
    assert LATENT.inputs == ("spread",)
    again = jax.tree.unflatten(jax.tree.structure(LATENT), jax.tree.leaves(LATENT))
    assert again.inputs == ("spread",)
    assert again == LATENT
    assert mechanism_from_dict(LATENT.to_dict(), "here") == LATENT
    assert mechanism_from_dict(LATENT.to_dict(), "here").inputs == ("spread",)
    assert LatentScale(nw.Laplace(scale=2.0), "other", 0.5) != LATENT


def test_guarantee_survives_a_file():
    mechanism = smooth.cauchy(epsilon=1.0, neighbours="replace-one").latent("spread", 0.5)
    again = mechanism_from_dict(mechanism.to_dict(), "here")
    assert again == mechanism
    assert again.guarantee == Guarantee(epsilon=1.0, norm="l1", neighbours="replace-one", dimension=1)


def test_supremum_is_attained_at_small_scales_only():
    for t in (-1.0, 0.0, 0.3, 0.5):
        assert LATENT.log_prob(1.7, 1.7, spread=t) == LATENT.log_sup(1.7)
    assert LATENT.log_prob(1.7, 1.7, spread=0.51) < LATENT.log_sup(1.7)


def test_negative_control_without_the_bound_the_supremum_is_exceeded():
    """The density at s = s_dp grows without limit as the scale falls: the base's own supremum is none."""
    free = LatentScale(nw.Laplace(scale=2.0), "spread", 1e-300)
    assert free.log_prob(1.7, 1.7, spread=1e-6) > LATENT.log_sup(1.7)


@pytest.mark.parametrize("lead", [(), (1,), (3,), (2, 5)])
def test_one_scale_for_all_entries_lines_up_with_the_rows(lead, seed):
    """Rows of vectors of length 3 with one scale each; 3 rows are no exception."""
    rng = np.random.default_rng(seed)
    s, t = rng.normal(size=(*lead, 3)), rng.uniform(0.1, 2.0, lead)
    released = np.array([0.5, -1.0, 2.0])
    found = LATENT.log_prob(released, s, spread=t)
    assert np.shape(found) == (*lead, 3)
    scale = 2.0 * np.maximum(0.5, np.asarray(t))[..., None]
    np.testing.assert_allclose(found, stats.laplace.logpdf(released, s, scale), rtol=1e-13)
    assert np.shape(LATENT.sample(rng, s, spread=t)) == (*lead, 3)


def test_sample_scales_by_row(seed):
    t = np.array([0.1, 3.0])
    draws = LATENT.sample(np.random.default_rng(seed), np.zeros((100_000, 2)), spread=np.broadcast_to(t, (100_000, 2)))
    assert agrees(np.abs(draws), [1.0, 6.0])
    assert not agrees(np.abs(draws), [1.03, 6.2])


compiled = jax.jit(lambda mechanism, s, t: mechanism.log_prob(0.0, s, t=t))


@pytest.mark.parametrize("bound", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize(
    ("base", "far"),
    [
        (nw.Laplace(scale=1.0), lambda k: -k - math.log(2.0)),
        (nw.Gaussian(scale=1.0), lambda k: -0.5 * k * k - 0.5 * math.log(2.0 * math.pi)),
        (GeneralizedCauchy(power=4.0, scale=1.0), lambda k: 0.5 * math.log(2.0) - math.log(math.pi) - math.log1p(k**4)),
    ],
    ids=["laplace", "gaussian", "cauchy"],
)
def test_far_values_have_the_right_log_density(base, far, bound):
    mechanism = LatentScale(base, "t", bound)
    factor, k = (grid.ravel() for grid in np.meshgrid([1.0, 1e3], [0.0, 3.0, 500.0, 1e5]))
    expected = np.array([far(one) for one in k]) - np.log(bound * factor)
    given = k * bound * factor, bound * factor
    assert mechanism.log_prob(0.0, given[0], t=given[1]) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    with double():
        traced = np.asarray(compiled(mechanism, *given))
    assert traced == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_extremes_are_minus_infinity_and_never_nan():
    values = np.array([0.0, 1e300, np.inf, -np.inf])
    s, t = (grid.ravel() for grid in np.meshgrid(values, [-np.inf, 0.0, 1e-300, 1e300, np.inf]))
    for base in (nw.Laplace(scale=1e-8), nw.Gaussian(scale=1e8), GeneralizedCauchy(power=2.0, scale=1.0)):
        with np.errstate(over="ignore"):
            found = LatentScale(base, "t", 1e-8).log_prob(0.0, s, t=t)
        assert not np.isnan(found).any()
        assert np.all(found[np.isinf(t) & (t > 0)] == -np.inf)
        assert np.all(found[np.isinf(s)] == -np.inf)


REFUSED = {
    "integer noise": (
        lambda: LatentScale(nw.DiscreteLaplace(scale=1.0), "t", 1.0),
        "LatentScale: 'base' must be an additive mechanism that has a density.*got DiscreteLaplace",
    ),
    "not a mechanism": (lambda: LatentScale(2.0, "t", 1.0), "'base' must be an additive mechanism.*got 2.0"),
    "budget": (
        lambda: LatentScale(nw.Laplace(epsilon=1.0, sensitivity=1.0), "t", 1.0),
        "'base' must be given by its scale, without a budget.*smooth",
    ),
    "name": (lambda: LatentScale(nw.Laplace(scale=1.0), "a b", 1.0), "'statistic' must be names.*got 'a b'"),
    "bound": (lambda: LatentScale(nw.Laplace(scale=1.0), "t", 0.0), "LatentScale: 'bound' must be positive.*got 0.0"),
    "no scale": (lambda: LATENT.log_prob(1.0, 2.0), "'spread' must be given, and nothing else; got \\[\\]"),
    "other scale": (
        lambda: LATENT.log_prob(1.0, 2.0, t=1.0),
        "'spread' must be given, and nothing else; got \\['t'\\]",
    ),
    "too many axes": (
        lambda: LATENT.log_prob(1.0, np.zeros(2), spread=np.ones((2, 2))),
        r"'spread' must have at most as many axes as the value of shape \(2,\); got \(2, 2\)",
    ),
    "released shape": (
        lambda: LatentScale(nw.Laplace(scale=1.0), "t", [1.0, 2.0]).released(3.0),
        "LatentScale.released: 'value' must have a shape that 'bound'",
    ),
    "base shape": (
        lambda: LatentScale(nw.Laplace(scale=[1.0, 2.0]), "t", 1.0).released(3.0),
        "'value' must have a shape that 'scale'",
    ),
    "epsilon": (lambda: smooth.laplace(epsilon=-1.0, delta=0.1), "smooth.laplace: 'epsilon' must be positive.*got -1"),
    "large epsilon": (
        lambda: smooth.gaussian(epsilon=20.0, delta=0.1),
        "smooth.gaussian: 'epsilon' must be at most 10; got 20",
    ),
    "delta": (lambda: smooth.gaussian(epsilon=1.0, delta=1.0), "smooth.gaussian: 'delta' must be below 1; got 1.0"),
    "power": (lambda: smooth.cauchy(epsilon=1.0, power=1.0), "'power' must be above 1"),
    "dimension": (
        lambda: smooth.laplace(epsilon=1.0, delta=0.1, dimension=0),
        "'dimension' must be a whole number, at least 1; got 0",
    ),
    "relation": (
        lambda: smooth.cauchy(epsilon=1.0, neighbours="swap"),
        "'neighbours' must be one of 'add-remove', 'replace-one'; got 'swap'",
    ),
    "sensitivity": (lambda: smooth.cauchy(epsilon=1.0).known(0.0), "Smooth.known: 'sensitivity' must be positive"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(call, message):
    with pytest.raises(nw.InputError, match=message):
        call()


def test_the_model_must_have_the_scale():
    model = nw.Model(prior={"mu": dist.Normal(0.0, 1.0)}, statistics={"x": lambda mu: dist.Normal(mu, 1.0)})
    with pytest.raises(nw.InputError, match=r"release\['x'\]' reads a value the model must have; got 'spread'"):
        nw.sample(model, nw.Release(x=LATENT.released(1.0)), draws=10, seed=1)


# Calibration --------------------------------------------------------------------------------------------------------


def test_published_constants():
    epsilon, delta = 0.7, 1e-5
    log_term = math.log(2.0 / delta)
    for dimension in (1, 3):
        xi = epsilon / (4.0 * (dimension + log_term))
        plan = smooth.laplace(epsilon, delta, dimension=dimension)
        assert (plan.noise.scale, plan.xi) == (pytest.approx(2.0 / epsilon), pytest.approx(xi))
        plan = smooth.gaussian(epsilon, delta, dimension=dimension)
        assert plan.noise.scale == pytest.approx(5.0 * math.sqrt(2.0 * log_term) / epsilon)
        assert plan.xi == pytest.approx(xi)
        plan = smooth.cauchy(epsilon, power=3.0, dimension=dimension)
        assert (plan.noise.scale, plan.noise.power) == (pytest.approx(8.0 / epsilon), 3.0)
        assert plan.xi == pytest.approx(epsilon / (8.0 * dimension))


@pytest.mark.parametrize(
    "plan", [smooth.laplace(1.0, 1e-6), smooth.gaussian(1.0, 1e-6), smooth.cauchy(1.0)], ids=lambda plan: plan.noise
)
def test_a_known_sensitivity_gives_the_plain_mechanism(plan):
    fixed, latent = plan.known(0.3), plan.latent("spread", 0.1)
    assert type(fixed) is type(plan.noise)
    assert fixed.guarantee == latent.guarantee == plan.guarantee
    assert plan.noise.guarantee is None
    s = np.linspace(-3.0, 3.0, 7)
    np.testing.assert_allclose(fixed.log_prob(0.4, s), latent.log_prob(0.4, s, spread=0.3), rtol=1e-13)


def exceeds(epsilon, delta, dimension):
    """P(privacy loss > epsilon) / delta for Laplace and Gaussian noise, over the factor between two scales.

    Laplace: the bound in the docstring. Gaussian: noncentral chi-squared tails of a quadratic in the noise.
    """
    xi = smooth.laplace(epsilon, delta, dimension=dimension).xi
    assert dimension * xi <= epsilon / 2
    gamma = special.gammaincc(dimension, (epsilon / 2 + dimension * xi) / np.expm1(xi))
    shift = 1.0 / smooth.gaussian(epsilon, delta).noise.scale
    normal = [special.ndtr(0.5 * shift - epsilon / shift)]
    for v in xi * np.array([0.05, 0.3, 0.6, 0.9, 1.0]):
        k = np.expm1(2 * v)
        far = (2 * (epsilon + dimension * v) + shift**2 / k) / k
        normal.append(stats.ncx2.sf(far, dimension, np.exp(2 * v) * (shift / k) ** 2))
        k, inner = -np.expm1(-2 * v), (shift * np.exp(-v)) ** 2
        near = (inner / k + 2 * dimension * v - 2 * epsilon) / k
        normal.append(stats.ncx2.cdf(near, dimension, np.exp(-2 * v) * inner / k**2))
    return gamma / delta, max(normal) / delta


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0, 10.0])
def test_calibration_holds_in_any_dimension(epsilon):
    for delta in (0.5, 0.1, 1e-2, 1e-6, 1e-12):
        for dimension in (1, 2, 5, 20, 100):
            assert max(exceeds(epsilon, delta, dimension)) < 1.0, (delta, dimension)


def test_negative_control_calibration_fails_for_huge_epsilon(monkeypatch):
    monkeypatch.setattr(smooth, "LARGEST_EPSILON", 100.0)
    laplace, gaussian = exceeds(80.0, 1e-2, 1)
    assert laplace > 1.0
    assert gaussian > 1.0


@pytest.mark.parametrize("power", [1.01, 1.5, 2.0, 4.0, 20.0])
def test_cauchy_loss_bound(power):
    """The two rates in the docstring, by finite differences of the log density."""
    noise = GeneralizedCauchy(power=power, scale=1.0)
    u = np.concatenate([np.linspace(-8.0, 8.0, 4001), np.geomspace(8.0, 1e8, 500)])
    step = 1e-6
    shift = np.abs(noise.noise_log_prob(u + step) - noise.noise_log_prob(u - step)) / (2 * step)
    assert shift.max() <= (power - 1.0) ** (1.0 - 1.0 / power) + 1e-4
    stretch = (noise.noise_log_prob(u * np.exp(step)) - noise.noise_log_prob(u * np.exp(-step))) / (2 * step) + 1.0
    assert stretch.max() <= 1.0 + 1e-6
    assert stretch.min() >= 1.0 - power - 1e-6
    plan = smooth.cauchy(1.0, power=power)
    total = (power - 1.0) ** (1.0 - 1.0 / power) / plan.noise.scale + max(1.0, power - 1.0) * plan.xi
    assert total < 1.0
