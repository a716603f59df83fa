"""The command line through its entry point, and what an import pulls in."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from late_imports import LATE
from targets import count_model, count_release

import noisewise as nw
from noisewise.analysis import Analysis, starter
from noisewise.analysis.analysis import KINDS, STARTERS
from noisewise.cli import main
from noisewise.cli.shared import readable
from noisewise.inference import progress
from noisewise.inference.progress import Steps
from noisewise.workflow import folder as results_folder
from noisewise.workflow.results import Results


@pytest.fixture
def noisewise(tmp_path, monkeypatch, capsys):
    """The entry point in this process: `noisewise("fit", "count.toml")` gives (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return caught.value.code or 0, told.out, told.err

    return call


START = "\n[likelihood]\nstart = { theta = 30.0 }\n"
"""To climb from one place is enough where the estimate is not the point."""


@pytest.fixture
def count(noisewise, tmp_path):
    assert noisewise("new", "count")[0] == 0
    return tmp_path / "count.toml"


# A first look -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("drawn")
def test_demo_prints_the_table_and_draws_the_picture(noisewise, tmp_path):
    code, out, err = noisewise("demo", "--draws", "1000")
    assert code == 0, err
    assert "37.4" in out
    assert "theta, exact" in out
    assert "the confidential count" in out
    picture = (tmp_path / "noisewise-demo.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(picture) > 10_000


def test_a_mistake_is_a_message_and_an_exit_code(tmp_path, noisewise):
    code, _, err = noisewise("demo", "--draws", "0")
    assert code == 2
    assert "--draws must be a whole number, at least 2; got 0" in err
    (tmp_path / "bad.toml").write_text('[parameters]\ntheta = "Gama(25, 1)"\n')
    code, out, err = noisewise("check", "bad.toml")
    assert code == 2
    assert "bad.toml, line 2, column 10: 'Gama' is not a law. Did you mean 'Gamma'?" in err
    assert err.rstrip().split("\n")[-1].endswith("^")
    assert out == ""


def test_version_and_help(noisewise):
    assert noisewise("--version")[1].strip() == nw.__version__
    assert "noisewise new count" in noisewise("--help")[1]


COMMANDS = (
    "new",
    "check",
    "fit",
    "mle",
    "compare",
    "calibrate",
    "report",
    "status",
    "serve",
    "release",
    "ledger",
    "design",
    "demo",
    "paper",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_worth_reading(noisewise, command):
    code, out, _ = noisewise(command, "--help")
    assert code == 0
    assert "Usage: noisewise" in out
    assert len(out.split()) > 40


@pytest.mark.parametrize(
    "arguments",
    [("fot",), ("fit",), ("fit", "count.toml", "--draws", "many"), ("fit", "nowhere.toml"), ("new", "cuont")],
)
def test_a_mistake_on_the_command_line_ends_with_2(noisewise, arguments):
    code, out, err = noisewise(*arguments)
    assert code == 2
    assert out == ""
    assert err


# Analysis files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STARTERS)
def test_new_writes_a_file_once(noisewise, tmp_path, kind):
    assert noisewise("new", kind)[0] == 0
    Analysis.load(tmp_path / f"{kind}.toml")
    code, _, err = noisewise("new", kind)
    assert code == 2
    assert "must be a new file" in err


@pytest.mark.quick
def test_check_says_what_will_happen_and_writes_nothing(noisewise, count, tmp_path):
    code, out, _ = noisewise("check", "count.toml")
    assert code == 0
    assert "count.toml: in order. A privatised count." in out
    assert "Forecast for 10,000 effective draws: Rejection" in out
    assert "Conflict of prior and release: none seen" in out
    row = next(line for line in out.splitlines() if "Rejection" in line and "│" in line)
    assert "e+" not in row
    assert len(row.split("│")[2].strip().replace(",", "").rstrip("0")) <= 2, "no false precision"
    assert [path.name for path in tmp_path.iterdir()] == ["count.toml"]
    code, out, _ = noisewise("check", "count.toml", "--json", "--draws", "500")
    told = json.loads(out)
    assert told["draws"] == 500
    assert told["forecast"]["choice"]["name"] == "Rejection"
    assert told["released"] == ["count"]
    assert "forecast" not in json.loads(noisewise("check", "count.toml", "--json", "--no-forecast")[1])


def test_check_writes_lists_as_files_do(noisewise):
    assert noisewise("new", "histogram")[0] == 0
    _, out, _ = noisewise("check", "histogram.toml", "--no-forecast")
    assert "Statistic counts: published as [103, 188, 151, 66]." in out
    assert "Each of the 4 entries of counts got whole-numbered Laplace noise of scale 4" in out


@pytest.mark.quick
@pytest.mark.usefixtures("drawn")
def test_fit_writes_all_that_a_reader_and_a_replay_need(noisewise, count, tmp_path, seed):
    import pandas as pd

    code, out, err = noisewise("fit", "count.toml", "--draws", "2000", "--seed", str(seed))
    assert code == 0, err
    folder = tmp_path / "count-results"
    assert "Results: count-results" in out
    posterior = nw.Posterior.load(folder / "posterior.nc")
    analysis = Analysis.load(folder / "analysis.toml")
    expected = nw.sample(analysis.model, analysis.release, draws=2000, seed=seed)
    assert np.array_equal(posterior["theta"], expected["theta"])
    draws = pd.read_csv(folder / "draws.csv")
    np.testing.assert_allclose(draws["theta"], posterior["theta"], rtol=1e-15)
    assert np.array_equal(draws["count"], posterior["count"])
    table = pd.read_csv(folder / "summary.csv", index_col="name")
    assert list(table.index[:2]) == ["cases", "over_30"], "what was asked for comes first"
    np.testing.assert_allclose(table.loc[posterior.summary().index], posterior.summary(), rtol=1e-12)
    told = json.loads((folder / "summary.json").read_text())
    assert told["status"] == "complete"
    assert told["quantities"]["theta"]["mean"] == pytest.approx(posterior["theta"].mean())
    assert told["naive"]["theta"]["wider"] > 1
    ran = json.loads((folder / "run.json").read_text())
    assert (ran["seed"], ran["draws"], ran["sampler"]["name"]) == (seed, 2000, "Rejection")
    assert ran["versions"]["noisewise"] == nw.__version__
    assert nw.Release.load(folder / "release.json").hash == ran["release_hash"] == posterior.release_hash
    assert (folder / "source.toml").read_text() == count.read_text()
    assert len(nw.Posterior.load(folder / "naive.nc")) > 2000
    assert (folder / "figures/posterior.png").read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in (folder / "figures/posterior.svg").read_text()


def test_draws_of_chains_say_which_chain_they_are_of(tmp_path):
    import pandas as pd

    analysis = Analysis.from_text(starter("count"))
    chains = {"theta": np.arange(12.0), "count": np.arange(12)}
    found = nw.sample(analysis.model, analysis.release, draws=12, seed=1, on_failure="return")
    results_folder.write(
        Results(analysis, "fit", replace(found, draws=chains, chains=3, derived=())), tmp_path / "found"
    )
    table = pd.read_csv(tmp_path / "found/draws.csv")
    assert list(table.columns) == [".chain", ".iteration", ".draw", "theta", "count"]
    held = nw.Posterior.load(tmp_path / "found/posterior.nc").to_arviz()["posterior"]["theta"]
    for _, row in table.iterrows():
        assert held.values[int(row[".chain"]) - 1, int(row[".iteration"]) - 1] == row["theta"]


def test_results_replay_from_their_own_folder(noisewise, count, tmp_path):
    assert noisewise("fit", "count.toml", "--draws", "500", "--seed", "7", "--no-naive", "--quiet")[0] == 0
    told = json.loads((tmp_path / "count-results/run.json").read_text())
    command = told["replay"].replace("analysis.toml", "count-results/analysis.toml").split()
    assert noisewise(*command[1:])[0] == 0
    first, second = (nw.Posterior.load(tmp_path / name / "posterior.nc") for name in ("count-results", "replay"))
    assert np.array_equal(first["theta"], second["theta"])


def test_json_is_all_there_is_on_standard_output(noisewise, count):
    code, out, _ = noisewise("fit", "count.toml", "--draws", "500", "--no-naive", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["folder"] == "count-results"
    assert list(told["quantities"]) == ["cases", "over_30", "theta", "count"], "what was asked for comes first"
    assert told["answers"] == ["cases", "over_30"]


def test_results_never_replace_what_is_not_theirs(noisewise, count, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    code, _, err = noisewise("fit", "count.toml", "--out", "mine")
    assert code == 2
    assert "must be new, empty, or hold earlier results" in err
    assert (mine / "thesis.txt").read_text() == "years of work"
    (mine / "thesis.txt").rename(mine / "summary.csv")  # a name of ours, but no results folder
    assert noisewise("fit", "count.toml", "--out", "mine")[0] == 2
    assert (mine / "summary.csv").read_text() == "years of work"
    assert noisewise("fit", "count.toml", "--out", "count.toml")[0] == 2
    assert noisewise("fit", "count.toml", "--out", "no/where")[0] == 2


def test_results_replace_earlier_results_but_not_a_file_put_beside_them(noisewise, count, tmp_path):
    run = ("fit", "count.toml", "--draws", "300", "--no-naive", "--quiet")
    assert noisewise(*run, "--seed", "1")[0] == 0
    assert noisewise(*run, "--seed", "2")[0] == 0
    folder = tmp_path / "count-results"
    assert nw.Posterior.load(folder / "posterior.nc").seed == 2
    (folder / "notes.txt").write_text("mine")
    assert noisewise(*run, "--seed", "3")[0] == 2
    assert nw.Posterior.load(folder / "posterior.nc").seed == 2


def test_a_run_that_cannot_deliver_ends_with_1_and_keeps_what_it_has(noisewise, count, tmp_path):
    text = count.read_text().replace(
        "[inference]", '[inference]\nmethod = { name = "Rejection", max_proposals = 1000 }'
    )
    count.write_text(text)
    code, _, err = noisewise("fit", "count.toml", "--no-naive", "--draws", "2000")
    assert code == 1
    assert "max_proposals" in err
    assert json.loads((tmp_path / "count-results/summary.json").read_text())["status"] != "complete"


def test_an_interruption_ends_with_130(noisewise, count, tmp_path, monkeypatch):
    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    honest = nw.sample
    monkeypatch.setattr("noisewise.workflow.run.sample", interrupted)
    assert noisewise("fit", "count.toml")[0] == 130
    # Ctrl-C during the run gives what there is: it is written, and says so.
    part = {"status": "interrupted", "message": "stopped by the user"}
    monkeypatch.setattr(
        "noisewise.workflow.run.sample", lambda *given, **named: replace(honest(*given, **named), **part)
    )
    code, _, err = noisewise("fit", "count.toml", "--draws", "300")
    assert code == 130
    assert "Stopped by the user" in err
    assert json.loads((tmp_path / "count-results/summary.json").read_text())["status"] == "interrupted"


@pytest.fixture
def sigterm(monkeypatch):
    """`sigterm("Rejection")`: SIGTERM comes as soon as the run of that name has something."""

    def arm(name):
        def send(label, done):
            if done and label.startswith(name):
                os.kill(os.getpid(), signal.SIGTERM)

        progress.listen(lambda label, done, total: send(label, done))
        monkeypatch.setattr(Steps, "step", lambda self, iteration, note: send(self.label, iteration))

    yield arm
    progress.listen(None)


def _many(count):
    """So much work that a signal always comes before its end."""
    text = count.read_text().replace("draws = 10000", 'draws = 100000000\nmethod = "Rejection"')
    count.write_text(text + '\n[likelihood]\nmethod = "MCEM"\nstart = { theta = 5.0 }\n')


@pytest.mark.parametrize(
    ("command", "run"),
    [("fit", "Rejection"), ("mle", "MCEM"), pytest.param("compare", "Rejection", marks=pytest.mark.long)],
)
def test_sigterm_ends_with_143_and_leaves_what_ctrl_c_leaves(noisewise, count, tmp_path, sigterm, command, run):
    _many(count)
    sigterm(run)
    code, _, err = noisewise(command, "count.toml", "--out", "kept")
    assert code == 143
    assert "status 'interrupted'" in err
    assert "What there is: kept." in err
    told = json.loads((tmp_path / "kept/summary.json").read_text())
    assert (told["status"], told["no_naive"]) == ("interrupted", "the run was interrupted")
    assert "interrupted" in told["message"]
    assert "was interrupted." in (tmp_path / "kept/report.html").read_text()
    if command != "mle":
        assert len(nw.Posterior.load(tmp_path / "kept/posterior.nc")) == told["draws"] > 0


def test_a_signal_during_the_naive_analysis_loses_nothing_of_the_exact_one(noisewise, count, tmp_path, sigterm):
    sigterm("Importance")
    code, _, err = noisewise("fit", "count.toml", "--draws", "500")
    assert code == 143
    assert "the exact one is complete" in err
    told = json.loads((tmp_path / "count-results/summary.json").read_text())
    assert (told["status"], told["draws"], told["no_naive"]) == ("complete", 500, "the run was interrupted")
    assert not (tmp_path / "count-results/naive.nc").exists()


def test_ctrl_c_during_the_naive_analysis_is_no_success(noisewise, count, tmp_path, monkeypatch):
    def interrupted(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr("noisewise.workflow.run.naive_posterior", interrupted)
    assert noisewise("fit", "count.toml", "--draws", "500")[0] == 130
    assert json.loads((tmp_path / "count-results/summary.json").read_text())["status"] == "complete"


def test_mle_agrees_with_the_library(noisewise, count, tmp_path):
    count.write_text(count.read_text() + START)
    code, out, _ = noisewise("mle", "count.toml", "--json")
    assert code == 0
    analysis = Analysis.load(count)
    fit = nw.fit(analysis.model, analysis.release, start={"theta": 30.0}, seed=1)
    told = json.loads(out)["quantities"]["theta"]
    assert told["estimate"] == pytest.approx(float(fit.estimate["theta"]))
    assert told["standard error"] == pytest.approx(float(fit.standard_error["theta"]))
    naive = nw.fit(analysis.model, analysis.release.naive(), start={"theta": 30.0}, seed=1)
    assert json.loads(out)["naive"]["theta"]["wider"] == pytest.approx(fit.beside(naive).loc["theta", "wider"])
    folder = tmp_path / "count-mle"
    names = {path.name for path in folder.iterdir()}
    assert {"summary.csv", "covariance.csv", "comparison.csv", "analysis.toml", "release.json", "run.json"} <= names
    page = folder / "report.html"
    assert "The expected number is estimated at 37.2 cases" in page.read_text()
    assert "The number of cases: no estimate, since &#x27;count&#x27; is confidential" in page.read_text()
    page.unlink()
    assert noisewise("report", "count-mle")[0] == 0
    assert "is estimated at 37.2" in page.read_text()


@pytest.mark.parametrize(
    ("kind", "hint"), [("regression", 'method = "MCEM" in [likelihood]'), ("survey", "got 'centre and spread'")]
)
def test_mle_says_in_words_of_files_what_else_there_is(noisewise, kind, hint):
    assert noisewise("new", kind)[0] == 0
    code, _, err = noisewise("mle", f"{kind}.toml")
    assert code == 2
    assert hint in err
    assert "nw." not in err


def test_compare_shows_naive_beside_exact(noisewise, count, tmp_path):
    code, out, _ = noisewise("compare", "count.toml", "--draws", "1000")
    assert code == 0
    assert out.startswith("A privatised count\nVerdict: Trust it.\n  - The number of cases is about")
    assert "naive mean" in out
    assert "wider: how many times as wide the exact interval is." in out
    cells = [cell.strip() for cell in next(line for line in out.splitlines() if "(cases)" in line).split("│")[1:-1]]
    assert cells[:5] == ["The number of cases (cases)", "37.4", "0", "37.4", "37.4"], "taken as published"
    assert cells[-2:] == ["", ""], "no interval is so many times as wide as a point"
    assert [path.name for path in tmp_path.iterdir()] == ["count.toml"]


def test_new_without_a_kind_says_which_there_are(noisewise, tmp_path):
    code, out, _ = noisewise("new")
    assert code == 0
    assert [line.split()[2] for line in out.splitlines()[1:]] == list(KINDS)
    assert "noisewise new rate        A count per 100,000 people" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("count.toml", "count.toml"),
        ("Zählung-2.toml", "Zählung-2.toml"),
        ("Fälle in Łódź.toml", '"Fälle in Łódź.toml"'),
        ("a $5 count.toml", "'a $5 count.toml'"),
    ],
)
def test_the_next_command_can_be_typed_as_it_is_printed(noisewise, tmp_path, name, typed):
    _, out, _ = noisewise("new", "count", "--out", name)
    assert out.endswith(f"then run: noisewise check {typed}\n")
    assert shlex.split(out.splitlines()[-1].split("then run: ")[1]) == ["noisewise", "check", name]
    _, out, _ = noisewise("check", name, "--no-forecast")
    assert out.endswith(f"Next: noisewise fit {typed}\n")


def test_a_report_of_a_folder_that_is_not_there(noisewise):
    code, _, err = noisewise("report", "count-results")
    assert code == 2
    assert "'count-results' must be an existing folder of results" in err


def test_calibrate_says_how_its_table_is_read(noisewise, count):
    code, out, err = noisewise("calibrate", "count.toml", "--replicates", "10", "--draws", "50")
    assert code == 0
    assert "10 releases are simulated, and each is fitted" in err
    assert "│ The expected number (theta, cases) │" in out
    assert "mean position about 0.5, spread about 1" in out
    assert "p_value" not in out


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (10_000.0, None, "10,000"),
        (9_987, None, "9,987"),
        (54_321.7, None, "54,322"),
        (-1_234.5, None, "-1,234"),
        (999.96, None, "1,000"),
        (28.6213, None, "28.62"),
        (0.047543, None, "0.04754"),
        (1.5e300, None, "1.5e+300"),
        (float("nan"), None, "nan"),
        (float("inf"), None, "inf"),
        ("draws too low", None, "draws too low"),
        (124_300.0, 2, "120,000"),
        (0.35123, 2, "0.35"),
        (1_234.0, 2, "1,200"),
    ],
)
def test_numbers_in_tables_are_written_for_people(value, digits, text):
    assert readable(value, digits) == text


def test_tables_hold_no_powers_of_ten_and_no_false_precision(noisewise, count):
    _, out, _ = noisewise("fit", "count.toml", "--no-naive", "--draws", "2000")
    assert "How: 2,000 draws by Rejection" in out
    row = next(line for line in out.splitlines() if "over_30" in line and "│" in line)
    assert re.fullmatch(r"│ More than 30 cases \(over_30\) +│ +[\d.]+% │ +│ +│ +│", row), (
        "a probability has no interval"
    )
    assert "│ The expected number (theta, cases) │" in out, "with label and unit"


@pytest.mark.parametrize(("command", "naive"), [("fit", "naive.nc"), ("mle", "naive.json"), ("compare", "naive.nc")])
def test_every_command_says_where_it_wrote_and_where_the_naive_analysis_is(noisewise, count, tmp_path, command, naive):
    code, out, _ = noisewise(command, "count.toml", "--out", "here", *(() if command == "mle" else ("--draws", "500")))
    assert code == 0
    assert out.splitlines()[-3:] == [
        "Results: here",
        "Report: here/report.html (open it in a browser)",
        f"Naive, as if there were no noise: here/{naive}; beside the exact answer: here/comparison.csv",
    ]
    assert (tmp_path / "here" / naive).is_file()
    assert (tmp_path / "here" / "comparison.csv").is_file()


def test_no_naive_analysis_is_mentioned_where_none_was_made(noisewise, count):
    count.write_text(count.read_text() + START)
    _, out, _ = noisewise("mle", "count.toml", "--no-naive")
    assert "Results: count-mle" in out
    assert "Naive" not in out


def test_serve_without_its_packages_says_what_to_type(noisewise, monkeypatch):
    monkeypatch.setitem(sys.modules, "shiny", None)
    code, _, err = noisewise("serve")
    assert code == 2
    assert "pip install 'noisewise[page]'" in err
    assert "pip install '.[page]'" in err


def test_compare_says_why_there_is_no_naive_analysis(noisewise, tmp_path):
    assert noisewise("new", "regression")[0] == 0
    code, out, err = noisewise("compare", "regression.toml", "--draws", "100", "--json")
    assert code == 0
    assert "there is no naive analysis" in err
    assert "density" in json.loads(out)["no_naive"]
    _, out, err = noisewise("compare", "regression.toml", "--draws", "100")
    assert "\nVerdict: " in out
    assert "no naive analysis: the model can simulate sums but has no formula to fit a value taken at its word" in err


def test_calibrate_passes_for_the_right_sampler_and_fails_for_a_wrong_one(noisewise, count, monkeypatch):
    arguments = ("calibrate", "count.toml", "--replicates", "20", "--draws", "20", "--json", "--quiet")
    code, out, _ = noisewise(*arguments, "--out", "picture.png")
    assert code == 0
    assert json.loads(out)["verdict"] == "calibrated"
    # the negative control: draws of the prior in place of the posterior
    honest = cache(lambda: nw.sample(analysis.model, analysis.release, nw.Rejection(), draws=20, seed=1))
    analysis = Analysis.load(count)

    def wrong(model, release, sampler, **settings):
        found = honest()
        prior = model.simulate(len(found), settings["seed"] % 2**32)
        kept = {name: prior[name] for name in found.draws if name in prior}
        return replace(found, draws=kept, derived=())

    monkeypatch.setattr(sys.modules["noisewise.studies.calibrate"], "sample", wrong)
    code, out, _ = noisewise(*arguments[:3], "100", *arguments[4:])
    assert code == 1
    assert json.loads(out)["verdict"] == "miscalibrated"


def test_a_calibration_that_was_interrupted_is_no_success(noisewise, count, monkeypatch):
    honest, calls = nw.sample, []

    def impatient(*given, **named):
        calls.append(1)
        found = honest(*given, **named)
        return replace(found, status="interrupted") if len(calls) == 12 else found

    monkeypatch.setattr(sys.modules["noisewise.studies.calibrate"], "sample", impatient)
    code, out, err = noisewise("calibrate", "count.toml", "--replicates", "60", "--draws", "100", "--quiet")
    assert code == 130
    assert "interrupted after 11 of 60 replicates" in err
    assert "interrupted before 60" in out


def test_notes_are_said_without_stopping(noisewise, count):
    count.write_text(count.read_text().replace("[statistics]", 'spare = "Normal(0, 1)"\n[statistics]'))
    code, _, err = noisewise("check", "count.toml", "--no-forecast")
    assert code == 0
    assert "note: parameter 'spare' is used by no statistic" in err


@pytest.mark.parametrize("arguments", [("status", "nowhere.nwc"), ("report", "."), ("report", "nowhere")])
def test_what_is_no_checkpoint_and_no_results_folder_is_refused(noisewise, arguments):
    code, _, err = noisewise(*arguments)
    assert code == 2
    assert "must be" in err


def test_a_checkpointed_fit_is_described_and_gives_the_same_draws(noisewise, count, tmp_path):
    pytest.importorskip("noisewise.checkpoint.opening")
    assert noisewise("fit", "count.toml", "--no-naive", "--draws", "3000", "--checkpoint", "run.nwc")[0] == 0
    code, out, _ = noisewise("status", "run.nwc")
    assert code == 0
    assert len(out.split()) > 5
    assert noisewise("fit", "count.toml", "--no-naive", "--draws", "3000", "--out", "plain")[0] == 0
    kept, plain = (nw.Posterior.load(tmp_path / name / "posterior.nc") for name in ("count-results", "plain"))
    assert np.array_equal(kept["theta"], plain["theta"])


def test_a_report_is_written_with_the_results_and_anew(noisewise, count, tmp_path):
    pytest.importorskip("noisewise.report")
    assert noisewise("fit", "count.toml", "--draws", "1000", "--no-naive")[0] == 0
    page = tmp_path / "count-results/report.html"
    assert "A privatised count" in page.read_text()
    page.unlink()
    assert noisewise("report", "count-results")[0] == 0
    assert page.exists()


# What an import pulls in --------------------------------------------------------------------------------------------


HEAVY = ("pandas", "xarray", "arviz_base", "arviz_stats", "arviz_plots", "matplotlib", "rich", "typer", "h5netcdf")


@cache
def told_by_a_process_of_its_own():
    """What an import has loaded, how many draws come with the heavy packages made impossible to import, what is left.

    What the import has not loaded by then it did not need, so that they may be taken away after it.
    """
    unneeded = (*HEAVY, *LATE)
    script = f"""
import sys, noisewise as nw
print([m for m in {unneeded!r} if m in sys.modules])
for name in {HEAVY!r}:
    sys.modules[name] = None
import jax, numpyro.distributions as dist
model = nw.Model(prior={{"theta": dist.Gamma(25.0, 1.0)}}, statistics={{"count": lambda theta: dist.Poisson(theta)}})
release = nw.Release(count=nw.Laplace(scale=5.0).released(37.4))
print(len(nw.sample(model, release, draws=100, seed=1, progress=True)))
print(jax.numpy.ones(1).dtype, jax.config.jax_enable_x64)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_import_and_sampling_need_only_the_core():
    assert told_by_a_process_of_its_own()[1] == "100"


def test_import_is_light_and_sampling_changes_nothing_global():
    told = told_by_a_process_of_its_own()
    assert (told[0], told[2]) == ("[]", "float32 False")


def test_a_listener_hears_of_progress_and_can_end_the_run():
    class Enough(Exception):
        pass

    heard = []

    def listener(label, done, total):
        heard.append((label, done, total))
        if done >= 3_000:
            raise Enough

    model, release = count_model(), count_release()
    run = {"draws": 300_000, "seed": 1, "progress": False}
    progress.listen(listener)
    try:
        with pytest.raises(Enough):
            nw.sample(model, release, nw.Rejection(), **run)
    finally:
        progress.listen(None)
    assert {(label, total) for label, _, total in heard} == {("Rejection", 300_000)}
    heard.clear()
    nw.sample(model, release, nw.Rejection(), **run | {"draws": 3_000})
    assert heard == []


def test_progress_bar_appears_in_long_runs(monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setattr(progress, "SHOW_AFTER", 0.0)
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    nw.sample(count_model(), count_release(), nw.Rejection(), draws=20_000, seed=1, progress=True)
    told = capsys.readouterr().err
    assert "Rejection" in told
    assert "draws/s" in told
    assert "accepted" in told


def test_fit_says_verdict_and_answer_in_words(noisewise, count):
    """What was asked for, with naive beside exact and the prior's part; counts are whole."""
    code, out, _ = noisewise("fit", "count.toml", "--quiet", "--draws", "2000")
    assert code == 0
    said = " ".join(out.split())
    assert "Verdict: Trust it." in said
    assert re.search(
        r"- The number of cases is about \d\d cases: between \d\d and \d\d cases with probability 95%", said
    )
    assert re.search(r"- More than 30 cases: probability [\d.]+% \(ignoring the noise: more than 99.9%\)", said)
    assert re.search(r"the prior put the number of cases between 1\d and \d\d cases; the release moved", said)
    assert said.index("cases") < said.index("theta"), "what was asked for comes first in the table too"


def test_a_published_value_that_can_only_be_a_mistake_is_not_run_on(noisewise, count):
    count.write_text(count.read_text().replace("37.4", "3.7e9"))
    for command in ("fit", "compare"):
        code, out, err = noisewise(command, "count.toml", "--quiet")
        assert (code, out) == (2, "")
        assert re.search(
            r"You published 3,700,000,000; your prior expects [\d.]+ to \d\d: a typo, or another unit\?", err
        )
        assert "--anyway" in err


@pytest.mark.long
def test_a_run_on_such_a_value_is_said_to_need_another_look(noisewise, count):
    count.write_text(count.read_text().replace("37.4", "450"))
    code, out, _ = noisewise(
        "fit", "count.toml", "--quiet", "--draws", "2000", "--anyway", "--no-naive", "--out", "wild"
    )
    assert code == 0
    said = " ".join(out.split())
    assert "Verdict: Look again." in said
    assert "You published 450; your prior expects" in said
    assert "fewer than 1 in 200" in said


@pytest.mark.long
def test_a_surprise_is_said_and_run_on(noisewise, count):
    count.write_text(count.read_text().replace("37.4", "120"))
    code, out, _ = noisewise("fit", "count.toml", "--quiet", "--draws", "2000", "--no-naive")
    assert code == 0
    assert "You published 120; your prior expects" in " ".join(out.split())
