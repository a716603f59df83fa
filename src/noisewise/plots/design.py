"""Pictures of designs: what a budget, or a number of people, buys."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from noisewise.plots.posterior import COLOURS, grid_of_panels


def plot_curve(
    curve: Mapping[float, float],
    band: Mapping[float, tuple[float, float]],
    axis_name: str,
    words: str,
    goal: float,
    found: tuple[float, float] | None,
    floor: float | None,
) -> Any:
    """The target against the budget, with its 95% band; the goal, what was found, and what no noise gives."""
    figure, (axis,) = grid_of_panels(1, 5.2, 0.6)
    places = np.array(sorted(curve))
    low, high = np.array([band[place] for place in places]).T
    axis.fill_between(places, low, high, color=COLOURS["exact"], alpha=0.25, linewidth=0)
    axis.plot(
        places,
        [curve[place] for place in places],
        color=COLOURS["exact"],
        linewidth=1.6,
        marker="o",
        markersize=3,
        label="with noise",
    )
    axis.axhline(goal, color=COLOURS["released"], linewidth=0.8, label="asked for")
    if floor is not None:
        axis.axhline(floor, color=COLOURS["prior"], linewidth=1.2, linestyle="--", label="without noise")
    if found is not None:
        place, error = found
        axis.axvspan(max(place - 2 * error, places[0]), place + 2 * error, color=COLOURS["naive"], alpha=0.2)
        axis.axvline(place, color=COLOURS["naive"], linewidth=1.2, label=f"{axis_name} = {place:.3g}")
    axis.set(xscale="log", xlabel=axis_name, ylabel=words)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9)
    return figure


def plot_sizes(
    curves: Mapping[float, Mapping[int, float]],
    bands: Mapping[float, Mapping[int, tuple[float, float]]],
    kind: str,
    words: str,
    goal: float,
    found: Mapping[float, int],
) -> Any:
    """The target and its 95% band against the number of people, by budget; where the goal is met, a mark."""
    figure, (axis,) = grid_of_panels(1, 5.2, 0.6)
    shades = np.linspace(0.35, 1.0, len(curves))
    for shade, (budget, curve) in zip(shades, sorted(curves.items()), strict=True):
        people = np.array(sorted(curve))
        low, high = np.array([bands[budget][n] for n in people]).T
        axis.fill_between(people, low, high, color=COLOURS["exact"], alpha=0.15 * shade, linewidth=0)
        axis.plot(
            people,
            [curve[n] for n in people],
            color=COLOURS["exact"],
            alpha=shade,
            linewidth=1.6,
            label=f"{kind} = {budget:g}",
        )
        if budget in found:
            axis.plot(found[budget], goal, marker="o", color=COLOURS["naive"], markersize=5)
    axis.axhline(goal, color=COLOURS["released"], linewidth=0.8)
    axis.set(xscale="log", xlabel="number of people", ylabel=words)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9)
    return figure
