"""A proper law for a table of counts about which nothing is assumed but a bound."""

from typing import Any

import numpy as np
import numpyro.distributions as dist

from noisewise import checks
from noisewise.errors import refusal
from noisewise.numerics import Array

ADVICE = "Give a bound that the counts surely keep: counts_up_to(10_000, shape=(8,))."


def counts_up_to(most: Any, shape: int | tuple[int, ...] = ()) -> Any:
    """The law of a table of counts of which each is any whole number from 0 to `most`, all alike.

    It is proper, as a flat law without a bound is not, and weak where `most` is far above every count:
    `nw.Model(prior={}, statistics={"cells": nw.counts_up_to(10_000, shape=(8,))})`. An array of bounds, one for each
    count, declares what is known of them: 0 for a count that must be 0.
    """
    if np.ndim(most):
        return _each_up_to(np.asarray(most), shape)
    most = checks.integer("counts_up_to", "most", most, least=1, advice=ADVICE)
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    for length in lengths:
        checks.integer("counts_up_to", "shape", length, least=1, advice=ADVICE)
    return dist.DiscreteUniform(0, most).expand(lengths).to_event(len(lengths))


def _each_up_to(most: Array, shape: int | tuple[int, ...]) -> Any:
    """As `counts_up_to`, with a bound for each count."""
    if most.dtype.kind not in "iu" or np.any(most < 0) or not np.any(most):
        rule = "must be whole numbers from 0 on, not all of them 0"
        raise refusal("counts_up_to", "most", rule, most.tolist(), ADVICE)
    if shape not in ((), most.shape):
        raise refusal("counts_up_to", "shape", f"must be that of the bounds, {most.shape}", shape, "Leave it out.")
    return dist.DiscreteUniform(np.zeros_like(most), most).to_event(most.ndim)
