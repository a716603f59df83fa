"""NUTS: NumPyro's no-U-turn sampler on parameters and continuous statistics; discrete statistics are summed out.

Chains run on the joint density of the release with all that is sampled, exact up to the truncation of the sums: what
they leave out is bounded, the bound is part of the density, and it is checked at every draw. Derivation:
docs/derivations/nuts.md.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from noisewise import checks
from noisewise.checkpoint.log import NOTHING, Log
from noisewise.diagnostics.chains import MANY
from noisewise.engine import Engine, gather
from noisewise.errors import InputError, refusal
from noisewise.inference.conditional.target import Target, unfit
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.settings import Sampler
from noisewise.numerics import Array, double
from noisewise.results.posterior import Posterior
from noisewise.samplers.judging import LONGER, LONGEST, OutOfTime, judge_chains, posterior_of
from noisewise.samplers.proposals.parts import number_of_parts, parts
from noisewise.samplers.walking.centring import best_centring
from noisewise.samplers.walking.gradient_programs import PIECE, PILOT, Programs
from noisewise.samplers.walking.starts import spread_out

CANDIDATES, MOST_CANDIDATES = 32, 2**12
"""Draws of the prior for each chain, from which the starts are chosen; where the prior has parts, draws from which as
many of each part are taken, if there are."""
NEGLECTED = 1e-10
"""Most likelihood that the sums may leave out, as a share of their bound."""
WIDENINGS = 6
"""Most runs, each after doubling the windows that were too narrow, before giving up."""
HOPELESS, UNSURE, HEIGHTS = 25.0, 0.25, 64
"""How much less, in logs, a hill's mass must be than another's for no chain to start there, and how much less again for
each coordinate: hills are not quite normal; draws of a chain whose heights are averaged."""
DIVERGENT = 0.01
"""Share of divergent transitions that is too many."""
FINEST = 0.99
"""Highest acceptance that is aimed at where transitions diverge: nearer to 1, trees reach their greatest depth."""
ORDINARY = 64.0
"""Coordinates whose spread under the prior is at most this, and at least one over this, keep the unit 1."""


@dataclass(frozen=True)
class NUTS(Sampler):
    """Gradient-based Markov chains (Hoffman and Gelman 2014), as NumPyro runs them.

    Continuous confidential statistics are sampled with the parameters. Discrete ones are summed out, normal ones under
    Gaussian or Laplace noise integrated out, and both are drawn afterwards. Each of `chains` gives draws/chains rows,
    rounded up, after `warmup` iterations in which step size and mass matrix adapt; one iteration in `thin` is kept.
    `dense_mass`: None decides by the number of unknowns.
    """

    chains: int = 4
    warmup: int = 1000
    thin: int = 1
    target_accept: float = 0.8
    max_tree_depth: int = 10
    dense_mass: bool | None = None
    min_ess: float = 400.0
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("chains", 1), ("warmup", 50), ("thin", 1), ("max_tree_depth", 1)):
            self._whole(name, least, "Leave it out for the default.")
        if self.chains > MANY:
            raise refusal("NUTS", "chains", f"must be at most {MANY}", self.chains, "Ask for more draws per chain.")
        share = checks.positive_number("NUTS", "target_accept", self.target_accept, "The default is 0.8.")
        if share >= 1.0:
            raise refusal("NUTS", "target_accept", "must be below 1", share, "The default is 0.8.")
        if self.dense_mass not in (None, True, False):
            raise refusal("NUTS", "dense_mass", "must be True, False or None", self.dense_mass, "None decides.")
        self._keep(target_accept=share)

    def unfit(self, problem: Problem) -> str | None:
        """Needs densities, continuous parameters, and discrete statistics that can be enumerated."""
        return unfit(problem)

    def longer(self) -> "NUTS | None":
        """Four times the warm-up and the iterations behind each draw."""
        if self.thin >= LONGEST:
            return None
        return replace(self, warmup=LONGER * self.warmup, thin=LONGER * self.thin)

    def finer(self) -> "NUTS | None":
        """Acceptance four times as near to 1."""
        share = 1.0 - (1.0 - self.target_accept) / 4.0
        return None if share > FINEST else replace(self, target_accept=share)

    def run(
        self, problem: Problem, draws: int, seed: int, engine: Engine, progress: Progress, log: Log = NOTHING
    ) -> Posterior:
        """Run the chains; again, with wider windows, where a sum left too much out, and without hopeless starts."""
        log.agree("draws", draws)
        run = ChainsRun(self, problem, -(-draws // self.chains), seed, engine, progress, log)
        with progress:
            while True:
                run.once()
                wider, hopeless = run.too_narrow(), run.hopeless_parts()
                if run.status != "complete" or not (wider or hopeless):
                    break
                if wider:
                    run.widen(wider)
                else:
                    run.leave_out(hopeless)
        return run.posterior()


def units(free: Array) -> Array:
    """The unit of each coordinate: a power of two where the spread of candidates (rows) is far from one; else one."""
    with np.errstate(invalid="ignore"):
        low, high = np.nanquantile(np.where(np.isfinite(free), free, np.nan), [0.25, 0.75], axis=0)
    spread = np.where((high > low) & np.isfinite(high - low), 0.5 * (high - low), 1.0)
    far = (spread > ORDINARY) | (spread < 1.0 / ORDINARY)
    return np.where(far, 2.0 ** np.round(np.log2(spread)), 1.0)


def by_turns(part: Array, count: int) -> Array:
    """Indices of `count` rows: the first of each part, then the second of each, and so on while there are any."""
    turn = np.empty(len(part), dtype=np.int64)
    for own in np.unique(part):
        members = part == own
        turn[members] = np.arange(members.sum())
    return np.argsort(turn, kind="stable")[:count]


def usual(walked: Array) -> Array:
    """Variances within chains, by coordinate, shrunk a little towards 1e-3 as NumPyro does.

    `walked` is of shape (chains, iterations, coordinates). Chains that have hardly moved in some coordinate would
    otherwise begin with no step there at all.
    """
    rows = walked.shape[0] * walked.shape[1]
    return (rows * walked.var(axis=1).mean(axis=0) + 5.0 * 1e-3) / (rows + 5.0)


@dataclass
class ChainsRun:
    """One call of `NUTS.run`: the pieces of every chain as they come, and how it ended."""

    settings: NUTS
    problem: Problem
    length: int
    seed: int
    engine: Engine
    progress: Progress
    log: Log = NOTHING
    attempt: int = 0
    widened: dict[tuple[str, ...], int] = field(default_factory=dict)
    hopeless: set[int] = field(default_factory=set)
    """Parts of the prior where no chain starts any more."""
    status: str = "complete"
    message: str = ""

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.wasted = 0

    def once(self) -> None:
        """Warm up and run all chains with the present windows, then draw what was summed out."""
        self.target = Target(self.problem, self.widened, by_ratios=True)
        piloted = PILOT * PIECE if self.target.located else 0
        self.warmup = self.settings.warmup - (piloted if self.settings.warmup >= 2 * piloted else 0)
        self.programs = Programs(
            self.target,
            self.settings.dense_mass,
            num_warmup=self.warmup,
            target_accept_prob=self.settings.target_accept,
            max_tree_depth=self.settings.max_tree_depth,
        )
        halves = {name: np.full(self.problem.model.shape(name), 0.5) for name in self.target.located}
        self.data = self.target.data() | {"centring": halves}
        self.programs.prepare(self.data, self.settings.chains, self._finished_together)
        self.pieces: list[list[dict[str, Array]]] = [[] for _ in range(self.settings.chains)]
        self.columns: dict[str, Array] = {}
        self.left = np.zeros((0, len(self.target.uniforms)))
        try:
            starts = self._starts()
            if starts is None:
                return
            if self.target.located:
                starts = self._recentred(starts)
            states = self._begun(starts, Purpose.CHAINS)
            gather(self.engine, [partial(self._chain, chain, state) for chain, state in enumerate(states)], self._tick)
        except OutOfTime:
            limit = self.settings.max_seconds
            self._end("max_seconds", f"stopped by the clock after max_seconds={limit:g}", "Raise max_seconds.")
        except KeyboardInterrupt:
            self._end("interrupted", "interrupted", "Run it again to the end.")
        self._finish()

    def _end(self, status: str, how: str, advice: str) -> None:
        self.status = status
        self.message = (
            f"{how} with {self._kept() * self.settings.chains} of {self.length * self.settings.chains} draws. Chains "
            f"cut short may favour values whose trajectories are short. {advice}"
        )

    def _tick(self) -> None:
        self.progress.update(self._kept() * self.settings.chains, self.length * self.settings.chains, lambda: 0)
        limit = self.settings.max_seconds
        if limit is not None and time.monotonic() - self.began > limit:
            raise OutOfTime

    # Chains ----------------------------------------------------------------------------------------------

    def _starts(self) -> Array | None:
        """Likely draws of the prior, far from each other (`spread_out`); None where none is possible.

        Half of the candidates have sampled statistics near their release.
        """
        target, model = self.target, self.problem.model
        rng = generator(self.seed, Purpose.STARTS, self.attempt)
        rows = CANDIDATES * self.settings.chains
        names = {*model.parameters, *target.sampled}
        several = number_of_parts(model) > 1
        drawn = self._drawn(rng, MOST_CANDIDATES if several else rows)
        if several:  # chains are to start in rare parts, too
            chosen = by_turns(parts(model, drawn), rows)
            drawn = {name: column[chosen] for name, column in drawn.items()}
        for name in {parent for child in target.sampled for parent in model.parents(child)} & set(target.exact):
            drawn[name] = np.repeat(self.data["exact"][name][None], rows, axis=0)
            names.add(name)
        for name in target.sampled:
            item = self.problem.release.get(name)
            if item is not None and np.shape(item.value) == model.shape(name):
                distance = np.asarray(item.value) - np.median(drawn[name], axis=0)
                shift = np.where(np.arange(rows) % 2 == 0, 0.0, 1.0).reshape((-1,) + (1,) * np.ndim(item.value))
                drawn[name] = drawn[name] + shift * np.nan_to_num(distance)
        self.candidates = {name: drawn[name] for name in sorted(names)}
        free = self._placed()
        with double():
            energy = self.programs.energies(free, self.data, self.settings.chains)
        self.log.same((free, energy), "starts", self.attempt)
        energy = np.where(np.isfinite(energy), energy, np.inf)
        if np.min(energy) == np.inf:
            self.status = "no_weight"
            self.message = (
                f"none of {rows} draws of the prior could have given the release, so the chains cannot start. Check "
                "the model's support against the released values (a negative count, say, has no naive analysis)."
            )
            return None
        return free[self._in_all_parts(free, energy)]

    def _in_all_parts(self, free: Array, energy: Array) -> Array:
        """`spread_out`, with chains in every part of the prior that could be: its draws tell not which is likely.

        Where there are more parts than chains, those with the likeliest draws.
        """
        chains, part = self.settings.chains, parts(self.problem.model, self.candidates)
        lowest = {one: energy[part == one].min() for one in np.unique(part) if one not in self.hopeless}
        begun = sorted((one for one in lowest if lowest[one] < np.inf), key=lambda one: lowest[one])[:chains]
        chosen = np.empty(chains, dtype=np.int64)
        for place, one in enumerate(begun):
            own = np.flatnonzero(part == one)
            count = len(chosen[place :: len(begun)])
            chosen[place :: len(begun)] = own[spread_out(free[own], -energy[own], count)]
        return chosen

    def _drawn(self, rng: np.random.Generator, rows: int) -> dict[str, Array]:
        """Draws of the model to start from; only of what is sampled, where the rest cannot be drawn."""
        model, target = self.problem.model, self.target
        try:
            return model.draw(rng, [n for n in model.order if n in model.parameters or n in self.problem.needed], rows)
        except InputError as error:
            if not error.beyond_range:
                raise
        wanted = {*model.parameters, *target.sampled, *model.ancestors(*target.sampled)}
        return model.drawable(rng, [name for name in model.order if name in wanted], rows)[0]

    def _placed(self) -> Array:
        """The candidates' free vectors in the present coordinates; sets the coordinates' units."""
        with double():
            free = self.programs.free(self.candidates, self.data)
        self.scale = units(free)
        self.variances = np.ones(self.target.size)
        return free

    def _recentred(self, starts: Array) -> Array:
        """Choose coordinates by a pilot from these starts; return where it ended, in them, for the chains to go on."""
        walked: list[list[Array]] = [[] for _ in starts]
        pilots = [
            partial(self._pilot, state, pieces)
            for state, pieces in zip(self._begun(starts, Purpose.WARMUP), walked, strict=True)
        ]
        gather(self.engine, pilots, self._tick)
        free = np.concatenate([np.concatenate(pieces[1:]) for pieces in walked])
        with double():
            standing = jax.tree.map(np.asarray, self.programs.standing(free, self.data))
            centring = {name: best_centring(*parts) for name, parts in standing.items()}
            last = np.concatenate([pieces[-1] for pieces in walked])
            moved = np.asarray(self.programs.moved(last, self.data, centring)).reshape(len(walked), PIECE, -1)
        self.data = self.data | {"centring": centring}
        self._placed()
        self.variances = usual(moved / self.scale)
        ends: Array = moved[:, -1]
        self.log.same(ends, "ends", self.attempt)
        return ends

    def _begun(self, starts: Array, purpose: Purpose) -> list[Any]:
        """The states of all chains at their starts."""
        keys = [
            generator(self.seed, purpose, self.attempt, chain).integers(2**32, size=2, dtype=np.uint32)
            for chain in range(len(starts))
        ]
        with double():
            return self.programs.start(starts, np.stack(keys), self.variances, self._given)

    @property
    def _given(self) -> dict[str, Any]:
        return {"target": self.data, "scale": self.scale}

    def _pilot(self, state: Any, walked: list[Array], poll: Callable[[], None]) -> None:
        """The first pieces of a chain: they decide coordinates and where the chain goes on, and are not kept."""
        with double():
            for _ in range(PILOT):
                poll()
                state, seen = jax.tree.map(np.asarray, self.programs.advance(state, self._given))
                walked.append(seen["free"])

    def _chain(self, chain: int, state: Any, poll: Callable[[], None]) -> None:
        """One chain from start to end, piece by piece; iterations past the warm-up are its draws."""
        total = -(-(self.warmup + self.length * self.settings.thin) // PIECE)
        log, pieces = self.log.within("chain", self.attempt, chain), self.pieces[chain]
        with double():
            state, records = self._resumed(log, pieces, state)
            saved = len(pieces)
            while len(pieces) < total:
                poll()
                state, seen = jax.tree.map(np.asarray, self.programs.advance(state, self._given))
                pieces.append(seen)
                if log.due() or (log and len(pieces) == total):
                    record = {"state": jax.tree.leaves(state), "rows": pieces[saved:]}
                    if log.save(record | {"done": len(pieces), "total": total}, records):
                        saved, records = len(pieces), records + 1

    def _resumed(self, log: Log, pieces: list[dict[str, Array]], state: Any) -> tuple[Any, int]:
        """Add the pieces saved of a chain; the state in which it was last saved, and the number of its records."""
        leaves, form = jax.tree.flatten(state)
        records = 0
        while (record := log.get(records)) is not None:
            pieces += record["rows"]
            leaves, records = record["state"], records + 1
        return jax.tree.unflatten(form, leaves), records

    def _kept(self) -> int:
        """Draws that every chain has."""
        done = min((len(pieces) for pieces in self.pieces), default=0) * PIECE - self.warmup
        return max(0, min(done // self.settings.thin, self.length))

    def _joined(self, name: str, every: int = 1) -> Array:
        """The pieces' values of this name after the warm-up, one iteration in `every`: (chains, iterations, ...)."""
        first, thin = self.warmup, self.settings.thin
        whole = [np.concatenate([piece[name] for piece in pieces]) for pieces in self.pieces]
        return np.stack([chain[first : first + self._kept() * thin : every] for chain in whole])

    # Results ---------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Columns of values, with what was summed out drawn from its law given the rest."""
        if not self._kept():
            return
        free = self._joined("free", self.settings.thin).reshape(-1, self.target.size)
        rows = self._finished_together
        rng = generator(self.seed, Purpose.RESAMPLING, self.attempt)
        parts = []
        for first in range(0, len(free), rows):
            piece = free[first : first + rows]
            padded = np.concatenate([piece, np.repeat(piece[:1], rows - len(piece), axis=0)])
            uniform = [rng.random((rows, entries)) for entries in self.target.uniforms]
            with double():
                drawn, left, moments = jax.tree.map(np.asarray, self.programs.finish(padded, self.data, uniform))
            drawn |= self.target.draw_folded(rng, moments, rows)
            parts.append({name: value[: len(piece)] for name, value in (drawn | {"": left}).items()})
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        self.left = columns.pop("")
        for name in self.target.exact:
            columns[name] = np.broadcast_to(self.data["exact"][name], (len(free), *self.problem.model.shape(name)))
        self.target.measure(columns)
        self.columns = columns

    @property
    def _finished_together(self) -> int:
        """Draws finished by one call of the program: as many as handle about a million numbers, and at most 512."""
        numbers = self.target.work + self.target.size
        return min(512, 1 << max(0, (2**20 // numbers).bit_length() - 1))

    def too_narrow(self) -> list[tuple[str, ...]]:
        """The sums whose windows left out more than may be, at some draw."""
        return self.target.too_narrow(self.left.max(axis=0), NEGLECTED) if len(self.left) else []

    def widen(self, names: list[tuple[str, ...]]) -> None:
        """Double the windows of these sums for another attempt, on new streams; or give up."""
        self.wasted += self._steps()
        wider = {**self.widened, **{group: self.widened.get(group, 0) + 1 for group in names}}
        excess = Target(self.problem, wider).excess()
        if self.attempt + 1 == WIDENINGS or excess:
            raise refusal(
                "NUTS",
                "release",
                f"must be likelier under the model: sums over {' and '.join(map(repr, names[0]))} leave out up to "
                f"{self.left.max():.2g} of the likelihood they keep",
                {name: self.problem.release[name].value for name in names[0] if name in self.problem.release},
                "Check the prior against the release, or use a sampler that only simulates, such as nw.Rejection().",
            )
        self.widened, self.attempt = wider, self.attempt + 1

    def hopeless_parts(self) -> set[int]:
        """Parts of the prior that chains have not left, and whose hills have next to no mass beside that of others.

        A hill counts as normal, with the mean height and the covariance of its chain. Empty where that tells nothing.
        """
        kept, size = self._kept(), self.target.size
        if not self.columns or number_of_parts(self.problem.model) == 1 or kept < 2 * size:
            return set()
        part = parts(self.problem.model, self.columns).reshape(self.settings.chains, -1)
        if np.any(part != part[:, :1]) or np.all(part == part[0, 0]):
            return set()
        free = self._joined("free", self.settings.thin)
        some = free[:, :: max(1, kept // HEIGHTS)].reshape(-1, size)
        with double():
            energies = self.programs.energies(some, self.data, self.settings.chains).reshape(len(free), -1)
        log_volumes = [0.5 * np.linalg.slogdet(np.cov(one, rowvar=False).reshape(size, size))[1] for one in free]
        log_masses = np.array(log_volumes) - energies.mean(axis=1)
        least = log_masses.max() - HOPELESS - UNSURE * size
        return {int(own) for own in np.unique(part[:, 0]) if np.all(log_masses[part[:, 0] == own] < least)}

    def leave_out(self, hopeless: set[int]) -> None:
        """Start no chain in these parts in another attempt, on new streams."""
        self.wasted += self._steps()
        self.hopeless, self.attempt = self.hopeless | hopeless, self.attempt + 1

    def _steps(self) -> int:
        return int(sum(piece["steps"].sum() for pieces in self.pieces for piece in pieces))

    def posterior(self) -> Posterior:
        """The draws with their verdict."""
        numbers: dict[str, Any] = {}
        if self.columns:
            diverging = int(self._joined("diverging").sum())
            deepest = 2**self.settings.max_tree_depth - 1
            numbers = {
                "divergences": diverging,
                "longest_trees": int((self._joined("steps") >= deepest).sum()),
                "mean_steps": float(self._joined("steps").mean()),
                "mean_accept": float(self._joined("accept").mean()),
                "widened": self.attempt,
            }
            if self.left.shape[1]:
                numbers["neglected"] = float(self.left.sum(axis=1).max())
                numbers["windows"] = {" ".join(names): size for names, size in self.target.windows.items()}
            if self.status == "complete":
                self._judge(numbers)
        return posterior_of(
            self.settings,
            self.problem,
            self.seed,
            self.columns,
            status=self.status,
            message=self.message,
            chains=self.settings.chains if self.columns else None,
            proposals=self.wasted + self._steps(),
            seconds=time.monotonic() - self.began,
            diagnostics=numbers,
        )

    def _judge(self, numbers: dict[str, Any]) -> None:
        self.status, self.message, diagnostics = judge_chains(
            self.columns, self.settings.chains, None, self.settings.min_ess, self.problem.axes
        )
        numbers |= diagnostics
        transitions = self.length * self.settings.thin * self.settings.chains
        share = numbers["divergences"] / transitions
        if self.status == "complete" and share > DIVERGENT:
            self.status = "divergent"
            self.message = (
                f"{numbers['divergences']} of {transitions} transitions diverged: where the "
                "density bends too sharply for the step size, draws may be missing. Raise target_accept (0.95), or use "
                "another sampler."
            )
