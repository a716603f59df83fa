"""Monte Carlo EM (Gong 2022, Algorithms 2 and 3), with the ascent-based schedule of Caffo, Jank and Jones (2005).

The E-step simulates the confidential statistic from the current model and weighs it by the noise density; entries that
are independent are weighted one by one. Derivations: docs/derivations/likelihood.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
from scipy.special import chdtri, ndtri

from noisewise import checks
from noisewise.checkpoint.log import NOTHING, Log
from noisewise.engine import Engine
from noisewise.errors import InferenceError, InputError, Place, refusal
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import AFTER_BLOCKS, Prefix, Purpose, generator
from noisewise.inference.records import total_of, unfit
from noisewise.inference.settings import Estimator
from noisewise.inference.streams import Columns, Stream, run
from noisewise.likelihood.display import Steps
from noisewise.likelihood.e_step.augmented import Augmented
from noisewise.likelihood.e_step.cloud import Cloud, Clouds, weighted
from noisewise.likelihood.e_step.entries_in_pieces import cut_up, divides, first_pieces, in_pieces
from noisewise.likelihood.e_step.independent_parts import Part
from noisewise.likelihood.e_step.records import LEAST, MOST_NUMBERS, Records, parts_with_totals
from noisewise.likelihood.e_step.simulated import (
    FEW,
    VARIANTS,
    both,
    eased,
    first_half,
    in_batches,
    is_even,
    log_likelihood_error,
    mixes,
    mixture,
    second_half,
    smallest,
    some_of,
    thin,
)
from noisewise.likelihood.e_step.sufficient import condensed, is_family
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.m_step.maximise import Louis, Objective
from noisewise.likelihood.result import End, at_edge, edge_message, finish, gain, near_edge, standard_errors_left
from noisewise.likelihood.schedules import Ascent, Staged, next_size
from noisewise.numerics import Array
from noisewise.results.fit import Fit

Values = dict[str, Any]

ROWS = 2**14


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
    "estimate nor its errors can be trusted. {advice}"
)
THICKEN = 'Raise `final`, try e_step="mixture", or use nw.EM() or nw.sample.'
AUGMENT = "Use nw.MCEM(e_step=\"augmented\"), whose records stay near the released '{name}', or nw.sample."
UNREST = (
    "the chains over the records of '{name}' have not forgotten where they began: single records are hardly ever "
    "replaced, or few carry the total. Start nearer to the release, raise `final`, or use nw.sample."
)
UNKNOWN = (
    "The log likelihood is not known: of {size:,} totals simulated for '{name}' the noise leaves only {ess:.3g} "
    "effective ones. Estimate and errors do not rest on them."
)
CUT = (
    "samples were of at most {room:,} values, not of the {asked:,} asked for: those of all entries or records fill the "
    "room there is. The Monte Carlo errors count that."
)
IDLE = 3
"""Steps in a row without a rise above what noise gives, on the largest samples, that end a climb: one is chance."""
SLOW = 10
"""Steps after which a climb looks whether Newton's can help: EM's may be many and small."""
ATTEMPTS = 5
"""Fresh samples on which a root of the score is looked for."""
MEASUREMENTS = {Purpose.MEASUREMENT.step(attempt) for attempt in range(ATTEMPTS)}
NEWTON = 4
"""Newton steps on one sample: each roughly squares the distance to its root."""
FEWEST = 2.0
"""Effective values that every entry must have at the end: the variance that k of them show is short by 1/k."""
MOST_SIMULATED = 2**25
"""Numbers that an E-step may draw of one statistic, though not fewer than `LEAST` values of every entry."""

BIASED = ("score", "bias", "information", "information_bias", "complete")

BY_WEIGHT = ("importance", "mixture", "recycled")
"""E-steps whose weights are densities, which more noise would make more even."""
E_STEPS = ("importance", "mixture", "rejection", "resampled", "markov", "recycled", "augmented")


@dataclass(frozen=True)
class MCEM(Estimator):
    """Settings: the E-step's variant, the schedule of sample sizes, and the most iterations."""

    e_step: str = "importance"
    """Values from the model with weights, or others; "augmented", for totals, runs chains over their records."""
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

    @property
    def asked(self) -> int:
        """Values of the largest sample that is not a matter of need."""
        return max((self.final, *(self.schedule.sizes if isinstance(self.schedule, Staged) else ())))

    @property
    def largest(self) -> int:
        """Values of the largest E-step."""
        plan = self.schedule
        return max(self.final, plan.most if isinstance(plan, Ascent) else max(plan.sizes))

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
                clouds, louis, edge = climb.settle(newton=status != "boundary")
                if edge is not None:
                    status, message = climb.at_edge(edge)
                elif status != "boundary" and (told := climb.too_thin(clouds)):
                    status, message = "thin", told
                elif not climb.settled:
                    status, message = "stalled", UNSETTLED
                elif climb.is_rough(clouds, louis):
                    status, message = "rough", ROUGH
                height = climb.height(clouds)
            except KeyboardInterrupt:
                if len(climb.parts) < len(climb.pieces):
                    climb.use(climb.pieces)
                status, message = "interrupted", f"interrupted after {len(climb.trace)} iterations."
                clouds = climb.here()
                louis = climb.objective.score_and_information(climb.free, clouds)
                height = climb.height(clouds, simulate=False)
        if self.asked > climb.room:
            message = f"{message} {CUT.format(room=climb.room, asked=self.asked)}".lstrip()
        tilt = climb.tilt(clouds, louis)
        likelihood, error, told = height
        diagnostics = {
            "simulated": climb.simulated,
            "final": min(self.final, climb.room),
            "ess": smallest(clouds),
            "log_likelihood_error": error,
            "iterations": len(climb.trace),
        }
        message = f"{message} {told}".strip()
        end = End(climb.free, louis, likelihood, status, message, climb.trace, diagnostics, tilt=tilt, monte_carlo=True)
        return finish(self, problem, seed, climb.coordinates, end)


class Climb:
    """One run's state: where it is, what it has simulated, and the trace."""

    def __init__(
        self, settings: MCEM, problem: Problem, start: Values, seed: int, engine: Engine, progress: Steps, log: Log
    ) -> None:
        self.settings, self.seed, self.engine, self.progress, self.log = settings, seed, engine, progress, log
        self.problem, augmented = problem, settings.e_step == "augmented"
        self.coordinates = Coordinates(problem.model)
        whole = parts_with_totals(problem, Augmented if augmented else Records)
        if augmented and not any(isinstance(part, Augmented) for part in whole):
            rule = "must be another where no Total is released: there are no records to augment"
            raise refusal("MCEM", "e_step", rule, settings.e_step, "Leave it out.")
        self.room = room_for(whole, start)
        """Most values an E-step may draw: entries and records take room, and time."""
        rows = min(self.room, settings.largest)
        self.pieces = [piece for part in whole for piece in cut_up(part, start, rows)]
        self.use(first_pieces(self.pieces))
        self.free = self.coordinates.free_from(start)
        self.trace: list[dict[str, Any]] = []
        self.simulated = 0
        self.settled = False
        """Whether the last Newton step was within its Monte Carlo error."""

    def use(self, parts: list[Part]) -> None:
        """Look at these parts from now on: some of very many entries to climb, all at the top."""
        self.parts, self.objective = parts, Objective(parts, self.coordinates)
        self.held = not in_pieces(parts) or len(parts) < len(self.pieces)
        self._last: tuple[Values, Clouds] | None = None
        self._made: tuple[Array, int, int, int] | None = None
        """What the last E-step's simulation was made with."""

    # Checkpoints --------------------------------------------------------------------------------------------------

    def climbed(self) -> tuple[str, str]:
        """Status and message of the climb; from the log, where that has it."""
        self._check()
        if (kept := self.log.get("climbed")) is not None:
            self.trace, self.free, self.simulated = (kept[name] for name in ("trace", "free", "simulated"))
            return kept["status"], kept["message"]
        begin, schedule = self.free, self.ascent if isinstance(self.settings.schedule, Ascent) else self.staged
        status, message = schedule()
        if status == "boundary" and len(self.parts) < len(self.pieces):  # of some entries; what of all?
            self.free, self.trace, self.log = begin, [], self.log.within("all")
            self.use(self.pieces)
            status, message = schedule()
        kept = {"status": status, "message": message, "trace": self.trace}
        self.log.put(kept | {"free": self.free, "simulated": self.simulated}, "climbed")
        return status, message

    def _check(self) -> None:
        """That the model gives the numbers it gave when the log was begun."""
        if not self.log:
            return
        values = self.coordinates.values(self.free)
        rows = 1 if in_pieces(self.pieces) else 64
        found = [
            (self._chains(part, values, Purpose.CHECK, index, rows).values, np.empty(0))
            if isinstance(part, Augmented)
            else self._simulate(part, values, Purpose.CHECK, index, rows)
            for index, part in enumerate(self.pieces)
        ]
        laws = [np.asarray(part.log_prob_many(values, s)) for part, (s, _) in zip(self.pieces, found, strict=True)]
        try:
            self.log.same([found, laws], "starts")
        except InputError as error:  # not a matter of this start, which another could make good
            raise InferenceError(str(error), headline=error.headline) from None

    def resumed(self, place: dict[str, Any]) -> dict[str, Any]:
        """Take up the iterations in the log: the place in the schedule after them, `place` where there are none."""
        simulated = 0
        while (kept := self.log.get("iteration", len(self.trace) + 1)) is not None:
            self._refuse_misfit(kept["row"], kept["free"])
            self.trace.append(kept["row"])
            place, self.free, self._made = kept["place"], kept["free"], kept["made"]
            simulated = kept["simulated"]
        if self._made is not None:
            if self.settings.e_step == "recycled":
                free, iteration, batch, size = self._made
                self._last = (
                    self.coordinates.values(free),
                    self.clouds(free, Purpose.E_STEP.step(iteration), batch, size, "importance"),
                )
            self.simulated = simulated
        return place

    def _refuse_misfit(self, row: dict[str, Any], free: Array) -> None:
        """That an iteration in the log is one of this fit, and no climb from nowhere."""
        shapes = {name: np.shape(value) for name, value in self.coordinates.values(self.free).items()}
        good = free.shape == self.free.shape and free.dtype == self.free.dtype and bool(np.all(np.isfinite(free)))
        if not good or any(np.shape(row[name]) != shape for name, shape in shapes.items()):
            raise self.log.refusal(f"iteration {len(self.trace) + 1} has parameters of another shape")

    def saved(self, **place: Any) -> None:
        """Keep the iteration that ended, and the place in the schedule that comes next."""
        kept = {"row": self.trace[-1], "free": self.free, "simulated": self.simulated, "made": self._made}
        number = len(self.trace)
        self.log.put(
            kept | {"place": place, "done": number, "total": self.settings.max_iterations}, "iteration", number
        )

    # E-steps ------------------------------------------------------------------------------------------------------

    def clouds(self, free: Array, purpose: Purpose | Prefix, batch: int, size: int, variant: str) -> Clouds:
        """A simulated cloud for every part at the current parameters."""
        values = self.coordinates.values(free)
        self.simulated += size * len({part.name for part in self.parts})

        def make(index: int) -> Cloud:
            part, number = self.parts[index], index + len(self.parts) * batch
            if variant == "augmented" and isinstance(part, Augmented):
                return self._chains(part, values, purpose, number, size)
            s, log_weights = self._simulate(part, values, purpose, number, size, variant == "mixture" and mixes(part))
            rng = generator(self.seed, purpose, number, AFTER_BLOCKS)
            return VARIANTS[variant](rng, part, s, log_weights)

        return Clouds(self.parts, make, self.held)

    def _chains(self, part: Augmented, values: Values, purpose: Purpose | Prefix, index: int, size: int) -> Cloud:
        """A cloud of about so many states of chains over the records."""
        blocks, states = part.blocks(size)
        looks = part.looks(states) if purpose in MEASUREMENTS else 1

        def work(rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]) -> Any:
            return part.run_chains(rng, values, states, poll, looks=looks), np.arange(rows)

        found = self._streamed(Stream(index, states * part.chains, work, part.name), purpose, blocks)
        return part.cloud(found, states)

    def _streamed(self, stream: Stream, purpose: Purpose | Prefix, blocks: int | None = None, size: int = 0) -> Columns:
        """So many whole blocks, or `size` values, of a stream."""
        draws = size if blocks is None else blocks * stream.rows
        outcome = run([stream], draws, self.seed, purpose, engine=self.engine, progress=Progress(False, ""))
        if outcome.status == "interrupted":
            raise KeyboardInterrupt
        return outcome.columns

    def _simulate(
        self, part: Part, values: Values, purpose: Purpose | Prefix, index: int, size: int, mixed: bool = False
    ) -> tuple[Array, Array]:
        """Values of s and their log weights: log eta for values from the model."""
        if part.exact:
            s = np.broadcast_to(np.asarray(part.item.value, float), (1, *part.shape))
            return s, part.log_prob_many(values, s)
        rows = max(1, min(ROWS, 2**19 // part.numbers))

        def work(rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]) -> Any:
            s = part.draw(rng, values, rows)
            s, log_weights = mixture(rng, part, values, s) if mixed else (s, part.log_eta(s))
            return {"s": s, "log_weights": log_weights}, np.arange(rows)

        found = self._streamed(Stream(index, rows, work, part.name), purpose, size=size)
        return found["s"], found["log_weights"]

    def height(self, clouds: Clouds, simulate: bool = True) -> tuple[float, float, str]:
        """The log likelihood, its Monte Carlo error, and what to say if it is not known.

        Chains know ratios of likelihoods only: the totals that they explain are simulated, and not kept.
        """
        own = [cast(Augmented, part) for part in self.parts if isinstance(part, Augmented)]
        if own and not simulate:
            return math.nan, math.nan, ""
        tops = clouds.changed(self._top) if own else clouds
        bias, error = log_likelihood_error(tops)
        for part in own:
            effective = float(tops.sizes[part.name].min())
            if not effective >= FEW:
                size = part.sets(self.settings.final)
                return math.nan, math.nan, UNKNOWN.format(size=size, name=part.name, ess=effective)
        return tops.log_likelihood + bias, error, ""

    def _top(self, part: Part, cloud: Cloud) -> Cloud:
        """Simulated totals with their weights, in place of chains."""
        if not isinstance(part, Augmented):
            return cloud
        values, drawn = self.coordinates.values(self.free), part.n * sum(part.widths.values())

        def work(rng: np.random.Generator, inputs: Columns, rows: int, poll: Callable[[], None]) -> Any:
            return {"log_weights": part.log_eta(part.draw(rng, values, rows))}, np.arange(rows)

        stream = Stream(self.parts.index(part), max(1, min(ROWS, 2**19 // drawn)), work, part.name)
        log_weights = self._streamed(stream, Purpose.HEIGHT, size=part.sets(self.settings.final))["log_weights"]
        return weighted(log_weights, log_weights - math.log(len(log_weights)))

    def _e_step(self, free: Array, iteration: int, batch: int, size: int) -> Clouds:
        variant = self.settings.e_step
        if variant == "recycled" and batch == 0 and self._last is not None:
            again = self._recycled(self.coordinates.values(free))
            if again is not None:
                return again
        drawn = "importance" if variant == "recycled" else variant
        clouds = self.clouds(free, Purpose.E_STEP.step(iteration), batch, size, drawn)
        self._last, self._made = (self.coordinates.values(free), clouds), (free, iteration, batch, size)
        return clouds

    def _recycled(self, values: Values) -> Clouds | None:
        """The last cloud, moved from its parameters to the current ones; None if too uneven."""
        assert self._last is not None
        before, old = self._last
        found = old.moved(before, values)
        return found if is_even(found, old) else None

    @property
    def measure(self) -> str:
        """The E-step of the last sample: independent values, unless others are asked for that fit better."""
        return self.settings.e_step if self.settings.e_step in ("mixture", "augmented") else "importance"

    def settle(self, newton: bool = True) -> tuple[Clouds, Louis, str | None]:
        """Newton steps on the observed score of a fresh sample to the root of that score; a new sample if they miss it.

        That root is the estimate, and its error follows from Louis's moments. A climb may end
        near an edge that it reaches too slowly to see: then the parameter is named, and no step taken.
        """
        size = min(self.settings.final, self.room)
        self.settled = True
        if len(self.parts) < len(self.pieces):
            self.use(self.pieces)
        first = 0
        if (kept := self.log.get("settling")) is not None:
            first, self.free, self.simulated = max(0, kept["attempt"]), kept["free"], kept["simulated"]
        for attempt in range(first, ATTEMPTS):
            kept = {"attempt": attempt, "free": self.free, "simulated": self.simulated}
            self.log.put(kept, "settling")
            self.progress.step(len(self.trace), f"measuring at the top with {size:,} values")
            before = self.coordinates.values(self.free)
            clouds = self.clouds(self.free, Purpose.MEASUREMENT.step(attempt), 0, size, self.measure)
            self._last = (before, clouds)
            louis = self.objective.score_and_information(self.free, clouds)
            if newton:
                edge = near_edge(self.objective, self.free, clouds, louis.score, louis.information)
                if edge is not None:
                    return clouds, louis, edge
            if not newton or not louis.has_top:
                break
            clouds, louis, found = self._root(clouds, louis)
            if found:
                break
        else:
            self.settled = False
        return clouds, louis, None

    def _root(self, drawn: Clouds, louis: Louis) -> tuple[Clouds, Louis, bool]:
        """Newton steps on one sample, moved along; and whether its score vanishes there, within a tenth of its error.

        A sample that has become uneven on the way cannot tell: the next one, drawn where this one leads, must.
        """
        rest = self.bias_left(drawn, louis)
        step, _ = (louis + rest).newton()
        for _ in range(NEWTON):
            self.free = self.objective.stepped(self.free, step)
            clouds = self.here()
            louis = self.objective.score_and_information(self.free, clouds) + rest
            if not is_even(clouds, drawn) or not louis.has_top:
                return clouds, louis, False
            step, error = louis.newton()
            if np.all(np.abs(step) <= 0.1 * error):
                return clouds, louis, True
        return clouds, louis, False

    def bias_left(self, clouds: Clouds, louis: Louis) -> Louis:
        """What biases of first order leave: by halves of the sample, which have four times as much.

        Of the complete information it is the bias of first order, with its sign turned.
        """
        rest = Louis.nothing(len(louis.score))
        if self.settings.final < 2 or not any(part.entries > 1 for part in self.parts):
            return rest
        halves = [
            self.objective.score_and_information(self.free, clouds.changed(half)) for half in (first_half, second_half)
        ]
        apart = [0.5 * (getattr(halves[0], one) + getattr(halves[1], one)) - getattr(louis, one) for one in BIASED]
        score, bias, information, information_bias, complete = apart
        left = {"bias": (score - bias) / 3.0, "information_bias": (information - information_bias) / 3.0}
        return replace(rest, **left, complete=-complete)

    def tilt(self, clouds: Clouds, louis: Louis) -> Array:
        """The information's slope times its inverse, from some of the values, and some of very many entries.

        Central differences over a tenth of a standard error; nothing where there is no top.
        """
        size = len(louis.score)
        none = np.zeros((size, size, size))
        if not louis.has_top or not self.coordinates.is_square:
            return none
        few = clouds.changed(partial(some_of, share=FEW / max(smallest(clouds), FEW)))
        before = self.coordinates.values(self.free)

        def at(free: Array) -> Array:
            there = few.moved(before, self.coordinates.values(free))
            return self.objective.information_of_some(free, there)

        inverse = np.linalg.inv(louis.information)  # that of some values might not be positive
        slopes = []
        for move in np.diag(0.1 * np.sqrt(np.maximum(np.diag(inverse), 0.0))):
            ends = [self.objective.stepped(self.free, side * move) for side in (-1.0, 1.0)]
            low, high = (self.coordinates.flat(self.coordinates.values(end)) for end in ends)
            slopes.append((at(ends[1]) - at(ends[0])) / float(np.max(np.abs(np.asarray(high - low)))))
        found = np.einsum("fab,fc->abc", np.array(slopes), inverse)
        return found if np.all(np.isfinite(found)) else none

    def too_thin(self, clouds: Clouds) -> str:
        """What to say of a last sample that knows too little of its own error; nothing of a good one."""
        for part, cloud in zip(self.parts, clouds, strict=True):
            if not cloud.at_rest:
                return UNREST.format(name=part.name)
        for name, sizes in clouds.sizes.items():
            bias, error = float(np.sum(sizes**-3.0)), math.sqrt(np.sum(1.0 / sizes))
            if np.sum(sizes) < FEW or sizes.min() < FEWEST or (len(sizes) > 1 and bias > 0.1 * error):
                where = f" for the worst entry of '{name}'" if len(sizes) > 1 else ""
                size = min(self.settings.final, self.room)
                return THIN.format(size=size, ess=float(sizes.min()), where=where, advice=self._advice(name))
        return ""

    def _advice(self, name: str) -> str:
        """What to do about a sample that is too thin."""
        total = total_of(self.problem.model, name) is not None
        augments = total and self.settings.e_step != "augmented" and unfit(self.problem, name) is None
        return AUGMENT.format(name=name) if augments else THICKEN

    def is_rough(self, clouds: Clouds, louis: Louis) -> bool:
        """Whether the score's slope over a third of a standard error is not at all what Louis's identity says."""
        if all(part.smooth for part in self.parts):
            return False
        before = self.coordinates.values(self.free)

        def clouds_at(free: Array) -> Clouds:
            return clouds.moved(before, self.coordinates.values(free))

        slope = self.objective.slope(self.free, louis, 0.3, clouds_at)
        gap = np.abs(np.diag(slope - louis.information)) - LIMIT * np.sqrt(np.diag(louis.information_noise))
        return bool(np.any(gap > 0.5 * np.maximum(np.abs(np.diag(slope)), np.abs(np.diag(louis.information)))))

    def here(self) -> Clouds:
        """The last clouds, moved to where the run is; a small fresh sample if there are none yet."""
        if self._last is None:
            return self.clouds(self.free, Purpose.MEASUREMENT.step(0), 0, min(1_000, self.room), self.measure)
        before, clouds = self._last
        return clouds.moved(before, self.coordinates.values(self.free))

    # Schedules ------------------------------------------------------------------------------------------------------

    def _m_step(self, free: Array, clouds: Clouds) -> Array:
        small = clouds.changed(condensed, held=self.held or all(is_family(part) for part in self.parts))
        return self.objective.maximise(free, small)

    def _leap(self) -> None:
        """Newton's step to the top, or a standard error of the way, if the sample then gives a higher likelihood.

        Where the noise hides much, EM's steps are many small ones in the same direction.
        """
        here = self.here()
        louis = self.objective.score_and_information(self.free, here)
        left = standard_errors_left(louis.score - louis.bias, louis.information)
        if self._last is None or not 0.0 < left < math.inf:
            return
        before, drawn = self._last
        new = self.objective.stepped(self.free, louis.newton()[0] / max(left, 1.0))
        there = drawn.moved(before, self.coordinates.values(new))
        if there.log_likelihood > here.log_likelihood and is_even(there, drawn):
            self.free = new

    def rise(self, free: Array, new: Array, clouds: Clouds) -> tuple[float, float]:
        """Q(new) - Q(free) and its Monte Carlo standard error: delta method for weights, batch means for chains."""
        before, after = self.coordinates.values(free), self.coordinates.values(new)
        total, variance = 0.0, 0.0
        for part, cloud in zip(self.parts, clouds, strict=True):
            change = part.log_prob_many(after, cloud.values) - part.log_prob_many(before, cloud.values)
            change = np.where(cloud.weights > 0, change, 0.0)
            mean = np.sum(cloud.weights * change, axis=0)
            total += float(mean.sum())
            terms = cloud.weights * (change - mean)
            variance += cloud.variance(in_batches(terms) if self.settings.e_step == "markov" else terms)
        return total, math.sqrt(variance)

    def _advance(self, new: Array, size: int, clouds: Clouds, note: str, **more: Any) -> str | None:
        """Record a step and take it; the parameter, if any, that it shows to run to the edge of its space."""
        ess = smallest(clouds)
        iteration = len(self.trace)
        self.trace.append({"iteration": iteration, "size": size, "ess": ess, **self.coordinates.values(new), **more})
        self.progress.step(iteration, f"{size:,} values, {note}")
        outwards = (new - self.free) * self.free > 0
        edge = at_edge(self.coordinates, self.free, partial(self._gained, clouds)) if outwards.any() else None
        self.free = new
        return edge

    def _gained(self, clouds: Clouds, i: int, start: float, end: float) -> float:
        before, after = (gain(self.objective, self.free, clouds, i, place)[0] for place in (start, end))
        return after - before

    def at_edge(self, name: str) -> tuple[str, str]:
        """Status and message of a run that ends there."""
        return "boundary", edge_message(name, self.coordinates.values(self.free))

    def ascent(self) -> tuple[str, str]:
        """Caffo, Jank and Jones: climb only when the sample shows a rise, and grow the sample until it does."""
        plan = self.settings.schedule
        assert isinstance(plan, Ascent)
        lower, upper, power = -ndtri(plan.alpha), -ndtri(plan.gamma), -ndtri(plan.beta)
        most = min(plan.most, self.room)
        noise = max(lower, 0.5 * math.sqrt(chdtri(self.coordinates.size, plan.alpha)))
        place = self.resumed({"size": min(plan.start, most), "idle": 0, "height": -math.inf})
        size, idle, height = place["size"], place["idle"], place["height"]
        for iteration in range(len(self.trace), self.settings.max_iterations):
            clouds, batch = self._e_step(self.free, iteration, 0, size), 1
            if self.settings.e_step in BY_WEIGHT and thin(clouds) and clouds.log_likelihood > height + 1.0:
                height = clouds.log_likelihood
                edge = self._advance(self._m_step(self.free, eased(clouds)), size, clouds, f"height {height:.3g}")
                if edge is not None:
                    return self.at_edge(edge)
                self.saved(size=size, idle=idle, height=height)
                continue
            while True:
                new = self._m_step(self.free, clouds)
                rise, error = self.rise(self.free, new, clouds)
                shown = not thin(clouds)  # else the error is not known, nor what it would decide
                if size >= most or (shown and (rise - lower * error > 0 or rise + upper * error < plan.tolerance)):
                    break
                more = min(math.ceil(size * (plan.growth - 1.0)), most - size)
                clouds = both(clouds, self._e_step(self.free, iteration, batch, more), size, more)
                size, batch = size + more, batch + 1
            edge = self._advance(new, size, clouds, f"rise {rise:.3g}", rise=rise, rise_error=error)
            if edge is not None:
                return self.at_edge(edge)
            if shown and rise + upper * error < plan.tolerance:
                return "converged", ""
            if shown and iteration % SLOW == SLOW - 1:
                self._leap()
            idle = idle + 1 if shown and size >= most and rise - noise * error <= 0 else 0
            if idle == IDLE:
                return "converged", f"the sample size reached most={most}: the rise is within its noise."
            size = min(most, max(size, next_size(rise, error, size, lower, power)))
            self.saved(size=size, idle=idle, height=height)
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


def room_for(parts: list[Part], values: Values) -> int:
    """Most values that an E-step may draw of every part: very many entries are drawn in pieces, if they can be cut."""
    room = 2**62
    for part in parts:
        if part.exact:
            continue
        if isinstance(part, Augmented):
            room = min(room, part.room)
            continue
        most = (MOST_NUMBERS if isinstance(part, Records) else MOST_SIMULATED) // part.numbers
        if most < LEAST and not divides(part, values):
            rule = f"must have at most {MOST_SIMULATED // LEAST} entries to be simulated, unless its law can be cut"
            advice = "Use nw.EM(), with an exponential family such as dist.Normal if need be."
            raise refusal("MCEM", Place.of("statistics", part.name), rule, part.entries, advice)
        room = min(room, max(most, LEAST))
    return room
