"""What everyday functions read of a release: names, shapes, labels and descriptions of entries, never their values."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms import Released
from noisewise.release import Release

RESERVED = ("jnp", "np", "dist", "nw", "products")
"""Names that the code of everyday models uses itself."""


def released_entry(who: str, argument: str, release: Any, name: Any, own: Iterable[str] = ()) -> Released:
    """The released entry `name`; refused where there is none, or where the model has other uses for that name."""
    if not isinstance(release, Release):
        raise refusal(who, "release", "must be a noisewise Release", release, "Give what nw.Release(...) made.")
    checks.known_name(who, argument, name, release, "must be the name of a released entry")
    if name in own or name in RESERVED:
        advice = f"Give another entry, or rename it: nw.Release(published_{name}=release['{name}'])."
        raise refusal(who, argument, "must not be a name that this model has another use for", name, advice)
    return release[name]


def single_number(who: str, argument: str, release: Any, name: Any, own: Iterable[str] = ()) -> str:
    """The name of a released entry that is one number."""
    shape = released_entry(who, argument, release, name, own).shape
    if shape:
        raise refusal(
            who, argument, "must be an entry with a single number", f"'{name}' of shape {shape}", "See nw.table_of."
        )
    return str(name)


def size(
    who: str, release: Any, n: Any, most: Any, own: Iterable[str] = (), stated: int | None = None
) -> tuple[int | str, dict[str, str]]:
    """The number of records, or the name of its entry; and the law of that entry as text.

    A public number is returned as it is; where none is given, it is the one that the release has `stated`. A number
    released with noise is uniform on 1, ..., `most` before the release is seen.
    """
    n = stated if n is None else n
    if not isinstance(n, str):
        n = checks.integer(who, "n", n, least=1, advice="Give the public number of records, or the name of its entry.")
        if stated is not None and n != stated:
            advice = "Leave it out, or have the release corrected."
            raise refusal(who, "n", f"must be the number of records that the release states, {stated}", n, advice)
        if most is not None:
            raise refusal(who, "most", "belongs to a number that was released with noise", most, "Leave it out.")
        return n, {}
    single_number(who, "n", release, n, own)
    if most is None:
        advice = f"Give most=..., a number that there cannot be more of: '{n}' is uniform on 1, ..., most at first."
        raise refusal(who, "most", "must be given where the number of records has noise", most, advice)
    most = checks.integer(who, "most", most, least=1, advice="Give a number that there cannot be more records of.")
    return n, {n: f"dist.DiscreteUniform(1, {most})"}


def bounds_of(who: str, argument: str, bounds: Any, stated: tuple[float, float] | None = None) -> tuple[float, float]:
    """Two finite numbers in order; those that the release has `stated` where none are given."""
    bounds = stated if bounds is None else bounds
    advice = "Give the two numbers that the curator clamped each value to, such as (0, 80); ask for them if need be."
    values = () if isinstance(bounds, str) or not np.iterable(bounds) else tuple(bounds)
    numbers = len(values) == 2 and all(
        isinstance(v, (int, float, np.integer, np.floating)) and not isinstance(v, bool) for v in values
    )
    if not numbers or not (np.isfinite(values).all() and values[0] < values[1]):
        raise refusal(who, argument, "must be the lower and the upper bound", bounds, advice)
    ends = float(values[0]), float(values[1])
    if stated is not None and ends != tuple(stated):
        advice = "Leave them out, or have the release corrected."
        raise refusal(who, argument, f"must be the bounds that the release states, {tuple(stated)}", bounds, advice)
    return ends
