"""Errors and warnings for people who write no Python: without the names of the functions that raise them."""

import re
from pathlib import Path

from noisewise.analysis.file_words import in_file_words
from noisewise.analysis.toml import FileError
from noisewise.errors import InputError, NoisewiseError, NoisewiseWarning, path_of

_CODE = re.compile(r"[a-z_]+|[A-Z]\w*(\.[a-z_]\w*)?")
"""A function, a class or a method, where a message says who refuses. It decides the wording and nothing else."""


def cause_in_words(error: InputError) -> str:
    """What is refused, by which rule and what to do, whichever part of the library refuses it."""
    if error.rule is None or error.argument is None:
        return in_file_words(error.reason)
    return in_file_words(f"{place_in_words(error.argument)} {error.rule}; got {error.value}. {error.advice}")


def mistake_in_words(error: NoisewiseError | NoisewiseWarning) -> str:
    """An error or a warning for people who write no Python; it begins with the file, where it is about one."""
    if isinstance(error, FileError):  # it is in their words already, with a line of the file
        return str(error)
    place = "" if error.who is None or is_code(error.who) else f"{error.who}: "
    return place + (cause_in_words(error) if isinstance(error, InputError) else in_file_words(error.cause))


def is_code(who: str) -> bool:
    """Whether a message begins with a part of the library rather than with a file."""
    return _CODE.fullmatch(who) is not None and not Path(who).exists()


def place_in_words(argument: str) -> str:
    """An argument, or a place of the model or the release, by the names that the file has."""
    path = path_of(argument)
    if path[2:3] == ("record",):
        return f"'{path[3]}' in the records of '{path[1]}'"
    if len(path) == 2 and path[0] in ("release", "prior"):
        return f"the {path[0]} of '{path[1]}'"
    return f"'{path[1]}'" if len(path) == 2 and path[0] == "statistics" else f"'{argument}'"
