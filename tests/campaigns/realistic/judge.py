"""Is a result right? Its means, standard deviations and evidence against the truth, at a stated false-alarm rate."""

import re
from typing import Any

import numpy as np
from scipy import stats

from realistic.problem import Truth

FALSE_ALARM = 1e-6
"""For each number compared. A full run compares some 1,300: a correct library fails it about once in 750 runs."""


def compared(posterior: Any, truth: Truth, views: dict[str, Any]) -> dict[str, float]:
    """|z| by what was compared, each as a multiple of its limit: above 1 is wrong."""
    found = {}
    table = posterior.summary()
    normal = stats.norm.isf(FALSE_ALARM / 2)
    for label, (mean, sd) in truth.moments.items():
        values = views[label](posterior) if label in views else _column(posterior, label)
        values = np.asarray(values, dtype=float)
        of_mean, of_sd = truth.errors.get(label, (0.0, 0.0))
        weight = np.full(len(values), 1 / len(values)) if posterior.weights is None else posterior.weights
        reported = table.loc[label, "mcse"] if label in table.index else _error(posterior, weight, values - mean)[0]
        # draws that all agree report no error, but independent ones would have at least this
        least = sd / np.sqrt(len(values))
        error = np.hypot(max(reported, least), of_mean)
        found[f"mean {label}"] = _ratio(weight @ (values - mean), error, normal, abs(mean))
        if not label.startswith("P("):
            terms = (values - mean) ** 2 - sd**2
            error, limit = _error(posterior, weight, terms)
            found[f"sd {label}"] = _ratio(weight @ terms, np.hypot(error, 2 * sd * of_sd), limit, sd**2)
    if posterior.log_evidence is not None and truth.log_evidence is not None:
        limit = stats.t.isf(FALSE_ALARM / 2, posterior.islands - 1) if posterior.islands else normal
        apart = posterior.log_evidence - truth.log_evidence
        found["evidence"] = _ratio(apart, posterior.log_evidence_se or 0.0, limit, max(abs(truth.log_evidence), 1.0))
    return found


def _column(posterior: Any, label: str) -> Any:
    name, index = re.fullmatch(r"(\w+)(?:\[([\d, ]+)\])?", label).groups()
    values = posterior[name]
    return values if index is None else values[(slice(None), *map(int, index.split(",")))]


def _ratio(apart: float, error: float, limit: float, size: float) -> float:
    """|z| over its limit; the quadrature behind the truth is good to 1e-6."""
    return float(abs(apart) / np.hypot(error, 1e-6 * size) / limit)


def _error(posterior: Any, weight: Any, terms: Any) -> tuple[float, float]:
    """Standard error of the mean of `terms`, and the limit for |z|: Student's where it comes from groups of draws."""
    groups = posterior.superchains or posterior.chains or posterior.islands
    if groups is None:
        centred = terms - weight @ terms
        return float(np.sqrt(weight**2 @ centred**2)), stats.norm.isf(FALSE_ALARM / 2)
    if groups < 16:  # few long chains: batches of each
        groups *= 16 // groups + 4
    means = terms[: len(terms) // groups * groups].reshape(groups, -1).mean(axis=1)
    return float(means.std(ddof=1) / np.sqrt(groups)), float(stats.t.isf(FALSE_ALARM / 2, groups - 1))
