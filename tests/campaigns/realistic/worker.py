"""One problem with one seed in a process of its own: `python -m realistic.worker NAME SEED TRUTHS`.

Prints a line of JSON for each stage. The truth comes first, on nobody's clock, and is kept in the folder TRUTHS for
other seeds; then what an analyst would run, timed; then the forecast, for the table.
"""

import dataclasses
import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

import noisewise as nw
from realistic.catalogue import PROBLEMS
from realistic.judge import compared
from realistic.problem import Truth

DRAWS = 4000


def say(**stage):
    print(json.dumps(stage), flush=True)


def truth_of(name, case, folder):
    """The problem's truth: read, or computed and kept."""
    file = Path(folder) / f"{name}.json"
    if not file.exists():
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(dataclasses.asdict(case.truth())))
        part.rename(file)
    return Truth(**json.loads(file.read_text()))


def sampled(case, truth, seed):
    """What `nw.sample` gives with nothing but draws and seed, and how far from the truth it lies."""
    start, work = time.perf_counter(), time.process_time()

    def spent():
        return {"seconds": time.perf_counter() - start, "processor": time.process_time() - work}

    try:
        posterior = nw.sample(case.model, case.release, draws=DRAWS, seed=seed)
    except (nw.InferenceError, nw.InputError) as error:
        held = getattr(error, "result", None)
        status = "input" if held is None else held.status
        return {"result": "refused", "status": status, "why": str(error), **spent()}
    except Exception as error:  # anything else is no answer to a person
        traceback.print_exc()
        why = f"{type(error).__name__}: {error}"
        return {"result": "broken", "status": "error", "why": why, **spent()}
    taken = spent()
    z = compared(posterior, truth, case.views)
    worst = max(z, key=z.get)
    return {
        "result": "right" if z[worst] <= 1 else "wrong",
        "status": posterior.status,
        **taken,
        "sampler": type(posterior.sampler).__name__,
        "z": z[worst],
        "at": worst,
        "compared": len(z),
        "why": posterior.reason,
    }


def expected(case, seed):
    """The forecast's choice and its seconds."""
    try:
        forecast = nw.forecast(case.model, case.release, draws=DRAWS, seed=seed)
    except (nw.InferenceError, nw.InputError) as error:
        return {"forecast": "refused", "forecast_why": str(error)}
    seconds = forecast.table()["seconds"].iloc[0]  # as a user is shown them
    return {"forecast": type(forecast.choice).__name__, "forecast_seconds": float(seconds)}


def main():
    name, seed, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    warnings.simplefilter("ignore")
    case = PROBLEMS[name]()
    truth = truth_of(name, case, folder)
    say(stage="start")
    say(stage="sampled", **sampled(case, truth, seed))
    say(stage="forecast", **expected(case, seed))


if __name__ == "__main__":
    main()
