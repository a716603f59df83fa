"""The importance family: proposals, several simulations, acceptance, control of weights; means, variances, evidence."""

import math
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, LIMIT, agrees, z_of_mean, z_scores
from sampler_table import TARGETS, problem
from scipy import stats
from targets import count_model, count_release, lalonde_model, lalonde_release

import noisewise as nw
from noisewise.diagnostics import weights
from noisewise.errors import InferenceError, InputError
from noisewise.inference.problem import Problem
from noisewise.inference.settings import Sampler
from noisewise.samplers import rejection_control
from noisewise.samplers.importance import Importance
from noisewise.samplers.importance_rejection import ImportanceRejection
from noisewise.samplers.proposals import adapted, proposal, weighted_candidates
from noisewise.samplers.proposals.memory import Memory, Round
from noisewise.samplers.proposals.pilot import _Pilot
from noisewise.samplers.proposals.proposal import FromPrior
from noisewise.samplers.proposals.weighted_candidates import CELLS, Weigh, block_rows
from noisewise.samplers.rejection_control import RejectionControl

FAMILY = {
    "adapted": (Importance(proposal="adapted"), 20_000),
    "several": (Importance(proposal="adapted", simulations=3), 10_000),
    "importance-rejection": (ImportanceRejection(), 5_000),
    "rejection-control": (RejectionControl(), 5_000),
}


def worst(posterior, truth):
    """The largest |z| over means, variances and the evidence."""
    truth = dict(truth)
    log_evidence = truth.pop("log_evidence", None)
    found = [np.abs(np.concatenate([np.ravel(z) for z in z_scores(posterior, n, *t)])).max() for n, t in truth.items()]
    if log_evidence is not None:
        found.append(abs(posterior.log_evidence - log_evidence) / posterior.log_evidence_se)
    return max(found)


def target(name):
    return (*TARGETS[name].make(), TARGETS[name].solve())


@pytest.mark.parametrize(
    "proposal", [None, "adapted", {"theta": dist.Gamma(30.0, 1.0)}], ids=["prior", "adapted", "given"]
)
def test_no_weight_exceeds_the_largest_there_could_be(proposal, seed):
    model, release, _ = target("count-25")
    posterior = nw.sample(model, release, Importance(proposal=proposal), draws=20_000, seed=seed)
    assert posterior.weights.max() <= posterior.diagnostics["largest_share"]


@pytest.mark.parametrize("sampler", [ImportanceRejection(), RejectionControl(), RejectionControl(log_threshold=3.0)])
def test_survivors_have_a_largest_weight_too(sampler, seed):
    """The last threshold is above the bound of the weights: all that are kept weigh as much as it."""
    model, release, _ = target("count-25")
    posterior = nw.sample(model, release, sampler, draws=4_000, seed=seed)
    assert posterior.weights.max() <= posterior.diagnostics["largest_share"] * (1 + 1e-9)
    assert posterior.diagnostics["largest_share"] < 0.01


# A posterior with two unequal modes ---------------------------------------------------------------------------------


def two_modes():
    model = nw.Model(
        prior={"theta": dist.Normal(0.5, 2.0)}, statistics={"square": lambda theta: dist.Normal(theta**2, 0.5)}
    )
    return model, nw.Release(square=nw.Laplace(scale=0.5).released(9.0))


def two_modes_solution():
    theta, s = np.linspace(-5.0, 5.0, 1_001)[:, None], np.linspace(4.0, 14.0, 1_001)[None, :]
    noise = np.exp(-np.abs(9.0 - s) / 0.5)
    joint = stats.norm.pdf(theta, 0.5, 2.0) * stats.norm.pdf(s, theta**2, 0.5) * noise
    cell = 0.01 * 0.01
    evidence = joint.sum() * cell
    weight = joint / joint.sum()
    moments = {}
    for name, x in (("theta", theta + 0 * s), ("square", s + 0 * theta)):
        mean = np.sum(weight * x)
        moments[name] = (mean, np.sum(weight * (x - mean) ** 2))
    return moments | {"log_evidence": float(np.log(evidence))}


def test_both_modes_are_found_and_weighed(seed):
    model, release = two_modes()
    truth = two_modes_solution()
    for sampler, draws in FAMILY.values():
        posterior = nw.sample(model, release, sampler, draws=draws, seed=seed)
        assert worst(posterior, truth) < LIMIT
    adapted = nw.sample(model, release, Importance(proposal="adapted"), draws=20_000, seed=seed)
    prior = nw.sample(model, release, Importance(), draws=20_000, seed=seed)
    assert adapted.diagnostics["ess"] > 3 * prior.diagnostics["ess"]


# Users' proposals -----------------------------------------------------------------------------------------------------


def test_users_proposals_are_exact_for_law_function_and_part(seed):
    model, release, truth = target("count-75")
    given = {"theta": dist.Normal(60.0, 10.0)}  # off the prior's support now and then: weight zero, never an error
    for sampler in (Importance(proposal=given), Importance(proposal=given, simulations=4)):
        assert worst(nw.sample(model, release, sampler, draws=20_000, seed=seed), truth) < LIMIT
    model, release, truth = target("hierarchy")
    proposals = (
        {"rate": lambda level: dist.Gamma(9.0 + level, 1.0)},
        {"rate": dist.Gamma(10.0, 1.0), "level": lambda rate: dist.Gamma(3.0 + rate / 10.0, 1.0)},  # turned round
        {"level": dist.Normal(4.0, 2.0)},  # negative now and then: no rate could be drawn given that
    )
    for given in proposals:
        for sampler in (Importance(proposal=given), ImportanceRejection(proposal=given, min_ess=100.0)):
            posterior = nw.sample(model, release, sampler, draws=5_000, seed=seed)
            assert worst(posterior, truth) < LIMIT


def test_a_useless_proposal_is_still_exact_through_the_priors_share(seed):
    model, release, truth = target("count-25")
    sampler = Importance(proposal={"theta": dist.Gamma(1_000.0, 1.0)})
    assert worst(nw.sample(model, release, sampler, draws=50_000, seed=seed), truth) < LIMIT


def test_weights_stay_below_ten_times_the_priors(seed):
    model, release, _ = target("count-2")
    for sampler in (Importance(proposal="adapted"), Importance(proposal={"theta": dist.Gamma(50.0, 1.0)}, min_ess=1.0)):
        posterior = nw.sample(model, release, sampler, draws=20_000, seed=seed, on_failure="return")
        eta = Problem(model, release).log_eta("count", dict(posterior.draws))
        inside = posterior.log_weights > -np.inf
        assert np.all(posterior.log_weights[inside] - eta[inside] <= np.log(10.0) + 1e-9)


def test_importance_from_an_adapted_proposal_is_consistent(count_reference, seed):
    """Section 3: the weighted average nears E(a | s_dp) at the rate its own standard error claims."""
    truth = count_reference["by_alpha"]["2"]["mean"]
    errors = []
    for draws in (1_000, 100_000):
        posterior = nw.sample(count_model(2.0), count_release(), Importance("adapted"), draws=draws, seed=seed)
        summary = posterior.summary().loc["theta"]
        assert abs(summary["mean"] - truth) < LIMIT * summary["mcse"]
        errors.append(summary["mcse"])
    assert 7 < errors[0] / errors[1] < 14


@pytest.mark.long
def test_standard_errors_are_the_spread_between_runs(seed):
    """Of means and of evidences; and the evidence itself, not its log, is unbiased."""
    model, release, truth = target("beta-binomial")
    count = 40
    for sampler in (Importance("adapted", simulations=3), RejectionControl(quantile=0.5), ImportanceRejection()):
        runs = [nw.sample(model, release, sampler, draws=4_000, seed=seed + i) for i in range(count)]
        evidence = np.exp(np.array([run.log_evidence for run in runs]) - truth["log_evidence"])
        assert abs(z_of_mean(evidence, 1.0)) < stats.t.isf(FALSE_ALARM / 2, count - 1)
        means = np.array([run.weights @ run["p"] for run in runs])
        assert spread_is(means, [run.summary().loc["p", "mcse"] for run in runs])
        assert spread_is(evidence, [run.log_evidence_se for run in runs])
        assert not spread_is(means, [3.0 * run.summary().loc["p", "mcse"] for run in runs])


def spread_is(values, errors):
    """Whether independent values vary as their standard errors claim: chi-squared, within the claims' own error.

    The delta method's relative bias, one over some thousand effective draws, is far below both.
    """
    squares = np.square(errors)
    own = LIMIT * squares.std(ddof=1) / squares.mean() / np.sqrt(len(squares))
    degrees = len(values) - 1
    ratio = degrees * np.var(values, ddof=1) / squares.mean()
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], degrees)
    return low * (1 - own) < ratio < high * (1 + own)


@pytest.mark.long
def test_adapted_importance_finds_lalonde(lalonde_reference, seed):
    entry = lalonde_reference["noisy_a"]
    release = lalonde_release(entry["released"])
    posterior = nw.sample(lalonde_model(), release, Importance("adapted", simulations=4), draws=60_000, seed=seed)
    for name in ("tau", "mu"):
        truth, found = entry["posterior"][name], posterior.summary().loc[name]
        assert abs(found["mean"] - truth["mean"]) < LIMIT * np.hypot(found["mcse"], truth["mcse_of_mean"])
    assert posterior.diagnostics["pareto_k"] < 0.7


# Negative controls: the same check must fail ----------------------------------------------------------------------


def broken(monkeypatch, where, name, replacement, sampler, seed, of="count-25", draws=30_000):
    model, release, truth = target(of)
    assert worst(nw.sample(model, release, sampler, draws=draws, seed=seed, on_failure="return"), truth) < LIMIT
    monkeypatch.setattr(where, name, replacement)
    assert worst(nw.sample(model, release, sampler, draws=draws, seed=seed, on_failure="return"), truth) > LIMIT


def test_weights_without_prior_over_proposal_are_caught(monkeypatch, seed):
    right = proposal.mixed_with_prior

    def wrong(*arguments):
        values, log_ratio = right(*arguments)
        return values, np.zeros_like(log_ratio)

    with monkeypatch.context() as patch:
        broken(patch, adapted, "mixed_with_prior", wrong, Importance("adapted"), seed)
    with monkeypatch.context() as patch:
        broken(patch, adapted, "mixed_with_prior", wrong, ImportanceRejection(), seed, draws=5_000)


def test_control_without_the_corrected_weight_is_caught(monkeypatch, seed):
    broken(monkeypatch, rejection_control, "corrected", lambda w, c: w, RejectionControl(), seed, of="multinomial")


def test_control_with_every_weight_at_the_threshold_is_caught(monkeypatch, seed):
    flat = RejectionControl(quantile=0.3)
    broken(monkeypatch, rejection_control, "corrected", lambda w, c: np.full_like(w, c), flat, seed, of="multinomial")


def test_picking_a_simulation_blindly_is_caught(monkeypatch, seed):
    blind = lambda rng, log_each: np.zeros(len(log_each), int)  # noqa: E731
    broken(monkeypatch, weighted_candidates, "pick_simulation", blind, Importance("adapted", simulations=4), seed)


def test_the_largest_instead_of_the_average_weight_is_caught(monkeypatch, seed):
    sampler = Importance("adapted", simulations=4)
    broken(monkeypatch, weighted_candidates, "log_average", lambda log_each: log_each.max(axis=1), sampler, seed)


# Threads, budgets, files, refusals ----------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILY)
def test_threads_change_nothing_and_fewer_draws_are_the_first(name, seed):
    model, release, _ = problem("count-2")
    sampler, _ = FAMILY[name]
    all_of_them, some = (2_000, 800) if name == "importance-rejection" else (12_000, 5_000)  # several blocks
    one, four, few = (
        nw.sample(model, release, sampler, draws=draws, seed=seed, engine=nw.Threads(workers), on_failure="return")
        for draws, workers in ((all_of_them, 1), (all_of_them, 4), (some, 2))
    )
    for name in one.draws:
        assert np.array_equal(one[name], four[name])
        assert np.array_equal(one[name][:some], few[name])
    assert np.array_equal(one.log_weights, four.log_weights)
    assert np.array_equal(one.log_weights[:some], few.log_weights)


def test_max_proposals_returns_the_draws_it_allows(seed):
    model, release, _ = target("count-2")
    sampler = ImportanceRejection(proposal=None, max_proposals=200_000)
    with pytest.warns(nw.NoisewiseWarning, match="max_proposals"):
        posterior = nw.sample(model, release, sampler, draws=1_000, seed=seed, on_failure="return")
    assert posterior.status == "max_proposals"
    assert 0 < len(posterior) < 1_000
    assert posterior.proposals <= 200_000


def test_a_threshold_by_value_keeps_that_value(seed):
    model, release, truth = target("count-25")
    sampler = RejectionControl(log_threshold=-3.0)
    posterior = nw.sample(model, release, sampler, draws=20_000, seed=seed)
    assert posterior.diagnostics["log_threshold"] == -3.0
    assert posterior.log_weights.min() == -3.0
    assert posterior.diagnostics["pilot_proposals"] == 0
    assert worst(posterior, truth) < LIMIT


def test_the_pilot_chooses_a_number_of_simulations(seed):
    model, release, truth = target("count-75")
    posterior = nw.sample(model, release, Importance("adapted", simulations=None), draws=5_000, seed=seed)
    assert posterior.diagnostics["simulations"] > 1
    assert posterior.proposals == 5_000 * posterior.diagnostics["simulations"]
    assert worst(posterior, truth) < LIMIT


def test_simulations_are_as_many_as_their_share_of_the_variance_calls_for(seed):
    """Weights b e: b is 1 or 1.2 by row, e is 0.5 or 1.5 by simulation. Six units of work a row, one a simulation.

    The best number is sqrt(6 W / B) with W = E b^2 var e and B = var b; two simulations show B with half of W added.
    """
    rng, rows = np.random.default_rng(seed), 200_000
    log_each = np.log(rng.choice([1.0, 1.2], (rows, 1)) * rng.choice([0.5, 1.5], (rows, 2)))[:, :, None]
    model = SimpleNamespace(parameters=("theta",), statistics=("s",), cost_of_row=lambda name: 1)
    pilot = SimpleNamespace(log_each=log_each, problem=SimpleNamespace(model=model))
    assert abs(_Pilot.best_simulations(pilot, None) - math.sqrt(6.0 * 1.22 * 0.25 / 0.01)) < 2.0


def test_parts_call_for_more_simulations_than_all_of_them_at_once(seed):
    """Three factors, 0.5 or 1.5 by simulation: with m of each, their product has the mean square (1 + 1 / (4 m))^3."""
    rng, rows = np.random.default_rng(seed), 100_000
    log_each = np.log(rng.choice([1.0, 1.2], (rows, 1, 1)) ** [1, 0, 0] * rng.choice([0.5, 1.5], (rows, 2, 3)))
    model = SimpleNamespace(parameters=("theta",), statistics=("s",), cost_of_row=lambda name: 1)
    pilot = SimpleNamespace(log_each=log_each, problem=SimpleNamespace(model=model))
    m = np.arange(1, 65)
    cost = (1.22 * (1 + 0.25 / m) ** 3 - 1.1**2) * (6 + m)
    assert cost[_Pilot.best_simulations(pilot, None) - 1] < 1.02 * cost.min()
    assert cost[13 - 1] > 1.02 * cost.min()  # the number for one such factor


def test_parts_are_averaged_and_picked_each_by_itself(seed):
    """Three statistics of one parameter, in closed form; the weights vary less than those of whole sets."""
    names, noise = ("r", "s", "t"), 0.3
    model = nw.Model(
        prior={"theta": dist.Normal(0.0, 1.0)},
        statistics={name: lambda theta: dist.Normal(theta, 1.0) for name in names},
    )
    published = dict(zip(names, (0.4, -0.3, 1.1), strict=True))
    release = nw.Release({name: nw.Gaussian(scale=noise).released(value) for name, value in published.items()})
    run = nw.sample(model, release, Importance(simulations=8), draws=20_000, seed=seed)
    spread = 1.0 + noise**2
    variance = 1.0 / (1.0 + 3.0 / spread)
    centre = variance * sum(published.values()) / spread
    table = run.summary()
    assert abs(table.loc["theta", "mean"] - centre) < LIMIT * table.loc["theta", "mcse"]
    for name, value in published.items():  # of s given theta and its release: a weighted mean of the two
        expected = (value / noise**2 + centre) / (1.0 / noise**2 + 1.0)
        assert abs(table.loc[name, "mean"] - expected) < LIMIT * table.loc[name, "mcse"]
    exact = stats.multivariate_normal(np.zeros(3), np.ones((3, 3)) + spread * np.eye(3)).logpdf(
        list(published.values())
    )
    assert abs(run.log_evidence - exact) < LIMIT * run.log_evidence_se
    joint = Problem(model, release)
    vars(joint)["parts"] = [list(names)]  # as if they were one part
    whole = Weigh(joint, FromPrior(model), 8)(np.random.default_rng(seed), {}, 20_000, lambda: None)[0]["log_weights"]
    assert weights.effective_size(run.log_weights) > 1.5 * weights.effective_size(whole)


def test_rows_of_all_rounds_are_weighed_against_all_their_laws(seed):
    """Prior Normal(0, 1), likelihood Normal(x; 2, 1), rounds from Normal(0, 1) and Normal(3, 0.5): their average weight
    is the evidence, and no weight exceeds what the first round alone would give."""
    rng, prior, likelihood = np.random.default_rng(seed), stats.norm(0.0, 1.0), stats.norm(2.0, 1.0)

    class Shifted:
        def log_over_prior(self, free, whole, log_prior, log_chances):
            return stats.norm(3.0, 0.5).logpdf(free[:, 0]) - log_prior

    memory = Memory(None, (), 1)
    for law, drawn in ((None, rng.normal(0.0, 1.0, 20_000)), (Shifted(), rng.normal(3.0, 0.5, 20_000))):
        log_prior = prior.logpdf(drawn)
        alone = likelihood.logpdf(drawn)
        if law is not None:
            alone = alone - law.log_over_prior(drawn[:, None], {}, log_prior, {})
        memory.rounds.append(Round(law, alone, drawn[:, None], {}, log_prior, {}, np.zeros(len(drawn), dtype=int)))
    weight = np.exp(memory.log_weights())
    assert agrees(weight.reshape(2, -1).mean(axis=0), stats.norm(0.0, math.sqrt(2.0)).pdf(2.0))
    assert weight.max() <= 2.0 * likelihood.pdf(2.0)


def test_files_keep_laws_and_describe_functions(tmp_path, seed):
    model, release, _ = target("count-25")
    law = Importance(proposal={"theta": dist.Gamma(30.0, 1.0)})
    first = nw.sample(model, release, law, draws=2_000, seed=seed)
    first.save(tmp_path / "run.nc")
    again = nw.Posterior.load(tmp_path / "run.nc")
    replay = nw.sample(model, release, again.sampler, draws=2_000, seed=seed)
    assert np.array_equal(replay["theta"], first["theta"])
    function = Sampler.from_dict(Importance(proposal={"theta": lambda: dist.Gamma(30.0, 1.0)}).to_dict())
    with pytest.raises(InputError, match="files keep no functions"):
        nw.sample(model, release, function, draws=10, seed=seed)
    for sampler, _ in FAMILY.values():
        assert Sampler.from_dict(sampler.to_dict()) == sampler


def test_bad_settings_are_refused():
    for make in (
        lambda: Importance(proposal="prior"),
        lambda: Importance(proposal={}),
        lambda: Importance(proposal={"theta": 3.0}),
        lambda: Importance(prior_share=0.05),
        lambda: Importance(prior_share=1.0),
        lambda: Importance(simulations=0),
        lambda: ImportanceRejection(max_proposals=0),
        lambda: RejectionControl(quantile=1.0),
        lambda: RejectionControl(log_threshold=np.inf),
    ):
        with pytest.raises(InputError):
            make()


def test_proposals_that_do_not_fit_the_model_are_refused(seed):
    model, release, _ = target("count-25")
    for given in ({"thet": dist.Gamma(1.0)}, {"theta": dist.Poisson(3.0)}, {"theta": dist.Gamma(np.ones(2), 1.0)}):
        with pytest.raises(InputError):
            nw.sample(model, release, Importance(proposal=given), draws=100, seed=seed)
    fixed = nw.Model(
        prior={"theta": dist.Gamma(25.0, 1.0), "shift": dist.Delta(1.5)},
        statistics={"count": lambda theta, shift: dist.Poisson(theta + shift)},
    )
    with pytest.raises(InputError, match="atoms"):
        nw.sample(fixed, release, Importance("adapted"), draws=100, seed=seed)
    with pytest.raises(InputError, match="density"):
        nw.sample(fixed, release, Importance(proposal={"shift": dist.Normal(0.0, 1.0)}), draws=100, seed=seed)


def test_dominated_weights_end_with_high_k(seed):
    """No noise and a scale near zero: the density of the statistic is unbounded over the prior."""
    model = nw.Model(
        prior={"sigma": dist.HalfCauchy(1.0)}, statistics={"mean": lambda sigma: dist.Normal(0.0, jnp.square(sigma))}
    )
    release = nw.Release(mean=nw.Exact().released(1e-9))
    with pytest.raises(InferenceError) as caught:
        nw.sample(model, release, Importance(min_ess=1.0), draws=20_000, seed=seed)
    assert caught.value.result.status == "high_k"


@pytest.mark.parametrize(("records", "rows"), [(30, 2**15), (300, 2**13), (20_000, 2**7), (10**6, 64)])
def test_a_block_has_few_enough_records(records, rows):
    """Of totals that are simulated; one whose law is known has rows as light as that law."""
    release = nw.Release(s=nw.Laplace(scale=1.0).released(3.0))
    record = {"x": lambda mu: dist.Normal(mu, 1.0)}
    simulated = nw.Model(
        {"mu": dist.Normal(0.0, 1.0)}, {"s": nw.Total(record, lambda x: jnp.clip(x, 0.0, 1.0), records)}
    )
    known = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"s": nw.Total(record, lambda x: x, records)})
    assert block_rows(Problem(simulated, release)) == rows
    assert rows == 64 or rows * records <= 8 * CELLS
    assert block_rows(Problem(known, release)) == 2**15
