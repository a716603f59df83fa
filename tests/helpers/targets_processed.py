"""Posteriors given post-processed releases, by enumeration of counts or by closed forms for normal statistics."""

import numpy as np
import numpyro.distributions as dist
from scipy import special, stats
from targets import Target, _log_discrete_laplace, _mixture, _moments, _normalise, count_model

import noisewise as nw
from noisewise.mechanisms.affine import Affine
from noisewise.mechanisms.clipped import Clipped
from noisewise.mechanisms.product import Product
from noisewise.mechanisms.projected import Projected
from noisewise.mechanisms.rounded import Rounded
from noisewise.mechanisms.thresholded import Thresholded

COUNT = np.arange(301)


def count(name, mechanism, released, log_noise, alpha=25.0):
    """theta ~ Gamma(alpha, 1), a Poisson count, a release; `log_noise` is log P(release | count), by hand."""

    def solve():
        with np.errstate(divide="ignore"):
            log_joint = stats.nbinom.logpmf(COUNT, alpha, 0.5) + log_noise(COUNT)
        return _mixture(log_joint, COUNT, (alpha + COUNT) / 2.0, (alpha + COUNT) / 4.0, "theta", "count")

    return Target(name, lambda: (count_model(alpha), nw.Release(count=mechanism.released(released))), solve)


def laplace_between(low, high, scale):
    return lambda s: np.log(stats.laplace.cdf(high, s, scale) - stats.laplace.cdf(low, s, scale))


def discrete_sum(values, scale):
    """log P(s + z among `values`), z discrete Laplace."""
    return lambda s: special.logsumexp(_log_discrete_laplace(np.asarray(values)[:, None] - s, scale), axis=0)


def absent(s):
    """Withheld below 4, and for certain where the count is 0."""
    return np.where(s == 0, 0.0, discrete_sum(np.arange(-200, 4), 2.0)(s))


# A normal statistic: mu ~ N(0, 1), s ~ N(mu, 1), noise z ~ N(0, 1); x = s + z has variance 3 -------------------------


def _normal_problem(mechanism, released):
    model = nw.Model(prior={"mu": dist.Normal(0.0, 1.0)}, statistics={"s": lambda mu: dist.Normal(mu, 1.0)})
    return model, nw.Release(s=mechanism.released(released))


def _normal_solution(low, high):
    """Given low <= x < high: mu and s regress on x with slopes 1/3 and 2/3."""
    root = np.sqrt(3.0)
    cut = stats.truncnorm(low / root, high / root, scale=root)
    found = {}
    for name, slope, variance in (("mu", 1 / 3, 1.0), ("s", 2 / 3, 2.0)):
        found[name] = (slope * cut.mean(), variance - 3 * slope**2 + slope**2 * cut.var())
    mass = stats.norm.cdf(high, 0, root) - stats.norm.cdf(low, 0, root)
    return found | {"log_evidence": float(np.log(mass))}


# A table with a known total -------------------------------------------------------------------------------------------

ALPHA = np.array([1.0, 2.0, 3.0])
CELLS = np.array([(i, j, 15 - i - j) for i in range(16) for j in range(16 - i)])


def _table_model():
    return nw.Model(
        prior={"share": dist.Dirichlet(ALPHA)}, statistics={"cells": lambda share: dist.Multinomial(15, share)}
    )


def _table_solution(log_noise):
    weight, log_evidence = _normalise(stats.dirichlet_multinomial.logpmf(CELLS, ALPHA, 15) + log_noise(CELLS))
    shape = ALPHA + CELLS
    total = shape.sum(axis=1, keepdims=True)
    variance = shape * (total - shape) / (total**2 * (total + 1))
    found = _moments(weight, {"share": (shape / total, variance), "cells": (CELLS, 0 * CELLS)})
    return found | {"log_evidence": log_evidence}


def _projected_problem():
    # The second row says the same as the first: it is dropped.
    mechanism = Projected(1.5, [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]], [15.0, 30.0])
    return _table_model(), nw.Release(cells=mechanism.released([7.75, 1.5, 5.75]))


def _projected_noise(cells):
    """Two coordinates on an orthonormal basis of the plane, each with normal noise."""
    basis = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
    return stats.norm.logpdf(np.array([7.75, 1.5, 5.75]) @ basis.T, cells @ basis.T, 1.5).sum(axis=1)


def _product_problem():
    parts = [nw.Laplace(scale=1.0), Thresholded(nw.DiscreteLaplace(scale=2.0), 3), Rounded(nw.Gaussian(scale=1.5), 2.0)]
    return _table_model(), nw.Release(cells=Product(parts).released([7.25, "suppressed", 6.0]))


def _product_noise(cells):
    first, second, third = cells.T
    edges = stats.norm.cdf([[7.0], [5.0]], third, 1.5)
    return (
        stats.laplace.logpdf(7.25, first, 1.0)
        + discrete_sum(np.arange(-200, 3), 2.0)(second)
        + np.log(edges[0] - edges[1])
    )


LAPLACE, DISCRETE = nw.Laplace(scale=5.0), nw.DiscreteLaplace(scale=2.0)

TARGETS = [
    count("rounded", Rounded(LAPLACE, 10.0), 40.0, laplace_between(35.0, 45.0, 5.0)),
    count("rounded-integers", Rounded(DISCRETE, 4.0), 28, discrete_sum([26, 27, 28, 29], 2.0)),
    count("clipped-at-an-end", Clipped(LAPLACE, 0.0, 30.0), 30.0, laplace_between(30.0, np.inf, 5.0)),
    count("clipped-inside", Clipped(LAPLACE, 0.0, 30.0), 27.5, lambda s: stats.laplace.logpdf(27.5, s, 5.0)),
    count("suppressed", Thresholded(LAPLACE, 22.0), "suppressed", laplace_between(-np.inf, 22.0, 5.0)),
    count("suppressed-or-absent", Thresholded(DISCRETE, 4, absent_when_zero=True), "suppressed", absent, alpha=2.0),
    count(
        "affine-of-clipped-of-rounded",  # 50 - 2 x at 10: x is 20 or clipped to it, from 17.5 or more before rounding
        Affine(Clipped(Rounded(LAPLACE, 5.0), 0.0, 20.0), 50.0, -2.0),
        10.0,
        laplace_between(17.5, np.inf, 5.0),
    ),
    count("affine", Affine(LAPLACE, 1.0, -0.5), -13.0, lambda s: stats.laplace.logpdf(28.0, s, 5.0) + np.log(2.0)),
    Target(
        "normal-suppressed",
        lambda: _normal_problem(Thresholded(nw.Gaussian(scale=1.0), 0.75), "suppressed"),
        lambda: _normal_solution(-np.inf, 0.75),
    ),
    Target(
        "normal-rounded-of-affine",  # r = 1: 0.5 <= 0.25 - x < 1.5
        lambda: _normal_problem(Rounded(Affine(nw.Gaussian(scale=1.0), 0.25, -1.0), 1.0), 1.0),
        lambda: _normal_solution(-1.25, -0.25),
    ),
    Target("projected", _projected_problem, lambda: _table_solution(_projected_noise)),
    Target("product", _product_problem, lambda: _table_solution(_product_noise)),
]
