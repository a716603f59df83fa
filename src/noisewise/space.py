"""The parameters as points of an unconstrained space, with the prior's density there, Jacobian included.

Chains, adapted proposals and gradients move in this space, where no step can leave the prior's support. Whole-numbered
parameters have no such chart; they stay as they are, beside the free vector.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Delta, biject_to

from noisewise import laws
from noisewise.model import Model
from noisewise.numerics import Compiled, double

Array = np.ndarray[Any, Any]
Values = Mapping[str, Any]

LOOKED_AT, LEAST_ROWS, CELLS = 2**12, 2**6, 2**18
"""Draws of the prior by which its edges are looked at: at most, at least, and numbers in all between these."""
LOST = 1e-4
"""Share of a parameter's prior that coordinates may leave out."""


class Space:
    """Unconstrained coordinates of a model's continuous parameters, hierarchies included."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.names = tuple(name for name in model.order if name in model.parameters)
        self.discrete = tuple(name for name in self.names if model.is_discrete(name))
        self.continuous = tuple(name for name in self.names if name not in self.discrete)
        self.shapes = self._free_shapes()
        self.size = sum(int(np.prod(shape)) for shape in self.shapes.values())
        """Length of the free vector."""

    def _free_shapes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}

        def look(values: Values) -> Any:
            for name in self.continuous:
                law = self.law(name, values)
                shape = self.model.shape(name)
                found[name] = (0,) if is_fixed(law) else tuple(biject_to(law.support).inverse_shape(shape))
            return 0.0

        rows = {name: jax.ShapeDtypeStruct((1, *self.model.shape(name)), self.model.dtype(name)) for name in self.names}
        with double():
            jax.eval_shape(jax.vmap(look), rows)
        return found

    def law(self, name: str, values: Values) -> Any:
        """The prior law of `name` at its parents' values; traceable."""
        law = self.model.law(name)
        made = law.function(**{parent: values[parent] for parent in law.parents})
        for part in laws.parts(made):
            part._validate_args = False
        return made

    # Traceable: one point --------------------------------------------------------------------------------

    def point(self, free: Any, whole: Values) -> tuple[dict[str, Any], Any]:
        """Parameter values by name at one free vector (and whole-numbered values), and the log density there.

        The density is the prior's, of the free coordinates: log pi0(theta) + log |d theta / d free|, plus the log
        probability of the whole-numbered parameters. -inf where the prior is, and where it is not a number.
        """
        values: dict[str, Any] = {}
        total = jnp.zeros(())
        start = 0
        for name in self.names:
            if name in self.discrete:
                values[name] = whole[name]
                total = total + laws.density(self.law(name, values), whole[name])
                continue
            law = self.law(name, values)
            if is_fixed(law):
                values[name] = jnp.broadcast_to(law.sample(jax.random.key(0)), self.model.shape(name))
                continue
            transform = biject_to(law.support)
            size = int(np.prod(self.shapes[name]))
            piece = free[start : start + size].reshape(self.shapes[name])
            values[name] = transform(piece)
            start += size
            log_prior = jnp.sum(law.log_prob(values[name]))
            total = total + log_prior + jnp.sum(transform.log_abs_det_jacobian(piece, values[name]))
        return values, jnp.where(total < jnp.inf, total, -jnp.inf)  # NaN, or a formula beyond its range

    # Rows: NumPy in, NumPy out ---------------------------------------------------------------------------

    def points(self, free: Array, whole: Values | None = None) -> tuple[dict[str, Array], Array]:
        """`point` for each row; the shape of `free` decides what is compiled, so keep it fixed."""
        program = self._program("points", lambda: jax.vmap(self.point))
        given = {name: np.asarray((whole or {})[name]) for name in self.discrete}
        with double():
            values, density = program(np.asarray(free, dtype=np.float64), given)
            return {name: np.asarray(value) for name, value in values.items()}, np.asarray(density)

    def free_from(self, values: Values) -> Array:
        """The free vector of each row of parameter values: (rows, size)."""

        def one(row: Values) -> Any:
            parts = [
                jnp.ravel(biject_to(self.law(name, row).support).inv(jnp.asarray(row[name], float)))
                for name in self.continuous
                if np.prod(self.shapes[name]) > 0
            ]
            return jnp.concatenate(parts) if parts else jnp.zeros(0)

        program = self._program("free", lambda: jax.vmap(one))
        with double():
            return np.asarray(program({name: np.asarray(values[name]) for name in self.names}))

    def _program(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        return self.model.compiled.setdefault(("space", purpose), Compiled(build))


def is_fixed(law: Any) -> bool:
    """Whether the law is a point: no coordinate, and no density to count."""
    return isinstance(laws.peel(law)[0], Delta)


def unwalkable(model: Model) -> str | None:
    """Why walking in free coordinates would miss part of the prior, as the end of a sentence; None where it does not.

    Beta(0.01, 0.01) has a third of its mass within rounding of 1, where every coordinate is infinite: chains would
    never go there.
    """
    try:
        space = Space(model)
    except NotImplementedError as error:
        return f"moves in unconstrained coordinates, which a prior's support does not have ({error})"
    rows = max(LEAST_ROWS, min(LOOKED_AT, CELLS // max(1, space.size)))
    drawn = model.draw(np.random.default_rng(0), list(space.names), rows)
    free = space.free_from(drawn)
    again, _ = space.points(free, drawn)
    start = 0
    for name in space.continuous:
        size = int(np.prod(space.shapes[name]))
        own, start = free[:, start : start + size], start + size
        share = max(_share(~np.isfinite(own)), _share(_moved(drawn[name], again[name])))
        if size and share > LOST:
            return (
                f"moves in unconstrained coordinates, and {100 * share:.2g}% of the prior of '{name}' lies at the edge "
                "of floating point, where there are none"
            )
    return None


def _moved(before: Array, after: Array) -> Array:
    """Entries that did not come back from their coordinates, not even within a factor of two."""
    with np.errstate(invalid="ignore"):
        return ~((np.abs(after) <= 2.0 * np.abs(before)) & (np.abs(before) <= 2.0 * np.abs(after)))


def _share(bad: Array) -> float:
    return float(np.mean(bad)) if bad.size else 0.0
