"""Cases of post-processed releases, projected noise and products; nests are tested further in `test_processed.py`."""

import numpy as np
from mechanism_case import Case

import noisewise as nw
from noisewise.mechanisms.affine import Affine
from noisewise.mechanisms.clipped import Clipped
from noisewise.mechanisms.product import Product
from noisewise.mechanisms.projected import Projected
from noisewise.mechanisms.rounded import Rounded
from noisewise.mechanisms.thresholded import Thresholded

MATRIX, TOTALS = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]]), np.array([3.5, 7.0])
VECTOR = np.array([1.5, -2.0, 4.0, 3.0])


def near(centre, spread):
    return lambda rng, size: np.append(centre + spread * rng.standard_cauchy(size - 2), [1e300, -1e300])


def whole(centre, spread):
    return lambda rng, size: np.append(centre + np.round(spread * rng.standard_normal(size - 2)), [1e15, -1e15])


def beyond(low, high, inside=lambda released: released):
    """Far out for a released value at an end; `inside` otherwise."""
    return lambda released: -1e4 if released <= low else 1e4 if released >= high else inside(released)


def on_the_set(rng, size):
    """Vectors that meet the totals, some far out."""
    null = np.linalg.svd(MATRIX)[2][2:]
    away = np.append(rng.standard_cauchy((size - 2, 2)), [[1e150, 0.0], [1e5, -1e150]], axis=0)
    return VECTOR + away @ null


def mixed_rows(rng, size):
    rows = [3.25, 4.0, 1.5] + [2.0, 0.0, 2.0] * rng.standard_cauchy((size, 3))
    rows[:, 1] += np.round(4 * rng.standard_normal(size))
    return rows


def three_parts(first, second, third):
    return Product(
        [nw.Laplace(scale=first), nw.DiscreteLaplace(scale=second), Clipped(nw.Gaussian(scale=third), 0.0, 4.0)]
    )


# Rounding half down, by way of the negative: only ties tell it from half up.
half_down = Affine(Rounded(Affine(nw.DiscreteLaplace(scale=3.0), factor=-1.0), 4.0), factor=-1.0)

CASES = [
    Case(
        "rounded",
        Rounded(nw.Laplace(epsilon=0.5, sensitivity=1.0), 1.5),
        3.25,
        near(3.0, 2.0),
        attains=lambda released: released,
        points=1.5 * np.arange(-40, 46),
        wrong=Rounded(nw.Laplace(scale=2.06), 1.5),
    ),
    Case(
        "rounded-integers-with-ties",
        Rounded(nw.DiscreteLaplace(scale=3.0), 4.0),
        3,
        whole(3, 5),
        attains=lambda released: released,
        points=4.0 * np.arange(-30, 31),
        wrong=half_down,
    ),
    Case(
        "rounded-clipped",
        Rounded(Clipped(nw.Laplace(scale=2.0), -1.0, 2.5), 1.0),
        0.3,
        near(0.0, 2.0),
        attains=beyond(-1.0, 3.0),
        points=np.arange(-1.0, 4.0),
        wrong=Rounded(Clipped(nw.Laplace(scale=2.0), -1.0, 2.4), 1.0),
    ),
    Case(
        "clipped",
        Clipped(nw.Laplace(scale=2.0), 0.0, 10.0),
        3.25,
        near(3.0, 2.0),
        attains=beyond(0.0, 10.0),
        pieces=((0.0, 3.25), (3.25, 10.0)),
        atoms=(0.0, 10.0),
        wrong=Clipped(nw.Laplace(scale=2.06), 0.0, 10.0),
    ),
    Case(
        "clipped-integers",
        Clipped(nw.DiscreteLaplace(scale=3.0), low=0.0),
        4,
        whole(4, 5),
        attains=beyond(0.0, np.inf),
        points=np.arange(0.0, 105.0),
        wrong=Clipped(nw.DiscreteLaplace(scale=3.0), low=-1.0),
    ),
    Case(
        "clipped-rounded",
        Clipped(Rounded(nw.Gaussian(scale=1.5), 1.0), -1.3, 2.0),
        0.3,
        near(0.0, 2.0),
        attains=beyond(-1.3, 2.0),
        points=np.array([-1.3, -1.0, 0.0, 1.0, 2.0]),
        wrong=Clipped(Rounded(nw.Gaussian(scale=1.5), 1.0), -1.0, 2.0),
    ),
    Case(
        "thresholded",
        Thresholded(nw.Gaussian(scale=1.5), 2.0),
        1.25,
        near(1.0, 2.0),
        attains=lambda released: -1e4 if np.isnan(released) else released,
        pieces=((2.0, 15.0),),
        atoms=(np.nan,),
        wrong=Thresholded(nw.Gaussian(scale=1.5), 2.05),
    ),
    Case(
        "thresholded-absent-when-zero",
        Thresholded(nw.DiscreteLaplace(scale=2.0), 4.0, absent_when_zero=True),
        3,
        whole(2, 3),
        attains=lambda released: 0 if np.isnan(released) else released,
        points=np.append(np.nan, np.arange(4.0, 70.0)),
        wrong=Thresholded(nw.DiscreteLaplace(scale=2.0), 5.0),
    ),
    Case(
        "thresholded-of-zero",
        Thresholded(nw.DiscreteLaplace(scale=2.0), 4.0, absent_when_zero=True),
        0,
        whole(2, 3),
        attains=lambda released: 0,
        points=np.append(np.nan, np.arange(4.0, 70.0)),
        wrong=Thresholded(nw.DiscreteLaplace(scale=2.0), 4.0),
    ),
    Case(
        "affine",
        Affine(nw.Laplace(scale=2.0), 1.0, -0.5),
        3.25,
        near(3.0, 2.0),
        attains=lambda released: (released - 1.0) / -0.5,
        pieces=((-31.0, -0.625), (-0.625, 29.0)),
        wrong=Affine(nw.Laplace(scale=2.0), 1.0, -0.515),
    ),
    Case(
        "affine-integers",
        Affine(nw.DiscreteGaussian(scale=2.5), 0.3, -0.1),
        -3,
        whole(-3, 4),
        attains=lambda released: np.round((released - 0.3) / -0.1),
        points=0.3 + -0.1 * np.arange(-30, 25),
        wrong=Affine(nw.DiscreteGaussian(scale=2.56), 0.3, -0.1),
    ),
    Case(
        "affine-clipped",
        Affine(Clipped(nw.Laplace(scale=2.0), 0.0, 10.0), 1.0, 2.0),
        3.25,
        near(3.0, 2.0),
        attains=beyond(1.0, 21.0, lambda released: (released - 1.0) / 2.0),
        pieces=((1.0, 7.5), (7.5, 21.0)),
        atoms=(1.0, 21.0),
        wrong=Affine(Clipped(nw.Laplace(scale=2.06), 0.0, 10.0), 1.0, 2.0),
    ),
    Case(
        "projected",
        Projected(2.0, MATRIX, TOTALS),
        VECTOR,
        on_the_set,
        attains=lambda released: released,
        nearby=Projected(1.0, MATRIX, TOTALS),
        wrong=Projected(2.06, MATRIX, TOTALS),
    ),
    Case(
        "product",
        three_parts(2.0, 3.0, 1.5),
        np.array([3.25, 4.0, 1.5]),
        mixed_rows,
        attains=lambda released: np.append(released[:2], beyond(0.0, 4.0)(released[2])),
        nearby=three_parts(1.2, 2.0, 1.0),
        wrong=three_parts(2.1, 3.0, 1.5),
    ),
]
