"""Write what follows from classes and pages: `make catalogue`, once a mechanism, a sampler or an engine is added.

- Every public mechanism, sampler and engine is imported in the `__init__.py` of its room and named in its `__all__`;
  samplers and engines at the front door, too. Which mechanisms are there is chosen by hand.
- The release file's schema has every mechanism.
- docs/mechanisms.md lists the mechanisms of each page of docs/mechanisms, by its headings; docs/samplers.md has a row
  for each sampler, from its page in docs/samplers.

All else in these files is left as it is. The import of a class that is gone is removed by hand: with it nothing starts.
"""

import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

from noisewise import engine, mechanisms, samplers
from noisewise.inference.settings import Sampler
from noisewise.release.schema import current_schema

ROOT = Path(__file__).parents[1]
KINDS = {mechanisms: mechanisms.Mechanism, samplers: Sampler, engine: engine.Engine}
"""Rooms, and the base of the classes that each is a catalogue of."""
FRONT_DOOR, SCHEMA = "src/noisewise/__init__.py", "src/noisewise/release/release.schema.json"
BEGIN, END = "<!-- catalogue: written by `make catalogue` -->", "<!-- catalogue: end -->"
IN_SHORT = re.compile(r"^\*\*Draws:\*\* (.+)\. \*\*Needs:\*\* (.+)\.$", re.MULTILINE)
"""The line of a sampler's page that its row is made of."""


def read(name: str) -> str:
    """A file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def public(room: ModuleType) -> dict[str, type]:
    """The public classes of a room's kind by name, whether or not any other file imports theirs."""
    for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        importlib.import_module(module.name)
    found = [kind for kind in _below(KINDS[room]) if kind.__module__.startswith(f"{room.__name__}.")]
    return {kind.__name__: kind for kind in found if not kind.__name__.startswith("_") and not inspect.isabstract(kind)}


def _below(base: type) -> list[type]:
    return [kind for one in base.__subclasses__() for kind in (one, *_below(one))]


# Names ----------------------------------------------------------------------------------------------------------------


def with_names(file: str, origins: dict[str, str]) -> str:
    """An `__init__.py` that imports each name from its origin and has it in `__all__`, in the linter's order."""
    text = read(file)
    tree = ast.parse(text).body
    imported = {alias.name for node in tree if isinstance(node, ast.ImportFrom) for alias in node.names}
    [listed] = [node.value for node in tree if isinstance(node, ast.Assign) and ast.unparse(node.targets) == "__all__"]
    lines = "".join(f"from {origin} import {name}\n" for name, origin in origins.items() if name not in imported)
    names = "".join(f'    "{name}",\n' for name in origins if name not in ast.literal_eval(listed))
    if not lines and not names:
        return text
    text = text.replace("\nfrom ", f"\n{lines}from ", 1).replace("\n__all__ = [\n", f"\n__all__ = [\n{names}", 1)
    return _ruff("format", file, _ruff("check --fix-only --select I,RUF022", file, text))


def _ruff(command: str, file: str, text: str) -> str:
    arguments = [sys.executable, "-m", "ruff", *command.split(), "--quiet", "--stdin-filename", str(ROOT / file), "-"]
    return subprocess.run(arguments, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def room_of_classes(room: ModuleType) -> str:
    """The file that a room opens with."""
    return with_names(_file(room), {name: kind.__module__ for name, kind in public(room).items()})


def front_door() -> str:
    """The package's own `__init__.py`."""
    origins = {name: room.__name__ for room in (samplers, engine) for name in public(room)}
    return with_names(FRONT_DOOR, origins)


def schema() -> str:
    """The release file's schema."""
    public(mechanisms)  # all of them have been imported
    return json.dumps(current_schema(), indent=2) + "\n"


# Tables of the documentation ------------------------------------------------------------------------------------------


def mechanisms_page() -> str:
    """docs/mechanisms.md: each page with the mechanisms among its headings. The words for a family stay as they are."""
    overview = read("docs/mechanisms.md")
    cells = [row.strip("| ").split(" | ") for row in rows_of(overview)]
    known = {_link(place): (family, place) for family, _, place in cells}
    pages = {"": overview} | {f"mechanisms/{path.name}": text for path, text in pages_of("mechanisms").items()}
    rows = []
    for link in sorted(pages, key=lambda link: _order(link, list(known))):
        named = re.findall(r"^##+ (\w+)$", pages[link], re.MULTILINE)
        names = ", ".join(f"`{name}`" for name in named if name in public(mechanisms))
        new = title(pages[link]).lower(), f"[{Path(link).stem.replace('-', ' ')}]({link})"
        family, place = known.get(link, new)
        rows += [f"| {family} | {names} | {place} |"] if names else []
    return with_rows(overview, rows)


def samplers_page() -> str:
    """docs/samplers.md: a row for each sampler that has a page. Rows keep their order; new ones come last."""
    overview = read("docs/samplers.md")
    known = [name for row in rows_of(overview) for name in re.findall(r"^\| \[`(\w+)`\]", row)]
    kinds = sorted(public(samplers).items(), key=lambda item: _order(item[0], known))
    return with_rows(overview, [row for row in (sampler_row(kind) for _, kind in kinds) if row])


def sampler_row(kind: type) -> str | None:
    """The row of a sampler: from the page that names its file first, and from pages titled as parts of that page."""
    pages = pages_of("samplers")
    file = f"(../../src/{kind.__module__.replace('.', '/')}.py)"
    own = [path for path, page in pages.items() if re.findall(r"\(\S+\.py\)", page)[:1] == [file]]
    if not own:
        return None
    page = pages[own[0]]
    short = IN_SHORT.search(page)
    if short is None:
        sys.exit(f"docs/samplers/{own[0].name} lacks the line for the table: **Draws:** ... **Needs:** ...")
    parts = {path: part for path, part in pages.items() if title(part).startswith(f"{title(page)}: ")}
    links = [f"[`{kind.__name__}`](samplers/{own[0].name})"]
    links += [f"[of {title(part).split(': ')[1]}](samplers/{path.name})" for path, part in parts.items()]
    proofs = [f"[{title(one).split(': ')[-1]}]({_link(one, 'derivations')})" for one in (page, *parts.values())]
    return f"| {', '.join(links)} | {short[1]} | {short[2]} | {', '.join(proofs)} |"


def rows_of(page: str) -> list[str]:
    """The rows of the table that is written, without its head."""
    return page.split(BEGIN)[1].split(END)[0].strip().splitlines()[2:]


def with_rows(page: str, rows: list[str]) -> str:
    """A page with other rows in its table."""
    before, rest = page.split(BEGIN)
    table, after = rest.split(END)
    head = "\n".join(table.strip().splitlines()[:2])
    return f"{before}{BEGIN}\n\n{head}\n" + "\n".join(rows) + f"\n\n{END}{after}"


def pages_of(folder: str) -> dict[Path, str]:
    """The pages of a folder of the documentation."""
    return {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / folder).glob("*.md"))}


def title(page: str) -> str:
    """The heading of a page."""
    return page.removeprefix("# ").split("\n")[0]


def _link(text: str, folder: str = "mechanisms") -> str:
    """The first page of a folder that a text links to."""
    found = re.search(rf"\((?:\.\./)?({folder}/[\w-]+\.md)\)", text)
    return found[1] if found else ""


def _order(name: str, known: list[str]) -> tuple[int, str]:
    return (known.index(name) if name in known else len(known), name)


def _file(room: ModuleType) -> str:
    return f"src/{room.__name__.replace('.', '/')}/__init__.py"


WRITTEN: dict[str, Callable[[], str]] = {
    **{_file(room): partial(room_of_classes, room) for room in KINDS},
    FRONT_DOOR: front_door,
    SCHEMA: schema,
    "docs/mechanisms.md": mechanisms_page,
    "docs/samplers.md": samplers_page,
}
"""What is written, and what makes it."""


if __name__ == "__main__":
    for file, make in WRITTEN.items():
        text = make()
        if text != read(file):
            (ROOT / file).write_text(text, encoding="utf-8")
            print(f"written: {file}")
