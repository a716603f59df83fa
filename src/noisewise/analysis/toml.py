"""TOML with places: where in the text each key and value stands, errors that point there, and a small writer.

`tomllib` checks the syntax and gives the content, without positions; the scanner here runs over text that `tomllib`
has accepted, and notes only where things are. (tomlkit tells no positions either, and the writer's thirty lines are no
reason for a dependency.)
"""

import itertools
import json
import re
import tomllib
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from noisewise.analysis.file_words import in_file_words
from noisewise.errors import InputError, Path, shortened

LARGEST = 1_000_000
"""Characters of a file."""
LONGEST = 2_000
"""Characters of a message's cause, which may quote the file."""
_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_TWICE = re.compile(r"Cannot (?:declare|overwrite|mutate) \((.*)\) twice")
PARTS = 50
"""Parts of a dotted key, at most: memory and time of `tomllib` grow with their square."""
_DOTTED = re.compile(rf"""(?<![\w\\-])(?:(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\.[ \t]*){{{PARTS}}}""")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ACCENTED = re.compile(r"""(?<!["'\w])\w*[^\W\x00-\x7f]\w*(?!["'\w])""")
_ESCAPES = {"u": 4, "U": 8}


class FileError(InputError):
    """A mistake in a file: the place, the cause and the line itself with a caret under the place."""

    def __init__(self, where: str, text: str, offset: int, cause: str) -> None:
        offset, cause = max(0, min(offset, len(text))), shortened(in_file_words(cause), LONGEST)
        start = text.rfind("\n", 0, offset) + 1
        line, column = text.count("\n", 0, offset) + 1, offset - start + 1
        quoted = text[start:].split("\n", 1)[0][:240]
        pad = "".join("\t" if character == "\t" else " " for character in quoted[: column - 1])
        lead = f"{line:>5} | "
        caret = " " * (len(lead) - 2) + "| " + pad + "^"
        excerpt = f"{lead}{quoted}\n{caret}"
        super().__init__(f"{cause}\n{excerpt}", who=f"{where}, line {line}, column {column}")
        self.cause = self.reason = cause
        self.where, self.excerpt = where, excerpt
        self.line, self.column = line, column

    @property
    def headline(self) -> str:
        """Place and cause, without the line itself."""
        return f"{self.who}: {self.cause}"


@dataclass(frozen=True)
class Offsets:
    """Offsets of a key and of its value; for a string, one for each of its characters and one for its end."""

    key: int
    value: int
    characters: tuple[int, ...] = ()


@dataclass(frozen=True)
class Document:
    """Parsed TOML with the places of its keys and values, by path; array entries have whole numbers in theirs."""

    text: str
    where: str
    content: dict[str, Any]
    places: Mapping[Path, Offsets]

    def at(self, path: Path) -> Any:
        """The value at a path; None where there is none."""
        value: Any = self.content
        for name in path:
            inside = isinstance(value, Mapping) and name in value
            inside = inside or (isinstance(value, list) and isinstance(name, int) and name < len(value))
            value = value[name] if inside else None
        return value

    def error(self, path: Path, cause: str, *, at: int | None = None, key: bool = False) -> FileError:
        """An error at a value (its character `at`, for strings) or at its key; at the nearest table above if absent."""
        while path and path not in self.places:
            path, at = path[:-1], None
        place = self.places.get(path, Offsets(0, 0))
        offset = place.key if key else place.value
        if at is not None and place.characters:
            offset = place.characters[min(at, len(place.characters) - 1)]
        return FileError(self.where, self.text, offset, cause)


def from_toml(text: str, where: str) -> Document:
    """Parse TOML; a syntax error names line and column."""
    # one spelling of letters with accents: some systems write them as two characters, and names would not be found
    text = unicodedata.normalize("NFC", text.removeprefix("\ufeff").replace("\r\n", "\n"))
    if len(text) > LARGEST:
        raise FileError(where, text, 0, f"the file is longer than {LARGEST:,} characters.")
    dotted = _DOTTED.search(text)
    if dotted is not None:
        raise FileError(where, text, dotted.start(), f"a key must not have more than {PARTS} parts.")
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileError(where, text, *_syntax(text, str(error))) from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).split(";")[0]
        raise FileError(where, text, 0, f"not readable as TOML: {reason}.") from None
    return Document(text, where, content, _Scanner(text).places)


def _syntax(text: str, message: str) -> tuple[int, str]:
    place = _AT_LINE.search(message)
    reason = _AT_LINE.sub("", message).replace(" (at end of document)", " (the file ends here)")
    cause = f"not valid TOML: {_TWICE.sub(_written_twice, reason)}."
    if place is None:
        return len(text.rstrip()), cause
    line, column = int(place[1]), int(place[2])
    start = 0
    for _ in range(line - 1):
        start = text.index("\n", start) + 1
    return start + column - 1, cause + _hint(text[start:].split("\n", 1)[0], message)


def _written_twice(match: re.Match[str]) -> str:
    name = ".".join(re.findall(r"'([^']*)'", match[1]))
    return f"the table [{name}] stands twice"


def _hint(line: str, message: str) -> str:
    """Advice on what non-programmers forget most, where the line shows it; else empty."""
    if "\\n" in message:
        return " A quotation mark is missing where the text ends."
    if "twice" in message:
        return " Rename one of them, or take it away."
    key, sign, value = line.partition("=")
    if (accented := _ACCENTED.search(key)) is not None:
        return f' A name with letters beyond a to z stands in quotation marks: "{accented[0]}".'
    for pattern, hint in _HINTS if sign else _HINTS_WITHOUT_SIGN:
        if re.search(pattern, value.strip() if sign else line):
            return f" {hint}"
    return ""


_HINTS = (
    ("[\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb]", 'Use straight quotation marks, as in theta = "Gamma(25, 1)".'),
    (r"^(#|$)", "A value is missing after the equals sign."),
    (
        r"^(?!(true|false|inf|nan)\b)[A-Za-z]",
        'Put text and expressions in quotation marks, as in theta = "Gamma(25, 1)".',
    ),
    (r"^\d{1,3}([, ]\d{3})+\b(?!,)", "Write large numbers without commas, as in 10000, and decimals with a point."),
    (r"^[-+]?\d+,\d", "Write decimal numbers with a point."),
    (r"^[^#]*//", "Comments start with #."),
    (r"^[-+\d.]+\s*[-+*/^]+\s*[\d(]", "Only plain numbers can stand here: work it out, and write the result."),
    (r"^[$€£]|^[-+\d.]+\s*[%A-Za-z$€£]", "Write the number alone, without a unit or a sign."),
)
"""What a value after an equals sign looks like, and what was probably meant."""
_HINTS_WITHOUT_SIGN = (
    (r"^\s*\[", "The parts of a table's name are joined by dots, as in [release.count]."),
    (":", "Write name = value, as in value = 37.4; a table's name stands in brackets, as in [parameters]."),
)


class _Scanner:
    """Walks over valid TOML and notes where keys and values start."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.places: dict[Path, Offsets] = {}
        self.arrays: dict[Path, int] = {}
        self._document()

    def _document(self) -> None:
        table: Path = ()
        while True:
            self._blank(newlines=True)
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _blank(self, newlines: bool) -> None:
        """Skip spaces and comments, and newlines where they mean nothing."""
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif character in " \t" or (newlines and character == "\n"):
                self.at += 1
            else:
                return

    def _header(self) -> Path:
        start = self.at
        double = self.text.startswith("[[", self.at)
        self.at += 2 if double else 1
        names = self._key()
        self.at += 2 if double else 1
        table: Path = ()
        for number, name in enumerate(names):
            table = (*table, name)
            last = number == len(names) - 1
            if double and last:
                self.arrays[table] = self.arrays.get(table, -1) + 1
            self.places.setdefault(table, Offsets(start, start))
            if last and not double:
                self.places[table] = Offsets(start, start)
            if table in self.arrays:
                table = (*table, self.arrays[table])
                self.places.setdefault(table, Offsets(start, start))
        return table

    def _key(self) -> list[str]:
        """The parts of a dotted key; moves past it, and past the blanks behind it."""
        names = []
        while True:
            self._blank(newlines=False)
            if self.text[self.at] in "\"'":
                first = self.at
                self._string()
                quoted = self.text[first : self.at]
                names.append(tomllib.loads(f"k = {quoted}")["k"])
            else:
                bare = _BARE.match(self.text, self.at)
                assert bare is not None  # tomllib accepted the text
                names.append(bare[0])
                self.at = bare.end()
            self._blank(newlines=False)
            if self.text[self.at] != ".":
                return names
            self.at += 1

    def _pair(self, table: Path) -> None:
        start = self.at
        names = self._key()
        for number in range(1, len(names)):
            self.places.setdefault((*table, *names[:number]), Offsets(start, start))
        self.at += 1  # the equals sign
        self._blank(newlines=False)
        self._value((*table, *names), start)

    def _value(self, path: Path, key: int) -> None:
        start = self.at
        character = self.text[self.at]
        characters: tuple[int, ...] = ()
        if character in "\"'":
            characters = self._string()
        elif character == "[":
            self._items("]", lambda number: self._value((*path, number), self.at))
        elif character == "{":
            self._items("}", lambda _: self._pair(path))
        else:
            while self.at < len(self.text) and self.text[self.at] not in ",]}#\n":
                self.at += 1
        self.places[path] = Offsets(key, start, characters)

    def _items(self, closing: str, item: Callable[[int], None]) -> None:
        """Move past brackets or braces and the items in them; `item(number)` moves past one, and commas are between."""
        self.at += 1
        for number in itertools.count():
            self._blank(newlines=True)
            if self.text[self.at] == closing:
                self.at += 1
                return
            item(number)
            self._blank(newlines=True)
            if self.text[self.at] == ",":
                self.at += 1

    def _string(self) -> tuple[int, ...]:
        """Move past a string; the offset of each character of its value, and of its end."""
        quote = self.text[self.at]
        ends = quote * 3 if self.text.startswith(quote * 3, self.at) else quote
        self.at += len(ends)
        if len(ends) == 3 and self.text.startswith("\n", self.at):
            self.at += 1
        offsets: list[int] = []
        while not self.text.startswith(ends, self.at) or (
            self.text.startswith(ends + quote, self.at) and len(ends) == 3
        ):
            if quote == '"' and self.text[self.at] == "\\":
                self._escape(offsets)
            else:
                offsets.append(self.at)
                self.at += 1
        offsets.append(self.at)
        self.at += len(ends)
        return tuple(offsets)

    def _escape(self, offsets: list[int]) -> None:
        after = self.text[self.at + 1]
        if after in " \t\n":  # a line ending in a backslash: what follows is joined
            self.at += 1
            while self.text[self.at] in " \t\n":
                self.at += 1
            return
        offsets.append(self.at)
        self.at += 2 + _ESCAPES.get(after, 0)


# Writing -----------------------------------------------------------------------------------------------------------


def to_toml(content: Mapping[str, Any], table: Path = ()) -> str:
    """Content as TOML text: plain values first, then tables; what is None is left out."""
    plain = {key: value for key, value in content.items() if not isinstance(value, Mapping) and value is not None}
    lines = [f"{_written_key(key)} = {written(value)}" for key, value in plain.items()]
    if table and (lines or not any(isinstance(value, Mapping) for value in content.values())):
        lines.insert(0, f"[{'.'.join(_written_key(str(name)) for name in table)}]")
    text = "\n".join(lines) + "\n" if lines else ""
    for key, value in content.items():
        if isinstance(value, Mapping):
            inner = to_toml(value, (*table, key))
            text += ("\n" if text else "") + inner
    return text


def _written_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else written(key)


def written(value: Any) -> str:
    """A value as TOML spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{_written_key(key)} = {written(item)}" for key, item in value.items() if item is not None)
        return "{ " + ", ".join(pairs) + " }"
    return "[" + ", ".join(written(item) for item in value) + "]"
