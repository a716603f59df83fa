"""MCMC: exact against every kind of target, its kernel against Geweke's test, and the controls that must fail both."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, LIMIT, z_of_mean
from scipy import stats
from targets import (
    all_targets,
    brief_rows,
    count_model,
    count_release,
    lalonde_model,
    lalonde_release,
    new_count_model,
)

import noisewise as nw
from noisewise.errors import InferenceError, InputError
from noisewise.inference.problem import Problem
from noisewise.mechanisms.truncated_laplace import TruncatedLaplace
from noisewise.samplers.mcmc import MCMC, _thinning, layout
from noisewise.samplers.walking import moves as moves_module
from noisewise.samplers.walking.moves import Moves

BY_NAME = {target.name: target for target in all_targets()}
SUPERCHAINS = 16
FEW_LIMIT = float(stats.t.isf(FALSE_ALARM / 2, SUPERCHAINS - 1))
"""|t| beyond this is an alarm, where the error comes from the spread of 16 independent groups."""


def t_scores(posterior, name, mean, variance):
    """t of mean and of variance by the spread of the superchains, whose starts were independent."""
    values = posterior[name].astype(float)

    def t(terms):
        return z_of_mean(terms.reshape(SUPERCHAINS, -1, *terms.shape[1:]).mean(axis=1), 0.0)

    return t(values - mean), t((values - mean) ** 2 - variance)


def is_exact(posterior, truth):
    """Whether all means and variances agree with the truth."""
    scores = [t_scores(posterior, name, *truth[name]) for name in posterior.draws]
    return all(np.all(np.abs(score) < FEW_LIMIT) for pair in scores for score in pair)


@pytest.mark.parametrize("simulations", [1, 5])
def test_any_number_of_simulations_is_exact(simulations, seed):
    posterior = nw.sample(
        count_model(50.0), count_release(), MCMC(simulations=simulations), draws=10_000, seed=seed, on_failure="return"
    )
    assert len(posterior) == 10_240
    assert posterior.chains == 256
    assert posterior.superchains == SUPERCHAINS
    assert is_exact(posterior, BY_NAME["count-50"].solve())


def test_refreshing_the_current_estimate_is_caught(seed, monkeypatch):
    """Negative control: with the statistic of the current state simulated again at every step, the check fails."""
    step = Moves.step

    def refreshed(self, rng, walkers, number, kernel, target, poll, **how):
        again = self._simulated(
            rng, walkers.free, walkers.parameters, walkers.log_prior, {}, self.statistics, target, poll
        )
        walkers.statistics, walkers.log_eta = again.statistics, again.log_eta
        return step(self, rng, walkers, number, kernel, target, poll, **how)

    truth = BY_NAME["count-50"].solve()
    sampler = MCMC(simulations=1, chains=64)
    kept = nw.sample(count_model(50.0), count_release(), sampler, draws=4096, seed=seed, on_failure="return")
    assert is_exact(kept, truth)
    monkeypatch.setattr(Moves, "step", refreshed)
    wrong = nw.sample(count_model(50.0), count_release(), sampler, draws=4096, seed=seed, on_failure="return")
    assert not is_exact(wrong, truth)


@pytest.mark.long
def test_lalonde_agrees_with_rejection(seed, lalonde_reference):
    release = lalonde_release(lalonde_reference["noisy_a"]["released"])
    chains = nw.sample(lalonde_model(), release, MCMC(warmup=128), draws=4096, seed=seed, on_failure="return")
    exact = nw.sample(lalonde_model(), release, nw.Rejection(), draws=50_000, seed=seed)
    assert chains.status == "complete"
    for name in chains.draws:
        groups = chains[name].reshape(SUPERCHAINS, -1).mean(axis=1)
        error = exact[name].std() / np.sqrt(len(exact))
        assert abs(z_of_mean(groups, exact[name].mean(), error)) < FEW_LIMIT, name


# Geweke's joint-distribution test ------------------------------------------------------------------------------------


def moving_support_model():
    """The inner level's support moves with the outer level; the statistic sees the inner one only."""
    return nw.Model(
        prior={"top": dist.Gamma(4.0, 1.0), "level": lambda top: dist.Uniform(0.0, top)},
        statistics={"count": lambda level: dist.Poisson(level), "other": lambda level: dist.Normal(level, 1.0)},
    )


def unknown_size_model():
    return nw.Model(
        prior={"p": dist.Beta(2.0, 3.0), "size": dist.Poisson(6.0)},
        statistics={"yes": lambda size, p: dist.Binomial(size, p), "total": lambda size: dist.Normal(size, 1.0)},
    )


GEWEKE = {
    "count": (lambda: count_model(5.0), {"count": nw.Laplace(scale=2.0)}),
    "moving-support": (moving_support_model, {"count": nw.Laplace(scale=1.0), "other": nw.Gaussian(scale=1.0)}),
    "unknown-size": (unknown_size_model, {"yes": nw.Laplace(scale=1.0), "total": nw.Gaussian(scale=1.0)}),
}


def geweke_scores(model, mechanisms, simulations, seed, only=None, walkers=4000, alternations=25, fresh=8):
    """z of first and second moments, after alternating release | statistic and one sweep given that release.

    One sweep in `fresh` proposes from the prior.

    Walkers start from the prior and run independently of each other, so at any time their law must be the prior's:
    z-scores of a plain sample against the model's own draws.
    """
    release = nw.Release({name: mechanism.released(0.0) for name, mechanism in mechanisms.items()})
    problem = Problem(model, release)
    moves = Moves(problem, simulations)
    rng = np.random.default_rng(seed)
    published = {}

    def target(name, values):
        return mechanisms[name].log_prob(np.repeat(published[name], simulations), values[name])

    def flat(name, values):
        return np.zeros(len(values[name]))

    state = moves.from_prior(rng, walkers, flat, lambda: None)
    kernel = moves.kernel(state.free, state.parameters, np.zeros(state.free.shape[1]))
    for turn in range(alternations):
        rows = state.rows(rng, moves.parts)
        published = {name: mechanism.sample(rng, rows[name]) for name, mechanism in mechanisms.items()}
        state.log_eta = moves.weigh(state, target)
        if only is None:
            moves.sweep(rng, state, kernel, target, lambda: None, fresh=turn % fresh == fresh - 1)
        else:
            moves.step(rng, state, only, kernel, target, lambda: None)
    found, prior = state.rows(rng, moves.parts), model.simulate(100_000, seed + 1)
    scores = []
    for first, second in itertools.combinations_with_replacement(["", *found], 2):
        if second:
            sample, truth = (values[second] * (values[first] if first else 1.0) for values in (found, prior))
            scores.append(z_of_mean(sample, truth.mean(), truth.std() / np.sqrt(len(truth))))
    return np.array(scores)


@pytest.mark.parametrize(
    ("case", "simulations"),
    brief_rows(
        {f"{case}-{number}": (case, number) for case in GEWEKE for number in (1, 3)},
        ["count-1", "moving-support-3", "unknown-size-3"],
    ),
)
def test_kernel_passes_gewekes_test(case, simulations, seed):
    make, mechanisms = GEWEKE[case]
    assert np.all(np.abs(geweke_scores(make(), mechanisms, simulations, seed)) < LIMIT)


def test_proposals_from_the_prior_pass_gewekes_test(seed):
    """Every sweep proposes anew: its prior must not count twice."""
    make, mechanisms = GEWEKE["count"]
    scores = geweke_scores(make(), mechanisms, 1, seed, walkers=8_000, alternations=10, fresh=1)
    assert np.all(np.abs(scores) < LIMIT)


def test_kernel_without_the_jacobian_fails_gewekes_test(seed, monkeypatch):
    right = moves_module.Space.points

    def without(self, free, whole=None):
        values, _ = right(self, free, whole)
        return values, stats.gamma.logpdf(values["theta"], 5.0)

    monkeypatch.setattr(moves_module.Space, "points", without)
    assert np.any(np.abs(geweke_scores(new_count_model(5.0), GEWEKE["count"][1], 1, seed)) > LIMIT)


def test_statistics_left_behind_by_a_moving_support_fail_gewekes_test(seed, monkeypatch):
    make, mechanisms = GEWEKE["moving-support"]
    assert np.all(np.abs(geweke_scores(make(), mechanisms, 1, seed, only=1)) < LIMIT)
    monkeypatch.setattr(moves_module, "moving_supports", lambda space: set())
    assert np.any(np.abs(geweke_scores(make(), mechanisms, 1, seed, only=1)) > LIMIT)


def test_a_parameter_that_is_a_function_of_another_takes_its_statistics_along(seed, monkeypatch):
    """b = 2 a: when a moves, so does the statistic that only b is named by. Left behind, it is caught."""

    def problem():
        prior = {"a": dist.Normal(0.0, 2.0), "b": lambda a: dist.Delta(2.0 * a)}
        model = nw.Model(prior=prior, statistics={"s": lambda b: dist.Normal(b, 1.0)})
        return model, nw.Release(s=nw.Gaussian(scale=1.0).released(4.0))

    truth = {"a": (16 / 9, 4 / 9), "b": (32 / 9, 16 / 9), "s": (34 / 9, 17 / 18)}
    sampler = MCMC(chains=64, warmup=64)
    assert {move.parameters: move.statistics for move in Moves(Problem(*problem())).list}["a",] == ("s",)
    assert is_exact(nw.sample(*problem(), sampler, draws=4096, seed=seed, on_failure="return"), truth)
    monkeypatch.setattr(moves_module, "moving_supports", lambda space: set())
    assert not is_exact(nw.sample(*problem(), sampler, draws=4096, seed=seed, on_failure="return"), truth)


def test_steps_to_where_nothing_can_be_drawn_are_not_taken(seed):
    """A step of log theta can reach 1e20, where no count can be simulated and the prior is exp(-1e19)."""
    model = nw.Model(prior={"theta": dist.Gamma(0.1, 0.1)}, statistics={"count": lambda theta: dist.Poisson(theta)})
    release = nw.Release(count=nw.Laplace(scale=5.0).released(20.0))
    s = np.arange(2_000)
    weight = np.exp(stats.nbinom.logpmf(s, 0.1, 0.1 / 1.1) - np.abs(20.0 - s) / 5.0)
    weight /= weight.sum()
    mean, theta = weight @ s, (0.1 + s) / 1.1
    truth = {"count": (mean, weight @ (s - mean) ** 2), "theta": (weight @ theta, 0.0)}
    truth["theta"] = weight @ theta, weight @ (theta / 1.1 + (theta - weight @ theta) ** 2)
    assert is_exact(nw.sample(model, release, MCMC(), draws=8192, seed=seed, on_failure="return"), truth)


def test_statistics_picked_evenly_are_caught(seed, monkeypatch):
    """Negative control: of several simulations, the one returned must be picked by its eta, not just be the first."""

    def first(self, rng, parts):
        return self.parameters | {name: values[:: self.log_eta.shape[1]] for name, values in self.statistics.items()}

    monkeypatch.setattr(moves_module.Walkers, "rows", first)
    sampler = MCMC(simulations=5, chains=64, warmup=128)
    wrong = nw.sample(count_model(50.0), count_release(), sampler, draws=2048, seed=seed, on_failure="return")
    assert not is_exact(wrong, BY_NAME["count-50"].solve())


# Which moves there are -----------------------------------------------------------------------------------------------


def test_moves_simulate_only_what_depends_on_them():
    problem = Problem(lalonde_model(), lalonde_release([1.0, 2.0, 3.0, 4.0]))
    found = {move.parameters: set(move.statistics) for move in Moves(problem).list if len(move.parameters) == 1}
    assert found == {
        ("tau",): {"mean_t"},
        ("mu",): {"mean_t", "mean_c"},
        ("sigma_t",): {"mean_t", "var_t"},
        ("sigma_c",): {"mean_c", "var_c"},
    }


def test_a_level_moves_without_new_statistics_where_supports_stand_still():
    model, release = BY_NAME["hierarchy"].make()
    found = {move.parameters: move.statistics for move in Moves(Problem(model, release)).list}
    assert found["level",] == ()
    assert found["rate",] == ("count",)
    moving = nw.Release(count=nw.Laplace(scale=1.0).released(2.0), other=nw.Gaussian(scale=1.0).released(1.0))
    found = {move.parameters: move.statistics for move in Moves(Problem(moving_support_model(), moving)).list}
    assert found["top",] == ("count", "other")


def test_parts_are_joined_by_edges_and_mechanisms():
    model, release = BY_NAME["statistic-of-statistic"].make()
    assert Moves(Problem(model, release)).parts == [["n", "yes"]]
    problem = Problem(lalonde_model(), lalonde_release([1.0, 2.0, 3.0, 4.0]))
    assert sorted(map(tuple, Moves(problem).parts)) == [("mean_c",), ("mean_t",), ("var_c",), ("var_t",)]


# The sampler's manners ----------------------------------------------------------------------------------------------


def test_threads_change_nothing(seed):
    model, release = BY_NAME["clamped-total-unknown-n"].make()
    sampler = MCMC(chains=32, warmup=16, thin=1)
    one, four = (
        nw.sample(model, release, sampler, draws=512, seed=seed, engine=nw.Threads(n), on_failure="return")
        for n in (1, 4)
    )
    for name in one.draws:
        assert np.array_equal(one[name], four[name])
    other = nw.sample(model, release, sampler, draws=512, seed=seed + 1, on_failure="return")
    assert not np.array_equal(one["p"], other["p"])


@pytest.mark.parametrize(
    ("draws", "expected"), [(100, (16, 8)), (1000, (48, 21)), (4096, (256, 16)), (10_000, (256, 40))]
)
def test_chains_are_equally_long_and_never_very_short(draws, expected):
    assert layout(MCMC(), draws) == expected


def test_the_slowest_scalar_decides_how_many_sweeps_lie_between_draws(seed):
    """An autoregression of correlation 0.9 needs 19 sweeps for an independent draw; half of them lie between two."""
    noise = np.random.default_rng(seed).standard_normal((64, 400, 2))
    slow = noise.copy()
    for step in range(1, slow.shape[1]):
        slow[:, step, 1] = 0.9 * slow[:, step - 1, 1] + np.sqrt(1.0 - 0.81) * noise[:, step, 1]
    assert _thinning(noise) == 1
    assert 7 <= _thinning(slow) <= 13
    assert _thinning(slow[:, :, ::-1]) == _thinning(slow)


@pytest.mark.long
def test_few_chains_have_their_own_starts(seed):
    posterior = nw.sample(count_model(), count_release(), MCMC(chains=4), draws=4000, seed=seed, on_failure="return")
    assert (posterior.chains, posterior.superchains, len(posterior)) == (4, None, 4000)
    truth = BY_NAME["count-25"].solve()["theta"][0]
    summary = posterior.summary().loc["theta"]
    assert abs(summary["mean"] - truth) < LIMIT * summary["mcse"]


def test_whole_statistics_without_noise_are_conditioned_on(seed):
    """Beta(2, 3) with 7 of 12 seen exactly: Beta(9, 8)."""
    model = nw.Model(prior={"p": dist.Beta(2.0, 3.0)}, statistics={"yes": lambda p: dist.Binomial(12, p)})
    posterior = nw.sample(model, nw.Release(yes=nw.Exact().released(7)), MCMC(chains=64), draws=4096, seed=seed)
    assert np.all(posterior["yes"] == 7)
    of_mean, of_variance = t_scores(posterior, "p", 9 / 17, 9 * 8 / (17**2 * 18))
    assert abs(of_mean) < FEW_LIMIT
    assert abs(of_variance) < FEW_LIMIT


def test_continuous_statistics_without_noise_are_refused():
    model = nw.Model(prior={"mu": dist.Normal(0.0, 1.0)}, statistics={"x": lambda mu: dist.Normal(mu, 1.0)})
    with pytest.raises(InputError, match="MCMC would never accept: 'x' is continuous and has no noise"):
        nw.sample(model, nw.Release(x=nw.Exact().released(1.0)), MCMC(), draws=100, seed=1)


@pytest.mark.parametrize(
    "wrong", [{"chains": 20}, {"chains": 0}, {"simulations": 0}, {"thin": 1.5}, {"warmup": 3}, {"min_ess": -1.0}]
)
def test_bad_settings_are_refused(wrong):
    with pytest.raises(InputError, match=f"MCMC: '{next(iter(wrong))}'"):
        MCMC(**wrong)


def test_statuses_do_not_pretend(seed):
    def status(sampler, model=None, release=None, draws=512):
        model, release = model or count_model(), release or count_release()
        return nw.sample(model, release, sampler, draws=draws, seed=seed, on_failure="return")

    few = status(MCMC(min_ess=10_000.0, chains=64, thin=6), draws=4096)
    assert few.status == "low_ess"
    budget = status(MCMC(max_proposals=50_000, chains=32, simulations=1, thin=10), draws=32_000)
    assert budget.status == "max_proposals"
    assert 0 < len(budget) < 32_000
    assert budget.proposals <= 50_000
    short = status(MCMC(max_proposals=38_000, chains=16, simulations=8, thin=1), draws=1_600)
    assert (short.status, len(short)) == ("max_proposals", 112)  # seven draws a chain: too short to judge, still there
    clock = status(MCMC(max_seconds=0.3, thin=100), draws=10**6)
    assert clock.status == "max_seconds"
    far = nw.Release(count=TruncatedLaplace(scale=1.0, bound=2.0).released(900.0))
    assert status(MCMC(), release=far).status == "hopeless"
    with pytest.raises(InferenceError, match="nowhere to start from"):
        nw.sample(count_model(), far, MCMC(), draws=10, seed=seed)


def test_chains_that_do_not_move_are_reported(seed):
    """Sixty counts with little noise at once: no simulation ever matches them all again."""
    model = nw.Model(
        prior={"rate": dist.Gamma(2.0, 0.1)},
        statistics={"counts": lambda rate: dist.Poisson(rate * jnp.ones(60))},
    )
    counts = np.random.default_rng(seed).poisson(20.0, size=60)
    release = nw.Release(counts=nw.DiscreteLaplace(scale=0.2).released(counts))
    posterior = nw.sample(model, release, MCMC(chains=32, warmup=32), draws=512, seed=seed, on_failure="return")
    assert posterior.status == "stuck"
    assert posterior.diagnostics["stuck_chains"] > 0


def test_an_interruption_returns_what_is_there(seed):
    class Interrupted(nw.Threads):
        calls = []

        def execute(self, source):
            self.calls.append(1)
            if len(self.calls) > 12:
                raise KeyboardInterrupt
            super().execute(source)

    settings = dict(draws=1600, seed=seed, engine=Interrupted(2), on_failure="return")
    posterior = nw.sample(count_model(), count_release(), MCMC(chains=16), **settings)
    assert posterior.status == "interrupted"
    assert 0 < len(posterior) < 1600
    assert len(posterior) % posterior.chains == 0


def test_results_are_saved_and_replayed(tmp_path, seed):
    sampler = MCMC(chains=16, warmup=32, thin=1)
    posterior = nw.sample(count_model(), count_release(), sampler, draws=160, seed=seed, on_failure="return")
    posterior.save(tmp_path / "run.nc")
    again = nw.Posterior.load(tmp_path / "run.nc")
    assert again.sampler == posterior.sampler
    assert np.array_equal(again["theta"], posterior["theta"])
