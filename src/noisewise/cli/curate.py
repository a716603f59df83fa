"""The curator's command: release."""

from pathlib import Path
from typing import Annotated

import typer

from noisewise import curator
from noisewise.cli.shared import Json, say_json
from noisewise.errors import refusal


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(release)


def release(
    data: Annotated[Path, typer.Argument(help="Confidential records: a CSV file with a header.", show_default=False)],
    plan: Annotated[
        Path, typer.Argument(help="What to publish: a TOML file, see docs/curators.md.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Where to write the release; must not exist yet.")] = Path("release.json"),
    json: Json = False,
) -> None:
    """For curators: draw a release with OpenDP. Nothing confidential is printed or written."""
    if out.exists() or not out.parent.is_dir():
        advice = "Every run spends the budgets again: keep the old release, or choose another name."
        raise refusal("release", "out", "must be a new file in an existing directory", str(out), advice)
    drawn = curator.release_file(data, plan)
    drawn.save(out)
    if json:
        say_json(drawn.to_dict() | {"file": str(out)})
        return
    for name, item in drawn.items():
        guarantee = item.mechanism.guarantee.to_dict() if item.mechanism.guarantee else {}
        budget = ", ".join(f"{key} = {guarantee[key]:g}" for key in ("epsilon", "rho") if key in guarantee)
        shape = "x".join(map(str, item.shape)) or "a number"
        typer.echo(f"{name}: {type(item.mechanism).__name__} ({shape}), {budget}, {guarantee.get('neighbours')}")
    typer.echo(f"Release: {out}")
