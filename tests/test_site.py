"""The documentation site: builds strictly, fetches nothing, leads everywhere, and makes its own pictures."""

import json
import re
import warnings
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("material", reason="mkdocs-material is in the dev extra")
pytest.importorskip("mkdocstrings_handlers.python", reason="mkdocstrings-python is in the dev extra")

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FETCHING = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("link", "href")}
"""Tags and attributes that make a browser fetch something when a page is opened."""
NAMING = {"canonical", "next", "prev"}
"""Kinds of <link> that name an address and fetch nothing."""
TAGS = re.compile(r"""</?(?:script|img|iframe|source|video|link|math|a)\b(?:"[^"]*"|'[^']*'|[^'">])*>""")
"""All of a page that is looked at. A script's end, too: within it, nothing is a tag."""


class Page(HTMLParser):
    """What an HTML page fetches, where its navigation leads, and whether it holds MathML."""

    def __init__(self, text):
        super().__init__()
        self.fetched, self.links, self.maths = [], set(), False
        self.feed("".join(TAGS.findall(text)))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.maths |= tag == "math"
        for name, value in attributes:
            if (tag, name) in FETCHING and given.get("rel") not in NAMING:
                self.fetched.append(value)
        if tag == "a" and "md-nav__link" in (given.get("class") or ""):
            self.links.add((given.get("href") or "").split("#")[0])


@cache
def read(path):
    """A page of the site, once for all tests."""
    return Page(path.read_text())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """`mkdocs build --strict`, in this process, which has the package imported. With --quiet no warning would count."""
    from click.testing import CliRunner
    from mkdocs.__main__ import cli

    folder = tmp_path_factory.mktemp("site")
    command = ["build", "--strict", "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(folder)]
    with warnings.catch_warnings():  # those of the generator's own parts are not ours
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    return {page.relative_to(folder).as_posix(): page for page in folder.rglob("*.html")}, folder


def outside(address):
    return re.match(r"(?:https?:)?//", address) is not None


def test_pages_fetch_nothing_from_outside(site):
    pages, _ = site
    fetched = {name: [one for one in read(page).fetched if outside(one)] for name, page in pages.items()}
    assert not {name: found for name, found in fetched.items() if found}


def test_styles_fetch_nothing_from_outside(site):
    for style in site[1].rglob("*.css"):
        addresses = re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')\s]+)", style.read_text())
        assert not [one for one in addresses if outside(one)], style.name


def test_a_page_that_fetches_is_noticed():
    assert [one for one in Page('<script src="https://example.org/a.js"></script>').fetched if outside(one)]
    assert [one for one in Page('<link rel="stylesheet" href="//example.org/a.css">').fetched if outside(one)]


def test_every_page_is_reachable_from_the_navigation(site):
    pages, _ = site
    found = read(pages["index.html"]).links
    assert {name for name in pages if name not in ("404.html", "index.html")} <= found
    assert sum(1 for _ in DOCS.rglob("*.md")) <= len(pages)


def test_a_page_without_an_entry_stands_with_its_folder(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "theme")
    import hooks

    navigation = [{"Home": ["index.md"]}, {"Samplers": [{"Overview": "samplers.md"}, {"SMC": "samplers/smc.md"}]}]
    hooks.add_unlisted(navigation, ["alone.md", "samplers/new.md"])
    assert navigation[1]["Samplers"][-1] == "samplers/new.md"
    assert navigation[2:] == [{"More": ["alone.md"]}]
    assert navigation[0] == {"Home": ["index.md"]}


def test_search_needs_no_server(site):
    pages, folder = site
    assert (folder / "search/search_index.js").read_text().startswith("var __index = {")
    for page in pages.values():
        scripts = [one for one in read(page).fetched if one.endswith(".js")]
        assert scripts[0].endswith("assets/offline.js")  # before the script that starts the search


@pytest.mark.long
def test_search_from_a_folder_finds_a_page(site):
    import browser

    with browser.started() as chromium:
        window = chromium.new_page(viewport=browser.DESK)
        window.goto((site[1] / "tutorials/noisy-count.html").as_uri())
        window.locator(".md-search__input").click()
        window.keyboard.type("randomised response")
        link = window.locator(".md-search-result__link").first
        link.wait_for(state="visible", timeout=60_000)
        assert link.get_attribute("href").startswith(site[1].as_uri())


@pytest.mark.long
def test_a_phone_shows_pages_without_sideways_scrolling(site):
    import browser

    with browser.started() as chromium:
        window = chromium.new_page(viewport=browser.PHONE)
        wide = {}
        for name, page in site[0].items():
            window.goto(page.as_uri())
            wide[name] = window.evaluate("document.documentElement.scrollWidth")
    assert not {name: width for name, width in wide.items() if width > browser.PHONE["width"]}


def test_mathematics_is_shown_without_scripts(site):
    pages, _ = site
    assert read(pages["derivations/rejection.html"]).maths
    left = [name for name, page in pages.items() if 'class="arithmatex"' in page.read_text()]
    assert not left


def test_every_tutorial_with_code_can_be_downloaded_as_a_notebook_with_its_output(site):
    pages, folder = site
    coded = [page for page in (DOCS / "tutorials").glob("*.md") if "```python" in page.read_text()]
    assert len(coded) >= 10
    for page in coded:
        made = json.loads((folder / f"tutorials/{page.stem}.ipynb").read_text())
        code = "\n".join(cell["source"] for cell in made["cells"] if cell["cell_type"] == "code")
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        assert code == "\n".join(block.rstrip("\n") for block in blocks)
        assert any(cell.get("outputs") for cell in made["cells"])
        assert f'href="{page.stem}.ipynb"' in pages[f"tutorials/{page.stem}.html"].read_text()


def test_equations_have_their_limits_and_gaps(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "theme")
    import hooks

    within = hooks._mathml(r"\left( \sum_{s=0}^{k} x \right)", True, "a page")
    assert "<munderover>" in within
    assert "<msubsup>" in hooks._mathml(r"\left( \sum_{s=0}^{k} x \right)", False, "a page")
    gap = '<mi>log</mi><mspace width="0.17em" />'
    assert gap in hooks._mathml(r"\log \pi", False, "a page")
    assert gap not in hooks._mathml(r"\log(x)", False, "a page")


def test_wide_equations_can_be_read_from_their_beginning():
    """What overflows a centred flexible box on its left cannot be scrolled to."""
    style = (DOCS / "assets/extra.css").read_text()
    rule = re.search(r"^\.equation \{([^}]*)\}", style, re.MULTILINE)[1]
    assert "overflow-x: auto" in rule
    assert "justify-content" not in rule


def test_every_picture_is_made_by_the_script_and_shown(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import pictures

    shown = set()
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        shown |= {Path(target).name for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", page.read_text())}
    there = {file.name for file in DOCS.rglob("*") if file.suffix in (".png", ".svg", ".jpg", ".gif")}
    assert shown == there == {pictures.DEMO, *pictures.PICTURES, *pictures.SCREENSHOTS}
    for name, page in pictures.PICTURES.items():
        assert f'savefig("{name}"' in (DOCS / page).read_text()
