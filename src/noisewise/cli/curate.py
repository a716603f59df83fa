"""The curator's commands: release, ledger, design."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise import curator
from noisewise.analysis import DesignFile
from noisewise.cli.shared import (
    FAILED,
    MISTAKE,
    WHOLE,
    Checkpoint,
    Json,
    Quiet,
    Seed,
    fail,
    note,
    say_json,
    say_table,
    write_new,
)
from noisewise.errors import refusal
from noisewise.mechanisms.guarantee import NEIGHBOURS
from noisewise.report.design import DesignTable
from noisewise.workflow import designing

Data = Annotated[Path, typer.Argument(help="Confidential records: a CSV file with a header.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (release, ledger, design):
        app.command()(command)


def release(
    data: Data,
    plan: Annotated[
        Path, typer.Argument(help="What to publish: a TOML file, see docs/curators.md.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Where to write the release; must not exist yet.")] = Path("release.json"),
    yes: Annotated[bool, typer.Option("--yes", help="Draw without asking; scripts need it.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, and draw from made-up rows; nothing is spent or kept.")
    ] = False,
    json: Json = False,
) -> None:
    """For curators: draw a release with OpenDP. Nothing confidential is printed or written."""
    beside = out.with_suffix(".toml")
    for file in (out, beside):
        if not dry_run and (file.exists() or not file.parent.is_dir() or out.suffix == ".toml"):
            advice = "Every run spends the budgets again: keep the old release, or choose another name, as new.json."
            raise refusal("release", "out", "must be a new file in an existing directory", str(file), advice)
    prepared = curator.prepare(data, plan)
    _tell(prepared)
    if dry_run:
        drawn = prepared.rehearse()
        if json:
            say_json(_without_values(drawn) | {"dry_run": True})
            return
        _say_statistics(drawn)
        typer.echo("Rehearsed on made-up rows: nothing was spent, entered or written.")
        return
    if not yes:
        _confirm()
    drawn = prepared.draw(str(out))
    drawn.save(out)
    text = curator.starter(prepared.plan, drawn, out.name, prepared.table.size)
    write_new(beside, text, "release")
    if json:
        say_json(drawn.to_dict() | {"file": str(out), "analysis": str(beside)})
        return
    _say_statistics(drawn)
    typer.echo(f"Release: {out}")
    typer.echo(f"Analysis file to begin with: {beside}")


def _tell(prepared: curator.Prepared) -> None:
    """What would be promised, by this release and by all so far; to standard error, before anything is drawn."""
    guarantee = prepared.plan.guarantee
    typer.echo(curator.in_words(guarantee), err=True)
    assert prepared.ledger is not None
    after = prepared.ledger.after(guarantee)
    if after != guarantee:
        typer.echo(f"With all that was drawn before: {curator.in_words(after)}", err=True)
    if prepared.ledger.total is None:
        note(f"the ledger {prepared.ledger.path.name} states no total. Set one: noisewise ledger DATA --epsilon 1.0.")
    large = curator.warning(after)
    if large is not None:
        note(large)


def _confirm() -> None:
    if not sys.stdin.isatty():
        fail("release: nothing was drawn: there is no terminal to ask at. Add --yes to draw without asking.", MISTAKE)
    if not typer.confirm("Draw the release, and spend this?", err=True):
        fail("release: nothing was drawn.", MISTAKE)


def _say_statistics(drawn: Any) -> None:
    for name, item in drawn.items():
        guarantee = item.mechanism.guarantee.to_dict() if item.mechanism.guarantee else {}
        budget = ", ".join(f"{key} = {guarantee[key]:g}" for key in ("epsilon", "rho") if key in guarantee)
        shape = "x".join(map(str, item.shape)) or "a number"
        typer.echo(f"{name}: {type(item.mechanism).__name__} ({shape}), {budget}, {guarantee.get('neighbours')}")


def _without_values(drawn: Any) -> dict[str, Any]:
    content: dict[str, Any] = drawn.to_dict()
    for entry in content["statistics"].values():
        del entry["value"]
    return content


def ledger(
    data: Data,
    epsilon: Annotated[float | None, typer.Option(help="From now on, the most to spend in all.")] = None,
    delta: Annotated[float | None, typer.Option(help="With --epsilon, where Gaussian noise is drawn.")] = None,
    rho: Annotated[float | None, typer.Option(help="The same in rho, in place of --epsilon.")] = None,
    neighbours: Annotated[str, typer.Option(help=f"{NEIGHBOURS[0]} or {NEIGHBOURS[1]}.")] = NEIGHBOURS[0],
    json: Json = False,
) -> None:
    """For curators: what has been drawn from a file of records, and the total that must not be exceeded."""
    if not data.is_file():
        raise refusal("ledger", "data", "must be an existing file", str(data), "Check the path.")
    account = curator.Ledger.beside(data)
    stated = {key: value for key, value in (("epsilon", epsilon), ("delta", delta), ("rho", rho)) if value is not None}
    if stated:
        account.set_total(neighbours, **stated)
    entries, total, spent = account.entries(), account.total, account.spent
    if json:
        summary = {"total": total and total.to_dict(), "spent": spent and spent.to_dict()}
        say_json({"file": str(account.path), "entries": entries, **summary})
        return
    for entry in entries:
        what = "total" if "total" in entry else f"release {entry['out']} ({', '.join(entry['statistics'])})"
        typer.echo(f"{entry['when']}  {entry['who']}  {what}: {_budget(entry.get('total') or entry['guarantee'])}")
    typer.echo(f"Total: {'not stated' if total is None else _budget(total.to_dict())}")
    typer.echo(f"Drawn so far: {'nothing' if spent is None else _budget(spent.to_dict())}")
    if spent is not None:
        typer.echo(curator.in_words(spent))


def _budget(guarantee: dict[str, Any]) -> str:
    parts = [f"{key} = {guarantee[key]:g}" for key in ("epsilon", "delta", "rho") if key in guarantee]
    return ", ".join([*parts, str(guarantee.get("neighbours"))])


def design(
    file: Annotated[
        Path, typer.Argument(help="An analysis file with [design]; no release is needed.", show_default=False)
    ],
    replicates: Annotated[
        int | None, typer.Option(help="Simulated releases to begin with; in place of the file's.", **WHOLE)
    ] = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(help="Write a folder with report, curve and picture.")] = None,
    checkpoint: Checkpoint = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """For curators: which budget, or how many people, does a question need? No confidential data are used.

    Exit code 1 where nothing in the range does.
    """
    stated = designing.with_settings(DesignFile.load(file), seed, replicates)
    if out is not None:
        designing.check_folder(out)
    designed = designing.run_design(stated, checkpoint=checkpoint, progress=False if quiet else None)
    if out is not None:
        designing.write(designed, out)
    if json:
        say_json(designed.to_dict())
    else:
        for sentence in designed.sentences:
            typer.echo(sentence)
        for table in designed.tables:
            _say_design_table(table)
        if out is not None:
            typer.echo(f"Report: {out / 'report.html'}")
    if not designed.is_met:
        sought = "budget" if stated.design.people is None else "number of people"
        fail(f"design: no {sought} in the range meets the target.", FAILED)


def _say_design_table(table: DesignTable) -> None:
    """Print a table as the report has it; the plan, in sentences."""
    import pandas as pd

    if table.key == "plan":
        for name, amount, noise in table.rows:
            typer.echo(f"In such a release, {name} ({table.columns[1]}: {amount}) {noise}.")
        return
    names, cells = [row[0] for row in table.rows], [list(row[1:]) for row in table.rows]
    typer.echo(f"{table.caption}:")
    say_table(pd.DataFrame(cells, index=names, columns=list(table.columns[1:])))
