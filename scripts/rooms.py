"""Draw the rooms of the package from its real imports: `make rooms` writes them into CONTRIBUTING.md.

One row per room, in the order of the layers in pyproject.toml, from the front door down. A mark in column n says that a
module of this room imports one of room n. An import from above would stand left of the diagonal; `lint-imports` allows
none. What a room is comes from its own docstring.
"""

import ast
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- rooms: written by `make rooms` -->", "<!-- rooms: end -->"
Layers = list[list[str]]


def layers() -> Layers:
    """The layers of the contract, from the front door down."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    [contract] = [each for each in settings["contracts"] if each["type"] == "layers"]
    return [layer.split(" | ") for layer in contract["layers"]]


def imports(rooms: list[str]) -> set[tuple[str, str]]:
    """Pairs of rooms of which the first imports from the second, functions' own imports included."""
    graph = grimp.build_graph("noisewise", exclude_type_checking_imports=True, cache_dir=None)
    pairs = set()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            pairs.add((_room(importer), _room(imported)))
    return {(one, other) for one, other in pairs if one != other and {one, other} <= set(rooms)}


def _room(module: str) -> str:
    return (module + "..").split(".")[1]


def purpose(room: str) -> str:
    """The first sentence of the room's docstring."""
    folder = ROOT / "src/noisewise" / room
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
    return " ".join(text.split()).split(". ")[0].rstrip(".").replace("`", "")


def drawing(floors: Layers, pairs: set[tuple[str, str]]) -> str:
    """The matrix; rooms that share a layer are marked with '|'."""
    rooms = [room for floor in floors for room in floor]
    width = max(map(len, rooms)) + 2
    margin = " " * (width + 5)
    lines = [
        margin + "".join(f"{number:>2}"[digit].rjust(2) for number in range(1, len(rooms) + 1)) for digit in (0, 1)
    ]
    for number, room in enumerate(rooms, 1):
        [beside] = [len(floor) > 1 for floor in floors if room in floor]
        marks = ("\\" if room == other else "x" if (room, other) in pairs else "." for other in rooms)
        row = "".join(mark.rjust(2) for mark in marks)
        lines.append(f"{number:>2} {'|' if beside else ' '} {room:<{width}}{row}   {purpose(room)}")
    return "\n".join(line.rstrip() for line in lines)


def drawn(text: str) -> str:
    """The text of CONTRIBUTING with the rooms as they are now."""
    floors = layers()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    rooms = drawing(floors, imports([room for floor in floors for room in floor]))
    return f"{before}{BEGIN}\n\n```text\n{rooms}\n```\n\n{END}{after}"


if __name__ == "__main__":
    file = ROOT / "CONTRIBUTING.md"
    file.write_text(drawn(file.read_text(encoding="utf-8")), encoding="utf-8")
