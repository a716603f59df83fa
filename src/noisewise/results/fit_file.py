"""A likelihood fit as plain data, for JSON, and back. Only data is restored, never code."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from noisewise.axes import Axes
from noisewise.errors import InputError
from noisewise.inference.settings import Estimator
from noisewise.results.fit import Fit

FORMAT = "noisewise-fit"
VERSION = 1
BY_NAME = ("estimate", "efficiency", "monte_carlo_error")
ARRAYS = ("covariance", "information", "score", "information_error", "score_error")
PLAIN = ("labels", "log_likelihood", "seed", "release_hash", "status", "message", "versions")
TEXTS = ("release_hash", "status", "message")


def to_data(fit: Fit) -> dict[str, Any]:
    """Everything a report needs but the estimator, which the analysis file names."""
    data = {name: getattr(fit, name) for name in (*PLAIN, *ARRAYS)}
    data |= {name: dict(getattr(fit, name)) for name in BY_NAME}
    names = ("multimodal", "standard_errors_left", "iterations")
    diagnostics = {name: fit.diagnostics[name] for name in names if name in fit.diagnostics}
    data |= {"trace": list(fit.trace), "diagnostics": diagnostics | {"starts": len(fit.diagnostics.get("starts", ()))}}
    if fit.axes.dims:
        data["axes"] = {"dims": dict(fit.axes.dims), "coords": dict(fit.axes.coords)}
    return {"format": FORMAT, "version": VERSION, **data}


def from_data(content: Any, estimator: Estimator, where: str) -> Fit:
    """The fit that `to_data` wrote; `where` names the file in messages."""
    try:
        return _restored(dict(content), estimator)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        cause = f"not a fit written by this version of noisewise ({type(error).__name__}: {error})"
        advice = "Run 'noisewise mle' again."
        raise InputError(f"{cause}. {advice}", who=where, advice=advice) from None


def _restored(content: dict[str, Any], estimator: Estimator) -> Fit:
    if content.pop("format") != FORMAT or content.pop("version") != VERSION:
        raise KeyError("format")
    fields: dict[str, Any] = {name: content[name] for name in PLAIN}
    if not all(isinstance(fields[name], str) for name in TEXTS) or not isinstance(fields["labels"], list):
        raise TypeError("status, message and hash are text, labels a list of it")
    fields |= {name: None if content[name] is None else _array(content[name]) for name in ARRAYS}
    fields |= {name: {str(key): _array(value) for key, value in content[name].items()} for name in BY_NAME}
    fields["labels"] = tuple(map(str, fields["labels"]))
    fields["log_likelihood"] = float(_array(fields["log_likelihood"]))
    fields["versions"] = {str(name): str(version) for name, version in fields["versions"].items()}
    fields["trace"] = tuple({str(key): _array(value) for key, value in step.items()} for step in content["trace"])
    size = len(fields["labels"])
    if sum(value.size for value in fields["estimate"].values()) != size or fields["covariance"].shape != (size, size):
        raise ValueError("one label for each number")
    shapes = {name: value.shape for name, value in fields["estimate"].items()}
    named = content.get("axes", {"dims": {}, "coords": {}})
    fields["axes"] = Axes.of("fit", named["dims"], named["coords"], shapes)
    for title in ("efficiency", "monte_carlo_error"):
        if fields[title] and {name: value.shape for name, value in fields[title].items()} != shapes:
            raise ValueError(f"{title} by the names of the estimate")
    return Fit(estimator=estimator, diagnostics=_diagnostics(content["diagnostics"]), **fields)


def _diagnostics(content: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in content.items() if isinstance(value, (bool, int, float))}


def _array(value: Any) -> np.ndarray[Any, Any]:
    """An array of numbers, with NaN where JSON has null."""
    return np.asarray(value, dtype=float)
