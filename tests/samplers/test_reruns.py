"""What follows a run: chains go on, take smaller steps or give way, and a complete result is never lost."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import numpyro.distributions as dist
import pytest
from targets import count_model, count_release

import noisewise as nw
from noisewise.errors import InferenceError
from noisewise.samplers import Importance
from noisewise.samplers import sample as sampling
from noisewise.samplers.choosing import choice, reruns

LONGER, FINER = nw.NUTS(warmup=4000, thin=4), nw.NUTS(target_accept=0.95)


@pytest.mark.parametrize(
    ("status", "r_hat", "divergences", "work", "efficiency", "expected"),
    [
        ("disagree", 1.05, 0, 2**31, 1.0, LONGER),
        ("low_ess", 1.05, 0, 2**31, 1.0, LONGER),
        ("disagree", 1.05, 0, 2**33, 1.0, None),  # four times this is more than a fallback may take
        ("disagree", 1.05, 0, 2**33, 0.1, LONGER),  # work counts effective draws, the chains give rows
        ("disagree", 1.2, 0, 2**31, 1.0, None),  # far from having met
        ("disagree", 1.05, 3, 2**31, 1.0, FINER),  # where chains shun a place, longer ones shun it too
        ("disagree", 1.2, 3, 2**31, 1.0, None),
        ("divergent", 1.002, 99, 2**31, 1.0, FINER),
        ("divergent", 1.002, 99, 2**34, 1.0, None),
        ("stuck", np.inf, 99, 2**31, 1.0, None),
    ],
)
def test_chains_that_nearly_met_or_diverged_run_again(status, r_hat, divergences, work, efficiency, expected):
    estimate = choice.Estimate(nw.NUTS(), work, efficiency, "")
    numbers = {"r_hat": r_hat, "divergences": divergences}
    posterior = SimpleNamespace(sampler=nw.NUTS(), status=status, diagnostics=numbers)
    again = [candidate.sampler for candidate, _ in reruns._again(estimate, posterior)]
    assert again == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("status", "sampler", "reason", "again"),
    [
        ("unseen", choice.COLLAPSED, "", 0),
        ("high_k", choice.COLLAPSED, "", 0),
        ("high_k", choice.COLLAPSED, reruns.ANEW[0], 1),
        ("high_k", choice.COLLAPSED, reruns.ANEW[1], None),
        ("low_ess", choice.COLLAPSED, "", None),
        ("high_k", Importance(), "", None),
    ],
)
def test_a_proposal_that_missed_a_part_or_a_tail_is_searched_for_anew(status, sampler, reason, again):
    posterior = SimpleNamespace(sampler=sampler, status=status)
    found = reruns._searching_anew(choice.Estimate(sampler, 2**20, 1.0, ""), posterior, reason)
    assert [why for _, why in found] == ([] if again is None else [reruns.ANEW[again]])


def test_a_proposal_for_several_explanations_that_is_worth_little_is_searched_for_anew():
    estimate = choice.Estimate(choice.COLLAPSED, 2**20, 1.0, reruns.EXPLANATIONS)
    posterior = SimpleNamespace(sampler=choice.COLLAPSED, status="low_ess")
    for reason, following in ((reruns.EXPLANATIONS, reruns.ANEW[0]), (reruns.ANEW[0], reruns.ANEW[1])):
        assert reruns._searching_anew(estimate, posterior, reason) == [(estimate, following)]
    assert not reruns._searching_anew(estimate, posterior, reruns.ANEW[1])


def test_smaller_steps_have_an_end():
    finest = nw.NUTS().finer().finer()
    assert finest.target_accept == pytest.approx(0.9875)
    assert finest.finer() is None
    assert nw.Augmentation().finer() is None
    longest = SimpleNamespace(sampler=finest, status="divergent", diagnostics={"r_hat": 1.0, "divergences": 99})
    assert reruns._again(choice.Estimate(finest, 2**20, 1.0, ""), longest) == []  # the next in the forecast


@pytest.mark.parametrize(
    ("draws", "divergences", "work", "again"),
    [(4000, 5, 2**28, True), (4000, 4, 2**28, False), (8000, 5, 2**28, False), (4000, 5, 2**31, False)],
)
def test_a_few_divergences_call_for_smaller_steps_where_these_are_cheap(draws, divergences, work, again):
    class Run(SimpleNamespace):
        def __len__(self):
            return draws

    run = Run(sampler=nw.NUTS(), status="complete", diagnostics={"r_hat": 1.0, "divergences": divergences})
    found = [candidate.sampler for candidate, _ in reruns._finer(choice.Estimate(nw.NUTS(), work, 1.0, ""), run)]
    assert found == ([FINER] if again else [])


def in_place_of_chains(monkeypatch, outcome):
    """NUTS comes first, and what it gives is `outcome(a complete result, the settings)`; nothing else is looked at."""
    first = choice.Estimate(nw.NUTS(), 2**20, 1.0, "")
    monkeypatch.setattr(sampling, "_tried_at_once", lambda *_: None)
    monkeypatch.setattr(sampling, "_candidates", lambda *_: iter([(first, "told to")]))
    monkeypatch.setattr(nw.NUTS, "run", lambda self, *_, **__: outcome(replace(complete(), sampler=self), self))


@cache
def complete():
    return nw.sample(count_model(), count_release(), nw.Importance(), draws=2_000, seed=1)


def test_divergent_chains_are_followed_by_smaller_steps(monkeypatch):
    """Where the first chains diverge too often, the result comes from the same sampler with smaller steps."""

    def outcome(result, sampler):
        return result if sampler == FINER else replace(result, status="divergent", message="diverged")

    in_place_of_chains(monkeypatch, outcome)
    posterior = nw.sample(count_model(), count_release(), draws=2_000, seed=1)
    assert posterior.sampler == FINER
    assert posterior.status == "complete"
    assert "the same chains with smaller steps" in posterior.reason


@pytest.mark.parametrize("then", ["complete", "stuck", "interrupted", "max_seconds", "error"])
def test_a_few_divergences_put_a_run_aside_unless_there_is_no_better(monkeypatch, then):
    def outcome(result, sampler):
        if sampler == FINER and then == "error":
            raise InferenceError("no start")
        if sampler == FINER:
            return replace(result, status=then, message=then, diagnostics=result.diagnostics | {"divergences": 0})
        return replace(result, diagnostics=result.diagnostics | {"divergences": 9})

    in_place_of_chains(monkeypatch, outcome)
    posterior = nw.sample(count_model(), count_release(), draws=2_000, seed=1)
    assert posterior.status == "complete"
    assert posterior.sampler == (FINER if then == "complete" else nw.NUTS())
    assert posterior.diagnostics["divergences"] == (0 if then == "complete" else 9)
    assert ("put aside, since 9 transitions diverged" in posterior.reason) == (then == "complete")


def thirty_rates():
    number = 30
    model = nw.Model(
        {
            "mu": dist.Normal(2.0, 1.0),
            "tau": dist.HalfNormal(0.7),
            "rate": lambda mu, tau: dist.LogNormal(mu, tau).expand([number]),
        },
        {"cases": lambda rate: dist.Poisson(rate)},
    )
    released = np.random.default_rng(7).poisson(8.0, number)
    return model, nw.Release(cases=nw.DiscreteLaplace(scale=2.0).released(released))


@pytest.mark.long
def test_real_chains_are_followed_by_real_ones_with_smaller_steps(seed, monkeypatch):
    """Where the first chains diverge too often, the result comes from the same sampler with smaller steps."""
    run = nw.NUTS.run

    def diverging(self, *args, **more):
        posterior = run(self, *args, **more)
        return posterior if self == FINER else replace(posterior, status="divergent", message="diverged")

    monkeypatch.setattr(nw.NUTS, "run", diverging)
    posterior = nw.sample(*thirty_rates(), draws=2_000, seed=seed)
    assert posterior.sampler == FINER
    assert posterior.status == "complete"
    assert "the same chains with smaller steps" in posterior.reason
