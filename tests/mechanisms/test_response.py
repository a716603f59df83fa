"""Randomised response: counts against brute force, bounds, guarantees, refusals, a reference of other software."""

import json
from itertools import product
from pathlib import Path

import jax
import jsonschema
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from families.response import CASES, THREE, TWO_BITS, UNEVEN, WIDE, law_of_counts, tables
from scipy import optimize, stats
from targets import briefly

import noisewise as nw
from noisewise.errors import InputError
from noisewise.mechanisms import Guarantee, reported_counts
from noisewise.mechanisms.randomized_response import RandomizedResponse, draw
from noisewise.mechanisms.unary_encoding import UnaryEncoding
from noisewise.numerics import double
from noisewise.release.schema import current_schema

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "randomized_response_2x2.json").read_text())
HOLES = [[0.5, 0.3, 0.2], [0.0, 0.8, 0.2], [0.1, 0.0, 0.9]]
SWAPPED = [[0.1, 0.3, 0.6], [0.5, 0.3, 0.2], [0.1, 0.7, 0.2]]  # separable, the outright reports permuted
NARROW = [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]
CHANNELS = [[[0.75, 0.25], [0.1, 0.9]], UNEVEN, WIDE, NARROW, THREE, HOLES, SWAPPED, TWO_BITS, WIDE[:2], np.eye(3)]


def refuses(make, *parts):
    with pytest.raises(InputError) as caught:
        make()
    for part in parts:
        assert part in str(caught.value)


def counts(channel, n):
    return RandomizedResponse(channel, on="counts", n=n)


# The law of counts -------------------------------------------------------------------------------------------------


SHAPES = [np.shape(channel) for channel in CHANNELS]
ONE_OF_A_SHAPE = [
    pytest.param(channel, marks=[pytest.mark.long] * (np.shape(channel) in SHAPES[:place]))
    for place, channel in enumerate(CHANNELS)
]


@pytest.mark.parametrize("channel", ONE_OF_A_SHAPE, ids=lambda channel: str(np.shape(channel)))
def test_counts_are_the_convolution_of_multinomials(channel):
    mechanism, n = counts(channel, 4), 4
    reported = tables(n, np.shape(channel)[1])
    sup = mechanism.log_sup(reported)
    largest = np.full(len(reported), -np.inf)
    for row in tables(n, len(channel)):
        law = law_of_counts(channel, row)
        truth = np.array([law.get(tuple(table), 0.0) for table in reported.tolist()])
        found = mechanism.log_prob(reported, row)
        np.testing.assert_allclose(np.exp(found), truth, rtol=1e-13, atol=0)
        largest = np.maximum(largest, found)
    possible = largest > -np.inf
    assert np.all(largest <= sup + 1e-12)
    assert np.all(sup[possible] - largest[possible] < 4.0)  # a useful bound, not only a valid one
    if np.shape(channel)[1] == 2:
        np.testing.assert_allclose(sup, largest, atol=1e-12)


@pytest.mark.parametrize("place", briefly(range(len(CHANNELS)), [SHAPES.index((3, 4))]))
def test_counts_are_the_same_in_jax(place):
    mechanism, rows = counts(CHANNELS[place], 5), len(CHANNELS[place])
    reported = tables(5, SHAPES[place][1])
    with double():
        traced = jax.jit(lambda r, c: mechanism.log_prob(r, c))(reported, tables(5, rows)[3])
    plain = mechanism.log_prob(reported, tables(5, rows)[3])
    np.testing.assert_allclose(np.asarray(traced), plain, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("channel", [THREE, SWAPPED])
def test_the_two_routes_agree(channel):
    """The short cut for separable channels against the grid, where both are costly enough to differ."""
    channel, n = np.array(channel), 40
    assert reported_counts.outright(channel) is not None
    assert reported_counts.outright(np.array(UNEVEN)) is None
    rng = np.random.default_rng(1)
    released = rng.multinomial(n, np.full(3, 1 / 3), size=8).astype(float)
    confidential = rng.multinomial(n, [0.6, 0.3, 0.1], size=8).astype(float)
    short = reported_counts._separable(np, channel, n, released, confidential)
    grid = reported_counts._any_channel(np, channel, n, released, confidential)
    np.testing.assert_allclose(short, grid, rtol=1e-12)


@pytest.mark.parametrize("channel", [TWO_BITS, THREE, WIDE], ids=["two bits", "k-ary", "wide"])
def test_counts_marginalise_to_a_multinomial(channel):
    """Reports of independent records are Multinomial(n, share @ channel): summed over the confidential table."""
    n, channel = 6, np.array(channel)
    share = np.arange(1.0, len(channel) + 1) / np.arange(1.0, len(channel) + 1).sum()
    inside = tables(n, len(channel))
    weight = stats.multinomial.pmf(inside, n, share)
    for table in tables(n, channel.shape[1])[::7]:
        found = weight @ np.exp(counts(channel, n).log_prob(table, inside))
        assert found == pytest.approx(stats.multinomial.pmf(table, n, share @ channel), rel=1e-12)


def test_binary_counts_of_many_records():
    """n = 400 by convolution of two binomials, in the centre and 40 standard deviations out."""
    mechanism = counts([[0.75, 0.25], [0.25, 0.75]], 400)
    for ones, seen in ((200, 210), (17, 100), (400, 0), (0, 400), (300, 1)):
        part = np.arange(401)
        terms = stats.binom.logpmf(part, ones, 0.75) + stats.binom.logpmf(seen - part, 400 - ones, 0.25)
        truth = np.logaddexp.reduce(terms)
        found = mechanism.log_prob(np.array([400 - seen, seen]), np.array([400 - ones, ones]))
        assert found == pytest.approx(truth, rel=1e-11)


@pytest.mark.parametrize("epsilon", [1e-8, 1.0, 50.0, 600.0])
def test_counts_at_extreme_budgets(epsilon):
    mechanism = RandomizedResponse(epsilon=epsilon, categories=3, on="counts", n=300)
    far = mechanism.log_prob(np.array([300, 0, 0]), np.array([0, 150, 150]))
    assert far == pytest.approx(-300 * (epsilon + np.log1p(2 * np.exp(-epsilon))), rel=1e-10)  # to -1.8e5 and beyond
    near = mechanism.log_prob(np.array([300, 0, 0]), np.array([300, 0, 0]))
    assert near == pytest.approx(-300 * np.log1p(2 * np.exp(-epsilon)), rel=1e-10, abs=1e-12)
    assert near <= mechanism.log_sup(np.array([300, 0, 0])) + 1e-9


def test_what_cannot_be_is_minus_infinity():
    mechanism = counts(HOLES, 5)
    assert mechanism.log_prob(np.array([1, 4, 0]), np.array([0, 0, 5])) == -np.inf  # the third never reports the second
    rows = np.array([[5.5, -0.5, 0.0], [5, 1, 0], [-1, 6, 0], [2.5, 2.5, 0]])
    assert np.all(mechanism.log_prob(np.array([2, 2, 1]), rows) == -np.inf)
    records = RandomizedResponse(WIDE)
    assert np.all(records.log_prob(0, np.array([-1.0, 3.0, 0.5, 1e300, 2.0])) == -np.inf)
    assert records.log_prob(7, 1) == -np.inf
    assert UnaryEncoding(3, keep=0.6, add=0.1).log_prob(np.array([1, 2, 0]), 1) == -np.inf


def test_samples_never_leak_into_impossible_reports():
    """A row whose running sum falls short of 1 by rounding must not report a category it never reports."""

    class Last:
        def random(self, shape):
            return np.full(shape, np.nextafter(1.0, 0.0))

    table = np.array([[0.1] * 10 + [0.0], [0.0] + [0.1] * 10])
    assert np.cumsum(table[0])[9] < 1.0
    assert draw(Last(), table, np.array([0, 1])).tolist() == [9, 10]


# Guarantees --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "categories"), [(0.1, 2), (1.0, 2), (2.0, 5), (1e-8, 3), (600.0, 4)])
def test_budget_is_the_largest_log_ratio(epsilon, categories):
    mechanism = RandomizedResponse(epsilon=epsilon, categories=categories)
    assert mechanism.guarantee.epsilon == epsilon
    assert mechanism.guarantee.neighbours == "replace-one"
    log_table = mechanism.log_prob(np.arange(categories), np.arange(categories)[:, None])
    assert np.max(np.ptp(log_table, axis=0)) == pytest.approx(epsilon, rel=1e-7)
    np.testing.assert_allclose(np.exp(log_table).sum(axis=1), 1.0, rtol=1e-14)


def test_guarantee_of_a_channel():
    assert RandomizedResponse(keep=0.75).guarantee.epsilon == pytest.approx(np.log(3.0))
    assert RandomizedResponse(keep=0.4, categories=4).channel[0] == pytest.approx((0.4, 0.2, 0.2, 0.2))
    assert RandomizedResponse(UNEVEN).guarantee.epsilon == pytest.approx(np.log(5.0))
    assert RandomizedResponse(WIDE).guarantee is None  # a report of 0 rules the third category out
    assert RandomizedResponse([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]]).guarantee.epsilon == pytest.approx(np.log(2.0))


def largest_loss(mechanism, shape, first, second):
    """Largest log ratio over all reports between two tables that differ in one record."""
    reports = np.array(list(product((0, 1), repeat=int(np.prod(shape))))).reshape(-1, *shape)
    gaps = mechanism.log_prob(reports, first) - mechanism.log_prob(reports, second)
    return gaps.reshape(len(reports), -1).sum(axis=1).max()


def test_a_record_of_several_answers_spends_all_of_them():
    """Two people with three bits each: replacing one person may turn all three."""
    coin = RandomizedResponse(keep=0.75)
    people, other = np.array([[0, 1, 0], [1, 1, 0]]), np.array([[1, 0, 1], [1, 1, 0]])
    found = nw.Release(bits=coin.released(people)).guarantee
    assert found.epsilon == pytest.approx(largest_loss(coin, (2, 3), people, other))
    assert found.epsilon == pytest.approx(3 * coin.guarantee.epsilon)
    assert nw.Release(bits=coin.released([0, 1, 1])).guarantee == coin.guarantee  # one answer each
    assert nw.Release(bits=coin.released(1)).guarantee == coin.guarantee
    assert nw.Release(bits=coin.released([[0, 1, 1]])).guarantee.epsilon == pytest.approx(found.epsilon)


def test_tables_and_encodings_of_one_record_compose():
    counts = RandomizedResponse(keep=0.75, on="counts", n=5)
    assert nw.Release(x=counts.released([2, 3])).guarantee == counts.guarantee
    twice = nw.Release(x=counts.released([[2, 3], [4, 1]])).guarantee
    assert twice.epsilon == pytest.approx(2 * counts.guarantee.epsilon)
    rappor = UnaryEncoding(3, epsilon=1.0)
    assert nw.Release(x=rappor.released(np.zeros((4, 3)))).guarantee == rappor.guarantee
    assert nw.Release(x=rappor.released(np.zeros((4, 2, 3)))).guarantee.epsilon == pytest.approx(2.0)


@pytest.mark.parametrize(
    "mechanism",
    [
        RandomizedResponse(keep=0.5),
        RandomizedResponse(keep=0.25, categories=4),
        RandomizedResponse([[0.3, 0.7], [0.3, 0.7]]),
        UnaryEncoding(3, keep=0.4, add=0.4),
    ],
    ids=repr,
)
def test_answers_that_say_nothing_spend_nothing(mechanism):
    assert mechanism.guarantee.to_dict() == {"epsilon": 0.0, "neighbours": "replace-one"}
    release = nw.Release(x=mechanism.released(np.zeros((2, 3))))
    assert release.guarantee.epsilon == 0.0
    content = release.to_dict()
    jsonschema.Draft202012Validator(current_schema()).validate(content)
    assert nw.Release.from_dict(content).guarantee == release.guarantee
    spent = Guarantee(mu=1.0, neighbours="replace-one")
    assert (mechanism.guarantee + spent).rho == 0.5


@pytest.mark.parametrize("encoding", ["symmetric", "optimised"])
@pytest.mark.parametrize("epsilon", [1e-6, 0.5, 3.0])
def test_unary_budgets_hold_and_are_attained(encoding, epsilon):
    mechanism = UnaryEncoding(4, epsilon=epsilon, encoding=encoding)
    bits = np.array(list(product(range(2), repeat=4)))
    log_law = mechanism.log_prob(bits, np.arange(4)[:, None])
    assert np.max(np.ptp(log_law, axis=0)) == pytest.approx(epsilon, rel=1e-9)
    assert mechanism.guarantee.epsilon == epsilon
    again = UnaryEncoding(4, keep=mechanism.keep, add=mechanism.add)
    assert again.guarantee.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert (mechanism.keep == 0.5) == (encoding == "optimised")


def test_unary_encoding_far_out():
    mechanism = UnaryEncoding(50_000, keep=0.5, add=0.1)
    bits = np.ones(50_000, dtype=int)
    assert mechanism.log_prob(bits, 3) == pytest.approx(np.log(0.5) + 49_999 * np.log(0.1))  # about -1.2e5
    assert mechanism.log_sup(bits) == pytest.approx(mechanism.log_prob(bits, 3))
    low = UnaryEncoding(2, keep=1 - 1e-8, add=1e-8)
    assert low.log_prob(np.array([0, 1]), 0) == pytest.approx(2 * np.log(1e-8), rel=1e-9)


# Shapes, files, refusals -------------------------------------------------------------------------------------------


def test_shapes(seed):
    rng = np.random.default_rng(seed)
    records = RandomizedResponse(WIDE)
    true = rng.integers(0, 3, (7, 2, 5))
    drawn = records.sample(rng, true)
    assert drawn.shape == true.shape
    assert records.log_prob(drawn[0], true).shape == (7, 2, 5)
    table = counts(WIDE, 9)
    true = rng.multinomial(9, [0.2, 0.3, 0.5], size=(7, 2))
    drawn = table.sample(rng, true)
    assert drawn.shape == (7, 2, 4)
    assert np.all(drawn.sum(axis=-1) == 9)
    assert table.log_prob(drawn[0], true).shape == (7, 2)
    assert table.log_sup(drawn).shape == (7, 2)
    assert (records.event_dim, table.event_dim) == (0, 1)
    assert (records.measure, table.measure) == ("atoms", "lattice")
    assert (records.supremum, table.supremum, counts(NARROW, 3).supremum) == ("attained", "bound", "attained")
    unary = UnaryEncoding(3, epsilon=1.0)
    true = rng.integers(0, 3, (7, 2))
    drawn = unary.sample(rng, true)
    assert drawn.shape == (7, 2, 3)
    assert unary.log_prob(drawn[0], true).shape == (7, 2)
    assert unary.misfit((2, 3), (2,)) is None
    assert "one category per row" in unary.misfit((2, 3), (2, 3))
    assert "(2, 3)" in table.misfit((2, 4), (2, 4))
    assert table.misfit((2, 4), (2, 3)) is None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_files(case, seed):
    drawn = case.sample(case.mechanism, np.random.default_rng(seed), 1)[0]
    release = nw.Release(x=case.mechanism.released(drawn))
    jsonschema.Draft202012Validator(current_schema()).validate(release.to_dict())
    assert nw.Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release


def test_files_may_give_a_budget():
    made = RandomizedResponse.from_dict({"epsilon": 1.0, "categories": 3, "on": "counts", "n": 4}, "here")
    assert made == RandomizedResponse(epsilon=1.0, categories=3, on="counts", n=4)
    made = UnaryEncoding.from_dict({"epsilon": 1.0, "categories": 3, "encoding": "optimised"}, "here")
    assert made == UnaryEncoding(3, epsilon=1.0, encoding="optimised")
    assert RandomizedResponse(keep=0.75).released([True, False]).value.tolist() == [1, 0]


def test_refusals():
    rr = RandomizedResponse
    refuses(lambda: rr(), "RandomizedResponse: 'channel'", "exactly one")
    refuses(lambda: rr(keep=0.7, epsilon=1.0), "RandomizedResponse: 'channel'", "0.7", "exactly one")
    refuses(lambda: rr(keep=1.2), "RandomizedResponse: 'keep'", "got 1.2")
    refuses(lambda: rr(keep=[0.5, 0.6]), "RandomizedResponse: 'keep'", "[0.5, 0.6]")
    refuses(lambda: rr(keep=np.nan), "RandomizedResponse: 'keep'", "nan")
    refuses(lambda: rr(epsilon=-1.0), "RandomizedResponse: 'epsilon'", "got -1.0")
    refuses(lambda: rr(epsilon=800.0), "RandomizedResponse: 'epsilon' must be at most 700", "got 800.0")
    refuses(lambda: rr(epsilon=1.0, categories=1), "RandomizedResponse: 'categories'", "got 1")
    refuses(lambda: rr(UNEVEN, categories=3), "RandomizedResponse: 'categories'", "got 3")
    refuses(lambda: rr([0.5, 0.5]), "RandomizedResponse: 'channel' must be a matrix", "[0.5, 0.5]")
    refuses(lambda: rr([[0.5, 0.6], [0.5, 0.5]]), "RandomizedResponse: 'channel' must have rows that sum to 1", "0.6")
    refuses(lambda: rr([[1.5, -0.5], [0.5, 0.5]]), "RandomizedResponse: 'channel' must hold probabilities", "-0.5")
    refuses(lambda: rr("ab"), "RandomizedResponse: 'channel'", "'ab'")
    refuses(lambda: rr(keep=0.7, on="tables"), "RandomizedResponse: 'on'", "'tables'")
    refuses(lambda: rr(keep=0.7, on="counts"), "RandomizedResponse: 'n'", "got None")
    refuses(lambda: rr(keep=0.7, n=3), "RandomizedResponse: 'n'", "got 3")
    refuses(lambda: counts(TWO_BITS, 600), "RandomizedResponse: 'n'", "cells", "got 600", "Multinomial")
    refuses(lambda: rr(keep=0.7).released(2), "RandomizedResponse.released: 'value'", "got 2")
    refuses(lambda: rr(keep=0.7).released(0.5), "'value' must be whole numbers", "got 0.5")
    refuses(lambda: rr(keep=0.7).released([]), "'value' must not be empty")
    refuses(lambda: rr([[0.5, 0.5, 0.0]] * 2).released(2), "that the channel can report", "got 2")
    refuses(lambda: counts(UNEVEN, 6).released([1, 2, 2]), "sum to n = 6", "[1, 2, 2]")
    refuses(lambda: counts(UNEVEN, 6).released([1, 5]), "must have 3 counts", "[1, 5]")
    refuses(lambda: counts([[0.5, 0.5, 0.0]] * 2, 3).released([1, 1, 1]), "never reports", "[1, 1, 1]")
    rng = np.random.default_rng(1)
    refuses(lambda: rr(keep=0.7).sample(rng, np.array([0, 2])), "RandomizedResponse.sample: 'confidential'", "2")
    refuses(lambda: counts(UNEVEN, 6).sample(rng, np.array([1, 2, 4])), "sum to n = 6", "1, 2, 4")
    refuses(lambda: counts(UNEVEN, 6).sample(rng, np.array([6, 0])), "must have 3 counts", "6, 0")
    unary = UnaryEncoding
    refuses(lambda: unary(1, epsilon=1.0), "UnaryEncoding: 'categories'", "got 1")
    refuses(lambda: unary(3), "UnaryEncoding: 'keep'", "got None")
    refuses(lambda: unary(3, keep=0.5), "UnaryEncoding: 'add'", "got None")
    refuses(lambda: unary(3, keep=1.0, add=0.1), "UnaryEncoding: 'keep'", "got 1.0")
    refuses(lambda: unary(3, keep=0.5, add=0.1, encoding="symmetric"), "UnaryEncoding: 'encoding'", "'symmetric'")
    refuses(lambda: unary(3, keep=0.5, epsilon=1.0), "UnaryEncoding: 'epsilon'", "got 1.0")
    refuses(lambda: unary(3, epsilon=50.0), "UnaryEncoding: 'epsilon' must be at most 30", "got 50.0")
    refuses(lambda: unary(3, epsilon=1.0, encoding="best"), "UnaryEncoding: 'encoding'", "'best'")
    refuses(lambda: unary(3, epsilon=1.0).released([1, 0]), "must be bits, 3 along the last axis", "[1, 0]")
    refuses(lambda: unary(3, epsilon=1.0).released([1, 0, 2]), "must be bits", "[1, 0, 2]")
    refuses(lambda: unary(3, epsilon=1.0).sample(rng, 3), "UnaryEncoding.sample: 'confidential'", "got 3")


def test_large_grids_are_refused_inside_jax_only():
    mechanism = counts(TWO_BITS, 300)
    row = np.array([3, 297, 0, 0])
    assert np.isfinite(mechanism.log_prob(np.array([1, 299, 0, 0]), row))
    with double():
        refuses(lambda: jax.jit(mechanism.log_prob)(row, row), "RandomizedResponse: 'n'", "got 300", "NumPy")


# The reference: a 2 x 2 table of randomised bits --------------------------------------------------------------------


def test_reference_posterior(seed):
    """Reports of independent records are Multinomial(400, share @ channel): no confidential table is needed."""
    channel = np.array(TWO_BITS)
    model = nw.Model(
        prior={"share": dist.Dirichlet(np.ones(4))},
        statistics={"reported": lambda share: dist.Multinomial(400, share @ channel)},
    )
    release = nw.Release(reported=nw.Exact().released(REFERENCE["released"]))
    posterior = nw.sample(model, release, nw.Importance(), draws=120_000, seed=seed)
    summary = posterior.summary()
    for place, (mean, sd) in enumerate(zip(REFERENCE["exact_mean"], REFERENCE["exact_sd"], strict=True)):
        row = summary.loc[f"share[{place}]"]
        # the reference has its own Monte Carlo error and four digits
        error = np.hypot(row["mcse"], REFERENCE["mcse"])
        assert abs(row["mean"] - mean) < LIMIT * error + 5e-5
        values, weight = posterior["share"][:, place], posterior.weights
        terms = (values - row["mean"]) ** 2 - row["sd"] ** 2
        sd_error = np.sqrt(weight**2 @ terms**2) / (2 * sd)
        assert abs(row["sd"] - sd) < LIMIT * np.hypot(sd_error, REFERENCE["mcse"]) + 5e-5
    naive = np.array(REFERENCE["released"]) / 400
    assert np.max(np.abs(naive - REFERENCE["exact_mean"])) > 0.05  # negative control: the noise cannot be ignored


def test_reference_maximum_likelihood():
    released, channel = np.array(REFERENCE["released"]), np.array(TWO_BITS)

    def loss(free):
        share = np.append(free, 1 - free.sum())
        return -released @ np.log(np.maximum(share @ channel, 1e-12))

    found = optimize.minimize(loss, np.full(3, 0.25), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    share = np.append(found.x, 1 - found.x.sum())
    np.testing.assert_allclose(share, REFERENCE["mle"], atol=1e-6)
    # observed information in the three free shares; the fourth by the delta method
    slope = channel[:3] - channel[3]
    information = (slope * (released / (share @ channel) ** 2)) @ slope.T
    covariance = np.linalg.inv(information)
    error = np.sqrt([*np.diag(covariance), covariance.sum()])
    np.testing.assert_allclose(error, REFERENCE["mle_standard_error"], atol=6e-5)
