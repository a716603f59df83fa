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


class Window:
    """The page in one size, and what a person does there; a picture of each state goes to `folder`."""

    def __init__(self, browser: Any, address: str, size: str, folder: Path) -> None:
        self.page, self.size, self.folder = opened(browser, address, size), size, folder
        self.page.wait_for_selector("#check_message .found")

    def keep(self, name: str, whole: bool = True) -> None:
        """A picture from the top: whole, or what is seen without scrolling."""
        self.page.evaluate("window.scrollTo(0, 0)")
        self.page.wait_for_timeout(300)
        self.page.screenshot(path=self.folder / f"{name}-{self.size}.png", full_page=whole)

    def write(self, text: str, expected: str = "found") -> None:
        """Another analysis file, checked."""
        self.page.fill("#analysis", text)
        self.page.wait_for_timeout(1_000)  # until what is told is told of this text
        self.page.wait_for_selector(f"#check_message .{expected}")

    def run(self, ends: str = "finished") -> None:
        """Press Run and wait for the end."""
        before = self.page.inner_text("#state")
        self.page.click("#run")
        until(lambda: self.page.inner_text("#state") != before and ends in self.page.inner_text("#state"))


def states(folder: Path) -> None:
    """Every state of the page, in every size."""
    folder.mkdir(parents=True, exist_ok=True)
    count = starter("count")
    with serving(folder / "runs") as server, started() as browser:
        for size in SIZES:
            window = Window(browser, server.url, size, folder)
            page = window.page
            window.keep("01-beginning")
            window.write(MISTAKE, "wrong")
            page.click("#run")
            page.wait_for_selector("#run_message .wrong")
            window.keep("02-mistake")
            window.write(LONG.replace("A privatised count", TITLE))
            page.click("#run")
            page.wait_for_selector("#bar progress[value]")
            window.keep("03-running-long-title")
            page.click("#cancel")
            until(lambda page=page: "cancelled" in page.inner_text("#state"))
            window.keep("04-cancelled")
            window.write(count)
            until(lambda page=page: page.input_value("#form_value") == "37.4")
            page.fill("#form_value", "41.5")
            page.fill("#form_low", "20")
            page.fill("#form_high", "45")
            page.click("text=Another kind of noise, or a release file")
            window.keep("05-form")
            page.click("text=Another kind of noise, or a release file")
            window.write(count)
            window.run()
            page.wait_for_selector("#verdict")
            window.keep("06-result")
            window.keep("06-result-top", whole=False)
            window.write(count.replace("value = 37.4", "value = 75"))
            window.run()
            window.keep("07-conflict")
            window.write(count.replace("value = 37.4", "value = 3700000000"))
            window.run("failed")
            window.keep("08-typo")
            mine = starter("means").replace("Difference of two clamped means", TITLE).encode()
            page.on("dialog", lambda dialog: dialog.accept())
            page.set_input_files("#open_file", {"name": "mine.toml", "mimeType": "text/plain", "buffer": mine})
            until(lambda page=page: "mean_treated" in page.input_value("#analysis"))
            page.wait_for_timeout(1_000)
            window.run()
            window.keep("09-own-file-long-title")
            for at in range(2):
                page.locator(".compare").nth(at).check()
            page.wait_for_selector("#side_by_side table")
            window.keep("10-side-by-side")
            window.write(starter("design"))
            page.wait_for_selector("#design:enabled")
            page.click("#design")
            page.wait_for_selector("#answer")
            window.keep("11-design")
            page.close()
        windows = [Window(browser, server.url, size, folder) for size in SIZES]
        server.stop()
        for window in windows:
            window.page.wait_for_selector("#gone:not([hidden])")
            window.keep("12-gone", whole=False)


if __name__ == "__main__":
    states(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"))
