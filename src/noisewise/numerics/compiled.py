"""Functions compiled once per shape of their arguments, without keeping hold of what they close over."""

import contextvars
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from noisewise.numerics.matrices import WAITS, factors_many, few_at_a_time, steps_of
from noisewise.numerics.numpy_programs import in_numpy
from noisewise.numerics.precision import double, placement

NO_OPTIONS: Mapping[str, Any] = {}
ALWAYS = 10
"""Fixed cost of compiling a program, in operations."""
PLAINLY = {"xla_cpu_use_fusion_emitters": False}
"""XLA's options for a program of many small steps on the processor, as those of a chain are: without its newer way of
writing loops such a program is compiled in half the time, and runs no slower (benchmarks/first_result.py). Programs
that go through many rows at once are several times as fast with it."""
AT_ONCE = PLAINLY | {"xla_backend_optimization_level": 0}
"""For a program that is run a few times, on few numbers: compiled in a quarter of the time, and hardly optimised."""


@dataclass(frozen=True)
class Tally:
    """What this process has compiled so far: operations traced, and seconds, which add up over threads."""

    operations: int = 0
    seconds: float = 0.0

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(self.operations - other.operations, self.seconds - other.seconds)


_tally, _counting = Tally(), threading.Lock()
_looking = contextvars.ContextVar("looking", default=False)


@contextmanager
def looking() -> Iterator[None]:
    """Within it, missing programs are compiled `AT_ONCE`: for a look at a few rows, which will not come again.

    They are kept apart from programs of the same shapes that run often.
    """
    token = _looking.set(True)
    try:
        yield
    finally:
        _looking.reset(token)


def tally() -> Tally:
    """What has been compiled until now. For display: nothing may depend on it."""
    return _tally


def _count(operations: int, seconds: float) -> None:
    global _tally
    with _counting:
        _tally = Tally(_tally.operations + operations, _tally.seconds + seconds)


def operations(program: Any) -> int:
    """Steps of a traced program, those of programs within it included."""
    return sum(1 for _ in steps_of(program))


class Compiled:
    """`build()` gives a function; it is compiled once per shape of its arguments, and only the program is kept.

    `jax.jit` would keep the traced function, and with it the NumPy arrays the analyst's functions close over: JAX
    remembers such an array in 64 bits, and the analyst's own 32-bit use of it would fail. Call it within `double`.
    Threads that ask for one program at the same time wait for the first to compile it. Programs are not pickled.
    On the CPU, a `small` function that is plain arithmetic is run by NumPy instead, and gives NumPy arrays; the first
    axis of its arguments must be that of rows. `options` are XLA's, on the processor: `PLAINLY` or `AT_ONCE`.
    """

    def __init__(
        self, build: Callable[[], Callable[..., Any]], small: bool = False, options: Mapping[str, Any] = NO_OPTIONS
    ) -> None:
        self._build, self._small, self._options = build, small, options
        self._programs: dict[Any, Any] = {}
        self._traces: dict[Any, Any] = {}
        self._outputs: dict[Any, Any] = {}
        self._lock = threading.RLock()

    def __getstate__(self) -> Any:
        return self._build, self._small, self._options

    def __setstate__(self, state: Any) -> None:
        Compiled.__init__(self, *state)

    def __call__(self, *arguments: Any) -> Any:
        """Run the program for these arguments."""
        return self._program(arguments)(*arguments)

    def prepare(self, *arguments: Any, after: threading.Event | None = None) -> threading.Event:
        """Compile for arguments of these shapes in a thread of its own; a call meanwhile waits for it.

        `jax.ShapeDtypeStruct` will do for an array. An error here is dropped: the call meets it again, and raises it.
        The event is set when only XLA's part is left. Until then the interpreter is busy, and a second program would
        only delay the first: give the event as its `after`.
        """
        where, handed_over = contextvars.copy_context(), threading.Event()
        given = (arguments, after, handed_over)
        threading.Thread(target=where.run, args=(self._prepared, *given), name="noisewise-compile").start()
        return handed_over

    def _prepared(
        self, arguments: tuple[Any, ...], after: threading.Event | None, handed_over: threading.Event
    ) -> None:
        _looking.set(False)  # in this thread's own context: what is prepared will run often
        try:
            with (
                suppress(Exception),
                self._lock,
                double(),
            ):  # a call meanwhile waits too, and does not compile before `after`
                if after is not None:
                    after.wait()
                self._program(arguments, handed_over)
        finally:
            handed_over.set()

    def shapes(self, *arguments: Any) -> Any:
        """Shapes and types of the results for arguments of these shapes; later compilation uses the same trace."""
        key = self._key(*jax.tree.flatten(arguments))
        with self._lock:
            if key not in self._outputs:
                traced = jax.jit(self._build()).trace(*arguments)
                if key not in self._programs:
                    self._traces[key] = traced
                shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), traced.out_info)
                self._outputs[key] = shapes
            return self._outputs[key]

    def _program(self, arguments: tuple[Any, ...], handed_over: threading.Event | None = None) -> Callable[..., Any]:
        leaves, tree = jax.tree.flatten(arguments)
        plain = self._plain(arguments, leaves, tree)
        if plain is not None:
            return plain
        key = self._key(leaves, tree)
        program: Callable[..., Any] = self._once(key, lambda: self._compiled(arguments, key, handed_over))
        return program

    @staticmethod
    def _key(leaves: list[Any], tree: Any) -> Any:
        return (placement(), _looking.get(), tree, *map(_form, leaves))

    def by_blocks(self, blocks: int, *arguments: Any) -> Any:
        """The results of `blocks` equal parts of the arguments, joined: the same bits as for each part alone.

        A compiled program is run part by part. NumPy acts row by row, and takes all parts together.
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
        """The program in NumPy if it has been made already, else None; it needs no `double`."""
        leaves, tree = jax.tree.flatten(arguments)
        here = placement() is None
        program: Callable[..., Any] | None = self._programs.get(_plain_key(leaves, tree)) if here else None
        return program

    def _plain(self, arguments: tuple[Any, ...], leaves: list[Any], tree: Any) -> Callable[..., Any] | None:
        """The program in NumPy, for any number of rows; None where it is to be compiled."""
        if not self._small or not leaves or placement() is not None:
            return None
        key = _plain_key(leaves, tree)
        program: Callable[..., Any] | None = self._once(key, lambda: in_numpy(self._build(), arguments))
        return program

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._programs:
            with self._lock:
                if key not in self._programs:
                    self._programs[key] = make()
        return self._programs[key]

    def _compiled(
        self, arguments: tuple[Any, ...], key: Any, handed_over: threading.Event | None
    ) -> Callable[..., Any]:
        start = time.perf_counter()
        traced = self._traces.pop(key, None)
        if traced is None:
            traced = jax.jit(self._build()).trace(*arguments)
        if WAITS and placement() is None and factors_many(traced.jaxpr.jaxpr):
            traced = jax.jit(few_at_a_time(traced)).trace(*arguments)
        lowered = traced.lower()
        if handed_over is not None:
            handed_over.set()
        options = AT_ONCE if _looking.get() else self._options
        program = _made(lowered, options if placement() is None else NO_OPTIONS)
        _count(ALWAYS + operations(traced.jaxpr.jaxpr), time.perf_counter() - start)
        return program


def _made(lowered: Any, options: Mapping[str, Any]) -> Callable[..., Any]:
    """The program, with as much of XLA's `options` as the installed version knows: all, only `PLAINLY`, or none."""
    for known in [options] + [PLAINLY] * (len(options) > len(PLAINLY)) if options else []:
        with suppress(jax.errors.JaxRuntimeError):  # an unknown option; any other failure is met again
            program: Callable[..., Any] = lowered.compile(compiler_options=dict(known))
            return program
    plain: Callable[..., Any] = lowered.compile()
    return plain


def _plain_key(leaves: list[Any], tree: Any) -> Any:
    """The key of a program in NumPy, which serves any number of rows."""
    return ("plain", tree, *((shape[1:], dtype) for shape, dtype in map(_form, leaves)))


def _form(leaf: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and type together: asked for at every call of a program."""
    try:
        return leaf.shape, leaf.dtype
    except AttributeError:
        return np.shape(leaf), np.result_type(leaf)
