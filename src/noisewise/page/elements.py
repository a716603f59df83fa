"""Elements that several parts of the page have: tables that scroll by themselves, links to files, numbers."""

from typing import Any

from shiny import ui

from noisewise.notebook import for_people
from noisewise.page.runs import FILES, Run


def scrolling_table(heads: Any, rows: Any, name: str) -> Any:
    """A table that scrolls by itself where the window is narrow."""
    head = ui.tags.tr([ui.tags.th(text, scope="col") for text in heads])
    element = ui.tags.table(ui.tags.thead(head), ui.tags.tbody(rows))
    return scrolling(element, name)


def scrolling(inner: Any, name: str) -> Any:
    """A part that scrolls sideways by itself, by keyboard too."""
    return ui.div(inner, class_="scroll", tabindex="0", role="region", aria_label=name)


def report_link(run: Run, text: str = "report") -> Any:
    """A link that opens a run's report in a new tab; None where the run has no report."""
    if run.file("report.html") is None:
        return None
    label = f"{text}: of run {run.number}, in a new tab"
    return ui.tags.a(text, href=f"report/{run.number}", target="_blank", rel="noopener", aria_label=label)


def downloads(run: Run) -> Any:
    """Links to those files of a run that exist."""
    links = [
        ui.tags.li(ui.tags.a(label, href=f"files/{run.number}/{name}", download=""))
        for name, (label, _) in FILES.items()
        if run.file(name) is not None
    ]
    return ui.div(ui.h3("Download"), ui.tags.ul(links, class_="files"))


def amount(number: float | None) -> str:
    """A number for people; "not known" in place of None."""
    return "not known" if number is None else for_people(number)
