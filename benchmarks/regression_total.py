"""Regression from nine noisy cross-products of 100 clamped records: the problem, and importance sampling by hand.

Records are (x1, x2, y) with y = b0 + b1 x1 + b2 x2 + noise, each clamped to [-1, 1]; the sums of x1, x2, x1^2, x2^2,
x1 x2, y, x1 y, x2 y and y^2 are released with Laplace noise of scale 1.3. The release was simulated, and the spread
of the records chosen so that Algorithm 1 accepts about 4 proposals in a million.
"""

from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import noisewise as nw

N, SCALE, SPREAD, PRIOR = 100, 1.3, 0.27, 0.5
RELEASED = np.array([-0.27, 0.31, 6.72, 6.29, 0.6, 6.8, 3.53, -1.5, 11.64])
COEFFICIENTS = ("b0", "b1", "b2")
CHUNK = 256
"""Rows at a time: three fields of 100 records each stay in the processor's cache."""


def problem():
    """The model and the release."""

    def products(x1, x2, y):
        x1, x2, y = (jnp.clip(value, -1.0, 1.0) for value in (x1, x2, y))
        return jnp.stack([x1, x2, x1 * x1, x2 * x2, x1 * x2, y, x1 * y, x2 * y, y * y])

    model = nw.Model(
        prior={name: dist.Normal(0.0, PRIOR) for name in COEFFICIENTS},
        statistics={
            "sums": nw.Total(
                record={
                    "x1": dist.Normal(0.0, SPREAD),
                    "x2": dist.Normal(0.0, SPREAD),
                    "y": lambda x1, x2, b0, b1, b2: dist.Normal(b0 + b1 * x1 + b2 * x2, SPREAD),
                },
                contribution=products,
                n=N,
            )
        },
    )
    return model, nw.Release(sums=nw.Laplace(scale=SCALE).released(RELEASED))


def block(rng, rows):
    """Coefficients from the prior, and log eta up to a constant."""
    b = PRIOR * rng.standard_normal((rows, 3))
    x1 = SPREAD * rng.standard_normal((rows, N))
    x2 = SPREAD * rng.standard_normal((rows, N))
    y = SPREAD * rng.standard_normal((rows, N))
    y += b[:, :1]
    y += b[:, 1:2] * x1
    y += b[:, 2:] * x2
    for values in (x1, x2, y):
        np.clip(values, -1.0, 1.0, out=values)
    pairs = ((x1, x1), (x2, x2), (x1, x2), (x1, y), (x2, y), (y, y))
    s11, s22, s12, s1y, s2y, syy = (np.einsum("ij,ij->i", left, right) for left, right in pairs)
    sums = [x1.sum(axis=1), x2.sum(axis=1), s11, s22, s12, y.sum(axis=1), s1y, s2y, syy]
    return b, -sum(np.abs(released - s) for released, s in zip(RELEASED, sums, strict=True)) / SCALE


def handwritten(draws, seed, workers):
    """Importance sampling from the prior in chunked, threaded NumPy: (draws, 3) coefficients and their log weights."""
    blocks = -(-draws // CHUNK)
    b, log_weights = np.empty((blocks * CHUNK, 3)), np.empty(blocks * CHUNK)

    def work(worker):
        rng = np.random.default_rng([seed, worker])
        for number in range(worker, blocks, workers):
            rows = slice(number * CHUNK, (number + 1) * CHUNK)
            b[rows], log_weights[rows] = block(rng, CHUNK)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    return b[:draws], log_weights[:draws]


def estimate(b, log_weights):
    """Weighted means of the coefficients."""
    weights = np.exp(log_weights - log_weights.max())
    return weights @ b / weights.sum()
