"""Bad input at the verbs: each refused in the one message form (who, which argument, the rule, the value, advice)."""

import re
from functools import cache

import numpy as np
import numpyro.distributions as dist
import pytest
from targets import count_model, count_release

import noisewise as nw

FORM = re.compile(r"[\w.\[\]']+: '.+?' .+; got .+\. .+\.", re.DOTALL)


def sample(**changes):
    arguments = {"model": count_model(), "release": count_release(), "draws": 10, "seed": 1} | changes
    return nw.sample(arguments.pop("model"), arguments.pop("release"), arguments.pop("sampler", None), **arguments)


def released(**values):
    return nw.Release({name: nw.Laplace(scale=1.0).released(value) for name, value in values.items()})


@cache
def chain_model():
    return nw.Model(
        prior={"theta": dist.Gamma(5.0, 1.0)},
        statistics={"n": lambda theta: dist.Poisson(theta), "x": lambda theta: dist.Normal(theta, 1.0)},
    )


CASES = {
    "no draws": (lambda: sample(draws=0), "'draws' must be a whole number, at least 1; got 0"),
    "negative draws": (lambda: sample(draws=-5), "'draws'"),
    "fractional draws": (lambda: sample(draws=10.5), "'draws'.*got 10.5"),
    "draws in powers": (lambda: sample(draws=1e4), "'draws'.*got 10000.0. Write 10_000, not 1e4"),
    "true draws": (lambda: sample(draws=True), "'draws'.*got True"),
    "text seed": (lambda: sample(seed="1"), "'seed' must be a whole number, at least 0; got '1'"),
    "float seed": (lambda: sample(seed=1.0), "'seed'"),
    "no seed": (lambda: sample(seed=None), "'seed'"),
    "negative seed": (lambda: sample(seed=-1), "'seed'"),
    "model": (lambda: sample(model={"theta": 1}), "'model' must be a noisewise Model"),
    "release": (lambda: sample(release={"count": 37.4}), "'release' must be a noisewise Release"),
    "sampler": (lambda: sample(sampler="rejection"), "'sampler' must be a sampler; got 'rejection'"),
    "sampler class": (lambda: sample(sampler=nw.Rejection), "'sampler' must be a sampler"),
    "engine": (lambda: sample(engine=2), "'engine' must be an engine; got 2"),
    "engine class": (lambda: sample(engine=nw.Threads), "'engine' must be an engine"),
    "checkpoint": (lambda: sample(checkpoint=3), "'checkpoint'"),
    "too many draws": (
        lambda: sample(draws=10**15, sampler=nw.Rejection()),
        "'draws' must fit in memory",
    ),
    "no such folder for a release": (lambda: count_release().save("/nonexistent/x.json"), "'path' must be writable"),
    "no release path": (lambda: nw.Release.load(None), "'path' must be a file's path; got None"),
    "no posterior path": (lambda: nw.Posterior.load(None), "'path' must be an existing file; got None"),
    "empty release": (lambda: nw.Laplace(scale=1.0).released([]), "'value' must not be empty"),
    "plot of a model": (lambda: nw.plot(count_model()), "'posterior' must be a Posterior"),
    "plot prior": (lambda: nw.plot(sample(sampler=nw.Rejection()), prior={"theta": 1}), "'prior' must be the Model"),
    "plot naive": (
        lambda: nw.plot(sample(sampler=nw.Rejection()), naive=count_release()),
        "'naive' must be a Posterior",
    ),
    "progress": (lambda: sample(progress="yes"), "'progress' must be True, False or None"),
    "on_failure": (lambda: sample(on_failure="ignore"), "'on_failure' must be one of 'raise', 'return'"),
    "unknown statistic": (lambda: sample(release=released(counts=3.0)), "'release' must name statistics.*'count'"),
    "shape": (
        lambda: sample(release=released(count=[1.0, 2.0])),
        r"'count' must have the shape \(2,\) of its release",
    ),
    "unreleased": (
        lambda: sample(model=chain_model(), release=released(n=3.0)),
        "'x' must be released, or needed by a statistic that is",
    ),
    "integer noise on a continuous statistic": (
        lambda: sample(
            model=chain_model(),
            release=nw.Release(n=nw.Laplace(scale=1.0).released(3.0), x=nw.DiscreteLaplace(scale=1.0).released(3)),
        ),
        r"release\['x'\].*has integer noise \(DiscreteLaplace\)",
    ),
    "continuous and exact": (
        lambda: sample(model=chain_model(), release=released(n=3.0, x=3.0).naive(), sampler=nw.Rejection()),
        "Rejection would never accept: 'x' is continuous and has no noise",
    ),
    "exact simulator": (
        lambda: sample(
            model=nw.Model(
                prior={"a": dist.Normal(0.0, 1.0)}, statistics={"s": nw.Simulator(lambda rng, a: rng.normal(a))}
            ),
            release=released(s=1.0).naive(),
        ),
        "needs the density of 's', which has no noise",
    ),
    "plan": (
        lambda: nw.Rejection(plan="clever"),
        "'plan' must be one of 'divide', 'joint', 'predictive'; got 'clever'",
    ),
    "max_proposals": (lambda: nw.Rejection(max_proposals=0), "'max_proposals'"),
    "max_seconds": (lambda: nw.Rejection(max_seconds=-1.0), "'max_seconds' must be positive"),
    "min_ess": (lambda: nw.Importance(min_ess=0.0), "'min_ess' must be positive"),
    "workers": (lambda: nw.Threads(0), "'workers' must be a whole number, at least 1; got 0"),
    "compare draws": (lambda: nw.compare(count_model(), count_release(), draws=0, seed=1), "'draws'"),
    "simulate draws": (lambda: count_model().simulate(0, 1), "'draws'"),
    "simulate seed": (lambda: count_model().simulate(1, 0.5), "'seed'"),
}


@pytest.mark.quick
@pytest.mark.parametrize(("call", "message"), CASES.values(), ids=CASES)
def test_refusals_follow_the_form(call, message):
    with pytest.raises(nw.InputError, match=message) as caught:
        call()
    assert FORM.fullmatch(str(caught.value)), str(caught.value)


def test_long_values_are_cut():
    with pytest.raises(nw.InputError) as caught:
        sample(sampler="x" * 10_000)
    assert len(str(caught.value)) < 400


def test_low_effective_size_is_a_failure_with_its_result():
    with pytest.raises(nw.InferenceError, match=r"worth .* independent ones, fewer than min_ess=400") as caught:
        sample(sampler=nw.Importance(), draws=300)
    assert caught.value.result.status == "low_ess"
    assert len(caught.value.result) == 300
    kept = sample(sampler=nw.Importance(), draws=300, on_failure="return")
    assert np.array_equal(kept["theta"], caught.value.result["theta"])


def test_a_negative_count_has_no_naive_analysis():
    with pytest.raises(nw.InferenceError, match=r"all 1000 weights are zero.*a negative count") as caught:
        sample(release=released(count=-3.7).naive(), sampler=nw.Importance(), draws=1000)
    assert caught.value.result.status == "no_weight"
    with pytest.raises(nw.InferenceError):  # nor does any other sampler make one up
        sample(release=released(count=-3.7).naive(), draws=1000)
    kept = sample(release=released(count=-3.7).naive(), sampler=nw.Importance(), draws=1000, on_failure="return")
    assert kept.ess["theta"] == 0.0
    assert kept.summary()["mean"].isna().all()


def test_impossible_release_under_importance():
    model = nw.Model(prior={"p": dist.Beta(1.0, 1.0)}, statistics={"yes": lambda p: dist.Bernoulli(p)})
    release = nw.Release(yes=nw.Exact().released(5))
    with pytest.raises(nw.InferenceError, match=r"all .* weights are zero"):
        nw.sample(model, release, nw.Importance(), draws=100, seed=1)
