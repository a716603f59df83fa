"""Problems whose first result is measured: one of each kind that compilation matters for."""

import clamped_total
import numpy as np
import numpyro.distributions as dist
import regression_total

import noisewise as nw


def count():
    """One noisy count."""
    model = nw.Model({"theta": dist.Gamma(25.0, 1.0)}, {"count": lambda theta: dist.Poisson(theta)})
    return model, nw.Release(count=nw.Laplace(scale=5.0).released(37.4))


def poisson_regression():
    """Noisy counts of forty districts, by formula."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal(40)
    cases = rng.poisson(np.exp(2.0 + 0.5 * x)) + np.round(rng.laplace(scale=3.0, size=40))
    release = nw.Release(cases=nw.DiscreteLaplace(scale=3.0).released(cases.astype(int)))
    return nw.regression("cases ~ x", release, family="poisson", data={"x": x}), release


def rates():
    """Fifty noisy counts, with rates from one gamma law."""
    rng = np.random.default_rng(2)
    released = rng.poisson(rng.gamma(4.0, 5.0, 50)) + rng.laplace(scale=4.0, size=50)
    model = nw.Model(
        {"a": dist.Gamma(2.0, 0.5), "b": dist.Gamma(2.0, 10.0), "rate": lambda a, b: dist.Gamma(a, b).expand([50])},
        {"count": lambda rate: dist.Poisson(rate)},
    )
    return model, nw.Release(count=nw.Laplace(scale=4.0).released(released))


def means():
    """Twenty noisy means, Student's t between groups: nothing is conjugate."""
    rng = np.random.default_rng(3)
    released = 3.0 + rng.standard_t(4, 20) + rng.laplace(scale=0.5, size=20)
    model = nw.Model(
        {
            "mu": dist.Normal(0.0, 5.0),
            "tau": dist.HalfNormal(3.0),
            "group": lambda mu, tau: dist.StudentT(4.0, mu, tau).expand([20]),
        },
        {"mean": lambda group: dist.Normal(group, 0.3)},
    )
    return model, nw.Release(mean=nw.Laplace(scale=0.5).released(released))


def measured_table():
    """A table of two by three, its rows and its cells measured."""
    model = nw.Model({"rate": dist.Gamma(2.0, 0.05).expand([2, 3])}, {"table": lambda rate: dist.Poisson(rate)})
    fine, coarse = nw.DiscreteGaussian(scale=4.0), nw.DiscreteGaussian(scale=2.0)
    release = nw.Release(
        cells=fine.of("table").released(np.array([[31, 52, 17], [8, 44, 29]])),
        rows=coarse.of("table", axes=1).released(np.array([102, 80])),
    )
    return model, release


def histogram():
    """Eight bins of 200 records, shares from one parameter."""
    released, bins = np.array([71, 44, 30, 20, 11, 12, 3, 2]), np.arange(8)
    model = nw.Model(
        {"decay": dist.Beta(2.0, 2.0)},
        {"histogram": lambda decay: dist.Multinomial(200, decay**bins / (decay**bins).sum())},
    )
    return model, nw.Release(histogram=nw.DiscreteGaussian(scale=4.0).released(released))


PROBLEMS = {
    "count": count,
    "regression of counts": poisson_regression,
    "regression from sums": regression_total.problem,
    "hierarchy of 50 rates": rates,
    "hierarchy of 20 means": means,
    "measured table": measured_table,
    "histogram": histogram,
    "clamped total": clamped_total.problem,
}
