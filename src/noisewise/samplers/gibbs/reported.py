"""Counts of true categories behind randomised response, drawn at once from their law given shares and reports.

    a record reported as j is of category i with probability  p_i C_ij / sum_l p_l C_lj,  whatever the others are

if the records are independent with shares p, C being the channel. Hence one multinomial for each reported category,
and no probability of a whole table is ever needed. Proof: docs/derivations/augmentation.md.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy

from noisewise.mechanisms.randomized_response import RandomizedResponse
from noisewise.model.families import facts_of
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, Values
from noisewise.samplers.gibbs.joint import Joint, State


class Reported:
    """A table of independent records' true categories, released through a channel, on which nothing else depends."""

    def __init__(self, joint: Joint, name: str) -> None:
        self.joint, self.name, self.shape = joint, name, joint.model.shape(name)

    @staticmethod
    def applies(joint: Joint, name: str) -> bool:
        """Whether law and mechanism are of this kind, and nothing else depends on the statistic."""
        mechanism = joint.release[name][0] if name in joint.release else None
        if not isinstance(mechanism, RandomizedResponse) or mechanism.on != "counts":
            return False
        alone = not joint.children(name) and not joint.readers(name)
        return alone and facts_of(joint.model.law(name).form.kind).counts_records

    def _given(self, values: Values) -> dict[str, Any]:
        return {name: values[name] for name in self.joint.model.law(self.name).parents}

    def _law(self, values: Values) -> Any:
        return peel(self.joint.model.law_at(self.name, values))[0]

    def log_marginal(self, values: Values, records: Any, release: Any) -> Any:
        """log P(reports | parameters) but for a constant: multinomial with shares p C, the table summed out."""
        mechanism, reports = release[self.name]
        law = self._law(values)
        shares = jnp.broadcast_to(law.probs, self.shape) @ jnp.asarray(mechanism.channel)
        possible = jnp.all(jnp.asarray(law.total_count) == mechanism.n)
        return jnp.where(possible, jnp.sum(xlogy(reports, shares)), -jnp.inf)

    def log_marginals(self, values: Values) -> Array:
        """`log_marginal` of every row."""
        program = self.joint.program(
            ("marginal", self.name), lambda: jax.vmap(self.log_marginal, in_axes=(0, None, self.joint.axes))
        )
        logs: Array = self.joint.run(program, dict(values), None, self.joint.release)
        return logs

    def draw(self, rng: np.random.Generator, values: Values, chains: int) -> Array:
        """True counts given parameters and reports, chain by chain; any counts where the reports are impossible."""

        def build() -> Any:
            return jax.vmap(lambda parents: jnp.broadcast_to(self._law(parents).probs, self.shape), axis_size=chains)

        program = self.joint.program(("shares", self.name, chains), build)
        shares = self.joint.run(program, self._given(values))
        mechanism, reports = self.joint.release[self.name]
        assert isinstance(mechanism, RandomizedResponse)
        reports = np.broadcast_to(reports, (chains, *self.shape[:-1], len(mechanism.channel[0]))).astype(np.int64)
        counts = np.zeros((chains, *self.shape), dtype=np.int64)
        for column, chance in enumerate(np.array(mechanism.channel).T):
            weights = shares * chance
            weights = np.where(weights.sum(axis=-1, keepdims=True) > 0.0, weights, 1.0)
            counts += rng.multinomial(reports[..., column], weights / weights.sum(axis=-1, keepdims=True))
        return counts

    def step(self, rng: np.random.Generator, state: State, warm: bool) -> tuple[float, float]:
        """Draw the table for every chain: (accepted, tried), equal since all draws are exact."""
        state.values[self.name] = self.draw(rng, state.values, state.chains)
        return float(state.chains), float(state.chains)
