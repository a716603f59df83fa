"""What more threads give, beside what the machine gives to processes that share nothing.

    python benchmarks/threads.py [--write | --out FILE | --page FILE]

One thread, several threads of one process, and as many processes with one thread each take turns, after one run each
to compile; medians are shown. Every thread has the same number of draws to make, however many there are: what is
measured is how many come in a second, not how soon a short run ends. Processes that know nothing of each other are the
most that a machine's processors give: where they fall short of their number, other work, shared memory or shared clocks
slow them down.
`--write` puts the table on the page, that of a free-threaded Python (`PYTHON_GIL=0 python3.13t`) beside the other's;
`--out` and `--page` do that for a machine from which the page cannot be reached.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import page

CASES = ("count", "Lalonde")
HEAD = ["case", "threads", "draws/s", "times one thread", "processes apart, times one", "threads / processes", "MiB"]


def work(name):
    """Run what is asked for on standard input, so many threads and a seed, and say draws per second and peak memory."""
    from foundation import count_problem, lalonde_problem

    import noisewise as nw

    make, share = {"count": (count_problem, 1_000_000), "Lalonde": (lalonde_problem, 100_000)}[name]
    problem = make()
    for line in sys.stdin:
        threads, seed = map(int, line.split())
        draws = threads * share
        began = time.perf_counter()
        nw.sample(*problem, nw.Rejection(), draws=draws, seed=seed, engine=nw.Threads(threads), progress=False)
        print(draws / (time.perf_counter() - began), page.peak(), flush=True)


class Worker:
    """A process of its own that runs one case."""

    def __init__(self, name):
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-W", "ignore", __file__, "--work", name]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
        self.process = subprocess.Popen(command, **pipes)

    def ask(self, threads, seed):
        self.process.stdin.write(f"{threads} {seed}\n")
        self.process.stdin.flush()

    def told(self):
        """Draws per second of what was asked, and the process's peak memory in MiB."""
        return [float(number) for number in self.process.stdout.readline().split()]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(name, size, turns):
    """Medians over turns of draws per second: one thread, `size` threads, `size` processes; and the threads' memory."""
    workers = [Worker(name) for _ in range(size)]
    found = []
    for turn in range(turns + 1):
        row = []
        for threads in (1, size):
            workers[0].ask(threads, turn)
            rate, memory = workers[0].told()
            row.append(rate)
        for number, worker in enumerate(workers):
            worker.ask(1, 1_000 * number + turn)
        row.append(sum(worker.told()[0] for worker in workers))
        found.append([*row, memory])
    for worker in workers:
        worker.end()
    return np.median(found[1:], axis=0).tolist()


def measured(turns, sizes):
    """The table's rows."""
    processors = len(os.sched_getaffinity(0))
    for name in CASES:
        for size in [size for size in sizes if size <= max(2, processors)]:
            one, many, apart, memory = measure(name, size, turns)
            ratios = (f"{ratio:.2f}" for ratio in (many / one, apart / one, many / apart))
            yield [name, str(size), f"{many:,.0f}", *ratios, f"{memory:,.0f}"]


def told(title, where, rows):
    """A part of the page."""
    what = __doc__.split("\n\n")[2].replace("\n", " ").partition(" `--write`")[0]
    by = page.measured_by("python benchmarks/threads.py", where)
    return "\n\n".join([title, by, what, page.table([HEAD, *rows])])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--out")
    parser.add_argument("--page")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 4, 8, 16])
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.work)
    elif chosen.page:
        found = json.loads(Path(chosen.page).read_text())
        page.write("threads elsewhere", told("### On a machine with more processors", **found))
    else:
        rows = []
        for row in measured(chosen.turns, chosen.sizes):
            rows.append(row)
            print(*row, flush=True)
            if chosen.out:
                Path(chosen.out).write_text(json.dumps({"where": page.machine(), "rows": rows}))
        if chosen.write:
            part, title = "threads", "## Threads"
            if not page.locked():
                part, title = "threads without a lock", "### Without the interpreter's lock"
            page.write(part, told(title, page.machine(), rows))


if __name__ == "__main__":
    main()
