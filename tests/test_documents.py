"""Every Python block of the README and the docs runs, page by page, and prints what the page says it prints."""

import os
import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if "derivations" not in page.parts)]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace = {"__name__": "__main__"}
    printed = ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, (kind, block) in enumerate(BLOCK.findall(page.read_text())):
            if kind == "python":
                exec(compile(block, f"{page.name}, block {number + 1}", "exec"), namespace)
                printed = capsys.readouterr().out
            else:  # output shown in a page is what the block before it prints
                assert block.split() == printed.split(), f"{page.name}, block {number + 1}"


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert os.path.exists(page.parent / target), f"{page.name} links to {target}"


def test_derivations_and_code_name_each_other():
    for name, source in (
        ("rejection", "samplers/rejection.py"),
        ("importance", "samplers/importance.py"),
        ("likelihood", "likelihood/mcem.py"),
    ):
        assert f"docs/derivations/{name}.md" in (ROOT / "src/noisewise" / source).read_text()
        assert source in (ROOT / f"docs/derivations/{name}.md").read_text()


def test_every_mechanism_is_documented():
    from noisewise.mechanisms import CATALOGUE

    pages = [ROOT / "docs/mechanisms.md", *(ROOT / "docs/mechanisms").glob("*.md")]
    text = "".join(page.read_text() for page in pages)
    assert all(name in text for name in CATALOGUE)
