"""Closed forms: where everything is normal, and every mean an affine function, the posterior's spread is known.

Nodes x = A (parents) + b + scale * e make (parameters, statistics) jointly normal; Gaussian noise adds its variance.
The posterior of a linear quantity then has a variance that no release changes. docs/derivations/design.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr, ndtri

from noisewise.mechanisms import Exact, Gaussian, Mechanism
from noisewise.model import Model
from noisewise.model.law import Law
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, double
from noisewise.results.goal import Goal


@dataclass(frozen=True)
class JointNormal:
    """The normal law of a quantity and of the statistics that are released, flattened and in the plan's order."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    mean: Array
    covariance: Array
    """First entry: the quantity; then the statistics."""
    target: Goal
    at_truth: tuple[Array, Array] | None
    """Mean and covariance of the statistics at the stated truth."""

    @classmethod
    def of(cls, model: Model, mechanisms: Mapping[str, Mechanism], target: Goal) -> Self | None:
        """The law; None where something is not normal, not affine or has other noise."""
        if not all(type(mechanism) in (Gaussian, Exact) for mechanism in mechanisms.values()):
            return None
        forms = {}
        for name in model.order:
            form = _affine_law(model, name)
            if form is None:
                return None
            forms[name] = form
        names = tuple(mechanisms)
        quantity = _affine_quantity(model, target)
        if quantity is None:
            return None
        where, size = {}, 0
        for name in model.order:
            width = math.prod(model.shape(name))
            where[name] = slice(size, size + width)
            size += width
        chosen = np.zeros((1 + sum(math.prod(model.shape(name)) for name in names), size))
        offset = np.zeros(len(chosen))
        offset[0] = quantity[1]
        for name, row in quantity[0].items():
            chosen[0, where[name]] = row
        at = 1
        for name in names:
            width = where[name].stop - where[name].start
            chosen[at : at + width, where[name]] = np.eye(width)
            at += width
        mean, covariance = _propagated(forms, where, size, {})
        at_truth = None
        if target.truth is not None:
            known = {name: np.ravel(value).astype(float) for name, value in target.truth.items()}
            there, around = _propagated(forms, where, size, known)
            at_truth = (chosen @ there + offset)[1:], (chosen @ around @ chosen.T)[1:, 1:]
        sizes = tuple(math.prod(model.shape(name)) for name in names)
        return cls(names, sizes, chosen @ mean + offset, chosen @ covariance @ chosen.T, target, at_truth)

    def value(self, mechanisms: Mapping[str, Mechanism]) -> float:
        """The target, exactly."""
        sizes = zip(self.names, self.sizes, strict=True)
        noise = np.concatenate([_variances(mechanisms[name], size) for name, size in sizes])
        released = self.covariance[1:, 1:] + np.diag(noise)
        gain = np.linalg.solve(released, self.covariance[1:, 0])
        sd = math.sqrt(max(self.covariance[0, 0] - gain @ self.covariance[1:, 0], 0.0))
        reach = float(ndtri((1.0 + self.target.level) / 2.0)) * sd
        if self.target.kind == "sd":
            return sd
        if self.target.kind == "width":
            return 2.0 * reach
        centre, spread = self.mean[0], math.sqrt(gain @ released @ gain)
        if self.at_truth is not None:
            centre = self.mean[0] + gain @ (self.at_truth[0] - self.mean[1:])
            spread = math.sqrt(gain @ (self.at_truth[1] + np.diag(noise)) @ gain)
        return self._chance(centre - self.target.against, spread, sd, reach)

    def _chance(self, centre: float, spread: float, sd: float, reach: float) -> float:
        """Power, or a decision's error, where the posterior mean less `against` is N(centre, spread^2)."""
        if self.target.kind == "power":
            return float(ndtr((centre - reach) / spread) + ndtr((-reach - centre) / spread))
        if self.target.truth is None:
            from scipy.integrate import quad  # slow to import

            def wrong(z: float) -> float:
                return float(ndtr(-abs(centre + spread * z) / sd)) * math.exp(-0.5 * z * z)

            return float(quad(wrong, -12.0, 12.0)[0]) / math.sqrt(2.0 * math.pi)
        return float(ndtr(-centre / spread) if self._truly_above else ndtr(centre / spread))

    @property
    def _truly_above(self) -> bool:
        assert self.target.truth is not None
        value = np.asarray(self.target.truth[self.target.name])[self.target.index]
        return bool(value > self.target.against)


def _variances(mechanism: Mechanism, size: int) -> Array:
    """The noise's variance at each entry."""
    if isinstance(mechanism, Exact):
        return np.zeros(size)
    assert isinstance(mechanism, Gaussian)
    return np.broadcast_to(np.ravel(mechanism.scale) ** 2, size)


def _propagated(forms: Any, where: Any, size: int, known: Mapping[str, Array]) -> tuple[Array, Array]:
    """Mean and covariance of all nodes, those that are `known` held fixed."""
    mean, covariance = np.zeros(size), np.zeros((size, size))
    for name, (slopes, constant, scale) in forms.items():
        own = where[name]
        if name in known:
            mean[own] = known[name]
            continue
        weight = np.zeros((own.stop - own.start, size))
        for parent, slope in slopes.items():
            weight[:, where[parent]] = slope
        mean[own] = weight @ mean + constant
        with_all = weight @ covariance
        covariance[own, :] = with_all
        covariance[:, own] = with_all.T
        covariance[own, own] = with_all @ weight.T + np.diag(scale**2)
    return mean, covariance


def _affine_law(model: Model, name: str) -> tuple[dict[str, Array], Array, Array] | None:
    """Slopes by parent, constant and scale of a normal law; None where it is another, or not affine."""
    if not isinstance(model.node(name), Law) or model.law(name).form.kind != "Normal":
        return None
    shape = model.shape(name)
    return _affine(
        lambda row: jnp.broadcast_to(peel(model.law_at(name, row))[0].loc, shape),
        {parent: model.shape(parent) for parent in model.parents(name)},
        lambda row: jnp.broadcast_to(peel(model.law_at(name, row))[0].scale, shape),
    )


def _affine_quantity(model: Model, target: Goal) -> tuple[dict[str, Array], float] | None:
    """Slopes and constant of the quantity asked for, which may be a derived one of parameters or statistics."""
    if target.name in model.order:
        unit = np.zeros(model.shape(target.name))
        unit[target.index] = 1.0
        return {target.name: unit.ravel()}, 0.0
    needed = model.derived_from[target.name]
    if target.truth is not None or any(name in model.derived for name in needed):
        return None
    affine = _affine(
        lambda row: jnp.asarray(model.derived[target.name](**row), dtype=float)[target.index].reshape(1),
        {name: model.shape(name) for name in needed},
    )
    return None if affine is None else ({name: slope[0] for name, slope in affine[0].items()}, float(affine[1][0]))


def _affine(function: Any, shapes: Mapping[str, tuple[int, ...]], constant: Any = None) -> Any:
    """Slopes and constant of a function, and the value of another one that must not depend on its arguments.

    None where a slope or that value depends on the arguments. Under `vmap` whatever depends on them is a tracer. So
    slopes that are no tracers are constant, by the way they were computed and not by their values at some points.
    """
    seen: list[Any] = []

    def look(row: dict[str, Any]) -> Any:
        slopes = jax.jacfwd(function)(row) if row else {}
        seen.append((slopes, 0.0 if constant is None else constant(row)))
        return 0.0

    try:
        with double():
            zeros = {name: jnp.zeros(shape) for name, shape in shapes.items()}
            if shapes:
                jax.vmap(look)({name: jnp.zeros((2, *shape)) for name, shape in shapes.items()})
            else:
                look({})
            if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(seen[-1])):
                return None
            at_zero = np.ravel(np.asarray(function(zeros)))
            slopes = {name: np.asarray(slope).reshape(len(at_zero), -1) for name, slope in seen[-1][0].items()}
            return slopes, at_zero, np.ravel(np.asarray(seen[-1][1]))
    except (TypeError, ValueError, jax.errors.JAXTypeError):
        return None
