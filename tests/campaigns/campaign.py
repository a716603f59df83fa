"""`make campaign`: every sampler against every target it applies to, in full. Longer than the default tests.

    python tests/campaign.py --jobs 2 [--samplers MCMC SMC] [--seed 1]

Prints the pairs that go wrong, then one line per sampler with its largest |z| of posterior means, variances and
evidence. The limit on |z| has a false-alarm rate of 1e-6 per number, by Student's law where errors come from groups
of chains.
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
from exactness import FALSE_ALARM
from scipy import stats
from targets import all_targets

import noisewise as nw

QUIET = {"progress": False, "on_failure": "return"}
SAMPLERS = {
    "Rejection": (nw.Rejection(), 20_000),
    "Rejection joint": (nw.Rejection(plan="joint"), 20_000),
    "Importance": (nw.Importance(), 50_000),
    "Importance adapted": (nw.Importance(proposal="adapted"), 50_000),
    "ImportanceRejection": (nw.ImportanceRejection(), 20_000),
    "RejectionControl": (nw.RejectionControl(), 20_000),
    "MCMC": (nw.MCMC(), 20_480),
    "SMC": (nw.SMC(), 16_000),
    "Augmentation": (nw.Augmentation(), 25_600),
    "NUTS": (nw.NUTS(), 8_000),
    "chosen": (None, 20_000),
}


def scores(posterior, name, mean, variance):
    """Limit and |z| of a name's means and variances."""
    values = posterior[name].astype(float)
    terms = np.stack([values - mean, (values - mean) ** 2 - variance], axis=1).reshape(len(values), -1)
    groups = posterior.chains or posterior.islands
    if groups is None:
        weight = np.full(len(values), 1 / len(values)) if posterior.weights is None else posterior.weights
        z = (weight @ terms) / np.sqrt((weight**2) @ terms**2)
        return stats.norm.isf(FALSE_ALARM / 2), np.abs(z)
    if groups < 16:  # few long chains: batches of each
        groups *= 16 // groups + 4
    means = terms[: len(terms) // groups * groups].reshape(groups, -1, terms.shape[1]).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = means.mean(axis=0) / (means.std(axis=0, ddof=1) / np.sqrt(groups))
    return stats.t.isf(FALSE_ALARM / 2, groups - 1), np.abs(np.where(np.isnan(z), 0.0, z))


def one(job):
    """Run one pair; plain data."""
    number, label, seed = job
    target = all_targets()[number]
    sampler, draws = SAMPLERS[label]
    model, release = target.make()
    found = {"target": target.name, "sampler": label}
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = nw.sample(model, release, sampler, draws=draws, seed=seed, engine=nw.Threads(1), **QUIET)
    except nw.InputError as error:
        return found | {"status": "refused", "why": str(error)[:160]}
    found |= {
        "status": posterior.status,
        "by": type(posterior.sampler).__name__,
        "seconds": time.perf_counter() - start,
    }
    truth = dict(target.solve())
    log_evidence = truth.pop("log_evidence")
    if posterior.status != "complete":
        return found | {"why": posterior.message[:160]}
    worst, limit = 0.0, np.inf
    for name, (mean, variance) in truth.items():
        limit, z = scores(posterior, name, np.asarray(mean), np.asarray(variance))
        worst = max(worst, float(np.max(z)) / limit)
    found["z over limit"] = worst
    if posterior.log_evidence is not None and posterior.log_evidence_se:
        dof = (posterior.islands or 10**6) - 1
        z = abs(posterior.log_evidence - log_evidence) / posterior.log_evidence_se
        found["evidence z over limit"] = float(z / stats.t.isf(FALSE_ALARM / 2, dof))
    return found


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
    jobs = [(number, label, chosen.seed) for label in chosen.samplers for number in range(len(all_targets()))]
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
        print(
            f"{label}: {len(done)} targets complete, {refused} do not apply, {len(own) - len(done) - refused} ended "
            f"otherwise; largest |z| {worst:.2f} of its limit, evidence {evidence:.2f}; "
            f"{sum(row.get('seconds', 0) for row in own):.0f} s"
        )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
