"""Cases of objective perturbation; one-dimensional laws and histograms are in `test_objective.py`."""

import numpy as np
from mechanism_case import Case

from noisewise.mechanisms.objective_perturbation import ObjectivePerturbation


def data(rng, rows, records, features, *, bound=1.0, label=None):
    """Data sets in the domain: interior points, points on its edge, and equal records."""
    x = rng.standard_normal((rows, records, features))
    x *= bound / np.linalg.norm(x, axis=-1, keepdims=True)
    x[: rows // 2] *= rng.uniform(0, 1, (rows // 2, records, 1))
    signs = rng.choice([-1.0, 1.0], (rows, records, 1))
    y = signs if label is None else label * signs * rng.uniform(0, 1, (rows, records, 1)) ** 0.2
    found = np.concatenate([x, y], axis=-1)
    found[-rows // 4 :] = found[-rows // 4 :, :1]
    return found


def domain(records, features, **bounds):
    return lambda rng, size: data(rng, size, records, features, **bounds)


def one(records, features, **bounds):
    return data(np.random.default_rng(7), 3, records, features, **bounds)[0]


LOGISTIC = dict(loss="logistic", n=6)
LINEAR = dict(loss="linear", n=5, feature_bound=2.0, label_bound=3.0)

# `nearby` has less noise and more ridge, so that its density falls faster; another ridge makes another Hessian, so that
# the determinant does not cancel in the ratio.
CASES = [
    Case(
        "objective-logistic-laplace",
        ObjectivePerturbation(2.0, ridge=1.0, **LOGISTIC),
        one(6, 2),
        domain(6, 2),
        nearby=ObjectivePerturbation(1.6, ridge=1.3, **LOGISTIC),
        wrong=ObjectivePerturbation(2.1, ridge=1.0, **LOGISTIC),
        draws=60_000,
    ),
    Case(
        "objective-logistic-gaussian",
        ObjectivePerturbation(1.5, ridge=0.8, noise="gaussian", **LOGISTIC),
        one(6, 3),
        domain(6, 3),
        nearby=ObjectivePerturbation(1.2, ridge=1.0, noise="gaussian", **LOGISTIC),
        wrong=ObjectivePerturbation(1.6, ridge=0.8, noise="gaussian", **LOGISTIC),
        draws=60_000,
    ),
    Case(
        "objective-linear-laplace",
        ObjectivePerturbation(2.0, ridge=1.0, **LINEAR),
        one(5, 2, bound=2.0, label=3.0),
        domain(5, 2, bound=2.0, label=3.0),
        nearby=ObjectivePerturbation(1.6, ridge=1.3, **LINEAR),
        wrong=ObjectivePerturbation(2.0, ridge=1.5, **LINEAR),
        draws=60_000,
    ),
    Case(
        "objective-linear-gaussian",
        ObjectivePerturbation(3.0, ridge=1.0, noise="gaussian", **LINEAR),
        one(5, 1, bound=2.0, label=3.0),
        domain(5, 1, bound=2.0, label=3.0),
        nearby=ObjectivePerturbation(2.4, ridge=1.3, noise="gaussian", **LINEAR),
        wrong=ObjectivePerturbation(3.15, ridge=1.0, noise="gaussian", **LINEAR),
        draws=60_000,
    ),
]
