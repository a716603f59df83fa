"""What people call the quantities of a report: labels and units of the analysis file, else their names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Naming:
    """Labels and units by name, from the table [words]."""

    labels: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Naming":
        """Those of an analysis file's tables."""
        words = {name: {"label": word} if isinstance(word, str) else word for name, word in _words(content).items()}
        stated = {key: {name: word[key] for name, word in words.items() if word.get(key)} for key in ("label", "unit")}
        return cls(stated["label"], stated["unit"])

    def called(self, row: str) -> str:
        """A row of a table in people's words: share[North] as 'Share of yes, North'."""
        name, entry = _parts(row)
        if name not in self.labels:
            return row
        return f"{self.labels[name]}, {entry}" if entry else self.labels[name]

    def listed(self, row: str) -> str:
        """The same with the name in the file, where it differs."""
        called = self.called(row)
        return row if called == row else f"{called} ({row})"

    def with_unit(self, row: str) -> str:
        """Its name in people's words, and in brackets the unit that they do not say."""
        called, unit = self.called(row), self.unit(row).strip()
        return called if not unit or unit in called.split() else f"{called} ({unit})"

    def unit(self, row: str) -> str:
        """Its unit, with a blank before it unless it is %."""
        unit = self.units.get(_parts(row)[0], "")
        return unit if unit in ("", "%") else f" {unit}"


def _words(content: Mapping[str, Any]) -> Mapping[str, Any]:
    words = content.get("words", {})
    return words if isinstance(words, Mapping) else {}


def _parts(row: str) -> tuple[str, str]:
    name, _, entry = row.partition("[")
    return name, entry.removesuffix("]")
