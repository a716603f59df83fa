"""A mechanism and a sampler that the library does not have, with all that CONTRIBUTING asks for: to plant in a copy.

Their classes are CONTRIBUTING's own examples. What is beside them here is added at the end of a file, or is a new one.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "docs", "scripts")

ROW_OF_LOGISTIC = """
from noisewise.mechanisms.logistic import Logistic

CASES.append(
    Case(
        "logistic",
        Logistic(scale=2.0),
        3.25,
        near(3.0, 2.0),
        attains=same,
        pieces=pieces(3.25, [0.0, 20.0, 80.0]),
        wrong=Logistic(scale=2.06),
    )
)
LOGISTIC = _count_solution(lambda z: stats.logistic.logpdf(z, scale=2.0), 17.4)
TARGETS.append(Target("logistic", _count(Logistic(scale=2.0), 17.4), LOGISTIC))
MUTANTS["logistic noise is drawn at half its scale"] = Mutant(
    "mechanisms/logistic.py",
    "return self.scale * rng.logistic(size=shape)",
    "return 0.5 * self.scale * rng.logistic(size=shape)",
    f"{CATALOGUE}::test_sampler_follows_the_density",
)
without_logistic = audits


def audits(audit):
    without_logistic(audit)
    mechanism = Logistic(epsilon=0.7, sensitivity=2.0)
    reach = 40 * mechanism.scale
    pair = pair_of(mechanism, 0.0, 2.0, edges=[-reach, 0.0, 2.0, 2.0 + reach])
    audit("logistic", mechanism, pair, tight=False)
"""
ENTRY_OF_LOGISTIC = """
## Logistic

[`logistic.py`](../../src/noisewise/mechanisms/logistic.py). Measure: density.
"""
ROW_OF_PLAIN_REJECTION = """
from noisewise.samplers.plain_rejection import PlainRejection

SAMPLERS["PlainRejection"] = Row(
    PlainRejection(),
    20_000,
    PlainRejection(),
    4_000,
    ("count-2", "hierarchy"),
    mutants={
        "plain rejection accepts by the square root of the ratio": Mutant(
            "samplers/plain_rejection.py",
            "rng.standard_exponential(rows) >= -log_ratio",
            "rng.standard_exponential(rows) >= -0.5 * log_ratio",
            f"{EXACT}[PlainRejection-count-2]",
        ),
    },
)
"""
PROOF_OF_PLAIN_REJECTION = """# Plain rejection: why the draws are exact

Source: [`samplers/plain_rejection.py`](../../src/noisewise/samplers/plain_rejection.py).
"""
PAGE_OF_PLAIN_REJECTION = """# Plain rejection

[`plain_rejection.py`](../../src/noisewise/samplers/plain_rejection.py); proof:
[derivations/plain-rejection.md](../derivations/plain-rejection.md).

**Draws:** independent, exact. **Needs:** simulation; noise of bounded density.

**Claim.** As for `Rejection`. **Assumptions.** Likewise. **Use it** to learn.
"""


def example(name: str) -> str:
    """The block of CONTRIBUTING that defines a class."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL | re.MULTILINE)
    [block] = [each for each in blocks if f"class {name}(" in each]
    return block


MECHANISM = {
    "src/noisewise/mechanisms/<name>.py": example("Logistic"),
    "tests/helpers/families/<family>.py": ROW_OF_LOGISTIC,
    "docs/mechanisms/<family>.md": ENTRY_OF_LOGISTIC,
}
SAMPLER = {
    "src/noisewise/samplers/<name>.py": example("PlainRejection").replace("ons/rejection.md", "ons/plain-rejection.md"),
    "tests/helpers/sampler_table.py": ROW_OF_PLAIN_REJECTION,
    "docs/derivations/<name>.md": PROOF_OF_PLAIN_REJECTION,
    "docs/samplers/<name>.md": PAGE_OF_PLAIN_REJECTION,
}
"""What a person writes, by the file as CONTRIBUTING calls it."""


class Copy:
    """A copy of the repository's working tree, in which newcomers are planted."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        for name in FOLDERS:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
        for file in ROOT.glob("[!.]*"):
            if file.is_file():
                shutil.copy(file, folder)

    def plant(self, newcomer: dict[str, str]) -> None:
        """Write what a person writes: new files, or more at the end of one."""
        for place, text in newcomer.items():
            file = self.root / name_of(place)
            file.write_text((file.read_text() if file.exists() else "") + text)

    def make(self, target: str) -> None:
        """What `make` would run."""
        recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (self.root / "Makefile").read_text(), re.MULTILINE)[1]
        for line in recipe.splitlines():
            found = re.fullmatch(r"\t(?:PYTHONPATH=(\S+) )?\$\(BIN\)/python (.+)", line)
            done = self.run(*found[2].split(), also=found[1])
            assert done.returncode == 0, done.stderr

    def changed(self) -> set[str]:
        """Files that are new, or no longer what they are in the repository."""
        files = [path.relative_to(self.root) for folder in FOLDERS for path in (self.root / folder).rglob("*.*")]
        kept = [file for file in files if "__pycache__" not in file.parts and (self.root / file).is_file()]
        return {str(file) for file in kept if not (ROOT / file).exists() or _differ(self.root / file, ROOT / file)}

    def test(self, *arguments: str) -> str:
        """What pytest prints."""
        return self.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--compile-lightly", *arguments).stdout

    def run(self, *arguments: str, also: str | None = None) -> subprocess.CompletedProcess:
        """Python, with the package of the copy."""
        path = ["src", *([also] if also else [])]
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(str(self.root / each) for each in path)},
            capture_output=True,
            text=True,
        )


def _differ(one: Path, other: Path) -> bool:
    return one.read_bytes() != other.read_bytes()


def name_of(place: str) -> str:
    """The newcomer's file of which CONTRIBUTING says <name> or <family>."""
    place = place.replace("<family>", "additive").replace("mechanisms/<name>", "mechanisms/logistic")
    return place.replace("<name>.py", "plain_rejection.py").replace("<name>", "plain-rejection")
