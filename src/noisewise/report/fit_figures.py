"""Pictures of a likelihood report: intervals of exact and naive estimates, and the path of the climb."""

from typing import Any

import numpy as np

from noisewise.plots import posterior as plots
from noisewise.report import figures
from noisewise.report.markup import Html, number
from noisewise.results.fit import Fit

Drawn = list[tuple[str, Html, str]]
Ends = tuple[float, float, float]


def intervals(fit: Fit, naive: Fit | None, level: float) -> Drawn:
    """(label, SVG, words) for each scalar parameter whose interval is finite, at most as many as other reports draw."""
    exact, naive_ends = _ends(fit, level), _ends(naive, level) if naive is not None else {}
    finite = {label: ends for label, ends in exact.items() if np.all(np.isfinite(ends))}
    pictures: Drawn = []
    for label, ends in list(finite.items())[: figures.MOST]:
        ends_by_kind = {"exact": ends}
        if label in naive_ends and np.all(np.isfinite(naive_ends[label])):
            ends_by_kind["naive"] = naive_ends[label]
        description = " ".join(
            f"{kind.capitalize()}: {number(middle)}, {100 * level:g}% interval from {number(low)} to {number(high)}."
            for kind, (middle, low, high) in ends_by_kind.items()
        )
        drawn = _bars(label, ends_by_kind)
        pictures.append(
            (label, figures.inline(drawn, f"panel{len(pictures)}", f"Estimates of {label}", description), description)
        )
    return pictures


def _ends(fit: Fit, level: float) -> dict[str, Ends]:
    table = fit.summary(level)
    low, high = table.columns[2:4]
    return {str(label): (row["estimate"], row[low], row[high]) for label, row in table.iterrows()}


def _bars(label: str, ends_by_kind: dict[str, Ends]) -> str:
    with figures.small_axis(1.3) as (axis, drawn):
        for row, (kind, (middle, low, high)) in enumerate(ends_by_kind.items()):
            style = {"linestyle": ":" if kind == "naive" else "-", "linewidth": 3.5, "solid_capstyle": "butt"}
            axis.plot([low, high], [-row, -row], color=plots.COLOURS[kind], **style)
            axis.plot([middle], [-row], "o", color=plots.COLOURS[kind], markersize=7)
        axis.set_ylim(-len(ends_by_kind) + 0.4, 0.6)
        axis.set_yticks([])
        axis.set_xlabel(label, parse_math=False)
        axis.spines["left"].set_visible(False)
    return drawn[0]


def climb(fit: Fit) -> Drawn:
    """(label, SVG, words): the log likelihood where the trace holds it, then each scalar parameter."""
    paths: dict[str, Any] = {}
    if all("log_likelihood" in step for step in fit.trace):
        paths["log likelihood"] = [float(step["log_likelihood"]) for step in fit.trace]
    scalars = [(name, index) for name, value in fit.estimate.items() for index in np.ndindex(np.shape(value))]
    for label, (name, index) in zip(fit.labels, scalars, strict=True):
        paths[label] = [float(np.asarray(step[name])[index]) for step in fit.trace]
    paths = {label: path for label, path in paths.items() if np.all(np.isfinite(path))}
    pictures: Drawn = []
    for label, path in list(paths.items())[: figures.MOST]:
        description = f"From {number(path[0])} to {number(path[-1])} in {len(path):,} steps."
        drawn = _path(label, path)
        pictures.append(
            (label, figures.inline(drawn, f"climb{len(pictures)}", f"Path of {label}", description), description)
        )
    return pictures


def _path(label: str, path: list[float]) -> str:
    with figures.small_axis(2.2) as (axis, drawn):
        axis.plot(range(len(path)), path, color=plots.COLOURS["exact"], linewidth=1.8)
        axis.set_xlabel("step")
        axis.set_ylabel(label, parse_math=False)
    return drawn[0]
