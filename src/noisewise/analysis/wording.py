"""The tables [answers] and [words]: what is asked for, and what people call it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noisewise import checks
from noisewise.analysis.settings import table_at
from noisewise.analysis.toml import Document
from noisewise.errors import Path

KEYS = ("label", "unit", "names")


@dataclass(frozen=True)
class Word:
    """What people call a quantity, its unit, and the names of its entries."""

    label: str = ""
    unit: str = ""
    names: tuple[str, ...] = ()


def read_words(document: Document, known: Mapping[str, Any]) -> dict[str, Word]:
    """The table [words]: a label in quotation marks, or a table of label, unit and names, for names of the file."""
    words = {}
    for name, stated in table_at(document, ("words",), None).items():
        path: Path = ("words", name)
        if name not in known:
            cause = f"'{name}' is not a parameter, a statistic or an answer. {checks.nearest(name, known)}"
            raise document.error(path, cause, key=True)
        if isinstance(stated, str):
            stated, path = {"label": stated}, ("words",)
        else:
            table_at(document, path, KEYS)
        for key in ("label", "unit"):
            if not isinstance(stated.get(key, ""), str):
                raise document.error((*path, key), f"'{key}' must be text in quotation marks.")
        names = stated.get("names", [])
        if not isinstance(names, list) or not all(isinstance(entry, str) and entry for entry in names):
            raise document.error((*path, "names"), 'must be a list of words, such as ["North", "South"].')
        words[name] = Word(stated.get("label", ""), stated.get("unit", ""), tuple(names))
    return words


def dims_and_labels(
    words: Mapping[str, Word], dims: dict[str, tuple[str, ...]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`dims` and labels for the quantities whose entries have names, each along an axis of its own."""
    named = {name: word.names for name, word in words.items() if word.names and name not in dims}
    axes = {name: (f"{name}_entry",) for name in named}
    return dims | axes, {f"{name}_entry": list(entries) for name, entries in named.items()}
