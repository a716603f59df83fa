"""A prior from what a person expects: 'between 16 and 36' as a law whose middle 95% that is."""

import math
import re

from scipy.optimize import brentq, root
from scipy.stats import beta, gamma, norm

from noisewise.errors import refusal

Z = float(norm.ppf(0.975))
DIGITS = 4


def law_between(low: float, high: float, present: str = "") -> str:
    """The law, of the family of the `present` one where that has two parameters, with 2.5% on either side.

    Gamma, LogNormal, Normal and Beta; of others, Gamma where both ends are positive and Normal elsewhere.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise refusal("prior", "between", "must be two numbers, the smaller first", [low, high], "Give 16 and 36.")
    named = re.match(r"\s*(\w+)\s*\(", present)
    family = named[1] if named else ""
    if family == "Beta" and low > 0 and high < 1:
        return _written("Beta", *_beta(low, high))
    if family == "LogNormal" and low > 0:
        centre, width = (math.log(low) + math.log(high)) / 2, math.log(high) - math.log(low)
        return _written("LogNormal", centre, width / (2 * Z))
    if family != "Normal" and low > 0 and (family == "Gamma" or family not in ("Beta", "LogNormal")):
        return _written("Gamma", *_gamma(low, high))
    return _written("Normal", (low + high) / 2, (high - low) / (2 * Z))


def _gamma(low: float, high: float) -> tuple[float, float]:
    """Shape and rate: the ratio of the two quantiles decides the shape."""

    def excess(log_shape: float) -> float:
        ends = gamma(math.exp(log_shape)).ppf([0.025, 0.975])
        return float(math.log(ends[1]) - math.log(max(ends[0], 1e-300)) - math.log(high / low))

    try:
        shape = math.exp(brentq(excess, math.log(0.02), math.log(1e9)))
    except ValueError:
        advice = "Give ends that lie farther apart, or not so far."
        raise refusal("prior", "between", "must be ends that a Gamma law can have", [low, high], advice) from None
    return shape, float(gamma(shape).ppf(0.975)) / high


def _beta(low: float, high: float) -> tuple[float, float]:
    def misses(logs: list[float]) -> list[float]:
        ends = beta(math.exp(logs[0]), math.exp(logs[1])).ppf([0.025, 0.975])
        return [float(ends[0]) - low, float(ends[1]) - high]

    middle, spread = (low + high) / 2, (high - low) / (2 * Z)
    size = max(middle * (1 - middle) / spread**2 - 1, 0.5)
    found = root(misses, [math.log(middle * size), math.log((1 - middle) * size)])
    if not found.success:
        raise refusal("prior", "between", "must be ends that a Beta law can have", [low, high], "Move them a little.")
    return math.exp(found.x[0]), math.exp(found.x[1])


def _written(family: str, first: float, second: float) -> str:
    return f"{family}({first:.{DIGITS}g}, {second:.{DIGITS}g})"
