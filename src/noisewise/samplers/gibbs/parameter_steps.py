"""Continuous parameters without a closed form: Hamiltonian steps in an unconstrained chart, Jacobian included.

Parameters whose law given the rest is conjugate can be integrated out of the step (docs/derivations/augmentation.md).
Step size and metric adapt in warm-up, to the chains of the same group, and are then frozen.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.errors import InputError
from noisewise.model.coordinates import Chart
from noisewise.numerics import Array, Compiled, Values
from noisewise.samplers.gibbs.conjugate import LARGE, Conjugate
from noisewise.samplers.gibbs.joint import Joint, State
from noisewise.samplers.gibbs.reported import Reported

DENSE = 48
"""Coordinates up to which the metric is a full matrix."""
AIM = 0.8
"""Mean acceptance that the step size is tuned to."""
LONG, BEST = 5.2, 2.4
"""Longest trajectory, in standard deviations (near 2 pi it ends where it began); length that longer ones are cut to."""


class Tuned:
    """A step whose length is tuned to its acceptance in warm-up, and frozen at the average since its last new shape."""

    chart: Chart
    log_step: float
    sizes: list[float]
    seen: list[Array]

    def begin(self, log_step: float) -> None:
        """Start tuning anew from this length."""
        self.log_step, self.sizes = log_step, []

    def tune(self, change: float, most: float = np.inf) -> None:
        """A longer step after many acceptances, a shorter one after few."""
        self.log_step = min(self.log_step + change, most)
        self.sizes.append(self.log_step)

    def learn(self) -> None:
        """A new shape from the positions seen since the last one."""
        raise NotImplementedError

    def lately(self) -> Array:
        """The later two thirds of the positions seen since the last shape, over all chains; all are then forgotten."""
        late = self.seen[len(self.seen) // 3 :]
        self.seen, self.sizes = [], []
        return np.concatenate(late) if late else np.empty((0, self.chart.size))

    def freeze(self) -> None:
        """Keep the average length since the last shape: the last length alone is as noisy as the last acceptance."""
        if self.sizes:
            self.begin(float(np.mean(self.sizes)))


class Gradient(Tuned):
    """One Hamiltonian trajectory per sweep for the named values; `collapsed` conjugate parameters integrated out.

    The collapsed parameters must be drawn right after the trajectory: `step` does so.
    """

    def __init__(self, joint: Joint, names: Sequence[str], collapsed: Sequence[Conjugate] = ()) -> None:
        self.joint, self.chart, self.collapsed = joint, Chart(joint.model, names), tuple(collapsed)
        self.density = joint.touching(self.chart.names)
        moving, still = {"also": self.chart.names}, {"never": self.chart.names}
        self.moving = [joint.touching([inner.name], **moving) for inner in collapsed]
        self.still = [joint.touching([inner.name], **still) for inner in collapsed]
        size = self.chart.size
        self.leaps = 2 if size <= 4 else min(4 + size // 8, 12)
        self.begin(np.log(0.3))
        self.root: Array = np.eye(size) if size <= DENSE else np.ones(size)
        self.seen: list[Array] = []

    def log_target(self, free: Any, values: Values, records: Any, release: Any, anchors: Any, fixed: Any) -> Any:
        """log density of the free coordinates given everything but the collapsed; traceable.

        p(x) p(children | x) / p(x | children) is the marginal density of the children, at any x: here at the anchor.
        Factors in which no free coordinate occurs are constants there and are left out. `fixed` are the coefficients
        that these factors give.
        """
        point, total = self.chart.point(free, values)
        for inner, anchor in zip(self.collapsed, anchors, strict=True):
            point[inner.name] = anchor
        for inner, anchor, part, (a, b) in zip(self.collapsed, anchors, self.moving, fixed, strict=True):
            more = inner.coefficients(point, records, release, anchor, part)
            a, b = a + more[0], b + more[1]
            sound = jnp.all(inner.family.proper(a, b) & (jnp.abs(a) < LARGE))
            total = jnp.where(sound, total - inner.family.log_prob(anchor, a, b), -jnp.inf)
        total = total + self.density(point, records, release)
        return jnp.where(total < jnp.inf, total, -jnp.inf)

    def _move(
        self, values: Values, records: Any, release: Any, anchors: Any, root: Any, push: Any, size: Any, bar: Any
    ) -> Any:
        """One trajectory of one chain, in coordinates whitened by `root`; accepted when it beats `bar`."""
        origin = self.chart.free(values)
        fixed = [
            inner.coefficients(values, records, release, anchor, part)
            for inner, anchor, part in zip(self.collapsed, anchors, self.still, strict=True)
        ]

        def target(z: Any) -> Any:
            free = origin + (root @ z if root.ndim == 2 else root * z)
            return self.log_target(free, values, records, release, anchors, fixed), free

        slope = jax.value_and_grad(target, has_aux=True)

        def gradient(z: Any) -> tuple[Any, Any]:
            (level, _), raw = slope(z)
            return level, jnp.nan_to_num(raw, nan=0.0, posinf=0.0, neginf=0.0)

        def leap(carry: Any, _: Any) -> tuple[Any, None]:
            z, p, _, g = carry
            p = p + 0.5 * size * g
            z = z + size * p
            level, g = gradient(z)
            return (z, p + 0.5 * size * g, level, g), None

        still = jnp.zeros_like(push)
        before, g = gradient(still)
        (z, p, after, _), _ = jax.lax.scan(leap, (still, push, before, g), length=self.leaps)
        ratio = after - before + 0.5 * jnp.sum(push**2) - 0.5 * jnp.sum(p**2)
        ratio = jnp.where(jnp.isnan(ratio), -jnp.inf, ratio)
        yes = bar >= -ratio
        free = jnp.where(yes, target(z)[1], origin)
        point = self.chart.point(free, values)[0]
        moved = {name: jnp.where(yes, point[name], values[name]) for name in self.chart.names}
        return moved, free, jnp.exp(jnp.minimum(ratio, 0.0))

    def step(self, rng: np.random.Generator, state: State, warm: bool) -> tuple[float, float]:
        """One trajectory for every chain, then fresh draws of what was integrated out."""
        names = (*self.chart.names, *(inner.name for inner in self.collapsed))
        purpose = ("gradient", names, len(self.collapsed), self.leaps)
        axes = (0, 0, self.joint.axes, None, None, 0, 0, 0)
        program = self.joint.program(purpose, lambda: jax.vmap(self._move, in_axes=axes))
        chains = state.chains
        push = rng.standard_normal((chains, self.chart.size))
        size = np.exp(self.log_step) * rng.uniform(0.8, 1.2, chains)
        bar = rng.standard_exponential(chains)
        anchors = [inner.anchor(state.values) for inner in self.collapsed]
        moved, free, rate = self.joint.run(
            program, state.values, state.records, self.joint.release, anchors, self.root, push, size, bar
        )
        state.values.update(moved)
        for inner in self.collapsed:
            inner.step(rng, state, warm)
        if warm:
            self.tune(0.7 * (float(rate.mean()) - AIM))
            self.seen.append(free)
        return float(rate.sum()), float(chains)

    def freeze(self) -> None:
        """Keep the average length of a step, and shorten a trajectory that would return to where it began."""
        super().freeze()
        size = float(np.exp(self.log_step))
        if self.leaps * size > LONG:
            self.leaps = int(np.ceil(BEST / size))

    def learn(self) -> None:
        """A new metric from the positions seen since the last, over chains and sweeps, shrunk towards its diagonal."""
        seen = self.lately()
        if len(seen) < 4 * min(self.chart.size, DENSE) or not np.all(np.isfinite(seen)):
            return
        variance = np.maximum(seen.var(axis=0), 1e-12)
        old = np.exp(self.log_step) * np.exp(np.mean(np.log(self._spread())))
        if self.root.ndim == 1:
            self.root = np.sqrt(variance)
        else:
            covariance = np.cov(seen.T).reshape(len(variance), -1)
            weight = len(seen) / (len(seen) + 5.0)
            self.root = np.linalg.cholesky(weight * covariance + (1.0 - weight) * np.diag(variance))
        self.begin(float(np.clip(np.log(old / np.exp(np.mean(np.log(self._spread())))), -3.0, 0.3)))

    def _spread(self) -> Array:
        return np.abs(np.diag(self.root)) if self.root.ndim == 2 else self.root


WALKED = 16
"""Coordinates beyond which a random walk with fresh statistics is not tried."""
USEFUL = 0.02
"""Acceptance in warm-up below which that random walk is given up."""


class Refresh(Tuned):
    """A random walk of the parameters together with fresh statistics drawn from their laws where the walk leads.

    It serves where the noise is wide beside the law: there statistics given the parameters, and parameters given the
    statistics, hardly move, while both together can. The laws of the statistics cancel in the acceptance ratio; prior,
    noise and all that is held fixed remain. Tables behind `reported` categories are drawn given their release too: its
    marginal probability takes the place of law and noise.
    """

    def __init__(
        self, joint: Joint, names: Sequence[str], fresh: Sequence[str], reported: Sequence[Reported] = ()
    ) -> None:
        self.joint, self.chart, self.reported = joint, Chart(joint.model, names), tuple(reported)
        tables = [table.name for table in self.reported]
        self.fresh = [name for name in joint.model.order if name in fresh and name not in tables]
        self.renewed = [*self.fresh, *tables]
        self.density = joint.without_laws_of(self.fresh, {table.name: table.log_marginal for table in self.reported})
        self.most = float(np.log(2.4 / np.sqrt(self.chart.size)))
        self.begin(self.most - 1.0)
        self.root = np.eye(self.chart.size)
        self.seen: list[Array] = []
        self.rates: list[float] = []
        self.active = True

    def prepare(self, state: State) -> None:
        """Begin to compile the programs that a step for these chains will run."""
        self._walked.prepare(state.values, jax.ShapeDtypeStruct((state.chains, self.chart.size), np.float64))
        self._weighed.prepare(state.values, state.records, self.joint.release)

    @property
    def _walked(self) -> Compiled:
        return self.joint.program(("walk", self.chart.names), lambda: jax.vmap(self._walk))

    @property
    def _weighed(self) -> Compiled:
        purpose = ("fresh", tuple(self.fresh), tuple(table.name for table in self.reported))
        return self.joint.program(purpose, lambda: jax.vmap(self.density, in_axes=(0, 0, self.joint.axes)))

    def step(self, rng: np.random.Generator, state: State, warm: bool) -> tuple[float, float]:
        """One proposal for every chain."""
        if not self.active:
            return 0.0, 0.0
        chains, run = state.chains, self.joint.run
        push = np.exp(self.log_step) * rng.standard_normal((chains, self.chart.size)) @ self.root.T
        there, free, jacobian = run(self._walked, state.values, push)
        try:  # a proposal with numbers beyond range has a density that rounds to zero
            values, possible = self.joint.model.drawable(rng, self.fresh, chains, {**state.values, **there})
        except InputError as error:
            if not error.beyond_range:
                raise
            values, possible = {**state.values}, np.zeros(chains, bool)
        values = {**values, **{table.name: table.draw(rng, values, chains) for table in self.reported}}
        new, old = (run(self._weighed, point, state.records, self.joint.release) for point in (values, state.values))
        with np.errstate(invalid="ignore"):
            ratio = new - old + jacobian
        yes = possible & (rng.standard_exponential(chains) >= -ratio)  # NaN: no
        for name in (*self.chart.names, *self.renewed):
            chosen = yes.reshape((-1,) + (1,) * (values[name].ndim - 1))
            state.values[name] = np.where(chosen, values[name], state.values[name])
        if warm:
            self._watch(free, float(yes.mean()))
        return float(yes.sum()), float(chains)

    def _walk(self, values: Values, push: Any) -> Any:
        free = self.chart.free(values)
        there, jacobian = self.chart.point(free + push, values)
        return {name: there[name] for name in self.chart.names}, free, jacobian - self.chart.point(free, values)[1]

    def _watch(self, free: Array, rate: float) -> None:
        self.tune(0.5 * (rate - 0.25), self.most + 0.5)
        self.seen.append(free)
        self.rates.append(rate)

    def learn(self) -> None:
        """Shape the walk by the positions seen since the last call; give up where hardly any proposal is accepted."""
        seen = self.lately()
        if len(self.rates) >= 20 and np.mean(self.rates[len(self.rates) // 2 :]) < USEFUL:
            self.active = False
        self.rates = []
        if len(seen) >= 4 * self.chart.size and np.all(np.isfinite(seen)):
            covariance = np.cov(seen.T).reshape(self.chart.size, -1)
            self.root = np.linalg.cholesky(covariance + np.diag(1e-9 * np.diag(covariance) + 1e-18))
            self.begin(self.most - 0.5)
