"""Monte Carlo EM (Gong 2022, Algorithms 2 and 3), with the ascent-based schedule of Caffo, Jank and Jones (2005).

The E-step simulates the confidential statistic from the current model and weighs it by the noise density; entries that
are independent are weighted one by one. Derivations: docs/derivations/likelihood.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

from noisewise import checks
from noisewise.engine import Engine
from noisewise.errors import InferenceError, InputError, refusal
from noisewise.fit import Fit
from noisewise.likelihood.cloud import Cloud, moved, weighted
from noisewise.likelihood.coordinates import Coordinates
from noisewise.likelihood.display import Steps
from noisewise.likelihood.maximise import Louis, Objective
from noisewise.likelihood.parts import Part
from noisewise.likelihood.records import parts_with_totals, room_for
from noisewise.likelihood.result import End, at_edge, edge_message, finish, gain, near_edge
from noisewise.likelihood.sufficient import condensed
from noisewise.progress import Progress
from noisewise.resume import NOTHING, Log
from noisewise.samplers.problem import Problem
from noisewise.settings import Estimator
from noisewise.streams import Columns, Stream, run

Array = np.ndarray[Any, Any]
Values = dict[str, Any]

E_STEP = 1_000
"""Purpose number of iteration 0's random streams; iteration t has E_STEP + t, the last sample LAST."""
LAST = 999
CHECK = 990
"""Purpose number of the few values by which a checkpoint is seen to be of the same model."""
ROWS = 2**14


@dataclass(frozen=True)
class Ascent:
    """Sample sizes by the rise of Q (Caffo, Jank and Jones 2005).

    A step is taken when the lower confidence bound of the rise is positive, else the sample grows by `growth`. The run
    stops when the upper bound of the rise is below `tolerance`.
    """

    start: int = 1_000
    tolerance: float = 1e-6
    growth: float = 1.5
    alpha: float = 0.25
    beta: float = 0.25
    gamma: float = 0.25
    most: int = 4_000_000

    def __post_init__(self) -> None:
        checks.integer("Ascent", "start", self.start, least=10, advice="The default is 1000.")
        checks.integer("Ascent", "most", self.most, least=self.start, advice="The default is 4_000_000.")
        checks.positive_number("Ascent", "tolerance", self.tolerance, "The default is 1e-6.")
        if not checks.positive_number("Ascent", "growth", self.growth, "The default is 1.5.") > 1:
            raise refusal("Ascent", "growth", "must be above 1", self.growth, "The default is 1.5.")
        for name in ("alpha", "beta", "gamma"):
            if not checks.positive_number("Ascent", name, getattr(self, name), "The default is 0.25.") <= 0.5:
                rule = "must be the probability of a tail, at most 0.5"
                raise refusal("Ascent", name, rule, getattr(self, name), "The default is 0.25.")


@dataclass(frozen=True)
class Staged:
    """The paper's schedule: tolerances on the parameters' change with growing samples, each stage from the last's end.

    Redrawn at each iteration, the change does not settle below the step's own noise, so a stage ends after `cap` steps.
    """

    tolerances: tuple[float, ...] = (1e-3, 1e-4, 1e-5)
    sizes: tuple[int, ...] = (10**3, 10**5, 10**7)
    cap: int = 25

    def __post_init__(self) -> None:
        checks.integer("Staged", "cap", self.cap, least=1, advice="The default is 25.")
        for name in ("sizes", "tolerances"):
            given = getattr(self, name)
            if not isinstance(given, (tuple, list)) or not given:
                raise refusal("Staged", name, "must be one number for every stage", given, "Give, for example, three.")
            object.__setattr__(self, name, tuple(given))
        for size in self.sizes:
            checks.integer("Staged", "sizes", size, least=10, advice="The default is (10**3, 10**5, 10**7).")
        for tolerance in self.tolerances:
            checks.positive_number("Staged", "tolerances", tolerance, "The default is (1e-3, 1e-4, 1e-5).")
        if len(self.sizes) != len(self.tolerances):
            rule = f"must be as many as the tolerances, {len(self.tolerances)}"
            raise refusal("Staged", "sizes", rule, self.sizes, "Give both for every stage.")


LIMIT = 6.0
"""Monte Carlo errors that two estimates of the information may lie apart."""
ROUGH = (
    "the score has jumps (a law with a kink, such as dist.Laplace?), so that Louis's identity does not give the "
    "information, nor the standard errors. Use nw.EM(), or nw.sample."
)

UNSETTLED = (
    "the climb ended, but Newton steps on five fresh samples did not lead to a root of the score: this is "
    "not the top. Start nearer to it, raise `most`, or use another e_step."
)
THIN = (
    "of {size:,} values simulated at the end the noise leaves only {ess:.3g} effective ones{where}: neither the "
    "estimate nor its errors can be trusted. Raise `final`, or use nw.EM() or nw.sample."
)
IDLE = 3
"""Steps in a row without a rise above its noise, on the largest samples, that end a climb: one alone is chance."""
ATTEMPTS = 5
"""Fresh samples on which a root of the score is looked for."""
NEWTON = 4
"""Newton steps on one sample: each roughly squares the distance to its root."""
FEW = 100.0
"""Effective values below which a sample knows nothing of its own error: one value has no spread, whatever it is."""
FEWEST = 2.0
"""Effective values that every entry must have at the end: with fewer it rests on a single one."""

E_STEPS = ("importance", "rejection", "resampled", "markov", "recycled")


@dataclass(frozen=True)
class MCEM(Estimator):
    """Settings: the E-step's variant, the schedule of sample sizes, and the most iterations."""

    e_step: str = "importance"
    schedule: Ascent | Staged = field(default_factory=Ascent)
    max_iterations: int = 500
    final: int = 1_000_000
    """Fresh values at the maximiser, for score, information and Monte Carlo error."""

    def __post_init__(self) -> None:
        checks.choice("MCEM", "e_step", self.e_step, E_STEPS)
        if not isinstance(self.schedule, (Ascent, Staged)):
            raise refusal("MCEM", "schedule", "must be an Ascent or a Staged", self.schedule, "Leave it out if unsure.")
        checks.integer("MCEM", "max_iterations", self.max_iterations, least=1, advice="The default is 500.")
        checks.integer("MCEM", "final", self.final, least=100, advice="The default is 1_000_000.")

    def run(
        self,
        problem: Problem,
        start: dict[str, Array],
        seed: int,
        engine: Engine,
        progress: Steps,
        log: Log = NOTHING,
    ) -> Fit:
        """Climb; then step to the top by Newton's method on fresh samples, and measure there. Ctrl-C ends early."""
        climb = Climb(self, problem, start, seed, engine, progress, log)
        with progress:
            try:
                status, message = climb.climbed()
                clouds, edge = climb.settle(newton=status != "boundary")
                if edge is not None:
                    status, message = climb.at_edge(edge)
                elif status != "boundary" and (told := climb.too_thin(clouds)):
                    status, message = "thin", told
                elif not climb.settled:
                    status, message = "stalled", UNSETTLED
                elif climb.is_rough(clouds):
                    status, message = "rough", ROUGH
            except KeyboardInterrupt:
                status, message = "interrupted", f"interrupted after {len(climb.trace)} iterations."
                clouds = climb.here()
        diagnostics = {
            "simulated": climb.simulated,
            "ess": smallest(clouds),
            "log_likelihood_error": math.sqrt(sum(_log_variance(cloud) for cloud in clouds)),
            "iterations": len(climb.trace),
        }
        end = End(climb.free, clouds, status, message, climb.trace, diagnostics, monte_carlo=True)
        return finish(self, problem, seed, climb.objective, end)


class Climb:
    """One run's state: where it is, what it has simulated, and the trace."""

    def __init__(
        self, settings: MCEM, problem: Problem, start: Values, seed: int, engine: Engine, progress: Steps, log: Log
    ) -> None:
        self.settings, self.seed, self.engine, self.progress, self.log = settings, seed, engine, progress, log
        self.parts, self.coordinates = parts_with_totals(problem), Coordinates(problem.model)
        self.objective = Objective(self.parts, self.coordinates)
        self.free = self.coordinates.free_from(start)
        self.trace: list[dict[str, Any]] = []
        self.simulated = 0
        self.room = room_for(self.parts)
        """Most values a cloud may hold: entries and records take room."""
        self.settled = False
        """Whether the last Newton step was within its Monte Carlo error."""
        self._last: tuple[Values, list[Cloud]] | None = None
        self._made: tuple[Array, int, int, int] | None = None
        """What the last E-step's simulation was made with."""

    # Checkpoints --------------------------------------------------------------------------------------------------

    def climbed(self) -> tuple[str, str]:
        """Status and message of the climb; from the log, where that has it."""
        self._check()
        if (kept := self.log.get("climbed")) is not None:
            self.trace, self.free, self.simulated = (kept[name] for name in ("trace", "free", "simulated"))
            return kept["status"], kept["message"]
        status, message = self.ascent() if isinstance(self.settings.schedule, Ascent) else self.staged()
        kept = {"status": status, "message": message, "trace": self.trace}
        self.log.put(kept | {"free": self.free, "simulated": self.simulated}, "climbed")
        return status, message

    def _check(self) -> None:
        """That the model gives the numbers it gave when the log was begun."""
        if not self.log:
            return
        values = self.coordinates.values(self.free)
        found = [self._simulate(part, values, CHECK, index, 64) for index, part in enumerate(self.parts)]
        laws = [np.asarray(part.log_prob_many(values, s)) for part, (s, _) in zip(self.parts, found, strict=True)]
        try:
            self.log.same([found, laws], "starts")
        except InputError as error:  # not a matter of this start, which another could make good
            raise InferenceError(str(error)) from None

    def resumed(self, place: dict[str, Any]) -> dict[str, Any]:
        """Take up the iterations in the log: the place in the schedule after them, `place` where there are none."""
        simulated = 0
        while (kept := self.log.get("iteration", len(self.trace) + 1)) is not None:
            self.trace.append(kept["row"])
            place, self.free, self._made = kept["place"], kept["free"], kept["made"]
            simulated = kept["simulated"]
        if self._made is not None:
            if self.settings.e_step == "recycled":
                free, iteration, batch, size = self._made
                self._last = (
                    self.coordinates.values(free),
                    self.clouds(free, E_STEP + iteration, batch, size, "importance"),
                )
            self.simulated = simulated
        return place

    def saved(self, **place: Any) -> None:
        """Keep the iteration that ended, and the place in the schedule that comes next."""
        kept = {"row": self.trace[-1], "free": self.free, "simulated": self.simulated, "made": self._made}
        number = len(self.trace)
        self.log.put(
            kept | {"place": place, "done": number, "total": self.settings.max_iterations}, "iteration", number
        )

    # E-steps ------------------------------------------------------------------------------------------------------

    def clouds(self, free: Array, purpose: int, batch: int, size: int, variant: str) -> list[Cloud]:
        """A simulated cloud for every part at the current parameters."""
        values = self.coordinates.values(free)
        found = []
        for index, part in enumerate(self.parts):
            number = index + len(self.parts) * batch
            s, log_eta = self._simulate(part, values, purpose, number, size)
            self.simulated += size
            rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(purpose, number, 2**31)))
            found.append(VARIANTS[variant](rng, part, s, log_eta))
        return found

    def _simulate(self, part: Part, values: Values, purpose: int, index: int, size: int) -> tuple[Array, Array]:
        if part.exact:
            s = np.broadcast_to(np.asarray(part.item.value, float), (1, *part.shape))
            return s, part.log_prob_many(values, s)
        rows = max(64, min(ROWS, 2**19 // max(1, int(np.prod(part.shape)))))
        parents = {name: np.broadcast_to(values[name], (rows, *np.shape(values[name]))) for name in part.law.parents}

        def work(rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]) -> Any:
            s = part.law.draw(rng, parents, rows)
            return {"s": s, "log_eta": part.log_eta(s)}, np.arange(rows)

        stream = Stream(index, rows, work, part.name)
        quiet = Progress(False, "")
        outcome = run([stream], size, self.seed, purpose, engine=self.engine, progress=quiet)
        if outcome.status == "interrupted":
            raise KeyboardInterrupt
        return outcome.columns["s"], outcome.columns["log_eta"]

    def _e_step(self, free: Array, iteration: int, batch: int, size: int) -> list[Cloud]:
        variant = self.settings.e_step
        if variant == "recycled" and batch == 0 and self._last is not None:
            again = self._recycled(self.coordinates.values(free))
            if again is not None:
                return again
        clouds = self.clouds(free, E_STEP + iteration, batch, size, "importance" if variant == "recycled" else variant)
        self._last, self._made = (self.coordinates.values(free), clouds), (free, iteration, batch, size)
        return clouds

    def _recycled(self, values: Values) -> list[Cloud] | None:
        """The last cloud, moved from its parameters to the current ones; None if too uneven."""
        assert self._last is not None
        before, old = self._last
        found = [moved(part, cloud, before, values) for part, cloud in zip(self.parts, old, strict=True)]
        uneven = any(new.ess < 0.5 * cloud.ess for new, cloud in zip(found, old, strict=True))
        return None if uneven else found

    def settle(self, newton: bool = True) -> tuple[list[Cloud], str | None]:
        """Newton steps on the observed score of a fresh sample to the root of that score; a new sample if they miss it.

        That root is the estimate, and its error follows from Louis's moments. A climb may end
        near an edge that it reaches too slowly to see: then the parameter is named, and no step taken.
        """
        size = min(self.settings.final, self.room)
        self.settled = True
        first = 0
        if (kept := self.log.get("settling")) is not None:
            first, self.free, self.simulated = kept["attempt"], kept["free"], kept["simulated"]
        for attempt in range(first, ATTEMPTS):
            kept = {"attempt": attempt, "free": self.free, "simulated": self.simulated}
            self.log.put(kept, "settling")
            self.progress.step(len(self.trace), f"measuring at the top with {size:,} values")
            before = self.coordinates.values(self.free)
            clouds = self.clouds(self.free, LAST - attempt, 0, size, "importance")
            self._last = (before, clouds)
            louis = self.objective.score_and_information(self.free, clouds)
            if newton:
                edge = near_edge(self.objective, self.free, clouds, louis.score, louis.information)
                if edge is not None:
                    return clouds, edge
            if not newton or not louis.has_top:
                break
            clouds, found = self._root(clouds, louis)
            if found:
                break
        else:
            self.settled = False
        return clouds, None

    def _root(self, drawn: list[Cloud], louis: Louis) -> tuple[list[Cloud], bool]:
        """Newton steps on one sample, moved along; and whether its score vanishes there, within a tenth of its error.

        A sample that has become uneven on the way cannot tell: the next one, drawn where this one leads, must.
        """
        step, _ = louis.newton()
        for _ in range(NEWTON):
            self.free = self.objective.stepped(self.free, step)
            clouds = self.here()
            louis = self.objective.score_and_information(self.free, clouds)
            even = all(new.ess >= 0.5 * old.ess for new, old in zip(clouds, drawn, strict=True))
            if not even or not louis.has_top:
                return clouds, False
            step, error = louis.newton()
            if np.all(np.abs(step) <= 0.1 * error):
                return clouds, True
        return clouds, False

    def too_thin(self, clouds: list[Cloud]) -> str:
        """What to say of a last sample that knows too little of its own error; nothing of a good one."""
        for part, cloud in zip(self.parts, clouds, strict=True):
            if len(cloud.values) > 1 and (thin([cloud]) or cloud.ess < FEWEST):
                where = f" for the worst entry of '{part.name}'" if cloud.weights.shape[1] > 1 else ""
                return THIN.format(size=len(cloud.values), ess=cloud.ess, where=where)
        return ""

    def is_rough(self, clouds: list[Cloud]) -> bool:
        """Whether the score's slope over a third of a standard error is not at all what Louis's identity says."""
        if all(part.smooth for part in self.parts):
            return False
        before = self.coordinates.values(self.free)

        def clouds_at(free: Array) -> list[Cloud]:
            after = self.coordinates.values(free)
            return [moved(part, cloud, before, after) for part, cloud in zip(self.parts, clouds, strict=True)]

        louis = self.objective.score_and_information(self.free, clouds)
        slope = self.objective.slope(self.free, louis, 0.3, clouds_at)
        gap = np.abs(np.diag(slope - louis.information)) - LIMIT * np.sqrt(np.diag(louis.information_noise))
        return bool(np.any(gap > 0.5 * np.maximum(np.abs(np.diag(slope)), np.abs(np.diag(louis.information)))))

    def here(self) -> list[Cloud]:
        """The last clouds, moved to where the run is; a small fresh sample if there are none yet."""
        if self._last is None:
            return self.clouds(self.free, LAST, 0, min(1_000, self.room), "importance")
        before, clouds = self._last
        after = self.coordinates.values(self.free)
        return [moved(part, cloud, before, after) for part, cloud in zip(self.parts, clouds, strict=True)]

    # Schedules ------------------------------------------------------------------------------------------------------

    def _m_step(self, free: Array, clouds: list[Cloud]) -> Array:
        small = [condensed(part, cloud) for part, cloud in zip(self.parts, clouds, strict=True)]
        return self.objective.maximise(free, small)

    def rise(self, free: Array, new: Array, clouds: list[Cloud]) -> tuple[float, float]:
        """Q(new) - Q(free) and its Monte Carlo standard error: delta method for weights, batch means for chains."""
        before, after = self.coordinates.values(free), self.coordinates.values(new)
        total, variance = 0.0, 0.0
        for part, cloud in zip(self.parts, clouds, strict=True):
            change = part.log_prob_many(after, cloud.values) - part.log_prob_many(before, cloud.values)
            change = np.where(cloud.weights > 0, change, 0.0)
            mean = np.sum(cloud.weights * change, axis=0)
            total += float(mean.sum())
            terms = cloud.weights * (change - mean)
            variance += float(np.sum((in_batches(terms) if self.settings.e_step == "markov" else terms) ** 2))
        return total, math.sqrt(variance)

    def _advance(self, new: Array, size: int, clouds: list[Cloud], note: str, **more: Any) -> str | None:
        """Record a step and take it; the parameter, if any, that it shows to run to the edge of its space."""
        ess = smallest(clouds)
        iteration = len(self.trace)
        self.trace.append({"iteration": iteration, "size": size, "ess": ess, **self.coordinates.values(new), **more})
        self.progress.step(iteration, f"{size:,} values, {note}")
        outwards = (new - self.free) * self.free > 0
        edge = at_edge(self.objective, self.free, partial(self._gained, clouds)) if outwards.any() else None
        self.free = new
        return edge

    def _gained(self, clouds: list[Cloud], i: int, start: float, end: float) -> float:
        before, after = (gain(self.objective, self.free, clouds, i, place)[0] for place in (start, end))
        return after - before

    def at_edge(self, name: str) -> tuple[str, str]:
        """Status and message of a run that ends there."""
        return "boundary", edge_message(name, self.coordinates.values(self.free))

    def ascent(self) -> tuple[str, str]:
        """Caffo, Jank and Jones: climb only when the sample shows a rise, and grow the sample until it does."""
        plan = self.settings.schedule
        assert isinstance(plan, Ascent)
        lower, upper, power = norm.isf(plan.alpha), norm.isf(plan.gamma), norm.isf(plan.beta)
        most = min(plan.most, self.room)
        place = self.resumed({"size": min(plan.start, most), "idle": 0})
        size, idle = place["size"], place["idle"]
        for iteration in range(len(self.trace), self.settings.max_iterations):
            clouds, batch = self._e_step(self.free, iteration, 0, size), 1
            while True:
                new = self._m_step(self.free, clouds)
                rise, error = self.rise(self.free, new, clouds)
                shown = not thin(clouds)  # else the error is not known, nor what it would decide
                if size >= most or (shown and (rise - lower * error > 0 or rise + upper * error < plan.tolerance)):
                    break
                more = min(math.ceil(size * (plan.growth - 1.0)), most - size)
                clouds = [
                    joined(a, b, size, more)
                    for a, b in zip(clouds, self._e_step(self.free, iteration, batch, more), strict=True)
                ]
                size, batch = size + more, batch + 1
            edge = self._advance(new, size, clouds, f"rise {rise:.3g}", rise=rise, rise_error=error)
            if edge is not None:
                return self.at_edge(edge)
            if shown and rise + upper * error < plan.tolerance:
                return "converged", ""
            idle = idle + 1 if shown and size >= most and rise - lower * error <= 0 else 0
            if idle == IDLE:
                return "converged", f"the sample size reached most={most}: the rise is within its noise."
            size = min(most, max(size, next_size(rise, error, size, lower, power)))
            self.saved(size=size, idle=idle)
        limit = self.settings.max_iterations
        return "max_iterations", f"MCEM has not converged in max_iterations={limit} steps. Raise it."

    def staged(self) -> tuple[str, str]:
        """The paper's three stages."""
        plan = self.settings.schedule
        assert isinstance(plan, Staged)
        place = self.resumed({"stage": 0, "step": 0, "capped": []})
        stage, step, capped = place["stage"], place["step"], place["capped"]
        while stage < len(plan.sizes):
            size = min(plan.sizes[stage], self.room)
            clouds = self._e_step(self.free, len(self.trace), 0, size)
            new = self._m_step(self.free, clouds)
            before, after = self.coordinates.values(self.free), self.coordinates.values(new)
            change = max(float(np.max(np.abs(after[name] - before[name]))) for name in after)
            edge = self._advance(new, size, clouds, f"change {change:.3g}", stage=stage + 1)
            if edge is not None:
                return self.at_edge(edge)
            small, step = change < plan.tolerances[stage] and not thin(clouds), step + 1
            if not small and step == plan.cap:
                capped.append(stage + 1)
            if small or step == plan.cap:
                stage, step = stage + 1, 0
            self.saved(stage=stage, step=step, capped=capped)
        message = f"stages {capped} ended at their cap of {plan.cap} steps, within their own noise." if capped else ""
        return "converged", message


def thin(clouds: list[Cloud]) -> bool:
    """Whether the entries of some simulated cloud have too few effective values, all together, to tell its error."""
    sizes = [np.sum(1.0 / np.sum(cloud.weights**2, axis=0)) for cloud in clouds if len(cloud.values) > 1]
    return any(size < FEW for size in sizes)


def smallest(clouds: list[Cloud]) -> float:
    """The effective size of the entry that has fewest values; what is known exactly, one value, does not count."""
    return min((cloud.ess for cloud in clouds if len(cloud.values) > 1), default=math.inf)


def in_batches(terms: Array) -> Array:
    """Sums over about sqrt(length) stretches of a chain's terms: their squares add up to the variance of the total.

    Terms of a chain hang together, those of stretches hardly; terms sum to zero, hence the factor.
    """
    length = len(terms)
    batches = math.isqrt(length)
    if batches < 2:
        return terms
    starts = np.linspace(0, length, batches, endpoint=False).astype(int)
    found: Array = np.add.reduceat(terms, starts, axis=0) * math.sqrt(batches / (batches - 1))
    return found


def _log_variance(cloud: Cloud) -> float:
    """Of the log likelihood's estimate, by the delta method: weights of equal size have none."""
    return float(np.sum(np.maximum(np.sum(cloud.weights**2, axis=0) - 1.0 / len(cloud.values), 0.0)))


def next_size(rise: float, error: float, size: int, lower: float, power: float) -> int:
    """The sample size at which a rise like this one would be seen: sigma^2 (z_alpha + z_beta)^2 / rise^2.

    sigma^2 is the variance of the Monte Carlo average times the size of the sample behind it, not the squared error.
    """
    sigma_squared = size * error**2
    return math.ceil(sigma_squared * (lower + power) ** 2 / rise**2) if rise > 0 else size


def joined(first: Cloud, second: Cloud, size: int, more: int) -> Cloud:
    """Two clouds of one law as one: each weighs as much as its share of the simulations times its likelihood."""
    if len(first.values) == 1:
        return first
    logs = np.stack([math.log(size) + first.log_likelihoods, math.log(more) + second.log_likelihoods])
    logs -= math.log(size + more)
    total = logsumexp(logs, axis=0)
    weights = np.concatenate([first.weights * np.exp(logs[0] - total), second.weights * np.exp(logs[1] - total)])
    return Cloud(np.concatenate([first.values, second.values]), weights, total)


# Variants of the E-step: (rng, part, simulated s, log eta) -> cloud ---------------------------------------------------


def _importance(rng: np.random.Generator, part: Part, s: Array, log_eta: Array) -> Cloud:
    """Weights eta (the paper's Algorithm 3)."""
    return weighted(s, log_eta - math.log(len(s)))


def _rejection(rng: np.random.Generator, part: Part, s: Array, log_eta: Array) -> Cloud:
    """Weight one where a proposal is accepted with probability eta / sup, else zero."""
    if len(s) == 1:
        return _importance(rng, part, s, log_eta)
    log_sup = np.asarray(part.mechanism.log_sup(part.item.value), float).reshape(-1)
    log_sup = np.broadcast_to(log_sup, log_eta.shape[1]) if part.by_entry else log_sup.sum(keepdims=True)
    kept = rng.standard_exponential(log_eta.shape) >= log_sup - log_eta
    kept[np.argmax(log_eta, axis=0), np.arange(log_eta.shape[1])] |= ~kept.any(axis=0)
    counts = kept.sum(axis=0)
    return Cloud(s, kept / counts, np.log(counts / len(s)) + log_sup)


def _resampled(rng: np.random.Generator, part: Part, s: Array, log_eta: Array) -> Cloud:
    """An equally weighted sample drawn by weight, systematically, entry by entry."""
    cloud = _importance(rng, part, s, log_eta)
    points = (rng.random(cloud.weights.shape[1]) + np.arange(len(s))[:, None]) / len(s)
    counts = np.empty_like(cloud.weights)
    for entry in range(cloud.weights.shape[1]):
        index = np.searchsorted(np.cumsum(cloud.weights[:, entry]), points[:, entry])
        counts[:, entry] = np.bincount(np.minimum(index, len(s) - 1), minlength=len(s))
    return Cloud(s, counts / len(s), cloud.log_likelihoods)


def _markov(rng: np.random.Generator, part: Part, s: Array, log_eta: Array) -> Cloud:
    """An independence Metropolis chain per entry, proposals from the model: weight by time spent."""
    if len(s) == 1:
        return _importance(rng, part, s, log_eta)
    length, entries = log_eta.shape
    thresholds = -rng.standard_exponential((length, entries))
    state = np.argmax(log_eta[: max(1, length // 100)], axis=0)  # starts where the chain would soon be
    spent = np.zeros((length, entries))
    columns = np.arange(entries)
    for step in range(length):
        accepted = log_eta[step] - log_eta[state, columns] >= thresholds[step]
        state = np.where(accepted, step, state)
        spent[state, columns] += 1.0
    return Cloud(s, spent / length, _importance(rng, part, s, log_eta).log_likelihoods)


VARIANTS = {
    "importance": _importance,
    "rejection": _rejection,
    "resampled": _resampled,
    "markov": _markov,
}
