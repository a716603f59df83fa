"""What a finished design shows: the answer in words, the curve, and its tables. report/design.py makes them."""

from typing import Any

from shiny import ui

from noisewise.page.elements import downloads, report_link, scrolling_table
from noisewise.page.runs import Run


def design_ui(run: Run) -> Any:
    """Answer, report, curve, tables and files of a design."""
    result = run.result or {}
    *tables, curve = result["tables"]
    return ui.div(
        ui.div(
            ui.h3("The answer" if result["is_met"] else "Nothing in the range meets the target"),
            [ui.p(sentence) for sentence in result["sentences"]],
            class_="found" if result["is_met"] else "doubtful",
            id="answer",
        ),
        ui.p(report_link(run, "Open the report"), class_="actions"),
        [_table_ui(each) for each in tables],
        ui.h3("The curve behind it"),
        ui.tags.figure(ui.HTML(result["picture"]), class_="card-of-result curve"),
        _table_ui(curve),
        ui.p("No confidential number was used: a design spends no budget.", class_="quiet"),
        downloads(run),
        class_="design",
    )


def _table_ui(content: Any) -> Any:
    rows = [
        ui.tags.tr(ui.tags.th(row[0], scope="row"), [ui.tags.td(cell, class_=_kind(cell)) for cell in row[1:]])
        for row in content["rows"]
    ]
    name = content["caption"]
    return ui.div(
        ui.h3(content["heading"]), ui.p(name, class_="quiet"), scrolling_table(content["columns"], rows, name)
    )


def _kind(cell: str) -> str | None:
    """Long text, such as what noise does, breaks into lines; numbers do not."""
    return "words" if len(cell) > 24 else None
