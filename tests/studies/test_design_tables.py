"""Designs with vectors of counts: entries summed out one by one, and the share of one category of a table."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM
from scipy import integrate, optimize, stats
from scipy.special import gammaln

import noisewise as nw
from noisewise.mechanisms import DiscreteLaplace, Exact
from noisewise.results.goal import Goal
from noisewise.studies.designs.counts import common_place, counted
from noisewise.studies.designs.shares import ShareOfTable
from noisewise.studies.designs.simulation import Simulation, floor_of


def of(content, model):
    return Goal.read("design", content, model, 0.95, needs_goal=False)


def agrees(values, truth):
    """Whether independent averages of batches have this mean, by their own scatter (Student's t)."""
    t = (np.mean(values) - truth) / (np.std(values, ddof=1) / math.sqrt(len(values)))
    return abs(t) < stats.t(len(values) - 1).isf(FALSE_ALARM / 2)


# Entries that have nothing to do with each other ------------------------------------------------------------------

SHAPES = np.array([4.0, 25.0, 60.0])


def rates_model():
    return nw.Model(
        prior={"rate": dist.Gamma(SHAPES, 1.0).to_event(1)},
        statistics={"count": lambda rate: dist.Poisson(rate).to_event(1)},
    )


def average_sd(shape, scale):
    """Of one rate with one count and Laplace noise: each posterior is a mixture of gamma laws over the counts."""
    counts, released = np.arange(0, 160), np.arange(-80.0, 240.0, 0.5)
    prior = stats.nbinom(shape, 0.5).pmf(counts)
    joint = prior[:, None] * stats.laplace(counts[:, None], scale).pdf(released)
    evidence = joint.sum(axis=0)
    mean, square = ((shape + counts) / 2.0, (shape + counts) * (shape + counts + 1.0) / 4.0)
    sd = np.sqrt(square @ joint / evidence - (mean @ joint / evidence) ** 2)
    return float(sd @ evidence / evidence.sum())


def test_a_rate_among_others_is_as_well_known_as_if_it_were_alone(seed):
    model = rates_model()
    simulation = Simulation(model, (of({"sd": "rate[1]"}, model),), seed)
    values = simulation.means({"count": nw.Laplace(scale=5.0)}, 0, 12)
    assert simulation.sampled == 0
    assert agrees(values, average_sd(25.0, 5.0))
    assert not agrees(values, average_sd(25.0, 1.0)), "negative control: another scale"
    assert not agrees(values, average_sd(60.0, 5.0)), "negative control: another place"


MIXED = np.array([[1.0, 1.0], [1.0, -1.0]])
PLACES = {
    "apart": ({"a": dist.Gamma(np.ones(2), 1.0)}, lambda a: dist.Poisson(3.0 * a), "a[1]", 1),
    "of a statistic": ({"a": dist.Gamma(np.ones(2), 1.0)}, lambda a: dist.Poisson(3.0 * a), "s[0]", 0),
    "one number": ({"a": dist.Gamma(1.0, 1.0)}, lambda a: dist.Poisson(a), "a", None),
    "one parameter for all": ({"a": dist.Gamma(1.0, 1.0)}, lambda a: dist.Poisson(a * jnp.ones(2)), "a", None),
    "mixed": ({"a": dist.Normal(np.zeros(2), 1.0)}, lambda a: dist.Normal(MIXED @ a, 1.0), "a[0]", None),
    "the other way round": ({"a": dist.Gamma(np.ones(2), 1.0)}, lambda a: dist.Poisson(a[::-1]), "a[0]", None),
    "correlated": (
        {"a": dist.MultivariateNormal(np.zeros(2), np.eye(2) + 0.5)},
        lambda a: dist.Normal(a, 1.0),
        "a[0]",
        None,
    ),
}


@pytest.mark.parametrize(("prior", "law", "asked", "place"), PLACES.values(), ids=PLACES)
def test_where_one_place_is_all_that_matters(prior, law, asked, place):
    model = nw.Model(prior=prior, statistics={"s": law})
    assert common_place(model, (of({"sd": asked}, model),)) == place


def test_noise_on_all_entries_at_once_needs_all_of_them(seed):
    """Entries are weighed together where the noise of one depends on the others."""
    model = rates_model()
    simulation = Simulation(model, (of({"sd": "rate[1]"}, model),), seed)
    (count,) = simulation._counted.values()
    assert count.serves({"count": nw.Laplace(scale=5.0)}, 1)
    assert not count.serves({"count": nw.mechanisms.KNorm("l2", dimension=3, scale=1.0)}, 1)


# Entries with parameters in common --------------------------------------------------------------------------------

FACTORS = np.array([0.5, 2.0])


def test_counts_with_one_rate_are_summed_out_in_every_place():
    """By enumeration, at some values of the rate."""
    model = nw.Model(
        prior={"rate": dist.Gamma(9.0, 1.0)}, statistics={"count": lambda rate: dist.Poisson(rate * FACTORS)}
    )
    (count,) = counted(model, (of({"sd": "rate"}, model),), None)
    values = model.simulate(2_048, seed=1)
    tables = count.tables(values)
    released, k = np.array([[3.2, 20.1], [7.7, 11.0]]), np.arange(200)
    plans = [{"count": nw.Laplace(scale=np.array([1.0, 3.0]))}, {"count": Exact()}]
    found, _ = count.log_density(tables, plans, [{"count": released}, {"count": np.round(released)}])
    rates = values["rate"][: len(found), None] * FACTORS
    law = stats.poisson.pmf(k, rates[..., None])
    eta = stats.laplace(k, np.array([[1.0], [3.0]])).pdf(released[:, :, None])
    expected = np.log(np.einsum("ijk,rjk->ijr", law, eta)).sum(axis=1)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-8)
    exact = stats.poisson.logpmf(np.round(released)[None], rates[:, None, :]).sum(axis=-1)
    np.testing.assert_allclose(found[:, 1], exact, rtol=1e-8)
    assert not np.allclose(found[:, 0], exact, rtol=1e-2), "negative control: without the noise"


# The share of a category ------------------------------------------------------------------------------------------

PEOPLE, PRIOR = 6, np.array([1.5, 0.7, 3.0])
TABLES = np.array([t for t in itertools.product(range(PEOPLE + 1), repeat=3) if sum(t) == PEOPLE])


def table_model():
    return nw.Model(
        prior={"share": dist.Dirichlet(PRIOR)}, statistics={"count": lambda share: dist.Multinomial(PEOPLE, share)}
    )


def test_all_that_a_table_says_of_one_share():
    """Over all tables of six people, the other categories' proportions integrated out by quadrature."""
    noise, released = DiscreteLaplace(scale=1.3), np.array([2, 5, -1])
    model = table_model()
    share = ShareOfTable.of(model, (of({"sd": "share[1]"}, model),))
    found, top = share.log_density([{"count": noise}], [{"count": released[None]}])
    found = found[:, 0, 0] - share.log_prior
    x = share.values["share"][:, 1]
    log_eta = np.asarray(noise.log_prob(released, TABLES.astype(float))).sum(axis=1)

    def expected(at):
        def given(part):
            shares = np.array([(1.0 - at) * part, at, (1.0 - at) * (1.0 - part)])
            law = stats.multinomial(PEOPLE, shares).pmf(TABLES)
            return float(law @ np.exp(log_eta)) * stats.beta(PRIOR[0], PRIOR[2]).pdf(part)

        return math.log(integrate.quad(given, 0.0, 1.0, epsabs=0.0)[0])

    for row in (len(x) // 4, len(x) // 2, 3 * len(x) // 4):
        assert found[row] == pytest.approx(expected(x[row]), rel=1e-7)
    assert np.all(found <= top[0, 0] + 1e-12)


def test_rows_of_a_share_have_its_prior():
    model = table_model()
    share = ShareOfTable.of(model, (of({"sd": "share[1]"}, model),))
    x, weight = share.values["share"][:, 1], np.exp(share.log_prior)
    law = stats.beta(PRIOR[1], PRIOR.sum() - PRIOR[1])
    assert weight @ x / weight.sum() == pytest.approx(law.mean(), rel=1e-4)
    assert weight @ x**2 / weight.sum() == pytest.approx(law.var() + law.mean() ** 2, rel=1e-4)


def table_sd(scale):
    """The posterior standard deviation of the middle share on average, over all tables and releases."""
    noise = np.arange(-14, PEOPLE + 15)
    weights = np.exp(-np.abs(noise[:, None] - np.arange(PEOPLE + 1)) / scale)
    weights /= np.exp(-np.abs(np.arange(-400, 401)) / scale).sum()
    a, b = PRIOR[1], PRIOR.sum() - PRIOR[1]
    log_ways = (gammaln(TABLES + PRIOR) - gammaln(PRIOR) - gammaln(TABLES + 1.0)).sum(axis=1)
    prior = np.exp(log_ways - log_ways.max())
    prior /= prior.sum()
    joint = np.einsum("t,it,jt,kt->ijkt", prior, *(weights[:, TABLES[:, place]] for place in range(3)))
    joint = joint.reshape(-1, len(TABLES))
    evidence, k, whole = joint.sum(axis=1), TABLES[:, 1], a + b + PEOPLE
    mean, square = (a + k) / whole, (a + k) * (a + k + 1.0) / (whole * (whole + 1.0))
    sd = np.sqrt(joint @ square / evidence - (joint @ mean / evidence) ** 2)
    return float(sd @ evidence / evidence.sum())


def test_a_share_by_enumeration_of_tables_and_releases(seed):
    model = table_model()
    simulation = Simulation(model, (of({"sd": "share[1]"}, model),), seed)
    values = simulation.means({"count": DiscreteLaplace(scale=1.3)}, 0, 32)
    assert simulation.sampled == 0
    assert agrees(values, table_sd(1.3))
    assert not agrees(values, table_sd(10.0)), "negative control: another scale"


def test_a_share_without_noise(seed):
    model = table_model()
    target = of({"sd": "share[1]"}, model)
    simulation = Simulation(model, (target,), seed)
    a, b, k = PRIOR[1], PRIOR.sum() - PRIOR[1], np.arange(PEOPLE + 1)
    sds = stats.beta(a + k, b + PEOPLE - k).std()
    exact = float(stats.betabinom(PEOPLE, a, b).pmf(k) @ sds)
    assert agrees(simulation.means(floor_of(model, ["count"], target), 0, 32), exact)
    assert simulation.sampled == 0


def width_of_share(released, people, prior, cell, epsilon):
    """Of the 95% interval of one cell's share: other cells convolved out, a mixture of beta laws on what is left."""
    k = np.arange(people + 1.0)
    terms = gammaln(prior[:, None] + k) - gammaln(k + 1.0) - epsilon / 2.0 * np.abs(released[:, None] - k)
    terms = np.exp(terms - terms.max(axis=1, keepdims=True))
    others = np.ones(1)
    for index in set(range(len(prior))) - {cell}:
        others = np.convolve(others, terms[index])[: people + 1]
        others /= others.max()
    chance = terms[cell] * others[::-1]
    a, b, chance = prior[cell] + k, prior.sum() - prior[cell] + people - k, chance / chance.sum()
    low, high = (
        optimize.brentq(lambda x: chance @ stats.beta.cdf(x, a, b) - tail, 0.0, 1.0, xtol=1e-8)  # noqa: B023
        for tail in (0.025, 0.975)
    )
    return high - low


@pytest.mark.long
def test_a_histogram_of_twelve_cells(seed):
    """A whole curve, and its budget judged by the exact posteriors of other releases."""
    prior = np.full(12, 2.0)
    model = nw.Model(
        prior={"share": dist.Dirichlet(prior)}, statistics={"count": lambda share: dist.Multinomial(1_000, share)}
    )
    plan = {"count": lambda epsilon: DiscreteLaplace(epsilon=epsilon, sensitivity=2)}
    target = {"width": "share[3]", "at_most": 0.05}
    found = nw.design(model, plan, target=target, seed=seed, progress=False)
    assert found.sampled == 0
    rng, noise = np.random.default_rng(seed + 1), plan["count"](found.budget)
    widths = [
        width_of_share(noise.sample(rng, count), 1_000, prior, 3, found.budget)
        for count in model.simulate(400, seed=seed + 1)["count"]
    ]
    budgets = sorted(found.curve)
    at = np.searchsorted(budgets, found.budget)
    below, above = budgets[at - 1], budgets[at]
    slope = (found.curve[above][0] - found.curve[below][0]) / (above - below)
    error = np.hypot(np.std(widths, ddof=1) / np.sqrt(len(widths)), slope * found.error)
    assert abs(np.mean(widths) - 0.05) < stats.norm.isf(FALSE_ALARM / 2) * error
