"""Parts of the prior: told by the likeliest components, searched and fitted apart, so that no hump of it is lost."""

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
from noisewise.samplers.proposals.adapted import REACHES, search
from noisewise.samplers.proposals.by_value import kept_apart
from noisewise.samplers.proposals.parts import MOST_PARTS, number_of_parts, parts

SPIKE, SLAB = 0.001, 0.5


def humps(chances=(0.5, 0.5), places=(0.0, 4.0), widths=(SPIKE, SLAB)):
    chances, places, widths = np.array(chances), np.array(places), np.array(widths)
    return dist.MixtureSameFamily(dist.Categorical(chances), dist.Normal(places, widths))


def of_one(law):
    """A model with this law of its parameter."""
    return nw.Model({"theta": law}, {"x": lambda theta: dist.Normal(jnp.sum(theta), 1.0)})


@pytest.mark.parametrize(
    ("law", "values", "expected"),
    [
        (humps(), [-0.01, 0.0, 0.005, 3.0], [1, 0, 0, 1]),
        (humps(widths=(1.0, 1.0)), [-1.0, 1.9, 2.1, 9.0], [0, 0, 1, 1]),
        (humps((0.999, 0.001), widths=(1.0, 1.0)), [2.1, 3.5, 3.8], [0, 0, 1]),
        (humps().expand([2]).to_event(1), [[0.0, 0.0], [0.0, 4.0], [4.0, 0.0], [4.0, 4.0]], [0, 1, 2, 3]),
        (
            dist.MixtureGeneral(
                dist.Categorical(np.array([0.5, 0.5])), [dist.Normal(0.0, 0.1), dist.StudentT(3.0, 0.0, 5.0)]
            ),
            [0.1, 3.0],
            [0, 1],
        ),
        (
            dist.TransformedDistribution(humps(), dist.transforms.ExpTransform()),
            [1.0, math.exp(4.0), math.exp(0.02)],
            [0, 1, 1],
        ),
    ],
    ids=["spike and slab", "alike", "uneven", "two entries", "families", "transformed"],
)
def test_the_part_is_that_of_the_likeliest_components(law, values, expected):
    model = of_one(law)
    assert parts(model, {"theta": np.array(values)}).tolist() == expected
    assert number_of_parts(model) == (4 if np.ndim(values) == 2 else 2)


def test_a_part_follows_what_its_law_depends_on():
    prior = {"at": dist.Normal(0.0, 1.0)}
    prior["theta"] = lambda at: dist.MixtureSameFamily(
        dist.Categorical(np.array([0.5, 0.5])), dist.Normal(at + jnp.array([0.0, 4.0]), 1.0)
    )
    model = nw.Model(prior, {"x": lambda theta: dist.Normal(theta, 1.0)})
    columns = {"at": np.array([0.0, 1.0, -1.0]), "theta": np.array([2.5, 2.5, 0.5])}
    assert parts(model, columns).tolist() == [1, 0, 0]


@pytest.mark.parametrize(("entries", "expected"), [(3, 8), (4, 1)])
def test_many_combinations_are_one_part(entries, expected):
    """Sixteen combinations are more than are kept apart; none is where there is no mixture."""
    assert 2**3 <= MOST_PARTS < 2**4
    model = of_one(humps().expand([entries]).to_event(1))
    assert number_of_parts(model) == expected
    if expected == 1:
        assert not parts(model, {"theta": np.zeros((5, entries))}).any()
    assert number_of_parts(of_one(dist.Normal(0.0, 1.0))) == 1


def test_the_search_has_a_law_about_each_part(seed):
    model = of_one(humps())
    law = search(Space(model), model.draw(np.random.default_rng(seed), ["theta"], 1_000))
    widths = law.mixture.factors[:, 0, 0].reshape(2, len(REACHES)) / np.array(REACHES)
    assert np.all(np.abs(widths / [[SPIKE], [SLAB]] - 1.0) < 0.3)
    assert np.all(np.abs(law.mixture.centres[:, 0] - [0.0, 0.0, 4.0, 4.0]) < 0.2)


def test_chains_start_in_every_part(seed):
    rng = np.random.default_rng(seed)
    pool = {"theta": np.concatenate([np.zeros(300), np.full(300, 4.0)])}
    log_weights = np.where(pool["theta"] > 1.0, 0.0, -7.0)
    chosen = augmentation._at_every_value(rng, kept_apart(of_one(humps()), pool), log_weights, 16)
    assert np.sum(pool["theta"][chosen] > 1.0) == 8


@cache
def common_shift(spike):
    """Four clamped sums of fifty records, all shifted together: hardly, or by four."""

    def group(number):
        name = f"x{number}"

        def record(th, shift):
            return dist.Normal(th[number] + shift, 1.0)

        clamped = eval(f"lambda {name}: clip({name}, -10.0, 10.0)", {"clip": jnp.clip})  # its argument has a name
        return nw.Total({name: record}, clamped, n=50)

    prior = {
        "shift": humps(widths=(spike, SLAB)),
        "m": dist.Normal(0.0, 1.0),
        "th": lambda m: dist.Normal(m, 0.3).expand([4]),
    }
    model = nw.Model(prior, {f"g{number}": group(number) for number in range(4)})
    released = [151.0, 139.0, 160.0, 148.0]
    return model, nw.Release({f"g{n}": nw.Laplace(scale=2.0).released(value) for n, value in enumerate(released)})


def chance_of_a_shift(release, spike):
    """By closed forms given the noise, averaged over the noise: clamping is six standard deviations away."""
    released = np.array([item.value for item in release.values()])
    own, common = np.eye(4) * (2500.0 * 0.09 + 50.0), np.ones((4, 4))
    without_noise = released - np.random.default_rng(0).laplace(0.0, 2.0, (200_000, 4))
    none = stats.multivariate_normal(np.zeros(4), own + 2500.0 * (1.0 + spike**2) * common).pdf(without_noise)
    shifted = stats.multivariate_normal(np.full(4, 200.0), own + 2500.0 * (1.0 + SLAB**2) * common).pdf(without_noise)
    return shifted.mean() / (none.mean() + shifted.mean())


def test_neither_hump_of_a_prior_is_lost(seed):
    """The shift has 0.979 of the posterior; without it, the means lie where no row with a shift is."""
    model, release = common_shift(SPIKE)
    posterior = nw.sample(model, release, draws=4_000, seed=seed)
    shifted = posterior["shift"] > 2.0
    weights = posterior.weights if posterior.weights is not None else np.full(len(posterior), 1.0 / len(posterior))
    off = weights * (shifted - chance_of_a_shift(release, SPIKE))
    assert abs(off.sum()) < LIMIT * math.sqrt(np.sum(off**2))
    assert np.sum(weights[~shifted]) > 0.003
