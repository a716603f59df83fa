"""Make every picture of the documentation: `make pictures`, or `python scripts/pictures.py [NAME.png ...]`.

A picture of a page is what the page's own code saves under that name, so page and picture cannot disagree. The README's
is that of `noisewise demo`.
"""

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PICTURES = {
    "noisy-count.png": "tutorials/noisy-count.md",
    "county-counts.png": "tutorials/county-counts.md",
    "census-tracts.png": "tutorials/census-tracts.md",
    "withheld-days.png": "tutorials/withheld-days.md",
    "clamped-mean.png": "tutorials/clamped-mean.md",
    "two-arm-trial.png": "tutorials/two-arm-trial.md",
    "noisy-mean.png": "tutorials/noisy-mean.md",
    "county-regression.png": "tutorials/county-regression.md",
    "line-from-sums.png": "tutorials/line-from-sums.md",
    "noise-on-every-row.png": "tutorials/noise-on-every-row.md",
    "model-check.png": "tutorials/model-check.md",
    "which-release.png": "tutorials/which-release.md",
    "forest.png": "answers.md",
    "pairs.png": "answers.md",
}
"""Pictures, and the pages whose code makes them."""
DEMO = "demo.png"
SCREENSHOTS = ("report-count.png", "report-response.png", "report-means.png", "page-count.png", "page-design.png")
"""Taken in a browser, by screenshots.py."""


@contextlib.contextmanager
def with_data() -> Iterator[Path]:
    """A new working directory, with the files that pages offer for download."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for data in (DOCS / "data").iterdir():
            shutil.copy(data, ".")
        yield Path(folder)


def run(page: Path) -> None:
    """Run a page's Python, top to bottom, in the working directory."""
    namespace = {"__name__": "__main__"}
    for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
        exec(compile(block, f"{page.name}, block {number + 1}", "exec"), namespace)


def demo() -> None:
    """The README's picture."""
    from noisewise.cli.examples import demo as make

    make(Path(DEMO), 10_000, 1)


def main(names: list[str]) -> None:
    """Make the pictures named, or all of them."""
    os.environ["MPLBACKEND"] = "Agg"
    wanted = names or [DEMO, *PICTURES, *SCREENSHOTS]
    for name in [name for name in wanted if name not in SCREENSHOTS]:
        print(name, flush=True)
        with with_data():
            demo() if name == DEMO else run(DOCS / PICTURES[name])
            shutil.copy(name, DOCS / "images" / name)
    shown = [name for name in wanted if name in SCREENSHOTS]
    if shown:
        from screenshots import take

        print(*shown, flush=True)
        with with_data() as folder:
            take(shown, folder)
            for name in shown:
                shutil.copy(name, DOCS / "images" / name)


if __name__ == "__main__":
    main(sys.argv[1:])
