"""How cost grows: with Dask processes, with records in a `Total`, with entries in a release.

    python benchmarks/scaling.py [--write]

Every row is measured in a process of its own, after one run to compile, best of three; memory is that process's peak,
for Dask with its workers' added. Dask's workers are processes of this machine with one thread each. They take turns
with two threads of the measuring process, beside which the last column sets them, in runs of some seconds: a cluster
takes a tenth of a second to have its first blocks, of which shorter runs would speak; a simulator written in Python
holds the interpreter's lock, and gains nothing from a second thread. What threads give is measured by threads.py.
"records" is a clamped mean, whose records are simulated; "known sums" are a number of bits, a sum and a sum of squares,
drawn by their own law.
"""

import json
import os
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import page
import record_costs
from foundation import count_problem, lalonde_problem

import noisewise as nw
from noisewise.engine import Dask, Threads

REPEATS = 3


def total_problem(records):
    """A clamped mean of `records` people, with noise that shrinks as a curator's would."""
    total = nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x, n=records: jnp.clip(x, -3.0, 3.0) / n, n=records)
    model = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"mean": total})
    return model, nw.Release(mean=nw.Laplace(scale=0.5).released(0.4))


def known_problem(records):
    """Bits, normal numbers and their squares, of `records` people; noise in proportion, so that all accept alike."""
    bits = nw.Total({"bit": lambda p: dist.Bernoulli(p)}, lambda bit: bit, n=records)
    squares = nw.Total({"x": lambda p: dist.Normal(p, 1.0)}, lambda x: jnp.stack([x, x**2]), n=records)
    model = nw.Model({"p": dist.Beta(2.0, 2.0)}, {"bits": bits, "squares": squares})
    noise = nw.Laplace(scale=0.2 * records)
    return model, nw.Release(bits=noise.released(0.4 * records), squares=noise.released(np.array([0.4, 1.2]) * records))


def entries_problem(entries):
    """Counts of many areas with one rate, each with a size of its own; weighted, as rejection would accept nothing."""
    sizes = np.linspace(1.0, 5.0, entries)
    model = nw.Model({"rate": dist.Gamma(20.0, 2.0)}, {"counts": lambda rate, n=sizes: dist.Poisson(rate * n)})
    released = np.random.default_rng(1).poisson(10.0 * sizes) + 0.5
    return model, nw.Release(counts=nw.Laplace(scale=3.0).released(released))


def simulate(rng, theta):
    """Holds the interpreter lock, as Python does."""
    return sum(rng.random() < theta for _ in range(50))


def simulator_problem(_=None):
    model = nw.Model({"theta": dist.Beta(2.0, 2.0)}, {"count": nw.Simulator(simulate)})
    return model, nw.Release(count=nw.Laplace(scale=2.0).released(31.4))


CASES = {
    # name: (problem, sampler, draws)
    "count": (count_problem, nw.Rejection(), 10_000_000),
    "Lalonde": (lalonde_problem, nw.Rejection(), 1_000_000),
    "simulator": (simulator_problem, nw.Rejection(), 2_000),
    "records": (total_problem, nw.Rejection(), 2_000),
    "known sums": (known_problem, nw.Rejection(), 20_000),
    "entries": (entries_problem, nw.Importance(min_ess=1.0), 20_000),
}
ROWS = [
    *(("Dask", name, size) for name in ("count", "Lalonde", "simulator") for size in (1, 2, 4)),
    *(("records", "records", size) for size in (10, 100, 1_000, 10_000, 100_000)),
    *(("known sums", "known sums", size) for size in (100, 10_000, 1_000_000)),
    *(("entries", "entries", size) for size in (1, 10, 100, 1_000)),
]


def once(problem, sampler, draws, engine, seed):
    """Draws and proposals per second of one run."""
    began = time.perf_counter()
    settings = {"seed": seed, "engine": engine, "progress": False, "on_failure": "return"}
    found = nw.sample(*problem, sampler, draws=draws, **settings)
    seconds = time.perf_counter() - began
    return len(found) / seconds, found.proposals / seconds


def timed(problem, sampler, draws, engine):
    """Draws and proposals per second, best of several after one run to compile."""
    return max([once(problem, sampler, draws, engine, repeat) for repeat in range(REPEATS + 1)][1:])


def in_turns(problem, sampler, draws, engines):
    """Draws and proposals per second on each engine, turn by turn, best of several after one run to compile."""
    turns = [[once(problem, sampler, draws, engine, turn) for engine in engines] for turn in range(REPEATS + 1)]
    return [max(rates) for rates in zip(*turns[1:], strict=True)]


def measure(kind, name, size):
    """One row, in this process: draws and proposals per second, memory, and for Dask the draws of two threads."""
    make, sampler, draws = CASES[name]
    if kind == "Dask":
        from distributed import Client, LocalCluster

        settings = {"n_workers": size, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
        with LocalCluster(**settings, silence_logs=50) as cluster, Client(cluster) as client:
            rates, threads = in_turns(make(), sampler, draws, [Dask(client), Threads(2)])
            return (*rates, page.peak() + sum(client.run(page.peak).values()), threads[0])
    draws = max(50, draws // max(1, size // 100)) if kind == "records" else draws
    return (*timed(make(size), sampler, draws, Threads()), page.peak(), None)


HEAD = ["what", "case", "size", "draws/s", "proposals/s", "against the first", "MiB", "against two threads"]


def measured():
    """Rows of text, one after the other."""
    first = {}
    for kind, name, size in ROWS:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        row = [sys.executable, "-W", "ignore", __file__, kind, name, str(size)]
        done = subprocess.run(row, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            yield [kind, name, f"{size:,}", "failed", done.stderr.strip().splitlines()[-1][:60], "", "", ""]
            continue
        draws, proposals, memory, threads = json.loads(done.stdout.strip().splitlines()[-1])
        ratio = draws / first.setdefault((kind, name), draws)
        beside = f"{draws / threads:.2f}" if threads else ""
        yield [kind, name, f"{size:,}", f"{draws:,.0f}", f"{proposals:,.0f}", f"{ratio:.3g}", f"{memory:,.0f}", beside]


def main():
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
        return
    rows = []
    for row in measured():
        rows.append(row)
        print(*row, flush=True)
    costs = record_costs.table()
    print(costs)
    if sys.argv[1:] == ["--write"]:
        told = [page.measured_by("python benchmarks/scaling.py --write"), __doc__.split("\n\n")[2]]
        page.write(
            "scaling", "\n\n".join(["## How cost grows", *told, page.table([HEAD, *rows]), record_costs.TOLD, costs])
        )


if __name__ == "__main__":
    main()
