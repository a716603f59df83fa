"""Augmentation: exact posteriors, Geweke's joint-distribution test, recognised conjugacy, kernels broken on purpose."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from targets import all_targets, briefly, count_model, count_release, lalonde_model, lalonde_release, new_count_model

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.numerics import Compiled
from noisewise.samplers import augmentation
from noisewise.samplers.augmentation import Augmentation, closed_forms, one_sweep, sweep_steps
from noisewise.samplers.choosing import second_look
from noisewise.samplers.gibbs import latent
from noisewise.samplers.gibbs.conjugate import FAMILIES, Conjugate
from noisewise.samplers.gibbs.joint import Joint, State
from noisewise.samplers.gibbs.parameter_steps import Gradient


def worst_z(posterior, truth):
    """The largest |z| of means and second moments, by the spread over chains (superchains where starts are shared)."""
    found = []
    for name, (mean, variance) in truth.items():
        values = posterior[name].astype(float).reshape(posterior.superchains or posterior.chains, -1, *np.shape(mean))
        for terms in (values - mean, (values - mean) ** 2 - variance):
            by_chain = terms.mean(axis=1)
            t = by_chain.mean(axis=0) / (by_chain.std(axis=0, ddof=1) / np.sqrt(len(by_chain)) + 1e-300)
            found.append(np.max(np.abs(as_normal(t, len(by_chain) - 1))))
    return max(found)


def as_normal(t, degrees):
    """The normal score as unlikely as Student's t."""
    from scipy import stats

    return stats.norm.isf(stats.t.sf(np.abs(t), degrees))


def run(problem, seed, draws=9_600, on_failure="raise", **settings):
    model, release = problem
    return nw.sample(model, release, Augmentation(chains=64, **settings), draws=draws, seed=seed, on_failure=on_failure)


@pytest.mark.long
def test_lalonde_matches_its_reference(lalonde_reference, seed):
    entry = lalonde_reference["noisy_a"]
    problem = lalonde_model(), lalonde_release(entry["released"])
    # some thousand effective draws would be needed for a nested R-hat surely below 1.01; the errors below need fewer
    posterior = nw.sample(*problem, Augmentation(chains=64), draws=19_200, seed=seed, on_failure="return")
    for name, column in (("tau", "tau"), ("mu", "mu"), ("sigma_t_squared", "sigma_t"), ("sigma_c_squared", "sigma_c")):
        values = posterior[column].reshape(16, -1)
        values = (values**2 if name.endswith("squared") else values).mean(axis=1)
        truth = entry["posterior"][name]
        error = np.hypot(values.std(ddof=1) / 4.0, truth["mcse_of_mean"])
        assert abs(as_normal((values.mean() - truth["mean"]) / error, 15)) < LIMIT, name


# Geweke's joint-distribution test -------------------------------------------------------------------------------------


def geweke(model, mechanisms, seed, sweeps=20, chains=1024):
    """Largest |z| between draws of model and release, and chains whose release is drawn anew before every sweep.

    One release given the statistics, one sweep given the release: the joint law of parameters, statistics and release
    must stay what it was (Geweke 2004). Chains start from it and are independent, so their spread gives the error.
    """
    rng = np.random.default_rng(seed)
    state = State(model.draw(rng, model.order, chains))
    joint = Joint(Problem(model, nw.Release(noisy(mechanisms, rng, state.values, 0))), {})
    joint.axes = dict.fromkeys(mechanisms, (None, 0))
    steps = sweep_steps(joint, closed_forms(Joint(joint.problem, {}), state, chains))
    for step in steps:
        step.log_step = np.log(0.6)  # any fixed step is exact; only Hamiltonian steps have one
    prior = model.draw(rng, model.order, 100_000)
    fresh = scalars(prior, {name: mechanism.sample(rng, prior[name]) for name, mechanism in mechanisms.items()})
    seen = 0.0
    for _ in range(sweeps):
        release = {name: mechanism.sample(rng, state.values[name]) for name, mechanism in mechanisms.items()}
        joint.release = {name: (mechanisms[name], value.astype(float)) for name, value in release.items()}
        one_sweep(rng, joint, steps, state, warm=False)
        seen = seen + features(scalars(state.values, release), fresh) / sweeps
    fresh = features(fresh, fresh)
    error = np.hypot(seen.std(axis=0) / np.sqrt(chains), fresh.std(axis=0) / np.sqrt(len(fresh)))
    return float(np.max(np.abs(seen.mean(axis=0) - fresh.mean(axis=0)) / error))


def noisy(mechanisms, rng, values, row):
    return {
        name: mechanism.released(mechanism.sample(rng, values[name])[row]) for name, mechanism in mechanisms.items()
    }


def scalars(values, release):
    return np.column_stack([np.asarray(v, float).reshape(len(v), -1) for v in (*values.values(), *release.values())])


def features(rows, typical):
    """Bounded functions of every scalar and every pair, so that heavy-tailed priors do no harm."""
    centre, spread = np.median(typical, axis=0), np.std(typical, axis=0)
    squashed = np.tanh((rows - centre) / spread)
    pairs = squashed[:, :, None] * squashed[:, None, :]
    return np.column_stack([squashed, pairs.reshape(len(rows), -1)])


CASES = {
    "conjugate": (
        lambda: nw.Model({"p": dist.Beta(2.0, 3.0)}, {"yes": lambda p: dist.Binomial(20, p)}),
        lambda: {"yes": nw.DiscreteLaplace(scale=2.0)},
    ),
    "metropolis": (
        lambda: nw.Model(
            {"mu": dist.Normal(1.0, 2.0), "spread": dist.LogNormal(0.0, 0.5)},
            {"s": lambda mu, spread: dist.Normal(mu, spread).expand([2])},
        ),
        lambda: {"s": nw.Laplace(scale=1.0)},
    ),
    "hierarchical": (
        lambda: nw.Model(
            {"level": dist.Gamma(3.0, 1.0), "rate": lambda level: dist.Gamma(level, 0.7).expand([2])},
            {"count": lambda rate: dist.Poisson(rate)},
        ),
        lambda: {"count": nw.DiscreteGaussian(scale=2.0)},
    ),
}


@pytest.mark.parametrize("name", briefly(CASES, ["conjugate"]))
def test_joint_distribution_is_kept(name, seed):
    make, mechanisms = CASES[name]
    assert geweke(make(), mechanisms(), seed) < LIMIT


def test_geweke_catches_a_statistic_drawn_without_its_noise(seed, monkeypatch):
    def from_the_law(self, rng, state, warm):
        state.values[self.name] = self.model.law(self.name).draw(rng, state.values, state.chains)
        return 1.0, 1.0

    monkeypatch.setattr(latent.Entries, "step", from_the_law)
    make, mechanisms = CASES["conjugate"]
    assert geweke(make(), mechanisms(), seed) > LIMIT


# Kernels broken on purpose --------------------------------------------------------------------------------------------


def count_truth(alpha):
    target = next(one for one in all_targets() if one.name == f"count-{alpha}")
    truth = dict(target.solve())
    truth.pop("log_evidence")
    return truth


def test_a_window_cut_at_five_scales_is_caught(seed, monkeypatch):
    """Under conflict it drops nearly all of the posterior."""
    monkeypatch.setattr(second_look, "MOST_ROWS", 2**13)
    model = new_count_model(2.0)
    release = nw.Release(count=nw.Laplace(scale=5.0).released(137.4))
    from scipy import special, stats

    s = np.arange(1001)
    log_weight = stats.nbinom.logpmf(s, 2.0, 0.5) - np.abs(137.4 - s) / 5.0
    weight = np.exp(log_weight - special.logsumexp(log_weight))
    mean = weight @ s
    truth = {"count": (mean, weight @ (s - mean) ** 2)}
    assert weight[s >= 137.4 - 25.0].sum() < 0.01
    few = {"draws": 1_600, "warmup": 60, "on_failure": "return"}
    assert worst_z(run((model, release), seed, **few), truth) < LIMIT
    monkeypatch.setattr(latent, "window_for", lambda joint, name: (51, 112))
    monkeypatch.setattr(latent.Entries, "cheap", True)
    wrong = run((model, release), seed, min_ess=1e-3, **few)
    assert worst_z(wrong, truth) > LIMIT
    assert wrong.status == "unseen"


@pytest.mark.long
def test_a_window_that_always_starts_at_the_current_value_is_caught(seed, monkeypatch):
    """Its place must be random: otherwise the value could only grow."""
    original = np.random.Generator.integers

    class Lopsided:
        def __init__(self, rng):
            self.rng = rng

        def __getattr__(self, name):
            return getattr(self.rng, name)

        def integers(self, low, high, shape):
            return np.minimum(original(self.rng, low, high, shape), 3)

    step = latent.Entries._enumerate
    monkeypatch.setattr(latent.Entries, "_enumerate", lambda self, rng, state: step(self, Lopsided(rng), state))
    monkeypatch.setattr(latent.Entries, "_law", lambda self, rng, state, warm: np.zeros(1))
    posterior = nw.sample(
        count_model(), count_release(), Augmentation(chains=64), draws=9_600, seed=seed, on_failure="return"
    )
    assert worst_z(posterior, count_truth(25)) > LIMIT


@pytest.mark.long
def test_a_dropped_jacobian_is_caught(seed, monkeypatch):
    target = next(one for one in all_targets() if one.name == "hierarchy")
    truth = dict(target.solve())
    truth.pop("log_evidence")
    from noisewise.model.coordinates import Placed

    monkeypatch.setattr(Placed, "log_jacobian", 0.0)
    assert worst_z(run(target.make(), seed), truth) > LIMIT


# Conjugacy ------------------------------------------------------------------------------------------------------------


def steps_of(prior, statistics, **released):
    model = nw.Model(prior, statistics)
    noise = nw.Laplace(scale=1.0)
    release = nw.Release({name: noise.released(value) for name, value in released.items()})
    joint = Joint(Problem(model, release), {})
    found = closed_forms(joint, State(model.draw(np.random.default_rng(1), model.order, 16)), 16)
    return {name: family.name for name, family in found.items()}


def test_conjugate_laws_are_recognised():
    gamma, beta = {"r": dist.Gamma(2.0, 1.0)}, {"r": dist.Beta(2.0, 1.0)}
    assert steps_of(gamma, {"s": lambda r: dist.Poisson(3.0 * r)}, s=2.0) == {"r": "Gamma"}
    assert steps_of(beta, {"s": lambda r: dist.Binomial(9, r)}, s=2.0) == {"r": "Beta"}
    normal = {"m": dist.Normal(0.0, 1.0), "v": dist.HalfNormal(1.0)}
    assert steps_of(normal, {"s": lambda m, v: dist.Normal(m - 1.0, v)}, s=2.0) == {"m": "Normal"}


@pytest.mark.long
def test_conjugate_laws_of_vectors_are_recognised():
    two, exposure = {"r": dist.Gamma(2.0, 1.0).expand([2])}, np.array([1.0, 3.0])
    assert steps_of(two, {"s": lambda r: dist.Poisson(exposure * r)}, s=[2.0, 1.0]) == {"r": "Gamma"}
    assert steps_of(two, {"s": lambda r: dist.Exponential(r[1])}, s=2.0) == {"r": "Gamma"}


def test_what_is_not_conjugate_is_not_taken_for_it():
    gamma, beta = {"r": dist.Gamma(2.0, 1.0)}, {"r": dist.Beta(2.0, 1.0)}
    assert steps_of(gamma, {"s": lambda r: dist.Poisson(1.0 + r)}, s=2.0) == {}
    assert steps_of(gamma, {"s": lambda r: dist.Poisson(jnp.minimum(r, 50.0))}, s=2.0) == {}
    assert steps_of(gamma, {"s": lambda r: dist.Gamma(r, 1.0)}, s=2.0) == {}
    assert steps_of(gamma, {"s": lambda r: dist.Gamma(r, r)}, s=2.0) == {}
    assert steps_of(beta, {"s": lambda r: dist.Binomial(9, 0.5 * r)}, s=2.0) == {}
    two = {"r": dist.Gamma(2.0, 1.0).expand([2])}
    assert steps_of(two, {"s": lambda r: dist.Poisson(r.sum())}, s=2.0) == {}


@pytest.mark.long
def test_structure_decides_before_numbers_do():
    """With nobody asked, 0.5 p and p alike say nothing of p: only the way that p enters tells them apart."""
    for scale, found in ((1.0, {"p": "Beta", "size": "Gamma"}), (0.5, {"size": "Gamma"})):
        prior = {"p": dist.Beta(2.0, 1.0), "size": dist.Gamma(1.0, 1e9)}
        statistics = {
            "n": lambda size: dist.Poisson(size),
            "yes": lambda n, p, scale=scale: dist.Binomial(n, scale * p if scale < 1.0 else p),
        }
        assert steps_of(prior, statistics, n=0.0, yes=0.0) == found


@pytest.mark.parametrize("together", [1, 16])
def test_numbers_must_bear_out_what_the_structure_says(together):
    """For one chain at a time too, whose own mean, least and largest value are one and the same."""
    for density, found in ((lambda m: -0.5 * m**2, True), (lambda m: -(m**4), False)):
        model = nw.Model({"m": dist.Normal(0.0, 1.0)}, {"s": lambda m: dist.Normal(m, 1.0)})
        joint = Joint(Problem(model, nw.Release(s=nw.Laplace(scale=1.0).released(1.0))), {})
        one = Conjugate(joint, "m", FAMILIES["Normal"])
        one.target = lambda values, records, release, density=density: density(values["m"])
        state = State(model.draw(np.random.default_rng(1), model.order, 16))
        batches = [state.some(np.arange(first, first + together)) for first in range(0, 16, together)]
        assert one.agrees(batches) == found


# Behaviour ------------------------------------------------------------------------------------------------------------


def test_one_seed_gives_one_result_on_any_number_of_threads(seed):
    problem = (count_model(), count_release())
    settings = dict(sampler=Augmentation(chains=32, warmup=10, min_ess=1.0), draws=320, seed=seed, on_failure="return")
    one = nw.sample(*problem, engine=nw.Threads(1), **settings)
    four = nw.sample(*problem, engine=nw.Threads(4), **settings)
    assert all(np.array_equal(one[name], four[name]) for name in one.draws)


def test_trajectories_that_would_come_back_are_cut_at_the_end_of_the_warm_up(seed):
    """Sixty whitened normal coordinates: eleven steps of 0.6 end near their beginning. Negative control: left so."""
    model = nw.Model(
        {"x": dist.Normal(0.0, 1.0).expand([60]).to_event(1)}, {"count": lambda x: dist.Poisson(jnp.exp(0.01 * x[0]))}
    )
    joint = Joint(Problem(model, nw.Release(count=nw.Laplace(scale=1.0).released(1.0))), {})

    def correlation(cut):
        rng, step = np.random.default_rng(seed), Gradient(joint, ["x"])
        step.begin(np.log(0.6))
        assert step.leaps == 11
        if cut:
            step.freeze()
            assert step.leaps == 4
        state = State(model.draw(rng, model.order, 64))
        before = state.values["x"]
        step.step(rng, state, warm=False)
        return np.mean(before * state.values["x"])

    assert correlation(cut=True) < 0.0 < 0.5 < correlation(cut=False)


def test_a_tuned_step_is_frozen_at_its_average_over_the_last_quarter_of_the_warm_up(seed):
    model = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"count": lambda mu: dist.Poisson(jnp.exp(mu))})
    joint = Joint(Problem(model, nw.Release(count=nw.Laplace(scale=1.0).released(3.0))), {})
    rng = np.random.default_rng(seed)
    state = State(model.draw(rng, model.order, 16))
    steps = sweep_steps(joint, {})
    (hamiltonian,) = [step for step in steps if isinstance(step, Gradient)]
    tuned, warmup = [], 40
    for sweep in range(warmup):
        one_sweep(rng, joint, steps, state, warm=True)
        tuned.append(hamiltonian.log_step)
        augmentation.adapt(steps, sweep + 1, warmup)
    assert hamiltonian.log_step == pytest.approx(np.mean(tuned[30:]))
    assert hamiltonian.log_step != tuned[-1]
    one_sweep(rng, joint, steps, state, warm=False)
    assert hamiltonian.log_step == pytest.approx(np.mean(tuned[30:]))


def test_noise_free_statistics_give_the_conjugate_posterior(seed):
    release = nw.Release(count=nw.Exact().released(37))
    posterior = run((count_model(), release), seed)
    assert (posterior.chains, posterior.superchains) == (64, 16)
    assert np.all(posterior["count"] == 37)
    assert worst_z(posterior, {"theta": (62.0 / 2.0, 62.0 / 4.0)}) < LIMIT


def test_refusals(seed):
    simulator = nw.Model(
        {"p": dist.Beta(2.0, 3.0)}, {"yes": nw.Simulator(lambda rng, p: rng.binomial(30, p), batched=True)}
    )
    release = nw.Release(yes=nw.DiscreteLaplace(scale=2.0).released(19))
    with pytest.raises(nw.InputError, match="needs the density of 'yes'"):
        nw.sample(simulator, release, Augmentation(), draws=100, seed=seed)
    fixed = nw.Model(
        {"a": dist.Gamma(25.0, 1.0), "b": lambda a: dist.Delta(2.0 * a)}, {"count": lambda b: dist.Poisson(b)}
    )
    with pytest.raises(nw.InputError, match="cannot move 'b', which is a fixed function of others"):
        nw.sample(fixed, count_release(), Augmentation(), draws=100, seed=seed)
    with pytest.raises(nw.InputError, match="multiple of 16"):
        Augmentation(chains=40)
    for wrong in (dict(thin=0), dict(warmup=-1), dict(min_ess=0.0), dict(max_seconds=-1.0)):
        with pytest.raises(nw.InputError):
            Augmentation(**wrong)


def test_the_clock_ends_a_run_with_its_status(seed):
    sampler = Augmentation(chains=16, max_seconds=1e-3)
    posterior = nw.sample(count_model(), count_release(), sampler, draws=160_000, seed=seed, on_failure="return")
    assert posterior.status == "max_seconds"
    assert len(posterior) < 160_000


def programs_of(model):
    return {key: dict(made._programs) for key, made in model.compiled.items() if isinstance(made, Compiled)}


def test_a_second_release_compiles_nothing(seed):
    model = new_count_model()
    settings = dict(sampler=Augmentation(chains=16, warmup=4, min_ess=1.0), draws=160, seed=seed, on_failure="return")
    nw.sample(model, count_release(), **settings)
    programs = programs_of(model)
    nw.sample(model, nw.Release(count=nw.Laplace(scale=7.0).released(20.1)), **settings)
    assert programs_of(model) == programs
    assert augmentation.GROUPS == 4
