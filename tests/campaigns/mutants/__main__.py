"""`make mutants`: statistical mistakes, planted one by one; which tests catch them?

    python -m mutants [--jobs 1] [--only WORD ...] [--out FILE]

For every mutant, the tests that ought to catch it, on a copy of the package with that one mistake. A mutant is killed
(a test failed), SURVIVED (none did), stale (its text is not found exactly once, a test it names is gone, or it does
not even import), or `clean fails`: the test that failed does so on the package as it is, too. Prints one line each
and the share that was killed; ends with 1 unless all were.
"""

import argparse
import concurrent.futures
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path

from mutant import Mutant

from mutants.table import MUTANTS
from mutants.verdict import run_tests, server, verdict


class Runner:
    """Judges mutants; remembers which tests pass on the package as it is."""

    def __init__(self) -> None:
        self.context, self.passes = server(), {}

    def judged(self, name: str, mutant: Mutant) -> dict:
        """A row of the table."""
        start = time.monotonic()
        result, said = verdict(mutant, self.context)
        caught = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", said, re.MULTILINE)
        if caught and not self.is_clean(caught[0], mutant.long):
            result = "clean fails"
        why = caught[0].split("/")[-1] if caught else "no longer ends" if result == "killed" else ""
        seconds = round(time.monotonic() - start, 1)
        why = said.strip()[-300:] if result == "stale" else why
        return {"mutant": name, "file": mutant.file, "result": result, "seconds": seconds, "by": why}

    def is_clean(self, node: str, long: bool) -> bool:
        """Whether a test passes on the package as it is: one that fails there says nothing of a mutant."""
        if node not in self.passes:
            self.passes[node] = run_tests([node], self.context, options=["--long"] if long else [])[0] == 0
        return self.passes[node]


def line(row):
    return f"{row['result']:11} {row['seconds']:6.1f}  {row['file']:44} {row['mutant']:88} {row['by'][:100]}".rstrip()


def summary(rows):
    tally = Counter(row["result"] for row in rows)
    counts = ", ".join(f"{tally[kind]} {kind}" for kind in ("killed", "SURVIVED", "stale", "clean fails"))
    files = len({row["file"] for row in rows})
    return f"{len(rows)} mutants in {files} files: {counts}; {tally['killed'] / max(len(rows), 1):.1%} killed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[""], help="words, one of which a mutant's name or file must hold")
    parser.add_argument("--out", help="a file for the rows, as JSON")
    chosen = parser.parse_args()
    mutants = {
        name: mutant
        for name, mutant in MUTANTS.items()
        if any(word in name or word in mutant.file for word in chosen.only)
    }
    runner, rows = Runner(), []
    print(f"{'result':11} seconds {'file':44} {'mutant':88} caught by", flush=True)
    with concurrent.futures.ThreadPoolExecutor(chosen.jobs) as pool:
        for row in pool.map(lambda item: runner.judged(*item), mutants.items()):
            rows.append(row)
            print(line(row), flush=True)
            if chosen.out:
                Path(chosen.out).write_text(json.dumps(rows, indent=1) + "\n")
    print(summary(rows))
    sys.exit(0 if all(row["result"] == "killed" for row in rows) else 1)


if __name__ == "__main__":
    main()
