"""Posteriors under additive noise beyond the everyday mechanisms, by enumeration of the confidential counts.

The noise's densities are written out here once more, by other routes than the library's.
"""

import numpy as np
import numpyro.distributions as dist
from scipy import integrate, optimize, stats
from targets import Target, _beta_variance, _mixture, _moments, _normalise

import noisewise as nw
from noisewise.mechanisms.generalized_cauchy import GeneralizedCauchy
from noisewise.mechanisms.knorm import KNorm
from noisewise.mechanisms.multivariate_gaussian import MultivariateGaussian
from noisewise.mechanisms.staircase import Staircase
from noisewise.mechanisms.truncated_laplace import TruncatedLaplace
from noisewise.mechanisms.tulap import Tulap

# One count: Beta-Binomial, 30 trials --------------------------------------------------------------------------------


def _count(mechanism, released):
    def problem():
        model = nw.Model(prior={"p": dist.Beta(2.0, 3.0)}, statistics={"yes": lambda p: dist.Binomial(30, p)})
        return model, nw.Release(yes=mechanism.released(released))

    return problem


def _count_solution(log_noise, released):
    def solution():
        s = np.arange(31)
        with np.errstate(divide="ignore"):
            log_joint = stats.betabinom.logpmf(s, 30, 2.0, 3.0) + log_noise(released - s)
        return _mixture(log_joint, s, (2.0 + s) / 35.0, _beta_variance(2.0 + s, 33.0 - s), "p", "yes")

    return solution


def _log_cauchy(z, power=3.0, scale=2.0):
    mass = 2 * integrate.quad(lambda u: 1 / (1 + u**power), 0, np.inf, epsabs=1e-12)[0]
    return -np.log(mass * scale * (1 + np.abs(z / scale) ** power))


def _log_staircase(z, epsilon=0.6, width=2.0):
    """Heights by counting edges; the normaliser by adding up the steps."""
    gamma = 1 / (1 + np.exp(epsilon / 2))
    edges = width * (np.arange(200) + gamma)
    heights = np.exp(-epsilon * np.arange(201))
    mass = 2 * np.sum(heights[:-1] * np.diff(edges, prepend=0.0))
    return np.log(heights[np.searchsorted(edges, np.abs(z), side="right")] / mass)


def _log_tulap(z, epsilon=0.7, delta=0.03, width=1.5):
    """Discrete Laplace plus uniform noise, cut where its distribution function is q / 2."""
    b = np.exp(-epsilon)
    q = 2 * delta * b / (1 - b + 2 * delta * b)
    k = np.arange(-400, 401)
    law = (1 - b) / (1 + b) * b ** np.abs(k)

    def cdf(x):
        return np.sum(law * np.clip(x - k + 0.5, 0.0, 1.0))

    low = optimize.brentq(lambda x: cdf(x) - q / 2, -300.0, 0.0, xtol=1e-13)
    u = np.asarray(z) / width
    density = (1 - b) / (1 + b) * b ** np.abs(np.round(u)) / (1 - q) / width
    return np.log(np.where(np.abs(u) <= -low, density, 0.0))


def _log_truncated(z, scale=2.0, bound=4.5):
    law = stats.laplace(scale=scale)
    inside = law.cdf(bound) - law.cdf(-bound)
    return np.where(np.abs(z) <= bound, law.logpdf(z) - np.log(inside), -np.inf)


# A table of three cells: Dirichlet-multinomial, 15 records ----------------------------------------------------------

RELEASED = np.array([7.3, 2.2, 5.9])
COVARIANCE = np.array([[2.0, -0.6, 0.0], [-0.6, 1.0, 0.3], [0.0, 0.3, 3.0]])
SHEAR = np.array([[1.0, 0.4, 0.0], [0.0, 0.8, -0.3], [0.2, 0.0, 1.1]])


def _table(mechanism):
    def problem():
        model = nw.Model(
            prior={"share": dist.Dirichlet(np.array([1.0, 2.0, 3.0]))},
            statistics={"cells": lambda share: dist.Multinomial(15, share)},
        )
        return model, nw.Release(cells=mechanism.released(RELEASED))

    return problem


def _table_solution(log_noise):
    def solution():
        alpha = np.array([1.0, 2.0, 3.0])
        cells = np.array([(i, j, 15 - i - j) for i in range(16) for j in range(16 - i)])
        weight, log_evidence = _normalise(
            stats.dirichlet_multinomial.logpmf(cells, alpha, 15) + log_noise(RELEASED - cells)
        )
        shape = alpha + cells
        total = shape.sum(axis=1, keepdims=True)
        variance = shape * (total - shape) / (total**2 * (total + 1))
        found = _moments(weight, {"share": (shape / total, variance), "cells": (cells, 0 * cells)})
        return found | {"log_evidence": log_evidence}

    return solution


def _log_cauchy_entries(z):
    return sum(
        _log_cauchy(z[:, i], power, scale) for i, (power, scale) in enumerate([(2.0, 0.8), (4.0, 1.5), (3.0, 2)])
    )


def _log_laplace_entries(z):
    return stats.laplace.logpdf(z, scale=1.2).sum(axis=1)


def _log_ball(z):
    """exp(-|z| / 0.9) over all space: 4 pi times the integral of r^2 exp(-r / 0.9)."""
    return -np.sqrt((z**2).sum(axis=1)) / 0.9 - np.log(4 * np.pi * 2 * 0.9**3)


def _log_cube(z):
    """The unit cube has volume 8; times p!."""
    return -np.abs(z).max(axis=1) / 1.3 - np.log(8 * 6 * 1.3**3)


def _log_ellipsoid(z):
    return _log_ball(z @ SHEAR.T) + np.log(abs(np.linalg.det(SHEAR)))


def _log_parallelepiped(z):
    return _log_cube(z @ SHEAR.T) + np.log(abs(np.linalg.det(SHEAR)))


COUNTS = [
    ("generalized-cauchy", GeneralizedCauchy(power=3.0, scale=2.0), 17.4, _log_cauchy),
    ("staircase", Staircase(epsilon=0.6, sensitivity=2.0), 17.4, _log_staircase),
    ("tulap", Tulap(epsilon=0.7, delta=0.03, sensitivity=1.5), 17.4, _log_tulap),
    ("truncated-laplace", TruncatedLaplace(scale=2.0, bound=4.5), 17.4, _log_truncated),
]
TABLES = [
    (
        "generalized-cauchy-entries",
        GeneralizedCauchy(power=[2.0, 4.0, 3.0], scale=[0.8, 1.5, 2.0]),
        _log_cauchy_entries,
    ),
    ("multivariate-gaussian", MultivariateGaussian(COVARIANCE), stats.multivariate_normal(cov=COVARIANCE).logpdf),
    ("knorm-l1", KNorm("l1", scale=1.2, dimension=3), _log_laplace_entries),
    ("knorm-l2", KNorm("l2", scale=0.9, dimension=3), _log_ball),
    ("knorm-linf", KNorm("linf", scale=1.3, dimension=3), _log_cube),
    ("knorm-ellipsoid", KNorm("ellipsoid", scale=0.9, matrix=SHEAR), _log_ellipsoid),
    ("knorm-polytope", KNorm("polytope", scale=1.3, matrix=SHEAR), _log_parallelepiped),
]
TARGETS = [
    *(
        Target(name, _count(mechanism, released), _count_solution(log_noise, released), draws=20_000)
        for name, mechanism, released, log_noise in COUNTS
    ),
    *(
        Target(name, _table(mechanism), _table_solution(log_noise), draws=40_000)
        for name, mechanism, log_noise in TABLES
    ),
]
