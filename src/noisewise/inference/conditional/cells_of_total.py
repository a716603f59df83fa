"""A table of counts with a known total and noise on its cells: draws of it given its release, without a rejection.

    P(s | r)  ~  prod_j w_j(s_j)  where sum_j s_j = n,    w_j(k) = Gamma(a_j + k) / (Gamma(a_j) k!) eta_j(r_j | k)

is the Dirichlet-multinomial law, weighed by the noise: cells are independent but for their total. Sums of the first
cells are convolved one after the other, and a table is drawn from the last cell to the first. Derivation:
docs/derivations/layers.md.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp, softmax

from noisewise.inference.conditional.laws import constant_of
from noisewise.inference.problem import Problem
from noisewise.numerics import Array, double
from noisewise.numerics.gamma import log_rising

MOST = 2**24
"""Cells times possible counts, at most: each weight is computed once."""
MOST_WORK = 2**28
"""Products of probabilities that are added up to convolve all cells, at most: a second of it."""
FAINTEST = 1e-200
"""Least probability of the total after tilting: what underflows, less than 1e-290 in all, is nothing beside it."""
LARGE = 1e3
"""Shapes above which a difference of log gammas would lose digits."""
LEAST = 1e-18
"""Most mass that is left out at either end of a cell's counts, or of a sum of cells."""
MOST_TILTED, STEPS, NEAR = 700.0, 200, 0.01
"""The tilt, in logs for each count, at most; steps to find it; how near its mean is to the total, in its deviations."""
DEEP = 200.0
"""The tilt is found among counts whose weight is within so many logs of the largest."""


@dataclass(frozen=True)
class CellsOfTotal:
    """The law of one table given its release; `shares[j]` are probabilities of the counts from `lows[j]` on."""

    name: str
    total: int
    lows: list[int]
    shares: list[Array]
    """Of each cell by itself, tilted so that the total is what is expected."""
    sums: list[Array]
    """Probabilities of the sum of all cells before this one."""
    starts: list[int]
    """The least of these sums."""
    log_evidence: float
    """log probability (density) of the release; -inf where no table could have given it, or where all is neglected."""
    neglected: float
    """Share of the law that may be left out."""

    @property
    def work(self) -> int:
        """Numbers handled for one table."""
        return sum(map(len, self.shares))

    @property
    def widest(self) -> int:
        """Counts of the cell that has most of them."""
        return max(map(len, self.shares), default=1)

    def draw(self, rng: np.random.Generator, rows: int) -> Array:
        """Independent tables."""
        left = np.full(rows, self.total)
        table = np.empty((rows, len(self.shares)), np.int64)
        for cell in range(len(self.shares) - 1, -1, -1):
            before, share, low = self.sums[cell], self.shares[cell], self.lows[cell]
            index = left[:, None] - (low + self.starts[cell]) - np.arange(len(share))
            inside = (index >= 0) & (index < len(before))
            passed = np.cumsum(np.where(inside, before[np.where(inside, index, 0)], 0.0) * share, axis=1)
            uniform = rng.random(rows) * passed[:, -1]
            table[:, cell] = low + np.sum(passed <= uniform[:, None], axis=1)
            left -= table[:, cell]
        return table


def applies(problem: Problem, name: str) -> str | None:
    """Why the law of a released statistic cannot be had so, as the end of a sentence, or None."""
    model, law = problem.model, problem.model.law(name)
    mechanism, total = problem.release[name].mechanism, constant_of(problem.model, name, "total_count")
    alone = not model.parents(name) and not any(name in model.parents(child) for child in model.statistics)
    if law.form.kind != "DirichletMultinomial" or len(model.shape(name)) != 1 or total is None or not alone:
        return f"needs '{name}' to be a table of one axis with a known total, which nothing else reads"
    if mechanism.event_dim or mechanism.inputs or problem.release[name].shape != model.shape(name):
        return f"needs noise on each cell of '{name}' by itself"
    if np.size(total) > 1 or model.shape(name)[0] * (int(np.asarray(total)) + 1) > MOST:
        return f"needs '{name}' to have at most {MOST:,} cells times counts"
    return None


def cells_of_total(problem: Problem, name: str) -> CellsOfTotal:
    """The law of the table given its release."""
    with double():
        law = problem.model.law_at(name, {})
        shapes, total = np.asarray(law.concentration, float), int(law.total_count)
    log_weights = _log_weights(problem, name, shapes, total)
    nothing = CellsOfTotal(name, total, [], [], [], [], -np.inf, 0.0)
    tilt = _tilt(log_weights, total)
    if tilt is None:
        return nothing
    constant = float(gammaln(total + 1.0) - _rising(shapes.sum(), np.float64(total)))
    log_evidence, missing, before, start = constant - tilt * total, 0.0, np.ones(1), 0
    lows, shares, sums, starts, work = [], [], [], [], 0
    for log_weight in log_weights:
        tilted = log_weight + tilt * np.arange(total + 1.0)
        log_mass = float(logsumexp(tilted))
        share, low, left_out = _cut(np.exp(tilted - log_mass))
        lows.append(low)
        shares.append(share)
        sums.append(before)
        starts.append(start)
        work += len(before) * len(share)
        if work > MOST_WORK:
            return replace(nothing, neglected=1.0)
        before, first, lost = _cut(np.convolve(before, share))
        start += low + first
        log_evidence, missing = log_evidence + log_mass, missing + left_out + lost
    reached = before[total - start] if 0 <= total - start < len(before) else 0.0
    if reached < FAINTEST:  # too many digits of the range of numbers are gone; whether it is zero cannot be told
        return replace(nothing, neglected=1.0)
    log_evidence += float(np.log(reached))
    return CellsOfTotal(name, total, lows, shares, sums, starts, log_evidence, missing / reached)


def _log_weights(problem: Problem, name: str, shapes: Array, total: int) -> list[Array]:
    """log w_j(k) for k = 0, ..., n, cell by cell."""
    item, count = problem.release[name], np.arange(total + 1.0)
    rows = max(1, 2**20 // len(shapes))
    pieces = [count[first : first + rows] for first in range(0, len(count), rows)]
    parts = [np.broadcast_to(piece[:, None], (len(piece), len(shapes))) for piece in pieces]
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        log_noise = np.concatenate([np.asarray(item.mechanism.log_prob(item.value, part)) for part in parts])
    log_factorial = gammaln(count + 1.0)
    return [_rising(shape, count) - log_factorial + log_noise[:, cell] for cell, shape in enumerate(shapes)]


def _rising(shape: Any, count: Any) -> Any:
    """log(Gamma(shape + count) / Gamma(shape)): by a difference where that loses no digit that counts."""
    return log_rising(shape, count) if shape > LARGE else gammaln(shape + count) - gammaln(shape)


def _cut(shares: Array) -> tuple[Array, int, float]:
    """The shares without the ends where next to nothing lies, the place of the first, and the mass left out."""
    below, above = np.cumsum(shares), np.cumsum(shares[::-1])
    first, last = int(np.sum(below <= LEAST)), len(shares) - int(np.sum(above <= LEAST))
    return shares[first:last], first, float(shares[:first].sum() + shares[last:].sum())


def _tilt(log_weights: list[Array], total: int) -> float | None:
    """The factor exp(tilt k) of all weights under which the total is about what is expected; None: out of reach.

    By Newton's method, kept between bounds: the expectation grows with the tilt. Draws do not depend on it, but for
    rounding, nor does what is reported as left out rest on it.
    """
    if not all(np.isfinite(weights.max()) for weights in log_weights):
        return None
    for deep in (DEEP, np.inf):
        inside = [np.flatnonzero(weights >= max(weights.max() - deep, -1e300)) for weights in log_weights]
        if sum(counts[0] for counts in inside) <= total <= sum(counts[-1] for counts in inside):
            break
    else:
        return None
    parts = [(weights[counts], counts) for weights, counts in zip(log_weights, inside, strict=True)]
    low, high, tilt = -MOST_TILTED, MOST_TILTED, 0.0
    for _ in range(STEPS):
        mean = variance = 0.0
        for weights, counts in parts:
            share = softmax(weights + tilt * counts)
            centre = share @ counts
            mean, variance = mean + centre, variance + share @ (counts - centre) ** 2
        off = total - mean
        if abs(off) <= max(NEAR * np.sqrt(variance), 1e-9):
            break
        low, high = (tilt, high) if off > 0.0 else (low, tilt)
        newton = tilt + off / max(variance, 1e-300)
        tilt = newton if low < newton < high else 0.5 * (low + high)
    return float(tilt)
