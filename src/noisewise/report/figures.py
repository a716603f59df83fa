"""Pictures for the report: one small inline SVG per quantity, whose colours follow the page's."""

import io
import re
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from noisewise.diagnostics import weights
from noisewise.numerics import Array
from noisewise.plots import posterior as plots
from noisewise.report.markup import Html, number, text, whole
from noisewise.results.labels import label_of
from noisewise.results.naming import Naming
from noisewise.results.posterior import Posterior

MOST = 12
"""Panels at most."""
LINE = 44
"""Characters that fit under a panel."""
PAPER = {"#4477aa": "--exact", "#cc3311": "--naive", "#228833": "--prior", "#000000": "--ink", "#ffffff": "--page"}
"""Colours that matplotlib writes, and the page's variables that take their place."""


def panels(
    posterior: Posterior,
    naive: Posterior | None,
    before: Mapping[str, Array],
    level: float,
    naming: Naming | None = None,
    most: int = MOST,
) -> list[tuple[str, Html, str]]:
    """(label, SVG, what it shows in words) for at most `most` scalars; the quantities asked for come first."""
    posterior = replace(posterior, released=_markable(posterior))
    asked = [name for name in posterior.derived if posterior[name].dtype.kind != "b"]  # a probability is no picture
    names = [*asked, *(name for name in posterior.draws if name not in posterior.derived)]
    scalars = [(name, index) for name in names for index in np.ndindex(posterior[name].shape[1:])]
    scalars = [(name, index) for name, index in scalars if np.all(np.isfinite(posterior[name][_at(index)]))]
    pictures = []
    for count, (name, index) in enumerate(scalars[:most]):
        label = label_of(name, index, posterior.axes)
        words = _words(posterior, naive, before, name, index, level)
        drawn = _drawn(posterior, naive, before, name, index, level, (naming or Naming()).with_unit(label))
        pictures.append((label, inline(drawn, f"panel{count}", f"Densities of {label}", words), words))
    return pictures


def _at(index: tuple[int, ...]) -> Any:
    """All draws of one entry."""
    return (slice(None), *index)


def _markable(posterior: Posterior) -> dict[str, Any]:
    """Released values that can be marked on their statistic's axis: of its shape, and none of them withheld."""
    return {
        name: value
        for name, value in posterior.released.items()
        if name in posterior and np.shape(value) == posterior[name].shape[1:] and np.all(np.isfinite(value))
    }


def _spread(posterior: Posterior, name: str, index: tuple[int, ...], level: float) -> tuple[float, float, float]:
    """Mean, or median where there is no mean, and interval."""
    values = posterior[name][_at(index)].astype(float)
    tail = (1 - level) / 2
    mean, _ = weights.mean_and_sd(values, posterior.weights)
    low, median, high = weights.quantiles(values, posterior.weights, [tail, 0.5, 1 - tail])
    has_mean = label_of(name, index, posterior.axes) not in posterior.heavy_tails
    return float(mean if has_mean else median), float(low), float(high)


def _words(
    posterior: Posterior,
    naive: Posterior | None,
    before: Mapping[str, Array],
    name: str,
    index: tuple[int, ...],
    level: float,
) -> str:
    def described(who: str, drawn: Posterior) -> str:
        centre, low, high = _spread(drawn, name, index, level)
        kind = "median" if label_of(name, index, drawn.axes) in drawn.heavy_tails else "mean"
        return f"{who}: {kind} {number(centre)}, {100 * level:g}% interval from {number(low)} to {number(high)}."

    parts = [described("Exact", posterior)]
    if naive is not None and name in (*naive.parameters, *naive.derived):
        parts.append(described("Naive", naive))
    if name in before:
        values = before[name][_at(index)].astype(float)
        low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
        parts.append(f"Before the release: {100 * level:g}% interval from {number(low)} to {number(high)}.")
    if name in posterior.released:
        parts.append(f"Published: {whole(np.asarray(posterior.released[name])[index], 4)}.")
    return " ".join(parts)


def _drawn(
    posterior: Posterior,
    naive: Posterior | None,
    before: Mapping[str, Array],
    name: str,
    index: tuple[int, ...],
    level: float,
    title: str,
) -> str:
    with small_axis(2.6) as (axis, drawn):
        plots.panel(axis, posterior, name, index, before, naive, smooth=True)
        axis.set_xlabel(textwrap.fill(title, LINE), parse_math=False)
        axis.set_ylabel("")
        axis.set_yticks([])
        axis.spines["left"].set_visible(False)
        bars(axis, posterior, naive, name, index, level)
    return drawn[0]


@contextmanager
def small_axis(height: float, width: float = 4.0) -> Iterator[tuple[Any, list[str]]]:
    """An axis to draw on, by default of a card's width; the list holds its SVG afterwards."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings = {"svg.fonttype": "none", "svg.hashsalt": "noisewise", "font.size": 11, "axes.linewidth": 0.9}
    with mpl.rc_context({**mpl.rcParamsDefault, **settings, "backend": mpl.rcParams["backend"]}):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
        axis = figure.subplots()
        axis.set_facecolor("none")
        drawn: list[str] = []
        yield axis, drawn
        axis.spines[["top", "right"]].set_visible(False)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
        drawn.append(stream.getvalue())


def bars(
    axis: Any, posterior: Posterior, naive: Posterior | None, name: str, index: tuple[int, ...], level: float
) -> None:
    """The intervals, under the densities."""
    top = axis.get_ylim()[1]
    posteriors = [("exact", posterior)]
    if naive is not None and name in (*naive.parameters, *naive.derived):
        posteriors.append(("naive", naive))
    for row, (kind, drawn) in enumerate(posteriors):
        mean, low, high = _spread(drawn, name, index, level)
        height = -0.08 * (row + 1) * top
        axis.plot([low, high], [height, height], color=plots.COLOURS[kind], linewidth=3.5, solid_capstyle="butt")
        axis.plot([mean], [height], "o", color=plots.COLOURS[kind], markersize=6)
    axis.set_ylim(-0.08 * (len(posteriors) + 1) * top, top)


def inline(drawn: str, key: str, title: str, description: str) -> Html:
    """Matplotlib's SVG as part of a page: no prolog, ids of its own, the page's colours, a name and a description."""
    body = drawn[drawn.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{key}-', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\1{key}-", body)
    for colour, variable in PAPER.items():
        body = re.sub(colour, f"var({variable})", body, flags=re.IGNORECASE)
    body = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", body)  # matplotlib until 3.10
    body = re.sub(r"font-family: [^;\"]*", "font-family: system-ui, sans-serif", body)
    view = re.search(r'viewBox="([^"]+)"', body)
    assert view is not None
    opening = (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{view[1]}" class="panel" role="img" '
        f'aria-labelledby="{key}-title {key}-desc"><title id="{key}-title">{text(title)}</title>'
        f'<desc id="{key}-desc">{text(description)}</desc>'
    )
    return Html(re.sub(r"<svg\b[^>]*>", lambda _: opening, body, count=1))
