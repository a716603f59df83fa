"""`make bench`: Monte Carlo error per simulated value, wall clock beside a hand-written staged scheme, many rows.

python benchmarks/likelihood.py            # all of it, some minutes
python benchmarks/likelihood.py --quick    # smaller samples and fewer rows, to see that it runs
python benchmarks/likelihood.py --only count
python benchmarks/likelihood.py --accelerator --out FILE   # on a machine that has one: a million rows
python benchmarks/likelihood.py --page FILE                # writes on the page what that measured
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist
import page

import noisewise as nw
from noisewise.engine import processors

RELEASED, SCALE = 37.4, 5.0
LIMIT = 2_000
"""Iterations of the hand-written scheme in all, should luck never end a stage."""


def count_problem():
    model = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
    return model, nw.Release(count=nw.Laplace(scale=SCALE).released(RELEASED))


def timed(function):
    start = time.perf_counter()
    found = function()
    return found, time.perf_counter() - start


# (a) Repeated runs --------------------------------------------------------------------------------------------------


def repeated(final, repeats):
    """Estimates of independent runs from theta = 1, with what each claims, simulated, and took."""
    model, release = count_problem()
    estimator = nw.MCEM(schedule=nw.Ascent(most=200_000), final=final)
    rows = []
    for seed in range(repeats):
        fit, seconds = timed(lambda s=seed: nw.fit(model, release, estimator, start={"theta": 1.0}, seed=s))
        rows.append((fit.estimate["theta"], fit.monte_carlo_error["theta"], fit.diagnostics["simulated"], seconds))
    return np.array(rows, dtype=float).T


# (b) The paper's staged scheme by hand ------------------------------------------------------------------------------


def staged_by_hand(seed, sizes, workers, tolerances=(1e-3, 1e-4, 1e-5), chunk=2**16):
    """Importance-weighted EM for the count: each stage ends when the step is below its tolerance, by luck if need be.

    Chunked and threaded NumPy. Returns the estimate, the last stage's iterates, values simulated, iterations.
    """
    rngs = [np.random.default_rng([seed, worker]) for worker in range(workers)]

    def sums(job):
        rng, theta, size = job
        top = bottom = 0.0
        for start in range(0, size, chunk):
            s = rng.poisson(theta, min(chunk, size - start))
            weight = np.exp(np.abs(s - RELEASED) / -SCALE)
            top, bottom = top + weight @ s, bottom + weight.sum()
        return top, bottom

    theta, simulated, iterations = 1.0, 0, 0
    with ThreadPoolExecutor(workers) as pool:
        for tolerance, size in zip(tolerances, sizes, strict=True):
            path = []
            while iterations < LIMIT:
                found = list(pool.map(sums, [(rng, theta, size // workers) for rng in rngs]))
                new = sum(top for top, _ in found) / sum(bottom for _, bottom in found)
                simulated, iterations = simulated + size, iterations + 1
                path.append(new)
                step, theta = abs(new - theta), new
                if step < tolerance:
                    break
    return theta, np.array(path), simulated, iterations


# (c) Local privacy ----------------------------------------------------------------------------------------------------


ROWS = """
import time
import jax.numpy as jnp, numpy as np, numpyro.distributions as dist, noisewise as nw
n = {rows}
rng = np.random.default_rng(1)
x = rng.uniform(-1.0, 1.0, n)
normal = {normal}
spread = rng.normal(size=n) if normal else rng.standard_t(4.0, n)
y = 1.0 + 2.0 * x + 1.5 * spread + rng.laplace(0.0, 1.0, n)
def law(a, b, sigma):
    centre = a + b * jnp.asarray(x)
    return dist.Normal(centre, sigma) if normal else dist.StudentT(4.0, centre, sigma)
model = nw.Model(
    prior={{"a": dist.Normal(0.0, 10.0), "b": dist.Normal(0.0, 10.0), "sigma": dist.HalfNormal(10.0)}},
    statistics={{"y": law}},
)
release = nw.Release(y=nw.Laplace(scale=1.0).released(y))
engine = {engine}
def timed(work):
    start = time.perf_counter()
    found = work()
    return found, time.perf_counter() - start
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
"""

FIT = """
begin = {{"a": 0.0, "b": 0.0, "sigma": 1.0}}
fit, seconds = timed(lambda: nw.fit(model, release, {estimator}, start=begin, seed=1, engine=engine, progress=False))
used = peak()
exact = fit.diagnostics.get("neglected")
shown = [fit.monte_carlo_error[k] if exact is None else fit.standard_error[k] for k in model.parameters]
passed = seconds / len(fit.trace)
if exact is not None:  # likelihood, score and information of all rows, once everything is compiled and laid
    from noisewise.inference.problem import Problem
    from noisewise.likelihood.e_step.entries_in_pieces import exact_parts
    from noisewise.likelihood.e_step.parts import parts_of
    from noisewise.likelihood.m_step.coordinates import Coordinates
    from noisewise.likelihood.observed import Surface
    surface = Surface(exact_parts(parts_of(Problem(model, release)), dict(fit.estimate)), Coordinates(model), engine)
    free = surface.coordinates.free_from(dict(fit.estimate))
    def one_pass():
        clouds = surface.clouds(free)
        return surface.objective.score_and_information(free, clouds), clouds.log_likelihood
    one_pass()
    passed = float(np.median([timed(one_pass)[1] for _ in range(3)]))
print(seconds, used, len(fit.trace), passed, *shown)
"""

POSTERIOR = """
posterior, seconds = timed(lambda: nw.sample(model, release, draws={draws}, seed=1, engine=engine, progress=False))
used, table = peak(), posterior.summary()
print(seconds, used, posterior.diagnostics["ess"], *table["mean"], *table["sd"])
"""


FITS = {
    "normal law, EM": (True, "nw.EM(accelerate=True)", "standard errors"),
    "Student t law, EM": (False, "nw.EM(accelerate=True)", "standard errors"),
    "Student t law, MCEM": (
        False,
        'nw.MCEM("mixture", nw.Ascent(start=100, most=100), final=100)',
        "Monte Carlo errors",
    ),
}
DRAWS = 600
"""Of the posterior of very many rows: worth more than the 400 that a status asks for."""


def measured(program, **given):
    """What a program prints in a fresh process, compilation included."""
    text = ROWS.format(**{"engine": "None", **given}) + program.format(**given)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def local_privacy(rows, what, engine="None"):
    """(seconds, peak MB, iterations, seconds a pass, errors) of a fit."""
    normal, estimator, _ = FITS[what]
    return measured(FIT, rows=rows, normal=normal, estimator=estimator, engine=engine)


def bench_count(rows, final, repeats, last, luck):
    """Error, values and seconds of repeated runs, beside the staged scheme by hand with `luck` seeds."""
    model, release = count_problem()
    truth = float(nw.fit(model, release, nw.EM(), start={"theta": 1.0}).estimate["theta"])
    repeated(10_000, 1)  # compile once, as a model does
    estimates, claims, simulated, seconds = repeated(final, repeats)
    spread, bias = float(np.std(estimates, ddof=1)), float(np.mean(estimates) - truth)
    error, claim, ours = float(np.hypot(spread, bias)), float(claims.mean()), float(np.median(seconds))
    what = f"count: sd of the estimate over {repeats} runs (beside: as each run claims)"
    rows.append([what, f"{spread:.2e}", f"{claim:.2e}", f"{spread / claim:.2f}", "1e-3"])
    rows.append(["count: mean of the runs less the exact maximum", f"{bias:.1e}", "", "", ""])
    rows.append(["count: values simulated, most of any run", f"{simulated.max():.3g}", "", "", "4e7"])
    runs = [timed(lambda s=seed: staged_by_hand(s, (10**3, 10**5, last), processors())) for seed in range(luck)]
    hand = float(np.median([took for _, took in runs]))
    steps = ", ".join(f"{iterations}{'+' if iterations >= LIMIT else ''}" for (*_, iterations), _ in runs)
    made = float(np.median([found[2] for found, _ in runs]))
    what = f"count: seconds (beside: staged by hand, {made:.2g} values; iterations {steps})"
    rows.append([what, f"{ours:.2f}", f"{hand:.1f}", f"{hand / ours:.1f}", "10"])
    off = np.array([found[0] - truth for found, _ in runs])
    by_hand = float(np.sqrt(np.mean(off**2)))
    what = "count: error (beside: by hand, at its end)"
    rows.append([what, f"{error:.2e}", f"{by_hand:.2e}", f"{by_hand / error:.2f}", ""])


def bench_rows(rows, what, sizes):
    """Seconds, seconds a pass and peak memory as the rows double; (seconds, standard errors) of the last."""
    before = None
    for size in sizes:
        took, peak, steps, passed, *errors = local_privacy(size, what)
        beside, growth = ("", "") if before is None else (f"{before:.1f}", f"{took / before:.2f}")
        told = f"local privacy, {what}, {size:,} rows: seconds, {steps:.0f} steps (beside: half the rows)"
        rows.append([told, f"{took:.1f}", beside, growth, "2"])
        rows.append(["   seconds a pass over all rows", f"{passed:.2f}", "", "", "10"])
        told = f"   peak MB; {FITS[what][2]} {', '.join(f'{e:.2g}' for e in errors)}"
        rows.append([told, f"{peak:.0f}", "", "", "2000"])
        before = took
    return before, errors


def bench_posterior(rows, law, size, fitted):
    """Seconds and peak memory of the posterior, beside the fit; its spread beside the fit's standard errors."""
    took, peak, worth, *numbers = measured(POSTERIOR, rows=size, normal=law == "normal", draws=DRAWS)
    seconds, errors = fitted
    told = f"local privacy, {law} law, posterior of {size:,} rows: seconds, {DRAWS} draws worth {worth:.0f}"
    told = f"{told} (beside: the fit)"
    rows.append([told, f"{took:.1f}", f"{seconds:.1f}", f"{took / seconds:.2f}", ""])
    sds = np.array(numbers[3:])
    told = f"   peak MB; standard deviations {', '.join(f'{e:.2g}' for e in sds)}"
    rows.append([told, f"{peak:.0f}", "", "", "2000"])
    told = "   standard deviations over the fit's standard errors, the farthest from one"
    ratio = sds / np.array(errors)
    rows.append([told, f"{ratio[np.argmax(np.abs(np.log(ratio)))]:.3f}", "1", "", ""])


# (d) The same on an accelerator ---------------------------------------------------------------------------------------


ACCELERATOR_HEAD = ["what", "processors", "accelerator", "times", "goal"]


def on_accelerator(size, device):
    """Rows of the table, some at a time: fits, passes and a posterior on all processors and on the accelerator."""
    for what in ("Student t law, EM", "normal law, EM"):
        both = [local_privacy(size, what, engine) for engine in ("None", device)]
        for number, told, goal in ((0, "a fit, compilation included", ""), (3, "a pass", "1")):
            there, here = (one[number] for one in both)
            told = f"{what}, {size:,} rows: seconds of {told}"
            yield [told, f"{there:.2f}", f"{here:.2f}", f"{there / here:.1f}", goal]
        gap = max(abs(a / b - 1.0) for a, b in zip(both[0][4:], both[1][4:], strict=True))
        yield ["   standard errors differ by, at most", "", f"{gap:.1e}", "", ""]
        if what.startswith("Student"):
            took, _, worth, *_ = measured(POSTERIOR, rows=size, normal=False, draws=DRAWS, engine=device)
            told = f"Student t law, posterior of {size:,} rows: seconds, {DRAWS} draws worth {worth:.0f}"
            yield [told, "", f"{took:.1f}", "", ""]


def write_accelerator(found):
    """The measured table on the page."""
    command = "python benchmarks/likelihood.py --accelerator"
    note = "`engine=nw.Device()`, in double precision. A pass is likelihood, score and information of all rows."
    told = [page.measured_by(command, found["where"]), note, page.table([ACCELERATOR_HEAD, *found["rows"]])]
    page.write("likelihood on an accelerator", "\n\n".join(["## A million rows on an accelerator", *told]))


STAGED = """
import time
import numpyro.distributions as dist, noisewise as nw
model = nw.Model(prior={{"a": dist.Normal(0.0, 10.0)}}, statistics={{"y": lambda a: dist.StudentT(3.0, a, 1.0)}})
release = nw.Release(y=nw.Laplace(scale=1.0).released(2.0))
schedule = nw.Staged(sizes=(1_000, 100_000, {last}), cap=5)
start = time.perf_counter()
fit = nw.fit(model, release, nw.MCEM(schedule=schedule, final={last}), start={{"a": 1.0}}, seed=1, progress=False)
seconds = time.perf_counter() - start
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
print(seconds, peak, len(fit.trace), fit.monte_carlo_error["a"])
"""


def bench_staged(rows, last):
    """Seconds and peak memory of the paper's schedule with a law that is no exponential family."""
    done = subprocess.run([sys.executable, "-c", STAGED.format(last=last)], capture_output=True, text=True, check=True)
    took, peak, steps, error = map(float, done.stdout.split())
    told = f"one Student t value, Staged to {last:,} values: seconds, {steps:.0f} steps, error {error:.1e}"
    rows.append([told, f"{took:.1f}", "", "", ""])
    rows.append(["   peak MB", f"{peak:.0f}", "", "", "2000"])


HEAD = ["what", "noisewise", "beside it", "ratio", "goal"]


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["count", "rows"])
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--accelerator", action="store_true", help="very many rows on the accelerator of this machine")
    parser.add_argument("--platform", help='of the accelerator; "cpu" to see that it runs')
    parser.add_argument("--out", type=Path, help="where to put what --accelerator measured")
    parser.add_argument("--page", type=Path, help="write on the page what --accelerator has measured elsewhere")
    chosen = parser.parse_args()
    if chosen.page is not None:
        write_accelerator(json.loads(chosen.page.read_text()))
        return
    if chosen.accelerator:
        where = f"one {jax.devices(chosen.platform)[0].device_kind} beside {processors()} processors"
        found = {"where": f"{where}, JAX {jax.__version__}", "rows": []}
        print(" | ".join(ACCELERATOR_HEAD))
        for row in on_accelerator(70_000 if chosen.quick else 1_000_000, f"nw.Device({chosen.platform!r})"):
            print(" | ".join(row), flush=True)
            found["rows"].append(row)
            if chosen.out is not None:
                chosen.out.write_text(json.dumps(found))
        if chosen.write:
            write_accelerator(found)
        return
    rows = []
    if chosen.only != "rows":
        bench_staged(rows, 10**5 if chosen.quick else 10**7)
        bench_count(rows, *((1_000_000, 4, 10**5, 1) if chosen.quick else (29_000_000, 20, 10**7, 3)))
    if chosen.only != "count":
        sizes = (5_000, 10_000) if chosen.quick else (500_000, 1_000_000)
        fitted = {what: bench_rows(rows, what, sizes) for what in FITS}
        if not chosen.quick:  # a smaller one is sampled in another way
            for law in ("normal", "Student t"):
                bench_posterior(rows, law, sizes[-1], fitted[f"{law} law, EM"])
    show(rows)
    if chosen.write:
        told = [page.measured_by("python benchmarks/likelihood.py --write"), page.table([HEAD, *rows])]
        page.write("likelihood", "\n\n".join(["## Maximum likelihood", *told]))


def show(rows):
    """Print the table; rich is not on every machine that has an accelerator."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEAD, title=f"{processors()} threads")
    for row in rows:
        table.add_row(*row)
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
