"""The result of a likelihood run: estimate, information, standard errors that count the noise, and the path."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from noisewise import checks
from noisewise._version import current_versions
from noisewise.axes import Axes
from noisewise.errors import refusal
from noisewise.inference.settings import Estimator
from noisewise.inference.status import FIT, check_status
from noisewise.numerics import Array
from noisewise.results.labels import by_name


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """Maximum likelihood estimate of a model's parameters from a release, exact for model and noise together."""

    estimate: Mapping[str, Array]
    labels: tuple[str, ...]
    covariance: Array
    information: Array | None
    score: Array
    log_likelihood: float
    estimator: Estimator
    seed: int | None
    release_hash: str
    status: str = "converged"
    message: str = ""
    efficiency: Mapping[str, Array] = field(default_factory=dict)
    """Share of the information left: the variance from the confidential statistic itself, over the variance here."""
    monte_carlo_error: Mapping[str, Array] = field(default_factory=dict)
    """Standard error of the estimate over repeated simulation; empty for `EM`."""
    information_error: Array | None = None
    """Monte Carlo standard error of the information, with what that of the estimate adds to it; None for `EM`."""
    score_error: Array | None = None
    trace: tuple[Mapping[str, Any], ...] = ()
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=current_versions)
    axes: Axes = field(default_factory=Axes)
    """Names of the parameters' axes, and the labels along them."""

    def __post_init__(self) -> None:
        check_status("Fit", self.status, FIT)
        for name in ("covariance", "information", "score", "information_error", "score_error"):
            value = getattr(self, name)
            if value is not None:
                view = np.asarray(value).view()
                view.flags.writeable = False
                object.__setattr__(self, name, view)

    @property
    def standard_error(self) -> dict[str, Array]:
        """Square roots of the covariance's diagonal, by name."""
        return alike(self.estimate, np.sqrt(np.diag(self.covariance)))

    def interval(self, level: float = 0.95) -> dict[str, tuple[Any, Any]]:
        """Wald intervals: the estimate, give or take a normal quantile of standard errors."""
        z = -ndtri((1 - checks.level("Fit", level)) / 2)
        errors = self.standard_error
        return {name: (value - z * errors[name], value + z * errors[name]) for name, value in self.estimate.items()}

    def select(self, name: str, **labels: Any) -> Any:
        """The estimate of the entries with these labels: `fit.select("rate", county="Bronx")`."""
        if name not in self.estimate:
            raise KeyError(f"Fit: no '{name}'. {checks.nearest(name, self.estimate)}")
        return self.axes.taken("Fit.select", name, np.asarray(self.estimate[name]), 0, labels)[()]

    def summary(self, level: float = 0.95) -> Any:
        """A pandas table: estimate, standard error, Wald interval, and the Monte Carlo error of the estimate."""
        import pandas as pd

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
        return pd.DataFrame(columns, index=list(self.labels))

    def beside(self, naive: "Fit") -> Any:
        """A pandas table of this fit beside one that ignored the noise, `nw.fit(model, release.naive(), ...)`.

        `wider` is the ratio of the standard errors, `shift` the difference of the estimates in naive standard errors,
        `information ratio` the information the naive fit claims over the information there is.
        """
        import pandas as pd

        if not isinstance(naive, Fit) or naive.labels != self.labels:
            advice = "Give nw.fit(model, release.naive(), ...) of the same model."
            raise refusal("Fit.beside", "naive", "must be a fit of the same parameters", naive, advice)
        titles = ["estimate", "standard error"]
        exact, claimed = self.summary()[titles], naive.summary()[titles]
        wider = exact["standard error"] / claimed["standard error"]
        shift = (exact["estimate"] - claimed["estimate"]) / claimed["standard error"]
        columns = [wider.rename("wider"), shift.rename("shift"), (wider**2).rename("information ratio")]
        return pd.concat([claimed.add_prefix("naive "), exact.add_prefix("exact "), *columns], axis=1)

    def __repr__(self) -> str:
        height = "not known" if np.isnan(self.log_likelihood) else f"{self.log_likelihood:.6g}"
        head = f"Fit: {type(self.estimator).__name__}, status {self.status}, log likelihood {height}"
        return f"{head}\n{self.summary().to_string(float_format=lambda x: f'{x:.4g}')}"

    def _repr_html_(self) -> str:
        return (
            f"<div><p>{repr(self).splitlines()[0]}</p>{self.summary().to_html(float_format=lambda x: f'{x:.4g}')}</div>"
        )


def alike(estimate: Mapping[str, Array], flat: Array) -> dict[str, Array]:
    """One number for every scalar of an estimate, by name and in its shapes."""
    shapes = {name: value.shape for name, value in estimate.items()}
    return {name: value[()] for name, value in by_name(flat, shapes).items()}
