"""Every Python block of the README and the docs runs, page by page, and prints what the page says it prints."""

import os
import re
import shutil
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if "derivations" not in page.parts)]
DATA = sorted((ROOT / "docs/data").glob("*.csv"))
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


def name_of(page):
    return page.relative_to(ROOT).as_posix()


SLOW = (
    *("county-counts", "likelihood", "nuts", "noise-on-every-row"),
    *("choosing-epsilon", "likelihood-intervals", "likelihood-scale", "augmentation-totals"),
)
"""Pages whose blocks run only with --long (`make test-long`)."""
RUN = [pytest.param(page, marks=[pytest.mark.long] * (page.stem in SLOW)) for page in PAGES]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_code_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    for file in DATA:  # what a page offers for download lies beside the reader
        shutil.copy(file, tmp_path)
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


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], ids=name_of)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert os.path.exists(page.parent / target), f"{page.name} links to {target}"


def test_derivations_and_code_name_each_other():
    for page in (ROOT / "docs/derivations").glob("*.md"):
        sources = re.findall(r"\]\(\.\./\.\./(src/noisewise/[\w/]+\.py)\)", page.read_text())
        if page.name == "index.md":
            continue
        assert sources, f"{page.name} names no source file"
        naming = [source for source in sources if f"docs/derivations/{page.name}" in (ROOT / source).read_text()]
        assert naming, f"none of {sources} names {page.name}"


def test_every_derivation_is_listed():
    index = (ROOT / "docs/derivations/index.md").read_text()
    assert all(
        f"({page.name})" in index for page in (ROOT / "docs/derivations").glob("*.md") if page.name != "index.md"
    )


def test_every_mechanism_is_documented():
    from noisewise.mechanisms import CATALOGUE

    pages = [ROOT / "docs/mechanisms.md", *(ROOT / "docs/mechanisms").glob("*.md")]
    text = "".join(page.read_text() for page in pages)
    assert all(name in text for name in CATALOGUE)
    reference = (ROOT / "docs/reference/mechanisms.md").read_text()
    assert all(f"::: noisewise.mechanisms.{name}\n" in reference for name in CATALOGUE)


def test_every_public_name_is_in_the_reference():
    import noisewise as nw

    reference = "".join(page.read_text() + "\n" for page in (ROOT / "docs/reference").glob("*.md"))
    stated = set(re.findall(r"^::: noisewise\.(?:\w+\.)*(\w+)$", reference, re.MULTILINE))
    stated |= set(re.findall(r"\w+Error|\w+Warning", reference))
    assert set(nw.__all__) - {"__version__", "mechanisms"} <= stated


def test_every_sampler_has_its_page_with_claim_assumptions_and_proof():
    pages = list((ROOT / "docs/samplers").glob("*.md"))
    assert len(pages) >= 8
    overview = (ROOT / "docs/samplers.md").read_text()
    for page in pages:
        text = page.read_text()
        assert all(word in text for word in ("**Claim.**", "**Assumptions.**", "**Use it**", "(../derivations/")), page
        assert f"(samplers/{page.name})" in overview


def test_county_file_is_what_its_script_makes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import county_file

    county_file.main(tmp_path)
    assert len(DATA) == 2
    assert all((tmp_path / file.name).read_text() == file.read_text() for file in DATA)
