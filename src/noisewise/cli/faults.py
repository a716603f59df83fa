"""Unexpected errors: a sentence for the person, a log file for us."""

import platform
import shlex
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from noisewise._version import current_versions
from noisewise.cli.shared import FAULT, fail

CONFIDENTIAL = ("release", "ledger")
"""Commands that read confidential records. An error's text may quote them, so that only its kind is said."""


def end_with_fault(error: BaseException, arguments: list[str], saved: str = "") -> NoReturn:
    """End with a sentence that says what happened, whose fault it is and which file to send; `saved` comes last."""
    quiet = any(word in CONFIDENTIAL for word in arguments[:1])
    lines = [] if quiet else str(error).splitlines()
    kind = type(error).__name__
    happened = f"an unexpected error ({kind}: {lines[0]})" if lines else f"an unexpected error ({kind})"
    log = _written(_content(error, arguments, quiet))
    send = "The log could not be written" if log is None else f"Please report it, with the log {log}"
    sentence = f"{happened}. This is a fault of noisewise, not a mistake of yours. {send}."
    fail(f"{sentence} {saved}".rstrip(), FAULT)


def _content(error: BaseException, arguments: list[str], quiet: bool) -> str:
    """The log: versions, the command line and the traceback, which holds lines of code and no local values."""
    versions = ", ".join(f"{name} {version}" for name, version in current_versions().items())
    lines = [
        f"noisewise, {datetime.now(UTC).isoformat(timespec='seconds')}",
        f"Versions: {versions}",
        f"Platform: {platform.platform()}",
        f"Command: {shlex.join(['noisewise', *arguments])}",
        "",
        _kinds_only(error) if quiet else "".join(traceback.format_exception(error)),
    ]
    return "\n".join(lines)


def _kinds_only(error: BaseException) -> str:
    """The traceback, of every error in the chain, with kinds in place of messages."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None:
        parts.insert(0, "".join([*traceback.format_tb(current.__traceback__), f"{type(current).__name__}\n"]))
        current = current.__cause__ or current.__context__
    return "\nThen:\n".join(parts)


def _written(content: str) -> Path | None:
    """The log in the working directory, or else among temporary files; None where neither can be written."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    for folder in (Path(), Path(tempfile.gettempdir())):
        for number in range(1, 100):
            path = folder / f"noisewise-fault-{stamp}{'' if number == 1 else f'-{number}'}.log"
            try:
                with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(content)
            except FileExistsError:
                continue
            except OSError:
                break
            return path.resolve()
    return None
