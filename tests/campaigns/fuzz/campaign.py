"""The fuzz campaign: `cd tests && python -m fuzz.campaign 100000 [SEED [JOBS]]` (make fuzz).

Malformed files in batches, JOBS (2) at once, each in a process of its own with limits of time and memory
(fuzz/batch.py). A crash of the process itself is told by its signal; with result files it comes from the HDF5 library.
Ends with status 1 where anything but success and the library's own error was found. Then Hypothesis and, where it is
installed, Atheris.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
SHARES = {"release": 0.80, "analysis": 0.08, "checkpoint": 0.045, "state": 0.005, "result": 0.04, "fit": 0.03}
BATCH = {"release": 10_000, "analysis": 1_000, "checkpoint": 1_000, "state": 250, "result": 1_000, "fit": 1_500}
WALL = 1_800.0
"""Seconds for one batch: an input that hangs in C is ended with its process."""
GUIDED = {"release": 20_000, "analysis": 2_000}
"""Runs of Atheris, which is guided by what it reaches in the readers' code."""
EXAMPLES = 1_000
"""Of Hypothesis, for each kind."""


def batch(kind, seed, first, count, kept):
    """Findings and tally of one batch; after a crash the rest of it in another process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fuzz.batch", kind, str(seed), str(first), str(count), folder]
        try:
            paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            done = subprocess.run(
                command, cwd=HERE.parent, env=os.environ | paths, capture_output=True, text=True, timeout=WALL
            )
            code, output, errors = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as error:
            code, output, errors = "no end", (error.stdout or b"").decode(), ""
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        at = Path(folder) / f"{kind}.at"
        if code == 0:
            _keep(folder, lines, kept)
            return lines
        if not at.exists():
            raise RuntimeError(f"{kind}: the batch did not start: {errors[-2_000:]}")
        number = int(at.read_text())
        crashed = {"finding": f"the process ended with {code}", "number": number, "file": f"{kind}-{seed}-{number}"}
        (Path(folder) / f"{kind}.input").rename(Path(folder) / crashed["file"])
        lines.append(crashed)
        _keep(folder, lines, kept)
    tried = {"tally": {"before a crash": number + 1 - first}, "slowest": 0.0, "growth": 0}
    left = first + count - number - 1
    return [*lines, tried, *(batch(kind, seed, number + 1, left, kept) if left else [])]


def _keep(folder, lines, kept):
    for line in lines:
        if "file" in line:
            kept.mkdir(parents=True, exist_ok=True)
            (kept / line["file"]).write_bytes((Path(folder) / line["file"]).read_bytes())


def campaign(total, seed, kept, jobs):
    """The lines of all batches, by kind."""
    works = []
    for kind, share in SHARES.items():
        wanted = round(total * share)
        for first in range(0, wanted, BATCH[kind]):
            works.append((kind, seed, first, min(BATCH[kind], wanted - first), kept))
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda work: batch(*work), works))
    lines = {kind: [] for kind in SHARES}
    for work, told in zip(works, found, strict=True):
        lines[work[0]] += told
    return lines


def report(found):
    """Print a row per kind and every finding; their number."""
    print(f"{'files':<12}{'inputs':>9}{'read':>9}{'refused':>9}{'findings':>9}{'slowest':>10}{'memory':>12}")
    findings = 0
    for kind, lines in found.items():
        tally = Counter()
        for line in lines:
            tally.update(line.get("tally", {}))
        bad = [line for line in lines if "finding" in line]
        findings += len(bad)
        slowest = max((line["slowest"] for line in lines if "tally" in line), default=0.0)
        growth = max((line["growth"] for line in lines if "tally" in line), default=0) / 2**20
        row = f"{sum(tally.values()):>9,}{tally['read']:>9,}{tally['refused']:>9,}{len(bad):>9,}"
        print(f"{kind:<12}{row}{slowest:>8.2f} s{growth:>8.0f} MiB")
        for line in bad[:20]:
            print(f"  {line['file']}: {line['finding']}")
    return findings


def guided(kind, runs):
    """Atheris on one kind; its exit status."""
    command = [sys.executable, "-m", "fuzz.guided", kind, str(runs)]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, timeout=WALL)
    last = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith(("Done", "==", "Uncaught"))]
    print(f"atheris, {kind}: {'; '.join(last[-2:]) or done.stderr[-500:]}")
    return done.returncode


def main(total=100_000, seed=1, jobs=2):
    kept = HERE.parents[2] / "build" / "fuzz"
    bad = report(campaign(total, seed, kept, jobs))
    if find_spec("hypothesis"):
        from fuzz import properties

        for kind in SHARES:
            properties.check(kind, EXAMPLES // 5 if kind in ("state", "result") else EXAMPLES, seed)
            print(f"hypothesis, {kind}: no counterexample")
    else:
        print("hypothesis is not installed: left out")
    if find_spec("atheris"):
        bad += sum(guided(kind, runs) != 0 for kind, runs in GUIDED.items())
    else:
        print("atheris is not installed: left out")
    print(f"{bad} findings" + (f", kept in {kept}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:4])))
