"""Runs the [design] of an analysis file, and writes a folder with what was found."""

import io
import json
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noisewise.analysis import DesignFile
from noisewise.errors import InferenceError, refusal
from noisewise.model import Model
from noisewise.report.design import DesignReport, DesignTable
from noisewise.report.design_tables import measured, tables_of_budget, tables_of_size
from noisewise.report.words import named
from noisewise.results.naming import Naming
from noisewise.studies.allocate import Allocation, allocate
from noisewise.studies.design import Design, design
from noisewise.studies.sample_size import SampleSize, sample_size
from noisewise.workflow.results import plain

FILES = (
    *("design.json", "curve.csv", "split.csv", "candidates.csv"),
    *("curve.png", "curve.svg", "plan.toml", "report.html"),
)
LINE = 56
"""Characters that fit beside the picture."""


@dataclass(frozen=True)
class Designed:
    """What was found for a file: the budget or the number of people, and the split where one was asked for."""

    file: DesignFile
    study: Design | SampleSize
    model: Model
    """The model of the best candidate; that of the file where there are no candidates."""
    split: Allocation | None = None

    @property
    def is_met(self) -> bool:
        """Whether any budget, or any number of people, in the range meets the target."""
        return self.study.status != "nowhere" if isinstance(self.study, Design) else bool(self.study.n)

    @property
    def sentences(self) -> list[str]:
        """The split and the budget in words."""
        return [*([] if self.split is None else [self.split.headline()]), self.study.headline()]

    @property
    def in_short(self) -> str:
        """What was found in a few words, for a list of runs."""
        study = self.study
        if isinstance(study, SampleSize):
            return "; ".join(f"{n:,} people at {study.kind} = {budget:g}" for budget, n in study.n.items()) or "none"
        words = {
            "nowhere": f"no {study.kind} will do",
            "everywhere": f"every {study.kind} from {min(study.curve):g} on",
        }
        return words.get(study.status, f"{study.kind} = {study.budget:.3g}")

    @property
    def tables(self) -> list[DesignTable]:
        """The plan, the candidates and the split, or the number of people; the curve is the last one."""
        naming = Naming.of(self.file.content)
        if isinstance(self.study, SampleSize):
            return tables_of_size(self.study, naming)
        return tables_of_budget(self.study, self.split, self.model, naming)

    def to_dict(self) -> dict[str, Any]:
        """The content of `design.json`: what was found, as plain data."""
        study = self.study
        content: dict[str, Any] = {"kind": study.kind, "target": dict(self.file.design.target)}
        content |= {"closed": study.closed, "seed": study.seed, "sentences": self.sentences}
        if isinstance(study, Design):
            choice = {} if self.split is None else dict(self.split.choice)
            content |= {name: getattr(study, name) for name in ("status", "budget", "error", "floor")}
            content |= {"replicates": study.replicates, "sampled": study.sampled, "shares": dict(study.shares)}
            content |= {"choice": choice, "curve": _rows(study.kind, study.curve, study.band)}
            content["mechanisms"] = {name: mechanism.to_dict() for name, mechanism in study.mechanisms.items()}
        else:
            content["people"] = [
                {study.kind: budget, "n": study.n.get(budget), "error": study.error.get(budget)}
                | {"curve": _rows("n", curve, study.bands[budget])}
                for budget, curve in study.curves.items()
            ]
        return dict(plain(content))


def _rows(axis: str, curve: Any, band: Any) -> list[dict[str, float]]:
    """A curve as a list of points."""
    return [
        {axis: at, "target": value, "error": error, "low": band[at][0], "high": band[at][1]}
        for at, (value, error) in curve.items()
    ]


def run_design(file: DesignFile, *, checkpoint: Path | None = None, progress: bool | None = None) -> Designed:
    """Split the budget where that is asked for, and find the least one, or the least number of people.

    A target out of reach is no error: the study that is returned says so in its status. A split has a checkpoint of its
    own, beside `checkpoint` and of the same name with "-split".
    """
    common: dict[str, Any] = {"level": file.settings.level, "seed": file.settings.seed, "progress": progress}
    stated, options = file.design, dict(file.design.options)
    split, model, plan = None, file.model, stated.plan
    if stated.split is not None:
        split = _split(file, common | {"checkpoint": None if checkpoint is None else split_checkpoint(checkpoint)})
        options["shares"] = dict(split.shares)
        if file.candidates:
            model, plan = file.candidate(split.choice)
    common |= {"target": stated.target, "checkpoint": checkpoint, **options}
    try:
        if stated.people is not None:
            study: Design | SampleSize = sample_size(
                lambda n: file.of_size(n)[0], lambda n: file.of_size(n)[1], **stated.people, **common
            )
        else:
            study = design(model, plan, **common)
    except InferenceError as error:
        if not isinstance(error.result, Design | SampleSize):
            raise
        study = error.result
    naming = Naming.of(file.content)
    if split is not None:
        split = replace(split, target=named(split.target, naming))
    return Designed(file, replace(study, target=named(study.target, naming)), model, split)


def split_checkpoint(checkpoint: Path) -> Path:
    """The path of the split's own checkpoint."""
    return checkpoint.with_stem(f"{checkpoint.stem}-split")


def _split(file: DesignFile, common: dict[str, Any]) -> Allocation:
    """The best split of the budget that the file states; where there are candidates, that of the best one."""
    stated = file.design
    target = {key: value for key, value in stated.target.items() if key not in ("at_most", "at_least")}
    more: dict[str, Any] = {key: value for key, value in stated.options.items() if key == "replicates"}
    more |= {**common, **(stated.split or {})}
    if not file.candidates:
        return allocate(file.model, stated.plan, target=target, **more)
    return allocate(
        lambda **choice: file.candidate(choice)[0],
        lambda **choice: file.candidate(choice)[1],
        target=target,
        over=stated.over,
        **more,
    )


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier design, or that cannot be made."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    is_other = bool(names) and not {"design.json"} <= names <= set(FILES)
    if is_other or folder.is_file() or not folder.absolute().parent.is_dir():
        rule = "must be a new or empty folder, or hold an earlier design and nothing else"
        raise refusal("design", "out", rule, str(folder), "Choose another with --out.")


def write(results: Designed, folder: Path) -> DesignReport:
    """Write the report, the curve as numbers and pictures, and the file itself; earlier ones are replaced."""
    check_folder(folder)
    folder.mkdir(exist_ok=True)
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    content = json.dumps(results.to_dict(), indent=2, allow_nan=False)
    (folder / "design.json").write_text(content + "\n", encoding="utf-8")
    (folder / "plan.toml").write_text(results.file.text, encoding="utf-8")
    results.study.table().to_csv(folder / "curve.csv")
    if results.split is not None:
        results.split.table().to_csv(folder / "split.csv")
        if results.split.candidates:
            results.split.candidate_table().to_csv(folder / "candidates.csv", index=False)
    with _drawn(results) as figure:
        for ending in ("png", "svg"):
            figure.savefig(folder / f"curve.{ending}", dpi=150)
        report = _report(results, figure)
    report.save(folder / "report.html")
    return report


@contextmanager
def _drawn(results: Designed) -> Iterator[Any]:
    """The curve as a figure, its axis labelled with the unit; its SVG is reproducible, and keeps text as text."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "noisewise"}):
        figure = results.study.plot()
        label = measured(results.study.target, Naming.of(results.file.content))
        figure.axes[0].set_ylabel(textwrap.fill(label, LINE), parse_math=False)
        try:
            yield figure
        finally:
            plt.close(figure)


def _report(results: Designed, figure: Any) -> DesignReport:
    """The report, with the curve as a picture."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", transparent=True)
    file = results.file
    return DesignReport(file.title, file.question, results.sentences, results.tables, drawn.getvalue(), file.text)


def with_settings(file: DesignFile, seed: int | None, replicates: int | None) -> DesignFile:
    """The same file with another seed or other replicates, where given."""
    options = {**file.design.options, **({} if replicates is None else {"replicates": replicates})}
    settings = file.settings if seed is None else replace(file.settings, seed=seed)
    return replace(file, settings=settings, design=replace(file.design, options=options))
