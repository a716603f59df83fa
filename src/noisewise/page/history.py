"""The list of runs, and ticked runs side by side: what was changed in their files, and what they found."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shiny import Inputs, reactive, render, ui

from noisewise.analysis import toml as toml_text
from noisewise.page.elements import amount, report_link, scrolling_table
from noisewise.page.results import run_state
from noisewise.page.runs import Run
from noisewise.page.watching import watched
from noisewise.report.short_answer import percent

if TYPE_CHECKING:
    from noisewise.page.runs import Runs

LISTED = 20
"""Runs in the list, at most: the newest ones."""
MOST_COMPARED = 4
"""Runs side by side."""
MOST_CHANGES = 20
"""Lines of files that differ, at most."""
ABSENT = "\N{EM DASH}"
HINT = "Tick two to four runs to see side by side what was changed and what came out."


def history_ui() -> Any:
    """The list, and the runs side by side."""
    return ui.tags.section(
        ui.h2("Runs", id="runs-title"),
        ui.input_select("shown", "Show", {"": "none yet"}),
        ui.output_ui("history"),
        ui.output_ui("side_by_side", role="status"),
        aria_labelledby="runs-title",
    )


def history_server(input: Inputs, runs: "Runs", shown: Any) -> None:
    """The server side of the list: the run that is shown, and the runs that are compared."""

    @watched(lambda: tuple((run.number, run.state) for run in runs))
    def listed() -> tuple[Run, ...]:
        return tuple(runs)

    def ticked() -> list[int]:
        numbers = input.compared() if "compared" in input else ()
        return [number for number in numbers or () if isinstance(number, int)]

    @reactive.effect
    def _choices() -> None:
        choices = {str(run.number): f"{run.number}: {run.title} ({run_state(run)})" for run in listed()}
        ui.update_select("shown", choices=choices or {"": "none yet"}, selected=str(shown() or ""))

    @reactive.effect
    @reactive.event(input.shown)
    def _choose() -> None:
        number = input.shown()
        if isinstance(number, str) and number.isdigit() and runs.get(int(number)) is not None:
            shown.set(int(number))

    @render.ui
    def history() -> Any:
        present = listed()
        with reactive.isolate():
            chosen = ticked()
        return _list(present[:LISTED], chosen) if present else None

    @render.ui
    def side_by_side() -> Any:
        listed()
        ticked_runs = [runs.get(number) for number in sorted(ticked())]
        compared = [run for run in ticked_runs if run is not None and run.has_answer]
        if not 2 <= len(compared) <= MOST_COMPARED:
            return ui.p(HINT, class_="quiet") if sum(run.has_answer for run in runs) > 1 else None
        return compared_ui(compared)


def _list(runs: Sequence[Run], chosen: Sequence[int]) -> Any:
    rows = [
        ui.tags.tr(
            ui.tags.td(_tick(run, run.number in chosen)),
            ui.tags.th(str(run.number), scope="row", class_="count"),
            ui.tags.td(ui.div(run.title, class_="clamped", title=run.title), class_="title"),
            ui.tags.td(first_answer(run), class_="answer"),
            ui.tags.td(run_state(run)),
            ui.tags.td(run.when),
            ui.tags.td(report_link(run)),
            ui.tags.td(_reopening(run)),
        )
        for run in runs
    ]
    return scrolling_table(
        ("compare", "run", "title", "first answer", "state", "started", "report", "file"), rows, "Runs"
    )


def _tick(run: Run, is_ticked: bool) -> Any:
    if not run.has_answer:
        return None
    ticked = {"checked": ""} if is_ticked else {}
    label = f"compare run {run.number} with others"
    return ui.tags.input(type="checkbox", class_="compare", data_run=str(run.number), aria_label=label, **ticked)


def first_answer(run: Run) -> str:
    """A run in one line: mean and interval of the first quantity asked for; of a design, what it found."""
    if run.result is not None and run.is_design:
        return str(run.result["short"])
    rows = run.result["rows"] if run.result is not None else []
    return f"{rows[0].get('label', rows[0]['name'])}: {_in_short(rows[0])}" if rows else ""


def _in_short(row: Mapping[str, Any]) -> str:
    mean, _, low, high = row["exact"]
    if row.get("chance"):
        return percent(mean)
    return f"{amount(mean)} ({amount(low)} to {amount(high)})"


def _reopening(run: Run) -> Any:
    return ui.tags.button(
        "open again",
        type="button",
        class_="btn btn-link reopen",
        data_run=str(run.number),
        aria_label=f"open the analysis file of run {run.number} again",
    )


# Side by side -------------------------------------------------------------------------------------------------------


def compared_ui(runs: Sequence[Run]) -> Any:
    """Runs side by side: what differs in their files, and what they found, every quantity on one scale."""
    heads = ("", *(f"run {run.number}" for run in runs))
    changed = [_row(name, cells) for name, cells in changes([_file(run) for run in runs])]
    verdicts = _row("verdict", [run.result["verdict"]["title"] if run.result else ABSENT for run in runs])
    rows = [_row(label, _cells(numbers)) for label, numbers in quantities_of_runs(runs)]
    levels = {run.result["level"] for run in runs if run.result}
    level = f"{100 * levels.pop():g}% interval" if len(levels) == 1 else "interval"
    return ui.div(
        ui.h3("Side by side: what was changed"),
        scrolling_table(heads, changed, "What was changed") if changed else ui.p("Nothing: the files say the same."),
        ui.h3(f"Side by side: what came out (mean, {level})"),
        scrolling_table(heads, [verdicts, *rows], "What came out"),
    )


def _row(name: str, cells: Sequence[Any]) -> Any:
    return ui.tags.tr(ui.tags.th(name, scope="row", class_="title"), [ui.tags.td(cell) for cell in cells])


def _file(run: Run) -> dict[str, str]:
    """The lines of a run's file: the table and the key, and the value as TOML writes it."""
    path = run.file("analysis.toml")
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # changed by hand since
        return {}
    return _lines(content)


def _lines(content: Mapping[str, Any], above: str = "") -> dict[str, str]:
    lines: dict[str, str] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            lines |= _lines(value, f"{above}.{key}" if above else key)
        else:
            lines[f"[{above}] {key}" if above else key] = toml_text.written(value)
    return lines


def changes(files: Sequence[Mapping[str, str]]) -> list[tuple[str, list[str]]]:
    """Lines that are not the same in all files: the name of each, and what every file says."""
    names = dict.fromkeys(name for file in files for name in file)
    said = [(name, [file.get(name, ABSENT) for file in files]) for name in names]
    return [(name, values) for name, values in said if len(set(values)) > 1][:MOST_CHANGES]


def quantities_of_runs(runs: Sequence[Run]) -> list[tuple[str, list[Any]]]:
    """Every quantity that some run has: what it is called, and each run's row of it, or None."""
    rows = [{row["name"]: row for row in run.result["rows"]} for run in runs if run.result]
    names = dict.fromkeys(name for row in rows for name in row)
    return [
        (
            next(str(row[name].get("label", name)) for row in rows if name in row),
            [row.get(name) for row in rows],
        )
        for name in names
    ]


def _cells(rows: Sequence[Any]) -> list[Any]:
    known = [end for row in rows if row is not None for end in row["exact"][2:4] if end is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    return [ABSENT if row is None else ui.div(_in_short(row), _bar(row, low, high)) for row in rows]


def _bar(row: Mapping[str, Any], low: float, high: float) -> Any:
    """The interval and the mean as a line and a dot, on the scale of all runs; the text beside says the same."""
    mean, _, start, end = row["exact"]
    if row.get("chance") or start is None or end is None or not high > low:
        return None

    def at(value: float) -> str:
        return f"{4 + 92 * min(1.0, max(0.0, (value - low) / (high - low))):.1f}"

    line = f'<line x1="{at(start)}" x2="{at(end)}" y1="5" y2="5"/>'
    dot = "" if mean is None else f'<circle cx="{at(mean)}" cy="5" r="3"/>'
    return ui.HTML(f'<svg class="interval" viewBox="0 0 100 10" aria-hidden="true">{line}{dot}</svg>')
