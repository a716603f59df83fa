"""Fits do not depend on the units of data and parameters, and begin where the highest top is found."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import optimize, stats
from scipy.special import voigt_profile
from targets import briefly

import noisewise as nw
from noisewise import mechanisms
from noisewise.inference.conditional.row_blocks import noise_scale
from noisewise.likelihood.candidates import is_resolved, to_climb, within
from noisewise.likelihood.m_step.coordinates import Coordinates

ROWS = np.array([3.1, 4.4, 2.2, 5.0, 3.7, 1.9])
QUICK = nw.MCEM(schedule=nw.Ascent(most=4_000), final=20_000)


@cache
def noisy_rows(unit):
    """Six rows of a normal law, in other units."""
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 10.0 * unit), "sigma": dist.HalfNormal(5.0 * unit)},
        statistics={"x": lambda mu, sigma: dist.Normal(mu, sigma).expand([6]).to_event(1)},
    )
    return model, nw.Release(x=nw.Laplace(scale=0.5 * unit).released(ROWS * unit))


def agree(fit, other, unit, rel):
    """Whether `fit` is `other` in units of `unit`: estimates within `rel` standard errors, these within `rel`."""
    assert fit.status == other.status == "converged"
    for name, error in other.standard_error.items():
        assert fit.estimate[name] / unit == pytest.approx(other.estimate[name], abs=rel * float(np.max(error)))
        assert fit.standard_error[name] / unit == pytest.approx(error, rel=rel)
    assert fit.log_likelihood + ROWS.size * np.log(unit) == pytest.approx(other.log_likelihood, abs=1e-9)


@cache
def fitted_rows(unit):
    return nw.fit(*noisy_rows(unit), nw.EM(accelerate=True), start={"mu": 0.5 * unit, "sigma": 4.0 * unit})


@pytest.mark.parametrize("unit", briefly([1e-9, 1e-6, 1e-3, 3e4, 1e6, 1e9], [1e-9]))
def test_the_fit_in_other_units_is_the_same(unit):
    agree(fitted_rows(unit), fitted_rows(1.0), unit, 1e-6)
    assert len(fitted_rows(unit).trace) == pytest.approx(len(fitted_rows(1.0).trace), abs=3)


@pytest.mark.long
@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_simulated_fits_in_other_units_are_the_same(unit):
    """With the same seed the same values are simulated, in other units."""
    start = {"mu": 3.0, "sigma": 1.5}
    fits = [
        nw.fit(*noisy_rows(u), QUICK, start={name: u * value for name, value in start.items()}, seed=3)
        for u in (unit, 1.0)
    ]
    assert fits[0].status == fits[1].status == "converged"
    for name in start:
        error = float(fits[1].monte_carlo_error[name])
        assert fits[0].estimate[name] / unit == pytest.approx(float(fits[1].estimate[name]), abs=1e-3 * error)
        assert fits[0].standard_error[name] / unit == pytest.approx(float(fits[1].standard_error[name]), rel=1e-6)


@pytest.mark.parametrize("unit", briefly([1e-9, 1e-3, 1e3, 1e9], [1e9]))
def test_parameters_of_different_units_side_by_side(unit):
    """A slope per unit of a covariate beside an intercept that has no unit."""
    x = np.linspace(-1.0, 1.0, 5)
    release = nw.Release(y=nw.Laplace(scale=2.0).released(np.array([3.0, 5.0, 9.0, 20.0, 31.0])))

    def fitted(unit):
        model = nw.Model(
            prior={"a": dist.Normal(0.0, 2.0), "b": dist.Normal(0.0, 2.0 / unit)},
            statistics={"y": lambda a, b: dist.Poisson(jnp.exp(a + b * (x * unit))).to_event(1)},
        )
        return nw.fit(model, release, start={"a": 1.0, "b": 0.1 / unit})

    fit, plain = fitted(unit), fitted(1.0)
    assert fit.status == plain.status == "converged"
    for name, factor in (("a", 1.0), ("b", unit)):
        error = float(plain.standard_error[name])
        assert fit.estimate[name] * factor == pytest.approx(float(plain.estimate[name]), abs=1e-6 * error)
        assert fit.standard_error[name] * factor == pytest.approx(error, rel=1e-6)


def test_noise_without_a_scale_of_its_own():
    """A clipped release: panels are as wide as the noise that was clipped."""

    def fitted(unit):
        model = nw.Model(
            prior={"mu": dist.Normal(0.0, 10.0 * unit)}, statistics={"x": lambda mu: dist.Normal(mu, unit)}
        )
        noise = mechanisms.Clipped(nw.Laplace(scale=0.5 * unit), low=-9.0 * unit, high=9.0 * unit)
        return nw.fit(model, nw.Release(x=noise.released(3.0 * unit)), start={"mu": 2.0 * unit})

    fit, plain = fitted(1e6), fitted(1.0)
    assert fit.status == plain.status == "converged"
    assert fit.estimate["mu"] / 1e6 == pytest.approx(float(plain.estimate["mu"]), abs=1e-6)
    assert fit.standard_error["mu"] / 1e6 == pytest.approx(float(plain.standard_error["mu"]), rel=1e-6)


def test_how_wide_noise_is():
    assert noise_scale(nw.Laplace(scale=3.0), 1.0) == 3.0
    assert noise_scale(mechanisms.Rounded(nw.Gaussian(scale=2.0), step=1.0), 1.0) == 2.0
    stairs = [noise_scale(mechanisms.Staircase(epsilon=1.0, sensitivity=s), np.ones(2)) for s in (1.0, 1e6)]
    assert stairs[1] == pytest.approx(1e6 * stairs[0])
    assert noise_scale(nw.RandomizedResponse(epsilon=1.0), 5.0) == 5.0


@pytest.mark.parametrize("unit", briefly([1e-9, 1e9], [1e-9]))
def test_the_edge_lies_in_the_prior_s_units(unit):
    """Rows that vary less than the noise alone would: sigma is zero, whatever its unit."""
    model, _ = noisy_rows(unit)
    rows = np.array([0.4, 1.9, -0.8, 1.1, 2.3, 0.1])
    release = nw.Release(x=nw.Gaussian(scale=2.0 * unit).released(rows * unit))
    fit = nw.fit(model, release, start={"mu": 0.5 * unit, "sigma": unit}, on_failure="return")
    assert fit.status == "boundary"
    assert fit.estimate["sigma"] < 1e-6 * unit
    assert fit.estimate["mu"] / unit == pytest.approx(rows.mean(), abs=1e-3)  # its standard error is 0.8


def test_a_prior_that_names_no_unit_moves_no_origin():
    vague = nw.Model(
        prior={"rate": dist.Gamma(0.001, 0.001), "scale": dist.HalfNormal(7.0), "share": dist.Beta(1.0, 9.0)},
        statistics={"y": lambda rate, scale, share: dist.Poisson(rate * scale * share)},
    )
    origin = Coordinates(vague).origin
    assert origin[0] == origin[2] == 0.0
    assert np.exp(origin[1]) == pytest.approx(7.0 * stats.norm.ppf(0.75), rel=0.5)  # the median, from 64 draws


# Starts -------------------------------------------------------------------------------------------------------------

HEAVY = np.array([-8.0, -7.1, 0.3, 6.0, 6.4, 15.0])


@pytest.mark.parametrize("width", briefly([20.0, 1e4], []), ids=str)
def test_the_highest_of_many_tops_is_found(width, seed):
    """Cauchy rows have a top at nearly every row. Five draws of the prior may all miss the highest.

    With a prior a thousand times as wide as the data it may still be missed, but not without a word.
    """
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, width)},
        statistics={"x": lambda mu: dist.Cauchy(mu, 0.5).expand([6]).to_event(1)},
    )
    release = nw.Release(x=nw.Gaussian(scale=0.5).released(HEAVY))

    def height(mu):
        return np.sum(np.log(voigt_profile(HEAVY - mu, 0.5, 0.5)))  # normal noise, and the law's scale

    grid = np.linspace(-20.0, 20.0, 4001)
    best = grid[np.argmax([height(mu) for mu in grid])]
    top = optimize.minimize_scalar(lambda mu: -height(mu), bounds=(best - 0.1, best + 0.1), options={"xatol": 1e-9}).x
    for number in range(3):
        fit = nw.fit(model, release, nw.EM(accelerate=True), seed=seed + number)
        found, told = abs(float(fit.estimate["mu"]) - top) < 1e-5, "ended at another maximum" in fit.message
        assert told == fit.diagnostics["multimodal"]
        assert (found and told) if width < 100.0 else (found or told)


def test_a_top_far_from_the_draws_of_the_prior_is_found(seed):
    """A fit takes only the support of a prior: the higher of two tops may be five of its standard deviations away."""
    rows = np.array([-10.0, -9.5, 10.0, 10.2, 9.0])
    model = nw.Model({"mu": dist.Normal(-10.0, 4.0)}, {"x": lambda mu: dist.Cauchy(mu, 1.0).expand([5])})
    fit = nw.fit(model, nw.Release(x=nw.Gaussian(scale=0.5).released(rows)), seed=seed)

    def height(mu):
        return np.sum(np.log(voigt_profile(rows - mu, 0.5, 1.0)))

    top = optimize.minimize_scalar(lambda mu: -height(mu), bounds=(9.0, 10.0), options={"xatol": 1e-9}).x
    assert abs(float(fit.estimate["mu"]) - top) < 1e-5
    assert fit.diagnostics["multimodal"]


def test_candidates_to_climb_from_stand_below_tops_of_their_own():
    free = np.linspace(-3.0, 3.0, 61)[:, None]
    heights = -((free[:, 0] ** 2 - 4.0) ** 2) + 0.1 * free[:, 0]
    chosen = free[to_climb(free, heights), 0]
    assert chosen[0] == pytest.approx(2.0, abs=0.11)
    assert chosen[1] == pytest.approx(-2.0, abs=0.11)
    scaled = to_climb(1e9 * free, heights)
    assert np.array_equal(1e9 * free[scaled, 0], 1e9 * chosen)
    nowhere = np.where(free[:, 0] > 0, heights, -np.inf)
    assert np.all(np.isfinite(nowhere[to_climb(free, nowhere)]))


def test_rounds_go_on_until_several_candidates_are_near_the_top():
    assert is_resolved(np.r_[np.zeros(8), -1e3])
    assert not is_resolved(np.r_[np.zeros(7), -1e3, -1e3])
    new = within(np.array([[0.0, 5.0], [4.0, 5.0]]), np.random.default_rng(0))
    assert new[:, 0].min() >= -1.0
    assert new[:, 0].max() <= 5.0
    assert np.all(new[:, 1] == 5.0)
