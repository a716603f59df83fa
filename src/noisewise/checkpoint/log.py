"""A run's view of its checkpoint: values under keys, both those computed before and those that the run adds.

A checkpoint decides nothing: the value under a key is the one that would be computed again, bit by bit.
See docs/checkpoints.md.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisewise import engine as engines
from noisewise.checkpoint.file import KINDS, Journal, Key, array_forms, bytes_of, foreign, pack
from noisewise.engine import Engine, Source, Task
from noisewise.errors import InputError
from noisewise.numerics import Array

EVERY = 2.0
"""Seconds between two states of one chain, at least."""
RATE = 2.0**16
"""Bytes a second that the states of one chain may take, on average."""
CHANGED = "the model's functions or data give other numbers than at its beginning, or the processor is of another kind"


class Log:
    """Values under keys, within a scope. Without a journal, the default, it holds nothing and keeps nothing."""

    def __init__(self, journal: Journal | None = None, scope: Key = ()) -> None:
        self.journal, self.scope = journal, scope
        self._next: float | None = None

    def __bool__(self) -> bool:
        return self.journal is not None

    def __reduce__(self) -> Any:
        """Work that is sent elsewhere keeps nothing there; its result is kept here."""
        return Log, ()

    def within(self, *scope: str | int) -> "Log":
        """The part of the log under these keys."""
        return Log(self.journal, (*self.scope, *scope))

    def has(self, *key: str | int) -> bool:
        """Whether there is a value under `key`."""
        return self.journal is not None and self.journal.has((*self.scope, *key))

    def below(self, *key: str | int) -> set[Any]:
        """What follows `key` in the longer keys that begin with it."""
        start = (*self.scope, *key)
        keys = self.journal.offsets if self.journal is not None else ()
        return {longer[len(start)] for longer in keys if longer[: len(start)] == start and len(longer) > len(start)}

    def get(self, *key: str | int, classes: Sequence[type] = ()) -> Any:
        """The value last put under `key`; None where there is none."""
        return self.journal.read((*self.scope, *key), classes) if self.journal and self.has(*key) else None

    def put(self, value: Any, *key: str | int, needed: bool = False) -> bool:
        """Keep a value; returns whether it is kept. One that is `needed` is written before any later one."""
        return self.journal is not None and self.journal.write((*self.scope, *key), value, needed=needed)

    def forget(self, *key: str | int) -> None:
        """Drop a key from the index: its value is not asked for again in this run, and the index stays small."""
        if self.journal is not None:
            self.journal.offsets.pop((*self.scope, *key), None)

    # States, each instead of the one before ----------------------------------------------------------------

    def due(self) -> bool:
        """Whether it is time to save the state again: seldom if states are large, so that files stay moderate."""
        if self.journal is None:
            return False
        now = time.monotonic()
        if self._next is None:
            self._next = now + EVERY
        return now >= self._next

    def save(self, value: dict[str, Any], *key: str | int) -> bool:
        """Keep a state; returns whether it is kept. Its "rows", the draws since the last, do not count as its size."""
        if self.journal is None:
            return False
        saved = self.put(value, *key)
        arrays: list[Array] = []
        pack({name: part for name, part in value.items() if name != "rows"}, arrays)
        self._next = time.monotonic() + max(EVERY, sum(array.nbytes for array in arrays) / RATE)
        return saved

    # Checks ------------------------------------------------------------------------------------------------

    def same(self, value: Any, *key: str | int, why: str = CHANGED) -> None:
        """Refuse to go on with a checkpoint begun with another value; only a fingerprint of the value is kept."""
        if self.journal is None:
            return
        current = fingerprint(value)
        if not self.has(*key):
            self.put(current, *key, needed=True)
        elif self.get(*key) != current:
            raise self.refusal(why)

    def agree(self, name: str, value: int) -> None:
        """Refuse to go on with a checkpoint that was begun with another value of a plain setting."""
        if self.journal is None:
            return
        if not self.has("agreed", name):
            self.put(value, "agreed", name, needed=True)
        agreed = self.get("agreed", name)
        if agreed is not None and agreed != value:
            raise self.refusal(f"{name} is {agreed} there and {value} here")

    def confirm(self, value: Any, *key: str | int, classes: Sequence[type] = ()) -> None:
        """Refuse to go on where a value, computed again, is not the one in the log."""
        if fingerprint(value) != fingerprint(self.get(*key, classes=classes)):
            raise self.refusal(CHANGED)

    def refusal(self, why: str) -> InputError:
        """An error that says why the checkpoint does not belong to this run."""
        assert self.journal is not None
        return foreign(self.journal.who, self.journal.path, why)

    # Work --------------------------------------------------------------------------------------------------

    def gather(
        self,
        engine: Engine,
        works: Sequence[Callable[[Callable[[], None]], Any]],
        tick: Callable[[], None],
        *key: str | int,
        classes: Sequence[type] = (),
        portable: bool = False,
        checked: bool = False,
    ) -> list[Any]:
        """`engine.gather`, with every result kept as it comes, and none computed that the log has already.

        With `checked`, the first result in the log is computed again, before all others, and must come out the same.
        """
        if self.journal is None:
            return engines.gather(engine, works, tick, portable=portable)
        results = [self.get(*key, number, classes=classes) for number in range(len(works))]
        missing = [number for number in range(len(works)) if not self.has(*key, number)]
        if checked and len(missing) < len(works):
            first = next(number for number in range(len(works)) if number not in missing)
            repeated = engines.gather(engine, [works[first]], tick, portable=portable)
            self.confirm(repeated[0], *key, first, classes=classes)
        if missing:
            keeping = _Keeping(engine, lambda index, value: self.put(value, *key, missing[index]))
            computed = engines.gather(keeping, [works[number] for number in missing], tick, portable=portable)
            for number, value in zip(missing, computed, strict=True):
                results[number] = value
        return results


NOTHING = Log()
"""The log of a run without a checkpoint."""


def attributes_of(owner: Any) -> dict[str, Any]:
    """Those attributes of an object that are plain data: numbers, arrays, words, and collections of these."""
    return {name: value for name, value in vars(owner).items() if _plain(value)}


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_plain(part) for part in value)
    if isinstance(value, dict):
        return all(isinstance(name, str) and _plain(part) for name, part in value.items())
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in KINDS
    return value is None or isinstance(value, (bool, int, float, str))


def fingerprint(value: Any) -> str:
    """SHA-256 of a value, numbers bit by bit."""
    arrays: list[Array] = []
    packed = pack(value, arrays)
    digest = hashlib.sha256(json.dumps([packed, array_forms(arrays)], sort_keys=True).encode())
    for part in bytes_of(arrays):
        digest.update(part)
    return digest.hexdigest()


@dataclass(frozen=True)
class _Keeping(Engine):
    """An engine that shows every result, with its number in the order of tasks, before it hands it on."""

    engine: Engine
    keep: Callable[[int, Any], Any]

    @property
    def kind(self) -> str:
        return self.engine.kind

    def execute(self, source: Source) -> None:
        self.engine.execute(_Watched(source, self.keep))


class _Watched:
    """A source whose results are shown to `keep` before its own tasks see them."""

    def __init__(self, source: Source, keep: Callable[[int, Any], Any]) -> None:
        self.source, self.keep, self.launched = source, keep, 0

    def next_task(self, most: int) -> Task | None:
        task = self.source.next_task(most)
        if task is None:
            return None
        number, done = self.launched, task.done
        self.launched += 1

        def show(result: Any) -> None:
            self.keep(number, result)
            done(result)

        return replace(task, done=show)

    @property
    def finished(self) -> bool:
        return self.source.finished

    def tick(self) -> None:
        self.source.tick()
