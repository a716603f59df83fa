"""What no room may do, beyond what it imports, which `lint-imports` checks."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "noisewise"

COMPUTES = {
    *("draw", "sample", "noise_sample", "simulate", "replicate", "default_rng", "generator", "prior_generator"),
    *("lstsq", "solve", "inv", "pinv", "cholesky", "eigh", "svd", "minimize", "brentq", "quad", "fit", "run"),
}
"""Functions and methods that draw, solve or fit, by name."""
READS = {"open", "read_bytes", "read_text", "load", "loadtxt", "read_csv", "iterdir", "glob", "rglob", "urlopen"}
OWN_FILES = {("report/page.py", "read_text"): "the style sheet, which is part of the package"}


def calls(path):
    """(name, line) of every call in a file: of `rng.normal(0, 1)`, the name is "normal"."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            yield name, node.lineno


def test_the_report_draws_solves_and_reads_nothing():
    faults, own = [], set()
    for path in sorted((SOURCE / "report").rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        for name, line in calls(path):
            if (file, name) in OWN_FILES:
                own.add((file, name))
            elif name in COMPUTES | READS:
                what = "computes" if name in COMPUTES else "reads"
                faults.append(f"src/noisewise/{file}:{line} {what}, by {name}(...)")
    advice = "compute or read it in the room whose it is, and hand the report the value"
    assert not faults, f"{advice}:\n" + "\n".join(faults)
    assert own == set(OWN_FILES)
