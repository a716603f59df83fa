"""Statistics drawn near their releases before what reads them is simulated: the right weights, and many more of use."""

import math
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees
from scipy import special, stats

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Rounded
from noisewise.samplers.proposals.guided import SHARE, guides_of
from noisewise.samplers.proposals.weighted_candidates import simulate_and_weigh

ROWS = 20_000


def nothing():
    pass


@cache
def yes_of(people):
    """How many of `people` say yes: the number of them is a statistic, with this law."""
    record = {"answer": lambda share: dist.Bernoulli(share)}
    prior = {"share": dist.Beta(2.0, 3.0)}
    if people is not LAWS["uniform"]:
        prior["rate"] = dist.Gamma(20.0, 0.5)
    return nw.Model(
        prior,
        {"people": people, "yes": nw.Total(record, lambda answer: 1.0 * answer, n="people")},
    )


LAWS = {
    "uniform": lambda: dist.DiscreteUniform(1, 400),  # its width is far beyond the noise's
    "Poisson": lambda rate: dist.Poisson(rate),
    "far": lambda rate: dist.Poisson(1.6 * rate),
}
MECHANISMS = {
    "Laplace on integers": nw.DiscreteLaplace(scale=2.0),
    "Gaussian": nw.Gaussian(scale=3.0),
    "rounded": Rounded(nw.Laplace(scale=2.0), 5.0),
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("law", LAWS)
def test_weighed_draws_have_the_law_times_the_noise_density(law, mechanism, seed):
    """By enumeration, with values in the window and far from it."""
    item = MECHANISMS[mechanism].released(45.0)
    problem = Problem(yes_of(LAWS[law]), nw.Release(people=item, yes=nw.Laplace(scale=1.0).released(20.0)))
    guide = guides_of(problem)["people"]
    rate, n = 38.0, np.arange(1200)
    drawn, log_weights = guide.draw(np.random.default_rng(seed), {"rate": np.full(ROWS, rate)}, ROWS, nothing)
    chance = {
        "uniform": np.where((n >= 1) & (n <= 400), 1.0 / 400.0, 0.0),
        "Poisson": stats.poisson(rate).pmf(n),
        "far": stats.poisson(1.6 * rate).pmf(n),
    }[law]
    joint = chance * np.exp(np.asarray(item.mechanism.log_prob(item.value, n)))
    unit = joint.max()
    weights = np.exp(log_weights - math.log(unit))
    for function in (np.ones_like, lambda x: x * 1.0, lambda x: x % 3 == 0, lambda x: x > 47):
        terms, truth = weights * function(drawn["people"]), np.sum(joint / unit * function(n))
        assert abs(terms.mean() - truth) < LIMIT * terms.std() / math.sqrt(ROWS) + 1e-9 * truth
    highest = math.exp(float(np.asarray(item.mechanism.log_sup(item.value))) - math.log(unit))
    assert weights.max() <= highest * (1.0 + 1e-9)


def test_entries_are_drawn_each_by_its_own_release(seed):
    """Three numbers of people under one weight, which varies no more than the share drawn from the law makes it."""
    law = dist.Poisson(np.array([3.0, 9.0, 30.0]))
    model = nw.Model(
        {"m": dist.Normal(0.0, 1.0)},
        {
            "people": lambda: law,
            "seen": nw.Simulator(lambda rng, m, people: rng.normal(m * people.sum(), 1.0)),
        },
    )
    item = nw.DiscreteLaplace(scale=1.5).released([5, 4, 33])
    problem = Problem(model, nw.Release(people=item, seen=nw.Gaussian(scale=1.0).released(3.0)))
    guide = guides_of(problem)["people"]
    drawn, log_weights = guide.draw(np.random.default_rng(seed), {}, ROWS, nothing)
    n = np.arange(200)[:, None]
    joint = stats.poisson(law.rate).pmf(n) * np.exp(np.asarray(item.mechanism.log_prob(item.value, n)))
    weights = np.exp(log_weights) / joint.sum(axis=0).prod()
    means = (n * joint).sum(axis=0) / joint.sum(axis=0)
    assert abs(weights.mean() - 1.0) < LIMIT * weights.std() / math.sqrt(ROWS)
    for entry in range(3):
        terms = weights * drawn["people"][:, entry]
        assert abs(terms.mean() - means[entry]) < LIMIT * terms.std() / math.sqrt(ROWS)
    assert weights.std() < 2.0 * math.sqrt(SHARE)


def test_where_the_release_is_impossible_rows_follow_the_law(seed):
    """In a row whose law has nothing in the window, the draw is weighed by the noise alone."""
    model = yes_of(lambda rate: dist.DiscreteUniform(jnp.floor(rate).astype(int), jnp.floor(rate).astype(int) + 9))
    item = nw.DiscreteLaplace(scale=0.5).released(45)
    problem = Problem(model, nw.Release(people=item, yes=nw.Laplace(scale=1.0).released(20.0)))
    guide = guides_of(problem)["people"]
    rates = np.repeat([40.0, 400.0], ROWS // 2)
    drawn, log_weights = guide.draw(np.random.default_rng(seed), {"rate": rates}, ROWS, nothing)
    far = rates == 400.0
    assert agrees(drawn["people"][far] * 1.0, 404.5)
    log_eta = np.asarray(item.mechanism.log_prob(item.value, drawn["people"][far]))
    assert np.allclose(log_weights[far], log_eta, rtol=1e-12)
    n = np.arange(40, 50)
    total = 0.1 * np.exp(np.asarray(item.mechanism.log_prob(item.value, n))).sum()
    assert agrees(np.exp(log_weights[~far]), total)


@pytest.mark.parametrize("released", [{"people", "yes"}, {"yes"}])
def test_only_what_is_released_with_noise_and_read_by_a_simulation_is_guided(released):
    items = {"people": nw.DiscreteLaplace(scale=2.0).released(45), "yes": nw.Laplace(scale=1.0).released(20.0)}
    model = yes_of(LAWS["uniform"])
    guides = guides_of(Problem(model, nw.Release({name: items[name] for name in released})))
    assert set(guides) == released & {"people"}
    known = nw.Release(people=nw.Exact().released(45), yes=items["yes"])
    assert not guides_of(Problem(model, known))
    leaves = nw.Model({"rate": dist.Gamma(2.0, 1.0)}, {"people": LAWS["Poisson"]})
    assert not guides_of(Problem(leaves, nw.Release(people=items["people"])))
    wide = nw.Release(people=nw.DiscreteLaplace(scale=200.0).released(45), yes=items["yes"])
    assert not guides_of(Problem(yes_of(lambda rate: dist.Poisson(rate * 1e4)), wide))


@cache
def shares_by_enumeration():
    """Posterior mean and standard deviation of the share, P(people < 200), and the evidence."""
    grid = special.betaincinv(2.0, 3.0, (np.arange(1_000) + 0.5) / 1_000)
    n, k = np.arange(1, 401), np.arange(401)
    near = np.exp(np.asarray(nw.DiscreteLaplace(scale=2.0).log_prob(203, n))) / 400.0
    noise = np.exp(-np.abs(81.0 - k) / 3.0) / 6.0
    likely = n[near > 1e-14 * near.max()]
    of_share = np.zeros(len(grid))
    below = np.zeros(len(grid))
    for people in likely:
        term = near[people - 1] * stats.binom.pmf(k[None, : people + 1], people, grid[:, None]) @ noise[: people + 1]
        of_share += term
        below += term * (people < 200)
    total = of_share.sum()
    mean = (grid * of_share).sum() / total
    spread = math.sqrt(((grid - mean) ** 2 * of_share).sum() / total)
    return mean, spread, below.sum() / total, math.log(of_share.mean())


@pytest.mark.parametrize(
    "sampler",
    [nw.Importance(), nw.Importance(simulations=3), nw.RejectionControl(proposal="adapted")],
    ids=["Importance", "simulations", "RejectionControl"],
)
def test_the_posterior_is_that_of_enumeration(sampler, seed):
    people = nw.DiscreteLaplace(scale=2.0).released(203)
    release = nw.Release(people=people, yes=nw.Laplace(scale=3.0).released(81.0))
    posterior = nw.sample(yes_of(LAWS["uniform"]), release, sampler, draws=6_000, seed=seed)
    mean, spread, below, log_evidence = shares_by_enumeration()
    for values, truth in (
        (posterior["share"], mean),
        ((posterior["share"] - mean) ** 2, spread**2),
        (posterior["people"] < 200, below),
    ):
        off = posterior.weights * (values - truth)
        assert abs(off.sum()) < LIMIT * math.sqrt(np.sum(off**2))
    assert abs(posterior.log_evidence - log_evidence) < LIMIT * posterior.log_evidence_se


def test_most_rows_are_near_the_release(seed, monkeypatch):
    """Rows are worth many times as many as when the number of people is drawn from its law (negative control)."""
    model = yes_of(LAWS["uniform"])
    release = nw.Release(people=nw.DiscreteLaplace(scale=2.0).released(203), yes=nw.Laplace(scale=3.0).released(81.0))

    def worth():
        problem, rows = Problem(model, release), 20_000
        rng = np.random.default_rng(seed)
        _, terms = simulate_and_weigh(problem, rng, model.draw(rng, ["share"], rows), rows, nothing)
        weights = np.exp(sum(terms.values()))
        return weights.sum() ** 2 / np.sum(weights**2)

    guided_worth = worth()
    monkeypatch.setattr("noisewise.samplers.proposals.weighted_candidates.guides_of", lambda problem: {})
    assert guided_worth > 30.0 * worth()
