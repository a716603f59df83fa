"""What samplers share: one check of budgets, one form of settings."""

import inspect
from dataclasses import fields

import numpy as np
import numpyro.distributions as dist
import pytest
import same_draws

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.inference.settings import Estimator, Sampler
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


# Estimators -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [nw.EM, nw.MCEM])
def test_every_estimator_runs_by_one_contract(cls):
    assert list(inspect.signature(cls.run).parameters) == list(inspect.signature(Estimator.run).parameters)


def test_an_estimator_without_a_run_cannot_be_made():
    class Idle(Estimator):
        pass

    with pytest.raises(TypeError, match=r"abstract method '?run"):
        Idle()


@pytest.mark.parametrize("estimator", [nw.EM(), nw.MCEM()])
def test_a_checkpoint_and_a_seed_are_for_estimators_that_simulate(estimator, tmp_path):
    model, release = same_draws.count()
    refused = r"'seed' must be" if estimator.simulates else "'checkpoint' is for estimators that simulate"
    with pytest.raises(nw.InputError, match=refused):
        nw.fit(model, release, estimator, checkpoint=tmp_path / "run.nwc")


def test_an_estimator_says_why_it_does_not_apply():
    model = nw.Model({"p": dist.Dirichlet(np.ones(2))}, {"table": lambda p: dist.Multinomial(9, p)})
    table = Problem(model, nw.Release(table=nw.DiscreteLaplace(scale=1.0).released([4, 5])))
    assert "the entries of 'table', or their noise, are not independent" in nw.EM().unfit(table)
    assert nw.MCEM().unfit(table) is None
    assert nw.EM().unfit(Problem(*same_draws.means())) is None


def test_settings_of_an_estimator_are_plain_data_and_a_checkpoint_knows_them_as_it_did():
    """Headers of checkpoints have settings as Python writes them; in another form old ones would be refused."""
    settings = nw.MCEM(final=100)
    assert settings.to_dict()["schedule"]["growth"] == 1.5
    assert settings.identity()["e_step"] == "'importance'"
    assert settings.identity()["schedule"] == repr(nw.Ascent())
    assert nw.EM().to_dict() == {"name": "EM", **vars(nw.EM())}
