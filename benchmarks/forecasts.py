"""Seconds that `nw.forecast` tells beside those that `nw.sample` then takes, on twenty problems.

Each problem in a process of its own: forecast and run when nothing of the model is compiled but what the forecast
itself needs ("first"), then forecast and run once more ("warm"). A ratio is forecast seconds over those on the clock.

    python benchmarks/forecasts.py [--only WORD ...] [--write]
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import page
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
DRAWS, SEED, FACTOR = 4_000, 1, 2.0
REALISTIC = (
    "count_gaussian_conflict_of_8_sd",
    "count_in_thousand_millions",
    "weeks_of_overdispersed_cases",
    "share_of_a_thousand",
    "answers_in_total",
    "answers_one_by_one",
    "table_of_four_cells",
    "mean_of_a_hundred",
    "rows_with_heavy_tails",
    "clamped_sum_of_thirty",
    "outbreak_simulated",
    "rates_of_a_thousand",
    "means_of_eight_schools",
)
"""Of tests/campaigns/realistic."""


def problems():
    """Model and release of each, by name: eight kinds whose first result is measured, and what analysts have."""
    import first_problems

    sys.path.insert(0, str(HERE.parent / "tests" / "campaigns"))
    from realistic.catalogue import PROBLEMS

    found = {name: build for name, build in first_problems.PROBLEMS.items() if name != "histogram"}
    for name in REALISTIC:
        found[name.replace("_", " ")] = lambda name=name: _pair(PROBLEMS[name]())
    return found


def _pair(case):
    return case.model, case.release


def measured(name, processor):
    """Forecast and run, twice; all clocks and one thread count the `processor`'s time where that is asked for."""
    import noisewise as nw

    if processor:
        time.perf_counter = time.monotonic = time.process_time
    common = {"draws": DRAWS, "seed": SEED, "engine": nw.Threads(1) if processor else None}
    warnings.simplefilter("ignore")
    model, release = problems()[name]()
    found = {}
    for when in ("first", "warm"):
        told = nw.forecast(model, release, **common)
        start = time.perf_counter()
        posterior = nw.sample(model, release, progress=False, on_failure="return", **common)
        seconds = time.perf_counter() - start
        found[when] = {"told": float(told.table()["seconds"].iloc[0]), "taken": seconds}
    return found | {"sampler": type(posterior.sampler).__name__, "chosen": type(told.choice).__name__}


def in_process(name, processor):
    """`measured` in a process of its own."""
    command = [sys.executable, __file__, "--worker", name, *["--processor"] * processor]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


HEAD = ["problem", "sampler", "first: told", "taken", "ratio", "warm: told", "taken", "ratio"]


def row(name, found):
    """One line of the table."""
    cells = [name, found["sampler"]]
    for when in ("first", "warm"):
        told, taken = found[when]["told"], found[when]["taken"]
        cells += [f"{told:.2f}", f"{taken:.2f}", f"{told / taken:.2f}"]
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[""], help="words, one of which a problem's name must hold")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--processor", action="store_true", help="processor time of one thread: for a busy machine")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(measured(arguments.worker, arguments.processor)))
        return
    names = [name for name in problems() if any(word in name for word in arguments.only)]
    rows, within = [], {"first": 0, "warm": 0}
    table = Table(*HEAD)
    for name in names:
        found = in_process(name, arguments.processor)
        for when in within:
            ratio = found[when]["told"] / found[when]["taken"]
            within[when] += 1.0 / FACTOR <= ratio <= FACTOR
        rows.append(row(name, found))
        table.add_row(*rows[-1])
        print("  ".join(rows[-1]), flush=True)
    said = f"Within a factor of {FACTOR:g}: {within['first']} of {len(names)} first runs, {within['warm']} warm ones."
    console = Console(width=150)
    console.print(table)
    console.print(said)
    if arguments.write:
        about = " ".join(__doc__.split("\n\n")[1].split())
        command = page.measured_by("python benchmarks/forecasts.py --write")
        page.write(
            "forecasts", "\n\n".join(["## Forecasts of seconds", command, about, page.table([HEAD, *rows]), said])
        )


if __name__ == "__main__":
    main()
