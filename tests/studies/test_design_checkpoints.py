"""Checkpoints of designs, allocations and sample sizes: cut anywhere, they go on to the same result."""

import re
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import pytest
from targets import brief_rows

import noisewise as nw
from noisewise.checkpoint import describe
from noisewise.studies import design as design_module
from noisewise.studies.designs import simulation

SPREAD = 0.5


@pytest.fixture(autouse=True)
def few_budgets():
    """A curve of six budgets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(design_module, "PLACES", 6)
        yield


@cache
def model(spread=SPREAD):
    return nw.Model(prior={"mu": dist.Normal(0.0, 2.0)}, statistics={"mean": lambda mu: dist.Normal(mu, spread)})


@cache
def sized(n):
    return model(5.0 / n**0.5)


@cache
def two():
    return nw.Model(
        prior={"a": dist.Normal(0.0, 2.0), "b": dist.Normal(0.0, 2.0)},
        statistics={"x": lambda a: dist.Normal(a, 0.2), "y": lambda b: dist.Normal(b, 0.2)},
        derived={"gap": lambda a, b: a - b},
    )


def noise(sensitivity=0.3):
    return lambda epsilon: nw.Laplace(epsilon=epsilon, sensitivity=sensitivity)


def designed(**changes):
    settings = {"target": {"sd": "mu", "at_most": 1.4}, "budgets": (0.1, 0.6), "seed": 3, "tolerance": 9.0} | changes
    given = settings.pop("model", model()), settings.pop("plan", {"mean": noise()})
    return nw.design(*given, **{"replicates": 16, **settings})


def allocated(**changes):
    plan = {"x": noise(0.2), "y": noise(0.8)}
    return nw.allocate(two(), plan, epsilon=0.5, target={"sd": "gap"}, replicates=16, seed=3, **changes)


def compared(**changes):
    settings = {"over": {"width": [0.3, 3.0]}, "replicates": 16, "seed": 3, "target": {"sd": "mu"}}
    return nw.allocate(model(), lambda width: {"mean": noise(width)}, epsilon=1.0, **settings, **changes)


def counted(**changes):
    settings = {"target": {"sd": "mu", "at_most": 1.4}, "budgets": 0.3, "sizes": (10, 40), "tolerance": 9.0}
    return nw.sample_size(sized, {"mean": noise()}, replicates=16, seed=3, **settings, **changes)


def content(result):
    """All that a result says, but for the time it took."""
    return {name: value for name, value in vars(result).items() if name != "seconds"}


class Cut(Exception):
    """The power goes off."""


def cut_after(monkeypatch, batches):
    """From now on, that many batches are computed, and no more; returns how many were."""
    computed = simulation.Simulation._computed
    done = []

    def counting(self, plans, batch):
        if len(done) >= batches:
            raise Cut
        done.append(batch)
        return computed(self, plans, batch)

    monkeypatch.setattr(simulation.Simulation, "_computed", counting)
    return done


VERBS = {"design": (designed, 1), "candidates": (compared, 2), "people": (counted, 16), "split": (allocated, 1)}
"""With how many simulations, each of which computes a batch again, as a check."""


@pytest.mark.parametrize(("verb", "repeated"), brief_rows(VERBS, ["design", "candidates"]))
def test_a_run_cut_anywhere_ends_with_the_same_result(verb, repeated, seed, tmp_path, monkeypatch):
    path = tmp_path / "run.nwc"
    whole = cut_after(monkeypatch, 10**9)
    expected = content(verb())
    monkeypatch.undo()
    total = len(whole)
    before = int(np.random.default_rng(seed).integers(2, total - 1))
    first = cut_after(monkeypatch, before)
    with pytest.raises(Cut):
        verb(checkpoint=path)
    monkeypatch.undo()
    assert len(first) == before
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 7)  # in the middle of a record: the last word on progress
    again = cut_after(monkeypatch, 10**9)
    with pytest.warns(nw.NoisewiseWarning, match="cut short"):
        resumed = verb(checkpoint=path)
    assert content(resumed) == expected
    assert len(again) <= total - before + repeated
    monkeypatch.undo()
    assert "ended:    complete" in describe(path)


def test_what_is_kept_is_shown_and_serves_more_replicates(tmp_path, monkeypatch):
    path = tmp_path / "run.nwc"
    designed(checkpoint=path)
    said = describe(path)
    assert said.startswith("Checkpoint of nw.design, seed 3\nmodel:    mu, mean; a simulated release ")
    assert re.search(r"progress: releases: 1\d\d of 1\d\d steps", said)
    expected = content(designed(replicates=24))
    computed = cut_after(monkeypatch, 10**9)
    assert content(designed(replicates=24, checkpoint=path)) == expected
    assert computed[:3] == [0, 4, 5], "of the grid, one batch again as a check, and the two that are new"


OTHERS = {
    "seed": ({"seed": 4}, "seed is 3 there and 4 here"),
    "target": ({"target": {"sd": "mu", "at_most": 1.3}}, "target is"),
    "plan": ({"plan": {"mean": noise(0.4)}}, "release is"),
    "range": ({"budgets": (0.1, 0.7)}, "release is"),
    "model": ({"model": model(SPREAD * (1.0 + 1e-9))}, "must be of the same run"),
}


@pytest.mark.parametrize(("changes", "message"), OTHERS.values(), ids=OTHERS)
def test_a_checkpoint_of_another_design_is_refused(changes, message, tmp_path, monkeypatch):
    path = tmp_path / "run.nwc"
    cut_after(monkeypatch, 1)
    with pytest.raises(Cut):
        designed(checkpoint=path)
    with pytest.raises(nw.InputError, match=message):
        designed(checkpoint=path, **changes)


def test_a_batch_that_comes_out_otherwise_is_refused(tmp_path, monkeypatch):
    """Negative control of the check: the first batch there is, computed again, is not the one that was kept."""
    path = tmp_path / "run.nwc"
    cut_after(monkeypatch, 2)
    with pytest.raises(Cut):
        designed(checkpoint=path)
    monkeypatch.undo()
    computed = simulation.Simulation._computed
    monkeypatch.setattr(simulation.Simulation, "_computed", lambda *given: computed(*given) * (1.0 + 1e-15))
    with pytest.raises(nw.InputError, match="give other numbers than at its beginning"):
        designed(checkpoint=path)


KILLED = """
import os, signal, sys
sys.path[:0] = {paths!r}
import test_design_checkpoints as tests
tests.design_module.PLACES = 6
from noisewise.studies.designs import simulation
computed, left = simulation.Simulation._computed, iter(range(3))
def counting(self, plans, batch):
    next(left, None) is not None or os.kill(os.getpid(), signal.SIGKILL)
    return computed(self, plans, batch)
simulation.Simulation._computed = counting
tests.designed(checkpoint={path!r})
"""


@pytest.mark.long
def test_a_killed_process_goes_on_to_the_same_result(tmp_path, monkeypatch):
    path = tmp_path / "run.nwc"
    program = KILLED.format(paths=[str(Path(__file__).parent), *sys.path], path=str(path))
    ended = subprocess.run([sys.executable, "-c", program], check=False, cwd=tmp_path)
    assert ended.returncode == -signal.SIGKILL
    expected = content(designed())
    computed = cut_after(monkeypatch, 10**9)
    assert content(designed(checkpoint=path)) == expected
    assert computed[:3] == [0, 3, 0], "one of the three again, as a check; then the rest of the grid, then other places"
