"""Intervals of draws, one by one and jointly; chances of regions. Truths are closed forms, or counts of draws."""

import math

import numpy as np
import pytest
from exactness import LIMIT
from scipy import stats

import noisewise as nw

LEVEL = 0.9


def posterior_of(draws, **fields):
    told = {"released": {}, "release_hash": "", "sampler": nw.Rejection(), "seed": 1}
    return nw.Posterior(draws, tuple(draws), **told, **fields)


@pytest.fixture(scope="module")
def vector():
    """Ten normal entries of unequal sizes, correlated by a common part."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(4_000, 10)) + 0.5 * rng.normal(size=(4_000, 1))
    return posterior_of({"x": x * np.arange(1, 11)})


@pytest.fixture(scope="module")
def weighted():
    """Uniform draws with weights that make them standard exponential; and their negatives."""
    x = np.random.default_rng(5).uniform(0.0, 30.0, size=(40_000, 2)) * [1.0, -1.0]
    x[:, 1] = -x[:, 0]
    return posterior_of({"x": x}, log_weights=-x[:, 0])


def test_the_shortest_interval_of_an_exponential_begins_at_zero(weighted):
    plain = posterior_of({"x": np.random.default_rng(5).exponential(size=20_000)})
    for posterior, pick in ((plain, ()), (weighted, (0,))):
        low, high = (np.asarray(end)[pick] for end in posterior.interval(LEVEL, "hdi")["x"])
        assert low < 0.02
        assert high == pytest.approx(-math.log(1 - LEVEL), abs=0.12)
        low, high = (np.asarray(end)[pick] for end in posterior.interval(LEVEL)["x"])
        assert low == pytest.approx(-math.log(0.95), abs=0.02)
    low, high = weighted.interval(LEVEL, "hdi")["x"]
    assert (low[1], high[1]) == pytest.approx((-high[0], -low[0]))


def test_the_shortest_interval_holds_its_share_of_the_draws(vector, weighted):
    for posterior in (vector, weighted):
        values, weight = posterior["x"][:, 0], posterior.weights
        low, high = (end[0] for end in posterior.interval(LEVEL, "hdi")["x"])
        share = np.average((values >= low) & (values <= high), weights=weight)
        assert LEVEL - 1e-9 <= share < LEVEL + 2e-3
        ends = posterior.interval(LEVEL)["x"]
        assert high - low <= ends[1][0] - ends[0][0]


@pytest.mark.quick
def test_a_simultaneous_band_holds_exactly_its_share_of_whole_draws(vector):
    low, high = vector.interval(LEVEL, simultaneous=True)["x"]
    held = np.mean(np.all((vector["x"] >= low) & (vector["x"] <= high), axis=1))
    assert LEVEL <= held < LEVEL + 2e-3
    low, high = vector.interval(LEVEL)["x"]
    one_by_one = np.mean(np.all((vector["x"] >= low) & (vector["x"] <= high), axis=1))
    assert one_by_one < 0.6


def test_it_is_the_band_of_independent_normals():
    x = np.random.default_rng(5).normal(size=(20_000, 5))
    low, high = posterior_of({"x": x}).interval(LEVEL, simultaneous=True)["x"]
    z = stats.norm.isf((1 - LEVEL ** (1 / 5)) / 2)
    assert np.allclose(high, z, atol=0.12)
    assert np.allclose(low, -z, atol=0.12)


def test_a_band_covers_new_draws_as_often_as_it_says():
    """Of a band made from 2,000 draws, on 200,000 others: 90% within errors of both."""
    rng = np.random.default_rng(5)
    mix = rng.normal(size=(6, 6))
    low, high = posterior_of({"x": rng.normal(size=(2_000, 6)) @ mix}).interval(LEVEL, simultaneous=True)["x"]
    new = rng.normal(size=(200_000, 6)) @ mix
    held = np.mean(np.all((new >= low) & (new <= high), axis=1))
    # errors of 2,000 draws, and the optimism of six pairs of ends that are quantiles of the same draws
    assert abs(held - LEVEL) < LIMIT * math.sqrt(LEVEL * (1 - LEVEL) / 2_000) + 6 / 2_000


def test_weights_count_in_a_band(weighted):
    low, high = weighted.interval(LEVEL, simultaneous=True)["x"]
    within = np.all((weighted["x"] >= low) & (weighted["x"] <= high), axis=1)
    assert LEVEL - 1e-9 <= weighted.weights[within].sum() < LEVEL + 2e-3
    assert within.mean() < 0.2
    assert low[0] == pytest.approx(-math.log(0.95), abs=0.03)  # one entry is the other's negative: as for one
    assert high[0] == pytest.approx(-math.log(0.05), abs=0.2)


def test_ties_lie_within_together():
    """Of 0, 1, 2, 3 with chances 0.5, 0.3, 0.15, 0.05: the first three are the fewest that hold 0.9."""
    x = np.repeat(np.arange(4), [500, 300, 150, 50])[:, None] * np.ones((1, 2), int)
    low, high = posterior_of({"x": x}).interval(LEVEL, simultaneous=True)["x"]
    assert np.mean(np.all((x >= low) & (x <= high), axis=1)) >= LEVEL
    assert (low[0], high[0]) == (0.0, 2.0)


@pytest.mark.parametrize("extra", [np.ones(4_000), np.arange(4_000) < 20], ids=["constant", "nearly"])
def test_an_entry_that_does_not_vary_changes_no_others(vector, extra):
    """A ratio to itself, a count that is nearly always zero: the band of the others is, or nearly is, as without it."""
    low, high = vector.interval(LEVEL, simultaneous=True)["x"]
    wider = posterior_of({"x": np.column_stack([vector["x"], extra])}).interval(LEVEL, simultaneous=True)["x"]
    slack = 0.0 if extra.dtype != bool else 0.1
    assert np.allclose(wider[0][:-1], low, rtol=slack, atol=0.0)
    assert np.allclose(wider[1][:-1], high, rtol=slack, atol=0.0)


def test_draws_without_weight_are_no_ends_and_no_doubt():
    x = np.append(np.linspace(0.0, 1.0, 101), [-5.0, 0.005, 7.0])
    posterior = posterior_of({"x": x[:, None]}, log_weights=np.append(np.zeros(101), np.full(3, -np.inf)))
    for options in ({"simultaneous": True}, {"kind": "hdi"}, {}):
        low, high = posterior.interval(0.99, **options)["x"]
        assert -1e-9 <= low[0] < high[0] <= 1.0 + 1e-9
        assert low[0] != 0.005
    row = posterior.decide(x=2.0).loc["x[0]"]
    assert (row["below"], row["above"]) == pytest.approx((1.0, 0.0))
    assert row["mcse above"] == pytest.approx(1 / 101)  # not zero because a draw without weight lies there


def test_chances_are_those_of_the_closed_form(weighted):
    table = weighted.decide(x=(np.array([0.5, -2.0]), np.array([2.0, -0.5])))
    exact = {"below": 1 - math.exp(-0.5), "inside": math.exp(-0.5) - math.exp(-2.0), "above": math.exp(-2.0)}
    mirrored = {"below": exact["above"], "inside": exact["inside"], "above": exact["below"]}
    for label, chances in (("x[0]", exact), ("x[1]", mirrored)):
        for title, chance in chances.items():
            assert abs(table.loc[label, title] - chance) < LIMIT * table.loc[label, f"mcse {title}"]
    assert abs(np.mean(weighted["x"][:, 0] > 2.0) - exact["above"]) > 0.5  # weights forgotten


def test_a_number_splits_and_discrete_quantities_may_equal_it():
    posterior = posterior_of({"n": np.repeat([3, 4, 5], [10, 60, 30]), "m": np.arange(100.0)})
    row = posterior.decide(n=4).loc["n"]
    assert (row["below"], row["inside"], row["above"]) == (0.1, 0.6, 0.3)
    assert row["mcse above"] == pytest.approx(math.sqrt(0.3 * 0.7 / 99))
    sure = posterior.decide(m=-1.0).loc["m"]
    assert (sure["above"], sure["mcse above"]) == (1.0, 0.01)


REFUSED = {
    "kind": (lambda p: p.interval(kind="shortest"), "'kind' must be one of 'equal-tailed', 'hdi'"),
    "both": (lambda p: p.interval(kind="hdi", simultaneous=True), "must be 'equal-tailed' where simultaneous"),
    "nothing": (lambda p: p.decide(), "must name at least one quantity"),
    "name": (lambda p: p.decide(y=0.0), "must be a name of the posterior"),
    "three": (lambda p: p.decide(x=(1.0, 2.0, 3.0)), "must be a number or a pair"),
    "order": (lambda p: p.decide(x=(2.0, 1.0)), "must have its lower end first"),
    "shape": (lambda p: p.decide(x=np.zeros(3)), "must be of shape (10,)"),
    "words": (lambda p: p.decide(x="large"), "must be a number or an array of numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_answer_is_refused(case, vector):
    ask, message = REFUSED[case]
    with pytest.raises(nw.InputError) as caught:
        ask(vector)
    assert message in str(caught.value)


def test_nothing_drawn_has_no_interval():
    empty = posterior_of({"x": np.empty((0, 2))})
    assert np.isnan(empty.interval(simultaneous=True)["x"][0]).all()
    assert np.isnan(empty.interval(kind="hdi")["x"][1]).all()
