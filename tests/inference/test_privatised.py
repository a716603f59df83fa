"""`Privatised` as a NumPyro distribution, and draws of the statistics behind it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers, infer
from scipy import special, stats

import noisewise as nw
from noisewise import mechanisms
from noisewise.errors import InputError
from noisewise.inference.conditional import noise
from noisewise.model.masses import entries
from noisewise.numerics import double

LAPLACE = nw.Laplace(scale=2.0)
FALSE_ALARM = 1e-6
"""Of one test of draws."""


def log_sum(rate, released, scale=2.0):
    """log likelihood of a Poisson rate, summed here."""
    k = np.arange(400).reshape(-1, *(1,) * np.ndim(rate + released))
    return special.logsumexp(stats.poisson.logpmf(k, rate) + stats.laplace.logpdf(released - k, scale=scale), axis=0)


def test_the_density_is_the_sum_in_64_and_32_bits():
    released = np.array([-3.0, 4.5, 40.25])
    with double():
        wide = np.asarray(jax.jit(lambda: nw.Privatised(dist.Poisson(5.0), LAPLACE).log_prob(released))())
    narrow = np.asarray(nw.Privatised(dist.Poisson(5.0), LAPLACE).log_prob(released))
    assert wide.dtype == np.float64
    assert narrow.dtype == np.float32
    assert np.allclose(wide, log_sum(5.0, released), rtol=0, atol=1e-10)
    assert np.allclose(narrow, log_sum(5.0, released), rtol=1e-5, atol=1e-5)


def shape_of(law, value):
    """Of the densities, which need not be computed for that."""
    return jax.eval_shape(lambda: law.log_prob(value)).shape


def test_shapes_are_those_of_numpyro():
    rates = jnp.array([1.0, 5.0, 20.0])
    one = nw.Privatised(dist.Poisson(rates), LAPLACE)
    assert (one.batch_shape, one.event_shape) == ((3,), ())
    value = one.sample(jax.random.key(0), (4, 2))
    assert value.shape == (4, 2, 3)
    event = one.to_event(1)
    assert (event.batch_shape, event.event_shape) == ((), (3,))
    inside = nw.Privatised(dist.Poisson(rates).to_event(1), LAPLACE)
    assert inside.event_shape == (3,)
    plain, summed, within, neglected = jax.jit(
        lambda: (*(law.log_prob(value) for law in (one, event, inside)), inside.neglected(value))
    )()
    assert plain.shape == (4, 2, 3)
    assert np.allclose(summed, plain.sum(-1), rtol=1e-5)
    assert np.allclose(within, summed, rtol=1e-5)
    assert neglected.shape == (4, 2)
    many = nw.Privatised(dist.Poisson(5.0), LAPLACE).expand((2, 3))
    assert many.sample(jax.random.key(0)).shape == (2, 3)
    assert len(np.unique(many.sample(jax.random.key(0)))) == 6
    assert shape_of(many, value) == (4, 2, 3)
    scales = nw.Privatised(dist.Poisson(5.0), nw.Laplace(scale=np.array([1.0, 2.0, 4.0])))
    assert scales.batch_shape == (3,)
    assert scales.sample(jax.random.key(0), (5,)).shape == (5, 3)
    assert shape_of(scales, value) == (4, 2, 3)


@pytest.mark.parametrize(
    ("law", "mechanism", "possible", "impossible", "discrete"),
    [
        (dist.Poisson(5.0), nw.DiscreteLaplace(scale=2.0), -3, 2.5, True),
        (dist.Poisson(5.0), LAPLACE, -3.5, np.inf, False),
        (dist.Poisson(5.0), mechanisms.Thresholded(LAPLACE, 4.0), np.nan, np.inf, False),
        (dist.Bernoulli(0.25), nw.RandomizedResponse(keep=0.75), 1, 2, True),
        (dist.Gamma(2.0, 1.0), nw.Exact(), 1.5, -1.5, False),
    ],
)
def test_the_support_is_what_can_be_released(law, mechanism, possible, impossible, discrete):
    one = nw.Privatised(law, mechanism, validate_args=True)
    assert bool(one.support(possible))
    assert not bool(one.support(impossible))
    assert one.support.is_discrete == one.is_discrete == discrete
    density, drawn = jax.jit(lambda key: (one.log_prob(possible), one.sample(key, (20,))))(jax.random.key(0))
    assert np.isfinite(density)
    assert bool(jnp.all(one.support(drawn)))
    assert jnp.issubdtype(drawn.dtype, jnp.integer) == discrete


def test_it_is_a_pytree_and_goes_through_transformations():
    law = nw.Privatised(dist.Poisson(5.0), LAPLACE)
    leaves, form = jax.tree.flatten(law)
    again = jax.tree.unflatten(form, leaves)
    through = jax.jit(lambda one, value: one.log_prob(value))
    assert float(through(again, 7.5)) == float(through(law, 7.5))
    assert np.isclose(through(law, 7.5), log_sum(5.0, 7.5), rtol=1e-6)
    rates = np.array([1.0, 5.0, 9.0])
    density = jax.value_and_grad(lambda rate: nw.Privatised(dist.Poisson(rate), LAPLACE).log_prob(7.5))
    mapped, slopes = jax.jit(jax.vmap(density))(rates)
    assert np.allclose(mapped, log_sum(rates, 7.5), rtol=1e-5)
    assert np.allclose(slopes, (log_sum(rates + 0.01, 7.5) - log_sum(rates - 0.01, 7.5)) / 0.02, rtol=1e-3)

    def step(total, value):
        return total + nw.Privatised(dist.Poisson(5.0), LAPLACE).log_prob(value), None

    total, _ = jax.lax.scan(step, 0.0, jnp.array([1.0, 7.5]))
    assert np.isclose(total, log_sum(5.0, 1.0) + log_sum(5.0, 7.5), rtol=1e-5)


NOISES = [
    nw.Laplace(scale=2.0),
    nw.Gaussian(scale=2.0),
    mechanisms.GeneralizedCauchy(power=3.0, scale=0.7),
    mechanisms.TruncatedLaplace(scale=1.0, bound=1.5),
    mechanisms.Staircase(epsilon=1.0, sensitivity=2.0),
    mechanisms.Tulap(epsilon=1.0, delta=0.01),
    nw.DiscreteLaplace(scale=2.0),
    nw.DiscreteGaussian(scale=1.5),
]
QUICK = mechanisms.TruncatedLaplace, nw.DiscreteLaplace


@pytest.mark.parametrize(
    "mechanism",
    [one if type(one) in QUICK else pytest.param(one, marks=pytest.mark.long) for one in NOISES],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_noise_drawn_in_jax_has_the_law_of_the_mechanism(mechanism):
    rows = 20_000
    with double():
        drawn = np.asarray(jax.jit(lambda key: noise.noise(key, mechanism, (rows,)))(jax.random.key(1)))
    if mechanism.measure == "lattice":
        values = np.arange(-4, 5)
        expected = rows * np.exp(mechanism.noise_log_prob(1.0 * values))
        counts = np.array([(drawn == value).sum() for value in values])
        tail = rows - counts.sum(), rows - expected.sum()
        chi = np.sum((counts - expected) ** 2 / expected) + (tail[0] - tail[1]) ** 2 / tail[1]
        assert stats.chi2.sf(chi, len(values)) > FALSE_ALARM
    else:
        uniform = np.exp(mechanism.noise_log_cdf(drawn))
        assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARM


def test_what_is_done_after_the_noise_is_done_in_jax():
    statistic = jnp.full(4000, 3.0)
    key = jax.random.key(2)
    with double():
        plain = np.asarray(noise.released(key, LAPLACE, statistic))
        rounded = noise.released(key, mechanisms.Rounded(LAPLACE, step=5.0), statistic)
        clipped = noise.released(key, mechanisms.Clipped(LAPLACE, low=0.0), statistic)
        withheld = noise.released(key, mechanisms.Thresholded(LAPLACE, 4.0), statistic)
        moved = noise.released(key, mechanisms.Affine(LAPLACE, shift=1.0, factor=-2.0), statistic)
        assert np.allclose(rounded, 5.0 * np.floor(plain / 5.0 + 0.5))
        assert np.allclose(clipped, np.maximum(plain, 0.0))
        assert np.allclose(withheld, np.where(plain >= 4.0, plain, np.nan), equal_nan=True)
        assert np.allclose(moved, 1.0 - 2.0 * plain)
        flips = np.asarray(noise.released(key, nw.RandomizedResponse(keep=0.75), jnp.ones(4000, int)))
    assert abs(np.mean(flips) - 0.75) < 5.0 * np.sqrt(0.75 * 0.25 / 4000)


def test_draws_have_the_density():
    """The distribution function of the release, by sums of the noise's, at its draws."""
    with double():
        law = nw.Privatised(dist.Poisson(5.0), LAPLACE)
        drawn = np.asarray(law.sample(jax.random.key(3), (5000,)))
    k = np.arange(60)[:, None]
    uniform = np.sum(stats.poisson.pmf(k, 5.0) * stats.laplace.cdf(drawn - k, scale=2.0), axis=0)
    assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARM


COUNTS = np.array([1.5, 8.25, 3.0, 12.0])


def counties(released=None):
    level = numpyro.sample("level", dist.Normal(1.5, 1.0))
    with numpyro.plate("county", 4):
        rate = numpyro.sample("rate", dist.LogNormal(level, 0.5))
        numpyro.sample("released", nw.Privatised(dist.Poisson(rate), LAPLACE), obs=released)


def test_in_a_model_under_a_plate():
    rate = np.array([2.0, 6.0, 3.0, 11.0])
    values = {"level": 1.0, "rate": rate}
    log_joint = jax.jit(lambda: infer.util.log_density(counties, (COUNTS,), {}, values)[0])()
    prior = stats.norm.logpdf(1.0, 1.5, 1.0) + stats.lognorm.logpdf(rate, 0.5, scale=np.e).sum()
    assert np.isclose(log_joint, prior + log_sum(rate, COUNTS).sum(), rtol=1e-5)
    posterior = {"level": jnp.ones(3), "rate": jnp.ones((3, 4)) * rate}
    likelihood = jax.jit(lambda: infer.log_likelihood(counties, posterior, COUNTS)["released"])()
    assert likelihood.shape == (3, 4)
    assert np.allclose(likelihood[1], log_sum(rate, COUNTS), rtol=1e-4)
    predicted = jax.jit(infer.Predictive(counties, posterior))(jax.random.key(0))
    assert predicted["released"].shape == (3, 4)


def test_masks_and_subsamples():
    def masked(released):
        with numpyro.plate("county", 4), handlers.mask(mask=jnp.array([True, False, True, True])):
            numpyro.sample("released", nw.Privatised(dist.Poisson(5.0), LAPLACE), obs=released)

    total = jax.jit(lambda: infer.util.log_density(masked, (COUNTS,), {}, {})[0])()
    assert np.isclose(total, log_sum(5.0, COUNTS[[0, 2, 3]]).sum(), rtol=1e-5)

    def some(released):
        with numpyro.plate("county", 4, subsample_size=2) as index:
            numpyro.sample("released", nw.Privatised(dist.Poisson(5.0), LAPLACE), obs=released[index])

    with handlers.seed(rng_seed=0), handlers.substitute(data={"county": jnp.array([1, 3])}):
        total = jax.jit(lambda: infer.util.log_density(some, (jnp.asarray(COUNTS),), {}, {})[0])()
    assert np.isclose(total, 2.0 * log_sum(5.0, COUNTS[[1, 3]]).sum(), rtol=1e-5)


def one_count(released):
    rate = numpyro.sample("rate", dist.Gamma(3.0, 0.5))
    numpyro.sample("released", nw.Privatised(dist.Poisson(rate), LAPLACE), obs=released)


@pytest.mark.long
def test_nuts_in_numpyro_has_the_exact_posterior():
    with double():
        mcmc = infer.MCMC(infer.NUTS(one_count), num_warmup=500, num_samples=4000, progress_bar=False)
        mcmc.run(jax.random.key(0), 9.5)
        samples = mcmc.get_samples()
        counts = nw.confidential(one_count, samples, 9.5, seed=1)["released"]
    rates = np.linspace(1e-3, 60.0, 6000)
    weight = np.exp(stats.gamma.logpdf(rates, 3.0, scale=2.0) + log_sum(rates, 9.5))
    weight /= weight.sum()
    mean = weight @ rates
    k = np.arange(100)
    given = stats.poisson.pmf(k, rates[:, None]) * stats.laplace.pdf(9.5 - k, scale=2.0)
    mean_count = weight @ (given @ k / given.sum(axis=1))
    for drawn, truth in ((np.asarray(samples["rate"]), mean), (counts, mean_count)):
        size = float(numpyro.diagnostics.effective_sample_size(1.0 * drawn[None]))
        assert abs(drawn.mean() - truth) < 5.0 * drawn.std() / np.sqrt(size)


@pytest.mark.long
def test_svi_runs_on_it():
    guide = infer.autoguide.AutoNormal(one_count)
    svi = infer.SVI(one_count, guide, numpyro.optim.Adam(0.05), infer.Trace_ELBO())
    result = svi.run(jax.random.key(0), 300, 9.5, progress_bar=False)
    assert np.all(np.isfinite(result.losses))
    median = guide.median(result.params)["rate"]
    assert 4.0 < median < 12.0


def test_confidential_counts_have_their_conditional_law():
    """At fixed rates the counts are drawn from the terms of the sum; the mean within five standard errors."""
    rate = np.array([2.0, 6.0, 3.0, 11.0])
    rows = 2048  # two parts of equal length: with a third there would be another program
    samples = {"level": np.ones(rows), "rate": np.broadcast_to(rate, (rows, 4))}
    counts = nw.confidential(counties, samples, COUNTS, seed=7)["released"]
    assert counts.shape == (rows, 4)
    assert np.issubdtype(counts.dtype, np.integer)
    k = np.arange(80)[:, None]
    given = stats.poisson.pmf(k, rate) * stats.laplace.pdf(COUNTS - k, scale=2.0)
    given /= given.sum(axis=0)
    mean, square = (given * k).sum(axis=0), (given * k**2).sum(axis=0)
    assert np.all(np.abs(counts.mean(axis=0) - mean) < 5.0 * np.sqrt((square - mean**2) / rows))
    assert not np.allclose(mean, rate, atol=0.2)  # the law alone would have other means
    assert np.array_equal(counts, nw.confidential(counties, samples, COUNTS, seed=7)["released"])
    assert abs(np.corrcoef(counts.T)[0, 1]) < 5.0 / np.sqrt(rows)


def test_confidential_values_of_two_sites_are_independent_given_the_parameters():
    """The same law, noise and release twice: with shared random numbers both would be the same number."""

    def twice():
        rate = numpyro.sample("rate", dist.Gamma(5.0, 1.0))
        for name in ("first", "second"):
            numpyro.sample(name, nw.Privatised(dist.Poisson(rate), nw.DiscreteLaplace(scale=2.0)), obs=jnp.asarray(6))

    rows = 2048
    drawn = nw.confidential(twice, {"rate": np.full(rows, 5.0)}, seed=3)
    assert abs(np.corrcoef(drawn["first"], drawn["second"])[0, 1]) < 4.9 / np.sqrt(rows)


def test_confidential_counts_of_a_law_whose_parameters_are_draws(monkeypatch):
    """As by a model function, in one part or in many."""
    rate, rows = np.array([2.0, 6.0, 3.0, 11.0]), 1000
    law = nw.Privatised(dist.Poisson(np.broadcast_to(rate, (rows, 4))), LAPLACE)
    counts = nw.confidential(law, COUNTS, seed=7)
    assert counts.shape == (rows, 4)
    k = np.arange(80)[:, None]
    given = stats.poisson.pmf(k, rate) * stats.laplace.pdf(COUNTS - k, scale=2.0)
    given /= given.sum(axis=0)
    mean, square = (given * k).sum(axis=0), (given * k**2).sum(axis=0)
    assert np.all(np.abs(counts.mean(axis=0) - mean) < 5.0 * np.sqrt((square - mean**2) / rows))
    monkeypatch.setattr("noisewise.inference.confidential.CELLS", 1200)
    assert np.array_equal(counts, nw.confidential(law, COUNTS, seed=7))
    wide = dist.Normal(np.linspace(1.0, 9.0, 400)[:, None], 3.0).expand([400, 4]).to_event(1)
    many = nw.confidential(nw.Privatised(wide, LAPLACE), COUNTS, seed=7)
    monkeypatch.setattr("noisewise.inference.confidential.CELLS", 40_000)
    again = nw.confidential(nw.Privatised(wide, LAPLACE), COUNTS, seed=7)
    assert np.allclose(many, again, rtol=1e-6, atol=1e-6)  # some units of 32 bits, in which the law is given
    with pytest.raises(InputError, match="must broadcast"):
        nw.confidential(law, np.ones(3), seed=7)
    with pytest.raises(InputError, match="must be left out with a law"):
        nw.confidential(law, COUNTS, 3, seed=7)


T = np.linspace(0.2, 0.8, 30)[:, None]
SHARES = np.stack([T, 0.9 - T, np.full_like(T, 0.1)], axis=-1) * np.ones((1, 2, 1))
MADE_OF_LAWS = {
    "categories": (dist.Categorical(SHARES), nw.RandomizedResponse(keep=0.6, categories=3), np.array([0, 2])),
    "zeros apart": (dist.ZeroInflatedPoisson(T, np.array([3.0, 5.0])), LAPLACE, np.array([1.0, 4.0])),
    "mixture": (
        dist.MixtureSameFamily(dist.Categorical(SHARES), dist.Normal(SHARES * 5.0, 1.0)),
        LAPLACE,
        np.array([1.0, 4.0]),
    ),
    "truncated": (dist.TruncatedNormal(T, np.array([1.0, 2.0]), low=0.1), LAPLACE, np.array([1.0, 4.0])),
}


@pytest.mark.parametrize(
    "name", [name if name == "categories" else pytest.param(name, marks=pytest.mark.long) for name in MADE_OF_LAWS]
)
def test_draws_in_parts_are_those_at_once_for_laws_that_are_made_of_others(name, monkeypatch):
    law, mechanism, released = MADE_OF_LAWS[name]
    law = nw.Privatised(law, mechanism)
    at_once = nw.confidential(law, released, seed=7)
    monkeypatch.setattr("noisewise.inference.confidential.CELLS", 20)
    assert np.allclose(nw.confidential(law, released, seed=7), at_once, rtol=1e-4, atol=1e-5)


def test_scales_of_a_subsample_are_picked_from_the_mechanism():
    """A mechanism is made outside of what JAX traces; its entries may be picked inside."""
    noise, released = nw.Laplace(scale=np.array([1.0, 2.0, 4.0, 8.0])), jnp.array([3.0, 7.5, -1.0, 12.0])

    def log_prob(index):
        picked = jax.tree.map(lambda scale: jnp.asarray(scale)[index], noise)
        return nw.Privatised(dist.Poisson(5.0), picked).log_prob(released[index])

    index = np.array([3, 1])
    expected = log_sum(5.0, np.array([12.0, 7.5]), np.array([8.0, 2.0]))
    assert np.allclose(jax.jit(log_prob)(index), expected, rtol=1e-5)
    with pytest.raises(InputError, match="outside of the traced function"):
        jax.jit(lambda scale: nw.Privatised(dist.Poisson(5.0), nw.Laplace(scale=scale)).log_prob(3.0))(2.0)


def test_expanded_laws_are_as_accurate_as_others():
    """NumPyro's own formula of a negative binomial law has seven digits: it must not come back by way of `expand`."""
    released = np.array([1.5, 40.25, 8.0])
    k = np.arange(4000)[:, None]
    terms = stats.nbinom.logpmf(k, 0.5, 0.5 / 9.5) - np.abs(released - k) / 2.0 - np.log(4.0)
    with double():
        plain = dist.NegativeBinomial2(9.0, 0.5)
        for law in (plain.expand([3]).to_event(1), plain.expand([1]).expand([3])):
            found = np.asarray(jax.jit(lambda law=law: nw.Privatised(law, LAPLACE).log_prob(released))())
            assert np.allclose(found.sum(), special.logsumexp(terms, axis=0).sum(), rtol=0, atol=1e-10)
        whole = np.arange(0, 2000, 400)
        truth = stats.nbinom.logpmf(whole, 0.5, 0.5 / 9.5)
        assert np.allclose(jax.jit(lambda: entries(plain.expand([5]), whole))(), truth, rtol=1e-12, atol=1e-10)


def test_where_it_does_not_apply_it_says_so():
    with pytest.raises(InputError, match="depend on each other"):
        nw.Privatised(dist.Multinomial(10, np.ones(3) / 3), LAPLACE)
    with pytest.raises(InputError, match="all entries together"):
        nw.Privatised(dist.Normal(0.0, 1.0), mechanisms.KNorm(scale=1.0, norm="l2", dimension=2))
    with pytest.raises(InputError, match="NumPyro distribution"):
        nw.Privatised(5.0, LAPLACE)
    with pytest.raises(InputError, match="must be a mechanism"):
        nw.Privatised(dist.Poisson(5.0), 2.0)
    with pytest.raises(InputError, match="broadcast"):
        nw.Privatised(dist.Poisson(np.ones(2)), nw.Laplace(scale=np.ones(3)))
    with pytest.raises(InputError, match="observed site whose law is Privatised"):
        nw.confidential(lambda: numpyro.sample("x", dist.Normal(0.0, 1.0)), {"x": np.zeros(3)}, seed=0)
    with pytest.raises(InputError, match="same number of draws"):
        nw.confidential(one_count, {"rate": np.ones(3), "other": np.ones(2)}, 9.5, seed=0)


def test_a_window_cut_short_is_told():
    whole = nw.Privatised(dist.Poisson(400.0), LAPLACE)
    short = nw.Privatised(dist.Poisson(400.0), LAPLACE, window=8)
    assert float(whole.neglected(410.0)) < 1e-6
    assert float(short.neglected(410.0)) > 0.01
