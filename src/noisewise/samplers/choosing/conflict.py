"""Whether prior and release conflict: where the release lies in its prior predictive (Evans and Moshonov 2006)."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from noisewise.diagnostics.surprise import whole_release
from noisewise.inference.blocks import Columns
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.mechanisms import Exact
from noisewise.numerics import Array

SIMULATED = 199
"""Releases simulated from the prior predictive: tail probabilities come in steps of 1/200."""
WEIGHED = 512
"""Most probe rows that estimate the prior predictive density."""
MOST_HANDLED = 2**14
"""Most numbers handled for each release."""


def tail_probabilities(problem: Problem, probed: Columns, seed: int, left_out: Collection[str]) -> dict[str, float]:
    """Where the release lies in its prior predictive: P(m(S) <= m(s_dp)), m the prior predictive density.

    m is estimated from `probed` prior rows, and releases are simulated from other prior draws, so that under the model
    the estimate at the release and those at the simulated ones are exchangeable: each tail probability is a valid
    p-value whatever the quality of the estimate. Statistics without noise, or whose noise takes too long to weigh, are
    `left_out`.
    """
    noisy = [n for n, item in problem.release.items() if n not in left_out and not isinstance(item.mechanism, Exact)]
    if not noisy:
        return {}
    rng = generator(seed, Purpose.CONFLICT)
    fresh = _simulated(rng, problem, noisy, probed)
    densities = {name: _log_density(problem, name, fresh[name], probed) for name in noisy}
    tails = {name: _tail(_mean(log_densities)) for name, log_densities in densities.items()}
    if len(noisy) > 1:
        tails["release"] = _tail(_mean(sum(densities.values(), start=np.zeros(1))))
    return tails


def expected_ranges(
    problem: Problem, probed: Columns, seed: int, left_out: Collection[str]
) -> dict[str, tuple[Array, Array]]:
    """Ends of the range in which 95% of the releases that the prior expects lie, entry by entry, by simulation.

    For statistics whose noise acts on each entry by itself; withheld values are not counted.
    """
    entrywise = {
        name
        for name, item in problem.release.items()
        if item.mechanism.event_dim == 0 and name not in left_out and not isinstance(item.mechanism, Exact)
    }
    noisy = [name for name in problem.release if name in entrywise]
    if not noisy:
        return {}
    fresh = _simulated(generator(seed, Purpose.CONFLICT), problem, noisy, probed)
    ranges = {}
    for name in noisy:
        values = np.array(fresh[name][1:], dtype=float)
        shown = np.isfinite(values).any(axis=0)
        with np.errstate(all="ignore"):
            low, high = np.nanquantile(np.where(shown, values, 0.0), [0.025, 0.975], axis=0)
        ranges[name] = np.where(shown, low, np.nan), np.where(shown, high, np.nan)
    return ranges


def unbiased(tail: float) -> float:
    """The tail probability among simulated releases alone, from `tail`, which counts the actual one; it may be 0."""
    return (tail * (SIMULATED + 1) - 1.0) / SIMULATED


def as_surprising(tails: Mapping[str, float]) -> float:
    """Probability of releases as surprising as this one, as a whole or in some statistic; 0 where it is not known.

    Some one of k statistics is as surprising as the least likely of them with at most k times its probability.
    """
    if not tails:
        return 0.0
    name, tail = whole_release(tails)
    each = [unbiased(own) for statistic, own in tails.items() if statistic != name]
    return min(unbiased(tail), len(each) * min(each)) if each else unbiased(tail)


def _simulated(rng: np.random.Generator, problem: Problem, names: list[str], probed: Columns) -> dict[str, list[Any]]:
    """For each statistic its released value, then values simulated from the prior predictive."""
    model, releases = problem.model, {}
    values = model.draw(rng, model.order, len(next(iter(probed.values()))))  # the probe's shape: nothing is compiled
    if len(next(iter(probed.values()))) < SIMULATED:
        more = [
            model.draw(rng, model.order, len(next(iter(probed.values()))))
            for _ in range(SIMULATED // len(next(iter(probed.values()))))
        ]
        values = {name: np.concatenate([values[name], *(block[name] for block in more)]) for name in values}
    values = {name: column[:SIMULATED] for name, column in values.items()}
    for name in names:
        item = problem.release[name]
        extra = {other: values[other] for other in item.mechanism.inputs}
        noisy = item.mechanism.sample(rng, values[name], **extra)
        releases[name] = [item.value, *(item.mechanism.released(row).value for row in noisy)]
    return releases


def _log_density(problem: Problem, name: str, released: list[Any], probed: Columns) -> Array:
    """log eta of each released value given each of some probe rows."""
    mechanism = problem.release[name].mechanism
    width = max(1, int(np.prod(problem.model.shape(name))))
    rows = int(np.clip(MOST_HANDLED // width, 16, min(WEIGHED, len(next(iter(probed.values()))))))
    confidential = probed[name][:rows]
    extra = {other: probed[other][:rows] for other in mechanism.inputs}
    # Statistics may have different numbers of rows: the joint density uses the rows that all have.
    log_densities = np.full((len(released), min(WEIGHED, len(next(iter(probed.values()))))), np.nan)
    with np.errstate(over="ignore", under="ignore"):
        for number, value in enumerate(released):
            log_prob = np.asarray(mechanism.log_prob(value, confidential, **extra))
            log_densities[number, :rows] = log_prob.reshape(rows, -1).sum(axis=1)
    return log_densities


def _mean(log_densities: Array) -> Array:
    """log of the average density over rows, for each released value; rows that were not computed are NaN."""
    computed = log_densities[:, ~np.isnan(log_densities).any(axis=0)]
    return np.round(np.logaddexp.reduce(computed, axis=1) - np.log(computed.shape[1]), 9)


def _tail(densities: Array) -> float:
    """Share of the densities that are no larger than the first, the release's own, which counts too."""
    return float(np.mean(densities <= densities[0]))
