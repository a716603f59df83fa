"""Plain arithmetic by NumPy: the numbers XLA gives, and nothing else taken on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from noisewise.numerics import Compiled, Placement, double, placed
from noisewise.numerics.numpy_programs import fixed_outputs, in_numpy

X = np.array([0.3, -2.5, 0.0, 7.25, np.inf, np.nan])
K = np.array([0, 1, 2, 3, -4, 5])
HAND = np.array([1.0, 2.0, 4.0])

PLAIN = {
    "sum and quotient": lambda x, k: (x + k, x / jnp.sqrt(185.0)),
    "a power": lambda x, k: 92.0 / x**2,
    "a cube and a reciprocal": lambda x, k: x**3 - x**-1,
    "whole numbers": lambda x, k: k * 3 - k,
    "least and largest": lambda x, k: jnp.maximum(x, 0.0) + jnp.minimum(x, 1.0),
    "a root": lambda x, k: jnp.sqrt(x),
    "entries": lambda x, k: x * HAND,
    "a number": lambda x, k: jnp.asarray(3.5),
    "comparisons": lambda x, k: (x > 0.3, x >= 0.3, k < 2, k <= 2, x == 0.0, x != x),
    "truth values": lambda x, k: ((x > 0.0) & (k < 3), (x > 0.0) | ~(k < 3)),
    "numbers alone": lambda x, k: x * ((jnp.sqrt(jnp.asarray(185.0)) * 2.0 + 1.0) / 3.0),
    "one step after the other": lambda x, k: ((x + 1.0) * 2.0 - x, (x * 3.0) * (x * 3.0) + k, -((x - 1.0) * HAND[0])),
    "used twice": lambda x, k: ((y := x + 1.0) * 2.0 - 1.0, y, y * y),
}


@pytest.mark.quick
@pytest.mark.parametrize("function", PLAIN.values(), ids=PLAIN.keys())
def test_the_same_numbers_as_compiled(function):
    with double():
        mapped = jax.vmap(function)
        expected = jax.tree.map(np.asarray, jax.jit(mapped)(X, K))
        given = X.copy(), K.copy()
        found = in_numpy(mapped, (X, K))(*given)
    np.testing.assert_array_equal(given, (X, K))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(one, np.ndarray)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)


OTHER = {
    "a function that is not correctly rounded": lambda x, k: jnp.exp(x),
    "whole quotients": lambda x, k: jax.lax.div(k, 2),
    "a program within": lambda x, k: jnp.where(x > 0, x, 0.0),
    "a sum over entries": lambda x, k: jnp.sum(x * HAND),
    "a rounding to 32 bits": lambda x, k: x.astype(jnp.float32),
    "many steps": lambda x, k: sum((x + number for number in range(20)), start=x),
}


@pytest.mark.parametrize("function", OTHER.values(), ids=OTHER.keys())
def test_all_else_is_left_to_the_compiler(function):
    with double():
        assert in_numpy(jax.vmap(function), (X, K)) is None


def test_arrays_that_are_changed_later_change_nothing():
    hand = np.array([1.0, 2.0])
    with double():
        program = in_numpy(jax.vmap(lambda x: x * hand), (X,))
    before = program(X)
    hand[:] = 7.0
    np.testing.assert_array_equal(program(X), before)


def test_checks_of_parameters_are_left_out():
    def checked(x):
        jnp.exp(x)
        return x + 1.0

    with double():
        assert in_numpy(jax.vmap(checked), (X,)) is not None


def test_small_programs_run_in_numpy_on_the_cpu_only():
    program = Compiled(lambda: jax.vmap(lambda x: x + 1.0), small=True)
    with double():
        assert isinstance(program(X), np.ndarray)
        with placed(Placement(jax.devices()[0])):
            assert isinstance(program(X), jax.Array)
        assert isinstance(Compiled(lambda: jax.vmap(lambda x: x + 1.0))(X), jax.Array)


def test_a_program_can_be_compiled_ahead(monkeypatch):
    """In another thread, once, for the shapes that it will be called with; what fails there is raised by the call."""
    program, built = Compiled(lambda: built.append(0) or jax.vmap(jnp.exp)), []
    with double():
        program.prepare(jax.ShapeDtypeStruct((6,), np.float64))
        np.testing.assert_allclose(program(X), np.exp(X))
        assert len(built) == 1
        failing = Compiled(lambda: 1 / 0)
        failing.prepare(X)
        with pytest.raises(ZeroDivisionError):
            failing(X)


def test_outputs_that_depend_on_nothing_are_computed_and_others_are_not():
    """By NumPy, and by JAX where that has more to say (a logarithm, a gamma function, a program within)."""

    def function(x):
        return (
            x * 0.0,
            jnp.sqrt(jnp.asarray(2.0)) * HAND,
            jnp.log(jnp.asarray(3.0)),
            jnp.where(HAND > 1.0, HAND, 0.0),
            7,
        )

    with double():
        moving, root, log, chosen, number = fixed_outputs(function, jax.ShapeDtypeStruct((2,), float))
    assert moving is None  # a product with zero still names its argument
    np.testing.assert_array_equal(root, np.sqrt(2.0) * HAND)
    np.testing.assert_allclose(log, np.log(3.0), rtol=1e-15)
    np.testing.assert_array_equal(chosen, [0.0, 2.0, 4.0])
    assert number == 7


def test_what_moving_outputs_need_is_not_computed():
    def function(x):
        jax.debug.callback(lambda: pytest.fail("a step of the other output was computed"))
        return jnp.exp(x), jnp.asarray(1.0) + 1.0

    with double():
        assert fixed_outputs(function, jax.ShapeDtypeStruct((), float)) == [None, 2.0]


@jax.custom_vjp
def halved(x):
    return 0.5 * x


halved.defvjp(lambda x: (halved(x), None), lambda _, slope: (0.5 * slope,))


def test_numbers_that_only_jax_can_make_are_fixed_too():
    """Functions with derivatives of their own, random numbers of a fixed key, a division that overflows in silence."""

    def function(x):
        design = jax.random.normal(jax.random.key(3), (2,))
        return jax.nn.relu(-HAND), halved(HAND), jax.scipy.special.xlogy(HAND, 2.0), design, jnp.asarray(HAND) / 0.0, x

    with double():
        fixed = fixed_outputs(function, jax.ShapeDtypeStruct((), float))
        expected = [np.asarray(value) for value in function(0.0)]
    assert fixed.pop() is None
    for value, right in zip(fixed, expected, strict=False):
        np.testing.assert_allclose(value, right, rtol=1e-15)


def test_within_a_compiled_function_each_output_is_looked_at_by_itself():
    """Twice the same function, as JAX traces it once: the first call is fixed, of the second one output is."""
    both = jax.jit(lambda x, y: (x + 1.0, y * 2.0))

    def function(x):
        return (*both(jnp.asarray(3.0), HAND), *both(x, HAND + 1.0))

    with double():
        first, second, third, fourth = fixed_outputs(function, jax.ShapeDtypeStruct((), float))
    assert first == 4.0
    assert third is None
    np.testing.assert_array_equal(second, 2.0 * HAND)
    np.testing.assert_array_equal(fourth, 2.0 * (HAND + 1.0))
