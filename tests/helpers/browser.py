"""A real browser for tests: Debian's Chromium, headless, driven by Playwright for Python.

`chromium` is a session fixture of every test file, by conftest.py. Chromium is installed by apt where it is missing and
that is possible; otherwise the tests that need it are skipped, with the reason. Screenshots are taken, and PDFs kept,
where NOISEWISE_SCREENSHOTS names a folder for them.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions"),
)
INSTALL_SECONDS = 240
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1100, "height": 900}


def executable():
    """(path, "") of Chromium, installed first where it is missing; or (None, reason). By one process at a time."""
    with open(Path(tempfile.gettempdir()) / "noisewise-chromium.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _executable()


def _executable():
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is not None:
        return found, ""
    apt = shutil.which("apt-get")
    if apt is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return None, "no Chromium on this machine, and it cannot be installed without apt-get and root"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    why = "apt-get did not deliver it"
    for command in ([apt, "install", "-y", "chromium"], [apt, "update"], [apt, "install", "-y", "chromium"]):
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            return None, f"no Chromium on this machine, and apt-get took more than {INSTALL_SECONDS} seconds"
        if done.returncode == 0 and shutil.which("chromium"):
            return shutil.which("chromium"), ""
        why = (done.stderr or done.stdout).strip()[-300:] or why
    return None, f"no Chromium on this machine, and installing it failed: {why}"


@contextmanager
def started():
    """A running headless browser with a profile of its own, gone afterwards."""
    from playwright.sync_api import sync_playwright

    path, reason = executable()
    if path is None:
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS), timeout=120_000)
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests of a session; each test opens contexts of its own."""
    pytest.importorskip("playwright", reason="Playwright for Python is not installed: pip install playwright")
    with started() as browser:
        yield browser


class Watched:
    """A page, with what went wrong on it: `errors` of its console and scripts, `requests` beyond the page itself."""

    def __init__(self, page):
        self.page, self.errors, self.requests = page, [], []
        page.on("console", lambda message: self._console(message))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(message.text)


@contextmanager
def opened(browser, url, **options):
    """`url` (or a path) in a fresh context; options are those of Playwright's `new_context`, with DESK as viewport."""
    given = {"viewport": DESK, **options}
    context = browser.new_context(**given)
    try:
        watched = Watched(context.new_page())
        watched.page.goto(url.as_uri() if isinstance(url, Path) else url, wait_until="load", timeout=120_000)
        yield watched
    finally:
        context.close()


def overflow(page):
    """By how many pixels the page is wider than its window, and what sticks out."""
    return page.evaluate(
        """() => {
            const root = document.documentElement, wide = root.scrollWidth - root.clientWidth;
            const inside = (e) => e.parentElement && (e.parentElement.closest('.scroll, pre, svg, .skip') !== null);
            const beyond = (e) => e.getBoundingClientRect().right > root.clientWidth + 1;
            const out = [...document.body.querySelectorAll('*')]
                .filter((e) => !inside(e) && !e.matches('.skip') && beyond(e))
                .map((e) => e.tagName + '.' + (e.getAttribute('class') || '') + '#' + e.id);
            return [wide, out];
        }"""
    )


AT_REST = """() => Promise.allSettled(
    document.getAnimations().filter((each) => Number.isFinite(each.effect.getComputedTiming().endTime))
        .map((each) => each.finished)).then(() => null)"""
"""Waits for what moves and will come to an end."""


def serious_findings(page):
    """What axe-core calls serious or critical: 'rule: element' for each. Of a page at rest: colours may glide."""
    from axe_playwright_python.sync_playwright import Axe

    page.evaluate(AT_REST)
    found = Axe().run(page)
    return [
        f"{rule['id']} ({rule['impact']}): {node['html'][:160]}"
        for rule in found.response["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def focus_order(page, steps):
    """What the Tab key reaches, one after the other: (tag, visible name, position in the document)."""
    found = []
    for _ in range(steps):
        page.keyboard.press("Tab")
        here = page.evaluate(
            """() => {
                const e = document.activeElement;
                if (!e || e === document.body) return null;
                const name = e.getAttribute('aria-label') || e.innerText || e.id;
                return [e.tagName, (name || '').trim().slice(0, 60), [...document.querySelectorAll('*')].indexOf(e)];
            }"""
        )
        if here is None:
            break
        found.append(tuple(here))
    return found


def picture(page, path, **settings):
    """A screenshot for people to look at, where they have asked for one: it takes as long as what is checked.

    Nothing is checked by it, and Chromium under load now and then has none.
    """
    from playwright.sync_api import Error

    if not os.environ.get("NOISEWISE_SCREENSHOTS"):
        return
    try:
        page.screenshot(path=path, **settings)
    except Error as error:
        if "Unable to capture screenshot" not in error.message:
            raise
        print(f"{path.name}: {error.message.splitlines()[0]}")


def kept(name, tmp_path):
    """Where to keep a screenshot or PDF: the folder that was named, or a temporary one."""
    folder = Path(os.environ.get("NOISEWISE_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
