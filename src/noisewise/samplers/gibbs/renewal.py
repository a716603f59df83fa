"""Parameters and all the records behind a total in one step: the records are drawn anew where the parameters go.

Given all records, the parameters hardly move when there are many records; but where the noise is large beside the
sampling error of the total, the release alone holds them less tightly. This step then moves them over their whole
posterior: Metropolis-Hastings on (theta, records), as Marjoram et al. (2003) on (theta, s). Derivation:
docs/derivations/augmentation-totals.md.
"""

from typing import Any

import jax
import numpy as np

from noisewise.model.coordinates import Chart
from noisewise.numerics import Array
from noisewise.samplers.gibbs.joint import Joint, State
from noisewise.samplers.gibbs.parameter_steps import Tuned

AIM = 0.25
"""Acceptance that the random walk's step is tuned to."""
WORTH = 0.25
"""Part of the other steps' squared jumps that this one must add, in some coordinate, to be kept after warm-up."""


class Renewal(Tuned):
    """A random walk of the continuous parameters that the records of the total `name` depend on, records drawn anew."""

    def __init__(self, joint: Joint, name: str) -> None:
        self.joint, self.name = joint, name
        self.names = _walking(joint, name)
        self.totals = [total for total in joint.totals if set(self.names) & set(joint.model.parents(total))]
        self.chart = Chart(joint.model, self.names)
        self.bare = Joint(joint.problem, {})  # every term but the records' own densities, which cancel
        self.density = self.bare.touching([*self.names, *self.totals])
        self.most = float(np.log(2.4 / np.sqrt(self.chart.size)))
        self.begin(self.most)
        self.root: Array = np.eye(self.chart.size)
        self.active = True
        self.seen: list[Array] = []
        self.last: Array | None = None
        self.jumps: list[tuple[Array, Array]] = []

    @staticmethod
    def applies(joint: Joint, name: str) -> bool:
        """Whether there is a parameter to walk with."""
        return bool(_walking(joint, name))

    def step(self, rng: np.random.Generator, state: State, warm: bool) -> tuple[float, float]:
        """One proposal for every chain: (accepted, tried)."""
        if not warm and self.last is not None:
            self._decide()
        if not self.active:
            return 0.0, 0.0
        chains = state.chains
        push = np.exp(self.log_step) * rng.standard_normal((chains, self.chart.size)) @ self.root.T
        free, slope, there, far_slope = self.bare.run(self._program("walk"), state.values, push)
        values = {**state.values, **there}
        drawn = {total: self.joint.totals[total].fresh(rng, state.records[total], values) for total in self.totals}
        for total, records in drawn.items():
            values |= self.joint.totals[total].values(records)
        ratio = self.bare.run(self._program("weigh"), values, state.values, self.bare.release) + far_slope - slope
        yes = rng.standard_exponential(chains) >= -ratio  # NaN: no
        for name in (*self.names, *self.totals):
            state.values[name] = _chosen(yes, values[name], state.values[name])
        for total, records in drawn.items():
            held = state.records[total]
            state.records[total] = {field: _chosen(yes, records[field], held[field]) for field in held}
        if warm:
            self._watch(free, np.where(yes[:, None], free + push, free), float(yes.mean()))
        return float(yes.sum()), float(chains)

    def _program(self, purpose: str) -> Any:
        def walk(values: Any, push: Any) -> Any:
            free = self.chart.free(values)
            slope, (there, far_slope) = self.chart.point(free, values)[1], self.chart.point(free + push, values)
            return free, slope, {name: there[name] for name in self.names}, far_slope

        def weigh(there: Any, here: Any, release: Any) -> Any:
            return self.density(there, {}, release) - self.density(here, {}, release)

        body, axes = (walk, 0) if purpose == "walk" else (weigh, (0, 0, None))
        return self.bare.program(("renewal", purpose, self.name), lambda: jax.vmap(body, in_axes=axes))

    # Warm-up -----------------------------------------------------------------------------------------------

    def _watch(self, before: Array, after: Array, rate: float) -> None:
        self.tune(0.5 * (rate - AIM), self.most + 0.5)
        self.seen.append(before)
        if self.last is not None:
            self.jumps.append((((after - before) ** 2).mean(axis=0), ((before - self.last) ** 2).mean(axis=0)))
        self.last = after

    def learn(self) -> None:
        """Shape the walk by the positions seen since the last call, over all chains."""
        seen = self.lately()
        if len(seen) >= 4 * self.chart.size and np.all(np.isfinite(seen)):
            covariance = np.cov(seen.T).reshape(self.chart.size, -1)
            self.root = np.linalg.cholesky(covariance + 1e-9 * np.diag(np.diag(covariance)) + 1e-300)
            self.begin(self.most)
            self.jumps = []

    def _decide(self) -> None:
        """At the end of warm-up, once: keep this step only where it adds to what the other steps do."""
        late = self.jumps[len(self.jumps) // 2 :]
        if late:
            own, others = (np.mean([pair[side] for pair in late], axis=0) for side in (0, 1))
            self.active = bool(np.any(own >= WORTH * others))
        self.last, self.jumps, self.seen = None, [], []


def _walking(joint: Joint, name: str) -> list[str]:
    model = joint.model
    return [parent for parent in model.parents(name) if parent in model.parameters and not model.is_discrete(parent)]


def _chosen(yes: Array, new: Array, old: Array) -> Array:
    return np.where(yes.reshape((-1,) + (1,) * (old.ndim - 1)), new, old)
