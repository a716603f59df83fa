"""One problem with one seed in a process of its own: `python -m realistic.worker NAME SEED`, a line of JSON a stage.

The truth comes first, on nobody's clock; then what an analyst would run, timed; then the forecast, for the table.
"""

import json
import sys
import time
import traceback
import warnings

import noisewise as nw
from realistic.catalogue import PROBLEMS
from realistic.judge import compared

DRAWS = 4000


def say(**stage):
    print(json.dumps(stage), flush=True)


def sampled(case, seed):
    """What `nw.sample` gives with nothing but draws and seed, and how far from the truth it lies."""
    truth = case.truth()
    say(stage="start")
    start = time.perf_counter()
    try:
        posterior = nw.sample(case.model, case.release, draws=DRAWS, seed=seed)
    except (nw.InferenceError, nw.InputError) as error:
        held = getattr(error, "result", None)
        status = "input" if held is None else held.status
        return {"result": "refused", "status": status, "why": str(error), "seconds": time.perf_counter() - start}
    except Exception as error:  # anything else is no answer to a person
        traceback.print_exc()
        why = f"{type(error).__name__}: {error}"
        return {"result": "broken", "status": "error", "why": why, "seconds": time.perf_counter() - start}
    seconds = time.perf_counter() - start
    z = compared(posterior, truth, case.views)
    worst = max(z, key=z.get)
    return {
        "result": "right" if z[worst] <= 1 else "wrong",
        "status": posterior.status,
        "seconds": seconds,
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
    seconds = forecast.ranking[0].work * forecast.seconds_per_unit
    return {"forecast": type(forecast.choice).__name__, "forecast_seconds": float(seconds)}


def main():
    name, seed = sys.argv[1], int(sys.argv[2])
    warnings.simplefilter("ignore")
    case = PROBLEMS[name]()
    say(stage="sampled", **sampled(case, seed))
    say(stage="forecast", **expected(case, seed))


if __name__ == "__main__":
    main()
