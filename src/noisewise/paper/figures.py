"""The paper's figures, drawn for print: vector and bitmap, legible in grey."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from noisewise.paper.count import FigurePanel
from noisewise.paper.lalonde import LEVELS, QUANTITIES, Fitted

STYLE = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "svg.hashsalt": "noisewise",
    "svg.fonttype": "path",
}
GREEN, RED, BLUE = "#117733", "#CC3311", "#4477AA"
TITLES = {
    "tau": r"$\tau$ (thousand dollars)",
    "mu": r"$\mu$ (thousand dollars)",
    "sigma_t_squared": r"$\sigma_t^2$ (thousand dollars)$^2$",
    "sigma_c_squared": r"$\sigma_c^2$ (thousand dollars)$^2$",
}


def posterior_figure(panels: list[FigurePanel], titles: list[str]) -> Any:
    """Histogram of exact draws, analytic and naive posterior, prior, and the released value, a panel each."""
    with plt.rc_context(STYLE):
        columns = min(2, len(panels))
        rows = -(-len(panels) // columns)
        size = (5.2, 3.4) if len(panels) == 1 else (3.5 * columns, 2.6 * rows + 0.5)
        figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        for axis, panel, title in zip(axes.flat, panels, titles, strict=True):
            _posterior_panel(axis, panel, title)
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _posterior_panel(axis: Any, panel: FigurePanel, title: str) -> None:
    exact = panel.exact
    low = max(0.0, min(panel.draws.min(), stats.gamma.ppf(1e-3, exact.alpha), exact.released - 2.0))
    high = 1.05 * max(panel.draws.max(), stats.gamma.ppf(0.999, exact.alpha), exact.released + 2.0)
    x = np.linspace(low + 1e-6, high, 800)
    bins = np.histogram_bin_edges(panel.draws, bins=50)
    axis.hist(
        panel.draws, bins=bins, density=True, color="#cccccc", edgecolor="#666666", linewidth=0.3, label="exact draws"
    )
    axis.plot(x, exact.density(x), color=GREEN, lw=1.6, label="analytic posterior")
    axis.plot(x, exact.naive_density(x), color=RED, lw=1.4, ls=":", label="naive posterior")
    axis.plot(x, stats.gamma.pdf(x, exact.alpha), color=BLUE, lw=1.2, ls="--", label="prior")
    axis.plot(
        [exact.released], [0.0], marker="D", color="black", ms=5, clip_on=False, ls="none", label="released value"
    )
    axis.set(xlabel=r"$\theta$", ylabel="density", title=title, xlim=(low, high))
    axis.set_ylim(bottom=0.0)


def lalonde_figure(fitted: Fitted) -> Any:
    """Boxes at the 1, 25, 50, 75 and 99% quantiles: three analyses by four parameters."""
    labels = {"confidential": "confidential data", "naive": "naive", "exact": "exact"}
    colours = {"confidential": BLUE, "naive": RED, "exact": GREEN}
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(3, 4, figsize=(9.5, 6.4), sharex=True, sharey="col", layout="constrained")
        for row, (analysis, by_name) in enumerate(fitted.quantiles.items()):
            for column, name in enumerate(QUANTITIES):
                axis = axes[row, column]
                boxes = [
                    dict(zip(("whislo", "q1", "med", "q3", "whishi"), levels, strict=True)) | {"fliers": []}
                    for levels in by_name[name]
                ]
                drawn = axis.bxp(boxes, showfliers=False, widths=0.6, patch_artist=True, manage_ticks=False)
                for box in drawn["boxes"]:
                    box.set(facecolor=colours[analysis], alpha=0.35, linewidth=0.7)
                for line in drawn["medians"]:
                    line.set(color="black", linewidth=1.0)
                axis.set(xticks=range(1, len(boxes) + 1), xlim=(0.4, len(boxes) + 0.6))
                axis.tick_params(axis="x", labelbottom=row == 2)
                if name == "tau":
                    axis.axhline(0.0, color="#888888", lw=0.6, ls=":")
                    axis.set_ylabel(labels[analysis])
                if row == 0:
                    axis.set_title(TITLES[name])
                if row == 2:
                    axis.set_xlabel("fit")
        levels = ", ".join(f"{100 * level:g}" for level in LEVELS)
        figure.supylabel(f"posterior quantiles ({levels}%)", fontsize=9)
    return figure


def stages_figure(trace: Any, top: float) -> Any:
    """The path of the three stages towards the maximum, and how far from it each step is."""
    with plt.rc_context(STYLE):
        figure, (path, distance) = plt.subplots(1, 2, figsize=(7.0, 2.9), layout="constrained")
        for stage, marker in zip(sorted({step["stage"] for step in trace}), "os^v", strict=False):
            steps = [step for step in trace if step["stage"] == stage]
            at = [step["iteration"] + 1 for step in steps]
            theta = np.array([float(step["theta"]) for step in steps])
            drawn: dict[str, Any] = {"marker": marker, "ms": 3.0, "lw": 0.8}
            size = f"{steps[0]['size']:,}".replace(",", " ")
            path.plot(at, theta, **drawn, label=f"stage {stage}: N = {size}")
            distance.plot(at, np.abs(theta - top), **drawn)
        path.axhline(top, color="#888888", lw=0.8, ls="--", label="exact maximum")
        path.set(xlabel="iteration", ylabel=r"$\theta$")
        path.legend(frameon=False)
        distance.set(xlabel="iteration", ylabel=r"distance of $\theta$ from the exact maximum", yscale="log")
    return figure
