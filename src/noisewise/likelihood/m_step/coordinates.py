"""Parameters as one vector: from names to coordinates on their own scale, and to unconstrained ones."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise import checks
from noisewise.axes import Axes
from noisewise.errors import Place, refusal
from noisewise.likelihood.instead import SAMPLE
from noisewise.likelihood.m_step import units
from noisewise.model import Model
from noisewise.model.coordinates import Chart
from noisewise.numerics import Array, Values, double
from noisewise.results.labels import NUMBERED, by_name, labels_of


class Coordinates:
    """The parameters a fit moves: their shapes, their space (the prior's support) and its unconstrained chart."""

    def __init__(self, model: Model, axes: Axes = NUMBERED) -> None:
        self.model, self.names, self.axes = model, model.parameters, axes
        for name in self.names:
            if model.parents(name):
                rule = "must not depend on other parameters: a fit has no prior to integrate it over"
                advice = "Give it a plain prior (only its support is used), or use nw.sample."
                others = " and ".join(model.parents(name))
                raise refusal("fit", Place.of("prior", name), rule, others, advice, instead=(SAMPLE,))
            if model.is_discrete(name):
                advice = "Fix it, or use nw.sample."
                raise refusal(
                    "fit",
                    Place.of("prior", name),
                    "must be continuous to be fitted",
                    "a discrete prior",
                    advice,
                    instead=(SAMPLE,),
                )
        self.chart = Chart(model, self.names, supports=True)  # a fit has no prior
        self.free, self.size = self.chart.shapes, self.chart.size
        self.shapes = {name: model.shape(name) for name in self.names}
        with double():
            self.transforms = {name: self.chart.transform(name, {}) for name in self.names}
        self.width = sum(int(np.prod(shape)) for shape in self.shapes.values())
        self.origin = self._origin()
        """What is added to free coordinates: the log of the prior's median on half lines, nothing elsewhere."""

    @property
    def is_square(self) -> bool:
        """Whether there are as many unconstrained coordinates as parameters (not so for shares that sum to one)."""
        return self.size == self.width

    @property
    def labels(self) -> list[str]:
        """One name per scalar parameter."""
        return [label for name in self.names for label in labels_of(name, self.shapes[name], self.axes)]

    @cached_property
    def bounded(self) -> list[str | None]:
        """For every free coordinate the parameter it belongs to, where that has an edge; None on the whole line."""
        owners: list[str | None] = []
        for name in self.names:
            size = int(np.prod(self.free[name]))
            with double():
                far = jnp.full(self.free[name], -20.0)
                moved = self.transforms[name](far)
                edged = moved.shape != far.shape or not bool(jnp.all(moved == far))
            owners += [name if edged else None] * size
        return owners

    @property
    def has_edge(self) -> Array:
        """Whether a free coordinate belongs to a parameter that has an edge."""
        return np.array([name is not None for name in self.bounded])

    # Units ------------------------------------------------------------------------------------------------------------

    @cached_property
    def _quartiles(self) -> dict[str, Array]:
        return {name: units.quartiles(self.model, name) for name in self.names}

    def _origin(self) -> Array:
        origins = []
        with double():
            for name in self.names:
                transform, shape = self.transforms[name], self.free[name]
                whole = np.zeros(shape)
                if units.is_exponential(transform, shape):
                    whole = whole + units.half_line_start(transform, self._quartiles[name])
                origins.append(whole.ravel())
        return np.concatenate(origins)

    @cached_property
    def spread(self) -> Array:
        """The prior's spread of free coordinates on the whole line; one for those of a bounded space."""
        edges, spreads = self.has_edge, np.ones(self.size)
        start = 0
        for name in self.names:
            own = slice(start, start + int(np.prod(self.free[name])))
            start = own.stop
            if not edges[own].any():
                spreads[own] = units.quartile_spread(self._quartiles[name]).ravel()
        return spreads

    def unit(self, curvature: Array) -> Array:
        """The unit of every free coordinate: one where its space has an edge, else a standard error.

        `curvature` is the diagonal of an information: one over its root is the standard error, which counts as at most
        the prior's spread.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.where(curvature > 0, 1.0 / np.sqrt(curvature), np.inf)
        return np.where(self.has_edge, 1.0, np.minimum(own, self.spread))

    def reach(self, free: Array, unit: Array) -> Array:
        """How far one step may go: five on a chart of a bounded space, five times (ten units + |free|) on the line."""
        return np.where(self.has_edge, 5.0, 5.0 * (10.0 * unit + np.abs(free)))

    # Values -----------------------------------------------------------------------------------------------------------

    def constrained(self, free: Any) -> Values:
        """Parameter values by name from a free vector; traceable."""
        return {placed.name: placed.value for placed in self.chart.walk(free + self.origin, {})}

    def split(self, flat: Any) -> Values:
        """Parameter values by name from the vector of all parameters; traceable."""
        return by_name(flat, self.shapes)

    def flat(self, values: Values) -> Any:
        """All parameters in one vector."""
        return jnp.concatenate([jnp.ravel(values[name]) for name in self.names])

    def free_from(self, values: Values) -> Array:
        """The free vector of parameter values."""
        with double():
            return np.asarray(self.chart.free(values)) - self.origin

    def values(self, free: Array) -> dict[str, Array]:
        """Parameter values of a free vector, as NumPy arrays."""
        with double():
            return {name: np.asarray(value) for name, value in self.constrained(jnp.asarray(free)).items()}

    def jacobian(self, free: Array) -> Array:
        """d (all parameters) / d (free coordinates)."""
        with double():
            return np.asarray(jax.jacfwd(lambda u: self.flat(self.constrained(u)))(jnp.asarray(free)))

    def check_start(self, start: Any) -> dict[str, Array]:
        """A user's starting value for every parameter, refused where it is not in the parameter's space."""
        if not isinstance(start, dict) or set(start) != set(self.names):
            given = sorted(start) if isinstance(start, dict) else start
            raise refusal("fit", "start", f"must give a value for each of {', '.join(self.names)}", given, "Add them.")
        values = {}
        for name in self.names:
            value = np.asarray(checks.numeric("fit", f"start['{name}']", start[name], "Give a number or an array."))
            if value.shape != self.shapes[name]:
                rule = f"must have the shape {self.shapes[name]}"
                raise refusal("fit", f"start['{name}']", rule, start[name], "See the model's prior.")
            with double():
                inside = bool(np.all(np.asarray(self.transforms[name].codomain(jnp.asarray(value)))))
            if not inside or not np.all(np.isfinite(self.transforms[name].inv(jnp.asarray(value)))):
                rule = "must lie inside the prior's support"
                raise refusal("fit", f"start['{name}']", rule, start[name], "Start away from the boundary.")
            values[name] = value
        return values
