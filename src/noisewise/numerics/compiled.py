"""Functions compiled once per shape of their arguments, without keeping hold of what they close over."""

import contextvars
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from noisewise.numerics.numpy_programs import in_numpy
from noisewise.numerics.precision import double, placement

ALWAYS = 10
"""What compiling a program takes whatever is in it, in operations."""
PLAINLY = {"xla_cpu_use_fusion_emitters": False}
"""XLA's options for a program of many small steps on the processor, as those of a chain are: without its newer way of
writing loops such a program is compiled in half the time, and runs no slower (benchmarks/first_result.py). Programs
that go through many rows at once are several times as fast with it."""


@dataclass(frozen=True)
class Tally:
    """What this process has compiled so far: operations traced, and seconds, which add up over threads."""

    operations: int = 0
    seconds: float = 0.0

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(self.operations - other.operations, self.seconds - other.seconds)


_tally, _counting = Tally(), threading.Lock()


def tally() -> Tally:
    """What has been compiled until now. For display: nothing may depend on it."""
    return _tally


def _count(operations: int, seconds: float) -> None:
    global _tally
    with _counting:
        _tally = Tally(_tally.operations + operations, _tally.seconds + seconds)


def operations(program: Any) -> int:
    """Steps of a traced program, those of programs within it included."""
    inner = [value for step in program.eqns for value in step.params.values()]
    flat = [part for value in inner for part in (value if isinstance(value, (tuple, list)) else [value])]
    programs = [getattr(part, "jaxpr", part) for part in flat]
    return len(program.eqns) + sum(operations(part) for part in programs if hasattr(part, "eqns"))


class Compiled:
    """`build()` gives a function; it is compiled once per shape of its arguments, and only the program is kept.

    `jax.jit` would keep the traced function, and with it the NumPy arrays the analyst's functions close over: JAX
    remembers such an array in 64 bits, and the analyst's own 32-bit use of it would fail. Called within `double`.
    Threads that ask for one program at the same time wait for the first to compile it. Programs are not pickled.
    A `small` one, of arguments whose first axis is that of rows, is left to NumPy on the CPU where it is no more than
    plain arithmetic, and gives NumPy arrays. One of many small `steps` is compiled `PLAINLY`.
    """

    def __init__(self, build: Callable[[], Callable[..., Any]], small: bool = False, steps: bool = False) -> None:
        self._build, self._small, self._steps = build, small, steps
        self._programs: dict[Any, Any] = {}
        self._lock = threading.RLock()

    def __getstate__(self) -> Any:
        return self._build, self._small, self._steps

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
        plain = self._plain(arguments, leaves, tree)
        if plain is not None:
            return plain
        key = (placement(), tree, *((_shape(leaf), _dtype(leaf)) for leaf in leaves))
        program: Callable[..., Any] = self._once(key, lambda: self._compiled(arguments))
        return program

    def by_blocks(self, blocks: int, *arguments: Any) -> Any:
        """As for the arguments of each block alone, which are equal parts of these: by the same program, the same bits.

        NumPy acts row by row, and may take all of them together.
        """
        leaves, tree = jax.tree.flatten(arguments)
        plain = self._plain(arguments, leaves, tree)
        if plain is not None:
            return plain(*arguments)
        rows = len(leaves[0]) // blocks
        cut = (
            jax.tree.unflatten(tree, [leaf[block * rows : (block + 1) * rows] for leaf in leaves])
            for block in range(blocks)
        )
        results = [jax.tree.map(np.asarray, self(*part)) for part in cut]
        return jax.tree.map(lambda *parts: np.concatenate(parts), *results)

    def plain(self, *arguments: Any) -> Callable[..., Any] | None:
        """The program in NumPy, where it is known already that there is one: it needs no `double`."""
        leaves, tree = jax.tree.flatten(arguments)
        program: Callable[..., Any] | None = None if placement() is not None else self._programs.get(_key(leaves, tree))
        return program

    def _plain(self, arguments: tuple[Any, ...], leaves: list[Any], tree: Any) -> Callable[..., Any] | None:
        """The program in NumPy, for any number of rows; None where it is to be compiled."""
        if not self._small or not leaves or placement() is not None:
            return None
        program: Callable[..., Any] | None = self._once(_key(leaves, tree), lambda: in_numpy(self._build(), arguments))
        return program

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._programs:
            with self._lock:
                if key not in self._programs:
                    self._programs[key] = make()
        return self._programs[key]

    def _compiled(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        start = time.perf_counter()
        traced = jax.jit(self._build()).trace(*arguments)
        program = _made(traced.lower(), PLAINLY if self._steps and placement() is None else {})
        _count(ALWAYS + operations(traced.jaxpr.jaxpr), time.perf_counter() - start)
        return program


def _made(lowered: Any, options: dict[str, Any]) -> Callable[..., Any]:
    """The program, with XLA's `options` where the installed version has them."""
    if options:
        with suppress(jax.errors.JaxRuntimeError):  # one that it has not; any other failure is met again
            program: Callable[..., Any] = lowered.compile(compiler_options=options)
            return program
    plain: Callable[..., Any] = lowered.compile()
    return plain


def _key(leaves: list[Any], tree: Any) -> Any:
    """Of a program for any number of rows."""
    return ("plain", tree, *((_shape(leaf)[1:], _dtype(leaf)) for leaf in leaves))


def _shape(leaf: Any) -> tuple[int, ...]:
    """Of an array, a number, or what stands for one."""
    return leaf.shape if hasattr(leaf, "shape") else np.shape(leaf)


def _dtype(leaf: Any) -> Any:
    """Of an array, NumPy's or JAX's, or of a number."""
    return leaf.dtype if hasattr(leaf, "dtype") else np.result_type(leaf)
