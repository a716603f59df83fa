"""Sums over windows: point by point and by one expression they are the same, and draws invert them."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from noisewise.inference.conditional import sums
from noisewise.numerics import double

ROWS, POINTS, ENTRIES = 40, 23, 3


def tables():
    """Terms of many rows: some points are impossible, one entry is impossible altogether, some rows lie far out."""
    rng = np.random.default_rng(3)
    table = rng.normal(0.0, 3.0, (POINTS, ENTRIES))
    table[rng.random(table.shape) < 0.2] = -np.inf
    table[:, 2] = -np.inf
    share = np.linspace(0.0, 1.0, POINTS)[:, None]
    first, last = rng.normal(0.0, 5.0, (2, ROWS, ENTRIES))
    first[0], last[1] = -2000.0, 3000.0
    return table, share, first, last, rng.random((ROWS, ENTRIES))


def terms_of(table, share, first, last):
    return table + (1.0 - share) * first[:, None] + share * last[:, None]


def test_with_and_without_derivatives_a_tilted_sum_is_the_same():
    *given, _ = tables()
    with double():
        rows = np.asarray(jax.jit(jax.vmap(sums.tilted, in_axes=(None, None, 0, 0)))(*given))
        values, slopes = jax.jit(
            jax.vmap(jax.value_and_grad(lambda *at: sums.tilted(*at)[:2].sum(), (2, 3)), in_axes=(None, None, 0, 0))
        )(*given)
        values, slopes = np.asarray(values), np.asarray(slopes)
    terms = terms_of(*given)[..., :2]
    truth = logsumexp(terms, axis=1)
    assert np.allclose(rows[:, :2], truth, rtol=1e-13)
    assert np.all(rows[:, 2] == -np.inf)
    assert np.allclose(values, truth.sum(axis=1), rtol=1e-13)
    mean = np.sum(given[1] * np.exp(terms - truth[:, None]), axis=1)
    assert np.allclose(slopes[1][:, :2], mean, rtol=1e-11, atol=1e-13)
    assert np.allclose(slopes[0][:, :2], 1.0 - mean, rtol=1e-11, atol=1e-13)


def test_a_draw_is_the_quantile_of_the_terms():
    table, share, first, last, uniform = tables()

    def drawn(first, last, uniform):
        return sums._inverted(*sums._tilted_terms(first, last, (table, share)), (table, share), uniform)

    def from_terms(terms, uniform):
        top = jnp.max(terms, axis=0)
        return sums._inverted(jnp.where(jnp.isfinite(top), top, 0.0), lambda term: term, terms, uniform)

    terms = terms_of(table, share, first, last)
    with double():
        log_sums, places = map(np.asarray, jax.jit(jax.vmap(drawn))(first, last, uniform))
        again = np.asarray(jax.jit(jax.vmap(from_terms))(terms, uniform)[1])
    terms = terms[..., :2]
    truth = logsumexp(terms, axis=1)
    assert np.allclose(log_sums[:, :2], truth, rtol=1e-13)
    passed = np.cumsum(np.exp(terms - truth[:, None]), axis=1)
    expected = np.minimum((passed <= uniform[:, None, :2] * passed[:, -1:]).sum(axis=1), POINTS - 1)
    for found in (places, again):
        assert np.array_equal(found[:, :2], expected)
    assert np.all(np.isfinite(np.take_along_axis(terms, expected[:, None], axis=1)))
    assert len(np.unique(expected)) > POINTS // 2
