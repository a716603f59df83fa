"""Releases drawn with OpenDP, OpenDP's measurements against the catalogue's densities, and its summaries."""

import itertools
import json
import math
import subprocess
import sys
from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from exactness import FALSE_ALARM, counts_agree
from mechanism_case import Case
from scipy import stats

import noisewise as nw
from noisewise import curator
from noisewise.mechanisms.affine import Affine
from noisewise.mechanisms.clipped import Clipped
from noisewise.mechanisms.exponential import ExponentialMechanism
from noisewise.mechanisms.noisy_max import PermuteAndFlip
from noisewise.mechanisms.randomized_response import RandomizedResponse
from noisewise.mechanisms.rounded import Rounded
from noisewise.mechanisms.thresholded import Thresholded
from noisewise.mechanisms.top_selection import TopSelection
from noisewise.mechanisms.tulap import Tulap

DRAWS, HALF = 20_000, 10_000
"""As many as the negative controls need, and of the others half as many."""


@pytest.fixture(scope="module")
def dp():
    """OpenDP's namespace."""
    found = pytest.importorskip("opendp.prelude", reason="OpenDP is not installed: python -m pip install opendp")
    found.enable_features("contrib")
    return found


@pytest.fixture
def table():
    return pd.DataFrame(
        {
            "age": [17, 25, 33, 41, 95, 60, 52, 38],
            "income": [1.5, 2.25, 0.0, 12.0, 3.5, -1.0, 4.0, 2.0],
            "region": ["north", "south", "south", "west", "elsewhere", "west", "west", "north"],
            "used": ["no", "yes", "no", "no", "yes", "no", "no", "yes"],
        }
    )


# OpenDP's measurements and their counterparts ------------------------------------------------------------------


def vector(dp, kind, metric):
    atom = dp.atom_domain(T=kind, nan=False) if kind is float else dp.atom_domain(T=kind)
    return dp.vector_domain(atom), metric


FEWER = 3_000
"""Where each takes a call of its own."""


def one_by_one(measurement, value, size=FEWER):
    return np.array([measurement(value) for _ in range(size)])


def shown(measurement, value):
    """Released values of many keys, each with noise of its own; NaN where a key is withheld."""
    keys = [str(index) for index in range(DRAWS)]
    found = measurement(dict.fromkeys(keys, value))
    return np.array([found.get(key, np.nan) for key in keys], dtype=float)


@cache
def laplace(dp):
    return (vector(dp, float, dp.l1_distance(T=float)) >> dp.m.then_laplace(scale=2.0))([3.25] * DRAWS)


def laplace_coarse(dp):
    """Granularity 2^-1: the input is rounded to halves, and so is the noise."""
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=HALF), dp.l1_distance(T=float)
    return (space >> dp.m.then_laplace(scale=2.0, k=-1))([3.5] * HALF)


def gaussian(dp):
    return (vector(dp, float, dp.l2_distance(T=float)) >> dp.m.then_gaussian(scale=1.5))([-7.75] * HALF)


def laplace_on_integers(dp):
    return (vector(dp, int, dp.l1_distance(T=int)) >> dp.m.then_laplace(scale=3.0))([4] * HALF)


def gaussian_on_integers(dp):
    return (vector(dp, int, dp.l2_distance(T=float)) >> dp.m.then_gaussian(scale=2.5))([-3] * HALF)


def geometric(dp):
    return (vector(dp, int, dp.l1_distance(T=int)) >> dp.m.then_geometric(scale=3.0))([4] * HALF)


def geometric_with_bounds(dp):
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    return one_by_one(space >> dp.m.then_geometric(scale=3.0, bounds=(0, 10)), 4)


def laplace_threshold(dp):
    space = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int)), dp.l01inf_distance(dp.absolute_distance(T=int))
    return shown(space >> dp.m.then_laplace_threshold(scale=3.0, threshold=5), 4)


def laplace_threshold_on_floats(dp):
    space = (
        dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=float, nan=False)),
        dp.l01inf_distance(dp.absolute_distance(T=float)),
    )
    return shown(space >> dp.m.then_laplace_threshold(scale=2.0, threshold=5.0), 4.25)


def gaussian_threshold(dp):
    space = (
        dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=float, nan=False)),
        dp.l02inf_distance(dp.absolute_distance(T=float)),
    )
    return shown(space >> dp.m.then_gaussian_threshold(scale=1.5, threshold=5.0), 4.25)


@cache
def gaussian_threshold_on_integers(dp):
    space = (
        dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int)),
        dp.l02inf_distance(dp.absolute_distance(T=int)),
    )
    return shown(space >> dp.m.then_gaussian_threshold(scale=2.5, threshold=5), 4)


def canonical(dp):
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    return one_by_one(space >> dp.m.then_canonical_noise(d_in=2.0, d_out=(0.8, 0.01)), 3.25)


def response_of_bits(dp):
    return one_by_one(dp.m.make_randomized_response_bool(0.7), True)


def response_of_categories(dp):
    words = ["a", "b", "c"]
    measurement = dp.m.make_randomized_response(words, 0.6)
    return np.array([words.index(measurement("b")) for _ in range(FEWER)])


def response_of_bit_vectors(dp):
    """`f` is the share of bits replaced by a fair coin: a bit is kept with probability 1 - f/2."""
    space = dp.bitvector_domain(max_weight=4), dp.discrete_distance()
    measurement, bits = dp.m.make_randomized_response_bitvec(*space, f=0.6), np.packbits([1, 0, 1, 0, 0, 0, 0, 0])
    drawn = [np.frombuffer(measurement(bits.tobytes()), dtype=np.uint8) for _ in range(FEWER)]
    return np.unpackbits(np.array(drawn), axis=1)[:, :3]


SCORES = [0.0, 1.0, 2.0, 1.5]


def scores(dp):
    return vector(dp, float, dp.linf_distance(T=float))


def noisy_max(dp):
    return one_by_one(scores(dp) >> dp.m.then_noisy_max(dp.max_divergence(), scale=1.2), SCORES)


def noisy_max_concentrated(dp):
    return one_by_one(scores(dp) >> dp.m.then_noisy_max(dp.zero_concentrated_divergence(), scale=1.2), SCORES)


def top_k(dp):
    return one_by_one(scores(dp) >> dp.m.then_noisy_top_k(dp.max_divergence(), k=2, scale=1.2), SCORES)


def top_k_concentrated(dp):
    return one_by_one(scores(dp) >> dp.m.then_noisy_top_k(dp.zero_concentrated_divergence(), k=2, scale=1.2), SCORES)


RECORDS, CANDIDATES = [0.5, 1.0, 1.5, 2.5, 2.5], [0.0, 1.0, 2.0, 3.0]


def quantile_scores(share=0.25):
    """Minus |(1 - share) #(x < c) - share #(x > c)|."""
    x, c = np.array(RECORDS), np.array(CANDIDATES)[:, None]
    return -np.abs((1 - share) * (x < c).sum(axis=1) - share * (x > c).sum(axis=1))


def private_quantile(dp, measure=None):
    space = vector(dp, float, dp.symmetric_distance())
    measure = measure or dp.max_divergence()
    found = one_by_one(
        space >> dp.m.then_private_quantile(measure, candidates=CANDIDATES, alpha=0.25, scale=1.5), RECORDS
    )
    return np.searchsorted(CANDIDATES, found)


def private_quantile_concentrated(dp):
    return private_quantile(dp, dp.zero_concentrated_divergence())


BITS = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
PAIRS = np.array([[i, j] for i in range(4) for j in range(4) if i != j])
# The tail of canonical noise is cut off: pieces end there, and at the half steps of its density.
CUT = 2.0 * float(Tulap(0.8, 0.01)._bound(np))
STEPS = [3.25 - CUT, *(3.25 + step for step in range(-29, 30, 2) if abs(step) < CUT), 3.25 + CUT]

COUNTERPARTS = [
    (laplace, nw.Laplace(scale=2.0), 3.25, dict(pieces=((-57.0, 3.25), (3.25, 63.0)))),
    (laplace_coarse, Affine(nw.DiscreteLaplace(scale=4.0), factor=0.5), 7, dict(points=np.arange(-120, 135) / 2)),
    (gaussian, nw.Gaussian(scale=1.5), -7.75, dict(pieces=((-20.0, -7.75), (-7.75, 5.0)))),
    (laplace_on_integers, nw.DiscreteLaplace(scale=3.0), 4, dict(points=np.arange(-96, 105))),
    (gaussian_on_integers, nw.DiscreteGaussian(scale=2.5), -3, dict(points=np.arange(-30, 25))),
    (geometric, nw.DiscreteLaplace(scale=3.0), 4, dict(points=np.arange(-96, 105))),
    (geometric_with_bounds, Clipped(nw.DiscreteLaplace(scale=3.0), 0, 10), 4, dict(points=np.arange(0.0, 11.0))),
    (
        laplace_threshold,
        Thresholded(nw.DiscreteLaplace(scale=3.0), 5, absent_when_zero=True),
        4,
        dict(points=np.append(np.arange(5.0, 105.0), np.nan)),
    ),
    (
        laplace_threshold_on_floats,
        Thresholded(nw.Laplace(scale=2.0), 5.0, absent_when_zero=True),
        4.25,
        dict(pieces=((5.0, 65.0),), atoms=(np.nan,)),
    ),
    (
        gaussian_threshold,
        Thresholded(nw.Gaussian(scale=1.5), 5.0, absent_when_zero=True),
        4.25,
        dict(pieces=((5.0, 18.0),), atoms=(np.nan,)),
    ),
    (
        gaussian_threshold_on_integers,
        Thresholded(nw.DiscreteGaussian(scale=2.5), 5, absent_when_zero=True),
        4,
        dict(points=np.append(np.arange(5.0, 40.0), np.nan)),
    ),
    (canonical, Tulap(0.8, 0.01, sensitivity=2.0), 3.25, dict(pieces=tuple(itertools.pairwise(STEPS)))),
    (response_of_bits, RandomizedResponse(keep=0.7), 1, dict(points=np.arange(2))),
    (response_of_categories, RandomizedResponse(keep=0.6, categories=3), 1, dict(points=np.arange(3))),
    (response_of_bit_vectors, RandomizedResponse(keep=0.7), np.array([1, 0, 1]), dict(points=BITS)),
    (noisy_max, PermuteAndFlip(scale=1.2), SCORES, dict(points=np.arange(4))),
    (noisy_max_concentrated, ExponentialMechanism(scale=1.2), SCORES, dict(points=np.arange(4))),
    (top_k, TopSelection(PermuteAndFlip(scale=1.2), 2), SCORES, dict(points=PAIRS)),
    (top_k_concentrated, TopSelection(ExponentialMechanism(scale=1.2), 2), SCORES, dict(points=PAIRS)),
    (private_quantile, PermuteAndFlip(scale=1.5), quantile_scores(), dict(points=np.arange(4))),
    (private_quantile_concentrated, ExponentialMechanism(scale=1.5), quantile_scores(), dict(points=np.arange(4))),
]


KIN = (laplace_threshold_on_floats, gaussian_threshold, noisy_max_concentrated, top_k_concentrated, private_quantile)
"""Made of what others in the table are made of, in another order."""


@pytest.mark.parametrize(
    ("draw", "mechanism", "confidential", "support"),
    [pytest.param(*row, id=row[0].__name__, marks=[pytest.mark.long] * (row[0] in KIN)) for row in COUNTERPARTS],
)
def test_opendp_draws_follow_our_density(draw, mechanism, confidential, support, dp):
    """OpenDP's random numbers have no seed: each check raises a false alarm with probability 1e-6."""
    case = Case("counterpart", mechanism, np.asarray(confidential), search=None, **support)
    assert case.mass() == pytest.approx(1.0, abs=1e-9)
    assert case.follows(SimpleNamespace(sample=lambda rng, rows: np.asarray(draw(dp))), None)


def test_negative_control_another_scale_is_caught(dp):
    case = Case("control", nw.Laplace(scale=2.2), 3.25, search=None, pieces=((-57.0, 3.25), (3.25, 63.0)))
    assert not case.follows(SimpleNamespace(sample=lambda rng, rows: np.asarray(laplace(dp))), None)


def test_absent_keys_stay_absent(dp):
    space = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int)), dp.l01inf_distance(dp.absolute_distance(T=int))
    assert (space >> dp.m.then_laplace_threshold(scale=3.0, threshold=5))({}) == {}


def test_negative_control_a_strict_threshold_is_caught(dp):
    """A release at the threshold itself is shown: a law that withholds it differs."""
    law = Thresholded(nw.DiscreteGaussian(scale=2.5), 6, absent_when_zero=True)
    case = Case("control", law, np.asarray(4), search=None, points=np.append(np.arange(5.0, 40.0), np.nan))
    draw = SimpleNamespace(sample=lambda rng, rows: gaussian_threshold_on_integers(dp))
    assert not case.follows(draw, None)


def test_float_noise_is_fine_grained(dp):
    """By default noise lies on the multiples of 2^-1074 and the sum is rounded to the nearest float."""
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    tiny = one_by_one(space >> dp.m.then_laplace(scale=1e-300), 0.0, 50)
    assert len(np.unique(tiny)) == 50  # a grid of, say, 2^-40 would give zeros
    coarse = one_by_one(space >> dp.m.then_laplace(scale=1e-18), 1.0, 50)
    assert np.all(coarse == 1.0)  # a change takes noise beyond 5.5e-17, which has probability exp(-55)


# Releases ------------------------------------------------------------------------------------------------------

THREE = dict(kind="histogram", column="region", categories=["north", "south", "west"], allow=["unlisted"])
ADD_REMOVE = {
    "people": dict(kind="count", epsilon=0.5),
    "people_float": dict(kind="count", rho=0.5, mechanism="Gaussian"),
    "users": dict(kind="count", column="used", value="yes", epsilon=0.5),
    "users_float": dict(kind="count", column="used", value="yes", epsilon=0.5, mechanism="Laplace"),
    "years": dict(kind="sum", column="age", bounds=[18, 90], rho=0.1),
    "years_float": dict(kind="sum", column="age", bounds=[18, 90], epsilon=0.1, mechanism="Laplace"),
    "money": dict(kind="sum", column="income", bounds=[0, 10], epsilon=1.0),
    "regions": THREE | dict(rho=0.5),
    "regions_float": THREE | dict(epsilon=0.5, mechanism="Laplace"),
}
REPLACE_ONE = {
    "users": dict(kind="count", column="used", value="yes", rho=0.5),
    "years": dict(kind="sum", column="age", bounds=[18, 90], epsilon=0.5),
    "age": dict(kind="mean", column="age", bounds=[18, 90], rho=0.1),
    "money": dict(kind="mean", column="income", bounds=[0, 10], epsilon=1.0),
    "regions": THREE | dict(epsilon=0.5),
    "use": dict(kind="answers", column="used", categories=["no", "yes"], epsilon=1.1),
    "region": dict(kind="answers", column="region", categories=["north", "south", "west", "elsewhere"], epsilon=2.0),
}


@pytest.mark.quick
def test_a_release_under_add_remove(dp, table):
    release = curator.release(table, ADD_REMOVE)
    found = {name: (type(item.mechanism), item.mechanism.scale) for name, item in release.items()}
    root = 1 / math.sqrt(2 * 0.5)
    assert found["people"] == (nw.DiscreteLaplace, 2.0)
    assert found["people_float"] == (nw.Gaussian, pytest.approx(root, rel=1e-12))
    assert found["users"] == (nw.DiscreteLaplace, 2.0)
    assert found["users_float"] == (
        nw.Laplace,
        pytest.approx(2.0, rel=1e-6),
    )  # OpenDP allows for rounding in float sums
    assert found["years"] == (nw.DiscreteGaussian, pytest.approx(90 / math.sqrt(0.2), rel=1e-12))
    assert found["years_float"] == (nw.Laplace, pytest.approx(900.0, rel=1e-6))
    assert found["money"] == (nw.Laplace, pytest.approx(10.0, rel=1e-6))
    assert found["regions"] == (nw.DiscreteGaussian, pytest.approx(root, rel=1e-12))
    assert found["regions_float"] == (nw.Laplace, 2.0)
    assert release["regions"].shape == (3,)
    for name, item in release.items():
        guarantee = item.mechanism.guarantee
        assert guarantee.neighbours == "add-remove"
        assert getattr(guarantee, "epsilon" if "epsilon" in ADD_REMOVE[name] else "rho") == ADD_REMOVE[name].get(
            "epsilon", ADD_REMOVE[name].get("rho")
        )
    assert nw.Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release


def test_a_release_under_replace_one(dp, table):
    release = curator.release(table, REPLACE_ONE, neighbours="replace-one")
    found = {name: item.mechanism for name, item in release.items()}
    assert found["users"].scale == pytest.approx(1.0)
    assert found["years"].scale == pytest.approx(72 / 0.5)
    assert found["age"].scale == pytest.approx(72 / 8 / math.sqrt(0.2), rel=1e-9)
    assert found["money"].scale == pytest.approx(10 / 8, rel=1e-9)
    assert found["regions"].scale == pytest.approx(2 / 0.5)
    assert found["use"].guarantee.epsilon == pytest.approx(1.1, rel=1e-12)
    assert found["use"].guarantee.epsilon <= 1.1
    assert release["use"].shape == (8,)
    assert np.shape(found["region"].channel) == (4, 4)
    assert {item.guarantee.neighbours for item in found.values()} == {"replace-one"}
    assert nw.Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release


def test_releases_follow_the_law_they_state(dp, table):
    """Count, clamped sums and a mean about their true values; answers as often true as the channel says."""
    frame = dict(table)  # a dict of columns will do
    truth = {"years": 18 + 25 + 33 + 41 + 90 + 60 + 52 + 38, "users": 3, "regions": np.array([2, 2, 3])}
    wanted = {name: ADD_REMOVE[name] for name in truth}
    draws = [curator.release(frame, wanted) for _ in range(25)]
    for name, true in truth.items():
        values = np.array([release[name].value for release in draws])
        mechanism = draws[0][name].mechanism
        simulated = mechanism.sample(np.random.default_rng(1), np.broadcast_to(true, (10_000, *np.shape(true))))
        for column in np.ndindex(np.shape(true)):  # whole distributions: averages of few draws have no normal law
            at = (slice(None), *column)
            assert stats.ks_2samp(values[at], simulated[at]).pvalue > FALSE_ALARM
    money = [
        curator.release(frame, {"money": REPLACE_ONE["money"]}, neighbours="replace-one")["money"].value
        for _ in range(25)
    ]
    law = stats.laplace((1.5 + 2.25 + 0 + 10 + 3.5 + 0 + 4 + 2) / 8, 10 / 8)
    assert stats.kstest(money, law.cdf).pvalue > FALSE_ALARM
    many = {"used": np.repeat(["no", "yes"], 2_000)}
    answers = curator.release(many, {"use": REPLACE_ONE["use"]}, neighbours="replace-one")["use"]
    kept = answers.value == np.repeat([0, 1], 2_000)
    assert counts_agree([kept.sum(), 4_000 - kept.sum()], answers.mechanism.channel[0])


def test_categories_are_compared_as_written(dp):
    """Whole numbers, floats that are whole, and truth values; what is not listed is not counted."""
    data = {"code": [1.0, 2.0, 2.0, np.nan, 7.0], "flag": [True, False, True, True, False]}
    wanted = {
        "codes": dict(kind="histogram", column="code", categories=[1, 2], allow=["unlisted"], epsilon=1e6),
        "flags": dict(kind="count", column="flag", value=True, epsilon=1e6),
    }
    release = curator.release(data, wanted)
    assert release["codes"].value.tolist() == [1, 2]
    assert release["flags"].value == 3


def test_a_release_says_what_its_plan_says(dp, table):
    """Categories label a histogram; bounds are told. A column that cannot name an axis gives no labels."""
    release = curator.release(table, ADD_REMOVE)
    assert release["regions"].coords == {"region": ("north", "south", "west")}
    assert release["years"].about == {"bounds": (18.0, 90.0)}
    assert release["people"].about == {}
    histogram = dict(kind="histogram", categories=["a", "b"], allow=["unlisted", "empty"], epsilon=1.0)
    data = {"home town": ["a", "b"], "letter": ["a", "b"]}
    assert curator.release(data, {"towns": {**histogram, "column": "home town"}})["towns"].coords == {}
    same_name = curator.release(data, {"letter": {**histogram, "column": "letter"}})
    assert same_name["letter"].coords == {}
    others = {**histogram, "column": "letter", "categories": ["b", "c"]}
    two = curator.release(data, {"first": {**histogram, "column": "letter"}, "second": others})
    assert two["first"].coords == two["second"].coords == {}, "one axis has one list of labels"


def test_coarse_floats_carry_their_rounding(dp):
    """Noise far below the value's own resolution: the law says so by `Rounded`."""
    data = {"x": np.full(1_000, 1e12)}
    release = curator.release(
        data, {"x": dict(kind="mean", column="x", bounds=[0, 1e12], epsilon=1e6)}, neighbours="replace-one"
    )
    mechanism = release["x"].mechanism
    assert isinstance(mechanism, Rounded)
    assert mechanism.step == np.spacing(release["x"].value)
    assert mechanism.guarantee.epsilon == 1e6
    assert np.isfinite(mechanism.log_prob(release["x"].value, 1e12))


def test_nothing_confidential_shows(dp, table):
    columns = curator.Table(table)
    assert repr(columns) == "Table(age, income, region, used)"
    entry = dict(kind="answers", column="region", categories=["north", "south", "west"], epsilon=1.0)
    with pytest.raises(nw.InputError) as caught:
        curator.release(table, {"x": entry}, neighbours="replace-one")
    assert "elsewhere" not in str(caught.value)
    with pytest.raises(nw.InputError) as caught:
        curator.release(table, {"x": dict(kind="sum", column="region", bounds=[0, 1], epsilon=1.0)})
    assert "north" not in str(caught.value)


# Refusals ------------------------------------------------------------------------------------------------------

COUNT = dict(kind="count", epsilon=1.0)
SUM = dict(kind="sum", column="age", bounds=[0, 90], epsilon=1.0)
HISTOGRAM = dict(kind="histogram", column="region", categories=["a", "b"], epsilon=1.0)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (3, ["'entry' must be a table; got 3"]),
        ({}, ["'kind' is missing"]),
        (dict(kind="median"), ["'kind' must be one of", "'median'"]),
        (COUNT | dict(colour="x"), ["'colour' is not a key of a count; got 'x'", "Did you mean 'column'?"]),
        (dict(kind="count"), ["'epsilon' or rho must be given, exactly one of them; got []"]),
        (COUNT | dict(rho=1.0), ["exactly one of them; got ['epsilon', 'rho']"]),
        (COUNT | dict(epsilon=-1.0), ["'epsilon' must be positive and finite; got -1.0"]),
        (COUNT | dict(column="age"), ["'value' must come together with column"]),
        (COUNT | dict(mechanism="Cauchy"), ["'mechanism' must be one of 'Laplace'", "'Cauchy'"]),
        (COUNT | dict(mechanism="Gaussian"), ["'epsilon' must be rho for Gaussian; got 1.0"]),
        (dict(kind="count", rho=1.0, mechanism="Laplace"), ["'rho' must be epsilon for Laplace; got 1.0"]),
        (dict(kind="sum", column="age", epsilon=1.0), ["'bounds' is missing for a sum"]),
        (SUM | dict(column=3), ["'column' must be a column's name; got 3"]),
        (SUM | dict(column="aeg"), ["'column' must be a column of the data; got 'aeg'", "Did you mean 'age'?"]),
        (SUM | dict(column="region"), ["'column' must hold numbers; got 'region'"]),
        (SUM | dict(column="gaps"), ["'column' must have no missing values; got 'gaps'"]),
        (SUM | dict(bounds=[3]), ["'bounds' must be two numbers, the lower first; got [3]"]),
        (SUM | dict(bounds=[3, 2]), ["'bounds' must be two numbers, the lower first; got [3, 2]"]),
        (SUM | dict(bounds=["a", 2]), ["'bounds' must be a number"]),
        (SUM | dict(bounds=[0, 1.5], mechanism="DiscreteLaplace"), ["'mechanism' must be Laplace or Gaussian unless"]),
        (SUM | dict(kind="mean"), ["'kind' must be used with neighbours = 'replace-one'"]),
        (HISTOGRAM | dict(kind="answers"), ["'kind' must be used with neighbours = 'replace-one'"]),
        (HISTOGRAM | dict(categories=["a"]), ["'categories' must list at least two different values; got ['a']"]),
        (HISTOGRAM | dict(categories="ab"), ["'categories' must list at least two different values; got 'ab'"]),
        (HISTOGRAM | dict(categories=[1, 1.0]), ["'categories' must list at least two different values"]),
    ],
)
def test_plans_that_cannot_be_honoured(entry, words, table):
    """Refused before OpenDP is called, with or without it."""
    table["gaps"] = [1.0, np.nan] * 4
    with pytest.raises(nw.InputError) as caught:
        curator.release(table, {"it": entry}, where="plan.toml")
    for word in ["plan.toml: statistics.it: ", *words]:
        assert word in str(caught.value)


def test_other_refusals(table):
    with pytest.raises(nw.InputError, match="'neighbours' must be one of"):
        curator.release(table, {"it": COUNT}, neighbours="friends")
    with pytest.raises(nw.InputError, match="'statistics' must be a non-empty table"):
        curator.release(table, {})
    with pytest.raises(nw.InputError, match="must be names"):
        curator.release(table, {"not a name": COUNT})
    with pytest.raises(nw.InputError, match="'kind' must name a column and a value under replace-one"):
        curator.release(table, {"it": COUNT}, neighbours="replace-one")
    entry = dict(kind="answers", column="used", categories=["no", "yes"], rho=1.0)
    with pytest.raises(nw.InputError, match="'rho' must be epsilon for answers"):
        curator.release(table, {"it": entry}, neighbours="replace-one")
    with pytest.raises(nw.InputError, match="'data' must be a pandas table or a dict of columns; got 'list'"):
        curator.release([1, 2], {"it": COUNT})
    with pytest.raises(nw.InputError, match="'data' must have columns of one length"):
        curator.release({"a": [1, 2], "b": [1]}, {"it": COUNT})


def test_masked_columns_are_refused(table):
    """NumPy would drop the mask and add up what it hides."""
    ages = np.ma.masked_array(table["age"], mask=table["age"] > 90)
    with pytest.raises(nw.InputError, match="'data' must not hold masked arrays; got 'age'"):
        curator.release({"age": ages}, {"people": {"kind": "count", "epsilon": 1.0}})


def test_long_float_sums_are_refused(monkeypatch, table):
    """OpenDP would silently leave out records beyond its limit."""
    monkeypatch.setattr(curator.table, "LONGEST_FLOAT_SUM", 7)
    with pytest.raises(nw.InputError, match="must be whole numbers where more than 7"):
        curator.release(table, {"it": dict(kind="sum", column="income", bounds=[0, 10], epsilon=1.0)})


def test_without_opendp_the_message_says_how_to_get_it(monkeypatch, table):
    monkeypatch.setitem(sys.modules, "opendp", None)
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(nw.InputError, match=r"curator: 'opendp' must be installed.*noisewise\[opendp\]"):
        curator.release(table, {"it": COUNT})


# The command ---------------------------------------------------------------------------------------------------

PLAN = """
[statistics.people]
kind = "count"
epsilon = 0.5

[statistics.regions]
kind = "histogram"
column = "region"
categories = ["north", "south", "west"]
allow = ["unlisted"]
rho = 0.5
"""


def run(*arguments, cwd):
    command = [sys.executable, "-m", "noisewise", "release", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120, check=False)


@pytest.mark.long
def test_command(dp, table, tmp_path):
    table.to_csv(tmp_path / "data.csv", index=False)
    (tmp_path / "plan.toml").write_text(PLAN)
    done = run("data.csv", "plan.toml", "--yes", "--out", "published.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "people: DiscreteLaplace (a number), epsilon = 0.5, add-remove" in done.stdout
    assert "regions: DiscreteGaussian (3), rho = 0.5, add-remove" in done.stdout
    release = nw.Release.load(tmp_path / "published.json")
    assert set(release) == {"people", "regions"}
    again = run("data.csv", "plan.toml", "--yes", "--out", "published.json", cwd=tmp_path)
    assert again.returncode == 2
    assert "'out' must be a new file" in again.stderr
    assert nw.Release.load(tmp_path / "published.json") == release


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("plan.toml", None, "release: 'plan' must be an existing file; got 'plan.toml'"),
        ("plan.toml", "[statistics", "plan.toml: not valid TOML"),
        ("plan.toml", "a = 1", "plan.toml: 'a' is not a key of a plan; got 1"),
        ("plan.toml", "", "plan.toml: 'statistics' is missing"),
        ("plan.toml", "neighbours = 'x'\n" + PLAN, "plan.toml: 'neighbours' must be one of"),
        ("plan.toml", PLAN.replace("rho", "sigma"), "plan.toml: statistics.regions: 'sigma' is not a key"),
        (
            "plan.toml",
            PLAN.replace('"region"', '"county"'),
            "statistics.regions: 'column' must be a column of the data",
        ),
        ("data.csv", None, "release: 'data' must be an existing file; got 'data.csv'"),
        (
            "data.csv",
            "",
            "release: 'data' must be a CSV file with a header (nothing in its first line); got 'data.csv'",
        ),
    ],
)
def test_mistakes_in_files(name, content, words, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table.to_csv("data.csv", index=False)
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_text(content)
    with pytest.raises(nw.InputError) as caught:
        curator.release_file("data.csv", "plan.toml")
    assert words in str(caught.value)


# OpenDP's summaries --------------------------------------------------------------------------------------------

# Tables as OpenDP 0.16.0 with polars 1.36.1 printed them for Context queries, as lists of rows.
SELECTED = [
    {"column": "len", "aggregate": "Frame Length", "distribution": "Integer Laplace", "scale": 2.4, "accuracy": 7.638},
    {"column": "age", "aggregate": "Sum", "distribution": "Integer Laplace", "scale": 240.0, "accuracy": 719.475},
    {"column": "inc", "aggregate": "Sum", "distribution": "Float Laplace", "scale": 24.0, "accuracy": 71.898},
]
GROUPED = [
    {"column": "len", "aggregate": "Frame Length", "distribution": "Integer Laplace", "scale": 16.0, "threshold": 281},
    {"column": "income", "aggregate": "Sum", "distribution": "Float Laplace", "scale": 160.0, "threshold": None},
]
CONCENTRATED = [
    {"column": "len", "aggregate": "Frame Length", "distribution": "Integer Gaussian", "scale": 2.0, "threshold": 17.0},
    {"column": "income", "aggregate": "Sum", "distribution": "Float Gaussian", "scale": 28.3, "threshold": math.nan},
]
MEAN = [
    {"column": "mi", "aggregate": "Sum", "distribution": "Float Laplace", "scale": 56.0},
    {"column": "mi", "aggregate": "Length", "distribution": "Integer Laplace", "scale": 5.6},
]
QUANTILE = [{"column": "age", "aggregate": "0.25-Quantile", "distribution": "ExponentialMin", "scale": 16.8}]


@pytest.mark.parametrize("form", [list, pd.DataFrame])
def test_summary_of_a_selection(form):
    release = curator.from_opendp_summary(form(SELECTED), {"len": 103, "age": 4035, "inc": 376.75})
    assert release["len"].mechanism == Clipped(nw.DiscreteLaplace(scale=2.4), low=0)  # unsigned by default
    assert release["age"].mechanism == nw.DiscreteLaplace(scale=240.0)
    assert release["inc"].mechanism == nw.Laplace(scale=24.0)
    assert release["inc"].value == 376.75
    free = curator.from_opendp_summary(form(SELECTED), {"len": -3, "age": 4035, "inc": 376.75}, signed=True)
    assert free["len"].mechanism == nw.DiscreteLaplace(scale=2.4)


def test_types_of_a_frame_say_whether_counts_are_signed():
    values = pd.DataFrame({"len": np.array([103], dtype=np.uint32), "age": [4035], "inc": [376.75]})
    assert isinstance(curator.from_opendp_summary(SELECTED, values)["len"].mechanism, Clipped)
    values["len"] = values["len"].astype(np.int64)
    assert curator.from_opendp_summary(SELECTED, values)["len"].mechanism == nw.DiscreteLaplace(scale=2.4)
    assert curator.from_opendp_summary(SELECTED, values)["len"].shape == ()


def test_summary_with_a_threshold():
    """OpenDP shows groups whose noisy length is above the threshold, that is, at least one more."""
    values = {"len": [300, "suppressed", 401], "income": [1.5, 2.5, 3.5]}
    release = curator.from_opendp_summary(GROUPED, values)
    assert release["len"].mechanism == Thresholded(nw.DiscreteLaplace(scale=16.0), 282, absent_when_zero=True)
    assert np.isnan(release["len"].value).tolist() == [False, True, False]
    assert release["income"].mechanism == nw.Laplace(scale=160.0)
    with pytest.raises(nw.InputError, match="of at least 282"):
        curator.from_opendp_summary(GROUPED, {"len": [281], "income": [1.0]})


def test_summary_of_gaussian_counts():
    release = curator.from_opendp_summary(CONCENTRATED, {"len": [59, 40], "income": [321.5, 123.75]})
    base = release["len"].mechanism
    base = getattr(base, "base", base)
    assert base == nw.DiscreteGaussian(scale=2.0)
    assert release["income"].mechanism == nw.Gaussian(scale=28.3)
    # Whichever law stands there, its density at what was shown is that of the noise.
    expected = nw.DiscreteGaussian(scale=2.0).log_prob(np.array([59, 40]), np.array([57, 41]))
    np.testing.assert_allclose(release["len"].mechanism.log_prob(release["len"].value, np.array([57, 41])), expected)


def test_summary_without_noise_and_with_single_precision():
    rows = [
        {"column": "n", "aggregate": "Frame Length", "distribution": None, "scale": None},
        {"column": "x", "aggregate": "Sum", "distribution": "Float Laplace", "scale": 0.5},
    ]
    value = np.float32(123456.78)
    release = curator.from_opendp_summary(rows, {"n": 100, "x": value})
    assert release["n"].mechanism == nw.Exact()
    assert release["x"].mechanism == Rounded(nw.Laplace(scale=0.5), step=2.0**-7)
    assert release["x"].value == float(value)


@pytest.mark.parametrize(
    ("rows", "values", "words"),
    [
        (MEAN, {"mi": 4.25}, "'mi' must be made of one noisy value"),
        (QUANTILE, {"age": 20}, "'age' must have one of the distributions"),
        (SELECTED, {"len": 103}, "'values' must have every column of the summary; got ['len']. 'age' is missing."),
        ([], {"len": 103}, "'summary' must be a table with at least one row"),
        ([{"column": "len"}], {"len": 103}, "'summary' must have the column 'aggregate'"),
        (SELECTED, {"len": -3, "age": 1, "inc": 2.0}, "Clipped.released: 'value' must be"),
    ],
)
def test_summaries_that_cannot_be_read(rows, values, words):
    with pytest.raises(nw.InputError) as caught:
        curator.from_opendp_summary(rows, values)
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [0, 3])
def test_a_count_that_may_have_been_clamped_at_zero_is_read_so(value):
    """At zero above all: there the release says only that the noisy count was not positive."""
    row = {"column": "len", "aggregate": "Frame Length", "distribution": "Integer Laplace", "scale": 2.0}
    item = curator.from_opendp_summary([row], {"len": value})["len"]
    assert item.mechanism == nw.mechanisms.Clipped(nw.DiscreteLaplace(scale=2.0), low=0)


# OpenDP's measurements as JSON -----------------------------------------------------------------------------------


def numbers(dp, kind, **size):
    atoms = dp.atom_domain(T=kind, nan=False) if kind is float else dp.atom_domain(T=kind)
    return dp.vector_domain(atoms, **size), dp.symmetric_distance()


def number(dp, kind):
    atoms = dp.atom_domain(T=kind, nan=False) if str(kind)[0] == "f" or kind is float else dp.atom_domain(T=kind)
    return atoms, dp.absolute_distance(T=kind)


def answer(dp):
    return dp.m.make_randomized_response(["yes", "no", "unsure"], 0.6)


WRITTEN = {
    "Laplace": (lambda dp: number(dp, float) >> dp.m.then_laplace(scale=2.0), 3.5, nw.Laplace(scale=2.0), 3.5),
    "Gaussian": (lambda dp: number(dp, float) >> dp.m.then_gaussian(scale=2.5), 3.5, nw.Gaussian(scale=2.5), 3.5),
    "single": (
        lambda dp: number(dp, "f32") >> dp.m.then_laplace(scale=0.5),
        123456.78,
        Rounded(nw.Laplace(scale=0.5), step=2.0**-7),
        float(np.float32(123456.78)),
    ),
    "count": (
        lambda dp: numbers(dp, float) >> dp.t.then_count() >> dp.m.then_laplace(scale=2.0),
        103,
        nw.DiscreteLaplace(scale=2.0),
        103,
    ),
    "concentrated": (
        lambda dp: numbers(dp, int) >> dp.t.then_count() >> dp.m.then_gaussian(scale=2.5),
        -3,
        nw.DiscreteGaussian(scale=2.5),
        -3,
    ),
    "words": (
        lambda dp: (
            numbers(dp, str)
            >> dp.t.then_cast_default(TOA=int)
            >> dp.t.then_clamp((0, 9))
            >> dp.t.then_sum()
            >> dp.m.then_laplace(scale=9.0)
        ),
        3,
        nw.DiscreteLaplace(scale=9.0),
        3,
    ),
    "geometric": (
        lambda dp: number(dp, int) >> dp.m.then_geometric(scale=3.0, bounds=(0, 10)),
        10,
        Clipped(nw.DiscreteLaplace(scale=3.0), 0, 10),
        10,
    ),
    "canonical": (
        lambda dp: number(dp, float) >> dp.m.then_canonical_noise(d_in=2.0, d_out=(0.8, 0.01)),
        3.25,
        Tulap(0.8, 0.01, sensitivity=2.0),
        3.25,
    ),
    "coin": (lambda dp: dp.m.make_randomized_response_bool(0.7), True, RandomizedResponse(keep=0.7), 1),
    "answer": (answer, "no", RandomizedResponse(keep=0.6, categories=3), 1),
    "answers": (answer, ["no", "yes"], RandomizedResponse(keep=0.6, categories=3), [1, 0]),
    "bits": (
        lambda dp: dp.m.make_randomized_response_bitvec(
            dp.bitvector_domain(max_weight=4), dp.discrete_distance(), f=0.6
        ),
        [1, 0, 1],
        RandomizedResponse(keep=0.7),
        [1, 0, 1],
    ),
    "selection": (
        lambda dp: scores(dp) >> dp.m.then_noisy_max(dp.max_divergence(), scale=1.2),
        2,
        PermuteAndFlip(scale=1.2),
        2,
    ),
    "selections": (
        lambda dp: scores(dp) >> dp.m.then_noisy_top_k(dp.zero_concentrated_divergence(), k=2, scale=1.2),
        [2, 0],
        TopSelection(ExponentialMechanism(scale=1.2), 2),
        [2, 0],
    ),
    "in other words": (
        lambda dp: dp.c.make_pureDP_to_zCDP(numbers(dp, int) >> dp.t.then_count() >> dp.m.then_laplace(scale=2.0)),
        5,
        nw.DiscreteLaplace(scale=2.0),
        5,
    ),
}


@pytest.mark.parametrize(("make", "value", "mechanism", "kept"), WRITTEN.values(), ids=WRITTEN)
def test_measurements_as_opendp_writes_them(make, value, mechanism, kept, dp):
    item = curator.from_opendp_json(dp.serialize(make(dp)), {"x": value})["x"]
    assert item.mechanism == mechanism
    assert np.array_equal(item.value, kept)


def test_a_composition_has_a_value_for_each_measurement(dp, tmp_path):
    mean = (
        dp.vector_domain(dp.atom_domain(bounds=(0.0, 10.0), nan=False), size=50),
        dp.symmetric_distance(),
    ) >> dp.t.then_mean()
    total = numbers(dp, float, size=50) >> dp.t.then_clamp((0.0, 9.0)) >> dp.t.then_sum()
    parts = [mean >> dp.m.then_laplace(scale=0.4), total >> dp.m.then_laplace(scale=18.0)]
    file = tmp_path / "measurements.json"
    file.write_text(dp.serialize(parts[0]))
    item = curator.from_opendp_json(file, {"mean": 4.5})["mean"]
    assert item.mechanism == nw.Laplace(scale=0.4)
    assert item.about["bounds"] == (0.0, 10.0)
    assert item.about["records"] == 50
    both = [numbers(dp, int) >> dp.t.then_count() >> dp.m.then_laplace(scale=scale) for scale in (1.0, 3.0)]
    release = curator.from_opendp_json(dp.serialize(dp.c.make_composition(both)), {"b": 5, "a": 7})
    assert [(name, int(item.value), item.mechanism.scale) for name, item in release.items()] == [
        ("b", 5, 1.0),
        ("a", 7, 3.0),
    ]
    summed = curator.from_opendp_json(dp.serialize(parts[1]), {"total": 80.0})["total"]
    assert (summed.about["bounds"], summed.about["records"]) == ((0.0, 9.0), 50)


def test_unsigned_counts_stop_at_zero(dp):
    """In OpenDP they do, and so the law that is read has an atom there; signed ones have none."""
    measurement = number(dp, "u32") >> dp.m.then_laplace(scale=3.0)
    item = curator.from_opendp_json(dp.serialize(measurement), {"x": 2})["x"]
    drawn = one_by_one(measurement, 1)
    share = np.exp(item.mechanism.log_prob(0.0, 1.0))
    assert drawn.min() == 0
    assert abs((drawn == 0).mean() - share) < 5.0 * np.sqrt(share * (1 - share) / len(drawn))
    signed = curator.from_opendp_json(dp.serialize(number(dp, "i32") >> dp.m.then_laplace(scale=3.0)), {"x": 2})["x"]
    assert signed.mechanism == nw.DiscreteLaplace(scale=3.0)
    end = curator.from_opendp_json(dp.serialize(number(dp, "i32") >> dp.m.then_laplace(scale=30.0)), {"x": 2**31 - 1})[
        "x"
    ]
    assert end.mechanism == Clipped(nw.DiscreteLaplace(scale=30.0), -(2**31), 2**31 - 1)


SPOILT = {
    "text": (lambda dp: "{", {"x": 1}, "must be JSON text"),
    "no call": (lambda dp: "[1]", {"x": 1}, "must be a call of OpenDP's"),
    "version": (
        lambda dp: dp.serialize(number(dp, int) >> dp.m.then_laplace(scale=1.0)).replace("0.16.", "0.9."),
        {"x": 1},
        "must be of a version that is known; got '0.9.",
    ),
    "values": (lambda dp: dp.serialize(answer(dp)), {"x": "no", "y": "no"}, "one value for each measurement"),
    "category": (lambda dp: dp.serialize(answer(dp)), {"x": "noo"}, "Did you mean 'no'"),
    "grid": (
        lambda dp: dp.serialize(number(dp, float) >> dp.m.then_laplace(scale=1.0, k=-1)),
        {"x": 1.0},
        "must not have a grid of its own (k)",
    ),
    "quantile": (
        lambda dp: dp.serialize(
            numbers(dp, float)
            >> dp.m.then_private_quantile(dp.max_divergence(), candidates=[0.0, 1.0], alpha=0.25, scale=1.5)
        ),
        {"x": 1.0},
        "must be a measurement whose law is known; got 'make_private_quantile'",
    ),
    "least": (
        lambda dp: dp.serialize(scores(dp) >> dp.m.then_noisy_max(dp.max_divergence(), scale=1.0, negate=True)),
        {"x": 1},
        "must select the largest score",
    ),
    "transformation": (
        lambda dp: dp.serialize(numbers(dp, int) >> dp.t.then_count() >> dp.m.then_laplace(scale=1.0)).replace(
            "make_count", "make_counts"
        ),
        {"x": 1},
        "must have transformations that are known; got 'make_counts'",
    ),
    "fraction": (
        lambda dp: dp.serialize(number(dp, int) >> dp.m.then_laplace(scale=1.0)),
        {"x": 1.5},
        "x: DiscreteLaplace.released: 'value' must be",
    ),
}


@pytest.mark.parametrize(("text", "values", "words"), SPOILT.values(), ids=SPOILT)
def test_measurements_that_cannot_be_read(text, values, words, dp):
    with pytest.raises(nw.InputError) as caught:
        curator.from_opendp_json(text(dp), values)
    assert words in str(caught.value)
