"""Laws: 64-bit rebuilding and its warnings, densities on and off the support, and functions that are refused."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import transforms
from scipy import stats
from scipy.special import gammaln, logsumexp

from noisewise.errors import InputError, NoisewiseWarning
from noisewise.model.law import Law, constant_law, in_64_bit, rounded_to_32_bit
from noisewise.model.supports import support_ends
from noisewise.numerics import double

WHO = "Model: prior 'theta'"
NUMBER = jax.ShapeDtypeStruct((), np.float64)


def constant(law):
    return Law(WHO, constant_law(law, WHO), (), {})


def function_of(function, *parents, shape=()):
    return Law(WHO, function, parents, {name: jax.ShapeDtypeStruct(shape, np.float64) for name in parents})


# 32 and 64 bits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (np.float32([0.1]), True),
        (np.float32([0.5, 0.1]), True),
        (np.float32([1 / 3]), True),
        (np.float32([0.5, -2.25, 1024.0, 0.0]), False),
        (np.float32([np.inf, np.nan]), False),
        (np.float32([]), False),
        (np.float64([0.1]), False),
        (np.int32([3]), False),
        (0.1, False),
        ("word", False),
    ],
    ids=repr,
)
def test_rounded_to_32_bit(leaf, expected):
    assert rounded_to_32_bit([leaf]) is expected
    assert rounded_to_32_bit({"inside": (leaf, 1.0)}) is expected


def test_rounded_to_32_bit_sees_jax_arrays():
    assert rounded_to_32_bit(jnp.array(0.1, dtype=jnp.float32))
    assert not rounded_to_32_bit(jnp.array(0.5, dtype=jnp.float32))
    with double():
        assert not rounded_to_32_bit(jnp.array(0.1))


def expanded(law):
    return law.expand([2]).to_event(1)


# NumPyro keeps the covariance as it is given, but a location in 32 bits: those below have a short binary fraction.
COVARIANCE = np.array([[1.3, 0.1], [0.1, 0.7]])
# Made outside 64 bits from Python numbers and NumPy arrays: (law, value, its log density to full precision).
WIDE = {
    "normal": (dist.Normal(0.1, 0.3), 0.7, stats.norm(0.1, 0.3).logpdf(0.7)),
    "normal-array": (dist.Normal(np.array([0.1, 0.2]), 0.3), [0.7, 0.8], 2 * stats.norm(0.1, 0.3).logpdf(0.7)),
    "gamma": (dist.Gamma(2.3, 0.7), 1.1, stats.gamma(2.3, scale=1 / 0.7).logpdf(1.1)),
    "log-normal": (dist.LogNormal(0.1, 0.3), 1.1, stats.lognorm(0.3, scale=np.exp(0.1)).logpdf(1.1)),
    "beta": (dist.Beta(2.3, 0.7), 0.4, stats.beta(2.3, 0.7).logpdf(0.4)),
    "poisson": (dist.Poisson(7.3), 9.0, stats.poisson(7.3).logpmf(9)),
    "binomial": (dist.Binomial(10, 0.3), 4.0, stats.binom(10, 0.3).logpmf(4)),
    "truncated": (dist.TruncatedNormal(0.1, 0.3, low=0.2), 0.7, stats.truncnorm(1 / 3, np.inf, 0.1, 0.3).logpdf(0.7)),
    "expanded": (expanded(dist.Normal(0.1, 0.3)), [0.7, 0.7], 2 * stats.norm(0.1, 0.3).logpdf(0.7)),
    "transformed": (
        dist.TransformedDistribution(dist.Normal(0.1, 0.3), transforms.AffineTransform(0.7, 1.1)),
        0.9,
        stats.norm(0.7 + 0.11, 0.33).logpdf(0.9),
    ),
    "multivariate": (
        dist.MultivariateNormal(np.array([0.5, 0.25]), COVARIANCE),
        [0.7, 0.8],
        stats.multivariate_normal([0.5, 0.25], COVARIANCE).logpdf([0.7, 0.8]),
    ),
    "multivariate-precision": (
        dist.MultivariateNormal(np.array([0.5, 0.25]), precision_matrix=np.linalg.inv(COVARIANCE)),
        [0.7, 0.8],
        stats.multivariate_normal([0.5, 0.25], COVARIANCE).logpdf([0.7, 0.8]),
    ),
    "dirichlet": (
        dist.Dirichlet(np.array([0.3, 0.7, 1.1])),
        [0.2, 0.3, 0.5],
        stats.dirichlet([0.3, 0.7, 1.1]).logpdf([0.2, 0.3, 0.5]),
    ),
    "student": (dist.StudentT(3.3, 0.1, 0.7), 1.1, stats.t(3.3, 0.1, 0.7).logpdf(1.1)),
}


@pytest.mark.parametrize(("law", "value", "expected"), WIDE.values(), ids=WIDE)
def test_laws_made_in_32_bits_are_rebuilt_in_64(law, value, expected):
    found = constant(law).log_prob(value, {})  # and without a warning, which would be an error here
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [expected], rtol=1e-12)


def test_negative_control_32_bits_are_not_enough():
    law, value, expected = WIDE["multivariate"]
    assert abs(float(law.log_prob(np.array(value))) - expected) > 1e-9


def test_in_64_bit_reports_the_fields_it_used():
    used = []
    with double():
        wide = in_64_bit(dist.Normal(jnp.array([0.5]), 0.1).expand([3]).to_event(1), used)
        assert wide.shape() == (3,)
        assert wide.event_dim == 1
        assert wide.sample(jax.random.key(1)).dtype == np.float64
    assert any(isinstance(leaf, jax.Array) for leaf in used)


@pytest.mark.parametrize(
    "law",
    [
        lambda: dist.Normal(jnp.array([0.1]), 1.0),
        lambda: expanded(dist.Normal(jnp.array(0.1), 1.0)),
        lambda: dist.TruncatedNormal(jnp.array(0.1), 1.0, low=0.0),
        lambda: dist.MultivariateNormal(np.zeros(2), jnp.array(COVARIANCE)),
        lambda: dist.TransformedDistribution(dist.Normal(0.0, 1.0), transforms.AffineTransform(jnp.array(0.1), 1.0)),
        lambda: dist.NegativeBinomial2(3.0, 2.0),  # stores 2/3 in 32 bits, whatever it is given
    ],
)
def test_rounded_arrays_are_named_in_a_warning(law):
    with pytest.warns(
        NoisewiseWarning, match=r"Model: prior 'theta': holds 32-bit JAX arrays .*Make it inside a function"
    ):
        constant_law(law(), WHO)


@pytest.mark.parametrize(
    "law",
    [
        lambda: dist.Normal(jnp.array([0.5]), 1.0),
        lambda: dist.Normal(0.1, 1.0),
        lambda: dist.Normal(np.array([0.1]), 1.0),
        lambda: dist.Gamma(jnp.array([25.0]), 1.0),
        lambda: dist.MultivariateNormal(np.array([0.5, 0.25]), COVARIANCE),
        lambda: dist.Categorical(np.array([0.1, 0.9])),
        lambda: dist.Binomial(jnp.array(10), 0.1),
    ],
)
def test_exact_arrays_do_not_warn(law):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        constant_law(law(), WHO)


def test_rounded_arrays_that_a_function_captures_are_named():
    slope = jnp.array([0.1, 0.2])
    with pytest.warns(NoisewiseWarning, match="prior 'theta'"):
        function_of(lambda x: dist.Normal(slope * x, 1.0), "x")


def test_functions_run_in_64_bits():
    law = function_of(lambda x: dist.Normal(jnp.array([0.1, 0.2]) * x, 0.3), "x")
    expected = stats.norm([0.3, 0.6], 0.3).logpdf([0.7, 0.8]).sum()
    np.testing.assert_allclose(law.log_prob([0.7, 0.8], {"x": np.array([3.0])}), [expected], rtol=1e-13)


# Densities -----------------------------------------------------------------------------------------------

LOCS, SCALES = np.array([-1.3, 0.1, 2.7, 40.0]), np.array([0.3, 1.1, 2.2, 7.0])


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (dist.Normal, 0.7, stats.norm(LOCS, SCALES).logpdf(0.7)),
        (dist.Laplace, 0.7, stats.laplace(LOCS, SCALES).logpdf(0.7)),
        (dist.Cauchy, 0.7, stats.cauchy(LOCS, SCALES).logpdf(0.7)),
        (lambda m, s: dist.LogNormal(m, s), 0.7, stats.lognorm(SCALES, scale=np.exp(LOCS)).logpdf(0.7)),
        (lambda m, s: dist.Gamma(s, jnp.exp(m)), 0.7, stats.gamma(SCALES, scale=np.exp(-LOCS)).logpdf(0.7)),
        (lambda m, s: dist.Poisson(s), 3.0, stats.poisson(SCALES).logpmf(3)),
        (lambda m, s: dist.Binomial(9, logits=m), 3.0, stats.binom(9, 1 / (1 + np.exp(-LOCS))).logpmf(3)),
        (
            lambda m, s: dist.Normal(m, s).expand([2]).to_event(1),
            [0.7, 1.9],
            stats.norm(LOCS, SCALES).logpdf(0.7) + stats.norm(LOCS, SCALES).logpdf(1.9),
        ),
    ],
)
@pytest.mark.quick
def test_log_prob_against_scipy(function, value, expected):
    law = function_of(lambda loc, scale: function(loc, scale), "loc", "scale")
    # The binomial with success probability 1 - 4e-18 is beyond SciPy's own digits.
    close = np.isfinite(expected)
    found = law.log_prob(value, {"loc": LOCS, "scale": SCALES})
    np.testing.assert_allclose(found[close], expected[close], rtol=1e-11)


def test_log_prob_takes_one_value_or_one_per_row():
    law = function_of(lambda loc: dist.Normal(loc * jnp.ones(4), 1.0), "loc")  # as many entries as rows
    values = np.arange(16.0).reshape(4, 4)
    each = stats.norm(LOCS[:, None], 1.0).logpdf(values).sum(axis=1)
    np.testing.assert_allclose(law.log_prob(values, {"loc": LOCS}), each, rtol=1e-13)
    one = stats.norm(LOCS[:, None], 1.0).logpdf(values[1]).sum(axis=1)
    np.testing.assert_allclose(law.log_prob(values[1], {"loc": LOCS}), one, rtol=1e-13)


@pytest.fixture(params=[True, False], ids=["validation on", "validation off"])
def validation(request):
    """NumPyro's global validation, put back afterwards."""
    before = dist.Distribution._validate_args
    numpyro.enable_validation(request.param)
    yield request.param
    numpyro.enable_validation(before)


def poisson_extended(rate, value=37.4):
    return value * np.log(rate) - rate - gammaln(value + 1)


RATES = np.array([30.0, 40.0])
PART = np.array([0.25, 0.75])
# (function of a rate, what its density formula gives at 37.4)
OFF_SUPPORT = {
    "poisson": (dist.Poisson, poisson_extended),
    "binomial": (
        lambda rate: dist.Binomial(100, probs=rate / 100),
        lambda rate: (
            gammaln(101) - gammaln(38.4) - gammaln(63.6) + 37.4 * np.log(rate / 100) + 62.6 * np.log1p(-rate / 100)
        ),
    ),
    "in a vector": (lambda rate: dist.Poisson(rate * jnp.ones(3)).to_event(1), lambda rate: 3 * poisson_extended(rate)),
    "expanded": (lambda rate: dist.Poisson(rate).expand([3]).to_event(1), lambda rate: 3 * poisson_extended(rate)),
    "in a mixture": (
        lambda rate: dist.MixtureSameFamily(
            dist.Categorical(probs=jnp.array([0.25, 0.75])), dist.Poisson(jnp.array([1.0, 1.5]) * rate)
        ),
        lambda rate: logsumexp(np.log(PART) + poisson_extended(np.array([1.0, 1.5]) * rate)),
    ),
    "zero-inflated": (
        lambda rate: dist.ZeroInflatedPoisson(0.25, rate),
        lambda rate: np.log(0.75) + poisson_extended(rate),
    ),
}


@pytest.mark.parametrize(("function", "formula"), OFF_SUPPORT.values(), ids=OFF_SUPPORT)
def test_density_formula_holds_off_the_support(function, formula, validation):
    law = function_of(lambda rate: function(rate), "rate")
    expected = [formula(rate) for rate in RATES]
    np.testing.assert_allclose(law.log_prob(37.4, {"rate": RATES}), expected, rtol=1e-11)
    fixed = Law(WHO, constant_law(function(30.0), WHO), (), {})
    np.testing.assert_allclose(fixed.log_prob(37.4, {}), expected[:1], rtol=1e-11)


def test_the_users_law_is_left_as_it_was(validation):
    law = dist.Poisson(30.0)
    constant(law).log_prob(37.4, {})
    assert law._validate_args is validation
    assert law.rate == 30.0


def test_draws_do_not_depend_on_validation(validation, seed):
    law = function_of(lambda rate: dist.Poisson(rate), "rate")
    draws = law.draw(np.random.default_rng(seed), {"rate": RATES}, 2)
    np.testing.assert_array_equal(draws, np.random.default_rng(seed).poisson(RATES))


# Shape and type of what is drawn -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "shape", "dtype"),
    [
        (dist.Normal(0.0, 1.0), (), np.float64),
        (dist.Poisson(3.0), (), np.int64),
        (dist.Normal(np.zeros((2, 3)), 1.0).to_event(1), (2, 3), np.float64),
        (dist.Dirichlet(np.ones(4)), (4,), np.float64),
        (dist.Multinomial(5, np.ones(4) / 4), (4,), np.int64),
        (dist.Delta(np.array([1, 2])), (2,), np.int64),
        (dist.Delta(0.5), (), np.float64),  # a fraction is no whole number: an int64 here would truncate it downstream
    ],
)
def test_struct_says_what_draws_are(law, shape, dtype, seed):
    made = constant(law)
    assert made.struct.shape == shape
    draws = made.draw(np.random.default_rng(seed), {}, 6)
    assert draws.shape == (6, *shape)
    assert draws.dtype == made.struct.dtype == dtype


# Functions that are refused ------------------------------------------------------------------------------


def undefined(theta):
    return no_such_name(theta)  # noqa: F821


REFUSED = {
    "returns a number": (lambda theta: 2.0 * theta, "must return a NumPyro distribution; got a number."),
    "returns an array": (lambda theta: jnp.ones(3), "distribution; got an array of shape (3,)."),
    "returns nothing": (lambda theta: None, "must return a NumPyro distribution; got NoneType"),
    "returns a class": (lambda theta: dist.Normal, "must return a NumPyro distribution; got"),
    "returns a SciPy law": (lambda theta: stats.norm(), "must return a NumPyro distribution; got rv_continuous_frozen"),
    "raises": (lambda theta: dist.Normal(theta, 1 / 0), "it raised ZeroDivisionError: division by zero"),
    "names nothing": (undefined, "it raised NameError: name 'no_such_name' is not defined"),
    "branches": (
        lambda theta: dist.Normal(0.0, 1.0) if theta > 0 else dist.Normal(1.0, 1.0),
        "it raised TracerBoolConversionError",
    ),
    "uses NumPy": (lambda theta: dist.Normal(np.float64(np.exp(np.asarray(theta))), 1.0), "it raised Tracer"),
    "uses float": (lambda theta: dist.Normal(float(theta), 1.0), "it raised ConcretizationTypeError"),
    "shapes that clash": (lambda theta: dist.Normal(jnp.zeros(2), jnp.ones(3) * theta), "it raised"),
    "improper": (lambda theta: dist.ImproperUniform(dist.constraints.real, (), ()), "ImproperUniform is improper"),
    "masked": (lambda theta: dist.Normal(theta, 1.0).mask(False), "is masked: its draws and its density disagree"),
    "masked inside": (lambda theta: dist.Normal(theta, 1.0).mask(np.array(True)).expand([3]).to_event(1), "is masked"),
    "unit": (lambda theta: dist.Unit(theta), "Unit has no values to draw"),
    "censored": (lambda theta: dist.RightCensoredDistribution(dist.Exponential(theta), 0), "is censored: it draws"),
}


@pytest.mark.parametrize(("function", "says"), REFUSED.values(), ids=REFUSED)
def test_functions_that_give_no_law_are_refused(function, says):
    with pytest.raises(InputError) as caught:
        Law(WHO, function, ("theta",), {"theta": NUMBER})
    message = str(caught.value)
    assert message.startswith(f"{WHO}: "), message
    assert says in message, message


@pytest.mark.parametrize("name", ["raises", "branches"])
def test_a_refused_function_is_told_what_to_use(name):
    with pytest.raises(InputError, match=r"the function of \(theta\) must run .*jnp\.where in place of if") as caught:
        Law(WHO, REFUSED[name][0], ("theta",), {"theta": NUMBER})
    assert caught.value.__cause__ is not None  # the user's own traceback is kept


@pytest.mark.parametrize(
    "law", [dist.ImproperUniform(dist.constraints.real, (), ()), dist.Normal(0.0, 1.0).mask(False)]
)
def test_refused_constants(law):
    with pytest.raises(InputError, match=r"prior 'theta'.*(improper|masked).*Give a proper distribution"):
        constant(law)


SHORT_CUTS = {
    "rate as it is": (lambda a, b: dist.Poisson(a), {"rate": "a"}, set()),
    "one as it is, one that no value enters": (lambda a, b: dist.Binomial(40, b), {"probs": "b"}, {"total_count"}),
    "one computed, one that no value enters": (lambda a, b: dist.Gamma(92.0, 92.0 / a**2), {}, {"concentration"}),
    "both computed": (lambda a, b: dist.Normal(a + b, a / 2), {}, set()),
    "with entries": (lambda a, b: dist.Normal(a, jnp.array([1.0, 2.0, 3.0])).to_event(1), {}, {"scale"}),
}


@pytest.mark.parametrize("inner", [(), ("b",)], ids=["rows", "records"])
@pytest.mark.parametrize(("function", "passed", "fixed"), SHORT_CUTS.values(), ids=SHORT_CUTS.keys())
def test_attributes_that_need_no_program_are_what_the_program_gives(function, passed, fixed, inner, seed):
    """Values handed on and values that stay fixed, beside the whole of the law's attributes by one program."""
    law = Law(WHO, function, ("a", "b"), {"a": NUMBER, "b": NUMBER}, frozenset(inner))
    assert (law.form.passed, law.form.fixed) == (passed, fixed)
    rng, records = np.random.default_rng(seed), 4 if inner else None
    outer = {"a": rng.random(5)} | ({} if inner else {"b": rng.random(5)})
    within = {"b": rng.random((5, 4))} if inner else {}
    found = {**law.constant, **law._attributes_of(outer, within, records)}
    whole = law._run(law._attribute_program(lambda name: True, bool(inner)), outer, within, None)
    assert found.keys() == whole.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(np.broadcast_to(found[name], value.shape), value)


BEYOND = {
    "between whole numbers, beyond the last": (lambda p: dist.Binomial(3, p), 3.5),
    "between whole numbers, before the first": (lambda p: dist.Binomial(3, p), -0.5),
    "one cell below nothing": (lambda p: dist.Multinomial(3, jnp.stack([p, 1.0 - p])), [-1.0, 4.0]),
    "one cell a fraction below nothing": (lambda p: dist.Multinomial(3, jnp.stack([p, 1.0 - p])), [-0.5, 3.5]),
    "one entry of two": (lambda p: dist.Exponential(p).expand([2]), [-1.0, 2.0]),
    "beneath a transformed law": (
        lambda p: dist.TransformedDistribution(dist.Exponential(p), transforms.AffineTransform(2.0, 1.0)),
        1.5,
    ),
}


@pytest.mark.parametrize(("law", "value"), BEYOND.values(), ids=BEYOND)
def test_what_a_law_cannot_give_has_no_density(law, value):
    bound = Law("test", law, ("p",), {"p": jax.ShapeDtypeStruct((), np.float64)})
    assert bound.log_prob(value, {"p": np.array([0.3])})[0] == -np.inf


def test_ends_of_a_support_follow_a_transform_that_turns_it_round():
    turned = dist.TransformedDistribution(dist.Exponential(1.0), transforms.AffineTransform(2.0, -3.0))
    assert [float(end) for end in support_ends(turned)] == [-np.inf, 2.0]
    unit = dist.TransformedDistribution(dist.Uniform(-1.0, 2.0), transforms.AffineTransform(1.0, -1.0))
    assert [float(end) for end in support_ends(unit)] == [-1.0, 2.0]


def test_densities_of_entries_multiply():
    bound = Law("test", lambda p: dist.Normal(p, jnp.array([1.0, 2.0])), ("p",), {"p": jax.ShapeDtypeStruct((), float)})
    found = bound.log_prob([0.5, -1.0], {"p": np.array([0.3])})[0]
    assert found == pytest.approx(stats.norm(0.3, [1.0, 2.0]).logpdf([0.5, -1.0]).sum(), rel=1e-12)
