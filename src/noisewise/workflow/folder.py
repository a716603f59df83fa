"""A run's results as a folder of plain files: draws, summaries, figures, a report, and the inputs to run it again.

docs/command-line.md lists the files and how R reads them.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from noisewise._version import current_versions
from noisewise.analysis import Analysis
from noisewise.errors import InputError, refusal, writable
from noisewise.inference.problem import Problem
from noisewise.likelihood.fit import chosen
from noisewise.plots.posterior import plot
from noisewise.plots.trace import plot_trace
from noisewise.release import Release
from noisewise.results import fit_file
from noisewise.results.draws_table import draws_table
from noisewise.results.fit import Fit
from noisewise.results.posterior import Posterior
from noisewise.workflow.results import Results, plain

FORMAT = "noisewise-results"
VERSION = 1
FILES = (
    *("analysis.toml", "source.toml", "release.json", "run.json", "summary.csv", "summary.json", "report.html"),
    *("draws.csv", "draws.parquet", "posterior.nc", "naive.nc", "comparison.csv", "covariance.csv"),
    *("fit.json", "naive.json"),
    *("figures", "figures/posterior.png", "figures/posterior.svg", "figures/trace.png", "figures/trace.svg"),
)
"""All that a results folder may hold."""
LARGEST = 2**26
"""Bytes of a JSON file that is read."""


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but earlier results; called before a long run as well as after."""
    if folder.is_file() or (not folder.exists() and not folder.absolute().parent.is_dir()):
        raise refusal("results", "out", "must be a folder, in a folder that exists", str(folder), "Choose another.")
    if not folder.exists():
        return
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    strangers = sorted(name for name in names if name not in FILES)
    if strangers or (names and not _is_ours(folder)):
        rule = "must be new, empty, or hold earlier results and nothing else"
        example = strangers[0] if strangers else names[0]
        raise refusal("results", "out", rule, f"{folder} with {example}", "Choose another with --out.")


def _is_ours(folder: Path) -> bool:
    try:
        stated = _read_json(folder / "run.json")
    except InputError:
        return False
    return isinstance(stated, dict) and stated.get("format") == FORMAT


def write(results: Results, folder: Path) -> dict[str, Any]:
    """Write all files but the report, in place of earlier results. Returns what `run.json` says."""
    with filling(folder) as partial:
        return write_files(results, partial)


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """A new folder to write results into, which takes the place of `folder` when all is written.

    It lies beside `folder`, or among temporary files where nothing can be made there. Where writing fails it is
    removed, and `folder` stays as it was. A process that is killed leaves it, and its name says that it is partial.
    """
    check_folder(folder)
    advice = "Check that the folder can be written to, and that the disk is not full."
    with writable("results", folder, "out", advice):
        partial = _beside(folder)
        try:
            yield partial
            _put_in_place(partial, folder)
        except Exception:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _beside(folder: Path) -> Path:
    place = folder.resolve()
    try:
        return new_folder(place.parent, f"{place.name}-partial")
    except OSError:
        return new_folder(Path(tempfile.gettempdir()), f"{place.name}-partial")


def new_folder(parent: Path, name: str) -> Path:
    """A new folder of this name, numbered where there is one already."""
    number = 1
    while True:
        place = parent / (name if number == 1 else f"{name}-{number}")
        try:
            place.mkdir()
        except FileExistsError:
            number += 1
        else:
            return place


def _put_in_place(partial: Path, folder: Path) -> None:
    """In one step where `folder` is new; else file by file, with a `run.json` that says unfinished until the last."""
    if not folder.exists() and partial.parent == folder.resolve().parent:
        partial.rename(folder)
        return
    folder.mkdir(exist_ok=True)
    check_folder(folder)  # once more: it is about to be cleared
    write_json(folder / "run.json", {"format": FORMAT, "version": VERSION, "unfinished": True})
    for name in FILES:
        if (folder / name).is_file() and name != "run.json":
            (folder / name).unlink()
    for path in sorted(partial.rglob("*")):
        goal = folder / path.relative_to(partial)
        if path.is_dir():
            goal.mkdir(exist_ok=True)
        elif path.name != "run.json":
            shutil.move(path, goal)
    shutil.move(partial / "run.json", folder / "run.json")
    shutil.rmtree(partial, ignore_errors=True)


def write_files(results: Results, folder: Path) -> dict[str, Any]:
    """All files but the report, into an empty folder: `run.json` first, which shows the folder to be ours.

    Then the inputs, and the posterior or the fit in full, from which the other files can be made: little is lost if
    time runs out. Returns what `run.json` says.
    """
    (folder / "figures").mkdir()
    record = _run(results)
    write_json(folder / "run.json", record)
    analysis = results.analysis
    (folder / "analysis.toml").write_text(analysis.to_text(), encoding="utf-8")
    (folder / "source.toml").write_text(analysis.text, encoding="utf-8")
    analysis.release.save(folder / "release.json")
    _write_results(results, folder)
    results.table().to_csv(folder / "summary.csv", index_label="name")
    write_json(folder / "summary.json", results.summary())
    compared = results.compared()
    if compared is not None:
        compared.to_csv(folder / "comparison.csv", index_label="name")
    if results.posterior is not None:
        _write_posterior(results, results.posterior, folder)
    elif results.fit is not None:
        _write_fit(results.fit, folder)
    return record


def load(folder: Path) -> Results:
    """What a results folder holds."""
    if not folder.exists():
        advice = "Check the path, or make one with: noisewise fit FILE."
        raise refusal("results", "folder", "must be an existing folder of results", str(folder), advice)
    if not folder.is_dir() or not _is_ours(folder):
        rule = "must be written by 'noisewise fit', 'mle' or 'compare'"
        raise refusal("results", "folder", rule, str(folder), "Check the path.")
    run = run_record(folder)
    if run.get("unfinished"):
        advice = "Writing it was cut short: run the analysis again."
        raise refusal("results", "folder", "must be written to its end", str(folder), advice)
    analysis = Analysis.load(folder / "analysis.toml", confined=True)
    stated: dict[str, Any] = {"command": str(run.get("command") or "fit"), "no_naive": str(run.get("no_naive") or "")}
    if (folder / "posterior.nc").is_file():
        naive = folder / "naive.nc"
        naive_posterior = Posterior.load(naive) if naive.is_file() else None
        return Results(analysis, posterior=Posterior.load(folder / "posterior.nc"), naive=naive_posterior, **stated)
    if (folder / "fit.json").is_file():
        return Results(
            analysis,
            fit=_load_fit(folder / "fit.json", analysis, analysis.release),
            naive_fit=_load_fit(folder / "naive.json", analysis, analysis.release.naive())
            if (folder / "naive.json").is_file()
            else None,
            **stated,
        )
    advice = f"Make some with: noisewise fit FILE --out {folder}"
    raise InputError(f"holds no results. {advice}", who=str(folder), advice=advice)


def run_record(folder: Path) -> dict[str, Any]:
    """The content of `run.json`."""
    content = _read_json(folder / "run.json")
    return content if isinstance(content, dict) else {}


def _load_fit(path: Path, analysis: Analysis, release: Release) -> Fit:
    estimator = analysis.settings.estimator or chosen(Problem(analysis.model, release))
    return fit_file.from_data(_read_json(path), estimator, str(path))


def _read_json(path: Path) -> Any:
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            raise ValueError(f"it must be a file of at most {LARGEST:,} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        advice = "Run the analysis again."
        raise InputError(f"cannot be read ({error}). {advice}", who=str(path), advice=advice) from None


def _run(results: Results) -> dict[str, Any]:
    """The content of `run.json`: what was run, with what, and how to run it again."""
    exact, settings = results.exact, results.analysis.settings
    content = {
        "format": FORMAT,
        "version": VERSION,
        "command": results.command,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": Path(results.analysis.where).name,
        "release_hash": results.analysis.release.hash,
        "seed": settings.seed,
        "sampler_seed": exact.seed,
        "draws": settings.draws,
        "level": settings.level,
        "status": exact.status,
        "message": exact.message,
        "versions": dict(current_versions()),
        # the sampler's own seed differs where a first choice was discarded; the command finds it again by itself
        "replay": f"noisewise {results.command} analysis.toml --out replay",
        "no_naive": results.no_naive,
    }
    if isinstance(exact, Posterior):
        content |= {"sampler": exact.sampler.to_dict(), "reason": exact.reason, "seconds": exact.seconds}
    else:
        content["estimator"] = exact.estimator.to_dict()
    return content


def _write_results(results: Results, folder: Path) -> None:
    """The files that `load` reads."""
    for posterior, name in ((results.posterior, "posterior.nc"), (results.naive, "naive.nc")):
        if posterior is not None:
            posterior.save(folder / name)
    for fit, name in ((results.fit, "fit.json"), (results.naive_fit, "naive.json")):
        if fit is not None:
            write_json(folder / name, fit_file.to_data(fit))


def _write_posterior(results: Results, posterior: Posterior, folder: Path) -> None:
    posterior.to_csv(folder / "draws.csv")
    with suppress(ImportError):  # pyarrow is not installed, or does not load
        draws_table(posterior).to_parquet(folder / "draws.parquet", index=False)
    if len(posterior) > 1:
        figure = plot(posterior, prior=results.analysis.model, naive=results.naive)
        _write_figure(figure, folder / "figures", "posterior")


def _write_fit(fit: Fit, folder: Path) -> None:
    import pandas as pd

    labels = list(fit.labels)
    pd.DataFrame(fit.covariance, index=labels, columns=labels).to_csv(folder / "covariance.csv", index_label="name")
    if fit.trace:
        _write_figure(plot_trace(fit), folder / "figures", "trace")


def _write_figure(figure: Any, folder: Path, name: str) -> None:
    import matplotlib.pyplot as plt

    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once for both, and not twice for each
    for ending in ("png", "svg"):
        figure.savefig(folder / f"{name}.{ending}", dpi=150)
    plt.close(figure)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Plain data as JSON."""
    path.write_text(json.dumps(plain(content), indent=2, allow_nan=False) + "\n", encoding="utf-8")
