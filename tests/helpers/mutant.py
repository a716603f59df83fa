"""A statistical mistake that a person might make: what is changed where, and which tests ought to catch it.

Mutants of a mechanism stand in its family's file, those of a sampler in its row of `sampler_table.py`, all others in
`tests/campaigns/mutants/table`. `make mutants` plants them one by one.
"""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "noisewise"


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


def file_of(kind: type) -> str:
    """The file that a class of the library is written in, as mutants name it."""
    return kind.__module__.removeprefix("noisewise.").replace(".", "/") + ".py"
