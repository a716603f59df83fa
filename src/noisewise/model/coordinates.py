"""The parameters as points of an unconstrained space, with the prior's density there, Jacobian included.

Chains, adapted proposals and gradients move in this space, where no step can leave the prior's support. Whole-numbered
parameters have no such chart; they stay as they are, beside the free vector.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to

from noisewise.model.atoms import has_atoms, is_fixed
from noisewise.model.law import log_density
from noisewise.model.model import Model
from noisewise.numerics import Array, Compiled, double

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
                law = self.model.law_at(name, values)
                shape = self.model.shape(name)
                found[name] = (0,) if is_fixed(law) else tuple(biject_to(law.support).inverse_shape(shape))
            return 0.0

        rows = {name: jax.ShapeDtypeStruct((1, *self.model.shape(name)), self.model.dtype(name)) for name in self.names}
        with double():
            jax.eval_shape(jax.vmap(look), rows)
        return found

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
                total = total + log_density(self.model.law_at(name, values), whole[name])
                continue
            law = self.model.law_at(name, values)
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
                jnp.ravel(biject_to(self.model.law_at(name, row).support).inv(jnp.asarray(row[name], float)))
                for name in self.continuous
                if np.prod(self.shapes[name]) > 0
            ]
            return jnp.concatenate(parts) if parts else jnp.zeros(0)

        program = self._program("free", lambda: jax.vmap(one))
        with double():
            return np.asarray(program({name: np.asarray(values[name]) for name in self.names}))

    def _program(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        return self.model.compiled.setdefault(("space", purpose), Compiled(build))


# What coordinates do not reach ------------------------------------------------------------------------------


def unwalkable(model: Model, statistics: Sequence[str] = ()) -> str | None:
    """Why walking in free coordinates would miss part of a law, as the end of a sentence; None where it does not.

    Of the prior, and of the continuous `statistics` that walk too. Beta(0.01, 0.01) has a third of its mass within
    rounding of 1, where every coordinate is infinite: chains would never go there.
    """
    names = [n for n in model.order if n in statistics or (n in model.parameters and not model.is_discrete(n))]
    needed = [name for name in model.order if name in {*names, *model.ancestors(*names)}]
    against = _without_density(model, names, needed)
    if against is not None or not names:
        return against
    width = sum(model.cost_of_row(name) for name in needed)
    rows = max(LEAST_ROWS, min(LOOKED_AT, CELLS // max(1, width)))
    drawn = model.draw(np.random.default_rng(0), needed, rows)
    program = model.compiled.setdefault(
        ("space", "edges", *names), Compiled(lambda: jax.vmap(lambda values: _edges(model, names, values)))
    )
    with double():
        shares = {name: float(np.mean(np.asarray(lost))) for name, lost in program(drawn).items()}
    for name, share in shares.items():
        if share > LOST:
            what = "prior" if name in model.parameters else "law"
            return (
                f"moves in unconstrained coordinates, and {100 * share:.2g}% of the {what} of '{name}' lies at the "
                "edge of floating point, where there are none"
            )
    return None


def _without_density(model: Model, names: Sequence[str], needed: Sequence[str]) -> str | None:
    """A law with atoms, or without unconstrained coordinates."""
    against: list[str] = []

    def look(values: Values) -> Any:
        for name in names:
            law = model.law_at(name, values)
            what = "prior" if name in model.parameters else "law"
            if has_atoms(law) and not is_fixed(law):
                against.append(f"compares densities, and the {what} of '{name}' has atoms, so it has none")
                continue
            try:
                biject_to(law.support)
            except NotImplementedError as error:
                against.append(f"moves in unconstrained coordinates, which a {what}'s support does not have ({error})")
        return 0.0

    rows = {name: jax.ShapeDtypeStruct((1, *model.shape(name)), model.dtype(name)) for name in needed}
    with double():
        jax.eval_shape(jax.vmap(look, axis_size=1), rows)
    return against[0] if against else None


def _edges(model: Model, names: Sequence[str], values: Values) -> dict[str, Any]:
    """For each law but points, which entries have no coordinates, or none that lead back within a factor of two."""
    found = {}
    for name in names:
        law = model.law_at(name, values)
        if not is_fixed(law):
            transform, value = biject_to(law.support), jnp.asarray(values[name], float)
            free = transform.inv(value)
            before, after = jnp.abs(value), jnp.abs(transform(free))
            back = (after <= 2.0 * before) & (before <= 2.0 * after)  # NaN: no
            found[name] = jnp.maximum(jnp.mean(~jnp.isfinite(free)), jnp.mean(~back))
    return found
