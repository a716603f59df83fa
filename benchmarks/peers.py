"""`make bench-peers`: effective draws per second of this library and its peers, side by side, at equal exactness.

Each peer is installed from PyPI into an environment of its own under build/peers, and its script in benchmarks/peers
times independent runs. Effective draws of a run: its independent draws where the method gives such; else the posterior
variance over the variance of the posterior mean between runs, of the worst parameter (with r runs that is known to
about sqrt(2 / r) of itself). Compilation is not timed. `--write` puts the table into docs/benchmarks.md.
"""

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import page
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "benchmarks" / "peers"
PROBLEMS = ("count, Gamma(25, 1)", "count, Gamma(2, 1)", "Lalonde")
SIZES = {  # draws of a run for each problem, and runs
    "noisewise": ((2_000_000, 1_000_000, 300_000), 20),
    "pyabc": ((500, 100, 50), 4),
    "elfi": ((20_000, 2_000, 2_000), 10),
    "pymc": ((2_000, 2_000, 2_000), 20),
    "numpyro": ((40_000, 40_000, 40_000), 20),
}
METHODS = {
    "noisewise": "the sampler it chooses",
    "pyabc": "StochasticAcceptor at temperature 1",
    "elfi": "rejection, 0/1 discrepancy at threshold 0",
    "pymc": "sample_smc, Laplace distance",
    "numpyro": "NUTS on the naive model",
}
GOALS = {"pyabc": {0: 1000.0, 1: 1000.0}, "elfi": {0: 5.0, 1: 5.0}, "numpyro": {0: 1.0, 1: 1.0, 2: 1.0}}
WALL = 600.0


def exact():
    """Exact posterior means and standard deviations, by problem."""
    count = json.loads((ROOT / "tests" / "reference" / "count.json").read_text())["by_alpha"]
    lalonde = json.loads((ROOT / "tests" / "reference" / "lalonde.json").read_text())["noisy_a"]["posterior"]
    entries = [[count["25"]], [count["2"]], list(lalonde.values())]
    return [(np.array([e["mean"] for e in one]), np.array([e["sd"] for e in one])) for one in entries]


def environment(name):
    """The Python of a peer's own environment, installed where it is not; or why it cannot be."""
    if name == "noisewise":
        return sys.executable
    folder = ROOT / "build" / "peers" / name
    python, stamp = folder / "bin" / "python", folder / ".installed"
    wanted = SCRIPTS / "requirements" / f"{name}.txt"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(wanted)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise RuntimeError(f"cannot be installed: {' '.join(errors)[-300:] or done.stderr[-300:]}")
        stamp.write_text(wanted.read_text())
    return str(python)


def timed(name, number, scale):
    """What a peer's script prints for one problem."""
    sizes, runs = SIZES[name]
    size, runs = max(int(sizes[number] * scale), 10), max(int(runs * min(1.0, 2 * scale)), 2 if name == "pyabc" else 8)
    command = [environment(name), str(SCRIPTS / f"run_{name}.py"), PROBLEMS[number], str(runs), str(size)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WALL)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"did not end within {WALL:g} s") from None
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1][:300])
    return json.loads(done.stdout.strip().splitlines()[-1])


def judged(told, mean, sd):
    """Effective draws per second, how they were counted, and how far the means are from the exact ones."""
    means, independent = np.array(told["means"]), told["independent"]
    between = np.var(means, axis=0, ddof=1)
    if None in independent:
        size, how = float(np.min(np.mean(told["variances"], axis=0) / between)), "between runs"
        error = np.sqrt(between / len(means))
    else:
        size, how = float(np.mean(independent)), "independent"
        error = sd / np.sqrt(np.sum(independent))
    off = means.mean(axis=0) - mean
    worst = int(np.argmax(abs(off / error)))
    return {
        "rate": size / float(np.mean(told["seconds"])),
        "how": how,
        "errors": float(abs(off / error)[worst]),
        "sds": float(np.max(abs(off / sd))),
        "runs": len(means),
    }


def measured(names, scale, console):
    """Judgements by (peer, problem number), versions and failures by peer."""
    found, versions, failures = {}, {}, {}
    for name in names:
        for number, (mean, sd) in enumerate(exact()):
            try:
                told = timed(name, number, scale)
            except RuntimeError as error:
                failures[name, number] = str(error)
                console.print(f"{name}, {PROBLEMS[number]}: {error}", markup=False)
                continue
            versions[name] = told["version"]
            found[name, number] = judged(told, mean, sd)
            console.print(f"{told['version']}, {PROBLEMS[number]}: {found[name, number]['rate']:,.1f} per second")
    return found, versions, failures


def rows(found, versions, failures):
    """The table's rows of text."""
    for name, number in [*found, *failures]:
        label = [versions.get(name, name), METHODS[name], PROBLEMS[number]]
        if (name, number) in failures:
            yield [*label, "none", failures[name, number], "", ""]
            continue
        one = found[name, number]
        ours = found.get(("noisewise", number))
        ratio = "" if ours is None or name == "noisewise" else f"{ours['rate'] / one['rate']:,.1f}"
        off = f"{one['errors']:.1f} errors, {one['sds']:.2g} sd"
        yield [*label, f"{one['rate']:,.0f}" if one["rate"] >= 100 else f"{one['rate']:.2g}", one["how"], off, ratio]


def goals(found):
    """Which goals are met."""
    for name, wanted in GOALS.items():
        for number, factor in wanted.items():
            if (name, number) in found and ("noisewise", number) in found:
                ratio = found["noisewise", number]["rate"] / found[name, number]["rate"]
                verdict = "met" if ratio >= factor else "not met"
                yield f"{PROBLEMS[number]}: {ratio:,.1f} times {name}, goal {factor:,.0f}: {verdict}"


HEAD = [
    *("library", "method", "problem", "effective draws/s", "counted by", "off the exact mean by"),
    "noisewise, times as fast",
]


def told(found, versions, failures):
    """The page's part."""
    about = (
        "Effective draws of a run are its independent draws, or the posterior variance over the variance of the "
        "posterior mean between independent runs (worst parameter). Errors are Monte Carlo standard errors of the mean "
        "over all runs, sd posterior standard deviations; the naive model is exact for another posterior than the "
        "right one, and is off by as much. Compilation is not timed."
    )
    table = page.table([HEAD, *rows(found, versions, failures)])
    lines = [f"- {goal}" for goal in goals(found)]
    return "\n".join(
        ["## Beside other libraries", "", page.measured_by("make bench-peers"), "", about, "", table, "", *lines]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("peers", nargs="*", metavar="PEER", help="only these; all without")
    parser.add_argument("--scale", type=float, default=1.0, help="fewer draws and runs, for a try")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    arguments = parser.parse_args()
    if not set(arguments.peers) <= set(SIZES):
        parser.error(f"peers are {', '.join(SIZES)}")
    console = Console(width=200)
    results = measured(arguments.peers or list(SIZES), arguments.scale, console)
    table = Table(*HEAD)
    for row in rows(*results):
        table.add_row(*row)
    console.print(table)
    for line in goals(results[0]):
        console.print(line)
    if arguments.write:
        page.write("peers", told(*results))


if __name__ == "__main__":
    main()
