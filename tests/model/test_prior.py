"""The prior by itself: what is drawn of it, and where one parameter lies, against SciPy."""

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from scipy import stats

import noisewise as nw
from noisewise.model.prior import prior_draws, prior_spread


@pytest.mark.parametrize(
    ("law", "exact"),
    [(dist.Gamma(4.0, 0.04), stats.gamma(4, scale=25)), (dist.Beta(2.0, 7.0), stats.beta(2, 7))],
    ids=["gamma", "beta"],
)
def test_ends_are_exact_where_the_distribution_function_has_a_formula(law, exact):
    model = nw.Model(prior={"p": law}, statistics={"s": lambda p: dist.Normal(p, 1.0)})
    mean, median, low, high, is_positive = prior_spread(model, "p")
    assert (mean, median) == pytest.approx((exact.mean(), exact.median()), rel=1e-6)
    assert (low, high) == pytest.approx(exact.interval(0.95), rel=1e-6)
    assert is_positive


def test_blocks_of_prior_draws_differ(seed):
    model = nw.Model(
        prior={"theta": dist.Gamma(4.0, 0.5)},
        statistics={
            "count": lambda theta: dist.Poisson(theta),
            "sum": nw.Total({"x": lambda theta: dist.Normal(theta, 1.0)}, lambda x: x, n=10),
            "after": lambda sum: dist.Normal(sum, 1.0),
        },
        derived={"twice": lambda theta: 2.0 * theta},
    )
    drawn = prior_draws(model, seed, blocks=2, rows=512)
    assert list(drawn) == ["theta", "count", "twice"], "a sum over records is not drawn, nor what depends on it"
    assert np.array_equal(drawn["twice"], 2.0 * drawn["theta"])
    assert len(np.unique(drawn["theta"])) == 1_024
    error = np.sqrt(16.0 / 1_024)  # of a Gamma with shape 4 and rate 1/2
    assert abs(drawn["theta"].mean() - 8.0) < LIMIT * error
