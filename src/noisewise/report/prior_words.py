"""A prior in words: 'mean 25; 95% between 16 and 36'."""

import math
from contextlib import suppress
from typing import Any

import numpy as np
import numpyro.distributions as dist
from scipy.special import betaincinv, gammaincinv

from noisewise.diagnostics.tails import heavy_tails
from noisewise.model import Model
from noisewise.model.model import prior_generator
from noisewise.numerics import Array, double
from noisewise.report.markup import number

BLOCKS, ROWS = 25, 4096
"""Draws of the prior where there is no formula, by blocks of the size that `Model.simulate` compiles for."""
SHARES = (0.025, 0.5, 0.975)
NO_FORMULA = (NotImplementedError, ImportError, TypeError, ValueError)
"""What a law answers that has none."""


def prior_in_words(model: Model, name: str) -> str:
    """Mean (or median, where there is none) and the middle 95% of a parameter's prior; nothing where it has entries.

    Of a law that depends on other parameters, with these drawn from their priors too.
    """
    if model.shape(name) != ():
        return ""
    centre, median, low, high, positive = spread(model, name)
    if not np.isfinite(high - low):
        return ""
    if low == high:
        return f"always {number(low)}"
    has_mean = np.isfinite(centre)
    shown = [_rounded(value, high - low, positive) for value in (centre if has_mean else median, low, high)]
    return f"{'mean' if has_mean else 'median'} {shown[0]}; 95% between {shown[1]} and {shown[2]}"


def spread(model: Model, name: str) -> tuple[float, float, float, float, bool]:
    """Mean, NaN where there is none, median and ends, and whether it is positive: by formula where the law has one."""
    law = None if model.parents(name) else model.example(name)
    if law is not None:
        with suppress(*NO_FORMULA), double():
            low, median, high = (float(law.icdf(share)) for share in SHARES)
            return float(law.mean), median, low, high, float(law.icdf(1e-9)) > 0
        with suppress(*NO_FORMULA), double():
            values = model.draw(prior_generator(0, 0), [name], ROWS)[name]
            low, median, high = (_quantile(law, share, values) for share in SHARES)
            return float(law.mean), median, low, high, bool(values.min() > 0)
    names = [*model.ancestors(name), name]
    blocks = [model.draw(prior_generator(0, block), names, ROWS) for block in range(BLOCKS)]
    values = np.concatenate([block[name] for block in blocks]).astype(float)
    low, median, high = map(float, np.quantile(values, SHARES))
    mean = float(values.mean()) if np.isnan(heavy_tails(values)) else float("nan")
    return mean, median, low, high, bool(values.min() > 0)


def _quantile(law: Any, share: float, values: Array) -> float:
    """Of a continuous law whose distribution function has a formula; its inverse only for Gamma and Beta.

    `values`: draws of it, which lie on either side.
    """
    if law.is_discrete:
        raise NotImplementedError
    if type(law) is dist.Gamma:
        return float(gammaincinv(float(law.concentration), share) / float(law.rate))
    if type(law) is dist.Beta:
        return float(betaincinv(float(law.concentration1), float(law.concentration0), share))
    from scipy.optimize import brentq  # takes a fifth of a second, which few reports need

    return float(brentq(lambda value: float(law.cdf(value)) - share, values.min(), values.max()))


def _rounded(value: float, width: float, positive: bool) -> str:
    """Two digits: of a positive quantity's value itself, else of the width, so that a mean of zero is called zero."""
    if positive:
        return number(value, 2)
    places = 1 - math.floor(math.log10(width))
    near = round(value, places)
    return number(near, max(1, places + 1 + math.floor(math.log10(abs(near))))) if near else "0"
