"""Very many entries: streamed E-steps against held clouds, direct maximisation and closed forms."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, optimize, special, stats
from targets import briefly

import noisewise as nw
from noisewise.inference.conditional import row_blocks
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step import cloud as clouds
from noisewise.likelihood.e_step import streamed
from noisewise.likelihood.e_step.cloud import Cloud, exact_cloud, moved
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.e_step.sufficient import condensed
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.m_step.maximise import Objective
from noisewise.model.families import FACTS, facts_of

PRIOR = {"a": dist.Gamma(2.0, 1.0), "b": dist.Gamma(2.0, 1.0)}


def one_part(law, mechanism, released, prior=PRIOR):
    model = nw.Model(prior=prior, statistics={"s": law})
    (part,) = parts_of(Problem(model, nw.Release(s=mechanism.released(released))))
    return part, Objective([part], Coordinates(model))


@pytest.fixture
def always_streamed(monkeypatch):
    """Small problems take the road of large ones, in small pieces that do not divide the entries."""
    monkeypatch.setattr(clouds, "LARGE", 0)
    monkeypatch.setattr(row_blocks, "BLOCK", 8)


def streamed_and_held(part, values, monkeypatch):
    """The cloud both ways."""
    few = exact_cloud(part, values)
    with monkeypatch.context() as patch:
        patch.setattr(clouds, "LARGE", 2**40)
        return few, exact_cloud(part, values)


X = np.linspace(0.5, 2.0, 21)
UNIT = np.linspace(-0.3, 1.3, 21)
COUNTS = np.arange(21) % 7 - 1
LAPLACE, LATTICE = nw.Laplace(scale=np.linspace(0.2, 3.0, 21)), nw.DiscreteLaplace(scale=1.5)

LAWS = {
    "Normal": (lambda a, b: dist.Normal(a * X, b), LAPLACE, np.linspace(-9.0, 12.0, 21)),
    "LogNormal": (lambda a, b: dist.LogNormal(a * X - 1.0, b), LAPLACE, np.linspace(-2.0, 12.0, 21)),
    "Gamma": (lambda a, b: dist.Gamma(a + X, b), LAPLACE, np.linspace(-2.0, 12.0, 21)),
    "InverseGamma": (lambda a, b: dist.InverseGamma(a + 1 + X, b), LAPLACE, np.linspace(-2.0, 12.0, 21)),
    "Exponential": (lambda a, b: dist.Exponential(a * X / b), LAPLACE, np.linspace(-2.0, 12.0, 21)),
    "Chi2": (lambda a, b: dist.Chi2(a * X + b), LAPLACE, np.linspace(-2.0, 12.0, 21)),
    "Beta": (lambda a, b: dist.Beta(1.0 + a * X, 1.0 + b), nw.Gaussian(scale=0.3), UNIT),
    "Poisson": (lambda a, b: dist.Poisson(a * X * b), LATTICE, COUNTS),
    "BernoulliProbs": (lambda a, b: dist.Bernoulli(a * X / (a * X + b)), LATTICE, COUNTS),
    "BernoulliLogits": (lambda a, b: dist.Bernoulli(logits=a * X - b), nw.RandomizedResponse(keep=0.8), COUNTS % 2),
    "BinomialProbs": (lambda a, b: dist.Binomial(6, a * X / (a * X + b)), LATTICE, COUNTS),
    "BinomialLogits": (lambda a, b: dist.Binomial(6, logits=a * X - b), LATTICE, COUNTS),
    "GeometricProbs": (lambda a, b: dist.GeometricProbs(a * X / (a * X + b)), LATTICE, COUNTS),
    "GeometricLogits": (lambda a, b: dist.GeometricLogits(a * X - b), LATTICE, COUNTS),
    "GammaPoisson": (lambda a, b: dist.GammaPoisson(3.0, a * X / b), LATTICE, COUNTS),
    "NegativeBinomial2": (lambda a, b: dist.NegativeBinomial2(a * X * b, 3.0), LATTICE, COUNTS),
    "NegativeBinomialProbs": (lambda a, b: dist.NegativeBinomialProbs(3, a * X / (a * X + b)), LATTICE, COUNTS),
    "NegativeBinomialLogits": (lambda a, b: dist.NegativeBinomialLogits(3, a * X - b), LATTICE, COUNTS),
}
VALUES = {"a": np.asarray(1.3), "b": np.asarray(0.9)}


def test_every_family_is_covered():
    assert set(LAWS) == set(streamed.FAMILIES) | streamed.WHOLE_KINDS


DENSITIES = {
    "Normal": lambda a, b, x: stats.norm(a * x, b),
    "LogNormal": lambda a, b, x: stats.lognorm(b, scale=np.exp(a * x - 1.0)),
    "Gamma": lambda a, b, x: stats.gamma(a + x, scale=1.0 / b),
    "InverseGamma": lambda a, b, x: stats.invgamma(a + 1 + x, scale=b),
    "Exponential": lambda a, b, x: stats.expon(scale=b / (a * x)),
    "Chi2": lambda a, b, x: stats.chi2(a * x + b),
    "Beta": lambda a, b, x: stats.beta(1.0 + a * x, 1.0 + b),
}
WHOLE = {
    "BernoulliProbs": lambda a, b, x: stats.bernoulli(a * x / (a * x + b)),
    "BinomialProbs": lambda a, b, x: stats.binom(6, a * x / (a * x + b)),
    "GeometricProbs": lambda a, b, x: stats.geom(a * x / (a * x + b), loc=-1),
    "Poisson": lambda a, b, x: stats.poisson(a * x * b),
}


DERIVATIVES = {"Normal", "Gamma", "InverseGamma", "Beta", "Chi2", "Exponential", "Poisson", "NegativeBinomial2"}
"""One law for every way in which points are found; the others differ in their formula only."""


def quadrature(kind, mechanism, released):
    """Log likelihoods of every fourth entry, by adaptive quadrature over the support."""
    found = []
    for x, y, scale in list(zip(X, released, np.broadcast_to(mechanism.scale, 21), strict=True))[::4]:
        law, noise = DENSITIES[kind](1.3, 0.9, x), (stats.norm if kind == "Beta" else stats.laplace)(y, scale)
        low, high = max(law.support()[0], -60.0), min(law.support()[1], 200.0)
        cuts = np.clip([y, y - 5 * scale, y + 5 * scale, *law.ppf([0.01, 0.5, 0.99])], low, high)
        pieces = [
            integrate.quad(lambda s, f=law, n=noise: f.pdf(s) * n.pdf(s), a, b, epsabs=0, epsrel=1e-11, limit=200)[0]
            for a, b in pairwise(sorted({low, high, *cuts}))
        ]
        found.append(np.log(sum(pieces)))
    return np.array(found)


def plain_sum(kind):
    s = np.arange(200)
    noise = np.tanh(0.5 / 1.5) * np.exp(-np.abs(COUNTS[::4, None] - s) / 1.5)
    return np.log(np.sum(WHOLE[kind](1.3, 0.9, X[::4, None]).pmf(s) * noise, axis=1))


@pytest.mark.parametrize("kind", briefly(LAWS, ["NegativeBinomial2"]))
def test_streamed_sums_are_those_of_the_whole_cloud(kind, always_streamed, monkeypatch):
    """Likelihood, score, observed and complete information: the same from sums as from all nodes.

    Where SciPy has the law, the likelihood is also what quadrature or a plain sum over the support gives. Off the
    support a formula may be a finite number (a Bernoulli law at 2, an exponential one below 0); it must not count.
    """
    law, mechanism, released = LAWS[kind]
    part, objective = one_part(law, mechanism, released)
    assert part.kind == kind
    few, held = streamed_and_held(part, VALUES, monkeypatch)
    assert few.spread is not None
    assert held.spread is None
    assert len(few.values) <= 3
    assert few.neglected.max() < 2e-10
    tolerance = 1e-5 if FACTS[kind].while_known == "concentration" else 1e-8  # JAX's betaln has an error of 1e-6
    assert few.log_likelihoods == pytest.approx(held.log_likelihoods, abs=tolerance)
    if kind in DENSITIES or kind in WHOLE:
        truth = quadrature(kind, mechanism, released) if kind in DENSITIES else plain_sum(kind)
        assert few.log_likelihoods[::4] == pytest.approx(truth, abs=1e-8)
        assert held.log_likelihoods[::4] == pytest.approx(truth, abs=1e-8)
    assert condensed(part, few) is few
    if kind not in DERIVATIVES:
        return
    free = objective.coordinates.free_from(VALUES)
    results = [objective.score_and_information(free, [one]) for one in (few, held)]
    for name in ("score", "information", "complete"):
        ours, truth = (getattr(one, name) for one in results)
        assert ours == pytest.approx(truth, rel=max(1e-6, tolerance), abs=max(1e-6, tolerance))


def test_the_score_needs_its_variance(always_streamed):
    """Negative control: points and weights alone, without their covariance, claim the complete information."""
    part, objective = one_part(*LAWS["Normal"])
    few = exact_cloud(part, VALUES)
    free = objective.coordinates.free_from(VALUES)
    louis = objective.score_and_information(free, [few])
    information, complete = louis.information, louis.complete
    without = Cloud(few.values, few.weights, few.log_likelihoods, 0.0, np.zeros_like(few.spread))
    assert objective.score_and_information(free, [without]).information == pytest.approx(complete)
    assert information[0, 0] < 0.9 * complete[0, 0]


@pytest.mark.long
def test_tables_of_entries(always_streamed, monkeypatch):
    """More than one axis; attributes and scales that broadcast along either."""
    rows, columns = np.arange(5.0)[:, None], np.linspace(0.5, 1.0, 3)
    mechanism = nw.Gaussian(scale=np.array([0.5, 1.0, 2.0]))
    part, _ = one_part(lambda a, b: dist.Normal(a * rows, b * columns), mechanism, np.arange(15.0).reshape(5, 3) / 3)
    few, held = streamed_and_held(part, VALUES, monkeypatch)
    assert few.values.shape[1:] == (5, 3)
    assert few.log_likelihoods == pytest.approx(held.log_likelihoods, abs=1e-9)


def test_windows_follow_the_law(always_streamed, monkeypatch):
    """Windows are kept while the law hardly moves and renewed when it does; kept for good, they miss the mass."""
    part, _ = one_part(*LAWS["Normal"])
    exact_cloud(part, VALUES)
    first = part.sweep.grid
    exact_cloud(part, {"a": np.asarray(1.301), "b": np.asarray(0.9)})
    assert part.sweep.grid is first
    far = {"a": np.asarray(20.0), "b": np.asarray(0.5)}
    few, held = streamed_and_held(part, far, monkeypatch)
    assert part.sweep.grid is not first
    assert few.log_likelihoods == pytest.approx(held.log_likelihoods, abs=1e-8)
    monkeypatch.setattr(row_blocks, "STILL", np.inf)
    part.sweep.grid = first
    stale = exact_cloud(part, far)
    assert np.max(np.abs(stale.log_likelihoods - held.log_likelihoods)) > 1.0
    assert moved(part, few, VALUES, far).log_likelihoods == pytest.approx(stale.log_likelihoods)  # evaluated anew


@pytest.mark.long
def test_direct_maximisation_of_two_hundred_rows(always_streamed, seed):
    """The normal-Laplace convolution has a closed form; maximise it directly."""
    rng = np.random.default_rng(seed)
    x, h = rng.uniform(-1.0, 1.0, 200), 0.8
    y = rng.normal(1.0 + 2.0 * x, 1.5) + rng.laplace(0.0, h, 200)

    def log_likelihood(theta):
        d, r = (y - theta[0] - theta[1] * x) / theta[2], theta[2] / h
        sides = [0.5 * r * r - sign * d * r + special.log_ndtr(sign * d - r) for sign in (1.0, -1.0)]
        return np.sum(np.logaddexp(*sides) - np.log(2.0 * h))

    fit = local_privacy(x, y, nw.Laplace(scale=h))
    estimate = np.array([fit.estimate[name] for name in ("a", "b", "sigma")])
    assert fit.log_likelihood == pytest.approx(log_likelihood(estimate), abs=1e-7)
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000}
    found = optimize.minimize(lambda t: -log_likelihood(t), estimate + 0.1, method="Nelder-Mead", options=options).x
    assert estimate == pytest.approx(found, abs=2e-5)
    steps, information = np.diag([1e-3] * 3), np.empty((3, 3))
    for i, u in enumerate(steps):
        for j, v in enumerate(steps):
            stencil = log_likelihood(estimate + u + v) - log_likelihood(estimate + u - v)
            stencil += log_likelihood(estimate - u - v) - log_likelihood(estimate - u + v)
            information[i, j] = -stencil / 4e-6
    assert fit.information == pytest.approx(information, rel=1e-3, abs=2e-2)


def local_privacy(x, y, mechanism):
    model = nw.Model(
        prior={"a": dist.Normal(0.0, 10.0), "b": dist.Normal(0.0, 10.0), "sigma": dist.HalfNormal(10.0)},
        statistics={"y": lambda a, b, sigma: dist.Normal(a + b * jnp.asarray(x), sigma)},
    )
    release = nw.Release(y=mechanism.released(y))
    return nw.fit(model, release, nw.EM(accelerate=True), start={"a": 0.5, "b": 1.5, "sigma": 1.2})


@pytest.mark.long
def test_a_hundred_thousand_rows_have_their_closed_form(seed):
    """Normal responses with Gaussian noise: least squares, variances add. No patches: the size alone decides."""
    rng = np.random.default_rng(seed)
    n, h = 100_000, 1.0
    x = rng.uniform(-1.0, 1.0, n)
    y = rng.normal(1.0 + 2.0 * x, 1.5) + rng.normal(0.0, h, n)
    fit = local_privacy(x, y, nw.Gaussian(scale=h))
    design = np.column_stack([np.ones(n), x])
    beta = np.linalg.lstsq(design, y, rcond=None)[0]
    total = np.mean((y - design @ beta) ** 2)
    sigma = np.sqrt(total - h * h)
    assert [fit.estimate["a"], fit.estimate["b"]] == pytest.approx(beta, abs=1e-7)
    assert fit.estimate["sigma"] == pytest.approx(sigma, abs=1e-7)
    assert fit.information[:2, :2] == pytest.approx(design.T @ design / total, rel=1e-7)
    assert fit.information[2, 2] == pytest.approx(2.0 * n * sigma**2 / total**2, rel=1e-6)
    assert fit.log_likelihood == pytest.approx(stats.norm.logpdf(y, design @ beta, np.sqrt(total)).sum(), rel=1e-10)


def test_noisy_bits(seed, monkeypatch):
    """Randomised response on every record: the rate of reports gives the share in closed form."""
    monkeypatch.setattr(clouds, "LARGE", 0)
    rng = np.random.default_rng(seed)
    n, keep = 2_000, 0.75
    truth = rng.random(n) < 0.3
    reported = np.where(rng.random(n) < keep, truth, ~truth).astype(int)
    model = nw.Model(prior={"p": dist.Beta(1.0, 1.0)}, statistics={"bit": lambda p: dist.Bernoulli(p).expand([n])})
    release = nw.Release(bit=nw.RandomizedResponse(keep=keep).released(reported))
    fit = nw.fit(model, release, nw.EM(accelerate=True), start={"p": 0.5})
    rate = reported.mean()
    assert fit.estimate["p"] == pytest.approx((rate - 0.25) / 0.5, abs=1e-8)
    assert fit.standard_error["p"] == pytest.approx(np.sqrt(rate * (1 - rate) / n) / 0.5, rel=1e-6)


# Laws that are no exponential family --------------------------------------------------------------------------------


@pytest.mark.long
def test_other_laws_keep_the_windows_nodes(always_streamed, monkeypatch):
    part, objective = one_part(lambda a, b: dist.StudentT(4.0, a * X, b), LAPLACE, np.linspace(-9.0, 12.0, 21))
    few, held = streamed_and_held(part, VALUES, monkeypatch)
    assert few.spread is None
    assert len(few.values) < 0.3 * len(held.values)
    assert few.log_likelihoods == pytest.approx(held.log_likelihoods, abs=1e-8)
    free = objective.coordinates.free_from(VALUES)
    ours, truth = (objective.score_and_information(free, [one]).information for one in (few, held))
    assert ours == pytest.approx(truth, rel=1e-7)


REFUSED = {
    "nodes": lambda: one_part(lambda a, b: dist.StudentT(4.0, a * X, b), LAPLACE, np.zeros(21)),
    "panels": lambda: one_part(lambda a, b: dist.Laplace(a * X, b), LAPLACE, np.zeros(21)),
    "counts": lambda: one_part(lambda a, b: dist.BetaBinomial(a * X, b, 6), LATTICE, COUNTS),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_what_would_not_fit_in_memory_is_refused(make, always_streamed, monkeypatch):
    monkeypatch.setattr(clouds, "MOST", 100)
    with pytest.raises(nw.InputError, match=r"statistics\['s'\].*must have at most \d+ entries.*Use nw.MCEM"):
        exact_cloud(make()[0], VALUES)


# Sizes that must be known -------------------------------------------------------------------------------------------


SIZES = {
    "known": (lambda a, b: dist.NegativeBinomial2(a * b, 3.0), True),
    "known array": (lambda a, b: dist.NegativeBinomial2(a * b, np.asarray(3.0) * jnp.exp(0.5)), True),
    "known, by rate": (lambda a, b: dist.GammaPoisson(2.5, a / b), True),
    "known, by probability": (lambda a, b: dist.NegativeBinomialProbs(4, a / (a + b)), True),
    "estimated": (lambda a, b: dist.NegativeBinomial2(a, b), False),
    "estimated in part": (lambda a, b: dist.NegativeBinomial2(a, 3.0 + 0.5 * b), False),
    "estimated, by rate": (lambda a, b: dist.GammaPoisson(b, a), False),
}


@pytest.mark.parametrize(("law", "known"), SIZES.values(), ids=SIZES)
def test_negative_binomial_with_known_size_is_a_family(law, known, seed):
    part, _ = one_part(law, nw.DiscreteLaplace(scale=1.5), 4)
    assert (facts_of(part.kind).while_known == "concentration") == known
    rng = np.random.default_rng(seed)
    values = rng.poisson(4.0, size=200).astype(float)
    cloud = Cloud(values, rng.dirichlet(np.ones(200))[:, None], np.zeros(1))
    assert len(condensed(part, cloud).values) == (1 if known else 200)


@pytest.mark.parametrize("name", ["known", "estimated"])
def test_only_a_known_size_leaves_q_to_the_mean(name):
    """b(s) = s carries Q while the size is fixed; where it is estimated the mean alone is wrong (negative control)."""
    law, known = SIZES[name]
    part, _ = one_part(law, nw.DiscreteLaplace(scale=1.5), 4)
    s = np.array([0.0, 2.0, 7.0])

    def q(b, s):
        return np.mean(part.log_prob_many({"a": np.asarray(2.0), "b": np.asarray(b)}, s))

    changes = [q(1.0, one) - q(1.5, one) for one in (s, s.mean(keepdims=True))]
    assert (abs(changes[0] - changes[1]) < 1e-5) == known


@pytest.mark.long
def test_negative_binomial_fit_against_direct_maximisation():
    released = np.array([3, 9, -1, 5, 14, 2, 7])
    model = nw.Model(
        prior={"m": dist.Gamma(2.0, 1.0)},
        statistics={"s": lambda m: dist.NegativeBinomial2(m, 2.0).expand([7])},
    )
    fit = nw.fit(model, nw.Release(s=nw.DiscreteLaplace(scale=1.5).released(released)), start={"m": 1.0})
    s = np.arange(400)

    def log_likelihood(m):
        law = stats.nbinom.logpmf(s, 2.0, 2.0 / (2.0 + m))
        noise = np.log(np.tanh(0.5 / 1.5)) - np.abs(released[:, None] - s) / 1.5
        return special.logsumexp(law + noise, axis=1).sum()

    found = optimize.minimize_scalar(lambda m: -log_likelihood(m), bounds=(0.5, 20.0), options={"xatol": 1e-9})
    assert fit.estimate["m"] == pytest.approx(found.x, abs=1e-5)
    assert fit.log_likelihood == pytest.approx(-found.fun, abs=1e-5)  # JAX's betaln has an error of 1e-6
