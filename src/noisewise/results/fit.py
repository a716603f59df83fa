"""The result of a likelihood run: estimate, information, standard errors that count the noise, and the path."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from noisewise._version import current_versions
from noisewise.axes import Axes
from noisewise.errors import refusal
from noisewise.inference.settings import Estimator
from noisewise.inference.status import FIT, check_status
from noisewise.notebook import for_people
from noisewise.numerics import Array
from noisewise.results import derived as derivation
from noisewise.results.derived import FitDerived
from noisewise.results.estimated import Estimated, alike


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Estimated):
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
    """Monte Carlo standard error of the information, with what the error of the estimate adds; None for `EM`."""
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

    def derive(self, *, dims: Mapping[str, tuple[str, ...]] | None = None, **functions: Any) -> "FitDerived":
        """Functions of the estimate, with standard errors by the delta method: `fit.derive(gap=lambda p, q: p - q)`.

        Each takes the parameters that it names as arguments, in `jax.numpy`. With J its Jacobian at the estimate, the
        covariance is J C J', C that of the fit. An entry of an array that does not change with the parameters there, as
        the first of `rate - rate[0]`, has no standard error, and `message` says so. See docs/answers.md.
        """
        return derivation.of_fit(self, functions, dims)

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
        head = escape(repr(self).splitlines()[0])
        return f"<div><p><strong>{head}</strong></p>{self.summary().to_html(float_format=for_people)}</div>"


__all__ = ["Fit", "FitDerived", "alike"]
