"""Results folders where writing them fails: nothing that was computed is lost, and none looks whole that is not."""

import json
import os
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest
from faults import FIT, content, entry_point, failing, logs

import noisewise as nw
from noisewise.results import fit_file
from noisewise.workflow import folder as folders
from noisewise.workflow import reporting, rescue


@pytest.fixture
def noisewise(tmp_path, monkeypatch, capsys):
    return entry_point(tmp_path, monkeypatch, capsys)


# Nothing that was computed is lost ----------------------------------------------------------------------------------


def test_draws_are_kept_where_netcdf_fails(noisewise, tmp_path, monkeypatch):
    assert noisewise(*FIT)[0] == 0
    whole = nw.Posterior.load(tmp_path / "count-results/posterior.nc")
    monkeypatch.setattr(nw.Posterior, "save", failing(RuntimeError("no such filter")))
    code, out, err = noisewise(*FIT, "--out", "again")
    assert code == 70
    place = tmp_path / "again-rescued"
    assert f"What was computed is in {place}." in err
    with np.load(place / "posterior.npz") as arrays:
        for name, values in whole.draws.items():
            assert np.array_equal(arrays[f"draws.{name}"], values)
    assert json.loads((place / "summary.json").read_text())["draws"] == 300
    assert (place / "analysis.toml").is_file()
    assert not (place / "posterior.nc").exists()
    assert "theta" in out  # the table is told all the same
    assert "Results:" not in out
    assert "no such filter" in logs(tmp_path)[0].read_text()
    assert sorted(path.name for path in tmp_path.glob("again*")) == ["again-rescued"]


def test_weights_are_kept_with_the_draws(noisewise, tmp_path, monkeypatch):
    text = (tmp_path / "count.toml").read_text().replace("[inference]", '[inference]\nmethod = "Importance"')
    (tmp_path / "count.toml").write_text(text)
    monkeypatch.setattr(nw.Posterior, "save", failing(RuntimeError()))
    assert noisewise("fit", "count.toml", "--draws", "500", "--quiet")[0] == 70
    with np.load(tmp_path / "count-results-rescued/posterior.npz") as arrays:
        assert arrays["log_weights"].shape == (500,)
    assert (tmp_path / "count-results-rescued/naive.npz").is_file()


def test_a_full_disk_is_no_fault_of_ours_and_loses_nothing(noisewise, tmp_path, monkeypatch):
    honest = folders._write_posterior
    monkeypatch.setattr(folders, "_write_posterior", failing(OSError(28, "No space left on device")))
    code, _, err = noisewise(*FIT)
    assert code == 2
    assert "--out must be writable ([Errno 28] No space left on device)" in err
    assert f"What was computed is in {tmp_path / 'count-results-rescued'}." in err
    assert len(nw.Posterior.load(tmp_path / "count-results-rescued/posterior.nc")) == 300
    assert not (tmp_path / "count-results").exists()
    assert not logs(tmp_path)
    monkeypatch.setattr(folders, "_write_posterior", honest)
    assert noisewise(*FIT)[0] == 0


def test_a_report_that_fails_leaves_earlier_results_as_they_were(noisewise, tmp_path, monkeypatch):
    assert noisewise(*FIT)[0] == 0
    before = content(tmp_path / "count-results")
    monkeypatch.setattr(reporting, "report_on", failing(KeyError("figure")))
    code, _, err = noisewise(*FIT, "--seed", "7")
    assert code == 70
    assert content(tmp_path / "count-results") == before
    saved = nw.Posterior.load(tmp_path / "count-results-rescued/posterior.nc")
    assert len(saved) == 300
    assert "(KeyError: 'figure')" in err
    # once more: the first rescue is left alone
    assert noisewise(*FIT, "--seed", "8")[0] == 70
    assert len(nw.Posterior.load(tmp_path / "count-results-rescued-2/posterior.nc")) == 300


def test_machines_get_their_json_all_the_same(noisewise, tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "report_on", failing(KeyError("figure")))
    code, out, _ = noisewise(*FIT, "--json")
    assert code == 70
    found = json.loads(out)
    assert found["status"] == "complete"
    assert "folder" not in found


def test_a_fit_is_kept_where_its_report_fails(noisewise, tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "report_on", failing(KeyError("figure")))
    code, out, err = noisewise("mle", "count.toml", "--quiet")
    assert code == 70
    place = tmp_path / "count-mle-rescued"
    assert str(place) in err
    assert "Log likelihood" in out
    fit = fit_file.from_data(json.loads((place / "fit.json").read_text()), nw.EM(), "fit.json")
    assert fit.status == "converged"
    assert (place / "naive.json").is_file()
    monkeypatch.setattr(fit_file, "to_data", failing(KeyError("trace")))
    assert noisewise("mle", "count.toml", "--quiet")[0] == 70
    with np.load(tmp_path / "count-mle-rescued-2/fit.npz") as arrays:
        assert float(arrays["estimate.theta"]) == float(fit.estimate["theta"])


def test_a_comparison_is_kept_where_its_folder_fails(noisewise, tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "report_on", failing(KeyError("figure")))
    code, out, _ = noisewise("compare", "count.toml", "--draws", "300", "--quiet", "--out", "both")
    assert code == 70
    assert "wider" in out
    assert (tmp_path / "both-rescued/naive.nc").is_file()


@pytest.mark.parametrize("command", ["fit", "mle"])
def test_a_naive_analysis_that_fails_leaves_the_exact_one(noisewise, tmp_path, monkeypatch, command):
    if command == "fit":
        monkeypatch.setattr("noisewise.workflow.run.naive_posterior", failing(IndexError("naive")))
    else:
        monkeypatch.setattr(nw.Release, "naive", failing(IndexError("naive")))
    code, out, err = noisewise(command, "count.toml", "--quiet", *(["--draws", "300"] if command == "fit" else []))
    assert code == 70
    assert "(IndexError: naive)" in err
    folder = tmp_path / ("count-results" if command == "fit" else "count-mle")
    assert f"Report: {folder.name}" in out
    assert "a fault of noisewise" in json.loads((folder / "run.json").read_text())["no_naive"]
    assert logs(tmp_path)


def test_results_go_among_temporary_files_where_nothing_can_be_made_beside(noisewise, tmp_path, monkeypatch):
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(elsewhere))
    honest = folders.new_folder

    def only_there(parent, name):
        if Path(parent) != elsewhere:
            raise PermissionError(13, "Permission denied")
        return honest(parent, name)

    for module in (folders, rescue):
        monkeypatch.setattr(module, "new_folder", only_there)
    monkeypatch.setattr(reporting, "report_on", failing(KeyError("figure")))
    code, _, err = noisewise(*FIT)
    assert code == 70
    assert str(elsewhere / "count-results-rescued") in err
    assert len(nw.Posterior.load(elsewhere / "count-results-rescued/posterior.nc")) == 300
    monkeypatch.setattr(rescue, "new_folder", failing(PermissionError(13, "Permission denied")))
    assert "What was computed could not be saved either." in noisewise(*FIT)[2]


def test_a_folder_in_a_place_where_no_other_can_be_made_is_written_all_the_same(noisewise, tmp_path, monkeypatch):
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(elsewhere))
    honest = folders.new_folder
    monkeypatch.setattr(
        folders, "new_folder", lambda parent, name: honest(parent if parent == elsewhere else tmp_path / "no", name)
    )
    assert noisewise(*FIT)[0] == 0
    assert (tmp_path / "count-results/report.html").is_file()
    assert not list(elsewhere.iterdir())


# A folder is whole, or is not there ---------------------------------------------------------------------------------


def test_a_folder_is_written_beside_and_then_put_in_place(noisewise, tmp_path, monkeypatch):
    seen = []
    honest = folders._write_posterior

    def looking(*given):
        seen.append(sorted(path.name for path in tmp_path.iterdir() if path.is_dir()))
        return honest(*given)

    monkeypatch.setattr(folders, "_write_posterior", looking)
    assert noisewise(*FIT)[0] == 0
    assert noisewise(*FIT)[0] == 0
    assert seen == [["count-results-partial"], ["count-results", "count-results-partial"]]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["count-results"]
    (tmp_path / "usual").mkdir()
    assert stat.S_IMODE(os.stat("count-results").st_mode) == stat.S_IMODE(os.stat("usual").st_mode)


def test_replacing_earlier_results_leaves_none_of_their_files(noisewise, tmp_path):
    assert noisewise(*FIT, "--out", "found")[0] == 0
    assert (tmp_path / "found/posterior.nc").is_file()
    inode = (tmp_path / "found").stat().st_ino
    assert noisewise("mle", "count.toml", "--quiet", "--out", "found")[0] == 0
    assert (tmp_path / "found/fit.json").is_file()
    assert not (tmp_path / "found/posterior.nc").exists()
    assert (tmp_path / "found").stat().st_ino == inode  # a shell that stands in it stays there
    assert noisewise("report", "found")[0] == 0


def test_a_folder_whose_replacement_was_cut_short_does_not_look_whole(noisewise, tmp_path, monkeypatch):
    assert noisewise(*FIT)[0] == 0
    honest, moved = folders.shutil.move, []

    def cut_short(source, goal):
        moved.append(goal)
        if len(moved) > 4:
            raise KeyboardInterrupt
        return honest(source, goal)

    monkeypatch.setattr(folders.shutil, "move", cut_short)
    assert noisewise(*FIT)[0] == 130
    monkeypatch.setattr(folders.shutil, "move", honest)
    code, _, err = noisewise("report", "count-results")
    assert code == 2
    assert "'count-results' must be written to its end" in err
    assert noisewise(*FIT)[0] == 0
    assert noisewise("report", "count-results")[0] == 0


def test_a_run_that_was_killed_while_writing_can_be_reported_on(noisewise, tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "report_on", failing(KeyboardInterrupt()))
    assert noisewise(*FIT)[0] == 130
    assert not (tmp_path / "count-results").exists()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert noisewise("report", "count-results-partial")[0] == 0
    assert (tmp_path / "count-results-partial/report.html").is_file()
