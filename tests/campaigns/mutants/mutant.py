"""A planted mistake, and what becomes of it."""

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "noisewise"
LIMIT = 600.0
"""Seconds after which a mutant counts as killed: what no longer ends is noticed."""
IMPORTED_ONCE = ["jax", "numpyro.distributions", "numpyro.infer", "scipy.stats", "scipy.optimize", "pytest"]
"""What every process of tests needs, imported by the server that they are forked from; never the package itself."""


@dataclass(frozen=True)
class Mutant:
    """One mistake: `old`, found exactly once in `file` (below src/noisewise), becomes `new`.

    `tests` ought to catch it: files or node ids below tests/, with spaces between them. `long` adds the longer tests.
    """

    file: str
    old: str
    new: str
    tests: str
    long: bool = False

    @property
    def found(self) -> int:
        """How often the old text occurs."""
        path = SOURCE / self.file
        return path.read_text().count(self.old) if path.exists() else 0

    @property
    def nodes(self) -> list[str]:
        """Its tests as pytest takes them."""
        return [f"tests/{node}" for node in self.tests.split()]

    def plant(self, package: Path) -> None:
        """Write the mistake into a copy of the package."""
        path = package / self.file
        path.write_text(path.read_text().replace(self.old, self.new))


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
