"""Cases of the everyday mechanisms; their scales and budgets are tested further in `test_mechanisms.py`."""

import numpy as np
from mechanism_case import Case

import noisewise as nw


def near(centre, spread):
    return lambda rng, size: np.append(centre + spread * rng.standard_cauchy(size - 2), [1e300, -1e300])


def whole(centre, spread):
    return lambda rng, size: np.append(centre + np.round(spread * rng.standard_normal(size - 2)), [1e15, -1e15])


CASES = [
    Case(
        "laplace",
        nw.Laplace(scale=2.0),
        3.25,
        near(3.0, 2.0),
        attains=lambda released: released,
        pieces=((-57.0, 3.25), (3.25, 63.0)),
        wrong=nw.Laplace(scale=2.06),
    ),
    Case(
        "gaussian",
        nw.Gaussian(scale=1.5),
        -7.75,
        near(-7.0, 2.0),
        attains=lambda released: released,
        pieces=((-20.0, -7.75), (-7.75, 5.0)),
        wrong=nw.Gaussian(scale=1.53),
    ),
    Case(
        "discrete-laplace",
        nw.DiscreteLaplace(scale=3.0),
        4,
        whole(4, 5),
        attains=lambda released: released,
        points=np.arange(-96, 105),
        wrong=nw.DiscreteLaplace(scale=3.1),
    ),
    Case(
        "discrete-gaussian",
        nw.DiscreteGaussian(scale=2.5),
        -3,
        whole(-3, 4),
        attains=lambda released: released,
        points=np.arange(-30, 25),
        wrong=nw.DiscreteGaussian(scale=2.56),
    ),
    Case(
        "exact",
        nw.Exact(),
        5.0,
        lambda rng, size: np.append(rng.integers(0, 9, size - 1), 5.0),
        attains=lambda released: released,
        points=np.arange(0.0, 9.0),
        wrong=nw.DiscreteLaplace(scale=0.2),
    ),
]
