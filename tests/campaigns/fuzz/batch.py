"""One batch of malformed files in a process of its own: `python -m fuzz.batch KIND SEED FIRST COUNT FOLDER`.

Every input has a limit of processor time; the process one of memory. Input number i depends on kind, seed and i only.
Findings and the tally go to standard output as lines of JSON; FOLDER/at holds the number being read, for the caller
to know where a crash came from, and findings are kept there as files.
"""

import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

SECONDS = 10.0
"""Of processor time, for one input."""
MEMORY = 2**30
"""Bytes of address space beyond what the process has when it is ready."""


class TooLong(BaseException):
    """An input that took more than its time."""


def _too_long(number, frame):
    raise TooLong


def limited(call):
    """Run `call` under the time limit."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def limit_memory():
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def one(kind, data, path):
    """The outcome for one input, or a finding: what it raised."""
    from fuzz.kinds_of_files import outcome

    path.write_bytes(data)
    try:
        return limited(lambda: outcome(kind, path)), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {str(error)[:200]} at {Path(last.filename).name}:{last.lineno}"
        return "finding", told


def warm(kind, path):
    """Read a good file and a few malformed ones, so that everything is imported and compiled before limits count."""
    from fuzz.kinds_of_files import malformed

    for number in range(3):
        one(kind, malformed(kind, random.Random(f"warm/{number}")), path)


def main(kind, seed, first, count, folder):
    from fuzz.kinds_of_files import malformed

    # pandas keeps words with Arrow where it is installed, whose own allocator reserves a gibibyte of addresses at once
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    path, at = Path(folder) / f"{kind}.input", Path(folder) / f"{kind}.at"
    warm(kind, path)
    limit_memory()
    before, tally, slowest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, {}, 0.0
    for number in range(first, first + count):
        data = malformed(kind, random.Random(f"{kind}/{seed}/{number}"))
        at.write_text(str(number))
        began = time.process_time()
        found, told = one(kind, data, path)
        slowest = max(slowest, time.process_time() - began)
        tally[found] = tally.get(found, 0) + 1
        if told is not None:
            kept = Path(folder) / f"{kind}-{seed}-{number}"
            kept.write_bytes(data)
            print(json.dumps({"finding": told, "number": number, "file": kept.name}), flush=True)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(json.dumps({"tally": tally, "slowest": round(slowest, 3), "growth": growth}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
