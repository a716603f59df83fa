"""Maximum likelihood where a statistic is measured several ways: closed form, chains over tables, enumeration."""

from functools import cache
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from measured_tables import enumerated_likelihood, margins
from scipy import optimize, stats

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.fit import chosen
from noisewise.likelihood.intervals.parametric_bootstrap import _simulated

LIMIT = 5.0
"""Monte Carlo errors that an estimate may be off: once in two million."""

# Normal laws, normal noise --------------------------------------------------------------------------------------------

MATRIX = np.array([[1, 1, 0, 0], [0, 0, 1, -1]])
SCALES = {"each": 0.8, "pairs": 0.3}
VALUES = {"each": np.array([1.0, 2.4, 4.1, -0.7]), "pairs": np.array([2.9, 5.6])}


@cache
def normal_model():
    return nw.Model(
        {"mean": dist.Normal(0.0, 3.0), "spread": dist.HalfNormal(5.0)},
        {"x": lambda mean, spread: dist.Normal(mean, spread).expand([4]).to_event(1)},
    )


def normal_release():
    return nw.Release(
        each=nw.Gaussian(scale=SCALES["each"]).of("x").released(VALUES["each"]),
        pairs=nw.Gaussian(scale=SCALES["pairs"]).of("x", matrix=MATRIX).released(VALUES["pairs"]),
    )


DESIGN = np.vstack([np.eye(4), MATRIX])
NOISES = np.diag([SCALES["each"] ** 2] * 4 + [SCALES["pairs"] ** 2] * 2)
RELEASED = np.concatenate(list(VALUES.values()))


def normal_height(parameters, design=DESIGN):
    """The log likelihood, by SciPy; of the first measurements only, if the design has no others."""
    mean, spread = parameters
    rows = len(design)
    covariance = spread**2 * design @ design.T + NOISES[:rows, :rows]
    return stats.multivariate_normal.logpdf(RELEASED[:rows], design @ np.full(4, mean), covariance)


def curvature(height, top, step=1e-3):
    """Minus the second derivatives, by central differences."""
    steps = step * np.eye(len(top))
    second = [
        [sum(a * b * height(top + a * u + b * v) for a in (-1, 1) for b in (-1, 1)) / (4.0 * step**2) for v in steps]
        for u in steps
    ]
    return -np.array(second)


def given_measurements(mean, spread, design=DESIGN):
    """Mean and covariance of x given all measurements."""
    gain = spread**2 * design.T @ np.linalg.inv(spread**2 * design @ design.T + NOISES)
    return mean + gain @ (RELEASED - design @ np.full(4, mean)), spread**2 * (np.eye(4) - gain @ design)


def complete_information(mean, spread):
    """What x itself would have told of mean and spread, on average given the measurements."""
    centre, covariance = given_measurements(mean, spread)
    squares = np.sum((centre - mean) ** 2 + np.diag(covariance))
    cross = 2.0 * np.sum(centre - mean) / spread**3
    return np.array([[4.0 / spread**2, cross], [cross, 3.0 * squares / spread**4 - 4.0 / spread**2]])


def top_of(height):
    options = {"xatol": 1e-9, "fatol": 1e-12}
    return optimize.minimize(lambda p: -height(p), [1.0, 1.0], method="Nelder-Mead", options=options).x


def test_a_normal_law_with_normal_noise_is_fitted_in_closed_form():
    fit = nw.fit(normal_model(), normal_release(), start={"mean": 0.0, "spread": 1.0})
    found = np.array([fit.estimate["mean"], fit.estimate["spread"]])
    assert found == pytest.approx(top_of(normal_height), abs=1e-6)
    assert fit.log_likelihood == pytest.approx(normal_height(found), rel=1e-10)
    assert fit.information == pytest.approx(curvature(normal_height, found), rel=1e-4, abs=1e-5)
    best, left = (np.diag(np.linalg.inv(one)) for one in (complete_information(*found), fit.information))
    assert [fit.efficiency["mean"], fit.efficiency["spread"]] == pytest.approx(best / left, rel=1e-8)
    without = top_of(lambda p: normal_height(p, np.eye(4)))  # a measurement left out
    assert found != pytest.approx(without, abs=1e-3)


@pytest.mark.long
def test_other_noise_is_fitted_by_simulation(seed):
    """Laplace noise on a sum: the sum is integrated out numerically."""
    model = nw.Model(
        {"mean": dist.Normal(0.0, 3.0)}, {"x": lambda mean: dist.Normal(mean, 1.5).expand([2]).to_event(1)}
    )
    release = nw.Release(
        each=nw.Gaussian(scale=1.0).of("x").released([1.0, 2.4]),
        total=nw.Laplace(scale=1.0).of("x", sum=True).released(4.4),
    )
    assert chosen(Problem(model, release)) == nw.MCEM()
    design, grid = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.linspace(-20.0, 25.0, 20_001)
    covariance = 2.25 * design @ design.T + np.diag([1.0, 1.0, 0.0])
    points = np.column_stack([np.full_like(grid, 1.0), np.full_like(grid, 2.4), grid])

    def height(mean):
        joint = stats.multivariate_normal.pdf(points, design @ np.full(2, mean), covariance)
        return np.log(np.sum(joint * stats.laplace.pdf(4.4, grid)) * (grid[1] - grid[0]))

    truth = optimize.minimize_scalar(lambda mean: -height(mean), bounds=(-3.0, 6.0), options={"xatol": 1e-8}).x
    fit = nw.fit(model, release, nw.MCEM(schedule=nw.Ascent(most=20_000), final=50_000), start={"mean": 1.0}, seed=seed)
    assert abs(fit.estimate["mean"] - truth) < LIMIT * fit.monte_carlo_error["mean"]
    assert fit.monte_carlo_error["mean"] < 0.1 * fit.standard_error["mean"]


# Tables ---------------------------------------------------------------------------------------------------------------

ROW, COLUMN = margins((2, 2))
NOISE = nw.DiscreteGaussian(scale=1.5)


@cache
def table_model():
    return nw.Model(
        {"rate": dist.Gamma(2.0, 1.0), "odds": dist.Gamma(2.0, 1.0)},
        {"cells": lambda rate, odds: dist.Poisson(rate * jnp.stack([1.0, odds, 0.7, 0.5 * odds])).to_event(1)},
    )


def table_release(total=None):
    parts = {
        "cell": NOISE.of("cells").released([3, 1, 2, 1]),
        "rows": nw.DiscreteLaplace(scale=0.8).of("cells", matrix=ROW).released([5, 2]),
    }
    if total is not None:
        parts["total"] = nw.Exact().of("cells", sum=True).released(total)
    return nw.Release(parts)


def enumerated_top(release):
    """Estimate, information and height by enumeration of every table."""
    height = enumerated_likelihood(
        lambda rate, odds: rate * np.array([1.0, odds, 0.7, 0.5 * odds]),
        release,
        {"cell": np.eye(4, dtype=int), "rows": ROW, "total": np.ones((1, 4), dtype=int)},
        10,
    )
    top = top_of(height)
    return top, curvature(height, top), height(top)


def close(fit, truth, information):
    """Within five of its own Monte Carlo errors, which must be small beside the standard errors."""
    found = np.array([fit.estimate["rate"], fit.estimate["odds"]])
    error = np.array([fit.monte_carlo_error["rate"], fit.monte_carlo_error["odds"]])
    spread = np.sqrt(np.diag(np.linalg.inv(information)))
    assert np.all(error < 0.2 * spread)
    return np.all(np.abs(found - truth) < LIMIT * error)


def test_all_measurements_weigh_a_value():
    release = table_release(6)
    (part,) = parts_of(Problem(table_model(), release))
    tables = np.array([[3, 1, 2, 0], [0, 1, 5, 2]])
    weights = {name: np.zeros(2) for name in release}
    for name, matrix in (("cell", np.eye(4)), ("rows", ROW), ("total", np.ones((1, 4)))):
        mechanism, value = release[name].mechanism, release[name].value
        weights[name] = mechanism.log_prob(np.ravel(value), tables @ matrix.T.astype(int)).reshape(2, -1).sum(axis=1)
    assert part.log_eta(tables)[:, 0] == pytest.approx(sum(weights.values()))
    assert np.all(part.log_eta(tables)[:, 0] <= part.log_sup())


@pytest.mark.parametrize("total", [None, pytest.param(6, marks=pytest.mark.long)], ids=["total_noisy", "total_exact"])
def test_tables_are_fitted_by_chains(total, seed):
    release = table_release(total)
    truth, information, height = enumerated_top(release)
    estimator = nw.MCEM(e_step="augmented", schedule=nw.Ascent(most=2_000), final=4_000)
    fit = nw.fit(table_model(), release, estimator, start={"rate": 1.0, "odds": 1.0}, seed=seed)
    assert close(fit, truth, information)
    assert np.all(np.abs(fit.information - information) < LIMIT * fit.information_error + 1e-5)
    assert fit.log_likelihood == pytest.approx(height, abs=LIMIT * fit.diagnostics["log_likelihood_error"])


@pytest.mark.long
def test_a_total_treated_as_noisy_is_seen(seed):
    truth, information, _ = enumerated_top(table_release(12))
    estimator = nw.MCEM(e_step="augmented", schedule=nw.Ascent(most=2_000), final=4_000)
    fit = nw.fit(table_model(), table_release(), estimator, start={"rate": 1.0, "odds": 1.0}, seed=seed)
    assert not close(fit, truth, information)


def test_a_simulated_release_measures_one_table(seed):
    """Of a bootstrap: all measurements are of the same cells."""
    exact = nw.Exact()
    release = nw.Release(
        cell=exact.of("cells").released([3, 1, 2, 1]),
        total=exact.of("cells", sum=True).released(7),
        rows=NOISE.of("cells", matrix=ROW).released([5, 2]),
    )
    estimate = SimpleNamespace(estimate={"rate": np.asarray(2.0), "odds": np.asarray(0.7)})
    again = _simulated(Problem(table_model(), release), estimate, np.random.default_rng(seed))
    assert again["total"].value == np.sum(again["cell"].value)
    assert again["rows"].of == release["rows"].of


def test_chains_are_what_fit_takes_for_tables():
    assert chosen(Problem(table_model(), table_release(6))).e_step == "augmented"
    assert chosen(Problem(normal_model(), normal_release())) == nw.EM()
