"""The numerical results of Gong (2022), recomputed with the public functions of this library.

R. Gong (2022), Exact inference with approximate computation for differentially private data via perturbations,
Journal of Privacy and Confidentiality 12(2). `noisewise paper --out DIR` writes figures (PNG, SVG), tables (CSV,
JSON) and one page, paper.html, with the paper's numbers beside ours and beside exact values by quadrature.
"""

import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import noisewise as nw
from noisewise import checks
from noisewise.errors import refusal
from noisewise.paper import count, figures, lalonde, page
from noisewise.paper.exact import Count
from noisewise.paper.numbers import FALSE_ALARM, LIMIT, Number

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
    panels: dict[float, count.Panel]
    rates: list[count.Rate]
    likelihood: count.Likelihood
    lalonde: lalonde.Fitted
    seed: int

    @property
    def holds(self) -> bool:
        """Whether every number of ours is within its Monte Carlo error of the exact one, and every histogram fits."""
        return all(number.holds for number in self.numbers) and all(
            panel.p_value > FALSE_ALARM for panel in self.panels.values()
        )


def reproduce(size: Size | None = None, *, seed: int = 1, progress: Progress = lambda text: None) -> Reproduction:
    """Compute everything; `progress` is called with a line of text before each step."""
    size = size or Size()
    seed = checks.integer("paper", "seed", seed, least=0, advice="Give a whole number from 0 on.")
    panels = count.panels(size.draws, seed, progress)
    rates = count.table_1(size.repetitions, seed, progress)
    fitted = lalonde.fits(size.fits, size.fit_draws, seed, progress)
    climbed = count.likelihood(size.staged, seed, progress)
    numbers = [
        *count.figure_numbers(panels),
        *count.table_numbers(rates),
        *count.likelihood_numbers(climbed),
        *lalonde.numbers(fitted),
    ]
    return Reproduction(numbers, panels, rates, climbed, fitted, seed)


def write(found: Reproduction, out: str | os.PathLike[str]) -> list[Path]:
    """Figures, tables and page into the folder `out`, made if need be."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        advice = "Give a folder that can be made or written to."
        raise refusal("paper", "out", f"must be a folder ({error.strerror})", str(out), advice) from None
    pictures = {
        "figure-1": figures.posterior_figure([found.panels[25.0]], ["prior Gamma(25, 1)"]),
        "figure-2": figures.posterior_figure(
            [found.panels[alpha] for alpha in (2.0, 5.0, 50.0, 75.0)],
            [f"({letter}) prior Gamma({alpha}, 1)" for letter, alpha in zip("abcd", (2, 5, 50, 75), strict=True)],
        ),
        "figure-3": figures.lalonde_figure(found.lalonde),
        "stages": figures.stages_figure(found.likelihood.staged.trace, Count().maximum[0]),
    }
    written, inline = [], {}
    for name, picture in pictures.items():
        for kind in ("png", "svg"):
            written.append(folder / f"{name}.{kind}")
            picture.savefig(written[-1], dpi=300, metadata={"Date": None} if kind == "svg" else None)
        text = io.StringIO()
        picture.savefig(text, format="svg", metadata={"Date": None})
        inline[name] = text.getvalue()
        _close(picture)
    tables = {
        "table-1": [rate.row() for rate in found.rates],
        "stages": [_step(step) for step in found.likelihood.staged.trace],
        "figure-3": found.lalonde.rows(),
        "numbers": [number.row() for number in found.numbers],
    }
    for name, rows in tables.items():
        written += _table(folder / name, rows)
    written.append(folder / "paper.html")
    written[-1].write_text(_page(found, tables, inline), encoding="utf-8")
    return written


def _step(step: Any) -> dict[str, Any]:
    """One step of Monte Carlo EM as plain data."""
    return {"stage": step["stage"], "iteration": step["iteration"], "values": step["size"]} | {
        key: float(step[key]) for key in ("theta", "ess")
    }


def _close(picture: Any) -> None:
    import matplotlib.pyplot as plt

    plt.close(picture)


def _table(path: Path, rows: list[dict[str, Any]]) -> list[Path]:
    import pandas as pd

    pd.DataFrame(rows).to_csv(path.with_suffix(".csv"), index=False)
    path.with_suffix(".json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return [path.with_suffix(".csv"), path.with_suffix(".json")]


def _page(found: Reproduction, tables: dict[str, list[dict[str, Any]]], inline: dict[str, str]) -> str:
    caption = (
        f"Histogram: {len(found.panels[25.0].draws):,} exact draws by rejection. Green: the analytic posterior. Red, "
        "dotted: the naive posterior, which takes 37.4 for the count. Blue, dashed: the prior. Diamond: the release."
    )
    fits = [
        {"prior": f"Gamma({alpha:g}, 1)", "Kolmogorov-Smirnov p-value": panel.p_value}
        for alpha, panel in found.panels.items()
    ]
    rows = {name: page.number_rows(found.numbers, name) for name in dict.fromkeys(n.section for n in found.numbers)}
    verdict = "Every number of ours" if found.holds else "NOT every number of ours"
    top = (
        f"<p><strong>{verdict} is within its Monte Carlo error of the exact value</strong> (limit {LIMIT:.2f} standard "
        f"errors: one false alarm in {1 / FALSE_ALARM:,.0f} numbers). Exact values come from quadrature and use no "
        "sampler of the library. Errors of the paper's numbers are its own standard errors and its rounding.</p>"
    )
    rate_note = (
        "<p class='note'>The paper's s.e. is the standard deviation over 20 repetitions of 10,000 proposals; "
        "so is ours.</p>"
    )
    rates = page.table(tables["table-1"]) + rate_note + page.table(rows["Table 1"])
    described = "Posterior histogram with analytic posterior, naive posterior and prior"
    boxes = (
        "Boxes at the 1, 25, 50, 75 and 99% posterior quantiles. Top: fits to the confidential statistics. Middle: "
        "naive fits to privatised releases. Bottom: exact fits to the same releases."
    )
    climb = "Steps of Monte Carlo EM from theta = 1, in three stages of growing sample size."
    sections = [
        ("Verdict", top),
        ("Figure 1", page.figure(inline["figure-1"], caption, described)),
        ("Figure 2", page.figure(inline["figure-2"], caption, described) + page.table(fits)),
        ("Posterior moments behind the figures", page.table(rows["Figures 1 and 2"])),
        ("Table 1: acceptance rate of Algorithm 1", rates),
        ("Maximum likelihood", page.table(rows["Maximum likelihood"]) + page.figure(inline["stages"], climb, climb)),
        ("Figure 3: the Lalonde experiment", page.figure(inline["figure-3"], boxes, boxes)),
        ("Figure 3 in numbers: the first release", page.table(rows["Figure 3"])),
    ]
    versions = ", ".join(f"{name} {version}" for name, version in found.lalonde.last[0].versions.items())
    footer = f"Made by: noisewise paper --seed {found.seed}. {versions}. Data and formulas: docs/derivations/paper.md."
    return page.page("Gong (2022), recomputed", sections, footer)
