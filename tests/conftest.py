"""Shared fixtures. Every random test has a fixed seed; `--seed-offset N` moves all of them, for a sweep."""

import json
import signal
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parent / "reference"


ALONE = {"test_engines", "test_faults", "test_checkpoint", "test_page", "test_report", "test_command_line"}
"""Files that watch the clock, kill processes or drive a browser: not beside another test process."""


def pytest_addoption(parser):
    parser.addoption("--seed-offset", type=int, default=0, help="added to every test's seed")
    parser.addoption("--long", action="store_true", help="run the longer tests too (make test-long)")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.path.stem in ALONE:
            item.add_marker("alone")
    if not config.getoption("--long"):
        kept = [item for item in items if not item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = kept


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
