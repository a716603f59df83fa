"""`make bench`: ratios measured side by side in one run, interleaved, best of several."""

import subprocess
import sys
import time
from pathlib import Path

import handwritten
from rich.console import Console
from rich.table import Table

import noisewise as nw
from noisewise.engine import processors
from noisewise.paper import count, lalonde

WORKERS = processors()
LALONDE = (6.3491435, 4.554801, 61.89601, 30.072458)


def count_problem():
    return count.count_model(25.0), count.published_count()


def lalonde_problem():
    return lalonde.groups_model(), lalonde.published_statistics(LALONDE)


def best_rates(ours, theirs, repeats):
    """Best work per second of each, measured turn by turn. Each callable returns its units of work."""
    best = [0.0, 0.0]
    for _ in range(repeats):
        for side, function in enumerate((ours, theirs)):
            start = time.perf_counter()
            units = function()
            best[side] = max(best[side], units / (time.perf_counter() - start))
    return best


def bench_count(draws=5_000_000, repeats=5):
    model, release = count_problem()
    sampler = nw.Rejection(plan="joint")

    def ours():
        return nw.sample(model, release, sampler, draws=draws, seed=1, progress=False).proposals

    def theirs():
        return handwritten.algorithm_1(handwritten.count, draws, 1, WORKERS, 2**16)[1]

    nw.sample(model, release, sampler, draws=100, seed=1)  # compile once, as a model does
    return best_rates(ours, theirs, repeats)


def bench_lalonde(draws=100_000, repeats=4):
    model, release = lalonde_problem()
    propose = handwritten.lalonde(LALONDE)

    def ours():
        return len(nw.sample(model, release, draws=draws, seed=1, progress=False))

    def theirs():  # draws per second do not depend on how many are asked
        return len(handwritten.algorithm_1(propose, draws // 10, 1, WORKERS, 2**16)[0])

    nw.sample(model, release, draws=100, seed=1)
    return best_rates(ours, theirs, repeats)


def peak_memory(alpha, proposals):
    """Peak resident megabytes of a fresh process that makes so many count proposals."""
    script = f"""
import resource, numpyro.distributions as dist, noisewise as nw
model = nw.Model(prior={{"theta": dist.Gamma({alpha}, 1.0)}}, statistics={{"count": lambda theta: dist.Poisson(theta)}})
release = nw.Release(count=nw.Laplace(scale=5.0).released(37.4))
sampler = nw.Rejection(plan="joint", max_proposals={proposals})
import warnings; warnings.simplefilter("ignore")
draws = int({proposals} * {{2.0: 0.000931, 25.0: 0.1616}}[{alpha}])
posterior = nw.sample(model, release, sampler, draws=draws, seed=1, progress=False, on_failure="return")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, posterior.proposals, len(posterior))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    peak, made, kept = done.stdout.split()
    return float(peak), int(made), int(kept)


def main():
    table = Table("what", "noisewise", "beside it", "ratio", "goal", title=f"{WORKERS} threads")
    ours, theirs = bench_count()
    table.add_row(
        "count, Algorithm 1: proposals/s (beside: NumPy)", f"{ours:.3g}", f"{theirs:.3g}", f"{ours / theirs:.2f}", "0.8"
    )
    ours, theirs = bench_lalonde()
    table.add_row(
        "Lalonde, default plan: draws/s (beside: NumPy Algorithm 1)",
        f"{ours:.3g}",
        f"{theirs:.3g}",
        f"{ours / theirs:.1f}",
        "10",
    )
    for alpha in (25.0, 2.0):
        few, many = peak_memory(alpha, 10**7), peak_memory(alpha, 10**8)
        table.add_row(
            f"count, Gamma({alpha:g}, 1): peak MB at {many[1]:.3g} proposals, {many[2]:,} draws (beside: {few[1]:.3g})",
            f"{many[0]:.0f}",
            f"{few[0]:.0f}",
            f"{many[0] / few[0]:.2f}",
            "600 MB",
        )
    Console(width=130).print(table)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
