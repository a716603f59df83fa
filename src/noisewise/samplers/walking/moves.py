"""Moves on parameters and simulated statistics together, shared by the samplers that walk (`MCMC`, `SMC`).

A walker holds parameters theta and `simulations` sets of statistics simulated from the model at theta. A move proposes
new parameters, simulates the statistics that depend on them anew, and accepts on prior and noise density: no density
of a statistic is ever needed (Marjoram et al. 2003). Proof that each move leaves its target invariant:
docs/derivations/mcmc.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from noisewise.diagnostics import weights
from noisewise.errors import InferenceError
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Released
from noisewise.model.atoms import is_fixed
from noisewise.model.coordinates import Space
from noisewise.numerics import Array
from noisewise.numerics.tracing import seen

Columns = dict[str, Array]
Poll = Callable[[], None]
LogFactor = Callable[[str, Columns], Array]
"""(released statistic, rows of parameters and statistics) -> log of the factor that it gives prior and model."""

LEVELS = 2.38 * 2.0 ** np.arange(1, -6, -1)
"""Lengths a step may have, in units of the target's spread over the root of the dimension."""
DENSE = 200
"""Free coordinates above which the proposal ignores their correlations."""
NEVER = -800.0
"""log of a probability of acceptance so small that no random number is below it."""


@dataclass(frozen=True)
class Move:
    """Parameters that walk, and the statistics that must be simulated anew when they do."""

    parameters: tuple[str, ...]
    statistics: tuple[str, ...]
    columns: tuple[int, ...]
    """Coordinates of the free vector that belong to the parameters."""
    whole: tuple[str, ...]
    """Those of the parameters that are whole numbers."""

    @property
    def label(self) -> str:
        """What it moves, in words."""
        return " and ".join(self.parameters) or f"{' and '.join(self.statistics)} alone"


@dataclass(frozen=True)
class Kernel:
    """All that adaptation may change: shapes and lengths of steps. Frozen while draws are kept."""

    factors: tuple[Array, ...]
    """For each move, a matrix whose square is the covariance of a step of unit length."""
    spread: Mapping[str, Array]
    """Standard deviations of whole-numbered parameters, entry by entry."""
    lengths: tuple[Array, ...]
    """For each move, the probability of each of `LEVELS`."""


@dataclass
class Walkers:
    """Current states, one row each; statistics have `simulations` rows for each walker."""

    free: Array
    parameters: Columns
    log_prior: Array
    """Of the free coordinates, Jacobian included."""
    statistics: Columns
    log_eta: Array
    """(walkers, simulations, parts); a part is statistics that are independent of all others given the parameters."""

    def __len__(self) -> int:
        return len(self.free)

    @property
    def height(self) -> Array:
        """log of the likelihood estimate that each walker keeps."""
        return height(self.log_eta)

    def take(self, index: Array) -> "Walkers":
        """The walkers at `index`, with all their simulations."""
        width = self.log_eta.shape[1]
        rows = (index[:, None] * width + np.arange(width)).ravel()
        return Walkers(
            self.free[index],
            {name: values[index] for name, values in self.parameters.items()},
            self.log_prior[index],
            {name: values[rows] for name, values in self.statistics.items()},
            self.log_eta[index],
        )

    def accept(self, proposed: "Walkers", accepted: Array) -> None:
        """Take over the state of `proposed` where accepted."""
        rows = np.repeat(accepted, self.log_eta.shape[1])
        self.free = np.where(accepted[:, None], proposed.free, self.free)
        self.log_prior = np.where(accepted, proposed.log_prior, self.log_prior)
        self.log_eta = np.where(accepted[:, None, None], proposed.log_eta, self.log_eta)
        self.parameters = {n: _chosen(accepted, proposed.parameters[n], own) for n, own in self.parameters.items()}
        self.statistics = {n: _chosen(rows, proposed.statistics[n], own) for n, own in self.statistics.items()}

    def rows(self, rng: np.random.Generator, parts: list[list[str]]) -> Columns:
        """Parameters with one simulation of each part, picked with probability proportional to its eta."""
        count, width, _ = self.log_eta.shape
        if width == 1:
            return self.parameters | self.statistics
        # The largest of log eta + Gumbel noise: index k with probability eta_k / sum eta.
        pick = np.argmax(self.log_eta + rng.gumbel(size=self.log_eta.shape), axis=1)
        at = np.arange(count)[:, None] * width + pick
        row_of = {name: at[:, number] for number, part in enumerate(parts) for name in part}
        return self.parameters | {name: values[row_of[name]] for name, values in self.statistics.items()}


def height(log_eta: Array) -> Array:
    """log of the estimated likelihood: averages over the simulations, multiplied over the parts."""
    if log_eta.shape[1] == 1:
        return log_eta[:, 0].sum(axis=1)
    top = log_eta.max(axis=1)
    safe = np.where(top > -np.inf, top, 0.0)
    with np.errstate(divide="ignore"):
        return (safe + np.log(np.mean(np.exp(log_eta - safe[:, None]), axis=1))).sum(axis=1)


def affordable(problem: Problem) -> int:
    """Simulations per step that cost little beside the step itself: 8 for a few numbers, 1 for long records."""
    cells = sum(problem.model.cost_of_row(name) for name in problem.model.statistics)
    return int(np.clip(64 // max(cells, 1), 1, 8))


class Moves:
    """All moves of a problem."""

    def __init__(self, problem: Problem, simulations: int = 1) -> None:
        self.problem, self.model, self.simulations = problem, problem.model, simulations
        self.space = Space(problem.model)
        self.parameters = list(self.space.names)
        self.statistics = [name for name in self.model.order if name in self.model.statistics]
        self.parts = problem.parts
        self.list = self._listed()
        self.most = sum(_most(item) for item in problem.release.values())
        """Upper bound of a walker's height, at any temperature."""

    @property
    def cost(self) -> int:
        """Rows that a sweep simulates for one walker."""
        return len(self.list) * self.simulations

    def _listed(self) -> list[Move]:
        moves = [self._move(self.parameters, self.statistics)]
        restless = moving_supports(self.space)
        if len(self.parameters) > 1:
            for name in self.parameters:
                if name in self.space.shapes and not np.prod(self.space.shapes[name]):
                    continue  # a point has no coordinate to move
                changed = {name}
                for other in self.parameters:  # a support that moves carries its parameter along
                    if other in restless and changed & set(self.model.parents(other)):
                        changed.add(other)
                moves.append(self._move([name], self._depending(changed)))
        if len(self.statistics) > 1:
            moves += [self._move([], [name, *self._depending({name})]) for name in self.statistics]
        return moves

    def _depending(self, changed: set[str]) -> list[str]:
        """Statistics that depend on changed values, directly or through other statistics."""
        dependents: list[str] = []
        for name in self.statistics:
            if set(self.model.parents(name)) & (changed | set(dependents)):
                dependents.append(name)
        return dependents

    def _move(self, parameters: list[str], statistics: list[str]) -> Move:
        columns: list[int] = []
        start = 0
        for name in self.space.continuous:
            size = int(np.prod(self.space.shapes[name]))
            columns += range(start, start + size) if name in parameters else ()
            start += size
        whole = tuple(name for name in parameters if name in self.space.discrete)
        return Move(tuple(parameters), tuple(statistics), tuple(columns), whole)

    # States ----------------------------------------------------------------------------------------------

    def from_prior(self, rng: np.random.Generator, rows: int, target: LogFactor, poll: Poll) -> Walkers:
        """Walkers drawn from the model itself."""
        return self._simulated(rng, *self._fresh(rng, rows, poll), {}, self.statistics, target, poll)

    def placed(self, rng: np.random.Generator, start: Walkers, target: LogFactor, poll: Poll) -> Walkers:
        """The walkers of `start`, of one simulation each, with the further simulations that these moves work with."""
        if self.simulations == 1:
            return start
        walkers = self._simulated(rng, start.free, start.parameters, start.log_prior, {}, self.statistics, target, poll)
        walkers.statistics = {name: np.array(values) for name, values in walkers.statistics.items()}
        for name, values in start.statistics.items():
            walkers.statistics[name][:: self.simulations] = values
        walkers.log_eta[:, 0] = start.log_eta[:, 0]  # the first simulation is that by which the start was chosen
        return walkers

    def weigh(self, walkers: Walkers, target: LogFactor) -> Array:
        """log of `target` at every simulation of every walker, part by part."""
        return self._weigh(walkers.parameters, walkers.statistics, len(walkers), target)

    def _weigh(self, parameters: Columns, statistics: Columns, count: int, target: LogFactor) -> Array:
        values = self._repeated(parameters) | statistics
        nothing = np.zeros(count * self.simulations)
        columns = [
            sum((target(name, values) for name in part if name in self.problem.release), start=nothing)
            for part in self.parts
        ]
        log_eta = np.stack(columns, axis=1)
        if not np.all(log_eta < np.inf):  # NaN too
            raise InferenceError(
                "the noise density of the release is not a finite number at some simulated statistics. "
                "The mechanism is wrong: its draws would not be exact.",
                who="sample",
            )
        return log_eta.reshape(count, self.simulations, len(self.parts))

    def _fresh(self, rng: np.random.Generator, rows: int, poll: Poll) -> tuple[Array, Columns, Array]:
        values = self.model.draw(rng, self.parameters, rows, None, poll)
        if not self.parameters:
            return np.zeros((rows, 0)), {}, np.zeros(rows)
        free = self.space.free_from(values)
        return free, values, self.space.points(free, values)[1]

    def _repeated(self, parameters: Columns) -> Columns:
        if self.simulations == 1:
            return dict(parameters)
        return {name: np.repeat(values, self.simulations, axis=0) for name, values in parameters.items()}

    def _simulated(
        self,
        rng: np.random.Generator,
        free: Array,
        parameters: Columns,
        log_prior: Array,
        unchanged: Columns,
        names: list[str],
        target: LogFactor,
        poll: Poll,
    ) -> Walkers:
        """Walkers at these parameters: `names` simulated from the model, given the statistics that stay unchanged."""
        rows = len(free) * self.simulations
        drawn = self.model.draw(rng, names, rows, self._repeated(parameters) | unchanged, poll)
        statistics = {name: drawn[name] for name in self.statistics}
        return Walkers(free, parameters, log_prior, statistics, self._weigh(parameters, statistics, len(free), target))

    # One move --------------------------------------------------------------------------------------------

    def sweep(
        self, rng: np.random.Generator, walkers: Walkers, kernel: Kernel, target: LogFactor, poll: Poll, *, fresh: bool
    ) -> tuple[Array, Array]:
        """Every move once. Sums of acceptance probabilities by move and length, and how often each was tried.

        With `fresh`, the first proposes from the prior, so that every region the prior knows can be reached.
        """
        sums, tried = np.zeros((len(self.list), len(LEVELS))), np.zeros((len(self.list), len(LEVELS)))
        for number in range(len(self.list)):
            poll()
            independent = fresh and number == 0
            level, probability = self.step(rng, walkers, number, kernel, target, poll, independent=independent)
            if not independent:
                np.add.at(sums[number], level, probability)
                np.add.at(tried[number], level, 1.0)
        return sums, tried

    def step(
        self,
        rng: np.random.Generator,
        walkers: Walkers,
        number: int,
        kernel: Kernel,
        target: LogFactor,
        poll: Poll,
        *,
        independent: bool = False,
    ) -> tuple[Array, Array]:
        """One move of every walker, in place: lengths used and probabilities of acceptance.

        The estimate at the current state is the one it was accepted with: it is never simulated again.
        """
        move = self.list[number]
        level = rng.choice(len(LEVELS), size=len(walkers), p=kernel.lengths[number])
        if independent:
            free, parameters, log_prior = self._fresh(rng, len(walkers), poll)
        else:
            free, parameters, log_prior = self._walked(rng, walkers, number, kernel, LEVELS[level])
        # Where the prior density is zero, or so small that no noise density makes up for it, the model may not even be
        # drawn from: such a row stays where it is, whatever is simulated in place of the proposal.
        possible = np.isfinite(log_prior)
        if not independent:
            with np.errstate(invalid="ignore"):
                possible &= ~(log_prior - walkers.log_prior + self.most - walkers.height < NEVER)
        if not possible.all():
            free = np.where(possible[:, None], free, walkers.free)
            parameters = {n: _chosen(possible, values, walkers.parameters[n]) for n, values in parameters.items()}
        unchanged = {name: values for name, values in walkers.statistics.items() if name not in move.statistics}
        names = list(move.statistics)
        proposed = self._simulated(rng, free, parameters, log_prior, unchanged, names, target, poll)
        ratio = proposed.height - walkers.height
        with np.errstate(invalid="ignore"):
            if not independent:  # proposals from the prior: its density cancels
                ratio = ratio + (log_prior - walkers.log_prior)
        ratio = np.where(possible & ~np.isnan(ratio), ratio, -np.inf)
        walkers.accept(proposed, rng.standard_exponential(len(walkers)) >= -ratio)
        return level, np.exp(np.minimum(ratio, 0.0))

    def _walked(
        self, rng: np.random.Generator, walkers: Walkers, number: int, kernel: Kernel, length: Array
    ) -> tuple[Array, Columns, Array]:
        """A symmetric step in free coordinates and whole numbers."""
        move = self.list[number]
        if not move.parameters:
            return walkers.free, walkers.parameters, walkers.log_prior
        entries = len(move.columns) + sum(int(np.prod(self.model.shape(name))) for name in move.whole)
        length = length / np.sqrt(max(1, entries))
        free = walkers.free
        if move.columns:
            free = free.copy()
            noise = rng.standard_normal((len(walkers), len(move.columns)))
            factor = kernel.factors[number]
            noise = noise * factor if factor.ndim == 1 else noise @ factor.T
            free[:, list(move.columns)] += length[:, None] * noise
        whole = {name: walkers.parameters[name] for name in self.space.discrete}
        for name in move.whole:
            whole[name] = whole[name] + whole_steps(rng, whole[name].shape, kernel.spread[name], length)
        with np.errstate(over="ignore"):
            parameters, log_prior = self.space.points(free, whole)
        return free, {name: parameters[name] for name in self.parameters}, log_prior

    # Adaptation -------------------------------------------------------------------------------------------

    def kernel(self, free: Array, whole: Mapping[str, Array], floor: Array, lengths: Any = None) -> Kernel:
        """Steps shaped like a cloud of points; no coordinate's variance below `floor`."""
        size = free.shape[1]
        if size > DENSE:
            covariance: Array = np.maximum(free.var(axis=0), floor)
        else:
            covariance = np.cov(free.T, ddof=0).reshape(size, size) * (len(free) / (len(free) + 5.0 * size))
            np.fill_diagonal(covariance, np.maximum(free.var(axis=0), floor) * (1.0 + 1e-9))
        factors = tuple(_factor(covariance, list(move.columns)) for move in self.list)
        spread = {name: whole[name].astype(float).std(axis=0) for name in self.space.discrete}
        even = np.full(len(LEVELS), 1.0 / len(LEVELS))
        return Kernel(factors, spread, tuple(lengths) if lengths is not None else (even,) * len(self.list))


def whole_steps(rng: np.random.Generator, shape: tuple[int, ...], spread: Array, length: Array) -> Array:
    """Symmetric whole-numbered steps: on average one of several entries moves; a single entry moves half the time."""
    entries = int(np.prod(shape[1:]))
    size = 1.0 + np.floor(length.reshape(-1, *(1,) * (len(shape) - 1)) * spread * np.abs(rng.standard_normal(shape)))
    sign = np.where(rng.random(shape) < 0.5, -1, 1)
    moved = rng.random(shape) < 1.0 / max(2, entries)
    return (np.minimum(size, 2.0**40).astype(np.int64) * sign) * moved


def best_lengths(sums: Array, tried: Array) -> list[Array]:
    """For each move, probabilities of the lengths: half on that of largest expected squared jump, half beside it."""
    probabilities = []
    for total, count in zip(sums, tried, strict=True):
        jump = total / np.maximum(count, 1.0) * LEVELS**2
        best = int(np.argmax(jump))
        chances = np.zeros(len(LEVELS))
        chances[best] = 0.5
        chances[max(best - 1, 0)] += 0.25
        chances[min(best + 1, len(LEVELS) - 1)] += 0.25
        probabilities.append(chances)
    return probabilities


def least_variances(free: Array) -> Array:
    """Least variances of a step, coordinate by coordinate: a small part of the variances of these walkers."""
    return 1e-8 * np.maximum(free[np.isfinite(free).all(axis=1)].var(axis=0), 1e-8)


def moving_supports(space: Space) -> set[str]:
    """Parameters whose support depends on other parameters, a single point (Delta) included.

    Their value may change when a parent's does, though their coordinates stay.
    """
    model, numbers = space.model, (bool, int, float, np.ndarray, np.generic)

    def is_moving(law: Distribution) -> bool:
        return is_fixed(law) or not all(isinstance(leaf, numbers) for leaf in jax.tree.leaves(law.support))

    def look(values: Any) -> set[str]:
        return {name for name in space.continuous if is_moving(model.law_at(name, values))}

    return {name for name in seen(look, model.row(space.names)) if model.parents(name)}


def usable_walkers(
    moves: Moves, rng: np.random.Generator, wanted: int, target: LogFactor, poll: Poll
) -> tuple[Walkers | None, int]:
    """Walkers drawn from the prior, and the number of rows simulated.

    Rounds go on until `wanted` walkers could have given the release, or 64 are over; None where no walker could.
    """
    parts: list[Walkers] = []
    cells = sum(moves.model.cost_of_row(name) for name in moves.statistics)
    rows, rounds = max(2**8, min(2**12, 2**19 // cells)), 64
    for number in range(1, rounds + 1):
        parts.append(moves.from_prior(rng, rows, target, poll))
        usable = sum(int(np.sum(np.isfinite(part.height) & np.isfinite(part.log_prior))) for part in parts)
        if usable >= wanted or (usable and number >= rounds):
            return side_by_side(parts), number * rows
    return None, rounds * rows


def side_by_side(parts: list[Walkers]) -> Walkers:
    """The walkers of all parts, joined."""
    first = parts[0]
    return Walkers(
        np.concatenate([part.free for part in parts]),
        {name: np.concatenate([part.parameters[name] for part in parts]) for name in first.parameters},
        np.concatenate([part.log_prior for part in parts]),
        {name: np.concatenate([part.statistics[name] for part in parts]) for name in first.statistics},
        np.concatenate([part.log_eta for part in parts]),
    )


def chosen_by_weight(rng: np.random.Generator, walkers: Walkers, size: int) -> Array:
    """Indices of `size` walkers drawn by weight (largest log weight + Gumbel), distinct unless there are too few."""
    log_weights = np.where(np.isfinite(walkers.log_prior), walkers.height, -np.inf)
    order = np.argsort(-(log_weights + rng.gumbel(size=len(log_weights))), kind="stable")
    return np.resize(order[: min(size, int(np.sum(log_weights > -np.inf)))], size)


def weighted_cloud(rng: np.random.Generator, walkers: Walkers, size: int) -> Walkers:
    """Walkers resampled by weight."""
    log_weights = np.where(np.isfinite(walkers.log_prior), walkers.height, -np.inf)
    return walkers.take(weights.systematic(rng, log_weights, size))


def _most(item: Released) -> float:
    """Upper bound of log eta_t of one released statistic, 0 <= t <= 1: powers t of a density below 1 go up to 1."""
    return float(np.sum(np.maximum(np.asarray(item.mechanism.log_sup(item.value), dtype=float), 0.0)))


def _chosen(mask: Array, first: Array, second: Array) -> Array:
    return np.where(mask.reshape(-1, *(1,) * (first.ndim - 1)), first, second)


def _factor(covariance: Array, columns: list[int]) -> Array:
    if covariance.ndim == 1:
        return np.asarray(np.sqrt(covariance[columns]))
    return np.asarray(np.linalg.cholesky(covariance[np.ix_(columns, columns)])) if columns else np.zeros((0, 0))
