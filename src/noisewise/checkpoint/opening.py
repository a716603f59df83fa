"""Checkpoints of runs: whose they are, and how far they have come. Format and guarantees: docs/checkpoints.md."""

import datetime
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise._version import current_versions
from noisewise.checkpoint.file import ADVICE, MAGIC, Journal, foreign, read_header, records
from noisewise.checkpoint.log import NOTHING, Log
from noisewise.engine import Engine
from noisewise.errors import NoisewiseError, refusal
from noisewise.model import Model

if TYPE_CHECKING:  # what a run is about stands above what is kept of it
    from noisewise.inference.problem import Problem

LIMITS = ("max_seconds", "max_proposals", "min_ess")
"""Settings that decide when a run ends, not what it draws: a later run may change them."""
FORMAT = 1
ROWS = 64
"""Draws of the model by which it is known again."""


@contextmanager
def opened(
    who: str,
    path: str | os.PathLike[str] | None,
    problem: "Problem",
    algorithm: Any,
    seed: int | None,
    engine: Engine,
    **more: Any,
) -> Iterator[Log]:
    """The log of a run, new or to go on with; one that keeps nothing where `path` is None.

    `algorithm` is the sampler or estimator, None where one is to be chosen; `more` is what else decides the numbers.
    """
    if path is None:
        yield NOTHING
        return
    if not isinstance(path, (str, os.PathLike)):
        raise refusal(who, "checkpoint", "must be a file's path", path, "For example 'run.nwc'.")
    header = identity(who, problem, algorithm, seed, engine, more)
    journal = Journal.open(who, path, header)
    try:
        if journal.found:
            _refuse_other(journal, header)
        log = Log(journal)
        if who == "sample":
            log.same(numbers_of(problem.model), "model")
        yield log
    except NoisewiseError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if not journal.found:
            raise
        raise foreign(who, journal.path, f"going on from it raised {type(error).__name__}: {error}") from error
    finally:
        journal.close()


def identity(
    who: str, problem: "Problem", algorithm: Any, seed: int | None, engine: Engine, more: Mapping[str, Any]
) -> dict[str, Any]:
    """What must be the same for a run to go on, as plain data, and when it was begun."""
    model = problem.model
    names = {
        name: {"shape": list(model.shape(name)), "dtype": str(model.dtype(name)), "parents": list(model.parents(name))}
        for name in model.order
    }
    versions = current_versions()
    versions.pop("python")
    found = {
        "format": FORMAT,
        "for": who,
        "model": names,
        "release": problem.release.hash,
        "seed": seed,
        ("sampler" if who == "sample" else "estimator"): settings_of(algorithm),
        "engine": engine.kind,
        **more,
        "versions": versions,
        "processor": platform.machine(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=repr))
    return plain | {"begun": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


def settings_of(algorithm: Any) -> dict[str, Any] | None:
    """Name and settings, limits left out."""
    if algorithm is None:
        return None
    return {name: value for name, value in algorithm.identity().items() if name not in LIMITS}


def numbers_of(model: Model) -> dict[str, Any]:
    """A few draws of all laws that need no more than laws, and densities of those whose draws are whole numbers.

    A constant that has changed in its last digit shows in them, where whole numbers alone may stay the same.
    """
    names: list[str] = []
    for name in model.order:
        if model.has_density(name) and set(model.parents(name)) <= set(names):
            names.append(name)
    values = model.draw(np.random.default_rng(0), names, ROWS)
    found: dict[str, Any] = {"draws": values}
    for name in names:
        if values[name].dtype.kind in "biu":
            with suppress(NotImplementedError):
                found[name] = model.log_prob(name, values[name] if model.parents(name) else values[name][:1], values)
    return found


def _refuse_other(journal: Journal, header: dict[str, Any]) -> None:
    """Name the first difference between the run that began the checkpoint and this one."""
    for name, value in header.items():
        kept = journal.header.get(name)
        if name != "begun" and kept != value:
            what, old, new = _difference(name, kept, value)
            rule = f"must be of the same run: {what} is {_short(old)} there and {_short(new)} here"
            raise refusal(journal.who, "checkpoint", rule, journal.path, ADVICE)


def _difference(name: str, kept: Any, value: Any) -> tuple[str, Any, Any]:
    """The path to where two pieces of plain data differ first, and what stands there in each."""
    if isinstance(kept, dict) and isinstance(value, dict):
        for part in [*value, *kept]:
            if kept.get(part, "missing") != value.get(part, "missing"):
                return _difference(f"{name}['{part}']", kept.get(part, "missing"), value.get(part, "missing"))
    return name, kept, value


def _short(value: Any, most: int = 60) -> str:
    """On one line of moderate length, and nothing that a terminal would obey: it may come from anybody's file."""
    text = str(value)
    text = text if len(text) <= most else text[: most - 3] + "..."
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


# What is in one -------------------------------------------------------------------------------------------------------


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint holds, as plain data; it may be in use, and is not changed.

    Keys: the header's; `runs`, what was done in each run that the file serves; `ended`, the last run's status;
    `written`; `bytes`, and of those `bad_bytes` after the last record that holds.
    """
    try:
        if not os.path.isfile(path) and os.path.exists(path):  # a pipe would be waited for
            raise OSError("it is no plain file")
        with open(path, "rb") as file:
            header = read_header("status", os.fspath(path), file)
            found = _Tally()
            end = len(MAGIC)
            for _, key, data, end in records(file):  # noqa: B007
                with suppress(RecursionError):
                    found.add(key, data)
            told = os.fstat(file.fileno())
    except OSError as error:
        rule = f"must be a file that can be read ({error.strerror or error})"
        raise refusal("status", "checkpoint", rule, os.fspath(path), "Check the path.") from None
    written = datetime.datetime.fromtimestamp(told.st_mtime, datetime.UTC).isoformat(timespec="seconds")
    sizes = {"bytes": told.st_size, "bad_bytes": max(0, told.st_size - end)}
    return header | {"runs": found.runs, "ended": found.ended, "written": written, **sizes}


class _Tally:
    """Progress by run, from keys and the plain part of values."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.ended: str | None = None

    def add(self, key: Any, data: Any) -> None:
        value = data["d"] if isinstance(data, dict) and isinstance(data.get("d"), dict) else {}
        if key == ("end",):
            self.ended = str(value.get("status"))
        elif key == ("begin",):
            self.ended = None
        if len(key) < 2 or not isinstance(key[0], int):
            return
        run = self.runs.setdefault(str(key[0]), {"records": 0, "blocks": {}, "progress": {}})
        run["records"] += 1
        if key[1] == "run":
            run["sampler"] = value.get("name")
        elif key[1] == "streams":
            run["streams"] = _plainly(value)
        elif key[1] == "block" and len(key) == 4:
            each = run["blocks"].setdefault(str(key[2]), [0, 0])
            each[0] += 1
            each[1] += _number(value.get("n"))
        elif "done" in value and "total" in value:
            parts = run["progress"].setdefault(str(key[1]), {})
            part = " ".join(str(one) for one in key[2:-1])
            parts[part] = [_number(value["done"]), _number(value["total"])]


def _number(value: Any) -> int:
    """A count from a file, whatever stands there."""
    return value if type(value) is int and 0 <= value < 2**63 else 0


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _plainly(data: Any) -> Any:
    """Packed data without arrays, as it was."""
    if isinstance(data, dict):
        inner = data["d"] if set(data) == {"d"} and isinstance(data["d"], dict) else data
        return {name: _plainly(part) for name, part in inner.items()}
    return [_plainly(part) for part in data] if isinstance(data, list) else data


def describe(path: str | os.PathLike[str]) -> str:
    """What a checkpoint holds, how far its run has come, when it was last written, and whether all of it is good."""
    told = inspect(path)
    name = _dict(told.get("sampler") or told.get("estimator")).get("name", "a sampler that is chosen")
    lines = [f"Checkpoint of nw.{_short(told.get('for'))} with {_short(name)}, seed {_short(told.get('seed'))}"]
    names = _short(", ".join(_dict(told.get("model"))), 1_000)
    lines.append(f"model:    {names}; release {_short(str(told.get('release'))[:12])}")
    for number, run in told["runs"].items():
        label = _short(run.get("sampler") or f"run {number}")
        lines += [f"progress: {label}: {_short(line, 300)}" for line in _progress_of(run)]
    lines.append(f"ended:    {_short(told['ended'] or 'not yet')}")
    lines.append(f"written:  {told['written']}, begun {_short(told.get('begun'))}")
    bad = told["bad_bytes"]
    state = f"the last {bad:,} do not hold and will be cut off" if bad else "all of them good"
    return "\n".join([*lines, f"file:     {told['bytes']:,} bytes, {state}"])


def _progress_of(run: Mapping[str, Any]) -> list[str]:
    found = []
    about = _dict(run.get("streams"))
    roots = about.get("roots")
    for index, (blocks, survivors) in run["blocks"].items():
        stream = _dict(_dict(about.get("streams")).get(index))
        proposals = f" ({blocks * _number(stream.get('rows')):,} proposals)"
        is_root = isinstance(roots, list) and index in map(str, roots)
        wanted = f" of {_number(about.get('draws')):,} draws" if is_root else ""
        found.append(f"{survivors:,}{wanted} kept for {stream.get('label')}, from {blocks:,} blocks{proposals}")
    for label, parts in run["progress"].items():
        done, total = (sum(part[side] for part in parts.values()) for side in (0, 1))
        found.append(f"{done:,} of {total:,} steps ({label}: {len(parts)} begun)")
    return found or ["begun"]
