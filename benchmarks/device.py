"""`python benchmarks/device.py`, on a machine with an accelerator: speed beside hand-written JAX, and exactness.

The hand-written step is plain `jax.random` code: its gamma, Poisson (which computes in 32 bits, whatever is asked for)
and uniform variates; it compacts survivors on the device and fetches them, the next block under way meanwhile. Prints
what it finds; `--out FILE` writes it as JSON. Parts may be measured by several runs (`--only`, `--precision`), and put
on the page together.
"""

import argparse
import json
import resource
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import page
from jax import random

import noisewise as nw

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
ROWS = 2**24


@partial(jax.jit, static_argnums=(1, 2, 3))
def handwritten_step(key, alpha, rows, capacity):
    """Algorithm 1 on the privatised count, one block."""
    kind = jnp.zeros(()).dtype
    first, second, third = random.split(key, 3)
    theta = random.gamma(first, alpha, (rows,), kind)
    count = random.poisson(second, theta)
    ratio = -jnp.abs(37.4 - count) / 5.0
    accepted = jnp.log(random.uniform(third, (rows,), kind)) <= ratio
    rank = jnp.cumsum(accepted) - 1
    place = jnp.where(accepted & (rank < capacity), rank, capacity)
    kept = [jnp.zeros(capacity, x.dtype).at[place].set(x, mode="drop") for x in (theta, count)]
    return kept, rank[-1] + 1


def handwritten(alpha, proposals, seed, capacity):
    """Survivors of so many proposals, fetched block by block; the next block is launched before the last is read."""
    found, waiting = [], None
    for block in range(-(-proposals // ROWS) + 1):
        running = None
        if block * ROWS < proposals:
            running = handwritten_step(random.fold_in(random.key(seed), block), alpha, ROWS, capacity)
        if waiting is not None:
            kept, count = waiting
            size = int(count)
            assert size <= capacity
            found.append([np.asarray(x[: 1 << max(size - 1, 1).bit_length()])[:size] for x in kept])
        waiting = running
    return [np.concatenate(columns) for columns in zip(*found, strict=True)]


def count_problem(alpha):
    import numpyro.distributions as dist

    model = nw.Model(prior={"theta": dist.Gamma(alpha, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
    return model, nw.Release(count=nw.Laplace(epsilon=0.2, sensitivity=1.0).released(37.4))


RATES = {25.0: 0.16161176791702409, 2.0: 0.0009307896146712119}


def ours(model, release, alpha, proposals, seed, precision):
    draws = int(proposals * RATES[alpha])
    sampler = nw.Rejection(plan="joint", max_proposals=None)
    engine = nw.Device(precision=precision, rows=ROWS)
    return nw.sample(model, release, sampler, draws=draws, seed=seed, engine=engine, progress=False)


def fetched(posterior):
    """A posterior whose draws are all here, as NumPy's arrays."""
    for name in posterior.draws:
        posterior[name]
    return posterior


def speed(alpha, precision, proposals, repeats=3):
    """Proposals per second, ours and hand-written, turn by turn; the best of each."""
    model, release = count_problem(alpha)
    capacity = 1 << int(1.3 * RATES[alpha] * ROWS).bit_length()
    best = [0.0, 0.0]
    for repeat in range(repeats + 1):
        start = time.perf_counter()
        made = fetched(ours(model, release, alpha, proposals, repeat, precision)).proposals
        middle = time.perf_counter()
        with jax.enable_x64(precision == "double"):
            handwritten(alpha, proposals, repeat, capacity)
        end = time.perf_counter()
        if repeat:  # the first compiles
            best = [max(best[0], made / (middle - start)), max(best[1], proposals / (end - middle))]
    return best


def lalonde(draws=20_000_000, repeats=3):
    """Draws per second of the default plan in double precision, survivors of its merges kept there; the best."""
    from noisewise.paper import lalonde as paper

    problem = paper.groups_model(), paper.published_statistics((6.3491435, 4.554801, 61.89601, 30.072458))
    best = 0.0
    for repeat in range(repeats + 1):
        start = time.perf_counter()
        sampler, engine = nw.Rejection(max_proposals=None), nw.Device(rows=ROWS)
        fetched(nw.sample(*problem, sampler, draws=draws, seed=repeat, engine=engine, progress=False))
        best = max(best, draws / (time.perf_counter() - start)) if repeat else best
    return {"draws": draws, "rate": best}


def summaries(draws, platform=None, repeats=3):
    """Seconds for draws and their summary in double precision: draws that stay there beside fetched ones, the best.

    Fetched as those of a run that has too many for the memory: block by block, while the next one runs. NumPy takes
    some ten seconds for 10^8, once is enough.
    """
    from noisewise.results.drawn import Drawn
    from noisewise.samplers import rejection

    model, release = count_problem(25.0)
    engine, enough = nw.Device(platform, rows=ROWS), rejection.WORTH_STAYING

    def timed(stay, draws, seed):
        sampler = nw.Rejection(plan="joint", max_proposals=None)
        rejection.WORTH_STAYING = 1 if stay else draws + 1
        start = time.perf_counter()
        posterior = nw.sample(model, release, sampler, draws=draws, seed=seed, engine=engine, progress=False)
        drawn = time.perf_counter()
        table = posterior.summary()
        end = time.perf_counter()
        rejection.WORTH_STAYING = enough
        assert isinstance(posterior.draws, Drawn) == stay
        return end - start, end - drawn, table

    timed(True, draws, 0)  # compiles
    timed(False, min(draws, 10**6), 0)
    there = [timed(True, draws, seed) for seed in range(1, repeats + 1)]
    fetched = [timed(False, draws, seed) for seed in range(1, 2 if draws > 10**7 else repeats + 1)]
    spread = fetched[0][2][["sd"]].to_numpy()
    row = {"draws": draws, "apart": float(np.max(np.abs(there[0][2] - fetched[0][2]).to_numpy() / spread))}
    for way, runs in (("there", there), ("fetched", fetched)):
        row[f"{way}_all"], row[f"{way}_summary"], _ = min(runs, key=lambda run: run[0])
    return row


def exactness(precision):
    """|z| of every posterior mean and of the evidence, over the targets that a device can simulate."""
    import targets

    worst = []
    for target in targets.TARGETS:
        if target.name in ("simulator", "total-in-chunks"):
            continue
        model, release = target.make()
        truth = dict(target.solve())
        log_evidence = truth.pop("log_evidence")
        for sampler in (nw.Rejection(), nw.Importance()):
            engine = nw.Device(precision=precision, rows=2**20)
            posterior = nw.sample(model, release, sampler, draws=100_000, seed=11, engine=engine, progress=False)
            weight = posterior.weights if posterior.weights is not None else np.full(len(posterior), 1 / len(posterior))
            z = abs(posterior.log_evidence - log_evidence) / posterior.log_evidence_se
            for name, (mean, variance) in truth.items():
                values = posterior[name].astype(float)
                for terms in (values - mean, (values - mean) ** 2 - variance):
                    error = np.sqrt(np.tensordot(weight**2, terms**2, axes=1))
                    z = max(z, float(np.max(np.abs(np.tensordot(weight, terms, axes=1) / error))))
            worst.append((f"{target.name} {type(sampler).__name__}", round(float(z), 2)))
    return worst


def others():
    """Chains, particles, augmentation and Monte Carlo EM on the device: z of the mean, or of the estimate."""
    model, release = count_problem(25.0)
    engine = nw.Device(rows=2**20)
    found = []
    for sampler in (nw.SMC(), nw.MCMC(), nw.Augmentation(), nw.Importance(proposal="adapted")):
        posterior = nw.sample(model, release, sampler, draws=20_480, seed=3, engine=engine, progress=False)
        row = posterior.summary().loc["theta"]
        found.append(
            (type(sampler).__name__, posterior.status, float((row["mean"] - 28.576327594905138) / row["mcse"]))
        )
    fit = nw.fit(model, release, nw.MCEM(), start={"theta": 1.0}, seed=3, engine=engine)
    z = (float(fit.estimate["theta"]) - 37.2372738) / float(fit.monte_carlo_error["theta"])
    return [*found, ("MCEM", fit.status, z)]


def told(found):
    """The page's part, from what a run with `--out` wrote."""
    head = ["precision", "Gamma(a, 1), a =", "proposals/s", "by hand", "ratio"]
    forms = {"precision": "", "alpha": "g", "ours": ".3g", "handwritten": ".3g", "ratio": ".2f"}
    speeds = [[format(one[key], form) for key, form in forms.items()] for one in found["speed"]]
    forms = {"proposals": ".3g", "draws": ",", "seconds": ".2f", "host_mb": ",.0f", "device_mb": ",.0f"}
    grows = [[format(one[key], form) for key, form in forms.items()] for one in found["memory"]]
    worst = {name: max(z for _, z in rows) for name, rows in found["exactness"].items()}
    exact = ", ".join(f"{z:g} in {name} precision" for name, z in worst.items())
    others = ", ".join(f"{name} {z:.1f}" for name, _, z in found["others"])
    lines = [
        "## On an accelerator",
        page.measured_by("python benchmarks/device.py", f"one {found['kind']} with JAX {found['jax']}"),
        "The privatised count by the joint plan, beside the same step written by hand in plain `jax.random` code "
        "(whose Poisson variates have 32 bits whatever is asked for), survivors compacted and fetched in both.",
        page.table([head, *speeds]),
        f"The Lalonde model by the default plan, {found['lalonde']['draws']:,} draws in double precision, fetched: "
        f"{found['lalonde']['rate']:.2g} draws a second.",
        *_summaries_told(found["summaries"]),
        "Gamma(2, 1) in double precision as the proposals grow; peak memory of the process and of the device.",
        page.table([["proposals", "draws", "seconds", "process MB", "device MB"], *grows]),
    ]
    if exact:
        what = "the largest |z| of means, variances and evidence"
        lines += [f"Exactness there, on problems with known answers: {what} is {exact}."]
    if others:
        lines += [f"z of the mean or estimate by the other methods: {others}."]
    return "\n\n".join(lines)


def _summaries_told(rows):
    """Of draws that stay there, where they were measured."""
    if not rows:
        return []
    head = ["draws", "s, draws stay there", "of these the summary", "s, fetched", "of these the summary", "times"]
    keys = ("there_all", "there_summary", "fetched_all", "fetched_summary")
    cells = [
        [f"{row['draws']:,}", *(f"{row[key]:.3g}" for key in keys), f"{row['fetched_all'] / row['there_all']:.1f}"]
        for row in rows
    ]
    apart = max(row["apart"] for row in rows)
    return [
        "Summaries only: the count with Gamma(25, 1) by the joint plan in double precision. Draws that stay on the "
        "device and are summarised there, beside draws that are fetched and summarised by NumPy. No number of the "
        f"tables differs by more than {apart:.1g} standard deviations.",
        page.table([head, *cells]),
    ]


def memory(flat):
    """Gamma(2, 1) in double precision as the proposals grow: time, and peak memory of the process and the device."""
    model, release = count_problem(2.0)
    for proposals in (1e6, 1e7, 1e8, 1e9, flat):
        start = time.perf_counter()
        posterior = ours(model, release, 2.0, int(proposals), 5, "double")
        used = jax.devices()[0].memory_stats() or {}
        yield {
            "proposals": posterior.proposals,
            "draws": len(posterior),
            "seconds": time.perf_counter() - start,
            "host_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "device_mb": used.get("peak_bytes_in_use", 0) / 2**20,
        }


def merged(files):
    """What runs with `--out` wrote, together."""
    found = {"exactness": {}, "speed": [], "memory": [], "others": [], "summaries": []}
    for file in files:
        for name, value in json.loads(Path(file).read_text()).items():
            kind = type(found.get(name))
            found[name] = {**found[name], **value} if kind is dict else found[name] + value if kind is list else value
    return found


PARTS = ("memory", "speed", "lalonde", "summaries", "others", "exactness")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--page", nargs="+", help="write docs/benchmarks.md from files of --out, and measure nothing")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--precision", nargs="+", choices=("double", "single"), default=("double", "single"))
    parser.add_argument("--proposals", type=float, default=2e9)
    parser.add_argument("--flat", type=float, default=1e10)
    parser.add_argument("--draws", nargs="+", type=float, default=(1e7, 1e8), help="of the part 'summaries'")
    parser.add_argument("--platform", help="of the part 'summaries': cpu to try it out")
    chosen = parser.parse_args()
    if chosen.page:
        page.write("device", told(merged(chosen.page)))
        return
    found = {"kind": jax.devices()[0].device_kind, "jax": jax.__version__}

    def save(part, value):
        print(part, value, flush=True)
        found[part] = value
        if chosen.out:
            Path(chosen.out).write_text(json.dumps(found, indent=2))

    if "memory" in chosen.only:  # first: a peak stays
        for row in memory(chosen.flat):
            save("memory", [*found.get("memory", []), row])
    if "speed" in chosen.only:
        for precision in chosen.precision:
            for alpha in (25.0, 2.0):
                mine, theirs = speed(alpha, precision, int(chosen.proposals))
                row = {"precision": precision, "alpha": alpha, "ours": mine, "handwritten": theirs}
                save("speed", [*found.get("speed", []), {**row, "ratio": mine / theirs}])
    if "lalonde" in chosen.only:
        save("lalonde", lalonde())
    if "summaries" in chosen.only:
        for draws in chosen.draws:
            save("summaries", [*found.get("summaries", []), summaries(int(draws), chosen.platform)])
    if "others" in chosen.only:
        save("others", others())
    if "exactness" in chosen.only:
        for precision in chosen.precision:
            save("exactness", {**found.get("exactness", {}), precision: exactness(precision)})


if __name__ == "__main__":
    main()
