"""What no room may do, beyond what it imports, which `lint-imports` checks."""

import ast
import re
import tomllib
from pathlib import Path

from late_imports import EXTRAS, LATE, SLOW

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "noisewise"

COMPUTES = {
    *("draw", "sample", "noise_sample", "simulate", "replicate", "default_rng", "generator", "prior_generator"),
    *("lstsq", "solve", "inv", "pinv", "cholesky", "eigh", "svd", "minimize", "brentq", "quad", "fit", "run"),
}
"""Functions and methods that draw, solve or fit, by name."""
READS = {"open", "read_bytes", "read_text", "load", "loadtxt", "read_csv", "iterdir", "glob", "rglob", "urlopen"}
OWN_FILES = {("report/page.py", "read_text"): "the style sheet, which is part of the package"}


CALLED = re.compile(rf"\b(?:{'|'.join(COMPUTES | READS)})\s*\(")


def calls(source):
    """(name, line) of such calls in a file: of `rng.normal(0, 1)`, the name is "normal". Words alone are no calls."""
    if not CALLED.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in COMPUTES | READS:
                yield name, node.lineno


def test_the_report_draws_solves_and_reads_nothing():
    faults, own = [], set()
    for path in sorted((SOURCE / "report").rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        for name, line in calls(path.read_text(encoding="utf-8")):
            if (file, name) in OWN_FILES:
                own.add((file, name))
            else:
                what = "computes" if name in COMPUTES else "reads"
                faults.append(f"src/noisewise/{file}:{line} {what}, by {name}(...)")
    advice = "compute or read it in the room whose it is, and hand the report the value"
    assert not faults, f"{advice}:\n" + "\n".join(faults)
    assert own == set(OWN_FILES)


def test_a_call_that_computes_would_be_seen():
    source = '"""To draw (values) is not to call."""\n\n\ndef page(rng):\n    return rng.draw(3), np.linalg.solve (1)\n'
    assert list(calls(source)) == [("draw", 5), ("solve", 5)]


# Imports inside functions -------------------------------------------------------------------------------------------


NOT_AT_THE_HEAD = re.compile(r"^(?!import |from ).*\bimport\b", re.MULTILINE)


def late_imports(source):
    """(modules, line) of every import inside a function."""
    if not NOT_AT_THE_HEAD.search(source):
        return
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    inside = {node for function in functions for node in ast.walk(function)}
    for node in sorted((node for node in inside if isinstance(node, ast.stmt)), key=lambda node: node.lineno):
        if isinstance(node, ast.Import):
            yield [alias.name for alias in node.names], node.lineno
        elif isinstance(node, ast.ImportFrom):
            head = "." * node.level + (node.module or "")
            yield [f"{head}.{alias.name}" for alias in node.names], node.lineno


def reasons(module):
    """The packages of the table that a module belongs to."""
    return [package for package in LATE if f"{module}.".startswith(f"{package}.")]


def faults_of_late_imports(source, file):
    """What is wrong with imports inside a file's functions, and the packages of the table among them."""
    lines = ["", *source.splitlines()]
    faults, used = [], set()
    for modules, line in late_imports(source):
        for module in modules:
            used.update(reasons(module))
            own = re.search(r"#(?! (?:noqa|type:))", lines[line])
            has_comment = own is not None or lines[line - 1].strip().startswith("#")
            if module.split(".")[0] == "noisewise" and not has_comment:
                faults.append(f"{file}:{line} imports {module} inside a function: move it to the head, or say why not")
            elif module.split(".")[0] != "noisewise" and not reasons(module):
                faults.append(f"{file}:{line} imports {module} inside a function: move it to the head of the file")
    return faults, used


def test_an_import_inside_a_function_has_its_reason():
    faults, used = [], set()
    for path in sorted(SOURCE.rglob("*.py")):
        found, packages = faults_of_late_imports(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
        faults += found
        used |= packages
    advice = "packages that are slow, or not in every install, are in tests/helpers/late_imports.py"
    assert not faults, "\n".join([*faults, advice])
    assert used == set(LATE), f"no longer imported inside a function: {set(LATE) - used}"


def test_a_late_import_without_a_reason_is_named():
    source = """
def work():
    import pandas as pd
    import json
    from scipy import optimize, special
    from noisewise import checks
    from noisewise.page import app  # needs Shiny
"""
    faults, used = faults_of_late_imports(source, "work.py")
    assert [fault.split(" inside")[0] for fault in faults] == [
        "work.py:4 imports json",
        "work.py:5 imports scipy.special",
        "work.py:6 imports noisewise.checks",
    ]
    assert used == {"pandas", "scipy.optimize"}


def test_slow_packages_are_required_and_extras_are_not():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {re.split(r"[<>=\[]", entry)[0] for entry in project["dependencies"]}
    assert {package.split(".")[0] for package in SLOW} <= required
    for package, extra in EXTRAS.items():
        names = {re.split(r"[<>=\[]", entry)[0].replace("-", "_") for entry in project["optional-dependencies"][extra]}
        assert package in names, f"{package} does not come with the extra '{extra}'"
