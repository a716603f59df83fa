"""Additive noise beyond the everyday mechanisms: laws by other routes, tails, budgets, shapes, refusals."""

import itertools
import math

import jax
import jsonschema
import numpy as np
import pytest
from exactness import agrees, counts_agree
from scipy import integrate, stats

import noisewise as nw
from noisewise.errors import InputError
from noisewise.mechanisms import Gaussian, Guarantee, Laplace
from noisewise.mechanisms.gaussian import log_delta
from noisewise.mechanisms.generalized_cauchy import GeneralizedCauchy
from noisewise.mechanisms.knorm import KNorm
from noisewise.mechanisms.multivariate_gaussian import MultivariateGaussian
from noisewise.mechanisms.staircase import Staircase
from noisewise.mechanisms.truncated_laplace import TruncatedLaplace
from noisewise.mechanisms.tulap import Tulap
from noisewise.numerics import double
from noisewise.release.schema import current_schema

SCALAR = {
    "cauchy": GeneralizedCauchy(2.0, 1.5),
    "cauchy-low": GeneralizedCauchy(1.2, 0.7),
    "cauchy-high": GeneralizedCauchy(40.0, 3.0),
    "staircase": Staircase(0.7, 2.0),
    "staircase-gamma-1": Staircase(1.5, 0.5, gamma=1.0),
    "staircase-large-epsilon": Staircase(12.0, 1.0),
    "tulap": Tulap(0.8, 0.02, 1.5),
    "tulap-pure": Tulap(1.3),
    "tulap-large-delta": Tulap(0.5, 0.9),
    "tulap-small-epsilon": Tulap(1e-3, 0.05),
    "truncated-laplace": TruncatedLaplace(2.0, 5.0),
    "truncated-laplace-flat": TruncatedLaplace(1e4, 3.0),
}
ENTRIES = {
    "cauchy": (GeneralizedCauchy, {"power": [1.5, 2.0, 9.0], "scale": [0.5, 2.0, 30.0]}),
    "staircase": (Staircase, {"epsilon": [0.3, 1.0, 4.0], "sensitivity": [1.0, 0.1, 20.0]}),
    "tulap": (Tulap, {"epsilon": [0.3, 1.0, 4.0], "delta": [0.0, 0.1, 1e-3], "sensitivity": [1.0, 0.1, 20.0]}),
    "truncated-laplace": (TruncatedLaplace, {"scale": [0.5, 2.0, 30.0], "bound": [0.1, 9.0, 30.0]}),
}
every_scalar = pytest.mark.parametrize("mechanism", SCALAR.values(), ids=SCALAR)
every_entries = pytest.mark.parametrize(("kind", "arguments"), ENTRIES.values(), ids=ENTRIES)


def spans(mechanism):
    """Points from the middle to the tails, on both sides."""
    unit = getattr(mechanism, "scale", None) or mechanism.sensitivity
    grid = np.concatenate([[0.0], unit * np.geomspace(1e-9, 30.0, 60)])
    return np.concatenate([-grid[::-1], grid])


def density(mechanism, z):
    return np.exp(mechanism.noise_log_prob(z))


def jumps(mechanism):
    """Where the density jumps or has a kink, on both sides."""
    steps = np.arange(80.0)
    match mechanism:
        case Staircase():
            edges = mechanism.sensitivity * (steps + mechanism.gamma)
        case Tulap():
            end = _tulap_end(mechanism.epsilon, mechanism.delta) if mechanism.delta else np.inf
            edges = mechanism.sensitivity * np.append(steps[steps + 0.5 < end] + 0.5, min(end, 80.0))
        case TruncatedLaplace():
            edges = np.array([mechanism.bound])
        case _:
            edges = mechanism.scale * np.array([0.5, 0.9, 1.0, 1.1, 2.0])
    return np.concatenate([-edges[::-1], [0.0], edges])


def mass(mechanism, low, high):
    """Integral of the density by quadrature between its jumps."""
    cuts = jumps(mechanism)
    cuts = np.concatenate([[low], cuts[(cuts > low) & (cuts < high)], [high]])
    return sum(
        integrate.quad(lambda z: density(mechanism, z), a, b, epsabs=1e-13, limit=200)[0]
        for a, b in itertools.pairwise(cuts)
    )


def _tulap_end(epsilon, delta):
    b = np.exp(-epsilon)
    heights = (1 - b + 2 * delta * b) / (1 + b) * b ** np.arange(200)
    widths = np.append(0.5, np.ones(199))
    total = np.cumsum(heights * widths)
    step = np.searchsorted(total, 0.5)
    before = total[step - 1] if step else 0.0
    return np.sum(widths[:step]) + (0.5 - before) / heights[step]


# Laws by other routes -----------------------------------------------------------------------------------------------


def test_cauchy_noise_has_power_two():
    z = np.array([-1e200, -1e12, -5.0, -1e-3, 0.0, 1e-9, 2.0, 1e8])
    mechanism, law = GeneralizedCauchy(2.0, 3.0), stats.cauchy(scale=3.0)
    np.testing.assert_allclose(mechanism.noise_log_prob(z), law.logpdf(z), rtol=1e-12)
    np.testing.assert_allclose(mechanism.noise_log_cdf(z), law.logcdf(z), rtol=1e-12)


@pytest.mark.parametrize("power", [1.001, 1.5, 3.0, 200.0])
def test_cauchy_far_tail_is_a_power_law(power):
    """P(u < -t) = c t^(1 - power) / (power - 1) where t^power is large, far beyond the range of t^power itself."""
    mechanism = GeneralizedCauchy(power, 1e-8)
    log_t = np.array([40.0, 200.0, 600.0])
    z = -1e-8 * np.exp(np.minimum(log_t, 690.0))
    log_c = mechanism.noise_log_prob(0.0) + np.log(1e-8)
    expected = log_c + (1 - power) * log_t - np.log(power - 1)
    np.testing.assert_allclose(mechanism.noise_log_cdf(z), expected, rtol=1e-10)
    np.testing.assert_allclose(mechanism.noise_log_prob(z), log_c - np.log(1e-8) - power * log_t, rtol=1e-10)
    # and near the middle the distribution function is linear
    t = np.array([1e-12, 1e-7])
    inner = np.exp(mechanism.noise_log_cdf(1e-8 * t)) - 0.5
    np.testing.assert_allclose(inner, t * np.exp(log_c), rtol=1e-3, atol=1e-15)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.8, 0.02), (0.1, 0.3), (2.0, 1e-5), (1.0, 0.0)])
def test_tulap_distribution_function_is_the_published_one(epsilon, delta):
    """Awan and Slavkovic's definition, in terms of the nearest whole number."""
    b = np.exp(-epsilon)
    q = 2 * delta * b / (1 - b + 2 * delta * b)
    x = np.linspace(-12.0, 12.0, 997)
    near = np.round(x)
    below = b ** (-near) / (1 + b) * (b + (x - near + 0.5) * (1 - b))
    above = 1 - b**near / (1 + b) * (b + (near - x + 0.5) * (1 - b))
    whole = np.where(x <= 0, below, above)
    expected = np.clip((whole - q / 2) / (1 - q), 0.0, 1.0)
    np.testing.assert_allclose(np.exp(Tulap(epsilon, delta).noise_log_cdf(x)), expected, atol=1e-12)


def test_tulap_is_a_geometric_difference_plus_a_uniform(seed):
    """The published sampler, with rejection, against our distribution function."""
    rng, epsilon, delta = np.random.default_rng(seed), 0.8, 0.02
    success = -np.expm1(-epsilon)
    drawn = rng.geometric(success, 300_000) - rng.geometric(success, 300_000) + rng.uniform(-0.5, 0.5, 300_000)
    drawn = drawn[np.abs(drawn) <= _tulap_end(epsilon, delta)]
    shares = np.exp(Tulap(epsilon, delta).noise_log_cdf(drawn))
    assert counts_agree(np.histogram(shares, 100, (0.0, 1.0))[0], np.full(100, 0.01))
    wrong = np.exp(Tulap(epsilon, 1.2 * delta).noise_log_cdf(drawn))
    assert not counts_agree(np.histogram(wrong, 100, (0.0, 1.0))[0], np.full(100, 0.01))


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-8, 0.1), (1e-8, 0.0), (800.0, 0.1), (30.0, 1e-12), (0.5, 0.99)])
def test_tulap_extreme_budgets(epsilon, delta, seed):
    mechanism = Tulap(epsilon, delta)
    assert mechanism.noise_log_cdf(-1e-300) == pytest.approx(np.log(0.5), abs=1e-12)
    shares = np.exp(mechanism.noise_log_cdf(mechanism.noise_sample(np.random.default_rng(seed), (100_000,))))
    assert counts_agree(np.histogram(shares, 50, (0.0, 1.0))[0], np.full(50, 0.02))


def test_tulap_is_uniform_as_epsilon_vanishes():
    mechanism = Tulap(1e-12, 0.1, sensitivity=2.0)
    z = np.array([-9.9, 0.0, 9.9, 10.1])
    np.testing.assert_allclose(density(mechanism, z), [0.05, 0.05, 0.05, 0.0], rtol=1e-9)


def test_tulap_follows_opendp(seed):
    """OpenDP's canonical noise, drawn by OpenDP (which seeds itself), against our distribution function."""
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    measurement = dp.m.make_canonical_noise(*space, d_in=2.0, d_out=(0.7, 0.1))  # delta = 0 crashes OpenDP 0.16
    drawn = np.array([measurement(5.0) for _ in range(4_000)]) - 5.0
    shares = np.exp(Tulap(0.7, 0.1, sensitivity=2.0).noise_log_cdf(drawn))
    assert counts_agree(np.histogram(shares, 50, (0.0, 1.0))[0], np.full(50, 0.02))


def test_multivariate_gaussian_is_scipys():
    covariance = np.array([[4.0, 1.5, 0.0], [1.5, 1.0, -0.3], [0.0, -0.3, 2.0]])
    z = np.random.default_rng(0).normal(scale=5.0, size=(6, 4, 3))
    expected = stats.multivariate_normal(cov=covariance).logpdf(z)
    np.testing.assert_allclose(MultivariateGaussian(covariance).noise_log_prob(z), expected, rtol=1e-12)
    diagonal = MultivariateGaussian(np.diag([4.0, 9.0])).noise_log_prob(z[..., :2])
    np.testing.assert_allclose(diagonal, Gaussian([2.0, 3.0]).noise_log_prob(z[..., :2]).sum(axis=-1), rtol=1e-12)


def test_knorms_that_are_other_mechanisms():
    z = np.random.default_rng(0).normal(scale=5.0, size=(50, 3))
    l1 = KNorm("l1", 1.5, dimension=3).noise_log_prob(z)
    np.testing.assert_allclose(l1, Laplace(1.5).noise_log_prob(z).sum(axis=1), rtol=1e-12)
    signs = np.array(list(itertools.product([1.0, -1.0], repeat=3)))
    np.testing.assert_allclose(KNorm("polytope", 1.5, matrix=signs).noise_log_prob(z), l1, rtol=1e-12)
    cube = KNorm("polytope", 1.5, matrix=np.eye(3)).noise_log_prob(z)
    np.testing.assert_allclose(cube, KNorm("linf", 1.5, dimension=3).noise_log_prob(z), rtol=1e-12)
    round_ball = KNorm("ellipsoid", 1.5, matrix=2.0 * np.eye(3)).noise_log_prob(z)
    np.testing.assert_allclose(round_ball, KNorm("l2", 0.75, dimension=3).noise_log_prob(z), rtol=1e-12)
    line = [KNorm(norm, 1.5, dimension=1) for norm in ("l1", "l2", "linf")]
    line += [KNorm("ellipsoid", 3.0, matrix=[[2.0]]), KNorm("polytope", 3.0, matrix=[[1.0], [-2.0]])]
    for mechanism in line:
        np.testing.assert_allclose(mechanism.noise_log_prob(z[:, :1]), Laplace(1.5).noise_log_prob(z[:, 0]), rtol=1e-12)


PLANE = {
    "multivariate-gaussian": MultivariateGaussian([[4.0, 1.5], [1.5, 1.0]]),
    "l1": KNorm("l1", 0.7, dimension=2),
    "l2": KNorm("l2", 0.7, dimension=2),
    "linf": KNorm("linf", 0.7, dimension=2),
    "ellipsoid": KNorm("ellipsoid", 0.7, matrix=[[2.0, 1.0], [0.5, 1.0]]),
    "polytope": KNorm("polytope", 0.7, matrix=[[1.0, 0.0], [0.4, 1.0], [-0.5, 0.8]]),
}


@pytest.mark.parametrize("mechanism", PLANE.values(), ids=PLANE)
def test_vector_densities_have_mass_one(mechanism):
    """In polar coordinates: the angle by the trapezium rule between kinks, the radius by Gauss-Legendre."""
    angle = (np.arange(4_000) + 0.5) * (2 * np.pi / 4_000)
    nodes, weights = np.polynomial.legendre.leggauss(120)
    radius, weights = 40.0 * (1 + nodes), 40.0 * weights
    z = radius[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    total = weights @ (radius[:, None] * np.exp(mechanism.noise_log_prob(z))).mean(axis=1) * 2 * np.pi
    assert total == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 5])
def test_volumes_of_polytopes(dimension, seed):
    identity = KNorm("polytope", 1.0, matrix=np.eye(dimension))
    assert identity.log_volume == pytest.approx(dimension * math.log(2), abs=1e-12)
    signs = np.array(list(itertools.product([1.0, -1.0], repeat=dimension)))
    cross = KNorm("polytope", 1.0, matrix=signs)
    assert cross.log_volume == pytest.approx(dimension * math.log(2) - math.lgamma(dimension + 1), abs=1e-12)
    units = 10.0 ** np.linspace(-8, 8, dimension)  # entries in very different units
    assert KNorm("polytope", 1.0, matrix=np.eye(dimension) * units).log_volume == pytest.approx(
        dimension * math.log(2) - np.log(units).sum(), abs=1e-9
    )
    # any other: a Monte Carlo volume, in a box that holds the ball since |z_i| <= |A^+ row|_1 where max|A z| <= 1
    rng = np.random.default_rng(seed)
    sides = np.vstack([np.eye(dimension), rng.normal(size=(4, dimension))])
    other = KNorm("polytope", 1.0, matrix=sides)
    inside = other.size(rng.uniform(-1.0, 1.0, (200_000, dimension))) <= 1.0
    assert agrees(inside, np.exp(other.log_volume) / 2.0**dimension)
    if dimension > 1:
        assert not agrees(inside, 1.05 * np.exp(other.log_volume) / 2.0**dimension)


@pytest.mark.parametrize("name", [name for name in PLANE if name != "multivariate-gaussian"])
def test_knorm_radius_is_gamma_and_directions_are_of_the_ball(name, seed):
    mechanism, rng = PLANE[name], np.random.default_rng(seed)
    z = mechanism.noise_sample(rng, (50_000, 2))
    size = mechanism.size(z)
    shares = stats.gamma.cdf(size / 0.7, 2.0)  # density proportional to r^(p - 1) exp(-r)
    assert counts_agree(np.histogram(shares, 50, (0.0, 1.0))[0], np.full(50, 0.02))
    box = rng.uniform(-3.0, 3.0, (200_000, 2))  # directions again, by rejection from a box
    box = box[mechanism.size(box) <= 1.0]

    def functional(points):
        return np.maximum((points / mechanism.size(points)[:, None]) @ np.array([1.0, 0.4]), 0.0) ** 2

    other = functional(box)
    assert agrees(functional(z), other.mean(), other.std() / np.sqrt(len(other)))


def test_multivariate_gaussian_draws_have_the_covariance(seed):
    covariance = np.array([[4.0, 1.5], [1.5, 1.0]])
    z = MultivariateGaussian(covariance).noise_sample(np.random.default_rng(seed), (100_000, 2))
    assert agrees(z, 0.0)
    assert agrees(z[:, :, None] * z[:, None, :], covariance)


# Distribution functions ---------------------------------------------------------------------------------------------


@every_scalar
def test_distribution_function_is_the_integral_of_the_density(mechanism, seed):
    rng = np.random.default_rng(seed)
    unit = min(getattr(mechanism, "scale", None) or mechanism.sensitivity, 3.0)
    for low, high in np.sort(unit * rng.normal(scale=1.5, size=(8, 2)), axis=1):
        found = np.exp(mechanism.log_interval(low, high, 0.0))
        assert found == pytest.approx(mass(mechanism, low, high), abs=1e-9)
        widest = mechanism.log_sup_interval(low, high)
        assert mechanism.log_interval(low, high, rng.normal(scale=3.0, size=100)).max() <= widest + 1e-9


@every_scalar
def test_distribution_function_keeps_its_digits(mechanism):
    z = spans(mechanism)
    log_cdf = mechanism.noise_log_cdf(z)
    assert not np.isnan(log_cdf).any()
    assert np.all(log_cdf[1:] >= log_cdf[:-1])
    assert np.all(log_cdf <= 0)
    np.testing.assert_allclose(np.exp(log_cdf) + np.exp(log_cdf[::-1]), 1.0, atol=1e-12)  # symmetry
    np.testing.assert_array_equal(mechanism.noise_log_cdf(np.array([-np.inf, np.inf])), [-np.inf, 0.0])
    assert mechanism.log_interval(-np.inf, np.inf, 1.0) == 0.0


@every_scalar
def test_distribution_function_numpy_and_jax_agree(mechanism):
    z = spans(mechanism)
    with double():
        traced = jax.jit(lambda m, z: m.noise_log_cdf(z))(mechanism, z)
        assert traced.dtype == np.float64
        np.testing.assert_allclose(np.asarray(traced), mechanism.noise_log_cdf(z), rtol=1e-10, atol=1e-10)


@every_scalar
def test_draws_follow_the_distribution_function(mechanism, seed):
    shares = np.exp(mechanism.noise_log_cdf(mechanism.noise_sample(np.random.default_rng(seed), (100_000,))))
    assert counts_agree(np.histogram(shares, 100, (0.0, 1.0))[0], np.full(100, 0.01))


# Entries and rows ---------------------------------------------------------------------------------------------------


@every_entries
def test_parameters_by_entry(kind, arguments, seed):
    mechanism = kind(**arguments)
    alone = [kind(**{name: values[entry] for name, values in arguments.items()}) for entry in range(3)]
    z = np.random.default_rng(seed).normal(scale=3.0, size=(200, 3))
    for law in ("noise_log_prob", "noise_log_cdf"):
        expected = np.stack([getattr(one, law)(z[:, entry]) for entry, one in enumerate(alone)], axis=1)
        np.testing.assert_allclose(getattr(mechanism, law)(z), expected, rtol=1e-12)
    drawn = mechanism.sample(np.random.default_rng(seed), np.zeros((60_000, 3)))
    shares = np.exp(mechanism.noise_log_cdf(drawn))
    for entry in range(3):
        assert counts_agree(np.histogram(shares[:, entry], 50, (0.0, 1.0))[0], np.full(50, 0.02))
    assert agrees((shares[:, 0] - 0.5) * (shares[:, 1] - 0.5), 0.0)
    release = nw.Release(x=mechanism.released(drawn[0]))
    assert nw.Release.from_dict(release.to_dict()) == release
    with pytest.raises(InputError, match=r"must have a shape that"):
        mechanism.released([1.0, 2.0])


@pytest.mark.parametrize(
    "mechanism", [MultivariateGaussian(np.diag([1.0, 4.0, 9.0])), KNorm("l2", 2.0, dimension=3)], ids=["gaussian", "k"]
)
def test_rows_of_vectors(mechanism):
    rows = np.arange(12.0).reshape(4, 3)
    item = mechanism.released(rows)
    assert np.shape(mechanism.log_sup(item.value)) == (4,)
    many = rows + np.linspace(-1.0, 1.0, 5)[:, None, None]
    assert mechanism.log_prob(item.value, many).shape == (5, 4)
    assert mechanism.sample(np.random.default_rng(1), many).shape == (5, 4, 3)
    assert mechanism.misfit(item.shape, (4, 3)) is None
    assert mechanism.misfit(item.shape, (3,)) is not None
    assert not mechanism.has_intervals
    for wrong in (1.0, [1.0, 2.0], np.ones((3, 2))):
        with pytest.raises(InputError, match=r"released: 'value' must have a last axis as long as .*, 3"):
            mechanism.released(wrong)
    with pytest.raises(InputError, match=r"released: 'value' must be finite"):
        mechanism.released([1.0, np.nan, 2.0])


# Extremes -----------------------------------------------------------------------------------------------------------

AT_SCALE = {
    "cauchy": lambda scale: GeneralizedCauchy(3.0, scale),
    "staircase": lambda scale: Staircase(0.9, scale),
    "tulap": lambda scale: Tulap(0.9, 0.01, scale),
    "tulap-pure": lambda scale: Tulap(0.9, 0.0, scale),
    "truncated-laplace": lambda scale: TruncatedLaplace(scale, 6.0 * scale),
}


@pytest.mark.parametrize("make", AT_SCALE.values(), ids=AT_SCALE)
def test_extreme_scales(make, seed):
    z = np.random.default_rng(seed).normal(scale=2.0, size=50)
    one = make(1.0)
    for scale in (1e-8, 1e8):
        mechanism = make(scale)
        expected = one.noise_log_prob(z) - np.log(scale)
        np.testing.assert_allclose(mechanism.noise_log_prob(scale * z), expected, rtol=1e-9)
        np.testing.assert_allclose(mechanism.noise_log_cdf(scale * z), one.noise_log_cdf(z), rtol=1e-6)
        drawn = mechanism.noise_sample(np.random.default_rng(seed), (100,))
        np.testing.assert_allclose(drawn, scale * one.noise_sample(np.random.default_rng(seed), (100,)), rtol=1e-12)


def test_far_tails():
    steps = Staircase(1.0, 1.0)
    assert steps.noise_log_prob(1e5 + 0.9) == pytest.approx(steps.noise_log_prob(0.0) - 1e5 - 1, rel=1e-14)
    assert steps.noise_log_cdf(-1e5) == pytest.approx(-1e5 - math.log(2), rel=1e-14)
    pure = Tulap(1.0)
    assert pure.noise_log_prob(-1e5) == pytest.approx(pure.noise_log_prob(0.0) - 1e5, rel=1e-14)
    assert pure.noise_log_cdf(-1e5) == pytest.approx(-1e5 - math.log(2), rel=1e-14)
    assert pure.noise_log_cdf(-1e5 - 0.5) == pytest.approx(-1e5 - 1 - math.log1p(math.exp(-1)), rel=1e-14)
    wide = TruncatedLaplace(1.0, 2e5)
    assert wide.noise_log_prob(1e5) == pytest.approx(-1e5 - math.log(2), rel=1e-14)
    assert wide.noise_log_cdf(-1e5) == pytest.approx(-1e5 - math.log(2), rel=1e-14)
    assert GeneralizedCauchy(1000.0, 1.0).noise_log_prob(1e50) == pytest.approx(-1e5 * 0.5 * math.log(10), rel=1e-4)
    cut = TruncatedLaplace(1.0, 4.0)
    assert cut.noise_log_prob(4.0) > -6.0
    assert cut.noise_log_prob(4.0 + 1e-12) == -np.inf
    assert cut.noise_log_cdf(np.array([-4.0, -5.0, 4.0])).tolist() == [-np.inf, -np.inf, 0.0]
    gaussian = MultivariateGaussian([[1e-16, 5e-17], [5e-17, 1e-16]])
    assert gaussian.noise_log_prob(np.zeros(2)) == pytest.approx(-math.log(2 * math.pi) - 0.5 * math.log(0.75e-32))
    along = 1e-8 * np.array([1.0, 1.0]) * math.sqrt(3.0 * 0.5e5)
    assert gaussian.noise_log_prob(along) == pytest.approx(-1e5, rel=1e-3)
    with np.errstate(over="ignore"):
        assert gaussian.noise_log_prob(np.array([1e308, -1e308])) == -np.inf
    for norm in ("l1", "l2", "linf"):
        for scale in (1e-8, 1e8):
            ball = KNorm(norm, scale, dimension=3)
            at_zero = ball.noise_log_prob(np.zeros(3))
            assert at_zero == pytest.approx(KNorm(norm, 1.0, dimension=3).log_sup(np.zeros(3)) - 3 * math.log(scale))
            assert ball.noise_log_prob(np.array([0.0, -1e5 * scale, 0.0])) == pytest.approx(at_zero - 1e5, rel=1e-12)
            assert np.isfinite(ball.noise_log_prob(np.full(3, 1e290)))


def test_ends_of_floating_point_are_the_same_in_jax():
    """Sizes whose squares overflow, and whose reciprocals underflow, come out alike and never as numbers near zero."""
    z = np.array([[1e308, 0.0, 1.0], [1e300, -1e300, 1e300], [1e-300, 0.0, 1e-305], [np.inf, 1.0, -np.inf]])
    for mechanism in (KNorm("l2", 1.5, dimension=3), KNorm("ellipsoid", 1.5, matrix=np.diag([1.0, 2.0, 3.0]))):
        plain = mechanism.size(z)
        assert np.all(plain[:2] >= 1e300)
        assert plain[3] == np.inf
        with double():
            np.testing.assert_allclose(np.asarray(jax.jit(lambda m, z: m.size(z))(mechanism, z)), plain, rtol=1e-10)


def test_cauchy_draws_at_extreme_powers(seed):
    rng = np.random.default_rng(seed)
    heavy = GeneralizedCauchy(1.05, 1.0)
    shares = np.exp(heavy.noise_log_cdf(heavy.noise_sample(rng, (100_000,))))
    assert counts_agree(np.histogram(shares, 100, (0.0, 1.0))[0], np.full(100, 0.01))
    flat = GeneralizedCauchy(500.0, 1.0).noise_sample(rng, (100_000,))  # nearly uniform on (-1, 1)
    assert agrees(flat, 0.0)
    assert np.abs(flat).min() > 0


# Budgets: numerical privacy loss ------------------------------------------------------------------------------------


def hockey_stick(mechanism, epsilon, shift):
    """The integral of (f(z) - exp(epsilon) f(z + shift))+, cut at every jump of either density."""
    cuts = np.unique(np.concatenate([jumps(mechanism), jumps(mechanism) - shift]))
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = np.diff(cuts)[:, None] / 2
    z = cuts[:-1, None] + half * (1 + nodes)
    excess = np.maximum(density(mechanism, z) - np.exp(epsilon) * density(mechanism, z + shift), 0.0)
    excess[excess < 1e-14 * density(mechanism, z)] = 0.0  # rounding where the ratio is exp(epsilon) exactly
    return float(np.sum(excess * weights * half))


@pytest.mark.parametrize("gamma", [None, 0.2, 1.0])
def test_staircase_is_private(gamma):
    mechanism = Staircase(0.8, 2.0, gamma)
    assert mechanism.guarantee == Guarantee(epsilon=0.8, sensitivity=2.0)
    z = np.linspace(-30.0, 30.0, 20_001)
    losses = [
        np.abs(mechanism.noise_log_prob(z) - mechanism.noise_log_prob(z + shift)).max()
        for shift in np.linspace(0.1, 2.0, 20)
    ]
    assert max(losses) == pytest.approx(0.8)
    assert np.abs(mechanism.noise_log_prob(z) - mechanism.noise_log_prob(z + 2.2)).max() > 1.5


def test_staircase_gamma_is_the_best():
    """E|z| by quadrature is least at the default, and below that of Laplace noise."""

    def cost(gamma):
        mechanism = Staircase(1.7, 1.0, gamma)
        z = (np.arange(400_000) + 0.5) * 1e-4
        return 2e-4 * np.sum(z * density(mechanism, z))

    best = Staircase(1.7, 1.0).gamma
    assert best == pytest.approx(1.0 / (1.0 + math.exp(0.85)))
    assert cost(best) < min(cost(0.9 * best), cost(1.1 * best), 1.0 / 1.7)
    # E|z| = sensitivity exp(epsilon / 2) / (exp(epsilon) - 1), Geng and Viswanath (2014)
    assert cost(best) == pytest.approx(math.exp(0.85) / math.expm1(1.7), rel=1e-3)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.8, 0.02), (2.0, 1e-4), (0.1, 0.2), (1.0, 0.0)])
def test_tulap_attains_its_budget(epsilon, delta):
    mechanism = Tulap(epsilon, delta, sensitivity=1.5)
    assert mechanism.guarantee == Guarantee(epsilon=epsilon, delta=delta or None, sensitivity=1.5)
    found = [hockey_stick(mechanism, epsilon, shift) for shift in (0.3, 1.0, 1.4, 1.5)]
    assert max(found) <= delta + 1e-12
    assert found[-1] == pytest.approx(delta, abs=1e-12)
    assert hockey_stick(mechanism, epsilon, 1.8) > delta + 1e-3


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 0.5), (5.0, 1e-3)])
def test_truncated_laplace_attains_its_budget(epsilon, delta):
    mechanism = TruncatedLaplace(epsilon=epsilon, delta=delta, sensitivity=2.0)
    assert mechanism.scale == 2.0 / epsilon
    assert mechanism.guarantee == Guarantee(epsilon=epsilon, delta=delta, sensitivity=2.0, norm="l1")
    found = [hockey_stick(mechanism, epsilon, shift) for shift in (0.5, 1.0, 1.9, 2.0)]
    assert max(found) <= delta * (1 + 1e-9)
    assert found[-1] == pytest.approx(delta, rel=1e-9)
    # a shift split over two entries: the log ratios add up to epsilon, the masses out of reach to less than delta
    assert sum(hockey_stick(mechanism, epsilon * part / 2.0, part) for part in (0.7, 1.3)) < delta
    wrong = TruncatedLaplace(mechanism.scale, 0.9 * mechanism.bound)
    assert hockey_stick(wrong, epsilon, 2.0) > 1.05 * delta


def test_truncated_laplace_large_epsilon():
    mechanism = TruncatedLaplace(epsilon=1000.0, delta=1e-6, sensitivity=1.0)
    assert mechanism.bound == pytest.approx((1000.0 - math.log(2e-6)) / 1000.0)


@pytest.mark.parametrize("budget", [{"rho": 0.5}, {"mu": 0.7}, {"epsilon": 1.0, "delta": 1e-5}])
def test_multivariate_gaussian_budgets(budget):
    shape = np.array([[4.0, 1.5], [1.5, 1.0]])
    mechanism = MultivariateGaussian(shape=shape, sensitivity=2.0, **budget)
    scale = Gaussian(sensitivity=2.0, **budget).scale
    np.testing.assert_allclose(mechanism.covariance, scale**2 * shape, rtol=1e-14)
    assert mechanism.guarantee == Guarantee(sensitivity=2.0, **budget)
    # Neighbours at Mahalanobis distance 2: the privacy loss is that of unit Gaussian noise shifted by 2 / scale.
    root = np.linalg.cholesky(shape)
    for angle in (0.0, 1.0, 2.5):
        shift = 2.0 * root @ np.array([np.cos(angle), np.sin(angle)])
        spread = -2.0 * (mechanism.noise_log_prob(shift) - mechanism.noise_log_prob(np.zeros(2)))
        assert math.sqrt(spread) == pytest.approx(2.0 / scale)
        if "delta" in budget:
            assert log_delta(1.0, 1.0 / math.sqrt(spread)) == pytest.approx(math.log(1e-5), rel=1e-9)


@pytest.mark.parametrize("name", ["l1", "l2", "linf", "ellipsoid", "polytope"])
def test_knorm_is_private(name, seed):
    """The loss is at most epsilon for every shift of norm `sensitivity`, and epsilon along the shift."""
    matrix = {"ellipsoid": [[2.0, 1.0], [0.5, 1.0]], "polytope": [[1.0, 0.0], [0.4, 1.0], [-0.5, 0.8]]}.get(name)
    dimension = None if matrix else 2
    mechanism = KNorm(name, epsilon=0.6, sensitivity=3.0, matrix=matrix, dimension=dimension)
    assert mechanism.scale == 5.0
    assert mechanism.guarantee == Guarantee(epsilon=0.6, sensitivity=3.0, norm=None if matrix else name)
    rng = np.random.default_rng(seed)
    z, shift = 20.0 * rng.normal(size=(2_000, 1, 2)), rng.normal(size=(40, 2))
    shift *= 3.0 / mechanism.size(shift)[:, None]
    loss = np.abs(mechanism.noise_log_prob(z) - mechanism.noise_log_prob(z + shift))
    assert loss.max() <= 0.6 + 1e-12
    along = mechanism.noise_log_prob(7.0 * shift) - mechanism.noise_log_prob(8.0 * shift)
    np.testing.assert_allclose(along, 0.6, rtol=1e-9)


# Files --------------------------------------------------------------------------------------------------------------

FILED = {
    **SCALAR,
    **PLANE,
    "cauchy-entries": GeneralizedCauchy([2.0, 3.0], 1.5),
    "truncated-laplace-budget": TruncatedLaplace(epsilon=1.0, delta=1e-6, sensitivity=1.0),
    "gaussian-budget": MultivariateGaussian(shape=np.diag([1.0, 2.0]), rho=0.5, sensitivity=1.0),
    "polytope-budget": KNorm("polytope", matrix=[[1.0, 0.0], [0.4, 1.0]], epsilon=1.0, sensitivity=2.0),
}


@pytest.mark.parametrize("mechanism", FILED.values(), ids=FILED)
def test_files(mechanism):
    release = nw.Release(x=mechanism.released([0.25, -0.5]))
    content = release.to_dict()
    jsonschema.Draft202012Validator(current_schema()).validate(content)
    again = nw.Release.from_dict(content)
    assert again == release
    assert again["x"].mechanism.guarantee == mechanism.guarantee
    assert jax.tree.structure(again["x"].mechanism) == jax.tree.structure(mechanism)


def test_files_may_give_a_budget():
    entries = [
        ({"mechanism": "Staircase", "epsilon": 1.0, "sensitivity": 2.0}, Staircase(1.0, 2.0)),
        ({"mechanism": "Tulap", "epsilon": 1.0}, Tulap(1.0)),
        (
            {"mechanism": "KNorm", "norm": "l2", "dimension": 2, "epsilon": 1.0, "sensitivity": 2.0},
            KNorm("l2", dimension=2, epsilon=1.0, sensitivity=2.0),
        ),
        (
            {"mechanism": "MultivariateGaussian", "shape": [[1.0, 0.0], [0.0, 2.0]], "mu": 1.0, "sensitivity": 2.0},
            MultivariateGaussian(shape=np.diag([1.0, 2.0]), mu=1.0, sensitivity=2.0),
        ),
    ]
    for entry, mechanism in entries:
        content = nw.Release(x=mechanism.released([0.0, 1.0])).to_dict()
        content["statistics"]["x"] = {"value": [0.0, 1.0], **entry}
        jsonschema.Draft202012Validator(current_schema()).validate(content)
        assert nw.Release.from_dict(content)["x"].mechanism == mechanism


# Refusals -----------------------------------------------------------------------------------------------------------

REFUSALS = [
    (lambda: GeneralizedCauchy(1.0, 2.0), r"GeneralizedCauchy: 'power' must be above 1.*got 1\.0"),
    (lambda: GeneralizedCauchy([2.0, 0.5], 2.0), r"GeneralizedCauchy: 'power' must be above 1.*got \[2\.0, 0\.5\]"),
    (lambda: GeneralizedCauchy(np.inf, 2.0), r"GeneralizedCauchy: 'power' must be positive and finite; got inf"),
    (lambda: GeneralizedCauchy(2.0, -1.0), r"GeneralizedCauchy: 'scale' must be positive and finite; got -1\.0"),
    (lambda: Staircase(0.0, 1.0), r"Staircase: 'epsilon' must be positive and finite; got 0\.0"),
    (lambda: Staircase(1.0, "2"), r"Staircase: 'sensitivity' must be a number or an array of numbers; got '2'"),
    (lambda: Staircase(1.0, 1.0, 1.5), r"Staircase: 'gamma' must be at most 1.*got 1\.5"),
    (lambda: Staircase(1.0, 1.0, 0.0), r"Staircase: 'gamma' must be positive and finite; got 0\.0"),
    (lambda: Staircase(2000.0, 1.0), r"Staircase: 'gamma' must be positive.*underflows"),
    (lambda: Tulap(-1.0), r"Tulap: 'epsilon' must be positive and finite; got -1\.0"),
    (lambda: Tulap(1.0, 1.0), r"Tulap: 'delta' must be at least 0 and below 1; got 1\.0"),
    (lambda: Tulap(1.0, [0.1, -0.1]), r"Tulap: 'delta' must be at least 0 and below 1; got \[0\.1, -0\.1\]"),
    (lambda: Tulap(1.0, np.nan), r"Tulap: 'delta' must be at least 0 and below 1; got nan"),
    (lambda: Tulap(1.0, 0.0, 0.0), r"Tulap: 'sensitivity' must be positive and finite; got 0\.0"),
    (lambda: TruncatedLaplace(), r"TruncatedLaplace: 'scale' must be given when there is no budget; got None"),
    (lambda: TruncatedLaplace(1.0), r"TruncatedLaplace: 'bound' must come with scale; got None"),
    (lambda: TruncatedLaplace(1.0, 0.0), r"TruncatedLaplace: 'bound' must be positive and finite; got 0\.0"),
    (lambda: TruncatedLaplace(1.0, epsilon=1.0), r"TruncatedLaplace: 'scale' must not come together with a budget"),
    (lambda: TruncatedLaplace(epsilon=1.0, sensitivity=1.0), r"TruncatedLaplace: 'delta' must come with the rest"),
    (lambda: TruncatedLaplace(delta=0.1, sensitivity=1.0), r"TruncatedLaplace: 'epsilon' must come with the rest"),
    (
        lambda: TruncatedLaplace(epsilon=1.0, delta=0.6, sensitivity=1.0),
        r"TruncatedLaplace: 'delta' must be at most 1/2; got 0\.6",
    ),
    (
        lambda: TruncatedLaplace(bound=3.0, epsilon=1.0, delta=0.1, sensitivity=1.0),
        r"TruncatedLaplace: 'bound' must not come together with a budget; got 3\.0",
    ),
    (lambda: MultivariateGaussian(), r"MultivariateGaussian: 'covariance' must be given when there is no shape"),
    (lambda: MultivariateGaussian(2.0), r"MultivariateGaussian: 'covariance' must be a square matrix; got 2\.0"),
    (lambda: MultivariateGaussian([[1.0, 2.0]]), r"MultivariateGaussian: 'covariance' must be a square matrix"),
    (lambda: MultivariateGaussian([[1.0, 0.1], [0.2, 1.0]]), r"'covariance' must be symmetric; got \[\[1\.0, 0\.1\]"),
    (lambda: MultivariateGaussian([[1.0, 1.0], [1.0, 1.0]]), r"'covariance' must be positive definite; got \[\[1\.0"),
    (lambda: MultivariateGaussian([[1.0, np.nan], [np.nan, 1.0]]), r"'covariance' must be finite"),
    (lambda: MultivariateGaussian(np.eye(2), rho=1.0), r"'covariance' must not come with a shape or a budget"),
    (lambda: MultivariateGaussian(shape=np.eye(2), sensitivity=1.0), r"'epsilon' must be given, or rho or mu; got"),
    (
        lambda: MultivariateGaussian(shape=np.eye(2), sensitivity=1.0, epsilon=1.0),
        r"MultivariateGaussian: 'delta' must come with epsilon; got None",
    ),
    (lambda: MultivariateGaussian(shape=np.eye(2), rho=1.0), r"MultivariateGaussian: 'sensitivity' must come with"),
    (
        lambda: MultivariateGaussian(shape=np.eye(2), sensitivity=1.0, epsilon=1.0, delta=1.0),
        r"MultivariateGaussian: 'delta' must be below 1; got 1\.0",
    ),
    (
        lambda: MultivariateGaussian(shape=[[1.0, 2.0], [2.0, 1.0]], sensitivity=1.0, rho=1.0),
        r"MultivariateGaussian: 'shape' must be positive definite",
    ),
    (lambda: KNorm("l3", 1.0, dimension=2), r"KNorm: 'norm' must be one of 'l1'.*got 'l3'"),
    (lambda: KNorm("l1", 1.0), r"KNorm: 'dimension' must be a whole number, at least 1; got None"),
    (lambda: KNorm("l1", dimension=2), r"KNorm: 'scale' must be given when there is no budget"),
    (lambda: KNorm("l1", [1.0, 2.0], dimension=2), r"KNorm: 'scale' must be a single number; got \[1\.0, 2\.0\]"),
    (lambda: KNorm("l2", 1.0, dimension=2, matrix=np.eye(2)), r"KNorm: 'matrix' must not come with the norm 'l2'"),
    (lambda: KNorm("ellipsoid", 1.0), r"KNorm: 'matrix' must come with the norm 'ellipsoid'; got None"),
    (lambda: KNorm("ellipsoid", 1.0, matrix=[[1.0, 0.0]]), r"KNorm: 'matrix' must be square"),
    (lambda: KNorm("ellipsoid", 1.0, matrix=np.ones((2, 2))), r"KNorm: 'matrix' must have independent columns"),
    (lambda: KNorm("polytope", 1.0, matrix=[[1.0, 0.0]]), r"KNorm: 'matrix' must have independent columns"),
    (lambda: KNorm("polytope", 1.0, matrix=[1.0, 2.0]), r"KNorm: 'matrix' must be a matrix"),
    (lambda: KNorm("polytope", 1.0, matrix=[[np.inf]]), r"KNorm: 'matrix' must be finite"),
    (lambda: KNorm("polytope", 1.0, matrix=np.eye(6)), r"at most 5 columns: the density needs .* volume; got '6 col"),
    (lambda: KNorm("polytope", 1.0, matrix=np.eye(2), dimension=3), r"KNorm: 'dimension' must be the matrix's .*got 3"),
]


@pytest.mark.parametrize(("make", "message"), REFUSALS, ids=[str(index) for index in range(len(REFUSALS))])
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
