"""What the trace tells of entries: which entry of an input each reads, and whether all are equal; never by chance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import xlogy

from noisewise.numerics import double
from noisewise.numerics.places import all_alike, places_read

SITE = np.array([2, 0, 0, 1])
TABLE = np.array([[0.1, 0.9], [0.3, 0.7], [0.5, 0.5]])
N = -1

READS = {
    "itself": (lambda x, _: x, [0, 1, 2]),
    "its formula": (lambda x, _: jnp.where(x > 1, xlogy(x, 2.0), jax.nn.softplus(x) - x**2), [0, 1, 2]),
    "backwards": (lambda x, _: x[::-1], [2, 1, 0]),
    "by site": (lambda x, _: x[SITE], [2, 0, 0, 1]),
    "in columns": (lambda x, _: jnp.broadcast_to(x[:, None], (3, 2)) * jnp.ones(2), [[0, 0], [1, 1], [2, 2]]),
    "beside numbers": (lambda x, o: jnp.concatenate([o[:1], x]), [N, 0, 1, 2]),
    "one for all": (lambda x, o: x[1] + o, [1, 1, 1]),
    "looked up": (lambda x, _: jnp.asarray(TABLE)[x.astype(int), 1], [0, 1, 2]),
    "rows looked up": (lambda x, _: jnp.asarray(TABLE)[x.astype(int)], [[0, 0], [1, 1], [2, 2]]),
    "the same twice": (lambda x, _: jnp.sum(jnp.concatenate([x[None], 2.0 * x[None]]), axis=0), [0, 1, 2]),
    "the sum of one": (lambda x, _: jnp.sum(x[:, None], axis=1), [0, 1, 2]),
    "beyond the end": (lambda x, _: x.at[np.array([0, 7])].get(mode="fill", fill_value=2.0), [0, N]),
    "at the end": (lambda x, _: x.at[np.array([0, 7])].get(mode="clip"), [0, 2]),
    "the same wherever": (lambda x, o: jnp.broadcast_to(x[:1], (3,))[o.astype(int)], [0, 0, 0]),
    "not at all": (lambda x, o: 0.0 * o, [N, N, N]),
    "its sum": (lambda x, _: jnp.sum(x), None),
    "sums so far": (lambda x, _: jnp.cumsum(x), None),
    "two": (lambda x, _: x + x[::-1], None),
    "a neighbour in one place": (lambda x, _: jnp.maximum(x, x[np.array([0, 0, 2])]), None),
    "in order": (lambda x, _: jnp.sort(x), None),
    "a product of all": (lambda x, _: jnp.eye(3) @ x, None),
    "wherever another says": (lambda x, o: x[o.astype(int)], None),
    "at a place it says itself": (lambda x, _: x[x.astype(int)], None),
    "through a loop": (lambda x, _: jax.lax.fori_loop(0, 3, lambda i, y: y + 1.0, x), None),
    "what adds up to nothing": (lambda x, _: x + 0.0 * jnp.sum(x), None),
}


@pytest.mark.parametrize("case", READS)
def test_the_place_that_an_entry_reads(case):
    function, expected = READS[case]
    one = jax.ShapeDtypeStruct((3,), np.float64)
    read = places_read(function, one, one)
    assert (read is None) == (expected is None)
    assert expected is None or np.array_equal(read, expected)


def test_of_a_number_and_of_a_table():
    table = jax.ShapeDtypeStruct((3, 2), np.int64)
    assert places_read(lambda x: x + np.arange(2.0), jax.ShapeDtypeStruct((), np.int64)).tolist() == [0, 0]
    assert places_read(lambda x: x.T, table).tolist() == [[0, 2, 4], [1, 3, 5]]
    assert places_read(lambda x: x.max(axis=1), table) is None


@pytest.mark.parametrize("case", [case for case in READS if READS[case][1] is not None and case != "not at all"])
def test_what_is_said_to_be_read_is_all_that_moves_it(case):
    """By moving one entry after the other: a check that knows nothing of operations."""
    function, expected = READS[case]
    at, other = np.array([0.0, 1.0, 2.0]), jnp.array([1.0, 2.0, 0.0])
    with double():
        as_it_is = np.asarray(function(jnp.asarray(at), other))
        for place in range(3):
            moved = np.where(np.arange(3) == place, (at + 1.0) % 3.0, at)
            same = np.asarray(function(jnp.asarray(moved), other)) == as_it_is
            assert np.all(same | (np.array(expected) == place))


BATCHED = jax.lax.GatherDimensionNumbers(
    offset_dims=(),
    collapsed_slice_dims=(1,),
    start_index_map=(1,),
    operand_batching_dims=(0,),
    start_indices_batching_dims=(0,),
)


def own_rows(x, o):
    """The entry x of every row of its own."""
    return jax.lax.gather(o, x.astype(int)[:, None], BATCHED, (1, 1), mode="clip")


ALIKE = {
    "a formula": (lambda x, _: jnp.exp(x) + 2.0, True),
    "with a constant that is even": (lambda x, _: x * np.full(3, 0.3), True),
    "with a constant that is not": (lambda x, _: x * np.array([0.3, 0.3, 0.4]), False),
    "with another": (lambda x, o: x + o[:, 0], False),
    "with one of another": (lambda x, o: x + o[1, 0], True),
    "counted": (lambda x, _: x + jnp.arange(3), False),
    "looked up in a table": (lambda x, _: jnp.asarray(TABLE[:, 1])[x.astype(int)], True),
    "rows of a table": (lambda x, _: jnp.asarray(TABLE)[x.astype(int)], False),
    "looked up in a table of its own": (own_rows, False),
    "rows of a table that is even": (lambda x, _: jnp.broadcast_to(x[:1], (3,))[SITE], True),
    "beyond its end": (lambda x, _: x.at[np.array([0, 7])].get(mode="fill", fill_value=0.0), False),
    "sums": (lambda x, _: jnp.sum(jnp.broadcast_to(x, (4, 3)), axis=0), True),
    "sums so far": (lambda x, _: jnp.cumsum(x), False),
    "side by side": (lambda x, _: jnp.concatenate([x, x]), False),
    "a formula with a rule of its own": (lambda x, _: jax.nn.softplus(x) + jax.nn.relu(x), True),
    "such, with another": (lambda x, o: xlogy(x, o[:, 0]), False),
}


@pytest.mark.parametrize("case", ALIKE)
def test_whether_entries_are_alike(case):
    function, expected = ALIKE[case]
    shapes = jax.ShapeDtypeStruct((3,), np.float64), jax.ShapeDtypeStruct((3, 3), np.float64)
    assert all_alike(function, [True, False], *shapes) == expected
