"""Seconds that a run is expected to take on this machine, for display only: choosing, compiling, drawing, judging.

The speed of a block of prior rows, of pilots and of compiling is measured while the forecast is made. All other figures
are rules of thumb, found with benchmarks/forecasts.py on a machine of ordinary `pace`.
"""

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import jax
import numpy as np

from noisewise.engine import Engine, processors
from noisewise.inference.conditional.target import Target
from noisewise.numerics import double, operations, tally
from noisewise.samplers.choosing import choice
from noisewise.samplers.choosing.probe import COLLAPSED, MOST_UNSEEN, Probe
from noisewise.samplers.proposals.pilot import PilotPlan
from noisewise.samplers.rejection import Rejection, plan_streams

OPERATION, ENOUGH = 0.003, 200
"""Seconds to compile one operation: a rule of thumb, used until `ENOUGH` operations have been compiled and timed."""
PROGRAM = 0.03
"""Seconds to trace and compile a program of few operations."""
AROUND = 0.015
"""Seconds that every run takes for checks, threads, the posterior and its diagnostics."""
GRADIENT, IN_CHAINS = 400, 0.6
"""Operations of a gradient that cannot be traced; time to compile one of NUTS's operations, relative to others."""
BLOCK = 1e-3
"""Seconds that a block takes whatever is in it."""
STEP, WALKED = 1.2e-6, 0.5
"""Seconds of a walker's step beside its simulation; share of the steps counted in the ranking that are really made."""
SWEEP, CHAINS = 3e-3, 4_000
"""Seconds of one sweep of all chains beside the numbers it handles; iterations of warm-up, over all chains."""
ROUND = 0.02
"""Seconds that a pilot's round takes beside its rows and fits."""
TRIAL = 0.025
"""Seconds of a trial of rejection that ends without a result, and of a probe's own checks."""
SECOND_LOOK, SEARCHED = 2**16, 2**26
"""Most rows of the search for what the draws have missed; most numbers that it handles where rows are large."""


ORDINARY = 4.2e-4
"""Seconds that the sum in `pace` took on the machine where the rules of thumb were found."""


@cache
def pace() -> float:
    """Time of this machine for a sum of ten thousand squares in Python, relative to that one: the best of five."""
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        sum(number * number for number in range(10_000))
        taken.append(time.perf_counter() - start)
    return min(taken) / ORDINARY


@dataclass
class Clock:
    """Measurements made during a forecast, and the seconds that a run is expected to take, computed from them."""

    probe: Probe
    draws: int
    engine: Engine
    ranking: list[choice.Estimate]
    probing: float
    """Seconds for a block of prior rows, once everything is compiled."""
    compiled: int
    """Operations that were compiled for the first such block."""
    settled: bool
    """Whether the choice needs no pilot."""

    @property
    def unit(self) -> float:
        """Seconds for one number handled, by one thread."""
        return max(self.probing - BLOCK, 0.4 * self.probing) / (self.probe.rows * self.probe.cells)

    @property
    def workers(self) -> float:
        """How many threads effectively run side by side: one where a simulator in Python holds the interpreter."""
        model = self.probe.problem.model
        if any(model.total(name) is None and not model.has_density(name) for name in model.statistics):
            return 1.0
        return max(1.0, 0.9 * float(getattr(self.engine, "workers", None) or processors()))

    def seconds(self, estimate: choice.Estimate) -> float:
        """What `nw.sample` with so many draws would take by this sampler."""
        parts = self.choosing(), self.compiling(estimate), self.running(estimate), self.second_look(estimate)
        return AROUND + sum(parts)

    def choosing(self) -> float:
        """Seconds of choosing: trial, probe and pilots, with everything compiled; 0 where the trial is the run."""
        pilots = {id(one.pilot): one for one in self.ranking if one.pilot is not None}
        first = self.ranking[0]
        if self.settled:
            return 0.0 if self._at_once(first) else 2.0 * self.probing + TRIAL
        if first.sampler == COLLAPSED and first.work <= choice.MOST_COLLAPSED:
            pilots = {id(first.pilot): first}
        return 2.0 * self.probing + TRIAL + sum(_warm(one.pilot) for one in pilots.values())

    def _at_once(self, first: choice.Estimate) -> bool:
        """Whether rejection is expected to finish within its trial, before any probe."""
        limit = choice.trial_limit(self.probe.problem)
        return first.sampler == Rejection() and first.run <= limit * self.probe.cells and self.draws <= limit

    # Compiling ---------------------------------------------------------------------------------------------

    def compiling(self, estimate: choice.Estimate) -> float:
        """Seconds to compile the programs still missing: none where the sampler or its pilot has run on this model."""
        name = type(estimate.sampler).__name__
        if choice.label(estimate.sampler) in choice.has_run(self.probe.problem.model) or estimate.pilot is not None:
            return 0.0
        extra = {"SMC": 150, "MCMC": 150, "Augmentation": 500}.get(name, 0)
        if estimate.sampler == choice.PREDICTIVE:
            return pace() * PROGRAM  # its sums and tables were made when it was found to apply
        if name == "NUTS":
            return IN_CHAINS * self._per_operation * (3.0 * self.gradient + 800.0) / min(self.workers, 1.7)
        return self._per_operation * (self.compiled + extra)

    @property
    def _per_operation(self) -> float:
        done = tally()
        return done.seconds / done.operations if done.operations >= ENOUGH else pace() * OPERATION

    @cached_property
    def gradient(self) -> int:
        """Operations of the density's gradient; a guess where it cannot be traced here."""
        with suppress(Exception):  # nothing depends on it
            return self._traced()
        return GRADIENT

    @cached_property
    def target(self) -> Target:
        """The density whose gradient is taken."""
        return Target(self.probe.problem, {}, by_ratios=True)

    def _traced(self) -> int:
        target = self.target
        halves = {name: np.full(target.model.shape(name), 0.5) for name in target.located}
        data = target.data() | {"centring": halves}
        with double():
            traced = jax.make_jaxpr(lambda z, data: jax.value_and_grad(lambda z: target.point(z, data)[1])(z))(
                np.zeros(target.size), data
            )
        return operations(traced.jaxpr)

    # Running -----------------------------------------------------------------------------------------------

    def by_gradient(self) -> float:
        """Seconds of one gradient, by the number of unknowns and the work of the sums and integrals behind it."""
        tables = [one.width * (1e-7 + 4e-10 * one.entries) for one in self.target.sums if one.width]
        others = [1e-8 * one.work for one in self.target.sums if not one.width]
        integrals = [3e-8 * one.cells for one in self.target.integrals]
        return pace() * (1.5e-5 + 2.5e-7 * self.target.size + sum(tables) + sum(others) + sum(integrals))

    def running(self, estimate: choice.Estimate) -> float:
        """Seconds of the run itself, at the speed of its pilot where it has one."""
        name, probe = type(estimate.sampler).__name__, self.probe
        if estimate.pilot is not None:
            drawing = 1.5 if estimate.sampler == COLLAPSED else 1.0
            return drawing * estimate.run * self._pilot_unit(estimate.pilot)
        if name == "NUTS":
            steps = 20.0 if probe.nested else 6.0
            return (CHAINS + self.draws) * steps * self.by_gradient() / min(self.workers, 4.0)
        if name == "Augmentation":
            handled = max(0.0, estimate.run - choice.COMPILING)
            sweeps = 2.0 * math.sqrt(self.draws) + self.draws / 20.0
            return sweeps * pace() * SWEEP + handled * self.unit / self.workers
        if name in ("SMC", "MCMC"):
            return WALKED * estimate.run * (self.unit + STEP / probe.cells) / self.workers
        if isinstance(estimate.sampler, Rejection):  # whole blocks, and the next is in hand when the first has come
            least = 2.0 * max(stream.rows for stream in plan_streams(probe.problem, joint=False)) * probe.cells
            return max(estimate.run, least * self.workers) * self.unit / self.workers
        return estimate.run * self.unit / self.workers

    def _pilot_unit(self, pilot: PilotPlan) -> float:
        """Seconds for one number handled, for rows that come from a fitted proposal."""
        own = next(one for one in self.ranking if one.pilot is pilot and type(one.sampler).__name__ == "Importance")
        return pilot.pace * pilot.simulations / (own.run / self.draws)

    def second_look(self, estimate: choice.Estimate) -> float:
        """Seconds of the search for what the draws have missed; 0 where none is made."""
        if isinstance(estimate.sampler, Rejection) or self.probe.unseen <= MOST_UNSEEN:
            return 0.0
        if estimate.pilot is not None:
            return estimate.pilot.pace * estimate.pilot.simulations * min(SECOND_LOOK, SEARCHED / self.probe.cells)
        return SECOND_LOOK * self.probe.cells * self.unit / self.workers


def _warm(pilot: Any) -> float:
    """Seconds of a pilot whose programs are compiled, climbs and fits of its proposal included."""
    return float(pilot.pace * pilot.proposals + pilot.climbing + pilot.fitting + pace() * ROUND * pilot.rounds)
