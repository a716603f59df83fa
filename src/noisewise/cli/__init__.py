"""The command line: `noisewise`, or `python -m noisewise`. One file per group of commands; docs/command-line.md."""

import os
import sys
import warnings
from typing import Any

import typer

from noisewise._version import __version__
from noisewise.analysis.mistakes import mistake_in_words
from noisewise.cli import analyse, curate, describe, examples, watch
from noisewise.cli.faults import end_with_fault
from noisewise.cli.mistakes import said
from noisewise.cli.program_cache import keep_programs
from noisewise.cli.shared import FAILED, INTERRUPTED, MISTAKE, fail, note
from noisewise.errors import InferenceError, NoisewiseError, NoisewiseWarning, Unwritten

HELP = """Exact statistical inference from differentially private releases.

A release is a number published with privacy noise. noisewise gives the inference that is right for both your model and
that noise. Begin with an analysis file:

- `noisewise new count` writes count.toml, a commented file to fill in.

- `noisewise check count.toml` says whether it is in order, what will happen and how long it will take.

- `noisewise fit count.toml` gives the exact answer, in the folder count-results, with a report.

Exit codes: 0 all is well; 1 the statistics failed (nothing accepted, no convergence, miscalibrated); 2 a mistake in a
file or an option; 70 an unexpected error, which is a fault of noisewise: a message names the log to send; 130
interrupted by Ctrl-C; 143 ended by SIGTERM. After either signal the folder holds what there was.
"""

CURATORS = {"release", "ledger"}
"""Commands that read confidential records: nothing that they compute is kept between commands."""

app = typer.Typer(
    help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown"
)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", is_eager=True, callback=_show_version
    ),
) -> None:
    pass


for _group in (analyse, watch, curate, describe, examples):
    _group.register(app)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: mistakes and faults end in a message and an exit code, never in a stack trace."""
    os.environ.setdefault("MPLBACKEND", "Agg")  # pictures go to files
    with warnings.catch_warnings():
        warnings.simplefilter("always", NoisewiseWarning)
        show_warning = warnings.showwarning

        def show(message: Any, category: Any, *rest: Any, **options: Any) -> None:
            if issubclass(category, NoisewiseWarning):
                note(mistake_in_words(message))
            else:
                show_warning(message, category, *rest, **options)

        warnings.showwarning = show
        command = sys.argv[1:] if arguments is None else arguments
        if not CURATORS & set(command[:1]):
            keep_programs()
        try:
            app(args=arguments, prog_name="noisewise")
        except Unwritten as error:
            end_with_fault(error.__cause__ or error, command, error.saved)
        except InferenceError as error:
            fail(mistake_in_words(error), FAILED)
        except NoisewiseError as error:
            fail(said(error, app, command), MISTAKE)
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)
        except BrokenPipeError:  # the reader of our output went away
            sys.stderr.close()
            sys.exit(0)
        except Exception as error:
            end_with_fault(error, command)
