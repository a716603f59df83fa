"""`make campaign`: every sampler against every target it applies to, in full. Longer than the default tests.

    python tests/campaigns/campaign.py --jobs 2 [--samplers MCMC SMC] [--seed 1]

Prints the pairs that go wrong, then one line per sampler with its largest |z| of posterior means, variances and
evidence, and the root mean square of errors in units of what the library says they are. The limit on |z| has a
false-alarm rate of 1e-6 per number, by Student's law where errors come from groups of chains.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import sys
import time
import warnings

import numpy as np
from sampler_table import SAMPLERS, TARGETS, compared, problem, reported_z

import noisewise as nw

QUIET = {"progress": False, "on_failure": "return"}


def one(job):
    """Run one pair; plain data."""
    target, label, seed = job
    row = SAMPLERS[label]
    model, release, truth = problem(target)
    found = {"target": target, "sampler": label}
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = nw.sample(
                model, release, row.sampler, draws=row.draws, seed=seed, engine=nw.Threads(1), **QUIET
            )
    except nw.InputError as error:
        return found | {"status": "refused", "why": str(error)[:160]}
    found |= {
        "status": posterior.status,
        "by": type(posterior.sampler).__name__,
        "seconds": time.perf_counter() - start,
    }
    if posterior.status != "complete":
        return found | {"why": posterior.message[:160]}
    found["z over limit"], evidence = compared(posterior, truth)
    found["z of means"], found["z of evidence"] = reported_z(posterior, truth)
    return found if evidence is None else found | {"evidence z over limit": evidence}


def rms(runs):
    """Root of the mean over runs of their mean squares: about 1 where errors are as large as they are said to be."""
    squares = [np.mean(np.square(run)) for run in runs if run]
    return float(np.sqrt(np.mean(squares))) if squares else float("nan")


def pin(numbers):
    """One processor for each worker: compiled programs then keep no threads that get in each other's way."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[numbers.get() % len(cores)]})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samplers", nargs="*", default=list(SAMPLERS))
    parser.add_argument("--out")
    chosen = parser.parse_args()
    jobs = [(target, label, chosen.seed) for label in chosen.samplers for target in TARGETS]
    rows = []
    context = multiprocessing.get_context("spawn")
    numbers = context.Queue()
    for number in range(chosen.jobs):
        numbers.put(number)
    with concurrent.futures.ProcessPoolExecutor(chosen.jobs, context, pin, (numbers,)) as pool:
        for future in concurrent.futures.as_completed([pool.submit(one, job) for job in jobs]):
            rows.append(future.result())
            bad = [rows[-1].get(key, 0) for key in ("z over limit", "evidence z over limit")]
            if max(bad) > 1 or rows[-1]["status"] not in ("complete", "refused"):
                print(json.dumps(rows[-1]), flush=True)
            if chosen.out:
                with open(chosen.out, "w") as file:
                    json.dump(rows, file, indent=1)
    wrong = 0
    for label in chosen.samplers:
        own = [row for row in rows if row["sampler"] == label]
        done = [row for row in own if row["status"] == "complete"]
        worst = max((row.get("z over limit", 0) for row in done), default=0.0)
        evidence = max((row.get("evidence z over limit", 0) for row in done), default=0.0)
        refused = sum(row["status"] == "refused" for row in own)
        wrong += sum(max(row.get("z over limit", 0), row.get("evidence z over limit", 0)) > 1 for row in done)
        means, evidences = (rms([row[f"z of {what}"] for row in done]) for what in ("means", "evidence"))
        print(
            f"{label}: {len(done)} targets complete, {refused} do not apply, {len(own) - len(done) - refused} ended "
            f"otherwise; largest |z| {worst:.2f} of its limit, evidence {evidence:.2f}; rms z of errors as "
            f"reported: means {means:.2f}, evidence {evidences:.2f}; "
            f"{sum(row.get('seconds', 0) for row in own):.0f} s"
        )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
