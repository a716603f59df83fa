"""The confidential statistic given parameters and release: steps that leave its full conditional law as it is.

No part of the support is cut off: a discrete value is drawn exactly within a window placed at random about the current
value, which is Gibbs sampling on (value, window) and can reach every value. Proof: docs/derivations/augmentation.md.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.inference.conditional.marginal import pick
from noisewise.mechanisms.additive import Additive
from noisewise.numerics import Array
from noisewise.samplers.gibbs.joint import Joint, State, entry_log_prob, support_of

CHEAP = 2**11
"""Entries times window up to which every sweep enumerates."""
WILLING = 0.25
"""Acceptance rate of independence proposals, at every entry, that makes other moves unnecessary."""
LEAST_WINDOW, MOST_WINDOW = 16, 256


def window_for(joint: Joint, name: str) -> tuple[int, int | None]:
    """(length, start) of a window: the whole support where it is fixed and short, else one that moves (start None)."""
    ends = support_of(joint, name)
    if ends is not None and ends[1] - ends[0] < MOST_WINDOW:
        return ends[1] - ends[0] + 1, ends[0]
    mechanism = joint.release[name][0] if name in joint.release else None
    scale = float(np.max(np.asarray(getattr(mechanism, "scale", 8.0), dtype=float)))
    length = 1 << int(np.ceil(np.log2(max(8.0 * scale, 1.0))))
    return int(np.clip(length, LEAST_WINDOW, MOST_WINDOW)), None


class Entries:
    """A statistic whose entries are independent given the parameters, under noise that acts entry by entry.

    Moves, all of them on every entry at once: enumeration within a window (whole numbers), a random walk (otherwise),
    a proposal from the law accepted on the noise, a proposal from the noise accepted on the law. Where enumeration is
    dear, the warm-up decides whether it is needed; afterwards the moves are fixed.
    """

    def __init__(self, joint: Joint, name: str) -> None:
        self.joint, self.name = joint, name
        self.model, self.shape = joint.model, joint.model.shape(name)
        self.mechanism: Any = joint.release[name][0]
        self.discrete = self.model.is_discrete(name)
        self.parents = self.model.law(name).parents
        self.independent = ["law"]
        if isinstance(self.mechanism, Additive) and self.mechanism.integers == self.discrete:
            self.independent.append("noise")
        if self.discrete:
            self.length, self.start = window_for(joint, name)
        self.moves = [*self.independent]
        if self.cheap:
            self.moves = ["local"] if self.discrete and self.start is not None else ["local", *self.independent]
        self.forget()
        self.spread = np.full(self.shape, np.asarray(getattr(self.mechanism, "scale", 1.0), dtype=float))

    @property
    def cheap(self) -> bool:
        """Whether the local move is worth its price in every sweep."""
        return not self.discrete or max(1, int(np.prod(self.shape))) * self.length <= CHEAP

    @property
    def value(self) -> Any:
        """The released value."""
        return self.joint.release[self.name][1]

    # Pieces ------------------------------------------------------------------------------------------------

    def _given(self, state: State) -> dict[str, Array]:
        return {name: state.values[name] for name in self.parents}

    def _log_law(self, state: State, value: Array) -> Array:
        def build() -> Any:
            return jax.vmap(lambda values, s: entry_log_prob(self.model, self.name, values, s))

        return self.joint.run(self.joint.program(("entries", self.name), build), self._given(state), value)

    def _log_eta(self, state: State, value: Array) -> Array:
        extra = {name: state.values[name] for name in self.mechanism.inputs}
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(self.mechanism.log_prob(self.value, value, **extra)).reshape(value.shape)

    def settle(self, rng: np.random.Generator, state: State) -> bool:
        """Move entries of zero density under law or noise to where both are positive; whether that worked."""
        current = state.values[self.name]
        for attempt in range(200):
            with np.errstate(invalid="ignore"):
                bad = ~np.isfinite(self._log_law(state, current) + self._log_eta(state, current))
            if not bad.any():
                state.values[self.name] = current
                return True
            if attempt % 2 and isinstance(self.mechanism, Additive):
                fresh = self.value - self.mechanism.noise_sample(rng, current.shape)
                fresh = np.round(fresh).astype(current.dtype) if self.discrete else fresh
            elif attempt % 4 == 2 and self.discrete and self.start is not None:
                fresh = rng.integers(self.start, self.start + self.length, current.shape)
            else:
                fresh = self.model.law(self.name).draw(rng, state.values, len(current))
            current = np.where(bad, fresh, current)
        return False

    # Moves -------------------------------------------------------------------------------------------------

    def step(self, rng: np.random.Generator, state: State, warm: bool) -> tuple[float, float]:
        """One sweep over the entries: (accepted, tried)."""
        accepted = tried = 0.0
        for move in self.moves:
            share = getattr(self, f"_{move}")(rng, state, warm)
            if warm:
                self.accepted[move] += share.mean(axis=0)
            accepted, tried = accepted + float(share.sum()), tried + share.size
        self.watched += 1
        return accepted, tried

    def settle_moves(self) -> None:
        """Where enumeration is dear, use it only if independence proposals, as seen so far, rarely move some entry."""
        if not self.cheap:
            rate = {move: self.accepted[move] / max(self.watched, 1) for move in self.independent}
            choices = [["law"], self.independent]
            served = (few for few in choices if np.min(np.max([rate[move] for move in few], axis=0)) >= WILLING)
            self.moves = [*next(served, [*self.independent, "local"])]
        self.forget()

    def forget(self) -> None:
        """Forget the acceptance rates seen so far."""
        self.accepted = {move: np.zeros(self.shape) for move in ("local", "law", "noise")}
        self.watched = 0

    def _law(self, rng: np.random.Generator, state: State, warm: bool) -> Array:
        current = state.values[self.name]
        proposed = self.model.law(self.name).draw(rng, state.values, len(current))
        ratio = self._log_eta(state, proposed) - self._log_eta(state, current)
        return self._decide(rng, state, proposed, ratio)

    def _noise(self, rng: np.random.Generator, state: State, warm: bool) -> Array:
        current = state.values[self.name]
        proposed = self.value - self.mechanism.noise_sample(rng, current.shape)
        if self.discrete:
            proposed = np.round(proposed).astype(np.int64)
        ratio = self._log_law(state, proposed) - self._log_law(state, current)
        return self._decide(rng, state, proposed, ratio)

    def _decide(self, rng: np.random.Generator, state: State, proposed: Array, ratio: Array) -> Array:
        yes = rng.standard_exponential(ratio.shape) >= -ratio  # NaN: no
        state.values[self.name] = np.where(yes, proposed, state.values[self.name])
        return yes

    def _local(self, rng: np.random.Generator, state: State, warm: bool) -> Array:
        return self._enumerate(rng, state) if self.discrete else self._walk(rng, state, warm)

    def _walk(self, rng: np.random.Generator, state: State, warm: bool) -> Array:
        current = state.values[self.name]
        proposed = current + self.spread * rng.standard_normal(current.shape)
        ratio = self._log_law(state, proposed) - self._log_law(state, current)
        ratio = ratio + self._log_eta(state, proposed) - self._log_eta(state, current)
        yes = self._decide(rng, state, proposed, ratio)
        if warm:  # towards an acceptance of 0.44, which is best in one dimension
            self.spread = self.spread * np.exp(yes.mean(axis=0) - 0.44)
        return yes

    def _enumerate(self, rng: np.random.Generator, state: State) -> Array:
        length, start = self.length, self.start

        def build() -> Any:
            def draw(values: Any, s: Any, release: Any, inputs: Any, offset: Any, uniform: Any) -> Any:
                mechanism, released = release
                first = s - offset if start is None else jnp.full_like(s, start)
                nodes = first + jnp.arange(length).reshape((length,) + (1,) * s.ndim)

                def weight(node: Any) -> Any:
                    return entry_log_prob(self.model, self.name, values, node) + mechanism.log_prob(
                        released, node, **inputs
                    )

                return first + pick(jax.vmap(weight)(nodes), uniform)

            axes = None if self.joint.axes is None else self.joint.axes[self.name]
            return jax.vmap(draw, in_axes=(0, 0, axes, 0, 0, 0))

        current = state.values[self.name]
        program = self.joint.program(("window", self.name, length, start), build)
        inputs = {name: state.values[name] for name in self.mechanism.inputs}
        offset, uniform = rng.integers(0, length, current.shape), rng.random(current.shape)
        release = (self.mechanism, self.value)
        drawn = self.joint.run(program, self._given(state), current, release, inputs, offset, uniform)
        state.values[self.name] = drawn.astype(current.dtype)
        return np.ones(current.shape)


class Lines:
    """Whole numbers, parameters too, that other terms tie together: exact draws along one direction after another.

    Directions are single entries or, for tables with a fixed total, a unit moved from one cell to another. Along each,
    the value is drawn exactly within a window placed at random about the current one.
    """

    def __init__(self, joint: Joint, name: str, table: bool) -> None:
        self.joint, self.name, self.table = joint, name, table
        self.shape = joint.model.shape(name)
        self.size = max(1, int(np.prod(self.shape)))
        self.length = window_for(joint, name)[0] if not table else 16
        self.length = int(np.clip(self.length, 4, 64))
        self.steps = min(2 * self.size if table else self.size, 64)

    def _directions(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Where a unit is added and where it is taken away, for every step."""
        into = rng.permutation(np.arange(self.steps) % self.size) if self.steps >= self.size else None
        into = into if into is not None else rng.choice(self.size, self.steps, replace=False)
        if not self.table:
            return into, into
        cells = self.shape[-1]
        return into, into - into % cells + (into + rng.integers(1, cells, self.steps)) % cells

    def step(self, rng: np.random.Generator, state: State, warm: bool) -> tuple[float, float]:
        """One sweep: (accepted, tried), both the number of chains, since exact draws are never refused."""
        target, length, table = self.joint.touching([self.name]), self.length, self.table

        def build() -> Any:
            def sweep(values: Any, records: Any, release: Any, into: Any, out: Any, offset: Any, uniform: Any) -> Any:
                def move(s: Any, step: Any) -> tuple[Any, None]:
                    i, j, shift, u = step
                    along = jnp.zeros(self.size, s.dtype).at[i].add(1)
                    along = along.at[j].add(-1) if table else along
                    steps = jnp.arange(length) - shift
                    nodes = s + steps.reshape((length,) + (1,) * s.ndim) * along.reshape(self.shape)
                    weights = jax.vmap(lambda node: target({**values, self.name: node}, records, release))(nodes)
                    return nodes[pick(weights, u)], None

                return jax.lax.scan(move, values[self.name], (into, out, offset, uniform))[0]

            return jax.vmap(sweep, in_axes=(0, 0, self.joint.axes, None, None, 0, 0))

        program = self.joint.program(("lines", self.name, length, table), build)
        into, out = self._directions(rng)
        offset = rng.integers(0, length, (state.chains, self.steps))
        uniform = rng.random((state.chains, self.steps))
        before = state.values[self.name]
        drawn = self.joint.run(program, state.values, state.records, self.joint.release, into, out, offset, uniform)
        state.values[self.name] = drawn.astype(before.dtype)
        return float(state.chains), float(state.chains)
