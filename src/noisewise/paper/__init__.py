"""The numerical results of Gong (2022), recomputed with the public functions of this library.

R. Gong (2022), Exact inference with approximate computation for differentially private data via perturbations,
Journal of Privacy and Confidentiality 12(2). `noisewise paper --out DIR` writes figures (PNG, SVG), tables (CSV,
JSON) and one page, paper.html, with the paper's numbers beside ours and beside exact values by quadrature.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

import noisewise as nw
from noisewise import checks
from noisewise.errors import InputError, refusal
from noisewise.paper import count, figures, lalonde, page
from noisewise.paper.exact import Count
from noisewise.paper.numbers import Number

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Size:
    """How much to compute. The defaults are the paper's."""

    draws: int = 10_000
    repetitions: int = count.REPETITIONS
    staged: nw.Staged = field(default_factory=nw.Staged)
    fits: int = 10
    fit_draws: int = 10_000


REDUCED = Size(1_000, 4, nw.Staged(sizes=(10**3, 10**4, 10**5), tolerances=(1e-2, 1e-3, 1e-4)), 2, 2_000)
"""A quick run: the same numbers with larger Monte Carlo errors."""


@dataclass(frozen=True)
class Reproduction:
    """What was computed, and every number beside the paper's and the exact one."""

    numbers: list[Number]
    panels: dict[float, count.FigurePanel]
    rates: list[count.Rate]
    likelihood: count.Likelihood
    lalonde: lalonde.Fitted
    size: Size
    seed: int

    @property
    def holds(self) -> bool:
        """Whether every number of ours is within its Monte Carlo error of the exact one."""
        return all(number.holds for number in self.numbers)


def reproduce(size: Size | None = None, *, seed: int = 1, progress: Progress = lambda text: None) -> Reproduction:
    """Compute everything; `progress` is called with a line of text before each step."""
    size = size or Size()
    seed = checks.integer("paper", "seed", seed, least=0, advice="Give a whole number from 0 on.")
    panels = count.figure_panels(size.draws, seed, progress)
    rates = count.table_1(size.repetitions, seed, progress)
    fitted = lalonde.fits(size.fits, size.fit_draws, seed, progress)
    climbed = count.likelihood(size.staged, seed, progress)
    numbers = [
        *count.figure_numbers(panels),
        *count.table_numbers(rates),
        *count.likelihood_numbers(climbed),
        *lalonde.numbers(fitted, progress),
    ]
    return Reproduction(numbers, panels, rates, climbed, fitted, size, seed)


def write(reproduction: Reproduction, out: str | os.PathLike[str]) -> list[Path]:
    """Write figures, tables and page into the folder `out`, made if need be; returns their paths, the page last."""
    folder = folder_at(out)
    try:
        return _write(reproduction, folder)
    except OSError as error:
        raise _unwritable(out, error) from None


def folder_at(out: str | os.PathLike[str]) -> Path:
    """The folder `out`, made if need be: refused before anything is computed for it."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(out, error) from None
    return folder


def _unwritable(out: str | os.PathLike[str], error: OSError) -> InputError:
    advice = "Give a folder that can be made or written to."
    return refusal("paper", "out", f"must be a folder ({error.strerror})", str(out), advice)


def _write(reproduction: Reproduction, folder: Path) -> list[Path]:
    written = [path for name, picture in _pictures(reproduction).items() for path in _picture(folder / name, picture)]
    tables = {
        "table-1": [rate.row() for rate in reproduction.rates],
        "stages": [_step(step) for step in reproduction.likelihood.staged.trace],
        "figure-3": reproduction.lalonde.rows(),
        "numbers": [number.row() for number in reproduction.numbers],
    }
    for name, rows in tables.items():
        written += _table(folder / name, rows)
    inline = {path.stem: path.read_text(encoding="utf-8") for path in written if path.suffix == ".svg"}
    written.append(folder / "paper.html")
    written[-1].write_text(
        page.document(reproduction.numbers, tables["table-1"], inline, _footer(reproduction)), encoding="utf-8"
    )
    return written


def _pictures(reproduction: Reproduction) -> dict[str, Any]:
    """Figures by file name."""
    letters = zip("abcd", (2, 5, 50, 75), strict=True)
    return {
        "figure-1": figures.posterior_figure([reproduction.panels[25.0]], ["prior Gamma(25, 1)"]),
        "figure-2": figures.posterior_figure(
            [reproduction.panels[alpha] for alpha in (2.0, 5.0, 50.0, 75.0)],
            [f"({letter}) prior Gamma({alpha}, 1)" for letter, alpha in letters],
        ),
        "figure-3": figures.lalonde_figure(reproduction.lalonde),
        "stages": figures.stages_figure(reproduction.likelihood.staged.trace, Count().maximum[0]),
    }


def _picture(path: Path, picture: Any) -> list[Path]:
    paths = [path.with_suffix(".png"), path.with_suffix(".svg")]
    for file in paths:
        picture.savefig(file, dpi=300, metadata={"Date": None} if file.suffix == ".svg" else None)
    plt.close(picture)
    return paths


def _step(step: Any) -> dict[str, Any]:
    """One step of Monte Carlo EM as plain data."""
    return {"stage": step["stage"], "iteration": step["iteration"], "values": step["size"]} | {
        key: float(step[key]) for key in ("theta", "ess")
    }


def _table(path: Path, rows: list[dict[str, Any]]) -> list[Path]:
    pd.DataFrame(rows).to_csv(path.with_suffix(".csv"), index=False)
    path.with_suffix(".json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return [path.with_suffix(".csv"), path.with_suffix(".json")]


def _footer(reproduction: Reproduction) -> str:
    versions = ", ".join(
        f"{name} {version}" for name, version in reproduction.lalonde.posteriors["exact"][0].versions.items()
    )
    size = reproduction.size
    return (
        f"{size.draws:,} draws a histogram, {size.repetitions} repetitions in Table 1, {size.fits} fits of "
        f"{size.fit_draws:,} draws a row of Figure 3, seed {reproduction.seed}. {versions}. "
        "Formulas: docs/derivations/paper.md."
    )
