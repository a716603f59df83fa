"""Windows from the release: what lies beyond them is bounded, for every wrapper that they are made for."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import noisewise as nw
from noisewise.inference.conditional import windows
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Affine, Clipped, Rounded, Thresholded

LAPLACE, DISCRETE = nw.Laplace(scale=3.0), nw.DiscreteGaussian(scale=3.0)


def problem_of(mechanism, released, rate=40.0):
    model = nw.Model({"rate": dist.Gamma(4.0, 4.0 / rate)}, {"count": lambda rate: dist.Poisson(rate)})
    return Problem(model, nw.Release(count=mechanism.released(released)))


@pytest.mark.parametrize(
    ("mechanism", "released"),
    [
        (Thresholded(LAPLACE, 30.0), "suppressed"),
        (Thresholded(DISCRETE, 30.0), "suppressed"),
        (Thresholded(DISCRETE, 30.0), 44.0),
        (Clipped(LAPLACE, 0.0, 60.0), 0.0),
        (Clipped(LAPLACE, 0.0, 60.0), 60.0),
        (Clipped(LAPLACE, 0.0, 60.0), 31.7),
        (Rounded(LAPLACE, 5.0), 35.0),
        (Rounded(Clipped(LAPLACE, 0.0, 60.0), 5.0), 0.0),
    ],
)
@pytest.mark.parametrize("widened", [0, 1])
def test_the_bound_holds_beyond_the_window(mechanism, released, widened):
    problem = problem_of(mechanism, released)
    window = windows.window_of(problem, "count", widened)
    item = problem.release["count"]
    counts = np.arange(0, 5_000)
    log_ratio = np.asarray(item.mechanism.log_prob(item.value, counts)) - np.asarray(item.mechanism.log_sup(item.value))
    beyond = (counts < window.start) | (counts > window.start + window.size - 1)
    assert window.size < 2_000
    assert np.max(log_ratio[beyond], initial=-np.inf) <= float(window.outside) + 1e-9
    assert np.any(log_ratio[~beyond] > -1.0)


def test_a_window_does_not_follow_extreme_draws_of_the_prior():
    """A withheld value came from a small one, whatever the prior can give."""
    model = nw.Model(
        {"mean": dist.LogNormal(8.0, 3.0)}, {"views": lambda mean: dist.NegativeBinomial2(mean, 2.0).expand([3])}
    )
    mechanism = Thresholded(nw.DiscreteGaussian(scale=18.2), 90.0)
    released = mechanism.released(np.array([3_667.0, 169.0, np.nan]))
    problem = Problem(model, nw.Release(views=released))
    window = windows.window_of(problem, "views", 0)
    assert window.size < 512
    assert window.start[2] == 0


def test_a_released_value_on_another_scale_gets_no_such_window():
    assert not windows.unimodal(Affine(LAPLACE, factor=1e-3))
    assert not windows.unimodal(Thresholded(Affine(LAPLACE, factor=-1.0), -100.0))
    assert not windows.unimodal(Thresholded(DISCRETE, 30.0, absent_when_zero=True))
    assert windows.unimodal(Thresholded(DISCRETE, 30.0))
    problem = problem_of(Affine(nw.Laplace(scale=1.0), factor=1e-3), 1.003, rate=1_000.0)
    window = windows.window_of(problem, "count", 0)
    assert window.start <= 1_003 <= window.start + window.size


def test_a_count_that_is_not_released_is_looked_for_near_what_reads_it():
    """Its prior goes beyond 1e18; a released count of those that were reported does not."""
    model = nw.Model(
        {"a": dist.Normal(0.0, 10.0), "p": dist.Beta(8.0, 4.0)},
        {"true": lambda a: dist.Poisson(jnp.exp(a)), "reported": lambda true, p: dist.Binomial(true, p)},
    )
    problem = Problem(model, nw.Release(reported=nw.DiscreteLaplace(scale=3.0).released(137)))
    window = windows.window_of(problem, "true", 0)
    assert window.start <= 137
    assert 300 < window.start + window.size < 2**14
    assert window.outside == 0.0  # what lies beyond is bounded by no more than the noise
