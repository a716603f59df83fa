"""The forecast: what the probe tells is right, the ranking is counted, the choice is kept, explained and replayed."""

import importlib
import logging
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, LIMIT, counts_agree, z_of_mean, z_scores
from kinds import KINDS
from scipy import stats
from targets import all_targets, briefly, count_model, count_release, lalonde_model, lalonde_release

import noisewise as nw
from noisewise.diagnostics import weights
from noisewise.engine import Threads
from noisewise.errors import InputError
from noisewise.inference.problem import Problem
from noisewise.samplers import Importance, Rejection
from noisewise.samplers import sample as sampling
from noisewise.samplers.choosing import choice
from noisewise.samplers.choosing.probe import Probe, probe_of, probe_rows
from noisewise.samplers.proposals.pilot import PilotPlan, pilot_of
from noisewise.samplers.rejection_control import foreseen
from noisewise.studies.forecast import forecast

ROOT = Path(__file__).parents[2]


def probed(model, release, seed):
    return probe_of(Problem(model, release), seed, Threads())


@cache
def told_of_count(alpha, seed):
    """One forecast for all that only look at it."""
    return forecast(count_model(alpha), count_release(), draws=2_000, seed=seed)


@pytest.fixture
def few_pilots(monkeypatch):
    """Two samplers in the tables: the others need pilot rounds."""
    monkeypatch.setattr(choice, "COSTS", {key: choice.COSTS[key] for key in ("Rejection", "Importance")})


def test_acceptance_is_estimated_within_its_error(count_reference, seed):
    for alpha in ("2", "25", "75"):
        found, error = probed(count_model(float(alpha)), count_release(), seed).acceptance
        assert abs(found - count_reference["by_alpha"][alpha]["acceptance_rate"]) < LIMIT * error


@pytest.mark.parametrize("target", [t for t in all_targets() if t.name in ("hierarchy", "multinomial", "latent-scale")])
def test_rows_per_draw_of_the_divided_plan_are_foreseen(target, seed):
    model, release = target.make()
    _, rows = probed(model, release, seed).rejection()
    run = nw.sample(model, release, Rejection(), draws=2_000, seed=seed)
    assert rows == pytest.approx(run.proposals / len(run), rel=0.4)


def test_divided_and_joint_plans_are_told_apart(seed, lalonde_reference):
    release = lalonde_release(lalonde_reference["noisy_a"]["released"])
    probe = probed(lalonde_model(), release, seed)
    _, divided = probe.rejection()
    _, joint = probe.rejection(joint=True)
    run = nw.sample(lalonde_model(), release, Rejection(), draws=2_000, seed=seed)
    assert 0.4 < divided / (run.proposals / len(run)) < 2.5
    assert joint > 4 * divided


@pytest.mark.long
@pytest.mark.parametrize("alpha", briefly([25.0, 2.0], [2.0]))
def test_efficiency_of_weighting_is_foreseen(alpha, seed):
    """Probes see what runs of their length turn out to be worth for the mean of theta; Kish's number sees another."""
    model, probes, runs = count_model(alpha), 40, 60
    first = probed(model, count_release(), seed)
    others = np.random.SeedSequence(seed).generate_state(probes - 1).tolist()
    foreseen = [first, *(probed(model, count_release(), other) for other in others)]
    run = nw.sample(model, count_release(), Importance(), draws=runs * first.rows, seed=seed)
    row = run.summary().loc["theta"]
    assert choice.per_row([run["theta"]], run.log_weights) == pytest.approx((row["sd"] / row["mcse"]) ** 2 / len(run))
    pieces = zip(run["theta"].reshape(runs, -1), run.log_weights.reshape(runs, -1), strict=True)
    turned_out = np.array([choice.per_row([theta], logs) for theta, logs in pieces])
    limit = stats.t.isf(FALSE_ALARM / 2, probes - 1)

    def apart(values):
        return abs(z_of_mean(values, turned_out.mean(), turned_out.std(ddof=1) / np.sqrt(runs)))

    assert apart([probe.efficiency for probe in foreseen]) < limit
    assert apart([probe.worth / probe.rows for probe in foreseen]) > limit


def test_weighted_draws_cost_more_the_less_they_are_worth():
    probe = SimpleNamespace(efficiency=0.1, cells=4.0)
    assert choice._importance(probe, 1_000).work == pytest.approx(1_000 * 4.0 / 0.1)


def test_few_draws_by_smc_cost_what_its_islands_do():
    probe = SimpleNamespace(log_rate=lambda names: np.log(0.25), terms={}, cells=4.0, nested=False)
    few, many = (choice._smc(probe, draws).run for draws in (10, 8_192))
    assert few == pytest.approx(many) == pytest.approx((512 + 8_192) * 25.0 * 3.0 * 4.0)
    assert choice._smc(probe, 80_000).run > 9.0 * many


def test_particles_are_expected_to_stand_still_in_hierarchies():
    plain, deep = (
        choice._smc(SimpleNamespace(log_rate=lambda names: 0.0, terms={}, cells=4.0, nested=one), 8_192)
        for one in (False, True)
    )
    assert deep.efficiency < 0.1 * plain.efficiency
    assert deep.work > 10.0 * plain.work
    assert not deep.delivers


def test_labels_of_kinds_are_no_such_hierarchy(seed):
    prior = {"share": dist.Beta(2.0, 2.0), "kind": lambda share: dist.Bernoulli(share).expand([3])}
    rates = {"spread": dist.HalfNormal(1.0), "rate": lambda spread: dist.LogNormal(1.0, spread).expand([3])}
    release = nw.Release(count=nw.DiscreteLaplace(scale=2.0).released(np.array([4, 9, 2])))
    labels = nw.Model(prior, {"count": lambda kind: dist.Poisson(2.0 + 5.0 * kind)})
    deep = nw.Model(rates, {"count": lambda rate: dist.Poisson(rate)})
    assert [probed(model, release, seed).nested for model in (labels, deep)] == [False, True]


@pytest.mark.parametrize("draws", briefly([2_000, 20_000], [2_000]))
def test_weighing_by_the_likelihood_settles_what_all_pilots_would(draws, seed, monkeypatch):
    monkeypatch.setattr(choice, "settled", lambda probe, draws: [])
    probe = probed(count_model(2.0), count_release(), seed)
    first, collapsed = choice.by_likelihood(probe, draws, seed, Threads(1))
    ranking = choice.ranked_estimates(probe, draws, seed, Threads(1), collapsed)
    assert [each.sampler for each in ranking[: len(first)]] == [each.sampler for each in first]
    assert choice.reason_for(first, probe) == choice.reason_for(ranking, probe)


def test_no_pilot_is_run_that_would_take_longer_than_rejection_itself(seed, monkeypatch):
    """For each parameter value all tables of 60 in four cells are summed over. Negative control: less for a pilot."""
    model = nw.Model(
        {"p": dist.Dirichlet(jnp.ones(4))}, {"table": lambda p: dist.Multinomial(60, p**1.2 / (p**1.2).sum())}
    )
    release = nw.Release(table=nw.Laplace(scale=2.0).released(np.array([21.5, 6.1, 10.2, 26.8])))
    probe = probed(model, release, seed)
    first = choice.settled(probe, 4_000)
    assert isinstance(first[0].sampler, nw.Rejection)
    assert first[0].work > choice.AFFORDABLE
    monkeypatch.setattr(choice, "least_work", lambda problem: first[0].work - 1.0)
    assert choice.settled(probe, 4_000) == []


def test_seconds_are_told_for_every_sampler_and_less_once_it_has_run(seed):
    model, release = count_model(2.0), count_release()
    first = told_of_count(2.0, seed)
    nw.sample(model, release, first.choice, draws=2_000, seed=seed, on_failure="return")
    second = forecast(model, release, draws=2_000, seed=seed)
    assert set(first.seconds) == {choice.label(each.sampler) for each in first.ranking}
    assert all(0.0 < seconds < np.inf for told in (first, second) for seconds in told.seconds.values())
    assert choice.label(first.choice) in choice.has_run(model)


def test_the_choice_is_by_count_and_not_by_the_clock(seed, monkeypatch):
    first = told_of_count(2.0, seed)
    clock = iter(np.arange(0.0, 1e9, 1e3))
    module = importlib.import_module("noisewise.studies.forecast")  # its name is the verb's, too
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(clock)))
    second = forecast(count_model(2.0), count_release(), draws=2_000, seed=seed, engine=Threads(1))
    assert (first.choice, first.reason) == (second.choice, second.reason)
    assert [each.work for each in first.ranking] == [each.work for each in second.ranking]
    assert second.seconds_per_unit > 100 * first.seconds_per_unit


def test_what_is_forecast_is_what_is_chosen(seed):
    for alpha in (25.0, 2.0):
        run = nw.sample(count_model(alpha), count_release(), draws=2_000, seed=seed)
        assert run.sampler == told_of_count(alpha, seed).choice
        assert run.status == "complete"


@pytest.mark.quick
def test_conflict_and_agreement_choose_differently(seed):
    easy = nw.sample(count_model(25.0), count_release(), draws=5_000, seed=seed)
    hard = nw.sample(count_model(2.0), count_release(), draws=50_000, seed=seed)
    assert easy.sampler == Rejection()
    assert "bounded density" in easy.reason
    assert hard.sampler == Importance()
    assert "rejection accepts 0.09" in hard.reason
    assert hard.status == "complete"


def test_a_chosen_run_replays_bit_for_bit(seed, caplog):
    for alpha, draws in ((25.0, 500), (2.0, 20_000)):
        with caplog.at_level(logging.INFO, logger="noisewise"):
            run = nw.sample(count_model(alpha), count_release(), draws=draws, seed=seed)
        assert run.reason in caplog.text
        again = nw.sample(count_model(alpha), count_release(), run.sampler, draws=draws, seed=run.seed)
        assert run.seed == seed
        assert np.array_equal(again["theta"], run["theta"])


def test_a_run_that_misses_its_forecast_falls_back_on_new_streams(seed, monkeypatch, few_pilots, capsys):
    """Importance ends with high_k, by force: the next sampler runs with another seed, and both steps are told."""
    real = Importance.run

    def missed(self, *given):
        return replace(real(self, *given), status="high_k", message="by force")

    monkeypatch.setattr(Importance, "run", missed)
    monkeypatch.setattr(choice, "AFFORDABLE", 2**20)
    run = nw.sample(count_model(5.0), count_release(), draws=10_000, seed=seed, progress=True)
    assert "Importance fell short; trying another way: Rejection" in capsys.readouterr().err
    assert run.sampler == Rejection()
    assert run.status == "complete"
    assert "Importance (" in run.reason
    assert "ended with 'high_k' and was discarded; the next in the forecast" in run.reason
    assert run.seed != seed
    assert f"seed {seed}," in run.headline(seed), "to a person, the seed is the one that was given"
    again = nw.sample(count_model(5.0), count_release(), run.sampler, draws=10_000, seed=run.seed)
    assert np.array_equal(again["theta"], run["theta"])


def test_when_all_miss_the_first_is_returned_with_what_was_tried(seed, monkeypatch, few_pilots):
    for cls in (Importance, Rejection):
        real = cls.run

        def missed(self, *given, real=real):
            return replace(real(self, *given), status="hopeless", message="by force")

        monkeypatch.setattr(cls, "run", missed)
    with pytest.raises(nw.InferenceError, match="by force") as caught:
        nw.sample(count_model(2.0), count_release(), draws=2_000, seed=seed)
    assert "was discarded" in caught.value.result.reason


def ranked(monkeypatch, failing, *order):
    """A ranking by force, in which the runs of some samplers cannot go on."""

    def fails(self, *_, **__):
        raise nw.InputError(f"{type(self).__name__} by force")

    for cls in failing:
        monkeypatch.setattr(cls, "run", fails)
    estimates = [(choice.Estimate(sampler, 1.0, 1.0, "told"), "forced") for sampler in order]
    monkeypatch.setattr(sampling, "_candidates", lambda *_: iter(estimates))
    monkeypatch.setattr(sampling, "_tried_at_once", lambda *_: None)


def test_a_sampler_that_goes_where_the_model_cannot_calls_for_the_next(seed, monkeypatch):
    ranked(monkeypatch, [nw.MCMC], nw.MCMC(), Importance())
    run = nw.sample(count_model(), count_release(), draws=5_000, seed=seed)
    assert run.sampler == Importance()
    assert "MCMC (forced) could not go on; forced" in run.reason


def test_a_model_that_fails_at_draws_of_its_prior_is_refused_whatever_comes_next(seed, monkeypatch):
    ranked(monkeypatch, [Importance], Importance(), nw.MCMC())
    with pytest.raises(nw.InputError, match="Importance by force"):
        nw.sample(count_model(), count_release(), draws=5_000, seed=seed)


def test_when_none_can_go_on_the_first_reason_is_told(seed, monkeypatch):
    ranked(monkeypatch, [nw.MCMC, nw.SMC], nw.MCMC(), nw.SMC())
    with pytest.raises(nw.InputError, match="MCMC by force"):
        nw.sample(count_model(), count_release(), draws=5_000, seed=seed)


def test_too_few_draws_do_not_start_a_search(seed, monkeypatch):
    ran = []
    real = sampling._run
    monkeypatch.setattr(sampling, "_run", lambda *a: ran.append(1) or real(*a))
    found = nw.sample(count_model(), count_release().naive(), draws=100, seed=seed, on_failure="return")
    assert found.status == "low_ess"
    assert len(ran) == 1


def test_noise_free_statistics_are_conditioned_on(seed):
    run = nw.sample(count_model(), count_release().naive(), draws=5_000, seed=seed)
    assert run.sampler == Importance()
    assert "'count' has no noise" in run.reason


def test_nothing_applies_is_a_refusal(seed):
    model = nw.Model(prior={"a": dist.Normal(0.0, 1.0)}, statistics={"s": nw.Simulator(lambda rng, a: rng.normal(a))})
    with pytest.raises(nw.InputError, match=r"Importance needs the density of 's'.*got \['s'\]"):
        nw.sample(model, nw.Release(s=nw.Exact().released(1.0)), draws=10, seed=seed)


def test_expensive_rows_make_a_small_probe():
    def slow(rng, p):
        return rng.binomial(10, p)

    model = nw.Model(prior={"p": dist.Beta(1.0, 1.0)}, statistics={"yes": nw.Simulator(slow)})
    problem = Problem(model, nw.Release(yes=nw.DiscreteLaplace(scale=3.0).released(5)))
    assert probe_rows(problem) <= 256
    assert probe_rows(Problem(count_model(), count_release())) == 2**14


def test_many_entries_call_for_augmentation_or_gradients(seed):
    model = nw.Model(
        prior={
            "a": dist.HalfNormal(10.0),
            "b": dist.HalfNormal(1.0),
            "rate": lambda a, b: dist.LogNormal(a, b).expand([300]),
        },
        statistics={"s": lambda rate: dist.Poisson(rate)},
    )
    rng = np.random.default_rng(seed)
    y = rng.poisson(rng.gamma(5.0, 4.0, 300))
    told = forecast(model, nw.Release(s=nw.DiscreteGaussian(scale=6.0).released(y)), seed=seed)
    assert type(told.choice).__name__ in ("Augmentation", "NUTS")
    assert told.acceptance < 1e-10


def test_conflict_probabilities_are_uniform_under_the_model(seed):
    """Evans and Moshonov's tail probability is a valid p-value: over simulated releases it is uniform on its grid."""
    model = count_model(4.0)
    truth = model.simulate(120, seed)
    mechanism = nw.Laplace(scale=2.0)
    noisy = mechanism.sample(np.random.default_rng(seed), truth["count"])
    found = []
    for number, value in enumerate(noisy):
        problem = Problem(model, nw.Release(count=mechanism.released(value)))
        rows = model.draw(np.random.default_rng([seed, number]), model.order, 256)
        probe = Probe(problem, number, rows, {"count": np.zeros(256)})
        found.append(probe.tails["count"])
    counts = np.histogram(found, bins=np.linspace(0, 1, 11))[0]
    assert counts_agree(counts, np.full(10, 0.1))


def test_conflict_is_seen(seed, few_pilots):
    assert not told_of_count(25.0, seed).in_conflict
    far = told_of_count(2.0, seed)
    assert far.in_conflict
    assert "surprising under the prior" in repr(far)
    model = nw.Model(
        prior={"x": dist.Gamma(4.0, 1.0)},
        statistics={"a": lambda x: dist.Poisson(x), "b": lambda x: dist.Poisson(3.0 * x).expand([2])},
    )
    release = nw.Release(a=nw.Laplace(scale=1.0).released(2.0), b=nw.Laplace(scale=1.0).released([30.0, 28.0]))
    found = forecast(model, release, seed=seed).conflict
    assert set(found) == {"a", "b", "release"}
    assert found["release"] < found["a"]  # each is likely by itself, the two together are not


def test_the_forecast_shows_and_refuses(seed):
    found = told_of_count(25.0, seed)
    assert set(found.table().columns) == {"work", "seconds", "efficiency", "note"}
    assert "Rejection" in repr(found)
    html = found._repr_html_()
    assert "<strong>Forecast for " in html
    assert "<td style='text-align:left'>Rejection</td>" in html
    for wrong in (dict(draws=0), dict(seed=-1), dict(engine=3)):
        with pytest.raises(nw.InputError, match="forecast: "):
            forecast(count_model(), count_release(), **wrong)


def counted():
    """Names of the samplers whose work is counted; any other is asked for by name."""
    return {type(choice.SAMPLER_OF[key]).__name__ if key in choice.SAMPLER_OF else key for key in choice.COSTS}


def test_a_sampler_whose_work_is_counted_is_a_public_one():
    assert counted() <= set(choice.public_samplers())
    assert len(counted()) > 4


def test_what_thinning_out_will_do_is_foreseen(seed):
    """The share of candidates kept and what each is worth, of a run whose weights vary widely."""
    model = nw.Model(
        prior={"a": dist.Normal(0.0, 3.0), "b": dist.Normal(0.0, 3.0)},
        statistics={"s": lambda a: dist.Normal(a, 1.0), "t": lambda a, b: dist.Normal(a + b, 1.0)},
    )
    noise = nw.Laplace(scale=0.05)
    release = nw.Release(s=noise.released(1.0), t=noise.released(-2.0))
    sampler = nw.RejectionControl(proposal="adapted", quantile=0.99, min_ess=50.0)
    plan = pilot_of(sampler, Problem(model, release), seed, Threads(), look=True)
    kept, worth = foreseen(plan.log_weights, 0.99)
    run = nw.sample(model, release, sampler, draws=2_000, seed=seed)
    assert run.acceptance_rate == pytest.approx(kept, rel=0.3)
    assert weights.effective_size(run.log_weights) / len(run) == pytest.approx(worth, rel=0.3)
    plain = weights.effective_size(plan.log_weights) / len(plan.log_weights)
    assert worth > 4 * plain  # what it is good for


def test_the_threshold_is_the_best_that_is_affordable():
    """Weights that are exponential in a normal variate: a higher threshold is dearer, and its rows are worth more."""
    log_weights = 3.0 * np.random.default_rng(1).normal(size=20_000)
    cost = {quantile: 1.0 / foreseen(log_weights, quantile)[0] for quantile in choice.THRESHOLDS}
    worth = {quantile: foreseen(log_weights, quantile)[1] for quantile in choice.THRESHOLDS}
    assert sorted(cost, key=cost.get) == sorted(worth, key=worth.get) == list(choice.THRESHOLDS)
    pilot, draws = PilotPlan(None, 1, log_weights), 10_000

    def chosen(cells):
        adapted = choice.Estimate(Importance(proposal="adapted"), draws * cells / 0.01, 0.01, "", False, pilot)
        return choice._thinned(draws, adapted)

    dear = choice.AFFORDABLE / (draws * cost[0.99])
    assert chosen(1e-9).sampler.quantile == 0.999
    found = chosen(0.9 * dear)
    assert found.sampler.quantile == 0.99
    assert found.work == pytest.approx(0.9 * choice.AFFORDABLE / worth[0.99])
    enough = [quantile for quantile in choice.THRESHOLDS if draws * worth[quantile] >= choice.SAFETY * 400.0]
    assert chosen(1e9 * dear).sampler.quantile == min(enough, key=lambda quantile: cost[quantile] / worth[quantile])


@pytest.mark.parametrize(("spread", "quantile"), [(1.0, 0.9), (2.0, 0.99)])
def test_a_longer_run_is_preferred_where_an_effective_draw_takes_hardly_more(spread, quantile):
    """Up to some seconds: with weights of the smaller spread it takes twice as much, with the larger 1.15 times."""
    log_weights = spread * np.random.default_rng(1).normal(size=20_000)
    each = {one: 1.0 / np.prod(foreseen(log_weights, one)) for one in (0.9, 0.99)}
    assert (each[0.99] < choice.HARDLY_MORE * each[0.9]) == (quantile == 0.99)
    pilot, draws, cost = PilotPlan(None, 1, log_weights), 100_000, 1.0 / foreseen(log_weights, 0.99)[0]

    def chosen(work):
        """With so much for a run at the 99% quantile."""
        adapted = choice.Estimate(Importance(proposal="adapted"), work / cost / 0.01, 0.01, "", False, pilot)
        return choice._thinned(draws, adapted).sampler.quantile

    assert chosen(1.01 * choice.AFFORDABLE) == chosen(0.99 * choice.MOST_THINNED) == quantile
    assert chosen(1.01 * choice.MOST_THINNED) == 0.9
    assert chosen(0.99 * choice.AFFORDABLE) == 0.99


def test_too_few_rows_tell_nothing_of_thinning_out():
    log_weights = np.full(1_000, -50.0)
    log_weights[:3] = 0.0
    adapted = choice.Estimate(Importance(proposal="adapted"), 1.0, 0.01, "", False, PilotPlan(None, 1, log_weights))
    assert not choice._tells(adapted)
    assert choice._tells(replace(adapted, pilot=PilotPlan(None, 1, np.zeros(1_000))))


def test_a_sampler_from_elsewhere_is_not_in_the_tables():
    @dataclass(frozen=True)
    class Mine(nw.Rejection):
        pass

    assert "Mine" not in choice.public_samplers()


def published():
    text = (ROOT / "docs/how-to-choose.md").read_text()
    block = text.split("<!-- applicability -->")[1]
    rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in block.strip().splitlines()]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


def test_the_published_table_is_what_unfit_says():
    samplers, told = choice.public_samplers(), published()
    assert list(told) == list(KINDS)
    for kind, row in told.items():
        problem = Problem(*KINDS[kind]())
        for name, cell in row.items():
            against = samplers[name]().unfit(problem)
            assert (cell == "yes") == (against is None), (kind, name, against)
        assert counted() | {"RejectionControl"} <= set(row) <= set(samplers)  # what may be chosen has a column


def test_refusals_in_the_table_are_refusals_of_sample():
    for make in KINDS.values():
        model, release = make()
        for cls in choice.public_samplers().values():
            why = cls().unfit(Problem(model, release))
            if why is not None:
                with pytest.raises(nw.InputError, match="must apply to model and release"):
                    nw.sample(model, release, cls(), draws=1, seed=1)


def test_the_range_that_the_prior_expects(seed):
    """About 95% of the releases of the model lie in it; withheld values are not counted."""
    from noisewise.engine import Threads
    from noisewise.inference.problem import Problem
    from noisewise.mechanisms import Thresholded
    from noisewise.samplers.choosing.probe import probe_of

    model = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
    noise = nw.DiscreteLaplace(scale=5.0)
    rng = np.random.default_rng(seed)
    simulated = noise.sample(rng, rng.poisson(rng.gamma(25.0, 1.0, 20_000)))
    low, high = probe_of(Problem(model, nw.Release(count=noise.released(30))), seed, Threads()).expected["count"]
    assert 0.85 < np.mean((simulated >= low) & (simulated <= high)) < 0.998
    shown = nw.Release(count=Thresholded(noise, 30).released(31))
    low, high = probe_of(Problem(model, shown), seed, Threads()).expected["count"]
    assert low >= 30


VAGUE, AT = dist.Normal(0.0, 10.0), np.linspace(-2.0, 2.0, 6)


def vague_regression(rate=lambda b0, b1: jnp.exp(b0 + b1 * AT)):
    model = nw.Model({"b0": VAGUE, "b1": VAGUE}, {"n": lambda b0, b1: dist.Poisson(rate(b0, b1))})
    return model, nw.Release(n=nw.DiscreteLaplace(scale=2.0).released(np.array([1, 4, 2, 6, 7, 13])))


def test_a_prior_whose_counts_are_too_large_to_be_drawn_is_no_obstacle(seed):
    """One draw in some hundred has a rate beyond 9e18; nothing is simulated, and the answer is that of a grid."""
    model, release = vague_regression()
    posterior = nw.sample(model, release, draws=8_000, seed=seed)
    assert "too large for 64 bits" in posterior.reason
    k = np.arange(100)
    b0, b1 = (
        one.ravel() for one in np.meshgrid(np.linspace(-50.0, 6.0, 561), np.linspace(-25.0, 25.0, 501), indexing="ij")
    )
    height = stats.norm.logpdf(b0, 0.0, 10.0) + stats.norm.logpdf(b1, 0.0, 10.0)
    table = np.exp(np.linspace(-14.0, 12.0, 1301))
    for at, value in zip(AT, np.asarray(release["n"].value), strict=True):
        one = np.exp(stats.poisson.logpmf(k, table[:, None])) @ np.exp(-np.abs(value - k) / 2.0)
        height += np.interp(b0 + b1 * at, np.log(table), np.log(np.maximum(one, 1e-300)))
    weight = np.exp(height - height.max())
    weight /= weight.sum()
    for name, values in (("b0", b0), ("b1", b1)):
        mean = weight @ values
        for z in z_scores(posterior, name, mean, weight @ (values - mean) ** 2):
            assert abs(z) < LIMIT


def test_a_rate_that_is_none_is_still_refused(seed):
    with pytest.raises(InputError, match="must be non-negative"):
        nw.sample(*vague_regression(lambda b0, b1: jnp.exp(b0 + b1 * AT) - 1.0), draws=100, seed=seed)
    with pytest.raises(InputError, match="must be non-negative"):  # one over a number that is too small
        nw.sample(*vague_regression(lambda b0, b1: jnp.exp(b0 + b1 * AT) / (b0 > 0.0)), draws=100, seed=seed)


SHOWN = np.array([3, 14, 0, 31])


def spread_rates(spread=2.5):
    model = nw.Model(
        {
            "mu": dist.Normal(2.0, 1.0),
            "tau": dist.HalfCauchy(spread),
            "eta": lambda mu, tau: dist.Normal(mu, tau).expand([4]),
        },
        {"y": lambda eta: dist.Poisson(jnp.exp(eta))},
    )
    return model, nw.Release(y=nw.DiscreteLaplace(scale=2.0).released(SHOWN))


def spread_rates_by_grid(spread=2.5):
    """Mean and variance of mu and of 1 / (1 + tau): every log rate integrated out by a sum over a fine grid."""
    eta, k = np.linspace(-40.0, 6.0, 1_841), np.arange(150)
    each = np.exp(stats.poisson.logpmf(k, np.exp(eta)[:, None])) @ np.exp(-np.abs(SHOWN - k[:, None]) / 2.0)
    taus = np.exp(np.linspace(-2.0, 8.0, 41))
    height = []
    for mu in (mus := np.linspace(-4.0, 8.0, 49)):
        inside = np.exp(-0.5 * ((eta - mu) / taus[:, None]) ** 2) @ each * (eta[1] - eta[0])
        inside /= taus[:, None] * np.sqrt(2.0 * np.pi)
        inside += stats.norm.cdf(-40.0, mu, taus)[:, None] * each[0]  # rates of next to nothing
        height.append(np.log(np.maximum(inside, 1e-300)).sum(axis=1) + stats.norm.logpdf(mu, 2.0, 1.0))
    height = np.array(height) + stats.halfcauchy.logpdf(taus, 0.0, spread) + np.log(taus)
    weight = np.exp(height - height.max())
    weight /= weight.sum()
    for values, share in ((mus, weight.sum(axis=1)), (1.0 / (1.0 + taus), weight.sum(axis=0))):
        mean = share @ values
        yield mean, share @ (values - mean) ** 2


def with_shrinkage(model):
    return nw.Model(
        {name: model.law(name).function for name in model.parameters},
        {"y": model.law("y").function},
        derived={"shrinkage": lambda tau: 1.0 / (1.0 + tau)},
    )


@pytest.mark.parametrize("spread", [2.5, pytest.param(0.5, marks=pytest.mark.long)])
def test_log_rates_with_a_half_cauchy_spread_are_delivered(spread, seed):
    """Rates of single draws of the prior are infinite, and no mistake: the likelihood there is zero."""
    model, release = spread_rates(spread)
    posterior = nw.sample(with_shrinkage(model), release, draws=2_000, seed=seed)
    assert "beyond range" in posterior.reason
    for name, (mean, variance) in zip(("mu", "shrinkage"), spread_rates_by_grid(spread), strict=True):
        for z in z_scores(posterior, name, mean, variance):
            assert abs(z) < LIMIT


@pytest.mark.long
@pytest.mark.parametrize("sampler", [nw.NUTS(), nw.Augmentation(), Importance(proposal="adapted", collapse=True)])
def test_a_sampler_named_for_infinite_rates_starts_where_it_can(sampler, seed):
    model, release = spread_rates()
    posterior = nw.sample(with_shrinkage(model), release, sampler, draws=8_000, seed=seed, on_failure="return")
    assert posterior.status in ("complete", "disagree", "low_ess", "divergent")
    assert len(posterior) == 8_000


def test_what_simulates_the_prior_says_what_does_not(seed):
    with pytest.raises(InputError, match=r"draws fail\).*nw\.NUTS\(\) and nw\.Augmentation\(\) do without") as caught:
        nw.sample(*spread_rates(), Rejection(), draws=100, seed=seed)
    assert caught.value.beyond_range


def test_where_the_first_misses_the_next_is_tried_and_its_outcome_told(seed, monkeypatch):
    """Not the draw of the prior that called for them."""

    def fails(*args, **kwargs):
        raise InputError("no way", who="Importance")

    monkeypatch.setattr(Importance, "run", fails)
    monkeypatch.setattr(nw.NUTS, "run", fails)
    monkeypatch.setattr(sampling, "_tried_at_once", lambda *_: None)
    chains = nw.Augmentation(chains=16, warmup=20, max_seconds=0.001)
    last = (*sampling.WITHOUT_PRIOR_DRAWS[:2], (chains, "told"))
    monkeypatch.setattr(sampling, "WITHOUT_PRIOR_DRAWS", last)
    found = nw.sample(*vague_regression(), draws=1_000, seed=seed, on_failure="return")
    assert found.status == "max_seconds"
    assert "could not go on; NUTS" in found.reason
    monkeypatch.setattr(sampling, "WITHOUT_PRIOR_DRAWS", ())
    with pytest.raises(InputError, match="non-negative and below"):
        nw.sample(*vague_regression(), draws=1_000, seed=seed)


@pytest.mark.parametrize("which", briefly(["variance", "precision"], ["variance"]))
def test_vague_laws_of_a_variance_are_delivered(which, seed):
    """Half of the prior's variances are infinite in floating point; the posterior's are not."""
    x = np.array([4.1, 5.9, 3.2, 6.6, 5.0, 4.4, 7.1, 2.8])
    scale = {"variance": lambda v: jnp.sqrt(v), "precision": lambda v: 1.0 / jnp.sqrt(v)}[which]
    law = {"variance": dist.InverseGamma(0.001, 0.001), "precision": dist.Gamma(0.001, 0.001)}[which]
    model = nw.Model(
        {"mu": dist.Normal(0.0, 1000.0), "v": law}, {"x": lambda mu, v: dist.Normal(mu, scale(v)).expand([8])}
    )
    posterior = nw.sample(model, nw.Release(x=nw.Gaussian(scale=0.5).released(x)), draws=8_000, seed=seed)
    mu, log_v = np.meshgrid(np.linspace(-15.0, 25.0, 401), np.linspace(-12.0, 14.0, 261), indexing="ij")
    v = np.exp(log_v)
    height = stats.norm.logpdf(mu, 0.0, 1000.0) + stats.invgamma.logpdf(v, 0.001, scale=0.001) + log_v
    height += sum(stats.norm.logpdf(one, mu, np.sqrt(v + 0.25)) for one in x)
    weight = np.exp(height - height.max())
    weight /= weight.sum()
    mean = np.sum(weight * mu)
    for z in z_scores(posterior, "mu", mean, np.sum(weight * (mu - mean) ** 2)):
        assert abs(z) < LIMIT
