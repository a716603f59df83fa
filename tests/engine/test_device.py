"""The accelerator engine, tried on the CPU: the same programs, the same exactness."""

import itertools
import os
import signal
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, LIMIT, agrees, counts_agree, variance_agrees
from scipy import stats
from targets import Target, all_targets, brief_rows, briefly, count_model, count_release

import noisewise as nw
from noisewise.model.on_device import variates as device_variates
from noisewise.model.variates import VARIATES
from noisewise.numerics import double, single
from noisewise.samplers import rejection_on_device

BY_NAME = {target.name: target for target in all_targets()}


def device(**settings):
    return nw.Device("cpu", **{"rows": 2**14, **settings})


def bits_problem():
    """Yes answers of an unknown number of people, from uniform records: no law of their sum is known, so each is drawn.

    Laws that compile quickly.
    """
    bits = nw.Total({"x": dist.Uniform(0.0, 1.0)}, lambda x, p: jnp.where(x < p, 1, 0), "size")
    model = nw.Model({"p": dist.Uniform(0.0, 1.0), "size": dist.DiscreteUniform(3, 12)}, {"yes": bits})
    return model, nw.Release(yes=nw.DiscreteLaplace(scale=2.0).released(7))


def bits_solution():
    """Given the size, all numbers of yes are alike."""
    n, k = np.meshgrid(np.arange(3, 13), np.arange(13), indexing="ij")
    weight = np.where(k <= n, np.tanh(0.25) * np.exp(-np.abs(7 - k) / 2.0) / (10.0 * (n + 1)), 0.0)
    evidence = weight.sum()
    given = {"p": stats.beta(k + 1, np.maximum(n - k, 0) + 1), "size": n, "yes": k}
    found = {"log_evidence": np.log(evidence)}
    for name, law in given.items():
        mean, variance = (law.mean(), law.var()) if name == "p" else (law, 0.0)
        centre = np.sum(weight * mean) / evidence
        found[name] = centre, np.sum(weight * (variance + (mean - centre) ** 2)) / evidence
    return found


BY_NAME["bits-unknown-n"] = Target("bits-unknown-n", bits_problem, bits_solution)
EXACT = ["count-2", "bits-unknown-n", "clamped-total-unknown-n", "multinomial"]


@pytest.mark.parametrize("precision", briefly(["double", "single"], ["double"]))
@pytest.mark.parametrize("name", briefly(EXACT, ["bits-unknown-n"]))
def test_rejection_is_exact(name, precision, seed):
    target = BY_NAME[name]
    model, release = target.make()
    posterior = nw.sample(model, release, nw.Rejection(), draws=4_000, seed=seed, engine=device(precision=precision))
    truth = dict(target.solve())
    z = (posterior.log_evidence - truth.pop("log_evidence")) / posterior.log_evidence_se
    assert abs(z) < LIMIT
    for one, (mean, variance) in truth.items():
        assert agrees(posterior[one], mean), one
        assert agrees((posterior[one] - mean) ** 2, variance), one


def test_a_wrong_density_would_be_caught(seed, monkeypatch):
    """Negative control: the ratio to the supremum, squared, which halves the variance of the noise: 4/5 for 2/3."""
    release = nw.Release(s=nw.Gaussian(scale=1.0).released(2.0))

    def holds():
        model = nw.Model({"theta": dist.Normal(0.0, 1.0)}, {"s": lambda theta: dist.Normal(theta, 1.0)})
        posterior = nw.sample(model, release, nw.Rejection(), draws=8_000, seed=seed, engine=device())
        return agrees(posterior["theta"], 2 / 3)

    assert holds()
    real, top = rejection_on_device.log_etas, stats.norm.logpdf(0.0)
    squared = lambda *given: {name: 2.0 * each - top for name, each in real(*given).items()}  # noqa: E731
    monkeypatch.setattr(rejection_on_device, "log_etas", squared)
    assert not holds()


@pytest.mark.long
@pytest.mark.parametrize("sampler", [nw.Importance(), nw.SMC(particles=256), nw.MCMC(), nw.Augmentation()], ids=str)
def test_other_samplers_run_there(sampler, seed):
    given = dict(draws=4_096, seed=seed, engine=device(), on_failure="return")
    posterior = nw.sample(count_model(), count_release(), sampler, **given)
    row = posterior.summary().loc["theta"]
    limit = stats.t.isf(FALSE_ALARM / 2, 15)  # the error comes from 16 groups where draws depend on each other
    assert abs(row["mean"] - BY_NAME["count-25"].solve()["theta"][0]) < limit * row["mcse"]


@pytest.mark.long
def test_one_seed_gives_one_result_and_fewer_draws_are_the_first(seed):
    run = lambda draws: nw.sample(  # noqa: E731
        count_model(), count_release(), nw.Rejection(), draws=draws, seed=seed, engine=device()
    )
    many = run(6_000)
    assert np.array_equal(run(6_000)["theta"], many["theta"])
    assert np.array_equal(run(500)["theta"], many["theta"][:500])


def test_survivors_that_stay_there_are_those_that_are_fetched(seed, tmp_path):
    """With a checkpoint every block is fetched; without, what a later merge takes stays where it was made."""
    model = nw.Model(
        {"a": dist.Normal(0.0, 2.0), "n": dist.Poisson(3.0)},
        {
            "pair": lambda a: dist.Normal(a, 1.0).expand([2]),
            "count": lambda n: dist.Poisson(n),
            "both": lambda a, n: dist.Normal(a + n, 1.0),
        },
    )
    noise = nw.Laplace(scale=1.0)
    release = nw.Release(pair=noise.released(np.array([1.0, 0.5])), count=noise.released(2.0), both=noise.released(4.0))
    given = dict(draws=600, seed=seed, engine=device(rows=2**10))
    stayed = nw.sample(model, release, nw.Rejection(), **given)
    fetched = nw.sample(model, release, nw.Rejection(), **given, checkpoint=tmp_path / "run")
    for name in stayed.draws:
        np.testing.assert_array_equal(stayed[name], fetched[name])
    assert stayed.log_evidence == fetched.log_evidence


@pytest.mark.long
def test_more_survivors_than_expected_are_not_lost(seed):
    """Room for survivors starts at half the rows; a wide release accepts nearly all of 16,384."""
    model, release = count_model(), nw.Release(count=nw.Laplace(scale=500.0).released(25.0))
    posterior = nw.sample(model, release, nw.Rejection(), draws=15_000, seed=seed, engine=device())
    assert posterior.proposals < 20_000
    assert agrees(posterior["theta"], 25.0, 0.05)


@cache
def poisson_program():
    """One for all rates, which are drawn in one of three ways, or the first two of them together."""
    return jax.jit(lambda key, rate: device_variates.poisson(key, rate, (100_000,)))


@pytest.mark.parametrize("rate", [0.0, 0.3, 7.0, 60.0, 1023.9, 1024.0, 5e4])
def test_poisson_variates_follow_their_law_in_64_bits(rate, seed):
    with double():
        drawn = np.asarray(poisson_program()(jax.random.key(seed), jnp.asarray(rate)))
    low, high = int(stats.poisson.ppf(1e-9, rate)), int(stats.poisson.ppf(1 - 1e-9, rate))
    counts = np.bincount(np.clip(drawn, low, high) - low, minlength=high - low + 1)
    assert counts_agree(counts, stats.poisson.pmf(np.arange(low, high + 1), rate))


LAWS = {
    "gamma": (dist.Gamma(0.3, 2.0), stats.gamma(0.3, scale=0.5)),
    "beta": (dist.Beta(0.7, 2.0), stats.beta(0.7, 2.0)),
    "student": (dist.StudentT(3.0, 1.0, 2.0), stats.t(3.0, 1.0, 2.0)),
    "weibull": (dist.Weibull(2.0, 1.5), stats.weibull_min(1.5, scale=2.0)),
    "truncated": (dist.TruncatedNormal(0.0, 1.0, low=1.0), stats.truncnorm(1.0, np.inf)),
    "laplace": (dist.Laplace(1.0, 2.0), stats.laplace(1.0, 2.0)),
}


@pytest.mark.parametrize(("law", "truth"), brief_rows(LAWS, ["gamma", "truncated", "laplace"]))
def test_variates_follow_their_law(law, truth, seed):
    model = nw.Model(prior={"x": law}, statistics={"s": lambda x: dist.Normal(x, 1.0)})
    rng = np.random.default_rng(seed)
    with accelerated_work():
        drawn = model.draw(rng, ["x"], 50_000)["x"]
    assert stats.kstest(drawn, truth.cdf).pvalue > 1e-6


@pytest.mark.long
def test_discrete_variates_have_their_moments(seed):
    laws = {
        "binomial": (dist.Binomial(30, 0.3), 9.0, 6.3),
        "geometric": (dist.Geometric(0.25), 3.0, 12.0),
        "negative": (dist.NegativeBinomial2(4.0, 2.0), 4.0, 12.0),
        "zero": (dist.ZeroInflatedPoisson(0.4, 5.0), 3.0, 3.0 * (1 + 0.4 * 5.0)),
        "categorical": (dist.Categorical(np.array([0.2, 0.5, 0.3])), 1.1, 0.49),
    }
    model = nw.Model(
        prior={name: law for name, (law, _, _) in laws.items()},
        statistics={"s": lambda binomial, geometric, negative, zero, categorical: dist.Normal(0.0, 1.0)},
    )
    with accelerated_work():
        drawn = model.draw(np.random.default_rng(seed), list(laws), 60_000)
    for name, (_, mean, variance) in laws.items():
        assert agrees(drawn[name], mean), name
        assert variance_agrees(drawn[name], variance), name


def test_every_law_of_the_table_has_its_sampler():
    assert set(device_variates.DRAWS) == set(VARIATES)
    assert {rule for variate in VARIATES.values() for rule in variate.rules.values()} <= set(device_variates.RULES)


@pytest.mark.parametrize("bits", [double, single])
def test_acceptance_has_more_than_52_random_bits(bits):
    with bits():
        logs = np.asarray(jax.jit(lambda key: rejection_on_device.log_uniform(key, 2**20))(jax.random.key(0)))
    assert np.all(np.isfinite(logs))
    assert logs.min() < -12.0
    assert len(np.unique(logs[logs < -8.0])) == np.sum(logs < -8.0)  # 23 bits would repeat themselves there


def test_impossible_parameters_are_an_error_not_a_dropped_proposal(seed):
    model = nw.Model(prior={"x": dist.Normal(1.0, 1.0)}, statistics={"s": lambda x: dist.Poisson(x)})
    with pytest.raises(nw.InputError, match="cannot be drawn"):
        nw.sample(
            model,
            nw.Release(s=nw.Laplace(scale=5.0).released(3.0)),
            nw.Rejection(),
            draws=100,
            seed=seed,
            engine=device(),
        )


def test_python_simulators_stay_on_the_processor(seed):
    model, release = BY_NAME["simulator"].make()
    posterior = nw.sample(model, release, nw.Rejection(), draws=2_000, seed=seed, engine=device())
    assert agrees(posterior["p"], BY_NAME["simulator"].solve()["p"][0])


def simulated(simulate):
    model = nw.Model({"theta": dist.Gamma(5.5, 1.0)}, {"count": nw.Simulator(simulate)})
    return model, nw.Release(count=nw.Laplace(scale=2.0).released(7.4))


def test_a_faulty_simulator_is_named_with_seed_and_parameter(seed):
    def raising(rng, theta):
        if theta > 12.0:
            raise ZeroDivisionError("no records left")
        return int(rng.poisson(theta))

    with pytest.raises(nw.InferenceError, match=rf"no records left at theta=[\d.]+.*seed {seed}, block \("):
        nw.sample(*simulated(raising), nw.Rejection(), draws=20_000, seed=seed, engine=device())


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_with_what_has_been_accepted(seed):
    calls = itertools.count()

    def interrupting(rng, theta):
        if next(calls) == 20_000:
            os.kill(os.getpid(), signal.SIGINT)
        return int(rng.poisson(theta))

    given = dict(seed=seed, engine=device(), on_failure="return")
    found = nw.sample(*simulated(interrupting), nw.Rejection(), draws=10**6, **given)
    assert found.status == "interrupted"
    assert len(found) > 0
    expected = nw.sample(*simulated(interrupting), nw.Rejection(), draws=len(found), **given)
    np.testing.assert_array_equal(found["theta"], expected["theta"])


def test_what_is_refused():
    with pytest.raises(nw.InputError, match="'precision' must be one of"):
        nw.Device(precision="half")
    with pytest.raises(nw.InputError, match="must be an accelerator"):
        nw.sample(count_model(), count_release(), nw.Rejection(), draws=10, seed=1, engine=nw.Device())
    with pytest.raises(nw.InputError, match="'platform' must be there"):
        nw.sample(count_model(), count_release(), nw.Rejection(), draws=10, seed=1, engine=nw.Device("tpu"))


def accelerated_work():
    from noisewise.numerics import placed

    return placed(nw.Device("cpu").placement)
