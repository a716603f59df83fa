"""Counts behind randomised response: drawn given shares and reports, against enumeration; steps broken on purpose."""

from itertools import product

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, counts_agree
from families.response import UNEVEN, WIDE, law_of_counts, tables
from scipy import stats
from targets import all_targets, briefly
from test_augmentation import as_normal, geweke, run, worst_z

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.mechanisms.randomized_response import RandomizedResponse
from noisewise.samplers.augmentation import Augmentation
from noisewise.samplers.choosing import choice
from noisewise.samplers.gibbs.joint import Joint
from noisewise.samplers.gibbs.reported import Reported

SHARES = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])


def two_tables(channel, reports, law=dist.Multinomial):
    """Shares by group, and the tables of two groups' records, each of them reported through one channel."""
    n = sum(reports[0])
    model = nw.Model(
        {"share": dist.Dirichlet(np.array([1.0, 2.0, 1.5])).expand([2])},
        {"cells": lambda share: law(n, share)},
    )
    return model, nw.Release(cells=RandomizedResponse(channel, on="counts", n=n).released(reports))


def given(shares, channel, reports):
    """All tables, and their probabilities given shares and reports; the probability of the reports."""
    cells = tables(sum(reports), len(shares))
    chance = [law_of_counts(channel, row).get(tuple(reports), 0.0) for row in cells]
    joint = stats.multinomial.pmf(cells, sum(reports), shares) * np.array(chance)
    return cells, joint / joint.sum(), joint.sum()


def drawn(channel, reports, seed, chains=4_000):
    joint = Joint(Problem(*two_tables(channel, reports)), {})
    share = np.broadcast_to(SHARES, (chains, 2, 3))
    return Reported(joint, "cells").draw(np.random.default_rng(seed), {"share": share}, chains)


def tallied(found, cells):
    return [np.sum(np.all(found == row, axis=1)) for row in cells]


@pytest.mark.parametrize(
    ("channel", "reports"),
    [(UNEVEN, [[2, 3, 1], [0, 6, 0]]), (WIDE, [[1, 2, 1, 2], [0, 0, 3, 3]])],
    ids=["square", "wide"],
)
def test_tables_follow_their_law_given_shares_and_reports(channel, reports, seed):
    found = drawn(channel, reports, seed)
    for group, (shares, seen) in enumerate(zip(SHARES, reports, strict=True)):
        cells, chance, _ = given(shares, channel, seen)
        assert counts_agree(tallied(found[:, group], cells), chance)
        assert np.all(chance[[np.flatnonzero(np.all(cells == row, axis=1))[0] for row in found[:, group]]] > 0)


def test_a_channel_read_the_wrong_way_round_is_caught(seed):
    reports = [[2, 3, 1], [0, 6, 0]]
    backwards = np.array(UNEVEN).T / np.array(UNEVEN).T.sum(axis=1, keepdims=True)
    cells, chance, _ = given(SHARES[0], UNEVEN, reports[0])
    assert not counts_agree(tallied(drawn(backwards, reports, seed)[:, 0], cells), chance)


def test_the_marginal_probability_is_that_of_the_enumerated_tables():
    for channel, reports in ((UNEVEN, [[2, 3, 1], [0, 6, 0]]), (WIDE, [[1, 2, 1, 2], [0, 0, 3, 3]])):
        joint = Joint(Problem(*two_tables(channel, reports)), {})
        shares = np.stack([SHARES, SHARES[::-1], np.full((2, 3), 1 / 3)])
        found = Reported(joint, "cells").log_marginals({"share": shares})
        truth = [
            sum(np.log(given(row, channel, seen)[2]) for row, seen in zip(both, reports, strict=True))
            for both in shares
        ]
        assert np.ptp(found - truth) < 1e-10  # up to a constant


# Posteriors -----------------------------------------------------------------------------------------------------------

NAMES = ("randomised-response-uneven-counts", "randomised-response-two-bits", "randomised-response-binary-counts")


def target_of(name):
    target = next(one for one in all_targets() if one.name == name)
    truth = dict(target.solve())
    truth.pop("log_evidence")
    return target.make(), truth


@pytest.mark.parametrize("name", briefly(NAMES, NAMES[:1]))
def test_posteriors_are_exact(name, seed):
    problem, truth = target_of(name)
    posterior = run(problem, seed, draws=3_200, warmup=60, on_failure="return")
    assert posterior.diagnostics["steps"][0] == "cells: given the reported counts"
    assert worst_z(posterior, truth) < LIMIT


@pytest.mark.parametrize("broken", briefly(["shares", "marginal"], ["marginal"]))
def test_broken_steps_are_caught(broken, seed, monkeypatch):
    """Reports split without regard to the shares; parameters walking as if every share explained them alike."""
    if broken == "shares":
        monkeypatch.setattr(Reported, "draw", lambda self, rng, values, chains: _even(self, rng, chains))
    else:
        monkeypatch.setattr(Reported, "log_marginal", lambda self, values, records, release: 0.0)
    problem, truth = target_of("randomised-response-binary-counts")
    assert worst_z(run(problem, seed, draws=3_200, warmup=60, min_ess=1e-3), truth) > LIMIT


def _even(step, rng, chains):
    mechanism, seen = step.joint.release[step.name]
    columns = np.array(mechanism.channel).T
    return sum(
        rng.multinomial(np.full(chains, count), column / column.sum())
        for count, column in zip(seen, columns, strict=True)
    )


def reported_pair():
    prior = {"share": dist.Dirichlet(np.array([1.0, 2.0, 1.5]))}
    model = nw.Model(prior, {"s": lambda share: dist.Multinomial(5, share)})
    return model, {"s": RandomizedResponse(UNEVEN, on="counts", n=5)}


def test_joint_distribution_is_kept(seed):
    assert geweke(*reported_pair(), seed, sweeps=20) < LIMIT


@pytest.mark.long
def test_logits_and_functions_of_parameters_are_drawn_alike(seed):
    """log-odds with a normal prior: no conjugate step, the same tables."""
    reports = (4, 2, 6)
    model = nw.Model(
        {"odds": dist.Normal(0.0, 1.0).expand([3])}, {"cells": lambda odds: dist.Multinomial(12, logits=odds)}
    )
    release = nw.Release(cells=RandomizedResponse(UNEVEN, on="counts", n=12).released(reports))
    posterior = run((model, release), seed)
    assert posterior.diagnostics["steps"][0] == "cells: given the reported counts"
    nodes, weight = np.polynomial.hermite_e.hermegauss(30)
    odds = np.array(list(product(nodes, repeat=3)))
    shares = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    weight = np.prod(list(product(weight, repeat=3)), axis=1)
    weight = weight * np.prod((shares @ UNEVEN) ** np.array(reports), axis=1)
    weight = weight / weight.sum()
    cells = sum(
        seen * shares * column / (shares @ column)[:, None]
        for seen, column in zip(reports, np.array(UNEVEN).T, strict=True)
    )
    spread = sum(
        seen * part * (1.0 - part)
        for seen, column in zip(reports, np.array(UNEVEN).T, strict=True)
        for part in [shares * column / (shares @ column)[:, None]]
    )
    truth = {
        name: (weight @ mean, weight @ (inner + (mean - weight @ mean) ** 2))
        for name, mean, inner in (("odds", odds, 0.0 * odds), ("cells", cells, spread))
    }
    assert worst_z(posterior, truth) < LIMIT


# Where it does not apply ----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_other_laws_and_tables_that_others_depend_on_keep_the_general_step():
    reports = RandomizedResponse(UNEVEN, on="counts", n=4).released([1, 2, 1])
    mixed = nw.Model({"a": dist.Gamma(4.0, 1.0)}, {"s": lambda a: dist.DirichletMultinomial(a * np.ones(3), 4)})
    assert not Reported.applies(Joint(Problem(mixed, nw.Release(s=reports)), {}), "s")
    parent = nw.Model(
        {"share": dist.Dirichlet(np.ones(3))},
        {"s": lambda share: dist.Multinomial(4, share), "t": lambda s: dist.Poisson(1.0 + s[0])},
    )
    release = nw.Release(s=reports, t=nw.DiscreteLaplace(scale=1.0).released(2))
    assert not Reported.applies(Joint(Problem(parent, release), {}), "s")


def test_reports_of_another_number_of_records_have_no_start(seed):
    model = nw.Model({"share": dist.Dirichlet(np.ones(3))}, {"s": lambda share: dist.Multinomial(5, share)})
    release = nw.Release(s=RandomizedResponse(UNEVEN, on="counts", n=4).released([1, 2, 1]))
    with pytest.raises(nw.InferenceError, match="no start was found"):
        nw.sample(model, release, Augmentation(), draws=1_000, seed=seed)


@pytest.mark.long
def test_hundreds_of_records_take_no_longer(seed):
    """Against weighted draws of the prior; the probability of one whole table would take seconds."""
    bit = np.array([[0.75, 0.25], [0.25, 0.75]])
    channel, reports = np.kron(bit, bit), np.array([104, 120, 74, 102])
    model = nw.Model({"share": dist.Dirichlet(np.ones(4))}, {"s": lambda share: dist.Multinomial(400, share)})
    release = nw.Release(s=RandomizedResponse(channel, on="counts", n=400).released(reports))
    sampler = Augmentation(chains=64, warmup=100)
    posterior = nw.sample(model, release, sampler, draws=6_400, seed=seed, on_failure="return")
    assert np.all(posterior["s"].sum(axis=1) == 400)
    shares = np.random.default_rng(seed).dirichlet(np.ones(4), 200_000)
    weight = np.exp((np.log(shares @ channel) - np.log(reports / 400)) @ reports)
    weight = weight / weight.sum()
    truth = weight @ shares
    error = np.sqrt(weight**2 @ (shares - truth) ** 2)
    by_start = posterior["share"].reshape(16, -1, 4).mean(axis=1)
    error = np.hypot(error, by_start.std(axis=0, ddof=1) / 4.0)
    assert np.max(as_normal(np.abs(by_start.mean(axis=0) - truth) / error, 15)) < LIMIT


def test_the_choice_spares_what_takes_long(seed):
    """Eighty people and two questions: no probe, no probability of a table."""
    bit = np.array([[0.75, 0.25], [0.25, 0.75]])
    model = nw.Model({"share": dist.Dirichlet(np.ones(4))}, {"s": lambda share: dist.Multinomial(80, share)})
    release = nw.Release(s=RandomizedResponse(np.kron(bit, bit), on="counts", n=80).released([21, 24, 15, 20]))
    posterior = nw.sample(model, release, draws=500, seed=seed, on_failure="return")
    assert isinstance(posterior.sampler, Augmentation)
    assert "the probability of a table behind 's' takes long" in posterior.reason
    small = RandomizedResponse(np.kron(bit, bit), on="counts", n=9).released([3, 3, 1, 2])
    nine = nw.Model({"share": dist.Dirichlet(np.ones(4))}, {"s": lambda share: dist.Multinomial(9, share)})
    assert choice.sparing(Problem(nine, nw.Release(s=small))) is None
