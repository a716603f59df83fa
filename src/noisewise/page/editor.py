"""The left half of the page: the release, the analysis file, and the button that runs it."""

import asyncio
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiny import Inputs, reactive, render, req, ui

from noisewise.analysis import Analysis, FileError, starter
from noisewise.analysis.analysis import STARTERS
from noisewise.errors import NoisewiseError
from noisewise.page import release_text
from noisewise.page.guard import LARGEST_BODY
from noisewise.page.job_queue import Full

if TYPE_CHECKING:
    from noisewise.page.runs import Runs

WHERE = "analysis file"
COMMON = ("Laplace", "Gaussian", "DiscreteLaplace", "DiscreteGaussian", "RandomizedResponse")
"""Mechanisms that stand first in the list."""
ORDERED = (*COMMON, *(name for name in release_text.MECHANISMS if name not in COMMON))
STARTER_LABELS = {
    "count": "One count",
    "rate": "A count per 100,000 people",
    "response": "A delicate question, by randomised response",
    "means": "Two clamped means and their difference",
    "histogram": "A histogram",
    "survey": "A survey by region, partially pooled",
    "regression": "A regression from clamped sums",
}


@dataclass(frozen=True)
class Checked:
    """An analysis file's text as it was read: what it holds, or what is wrong with it."""

    text: str
    title: str = ""
    summary: str = ""
    error: str = ""
    place: str = ""
    """The line of the error, with a caret."""


@lru_cache(maxsize=32)
def check(text: str) -> Checked:
    """Read the text as `noisewise check` reads the file; nothing is taken from disk."""
    try:
        text.encode("utf-8")
        analysis = Analysis.from_text(text, WHERE)
    except UnicodeEncodeError:
        return Checked(text, error="The text holds characters that no file can hold. Type it anew.")
    except FileError as error:
        return Checked(text, error=error.headline, place=error.excerpt)
    except NoisewiseError as error:
        return Checked(text, error=str(error))
    settings = analysis.settings
    summary = (
        f"In order. Parameters: {', '.join(analysis.model.parameters)}. Released: {', '.join(analysis.release)}. "
        f"{settings.draws:,} draws, seed {settings.seed}."
    )
    return Checked(text, analysis.title or "untitled", " ".join([summary, *analysis.notes]))


def editor_ui() -> Any:
    """Release, model, and what to do with them."""
    return ui.div(
        ui.tags.section(
            ui.h2("1. Model", id="model-title"),
            ui.input_select("starter", "Start from", {name: STARTER_LABELS.get(name, name) for name in STARTERS}),
            ui.div(ui.input_action_button("use_starter", "Use this starter"), class_="actions"),
            ui.p("It replaces the analysis file below.", class_="quiet"),
            aria_labelledby="model-title",
        ),
        ui.tags.section(
            ui.h2("2. Release", id="release-title"),
            ui.input_file("upload", "Load a release file", accept=[".json"], button_label="Choose file"),
            ui.tags.details(
                ui.tags.summary("Or type a published value"),
                _form_ui(),
            ),
            ui.output_ui("release_message", role="status"),
            aria_labelledby="release-title",
        ),
        ui.tags.section(
            ui.h2("3. Analysis file", id="analysis-title"),
            ui.input_text_area(
                "analysis",
                "Edit it as you like: it is checked as you type",
                starter(STARTERS[0]),
                rows=22,
                spellcheck="false",
            ),
            ui.output_ui("check_message", role="status"),
            ui.div(ui.input_action_button("run", "Run", class_="btn-primary"), class_="actions"),
            ui.output_ui("run_message", role="alert"),
            aria_labelledby="analysis-title",
        ),
    )


def _form_ui() -> Any:
    return ui.div(
        ui.input_text("statistic", "Statistic (its name in the model)", "count"),
        ui.input_text("value", "Published value: 37.4, or [103, 188]", ""),
        ui.input_select("mechanism", "Noise (mechanism)", list(ORDERED)),
        ui.output_ui("alternative_ui"),
        ui.output_ui("arguments_ui"),
        ui.div(ui.input_action_button("use_value", "Put into the analysis file"), class_="actions"),
    )


def _argument_ui(mechanism: str, name: str, needed: bool) -> Any:
    words = release_text.choices(mechanism, name)
    label = name if needed else f"{name} (optional)"
    if words is None:
        return ui.input_text(f"argument_{name}", label)
    return ui.input_select(f"argument_{name}", label, words if needed else ["", *words])


def message(text: str, wrong: bool = False, place: str = "") -> Any:
    """A framed message, with a place in the text where there is one."""
    shown = ui.tags.pre(place, class_="place", tabindex="0") if place else None
    return ui.div(ui.p(text), shown, class_="wrong" if wrong else "found")


def editor_server(input: Inputs, runs: "Runs", shown: Any) -> None:
    """What the left half does."""
    said: reactive.Value[Any] = reactive.Value(None)
    checked = _checking(input)
    _releasing(input, said)

    @reactive.effect
    @reactive.event(input.use_starter)
    def _use_starter() -> None:
        name = input.starter()
        ui.update_text_area("analysis", value=starter(name if name in STARTERS else STARTERS[0]))

    @render.ui
    def release_message() -> Any:
        return said()

    answer: reactive.Value[Any] = reactive.Value(None)

    @render.ui
    def run_message() -> Any:
        return answer()

    @reactive.effect
    @reactive.event(input.run)
    async def _run() -> None:
        text = input.analysis()
        outcome = await asyncio.to_thread(check, text)
        if outcome.error:
            answer.set(message("Not run: the analysis file must be mended first.", wrong=True))
            return
        try:
            run = runs.start(text, outcome.title)
        except Full as error:
            answer.set(message(str(error), wrong=True))
            return
        answer.set(ui.p(f"Run {run.number} was asked for: ", ui.tags.a("see the result", href="#result-title"), "."))
        shown.set(run.number)

    @render.ui
    def check_message() -> Any:
        outcome = checked.result()
        return message(outcome.error or outcome.summary, bool(outcome.error), outcome.place)


def _checking(input: Inputs) -> Any:
    """Reads the text whenever typing pauses, beside the page's own thread."""

    @reactive.extended_task
    async def checked(text: str) -> Checked:
        return await asyncio.to_thread(check, text)

    @reactive.effect
    def _changed() -> None:
        checked.cancel()
        checked.invoke(input.analysis())

    return checked


def _releasing(input: Inputs, said: Any) -> None:
    """The two ways to put a release into the text."""

    def put(make: Any) -> None:
        try:
            text = make(input.analysis())
        except NoisewiseError as error:
            said.set(message(str(error), wrong=True))
            return
        ui.update_text_area("analysis", value=text)
        said.set(message("The release is in the analysis file."))

    @reactive.effect
    @reactive.event(input.upload)
    def _upload() -> None:
        files = req(input.upload())
        with Path(files[0]["datapath"]).open("rb") as opened:  # where the server put it, under a name of its own
            content = opened.read(LARGEST_BODY + 1)
        put(lambda text: release_text.with_release(text, release_text.from_upload(content)))

    @render.ui
    def alternative_ui() -> Any:
        names = release_text.alternatives(_mechanism(input))
        if len(names) < 2:
            return None
        return ui.input_select(
            "alternative", "Given by", {str(at): " and ".join(arguments) for at, arguments in enumerate(names)}
        )

    @render.ui
    def arguments_ui() -> Any:
        mechanism = _mechanism(input)
        needed = _needed(input, mechanism)
        return [_argument_ui(mechanism, name, True) for name in needed] + [
            _argument_ui(mechanism, name, False) for name in release_text.optional(mechanism)
        ]

    @reactive.effect
    @reactive.event(input.use_value)
    def _use_value() -> None:
        mechanism = _mechanism(input)
        names = [*_needed(input, mechanism), *release_text.optional(mechanism)]
        typed = {name: str(input[f"argument_{name}"]()) for name in names}
        name = input.statistic().strip()
        put(
            lambda text: release_text.with_statistic(
                text, name, release_text.from_form(name, input.value(), mechanism, typed)
            )
        )


def _mechanism(input: Inputs) -> str:
    name = input.mechanism()
    return name if name in release_text.MECHANISMS else COMMON[0]


def _needed(input: Inputs, mechanism: str) -> list[str]:
    """The arguments of the chosen alternative."""
    names = release_text.alternatives(mechanism)
    if not names:
        return []
    if len(names) == 1 or "alternative" not in input:
        return names[0]
    chosen = input.alternative()
    at = int(chosen) if isinstance(chosen, str) and chosen.isdigit() else 0
    return names[at if at < len(names) else 0]
