"""Releases drawn anew from a posterior, and where the published one lies among them: posterior predictive checks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise.axes import Axes
from noisewise.diagnostics import weights
from noisewise.frozen import FrozenDict
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.model import derived
from noisewise.numerics import Array
from noisewise.results import groups
from noisewise.results.decisions import error
from noisewise.results.labels import NUMBERED, labels_of

if TYPE_CHECKING:
    from noisewise.results.posterior import Posterior

WHO = "Replicates.p_values"


@dataclass(frozen=True, eq=False, repr=False)
class Replicates:
    """One new release for each draw of a posterior: new statistics from the model, then new noise.

    `draws` holds them by name, the first axis is the draw; they have the posterior's weights.
    """

    draws: Mapping[str, Array]
    posterior: "Posterior"
    axes: Axes

    def p_values(self, **functions: Callable[..., Any]) -> Any:
        """A pandas table: where the published value lies among the replicates.

        Without an argument, a row for every released scalar. With functions of released values by name,
        `p_values(spread=lambda count: count.std())`, a row for what each gives. `p` is twice the smaller of two
        chances, that a replicate lies at or below the published value and that it lies at or above, at most 1. A value
        that was withheld has no `p`, and replicates that are withheld are left out.

        These are posterior predictive p-values: the release has been used to fit the model too, so they lie nearer to
        1/2 than uniform numbers, and p <= a has a chance of at most 2 a under the model (Meng 1994).
        """
        columns, published = self._computed(functions)
        return self.compared(columns, published, self._axes_of(functions, columns))

    def compared(self, columns: Mapping[str, Array], published: Mapping[str, Array], axes: Axes = NUMBERED) -> Any:
        """The table of `p_values` for values computed from each replicate, and from the release, by any name."""
        return self._frame(columns, lambda name, index, values: self._row(values, float(published[name][index])), axes)

    def spread(self, **functions: Callable[..., Any]) -> Any:
        """A pandas table of quantiles of the replicates, for the rows of `p_values`."""
        levels = (0.025, 0.25, 0.75, 0.975)

        def row(name: str, index: tuple[int, ...], values: Array) -> dict[str, float]:
            there, weight = ~np.isnan(values), self.posterior.weights
            part = None if weight is None else weight[there]
            ends = weights.quantiles(values[there], part, list(levels)) if there.any() else np.full(len(levels), np.nan)
            return {f"{100 * level:g}%": float(end) for level, end in zip(levels, ends, strict=True)}

        columns = self._computed(functions)[0]
        return self._frame(columns, row, self._axes_of(functions, columns))

    def _computed(self, functions: Mapping[str, Callable[..., Any]]) -> tuple[Mapping[str, Array], dict[str, Array]]:
        """Replicated and published values, or what the functions make of them."""
        released = {name: np.asarray(value) for name, value in self.posterior.released.items()}
        if not functions:
            return self.draws, released
        published = derived.evaluated(WHO, functions, {name: value[None] for name, value in released.items()})
        return derived.evaluated(WHO, functions, self.draws), {name: value[0] for name, value in published.items()}

    def _axes_of(self, functions: Mapping[str, Callable[..., Any]], columns: Mapping[str, Array]) -> Axes:
        """Axes of the computed values: each has those of its argument of the same shape."""
        if not functions:
            return self.axes
        shapes = {name: values.shape[1:] for name, values in {**self.draws, **columns}.items()}
        return derived.axes_of(WHO, derived.arguments(WHO, functions, self.draws), shapes, self.axes, None)

    def _frame(
        self, columns: Mapping[str, Array], row: Callable[[str, tuple[int, ...], Array], Any], axes: Axes
    ) -> Any:
        """A pandas table with a row for each scalar."""
        import pandas as pd

        labels: list[str] = []
        rows = []
        for name, values in columns.items():
            labels += labels_of(name, values.shape[1:], axes)
            for index in np.ndindex(values.shape[1:]):
                at: Any = (slice(None), *index)
                rows.append(row(name, index, values[at].astype(float)))
        return pd.DataFrame(rows, index=labels)

    def _row(self, values: Array, published: float) -> dict[str, float]:
        there = ~np.isnan(values)
        weight = np.where(there, 1.0 if self.posterior.weights is None else self.posterior.weights, 0.0)
        total = float(weight.sum())
        if np.isnan(published) or total == 0.0:
            nothing = dict.fromkeys(("mean", "sd", "at or below", "at or above", "p", "mcse p"), np.nan)
            return {"published": published} | nothing
        weight = weight / total
        mean, sd = weights.mean_and_sd(np.where(there, values, 0.0), weight)
        below, above = (float(weight @ (there & side)) for side in (values <= published, values >= published))
        smaller = values <= published if below <= above else values >= published
        return {
            "published": published,
            "mean": float(mean),
            "sd": float(sd),
            "at or below": below,
            "at or above": above,
            "p": min(1.0, 2.0 * min(below, above)),
            "mcse p": 2.0 * float(error(self.posterior, smaller & there)) * len(values) / max(int(there.sum()), 1),
        }

    def __repr__(self) -> str:
        table = self.p_values().to_string(float_format=lambda x: f"{x:.4g}")
        return f"Replicates: {len(next(iter(self.draws.values()))):,} releases\n{table}"


def replicated(posterior: "Posterior", problem: Problem, seed: int) -> Replicates:
    """A new release for each draw of the parameters."""
    draws = groups.predicted(problem, posterior.draws, generator(seed, Purpose.PREDICTIVE))
    dims = {name: tuple(item.coords) for name, item in problem.release.items() if item.coords}
    coords = {axis: labels for item in problem.release.values() for axis, labels in item.coords.items()}
    return Replicates(FrozenDict(draws), posterior, Axes(FrozenDict(dims), FrozenDict(coords)))
