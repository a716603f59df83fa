"""Probabilities of whole numbers, against sums of logarithms in sixty digits; and laws that are a point."""

import math
from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from scipy import stats

import noisewise as nw
from noisewise.inference.conditional import enumeration
from noisewise.inference.conditional.sums import Sum
from noisewise.inference.problem import Problem
from noisewise.model.law import log_density
from noisewise.model.masses import log_mass
from noisewise.model.wrappers import unchecked
from noisewise.numerics import double


def log_rising(c, k):
    return math.prod(Decimal(c) + i for i in range(k)).ln() if k else Decimal(0)


def gamma_poisson(c, rate, k):
    several = log_rising(c, k) - log_rising(1, k)
    return several - Decimal(c) * (1 + 1 / Decimal(rate)).ln() - k * (1 + Decimal(rate)).ln()


def beta_binomial(a, b, n, k):
    of_a, of_b, of_both = log_rising(a, k), log_rising(b, n - k), log_rising(Decimal(a) + Decimal(b), n)
    return log_rising(n - k + 1, k) - log_rising(1, k) + of_a + of_b - of_both


def worst(law, exact, cases):
    """The largest error of `log_mass`, as a share of the number where that is above one; the last of a case is k."""
    *parameters, k = np.array(cases, dtype=float).T
    with localcontext() as context, double():
        context.prec = 60
        ours = np.asarray(jax.jit(lambda *given: log_mass(unchecked(law(*given)), k))(*parameters))
        truths = [exact(*case) for case in cases]
        off = [abs(float(Decimal(one) - truth)) for one, truth in zip(ours.tolist(), truths, strict=True)]
        return max(error / max(1.0, abs(float(truth))) for error, truth in zip(off, truths, strict=True))


@pytest.mark.quick
def test_negative_binomial_laws_keep_their_digits():
    """A difference of log gammas is off by 0.99 at a concentration of 1e15."""
    concentrations = (1e-5, 0.3, 8.999, 9.0, 50.0, 1e6, 1e9, 1e12, 1e15)
    cases = [(c, c / mean, k) for c in concentrations for mean in (1e-3, 1.0, 100.0) for k in (0, 1, 5, 90, 300)]
    assert worst(dist.GammaPoisson, gamma_poisson, cases) < 2e-12


def test_beta_binomial_laws_keep_their_digits():
    """A difference of log beta functions is off by 4.1 at (1e14, 9e14) and n = 1000."""
    shapes = [(a, b) for a in (1e-3, 0.5, 10.0, 1e9, 1e12, 1e14) for b in (0.5, 9.0 * a)]
    cases = [(*both, n, k) for both in shapes for n in (1, 10, 300) for k in sorted({0, 1, n // 10, n // 2, n})]
    assert worst(dist.BetaBinomial, beta_binomial, cases) < 2e-11


@pytest.mark.parametrize("shape", [1e9, 1e15])
def test_rates_known_to_many_digits_give_the_law_of_a_known_rate(shape, seed):
    """At 1e15, log gammas gave an evidence of exp(-0.55) where exp(-3.41) is right, and another law of the count."""
    k = np.arange(400)
    log_joint = stats.poisson.logpmf(k, 100.0) + stats.laplace.logpdf(97.3 - k, scale=5.0)
    model = nw.Model({"t": dist.Gamma(shape, shape / 100.0)}, {"a": lambda t: dist.Poisson(t)})
    release = nw.Release(a=nw.Laplace(scale=5.0).released(97.3))
    posterior = nw.sample(model, release, nw.Rejection(plan="predictive"), draws=4, seed=seed)
    # a rate with a standard deviation of 100 / sqrt(1e9) moves the evidence by some 1e-8
    np.testing.assert_allclose(posterior.log_evidence, np.logaddexp.reduce(log_joint), atol=1e-7)


def test_zero_is_certain_under_a_geometric_law_with_probability_one():
    with double():
        noise = nw.Laplace(scale=1.0)

        def of_zero(chances):
            law = unchecked(dist.GeometricProbs(chances))
            marginal = enumeration.log_marginal(law, "GeometricProbs", noise, 0.0, 64, False)
            return log_mass(law, jnp.zeros(2)), log_density(law, np.zeros(2)), marginal.log_bound

        masses, density, bounds = jax.jit(of_zero)(np.array([1.0, 0.5]))
        np.testing.assert_array_equal(masses, np.log([1.0, 0.5]))
        assert density == np.log(0.5)
        np.testing.assert_allclose(np.exp(np.asarray(bounds))[0], 0.5, rtol=1e-12)


def test_probabilities_of_one_keep_their_mass(seed):
    """Beta(1, 0.05) gives 1 itself, rounded, a mass of 0.16: it must not be lost where the likelihood is summed."""
    rng = np.random.default_rng(5)
    released = np.round(rng.laplace(0.0, 0.3, 30), 2)
    model = nw.Model({"p": dist.Beta(1.0, 0.05)}, {"a": lambda p: dist.Geometric(p).expand([30])})
    release = nw.Release(a=nw.Laplace(scale=0.3).released(released))
    posterior = nw.sample(model, release, nw.Importance(collapse=True), draws=20_000, seed=seed)
    q = ((np.arange(20_000) + 0.5) / 20_000) ** 20  # 1 - p has the distribution function q^0.05
    noise = np.exp(-np.abs(released[:, None] - np.arange(12)) / 0.3)
    weights = np.prod([(1.0 - q) * sum(eta[j] * q**j for j in range(12)) for eta in noise], axis=0)
    one = (1.0 - q == 1.0).astype(float)
    truth = weights @ one / weights.sum()
    assert 0.1 < truth < 0.2
    terms = (posterior["p"] == 1.0) - truth
    assert abs(posterior.weights @ terms) < LIMIT * np.sqrt(posterior.weights**2 @ terms**2)


def test_zero_is_certain_under_a_negative_binomial_law_without_exposure():
    """Its rate is infinite where a Gamma rate is multiplied by zero; zero times infinity is no number."""
    with double():
        log_masses = jax.jit(lambda rates, k: log_mass(unchecked(dist.GammaPoisson(2.0, rates)), k))
        rates = np.array([np.inf, 1.0])
        np.testing.assert_array_equal(log_masses(rates, np.zeros(2)), -2.0 * np.log([1.0, 2.0]))
        assert log_masses(rates, np.ones(2))[0] == -np.inf


def test_a_law_that_is_a_point_leaves_its_mass_below_the_window():
    """The window is no farther than 2^40 from the release; zero is."""
    with double():
        noise = nw.Laplace(scale=1.0)

        def marginal(rate):
            return enumeration.log_marginal(unchecked(dist.Poisson(rate)), "Poisson", noise, 2e12, 128, False)

        assert jax.jit(marginal)(0.0).log_bound >= -2e12 - np.log(2.0)


@pytest.mark.parametrize(
    ("prior", "law", "released"),
    [
        (dist.Beta(1.0, 1e-3), lambda t: dist.Geometric(t), 0.3),
        (dist.Gamma(1e-4, 1.0), lambda t: dist.Poisson(t), 300.3),
    ],
    ids=["geometric", "Poisson"],
)
def test_tables_are_read_off_a_law_that_is_no_point(prior, law, released):
    """Most draws of these priors are 1, and 0, to the last digit."""
    model = nw.Model({"t": prior}, {"a": law})
    sum_ = Sum(Problem(model, nw.Release(a=nw.Laplace(scale=2.0).released(released))), ("a",), 0)
    assert sum_.affine
    tables = sum_.tables()
    assert np.all(np.isfinite(tables["log_base"]))
    with double():
        first, last = sum_._anchored({"t": jnp.asarray(0.4)}, tables["starts"]["a"])
        logs = tables["log_base"] + (1.0 - tables["share"]) * first + tables["share"] * last
        start = int(tables["starts"]["a"])
        truth = jax.vmap(lambda k: law(0.4).log_prob(k))(start + np.arange(sum_.points))
    np.testing.assert_allclose(logs[:, 0], truth, rtol=1e-10)
