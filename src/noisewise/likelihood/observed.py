"""The exact observed log likelihood, its gradient and its maximum.

It comes from exact clouds, so nothing here is simulated. Notation: docs/derivations/likelihood.md.
"""

import math
from typing import Any

import numpy as np

from noisewise.engine import Engine, Threads
from noisewise.errors import InferenceError, InputError, refusal
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step.by_rows import RowClouds, RowPasses, exact_clouds
from noisewise.likelihood.e_step.cloud import Clouds, inexact
from noisewise.likelihood.e_step.entries_in_pieces import exact_parts
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.e_step.released_law import Part
from noisewise.likelihood.e_step.sufficient import condensed
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.m_step.maximise import Objective
from noisewise.likelihood.m_step.units import unit_free
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.release import Release
from noisewise.results.fit import Fit


class Surface:
    """l(theta) and its gradient in the free coordinates, by sums and integrals; and its maximisation."""

    def __init__(self, parts: list[Part], coordinates: Coordinates, engine: Engine | None = None) -> None:
        self.parts, self.coordinates = parts, coordinates
        self.objective = Objective(parts, coordinates)
        self.by_rows = RowPasses(parts, engine or Threads())

    def clouds(self, free: Array) -> Clouds:
        """The exact cloud of every part."""
        return exact_clouds(self.parts, self.coordinates.values(free), self.by_rows)

    def at(self, free: Array) -> tuple[float, Array]:
        """Log likelihood and gradient; -inf where it is too small to be computed.

        The gradient is that of Q at its own parameters (Fisher's identity; see the derivation's score).
        """
        nothing = -math.inf, np.zeros(len(free))
        with np.errstate(all="ignore"):
            try:
                clouds = self.clouds(free)
                value = clouds.log_likelihood
            except InputError:  # a window that would have to be too wide
                return nothing
            gradient = self._gradient(free, clouds)
        return (value, gradient) if np.isfinite(value) and np.all(np.isfinite(gradient)) else nothing

    def _gradient(self, free: Array, clouds: Clouds) -> Array:
        if not isinstance(clouds, RowClouds) or clouds.by.others:
            return self.objective.q(free, clouds.changed(condensed))[1]
        return sum((one.score for one in clouds.moments(free, self.coordinates.constrained, "free")), np.zeros(()))

    def curvature(self, free: Array) -> Array:
        """Observed information in the free coordinates, less the term that vanishes with the score."""
        information = self.objective.score_and_information(free, self.clouds(free)).information
        if not self.coordinates.is_square:
            return information
        jacobian = self.coordinates.jacobian(free)
        return jacobian.T @ information @ jacobian

    def maximise(self, free: Array, moving: Array, until: float = math.inf) -> tuple[Array, float]:
        """BFGS over the `moving` free coordinates, started with Louis's information; returns the top and its height.

        It ends early where a coordinate of a bounded parameter has gone beyond `until`.
        """
        value, gradient = self.at(free)
        if not np.isfinite(value) or not moving.any():
            return free, value
        inverse = positive_inverse(self.curvature(free)[np.ix_(moving, moving)])
        gradient = gradient[moving]
        for _ in range(500):
            step = inverse @ gradient
            rise = float(gradient @ step)
            if rise < 1e-11:
                return free, value
            curvature = np.zeros(len(free))
            curvature[moving] = 1.0 / np.diag(inverse)
            reach = self.coordinates.reach(free, self.coordinates.unit(curvature))[moving]
            with np.errstate(over="ignore"):
                step *= min(1.0, float(np.min(reach / np.maximum(np.abs(step), 1e-300))))
            while True:
                trial = free.copy()
                trial[moving] += step
                new, new_gradient = self.at(trial)
                if new > value + 1e-4 * float(gradient @ step):
                    break
                step *= 0.5
                if float(gradient @ step) < 1e-11:  # no rise left that the arithmetic could show
                    return free, value
            inverse = _updated(inverse, step, gradient - new_gradient[moving])
            free, value, gradient = trial, new, new_gradient[moving]
            if np.any(moving & self.coordinates.has_edge & (np.abs(free) > until)):
                return free, value
        raise InferenceError(
            "the log likelihood has no maximum within 500 steps. Is the model identified?", who="intervals"
        )


class Observed(Surface):
    """The observed log likelihood around a fit, and its maximum there."""

    def __init__(self, who: str, model: Model, release: Release, fit: Fit) -> None:
        problem = Problem(model, release)
        check_fit(who, release, fit)
        coordinates = Coordinates(model, problem.axes)
        if tuple(coordinates.labels) != fit.labels:
            raise refusal(who, "fit", "must be a fit of this model", fit.labels, "Give the model that was fitted.")
        super().__init__(exact_parts(parts_of(problem), dict(fit.estimate)), coordinates)
        free = self.coordinates.free_from(dict(fit.estimate))
        start = np.where(np.isfinite(free), free, np.sign(free) * 50.0)  # rounding may put an estimate on the boundary
        if reason := inexact(*self.clouds(start).neglected):  # a part without an exact cloud is refused here
            raise InferenceError(reason, who=who)
        self.free, self.top = self.maximise(start, np.ones(self.coordinates.size, bool))

    def restricted(self, free: Array, moving: Array) -> tuple[Array, float]:
        """The maximum with some coordinates held; higher than the fit's own maximum is an error, never hidden."""
        free, value = self.maximise(free, moving)
        self.refuse_higher(free, value)
        return free, value

    def refuse_higher(self, free: Array, value: float) -> None:
        """Raise an error where a value is higher than the fit's own maximum by more than rounding."""
        if value > self.top + 1e-6 and value > self.top + self._rounding(free, value):
            raise InferenceError(
                f"the likelihood is higher by {value - self.top:.3g} at {self.coordinates.values(free)} "
                "than at the fit: it has several tops. Fit again with this start.",
                self.coordinates.values(free),
                who="intervals",
            )

    def _rounding(self, free: Array, value: float) -> float:
        """By how much the value may be wrong: a density's formula may lose its digits where a parameter is huge.

        With binomial logits of 1e10, for example, n times that is subtracted from s times that. Moving the parameters
        in their last digits shows it; by multiples of an irrational number, so that no digit stays the same.
        """
        near = [self.at(free * (1.0 + math.sqrt(2.0) * k * 2.0**-44))[0] for k in range(1, 17)]
        return 4.0 * float(np.ptp([value, *near]))


def positive_inverse(matrix: Array) -> Array:
    """Inverse of a symmetric matrix, its eigenvalues made positive, units left aside."""
    unitless, scale = unit_free(0.5 * (matrix + matrix.T))
    values, vectors = np.linalg.eigh(unitless)
    return ((vectors / np.maximum(np.abs(values), 1e-8)) @ vectors.T) / np.outer(scale, scale)


def _updated(inverse: Array, step: Array, fall: Array) -> Array:
    """The BFGS update of the inverse information from a step and the fall of the gradient along it."""
    curve = float(step @ fall)
    unit = np.sqrt(np.diag(inverse))
    if curve <= 1e-12 * float(np.linalg.norm(step / unit) * np.linalg.norm(fall * unit)):
        return inverse
    shear = np.eye(len(step)) - np.outer(step, fall) / curve
    return shear @ inverse @ shear.T + np.outer(step, step) / curve


def check_fit(who: str, release: Release, fit: Any) -> None:
    """Refuse what is no fit, or a fit to another release."""
    if not isinstance(fit, Fit):
        raise refusal(who, "fit", "must be a Fit", fit, "Give the result of nw.fit(model, release, ...).")
    if fit.release_hash != release.hash:
        raise refusal(
            who, "fit", "must be a fit to this release", fit.release_hash, "Fit this release, or give that one."
        )
