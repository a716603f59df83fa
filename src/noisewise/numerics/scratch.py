"""Memory that a thread uses again and again: asking the system for it anew costs more than simple arithmetic on it."""

import math
import threading
from typing import Any

import numpy as np

from noisewise.numerics.namespaces import Array

MOST_SHAPES = 256
"""Shapes remembered at a time."""


class Scratch(threading.local):
    """Arrays by name, each thread's own. An array asked for under a name overwrites the one before."""

    def __init__(self) -> None:
        self._memory: dict[Any, Array] = {}
        self._arrays: dict[Any, Array] = {}

    def array(self, name: Any, shape: tuple[int, ...], kind: Any) -> Array:
        """An array of this shape and type with arbitrary contents."""
        array = self._arrays.get((name, shape, kind))
        return self._new(name, shape, kind) if array is None else array

    def _new(self, name: Any, shape: tuple[int, ...], kind: Any) -> Array:
        size = math.prod(shape)
        memory = self._memory.get((name, kind))
        if memory is None or len(memory) < size:
            self._memory[name, kind] = memory = np.empty(size, kind)
            self._arrays = {key: array for key, array in self._arrays.items() if (key[0], key[2]) != (name, kind)}
        if len(self._arrays) > MOST_SHAPES:
            self._arrays.clear()
        self._arrays[name, shape, kind] = array = memory[:size].reshape(shape)
        return array
