"""The seam between NumPy and JAX: one namespace for both, and 64-bit JAX on the CPU as a context."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import scipy.special

from noisewise.arithmetic import in_numpy


def namespace(*arguments: Any) -> Any:
    """`jax.numpy` if any argument (or any leaf of one) is a JAX array or tracer, else `numpy`."""
    return jnp if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(arguments)) else np


def special(*arguments: Any) -> Any:
    """The special functions (`log_ndtr`, `gammaln`, `betainc` ...) that go with `namespace`."""
    return jax.scipy.special if namespace(*arguments) is jnp else scipy.special


def log_ndtr(z: Any) -> Any:
    """log of the standard normal distribution function, to full precision in NumPy and JAX alike.

    JAX's own drops to eight digits twenty standard deviations out. There, the asymptotic series
    -z^2/2 - log(-z sqrt(2 pi)) + log(1 - 1/z^2 + 3/z^4 - ...): at z = -14 its twelfth term is below 1e-14.
    """
    if namespace(z) is np:
        return scipy.special.log_ndtr(z)
    far = z < -14.0
    x = jnp.where(far, z, -14.0)
    inverse = 1.0 / (x * x)
    term = total = jnp.ones_like(x)
    for n in range(1, 13):
        term = -term * (2 * n - 1) * inverse
        total = total + term
    series = -0.5 * x * x - jnp.log(-x) - 0.9189385332046727 + jnp.log(total)
    return jnp.where(far, series, jax.scipy.special.log_ndtr(jnp.where(far, -14.0, z)))


class Compiled:
    """`build()` gives a function; it is compiled once per shape of its arguments, and only the program is kept.

    `jax.jit` would keep the traced function, and with it the NumPy arrays the analyst's functions close over: JAX
    remembers such an array in 64 bits, and the analyst's own 32-bit use of it would fail. Called within `double`.
    Threads that ask for one program at the same time wait for the first to compile it. Programs are not pickled.
    A `small` one that is no more than plain arithmetic is left to NumPy on the CPU, and gives NumPy arrays.
    """

    def __init__(self, build: Callable[[], Callable[..., Any]], small: bool = False) -> None:
        self._build, self._small = build, small
        self._programs: dict[Any, Any] = {}
        self._lock = threading.RLock()

    def __getstate__(self) -> Any:
        return self._build, self._small

    def __setstate__(self, made_with: Any) -> None:
        Compiled.__init__(self, *made_with)

    def __call__(self, *arguments: Any) -> Any:
        """Run the program for these arguments."""
        leaves, tree = jax.tree.flatten(arguments)
        key = (placement(), tree, *((np.shape(leaf), np.result_type(leaf)) for leaf in leaves))
        program = self._programs.get(key)
        if program is None:
            with self._lock:
                program = self._programs.get(key)
                if program is None:
                    program = self._programs[key] = self._made(arguments)
        return program(*arguments)

    def _made(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        function = self._build()
        plain = in_numpy(function, arguments) if self._small and placement() is None else None
        return plain or jax.jit(function).lower(*arguments).compile()


@dataclass(frozen=True)
class Placement:
    """An accelerator that compiled programs run on, and the precision of what is simulated there."""

    device: jax.Device
    single: bool = False


_placement: ContextVar[Placement | None] = ContextVar("placement", default=None)


def placement() -> Placement | None:
    """The accelerator of the calling thread's work; None for the CPU."""
    return _placement.get()


@contextmanager
def placed(where: Placement | None) -> Iterator[None]:
    """Run what is compiled inside on an accelerator, in the calling thread only."""
    token = _placement.set(where)
    try:
        yield
    finally:
        _placement.reset(token)


@cache
def _cpu() -> jax.Device:
    return jax.local_devices(backend="cpu")[0]


@contextmanager
def double() -> Iterator[None]:
    """64-bit JAX on the CPU, or on the accelerator the work is placed on; for the calling thread only.

    Threads do not inherit JAX's configuration, so every piece of work enters this anew.
    """
    where = _placement.get()
    with jax.enable_x64(True), jax.default_device(_cpu() if where is None else where.device):
        yield


@contextmanager
def single() -> Iterator[None]:
    """As `double`, in 32 bits."""
    where = _placement.get()
    with jax.enable_x64(False), jax.default_device(_cpu() if where is None else where.device):
        yield
