"""Files that the version before wrote are read to the numbers that it had. tests/reference/version_before/README.md."""

import json
import shutil
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import pytest

import noisewise as nw
from noisewise import checkpoint
from noisewise.analysis import Analysis
from noisewise.checkpoint import opening
from noisewise.checkpoint.file import ADVICE
from noisewise.workflow import folder
from noisewise.workflow.reporting import write_report

BEFORE = Path(__file__).parent / "reference" / "version_before"
NUMBERS = json.loads((BEFORE / "numbers.json").read_text())
MODEL = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
SHARP = nw.Release(count=nw.Laplace(scale=0.5).released(37.4))


def same_columns(posterior, written):
    """Whether draws and log weights are the same, bit by bit."""
    columns = dict(posterior.draws)
    if posterior.log_weights is not None:
        columns["log_weights"] = posterior.log_weights
    assert set(columns) == set(written)
    return all(np.array_equal(columns[name], np.asarray(values, dtype=float)) for name, values in written.items())


def close(value, written):
    """Whether plain data holds the numbers that were written; it may hold more beside them."""
    if isinstance(written, dict):
        return all(name in value and close(value[name], one) for name, one in written.items())
    return value == (pytest.approx(written, rel=1e-9) if isinstance(written, float) else written)


def test_a_release_is_read():
    release = nw.Release.load(BEFORE / "release.json")
    assert release.hash == NUMBERS["release"]["hash"]
    assert release["count"].value == NUMBERS["release"]["value"]
    assert release["count"].mechanism.scale == NUMBERS["release"]["scale"]


@pytest.mark.quick
@pytest.mark.parametrize("name", ["posterior", "weighted"])
def test_a_posterior_is_read(name):
    """Negative control: one draw that has moved."""
    posterior, written = nw.Posterior.load(BEFORE / f"{name}.nc"), NUMBERS[name]
    assert (posterior.log_weights is not None) == (name == "weighted")
    assert same_columns(posterior, written["columns"])
    assert posterior.status == written["status"]
    assert posterior.release_hash == NUMBERS["release"]["hash"]
    assert close(posterior.summary().to_dict("index"), written["summary"])
    assert close(posterior.log_evidence, written["log_evidence"])
    moved = [np.nextafter(written["columns"]["theta"][0], 0.0), *written["columns"]["theta"][1:]]
    assert not same_columns(posterior, written["columns"] | {"theta": moved})


def test_an_analysis_is_read():
    analysis = Analysis.load(BEFORE / "analysis.toml")
    assert analysis.release.hash == NUMBERS["release"]["hash"]
    assert list(analysis.model.order) == ["theta", "count"]
    assert (analysis.settings.draws, analysis.settings.seed) == (100, 7)


@pytest.mark.parametrize("command", ["fit", "mle"])
def test_a_folder_of_results_is_read_and_reported(command, tmp_path):
    results = folder.load(BEFORE / command)
    assert results.command == command
    assert results.naive is not None or results.naive_fit is not None
    assert close(json.loads(json.dumps(results.summary())), NUMBERS[command])
    shutil.copytree(BEFORE / command, tmp_path / command)
    assert "Visitors of a clinic" in write_report(tmp_path / command).read_text(encoding="utf-8")
    folder.check_folder(tmp_path / command)  # earlier results, which later ones may take the place of


@pytest.fixture
def begun(tmp_path):
    """A copy of the checkpoint."""
    return Path(shutil.copy(BEFORE / "run.nwc", tmp_path))


def resumed(path):
    """The posterior, or the sentence by which the checkpoint was refused."""
    try:
        return nw.sample(MODEL, SHARP, nw.Rejection(), draws=40, seed=7, checkpoint=path, progress=False)
    except nw.InputError as error:
        return str(error)


@pytest.mark.bits
def test_a_checkpoint_is_resumed_to_its_draws_or_refused(begun):
    """Resumed with the versions and kind of processor that began it; else a sentence says what differs."""
    assert checkpoint.describe(begun).startswith("Checkpoint of nw.sample with Rejection, seed 7")
    outcome = resumed(begun)
    if isinstance(outcome, str):
        assert outcome.startswith("sample: 'checkpoint' ")
        assert outcome.endswith(ADVICE)
        assert begun.read_bytes() == (BEFORE / "run.nwc").read_bytes()
    else:
        assert same_columns(outcome, NUMBERS["run"]["columns"])


def test_a_checkpoint_of_other_versions_is_refused_by_name(begun, monkeypatch):
    versions = opening.current_versions() | {"noisewise": "99.0"}
    monkeypatch.setattr(opening, "current_versions", lambda: dict(versions))
    assert "must be of the same run: versions['noisewise'] is 0.1.0 there and 99.0 here" in resumed(begun)
