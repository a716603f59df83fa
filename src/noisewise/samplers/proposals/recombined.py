"""Totals of many records, put together from groups that are simulated twice.

The noise of a clamped sum is as wide as one record's reach, and the sum of a million records varies by a thousand times
as much: of the simulated sums one in a thousand comes near the release. Groups of records are simulated twice over, and
every choice of one version of each group is a sum: millions for the work of two. Derivation:
docs/derivations/importance.md.
"""

from dataclasses import dataclass

import numpy as np

from noisewise.inference.blocks import Columns
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Exact
from noisewise.model.graph import Poll
from noisewise.numerics import Array

LEAST_RECORDS = 2**11
"""Records from which on groups are worth their work: below, several whole totals for each parameter value serve."""
MOST_GROUPS = 20
AT_ONCE = 2**18
"""Sums that are weighed at a time."""


@dataclass(frozen=True, eq=False)
class Recombined:
    """Draws of one total given its parents and its release: one of 2^groups sums, picked by the noise density."""

    problem: Problem
    name: str

    def draw(self, rng: np.random.Generator, values: Columns, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """`values` with the total, and log of the mean of the noise density over its choices."""
        total = self.problem.model.total(self.name)
        assert total is not None  # `is_recombined`
        n = total.sizes(values, rows)
        groups = groups_of(int(n[0]))
        outer, each = {name: values[name] for name in total.parents}, n // groups
        twice = {name: np.repeat(column, 2 * groups, axis=0) for name, column in outer.items()}
        versions = total.simulated(rng, twice, np.repeat(each, 2 * groups), poll)
        versions = versions.reshape(rows, groups, 2, *versions.shape[1:])
        left = n - groups * each
        rest = (total.simulated(rng, outer, left, poll) if left.any() else np.zeros_like(versions[:, 0, 0]))[:, None]
        first, second = all_sums(versions[:, : groups // 2]), rest + all_sums(versions[:, groups // 2 :])
        picked, log_means = np.empty_like(rest[:, 0]), np.empty(rows)
        step = max(1, AT_ONCE >> groups)
        for start in range(0, rows, step):
            poll()
            part = slice(start, start + step)
            picked[part], log_means[part] = self._picked(rng, first[part], second[part])
        return {**values, self.name: picked}, log_means

    def _picked(self, rng: np.random.Generator, first: Array, second: Array) -> tuple[Array, Array]:
        """Of the sums of one half and the other, one by its noise density; and log of the mean of that."""
        rows, some, others = len(first), first.shape[1], second.shape[1]
        both = (first[:, :, None] + second[:, None]).reshape(-1, *first.shape[2:])
        log_eta = self.problem.log_eta(self.name, {self.name: both}).reshape(rows, some * others)
        top = log_eta.max(axis=1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        heights = np.cumsum(np.exp(log_eta - top), axis=1)
        at = np.sum(heights <= rng.random((rows, 1)) * heights[:, -1:], axis=1)
        chosen = np.minimum(at, some * others - 1)
        with np.errstate(divide="ignore"):
            log_mean = top[:, 0] + np.log(heights[:, -1] / (some * others))
        return both.reshape(rows, some * others, *first.shape[2:])[np.arange(rows), chosen], log_mean


def groups_of(records: int) -> int:
    """Groups for a total of so many records, such that weighing all sums takes less than the records' simulation."""
    return min(records.bit_length() - 3, MOST_GROUPS) if records >= LEAST_RECORDS else 0


def all_sums(versions: Array) -> Array:
    """All sums with one version of each group, (rows, 2^groups, ...), of (rows, groups, 2, ...)."""
    added = versions[:, 0]
    for group in range(1, versions.shape[1]):
        added = np.concatenate([added + versions[:, group, [one]] for one in (0, 1)], axis=1)
    return added


def is_recombined(problem: Problem, name: str) -> bool:
    """Whether a statistic is a simulated total of so many records whose noise reads nothing but the total."""
    item, total = problem.release.get(name), problem.model.total(name)
    if item is None or total is None or total.known is not None or name in problem.measured:
        return False
    if not isinstance(total.total.n, int) or not groups_of(total.total.n):
        return False
    return not isinstance(item.mechanism, Exact) and not item.mechanism.inputs


def recombined_work(problem: Problem) -> int:
    """Records that are simulated for one parameter value by totals that are put together from groups."""
    totals = [problem.model.total(name) for name in problem.release if is_recombined(problem, name)]
    return sum(2 * total.total.n for total in totals if total is not None and isinstance(total.total.n, int))
