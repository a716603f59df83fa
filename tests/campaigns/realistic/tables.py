"""Tables of counts: multinomial and Poisson cells, public totals, small cells withheld, the largest cell named."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import gammaln

import noisewise as nw
from realistic import laws
from realistic.problem import Problem, Truth, problem
from realistic.quadrature import Curve, enumerated, integrate, summed_out


def tables_of(n, cells):
    """Every table of n in a number of cells, one a row."""
    bars = np.array(list(itertools.combinations(range(n + cells - 1), cells - 1)))
    edges = np.column_stack([np.full(len(bars), -1), bars, np.full(len(bars), n + cells - 1)])
    return np.diff(edges, axis=1) - 1.0


def dirichlet_multinomial(table, prior):
    """Log probability of each table, and the shares' means and variances after it."""
    n, a = table.sum(axis=1), np.asarray(prior)
    law = gammaln(n + 1) - gammaln(table + 1).sum(axis=1)
    law += gammaln(a.sum()) - gammaln(a.sum() + n) + (gammaln(a + table) - gammaln(a)).sum(axis=1)
    after = a + table
    total = after.sum(axis=1, keepdims=True)
    return law, (after / total, after * (total - after) / total**2 / (total + 1))


def shares_of_cells(table, prior, log_noise, name="table"):
    law, (mean, variance) = dirichlet_multinomial(table, prior)
    cells = range(table.shape[1])
    values = {f"p[{i}]": (mean[:, i], variance[:, i]) for i in cells} | {f"{name}[{i}]": table[:, i] for i in cells}
    return enumerated(law + log_noise, values)


@problem
def table_of_four_cells():
    """A two by two table of 60, Laplace noise in every cell."""
    released = np.array([21.5, 6.1, 10.2, 26.8])
    model = nw.Model({"p": dist.Dirichlet(jnp.ones(4))}, {"table": lambda p: dist.Multinomial(60, p)})
    release = nw.Release(table=nw.Laplace(scale=2.0).released(released))

    def truth():
        table = tables_of(60, 4)
        return shares_of_cells(table, np.ones(4), laws.laplace(released - table, 2.0).sum(axis=1))

    return Problem(model, release, truth)


@problem
def table_of_three_cells_geometric():
    released = np.array([88, 47, 9])
    model = nw.Model({"p": dist.Dirichlet(jnp.array([2.0, 2.0, 1.0]))}, {"table": lambda p: dist.Multinomial(150, p)})
    release = nw.Release(table=nw.DiscreteLaplace(scale=3.0).released(released))

    def truth():
        table = tables_of(150, 3)
        noise = laws.discrete_laplace(released - table, 3.0).sum(axis=1)
        return shares_of_cells(table, [2.0, 2.0, 1.0], noise)

    return Problem(model, release, truth)


@problem
def table_with_a_public_total():
    """Noise projected so that the published cells add up to the public total."""
    released = np.array([52.4, 31.1, 16.5])
    model = nw.Model({"p": dist.Dirichlet(jnp.ones(3))}, {"table": lambda p: dist.Multinomial(100, p)})
    mechanism = nw.mechanisms.Projected(scale=4.0, matrix=np.ones((1, 3)), totals=np.array([100.0]))
    release = nw.Release(table=mechanism.released(released))

    def truth():
        table = tables_of(100, 3)
        noise = -0.5 * ((released - table) ** 2).sum(axis=1) / 16.0 - np.log(2 * np.pi * 16.0)
        return shares_of_cells(table, np.ones(3), noise)

    return Problem(model, release, truth)


@problem
def histogram_of_eight_bins():
    """Bins with shares from one parameter, a geometric decay; 200 records, discrete Gaussian noise."""
    released = np.array([71, 44, 30, 20, 11, 12, 3, 2])
    bins = np.arange(8)
    model = nw.Model(
        {"decay": dist.Beta(2.0, 2.0)},
        {"histogram": lambda decay: dist.Multinomial(200, decay**bins / (decay**bins).sum())},
    )
    release = nw.Release(histogram=nw.DiscreteGaussian(scale=4.0).released(released))

    def truth():
        k = np.arange(201.0)

        def at(u):
            decay = laws.expit(u)
            log_p = np.outer(np.log(decay), bins)
            log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
            height = np.empty(len(u))
            for row in range(len(u)):
                # the sum over tables of 200 is a convolution of the bins' terms
                found, lift = None, 0.0
                for bin_ in bins:
                    term = k * log_p[row, bin_] - gammaln(k + 1) + laws.discrete_normal(released[bin_] - k, 4.0)
                    lift += term.max()
                    term = np.exp(term - term.max())
                    found = term if found is None else np.convolve(found, term)[:201]
                    lift += np.log(found.max())
                    found = found / found.max()
                height[row] = np.log(max(found[200], 1e-300)) + lift
            return laws.logit_beta(u, 2.0, 2.0) + height + gammaln(201.0), {"decay": decay}

        curve = Curve(lambda u: at(u)[0][:, None], -4.0, 5.0, 1201)
        return integrate(lambda u: (curve(u)[:, 0], {"decay": laws.expit(u)}), [(-4.0, 5.0)])

    return Problem(model, release, truth)


@problem
def histogram_of_a_hundred_bins():
    """Eight hundred people in a hundred bins, most of them empty: sparse shares, discrete Laplace noise."""
    bins, total, sparse, scale = 100, 800, 0.1, 2.8
    rng = np.random.default_rng(9)
    counts = rng.multinomial(total, rng.dirichlet(np.full(bins, sparse)))
    chance = 1.0 - np.exp(-1.0 / scale)
    released = counts + rng.geometric(chance, bins) - rng.geometric(chance, bins)
    model = nw.Model(
        {"shares": dist.Dirichlet(np.full(bins, sparse))},
        {"people": lambda shares: dist.Multinomial(total, shares)},
    )
    release = nw.Release(people=nw.DiscreteLaplace(scale=scale).released(released))
    order = np.argsort(released, kind="stable")
    watched = [int(order[place]) for place in (0, bins // 2, -12, -1)]

    def truth():
        k = np.arange(total + 1.0)
        terms = (
            gammaln(k + sparse) - gammaln(sparse) - gammaln(k + 1) + laws.discrete_laplace(released[:, None] - k, scale)
        )
        tops = terms.max(axis=1)
        moments = {}
        for one in watched:
            others, lift = np.ones(1), 0.0
            for other in range(bins):
                if other != one:
                    others = np.convolve(others, np.exp(terms[other] - tops[other]))[: total + 1]
                    lift += tops[other] + np.log(others.max())
                    others = others / others.max()
            with np.errstate(divide="ignore"):
                height = terms[one] + np.log(others[::-1]) + lift
            height += gammaln(bins * sparse) + gammaln(total + 1) - gammaln(total + bins * sparse)
            first, rest = k + sparse, total - k + (bins - 1) * sparse
            mean = first / (first + rest)
            spread = mean * (1.0 - mean) / (first + rest + 1.0)
            found = enumerated(height, {f"people[{one}]": k, f"shares[{one}]": (mean, spread)})
            moments |= found.moments
        return Truth(moments, found.log_evidence)

    return Problem(model, release, truth)


@problem
def table_of_twelve_poisson_cells():
    """Twelve cells with rates of their own."""
    released = np.array([[3.2, 15.9, 41.0, 8.8], [0.4, 7.1, 22.6, 12.5], [-1.7, 2.2, 18.3, 30.9]])
    model = nw.Model({"rate": dist.Gamma(2.0, 0.1).expand([3, 4])}, {"cells": lambda rate: dist.Poisson(rate)})
    release = nw.Release(cells=nw.Laplace(scale=2.0).released(released))

    def truth():
        k = np.arange(500.0)
        moments, evidence = {}, 0.0
        for i, j in np.ndindex(3, 4):
            values = {"rate": ((2.0 + k) / 1.1, (2.0 + k) / 1.1**2), "cells": k}
            found = enumerated(laws.negative_binomial(k, 20.0, 2.0) + laws.laplace(released[i, j] - k, 2.0), values)
            moments |= {f"{name}[{i}, {j}]": pair for name, pair in found.moments.items()}
            evidence += found.log_evidence
        kept = {label: pair for label, pair in moments.items() if label.endswith(("[0, 0]", "[1, 2]", "[2, 0]"))}
        return Truth(kept, evidence)

    return Problem(model, release, truth)


@problem
def table_log_linear():
    """Two by two Poisson cells, row and column effects, no interaction."""
    released = np.array([[34, 61], [15, 44]])
    row, column = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    model = nw.Model(
        {"level": dist.Normal(3.0, 1.0), "row": dist.Normal(0.0, 1.0), "column": dist.Normal(0.0, 1.0)},
        {"cells": lambda level, row, column, r=row, c=column: dist.Poisson(jnp.exp(level + row * r + column * c))},
    )
    release = nw.Release(cells=nw.DiscreteLaplace(scale=4.0).released(released))

    def truth():
        k = np.arange(800.0)

        def table(u):
            law = laws.poisson_log_rate(k, u[:, None])
            noise = [laws.discrete_laplace(r - k, 4.0) for r in released.ravel()]
            return np.stack([summed_out(law, term, k)[0] for term in noise], axis=1)

        curve = Curve(table, -25.0, 6.4)

        def at(a, b, c):
            u = np.stack([a, a + c, a + b, a + b + c])
            height = laws.normal(a - 3.0, 1.0) + laws.normal(b, 1.0) + laws.normal(c, 1.0)
            beyond = (u > 6.4).any(axis=0) | (u < -25.0).any(axis=0)
            for cell in range(4):
                height = height + curve(np.clip(u[cell], -25.0, 6.4))[:, cell]
            return np.where(beyond, -np.inf, height), {"level": a, "row": b, "column": c}

        return integrate(at, [(-6.0, 8.0), (-9.0, 9.0), (-9.0, 9.0)])

    return Problem(model, release, truth)


@problem
def table_with_small_cells_withheld():
    """Nine cells around a common level; those whose noisy count is below 10 are not shown."""
    shown = {0: 27, 2: 14, 3: 19, 5: 33, 8: 11}
    released = np.array([shown.get(cell, np.nan) for cell in range(9)])
    model = nw.Model(
        {"mean": dist.Gamma(2.0, 0.1), "concentration": dist.Gamma(3.0, 1.0)},
        {"cells": lambda mean, concentration: dist.NegativeBinomial2(mean, concentration).expand([9])},
    )
    mechanism = nw.mechanisms.Thresholded(nw.DiscreteLaplace(scale=2.0), threshold=10)
    release = nw.Release(cells=mechanism.released(released))

    def truth():
        k = np.arange(600.0)
        noise = [
            laws.discrete_laplace(shown[cell] - k, 2.0) if cell in shown else laws.discrete_laplace_below(10 - k, 2.0)
            for cell in range(9)
        ]

        def at(u, v):
            law = np.exp(laws.negative_binomial(k, np.exp(u)[:, None], np.exp(v)[:, None]))
            likelihood = np.log(law @ np.exp(noise).T).sum(axis=1)
            prior = laws.log_gamma(u, 2.0, 0.1) + laws.log_gamma(v, 3.0, 1.0)
            return prior + likelihood, {"mean": np.exp(u), "concentration": np.exp(v)}

        return integrate(at, [(-1.0, 6.0), (-7.0, 4.0)], at_once=2**12)

    return Problem(model, release, truth)


@problem
def candidate_chosen_by_exponential_mechanism():
    """Only the name of the most popular of three was published."""
    model = nw.Model({"share": dist.Beta(2.0, 2.0).expand([3])}, {"votes": lambda share: dist.Binomial(30, share)})
    release = nw.Release(votes=nw.ExponentialMechanism(epsilon=0.5, sensitivity=1.0).released(1))

    def truth():
        k = np.stack(np.meshgrid(*[np.arange(31.0)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
        law = laws.beta_binomial(k, 30, 2.0, 2.0).sum(axis=1)
        chosen = k[:, 1] / 4.0 - np.log(np.exp(k / 4.0).sum(axis=1))
        mean = (2 + k) / 34
        variance = mean * (1 - mean) / 35
        values = {f"share[{i}]": (mean[:, i], variance[:, i]) for i in range(3)} | {"votes[1]": k[:, 1]}
        return enumerated(law + chosen, values)

    return Problem(model, release, truth)


@problem
def two_counts_with_joint_noise():
    """K-norm noise over the largest difference, on two counts at once."""
    model = nw.Model({"rate": dist.Gamma(3.0, 0.2).expand([2])}, {"counts": lambda rate: dist.Poisson(rate)})
    mechanism = nw.mechanisms.KNorm("linf", scale=3.0, dimension=2)
    release = nw.Release(counts=mechanism.released(np.array([22.4, 8.1])))

    def truth():
        k = np.arange(250.0)
        one, other = np.meshgrid(k, k, indexing="ij")
        far = np.maximum(abs(22.4 - one), abs(8.1 - other))
        noise = -far / 3.0 - np.log(2 * 4 * 3.0**2)
        law = laws.negative_binomial(k, 15.0, 3.0)
        values = {
            "rate[0]": ((3 + one) / 1.2, (3 + one) / 1.2**2),
            "rate[1]": ((3 + other) / 1.2, (3 + other) / 1.2**2),
            "counts[0]": one,
        }
        return enumerated(law[:, None] + law + noise, values)

    return Problem(model, release, truth)
