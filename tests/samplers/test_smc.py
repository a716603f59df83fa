"""SMC: posterior and evidence exact against every kind of target, bridges over noise that ends, and its controls."""

from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, LIMIT, z_of_mean
from scipy import special, stats
from targets import all_targets, count_model, count_release, lalonde_model, lalonde_release

import noisewise as nw
from noisewise.diagnostics import weights
from noisewise.errors import InputError
from noisewise.inference.problem import Problem
from noisewise.mechanisms.product import Product
from noisewise.mechanisms.truncated_laplace import TruncatedLaplace
from noisewise.samplers import smc
from noisewise.samplers.smc import SMC, Bridge, next_temperature

BY_NAME = {target.name: target for target in all_targets()}
ISLANDS = 16
FEW_LIMIT = float(stats.t.isf(FALSE_ALARM / 2, ISLANDS - 1))
"""|t| beyond this is an alarm, where the error comes from the spread of 16 independent populations."""


def t_scores(posterior, name, mean, variance):
    """t of mean and of variance by the spread of the islands."""
    values = posterior[name].astype(float)

    def t(terms):
        return z_of_mean(terms.reshape(posterior.islands, -1, *terms.shape[1:]).mean(axis=1), 0.0)

    return t(values - mean), t((values - mean) ** 2 - variance)


def is_exact(posterior, truth):
    """Whether means, variances and evidence all agree with the truth."""
    scores = [score for name in posterior.draws for score in t_scores(posterior, name, *truth[name])]
    scores.append((posterior.log_evidence - truth["log_evidence"]) / posterior.log_evidence_se)
    return all(np.all(np.abs(score) < FEW_LIMIT) for score in scores)


def test_one_simulation_per_walker_is_exact(seed):
    posterior = nw.sample(count_model(50.0), count_release(), SMC(simulations=1), draws=8192, seed=seed)
    assert posterior.islands == ISLANDS
    assert len(posterior) == 8192
    assert is_exact(posterior, BY_NAME["count-50"].solve())


@pytest.mark.long
def test_lalonde_agrees_with_rejection(seed, lalonde_reference):
    release = lalonde_release(lalonde_reference["noisy_a"]["released"])
    found = nw.sample(lalonde_model(), release, SMC(particles=256), draws=4096, seed=seed)
    exact = nw.sample(lalonde_model(), release, nw.Rejection(), draws=50_000, seed=seed)
    for name in found.draws:
        groups = found[name].reshape(ISLANDS, -1).mean(axis=1)
        error = exact[name].std() / np.sqrt(len(exact))
        assert abs(z_of_mean(groups, exact[name].mean(), error)) < FEW_LIMIT, name
    error = np.hypot(found.log_evidence_se, exact.log_evidence_se)
    assert abs(found.log_evidence - exact.log_evidence) < FEW_LIMIT * error


# Evidence ------------------------------------------------------------------------------------------------------------


def ratio_score(posterior, log_evidence):
    """z of the islands' evidences, over the truth, against 1."""
    return z_of_mean(np.exp(np.array(posterior.diagnostics["log_evidences"]) - log_evidence), 1.0)


SMALL = SMC(islands=300, particles=24, simulations=1, schedule=(0.4, 1.0), min_ess=1.0)


@pytest.mark.long
def test_evidence_is_unbiased_with_few_particles(seed):
    """300 populations of 24 walkers: any bias of one would show in their average."""
    truth = BY_NAME["count-25"].solve()["log_evidence"]
    posterior = nw.sample(count_model(), count_release(), SMALL, draws=300, seed=seed, on_failure="return")
    assert posterior.diagnostics["schedule"] == SMALL.schedule
    assert abs(ratio_score(posterior, truth)) < LIMIT


@pytest.mark.long
def test_a_bias_of_the_evidence_is_caught(seed, monkeypatch):
    """Negative control: weights that forget the temperature before."""
    truth = BY_NAME["count-25"].solve()["log_evidence"]

    def forgetful(self, walkers, now, then):
        return smc.height(self.moves.weigh(walkers, partial(self.bridge, then)))

    monkeypatch.setattr(smc.Voyage, "reweigh", forgetful)
    wrong = nw.sample(count_model(), count_release(), SMALL, draws=300, seed=seed, on_failure="return")
    assert abs(ratio_score(wrong, truth)) > LIMIT


def test_the_evidence_of_islands_is_their_average_and_its_error_their_spread(seed):
    small = SMC(islands=8, particles=32, simulations=1)
    posterior = nw.sample(count_model(), count_release(), small, draws=64, seed=seed, on_failure="return")
    logs = np.array(posterior.diagnostics["log_evidences"])
    evidence = np.exp(logs - logs.max())
    assert len(evidence) == 8
    assert posterior.log_evidence == pytest.approx(np.log(evidence.mean()) + logs.max(), rel=1e-12)
    error = evidence.std(ddof=1) / np.sqrt(8) / evidence.mean()
    assert posterior.log_evidence_se == pytest.approx(error, rel=1e-9)


def test_a_schedule_is_passed_back(seed):
    few = {"islands": 4, "particles": 64}
    first = nw.sample(count_model(75.0), count_release(), SMC(**few), draws=256, seed=seed, on_failure="return")
    assert first.diagnostics["schedule"][-1] == 1.0
    frozen = SMC(schedule=first.diagnostics["schedule"], **few)
    second = nw.sample(count_model(75.0), count_release(), frozen, draws=256, seed=seed + 1, on_failure="return")
    assert second.diagnostics["schedule"] == first.diagnostics["schedule"]


def test_temperatures_leave_the_share_asked_for(seed):
    log_eta = -np.random.default_rng(seed).exponential(20.0, 1000)
    found = next_temperature(lambda t: (t - 0.01) * log_eta, 0.01, 0.5)
    assert abs(weights.effective_size((found - 0.01) * log_eta) - 500.0) < 1e-3
    dead = np.where(np.arange(1000) < 900, -np.inf, log_eta)  # nine of ten cannot have given the release
    found = next_temperature(lambda t: np.where(dead > -np.inf, t * dead, -np.inf), 0.0, 0.5)
    assert abs(weights.effective_size(found * dead) - 50.0) < 1e-3
    assert next_temperature(lambda t: t * 1e-3 * log_eta, 0.0, 0.5) == 1.0


# Bridges ------------------------------------------------------------------------------------------------------------


@cache
def conflict():
    """Noise that ends at 3, four standard deviations away from where the prior has the count."""
    model = nw.Model(prior={"theta": dist.Gamma(20.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
    release = nw.Release(count=TruncatedLaplace(scale=2.0, bound=3.0).released(45.3))
    s = np.arange(43, 49)
    log_noise = -np.abs(45.3 - s) / 2.0 - np.log(4.0 * -np.expm1(-1.5))
    log_joint = stats.nbinom.logpmf(s, 20.0, 0.5) + log_noise
    log_evidence = special.logsumexp(log_joint)
    weight = np.exp(log_joint - log_evidence)
    mean = weight @ s
    spread = weight @ (s - mean) ** 2
    theta = (20.0 + mean) / 2.0, (spread + (20.0 + mean)) / 4.0
    return model, release, {"theta": theta, "count": (mean, spread), "log_evidence": log_evidence}


def test_bounded_noise_is_reached_by_narrowing(seed):
    model, release, truth = conflict()
    posterior = nw.sample(model, release, SMC(particles=128), draws=2048, seed=seed)
    assert len(posterior.diagnostics["schedule"]) > 1
    assert np.all(np.abs(posterior["count"] - 45.3) <= 3.0)
    assert is_exact(posterior, truth)


def test_powers_of_the_density_cannot_reach_it(seed, monkeypatch):
    """Negative control: eta^t is zero wherever eta is, so nearly every walker of the prior is lost at once."""
    model, release, _ = conflict()
    monkeypatch.setattr(smc, "has_bounds", lambda *arguments: False)
    sampler = SMC(simulations=1, particles=64, min_ess=1.0)
    posterior = nw.sample(model, release, sampler, draws=64, seed=seed, on_failure="return")
    assert posterior.status in ("hopeless", "no_weight")


@pytest.mark.parametrize("name", ["count-25", "truncated-laplace", "latent-scale", "product", "rounded", "tulap"])
def test_bridges_end_at_the_noise_itself(name, seed):
    model, release = BY_NAME[name].make()
    bridge, values = Bridge(Problem(model, release)), model.simulate(200, seed)
    for statistic in release:
        exact = Problem(model, release).log_eta(statistic, values)
        assert np.array_equal(bridge(1.0, statistic, values), exact)
        assert np.all(bridge(0.0, statistic, values) == 0.0)
        near = bridge(1.0 - 1e-9, statistic, values)
        alive = (exact > -np.inf) & (near > -np.inf)
        assert np.mean((exact > -np.inf) == (near > -np.inf)) > 0.99
        assert np.allclose(near[alive], exact[alive], atol=1e-5)


def test_bounded_parts_of_a_product_are_widened(seed):
    mechanism = Product([TruncatedLaplace(scale=1.0, bound=2.0), nw.Laplace(scale=1.0)])
    far = np.array([[50.0, 50.0]])
    assert mechanism.log_prob(np.zeros(2), far)[0, 0] == -np.inf
    assert np.all(smc.widened(mechanism, 0.01, np.zeros(2), far, {}) > -np.inf)


def test_whole_statistics_without_noise_are_approached(seed):
    """Beta(2, 3) with 90 of 100 seen exactly; evidence: the Beta-Binomial probability."""
    model = nw.Model(prior={"p": dist.Beta(2.0, 3.0)}, statistics={"yes": lambda p: dist.Binomial(100, p)})
    release = nw.Release(yes=nw.Exact().released(90))
    posterior = nw.sample(model, release, SMC(particles=128), draws=2048, seed=seed)
    assert np.all(posterior["yes"] == 90)
    of_mean, of_variance = t_scores(posterior, "p", 92 / 105, 92 * 13 / (105**2 * 106))
    assert abs(of_mean) < FEW_LIMIT
    assert abs(of_variance) < FEW_LIMIT
    log_evidence = stats.betabinom.logpmf(90, 100, 2.0, 3.0)
    assert abs(posterior.log_evidence - log_evidence) < FEW_LIMIT * posterior.log_evidence_se


# The sampler's manners ----------------------------------------------------------------------------------------------


def test_threads_change_nothing(seed):
    model, release = BY_NAME["clamped-total-unknown-n"].make()
    sampler = SMC(islands=4, particles=64)
    one, four = (
        nw.sample(model, release, sampler, draws=256, seed=seed, engine=nw.Threads(n), on_failure="return")
        for n in (1, 4)
    )
    for name in one.draws:
        assert np.array_equal(one[name], four[name])
    assert one.log_evidence == four.log_evidence


def test_walkers_that_never_move_count_once(seed, monkeypatch):
    """Duplicates: without moves the final population repeats its ancestors, and the effective size says so."""

    def still(self, rng, walkers, kernel, t, poll, *, fresh):
        shape = len(self.moves.list), len(smc.LEVELS)
        return np.zeros(shape), np.ones(shape), 0.0

    monkeypatch.setattr(smc.Voyage, "sweep", still)
    release = nw.Release(count=nw.Laplace(scale=0.5).released(15.0))
    posterior = nw.sample(count_model(5.0), release, SMC(simulations=1), draws=8192, seed=seed, on_failure="return")
    assert posterior.diagnostics["distinct"] < 2000
    assert posterior.diagnostics["ess"] <= posterior.diagnostics["distinct"]


def test_copies_count_once_even_where_islands_agree(seed):
    """Fifty different rows, each twenty times in each of four islands: their means are the same, and worth fifty."""
    rows = np.tile(np.random.default_rng(seed).standard_normal(50), 80)
    run, numbers = SimpleNamespace(status="complete", sampler=SMC()), {}
    smc._Run._judge(run, {"x": rows}, 4, 4, numbers)
    assert numbers["ess"] == 50
    assert run.status == "low_ess"


def test_whole_numbers_are_no_copies(seed):
    """A yes-no parameter and a count below six: twelve different rows at most, and thousands of effective ones."""
    model = nw.Model(prior={"z": dist.Bernoulli(0.4)}, statistics={"yes": lambda z: dist.Binomial(5, 0.2 + 0.6 * z)})
    release = nw.Release(yes=nw.DiscreteLaplace(scale=1.0).released(4))
    posterior = nw.sample(model, release, SMC(), draws=4096, seed=seed)
    assert posterior.diagnostics["distinct"] <= 12
    s = np.arange(6)
    joint = np.array([p * stats.binom.pmf(s, 5, q) for p, q in ((0.6, 0.2), (0.4, 0.8))]) * np.exp(-np.abs(4 - s))
    truth = joint[1].sum() / joint.sum()
    of_mean, _ = t_scores(posterior, "z", truth, truth * (1 - truth))
    assert abs(of_mean) < FEW_LIMIT


def test_continuous_statistics_without_noise_are_refused():
    model = nw.Model(prior={"mu": dist.Normal(0.0, 1.0)}, statistics={"x": lambda mu: dist.Normal(mu, 1.0)})
    with pytest.raises(InputError, match="SMC would never accept: 'x' is continuous and has no noise"):
        nw.sample(model, nw.Release(x=nw.Exact().released(1.0)), SMC(), draws=100, seed=1)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"islands": 1}, {"particles": 2}, {"keep": 1.0}, {"min_ess": 0.0}, {"max_seconds": -1.0}),
        *({"schedule": (0.5, 0.2, 1.0)}, {"schedule": (0.5,)}, {"schedule": ()}),
    ],
)
def test_bad_settings_are_refused(wrong):
    with pytest.raises(InputError, match=f"SMC: '{next(iter(wrong))}'"):
        SMC(**wrong)


def test_particles_must_suffice_for_the_draws():
    with pytest.raises(InputError, match="at least the 63 rows asked of each of 16 islands"):
        nw.sample(count_model(), count_release(), SMC(particles=32), draws=1000, seed=1)


def test_statuses_do_not_pretend(seed):
    def status(sampler, release=None):
        return nw.sample(count_model(), release or count_release(), sampler, draws=512, seed=seed, on_failure="return")

    assert status(SMC(islands=4, particles=128, min_ess=10**6)).status == "low_ess"
    budget = status(SMC(simulations=1, max_proposals=100_000))
    assert budget.status == "max_proposals"
    assert budget.proposals <= 100_000
    assert 0 < budget.islands < 16
    assert status(SMC(max_seconds=1e-6)).status == "max_seconds"
    impossible = nw.Release(count=nw.Exact().released(-3))
    assert status(SMC(islands=2, particles=256), impossible).status == "hopeless"


def test_results_are_saved_with_their_schedule(tmp_path, seed):
    sampler = SMC(islands=4, schedule=[0.5, 1.0])
    posterior = nw.sample(count_model(), count_release(), sampler, draws=800, seed=seed, on_failure="return")
    posterior.save(tmp_path / "run.nc")
    again = nw.Posterior.load(tmp_path / "run.nc")
    assert again.sampler == sampler
    assert again.islands == 4
    assert np.array_equal(again["theta"], posterior["theta"])
