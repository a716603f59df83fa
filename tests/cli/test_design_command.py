"""`noisewise design` and the table [design]: what is found, what is written, what is refused."""

import csv
import json

import pytest

import noisewise as nw
from noisewise.analysis import Analysis, DesignFile, FileError
from noisewise.cli import main
from noisewise.workflow import designing

PLAN = """
[question]
title = "Two groups"
text = "By how much do the groups differ?"

[answers]
gap = "a - b"

[parameters]
a = "Normal(0, 2)"
b = "Normal(0, 2)"

[statistics]
x = "Normal(a, 0.2)"
y = "Normal(b, 0.2)"

[design]
target = { sd = "gap", at_most = 0.5 }
split = { rho = 0.5 }
budgets = [0.01, 100]

[design.plan.x]
mechanism = "Gaussian"
sensitivity = 0.2
budget = "rho"

[design.plan.y]
mechanism = "Gaussian"
sensitivity = 0.8
budget = "rho"
"""
RELEASE = """
[release.x]
value = 1.0
mechanism = "Gaussian"
scale = 0.5
[release.y]
value = 1.0
mechanism = "Gaussian"
scale = 0.5
"""


@pytest.fixture
def noisewise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, text=PLAN):
        (tmp_path / "plan.toml").write_text(text)
        code = 0
        try:
            main(list(arguments))
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return run


def by_hand():
    model = DesignFile.from_text(PLAN).model
    plan = {
        "x": lambda rho: nw.Gaussian(rho=rho, sensitivity=0.2),
        "y": lambda rho: nw.Gaussian(rho=rho, sensitivity=0.8),
    }
    split = nw.allocate(model, plan, rho=0.5, target={"sd": "gap"})
    target = {"sd": "gap", "at_most": 0.5}
    return nw.design(model, plan, target=target, shares=split.shares, budgets=(0.01, 100.0))


def test_the_command_finds_what_the_library_finds(noisewise, tmp_path):
    code, out, err = noisewise("design", "plan.toml", "--quiet", "--out", "found")
    assert code == 0, err
    expected = by_hand()
    assert f"rho = {expected.budget:.3g} gives a posterior standard deviation of gap at most 0.5" in out
    assert "Of rho = 0.5: x 2" in out
    stated = json.loads((tmp_path / "found/design.json").read_text())
    assert stated["budget"] == expected.budget
    assert stated["shares"] == dict(expected.shares)
    with (tmp_path / "found/curve.csv").open() as file:
        assert len(list(csv.reader(file))) == 21
    report = (tmp_path / "found/report.html").read_text()
    for part in ("Two groups", "By how much do the groups differ?", "<svg", "No confidential number was used"):
        assert part in report
    assert {path.name for path in (tmp_path / "found").iterdir()} == set(designing.FILES)
    assert (tmp_path / "found/plan.toml").read_text() == PLAN
    assert noisewise("design", "plan.toml", "--quiet", "--out", "found")[0] == 0, "an earlier design is replaced"
    (tmp_path / "found/mine.txt").write_text("")
    code, _, err = noisewise("design", "plan.toml", "--quiet", "--out", "found")
    assert code == 2
    assert "'out' must be a new or empty folder" in err


def test_json_and_a_goal_out_of_reach(noisewise):
    code, out, err = noisewise("design", "plan.toml", "--json", text=PLAN.replace("at_most = 0.5", "at_most = 0.01"))
    assert code == 1
    assert json.loads(out)["status"] == "nowhere"
    assert json.loads(out)["budget"] is None
    assert "no budget in the range meets the target" in err


@pytest.mark.long
def test_simulations_have_the_seed_and_replicates_that_were_asked_for(noisewise):
    text = PLAN.replace('"Gaussian"\nsensitivity', '"Laplace"\nsensitivity').replace('"rho"', '"epsilon"')
    text = text.replace("split = { rho = 0.5 }\nbudgets = [0.01, 100]", "budgets = [0.1, 1.0]\ntolerance = 5.0")
    text = text.replace("at_most = 0.5", "at_most = 2.0")
    code, out, err = noisewise("design", "plan.toml", "--json", "--seed", "3", "--replicates", "16", text=text)
    assert code == 0, err
    found = json.loads(out)
    assert (found["seed"], found["replicates"], found["closed"]) == (3, 16, False)


def test_an_analysis_may_hold_a_design_too():
    analysis = Analysis.from_text(PLAN + RELEASE)
    again = Analysis.from_text(analysis.to_text())
    assert again.content["design"] == analysis.content["design"]
    with pytest.raises(FileError, match="Without one, it is for: noisewise design"):
        Analysis.from_text(PLAN)


MISTAKES = {
    "no design": (PLAN[: PLAN.index("[design]")], "the file must say what is to be designed"),
    "no target": (PLAN.replace("target = { sd", "# { sd"), "'target' must be a table"),
    "no plan": (PLAN[: PLAN.index("[design.plan.x]")], "'plan' must be a table"),
    "another key": (PLAN.replace("split =", "splits ="), "'splits' does not belong in [design]. Did you mean 'split'?"),
    "another split": (PLAN.replace("split = { rho", "split = { mu"), "'split' must state a budget"),
    "another statistic": (PLAN.replace("plan.y", "plan.z"), "'z' is not a statistic of the model"),
    "another mechanism": (PLAN.replace('"Gaussian"', '"Gauss"'), "'Gauss' is not a mechanism"),
    "no mechanism": (PLAN.replace('mechanism = "Gaussian"\nsensitivity = 0.8', ""), "must name a mechanism"),
    "another argument": (PLAN.replace("sensitivity = 0.8", "sense = 0.8"), "'sense' is not an argument of Gaussian"),
    "a bad argument": (PLAN.replace("sensitivity = 0.8", "sensitivity = -1"), "'sensitivity' must be positive"),
    "another budget": (PLAN.replace('"rho"', '"mu"'), "'budget' of Gaussian must be one of"),
    "a budget it has not": (PLAN.replace('"Gaussian"', '"Laplace"'), "'budget' of Laplace must be one of epsilon"),
    "another table": (PLAN + "[desing]\nx = 1\n", "'desing' is not a table of an analysis file"),
}


@pytest.mark.parametrize(("text", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_with_their_place(noisewise, text, words):
    with pytest.raises(FileError) as caught:
        DesignFile.from_text(text)
    assert words in str(caught.value)
    assert "plan.toml, line " in str(caught.value)
    assert noisewise("design", "plan.toml", text=text)[0] == 2


def test_a_wrong_target_is_a_mistake(noisewise):
    code, _, err = noisewise("design", "plan.toml", text=PLAN.replace('sd = "gap"', 'sd = "gop"'))
    assert code == 2
    assert "must be of a quantity of the model; got 'gop'. Did you mean 'gap'?" in err
