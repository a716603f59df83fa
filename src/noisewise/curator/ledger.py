"""The ledger: what has been drawn from a confidential file, in a file beside it.

One JSON object a line. Lines are only added; each holds a checksum of itself and of all lines before it, so that a line
which was changed, removed or inserted is detected. (Lines cut off at the end are not: keep a copy elsewhere.) It
says what was published by which plan, and holds no confidential value.
"""

import getpass
import hashlib
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from noisewise.curator.plan import Plan, stated_limit
from noisewise.curator.promise import check_within, under
from noisewise.errors import InputError, refusal
from noisewise.mechanisms.guarantee import Guarantee

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # None in place of a module

ENDING = ".ledger"


@dataclass(frozen=True)
class Ledger:
    """The ledger of one file of records; it need not exist yet."""

    path: Path

    @classmethod
    def beside(cls, data: str | Path) -> Self:
        """The ledger of a data file: `people.csv.ledger` beside `people.csv`, wherever a link to it lies."""
        real = Path(data).resolve()
        return cls(real.with_name(real.name + ENDING))

    def entries(self) -> list[dict[str, Any]]:
        """Every line as data, its checksum verified."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise self._broken(f"cannot be read ({type(error).__name__})") from None
        entries: list[dict[str, Any]] = []
        before = ""
        for number, line in enumerate(text.splitlines(), 1):
            try:
                entry = json.loads(line)
                stated = entry.pop("checksum")
            except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
                raise self._broken(f"line {number} is not one that was written here") from None
            before = _checksum(before, entry)
            if stated != before:
                raise self._broken(f"line {number} does not have its checksum: it, or a line before it, was changed")
            entries.append(entry)
        if text and not text.endswith("\n"):
            raise self._broken("its last line was not finished")
        return entries

    def _broken(self, cause: str) -> InputError:
        advice = "Nothing is drawn before it is whole again: put back a copy, or find out what was published."
        return InputError(f"{cause}. {advice}", who=str(self.path), advice=advice)

    @property
    def total(self) -> Guarantee | None:
        """The most that may be drawn in all, as last stated; None where nothing was."""
        stated = [entry["total"] for entry in self.entries() if "total" in entry]
        return Guarantee.from_dict(stated[-1], str(self.path)) if stated else None

    @property
    def spent(self) -> Guarantee | None:
        """What all releases together guarantee; None where there were none."""
        parts = [Guarantee.from_dict(each["guarantee"], str(self.path)) for each in self.entries() if "plan" in each]
        if not parts:
            return None
        mixed = len({part.neighbours for part in parts}) > 1
        return Guarantee.compose([under(str(self.path), part, "replace-one") if mixed else part for part in parts])

    def after(self, more: Guarantee) -> Guarantee:
        """What all releases together would guarantee after another one."""
        spent = self.spent
        if spent is None:
            return more
        both = [spent, more]
        mixed = spent.neighbours != more.neighbours
        return Guarantee.compose([under(str(self.path), part, "replace-one") if mixed else part for part in both])

    def check(self, more: Guarantee) -> None:
        """Refuse a release that would exceed the total."""
        total = self.total
        if total is not None:
            advice = "It counts every release from these records, whatever its name: publish what has been drawn."
            check_within(str(self.path), "total", total, self.after(more), advice)

    def enter(self, plan: Plan, out: str = "") -> None:
        """Add a release that is about to be drawn; refused where it would exceed the total."""
        entry = {
            "plan": plan.hash,
            "out": out,
            "statistics": {name: guarantee.to_dict() for name, guarantee in plan.guarantees.items()},
            "guarantee": plan.guarantee.to_dict(),
        }
        self._add(entry, plan.guarantee)

    def set_total(self, neighbours: str, **budget: float) -> None:
        """State the most that may be drawn in all, from now on; refused where more has been drawn already."""
        total = stated_limit(str(self.path), budget, neighbours)
        spent = self.spent
        if spent is not None:
            check_within(str(self.path), "total", total, spent, "So much has been drawn already.")
        self._add({"total": total.to_dict()})

    def _add(self, content: dict[str, Any], spends: Guarantee | None = None) -> None:
        """Write a line through to the disk, under a file lock (not on Windows); the total is checked under the lock."""
        entry = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "who": _user(), **content}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                if fcntl is not None:
                    fcntl.flock(file.fileno(), fcntl.LOCK_EX)
                before = self.entries()
                if spends is not None:
                    self.check(spends)
                last = ""
                for each in before:
                    last = _checksum(last, each)
                file.write(json.dumps({**entry, "checksum": _checksum(last, entry)}) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            rule = f"must be writable, beside the data ({type(error).__name__})"
            raise refusal("release", "ledger", rule, str(self.path), "Nothing was drawn.") from None


def _checksum(before: str, entry: dict[str, Any]) -> str:
    """SHA-256 of the checksum before and of the entry."""
    return hashlib.sha256((before + json.dumps(entry, sort_keys=True)).encode()).hexdigest()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name in this environment
        return "unknown"
