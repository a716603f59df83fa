"""What a problem is: model and release as an analyst writes them, and the answer by another way."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Truth:
    """Posterior mean and standard deviation by label, and the log evidence where it is known.

    A label is a name of the model ("rate", "rate[3]") or one of the problem's views. One that begins with "P(" is a
    probability, whose mean says it all.
    """

    moments: dict[str, tuple[float, float]]
    log_evidence: float | None = None
    errors: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Standard errors of mean and standard deviation, where the answer is itself by Monte Carlo."""


@dataclass(frozen=True)
class Problem:
    """One problem: what is given to `nw.sample`, and a function that computes the answer."""

    model: Any
    release: Any
    truth: Callable[[], Truth]
    views: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    """Quantities derived from the posterior, one value per draw: label and function of the posterior."""


PROBLEMS: dict[str, Callable[[], Problem]] = {}
"""Every problem by name, in the order of the files."""


def problem(build: Callable[[], Problem]) -> Callable[[], Problem]:
    """Enter a function that builds a problem under its own name."""
    assert build.__name__ not in PROBLEMS, build.__name__
    PROBLEMS[build.__name__] = build
    return build


def probability(mean: float) -> tuple[float, float]:
    """The moments of an event."""
    return float(mean), float(np.sqrt(max(mean * (1 - mean), 0.0)))
