"""What becomes of a planted mistake: the tests that ought to catch it, on a copy of the package that has it."""

import os
import shutil
import sys
import tempfile
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path

from mutant import ROOT, SOURCE, Mutant

LIMIT = 600.0
"""Seconds after which a mutant counts as killed: what no longer ends is noticed."""
IMPORTED_ONCE = ["jax", "numpyro.distributions", "numpyro.infer", "scipy.stats", "scipy.optimize", "pytest"]
"""What every process of tests needs, imported by the server that they are forked from; never the package itself."""


def server() -> ForkServerContext:
    """Where processes of tests come from, with slow imports done."""
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED_ONCE)
    return context


def verdict(mutant: Mutant, context: ForkServerContext) -> tuple[str, str]:
    """(killed, SURVIVED or stale; what pytest printed) of one mutant."""
    if mutant.found != 1:
        return "stale", f"the old text occurs {mutant.found} times in {mutant.file}"
    code, said = run_tests(mutant.nodes, context, mutant, ["--long"] if mutant.long else [])
    if code == 0:
        return "SURVIVED", said
    return ("killed" if code in (1, None) else "stale"), said


def run_tests(
    nodes: list[str], context: ForkServerContext, mutant: Mutant | None = None, options: list[str] | None = None
) -> tuple[int | None, str]:
    """(pytest's exit status, None after the limit; what it printed) of tests on a copy of the package."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SOURCE, Path(folder, "src", "noisewise"))
        if mutant is not None:
            mutant.plant(Path(folder, "src", "noisewise"))
        arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *(options or [])]
        arguments += ["-x"] if mutant is not None else []
        process = context.Process(target=_test, args=(folder, [*arguments, *nodes]))
        process.start()
        process.join(LIMIT)
        late = process.exitcode is None
        if late:
            process.kill()
            process.join()
        return None if late else process.exitcode, Path(folder, "said").read_text()


def _test(folder: str, arguments: list[str]) -> None:
    """In a process of its own: pytest on the copy of the package."""
    import pytest

    source = str(Path(folder, "src"))
    printed = os.open(Path(folder, "said"), os.O_WRONLY | os.O_CREAT)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = source
    sys.path.insert(0, source)
    code = int(pytest.main(arguments))
    imported = sys.modules.get("noisewise")
    if imported is not None and not str(imported.__file__).startswith(source):
        print(f"the tests saw {imported.__file__}")
        code = 4
    sys.stdout.flush()
    os._exit(code)
