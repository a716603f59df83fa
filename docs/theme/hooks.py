"""What the site's generator does beyond Markdown: mathematics without scripts, the project's own papers as pages, a
navigation that keeps up with the pages there are, a search that needs no server."""

import base64
import json
import posixpath
import re
import xml.etree.ElementTree as ET
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

import noisewise
from noisewise import engine, mechanisms, samplers
from noisewise.inference.settings import Sampler

ROOT = Path(__file__).parents[2]
PAPERS = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "VISION.md": "vision.md"}
OUTSIDE = re.compile(r"\[(?P<text>`?[^\]]+`?)\]\((?P<target>(?:\.\./)*(?:src|tests|benchmarks|README)[^)\s]*)\)")
KINDS = {
    "Mechanism": (mechanisms.Mechanism, mechanisms),
    "Sampler": (Sampler, samplers),
    "Engine": (engine.Engine, engine),
}
"""What the reference lists by kind: the base class, and the room whose `__all__` has the public ones."""
EVERY = re.compile(r"^::: every (?P<base>\w+)$", re.MULTILINE)
MATHS = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
TAG = re.compile(r"\\tag\{([^}]*)\}")
MATHML = "{http://www.w3.org/1998/Math/MathML}"
LIMITS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
TAKE_LIMITS = {"\u2211", "\u220f", "max", "min", "sup", "inf", "lim"}
"""Operators whose limits stand above and below them where there is room."""


def listed(markdown: str) -> str:
    """A page of the reference with `::: every Mechanism` written out, one line for each public class of the kind."""
    return EVERY.sub(lambda match: "\n\n".join(f"::: {name}" for name in public(*KINDS[match["base"]])), markdown)


def public(kind: type, room: Any) -> list[str]:
    """Names of the public classes of a kind, each as users write it."""
    classes = [each for each in map(room.__dict__.get, room.__all__) if isinstance(each, type)]
    names = [each.__name__ for each in classes if issubclass(each, kind) and each is not kind]
    return [f"noisewise.{name}" if name in noisewise.__all__ else f"{room.__name__}.{name}" for name in names]


def on_files(files: Any, config: Any) -> Any:
    """Papers that live at the root of the repository become pages, and the navigation is fitted to the pages."""
    for name, page in PAPERS.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    pages = {file.src_uri for file in files.documentation_pages()}
    named: set[str] = set()
    config.nav = [entry for entry in (_kept(entry, pages, named) for entry in config.nav) if entry]
    add_unlisted(config.nav, sorted(pages - named))
    return files


def add_unlisted(navigation: list[Any], unlisted: list[str]) -> None:
    """Give each page without an entry a place: the end of the section that lists its folder, else a section "More"."""
    sections = [below for entry in navigation if isinstance(entry, dict) for below in entry.values()]
    more: list[str] = []
    for page in unlisted:
        folder = posixpath.dirname(page)
        next((below for below in sections if folder and folder in _folders(below)), more).append(page)
    if more:
        navigation.append({"More": more})


def _folders(section: Any) -> set[str]:
    """The folders of a section's pages."""
    pages = [page for entry in section for page in ([entry] if isinstance(entry, str) else entry.values())]
    return {posixpath.dirname(page) for page in pages if isinstance(page, str)}


def _kept(entry: Any, pages: set[str], named: set[str]) -> Any:
    """A navigation entry without the pages that do not exist; None where nothing is left of it."""
    if isinstance(entry, str):
        named.add(entry)
        return entry if entry in pages else None
    [(title, below)] = entry.items()
    if isinstance(below, list):
        kept = [one for one in (_kept(each, pages, named) for each in below) if one]
    else:
        kept = _kept(below, pages, named)
    return {title: kept} if kept else None


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to the source become names (the site holds no source tree); links to the papers become links to pages."""
    markdown = listed(markdown)
    here = posixpath.dirname(page.file.src_uri)
    for name, target in PAPERS.items():
        found = posixpath.relpath(target, here or ".")
        markdown = re.sub(rf"\]\((?:\.\./)*{re.escape(name)}(#[^)]*)?\)", rf"]({found}\1)", markdown)
    if page.file.src_uri in PAPERS.values():
        markdown = re.sub(r"\]\(docs/", "](", markdown)
    if _is_notebook(page.file.src_uri, markdown):
        name = f"{Path(page.file.src_uri).stem}.ipynb"
        markdown += f'\n\n<a href="{name}" download>This page as a notebook</a>, with its output.\n'
    return OUTSIDE.sub(lambda match: match["text"], markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """LaTeX becomes MathML, which browsers show by themselves."""
    return MATHS.sub(lambda match: _mathml(unescape(match[2]), match[1] == "div", page.file.src_uri), html)


def on_post_build(config: Any) -> None:
    """The search index as a script too: pages that are opened from a folder may not read other files."""
    index = Path(config.site_dir) / "search" / "search_index.json"
    index.with_suffix(".js").write_text(f"var __index = {index.read_text(encoding='utf-8')}", encoding="utf-8")
    for page in sorted((ROOT / "docs/tutorials").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if _is_notebook(f"tutorials/{page.name}", text):
            made = json.dumps(notebook(text), indent=1, ensure_ascii=False) + "\n"
            (Path(config.site_dir) / "tutorials" / f"{page.stem}.ipynb").write_text(made, encoding="utf-8")


def _is_notebook(page: str, markdown: str) -> bool:
    return page.startswith("tutorials/") and "```python" in markdown


def notebook(markdown: str) -> dict[str, Any]:
    """A page as a Jupyter notebook: its text, its code, and as output what the page shows, which the tests compare."""
    cells: list[dict[str, Any]] = []
    for part in re.split(r"(^```(?:python|text)\n.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE):
        kind, _, inside = part.partition("\n")
        body = inside.removesuffix("```").rstrip("\n")
        if kind == "```python":
            cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "source": body}
            cells.append(cell | {"outputs": _pictures(body)})
        elif kind == "```text" and cells and cells[-1]["cell_type"] == "code":
            cells[-1]["outputs"].insert(0, {"output_type": "stream", "name": "stdout", "text": body + "\n"})
        elif part.strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": part.strip()})
    codes = (cell for cell in cells if cell["cell_type"] == "code")
    for number, cell in enumerate(codes, 1):
        cell["execution_count"] = number
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


def _pictures(code: str) -> list[dict[str, Any]]:
    """The pictures that a cell saves, as its output."""
    files = [ROOT / "docs/images" / name for name in re.findall(r'savefig\("([\w-]+\.png)"', code)]
    return [
        {
            "output_type": "display_data",
            "metadata": {},
            "data": {"image/png": base64.b64encode(file.read_bytes()).decode()},
        }
        for file in files
        if file.is_file()
    ]


def _mathml(latex: str, display: bool, where: str) -> str:
    latex = latex.strip().removeprefix("\\(").removesuffix("\\)").removeprefix("\\[").removesuffix("\\]")
    tag = TAG.search(latex)
    made = convert(TAG.sub("", latex).replace("\\arg", "\\mathrm{arg}"), display="block" if display else "inline")
    made = _tidied(made, display)
    left = re.search(r"\\[A-Za-z]+", made)
    if left:
        raise PluginError(f"{where}: {left[0]} in {latex.strip()[:60]!r} is not understood; write it another way")
    number = f'<span class="equation-number">({tag[1]})</span>' if tag else ""
    return f'<div class="equation">{made}{number}</div>' if display else f'<span class="maths">{made}</span>'


def _tidied(mathml: str, display: bool) -> str:
    """What the converter leaves out: limits above and below within brackets, and a gap after the name of a function."""
    ET.register_namespace("", MATHML[1:-1])
    root = ET.fromstring(mathml)
    for node in list(root.iter()):
        kind = node.tag.removeprefix(MATHML)
        if display and kind in LIMITS and node[0].text in TAKE_LIMITS:
            node.tag = MATHML + LIMITS[kind]
        if kind == "mrow":
            for place, (one, after) in reversed(list(enumerate(pairwise(node)))):
                named = one.tag == MATHML + "mi" and len(one.text or "") > 1
                if named and after.tag != MATHML + "mo":
                    node.insert(place + 1, ET.Element(MATHML + "mspace", width="0.17em"))
    return ET.tostring(root, encoding="unicode")
