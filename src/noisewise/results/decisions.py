"""Chances that quantities lie below, inside or above given bounds, with their Monte Carlo errors."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise import checks
from noisewise.diagnostics import weights
from noisewise.errors import refusal
from noisewise.numerics import Array
from noisewise.results.labels import labels_of

if TYPE_CHECKING:
    from noisewise.results.posterior import Posterior

WHO = "Posterior.decide"
ADVICE = "Give a number, theta=0.5, or a pair, gap=(-0.02, 0.02)."


def decision_table(posterior: "Posterior", bounds: Mapping[str, Any]) -> Any:
    """One row for each scalar: its bounds, the three chances, and their errors."""
    import pandas as pd

    if not bounds:
        raise refusal(WHO, "bounds", "must name at least one quantity", dict(bounds), ADVICE)
    labels: list[str] = []
    parts: list[dict[str, Array]] = []
    for name, wanted in bounds.items():
        checks.known_name(WHO, name, name, posterior.draws, "must be a name of the posterior")
        values = posterior[name].astype(float)
        low, high = _ends(name, wanted, values.shape[1:])
        labels += labels_of(name, values.shape[1:], posterior.axes)
        chances = {"below": values < low, "inside": (values >= low) & (values <= high), "above": values > high}
        row = {"low": low, "high": high}
        row |= {title: weights.mean_and_sd(held.astype(float), posterior.weights)[0] for title, held in chances.items()}
        row |= {f"mcse {title}": error(posterior, held) for title, held in chances.items()}
        parts.append({title: np.ravel(numbers) for title, numbers in row.items()})
    return pd.DataFrame({title: np.concatenate([part[title] for part in parts]) for title in parts[0]}, index=labels)


def error(posterior: "Posterior", held: Array) -> Array:
    """Monte Carlo error of a probability: 1 / n for n effective draws, where all draws that have weight agree.

    An event of that chance escapes n independent draws with probability 1/e.
    """
    if len(posterior) == 0:
        return np.full(held.shape[1:], np.nan)
    mcse = posterior.precision_of(held)["mcse"]
    sizes = [size for size in posterior.ess.values() if not np.isnan(size)]
    least = 1.0 / max(min(sizes, default=1.0), 1.0)
    counted = held if posterior.weights is None else held[posterior.weights > 0.0]
    return np.where(np.all(counted == counted[:1], axis=0), least, mcse)


def _ends(name: str, wanted: Any, shape: tuple[int, ...]) -> tuple[Array, Array]:
    pair = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    if len(pair) != 2:
        raise refusal(WHO, name, "must be a number or a pair of them", wanted, ADVICE)
    low, high = (np.asarray(checks.numeric(WHO, name, end, ADVICE)) for end in pair)
    try:
        low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    except ValueError:
        raise refusal(WHO, name, f"must be of shape {shape}, or a single number", wanted, ADVICE) from None
    if not np.all(low <= high):
        raise refusal(WHO, name, "must have its lower end first", wanted, ADVICE)
    return low, high
