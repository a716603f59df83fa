"""What a total adds up, what all its known laws have in common, and degrees of programs. docs/derivations/totals.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.model.law import Law
from noisewise.numerics import Array, Values, double
from noisewise.numerics.tracing import degrees, in_rows

Contribution = Callable[..., Any]


@dataclass(frozen=True)
class Summand:
    """What a total adds up: the laws of a record's fields, and a function of fields and of names outside."""

    laws: Mapping[str, Law]
    contribution: Contribution
    arguments: tuple[str, ...]
    structs: Mapping[str, jax.ShapeDtypeStruct]
    """Shape and type of everything that the contribution reads."""
    struct: jax.ShapeDtypeStruct
    """Shape and type of the contribution."""

    @property
    def outer(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Everything outside the records that laws or contribution read."""
        own = {name: one for law in self.laws.values() for name, one in law.structs.items()} | dict(self.structs)
        return {name: one for name, one in own.items() if name not in self.laws}

    def at(self, values: Values) -> Any:
        """The contribution of one record; traceable."""
        given = {name: values[name] for name in self.arguments}
        return jnp.asarray(self.contribution(**given)).astype(self.struct.dtype)


class KnownSum:
    """The law of a total: `Added`, `Scattered` or `Tallied`."""

    work: int
    """About how many numbers are handled for one row."""

    def draw(self, rng: np.random.Generator, values: Values, n: Array) -> Array | None:
        """A total of `n` records for each row; None where the law cannot be used, and records must be simulated."""
        raise NotImplementedError


def degrees_of(function: Callable[[Values, Values], Any], moving: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    """Degrees of the outputs of `function`, in their own layout, as polynomials of the `moving` values."""
    with double():
        traced, shapes = jax.make_jaxpr(jax.vmap(function), return_shape=True)(in_rows(moving), in_rows(known))
    by_output = degrees(traced.jaxpr, [1.0] * len(moving) + [0.0] * len(known))
    return jax.tree.unflatten(jax.tree.structure(shapes), by_output)
