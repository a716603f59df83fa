"""Additive noise beyond the everyday mechanisms.

The targets' densities are written out here once more, by other routes than the library's.
"""

from itertools import pairwise

import numpy as np
import numpyro.distributions as dist
from mechanism_case import Case
from mutant import Mutant
from privacy_audit import PLANE, cloud, pair_of, plane
from scipy import integrate, optimize, stats
from targets import Target, _beta_variance, _mixture, _moments, _normalise

import noisewise as nw
from noisewise.mechanisms.generalized_cauchy import GeneralizedCauchy
from noisewise.mechanisms.knorm import KNorm
from noisewise.mechanisms.multivariate_gaussian import MultivariateGaussian
from noisewise.mechanisms.staircase import Staircase
from noisewise.mechanisms.truncated_laplace import TruncatedLaplace
from noisewise.mechanisms.tulap import Tulap


def near(centre, spread):
    return lambda rng, size: np.append(centre + spread * rng.standard_cauchy(size - 2), [1e300, -1e300])


def around(centre, spread):
    """Vectors about a centre, with rows at the ends of floating point."""

    def search(rng, size):
        rows = centre + spread * rng.standard_cauchy((size - 3, len(centre)))
        ends = np.array([np.full(len(centre), 1e300), -1e300 * np.sign(centre), np.resize([1e308, 0.0], len(centre))])
        return np.concatenate([rows, ends])

    return search


def same(released):
    return released


def pieces(centre, edges):
    """Intervals between consecutive edges, on both sides of the centre."""
    cuts = centre + np.concatenate([-np.asarray(edges)[:0:-1], edges])
    return tuple(pairwise(cuts))


def staircase_edges(epsilon, sensitivity, gamma):
    steps = np.arange(np.ceil(30.0 / epsilon))
    return sensitivity * np.concatenate([[0.0], np.ravel(np.column_stack([steps + gamma, steps + 1.0]))])


def tulap_bound(epsilon, delta):
    """Where the noise ends, by adding up the steps of the density."""
    b = np.exp(-epsilon)
    left, step, bound = 0.5, 0, 0.0
    while True:
        height = (1 - b + 2 * delta * b) / (1 + b) * b**step
        width = 0.5 if step == 0 else 1.0
        if left <= height * width:
            return bound + left / height
        left, step, bound = left - height * width, step + 1, bound + width


COVARIANCE = np.array([[4.0, 1.5, 0.0], [1.5, 1.0, -0.3], [0.0, -0.3, 2.0]])
CENTRE = np.array([3.0, -1.25, 40.0])
SQUARE = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.5], [0.3, 0.0, -1.0]])
SIDES = np.array([[1.0, 0.0], [0.4, 1.0], [-0.5, 0.8]])
CUT = 1.5 * tulap_bound(0.8, 0.02)

CASES = [
    Case(
        "generalized-cauchy",
        GeneralizedCauchy(power=4.0, scale=1.5),
        -7.75,
        near(-7.0, 2.0),
        attains=same,
        pieces=pieces(-7.75, np.append(0.0, np.geomspace(0.5, 2e4, 24))),
        wrong=GeneralizedCauchy(power=4.0, scale=1.53),
    ),
    Case(
        "generalized-cauchy-power",
        GeneralizedCauchy(power=3.0, scale=0.5),
        2.0,
        near(2.0, 2.0),
        attains=same,
        pieces=pieces(2.0, np.append(0.0, np.geomspace(0.2, 1e5, 30))),
        wrong=GeneralizedCauchy(power=3.1, scale=0.5),
    ),
    Case(
        "staircase",
        Staircase(epsilon=0.7, sensitivity=2.0),
        3.25,
        near(3.0, 4.0),
        attains=same,
        pieces=pieces(3.25, staircase_edges(0.7, 2.0, 1.0 / (1.0 + np.exp(0.35)))),
        wrong=Staircase(epsilon=0.72, sensitivity=2.0),
    ),
    Case(
        "staircase-gamma",
        Staircase(epsilon=1.5, sensitivity=0.5, gamma=0.8),
        -3.0,
        near(-3.0, 1.0),
        attains=same,
        pieces=pieces(-3.0, staircase_edges(1.5, 0.5, 0.8)),
        wrong=Staircase(epsilon=1.5, sensitivity=0.5, gamma=0.77),
    ),
    Case(
        "tulap",
        Tulap(epsilon=0.8, delta=0.02, sensitivity=1.5),
        4.0,
        near(4.0, 3.0),
        attains=same,
        pieces=pieces(4.0, np.append(1.5 * np.append(0.0, np.arange(0.5, CUT / 1.5)), CUT)),
        wrong=Tulap(epsilon=0.8, delta=0.025, sensitivity=1.5),
    ),
    Case(
        "tulap-pure",
        Tulap(epsilon=0.8),
        -0.6,
        near(0.0, 3.0),
        attains=same,
        pieces=pieces(-0.6, np.append(0.0, np.arange(0.5, 40.0))),
        wrong=Tulap(epsilon=0.83),
    ),
    Case(
        "truncated-laplace",
        TruncatedLaplace(scale=2.0, bound=5.0),
        3.25,
        near(3.0, 2.0),
        attains=same,
        pieces=pieces(3.25, [0.0, 5.0]),
        wrong=TruncatedLaplace(scale=2.1, bound=5.0),
    ),
    Case(
        "truncated-laplace-budget",
        TruncatedLaplace(epsilon=1.0, delta=1e-3, sensitivity=1.0),
        -2.0,
        near(-2.0, 2.0),
        attains=same,
        pieces=pieces(-2.0, [0.0, np.log(1.0 + (np.e - 1.0) / 2e-3)]),
        wrong=TruncatedLaplace(epsilon=1.03, delta=1e-3, sensitivity=1.0),
    ),
    Case(
        "multivariate-gaussian",
        MultivariateGaussian(COVARIANCE),
        CENTRE,
        around(CENTRE, 2.0),
        attains=same,
        nearby=MultivariateGaussian(0.6 * COVARIANCE - 0.1 * np.eye(3)),
        wrong=MultivariateGaussian(COVARIANCE * np.where(np.eye(3), 1.0, 0.9)),
    ),
    Case(
        "knorm-l1",
        KNorm("l1", dimension=3, epsilon=0.5, sensitivity=1.0),
        CENTRE,
        around(CENTRE, 3.0),
        attains=same,
        nearby=KNorm("linf", scale=0.6, dimension=3),
        wrong=KNorm("l1", scale=2.06, dimension=3),
    ),
    Case(
        "knorm-l2",
        KNorm("l2", scale=1.5, dimension=3),
        CENTRE,
        around(CENTRE, 3.0),
        attains=same,
        nearby=KNorm("ellipsoid", scale=1.0, matrix=np.diag([1.0, 1.5, 1.2])),
        wrong=KNorm("l2", scale=1.54, dimension=3),
    ),
    Case(
        "knorm-linf",
        KNorm("linf", scale=1.5, dimension=2),
        CENTRE[:2],
        around(CENTRE[:2], 3.0),
        attains=same,
        nearby=KNorm("l1", scale=1.2, dimension=2),
        wrong=KNorm("linf", scale=1.55, dimension=2),
    ),
    Case(
        "knorm-ellipsoid",
        KNorm("ellipsoid", scale=1.5, matrix=SQUARE),
        CENTRE,
        around(CENTRE, 3.0),
        attains=same,
        nearby=KNorm("ellipsoid", scale=1.2, matrix=1.1 * SQUARE + 0.1 * np.eye(3)),
        wrong=KNorm("ellipsoid", scale=1.5, matrix=SQUARE + 0.05 * np.eye(3)),
    ),
    Case(
        "knorm-polytope",
        KNorm("polytope", scale=1.5, matrix=SIDES),
        CENTRE[:2],
        around(CENTRE[:2], 3.0),
        attains=same,
        nearby=KNorm("l1", scale=0.7, dimension=2),
        wrong=KNorm("polytope", scale=1.5, matrix=1.03 * SIDES),
    ),
]


# End to end: problems with their exact answers ----------------------------------------------------------------------

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
TABLE_COVARIANCE = np.array([[2.0, -0.6, 0.0], [-0.6, 1.0, 0.3], [0.0, 0.3, 3.0]])
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
    (
        "multivariate-gaussian",
        MultivariateGaussian(TABLE_COVARIANCE),
        stats.multivariate_normal(cov=TABLE_COVARIANCE).logpdf,
    ),
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


# Worst neighbours of every budget -------------------------------------------------------------------------------------


def audits(audit):
    """Tell `audit` of every budget: name, mechanism, pairs of laws."""
    for epsilon in (0.05, 0.7, 5.0):
        mechanism = Staircase(epsilon=epsilon, sensitivity=2.0)
        steps = 2.0 * np.arange(-int(40 / epsilon) - 3, int(40 / epsilon) + 4)
        edges = np.unique(np.concatenate([steps, steps + 2.0 * mechanism.gamma, steps - 2.0 * mechanism.gamma]))
        shifts = [
            pair_of(mechanism, 0.0, d, edges=np.union1d(edges, edges + d), panels=1) for d in (0.3, 1.0, 1.9, 2.0)
        ]
        audit(f"staircase-{epsilon}", mechanism, *shifts)
        for delta in (0.0, 1e-6, 0.1):
            mechanism = Tulap(epsilon=epsilon, delta=delta, sensitivity=2.0)
            ends = [2.0 * float(mechanism._bound(np))] if delta else []
            steps = 2.0 * np.arange(-int(40 / epsilon) - 3, int(40 / epsilon) + 4) + 1.0
            edges = np.concatenate([steps, ends, np.negative(ends)])
            shifts = [pair_of(mechanism, 0.0, d, edges=np.union1d(edges, edges + d), panels=1) for d in (0.3, 1.0, 2.0)]
            audit(f"tulap-{epsilon}-{delta}", mechanism, *shifts)
        for delta in (1e-6, 0.1, 0.5):
            mechanism = TruncatedLaplace(epsilon=epsilon, delta=delta, sensitivity=2.0)
            ends = np.array([-mechanism.bound, 0.0, mechanism.bound])
            shifts = [pair_of(mechanism, 0.0, d, edges=np.union1d(ends, ends + d)) for d in (0.5, 2.0)]
            audit(f"truncated-laplace-{epsilon}-{delta}", mechanism, *shifts)

    for norm, differences in {
        "l1": ([0.6, 1.4], [-2.0, 0.0]),
        "l2": ([1.2, 1.6], [2.0, 0.0]),
        "linf": ([2.0, -2.0], [0.3, 2.0]),
    }.items():
        mechanism = KNorm(norm, dimension=2, epsilon=0.7, sensitivity=2.0)
        audit(f"knorm-{norm}", mechanism, *cloud(mechanism, *differences))
    mechanism = KNorm("ellipsoid", matrix=[[1.0, 0.5], [0.0, 2.0]], epsilon=0.7, sensitivity=2.0)
    audit("knorm-ellipsoid", mechanism, *cloud(mechanism, [2.0, 0.0], [-0.5, 1.0]))
    mechanism = KNorm("polytope", matrix=[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], epsilon=0.7, sensitivity=2.0)
    audit("knorm-polytope", mechanism, *cloud(mechanism, [1.0, 1.0], [2.0, -2.0]))

    for budget in (dict(epsilon=1.0, delta=1e-3), dict(rho=0.3), dict(mu=0.8)):
        h = nw.Gaussian(**budget, sensitivity=1.0).scale
        ends = np.multiply([-8 * h - 1, 8 * h + 1] if "rho" not in budget else [-22.0, 22.0], 1.5)
        settings = dict(grid=plane(ends, ends, panels=24), orders=(1.01, 1.5, 2.0, 5.0, 10.0))
        shape = np.array([[1.0, 0.6], [0.6, 2.0]])
        mechanism = MultivariateGaussian(shape=shape, **budget, sensitivity=1.0)
        difference = np.linalg.cholesky(shape) @ np.array([0.6, 0.8])
        pair = pair_of(mechanism, [0.0, 0.0], difference, **settings)
        audit(f"multivariate-gaussian-{'-'.join(budget)}", mechanism, pair, slack=PLANE)


# Mistakes that the tests must catch -----------------------------------------------------------------------------------

LAWS = "mechanisms/test_mechanisms.py"
ADDITIVE = "mechanisms/test_additive.py"
CATALOGUE = "mechanisms/test_catalogue.py"
PROCESSED = "mechanisms/test_processed.py"

MUTANTS = {
    "the supremum of additive noise is taken at one, not at zero": Mutant(
        "mechanisms/additive.py",
        "return self.noise_log_prob(namespace(released).zeros_like(released, dtype=float))",
        "return self.noise_log_prob(namespace(released).ones_like(released, dtype=float))",
        f"{LAWS}::test_log_sup_is_never_exceeded",
    ),
    "the probability of an interval of whole numbers leaves out its first": Mutant(
        "mechanisms/additive.py",
        "return log_difference(xp, self._log_cdf(xp, last), self._log_cdf(xp, first - 1.0))",
        "return log_difference(xp, self._log_cdf(xp, last), self._log_cdf(xp, first))",
        f"{PROCESSED}::test_nests_on_the_integers_match_enumeration",
    ),
    "heavy-tailed noise has the wrong exponent in its sampler": Mutant(
        "mechanisms/generalized_cauchy.py",
        "(1.0 - rng.random(shape)) ** (-1.0 / (power - 1.0))",
        "(1.0 - rng.random(shape)) ** (-1.0 / power)",
        f"{ADDITIVE}::test_draws_follow_the_distribution_function",
    ),
    "the constant of heavy-tailed noise forgets its power": Mutant(
        "mechanisms/generalized_cauchy.py",
        "return xp.log(self.power * xp.sin(math.pi * angle) / math.pi)",
        "return xp.log(2.0 * xp.sin(math.pi * angle) / math.pi) + 0.0 * self.power",
        f"{ADDITIVE}::test_distribution_function_is_the_integral_of_the_density {CATALOGUE}::test_mass_is_one",
    ),
    "the radius of K-norm noise has one degree too few": Mutant(
        "mechanisms/knorm.py",
        "rng.standard_gamma(self.dimension + 1.0, (*shape[:-1], 1))",
        "rng.standard_gamma(self.dimension, (*shape[:-1], 1))",
        f"{ADDITIVE}::test_knorm_radius_is_gamma_and_directions_are_of_the_ball",
    ),
    "the volume of an ellipsoid forgets its matrix": Mutant(
        "mechanisms/knorm.py",
        "return log_ball if matrix is None else log_ball - float(np.linalg.slogdet(matrix)[1])",
        "return log_ball",
        f"{ADDITIVE}::test_vector_densities_have_mass_one {CATALOGUE}::test_mass_is_one",
    ),
    "noise of many normals is coloured with the transposed factor": Mutant(
        "mechanisms/multivariate_gaussian.py",
        "return rng.standard_normal(shape) @ np.linalg.cholesky(self.covariance).T",
        "return rng.standard_normal(shape) @ np.linalg.cholesky(self.covariance)",
        f"{ADDITIVE}::test_multivariate_gaussian_draws_have_the_covariance",
    ),
    "staircase noise is as likely on both parts of a step": Mutant(
        "mechanisms/staircase.py",
        "first = rng.random(shape) * self._width(np) < gamma",
        "first = rng.random(shape) < gamma",
        f"{ADDITIVE}::test_draws_follow_the_distribution_function",
    ),
    "truncated Laplace noise is not normalised anew": Mutant(
        "mechanisms/truncated_laplace.py",
        "value = -xp.abs(z) / self.scale - xp.log(2.0 * self.scale) - self._log_within(xp, self.bound)",
        "value = -xp.abs(z) / self.scale - xp.log(2.0 * self.scale)",
        f"{ADDITIVE}::test_distribution_function_is_the_integral_of_the_density",
    ),
    "the bound of truncated Laplace noise is made for 2 delta": Mutant(
        "mechanisms/truncated_laplace.py",
        "math.log(-math.expm1(-epsilon)) - math.log(2.0 * delta)",
        "math.log(-math.expm1(-epsilon)) - math.log(4.0 * delta)",
        f"{ADDITIVE}::test_truncated_laplace_attains_its_budget",
    ),
    "the height of Tulap noise forgets delta": Mutant(
        "mechanisms/tulap.py",
        "return xp.log(-xp.expm1(-xp.asarray(self.epsilon)) + 2.0 * self.delta * b) - xp.log1p(b)",
        "return xp.log(-xp.expm1(-xp.asarray(self.epsilon)) + self.delta * b) - xp.log1p(b)",
        f"{ADDITIVE}::test_tulap_distribution_function_is_the_published_one "
        f"{ADDITIVE}::test_distribution_function_is_the_integral_of_the_density",
    ),
}
