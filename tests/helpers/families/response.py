"""Randomised response: records, counts, unary encoding.

Targets by enumeration of the confidential records or counts.
"""

from functools import cache
from itertools import product

import numpy as np
import numpyro.distributions as dist
from mechanism_case import Case
from mutant import Mutant
from privacy_audit import pair_of
from scipy import stats
from targets import Target, _beta_variance, _moments, _normalise

import noisewise as nw
from noisewise.mechanisms.randomized_response import RandomizedResponse
from noisewise.mechanisms.unary_encoding import UnaryEncoding

WIDE = [[0.5, 0.2, 0.2, 0.1], [0.1, 0.6, 0.2, 0.1], [0.0, 0.3, 0.3, 0.4]]
UNEVEN = [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]]


def tables(n, k):
    """All vectors of k counts that sum to n."""
    if k == 1:
        return np.array([[n]])
    parts = [np.insert(tables(n - first, k - 1), 0, first, axis=1) for first in range(n + 1)]
    return np.concatenate(parts)


def some_tables(n, k):
    """Random tables, and two that are none."""

    def search(rng, size):
        rows = tables(n, k)
        none = np.array([[-1, n + 1, *[0] * (k - 2)], [1] * k])
        return np.concatenate([none, rows[rng.integers(0, len(rows), size - 2)]])

    return search


def best(mechanism, candidates):
    """The candidate with the largest density."""
    return lambda released: candidates[np.argmax(mechanism.log_prob(released, candidates))]


COUNTS = RandomizedResponse([[0.8, 0.2], [0.3, 0.7]], on="counts", n=12)
ONES = RandomizedResponse([[0.8, 0.2], [0.3, 0.7]], on="ones", n=12)
UNARY = UnaryEncoding(3, keep=0.7, add=0.2)

CASES = [
    Case(
        "randomised-response-bit",
        RandomizedResponse(keep=0.75),
        1,
        lambda rng, size: rng.integers(-1, 3, size),
        attains=lambda released: released,
        points=np.arange(2),
        wrong=RandomizedResponse(keep=0.74),
    ),
    Case(
        "randomised-response-channel",
        RandomizedResponse(WIDE),
        np.array([2, 0]),
        lambda rng, size: rng.integers(-1, 4, (size, 2)),
        attains=lambda released: np.argmax(np.array(WIDE)[:, released], axis=0),
        points=np.array(list(product(range(4), repeat=2))),
        wrong=RandomizedResponse([[0.49, 0.21, 0.2, 0.1], WIDE[1], WIDE[2]]),
    ),
    Case(
        "randomised-response-counts-binary",
        COUNTS,
        np.array([5, 7]),
        some_tables(12, 2),
        attains=best(COUNTS, tables(12, 2)),
        points=tables(12, 2),
        wrong=RandomizedResponse([[0.8, 0.2], [0.31, 0.69]], on="counts", n=12),
    ),
    Case(
        "randomised-response-counts-k-ary",
        RandomizedResponse(epsilon=1.2, categories=3, on="counts", n=7),
        np.array([4, 1, 2]),
        some_tables(7, 3),
        points=tables(7, 3),
        wrong=RandomizedResponse(epsilon=1.25, categories=3, on="counts", n=7),
    ),
    Case(
        "randomised-response-counts-channel",
        RandomizedResponse(UNEVEN, on="counts", n=6),
        np.array([1, 3, 2]),
        some_tables(6, 3),
        points=tables(6, 3),
        wrong=RandomizedResponse([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.24, 0.26, 0.5]], on="counts", n=6),
    ),
    Case(
        "randomised-response-ones",
        ONES,
        7,
        lambda rng, size: rng.integers(-2, 15, size),
        attains=best(ONES, np.arange(13)),
        points=np.arange(13),
        wrong=RandomizedResponse([[0.8, 0.2], [0.31, 0.69]], on="ones", n=12),
    ),
    Case(
        "unary-encoding",
        UNARY,
        1,
        lambda rng, size: rng.integers(-1, 4, size),
        attains=best(UNARY, np.arange(3)),
        points=np.array(list(product(range(2), repeat=3))),
        wrong=UnaryEncoding(3, keep=0.7, add=0.21),
    ),
]


# End to end: problems with their exact answers ----------------------------------------------------------------------

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


# Ones --------------------------------------------------------------------------------------------------------------

UNEQUAL = ((0.8, 0.2), (0.3, 0.7))


def _ones_problem():
    model = nw.Model(prior={"p": dist.Beta(2.0, 3.0)}, statistics={"yes": lambda p: dist.Binomial(25, p)})
    return model, nw.Release(yes=RandomizedResponse(UNEQUAL, on="ones", n=25).released(11))


def _ones_solution():
    yes, n = np.arange(26), 25
    chance = np.array([law_of_counts(UNEQUAL, (n - one, one))[n - 11, 11] for one in yes])
    weight, log_evidence = _normalise(stats.betabinom.logpmf(yes, n, 2.0, 3.0) + np.log(chance))
    mean, variance = (2.0 + yes) / (5.0 + n), _beta_variance(2.0 + yes, 3.0 + n - yes)
    return _moments(weight, {"p": (mean, variance), "yes": (yes, 0 * yes)}) | {"log_evidence": log_evidence}


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
    Target("randomised-response-ones", _ones_problem, _ones_solution, draws=20_000),
    Target("unary-encoding", _unary_problem, _unary_solution, draws=20_000),
]


# Worst neighbours of every budget -------------------------------------------------------------------------------------


def audits(audit):
    """Tell `audit` of every budget: name, mechanism, pairs of laws."""
    for epsilon in (0.1, 1.0, 4.0):
        for categories in (2, 4):
            mechanism = RandomizedResponse(epsilon=epsilon, categories=categories)
            pairs = [pair_of(mechanism, 0, other, points=np.arange(categories)) for other in range(1, categories)]
            audit(f"randomised-response-{epsilon}-{categories}", mechanism, *pairs)
            for encoding in ("symmetric", "optimised"):
                mechanism = UnaryEncoding(categories, epsilon=epsilon, encoding=encoding)
                bits = np.array(list(product((0, 1), repeat=categories)))
                audit(f"unary-{encoding}-{epsilon}-{categories}", mechanism, pair_of(mechanism, 0, 1, points=bits))
            mechanism = RandomizedResponse(epsilon=epsilon, categories=categories, on="counts", n=4)
            counts = np.array([c for c in product(range(5), repeat=categories) if sum(c) == 4])
            moved = np.eye(categories, dtype=int)
            pairs = [
                pair_of(mechanism, 3 * moved[a] + moved[a], 3 * moved[a] + moved[b], points=counts)
                for a, b in ((0, 1), (1, 0))
            ]
            audit(f"reported-counts-{epsilon}-{categories}", mechanism, *pairs)


# Mistakes that the tests must catch -----------------------------------------------------------------------------------

CATALOGUE = "mechanisms/test_catalogue.py"
RESPONSE = "mechanisms/test_response.py"

MUTANTS = {
    "randomised answers use the channel's columns for its rows": Mutant(
        "mechanisms/randomized_response.py",
        "xp.asarray(log(np, table))[row, column], -xp.inf)",
        "xp.asarray(log(np, table.T))[row, column], -xp.inf)",
        f"{CATALOGUE}::test_sampler_follows_the_density {CATALOGUE}::test_mass_is_one",
    ),
    "the budget of a channel is the smallest ratio": Mutant(
        "mechanisms/randomized_response.py",
        "epsilon = float(np.max(np.log(used.max(axis=0)) - np.log(used.min(axis=0))))",
        "epsilon = float(np.min(np.log(used.max(axis=0)) - np.log(used.min(axis=0))))",
        f"{RESPONSE}::test_budget_is_the_largest_log_ratio {RESPONSE}::test_guarantee_of_a_channel",
    ),
    "tables of reports forget the order of what was reported": Mutant(
        "mechanisms/reported_counts.py",
        "return log_sum(xp, law + log_factorial(n - total), axis=1)",
        "return log_sum(xp, law, axis=1)",
        f"{RESPONSE}::test_counts_are_the_convolution_of_multinomials {RESPONSE}::test_the_two_routes_agree",
    ),
    "bits of a unary encoding are kept and added with the same chance": Mutant(
        "mechanisms/unary_encoding.py",
        "return (rng.random(own.shape) < np.where(own, self.keep, self.add)).astype(np.int64)",
        "return (rng.random(own.shape) < np.where(own, self.keep, 1.0 - self.keep)).astype(np.int64)",
        f"{CATALOGUE}::test_sampler_follows_the_density",
    ),
}
