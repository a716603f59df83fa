"""Several modes, rare explanations, labels that switch."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import logsumexp

import noisewise as nw
from realistic import laws
from realistic.problem import Problem, Truth, probability, problem
from realistic.quadrature import Curve, enumerated, integrate


@problem
def square_of_a_normal():
    """Either sign explains the release."""
    model = nw.Model({"t": dist.Normal(0.0, 2.0)}, {"x": lambda t: dist.Normal(t**2, 0.5)})
    release = nw.Release(x=nw.Gaussian(scale=0.5).released(6.0))

    def truth():
        def at(t):
            return laws.normal(t, 2.0) + laws.normal(6.0 - t**2, np.sqrt(0.5)), {"t": t, "size": abs(t)}

        found = integrate(at, [(-19.0, 19.0)])
        return Truth(found.moments | {"P(t > 0)": probability(0.5)}, found.log_evidence)

    return Problem(
        model,
        release,
        truth,
        {"size": lambda posterior: abs(posterior["t"]), "P(t > 0)": lambda posterior: posterior["t"] > 0},
    )


@problem
def square_under_cauchy_noise():
    """Far out in the prior and close to the release, or close to the prior and far out in the noise."""
    model = nw.Model({"t": dist.Laplace(1.0, 1.5)}, {"x": lambda t: dist.Normal(t**2, 0.7)})
    release = nw.Release(x=nw.mechanisms.GeneralizedCauchy(power=3.0, scale=0.7).released(582.0))

    def truth():
        step = 1e-3
        y = np.arange(-6.0, 6.0 + step / 2, step)
        weight = np.exp(laws.normal(y, 0.7)) * step

        def noisy(z):
            return np.log(np.exp(laws.generalized_cauchy(z[:, None] - y, 3.0, 0.7)) @ weight)[:, None]

        near = Curve(noisy, -50.0, 50.0, 4001)
        far = Curve(lambda v: noisy(np.exp(v)), np.log(20.0), np.log(1e5), 801)

        def marginal(z):
            beyond = np.clip(abs(z), 20.0, 1e5)
            return np.where(abs(z) < 30.0, near(np.clip(z, -50.0, 50.0))[:, 0], far(np.log(beyond))[:, 0])

        t = np.linspace(-60.0, 80.0, 1_400_001)  # the prior's kink, at 1, is a node
        height = laws.laplace(t - 1.0, 1.5) + marginal(582.0 - t**2) + np.log(t[1] - t[0])
        found = enumerated(height, {"t": t})
        beyond = logsumexp(height[abs(t) > 10.0]) - found.log_evidence
        return Truth(found.moments | {"P(|t| > 10)": probability(np.exp(beyond))}, found.log_evidence)

    return Problem(model, release, truth, {"P(|t| > 10)": lambda posterior: abs(posterior["t"]) > 10})


@problem
def rare_explanation():
    """An event of probability 2e-5 explains the release far better than anything else."""
    model = nw.Model({"z": dist.Bernoulli(2e-5)}, {"x": lambda z: dist.Normal(10.0 * z, jnp.where(z == 1, 0.005, 1.0))})
    release = nw.Release(x=nw.mechanisms.GeneralizedCauchy(power=2.0, scale=0.01).released(10.0))

    def truth():
        def density(centre, sd):
            near = np.sinh(np.linspace(-14.0, 14.0, 400_001)) * 1e-4
            y = 10.0 + near  # fine about the release, where the noise is narrow
            height = laws.normal(y - centre, sd) + laws.generalized_cauchy(10.0 - y, 2.0, 0.01)
            return np.log(np.trapezoid(np.exp(height), y))

        found = enumerated(
            [np.log1p(-2e-5) + density(0.0, 1.0), np.log(2e-5) + density(10.0, 0.005)], {"z": np.array([0.0, 1.0])}
        )
        return Truth({"P(z)": found.moments["z"]}, found.log_evidence)

    return Problem(model, release, truth, {"P(z)": lambda posterior: posterior["z"]})


@problem
def prior_with_two_modes():
    """The release lies between two hypotheses."""
    model = nw.Model(
        {
            "mu": lambda: dist.MixtureSameFamily(
                dist.Categorical(jnp.array([0.7, 0.3])), dist.Normal(jnp.array([-4.0, 5.0]), 1.0)
            )
        },
        {"mean": lambda mu: dist.Normal(mu, 1.0)},
    )
    release = nw.Release(mean=nw.Laplace(scale=3.0).released(1.0))

    def truth():
        def at(mu):
            prior = np.logaddexp(np.log(0.7) + laws.normal(mu + 4.0, 1.0), np.log(0.3) + laws.normal(mu - 5.0, 1.0))
            return prior + laws.normal_laplace(1.0 - mu, 1.0, 3.0), {"mu": mu}

        return integrate(at, [(-16.0, 17.0)])

    return Problem(model, release, truth)


@problem
def labels_that_switch():
    """Ten rows of a mixture of two normal laws whose means have the same prior: either may be the larger."""
    released = np.array([-2.9, 2.1, 3.4, -1.8, 2.8, -3.5, 1.9, 3.1, -2.2, 2.6])
    model = nw.Model(
        {"mu": dist.Normal(0.0, 4.0).expand([2])},
        {
            "x": lambda mu: dist.MixtureSameFamily(
                dist.Categorical(jnp.array([0.5, 0.5])), dist.Normal(mu, 1.0)
            ).expand([10])
        },
    )
    release = nw.Release(x=nw.Gaussian(scale=0.5).released(released))

    def truth():
        sd = np.sqrt(1.25)

        def at(a, b):
            one, other = laws.normal(released - a[:, None], sd), laws.normal(released - b[:, None], sd)
            height = laws.normal(a, 4.0) + laws.normal(b, 4.0) + (np.logaddexp(one, other) - np.log(2.0)).sum(axis=1)
            return height, {"mu[0]": a, "smaller": np.minimum(a, b), "larger": np.maximum(a, b)}

        return integrate(at, [(-14.0, 14.0), (-14.0, 14.0)])

    views = {
        "smaller": lambda posterior: posterior["mu"].min(axis=1),
        "larger": lambda posterior: posterior["mu"].max(axis=1),
    }
    return Problem(model, release, truth, views)


@problem
def rows_of_two_groups():
    """Eighty noisy rows of two groups, whose shares and means are unknown; which row is of which group, too."""
    rng = np.random.default_rng(71)
    high = rng.random(80) < 0.35
    released = (np.where(high, 2.5, -1.0) + rng.normal(size=80) + 0.7 * rng.normal(size=80)).round(3)
    model = nw.Model(
        {"share": dist.Beta(2.0, 2.0), "low": dist.Normal(-1.0, 2.0), "high": dist.Normal(2.0, 2.0)},
        {
            "x": lambda share, low, high: dist.MixtureSameFamily(
                dist.Categorical(jnp.stack([1.0 - share, share])), dist.Normal(jnp.stack([low, high]), 1.0)
            ).expand([80])
        },
    )
    release = nw.Release(x=nw.Gaussian(scale=0.7).released(released))

    def truth():
        sd = np.sqrt(1.49)

        def at(w, a, b):
            one = np.log(laws.expit(-w))[:, None] + laws.normal(released - a[:, None], sd)
            other = np.log(laws.expit(w))[:, None] + laws.normal(released - b[:, None], sd)
            prior = laws.logit_beta(w, 2.0, 2.0) + laws.normal(a + 1.0, 2.0) + laws.normal(b - 2.0, 2.0)
            return prior + np.logaddexp(one, other).sum(axis=1), {"share": laws.expit(w), "low": a, "high": b}

        return integrate(at, [(-12.0, 12.0), (-14.0, 14.0), (-14.0, 14.0)])

    return Problem(model, release, truth)


@problem
def two_kinds_of_counties():
    """Which of two rates each of eight counts has is unknown: eight discrete parameters, two rates."""
    released = np.array([4, 31, 6, 28, 3, 35, 9, 25])
    model = nw.Model(
        {
            "share": dist.Beta(2.0, 2.0),
            "low": dist.Gamma(5.0, 1.0),
            "high": dist.Gamma(30.0, 1.0),
            "kind": lambda share: dist.Bernoulli(share).expand([8]),
        },
        {"cases": lambda kind, low, high: dist.Poisson(jnp.where(kind == 1, high, low))},
    )
    release = nw.Release(cases=nw.DiscreteLaplace(scale=2.0).released(released))

    def truth():
        k = np.arange(150.0)
        noise = np.exp([laws.discrete_laplace(r - k, 2.0) for r in released])

        def likelihoods(u):
            return np.log(np.exp(laws.poisson_log_rate(k, u[:, None])) @ noise.T)

        low, high = Curve(likelihoods, -7.0, 4.5), Curve(likelihoods, 0.0, 4.9)

        def at(w, u, v):
            one, other = np.log(laws.expit(-w))[:, None] + low(u), np.log(laws.expit(w))[:, None] + high(v)
            each = np.logaddexp(one, other)
            prior = laws.logit_beta(w, 2.0, 2.0) + laws.log_gamma(u, 5.0, 1.0) + laws.log_gamma(v, 30.0, 1.0)
            values = {"share": laws.expit(w), "low": np.exp(u), "high": np.exp(v)}
            return prior + each.sum(axis=1), values | {"P(kind[6])": np.exp(other[:, 6] - each[:, 6])}

        return integrate(at, [(-25.0, 25.0), (-7.0, 4.5), (0.0, 4.9)])

    return Problem(model, release, truth, {"P(kind[6])": lambda posterior: posterior["kind"][:, 6]})
