"""Commands about release files: describe, registry, croissant."""

import json
from pathlib import Path
from typing import Annotated

import typer

from noisewise.cli.shared import Json, note, say_json, write_new
from noisewise.release import Release
from noisewise.report import croissant as portal
from noisewise.report import described
from noisewise.report import registry as deployments

File = Annotated[Path, typer.Argument(help="The release file, such as release.json.", show_default=False)]
Out = Annotated[Path | None, typer.Option(help="Where to write it; printed otherwise. Must not exist yet.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(describe)
    app.command()(registry)
    app.command()(croissant)


def describe(file: File, json: Json = False) -> None:
    """Say what a release file holds: where it comes from, what was published, what privacy was promised."""
    release = Release.load(file)
    if not json:
        typer.echo(described.described(release), nl=False)
        return
    content = release.to_dict()
    statistics = {
        name: {key: value for key, value in entry.items() if key != "value"} | {"shape": list(release[name].shape)}
        for name, entry in content.pop("statistics").items()
    }
    say_json(content | {"statistics": statistics, "privacy": described.promised(release)})


def registry(file: File, out: Out = None) -> None:
    """Write an entry for OpenDP's registry of deployments (YAML), as far as the release can fill it in."""
    entry = deployments.entry(Release.load(file))
    _said("registry", deployments.to_yaml(entry), out)
    for field in deployments.missing(entry):
        note(f"to be filled in: {field}")


def croissant(
    file: File,
    url: Annotated[str | None, typer.Option(help="The page where the release can be found.")] = None,
    out: Out = None,
) -> None:
    """Write a sidecar for data portals: Croissant metadata (JSON-LD) about the release file."""
    content = portal.sidecar(Release.load(file), file.name, file.read_bytes(), url)
    _said("croissant", json.dumps(content, indent=2, ensure_ascii=False) + "\n", out)
    for name in portal.missing(content):
        note(f"Croissant requires '{name}', which {'--url gives' if name == 'url' else 'the release does not state'}")


def _said(command: str, text: str, out: Path | None) -> None:
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_new(out, text, command)
