"""A picture of a model check: published values beside those that the fitted model would publish."""

from collections.abc import Callable
from typing import Any

import numpy as np

from noisewise.errors import refusal
from noisewise.plots.posterior import COLOURS
from noisewise.results.replicates import Replicates

MOST_ROWS = 60
"""Rows at most: those with the smallest p-values are shown."""
SURPRISING = 0.05


def plot_replicates(replicates: Replicates, **functions: Callable[..., Any]) -> Any:
    """A matplotlib figure: for every row of `replicates.p_values(**functions)`, 50% and 95% of the replicates as bars.

    The published value is a diamond, red where its p-value is below 0.05. Each row is drawn in its replicates' standard
    deviations, so that all share one axis.
    """
    if not isinstance(replicates, Replicates):
        raise refusal(
            "plot_replicates", "replicates", "must be Replicates", replicates, "Give posterior.replicate(...)."
        )
    import matplotlib.pyplot as plt

    table, spread = rows(replicates, MOST_ROWS, **functions)
    figure, axis = plt.subplots(figsize=(7.0, 0.34 * len(table) + 1.3), layout="constrained")
    bars(axis, table, spread)
    handles = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3, frameon=False)
    return figure


def rows(replicates: Replicates, most: int, **functions: Callable[..., Any]) -> tuple[Any, Any]:
    """Pandas tables: the p-values that can be drawn, at most the `most` smallest, and quantiles of their replicates."""
    table = replicates.p_values(**functions).dropna()
    if len(table) > most:
        table = table.iloc[np.sort(table["p"].argsort(kind="stable")[:most])]
    return table, replicates.spread(**functions).loc[table.index]


def bars(axis: Any, table: Any, spread: Any) -> None:
    """Bars and diamonds on an axis, a row for each."""
    for row, (label, numbers) in enumerate(table.iterrows()):
        unit = numbers["sd"] if numbers["sd"] > 0 else 1.0
        ends = (spread.loc[label].to_numpy() - numbers["mean"]) / unit
        bar = {"color": COLOURS["exact"], "alpha": 0.6, "solid_capstyle": "butt"}
        axis.plot(ends[[0, 3]], [row, row], linewidth=2.0, label="95% of replicates", **bar)
        axis.plot(ends[[1, 2]], [row, row], linewidth=6.0, label="50% of replicates", **bar)
        place = (numbers["published"] - numbers["mean"]) / unit
        colour = COLOURS["naive"] if numbers["p"] < SURPRISING else COLOURS["released"]
        axis.plot([place], [row], "D", color=colour, markersize=5, zorder=5, label="published")
        said = "p < 0.001" if numbers["p"] < 0.001 else f"p = {numbers['p']:.2g}"
        where = {"xycoords": ("axes fraction", "data"), "xytext": (6, 0), "textcoords": "offset points"}
        axis.annotate(said, (1.0, row), va="center", color=colour, fontsize=9, **where)
    axis.set_yticks(range(len(table)), [str(label) for label in table.index], parse_math=False)
    axis.set_ylim(len(table) - 0.4, -0.6)
    axis.set_xlabel("standard deviations of the replicates from their mean")
    axis.spines[["top", "right"]].set_visible(False)
