"""Estimates with a covariance: standard errors, intervals and tables, for parameters and for functions of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import ndtri

from noisewise import checks
from noisewise.axes import Axes
from noisewise.errors import refusal
from noisewise.numerics import Array
from noisewise.results.labels import by_name


class Estimated:
    """Named estimates with a covariance, which has one row for each scalar."""

    estimate: Mapping[str, Array]
    labels: tuple[str, ...]
    covariance: Array
    monte_carlo_error: Mapping[str, Array]
    axes: Axes

    @property
    def standard_error(self) -> dict[str, Array]:
        """Square roots of the covariance's diagonal, by name."""
        return alike(self.estimate, np.sqrt(np.diag(self.covariance)))

    def interval(
        self, level: float = 0.95, kind: str = "equal-tailed", *, simultaneous: bool = False
    ) -> dict[str, tuple[Any, Any]]:
        """Wald intervals: the estimate, give or take a normal quantile of standard errors.

        These are "equal-tailed"; the `kind` "hdi" is of posteriors. `simultaneous`: for a vector, intervals that hold
        all of its entries at once, by Sidak's inequality. Each of k entries has level^(1/k): joint normal errors lie
        within with at least `level`, exactly that if independent.
        """
        level = checks.level(type(self).__name__, level)
        if kind != "equal-tailed":
            who, rule = f"{type(self).__name__}.interval", "must be 'equal-tailed': estimates have no density"
            raise refusal(who, "kind", rule, kind, "Leave it out, or ask a posterior (nw.sample).")
        errors, ends = self.standard_error, {}
        for name, value in self.estimate.items():
            each = level ** (1.0 / max(np.size(value), 1)) if simultaneous else level
            z = -ndtri((1 - each) / 2)
            ends[name] = (value - z * errors[name], value + z * errors[name])
        return ends

    def select(self, name: str, **labels: Any) -> Any:
        """The estimate of the entries with these labels: `fit.select("rate", county="Bronx")`."""
        who = type(self).__name__
        if name not in self.estimate:
            raise KeyError(f"{who}: no '{name}'. {checks.nearest(name, self.estimate)}")
        return self.axes.taken(f"{who}.select", name, np.asarray(self.estimate[name]), 0, labels)[()]

    def summary(self, level: float = 0.95) -> Any:
        """A pandas table: estimate, standard error, Wald interval, and the Monte Carlo error of the estimate.

        Its `style` is for a paper.
        """
        from noisewise.results.summary_table import SummaryTable  # a class of pandas', which takes long to import

        tail = (1 - level) / 2
        low, high = f"{100 * tail:g}%", f"{100 * (1 - tail):g}%"
        ends = self.interval(level)
        flat = {
            "estimate": self.estimate,
            "standard error": self.standard_error,
            low: {name: pair[0] for name, pair in ends.items()},
            high: {name: pair[1] for name, pair in ends.items()},
        }
        if self.monte_carlo_error:
            flat["Monte Carlo error"] = self.monte_carlo_error
        columns = {
            title: np.concatenate([np.ravel(values[name]) for name in self.estimate]) for title, values in flat.items()
        }
        return SummaryTable(columns, index=list(self.labels))


def alike(estimate: Mapping[str, Array], flat: Array) -> dict[str, Array]:
    """One number for every scalar of an estimate, by name and in its shapes."""
    shapes = {name: np.shape(value) for name, value in estimate.items()}
    return {name: value[()] for name, value in by_name(flat, shapes).items()}
