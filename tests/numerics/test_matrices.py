"""Operations on many matrices, done a few at a time: the same results, and threads that never wait for each other."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import solve_triangular

from noisewise.numerics import Compiled, double
from noisewise.numerics.matrices import factors_many, few_at_a_time, steps_of

SIZE, ROWS = 5, 6_000


def solved(matrix, right):
    return solve_triangular(matrix, right, lower=True)


def in_a_loop(matrix):
    """Within a loop, and there on one way of two."""

    def step(number, right):
        return jax.lax.cond(number > 0, lambda x: x + solved(matrix, x), lambda x: x, right)

    return jax.lax.fori_loop(0, 3, step, jnp.ones(SIZE))


def until(matrix):
    return jax.lax.while_loop(lambda x: jnp.sum(x) < 9.0, lambda x: x + jnp.abs(solved(matrix, x)), jnp.ones(SIZE))


FUNCTIONS = {
    "a factor": jnp.linalg.cholesky,
    "several": lambda matrix: [jnp.linalg.cholesky(matrix + i * jnp.eye(SIZE)).sum() for i in range(4)],
    "a solution": lambda matrix: solved(matrix, jnp.ones(SIZE)),
    "a determinant": lambda matrix: jnp.linalg.slogdet(matrix)[1],
    "eigenvalues": lambda matrix: jnp.linalg.eigh(matrix)[0],
    "a slope": jax.grad(lambda matrix: jnp.linalg.slogdet(matrix)[1]),
    "a slope of a factor": jax.grad(lambda matrix: jnp.log(jnp.diag(jnp.linalg.cholesky(matrix))).sum()),
    "a product of reflections": lambda matrix: jax.lax.linalg.householder_product(matrix, jnp.diag(matrix) / 100.0),
    "in a loop": in_a_loop,
    "until": until,
}


def matrices(rows=ROWS):
    halves = np.random.default_rng(1).normal(size=(rows, SIZE, SIZE))
    return halves @ halves.transpose(0, 2, 1) + SIZE * np.eye(SIZE)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_few_at_a_time_give_what_all_at_once_give(name):
    many = jax.vmap(FUNCTIONS[name])
    with double():
        traced = jax.jit(many).trace(matrices())
        assert factors_many(traced.jaxpr.jaxpr)
        again = jax.jit(few_at_a_time(traced)).trace(matrices())
        assert not factors_many(again.jaxpr.jaxpr)
        found = jax.tree.map(np.asarray, again.lower().compile()(matrices()))
        few = jax.jit(many)(matrices()[-40:])
    jax.tree.map(lambda ours, one: np.testing.assert_allclose(ours[-40:], one, rtol=1e-12, atol=1e-12), found, few)


def test_few_matrices_are_left_alone():
    with double():
        traced = jax.jit(jax.vmap(FUNCTIONS["several"])).trace(matrices(64))
    assert not factors_many(traced.jaxpr.jaxpr)
    assert "cholesky" in {step.primitive.name for step in steps_of(traced.jaxpr.jaxpr)}


def test_threads_do_not_wait_for_each_other_forever():
    """Four threads, each with four operations on many matrices at once, as where two weigh rows of a proposal."""
    program, rows = Compiled(lambda: jax.vmap(FUNCTIONS["several"])), matrices()

    def work():
        for _ in range(10):
            with double():
                jax.block_until_ready(program(rows))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
