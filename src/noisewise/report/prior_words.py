"""A prior in words: 'mean 25; 95% between 16 and 36'."""

import math

import numpy as np

from noisewise.model import Model
from noisewise.model.prior import prior_spread
from noisewise.report.markup import number


def prior_in_words(model: Model, name: str) -> str:
    """Mean (or median, where there is no mean) and middle 95% of a scalar parameter's prior; else empty text.

    Where the law depends on other parameters, they are drawn from their priors too.
    """
    if model.shape(name) != ():
        return ""
    prior = prior_spread(model, name)
    width = prior.high - prior.low
    if not np.isfinite(width):
        return ""
    if width == 0.0:
        return f"always {number(prior.low)}"
    has_mean = np.isfinite(prior.mean)
    numbers = (prior.mean if has_mean else prior.median, prior.low, prior.high)
    shown = [_rounded(value, width, prior.is_positive) for value in numbers]
    return f"{'mean' if has_mean else 'median'} {shown[0]}; 95% between {shown[1]} and {shown[2]}"


def _rounded(value: float, width: float, positive: bool) -> str:
    """Two significant digits: of a positive value itself, else of the width, so that a mean near zero shows as 0."""
    if positive:
        return number(value, 2)
    places = 1 - math.floor(math.log10(width))
    near = round(value, places)
    return number(near, max(1, places + 1 + math.floor(math.log10(abs(near))))) if near else "0"
