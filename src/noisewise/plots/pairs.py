"""A picture of pairs: how quantities go together in a posterior, drawn by ArviZ."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.plots.posterior import COLOURS, axis_label
from noisewise.results.labels import label_of
from noisewise.results.posterior import Posterior

WHO = "plot_pairs"
MOST = 6
"""Scalars that are drawn where none are named."""
SIDE, WIDTH = 2.8, 26
"""Inches of a panel's side, and characters of one line beside it."""
DENSE = 400
"""Sum of the opacities of all points, where there are many: as much as the eye can tell apart."""


def plot_pairs(posterior: Posterior, *, names: Sequence[str] | None = None) -> Any:
    """A matplotlib figure by ArviZ: every scalar against every other, and each by itself on the diagonal.

    `names` chooses; by default parameters and derived quantities, the first six scalars. Axes have labels and units,
    see `Posterior.described`. Truth values and what never varies are left out. Needs the extra `arviz`.
    """
    if not isinstance(posterior, Posterior):
        raise refusal(WHO, "posterior", "must be a Posterior", posterior, "Give what nw.sample returned.")
    names = [names] if isinstance(names, str) else names
    for name in names or ():
        checks.known_name(WHO, "names", name, posterior.draws, "must be names of the posterior")
    wanted = [*posterior.parameters, *posterior.derived] if names is None else list(names)
    scalars = [(name, index) for name in wanted for index in np.ndindex(posterior[name].shape[1:])]
    scalars = [scalar for scalar in scalars if _varies(posterior, *scalar)]
    if len(scalars) < 2:
        advice = "Name two that vary; a truth value is in posterior.summary()."
        raise refusal(WHO, "names", "must be of at least two quantities that vary", wanted, advice)
    return _drawn(posterior, scalars if names is not None else scalars[:MOST])


def _varies(posterior: Posterior, name: str, index: tuple[int, ...]) -> bool:
    at: Any = (slice(None), *index)
    values = posterior[name][at]
    return values.dtype.kind != "b" and len(values) > 1 and bool(np.ptp(values) > 0)


def _drawn(posterior: Posterior, scalars: list[tuple[str, tuple[int, ...]]]) -> Any:
    """Each scalar is a variable of its own to ArviZ, so that one entry of a vector can stand beside another."""
    try:
        import arviz_plots
        from arviz_base.labels import MapLabeller
    except ImportError:
        advice = "Run pip install 'noisewise[arviz]'."
        raise refusal(WHO, "posterior", "needs ArviZ to be drawn", None, advice) from None
    import xarray as xr

    tree = posterior.to_arviz()["posterior"]
    columns: dict[str, Any] = {}
    words: dict[Any, Any] = {}
    for name, index in scalars:
        label = label_of(name, index, posterior.axes)
        columns[label] = (("chain", "draw"), tree[name].values[(slice(None), slice(None), *index)].astype(float))
        words[label] = axis_label(posterior, name, index, WIDTH)
    data = xr.DataTree.from_dict({"posterior": xr.Dataset(columns, {axis: tree[axis] for axis in ("chain", "draw")})})
    points = {"color": COLOURS["exact"], "alpha": min(0.5, DENSE / len(posterior)), "width": 0}
    drawn = arviz_plots.plot_pair(
        data,
        backend="matplotlib",
        labeller=MapLabeller(var_name_map=words),
        visuals={"scatter": points, "dist": {"color": COLOURS["exact"]}},
        figure_kwargs={"figsize": (SIDE * len(scalars), SIDE * len(scalars)), "figsize_units": "inches"},
    )
    figure = drawn.viz["figure"].item()
    figure.set_layout_engine("constrained")
    drawn.viz["plot"].values[0, 0].set_ylabel("density")  # alone in its row, it is against nothing
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
        for text in (axis.xaxis.label, axis.yaxis.label):
            text.set_parse_math(False)
    return figure
