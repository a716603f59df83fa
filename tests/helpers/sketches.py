"""Folders without their pictures: drawing these takes five times as long as all else that a command does."""

from pathlib import Path

import pytest

SKETCH = '<svg viewBox="0 0 1 1"></svg>'


@pytest.fixture
def drawn():
    """Asked for by a test, it has the pictures of results and reports really drawn."""


@pytest.fixture(autouse=True)
def sketched(request, monkeypatch):
    """An empty picture wherever one is to be drawn."""
    if "drawn" in request.fixturenames:
        return
    from matplotlib.figure import Figure

    from noisewise.report import figures
    from noisewise.workflow import folder

    def save(figure, target, **settings):
        if hasattr(target, "write"):
            target.write(SKETCH)
        else:
            Path(target).write_text(SKETCH)

    monkeypatch.setattr(folder, "plot", lambda *given, **named: Figure())
    monkeypatch.setattr(figures, "_drawn", lambda *given: SKETCH)
    monkeypatch.setattr(Figure, "savefig", save)
