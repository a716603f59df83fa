"""A picture of a fit's path: parameters, likelihood and sample size against the iteration."""

from typing import Any

import numpy as np

from noisewise.errors import refusal
from noisewise.plots.posterior import COLOURS, MOST_PANELS, grid_of_panels
from noisewise.results.fit import Fit

PATHS = {
    "log likelihood": ("log_likelihood",),
    "rise of Q": ("rise",),
    "simulated values": ("size", "ess"),
}
"""Panels after those of the parameters, each with the entries of the trace that it shows, if there are any."""
WORDS = {"size": "sample size", "ess": "effective size"}


def plot_trace(fit: Fit) -> Any:
    """A matplotlib figure: one panel per scalar parameter, then the likelihood or the rise of Q and the sample size.

    There are at most twelve panels. The dashed line is the estimate, which for `MCEM` is measured after the climb.
    """
    if not isinstance(fit, Fit):
        raise refusal("plot_trace", "fit", "must be a Fit", fit, "Give what nw.fit returned.")
    if not fit.trace:
        raise refusal("plot_trace", "fit", "must have a trace", fit.status, "It ended before its first step.")
    scalars = [(name, index) for name, value in fit.estimate.items() for index in np.ndindex(value.shape)]
    paths = {title: [key for key in keys if key in fit.trace[0]] for title, keys in PATHS.items()}
    paths = {title: keys for title, keys in paths.items() if keys}
    scalars = scalars[: MOST_PANELS - len(paths)]
    figure, axes = grid_of_panels(len(scalars) + len(paths), 2.8, 0.4)
    iterations = [step["iteration"] for step in fit.trace]
    for axis, (name, index), label in zip(axes, scalars, fit.labels, strict=False):
        axis.plot(iterations, [np.asarray(step[name])[index] for step in fit.trace], color=COLOURS["exact"])
        axis.axhline(float(np.asarray(fit.estimate[name])[index]), color=COLOURS["released"], linestyle="--", lw=0.9)
        axis.set_ylabel(label, parse_math=False)
    for axis, (title, keys) in zip(axes[len(scalars) :], paths.items(), strict=True):
        for key, style in zip(keys, ("-", ":"), strict=False):
            axis.plot(
                iterations, [step[key] for step in fit.trace], style, color=COLOURS["exact"], label=WORDS.get(key)
            )
        axis.set_ylabel(title)
        if len(keys) > 1:
            axis.set_yscale("log")
            axis.legend(frameon=False)
    for axis in axes:
        axis.set_xlabel("iteration")
        axis.spines[["top", "right"]].set_visible(False)
    return figure
