"""Shared fixtures. Every random test has a fixed seed; `--seed-offset N` moves all of them, for a sweep."""

import gc
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from browser import chromium  # noqa: F401
from light_compiling import compile_lightly

REFERENCE = Path(__file__).parent / "reference"


ALONE = {"test_faults"}
"""Files that watch the clock or kill processes: not beside another test process."""
BROWSER = {"test_page"}
"""Like every test that drives a browser: in processes of their own, where Playwright's event loop goes on running."""
FIRST = {"test_site", "test_paper", "test_engines", "test_mutants"}
"""Files whose set-up takes long: of two processes one takes what the other has left, from the end, and splits files."""
LAST = "server"
"""The page's, of which each process needs its own: what asks for it comes last, and is shared by two processes."""
NAMED = {"alone": ALONE, "browser": BROWSER}
WORDS = {"alone": ["mark.alone"], "browser": ["mark.browser", "chromium"], "long": ["mark.long", "brief"]}
WORDS |= {"quick": ["mark.quick"], "bits": ["mark.bits"]}
"""What a file must say, or be named, to hold a test of a kind that is asked for by `-m`."""


def pytest_configure(config):
    """A program is compiled once: JAX keeps compiled programs beside pytest's own cache, also for the next run.

    With `--compile-lightly`, in less than half the time: helpers/light_compiling.py.

    Not for processes that tests start or kill: JAX writes these files in place, so that one may be found half written
    (pyproject.toml has the warning about it; the program is then compiled anew).
    """
    if config.getoption("--compile-lightly"):
        compile_lightly()
    os.environ["NOISEWISE_CACHE"] = "0"  # commands that tests start
    import jax

    if hasattr(config, "cache"):
        jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("programs")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_collection_finish():
    """What is loaded by now stays: the collector of garbage need not look at it again, a million objects each time.

    Nor need it look at what a program's tracing makes, hundreds of thousands of objects, each time that 700 are new.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure():
    """Once more at the end, before pytest collects five times over."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def figures():
    """What a test leaves open of matplotlib's figures is closed: twenty are a warning, and warnings are errors."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def pytest_ignore_collect(collection_path, config):
    """A run of one kind of test opens only files that speak of it: to import all takes longer than many such runs."""
    kinds = config.getoption("markexpr", "").split(" or ")
    if not set(kinds) <= set(WORDS) or collection_path.suffix != ".py":
        return None
    if any(collection_path.stem in NAMED.get(kind, ()) for kind in kinds):
        return None
    text = collection_path.read_text()
    return None if any(word in text for kind in kinds for word in WORDS[kind]) else True


def pytest_addoption(parser):
    parser.addoption("--seed-offset", type=int, default=0, help="added to every test's seed")
    parser.addoption("--compile-lightly", action="store_true", help="programs that are sooner made, slower to run")
    parser.addoption("--long", action="store_true", help="run the longer tests too (make test-long)")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.path.stem in ALONE:
            item.add_marker("alone")
        if item.path.stem in BROWSER or "chromium" in item.fixturenames:
            item.add_marker("browser")
    if not config.getoption("--long"):
        kept = [item for item in items if not item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = kept
    items.sort(key=lambda item: (item.path.stem not in FIRST, LAST in item.fixturenames))


@pytest.fixture
def ctrl_c():
    """Ctrl-C interrupts, here and in processes started meanwhile, even where this process was started to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def seed(request):
    """The test's base seed."""
    return 20260 + request.config.getoption("--seed-offset")


@pytest.fixture(scope="session")
def count_reference():
    return json.loads((REFERENCE / "count.json").read_text())


@pytest.fixture(scope="session")
def lalonde_reference():
    return json.loads((REFERENCE / "lalonde.json").read_text())
