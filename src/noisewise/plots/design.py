"""Pictures of designs: what a budget, or a number of people, buys."""

import math
from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np

from noisewise.plots.posterior import COLOURS, grid_of_panels

MOST_TICKS = 8
"""Numbers along a budget's axis that do not run into each other."""


def plot_curve(
    curve: Mapping[float, float],
    band: Mapping[float, tuple[float, float]],
    axis_name: str,
    words: str,
    goal: float,
    answer: tuple[float, float] | None,
    floor: float | None,
) -> Any:
    """The target against the budget, with its 95% band; the goal, the budget found, and the target without noise."""
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
    if answer is not None:
        place, error = answer
        axis.axvspan(max(place - 2 * error, places[0]), place + 2 * error, color=COLOURS["naive"], alpha=0.2)
        axis.axvline(place, color=COLOURS["naive"], linewidth=1.2, label=f"{axis_name} = {place:.3g}")
    axis.set(xlabel=axis_name, ylabel=words)
    _plain_log_scale(axis, places[0], places[-1])
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9)
    return figure


def plot_sizes(
    curves: Mapping[float, Mapping[int, float]],
    bands: Mapping[float, Mapping[int, tuple[float, float]]],
    kind: str,
    words: str,
    goal: float,
    answers: Mapping[float, int],
) -> Any:
    """The target and its 95% band against the number of people, by budget; where the goal is met, a mark."""
    figure, (axis,) = grid_of_panels(1, 5.2, 0.6)
    shades, dashes = np.linspace(0.55, 1.0, len(curves)), cycle(("-", "--", "-.", ":"))
    for shade, dash, (budget, curve) in zip(shades, dashes, sorted(curves.items()), strict=False):
        people = np.array(sorted(curve))
        low, high = np.array([bands[budget][n] for n in people]).T
        axis.fill_between(people, low, high, color=COLOURS["exact"], alpha=0.15 * shade, linewidth=0)
        axis.plot(
            people,
            [curve[n] for n in people],
            color=COLOURS["exact"],
            alpha=shade,
            linewidth=1.6,
            linestyle=dash,
            label=f"{kind} = {budget:g}",
        )
        if budget in answers:
            axis.plot(answers[budget], goal, marker="o", color=COLOURS["naive"], markersize=5)
    axis.axhline(goal, color=COLOURS["released"], linewidth=0.8, label="asked for")
    axis.set(xlabel="number of people", ylabel=words)
    seen = [n for curve in curves.values() for n in curve]
    _plain_log_scale(axis, min(seen), max(seen))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9)
    return figure


def _plain_log_scale(axis: Any, low: float, high: float) -> None:
    """A logarithmic scale whose ticks are 1, 2 and 5 times powers of ten, or these alone, in plain numbers."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    lists = [[times * 10.0**power for power in powers for times in steps] for steps in ((1, 2, 5), (1,))]
    within = [[tick for tick in ticks if low <= tick <= high] for ticks in lists]
    ticks = within[0] if len(within[0]) <= MOST_TICKS else within[1]
    axis.set_xscale("log")
    axis.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
    axis.set_xticks([], minor=True)
