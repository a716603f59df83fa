"""Noise drawn in JAX, by the laws that mechanisms state: what `Mechanism.sample` does in NumPy, traceable.

Additive noise is drawn by inversion of its distribution function, which every mechanism with tractable intervals has.
What happens to a value afterwards is left to the wrappers' own functions. Never for publishing (see
`Mechanism.sample`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.mechanisms import Clamped, Exact, Gaussian, Laplace, Mechanism, Product, RandomizedResponse
from noisewise.mechanisms.additive import Additive, Lattice
from noisewise.mechanisms.processed import Processed
from noisewise.mechanisms.thresholded import Thresholded
from noisewise.mechanisms.wrapper import Wrapper

DOUBLINGS = 500
"""The size of noise is looked for between 2^-DOUBLINGS and 2^DOUBLINGS units, in 64 bits."""


def unfit(mechanism: Mechanism) -> str | None:
    """Why its noise cannot be drawn here, or None."""
    if isinstance(mechanism, Product):
        return next((reason for part in mechanism.parts if (reason := unfit(part))), None)
    if isinstance(mechanism, Wrapper):
        return unfit(mechanism.base)
    if isinstance(mechanism, Exact) or (isinstance(mechanism, RandomizedResponse) and mechanism.on == "records"):
        return None
    if isinstance(mechanism, Additive) and not mechanism.event_dim and mechanism.has_intervals:
        return None
    return f"{type(mechanism).__name__} has no noise that can be drawn in JAX"


@jax.jit
def released(key: Any, mechanism: Mechanism, confidential: Any) -> Any:
    """A simulated release of each confidential value."""
    confidential = jnp.asarray(confidential)
    if isinstance(mechanism, Product):
        keys = jax.random.split(key, len(mechanism.parts))
        columns = zip(keys, mechanism.parts, jnp.moveaxis(confidential, -1, 0), strict=True)
        return jnp.stack([released(own, part, column) for own, part, column in columns], axis=-1)
    if isinstance(mechanism, Clamped):
        return released(key, mechanism.base, mechanism.clamp(confidential))
    if isinstance(mechanism, Processed):
        value = mechanism.apply(released(key, mechanism.base, confidential) * 1.0)
        absent = isinstance(mechanism, Thresholded) and mechanism.absent_when_zero
        return jnp.where(confidential == 0, jnp.nan, value) if absent else value
    if isinstance(mechanism, RandomizedResponse):
        with np.errstate(divide="ignore"):
            logits = jnp.asarray(np.log(np.array(mechanism.channel)))
        return jax.random.categorical(key, logits[confidential.astype(int)])
    if isinstance(mechanism, Additive):
        return confidential + noise(key, mechanism, confidential.shape)
    return confidential


def noise(key: Any, mechanism: Additive, shape: tuple[int, ...]) -> Any:
    """Independent additive noise: its size by inversion of P(noise <= -size), its sign by a fair coin.

    Zero on the integers has one half of its probability with either sign.
    """
    dtype = jnp.result_type(float)
    if isinstance(mechanism, Gaussian):
        return mechanism.scale * jax.random.normal(key, shape, dtype)
    if isinstance(mechanism, Laplace):
        return mechanism.scale * jax.random.laplace(key, shape, dtype)
    first, second = jax.random.split(key)
    uniform = jax.random.uniform(first, shape, dtype, minval=jnp.finfo(dtype).tiny)
    log_tail = jnp.log(uniform) - jnp.log(2.0)
    size = _whole_size(mechanism, log_tail) if isinstance(mechanism, Lattice) else _size(mechanism, log_tail)
    return jnp.where(jax.random.bernoulli(second, shape=shape), size, -size)


def _size(mechanism: Additive, log_tail: Any) -> Any:
    """The size that noise exceeds on one side with a given probability: by halving its logarithm, then itself."""
    unit = jnp.asarray(getattr(mechanism, mechanism.unit) if mechanism.unit else 1.0)
    most = DOUBLINGS if log_tail.dtype == jnp.float64 else 100

    def within(size: Any) -> Any:
        """Whether no more probability lies beyond `size` than is wanted."""
        return mechanism.noise_log_cdf(-size) <= log_tail

    start = jnp.full(log_tail.shape, -1.0 * most), jnp.full(log_tail.shape, 1.0 * most)
    _, power = _halved(lambda power: within(unit * 2.0**power), *start, 11, whole=True)
    high = unit * 2.0**power
    low, high = _halved(within, 0.5 * high, high, 54)
    return 0.5 * (low + high)


def _whole_size(mechanism: Additive, log_tail: Any) -> Any:
    """The least whole k with P(noise <= -k - 1) below the given probability: by doubling and halving."""

    def within(size: Any) -> Any:
        return mechanism.noise_log_cdf(-size - 1.0) < log_tail

    def double(_: Any, high: Any) -> Any:
        return jnp.where(within(high), high, 2.0 * high + 1.0)

    high = jax.lax.fori_loop(0, 40, double, jnp.zeros(log_tail.shape))

    return _halved(within, jnp.full(log_tail.shape, -1.0), high, 42, whole=True)[1].astype(int)


def _halved(within: Callable[[Any], Any], low: Any, high: Any, times: int, *, whole: bool = False) -> Any:
    """Ends between which `within` begins to hold, after so many halvings; as whole numbers where `whole`."""

    def halve(_: Any, ends: Any) -> Any:
        low, high = ends
        middle = jnp.floor(0.5 * (low + high)) if whole else 0.5 * (low + high)
        enough = within(middle)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    return jax.lax.fori_loop(0, times, halve, (low, high))
