"""Every kernel of augmentation by itself, in each of its branches: it leaves its conditional law as it was.

Rows start as exact draws, of model and release together or of a posterior by rejection. One kernel moves them, and
nothing else does. Then every expectation is what it was, and the mean change of a bounded function of a row, divided
by its standard error over independent rows, is a normal score. That holds for any step size and any number of
applications, whether the kernel mixes or not, so few applications are enough.
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, agrees, counts_agree
from scipy import stats

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.inference.record_steps import RecordSteps
from noisewise.samplers.augmentation import Lines, _copy_total
from noisewise.samplers.gibbs import parameter_steps
from noisewise.samplers.gibbs.conjugate import Conjugate, family_of
from noisewise.samplers.gibbs.joint import Joint, State
from noisewise.samplers.gibbs.latent import Entries
from noisewise.samplers.gibbs.parameter_steps import Gradient, Refresh
from noisewise.samplers.gibbs.renewal import Renewal
from noisewise.samplers.proposals.mixture import StudentMixture
from noisewise.samplers.proposals.weighted_candidates import log_average, pick_simulation
from noisewise.samplers.walking.moves import whole_steps

ROWS, TIMES = 6000, 4


def bounded(rows, like):
    """Bounded functions of every number of a row and of every pair."""
    centre, spread = np.median(like, axis=0), np.std(like, axis=0) + 1e-9
    squashed = np.tanh((rows - centre) / spread)
    first, second = np.triu_indices(rows.shape[1])
    return np.column_stack([squashed, squashed[:, first] * squashed[:, second]])


def stays(before, after):
    """Whether no expectation of bounded functions has changed, with one false alarm in a million over all of them."""
    change = bounded(after, before) - bounded(before, before)
    moving = change.std(axis=0) > 0
    assert moving.any()  # a kernel that moves nothing proves nothing
    z = change.mean(axis=0)[moving] / (change.std(axis=0, ddof=1)[moving] / np.sqrt(len(change)))
    return bool(np.all(np.abs(z) < stats.norm.isf(FALSE_ALARM / 2 / moving.sum())))


def flat(columns):
    return np.column_stack([np.asarray(column, float).reshape(len(column), -1) for column in columns])


def moved(model, mechanisms, make, seed):
    """Rows of model and release together, before and after a kernel that sees every row's own release."""
    rng = np.random.default_rng(seed)
    values = model.draw(rng, model.order, ROWS)
    noisy = {name: mechanism.sample(rng, values[name]) for name, mechanism in mechanisms.items()}
    first = nw.Release({name: mechanism.released(noisy[name][0]) for name, mechanism in mechanisms.items()})
    joint = Joint(Problem(model, first), {})
    joint.axes = dict.fromkeys(mechanisms, (None, 0))
    joint.release = {name: (mechanisms[name], value.astype(float)) for name, value in noisy.items()}
    state, step = State(dict(values)), make(joint)
    for _ in range(TIMES):
        step.step(rng, state, warm=False)
    return tuple(flat([*one.values(), *noisy.values()]) for one in (values, state.values))


def entries(name, move):
    def make(joint):
        step = Entries(joint, name)
        step.moves = [move]
        return step

    return make


def sized(step, log_step):
    step.log_step = log_step
    return step


def continuous():
    return nw.Model({"mu": dist.Normal(1.0, 2.0)}, {"s": lambda mu: dist.Normal(mu, 1.5).expand([2])})


def waiting():
    return nw.Model({"rate": dist.Gamma(3.0, 2.0)}, {"s": lambda rate: dist.Exponential(rate)})


def counts():
    return nw.Model({"rate": dist.Gamma(4.0, 1.0)}, {"s": lambda rate: dist.Poisson(rate)})


def many():
    """A law much broader than the noise, so that the conditional is as wide as a window."""
    return nw.Model({"rate": dist.Gamma(400.0, 1.0)}, {"s": lambda rate: dist.Poisson(rate)})


def shares():
    return nw.Model({"p": dist.Beta(2.0, 3.0)}, {"s": lambda p: dist.Binomial(8, p)})


def table():
    return nw.Model(
        {"shares": dist.Dirichlet(jnp.array([2.0, 1.0, 1.5]))}, {"s": lambda shares: dist.Multinomial(6, shares)}
    )


def pair():
    return nw.Model(
        {"mu": dist.Normal(0.0, 1.0), "spread": dist.LogNormal(0.0, 0.5)},
        {"s": lambda mu, spread: dist.Normal(mu, spread).expand([3])},
    )


def whole():
    return nw.Model({"n": dist.Poisson(4.0)}, {"s": lambda n: dist.Normal(n * 1.0, 0.5)})


KERNELS = {
    "the random walk of a continuous statistic": (continuous, nw.Laplace(scale=1.0), entries("s", "local")),
    "a continuous statistic proposed from the noise": (continuous, nw.Laplace(scale=1.0), entries("s", "noise")),
    "a continuous statistic proposed from its law": (continuous, nw.Gaussian(scale=1.5), entries("s", "law")),
    "the random walk of a positive statistic": (waiting, nw.Laplace(scale=0.7), entries("s", "local")),
    "a positive statistic proposed from the noise": (waiting, nw.Laplace(scale=0.7), entries("s", "noise")),
    "a window of counts": (many, nw.DiscreteLaplace(scale=2.0), entries("s", "local")),
    "counts proposed from the noise": (counts, nw.DiscreteLaplace(scale=1.5), entries("s", "noise")),
    "counts proposed from their law": (counts, nw.DiscreteGaussian(scale=2.0), entries("s", "law")),
    "all values of a count": (shares, nw.DiscreteLaplace(scale=1.5), entries("s", "local")),
    "lines through a table": (table, nw.DiscreteLaplace(scale=1.0), lambda joint: Lines(joint, "s", table=True)),
    "a line through a whole parameter": (whole, nw.Laplace(scale=1.0), lambda joint: Lines(joint, "n", table=False)),
    "a trajectory of a bounded parameter": (
        shares,
        nw.DiscreteLaplace(scale=1.5),
        lambda joint: sized(Gradient(joint, ["p"]), np.log(0.9)),
    ),
    "a trajectory of two parameters": (
        pair,
        nw.Laplace(scale=1.0),
        lambda joint: sized(Gradient(joint, ["mu", "spread"]), np.log(0.6)),
    ),
    "a trajectory of a positive statistic": (
        waiting,
        nw.Laplace(scale=0.7),
        lambda joint: sized(Gradient(joint, ["s"]), np.log(0.9)),
    ),
    "a bounded parameter with a fresh statistic": (
        shares,
        nw.DiscreteLaplace(scale=1.5),
        lambda joint: sized(Refresh(joint, ["p"], ["s"]), np.log(0.8)),
    ),
    "a gamma law given the rest": (
        counts,
        nw.DiscreteLaplace(scale=1.5),
        lambda joint: Conjugate(joint, "rate", family_of(joint, "rate")),
    ),
    "a beta law given the rest": (
        shares,
        nw.DiscreteLaplace(scale=1.5),
        lambda joint: Conjugate(joint, "p", family_of(joint, "p")),
    ),
    "a normal law given the rest": (
        continuous,
        nw.Laplace(scale=1.0),
        lambda joint: Conjugate(joint, "mu", family_of(joint, "mu")),
    ),
    "a Dirichlet law given the rest": (
        table,
        nw.DiscreteLaplace(scale=1.0),
        lambda joint: Conjugate(joint, "shares", family_of(joint, "shares")),
    ),
}


@pytest.mark.parametrize("name", KERNELS, ids=[name.replace(" ", "_") for name in KERNELS])
def test_a_kernel_leaves_its_conditional_as_it_was(name, seed):
    model, mechanism, make = KERNELS[name]
    assert stays(*moved(model(), {"s": mechanism}, make, seed))


def test_a_statistic_proposed_from_its_law_and_never_refused_is_caught(seed, monkeypatch):
    """Negative control."""

    def blind(self, rng, state, proposed, ratio):
        state.values[self.name] = proposed
        return np.ones(proposed.shape)

    monkeypatch.setattr(Entries, "_decide", blind)
    assert not stays(*moved(continuous(), {"s": nw.Gaussian(scale=1.5)}, entries("s", "law"), seed))


def test_a_kernel_without_its_jacobian_is_caught(seed, monkeypatch):
    """Negative control."""

    class Bent(parameter_steps.Chart):
        def point(self, free, given):
            values, total = super().point(free, given)
            return values, 0.0 * total

    monkeypatch.setattr(parameter_steps, "Chart", Bent)
    model, mechanism, make = KERNELS["a bounded parameter with a fresh statistic"]
    assert not stays(*moved(model(), {"s": mechanism}, make, seed))


# Kernels over records: rows start as exact draws of the posterior, by rejection -----------------------------------


def records(model, release, seed, proposals=60_000):
    """A chain for every survivor of rejection: exact draws of parameters and records given the release."""
    rng = np.random.default_rng(seed)
    problem = Problem(model, release)
    joint = Joint(problem, {"total": RecordSteps(problem, "total")})
    state = State(model.draw(rng, [name for name in model.order if name != "total"], proposals))
    state.records["total"] = joint.totals["total"].start(rng, state.values, proposals)
    _copy_total(joint, "total", state)
    kept = np.flatnonzero(rng.standard_exponential(proposals) >= -problem.log_ratio(list(release), state.values))
    state.values = {name: column[kept] for name, column in state.values.items()}
    state.records["total"] = {field: column[kept] for field, column in state.records["total"].items()}
    return rng, joint, state


def test_parameters_and_records_renewed_together_stay_as_they_were(seed):
    model = nw.Model(
        {"p": dist.Beta(2.0, 3.0)}, {"total": nw.Total({"x": lambda p: dist.Bernoulli(p)}, lambda x: x, n=6)}
    )
    release = nw.Release({"total": nw.DiscreteLaplace(scale=1.5).released(5)})
    rng, joint, state = records(model, release, seed)
    before, step = flat(state.values.values()), sized(Renewal(joint, "total"), np.log(0.9))
    for _ in range(TIMES):
        step.step(rng, state, warm=False)
    assert stays(before, flat(state.values.values()))
    sums = np.asarray(state.records["total"]["x"]).sum(axis=1)
    assert np.array_equal(sums, state.values["total"])


def test_the_number_of_records_stays_as_it_was_also_at_none(seed):
    """Few records, clamped sums, and a release near nothing: a third of the posterior has no record at all."""
    model = nw.Model(
        {"n": dist.Poisson(1.2)},
        {"total": nw.Total({"x": dist.Normal(1.0, 1.0)}, lambda x: jnp.clip(x, 0.0, 2.0), n="n")},
    )
    release = nw.Release({"total": nw.Laplace(scale=1.0).released(0.4)})
    rng, joint, state = records(model, release, seed, 20_000)
    before = flat(state.values.values())
    steps = joint.totals["total"]
    for _ in range(TIMES):
        state.records["total"], _ = steps.sweep(rng, state.records["total"], state.values)
        _copy_total(joint, "total", state)
    after = flat(state.values.values())
    assert stays(before, after)
    none = (after[:, 0] == 0) * 1.0 - (before[:, 0] == 0)
    assert np.any(none != 0)
    assert agrees(none, 0.0)


# Parts of other samplers --------------------------------------------------------------------------------------


def test_steps_of_whole_numbers_go_up_as_often_as_down(seed):
    steps = whole_steps(np.random.default_rng(seed), (40_000, 2), np.array([3.0, 0.5]), np.ones(40_000))
    assert agrees(np.sign(steps), 0.0)
    assert np.all(np.abs(steps).max(axis=0) > 1)


def test_a_mixture_is_drawn_from_its_density(seed):
    """Averages of another density over this one, at its own draws, are one: in both places, heavy tails included."""
    mixture = StudentMixture(
        np.array([0.3, 0.7]),
        np.array([[0.0, 0.0], [4.0, -1.0]]),
        np.array([[[1.0, 0.0], [0.5, 0.8]], [[0.5, 0.0], [-0.2, 0.3]]]),
    )
    points = mixture.draw(np.random.default_rng(seed), 100_000)
    log_density = mixture.log_density(points)
    for centre, factor in zip(mixture.centres, mixture.factors, strict=True):
        for width in (0.5, 3.0):
            law = stats.multivariate_t(centre, width * factor @ factor.T, df=6)
            assert agrees(np.exp(law.logpdf(points) - log_density), 1.0)


def test_one_of_several_simulations_is_picked_by_its_weight(seed):
    weights = np.array([0.05, 0.5, 0.0, 0.45])
    with np.errstate(divide="ignore"):
        log_each = np.broadcast_to(np.log(weights) - 300.0, (20_000, 4))
    picked = pick_simulation(np.random.default_rng(seed), log_each)
    assert counts_agree(np.bincount(picked, minlength=4), weights)
    assert log_average(log_each) == pytest.approx(-300.0 - np.log(4.0), rel=1e-12)
