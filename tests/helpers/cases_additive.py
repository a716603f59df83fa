"""Cases of additive noise beyond the everyday mechanisms."""

from itertools import pairwise

import numpy as np
from mechanism_case import Case

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
