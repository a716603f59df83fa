"""Nothing is spent by accident, and nothing confidential shows: budgets, the ledger, refusals, the command."""

import io
import json
import os
import pty
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
from scipy import stats
from spoiling import respelt, spoilt

import noisewise as nw
from noisewise import curator
from noisewise.analysis import Analysis
from noisewise.cli import main
from noisewise.curator.promise import in_epsilon, under
from noisewise.mechanisms import Guarantee

SECRETS = ("Zyxwvut", "4711.25", "Qwertz")
ROWS = [
    "name,age,income,region,used",
    "Zyxwvut,30,4711.25,north,no",
    "Alice,51,12.5,west,yes",
    "Bob,44,0,south,no",
    "Carol,70,3,north,no",
]
PLAN = """
neighbours = "replace-one"
budget = { epsilon = 3.0 }

[statistics.users]
kind = "count"
column = "used"
value = "yes"
epsilon = 0.5

[statistics.money]
kind = "mean"
column = "income"
bounds = [0, 100]
epsilon = 0.5

[statistics.regions]
kind = "histogram"
column = "region"
categories = ["north", "south", "west"]
epsilon = 0.5

[statistics.drugs]
kind = "answers"
column = "used"
categories = ["no", "yes"]
epsilon = 1.0
"""


@pytest.fixture(scope="module", autouse=True)
def opendp():
    return pytest.importorskip("opendp.prelude", reason="OpenDP is not installed: python -m pip install opendp")


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text("\n".join(ROWS) + "\n")
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path


@pytest.fixture
def noisewise(capsys):
    """A command in this process: exit code, standard output, standard error."""

    def run(*arguments):
        code = 0
        try:
            main(list(arguments))
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return run


RELEASE = ("release", "people.csv", "plan.toml", "--yes")


# Words and budgets ------------------------------------------------------------------------------------------------


def test_the_guarantee_in_words():
    told = curator.in_words(Guarantee(epsilon=1.0, neighbours="replace-one"))
    assert told == (
        "Whoever knows everyone else's records can change their odds on any two things that one person's record may "
        "say by at most a factor of 2.72 (epsilon = 1)."
    )
    told = curator.in_words(Guarantee(rho=0.5, neighbours="add-remove"))
    assert "on whether one person is among the records towards the truth by at most a factor of 316" in told
    assert "(rho = 0.5; epsilon = 5.76 with delta = 1e-06)" in told
    assert curator.warning(Guarantee(epsilon=10.0)) is None
    assert "epsilon = 10.1 is above 10" in curator.warning(Guarantee(epsilon=10.1))
    assert "by a factor of 24,343" in curator.warning(Guarantee(epsilon=10.1))


def test_odds_exceed_the_factor_no_more_often_than_told():
    """Gaussian noise for rho: the log likelihood ratio is N(rho, 2 rho), and its tail beyond epsilon is below delta."""
    for rho in (0.01, 0.5, 3.0):
        epsilon = in_epsilon(Guarantee(rho=rho), 1e-3)
        assert stats.norm(rho, np.sqrt(2 * rho)).sf(epsilon) < 1e-3
        assert stats.norm(rho, np.sqrt(2 * rho)).sf(0.5 * epsilon) > 1e-3, "negative control: half of it is exceeded"


def test_replaced_records_are_two_steps():
    """Noise that is epsilon-DP for one step has twice the ratio for two; with rho, four times."""
    assert under("it", Guarantee(epsilon=0.5, neighbours="add-remove"), "replace-one").epsilon == 1.0
    assert under("it", Guarantee(rho=0.5, neighbours="add-remove"), "replace-one").rho == 2.0
    with pytest.raises(nw.InputError, match="must speak of replace-one neighbours"):
        under("it", Guarantee(epsilon=0.5, neighbours="replace-one"), "add-remove")


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("{ epsilon = 2.5 }", None),
        ("{ epsilon = 2.4 }", "plan.toml: 'budget' must not exceed epsilon = 2.4; got 'epsilon = 2.5 in all'"),
        ("{ rho = 3.2 }", None),
        ("{ rho = 3.1 }", "'budget' must not exceed rho = 3.1; got 'rho = 3.125 in all'"),
        ("{ epsilon = 2.5, delta = 1e-6 }", None),
        ("{ mu = 1.0 }", "'budget' must state epsilon, epsilon and delta, or rho"),
        ("3.0", "'budget' must state epsilon, epsilon and delta, or rho; got 3.0"),
        ("{ epsilon = -1.0 }", "'epsilon' must be positive"),
    ],
)
def test_a_plan_stays_within_its_budget(files, budget, words):
    (files / "plan.toml").write_text(PLAN.replace("{ epsilon = 3.0 }", budget))
    if words is None:
        assert curator.prepare("people.csv", "plan.toml").plan.guarantee.epsilon == 2.5
        return
    with pytest.raises(nw.InputError) as caught:
        curator.prepare("people.csv", "plan.toml")
    assert words in str(caught.value)


def test_gaussian_noise_needs_a_budget_that_can_hold_it():
    data = {"x": ["a", "b"]}
    wanted = {"xs": dict(kind="histogram", column="x", categories=["a", "b"], rho=0.5)}
    with pytest.raises(nw.InputError, match="must be in rho, or have a delta, where Gaussian noise is drawn"):
        curator.release(data, wanted, budget={"epsilon": 100.0})
    with pytest.raises(nw.InputError, match=r"must not exceed epsilon = 5.7; got 'epsilon = 5.75652 in all'"):
        curator.release(data, wanted, budget={"epsilon": 5.7, "delta": 1e-6})
    assert curator.release(data, wanted, budget={"epsilon": 5.8, "delta": 1e-6})["xs"].shape == (2,)


def test_decimal_fractions_add_up():
    wanted = {f"c{i}": dict(kind="count", epsilon=0.1) for i in range(3)}
    assert len(curator.release({"x": [1]}, wanted, budget={"epsilon": 0.3})) == 3


# The ledger -------------------------------------------------------------------------------------------------------


def test_the_ledger_counts_every_release_whatever_its_name(files, noisewise):
    assert noisewise("ledger", "people.csv", "--epsilon", "5", "--neighbours", "replace-one")[0] == 0
    assert noisewise(*RELEASE, "--out", "first.json")[0] == 0
    code, _, err = noisewise(*RELEASE, "--out", "second.json")
    assert code == 0
    assert "With all that was drawn before: " in err
    assert "factor of 148 (epsilon = 5)" in err
    code, _, err = noisewise(*RELEASE, "--out", "third.json")
    assert code == 2
    assert "'total' must not exceed epsilon = 5; got 'epsilon = 7.5 in all'" in err
    assert not (files / "third.json").exists()
    ledger = curator.Ledger.beside("people.csv")
    total, first, second = ledger.entries()
    assert total["total"] == {"epsilon": 5.0, "neighbours": "replace-one"}
    assert [first["out"], second["out"]] == ["first.json", "second.json"]
    assert first["plan"] == second["plan"]
    assert first["statistics"]["users"] == {"epsilon": 0.5, "neighbours": "replace-one"}
    assert set(first) == {"when", "who", "plan", "out", "statistics", "guarantee"}
    code, out, _ = noisewise("ledger", "people.csv")
    assert "Drawn so far: epsilon = 5, replace-one" in out
    code, out, _ = noisewise("ledger", "people.csv", "--json")
    assert json.loads(out)["spent"]["epsilon"] == 5.0
    code, _, err = noisewise("ledger", "people.csv", "--epsilon", "4", "--neighbours", "replace-one")
    assert code == 2
    assert "So much has been drawn already." in err


def test_a_link_to_the_data_has_the_same_ledger(files):
    (files / "elsewhere").mkdir()
    (files / "elsewhere/copy.csv").symlink_to(files / "people.csv")
    assert curator.Ledger.beside("elsewhere/copy.csv") == curator.Ledger.beside("people.csv")


def broken(lines):
    """Ways to tamper with a ledger of three lines."""
    yield lines[0].replace("50.0", "90.0"), *lines[1:]
    yield lines[0], lines[2]
    yield lines[0], lines[2], lines[1]
    yield *lines, lines[1]
    yield *lines, '{"plan": ""}'
    yield *lines, "not json"
    yield *lines, "[]"
    yield lines[0], lines[1], lines[2][:-1]
    yield lines[0], lines[1].replace("replace-one", "add-remove"), lines[2]


def test_a_ledger_that_was_changed_stops_everything(files, noisewise):
    ledger = curator.Ledger.beside("people.csv")
    ledger.set_total("replace-one", epsilon=50.0)
    for name in ("a", "b"):
        curator.release_file("people.csv", "plan.toml", out=name)
    text = ledger.path.read_text()
    for lines in broken(text.splitlines()):
        ledger.path.write_text("\n".join(lines) + "\n")
        code, _, err = noisewise(*RELEASE)
        assert code == 2
        assert "Nothing is drawn before it is whole again" in err
        assert not (files / "release.json").exists()
    ledger.path.write_text(text.rstrip("\n"))
    assert "its last line was not finished" in noisewise(*RELEASE)[2]
    ledger.path.write_text(text)
    assert noisewise(*RELEASE)[0] == 0


def test_the_total_holds_among_several_at_once(files):
    """Twelve at a time, where two would fit: two are drawn."""
    ledger = curator.Ledger.beside("people.csv")
    ledger.set_total("replace-one", epsilon=5.0)
    ready = [curator.prepare("people.csv", "plan.toml") for _ in range(12)]
    drawn = []

    def draw(prepared):
        with suppress(nw.InputError):
            drawn.append(prepared.draw())

    threads = [threading.Thread(target=draw, args=(each,)) for each in ready]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 2
    assert len(ledger.entries()) == 3


def test_it_is_entered_before_it_is_drawn(files, monkeypatch):
    """A release that fails on the way has been spent: its noise may have been seen."""
    prepared = curator.prepare("people.csv", "plan.toml")

    def fail():
        raise RuntimeError

    prepared.draws["users"] = fail
    with pytest.raises(RuntimeError):
        prepared.draw("it.json")
    assert curator.Ledger.beside("people.csv").spent.epsilon == 2.5


def test_mixed_neighbours_are_counted_as_replaced_records(files):
    ledger = curator.Ledger.beside("people.csv")
    curator.release_file("people.csv", "plan.toml")
    (files / "count.toml").write_text("[statistics.people]\nkind = 'count'\nepsilon = 0.5\n")
    curator.release_file("people.csv", "count.toml")
    assert ledger.spent == Guarantee(epsilon=3.5, neighbours="replace-one")


# Refusals ---------------------------------------------------------------------------------------------------------

DAMAGED = {
    "a value that is not listed": (ROWS[1], ROWS[1].replace("north", "Qwertz"), "must hold every value of the column"),
    "an answer that is not listed": (ROWS[1], ROWS[1].replace("no", "Qwertz"), "must hold every value of the column"),
    "a missing category": ("Alice,51,12.5,west", "Alice,51,12.5,north", "'categories' must each occur in the column"),
    "a value that never occurs": (",yes", ",no", "'value' must occur in the column; got 'yes'"),
    "a repeated column": (ROWS[0], ROWS[0].replace("age", "name"), "got 'column 2 named like one before it'"),
    "a short row": (ROWS[1], "Zyxwvut,30,4711.25,north", "as the header, 5; got '4 in line 2'"),
    "a long row": (ROWS[1], ROWS[1] + ",Qwertz", "as the header, 5; got '6 in line 2'"),
    "an empty line": (ROWS[1], "", "got '0 in line 2'"),
    "no header": (ROWS[0] + "\n", "", "'column' must be a column of the data; got 'used'. Check the header."),
    "a word among numbers": ("4711.25", "Qwertz", "'column' must hold numbers; got 'income'"),
    "a gap among numbers": ("4711.25", "", "'column' must have no missing values; got 'income'"),
    "an open quotation mark": ("Zyxwvut", '"Zyxwvut', "must be a CSV file with a header (Error)"),
    "a NUL": ("Zyxwvut", "Zyx\0wvut", None),
}


@pytest.mark.parametrize(("old", "new", "words"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_files_are_refused_before_anything_is_drawn_and_without_quoting(files, noisewise, old, new, words):
    (files / "people.csv").write_text(("\n".join(ROWS) + "\n").replace(old, new, 1))
    code, out, err = noisewise(*RELEASE)
    if words is not None:
        assert code == 2, (out, err)
        assert words in err
        assert not (files / "people.csv.ledger").exists()
    assert not any(secret in text for secret in SECRETS for text in (out, err))
    assert nothing_leaked(files)


def nothing_leaked(folder):
    """No planted string, in any file but the data themselves."""
    written = [path for path in folder.rglob("*") if path.is_file() and path.name != "people.csv"]
    return not any(secret.encode() in path.read_bytes() for path in written for secret in SECRETS)


def test_slips_can_be_meant(files):
    (files / "people.csv").write_text("\n".join(ROWS).replace("Carol,70,3,north", "Carol,70,3,east"))
    meant = PLAN.replace('["north", "south", "west"]', '["north", "south", "up"]\nallow = ["unlisted", "empty"]')
    (files / "plan.toml").write_text(
        meant.replace("epsilon = 0.5\n\n[statistics.drugs]", "epsilon = 1e6\n\n[statistics.drugs]").replace(
            "3.0", "2e6"
        )
    )
    assert curator.release_file("people.csv", "plan.toml")["regions"].value.tolist() == [1, 1, 0]
    (files / "plan.toml").write_text(meant.replace('"unlisted", "empty"', '"gaps"'))
    with pytest.raises(nw.InputError, match="'allow' must list what is meant although it is usually a slip"):
        curator.prepare("people.csv", "plan.toml")


def test_words_of_a_file_are_taken_as_written(files):
    """Codes keep their zeros, and truth values their case."""
    (files / "people.csv").write_text("code,flag\n01,true\n02,true\n02,false\n")
    (files / "plan.toml").write_text(
        "[statistics.codes]\nkind = 'histogram'\ncolumn = 'code'\ncategories = ['01', '02']\nepsilon = 1e6\n"
        "[statistics.flags]\nkind = 'count'\ncolumn = 'flag'\nvalue = 'true'\nepsilon = 1e6\n"
    )
    release = curator.release_file("people.csv", "plan.toml")
    assert release["codes"].value.tolist() == [1, 2]
    assert release["flags"].value == 2


# The command ------------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_a_release_tells_before_it_draws_and_leaves_an_analysis_that_fits(files, noisewise):
    code, out, err = noisewise(*RELEASE)
    assert code == 0
    assert "by at most a factor of 12.2 (epsilon = 2.5)" in err
    assert "states no total" in err
    assert "users: DiscreteLaplace (a number), epsilon = 0.5, replace-one" in out
    analysis = Analysis.load(files / "release.toml")
    assert set(analysis.release) == {"users", "money", "regions", "drugs"}
    assert analysis.release == nw.Release.load(files / "release.json")
    assert not any(secret in text for secret in SECRETS for text in (out, err))
    assert nothing_leaked(files)
    assert "Zyxwvut" in (files / "people.csv").read_text(), "the strings are really there to be found"


ADD_REMOVE = """
[statistics.people]
kind = "count"
epsilon = 0.5

[statistics.years]
kind = "sum"
column = "age"
bounds = [18, 90]
epsilon = 0.5

[statistics.change]
kind = "sum"
column = "age"
bounds = [-5, 90]
epsilon = 0.5

[statistics.money]
kind = "sum"
column = "income"
bounds = [0, 100]
rho = 0.5

[statistics.regions]
kind = "histogram"
column = "region"
categories = ["north", "south", "west"]
rho = 0.5
"""


def test_the_analysis_fits_where_the_number_of_records_is_secret(files, noisewise):
    (files / "plan.toml").write_text(ADD_REMOVE)
    assert noisewise(*RELEASE)[0] == 0
    analysis = Analysis.load(files / "release.toml")
    assert list(analysis.model.statistics) == ["people", "years", "change", "money", "regions"]
    assert "4\n" not in (files / "release.toml").read_text()


@pytest.mark.long
@pytest.mark.parametrize("plan", [PLAN, ADD_REMOVE])
def test_the_analysis_runs(files, noisewise, plan):
    (files / "plan.toml").write_text(plan)
    assert noisewise(*RELEASE)[0] == 0
    code, out, err = noisewise("fit", "release.toml", "--quiet")
    assert code == 0, (out, err)


def test_a_rehearsal_spends_and_writes_nothing(files, noisewise):
    before = sorted(files.iterdir())
    code, out, err = noisewise("release", "people.csv", "plan.toml", "--dry-run")
    assert code == 0, err
    assert "money: Laplace (a number), epsilon = 0.5, replace-one" in out
    assert "nothing was spent, entered or written" in out
    code, out, _ = noisewise("release", "people.csv", "plan.toml", "--dry-run", "--json")
    assert "value" not in json.loads(out)["statistics"]["users"]
    assert sorted(files.iterdir()) == before
    (files / "plan.toml").write_text(ADD_REMOVE)
    assert noisewise("release", "people.csv", "plan.toml", "--dry-run")[0] == 0
    assert noisewise("release", "people.csv", "plan.toml", "--dry-run", "--out", "x.toml")[0] == 0


def test_a_large_epsilon_is_warned_of(files, noisewise):
    (files / "plan.toml").write_text(PLAN.replace("epsilon = 1.0", "epsilon = 10.0").replace("3.0", "20.0"))
    assert "epsilon = 11.5 is above 10" in noisewise(*RELEASE)[2]


def test_without_a_terminal_nothing_is_drawn_unless_told(files, noisewise, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, _, err = noisewise(*RELEASE[:-1])
    assert code == 2
    assert "Add --yes" in err
    assert not (files / "release.json").exists()
    assert not (files / "people.csv.ledger").exists()


@pytest.mark.long
@pytest.mark.parametrize(("answer", "drawn"), [(b"y\n", True), (b"n\n", False), (b"\n", False)])
def test_at_a_terminal_it_asks(files, answer, drawn):
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    command = [sys.executable, "-m", "noisewise", *RELEASE[:-1]]
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=120, check=False)
    os.close(ours)
    os.close(theirs)
    assert "Draw the release, and spend this?" in done.stderr
    assert done.returncode == (0 if drawn else 2)
    assert (files / "release.json").exists() == (files / "people.csv.ledger").exists() == drawn


# Fuzz -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [40, pytest.param(3_000, marks=pytest.mark.long)])
def test_spoilt_files_end_in_success_or_a_refusal_and_leak_nothing(files, noisewise, rounds, seed):
    rng = np.random.default_rng(seed)
    data = "\n".join(ROWS) + "\n"
    for number in range(rounds):
        which = int(rng.integers(3))
        (files / "people.csv").write_text(data if which == 0 else spoilt(rng, data, int(rng.integers(1, 4))))
        spoil = spoilt if rng.random() < 0.5 else respelt
        (files / "plan.toml").write_text(PLAN if which == 1 else spoil(rng, PLAN, int(rng.integers(1, 4))))
        code, out, err = noisewise(*RELEASE, "--out", f"r{number}.json")
        assert code in (0, 2), err
        assert "fault of noisewise" not in err
        assert not any(secret in text for secret in SECRETS for text in (out, err)), err
    assert nothing_leaked(files)
