"""Pilots: the search beyond the prior, tables of whole numbers, and rounds remembered with the right weights."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import noisewise as nw
from noisewise.model.coordinates import Space
from noisewise.samplers.proposals.adapted import Adapted, ValueTable, search, uniform_tables
from noisewise.samplers.proposals.memory import Memory
from noisewise.samplers.proposals.mixture import StudentMixture

LIMIT = stats.norm.isf(0.5e-6)
"""One false alarm in a million for each comparison."""


def nothing():
    pass


@cache
def mixed():
    """A real parameter, and a whole one whose law depends on it."""
    return nw.Model(
        {"m": dist.Normal(0.0, 1.0), "z": lambda m: dist.Binomial(4, 1.0 / (1.0 + math.e ** (-m)))},
        {"x": lambda m, z: dist.Normal(m + z, 1.0)},
    )


def laws(model):
    """Three proposals of different shapes, one of them the prior."""
    space, table = Space(model), uniform_tables(model)["z"]
    narrow = StudentMixture(np.ones(1), np.array([[1.0]]), np.array([[[0.3]]]))
    wide = StudentMixture(np.array([0.4, 0.6]), np.array([[-3.0], [2.0]]), np.array([[[2.0]], [[1.0]]]))
    leaning = table.fitted(np.array([[4], [4], [3]]), np.array([0.5, 0.3, 0.2]))
    return space, [Adapted(space, narrow, 0.2, {"z": leaning}), Adapted(space, wide, 0.5, {"z": table}), None]


def test_ratios_of_the_proposal_integrate_to_one(seed):
    """E_g[pi0 / g] = 1, and E_g[(pi0 / g) f] is the prior mean of f. The control: the tables are left out."""
    model = mixed()
    _, (proposal, _, _) = laws(model)
    rng = np.random.default_rng(seed)
    values, log_ratio = proposal(rng, 40_000, nothing)
    ratio = np.exp(log_ratio)
    for function, mean in ((np.ones(40_000), 1.0), (values["m"], 0.0), (values["z"], 2.0), (values["z"] == 0, None)):
        terms = ratio * function
        if mean is None:
            m = np.linspace(-9.0, 9.0, 4001)
            mean = np.trapezoid(stats.norm.pdf(m) * (1.0 - 1.0 / (1.0 + np.exp(-m))) ** 4, m)
        assert abs(terms.mean() - mean) < LIMIT * terms.std() / 200.0
    blind = Adapted(proposal.space, proposal.mixture, proposal.share, {})
    free, whole = values["m"][:, None], {"z": values["z"]}
    log_prior = stats.norm.logpdf(values["m"])
    wrong = np.exp(-blind.log_over_prior(free, whole, log_prior, {})) * (values["z"] == 4)
    right = ratio * (values["z"] == 4)
    assert abs(wrong.mean() - right.mean()) > LIMIT * math.hypot(wrong.std(), right.std()) / 200.0


def test_rounds_weighed_together_give_the_evidence(seed):
    """Rows of three laws, each weighed against their average. The control: rows of one law as if of the prior."""
    model = mixed()
    space, proposals = laws(model)
    memory = Memory(space, ("z",), 2_000)
    rng = np.random.default_rng(seed)
    rows, released, likelihoods = 10_000, 4.5, []
    for proposal in proposals:
        if proposal is None:
            values, log_ratio = model.draw(rng, ["m", "z"], rows), np.zeros(rows)
        else:
            values, log_ratio = proposal(rng, rows, nothing)
        log_likelihood = stats.norm.logpdf(released, values["m"] + values["z"], math.sqrt(2.0))
        memory.add(values, log_likelihood + log_ratio, proposal)
        likelihoods.append(log_likelihood)
    weight = np.exp(memory.log_weights()).reshape(3, rows)
    m, z = np.linspace(-9.0, 9.0, 4001)[:, None], np.arange(5)
    joint = (
        stats.norm.pdf(m)
        * stats.binom.pmf(z, 4, 1.0 / (1.0 + np.exp(-m)))
        * stats.norm.pdf(released, m + z, math.sqrt(2.0))
    )
    evidence = np.trapezoid(joint.sum(axis=1), m[:, 0])
    error = math.sqrt(sum(part.var() / rows for part in weight)) / 3.0
    assert abs(weight.mean() - evidence) < LIMIT * error
    chances = np.trapezoid(joint, m[:, 0], axis=0) / evidence
    for value in range(5):
        terms = weight * (memory.whole("z").reshape(3, rows) == value)
        error = math.sqrt(sum(part.var() / rows for part in terms)) / 3.0
        assert abs(terms.mean() - chances[value] * evidence) < LIMIT * error
    own = np.exp(np.concatenate([one.log_weights for one in memory.rounds])).reshape(3, rows)
    assert weight.var(axis=1).sum() < own.var(axis=1).sum()  # that is what it is for
    memory.rounds[0] = replace(memory.rounds[0], log_weights=likelihoods[0])  # as if drawn from the prior
    wrong = np.exp(memory.log_weights()).reshape(3, rows)
    assert abs(wrong.mean() - evidence) > LIMIT * math.sqrt(sum(part.var() / rows for part in wrong)) / 3.0


def test_a_search_reaches_ten_times_as_far(seed):
    model = mixed()
    space = Space(model)
    rng = np.random.default_rng(seed)
    proposal = search(space, model.draw(rng, ["m", "z"], 4_000))
    values, log_ratio = proposal(rng, 20_000, nothing)
    assert np.mean(np.abs(values["m"]) > 5.0) > 0.1
    ratio = np.exp(log_ratio)
    assert abs(ratio.mean() - 1.0) < LIMIT * ratio.std() / math.sqrt(20_000)
    many = nw.Model({"m": dist.Normal(0.0, 1.0).expand([9])}, {"x": lambda m: dist.Normal(m.sum(), 1.0)})
    assert search(Space(many), many.draw(rng, ["m"], 100)) is None


def test_tables_are_made_for_few_values_of_few_numbers():
    few = nw.Model({"z": dist.Bernoulli(0.1).expand([3])}, {"x": lambda z: dist.Normal(z.sum(), 1.0)})
    assert uniform_tables(few)["z"].chances.shape == (3, 2)
    many = nw.Model({"z": dist.Bernoulli(0.1).expand([5])}, {"x": lambda z: dist.Normal(z.sum(), 1.0)})
    endless = nw.Model({"z": dist.Poisson(3.0)}, {"x": lambda z: dist.Normal(z, 1.0)})
    assert uniform_tables(many) == uniform_tables(endless) == {}


def test_a_table_draws_its_chances(seed):
    table = ValueTable(np.array([2, 5]), np.array([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]]))
    values = table.draw(np.random.default_rng(seed), 30_000)
    for entry in range(2):
        for number, chance in enumerate(table.chances[entry]):
            share = np.mean(values[:, entry] == table.low[entry] + number)
            assert abs(share - chance) <= LIMIT * math.sqrt(chance * (1.0 - chance) / 30_000)
    assert table.log_chance(np.array([[3, 6]])) == pytest.approx(np.log([[0.3, 0.4]]))
