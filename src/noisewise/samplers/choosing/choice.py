"""Which sampler: a short probe, counted work for each that applies, a ranking and a reason.

The probe is a block of prior draws with their noise densities, or several blocks where they settle more. Work is
counted in numbers handled (`Model.cost_of_row`), never timed, so that one seed gives one choice on every machine.
docs/how-to-choose.md says what each figure means.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from noisewise.diagnostics import weights
from noisewise.engine import Engine, gather
from noisewise.errors import InputError
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.settings import Sampler
from noisewise.inference.streams import Stream
from noisewise.mechanisms import Exact
from noisewise.model.graph import Poll
from noisewise.numerics import Array
from noisewise.results.posterior import Posterior
from noisewise.samplers.gibbs.joint import Joint
from noisewise.samplers.gibbs.reported import Reported
from noisewise.samplers.importance import Importance
from noisewise.samplers.proposals.collapsed import Collapse
from noisewise.samplers.proposals.pilot import plan_of
from noisewise.samplers.proposals.proposal import Adapted
from noisewise.samplers.rejection import Merge, Rejection, plan_streams

ROWS, LEAST_ROWS, CELLS = 2**14, 2**6, 2**17
"""Rows of the probe at most and at least, and numbers it may handle between these."""
AFFORDABLE = 2**26
"""Work, in numbers handled, that is no reason to give up independent draws: a few seconds on one core."""
CHEAP, KEEPS = 2**21, 0.5
"""Work up to which weighted draws of the prior settle the choice; efficiency from which they do, whatever the work."""
NEAR = 4.0
"""Rejection is also taken where the cheapest saves no more than this factor: the probe knows no better."""
COMPILING = 2**25
"""What a compiled program of its own (chains on the confidential statistics, gradients) costs before its first draw."""
LEAST = -200.0
"""log of the least acceptance probability worth telling from none."""
MOST_ADAPTED = 16
"""Scalar parameters beyond which no proposal is fitted: weights are then carried by too few draws to fit one to."""
MOST_UNSEEN = 0.1
"""Most posterior mass that rows of the prior may have missed: above, they settle nothing where `collapses` holds."""
MOST_SUMMED = 2**14
"""Values that one row's sums may run over where the likelihood is computed unasked: a pilot's rounds take tens of
thousands of rows."""
MOST_FURTHER = 64
"""Most further blocks, each as large as the first, that are drawn so that little may have been missed."""
FEW = 10.0
"""Effective rows of the probe below which its efficiency is an optimistic guess."""
DEAR = 2.0**14
"""Work of one noise density beyond which nothing that needs thousands of them is tried unasked."""
MOST_FALLBACK = 2**34
"""Most work, some minutes of it, of a sampler that was not the first choice."""
SAFETY = 1.5
"""How far above `min_ess` the expected effective draws must lie."""


@dataclass(frozen=True, eq=False)
class Probe:
    """Rows from the prior, and what they tell of the release."""

    problem: Problem
    values: dict[str, Array]
    terms: dict[str, Array]
    """For each released statistic, log(eta / sup) by row; the log density where it has no noise."""

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.log_weights)

    @property
    def conditioned(self) -> bool:
        """Whether a statistic has no noise and a density: weighting by that wastes no draw, rejecting nearly all."""
        return noise_free(self.problem) is not None

    @cached_property
    def log_weights(self) -> Array:
        """log of the product over statistics."""
        total: Array = sum(self.terms.values(), start=np.zeros(1))
        return total

    @cached_property
    def acceptance(self) -> tuple[float, float]:
        """Acceptance probability of joint rejection (Gong's Algorithm 1), and its standard error."""
        ratio = np.exp(np.minimum(self.log_weights, 0.0))
        return float(ratio.mean()), float(ratio.std(ddof=1) / np.sqrt(self.rows))

    @property
    def unseen(self) -> float:
        """Posterior mass, at most, of what the rows may all have missed (with probability 1 in 20, exp(-3)).

        A region of prior mass 3 / rows is missed as often, and no weight is above the noise's bound, so its posterior
        mass is at most 3 / (rows times acceptance probability). Even weights that all lie far below the bound are no
        sign that there is nothing else. Without noise (`conditioned`) a density has no such bound: there it is a guide.
        """
        expected = self.rows * self.acceptance[0]
        return 3.0 / expected if expected > 0.0 else math.inf

    @property
    def further_blocks(self) -> int:
        """Blocks as large as this after which little would be unseen, where that matters and is cheap; else 0."""
        if self.unseen <= MOST_UNSEEN or not collapses(self):
            return 0
        blocks = math.ceil(self.unseen / MOST_UNSEEN) if self.unseen < math.inf else MOST_FURTHER + 1
        return blocks if blocks <= MOST_FURTHER else 0

    @cached_property
    def worth(self) -> float:
        """Kish's effective number of the probe's rows."""
        return weights.effective_size(self.log_weights)

    @property
    def efficiency(self) -> float:
        """Effective draws per row weighted from the prior, for the worst parameter's mean."""
        names = self.problem.model.parameters
        return per_row([self.values[name] for name in names], self.log_weights)

    @cached_property
    def cells(self) -> float:
        """Numbers handled for one row of everything, dear noise densities included."""
        model = self.problem.model
        return float(sum(model.cost_of_row(name) for name in model.order)) + sum(dear(self.problem).values())

    @property
    def unknowns(self) -> int:
        """Scalars among the parameters."""
        return sum(max(1, math.prod(self.problem.model.shape(name))) for name in self.problem.model.parameters)

    def latent(self, *, continuous: bool) -> float:
        """Numbers behind the statistics with noise: their entries, or the records' of a total."""
        model = self.problem.model
        names = [n for n in model.statistics if n in self.problem.needed and model.is_discrete(n) != continuous]
        return float(sum(model.cost_of_row(name) for name in names))

    @property
    def summed(self) -> int:
        """Sums over records, at least 1: each is one more that every record must agree with."""
        model = self.problem.model
        names = [n for n in model.statistics if n in self.problem.needed and not model.has_density(n)]
        return max(1, sum(math.prod(model.shape(name)) for name in names))

    def log_rate(self, names: set[str]) -> float:
        """log of the mean of prod eta / sup over these statistics; where all are zero, that of a twentieth of a row."""
        total: Any = sum((self.terms[name] for name in names), start=np.zeros(self.rows))
        rate = weights.log_mean(total)
        return rate if np.isfinite(rate) else -math.log(20.0 * self.rows)

    def rejection(self, *, joint: bool = False) -> tuple[float, float]:
        """(numbers handled, rows simulated) per draw.

        A merge proposes rows from the posterior given the statistics below it, so its acceptance probability is a
        ratio of two prior averages: all of its statistics over those below.
        """
        merges = [self._merged(root) for root in plan_streams(self.problem, joint=joint)]
        return sum(work for work, _, _ in merges), sum(rows for _, rows, _ in merges)

    def _merged(self, stream: Stream) -> tuple[float, float, set[str]]:
        merge = stream.work
        assert isinstance(merge, Merge)
        below = [self._merged(child) for child in stream.children]
        earlier: set[str] = set().union(*(names for _, _, names in below))
        names = earlier | set(merge.released)
        rate = math.exp(np.clip(self.log_rate(names) - sum(self.log_rate(inner) for _, _, inner in below), LEAST, 0.0))
        noise = dear(self.problem)
        work = float(sum(self.problem.model.cost_of_row(name) for name in merge.fresh))
        work += sum(noise.get(name, 0.0) for name in merge.released)
        rows = float(stream.counted) + sum(proposed for _, proposed, _ in below)
        return (work + sum(cost for cost, _, _ in below)) / rate, rows / rate, names


def per_row(columns: list[Array], log_weights: Array) -> float:
    """Effective draws per weighted row; where too few rows carry the weight to tell, a tenth of Kish's number at most.

    One heavy row is its own mean, which would seem to be known without error.
    """
    worth, kish = weights.effective_for_means(columns, log_weights), weights.effective_size(log_weights)
    if kish < FEW:
        worth = 0.1 * min(worth, kish)
    return max(worth, 0.01) / max(len(log_weights), 1)


def noise_free(problem: Problem) -> str | None:
    """A statistic without noise whose density can weigh the draws instead, if there is one."""
    for name, item in problem.release.items():
        if isinstance(item.mechanism, Exact) and problem.model.has_density(name):
            return name
    return None


def dear(problem: Problem) -> dict[str, float]:
    """Released statistics whose noise density takes too long for weighing thousands of rows, with its work."""
    work = {name: getattr(item.mechanism, "work", 0.0) for name, item in problem.release.items()}
    return {name: amount for name, amount in work.items() if amount > DEAR}


def sparing(problem: Problem) -> "Estimate | None":
    """Augmentation, where noise densities are dear and it draws the statistics behind them without any."""
    names, sampler = dear(problem), Sampler.known["Augmentation"]()
    if not names or sampler.unfit(problem) is not None:
        return None
    joint = Joint(problem, {})
    if not all(Reported.applies(joint, name) for name in names):
        return None
    behind = " and ".join(f"'{name}'" for name in names)
    note = f"the probability of a table behind {behind} takes long, and these Markov chains need none"
    return Estimate(sampler, float(COMPILING), 0.3, note)


def probe_rows(problem: Problem) -> int:
    """Rows of the probe: fewer where a row is expensive."""
    model, rows = problem.model, ROWS if not dear(problem) else LEAST_ROWS
    cells = sum(model.cost_of_row(name) for name in model.order)
    while rows > LEAST_ROWS and rows * cells > CELLS:
        rows //= 2
    return rows


def probe(problem: Problem, seed: int, engine: Engine, purpose: Purpose = Purpose.CHOICE) -> Probe:
    """One block of prior rows; a noise-free statistic with a density is set to its value, as `Importance` does.

    For a choice, more blocks where a few of them tell whether even weights have missed something.
    """
    rows = probe_rows(problem)
    first = Probe(problem, *gather(engine, [partial(_probed, problem, rows, seed, purpose, ())], portable=True)[0])
    more = first.further_blocks if purpose is Purpose.CHOICE else 0
    if not more:
        return first
    works = [partial(_probed, problem, rows, seed, purpose, (block,)) for block in range(1, more + 1)]
    parts = [(first.values, first.terms), *gather(engine, works, portable=True)]
    values, terms = ({name: np.concatenate([part[i][name] for part in parts]) for name in parts[0][i]} for i in (0, 1))
    return Probe(problem, values, terms)


def _probed(
    problem: Problem, rows: int, seed: int, purpose: Purpose, index: tuple[int, ...], poll: Poll
) -> tuple[dict[str, Array], dict[str, Array]]:
    """A block of prior rows, and the terms of their weights."""
    model, release, rng = problem.model, problem.release, generator(seed, purpose, *index)
    values: dict[str, Array] = {}
    terms: dict[str, Array] = {}
    for name in model.order:
        item = release.get(name)
        if item is not None and isinstance(item.mechanism, Exact) and model.has_density(name):
            values[name] = np.broadcast_to(item.value, (rows, *model.shape(name)))
            terms[name] = model.log_prob(name, item.value, values)
        else:
            values = model.draw(rng, [name], rows, values, poll)
    for name in release:
        if name not in terms:
            terms[name] = problem.log_eta(name, values) - problem.log_sup(name)
    return values, terms


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
    """What is expected of it, in words."""
    delivers: bool = True
    """Whether the rows returned are expected to be worth what its status asks for."""
    run: Callable[..., Posterior] | None = None
    """The sampler's `run`, with the pilot that a run of the same seed would only make again."""


Cost = Callable[[Probe, int, int, Engine], Estimate]


def _enough(sampler: Sampler, draws: int, efficiency: float) -> bool:
    return draws * efficiency >= SAFETY * float(getattr(sampler, "min_ess", 0.0))


def _rejection(probe: Probe, draws: int, *_: Any) -> Estimate:
    work, rows = probe.rejection()
    sampler = Rejection()
    note = f"independent exact draws, about {max(rows, 1.0):,.3g} simulated rows for each"
    return Estimate(sampler, draws * work, 1.0, note, draws * rows <= float(sampler.max_proposals or np.inf))


def _importance(probe: Probe, draws: int, *_: Any) -> Estimate:
    sampler, efficiency = Importance(), probe.efficiency
    note = f"rows weighted from the prior are worth {100 * efficiency:.2g}% of as many independent draws"
    work = draws * probe.cells / efficiency
    return Estimate(sampler, work, efficiency, note, _enough(sampler, draws, efficiency))


def _adapted(probe: Probe, draws: int, seed: int, engine: Engine) -> Estimate:
    """Its own pilot rounds, one more to look at the weights; the run goes on from them."""
    problem, sampler = probe.problem, Importance(proposal="adapted")
    plan = plan_of(sampler, problem, seed, engine, look=True)
    efficiency = per_row(list(plan.columns.values()), plan.log_weights)
    unknowns = sum(problem.model.cost_of_row(name) for name in problem.model.parameters)
    components = len(plan.proposal.mixture.shares) if isinstance(plan.proposal, Adapted) else 0
    row = ADAPTED * unknowns + 0.5 * components * unknowns**2 + plan.simulations * (probe.cells - unknowns)
    note = (
        f"rows weighted from a proposal fitted in pilot rounds are worth {100 * efficiency:.2g}% of independent draws"
    )
    work = draws * row / efficiency  # the rounds are spent, whatever is chosen
    return Estimate(
        sampler, work, efficiency, note, _enough(sampler, draws, efficiency), partial(sampler.run, pilot=plan)
    )


def _collapsed(probe: Probe, draws: int, seed: int, engine: Engine) -> Estimate:
    """As `_adapted`, with statistics out of the way: each row costs the sums behind them, and two programs."""
    problem, sampler = probe.problem, COLLAPSED
    plan = plan_of(sampler, problem, seed, engine, look=True)
    efficiency = per_row(list(plan.columns.values()), plan.log_weights)
    unknowns = sum(problem.model.cost_of_row(name) for name in problem.model.parameters)
    row = ADAPTED * unknowns + 2.0 * Collapse.of(problem).cells
    note = (
        f"rows weighted by the exact likelihood of the release, from a proposal fitted in pilot rounds, are worth "
        f"{100 * efficiency:.2g}% of independent draws"
    )
    work = draws * row / efficiency
    return Estimate(
        sampler, work, efficiency, note, _enough(sampler, draws, efficiency), partial(sampler.run, pilot=plan)
    )


def _thumb(name: str, fixed: float, per_draw: float, efficiency: float, draws: int, note: str) -> Estimate:
    sampler = Sampler.known[name]()
    return Estimate(
        sampler, fixed + draws * per_draw / efficiency, efficiency, note, _enough(sampler, draws, efficiency)
    )


def _smc(probe: Probe, draws: int, *_: Any) -> Estimate:
    """One temperature for each halving of the acceptance probability, with about 50 simulated rows per particle."""
    temperatures = 1.0 - max(probe.log_rate(set(probe.terms)), 0.2 * LEAST) / math.log(2.0)
    note = f"particles led from prior to posterior in about {math.ceil(temperatures)} steps"
    return _thumb("SMC", 0.0, 50.0 * temperatures * probe.cells, 0.7, draws, note)


def _mcmc(probe: Probe, draws: int, *_: Any) -> Estimate:
    """2^17 rows to warm up; the rows for one effective draw grow as the square of the unknowns."""
    unknowns = probe.unknowns
    note = f"simulating Markov chains over {unknowns} parameters"
    return _thumb("MCMC", 2.0**17 * probe.cells, 200.0 * unknowns**2 * probe.cells, 1.0, draws, note)


def _nuts(probe: Probe, draws: int, *_: Any) -> Estimate:
    """25 gradients a draw, each handling every latent number; a discrete one, summed over a window, counts twice."""
    gradient = 60.0 + 10.0 * (probe.unknowns + probe.latent(continuous=True)) + 20.0 * probe.latent(continuous=False)
    note = "gradient-based Markov chains over parameters and latent statistics"
    return _thumb("NUTS", 4 * COMPILING + 4_000 * 25.0 * gradient, 25.0 * gradient, 0.35, draws, note)


def _augmentation(probe: Probe, draws: int, *_: Any) -> Estimate:
    """A sweep renews every latent number; the more sums the records must agree with, the slower the chains."""
    note = "Markov chains that draw parameters and confidential statistics in turn"
    sweep = 200.0 + 8.0 * (probe.unknowns + probe.latent(continuous=True) + probe.latent(continuous=False))
    efficiency = min(0.3, 0.6 / probe.summed**2)
    return _thumb("Augmentation", COMPILING + 4_000 * sweep, sweep, efficiency, draws, note)


ADAPTED = 3.0
"""What drawing and weighing one parameter from a fitted proposal costs, in numbers handled, beside half the square of
the parameters for each of its components: measured on the count and on Lalonde's sample."""
COSTS: dict[str, Cost] = {
    "Rejection": _rejection,
    "Importance": _importance,
    "adapted": _adapted,
    "collapsed": _collapsed,
    "SMC": _smc,
    "MCMC": _mcmc,
    "Augmentation": _augmentation,
    "NUTS": _nuts,
}
"""How the work of a sampler is counted. A sampler without an entry is never chosen, only asked for."""
COLLAPSED = Importance(proposal="adapted", collapse=True)
SAMPLER_OF: dict[str, Sampler] = {"adapted": Importance(proposal="adapted"), "collapsed": COLLAPSED}
"""Entries that are settings of a sampler, not a sampler's name."""


def public_samplers() -> dict[str, type[Sampler]]:
    """The library's own samplers by name."""
    return {name: cls for name, cls in Sampler.known.items() if cls.__module__.startswith("noisewise.")}


def collapses(probe: Probe) -> bool:
    """Whether a proposal can be fitted by the exact likelihood."""
    problem = probe.problem
    if probe.unknowns > MOST_ADAPTED or dear(problem) or COLLAPSED.unfit(problem) is not None:
        return False
    return Collapse.of(problem).cells <= MOST_SUMMED


def settled(probe: Probe, draws: int) -> list[Estimate]:
    """Rejection and weighting of prior draws, best first, where one of them settles the choice; else nothing.

    Rejection does where it is affordable, weighting where it is cheap or keeps much of every row: no other sampler is
    then looked at, since all of them start with a pilot, a warm-up or a program to compile.
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
        near = estimate.work <= AFFORDABLE or (good and estimate.work <= NEAR * ranking[0].work)
        if isinstance(estimate.sampler, Rejection) and estimate.delivers and near:
            return [estimate, *ranking[:number], *ranking[number + 1 :]]
    return ranking if good else []


def estimates(probe: Probe, draws: int, seed: int, engine: Engine) -> list[Estimate]:
    """Every sampler that applies, best first: what settles the choice, then by work, then what may not deliver."""
    spared = sparing(probe.problem)
    first = [] if spared else settled(probe, draws)[:1]
    ranking: list[Estimate] = []
    for key, cost in COSTS.items():
        sampler = SAMPLER_OF.get(key) or Sampler.known[key]()
        if sampler.unfit(probe.problem) is not None or (key == "Rejection" and probe.conditioned):
            continue
        if key in SAMPLER_OF and (probe.unknowns > MOST_ADAPTED or dear(probe.problem)):
            continue
        if key == "collapsed" and not collapses(probe):
            continue
        with suppress(InputError):  # a fitted proposal can reach where the model cannot be drawn from
            ranking.append(cost(probe, draws, seed, engine))
    ranking.sort(key=lambda estimate: (not estimate.delivers, estimate.work))
    names = [estimate.sampler for estimate in ranking]
    if spared:
        ranking[names.index(spared.sampler)] = ranking[0]
        ranking[0] = spared
    elif first:
        ranking.insert(0, ranking.pop(names.index(first[0].sampler)))
    else:
        # Independent draws before chains, whose work is a rule of thumb: rejection's before weighted ones.
        for sampler in (COLLAPSED, Rejection()):
            if sampler in names:
                estimate = next(candidate for candidate in ranking if candidate.sampler == sampler)
                near = estimate.work <= NEAR * ranking[0].work or (sampler == COLLAPSED and estimate.work <= AFFORDABLE)
                if estimate.delivers and near:
                    ranking.remove(estimate)
                    ranking.insert(0, estimate)
    return ranking


def reason_for(ranking: list[Estimate], probe: Probe) -> str:
    """Why the first of the ranking, in a sentence."""
    best = ranking[0]
    if dear(probe.problem) and best == sparing(probe.problem):
        return best.note
    accepted, _ = probe.acceptance
    share = f"{100 * accepted:.2g}% of prior draws" if probe.worth >= FEW else "next to none of the prior draws"
    plain = isinstance(best.sampler, Rejection) or probe.conditioned
    start = best.note if plain else f"rejection accepts {share}; in its place, {best.note}"
    if isinstance(best.sampler, Rejection):
        return f"{start}; that is affordable, and such draws need no diagnosis"
    if probe.conditioned and settled_by_weights(best):
        return f"'{noise_free(probe.problem)}' has no noise, so its own density weighs the draws: {start}"
    others = [estimate for estimate in ranking[1:] if estimate.delivers]
    if not others:
        return f"{start}; no other that applies is expected to deliver"
    beaten = min(others, key=lambda estimate: estimate.work)
    times = beaten.work / best.work
    return f"{start}; by {label(beaten.sampler)}, the next, it would take about {times:.2g} times the work"


def label(sampler: Sampler) -> str:
    """Name with the settings that are not the defaults."""
    default = type(sampler)()
    changed = {key: value for key, value in vars(sampler).items() if value != getattr(default, key)}
    inside = ", ".join(f"{key}={value!r}" for key, value in changed.items())
    return type(sampler).__name__ + (f"({inside})" if inside else "")


def settled_by_weights(best: Estimate) -> bool:
    """Whether it weighs draws of the prior."""
    return best.sampler == Importance()


TRIED_AT_ONCE = 2**17
"""Work within which rejection is simply tried: no probe is cheaper."""


def trial_limit(problem: Problem) -> int:
    """Proposals of a trial of rejection."""
    cells = sum(problem.model.cost_of_row(name) for name in problem.model.order)
    return max(LEAST_ROWS, TRIED_AT_ONCE // cells)
