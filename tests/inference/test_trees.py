"""Statistics that depend on each other entry by entry: sums, bounds and draws of a tree against enumeration."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, counts_agree, z_scores
from scipy import stats
from scipy.special import expit, logsumexp
from targets import brief_rows

import noisewise as nw
from noisewise.inference.conditional import tree_nodes
from noisewise.inference.conditional.sums import Sum
from noisewise.inference.conditional.target import Target
from noisewise.inference.conditional.trees import Tree
from noisewise.inference.conditional.windows import Window
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Exact
from noisewise.numerics import double

DRAWS = 1_000
SITE = np.array([0, 0, 1, 2, 4, 4, 3])
X = np.linspace(-1.0, 1.0, 5)
TOTALS = np.array([3, 9, 40, 12])
SENS, RATES = np.array([0.1, 0.85]), np.array([2.0, 9.0])
CHANNEL = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.05, 0.15, 0.8]])
LAPLACE = nw.DiscreteLaplace(scale=2.0)
WITHHOLDING = nw.mechanisms.Thresholded(LAPLACE, 3)


@dataclass
class Case:
    """A model with its release, and the same in SciPy: by name (parent, entries read, pmf(value, parent's, entry))."""

    priors: dict[str, Any]
    laws: dict[str, Any]
    release: dict[str, Any]
    nodes: dict[str, tuple[Any, Any, Any]]
    rows: list[dict[str, Any]]
    top: int = 150

    @property
    def problem(self):
        return Problem(nw.Model(self.priors, self.laws), nw.Release(self.release))


def poisson(row, k, _, e):
    return stats.poisson.pmf(k, row["lam"])


def of_p(row, k, n, e):
    return stats.binom.pmf(k, n, row["p"])


AB = {"lam": dist.Gamma(3.0, 0.5), "p": dist.Beta(2.0, 2.0)}
ROWS = [{"lam": 7.0, "p": 0.4}, {"lam": 3.5, "p": 1.0}]
TWICE = np.repeat(np.arange(5), 2)


def released(mechanism, values):
    return mechanism.released(np.asarray(values))


def counts(values, entries=5):
    """Two thinned counts at each of five sites."""
    return Case(
        AB,
        {
            "N": lambda lam: dist.Poisson(lam).expand([entries]),
            "y": lambda N, p: dist.Binomial(jnp.broadcast_to(N[:, None], (entries, 2)), p),
        },
        {"y": released(LAPLACE, values)},
        {"N": (None, np.arange(entries), poisson), "y": ("N", np.repeat(np.arange(entries), 2), of_p)},
        ROWS,
    )


NEAR = np.array([[3, 4], [2, 0], [-1, 1], [6, 3], [4, 9]])
CASES = {
    "counts": lambda: counts(NEAR),
    "chances that differ": lambda: Case(
        AB | {"a": dist.Normal(0.0, 1.0)},
        {
            "N": lambda lam: dist.Poisson(lam).expand([5]),
            "y": lambda N, a: dist.Binomial(N, logits=a + jnp.asarray(X)),
            "w": lambda N, p: dist.Binomial(N, p),
        },
        {"y": released(LAPLACE, [3, 4, 2, 0, 6]), "w": released(WITHHOLDING, [np.nan, 9, np.nan, np.nan, 7])},
        {
            "N": (None, np.arange(5), poisson),
            "y": ("N", np.arange(5), lambda row, k, n, e: stats.binom.pmf(k, n, expit(row["a"] + X[e]))),
            "w": ("N", np.arange(5), of_p),
        },
        [{"lam": 8.0, "p": 0.6, "a": -0.3}, {"lam": 3.0, "p": 0.2, "a": 1.5}],
    ),
    "visits to sites": lambda: Case(
        AB,
        {"N": lambda lam: dist.Poisson(lam).expand([5]), "y": lambda N, p: dist.Binomial(N[SITE], p)},
        {"y": released(LAPLACE, [3, 4, 2, 0, 6, 7, 1])},
        {"N": (None, np.arange(5), poisson), "y": ("N", SITE, of_p)},
        ROWS,
    ),
    "status": lambda: Case(
        AB,
        {
            "z": lambda p: dist.Bernoulli(p).expand([10]),
            "y": lambda z: dist.Bernoulli(jnp.asarray(SENS)[z]),
            "w": lambda z, lam: dist.Poisson(lam * jnp.asarray(RATES)[z]),
        },
        {
            "y": released(nw.RandomizedResponse(keep=0.8), np.arange(10) % 3 == 0),
            "w": released(LAPLACE, np.arange(10) * 6),
        },
        {
            "z": (None, np.arange(10), lambda row, k, _, e: stats.bernoulli.pmf(k, row["p"])),
            "y": ("z", np.arange(10), lambda row, k, n, e: stats.bernoulli.pmf(k, SENS[np.minimum(n, 1)])),
            "w": ("z", np.arange(10), lambda row, k, n, e: stats.poisson.pmf(k, row["lam"] * RATES[np.minimum(n, 1)])),
        },
        [{"lam": 2.0, "p": 0.3}, {"lam": 4.0, "p": 0.6}],
    ),
    "categories": lambda: Case(
        {"p": dist.Dirichlet(jnp.ones(3))},
        {
            "z": lambda p: dist.Categorical(p).expand([12]),
            "y": lambda z: dist.Categorical(jnp.asarray(CHANNEL)[z]),
        },
        {"y": released(nw.RandomizedResponse(keep=0.7, categories=3), np.arange(12) % 3)},
        {
            "z": (None, np.arange(12), lambda row, k, _, e: np.append(row["p"], np.zeros(200))[k]),
            "y": ("z", np.arange(12), lambda row, k, n, e: np.pad(CHANNEL, (0, 200))[n, k]),
        },
        [{"p": np.array([0.2, 0.5, 0.3])}, {"p": np.array([0.6, 0.1, 0.3])}],
    ),
    "three levels": lambda: Case(
        AB | {"q": dist.Beta(2.0, 2.0)},
        {
            "N": lambda lam: dist.Poisson(lam).expand([4]),
            "h": lambda N, p: dist.Binomial(N, p),
            "y": lambda h, q: dist.Binomial(jnp.broadcast_to(h[:, None], (4, 2)), q),
        },
        {"N": released(LAPLACE, [9, 4, 8, 6]), "y": released(LAPLACE, [[3, 4], [2, 0], [-1, 1], [6, 3]])},
        {
            "N": (None, np.arange(4), poisson),
            "h": ("N", np.arange(4), of_p),
            "y": ("h", TWICE[:8], lambda row, k, n, e: stats.binom.pmf(k, n, row["q"])),
        },
        [{"lam": 7.0, "p": 0.7, "q": 0.5}, {"lam": 12.0, "p": 0.4, "q": 0.8}],
    ),
    "a child without noise": lambda: Case(
        AB,
        {
            "N": lambda lam: dist.Poisson(lam).expand([5]),
            "y": lambda N, p: dist.Binomial(jnp.broadcast_to(N[:, None], (5, 2)), p),
            "w": lambda N: dist.Poisson(0.5 * N + 0.1),
        },
        {"y": released(Exact(), np.maximum(NEAR, 0)), "w": released(LAPLACE, [1, 4, 2, 5, 3])},
        {
            "N": (None, np.arange(5), poisson),
            "y": ("N", TWICE, of_p),
            "w": ("N", np.arange(5), lambda row, k, n, e: stats.poisson.pmf(k, 0.5 * n + 0.1)),
        },
        [{"lam": 7.0, "p": 0.4}, {"lam": 3.5, "p": 0.9}],
    ),
    "a law that is no number beyond the support": lambda: Case(
        AB,
        {
            "N": lambda p: dist.Binomial(TOTALS, p),
            "y": lambda N, lam: dist.Poisson(lam * jnp.sqrt(TOTALS - N) + 0.1),
        },
        {"N": released(LAPLACE, [2, 6, 20, 8]), "y": released(LAPLACE, [1, 4, 20, 7])},
        {
            "N": (None, np.arange(4), lambda row, k, _, e: stats.binom.pmf(k, TOTALS[e], row["p"])),
            "y": (
                "N",
                np.arange(4),
                lambda row, k, n, e: stats.poisson.pmf(k, row["lam"] * np.sqrt(np.maximum(TOTALS[e] - n, 0)) + 0.1),
            ),
        },
        [{"lam": 2.0, "p": 0.4}, {"lam": 5.0, "p": 0.7}],
    ),
    "one number": lambda: Case(
        AB,
        {"N": lambda lam: dist.Poisson(lam), "y": lambda N, p: dist.Binomial(N, p).expand([6])},
        {"y": released(LAPLACE, [3, 4, 2, 0, 6, 3])},
        {"N": (None, np.zeros(1, int), poisson), "y": ("N", np.zeros(6, int), of_p)},
        ROWS,
    ),
}


def noise_of(case, name, entry):
    """eta at 0, ..., top for one entry."""
    values = np.arange(case.top + 1)
    if name not in case.release:
        return np.ones(case.top + 1)
    item = case.release[name]
    if isinstance(item.mechanism, Exact):
        return (values == np.ravel(item.value)[entry]) * 1.0
    if isinstance(item.mechanism, nw.RandomizedResponse):
        channel = np.pad(np.asarray(item.mechanism.channel), ((0, case.top), (0, 0)))
        return channel[values, int(np.ravel(item.value)[entry])]
    return np.exp(item.mechanism.log_prob(np.ravel(item.value)[entry], values))


def enumerated(case, row):
    """log of the sum over all values, and by name and entry the joint law of parent and own value given the release."""
    values = np.arange(case.top + 1)
    weights = {n: [noise_of(case, n, e) for e in range(len(reads))] for n, (_, reads, _) in case.nodes.items()}
    laws, ups = {}, {}
    for name, (parent, reads, pmf) in reversed(case.nodes.items()):
        for entry, read in enumerate(reads):
            given = values[:1] if parent is None else values
            laws[name, entry] = np.nan_to_num(pmf(row, values[None], given[:, None], entry)) + np.zeros((len(given), 1))
            ups[name, entry] = laws[name, entry] @ weights[name][entry]
            if parent is not None:
                weights[parent][read] = weights[parent][read] * ups[name, entry]
    own, joint = {}, {}
    for name, (parent, reads, _) in case.nodes.items():
        for entry, read in enumerate(reads):
            above = np.ones(1) if parent is None else own[parent, read]
            below = np.where(ups[name, entry] > 0, ups[name, entry], 1.0)
            joint[name, entry] = (above / below)[:, None] * laws[name, entry] * weights[name][entry]
            own[name, entry] = joint[name, entry].sum(axis=0)
    root = next(iter(case.nodes))
    return sum(np.log(ups[root, entry][0]) for entry in range(len(case.nodes[root][1]))), joint


@cache
def program(tree):
    """Compiled for one row and many uniform numbers; with the tables."""
    with double():
        one = jax.vmap(lambda tables, row, u: tree.conditional(row, {}, tables, u), (None, None, 0))
        return jax.jit(one), tree.tables()


def run(tree, row, uniform):
    """Draws, and log bound and void share, which are the same for all."""
    compiled, tables = program(tree)
    with double():
        drawn, bound, void = compiled(tables, {k: np.asarray(v) for k, v in row.items()}, uniform)
    return {name: np.asarray(own) for name, own in drawn.items()}, float(bound[0]), float(void[0])


def tree_of(problem):
    (tree,) = Target(problem, {}, integrate=True).trees
    return tree


@pytest.mark.parametrize("name", CASES)
def test_sums_and_draws_are_those_of_enumeration(name, seed):
    case, tree = near() if name == "counts" else (case := CASES[name](), tree_of(case.problem))
    rng = np.random.default_rng(seed)
    for row in case.rows:
        log_sum, joint = enumerated(case, row)
        drawn, bound, void = run(tree, row, rng.random((DRAWS, tree.entries)))
        assert bound == pytest.approx(log_sum, rel=1e-11, abs=1e-11)
        assert void < 1e-12
        assert set(drawn) == {*case.nodes} - {*tree.children}
        for node, own in drawn.items():
            parent, reads, _ = case.nodes[node]
            own = own.reshape(DRAWS, -1)
            for entry in {0, len(reads) - 1}:
                above = 0 if parent is None else drawn[parent].reshape(DRAWS, -1)[:, reads[entry]]
                chances = joint[node, entry].ravel()
                place = np.ravel_multi_index((above + np.zeros(DRAWS, int), own[:, entry]), joint[node, entry].shape)
                assert counts_agree(np.bincount(place, minlength=len(chances)), chances / chances.sum())


def both_ways(problem, names):
    """The tree with one window for all entries, and with windows of their own."""
    return [Tree(problem, names, tree_nodes.as_nodes(problem, names, [], 0, together)) for together in (True, False)]


def test_windows_of_their_own_and_one_for_all_give_the_same_sum():
    case = counts(NEAR)
    case.rows = [{"lam": 30.0, "p": 0.2}]
    case.release["N"] = released(nw.DiscreteLaplace(scale=0.3), [20, 35, 40, 21, 30])
    together, apart = both_ways(case.problem, ("N", "y"))
    assert together.nodes[1].has_table
    assert not apart.nodes[1].has_table
    assert together.signature != apart.signature
    (row,) = case.rows
    log_sum, _ = enumerated(case, row)
    for tree in (together, apart):
        _, bound, void = run(tree, row, np.full((1, tree.entries), 0.5))
        assert bound == pytest.approx(log_sum, rel=1e-11)
        assert void < 1e-9


@cache
def compiled_slopes(sum_):
    """The sum and its slopes as one program of a row."""
    with double():
        tables = sum_.tables()
        return jax.jit(jax.value_and_grad(lambda row: sum_.log_bound(row, {}, tables)))


def slopes(sum_, row):
    with double():
        value, slope = compiled_slopes(sum_)({k: jnp.asarray(v) for k, v in row.items()})
    return float(value), {k: float(v) for k, v in slope.items()}


@cache
def near():
    """Of the counts that most tests look at, with its tree."""
    case = counts(NEAR)
    return case, tree_of(case.problem)


@cache
def one_site():
    model = nw.Model(AB, {"N": lambda lam: dist.Poisson(lam).expand([1]), "y": lambda N, p: dist.Binomial(N, p)})
    problem = Problem(model, nw.Release(y=released(LAPLACE, [4])))
    (joint,) = Target(problem, {}, integrate=True).sums
    return problem, joint


@pytest.mark.parametrize("together", [True, False])
def test_by_a_tree_or_jointly_it_is_the_same(together):
    """One site, one count: few enough pairs of values for a sum over all of them. Values and slopes."""
    problem, joint = one_site()
    assert isinstance(joint, Sum)
    tree = both_ways(problem, joint.names)[1 - together]
    for row in ({"lam": 5.0, "p": 0.3}, {"lam": 9.0, "p": 0.99}):
        value, slope = slopes(tree, row)
        truth, expected = slopes(joint, row)
        assert value == pytest.approx(truth, rel=1e-11)
        assert slope == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("chance", [0.0, 1.0, 1e-12])
def test_slopes_are_numbers_at_the_ends(chance):
    (case, tree), row = near(), {"lam": 1e-3, "p": chance}
    value, slope = slopes(tree, row)
    assert value == pytest.approx(enumerated(case, row)[0], rel=1e-11)
    assert np.all(np.isfinite([value, *slope.values()]))


def cut(monkeypatch, windows):
    """Windows as they are given here, each with the true supremum of the noise beyond it, as far as noise reaches."""

    def narrow(problem, name, widened):
        start, size = windows[name]
        shape, item = problem.model.shape(name), problem.release.get(name)
        outside = np.zeros(shape)
        if item is not None:
            values = np.arange(2_000).reshape(-1, *(1,) * len(shape))
            log_ratio = item.mechanism.log_prob(item.value, values) - item.mechanism.log_sup(item.value)
            beyond = (values < start) | (values >= start + size)
            outside = np.max(np.where(beyond, log_ratio, -np.inf), axis=0) + np.zeros(shape)
        return Window(np.full(shape, start), size, outside)

    monkeypatch.setattr(tree_nodes, "window_of", narrow)


def without_noise():
    case = counts(NEAR)
    case.release = {"y": released(Exact(), np.full((5, 2), 3))}
    return case


FAR = counts(np.full((5, 2), 60))
NARROW = {
    "a root cut above": (counts(NEAR), {"lam": 12.0, "p": 0.3}, {"N": (0, 16), "y": (0, 40)}),
    "a root cut below": (counts(NEAR), {"lam": 7.0, "p": 0.4}, {"N": (8, 48), "y": (0, 64)}),
    "a child cut above": (counts(NEAR), {"lam": 9.0, "p": 0.7}, {"N": (0, 80), "y": (0, 5)}),
    "a child cut below": (counts(NEAR), {"lam": 9.0, "p": 0.3}, {"N": (0, 80), "y": (3, 60)}),
    "both cut": (counts(NEAR), {"lam": 9.0, "p": 0.7}, {"N": (0, 16), "y": (2, 4)}),
    "more to come above what the root's window allows": (FAR, {"lam": 60.0, "p": 0.9}, {"N": (0, 32), "y": (30, 90)}),
    "a known child that is likelier of more": (without_noise(), {"lam": 40.0, "p": 0.1}, {"N": (0, 16)}),
    "a known child, and a law far above": (without_noise(), {"lam": 90.0, "p": 0.4}, {"N": (0, 48)}),
    "a child's window begins high": (FAR, {"lam": 90.0, "p": 0.6}, {"N": (0, 80), "y": (50, 20)}),
}


APART = ["both cut", "a known child that is likelier of more"]
CUT = {f"{n}-{together}": (n, together) for together in (True, False) for n in (NARROW if together else APART)}
ALIKE = ["a root cut below-True", "a child cut above-True", "both cut-True", "a known child, and a law far above-True"]
"""What these cut is cut in others, too."""


@pytest.mark.parametrize(("name", "together"), brief_rows(CUT, [one for one in CUT if one not in ALIKE]))
def test_what_narrow_windows_leave_out_is_bounded_and_said(name, together, monkeypatch):
    case, row, windows = NARROW[name]
    case.top = 400
    cut(monkeypatch, windows)
    monkeypatch.setattr(tree_nodes, "ROUNDED", 1)  # windows stay as they were cut
    problem = case.problem
    known = [n for n, item in case.release.items() if isinstance(item.mechanism, Exact)]
    names = tuple(n for n in case.nodes if n not in known)
    tree = Tree(problem, names, tree_nodes.as_nodes(problem, names, known, 0, together))
    log_sum, _ = enumerated(case, row)
    _, bound, void = run(tree, row, np.full((1, tree.entries), 0.5))
    assert bound >= log_sum - 1e-9
    assert void >= -np.expm1(log_sum - bound) - 1e-9
    assert void > 1e-9  # or nothing was cut that counts


def test_the_tail_of_a_root_is_bounded_with_all_its_digits():
    """What lies beyond the windows is far less than the rounding of what lies within."""
    _, _, void = run(near()[1], ROWS[0], np.full((DRAWS, 15), 0.5))
    assert 0.0 < void < 1e-30


SMALL = {
    "in a table": (jnp.array([1000.0, 2000.0]), lambda z, rates: rates[z], True),
    "entry by entry": (jnp.array([1000.0, 2000.0]), lambda z, rates: rates[z] * np.linspace(1.0, 2.0, 20), False),
}


@pytest.mark.parametrize("name", SMALL)
def test_products_too_small_for_a_number_are_kept_or_said(name):
    """None was counted, where a thousand were to be expected."""
    rates, law, is_said = SMALL[name]
    model = nw.Model(
        AB, {"z": lambda p: dist.Bernoulli(p).expand([20]), "y": lambda z, lam: dist.Poisson(lam * law(z, rates))}
    )
    tree = tree_of(Problem(model, nw.Release(y=released(Exact(), np.zeros(20, int)))))
    row = {"lam": 1.0, "p": 0.5}
    at_each = np.array([np.asarray(law(np.full(20, k), rates)) + np.zeros(20) for k in (0, 1)])
    truth = np.sum(logsumexp(np.log(0.5) - at_each, axis=0))
    _, bound, void = run(tree, row, np.full((1, 20), 0.5))
    assert bound >= truth - 1e-6
    if is_said:
        assert void >= 1.0
    else:
        assert (bound, void) == (pytest.approx(truth, rel=1e-12), 0.0)


def test_infinite_logits_are_certainty():
    case = counts(NEAR)
    case.laws["y"] = lambda N, p: dist.Binomial(jnp.broadcast_to(N[:, None], (5, 2)), logits=jnp.log(p / (1.0 - p)))
    assert run(tree_of(case.problem), ROWS[1], np.full((1, 15), 0.5))[1] == pytest.approx(
        enumerated(case, ROWS[1])[0], rel=1e-12
    )


LATENT = nw.mechanisms.LatentScale(nw.Laplace(scale=1.0), "N", 0.1)
NO_TREES = {
    "sums": ({"y": lambda N, p: dist.Binomial(jnp.sum(N) + 0 * N, p)}, LAPLACE),
    "sums so far": ({"y": lambda N, p: dist.Binomial(jnp.cumsum(N), p)}, LAPLACE),
    "a neighbour, too": ({"y": lambda N, p: dist.Binomial(N + N[::-1], p)}, LAPLACE),
    "two parents": (
        {"M": lambda p: dist.Binomial(7, p).expand([5]), "y": lambda N, M, p: dist.Binomial(N + M, p)},
        LAPLACE,
    ),
    "noise that reads a statistic": ({"y": lambda N, p: dist.Binomial(N, p)}, LATENT),
    "a child of parts of which": ({"y": lambda N, p: dist.Multinomial(N, jnp.stack([p, 1.0 - p]))}, LAPLACE),
}


@pytest.mark.parametrize("name", NO_TREES)
def test_what_is_no_tree_is_told(name):
    laws, mechanism = NO_TREES[name]
    value = np.zeros((5, 2) if "parts" in name else 5)
    model = nw.Model(AB, {"N": lambda lam: dist.Poisson(lam).expand([5]), **laws})
    problem = Problem(model, nw.Release(y=mechanism.released(value)))
    assert Tree.of(problem, ("N", *laws), 0) is None


@cache
def by_grid():
    """Means and variances of both parameters of six sites with two counts each, and the log evidence."""
    values = np.array([[3, 4], [2, 0], [-1, 1], [6, 3], [4, 9], [5, 2]])
    lam, p, n = np.linspace(0.05, 60.0, 300), np.linspace(0.005, 0.995, 100), np.arange(121)
    noise = np.exp([[LAPLACE.log_prob(v, n) for v in pair] for pair in values])
    log = np.zeros((len(lam), len(p)))
    rates = stats.poisson.pmf(n, lam[:, None])
    for at, chance in enumerate(p):
        ups = noise @ stats.binom.pmf(n[:, None], n, chance)
        log[:, at] = np.log(rates @ ups.prod(axis=1).T).sum(axis=1) + stats.beta.logpdf(chance, 2.0, 2.0)
    log += stats.gamma.logpdf(lam, 3.0, scale=2.0)[:, None]
    mass = np.exp(log - log.max())
    mass, log_mass = mass / mass.sum(), np.log(mass.sum()) + log.max()
    truth = {}
    for name, grid, axis in (("lam", lam, 1), ("p", p, 0)):
        own = mass.sum(axis=axis)
        truth[name] = own @ grid, own @ (grid - own @ grid) ** 2
    return values, truth, log_mass + np.log((lam[1] - lam[0]) * (p[1] - p[0]))


def test_the_posterior_by_default_is_that_of_a_grid(seed):
    values, truth, log_evidence = by_grid()
    case = counts(values, entries=6)
    posterior = nw.sample(nw.Model(case.priors, case.laws), nw.Release(case.release), draws=2_000, seed=seed)
    assert posterior.status == "complete"
    assert isinstance(posterior.sampler, nw.Importance)
    assert posterior.diagnostics["neglected"] < 1e-10
    for name, (mean, variance) in truth.items():
        assert np.all(np.abs(z_scores(posterior, name, mean, variance)) < LIMIT)
    assert abs(posterior.log_evidence - log_evidence) < LIMIT * posterior.log_evidence_se
    assert np.all(posterior["y"] <= posterior["N"][:, :, None])
