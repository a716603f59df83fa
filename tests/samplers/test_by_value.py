"""A mixture for every value of whole-numbered parameters: the right weights, and no explanation passed over."""

import math
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from scipy import stats

import noisewise as nw
from noisewise.model.coordinates import Space
from noisewise.samplers import augmentation
from noisewise.samplers.proposals.adapted import Adapted, search, uniform_tables
from noisewise.samplers.proposals.by_value import MOST_VALUES, ByValue, by_value
from noisewise.samplers.proposals.mixture import StudentMixture

ROWS = 40_000


def nothing():
    pass


@cache
def switched():
    """Two flags whose law depends on a real parameter, and a class of three."""
    return nw.Model(
        {
            "m": dist.Normal(0.0, 1.0),
            "flags": lambda m: dist.BernoulliLogits(m).expand([2]),
            "kind": dist.Categorical(np.array([0.5, 0.3, 0.2])),
        },
        {"x": lambda m, flags, kind: dist.Normal(m + flags.sum() + kind, 1.0)},
    )


def stratified(share=0.2):
    """Mixtures at other places for other values, and uneven chances."""
    model = switched()
    law = by_value(Adapted(Space(model), student(0.0, 2.0), share, uniform_tables(model)))
    assert isinstance(law, ByValue)
    count = len(law.values)
    mixtures = [student(-1.0 + 2.0 * number / count, 0.7 + 0.1 * number) for number in range(count)]
    return law.refitted(mixtures, np.arange(1.0, count + 1.0) / np.arange(1.0, count + 1.0).sum())


def student(centre, scale):
    return StudentMixture(np.ones(1), np.array([[centre]]), np.array([[[scale]]]))


def test_ratios_integrate_to_one(seed):
    """E_g[pi0 / g] = 1, and E_g[(pi0 / g) f] is the prior's mean of f, for every value of every whole number."""
    law = stratified()
    assert len(law.values) == MOST_VALUES
    values, log_ratio = law(np.random.default_rng(seed), ROWS, nothing)
    ratio, grid = np.exp(log_ratio), np.linspace(-9.0, 9.0, 4001)
    on = 1.0 / (1.0 + np.exp(-grid))
    both = np.trapezoid(stats.norm.pdf(grid) * on**2, grid)
    functions = [
        (np.ones(ROWS), 1.0),
        (values["m"], 0.0),
        (values["m"] ** 2, 1.0),
        (values["flags"].all(axis=1), both),
        (values["flags"][:, 0] * values["m"], np.trapezoid(stats.norm.pdf(grid) * on * grid, grid)),
        *((values["kind"] == kind, chance) for kind, chance in enumerate([0.5, 0.3, 0.2])),
    ]
    for function, mean in functions:
        terms = ratio * function
        assert abs(terms.mean() - mean) < LIMIT * terms.std() / math.sqrt(ROWS)


def test_a_value_is_drawn_from_its_own_mixture(seed):
    law = stratified(share=1e-9)
    values, _ = law(np.random.default_rng(seed), ROWS, nothing)
    number = law.numbers({name: values[name] for name in ("flags", "kind")}, ROWS)
    assert np.all(number >= 0)
    for own in range(len(law.values)):
        at = (values["m"][number == own] - law.mixtures[own].centres[0, 0]) / law.mixtures[own].factors[0, 0, 0]
        assert stats.kstest(at, stats.t(5).cdf).pvalue > 1e-7
        count = np.sum(number == own)
        assert abs(count - ROWS * law.chances[own]) < LIMIT * math.sqrt(ROWS * law.chances[own])


@pytest.mark.parametrize("number", [MOST_VALUES, MOST_VALUES + 1])
def test_many_values_share_a_mixture(number):
    prior = {"m": dist.Normal(0.0, 1.0), "k": dist.DiscreteUniform(0, number - 1)}
    model = nw.Model(prior, {"x": lambda m, k: dist.Normal(m + k, 1.0)})
    law = by_value(search(Space(model), model.draw(np.random.default_rng(0), ["m", "k"], 1_000)))
    assert isinstance(law, ByValue) == (number == MOST_VALUES)


@cache
def common_fault(released=(151.0, 139.0, 160.0, 148.0), chance=0.5):
    """Four clamped sums of fifty records, all shifted together by a fault, or in truth four units higher."""

    def group(number):
        name = f"x{number}"

        def record(th, flag, delta):
            return dist.Normal(th[number] + flag * delta, 1.0)

        clamped = eval(f"lambda {name}: clip({name}, -10.0, 10.0)", {"clip": jnp.clip})  # its argument has a name
        return nw.Total({name: record}, clamped, n=50)

    prior = {
        "flag": dist.Bernoulli(chance),
        "delta": dist.Normal(4.0, 0.5),
        "m": dist.Normal(0.0, 1.0),
        "th": lambda m: dist.Normal(m, 0.3).expand([len(released)]),
    }
    model = nw.Model(prior, {f"g{number}": group(number) for number in range(len(released))})
    return model, nw.Release({f"g{n}": nw.Laplace(scale=2.0).released(value) for n, value in enumerate(released)})


def chance_of_a_fault(released, chance):
    """By closed forms given the noise, averaged over the noise: clamping is six standard deviations away."""
    groups = len(released)
    own, common = np.eye(groups) * (2500.0 * 0.09 + 50.0), np.ones((groups, groups))
    without_noise = np.asarray(released) - np.random.default_rng(0).laplace(0.0, 2.0, (200_000, groups))
    sound = stats.multivariate_normal(np.zeros(groups), own + 2500.0 * common).pdf(without_noise) * (1.0 - chance)
    faulty = stats.multivariate_normal(np.full(groups, 200.0), own + 3125.0 * common).pdf(without_noise) * chance
    return faulty.mean() / (sound.mean() + faulty.mean())


def test_neither_of_two_explanations_is_lost(seed):
    """The fault has 0.979 of the posterior; without it, the means lie where no prior row with the fault is."""
    model, release = common_fault()
    posterior = nw.sample(model, release, draws=4_000, seed=seed)
    truth = chance_of_a_fault((151.0, 139.0, 160.0, 148.0), 0.5)
    weights = posterior.weights if posterior.weights is not None else np.full(len(posterior), 1.0 / len(posterior))
    off = weights * (posterior["flag"] - truth)
    assert abs(off.sum()) < LIMIT * math.sqrt(np.sum(off**2))
    assert np.sum(weights[posterior["flag"] == 0]) > 0.003


def test_chains_start_at_every_value_that_could_be(seed):
    """Also where draws at one value have a thousandth of the weight; not where they have none to speak of."""
    rng = np.random.default_rng(seed)
    whole, log_weights = np.repeat([[0.0], [1.0], [2.0]], 300, axis=0), rng.normal(size=900)
    log_weights[300:600] -= 7.0
    log_weights[600:] -= 40.0
    chosen = augmentation._at_every_value(rng, whole, log_weights, 16)
    assert np.array_equal(np.bincount(chosen // 300, minlength=3), [8, 8, 0])
    alone = augmentation._at_every_value(np.random.default_rng(1), np.zeros((900, 1)), log_weights, 16)
    assert np.array_equal(alone, augmentation._flattened(np.random.default_rng(1), log_weights, 16))
    none = augmentation._at_every_value(rng, whole, np.full(900, -np.inf), 16)
    assert len(none) == 16
    log_weights[600:] -= 700.0
    log_weights[0] += 100.0  # one draw has all the weight, and says nothing of the values of others
    chosen = augmentation._at_every_value(rng, whole, log_weights, 16)
    assert np.bincount(chosen // 300, minlength=3).min() >= 5
