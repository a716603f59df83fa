"""K-norm noise (Hardt and Talwar 2010)."""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.additive import Additive, scale_and_guarantee
from noisewise.mechanisms.base import BUDGET, NUMBERS, Mechanism
from noisewise.mechanisms.multivariate_gaussian import check_vector, scaled
from noisewise.numerics import namespace

NORMS = ("l1", "l2", "linf", "ellipsoid", "polytope")
LARGEST_POLYTOPE = 5
_WHO = "KNorm"


class KNorm(Additive):
    """s_dp = s + z over the last axis of length p, density exp(-||z||_K / scale) / (p! vol(K) scale^p).

    K is the unit ball of the norm: "l1", "l2", "linf" in a given `dimension`; "ellipsoid", ||z|| = |Q z|_2 for a square
    `matrix` Q; "polytope", ||z|| = max |A z| for a `matrix` A with independent columns, in at most five dimensions
    because it needs the volume of K, whose cost grows steeply.
    Calibration: scale = sensitivity / epsilon, `sensitivity` in the norm itself, is epsilon-DP by the triangle
    inequality (Hardt and Talwar 2010; Awan and Slavkovic 2021).
    Normaliser: the mass of {r < ||z|| < r + dr} is p vol(K) r^(p-1) dr, and the integral of r^(p-1) exp(-r) is (p-1)!.
    Sampler: Gamma(p + 1) times scale times a uniform point of K. The point is a ratio of exponential
    variates with signs (l1), a normal direction with radius U^(1/p) (l2), uniform coordinates (linf), Q^-1 times an
    l2 point, or a uniform point of one of the simplices that join the origin to the faces of the polytope, chosen by
    volume.
    Supremum: attained at s = s_dp.
    """

    did = "got noise on all entries together (K-norm noise, {norm} ball, scale {scale})"
    fields = ("scale", "matrix")
    static = ("norm", "dimension")
    arguments = {
        "norm": {"enum": list(NORMS)},
        "dimension": {"type": "integer", "minimum": 1},
        "matrix": NUMBERS,
        "scale": BUDGET,
        "epsilon": BUDGET,
        "sensitivity": BUDGET,
    }
    alternatives = (("norm", "scale"), ("norm", "epsilon", "sensitivity"))
    event_dim = 1
    norm: str
    dimension: int
    scale: Any
    matrix: Any
    log_volume: Any
    """log of the volume of K. A leaf beside the matrix: volumes of polytopes cannot be traced."""

    def __init__(
        self,
        norm: str,
        scale: Any = None,
        *,
        dimension: Any = None,
        matrix: Any = None,
        epsilon: Any = None,
        sensitivity: Any = None,
    ) -> None:
        norm = checks.choice(_WHO, "norm", norm, NORMS)
        if scale is not None:
            scale = checks.positive_number(_WHO, "scale", scale, "The entries share one scale: weigh them by a matrix.")
        named = norm in ("l1", "l2", "linf")
        if named:
            if matrix is not None:
                raise refusal(_WHO, "matrix", f"must not come with the norm '{norm}'", matrix, "Leave it out.")
            advice = "Give the length of the last axis of the release."
            dimension = checks.integer(_WHO, "dimension", dimension, least=1, advice=advice)
        else:
            matrix, unneeded = _check_matrix(norm, matrix), "Leave it out: the matrix has it."
            columns = matrix.shape[1]
            if (
                dimension is not None
                and checks.integer(_WHO, "dimension", dimension, least=1, advice=unneeded) != columns
            ):
                rule = f"must be the matrix's number of columns, {columns}"
                raise refusal(_WHO, "dimension", rule, dimension, unneeded)
            dimension = columns
        budget = {"epsilon": epsilon}
        calibration = scale_and_guarantee(
            _WHO, scale, sensitivity, budget, norm=norm, rule=lambda size, epsilon: size / epsilon
        )
        if not named and calibration["guarantee"] is not None:  # guarantees have names for the first three norms only
            calibration["guarantee"] = replace(calibration["guarantee"], norm=None)
        calibration["log_volume"] = _log_volume(norm, dimension, matrix)
        self._freeze(**calibration, norm=norm, dimension=dimension, matrix=matrix)

    @classmethod
    def _flatten(cls, mechanism: Mechanism) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        leaves, static = super()._flatten(mechanism)
        return (*leaves, vars(mechanism)["log_volume"]), static

    @classmethod
    def _unflatten(cls, static: tuple[Any, ...], leaves: Any) -> Self:
        *fields, log_volume = leaves
        mechanism = super()._unflatten(static, fields)
        object.__setattr__(mechanism, "log_volume", log_volume)
        return mechanism

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a file; without the matrix where the norm has none."""
        return {key: value for key, value in super().to_dict().items() if value is not None}

    def check_released(self, value: Any) -> Any:
        """Finite numbers with a last axis of length `dimension`."""
        return check_vector(f"{_WHO}.released", value, self.dimension, "as long as the dimension")

    def size(self, z: Any) -> Any:
        """||z||_K of each vector along the last axis."""
        xp = namespace(z, self)
        largest, unit = scaled(xp, z)
        match self.norm:
            case "l1":
                ratio = xp.sum(xp.abs(unit), axis=-1)
            case "linf":
                ratio = xp.ones_like(largest)
            case "polytope":
                ratio = xp.max(xp.abs(unit @ xp.asarray(self.matrix).T), axis=-1)
            case _:
                white = unit if self.matrix is None else unit @ xp.asarray(self.matrix).T
                ratio = xp.sqrt(xp.sum(white * white, axis=-1))
        return largest * ratio

    def noise_log_prob(self, z: Any) -> Any:
        """-||z||_K / scale - log(p! vol(K) scale^p), one number for each vector along the last axis."""
        xp = namespace(z, self)
        log_mass = math.lgamma(self.dimension + 1.0) + self.log_volume + self.dimension * xp.log(self.scale)
        return -self.size(z) / self.scale - log_mass

    def noise_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Gamma radii times uniform points of the ball."""
        radius = self.scale * rng.standard_gamma(self.dimension + 1.0, (*shape[:-1], 1))
        return radius * self._ball(rng, shape)

    def _ball(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Uniform points of K."""
        match self.norm:
            case "linf":
                return rng.uniform(-1.0, 1.0, shape)
            case "l1":
                parts = rng.standard_exponential((*shape[:-1], self.dimension + 1))
                signs = np.where(rng.random(shape) < 0.5, -1.0, 1.0)
                return signs * parts[..., :-1] / parts.sum(axis=-1, keepdims=True)
            case "polytope":
                corners, shares, _ = _simplices(self.matrix.tobytes(), self.dimension)
                parts = rng.standard_exponential((*shape[:-1], self.dimension + 1))  # the last weighs the origin
                weights = parts[..., :-1] / parts.sum(axis=-1, keepdims=True)
                chosen = rng.choice(len(shares), shape[:-1], p=shares)
                return np.einsum("...i,...ij->...j", weights, corners[chosen])
            case _:
                direction = rng.standard_normal(shape)
                direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
                point = rng.random((*shape[:-1], 1)) ** (1.0 / self.dimension) * direction
                return point if self.matrix is None else point @ np.linalg.inv(self.matrix).T


def _check_matrix(norm: str, value: Any) -> Any:
    advice = {
        "ellipsoid": "Give the square Q of ||z|| = |Q z|_2.",
        "polytope": "Give the A of {z : max |A z| <= 1}, one column per entry.",
    }[norm]
    if value is None:
        raise refusal(_WHO, "matrix", f"must come with the norm '{norm}'", value, advice)
    matrix = checks.numeric(_WHO, "matrix", value, advice)
    if np.ndim(matrix) != 2 or not matrix.size:
        raise refusal(_WHO, "matrix", "must be a matrix", value, advice)
    rows, columns = matrix.shape
    if not np.all(np.isfinite(matrix)):
        raise refusal(_WHO, "matrix", "must be finite", value, advice)
    if norm == "ellipsoid" and rows != columns:
        raise refusal(_WHO, "matrix", "must be square", value, advice)
    if norm == "polytope" and columns > LARGEST_POLYTOPE:
        rule = f"must have at most {LARGEST_POLYTOPE} columns: the density needs the polytope's volume"
        raise refusal(_WHO, "matrix", rule, f"{columns} columns", "Use another norm in more dimensions.")
    if np.linalg.matrix_rank(matrix / _column_sizes(matrix)) < columns:
        raise refusal(_WHO, "matrix", "must have independent columns", value, "Otherwise the ball is unbounded.")
    return matrix


def _column_sizes(matrix: Any) -> Any:
    size = np.abs(matrix).max(axis=0)
    return np.where(size > 0, size, 1.0)


def _log_volume(norm: str, dimension: int, matrix: Any) -> float:
    """log vol(K)."""
    match norm:
        case "l1":
            return dimension * math.log(2.0) - math.lgamma(dimension + 1.0)
        case "linf":
            return dimension * math.log(2.0)
        case "polytope":
            return _simplices(matrix.tobytes(), dimension)[2]
    log_ball = 0.5 * dimension * math.log(math.pi) - math.lgamma(0.5 * dimension + 1.0)
    return log_ball if matrix is None else log_ball - float(np.linalg.slogdet(matrix)[1])


@lru_cache(maxsize=64)
def _simplices(matrix: bytes, dimension: int) -> tuple[Any, Any, float]:
    """The polytope cut into simplices with a corner at the origin.

    Returns their other corners, their shares of the volume of the polytope, and the log of that volume.
    """
    rows = np.frombuffer(matrix).reshape(-1, dimension)
    if dimension == 1:
        reach = 1.0 / np.abs(rows).max()
        return np.array([[[-reach]], [[reach]]]), np.array([0.5, 0.5]), math.log(2.0 * reach)
    from scipy.spatial import ConvexHull, HalfspaceIntersection, QhullError

    # In the coordinates y = R z, A = Q R, the polytope is round enough for qhull, whatever the units of the entries.
    base, turn = np.linalg.qr(rows)
    sides = np.concatenate([base, -base])
    try:
        vertices = HalfspaceIntersection(
            np.column_stack([sides, -np.ones(len(sides))]), np.zeros(dimension)
        ).intersections
        hull = ConvexHull(vertices)
    except QhullError as error:
        advice = f"Qhull says: {str(error).splitlines()[0]}."
        raise refusal(_WHO, "matrix", "must describe a polytope with a volume", rows, advice) from None
    corners = vertices[hull.simplices]
    parts = np.abs(np.linalg.det(corners)) / math.factorial(dimension)
    if not math.isclose(parts.sum(), hull.volume, rel_tol=1e-9):
        advice = "Its faces nearly coincide: leave out rows of the matrix that hardly matter."
        raise refusal(_WHO, "matrix", "must describe a polytope whose volume can be computed", rows, advice)
    log_volume = math.log(parts.sum()) - float(np.linalg.slogdet(turn)[1])
    return np.linalg.solve(turn, np.swapaxes(corners, 1, 2)).swapaxes(1, 2), parts / parts.sum(), log_volume
