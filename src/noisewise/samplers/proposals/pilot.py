"""Pilot rounds: they fit the proposal, choose how many statistics to simulate, and are never among the draws.

Derivation: docs/derivations/importance.md.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from noisewise.checkpoint.log import NOTHING, Log
from noisewise.diagnostics import weights
from noisewise.engine import Engine
from noisewise.inference.blocks import Columns
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import AFTER_ROUND, Purpose, generator
from noisewise.mechanisms import Exact
from noisewise.model.coordinates import Space
from noisewise.numerics import Array
from noisewise.samplers.proposals import mixture
from noisewise.samplers.proposals.adapted import FLOOR, SEARCH_SHARE, Adapted, ValueTable, search, uniform_tables
from noisewise.samplers.proposals.by_value import ByValue, by_value
from noisewise.samplers.proposals.collapsed import Collapse, WeighCollapsed, Widened, doubled, too_narrow
from noisewise.samplers.proposals.hills import Ground, hills
from noisewise.samplers.proposals.memory import Memory, Round
from noisewise.samplers.proposals.mixture import mixed_evenly
from noisewise.samplers.proposals.parts import number_of_parts
from noisewise.samplers.proposals.proposal import (
    FromPrior,
    Proposal,
    Proposing,
    drawn_in_order,
    given_proposal,
    space_of,
)
from noisewise.samplers.proposals.recombined import recombined_work
from noisewise.samplers.proposals.weighted_candidates import Poll, Weigh, block_rows

ROUND = 2**14
"""Parameter values of one pilot round."""
SEARCHED, FITTED, LEAST_ROUND, LEAST_EACH = 2**24, 2**22, 2**11, 2**9
"""Most numbers that the exact likelihoods of a round may handle: in the search, which must meet every hill, and later.

But a round has at least `LEAST_ROUND` rows, and `LEAST_EACH` for each free coordinate.
"""
ENOUGH_ACCEPTED = 30.0
"""Prior rows that rejection would accept: from this number on, at most a tenth of the posterior goes unseen."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 8
"""Least rounds of a pilot (the search, one without flattening, the look at the weights); most rounds of fitting."""
MISTRUSTED = 0.5
"""Share of the rows that is even over parts of the prior while weights of many coordinates have to be flattened."""
MOST_SIMULATIONS = 64


@dataclass(frozen=True)
class PilotPlan:
    """What the pilot settled: where parameters come from, and how many statistics are tried for each."""

    proposal: Proposal
    simulations: int = 1
    log_weights: Array = field(default_factory=lambda: np.empty(0))
    """Log weights of the last round: from `proposal` itself where it was looked at, else from the law before it."""
    columns: Columns = field(default_factory=dict)
    """Parameters of that round."""
    proposals: int = 0
    seconds: float = 0.0
    rounds: int = 0
    pace: float = 0.0
    """Seconds for one of `proposals` in the quickest round, when all was compiled; for display only."""
    climbing: float = 0.0
    """Seconds in which hills were climbed; for display only."""
    fitting: float = 0.0
    """Seconds in which mixtures were fitted, and rows weighed against all laws; for display only."""
    widened: Widened = ()
    """How often windows have been doubled."""


def pilot_of(
    sampler: Proposing, problem: Problem, seed: int, engine: Engine, *, look: bool = False, log: Log = NOTHING
) -> PilotPlan:
    """Run what pilot the sampler's settings need: rounds to adapt a proposal, one more to `look` at its weights.

    Of the sampler's settings, `proposal`, `prior_share`, `simulations` (1 where it has none) and `collapse` count.
    """
    start = time.monotonic()
    proposal, simulations = sampler.proposal, getattr(sampler, "simulations", 1)
    several = simulations is None and not recombined_work(problem)
    pilot = _Pilot(problem, 2 if several else simulations or 1, seed, engine, log, getattr(sampler, "collapse", False))
    space = space_of(problem.model) if proposal == "adapted" else None
    if space is not None and (space.size or uniform_tables(problem.model)):
        law: Proposal = pilot.adapt(space, sampler.prior_share)
        while pilot.widens(law):
            law = pilot.adapt(space, sampler.prior_share)
    elif isinstance(proposal, Mapping):
        law = given_proposal(type(sampler).__name__, problem.model, proposal, sampler.prior_share)
    else:
        law = FromPrior(problem.model)
    chosen = simulations or 1
    if several:
        pilot.round(law)
        chosen = pilot.best_simulations(law)
    if look:
        pilot.look(law, chosen)
    seconds = time.monotonic() - start
    counts = pilot.proposals, seconds, pilot.rounds, pilot.pace, pilot.climbing, pilot.fitting
    return PilotPlan(law, chosen, pilot.log_weights, pilot.columns, *counts, pilot.widened)


def least_work(problem: Problem) -> int:
    """Least numbers that a pilot handles where parameters are weighed by the exact likelihood."""
    collapse = Collapse.of(problem)
    rounds = [SEARCHED, *[FITTED] * (LEAST_ROUNDS - 1)]
    return sum(max(_collapsed_round(problem, numbers), collapse.rows) for numbers in rounds) * collapse.work


def _collapsed_round(problem: Problem, numbers: int) -> int:
    """Parameter values of one round weighed by the exact likelihood, which may handle so many numbers."""
    return _rows_for(problem, numbers // Collapse.of(problem).work)


def _round(problem: Problem) -> int:
    """Parameter values of one round weighed by simulations: fewer where each of these takes long, and tells much."""
    work = recombined_work(problem)
    return _rows_for(problem, FITTED // work) if work else ROUND


def _rows_for(problem: Problem, wanted: int) -> int:
    return min(ROUND, max(LEAST_ROUND, LEAST_EACH * space_of(problem.model).size, wanted))


class _Pilot:
    """Rounds of weighted candidates, each on random streams of its own."""

    def __init__(
        self, problem: Problem, simulations: int, seed: int, engine: Engine, log: Log, collapse: bool = False
    ) -> None:
        self.problem, self.simulations, self.seed, self.engine = problem, simulations, seed, engine
        self.log, self.collapse = log, collapse
        self.rows = Collapse.of(problem).rows if collapse else block_rows(problem, simulations)
        self.widened: Widened = ()
        self.round_rows = _collapsed_round(problem, SEARCHED) if collapse else _round(problem)
        self.rounds = self.proposals = 0
        self.pace = self.climbing = self.fitting = 0.0
        self.columns: Columns = {}
        self.log_weights: Array = np.empty(0)
        self.log_each: Array = np.empty((0, simulations, 1))
        self.fits: dict[tuple[int, int], mixture.StudentMixture] = {}
        """By the value of whole-numbered parameters and the part of the prior: what its rows were last fitted by."""

    def round(self, law: Proposal) -> None:
        """One round from `law`: parameters, weights, and the noise density of each simulated statistic."""
        start, blocks = time.monotonic(), max(1, self.round_rows // self.rows)
        weigh: WeighCollapsed | Weigh = WeighCollapsed(self.problem, law, self.widened)
        if not self.collapse:
            weigh = Weigh(self.problem, law, self.simulations)
        works = [partial(_block, weigh, self.rows, self.seed, self.rounds, block) for block in range(blocks)]
        key, first = ("pilot", self.rounds), self.rounds == 0
        parts = self.log.gather(self.engine, works, lambda: None, *key, portable=True, checked=first)
        self.columns = {name: np.concatenate([part[0][name] for part in parts]) for name in parts[0][0]}
        self.log_weights, self.log_each = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
        self.rounds += 1
        made = blocks * self.rows * self.simulations
        self.proposals += made
        self.pace = min(self.pace or np.inf, (time.monotonic() - start) / made)

    def look(self, law: Proposal, simulations: int) -> None:
        """One round with so many simulations of each value: the more, the fewer values, but at least `LEAST_ROUND`."""
        if simulations != self.simulations:
            self.round_rows = max(LEAST_ROUND, self.round_rows * self.simulations // simulations)
            self.simulations, self.rows = simulations, block_rows(self.problem, simulations)
        self.round(law)

    def search(self, space: Space) -> Adapted | None:
        """The wide law that the first round draws from; None where it is of no use."""
        rng = generator(self.seed, Purpose.PILOT, AFTER_ROUND)
        law = search(space, space.model.draw(rng, drawn_in_order(space.model), self.rows))
        return None if law is None else by_value(law)

    def adapt(self, space: Space, share: float) -> Proposal:
        """Rounds from a search on, each fitting the next, until two needed no flattening; `MOST_ROUNDS` at most.

        In many coordinates weights are flattened more, and rounds are as many times as many.
        """
        law: Adapted | None = self.search(space)
        memory = Memory(space, tuple(uniform_tables(space.model)), self.rows)
        settled, searching = 0, True
        for number in range(MOST_ROUNDS * max(1, -(-space.size // mixture.IN_FULL))):
            self.round(law or FromPrior(space.model))
            rng = generator(self.seed, Purpose.PILOT, number, AFTER_ROUND)
            memory.add(self.columns, self.log_weights, law)
            fitted = self._fit(rng, space, memory)
            if fitted is None:
                continue  # no weight at all: try again from the same law
            fit, tables, power = fitted
            tops = None
            if searching and law and fit and self.collapse and not self._have_seen():
                tops = self._hills(space, memory.rounds[-1])
            if searching and self.collapse:
                self.round_rows = _collapsed_round(self.problem, FITTED)
            searching = False
            if isinstance(law, ByValue):
                law, power = self._fit_by_value(rng, law, memory, tops, share)
            else:
                fit = fit if fit is None or tops is None else mixed_evenly(fit, tops)
                law = by_value(Adapted(space, fit and fit.inflated(), share, tables))
            settled += power == 1.0
            if settled == 2:
                break
        return law or FromPrior(space.model)

    def widens(self, law: Proposal) -> bool:
        """Whether windows are too narrow where the law leads, and have been doubled: rounds then begin anew.

        What a tree's windows leave out is bounded by so much that a proposal may have been fitted to the bound.
        """
        if not self.collapse or not Collapse.of(self.problem, self.widened).target.trees:
            return False
        rng = generator(self.seed, Purpose.PILOT, AFTER_ROUND, 2, len(self.widened), self.rounds)
        collapse, weigh = Collapse.of(self.problem, self.widened), WeighCollapsed(self.problem, law, self.widened)
        columns = weigh(rng, {}, collapse.rows, lambda: None)[0]
        wider = too_narrow(collapse, columns["log_weights"], columns["neglected"])
        widened = doubled(self.widened, wider)
        collapse = Collapse.of(self.problem, widened)
        if not wider or collapse.target.excess():
            return False
        self.widened, self.rows, self.round_rows = widened, collapse.rows, _collapsed_round(self.problem, SEARCHED)
        return True

    def _have_seen(self) -> bool:
        """Whether the search's rows of the prior have missed next to nothing: docs/derivations/conditional.md."""
        if any(isinstance(item.mechanism, Exact) for item in self.problem.release.values()):
            return False  # a density is no probability
        log_rate = weights.log_mean(self.log_weights) - sum(self.problem.log_sup(name) for name in self.problem.release)
        return log_rate + np.log(SEARCH_SHARE * len(self.log_weights)) >= np.log(ENOUGH_ACCEPTED)

    def _hills(self, space: Space, searched: Round) -> mixture.StudentMixture | None:
        """Laws about the tops near rows of the search."""
        start = time.monotonic()
        rng = generator(self.seed, Purpose.PILOT, AFTER_ROUND, 1)
        ground = Ground(self.problem, space, self.engine, self.widened)
        tops = hills(rng, ground, searched)
        self.climbing += time.monotonic() - start
        return tops

    def _fit(
        self, rng: np.random.Generator, space: Space, memory: Memory
    ) -> tuple[mixture.StudentMixture | None, dict[str, ValueTable], float] | None:
        """Mixture and tables fitted to the rows of all rounds by their weights, and the power that flattens these.

        The power is the largest up to 1 that leaves enough effective rows of the last round. None where too few of
        those rows have weight.
        """
        last, everyone = memory.rounds[-1].log_weights, np.arange(len(memory.free()))
        if np.sum(last > -np.inf) < _least_rows(space.size):
            return None
        power = _power(last, space.size)
        normalised = weights.normalised(weights.flattened(memory.log_weights(), power))
        tables = {
            name: table.fitted(memory.whole(name), normalised) for name, table in uniform_tables(space.model).items()
        }
        if not space.size:
            return None, tables, power
        fit, least_power = self._fit_of_parts(rng, memory, everyone, 0)
        return fit, tables, min(power, least_power)

    def _fit_by_value(
        self, rng: np.random.Generator, law: ByValue, memory: Memory, tops: mixture.StudentMixture | None, share: float
    ) -> tuple[ByValue, float]:
        """A mixture fitted to the rows of each value by their weights, and the least power that flattens these.

        A value's mixture stays as it is where too few of its rows have weight.
        """
        numbers = law.numbers({name: memory.whole(name) for name in law.tables}, len(memory.free()))
        shares = np.bincount(numbers + 1, weights.normalised(memory.log_weights()), minlength=len(law.mixtures) + 1)[1:]
        mixtures, powers = [], []
        for own, held in enumerate(law.mixtures):
            fit, power = self._fit_of_parts(rng, memory, np.flatnonzero(numbers == own), own)
            powers += [power]
            if fit is not None:
                held = (fit if tops is None else mixed_evenly(fit, tops)).inflated()
            mixtures.append(held)
        least_power = min((power for power in powers if power), default=0.0)
        return replace(law.refitted(mixtures, shares), share=share), least_power

    def _fit_of_parts(
        self, rng: np.random.Generator, memory: Memory, members: Array, value: int
    ) -> tuple[mixture.StudentMixture | None, float]:
        """A mixture fitted to some rows by their weights, part by part of the prior, and the least power in use.

        A part's mixture stays as it is where too few of its rows in the last round have weight. None, and 0, where
        there are too few in every part.
        """
        start, before = time.monotonic(), len(memory.free()) - len(memory.rounds[-1].log_weights)
        last, log_weights, free = memory.rounds[-1].log_weights, memory.log_weights(), memory.free()
        fine: dict[str, Any] = mixture.FINE if self.collapse else {}
        part, count, powers = memory.parts()[members], number_of_parts(memory.space.model), []
        for one in range(count):
            own = members[part == one]
            recent = last[own[own >= before] - before]
            if np.sum(recent > -np.inf) < _least_rows(free.shape[1]):
                continue
            powers += [_power(recent, free.shape[1])]
            flat = weights.flattened(log_weights[own], powers[-1])
            index = own[weights.systematic(rng, flat, mixture.POINTS)]
            fit = mixture.fitted_mixture(rng, free[index], weights.effective_size(flat), **fine)
            self.fits[value, one] = fit
        self.fitting += time.monotonic() - start
        known = [one for one in range(count) if (value, one) in self.fits]
        if not powers:
            return None, 0.0
        of_each = np.bincount(part, weights.normalised(log_weights[members]), minlength=count)[known]
        far = min(powers) < 1.0 and free.shape[1] > mixture.IN_FULL  # a part may be a long way from its hill
        even = MISTRUSTED if far else FLOOR
        shares = even / len(known) + (1.0 - even) * of_each
        return mixture.mixed(shares / shares.sum(), [self.fits[value, one] for one in known]), min(powers)

    def best_simulations(self, law: Proposal) -> int:
        """The number m for which the variance of the weights, times the work of one parameter value, is least.

        Given parameters, m simulations of a part leave E[eta^2] / m + E[eta]^2 (1 - 1/m) as mean square of its factor,
        and parts are independent. Work is counted, not timed: numbers handled for one parameter value and its
        simulations.
        """
        top = self.log_each.max(axis=(0, 1))
        if not np.all(np.isfinite(top)):
            return 1
        relative = np.exp(self.log_each - top)
        number, sums = relative.shape[1], relative.sum(axis=1)
        squares = np.square(relative).sum(axis=1)
        of_one, of_two = squares / number, (sums**2 - squares) / (number * (number - 1))
        mean = float((sums / number).prod(axis=1).mean())
        model = self.problem.model
        own = sum(model.cost_of_row(name) for name in model.parameters) * (1 if isinstance(law, FromPrior) else 6)
        simulated = sum(model.cost_of_row(name) for name in model.statistics)

        def cost(m: int) -> float:
            variance = float((of_one / m + of_two * (1.0 - 1.0 / m)).prod(axis=1).mean()) - mean**2
            return max(variance, 0.0) * (own + m * simulated)

        return min(range(1, MOST_SIMULATIONS + 1), key=cost)


def _least_rows(size: int) -> float:
    """Rows with weight that a fit of so many coordinates needs."""
    return 60.0 + 10.0 * size


def _power(log_weights: Array, size: int) -> float:
    """The largest power up to 1 of the weights that leaves enough effective rows to fit so many coordinates."""
    return weights.flattening(log_weights, min(_least_rows(size), 0.5 * int(np.sum(log_weights > -np.inf))))


def _block(
    weigh: Weigh | WeighCollapsed, rows: int, seed: int, number: int, block: int, poll: Poll
) -> tuple[Columns, Array, Array]:
    return weigh.looked_at(generator(seed, Purpose.PILOT, number, block), rows, poll)
