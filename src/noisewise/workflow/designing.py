"""From an analysis file's [design] to what was found, and to a folder of it."""

import io
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noisewise.analysis import DesignFile
from noisewise.errors import InferenceError, refusal
from noisewise.report.design import DesignReport
from noisewise.studies.allocate import Allocation, allocate
from noisewise.studies.design import Design, design
from noisewise.workflow.results import plain

FILES = ("design.json", "curve.csv", "split.csv", "curve.png", "curve.svg", "plan.toml", "report.html")


@dataclass(frozen=True)
class Designed:
    """What was found for a file: the budget, and the split where one was asked for."""

    file: DesignFile
    design: Design
    split: Allocation | None

    @property
    def sentences(self) -> list[str]:
        """The split and the budget in words."""
        return [*([] if self.split is None else [self.split.headline()]), self.design.headline()]

    def to_dict(self) -> dict[str, Any]:
        """The same as data."""
        found = self.design
        content = {
            "status": found.status,
            "kind": found.kind,
            "budget": found.budget,
            "error": found.error,
            "floor": found.floor,
            "target": dict(self.file.design.target),
            "shares": dict(found.shares),
            "curve": [{found.kind: at, "target": value, "error": error} for at, (value, error) in found.curve.items()],
            "mechanisms": {name: mechanism.to_dict() for name, mechanism in found.mechanisms.items()},
            "closed": found.closed,
            "replicates": found.replicates,
            "sampled": found.sampled,
            "seed": found.seed,
            "sentences": self.sentences,
        }
        return dict(plain(content))


def run_design(file: DesignFile, *, progress: bool | None = None) -> Designed:
    """Split the budget where that is asked for, and find the least one; one out of reach is found with its status."""
    common: dict[str, Any] = {"level": file.settings.level, "seed": file.settings.seed, "progress": progress}
    stated, options = file.design, dict(file.design.options)
    split = None
    if stated.split is not None:
        aim = {key: value for key, value in stated.target.items() if key not in ("at_most", "at_least")}
        more: dict[str, Any] = {key: options[key] for key in ("replicates",) if key in options}
        more |= stated.split
        split = allocate(file.model, stated.plan, target=aim, **common, **more)
        options["shares"] = dict(split.shares)
    try:
        found = design(file.model, stated.plan, target=stated.target, **common, **options)
    except InferenceError as error:
        if not isinstance(error.result, Design):
            raise
        found = error.result
    return Designed(file, found, split)


def write(results: Designed, folder: Path) -> None:
    """Write the report, the curve as numbers and pictures, and the file itself; earlier ones are replaced."""
    strangers = [path.name for path in folder.iterdir() if path.name not in FILES] if folder.is_dir() else []
    if strangers or folder.is_file() or not folder.absolute().parent.is_dir():
        rule = "must be a new or empty folder, or hold an earlier design and nothing else"
        raise refusal("design", "out", rule, str(folder), "Choose another with --out.")
    folder.mkdir(exist_ok=True)
    found = results.design
    content = json.dumps(results.to_dict(), indent=2, allow_nan=False)
    (folder / "design.json").write_text(content + "\n", encoding="utf-8")
    (folder / "plan.toml").write_text(results.file.text, encoding="utf-8")
    curve = found.table()
    curve.to_csv(folder / "curve.csv")
    if results.split is not None:
        results.split.table().to_csv(folder / "split.csv")
    figure = found.plot()
    for ending in ("png", "svg"):
        figure.savefig(folder / f"curve.{ending}", dpi=150)
    report_of(results, figure).save(folder / "report.html")
    _close(figure)


def report_of(results: Designed, figure: Any) -> DesignReport:
    """The report, with the curve as a picture."""
    import matplotlib as mpl

    curve = results.design.table()
    drawn = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg", transparent=True)
    file = results.file
    columns = [results.design.kind, results.design.target.words, "standard error", "times what no noise gives"]
    rows = [(float(at), *map(float, row)) for at, row in zip(curve.index, curve.to_numpy(), strict=True)]
    return DesignReport(file.title, file.question, results.sentences, columns, rows, drawn.getvalue(), file.text)


def with_settings(file: DesignFile, seed: int | None, replicates: int | None) -> DesignFile:
    """The same file with another seed or other replicates, where given."""
    options = {**file.design.options, **({} if replicates is None else {"replicates": replicates})}
    settings = file.settings if seed is None else replace(file.settings, seed=seed)
    return replace(file, settings=settings, design=replace(file.design, options=options))


def _close(figure: Any) -> None:
    import matplotlib.pyplot as plt

    plt.close(figure)
