"""Means: of known and noisy numbers of records, in units from 1e-9 to 1e9, at odds with the prior, clipped."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import gammaln, log_ndtr

import noisewise as nw
from realistic import laws
from realistic.problem import Problem, Truth, probability, problem
from realistic.quadrature import SPREAD, Curve, enumerated, integrate, stretched


def normal_after(release, prior_mean, prior_sd, variance):
    """A normal mean with a normal measurement: posterior moments and log evidence."""
    precision = 1 / prior_sd**2 + 1 / variance
    mean = (prior_mean / prior_sd**2 + release / variance) / precision
    return mean, precision**-0.5, laws.normal(release - prior_mean, np.sqrt(prior_sd**2 + variance))


@problem
def mean_of_a_hundred():
    model = nw.Model({"mu": dist.Normal(50.0, 20.0)}, {"mean": lambda mu: dist.Normal(mu, 1.0)})
    release = nw.Release(mean=nw.Laplace(scale=0.5).released(57.3))

    def truth():
        return integrate(
            lambda mu: (laws.normal(mu - 50.0, 20.0) + laws.normal_laplace(57.3 - mu, 1.0, 0.5), {"mu": mu}),
            [(20.0, 100.0)],
        )

    return Problem(model, release, truth)


def gaussian_mean(unit):
    model = nw.Model({"mu": dist.Normal(0.0, 5.0 * unit)}, {"mean": lambda mu: dist.Normal(mu, unit)})
    release = nw.Release(mean=nw.Gaussian(scale=2.0 * unit).released(4.2 * unit))

    def truth():
        mean, sd, evidence = normal_after(4.2 * unit, 0.0, 5.0 * unit, 5.0 * unit**2)
        precision = 1 / (26.0 * unit**2) + 1 / (4.0 * unit**2)
        inner = 4.2 * unit / (4.0 * unit**2) / precision
        return Truth({"mu": (mean, sd), "mean": (inner, precision**-0.5)}, evidence)

    return Problem(model, release, truth)


@problem
def mean_in_units_of_1e_minus_9():
    return gaussian_mean(1e-9)


@problem
def mean_in_units_of_1e9():
    return gaussian_mean(1e9)


def rows(centre, unit, noise, number, seed):
    """Rows of a normal law with mean and spread unknown, each with Laplace noise."""
    rng = np.random.default_rng(seed)
    released = centre + unit * rng.normal(size=number) + noise * rng.laplace(size=number)
    model = nw.Model(
        {"mu": dist.Normal(0.0, 10.0 * unit), "sigma": dist.HalfNormal(10.0 * unit)},
        {"x": lambda mu, sigma: dist.Normal(mu, sigma).expand([number])},
    )
    release = nw.Release(x=nw.Laplace(scale=noise).released(released))

    def truth():
        def at(mu, w):
            u, jacobian = stretched(w)
            u = u + np.log(unit)
            sigma = np.exp(u)
            terms = laws.normal_laplace(released - mu[:, None], sigma[:, None], noise)
            prior = laws.normal(mu, 10.0 * unit) + laws.log_half_normal(u, 10.0 * unit)
            return prior + jacobian + terms.sum(axis=1), {"mu": mu, "sigma": sigma}

        # sigma much below the noise cannot be told from zero, and the density then has a kink at every row
        return integrate(at, [(centre - 20 * unit, centre + 20 * unit), SPREAD], tolerance=1e-5)

    return Problem(model, release, truth)


@problem
def rows_in_odd_units():
    return rows(3e5, 1e5, 3e4, 12, 0)


@problem
def rows_in_units_of_1e9():
    return rows(2e9, 1e9, 5e8, 10, 1)


@problem
def rows_in_units_of_1e_minus_9():
    return rows(-3e-9, 1e-9, 1e-10, 10, 2)


@problem
def rows_with_noise_a_thousandth():
    return rows(4.0, 1.0, 1e-3, 25, 3)


@problem
def rows_with_heavy_tails():
    """Fifteen rows of Student's law with four degrees of freedom, Laplace noise."""
    rng = np.random.default_rng(4)
    released = 2.0 + rng.standard_t(4, 15) + rng.laplace(size=15)
    model = nw.Model({"mu": dist.Normal(0.0, 5.0)}, {"x": lambda mu: dist.StudentT(4.0, mu, 1.0).expand([15])})
    release = nw.Release(x=nw.Laplace(scale=1.0).released(released))

    def truth():
        y = np.linspace(-45.0, 45.0, 4501)  # the noise's kink, at zero, is where two panels of Simpson's rule meet
        weight = np.exp(laws.laplace(y, 1.0)) * 0.02 / 3 * np.where(np.arange(4501) % 2, 4.0, 2.0)
        weight /= weight.sum()
        marginal = Curve(
            lambda z: np.log(np.exp(laws.student(z[:, None] - y, 4.0, 0.0, 1.0)) @ weight)[:, None], -60.0, 60.0
        )

        def at(mu):
            return laws.normal(mu, 5.0) + marginal(released - mu[:, None])[..., 0].sum(axis=1), {"mu": mu}

        return integrate(at, [(-45.0, 45.0)])

    return Problem(model, release, truth)


@problem
def mean_with_noise_overwhelming():
    model = nw.Model({"mu": dist.Normal(3.0, 1.0)}, {"mean": lambda mu: dist.Normal(mu, 0.2)})
    release = nw.Release(mean=nw.Laplace(scale=1e4).released(23456.0))

    def truth():
        return integrate(
            lambda mu: (laws.normal(mu - 3.0, 1.0) + laws.normal_laplace(23456.0 - mu, 0.2, 1e4), {"mu": mu}),
            [(-8.0, 14.0)],
        )

    return Problem(model, release, truth)


@problem
def mean_conflict_of_8_sd_gaussian():
    """Prior predictive sd sqrt(1 + 0.25 + 0.25); the release 8 of them out. Normal all through: a closed form."""
    released = float(8.0 * np.sqrt(1.5))
    model = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"mean": lambda mu: dist.Normal(mu, 0.5)})
    release = nw.Release(mean=nw.Gaussian(scale=0.5).released(released))

    def truth():
        mean, sd, evidence = normal_after(released, 0.0, 1.0, 0.5)
        return Truth({"mu": (mean, sd)}, evidence)

    return Problem(model, release, truth)


@problem
def mean_conflict_of_8_sd_student():
    """A prior with heavy tails gives way."""
    model = nw.Model({"mu": dist.StudentT(3.0, 0.0, 1.0)}, {"mean": lambda mu: dist.Normal(mu, 0.5)})
    release = nw.Release(mean=nw.Gaussian(scale=0.5).released(12.0))

    def truth():
        def at(mu):
            return laws.student(mu, 3.0, 0.0, 1.0) + laws.normal(12.0 - mu, np.sqrt(0.5)), {"mu": mu}

        return integrate(at, [(-5.0, 25.0)])

    return Problem(model, release, truth)


@problem
def mean_conflict_with_laplace_noise():
    """Noise with heavier tails than the prior takes the blame."""
    model = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"mean": lambda mu: dist.Normal(mu, 0.3)})
    release = nw.Release(mean=nw.Laplace(scale=0.6).released(8.4))

    def truth():
        return integrate(
            lambda mu: (laws.normal(mu, 1.0) + laws.normal_laplace(8.4 - mu, 0.3, 0.6), {"mu": mu}), [(-12.0, 14.0)]
        )

    return Problem(model, release, truth)


@problem
def mean_with_a_noisy_number():
    """Sum and number of records both have noise: what is the mean?"""
    model = nw.Model(
        {"mu": dist.Normal(10.0, 5.0), "size": dist.Poisson(100.0)},
        {
            "total": lambda mu, size: dist.Normal(size * mu, 4.0 * jnp.sqrt(size + 0.0)),
            "records": lambda size: dist.Delta(size),
        },
    )
    records = nw.DiscreteLaplace(scale=5.0).released(113)
    release = nw.Release(total=nw.Gaussian(scale=60.0).released(1410.0), records=records)

    def truth():
        n = np.arange(1.0, 400.0)
        variance = 16.0 * n + 3600.0
        precision = 1 / 25.0 + n**2 / variance
        mean = (10.0 / 25.0 + n * 1410.0 / variance) / precision
        law = laws.poisson(n, 100.0) + laws.discrete_laplace(113 - n, 5.0)
        law += laws.normal(1410.0 - 10.0 * n, np.sqrt(n**2 * 25.0 + variance))
        return enumerated(law, {"mu": (mean, 1 / precision), "size": n})

    return Problem(model, release, truth)


@problem
def difference_of_two_means():
    model = nw.Model(
        {"one": dist.Normal(0.0, 10.0), "other": dist.Normal(0.0, 10.0)},
        {"mean_one": lambda one: dist.Normal(one, 0.4), "mean_other": lambda other: dist.Normal(other, 0.5)},
    )
    noise = nw.Laplace(scale=0.8)
    release = nw.Release(mean_one=noise.released(3.1), mean_other=noise.released(1.9))

    def truth():
        def group(released, sd):
            return integrate(
                lambda mu: (laws.normal(mu, 10.0) + laws.normal_laplace(released - mu, sd, 0.8), {"mu": mu}),
                [(-60.0, 60.0)],
            )

        one, other = group(3.1, 0.4), group(1.9, 0.5)
        (a, sa), (b, sb) = one.moments["mu"], other.moments["mu"]
        grid = np.linspace(-40.0, 40.0, 40_001)
        first, second = (
            np.exp(laws.normal(grid, 10.0) + laws.normal_laplace(released - grid, sd, 0.8))
            for released, sd in ((3.1, 0.4), (1.9, 0.5))
        )
        first, second = first / first.sum(), second / second.sum()
        above = first @ (np.cumsum(second) - 0.5 * second)
        moments = {"one": (a, sa), "difference": (a - b, float(np.hypot(sa, sb))), "P(one > other)": probability(above)}
        return Truth(moments, one.log_evidence + other.log_evidence)

    views = {
        "difference": lambda posterior: posterior["one"] - posterior["other"],
        "P(one > other)": lambda posterior: posterior["one"] > posterior["other"],
    }
    return Problem(model, release, truth, views)


@problem
def mean_clipped_at_its_top():
    """The published mean was clipped to 10, and 10 is what was published."""
    model = nw.Model({"mu": dist.Normal(5.0, 5.0)}, {"mean": lambda mu: dist.Normal(mu, 1.0)})
    release = nw.Release(mean=nw.mechanisms.Clipped(nw.Gaussian(scale=2.0), high=10.0).released(10.0))

    def truth():
        return integrate(
            lambda mu: (laws.normal(mu - 5.0, 5.0) + log_ndtr((mu - 10.0) / np.sqrt(5.0)), {"mu": mu}), [(-20.0, 60.0)]
        )

    return Problem(model, release, truth)


@problem
def spread_from_a_sum_of_squares():
    """Forty normal records of mean zero: the noisy sum of their squares tells of their spread."""
    model = nw.Model({"sigma": dist.LogNormal(0.0, 1.0)}, {"squares": lambda sigma: dist.Gamma(20.0, 0.5 / sigma**2)})
    release = nw.Release(squares=nw.Gaussian(scale=15.0).released(83.0))

    def truth():
        def at(u, v):
            rate = 0.5 * np.exp(-2 * u)
            law = 20.0 * np.log(rate) - gammaln(20.0) + 20.0 * v - rate * np.exp(v)
            height = laws.normal(u, 1.0) + law + laws.normal(83.0 - np.exp(v), 15.0)
            return height, {"sigma": np.exp(u), "squares": np.exp(v)}

        # with t = v - 2u the law of the sum is the same for every sigma, so that the box is filled
        def sheared(u, t):
            return at(u, t + 2 * u)

        return integrate(sheared, [(-10.0, 3.0), (-3.0, 6.0)])

    return Problem(model, release, truth)


@problem
def two_means_with_correlated_noise():
    covariance = np.array([[1.0, 0.6], [0.6, 2.0]])
    released = np.array([2.2, -1.4])
    model = nw.Model({"mu": dist.Normal(0.0, 3.0).expand([2])}, {"means": lambda mu: dist.Normal(mu, 0.5).to_event(1)})
    release = nw.Release(means=nw.mechanisms.MultivariateGaussian(covariance).released(released))

    def truth():
        measured = covariance + 0.25 * np.eye(2)
        after = np.linalg.inv(np.eye(2) / 9.0 + np.linalg.inv(measured))
        mean = after @ np.linalg.solve(measured, released)
        total = measured + 9.0 * np.eye(2)
        evidence = -0.5 * released @ np.linalg.solve(total, released) - 0.5 * np.linalg.slogdet(2 * np.pi * total)[1]
        return Truth({f"mu[{i}]": (mean[i], float(np.sqrt(after[i, i]))) for i in range(2)}, float(evidence))

    return Problem(model, release, truth)
