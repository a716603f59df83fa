"""Post-processed releases: nests against enumeration in exact fractions and against NumPy, ties, tokens, refusals."""

import math
from fractions import Fraction
from functools import cache
from itertools import pairwise

import jax
import jsonschema
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import agrees, counts_agree
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from targets import brief_rows, briefly

import noisewise as nw
from noisewise.errors import InputError
from noisewise.mechanisms.affine import Affine
from noisewise.mechanisms.clipped import Clipped
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.mechanisms.latent_scale import LatentScale
from noisewise.mechanisms.product import Product
from noisewise.mechanisms.projected import Projected
from noisewise.mechanisms.rounded import Rounded
from noisewise.mechanisms.thresholded import Thresholded
from noisewise.numerics import double
from noisewise.release.schema import current_schema

LAPLACE, GAUSSIAN, DISCRETE = nw.Laplace(scale=2.0), nw.Gaussian(scale=1.5), nw.DiscreteLaplace(scale=3.0)
TOTALS = {"matrix": [[1.0, 1.0, 1.0]], "totals": [15.0]}
KINDS = {"round": Rounded, "clip": Clipped, "withhold": Thresholded, "affine": Affine}


def build(base, steps):
    """A nest from the inside out; numbers are decimals in text, so that fractions are exact."""
    for kind, *arguments in steps:
        base = KINDS[kind](base, *(float(text) for text in arguments))
    return base


def act(steps, x):
    """What the nest does to x, in exact arithmetic; None for what is withheld."""
    for kind, *texts in steps:
        numbers = [Fraction(text) for text in texts]
        if x is None:
            return None
        if kind == "round":
            x = numbers[0] * math.floor(x / numbers[0] + Fraction(1, 2))
        elif kind == "clip":
            x = min(max(x, numbers[0]), numbers[1])
        elif kind == "withhold":
            x = x if x >= numbers[0] else None
        else:
            x = numbers[0] + numbers[1] * x
    return x


NESTS = {
    "ties": [("round", "4")],
    "ties-of-decimals": [("round", "0.4")],
    "ties-where-floats-fail": [("round", "0.56")],
    "between-steps": [("round", "2.5")],
    "clip": [("clip", "-2", "3")],
    "clip-off-the-integers": [("clip", "-1.7", "2.3")],
    "withhold": [("withhold", "2")],
    "withhold-off-the-integers": [("withhold", "1.5")],
    "negative": [("affine", "0.3", "-0.1")],
    "round-clip": [("round", "2"), ("clip", "-3", "4")],
    "clip-round": [("clip", "-3", "5"), ("round", "2")],
    "share-of-49": [("affine", "0", "0.02040816326530612244897959183673"), ("clip", "0", "0.1")],
    "negative-ties": [("affine", "0.5", "-1"), ("round", "2")],
    "negative-decimal-ties": [("affine", "0.3", "-0.1"), ("round", "0.2")],
    "round-negative-clip": [("round", "5"), ("affine", "1", "-0.1"), ("clip", "-0.5", "1.5")],
    "clip-at-a-decimal": [("affine", "0.1", "0.7"), ("clip", "-0.6", "0.8")],
    "withhold-at-a-decimal": [("affine", "0.1", "0.7"), ("withhold", "0.8")],
    "withhold-at-zero": [("affine", "0.3", "-0.1"), ("withhold", "0")],
    "withhold-round": [("withhold", "3"), ("round", "4")],
    "round-withhold": [("round", "4"), ("withhold", "3")],
    "withhold-clip-negative": [("clip", "-2", "6"), ("withhold", "3"), ("affine", "1", "-2")],
    "withhold-twice": [("withhold", "1"), ("affine", "0", "-1"), ("withhold", "-5")],
    "clip-withheld": [("withhold", "-1"), ("clip", "0", "4")],
    "never-withheld": [("clip", "2", "6"), ("withhold", "1")],
    "six-deep": [
        ("affine", "0.5", "-0.5"),
        ("round", "0.3"),
        ("clip", "-2.1", "2"),
        ("affine", "0", "10"),
        ("withhold", "-12"),
        ("round", "7"),
    ],
}
every_nest = pytest.mark.parametrize("steps", NESTS.values(), ids=NESTS)
SOME = ["ties-where-floats-fail", "clip-off-the-integers", "share-of-49", "negative-decimal-ties", "six-deep"]
SOME += ["round-negative-clip", "withhold-clip-negative", "withhold-twice"]
some_nests = pytest.mark.parametrize("steps", brief_rows({name: [steps] for name, steps in NESTS.items()}, SOME))


@cache
def _enumerated(steps, s):
    found = {}
    for x in range(s - 110, s + 111):
        key = act(steps, Fraction(x))
        found[key] = found.get(key, 0.0) + math.tanh(1 / 6.0) * math.exp(-abs(x - s) / 3.0)
    return found


def enumerated(steps, s):
    """{released value or None: probability} for integer noise, by summing over all of it but 1e-15."""
    return _enumerated(tuple(steps), s)


@every_nest
@pytest.mark.parametrize("s", briefly([-3, 0, 5], [-3]))
def test_nests_on_the_integers_match_enumeration(steps, s):
    mechanism = build(DISCRETE, steps)
    truth = enumerated(steps, s)
    for key, probability in truth.items():
        value = mechanism.released("suppressed" if key is None else float(key)).value
        assert math.exp(mechanism.log_prob(value, s)) == pytest.approx(probability, rel=1e-9, abs=1e-15), key
        assert mechanism.log_prob(value, s) <= mechanism.log_sup(value) + 1e-12
    if None not in truth and mechanism.suppresses:
        assert mechanism.log_prob(np.nan, s) == -np.inf


@some_nests
def test_nests_on_the_integers_have_exact_suprema(steps):
    """Over many whole confidential values: never exceeded, and reached or neared."""
    mechanism = build(DISCRETE, steps)
    rows = np.arange(-400, 401)
    for key in list(enumerated(steps, -3))[::3]:
        value = mechanism.released("suppressed" if key is None else float(key)).value
        assert mechanism.log_prob(value, rows).max() == pytest.approx(mechanism.log_sup(value), abs=1e-9)


@some_nests
def test_nests_on_the_integers_sample_what_they_say(steps, seed):
    """Draws take exactly the values of the law, rounding errors included, and with its probabilities."""
    mechanism = build(DISCRETE, steps)
    values = [mechanism.released("suppressed" if key is None else float(key)).value for key in enumerated(steps, -3)]
    drawn = mechanism.sample(np.random.default_rng(seed), np.full(30_000, -3))
    counts = [np.sum(np.isnan(drawn) if np.isnan(value) else drawn == value) for value in values]
    probabilities = np.exp([mechanism.log_prob(value, -3) for value in values])
    assert counts_agree([*counts, len(drawn) - sum(counts)], [*probabilities, max(1 - sum(probabilities), 0.0)])


NESTS_IN_JAX = ["ties-where-floats-fail", "negative-decimal-ties", "withhold-twice", "six-deep"]


@pytest.mark.parametrize("name", briefly(NESTS_IN_JAX, ["ties-where-floats-fail", "six-deep"]))
def test_nests_agree_in_jax(name):
    mechanism = build(DISCRETE, NESTS[name])
    rows = np.arange(-9, 10)
    values = np.array([np.nan if key is None else float(key) for key in enumerated(NESTS[name], 1)])[:, None]
    with double():
        found = jax.jit(lambda m, r, c: (m.log_prob(r, c), m.log_sup(r)))(mechanism, values, rows)
        np.testing.assert_allclose(np.asarray(found[0]), mechanism.log_prob(values, rows), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(np.asarray(found[1]), mechanism.log_sup(values), rtol=1e-10, atol=1e-10)


@some_nests
@pytest.mark.parametrize("base", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
def test_nests_of_densities_match_plain_numpy(base, steps, seed):
    """Intervals against draws that plain NumPy has post-processed."""
    rng = np.random.default_rng(seed)
    mechanism = build(base, steps)
    x = base.sample(rng, np.full(50_000, 1.3))
    for kind, *texts in steps:
        numbers = [float(text) for text in texts]
        if kind == "round":
            x = np.floor(x / numbers[0] + 0.5) * numbers[0]
        elif kind == "clip":
            x = np.clip(x, *numbers)
        elif kind == "withhold":
            x[x < numbers[0]] = np.nan
        else:
            x = numbers[0] + numbers[1] * x
    edges = [-np.inf, *(np.quantile(x[~np.isnan(x)], [0.2, 0.4, 0.6, 0.8]) + 1e-3), np.inf]
    counts, probabilities = [np.isnan(x).sum()], [0.0]
    if mechanism.suppresses:
        probabilities = [np.exp(mechanism.log_prob(np.nan, 1.3))]
    for low, high in pairwise(edges):
        counts.append(np.sum((x >= low) & (x < high)))
        probabilities.append(np.exp(mechanism.log_interval(low, high, 1.3)))
        assert mechanism.log_interval(low, high, 1.3) <= mechanism.log_sup_interval(low, high) + 1e-12
    assert sum(probabilities) == pytest.approx(1.0, abs=1e-12)
    assert counts_agree(counts, probabilities)


@pytest.mark.parametrize("base", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("steps", [NESTS["ties"], NESTS["clip-round"], NESTS["round-negative-clip"]])
def test_suprema_of_densities_by_search(base, steps, seed):
    mechanism = build(base, steps)
    for value in np.unique(mechanism.sample(np.random.default_rng(seed), np.full(50, 1.3)))[:6]:
        rows = np.append(np.linspace(-300.0, 300.0, 6001), [1e300, -1e300])
        found = mechanism.log_prob(value, rows)
        assert found.max() <= mechanism.log_sup(value) + 1e-12
        best = rows[np.argmax(found)]
        if abs(best) < 300.0:  # sharpen what the grid found
            around = (best - 0.2, best + 0.2)
            best = minimize_scalar(
                lambda s, value=value: -mechanism.log_prob(value, s), bounds=around, method="bounded"
            ).x
        assert mechanism.log_prob(value, best) == pytest.approx(mechanism.log_sup(value), abs=1e-6)


# Closed forms and extremes --------------------------------------------------------------------------------------------


def test_rounded_is_a_difference_of_distribution_functions():
    s = np.array([-3.0, 0.2, 7.7])
    truth = stats.norm.cdf(4.5, s, 1.5) - stats.norm.cdf(1.5, s, 1.5)
    np.testing.assert_allclose(np.exp(Rounded(GAUSSIAN, 3.0).log_prob(3.0, s)), truth, rtol=1e-12)


def test_clipped_has_atoms_and_a_density():
    mechanism = Clipped(GAUSSIAN, 0.0, 2.0)
    assert mechanism.measure == "mixed"
    assert mechanism.log_prob(0.0, 0.7) == pytest.approx(stats.norm.logcdf(0.0, 0.7, 1.5), rel=1e-12)
    assert mechanism.log_prob(2.0, 0.7) == pytest.approx(stats.norm.logsf(2.0, 0.7, 1.5), rel=1e-12)
    assert mechanism.log_prob(1.0, 0.7) == pytest.approx(stats.norm.logpdf(1.0, 0.7, 1.5), rel=1e-12)
    assert mechanism.log_prob(2.1, 0.7) == mechanism.log_prob(-0.1, 0.7) == -np.inf
    assert mechanism.log_sup(0.0) == mechanism.log_sup(2.0) == 0.0


def test_affine_scales_densities_and_leaves_probabilities():
    s = np.array([0.0, 1.25])
    np.testing.assert_allclose(
        Affine(LAPLACE, 1.0, -4.0).log_prob(3.0, s), stats.laplace.logpdf(-0.5, s, 2) - np.log(4)
    )
    np.testing.assert_array_equal(
        Affine(DISCRETE, 1.0, -4.0).log_prob(9, np.arange(3)), DISCRETE.log_prob(-2, np.arange(3))
    )
    clipped = Affine(Clipped(LAPLACE, 0.0, 10.0), 0.0, 2.0)
    np.testing.assert_allclose(clipped.log_prob(20.0, s), stats.laplace.logsf(10.0, s, 2.0), rtol=1e-12)
    np.testing.assert_allclose(clipped.log_prob(6.0, s), stats.laplace.logpdf(3.0, s, 2.0) - np.log(2.0), rtol=1e-12)
    assert Affine(DISCRETE, 0.0, 0.1).log_prob(0.55, 5) == -np.inf


@pytest.mark.parametrize("size", [1e-8, 1e8])
def test_laws_are_the_same_in_any_unit(size):
    rows = np.array([-1.0, 0.0, 0.3, 4.0, 60.0])
    for kind in (nw.Laplace, nw.Gaussian):
        unit, other = kind(scale=1.0), kind(scale=size)
        np.testing.assert_allclose(
            Rounded(other, size).log_prob(2 * size, rows * size), Rounded(unit, 1).log_prob(2, rows)
        )
        here, there = Clipped(other, -size, 2 * size), Clipped(unit, -1, 2)
        for end in (-1, 2):
            np.testing.assert_allclose(here.log_prob(end * size, rows * size), there.log_prob(end, rows), atol=1e-12)
        here, there = Thresholded(other, 2 * size), Thresholded(unit, 2)
        np.testing.assert_allclose(here.log_prob(np.nan, rows * size), there.log_prob(np.nan, rows), atol=1e-12)


def test_far_tails():
    # exp(-(z - 1/2)) - exp(-(z + 1/2)), halved
    z = 1e5
    truth = -z + np.log(np.sinh(0.5))
    assert Rounded(nw.Laplace(scale=1.0), 1.0).log_prob(z, 0.0) == pytest.approx(truth, rel=1e-12)
    assert Rounded(nw.Laplace(scale=1.0), 1.0).log_prob(-z, 0.0) == pytest.approx(truth, rel=1e-12)
    z = 450.0  # relative to the density at the near edge
    inside = quad(lambda t: np.exp(-t * (z - 0.5) - t * t / 2), 0.0, 1.0, epsabs=0.0, limit=200, points=[0.01])[0]
    truth = stats.norm.logpdf(z - 0.5) + np.log(inside)
    assert truth < -1e5
    for sign in (1, -1):
        assert Rounded(nw.Gaussian(scale=1.0), 1.0).log_prob(sign * z, 0.0) == pytest.approx(truth, rel=1e-12)
    assert Clipped(nw.Gaussian(scale=1.0), 0.0).log_prob(0.0, 450.0) == pytest.approx(
        stats.norm.logcdf(-450.0), rel=1e-12
    )
    for mechanism in (Rounded(GAUSSIAN, 1.0), Clipped(GAUSSIAN, 0.0, 1.0), Thresholded(Rounded(GAUSSIAN, 1.0), 0.0)):
        with np.errstate(over="ignore"):
            found = mechanism.log_prob(np.array([0.0, 1.0])[:, None], np.array([1e200, -1e200, 1e300, -1e300]))
        assert not np.isnan(found).any()


def test_fine_steps_far_from_zero():
    """Cents on thousands of millions: the width of the cell is not lost, and the supremum is not exceeded."""
    rows = 1e9 + np.linspace(-3e5, 3e5, 2001)
    for mechanism, tolerance in (
        (Rounded(nw.Laplace(scale=1e5), 0.01), 1e-8),
        (Rounded(Affine(nw.Laplace(scale=1e5), 3.0, 1.0), 0.01), 1e-4),  # measured from zero: digits go
        (Rounded(Clipped(nw.Laplace(scale=1e5), 0.0), 0.01), 1e-4),
    ):
        released = mechanism.released(1e9).value
        shift = 3.0 if isinstance(mechanism.base, Affine) else 0.0
        found = mechanism.log_prob(released, rows)
        truth = stats.laplace.logpdf(1e9 - shift, rows, 1e5) + np.log(0.01)
        np.testing.assert_allclose(found, truth, atol=tolerance)
        assert found.max() <= mechanism.log_sup(released)


def test_suprema_with_absent_when_zero():
    mechanism = Thresholded(DISCRETE, 2.0, absent_when_zero=True)
    assert mechanism.log_prob(np.nan, 0) == mechanism.log_sup(np.nan) == 0.0
    assert mechanism.log_prob(3.0, 0) == -np.inf
    np.testing.assert_array_equal(mechanism.log_prob(3.0, np.array([1, 2])), DISCRETE.log_prob(3, np.array([1, 2])))
    np.testing.assert_array_equal(np.isnan(mechanism.sample(np.random.default_rng(1), np.zeros(100))), True)
    rounded = Rounded(mechanism, 4.0)
    assert rounded.log_prob(4.0, 0) == -np.inf
    assert rounded.log_prob(np.nan, 0) == 0.0
    assert rounded.log_prob(4.0, np.arange(1, 20)).max() == pytest.approx(rounded.log_sup(4.0))


# Shapes -------------------------------------------------------------------------------------------------------------


def test_parameters_by_entry():
    mechanism = Clipped(Rounded(nw.Laplace(scale=[1.0, 2.0]), [0.5, 2.0]), [0.0, -4.0], [3.0, 4.0])
    together = mechanism.log_prob(np.array([1.5, 4.0]), np.array([[1.0, 2.0], [0.0, 9.0]]))
    for column, (scale, step, low, high, value) in enumerate([(1.0, 0.5, 0.0, 3.0, 1.5), (2.0, 2.0, -4.0, 4.0, 4.0)]):
        alone = Clipped(Rounded(nw.Laplace(scale=scale), step), low, high)
        rows = np.array([[1.0, 2.0], [0.0, 9.0]])[:, column]
        np.testing.assert_allclose(together[:, column], alone.log_prob(value, rows))
    with pytest.raises(InputError, match=r"Clipped\.released.*'scale' of shape \(2,\)"):
        mechanism.released(1.5)
    with pytest.raises(InputError, match=r"Clipped\.released.*'low' of shape \(2,\)"):
        Clipped(LAPLACE, [0.0, -4.0]).released(1.5)
    with pytest.raises(InputError, match=r"Rounded\.released.*'scale' of shape \(2,\)"):
        Rounded(nw.Laplace(scale=[1.0, 2.0]), 0.5).released([1.0, 1.0, 1.0])


def test_a_wrapped_mechanism_may_read_a_latent_scale():
    mechanism = Affine(LatentScale(nw.Laplace(scale=1.0), "spread", 0.5), 1.0, 2.0)
    assert mechanism.inputs == ("spread",)
    truth = stats.laplace.logpdf(2.0, 1.5, 3.0) - np.log(2.0)
    assert mechanism.log_prob(5.0, 1.5, spread=3.0) == pytest.approx(truth)
    assert Product([mechanism, LAPLACE]).log_prob(np.array([5.0, 0.0]), np.array([1.5, 0.0]), spread=3.0)[0] == (
        pytest.approx(truth)
    )


@pytest.mark.parametrize("noise", [nw.Laplace(scale=1.0), nw.Gaussian(scale=1.0)], ids=repr)
def test_noise_with_a_latent_scale_can_be_rounded_clipped_and_withheld(noise, seed):
    latent = LatentScale(noise, "spread", 0.5)
    law = {nw.Laplace: stats.laplace, nw.Gaussian: stats.norm}[type(noise)]
    rounded, clipped, withheld = Rounded(latent, 2.0), Clipped(latent, -1.0, 3.0), Thresholded(latent, 2.0)
    compiled = jax.jit(lambda m, s, t: m.log_prob(2.0, s, spread=t))
    for s, spread in ((1.5, 3.0), (-0.2, 0.1), (40.0, 2.0)):
        scale = max(spread, 0.5)
        wanted = np.log(law.cdf(3.0, s, scale) - law.cdf(1.0, s, scale))
        assert rounded.log_prob(2.0, s, spread=spread) == pytest.approx(wanted, abs=1e-8)
        assert clipped.log_prob(-1.0, s, spread=spread) == pytest.approx(law.logcdf(-1.0, s, scale))
        assert clipped.log_prob(3.0, s, spread=spread) == pytest.approx(law.logsf(3.0, s, scale), abs=1e-12)
        assert withheld.log_prob(np.nan, s, spread=spread) == pytest.approx(law.logcdf(2.0, s, scale))
        with double():
            traced = compiled(rounded, s, spread)
        assert float(traced) == pytest.approx(rounded.log_prob(2.0, s, spread=spread), abs=1e-10)
    rng = np.random.default_rng(seed)
    s, spread = 2.0 + 3.0 * rng.standard_cauchy(5_000), np.append(0.1, np.abs(rng.standard_cauchy(4_999)))
    s[0], spread[1] = 2.0, np.inf
    assert rounded.log_prob(2.0, s, spread=spread).max() == pytest.approx(rounded.log_sup(2.0), abs=1e-12)
    assert clipped.log_prob(3.0, s, spread=spread).max() <= clipped.log_sup(3.0)
    drawn = rounded.sample(rng, np.full(100_000, 1.5), spread=np.full(100_000, 3.0))
    values, counts = np.unique(drawn, return_counts=True)
    assert counts_agree(counts, np.exp(rounded.log_prob(values, 1.5, spread=3.0)))


# Released values and files ------------------------------------------------------------------------------------------


def test_released_values_lose_rounding_errors():
    assert Rounded(LAPLACE, 0.1).released(0.1 + 0.2).value == 0.1 * 3
    assert Clipped(Affine(DISCRETE, 0.0, 1 / 49), 0.0, 1.0).released(49 * (1 / 49)).value == 1.0
    assert Affine(DISCRETE, 0.3, -0.1).released(0.0).value == 0.3 - 0.1 * 3
    assert isinstance(Rounded(LAPLACE, 5.0).released(10).value, float)


@pytest.mark.parametrize(
    ("mechanism", "value", "message"),
    [
        (Rounded(LAPLACE, 5.0), 12.0, r"Rounded\.released: 'value' must be multiples of 5; got 12\.0"),
        (Rounded(LAPLACE, 5.0), [10.0, 12.5], r"must be multiples of 5; got \[10\.0, 12\.5\]"),
        (Rounded(LAPLACE, 5.0), np.nan, "must be finite; got nan"),
        (Rounded(LAPLACE, 5.0), "suppressed", "must be a number or an array of numbers; got 'suppressed'"),
        (Clipped(LAPLACE, 0.0, 3.0), 3.5, r"Clipped.* must be 0\.0, 3\.0, or numbers between them; got 3\.5"),
        (Clipped(DISCRETE, 0.0, 3.0), 1.5, r"must be 0\.0, 3\.0, or whole numbers between them; got 1\.5"),
        (Clipped(LAPLACE, high=3.0), 3.5, r"must be 3\.0, or numbers below it; got 3\.5"),
        (Clipped(Rounded(LAPLACE, 2.0), 1.0), 3.0, r"must be 1\.0, or multiples of 2 above it; got 3\.0"),
        (Thresholded(LAPLACE, 3.0), 2.5, r"must be 'suppressed', or numbers of at least 3\.0; got 2\.5"),
        (Thresholded(LAPLACE, 3.0), "missing", r"must be a number .* got 'missing'\. Give .* or 'suppressed'\."),
        (Thresholded(LAPLACE, 3.0), [4.0, None], r"must be a number .* got \[4\.0, None\]"),
        (Thresholded(LAPLACE, 3.0), [[4.0], [1.0, 2.0]], "must be a number"),
        (Thresholded(Clipped(LAPLACE, 5.0), 3.0), "suppressed", "must be 'suppressed', or .* got 'suppressed'"),
        (Rounded(Thresholded(LAPLACE, 3.0), 2.0), 2.0, r"must be multiples of 2; got 2\.0"),
        (Affine(DISCRETE, 1.0, 2.0), 4.0, r"Affine.* must be 1\.0 \+ 2\.0 times whole numbers; got 4\.0"),
        (Projected(1.0, **TOTALS), [1.0, 2.0, 3.0], r"must meet the totals \[15\.0\] .* not \[6\.0\]; got"),
        (Projected(1.0, **TOTALS), [15.0, 0.0], "must have 3 entries along its last axis"),
        (Projected(1.0, **TOTALS), [np.inf, 0.0, 0.0], "must be finite"),
        (Product([LAPLACE, DISCRETE]), [1.0, 2.5], r"entry 1: DiscreteLaplace\.released: .* must be whole numbers"),
        (Product([LAPLACE, DISCRETE]), [1.0], "must have 2 entries along its last axis"),
        (Product([LAPLACE, DISCRETE]), 1.0, "must have 2 entries along its last axis"),
    ],
)
def test_impossible_values_are_refused(mechanism, value, message):
    with pytest.raises(InputError, match=message):
        mechanism.released(value)


def same(first, second):
    """Equal releases; NaN equals NaN."""
    return first.to_dict() == second.to_dict()


@pytest.mark.parametrize(
    "item",
    [
        Thresholded(LAPLACE, 3.0).released("suppressed"),
        Thresholded(LAPLACE, 3.0).released([4.5, "suppressed", 3.0]),
        Thresholded(LAPLACE, 3.0).released(np.array([[4.5, np.nan], [3.0, 8.0]])),
        Rounded(Thresholded(LAPLACE, 3.0, absent_when_zero=True), 2.0).released(["suppressed", 4.0]),
        Clipped(LAPLACE, high=[3.0, 4.0]).released([3.0, 1.0]),
        Product([LAPLACE, Thresholded(DISCRETE, 2.0)]).released([[1.5, "suppressed"], [2.5, 7]]),
        Projected(rho=0.5, sensitivity=1.0, **TOTALS).released([5.5, 4.5, 5.0]),
    ],
    ids=lambda item: type(item.mechanism).__name__,
)
def test_files(item, tmp_path):
    release = nw.Release(x=item)
    jsonschema.Draft202012Validator(current_schema()).validate(release.to_dict())
    release.save(tmp_path / "release.json")
    again = nw.Release.load(tmp_path / "release.json")
    assert same(again, release)
    assert again.hash == release.hash
    np.testing.assert_array_equal(again["x"].value, item.value)
    assert again["x"].mechanism.guarantee == item.mechanism.guarantee
    assert not np.shape(item.value) or not again["x"].value.flags.writeable


def test_the_token_in_files():
    release = nw.Release(x=Product([LAPLACE, Thresholded(DISCRETE, 2.0)]).released([1.5, "suppressed"]))
    assert release.to_dict()["statistics"]["x"]["value"] == [1.5, "suppressed"]
    assert np.isnan(release["x"].value[1])


# Guarantees, refusals -----------------------------------------------------------------------------------------------


def test_guarantees_are_taken_over():
    noise = nw.Laplace(epsilon=0.5, sensitivity=1.0)
    for mechanism in (Rounded(noise, 1.0), Clipped(noise, 0.0), Thresholded(noise, 2.0), Affine(noise, 1.0, 2.0)):
        assert mechanism.guarantee == noise.guarantee
        assert not mechanism.integers
    assert Rounded(DISCRETE, 2.0).integers
    # whether a key is there at all depends on the data: not post-processing of the noisy count
    assert Thresholded(noise, 2.0, absent_when_zero=True).guarantee is None
    both = Product([noise, Rounded(nw.Laplace(epsilon=0.25, sensitivity=3.0), 1.0)])
    assert both.guarantee == Guarantee(epsilon=0.75)
    assert Product([noise, LAPLACE]).guarantee is None
    assert Product([noise, nw.Gaussian(rho=0.5, sensitivity=1.0)]).guarantee is None
    projected = Projected(rho=0.5, sensitivity=1.0, **TOTALS)
    assert projected.scale == 1.0
    assert projected.guarantee == nw.Gaussian(rho=0.5, sensitivity=1.0).guarantee


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rounded(2.0, 1.0), r"Rounded: 'base' must be a mechanism; got 2\.0"),
        (lambda: Clipped(nw.Exact(), 0.0), r"Clipped: 'base' must be noise whose intervals .* got Exact\(\)"),
        (lambda: Thresholded(Product([LAPLACE]), 0.0), "Thresholded: 'base' must be noise whose intervals"),
        (lambda: Rounded(Projected(1.0, **TOTALS), 1.0), "'base' must act entry by entry, since joint noise"),
        (lambda: Affine(Projected(1.0, **TOTALS)), "Affine: 'base' must act entry by entry"),
        (lambda: Affine(nw.Exact()), "Affine: 'base' must release numbers by a density or on the integers"),
        (lambda: Rounded(LAPLACE, 0.0), r"Rounded: 'step' must be positive and finite; got 0\.0"),
        (lambda: Rounded(LAPLACE, [1.0, -1.0]), "Rounded: 'step' must be positive"),
        (lambda: Clipped(LAPLACE), "Clipped: 'low' must be given, or high; got None"),
        (lambda: Clipped(LAPLACE, -np.inf, np.inf), "Clipped: 'low' must be given"),
        (lambda: Clipped(LAPLACE, 3.0, 3.0), r"Clipped: 'low' must be below high=3\.0; got 3\.0"),
        (lambda: Clipped(LAPLACE, np.nan), "Clipped: 'low' must be finite, or -inf throughout; got nan"),
        (lambda: Clipped(LAPLACE, [-np.inf, 0.0]), "Clipped: 'low' must be finite, or -inf throughout"),
        (lambda: Clipped(LAPLACE, [0.0, 0.0], [1.0, 1.0, 1.0]), "Clipped: 'high' must have the shape of low"),
        (lambda: Clipped(LAPLACE, "zero"), "Clipped: 'low' must be a number .* got 'zero'"),
        (lambda: Thresholded(LAPLACE, np.inf), "Thresholded: 'threshold' must be finite; got inf"),
        (lambda: Thresholded(LAPLACE, 1.0, 1), "Thresholded: 'absent_when_zero' must be True or False; got 1"),
        (lambda: Thresholded(LAPLACE, 0.0, True), r"'threshold' must be positive with absent_when_zero; got 0\.0"),
        (lambda: Thresholded(Rounded(Affine(LAPLACE), 1.0), 1.0, True), "'base' must not hold an Affine with absent"),
        (lambda: Affine(LAPLACE, 0.0, 0.0), r"Affine: 'factor' must be finite and not zero; got 0\.0"),
        (lambda: Affine(LAPLACE, np.inf), "Affine: 'shift' must be finite; got inf"),
        (lambda: Projected([1.0, 2.0, 3.0], **TOTALS), r"Projected: 'scale' must be one number; got \[1\.0"),
        (lambda: Projected(-1.0, **TOTALS), r"Projected: 'scale' must be positive and finite; got -1\.0"),
        (lambda: Projected(**TOTALS), "Projected: 'scale' must be given when there is no budget"),
        (lambda: Projected(1.0, [1.0, 1.0], [3.0]), "Projected: 'matrix' must be a table of finite numbers"),
        (lambda: Projected(1.0), "Projected: 'matrix' must be a number or an array of numbers; got None"),
        (lambda: Projected(1.0, [[1.0, 1.0]], [3.0, 4.0]), r"Projected: 'totals' must be 1 finite numbers"),
        (lambda: Projected(1.0, [[0.0, 0.0]], [0.0]), "Projected: 'matrix' must have no row of zeros"),
        (
            lambda: Projected(1.0, [[1.0, 1.0], [1.0, 0.0]], [3.0, 4.0]),
            "Projected: 'matrix' must leave something unknown",
        ),
        (lambda: Projected(1.0, [[1.0, 1.0], [2.0, 2.0]], [3.0, 7.0]), "Projected: 'totals' must not contradict"),
        (lambda: Product([]), r"Product: 'parts' must be a non-empty list of mechanisms; got \[\]"),
        (lambda: Product(LAPLACE), "Product: 'parts' must be a non-empty list of mechanisms; got Laplace"),
        (lambda: Product([LAPLACE, 2.0]), r"Product: 'parts\[1\]' must be a mechanism; got 2\.0"),
        (lambda: Product([Projected(1.0, **TOTALS)]), r"Product: 'parts\[0\]' must act on a single number; this one"),
        (lambda: Product([nw.Laplace(scale=[1.0, 2.0])]), r"'parts\[0\]' must act on a single number, with single"),
        (lambda: Product([Product([LAPLACE])]), r"'parts\[0\]' must act on a single number"),
    ],
)
def test_bad_arguments_are_refused_with_the_reason(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_infinite_bounds_are_absent():
    assert Clipped(LAPLACE, -np.inf, 3.0) == Clipped(LAPLACE, high=3.0)
    assert Clipped(LAPLACE, 0.0, np.inf).high is None


def test_integer_noise_asks_for_counts():
    model = nw.Model(prior={"mu": dist.Normal(0.0, 1.0)}, statistics={"x": lambda mu: dist.Normal(mu, 1.0)})
    with pytest.raises(InputError, match=r"has integer noise \(Rounded\)"):
        nw.sample(model, nw.Release(x=Rounded(DISCRETE, 2.0).released(4)), draws=10, seed=1)


# Projected ----------------------------------------------------------------------------------------------------------


def test_projected_is_the_projection_of_gaussian_noise(seed):
    matrix = np.array([[1.0, 2.0, 0.0, -1.0], [0.0, 1.0, 1.0, 1.0]])
    s = np.array([1.0, 2.0, 3.0, 4.0])
    mechanism = Projected(0.7, matrix, matrix @ s)
    drawn = mechanism.sample(np.random.default_rng(seed), np.broadcast_to(s, (5, 4)))
    np.testing.assert_allclose(drawn @ matrix.T, np.broadcast_to(matrix @ s, (5, 2)), atol=1e-12)
    # the noise, projected by normal equations
    noise = 0.7 * np.random.default_rng(seed).standard_normal((5, 4))
    projected = noise - noise @ matrix.T @ np.linalg.inv(matrix @ matrix.T) @ matrix
    np.testing.assert_allclose(drawn, s + projected, atol=1e-12)
    # the density on an orthonormal basis of the null space
    basis = np.linalg.svd(matrix)[2][2:]
    truth = stats.multivariate_normal(np.zeros(2), 0.49 * np.eye(2)).logpdf((drawn - s) @ basis.T)
    np.testing.assert_allclose(mechanism.log_prob(drawn, s), truth)
    assert mechanism.log_prob(drawn[0], s + 0.01) == -np.inf
    assert mechanism.log_prob(drawn[0] + 0.01, s) == -np.inf
    assert mechanism.dimension == 2


def test_projected_drops_totals_that_follow_from_others():
    """The margins of a 2 x 3 table: five totals, four of them independent."""
    rows = np.kron(np.eye(2), np.ones(3))
    columns = np.kron(np.ones(2), np.eye(3))
    table = np.arange(6.0)
    matrix = np.vstack([rows, columns])
    mechanism = Projected(1.0, matrix, matrix @ table)
    assert mechanism.dimension == 2
    assert mechanism.matrix.shape == (4, 6)
    assert mechanism.log_sup(table) == pytest.approx(-np.log(2 * np.pi))
    assert not mechanism.matrix.flags.writeable


@pytest.mark.parametrize("size", [1e-8, 1e8])
def test_projected_in_any_unit(size):
    found = Projected(size, [[1.0, 1.0]], [3.0 * size]).log_prob(
        np.array([1.0, 2.0]) * size, np.array([1.5, 1.5]) * size
    )
    assert found == pytest.approx(stats.norm.logpdf(np.sqrt(0.5)) - np.log(size), rel=1e-12)
    far = Projected(size, [[1.0, 1.0]], [3.0 * size])
    assert far.log_prob(np.array([1.0, 2.0]) * size, np.array([401.0, -398.0]) * size) < -1e5


@pytest.mark.parametrize("sampler", [nw.Rejection(max_proposals=10**6), nw.Importance()])
def test_a_model_without_the_totals_ends_with_a_message(sampler):
    model = nw.Model(
        prior={"theta": dist.Gamma(5.0, 1.0)},
        statistics={"cells": lambda theta: dist.Normal(theta, 1.0).expand([3]).to_event(1)},
    )
    mechanism = Projected(1.0, **TOTALS)
    release = nw.Release(cells=mechanism.released([5.0, 4.0, 6.0]))
    with pytest.raises(InputError, match="must meet the totals"):
        nw.sample(model, release, sampler, draws=500, seed=1)
    assert "by construction" in mechanism.impossible(np.ones((4, 3)))
    assert "by construction" in mechanism.impossible([[5.0, 5.0, 5.0], [1.0, 1.0, 1.0]])
    assert mechanism.impossible([[5.0, 5.0, 5.0], [4.0, 5.0, 6.0]]) is None


# Product ------------------------------------------------------------------------------------------------------------


def test_product_is_its_parts():
    parts = [LAPLACE, Thresholded(GAUSSIAN, 1.0), DISCRETE]
    mechanism = Product(parts)
    assert (mechanism.measure, mechanism.supremum, mechanism.integers) == ("mixed", "approached", True)
    assert Product([LAPLACE, GAUSSIAN]).measure == "density"
    assert Product([DISCRETE, DISCRETE]).measure == "lattice"
    released, rows = np.array([1.5, np.nan, 4.0]), np.array([[0.0, 0.5, 3.0], [1.0, 2.0, 9.0]])
    found = mechanism.log_prob(released, rows)
    assert found.shape == (2, 3)
    for column, part in enumerate(parts):
        np.testing.assert_array_equal(found[:, column], part.log_prob(released[column], rows[:, column]))
        assert mechanism.log_sup(released)[column] == part.log_sup(released[column])


def test_product_draws_entries_independently(seed):
    drawn = Product([LAPLACE, LAPLACE]).sample(np.random.default_rng(seed), np.zeros((40_000, 2)))
    assert agrees(drawn[:, 0] * drawn[:, 1], 0.0)
    assert not agrees(drawn[:, 0] ** 2, 0.0)


def test_the_budget_of_a_product_is_the_sum_of_its_parts():
    parts = [nw.Laplace(epsilon=1.0, sensitivity=1.0), nw.Laplace(epsilon=0.25, sensitivity=2.0)]
    assert Product(parts).guarantee.epsilon == 1.25
    assert Product([*parts, nw.Laplace(scale=1.0)]).guarantee is None
