"""Private selection: probabilities against independent routes, tails, budgets audited, shapes, refusals."""

import json
from itertools import pairwise, permutations, product

import jax
import jsonschema
import numpy as np
import pytest
from exactness import counts_agree
from families.selection import CASES, SCORES, by_integral, by_orders
from scipy import special, stats

import noisewise as nw
from noisewise.errors import InputError
from noisewise.mechanisms.exponential import ExponentialMechanism
from noisewise.mechanisms.noisy_max import PermuteAndFlip, ReportNoisyMax
from noisewise.mechanisms.quantile import PrivateQuantile
from noisewise.mechanisms.top_selection import TopSelection
from noisewise.numerics import double
from noisewise.release.schema import current_schema

KINDS = {
    "exponential mechanism": ExponentialMechanism,
    "laplace": ReportNoisyMax,
    "gumbel": lambda *scale, **budget: ReportNoisyMax(*scale, noise="gumbel", **budget),
    "exponential": lambda *scale, **budget: ReportNoisyMax(*scale, noise="exponential", **budget),
    "permute-and-flip": PermuteAndFlip,
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def refuses(make, *parts):
    with pytest.raises(InputError) as caught:
        make()
    for part in parts:
        assert part in str(caught.value)


# Probabilities -----------------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("size", [1, 2, 3, 10, 50])
@pytest.mark.parametrize("spread", [0.0, 1e-9, 0.3, 3.0, 40.0])
def test_probabilities_sum_to_one(make, size, spread, seed):
    scores = spread * np.random.default_rng(seed).standard_normal(size)
    log_prob = make(1.0).log_prob(np.arange(size), scores)
    assert np.exp(log_prob).sum() == pytest.approx(1.0, abs=1e-12)
    order = np.argsort(scores)
    assert np.all(np.diff(log_prob[order]) > -1e-12)  # better scores are likelier


@pytest.mark.parametrize("spread", [0.2, 2.0, 10.0])
def test_laplace_against_quadrature(spread, seed):
    scores = spread * np.random.default_rng(seed).standard_normal(4)
    truth = [by_integral(stats.laplace)(scores, index) for index in range(4)]
    found = np.exp(ReportNoisyMax(1.5).log_prob(np.arange(4), scores))
    np.testing.assert_allclose(found, truth, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("size", [10, 50])
def test_laplace_against_dense_panels(size, seed):
    """Relative accuracy 1e-12 for many candidates, by 60-point panels of length 1/2 over the whole line."""
    scores = np.sort(4.0 * np.random.default_rng(seed).standard_normal(size))
    nodes, weights = special.roots_legendre(60)
    truth = np.zeros(size)
    cuts = [scores[0] - 50, *scores, scores[-1] + 50]
    for low, high in pairwise(cuts):
        edges = np.linspace(low, high, int(2 * (high - low)) + 2)
        half = np.diff(edges)[:, None] / 2
        x = (edges[:-1, None] + half * (1 + nodes)).ravel()
        apart = x - scores[:, None]
        cdf = np.where(apart < 0, 0.5 * np.exp(np.minimum(apart, 0)), 1 - 0.5 * np.exp(-np.maximum(apart, 0)))
        for index in range(size):
            density = 0.5 * np.exp(-np.abs(apart[index])) * np.prod(np.delete(cdf, index, axis=0), axis=0)
            truth[index] += density @ (half * weights).ravel()
    found = np.exp(ReportNoisyMax(1.0).log_prob(np.arange(size), scores))
    np.testing.assert_allclose(found, truth, rtol=1e-12)


def test_permute_and_flip_is_noisy_max_with_exponential_noise(seed):
    scores = np.random.default_rng(seed).normal(0.0, 2.0, (20, 6))
    for index in range(6):
        one = PermuteAndFlip(1.5).log_prob(index, scores)
        two = ReportNoisyMax(1.5, noise="exponential").log_prob(index, scores)
        np.testing.assert_allclose(one, two, rtol=1e-13)
        np.testing.assert_allclose(np.exp(one[:2]), [by_orders(row, index) for row in scores[:2]], rtol=1e-12)
        assert np.exp(one[0]) == pytest.approx(by_integral(stats.expon)(scores[0], index), rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("gap", [1e-9, 1.0, 44.0, 46.0, 1e3, 1e5, 1e12])
def test_two_candidates_far_apart(gap):
    """Closed forms for the worse of two: exp(-gap) (1/2 + gap/4), exp(-gap) / 2, exp(-gap) / (1 + exp(-gap))."""
    scores = np.array([gap, 0.0])
    assert ReportNoisyMax(1.0).log_prob(1, scores) == pytest.approx(-gap + np.log(0.5 + gap / 4), rel=1e-14)
    assert PermuteAndFlip(1.0).log_prob(1, scores) == pytest.approx(-gap - np.log(2), rel=1e-14)
    assert ExponentialMechanism(1.0).log_prob(1, scores) == pytest.approx(-gap - np.log1p(np.exp(-gap)), rel=1e-14)


@every_kind
def test_extreme_scales_and_scores(make):
    assert make(1e-8).log_prob(0, SCORES) < -1e7
    assert make(1e-8).log_prob(1, SCORES) == 0.0
    np.testing.assert_allclose(make(1e8).log_prob(np.arange(4), SCORES), np.log(0.25), rtol=1e-7)
    with np.errstate(over="ignore"):
        assert make(1.0).log_prob(0, np.array([-1e308, 1e308])) == -np.inf
    assert make(1.0).log_prob(0, np.array([np.inf, 0.0])) == 0.0
    # one that can never be selected changes nothing for the others
    ruled_out = np.array([0.5, -np.inf, 1.0, 0.0])
    without = make(1.0).log_prob(np.arange(3), ruled_out[[0, 2, 3]])
    np.testing.assert_allclose(make(1.0).log_prob(np.array([0, 2, 3]), ruled_out), without, rtol=1e-13)
    nowhere = make(1.0).log_prob(np.array([1.0, 4.0, -1.0, 0.5]), ruled_out)
    assert np.all(nowhere == -np.inf)


@every_kind
def test_jax_in_blocks(make, seed):
    """More rows than one block holds, inside JAX."""
    scores = np.random.default_rng(seed).normal(0.0, 3.0, (600, 12))
    index = np.arange(600) % 12
    with double():
        traced = jax.jit(lambda m, r, s: m.log_prob(r, s))(make(1.5), index, scores)
    np.testing.assert_allclose(np.asarray(traced), make(1.5).log_prob(index, scores), rtol=1e-11)


# Budgets -----------------------------------------------------------------------------------------------------------


def worst_loss(mechanism, moves, size=3):
    """Largest log ratio of probabilities over scores on a grid and their neighbours."""
    grid = np.array(list(product([-6.0, -1.0, -0.25, 0.0, 0.5, 2.0], repeat=size)))
    moved = grid[:, None, :] + moves
    worst = 0.0
    for index in range(size):
        loss = mechanism.log_prob(index, moved) - mechanism.log_prob(index, grid)[:, None]
        worst = max(worst, np.max(np.abs(loss)))
    return worst


@every_kind
def test_budgets_hold_and_are_nearly_attained(make):
    epsilon, sensitivity = 0.8, 0.5
    both_ways = np.array(list(product([-sensitivity, 0.0, sensitivity], repeat=3)))
    one_way = np.array(list(product([0.0, sensitivity], repeat=3)))
    general = make(epsilon=epsilon, sensitivity=sensitivity)
    assert 0.9 * epsilon < worst_loss(general, both_ways) <= epsilon + 1e-12
    monotone = make(epsilon=epsilon, sensitivity=sensitivity, monotone=True)
    assert 0.9 * epsilon < worst_loss(monotone, one_way) <= epsilon + 1e-12
    assert worst_loss(monotone, both_ways) > epsilon  # negative control: half the scale does not do in general
    assert general.scale == 2 * monotone.scale == 2 * sensitivity / epsilon
    assert general.guarantee.to_dict() == {"epsilon": epsilon, "sensitivity": sensitivity, "norm": "linf"}


def test_quantile_budgets_hold():
    """Replacing any one record, or adding one, over small data sets and points between all places."""
    places = np.array([0.0, 1.0, 2.0, 3.0])
    points = np.array([0.5, 1.5, 2.5])
    data = np.array(list(product(places, repeat=3)))
    epsilon, q = 1.0, 0.3
    mechanism = PrivateQuantile(q, 0.0, 3.0, 3, epsilon=epsilon)
    log_law = mechanism.log_prob(points[:, None], data)
    worst = 0.0
    for place, row in product(places, range(3)):
        changed = data.copy()
        changed[:, row] = place
        worst = max(worst, np.abs(mechanism.log_prob(points[:, None], changed) - log_law).max())
    assert 0.6 * epsilon < worst <= epsilon
    assert mechanism.guarantee.neighbours == "replace-one"
    # add/remove: the score's sensitivity is max(q, 1 - q), so a smaller scale does
    small = PrivateQuantile(q, 0.0, 3.0, 3, epsilon=epsilon, sensitivity=0.7)
    large = PrivateQuantile(q, 0.0, 3.0, 4, epsilon=epsilon, sensitivity=0.7)
    assert small.scale == pytest.approx(1.4)
    log_law = small.log_prob(points[:, None], data)
    for place in places:
        more = np.column_stack([data, np.full(len(data), place)])
        assert np.abs(large.log_prob(points[:, None], more) - log_law).max() <= epsilon


# Top lists ---------------------------------------------------------------------------------------------------------


def test_gumbel_top_list_is_that_of_one_draw(seed):
    """Plackett-Luce: peeling with Gumbel noise has the law of the largest noisy scores of a single draw."""
    rng = np.random.default_rng(seed)
    mechanism = TopSelection(ReportNoisyMax(1.5, noise="gumbel"), top=3)
    noisy = SCORES / 1.5 + rng.gumbel(size=(100_000, 4))
    drawn = np.argsort(-noisy, axis=1)[:, :3]
    lists = np.array(list(permutations(range(4), 3)))
    observed = [np.sum(np.all(drawn == one, axis=1)) for one in lists]
    assert counts_agree(observed, np.exp(mechanism.log_prob(lists, SCORES)))
    # with Laplace noise the two differ, which is why lists of a single draw are not covered
    noisy = SCORES / 1.5 + rng.laplace(size=(100_000, 4))
    drawn = np.argsort(-noisy, axis=1)[:, :3]
    observed = [np.sum(np.all(drawn == one, axis=1)) for one in lists]
    assert not counts_agree(observed, np.exp(TopSelection(ReportNoisyMax(1.5), top=3).log_prob(lists, SCORES)))


@every_kind
def test_whole_rankings(make):
    lists = np.array(list(permutations(range(4))))
    log_prob = TopSelection(make(1.5), top=4).log_prob(lists, SCORES)
    assert np.exp(log_prob).sum() == pytest.approx(1.0, abs=1e-12)
    assert TopSelection(make(1.5), top=2).log_prob(np.array([1, 1]), SCORES) == -np.inf
    assert TopSelection(make(1.5), top=2).log_prob(np.array([1, 4]), SCORES) == -np.inf


def test_top_list_spends_the_budget_once_per_round():
    mechanism = TopSelection(PermuteAndFlip(epsilon=0.5, sensitivity=1.0), top=3)
    assert mechanism.guarantee.epsilon == 1.5
    assert TopSelection(PermuteAndFlip(scale=1.0), top=3).guarantee is None


# Quantile ----------------------------------------------------------------------------------------------------------


def test_quantile_density_by_hand():
    """Records 1 and 3 in [0, 10], median: weights 1 * e^-1, 2 * 1, 7 * e^-1 over ranks 0, 1, 2 of q n = 1."""
    mechanism = PrivateQuantile(0.5, 0.0, 10.0, 2, scale=1.0)
    total = np.exp(-1) + 2 + 7 * np.exp(-1)
    found = np.exp(mechanism.log_prob(np.array([0.5, 2.0, 9.0, 10.5, -0.1]), np.array([3.0, 1.0])))
    np.testing.assert_allclose(found, [np.exp(-1) / total, 1 / total, np.exp(-1) / total, 0.0, 0.0], rtol=1e-14)
    clamped = mechanism.log_prob(2.0, np.array([[-5.0, 12.0], [0.0, 10.0]]))
    assert clamped[0] == clamped[1] == pytest.approx(-np.log(10.0))


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_quantile_supremum_over_all_arrangements(q, n):
    """Records at the ends or squeezed against the release: no arrangement exceeds the bound, one nears it."""
    mechanism = PrivateQuantile(q, 0.0, 4.0, n, scale=0.8)
    for point in (0.0, 1.0, 3.9, 4.0):
        places = [0.0, max(np.nextafter(point, -1), 0.0), min(np.nextafter(point, 5), 4.0), 4.0, 2.0]
        best = max(mechanism.log_prob(point, np.array(list(product(places, repeat=n)))))
        assert best <= mechanism.log_sup(point) + 1e-9
        if 0.0 < point < 4.0:
            assert best == pytest.approx(mechanism.log_sup(point), abs=1e-9)


def test_quantile_extremes():
    sharp = PrivateQuantile(0.5, -1.0, 1.0, 4, scale=1e-8)
    flat = PrivateQuantile(0.5, -1e8, 1e8, 4, scale=1e8)
    records = np.array([-0.5, 0.0, 0.25, 0.5])
    assert sharp.log_prob(0.1, records) == pytest.approx(np.log(4.0))
    assert sharp.log_prob(0.3, records) == pytest.approx(-1e8)
    assert flat.log_prob(0.3, records) == pytest.approx(-np.log(2e8))
    many = PrivateQuantile(0.5, 0.0, 1.0, 200_000, scale=1.0)
    spread = np.linspace(0.3, 0.7, 200_000)
    assert many.log_prob(0.1, spread) < -9.9e4
    assert many.log_sup(0.1) == pytest.approx(1e5)
    same = PrivateQuantile(0.5, 0.0, 1.0, 3, scale=1.0)
    assert np.all(np.isfinite(same.log_prob(np.array([0.0, 0.5, 1.0]), np.array([0.5, 0.5, 0.5]))))


# Shapes, files, refusals -------------------------------------------------------------------------------------------


@every_kind
def test_several_selections_at_once(make, seed):
    rng = np.random.default_rng(seed)
    mechanism = make(np.array([0.5, 2.0]))
    scores = rng.normal(size=(7, 2, 5))
    drawn = mechanism.sample(rng, scores)
    assert drawn.shape == (7, 2)
    log_prob = mechanism.log_prob(drawn[0], scores)
    assert log_prob.shape == (7, 2)
    np.testing.assert_allclose(log_prob[:, 1], make(2.0).log_prob(drawn[0, 1], scores[:, 1]), rtol=1e-12)
    assert mechanism.misfit((2,), (2, 5)) is None
    assert "(2, 'k')" in mechanism.misfit((2,), (2,))
    assert "'k'" in mechanism.misfit((), ())
    refuses(lambda: mechanism.released([0, 1, 2]), "'value'", "scale", "0., 1., 2.")


def test_quantiles_at_once(seed):
    rng = np.random.default_rng(seed)
    mechanism = PrivateQuantile(0.5, -1.0, 1.0, 5, scale=2.0)
    records = rng.normal(size=(7, 2, 5))
    drawn = mechanism.sample(rng, records)
    assert drawn.shape == (7, 2)
    assert mechanism.log_prob(drawn[0], records).shape == (7, 2)
    assert mechanism.misfit((2,), (2, 5)) is None
    assert "(2, 5)" in mechanism.misfit((2,), (2, 4))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_files(case, seed):
    drawn = case.sample(case.mechanism, np.random.default_rng(seed), 1)[0]
    release = nw.Release(x=case.mechanism.released(drawn))
    jsonschema.Draft202012Validator(current_schema()).validate(release.to_dict())
    assert nw.Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release


def test_files_may_give_a_budget():
    budget = {"epsilon": 1.0, "sensitivity": 2.0, "monotone": True}
    assert ReportNoisyMax.from_dict({**budget, "noise": "gumbel"}, "here").scale == 2.0
    made = PrivateQuantile.from_dict({"quantile": 0.5, "low": 0, "high": 1, "n": 3, "epsilon": 0.5}, "here")
    assert made == PrivateQuantile(0.5, 0.0, 1.0, 3, epsilon=0.5)
    refuses(
        lambda: TopSelection.from_dict({"selection": {"mechanism": "Laplace", "scale": 1.0}, "top": 2}, "here"),
        "here: TopSelection: 'selection'",
        "Laplace",
    )


@every_kind
def test_refusals_of_selections(make):
    who = type(make(1.0)).__name__
    refuses(lambda: make(-1.0), f"{who}: 'scale'", "got -1.0")
    refuses(lambda: make(), f"{who}: 'scale'", "got None")
    refuses(lambda: make(epsilon=1.0), f"{who}: 'sensitivity'", "got None")
    refuses(lambda: make(epsilon=0.0, sensitivity=1.0), f"{who}: 'epsilon'", "got 0.0")
    refuses(lambda: make(2.0, epsilon=1.0, sensitivity=1.0), f"{who}: 'scale'", "got 2.0")
    refuses(lambda: make(2.0, monotone=True), f"{who}: 'monotone'", "got True")
    refuses(lambda: make(epsilon=1.0, sensitivity=1.0, monotone=1), f"{who}: 'monotone'", "got 1")
    refuses(lambda: make(1.0).released(-1), f"{who}.released: 'value'", "got -1")
    refuses(lambda: make(1.0).released(1.5), f"{who}.released: 'value'", "got 1.5")


def test_refusals():
    refuses(lambda: ReportNoisyMax(1.0, noise="normal"), "ReportNoisyMax: 'noise'", "'normal'")
    inner = PermuteAndFlip(1.0)
    refuses(lambda: TopSelection(nw.Laplace(1.0), 2), "TopSelection: 'selection'", "Laplace")
    refuses(lambda: TopSelection(PermuteAndFlip([1.0, 2.0]), 2), "TopSelection: 'selection'", "single scale")
    refuses(lambda: TopSelection(inner, 0), "TopSelection: 'top'", "got 0")
    refuses(lambda: TopSelection(inner, 2).released([1, 1]), "different indices", "[1, 1]")
    refuses(lambda: TopSelection(inner, 2).released([1, -1]), "different indices", "[1, -1]")
    refuses(lambda: TopSelection(inner, 2).released([1, 2, 3]), "must have 2 indices", "[1, 2, 3]")
    refuses(lambda: TopSelection(inner, 5).sample(np.random.default_rng(1), SCORES), "at least top = 5", "1.5")
    assert "k >= 5" in TopSelection(inner, 5).misfit((5,), (4,))
    quantile = {"quantile": 0.5, "low": 0.0, "high": 1.0, "n": 3, "scale": 1.0}

    def changed(**changes):
        return lambda: PrivateQuantile(**(quantile | changes))

    refuses(changed(quantile=1.5), "PrivateQuantile: 'quantile'", "got 1.5")
    refuses(changed(quantile=np.nan), "PrivateQuantile: 'quantile'", "nan")
    refuses(changed(low=1.0), "PrivateQuantile: 'high' must exceed low = 1.0", "got 1.0")
    refuses(changed(high=np.inf), "PrivateQuantile: 'high'", "inf")
    refuses(changed(low=[0.0, 0.1]), "PrivateQuantile: 'low'", "[0.0, 0.1]")
    refuses(changed(n=0), "PrivateQuantile: 'n'", "got 0")
    refuses(changed(scale=None), "PrivateQuantile: 'scale'", "exactly one")
    refuses(changed(epsilon=1.0), "PrivateQuantile: 'scale'", "exactly one")
    refuses(changed(sensitivity=1.0), "PrivateQuantile: 'sensitivity'", "got 1.0")
    refuses(changed(scale=None, epsilon=-1.0), "PrivateQuantile: 'epsilon'", "got -1.0")
    refuses(lambda: PrivateQuantile(**quantile).released(1.5), "PrivateQuantile.released: 'value'", "got 1.5")
