"""NUTS: exact targets, naive fits, windows that widen, and what it refuses."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, z_of_mean
from numpyro.infer.hmc import hmc
from sampler_table import problem as target
from scipy import stats
from targets import brief_rows, briefly, count_model, count_release, lalonde_model, lalonde_release

import noisewise as nw
from noisewise.diagnostics import chains
from noisewise.inference.conditional import windows
from noisewise.inference.conditional.sums import Sum, compositions, tilted
from noisewise.inference.conditional.target import Target
from noisewise.inference.problem import Problem
from noisewise.model import coordinates
from noisewise.model.law import KEYS
from noisewise.numerics import Compiled, double
from noisewise.samplers import nuts
from noisewise.samplers.gibbs.joint import Joint, State
from noisewise.samplers.nuts import NUTS

SHORT = NUTS(warmup=300)


def z_scores(posterior, name, mean, variance):
    """z of the mean and of the squared deviation, entry by entry, by the chains' effective sizes."""
    values = posterior[name].astype(float)
    found = []
    for terms in (values - mean, (values - mean) ** 2 - variance):
        x = chains.by_chain(terms, posterior.chains)
        spread = x.reshape(-1, x.shape[2]).std(axis=0)
        varies = spread > 0.0
        size = chains.effective_size(chains.halves(x[:, :, varies]))
        found.append(x[:, :, varies].mean(axis=(0, 1)) / (spread[varies] / np.sqrt(size)))
    return np.concatenate(found)


def is_exact(posterior, truth):
    """Whether every mean and variance is within Monte Carlo error."""
    scores = [z_scores(posterior, name, *moments) for name, moments in truth.items() if name != "log_evidence"]
    return bool(np.all(np.abs(np.concatenate(scores)) < LIMIT))


@pytest.mark.long
@pytest.mark.parametrize("case", ["noisy_a"])
def test_lalonde_matches_its_reference(case, lalonde_reference, seed):
    entry = lalonde_reference[case]
    posterior = nw.sample(
        lalonde_model(), lalonde_release(entry["released"]), NUTS(target_accept=0.9), draws=6_000, seed=seed
    )
    values = {name: posterior[name] for name in ("tau", "mu")}
    values |= {f"{name}_squared": posterior[name] ** 2 for name in ("sigma_t", "sigma_c")}
    for name, truth in entry["posterior"].items():
        for terms, aim, error in ((values[name], truth["mean"], truth["mcse_of_mean"]), *_levels(values[name], truth)):
            x = chains.by_chain(terms, 4)
            own = terms.std() / np.sqrt(chains.effective_size(chains.halves(x))[0])
            assert abs(terms.mean() - aim) < LIMIT * np.hypot(own, error), name


def _levels(values, truth):
    size = (truth["sd"] / truth["mcse_of_mean"]) ** 2
    for level, quantile in truth["quantiles"].items():
        p = float(level)
        yield (values <= quantile) * 1.0, p, np.sqrt(p * (1 - p) / size)


# Continuous statistics ----------------------------------------------------------------------------------------


@cache
def waiting():
    """A positive statistic under Laplace noise: the rate is Gamma given s, and s has one dimension to integrate."""
    model = nw.Model(prior={"rate": dist.Gamma(3.0, 2.0)}, statistics={"s": lambda rate: dist.Gamma(3.0, rate)})
    release = nw.Release(s=nw.Laplace(scale=0.7).released(0.4))
    s = np.linspace(0.0, 40.0, 200_001)[1:]
    weight = stats.betaprime.pdf(s, 3.0, 3.0, scale=2.0) * np.exp(-np.abs(s - 0.4) / 0.7)
    weight /= weight.sum()
    mean, of_rate = weight @ s, weight @ (6.0 / (2.0 + s))
    truth = {
        "s": (mean, weight @ (s - mean) ** 2),
        "rate": (of_rate, weight @ (6.0 / (2.0 + s) ** 2 + (6.0 / (2.0 + s) - of_rate) ** 2)),
    }
    return model, release, truth


def test_positive_statistic_is_sampled_exactly(seed):
    model, release, truth = waiting()
    assert is_exact(nw.sample(model, release, SHORT, draws=6_000, seed=seed), truth)


def test_dropped_jacobian_is_caught(seed, monkeypatch):
    """Negative control: the density of s in place of that of its free coordinate."""
    _, release, truth = waiting()
    monkeypatch.setattr(coordinates.Placed, "log_jacobian", 0.0)
    fresh = nw.Model(prior={"rate": dist.Gamma(3.0, 2.0)}, statistics={"s": lambda rate: dist.Gamma(3.0, rate)})
    posterior = nw.sample(fresh, release, SHORT, draws=6_000, seed=seed, on_failure="return")
    assert not is_exact(posterior, truth)


def geweke_scores(seed, walkers=2_000, alternations=10):
    """z of first and second moments after alternating a release given s with one transition given that release.

    Walkers start from the model and never meet, so their law must stay the model's (Geweke 2004). The transition is
    NumPyro's, at a fixed step, on the density that every run explores.
    """
    model = nw.Model(prior={"rate": dist.Gamma(3.0, 2.0)}, statistics={"s": lambda rate: dist.Gamma(3.0, rate)})
    noise, rng = nw.Laplace(scale=0.7), np.random.default_rng(seed)
    found = Target(Problem(model, nw.Release(s=noise.released(0.4))), {})
    assert found.sampled == ("s",)
    start, step = hmc(potential_fn_gen=found.potential, algo="NUTS")
    fixed = dict(num_warmup=0, step_size=0.5, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=4)

    def transition(free, key, value):
        given = ({**found.data(), "items": {"s": (noise, value)}},)
        key = jax.random.wrap_key_data(key, impl=KEYS)
        state = step(start(free, rng_key=key, model_args=given, trajectory_length=None, **fixed), given)
        return state.z, found.point(state.z, given[0])[0]

    values = model.draw(rng, model.order, walkers)
    with double():
        moved = jax.jit(jax.vmap(transition))
        free = jax.vmap(found.free_from)(values)
        for _ in range(alternations):
            released = noise.sample(rng, np.asarray(values["s"]))
            free, values = moved(free, rng.integers(2**32, size=(walkers, 2), dtype=np.uint32), released)
    prior, names = model.simulate(400_000, seed), ("rate", "s")
    logs, truth = (np.stack([np.log(np.asarray(x[name])) for name in names], axis=1) for x in (values, prior))
    pairs = [(rows[:, :, None] * rows[:, None, :]).reshape(len(rows), -1) for rows in (logs, truth)]
    features, wanted = np.hstack([logs, pairs[0]]), np.hstack([truth, pairs[1]])
    return z_of_mean(features, wanted.mean(axis=0), wanted.std(axis=0) / np.sqrt(len(wanted)))


@pytest.mark.long
def test_transitions_pass_gewekes_test(seed, monkeypatch):
    assert np.all(np.abs(geweke_scores(seed)) < LIMIT)
    monkeypatch.setattr(coordinates.Placed, "log_jacobian", 0.0)
    assert np.any(np.abs(geweke_scores(seed)) > LIMIT)


def test_normal_statistic_under_gaussian_noise_is_integrated_out(seed):
    model = nw.Model(prior={"mu": dist.Normal(1.0, 2.0)}, statistics={"mean": lambda mu: dist.Normal(mu, 0.5)})
    release = nw.Release(mean=nw.Gaussian(scale=1.5).released(3.0))
    assert not Target(Problem(model, release), {}).sampled
    prior = np.array([[4.0, 4.0], [4.0, 4.25]])
    gain = prior[:, 1] / (4.25 + 2.25)
    mean, covariance = 1.0 + gain * 2.0, prior - np.outer(gain, prior[1])
    posterior = nw.sample(model, release, SHORT, draws=6_000, seed=seed)
    assert is_exact(posterior, {"mu": (mean[0], covariance[0, 0]), "mean": (mean[1], covariance[1, 1])})


@pytest.mark.long
def test_naive_fit_is_the_conjugate_posterior(count_reference, seed):
    model, release, _ = target("count-25")
    entry = count_reference["by_alpha"]["25"]
    naive = nw.sample(model, release.naive(), SHORT, draws=6_000, seed=seed)
    assert is_exact(naive, {"theta": (entry["naive_mean"], entry["naive_sd"] ** 2)})
    assert np.all(naive["count"] == 37.4)


def test_naive_fit_without_a_density_says_so(seed):
    model = target("count-25")[0]
    with pytest.raises(nw.InferenceError, match="cannot start"):
        nw.sample(model, nw.Release(count=nw.Exact().released(-3.0)), SHORT, draws=100, seed=seed)


# Windows ------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_five_noise_scales_are_not_enough_under_conflict(seed, monkeypatch):
    """Negative control: such a window fails the exactness check; with the bound watched it is widened and passes."""
    model, release, truth = target("count-2")
    monkeypatch.setattr(windows, "FALL", 5.0)
    with monkeypatch.context() as patch:
        patch.setattr(nuts, "NEGLECTED", np.inf)
        cut = nw.sample(model, release, SHORT, draws=6_000, seed=seed, on_failure="return")
        assert not is_exact(cut, truth)
        assert cut.diagnostics["neglected"] > 0.1
    posterior = nw.sample(model, release, SHORT, draws=6_000, seed=seed)
    assert posterior.diagnostics["widened"] > 0
    assert posterior.diagnostics["neglected"] <= nuts.NEGLECTED
    assert is_exact(posterior, truth)


def test_bound_covers_what_a_window_leaves_out():
    """The sum over a much wider window is below the narrow one's bound, by no more than the share that may be void."""
    model, release = count_model(2.0), count_release()
    narrow, wide = Sum(Problem(model, release), ("count",), 0), Sum(Problem(model, release), ("count",), 4)
    # 13, ..., 52: the nearer end is 14.6 from the release, and the noise has scale 5
    narrow.windows["count"] = windows.Window(np.array(13), 40, np.array(-14.6 / 5.0))

    @jax.jit
    def all_three(theta):
        values = {"theta": theta}
        bounds = [one.log_bound(values, {}, one.tables()) for one in (narrow, wide)]
        return *bounds, narrow.conditional(values, {}, narrow.tables(), np.array([0.5]))[2]

    with double():
        for theta in (1.0, 5.0, 20.0, 40.0, 70.0):
            bound, whole, void = all_three(np.float64(theta))
            assert -1e-12 <= -np.expm1(float(whole - bound)) <= float(void)


@pytest.mark.long  # test_collapsed.py has the same of the shared sums
def test_windows_far_from_what_is_likely_are_noticed(seed, monkeypatch):
    """The release is 50 noise scales from all that the prior allows: the noise did it, whatever a window begins with.

    Control: chains on what the window holds, without the bound of what it does not, go to 470 and see nothing amiss.
    """
    monkeypatch.setattr(Sum, "_width", lambda self: 0)  # windows that follow the parameters would be right at once
    model = nw.Model({"lam": dist.LogNormal(-3.0, 0.8)}, {"count": lambda lam: dist.Poisson(lam)})
    release = nw.Release(count=nw.Laplace(scale=10.0).released(500.0))
    # given the release, lam has a factor exp(lam (exp(1/10) - 1)): quadrature over log lam
    u = np.linspace(-9.0, 2.0, 4001)
    weight = stats.norm.pdf(u, -3.0, 0.8) * np.exp(np.exp(u) * np.expm1(1 / 10))
    mean = np.sum(weight * np.exp(u)) / np.sum(weight)
    posterior = nw.sample(model, release, SHORT, draws=4_000, seed=seed)
    assert posterior.diagnostics["widened"] > 0
    assert abs(posterior["lam"].mean() - mean) < LIMIT * posterior.summary()["mcse"]["lam"]
    monkeypatch.setattr(Sum, "_log_beyond", lambda self, inside, outside: jnp.full_like(outside, -jnp.inf))
    model.compiled.clear()
    wrong = nw.sample(model, release, SHORT, draws=4_000, seed=seed, on_failure="return")
    assert wrong["lam"].mean() > 100.0


BY_RATIOS = {
    "Poisson": (lambda u: dist.Poisson(jnp.exp(u)).expand([4]), nw.Laplace(scale=3.0)),
    "binomial": (lambda u: dist.Binomial(10_000, logits=u - 7.0).expand([4]), nw.DiscreteGaussian(scale=4.0)),
    "negative binomial": (
        lambda u: dist.NegativeBinomial2(jnp.full(4, 9.0), jnp.exp(u)),
        nw.DiscreteLaplace(scale=2.0),
    ),
}


@pytest.mark.parametrize(("law", "mechanism"), brief_rows(BY_RATIOS, ["Poisson"]))
def test_sums_by_ratios_are_those_over_the_grid(law, mechanism):
    """Values and gradients, where the release is likely and where it is not."""
    model = nw.Model({"u": dist.Normal(1.0, 1.0)}, {"count": law})
    problem = Problem(model, nw.Release(count=mechanism.released(np.array([5, 0, 20, 9]))))
    grid, fast = (Sum(problem, ("count",), 3, by_ratios=by_ratios) for by_ratios in (False, True))
    assert (grid.width, fast.width > 0) == (0, True)
    with double():
        programs = [
            jax.jit(jax.value_and_grad(lambda u, one=one: one.log_bound({"u": u}, {}, one.tables())))
            for one in (grid, fast)
        ]
        for u in (-4.0, 0.0, 2.0, 5.0):
            assert np.allclose(*(program(jnp.float64(u)) for program in programs), rtol=1e-11)


def test_affine_tables_give_the_law(seed):
    model, release, _ = target("beta-binomial")
    one = Sum(Problem(model, release), ("yes",), 0)
    assert one.affine
    terms = jax.jit(lambda p: one.log_terms({"p": p}, {}, one.tables())[0])
    with double():
        for p in (0.01, 0.4, 0.99):
            law = np.asarray(terms(np.float64(p)))[:, 0]
            assert np.allclose(law, stats.binom.logpmf(np.arange(31), 30, p), rtol=1e-12, atol=1e-11)


def test_the_gradient_of_a_tilted_sum_is_that_of_the_sum_itself(seed):
    rng = np.random.default_rng(seed)
    share, table = np.linspace(0.0, 1.0, 7)[:, None], rng.standard_normal((7, 3))

    def plain(first, last):
        return jnp.sum(jax.scipy.special.logsumexp(table + (1.0 - share) * first + share * last, axis=0))

    with double():
        ends = jnp.asarray(rng.standard_normal(3)), jnp.asarray(rng.standard_normal(3))
        found = jax.jit(jax.grad(lambda *ends: jnp.sum(tilted(table, share, *ends)), argnums=(0, 1)))(*ends)
        expected = jax.jit(jax.grad(plain, argnums=(0, 1)))(*ends)
    for one, other in zip(found, expected, strict=True):
        assert np.asarray(one) == pytest.approx(np.asarray(other), rel=1e-12)


def test_compositions_are_all_tables():
    tables = compositions(6, 3)
    assert len(tables) == len({tuple(row) for row in tables}) == 28
    assert np.all(tables.sum(axis=1) == 6)


def test_gradients_are_numbers_far_away():
    for name in ("count-25", "statistic-of-statistic"):
        model, release, _ = target(name)
        found = Target(Problem(model, release), {})
        program = Compiled(lambda found=found: jax.grad(lambda free, data: found.potential(data)(free)))
        with double():
            for place in (-800.0, -30.0, 0.0, 6.0, 800.0):
                assert np.all(np.isfinite(program(np.full(found.size, place), found.data()))), (name, place)


def test_a_formula_beyond_its_range_is_no_attraction():
    """Forty standard deviations below its support a truncated normal law divides by zero: impossible, not infinite."""
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 1.0)}, statistics={"s": lambda mu: dist.TruncatedNormal(mu, 1.0, low=0.0)}
    )
    problem = Problem(model, nw.Release(s=nw.Gaussian(scale=1.0).released(0.5)))
    target = Target(problem, {})
    height = jax.jit(lambda free: target.point(free, target.data())[1])
    with double():
        assert float(height(np.array([-40.0, 0.0]))) == -np.inf
        assert np.isfinite(float(height(np.array([0.5, 0.0]))))
    state = State({"mu": np.array([-40.0, 0.5]), "s": np.array([1.0, 1.0])})
    found = Joint(problem, {}).log_density(state)
    assert found[0] == -np.inf
    assert np.isfinite(found[1])


# Runs -----------------------------------------------------------------------------------------------------------


def test_threads_do_not_matter_and_fewer_draws_come_first(seed):
    model, release, _ = target("count-2")
    one, four = (
        nw.sample(model, release, SHORT, draws=2_000, seed=seed, engine=nw.Threads(number), on_failure="return")
        for number in (1, 4)
    )
    for name in one.draws:
        assert np.array_equal(one[name], four[name])
    fewer = nw.sample(model, release, SHORT, draws=1_000, seed=seed, on_failure="return")
    first = one["theta"].reshape(4, 500)[:, :250]
    assert np.array_equal(fewer["theta"].reshape(4, 250), first)


def test_another_release_or_seed_compiles_nothing(seed):
    model, release, _ = target("count-2")

    def programs():
        return sum(len(one._programs) for one in model.compiled.values() if isinstance(one, Compiled))

    nw.sample(model, release, SHORT, draws=2_000, seed=seed, on_failure="return")
    before = programs()
    other = nw.Release(count=nw.Laplace(scale=5.1).released(36.6))
    nw.sample(model, other, SHORT, draws=2_000, seed=seed + 1, on_failure="return")
    assert programs() == before


def test_clock_is_reported(seed):
    model, release, _ = target("count-2")
    hurried = replace(SHORT, max_seconds=0.3)
    found = nw.sample(model, release, hurried, draws=4_000_000, seed=seed, on_failure="return")
    assert found.status == "max_seconds"
    assert len(found) < 4_000_000


def test_divergences_are_reported(seed, monkeypatch):
    model, release, _ = target("count-2")
    monkeypatch.setattr(nuts, "DIVERGENT", -1.0)
    monkeypatch.setattr(nuts, "judge_chains", lambda *given: ("complete", "", {}))  # chains as short may well disagree
    found = nw.sample(model, release, SHORT, draws=2_000, seed=seed, on_failure="return")
    assert found.status == "divergent"
    assert "target_accept" in found.message


REFUSED = {
    "clamped-total-unknown-n": "whole number",
    "total-of-bits": "Total or Simulator",
    "simulator": "Total or Simulator",
}


@pytest.mark.parametrize(("name", "why"), REFUSED.items(), ids=REFUSED)
def test_what_it_cannot_do_is_refused(name, why, seed):
    model, release, _ = target(name)
    assert why in NUTS().unfit(Problem(model, release))
    with pytest.raises(nw.InputError, match=why):
        nw.sample(model, release, NUTS(), draws=100, seed=seed)


def test_large_joint_tables_and_mixed_chains_are_refused():
    table = nw.Model(
        prior={"share": dist.Dirichlet(np.ones(10))}, statistics={"cells": lambda share: dist.Multinomial(500, share)}
    )
    release = nw.Release(cells=nw.DiscreteGaussian(scale=2.0).released([50] * 10))
    assert "jointly" in NUTS().unfit(Problem(table, release))
    mixed = nw.Model(
        prior={"mu": dist.Normal(0.0, 1.0)},
        statistics={"n": lambda mu: dist.Bernoulli(0.5), "x": lambda n, mu: dist.Normal(mu + n, 1.0)},
    )
    assert "depends" in NUTS().unfit(Problem(mixed, nw.Release(x=nw.Laplace(scale=1.0).released(0.3))))


@pytest.mark.parametrize(
    "bad", [{"chains": 0}, {"chains": 17}, {"warmup": 1.5}, {"target_accept": 1.0}, {"dense_mass": 2}]
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(nw.InputError, match="NUTS"):
        NUTS(**bad)


# Units --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", briefly([1e-9, 1e-6, 1e9], [1e-6]))
def test_chains_meet_in_any_unit(unit, seed):
    """A mean and the log of a standard deviation: in steps fit for one of them the other would not move."""
    rows = np.array([3.1, 4.4, 2.2, 5.0, 3.7, 1.9])
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 10.0 * unit), "sigma": dist.HalfNormal(5.0 * unit)},
        statistics={"x": lambda mu, sigma: dist.Normal(mu, sigma).expand([6]).to_event(1)},
    )
    release = nw.Release(x=nw.Laplace(scale=0.5 * unit).released(rows * unit))
    posterior = nw.sample(model, release, nw.NUTS(warmup=300), draws=1_200, seed=seed, on_failure="return")
    assert posterior.diagnostics["mean_steps"] < 20  # 560 in units of 1e-6 as they are
    assert max(posterior.r_hat.values()) < 1.1  # 4 there


def test_ordinary_spreads_are_left_as_they_are():
    free = np.random.default_rng(0).normal(size=(128, 4)) * np.array([1.0, 1e-6, 30.0, 1e9])
    scale = nuts.units(np.concatenate([free, np.full((2, 4), np.inf)]))
    assert scale[0] == scale[2] == 1.0
    assert np.array_equal(np.log2(scale), np.round(np.log2(scale)))
    assert scale[1] == pytest.approx(0.67e-6, rel=0.7)
    assert scale[3] == pytest.approx(0.67e9, rel=0.7)
    assert np.all(nuts.units(np.ones((8, 2))) == 1.0)


def test_draws_begin_after_the_warm_up():
    """Iterations by their numbers: the first that counts follows the last of the warm-up, then one in `thin`."""
    run = object.__new__(nuts.ChainsRun)
    run.settings, run.length, run.warmup = NUTS(chains=2, warmup=150, thin=3), 40, 150
    pieces = [{"free": nuts.PIECE * number + np.arange(nuts.PIECE)} for number in range(3)]
    run.pieces = [pieces, pieces]
    assert run._kept() == 40
    assert np.array_equal(run._joined("free", every=3), np.tile(150 + 3 * np.arange(40), (2, 1)))
    run.pieces = [pieces, pieces[:2]]  # the shorter chain decides
    assert run._kept() == 16
