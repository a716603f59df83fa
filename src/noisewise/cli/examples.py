"""Commands that need no file: demo, paper."""

import time
from pathlib import Path
from typing import Annotated, Any

import numpyro.distributions as dist
import typer

import noisewise as nw
from noisewise.cli.shared import WHOLE
from noisewise.errors import writable
from noisewise.plots import posterior as plots
from noisewise.report import figures


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(demo)
    app.command()(paper)


def demo(
    out: Annotated[Path, typer.Option(help="Where to write the picture.")] = Path("noisewise-demo.png"),
    draws: Annotated[int, typer.Option(help="How many posterior draws.", **WHOLE)] = 10_000,
    seed: Annotated[int, typer.Option(help="Decides every random number.", **WHOLE)] = 1,
) -> None:
    """A privatised count (Gong 2022, section 5.1): exact posterior beside the naive one."""
    start = time.monotonic()
    release = nw.Release(count=nw.Laplace(epsilon=0.2, sensitivity=1.0).released(37.4))
    model = nw.Model(
        prior={"theta": dist.Gamma(25.0, 1.0)},
        statistics={"count": lambda theta: dist.Poisson(theta)},
    )
    comparison = nw.compare(model, release, draws=draws, seed=seed)
    _print_demo(comparison)
    with writable("demo", out, "out", "Check that its folder exists."):
        _picture(comparison).savefig(out, dpi=150)
    typer.echo(f"Picture: {out}   ({time.monotonic() - start:.1f} s)")


def _picture(comparison: "nw.Comparison") -> Any:
    """Exact, naive and prior, with their intervals, in words."""
    exact, naive = comparison.exact, comparison.naive
    before = plots.prior_draws(comparison.model, exact.seed)
    figure, axes = plots.grid_of_panels(2, 3.4, 0.6)
    words = {"theta": "the rate: how many to expect", "count": "the confidential count: how many there really were"}
    for axis, (name, label) in zip(axes, words.items(), strict=True):
        plots.panel(axis, exact, name, (), before, naive, smooth=True)
        figures.bars(axis, exact, naive, name, (), 0.95)
        axis.set_xlabel(label)
        axis.set_ylabel("")
        axis.set_yticks([])
        axis.spines["left"].set_visible(False)
    plots.legend(figure, axes, "outside lower center")
    figure.suptitle("Published: 37.4, with privacy noise. What is known? (Bars: 95% intervals.)", fontsize=11)
    return figure


def _print_demo(comparison: "nw.Comparison") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(
        "A count was published as [bold]37.4[/bold], with Laplace noise for epsilon = 0.2 (scale 5).\n"
        "Model: count ~ Poisson(theta), prior theta ~ Gamma(25, 1).\n"
    )
    table = Table("", "mean", "sd", "95% interval")
    rows = (
        ("theta, naive (noise ignored)", comparison.naive, "theta"),
        ("theta, exact", comparison.exact, "theta"),
        ("the confidential count, exact", comparison.exact, "count"),
    )
    for label, posterior, name in rows:
        assert posterior is not None  # a Poisson law has a naive analysis
        row = posterior.summary().loc[name]
        table.add_row(label, f"{row['mean']:.2f}", f"{row['sd']:.2f}", f"{row['2.5%']:.1f} to {row['97.5%']:.1f}")
    console.print(table)
    line = comparison.table().loc["theta"]
    exact = comparison.exact
    console.print(
        f"The exact interval is {line['wider']:.2f} times as wide, and its centre lies {abs(line['shift']):.2f} naive "
        f"standard deviations {'below' if line['shift'] < 0 else 'above'}.\n"
        f"{len(exact):,} independent exact draws from {exact.proposals:,} proposals "
        f"(acceptance {100 * (exact.acceptance_rate or 0):.2f}%)."
    )


def paper(
    out: Annotated[Path, typer.Option(help="Folder for figures, tables and paper.html.")] = Path("noisewise-paper"),
    seed: Annotated[int, typer.Option(help="Decides every random number.", **WHOLE)] = 1,
    reduced: Annotated[bool, typer.Option("--reduced", help="A quick run with larger Monte Carlo errors.")] = False,
) -> None:
    """Recompute every number and figure of Gong (2022), beside the paper's and beside exact values."""
    from rich.console import Console

    from noisewise.paper import REDUCED, folder_at, reproduce, write  # loads scipy.stats and pictures, needed only here

    start = time.monotonic()
    folder_at(out)
    console = Console(stderr=True)
    with console.status("Starting") as status:
        reproduction = reproduce(
            REDUCED if reduced else None, seed=seed, progress=lambda text: _step(console, status, text)
        )
        status.update("Writing figures, tables and page")
        written = write(reproduction, out)
    for number in reproduction.numbers:
        if not number.holds:
            typer.echo(f"{number.section}: {number.label}: {number.verdict}")
    agreeing = sum(number.holds for number in reproduction.numbers)
    typer.echo(
        f"{agreeing} of {len(reproduction.numbers)} numbers are within their Monte Carlo error of the exact value."
    )
    typer.echo(f"Page: {written[-1]}   ({time.monotonic() - start:.0f} s)")
    if not reproduction.holds:
        raise typer.Exit(1)


def _step(console: Any, status: Any, text: str) -> None:
    """Say what comes next: on a terminal in place, elsewhere as a line."""
    status.update(text)
    if not console.is_terminal:
        typer.echo(text, err=True)
