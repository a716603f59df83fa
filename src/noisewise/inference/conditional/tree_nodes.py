"""The statistics of a tree: for each, what it depends on, its window of values, and what lies beyond that.

Derivation: docs/derivations/trees.md.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.inference.conditional.laws import constant_bounds, sketch_of
from noisewise.inference.conditional.windows import ROUNDED, Window, window_of
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Exact
from noisewise.model.entering import entering
from noisewise.model.masses import bounds, entries
from noisewise.numerics import Array, Values, double
from noisewise.numerics.numpy_programs import fixed_outputs
from noisewise.numerics.places import all_alike, places_read

FORMULA, TILTED, PRODUCT = 2.0, 0.25, 1.0 / 64.0
"""What a probability costs by a formula, and by two logs of chances; and a product in a sum: in terms of a `Sum`."""
WIDEST = 2**9
"""Most values of a statistic without a release, where its parent's windows bound them."""


@dataclass(frozen=True, eq=False)
class TreeNode:
    """One statistic of the tree: values start, ..., start + size - 1 of every entry."""

    name: str
    shape: tuple[int, ...]
    parent: "TreeNode | None"
    reads: Array
    """The parent's entry that each entry depends on, as flat numbers; of the root, its own."""
    alike: bool
    """Whether all entries have one law, given the parent's value."""
    exact: bool
    """Whether it is known: released without noise."""
    thinned: bool
    """Whether it is binomial, its size the parent's value, which its chance does not read."""
    start: Array
    """One per entry, flat."""
    size: int
    outside: Array
    """Bound on log eta/sup beyond the window, one per entry; -inf where nothing lies there.

    Nothing does, where no value in the parent's windows allows it.
    """
    above: Array
    """Of a thinned node: bound on log eta/sup above the window, one per entry, whatever the parent's value."""
    ends: tuple[Array, Array]
    """The least and the largest value that every entry may have, the parent's being in its windows."""

    @property
    def entries(self) -> int:
        """Its entries."""
        return len(self.start)

    @property
    def whole(self) -> bool:
        """Whether its windows hold every value there is."""
        return not np.any(self.outside > -np.inf)

    @property
    def together(self) -> bool:
        """Whether all entries have one window, of the node and of its parent."""
        own = bool(np.all(self.start == self.start[0]))
        return own and (self.parent is None or bool(np.all(self.parent.start == self.parent.start[0])))

    @property
    def has_table(self) -> bool:
        """Whether one table has the law of every entry, for each value of the parent."""
        return self.parent is not None and self.alike and self.together

    @property
    def in_one_window(self) -> "TreeNode":
        """The node with one window for all entries."""
        span = ROUNDED * math.ceil((int(self.start.max() - self.start.min()) + self.size) / ROUNDED)
        return replace(self, start=np.full_like(self.start, self.start.min()), size=span)

    @property
    def values(self) -> Array:
        """The values of the windows, (size, *shape); at the end of the support where they go beyond it.

        There a law that reads them, or the noise, need not be a number.
        """
        return np.clip(self.start + np.arange(self.size)[:, None], *self.ends).astype(int).reshape(-1, *self.shape)

    @property
    def cells(self) -> int:
        """Probabilities in the step from the node to its parent, or of the root."""
        if self.parent is None:
            return self.size * self.entries
        repeated = 1 if self.thinned else math.ceil(self.entries / len(np.unique(self.reads)))
        return self.parent.size * self.size * (repeated if self.has_table else self.entries)

    @property
    def work(self) -> int:
        """Numbers handled by the step from the node to its parent, or by the root."""
        products = 0 if self.parent is None else self.parent.size * self.size * self.entries
        return int((TILTED if self.thinned else FORMULA) * self.cells + PRODUCT * products)


def as_nodes(
    problem: Problem, names: tuple[str, ...], known: list[str], widened: int, together: bool
) -> tuple[TreeNode, ...] | None:
    """The statistics as nodes, parents first; None where they are more than a tree. `known` are without noise."""
    nodes: dict[str, TreeNode] = {}
    model = problem.model
    for name in (name for name in model.order if name in names or name in known):
        node = _node(problem, name, [nodes[p] for p in model.parents(name) if p in nodes], name in known, widened)
        if node is None or (nodes and node.parent is None):
            return None
        nodes[name] = node.in_one_window if together else node
    return tuple(nodes.values())


def _node(problem: Problem, name: str, parents: list[TreeNode], exact: bool, widened: int) -> TreeNode | None:
    """The statistic as a node under one of `parents`; None where it is more than a node can be."""
    model, item = problem.model, problem.release.get(name)
    shape = model.shape(name)
    if len(parents) > 1 or not model.is_discrete(name) or sketch_of(model, name, lambda law: law.event_shape):
        return None
    if item is not None and not treats_entries_alone(item, shape):
        return None
    others = {p: jax.ShapeDtypeStruct(model.shape(p), model.dtype(p)) for p in model.parents(name)}
    own = jax.ShapeDtypeStruct(shape, np.int64)
    parent = parents[0] if parents else None
    above = {} if parent is None else {parent.name: others.pop(parent.name)}

    def law(own: Any, above: Values, others: Values) -> Any:
        return log_masses(model, name, shape, {**others, **above}, own)

    each = np.arange(math.prod(shape))
    reads = places_read(law, own, above, others)
    if reads is None or np.any(reads != each):
        return None
    if parent is not None:
        reads = places_read(lambda at, own, rest: law(own, {parent.name: at}, rest), above[parent.name], own, others)
    if reads is None or np.any(reads < 0):
        return None
    alike = all_alike(law, [True, True, False], own, above, others)
    thinned = parent is not None and _is_thinned(model, name, parent)
    if exact:
        assert item is not None
        value = np.broadcast_to(np.asarray(item.value, dtype=float), shape).ravel()
        if np.any(value != np.round(value)):
            return None
        nothing = np.full(value.shape, -np.inf)
        start, ends = value.astype(np.int64), (value, value)
        return TreeNode(name, shape, parent, reads, alike, True, thinned, start, 1, nothing, nothing, ends)
    window = window_of(problem, name, widened)
    start, size, outside = window.start.ravel(), window.size, window.outside.ravel()
    if parent is None:
        low, high = (end.ravel() for end in constant_bounds(model, name))
    else:
        low, high = _ends_below(model, name, parent)
        start, size, outside = _within(start, size, outside, low, high, item is None)
    most = np.zeros(start.shape)
    if item is not None and thinned:
        most = _most_above(item, shape, window, start + size - 1)
    return TreeNode(name, shape, parent, reads, alike, False, thinned, start, size, outside, most, (low, high))


def _most_above(item: Any, shape: tuple[int, ...], window: Window, last: Array) -> Array:
    """Bound on log eta/sup above `last`, entry by entry; the statistic has this window if nothing is known above it."""
    at = window.start + np.arange(window.size).reshape(-1, *(1,) * len(shape))
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        log_ratio = np.asarray(item.mechanism.log_prob(item.value, at)) - np.asarray(item.mechanism.log_sup(item.value))
    above = at.reshape(window.size, -1) > last
    most: Array = np.max(np.where(above, log_ratio.reshape(window.size, -1), -np.inf), axis=0)
    return np.maximum(most, window.outside.ravel())


def _within(
    start: Array, size: int, outside: Array, low: Array, high: Array, unreleased: bool
) -> tuple[Array, int, Array]:
    """The window, no longer than between ends that the parent's windows set; all between them, without a release."""
    longest = float(np.max(high - low)) + 1.0
    if (unreleased and longest <= WIDEST) or longest <= size:
        return low.astype(np.int64), int(longest), np.full(start.shape, -np.inf)
    inside = (low >= start) & (high <= start + size - 1)
    return start, size, np.where(inside, -np.inf, outside)


def _ends_below(model: Any, name: str, parent: TreeNode) -> tuple[Array, Array]:
    """The least and the largest value of every entry that any value in the parent's windows allows."""
    shape = model.shape(name)

    def look(law: Any) -> list[Any]:
        return [end.ravel() for end in bounds(law, shape)]

    low, high = _over_windows(model, name, parent, look)
    entries_ = math.prod(shape)
    return (
        np.full(entries_, -np.inf) if low is None else low.min(axis=0),
        np.full(entries_, np.inf) if high is None else high.max(axis=0),
    )


def _over_windows(model: Any, name: str, parent: TreeNode, look: Any) -> list[Array | None]:
    """What `look(law)` lists at each value of the parent's windows; None for what depends on anything else."""
    rest = {other: one for other, one in model.law(name).row.items() if other != parent.name}

    def seen(others: Values) -> list[Any]:
        at_each = jax.vmap(lambda at: look(model.law_at(name, {**others, parent.name: at})))
        return [jnp.asarray(one) for one in at_each(parent.values)]

    with double():
        numbers = fixed_outputs(jax.vmap(seen, axis_size=1), rest)
    return [None if number is None else np.asarray(number[0]) for number in numbers]


CHANCES = {"BinomialProbs": "probs", "BinomialLogits": "logits"}
"""Binomial laws, and the attribute that has the chance."""


def _is_thinned(model: Any, name: str, parent: TreeNode) -> bool:
    """Whether `TreeNode.thinned`."""
    law = model.law(name)
    if law.form.kind not in CHANCES:
        return False
    ways = entering(law, parent.name, frozenset())
    return ways == {"total_count": "linear", CHANCES[law.form.kind]: "none"}


def log_masses(model: Any, name: str, shape: tuple[int, ...], given: Values, own: Any) -> Any:
    """log probability of every entry, flat; the support is checked first, so that no formula is used off it."""
    law = model.law_at(name, given)
    low, high = bounds(law, shape)
    inside = (own >= low) & (own <= high)
    return jnp.where(inside, entries(law, jnp.clip(own, low, high).astype(int)), -jnp.inf).ravel()


def treats_entries_alone(item: Any, shape: tuple[int, ...]) -> bool:
    """Whether the noise has nothing but the statistic itself as its input, and treats every entry alone."""
    if item.mechanism.inputs or isinstance(item.mechanism, Exact):
        return not item.mechanism.inputs
    with double():
        own = jax.ShapeDtypeStruct(shape, np.int64)
        each = jax.eval_shape(lambda s: jnp.asarray(item.mechanism.log_prob(item.value, s)), own)
    return item.mechanism.event_dim == 0 and each.shape == shape
