"""Parts of the prior: told by the likeliest components, searched and fitted apart, so that no hump of it is lost."""

import math
from functools import cache
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from scipy import stats

import noisewise as nw
from noisewise.inference.conditional.target import Target
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.model.coordinates import Space
from noisewise.samplers import augmentation, nuts
from noisewise.samplers.nuts import ChainsRun
from noisewise.samplers.proposals.adapted import REACHES, search
from noisewise.samplers.proposals.by_value import kept_apart
from noisewise.samplers.proposals.parts import MOST_PARTS, number_of_parts, parts
from noisewise.samplers.walking.gradient_programs import Programs

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
    """Three clamped sums of fifty records, all shifted together: hardly, or by four."""

    def group(number):
        name = f"x{number}"

        def record(th, shift):
            return dist.Normal(th[number] + shift, 1.0)

        clamped = eval(f"lambda {name}: clip({name}, -10.0, 10.0)", {"clip": jnp.clip})  # its argument has a name
        return nw.Total({name: record}, clamped, n=50)

    prior = {
        "shift": humps(widths=(spike, SLAB)),
        "m": dist.Normal(0.0, 1.0),
        "th": lambda m: dist.Normal(m, 0.3).expand([3]),
    }
    model = nw.Model(prior, {f"g{number}": group(number) for number in range(3)})
    released = [151.0, 139.0, 160.0]
    return model, nw.Release({f"g{n}": nw.Laplace(scale=2.0).released(value) for n, value in enumerate(released)})


def chance_of_a_shift(release, spike):
    """By closed forms given the noise, averaged over the noise: clamping is six standard deviations away."""
    released = np.array([item.value for item in release.values()])
    own, common = np.eye(3) * (2500.0 * 0.09 + 50.0), np.ones((3, 3))
    without_noise = released - np.random.default_rng(0).laplace(0.0, 2.0, (50_000, 3))
    none = stats.multivariate_normal(np.zeros(3), own + 2500.0 * (1.0 + spike**2) * common).pdf(without_noise)
    shifted = stats.multivariate_normal(np.full(3, 200.0), own + 2500.0 * (1.0 + SLAB**2) * common).pdf(without_noise)
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


@pytest.mark.parametrize(
    ("values", "energies", "hopeless", "expected"),
    [
        ([0.0, 0.0, 4.0, 4.0], [1.0, 2.0, 900.0, 901.0], set(), {0: 2, 1: 2}),
        ([0.0, 0.0, 4.0, 4.0], [1.0, 2.0, math.inf, math.inf], set(), {0: 4}),
        ([0.0, 0.0, 4.0, 4.0], [1.0, 2.0, 3.0, 4.0], {0}, {1: 4}),
    ],
    ids=["far", "impossible", "hopeless"],
)
def test_chains_by_gradients_start_in_every_part(values, energies, hopeless, expected):
    """However unlikely its draws are: only a part where none could be, or that was found hopeless, is passed over."""
    candidates = {"theta": np.repeat(values, 8) + np.linspace(-1e-4, 1e-4, 32)}
    run = SimpleNamespace(
        settings=nw.NUTS(), problem=SimpleNamespace(model=of_one(humps())), candidates=candidates, hopeless=hopeless
    )
    chosen = ChainsRun._in_all_parts(run, candidates["theta"][:, None], np.repeat(energies, 8))
    own = parts(of_one(humps()), {"theta": candidates["theta"][chosen]})
    assert {part: int(np.sum(own == part)) for part in np.unique(own)} == expected


def test_candidates_for_starts_come_from_every_part_by_turns():
    """A part with three draws of a hundred has all of them among ten, and in a run one that holds a rare hump."""
    part = np.zeros(100, dtype=int)
    part[[40, 70, 99]] = 1
    chosen = nuts.by_turns(part, 10)
    assert set(chosen) == {0, 1, 2, 3, 4, 5, 6, 40, 70, 99}
    model, release = of_one(humps((0.995, 0.005))), nw.Release(x=nw.Gaussian(scale=1.0).released(1.0))
    run = ChainsRun(nw.NUTS(), Problem(model, release), 100, 1, nw.Threads(1), Progress(False, "NUTS"))
    run.target = Target(run.problem, {}, by_ratios=True)
    run.programs = Programs(run.target, None, num_warmup=100)
    run.data = run.target.data() | {"centring": {}}
    run._starts()
    assert np.bincount(parts(model, run.candidates)).min() >= 5  # of 128 draws of the prior, none in most runs


MEASURED = np.array([2.6, 1.1, 2.4, 1.8, 2.2, 1.4, 3.1, 2.1, 2.8, 2.5, 1.8, 2.3, 1.6, 3.4, 1.9])


@cache
def fifteen_places():
    """Noisy measurements with effects of their own, and a shift that all have in common: none, or four."""
    shift = humps((0.9, 0.1), widths=(0.1, 0.1))
    prior = {"shift": shift, "m": dist.Normal(0.0, 1.5), "effects": lambda m: dist.Laplace(m, 0.5).expand([15])}
    model = nw.Model(prior, {"x": lambda effects, shift: dist.Normal(effects + shift, 0.3)})
    return model, nw.Release(x=nw.Gaussian(scale=0.4).released(MEASURED))


def chance_by_quadrature():
    """The share of the second hump: effects integrated out given the mean of effect and shift, then these two."""
    levels, means = np.linspace(-7.0, 9.0, 1601), np.linspace(-6.0, 10.0, 321)[:, None]
    of_level = stats.norm(levels, 0.5).pdf(MEASURED[:, None])
    of_mean = np.log(stats.laplace(means, 0.5).pdf(levels) @ of_level.T).sum(axis=1)
    shift = np.concatenate([np.linspace(-0.6, 0.6, 121), np.linspace(3.4, 4.6, 121)])[:, None]
    of_none = math.log(0.9) + stats.norm(0.0, 0.1).logpdf(shift)
    of_four = math.log(0.1) + stats.norm(4.0, 0.1).logpdf(shift)
    log_prior = np.logaddexp(of_none, of_four) + stats.norm(0.0, 1.5).logpdf(means.T - shift)
    log_joint = log_prior + of_mean
    joint = np.exp(log_joint - log_joint.max())
    return joint[121:].sum() / joint.sum()


def test_explanations_of_many_unknowns_are_weighed_apart(seed):
    """17 unknowns: each chain keeps to its hump, and draws of the prior are near neither."""
    posterior = nw.sample(*fifteen_places(), draws=3_000, seed=seed)
    off = posterior.weights * ((posterior["shift"] > 2.0) - chance_by_quadrature())
    assert abs(off.sum()) < LIMIT * math.sqrt(np.sum(off**2))
    assert "ended with 'disagree'" in posterior.reason


def test_a_hump_that_the_release_rules_out_does_not_keep_chains_apart(seed, monkeypatch):
    """Effects cannot be four lower; the control lets chains stay where they have no mass to speak of."""
    tight = nw.Model(
        {"shift": humps(widths=(0.01, 0.01)), "effects": dist.Normal(2.2, 0.5).expand([4])},
        {"x": lambda effects, shift: dist.Normal(effects + shift, 0.3)},
    )
    release = nw.Release(x=nw.Gaussian(scale=0.2).released(MEASURED[:4]))
    sampler = nw.NUTS(warmup=300)
    posterior = nw.sample(tight, release, sampler, draws=2_000, seed=seed)
    assert np.all(posterior["shift"] < 2.0)
    assert posterior.diagnostics["widened"] == 1
    monkeypatch.setattr(nuts, "HOPELESS", math.inf)
    stuck = nw.sample(tight, release, sampler, draws=2_000, seed=seed, on_failure="return")
    assert stuck.status == "disagree"
