"""Page views that fade, with days that were withheld: the library against an integral over a grid."""

from functools import cache

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from fading import DECAY, FIRST, SIZE, Posterior, gaussian, geometric, kernels

import noisewise as nw
from noisewise.mechanisms import Thresholded

ERAS = {
    "2021": (geometric, nw.DiscreteLaplace(scale=30.0), 450, (7782, 1661, 748, 510)),
    "2023": (gaussian, nw.DiscreteGaussian(rho=0.01505, sensitivity=np.sqrt(10)), 90, (3667, 2065, 385, 169)),
}
DAYS = 14


@cache
def exact(era, withheld):
    noise, _, threshold, published = ERAS[era]
    return Posterior(noise, threshold, list(published), DAYS, withheld)


def model(days):
    day = np.arange(1.0, days + 1)
    return nw.Model(
        prior={"first": dist.LogNormal(*FIRST), "decay": dist.LogNormal(*DECAY), "size": dist.LogNormal(*SIZE)},
        statistics={"views": lambda first, decay, size, day=day: dist.NegativeBinomial2(first * day ** (-decay), size)},
    )


def z_scores(posterior, truth):
    """Of the means of log first, log decay and log size, with the effective number of draws of each."""
    weight = np.full(len(posterior["first"]), 1.0) if posterior.weights is None else posterior.weights
    scores = []
    for axis, name in enumerate(("first", "decay", "size")):
        values = np.log(posterior[name])
        mean = np.average(values, weights=weight)
        error = np.sqrt(np.average((values - mean) ** 2, weights=weight) / posterior.ess[name])
        scores.append((mean - truth.mean(axis, lambda x: x)) / error)
    return np.array(scores)


@pytest.mark.parametrize("era", ERAS)
def test_both_routes_have_the_same_noise(era):
    """The probability of each published value, and of silence, by the library and by hand."""
    noise, law, threshold, published = ERAS[era]
    told = [*published, "suppressed"]
    mechanism = Thresholded(law, threshold)
    for value, (views, chance) in zip(told, kernels(noise, threshold, list(published)), strict=True):
        log_prob = mechanism.log_prob(mechanism.check_released(value), views)
        assert np.allclose(np.exp(log_prob), chance, rtol=1e-9, atol=1e-13)
        outside = max(views[-1] + 1, 0)
        assert np.exp(mechanism.log_prob(mechanism.check_released(value), outside)) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("era", ERAS)
def test_leaving_out_withheld_days_biases_the_answer(era):
    """A sanity check of the integral: silence is evidence of a fast fading."""
    with_them, without = exact(era, True), exact(era, False)
    assert with_them.mean(1) > without.mean(1) + 0.05
    assert with_them.variance(1) < without.variance(1)
    for posterior in (with_them, without):
        for axis in range(3):
            assert posterior.marginal(axis)[[0, -1]].max() < 1e-3


@pytest.mark.long
@pytest.mark.parametrize("era", ERAS)
def test_four_published_days_by_themselves(era, seed):
    _, law, _, published = ERAS[era]
    release = nw.Release(views=law.released(list(published)))
    posterior = nw.sample(model(4), release, draws=4_000, seed=seed)
    assert posterior.status == "complete"
    assert np.all(np.abs(z_scores(posterior, exact(era, False))) < LIMIT)
    assert np.any(np.abs(z_scores(posterior, exact(era, True))) > LIMIT), "the check sees no bias"


@pytest.mark.long
@pytest.mark.parametrize("era", ERAS)
def test_ten_withheld_days_without_a_setting(era, seed):
    _, law, threshold, published = ERAS[era]
    release = nw.Release(views=Thresholded(law, threshold).released([*published, *["suppressed"] * 10]))
    posterior = nw.sample(model(DAYS), release, draws=4_000, seed=seed)
    assert posterior.status == "complete"
    truth = exact(era, True)
    assert np.all(np.abs(z_scores(posterior, truth)) < LIMIT)
    assert np.any(np.abs(z_scores(posterior, exact(era, False))) > LIMIT), "the check sees no bias"
    summary = posterior.summary()
    for day in range(DAYS):
        row = summary.loc[f"views[{day}]"]
        assert abs(row["mean"] - truth.mean_views(day)) < LIMIT * row["mcse"], day
