"""Discrete statistics that depend on each other entry by entry, summed out together: by messages up a tree.

As visits to a site depend on how many live there, answers on the true status, shares of a count on the count. Every
node has a window of values, as a `Sum` has. Derivation: docs/derivations/trees.md.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

from noisewise.inference.conditional.marginal import log_sum, pick
from noisewise.inference.conditional.neighbours import FACTORS
from noisewise.inference.conditional.tree_nodes import TreeNode, as_nodes, log_masses
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Exact
from noisewise.model.masses import bounds
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, Values

MOST_CELLS = 2**20
"""Pairs of a value and its parent's, times entries, that one step up the tree may handle."""
MOST_BOUNDED = 32
"""Most entries of a root without a release whose windows do not hold all its values.

What lies beyond them is bounded for each entry by the supremum of the noise, or little less: over many entries the
bound is so far from the sum that windows would have to reach farther than they can.
"""
LOST = 1e-300
"""More than a product of two positive shares can be where it is too small for a number."""


class Tree:
    """Discrete statistics, of which each depends on at most one other, entry by entry, summed out together."""

    by_entry, by_powers, span, width, fixed_noise = False, False, 0, 0, True
    """What a `Sum` may be, and this is not; and that the noise depends on nothing that is sampled."""

    def __init__(self, problem: Problem, names: tuple[str, ...], nodes: tuple[TreeNode, ...]) -> None:
        self.problem, self.names = problem, names
        self.children = tuple(node.name for node in nodes if node.exact)
        self.read_by = tuple(name for name in names if name in problem.release)
        self.nodes = nodes
        self.whole = all(node.whole for node in nodes) and not any(node.has_table for node in nodes)
        """Whether nothing can be missing: a window too narrow, or a product too small for a number."""

    @staticmethod
    def of(problem: Problem, names: tuple[str, ...], widened: int) -> "Tree | None":
        """The tree of these statistics, with windows doubled `widened` times; None where they make none."""
        model, release = problem.model, problem.release
        exact = [name for name, item in release.items() if isinstance(item.mechanism, Exact)]
        known = [name for name in exact if set(model.parents(name)) & set(names)]
        if {measured.statistic for measured in problem.measured.values()} & {*names, *known}:
            return None
        if any(set(item.mechanism.inputs) & set(names) for item in release.values()):
            return None
        ways = [as_nodes(problem, names, known, widened, together) for together in (True, False)]
        trees = [Tree(problem, names, nodes) for nodes in ways if nodes is not None and _is_bounded(nodes[0], release)]
        return min(trees, key=lambda tree: tree.work, default=None)

    # Sizes -----------------------------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """How many uniform numbers a draw takes."""
        return sum(node.entries for node in self.nodes if not node.exact)

    @property
    def work(self) -> int:
        """Numbers handled for one value of the sums."""
        return sum(node.work for node in self.nodes)

    @property
    def points(self) -> int:
        """Numbers handled for each entry."""
        return math.ceil(self.work / self.entries)

    def excess(self) -> str | None:
        """Why there are too many values to sum over, or None."""
        most = max(node.cells for node in self.nodes)
        if most <= MOST_CELLS:
            return None
        return f"would sum {' and '.join(map(repr, self.names))} over {most} pairs of values at a time"

    @property
    def signature(self) -> tuple[Any, ...]:
        """What a compiled program depends on."""
        sizes = tuple((node.name, node.size, node.whole, node.together) for node in self.nodes)
        return "tree", self.names, sizes

    def tables(self) -> dict[str, Any]:
        """What does not depend on the parameters, as arguments of compiled programs."""
        noise, which, ceilings, sups = {}, {}, {}, {node.name: np.zeros(node.entries) for node in self.nodes}
        for node in reversed(self.nodes):
            item = self.problem.release.get(node.name)
            log_eta = np.zeros((node.size, 1)) if item is None else _log_noise(item, node)
            below, own = sups[node.name], np.zeros(node.entries)
            if item is not None and not node.exact:
                own = np.broadcast_to(np.asarray(item.mechanism.log_sup(item.value), float), node.shape).ravel()
            if node.thinned:
                ceilings[node.name] = _ceiling(log_eta, own + node.above, own) - own
            sups[node.name] = below + own
            if node.parent is not None:
                np.add.at(sups[node.parent.name], node.reads, sups[node.name])
            columns, index = np.unique(log_eta, axis=1, return_inverse=True)
            more = 2 ** math.ceil(math.log2(columns.shape[1])) - columns.shape[1]  # for programs: see `sums._different`
            noise[node.name] = np.pad(columns, ((0, 0), (0, more)))
            which[node.name] = np.broadcast_to(index.ravel(), node.entries).astype(np.int32)
        return {
            "starts": {node.name: node.start for node in self.nodes},
            "values": {node.name: node.values for node in self.nodes if any(o.parent is node for o in self.nodes)},
            "outside": {node.name: np.exp(node.outside) for node in self.nodes},
            "noise": noise,
            "which": which,
            "ways": {node.name: _ways(node) for node in self.nodes if node.thinned},
            "ceilings": ceilings,
            "log_sup": sups[self.nodes[0].name],
        }

    # Traceable: one value of everything that is sampled ------------------------------------------------------

    def log_bound(self, values: Values, items: Any, tables: Any) -> Any:
        """log of an upper bound of the whole sum, as `Sum.log_bound`."""
        return jnp.sum(self._bound(*self._summed(values, tables)[:2]))

    def conditional(self, values: Values, items: Any, tables: Any, uniform: Any) -> tuple[dict[str, Any], Any, Any]:
        """(a draw of the statistics given the rest, by inversion; `log_bound`; what share of that may be void)."""
        held, log_beyond, terms, log_up = self._summed(values, tables)
        drawn: dict[str, Any] = {}
        begun = 0
        for node in self.nodes:
            if node.exact:
                continue
            own, begun = uniform[begun : begun + node.entries], begun + node.entries
            start = tables["starts"][node.name]
            if node.parent is None:
                chosen = pick(terms, own)
            else:
                given = {**values, node.parent.name: drawn[node.parent.name]}
                chosen = pick(self._log_laws(node, given, tables) + log_up[node.name], own)
            drawn[node.name] = (start + chosen).reshape(node.shape).astype(int)
        bound = self._bound(held, log_beyond)
        is_known = jnp.asarray(self.whole) | (log_beyond == -jnp.inf)
        void = jnp.where(is_known, 0.0, jnp.exp(log_beyond - bound))
        return drawn, jnp.sum(bound), jnp.sum(void)

    def _bound(self, held: Any, log_beyond: Any) -> Any:
        return held if self.whole else jnp.logaddexp(held, log_beyond)

    def _summed(self, values: Values, tables: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
        """By entry of the root: log of the sum, log of what may be missing, its terms; and every node's message up.

        The message of a node is log of the noise below, summed over all that depends on it, at each of its values.
        """
        log_up = {node.name: jnp.zeros((node.size, 1)) for node in self.nodes}
        missing = {node.name: jnp.zeros((node.size, 1)) for node in self.nodes}
        """What may be missing below, in units of the supremum of the noise there."""
        for node in reversed(self.nodes):
            noise, which = tables["noise"][node.name], tables["which"][node.name]
            log_up[node.name] = log_up[node.name] + noise[:, which]
            if node.parent is None:
                break
            if not node.has_table:
                message, lost = self._by_entry(node, values, tables, log_up[node.name], missing[node.name])
            elif any(other.parent is node for other in self.nodes):
                message, lost = self._by_table(node, values, tables, log_up[node.name], missing[node.name])
            else:  # what was released more than once is summed once
                message, lost = self._by_table(node, values, tables, noise, missing[node.name])
                message = message[:, which]
            over = node.parent.entries
            log_up[node.parent.name] = log_up[node.parent.name] + _gathered(message, node.reads, over)
            missing[node.parent.name] = missing[node.parent.name] + _gathered(lost, node.reads, over)
        root = self.nodes[0]
        law = self._log_laws(root, values, tables)
        terms = law + log_up[root.name]
        lost = jnp.sum(jnp.exp(law) * missing[root.name], axis=0)
        if not root.whole:
            beyond = self._beyond(root, values, law, tables) * tables["outside"][root.name]
            lost = lost + beyond * self._most_beyond(root, values, tables)
        lost = lost + LOST * sum(node.size for node in self.nodes)
        return log_sum(terms), jnp.log(lost) + tables["log_sup"], terms, log_up

    def _log_laws(self, node: TreeNode, given: Values, tables: Any, base: Any = None) -> Any:
        """log probabilities of the node's values, given its parent's: (size, entries).

        `base`: of a thinned node, all that does not depend on its chance, and its size: (size, entries) and (entries,).
        """
        start = tables["starts"][node.name]
        if base is None:
            law = partial(log_masses, self.problem.model, node.name, node.shape)
            return jax.vmap(lambda step: law(given, (start + step).reshape(node.shape)))(np.arange(node.size))
        log_ways, total = base
        log_chance, log_rest = _log_chances(self.problem.model, node, given)
        values = start + np.arange(node.size)[:, None]
        return log_ways + values * log_chance + (total - values) * log_rest

    def _by_entry(self, node: TreeNode, values: Values, tables: Any, log_up: Any, missing: Any) -> tuple[Any, Any]:
        """The message to the parent, and what may be missing from it: (the parent's values, entries) each."""
        parent = node.parent
        assert parent is not None

        def given(at: Any, base: Any) -> Any:
            return self._log_laws(node, {**values, parent.name: at}, tables, base)

        log_law = jax.vmap(given)(tables["values"][parent.name], tables["ways"].get(node.name))
        if self.whole:  # no bound tells of products that are too small for a number
            return jax.vmap(log_sum)(log_law + log_up), jnp.zeros((parent.size, 1))
        law = jnp.exp(log_law)
        shares, top = _shares(log_up)
        message = _log(jnp.sum(law * shares, axis=1)) + top
        lost = jnp.einsum("abi,bi->ai", law, jnp.broadcast_to(missing, (node.size, node.entries)))
        if not node.whole:
            lost = lost + _rest(jnp.sum(law, axis=1), node, tables) * tables["outside"][node.name]
        return message, lost

    def _by_table(self, node: TreeNode, values: Values, tables: Any, log_up: Any, missing: Any) -> tuple[Any, Any]:
        """As `_by_entry`, from one table of the law for all entries, whose windows are one; for columns of messages."""
        law = jnp.exp(self._table(node, values, tables))
        shares, top = _shares(log_up)
        lost = law @ missing
        if not node.whole:
            lost = lost + _rest(jnp.sum(law, axis=1), node, tables)[:, None] * jnp.max(tables["outside"][node.name])
        return _log(law @ shares) + top, lost

    def _table(self, node: TreeNode, values: Values, tables: Any) -> Any:
        """log probabilities of the node's values, given each of its parent's: (the parent's values, the node's).

        A formula is asked at several of the parent's values at once, at one in each of its entries.
        """
        parent = node.parent
        assert parent is not None
        at = tables["values"][parent.name]
        if node.thinned:
            log_ways, total = (one[..., 0] for one in tables["ways"][node.name])
            above = {parent.name: at[0]}
            log_chance, log_rest = _log_chances(self.problem.model, node, {**values, **above})
            own = tables["starts"][node.name][0] + np.arange(node.size)
            return log_ways + own * log_chance[0] + (total[:, None] - own) * log_rest[0]
        asked, first = np.unique(node.reads, return_index=True)
        rounds = math.ceil(parent.size / len(asked))
        steps = np.zeros((rounds, parent.entries), dtype=np.int64)
        steps[:, asked] = np.minimum(np.arange(rounds * len(asked)), parent.size - 1).reshape(rounds, -1)

        def given(step: Any) -> Any:
            mixed = at.reshape(parent.size, -1)[step, np.arange(parent.entries)].reshape(parent.shape)
            return self._log_laws(node, {**values, parent.name: mixed}, tables)[:, first]

        law = jax.vmap(given)(steps)  # (rounds, the node's values, entries asked)
        return jnp.swapaxes(law, 1, 2).reshape(-1, node.size)[: parent.size]

    def _beyond(self, root: TreeNode, values: Values, law: Any, tables: Any) -> Any:
        """A bound on the probability that the root lies beyond its windows, entry by entry.

        What the window lacks is known up to rounding. Where ratios of neighbouring probabilities are known, which move
        one way, the sum beyond is at most that of a geometric series.
        """
        rest = _rest(jnp.sum(jnp.exp(law), axis=0), root, tables)
        own = self.problem.model.law_at(root.name, values)
        factors = FACTORS.get(self.problem.model.law(root.name).form.kind)
        if factors is None:
            return rest
        base, last = peel(own)[0], tables["starts"][root.name] + (root.size - 1.0)
        low, _ = bounds(own, root.shape)
        steepest: Any = 0.0
        for here, far in zip(factors.at(base, last.reshape(root.shape)), factors.last(base), strict=True):
            steepest = steepest + jnp.maximum(here, far)
        ratio = jnp.exp(jnp.broadcast_to(steepest, root.shape).ravel())
        falls = (ratio < 1.0) & (tables["starts"][root.name] <= jnp.ravel(low))
        series = jnp.exp(law[-1]) * jnp.where(falls, ratio, 0.0) / jnp.where(falls, 1.0 - ratio, 1.0)
        return jnp.where(falls, jnp.minimum(rest, series), rest)

    def _most_beyond(self, root: TreeNode, values: Values, tables: Any) -> Any:
        """A bound on the expected noise given that the root lies beyond its windows, in units of the supremum.

        A thinned count grows with the count it is taken from, in law. So the expectation of what falls in it, as
        `_ceiling` does, is largest at the last value of the windows. Below its own window that is the ceiling at the
        window's start, or what the noise is outside.
        """
        last = tables["starts"][root.name] + (root.size - 1)
        given = {**values, root.name: last.reshape(root.shape)}
        log_most = jnp.zeros(root.entries)
        for node in self.nodes:
            if node.thinned and node.parent is root:
                log_ways, total = tables["ways"][node.name]
                law = self._log_laws(node, given, tables, (log_ways[-1], total[-1]))
                ceilings, rest = tables["ceilings"][node.name], _rest(jnp.sum(jnp.exp(law), axis=0), node, tables)
                below = jnp.minimum(rest, self._below(node, given, total[-1], law[0], tables))
                most = jnp.sum(jnp.exp(law + ceilings), axis=0) + below * jnp.exp(ceilings[0])
                if not node.whole:
                    most = most + rest * tables["outside"][node.name]
                log_most = log_most + jax.ops.segment_sum(jnp.minimum(_log(most), 0.0), node.reads, root.entries)
        low, _ = bounds(self.problem.model.law_at(root.name, values), root.shape)
        return jnp.where(tables["starts"][root.name] <= jnp.ravel(low), jnp.exp(log_most), 1.0)

    def _below(self, node: TreeNode, given: Values, total: Any, log_first: Any, tables: Any) -> Any:
        """A bound on the probability that a thinned count lies below its window, whose first value has `log_first`.

        Going down, the ratio of neighbouring binomial probabilities falls: a geometric series, if it is below 1.
        """
        start = tables["starts"][node.name]
        log_chance, log_rest = _log_chances(self.problem.model, node, given)
        first, more = jnp.log(jnp.maximum(start, 0) * 1.0), jnp.log(jnp.maximum(total - start + 1.0, 0.0))
        log_ratio = jnp.minimum(first - more + log_rest - log_chance, 0.0)
        ratio = jnp.exp(log_ratio)
        return jnp.where(ratio < 1.0, jnp.exp(log_first) * ratio / jnp.where(ratio < 1.0, 1.0 - ratio, 1.0), 1.0)


def _is_bounded(root: TreeNode, release: Any) -> bool:
    return root.whole or root.name in release or root.entries <= MOST_BOUNDED


def _ways(node: TreeNode) -> tuple[Array, Array]:
    """Of a thinned node: log binomial coefficients, (the parent's values, its own, entries), and sizes, likewise."""
    assert node.parent is not None
    n = (node.parent.start[node.reads] + np.arange(node.parent.size)[:, None])[:, None] * 1.0
    own = (node.start + np.arange(node.size)[:, None])[None]
    inside = (own >= 0) & (own <= n)
    k = np.where(inside, own, 0.0)
    log_ways = np.where(inside, gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0), -np.inf)
    return log_ways, n[:, 0]


def _log_chances(model: Any, node: TreeNode, given: Values) -> tuple[Any, Any]:
    """log of a thinned node's chance and of the rest, one per entry.

    A chance of 0 or 1 counts as next to it, by less than it is rounded.
    """
    law = peel(model.law_at(node.name, given))[0]
    if model.law(node.name).form.kind == "BinomialLogits":
        logits = jnp.clip(jnp.broadcast_to(law.logits, node.shape).ravel(), -690.0, 690.0)
        return -jax.nn.softplus(-logits), -jax.nn.softplus(logits)
    chance = jnp.broadcast_to(law.probs, node.shape).ravel()
    return jnp.log(jnp.maximum(chance, 1e-300)), jnp.log(jnp.maximum(1.0 - chance, 2.0**-60))


def _log_noise(item: Any, node: TreeNode) -> Array:
    """log eta over the node's windows, (size, entries); what is known without noise has but its own value."""
    if node.exact:
        own = np.broadcast_to(np.asarray(item.value, dtype=float), node.shape).ravel()
        return np.where(node.start + np.arange(node.size)[:, None] == own, 0.0, -np.inf)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        return np.asarray(item.mechanism.log_prob(item.value, node.values)).reshape(node.size, -1)


def _at_the_root(nodes: tuple[TreeNode, ...]) -> Iterator[Array]:
    """For each node, the entry of the root above each of its entries."""
    roots: dict[str, Array] = {}
    for node in nodes:
        roots[node.name] = node.reads if node.parent is None else roots[node.parent.name][node.reads]
        yield roots[node.name]


def _ceiling(log_eta: Array, beyond: Array, sup: Array) -> Array:
    """The most that log eta is at a value of the window or at any larger one: (size, entries)."""
    largest = np.maximum.accumulate(log_eta[::-1], axis=0)[::-1]
    return np.minimum(np.maximum(largest, beyond), sup)


def _shares(log_terms: Any) -> tuple[Any, Any]:
    """Terms as shares of the largest of their column, and its log; a share too small for a number counts as nothing."""
    top = jnp.max(log_terms, axis=0)
    top = jax.lax.stop_gradient(jnp.where(jnp.isfinite(top), top, 0.0))
    return jnp.exp(log_terms - top), top


def _log(total: Any) -> Any:
    """The logarithm; -inf for nothing, with a slope that is a number."""
    return jnp.where(total > 0.0, jnp.log(jnp.where(total > 0.0, total, 1.0)), -jnp.inf)


def _gathered(columns: Any, reads: Array, over: int) -> Any:
    """Messages of all entries, (values, entries), added up for each entry of the parent that they read."""
    columns = jnp.broadcast_to(columns, (len(columns), len(reads)))
    if np.array_equal(reads, np.arange(over)):
        return columns
    return jax.ops.segment_sum(columns.T, reads, num_segments=over).T


def _rest(mass: Any, node: TreeNode, tables: Any) -> Any:
    """What the probabilities in the node's window leave to one: known up to their rounding."""
    largest = jnp.max(jnp.abs(tables["starts"][node.name])) + node.size
    return jnp.maximum(1.0 - mass, 2.0**-52 * (8.0 + largest * jnp.log(largest + 2.0)))
