"""What samplers share: one check of budgets, one form of settings."""

import inspect
from dataclasses import fields

import pytest

import noisewise as nw
from noisewise.inference.settings import Sampler
from noisewise.samplers.choosing import choice

BUDGETS = {
    "min_ess": (0.0, "must be positive and finite", 5, 5.0),
    "max_seconds": (-1.0, "must be positive and finite", 2, 2.0),
    "max_proposals": (1e6, "must be a whole number, at least 1", 10, 10),
}


@pytest.mark.parametrize("name", sorted(choice.public_samplers()))
def test_budgets_are_checked_and_kept_in_one_form(name):
    cls = choice.public_samplers()[name]
    own = {field.name for field in fields(cls)} & set(BUDGETS)
    assert "max_seconds" in own
    for budget in own:
        wrong, rule, given, kept = BUDGETS[budget]
        with pytest.raises(nw.InputError, match=f"^{name}: '{budget}' {rule}"):
            cls(**{budget: wrong})
        found = getattr(cls(**{budget: given}), budget)
        assert (found, type(found)) == (kept, type(kept))
    assert cls.from_dict(cls().to_dict()) == cls()


@pytest.mark.parametrize("name", sorted(choice.public_samplers()))
def test_every_sampler_runs_by_one_contract(name):
    """Called alike with a checkpoint and without: the arguments of `Sampler.run`, and at most some with defaults."""
    wanted = list(inspect.signature(Sampler.run).parameters.values())
    given = list(inspect.signature(choice.public_samplers()[name].run).parameters.values())
    assert [one.name for one in given[: len(wanted)]] == [one.name for one in wanted]
    assert all(one.default is not one.empty for one in given[len(wanted) - 1 :])


def test_a_sampler_without_a_run_cannot_be_made():
    class Idle(Sampler):
        pass

    with pytest.raises(TypeError, match=r"abstract method '?run"):
        Idle()
    Sampler.known.pop("Idle")
