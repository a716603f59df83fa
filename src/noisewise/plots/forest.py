"""A forest plot: intervals of the entries of labelled vectors, several results beside each other."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from noisewise.errors import refusal
from noisewise.plots.posterior import COLOURS, WIDTH, grid_of_panels
from noisewise.results.labels import place_of
from noisewise.results.naming import Naming
from noisewise.results.posterior import Posterior
from noisewise.results.tidy import Result, table

OTHERS = ("#AA3377", "#66CCEE", "#CCBB44", "#BBBBBB")
"""Colours of results that are neither exact nor naive (Paul Tol's scheme)."""
APART = 0.22
"""Distance of the results of one entry, in rows."""


def plot_forest(
    results: Mapping[str, Result] | Sequence[Result], *, names: Sequence[str] | None = None, level: float = 0.95
) -> Any:
    """A matplotlib figure: `nw.plot_forest({"naive": naive, "exact": exact}, names=["rate"])`.

    A panel for each quantity, a row for each entry, in it the interval and estimate of each result, as in `nw.table`;
    with its label and unit where these are known, see `Posterior.described`.
    Truth values, which have no interval, are left out.
    """
    frame = table(results, names=names, level=level).frame
    frame = frame[frame["kind"] != "probability"]
    if frame.empty:
        rule, advice = "must name quantities that have intervals", "Truth values are in nw.table."
        raise refusal("plot_forest", "names", rule, names, advice)
    models = list(dict.fromkeys(frame["model"]))
    rest = iter(OTHERS * len(models))
    colours = {model: COLOURS[model] if model in ("exact", "naive") else next(rest) for model in models}
    if len(models) == 1:
        colours = {models[0]: COLOURS["exact"]}
    quantities = list(dict.fromkeys(frame["quantity"]))
    given = (
        results.values() if isinstance(results, Mapping) else results if isinstance(results, Sequence) else [results]
    )
    naming = Naming()
    for result in given:
        naming = result.naming | naming if isinstance(result, Posterior) else naming
    longest = max(frame.groupby("quantity")["label"].nunique())
    figure, axes = grid_of_panels(len(quantities), (0.22 + APART * len(models)) * longest + 0.9, 0.4)
    for axis, quantity in zip(axes, quantities, strict=True):
        _panel(axis, frame[frame["quantity"] == quantity], models, colours)
        words = f"{naming.with_unit(quantity)}, {100 * level:g}% intervals"
        axis.set_xlabel(textwrap.fill(words, WIDTH, break_long_words=False), parse_math=False)
    if len(models) > 1:
        handles = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def _panel(axis: Any, frame: Any, models: list[str], colours: Mapping[str, str]) -> None:
    labels = list(dict.fromkeys(frame["label"]))
    for place, model in enumerate(models):
        shift = APART * (place - (len(models) - 1) / 2)
        for _, row in frame[frame["model"] == model].iterrows():
            height = labels.index(row["label"]) + shift
            axis.plot([row["low"], row["high"]], [height, height], color=colours[model], linewidth=2.2)
            axis.plot([row["estimate"]], [height], "o", color=colours[model], markersize=5, label=model)
    axis.set_yticks(range(len(labels)), [_entry(label) for label in labels], parse_math=False)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.spines[["top", "right"]].set_visible(False)


def _entry(label: str) -> str:
    """The label of an entry without its name."""
    return place_of(label) or label
