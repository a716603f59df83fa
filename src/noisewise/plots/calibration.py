"""A picture of a calibration: each quantity's distribution function of positions, less the diagonal."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from noisewise.diagnostics import uniformity
from noisewise.diagnostics.uniformity import FALSE_ALARM
from noisewise.numerics import Array
from noisewise.plots.posterior import COLOURS, MOST_PANELS, grid_of_panels


def plot_calibration(positions: Mapping[str, Array], p_values: Mapping[str, float], size: int, title: str) -> Any:
    """One panel per quantity, the least uniform first, at most twelve; `size` positions of each.

    The bands hold for all quantities together: a right sampler leaves one of them with probability at most one in
    a hundred, the verdict's own rate. A line above zero: true values tend to lie low among the draws.
    """
    labels = sorted(positions, key=p_values.__getitem__)[:MOST_PANELS]
    figure, axes = grid_of_panels(len(labels), 2.8, 0.6)
    z, low, high = uniformity.bands(size, FALSE_ALARM / len(positions))
    z, low, high = np.r_[0.0, z, 1.0], np.r_[0.0, low, 1.0], np.r_[0.0, high, 1.0]
    for axis, label in zip(axes, labels, strict=True):
        ecdf = np.searchsorted(np.sort(positions[label]), z, side="right") / size
        axis.fill_between(z, low - z, high - z, color=COLOURS["exact"], alpha=0.25, linewidth=0)
        axis.axhline(0.0, color=COLOURS["released"], linewidth=0.8)
        out = bool(np.any((ecdf < low - 1e-12) | (ecdf > high + 1e-12)))
        axis.plot(z, ecdf - z, color=COLOURS["naive" if out else "exact"], linewidth=1.6)
        axis.set_title(f"{label}: p = {p_values[label]:.2g}", fontsize=10, parse_math=False)
        axis.set_xlabel("position of the truth")
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlim(0.0, 1.0)
        if axis.get_subplotspec().is_first_col():
            axis.set_ylabel("ECDF less uniform")
    figure.suptitle(title)
    return figure
