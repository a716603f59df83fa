"""Counts: one rate, many mechanisms; zeros in excess; withheld and clipped counts; a count in the thousand millions."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import gammaln, log_expit, logsumexp

import noisewise as nw
from realistic import laws
from realistic.problem import Problem, Truth, probability, problem
from realistic.quadrature import Curve, enumerated, integrate, summed_out


def gamma_poisson(shape, rate, log_noise, highest):
    """One count of Poisson(theta), theta ~ Gamma(shape, rate): all of it by enumeration, theta by conjugacy."""
    k = np.arange(highest + 1.0)
    marginal = laws.negative_binomial(k, shape / rate, shape)
    after = shape + k
    theta = (after / (rate + 1), after / (rate + 1) ** 2)
    return enumerated(marginal + log_noise(k), {"theta": theta, "count": k})


def one_count(shape, rate, mechanism, released, log_noise, highest):
    model = nw.Model({"theta": dist.Gamma(shape, rate)}, {"count": lambda theta: dist.Poisson(theta)})
    release = nw.Release(count=mechanism.released(released))
    return Problem(model, release, lambda: gamma_poisson(shape, rate, lambda k: log_noise(released, k), highest))


@problem
def count_laplace():
    noise = nw.Laplace(epsilon=0.2, sensitivity=1.0)
    return one_count(25.0, 1.0, noise, 37.4, lambda r, k: laws.laplace(r - k, 5.0), 400)


@problem
def count_noise_negligible():
    return one_count(25.0, 1.0, nw.Laplace(scale=1e-3), 37.0004, lambda r, k: laws.laplace(r - k, 1e-3), 400)


@problem
def count_noise_overwhelming():
    return one_count(25.0, 1.0, nw.Laplace(scale=1e4), 5213.7, lambda r, k: laws.laplace(r - k, 1e4), 400)


@problem
def count_gaussian_conflict_of_8_sd():
    """Prior predictive mean 100 and sd sqrt(100 + 100 + 100); released 8 of them above."""
    released = 100.0 + 8.0 * np.sqrt(300.0)
    return one_count(100.0, 1.0, nw.Gaussian(scale=10.0), released, lambda r, k: laws.normal(r - k, 10.0), 900)


@problem
def count_discrete_gaussian():
    noise = nw.DiscreteGaussian(rho=0.02, sensitivity=1.0)
    return one_count(3.0, 0.05, noise, 81, lambda r, k: laws.discrete_normal(r - k, 5.0), 2000)


@problem
def count_staircase():
    noise = nw.mechanisms.Staircase(epsilon=0.5, sensitivity=1.0)
    return one_count(4.0, 0.2, noise, 11.7, lambda r, k: laws.staircase(r - k, 0.5, 1.0), 400)


@problem
def count_canonical_noise():
    noise = nw.mechanisms.Tulap(epsilon=0.4)
    return one_count(9.0, 1.0, noise, 16.2, lambda r, k: laws.tulap(r - k, 0.4), 400)


@problem
def count_truncated_laplace():
    noise = nw.mechanisms.TruncatedLaplace(scale=4.0, bound=30.0)
    return one_count(9.0, 0.3, noise, 70.3, lambda r, k: laws.truncated_laplace(r - k, 4.0, 30.0), 400)


@problem
def count_cauchy_far_out():
    """Heavy noise: a release far beyond what the prior expects is mostly noise."""
    noise = nw.mechanisms.GeneralizedCauchy(power=2.0, scale=5.0)
    return one_count(16.0, 0.4, noise, 230.0, lambda r, k: laws.generalized_cauchy(r - k, 2.0, 5.0), 1000)


@problem
def count_clipped_at_zero():
    noise = nw.mechanisms.Clipped(nw.Laplace(scale=6.0), low=0.0)
    return one_count(2.0, 0.5, noise, 0.0, lambda r, k: laws.laplace_below(-k, 6.0), 300)


@problem
def count_withheld():
    """Below 50 nothing is shown; that it was withheld says how large it can be."""
    noise = nw.mechanisms.Thresholded(nw.DiscreteLaplace(scale=10.0), threshold=50)
    model = nw.Model({"theta": dist.Gamma(4.0, 0.05)}, {"count": lambda theta: dist.Poisson(theta)})
    release = nw.Release(count=noise.released("suppressed"))
    return Problem(
        model, release, lambda: gamma_poisson(4.0, 0.05, lambda k: laws.discrete_laplace_below(50 - k, 10.0), 1500)
    )


@problem
def count_rounded_to_fives():
    noise = nw.mechanisms.Rounded(nw.Laplace(scale=4.0), step=5.0)
    return one_count(30.0, 1.0, noise, 35.0, lambda r, k: _between(r - 2.5 - k, r + 2.5 - k, 4.0), 300)


def _between(low, high, scale):
    """Log of P(low <= z < high) of Laplace noise, by its smaller tail."""
    low, high = np.where(low > 0, -high, low), np.where(low > 0, -low, high)
    return np.log(np.exp(laws.laplace_below(high, scale)) - np.exp(laws.laplace_below(low, scale)))


@problem
def count_in_thousand_millions():
    """Poisson with a rate near 1e9, noise of scale 1e4."""
    shape, rate, released, scale = 400.0, 4e-7, 1_000_140_000.0, 1e4

    def truth():
        k = released + np.arange(-450_000.0, 450_001.0)
        log_law = _negative_binomial_large(k, shape, rate)
        after = shape + k
        values = {"theta": (after / (rate + 1), after / (rate + 1) ** 2), "count": k}
        return enumerated(log_law + laws.laplace(released - k, scale), values)

    model = nw.Model({"theta": dist.Gamma(shape, rate)}, {"count": lambda theta: dist.Poisson(theta)})
    return Problem(model, nw.Release(count=nw.Laplace(scale=scale).released(released)), truth)


def _negative_binomial_large(k, shape, rate):
    """Log of Gamma(shape + k) / (Gamma(shape) k!) p^shape (1-p)^k, p = rate / (1 + rate), for large k.

    The difference of two log gammas near 2e10 would lose six digits. For a whole shape it is the sum of log(k + j)
    over j = 1 ... shape - 1.
    """
    growth = sum(np.log(k + j) for j in np.arange(1.0, shape))
    return growth - gammaln(shape) + shape * (np.log(rate) - np.log1p(rate)) - k * np.log1p(rate)


TWELVE = (3, 14, 7, -1, 22, 9, 5, 31, 2, 11, 6, 17)


def _rate_curve(released, log_noise, highest, low, high):
    """Log likelihood of log rate for each of several noisy Poisson counts."""
    k = np.arange(highest + 1.0)

    def table(log_rate):
        law = laws.poisson_log_rate(k, log_rate[:, None])
        return np.stack([summed_out(law, log_noise(r, k), k)[0] for r in released], axis=1)

    return Curve(table, low, high)


@problem
def count_twelve_as_twelve_statistics():
    model = nw.Model(
        {"rate": dist.Gamma(2.0, 0.2)},
        {f"count{i}": (lambda rate: dist.Poisson(rate)) for i in range(12)},
    )
    noise = nw.DiscreteLaplace(scale=2.0)
    release = nw.Release({f"count{i}": noise.released(value) for i, value in enumerate(TWELVE)})

    def truth():
        curve = _rate_curve(TWELVE, lambda r, k: laws.discrete_laplace(r - k, 2.0), 200, -6.0, 5.0)
        return integrate(
            lambda u: (laws.log_gamma(u, 2.0, 0.2) + curve(u).sum(axis=1), {"rate": np.exp(u)}), [(-6.0, 5.0)]
        )

    return Problem(model, release, truth)


@problem
def count_same_twice():
    """One confidential count, published twice with different noise: the count is a discrete parameter."""
    model = nw.Model(
        {"rate": dist.Gamma(5.0, 0.1), "count": lambda rate: dist.Poisson(rate)},
        {"first": lambda count: dist.Delta(count), "second": lambda count: dist.Delta(count)},
    )
    release = nw.Release(first=nw.Laplace(scale=8.0).released(61.3), second=nw.DiscreteLaplace(scale=5.0).released(70))

    def truth():
        k = np.arange(800.0)
        law = laws.negative_binomial(k, 50.0, 5.0)
        noise = laws.laplace(61.3 - k, 8.0) + laws.discrete_laplace(70 - k, 5.0)
        rate = ((5.0 + k) / 1.1, (5.0 + k) / 1.1**2)
        return enumerated(law + noise, {"rate": rate, "count": k})

    return Problem(model, release, truth)


@problem
def zeros_beta_1_to_100000():
    """A count that is all but surely zero before the release, and all but surely not after it."""
    model = nw.Model({"p": dist.Beta(1.0, 1e5)}, {"count": lambda p: dist.ZeroInflatedPoisson(1 - p, 50.0)})
    release = nw.Release(count=nw.Laplace(scale=1.0).released(50.3))

    def truth():
        k = np.arange(400.0)
        open_, shut = 1 / (1e5 + 1), 1e5 / (1e5 + 1)
        noise = laws.laplace(50.3 - k, 1.0)
        with_gate = np.log(open_) + laws.poisson(k, 50.0) + noise
        zero = np.log(shut) + noise[0]
        log_joint = np.append(with_gate, zero)
        after = [(2.0, 1e5)] * len(k) + [(1.0, 1e5 + 1)]
        a, b = np.array(after).T
        p = (a / (a + b), a * b / (a + b) ** 2 / (a + b + 1))
        found = enumerated(log_joint, {"p": p, "count": np.append(k, 0.0)})
        positive = float(np.exp(logsumexp(with_gate[1:]) - logsumexp(log_joint)))
        return Truth(found.moments | {"P(count > 0)": probability(positive)}, found.log_evidence)

    return Problem(model, release, truth, {"P(count > 0)": lambda posterior: posterior["count"] > 0})


@problem
def zeros_in_six_districts():
    """Zero-inflated counts with gate and rate unknown, each with geometric noise."""
    released = np.array([0, 9, -2, 14, 1, 11])
    model = nw.Model(
        {"gate": dist.Beta(2.0, 2.0), "rate": dist.Gamma(4.0, 0.5)},
        {"cases": lambda gate, rate: dist.ZeroInflatedPoisson(gate, rate).expand([6])},
    )
    release = nw.Release(cases=nw.DiscreteLaplace(scale=1.5).released(released))

    def truth():
        curve = _rate_curve(released, lambda r, k: laws.discrete_laplace(r - k, 1.5), 150, -12.0, 5.0)

        def at(v, u):
            counted = curve(u) + log_expit(-v)[:, None]
            empty = laws.discrete_laplace(released, 1.5) + log_expit(v)[:, None]
            prior = laws.logit_beta(v, 2.0, 2.0) + laws.log_gamma(u, 4.0, 0.5)
            return prior + np.logaddexp(counted, empty).sum(axis=1), {"gate": laws.expit(v), "rate": np.exp(u)}

        return integrate(at, [(-30.0, 30.0), (-12.0, 5.0)])

    return Problem(model, release, truth)


@problem
def weeks_of_overdispersed_cases():
    """Twenty weekly counts, negative binomial with mean and concentration unknown."""
    released = np.array([4, 12, 7, -3, 30, 9, 2, 18, 6, 1, 11, 25, 3, 8, 0, 14, 5, 40, 10, 7])
    model = nw.Model(
        {"mean": dist.Gamma(2.0, 0.2), "concentration": dist.Gamma(2.0, 1.0)},
        {"cases": lambda mean, concentration: dist.NegativeBinomial2(mean, concentration).expand([20])},
    )
    release = nw.Release(cases=nw.DiscreteLaplace(epsilon=0.5, sensitivity=1.0).released(released))

    def truth():
        k = np.arange(300.0)
        noise = np.stack([laws.discrete_laplace(r - k, 2.0) for r in released])

        def at(u, v):
            mean, c = np.exp(u), np.exp(v)
            law = np.exp(laws.negative_binomial(k, mean[:, None], c[:, None]))
            likelihood = np.log(law @ np.exp(noise).T).sum(axis=1)
            prior = laws.log_gamma(u, 2.0, 0.2) + laws.log_gamma(v, 2.0, 1.0)
            return prior + likelihood, {"mean": mean, "concentration": c}

        return integrate(at, [(-2.0, 5.0), (-6.0, 4.0)], at_once=2**12)

    return Problem(model, release, truth)


@problem
def counts_of_a_thousand_places():
    """A thousand places with rates of their own: a thousand parameters, one vector."""
    rng = np.random.default_rng(11)
    released = rng.poisson(rng.gamma(3.0, 4.0, 1000)) + rng.geometric(0.4, 1000) - rng.geometric(0.4, 1000)
    scale = float(-1 / np.log(0.6))
    model = nw.Model({"rate": dist.Gamma(3.0, 0.25).expand([1000])}, {"count": lambda rate: dist.Poisson(rate)})
    release = nw.Release(count=nw.DiscreteLaplace(scale=scale).released(released))

    def truth():
        k = np.arange(300.0)
        moments, evidence = {}, 0.0
        for place in range(1000):
            law = laws.negative_binomial(k, 12.0, 3.0) + laws.discrete_laplace(released[place] - k, scale)
            values = {"rate": ((3.0 + k) / 1.25, (3.0 + k) / 1.25**2), "count": k}
            found = enumerated(law, values)
            evidence += found.log_evidence
            if place in (0, 1, 500, 999):
                moments |= {f"{name}[{place}]": pair for name, pair in found.moments.items()}
        return Truth(moments, evidence)

    return Problem(model, release, truth)


@problem
def cases_before_and_after_a_change():
    """Twenty noisy counts, one rate before an unknown day and another after it: a discrete parameter."""
    released = np.array([5, 9, 3, 7, 6, 2, 8, 14, 19, 11, 16, 22, 12, 17, 15, 20, 9, 18, 13, 21])
    days = np.arange(20)
    model = nw.Model(
        {
            "before": dist.Gamma(2.0, 0.2),
            "after": dist.Gamma(2.0, 0.2),
            "change": dist.DiscreteUniform(1, 19),
        },
        {"cases": lambda before, after, change: dist.Poisson(_switched(before, after, change, days))},
    )
    release = nw.Release(cases=nw.DiscreteLaplace(scale=2.0).released(released))

    def truth():
        u = np.linspace(-6.0, 5.0, 4001)
        k = np.arange(200.0)
        law = laws.poisson_log_rate(k, u[:, None])
        each = np.stack([summed_out(law, laws.discrete_laplace(r - k, 2.0), k)[0] for r in released], axis=1)
        prior = laws.log_gamma(u, 2.0, 0.2)[:, None] + np.log(u[1] - u[0])
        early = prior + np.cumsum(each, axis=1)[:, :-1]  # the first 1 ... 19 days
        late = prior + np.cumsum(each[:, ::-1], axis=1)[:, ::-1][:, 1:]

        def part(height):
            total = logsumexp(height, axis=0)
            weight, rate = np.exp(height - total), np.exp(u)
            mean = rate @ weight
            return total, (mean, (rate**2) @ weight - mean**2)

        (one, before), (two, after) = part(early), part(late)
        values = {"before": before, "after": after, "change": np.arange(1.0, 20.0)}
        return enumerated(one + two - np.log(19.0), values)

    return Problem(model, release, truth)


def _switched(before, after, change, days):
    return jnp.where(days < change, before, after)
