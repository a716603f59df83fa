"""Sums over records in NumPy: JAX's contributions, added up."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from noisewise.numerics import double
from noisewise.numerics.numpy_programs import REAL_ONLY
from noisewise.numerics.record_sums import PlainSums
from noisewise.numerics.scratch import Scratch


@partial(jax.jit, static_argnums=2)
def converted(x, number, kind):
    return x * jnp.asarray(number).astype(kind)


PLAIN = {
    "clamped": lambda x, y, k, a: jnp.clip(x, -1.0, a),
    "between numbers": lambda x, y, k, a: jnp.clip(x, -1.0, 1.0),
    "the other way round": lambda x, y, k, a: jnp.minimum(jnp.maximum(-0.5, x), jnp.maximum(y, 0.1)),
    "stack": lambda x, y, k, a: jnp.stack([x, x * y, (x - y) ** 2, jnp.ones_like(x), jnp.square(x) / a]),
    "table": lambda x, y, k, a: jnp.stack([jnp.stack([x, y]), jnp.stack([x * x, a * x])]),
    "joined": lambda x, y, k, a: jnp.concatenate([jnp.stack([x, y]), jnp.array([1.0, 2.0]) * x]),
    "memory used again": lambda x, y, k, a: jnp.stack(
        [((x + y) * (x - y) + (x * y - x)) * (y + 1.0) - x, (x + 2.0) * y]
    ),
    "counts": lambda x, y, k, a: jnp.stack([k, k * k - 1, jnp.where(x > y, k, 2), (y <= a).astype(int)]),
    "nothing of the record": lambda x, y, k, a: a + 0.0 * x,
    "as it is": lambda x, y, k, a: x,
    "divided": lambda x, y, k, a: jnp.clip(x, -1.0, 1.0) / 7,
    "times a number": lambda x, y, k, a: jnp.stack([3.0 * jnp.clip(x, -1.0, a), (x * y) * -2 / 5.0, 2 * k]),
    "a number divided": lambda x, y, k, a: 2.0 / (x * x + 1.0),
    "beyond range in between": lambda x, y, k, a: jnp.clip(x, 0.0, 1.0) * 1e307 / 1e300,
    "a sum beyond range": lambda x, y, k, a: (jnp.clip(x, 0.5, 1.0) * 1.6e308) / 1e5,
    "nothing is left": lambda x, y, k, a: jnp.clip(x, -1.0, 1.0) * 0.0,
    "by zero": lambda x, y, k, a: jnp.clip(x, 0.5, 1.0) / 0.0,
    "by an infinite number": lambda x, y, k, a: jnp.clip(x, 0.5, 1.0) / jnp.inf,
}  # fmt: skip


CONVERTED = {
    "a number made whole": lambda x, y, k, a: converted(jnp.clip(x, 0.0, 1.0), 2.7, int),
    "a number that counts as one": lambda x, y, k, a: converted(jnp.clip(x, 0.0, 1.0), 3, bool),
    "rounded to 32 bits": lambda x, y, k, a: converted(jnp.clip(x, 0.0, 1.0), 0.1, jnp.float32),
}  # fmt: skip


def contributions(function, values):
    return jax.vmap(lambda v, a: jax.vmap(lambda r: jnp.asarray(function(**r, a=a)))(v))(
        {name: one for name, one in values.items() if name != "a"}, values["a"]
    )


def some(rows, records, seed):
    rng = np.random.default_rng(seed)
    values = {"a": rng.random(rows) + 0.5, "k": rng.integers(-3, 9, (rows, records))}
    return values | {name: rng.standard_normal((rows, records)) for name in ("x", "y")}


@pytest.mark.parametrize("name", CONVERTED)
def test_a_factor_of_another_type_is_what_it_becomes(name, seed):
    """Or the sum is left to XLA."""
    values, sums = some(7, 5, seed), PlainSums(lambda: partial(contributions, CONVERTED[name]))
    with double():
        each = np.asarray(contributions(CONVERTED[name], values))
    if sums.program(values) is not None:
        assert np.allclose(sums(values), each.sum(axis=1), rtol=1e-13)


@pytest.mark.parametrize("name", PLAIN)
def test_sums_are_those_of_jax(name, seed):
    sums = PlainSums(lambda: partial(contributions, PLAIN[name]))
    for rows, records in ((7, 5), (1, 1), (7, 5)):
        values = some(rows, records, seed)
        with double():
            each = np.asarray(contributions(PLAIN[name], values))
        before = {key: value.copy() for key, value in values.items()}
        found = sums(values)
        assert found.dtype == each.dtype
        assert np.allclose(found, each.sum(axis=1), rtol=1e-13, atol=1e-13)
        kept = np.arange(records) < np.arange(rows)[:, None]
        places = kept.reshape(kept.shape + (1,) * (each.ndim - 2))
        assert np.allclose(sums(values, kept), np.where(places, each, 0).sum(axis=1), rtol=1e-13, atol=1e-13)
        assert all(np.array_equal(values[key], before[key]) for key in values)


@pytest.mark.parametrize(
    "function", [lambda x, y, k, a: jnp.exp(x), lambda x, y, k, a: jnp.sum(jnp.arange(k.ndim + 9) * x % 2)]
)
def test_other_programs_are_not_taken(function):
    assert PlainSums(lambda: partial(contributions, function)).program(some(2, 3, 0)) is None


def test_memory_is_used_again_and_grows():
    scratch = Scratch()
    small = scratch.array("x", (2, 3), float)
    assert scratch.array("x", (2, 3), float) is small
    assert np.shares_memory(scratch.array("x", (3,), float), small)
    large = scratch.array("x", (9, 3), float)
    assert not np.shares_memory(large, small)
    assert np.shares_memory(scratch.array("x", (2, 3), float), large)
    assert not np.shares_memory(scratch.array("y", (2, 3), float), large)


def test_a_number_that_all_are_divided_by_is_left_to_the_sum(monkeypatch):
    """One division for each row, none for each record."""
    shapes = []
    monkeypatch.setitem(REAL_ONLY, "div", lambda *given, out: shapes.append(out.shape) or np.divide(*given, out=out))
    for function, divided in ((PLAIN["divided"], []), (PLAIN["a number divided"], [(7, 5)])):
        shapes.clear()
        PlainSums(lambda function=function: partial(contributions, function))(some(7, 5, 1))
        assert shapes == divided
