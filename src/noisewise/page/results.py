"""The right half of the page: the run that is shown, and other privacy budgets."""

import asyncio
import base64
import io
from typing import TYPE_CHECKING, Any

from shiny import Inputs, Session, reactive, render, req, ui

from noisewise.page.design import design_ui
from noisewise.page.elements import amount, downloads, report_link, scrolling_table
from noisewise.page.runs import REPLICATES, SIMULATING, Run
from noisewise.page.watching import watched
from noisewise.report.short_answer import percent

if TYPE_CHECKING:
    from noisewise.page.runs import Runs

STATES = {
    "waiting": "waits in the queue",
    "running": "running",
    "done": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
}
STEPS: tuple[int, int, float] = (-4, 4, 0.5)
"""The slider's range, in doublings of the budget."""


def bar_ui() -> Any:
    """Run, progress and Cancel, always in sight."""
    return ui.tags.div(
        ui.input_action_button("run", "Run", class_="btn-primary"),
        ui.input_action_button("design", "Run design", class_="btn-primary", disabled=True),
        ui.input_action_button("cancel", "Cancel", disabled=True),
        ui.div(ui.output_ui("state", role="status"), ui.output_ui("bar"), class_="progress-of-run"),
        ui.output_ui("run_message", role="alert"),
        class_="runbar",
        role="region",
        aria_label="Run",
    )


def results_ui() -> Any:
    """Result and other budgets."""
    return ui.div(
        ui.tags.section(
            ui.h2("Result", id="result-title"),
            ui.output_ui("result"),
            aria_labelledby="result-title",
        ),
        ui.tags.section(
            ui.h2("What could still be learnt at another epsilon", id="epsilon-title"),
            _slider(),
            ui.output_ui("exploring", role="status"),
            ui.div(ui.input_action_button("stop", "Stop exploring", disabled=True), class_="actions"),
            ui.output_ui("explored"),
            aria_labelledby="epsilon-title",
        ),
    )


def _slider() -> Any:
    low, high, step = STEPS
    return ui.div(
        ui.tags.label("Privacy budget (less noise to the right):", for_="epsilon"),
        " ",
        ui.tags.output("", id="epsilon_text", for_="epsilon"),
        ui.tags.input(
            id="epsilon",
            class_="noisewise-range",
            type="range",
            min=str(low),
            max=str(high),
            step=str(step),
            value="0",
            disabled="",  # until there is a run to explore
        ),
        ui.p("Move it once a run has finished. Each place it rests at adds a row.", class_="quiet"),
    )


def results_server(input: Inputs, session: Session, runs: "Runs", shown: Any) -> None:
    """The server side of the right half: progress, the result, and other budgets."""

    @watched(lambda: runs.version)
    def news() -> int:
        return runs.version

    @watched(lambda: tuple((run.number, run.state) for run in runs))
    def states() -> Any:
        return tuple(runs)

    def current() -> Run | None:
        return runs.get(shown())

    _progress(input, runs, current, news, states)
    _exploration(input, session, runs, current, states)

    @render.ui
    def result() -> Any:
        states()
        run = current()
        if run is not None and run.over and run.result is None:
            return ui.p(f"Run {run.number} gave no answer.", class_="quiet")
        if run is None or run.result is None:
            return ui.p("The answer comes here when a run has finished.", class_="quiet")
        return design_ui(run) if run.is_design else result_ui(run)


def run_state(run: Run) -> str:
    """A run's state in words; one that fell short is not simply finished."""
    short_of = run.result is not None and run.result.get("status", "complete") != "complete"
    return "finished, but fell short" if short_of else STATES[run.state]


def _progress(input: Inputs, runs: "Runs", current: Any, news: Any, states: Any) -> None:
    @render.ui
    def state() -> Any:
        states()
        run = current()
        if run is None:
            return ui.p("Nothing was run yet. Press Run when the analysis file is in order.")
        seconds = f" in {run.seconds:.1f} s" if run_state(run) == "finished" and run.seconds else ""
        line = ui.p(f"Run {run.number}: {run_state(run)}{seconds}. ", _below(run))
        title = ui.p(run.title, class_="quiet clamped")  # after the state, since a title may be long
        return ui.div(line, title, ui.div(ui.p(run.message), class_="wrong") if run.message else None)

    @render.ui
    def bar() -> Any:
        news()
        run = current()
        if run is None or run.over:
            return None
        extent = {"value": str(run.done), "max": str(run.total)} if run.total else {}
        counted = "simulated releases" if run.is_design else "draws"
        text = f"{run.stage}: {run.done:,} of {run.total:,} {counted}" if run.total else run.stage or "starting"
        return ui.div(ui.tags.progress(aria_label="Progress of the run", **extent), ui.p(text, class_="quiet"))

    @reactive.effect
    def _enable() -> None:
        states()
        run = current()
        ui.update_action_button("cancel", disabled=run is None or run.over)

    @reactive.effect
    @reactive.event(input.cancel)
    def _cancel() -> None:
        run = current()
        if run is not None:
            runs.cancel(run.number)


def _below(run: Run) -> Any:
    """A link to the result, which on a phone lies far below."""
    return None if run.result is None else ui.tags.a("See the result", href="#result-title", class_="to-result")


# What a finished run shows ------------------------------------------------------------------------------------


def result_ui(run: Run) -> Any:
    """Picture, table, verdict and files of a finished run."""
    result = run.result or {}
    more = result["scalars"] - len(result["rows"])
    heads = ("", "", "mean", "sd", f"{100 * result['level']:g}% interval")
    return ui.div(
        verdict_ui(result["verdict"]),
        ui.p(report_link(run, "Open the report"), class_="actions"),
        cards_ui(result),
        scrolling_table(heads, _rows(result), "Prior, naive and exact") if result["rows"] else None,
        ui.p(f"{more} more in the files.", class_="quiet") if more > 0 else None,
        ui.p(_how(result), class_="quiet"),
        downloads(run),
    )


def cards_ui(result: Any) -> Any:
    """Pictures of prior, naive and exact with their intervals; the quantities asked for come first."""
    if not result["cards"]:
        return None
    kinds = {"exact": "exact: counts the noise", "naive": "naive: ignores the noise", "prior": "prior: before"}
    drawn = {card["label"] for card in result["cards"]}
    rows = [row for row in result["rows"] if row.get("label", row["name"]) in drawn]
    shown = [kind for kind in kinds if any(row[kind] is not None for row in rows)]
    keys = [ui.tags.li(ui.tags.span(class_=f"key {kind}", aria_hidden="true"), kinds[kind]) for kind in shown]
    figures = [
        ui.tags.figure(ui.HTML(card["svg"]), ui.tags.figcaption(ui.tags.strong(card["label"])), class_="card-of-result")
        for card in result["cards"]
    ]
    return ui.div(ui.tags.ul(keys, class_="legend"), ui.div(figures, class_="cards"))


def _how(result: Any) -> str:
    return f"By {result['sampler']}: {result['reason']}." if result["reason"] else f"By {result['sampler']}."


def verdict_ui(verdict: Any) -> Any:
    """The verdict in words."""
    lines = [ui.p(line) for line in verdict["lines"]]
    kind = {"good": "found", "look": "doubtful"}.get(verdict["state"], "wrong")
    more = ui.p("The report says more, and what to do.", class_="quiet")
    return ui.div(ui.h3(verdict["title"]), lines, more, class_=kind, id="verdict")


def _rows(result: Any) -> list[Any]:
    rows = []
    for row in result["rows"]:
        called = row.get("label", row["name"])
        name = f"{called} (confidential)" if row.get("confidential", not row["parameter"]) else called
        kinds = [kind for kind in ("prior", "naive", "exact") if row[kind] is not None]
        for kind in kinds:
            first = ui.tags.th(name, scope="rowgroup", rowspan=str(len(kinds))) if kind == kinds[0] else None
            cells = [ui.tags.td(text) for text in (kind, *_numbers(row[kind], row.get("chance", False)))]
            rows.append(ui.tags.tr(first, cells, class_=f"kind-{kind}"))
    return rows


def _numbers(numbers: Any, is_chance: bool) -> tuple[str, str, str]:
    """Mean, standard deviation and interval; of a yes-or-no question, its probability alone."""
    mean, sd, low, high = numbers
    if is_chance:
        return percent(mean), "", ""
    return amount(mean), amount(sd), amount(low) if low == high else f"{amount(low)} to {amount(high)}"


# Other budgets ------------------------------------------------------------------------------------------------


def _exploration(input: Inputs, session: Session, runs: "Runs", current: Any, states: Any) -> None:
    asked: reactive.Value[Any] = reactive.Value(None)
    _asking(input, session, runs, current, states, asked)

    @watched(lambda: [job.state for job in runs.explorations])
    def moved() -> int:
        return runs.version

    _stopping(input, runs, moved, asked)
    _exploring(runs, asked)

    @render.ui
    async def explored() -> Any:
        moved()
        run = current()
        req(run is not None and run.result is not None)
        explorations = runs.explored(run)
        if not explorations:
            return None
        picture = await asyncio.to_thread(widths_picture, run.result, explorations)
        return explored_ui(run.result, explorations, picture)


def _asking(input: Inputs, session: Session, runs: "Runs", current: Any, states: Any, asked: Any) -> None:
    """The slider: its scale is that of the run shown, and the budget at which it rests is explored."""

    @reactive.effect
    def _scale() -> None:
        states()
        run = current()
        ready = run is not None and run.explorable
        epsilon = (run.result or {}).get("epsilon") if run is not None and ready else None
        session.send_input_message("epsilon", {"epsilon": epsilon, "ready": ready})

    @reactive.effect
    @reactive.event(input.epsilon, ignore_init=True)
    def _ask() -> None:
        run, step = current(), input.epsilon()
        low, high, _ = STEPS
        if run is not None and run.explorable and isinstance(step, (int, float)) and low <= step <= high:
            asked.set(runs.explore(run, 2.0 ** (round(2 * step) / 2)))


def _stopping(input: Inputs, runs: "Runs", moved: Any, asked: Any) -> None:
    @reactive.effect
    @reactive.event(input.stop)
    def _stop() -> None:
        if asked() is not None:
            runs.stop(asked())

    @reactive.effect
    def _enable() -> None:
        moved()
        ui.update_action_button("stop", disabled=asked() is None or asked().over)


def _exploring(runs: "Runs", asked: Any) -> None:
    """Shows how far the exploration is that was asked for last."""

    @watched(lambda: [(job.state, job.reached.get(SIMULATING, 0)) for job in runs.explorations])
    def counted() -> int:
        return runs.version

    @render.ui
    def exploring() -> Any:
        counted()
        job = asked()
        if job is None or job.state == "done":
            return None
        if job.state == "failed":
            return ui.div(ui.p(job.message), class_="wrong")
        if job.state == "cancelled":
            return ui.p("Stopped.")
        done = job.reached.get(SIMULATING, 0)
        return ui.p(f"Simulating releases at this budget: {done} of {REPLICATES} done …")


def budget_in_words(result: Any, factor: float) -> str:
    """A budget as text: its epsilon where there is one, else as a multiple of the release's budget."""
    return f"{result['epsilon'] * factor:.3g}" if result["epsilon"] else f"{factor:.3g} times"


def explored_ui(result: Any, explorations: list[Any], picture: str) -> Any:
    """A row for each budget and parameter, and a picture of the widths."""
    level = f"{100 * explorations[0]['level']:g}%"
    rows = []
    for exploration in explorations:
        for row in exploration["rows"][:4]:
            same = "not known" if row["same"] is None else " to ".join(map(amount, row["same"]))
            width = "not known" if row["expected"] is None else f"{amount(row['expected'])} ± {amount(row['spread'])}"
            first = ui.tags.th(budget_in_words(result, exploration["factor"]), scope="row")
            rows.append(ui.tags.tr(first, [ui.tags.td(text) for text in (row["name"], width, same)]))
    failed = sum(exploration["failed"] for exploration in explorations)
    releases = max((row["releases"] for exploration in explorations for row in exploration["rows"]), default=0)
    note = (
        f"Expected width: the {level} interval's width, averaged over {releases} releases simulated at that budget "
        "from what this run found (± their standard deviation). Same value: the interval, had the published value "
        "carried that noise."
    )
    heads = ("epsilon" if result["epsilon"] else "budget", "", "expected width", "same value")
    return ui.div(
        ui.img(src=picture, class_="widths", alt=_widths_in_words(result, explorations)),
        scrolling_table(heads, rows, "Other budgets"),
        ui.p(note, class_="quiet"),
        ui.p(f"{failed} simulated releases gave no posterior with so few draws and are left out.", class_="quiet")
        if failed
        else None,
    )


def _widths_in_words(result: Any, explorations: list[Any]) -> str:
    first = [(exploration["factor"], exploration["rows"][0]) for exploration in explorations if exploration["rows"]]
    if not first:
        return "No budget gave an answer."
    widths = [f"{budget_in_words(result, factor)}: {amount(row['expected'])}" for factor, row in first]
    return f"Expected width of the interval of {first[0][1]['name']} by budget. " + "; ".join(widths) + "."


def widths_picture(result: Any, explorations: list[Any]) -> str:
    """Expected widths against the budget, as a data URL; the prior's and this run's widths for comparison."""
    from matplotlib.figure import Figure

    rows = {row["name"]: row for row in result["rows"]}
    explorations = [exploration for exploration in explorations if exploration["rows"]]
    names = [name for name in rows if explorations and rows[name]["parameter"]][:3]
    figure = Figure(figsize=(3.6 * len(names) + 0.8, 3.0), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for at, (axis, name) in enumerate(zip(axes, names, strict=True)):
        points = [
            (exploration["factor"], row)
            for exploration in explorations
            for row in exploration["rows"]
            if row["name"] == name
        ]
        _widths_panel(axis, result["epsilon"] or 1.0, rows[name], points)
        axis.set(xlabel="epsilon" if result["epsilon"] else "budget, times the release's")
        axis.set_title(name, parse_math=False)
        axis.set_ylabel("width of interval" if at == 0 else "")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def _widths_panel(axis: Any, base: float, row: Any, points: list[tuple[float, Any]]) -> None:
    bars = [(base * factor, point["expected"], point["spread"] or 0.0) for factor, point in points if point["expected"]]
    if bars:
        budgets, widths, spreads = zip(*bars, strict=True)
        axis.errorbar(budgets, widths, yerr=spreads, fmt="o-", color="#4477AA", capsize=3, label="expected")
    axis.plot([base], [row["exact"][3] - row["exact"][2]], "D", color="#000000", label="this run")
    if row["prior"]:
        axis.axhline(row["prior"][3] - row["prior"][2], color="#228833", linestyle="--", label="prior")
    low, high, _ = STEPS
    ticks = [base * 2.0**power for power in range(low, high + 1, 2)]
    axis.set(xscale="log", xlim=(base * 2.0 ** (low - 0.5), base * 2.0 ** (high + 0.5)))
    axis.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_ylim(bottom=0)
    axis.spines[["top", "right"]].set_visible(False)
