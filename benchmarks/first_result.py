"""What a first result takes: importing, the first `nw.sample` of a new model, and `noisewise fit` from cold.

Each in a process of its own, that nothing has warmed up; medians. "to import" is in no other figure, and the seconds of
tracing, lowering and compiling add up over threads: beside one another they may exceed those on the clock.

    python benchmarks/first_result.py [--repeats 5] [--only WORD ...] [--beside OLD/src] [--write]

With `--beside`, another version of the library takes turns with this one: "before" are its seconds, and "share" is the
median, over the turns, of this version's seconds over its.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import page
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
DRAWS = 4_000
EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}
"""What JAX says of the time that its programs take before they first run."""


class Compilations:
    """Counts and seconds of what JAX traces, lowers and compiles from now on in this process."""

    def __init__(self):
        import jax

        self.seconds = dict.fromkeys(EVENTS.values(), 0.0)
        self.programs = 0
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event, seconds, **_):
        if event in EVENTS:
            self.seconds[EVENTS[event]] += seconds
            self.programs += EVENTS[event] == "compiling"


# In the fresh process ------------------------------------------------------------------------------------------------


def first_sample(name):
    """The first draws of a problem, and the same once more."""
    import warnings

    sys.path.insert(0, str(HERE.parent / "tests" / "campaigns"))
    import first_problems

    import noisewise as nw

    warnings.simplefilter("ignore")
    heard = Compilations()
    model, release = first_problems.PROBLEMS[name]()
    before, start, work = heard.programs, time.perf_counter(), time.process_time()
    posterior = nw.sample(model, release, draws=DRAWS, seed=1, progress=False)
    seconds, processor = time.perf_counter() - start, time.process_time() - work
    found = {"seconds": seconds, "processor": processor, "programs": heard.programs - before, **heard.seconds}
    start = time.perf_counter()
    nw.sample(model, release, draws=DRAWS, seed=1, progress=False)
    sampler = type(posterior.sampler).__name__
    return found | {"again": time.perf_counter() - start, "sampler": sampler, "status": posterior.status}


# In the process that measures ----------------------------------------------------------------------------------------


def timed(command, **options):
    """Seconds, and processor seconds, of a command."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as everywhere
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "processor": processor}


def imports(module):
    """A process that imports one module, less one that imports nothing."""
    nothing = timed([sys.executable, "-c", ""])
    return {key: value - nothing[key] for key, value in timed([sys.executable, "-c", f"import {module}"]).items()}


def sampled(name, source=None):
    """`first_sample` in a process of its own, by the library in another folder of sources if one is given."""
    environment = os.environ | ({} if source is None else {"PYTHONPATH": source})
    command = [sys.executable, __file__, "--worker", name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def fitted(cache, warm=False):
    """`noisewise fit` of the count starter, with a folder of compiled programs: none, an empty one, a filled one."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NOISEWISE_CACHE": f"{folder}/cache" if cache else "0"}
        run = [sys.executable, "-m", "noisewise"]
        how = {"cwd": folder, "env": environment}
        timed([*run, "new", "count"], **how)
        for out in ["warm-up"] * warm:
            timed([*run, "fit", "count.toml", "--quiet", "--out", out], **how)
        return timed([*run, "fit", "count.toml", "--quiet"], **how)


def measures():
    """What is measured, by name."""
    import first_problems

    found = {f"import {module}": lambda module=module: imports(module) for module in ("numpyro", "noisewise")}
    found |= {f"sample: {name}": lambda name=name: sampled(name) for name in first_problems.PROBLEMS}
    found["fit count.toml, no cache"] = lambda: fitted(False)
    found["fit count.toml, cache empty"] = lambda: fitted(True)
    found["fit count.toml, cache filled"] = lambda: fitted(True, warm=True)
    return found


HEAD = ["what", "sampler", "seconds", "processor", "programs", "tracing", "lowering", "compiling", "once more"]
BESIDE = ["before", "share"]


def cells(name, runs):
    """One row of text."""

    def middle(key, form):
        values = [run[key] for run in runs if key in run]
        return form.format(statistics.median(values)) if values else ""

    numbers = [middle(key, "{:.2f}") for key in ("seconds", "processor")]
    numbers += [middle("programs", "{:.0f}"), *(middle(key, "{:.2f}") for key in EVENTS.values())]
    return [name, runs[0].get("sampler", ""), *numbers, middle("again", "{:.2f}")]


def cells_beside(runs, before):
    """The other version's seconds, and this version's share of them turn by turn; nothing where it took no turns."""
    if not before:
        return ["", ""]
    shares = [one["seconds"] / other["seconds"] for one, other in zip(runs, before, strict=True)]
    return [f"{statistics.median(run['seconds'] for run in before):.2f}", f"{statistics.median(shares):.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[""], help="words, one of which a row's name must hold")
    parser.add_argument("--beside", metavar="SRC", help="the folder of sources of another version, to take turns with")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(first_sample(arguments.worker)))
        return
    chosen = {name: measure for name, measure in measures().items() if any(word in name for word in arguments.only)}
    timed([sys.executable, "-c", "import noisewise.cli"])
    runs, before = ({name: [] for name in chosen} for _ in range(2))
    for _ in range(arguments.repeats):
        for name, measure in chosen.items():
            runs[name].append(measure())
            if arguments.beside and name.startswith("sample: "):
                before[name].append(sampled(name.removeprefix("sample: "), arguments.beside))
    head = HEAD + (BESIDE if arguments.beside else [])
    rows = [
        cells(name, found) + (cells_beside(found, before[name]) if arguments.beside else [])
        for name, found in runs.items()
    ]
    table = Table(*head)
    for row in rows:
        table.add_row(*row)
    Console(width=160).print(table)
    if arguments.write:
        paragraphs = __doc__.split("\n\n")
        about = " ".join((paragraphs[1] + " " * 2 + paragraphs[3] * bool(arguments.beside)).split())
        beside = " --beside OLD/src" if arguments.beside else ""
        command = page.measured_by(f"python benchmarks/first_result.py --repeats {arguments.repeats}{beside} --write")
        page.write("first result", "\n\n".join(["## The first result", command, about, page.table([head, *rows])]))


if __name__ == "__main__":
    main()
