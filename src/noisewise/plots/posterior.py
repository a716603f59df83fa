"""A picture of a posterior: histograms of the exact draws beside prior and naive posterior."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.diagnostics import weights
from noisewise.errors import refusal
from noisewise.model import Model
from noisewise.model import prior as priors
from noisewise.numerics import Array
from noisewise.results.labels import label_of
from noisewise.results.posterior import Posterior

COLOURS = {"exact": "#4477AA", "naive": "#CC3311", "prior": "#228833", "released": "#000000"}
"""Colours that can be told apart with any kind of colour vision (Paul Tol's scheme)."""
MOST_PANELS = 12
WIDTH = 44
"""Characters of one line of an axis's label."""


def plot(
    posterior: Posterior,
    *,
    names: Sequence[str] | None = None,
    prior: Model | None = None,
    naive: Posterior | None = None,
) -> Any:
    """A matplotlib figure with one panel per scalar: the posterior's histogram, and the others as lines.

    `names` chooses parameters and statistics (all by default, at most twelve panels); `prior` is the model whose
    prior to draw; `naive` the posterior that ignored the noise.
    """
    _check(posterior, prior, naive)
    names = [names] if isinstance(names, str) else names
    wanted = list(posterior.draws) if names is None else list(names)
    for name in wanted:
        if name not in posterior:
            advice = checks.nearest(name, posterior.draws)
            raise refusal("plot", "names", "must be names of the posterior", name, advice)
    panels = [(name, index) for name in wanted for index in np.ndindex(posterior[name].shape[1:])]
    if names is None:
        panels = panels[:MOST_PANELS]
    before = prior_draws(prior, posterior.seed) if prior is not None else {}
    figure, axes = grid_of_panels(len(panels), 3.2, 0.4)
    for axis, (name, index) in zip(axes, panels, strict=True):
        panel(axis, posterior, name, index, before, naive)
    legend(figure, axes)
    return figure


def grid_of_panels(number: int, height: float, margin: float) -> tuple[Any, list[Any]]:
    """A matplotlib figure with `number` panels, at most three in a row, and their axes; sizes in inches."""
    import matplotlib.pyplot as plt

    columns = min(3, number)
    rows = -(-number // columns)
    size = (4.2 * columns + 0.6, height * rows + margin)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[number:]:
        axis.set_visible(False)
    return figure, list(axes.flat[:number])


def prior_draws(model: Model, seed: int) -> dict[str, Array]:
    """Draws of the prior by name, as many as a line needs."""
    return priors.prior_draws(model, seed, blocks=1, rows=10_000)


def _check(posterior: Any, prior: Any, naive: Any) -> None:
    if not isinstance(posterior, Posterior):
        raise refusal("plot", "posterior", "must be a Posterior", posterior, "Give what nw.sample returned.")
    if len(posterior) < 2:
        advice = posterior.message or "Draw more."
        raise refusal("plot", "posterior", "must hold at least two draws", len(posterior), advice)
    if prior is not None and not isinstance(prior, Model):
        raise refusal("plot", "prior", "must be the Model", prior, "Its prior is drawn.")
    if naive is not None and not isinstance(naive, Posterior):
        raise refusal("plot", "naive", "must be a Posterior", naive, "Give nw.sample(model, release.naive(), ...).")


def panel(
    axis: Any,
    posterior: Posterior,
    name: str,
    index: tuple[int, ...],
    before: Any,
    naive: Posterior | None,
    smooth: bool = False,
) -> None:
    """Draw one entry: the posterior's histogram, naive posterior and prior (`before`: its draws) as lines.

    `smooth`: a density estimate in place of the histogram, unless the quantity is whole-numbered.
    """
    at: Any = (slice(None), *index)
    values = posterior[name][at]
    values = values.astype(int) if values.dtype.kind == "b" else values
    low, high = weights.quantiles(values.astype(float), posterior.weights, [0.0005, 0.9995])
    margin = 0.35 * max(high - low, 1e-12) if high > low else 0.5 * max(abs(low), 1.0)
    view = (low - margin, high + margin)
    if smooth and values.dtype.kind == "f" and high > low:
        _line(axis, values, posterior.weights, view, "-", "exact posterior")
        drawn = axis.lines[-1]
        axis.fill_between(drawn.get_xdata(), drawn.get_ydata(), color=COLOURS["exact"], alpha=0.25, linewidth=0)
    else:
        _histogram(axis, values, posterior.weights, _bins(values, low, high))
    if naive is not None and name in (*naive.parameters, *naive.derived):
        _line(axis, naive[name][at], naive.weights, view, ":", "naive posterior")
    if name in before:
        _line(axis, before[name][at], None, view, "--", "prior")
    released = np.asarray(posterior.released.get(name, np.nan))
    if released.shape == posterior[name].shape[1:] and not np.isnan(released[index]):  # withheld, or of another kind
        _mark(axis, float(released[index]), view)
    if axis.get_subplotspec().is_first_col():
        axis.set_ylabel("density")
    axis.set_xlabel(axis_label(posterior, name, index), parse_math=False)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xlim(*view)
    axis.set_ylim(bottom=0)


def axis_label(posterior: Posterior, name: str, index: tuple[int, ...], width: int = WIDTH) -> str:
    """What an axis of one entry says, in short lines: its label and unit, and whether it is confidential."""
    note = "confidential" if name in posterior.statistics else ""
    words = posterior.naming.with_unit(label_of(name, index, posterior.axes), note)
    return textwrap.fill(words, width, break_long_words=False)


def _histogram(axis: Any, values: Array, weight: Array | None, bins: Any) -> None:
    style: dict[str, Any] = {"color": COLOURS["exact"], "alpha": 0.55, "label": "exact posterior"}
    axis.hist(values, bins=bins, weights=weight, density=True, **style)


def _mark(axis: Any, released: float, view: tuple[float, float]) -> None:
    """The released value; beyond the view, an arrow at its edge: a mark out there would squeeze everything else."""
    marker = "D" if view[0] <= released <= view[1] else ">" if released > view[1] else "<"
    style: dict[str, Any] = {"color": COLOURS["released"], "clip_on": False, "zorder": 5, "label": "released value"}
    axis.plot([np.clip(released, *view)], [0], marker, **style)


def legend(figure: Any, axes: Any, where: str = "outside upper center") -> None:
    """One legend for all panels, each meaning once."""
    handles: dict[str, Any] = {}
    for axis in axes:
        handles |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc=where, ncols=len(handles), frameon=False)


def _bins(values: Array, low: float, high: float) -> Any:
    if values.dtype.kind in "iu":
        step = max(1, int(high - low) // 60)
        return np.arange(int(low), int(high) + step + 1, step) - 0.5
    return np.linspace(low, high, 61) if high > low else 10


def _line(axis: Any, values: Array, weight: Array | None, view: tuple[float, float], style: str, label: str) -> None:
    """A density estimate within the view, from at most 10,000 equally weighted draws."""
    if weight is not None:
        with np.errstate(divide="ignore"):
            values = values[weights.systematic(np.random.default_rng(0), np.log(weight), min(10_000, len(values)))]
    values = values[:10_000].astype(float)
    colour = COLOURS[label.split()[0]]
    inside = values[(values >= view[0]) & (values <= view[1])]
    if len(inside) < 2 or np.ptp(inside) == 0:
        if len(inside):
            axis.axvline(inside[0], color=colour, linestyle=style, label=label)
        return
    grid, density = smoothed(inside)
    share = len(inside) / len(values)
    axis.plot(grid, share * density, color=colour, linestyle=style, linewidth=1.8, label=label)


def smoothed(values: Array, points: int = 400) -> tuple[Array, Array]:
    """A grid from the least to the largest value, and a density estimate there: Gaussian kernels of Scott's width.

    Each value is shared out between the two nearest points of a grid (linear binning) too fine for a picture to show.
    """
    low, width = values.min(), values.std(ddof=1) * len(values) ** -0.2
    step = np.ptp(values) / (points - 1)
    parts = max(1, math.ceil(8.0 * step / width)) if width > 0.0 else 1
    cell = step / parts
    place = (values - low) / cell
    index = np.minimum(place.astype(int), parts * (points - 1) - 1)
    beyond = place - index
    size = parts * (points - 1) + 1
    mass = np.bincount(index, 1.0 - beyond, size) + np.bincount(index + 1, beyond, size)
    reach = min(size - 1, math.ceil(6.0 * width / cell))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * cell / width) ** 2)
    density = fftconvolved(mass, kernel)[::parts] / (len(values) * math.sqrt(2.0 * math.pi) * width)
    return low + step * np.arange(points), density


def fftconvolved(mass: Array, kernel: Array) -> Array:
    """`mass` smoothed by a kernel of odd length about its middle."""
    size = len(mass) + len(kernel) - 1
    whole = np.fft.irfft(np.fft.rfft(mass, size) * np.fft.rfft(kernel, size), size)
    middle = len(kernel) // 2
    return np.maximum(whole[middle : middle + len(mass)], 0.0)
