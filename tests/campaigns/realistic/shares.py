"""Shares: of known numbers, of two arms, of randomised answers one by one and in total, rare ones, by dose."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import gammaln

import noisewise as nw
from realistic import laws
from realistic.problem import Problem, Truth, probability, problem
from realistic.quadrature import Curve, enumerated, integrate, summed_out


def beta_after(k, n, a, b):
    """Mean and variance of a share after k of n, Beta(a, b) before."""
    one, other = a + k, b + n - k
    return one / (one + other), one * other / (one + other) ** 2 / (one + other + 1)


def one_share(n, a, b, mechanism, released, log_noise):
    model = nw.Model({"p": dist.Beta(a, b)}, {"count": lambda p: dist.Binomial(n, p)})

    def truth():
        k = np.arange(n + 1.0)
        return enumerated(
            laws.beta_binomial(k, n, a, b) + log_noise(released, k), {"p": beta_after(k, n, a, b), "count": k}
        )

    return Problem(model, nw.Release(count=mechanism.released(released)), truth)


@problem
def share_of_a_thousand():
    noise = nw.Laplace(epsilon=0.1, sensitivity=1.0)
    return one_share(1000, 1.0, 1.0, noise, 312.6, lambda r, k: laws.laplace(r - k, 10.0))


@problem
def share_of_fifty_drowned_in_noise():
    return one_share(50, 2.0, 3.0, nw.Laplace(scale=200.0), -131.0, lambda r, k: laws.laplace(r - k, 200.0))


@problem
def share_that_is_rare():
    return one_share(100_000, 0.5, 500.0, nw.Gaussian(scale=20.0), 61.5, lambda r, k: laws.normal(r - k, 20.0))


@problem
def share_geometric_noise():
    noise = nw.DiscreteLaplace(epsilon=0.5, sensitivity=1.0)
    return one_share(120, 2.0, 2.0, noise, 127, lambda r, k: laws.discrete_laplace(r - k, 2.0))


@problem
def share_in_percent():
    """The share was published in percent of a known number: other units."""
    noise = nw.mechanisms.Affine(nw.Laplace(scale=4.0), factor=100 / 250)
    return one_share(250, 1.0, 3.0, noise, 41.7, lambda r, k: laws.laplace(r * 2.5 - k, 4.0) + np.log(2.5))


@problem
def share_exact_beside_noisy():
    """One group's count is public, the other's has noise; both have the same share."""
    model = nw.Model(
        {"p": dist.Beta(1.0, 1.0)},
        {"public": lambda p: dist.Binomial(40, p), "private": lambda p: dist.Binomial(300, p)},
    )
    release = nw.Release(public=nw.Exact().released(17), private=nw.Laplace(scale=10.0).released(98.0))

    def truth():
        k = np.arange(301.0)
        law = laws.beta_binomial(17.0, 40, 1.0, 1.0) + laws.beta_binomial(k, 300, 18.0, 24.0)
        values = {"p": beta_after(k, 300, 18.0, 24.0), "private": k}
        return enumerated(law + laws.laplace(98.0 - k, 10.0), values)

    return Problem(model, release, truth)


@problem
def trial_of_two_arms():
    """Risk difference of a trial, each arm's events with Laplace noise."""
    model = nw.Model(
        {"treated": dist.Beta(1.0, 1.0), "control": dist.Beta(1.0, 1.0)},
        {
            "events_treated": lambda treated: dist.Binomial(210, treated),
            "events_control": lambda control: dist.Binomial(198, control),
        },
    )
    noise = nw.Laplace(epsilon=0.2, sensitivity=1.0)
    release = nw.Release(events_treated=noise.released(31.2), events_control=noise.released(52.9))

    def truth():
        def arm(n, released):
            k = np.arange(n + 1.0)
            law = laws.beta_binomial(k, n, 1.0, 1.0) + laws.laplace(released - k, 5.0)
            return enumerated(law, {"p": beta_after(k, n, 1.0, 1.0)})

        one, other = arm(210, 31.2), arm(198, 52.9)
        (p, sp), (q, sq) = one.moments["p"], other.moments["p"]
        grid = np.linspace(0.0005, 0.9995, 1000)

        def density(n, released):
            k = np.arange(n + 1.0)
            found = np.exp(summed_out(laws.binomial(k, n, grid[:, None]), laws.laplace(released - k, 5.0), k)[0])
            return found / found.sum()

        first, second = density(210, 31.2), density(198, 52.9)
        better = first @ (1 - np.cumsum(second)) + 0.5 * first @ second
        moments = {"treated": (p, sp), "control": (q, sq), "difference": (p - q, float(np.hypot(sp, sq)))}
        moments["P(treated < control)"] = probability(better)
        return Truth(moments, one.log_evidence + other.log_evidence)

    views = {
        "difference": lambda posterior: posterior["treated"] - posterior["control"],
        "P(treated < control)": lambda posterior: posterior["treated"] < posterior["control"],
    }
    return Problem(model, release, truth, views)


@problem
def trial_log_odds_ratio():
    """A trial with priors on the baseline's log odds and on the log odds ratio."""
    model = nw.Model(
        {"base": dist.Normal(-1.0, 1.0), "effect": dist.Normal(0.0, 0.5)},
        {"events": lambda base, effect: dist.Binomial(150, logits=jnp.stack([base, base + effect]))},
    )
    release = nw.Release(events=nw.DiscreteGaussian(scale=6.0).released(np.array([44, 69])))

    def truth():
        k = np.arange(151.0)

        def at(base, effect):
            height = laws.normal(base + 1.0, 1.0) + laws.normal(effect, 0.5)
            for released, x in ((44, base), (69, base + effect)):
                law = laws.binomial_logit(k, 150.0, x[:, None])
                height = height + summed_out(law, laws.discrete_normal(released - k, 6.0), k)[0]
            return height, {"base": base, "effect": effect}

        return integrate(at, [(-9.0, 7.0), (-4.5, 4.5)])

    return Problem(model, release, truth)


DOSES = np.array([-2.0, -1.2, -0.4, 0.4, 1.2, 2.0])


@problem
def dose_and_response():
    """Six doses of 40 animals, deaths with Laplace noise: a logistic regression of noisy counts."""
    released = np.array([1.3, 7.9, 10.4, 19.6, 33.8, 38.1])
    model = nw.Model(
        {"intercept": dist.Normal(0.0, 2.0), "slope": dist.Normal(0.0, 2.0)},
        {"deaths": lambda intercept, slope: dist.Binomial(40, logits=intercept + slope * DOSES)},
    )
    release = nw.Release(deaths=nw.Laplace(scale=2.0).released(released))

    def truth():
        k = np.arange(41.0)

        def at(a, b):
            height = laws.normal(a, 2.0) + laws.normal(b, 2.0)
            for r, x in zip(released, DOSES, strict=True):
                law = laws.binomial_logit(k, 40.0, (a + b * x)[:, None])
                height = height + summed_out(law, laws.laplace(r - k, 2.0), k)[0]
            return height, {"intercept": a, "slope": b}

        return integrate(at, [(-19.0, 19.0), (-19.0, 19.0)])

    return Problem(model, release, truth)


@problem
def answers_in_total():
    """Four hundred randomised answers, of which only the totals were published."""
    model = nw.Model({"p": dist.Beta(2.0, 5.0)}, {"table": lambda p: dist.Multinomial(400, jnp.stack([1 - p, p]))})
    mechanism = nw.RandomizedResponse(keep=0.75, categories=2, on="counts", n=400)
    release = nw.Release(table=mechanism.released(np.array([251, 149])))

    def truth():
        def at(u):
            p = laws.expit(u)
            return laws.logit_beta(u, 2.0, 5.0) + laws.binomial(149.0, 400.0, 0.25 + 0.5 * p), {"p": p}

        return integrate(at, [(-40.0, 30.0)])

    return Problem(model, release, truth)


@problem
def answers_of_three_kinds_in_total():
    model = nw.Model({"p": dist.Dirichlet(jnp.ones(3))}, {"table": lambda p: dist.Multinomial(200, p)})
    mechanism = nw.RandomizedResponse(epsilon=1.0, categories=3, on="counts", n=200)
    counts = np.array([96, 61, 43])
    release = nw.Release(table=mechanism.released(counts))

    def truth():
        keep = np.exp(1.0) / (np.exp(1.0) + 2)
        channel = np.full((3, 3), (1 - keep) / 2) + np.eye(3) * (keep - (1 - keep) / 2)
        ways = gammaln(201.0) - gammaln(counts + 1.0).sum()

        def at(u, v):
            p = np.exp(np.stack([u, v, np.zeros_like(u)], axis=1) - np.logaddexp(np.logaddexp(u, v), 0.0)[:, None])
            likelihood = np.log(p @ channel) @ counts + ways
            jacobian = np.log(p).sum(axis=1) + np.log(2.0)
            return likelihood + jacobian, {f"p[{i}]": p[:, i] for i in range(3)}

        return integrate(at, [(-40.0, 40.0), (-40.0, 40.0)])

    return Problem(model, release, truth)


@problem
def answers_one_by_one():
    """Two thousand randomised yes and no, published row by row."""
    rng = np.random.default_rng(5)
    answers = (rng.random(2000) < 0.25 + 0.5 * 0.12).astype(int)
    model = nw.Model({"p": dist.Beta(1.0, 4.0)}, {"truth": lambda p: dist.Bernoulli(p).expand([2000])})
    release = nw.Release(truth=nw.RandomizedResponse(keep=0.75, categories=2).released(answers))

    def truth():
        yes = answers.sum()

        def at(u):
            p = laws.expit(u)
            told = 0.25 + 0.5 * p
            return laws.logit_beta(u, 1.0, 4.0) + yes * np.log(told) + (2000 - yes) * np.log1p(-told), {"p": p}

        return integrate(at, [(-50.0, 20.0)])

    return Problem(model, release, truth)


@problem
def answers_with_a_covariate():
    """A logistic regression of three thousand randomised answers with a public covariate."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000)
    yes = rng.random(3000) < laws.expit(0.3 + 0.8 * x)
    answers = np.where(rng.random(3000) < 0.25, ~yes, yes).astype(int)
    model = nw.Model(
        {"intercept": dist.Normal(0.0, 2.0), "slope": dist.Normal(0.0, 2.0)},
        {"truth": lambda intercept, slope: dist.Bernoulli(logits=intercept + slope * x)},
    )
    release = nw.Release(truth=nw.RandomizedResponse(keep=0.75, categories=2).released(answers))

    def truth():
        def at(a, b):
            told = 0.25 + 0.5 * laws.expit(a[:, None] + b[:, None] * x)
            likelihood = np.log(np.where(answers == 1, told, 1 - told)).sum(axis=1)
            return laws.normal(a, 2.0) + laws.normal(b, 2.0) + likelihood, {"intercept": a, "slope": b}

        return integrate(at, [(-0.8, 1.3), (-0.1, 2.0)], first=61, at_once=2**10)

    return Problem(model, release, truth)


@problem
def answers_as_bits():
    """Five hundred answers among three, each published as three randomised bits."""
    rng = np.random.default_rng(9)
    category = rng.choice(3, 500, p=[0.6, 0.3, 0.1])
    bits = rng.random((500, 3)) < np.where(np.arange(3) == category[:, None], 0.75, 0.25)
    model = nw.Model({"p": dist.Dirichlet(jnp.ones(3))}, {"answer": lambda p: dist.Categorical(p).expand([500])})
    mechanism = nw.mechanisms.UnaryEncoding(categories=3, keep=0.75, add=0.25)
    release = nw.Release(answer=mechanism.released(bits.astype(int)))

    def truth():
        chance = np.where(bits, 0.25, 0.75)
        own = np.where(bits, 0.75, 0.25)
        likely = chance.prod(axis=1, keepdims=True) / chance * own  # person by category
        kinds, number = np.unique(likely.round(12), axis=0, return_counts=True)

        def at(u, v):
            p = np.exp(np.stack([u, v, np.zeros_like(u)], axis=1) - np.logaddexp(np.logaddexp(u, v), 0.0)[:, None])
            jacobian = np.log(p).sum(axis=1) + np.log(2.0)
            return np.log(p @ kinds.T) @ number + jacobian, {f"p[{i}]": p[:, i] for i in range(3)}

        return integrate(at, [(-40.0, 40.0), (-40.0, 40.0)])

    return Problem(model, release, truth)


@problem
def animals_of_unknown_number():
    """Number and probability of detection both unknown: a discrete parameter with thousands of values."""
    model = nw.Model(
        {"size": dist.Poisson(400.0), "detected": dist.Beta(8.0, 12.0)},
        {
            "first": lambda size, detected: dist.Binomial(size, detected),
            "second": lambda size, detected: dist.Binomial(size, detected),
        },
    )
    noise = nw.DiscreteLaplace(scale=4.0)
    release = nw.Release(first=noise.released(141), second=noise.released(158))

    def truth():
        # given the probability, both surveys are binomial of the same number: sum over numbers
        size = np.arange(250.0, 551.0)
        law_of_size = laws.poisson(size, 400.0)

        def surveyed(u, released):
            k = np.arange(released - 120.0, released + 121.0)
            law = laws.binomial_logit(k, size[:, None, None], u[:, None])
            joint = law + laws.discrete_laplace(released - k, 4.0)
            top = joint.max(axis=-1, keepdims=True)
            return (np.log(np.exp(joint - top).sum(axis=-1)) + top[..., 0]).T  # u by size

        def at(u):
            joint = law_of_size + surveyed(u, 141) + surveyed(u, 158)
            height, moments = summed_out(joint, 0.0, size)
            return laws.logit_beta(u, 8.0, 12.0) + height, {"detected": laws.expit(u), "size": moments}

        def tabulated(u):
            height, moments = at(u)
            return np.stack([height, *moments["size"]], axis=1)

        curve = Curve(tabulated, -2.5, 1.5, 321)

        def between(u):
            height, mean, variance = curve(u).T
            return height, {"detected": laws.expit(u), "size": (mean, variance)}

        return integrate(between, [(-2.5, 1.5)])

    return Problem(model, release, truth)
