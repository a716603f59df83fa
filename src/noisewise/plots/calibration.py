"""A picture of a calibration: each quantity's distribution function of positions, less the diagonal."""

from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise.diagnostics import uniformity
from noisewise.diagnostics.uniformity import FALSE_ALARM
from noisewise.errors import refusal
from noisewise.plots.posterior import COLOURS, MOST_PANELS, grid_of_panels

if TYPE_CHECKING:
    from noisewise.studies.calibrate import Calibration


def plot_calibration(calibration: "Calibration") -> Any:
    """One panel per quantity, the least uniform first, at most twelve.

    The bands hold for all quantities together: a right sampler leaves one of them with probability at most one in
    a hundred, the verdict's own rate. A line above zero: true values tend to lie low among the draws.
    """
    size = len(calibration.sizes)
    if size == 0:
        raise refusal("Calibration.plot", "replicates", "must include one that completed", 0, "See .failures.")
    labels = sorted(calibration.positions, key=calibration.p_values.__getitem__)[:MOST_PANELS]
    figure, axes = grid_of_panels(len(labels), 2.8, 0.6)
    z, low, high = uniformity.bands(size, FALSE_ALARM / len(calibration.positions))
    z, low, high = np.r_[0.0, z, 1.0], np.r_[0.0, low, 1.0], np.r_[0.0, high, 1.0]
    for axis, label in zip(axes, labels, strict=True):
        ecdf = np.searchsorted(np.sort(calibration.positions[label]), z, side="right") / size
        axis.fill_between(z, low - z, high - z, color=COLOURS["exact"], alpha=0.25, linewidth=0)
        axis.axhline(0.0, color=COLOURS["released"], linewidth=0.8)
        out = bool(np.any((ecdf < low - 1e-12) | (ecdf > high + 1e-12)))
        axis.plot(z, ecdf - z, color=COLOURS["naive" if out else "exact"], linewidth=1.6)
        axis.set_title(f"{label}: p = {calibration.p_values[label]:.2g}", fontsize=10, parse_math=False)
        axis.set_xlabel("position of the truth")
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlim(0.0, 1.0)
        if axis.get_subplotspec().is_first_col():
            axis.set_ylabel("ECDF less uniform")
    name = "the chosen sampler" if calibration.sampler is None else type(calibration.sampler).__name__
    figure.suptitle(f"{name}: {calibration.verdict}, {calibration.replicates} replicates")
    return figure
