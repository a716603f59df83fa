"""Sequential Monte Carlo from the prior to the posterior (Del Moral, Doucet and Jasra 2006).

Populations of walkers ("islands") pass through targets pi0(theta) pi(s | theta) eta_t(s), from the prior at t = 0 to
the exact posterior at t = 1: weighted by the ratio of one eta_t to the one before, resampled, moved. A scouting
population chooses the temperatures and adapts the moves; all islands then run with them frozen, so that the evidence is
unbiased.
Proofs: docs/derivations/smc.md.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.checkpoint.log import NOTHING, Log
from noisewise.diagnostics import chains as diagnostics
from noisewise.diagnostics import weights
from noisewise.engine import Engine, gather
from noisewise.errors import refusal
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.settings import Sampler
from noisewise.mechanisms import Exact, Mechanism
from noisewise.mechanisms.additive import Additive
from noisewise.mechanisms.clipped import Clipped
from noisewise.mechanisms.latent_scale import LatentScale
from noisewise.mechanisms.product import Product
from noisewise.mechanisms.rounded import Rounded
from noisewise.model.coordinates import unwalkable
from noisewise.numerics import Array
from noisewise.results.posterior import Posterior
from noisewise.samplers.judging import OutOfTime, posterior_of
from noisewise.samplers.walking.moves import (
    LEVELS,
    Columns,
    Kernel,
    Moves,
    Poll,
    Walkers,
    affordable,
    best_lengths,
    height,
    least_variances,
)

LEAST_PARTICLES, MOST_SCOUTS = 512, 8192
MOST_STAGES, MOST_SWEEPS = 400, 200
LEFT_BEHIND, LEFT_AT_THE_END = 0.05, 0.005
"""Share of walkers expected not to have moved after a stage, and after the last; `MOST_SWEEPS` may leave more."""
FAR = 1e12
"""So far from the release that only noise without bound still has a density."""


@dataclass(frozen=True)
class SMC(Sampler):
    """Settings. The result has at least `draws` rows: every island gives equally many.

    `islands`: independent populations; their spread measures the error of every estimate. `particles`: walkers in each;
    None for the rows asked of it, and at least 512. `simulations`: sets of statistics that each walker holds; None for
    up to 8 where they are cheap. `keep`: the share of effective walkers that a change of temperature leaves.
    `schedule`: temperatures from above 0 to 1; None to choose them by a scouting population. `max_seconds` limits the
    time, `max_proposals` the simulated rows: those of the scouts count, but are never cut short by it.
    """

    islands: int = 16
    particles: int | None = None
    simulations: int | None = None
    keep: float = 0.5
    schedule: tuple[float, ...] | None = None
    min_ess: float = 400.0
    max_proposals: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._whole("islands", 2, "The default is 16.")
        self._whole("particles", 8, "Or None, to follow the draws asked for.", optional=True)
        self._whole("simulations", 1, "Or None, to choose.", optional=True)
        keep = checks.positive_number("SMC", "keep", self.keep, "The default is 0.5.")
        if keep >= 1.0:
            raise refusal("SMC", "keep", "must be below 1", keep, "The default is 0.5.")
        self._keep(keep=keep)
        if self.schedule is not None:
            self._keep(schedule=_checked_schedule(self.schedule))

    def unfit(self, problem: Problem) -> str | None:
        """Needs noise, or statistics that are whole numbers; and a prior that coordinates can reach."""
        return problem.never_accepted() or unwalkable(problem.model)

    def run(
        self, problem: Problem, draws: int, seed: int, engine: Engine, progress: Progress, log: Log = NOTHING
    ) -> Posterior:
        """Scouts, then the islands."""
        log.agree("draws", draws)
        run = _Run(self, problem, draws, seed, engine, progress, log)
        try:
            with progress:
                run.learn()
                run.sail()
        except (KeyboardInterrupt, OutOfTime) as stop:
            run.stopped(by_clock=isinstance(stop, OutOfTime))
        return run.posterior()


def _checked_schedule(schedule: Any) -> tuple[float, ...]:
    advice = "Pass back posterior.diagnostics['schedule'], or None."
    values = np.atleast_1d(checks.numeric("SMC", "schedule", schedule, advice))
    if values.ndim != 1 or not (len(values) and values[0] > 0 and values[-1] == 1.0 and np.all(np.diff(values) > 0)):
        raise refusal("SMC", "schedule", "must increase from above 0 to 1", schedule, advice)
    return tuple(float(value) for value in values)


# From the prior to the posterior -------------------------------------------------------------------------------------


class Bridge:
    """eta_t: 1 at t = 0, the noise density itself at t = 1, in between the more informative the larger t."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __call__(self, t: float, name: str, values: Any) -> Array:
        """log eta_t of one released statistic, for each row."""
        rows, item = len(values[name]), self.problem.release[name]
        if t == 0.0:
            return np.zeros(rows)
        if t == 1.0:
            return self.problem.log_eta(name, values)
        extra = {other: values[other] for other in item.mechanism.inputs}
        with np.errstate(over="ignore", under="ignore"):
            log_eta = np.asarray(widened(item.mechanism, t, item.value, values[name], extra))
        return log_eta.reshape(rows, -1).sum(axis=1)


def widened(mechanism: Mechanism, t: float, released: Any, confidential: Any, inputs: dict[str, Any]) -> Any:
    """log eta_t of one mechanism, 0 < t < 1, entry by entry.

    Continuous noise of bounded support: the density at t times the distance, that is, noise 1/t times as wide (a
    power of zero would stay zero). Values without noise: exp(-|difference| t / (1 - t)). All else: the density to the
    power of t.
    """
    if isinstance(mechanism, Product):
        columns = []
        for index, part in enumerate(mechanism.parts):
            own = {name: inputs[name] for name in part.inputs}
            columns.append(widened(part, t, np.asarray(released)[..., index], confidential[..., index], own))
        return np.stack(columns, axis=-1)
    if isinstance(mechanism, Exact):
        return -(t / (1.0 - t)) * np.abs(released - confidential)
    if has_bounds(mechanism, released):
        return mechanism.log_prob(released, released - t * (released - confidential), **inputs)
    log_eta = np.asarray(mechanism.log_prob(released, confidential, **inputs))
    return t * log_eta


def has_bounds(mechanism: Mechanism, released: Any) -> bool:
    """Whether the noise is continuous with bounded support, and releases are on the scale of confidential values."""
    if not isinstance(mechanism, (Additive, LatentScale, Rounded, Clipped)) or mechanism.integers:
        return False
    inner: Any = mechanism
    while isinstance(inner, (Rounded, Clipped)):
        inner = inner.base
    noise = inner.base if isinstance(inner, LatentScale) else inner
    if not isinstance(noise, Additive) or not np.all(np.isfinite(released)):
        return False
    far = np.full(np.shape(released), FAR)
    return bool(np.any(np.asarray(noise.log_prob(far, np.zeros_like(far))) == -np.inf))


def next_temperature(weigh: Callable[[float], Array], now: float, keep: float) -> float:
    """The largest temperature whose weights leave the share `keep` of effective walkers, by bisection.

    Walkers that no temperature above `now` leaves alive do not count: no small step could save them.
    """
    low, high = now + 1e-12 * (1.0 - now), 1.0
    if now > 1.0 - 1e-6:  # nothing is left to bridge: walkers that cannot have given the release are lost now
        return high
    wanted = keep * weights.effective_size(weigh(low))
    if wanted == 0.0 or weights.effective_size(weigh(high)) >= wanted:
        return high
    return weights.largest_power(lambda power: weights.effective_size(weigh(power)) >= wanted, low, high, halvings=60)


# Populations ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """What every island does at one temperature, whatever its own walkers look like."""

    temperature: float
    kernel: Kernel
    sweeps: int


@dataclass
class Island:
    """A finished population."""

    walkers: Walkers | None
    log_evidence: float
    moved: Array
    """Share of walkers that each sweep moved, stage by stage."""


@dataclass
class Voyage:
    """Moves and targets of one problem."""

    moves: Moves
    bridge: Bridge

    def embark(self, rng: np.random.Generator, size: int, poll: Poll) -> Walkers:
        """Walkers drawn from the prior."""
        return self.moves.from_prior(rng, size, partial(self.bridge, 0.0), poll)

    def reweigh(self, walkers: Walkers, now: float, then: float) -> Array:
        """log of eta_then / eta_now, before any move at the new temperature."""
        old = walkers.height
        new = height(self.moves.weigh(walkers, partial(self.bridge, then)))
        usable = np.isfinite(walkers.log_prior) if now == 0.0 else True
        return np.where(usable & (new > -np.inf), new - old, -np.inf)

    def resample(self, rng: np.random.Generator, walkers: Walkers, log_weights: Array, then: float) -> Walkers:
        """Walkers of equal weight at the new temperature."""
        chosen = walkers.take(weights.systematic(rng, log_weights, len(walkers)))
        chosen.log_eta = self.moves.weigh(chosen, partial(self.bridge, then))
        return chosen

    def sweep(
        self, rng: np.random.Generator, walkers: Walkers, kernel: Kernel, t: float, poll: Poll, *, fresh: bool
    ) -> tuple[Array, Array, float]:
        """Every move once, and the share of walkers that moved at all."""
        free, log_eta = walkers.free, walkers.log_eta
        whole = {name: walkers.parameters[name] for name in self.moves.space.discrete}
        sums, tried = self.moves.sweep(rng, walkers, kernel, partial(self.bridge, t), poll, fresh=fresh)
        still = np.all(free == walkers.free, axis=1) & np.all(log_eta == walkers.log_eta, axis=(1, 2))
        for name, values in whole.items():
            still &= np.all((values == walkers.parameters[name]).reshape(len(walkers), -1), axis=1)
        return sums, tried, float(1.0 - np.mean(still))

    def learn(
        self,
        rng: np.random.Generator,
        size: int,
        keep: float,
        schedule: tuple[float, ...] | None,
        log: Log,
        poll: Poll,
    ) -> tuple[list[Stage], int]:
        """The stages a scouting population finds, and the rows it simulated; no stages where it died out."""
        walkers, now, rows = self.embark(rng, size, poll), 0.0, size * self.moves.simulations
        stages: list[Stage] = []
        floor = least_variances(walkers.free)
        log.same(walkers, "starts")
        if (record := log.get("pilot", classes=[Walkers, Stage, Kernel])) is not None:
            rng, walkers, stages, rows = (record[name] for name in ("rng", "walkers", "stages", "rows"))
            if len(stages) > MOST_STAGES or not all(0 < stage.sweeps <= MOST_SWEEPS for stage in stages):
                raise log.refusal("a stage has more sweeps than any can have")
            now = stages[-1].temperature
        while now < 1.0 and len(stages) < MOST_STAGES:
            weigh = partial(self.reweigh, walkers, now)
            then = schedule[len(stages)] if schedule else next_temperature(weigh, now, keep)
            log_weights = self.reweigh(walkers, now, then)
            if not np.any(log_weights > -np.inf):
                return [], rows
            walkers = self.resample(rng, walkers, log_weights, then)
            kernel, sweeps = self._tune(rng, walkers, then, floor, poll)
            rows += sweeps * size * self.moves.cost
            stages.append(Stage(then, kernel, sweeps))
            now = then
            if now == 1.0 or log.due():
                log.save({"rng": rng, "walkers": walkers, "stages": stages, "rows": rows}, "pilot")
        return (stages if now == 1.0 else []), rows

    def _tune(
        self, rng: np.random.Generator, walkers: Walkers, t: float, floor: Array, poll: Poll
    ) -> tuple[Kernel, int]:
        """Shape and length of steps for one stage, and how many sweeps it needs; the scouts move on with them."""
        kernel = self.moves.kernel(walkers.free, walkers.parameters, floor)
        sums, tried = np.zeros((len(self.moves.list), len(LEVELS))), np.zeros((len(self.moves.list), len(LEVELS)))
        for _ in range(2):  # all lengths alike, to see which serve
            counts = self.sweep(rng, walkers, kernel, t, poll, fresh=False)
            sums, tried = sums + counts[0], tried + counts[1]
        kernel = self.moves.kernel(walkers.free, walkers.parameters, floor, best_lengths(sums, tried))
        moved = self.sweep(rng, walkers, kernel, t, poll, fresh=False)[2]
        share_left = LEFT_AT_THE_END if t == 1.0 else LEFT_BEHIND
        needed = math.log(share_left) / math.log1p(-min(max(moved, 1e-3), 1.0 - 1e-9))
        sweeps = int(np.clip(math.ceil(needed), 3, MOST_SWEEPS))
        for _ in range(sweeps - 3):
            self.sweep(rng, walkers, kernel, t, poll, fresh=False)
        return kernel, sweeps

    def sail(self, seed: int, size: int, stages: list[Stage], log: Log, number: int, poll: Poll) -> Island:
        """The island of that number, on its own random stream."""
        rng = generator(seed, Purpose.PARTICLES, number)
        return self.island(rng, size, stages, poll, log.within("island", number))

    def island(
        self, rng: np.random.Generator, size: int, stages: list[Stage], poll: Poll, log: Log = NOTHING
    ) -> Island:
        """One population through all stages; every temperature and every kernel fixed in advance."""
        shares: list[float] = []
        if (record := log.get("state", classes=[Walkers])) is not None:
            rng, walkers, shares, log_evidence = (record[name] for name in ("rng", "walkers", "shares", "log_evidence"))
        else:
            walkers, log_evidence = self.embark(rng, size, poll), 0.0
        now = stages[len(shares) - 1].temperature if shares else 0.0
        for stage in stages[len(shares) :]:
            log_weights = self.reweigh(walkers, now, stage.temperature)
            log_evidence += weights.log_mean(log_weights)
            if log_evidence == -np.inf:
                return Island(None, log_evidence, np.asarray(shares))
            walkers, now = self.resample(rng, walkers, log_weights, stage.temperature), stage.temperature
            moved = [
                self.sweep(rng, walkers, stage.kernel, now, poll, fresh=sweep == 0)[2] for sweep in range(stage.sweeps)
            ]
            shares.append(float(np.mean(moved)))
            if now == 1.0 or log.due():
                state = {"rng": rng, "walkers": walkers, "shares": shares, "log_evidence": log_evidence}
                log.save(state | {"done": len(shares), "total": len(stages)}, "state")
        return Island(walkers, log_evidence, np.asarray(shares))


class _Run:
    """One run: its settings, stages, and the islands finished so far."""

    def __init__(
        self, sampler: SMC, problem: Problem, draws: int, seed: int, engine: Engine, progress: Progress, log: Log
    ) -> None:
        self.sampler, self.problem, self.draws, self.seed = sampler, problem, draws, seed
        self.engine, self.progress, self.log = engine, progress, log
        self.began = time.monotonic()
        self.rows = -(-draws // sampler.islands)
        self.size = sampler.particles or max(LEAST_PARTICLES, self.rows)
        if self.size < self.rows:
            rule = f"must be at least the {self.rows} rows asked of each of {sampler.islands} islands"
            raise refusal("SMC", "particles", rule, self.size, "Ask for fewer draws, or leave it out.")
        self.voyage = Voyage(Moves(problem, sampler.simulations or affordable(problem)), Bridge(problem))
        self.stages: list[Stage] = []
        self.finished: dict[int, Island] = {}
        self.proposals = 0
        self.status, self.message = "complete", ""

    def tick(self) -> None:
        """Show progress; stop by the clock."""
        done = len(self.finished) * self.rows
        self.progress.update(done, self.rows * self.sampler.islands, lambda: self.proposals)
        limit = self.sampler.max_seconds
        if limit is not None and time.monotonic() - self.began > limit:
            raise OutOfTime

    def learn(self) -> None:
        """Temperatures and moves, from a population that is not used again."""
        rng, size = generator(self.seed, Purpose.PILOT), min(max(self.size, LEAST_PARTICLES), MOST_SCOUTS)
        work = partial(self.voyage.learn, rng, size, self.sampler.keep, self.sampler.schedule, self.log)
        self.stages, rows = gather(self.engine, [work], self.tick, portable=not self.log)[0]
        self.proposals += rows
        if not self.stages:
            self.status = "hopeless"
            self.message = (
                f"a scouting population of {size} walkers died out on its way from the prior to the posterior: none of "
                "them could have given the release. Check the model's support against the released values, or raise "
                "particles."
            )

    def sail(self) -> None:
        """All islands, each on its own random stream."""
        if not self.stages:
            return
        moves = self.voyage.moves
        cost = self.size * (moves.simulations + moves.cost * sum(stage.sweeps for stage in self.stages))
        islands, limit = self.sampler.islands, self.sampler.max_proposals
        if limit is not None and self.proposals + islands * cost > limit:
            islands = max(0, (limit - self.proposals) // cost)
            self.status = "max_proposals"
            self.message = (
                f"max_proposals={limit} allowed {islands} of {self.sampler.islands} islands, each of {cost} simulated "
                "rows. Raise it, or ask for fewer draws or particles."
            )
        sail = partial(self.voyage.sail, self.seed, self.size, self.stages, self.log)
        works = [partial(sail, number) for number in range(islands)]
        # States of islands on their way are kept in the checkpoint by the threads of this process alone.
        gather(self.engine, works, self.tick, portable=not self.log, seen=self.finished.__setitem__)
        self.proposals += islands * cost

    def stopped(self, *, by_clock: bool) -> None:
        """Say how a run that did not finish was stopped."""
        progress = f"with {len(self.finished)} of {self.sampler.islands} islands"
        bias = " Islands that are quick to simulate are more likely to be among them."
        if by_clock:
            self.status = "max_seconds"
            self.message = f"stopped by the clock after max_seconds={self.sampler.max_seconds:g} {progress}.{bias}"
        else:
            self.status, self.message = "interrupted", f"interrupted {progress}.{bias}"

    # The end ---------------------------------------------------------------------------------------------

    def posterior(self) -> Posterior:
        """Equally many rows of every island, unweighted."""
        order = sorted(self.finished)
        alive = [number for number in order if self.finished[number].walkers is not None]
        columns = self._columns(alive)
        numbers: dict[str, Any] = {"schedule": tuple(stage.temperature for stage in self.stages)}
        numbers |= {"sweeps": tuple(stage.sweeps for stage in self.stages), "particles": self.size}
        logs = np.array([self.finished[number].log_evidence for number in order])
        if alive:
            moved = np.mean([self.finished[number].moved for number in alive], axis=0)
            numbers |= {"moved": tuple(float(share) for share in moved)}
            numbers |= {"log_evidences": tuple(float(value) for value in logs)}
            self._judge(columns, len(alive), len(order), numbers)
        return posterior_of(
            self.sampler,
            self.problem,
            self.seed,
            columns,
            status=self.status,
            message=self.message,
            proposals=self.proposals,
            acceptance_rate=float(numbers["moved"][-1]) if alive else None,
            log_evidence=weights.log_mean(logs) if len(logs) else None,
            log_evidence_se=weights.log_mean_se(logs) if len(logs) else None,
            seconds=time.monotonic() - self.began,
            diagnostics=numbers,
            islands=len(alive) or None,
        )

    def _columns(self, alive: list[int]) -> Columns:
        parts = []
        for number in alive:
            walkers = self.finished[number].walkers
            assert walkers is not None
            rng = generator(self.seed, Purpose.RESAMPLING, number)
            picked = walkers.take(rng.permutation(len(walkers))[: self.rows])
            parts.append(picked.rows(rng, self.voyage.moves.parts))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}

    def _judge(self, columns: Columns, alive: int, total: int, numbers: dict[str, Any]) -> None:
        """Effective rows by the islands' spread; of continuous values, no more than there are distinct rows."""
        flat = {name: values.reshape(len(values), -1) for name, values in columns.items()}
        joined = np.concatenate(list(flat.values()), axis=1)
        labels = [name for name, values in flat.items() for _ in range(values.shape[1])]
        distinct = len(np.unique(joined, axis=0))
        # Whole numbers may repeat; of continuous values, equal rows are copies.
        copies = any(values.dtype.kind == "f" for values in columns.values())
        sizes = diagnostics.island_size(diagnostics.by_chain(joined, alive))
        known = np.where(np.isnan(sizes), np.inf, sizes)
        worst = int(np.argmin(known))
        effective = min(float(known[worst]), float(distinct if copies else len(joined)))
        numbers |= {"distinct": distinct, "ess": effective, "ess_of": labels[worst]}
        if self.status != "complete":
            return
        if alive < total:
            self.status = "no_weight"
            self.message = (
                f"{total - alive} of {total} islands died out: none of their walkers could have given the release. The "
                "evidence counts them; the draws cannot. Raise particles, or keep."
            )
        elif effective < self.sampler.min_ess:
            self.status = "low_ess"
            self.message = (
                f"the draws of {labels[worst]} are worth {effective:.0f} independent ones, fewer than "
                f"min_ess={self.sampler.min_ess:g}. Ask for more draws."
            )


__all__ = ["SMC"]
