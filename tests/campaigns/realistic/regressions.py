"""Regressions: counties and days with noisy counts, lines through noisy rows, cross-products."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.interpolate import RectBivariateSpline

import noisewise as nw
from realistic import laws
from realistic.problem import Problem, Truth, problem
from realistic.quadrature import Curve, integrate, summed_out


@problem
def counties_poisson_regression():
    """Thirty counties' cases with populations as offset and one covariate; geometric noise."""
    rng = np.random.default_rng(21)
    people, x = rng.uniform(0.3, 4.0, 30).round(2), rng.normal(size=30).round(2)
    released = rng.poisson(people * np.exp(2.0 + 0.4 * x)) + rng.geometric(0.3, 30) - rng.geometric(0.3, 30)
    scale = float(-1 / np.log(0.7))
    model = nw.Model(
        {"intercept": dist.Normal(0.0, 3.0), "slope": dist.Normal(0.0, 1.0)},
        {"cases": lambda intercept, slope: dist.Poisson(people * jnp.exp(intercept + slope * x))},
    )
    release = nw.Release(cases=nw.DiscreteLaplace(scale=scale).released(released))

    def truth():
        k = np.arange(400.0)

        def table(u):
            law = laws.poisson_log_rate(k, u[:, None])
            return np.stack([summed_out(law, laws.discrete_laplace(r - k, scale), k)[0] for r in released], axis=1)

        curve = Curve(table, -12.0, 5.6, 1201)

        def at(a, b):
            u = np.log(people) + a[:, None] + b[:, None] * x
            height = laws.normal(a, 3.0) + laws.normal(b, 1.0) + curve.own(u).sum(axis=1)
            return np.where((u > 5.6).any(axis=1), -np.inf, height), {"intercept": a, "slope": b}

        return integrate(at, [(0.0, 3.5), (-1.0, 1.6)], first=81)

    return Problem(model, release, truth)


def dispersed(releases, u_range, v_range):
    """Log likelihood of (log mean, log concentration) of negative binomial counts, by bicubic interpolation.

    `releases` holds for each unit the counts that matter and the log density of its release at them.
    """
    u, v = np.linspace(*u_range, 241), np.linspace(*v_range, 121)
    splines = []
    for k, noise in releases:
        table = np.empty((len(u), len(v)))
        for column, one in enumerate(np.exp(v)):
            law = laws.negative_binomial(k, np.exp(u)[:, None], one)
            table[:, column] = summed_out(law, noise, k)[0]
        splines.append(RectBivariateSpline(u, v, table))
    return splines


@problem
def counties_overdispersed_regression():
    """Twelve counties, negative binomial with its concentration unknown."""
    x = np.linspace(-1.5, 1.5, 12)
    released = np.array([3, 9, 4, 12, 6, 18, 9, 30, 14, 22, 47, 28])
    model = nw.Model(
        {"intercept": dist.Normal(2.0, 1.5), "slope": dist.Normal(0.0, 1.0), "concentration": dist.Gamma(3.0, 0.5)},
        {
            "cases": lambda intercept, slope, concentration: dist.NegativeBinomial2(
                jnp.exp(intercept + slope * x), concentration
            )
        },
    )
    release = nw.Release(cases=nw.Laplace(scale=2.0).released(released + 0.4))

    def truth():
        k = np.arange(200.0)
        releases = [(k, laws.laplace(r + 0.4 - k, 2.0)) for r in released]
        splines = dispersed(releases, (-6.0, 9.0), (-9.0, 5.0))

        def at(a, b, v):
            u = a[:, None] + b[:, None] * x
            height = laws.normal(a - 2.0, 1.5) + laws.normal(b, 1.0) + laws.log_gamma(v, 3.0, 0.5)
            height += sum(spline.ev(np.clip(u[:, i], -6.0, 9.0), v) for i, spline in enumerate(splines))
            inside = (u > -6.0).all(axis=1) & (u < 9.0).all(axis=1)
            values = {"intercept": a, "slope": b, "concentration": np.exp(v)}
            return np.where(inside, height, -np.inf), values

        return integrate(at, [(-0.5, 6.0), (-2.5, 4.0), (-8.9, 4.9)], first=31, tolerance=1e-5)

    return Problem(model, release, truth)


DAYS = np.arange(1.0, 15.0)
SHOWN = {0: 7782, 1: 1661, 2: 748, 3: 510}


@problem
def wikimedia_fourteen_days():
    """Views of "2021 Mansfield earthquake" (English Wikipedia, from Australia), 2021-09-22 to 2021-10-05.

    Published day by day by the Wikimedia Foundation with two-sided geometric noise of scale 30, a day being shown if
    its noisy count is at least 450; ten of the fourteen were not. Wikimedia Foundation, differentially private page
    views by country and project (open data, CC0).
    """
    released = np.array([SHOWN.get(day, np.nan) for day in range(14)])
    model = nw.Model(
        {
            "level": dist.Normal(8.0, 2.0),
            "decay": dist.Normal(1.0, 1.0),
            "concentration": dist.Gamma(2.0, 0.2),
        },
        {
            "views": lambda level, decay, concentration: dist.NegativeBinomial2(
                jnp.exp(level - decay * jnp.log(DAYS)), concentration
            )
        },
    )
    mechanism = nw.mechanisms.Thresholded(nw.DiscreteLaplace(scale=30.0), threshold=450)
    release = nw.Release(views=mechanism.released(released))

    def truth():
        releases = []
        for day in range(14):
            if day in SHOWN:
                k = np.arange(max(SHOWN[day] - 1100.0, 0.0), SHOWN[day] + 1101.0)
                releases.append((k, laws.discrete_laplace(SHOWN[day] - k, 30.0)))
        k = np.arange(1600.0)
        splines = dispersed([*releases, (k, laws.discrete_laplace_below(450 - k, 30.0))], (-6.0, 18.0), (-7.0, 5.5))

        def at(level, decay, v):
            u = level[:, None] - decay[:, None] * np.log(DAYS)
            prior = laws.normal(level - 8.0, 2.0) + laws.normal(decay - 1.0, 1.0) + laws.log_gamma(v, 2.0, 0.2)
            kept = np.clip(u, -6.0, 18.0)
            parts = [splines[min(day, 4)].ev(kept[:, day], v) for day in range(14)]
            values = {"level": level, "decay": decay, "concentration": np.exp(v)}
            return np.where((u < 18.0).all(axis=1), prior + sum(parts), -np.inf), values

        # halving the mesh squares the trapezoidal rule's error: 2e-3 between two meshes leaves 1e-5 in the finer one
        return integrate(at, [(3.0, 17.0), (-3.0, 6.0), (-6.9, 5.4)], first=25, tolerance=2e-3)

    return Problem(model, release, truth)


def linear(design, released, prior_sd, noise_sd):
    """Normal linear model with known spread: posterior and evidence in closed form."""
    precision = design.T @ design / noise_sd**2 + np.eye(design.shape[1]) / prior_sd**2
    after = np.linalg.inv(precision)
    mean = after @ design.T @ released / noise_sd**2
    total = noise_sd**2 * np.eye(len(released)) + prior_sd**2 * design @ design.T
    evidence = -0.5 * released @ np.linalg.solve(total, released) - 0.5 * np.linalg.slogdet(2 * np.pi * total)[1]
    return mean, after, float(evidence)


@problem
def line_of_twenty_coefficients():
    """Forty noisy rows, twenty coefficients, everything normal."""
    rng = np.random.default_rng(31)
    design = rng.normal(size=(40, 20)).round(3)
    released = (design @ rng.normal(size=20) + 0.8 * rng.normal(size=40) + 0.6 * rng.normal(size=40)).round(3)
    model = nw.Model({"beta": dist.Normal(0.0, 1.5).expand([20])}, {"y": lambda beta: dist.Normal(design @ beta, 0.8)})
    release = nw.Release(y=nw.Gaussian(scale=0.6).released(released))

    def truth():
        mean, after, evidence = linear(design, released, 1.5, 1.0)
        return Truth({f"beta[{i}]": (float(mean[i]), float(np.sqrt(after[i, i]))) for i in (0, 7, 19)}, evidence)

    return Problem(model, release, truth)


@problem
def line_through_noisy_rows():
    """Twenty rows with Laplace noise; intercept, slope and spread unknown."""
    rng = np.random.default_rng(32)
    x = np.linspace(-2.0, 2.0, 20)
    released = (1.0 + 0.7 * x + rng.normal(size=20) + 0.5 * rng.laplace(size=20)).round(3)
    model = nw.Model(
        {"intercept": dist.Normal(0.0, 5.0), "slope": dist.Normal(0.0, 5.0), "sigma": dist.LogNormal(0.0, 0.5)},
        {"y": lambda intercept, slope, sigma: dist.Normal(intercept + slope * x, sigma)},
    )
    release = nw.Release(y=nw.Laplace(scale=0.5).released(released))

    def truth():
        def at(a, b, u):
            residual = released - a[:, None] - b[:, None] * x
            likelihood = laws.normal_laplace(residual, np.exp(u)[:, None], 0.5).sum(axis=1)
            prior = laws.normal(a, 5.0) + laws.normal(b, 5.0) + laws.normal(u, 0.5)
            return prior + likelihood, {"intercept": a, "slope": b, "sigma": np.exp(u)}

        return integrate(at, [(-3.0, 5.0), (-3.0, 4.5), (-4.3, 3.0)], first=31, tolerance=1e-5)

    return Problem(model, release, truth)


@problem
def line_from_cross_products():
    """The covariates are public, X'y and y'y are not: two coefficients and the spread from three noisy numbers."""
    rng = np.random.default_rng(33)
    n = 100
    design = np.column_stack([np.ones(n), rng.uniform(-1.0, 1.0, n).round(2)])
    gram = design.T @ design
    root = np.linalg.cholesky(gram)
    released, noise = np.array([88.0, 51.0]), 6.0
    model = nw.Model(
        {"beta": dist.Normal(0.0, 3.0).expand([2]), "sigma": dist.LogNormal(0.0, 0.5)},
        {"products": lambda beta, sigma: dist.MultivariateNormal(gram @ beta, scale_tril=sigma * root)},
    )
    release = nw.Release(products=nw.Gaussian(scale=noise).released(released))

    def truth():
        def given(sigma):
            measured = sigma**2 * gram + noise**2 * np.eye(2)
            after = np.linalg.inv(np.eye(2) / 9.0 + gram @ np.linalg.solve(measured, gram))
            mean = after @ gram @ np.linalg.solve(measured, released)
            total = measured + 9.0 * gram @ gram
            height = -0.5 * released @ np.linalg.solve(total, released) - 0.5 * np.linalg.slogdet(2 * np.pi * total)[1]
            return height, *mean, *np.diag(after)

        def at(u):
            height, first, second, v, w = np.array([given(one) for one in np.exp(u)]).T
            return laws.normal(u, 0.5) + height, {"beta[0]": (first, v), "beta[1]": (second, w), "sigma": np.exp(u)}

        return integrate(at, [(-5.0, 5.0)], first=401)

    return Problem(model, release, truth)
