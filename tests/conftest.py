"""Shared fixtures. Every random test has a fixed seed; `--seed-offset N` moves all of them, for a sweep."""

import json
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parent / "reference"


def pytest_addoption(parser):
    parser.addoption("--seed-offset", type=int, default=0, help="added to every test's seed")


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
