"""What a checkpoint costs: the same run with one and without, turn by turn.

    python benchmarks/checkpoint.py [--write]

Seconds are the best of twenty turns, after one run to compile; processor time counts all threads, so that other work
on the machine shows less in it. The file is written anew each time.
"""

import sys
import tempfile
import time
from pathlib import Path

import page
from foundation import count_problem, lalonde_problem

import noisewise as nw

REPEATS = 20
CASES = {
    # name: (problem, sampler, draws)
    "count, Rejection": (count_problem, nw.Rejection(), 2_000_000),
    "count, Importance": (count_problem, nw.Importance(), 2_000_000),
    "count, Augmentation": (count_problem, nw.Augmentation(), 20_000),
    "Lalonde, Rejection": (lalonde_problem, nw.Rejection(), 100_000),
}
HEAD = ["case", "draws", "seconds without", "seconds with", "ratio", "ratio of processor time", "file, MB"]


def measure(name, folder):
    """One row of text."""
    make, sampler, draws = CASES[name]
    problem, path = make(), Path(folder) / "run.nwc"
    found = {None: [], path: []}
    for repeat in range(REPEATS + 1):
        for where, times in found.items():
            path.unlink(missing_ok=True)
            began = time.perf_counter(), time.process_time()
            nw.sample(*problem, sampler, draws=draws, seed=1, progress=False, checkpoint=where, on_failure="return")
            if repeat:
                times.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    size = path.stat().st_size / 1e6
    (wall, processor), (wall_kept, processor_kept) = (map(min, *times) for times in found.values())
    ratios = f"{wall_kept / wall:.2f}", f"{processor_kept / processor:.2f}"
    return [name, f"{draws:,}", f"{wall:.3f}", f"{wall_kept:.3f}", *ratios, f"{size:.1f}"]


def main():
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in CASES:
            rows.append(measure(name, folder))
            print(" | ".join(rows[-1]), flush=True)
    if sys.argv[1:] == ["--write"]:
        told = [page.measured_by("python benchmarks/checkpoint.py --write"), __doc__.split("\n\n")[2]]
        page.write("checkpoint", "\n\n".join(["## What a checkpoint costs", *told, page.table([HEAD, *rows])]))


if __name__ == "__main__":
    main()
