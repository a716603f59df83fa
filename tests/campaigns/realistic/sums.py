"""Sums of clamped records, with their number known and noisy; and an outbreak that can only be simulated."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import gammaln, log_ndtr

import noisewise as nw
from realistic import laws
from realistic.problem import Problem, problem
from realistic.quadrature import SPREAD, integrate, stretched, summed_out


@problem
def clamped_sum_of_thirty():
    total = nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: jnp.clip(x, -2.0, 2.0), n=30)
    model = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"total": total})
    release = nw.Release(total=nw.Laplace(scale=4.0).released(11.5))

    def truth():
        sums = laws.ClampedSum(-2.0, 2.0, lambda t: 1 / (1 + 16.0 * t**2), 60.0, 6000)

        def at(mu):
            record = laws.clamped_normal(sums, mu, np.ones_like(mu), -2.0, 2.0)
            return laws.normal(mu, 1.0) + sums.log_density(record, 30, 11.5), {"mu": mu}

        return integrate(at, [(-8.0, 8.0)], first=401, at_once=200)

    return Problem(model, release, truth)


@problem
def clamped_sum_of_a_noisy_number():
    total = nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: jnp.clip(x, -2.0, 2.0), n="size")
    model = nw.Model(
        {"mu": dist.Normal(0.0, 1.0), "size": dist.Poisson(60.0)},
        {"total": total, "records": lambda size: dist.Delta(size)},
    )
    records = nw.DiscreteLaplace(scale=3.0).released(55)
    release = nw.Release(total=nw.Gaussian(scale=5.0).released(24.0), records=records)

    def truth():
        sums = laws.ClampedSum(-2.0, 2.0, lambda t: np.exp(-12.5 * t**2), 2.0, 400)
        n = np.arange(15, 131)
        law = laws.poisson(n, 60.0) + laws.discrete_laplace(55 - n, 3.0)

        def at(mu):
            record = laws.clamped_normal(sums, mu, np.ones_like(mu), -2.0, 2.0)
            power, given = record ** (n[0] - 1), []
            for _ in n:
                power = power * record
                given.append(sums.log_density(power, 1, 24.0))
            given = np.stack(given, axis=1)
            height, size = summed_out(law + given, 0.0, n)
            return laws.normal(mu, 1.0) + height, {"mu": mu, "size": size}

        return integrate(at, [(-8.0, 8.0)], first=161, at_once=200)

    return Problem(model, release, truth)


@problem
def clamped_incomes():
    """Fifty incomes, clamped to [0, 100], with location and spread unknown: one noisy sum."""
    total = nw.Total(
        record={"income": lambda location, spread: dist.LogNormal(location, spread)},
        contribution=lambda income: jnp.clip(income, 0.0, 100.0),
        n=50,
    )
    model = nw.Model({"location": dist.Normal(3.0, 1.0), "spread": dist.HalfNormal(1.0)}, {"total": total})
    release = nw.Release(total=nw.Gaussian(scale=150.0).released(1480.0))

    def truth():
        # standardised records: smooth below the point where clamping begins, constant above it
        nodes, weights = np.polynomial.legendre.leggauss(48)
        t = (np.arange(160) + 0.5) * (8.5 / 150.0 / 160)

        def at(location, w):
            u, jacobian = stretched(w)
            spread = np.exp(u)
            edge = np.clip((np.log(100.0) - location) / spread, -9.0, 9.0)
            z = -9.0 + (edge[:, None] + 9.0) * (nodes + 1) / 2
            share = np.exp(laws.normal(z, 1.0)) * weights * (edge[:, None] + 9.0) / 2
            income = np.exp(location[:, None] + spread[:, None] * z)
            wave = np.einsum("gk,gkt->gt", share, np.exp(1j * income[:, :, None] * t))
            wave += np.exp(log_ndtr(-edge))[:, None] * np.exp(100j * t)
            turned = wave**50 * np.exp(-0.5 * (150.0 * t) ** 2 - 1480j * t)
            likelihood = np.log(np.maximum(turned.real.sum(axis=1) * (t[1] - t[0]) / np.pi, 1e-300))
            prior = laws.normal(location - 3.0, 1.0) + laws.log_half_normal(u, 1.0)
            return prior + jacobian + likelihood, {"location": location, "spread": spread}

        return integrate(at, [(-6.0, 12.0), SPREAD], first=41, tolerance=1e-4, at_once=2**9)

    return Problem(model, release, truth)


@problem
def outbreak_simulated():
    """A branching process by simulation only; the number of cases has Borel's law."""

    def cases(rng, infectiousness):
        number = new = 1
        while new:
            new = rng.poisson(infectiousness * new)
            number += new
        return number

    model = nw.Model({"infectiousness": dist.Beta(4.0, 4.0)}, {"cases": nw.Simulator(cases)})
    release = nw.Release(cases=nw.Laplace(scale=2.0).released(9.5))

    def truth():
        n = np.arange(1.0, 400.0)

        def at(u):
            rate = laws.expit(u)[:, None]
            law = -rate * n + (n - 1) * np.log(rate * n) - gammaln(n + 1)
            height, number = summed_out(law, laws.laplace(9.5 - n, 2.0), n)
            return laws.logit_beta(u, 4.0, 4.0) + height, {"infectiousness": rate[:, 0], "cases": number}

        return integrate(at, [(-20.0, 20.0)])

    return Problem(model, release, truth)
