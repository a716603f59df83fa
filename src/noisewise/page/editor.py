"""The left half of the page: where to begin, the numbers in a form, and the analysis file, in step with each other."""

import asyncio
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiny import Inputs, Session, reactive, render, req, ui

from noisewise.analysis import Analysis, FileError, plan_of, starter
from noisewise.analysis.analysis import KINDS, LABELS
from noisewise.analysis.mistakes import mistake_in_words
from noisewise.errors import InputError, NoisewiseError
from noisewise.page import release_text
from noisewise.page.form import PageForm, form_of_analysis, with_prior, with_value
from noisewise.page.guard import LARGEST_BODY
from noisewise.page.job_queue import Full

if TYPE_CHECKING:
    from noisewise.page.runs import Runs

WHERE = "analysis file"
COMMON = ("Laplace", "Gaussian", "DiscreteLaplace", "DiscreteGaussian", "RandomizedResponse")
"""Mechanisms that stand first in the list."""
ORDERED = (*COMMON, *(name for name in release_text.MECHANISMS if name not in COMMON))


@dataclass(frozen=True)
class Checked:
    """An analysis file's text as it was read: what it holds, or what is wrong with it."""

    text: str
    title: str = ""
    summary: str = ""
    fits: bool = True
    """Whether it can be fitted, where it is in order."""
    designs: bool = False
    """Whether its [design] can be run."""
    error: str = ""
    place: str = ""
    """The line of the error, with a caret."""
    form: PageForm = field(default_factory=PageForm)


@lru_cache(maxsize=32)
def check_text(text: str) -> Checked:
    """Read the text as the command line reads the file; nothing is taken from disk."""
    try:
        text.encode("utf-8")
        return _in_order(text)
    except UnicodeEncodeError:
        return Checked(text, error="The text holds characters that no file can hold. Type it anew.")
    except FileError as error:
        return Checked(text, error=error.headline, place=error.excerpt)
    except NoisewiseError as error:
        return Checked(text, error=mistake_in_words(error))


def _in_order(text: str) -> Checked:
    """What a file holds: an analysis, a plan to be designed, or both."""
    plan = plan_of(text, WHERE)
    if plan is not None and plan.is_plan_only:
        planned = f"Parameters: {', '.join(plan.model.parameters)}. Planned: {', '.join(plan.design.plan)}."
        to_fit = "add a release" if "release" not in plan.content else "settle what [design] leaves open"
        said = f"In order, as a plan. {planned} Run design answers it; to fit, {to_fit}."
        return Checked(text, plan.title or "untitled", said, fits=False, designs=True, form=form_of_analysis(plan))
    analysis = Analysis.from_text(text, WHERE)
    settings = analysis.settings
    summary = (
        f"In order. Parameters: {', '.join(analysis.model.parameters)}. Released: {', '.join(analysis.release)}. "
        f"{settings.draws:,} draws, seed {settings.seed}."
    )
    designed = [] if plan is None else [f"Run design answers its plan for {', '.join(plan.design.plan)}."]
    said = " ".join([summary, *designed, *analysis.notes])
    return Checked(text, analysis.title or "untitled", said, designs=plan is not None, form=form_of_analysis(analysis))


def editor_ui() -> Any:
    """Where to begin, the numbers in a form, and the file they stand in."""
    return ui.div(
        ui.tags.section(
            ui.h2("1. Begin", id="model-title"),
            ui.input_select("starter", "Start from", LABELS),
            ui.div(ui.input_action_button("use_starter", "Use this starter"), class_="actions"),
            ui.input_file("open_file", "Or open an analysis file of yours", accept=[".toml"], button_label="Open file"),
            ui.p("Either replaces the analysis file below; Undo brings it back.", class_="quiet"),
            aria_labelledby="model-title",
        ),
        ui.tags.section(
            ui.h2("2. Your numbers", id="release-title"),
            ui.p("They are those of the analysis file, and change it.", class_="quiet"),
            _numbers_ui(),
            ui.output_ui("release_message", role="status"),
            ui.tags.details(
                ui.tags.summary("Another kind of noise, or a release file"),
                _form_ui(),
                ui.input_file("upload", "Load a release file", accept=[".json"], button_label="Choose file"),
            ),
            aria_labelledby="release-title",
        ),
        ui.tags.section(
            ui.h2("3. Analysis file", id="analysis-title"),
            ui.input_text_area(
                "analysis",
                "Edit it as you like: it is checked as you type, and kept when the page is loaded again",
                starter(KINDS[0]),
                rows=22,
                spellcheck="false",
            ),
            ui.div(
                ui.tags.button("Undo", id="undo", type="button", class_="btn btn-default", disabled=""),
                class_="actions",
            ),
            ui.output_ui("check_message", role="status"),
            aria_labelledby="analysis-title",
        ),
    )


def _numbers_ui() -> Any:
    """The numbers that people change: the published value, how much noise it has, and what was expected before."""
    return ui.div(
        ui.input_select("form_statistic", "Published number of", {"": ""}),
        ui.div(
            ui.input_text("form_value", "Published value", ""),
            ui.input_text("form_noise", "Noise", ""),
            class_="pair",
        ),
        ui.input_select("form_parameter", "Before the release I expected, of", {"": ""}),
        ui.div(
            ui.input_text("form_low", "between", ""),
            ui.input_text("form_high", "and (95% sure)", ""),
            class_="pair",
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
    words = release_text.listed_words(mechanism, name)
    label = name if needed else f"{name} (optional)"
    if words is None:
        return ui.input_text(f"argument_{name}", label)
    return ui.input_select(f"argument_{name}", label, words if needed else ["", *words])


def message(text: str, wrong: bool = False, place: str = "") -> Any:
    """A framed message, with a place in the text where there is one."""
    shown = ui.tags.pre(place, class_="place", tabindex="0") if place else None
    return ui.div(ui.p(text), shown, class_="wrong" if wrong else "found")


def editor_server(input: Inputs, session: Session, runs: "Runs", shown: Any) -> None:
    """The server side of the left half: the form, the file and its check, and the buttons that start a run."""
    said: reactive.Value[Any] = reactive.Value(None)
    checked = _checking(input)

    async def put(text: str, ask: bool = False) -> None:
        """Have the browser replace the editor's text; it keeps the old one for Undo, and asks first if `ask`."""
        await session.send_custom_message("noisewise-text", {"text": text, "ask": ask})

    _releasing(input, said, put)
    _in_step(input, said, put, checked)
    _opening(input, runs, said, put)

    @render.ui
    def release_message() -> Any:
        return said()

    answer: reactive.Value[Any] = reactive.Value(None)

    @render.ui
    def run_message() -> Any:
        return answer()

    async def start(is_design: bool) -> None:
        text = input.analysis()
        outcome = await asyncio.to_thread(check_text, text)
        if outcome.error:
            answer.set(message("Not run: the analysis file must be mended first.", wrong=True))
            return
        if not (outcome.designs if is_design else outcome.fits):  # changed since it was looked at
            answer.set(message(f"Not run: the analysis file holds no {'[design]' if is_design else 'release'}.", True))
            return
        try:
            run = runs.start(text, outcome.title, is_design)
        except Full as error:
            answer.set(message(str(error), wrong=True))
            return
        answer.set(None)
        shown.set(run.number)

    @reactive.effect
    @reactive.event(input.run)
    async def _run() -> None:
        await start(is_design=False)

    @reactive.effect
    @reactive.event(input.design)
    async def _design() -> None:
        await start(is_design=True)

    @reactive.effect
    def _enable() -> None:
        outcome = checked.result()
        ui.update_action_button("run", disabled=not outcome.fits)
        ui.update_action_button("design", disabled=not outcome.designs)

    @render.ui
    def check_message() -> Any:
        outcome = checked.result()
        return message(outcome.error or outcome.summary, bool(outcome.error), outcome.place)


def _opening(input: Inputs, runs: "Runs", said: Any, put: Any) -> None:
    """The ways to begin with another file: a starter, a file from disk, the file of an earlier run."""

    @reactive.effect
    @reactive.event(input.use_starter)
    async def _use_starter() -> None:
        name = input.starter()
        await put(starter(name if name in KINDS else KINDS[0]), ask=True)

    @reactive.effect
    @reactive.event(input.open_file)
    async def _open() -> None:
        content = _uploaded(req(input.open_file()))
        try:
            await put(content.decode("utf-8"), ask=True)
        except UnicodeDecodeError:
            said.set(message("That file is no text (UTF-8). Choose an analysis file, such as count.toml.", wrong=True))

    @reactive.effect
    @reactive.event(input.reopen)
    async def _reopen() -> None:
        number = input.reopen()
        run = runs.get(number) if isinstance(number, int) else None
        path = run.file("analysis.toml") if run is not None else None
        if path is not None:
            await put(path.read_text(encoding="utf-8"), ask=True)


def _uploaded(files: Any) -> bytes:
    with Path(files[0]["datapath"]).open("rb") as opened:  # where the server put it, under a name of its own
        return opened.read(LARGEST_BODY + 1)


def _in_step(input: Inputs, said: Any, put: Any, checked: Any) -> None:
    """Keeps the form and the file in step: a change of either is carried over to the other."""
    form = _Form(input, said, put)

    @reactive.effect
    def _fill_choices() -> None:
        form.fill_choices(checked.result())

    @reactive.effect
    def _fill() -> None:
        form.fill(checked.result(), input.form_statistic(), input.form_parameter())

    @reactive.effect
    @reactive.event(input.form_value, input.form_noise, ignore_init=True)
    async def _typed_value() -> None:
        await form.take_value(input.form_statistic(), input.form_value().strip(), input.form_noise().strip())

    @reactive.effect
    @reactive.event(input.form_low, input.form_high, ignore_init=True)
    async def _typed_prior() -> None:
        await form.take_prior(input.form_parameter(), input.form_low().strip(), input.form_high().strip())


def _first(chosen: str, names: Any) -> str:
    """The chosen name, if the file has it; else the first name of the file, or no text."""
    return chosen if chosen in names else next(iter(names), "")


class _Form:
    """The form in one window: what it was filled with, and what it brings to the file."""

    def __init__(self, input: Inputs, said: Any, put: Any) -> None:
        self.input, self.said, self.put = input, said, put
        self.own = self.seen = ""
        """The text that the form made last, so that typing is not written over; the editor's text as last seen."""
        self.sent: list[str] = []
        """Texts that the form made and the browser has not shown yet; the next change is made to the last of them."""
        self.offered: dict[str, dict[str, str]] = {}
        """The statistics and the parameters that the two lists offered last, with their labels."""
        self.chosen = ("", "")
        """The statistic and the parameter whose numbers were filled in last."""
        self.filled: dict[str, tuple[str, str | None]] = {}
        """Value and label filled in last, by field: a field that they would not change is left alone."""

    def fill_choices(self, outcome: Checked) -> None:
        """Offer the statistics and the parameters of a file that is in order."""
        if outcome.error:
            return
        for key, names in (("form_statistic", outcome.form.values), ("form_parameter", outcome.form.priors)):
            with reactive.isolate():
                present = self.input[key]()
            choices = {name: outcome.form.called[name] for name in names}
            if self.offered.get(key) == choices:  # offered again, they would undo a choice that is on its way here
                continue
            self.offered[key] = choices
            ui.update_select(key, choices=choices or {"": "none here"}, selected=_first(present, names))

    def fill(self, outcome: Checked, statistic: str, parameter: str) -> None:
        """Show the numbers of a file that was changed otherwise than by the form."""
        self._text()
        with reactive.isolate():
            is_late = outcome.text != self.input.analysis()
        if outcome.error or is_late or self.sent:  # a check of an older text, or the form's own text is not shown yet
            return
        statistic = _first(statistic, outcome.form.values)
        parameter = _first(parameter, outcome.form.priors)
        if outcome.text == self.own and (statistic, parameter) == self.chosen:
            return
        self.own, self.chosen = "", (statistic, parameter)
        key, amount = outcome.form.noise.get(statistic, ("none stated", ""))
        low, high = outcome.form.priors.get(parameter, ("", ""))
        self._fill_one("form_value", outcome.form.values.get(statistic, ""))
        self._fill_one("form_noise", amount, label=f"Noise ({key})")
        self._fill_one("form_low", low)
        self._fill_one("form_high", high)

    def _fill_one(self, key: str, value: str, label: str | None = None) -> None:
        if self.filled.get(key) != (value, label):
            self.filled[key] = (value, label)
            ui.update_text(key, value=value, label=label)

    async def take_value(self, statistic: str, value: str, noise: str) -> None:
        """Bring a published value, or how much noise it has, to the file."""
        form = self._current()
        if form is None or statistic not in form.values:
            return
        key, amount = form.noise.get(statistic, ("", ""))
        if value not in ("", form.values[statistic]):
            await self._change(lambda text: with_value(text, statistic, "value", value))
        elif key and noise not in ("", amount):
            await self._change(lambda text: with_value(text, statistic, key, noise))

    async def take_prior(self, parameter: str, low: str, high: str) -> None:
        """Bring what was expected to the file, as a prior."""
        form = self._current()
        is_new = form is not None and parameter in form.priors and (low, high) != form.priors[parameter]
        if is_new and low and high:
            await self._change(lambda text: with_prior(text, parameter, low, high))

    def _text(self) -> str:
        """The file with all changes by the form: a second number may be typed before the first is shown."""
        with reactive.isolate():
            text: str = self.input.analysis()
        if text in self.sent:
            del self.sent[: self.sent.index(text) + 1]
            self.seen = text
        elif text != self.seen:  # somebody else has changed it
            self.sent.clear()
        return self.sent[-1] if self.sent else text

    def _current(self) -> PageForm | None:
        """What the file says, where it is in order and has been read."""
        outcome = check_text(self._text())
        return None if outcome.error else outcome.form

    async def _change(self, make: Any) -> None:
        try:
            text = make(self._text())
        except InputError as error:
            self.said.set(message(mistake_in_words(error), wrong=True))
            return
        self.said.set(None)
        with reactive.isolate():
            self.own, self.seen = text, self.input.analysis()
        self.sent.append(text)
        self.filled.clear()
        await self.put(text)


def _checking(input: Inputs) -> Any:
    """A task that checks the text whenever typing pauses, in a thread of its own."""

    @reactive.extended_task
    async def checked(text: str) -> Checked:
        return await asyncio.to_thread(check_text, text)

    @reactive.effect
    def _changed() -> None:
        checked.cancel()
        checked.invoke(input.analysis())

    return checked


def _releasing(input: Inputs, said: Any, put: Any) -> None:
    """The two ways to put a release into the text."""

    async def put_release(make: Any) -> None:
        try:
            text = make(input.analysis())
        except NoisewiseError as error:
            said.set(message(mistake_in_words(error), wrong=True))
            return
        await put(text)
        said.set(message("The release is in the analysis file."))

    @reactive.effect
    @reactive.event(input.upload)
    async def _upload() -> None:
        content = _uploaded(req(input.upload()))
        await put_release(lambda text: release_text.with_release(text, release_text.from_upload(content)))

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
    async def _use_value() -> None:
        mechanism = _mechanism(input)
        names = [*_needed(input, mechanism), *release_text.optional(mechanism)]
        typed = {name: str(input[f"argument_{name}"]()) for name in names}
        name = input.statistic().strip()
        await put_release(
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
