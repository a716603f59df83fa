"""Where compiled programs run, and in how many bits: contexts that every piece of work enters anew."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

import jax


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
