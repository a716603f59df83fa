"""Parameters weighed by the likelihood of very many rows, from a proposal about the tops (modes) of their posterior.

The posterior of a few parameters given a million rows is narrow: draws of the prior hardly ever fall there. So the tops
are climbed to by Newton's steps, on some of the rows and then on all. The proposal is a Student law about each top, as
wide as the curvature says, with the usual share of the prior. Weights are exact, whatever the climbs found.
Derivation: docs/derivations/importance.md.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.engine import Engine
from noisewise.errors import InferenceError
from noisewise.inference.blocks import Columns
from noisewise.inference.conditional import rows
from noisewise.inference.conditional.laws import sketch_of
from noisewise.inference.conditional.normal import is_closed
from noisewise.inference.conditional.rows import NoisyRows, RowSource, rows_for
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import AFTER_ROUND, Purpose, generator
from noisewise.mechanisms import Gaussian, Laplace
from noisewise.model import Model
from noisewise.model.atoms import has_atoms
from noisewise.model.coordinates import Space
from noisewise.model.graph import Poll
from noisewise.model.masses import entries
from noisewise.model.supports import chart
from noisewise.model.wrappers import kind_of
from noisewise.numerics import Array, Compiled, double, placement
from noisewise.samplers.proposals.adapted import Adapted
from noisewise.samplers.proposals.mixture import StudentMixture
from noisewise.samplers.proposals.proposal import Proposal, drawn_in_order, made_once, space_of

MANY = 2**16
"""Entries of a statistic from which on this way is taken unasked: draws of so many would not be kept anyway."""
SOME = 2**13
"""Rows that the first climbs use."""
CANDIDATES, HIGHEST, FARTHEST = 64, 8, 8
"""Draws of the prior; how many of the highest are climbed from, and how many of those farthest from these."""
MOST_FREE = 10
"""Free coordinates up to which this way is taken unasked: beyond, few weights would count."""
STEPS = 60
"""Most steps of a climb."""
SETTLED = 1e-6
"""Gain in log density that a Newton step may still promise where a climb ends."""
LOWER = 30.0
"""How much lower than the highest top, in log density, another may be and still be part of the proposal."""
FAINT = 1000.0
"""A weight whose log is so much below that of the top is zero beside it in floating point."""
TOGETHER = 4
"""Parameter values of one block."""
INEXACT = 1e-4
"""Most that the errors of all rows' integrals may add up to, in the log likelihood."""

_laying = threading.Lock()


def applies(problem: Problem) -> bool:
    """Whether every statistic is released, continuous, and independent rows given the parameters."""
    key = ("many rows", problem.release.hash)
    is_so: bool = made_once(problem.model, key, lambda: _applies(problem))
    return is_so


def left_out(problem: Problem) -> str:
    """A sentence about the statistics, of which no draws are kept."""
    sizes = {name: math.prod(problem.model.shape(name)) for name in problem.release}
    names = " and ".join(f"'{name}' ({size:,} entries)" for name, size in sizes.items())
    return (
        f"{names} integrated out, and not among the draws, which would not fit in memory. Entries of interest can be "
        "drawn given parameters and release: nw.confidential(nw.Privatised(law, mechanism), released, seed=...)."
    )


def are_many(problem: Problem) -> bool:
    """Whether there are so many rows that no other way is looked at."""
    model = problem.model
    sizes = [math.prod(model.shape(name)) for name in problem.release if name in model.statistics]
    return max(sizes, default=0) >= MANY and applies(problem) and _is_plain(problem)


def _is_plain(problem: Problem) -> bool:
    """Whether rows are of laws on the whole line, under smooth or Laplace noise, with few parameters.

    Otherwise the panels' error is not known as well: at ends where densities rise without bound, or where noise ends.
    """
    model, release = problem.model, problem.release
    rows_of = [_row_law(model, release[name].mechanism, name) for name in release]
    noises = {type(item.mechanism) for item in release.values()}
    whole = all(row_law is not None and row_law[1] == "real" for row_law in rows_of)
    return whole and noises <= {Laplace, Gaussian} and space_of(model).size <= MOST_FREE


def _applies(problem: Problem) -> bool:
    model, release = problem.model, problem.release
    names = [name for name in model.statistics if name in problem.needed]
    if problem.measured or set(names) != set(release) or any(model.is_discrete(name) for name in model.parameters):
        return False
    return bool(model.parameters) and all(_row_law(model, release[name].mechanism, name) is not None for name in names)


def _row_law(model: Model, mechanism: Any, name: str) -> tuple[str, str] | None:
    """Kind and chart of a statistic whose entries are rows; None where they are not."""
    if not model.has_density(name) or model.is_discrete(name) or set(model.parents(name)) - set(model.parameters):
        return None

    def see(law: Any) -> tuple[str, str, bool]:
        shape = model.shape(name)
        apart = jnp.shape(entries(law, jnp.zeros(shape))) == shape and not has_atoms(law)
        return kind_of(law), chart(law.support), apart

    kind, own_chart, apart = sketch_of(model, name, see)
    closed = kind == "Normal" and is_closed(mechanism)
    known = (closed or rows.applies(kind, own_chart, mechanism)) and mechanism.event_dim == 0 and not mechanism.inputs
    return (kind, own_chart) if apart and known else None


class ManyRows:
    """log density of parameters, in free coordinates, together with all rows of the release, or with some of them."""

    def __init__(self, problem: Problem, engine: Engine | None, share: int | None = None) -> None:
        """With `share`, only about so many rows of each statistic are used."""
        self.problem, self.space, self.engine = problem, space_of(problem.model), engine
        self.rows = {name: self._rows(name, share) for name in problem.release}

    def _rows(self, name: str, share: int | None) -> NoisyRows:
        model, item = self.problem.model, self.problem.release[name]
        kind_and_chart = _row_law(model, item.mechanism, name)
        assert kind_and_chart is not None
        number = math.prod(model.shape(name))
        own = None if share is None or number <= share else np.arange(0, number, number // share)[:share]

        def compiled(purpose: str, build: Callable[[], Any]) -> Compiled:
            return model.compiled.setdefault(("many rows", name, purpose), Compiled(build))

        def law_at(given: Mapping[str, Any]) -> Any:
            return model.law_at(name, given)

        source = RowSource(law_at, item.mechanism, item.value, model.shape(name), *kind_and_chart, compiled)
        return rows_for(source, self.engine, own)

    def _given(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {parent: values[parent] for parent in self.problem.model.law(name).parents}

    def log_likelihood(self, values: Mapping[str, Any]) -> float:
        """log density of the release at one value of each parameter; panels that no longer serve are laid anew."""
        return sum(float(np.sum(own.log_likelihoods(self._given(name, values)))) for name, own in self.rows.items())

    def log_likelihood_near(self, values: Mapping[str, Any], least: float) -> float:
        """The same by the panels at hand; -inf where it is certain to be below `least`."""
        most = {name: self.problem.log_sup(name) for name in self.rows}
        total, left = 0.0, sum(most.values())
        for name, own in self.rows.items():
            left -= most[name]
            total += own.log_likelihood_near(self._given(name, values), least - total - left)
        return total

    def lay(self, values: Mapping[str, Any]) -> float:
        """Lay the panels anew, at exactly these values, and return the log likelihood there.

        The panels decide the last digits of all that follow, so panels laid near by will not do.
        """
        for own in self.rows.values():
            own.panels = None
        return self.log_likelihood(values)

    def neglected(self) -> float:
        """What the integrals of all rows may be off by in the log likelihood, where they were last laid."""
        return sum(float(np.sum(own.errors)) for own in self.rows.values())

    def at(self, free: Array) -> float:
        """The log density at one free vector; -inf where it is not a finite number."""
        values, log_prior = self.space.points(free[None])
        if not np.isfinite(log_prior[0]):
            return -math.inf
        height = float(log_prior[0]) + self.log_likelihood({name: value[0] for name, value in values.items()})
        return height if math.isfinite(height) else -math.inf

    def curved(self, free: Array) -> tuple[float, Array, Array]:
        """The log density, its gradient, and minus its second derivative."""
        value, gradient, information = self._prior(free)
        for name, own in self.rows.items():
            moments = own.moments(free, partial(self._given_at, name), "free")
            value += float(np.sum(moments.log_likelihoods))
            gradient, information = gradient + moments.score, information + moments.information
        return value, gradient, information

    def _given_at(self, name: str, free: Any) -> dict[str, Any]:
        return self._given(name, self.space.point(free, {})[0])

    def _prior(self, free: Array) -> tuple[float, Array, Array]:
        def build() -> Any:
            def log_prior(free: Any) -> Any:
                return self.space.point(free, {})[1]

            return lambda free: (log_prior(free), jax.grad(log_prior)(free), -jax.hessian(log_prior)(free))

        program = self.problem.model.compiled.setdefault(("many rows", "prior"), Compiled(build))
        with double():
            value, gradient, information = (np.asarray(one) for one in program(free))
        return float(value), gradient, information


# The way to the tops ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Top:
    """A local maximum of the log density: where, how high, and minus the second derivative there."""

    free: Array
    height: float
    information: Array

    def differs(self, other: "Top") -> bool:
        """Whether the other top is more than a standard deviation away."""
        away = self.free - other.free
        return float(away @ self.information @ away) > 1.0


def climbed(density: ManyRows, free: Array, poll: Callable[[], None]) -> Top | None:
    """The top that Newton's steps lead to, each halved while the density would fall; None where there is none."""
    value, gradient, information = density.curved(free)
    for _ in range(STEPS):
        poll()
        if not (math.isfinite(value) and np.all(np.isfinite(gradient)) and np.all(np.isfinite(information))):
            return None
        curvature, vectors = np.linalg.eigh(information)
        step = vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(curvature), 1e-12 * np.abs(curvature).max()))
        promised = float(gradient @ step)
        if promised <= SETTLED:
            return Top(free, value, information) if curvature.min() > 0.0 else None
        step *= min(1.0, 2.0 / float(np.max(np.abs(step) / (1.0 + np.abs(free)))))
        while not density.at(free + step) > value - 1e-12 * abs(value):
            step *= 0.5
            if float(np.max(np.abs(step))) < 1e-12 * (1.0 + float(np.max(np.abs(free)))):
                return None
        free = free + step
        value, gradient, information = density.curved(free)
    return None


def tops(problem: Problem, seed: int, engine: Engine, poll: Callable[[], None]) -> tuple[ManyRows, list[Top]]:
    """The highest tops of the posterior that climbs from draws of the prior lead to, highest first."""
    space, model = space_of(problem.model), problem.model
    some = ManyRows(problem, engine, SOME)
    rng = generator(seed, Purpose.PILOT, AFTER_ROUND)
    free = space.free_from(model.draw(rng, drawn_in_order(model), CANDIDATES))
    free = free[np.isfinite(free).all(axis=1)]
    heights = np.array([some.at(one) for one in free])
    firsts = [climbed(some, start, poll) for start in _starts(free, heights)]
    every = ManyRows(problem, engine)
    climbs = {first: climbed(every, first.free, poll) for first in _apart([top for top in firsts if top is not None])}
    different = _apart([top for top in climbs.values() if top is not None])
    least = different[0].height - LOWER if different else math.inf
    if any(top is None and every.at(first.free) > least for first, top in climbs.items()):
        raise InferenceError(
            "a climb that had found a top on some of the rows finds none on all of them, and it may be one "
            "of the highest. Use nw.Augmentation() on fewer rows.",
            who="Importance",
        )
    return every, [top for top in different if top.height > least]


def _starts(free: Array, heights: Array) -> list[Array]:
    """The highest of the draws, and those farthest from all before them, in units of the draws' own spread."""
    order = [index for index in np.argsort(-heights, kind="stable") if np.isfinite(heights[index])]
    chosen, left = order[:HIGHEST], order[HIGHEST:]
    scaled = free / np.maximum(free.std(axis=0), 1e-300)
    while left and len(chosen) < HIGHEST + FARTHEST:
        away = [min(float(np.sum((scaled[one] - scaled[other]) ** 2)) for other in chosen) for one in left]
        chosen.append(left.pop(int(np.argmax(away))))
    return [free[index] for index in chosen]


def _apart(candidates: Sequence[Top]) -> list[Top]:
    """The tops that differ from each other, highest first."""
    different: list[Top] = []
    for top in sorted(candidates, key=lambda top: -top.height):
        if all(top.differs(other) or other.differs(top) for other in different):
            different.append(top)
    return different


def proposal_about(space: Space, highest: Sequence[Top], share: float) -> Adapted:
    """Student laws about the tops, by the mass of the normal law at each, with a share of the prior."""
    factors = [np.linalg.cholesky(np.linalg.inv(top.information)) for top in highest]
    logs = np.array([top.height + float(np.log(np.diag(f)).sum()) for top, f in zip(highest, factors, strict=True)])
    shares = np.maximum(np.exp(logs - logs.max()), 1e-2)
    mixture = StudentMixture(shares / shares.sum(), np.stack([top.free for top in highest]), np.stack(factors))
    return Adapted(space, mixture, share)


# Weights ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WeighRows:
    """One block of parameters weighed by the likelihood of all rows, integrated on the panels of one reference."""

    problem: Problem
    proposal: Proposal
    reference: dict[str, Array]
    log_weight: float
    """The log weight at the reference: candidates too far below it have no weight."""

    def __call__(self, rng: np.random.Generator, inputs: Columns, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """Every candidate survives; `log_weights` is among the columns."""
        values, log_ratio = self.proposal(rng, rows, poll)
        density, heights = self.density(), np.full(rows, -np.inf)
        for row in np.flatnonzero(log_ratio > -np.inf):
            poll()
            one = {name: column[row] for name, column in values.items()}
            heights[row] = density.log_likelihood_near(one, self.log_weight - FAINT - log_ratio[row])
        with np.errstate(invalid="ignore"):
            log_weights = np.where(np.isfinite(heights), log_ratio + heights, -np.inf)
        return {**values, "log_weights": log_weights}, np.arange(rows, dtype=np.int32)

    def density(self, laid: ManyRows | None = None) -> ManyRows:
        """The density with panels laid at the reference: kept with the model, laid once in each process.

        `laid` is a density whose panels have been laid there already.
        """
        programs: dict[Any, Any] = self.problem.model.compiled
        place = b"".join(self.reference[name].tobytes() for name in sorted(self.reference))
        key = ("many rows", self.problem.release.hash, place, placement())
        with _laying:
            if key not in programs:
                density = ManyRows(self.problem, None)
                if laid is None:
                    density.lay(self.reference)
                else:
                    for name, own in density.rows.items():
                        own.panels = laid.rows[name].panels
                programs[key] = density
            shared: ManyRows = programs[key]
        return shared


@dataclass(frozen=True)
class RowsPlan:
    """What the climbs settled: how all draws are weighed, the tops found, the error of the integrals, and the time."""

    weigh: WeighRows
    tops: int
    neglected: float
    seconds: float


def lay_panels(problem: Problem, share: float, seed: int, engine: Engine, poll: Callable[[], None]) -> RowsPlan:
    """Climb, and lay the panels by which all draws are weighed."""
    start = time.monotonic()
    every, highest = tops(problem, seed, engine, poll)
    if not highest:
        raise InferenceError(
            "the posterior has no top that climbs from draws of the prior lead to. Is the model identified?",
            who="Importance",
        )
    space = every.space
    reference = {name: np.asarray(value[0]) for name, value in space.points(highest[0].free[None])[0].items()}
    height, neglected = every.lay(reference), every.neglected()
    if not neglected <= INEXACT:
        raise InferenceError(
            f"the integrals over the rows may be off by {neglected:.1g} in the log likelihood (a law with "
            "a narrow peak, or with a kink that is not known?). Use nw.Augmentation() on fewer rows.",
            who="Importance",
        )
    proposal, free = proposal_about(space, highest, share), highest[0].free[None]
    log_over_prior = proposal.log_over_prior(free, {}, space.points(free)[1], {})
    weigh = WeighRows(problem, proposal, reference, height - float(log_over_prior[0]))
    if engine.block_rows is None:  # an accelerator lays its own
        weigh.density(every)
    return RowsPlan(weigh, len(highest), neglected, time.monotonic() - start)
