"""Had the noise been another: against closed forms, and against fresh runs."""

import math
import pickle
from dataclasses import replace

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, z_scores
from scipy import stats

import noisewise as nw

TAU, SIGMA, NOISE, PUBLISHED = 1.5, 0.5, 0.7, 2.0
MODEL = nw.Model({"theta": dist.Normal(0.0, TAU)}, {"s": lambda theta: dist.Normal(theta, SIGMA)})
RELEASE = nw.Release(s=nw.Gaussian(scale=NOISE).released(PUBLISHED))


def exact(noise):
    """Mean and variance of the parameter, and the log evidence."""
    total = SIGMA**2 + noise**2
    variance = 1.0 / (1.0 / TAU**2 + 1.0 / total)
    return variance * PUBLISHED / total, variance, stats.norm.logpdf(PUBLISHED, 0.0, math.sqrt(TAU**2 + total))


@pytest.fixture(scope="module")
def plain():
    return nw.sample(MODEL, RELEASE, nw.Rejection(), draws=4_000, seed=3)


@pytest.mark.quick
@pytest.mark.parametrize("noise", [0.5, 0.9])
def test_weighed_draws_are_those_of_the_other_noise(plain, noise):
    other = nw.what_if(plain, MODEL, RELEASE, s=nw.Gaussian(scale=noise))
    mean, variance, log_evidence = exact(noise)
    assert other.reason.startswith("weighed again, k-hat")
    assert np.all(np.abs(z_scores(other, "theta", mean, variance)) < LIMIT)
    assert abs(other.log_evidence - log_evidence) < LIMIT * other.log_evidence_se
    before = exact(NOISE)
    assert abs(z_scores(other, "theta", before[0], before[1])[0]) > LIMIT  # not the posterior it came from
    assert other.release_hash != plain.release_hash


def test_weighted_and_dependent_draws_can_be_weighed(plain):
    weighted = nw.sample(MODEL, RELEASE, nw.Importance(), draws=8_000, seed=3)
    mean, variance, _ = exact(0.5)
    for posterior in (weighted, replace(plain, chains=4, log_evidence=None)):
        other = nw.what_if(posterior, MODEL, RELEASE, s=nw.Gaussian(scale=0.5))
        assert other.chains is None
        assert np.all(np.abs(z_scores(other, "theta", mean, variance)) < LIMIT)
    assert other.log_evidence is None
    assert len(other) <= len(plain)


def test_a_fresh_run_says_the_same():
    model = nw.Model({"rate": dist.Gamma(5.0, 0.5)}, {"count": lambda rate: dist.Poisson(rate)})
    release = nw.Release(count=nw.Laplace(scale=5.0).released(21.3))
    posterior = nw.sample(model, release, nw.Rejection(), draws=4_000, seed=3)
    other = nw.what_if(posterior, model, release, count=nw.Laplace(scale=6.0))
    fresh = nw.sample(
        model, nw.Release(count=nw.Laplace(scale=6.0).released(21.3)), nw.Rejection(), draws=4_000, seed=4
    )
    assert other.release_hash == fresh.release_hash
    for name in ("rate", "count"):
        rows = [each.summary().loc[name] for each in (other, fresh)]
        assert abs(rows[0]["mean"] - rows[1]["mean"]) < LIMIT * math.hypot(*(row["mcse"] for row in rows))
    assert abs(other.log_evidence - fresh.log_evidence) < LIMIT * (other.log_evidence_se + fresh.log_evidence_se)


def test_weights_that_fail_lead_to_a_fresh_run(plain):
    sharp = nw.sample(MODEL, RELEASE, nw.Rejection(), draws=500, seed=3)
    other = nw.what_if(sharp, MODEL, RELEASE, s=nw.Gaussian(scale=0.02), seed=5)
    mean, variance, _ = exact(0.02)
    assert other.reason.startswith("sampled anew, since weights do not do")
    assert np.all(np.abs(z_scores(other, "theta", mean, variance)) < LIMIT)


@pytest.mark.parametrize(
    "first", [nw.Exact(), *(nw.mechanisms.TruncatedLaplace(scale=0.5, bound=bound) for bound in (1.0, 9.0))]
)
def test_noise_with_an_edge_is_never_weighed(first):
    """All weights of draws without noise are equal, and of the prior hardly a draw lies 9 from the release: none of it
    would k-hat see.
    """
    release = nw.Release(s=first.released(PUBLISHED))
    posterior = nw.sample(MODEL, release, draws=1_000, seed=3)
    other = nw.what_if(posterior, MODEL, release, s=nw.Gaussian(scale=NOISE))
    assert other.reason.startswith("sampled anew, since the first noise could not reach")
    assert other["s"].std() > 0.3
    mean, variance, _ = exact(NOISE)
    assert np.all(np.abs(z_scores(other, "theta", mean, variance)) < LIMIT)


def test_what_makes_no_sense_is_refused(plain):
    other = nw.Release(s=nw.Gaussian(scale=NOISE).released(1.0))
    cases = {
        "must be a released statistic": (RELEASE, plain, {"t": nw.Gaussian(scale=1.0)}),
        "must be a mechanism": (RELEASE, plain, {"s": 3.0}),
        "must name at least one": (RELEASE, plain, {}),
        "must be the one that the draws come from": (other, plain, {"s": nw.Gaussian(scale=1.0)}),
        "must be a Posterior": (RELEASE, 3, {"s": nw.Gaussian(scale=1.0)}),
    }
    for message, (release, posterior, mechanisms) in cases.items():
        with pytest.raises(nw.InputError, match=message):
            nw.what_if(posterior, MODEL, release, **mechanisms)


def test_a_posterior_knows_its_model_and_release_until_it_is_read_from_a_file(plain, tmp_path):
    other = nw.what_if(plain, s=nw.Gaussian(scale=1.0))
    assert np.array_equal(other["theta"], nw.what_if(plain, MODEL, RELEASE, s=nw.Gaussian(scale=1.0))["theta"])
    assert other.problem.release["s"].mechanism.scale == 1.0
    plain.save(tmp_path / "kept.nc")
    read = nw.Posterior.load(tmp_path / "kept.nc")
    for question in (lambda: nw.what_if(read, s=nw.Gaussian(scale=1.0)), lambda: read.replicate(seed=1)):
        with pytest.raises(nw.InputError, match="must be given where a posterior was read from a file"):
            question()
    assert pickle.loads(pickle.dumps(plain)).problem is None
