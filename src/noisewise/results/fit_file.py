"""A likelihood fit as plain data, for JSON, and back. Only data is restored, never code."""

from collections.abc import Mapping
from typing import Any

import numpy as np

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
    """Everything a report needs: the estimator is not among it, because the analysis file names it."""
    found = {name: getattr(fit, name) for name in (*PLAIN, *ARRAYS)}
    found |= {name: dict(getattr(fit, name)) for name in BY_NAME}
    kept = ("multimodal", "standard_errors_left", "iterations")
    told = {name: fit.diagnostics[name] for name in kept if name in fit.diagnostics}
    found |= {"trace": list(fit.trace), "diagnostics": told | {"starts": len(fit.diagnostics.get("starts", ()))}}
    return {"format": FORMAT, "version": VERSION, **found}


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
    found: dict[str, Any] = {name: content[name] for name in PLAIN}
    if not all(isinstance(found[name], str) for name in TEXTS) or not isinstance(found["labels"], list):
        raise TypeError("status, message and hash are text, labels a list of it")
    found |= {name: None if content[name] is None else _array(content[name]) for name in ARRAYS}
    found |= {name: {str(key): _array(value) for key, value in content[name].items()} for name in BY_NAME}
    found["labels"] = tuple(map(str, found["labels"]))
    found["log_likelihood"] = float(_array(found["log_likelihood"]))
    found["versions"] = {str(name): str(version) for name, version in found["versions"].items()}
    found["trace"] = tuple({str(key): _array(value) for key, value in step.items()} for step in content["trace"])
    size = len(found["labels"])
    if sum(value.size for value in found["estimate"].values()) != size or found["covariance"].shape != (size, size):
        raise ValueError("one label for each number")
    shapes = {name: value.shape for name, value in found["estimate"].items()}
    for told in ("efficiency", "monte_carlo_error"):
        if found[told] and {name: value.shape for name, value in found[told].items()} != shapes:
            raise ValueError(f"{told} by the names of the estimate")
    return Fit(estimator=estimator, diagnostics=_diagnostics(content["diagnostics"]), **found)


def _diagnostics(given: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in given.items() if isinstance(value, (bool, int, float))}


def _array(value: Any) -> np.ndarray[Any, Any]:
    """Numbers; what JSON holds as null is not one."""
    return np.asarray(value, dtype=float)
