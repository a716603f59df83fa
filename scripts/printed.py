"""Bring what pages show as printed output up to date: `python scripts/printed.py docs/getting-started.md ...`.

Runs a page's Python, top to bottom, and puts what each box prints into the box of text that follows it. Sentences are
left as they are: read them again where numbers have changed.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from pictures import with_data

BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)

CONSOLE = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


def brought_up_to_date(text: str, name: str) -> str:
    """The page's text with the output its code prints now."""
    namespace = {"__name__": "__main__"}
    printed = ""

    def box(found: re.Match[str]) -> str:
        nonlocal printed
        kind, content = found.groups()
        if kind == "python":
            heard = io.StringIO()
            with contextlib.redirect_stdout(heard):
                exec(compile(content, name, "exec"), namespace)
            printed = "".join(line.rstrip() + "\n" for line in heard.getvalue().splitlines())
            return found[0]
        return found[0] if content.split() == printed.split() else f"```text\n{printed}```"

    return BLOCK.sub(box, text)


def typed_anew(text: str) -> str:
    """A page without code, with what its commands print now: boxes of `$ noisewise ...` run one after the other."""

    def box(found: re.Match[str]) -> str:
        lines = [line for line in found[1].splitlines() if line.startswith("$ noisewise ")]
        return "```console\n" + "".join(f"{line}\n{output(line)}" for line in lines) + "```"

    return CONSOLE.sub(box, text)


def output(line: str) -> str:
    """What a command prints, without the ends of lines."""
    command = [sys.executable, "-m", *shlex.split(line.removeprefix("$ "))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return "".join(f"{each.rstrip()}\n" for each in done.stdout.splitlines())


def main(names: list[str]) -> None:
    """Rewrite the pages named."""
    os.environ["MPLBACKEND"] = "Agg"
    for page in [Path(name).resolve() for name in names]:
        before = page.read_text(encoding="utf-8")
        with with_data():
            after = typed_anew(before) if page.name.startswith("no-code") else brought_up_to_date(before, page.name)
        page.write_text(after, encoding="utf-8")
        print(page.name, "as before" if after == before else "CHANGED: read its sentences again")


if __name__ == "__main__":
    main(sys.argv[1:])
