"""Laws of one record, by name, written with their mean; and weakly informative priors from the bounds of its values."""

from dataclasses import dataclass

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.everyday.written import in_three_digits


@dataclass(frozen=True)
class RecordLaw:
    """One family. In its texts `{mean}` and `{spread}` stand for the names of the two parameters."""

    law: str
    second: str
    """What the other parameter is called; nothing where the mean is the only one."""
    signed: bool = False
    """Whether values below zero are possible."""
    inside: bool = False
    """Whether values stay within the bounds unclamped: the law is that of their relative place between them."""


LAWS = {
    "Normal": RecordLaw("dist.Normal({mean}, {spread})", "sd", signed=True),
    "LogNormal": RecordLaw("dist.LogNormal(jnp.log({mean}) - {spread}**2 / 2, {spread})", "sigma"),
    "Gamma": RecordLaw("dist.Gamma({spread}, {spread} / {mean})", "shape"),
    "Exponential": RecordLaw("dist.Exponential(1 / {mean})", ""),
    "Beta": RecordLaw(
        "dist.Beta({spread} * ({mean} - {low}) / {width}, {spread} * ({high} - {mean}) / {width})",
        "size",
        signed=True,
        inside=True,
    ),
}


@dataclass(frozen=True)
class Record:
    """One field of a record: its law as text, its clamped value as text, and priors of its parameters."""

    field: str
    law: str
    clamped: str
    prior: dict[str, str]


def record(who: str, law: str, field: str, bounds: tuple[float, float], start: str = "") -> Record:
    """A field whose values were clamped to `bounds`; its parameters are `start` + mean and the like."""
    checks.choice(who, "law", law, LAWS, checks.nearest(law, LAWS))
    family, (low, high) = LAWS[law], bounds
    if low < 0 and not family.signed:
        advice = "Name another law, or give the bounds that values of this law have."
        raise refusal(who, "bounds", f"must not begin below zero for the law '{law}'", bounds, advice)
    names = {"mean": f"{start}mean", "spread": f"{start}{family.second}"}
    text = family.law.format(**names, low=low, high=high, width=high - low)
    arguments = ", ".join(list(names.values())[: 2 if family.second else 1])
    clamped = f"{low} + {high - low} * {field}" if family.inside else f"jnp.clip({field}, {low}, {high})"
    prior = {names["mean"]: _mean(family, low, high)}
    if family.second:
        prior[names["spread"]] = _spread(family.second, high - low)
    return Record(field, f"lambda {arguments}: {text}", clamped, prior)


def _mean(family: RecordLaw, low: float, high: float) -> str:
    if family.inside:
        return f"dist.Uniform({low}, {high})"
    middle, width = (low + high) / 2, high - low
    if family.signed:
        return f"dist.Normal({in_three_digits(middle)}, {in_three_digits(width)})"
    return f"dist.LogNormal({in_three_digits(np.log(middle))}, 1.0)"


def _spread(second: str, width: float) -> str:
    return {
        "sd": f"dist.HalfNormal({in_three_digits(width / 2)})",
        "sigma": "dist.HalfNormal(1.0)",
        "shape": "dist.LogNormal(0.5, 1.0)",
        "size": "dist.LogNormal(1.5, 1.0)",
    }[second]
