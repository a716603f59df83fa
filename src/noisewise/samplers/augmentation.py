"""Augmentation: Gibbs sampling over the parameters and the confidential statistic, or the records behind it.

    repeat:  s     <- a step that keeps  pi(s | theta) eta(s_dp | s)
             theta <- a step that keeps  pi0(theta) pi(s | theta)

Many chains at once, in fixed groups with random streams of their own. The steps are in gibbs/: latent.py and
reported.py (statistics with a law), conjugate.py and parameter_steps.py (parameters), renewal.py (parameters together
with the records of a total); single records move by inference/record_steps.py (Ju, Awan, Gong and Rao 2022).
Why each leaves the exact posterior as it is, and reaches all of it: docs/derivations/augmentation.md.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.checkpoint.log import NOTHING, Log, attributes_of
from noisewise.diagnostics import weights
from noisewise.engine import Engine, gather
from noisewise.errors import InferenceError, refusal
from noisewise.inference.conditional.laws import sketch_of
from noisewise.inference.conditional.measured_normal import MeasuredNormal
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.record_steps import RecordSteps, acceptance_floor, why_not_in_steps
from noisewise.inference.settings import Sampler
from noisewise.inference.tables import lattice
from noisewise.mechanisms import Exact, Within
from noisewise.model.atoms import is_fixed
from noisewise.model.coordinates import unwalkable
from noisewise.model.families import facts_of
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, double
from noisewise.numerics.compiled import looking
from noisewise.numerics.tracing import depends
from noisewise.results.posterior import Posterior
from noisewise.samplers.gibbs.conjugate import Conjugate, ConjugateFamily, family_of
from noisewise.samplers.gibbs.joint import Joint, State, has_free_entries
from noisewise.samplers.gibbs.latent import Entries, Lines
from noisewise.samplers.gibbs.measured import MeasuredTable, Normal
from noisewise.samplers.gibbs.parameter_steps import WALKED, Gradient, Refresh, Tuned
from noisewise.samplers.gibbs.renewal import Renewal
from noisewise.samplers.gibbs.reported import Reported
from noisewise.samplers.judging import LONGER, LONGEST, judge_chains, posterior_of
from noisewise.samplers.proposals.by_value import kept_apart

GROUPS = 4
"""Pieces that many chains are cut into, whatever the number of threads."""
STARTS = 16
"""Different starting points, as many as there are superchains."""
POOL = 1024
"""Draws of the model that starts are chosen from."""
UNLIKELY = 15.0
"""How much less weight, in logs, the draws at a value may have than those at another, for chains to start there."""
TELLING = 10.0
"""Effective draws from which on their weights say which values are likely."""
POOL_ENTRIES = 2**22
"""Most entries of measured tables in these draws."""
LARGE_TABLE = 2**10
"""Numbers in a row, with a measured table among them, beyond which there are few chains."""
WARMUP, SHORT_WARMUP = 200, 60
"""Sweeps before the first draw, where some step adapts and where none does."""


@dataclass(frozen=True)
class Augmentation(Sampler):
    """Markov chains on (theta, s). `draws` counts kept rows over all chains, filled up to equal chains.

    `chains` and `warmup` (sweeps not kept) are chosen by the problem where they are None; one sweep in `thin` is kept.
    """

    chains: int | None = None
    warmup: int | None = None
    thin: int = 1
    min_ess: float = 400.0
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        advice = "Leave it out, or give up to 16 or a multiple of 16."
        self._whole("chains", 1, advice, optional=True)
        if self.chains is not None and self.chains > 16 and self.chains % 16:
            raise refusal("Augmentation", "chains", "must be at most 16 or a multiple of 16", self.chains, advice)
        self._whole("warmup", 0, "Leave it out if unsure.", optional=True)
        self._whole("thin", 1, "The default is 1.")

    def unfit(self, problem: Problem) -> str | None:
        """Every statistic must have a density or be a total that only its own noise depends on."""
        names = [name for name in problem.model.order if name in problem.model.parameters or name in problem.needed]
        names = [name for name in names if name not in problem.measured]
        against = next(filter(None, (_objection(problem, name) for name in names)), None)
        against = against or problem.without_measure() or problem.in_two_parts()
        return against or unwalkable(problem.model, [name for name in names if _walks(problem, name)])

    def longer(self) -> "Augmentation | None":
        """Four times the sweeps behind each draw, after a longer warm-up."""
        if self.thin >= LONGEST:
            return None
        return replace(self, warmup=LONGER * (self.warmup or WARMUP), thin=LONGER * self.thin)

    def run(
        self, problem: Problem, draws: int, seed: int, engine: Engine, progress: Progress, log: Log = NOTHING
    ) -> Posterior:
        """Draw from the posterior."""
        began = time.monotonic()
        joint = Joint(problem, _totals(problem))
        chains = self.chains or _how_many(joint, draws)
        log.agree("draws", draws)
        sweeps = _Sweeps(self, joint, chains, -(-draws // chains), seed, log)
        stopped = ""
        try:
            with progress:
                gather(engine, sweeps.works(), partial(sweeps.tick, progress, began))
        except KeyboardInterrupt:
            stopped = "interrupted"
        stopped = stopped or ("max_seconds" if sweeps.stop.is_set() else "")
        columns = sweeps.columns()
        length = len(next(iter(columns.values()))) // chains
        superchains = 16 if chains > 16 else None
        verdict: tuple[str, str, dict[str, Any]] = ("complete", "", {})
        if length:
            verdict = judge_chains(columns, chains, superchains, self.min_ess, problem.axes)
        status, message, numbers = verdict
        if stopped:
            status = stopped
            why = f"after max_seconds={self.max_seconds:g}" if stopped == "max_seconds" else "by hand"
            message = (
                f"stopped {why} with {length} of {sweeps.length} draws from each of {chains} chains. What is there "
                "comes from chains that may not have met. Allow more time, or ask for fewer draws."
            )
        accepted, tried = np.sum(sweeps.tallies, axis=0)
        if joint.totals:
            numbers |= {"least_acceptance": min(sweeps.least), "acceptance_floor": acceptance_floor(problem)}
        return posterior_of(
            self,
            problem,
            seed,
            columns,
            status=status,
            message=message,
            chains=chains if length else None,
            superchains=superchains if length else None,
            proposals=int(tried),
            acceptance_rate=float(accepted / tried) if tried else None,
            seconds=time.monotonic() - began,
            diagnostics={**numbers, "warmup": sweeps.warmup, "steps": sweeps.described},
        )


def _objection(problem: Problem, name: str) -> str | None:
    """Why one needed name cannot be handled."""
    model = problem.model
    if name in model.parameters:
        return f"cannot move '{name}', which is a fixed function of others (Delta)" if _fixed(problem, name) else None
    exact = name in problem.release and isinstance(problem.release[name].mechanism, Exact)
    measured = any(other.statistic == name for other in problem.measured.values())
    if model.total(name) is not None:
        several = f"cannot move the records behind '{name}', which is measured under other names"
        return several if measured else why_not_in_steps(problem, name)
    if not model.has_density(name):
        return f"needs the density of '{name}', which is a Simulator"
    if exact:
        return None
    if measured and model.is_discrete(name):
        return lattice.unfit(problem, name)
    if _fixed(problem, name):
        return f"cannot move '{name}', which is a fixed function of others (Delta)"
    kind = model.law(name).form.kind
    if model.is_discrete(name) and _event_dim(problem, name):
        if not facts_of(kind).sums_to:
            return f"cannot move within the support of '{name}', a joint law of whole numbers ({kind})"
        if _varies(problem, name):
            return f"needs '{name}' to have a fixed total"
    return None


def _walks(problem: Problem, name: str) -> bool:
    """Whether `name` is a continuous statistic with a law of its own, under noise."""
    model, item = problem.model, problem.release.get(name)
    latent = name in model.statistics and model.has_density(name) and not model.is_discrete(name)
    return latent and not (item is not None and isinstance(item.mechanism, Exact))


def _fixed(problem: Problem, name: str) -> bool:
    return bool(sketch_of(problem.model, name, is_fixed))


def _event_dim(problem: Problem, name: str) -> int:
    return int(sketch_of(problem.model, name, lambda law: len(peel(law)[0].event_shape)))


def _varies(problem: Problem, name: str) -> bool:
    """Whether the total of a table depends on anything."""
    law = problem.model.law(name)
    if not law.parents:
        return False
    with double():
        traced = jax.make_jaxpr(jax.vmap(lambda values: jnp.asarray(peel(law.function(**values))[0].total_count) * 1))(
            law.row
        )
    return depends(traced.jaxpr)


def _totals(problem: Problem) -> dict[str, Any]:
    names = [n for n in problem.model.order if n in problem.needed and problem.model.total(n) is not None]
    return {name: RecordSteps(problem, name) for name in names}


def _how_many(joint: Joint, draws: int) -> int:
    """Chains: many for small problems, at least about 50 draws each, and if possible a divisor of the draws."""
    cells = sum(joint.model.latent_of_row(name) for name in joint.model.order)
    most = 128 if cells <= 256 else 64
    if joint.measured and cells > LARGE_TABLE:  # a sweep is dear, and so is the warm-up of each chain
        most = 16
    options = [count for count in (*range(128, 16, -16), 16, 10, 8, 5, 4) if count <= most and draws // count >= 50]
    return next((count for count in options if draws % count == 0), options[0] if options else 4)


class _Sweeps:
    """All chains of a run: fixed groups, each with its own random stream, start and adaptation."""

    def __init__(
        self, sampler: Augmentation, joint: Joint, chains: int, length: int, seed: int, log: Log = NOTHING
    ) -> None:
        self.sampler, self.joint, self.chains, self.length, self.seed = sampler, joint, chains, length, seed
        self.groups = GROUPS if chains % (4 * GROUPS) == 0 else 1
        self.stop = threading.Event()
        rng = generator(seed, Purpose.STARTS)
        self.starts = self._with_records(rng, starting_values(joint, rng, STARTS))
        self.log = log
        log.same(self.starts, "starts")
        self.closed = closed_forms(joint, self.starts, self.chains // self.groups)
        steps = sweep_steps(joint, self.closed)
        self.described = [step_in_words(step) for step in steps]
        adaptive = any(isinstance(step, (Gradient, Lines, Refresh)) for step in steps) or bool(joint.totals)
        self.warmup = sampler.warmup if sampler.warmup is not None else (WARMUP if adaptive else SHORT_WARMUP)
        self.done = [0] * self.groups
        self.swept = [0] * self.groups
        self.tallies = [np.zeros(2) for _ in range(self.groups)]
        self.least = [1.0] * self.groups
        """The least acceptance probability that a record behind a total has met."""
        self.store: list[dict[str, Array]] = [{} for _ in range(self.groups)]

    def works(self) -> list[Callable[[Callable[[], None]], Any]]:
        """One piece of work per group."""
        return [partial(self._run, number) for number in range(self.groups)]

    def _run(self, number: int, poll: Callable[[], None]) -> None:
        rng = generator(self.seed, Purpose.CHAINS, number)
        state = self._start(rng, number)
        steps = sweep_steps(self.joint, self.closed)
        total = self.warmup + self.length * self.sampler.thin
        log = self.log.within("group", number)
        saves = 0
        while (record := log.get(saves, classes=[State])) is not None:
            rng, state, saves = self._restored(number, record, steps), record["state"], saves + 1
        saved = self.done[number]
        for sweep in range(self.swept[number], total):
            poll()
            if self.stop.is_set():
                return
            warm = sweep < self.warmup
            counts, least = one_sweep(rng, self.joint, steps, state, warm)
            if warm:
                adapt(steps, sweep + 1, self.warmup)
            else:
                self.tallies[number] += counts
                self.least[number] = min(self.least[number], least)
                if (sweep - self.warmup) % self.sampler.thin == 0:
                    self._keep(number, state)
            self.swept[number] += 1
            if log.due() or (log and sweep + 1 == total):
                rows = {name: values[:, saved : self.done[number]] for name, values in self.store[number].items()}
                record = {"rng": rng, "state": state, "steps": [attributes_of(step) for step in steps], "rows": rows}
                record |= {"tally": self.tallies[number], "least": self.least[number]}
                if log.save(record | {"done": sweep + 1, "total": total}, saves):
                    saved, saves = self.done[number], saves + 1

    def _restored(self, number: int, record: dict[str, Any], steps: list[Any]) -> np.random.Generator:
        """Restore a group from a record (rows since the one before, tallies, steps), and return its generator."""
        self._fill(number, record["rows"])
        self.swept[number] = max(0, record["done"])
        self.tallies[number], self.least[number] = record["tally"], record["least"]
        for step, attributes in zip(steps, record["steps"], strict=True):
            vars(step).update(attributes)
        rng: np.random.Generator = record["rng"]
        return rng

    def _start(self, rng: np.random.Generator, number: int) -> State:
        return self._with_records(rng, self._values(number))

    def _values(self, number: int) -> dict[str, Array]:
        """Where one group begins: neighbouring chains share a start where there are many; few chains have one each."""
        size = self.chains // self.groups
        rows = np.repeat(np.arange(STARTS), max(1, self.chains // STARTS))[number * size : (number + 1) * size]
        return {name: column[rows] for name, column in self.starts.values.items()}

    def _with_records(self, rng: np.random.Generator, values: dict[str, Array]) -> State:
        state = State(dict(values))
        for name, records in self.joint.totals.items():
            state.records[name] = records.start(rng, state.values, state.chains)
            _copy_total(self.joint, name, state)
        return state

    def _keep(self, number: int, state: State) -> None:
        self._fill(number, {name: values[:, None] for name, values in state.values.items()})

    def _fill(self, number: int, rows: dict[str, Array]) -> None:
        """The next draws of one group: (chains, draws, ...) by name."""
        store, row = self.store[number], self.done[number]
        for name, values in rows.items():
            if name not in store:
                store[name] = np.empty((self.chains // self.groups, self.length, *values.shape[2:]), values.dtype)
            store[name][:, row : row + values.shape[1]] = values
            self.done[number] = row + values.shape[1]

    def tick(self, progress: Progress, began: float) -> None:
        """Show progress; stop by the clock."""
        size = self.chains // self.groups
        total = self.groups * (self.warmup + self.length * self.sampler.thin)
        progress.update(sum(self.swept) * size, total * size, lambda: 0)
        limit = self.sampler.max_seconds
        if limit is not None and time.monotonic() - began > limit and sum(self.swept) < total:
            self.stop.set()

    def columns(self) -> dict[str, Array]:
        """Draws, chain by chain, as many as every group has."""
        length = min(self.done)
        model, needed = self.joint.model, self.joint.problem.needed
        names = [*model.parameters, *(name for name in model.statistics if name in needed)]
        if not length:
            return {name: np.empty((0, *model.shape(name)), model.dtype(name)) for name in names}
        parts = {name: np.concatenate([store[name][:, :length] for store in self.store]) for name in names}
        return {name: part.reshape(self.chains * length, *part.shape[2:]) for name, part in parts.items()}


# The sweep ------------------------------------------------------------------------------------------------------------


def sweep_steps(joint: Joint, closed: dict[str, ConjugateFamily]) -> list[Any]:
    """The steps of one sweep, statistics first; `closed` are the parameters that can be drawn at once."""
    model = joint.model
    owned = {name for records in joint.totals.values() for name in records.owned}
    apart = {*joint.fixed, *owned, *joint.measured}
    latent = [n for n in model.statistics if n in joint.problem.needed and n not in apart]
    tables = {measured.statistic for measured in joint.measured.values()}
    steps: list[Any] = []
    for name in latent:
        if name in tables and model.is_discrete(name):
            steps.append(MeasuredTable.of(joint, name))
        elif name in tables and MeasuredNormal.applies(joint.problem, name):
            steps.append(Normal(joint, name))
        elif Reported.applies(joint, name):
            steps.append(Reported(joint, name))
        elif has_free_entries(joint, name):
            steps.append(Entries(joint, name))
        elif model.is_discrete(name):
            steps.append(Lines(joint, name, table=_event_dim(joint.problem, name) > 0))
        else:
            steps.append(Gradient(joint, [name]))
    whole = [name for name in model.parameters if model.is_discrete(name) and name not in owned]
    steps += [Lines(joint, name, table=_event_dim(joint.problem, name) > 0) for name in whole]
    steps += [Renewal(joint, name) for name in joint.totals if Renewal.applies(joint, name)]
    return steps + _parameter_steps(joint, closed) + _refresh(joint, latent)


def _refresh(joint: Joint, latent: list[str]) -> list[Any]:
    """The step in which parameters walk together with fresh statistics; no step where there are too many of either."""
    model = joint.model
    names = [name for name in model.parameters if not model.is_discrete(name)]
    entries = sum(max(1, int(np.prod(model.shape(name)))) for name in latent)
    width = sum(max(1, int(np.prod(model.shape(name)))) for name in names)
    if not (names and latent and max(entries, width) <= WALKED):
        return []
    return [Refresh(joint, names, latent, [Reported(joint, name) for name in latent if Reported.applies(joint, name)])]


def closed_forms(joint: Joint, state: State, together: int) -> dict[str, ConjugateFamily]:
    """Continuous parameters whose law given the rest is recognised, and confirmed at the given states.

    The check runs the programs that will draw them, with as many chains `together`; programs of the other steps are
    compiled meanwhile.
    """
    continuous = [name for name in joint.model.parameters if not joint.model.is_discrete(name)]
    known = {name: family for name in continuous if (family := family_of(joint, name))}
    rows = np.arange(-(-state.chains // together) * together) % state.chains
    batches = [state.some(few) for few in rows.reshape(-1, together)]
    for step in sweep_steps(joint, known):
        if isinstance(step, (MeasuredTable, Conjugate, Refresh)):
            step.prepare(batches[0])
    return {name: family for name, family in known.items() if Conjugate(joint, name, family).agrees(batches)}


def _parameter_steps(joint: Joint, families: dict[str, ConjugateFamily]) -> list[Any]:
    """Conjugate draws where there are any, one Hamiltonian step for all the rest, integrating out what it can."""
    model = joint.model
    closed = [Conjugate(joint, name, family) for name, family in families.items()]
    rest = [name for name in model.parameters if not model.is_discrete(name) and name not in families]
    collapsed: list[Conjugate] = []
    for step in closed:
        kin = {step.name, *model.parents(step.name), *joint.children(step.name)}
        alone = not any(kin & {earlier.name, *joint.children(earlier.name)} for earlier in collapsed)
        if set(model.parents(step.name)) & set(rest) and alone:
            collapsed.append(step)
    steps: list[Any] = [Gradient(joint, rest, collapsed)] if rest else []
    return steps + [step for step in closed if step not in collapsed]


def one_sweep(
    rng: np.random.Generator, joint: Joint, steps: list[Any], state: State, warm: bool
) -> tuple[Array, float]:
    """Every step once, records before parameters: (accepted, tried), and the least acceptance that a record met."""
    counts, least = np.zeros(2), 1.0
    for name, records in joint.totals.items():
        state.records[name], info = records.sweep(rng, state.records[name], state.values)
        _copy_total(joint, name, state)
        counts += (float(info["accepted"]), float(info["tried"]))
        least = min(least, info["least"])
        if info["impossible"] and not warm:
            raise InferenceError(
                f"{info['impossible']} chains found no records behind '{name}' from which the release is "
                "possible. Check the model's support against the released values, or use a longer warmup.",
                who="Augmentation",
            )
    for step in steps:
        counts += step.step(rng, state, warm)
    joint.measure(state.values)
    return counts, least


def _copy_total(joint: Joint, name: str, state: State) -> None:
    state.values.update(joint.totals[name].values(state.records[name]))


def adapt(steps: list[Any], sweep: int, warmup: int) -> None:
    """Renew metrics until a quarter of the warm-up is left to tune the step, then freeze it; choose moves at thirds."""
    marks = {warmup // 8, warmup // 4, warmup // 2, (3 * warmup) // 4}
    for step in steps:
        if isinstance(step, Tuned) and sweep in marks:
            step.learn()
        if isinstance(step, Tuned) and sweep == warmup:
            step.freeze()
        if isinstance(step, Entries) and sweep == warmup // 6:
            step.forget()
        if isinstance(step, Entries) and sweep in (warmup // 3, (2 * warmup) // 3):
            step.settle_moves()


def step_in_words(step: Any) -> str:
    """What a step does, for the diagnostics."""
    if isinstance(step, Conjugate):
        return f"{step.name}: {step.family.name}"
    if isinstance(step, Renewal):
        return f"{', '.join(step.names)}: with fresh records of {', '.join(step.totals)}"
    if isinstance(step, Refresh):
        return f"{', '.join(step.chart.names)}: with fresh {', '.join(step.renewed)}"
    if isinstance(step, Gradient):
        inside = f" ({', '.join(inner.name for inner in step.collapsed)} integrated out)" if step.collapsed else ""
        return f"{', '.join(step.chart.names)}: Hamiltonian{inside}"
    if isinstance(step, MeasuredTable):
        return f"{step.name}: along integer directions"
    if isinstance(step, Normal):
        return f"{step.name}: normal given its measurements"
    if isinstance(step, Reported):
        return f"{step.name}: given the reported counts"
    return f"{step.name}: {'entry by entry' if isinstance(step, Entries) else 'along lines'}"


# Starts ---------------------------------------------------------------------------------------------------------------


def starting_values(joint: Joint, rng: np.random.Generator, rows: int) -> dict[str, Array]:
    """Draws of the model, resampled by a power of the noise density that leaves many of them effective.

    A start may be any value: draws with numbers beyond range serve for none, as long as there are others.
    """
    problem, model = joint.problem, joint.model
    names = [n for n in model.order if (n in model.parameters or n in problem.needed) and n not in joint.measured]
    pool: dict[str, Array] = {}
    drawn = _pool_of(joint)
    for name in names:
        if name in joint.fixed:
            value = np.broadcast_to(problem.release[name].value, (drawn, *model.shape(name)))
            pool[name] = np.array(value)
        else:
            pool, _ = model.drawable(rng, [name], drawn, pool)
    log_eta = np.zeros(drawn)
    joint.measure(pool)
    for name in joint.release:
        if not (name in joint.measured and isinstance(joint.release[name][0], (Exact, Within))):
            log_eta = log_eta + _log_noise(joint, name, pool)
    for name in joint.fixed:
        log_eta = log_eta + model.log_prob(name, pool[name], pool)
    usable = ~np.isnan(log_eta) & (log_eta < np.inf)
    log_eta = np.where(usable, log_eta, -np.inf)
    chosen = _at_every_value(rng, kept_apart(model, pool), log_eta, rows)
    state = State({name: column[chosen] for name, column in pool.items()})
    if not _possible(joint, rng, state):
        raise InferenceError(
            "no start was found at which the release is possible. Check the model's support against the "
            "released values, or use another sampler.",
            who="Augmentation",
        )
    return state.values


def _pool_of(joint: Joint) -> int:
    """How many draws of the model to choose from: fewer with a large table, as its measurements decide its start."""
    entries = sum(int(np.prod(joint.model.shape(measured.statistic))) for measured in joint.measured.values())
    return int(np.clip(POOL_ENTRIES // max(entries, 1), 4 * STARTS, POOL))


def _log_noise(joint: Joint, name: str, values: dict[str, Array]) -> Array:
    """How well rows explain a released value: by the noise, or with the statistic summed out where a step draws it."""
    if Reported.applies(joint, name):
        return Reported(joint, name).log_marginals(values)
    return joint.problem.log_eta(name, values)


def _at_every_value(rng: np.random.Generator, whole: Array, log_weights: Array, rows: int) -> Array:
    """`_flattened`, as many rows at each value of `whole` (rows, entries) as at the others.

    A switch between two explanations may never move again. Chains that all began with one would agree on it. A value is
    left out where its rows have next to no weight.
    """
    values, number = np.unique(whole, axis=0, return_inverse=True)
    top = np.max(log_weights)
    mass = np.bincount(number.ravel(), np.exp(log_weights - top) if top > -np.inf else None, minlength=len(values))
    tell = weights.effective_size(log_weights) >= TELLING  # else hardly a draw is near any explanation
    possible = np.bincount(number.ravel()[log_weights > -np.inf], minlength=len(values)) > 0
    likely = np.flatnonzero(mass > mass.max() * math.exp(-UNLIKELY) if tell else possible)
    if len(likely) < 2 or top == -np.inf:
        return _flattened(rng, log_weights, rows)
    chosen = np.empty(rows, dtype=np.int64)
    for place, value in enumerate(likely):
        own = np.where(number.ravel() == value, log_weights, -np.inf)
        chosen[place :: len(likely)] = _flattened(rng, own, len(chosen[place :: len(likely)]))
    return chosen


def _flattened(rng: np.random.Generator, log_weights: Array, rows: int) -> Array:
    """Rows drawn with weights raised to a power: the largest up to 1 that leaves enough effective candidates.

    Enough are 4 for each row wanted, or half of the possible ones if that is less.
    """
    finite = np.flatnonzero(np.isfinite(log_weights))
    if len(finite) < 2:
        return rng.choice(len(log_weights), rows) if not len(finite) else np.repeat(finite, rows)
    return finite[weights.draw_flattened(rng, log_weights[finite], rows, least=min(4 * rows, 0.5 * len(finite)))]


def _tables(joint: Joint) -> set[str]:
    """Statistics that are measured several ways."""
    return {measured.statistic for measured in joint.measured.values()} - set(joint.totals)


def _possible(joint: Joint, rng: np.random.Generator, state: State) -> bool:
    """Whether every chain starts where the joint density is positive, after moving entries that make it zero."""
    for name in sorted(_tables(joint) - joint.fixed):
        if joint.model.is_discrete(name):
            MeasuredTable.of(joint, name).settle(rng, state)
    joint.measure(state.values)
    for name in joint.release:
        if Reported.applies(joint, name):
            Reported(joint, name).step(rng, state, warm=True)
            continue
        free = name not in joint.totals and has_free_entries(joint, name)
        if free and not Entries(joint, name).settle(rng, state):
            return False
    logs = [_log_noise(joint, name, state.values) for name in joint.release]
    with looking():
        known = joint.fixed | _tables(joint)
        logs += [joint.model.log_prob(name, state.values[name], state.values) for name in known]
    return bool(np.all(np.isfinite(np.sum(logs, axis=0))))
