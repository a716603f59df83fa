"""Problems whose exact answers are known by closed form, enumeration or quadrature: the targets of every sampler."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import noisewise as nw
from noisewise.paper import lalonde

REFERENCE = Path(__file__).parents[1] / "reference"


@dataclass(frozen=True)
class Target:
    """A model with a release, the exact posterior means and variances by name, and the exact log evidence."""

    name: str
    make: Callable[[], tuple[nw.Model, nw.Release]]
    solve: Callable[[], dict]
    draws: int = 40_000


# Privatised count, the paper's example ------------------------------------------------------------------------


def new_count_model(alpha=25.0):
    """A model of its own, for tests that change what programs are made of."""
    return nw.Model(
        prior={"theta": dist.Gamma(alpha, 1.0)},
        statistics={"count": lambda theta: dist.Poisson(theta)},
    )


_count_model = cache(new_count_model)


def count_model(alpha=25.0):
    """One model for all tests, so that its programs are compiled once."""
    return _count_model(float(alpha))


def count_release():
    return nw.Release(count=nw.Laplace(epsilon=0.2, sensitivity=1.0).released(37.4))


def _count_solution(alpha):
    entry = json.loads((REFERENCE / "count.json").read_text())["by_alpha"][str(alpha)]
    # the count given theta's mixture weights: mean of s under the same mixture
    s = np.arange(1001)
    log_weight = stats.nbinom.logpmf(s, alpha, 0.5) - np.abs(37.4 - s) / 5.0
    weight = np.exp(log_weight - special.logsumexp(log_weight))
    mean = weight @ s
    return {
        "theta": (entry["mean"], entry["sd"] ** 2),
        "count": (mean, weight @ (s - mean) ** 2),
        "log_evidence": entry["log_evidence"],
    }


# A count known by a declared range alone: enumeration over the count ------------------------------------------------


def _declared_problem():
    return count_model(), nw.Release(count=nw.Within(low=20, high=30).released(True))


def _declared_solution():
    s = np.arange(20, 31)
    return _mixture(stats.nbinom.logpmf(s, 25.0, 0.5), s, (25.0 + s) / 2.0, (25.0 + s) / 4.0, "theta", "count")


# Lalonde: four statistics that share parameters; the paper's own model --------------------------------------------

lalonde_model, lalonde_release = cache(lalonde.groups_model), lalonde.published_statistics


# Beta-Binomial with geometric noise: enumeration over the count ---------------------------------------------------


def _beta_binomial_solution(n=30, a=2.0, b=3.0, scale=2.0, released=19):
    s = np.arange(n + 1)
    log_joint = stats.betabinom.logpmf(s, n, a, b) + _log_discrete_laplace(released - s, scale)
    return _mixture(log_joint, s, (a + s) / (a + b + n), _beta_variance(a + s, b + n - s), "p", "yes")


def _beta_binomial_problem():
    model = nw.Model(prior={"p": dist.Beta(2.0, 3.0)}, statistics={"yes": lambda p: dist.Binomial(30, p)})
    return model, nw.Release(yes=nw.DiscreteLaplace(scale=2.0).released(19))


# A statistic of a statistic: yes answers among a Poisson number of respondents ---------------------------------------


def _chain_problem(release_n=True):
    model = nw.Model(
        prior={"theta": dist.Gamma(5.0, 1.0), "p": dist.Beta(2.0, 3.0)},
        statistics={
            "n": lambda theta: dist.Poisson(theta),
            "yes": lambda n, p: dist.Binomial(n, p),
        },
    )
    released = {"yes": nw.DiscreteLaplace(scale=1.5).released(6)}
    if release_n:
        released["n"] = nw.Laplace(scale=2.0).released(11.3)
    return model, nw.Release(released)


def _chain_solution(release_n=True):
    n, yes = np.meshgrid(np.arange(120), np.arange(120), indexing="ij")
    with np.errstate(divide="ignore", invalid="ignore"):
        log_joint = stats.nbinom.logpmf(n, 5.0, 0.5) + stats.betabinom.logpmf(yes, n, 2.0, 3.0)
    log_joint = np.where(yes <= n, log_joint, -np.inf) + _log_discrete_laplace(6 - yes, 1.5)
    if release_n:
        log_joint = log_joint - np.abs(11.3 - n) / 2.0 - np.log(4.0)
    weight, log_evidence = _normalise(log_joint)
    conditional = {
        "theta": ((5.0 + n) / 2.0, (5.0 + n) / 4.0),
        "p": ((2.0 + yes) / (5.0 + n), _beta_variance(2.0 + yes, 3.0 + n - yes)),
        "n": (n, 0.0 * n),
        "yes": (yes, 0.0 * n),
    }
    return _moments(weight, conditional) | {"log_evidence": log_evidence}


# A two-level hierarchy: quadrature over both levels ------------------------------------------------------------------


def _hierarchy_problem():
    model = nw.Model(
        prior={"level": dist.Gamma(3.0, 1.0), "rate": lambda level: dist.Gamma(level, 0.5)},
        statistics={"count": lambda rate: dist.Poisson(rate)},
    )
    return model, nw.Release(count=nw.Laplace(scale=1.5).released(12.6))


def _hierarchy_solution():
    level = np.linspace(1e-3, 25.0, 1501)[:, None]
    s = np.arange(0, 150)[None, :]
    # rate | level, s is Gamma(level + s, 1.5); the count's marginal is negative binomial: no grid over rate
    log_joint = (
        stats.gamma.logpdf(level, 3.0) + stats.nbinom.logpmf(s, level, 1.0 / 3.0) - np.abs(12.6 - s) / 1.5 - np.log(3.0)
    )
    weight, log_sum = _normalise(log_joint)
    shape = level + s
    conditional = {
        "level": (level + 0.0 * s, 0.0 * shape),
        "rate": (shape / 1.5, shape / 1.5**2),
        "count": (s + 0.0 * shape, 0.0 * shape),
    }
    step = float(level[1, 0] - level[0, 0])
    return _moments(weight, conditional) | {"log_evidence": log_sum + np.log(step)}


# Totals ------------------------------------------------------------------------------------------------------------


def _bits_problem(n=12):
    """Yes answers counted over Bernoulli records: the same posterior as a Binomial statistic."""
    model = nw.Model(
        prior={"p": dist.Beta(2.0, 3.0)},
        statistics={"yes": nw.Total({"bit": lambda p: dist.Bernoulli(p)}, lambda bit: bit, n)},
    )
    return model, nw.Release(yes=nw.DiscreteLaplace(scale=2.0).released(9))


def _bits_solution(n=12):
    return _beta_binomial_solution(n=n, released=9)


def _clamped_problem():
    """Two sums over a random number of records with two fields; the second clamped to [0, 2]."""
    model = nw.Model(
        prior={"p": dist.Beta(2.0, 3.0), "size": dist.Poisson(6.0)},
        statistics={
            "sums": nw.Total(
                record={
                    "flag": lambda p: dist.Bernoulli(p),
                    "amount": lambda flag: dist.Categorical(jnp.where(flag == 1, (jnp.arange(4) + 1) / 10, 0.25)),
                },
                contribution=lambda flag, amount: jnp.stack([flag, jnp.clip(amount, 0, 2)]),
                n="size",
            )
        },
    )
    return model, nw.Release(sums=nw.DiscreteLaplace(scale=np.array([1.5, 2.0])).released([4, 9]))


@cache
def _clamped_solution():
    """Enumerate (size, flags, clamped sum): given the flags, amounts are independent with known laws."""
    one = np.array([0.1, 0.2, 0.7])  # amount 0, 1, >= 2 with the flag set
    zero = np.array([0.25, 0.25, 0.5])
    top = 40
    log_weight, sums = [], []
    conditional = {"p": [], "p2": [], "size": [], "flags": []}
    for m in range(top):
        for k in range(m + 1):
            law = np.convolve(_power(one, k), _power(zero, m - k))
            total = np.arange(len(law))
            with np.errstate(divide="ignore"):
                part = (
                    stats.poisson.logpmf(m, 6.0)
                    + (stats.betabinom.logpmf(k, m, 2.0, 3.0) if m else 0.0)
                    + np.log(law)
                    + _log_discrete_laplace(4 - k, 1.5)
                    + _log_discrete_laplace(9 - total, 2.0)
                )
            log_weight.append(part)
            sums.append(total)
            spread = _beta_variance(2.0 + k, 3.0 + m - k)
            values = {"p": (2.0 + k) / (5.0 + m), "p2": spread, "size": m, "flags": k}
            for key, value in values.items():
                conditional[key].append(np.full(len(law), value))
    joined = {key: np.concatenate(parts) for key, parts in conditional.items()}
    weight, log_evidence = _normalise(np.concatenate(log_weight))
    total = np.concatenate(sums)
    still = {"size": joined["size"], "flags": joined["flags"], "total": total}
    found = _moments(weight, {"p": (joined["p"], joined["p2"])} | {key: (x, 0 * x) for key, x in still.items()})
    mean = np.array([found["flags"][0], found["total"][0]])
    variance = np.array([found["flags"][1], found["total"][1]])
    return {"p": found["p"], "size": found["size"], "sums": (mean, variance), "log_evidence": log_evidence}


def _normal_total_problem():
    """A sum over enough records to need several chunks; everything is normal."""
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 1.0)},
        statistics={"total": nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: x, n=700)},
    )
    return model, nw.Release(total=nw.Gaussian(scale=300.0).released(400.0))


def _normal_total_solution():
    prior = np.array([[1.0, 700.0], [700.0, 700.0**2 + 700.0]])  # covariance of (mu, total)
    marginal = prior[1, 1] + 300.0**2
    gain = prior[:, 1] / marginal
    mean, covariance = gain * 400.0, prior - np.outer(gain, prior[1])
    log_evidence = float(stats.norm.logpdf(400.0, 0.0, np.sqrt(marginal)))
    return {
        "mu": (mean[0], covariance[0, 0]),
        "total": (mean[1], covariance[1, 1]),
        "log_evidence": log_evidence,
    }


# Vectors: Dirichlet-multinomial with discrete Gaussian noise ---------------------------------------------------------


def _table_problem():
    model = nw.Model(
        prior={"share": dist.Dirichlet(np.array([1.0, 2.0, 3.0]))},
        statistics={"cells": lambda share: dist.Multinomial(15, share)},
    )
    return model, nw.Release(cells=nw.DiscreteGaussian(scale=np.array([1.0, 1.5, 2.0])).released([7, 2, 5]))


def _table_solution():
    alpha = np.array([1.0, 2.0, 3.0])
    cells = np.array([(i, j, 15 - i - j) for i in range(16) for j in range(16 - i)])
    log_joint = stats.dirichlet_multinomial.logpmf(cells, alpha, 15)
    for column, (scale, released) in enumerate(zip((1.0, 1.5, 2.0), (7, 2, 5), strict=True)):
        support = np.arange(-200, 201)
        log_z = special.logsumexp(-0.5 * (support / scale) ** 2)
        log_joint = log_joint - 0.5 * ((released - cells[:, column]) / scale) ** 2 - log_z
    weight, log_evidence = _normalise(log_joint)
    shape = alpha + cells
    total = shape.sum(axis=1, keepdims=True)
    variance = shape * (total - shape) / (total**2 * (total + 1))
    found = _moments(weight, {"share": (shape / total, variance), "cells": (cells, 0 * cells)})
    return found | {"log_evidence": log_evidence}


# A simulator, and a mechanism that reads a latent scale ---------------------------------------------------------------


def _simulator_problem():
    model = nw.Model(
        prior={"p": dist.Beta(2.0, 3.0)},
        statistics={"yes": nw.Simulator(lambda rng, p: rng.binomial(30, p), batched=True)},
    )
    return model, nw.Release(yes=nw.DiscreteLaplace(scale=2.0).released(19))


# Shared arithmetic --------------------------------------------------------------------------------------------------


def _log_discrete_laplace(z, scale):
    return np.log(np.tanh(0.5 / scale)) - np.abs(z) / scale


def _beta_variance(a, b):
    return a * b / ((a + b) ** 2 * (a + b + 1))


def _power(law, times):
    result = np.array([1.0])
    for _ in range(times):
        result = np.convolve(result, law)
    return result


def _normalise(log_joint):
    log_evidence = float(special.logsumexp(log_joint))
    return np.exp(log_joint - log_evidence), log_evidence


def _moments(weight, conditional):
    """Mean and variance of a mixture: {name: (conditional mean, conditional variance)} over the weights' axes."""
    found = {}
    axes = tuple(range(weight.ndim))
    for name, (mean, variance) in conditional.items():
        w = weight.reshape(weight.shape + (1,) * (np.ndim(mean) - weight.ndim))
        centre = np.sum(w * mean, axis=axes)
        found[name] = (centre, np.sum(w * (variance + (mean - centre) ** 2), axis=axes))
    return found


def _mixture(log_joint, s, mean, variance, parameter, statistic):
    weight, log_evidence = _normalise(log_joint)
    found = _moments(weight, {parameter: (mean, variance), statistic: (s, 0 * s)})
    return found | {"log_evidence": log_evidence}


TARGETS = [
    *(
        Target(
            f"count-{alpha}",
            lambda alpha=alpha: (count_model(float(alpha)), count_release()),
            lambda alpha=alpha: _count_solution(alpha),
            draws=draws,
        )
        for alpha, draws in ((2, 10_000), (5, 10_000), (25, 100_000), (50, 100_000), (75, 20_000))
    ),
    Target("declared-range", _declared_problem, _declared_solution),
    Target("beta-binomial", _beta_binomial_problem, _beta_binomial_solution),
    Target("statistic-of-statistic", _chain_problem, _chain_solution),
    Target("unreleased-statistic", lambda: _chain_problem(False), lambda: _chain_solution(False)),
    Target("hierarchy", _hierarchy_problem, _hierarchy_solution),
    Target("total-of-bits", _bits_problem, _bits_solution),
    Target("clamped-total-unknown-n", _clamped_problem, _clamped_solution),
    Target("total-in-chunks", _normal_total_problem, _normal_total_solution, draws=5_000),
    Target("multinomial", _table_problem, _table_solution),
    Target("simulator", _simulator_problem, _beta_binomial_solution),
]


def briefly(names, kept):
    """Parameters of a test: those `kept` always run, the others only with --long."""
    assert set(kept) <= set(names), set(kept) - set(names)
    return [name if name in kept else pytest.param(name, marks=pytest.mark.long) for name in names]


def brief_rows(table, kept):
    """As `briefly`, for a table of several parameters by name."""
    marks = [[] if name in kept else [pytest.mark.long] for name in table]
    assert set(kept) <= set(table), set(kept) - set(table)
    return [pytest.param(*row, id=name, marks=mark) for (name, row), mark in zip(table.items(), marks, strict=True)]


def all_targets():
    """These targets, those of `targets_walkers.py`, and those of every family of mechanisms."""
    import targets_walkers
    from mechanism_case import families

    return [*TARGETS, *targets_walkers.TARGETS, *(one for each in families() for one in getattr(each, "TARGETS", ()))]
