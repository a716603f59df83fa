"""Commands that watch and show: status, serve."""

from pathlib import Path
from typing import Annotated

import typer

from noisewise.analysis.file_words import in_file_words
from noisewise.checkpoint import describe
from noisewise.errors import refusal
from noisewise.page import serve as serve_page


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(status)
    app.command()(serve)


def status(
    file: Annotated[Path, typer.Argument(help="A checkpoint, such as run.nwc.", show_default=False)],
) -> None:
    """How far a checkpointed run is: what it computes, how much is done, when it was last written."""
    if not file.is_file():
        advice = "Give the file of: noisewise fit FILE --checkpoint run.nwc."
        raise refusal("status", "file", "must be an existing checkpoint", str(file), advice)

    typer.echo(in_file_words(describe(file)))


def serve(
    folder: Annotated[Path, typer.Argument(help="Folder for the runs of the page.")] = Path("noisewise-runs"),
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Open a local page to explore with: type values, edit a model, see prior, naive and exact posterior.

    The page can be reached from this machine only, by the address that is printed. Stop it with Ctrl-C.
    """
    serve_page(folder, port, browser)
