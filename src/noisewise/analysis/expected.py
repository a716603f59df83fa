"""A prior from what a person expects: from 'between 16 and 36', a law with that middle 95%; and back again."""

import math
import re
from decimal import Decimal

from scipy.optimize import brentq, root
from scipy.special import betaincinv, gammaincinv, ndtri

from noisewise.errors import refusal

TAILS = (0.025, 0.975)
Z = float(ndtri(TAILS[1]))
DIGITS, MOST_DIGITS = 4, 15
"""Significant digits of a law that is written: as few as keep its ends, at least the first and below the second."""
KEPT = 0.01
"""How far an end may lie from the number that was typed, in units of that number's last digit."""
NOTHING = 1e-4
"""An end of a normal law is taken for zero if it is smaller than this share of the distance between the ends."""
MOST_TYPED = 8
"""Significant digits, at most, of ends that `typed_ends` tries."""


def law_between(low: float, high: float, present: str = "") -> str:
    """The law with 2.5% below `low` and 2.5% above `high`, of the family of the `present` law where that can be.

    The families are Gamma, LogNormal, Normal and Beta. One that cannot have these ends gives way to Normal; any other
    to Gamma where both ends are positive, and to Normal elsewhere.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise refusal("prior", "between", "must be two numbers, the smaller first", [low, high], "Give 16 and 36.")
    match _family(low, high, present):
        case "Beta":
            return _written("Beta", _beta(low, high), (low, high))
        case "LogNormal":
            centre, width = (math.log(low) + math.log(high)) / 2, math.log(high) - math.log(low)
            return _written("LogNormal", (centre, width / (2 * Z)), (low, high))
        case "Gamma":
            return _written("Gamma", _gamma(low, high), (low, high))
        case _:
            return _written("Normal", ((low + high) / 2, (high - low) / (2 * Z)), (low, high))


def _family(low: float, high: float, present: str) -> str:
    named = re.match(r"\s*(\w+)\s*\(", present)
    family = named[1] if named else ""
    if (family == "Beta" and low > 0 and high < 1) or (family == "LogNormal" and low > 0):
        return family
    return "Gamma" if low > 0 and family not in ("Normal", "Beta", "LogNormal") else "Normal"


def typed_ends(low: float, high: float, present: str) -> tuple[str, str] | None:
    """The shortest numbers between which `law_between` gives the very law `present`, whose ends are low and high.

    None where `law_between` did not make it: its digits are then others.
    """
    if _family(low, high, present) == "Normal":
        low, high = (0.0 if abs(end) < NOTHING * (high - low) else end for end in (low, high))
    for digits in range(1, MOST_TYPED + 1):
        ends = short(low, digits), short(high, digits)
        if float(ends[0]) < float(ends[1]) and law_between(float(ends[0]), float(ends[1]), present) == present.strip():
            return ends
    return None


def short(value: float, digits: int = 3) -> str:
    """A number as a person would type it: 20000, not 2e+04."""
    return f"{float(f'{value:.{digits}g}'):.15g}"


def _gamma(low: float, high: float) -> tuple[float, float]:
    """Shape and rate: the ratio of the two quantiles decides the shape."""

    def excess(log_shape: float) -> float:
        ends = gammaincinv(math.exp(log_shape), TAILS)
        return float(math.log(ends[1]) - math.log(max(ends[0], 1e-300)) - math.log(high / low))

    try:
        shape = math.exp(brentq(excess, math.log(0.02), math.log(1e9)))
    except ValueError:
        advice = "Give ends that lie farther apart, or not so far."
        raise refusal("prior", "between", "must be ends that a Gamma law can have", [low, high], advice) from None
    return shape, float(gammaincinv(shape, TAILS[1])) / high


def _beta(low: float, high: float) -> tuple[float, float]:
    def misses(logs: list[float]) -> list[float]:
        ends = betaincinv(math.exp(logs[0]), math.exp(logs[1]), TAILS)
        return [float(ends[0]) - low, float(ends[1]) - high]

    middle, spread = (low + high) / 2, (high - low) / (2 * Z)
    size = max(middle * (1 - middle) / spread**2 - 1, 0.5)
    solution = root(misses, [math.log(middle * size), math.log((1 - middle) * size)])
    if not solution.success:
        raise refusal("prior", "between", "must be ends that a Beta law can have", [low, high], "Move them a little.")
    return math.exp(solution.x[0]), math.exp(solution.x[1])


def _written(family: str, exact: tuple[float, float], typed: tuple[float, float]) -> str:
    """The law with as few digits as keep its ends where they were typed."""
    allowed = [KEPT * _last_digit(end) if end else NOTHING / 2 * (typed[1] - typed[0]) for end in typed]
    for digits in range(DIGITS, MOST_DIGITS):
        first, second = (f"{value:.{digits}g}" for value in exact)
        ends = _ends(family, float(first), float(second))
        if all(abs(end - wanted) <= far for end, wanted, far in zip(ends, typed, allowed, strict=True)):
            break
    return f"{family}({first}, {second})"


def _ends(family: str, first: float, second: float) -> tuple[float, float]:
    """Where the middle 95% of a law lies."""
    match family:
        case "Gamma":
            low, high = (float(gammaincinv(first, tail)) / second for tail in TAILS)
        case "Beta":
            low, high = (float(betaincinv(first, second, tail)) for tail in TAILS)
        case "LogNormal":
            low, high = math.exp(first - Z * second), math.exp(first + Z * second)
        case _:
            low, high = first - Z * second, first + Z * second
    return low, high


def _last_digit(value: float) -> float:
    """The unit of a number's last digit that is not zero: 0.1 for 35.7, 100 for 200."""
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    assert isinstance(exponent, int)  # a finite number
    return float(10.0**exponent)
