"""Commands that read an analysis file: new, check, fit, mle, compare, calibrate, report."""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisewise.analysis import Analysis, DesignFile, plan_of, starter
from noisewise.analysis.analysis import KINDS, LABELS, text_of
from noisewise.analysis.file_words import in_file_words
from noisewise.cli.shared import (
    FAILED,
    INTERRUPTED,
    WHOLE,
    Checkpoint,
    Draws,
    File,
    Json,
    Quiet,
    Seed,
    as_typed,
    fail,
    folder_for,
    loaded,
    note,
    readable,
    say_json,
    say_table,
    stop_unless_done,
    write_new,
)
from noisewise.errors import NoisewiseError, refusal
from noisewise.inference.settings import method_in_words
from noisewise.report import noise
from noisewise.report.page import why_not
from noisewise.report.prior_words import prior_in_words
from noisewise.report.short_answer import in_order, percent
from noisewise.results.labels import owner_of
from noisewise.results.naming import Naming
from noisewise.studies.calibrate import calibrate as calibrate_of
from noisewise.studies.forecast import forecast as forecast_of
from noisewise.workflow.expectations import Mistaken
from noisewise.workflow.folder import check_folder
from noisewise.workflow.reporting import report_on, write, write_report
from noisewise.workflow.results import plain
from noisewise.workflow.run import fit_results, run_posterior

if TYPE_CHECKING:
    from noisewise.workflow.results import Results

WIDER = (
    "wider: how many times as wide the exact interval is. shift: how far the exact mean lies from the naive one, in "
    "naive standard deviations."
)
EMPTY = " Both are empty where ignoring the noise means taking the published value for the truth."
CALIBRATED = {"p_value": "p-value", "mean": "mean position", "spread": "spread of positions", "reading": "says"}
"""Columns of a calibration for people."""
RIGHT = (
    "Where draws are right, the true value is as often low as high among them: mean position about 0.5, spread about "
    "1, and no p-value close to 0. (log eta: the log density of the noise, which sees what single quantities cannot.)"
)
ROUGH = 2
"""Significant digits of a forecast from a short probe."""
Out = Annotated[Path | None, typer.Option(help="Folder for the results; by default named after the file.")]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Run although a published value is far from all that the prior expects.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (new, check, fit, mle, compare, calibrate, report):
        app.command()(command)


def new(
    kind: Annotated[
        str | None, typer.Argument(help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}; none lists them.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write it; by default KIND.toml.")] = None,
) -> None:
    """Write a commented analysis file to fill in; without a kind, say which there are."""
    if kind is None:
        _say_kinds()
        return
    text = starter(kind)
    path = out if out is not None else Path(f"{kind}.toml")
    write_new(path, text, "new")
    typer.echo(f"Written: {path}. Edit it, then run: noisewise check {as_typed(path)}")


def _say_kinds() -> None:
    """Every starter, and what it is about."""
    typer.echo("Choose what comes nearest to yours:")
    for kind, about in LABELS.items():
        typer.echo(f"  noisewise new {kind:<{max(map(len, KINDS))}}  {about}")


def check(
    file: File,
    draws: Draws = None,
    seed: Seed = None,
    forecast: Annotated[bool, typer.Option(help="Run a short probe and forecast the work.")] = True,
    json: Json = False,
) -> None:
    """Is the file in order, and what will happen? Nothing is written.

    Reads the file, checks model and release against each other, and runs a short probe that says which sampler would
    run, how long it would take, and whether prior and release contradict each other. Of a file for `noisewise design`
    that holds no release, says what it asks for.
    """
    planned = plan_of(text_of(file, "Analysis.load"), str(file))
    if planned is not None and planned.is_plan_only:
        _check_plan(file, planned, json)
        return
    analysis = loaded(file, draws, seed)
    settings = analysis.settings
    outlook = (
        forecast_of(analysis.model, analysis.release, draws=settings.draws, seed=settings.seed) if forecast else None
    )
    if json:
        say_json(_checked(analysis, outlook))
        return
    typer.echo(f"{file}: in order." + (f" {analysis.title}." if analysis.title else ""))
    _say_priors(analysis)
    for name in analysis.model.statistics:
        item = analysis.release.get(name)
        typer.echo(f"Statistic {name}: " + ("not published." if item is None else f"published as {plain(item.value)}."))
        if item is not None:
            typer.echo(f"  {noise.sentence(name, item)}")
    if settings.method is not None:
        typer.echo(f"Method asked for: {method_in_words(settings.method)}.")
    if outlook is not None:
        for line in outlook.lines():
            typer.echo(in_file_words(line))
        work = outlook.table().drop(columns="note").dropna()
        say_table(work.rename(index=in_file_words), "Expected work, in numbers handled (seconds are rough)", ROUGH)
        seconds = float(work["seconds"].iloc[0])
        typer.echo(f"{_duration(seconds)}; next: noisewise fit {as_typed(file)}")
    else:
        typer.echo(f"Next: noisewise fit {as_typed(file)}")


def _say_priors(analysis: Analysis | DesignFile) -> None:
    for name in analysis.model.parameters:
        before = prior_in_words(analysis.model, name)
        stated = analysis.content["parameters"][name]
        typer.echo(f"Parameter {name}: before the release {stated}" + (f" ({before})." if before else "."))


def _check_plan(file: Path, planned: DesignFile, json: bool) -> None:
    """Print what a file asks for that is a plan only."""
    stated = planned.content["design"]
    if json:
        parts = {"title": planned.title, "parameters": planned.model.parameters, "statistics": planned.model.statistics}
        say_json({**parts, "design": stated, "seed": planned.settings.seed})
        return
    typer.echo(f"{file}: in order, as a plan." + (f" {planned.title}." if planned.title else ""))
    _say_priors(planned)
    for name in planned.model.statistics:
        entry = stated["plan"].get(name)
        how = "not published" if entry is None else f"{entry['mechanism']}, {_left_open(entry)}"
        typer.echo(f"Statistic {name}: {how}.")
    typer.echo(f"Next: noisewise design {as_typed(file)}")


def _left_open(entry: dict[str, Any]) -> str:
    return f"its {entry['budget']} left open" if "budget" in entry else "as stated"


def _duration(seconds: float) -> str:
    """A rough time in words; starting up and compiling take some seconds of their own."""
    if seconds < 1:
        return "About a second of sampling"
    if seconds < 90:
        return f"About {readable(seconds, 1)} seconds of sampling"
    return f"About {readable(seconds / 60, 1)} minutes of sampling"


def _checked(analysis: Any, outlook: Any) -> dict[str, Any]:
    content: dict[str, Any] = {"title": analysis.title, "parameters": analysis.model.parameters}
    content |= {"statistics": analysis.model.statistics, "released": list(analysis.release), "notes": analysis.notes}
    content |= {"draws": analysis.settings.draws, "seed": analysis.settings.seed}
    if outlook is not None:
        table = outlook.table()
        content["forecast"] = {
            "choice": outlook.choice.to_dict(),
            "reason": outlook.reason,
            "acceptance": outlook.acceptance,
            "conflict": dict(outlook.conflict),
            "in_conflict": outlook.in_conflict,
            "samplers": {str(label): dict(row) for label, row in table.iterrows()},
        }
    return content


def fit(
    file: File,
    draws: Draws = None,
    seed: Seed = None,
    out: Out = None,
    checkpoint: Checkpoint = None,
    naive: Annotated[bool, typer.Option(help="Also fit as if there were no noise, for comparison.")] = True,
    anyway: Anyway = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The exact posterior: draws, tables, figures and a report, in a folder.

    The folder holds draws.csv, posterior.nc, summary.csv, summary.json, figures, report.html, and the inputs to run it
    again (analysis.toml, release.json, run.json). A run that could not deliver is written too, with its status, and the
    exit code is 1.
    """
    analysis = loaded(file, draws, seed)
    folder = folder_for(file, out, "results")
    with _mistakes_advised():
        results = run_posterior(
            analysis, "fit", checkpoint=checkpoint, naive=naive, anyway=anyway, progress=False if quiet else None
        )
    _write_and_say(results, folder, lambda place, report: _say_posterior(results, place, json, report))
    stop_unless_done(results, folder)


@contextlib.contextmanager
def _mistakes_advised() -> Iterator[None]:
    """Adds to the refusal of a value that can only be a mistake how to run nevertheless."""
    try:
        yield
    except Mistaken as error:
        raise error.advising("If both are right, run again with --anyway.") from None


def _write_and_say(results: "Results", folder: Path, say: Callable[[Path | None, Any], None]) -> None:
    """Write the folder and print the answer; where writing fails, print it before the error is raised."""
    try:
        report = write(results, folder)
    except NoisewiseError:
        with contextlib.suppress(Exception):  # what kept the answer from being written may keep it from being printed
            say(None, None)
        raise
    say(folder, report)


def _say_as_json(results: "Results", folder: Path | None) -> None:
    say_json(results.summary() | ({} if folder is None else {"folder": str(folder)}))


def _say_posterior(results: "Results", folder: Path | None, json: bool, report: Any) -> None:
    if json:
        _say_as_json(results, folder)
        return
    assert results.posterior is not None
    posterior, level = results.posterior, results.analysis.settings.level
    _say_short(results, report)
    if len(posterior):
        say_table(
            _for_people(posterior, in_order(posterior, posterior.summary(level))).rename(posterior.naming.entered)
        )
    if posterior.without_moments:
        typer.echo(posterior.without_moments)
    typer.echo(f"How: {posterior.headline(results.analysis.settings.seed)}.")
    if posterior.reason:
        typer.echo(f"Why so: {posterior.reason}.")
    _say_where(folder)


def _for_people(posterior: Any, table: Any) -> Any:
    """The summary without the columns for experts, which summary.csv has; of a yes-or-no question, its probability."""
    shown = table.drop(columns=["ess", "mcse"]).astype(object)
    for label in shown.index:
        if posterior[owner_of(str(label))].dtype.kind == "b":
            shown.loc[label] = [percent(table.loc[label, "mean"]), *[""] * (shown.shape[1] - 1)]
    return shown


def _say_short(results: "Results", report: Any) -> None:
    """The title; the verdict and the short answer, as the report has them, where there is one."""
    if results.analysis.title:
        typer.echo(results.analysis.title)
    if report is None:
        return
    verdict = report.verdict
    typer.echo(f"Verdict: {verdict.title}. {verdict.explanation if verdict.state != 'good' else ''}".rstrip())
    for check in verdict.checks:
        if check.state in ("look", "bad"):
            typer.echo(f"  ! {check.explanation}")
    for sentence in report.short:
        typer.echo(f"  - {sentence}")


def _say_where(folder: Path | None) -> None:
    if folder is None:
        return
    typer.echo(f"Results: {folder}")
    if (folder / "report.html").exists():
        typer.echo(f"Report: {folder / 'report.html'} (open it in a browser)")
    for naive in (folder / "naive.nc", folder / "naive.json"):
        if naive.exists():
            beside = folder / "comparison.csv"
            typer.echo(f"Naive, as if there were no noise: {naive}; beside the exact answer: {beside}")


def mle(
    file: File,
    seed: Seed = None,
    out: Out = None,
    naive: Annotated[bool, typer.Option(help="Also fit as if there were no noise, for comparison.")] = True,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Maximum likelihood: estimates and standard errors that count the noise. Priors only bound the parameters.

    The folder holds summary.csv, summary.json, covariance.csv, the path of the climb, report.html, and the inputs to
    run it again. A fit that did not converge is written too, with its status, and the exit code is 1.
    """
    analysis = loaded(file, None, seed)
    folder = folder_for(file, out, "mle")
    results = fit_results(analysis, "mle", naive=naive, progress=False if quiet else None)
    _write_and_say(results, folder, lambda place, report: _say_fit(results, place, json, report))
    stop_unless_done(results, folder)


def _say_fit(results: "Results", folder: Path | None, json: bool, report: Any) -> None:
    if json:
        _say_as_json(results, folder)
        return
    assert results.fit is not None
    fit = results.fit
    _say_short(results, report)
    say_table(results.table().rename(Naming.of(results.analysis.content).entered))
    height = "not known" if math.isnan(fit.log_likelihood) else f"{fit.log_likelihood:.6g}"
    typer.echo(f"Log likelihood {height}, by {type(fit.estimator).__name__}.")
    _say_where(folder)


def compare(
    file: File,
    draws: Draws = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(help="Also write the results to this folder.")] = None,
    anyway: Anyway = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Naive beside exact: what ignoring the noise would have claimed.

    'wider' is how many times as wide the exact interval is; 'shift' how far the exact mean lies from the naive one, in
    naive standard deviations.
    """
    analysis = loaded(file, draws, seed)
    if out is not None:
        check_folder(out)
    with _mistakes_advised():
        results = run_posterior(analysis, "compare", anyway=anyway, progress=False if quiet else None)
    if out is None:
        report = None if json else report_on(results, analysis.to_text(), {})
        _say_comparison(results, None, json, report)
    else:
        _write_and_say(results, out, lambda place, report: _say_comparison(results, place, json, report))
    stop_unless_done(results, out)


def _say_comparison(results: "Results", folder: Path | None, json: bool, report: Any) -> None:
    compared = results.comparison
    if json or compared is None:
        _say_posterior(results, folder, json, report)
        if compared is None and results.no_naive:
            note(f"there is no naive analysis: {results.no_naive if report is None else why_not(report)}.")
        return
    _say_short(results, report)
    table = in_order(compared.exact, compared.table(results.analysis.settings.level))
    shown = table.astype(object).where(table.notna(), "")  # the naive interval may be a point: no ratio of widths
    say_table(shown.rename(compared.exact.naming.entered))
    typer.echo(WIDER + (EMPTY if table["wider"].isna().any() else ""))
    _say_where(folder)


def calibrate(
    file: File,
    replicates: Annotated[int, typer.Option(help="Simulated releases.", **WHOLE)] = 200,
    draws: Annotated[int, typer.Option(help="Draws for each of them.", **WHOLE)] = 1_000,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(help="Write the picture here, such as calibration.png.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Does the sampler give the right posterior for this model and this noise? By simulation.

    Draws parameters from the prior and releases from the model, fits each, and looks whether the true values lie where
    they should. Exit code 1 where they do not.
    """
    analysis = loaded(file, None, seed)
    settings = analysis.settings
    if not quiet:
        many = f"{replicates} releases are simulated, and each is fitted"
        note(f"{many}: on a large model that takes minutes. With --replicates 50 it is quicker, and sees less.")
    calibration = calibrate_of(
        analysis.model,
        analysis.release,
        settings.method,
        replicates=replicates,
        draws=draws,
        seed=settings.seed,
        progress=False if quiet else None,
    )
    if out is not None:
        try:
            calibration.plot().savefig(out, dpi=150)
        except (OSError, ValueError) as error:
            advice = "Give a name such as calibration.png in an existing folder."
            raise refusal("calibrate", "out", f"must be writable ({error})", str(out), advice) from None
    if json:
        rows = {str(label): dict(row) for label, row in calibration.table().iterrows()}
        say_json(
            {
                "verdict": calibration.verdict,
                "p_value": calibration.p_value,
                "replicates": calibration.replicates,
                "quantities": rows,
            }
        )
    else:
        typer.echo(f"{calibration.headline()}.")
        say_table(calibration.table().rename(columns=CALIBRATED, index=Naming.of(analysis.content).entered))
        typer.echo(RIGHT)
    if calibration.replicates < calibration.asked:
        fail(f"interrupted after {calibration.replicates} of {calibration.asked} replicates", INTERRUPTED)
    if not calibration.passed:
        raise typer.Exit(FAILED)


def report(
    folder: Annotated[
        Path, typer.Argument(help="A folder that 'noisewise fit', 'mle' or 'compare' wrote.", show_default=False)
    ],
) -> None:
    """Write report.html anew: one file without links to the network, to read, print and hand on."""
    typer.echo(f"Report: {write_report(folder)}")
