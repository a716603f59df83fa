"""A table of people by category, and the share of one category: everything else is integrated out in closed form.

With N people and shares that are Dirichlet, the share x of one category and the others' proportions among themselves
are independent. So all that the release says of x is, with k people in the category,

    m(r | x) = sum over k of Binomial(k; N, x) eta(r | k) C(N - k),

C(t) being the density of the other categories' releases if these hold t people. docs/derivations/design.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.special import betainccinv, betaincinv, gammaln, xlog1py, xlogy

from noisewise.inference.conditional.laws import constant_of
from noisewise.mechanisms import Exact, Mechanism
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.results.goal import Goal
from noisewise.studies.designs.counts import Mechanisms, by_release, is_by_entry, log_eta_at, log_summed, takes

ROWS, CELLS = 2**13, 2**23
"""Most values of the share; most probabilities tabulated, by value of the share and number of people."""
LEFT_OUT = 1e-13
"""Prior probability of the share below the least of these values, and as much above the largest."""
MOST_PEOPLE = 2**11
"""Most people in a table: every release takes a convolution of such long sequences, one for each other category."""


@dataclass(frozen=True)
class ShareOfTable:
    """The share of one category, with the rest of its table integrated out."""

    shares: str
    table: str
    place: int
    concentration: Array
    people: int

    @classmethod
    def of(cls, model: Model, targets: tuple[Goal, ...]) -> Self | None:
        """The share that all targets are about; None unless one multinomial table alone reads its Dirichlet law."""
        shares, index = targets[0].name, targets[0].index
        readers = [other for other in (*model.order, *model.derived) if shares in takes(model, other)]
        if {(target.name, target.index) for target in targets} != {(shares, index)} or len(readers) != 1:
            return None
        (table,) = readers
        if shares not in model.parameters or model.parents(shares) or table not in model.statistics:
            return None
        if not model.has_density(table) or model.parents(table) != (shares,) or len(index) != 1:
            return None
        law, prior = model.law(table), model.law(shares)
        if (law.form.kind, prior.form.kind, law.form.passed.get("probs")) != ("MultinomialProbs", "Dirichlet", shares):
            return None
        people = constant_of(model, table, "total_count")
        if people is None or np.size(people) != 1 or int(np.ravel(people)[0]) > MOST_PEOPLE:
            return None
        concentration = np.broadcast_to(constant_of(model, shares, "concentration"), model.shape(shares))
        return cls(shares, table, index[0], concentration.astype(float), int(np.ravel(people)[0]))

    def serves(self, mechanisms: Mechanisms) -> bool:
        """Whether the table is released, with noise that acts on every entry alone."""
        return self.table in mechanisms and is_by_entry(mechanisms[self.table])

    @cached_property
    def values(self) -> Mapping[str, Array]:
        """Rows with the share sin(t)^2 at equal steps of t, and the other shares at their expectations.

        In t every binomial law has about the same spread, 1 / (2 sqrt(N)), so that rows are as dense at every share.
        """
        rows = min(ROWS, CELLS // (self.people + 1))
        a, beside = self.concentration[self.place], np.delete(self.concentration, self.place)
        ends = np.arcsin(np.sqrt([betaincinv(a, beside.sum(), LEFT_OUT), betainccinv(a, beside.sum(), LEFT_OUT)]))
        share = np.sin(ends[0] + (np.arange(rows) + 0.5) / rows * (ends[1] - ends[0])) ** 2
        others = (1.0 - share)[:, None] * beside / beside.sum()
        return {self.shares: np.insert(others, self.place, share, axis=1)}

    @cached_property
    def log_prior(self) -> Array:
        """log of the prior's density of t at each row, but for a constant: dx = 2 sqrt(x (1 - x)) dt."""
        share, a = self.values[self.shares][:, self.place], self.concentration[self.place]
        return np.asarray((a - 0.5) * np.log(share) + (self.concentration.sum() - a - 0.5) * np.log1p(-share))

    @cached_property
    def _chance(self) -> Array:
        """Probabilities of the number of people in the category, by row."""
        share, k = self.values[self.shares][:, [self.place]], np.arange(self.people + 1.0)
        ways = gammaln(self.people + 1.0) - gammaln(k + 1.0) - gammaln(self.people - k + 1.0)
        return np.exp(ways + xlogy(k, share) + xlog1py(self.people - k, -share))

    def log_density(self, plans: list[Mechanisms], noisy: list[dict[str, Array]]) -> tuple[Array, Array]:
        """log of the prior times m(r | x) at each row, plan and replicate; and a bound of m(r | x) over all x."""
        log_m, top = log_summed(self._chance, by_release(plans, noisy, self.table, self._log_eta))
        return self.log_prior[:, None, None] + log_m, top

    def _log_eta(self, mechanism: Mechanism, value: Array) -> Array:
        """log eta(r | k) C(N - k), for each k."""
        people = np.arange(self.people + 1)
        own = log_eta_at(mechanism, value, people, self.place)
        return own if isinstance(mechanism, Exact) else own + self._log_others(mechanism, value)[::-1]

    def _log_others(self, mechanism: Mechanism, value: Array) -> Array:
        """log C(t) for each t: other categories are Dirichlet-multinomial; their weights are convolved one by one."""
        beside, people = np.delete(self.concentration, self.place), np.arange(self.people + 1.0)[:, None]
        log_eta = np.asarray(mechanism.log_prob(value, np.repeat(people, len(value), axis=1)))
        weight = np.delete(log_eta, self.place, axis=1)
        weight = weight + gammaln(people + beside) - gammaln(beside) - gammaln(people + 1.0)
        together, height = np.ones(1), 0.0
        for column in weight.T:
            together = np.convolve(together, np.exp(column - column.max()))[: len(people)]
            height += column.max() + np.log(together.max())
            together /= together.max()
        whole, total = beside.sum(), people[:, 0]
        return np.asarray(np.log(together) + height + gammaln(total + 1.0) + gammaln(whole) - gammaln(total + whole))
