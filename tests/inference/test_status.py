"""The one table of statuses: all that the source sets or asks for, no other, and the pages that list them."""

import ast
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from targets import count_model, count_release

import noisewise as nw
from noisewise.inference.status import DESIGN, FIT, POSTERIOR

ROOT = Path(__file__).resolve().parents[2]
SOURCE, DOCS = ROOT / "src/noisewise", ROOT / "docs"
OF_NO_RESULT = {"refused"}
"""How a start or a simulated replicate can end that gave no result."""
ELSEWHERE = ("engine", "checkpoint", "page")
"""Rooms whose statuses are those of other things: tasks of Dask, checkpoints, web answers."""


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def speaks(path):
    """Whether a file can set or ask for a status: others need not be parsed."""
    text = path.read_text(encoding="utf-8")
    return "status" in text or "_end(" in text


def paths(*rooms):
    """Files of these rooms; without any, of all that have statuses of results."""
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0]
        if (room in rooms if rooms else room not in ELSEWHERE) and path.name != "status.py":
            yield path


def is_status(node):
    """Whether an expression is called status: `status`, `self.status`, `fit.status`, `kept["status"]`."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "status"
    return getattr(node, "attr", getattr(node, "id", None)) == "status"


def words(*nodes):
    """The words among expressions, within tuples and conditional expressions too."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            yield from words(*node.elts)
        elif isinstance(node, ast.IfExp):
            yield from words(node.body, node.orelse)


def set_or_asked_for(tree):
    """Words that are assigned to, returned as, given as or compared with a status."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if is_status(target):
                    yield from words(node.value)
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for each, value in zip(target.elts, node.value.elts, strict=False):
                        yield from words(value) if is_status(each) else ()
        elif isinstance(node, ast.AnnAssign) and is_status(node.target):
            yield from words(node.value)
        elif isinstance(node, ast.Call):
            yield from words(*(each.value for each in node.keywords if each.arg == "status"))
            if getattr(node.func, "attr", "") == "_end":
                yield from words(node.args[0])
        elif isinstance(node, ast.Compare) and any(map(is_status, (node.left, *node.comparators))):
            yield from words(node.left, *node.comparators)
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield from words(
                *(value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "status")
            )
        elif isinstance(node, ast.FunctionDef) and "(status, message" in (ast.get_docstring(node) or ""):
            returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
            yield from words(*(value.elts[0] for value in returned if isinstance(value, ast.Tuple)))


def test_every_status_in_the_source_is_in_the_table():
    files = {path.relative_to(SOURCE).as_posix(): path for path in paths() if speaks(path)}
    used = {(name, word) for name, path in files.items() for word in set_or_asked_for(parsed(path))}
    assert {word for _, word in used} >= {"complete", "low_ess", "hopeless", "stuck", "converged", "thin", "inexact"}
    allowed = {*POSTERIOR, *FIT, *DESIGN, *OF_NO_RESULT}
    strangers = {(path, word) for path, word in used if word not in allowed}
    assert strangers <= {("studies/calibrate.py", "error"), ("report/registry.py", "Draft")}
    for path, word in used:
        if path.startswith("likelihood/"):
            assert word in {*FIT, *OF_NO_RESULT}, (path, word)
        if path.startswith(("samplers/", "diagnostics/")):
            assert word in POSTERIOR, (path, word)


@pytest.mark.parametrize(
    ("table", "rooms"),
    [(POSTERIOR, ("samplers", "inference", "diagnostics")), (FIT, ("likelihood",)), (DESIGN, ("studies",))],
    ids=["posterior", "fit", "design"],
)
def test_every_row_of_the_table_is_used(table, rooms):
    missing = set(table) - {"converged" if table is FIT else "complete"}
    for path in paths(*rooms):
        if any(f'"{name}"' in path.read_text(encoding="utf-8") for name in missing):
            missing -= {node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant)}
    assert not missing


@pytest.mark.parametrize("table", [POSTERIOR, FIT], ids=["posterior", "fit"])
def test_the_table_is_consistent(table):
    for name, status in table.items():
        assert status.name == name
        assert re.fullmatch(r"[A-Z].*\.", status.meaning)
        assert (status.exit_code == 0) == (status.numbers == "usable")
        assert not (status.another and status.numbers == "usable")
    assert [status.name for status in table.values() if status.numbers == "usable"] in (["complete"], ["converged"])


def listed(page, heading):
    """Rows of the table below a heading: name and the cell beside it."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(heading)[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("heading", "table"),
    [
        ("## When a sampler cannot deliver", POSTERIOR),
        ("## When a fit cannot deliver", FIT),
        ("## When a design cannot tell", DESIGN),
    ],
    ids=["posterior", "fit", "design"],
)
def test_the_page_of_messages_says_what_the_table_says(heading, table):
    rows = listed("messages.md", heading)
    assert set(rows) == set(table)
    for name, told in rows.items():
        assert told.startswith(table[name].meaning), name


def test_the_page_on_likelihood_lists_every_status():
    assert set(listed("likelihood.md", "## How a run ends")) == set(FIT)


def test_the_page_on_choosing_names_the_statuses_that_call_for_another_sampler():
    sentence = re.search(r"A chosen run that ends with (.*?), or that finds", (DOCS / "how-to-choose.md").read_text())
    assert set(re.findall(r"`(\w+)`", sentence[1])) == {name for name, status in POSTERIOR.items() if status.another}


@pytest.mark.parametrize("page", sorted((DOCS / "samplers").glob("*.md")), ids=lambda page: page.stem)
def test_the_pages_of_samplers_name_no_other_status(page):
    for table in re.findall(r"^\| status \|.*?(?=\n\n|\Z)", page.read_text(), flags=re.MULTILINE | re.DOTALL):
        cells = [row.split("|")[1] for row in table.splitlines()[2:]]
        names = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
        assert names
        assert names <= set(POSTERIOR)


def test_results_refuse_a_status_that_is_not_in_the_table():
    posterior = nw.sample(count_model(), count_release(), nw.Rejection(), draws=10, seed=1)
    with pytest.raises(nw.InputError, match="Posterior: 'status' must be a known status; got 'stalled'"):
        replace(posterior, status="stalled")
    fit = nw.fit(count_model(), count_release(), start={"theta": np.array(30.0)})
    with pytest.raises(nw.InputError, match="Fit: 'status' must be a known status; got 'complet'"):
        replace(fit, status="complet")
