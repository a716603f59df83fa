"""Gaussian noise with any covariance, joint over the last axis."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.additive import Additive, scale_and_guarantee
from noisewise.mechanisms.base import BUDGET, NUMBERS, finite
from noisewise.mechanisms.gaussian import calibrated, not_one_budget
from noisewise.numerics import namespace

_WHO = "MultivariateGaussian"
_ADVICE = "Give covariance, or shape and sensitivity with epsilon and delta, or rho, or mu."
_BUDGETS = (("epsilon", "delta"), ("rho",), ("mu",))


class MultivariateGaussian(Additive):
    """s_dp = s + z, with z ~ Normal(0, covariance) over the last axis, rows independent.

    Calibration: for a given positive definite `shape` S, `sensitivity` is the largest sqrt(d' S^-1 d) over neighbours
    whose statistics differ by d (the Mahalanobis norm), and covariance = h^2 S with h the scale of one-dimensional
    Gaussian noise of that sensitivity: in the coordinates L^-1 s, S = L L', the noise is h times standard normal and
    the sensitivity is in the l2 norm. As for `Gaussian`: `epsilon` with `delta` (Balle and Wang 2018), `rho` (Bun and
    Steinke 2016) or `mu` (Dong, Roth and Su 2022).
    Sampler: L u with L the Cholesky factor of the covariance, u standard normal.
    Supremum: attained at s = s_dp.
    """

    fields = ("covariance",)
    arguments = {"covariance": NUMBERS, "shape": NUMBERS} | dict.fromkeys(
        ("epsilon", "delta", "rho", "mu", "sensitivity"), BUDGET
    )
    alternatives = (("covariance",), *(("shape", *names, "sensitivity") for names in _BUDGETS))
    event_dim = 1
    covariance: Any

    def __init__(
        self,
        covariance: Any = None,
        *,
        shape: Any = None,
        epsilon: Any = None,
        delta: Any = None,
        rho: Any = None,
        mu: Any = None,
        sensitivity: Any = None,
    ) -> None:
        budget = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
        stated = [name for name, value in budget.items() if value is not None]
        if covariance is not None:
            if stated or shape is not None or sensitivity is not None:
                raise refusal(_WHO, "covariance", "must not come with a shape or a budget", covariance, _ADVICE)
            self._freeze(covariance=definite(_WHO, "covariance", covariance))
            return
        if shape is None:
            raise refusal(_WHO, "covariance", "must be given when there is no shape", covariance, _ADVICE)
        if tuple(stated) not in _BUDGETS:
            raise not_one_budget(_WHO, {name: budget[name] for name in stated}, _ADVICE)
        if delta is not None and checks.positive_number(_WHO, "delta", delta, _ADVICE) >= 1.0:
            raise refusal(_WHO, "delta", "must be below 1", delta, "Give a small probability.")
        shape = definite(_WHO, "shape", shape)
        calibration = scale_and_guarantee(_WHO, None, sensitivity, budget, norm="l2", rule=calibrated)
        guarantee = replace(calibration["guarantee"], norm=None)  # the norm is the shape's own, which has no name
        self._freeze(guarantee, covariance=definite(_WHO, "covariance", calibration["scale"] ** 2 * shape))

    def check_released(self, value: Any) -> Any:
        """Finite numbers whose last axis is as long as the covariance."""
        return check_vector(f"{_WHO}.released", value, len(self.covariance), "as long as the covariance")

    def noise_log_prob(self, z: Any) -> Any:
        """Normal log density, one number for each vector along the last axis."""
        xp = namespace(z, self)
        factor = xp.linalg.cholesky(xp.asarray(self.covariance))
        size, unit = scaled(xp, z)
        white = xp.linalg.solve(factor, unit.reshape(-1, unit.shape[-1]).T)
        distance = size * xp.sqrt(xp.sum(white * white, axis=0)).reshape(size.shape)
        log_root = xp.sum(xp.log(xp.diagonal(factor))) + 0.5 * len(factor) * math.log(2.0 * math.pi)
        return -0.5 * distance * distance - log_root

    def noise_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Correlated normal variates."""
        return rng.standard_normal(shape) @ np.linalg.cholesky(self.covariance).T


def definite(who: str, argument: str, value: Any) -> Any:
    """`value` as a read-only symmetric positive definite matrix."""
    advice = "A singular matrix gives noise without a density."
    matrix = checks.numeric(who, argument, value, advice)
    if np.ndim(matrix) != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise refusal(who, argument, "must be a square matrix", value, "Give one row and one column per entry.")
    if not np.all(np.isfinite(matrix)):
        raise refusal(who, argument, "must be finite", value, advice)
    spread = np.sqrt(np.abs(np.outer(np.diag(matrix), np.diag(matrix))))
    if not np.all(np.abs(matrix - matrix.T) <= 1e-10 * spread):
        raise refusal(who, argument, "must be symmetric", value, "Check its entries above and below the diagonal.")
    matrix = 0.5 * (matrix + matrix.T)
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        raise refusal(who, argument, "must be positive definite", value, advice) from None
    matrix.flags.writeable = False
    return matrix


def check_vector(who: str, value: Any, length: int, rule: str) -> Any:
    """A released value as finite numbers with a last axis of the given length."""
    value = finite(who, value, "Give the published array.")
    if np.shape(value)[-1:] != (length,):
        rule = f"must have a last axis {rule}, {length}"
        raise refusal(who, "value", rule, value, "Give one vector, or rows of them.")
    return value


def scaled(xp: Any, z: Any) -> tuple[Any, Any]:
    """The largest size in each vector, and the vectors divided by it: no square or product then overflows."""
    size = xp.max(xp.abs(z), axis=-1)
    finite = (xp.isfinite(size) & (size > 0))[..., None]
    # XLA divides by way of the reciprocal, and that of a number above 2^1022 is flushed to zero. So both numbers are
    # first scaled to the middle of the range.
    middle = xp.where(size > 1.0, 2.0**-600, 2.0**600)[..., None]
    return size, xp.where(finite, z, 1.0) * middle / (xp.where(finite, size[..., None], 1.0) * middle)
