"""`make realistic`: does `nw.sample` without a setting deliver, on problems as analysts have them?

    python -m realistic [--jobs 1] [--only WORD ...] [--seeds 1 2 3] [--out FILE]

For every problem and seed, `nw.sample(model, release, draws=4000, seed=seed)` in a process of its own, compared with an
answer computed without the library. A result is right, wrong (complete, and beyond the limit), refused (with its
reason), broken (an error that is none of the library's), or late (over 60 s; stopped after 180 s). Prints one line
each and a summary; ends with 1 if anything is wrong or broken. The machine's processors are dealt out to `--jobs`
processes at a time: the seconds are those that a user would see who has so many.
"""

import argparse
import concurrent.futures
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from realistic.catalogue import PROBLEMS

DELIVERED, STOPPED = 60.0, 180.0
"""Seconds within which a result counts as delivered, and after which a run is stopped."""
AROUND = 420.0
"""Seconds for what is on nobody's clock: imports, the truth, the forecast."""


def run(name, seed, folder):
    """One problem with one seed; plain data."""
    row = {"problem": name, "seed": seed}
    command = [sys.executable, "-m", "realistic.worker", name, str(seed), str(folder)]
    path = os.pathsep.join([str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process,
    ):
        for limit in (AROUND, STOPPED, AROUND):
            line = next_line(process, limit)
            if not line:
                break
            row |= json.loads(line)
        process.kill()
        process.wait()
        errors.seek(0)
        said = errors.read()[-300:]
    stage = row.pop("stage", None)
    if stage is None:
        row |= {"result": "broken", "status": "truth", "seconds": 0.0, "why": said}
    elif stage == "start" and line is None:
        row |= {"result": "late", "status": "stopped", "seconds": STOPPED, "why": "stopped"}
    elif stage == "start":
        row |= {"result": "broken", "status": "error", "seconds": 0.0, "why": said}
    elif row["result"] in ("right", "refused") and row["seconds"] > DELIVERED:
        row["result"] = "late"
    return row


def pin(shares):
    """A thread, and the processes that it starts, have processors of their own."""
    os.sched_setaffinity(0, shares.get())


def next_line(process, seconds):
    """The next line of the process, empty if it ended; None if none came in time."""
    with concurrent.futures.ThreadPoolExecutor(1) as reader:
        line = reader.submit(process.stdout.readline)
        try:
            return line.result(timeout=seconds)
        except concurrent.futures.TimeoutError:
            process.kill()
            return None


def table_line(row):
    forecast = f"{row.get('forecast', '-')} {row.get('forecast_seconds', float('nan')):.1f}"
    z = f"{row['z']:.2f} ({row['at']})" if "z" in row else row.get("why", "").replace("\n", " ")[:110]
    return (
        f"{row['problem']:42} {row['seed']:4} {row['result']:8} {row['status']:12} {row.get('sampler', '-'):20} "
        f"{row['seconds']:7.1f} {row.get('processor', float('nan')):9.1f}   {forecast:26} {z}"
    )


def summary(rows):
    tally = Counter(row["result"] for row in rows)
    shares = {seed: [row["result"] == "right" for row in rows if row["seed"] == seed] for seed in sorted_seeds(rows)}
    each = ", ".join(f"seed {seed}: {statistics.mean(right):.1%}" for seed, right in shares.items())
    counts = ", ".join(f"{tally[kind]} {kind}" for kind in ("right", "wrong", "refused", "late", "broken"))
    problems = len({row["problem"] for row in rows})
    return f"{problems} problems, {len(rows)} runs: {counts}; complete and right within {DELIVERED:.0f} s: {each}"


def sorted_seeds(rows):
    return sorted({row["seed"] for row in rows})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--only", nargs="*", default=[""], help="words, one of which a problem's name must hold")
    parser.add_argument("--out", help="a file for the rows, as JSON")
    chosen = parser.parse_args()
    names = [name for name in PROBLEMS if any(word in name for word in chosen.only)]
    print(
        f"{'problem':42} seed {'result':8} {'status':12} {'sampler':20} seconds processor   {'forecast (seconds)':26} "
        "largest |z| of its limit, or why"
    )
    rows = []
    processors, shares = sorted(os.sched_getaffinity(0)), queue.SimpleQueue()
    for number in range(chosen.jobs):
        shares.put(processors[number :: chosen.jobs] or processors)
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(chosen.jobs, initializer=pin, initargs=(shares,)) as pool,
    ):
        jobs = [(name, seed, folder) for name in names for seed in chosen.seeds]
        for row in pool.map(lambda job: run(*job), jobs):
            rows.append(row)
            print(table_line(row), flush=True)
            if chosen.out:
                Path(chosen.out).write_text(json.dumps(rows, indent=1) + "\n")
    print(summary(rows))
    sys.exit(1 if any(row["result"] in ("wrong", "broken") for row in rows) else 0)


if __name__ == "__main__":
    main()
