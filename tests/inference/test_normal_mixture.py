"""Mixtures of normal laws under noise with a closed form: against integrals, and a posterior against a grid."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees, quantile_agrees, z_scores
from scipy import special, stats
from targets import briefly

import noisewise as nw
from noisewise.inference.conditional import entry, normal_mixture
from noisewise.inference.conditional.target import Target
from noisewise.inference.problem import Problem
from noisewise.numerics import double
from noisewise.samplers.choosing.choice import COLLAPSED

SHARES, MEANS, SPREADS = np.array([0.3, 0.1, 0.6]), np.array([-2.0, 3.0, 3.5]), np.array([1.0, 0.05, 2.0])
RELEASED = np.array([-2.9, 0.3, 3.1, 9.0])
NOISE = {
    "Gaussian": nw.Gaussian(scale=0.5),
    "Laplace": nw.Laplace(scale=0.5),
    "Laplace, a scale for each entry": nw.Laplace(scale=np.array([0.05, 0.5, 2.0, 8.0])),
    "clamped": nw.mechanisms.Clamped(nw.Laplace(scale=0.5), low=-1.0, high=5.0),
}


def mixture(shares=SHARES):
    return dist.MixtureSameFamily(dist.Categorical(shares), dist.Normal(MEANS, SPREADS)).expand([len(RELEASED)])


def law_times_noise(mechanism, number):
    """pi(s) eta(r | s) of one entry, as a function of s."""

    def density(s):
        law = stats.norm.pdf(s[..., None], MEANS, SPREADS) @ SHARES
        everywhere = np.broadcast_to(s[..., None], (*s.shape, len(RELEASED)))
        return law * np.exp(mechanism.log_prob(RELEASED, everywhere))[..., number]

    return density


def integral(density, number):
    """Panels between all that is narrow."""
    narrow = [MEANS + step * SPREADS for step in (-9.0, -3.0, 0.0, 3.0, 9.0)]
    cuts = np.unique([*np.concatenate(narrow), -1.5, -1.0, 3.0, 4.0, 5.0, RELEASED[number], -60.0, 60.0])
    nodes, weights = np.polynomial.legendre.leggauss(80)
    half = 0.5 * np.diff(cuts)[:, None]
    at = cuts[:-1, None] + half * (1.0 + nodes)
    return float(np.sum(half * weights * density(at)))


@pytest.mark.parametrize("noise", NOISE)
def test_the_marginal_density_is_the_integral(noise):
    mechanism = NOISE[noise]
    with double():
        law = mixture()
        by = entry.route(law, mechanism)
        assert by.way == "mixed"
        marginal = jax.jit(partial(entry.log_marginal, law, mechanism, by=by))(RELEASED)
        log_kept, share = np.asarray(marginal.log_kept), np.asarray(marginal.share)
    exact = [integral(law_times_noise(mechanism, number), number) for number in range(len(RELEASED))]
    assert np.allclose(log_kept, np.log(exact), rtol=0, atol=1e-9)
    assert np.all(share == 0.0)


@pytest.mark.parametrize("noise", briefly(NOISE, ("Gaussian", "Laplace, a scale for each entry", "clamped")))
def test_draws_have_the_conditional_law(noise, seed):
    """Means and chances by quadrature; the share of each component by Bayes' rule, not by its weight."""
    mechanism = NOISE[noise]
    uniform = np.random.default_rng(seed).random((10_000, len(RELEASED)))
    with double():
        law = mixture()
        drawn = np.asarray(jax.jit(jax.vmap(lambda u: entry.draw(u, law, mechanism, RELEASED)))(uniform))
    for number, draws in enumerate(drawn.T):
        density = law_times_noise(mechanism, number)
        mass = integral(density, number)
        assert agrees(draws, integral(lambda s, density=density: s * density(s), number) / mass)
        for cut in (-1.5, 3.0, 4.0):
            below = integral(lambda s, density=density, cut=cut: (s <= cut) * density(s), number) / mass
            assert not 0.01 < below < 0.99 or quantile_agrees(draws, below, cut)


def test_a_component_without_a_share_is_never_drawn():
    """Nor does it spoil the density, or its gradient."""
    mechanism = NOISE["Laplace"]

    def height(moved):
        parts = dist.Normal(MEANS + moved, SPREADS)
        one = dist.MixtureSameFamily(dist.CategoricalProbs(np.array([0.4, 0.0, 0.6])), parts).expand([4])
        return jnp.sum(normal_mixture.log_marginal(one.base_dist, mechanism, RELEASED))

    with double():
        law, u = mixture(np.array([0.4, 0.0, 0.6])), (np.arange(2_000)[:, None] + 0.5) / 2_000 * np.ones(4)
        drawn = np.asarray(jax.jit(jax.vmap(lambda u: entry.draw(u, law, mechanism, RELEASED)))(u))
        step, program = 1e-6, jax.jit(jax.value_and_grad(height))
        (before, _), (_, slope), (after, _) = (program(moved) for moved in (-step, 0.0, step))
        assert np.isclose(slope, (after - before) / (2 * step), rtol=1e-6)
    assert np.all(np.isfinite(drawn))
    assert not np.any(np.abs(drawn[:, 1] - MEANS[1]) < 1e-3)


def test_what_is_mixed_of_other_laws_is_left_to_quadrature():
    students = dist.MixtureSameFamily(dist.Categorical(SHARES), dist.StudentT(4.0, MEANS, SPREADS))
    assert entry.route(students, NOISE["Laplace"]).way == "panels"
    assert entry.route(mixture(), nw.mechanisms.Staircase(epsilon=1.0, sensitivity=1.0)).way == "panels"


def two_groups():
    """Six noisy values; one parameter moves both components."""
    released = np.array([-1.7, -2.4, 2.2, 1.1, -1.2, 2.9])

    def law(t):
        parts = dist.Normal(jnp.array([-1.0, 1.0]) * t, 0.6)
        return dist.MixtureSameFamily(dist.Categorical(probs=jnp.array([0.35, 0.65])), parts).expand([6])

    return nw.Model({"t": dist.Normal(0.5, 2.0)}, {"x": law}), nw.Release(x=nw.Laplace(scale=0.8).released(released))


def exact_moments(release):
    """Mean and standard deviation of t, mean and variance of x[3], log evidence: over a grid."""
    released = np.asarray(release["x"].value)
    t = np.linspace(-8.0, 8.0, 401)[:, None, None]
    s = np.linspace(-12.0, 12.0, 1_201)
    shares = (0.35, 0.65)
    law = sum(w * stats.norm.pdf(s, sign * t, 0.6) for w, sign in zip(shares, (-1.0, 1.0), strict=True))
    joint = law * stats.laplace.pdf(released[:, None], s, 0.8)
    likelihood, first, second = (np.sum(joint * s**power, axis=2) * (s[1] - s[0]) for power in range(3))
    logs = np.log(likelihood).sum(axis=1) + stats.norm.logpdf(t[:, 0, 0], 0.5, 2.0)
    weight = special.softmax(logs)
    mean = weight @ t[:, 0, 0]
    third, square = (weight @ (one[:, 3] / likelihood[:, 3]) for one in (first, second))
    spread = np.sqrt(weight @ (t[:, 0, 0] - mean) ** 2)
    return mean, spread, third, square - third**2, special.logsumexp(logs) + np.log(t[1, 0, 0] - t[0, 0, 0])


def test_the_posterior_is_that_of_a_grid(seed):
    """Two hills: t and -t exchange the components, which have different shares."""
    model, release = two_groups()
    mean, spread, third, variance, log_evidence = exact_moments(release)
    posterior = nw.sample(model, release, COLLAPSED, draws=4_000, seed=seed)
    assert abs(posterior.log_evidence - log_evidence) < LIMIT * posterior.log_evidence_se
    assert np.all(np.abs(z_scores(posterior, "t", mean, spread**2)) < LIMIT)
    assert all(abs(z[3]) < LIMIT for z in z_scores(posterior, "x", third, variance))


def test_gradient_chains_have_it_integrated_out():
    """Nothing of x is sampled: its density is that of the release."""
    target = Target(Problem(*two_groups()), {})
    assert target.sampled == ()
    assert [integral.by.way for integral in target.integrals] == ["mixed"]
