"""OpenDP's rounding of continuous releases to floats."""

from typing import Any

import numpy as np

from noisewise.mechanisms.base import Mechanism
from noisewise.mechanisms.rounded import Rounded

ROUNDING = 1e-8
"""Rounding of a release by up to this part of the scale is left out of its law; more is taken into account."""


def as_rounded(mechanism: Any, value: Any) -> Mechanism:
    """The mechanism, with OpenDP's rounding to the nearest float where that is not small beside the scale."""
    array = np.asarray(value)
    if mechanism.measure != "density" or array.dtype.kind != "f":
        return mechanism
    step = np.spacing(np.abs(array)).astype(np.float64)
    if np.all(0.5 * step <= ROUNDING * np.asarray(mechanism.scale)):
        return mechanism
    return Rounded(mechanism, step=float(step) if step.ndim == 0 else step)
