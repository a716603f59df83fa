"""The prior by itself: draws of it, and where the prior of one parameter lies."""

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
from scipy.special import betaincinv, gammaincinv

from noisewise.diagnostics.tails import heavy_tails
from noisewise.model.model import Model, prior_generator
from noisewise.numerics import Array, double

BLOCKS, ROWS = 25, 4096
"""Draws of the prior where there is no formula, by blocks of the size that `Model.simulate` compiles for."""
SHARES = (0.025, 0.5, 0.975)
NO_FORMULA = (NotImplementedError, ImportError, TypeError, ValueError)
"""What a law without a formula raises."""


def prior_draws(model: Model, seed: int, *, blocks: int, rows: int) -> dict[str, Array]:
    """Draws of parameters, of statistics that are laws of them, and of what derives from these.

    Totals (their records may be very many) and simulators are not drawn, nor anything that depends on them.
    """
    names: list[str] = []
    for name in model.order:
        if model.has_density(name) and set(model.parents(name)) <= set(names):
            names.append(name)
    parts = [model.draw(prior_generator(seed, block), names, rows) for block in range(blocks)]
    drawn = {name: np.concatenate([part[name] for part in parts]) for name in names}
    return drawn | model.derive(drawn)


class PriorSpread(NamedTuple):
    """Where the prior of a parameter lies: its centre and the middle 95%."""

    mean: float
    """NaN where there is none."""
    median: float
    low: float
    high: float
    is_positive: bool


def prior_spread(model: Model, name: str) -> PriorSpread:
    """Where the prior of a parameter that is one number lies: by formula where its law has one, else from draws.

    Where the law depends on other parameters, these are drawn from their priors too.
    """
    law = None if model.parents(name) else model.example(name)
    if law is not None:
        with suppress(*NO_FORMULA), double():
            low, median, high = (float(law.icdf(share)) for share in SHARES)
            return PriorSpread(float(law.mean), median, low, high, float(law.icdf(1e-9)) > 0)
        with suppress(*NO_FORMULA), double():
            values = model.draw(prior_generator(0, 0), [name], ROWS)[name]
            low, median, high = (_quantile(law, share, values) for share in SHARES)
            return PriorSpread(float(law.mean), median, low, high, bool(values.min() > 0))
    names = [*model.ancestors(name), name]
    blocks = [model.draw(prior_generator(0, block), names, ROWS) for block in range(BLOCKS)]
    values = np.concatenate([block[name] for block in blocks]).astype(float)
    low, median, high = map(float, np.quantile(values, SHARES))
    mean = float(values.mean()) if np.isnan(heavy_tails(values)) else float("nan")
    return PriorSpread(mean, median, low, high, bool(values.min() > 0))


def _quantile(law: Any, share: float, values: Array) -> float:
    """The quantile of a continuous law: by formula for Gamma and Beta, else by inverting its distribution function.

    The least and the largest of `values`, draws of the law, bracket the quantile.
    """
    if law.is_discrete:
        raise NotImplementedError
    if type(law) is dist.Gamma:
        return float(gammaincinv(float(law.concentration), share) / float(law.rate))
    if type(law) is dist.Beta:
        return float(betaincinv(float(law.concentration1), float(law.concentration0), share))
    from scipy.optimize import brentq

    return float(brentq(lambda value: float(law.cdf(value)) - share, values.min(), values.max()))
