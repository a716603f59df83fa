"""MCMC on parameters and simulated statistics (Marjoram et al. 2003), and its pseudo-marginal form.

Hundreds of chains advance together, in up to 16 groups. Proposals adapt while the chains warm up and are frozen
afterwards. The estimate of the likelihood at a chain's current state is kept, never simulated again.
Proofs: docs/derivations/mcmc.md.
"""

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from noisewise.checkpoint.log import NOTHING, Log
from noisewise.diagnostics import chains as diagnostics
from noisewise.engine import Engine, gather
from noisewise.errors import refusal
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.settings import Sampler
from noisewise.model.coordinates import unwalkable
from noisewise.numerics import Array
from noisewise.results.posterior import Posterior
from noisewise.samplers.judging import OutOfTime, judge_chains, posterior_of
from noisewise.samplers.walking.moves import (
    Columns,
    Kernel,
    Moves,
    Poll,
    Walkers,
    affordable,
    best_lengths,
    chosen_by_weight,
    least_variances,
    side_by_side,
    usable_walkers,
    weighted_cloud,
)

SUPERCHAINS = 16
"""Distinct starts; neighbouring chains share one where there are more chains."""
FRESH = 8
"""Every so many sweeps, one proposal comes from the prior."""
ROUNDS = 16
"""Most pieces that the draws are made in, unless `LOST` asks for more: limits are checked between two pieces."""
MOST_THINNING = 100
SNAPSHOTS, TRACED = 16, 32
"""Positions kept of each warm-up window for the proposal's shape; coordinates followed to choose the thinning."""
LOST = 2**24
"""Most numbers that one group simulates in a piece: an interruption loses no more."""
CELLS = 2**13
"""Numbers simulated per sweep by one group of chains, before the chains are cut into more groups."""


@dataclass(frozen=True)
class MCMC(Sampler):
    """Settings of the Markov chains. The result has at least `draws` rows: every chain is equally long.

    `simulations`: sets of statistics simulated per step; 1 is Marjoram's algorithm, None for up to 8 where they are
    cheap. `chains`: at most 16, each with a start of its own, or a multiple of 16; fewer are run where `draws` is
    small. `warmup`: sweeps that adapt and are thrown away. `thin`: sweeps from one kept draw to the next; None to
    choose it from the warm-up. `max_seconds` limits the time, `max_proposals` the simulated rows: those of starts and
    warm-up count, but are never cut short by it.
    """

    simulations: int | None = None
    chains: int = 256
    warmup: int = 256
    thin: int | None = None
    min_ess: float = 400.0
    max_proposals: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._whole("simulations", 1, "1 is Marjoram's algorithm; None chooses.", optional=True)
        self._whole("chains", 1, "The default is 256.")
        self._whole("warmup", 16, "The default is 256.")
        self._whole("thin", 1, "Or None, to choose it from the warm-up.", optional=True)
        if self.chains > SUPERCHAINS and self.chains % SUPERCHAINS:
            rule = f"must be at most {SUPERCHAINS}, or a multiple of {SUPERCHAINS}"
            raise refusal("MCMC", "chains", rule, self.chains, "The default is 256.")

    def unfit(self, problem: Problem) -> str | None:
        """Needs noise, or statistics that are whole numbers; and a prior that coordinates can reach."""
        return problem.never_accepted() or unwalkable(problem.model)

    def run(
        self, problem: Problem, draws: int, seed: int, engine: Engine, progress: Progress, log: Log = NOTHING
    ) -> Posterior:
        """Warm up, freeze, draw."""
        log.agree("draws", draws)
        run = _Run(self, problem, draws, seed, engine, progress, log)
        try:
            with progress:
                run.start()
                if run.groups:
                    run.warm_up()
                    run.draw()
        except (KeyboardInterrupt, OutOfTime) as stop:
            run.stopped(by_clock=isinstance(stop, OutOfTime))
        return run.posterior()


def layout(sampler: MCMC, draws: int) -> tuple[int, int]:
    """(chains, length): fewer chains where draws are few, and none too short for its diagnostics."""
    chains = sampler.chains
    if chains > SUPERCHAINS and draws < SUPERCHAINS * chains:
        chains = SUPERCHAINS * max(1, draws // SUPERCHAINS**2)
    return chains, max(8, -(-draws // chains))


@dataclass(frozen=True)
class Walk:
    """How a group of chains moves: all that a piece of work needs beside the walkers, wherever it runs."""

    moves: Moves
    kernel: Kernel
    seed: int

    def place(self, piece: Walkers, group: int, poll: Poll) -> Walkers:
        """Walkers at the starts chosen for them."""
        rng = generator(self.seed, Purpose.STARTS, group)
        return self.moves.placed(rng, piece, self.moves.problem.log_eta, poll)

    def warm(self, walkers: Walkers, group: int, before: int, length: int, poll: Poll) -> tuple[Any, ...]:
        """One window of one group: walkers, sums for adaptation, snapshots and a trace."""
        rng = generator(self.seed, Purpose.WARMUP, before, group)
        total: Any = 0.0
        tried: Any = 0.0
        snapshots, trace = [], []
        for number in range(length):
            counts = self.sweep(rng, walkers, before + number, poll)
            total, tried = total + counts[0], tried + counts[1]
            if number % max(1, length // SNAPSHOTS) == 0:
                snapshots.append(walkers.take(np.arange(len(walkers))))
            followed = [walkers.free[:, :TRACED], walkers.height[:, None]]
            followed += [
                walkers.parameters[name].reshape(len(walkers), -1)[:, :TRACED] for name in self.moves.space.discrete
            ]
            trace.append(np.concatenate(followed, axis=1))
        return walkers, total, tried, side_by_side(snapshots), np.stack(trace, axis=1)

    def draw(
        self, walkers: Walkers, group: int, before: int, length: int, thin: int, sweeps: int, poll: Poll
    ) -> tuple[Walkers, Array, Array, Columns]:
        """`length` kept draws of one group, after `before` of them and a warm-up of `sweeps`."""
        rng = generator(self.seed, Purpose.CHAINS, before, group)
        walkers = walkers.take(np.arange(len(walkers)))  # a round that is cut short leaves its start as it was
        rows: list[Columns] = []
        accepted: Any = 0.0
        tried: Any = 0.0
        for draw in range(before, before + length):
            for sweep in range(thin):
                counts = self.sweep(rng, walkers, sweeps + draw * thin + sweep, poll)
                accepted, tried = accepted + counts[0].sum(axis=1), tried + counts[1].sum(axis=1)
            rows.append(walkers.rows(rng, self.moves.parts))
        return walkers, accepted, tried, {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}

    def sweep(self, rng: np.random.Generator, walkers: Walkers, number: int, poll: Poll) -> tuple[Array, Array]:
        """Every move once; now and then with a proposal from the prior."""
        fresh = number % FRESH == 0
        return self.moves.sweep(rng, walkers, self.kernel, self.moves.problem.log_eta, poll, fresh=fresh)


def start(moves: Moves, seed: int, poll: Poll) -> tuple[Walkers | None, int, np.random.Generator]:
    """Weighted draws of the prior to start from, the number of rows simulated, and the generator as they leave it."""
    rng = generator(seed, Purpose.PILOT)
    return *usable_walkers(moves, rng, SUPERCHAINS, moves.problem.log_eta, poll), rng


@dataclass
class _Run:
    """One run: its settings, and all that it has drawn so far."""

    sampler: MCMC
    problem: Problem
    draws: int
    seed: int
    engine: Engine
    progress: Progress
    log: Log = NOTHING
    groups: list[Walkers] = field(default_factory=list)
    status: str = "complete"
    message: str = ""
    proposals: int = 0
    thin: int = 1
    sweeps: int = 0
    rounds: list[list[Columns]] = field(default_factory=list)
    """Draws by group and by round: columns of shape (chains, length, ...)."""
    accepted: Array = field(default_factory=lambda: np.zeros(0))
    tried: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.chains, self.length = layout(self.sampler, self.draws)
        self.moves = Moves(self.problem, self.sampler.simulations or affordable(self.problem))
        self.count = 0

    @property
    def walk(self) -> Walk:
        return Walk(self.moves, self.kernel, self.seed)

    @property
    def superchains(self) -> int | None:
        return SUPERCHAINS if self.chains > SUPERCHAINS else None

    def tick(self) -> None:
        """Show progress; stop by the clock."""
        limit = self.sampler.max_seconds
        done = self.count * self.chains
        self.progress.update(done, self.length * self.chains, lambda: self.proposals)
        if limit is not None and time.monotonic() - self.began > limit:
            raise OutOfTime

    # Phases ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts chosen by weight from draws of the prior; steps shaped like the weighted draws."""
        work = partial(start, Moves(self.problem), self.seed)
        walkers, rows, rng = gather(self.engine, [work], self.tick, portable=True)[0]
        self.proposals += rows
        if walkers is None:
            self.status = "hopeless"
            self.message = (
                f"none of {rows} draws of the prior could have given the release, so there is nowhere to start from. "
                "Check the model's support against the released values, or use a sampler that approaches them in steps."
            )
            return
        self.floor = least_variances(walkers.free)
        cloud = weighted_cloud(rng, walkers, 1024)
        self.kernel = self.moves.kernel(cloud.free, cloud.parameters, 1e4 * self.floor)
        starts = walkers.take(chosen_by_weight(rng, walkers, min(self.chains, SUPERCHAINS)))
        spread = starts.take(np.repeat(np.arange(len(starts)), self.chains // len(starts)))
        cut = self._groups()
        size = self.chains // cut
        pieces = [spread.take(np.arange(size) + group * size) for group in range(cut)]
        works = [partial(self.walk.place, piece, group) for group, piece in enumerate(pieces)]
        self.groups = gather(self.engine, works, self.tick, portable=True)
        self.log.same(self.groups, "starts")
        self.rounds = [[] for _ in self.groups]

    def _groups(self) -> int:
        """Groups of chains that advance together: by model and settings alone, so that threads change nothing."""
        cells = self.chains * self.moves.simulations
        cells *= sum(self.problem.model.cost_of_row(name) for name in self.moves.statistics)
        most = SUPERCHAINS if self.superchains else 1
        cut = 1
        while cut < most and cells > CELLS * cut:
            cut *= 2
        return cut

    def warm_up(self) -> None:
        """Windows of growing length; after each, steps take the shape of where the chains have been."""
        before, window = 0, 16
        while before < self.sampler.warmup:
            left = self.sampler.warmup - before
            length = left if left < 2 * window else window
            walk = self.walk
            works = [partial(walk.warm, walkers, group, before, length) for group, walkers in enumerate(self.groups)]
            log = self.log.within("warm-up")
            results = log.gather(self.engine, works, self.tick, before, classes=[Walkers], portable=True)
            self.groups = [result[0] for result in results]
            self.proposals += length * self.chains * self.moves.cost
            sums, tried = sum(result[1] for result in results), sum(result[2] for result in results)
            cloud = side_by_side([result[3] for result in results])
            before, window = before + length, max(16, before + length)
            lengths = best_lengths(sums, tried) if before >= self.sampler.warmup else None
            self.kernel = self.moves.kernel(cloud.free, cloud.parameters, self.floor, lengths)
        self.sweeps = before
        self.thin = self.sampler.thin or _thinning(np.concatenate([result[4] for result in results]))

    def draw(self) -> None:
        """Kept draws, from a kernel that no longer changes."""
        piece = min(-(-self.length // ROUNDS), self._longest())
        limit = self.sampler.max_proposals
        while self.count < self.length:
            length = min(piece, self.length - self.count)
            cost = length * self.thin * self.chains * self.moves.cost
            if limit is not None and self.proposals + cost > limit:
                self.status = "max_proposals"
                self.message = (
                    f"max_proposals={limit} allowed {self.count * self.chains} of {self.draws} draws "
                    f"(warm-up included, one sweep in {self.thin} kept). Raise it, or ask for fewer draws."
                )
                return
            walk, numbers = self.walk, (self.count, length, self.thin, self.sweeps)
            works = [partial(walk.draw, walkers, number, *numbers) for number, walkers in enumerate(self.groups)]
            log = self.log.within("draws")
            results = log.gather(self.engine, works, self.tick, self.count, classes=[Walkers], portable=True)
            self.groups = [result[0] for result in results]
            self.accepted = np.sum([result[1] for result in results], axis=0) + (self.accepted if self.count else 0.0)
            self.tried = np.sum([result[2] for result in results], axis=0) + (self.tried if self.count else 0.0)
            for group, result in enumerate(results):
                self.rounds[group].append(result[3])
            self.proposals += cost
            self.count += length
            self.log.put({"done": self.count, "total": self.length}, "draws", "done")

    def _longest(self) -> int:
        """Draws of each chain in one piece, so that an interruption never loses much."""
        cells = self.thin * self.chains * self.moves.cost // len(self.groups)
        cells *= sum(self.problem.model.cost_of_row(name) for name in self.moves.statistics)
        return max(1, LOST // max(1, cells))

    # The end ---------------------------------------------------------------------------------------------

    def stopped(self, *, by_clock: bool) -> None:
        """Say how a run that did not finish was stopped."""
        progress = f"with {self.count * self.chains} of {self.draws} draws"
        if by_clock:
            self.status = "max_seconds"
            self.message = f"stopped by the clock after max_seconds={self.sampler.max_seconds:g} {progress}. Raise it."
        else:
            self.status, self.message = "interrupted", f"interrupted {progress}."
        if self.count < 8:
            self.message += " Chains this short have hardly left their warm-up."

    def posterior(self) -> Posterior:
        """The draws, chain by chain, and the verdict on them."""
        columns: Columns = {}
        numbers: dict[str, Any] = {}
        if self.count:
            names = self.rounds[0][0]
            stacked = {
                name: np.concatenate([np.concatenate([part[name] for part in parts], axis=1) for parts in self.rounds])
                for name in names
            }
            columns = {name: values.reshape(-1, *values.shape[2:]) for name, values in stacked.items()}
            status, message, numbers = judge_chains(
                columns, self.chains, self.superchains, self.sampler.min_ess, self.problem.axes
            )
            if self.status == "complete":
                self.status, self.message = status, message
            rates = self.accepted / np.maximum(self.tried, 1.0)
            numbers |= {"acceptance": {move.label: float(r) for move, r in zip(self.moves.list, rates, strict=True)}}
        numbers |= {"thin": self.thin, "warmup": self.sweeps, "simulations": self.moves.simulations}
        return posterior_of(
            self.sampler,
            self.problem,
            self.seed,
            columns,
            status=self.status,
            message=self.message,
            acceptance_rate=float(self.accepted[0] / max(self.tried[0], 1.0)) if self.count else None,
            proposals=self.proposals,
            seconds=time.monotonic() - self.began,
            diagnostics=numbers,
            chains=self.chains if self.count else None,
            superchains=self.superchains if self.count else None,
        )


def _thinning(trace: Array) -> int:
    """Half the sweeps that one independent draw takes, by the slowest of the coordinates followed."""
    size = diagnostics.bulk_size(trace)
    known = size[~np.isnan(size)]
    if not known.size:
        return 1
    return int(np.clip(np.ceil(0.5 * trace.shape[0] * trace.shape[1] / known.min()), 1, MOST_THINNING))


__all__ = ["MCMC"]
