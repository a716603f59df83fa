"""A proper law for a table of counts about which nothing is assumed but a bound."""

from typing import Any

import numpyro.distributions as dist

from noisewise import checks

ADVICE = "Give a bound that the counts surely keep: counts_up_to(10_000, shape=(8,))."


def counts_up_to(most: int, shape: int | tuple[int, ...] = ()) -> Any:
    """The law of a table of counts of which each is any whole number from 0 to `most`, all alike.

    It is proper, as a flat law without a bound is not, and weak where `most` is far above every count:
    `nw.Model(prior={}, statistics={"cells": nw.counts_up_to(10_000, shape=(8,))})`.
    """
    most = checks.integer("counts_up_to", "most", most, least=1, advice=ADVICE)
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    for length in lengths:
        checks.integer("counts_up_to", "shape", length, least=1, advice=ADVICE)
    return dist.DiscreteUniform(0, most).expand(lengths).to_event(len(lengths))
