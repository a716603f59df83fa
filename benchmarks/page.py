"""docs/benchmarks.md, whose parts the benchmarks write themselves, each between its own marks."""

import datetime
import os
import platform
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
PARTS = (
    *("first result", "forecasts", "samplers", "conjugate", "hierarchy", "numpyro models"),
    *("likelihood", "likelihood on an accelerator", "peers", "threads", "threads without a lock", "threads elsewhere"),
    *("scaling", "tables", "tables on an accelerator", "coverage", "design", "checkpoint", "device"),
)
"""Their order on the page."""
HEAD = (
    "# Benchmarks\n\nEvery table is written by the command above it. Machines differ, and so do runs on one machine: "
    "look at the ratios, which were measured side by side.\n"
)


def marks(part):
    """Where a part begins and ends."""
    return f"<!-- {part}: written by its benchmark -->", f"<!-- end of {part} -->"


def table(rows):
    """Rows of text as Markdown; the first is the head."""
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])


def machine():
    """The processor, how many, and the Python."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    processors, version = len(os.sched_getaffinity(0)), platform.python_version()
    return f"{model}, {processors} processors, {'' if locked() else 'free-threaded '}Python {version}"


def locked():
    """Whether one thread at a time runs Python code."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def peak():
    """Peak memory of this process in MiB; the resource module's would be no less than its parent's."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measured_by(command, where=None):
    """When, where and by what."""
    return f"Measured on {datetime.date.today().isoformat()} on {where or machine()}, by `{command}`."


def write(part, text):
    """Put the text in its place on the page; the other parts stay."""
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    found = {}
    for name in PARTS:
        begin, end = marks(name)
        if begin in old:
            found[name] = old.partition(begin)[2].partition(end)[0].strip()
    found[part] = text.strip()
    written = [f"{marks(name)[0]}\n{found[name]}\n{marks(name)[1]}\n" for name in PARTS if name in found]
    PAGE.write_text("\n".join([HEAD, *written]), encoding="utf-8")
