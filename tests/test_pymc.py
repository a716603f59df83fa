"""`noisewise.pymc`: laws as PyMC has them, the same density and gradient as in NumPyro, simulations, samplers."""

import multiprocessing

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from numpyro.infer.util import potential_energy
from scipy import special, stats
from targets import brief_rows, briefly

import noisewise as nw
from noisewise import mechanisms
from noisewise.errors import InputError
from noisewise.numerics import double

pm = pytest.importorskip("pymc", reason="PyMC is not installed: python -m pip install 'noisewise[pymc]'")
pytensor = pytest.importorskip("pytensor")
pt = pytest.importorskip("pytensor.tensor")
nwp = pytest.importorskip("noisewise.pymc")

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS installation")

EXACT = 1e-10
PYTHON = "FAST_COMPILE"
"""PyTensor's mode without a compiler."""

LAWS = {
    "bernoulli": (pm.Bernoulli.dist(0.3), [0, 1]),
    "beta": (pm.Beta.dist(1.5, 3.0), [0.2, 0.9]),
    "beta_binomial": (pm.BetaBinomial.dist(1.5, 3.0, 20), [0, 7, 20]),
    "binomial": (pm.Binomial.dist(20, 0.3), [0, 7, 20]),
    "cauchy": (pm.Cauchy.dist(1.0, 2.0), [-3.0, 40.0]),
    "exponential": (pm.Exponential.dist(0.25), [0.5, 9.0]),
    "gamma": (pm.Gamma.dist(2.5, 0.5), [0.5, 9.0]),
    "gumbel": (pm.Gumbel.dist(1.0, 2.0), [-3.0, 9.0]),
    "halfcauchy": (pm.HalfCauchy.dist(2.0), [0.5, 9.0]),
    "halfnormal": (pm.HalfNormal.dist(2.0), [0.5, 9.0]),
    "invgamma": (pm.InverseGamma.dist(2.5, 0.5), [0.5, 9.0]),
    "laplace": (pm.Laplace.dist(1.0, 2.0), [-3.0, 9.0]),
    "logistic": (pm.Logistic.dist(1.0, 2.0), [-3.0, 9.0]),
    "lognormal": (pm.LogNormal.dist(1.0, 2.0), [0.5, 9.0]),
    "negative_binomial": (pm.NegativeBinomial.dist(mu=5.0, alpha=2.5), [0, 7, 40]),
    "normal": (pm.Normal.dist(1.0, 2.0), [-3.0, 9.0]),
    "pareto": (pm.Pareto.dist(2.5, 0.5), [0.6, 9.0]),
    "poisson": (pm.Poisson.dist(5.0), [0, 7, 40]),
    "t": (pm.StudentT.dist(nu=3.0, mu=1.0, sigma=2.0), [-3.0, 40.0]),
    "uniform": (pm.Uniform.dist(-1.0, 2.0), [-0.5, 1.5]),
    "weibull": (pm.Weibull.dist(1.5, 3.0), [0.5, 9.0]),
}


def test_every_law_is_the_one_that_pymc_means():
    assert set(LAWS) == set(nwp.LAWS)
    at = {name: np.array(values) for name, (_, values) in LAWS.items()}
    laws = {name: law.owner.op.dist_params(law.owner) for name, (law, _) in LAWS.items()}
    logs = [pm.logp(law, pt.as_tensor(at[name])) for name, (law, _) in LAWS.items()]
    numbers = iter(pytensor.function([], [one for law in laws.values() for one in law] + logs, mode=PYTHON)())
    given = {name: [np.asarray(next(numbers), float) for _ in law] for name, law in laws.items()}
    with double():
        ours = jax.jit(lambda given, at: {name: nwp.LAWS[name](*given[name]).log_prob(at[name]) for name in LAWS})
        found = ours(given, at)
    for name, theirs in zip(LAWS, numbers, strict=True):
        assert np.allclose(found[name], theirs, rtol=1e-6, atol=1e-6), name  # NumPyro's beta function has seven digits


VALUES = np.array([2.0, 5.0, 11.0])
PAIRS = {
    "Poisson, Laplace": (lambda a: pm.Poisson.dist(a), lambda a: dist.Poisson(a), nw.Laplace(scale=2.0)),
    "Poisson, thresholded": (
        lambda a: pm.Poisson.dist(a),
        lambda a: dist.Poisson(a),
        mechanisms.Thresholded(nw.Laplace(scale=2.0), 1.0),
    ),
    "negative binomial, discrete Gaussian": (
        lambda a: pm.NegativeBinomial.dist(mu=a, alpha=1.5 * a),
        lambda a: dist.NegativeBinomial2(a, 1.5 * a),
        nw.DiscreteGaussian(scale=2.0),
    ),
    "binomial, discrete Laplace": (
        lambda a: pm.Binomial.dist(30, a / 30.0),
        lambda a: dist.Binomial(30, a / 30.0),
        nw.DiscreteLaplace(scale=2.0),
    ),
    "normal, Laplace": (lambda a: pm.Normal.dist(a, 2.0), lambda a: dist.Normal(a, 2.0), nw.Laplace(scale=2.0)),
    "gamma, Gaussian": (lambda a: pm.Gamma.dist(a, 0.5), lambda a: dist.Gamma(a, 0.5), nw.Gaussian(scale=2.0)),
}


KNOWN = {f"{name}, known": (name, True) for name in PAIRS}
DATA = {f"{name}, data": (name, False) for name in ("Poisson, Laplace", "gamma, Gaussian")}


def density_and_slope(model):
    """As PyMC's samplers take them: the slope is that of the same expression, not of another one like it."""
    density = model.logp()
    return model.compile_fn([density, pm.pytensorf.gradient(density, model.continuous_value_vars)], mode=PYTHON)


# Values that are known are in the models below too.
@pytest.mark.parametrize(("name", "known"), brief_rows({**KNOWN, **DATA}, ["Poisson, Laplace, data"]))
def test_density_and_gradient_are_those_of_numpyro(name, known):
    theirs, ours, mechanism = PAIRS[name]
    with pm.Model() as model:
        a = pm.Flat("a", shape=3)
        nwp.Privatised("r", theirs(a), mechanism, observed=VALUES if known else pm.Data("values", VALUES))
    at = np.array([3.0, 6.0, 8.0])
    with double():

        def total(a):
            return nw.Privatised(ours(a), mechanism).log_prob(VALUES).sum()

        value, slope = jax.jit(jax.value_and_grad(total))(at)
    log_density, slope_of_it = density_and_slope(model)({"a": at})
    assert np.isclose(log_density, value, rtol=0, atol=EXACT)
    assert np.allclose(slope_of_it, slope, rtol=1e-9, atol=1e-9)


X = np.linspace(-1.0, 1.0, 12)
PUBLISHED = np.array([-1.2, 9.7, 1.4, 14.1, -7.9, 23.3, 12.6, 8.2, 31.5, 20.4, 26.9, 47.8])
GROUPS = np.array([3, 12, 7, 25, 9, -2])
NOISE, WHOLE = nw.Laplace(scale=8.0), nw.DiscreteGaussian(scale=3.0)


def pymc_count():
    with pm.Model() as model:
        rate = pm.Gamma("rate", np.float64(25.0), np.float64(1.0))  # Python's numbers PyTensor may take for 32 bits
        nwp.Privatised("r", pm.Poisson.dist(rate), nw.Laplace(scale=5.0), observed=37.4)
    return model


def pymc_regression():
    with pm.Model(coords={"county": np.arange(12)}) as model:
        level, slope = pm.Normal("level", 2.0, 1.0), pm.Normal("slope", 0.0, 1.0)
        law = pm.Poisson.dist(pm.math.exp(level + slope * X))
        nwp.Privatised("r", law, NOISE, observed=PUBLISHED, dims="county")
    return model


def pymc_hierarchy():
    with pm.Model() as model:
        a, b = (pm.HalfNormal(name, np.float64(one)) for name, one in (("a", 10.0), ("b", 1.0)))
        rate = pm.Gamma("rate", a, b, shape=6)
        nwp.Privatised("r", pm.Poisson.dist(rate), WHOLE, observed=GROUPS)
    return model


def count():
    rate = numpyro.sample("rate", dist.Gamma(25.0, 1.0))
    numpyro.sample("r", nw.Privatised(dist.Poisson(rate), nw.Laplace(scale=5.0)), obs=37.4)


def regression():
    level, slope = (numpyro.sample(name, dist.Normal(mean, 1.0)) for name, mean in (("level", 2.0), ("slope", 0.0)))
    with numpyro.plate("county", 12):
        numpyro.sample("r", nw.Privatised(dist.Poisson(jnp.exp(level + slope * X)), NOISE), obs=PUBLISHED)


def hierarchy():
    a, b = numpyro.sample("a", dist.HalfNormal(10.0)), numpyro.sample("b", dist.HalfNormal(1.0))
    with numpyro.plate("group", 6):
        rate = numpyro.sample("rate", dist.Gamma(a, b))
        numpyro.sample("r", nw.Privatised(dist.Poisson(rate), WHOLE), obs=GROUPS)


MODELS = {"count": (pymc_count, count), "regression": (pymc_regression, regression)}
MODELS["hierarchy"] = pymc_hierarchy, hierarchy


@pytest.mark.parametrize("name", briefly(MODELS, ["hierarchy"]))
def test_models_have_the_posterior_of_the_numpyro_route(name):
    """Both libraries sample positive numbers by their logarithms: the same function of the same coordinates."""
    make, function = MODELS[name]
    model, rng = make(), np.random.default_rng(3)
    both = density_and_slope(model)
    with double():
        potential = jax.jit(jax.value_and_grad(lambda free: potential_energy(function, (), {}, free)))
        for _ in range(3):
            point = {key: one + 0.3 * rng.standard_normal(np.shape(one)) for key, one in model.initial_point().items()}
            free = {key.removesuffix("_log__"): jnp.asarray(one) for key, one in point.items()}
            value, gradient = potential(free)
            log_density, slope = both(point)
            assert np.isclose(log_density, -value, rtol=0, atol=1e-9)
            ordered = np.concatenate([np.ravel(gradient[key.removesuffix("_log__")]) for key in point])
            assert np.allclose(slope, -ordered, rtol=1e-8, atol=1e-9)


def test_simulated_releases_have_the_density():
    with pm.Model():
        nwp.Privatised("r", pm.Poisson.dist(5.0), nw.Laplace(scale=2.0))
        drawn = np.ravel(pm.sample_prior_predictive(1000, random_seed=1, compile_kwargs={"mode": PYTHON}).prior["r"])
    k = np.arange(60)[:, None]
    uniform = np.sum(stats.poisson.pmf(k, 5.0) * stats.laplace.cdf(drawn - k, scale=2.0), axis=0)
    assert stats.kstest(uniform, "uniform").pvalue > 1e-6
    with pm.Model(coords={"town": ["a", "b", "c"]}):
        rate = pm.Gamma("rate", 2.0, 1.0)
        nwp.Privatised("whole", pm.Poisson.dist(rate), WHOLE, dims="town")
        nwp.Privatised("many", pm.Poisson.dist(rate, shape=(2, 4)), WHOLE)
        simulated = pm.sample_prior_predictive(5, random_seed=1, compile_kwargs={"mode": PYTHON}).prior
    assert simulated["whole"].dims == ("chain", "draw", "town")
    assert simulated["whole"].dtype == np.int64
    assert simulated["many"].shape == (1, 5, 2, 4)


def exact_count():
    """Posterior mean of the count's rate, by quadrature."""
    rates = np.linspace(5.0, 70.0, 4000)
    k = np.arange(200)[:, None]
    likelihood = special.logsumexp(stats.poisson.logpmf(k, rates) + stats.laplace.logpdf(37.4 - k, scale=5.0), axis=0)
    weight = np.exp(stats.gamma.logpdf(rates, 25.0) + likelihood)
    return np.sum(weight * rates) / np.sum(weight)


def agrees_with_exact(draws):
    """At a false-alarm rate of one in a million."""
    values = np.asarray(draws)
    size = float(numpyro.diagnostics.effective_sample_size(values))
    return abs(values.mean() - exact_count()) < LIMIT * values.std() / np.sqrt(size)


SAMPLERS = {
    "pymc": {"cores": 1},
    "numpyro": {"nuts_sampler": "numpyro", "nuts_sampler_kwargs": {"chain_method": "vectorized"}},
    "nutpie": {"nuts_sampler": "nutpie", "nuts_sampler_kwargs": {"backend": "jax"}, "cores": 1},
}


@pytest.fixture
def as_it_was():
    """PyTensor switches JAX to 64 bits for good when it compiles for JAX."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.long
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.filterwarnings("ignore")
def test_samplers_of_pymc_give_the_exact_posterior(sampler, as_it_was):
    if sampler == "nutpie":
        pytest.importorskip("nutpie")
    settings = {"chains": 2, "tune": 500, "draws": 2000, "random_seed": 1, "progressbar": False}
    with pymc_count():
        found = pm.sample(**settings, **SAMPLERS[sampler])
        predicted = pm.sample_posterior_predictive(found, random_seed=1, progressbar=False)
    assert agrees_with_exact(found.posterior["rate"])
    assert not agrees_with_exact(found.posterior["rate"] + 1.0)
    assert predicted.posterior_predictive["r"].shape == (2, 2000)


def forked(queue, log_density, point):
    try:
        log_density(point)
    except InputError as error:
        queue.put(str(error))


def test_a_forked_process_is_refused_before_it_hangs():
    model = pymc_count()
    log_density, point = model.compile_logp(mode=PYTHON), model.initial_point()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=forked, args=(queue, log_density, point))
    child.start()
    told = queue.get(timeout=60)
    child.join()
    assert "'mp_ctx' must not be fork" in told
    assert "mp_ctx='spawn'" in told


def test_where_it_does_not_apply_it_says_so():
    with pm.Model():
        with pytest.raises(InputError, match="must be a PyMC distribution that is known here"):
            nwp.Privatised("r", pm.Geometric.dist(0.5), NOISE)
        with pytest.raises(InputError, match="must be a PyMC distribution that is known here"):
            nwp.Privatised("r", 5.0, NOISE)
        with pytest.raises(InputError, match="must be a mechanism"):
            nwp.Privatised("r", pm.Poisson.dist(5.0), 2.0)
        with pytest.raises(InputError, match="must have no NaN"):
            nwp.Privatised("r", pm.Poisson.dist(5.0), NOISE, observed=np.array([1.0, np.nan]))
        with pytest.raises(InputError, match="needs whole numbers"):
            nwp.Privatised("r", pm.Normal.dist(0.0, 1.0), WHOLE)
