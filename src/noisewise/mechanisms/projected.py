"""Gaussian noise projected onto known linear totals."""

import math
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.additive import scale_and_guarantee
from noisewise.mechanisms.base import BUDGET, NUMBERS, Mechanism, finite
from noisewise.mechanisms.gaussian import calibrated
from noisewise.numerics import namespace

TOLERANCE = 1e-9
"""Totals hold if they are met to this part of the summed sizes of their terms."""


class Projected(Mechanism):
    """r = s + scale * P u: u standard normal, P the orthogonal projection onto the null space of `matrix` A.

    This is the vector s + scale * u projected onto {z : A z = c}, c = `totals`, where the confidential vector is known
    to satisfy A s = c: totals published without noise ("invariants"). So r satisfies them too.
    Density, relative to Lebesgue measure on that affine set of dimension d = p - rank(A), where A s = c:
    (2 pi scale^2)^(-d/2) exp(-|r - s|^2 / (2 scale^2)). Where A s differs from c, r cannot have arisen from s: -inf.
    Rows of A that follow from others are dropped.
    Calibration as for `Gaussian`, `sensitivity` in the l2 norm, of the noise before the projection; the guarantee
    concerns data sets that agree on the totals (Gong and Meng 2020).
    Sampler: normal variates less their projection onto the rows of A.
    Supremum: (2 pi scale^2)^(-d/2), attained at s = r.
    """

    fields = ("scale", "matrix", "totals")
    arguments = {"matrix": NUMBERS, "totals": NUMBERS} | dict.fromkeys(
        ("scale", "epsilon", "delta", "rho", "mu", "sensitivity"), BUDGET
    )
    alternatives = tuple(
        ("matrix", "totals", *names)
        for names in (("scale",), ("epsilon", "delta", "sensitivity"), ("rho", "sensitivity"), ("mu", "sensitivity"))
    )
    event_dim = 1
    measure = "density"
    supremum = "attained"
    scale: Any
    matrix: Any
    totals: Any

    def __init__(
        self,
        scale: Any = None,
        matrix: Any = None,
        totals: Any = None,
        *,
        epsilon: Any = None,
        delta: Any = None,
        rho: Any = None,
        mu: Any = None,
        sensitivity: Any = None,
    ) -> None:
        budget = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
        calibration = scale_and_guarantee("Projected", scale, sensitivity, budget, norm="l2", rule=calibrated)
        if np.ndim(calibration["scale"]):
            rule, advice = "must be one number", "With scales that differ, the projected noise has another law."
            raise refusal("Projected", "scale", rule, scale, advice)
        matrix, totals = _constraints(matrix, totals)
        self._freeze(**calibration, matrix=matrix, totals=totals)

    @property
    def dimension(self) -> int:
        """Dimension of the affine set of vectors that meet the totals."""
        rows, entries = np.shape(self.matrix)
        return int(entries - rows)

    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        noise = self.scale * rng.standard_normal(np.shape(confidential))
        basis = np.linalg.qr(np.asarray(self.matrix).T)[0]
        return confidential + noise - (noise @ basis) @ basis.T

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """Normal log density on the set where the totals hold; -inf for what is not on it."""
        xp = namespace(released, confidential, self)
        released, confidential = xp.asarray(released), xp.asarray(confidential)
        valid = self._meets(xp, released) & self._meets(xp, confidential)
        with np.errstate(over="ignore"):
            standard = (released - confidential) / self.scale
            log_density = self._log_height(xp) - 0.5 * xp.sum(standard * standard, axis=-1)
        return xp.where(valid, log_density, -xp.inf)

    def log_sup(self, released: Any) -> Any:
        """-(d/2) log(2 pi scale^2), at confidential = released."""
        xp = namespace(released, self)
        return xp.zeros(np.shape(released)[:-1]) + self._log_height(xp)

    def _log_height(self, xp: Any) -> Any:
        return -self.dimension * (0.5 * math.log(2.0 * math.pi) + xp.log(self.scale))

    def _meets(self, xp: Any, value: Any) -> Any:
        """Whether the totals hold, up to rounding errors of the sums."""
        matrix = xp.asarray(self.matrix)
        terms = value[..., None, :] * matrix
        size = xp.sum(xp.abs(terms), axis=-1) + xp.abs(self.totals)
        return xp.all(xp.abs(xp.sum(terms, axis=-1) - self.totals) <= TOLERANCE * size, axis=-1)

    def impossible(self, confidential: Any) -> str | None:
        """The rule that some row of `confidential` breaks, or None: a model must meet the totals by construction."""
        if np.all(self._meets(np, np.asarray(confidential, dtype=float))):
            return None
        totals = np.asarray(self.totals).tolist()
        return f"must meet the totals {totals} of its release by construction (a Multinomial given its size, say)"

    def check_released(self, value: Any) -> Any:
        """A vector, or an array of them along the last axis, that meets the totals."""
        who = "Projected.released"
        value = finite(who, value, "Give the published vector.")
        entries = np.shape(self.matrix)[1]
        if np.shape(value)[-1:] != (entries,):
            rule = f"must have {entries} entries along its last axis, one per column of matrix"
            raise refusal(who, "value", rule, value, "Check the matrix.")
        if not np.all(self._meets(np, value)):
            sums = (value @ np.asarray(self.matrix).T).tolist()
            rule = f"must meet the totals {np.asarray(self.totals).tolist()} (to a part in 1e9), not {sums}"
            advice = (
                "A release rounded or made non-negative after the projection has another law, which is not tractable."
            )
            raise refusal(who, "value", rule, value, advice)
        return value


def _constraints(matrix: Any, totals: Any) -> tuple[Any, Any]:
    """A and c as read-only arrays, without rows that follow from those before them."""
    who = "Projected"
    advice = "Give one row of coefficients per known total."
    matrix = checks.numeric(who, "matrix", matrix, advice)
    totals = checks.numeric(who, "totals", totals, "Give one known total per row of matrix.")
    if np.ndim(matrix) != 2 or not np.all(np.isfinite(matrix)) or not np.size(matrix):
        raise refusal(who, "matrix", "must be a table of finite numbers", matrix, advice)
    if np.shape(totals) != (len(matrix),) or not np.all(np.isfinite(totals)):
        rule = f"must be {len(matrix)} finite numbers, one per row of matrix"
        raise refusal(who, "totals", rule, totals, "Give one known total per row of matrix.")
    if not np.all(np.any(matrix != 0, axis=1)):
        raise refusal(who, "matrix", "must have no row of zeros", matrix, "Drop it: it says nothing.")
    independent: list[int] = []
    basis: list[Any] = []
    for index, row in enumerate(matrix / np.linalg.norm(matrix, axis=1, keepdims=True)):
        residual = row
        for _ in range(2):  # twice is enough to be orthogonal to working precision
            for direction in basis:
                residual = residual - (residual @ direction) * direction
        size = np.linalg.norm(residual)
        if size > TOLERANCE:
            independent.append(index)
            basis.append(residual / size)
    if len(independent) == matrix.shape[1]:
        rule = "must leave something unknown: these totals determine every entry"
        raise refusal(who, "matrix", rule, matrix, "Release it with Exact.")
    point = np.linalg.lstsq(matrix[independent], totals[independent], rcond=None)[0]
    size = np.abs(matrix) @ np.abs(point) + np.abs(totals)
    if not np.all(np.abs(matrix @ point - totals) <= TOLERANCE * size):
        raise refusal(who, "totals", "must not contradict each other", totals, "Check the sums of the totals.")
    matrix, totals = matrix[independent], totals[independent]
    matrix.flags.writeable = totals.flags.writeable = False
    return matrix, totals
