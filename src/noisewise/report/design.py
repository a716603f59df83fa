"""The report of a design: one self-contained HTML file that says which budget a question needs, and why."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from noisewise._version import __version__
from noisewise.report.figures import inline
from noisewise.report.markup import Html, number, paragraphs, saved, table, tag
from noisewise.report.page import page_of


@dataclass(frozen=True)
class DesignReport:
    """What a design found, in words, numbers and a picture."""

    title: str
    question: str
    answer: Sequence[str]
    """Sentences: the budget and how to split it, or the number of people."""
    columns: Sequence[str]
    rows: Sequence[Sequence[float]]
    """The curve: a budget, or a number of people, and what it gives."""
    picture: str
    """The curve as SVG."""
    inputs: str
    """The file that was asked about."""

    @property
    def html(self) -> str:
        """The whole file."""
        title = self.title.strip() or "Which release would answer the question"
        cells = [[number(value) for value in row] for row in self.rows]
        axis = f"The target by {self.columns[0]}"
        words = f"{axis}. {' '.join(self.answer)}"
        sections = [
            ("question", "The question", paragraphs(self.question) if self.question.strip() else None),
            ("answer", "The answer", Html("".join(tag("p", sentence) for sentence in self.answer))),
            ("curve", "The curve behind it", inline(self.picture, "curve-picture", axis, words)),
            ("numbers", "The same in numbers", table(axis, self.columns, cells, "curve-numbers")),
            ("file", "The file", tag("pre", self.inputs)),
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
