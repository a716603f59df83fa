"""Mistaken commands and mistaken files: what is said of them names nothing of Python."""

import json
import re

import malformed_analyses as malformed
import pytest
from language import python_in

import noisewise as nw
from noisewise.analysis import starter
from noisewise.analysis.analysis import STARTERS
from noisewise.cli import main

RELEASE = {
    "format": "noisewise-release",
    "version": 2,
    "statistics": {"count": {"value": 37.4, "mechanism": "Laplace", "scale": 5.0}},
}
FROM_FILE = re.sub(
    r"\[release\.count\].*?(?=\[inference\])", '[release]\nfile = "release.json"\n\n', starter("count"), flags=re.S
)
PLAN = '[statistics.adults]\nquery = "count"\nepsilon = 0.5\n'


@pytest.fixture
def noisewise(tmp_path, monkeypatch, capsys):
    """The entry point, in a folder with a good file of each kind: (exit code, all that was said)."""
    monkeypatch.chdir(tmp_path)
    for kind in STARTERS:
        (tmp_path / f"{kind}.toml").write_text(starter(kind))
    by_rejection = starter("count").replace("[inference]", '[inference]\nmethod = "Rejection"')
    (tmp_path / "by-rejection.toml").write_text(by_rejection)
    (tmp_path / "release.json").write_text(json.dumps(RELEASE))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.txt").write_text("years of work")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "people.csv").write_text("age,income\n30,20\n40,30\n")
    (tmp_path / "plan.toml").write_text(PLAN)

    def call(*arguments):
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        told = capsys.readouterr()
        return caught.value.code or 0, told.out + told.err

    return call


COMMANDS = [
    *[(command, "nowhere.toml") for command in ("check", "fit", "mle", "compare", "calibrate", "design")],
    *[(command, "full") for command in ("check", "fit", "mle", "compare", "calibrate", "design", "report", "status")],
    *[(command, "binary.toml") for command in ("check", "fit", "design", "report", "status")],
    *[(command, "nowhere.json") for command in ("describe", "registry", "croissant", "report", "status")],
    *[(command, "count.toml") for command in ("describe", "registry", "croissant", "design", "report", "status")],
    *[("fit", "count.toml", "--draws", value) for value in ("0", "-5", "many", "1e4", "1.5")],
    ("fit", "by-rejection.toml", "--draws", "1000000000000000"),
    *[("check", "count.toml", "--seed", value) for value in ("-1", "one", "1.5")],
    *[("fit", "count.toml", "--out", value) for value in ("full", "count.toml", "no/where", "")],
    ("fit", "count.toml", "--checkpoint", "full"),
    ("fit", "count.toml", "--checkpoint", "no/where.nwc"),
    ("fit", "count.toml", "--checkpoint", "count.toml"),
    ("fit", "count.toml", "--seed", "-3", "--no-naive"),
    ("fit",),
    ("fot", "count.toml"),
    ("fit", "count.toml", "more.toml"),
    ("fit", "count.toml", "--colour"),
    ("compare", "count.toml", "--out", "full"),
    *[("calibrate", "count.toml", "--replicates", value) for value in ("0", "-2", "few")],
    ("calibrate", "count.toml", "--draws", "0"),
    ("calibrate", "count.toml", "--replicates", "10", "--draws", "20", "--out", "no/where.png"),
    *[("mle", f"{kind}.toml") for kind in ("survey", "regression", "means")],
    ("new", "cuont"),
    ("new", "count"),
    ("new", "count", "--out", "no/where.toml"),
    ("demo", "--draws", "0"),
    pytest.param(("demo", "--draws", "200", "--out", "no/where.png"), marks=pytest.mark.long),
    ("paper", "--out", "count.toml"),
    ("serve", "count.toml", "--no-browser"),
    ("serve", "--port", "99999999"),
    ("release", "nowhere.csv", "plan.toml"),
    ("release", "people.csv", "nowhere.toml"),
    ("release", "people.csv", "count.toml"),
    ("release", "people.csv", "plan.toml", "--out", "release.json"),
    ("release", "people.csv", "plan.toml", "--out", "no/where.json"),
    ("ledger", "nowhere.csv"),
    ("ledger", "people.csv", "--epsilon", "-1"),
    ("ledger", "people.csv", "--delta", "0.1"),
    ("ledger", "people.csv", "--epsilon", "1", "--neighbours", "friends"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_mistaken_command_is_answered_in_its_own_words(noisewise, arguments):
    code, said = noisewise(*arguments)
    assert code in (1, 2), said
    assert len(said) > 30
    assert python_in(said) == [], said


def test_a_file_that_is_not_there_is_named(noisewise):
    _, said = noisewise("fit", "cuont.toml")
    assert said.startswith("noisewise: 'cuont.toml' must be an existing file.")
    assert "Did you mean 'count.toml'?" in said
    assert "noisewise new count" in said
    _, said = noisewise("fit", "count.toml", "--draws", "0")
    assert said.startswith("noisewise: --draws must be a whole number, at least 1; got 0.")
    _, said = noisewise("fit", "count.toml", "--seed", "one")
    assert "Invalid value for '--seed': must be a whole number, such as 200; got one." in " ".join(said.split())


REFUSED = {
    "a value that can only be a mistake": ("value = 37.4", "value = 3.7e9"),
    "a list for a number": ("value = 37.4", "value = [37.4, 12.0]"),
    "a list of scales": ("epsilon = 0.2", "scale = [1.0, 2.0, 3.0]"),
    "noise of no size": ("epsilon = 0.2", "epsilon = 0.0"),
    "noise as a word": ("epsilon = 0.2", 'epsilon = "small"'),
    "two budgets": ("epsilon = 0.2", "epsilon = 0.2\nscale = 5.0"),
    "no budget": ("epsilon = 0.2\n", ""),
    "whole noise on a number with a point": ('mechanism = "Laplace"', 'mechanism = "DiscreteLaplace"'),
    "more draws than memory": ("draws = 10000", 'draws = 1000000000000000\nmethod = "Rejection"'),
    "more draws than memory, by choice": ("draws = 10000", "draws = 1000000000000000"),
    "a method's setting as a word": ("[inference]", '[inference]\nmethod = { name = "NUTS", warmup = "long" }'),
    "a method's setting below its least": ("[inference]", '[inference]\nmethod = { name = "SMC", max_seconds = 0 }'),
    "a truth value for a number": ("[inference]", '[inference]\nmethod = { name = "Rejection", max_proposals = true }'),
    "a proposal that is none": ("[inference]", '[inference]\nmethod = { name = "Importance", proposal = "clever" }'),
}
"""What is changed in the starter `count`, and refused before anything runs."""
FALLEN_SHORT = {
    "a limit": ("[inference]", '[inference]\nmethod = { name = "Rejection", max_proposals = 3000 }'),
    "a limit that gives none": ("[inference]", '[inference]\nmethod = { name = "Rejection", max_proposals = 1 }'),
    "a limit of time": ("[inference]", '[inference]\nmethod = { name = "Rejection", max_seconds = 1e-9 }'),
    "too few draws": ("draws = 10000", 'draws = 100\nmethod = "Importance"'),
    "too few draws of chains": ("draws = 10000", 'draws = 100\nmethod = { name = "MCMC", chains = 16 }'),
    "a value that is surprising": ("value = 37.4", "value = -40.0"),
    "an unused parameter": ("[statistics]", 'spare = "Normal(0, 1)"\n[statistics]'),
    "an answer that is not finite": ("[answers]", '[answers]\nodd = "log(theta - 20)"'),
}
"""The same, of what runs and gives less than was asked for, or something to note."""


def changed(old, new):
    assert old in starter("count")
    return starter("count").replace(old, new, 1)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.long] * kind.endswith("by choice")) for kind in REFUSED]
)
def test_a_mistaken_file_is_refused_in_its_own_words(noisewise, kind, tmp_path):
    (tmp_path / "mine.toml").write_text(changed(*REFUSED[kind]))
    code, said = noisewise("fit", "mine.toml", "--quiet", "--no-naive")
    assert code == 2
    assert python_in(said) == [], said


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "a limit" else pytest.mark.long) for kind in FALLEN_SHORT]
)
def test_what_fell_short_is_told_in_words_of_the_file(noisewise, kind, tmp_path):
    (tmp_path / "mine.toml").write_text(changed(*FALLEN_SHORT[kind]))
    commands = ("fit",) if kind == "a limit" else ("check", "fit")
    for command in commands:
        said = noisewise(command, "mine.toml", *(("--quiet", "--no-naive") if command == "fit" else ()))[1]
        assert python_in(said) == [], said
    assert python_in(_text((tmp_path / "mine-results/report.html").read_text())) == []


@pytest.mark.long
def test_a_fit_that_does_not_end_is_told_in_words_of_the_file(noisewise, tmp_path):
    limited = '[likelihood]\nmethod = { name = "EM", max_iterations = 2 }\n[inference]'
    (tmp_path / "mine.toml").write_text(changed("[inference]", limited))
    code, said = noisewise("mle", "mine.toml", "--quiet", "--no-naive")
    assert code == 1
    assert 'method = { name = "EM", accelerate = true } in [likelihood]' in said
    assert python_in(said) == [], said


def _text(page):
    """What a reader sees of a page."""
    page = re.sub(r"<(style|script|svg)\b.*?</\1>", " ", page, flags=re.S)
    return re.sub(r"<[^>]+>", " ", page)


@pytest.mark.parametrize("number", range(0, len(malformed.TYPED), 3))
def test_the_page_and_the_commands_name_a_mistake_alike(number):
    from noisewise.page.editor import check_text

    outcome = check_text(malformed.TYPED[number][0])
    assert outcome.error
    assert python_in(outcome.error) == []


BROKEN_RELEASES = {
    "no json": "{",
    "no release": "[1, 2]",
    "another format": json.dumps(RELEASE | {"format": "x"}),
    "another version": json.dumps(RELEASE | {"version": 99}),
    "no statistics": json.dumps({key: RELEASE[key] for key in ("format", "version")}),
    "an unknown mechanism": json.dumps(RELEASE).replace("Laplace", "Laplac"),
    "an unknown argument": json.dumps(RELEASE).replace('"scale"', '"scael"'),
    "a wrong scale": json.dumps(RELEASE).replace("5.0", "-5.0"),
    "a word for a scale": json.dumps(RELEASE).replace("5.0", '"large"'),
    "a word for a value": json.dumps(RELEASE).replace("37.4", '"many"'),
    "nothing for a value": json.dumps(RELEASE).replace("37.4", "null"),
    "true for a value": json.dumps(RELEASE).replace("37.4", "true"),
    "no value": json.dumps(RELEASE).replace('"value": 37.4, ', ""),
    "a name with a space": json.dumps(RELEASE).replace('"count"', '"the count"'),
    "a name of another": json.dumps(RELEASE).replace('"count"', '"total"'),
    "a key twice": json.dumps(RELEASE).replace('"version": 2', '"version": 2, "version": 2'),
}


@pytest.mark.parametrize("kind", BROKEN_RELEASES)
def test_a_broken_release_file_is_named_in_its_own_words(noisewise, kind, tmp_path):
    (tmp_path / "release.json").write_text(BROKEN_RELEASES[kind])
    (tmp_path / "mine.toml").write_text(FROM_FILE)
    for arguments in (("check", "mine.toml", "--no-forecast"), ("describe", "release.json")):
        code, said = noisewise(*arguments)
        assert code in (0, 2)
        assert not code or "release.json" in said or "mine.toml, line 33" in said, said
        assert python_in(said) == [], said


def test_the_look_for_python_finds_it():
    """The negative control: what the library says to programs."""
    for text in (
        "noisewise: Analysis.load: 'path' must be an existing file; got 'x'.",
        "Use nw.MCEM().",
        "must be None",
        "max_proposals=5000 allowed 3 draws",
        "must have the shape (2,) of its release",
        "noisewise: sample: 'draws' must be a whole number",
    ):
        assert python_in(text), text
    with pytest.raises(nw.InputError) as caught:
        nw.Release.load("nowhere.json")
    assert python_in(str(caught.value))
