"""What people call quantities: labels and units, from a release, an analysis file or the analyst; else their names."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from noisewise import checks
from noisewise.errors import refusal
from noisewise.frozen import FrozenDict
from noisewise.results.labels import owner_of, place_of

TIMES = ("since", "day", "hour", "minute", "second")
"""Words in units that make xarray read the numbers of a file as dates, or as spans of time."""


@dataclass(frozen=True)
class Naming:
    """Labels and units by name."""

    labels: Mapping[str, str] = field(default_factory=FrozenDict)
    units: Mapping[str, str] = field(default_factory=FrozenDict)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Naming":
        """The labels and units in the table `words` of an analysis file."""
        words = {name: {"label": word} if isinstance(word, str) else word for name, word in _words(content).items()}
        stated = {key: {name: word[key] for name, word in words.items() if word.get(key)} for key in ("label", "unit")}
        return cls(FrozenDict(stated["label"]), FrozenDict(stated["unit"]))

    @classmethod
    def of_release(cls, release: Mapping[str, Any]) -> "Naming":
        """The descriptions (as labels) and units that a release states for its statistics."""
        stated = {
            key: {name: item.about[key] for name, item in release.items() if key in item.about}
            for key in ("description", "unit")
        }
        return cls(FrozenDict(stated["description"]), FrozenDict(stated["unit"]))

    @classmethod
    def checked(cls, who: str, labels: Any, units: Any, known: Collection[str]) -> "Naming":
        """Labels and units as an analyst gives them; refused where a name is not `known`."""
        return cls(_checked(who, "labels", labels, known), _checked(who, "units", units, known))

    def __or__(self, other: "Naming") -> "Naming":
        """Both together; where both name a quantity, `other` prevails."""
        return Naming(FrozenDict({**self.labels, **other.labels}), FrozenDict({**self.units, **other.units}))

    def called(self, row: str) -> str:
        """A row of a table in people's words: share[North] as 'Share of yes, North'."""
        name, entry = owner_of(row), place_of(row)
        if name not in self.labels:
            return row
        return f"{self.labels[name]}, {entry}" if entry else self.labels[name]

    def listed(self, row: str) -> str:
        """As `called`, with the name in the file in brackets where it differs."""
        called = self.called(row)
        return row if called == row else f"{called} ({row})"

    def entered(self, row: str) -> str:
        """As `listed`, with the unit too: what the first column of a table shows."""
        return self.with_unit(row, row if self.called(row) != row else "")

    def with_unit(self, row: str, note: str = "") -> str:
        """A row in people's words, with a note and the unit in brackets; no unit that the words say already."""
        called, unit = self.called(row), self.unit(row).strip()
        notes = [*([note] if note else []), *([unit] if unit and unit not in called.split() else [])]
        return f"{called} ({', '.join(notes)})" if notes else called

    def unit(self, row: str) -> str:
        """The unit of a row, with a blank before it unless it is %."""
        unit = self.units.get(owner_of(row), "")
        return unit if unit in ("", "%") else f" {unit}"

    def attributes(self, name: str, *, in_file: bool = False) -> dict[str, str]:
        """Attributes of a variable by the names that xarray, ArviZ and NetCDF have for them: long_name and units.

        In a file, a unit is left out that would make xarray read the numbers as dates.
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
