"""The mechanism contract, over every mechanism of the catalogue.

One table of cases drives the generic tests: a new mechanism adds rows to `CASES` (and to `FAR`, `BUDGETS` where
they apply) and inherits all of them.
"""

import math
from itertools import pairwise
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from exactness import agrees, counts_agree
from scipy.integrate import quad
from scipy.special import logsumexp, roots_legendre

from noisewise.errors import InputError
from noisewise.mechanisms import (
    CATALOGUE,
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    Gaussian,
    Guarantee,
    Laplace,
    Released,
)
from noisewise.numerics import double

# (mechanism, a confidential value it can act on); asymmetric values, and scales that differ by entry.
CASES = {
    "laplace": (Laplace(scale=2.0), 3.25),
    "laplace-epsilon": (Laplace(epsilon=0.2, sensitivity=1.0), 37.4),
    "laplace-vector": (Laplace(scale=[0.5, 2.0, 30.0]), np.array([-1.25, 0.3, 40.0])),
    "laplace-shared-scale": (Laplace(scale=2.0), np.array([-1.25, 40.0])),
    "gaussian": (Gaussian(scale=1.5), -7.75),
    "gaussian-epsilon-delta": (Gaussian(epsilon=1.0, delta=1e-6, sensitivity=2.0), 12.5),
    "gaussian-rho": (Gaussian(rho=0.5, sensitivity=1.0), 0.0),
    "gaussian-mu": (Gaussian(mu=0.25, sensitivity=1.0), 3.0),
    "gaussian-vector": (Gaussian(scale=[0.5, 2.0, 30.0]), np.array([-1.25, 0.3, 40.0])),
    "discrete-laplace-narrow": (DiscreteLaplace(scale=0.3), 4),
    "discrete-laplace": (DiscreteLaplace(scale=4.5), -3),
    "discrete-laplace-epsilon": (DiscreteLaplace(epsilon=0.5, sensitivity=1.0), 11),
    "discrete-laplace-vector": (DiscreteLaplace(scale=[0.4, 2.0, 9.0]), np.array([-2, 0, 41])),
    "discrete-gaussian-narrow": (DiscreteGaussian(scale=0.4), 2),
    "discrete-gaussian": (DiscreteGaussian(scale=3.7), -5),
    "discrete-gaussian-rho": (DiscreteGaussian(rho=0.1, sensitivity=1.0), 11),
    "discrete-gaussian-vector": (DiscreteGaussian(scale=[0.45, 1.0, 9.0]), np.array([-2, 0, 41])),
    "exact": (Exact(), 3.25),
    "exact-vector": (Exact(), np.array([-1.0, 0.5, 7.0])),
}
every_case = pytest.mark.parametrize(("mechanism", "confidential"), CASES.values(), ids=CASES)
with_scale = pytest.mark.parametrize(
    ("mechanism", "confidential"),
    [pytest.param(*case, id=name) for name, case in CASES.items() if case[0].fields == ("scale",)],
)
with_lattice = pytest.mark.parametrize(
    ("mechanism", "confidential"),
    [pytest.param(*case, id=name) for name, case in CASES.items() if case[0].measure == "lattice"],
)

SCALED = [Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian]
every_scaled = pytest.mark.parametrize("kind", SCALED)

DRAWS = 400_000  # enough for the negative control below: a scale 3% off moves chi-square by 300 or more


# Density and sampler -------------------------------------------------------------------------------------


def entries(mechanism, confidential):
    """(index, scale, confidential value) of each entry a mechanism treats alone."""
    scales = np.broadcast_to(getattr(mechanism, "scale", 1.0), np.shape(confidential))
    return list(zip(np.ndindex(np.shape(confidential)), scales.ravel(), np.ravel(confidential), strict=True))


def density(mechanism, confidential, entry, points):
    """exp(log_prob) of one entry at many released `points`; the other entries' released values do not matter."""
    points = np.asarray(points)
    released = np.broadcast_to(
        points.reshape(points.shape + (1,) * np.ndim(confidential)), points.shape + np.shape(confidential)
    )
    return np.exp(mechanism.log_prob(released, confidential))[(..., *entry)]


def cells(mechanism, confidential, entry, scale, centre):
    """Edges of cells around `centre` and their probabilities under the density; the rest is outside them all."""
    if mechanism.measure == "atoms":
        return np.array([centre - 1.0, centre, centre + 1.0]), np.array([0.0, 1.0])
    if mechanism.measure == "lattice":
        points = np.arange(centre - np.ceil(8 * scale) - 3, centre + np.ceil(8 * scale) + 4)
        return np.append(points, points[-1] + 1) - 0.5, density(mechanism, confidential, entry, points)
    edges = centre + scale * np.linspace(-8.0, 8.0, 65)  # `centre`, where Laplace noise has its kink, is an edge
    nodes, weights = roots_legendre(12)
    half = np.diff(edges)[:, None] / 2
    values = density(mechanism, confidential, entry, edges[:-1, None] + half * (1 + nodes))
    return edges, (values * weights * half).sum(axis=1)


def sampler_agrees(sampler, mechanism, confidential, rng):
    """Whether draws of `sampler` follow the density of `mechanism`, entry by entry."""
    draws = sampler.sample(rng, np.broadcast_to(confidential, (DRAWS, *np.shape(confidential))))
    verdicts = []
    for entry, scale, centre in entries(mechanism, confidential):
        edges, probabilities = cells(mechanism, confidential, entry, scale, centre)
        inside = np.histogram(draws[(slice(None), *entry)], edges)[0]
        outside = max(1.0 - probabilities.sum(), 0.0)
        verdicts.append(counts_agree(np.append(inside, DRAWS - inside.sum()), np.append(probabilities, outside)))
    return all(verdicts)


@every_case
def test_density_has_mass_one(mechanism, confidential):
    for entry, scale, centre in entries(mechanism, confidential):

        def at(points, entry=entry):
            return density(mechanism, confidential, entry, points)

        if mechanism.measure == "density":
            sides = [(centre - 60 * scale, centre), (centre, centre + 60 * scale)]
            mass = sum(quad(at, *side, points=[np.mean(side)], epsabs=1e-12, limit=200)[0] for side in sides)
        else:  # the atom of `Exact` is among these points too
            mass = at(centre + np.arange(-math.ceil(60 * scale), math.ceil(60 * scale) + 1)).sum()
        assert mass == pytest.approx(1.0, abs=1e-9)


@every_case
def test_sampler_follows_density(mechanism, confidential, seed):
    assert sampler_agrees(mechanism, mechanism, confidential, np.random.default_rng(seed))


@with_scale
def test_negative_control_sampler_with_a_scale_3_percent_off(mechanism, confidential, seed):
    wrong = type(mechanism)(scale=1.03 * np.asarray(mechanism.scale))
    assert not sampler_agrees(wrong, mechanism, confidential, np.random.default_rng(seed))


@every_case
def test_sampler_draws_rows_and_entries_independently(mechanism, confidential, seed):
    rows = np.broadcast_to(confidential, (40_000, *np.shape(confidential)))
    noise = (mechanism.sample(np.random.default_rng(seed), rows) - rows).reshape(40_000, -1)
    if isinstance(mechanism, Exact):
        assert not noise.any()
        return
    # The noise has mean zero: so have products of independent noise. Pairs are disjoint, so products are independent.
    assert agrees(noise[0::2] * noise[1::2], 0.0)
    if noise.shape[1] > 1:
        assert agrees(noise[:, :-1] * noise[:, 1:], 0.0)
    assert not agrees(noise * noise, 0.0)  # the same noise twice would be seen


@pytest.mark.parametrize("scale", [0.1, 0.2, 0.3, 0.45, 0.5, 0.55, 0.8, 1.0, 3.3, 10.0, 50.0])
def test_discrete_gaussian_normaliser(scale):
    # Brute force: 60 scales to each side leave out less than exp(-1800) of the sum.
    z = np.arange(-math.ceil(60 * scale) - 1, math.ceil(60 * scale) + 2)
    total = logsumexp(-0.5 * (z / scale) ** 2)
    assert DiscreteGaussian(scale=scale).log_sup(0) == pytest.approx(-total, rel=1e-13, abs=1e-15)


def test_discrete_gaussian_normaliser_by_entry():
    scales = np.array([0.1, 0.49, 0.5, 0.51, 7.0])
    together = DiscreteGaussian(scale=scales).log_sup(np.zeros(5))
    np.testing.assert_array_equal(together, [DiscreteGaussian(scale=s).log_sup(0) for s in scales])


# Supremum ------------------------------------------------------------------------------------------------


def confidential_rows(mechanism, released, rng):
    """Confidential values near and far from the released one, including infinite ones; all on the lattice if asked."""
    scale = getattr(mechanism, "scale", 1.0)
    steps = [0.0, 1e-300, 1e-12, 1.0, 7.0, 1e3, 1e15, 1e100, 1e300, np.inf]
    far = np.concatenate([steps, np.negative(steps)]).reshape(-1, *(1,) * np.ndim(released))
    near = rng.standard_normal((500, *np.shape(released))) * scale
    rows = np.concatenate([released + far + np.zeros(np.shape(released)), released + near])
    if mechanism.measure == "lattice":
        rows = np.concatenate([rows, np.rint(rows)])
    return rows


def supremum_holds(mechanism, released, rng):
    """Whether log_sup bounds log_prob over many confidential values; `Rejection` needs this without tolerance."""
    with np.errstate(over="ignore"):
        values = mechanism.log_prob(released, confidential_rows(mechanism, released, rng))
    return bool(np.all(values <= mechanism.log_sup(released)))


@every_case
def test_log_sup_is_never_exceeded(mechanism, confidential, seed):
    assert supremum_holds(mechanism, mechanism.released(confidential).value, np.random.default_rng(seed))


@every_case
def test_log_sup_is_attained_where_the_mechanism_says_so(mechanism, confidential):
    released = mechanism.released(confidential).value
    assert mechanism.supremum in ("attained", "approached", "bound")
    if mechanism.supremum == "attained":
        np.testing.assert_array_equal(mechanism.log_prob(released, confidential), mechanism.log_sup(released))


@every_case
def test_negative_control_supremum_too_low(mechanism, confidential, seed):
    # Not a subclass: that would enter the catalogue.
    low = SimpleNamespace(
        measure=mechanism.measure,
        scale=getattr(mechanism, "scale", 1.0),
        log_prob=mechanism.log_prob,
        log_sup=lambda released: mechanism.log_sup(released) - 1e-9,
    )
    assert not supremum_holds(low, mechanism.released(confidential).value, np.random.default_rng(seed))


# NumPy and JAX, shapes -----------------------------------------------------------------------------------

compiled = jax.jit(lambda mechanism, released, rows: mechanism.log_prob(released, rows))


@pytest.mark.quick
@every_case
def test_numpy_and_jax_agree(mechanism, confidential, seed):
    released = mechanism.released(confidential).value
    rows = confidential_rows(mechanism, released, np.random.default_rng(seed))

    @jax.jit
    def both(mechanism, released, rows):  # the mechanism is a traced argument: another scale compiles nothing
        return mechanism.log_prob(released, rows), mechanism.log_sup(released)

    with double():
        log_prob, log_sup = jax.tree.map(np.asarray, both(mechanism, released, rows))
    assert log_prob.dtype == log_sup.dtype == np.float64
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(log_prob, mechanism.log_prob(released, rows), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(log_sup, mechanism.log_sup(released), rtol=1e-10, atol=1e-10)


@with_scale
def test_another_scale_compiles_nothing(mechanism, confidential):
    traced = []

    @jax.jit
    def log_prob(mechanism, released, rows):
        traced.append(1)
        return mechanism.log_prob(released, rows)

    rows = np.broadcast_to(confidential, (4, *np.shape(confidential)))
    with double():
        for factor in (1.0, 2.0, 3.0):
            log_prob(type(mechanism)(scale=factor * np.asarray(mechanism.scale)), confidential, rows)
    assert len(traced) == 1


@every_case
@pytest.mark.parametrize("lead", [(), (1,), (3,), (7,), (2, 5)])  # 3 is also the length of the vectors
def test_vectorised_over_leading_axes(mechanism, confidential, lead, seed):
    released = mechanism.released(confidential).value
    shape = np.shape(confidential)
    alone = shape[: len(shape) - mechanism.event_dim]
    rows = np.broadcast_to(confidential, lead + shape)
    draws = mechanism.sample(np.random.default_rng(seed), rows)
    assert np.shape(draws) == lead + shape
    assert np.shape(mechanism.log_sup(released)) == alone
    values = mechanism.log_prob(released, draws)
    assert np.shape(values) == lead + alone
    one_by_one = [mechanism.log_prob(released, row) for row in np.reshape(draws, (-1, *shape))]
    np.testing.assert_array_equal(np.reshape(values, (-1, *alone)), one_by_one)


# Extremes ------------------------------------------------------------------------------------------------


@with_lattice
@pytest.mark.parametrize("part", [0.5, 0.25, 1e-6, -0.75])
def test_off_the_lattice_is_minus_infinity(mechanism, confidential, part):
    off = confidential + part
    assert np.all(mechanism.log_prob(confidential, off) == -np.inf)
    with double():
        assert np.all(np.asarray(compiled(mechanism, confidential, off)) == -np.inf)


def test_exact_elsewhere_is_minus_infinity():
    np.testing.assert_array_equal(Exact().log_prob(2.0, np.array([2.0, np.nextafter(2.0, 3.0)])), [0.0, -np.inf])


LOG_ROOT_TWO_PI = 0.9189385332046727
# (mechanism, distance, log density worked out by hand)
FAR = [
    *[(Laplace(scale=s), k * s, -k - math.log(2 * s)) for s in (1e-8, 1.0, 1e8) for k in (0, 3, 1e5, 1e12)],
    *[
        (Gaussian(scale=s), k * s, -0.5 * k * k - math.log(s) - LOG_ROOT_TWO_PI)
        for s in (1e-8, 1.0, 1e8)
        for k in (0, 3, 500, 1e6)
    ],
    *[(DiscreteLaplace(scale=1e8), k * 1e8, -k + math.log(math.tanh(5e-9))) for k in (0, 3, 1e5)],
    *[(DiscreteLaplace(scale=1e-8), k, -k * 1e8) for k in (0, 1, 1000)],
    (DiscreteLaplace(scale=1.0), 2**53, math.log(math.tanh(0.5)) - 2.0**53),
    *[(DiscreteGaussian(scale=1e8), k * 1e8, -0.5 * k * k - math.log(1e8) - LOG_ROOT_TWO_PI) for k in (0, 3, 500)],
    *[(DiscreteGaussian(scale=1e-8), k, -0.5 * (k * 1e8) ** 2) for k in (0, 1, 1000)],
    (DiscreteGaussian(scale=1.0), 10**6, -0.5e12 - math.log(2.5066282880429055)),
]


@pytest.mark.parametrize(("mechanism", "distance", "expected"), FAR)
def test_far_values_have_the_right_log_density(mechanism, distance, expected):
    for side in (distance, -distance):
        assert mechanism.log_prob(0, side) == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert mechanism.log_prob(side, 0) == pytest.approx(expected, rel=1e-12, abs=1e-12)
        with double():
            traced = float(jax.jit(type(mechanism).log_prob)(mechanism, 0, float(side)))
        assert traced == pytest.approx(expected, rel=1e-12, abs=1e-12)


@every_case
def test_infinitely_far_is_minus_infinity(mechanism, confidential):
    released = mechanism.released(confidential).value
    for far in (np.inf, -np.inf):
        rows = np.full((2, *np.shape(released)), far)
        assert np.all(mechanism.log_prob(released, rows) == -np.inf)
        assert np.all(mechanism.log_prob(released, rows[0]) == -np.inf)
        with double():
            assert np.all(np.asarray(compiled(mechanism, released, rows)) == -np.inf)


@every_scaled
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_where_the_square_overflows_is_minus_infinity(kind, scale):
    # A heavy-tailed model proposes such values.
    with np.errstate(over="ignore"):
        values = kind(scale=scale).log_prob(0, np.array([1e160, -1e200, 1e307]))
    assert not np.isnan(values).any()
    assert np.all(values <= -1e100)


@every_scaled
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_extreme_scales_can_be_drawn(kind, scale, seed):
    noise = kind(scale=scale).sample(np.random.default_rng(seed), np.zeros(20_000))
    if kind in (DiscreteLaplace, DiscreteGaussian) and scale < 1:
        assert not noise.any()
    else:  # the mean size of the noise: scale for Laplace, scale sqrt(2/pi) for Gaussian; a crude bracket
        assert 0.7 * scale < np.abs(noise).mean() < 1.1 * scale


# Identity ------------------------------------------------------------------------------------------------


@every_case
def test_to_dict_and_back(mechanism, confidential):
    entry = mechanism.to_dict()
    kind = CATALOGUE[entry.pop("mechanism")]
    back = kind.from_dict(entry, "here")
    assert back == mechanism
    assert back.guarantee == mechanism.guarantee
    np.testing.assert_array_equal(back.log_sup(confidential), mechanism.log_sup(confidential))


def test_from_dict_refuses_what_the_mechanism_does_not_take():
    with pytest.raises(
        InputError, match=r"here: 'scael' is not an argument of Laplace; got 2\.0\. Did you mean 'scale'"
    ):
        Laplace.from_dict({"scael": 2.0}, "here")
    with pytest.raises(InputError, match=r"here: Laplace: 'scale' must be positive and finite; got -2\.0"):
        Laplace.from_dict({"scale": -2.0}, "here")
    with pytest.raises(InputError, match=r"here\.guarantee: 'epsilon' must be positive and finite; got -1"):
        Laplace.from_dict({"scale": 2.0, "guarantee": {"epsilon": -1}}, "here")
    with pytest.raises(InputError, match=r"here\.guarantee: 'epsilom' is not a field .*Did you mean 'epsilon'"):
        Laplace.from_dict({"scale": 2.0, "guarantee": {"epsilom": 1}}, "here")


@every_case
def test_frozen(mechanism, confidential):
    before = mechanism.to_dict()
    for name in (*mechanism.fields, "guarantee", "anything"):
        with pytest.raises(AttributeError, match=f"{type(mechanism).__name__} is frozen.*{name}"):
            setattr(mechanism, name, 1.0)
    for name in mechanism.fields:
        if isinstance(getattr(mechanism, name), np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                getattr(mechanism, name)[0] = 1.0
    assert mechanism.to_dict() == before


@every_case
def test_equality_and_hash(mechanism, confidential):
    entry = mechanism.to_dict()
    twin = CATALOGUE[entry.pop("mechanism")].from_dict(entry, "here")
    assert twin == mechanism
    assert hash(twin) == hash(mechanism)
    others = [other for other, _ in CASES.values() if other is not mechanism and other.to_dict() != mechanism.to_dict()]
    assert mechanism not in others
    assert mechanism != "something else"
    assert repr(mechanism).startswith(type(mechanism).__name__)


@every_case
def test_released_values_keep_their_mechanism(mechanism, confidential):
    item = mechanism.released(confidential)
    assert isinstance(item, Released)
    assert item.mechanism is mechanism
    assert item.shape == np.shape(confidential)
    assert item == mechanism.released(confidential)
    assert hash(item) == hash(mechanism.released(confidential))
    assert item != mechanism.released(np.asarray(confidential) + 1)
    np.testing.assert_array_equal(item.value, confidential)
    if mechanism.measure == "lattice":
        assert np.asarray(item.value).dtype == np.int64
    if item.shape:
        with pytest.raises(ValueError, match="read-only"):
            item.value[0] = 1


@pytest.mark.parametrize("kind", [DiscreteLaplace, DiscreteGaussian])
def test_whole_floats_are_lattice_values(kind):
    assert kind(scale=2.0).released(37.0).value == 37
    assert kind(scale=2.0).released(2**53).value == 2**53
    np.testing.assert_array_equal(kind(scale=2.0).released(np.array([1.0, -2.0])).value, [1, -2])


# Budgets -------------------------------------------------------------------------------------------------

BUDGETS = [
    (Laplace, {"epsilon": 0.2, "sensitivity": 3.0}, "l1"),
    (DiscreteLaplace, {"epsilon": 0.2, "sensitivity": 3.0}, "l1"),
    (Gaussian, {"epsilon": 0.5, "delta": 1e-5, "sensitivity": 3.0}, "l2"),
    (Gaussian, {"rho": 0.1, "sensitivity": 3.0}, "l2"),
    (Gaussian, {"mu": 0.7, "sensitivity": 3.0}, "l2"),
    (DiscreteGaussian, {"rho": 0.1, "sensitivity": 3.0}, "l2"),
]


@pytest.mark.parametrize(("kind", "budget", "norm"), BUDGETS)
def test_guarantee_is_recorded(kind, budget, norm):
    mechanism = kind(**budget)
    assert mechanism.guarantee == Guarantee(**budget, norm=norm)
    assert mechanism.to_dict()["guarantee"] == {**budget, "norm": norm}
    assert kind(scale=mechanism.scale).guarantee is None
    assert kind(scale=mechanism.scale) != mechanism  # the same noise, but a guarantee is part of what was published


@pytest.mark.parametrize("kind", [Laplace, DiscreteLaplace])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("sensitivity", [1, 4])
def test_epsilon_is_met_and_attained(kind, epsilon, sensitivity):
    mechanism = kind(epsilon=epsilon, sensitivity=sensitivity)
    released = np.arange(-20, 21)
    loss = mechanism.log_prob(released, 0) - mechanism.log_prob(released, sensitivity)
    assert np.abs(loss).max() == pytest.approx(epsilon, rel=1e-9)


def hockey_stick(epsilon, scale, sensitivity):
    """Delta of Gaussian noise at `epsilon`: the integral of max(0, p - e^epsilon q), p and q a sensitivity apart."""
    shift = sensitivity / scale
    start = shift / 2 + epsilon / shift  # where the privacy loss is epsilon, in noise scales from q's centre

    def excess(u):  # p - e^epsilon q as p (1 - e^(epsilon - loss)), which keeps its digits
        x = start + u
        return np.exp(-0.5 * (x - shift) ** 2) / np.sqrt(2 * np.pi) * -np.expm1(-shift * u)

    top = max(0.0, shift - start)
    pieces = [0.0, top / 2 + 0.5, top + 1.0, top + 5.0, top + 40.0]
    return sum(quad(excess, a, b, epsabs=0, epsrel=1e-11, limit=200)[0] for a, b in pairwise(pieces))


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6, 1e-12])
def test_gaussian_epsilon_delta_is_met_and_nearly_attained(epsilon, delta):
    sensitivity = 2.5
    scale = Gaussian(epsilon=epsilon, delta=delta, sensitivity=sensitivity).scale
    spent = hockey_stick(epsilon, scale, sensitivity)
    assert spent <= delta * (1 + 1e-8)
    assert spent >= delta * (1 - 1e-6)
    assert hockey_stick(epsilon, scale * (1 - 1e-4), sensitivity) > delta  # no smaller scale would do


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_gaussian_mu_is_met_and_attained(mu):
    # mu-GDP means no easier to tell apart than N(0, 1) from N(mu, 1): the same delta at every epsilon.
    scale = Gaussian(mu=mu, sensitivity=2.0).scale
    for epsilon in (0.1, 1.0):
        assert hockey_stick(epsilon, scale, 2.0) == pytest.approx(hockey_stick(epsilon, 1.0, mu), rel=1e-9)


def renyi(mechanism, points, weight, shift, alpha):
    """Renyi divergence of order alpha between releases whose confidential values are `shift` apart."""
    first, second = mechanism.log_prob(points, 0), mechanism.log_prob(points, shift)
    return (logsumexp(alpha * first + (1 - alpha) * second) + math.log(weight)) / (alpha - 1)


@pytest.mark.parametrize("alpha", [1.1, 2.0, 8.0])
@pytest.mark.parametrize("rho", [0.02, 0.5, 2.0])
def test_rho_is_met(rho, alpha):
    # rho-zCDP: divergence of order alpha at most rho alpha, for every alpha; Gaussian noise attains it.
    sensitivity = 2
    continuous = Gaussian(rho=rho, sensitivity=sensitivity)
    discrete = DiscreteGaussian(rho=rho, sensitivity=sensitivity)
    reach = math.ceil(40 * continuous.scale + sensitivity * alpha)
    grid = np.linspace(-reach, reach, 200_001)  # the trapezium rule is as good as exact for Gaussian integrands
    assert renyi(continuous, grid, grid[1] - grid[0], sensitivity, alpha) == pytest.approx(rho * alpha, rel=1e-9)
    spent = renyi(discrete, np.arange(-reach, reach + 1), 1.0, sensitivity, alpha)
    assert 0.5 * rho * alpha < spent <= rho * alpha * (1 + 1e-9)


# Bad arguments -------------------------------------------------------------------------------------------


def refuses(make, *parts):
    """`make` is refused, in a message that holds every one of `parts`."""
    with pytest.raises(InputError) as caught:
        make()
    message = str(caught.value)
    for part in parts:
        assert part in message, message


@every_scaled
@pytest.mark.parametrize(
    "scale",
    [
        -1.0,
        0.0,
        0,
        math.nan,
        math.inf,
        -math.inf,
        "wide",
        "1.0",
        True,
        1j,
        [1.0, -2.0],
        [1.0, math.nan],
        [[1.0], [1.0, 2.0]],
    ],
    ids=repr,
)
def test_bad_scales_are_refused(kind, scale):
    refuses(lambda: kind(scale=scale), f"{kind.__name__}: 'scale'", repr(scale))


@pytest.mark.parametrize(("kind", "budget", "norm"), BUDGETS)
def test_budgets_given_wrongly_are_refused(kind, budget, norm):
    who = kind.__name__
    refuses(lambda: kind(scale=2.0, **budget), f"{who}: 'scale'", "got 2.0", "sensitivity")
    refuses(lambda: kind(scale=2.0, sensitivity=1.0), f"{who}: 'scale'", "got 2.0")
    refuses(lambda: kind(sensitivity=1.0), f"{who}: 'scale'", "got None")
    refuses(kind, f"{who}: 'scale'", "got None")
    without = {name: value for name, value in budget.items() if name != "sensitivity"}
    refuses(lambda: kind(**without), f"{who}: 'sensitivity'", "got None")
    for name in budget:
        for bad in (-1.0, 0.0, math.nan, math.inf, "1", [1.0, 2.0]):
            refuses(lambda changed={**budget, name: bad}: kind(**changed), f"{who}: '{name}'", repr(bad))


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ({"epsilon": 1.0}, "'delta' must come with epsilon; got None"),
        ({"delta": 1e-6}, "'epsilon' must come with delta; got None"),
        ({"rho": 1.0, "mu": 2.0}, "'rho' must not come with another budget; got 1.0"),
        ({"epsilon": 1.0, "rho": 2.0}, "'rho' must not come with another budget; got 2.0"),
        ({"epsilon": 1.0, "delta": 1e-6, "mu": 2.0}, "'mu' must not come with another budget; got 2.0"),
    ],
    ids=str,
)
def test_incomplete_or_double_budgets_are_refused(budget, says):
    refuses(lambda: Gaussian(**budget, sensitivity=1.0), f"Gaussian: {says}", "epsilon with delta")


@pytest.mark.parametrize("delta", [1.0, 1.5])
def test_delta_must_be_a_small_probability(delta):
    refuses(lambda: Gaussian(epsilon=1.0, delta=delta, sensitivity=1.0), "Gaussian: 'delta'", f"got {delta}")


@every_case
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, "37", None, 1j, True, [1.0, math.nan, 2.0], [[1, 2], [3]]], ids=repr
)
def test_bad_released_values_are_refused(mechanism, confidential, value):
    # An array is shown as NumPy shows it: the parts that matter are the offending entries.
    shown = "nan" if "nan" in repr(value) else repr(value)
    refuses(lambda: mechanism.released(value), f"{type(mechanism).__name__}.released: 'value'", shown)


@every_scaled
@pytest.mark.parametrize("value", [5, [1, 2], [[1], [2], [3]], [[1, 2]]], ids=repr)
def test_released_values_of_the_wrong_shape_are_refused(kind, value):
    mechanism = kind(scale=[1.0, 2.0, 3.0])
    refuses(lambda: mechanism.released(value), f"{kind.__name__}.released: 'value'", "'scale' of shape (3,)", "got ")


@pytest.mark.parametrize("kind", [DiscreteLaplace, DiscreteGaussian])
@pytest.mark.parametrize("value", [37.4, 0.5, [1.0, 2.5], 2.0**54, 1e300], ids=repr)
def test_lattice_mechanisms_release_whole_numbers(kind, value):
    shown = repr(value) if np.ndim(value) == 0 else "2.5"
    refuses(lambda: kind(scale=2.0).released(value), f"{kind.__name__}.released: 'value'", shown)
