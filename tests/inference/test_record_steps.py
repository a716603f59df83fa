"""The records behind a total, one at a time: exact answers, the guarantee's bound, and ways to get it wrong."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from scipy import stats
from targets import TARGETS, _bits_problem, _clamped_problem, briefly

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.inference.record_steps import RecordSteps, acceptance_floor, why_not_in_steps
from noisewise.numerics import double
from noisewise.samplers.augmentation import Augmentation
from noisewise.samplers.gibbs.renewal import Renewal

CHAINS = 256


# A driver: sweeps of the records in turn with exact draws of the parameters given them ------------------------------


@dataclass
class Ran:
    """What the chains did: values by name of shape (sweeps, chains, ...), and the infos."""

    values: dict[str, Any]
    infos: list[dict[str, Any]]

    def z(self, name, moment, truth):
        """z-scores of E[moment(value)] against the truth, chains being independent of each other."""
        by_chain = moment(self.values[name]).mean(axis=0)
        error = by_chain.std(axis=0, ddof=1) / np.sqrt(len(by_chain))
        return (by_chain.mean(axis=0) - truth) / error


def drive(problem, name, conjugate, seed, sweeps=120, warmup=40, chains=CHAINS, kind=RecordSteps, refresh=None):
    """Chains that start at the prior; `conjugate(rng, records, state)` draws the parameters given the records."""
    rng = np.random.default_rng(seed)
    records = kind(problem, name)
    values = problem.model.draw(rng, list(problem.model.parameters), chains)
    state = records.start(rng, values, chains)
    kept, infos = {}, []
    for sweep in range(warmup + sweeps):
        state, info = records.sweep(rng, state, values)
        values |= records.values(state)
        values |= conjugate(rng, records, state)
        if refresh is not None:
            values, state = refresh(rng, records, values, state)
        infos.append(info)
        if sweep >= warmup:
            for label, value in values.items():
                kept.setdefault(label, []).append(np.array(value))
    return Ran({label: np.stack(value) for label, value in kept.items()}, infos)


def agree(ran, solution):
    """The largest |z| over means and mean squares of all that the solution knows."""
    worst = 0.0
    for name, truth in solution.items():
        if name == "log_evidence":
            continue
        mean, variance = (np.asarray(part, float) for part in truth)
        first = ran.z(name, lambda x: x, mean)
        second = ran.z(name, lambda x: x**2.0, variance + mean**2)
        worst = max(worst, float(np.max(np.abs(first))), float(np.max(np.abs(second))))
    return worst


def beta(field):
    """p given records whose `field` is Bernoulli(p), with p ~ Beta(2, 3)."""

    def draw(rng, records, state):
        size = records._size(state)
        there = np.arange(state[field].shape[1]) < size[:, None]
        yes = (state[field] * there).sum(axis=1)
        return {"p": rng.beta(2.0 + yes, 3.0 + size - yes)}

    return draw


def normal(rng, records, state):
    """mu given records x ~ Normal(mu, 1), with mu ~ Normal(0, 1)."""
    precision = 1.0 + state["x"].shape[1]
    return {"mu": state["x"].sum(axis=1) / precision + rng.standard_normal(state["x"][:, 0].shape) / np.sqrt(precision)}


@cache
def normal_problem(n=60, scale=8.0, released=25.0):
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 1.0)},
        statistics={"total": nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: x, n)},
    )
    return Problem(model, nw.Release(total=nw.Gaussian(scale=scale).released(released)))


def normal_solution(n=60, scale=8.0, released=25.0):
    prior = np.array([[1.0, n], [n, n**2.0 + n]])
    gain = prior[:, 1] / (prior[1, 1] + scale**2)
    mean, covariance = gain * released, prior - np.outer(gain, prior[1])
    return {"mu": (mean[0], covariance[0, 0]), "total": (mean[1], covariance[1, 1])}


def solution(name):
    return next(target for target in TARGETS if target.name == name).solve()


# Exact answers ------------------------------------------------------------------------------------------------------


@cache
def bits_problem():
    """For tests that leave the steps as they are."""
    return Problem(*_bits_problem())


def test_total_of_bits_is_exact(seed):
    ran = drive(bits_problem(), "yes", beta("bit"), seed)
    assert agree(ran, solution("total-of-bits")) < LIMIT


def test_two_clamped_sums_over_an_unknown_number_of_records_are_exact(seed):
    ran = drive(Problem(*_clamped_problem()), "sums", beta("flag"), seed)
    assert agree(ran, solution("clamped-total-unknown-n")) < LIMIT


def test_a_normal_total_is_exact(seed):
    ran = drive(normal_problem(), "total", normal, seed, sweeps=200)
    assert agree(ran, normal_solution()) < LIMIT


def groups_problem(scales, released, mechanism=None):
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 1.0).expand([len(scales)])},
        statistics={"total": nw.Total({"x": lambda mu: dist.Normal(mu, 1.0).to_event(1)}, lambda x: 1.0 * x, 20)},
    )
    noise = mechanism or nw.Gaussian(scale=np.array(scales))
    return Problem(model, nw.Release(total=noise.released(np.array(released))))


def test_sums_over_records_of_their_own_are_accepted_one_by_one_and_exact(seed):
    scales, released = [8.0, 2.0, 30.0], [25.0, -3.0, 40.0]
    problem = groups_problem(scales, released)
    assert RecordSteps(problem, "total").lanes == (3,)
    each = [normal_solution(20, scale, value) for scale, value in zip(scales, released, strict=True)]
    together = {name: tuple(np.array([one[name][part] for one in each]) for part in (0, 1)) for name in each[0]}
    ran = drive(problem, "total", normal, seed, sweeps=200)
    assert agree(ran, together) < LIMIT
    assert ran.infos[-1]["tried"] == 3 * 20 * CHAINS


def shared(record, contribution, shape, mechanism=None):
    """Whether a total of this shape is taken for sums over records of their own."""
    model = nw.Model({"mu": dist.Normal(0.0, 1.0).expand([3])}, {"total": nw.Total(record, contribution, 4)})
    noise = mechanism or nw.Laplace(scale=1.0)
    problem = Problem(model, nw.Release(total=noise.released(np.zeros(shape))))
    return RecordSteps(problem, "total").lanes == ()


APART = {"x": lambda mu: dist.Normal(mu, 1.0).to_event(1)}
COVARIANCE = np.eye(3) + 0.5


def test_records_that_sums_share_are_accepted_as_a_whole():
    assert not shared(APART, lambda x: jnp.clip(x, 0.0, 1.0), 3)
    assert not shared(APART, lambda x: jnp.where(x > 0.0, jnp.exp(-x), 0.0), 3)
    assert shared(APART, lambda x: jnp.cumsum(x), 3)
    assert shared(APART, lambda x: x[::-1], 3)
    assert shared(APART, lambda x: x - x.mean(), 3)
    assert shared({"x": lambda mu: dist.Normal(mu.sum(), 1.0)}, lambda x: jnp.stack([x, x * x]), 2)
    assert shared({"x": lambda mu: dist.MultivariateNormal(mu, COVARIANCE)}, lambda x: 1.0 * x, 3)
    assert shared({**APART, "y": lambda x: dist.Normal(x[::-1], 1.0)}, lambda y: 1.0 * y, 3)
    assert not shared({**APART, "y": lambda x: dist.Normal(2.0 * x, 1.0)}, lambda y: 1.0 * y, 3)
    assert shared(APART, lambda x: 1.0 * x, 3, nw.mechanisms.MultivariateGaussian(covariance=COVARIANCE))


def test_a_step_of_parameters_and_all_records_together_is_exact(seed):
    problem = bits_problem()

    def refresh(rng, records, values, state):
        """Parameters from their prior with fresh records, accepted by the ratio of noise densities."""
        other = {"p": rng.beta(2.0, 3.0, CHAINS)}
        proposed = records.fresh(rng, state, other)
        ratio = problem.log_eta("yes", proposed) - problem.log_eta("yes", state)
        accept = -rng.standard_exponential(CHAINS) < ratio
        state = {
            name: np.where(accept.reshape((-1,) + (1,) * (x.ndim - 1)), proposed[name], x) for name, x in state.items()
        }
        return {"p": np.where(accept, other["p"], values["p"]), **records.values(state)}, state

    assert agree(drive(problem, "yes", beta("bit"), seed, refresh=refresh), solution("total-of-bits")) < LIMIT


def test_vector_records_with_joint_noise_are_exact(seed):
    covariance = np.array([[30.0, 12.0], [12.0, 20.0]])
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 1.0)},
        statistics={"total": nw.Total({"x": lambda mu: dist.Normal(mu, 1.0).expand([2]).to_event(1)}, lambda x: x, 20)},
    )
    mechanism = nw.mechanisms.MultivariateGaussian(covariance=covariance)
    problem = Problem(model, nw.Release(total=mechanism.released([15.0, 4.0])))

    def conjugate(rng, records, state):
        precision = 1.0 + 40.0
        mean = state["x"].sum(axis=(1, 2)) / precision
        return {"mu": mean + rng.standard_normal(len(mean)) / np.sqrt(precision)}

    prior = np.block([[np.ones((1, 1)), np.full((1, 2), 20.0)], [np.full((2, 1), 20.0), 400.0 + 20.0 * np.eye(2)]])
    gain = prior[:, 1:] @ np.linalg.inv(prior[1:, 1:] + covariance)
    mean, left = gain @ [15.0, 4.0], np.diag(prior - gain @ prior[1:])
    ran = drive(problem, "total", conjugate, seed)
    assert agree(ran, {"mu": (mean[0], left[0]), "total": (mean[1:], left[1:])}) < LIMIT


@cache
def chained_problem():
    """The number of records is a noisy statistic; another statistic, and another's noise, depend on the total."""
    model = nw.Model(
        prior={"rate": dist.Gamma(6.0, 1.0), "p": dist.Beta(2.0, 3.0)},
        statistics={
            "people": lambda rate: dist.Poisson(rate),
            "yes": nw.Total({"bit": lambda p: dist.Bernoulli(p)}, lambda bit: bit, "people"),
            "calls": lambda yes: dist.Poisson(1.0 + yes),
        },
    )
    release = nw.Release(
        people=nw.mechanisms.LatentScale(nw.Laplace(scale=1.0), "yes", 1.5).released(9.3),
        yes=nw.DiscreteLaplace(scale=2.0).released(6),
        calls=nw.Exact().released(7),
    )
    return Problem(model, release)


def chained_solution():
    n, yes = np.meshgrid(np.arange(80), np.arange(80), indexing="ij")
    log_joint = np.where(yes <= n, stats.nbinom.logpmf(n, 6.0, 0.5) + stats.betabinom.logpmf(yes, n, 2.0, 3.0), -np.inf)
    log_joint = log_joint + stats.laplace.logpdf(9.3, n, np.maximum(1.5, yes)) - np.abs(6 - yes) / 2.0
    log_joint = log_joint + stats.poisson.logpmf(7, 1.0 + yes)
    weight = np.exp(log_joint - log_joint.max())
    weight /= weight.sum()
    means = {"people": n, "yes": yes, "p": (2.0 + yes) / (5.0 + n), "rate": (6.0 + n) / 2.0}
    return {name: np.sum(weight * value) for name, value in means.items()}


def test_what_else_reads_the_total_and_the_number_of_records_is_weighed(seed):
    problem = chained_problem()
    draw_p = beta("bit")

    def conjugate(rng, records, state):
        return draw_p(rng, records, state) | {
            "rate": rng.gamma(6.0 + state["people"], 0.5),
            "calls": np.full(CHAINS, 7),
        }

    rng = np.random.default_rng(seed)
    records = RecordSteps(problem, "yes")
    assert records.owned == ("yes", "people")
    assert set(records.released) == {"yes", "people"}
    values = problem.model.draw(rng, ["rate", "p", "people"], CHAINS) | {"calls": np.full(CHAINS, 7)}
    state, kept = records.start(rng, values, CHAINS), []
    for _ in range(160):
        state, _ = records.sweep(rng, state, values)
        values |= records.values(state) | conjugate(rng, records, state)
        kept.append({name: np.array(value) for name, value in values.items()})
    ran = Ran({name: np.stack([one[name] for one in kept[40:]]) for name in values}, [])
    assert max(abs(ran.z(name, lambda x: x, mean)) for name, mean in chained_solution().items()) < LIMIT


def bits_of_unknown_number(prior=40.0, released=63):
    model = nw.Model(
        prior={"size": dist.Poisson(prior)},
        statistics={"yes": nw.Total({"bit": dist.Bernoulli(0.5)}, lambda bit: bit, "size")},
    )
    return Problem(model, nw.Release(yes=nw.DiscreteLaplace(scale=1.0).released(released)))


@pytest.mark.long
def test_the_number_of_records_grows_past_any_capacity(seed):
    """Yes and no answers are independent Poisson(20); chains start with no record at all."""
    problem = bits_of_unknown_number()
    rng, records = np.random.default_rng(seed), RecordSteps(problem, "yes")
    state = records.start(rng, {"size": np.zeros(64, dtype=np.int64)}, 64)
    assert np.all(records.total(state) == 0)
    first, kept = state["bit"].shape[1], []
    for sweep in range(160):
        state, _ = records.sweep(rng, state, records.values(state))
        if sweep >= 60:
            kept.append(records.values(state))
    capacity = state["bit"].shape[1]
    assert first < capacity == 2 ** (capacity.bit_length() - 1)
    yes = np.arange(200)
    weight = stats.poisson.pmf(yes, 20.0) * np.exp(-np.abs(63.0 - yes))
    weight /= weight.sum()
    mean = weight @ yes
    spread = weight @ (yes - mean) ** 2
    ran = Ran({name: np.stack([one[name] for one in kept]) for name in ("size", "yes")}, [])
    assert agree(ran, {"yes": (mean, spread), "size": (mean + 20.0, spread + 20.0)}) < LIMIT


# Within the sampler --------------------------------------------------------------------------------------------------


def augmented(problem, seed, chains=64, length=250):
    """What `Augmentation` gives, as `drive` does."""
    sampler = Augmentation(chains=chains)
    posterior = nw.sample(
        problem.model, problem.release, sampler, draws=chains * length, seed=seed, progress=False, on_failure="return"
    )
    names = [*problem.model.parameters, *problem.model.statistics]
    rows = {name: posterior[name].reshape(chains, length, *posterior[name].shape[1:]) for name in names}
    return Ran({name: np.swapaxes(value, 0, 1) for name, value in rows.items()}, []), posterior


@pytest.mark.long
def test_large_noise_does_not_slow_the_sampler_down(seed):
    """Records in turn with parameters alone would give one independent draw in about 300 here."""
    ran, posterior = augmented(normal_problem(n=300, scale=200.0, released=150.0), seed)
    assert agree(ran, normal_solution(n=300, scale=200.0, released=150.0)) < LIMIT
    assert posterior.ess["mu"] > len(posterior) / 20


@pytest.mark.long
def test_the_sampler_weighs_all_that_reads_a_total(seed):
    ran, _ = augmented(chained_problem(), seed, chains=32, length=150)
    assert max(abs(ran.z(name, lambda x: x, mean)) for name, mean in chained_solution().items()) < LIMIT


class WithoutNoise(Renewal):
    """Renews the records without asking the release."""

    def __init__(self, joint, name):
        super().__init__(joint, name)
        self.density = self.bare.touching(self.names)


@pytest.mark.long
def test_renewing_records_without_the_noise_ratio_is_seen(seed, monkeypatch):
    monkeypatch.setattr("noisewise.samplers.augmentation.Renewal", WithoutNoise)
    ran, _ = augmented(normal_problem(n=30, scale=40.0, released=60.0), seed)
    assert agree(ran, normal_solution(n=30, scale=40.0, released=60.0)) > 2 * LIMIT


# Geweke's joint test: theta, records and release in turn; each chain has a release of its own -----------------------


class OwnRelease(RecordSteps):
    """Records whose chains each explain a release of their own."""

    shared = 0


def geweke(seed, kind=OwnRelease, chains=2_000, rounds=12):
    """z-scores of the joint law's moments after rounds of (records | theta, release), theta | records, release | total.

    Chains start in the joint law, which every step must keep.
    """
    problem, rng = Problem(*_clamped_problem()), np.random.default_rng(seed)
    records, mechanism, draw_p = kind(problem, "sums"), problem.release["sums"].mechanism, beta("flag")
    values = problem.model.draw(rng, ["p", "size"], chains)
    state = records.start(rng, values, chains)
    scales = np.broadcast_to(mechanism.scale, (chains, 2))
    for _ in range(rounds):
        noisy = mechanism.sample(rng, records.total(state))
        lanes = jax.tree.unflatten(jax.tree.structure(mechanism), [scales])
        records.released = {"sums": (lanes, np.asarray(noisy, dtype=np.int64))}
        state, _ = records.sweep(rng, state, values)
        values |= records.values(state)
        values |= draw_p(rng, records, state)
    flag, amount = values["p"], 6.0
    truths = [(flag, 0.4), (flag**2, 0.2), (values["size"], 6.0), (values["size"] ** 2.0, 42.0)]
    mean_clamped = 0.4 * 1.6 + 0.6 * 1.25
    truths += [(values["sums"][:, 0], amount * 0.4), (values["sums"][:, 1], amount * mean_clamped)]
    truths += [(values["sums"][:, 0] * flag, 6.0 * 0.2)]
    return max(abs((x.mean() - truth) / (x.std() / np.sqrt(chains))) for x, truth in truths)


def test_the_joint_law_of_parameters_records_and_release_is_kept(seed):
    assert geweke(seed) < LIMIT


# Ways to get it wrong: the same checks must see them ----------------------------------------------------------------


class WithoutNoiseRatio(RecordSteps):
    """Accepts every record."""

    def _log_weight(self, total, size, given, released):
        return super()._log_weight(total, size, given, {})


class WithoutPriorOfSize(RecordSteps):
    """Forgets n's own law when records are added."""

    def __init__(self, problem, name):
        super().__init__(problem, name)
        self.factors = ()


class OnlyLargerSizes(OwnRelease):
    """The window starts at the present number instead of anywhere around it."""

    def _resize(self, each, size, offset, *rest):
        return super()._resize(each, size, 0 * offset, *rest)


def test_dropping_the_noise_ratio_is_seen(seed):
    ran = drive(Problem(*_bits_problem()), "yes", beta("bit"), seed, kind=WithoutNoiseRatio)
    assert agree(ran, solution("total-of-bits")) > 2 * LIMIT


def test_a_wrong_update_of_the_total_is_seen(seed, monkeypatch):
    def without_the_last(each, size):
        return jnp.sum(each[:, :-1], axis=1)

    monkeypatch.setattr("noisewise.inference.record_steps._sum_present", without_the_last)
    ran = drive(Problem(*_bits_problem()), "yes", beta("bit"), seed)
    assert agree(ran, solution("total-of-bits")) > 2 * LIMIT


@pytest.mark.long
def test_forgetting_the_prior_of_the_number_of_records_is_seen(seed):
    ran = drive(Problem(*_clamped_problem()), "sums", beta("flag"), seed, kind=WithoutPriorOfSize, sweeps=60)
    assert agree(ran, solution("clamped-total-unknown-n")) > 2 * LIMIT


def test_a_lopsided_window_is_seen_by_the_joint_test(seed):
    assert geweke(seed, OnlyLargerSizes) > 2 * LIMIT


# The guarantee's bound on acceptance --------------------------------------------------------------------------------


@cache
def clamped_model(high):
    return nw.Model(
        prior={"mu": dist.Normal(0.0, 1.0)},
        statistics={"total": nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: jnp.clip(x, 0.0, high), 30)},
    )


def clamped_to_unit(neighbours, high=1.0, mechanism=None):
    model = clamped_model(high)
    noise = mechanism or nw.Laplace(epsilon=0.7, sensitivity=1.0)
    return Problem(model, nw.Release(total=(noise.under(neighbours) if neighbours else noise).released(9.0)))


def least_acceptance(problem, seed):
    return min(info["least"] for info in drive(problem, "total", normal, seed, sweeps=40).infos)


def test_acceptance_never_falls_below_the_bound_of_pure_privacy(seed):
    problem = clamped_to_unit("replace-one")
    floor = acceptance_floor(problem)
    assert np.isclose(floor, np.exp(-0.7))
    assert floor - 1e-12 <= least_acceptance(problem, seed) < floor + 0.01  # and comes close to it
    assert np.isclose(acceptance_floor(clamped_to_unit("add-remove")), np.exp(-1.4))
    assert np.isclose(acceptance_floor(clamped_to_unit(None)), np.exp(-1.4))


@pytest.mark.parametrize("high", briefly([1.0, 3.0], [3.0]))
def test_bound_and_least_acceptance_are_among_the_diagnostics(high, seed):
    """A curator who clamped to [0, 1]: from a model that has 3 for 1, acceptance falls below the bound."""
    problem = clamped_to_unit("replace-one", high=high)
    sampler, settings = Augmentation(chains=16), dict(draws=400, seed=seed, on_failure="return")
    found = nw.sample(problem.model, problem.release, sampler, **settings).diagnostics
    assert found["acceptance_floor"] == pytest.approx(np.exp(-0.7))
    assert 0.0 < found["least_acceptance"] < 1.0
    assert (found["least_acceptance"] < found["acceptance_floor"] - 1e-12) == (high > 1.0)


def test_contributions_not_clamped_as_the_curator_did_fall_below_the_bound(seed):
    problem = clamped_to_unit("replace-one", high=3.0)
    assert least_acceptance(problem, seed) < 0.8 * acceptance_floor(problem)


def test_there_is_no_bound_without_a_pure_guarantee():
    for mechanism in (nw.Gaussian(rho=0.5, sensitivity=1.0), nw.Laplace(scale=2.0)):
        assert acceptance_floor(clamped_to_unit(None, mechanism=mechanism)) is None
    assert acceptance_floor(chained_problem()) is None


# Numbers ------------------------------------------------------------------------------------------------------------


def test_the_records_log_density_counts_those_present(seed):
    problem, rng = Problem(*_clamped_problem()), np.random.default_rng(seed)
    records = RecordSteps(problem, "sums")
    values = {"p": np.array([0.3, 0.6, 0.5]), "size": np.array([0, 4, 9])}
    state = records.start(rng, values, 3)
    with double():
        found = jax.jit(jax.vmap(records.log_density))(values, state)
    for chain, size in enumerate(values["size"]):
        truth = stats.bernoulli.logpmf(state["flag"][chain, :size], values["p"][chain]).sum()
        assert np.isclose(found[chain], truth, rtol=1e-12)


def test_totals_are_recomputed_from_the_records(seed):
    problem, rng = normal_problem(), np.random.default_rng(seed)
    records = RecordSteps(problem, "total")
    values = {"mu": np.linspace(-1.0, 1.0, 8)}
    state = records.start(rng, values, 8)
    state["total"] = state["total"] + 1e6  # a sweep does not trust it
    for _ in range(50):
        state, _ = records.sweep(rng, state, values)
        assert np.allclose(records.total(state), state["x"].sum(axis=1), rtol=1e-13, atol=1e-12)


def test_another_seed_or_release_compiles_nothing(seed):
    problem = normal_problem()
    drive(problem, "total", normal, seed, sweeps=2, warmup=1, chains=8)
    before = {key: len(program._programs) for key, program in problem.model.compiled.items()}
    other = Problem(problem.model, nw.Release(total=nw.Gaussian(scale=3.0).released(-4.0)))
    drive(other, "total", normal, seed + 1, sweeps=2, warmup=1, chains=8)
    assert before == {key: len(program._programs) for key, program in problem.model.compiled.items()}


def test_one_seed_gives_one_result(seed):
    runs = [drive(normal_problem(), "total", normal, seed, sweeps=3, warmup=0, chains=8).values for _ in range(2)]
    assert all(np.array_equal(runs[0][name], runs[1][name]) for name in runs[0])


def test_infinite_contributions_are_refused(seed):
    model = nw.Model(
        prior={"p": dist.Beta(2.0, 3.0)},
        statistics={"total": nw.Total({"bit": lambda p: dist.Bernoulli(p)}, lambda bit: 1.0 / bit, 5)},
    )
    records = RecordSteps(Problem(model, nw.Release(total=nw.Laplace(scale=1.0).released(3.0))), "total")
    with pytest.raises(nw.InputError, match="not a finite number"):
        records.start(np.random.default_rng(seed), {"p": np.full(4, 0.5)}, 4)


# Refusals -----------------------------------------------------------------------------------------------------------


def test_what_single_records_cannot_do_is_refused():
    bits = {"bit": lambda p: dist.Bernoulli(p)}

    def reason(statistics, release, prior=None):
        model = nw.Model({"p": dist.Beta(2.0, 3.0), **(prior or {})}, statistics)
        return why_not_in_steps(Problem(model, nw.Release(release)), "yes")

    noisy = nw.DiscreteLaplace(scale=1.0).released(3)
    assert reason({"yes": nw.Total(bits, lambda bit: bit, 5)}, {"yes": noisy}) is None
    assert "reads 'p'" in reason(
        {"yes": nw.Total(bits, lambda bit, p: bit * p, 5)}, {"yes": nw.Laplace(1.0).released(2)}
    )
    assert "Exact" in reason({"yes": nw.Total(bits, lambda bit: bit, 5)}, {"yes": nw.Exact().released(3)})
    short = nw.mechanisms.TruncatedLaplace(scale=1.0, bound=4.0).released(3.0)
    assert "TruncatedLaplace" in reason({"yes": nw.Total(bits, lambda bit: bit, 5)}, {"yes": short})
    chain = {"yes": nw.Total(bits, lambda bit: bit, 5), "more": nw.Simulator(lambda rng, yes: yes + rng.poisson(1.0))}
    assert "Simulator" in reason(chain, {"yes": noisy, "more": noisy})
    shared = {"yes": nw.Total(bits, lambda bit: bit, "n"), "no": nw.Total({"c": dist.Bernoulli(0.3)}, lambda c: c, "n")}
    assert "a Total" in reason(shared, {"yes": noisy, "no": noisy}, {"n": dist.Poisson(5.0)})
    assert "every record" in reason({"yes": nw.Total(bits, lambda bit: bit, 10**8)}, {"yes": noisy})


def test_records_whose_law_reads_their_number_are_refused():
    """A step in the number would need the density of every record at the new one. Without: sd(n) 1.44 for 1.13."""
    total = nw.Total({"x": lambda mu, n: dist.Normal(mu + 0.2 * n, 1.0)}, lambda x: jnp.clip(x, -5.0, 5.0), n="n")
    model = nw.Model({"mu": dist.Normal(0.0, 1.0), "n": dist.Poisson(10.0)}, {"total": total})
    release = nw.Release(total=nw.Laplace(scale=1.0).released(20.0))
    with pytest.raises(nw.InputError, match="needs laws of the records of 'total' that do not read their number, 'n'"):
        nw.sample(model, release, nw.Augmentation(), draws=100, seed=1)
