"""What a checkpoint holds and how far its run has come, as plain data and in words. The file may be in use."""

import datetime
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from noisewise.checkpoint.file import MAGIC, read_header, records
from noisewise.errors import refusal


def shown(value: Any, most: int = 60) -> str:
    """`value` on one line of moderate length, without control characters: it may come from anybody's file."""
    text = str(value)
    text = text if len(text) <= most else text[: most - 3] + "..."
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint holds, as plain data; it may be in use, and is not changed.

    Keys: the header's; `runs`, what was done in each run that the file serves; `ended`, the last run's status;
    `written`, when; `bytes`, and how many of them are `bad_bytes`, after the last record that holds.
    """
    try:
        if not os.path.isfile(path) and os.path.exists(path):  # a pipe would be waited for
            raise OSError("it is no plain file")
        with open(path, "rb") as file:
            header = read_header("status", os.fspath(path), file)
            tally = _Tally()
            end = len(MAGIC)
            for _, key, data, end in records(file):  # noqa: B007
                with suppress(RecursionError):
                    tally.add(key, data)
            state = os.fstat(file.fileno())
    except OSError as error:
        rule = f"must be a file that can be read ({error.strerror or error})"
        raise refusal("status", "checkpoint", rule, os.fspath(path), "Check the path.") from None
    written = datetime.datetime.fromtimestamp(state.st_mtime, datetime.UTC).isoformat(timespec="seconds")
    sizes = {"bytes": state.st_size, "bad_bytes": max(0, state.st_size - end)}
    return header | {"runs": tally.runs, "ended": tally.ended, "written": written, **sizes}


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
            counts = run["blocks"].setdefault(str(key[2]), [0, 0])
            counts[0] += 1
            counts[1] += _number(value.get("n"))
        elif "done" in value and "total" in value:
            parts = run["progress"].setdefault(str(key[1]), {})
            part = " ".join(map(str, key[2:-1]))
            parts[part] = [_number(value["done"]), _number(value["total"])]


def _number(value: Any) -> int:
    """A count from a file, whatever stands there."""
    return value if type(value) is int and 0 <= value < 2**63 else 0


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _plainly(data: Any) -> Any:
    """The plain part of packed data."""
    if isinstance(data, dict):
        inner = data["d"] if set(data) == {"d"} and isinstance(data["d"], dict) else data
        return {name: _plainly(part) for name, part in inner.items()}
    return [_plainly(part) for part in data] if isinstance(data, list) else data


def describe(path: str | os.PathLike[str]) -> str:
    """What a checkpoint holds, how far its run has come, when it was last written, and whether all of it is good."""
    content = inspect(path)
    is_design = "sampler" not in content and "estimator" not in content
    name = _dict(content.get("sampler") or content.get("estimator")).get("name", "a sampler that is chosen")
    by = "" if is_design else f" with {shown(name)}"
    lines = [f"Checkpoint of nw.{shown(content.get('for'))}{by}, seed {shown(content.get('seed'))}"]
    names = shown(", ".join(_dict(content.get("model"))), 1_000)
    of = "a simulated release" if is_design else "release"
    lines.append(f"model:    {names}; {of} {shown(str(content.get('release'))[:12])}")
    for number, run in content["runs"].items():
        label = shown(run.get("sampler") or f"run {number}")
        lines += [f"progress: {label}: {shown(line, 300)}" for line in _progress_of(run)]
    lines.append(f"ended:    {shown(content['ended'] or 'not yet')}")
    lines.append(f"written:  {content['written']}, begun {shown(content.get('begun'))}")
    bad = content["bad_bytes"]
    state = f"the last {bad:,} do not hold and will be cut off" if bad else "all of them good"
    return "\n".join([*lines, f"file:     {content['bytes']:,} bytes, {state}"])


def _progress_of(run: Mapping[str, Any]) -> list[str]:
    lines = []
    about = _dict(run.get("streams"))
    roots = about.get("roots")
    for index, (blocks, survivors) in run["blocks"].items():
        stream = _dict(_dict(about.get("streams")).get(index))
        first = min(blocks, _number(about.get("settled", blocks)))
        later = (blocks - first) * _number(stream.get("growth", 1))
        proposals = f" ({(first + later) * _number(stream.get('rows')):,} proposals)"
        is_root = isinstance(roots, list) and index in map(str, roots)
        wanted = f" of {_number(about.get('draws')):,} draws" if is_root else ""
        lines.append(f"{survivors:,}{wanted} kept for {stream.get('label')}, from {blocks:,} blocks{proposals}")
    for label, parts in run["progress"].items():
        done, total = (sum(part[side] for part in parts.values()) for side in (0, 1))
        lines.append(f"{done:,} of {total:,} steps ({label}: {len(parts)} begun)")
    return lines or ["begun"]
