"""Pictures of the report and of the page for the documentation, by a real browser: `make pictures` makes them too.

`python scripts/screenshots.py FOLDER` takes every state of the page as well, wide, on a phone and in the dark, to look
at. Needs the developer's packages; Debian's Chromium is found or installed by tests/helpers/browser.py.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from browser import started  # noqa: E402

from noisewise.analysis import Analysis, starter  # noqa: E402
from noisewise.page import Server  # noqa: E402
from noisewise.workflow.reporting import write  # noqa: E402
from noisewise.workflow.run import run_posterior  # noqa: E402

SIZES = {"wide": (1280, 900, "light"), "phone": (390, 844, "light"), "dark": (1280, 900, "dark")}
REPORTS = {"report-count.png": "count", "report-response.png": "response", "report-means.png": "means"}
"""Pictures of reports, and the starters behind them."""
PAGES = {"page-count.png": ("count", "#run", "#verdict"), "page-design.png": ("design", "#design", "#answer")}
"""Pictures of the page: the starter, the button that is pressed, and what is waited for."""
MISTAKE = starter("count").replace("Poisson(theta)", "Poison(theta)")
LONG = starter("count").replace("draws = 10000", "draws = 6000000")
TITLE = "A very long title that somebody has written without thinking of those who read it on a telephone, " * 2


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """The page, while the body runs."""
    server = Server(folder)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(timeout=30)


def until(condition: Callable[[], bool], seconds: float = 240) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.1)


def opened(browser: Any, address: str, size: str = "wide") -> Any:
    """A window of that size."""
    width, height, scheme = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.set_default_timeout(240_000)
    page.goto(address)
    return page


def report_of(kind: str, folder: Path) -> Path:
    """The report of a starter's analysis."""
    results = run_posterior(Analysis.from_text(starter(kind), f"{kind}.toml"), "fit", progress=False)
    write(results, folder / f"{kind}-results")
    return folder / f"{kind}-results" / "report.html"


def take(names: list[str], folder: Path) -> None:
    """The pictures of the documentation that are named, into the working directory; runs go to `folder`."""
    reports = {name: report_of(REPORTS[name], folder) for name in names if name in REPORTS}
    with serving(folder / "runs") as server, started() as browser:
        for name in names:
            if name in reports:
                page = opened(browser, reports[name].as_uri())
            else:
                page = opened(browser, server.url)
                kind, button, answer = PAGES[name]
                page.fill("#analysis", starter(kind))
                page.wait_for_selector(f"{button}:enabled")
                page.click(button)
                page.wait_for_selector(answer)
                page.evaluate("window.scrollTo(0, 0)")
            page.wait_for_timeout(500)
            page.screenshot(path=name)
            page.close()


def states(folder: Path) -> None:
    """Every state of the page, in every size."""
    folder.mkdir(parents=True, exist_ok=True)
    with serving(folder / "runs") as server, started() as browser:
        for size in SIZES:
            page = opened(browser, server.url, size)

            def keep(name: str, page: Any = page, size: str = size) -> None:
                page.screenshot(path=folder / f"{name}-{size}.png", full_page=name != "top")

            page.wait_for_selector("#check_message .found")
            keep("1-beginning")
            page.fill("#analysis", MISTAKE)
            page.wait_for_selector("#check_message .wrong")
            page.click("#run")
            page.wait_for_selector("#run_message .wrong")
            keep("2-mistake")
            page.fill("#analysis", LONG.replace("A privatised count", TITLE))
            page.wait_for_selector("#check_message .found")
            page.click("#run")
            page.wait_for_selector("#bar progress[value]")
            keep("3-running")
            page.click("#cancel")
            until(lambda page=page: "cancelled" in page.inner_text("#state"))
            keep("4-cancelled")
            page.fill("#analysis", starter("count"))
            page.wait_for_selector("#check_message .found")
            page.click("#run")
            until(lambda page=page: "finished" in page.inner_text("#state"))
            page.wait_for_selector("#verdict")
            keep("5-result")
            keep("top")
            page.fill("#analysis", starter("count").replace("value = 37.4", "value = 41.5"))
            page.wait_for_selector("#check_message .found")
            page.click("#run")
            until(lambda page=page: page.locator(".compare").count() >= 2 and "finished" in page.inner_text("#state"))
            for at in range(2):
                page.locator(".compare").nth(at).check()
            page.wait_for_selector("#side_by_side table")
            keep("6-side-by-side")
            page.fill("#analysis", starter("design"))
            page.wait_for_selector("#design:enabled")
            page.click("#design")
            page.wait_for_selector("#answer")
            keep("7-design")
            page.close()
        page = opened(browser, server.url)
        page.wait_for_selector("#check_message .found")
        server.stop()
        page.wait_for_selector("#gone:not([hidden])")
        page.screenshot(path=folder / "8-gone.png")


if __name__ == "__main__":
    states(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"))
