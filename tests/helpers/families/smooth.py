"""Noise whose scale is confidential; calibrations to smooth sensitivity are tested further in `test_smooth.py`.

Targets by enumeration over the value and its scale.
"""

from functools import cache
from itertools import pairwise, product

import numpy as np
import numpyro.distributions as dist
from mechanism_case import Case
from mutant import Mutant
from privacy_audit import pair_of
from scipy import special, stats
from targets import Target, _moments, _normalise

import noisewise as nw
from families.everyday import near
from noisewise import sensitivity
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


# End to end: problems with their exact answers ----------------------------------------------------------------------

# A count and a latent scale that share a parameter -------------------------------------------------------------------


def _latent_problem():
    model = nw.Model(
        prior={"theta": dist.Gamma(5.0, 1.0)},
        statistics={"count": lambda theta: dist.Poisson(theta), "spread": lambda theta: dist.Poisson(theta)},
    )
    return model, nw.Release(count=LatentScale(nw.Laplace(scale=0.5), "spread", 2.0).released(9.3))


def _latent_solution():
    s, t = np.meshgrid(np.arange(150), np.arange(150), indexing="ij")
    # theta integrated out: a negative multinomial with shape 5 and probabilities 1/3
    log_joint = special.gammaln(5 + s + t) - special.gammaln(5) - special.gammaln(s + 1) - special.gammaln(t + 1)
    log_joint = log_joint - (5 + s + t) * np.log(3.0)
    log_joint = log_joint + stats.laplace.logpdf(9.3, s, 0.5 * np.maximum(2.0, t))
    weight, log_evidence = _normalise(log_joint)
    shape = 5.0 + s + t
    conditional = {"theta": (shape / 3.0, shape / 9.0), "count": (s, 0.0 * s), "spread": (t, 0.0 * t)}
    return _moments(weight, conditional) | {"log_evidence": log_evidence}


# The median of five records, released with noise on its smooth sensitivity --------------------------------------------

RECORDS, LEVELS = 5, np.array([0.0, 1.0, 4.0])
NOISE = smooth.cauchy(epsilon=3.0, power=4.0, neighbours="replace-one")


@cache
def _tables():
    """Median and smooth sensitivity by the counts of the first two levels."""
    middle, spread = np.zeros((RECORDS + 1, RECORDS + 1)), np.zeros((RECORDS + 1, RECORDS + 1))
    for first, second in product(range(RECORDS + 1), repeat=2):
        if first + second <= RECORDS:
            records = np.repeat(LEVELS, [first, second, RECORDS - first - second])
            middle[first, second] = np.median(records)
            args = dict(xi=NOISE.xi, neighbours="replace-one")
            spread[first, second] = sensitivity.median_smooth(records, LEVELS[0], LEVELS[-1], **args)
    return middle, spread


def _median_problem():
    def look_up(table):
        return nw.Simulator(lambda rng, cells: _tables()[table][cells[:, 0], cells[:, 1]], batched=True)

    model = nw.Model(
        prior={"share": dist.Dirichlet(np.array([1.0, 2.0, 1.5]))},
        statistics={
            "cells": lambda share: dist.Multinomial(RECORDS, share),
            "middle": look_up(0),
            "spread": look_up(1),
        },
    )
    return model, nw.Release(middle=NOISE.latent("spread", 0.8).released(2.7))


def _median_solution():
    alpha = np.array([1.0, 2.0, 1.5])
    cells = np.array([(i, j, RECORDS - i - j) for i in range(RECORDS + 1) for j in range(RECORDS + 1 - i)])
    middle, spread = (table[cells[:, 0], cells[:, 1]] for table in _tables())
    scale = 2.0 * 5.0 / 3.0 * np.maximum(0.8, spread)
    # density sqrt(2) / (pi (1 + u^4)): power 4
    log_noise = np.log(np.sqrt(2.0) / np.pi) - np.log1p(((2.7 - middle) / scale) ** 4) - np.log(scale)
    weight, log_evidence = _normalise(stats.dirichlet_multinomial.logpmf(cells, alpha, RECORDS) + log_noise)
    shape = alpha + cells
    total = shape.sum(axis=1, keepdims=True)
    conditional = {
        "share": (shape / total, shape * (total - shape) / (total**2 * (total + 1))),
        "cells": (cells, 0.0 * cells),
        "middle": (middle, 0.0 * middle),
        "spread": (spread, 0.0 * spread),
    }
    return _moments(weight, conditional) | {"log_evidence": log_evidence}


TARGETS = [
    Target("latent-scale", _latent_problem, _latent_solution),
    Target("median-with-smooth-sensitivity", _median_problem, _median_solution),
]


# Worst neighbours of every budget -------------------------------------------------------------------------------------

FAR = np.concatenate([np.linspace(-20, 20, 20_001), np.geomspace(20, 1e9, 2_000), -np.geomspace(20, 1e9, 2_000)])


def latent_pairs(plan, bound, reach, **outcomes):
    """Neighbours with scales as far apart as smoothness lets them, shifted as far as the smaller allows."""
    mechanism, found = plan.latent("t", bound), []
    for first in (1.0, bound, 0.5 * bound):
        for factor in (np.exp(plan.xi), np.exp(-plan.xi), np.exp(0.5 * plan.xi), 1.0):
            shift = first * min(1.0, factor)
            span = reach * plan.noise.scale * max(first, bound)
            inputs = ({"t": first}, {"t": first * factor})
            for s in (shift, -shift):
                where = dict(points=span * outcomes["points"]) if outcomes else dict(edges=[-span, 0.0, s, span])
                found.append(pair_of(mechanism, 0.0, s, inputs=inputs, **where))
    return mechanism, found


def audits(audit):
    """Tell `audit` of every budget: name, mechanism, pairs of laws."""
    for epsilon, delta in product((0.1, 1.0, 5.0, 10.0), (1e-2, 1e-6)):
        mechanism, pairs = latent_pairs(smooth.laplace(epsilon, delta), 0.01, 45.0)
        audit(f"smooth-laplace-{epsilon}-{delta}", mechanism, *pairs, tight=False)
        mechanism, pairs = latent_pairs(smooth.gaussian(epsilon, delta), 0.01, 12.0)
        audit(f"smooth-gaussian-{epsilon}-{delta}", mechanism, *pairs, tight=False)
    for epsilon, power in product((0.1, 1.0, 10.0), (1.5, 2.0, 4.0, 20.0)):
        mechanism, pairs = latent_pairs(smooth.cauchy(epsilon, power), 0.01, 1.0, points=FAR)
        audit(f"smooth-cauchy-{epsilon}-{power}", mechanism, *pairs, tight=False)


# Mistakes that the tests must catch -----------------------------------------------------------------------------------

MUTANTS = {
    "a latent scale enters the density without its Jacobian": Mutant(
        "mechanisms/latent_scale.py",
        "self.base.noise_log_prob((released - confidential) / scale) - xp.log(scale), -xp.inf)",
        "self.base.noise_log_prob((released - confidential) / scale), -xp.inf)",
        "mechanisms/test_smooth.py::test_density_is_that_of_the_base_at_the_scale",
    ),
    "smooth sensitivity is calibrated for a dimension of one": Mutant(
        "mechanisms/smooth.py",
        "return epsilon, epsilon / (4.0 * (dimension + math.log(2.0 / delta)))",
        "return epsilon, epsilon / (4.0 * (1.0 + math.log(2.0 / delta)))",
        "mechanisms/test_smooth.py::test_calibration_holds_in_any_dimension "
        "mechanisms/test_smooth.py::test_published_constants",
    ),
}
