"""Functions compiled once per shape of their arguments, without keeping hold of what they close over."""

import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from noisewise.numerics.numpy_programs import in_numpy
from noisewise.numerics.precision import double, placement


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

    def __setstate__(self, state: Any) -> None:
        Compiled.__init__(self, *state)

    def __call__(self, *arguments: Any) -> Any:
        """Run the program for these arguments."""
        return self._program(arguments)(*arguments)

    def prepare(self, *arguments: Any) -> None:
        """Compile for arguments of these shapes in a thread of its own; who calls meanwhile waits for that.

        `jax.ShapeDtypeStruct` will do for an array. What fails here fails again, and is raised, where it is called.
        """
        where = contextvars.copy_context()
        threading.Thread(target=where.run, args=(self._prepared, arguments), name="noisewise-compile").start()

    def _prepared(self, arguments: tuple[Any, ...]) -> None:
        with suppress(Exception), double():
            self._program(arguments)

    def _program(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        leaves, tree = jax.tree.flatten(arguments)
        key = (placement(), tree, *((_shape(leaf), _dtype(leaf)) for leaf in leaves))
        program = self._programs.get(key)
        if program is None:
            with self._lock:
                program = self._programs.get(key)
                if program is None:
                    program = self._programs[key] = self._compiled(arguments)
        return program

    def _compiled(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        function = self._build()
        plain = in_numpy(function, arguments) if self._small and placement() is None else None
        return plain or jax.jit(function).lower(*arguments).compile()


def _shape(leaf: Any) -> tuple[int, ...]:
    """Of an array, a number, or what stands for one."""
    return leaf.shape if hasattr(leaf, "shape") else np.shape(leaf)


def _dtype(leaf: Any) -> Any:
    """Of an array, NumPy's or JAX's, or of a number."""
    return leaf.dtype if hasattr(leaf, "dtype") else np.result_type(leaf)
