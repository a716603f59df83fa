"""Sensitivities: closed forms against the definition, over small domains whose corners attain the supremum."""

from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from targets import briefly

import noisewise as nw
from noisewise import sensitivity

NORMS = ["l1", "l2", "linf"]
RELATIONS = ["add-remove", "replace-one"]
every_norm = pytest.mark.parametrize("norm", NORMS)
every_relation = pytest.mark.parametrize("neighbours", RELATIONS)


def cells(levels):
    """Histogram of records that are whole numbers below `levels`."""
    return lambda data: np.bincount(data.astype(int), minlength=levels)


@every_relation
def test_count(neighbours):
    found = sensitivity.by_enumeration(lambda data: (data > 1).sum(), [0, 1, 2], 3, neighbours=neighbours)
    assert sensitivity.count(neighbours=neighbours) == found == 1.0


@every_norm
@every_relation
def test_histogram(norm, neighbours):
    found = sensitivity.by_enumeration(cells(3), [0, 1, 2], 3, neighbours=neighbours, norm=norm)
    assert sensitivity.histogram(norm=norm, neighbours=neighbours) == pytest.approx(found)


@every_norm
@every_relation
def test_contingency_tables(norm, neighbours):
    """A 2 by 3 table, and its two margins together."""
    domain = list(product(range(2), range(3)))

    def full(data):
        return np.histogramdd(data, bins=[[0, 1, 2], [0, 1, 2, 3]])[0]

    def margins(data):
        return np.concatenate([full(data).sum(axis=0), full(data).sum(axis=1)])

    for query, tables in ((full, 1), (margins, 2)):
        found = sensitivity.by_enumeration(query, domain, 2, neighbours=neighbours, norm=norm, least=1)
        assert sensitivity.contingency_tables(tables, norm=norm, neighbours=neighbours) == pytest.approx(found)


BOXES = [(0.0, 3.0), (-1.0, 2.0), (-4.0, 1.5), (2.0, 5.0), (-3.0, -1.0)]


@every_relation
@pytest.mark.parametrize(("low", "high"), BOXES)
def test_sum_and_mean_of_one_variable(low, high, neighbours):
    domain = np.linspace(low, high, 4)
    found = sensitivity.by_enumeration(np.sum, domain, 3, neighbours=neighbours)
    assert sensitivity.clamped_sum(low, high, neighbours=neighbours) == pytest.approx(found)
    for size in (1, 2, 4):
        if neighbours == "replace-one":
            stated, found = dict(n=size), sensitivity.by_enumeration(np.mean, domain, size, neighbours=neighbours)
        else:
            stated = dict(least=size)
            found = sensitivity.by_enumeration(np.mean, domain, 5, neighbours=neighbours, least=size)
        assert sensitivity.clamped_mean(low, high, neighbours=neighbours, **stated) == pytest.approx(found)


@every_norm
@every_relation
def test_sums_and_means_of_vectors(norm, neighbours):
    low, high = np.array([-1.0, 0.5]), np.array([2.0, 1.0])
    domain = list(product(*np.linspace(low, high, 3).T))
    found = sensitivity.by_enumeration(
        lambda data: data.sum(axis=0), domain, 2, neighbours=neighbours, norm=norm, least=1
    )
    assert sensitivity.clamped_sum(low, high, neighbours=neighbours, norm=norm) == pytest.approx(found)
    stated = dict(n=3) if neighbours == "replace-one" else dict(least=2)
    found = sensitivity.by_enumeration(
        lambda data: data.mean(axis=0), domain, 3, neighbours=neighbours, norm=norm, least=2
    )
    assert sensitivity.clamped_mean(low, high, neighbours=neighbours, norm=norm, **stated) == pytest.approx(found)


@every_relation
@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_variance(ddof, size, neighbours):
    """The domain holds the middle as well, where a variance is largest or a record moves it least."""
    low, high = -1.0, 2.0
    domain = np.linspace(low, high, 5)

    def query(data):
        return np.var(data, ddof=ddof)

    if neighbours == "replace-one":
        stated, found = dict(n=size), sensitivity.by_enumeration(query, domain, size, neighbours=neighbours)
    else:
        stated = dict(least=size)
        found = sensitivity.by_enumeration(query, domain, size + 2, neighbours=neighbours, least=size)
    assert sensitivity.variance(low, high, neighbours=neighbours, ddof=ddof, **stated) == pytest.approx(found)


def test_variance_with_one_record_left():
    found = sensitivity.by_enumeration(np.var, np.linspace(0, 1, 5), 5, neighbours="add-remove", least=1)
    assert sensitivity.variance(0.0, 1.0, neighbours="add-remove", least=1, ddof=0) == pytest.approx(found) == 0.25


PICK = {
    "triangle": lambda matrix: matrix[np.triu_indices(len(matrix))],
    "full": lambda matrix: matrix,
    "pairs": lambda matrix: matrix[np.triu_indices(len(matrix), 1)],
}


@every_norm
@every_relation
@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("entries", PICK)
def test_covariance(entries, ddof, norm, neighbours):
    low, high = np.array([-1.0, 0.5]), np.array([2.0, 2.5])
    domain = list(product(*np.linspace(low, high, 3).T))

    def query(data):
        return PICK[entries](np.cov(data, rowvar=False, ddof=ddof))

    stated = dict(n=3) if neighbours == "replace-one" else dict(least=2)
    found = sensitivity.by_enumeration(query, domain, 3, neighbours=neighbours, norm=norm, least=2)
    closed = sensitivity.covariance(low, high, neighbours=neighbours, ddof=ddof, norm=norm, entries=entries, **stated)
    assert closed == pytest.approx(found)


@every_norm
@every_relation
@pytest.mark.parametrize("entries", PICK)
@pytest.mark.parametrize("low", [(0.5, 1.0, 0.0), (-3.0, 1.0, -1.0), (-3.0, 1.0, -1.5)])
def test_cross_products(low, entries, norm, neighbours):
    low, high = np.array(low), np.array([0.0 if low[0] < 0 else 2.0, 1.0, 1.0 if low[2] == 0.0 else -0.5])
    domain = list(product(*np.linspace(low, high, 3).T))

    def query(data):
        return PICK[entries](data.T @ data)

    found = sensitivity.by_enumeration(query, domain, 1, neighbours=neighbours, norm=norm)
    closed = sensitivity.cross_products(low, high, neighbours=neighbours, norm=norm, entries=entries)
    assert closed == pytest.approx(found)


@every_norm
@pytest.mark.parametrize("entries", PICK)
def test_cross_products_of_both_signs_are_bounded(norm, entries):
    low, high = np.array([-1.0, -2.0]), np.array([1.0, 1.5])
    domain = list(product(*np.linspace(low, high, 9).T))

    def query(data):
        return PICK[entries](data.T @ data)

    args = dict(norm=norm, entries=entries)
    found = sensitivity.by_enumeration(query, domain, 1, neighbours="add-remove", norm=norm)
    assert sensitivity.cross_products(low, high, neighbours="add-remove", **args) == pytest.approx(found)
    found = sensitivity.by_enumeration(query, domain, 1, neighbours="replace-one", norm=norm)
    bound = sensitivity.cross_products(low, high, neighbours="replace-one", **args)
    assert found <= bound + 1e-12
    assert bound <= 1.6 * found
    if norm == "linf" or entries == "pairs":
        assert bound == pytest.approx(found)


@every_relation
@pytest.mark.parametrize(("low", "high"), BOXES)
def test_sum_of_squares(low, high, neighbours):
    domain = np.unique(np.append(np.linspace(low, high, 4), np.clip(0.0, low, high)))
    found = sensitivity.by_enumeration(lambda x: (x**2).sum(), domain, 2, neighbours=neighbours)
    assert sensitivity.cross_products([low], [high], neighbours=neighbours) == pytest.approx(found)


# Local and smooth ---------------------------------------------------------------------------------------------------


def data_sets(n, kinds):
    return list(combinations_with_replacement(range(kinds), n))


@every_relation
@pytest.mark.parametrize("xi", briefly([0.05, 0.4, 1.5], [0.4]))
@pytest.mark.parametrize("n", briefly([1, 2, 3, 4, 5], [1, 2, 3]))
def test_median_by_definition(n, xi, neighbours):
    domain = np.array([-1.0, 0.0, 0.5, 2.0])  # uneven, ends included
    for data in data_sets(n, len(domain)):
        args = dict(neighbours=neighbours, least=1)
        records = domain[list(data)]
        local = sensitivity.local_by_enumeration(np.median, data, domain, **args)
        assert sensitivity.median_local(records, -1.0, 2.0, neighbours=neighbours) == pytest.approx(local), data
        smooth = sensitivity.smooth_by_enumeration(np.median, data, domain, xi, steps=n + 1, **args)
        assert sensitivity.median_smooth(records, -1.0, 2.0, xi, neighbours=neighbours) == pytest.approx(smooth), data


@pytest.mark.quick
@every_relation
@pytest.mark.parametrize("xi", briefly([0.05, 0.4, 1.5], [0.4]))
@pytest.mark.parametrize(("n", "least"), [(1, 1), (2, 1), (3, 1), (3, 3), pytest.param(4, 2, marks=pytest.mark.long)])
def test_mean_by_definition(n, least, xi, neighbours):
    domain = np.array([-1.0, 0.0, 1.5, 2.0])
    stated = dict(least=least) if neighbours == "add-remove" else {}
    for data in data_sets(n, len(domain)):
        records = domain[list(data)]
        local = sensitivity.local_by_enumeration(np.mean, data, domain, neighbours=neighbours, least=least)
        assert sensitivity.mean_local(records, -1.0, 2.0, neighbours=neighbours, **stated) == pytest.approx(local), data
        args = dict(neighbours=neighbours, least=least, steps=n + least)
        smooth = sensitivity.smooth_by_enumeration(np.mean, data, domain, xi, **args)
        found = sensitivity.mean_smooth(records, -1.0, 2.0, xi, neighbours=neighbours, **stated)
        assert found == pytest.approx(smooth), data


@every_relation
@pytest.mark.parametrize("xi", [0.01, 0.1, 1.0])
def test_smooth_sensitivity_is_smooth_and_above_the_local_one(neighbours, xi, seed):
    """What the privacy proof needs, on records that no grid holds."""
    rng = np.random.default_rng(seed)
    data = rng.normal(1.0, 2.0, 40)
    if neighbours == "replace-one":
        others = [np.append(np.delete(data, at), new) for at in range(0, 40, 7) for new in (-9.0, 0.3, 1.0, 9.0)]
        stated = {}
    else:
        others = [np.delete(data, at) for at in range(0, 40, 7)] + [np.append(data, new) for new in (-9.0, 0.9, 9.0)]
        stated = dict(least=30)
    for smooth, local, extra in (
        (sensitivity.median_smooth, sensitivity.median_local, {}),
        (sensitivity.mean_smooth, sensitivity.mean_local, stated),
    ):
        extra = dict(neighbours=neighbours, **extra)
        here = smooth(data, -5.0, 5.0, xi, **extra)
        assert here >= local(data, -5.0, 5.0, **extra)
        for other in others:
            assert abs(np.log(smooth(other, -5.0, 5.0, xi, **extra) / here)) <= xi + 1e-12


def test_smooth_median_of_many_records_is_far_below_the_global_one(seed):
    data = np.random.default_rng(seed).normal(0.0, 1.0, 2001)
    found = sensitivity.median_smooth(data, -100.0, 100.0, 0.05, neighbours="replace-one")
    assert 0.0 < found < 0.5
    assert sensitivity.median_smooth(data, -100.0, 100.0, 0.05, neighbours="add-remove") < found


def test_negative_control_local_sensitivity_is_not_smooth():
    """Middle records all equal: the local sensitivity is 0 at one data set and large two steps away."""
    data = [0.0, 0.0, 5.0, 5.0, 5.0, 9.0, 9.0]
    assert sensitivity.median_local(data, 0.0, 10.0, neighbours="replace-one") == 0.0
    assert sensitivity.median_smooth(data, 0.0, 10.0, 0.1, neighbours="replace-one") > 1.0


# Refusals -----------------------------------------------------------------------------------------------------------

REFUSED = {
    "relation": (
        lambda: sensitivity.count(neighbours="swap"),
        "'neighbours' must be one of 'add-remove', 'replace-one'",
    ),
    "norm": (lambda: sensitivity.histogram(norm="l3", neighbours="add-remove"), "'norm' must be one of.*got 'l3'"),
    "n with add-remove": (
        lambda: sensitivity.clamped_mean(0, 1, neighbours="add-remove", n=10),
        "'n' must be left out under add-remove, where the number of records is confidential; got 10",
    ),
    "no least": (
        lambda: sensitivity.clamped_mean(0, 1, neighbours="add-remove"),
        "'least' must be given under add-remove.*noisy sum and a noisy count",
    ),
    "least with replace-one": (
        lambda: sensitivity.variance(0, 1, neighbours="replace-one", n=10, least=3),
        "'least' must be left out under replace-one; got 3",
    ),
    "no n": (lambda: sensitivity.clamped_mean(0, 1, neighbours="replace-one"), "'n' must be a whole number"),
    "one record": (
        lambda: sensitivity.variance(0, 1, neighbours="replace-one", n=1),
        "sensitivity.variance: 'n' must be a whole number, at least 2; got 1",
    ),
    "box": (lambda: sensitivity.clamped_sum(2, 1, neighbours="add-remove"), "'low' must be finite and at most high=1"),
    "unbounded": (lambda: sensitivity.clamped_sum(0, np.inf, neighbours="add-remove"), "'low' must be finite"),
    "shapes": (
        lambda: sensitivity.clamped_sum([0, 0], [1, 1, 1], neighbours="add-remove"),
        r"'high' must have the shape \(2,\)",
    ),
    "scalar covariance": (lambda: sensitivity.covariance(0, 1, n=3, neighbours="replace-one"), "'low' must be a list"),
    "ddof": (lambda: sensitivity.variance(0, 1, neighbours="replace-one", n=3, ddof=2), "'ddof' must be 0 or 1; got 2"),
    "entries": (
        lambda: sensitivity.cross_products([0], [1], neighbours="add-remove", entries="upper"),
        "'entries' must be one of",
    ),
    "pairs of one": (
        lambda: sensitivity.cross_products([0], [1], neighbours="add-remove", entries="pairs"),
        "'entries' must not be 'pairs' for one variable",
    ),
    "no records": (
        lambda: sensitivity.median_local([], 0, 1, neighbours="replace-one"),
        "'data' must be a non-empty list",
    ),
    "xi": (lambda: sensitivity.median_smooth([1], 0, 1, 0.0, neighbours="replace-one"), "'xi' must be positive"),
    "two intervals": (
        lambda: sensitivity.mean_local([1], [0, 0], [1, 1], neighbours="replace-one"),
        "'low' must be a single number",
    ),
    "too few records": (
        lambda: sensitivity.mean_local([1.0], 0, 1, neighbours="add-remove", least=2),
        "'least' must be at most the number of records, 1; got 2",
    ),
    "domain": (lambda: sensitivity.by_enumeration(np.sum, [], 2, neighbours="add-remove"), "'domain' must hold"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(call, message):
    with pytest.raises(nw.InputError, match=message) as caught:
        call()
    assert str(caught.value).startswith("sensitivity.")
