"""The difference of two clamped means of some two hundred people each, against its likelihood by Fourier inversion."""

import math

import numpy as np
import pytest
from exactness import LIMIT
from scipy import stats

import noisewise as nw
from noisewise.analysis import Analysis, starter

TOP = 60.0
PUBLISHED = {"treated": (190, 26.0), "control": (210, 22.6)}
SHAPE, MEAN = stats.lognorm(0.3, scale=math.exp(0.7)), stats.lognorm(0.4, scale=math.exp(3.2))


@pytest.fixture(scope="module")
def analysis():
    text = starter("means").replace("value = 29.4", "value = 26.0")
    for (n, _), old in zip(PUBLISHED.values(), (48, 60), strict=True):
        text = text.replace(f"n = {old}\n", f"n = {n}\n")
        sensitivity = f"sensitivity = {TOP / old:.4g}" if old == 48 else "sensitivity = 1.0"
        assert text.count(sensitivity) == 1
        text = text.replace(sensitivity, f"sensitivity = {TOP / n}")
    return Analysis.from_text(text, "means.toml")


def density_of_release(shape, mean, n, published, clamped=True):
    """The density of a published mean at many values of shape and mean: an integral over frequencies.

    E[exp(itX)] of one clamped income X is an integral over incomes below the top and an atom at it. That of the mean
    is its n-th power at t / n; times 1 / (1 + (bt)^2), that of Laplace noise of scale b, it is that of the release.
    """
    nodes, weight = np.polynomial.legendre.leggauss(300)
    place, weight = 0.5 * (nodes + 1.0), 0.5 * weight
    end = TOP if clamped else 10.0 * TOP
    income, width = end * place**3, 3.0 * end * place**2 * weight  # finer near zero, where the density may be steep
    scale = TOP / n
    frequency = np.linspace(0.0, 12.0, 601)
    waves = np.exp(1j * np.outer(income, frequency / n))
    law = stats.gamma(shape[:, None], scale=(mean / shape)[:, None])
    one = (law.pdf(income) * width) @ waves
    if clamped:
        one += law.sf(TOP) * np.exp(1j * TOP * frequency / n)
    with np.errstate(divide="ignore"):
        release = np.exp(n * np.log(one)) / (1.0 + (scale * frequency) ** 2)
    integrand = np.real(release * np.exp(-1j * frequency * published))
    return np.trapezoid(integrand, frequency, axis=1) / math.pi


def quadrature(clamped=True):
    """Posterior mean and standard deviation of the difference, and the chance that it is positive."""
    level = (np.arange(40) + 0.5) / 40
    shapes = SHAPE.ppf(level)
    grid = np.linspace(12.0, 60.0, 241)
    shape, mean = (each.ravel() for each in np.meshgrid(shapes, grid, indexing="ij"))
    by_group = []
    for n, published in PUBLISHED.values():
        density = density_of_release(shape, mean, n, published, clamped).reshape(40, -1)
        by_group.append(np.maximum(density, 0.0) * MEAN.pdf(grid))
    joint = np.einsum("si,sj->ij", *by_group)
    joint /= joint.sum()
    gap = grid[:, None] - grid[None, :]
    centre = float((joint * gap).sum())
    chance = float(joint[gap > 0].sum() + 0.5 * joint[gap == 0].sum())
    return centre, math.sqrt(float((joint * (gap - centre) ** 2).sum())), chance


@pytest.mark.long
def test_the_answer_is_that_of_quadrature(analysis, seed):
    """In seconds: chains would take minutes to tell how unequal incomes are."""
    run = nw.sample(analysis.model, analysis.release, draws=4_000, seed=seed)
    assert isinstance(run.sampler, nw.RejectionControl)
    assert (run.status, run.seed) == ("complete", seed)
    centre, spread, chance = quadrature()
    table = run.summary()
    row = table.loc["difference"]
    assert abs(row["mean"] - centre) < LIMIT * row["mcse"]
    assert row["sd"] == pytest.approx(spread, rel=0.1)
    assert abs(table.loc["helped", "mean"] - chance) < LIMIT * table.loc["helped", "mcse"]
    unclamped = quadrature(clamped=False)[0]
    assert abs(row["mean"] - unclamped) > LIMIT * row["mcse"]  # the clamping forgotten, it is seen
    again = nw.sample(analysis.model, analysis.release, run.sampler, draws=4_000, seed=seed)
    assert all(np.array_equal(again[name], run[name]) for name in run.draws)  # the chooser's pilot is the run's
