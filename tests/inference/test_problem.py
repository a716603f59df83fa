"""A problem's densities: entries and releases multiply, and so do their bounds."""

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import noisewise as nw
from noisewise.inference.problem import Problem


@pytest.fixture(scope="module")
def problem():
    model = nw.Model(
        {"mu": dist.Normal(0.0, 1.0)},
        {"x": lambda mu: dist.Normal(mu, 1.0).expand([2, 3]), "y": lambda mu: dist.Normal(mu, 2.0)},
    )
    x = nw.Laplace(scale=np.array([0.5, 1.0, 2.0])).released(np.arange(6.0).reshape(2, 3))
    return Problem(model, nw.Release({"x": x, "y": nw.Gaussian(scale=3.0).released(-1.0)}))


def test_log_densities_of_entries_and_of_releases_add_up(problem):
    values = problem.model.simulate(50, 1)
    of_x = stats.laplace(values["x"], [0.5, 1.0, 2.0]).logpdf(np.arange(6.0).reshape(2, 3)).sum(axis=(1, 2))
    of_y = stats.norm(values["y"], 3.0).logpdf(-1.0)
    assert problem.log_eta("x", values) == pytest.approx(of_x, rel=1e-12)
    assert problem.log_eta("y", values) == pytest.approx(of_y, rel=1e-12)
    sup_x, sup_y = -2.0 * np.log(2.0 * np.array([0.5, 1.0, 2.0])).sum(), stats.norm(0.0, 3.0).logpdf(0.0)
    assert problem.log_sup("x") == pytest.approx(sup_x, rel=1e-12)
    assert problem.log_sup("y") == pytest.approx(sup_y, rel=1e-12)
    both = problem.log_ratio(["x", "y"], values)
    assert both == pytest.approx(of_x - sup_x + of_y - sup_y, rel=1e-12)
