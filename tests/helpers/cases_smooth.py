"""Cases of noise whose scale is confidential; calibrations to smooth sensitivity are in `test_smooth.py`."""

from itertools import pairwise

import numpy as np
from cases_everyday import near
from mechanism_case import Case

import noisewise as nw
from noisewise.mechanisms import smooth
from noisewise.mechanisms.generalized_cauchy import GeneralizedCauchy
from noisewise.mechanisms.latent_scale import LatentScale


def heavy_pieces(centre, scale, reach):
    """Panels about a centre that grow with the distance, for tails that fall slowly."""
    steps = scale * np.concatenate([np.linspace(0.0, 4.0, 9), np.geomspace(5.0, reach, 60)])
    right = [(centre + a, centre + b) for a, b in pairwise(steps)]
    return tuple([(2 * centre - b, 2 * centre - a) for a, b in reversed(right)] + right)


CASES = [
    Case(
        "latent-scale-laplace",
        LatentScale(nw.Laplace(scale=2.0), "spread", 0.5),
        3.25,
        near(3.0, 2.0),
        inputs={"spread": 1.5},
        at_supremum={"spread": 0.2},
        attains=lambda released: released,
        pieces=((-87.0, 3.25), (3.25, 93.0)),
        wrong=LatentScale(nw.Laplace(scale=2.06), "spread", 0.5),
    ),
    Case(
        "latent-scale-at-its-bound",
        LatentScale(nw.Gaussian(scale=1.5), "spread", 2.0),
        -7.75,
        near(-7.0, 2.0),
        inputs={"spread": 1.2},
        at_supremum={"spread": 2.0},
        attains=lambda released: released,
        pieces=((-33.0, -7.75), (-7.75, 18.0)),
        wrong=LatentScale(nw.Gaussian(scale=1.5), "spread", 2.04),
    ),
    Case(
        "latent-scale-cauchy",
        smooth.cauchy(epsilon=2.0, power=4.0).latent("spread", 0.1),
        1.5,
        near(1.0, 2.0),
        inputs={"spread": 0.3},
        at_supremum={"spread": -4.0},
        attains=lambda released: released,
        pieces=heavy_pieces(1.5, 1.5, 1e4),
        wrong=LatentScale(GeneralizedCauchy(power=4.0, scale=5.2), "spread", 0.1),
    ),
    Case(
        "latent-scale-for-all-entries",
        LatentScale(nw.Laplace(scale=np.array([1.0, 2.0])), "spread", 0.5),
        np.array([3.25, -1.0]),
        lambda rng, size: near(3.0, 2.0)(rng, size)[:, None] * np.array([1.0, -0.5]),
        inputs={"spread": 1.5},
        at_supremum={"spread": 0.0},
        attains=lambda released: released,
        nearby=LatentScale(nw.Laplace(scale=np.array([0.95, 1.9])), "spread", 0.5),
        wrong=LatentScale(nw.Laplace(scale=np.array([1.03, 2.06])), "spread", 0.5),
    ),
    Case(
        "latent-scale-for-each-entry",
        LatentScale(nw.Gaussian(scale=1.0), "spread", np.array([0.5, 1.0])),
        np.array([3.25, -1.0]),
        lambda rng, size: near(3.0, 2.0)(rng, size)[:, None] * np.array([1.0, -0.5]),
        inputs={"spread": np.array([2.0, 0.1])},
        at_supremum={"spread": np.array([0.5, 0.2])},
        attains=lambda released: released,
        nearby=LatentScale(nw.Gaussian(scale=0.97), "spread", np.array([0.5, 1.0])),
        wrong=LatentScale(nw.Gaussian(scale=1.03), "spread", np.array([0.5, 1.0])),
    ),
]
