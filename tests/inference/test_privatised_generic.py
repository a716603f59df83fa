"""What NumPyro asks of every distribution, asked of `Privatised` for many pairs of law and mechanism."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers, infer
from numpyro.contrib.control_flow import scan
from scipy import special, stats
from targets import brief_rows

import noisewise as nw
from noisewise import mechanisms
from noisewise.numerics import double

LAPLACE = nw.Laplace(scale=2.0)
PAIRS = {
    "Poisson, Laplace": (dist.Poisson, (jnp.array([1.0, 5.0, 20.0]),), LAPLACE),
    "Poisson, discrete Gaussian": (dist.Poisson, (5.0,), nw.DiscreteGaussian(scale=2.0)),
    "Poisson, staircase": (dist.Poisson, (5.0,), mechanisms.Staircase(epsilon=1.0, sensitivity=2.0)),
    "Poisson, rounded": (dist.Poisson, (5.0,), mechanisms.Rounded(LAPLACE, step=5.0)),
    "Poisson, thresholded": (dist.Poisson, (5.0,), mechanisms.Thresholded(LAPLACE, 4.0)),
    "Poisson, one scale each": (dist.Poisson, (5.0,), nw.Laplace(scale=np.array([1.0, 2.0, 4.0]))),
    "binomial, discrete Laplace": (
        lambda probs: dist.BinomialProbs(probs, 30),
        (jnp.array([0.2, 0.5]),),
        nw.DiscreteLaplace(scale=2.0),
    ),
    "negative binomial, Gaussian": (dist.NegativeBinomial2, (5.0, jnp.array([1.5, 4.0])), nw.Gaussian(scale=2.0)),
    "beta-binomial, Laplace": (lambda a, b: dist.BetaBinomial(a, b, 30), (2.0, 3.0), LAPLACE),
    "zero-inflated, Laplace": (dist.ZeroInflatedPoisson, (0.25, 5.0), LAPLACE),
    "Bernoulli, randomised response": (dist.BernoulliProbs, (0.25,), nw.RandomizedResponse(keep=0.75)),
    "normal, Laplace": (dist.Normal, (jnp.array([0.5, 1.0]), 2.0), LAPLACE),
    "normal, Gaussian": (dist.Normal, (0.5, 2.0), nw.Gaussian(scale=1.0)),
    "gamma, Laplace": (dist.Gamma, (2.0, jnp.array([[0.5], [1.0]])), LAPLACE),
    "Student, generalised Cauchy": (
        dist.StudentT,
        (3.0, 1.0, 2.0),
        mechanisms.GeneralizedCauchy(power=3.0, scale=0.7),
    ),
    "beta, truncated Laplace": (dist.Beta, (2.0, 3.0), mechanisms.TruncatedLaplace(scale=0.5, bound=1.5)),
    "uniform, Tulap": (dist.Uniform, (-1.0, 3.0), mechanisms.Tulap(epsilon=1.0, delta=0.01)),
    "gamma, exact": (dist.Gamma, (2.0, 1.0), nw.Exact()),
}
KEPT = ("normal, Laplace",)
"""Poisson laws have test_privatised.py."""
rows = pytest.mark.parametrize(("make", "parameters", "mechanism"), brief_rows(PAIRS, KEPT))


def pair(make, parameters, mechanism):
    return nw.Privatised(make(*parameters), mechanism)


@rows
def test_shapes(make, parameters, mechanism):
    one = pair(make, parameters, mechanism)
    assert one.shape() == one.batch_shape + one.event_shape
    key = jax.random.key(1)
    drawn = one.sample(key, (2, 4))
    assert drawn.shape == (2, 4, *one.shape())
    assert jax.eval_shape(one.log_prob, drawn).shape == (2, 4, *one.batch_shape)
    assert np.array_equal(one.sample(key), one.sample(key), equal_nan=True)
    wide = one.expand((3, *one.batch_shape))
    assert wide.batch_shape == (3, *one.batch_shape)
    assert jax.eval_shape(lambda: wide.sample(key, (2,))).shape == (2, 3, *one.shape())
    event = wide.to_event(1)
    assert event.event_shape == wide.batch_shape[-1:]
    narrow, expanded, summed = jax.jit(lambda value: [law.log_prob(value) for law in (one, wide, event)])(drawn[0, :3])
    assert expanded.shape == (3, *one.batch_shape)
    assert np.allclose(expanded, narrow, rtol=1e-5, atol=1e-5)
    assert np.allclose(summed, expanded.sum(-1), rtol=1e-5, atol=1e-5)
    if one.batch_shape:
        with pytest.raises(ValueError):
            one.expand((one.batch_shape[-1] + 1,))


@rows
def test_it_is_a_pytree(make, parameters, mechanism):
    one = pair(make, parameters, mechanism)
    leaves, form = jax.tree.flatten(one)
    again = jax.tree.unflatten(form, leaves)
    value = one.sample(jax.random.key(2))
    assert (again.batch_shape, again.event_shape, type(again)) == (one.batch_shape, one.event_shape, nw.Privatised)
    expected = one.log_prob(value)
    assert np.allclose(again.log_prob(value), expected, rtol=1e-6, atol=1e-6)
    assert np.allclose(jax.jit(lambda law, value: law.log_prob(value))(one, value), expected, rtol=1e-4, atol=1e-5)
    assert jax.tree.structure(one) == jax.tree.structure(pair(make, parameters, mechanism))


@rows
def test_maps_over_parameters(make, parameters, mechanism):
    """vmap over what the law is made of, with and without jit, and over sampling."""
    one = pair(make, parameters, mechanism)
    value = one.sample(jax.random.key(3))
    stacked = [jnp.stack([jnp.asarray(part), jnp.asarray(part)]) for part in parameters]

    def log_prob(*parameters):
        return pair(make, parameters, mechanism).log_prob(value)

    expected = np.broadcast_to(one.log_prob(value), (2, *one.batch_shape))
    assert np.allclose(jax.jit(jax.vmap(log_prob))(*stacked), expected, rtol=1e-4, atol=1e-5)
    keys = jax.random.split(jax.random.key(4), 2)
    drawn = jax.jit(jax.vmap(lambda key, *parameters: pair(make, parameters, mechanism).sample(key)))(keys, *stacked)
    assert drawn.shape == (2, *one.shape())


@rows
def test_gradients(make, parameters, mechanism):
    """In every parameter, against differences of five points."""
    with double():
        wide = [jnp.asarray(part, float) for part in parameters]
        value = np.asarray(pair(make, wide, mechanism).sample(jax.random.key(5)))
        program = jax.jit(lambda *parameters: jnp.sum(pair(make, parameters, mechanism).log_prob(value)))
        slopes = jax.jit(jax.grad(program, argnums=tuple(range(len(wide)))))(*wide)
        for i, slope in enumerate(slopes):
            step = 1e-4
            around = [
                program(*(part + m * step if j == i else part for j, part in enumerate(wide))) for m in (-2, -1, 1, 2)
            ]
            difference = np.dot([1.0, -8.0, 8.0, -1.0], np.array(around)) / (12.0 * step)
            assert np.isclose(np.sum(slope), difference, rtol=1e-6, atol=1e-6)


@rows
def test_support(make, parameters, mechanism):
    one = nw.Privatised(make(*parameters), mechanism, validate_args=True)
    drawn = one.sample(jax.random.key(6), (50,))
    assert bool(jnp.all(one.support(drawn)))
    assert not np.any(np.isnan(one.log_prob(drawn)))
    assert not one.has_enumerate_support
    with pytest.raises(NotImplementedError):
        one.enumerate_support()
    if not isinstance(mechanism, nw.Exact):  # whose support is the law's own, and NumPyro's have infinity in them
        with pytest.warns(UserWarning, match="Out-of-support"):
            one.log_prob(jnp.full(one.shape(), np.inf))


def test_arguments_are_told_by_their_names():
    assert list(inspect.signature(nw.Privatised).parameters) == ["law", "mechanism", "window", "validate_args"]


# In models -------------------------------------------------------------------------------------------------

COUNTS = np.array([1.5, 8.25, 3.0, 12.0])


def log_sum(rate, released=COUNTS):
    k = np.arange(400).reshape(-1, *(1,) * np.ndim(rate + released))
    return special.logsumexp(stats.poisson.logpmf(k, rate) - np.abs(released - k) / 2.0 - np.log(4.0), axis=0)


def series(released=None):
    """A rate that walks, released step by step."""
    start = numpyro.sample("start", dist.Normal(1.5, 1.0))

    def step(level, value):
        level = numpyro.sample("level", dist.Normal(level, 0.3))
        numpyro.sample("released", nw.Privatised(dist.Poisson(jnp.exp(level)), LAPLACE), obs=value)
        return level, level

    scan(step, start, released, length=4)


def test_in_a_scan():
    levels = np.array([1.0, 1.5, 1.25, 2.0])
    walk = stats.norm.logpdf(np.diff(levels, prepend=1.25), 0.0, 0.3).sum() + stats.norm.logpdf(1.25, 1.5, 1.0)

    def total(level):
        return infer.util.log_density(series, (jnp.asarray(COUNTS),), {}, {"start": 1.25, "level": level})[0]

    # where only the level is traced, the noise is tabulated: by the law's rows, of which it has one for each step
    for density in (total, jax.jit(lambda level: jax.value_and_grad(total)(level)[0])):
        assert np.isclose(density(jnp.asarray(levels)), walk + log_sum(np.exp(levels)).sum(), rtol=1e-5)


@pytest.mark.long
def test_a_series_is_predicted_and_sampled():
    predicted = infer.Predictive(series, num_samples=3)(jax.random.key(0))
    assert predicted["released"].shape == (3, 4)
    mcmc = infer.MCMC(infer.NUTS(series), num_warmup=50, num_samples=50, progress_bar=False)
    mcmc.run(jax.random.key(0), jnp.asarray(COUNTS))
    assert np.all(np.isfinite(mcmc.get_samples()["level"]))


def test_scaled_masked_and_held_fixed():
    def model():
        rate = numpyro.sample("rate", dist.Gamma(3.0, 0.5))
        with numpyro.plate("county", 4), handlers.scale(scale=2.0):
            law = nw.Privatised(dist.Poisson(rate), LAPLACE)
            numpyro.sample("released", law.mask(jnp.array([True, True, False, True])), obs=COUNTS)

    total, trace = infer.util.log_density(model, (), {}, {"rate": 4.0})
    kept = log_sum(4.0)[[0, 1, 3]].sum()
    assert np.isclose(total, stats.gamma.logpdf(4.0, 3.0, scale=2.0) + 2.0 * kept, rtol=1e-5)
    assert trace["released"]["fn"].event_shape == ()
    with handlers.seed(rng_seed=0), handlers.condition(data={"rate": 4.0}):
        again = handlers.trace(model).get_trace()
    assert again["rate"]["value"] == 4.0


def test_many_likelihoods_at_once():
    """`log_likelihood` and `Predictive` over posterior draws: entry by entry, draws first."""

    def model(released=None):
        rate = numpyro.sample("rate", dist.Gamma(3.0, 0.5))
        with numpyro.plate("county", 4):
            numpyro.sample("released", nw.Privatised(dist.Poisson(rate), LAPLACE), obs=released)

    rates = np.array([2.0, 4.0, 8.0])
    found = infer.log_likelihood(model, {"rate": jnp.asarray(rates)}, COUNTS)["released"]
    assert np.allclose(found, [log_sum(rate) for rate in rates], rtol=1e-4)
    drawn = infer.Predictive(model, {"rate": jnp.asarray(rates)})(jax.random.key(0))["released"]
    assert drawn.shape == (3, 4)
    assert len(np.unique(drawn)) == 12
