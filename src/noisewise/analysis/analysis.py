"""The analysis file: a question, a model, a release and settings in one TOML text, for people who do not program.

Laws and contributions are expressions (expressions.py), never code. Every refusal is a `FileError`: file, line and
column, the line itself with a caret, the cause, the nearest valid name. docs/analysis-file.md.
"""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Self

from noisewise import checks
from noisewise._version import __version__
from noisewise.analysis import toml as toml_text
from noisewise.analysis.design_table import PEOPLE, DesignSettings, choices_of
from noisewise.analysis.reader import TABLES, Reader
from noisewise.analysis.release_table import to_table
from noisewise.analysis.settings import Settings
from noisewise.analysis.toml import Document, FileError
from noisewise.errors import refusal
from noisewise.model import Model
from noisewise.release import Release

LABELS = {
    "count": "One count",
    "rate": "A count per 100,000 people",
    "response": "A delicate question, by randomised response",
    "means": "Two clamped means and their difference",
    "histogram": "A histogram",
    "survey": "A survey by region, partially pooled",
    "regression": "A regression from clamped sums",
    "design": "A plan: which epsilon does a question need?",
}
"""The commented starter files, and what each is about."""
KINDS = tuple(LABELS)
STARTERS = tuple(kind for kind in KINDS if kind != "design")
"""The starters that can be fitted: a design has no release yet."""


@dataclass(frozen=True, eq=False)
class Analysis:
    """What an analysis file says, checked: `Analysis.load("analysis.toml")`."""

    model: Model
    release: Release
    settings: Settings
    title: str = ""
    question: str = ""
    notes: tuple[str, ...] = ()
    """Warnings about what is legal but perhaps not meant."""
    text: str = field(default="", repr=False)
    """The file as it was given."""
    where: str = "analysis.toml"
    content: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The file's tables as plain data, expressions as text."""

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, confined: bool = False) -> Self:
        """Read an analysis file. `confined`: the release file it may name must lie in the same folder or below."""
        text = text_of(path, "Analysis.load")
        return cls.from_text(text, str(path), folder=Path(path).parent, confined=confined)

    @classmethod
    def from_text(
        cls,
        text: str,
        where: str = "analysis.toml",
        *,
        folder: str | os.PathLike[str] | None = None,
        confined: bool = True,
    ) -> Self:
        """Read an analysis from text; `where` names it in messages.

        A release file is looked for from `folder`; without one it is refused. `confined` keeps it inside that folder.
        """
        document = toml_text.from_toml(text, where)
        reader = Reader(document, None if folder is None else Path(folder), confined)
        parts = reader.everything()
        return cls(**parts, text=document.text, where=where, content=document.content)

    def with_settings(self, *, draws: int | None = None, seed: int | None = None) -> Self:
        """The same analysis with other draws or another seed, where given."""
        changes: dict[str, Any] = {
            name: value for name, value in (("draws", draws), ("seed", seed)) if value is not None
        }
        for name, least in (("draws", 1), ("seed", 0)):
            if name in changes:
                checks.integer("Analysis", name, changes[name], least=least, advice="Give a whole number.")
        inference = {**self.content.get("inference", {}), **changes}
        content = {**self.content, "inference": inference} if changes else self.content
        return replace(self, settings=replace(self.settings, **changes), content=content)

    def to_text(self) -> str:
        """The analysis as one self-contained file: the release is written out, comments are gone."""
        inference = {"draws": self.settings.draws, "seed": self.settings.seed, "level": self.settings.level}
        content = {**self.content, "release": self._stated_release()}
        content["inference"] = {**inference, **self.content.get("inference", {})}
        ordered = {name: content[name] for name in TABLES if name in content}
        return f"# Written by noisewise {__version__}. Run it again with: noisewise fit FILE\n\n" + toml_text.to_toml(
            ordered
        )

    def _stated_release(self) -> dict[str, Any]:
        inline = self.content.get("release")
        if isinstance(inline, Mapping) and not isinstance(inline.get("file"), str):
            return dict(inline)
        return to_table(self.release)


@dataclass(frozen=True, eq=False)
class DesignFile:
    """An analysis file whose [design] is asked about; it need not hold a release: `DesignFile.load("plan.toml")`."""

    model: Model
    settings: Settings
    design: DesignSettings
    document: Document = field(repr=False)
    title: str = ""
    question: str = ""
    text: str = field(default="", repr=False)
    candidates: tuple[tuple[Mapping[str, Any], Model, Mapping[str, Any]], ...] = ()
    """Choice, model and plan of each candidate of [design.over]; `model` and `design` are the first one's."""

    @property
    def content(self) -> Mapping[str, Any]:
        """The file's tables as plain data, expressions as text."""
        return self.document.content

    @property
    def is_plan_only(self) -> bool:
        """Whether it cannot be fitted: it holds no release, or leaves more open than a budget."""
        return "release" not in self.content or bool(self.candidates) or self.design.people is not None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the file."""
        return cls.from_text(text_of(path, "DesignFile.load"), str(path))

    @classmethod
    def from_text(cls, text: str, where: str = "plan.toml") -> Self:
        """Read the file's text; `where` names it in messages."""
        document = toml_text.from_toml(text, where)
        if "design" not in document.content:
            raise document.error((), "the file must say what is to be designed. Add [design] with a target.")
        read = [(choice, Reader(document, None, True, choice).planned()) for choice in choices_of(document)]
        candidates = [(choice, parts["model"], parts["design"].plan) for choice, parts in read if len(read) > 1]
        return cls(**read[0][1], text=document.text, candidates=tuple(candidates), document=document)

    def of_size(self, n: int) -> tuple[Model, Mapping[str, Any]]:
        """The model and the plan for n people, where the file leaves their number open."""
        parts = Reader(self.document, None, True, {PEOPLE: n}).planned()
        return parts["model"], parts["design"].plan

    def candidate(self, choice: Mapping[str, Any]) -> tuple[Model, Mapping[str, Any]]:
        """The model and the plan of a choice."""
        return next((model, plan) for each, model, plan in self.candidates if each == choice)


def plan_of(text: str, where: str) -> DesignFile | None:
    """The plan in a file's text; None where it has no [design]."""
    has_design = "design" in toml_text.from_toml(text, where).content
    return DesignFile.from_text(text, where) if has_design else None


def text_of(path: Any, who: str) -> str:
    """The text of a file that a person wrote."""
    if not isinstance(path, (str, os.PathLike)) or not Path(path).is_file():
        hint = _alike(Path(path)) if isinstance(path, (str, os.PathLike)) else ""
        advice = f"{hint}Check the path, or write a starter with: noisewise new count."
        raise refusal(who, "path", "must be an existing file", str(path), advice)
    try:
        with Path(path).open("rb") as file:
            raw = file.read(4 * toml_text.LARGEST + 4)  # longer ones are refused where the text is read
        return raw.decode("utf-8")
    except OSError as error:
        raise refusal(who, "path", f"must be readable ({error})", str(path), "Check it.") from None
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", errors="replace")
        shown = raw.decode("utf-8", errors="replace")
        raise FileError(str(path), shown, len(before), "not UTF-8 text. Save the file as UTF-8.") from None


def _alike(path: Path) -> str:
    """A file in the same folder whose name is nearly this one, as a question."""
    files = [each.name for each in path.parent.glob("*.toml") if each.is_file()]
    close = difflib.get_close_matches(path.name, files, n=1)
    return f"Did you mean '{close[0]}'? " if close else ""


def starter(name: str) -> str:
    """A commented analysis file to begin with."""
    checks.known_name("new", "kind", name, KINDS, "must be the name of a starter")
    return resources.files("noisewise.analysis").joinpath("starters", f"{name}.toml").read_text(encoding="utf-8")


__all__ = ["KINDS", "LABELS", "STARTERS", "Analysis", "DesignFile", "FileError", "Settings", "plan_of", "starter"]
