"""Append-only files of checksummed records, from which a run goes on where it was interrupted.

A file is a line that names the format, then records. A record is a frame (lengths, checksum), a key and a value as
JSON, and the raw bytes of the value's arrays. Nothing in it is code: no pickle, no eval, and classes only where the
reader names them. Whatever follows the last record whose checksum holds is cut off. See docs/checkpoints.md.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import struct
import threading
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, BinaryIO

import numpy as np

from noisewise.errors import InputError, NoisewiseWarning, refusal
from noisewise.numerics import Array

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # None in place of a module

Key = tuple[str | int, ...]

MAGIC = b"noisewise checkpoint, format 1\n"
FRAME = struct.Struct("<IQ16s")
"""Of a record: the number of bytes of its JSON, that of its arrays, and the checksum."""
MOST_TEXT = 2**24
"""Bytes that the JSON of a record may have; in memory it may take twenty times as many."""
CHUNK = 2**20
"""Bytes of arrays that are read at a time."""
JOINED = 2**24
"""Bytes of arrays up to which a record is written by one call: after each call other threads go first."""
KINDS = "biuf"
"""Kinds of numbers that arrays may hold: booleans, whole numbers, floating point."""
DTYPES = {
    np.dtype(name).newbyteorder("<").str: np.dtype(name).newbyteorder("<")
    for name in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}
"""Every kind of number that may stand in a file, by its name there."""
NARROWED = 256
"""Size from which arrays of 64-bit whole numbers are kept in as few bytes as hold them all."""
SYNC = 1.0
"""Seconds between two requests that the system write everything to the disk."""
SHORT = 2.0
"""Runs shorter than so many seconds do not wait for the disk at their end: only a crash of the machine within the
minute loses them."""
AGAIN = 10.0
"""Seconds before writing is tried again after it failed."""
ADVICE = "Give another path to begin anew."


class Damaged(Exception):
    """A record that cannot be read."""


# Values as data -------------------------------------------------------------------------------------------------------


def pack(value: Any, arrays: list[Array]) -> Any:
    """`value` as JSON data; its arrays are appended to `arrays`."""
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if _in_file(array.dtype) is None:
            raise TypeError(f"arrays of {array.dtype} cannot be kept")
        narrow, original = _narrowed(array)
        arrays.append(narrow.astype(_in_file(narrow.dtype), order="A", copy=False))
        return {"s" if isinstance(value, np.generic) else "a": len(arrays) - 1, **original}
    if isinstance(value, np.random.Generator):
        return {"g": value.bit_generator.state}
    if isinstance(value, list):
        return [pack(part, arrays) for part in value]
    if isinstance(value, tuple):
        return {"t": [pack(part, arrays) for part in value]}
    if isinstance(value, dict):
        return {"d": {name: pack(part, arrays) for name, part in value.items()}}
    if is_dataclass(value):
        parts = {item.name: pack(getattr(value, item.name), arrays) for item in fields(value)}
        return {"c": type(value).__name__, "d": parts}
    raise TypeError(f"values of {type(value)} cannot be kept")


@cache
def _in_file(dtype: Any) -> Any:
    """The kind of number that a file has for this one; None where such numbers cannot be kept."""
    return DTYPES.get(dtype.newbyteorder("<").str)


def unpack(data: Any, arrays: list[Array | None], classes: dict[str, type]) -> Any:
    """The value that `pack` was given; instances only of the `classes` named."""
    if isinstance(data, list):
        return [unpack(part, arrays, classes) for part in data]
    if not isinstance(data, dict):
        return data
    if "a" in data:
        array = _taken(arrays, data["a"])
        return array.astype(DTYPES[data["as"]], order="K") if "as" in data else array
    if "s" in data:
        return _taken(arrays, data["s"])[()]
    if "g" in data:
        rng = np.random.default_rng(0)
        rng.bit_generator.state = data["g"]
        return rng
    if "t" in data:
        return tuple(unpack(part, arrays, classes) for part in data["t"])
    parts = {name: unpack(part, arrays, classes) for name, part in data["d"].items()}
    return classes[data["c"]](**parts) if "c" in data else parts


def _taken(arrays: list[Array | None], number: int) -> Array:
    """Array `number` of the record, once only: else a small file could ask for any number of copies."""
    array, arrays[number] = arrays[number], None
    if array is None:
        raise Damaged("an array that is used twice")
    return array


def _narrowed(array: Array) -> tuple[Array, dict[str, str]]:
    """Whole numbers in as few bytes as hold them all, and their kind before: counts are small, and files large."""
    if array.dtype != np.int64 or array.size < NARROWED:
        return array, {}
    low, high = int(array.min()), int(array.max())
    for name in ("<i1", "<i2", "<i4"):
        limits = np.iinfo(name)
        if limits.min <= low and high <= limits.max:
            return array.astype(name, order="A"), {"as": "<i8"}
    return array, {}


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def array_forms(arrays: Sequence[Array]) -> list[Any]:
    """Kind, shape and order in memory of each array: sums may depend on the order in their last digits."""
    return [[array.dtype.str, list(array.shape), "C" if array.flags.c_contiguous else "F"] for array in arrays]


def bytes_of(arrays: Sequence[Array]) -> Iterator[Any]:
    """The arrays' bytes, each array at a multiple of eight."""
    for array in arrays:
        yield memoryview(array.ravel(order="K").view(np.uint8).data)
        if array.nbytes % 8:
            yield bytes(_padded(array.nbytes) - array.nbytes)


def _arrays_of(descriptions: Any, body: bytearray) -> list[Array | None]:
    arrays: list[Array | None] = []
    start = 0
    for name, shape, order in descriptions:
        dtype = DTYPES[name]
        if order not in ("C", "F") or not all(type(size) is int and size >= 0 for size in shape):
            raise Damaged("an array of an unknown kind")
        count = math.prod(shape)
        if start + count * dtype.itemsize > len(body):
            raise Damaged("an array larger than its record")
        arrays.append(np.frombuffer(body, dtype, count, start).reshape(shape, order=order))
        start += _padded(count * dtype.itemsize)
    return arrays


def _checksum(offset: int, text: bytes, size: int, parts: Any) -> bytes:
    """The checksum of a record and its offset, so that none can stand for another; arrays enter by their CRC-32."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return hashlib.sha256(struct.pack("<QIQI", offset, len(text), size, crc) + text).digest()[:16]


# Reading --------------------------------------------------------------------------------------------------------------


def records(file: BinaryIO) -> Iterator[tuple[int, Key, Any, int]]:
    """(offset, key, value as JSON data, offset of the next) of every record before the first that is damaged."""
    size = os.fstat(file.fileno()).st_size
    offset = len(MAGIC)
    while offset + FRAME.size <= size:
        file.seek(offset)
        text_size, body_size, checksum = FRAME.unpack(file.read(FRAME.size))
        end = offset + FRAME.size + text_size + body_size
        if end > size or text_size > MOST_TEXT:
            return
        text = file.read(text_size)
        if _checksum(offset, text, body_size, _chunks(file, body_size)) != checksum:
            return
        try:
            record = json.loads(text)
            key = tuple(record["k"])
            hash(key)
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        yield offset, key, record.get("v"), end
        offset = end


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size:
        part = file.read(min(CHUNK, size))
        if not part:
            return
        size -= len(part)
        yield part


def record_at(file: BinaryIO, offset: int, classes: Sequence[type] = ()) -> Any:
    """The value of the record at `offset`; checked again, since the file may have changed after it was indexed."""
    file.seek(offset)
    try:
        text_size, body_size, checksum = FRAME.unpack(file.read(FRAME.size))
        text, body = file.read(text_size), bytearray(body_size)
        room = memoryview(body)
        while len(room) and (count := file.readinto(room)):  # type: ignore[attr-defined]  # not in BinaryIO
            room = room[count:]
        if _checksum(offset, text, body_size, [body]) != checksum:
            raise Damaged("the file was changed after this run had opened it")
        record = json.loads(text)
        return unpack(record["v"], _arrays_of(record["a"], body), {cls.__name__: cls for cls in classes})
    except (OSError, struct.error, MemoryError) as error:
        raise Damaged(f"it cannot be read: {error}") from None
    except (ValueError, LookupError, ArithmeticError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from None


# Files ----------------------------------------------------------------------------------------------------------------


class Journal:
    """One open file, locked against other runs. Values are found under the key they were written with.

    `open` creates it, or recovers one that a run left behind: then it is `continued`. The lock dies with its process.
    """

    def __init__(self, who: str, path: str, file: Any, header: dict[str, Any], continued: bool) -> None:
        self.who, self.path, self.file = who, path, file
        self.header, self.continued = header, continued
        self.lock = threading.RLock()
        self.offsets: dict[Key, int] = {}
        self.owed: list[tuple[Key, Any]] = []
        """Records that the disk has not taken, and without which later ones must not stand in the file."""
        self.end = len(MAGIC)
        self._opened = time.monotonic()
        self._synced = self._opened + SYNC
        self._blocked_until = 0.0
        self._warned = False

    @staticmethod
    def open(who: str, path: str | os.PathLike[str], header: dict[str, Any]) -> "Journal":
        """The journal at `path`, made with this header where there is none."""
        where = os.fspath(path)
        if not isinstance(where, str) or not where:
            raise refusal(who, "checkpoint", "must be a file's path", path, "For example 'run.nwc'.")
        if os.path.islink(where):  # the link stays, even if its target does not exist yet
            where = os.path.realpath(where)
        try:
            while True:
                if os.path.exists(where) and not os.path.isfile(where):  # a device would be replaced by a file
                    raise OSError("it is no plain file")
                if os.path.exists(where) and os.path.getsize(where):
                    return _existing(who, where)
                journal = _created(who, where, header)
                if journal is not None:
                    return journal
        except OSError as error:
            rule = f"must be a file that can be read and written ({error.strerror or error})"
            raise refusal(who, "checkpoint", rule, where, "Check the folder, its permissions and its space.") from None

    # Reading -----------------------------------------------------------------------------------------------

    def has(self, key: Key) -> bool:
        """Whether there is a value under this key."""
        return key in self.offsets

    def read(self, key: Key, classes: Sequence[type] = ()) -> Any:
        """The value last written under this key."""
        with self.lock:
            try:
                return record_at(self.file, self.offsets[key], classes)
            except Damaged as error:
                raise foreign(self.who, self.path, str(error)) from None

    # Writing -----------------------------------------------------------------------------------------------

    def write(self, key: Key, value: Any, *, needed: bool = False) -> bool:
        """Append a record; False, with one warning, where the disk does not take it: the run goes on without.

        A `needed` record tells whose the later ones are: where the disk did not take it, it is written before them.
        """
        with self.lock:
            pending = [*self.owed, (key, value)]
            if needed:
                self.owed.append((key, value))
            if time.monotonic() < self._blocked_until or self.file is None:
                return False
            try:
                for name, content in pending:
                    start = self.end
                    _append(self, name, content)
                    self.offsets[name] = start
                    if self.owed:
                        self.owed.pop(0)
            except OSError as error:
                self._blocked_until = time.monotonic() + AGAIN
                self._undo()
                self._warn(error)
                return False
            except BaseException:  # Ctrl-C in the middle: nothing half-written stays
                self._undo()
                raise
            return True

    def _undo(self) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self.file.fileno(), self.end)

    def _warn(self, error: OSError) -> None:
        if self._warned:
            return
        self._warned = True
        cause = (
            f"the checkpoint '{self.path}' cannot be written ({error.strerror or error}). The run goes on, "
            f"and tries again every {AGAIN:g} s; what is in the file stays good."
        )
        warnings.warn(NoisewiseWarning(cause, self.who), stacklevel=2)

    def sync(self, *, now: bool = False) -> None:
        """Ask the system to write to the disk: about once a second, and at most a twentieth of the time."""
        began = time.monotonic()
        if now or began >= self._synced:
            with contextlib.suppress(OSError):
                os.fsync(self.file.fileno())
            ended = time.monotonic()
            self._synced = ended + max(SYNC, 20.0 * (ended - began))

    def close(self) -> None:
        """Write everything out, where that is worth the wait, and let go of the lock."""
        with self.lock:
            if self.file is not None:
                self.sync(now=time.monotonic() - self._opened > SHORT)
                try:
                    self.file.close()
                except OSError as error:  # disks elsewhere may refuse at the very end what they had taken
                    self._warn(error)
                self.file = None


def _append(journal: Journal, key: Key, value: Any) -> None:
    arrays: list[Array] = []
    record = {"k": key, "v": pack(value, arrays)}
    record["a"] = array_forms(arrays)
    text = json.dumps(record, separators=(",", ":")).encode()
    if len(text) > MOST_TEXT:  # it could not be read, nor anything after it
        raise OSError(errno.EFBIG, f"a record has more than {MOST_TEXT:,} bytes of text")
    size = sum(_padded(array.nbytes) for array in arrays)
    head = bytearray(FRAME.size) + text
    parts = list(bytes_of(arrays))
    if size <= JOINED:
        head = bytearray().join([head, *parts])
        parts = [memoryview(head)[-size:]] if size else []
    FRAME.pack_into(head, 0, len(text), size, _checksum(journal.end, text, size, parts))
    journal.file.seek(journal.end)
    for part in [head] if size <= JOINED else [head, *parts]:
        left = memoryview(part)
        while len(left):
            left = left[journal.file.write(left) :]
    journal.end += FRAME.size + len(text) + size
    journal.sync()


def _locked(who: str, file: Any) -> bool:
    """Take the lock; False where another run has it. Warns where the file system has no locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        cause = f"checkpoints cannot be locked here ({error.strerror}): see that no other run uses '{file.name}'."
        warnings.warn(NoisewiseWarning(cause, who), stacklevel=2)
    return True


def _in_use(who: str, path: str) -> InputError:
    advice = "Wait for it, or give another path."
    return refusal(who, "checkpoint", "must not be in use by another run", path, advice)


def _created(who: str, path: str, header: dict[str, Any]) -> Journal | None:
    """A new journal; None where another run was quicker.

    It gets its name only when its header is complete, so a half-made one never stands there.
    """
    draft = path + ".new"
    # Made and opened at once: between two calls another run may give the draft its name.
    file: Any = open(draft, "r+b", buffering=0, opener=_making)  # noqa: SIM115
    try:
        if not _locked(who, file):
            raise _in_use(who, path)
        mine = os.path.exists(draft) and os.path.samestat(os.stat(draft), os.fstat(file.fileno()))
        if not mine or (os.path.exists(path) and os.path.getsize(path)):
            if mine:
                os.unlink(draft)
            file.close()
            return None
        file.truncate(0)
        file.write(MAGIC)
        journal = Journal(who, path, file, header, continued=False)
        _append(journal, ("header",), header)
        journal.sync(now=True)
        if fcntl is None:  # Windows does not rename open files
            file.close()
        os.replace(draft, path)
        if fcntl is None:
            journal.file = open(path, "r+b", buffering=0)  # noqa: SIM115
        else:
            _sync_folder(path)
        return journal
    except BaseException:
        file.close()
        raise


def _making(path: str, flags: int) -> int:
    """Make and open a file, but not through a link that somebody else has put there."""
    return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _sync_folder(path: str) -> None:
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fsync(folder)
    os.close(folder)


def _existing(who: str, path: str) -> Journal:
    """The journal that a run left; cut after its last good record, with a warning."""
    file: Any = open(path, "r+b", buffering=0)  # noqa: SIM115
    try:
        if not _locked(who, file):
            raise _in_use(who, path)
        reader = open(path, "rb")  # noqa: SIM115
        with reader:
            header, offsets, end = _indexed(who, path, reader)
        journal = Journal(who, path, file, header, continued=True)
        journal.offsets, journal.end = offsets, end
        lost = os.path.getsize(path) - end
        if lost:
            file.truncate(end)
            cause = (
                f"the checkpoint '{path}' was cut short or damaged: its last {lost} bytes do not hold and are "
                "left out. The run goes on from the last record that holds."
            )
            warnings.warn(NoisewiseWarning(cause, who), stacklevel=2)
        return journal
    except BaseException:
        file.close()
        raise


def _indexed(who: str, path: str, file: BinaryIO) -> tuple[dict[str, Any], dict[Key, int], int]:
    header = read_header(who, path, file)
    offsets: dict[Key, int] = {}
    end = len(MAGIC)
    for offset, key, _, after in records(file):
        offsets[key], end = offset, after
    return header, offsets, end


def read_header(who: str, path: str, file: BinaryIO) -> dict[str, Any]:
    """The header; a file that is no checkpoint is refused."""
    file.seek(0)
    if file.read(len(MAGIC)) != MAGIC:
        raise refusal(who, "checkpoint", "must be a checkpoint of noisewise, in a format it knows", path, ADVICE)
    first = next(records(file), None)
    try:
        if first is not None and first[1] == ("header",):
            header = record_at(file, first[0])
            if isinstance(header, dict):
                return header
    except Damaged:
        pass
    raise refusal(who, "checkpoint", "has a damaged header, so that nothing in it can be trusted", path, ADVICE)


def foreign(who: str, path: str, why: str) -> InputError:
    """The refusal of a checkpoint that holds together, but not with this run."""
    return refusal(who, "checkpoint", f"does not hold what this run would have written ({why})", path, ADVICE)
