"""What the commands share: options, exit codes, and how tables and notes are printed."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from noisewise.analysis import Analysis
from noisewise.errors import refusal
from noisewise.report.verdict import sentence
from noisewise.workflow.folder import check_folder
from noisewise.workflow.results import plain

if TYPE_CHECKING:
    from noisewise.workflow.results import Results

FAILED, MISTAKE, FAULT, INTERRUPTED = 1, 2, 70, 130
"""Exit codes: the statistics failed; a mistake in a file or an option; a fault of noisewise; interrupted.

(143: ended by SIGTERM.)
"""


def whole_option(text: Any) -> int:
    """A whole number as an option gives it."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"must be a whole number, such as 200; got {text}.") from None


WHOLE: dict[str, Any] = {"parser": whole_option, "metavar": "NUMBER"}
"""Settings for Typer of an option that takes a whole number."""
File = Annotated[Path, typer.Argument(help="The analysis file, such as count.toml.", show_default=False)]
Seed = Annotated[int | None, typer.Option(help="Decides every random number; in place of the file's.", **WHOLE)]
Draws = Annotated[int | None, typer.Option(help="How many draws; in place of the file's.", **WHOLE)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines, and nothing else, to standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]

Checkpoint = Annotated[
    Path | None, typer.Option(help="Keep progress in this file; the same command goes on after an interruption.")
]


def fail(message: str, code: int) -> NoReturn:
    """End with a message on standard error."""
    typer.echo(f"noisewise: {message}", err=True)
    sys.exit(code)


def write_new(path: Path, text: str, who: str) -> None:
    """Write a file that does not exist yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        rule, advice = f"must be a new file in an existing folder ({error})", "Choose another name with --out."
        raise refusal(who, "out", rule, str(path), advice) from None


def as_typed(path: Path) -> str:
    """A path as it is typed in a command: in quotation marks where it holds blanks or other signs that need them."""
    text = str(path)
    if re.fullmatch(r"[\w./\\:+@%,=-]+", text):
        return text
    return shlex.quote(text) if set(text) & set('$"`\\!') else f'"{text}"'


def note(message: str) -> None:
    """Something worth knowing that stops nothing."""
    typer.echo(f"noisewise: note: {message}", err=True)


def say_json(content: Any) -> None:
    """Data on standard output; numbers that are not finite become null."""
    typer.echo(json.dumps(plain(content), indent=2, allow_nan=False))


def readable(value: Any, digits: int | None = None) -> str:
    """A number for people, 10,000 rather than 1e+04; text stays as it is.

    Four significant digits, or all before the decimal point where there are more. `digits`: round to so many first.
    """
    if isinstance(value, str):
        return value
    if digits is not None:
        value = float(f"{value:.{digits}g}")
    return f"{value:,.0f}" if 999.95 <= abs(value) < 1e12 else f"{value:.4g}"


def say_table(table: Any, title: str = "", digits: int | None = None) -> None:
    """A pandas table in the terminal; `digits` as `readable` takes it."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    printed = Table("", *(str(column) for column in table.columns), title=title or None, title_justify="left")
    for column in printed.columns[1:]:
        column.justify = "right"
    for label, row in table.iterrows():
        cells = (readable(value, digits) for value in row)
        printed.add_row(*(escape(text) for text in (str(label), *cells)))
    console.print(printed)


def loaded(file: Path, draws: int | None = None, seed: int | None = None) -> Any:
    """The analysis in `file`, with options in place of its settings; prints its notes."""
    analysis = Analysis.load(file).with_settings(draws=draws, seed=seed)
    for text in analysis.notes:
        note(text)
    return analysis


def folder_for(file: Path, out: Path | None, ending: str) -> Path:
    """Where results go: `out`, or a folder named after the file, in the working directory."""
    folder = out if out is not None else Path(f"{file.stem}-{ending}")
    check_folder(folder)
    return folder


def stop_unless_done(results: "Results", folder: Path | None) -> None:
    """End with an exit code where a run did not deliver, or where a signal ended it; a fault on the way is raised."""
    if results.fault is not None:
        raise results.fault
    exact, where = results.exact, "" if folder is None else f" What there is: {folder}."
    if results.end.exit_code:
        why = f"{results.end.meaning} (It ended with status '{exact.status}'.){sentence(exact.message)}"
        fail(f"{why}{where}", results.ended or results.end.exit_code)
    if results.ended:
        fail(f"interrupted before the naive analysis was done; the exact one is complete.{where}", results.ended)
