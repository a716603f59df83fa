"""Declared bounds of cells and of sums: every table with its exact probability; what is accepted is connected."""

from itertools import product

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import agrees, counts_agree
from measured_tables import enumerated, log_law_of, margins, model_of, moved, tallied
from scipy.sparse.csgraph import connected_components
from scipy.special import gammaln

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.inference.tables import directions
from noisewise.inference.tables.facts import bounded_fibre
from noisewise.inference.tables.fibres import Fact, Unknown, projected
from noisewise.inference.tables.lattice import fibre_for

MEAN = np.array([[2.0, 1.0], [0.6, 1.5]])
WIDE = np.array([[1.0, 0.6, 0.4], [0.3, 1.2, 0.8]])
ROW, COLUMN = margins((2, 2))
ROW3, COLUMN3 = margins((2, 3))
ALL, EACH = np.ones((1, 4), int), np.eye(4, dtype=int)
NOISE = nw.DiscreteGaussian(scale=1.5)
NOISY = (NOISE, EACH, [3, 0, 2, 1])
EXACT = nw.Exact()

CASES = {
    "cells from below and above": (
        *("Poisson", MEAN),
        {"noisy": NOISY, "bound": (nw.Within([1, 0, 0, 2], [3, 9, 1, 4]), EACH, [True] * 4)},
    ),
    "both margins at most": (
        *("Poisson", MEAN),
        {
            "noisy": NOISY,
            "rows": (nw.Within(high=[4, 2]), ROW, [True, True]),
            "columns": (nw.Within(high=[3, 2]), COLUMN, [True, True]),
        },
    ),
    "overlapping sums at least": (
        *("Poisson", MEAN),
        {"noisy": NOISY, "some": (nw.Within(low=2), [[1, 1, 0, 0], [0, 1, 1, 0]], [True, True])},
    ),
    "disjoint ranges": ("Poisson", MEAN, {"noisy": NOISY, "rows": (nw.Within([3, 1], [4, 2]), ROW, [True, True])}),
    "a range inside a range": (
        *("NegativeBinomial2", MEAN),
        {"row": (nw.Within(1, 3), ROW[:1], [True]), "all": (nw.Within(3, 4), ALL, [True])},
    ),
    "a range within an exact total": (
        *("Poisson", MEAN),
        {"noisy": NOISY, "all": (EXACT, ALL, [6]), "row": (nw.Within(2, 3), ROW[:1], [True])},
    ),
    "a range around an exact total": (
        *("Poisson", MEAN),
        {"noisy": NOISY, "row": (EXACT, ROW[:1], [3]), "all": (nw.Within(high=5), ALL, [True])},
    ),
    "exact margins, a cell at least": (
        *("Poisson", WIDE),
        {
            "rows": (EXACT, ROW3, [4, 5]),
            "columns": (EXACT, COLUMN3, [3, 4, 2]),
            "one": (nw.Within(1, 8), np.eye(6, dtype=int)[:1], [True]),
        },
    ),
    "ranges that leave one table of a row": (
        *("Poisson", MEAN),
        {"noisy": NOISY, "row": (nw.Within(high=0), ROW[:1], [True]), "all": (nw.Within(low=2), ALL, [True])},
    ),
    "a law from two on, total exact": ("from two", MEAN, {"noisy": NOISY, "all": (EXACT, ALL, [13])}),
    "not at most": ("Poisson", MEAN, {"noisy": NOISY, "all": (nw.Within(high=7), ALL, [False])}),
}
OFTEN = ("both margins at most", "a range within an exact total")


def measured(mechanism, matrix, value):
    return mechanism.of("cells", matrix=matrix).released(value)


def prepared(case):
    law, mean, parts = CASES[case]
    release = nw.Release({name: measured(*part) for name, part in parts.items()})
    return model_of(law, mean), release


def right(case, found):
    law, mean, parts = CASES[case]
    matrices = {name: np.asarray(matrix) for name, (_, matrix, _) in parts.items()}
    tables, chance = enumerated(log_law_of(law, mean), prepared(case)[1], matrices, 12 if mean.size == 4 else 5)
    return counts_agree(tallied(found, tables), np.append(chance, 0.0))


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.long] * (case not in OFTEN)) for case in CASES],
    ids=[case.replace(" ", "_") for case in CASES],
)
def test_every_table_comes_as_often_as_it_should(case, seed):
    assert right(case, moved(*prepared(case), seed))


def test_a_bound_that_is_one_off_is_caught(seed):
    case = "both margins at most"
    model, release = prepared(case)
    off = nw.Release({**release, "rows": measured(nw.Within(high=[4, 3]), ROW, [True, True])})
    assert not right(case, moved(model, off, seed))


@pytest.mark.long
def test_pairs_that_are_left_out_are_caught(seed, monkeypatch):
    """Between a range inside and a range around it nothing can come or go alone."""
    parts = {"row": (nw.Within(low=3), ROW[:1], [True]), "all": (nw.Within(high=3), ALL, [True])}
    monkeypatch.setitem(CASES, "tight", ("Poisson", MEAN, parts))
    assert right("tight", moved(*prepared("tight"), seed))
    monkeypatch.setattr(directions, "_pairs", lambda fibre, rng: [])
    monkeypatch.setattr(directions, "_matched", lambda cells, kinds, rng: ())
    assert not right("tight", moved(*prepared("tight"), seed))


# What is accepted is connected ----------------------------------------------------------------------------------------


def allowed(tables, rows, known, least, most):
    """Which tables obey everything."""
    inside = np.all((tables >= least) & (tables <= most), axis=1)
    for cells, by, value in rows:
        inside &= tables[:, cells] @ by == value
    for fact in known:
        sums = tables[:, fact.cells] @ fact.coefficients
        inside &= (fact.low <= sums) & (sums <= fact.high)
    return tables[inside]


def understood(fibre, tables):
    """Which tables a fibre says are possible."""
    counted = tables - fibre.origin
    rows = [
        (np.flatnonzero(fibre.fixed >= 0)[i : i + 1], np.ones(1), v)
        for i, v in enumerate(fibre.fixed[fibre.fixed >= 0])
    ]
    for label, sums in zip((fibre.first, fibre.second), fibre.sums, strict=True):
        rows += [
            (np.flatnonzero(label == block), 1 + 0 * np.flatnonzero(label == block), v) for block, v in enumerate(sums)
        ]
    found = allowed(counted, rows, fibre.facts, np.where(np.isfinite(fibre.least), 0, -np.inf), fibre.room)
    return found + fibre.origin


def parts_of(tables, moves):
    """Into how many parts the moves, one unit at a time, leave the tables divided."""
    place = {table.tobytes(): index for index, table in enumerate(tables)}
    edges = [(i, place.get((t + move).tobytes())) for move in moves for i, t in enumerate(tables)]
    joined = np.array([edge for edge in edges if edge[1] is not None], dtype=int).reshape(-1, 2)
    links = directions.csc_array((np.ones(len(joined)), (joined[:, 0], joined[:, 1])), shape=(len(tables),) * 2)
    return connected_components(links, directed=False)[0]


def moves_of(fibre, rng):
    """The directions that are always there, whatever was measured with noise."""
    found = [*directions._singles(fibre, fibre.free), *directions._pairs(fibre, rng), *directions._swaps(fibre)]
    moves = np.zeros((len(found), fibre.size), dtype=np.int64)
    for row, (cells, gains) in zip(moves, found, strict=True):
        row[list(cells)] = gains
    return moves


def drawn_sums(rng, size):
    """Rows and facts at random about a random table, so that some table obeys them."""
    truth = rng.integers(0, 4, size)
    lines = (*ROW, *COLUMN) if rng.random() < 0.2 else ()  # both margins of a 2 x 2 table
    rows, known = [(np.flatnonzero(line), np.ones(2, dtype=np.int64), int(line @ truth)) for line in lines], []
    for _ in range(rng.integers(1, 5)):
        chosen = rng.permutation(size) if rng.random() < 0.5 else np.arange(size)  # the latter are nested
        cells = np.sort(chosen[: rng.integers(1, size + 1)])
        by = rng.choice([1, 1, 1, 2, -1]) * np.ones(len(cells), dtype=np.int64)
        if rng.random() < 0.1:
            by = rng.choice([-1, 1, 2], len(cells))
        value = int(truth[cells] @ by)
        if rng.random() < 0.3:
            rows.append((cells, by, value))
            continue
        low, high = value - rng.integers(0, 2), value + rng.integers(0, 2)
        side = rng.integers(3)
        known.append(Fact(cells, by, -np.inf if side == 1 else float(low), np.inf if side == 2 else float(high)))
    least = np.minimum(rng.integers(0, 2, size), truth)
    return rows, known, least, np.maximum(truth, rng.integers(1, 4, size))


SIZE, TRIES = 4, 400
TABLES = np.array(list(product(range(4), repeat=SIZE)))


def test_whatever_is_accepted_is_connected_by_enumeration(seed):
    """Random exact sums and random bounds: the fibre is the same set of tables, and its moves join all of it."""
    rng = np.random.default_rng(seed)
    accepted = apart = impossible = 0
    for _ in range(TRIES):
        rows, known, least, most = drawn_sums(rng, SIZE)
        try:
            fibre = bounded_fibre(rows, known, least.astype(float), most.astype(float))
        except Unknown as reason:
            impossible += "obeys" in str(reason)
            continue
        tables = allowed(TABLES, rows, known, least, most)
        assert np.array_equal(understood(fibre, TABLES), tables)
        moves = moves_of(fibre, rng)
        assert parts_of(tables, moves) == 1
        start = projected(fibre, rng.integers(0, 9, SIZE), most.astype(float), rng)
        assert np.any(np.all(tables == start, axis=1))
        accepted += 1
        single = moves[np.count_nonzero(moves, axis=1) == 1]
        apart += parts_of(tables, single) > 1
    assert not impossible
    assert accepted > 100
    assert apart > 20  # negative control: without pairs and swaps many fall apart


def test_a_range_inside_a_range_needs_pairs():
    """At least three in two cells, at most three in all: nothing comes or goes alone."""
    ones = np.ones(SIZE, dtype=np.int64)
    known = [Fact(np.arange(2), ones[:2], 3.0, np.inf), Fact(np.arange(SIZE), ones, -np.inf, 3.0)]
    fibre = bounded_fibre([], known, np.zeros(SIZE), np.full(SIZE, np.inf))
    moves, tables = moves_of(fibre, np.random.default_rng(0)), understood(fibre, TABLES)
    assert parts_of(tables, moves) == 1
    assert parts_of(tables, moves[np.count_nonzero(moves, axis=1) == 1]) == len(tables) == 4


def test_overlapping_ranges_are_refused_and_for_a_reason():
    """Rows and columns of a 3 x 3 table, none of its diagonal, between exact ends: two tables and no pair between."""
    table = np.arange(9).reshape(3, 3)
    known = [Fact(line, np.ones(3, dtype=np.int64), 1.0, 1.5) for line in (*table, *table.T)]
    known += [Fact(table[i, i : i + 1], np.ones(1, dtype=np.int64), -np.inf, 0.0) for i in range(3)]
    with pytest.raises(Unknown, match="structural zeros"):
        bounded_fibre([], known, np.zeros(9), np.full(9, np.inf))
    wide = [Fact(line, np.ones(3, dtype=np.int64), 1.0, 2.0) for line in (*table, *table.T)]
    with pytest.raises(Unknown, match="bounds of sums that overlap"):
        bounded_fibre([], wide, np.zeros(9), np.full(9, np.inf))


def test_what_no_table_obeys_is_refused():
    model = model_of("Binomial", MEAN)
    for parts in (
        {"low": (nw.Within(low=21), ALL, [True])},
        {"low": (nw.Within(low=5), ROW, [True, True]), "all": (EXACT, ALL, [9])},
        {"low": (nw.Within(low=6), EACH[:1], [True])},
        {"low": (nw.Within(high=2), ALL, [True]), "one": (nw.Within(high=2), EACH[:1], [False])},
        {"low": (nw.Within(0.2, 0.8), ALL, [True])},
    ):
        with pytest.raises(nw.InputError, match=r"'low'\]' must not contradict the law of 'cells'"):
            Problem(model, nw.Release({name: measured(*part) for name, part in parts.items()}))
    assert "obeys" in nw.Augmentation().unfit(Problem(model, nw.Release(all=measured(EXACT, ALL, [21]))))


def test_the_outside_of_a_range_is_refused():
    problem = Problem(model_of("Poisson", MEAN), nw.Release(all=measured(nw.Within(3, 5), ALL, [False])))
    assert "from one side" in nw.Augmentation().unfit(problem)


def test_the_outside_of_a_range_is_refused_by_what_walks():
    model = nw.Model({"mean": dist.Normal(0.0, 3.0)}, {"x": lambda mean: dist.Normal(mean, 1.0)})
    for mechanism, reason in ((nw.Within(-1.0, 1.0), "from one side"), (nw.Within(low=1.0), None)):
        problem = Problem(model, nw.Release(x=mechanism.released(False)))
        assert nw.Rejection().unfit(problem) is None
        for sampler in (nw.Augmentation(), nw.NUTS()):
            found = sampler.unfit(problem)
            assert found is None if reason is None else reason in found


def test_bounds_that_never_bind_cost_nothing():
    """A bound of every sum that the law keeps anyway leaves no trace."""
    release = nw.Release(all=measured(nw.Within(0, 20), ALL, [True]), noisy=measured(*NOISY))
    fibre = fibre_for(Problem(model_of("Binomial", MEAN), release), "cells")
    assert not fibre.facts
    assert not fibre.bound


def test_many_cells_with_disjoint_ranges_move_alone_and_nested_ones_are_refused():
    size = 400
    halves = np.array_split(np.arange(size), 2)
    known = [Fact(part, np.ones(len(part), dtype=np.int64), 5.0, 90.0) for part in halves]
    fibre = bounded_fibre([], known, np.zeros(size), np.full(size, np.inf))
    assert np.all(fibre.partners() < 0)
    whole = Fact(np.arange(size), np.ones(size, dtype=np.int64), 20.0, 95.0)
    with pytest.raises(Unknown, match="too many to try all"):
        bounded_fibre([], [*known, whole], np.zeros(size), np.full(size, np.inf))


# With parameters, and by other ways -----------------------------------------------------------------------------------

WEIGHTS = np.array([1.0, 0.5, 0.7, 0.3])
PARTS = {
    "detailed": (nw.DiscreteGaussian(scale=2.0), EACH, [5, 1, 4, 2]),
    "householders": (nw.Within(low=3), ROW[:1], [True]),
    "most": (nw.Within(high=10), ALL, [True]),
}


def with_rate():
    model = nw.Model(
        {"rate": dist.Gamma(4.0, 1.0)}, {"cells": lambda rate: dist.Poisson(rate * jnp.asarray(WEIGHTS)).to_event(1)}
    )
    return model, nw.Release({name: measured(*part) for name, part in PARTS.items()})


def means_with_rate(release):
    """Posterior means; the fact is evidence, so that tables it forbids count against rates that make them likely."""

    def log_law(tables):
        total = tables.sum(axis=1)
        logs = tables @ np.log(WEIGHTS) - gammaln(tables + 1.0).sum(axis=1)
        return logs + gammaln(4.0 + total) - (4.0 + total) * np.log(1.0 + WEIGHTS.sum())

    matrices = {name: np.asarray(matrix) for name, (_, matrix, _) in PARTS.items()}
    tables, chance = enumerated(log_law, release, matrices, 11)
    return chance @ tables, chance @ ((4.0 + tables.sum(axis=1)) / (1.0 + WEIGHTS.sum()))


SAMPLERS = {
    "chains": nw.Augmentation(chains=128, warmup=40),
    "rejection": nw.Rejection(),
    "SMC": nw.SMC(),
    "importance": nw.Importance(),
}


@pytest.mark.long
@pytest.mark.parametrize("which", SAMPLERS)
def test_parameters_and_cells_under_bounds_against_enumeration(which, seed):
    model, release = with_rate()
    posterior = nw.sample(model, release, SAMPLERS[which], draws=6400, seed=seed)
    cells, rate = means_with_rate(release)
    found = np.column_stack([posterior["cells"], posterior["rate"]])
    if which in ("SMC", "importance"):
        summary = posterior.summary().loc[[*(f"cells[{i}]" for i in range(4)), "rate"]]
        z = (summary["mean"] - [*cells, rate]) / (summary["sd"] / np.sqrt(summary["ess"]))
        assert np.all(np.abs(z) < 5.5)
    else:
        chains = 128 if which == "chains" else 6400
        assert agrees(found.reshape(chains, -1, 5).mean(axis=1), [*cells, rate])
    kept = slice(None) if posterior.weights is None else posterior.weights > 0.0
    assert np.all(posterior["cells"][kept, :2].sum(axis=1) >= 3)
    assert np.all(posterior["most"][kept] <= 10)
