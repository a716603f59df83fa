"""A county's table measured as the 2020 Census measures persons: how long a sample of it takes, and how cost grows.

    python benchmarks/measured_tables.py [--write]
    python benchmarks/measured_tables.py --accelerator [--write]     # on a machine that has one

Tracts of 8 cells (voting age, ethnicity, kind of housing), with total, voting age, ethnicity and all cells measured in
every tract and in the county, by discrete Gaussian noise of the Bureau's scales. One model for all: a share for each
cell, a rate for each tract. Seconds count everything, compilation included; effective draws are those of the worst cell
and of the worst parameter. A sweep renews all cells of four chains; start and sweep are in seconds of processor time,
so that other work on the machine shows less in them; memory is the process's peak. A cell takes part in about five
moves a sweep, whatever the size of the table; of small tables much of the time is that of starting programs.
"""

import argparse
import csv
import os
import time
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist
import page

import noisewise as nw
from noisewise.diagnostics import chains as diagnostics
from noisewise.inference.problem import Problem
from noisewise.numerics import placed
from noisewise.samplers.augmentation import closed_forms, one_sweep, starting_values, sweep_steps
from noisewise.samplers.gibbs.joint import Joint, State

SCALES = Path(__file__).parents[1] / "docs/data/census-pl94-person-scales.csv"
DIMS = ("tract", "age", "ethnicity", "housing")
QUERIES = {
    "total": ("age", "ethnicity", "housing"),
    "votingage": ("ethnicity", "housing"),
    "hispanic": ("age", "housing"),
    "detailed": (),
}
"""What the Bureau calls each query, and what it sums over."""
CHAINS, DRAWS = 8, 2_400
SIZES = (50, 500, 5_000, 12_500)
HEAD = ("tracts", "cells", "s for a start", "s for a sweep", "microseconds a cell", "MiB")


def scales():
    """Standard deviations by level and query."""
    with SCALES.open() as file:
        return {(row["level"], row["query"]): float(row["sigma"]) for row in csv.DictReader(file)}


def county(tracts, seed=1):
    """Model, release, and the confidential table behind it."""
    rng, scale = np.random.default_rng(seed), scales()
    share, rate = rng.dirichlet(np.full(8, 2.0)), rng.gamma(20.0, 200.0, tracts)
    cells = rng.poisson(rate[:, None] * share).reshape(tracts, 2, 2, 2)
    measured = {}
    for level, lead in (("Tract", ()), ("County", ("tract",))):
        for query, inside in QUERIES.items():
            over = (*lead, *inside)
            mechanism = nw.DiscreteGaussian(scale=scale[level, query])
            truth = cells.sum(axis=tuple(DIMS.index(axis) for axis in over))
            noisy = np.asarray(mechanism.sample(rng, truth))
            measured[f"{level.lower()}_{query}"] = mechanism.of("cells", axes=over or None).released(noisy)
    model = nw.Model(
        prior={
            "share": dist.Dirichlet(np.ones(8)),
            "rate": dist.Gamma(2.0, 0.0005).expand([tracts]).to_event(1),
        },
        statistics={
            "cells": lambda rate, share: dist.Poisson((rate[:, None] * share).reshape(-1, 2, 2, 2)).to_event(4)
        },
        dims={"cells": DIMS, "rate": ("tract",)},
    )
    return model, nw.Release(measured), cells


def effective(posterior, name):
    """Effective draws of its worst entry."""
    return float(diagnostics.bulk_size(diagnostics.by_chain(posterior[name], CHAINS)).min())


def sampled():
    """One sample of a county of 50 tracts: a line of text."""
    model, release, _ = county(50)
    start, busy = time.perf_counter(), time.process_time()
    posterior = nw.sample(model, release, nw.Augmentation(chains=CHAINS), draws=DRAWS, seed=1, on_failure="return")
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    worst = {name: effective(posterior, name) for name in ("cells", "share", "rate")}
    worth = ", ".join(f"{worst[name]:,.0f} for every {name.removesuffix('s')}" for name in worst)
    return (
        f"50 tracts, 400 cells, {DRAWS:,} draws from {CHAINS} chains: {seconds:.0f} s, of which {busy:.0f} s "
        f"of processor time, status '{posterior.status}'. "
        f"The draws are worth, in independent ones, at least {worth}."
    )


def sweeps(model, release, chains, clock, times):
    """Seconds by `clock` for a start, and for one sweep of so many chains, after one to compile."""
    joint, rng = Joint(Problem(model, release), {}), np.random.default_rng(1)
    start = clock()
    values = starting_values(joint, rng, 4)
    state = State({name: np.repeat(column, chains // 4, axis=0) for name, column in values.items()})
    steps = sweep_steps(joint, closed_forms(joint, state))
    begun = clock() - start
    one_sweep(rng, joint, steps, state, True)
    seconds = []
    for _ in range(times):
        start = clock()
        one_sweep(rng, joint, steps, state, True)
        seconds.append(clock() - start)
    return begun, min(seconds)


def swept(tracts):
    """The table's row for one size."""
    model, release, cells = county(tracts)
    begun, best = sweeps(model, release, 4, time.process_time, 3)
    numbers = (f"{tracts:,}", f"{cells.size:,}", f"{begun:.1f}", f"{best:.3f}", f"{1e6 * best / cells.size / 4:.2f}")
    return (*numbers, f"{page.peak():,.0f}")


def accelerated(tracts, chains):
    """One size of table, on all processors and on the accelerator."""
    model, release, cells = county(tracts)
    seconds = []
    for where in (None, nw.Device().placement):
        with placed(where):
            seconds.append(sweeps(model, release, chains, time.perf_counter, 5)[1])
    shown = (f"{one:.4f}" for one in seconds)
    return f"{tracts:,}", f"{cells.size:,}", str(chains), *shown, f"{seconds[0] / seconds[1]:.1f}"


def agreement():
    """A county's cells and parameters on the accelerator and on processors, with seeds of their own: a line of text."""
    model, release, _ = county(50)
    samples = [
        nw.sample(model, release, nw.Augmentation(chains=32), draws=9_600, seed=seed, engine=engine, progress=False)
        for seed, engine in enumerate((nw.Threads(), nw.Device()))
    ]
    assert all(one.status == "complete" for one in samples)
    z = []
    for name in ("cells", "share", "rate"):
        means = [diagnostics.by_chain(one[name], 32).mean(axis=1) for one in samples]
        errors = [mean.std(axis=0, ddof=1) / np.sqrt(len(mean)) for mean in means]
        z += np.ravel((means[0].mean(axis=0) - means[1].mean(axis=0)) / np.hypot(*errors)).tolist()
    return (
        f"Means of the {len(z)} cells, shares and rates of a county of 50 tracts there and on processors, with other "
        f"random numbers: rms z {np.sqrt(np.mean(np.square(z))):.2f}, the largest {np.abs(z).max():.1f}, with errors "
        "from the 32 chains of each."
    )


def on_processors(write):
    line = sampled()
    print(line)
    rows = [swept(tracts) for tracts in SIZES]
    for row in (HEAD, *rows):
        print(*row, sep="\t")
    if write:
        told = [page.measured_by("python benchmarks/measured_tables.py --write"), __doc__.split("\n\n")[2], line]
        page.write("tables", "\n\n".join(["## A table, measured several ways", *told, page.table([HEAD, *rows])]))


def on_accelerator(write):
    head = ("tracts", "cells", "chains", "s for a sweep, processors", "s for a sweep, accelerator", "times")
    rows = []
    for tracts in SIZES:
        for chains in (4, 32):
            rows.append(accelerated(tracts, chains))
            print(*rows[-1], sep="\t", flush=True)
    line = agreement()
    print(line)
    if write:
        beside = len(os.sched_getaffinity(0))
        device = f"one {jax.devices()[0].device_kind} beside {beside} processors, JAX {jax.__version__}"
        note = (
            "`nw.sample(..., nw.Augmentation(), engine=nw.Device())`: the same sweeps, in double precision, by the "
            "clock, everything included but compilation. Tables of some thousand cells, or many chains, are worth it; "
            "smaller ones are not."
        )
        told = [page.measured_by("python benchmarks/measured_tables.py --accelerator --write", device), note]
        lines = ["## A table, measured several ways, on an accelerator", *told, page.table([head, *rows]), line]
        page.write("tables on an accelerator", "\n\n".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accelerator", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    (on_accelerator if given.accelerator else on_processors)(given.write)
