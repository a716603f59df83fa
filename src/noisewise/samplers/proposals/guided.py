"""Whole-numbered statistics that a total or a simulator reads, drawn near their own releases.

A number of people is published with noise of a few, and the prior knows it to thousands: draws of the model hardly ever
come near, and each has had as many records simulated as it has people. Derivation: docs/derivations/importance.md.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.inference.blocks import Columns
from noisewise.inference.conditional.laws import sketch_of
from noisewise.inference.conditional.marginal import log_sum, pick
from noisewise.inference.conditional.tree_nodes import log_masses, treats_entries_alone
from noisewise.inference.conditional.windows import window_of
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Exact, Released
from noisewise.model import Model
from noisewise.model.graph import Poll
from noisewise.numerics import Array, Compiled, double
from noisewise.samplers.proposals.proposal import made_once
from noisewise.samplers.proposals.recombined import Recombined, is_recombined

SHARE = 0.1
"""Share of the rows in which the statistic is drawn from its law alone, so that no value of it is passed over."""
MOST_CELLS = 2**10
"""Most values, times entries, that a row's law is looked at for."""


@dataclass(frozen=True, eq=False)
class Guide:
    """Draws of one statistic given its parents and its release: SHARE * law + (1 - SHARE) * law * eta / Z.

    The second part is cut to a window of values; Z is its sum there.
    """

    model: Model
    name: str
    item: Released
    start: Array
    """The window's first value, entry by entry."""
    log_eta: Array
    """In the window: (size, entries)."""

    def draw(self, rng: np.random.Generator, values: Columns, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """`values` with the statistic, and log of (its law times the noise density, over what it was drawn from)."""
        from_law = self.model.draw(rng, [self.name], rows, values, poll)[self.name].reshape(rows, -1)
        chosen, log_sums = self._in_window(values, rng.random(from_law.shape))
        possible = log_sums > -np.inf  # else every row follows the law
        guided = possible & (rng.random(rows) >= SHARE)
        column = np.where(guided[:, None], self.start + chosen, from_law)
        inside = possible & np.all((column >= self.start) & (column < self.start + len(self.log_eta)), axis=1)
        shaped = column.reshape(rows, *self.model.shape(self.name)).astype(self.model.dtype(self.name))
        log_eta = _log_eta(self.item, shaped).sum(axis=1)
        with np.errstate(invalid="ignore"):
            log_guided = np.where(inside, math.log1p(-SHARE) + log_eta - log_sums, -np.inf)
        log_drawn = np.logaddexp(log_guided, np.where(possible, math.log(SHARE), 0.0))
        return {**values, self.name: shaped}, log_eta - log_drawn

    def _in_window(self, values: Columns, uniform: Array) -> tuple[Array, Array]:
        """Places in the window drawn given the release, entry by entry, and log Z of each row."""
        model, name, shape, size = self.model, self.name, self.model.shape(self.name), len(self.log_eta)

        def of_row(given: Any, uniform: Any, start: Any, log_eta: Any) -> Any:
            law = jax.vmap(lambda step: log_masses(model, name, shape, given, (start + step).reshape(shape)))
            log_terms = law(np.arange(size)) + log_eta
            return pick(log_terms, uniform), jnp.sum(log_sum(log_terms))

        program = model.compiled.setdefault(
            ("guide", name, size), Compiled(lambda: jax.vmap(of_row, in_axes=(0, 0, None, None)))
        )
        given = {parent: np.asarray(values[parent]) for parent in model.parents(name)}
        with double():
            chosen, log_sums = program(given, uniform, self.start, self.log_eta)
            return np.asarray(chosen), np.asarray(log_sums)


def guides_of(problem: Problem) -> dict[str, Guide | Recombined]:
    """Statistics that are drawn with a look at their own release, by name.

    Whole numbers that a simulation reads, where law and noise are known entry by entry; and totals of many records.
    """
    key = ("guides", problem.release.hash)
    guides: dict[str, Guide | Recombined] = made_once(problem.model, key, lambda: _guides_of(problem))
    return guides


def _guides_of(problem: Problem) -> dict[str, Guide | Recombined]:
    model, guides = problem.model, dict[str, Guide | Recombined]()
    for name in problem.release:
        if is_recombined(problem, name):
            guides[name] = Recombined(problem, name)
    for name, item in problem.release.items():
        if not _is_guided(problem, name, item):
            continue
        window = window_of(problem, name, 0)
        start = window.start.ravel()
        if window.size * start.size <= MOST_CELLS:
            at = window.start + np.arange(window.size).reshape(-1, *(1,) * window.start.ndim)
            guides[name] = Guide(model, name, item, start, _log_eta(item, at))
    return guides


def _is_guided(problem: Problem, name: str, item: Released) -> bool:
    model = problem.model
    if name in problem.measured or isinstance(item.mechanism, Exact) or not model.is_discrete(name):
        return False
    simulated = [other for other in problem.needed if name in model.parents(other) and not model.has_density(other)]
    if not set(simulated) - set(problem.measured) or not model.has_density(name):
        return False
    if sketch_of(model, name, lambda law: law.event_shape) or item.mechanism.inputs:
        return False
    return treats_entries_alone(item, model.shape(name))


def _log_eta(item: Released, at: Array) -> Array:
    """log of the noise density at each row of values, entry by entry: (rows, entries)."""
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        return np.asarray(item.mechanism.log_prob(item.value, at)).reshape(len(at), -1)
