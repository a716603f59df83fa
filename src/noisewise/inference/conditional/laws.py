"""A statistic's law: by tracing, which facts of it hold for all parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.model import Model
from noisewise.model.families import facts_of
from noisewise.model.masses import bounds
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, Values, double
from noisewise.numerics.compiled import looking
from noisewise.numerics.numpy_programs import fixed_outputs
from noisewise.numerics.tracing import seen


def rows_of(model: Model, names: list[str], rows: int = 1) -> dict[str, Array]:
    """Simulated values of the names, always the same."""
    wanted = [name for name in model.order if name in {*names, *model.ancestors(*names)}]
    with looking():
        drawn = model.sketched(wanted, rows)
    return {name: drawn[name] for name in names}


def look_at(model: Model, name: str, see: Any) -> Any:
    """What `see(law)` returns for a law whose numbers are known unless a parameter enters them.

    Under `vmap` alone, values that do not depend on a mapped argument are not traced. Each operation is a program of
    its own; so use `sketch_of` where only shapes and kinds are needed, and `fixed_numbers` where only numbers are.
    """
    answers: list[Any] = []
    rows = rows_of(model, list(model.parents(name)))

    def look(row: Values) -> Any:
        answers.append(see(model.law_at(name, row)))
        return 0.0

    with double():
        if rows:
            jax.vmap(look)({parent: jnp.asarray(value) for parent, value in rows.items()})
        else:
            look({})
    return answers[-1]


def sketch_of(model: Model, name: str, see: Any) -> Any:
    """What `see(law)` returns of shapes and kinds: the law is traced, and nothing is computed."""
    return seen(lambda row: see(model.law_at(name, row)), model.law(name).row)


def fixed_numbers(model: Model, name: str, see: Any) -> list[Any]:
    """The numbers that `see(law)` lists, as NumPy where they are the same for all parameters, else None."""

    def look(row: Values) -> Any:
        return [jnp.asarray(number) for number in see(model.law_at(name, row))]

    with double():
        numbers = fixed_outputs(jax.vmap(look, axis_size=1), model.law(name).row)
    return [None if number is None else np.asarray(number[0]) for number in numbers]


def constant_of(model: Model, name: str, attribute: str) -> Any:
    """An attribute of the law that does not depend on the parameters; None where it does, or where there is none."""
    (value,) = fixed_numbers(model, name, lambda law: [getattr(peel(law)[0], attribute, np.nan)])
    return None if value is None or np.any(np.isnan(value)) else value


def is_affine(model: Model, name: str) -> bool:
    """Whether log p(s) = log h(s) + (affine in s), where only the affine part depends on the parameters."""
    facts = facts_of(model.law(name).form.kind)
    if not facts.linear_count:
        return False
    return not facts.while_known or constant_of(model, name, facts.while_known) is not None


def constant_bounds(model: Model, name: str) -> tuple[Array, Array]:
    """Ends of the support that hold for all parameters."""
    shape = model.shape(name)
    low, high = fixed_numbers(model, name, lambda law: bounds(law, shape))
    return (
        np.full(shape, -np.inf) if low is None else low,
        np.full(shape, np.inf) if high is None else high,
    )
