"""How to find a failure again: the random stream behind it, and what a thread that does not return is doing."""

import sys
from functools import partial
from typing import Any

import numpy as np

from noisewise.errors import NoisewiseError

PATIENCE = 60.0
"""Seconds without a sign of life before a block is reported."""


def origin(work: Any) -> str:
    """The random stream a piece of work draws from, in words; "" where none is among its arguments."""
    pending = [work]
    while pending:
        part = pending.pop()
        if isinstance(part, np.random.SeedSequence):
            numbers = ", ".join(str(int(number)) for number in part.spawn_key)
            return f"seed {part.entropy}, block ({numbers}) as purpose, stream and number"
        if isinstance(part, partial):
            pending += [part.func, *part.args, *part.keywords.values()]
    return ""


def located(error: Exception, work: Any) -> Exception:
    """`error` with the random stream that reproduces it, unless it has been named before."""
    if getattr(error, "noisewise_located", False):
        return error
    where = origin(work)
    if where:
        error.noisewise_located = True  # type: ignore[attr-defined]  # a mark on an error, any error
    if where and isinstance(error, NoisewiseError):
        error.args = (f"{error} (With {where}.)",)
        error.cause = f"{error.cause} (With {where}.)"
    elif where:
        error.add_note(f"noisewise: with {where}.")
    return error


def whereabouts(thread: int) -> str:
    """What a thread of this process is doing, in words; "" where no method on its stack says.

    A method says so by an attribute `tells`: a function of its local variables that returns the words.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None:
        running: Any = getattr(type(frame.f_locals.get("self")), frame.f_code.co_name, None)
        if getattr(running, "__code__", None) is frame.f_code and hasattr(running, "tells"):
            return str(running.tells(**frame.f_locals))
        frame = frame.f_back
    return ""
