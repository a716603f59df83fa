"""Errors in the words of the command line: options and files are named as they were typed."""

from pathlib import Path

import typer

from noisewise.analysis import FileError
from noisewise.analysis.file_words import in_file_words
from noisewise.analysis.mistakes import is_code, mistake_in_words
from noisewise.errors import InputError, NoisewiseError

ALSO_IN_FILES = ("draws", "seed", "replicates")
"""Options that a file may state too: an error is about the option only where it was given."""


def said(error: NoisewiseError, app: typer.Typer, words: list[str]) -> str:
    """The message of an error, with the names that the command line, `words`, has for its arguments."""
    if not isinstance(error, InputError) or isinstance(error, FileError) or error.rule is None:
        return mistake_in_words(error)
    if error.who is not None and not is_code(error.who):  # of a file
        return mistake_in_words(error)
    names = _parameters(app, words)
    argument = "path" if error.argument is None else str(error.argument)
    if names.get(argument) == "" or (argument == "path" and "" in names.values()):
        file = _named(app, words, argument)
        if file is None or str(error.value).strip("'") in (file, Path(file).name):
            return in_file_words(f"{error.value} {error.rule}. {error.advice}")
        return in_file_words(f"{Path(file).name} {error.rule}; got {error.value}. {error.advice}")
    option = names.get(argument)
    given = option is not None and any(word.split("=")[0] == option for word in words)
    if option is None or (argument in ALSO_IN_FILES and not given):
        return mistake_in_words(error)
    return in_file_words(f"{option} {error.rule}; got {error.value}. {error.advice}")


def _named(app: typer.Typer, words: list[str], argument: str) -> str | None:
    """The file that was typed for an argument of the command; None where none was."""
    command = getattr(typer.main.get_command(app), "commands", {}).get(words[0] if words else "")
    if command is None:
        return None
    given = command.make_context(words[0], words[1:], resilient_parsing=True).params.get(argument)
    return None if given is None else str(given)


def _parameters(app: typer.Typer, words: list[str]) -> dict[str, str]:
    """The command's parameters by their names in Python: an option as it is typed, or empty text for a file."""
    group = typer.main.get_command(app)
    command = getattr(group, "commands", {}).get(words[0] if words else "")
    if command is None:
        return {}
    return {str(one.name): one.opts[0] if one.param_type_name == "option" else "" for one in command.params if one.name}
