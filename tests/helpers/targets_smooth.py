"""Targets with noise whose scale is confidential: enumeration over the value and its scale."""

from functools import cache
from itertools import product

import numpy as np
import numpyro.distributions as dist
from scipy import special, stats
from targets import Target, _moments, _normalise

import noisewise as nw
from noisewise import sensitivity
from noisewise.mechanisms import smooth
from noisewise.mechanisms.latent_scale import LatentScale

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
