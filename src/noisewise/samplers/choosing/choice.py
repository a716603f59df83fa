"""Which sampler: counted work for each that applies, a ranking and a reason.

Work is counted in numbers handled (`Model.cost_of_row`), never timed, so that one seed gives one choice on every
machine. docs/how-to-choose.md says what each figure means.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from noisewise.diagnostics import weights
from noisewise.engine import Engine
from noisewise.errors import InferenceError, InputError
from noisewise.inference.problem import Problem
from noisewise.inference.settings import Sampler
from noisewise.model import Model
from noisewise.samplers.choosing.probe import (
    COLLAPSED,
    FEW,
    LEAST,
    LEAST_ROWS,
    MOST_ADAPTED,
    MOST_UNSEEN,
    Probe,
    collapses,
    dear,
    noise_free,
    per_row,
    percent,
)
from noisewise.samplers.gibbs.joint import Joint
from noisewise.samplers.gibbs.reported import Reported
from noisewise.samplers.importance import Importance
from noisewise.samplers.judging import LONGEST
from noisewise.samplers.predictive import IMPOSSIBLE, Predictive
from noisewise.samplers.proposals import many_rows
from noisewise.samplers.proposals.adapted import Adapted
from noisewise.samplers.proposals.collapsed import Collapse
from noisewise.samplers.proposals.pilot import PilotPlan, least_work, pilot_of
from noisewise.samplers.rejection import Rejection
from noisewise.samplers.rejection_control import RejectionControl, foreseen
from noisewise.samplers.smc import LEAST_PARTICLES, SMC

AFFORDABLE = 2**26
"""Work, in numbers handled, that is no reason to give up independent draws: a few seconds on one core."""
MOST_COLLAPSED = 2**29
"""The same for rows weighed by the exact likelihood: chains' work is a rule of thumb, and they may not converge."""
MANY = 2**10
"""Entries of discrete statistics beyond which they are not simulated and weighed where they can be summed out.

The weight of a simulated row falls exponentially in their number.
"""
CHEAP, KEEPS = 2**21, 0.5
"""Work up to which weighted draws of the prior settle the choice; efficiency from which they do, whatever the work."""
NEAR = 4.0
"""Rejection is also taken where the cheapest saves no more than this factor: the probe is no more accurate."""
COMPILING = 2**25
"""What a compiled program of its own (chains on the confidential statistics, gradients) costs before its first draw."""
MOST_FALLBACK = 2**34
"""Most work, some minutes of it, of a sampler that was not the first choice."""
SAFETY = 1.5
"""How far above `min_ess` the expected effective draws must lie."""


def sparing(problem: Problem) -> "Estimate | None":
    """The sampler that is taken without a look at others, if there is one.

    It weighs by the likelihood of very many rows, where their draws would fill memory; or it is augmentation, where
    noise densities are dear and the statistics behind them are drawn without computing any.
    """
    if many_rows.are_many(problem) and COLLAPSED.unfit(problem) is None:
        note = (
            "weighted draws of the parameters about the top of their posterior, by the exact likelihood of very many "
            "rows, whose confidential values are integrated out"
        )
        return Estimate(COLLAPSED, float(MOST_COLLAPSED), 0.7, note)
    names, sampler = dear(problem), Sampler.known["Augmentation"]()
    if not names or sampler.unfit(problem) is not None:
        return None
    joint = Joint(problem, {})
    if not all(Reported.applies(joint, name) for name in names):
        return None
    behind = " and ".join(f"'{name}'" for name in names)
    note = f"the probability of a table behind {behind} takes long, and these Markov chains need none"
    return Estimate(sampler, float(COMPILING), 0.3, note)


# Costs ----------------------------------------------------------------------------------------------------------
# Rejection, importance sampling and its adaptation are measured by their pilots. The others are counted by rules of
# thumb (docs/how-to-choose.md lists them), which matter only where the measured ones are dear.


@dataclass(frozen=True)
class Estimate:
    """What one sampler is expected to take for the draws asked."""

    sampler: Sampler
    work: float
    """Numbers handled for as many effective draws as were asked for."""
    efficiency: float
    """Effective draws per row returned."""
    note: str
    """What is expected of the sampler, in words."""
    delivers: bool = True
    """Whether the rows returned are expected to be worth what the sampler's status asks for."""
    pilot: PilotPlan | None = None
    """The pilot that the sampler's run of the same seed would only make again."""
    fixed: float = 0.0
    """The part of `work` that does not depend on the draws."""

    @property
    def run(self) -> float:
        """Numbers handled by a run that returns as many rows as draws were asked for, whatever the rows are worth."""
        return self.fixed + (self.work - self.fixed) * self.efficiency


Cost = Callable[[Probe, int, int, Engine], Estimate]


def _enough(sampler: Sampler, draws: int, efficiency: float) -> bool:
    """Whether so many rows are worth what the status asks for, by longer chains where `nw.sample` would run them."""
    efficiency = min(1.0, LONGEST * efficiency) if sampler.longer() is not None else efficiency
    return draws * efficiency >= SAFETY * float(getattr(sampler, "min_ess", 0.0))


def _rejection(probe: Probe, draws: int, *_: Any) -> Estimate:
    work, rows = probe.rejection()
    sampler = Rejection()
    note = f"independent exact draws, about {max(rows, 1.0):,.3g} simulated rows for each"
    return Estimate(sampler, draws * work, 1.0, note, draws * rows <= float(sampler.max_proposals or np.inf))


def _predictive(probe: Probe, draws: int, *_: Any) -> Estimate:
    note = (
        "independent exact draws, without a rejection: prior and law are conjugate, so that the statistic comes from "
        "its exact law given the release, and the parameters from theirs given the statistic"
    )
    exact = Predictive.of(probe.problem)
    more = exact.work if isinstance(exact, Predictive) else 0
    return Estimate(PREDICTIVE, float(draws * (probe.cells + more)), 1.0, note)


def _importance(probe: Probe, draws: int, *_: Any) -> Estimate:
    sampler, efficiency = Importance(), probe.efficiency
    note = f"rows weighted from the prior are worth {percent(efficiency)} of as many independent draws"
    work = draws * probe.cells / efficiency
    return Estimate(sampler, work, efficiency, note, _enough(sampler, draws, efficiency))


def _adapted(probe: Probe, draws: int, seed: int, engine: Engine) -> Estimate:
    """By its own pilot rounds, and one more to look at the weights; the run goes on from these rounds."""
    problem, sampler = probe.problem, Importance(proposal="adapted", simulations=_simulations(probe.problem))
    plan = pilot_of(sampler, problem, seed, engine, look=True)
    efficiency = per_row(list(plan.columns.values()), plan.log_weights)
    unknowns = sum(problem.model.cost_of_row(name) for name in problem.model.parameters)
    fitted = plan.proposal.mixture if isinstance(plan.proposal, Adapted) else None
    components = len(fitted.shares) if fitted else 0
    row = ADAPTED * unknowns + 0.5 * components * unknowns**2 + plan.simulations * (probe.cells - unknowns)
    note = f"rows weighted from a proposal fitted in pilot rounds are worth {percent(efficiency)} of independent draws"
    work = draws * row / efficiency  # the rounds are spent, whatever is chosen
    return Estimate(sampler, work, efficiency, note, _enough(sampler, draws, efficiency), plan)


def _simulations(problem: Problem) -> int | None:
    """One simulation for each parameter value; None where several parts can only be simulated: the pilot decides.

    Averaged part by part, simulations of all parts need not come near the release at once.
    """
    model = problem.model
    simulated = [part for part in problem.parts if not all(model.has_density(name) for name in part)]
    return None if len(simulated) >= SEVERAL else 1


def _thinned(draws: int, adapted: Estimate) -> Estimate:
    """The pilot of `_adapted`, small weights dropped at random: more rows are simulated, and those kept are worth more.

    Of several thresholds that deliver, the one whose draws are worth most is taken, if its run is short, or takes some
    seconds and hardly more than the least work for an effective draw; else the one of least work. What a candidate
    costs follows from `adapted`.
    """
    assert adapted.pilot is not None
    assert isinstance(adapted.sampler, Importance)
    candidate = adapted.work * adapted.efficiency / draws
    ways = []
    for quantile in THRESHOLDS:
        sampler = RejectionControl(proposal="adapted", quantile=quantile, simulations=adapted.sampler.simulations)
        left, efficiency = foreseen(adapted.pilot.log_weights, quantile)
        delivers = _enough(sampler, draws, efficiency) and draws / left <= float(sampler.max_proposals or np.inf)
        note = (
            f"rows from a proposal fitted in pilot rounds, {percent(left)} of them kept by their weights: each is then "
            f"worth {percent(efficiency)} of an independent draw"
        )
        ways.append(
            Estimate(sampler, draws * candidate / (left * efficiency), efficiency, note, delivers, adapted.pilot)
        )
    cheapest = min(ways, key=lambda way: (not way.delivers, way.work))
    affordable = [
        way
        for way in ways
        if way.delivers and way.run <= (MOST_THINNED if way.work <= HARDLY_MORE * cheapest.work else AFFORDABLE)
    ]
    return max(affordable, key=lambda way: way.efficiency, default=cheapest)


def _collapsed(probe: Probe, draws: int, seed: int, engine: Engine) -> Estimate:
    """As `_adapted`, with statistics summed or integrated out: each row costs the sums, and a draw from them."""
    problem, sampler, collapse = probe.problem, COLLAPSED, Collapse.of(probe.problem)
    collapse.prepare()
    plan = pilot_of(sampler, problem, seed, engine, look=True)
    efficiency = per_row(list(plan.columns.values()), plan.log_weights)
    unknowns = sum(problem.model.cost_of_row(name) for name in problem.model.parameters)
    row = ADAPTED * unknowns + collapse.work + collapse.cells
    note = (
        f"rows weighted by the exact likelihood of the release, from a proposal fitted in pilot rounds, are worth "
        f"{percent(efficiency)} of independent draws"
    )
    work = draws * row / efficiency
    return Estimate(sampler, work, efficiency, note, _enough(sampler, draws, efficiency), plan)


def _thumb(name: str, fixed: float, per_draw: float, efficiency: float, draws: int, note: str) -> Estimate:
    sampler = Sampler.known[name]()
    work, enough = fixed + draws * per_draw / efficiency, _enough(sampler, draws, efficiency)
    return Estimate(sampler, work, efficiency, note, enough, fixed=fixed)


def _smc(probe: Probe, draws: int, *_: Any) -> Estimate:
    """One temperature for each halving of the acceptance probability, with about 25 simulated rows per particle.

    However few draws are asked for, every island has a least number of particles, and there are scouts before them.
    In hierarchies particles hardly move: steps that suit one parameter are too long or too short for those that depend
    on it.
    """
    temperatures = 1.0 - max(probe.log_rate(set(probe.terms)), 0.2 * LEAST) / math.log(2.0)
    note = f"particles led from prior to posterior in about {math.ceil(temperatures)} steps"
    particle, islands = 25.0 * temperatures * probe.cells, SMC().islands
    scouts, spare = LEAST_PARTICLES, max(0, islands * LEAST_PARTICLES - draws)
    efficiency = IN_HIERARCHIES if probe.nested else 0.7
    return _thumb("SMC", (scouts + spare) * particle, particle, efficiency, draws, note)


def _mcmc(probe: Probe, draws: int, *_: Any) -> Estimate:
    """2^17 rows to warm up; the rows for one effective draw grow as the square of the unknowns."""
    unknowns = probe.unknowns
    note = f"simulating Markov chains over {unknowns} parameters"
    return _thumb("MCMC", 2.0**17 * probe.cells, 200.0 * unknowns**2 * probe.cells, 1.0, draws, note)


def _nuts(probe: Probe, draws: int, *_: Any) -> Estimate:
    """25 gradients a draw, each handling every latent number; a discrete one, summed over a window, counts twice."""
    gradient = 60.0 + 10.0 * (probe.unknowns + probe.latent(continuous=True)) + probe.summed_out
    note = "gradient-based Markov chains over parameters and latent statistics"
    return _thumb("NUTS", 4 * COMPILING + 4_000 * 25.0 * gradient, 25.0 * gradient, 0.35, draws, note)


def _augmentation(probe: Probe, draws: int, *_: Any) -> Estimate:
    """A sweep renews every latent number; hierarchies, and sums that the records must agree with, slow the chains."""
    note = "Markov chains that draw parameters and confidential statistics in turn"
    sweep = 200.0 + 8.0 * (probe.unknowns + probe.latent(continuous=True) + probe.latent(continuous=False))
    efficiency = min(HIERARCHIES if probe.hierarchical else 0.3, 0.6 / probe.summed**2)
    return _thumb("Augmentation", COMPILING + 4_000 * sweep, sweep, efficiency, draws, note)


ADAPTED = 3.0
"""What drawing and weighing one parameter from a fitted proposal costs, in numbers handled.

Half the square of the parameters for each component comes on top: measured on the count and on Lalonde's sample.
"""
SEVERAL = 3
"""Parts of the statistics, independent given the parameters, from which on each is simulated more than once."""
HARDLY_MORE, MOST_THINNED = 1.25, 2**28
"""Multiple of the least work per effective draw that rows worth more may take, in a run of at most this work."""
THRESHOLDS = (0.9, 0.99, 0.999)
"""Quantiles of a pilot's weights below which weights are dropped at random, where too few rows carry them all."""
HIERARCHIES = 0.003
"""Effective draws per row where parameters depend on parameters: drawn in turn, each holds the others back."""
IN_HIERARCHIES = 0.05
"""The same for particles that are moved all at once, where a continuous parameter depends on another."""
COSTS: dict[str, Cost] = {
    "Rejection": _rejection,
    "predictive": _predictive,
    "Importance": _importance,
    "adapted": _adapted,
    "collapsed": _collapsed,
    "SMC": _smc,
    "MCMC": _mcmc,
    "Augmentation": _augmentation,
    "NUTS": _nuts,
}
"""How the work of a sampler is counted. A sampler without an entry is never chosen, only asked for."""
PREDICTIVE = Rejection(plan="predictive")
SAMPLER_OF: dict[str, Sampler] = {
    "predictive": PREDICTIVE,
    "adapted": Importance(proposal="adapted"),
    "collapsed": COLLAPSED,
}
"""Entries that are settings of a sampler, not a sampler's name."""


def public_samplers() -> dict[str, type[Sampler]]:
    """The library's own samplers by name."""
    return {name: cls for name, cls in Sampler.known.items() if cls.__module__.startswith("noisewise.")}


def settled(probe: Probe, draws: int) -> list[Estimate]:
    """Estimates that settle the choice, best first; none where the full ranking is called for.

    Where laws are conjugate nothing need be rejected or weighed; but that takes a program to compile. Where no row of
    the probe has weight, those laws may say that none can have.
    """
    ranking = _from_prior(probe, draws)
    if ranking and ranking[0].work <= COMPILING and probe.worth > 0.0:
        return ranking
    against = PREDICTIVE.unfit(probe.problem)
    if against == IMPOSSIBLE:
        raise InferenceError(
            "the release cannot come about: under this model and noise its probability is 0 whatever the "
            "parameters are. Check the released values, the noise and the support of the model's laws.",
            who="sample",
        )
    return ranking if against else [_predictive(probe, draws), *ranking]


def _from_prior(probe: Probe, draws: int) -> list[Estimate]:
    """Rejection and weighting of prior draws, best first, where one of them settles the choice; else nothing.

    Rejection does so where it is affordable, or would end before a pilot by the exact likelihood does; weighting where
    it is cheap or keeps much of every row: no other sampler is then looked at, since all of them start with a pilot, a
    warm-up or a program to compile. Where neither does and a table is measured several ways, augmentation does: a
    simulated table hardly ever agrees with all its measurements.
    """
    problem, ranking = probe.problem, []
    if not probe.conditioned and Rejection().unfit(problem) is None:
        ranking.append(_rejection(probe, draws))
    if Importance().unfit(problem) is None:
        weighted = _importance(probe, draws)
        good = weighted.delivers and (weighted.work <= CHEAP or weighted.efficiency >= KEEPS)
        good = good and not (probe.unseen > MOST_UNSEEN and collapses(probe))
        ranking.insert(0 if good else len(ranking), weighted)
    else:
        good = False
    for number, estimate in enumerate(ranking):
        if not isinstance(estimate.sampler, Rejection) or not estimate.delivers:
            continue
        near = estimate.work <= AFFORDABLE or (good and estimate.work <= NEAR * ranking[0].work)
        if near or (collapses(probe) and estimate.work <= least_work(problem)):
            return [estimate, *ranking[:number], *ranking[number + 1 :]]
    if good:
        return ranking
    return [_augmentation(probe, draws)] if moves_tables(problem) else []


def moves_tables(problem: Problem) -> bool:
    """Whether a table of whole numbers is measured several ways, and augmentation moves it given all of these."""
    tables = [one.statistic for one in problem.measured.values() if problem.model.is_discrete(one.statistic)]
    return bool(tables) and Sampler.known["Augmentation"]().unfit(problem) is None


def by_likelihood(probe: Probe, draws: int, seed: int, engine: Engine) -> tuple[list[Estimate], Estimate | None]:
    """Estimates that settle the choice by the exact likelihood, best first, and the estimate of weighing by it.

    The list is empty where other pilots may say otherwise; the estimate is None where such weighing does not apply.
    """
    if not collapses(probe):
        return [], None
    try:
        collapsed = _collapsed(probe, draws, seed, engine)
    except InputError:
        return [], None
    if not collapsed.delivers or collapsed.work > MOST_COLLAPSED:
        return [], collapsed
    if not probe.conditioned and Rejection().unfit(probe.problem) is None:
        rejection = _rejection(probe, draws)
        if rejection.delivers and rejection.work <= NEAR * collapsed.work:
            return [rejection, collapsed], collapsed
    return [collapsed], collapsed


def ranked_estimates(
    probe: Probe, draws: int, seed: int, engine: Engine, collapsed: Estimate | None = None
) -> list[Estimate]:
    """Every sampler that applies, best first: what settles the choice, then by work, then what may not deliver.

    `collapsed` is the estimate of weighing by the exact likelihood, where it has been made.
    """
    spared = sparing(probe.problem)
    first = [] if spared else settled(probe, draws)[:1]
    ranking: list[Estimate] = []
    thinned: list[Estimate] = []
    for key, cost in COSTS.items():
        sampler = SAMPLER_OF.get(key) or Sampler.known[key]()
        if sampler.unfit(probe.problem) is not None or (key == "Rejection" and probe.conditioned):
            continue
        if key in ("adapted", "collapsed") and (probe.unknowns > MOST_ADAPTED or dear(probe.problem)):
            continue
        if key == "collapsed" and not collapses(probe):
            continue
        if key == "adapted" and probe.latent(continuous=False) > MANY and collapses(probe):
            continue
        with suppress(InputError):  # a fitted proposal can reach where the model cannot be drawn from
            made = collapsed if key == "collapsed" else None
            estimate = made or cost(probe, draws, seed, engine)
            ranking.append(estimate)
            if key == "adapted" and not estimate.delivers and _tells(estimate):
                thinned.append(_thinned(draws, estimate))
    ranking += thinned
    ranking.sort(key=lambda estimate: (not estimate.delivers, estimate.work))
    names = [estimate.sampler for estimate in ranking]
    if spared and spared.sampler in names:
        ranking[names.index(spared.sampler)] = ranking[0]
        ranking[0] = spared
    elif spared:
        ranking.insert(0, spared)
    elif first:
        ranking = [first[0], *(estimate for estimate in ranking if estimate.sampler != first[0].sampler)]
    else:
        # Independent draws before chains, whose work is a rule of thumb: rejection's before weighted ones.
        for sampler in (*(estimate.sampler for estimate in thinned), COLLAPSED, Rejection()):
            if sampler in names:
                estimate = next(candidate for candidate in ranking if candidate.sampler == sampler)
                near = estimate.work <= NEAR * ranking[0].work or (
                    sampler == COLLAPSED and estimate.work <= MOST_COLLAPSED
                )
                if estimate.delivers and near:
                    ranking.remove(estimate)
                    ranking.insert(0, estimate)
    return ranking


def _tells(adapted: Estimate) -> bool:
    """Whether enough rows of the pilot carry weight to tell what thinning them out would give."""
    return adapted.pilot is not None and weights.effective_size(adapted.pilot.log_weights) >= FEW


def reason_for(ranking: list[Estimate], probe: Probe) -> str:
    """Why the first of the ranking is chosen, in a sentence."""
    best = ranking[0]
    if best == sparing(probe.problem):
        return best.note
    accepted, _ = probe.acceptance
    share = f"{percent(accepted)} of prior draws" if probe.worth >= FEW else "next to none of the prior draws"
    plain = isinstance(best.sampler, Rejection) or probe.conditioned
    start = best.note if plain else f"rejection accepts {share}; in its place, {best.note}"
    if isinstance(best.sampler, Rejection):
        return f"{start}; that is affordable, and such draws need no diagnosis"
    if probe.conditioned and settled_by_weights(best):
        return f"'{noise_free(probe.problem)}' has no noise, so its own density weighs the draws: {start}"
    if moves_tables(probe.problem) and type(best.sampler).__name__ == "Augmentation":
        return f"{start}; a simulated table would hardly ever agree with all that was measured of it"
    if best.sampler == COLLAPSED and best.work <= MOST_COLLAPSED:
        return f"{start}; that is affordable, and no statistic need be simulated"
    others = [estimate for estimate in ranking[1:] if estimate.delivers]
    if not others:
        return f"{start}; no other that applies is expected to deliver"
    beaten = min(others, key=lambda estimate: estimate.work)
    times = beaten.work / best.work
    if times < 1.0:
        return f"{start}; {label(beaten.sampler)} might take less work, but its draws would have to be diagnosed"
    return f"{start}; by {label(beaten.sampler)}, the next, it would take about {times:.2g} times the work"


def label(sampler: Sampler) -> str:
    """Name with the settings that are not the defaults."""
    default = type(sampler)()
    changed = {key: value for key, value in vars(sampler).items() if value != getattr(default, key)}
    inside = ", ".join(f"{key}={value!r}" for key, value in changed.items())
    return type(sampler).__name__ + (f"({inside})" if inside else "")


_RUN: WeakKeyDictionary[Model, set[str]] = WeakKeyDictionary()


def has_run(model: Model) -> set[str]:
    """Labels of the samplers that have run on this model: for forecasts of seconds, since their programs are there."""
    return _RUN.setdefault(model, set())


def settled_by_weights(best: Estimate) -> bool:
    """Whether the estimate is of weighing draws of the prior."""
    return best.sampler == Importance()


TRIED_AT_ONCE = 2**17
"""Work within which rejection is simply tried: a probe is no cheaper."""


def trial_limit(problem: Problem) -> int:
    """Most proposals of a trial of rejection."""
    cells = sum(problem.model.cost_of_row(name) for name in problem.model.order)
    return max(LEAST_ROWS, TRIED_AT_ONCE // cells)
