"""What people call quantities: labels and units, from a release, an analysis file or the analyst; else their names."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from noisewise import checks
from noisewise.errors import refusal
from noisewise.frozen import FrozenDict
from noisewise.results.labels import owner_of, place_of

TIMES = ("since", "day", "hour", "minute", "second")
"""Words of units by which xarray takes the numbers of a file for dates, or for spans of time."""


@dataclass(frozen=True)
class Naming:
    """Labels and units by name."""

    labels: Mapping[str, str] = field(default_factory=FrozenDict)
    units: Mapping[str, str] = field(default_factory=FrozenDict)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Naming":
        """Those of an analysis file's tables."""
        words = {name: {"label": word} if isinstance(word, str) else word for name, word in _words(content).items()}
        stated = {key: {name: word[key] for name, word in words.items() if word.get(key)} for key in ("label", "unit")}
        return cls(FrozenDict(stated["label"]), FrozenDict(stated["unit"]))

    @classmethod
    def of_release(cls, release: Mapping[str, Any]) -> "Naming":
        """What a release says of its statistics: descriptions and units."""
        stated = {
            key: {name: item.about[key] for name, item in release.items() if key in item.about}
            for key in ("description", "unit")
        }
        return cls(FrozenDict(stated["description"]), FrozenDict(stated["unit"]))

    @classmethod
    def checked(cls, who: str, labels: Any, units: Any, known: Collection[str]) -> "Naming":
        """Labels and units that were given, of names that are known."""
        return cls(_checked(who, "labels", labels, known), _checked(who, "units", units, known))

    def __or__(self, other: "Naming") -> "Naming":
        """Both; where both name a quantity, what `other` says."""
        return Naming(FrozenDict({**self.labels, **other.labels}), FrozenDict({**self.units, **other.units}))

    def called(self, row: str) -> str:
        """A row of a table in people's words: share[North] as 'Share of yes, North'."""
        name, entry = owner_of(row), place_of(row)
        if name not in self.labels:
            return row
        return f"{self.labels[name]}, {entry}" if entry else self.labels[name]

    def listed(self, row: str) -> str:
        """The same with the name in the file, where it differs."""
        called = self.called(row)
        return row if called == row else f"{called} ({row})"

    def entered(self, row: str) -> str:
        """The same with its unit too, as the first column of a table has it."""
        return self.with_unit(row, row if self.called(row) != row else "")

    def with_unit(self, row: str, note: str = "") -> str:
        """Its name in people's words, and in brackets a note and the unit that they do not say."""
        called, unit = self.called(row), self.unit(row).strip()
        notes = [*([note] if note else []), *([unit] if unit and unit not in called.split() else [])]
        return f"{called} ({', '.join(notes)})" if notes else called

    def unit(self, row: str) -> str:
        """Its unit, with a blank before it unless it is %."""
        unit = self.units.get(owner_of(row), "")
        return unit if unit in ("", "%") else f" {unit}"

    def attributes(self, name: str, *, in_file: bool = False) -> dict[str, str]:
        """Attributes of a variable by the names that xarray, ArviZ and NetCDF have for them: long_name and units.

        In a file, no unit by which xarray would take the numbers for dates.
        """
        unit = self.units.get(name, "")
        dated = in_file and any(word in unit.lower() for word in TIMES)
        return {"long_name": self.labels.get(name, name)} | ({"units": unit} if unit and not dated else {})


def _checked(who: str, argument: str, given: Any, known: Collection[str]) -> FrozenDict:
    example = 'Give {"gap": "Difference of the means"}.' if argument == "labels" else 'Give {"gap": "euros"}.'
    if given is not None and not isinstance(given, Mapping):
        raise refusal(who, argument, "must be a dict of words by name", given, example)
    for name, words in (given or {}).items():
        checks.known_name(who, argument, name, known, "must be of names of the posterior")
        if not isinstance(words, str) or not words.strip() or not words.isprintable():
            raise refusal(who, f"{argument}['{name}']", "must be words that can be printed", words, example)
    return FrozenDict(given or {})


def _words(content: Mapping[str, Any]) -> Mapping[str, Any]:
    words = content.get("words", {})
    return words if isinstance(words, Mapping) else {}
