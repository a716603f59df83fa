"""The layout of the page. editor.py and results.py hold its two halves, history.py the list of runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiny import App, Inputs, Outputs, Session, reactive, ui

from noisewise.page.editor import editor_server, editor_ui
from noisewise.page.history import history_server, history_ui
from noisewise.page.results import bar_ui, results_server, results_ui

if TYPE_CHECKING:
    from noisewise.page.runs import Runs

ASSETS = Path(__file__).parent / "assets"
WIDTHS: Any = {"sm": 12, "lg": (5, 7)}
INTRODUCTION = (
    "A published number with privacy noise is not the number itself. Say what was published and with which noise, say "
    "what you would have fitted to the confidential number, and get the posterior that is right for both."
)


def page_ui() -> Any:
    """The whole page."""
    return ui.page_fluid(
        ui.head_content(
            ui.tags.meta(name="viewport", content="width=device-width, initial-scale=1"),
            ui.tags.link(rel="stylesheet", href="assets/page.css"),
            ui.tags.link(rel="icon", href="assets/icon.svg", type="image/svg+xml"),
            ui.tags.script(src="assets/page.js", defer=""),
        ),
        ui.tags.header(ui.h1("noisewise"), ui.p(INTRODUCTION)),
        ui.tags.div(
            "The server is gone: it was stopped, or this computer slept. Start noisewise serve again and open the "
            "address that it prints. Your text is kept in this window: copy it from here.",
            id="gone",
            role="alert",
            hidden="",
        ),
        bar_ui(),
        ui.tags.main(ui.layout_columns(editor_ui(), results_ui(), col_widths=WIDTHS), history_ui()),
        title="noisewise",
        lang="en",
    )


def page_app(runs: "Runs") -> App:
    """The Shiny application over a folder's runs, which all its windows share."""

    def server(input: Inputs, output: Outputs, session: Session) -> None:
        shown: reactive.Value[int | None] = reactive.Value(next((run.number for run in runs), None))
        editor_server(input, session, runs, shown)
        results_server(input, session, runs, shown)
        history_server(input, runs, shown)

    return App(page_ui(), server, static_assets={"/assets": ASSETS})
