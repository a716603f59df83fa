"""From the tables of an analysis file to a model and a release, each refusal with its place in the text."""

import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

from noisewise import checks
from noisewise.analysis.design_table import DesignSettings, read_design, single_choice
from noisewise.analysis.expressions import (
    CONSTANTS,
    Constants,
    Expression,
    ExpressionError,
    parse_answer,
    parse_law,
    parse_number,
    together,
)
from noisewise.analysis.file_words import in_file_words
from noisewise.analysis.mistakes import cause_in_words, mistake_in_words
from noisewise.analysis.release_table import entries_and_tables, to_content
from noisewise.analysis.settings import Settings, argument_below, read_settings, table_at
from noisewise.analysis.toml import Document, FileError
from noisewise.analysis.wording import dims_and_labels, read_words
from noisewise.errors import InputError, NoisewiseWarning, Path
from noisewise.inference.problem import Problem
from noisewise.mechanisms import CATALOGUE
from noisewise.model import Model, Total
from noisewise.release import Release

TABLES = (
    *("question", "answers", "parameters", "statistics", "totals", "means", "dims", "words", "release", "inference"),
    *("likelihood", "design"),
)
"""In the order in which a file is written."""
SUMS = ("totals", "means")
"""Tables of statistics that are sums or means over records."""
MODEL = ("parameters", "statistics", *SUMS, "answers", "dims", "words")
"""Tables that a model is made of."""
MOST_KEPT = 8
"""Models that are kept for the next file with the same tables: a page reads its file at every change of it."""


class Reader:
    """Reads one document. `folder` is where a release file is looked for; None refuses one."""

    def __init__(
        self, document: Document, folder: FilePath | None, confined: bool, constants: Constants | None = None
    ) -> None:
        self.document, self.folder, self.confined = document, folder, confined
        self.constants = {**CONSTANTS, **(single_choice(document) if constants is None else constants)}
        self.notes: list[str] = []
        self.expressions: dict[Path, Expression] = {}

    def everything(self) -> dict[str, Any]:
        """Model, release, settings and the question, as `Analysis` takes them."""
        content = self.document.content
        question = self._question()
        model = self.model()
        release = self.release(model)
        settings = read_settings(self.document, model.parameters)
        self._check_together(model, release, settings)
        if "design" in content:
            read_design(self.document, model, settings.level, self.constants)
        title, text = question.get("title", ""), question.get("text", "")
        parts = {"title": title, "question": text, "notes": tuple(self.notes)}
        return parts | {"model": model, "release": release, "settings": settings}

    def _question(self) -> dict[str, Any]:
        """The table [question]; other tables than those of an analysis file are refused."""
        content = self.document.content
        for name in content:
            if name not in TABLES:
                cause = f"'{name}' is not a table of an analysis file. {checks.nearest(name, TABLES)}"
                raise self.document.error((name,), cause, key=True)
        question = table_at(self.document, ("question",), ("title", "text"))
        for key, value in question.items():
            if not isinstance(value, str):
                raise self.document.error(("question", key), f"'{key}' must be text in quotation marks.")
        return question

    def planned(self) -> dict[str, Any]:
        """Model, settings and what [design] asks for, as `DesignFile` takes them; a release is not looked at."""
        question = self._question()
        model = self.model()
        settings = read_settings(self.document, model.parameters)
        design: DesignSettings = read_design(self.document, model, settings.level, self.constants)
        title, text = question.get("title", ""), question.get("text", "")
        return {"title": title, "question": text, "model": model, "settings": settings, "design": design}

    # The model ---------------------------------------------------------------------------------------

    def model(self) -> Model:
        """The tables [parameters], [statistics], [totals] and [means]."""
        priors = table_at(self.document, ("parameters",), None)
        laws = table_at(self.document, ("statistics",), None)
        sums = [(kind, name) for kind in SUMS for name in table_at(self.document, (kind,), None)]
        self.places = self._declared(priors, laws, sums)
        outside = [name for name, path in self.places.items() if path[0] != "answers"]
        prior = {name: self._law(("parameters", name), text, list(priors)) for name, text in priors.items()}
        if not laws and not sums:
            example = 'Add [statistics] with, say, count = "Poisson(theta)".'
            raise self.document.error(("statistics",), f"the file must name at least one statistic. {example}")
        statistics: dict[str, Any] = {n: self._law(("statistics", n), text, outside) for n, text in laws.items()}
        statistics |= {path[1]: self._total(path, outside) for path in sums}
        self._refuse_cycles()
        derived = self._answers(outside)
        dims, coords = dims_and_labels(read_words(self.document, self.places), self._dims())
        made = _made_of(repr([self.constants, *((name, self.document.content.get(name)) for name in MODEL)]))
        if not made:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = self._located(lambda: Model(prior, statistics, dims=dims, coords=coords, derived=derived))
            made.append((model, caught))
        model, caught = made[0]
        for warning in caught:
            if isinstance(warning.message, NoisewiseWarning):
                self.notes.append(in_file_words(warning.message.cause))
            else:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        return model

    def _declared(self, priors: dict[str, Any], laws: dict[str, Any], sums: list[tuple[str, str]]) -> dict[str, Path]:
        """Every parameter, statistic and answer with its place; refuses names that are not allowed or are used twice.

        Fields of records may have the same name in different tables, but not that of anything else.
        """
        paths: list[Path] = [("parameters", name) for name in priors]
        paths += [("statistics", name) for name in laws] + list(sums)
        paths += [("answers", name) for name in table_at(self.document, ("answers",), None)]
        fields: list[Path] = []
        for own in sums:
            table_at(self.document, own, ("n", "contribution", "record"))
            fields += [(*own, "record", field) for field in table_at(self.document, (*own, "record"), None)]
        places: dict[str, Path] = {}
        for path in [*paths, *fields]:
            name = str(path[-1])
            reason = (
                "it stands for a number in [design]" if name in {*self.constants} - {*CONSTANTS} else _no_name(name)
            )
            if reason is not None:
                raise self.document.error(path, f"'{name}' cannot be a name: {reason}.", key=True)
            if name in places:
                earlier = ".".join(map(str, places[name][:-1]))
                cause = f"'{name}' is used twice: it stands in [{earlier}] already. Rename one of them."
                raise self.document.error(path, cause, key=True)
            if path in paths:
                places[name] = path
        return places

    def _answers(self, outside: list[str]) -> dict[str, Callable[..., Any]]:
        """The table [answers]: a function for each, which may use parameters, statistics and the answers above it."""
        known, answers = list(outside), {}
        for name, text in table_at(self.document, ("answers",), None).items():
            path: Path = ("answers", name)
            if not isinstance(text, str):
                raise self.document.error(path, 'must be an expression in quotation marks, such as "mu_1 - mu_2".')
            answers[name] = self._parsed(parse_answer, path, text, known).function()
            known.append(name)
        return answers

    def _dims(self) -> dict[str, tuple[str, ...]]:
        """The table [dims]: names of axes, in the words of the release's `names`."""
        dims = {}
        for name, axes in table_at(self.document, ("dims",), None).items():
            if name not in self.places:
                cause = f"'{name}' is not a parameter or a statistic. {checks.nearest(name, self.places)}"
                raise self.document.error(("dims", name), cause, key=True)
            dims[name] = tuple(axes) if isinstance(axes, list) else (axes,)
        return dims

    def _law(self, path: Path, text: Any, known: list[str]) -> Callable[..., Any]:
        if not isinstance(text, str):
            raise self.document.error(path, 'must be a law in quotation marks, such as "Gamma(25, 1)".')
        return self._parsed(parse_law, path, text, known).function()

    def _parsed(self, parse: Callable[..., Expression], path: Path, text: str, known: list[str]) -> Expression:
        try:
            expression = self.expressions[path] = parse(text, known, path, self.constants)
        except ExpressionError as error:
            raise self.document.error(path, error.cause, at=error.start) from None
        return expression

    def _total(self, path: tuple[str, str], outside: list[str]) -> Total:
        """A sum or mean over records."""
        kind, name = path
        stated = table_at(self.document, path, ("n", "contribution", "record"))
        for key in ("n", "contribution", "record"):
            if key not in stated:
                raise self.document.error(path, f"'{key}' is missing for the {kind[:-1]} '{name}'.")
        record = table_at(self.document, (*path, "record"), None)
        if not record:
            raise self.document.error((*path, "record"), "a record needs at least one field.")
        known = [*outside, *record]
        laws = {field: self._law((*path, "record", field), text, known) for field, text in record.items()}
        texts = stated["contribution"] if isinstance(stated["contribution"], list) else [stated["contribution"]]
        if not texts or not all(isinstance(text, str) for text in texts):
            cause = 'must be an expression in quotation marks, such as "clip(x, 0, 1)", or a list of them.'
            raise self.document.error((*path, "contribution"), cause)
        parts = []
        for number, text in enumerate(texts):
            listed = isinstance(stated["contribution"], list)
            place: Path = (*path, "contribution", number) if listed else (*path, "contribution")
            parts.append(self._parsed(parse_number, place, text, known))
        size = self.constants.get(stated["n"], stated["n"]) if isinstance(stated["n"], str) else stated["n"]
        self._check_size(path, size, outside)
        if kind == "means":
            parts = [part.divided_by(size) for part in parts]
        contribution = together(parts) if isinstance(stated["contribution"], list) else parts[0].function()
        if not {used for part in parts for used in part.names} & set(record):
            cause = f"'contribution' must depend on the record. {checks.nearest('', record)}"
            raise self.document.error((*path, "contribution"), cause)
        self._refuse_cycles()
        return self._located(lambda: Total(laws, contribution, size))

    def _check_size(self, path: Path, n: Any, outside: list[str]) -> None:
        if isinstance(n, str) and path[0] == "means":
            cause = "'n' of a mean must be a whole number. Where it is unknown, model the sum, as [totals.NAME]."
            raise self.document.error((*path, "n"), cause)
        if isinstance(n, str) and n not in outside:
            cause = f"'n' must be a whole number, or the name of a parameter. {checks.nearest(n, outside)}"
            raise self.document.error((*path, "n"), cause)
        if not isinstance(n, str) and (not isinstance(n, int) or isinstance(n, bool) or not 1 <= n < 2**40):
            raise self.document.error((*path, "n"), "'n' must be a whole number, at least 1, or a parameter's name.")

    def _refuse_cycles(self) -> None:
        """Refuse a name that depends on itself, directly or through others, at the place where it does."""
        needs: dict[str, dict[str, Path]] = {}
        for path, expression in self.expressions.items():
            within = path[:2] if len(path) > 2 else None  # a sum over records, whose fields are its own
            fields = [] if within is None else table_at(self.document, (*within, "record"), None)
            names = [f"{path[1]}: {name}" if name in fields else name for name in expression.names]
            own = f"{path[1]}: {path[3]}" if path[2:3] == ("record",) else str(path[1])
            needs.setdefault(own, {}).update(dict.fromkeys(names, path))
            if within is not None:  # a total needs what its records need
                needs.setdefault(str(path[1]), {}).update(dict.fromkeys(names, path))
        for name, direct in needs.items():
            for parent, path in direct.items():
                reached, pending = set(), [parent]
                while pending:
                    current = pending.pop()
                    if current not in reached:
                        reached.add(current)
                        pending.extend(needs.get(current, ()))
                if name in reached:
                    name, parent = (each.rpartition(": ")[2] for each in (name, parent))
                    mention = re.search(rf"\b{re.escape(parent)}\b", self.expressions[path].text)
                    cause = f"'{name}' depends on itself, through '{parent}'. Break the circle."
                    raise self.document.error(path, cause, at=mention.start() if mention else 0)

    def _located(self, build: Callable[[], Any]) -> Any:
        """What `build` returns; where it refuses, the error says where in the file."""
        try:
            return build()
        except FileError:
            raise
        except InputError as error:
            raise self._placed(error) from None

    def _placed(self, error: InputError) -> FileError:
        inner: BaseException | None = error
        while inner is not None:
            if isinstance(inner, ExpressionError):
                return self.document.error(inner.label, inner.cause, at=inner.start)
            inner = inner.__cause__
        path: Path = ()
        if error.path[:1] == ("release",):
            path = error.path
        elif error.path[2:3] == ("record",):
            path = (*self.places[str(error.path[1])], *error.path[2:])
        elif error.path[:1] == ("dims",):
            path = error.path if error.path in self.document.places else ()
        elif error.path:
            path = self.places.get(str(error.path[-1]), ())
        elif error.argument is not None:  # model and release do not fit
            value: Path = ("release", error.argument, "value")
            path = value if value in self.document.places else self.places.get(error.argument, ("release",))
        return self.document.error(argument_below(self.document, path, error), cause_in_words(error))

    # The release -------------------------------------------------------------------------------------

    def release(self, model: Model) -> Release:
        """The table [release], written out or as a file."""
        value = self.document.content.get("release")
        if isinstance(value, str):
            return self._release_file(("release",), value)
        stated = table_at(self.document, ("release",), None)
        if isinstance(stated.get("file"), str):
            table_at(self.document, ("release",), ("file", "use"))
            return self._used(stated, self._release_file(("release", "file"), stated["file"]))
        entries, beside = entries_and_tables(stated)
        use = stated.get("use")
        if not entries:
            example = 'Add [release.NAME] with value and mechanism, or [release] with file = "release.json".'
            if "design" in self.document.content:
                example += " Without one, it is for: noisewise design."
            raise self.document.error(("release",), f"the file must hold a release. {example}")
        for name, entry in entries.items():
            self._check_entry(name, entry, model, used=not isinstance(use, list) or name in use)
        try:
            return self._used(stated, Release.from_dict(to_content(entries, beside), "release"))
        except FileError:
            raise
        except InputError as error:
            raise self._placed_in_release(error) from None

    def _used(self, stated: dict[str, Any], release: Release) -> Release:
        """The statistics that `use` names, or all of them."""
        if "use" not in stated:
            return release
        path: Path = ("release", "use")
        if not isinstance(stated["use"], list) or not stated["use"]:
            raise self.document.error(path, "'use' must be a list of statistics, such as [\"count\"].")
        for number, name in enumerate(stated["use"]):
            if not isinstance(name, str) or name not in release:
                cause = f"{name!r} is not a statistic of the release. {checks.nearest(name, release)}"
                raise self.document.error((*path, number), cause)
        return release.select(*stated["use"])

    def _check_entry(self, name: str, entry: Any, model: Model, used: bool) -> None:
        path: Path = ("release", name)
        if name not in model.statistics and used:
            cause = f"'{name}' is not a statistic of the model. {checks.nearest(name, model.statistics)}"
            raise self.document.error(path, cause, key=True)
        if not isinstance(entry, dict):
            raise self.document.error(path, f"must be a table: write [release.{name}] on a line of its own.", key=True)
        for key in ("value", "mechanism"):
            if key not in entry:
                misspelt = next((entry_key for entry_key in entry if entry_key.lower() == key), None)
                if misspelt is not None:
                    cause = f"'{misspelt}' must be written in small letters, '{key}'."
                    raise self.document.error((*path, misspelt), cause, key=True)
                raise self.document.error(path, f"'{key}' is missing for the release of '{name}'.")
        kind = entry["mechanism"]
        if not isinstance(kind, str) or kind not in CATALOGUE:
            cause = f"{kind!r} is not a mechanism. {checks.nearest(kind, CATALOGUE)}"
            raise self.document.error((*path, "mechanism"), cause)
        allowed = [*CATALOGUE[kind].arguments, "value", "mechanism", "guarantee", "names", "about"]
        for key in entry:
            if key not in allowed:
                cause = f"'{key}' is not an argument of {kind}. {checks.nearest(key, allowed)}"
                raise self.document.error((*path, key), cause, key=True)

    def _placed_in_release(self, error: InputError) -> FileError:
        """A refusal of `Release.from_dict`, at the argument that it refuses."""
        below = error.path[1:] if error.path[:1] == ("statistics",) else error.path
        path: Path = ("release", *("names" if key == "axes" else key for key in below))
        while path not in self.document.places and len(path) > 1:
            path = path[:-1]
        place = argument_below(self.document, path, error)
        hint = " Leave out the quotation marks." if _is_quoted_number(self.document.at(place)) else ""
        return self.document.error(place, cause_in_words(error) + hint)

    def _release_file(self, path: Path, name: str) -> Release:
        if self.folder is None:
            raise self.document.error(path, "a release file cannot be read here: write the release out in the text.")
        file = self.folder / name
        try:
            if self.confined and not file.resolve().is_relative_to(self.folder.resolve()):
                raise self.document.error(path, "the release file must lie in the folder of the analysis file.")
            if file.exists() and not file.is_file():  # a pipe would be waited for
                raise self.document.error(path, "the release file must be a plain file.")
            return Release.load(file)
        except FileError:
            raise
        except (ValueError, OSError) as error:  # InputError among them
            reason = mistake_in_words(error) if isinstance(error, InputError) else str(error)
            raise self.document.error(path, f"the release file cannot be used: {reason}") from None

    def _check_together(self, model: Model, release: Release, settings: Settings) -> None:
        """Refuse a release or a method that the model does not fit."""
        for name in release:
            if name not in model.statistics:
                advice = f"{checks.nearest(name, model.statistics)} To leave it out, name the others in 'use'."
                cause = f"'{name}' of the release is not a statistic. {advice}"
                raise self.document.error(("release",), cause)
        problem = self._located(lambda: Problem(model, release))
        against = None if settings.method is None else settings.method.unfit(problem)
        if against is not None:
            kind = type(settings.method).__name__
            cause = f"{kind} does not apply here: it {against}. Leave 'method' out, and one that applies is chosen."
            raise self.document.error(("inference", "method"), cause)


@lru_cache(MOST_KEPT)
def _made_of(tables: str) -> list[tuple[Model, list[warnings.WarningMessage]]]:
    """A cached list that the caller fills: the model of these tables with its programs, and its warnings."""
    return []


def _no_name(name: str) -> str | None:
    """Why a name in the file is not allowed, in words; None where it is."""
    try:
        checks.name("file", "name", name)
    except InputError as error:
        if not name.replace("_", "a").isalnum() or name[:1].isdigit():
            return (
                "it must be letters, digits and underscores, and begin with a letter. Labels for people are in [words]"
            )
        if not name.isidentifier() or error.rule == checks.NO_ARGUMENT:
            return "the word has a meaning of its own. Rename it, for example to 'theta' or 'count'"
        return f"it {error.rule}. {error.advice}".rstrip(".")
    return None


def _is_quoted_number(value: Any) -> bool:
    try:
        return isinstance(value, str) and float(value) is not None
    except ValueError:
        return False
