"""Statistics measured under other names: each measurement is a statistic too, a fixed function of the one measured.

Samplers that simulate or weigh statistics need nothing more: the noise densities of all measurements multiply.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.sparse import vstack

from noisewise import checks
from noisewise.errors import Place, refusal
from noisewise.inference.conditional.laws import constant_bounds
from noisewise.mechanisms import Exact, Within
from noisewise.mechanisms.linear import Linear, Matrix
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.release import Release

MOST_DENSE = 2**22
"""Entries up to which exact measurements are compared by a dense matrix."""
ADVICE = "Check the model or the release."


@dataclass(frozen=True)
class Measured:
    """One measurement: `matrix` times the entries of `statistic`, row by row, in the given shape."""

    statistic: str
    matrix: Matrix
    shape: tuple[int, ...]
    dims: tuple[str, ...] = ()
    """Names of the axes that are left, where they are known."""

    def of(self, value: Any) -> Any:
        """What is measured of one value of the statistic; traceable."""
        return self.matrix.times(jnp.ravel(value)).reshape(self.shape)

    def of_rows(self, values: Array) -> Array:
        """What is measured of each row of values."""
        return self.matrix.times_rows(values.reshape(len(values), -1)).reshape(len(values), *self.shape)

    def law(self, value: Any) -> dist.Distribution:
        """The law of the measured value given the statistic, a point mass; traceable."""
        return dist.Delta(self.of(value), event_dim=len(self.shape))


def measurements(model: Model, release: Release) -> dict[str, Measured]:
    """The released values that measure a statistic of another name; refused where they do not fit it."""
    fitted = {}
    for name, item in release.items():
        if item.of is None or (item.of.whole and item.of.statistic == name):
            continue
        place, statistic = Place.of("release", name), item.of.statistic
        if statistic not in model.statistics or statistic in model.added:
            known = [known for known in model.statistics if known not in model.added]
            advice = checks.nearest(statistic, known)
            raise refusal("sample", place, "must measure a statistic of the model", statistic, advice)
        if name in model.order and name not in model.added:
            advice = "Give the measurement another name."
            raise refusal("sample", place, "must not have the name of a parameter or statistic", name, advice)
        if isinstance(item.mechanism, Exact) and not model.is_discrete(statistic):
            rule = f"measures '{statistic}' without noise, which is continuous: no sampler conditions on that"
            raise refusal("sample", place, rule, item.mechanism, "Give noise, or a law of whole numbers.")
        fitted[name] = _fitted(f"release['{name}']", model, release, item.of)
    _refuse_contradictions(release, fitted)
    _refuse_impossible_bounds(model, release, fitted)
    return fitted


def _fitted(who: str, model: Model, release: Release, of: Linear) -> Measured:
    shape, dims = model.shape(of.statistic), _dims(model, release, of.statistic)
    matrix, left = of.matrix_for(who, shape, dims)
    axes_left = of.kept(who, shape, dims) if of.matrix is None else []
    return Measured(of.statistic, matrix, left, tuple(dims[axis] for axis in axes_left) if dims else ())


def _dims(model: Model, release: Release, statistic: str) -> tuple[str, ...]:
    """Names of a statistic's axes: the model's, or those of a released value that has all its entries."""
    if statistic in model.axes.dims:
        return model.axes.dims[statistic]
    for name, item in release.items():
        whole = name == statistic if item.of is None else item.of.whole and item.of.statistic == statistic
        if whole and item.coords:
            return tuple(item.coords)
    return ()


def with_measurements(model: Model, measured: Mapping[str, Measured]) -> Model:
    """The model with one more statistic for each measurement."""
    added = {name: (m, m.statistic, m.law) for name, m in measured.items() if model.added.get(name) != m}
    return model.extended(added) if added else model


def _refuse_contradictions(release: Release, fitted: Mapping[str, Measured]) -> None:
    """Refuse exact measurements of one statistic that no real numbers solve together."""
    for statistic in {measured.statistic for measured in fitted.values()}:
        exact = [n for n, m in fitted.items() if m.statistic == statistic and isinstance(release[n].mechanism, Exact)]
        size = sum(fitted[name].matrix.shape[0] for name in exact) * (fitted[exact[0]].matrix.shape[1] if exact else 0)
        if len(exact) < 2 or size > MOST_DENSE:
            continue
        rows = np.concatenate([fitted[name].matrix.dense for name in exact]).astype(float)
        values = np.concatenate([np.ravel(release[name].value) for name in exact]).astype(float)
        if _distance(rows, values) > 1e-6 * (1.0 + np.abs(values).max()):
            rule = f"must not contradict another exact measurement of '{statistic}'"
            raise refusal("sample", Place.of("release", exact[-1]), rule, release[exact[-1]].value, ADVICE)


def _refuse_impossible_bounds(model: Model, release: Release, fitted: Mapping[str, Measured]) -> None:
    """Refuse declared bounds that no real numbers in the law's range obey together with the exact measurements."""
    declared = {name: fitted[name].statistic for name in fitted if isinstance(release[name].mechanism, Within)}
    if not declared:
        return
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import

    for statistic in set(declared.values()):
        parts, low, high = [], [], []
        for name, measured in fitted.items():
            mechanism, value = release[name].mechanism, release[name].value
            if measured.statistic == statistic and isinstance(mechanism, (Exact, Within)):
                parts.append(measured.matrix.sparse)
                ends = mechanism.ends(value) if isinstance(mechanism, Within) else (value, value)
                low.append(np.ravel(ends[0]))
                high.append(np.ravel(ends[1]))
        ends = np.concatenate(low), np.concatenate(high)
        if model.is_discrete(statistic):
            ends = np.ceil(ends[0]), np.floor(ends[1])
        bounds = Bounds(*(np.ravel(end) for end in constant_bounds(model, statistic)))
        possible = np.all(ends[0] <= ends[1])
        limits = LinearConstraint(vstack(parts), *ends)
        if not possible or milp(np.zeros(len(bounds.lb)), bounds=bounds, constraints=limits).x is None:
            name = next(name for name in declared if declared[name] == statistic)
            rule = f"must not contradict the law of '{statistic}', its exact measurements and other declared bounds"
            raise refusal("sample", Place.of("release", name), rule, release[name].mechanism, ADVICE)


def _distance(rows: Array, values: Array) -> float:
    """The largest miss of a value by the least-squares solution."""
    solution = np.linalg.lstsq(rows, values, rcond=None)[0]
    return float(np.abs(rows @ solution - values).max())
