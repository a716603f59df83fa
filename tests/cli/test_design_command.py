"""`noisewise design` and the table [design]: what is found, what is written, what is refused."""

import contextlib
import csv
import json
import re

import numpy as np
import pytest
from spoiling import respelt, spoilt

import noisewise as nw
from noisewise.analysis import Analysis, DesignFile, FileError
from noisewise.cli import main
from noisewise.report import Report
from noisewise.report.markup import number as shown
from noisewise.studies import design as design_module
from noisewise.studies.designs.simulation import Simulation
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


@pytest.mark.usefixtures("drawn")
def test_the_command_finds_what_the_library_finds(noisewise, tmp_path, monkeypatch):
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
    for name, share in expected.shares.items():
        own = shown(share * expected.budget)
        assert f'<th scope="row">{name}</th><td class="number">{own}</td><td>got normal noise of' in report
        assert f'<th scope="row">{name}</th><td class="number">{100 * share:.0f}%</td>' in report
        assert f"In such a release, {name} (rho: {own}) got normal noise of" in out
    assert {path.name for path in (tmp_path / "found").iterdir()} == set(designing.FILES) - {"candidates.csv"}
    assert (tmp_path / "found/plan.toml").read_text() == PLAN
    assert noisewise("design", "plan.toml", "--quiet", "--out", "found")[0] == 0, "an earlier design is replaced"
    (tmp_path / "found/mine.txt").write_text("")
    monkeypatch.setattr(designing, "run_design", None)  # refused before anything is computed
    for other in ("found", "."):
        code, _, err = noisewise("design", "plan.toml", "--quiet", "--out", other)
        assert code == 2
        assert "--out must be a new or empty folder" in err


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


def test_check_and_new_serve_plans_too(noisewise, tmp_path):
    code, out, err = noisewise("check", "plan.toml")
    assert code == 0, err
    assert "plan.toml: in order, as a plan. Two groups." in out
    assert "Parameter a: before the release Normal(0, 2)" in out
    assert "Statistic x: Gaussian, its rho left open." in out
    assert "Next: noisewise design plan.toml" in out
    code, out, _ = noisewise("check", "plan.toml", "--json")
    assert json.loads(out)["design"]["target"] == {"sd": "gap", "at_most": 0.5}
    code, _, err = noisewise("check", "plan.toml", text=PLAN.replace("sd =", "sdd ="))
    assert code == 2
    assert "line " in err
    code, out, _ = noisewise("new", "design")
    assert code == 0
    assert DesignFile.load(tmp_path / "design.toml").is_plan_only


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
    "no budget": (
        PLAN.replace('0.8\nbudget = "rho"', "0.8"),
        'To leave the budget open, add budget = "epsilon" or "rho".',
    ),
    "another budget": (PLAN.replace('"rho"', '"mu"'), "'budget' of Gaussian must be one of"),
    "a budget it has not": (PLAN.replace('"Gaussian"', '"Laplace"'), "'budget' of Laplace must be one of epsilon"),
    "another quantity": (
        PLAN.replace('sd = "gap"', 'sd = "gop"'),
        "'target' must be of a quantity of the model; got 'gop'. Did you mean 'gap'?",
    ),
    "nothing open": (
        PLAN.replace('budget = "rho"', "scale = 1")
        .replace("sensitivity = 0.2\n", "")
        .replace("sensitivity = 0.8\n", ""),
        "the plan must leave a budget open",
    ),
    "two kinds": (
        PLAN.replace(
            '"Gaussian"\nsensitivity = 0.2\nbudget = "rho"', '"Laplace"\nsensitivity = 0.2\nbudget = "epsilon"'
        ),
        "the plan must leave a budget open, of one kind",
    ),
    "no goal": (PLAN.replace(", at_most = 0.5", ""), "'target' must say at_most"),
    "another goal": (PLAN.replace("at_most = 0.5", "at_most = -1"), "'at_most' must be positive"),
    "another part": (PLAN.replace("at_most = 0.5", "at_least = 1"), "'at_least' is not a part of 'sd'"),
    "half a truth": (
        PLAN.replace('sd = "gap", at_most = 0.5', 'power = "gap", at_least = 0.5, truth = { a = 1 }'),
        "'truth' must name every parameter",
    ),
    "budgets": (PLAN.replace("[0.01, 100]", "[100, 0.01]"), "'budgets' must be two numbers, the lower first"),
    "replicates": (PLAN.replace("[0.01, 100]", "[0.01, 100]\nreplicates = 3"), "'replicates' must be a whole number"),
    "tolerance": (PLAN.replace("[0.01, 100]", "[0.01, 100]\ntolerance = 0"), "'tolerance' must be positive"),
    "shares": (
        PLAN.replace("split = { rho = 0.5 }", "shares = { x = 0.5, y = 0.6 }"),
        "'shares' must add up to 1",
    ),
    "shares and a split": (
        PLAN.replace("[0.01, 100]", "[0.01, 100]\nshares = { x = 0.5, y = 0.5 }"),
        "'shares' must be left out where 'split' finds them",
    ),
    "a split of another kind": (
        PLAN.replace("split = { rho", "split = { epsilon"),
        "'split' must state a budget in rho",
    ),
    "a split of nothing": (PLAN.replace("rho = 0.5 }", "rho = 0 }"), "'split' must be positive and finite"),
    "another table": (PLAN + "[desing]\nx = 1\n", "'desing' is not a table of an analysis file"),
}


def test_the_caret_stands_under_what_is_wrong():
    with pytest.raises(FileError) as caught:
        DesignFile.from_text(PLAN.replace("at_most = 0.5", "at_most = -1"))
    line, caret = str(caught.value).splitlines()[-2:]
    assert line[caret.index("^") :].startswith("-1 }")
    with pytest.raises(FileError) as caught:
        Analysis.from_text(PLAN.replace('sd = "gap"', 'sd = "gop"') + RELEASE)
    line, caret = str(caught.value).splitlines()[-2:]
    assert line[caret.index("^") :].startswith('"gop"')


def test_a_search_goes_on_from_its_checkpoint(noisewise, monkeypatch):
    text = PLAN.replace('"Gaussian"\nsensitivity', '"Laplace"\nsensitivity').replace('"rho"', '"epsilon"')
    text = text.replace("split = { rho = 0.5 }\nbudgets = [0.01, 100]", "budgets = [0.05, 0.4]\ntolerance = 9.0")
    command = ("design", "plan.toml", "--json", "--replicates", "16", "--quiet")
    text = text.replace("at_most = 0.5", "at_most = 2.5").replace(", 0.2)", ", 1.0)")
    computed, left = Simulation._computed, iter(range(2))

    def cut(self, plans, batch):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return computed(self, plans, batch)

    monkeypatch.setattr(design_module, "PLACES", 4)
    monkeypatch.setattr(Simulation, "_computed", cut)
    assert noisewise(*command, "--checkpoint", "run.nwc", text=text)[0] == 130
    monkeypatch.setattr(Simulation, "_computed", computed)
    code, out, _ = noisewise("status", "run.nwc")
    assert code == 0
    assert "Checkpoint of noisewise design, seed 1" in out
    assert "ended:    not yet" in out
    assert noisewise(*command, "--checkpoint", "run.nwc", text=text) == noisewise(*command, text=text)


OVER = """
[parameters]
mu = "Normal(0, 2)"

[statistics]
means = "Normal(mu, 0.5, size=waves)"

[design]
target = { sd = "mu", at_most = 0.4 }
split = { rho = 0.1 }

[design.over]
waves = [1, 2, 8]

[design.plan.means]
mechanism = "Gaussian"
sensitivity = "0.3 * sqrt(waves)"
budget = "rho"
"""


def test_candidates_of_a_file_are_those_of_the_library(noisewise, tmp_path):
    """In each wave other people: the best is to ask most of them; the budget is then found for that."""
    code, out, err = noisewise("design", "plan.toml", "--quiet", "--out", "found", text=OVER)
    assert code == 0, err
    assert "At rho = 0.1, waves = 8 does best." in out
    report = (tmp_path / "found/report.html").read_text()
    assert re.search(r"Compared at rho = 0.1.*worse than the best by.*<th scope=\"row\">8</th>.*>the best<", report)
    with (tmp_path / "found/candidates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["waves"] for row in rows] == ["1", "2", "8"]
    for row in rows:
        waves = int(row["waves"])
        assert float(row["target"]) == pytest.approx((1 / 4 + 1 / (0.25 / waves + 0.45)) ** -0.5)
    stated = json.loads((tmp_path / "found/design.json").read_text())
    assert stated["choice"] == {"waves": 8}
    noise = 1 / (1 / 0.4**2 - 1 / 4) - 0.25 / 8
    assert stated["budget"] == pytest.approx(0.3**2 / (2 * noise))


OVER_MISTAKES = {
    "no list": (OVER.replace("[1, 2, 8]", "3"), "'waves' must be a list of numbers"),
    "no number": (OVER.replace("[1, 2, 8]", '[1, "many"]'), "'waves' must be a list of numbers"),
    "a law": (OVER.replace("waves", "Normal"), "'Normal' cannot be a name here"),
    "a parameter": (OVER.replace("waves", "mu"), "'mu' cannot be a name: it stands for a number in [design]"),
    "no budget": (OVER.replace("split = { rho = 0.1 }", ""), "'over' must come with 'split'"),
    "another name": (OVER.replace("sqrt(waves)", "sqrt(waves * wave)"), "'wave' is not a name that can be used here"),
    "too many": (OVER.replace("[1, 2, 8]", str(list(range(1, 99)))), "there must be at most 64 candidates"),
    "half a law": (OVER.replace("[1, 2, 8]", "[1, 2.5]"), "'size' must be a whole number"),
}


def test_a_file_with_one_choice_can_be_fitted():
    release = '[release.means]\nvalue = [1.0, 1.2]\nmechanism = "Gaussian"\nscale = 0.5\n'
    analysis = Analysis.from_text(OVER.replace("[1, 2, 8]", "[2]").replace("split = { rho = 0.1 }", "") + release)
    assert analysis.model.shape("means") == (2,)
    assert Analysis.from_text(analysis.to_text()).content["design"] == analysis.content["design"]
    with pytest.raises(FileError, match="Keep the one that was chosen, as waves = "):
        Analysis.from_text(OVER + release)


PEOPLE = """
[parameters]
mu = "Normal(0, 2)"

[statistics]
mean = "Normal(mu, 10 / sqrt(n))"

[design]
target = { sd = "mu", at_most = 0.5 }

[design.people]
n = [50, 5000]
budgets = [0.01, 1.0]

[design.plan.mean]
mechanism = "Gaussian"
sensitivity = "40 / n"
budget = "rho"
"""


@pytest.mark.usefixtures("drawn")
def test_how_many_people_a_file_asks_for(noisewise, tmp_path):
    code, out, err = noisewise("design", "plan.toml", "--quiet", "--out", "found", text=PEOPLE)
    assert code == 0, err
    assert "People for a posterior standard deviation of mu at most 0.5: 767 at rho = 0.01; 383 at rho = 1." in out
    stated = json.loads((tmp_path / "found/design.json").read_text())
    assert [(row["rho"], row["n"]) for row in stated["people"]] == [(0.01, 767), (1.0, 383)]
    report = (tmp_path / "found/report.html").read_text()
    assert "For a posterior standard deviation of mu at most 0.5" in report
    assert '<th scope="row">0.01</th><td class="number">767</td>' in report
    assert '<th scope="row">1</th><td class="number">383</td>' in report
    assert "Posterior standard deviation of mu by number of people" in report
    assert ">number of people</text>" in report
    assert ">rho = 0.01</text>" in report
    assert (tmp_path / "found/curve.svg").exists()
    code, _, err = noisewise("design", "plan.toml", "--quiet", text=PEOPLE.replace("5000", "60"))
    assert code == 1
    assert "no number of people in the range meets the target" in err


PEOPLE_MISTAKES = {
    "no range": (PEOPLE.replace("[50, 5000]", "50"), "'n' must be the least and the largest number of people"),
    "the wrong way round": (PEOPLE.replace("[50, 5000]", "[50, 5]"), "'n' must be the least and the largest"),
    "no budgets": (PEOPLE.replace("budgets = [0.01, 1.0]", ""), "'budgets' must be a list of positive numbers"),
    "another key": (PEOPLE.replace("budgets = [", "budget = ["), "'budget' does not belong in [design.people]"),
    "a split": (PEOPLE.replace("[design.people]", "split = { rho = 1 }\n[design.people]"), "'split' must be left out"),
    "a parameter": (PEOPLE.replace("mu", "n"), "'n' cannot be a name"),
}


TABLES = {"design": MISTAKES, "over": OVER_MISTAKES, "people": PEOPLE_MISTAKES}
EVERY_MISTAKE = {f"{table}, {name}": row for table, rows in TABLES.items() for name, row in rows.items()}


@pytest.mark.parametrize(("text", "words"), EVERY_MISTAKE.values(), ids=EVERY_MISTAKE)
def test_mistakes_are_told_with_their_place(noisewise, text, words):
    code, _, err = noisewise("design", "plan.toml", text=text)
    assert code == 2
    assert words in err
    assert "plan.toml, line " in err


def test_a_file_that_leaves_the_number_of_people_open_cannot_be_fitted():
    with pytest.raises(FileError, match="'n' is left open"):
        Analysis.from_text(PEOPLE + '[release.mean]\nvalue = 1.0\nmechanism = "Gaussian"\nscale = 0.5\n')


@pytest.mark.parametrize("rounds", [40, pytest.param(3_000, marks=pytest.mark.long)])
def test_spoilt_files_are_read_or_refused_with_their_place(rounds, seed):
    rng = np.random.default_rng(seed)
    for number in range(rounds):
        text = (PLAN, OVER, PEOPLE)[number % 3]
        spoil = (spoilt, respelt)[number // 2 % 2]
        with contextlib.suppress(FileError):
            DesignFile.from_text(spoil(rng, text, int(rng.integers(1, 4))))


DESIGNED_FOR = {
    "sd": (PLAN, "The release was designed for a posterior standard deviation of gap of at most 0.5, on average; here"),
    "width": (
        PLAN.replace("sd =", "width ="),
        "a width of the 95% interval of gap of at most 0.5, on average; here it is",
    ),
    "power": (
        PLAN.replace('sd = "gap", at_most = 0.5', 'power = "gap", at_least = 0.5, truth = { a = 1, b = 0 }'),
        "excludes 0 of at least 0.5; here the interval does not exclude it.",
    ),
    "error": (
        PLAN.replace('sd = "gap", at_most = 0.5', 'error = "gap", above = -1, at_most = 0.5'),
        "here the chance that it is above is 9",
    ),
}


@pytest.mark.parametrize(("text", "words"), DESIGNED_FOR.values(), ids=DESIGNED_FOR)
def test_the_report_of_a_fit_says_what_the_release_was_designed_for(text, words):
    analysis = Analysis.from_text(text + RELEASE)
    posterior = nw.sample(analysis.model, analysis.release, draws=2_000, seed=1)
    report = Report(analysis.model, analysis.release, posterior, content=analysis.content)
    assert words in " ".join(report.short)
