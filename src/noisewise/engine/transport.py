"""Work on its way to another process: pickled with cloudpickle, and what many blocks share sent once.

A block is small, a model is not: to unpickle it and compile its functions takes a thousand times longer than a block.
So an object whose class says `sent_once` (a model, a release) is pickled by itself: such a book is named by the hash of
its bytes, and every worker keeps the books it used last. Bytes come from this process or its cluster alone; files are
never read this way.
"""

import hashlib
import importlib
import io
import pickle
import platform
import threading
import traceback
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from noisewise._version import current_versions
from noisewise.engine.base import Poll, Stopped, Work
from noisewise.errors import InferenceError, refusal
from noisewise.numerics import double

MOST_BOOKS = 16
"""Unpickled books that a worker keeps, those used last."""
Books = dict[str, bytes]
"""Pickled objects that are sent once, by the hash of their bytes."""
Reply = tuple[str, Any]
"""("done", result), ("error", exception), ("stopped", None) or ("missing", hash)."""


def versions() -> dict[str, str]:
    """Versions that must be the same on both sides for the same draws."""
    libraries = current_versions()
    libraries.pop("jaxlib")  # jax asks for the one that goes with it
    return {**libraries, "python": ".".join(platform.python_version_tuple()[:2]), "processor": platform.machine()}


# The sender's side ----------------------------------------------------------------------------------------------------

_known: dict[int, tuple[Any, str, bytes]] = {}
"""By the identity of each object sent before: a weak reference to it, its hash and its bytes."""
_known_lock = threading.RLock()


def require_cloudpickle(who: str) -> Any:
    """cloudpickle, or a refusal that says how to get it."""
    try:
        cloudpickle: Any = importlib.import_module("cloudpickle")
    except ImportError:
        rule = "needs cloudpickle, which is not installed"
        raise refusal(who, "engine", rule, None, "Run pip install 'noisewise[processes]'.") from None
    return cloudpickle


def encode(who: str, work: Work) -> tuple[bytes, Books]:
    """`work` as bytes, and the books it refers to."""
    books: Books = {}
    try:
        return _pickled(work, books), books
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        rule = f"must be able to send its work to another process; {type(error).__name__}: {error}"
        advice = "Keep open files, locks, connections and generators out of the model's functions, or use nw.Threads()."
        raise refusal(who, "engine", rule, who, advice) from error


def _pickled(value: Any, books: Books | None) -> bytes:
    cloudpickle = require_cloudpickle("engine")

    class Pickler(cloudpickle.Pickler):  # type: ignore[name-defined]  # a module that may be missing
        def persistent_id(self, inner: Any) -> str | None:
            if books is None or not getattr(type(inner), "sent_once", False):
                return None
            key, content = _book(inner)
            books[key] = content
            return key

    file = io.BytesIO()
    with double():
        Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def _forget(identity: int, _: Any) -> None:
    _known.pop(identity, None)


def _book(value: Any) -> tuple[str, bytes]:
    with _known_lock:
        known = _known.get(id(value))
        if known is None or known[0]() is not value:
            content = _pickled(value, None)
            reference = weakref.ref(value, partial(_forget, id(value)))
            known = _known[id(value)] = reference, hashlib.sha256(content).hexdigest(), content
        return known[1], known[2]


# The worker's side ----------------------------------------------------------------------------------------------------

_shelf: OrderedDict[str, Any] = OrderedDict()
_shelf_lock = threading.RLock()


class _Missing(Exception):
    """A book that this process was never sent, or no longer keeps."""


def _read(key: str, books: Mapping[str, bytes]) -> Any:
    with _shelf_lock:
        if key not in _shelf:
            if key not in books:
                raise _Missing(key)
            _shelf[key] = decode(books[key], {})
            while len(_shelf) > MOST_BOOKS:
                _shelf.popitem(last=False)
        _shelf.move_to_end(key)
        return _shelf[key]


def decode(content: bytes, books: Mapping[str, bytes]) -> Any:
    """The inverse of `encode`. In 64 bits, or JAX would round the arrays inside."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, key: str) -> Any:
            return _read(key, books)

    with double():
        return Unpickler(io.BytesIO(content)).load()


def perform(content: bytes, books: Mapping[str, bytes], poll: Poll, begun: Callable[[], None] = lambda: None) -> Reply:
    """Run one piece of work sent here, and return the reply; an error is a reply, too."""
    try:
        work = decode(content, books)
    except _Missing as missing:
        return "missing", str(missing)
    except ModuleNotFoundError as error:
        cause = f"a worker cannot import '{error.name}', where a function of the model is defined"
        advice = "Install it on the workers (Dask: client.upload_file), or define the function in the script itself."
        return "error", InferenceError(f"{cause}. {advice}", who="sample")
    except Exception as error:
        return "error", portable(error)
    begun()
    try:
        return "done", work(poll)
    except Stopped:
        return "stopped", None
    except Exception as error:
        return "error", portable(error)


def portable(error: Exception) -> Exception:
    """`error` in a form that survives pickling, with the worker's traceback as a note."""
    trace = "".join(traceback.format_exception(error))
    try:
        error = pickle.loads(pickle.dumps(error))
    except Exception:
        error = InferenceError(f"a worker raised {type(error).__name__}: {error}", who="sample")
    error.add_note(f"In a worker process:\n{trace}")
    return error
