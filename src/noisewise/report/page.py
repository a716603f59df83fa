"""What all reports share: the page around the sections, and the sections that a posterior and a fit have alike."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path, PurePath
from typing import Any, ClassVar

import numpy as np

from noisewise import checks
from noisewise._version import __version__
from noisewise.axes import Axes
from noisewise.errors import refusal
from noisewise.model import Model
from noisewise.release import Release
from noisewise.report import described, graph, words
from noisewise.report.markup import (
    Html,
    bullets,
    code,
    html_table_of,
    joined,
    listed,
    number,
    paragraphs,
    saved,
    tag,
    whole,
)
from noisewise.report.model_words import words_of_nodes
from noisewise.report.verdict import Verdict
from noisewise.results.fit import Fit
from noisewise.results.labels import label_of
from noisewise.results.naming import Naming
from noisewise.results.posterior import Posterior

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""No script, no image or font from elsewhere, no form: the browser enforces it."""
MOST_ROWS = 60
MOST_SENTENCES = 8
NAIVE = (
    "The naive analysis takes each published value for the confidential one, as if it carried no noise. It is here to "
    "show what that mistake would claim; only the exact analysis is right."
)
BESIDE = "Naive beside exact"
MARKS = {"good": "✓", "note": "i", "look": "!", "bad": "✗"}
MARK_NAMES = {"good": "fine", "note": "note", "look": "look again", "bad": "wrong"}

NUMBERS = ("answer", "naive", "cost")
WARNING = tag(
    "p", tag("strong", f"{MARKS['bad']} These numbers should not be used: see the verdict."), class_="warning"
)
"""Stands over the sections in `NUMBERS` where the verdict is bad."""


Section = tuple[str, str, Html]
"""Key, heading, content."""


@dataclass(frozen=True, eq=False)
class Shown:
    """What every report holds; `Report` adds the posterior, `FitReport` the fit."""

    kind: ClassVar[tuple[str, type, str]]
    """Attribute and class of the result, and the verb that returns it."""

    model: Model
    release: Release
    _: KW_ONLY
    question: str = ""
    title: str = ""
    naive: Posterior | Fit | None = None
    no_naive: str = ""
    """Why there is no naive analysis, where there is none."""
    level: float = 0.95
    content: Mapping[str, Any] = field(default_factory=dict)
    """Tables of the analysis file, for the laws as they were written."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Files to replay from, by name, shown in full."""
    replay: str = ""
    """The command that gives the same numbers again."""
    finished: str = ""
    seed: int | None = None
    """The seed that was given; that of the algorithm differs where it ran as a fallback."""

    def __post_init__(self) -> None:
        who, (name, kind, verb) = type(self).__name__, self.kind
        for attribute, required in (("model", Model), ("release", Release), (name, kind)):
            if not isinstance(getattr(self, attribute), required):
                advice = f"Give the model, the release and what {verb} returned."
                raise refusal(who, attribute, f"must be a {required.__name__}", getattr(self, attribute), advice)
        release_hash = getattr(self, name).release_hash
        if release_hash != self.release.hash:
            raise refusal(who, name, "must be of this release", release_hash, "Give the release it was made from.")
        checks.level(who, self.level)

    @cached_property
    def naming(self) -> Naming:
        """What people call the quantities."""
        return Naming.of(self.content)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the numbers may be used, and why."""
        raise NotImplementedError

    def html(self) -> str:
        """The whole file."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file."""
        return saved(self.html(), path, f"{type(self).__name__}.save")


def around(report: Shown, makers: Sequence[Callable[[Any], Section | None]]) -> str:
    """The whole HTML file: head, links, the sections that there are, foot."""
    title = report.title.strip() or "What a private release tells"
    sections = [content for content in (section(report) for section in makers) if content is not None]
    links = [tag("li", tag("a", heading, href=f"#{key}")) for key, heading, _ in sections]
    parts = [
        tag(
            "section",
            tag("h2", heading, id=f"{key}-title"),
            WARNING if report.verdict.state == "bad" and key in NUMBERS else None,
            body,
            id=key,
            aria_labelledby=f"{key}-title",
        )
        for key, heading, body in sections
    ]
    body = tag(
        "body",
        tag("a", "Skip to the report", href="#content", class_="skip"),
        tag("header", tag("p", "Report of an exact analysis of a private release", class_="kicker"), tag("h1", title)),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag("main", *parts, id="content", tabindex="-1"),
        tag("footer", tag("p", _footer(report))),
    )
    return page_of(title, body)


def page_of(title: str, body: Html) -> str:
    """A whole HTML file with the report's head: its style, and a policy that fetches nothing."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"noisewise {__version__}"),
        tag("title", f"{title}: report"),
        tag("style", Html(resources.files("noisewise.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en-GB')}\n"


def _footer(report: Shown) -> str:
    when = f"Run finished {report.finished}. " if report.finished else ""
    contents = "This file holds everything it shows; it loads nothing and runs nothing."
    return f"{when}Written by noisewise {__version__}. {contents}"


def question(report: Shown, answers_of: Callable[[Any], list[str]]) -> Section:
    """The question, the verdict and, unless that is bad, the short answer."""
    text = paragraphs(report.question) if report.question.strip() else tag("p", _default_question(report))
    verdict = report.verdict
    box = tag(
        "div",
        tag("p", tag("strong", f"{MARKS[verdict.state]} Verdict: {verdict.title}"), class_="verdict-title"),
        tag("p", verdict.explanation),
        class_=f"verdict {verdict.state}",
    )
    answers = [] if verdict.state == "bad" else answers_of(report)
    short = joined([tag("h3", "The short answer"), bullets(answers)]) if answers else None
    return "question", "The question", joined([text, box, short])


def _default_question(report: Shown) -> str:
    sought = listed(list(report.model.parameters)) or "the confidential statistics"
    return (
        f"What do the published values of {listed(list(report.release))} tell about {sought}, their privacy noise "
        "taken into account?"
    )


def published(report: Shown) -> Section:
    """What was published, with which noise and which promise."""
    sentences = bullets(described.published(report.release))
    rows = []
    for name, item in report.release.items():
        axes = Axes({name: tuple(item.coords)}, item.coords)
        for index in np.ndindex(item.shape):
            label = label_of(name, index, axes)
            value = np.asarray(item.value)[index]
            rows.append((label, "withheld" if np.isnan(value) else whole(value, 6), type(item.mechanism).__name__))
    values = long_table("Published values", ("Statistic", "Value", "Mechanism"), rows, "published-table")
    promised = bullets(described.promised(report.release))
    return (
        "published",
        "What was published",
        joined([sentences, values, tag("h3", "What privacy was promised"), promised]),
    )


def long_table(caption: str, columns: Iterable[str], rows: list[Any], key: str) -> Html:
    """A table of the first rows; a long one says what is left out."""
    shown = html_table_of(caption, list(columns), rows[:MOST_ROWS], key)
    left = len(rows) - MOST_ROWS
    note = f"{left:,} more rows are in the files of the analysis." if left > 0 else None
    return joined([shown, tag("p", note, class_="quiet") if note else None])


def model(report: Shown) -> Section:
    """The model as a graph and in sentences."""
    nodes = words_of_nodes(report.model, report.release, report.content)
    picture = tag(
        "div", graph.graph(nodes), class_="scroll", role="region", aria_label="Graph of the model", tabindex="0"
    )
    caption = (
        "From left to right: what is unknown, what the curator computed and kept, and what was published. "
        "An arrow says that the one depends on the other. Double frames are published."
    )
    drawn = tag("figure", picture, tag("figcaption", caption))
    return "model", "The model", joined([drawn, tag("h3", "The model in words"), graph.described(nodes)])


def pictures(cards: Sequence[Html], keys: Sequence[Html], caption: str) -> Html:
    """Pictures side by side, with what their colours and marks mean."""
    legend, grid = tag("ul", *keys, class_="legend"), tag("div", *cards, class_="grid")
    return joined([tag("h3", "Pictures"), legend, tag("p", caption), grid])


def legend_key(kind: str, meaning: str, mark: str = "") -> Html:
    """What a colour or a mark of the pictures means."""
    return tag("li", tag("span", mark, class_=f"key {kind}", aria_hidden="true"), meaning)


def card(label: str, picture: Html, caption: str) -> Html:
    """One picture with its name and what it shows in words."""
    return tag("figure", picture, tag("figcaption", tag("strong", label), f". {caption}"), class_="card")


def beside(title: str, said: Sequence[Any], table: Any, named: Callable[[str], str], note: str) -> Section:
    """Naive beside exact: sentences, then the table, whose rows `named` names, and what its columns mean."""
    rows = [(named(str(label)), *(number(value, 4) for value in row)) for label, row in table.iterrows()]
    titles = ("Parameter", *(column_title(str(column)) for column in table.columns))
    shown = long_table(title, titles, rows, "naive-table")
    return "naive", BESIDE, joined([tag("p", NAIVE), *said, shown, tag("p", note, class_="quiet")])


def nothing_beside(report: Shown) -> Section:
    """Why there is no naive analysis."""
    return "naive", BESIDE, tag("p", f"There is no naive analysis to set beside the exact one: {why_not(report)}.")


def why_not(report: Shown) -> str:
    """Why there is no naive analysis: for lack of a density, in plain words; else by the reason that was given."""
    own = {name: name if item.of is None else item.of.statistic for name, item in report.release.items()}
    silent = [name for name in report.release if not report.model.has_density(own[name])]
    if silent:
        return f"the model can simulate {listed(silent)} but has no formula to fit a value taken at its word"
    message = report.naive.message if report.naive is not None else "it was not asked for"
    return (report.no_naive or message).rstrip(".")


def column_title(column: str) -> str:
    """A pandas column's name as a table's heading."""
    return column[:1].upper() + column[1:].replace(" sd", " SD")


def trust(report: Shown, how: str) -> Section:
    """The verdict, each check behind it, and how it was computed."""
    verdict = report.verdict
    items = [
        tag(
            "li",
            tag("strong", f"{MARKS[check.state]} {check.title} ({MARK_NAMES[check.state]}). "),
            check.explanation,
            class_=check.state,
        )
        for check in verdict.checks
    ]
    lead = tag("p", tag("strong", f"{verdict.title}. "), verdict.explanation)
    return "trust", "Can it be trusted?", joined([lead, tag("ul", *items, class_="checks"), tag("p", how)])


def cite(report: Shown) -> Section:
    """The software and the paper."""
    link = tag("a", f"doi:{words.DOI}", href=f"https://doi.org/{words.DOI}")
    paper = joined([f"{words.PAPER} ", link])
    return (
        "cite",
        "How to cite",
        joined([tag("p", "The software, and the paper whose method it is:"), bullets([words.SOFTWARE, paper])]),
    )


def replay(report: Shown, command: str, facts: list[tuple[str, str]], versions: Mapping[str, str]) -> Section:
    """The command, what the run was made with, and the inputs in full."""
    lead = "The same inputs, seed and versions give the same numbers on the same kind of processor:"
    facts = [
        *facts,
        ("Release (SHA-256)", report.release.hash),
        *((f"Version of {name}", version) for name, version in versions.items()),
    ]
    inputs = dict(report.inputs) or {"release.json": json.dumps(report.release.to_dict(), indent=2)}
    files = [
        tag("details", tag("summary", PurePath(name).name), code(content, f"The file {PurePath(name).name}"), open=True)
        for name, content in inputs.items()
    ]
    body = [tag("p", lead), code(command, "Command"), html_table_of("The run", ("What", "Value"), facts, "run-table")]
    return "replay", "How to replay", joined([*body, tag("h3", "Inputs"), *files])
