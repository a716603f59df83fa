"""The report of a design: one self-contained HTML file that says which budget a question needs, and why."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from noisewise._version import __version__
from noisewise.report.figures import inline
from noisewise.report.markup import Html, code, html_table_of, paragraphs, saved, tag
from noisewise.report.page import page_of


@dataclass(frozen=True)
class DesignTable:
    """A table of the report: what it is about, what its columns are, and its cells as people read them."""

    key: str
    heading: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def html(self) -> Html:
        """The table, its first column naming the rows."""
        return html_table_of(self.caption, self.columns, self.rows, f"{self.key}-table")


@dataclass(frozen=True)
class DesignReport:
    """What a design found, in words, numbers and a picture."""

    title: str
    question: str
    answer: Sequence[str]
    """Sentences: the budget and how to split it, or the number of people."""
    tables: Sequence[DesignTable]
    """The plan, the candidates and the split, or the number of people; the curve is the last one."""
    drawn: str
    """The curve as matplotlib's SVG."""
    inputs: str
    """The text of the file that states the design."""

    @property
    def picture(self) -> Html:
        """The curve, to stand in a page."""
        caption = self.tables[-1].caption
        return inline(self.drawn, "curve-picture", caption, f"{caption}. {' '.join(self.answer)}")

    @property
    def html(self) -> str:
        """The whole file."""
        title = self.title.strip() or "Which release would answer the question"
        *found, curve = self.tables
        sections = [
            ("question", "The question", paragraphs(self.question) if self.question.strip() else None),
            ("answer", "The answer", Html("".join(tag("p", sentence) for sentence in self.answer))),
            *((each.key, each.heading, each.html) for each in found),
            ("curve", "The curve behind it", self.picture),
            (curve.key, curve.heading, curve.html),
            ("file", "The file", code(self.inputs, "The file")),
        ]
        parts = [
            tag("section", tag("h2", heading, id=f"{key}-title"), body, id=key, aria_labelledby=f"{key}-title")
            for key, heading, body in sections
            if body is not None
        ]
        body = tag(
            "body",
            tag("header", tag("p", "Report of a design, before any release", class_="kicker"), tag("h1", title)),
            tag("main", *parts, id="content", tabindex="-1"),
            tag("footer", tag("p", f"noisewise {__version__}. No confidential number was used.")),
        )
        return page_of(title, body)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a file."""
        return saved(self.html, path, "DesignReport.save")
