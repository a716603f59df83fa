"""The table of mutants fits the code, covers every file of mathematics, and its runner tells the dead from the living.

`make mutants` runs all of it.
"""

import re
from functools import cache
from pathlib import Path

import pytest
from mutant import SOURCE, Mutant, file_of
from mutants.__main__ import Runner, line, summary
from mutants.table import MUTANTS, OF_MECHANISMS, OF_ROOMS, OF_SAMPLERS
from mutants.verdict import verdict
from sampler_table import SAMPLERS

from noisewise.mechanisms import CATALOGUE
from noisewise.samplers.choosing.choice import public_samplers

ROOMS = [
    *("numerics", "diagnostics", "mechanisms", "model", "inference"),
    *("samplers", "likelihood", "studies", "results", "everyday"),
]
BESIDES = [
    "pymc.py",
    "sensitivity.py",
    *(f"curator/{name}.py" for name in ("drawing", "summaries", "measurements", "rounding", "promise", "ledger")),
]
WITHOUT = {
    "numerics/compiled.py": "compiles programs and keeps them",
    "numerics/scratch.py": "memory, by name",
    "mechanisms/about.py": "words that describe a release",
    "mechanisms/packing.py": "numbers as text, and back",
    "mechanisms/wrapper.py": "what a mechanism takes from the one inside it",
    "model/graph.py": "names, and the order of dependence",
    "inference/progress.py": "a line on the screen",
    "inference/settings.py": "settings, checked and named",
    "inference/status.py": "a table of words",
    "samplers/sample.py": "which sampler comes next",
    "likelihood/fit.py": "which estimator runs",
    "likelihood/mcem.py": "which part of the estimator runs next",
    "likelihood/instead.py": "names of other ways",
    "likelihood/e_step/table.py": "names of E-steps",
    "likelihood/monte_carlo/iterations.py": "what a checkpoint keeps",
    "results/drawn.py": "columns, and when they are fetched",
    "results/fit_file.py": "a file's reader",
    "results/posterior_file.py": "a file's reader",
    "results/posterior_netcdf.py": "a file's writer",
    "results/labels.py": "names of entries",
    "results/naming.py": "labels and units",
    "studies/forecast_seconds.py": "seconds that are only shown",
    "studies/designs/run.py": "what is kept and shown of a run",
    "studies/designs/setting.py": "model, plan and target together",
}
"""Files of these rooms that have no mathematics in them, and what they have."""
KNOWN = "diagnostics/test_tails.py::test_thinning_keeps_as_many_draws_as_all_are_worth"
THINNED = "count = max(1, min(draws, int(size))) if np.isfinite(size) else draws"


def mathematics():
    """Every file of the rooms of mathematics, but for those that have none."""
    found = {str(path.relative_to(SOURCE)) for room in ROOMS for path in (SOURCE / room).rglob("*.py")}
    return {name for name in found if Path(name).name != "__init__.py"}.difference(WITHOUT).union(BESIDES)


def test_every_mutant_fits_the_code_in_one_place():
    odd = {name: mutant.found for name, mutant in MUTANTS.items() if mutant.found != 1}
    assert not odd, f"the text of a mutant must occur once in its file: {odd}"
    assert all(mutant.old != mutant.new for mutant in MUTANTS.values())
    assert len(MUTANTS) >= 60


def test_every_file_of_mathematics_has_a_mutant():
    files = {mutant.file for mutant in MUTANTS.values()}
    assert not mathematics() - files, "no mutant of these"
    assert not files - mathematics(), "mutants of what is not among the files of mathematics"
    assert all((SOURCE / name).exists() for name in WITHOUT)


def test_a_mutant_stands_in_one_place():
    """Those of a mechanism's or a sampler's own file in its row; all others in the table of their room."""
    parts = (*OF_MECHANISMS, *OF_SAMPLERS, *OF_ROOMS)
    namesakes = [name for part in parts for name, mutant in part.items() if MUTANTS[name] != mutant]
    assert not namesakes, "two mutants of one name"
    own = {file_of(kind) for kind in (*CATALOGUE.values(), *public_samplers().values())}
    strays = [name for part in OF_ROOMS for name, mutant in part.items() if mutant.file in own]
    assert not strays, f"to tests/helpers/families or tests/helpers/sampler_table.py: {strays}"
    rows = [(file_of(type(row.sampler)), row.mutants) for row in SAMPLERS.values()]
    assert all(mutant.file == file for file, mutants in rows for mutant in mutants.values())
    assert all(mutant.file.startswith("mechanisms/") for part in OF_MECHANISMS for mutant in part.values())


def test_every_test_that_a_mutant_names_is_there():
    for name, mutant in MUTANTS.items():
        for node in mutant.nodes:
            path, _, test = node.partition("::")
            text = (SOURCE.parents[1] / path).read_text()
            assert not test or f"def {test.split('[')[0]}(" in text, f"{name}: {node}"


def test_a_mutant_that_only_long_tests_can_catch_says_so():
    """A test that is long in all of its instances does not run for a mutant that is not."""
    for name, mutant in MUTANTS.items():
        parts = [node.partition("::") for node in mutant.nodes]
        some = [not test or test.split("[")[0] not in long_tests(path) for path, _, test in parts]
        assert mutant.long or any(some), name


@cache
def long_tests(path):
    """Names of the tests in a file that are marked long."""
    found, marked = set(), False
    for text in (SOURCE.parents[1] / path).read_text().splitlines():
        if named := re.match(r"def (\w+)\(", text):
            found |= {named[1]} if marked else set()
            marked = False
        marked |= text.split("  #")[0] == "@pytest.mark.long"
    return found


@pytest.fixture(scope="module")
def runner():
    return Runner()


def test_a_mutant_that_changes_nothing_survives_and_a_mistake_does_not(runner):
    nothing = Mutant("diagnostics/tails.py", THINNED, THINNED, KNOWN)
    mistake = Mutant("diagnostics/tails.py", THINNED, THINNED.replace("int(size)", "int(size) // 2"), KNOWN)
    rows = [runner.judged("nothing", nothing), runner.judged("a mistake", mistake)]
    assert [row["result"] for row in rows] == ["SURVIVED", "killed"]
    assert rows[1]["by"] == KNOWN.split("/")[1]
    assert "a mistake" in line(rows[1])
    assert summary(rows) == "2 mutants in 1 files: 1 killed, 1 SURVIVED, 0 stale, 0 clean fails; 50.0% killed"


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("diagnostics/tails.py", "text that is not there", "", KNOWN),
        Mutant("diagnostics/tails.py", THINNED, "count = (", KNOWN),
        Mutant("diagnostics/tails.py", THINNED, "count = draws", "diagnostics/test_tails.py::test_that_is_not_there"),
    ],
    ids=["text is gone", "does not import", "test is gone"],
)
def test_a_mutant_that_no_longer_applies_is_stale(mutant, runner):
    assert verdict(mutant, runner.context)[0] == "stale"
