"""What a guarantee promises, in words; whether one stays within another."""

import math

from noisewise.errors import refusal
from noisewise.mechanisms.guarantee import Guarantee

DELTA = 1e-6
"""The probability set aside where a guarantee in rho is stated as a factor of the odds."""
LARGE = 10.0
"""An epsilon beyond this promises next to nothing: odds may change by a factor of 22,000."""
ROUNDING = 1e-9
"""Relative excess that adding up decimal fractions may bring."""

WHAT = {
    "add-remove": "on whether one person is among the records",
    "replace-one": "on any two things that one person's record may say",
}


def in_words(guarantee: Guarantee, delta: float = DELTA) -> str:
    """The guarantee as a sentence about odds.

    For pure epsilon the likelihood ratio of neighbouring data is within exp(epsilon), so that odds change by that at
    most. For rho the ratio in favour of the truth exceeds exp(epsilon), epsilon = rho + 2 sqrt(rho log(1/delta)), with
    probability delta at most (the proof of Bun and Steinke 2016, Proposition 1.3, bounds that probability).
    """
    subject = f"Whoever knows everyone else's records can change their odds {WHAT[str(guarantee.neighbours)]}"
    if guarantee.kind == "pure":
        return f"{subject} by at most a factor of {_factor(guarantee.epsilon)} (epsilon = {guarantee.epsilon:g})."
    stated = f"rho = {guarantee.rho:g}; epsilon = {in_epsilon(guarantee, delta):.3g} with delta = {delta:g}"
    return (
        f"{subject} towards the truth by at most a factor of {_factor(in_epsilon(guarantee, delta))}, but for releases "
        f"of probability {delta:g} in all ({stated})."
    )


def warning(guarantee: Guarantee, delta: float = DELTA) -> str | None:
    """A warning before a very large epsilon is spent; None for a smaller one."""
    epsilon = in_epsilon(guarantee, delta)
    if epsilon <= LARGE:
        return None
    return (
        f"epsilon = {epsilon:.3g} is above {LARGE:g}: the guarantee would let odds change by a factor of "
        f"{_factor(epsilon)}. Consider publishing less, or with more noise."
    )


def in_epsilon(guarantee: Guarantee, delta: float = DELTA) -> float:
    """The epsilon of a guarantee, at `delta` where it is in rho."""
    approximate = guarantee if guarantee.kind == "pure" else guarantee.approximate(delta)
    assert approximate.epsilon is not None
    return approximate.epsilon


def check_within(who: str, argument: str, limit: Guarantee, spent: Guarantee, advice: str) -> None:
    """Refuse where `spent` exceeds `limit`, in the limit's own units."""
    spent = under(who, spent, limit.neighbours)
    if limit.kind == "pure" and spent.kind != "pure":
        rule = "must be in rho, or have a delta, where Gaussian noise is drawn"
        raise refusal(who, argument, rule, limit.to_dict(), "Write { rho = 0.5 } or { epsilon = 1.0, delta = 1e-6 }.")
    if limit.kind == "rho":
        most, amount, name = limit.rho, spent.concentrated().rho, "rho"
    else:
        most, amount, name = limit.epsilon, in_epsilon(spent, limit.delta or DELTA), "epsilon"
    assert most is not None
    assert amount is not None
    if amount > most * (1.0 + ROUNDING):
        raise refusal(who, argument, f"must not exceed {name} = {most:g}", f"{name} = {amount:.6g} in all", advice)


def under(who: str, guarantee: Guarantee, neighbours: str | None) -> Guarantee:
    """The same guarantee for other neighbours: to replace a record is to remove one and to add one.

    Two steps double epsilon and quadruple rho (group privacy). No guarantee for replaced records implies one for added
    ones: the number of records may be published without noise.
    """
    if guarantee.neighbours == neighbours:
        return guarantee
    if neighbours != "replace-one":
        rule = "must speak of replace-one neighbours, as what has been published does"
        raise refusal(who, "neighbours", rule, neighbours, "The number of records was treated as public.")
    if guarantee.kind == "pure":
        return Guarantee(epsilon=2.0 * (guarantee.epsilon or 0.0), neighbours=neighbours)
    return Guarantee(rho=4.0 * (guarantee.rho or 0.0), neighbours=neighbours)


def _factor(epsilon: float | None) -> str:
    factor = math.exp(min(epsilon or 0.0, 700.0))
    return f"{factor:,.0f}" if 999.5 <= factor < 1e9 else f"{factor:.3g}"
