"""Exact E-steps at the edges of supports: likelihood, estimate and information against SciPy's laws.

Density formulas go on beyond the support (an exponential law's below 0, a binomial law's above n), and noise throws
releases there. Nothing beyond the support may count, and nothing inside may be missed.
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step.cloud import exact_cloud
from noisewise.likelihood.e_step.parts import parts_of

pytestmark = pytest.mark.long

SCALE = 0.8
NOISE = {"Laplace": (nw.Laplace, stats.laplace), "Gaussian": (nw.Gaussian, stats.norm)}


def levels():
    """Panels of (0, 1), ever shorter towards both ends; the upper half by its distance from 1."""
    nodes, weights = special.roots_legendre(12)
    cuts = np.concatenate([[0.0], np.geomspace(1e-20, 0.5, 40)])
    half = np.diff(cuts)[:, None] / 2
    return (cuts[:-1, None] + half * (1 + nodes)).ravel(), (half * weights).ravel()


def smooth_log_likelihood(law, noise, released):
    """log of the integral of eta(y - F^-1(u)) over u in (0, 1), cut where F^-1(u) = y: no density formula is used."""
    u, mass = levels()
    found = 0.0
    for y in released:
        total = 0.0
        at = float(law.cdf(y))
        for inverse, share in ((law.ppf, at), (law.isf, 1.0 - at)):
            # (0, share) from both of its ends: near the release the noise has its kink, near 0 the law its tail
            near = share * np.concatenate([u, 1.0 - u])
            total += share * np.sum(np.tile(mass, 2) * noise.pdf(y - inverse(near)))
        found += np.log(total)
    return found


def summed_log_likelihood(law, log_noise, released):
    s = np.arange(0, 250)
    return sum(special.logsumexp(law.logpmf(s) + log_noise(y - s)) for y in released)


EDGY = [-1.3, 0.0, 0.4, 1.0, 2.2, 3.0, 3.9]
"""Releases below the support, at its edges, inside, and above it where it ends."""
CONTINUOUS = {
    "Exponential": (lambda a: dist.Exponential(a), lambda a: stats.expon(scale=1 / a), EDGY),
    "HalfNormal": (lambda a: dist.HalfNormal(a), lambda a: stats.halfnorm(scale=a), EDGY),
    "HalfCauchy": (lambda a: dist.HalfCauchy(a), lambda a: stats.halfcauchy(scale=a), EDGY),
    "Gamma": (lambda a: dist.Gamma(a, 1.3), lambda a: stats.gamma(a, scale=1 / 1.3), EDGY),
    "LogNormal": (lambda a: dist.LogNormal(a - 1.0, 0.7), lambda a: stats.lognorm(0.7, scale=np.exp(a - 1.0)), EDGY),
    "Weibull": (lambda a: dist.Weibull(a, 1.6), lambda a: stats.weibull_min(1.6, scale=a), EDGY),
    "Pareto": (lambda a: dist.Pareto(0.4, 1.0 + a), lambda a: stats.pareto(1.0 + a, scale=0.4), EDGY),
    "Beta": (lambda a: dist.Beta(1.0 + a, 2.0), lambda a: stats.beta(1.0 + a, 2.0), [-0.4, 0.0, 0.6, 1.0, 1.3]),
    "Beta, unbounded": (lambda a: dist.Beta(a, 0.7), lambda a: stats.beta(a, 0.7), [-0.4, 0.0, 0.6, 1.0, 1.3]),
    "truncated below": (
        lambda a: dist.TruncatedNormal(a, 1.0, low=0.0),
        lambda a: stats.truncnorm(-a, np.inf, loc=a),
        EDGY,
    ),
    "truncated on both sides": (
        lambda a: dist.TruncatedNormal(a, 1.0, low=0.0, high=3.0),
        lambda a: stats.truncnorm(-a, 3.0 - a, loc=a),
        EDGY,
    ),
    "shifted, domain not told": (
        lambda a: dist.TransformedDistribution(dist.Exponential(a), dist.transforms.AffineTransform(0.4, 2.0)),
        lambda a: stats.expon(loc=0.4, scale=2.0 / a),
        EDGY,
    ),
    "StudentT": (lambda a: dist.StudentT(3.0, a, 1.0), lambda a: stats.t(3.0, loc=a), EDGY),
    "Gumbel": (lambda a: dist.Gumbel(a, 0.6), lambda a: stats.gumbel_r(loc=a, scale=0.6), EDGY),
}
WHOLE = {
    "Bernoulli": (lambda a: dist.Bernoulli(a / (1 + a)), lambda a: stats.bernoulli(a / (1 + a)), [-1, 0, 1, 3, 0]),
    "Binomial": (lambda a: dist.Binomial(6, a / (1 + a)), lambda a: stats.binom(6, a / (1 + a)), [-3, 0, 2, 6, 9]),
    "Geometric": (
        lambda a: dist.Geometric(1 / (1 + a)),
        lambda a: stats.geom(1 / (1 + a), loc=-1),
        [-3, 0, 2, 6, 9],
    ),
    "Poisson": (lambda a: dist.Poisson(a), lambda a: stats.poisson(a), [-3, 0, 2, 6, 9]),
    "NegativeBinomial": (
        lambda a: dist.NegativeBinomial2(a, 2.0),
        lambda a: stats.nbinom(2.0, 2.0 / (2.0 + a)),
        [-3, 0, 2, 6, 9],
    ),
    "BetaBinomial": (
        lambda a: dist.BetaBinomial(a, 2.0, 6),
        lambda a: stats.betabinom(6, a, 2.0),
        [-3, 0, 2, 6, 9],
    ),
}


def check(law, mechanism, released, log_likelihood, tolerance=1e-7):
    """Likelihood at a parameter, estimate and information; the law as a vector of entries."""
    released = np.asarray(released)
    model = nw.Model(prior={"a": dist.Gamma(2.0, 1.0)}, statistics={"s": lambda a: law(a).expand([len(released)])})
    release = nw.Release(s=mechanism.released(released))
    (part,) = parts_of(Problem(model, release))
    for a in (0.4, 1.7):
        found = exact_cloud(part, {"a": np.asarray(a)})
        assert found.log_likelihood == pytest.approx(log_likelihood(a), abs=tolerance)
    fit = nw.fit(model, release, nw.EM(accelerate=True), start={"a": 0.7})
    step = 2e-3 * float(fit.estimate["a"])
    low, middle, high = (log_likelihood(float(fit.estimate["a"]) + k * step) for k in (-1, 0, 1))
    information = -(low - 2 * middle + high) / step**2
    assert fit.information[0, 0] == pytest.approx(information, rel=1e-3)
    assert (high - low) / (2 * step) == pytest.approx(0.0, abs=1e-4 * np.sqrt(information))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_supports(name):
    law, truth, released = CONTINUOUS[name]
    mechanism, density = NOISE["Gaussian" if name in ("Gumbel", "Weibull", "Beta") else "Laplace"]
    check(
        law,
        mechanism(scale=SCALE),
        released,
        lambda a: smooth_log_likelihood(truth(a), density(scale=SCALE), released),
    )


@pytest.mark.parametrize("name", WHOLE)
def test_whole_supports(name):
    law, truth, released = WHOLE[name]
    tolerance = 1e-5 if name in ("NegativeBinomial", "BetaBinomial") else 1e-9  # JAX's betaln has an error of 1e-6

    def lattice(z):
        return np.log(np.tanh(0.5 / SCALE)) - np.abs(z) / SCALE

    check(
        law,
        nw.DiscreteLaplace(scale=SCALE),
        released,
        lambda a: summed_log_likelihood(truth(a), lattice, released),
        tolerance,
    )
    between = np.asarray(released) + 0.37  # noise that is no whole number, about one that is
    check(
        law,
        nw.Laplace(scale=SCALE),
        between,
        lambda a: summed_log_likelihood(truth(a), lambda z: stats.laplace.logpdf(z, scale=SCALE), between),
        tolerance,
    )


def test_a_law_without_parameters_counts_in_the_likelihood():
    """Uniform between known ends, released inside, at an edge and outside."""
    released = np.array([-0.7, 0.0, 0.5, 2.0, 2.9])
    model = nw.Model(
        prior={"a": dist.Normal(0.0, 9.0)},
        statistics={"u": lambda a: dist.Uniform(0.0, 2.0).expand([5]), "y": lambda a: dist.Normal(a, 1.0)},
    )
    noise = nw.Laplace(scale=SCALE)
    fit = nw.fit(
        model, nw.Release(u=noise.released(released), y=nw.Gaussian(scale=1.0).released(0.4)), start={"a": 1.0}
    )
    below = [stats.laplace.cdf(end - released, scale=SCALE) for end in (0.0, 2.0)]
    truth = np.sum(np.log((below[1] - below[0]) / 2.0)) + stats.norm.logpdf(0.0, scale=np.sqrt(2.0))
    assert fit.log_likelihood == pytest.approx(truth, abs=1e-8)
    assert fit.information[0, 0] == pytest.approx(0.5, rel=1e-8)


MOVING = {
    "uniform": lambda a: dist.Uniform(0.0, a),
    "truncated": lambda a: dist.TruncatedNormal(0.0, 1.0, low=-a),
    "Pareto": lambda a: dist.Pareto(a, 2.0),
    "scaled": lambda a: dist.TransformedDistribution(dist.Beta(2.0, 2.0), dist.transforms.AffineTransform(0.0, a)),
    "size": lambda a: dist.Binomial(jnp.ceil(a), 0.5),
}


@pytest.mark.parametrize("mechanism", [nw.Laplace(scale=1.0), nw.Exact()], ids=["noisy", "exact"])
@pytest.mark.parametrize("law", MOVING.values(), ids=MOVING)
def test_a_support_that_moves_with_a_parameter_is_refused(law, mechanism):
    """Louis's identity lacks a term there; and the formula of an exact value's density knows no ends."""
    model = nw.Model(prior={"a": dist.Gamma(2.0, 1.0)}, statistics={"s": law})
    release = nw.Release(s=mechanism.released(2.0))
    for estimator in (nw.EM(), nw.MCEM()):
        with pytest.raises(nw.InputError, match="a support that does not depend on the parameters"):
            nw.fit(model, release, estimator, start={"a": 1.0}, seed=1)


IMPOSSIBLE = {
    "positive": (lambda a: dist.Exponential(a), 0.2, -1.0),
    "bit": (lambda a: dist.Bernoulli(jnp.exp(-a)), 1, 1.3),
    "count": (lambda a: dist.Poisson(a), 37.4, -1.5),
    "at most": (lambda a: dist.Binomial(10, jnp.exp(-a)), 9.7, 12.3),
    "one of many": (lambda a: dist.Exponential(a).expand([3]), [0.1, 2.0, 0.3], [0.1, -2.0, 0.3]),
    "tables": (
        lambda a: dist.Multinomial(np.array([5, 7]), jnp.array([0.5, 0.5])),
        [[2, 3], [0, 7]],
        [[2, 3], [-1, 8]],
    ),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_exact_value_that_its_law_cannot_give_is_refused(name):
    """The formula goes on beyond the support, and other statistics would give it a top; between whole numbers it may.

    Negative control: a value within the support is taken.
    """
    law, possible, impossible = IMPOSSIBLE[name]
    model = nw.Model(prior={"a": dist.Gamma(2.0, 1.0)}, statistics={"s": law, "y": lambda a: dist.Normal(a, 1.0)})
    noisy = nw.Gaussian(scale=1.0).released(2.0)
    parts_of(Problem(model, nw.Release(s=nw.Exact().released(possible), y=noisy)))
    release = nw.Release(s=nw.Exact().released(impossible), y=noisy)
    for estimator in (nw.EM(), nw.MCEM()):
        with pytest.raises(nw.InputError, match="must lie within the support of its law"):
            nw.fit(model, release, estimator, start={"a": 1.0}, seed=1)


def test_records_whose_support_moves_are_refused():
    model = nw.Model(
        prior={"a": dist.Gamma(2.0, 1.0)},
        statistics={"s": nw.Total({"x": lambda a: dist.Uniform(0.0, a)}, lambda x: x, 9)},
    )
    with pytest.raises(nw.InputError, match=r"record\['x'\].*support"):
        nw.fit(model, nw.Release(s=nw.Laplace(scale=1.0).released(2.0)), nw.MCEM(), start={"a": 1.0}, seed=1)


# Laws with a kink: Louis's identity does not hold ---------------------------------------------------------------------


def laplace_law():
    model = nw.Model(prior={"mu": dist.Normal(0.0, 10.0)}, statistics={"x": lambda mu: dist.Laplace(mu, 1.0)})
    return model, nw.Release(x=nw.Gaussian(scale=1.0).released(0.3))


@pytest.mark.long
def test_a_law_with_a_kink_has_its_information_by_quadrature():
    """By automatic differentiation it would be -1."""
    model, release = laplace_law()
    fit = nw.fit(model, release, start={"mu": 1.0})

    def log_likelihood(mu):
        pieces = [
            integrate.quad(lambda s: stats.laplace.pdf(s, mu) * stats.norm.pdf(0.3, s), *ends, epsabs=1e-14)[0]
            for ends in ((-20.0, mu), (mu, 20.0))
        ]
        return np.log(sum(pieces))

    low, middle, high = (log_likelihood(0.3 + h) for h in (-1e-3, 0.0, 1e-3))
    truth = -(low - 2 * middle + high) / 1e-6
    assert truth == pytest.approx(0.525, abs=5e-4)
    assert fit.estimate["mu"] == pytest.approx(0.3, abs=1e-5)
    assert fit.information[0, 0] == pytest.approx(truth, rel=1e-5)
    assert fit.log_likelihood == pytest.approx(middle, abs=1e-8)
    assert fit.diagnostics["information"] == "slope of the score"


@pytest.mark.long
def test_simulation_does_not_give_standard_errors_for_a_kink(seed):
    model, release = laplace_law()
    estimator = nw.MCEM(schedule=nw.Ascent(most=20_000), final=50_000)
    fit = nw.fit(model, release, estimator, start={"mu": 1.0}, seed=seed, on_failure="return")
    assert fit.status == "rough"
    assert fit.information[0, 0] == pytest.approx(-1.0, abs=0.1)  # what would have been claimed
    smooth = nw.Model(prior={"mu": dist.Normal(0.0, 10.0)}, statistics={"x": lambda mu: dist.StudentT(3.0, mu, 1.0)})
    fit = nw.fit(smooth, release, estimator, start={"mu": 1.0}, seed=seed)
    assert fit.status == "converged"


def test_nodes_without_weight_do_not_spoil_the_m_step(monkeypatch):
    """Far out a Gumbel law's derivatives are no numbers; negative control: kept, they stop EM where it starts."""
    model = nw.Model(prior={"mu": dist.Normal(0.0, 9.0)}, statistics={"x": lambda mu: dist.Gumbel(mu, 1.0)})
    release = nw.Release(x=nw.Gaussian(scale=1.0).released(2.3))
    fit = nw.fit(model, release, start={"mu": 1.0})
    assert abs(fit.score[0]) < 1e-8
    monkeypatch.setattr("noisewise.likelihood.e_step.cloud._settled", lambda values, weights: values)
    stopped = nw.fit(model, release, start={"mu": 1.0}, on_failure="return")
    assert stopped.status == "stalled"
    assert "0.74 standard errors away" in stopped.message
