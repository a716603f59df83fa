"""Posteriors given randomised responses, by enumeration of the confidential records or counts."""

from functools import cache
from itertools import product

import numpy as np
import numpyro.distributions as dist
from cases_response import UNEVEN, tables
from scipy import stats
from targets import Target, _beta_variance, _moments, _normalise

import noisewise as nw
from noisewise.mechanisms.randomized_response import RandomizedResponse
from noisewise.mechanisms.unary_encoding import UnaryEncoding

TWO_BITS = np.kron([[0.75, 0.25], [0.25, 0.75]], [[0.75, 0.25], [0.25, 0.75]])


def law_of_counts(channel, counts):
    """Probability of every table of reported counts, one record after the other: {table: probability}."""
    law = {(0,) * len(channel[0]): 1.0}
    for row, count in zip(channel, counts, strict=True):
        for _ in range(count):
            grown = {}
            for (table, weight), (column, chance) in product(law.items(), enumerate(row)):
                key = (*table[:column], table[column] + 1, *table[column + 1 :])
                grown[key] = grown.get(key, 0.0) + weight * chance
            law = grown
    return law


# Bits --------------------------------------------------------------------------------------------------------------

ANSWERS = [1, 0, 1, 1, 0, 1]


def _bits_problem():
    model = nw.Model(
        prior={"p": dist.Beta(2.0, 3.0)}, statistics={"answers": lambda p: dist.Bernoulli(p).expand([len(ANSWERS)])}
    )
    return model, nw.Release(answers=RandomizedResponse(keep=0.7).released(ANSWERS))


def _bits_solution():
    truth = np.array(list(product(range(2), repeat=len(ANSWERS))))
    yes, n = truth.sum(axis=1), len(ANSWERS)
    log_joint = stats.betabinom.logpmf(yes, n, 2.0, 3.0) - np.log([_choose(n, count) for count in yes])
    log_joint = log_joint + np.log(np.where(truth == ANSWERS, 0.7, 0.3)).sum(axis=1)
    weight, log_evidence = _normalise(log_joint)
    mean, variance = (2.0 + yes) / (5.0 + n), _beta_variance(2.0 + yes, 3.0 + n - yes)
    found = _moments(weight, {"p": (mean, variance), "answers": (truth, 0 * truth)})
    return found | {"log_evidence": log_evidence}


def _choose(n, k):
    return round(np.exp(stats.binom.logpmf(k, n, 0.5)) * 2.0**n)


# Counts ------------------------------------------------------------------------------------------------------------


def _counts_problem(alpha, channel, released):
    n = sum(released)
    model = nw.Model(
        prior={"share": dist.Dirichlet(np.array(alpha))},
        statistics={"cells": lambda share: dist.Multinomial(n, share)},
    )
    return model, nw.Release(cells=RandomizedResponse(channel, on="counts", n=n).released(released))


@cache
def _counts_solution(alpha, channel, released):
    cells = tables(sum(released), len(alpha))
    chance = np.array([law_of_counts(channel, row).get(released, 0.0) for row in cells])
    log_joint = stats.dirichlet_multinomial.logpmf(cells, np.array(alpha), sum(released)) + np.log(chance)
    return _dirichlet(alpha, cells, log_joint, "cells")


def _dirichlet(alpha, cells, log_joint, name):
    weight, log_evidence = _normalise(log_joint)
    shape = np.array(alpha) + cells
    total = shape.sum(axis=1, keepdims=True)
    variance = shape * (total - shape) / (total**2 * (total + 1))
    found = _moments(weight, {"share": (shape / total, variance), name: (cells, 0 * cells)})
    return found | {"log_evidence": log_evidence}


def _counts(name, alpha, channel, released):
    channel = tuple(map(tuple, np.asarray(channel).tolist()))
    return Target(
        name,
        lambda: _counts_problem(alpha, channel, released),
        lambda: _counts_solution(alpha, channel, released),
        draws=20_000,
    )


# Unary encoding ------------------------------------------------------------------------------------------------------

BITS = [[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 1, 0]]


def _unary_problem():
    model = nw.Model(
        prior={"share": dist.Dirichlet(np.array([1.0, 2.0, 1.5]))},
        statistics={"groups": lambda share: dist.Categorical(share).expand([len(BITS)])},
    )
    return model, nw.Release(groups=UnaryEncoding(3, epsilon=2.0, encoding="optimised").released(BITS))


def _unary_solution():
    alpha, add = np.array([1.0, 2.0, 1.5]), 1.0 / (1.0 + np.exp(2.0))
    groups = np.array(list(product(range(3), repeat=len(BITS))))
    cells = np.array([np.bincount(row, minlength=3) for row in groups])
    ways = stats.multinomial.pmf(cells, len(BITS), np.full(3, 1 / 3)) * 3.0 ** len(BITS)
    log_joint = stats.dirichlet_multinomial.logpmf(cells, alpha, len(BITS)) - np.log(ways)
    for record, bits in enumerate(BITS):
        for category, bit in enumerate(bits):
            one = np.where(groups[:, record] == category, 0.5, add)
            log_joint = log_joint + np.log(one if bit else 1.0 - one)
    weight, log_evidence = _normalise(log_joint)
    shape = alpha + cells
    total = shape.sum(axis=1, keepdims=True)
    variance = shape * (total - shape) / (total**2 * (total + 1))
    found = _moments(weight, {"share": (shape / total, variance), "groups": (groups, 0 * groups)})
    return found | {"log_evidence": log_evidence}


THREE = np.where(np.eye(3, dtype=bool), 0.6, 0.2)

TARGETS = [
    Target("randomised-response-bits", _bits_problem, _bits_solution, draws=20_000),
    _counts("randomised-response-binary-counts", (2.0, 3.0), [[0.75, 0.25], [0.25, 0.75]], (11, 19)),
    _counts("randomised-response-three-counts", (1.0, 2.0, 1.5), THREE, (4, 5, 3)),
    _counts("randomised-response-uneven-counts", (1.0, 2.0, 1.5), UNEVEN, (2, 5, 3)),
    _counts("randomised-response-two-bits", (1.0, 1.0, 1.0, 1.0), TWO_BITS, (3, 3, 1, 2)),
    Target("unary-encoding", _unary_problem, _unary_solution, draws=20_000),
]
