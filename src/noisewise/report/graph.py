"""The model as a picture: columns from parameters to published values, drawn as inline SVG by a small layout."""

from collections.abc import Sequence

from noisewise.report.markup import Html, joined, tag
from noisewise.report.model_words import NodeWords

WIDEST = 32
"""Characters of a node's line."""
CHARACTER, LINE, PADDING, GAP, BETWEEN, TOP = 6.7, 17.0, 12.0, 16.0, 46.0, 30.0
TITLES = {"parameter": "Unknown parameters", "statistic": "Confidential", "release": "Published"}


def graph(nodes: Sequence[NodeWords]) -> Html:
    """An SVG with a title and a description; colours come from the page's style."""
    columns = _columns(nodes)
    places, width, height = _places(columns)
    children: list[Html] = [
        tag("title", "The model as a graph", id="graph-title"),
        tag("desc", " ".join(node.sentence for node in nodes), id="graph-desc"),
        _arrowhead(),
    ]
    for column in columns:
        x, _, wide, _ = places[column[0].key]
        children.append(tag("text", TITLES[column[0].kind], x=_f(x + wide / 2), y="14", class_="heading"))
    children += [_edge(places[parent], places[node.key]) for node in nodes for parent in node.parents]
    children += [_box(node, *places[node.key]) for node in nodes]
    return tag(
        "svg",
        *children,
        viewBox=f"0 0 {_f(width)} {_f(height)}",
        style=f"width:{_f(width)}px",
        class_="graph",
        role="img",
        aria_labelledby="graph-title graph-desc",
    )


def _columns(nodes: Sequence[NodeWords]) -> list[list[NodeWords]]:
    """Nodes by depth: a column holds nodes of one kind, and the last column holds all published values."""
    keys = {node.key: node for node in nodes}
    depth: dict[str, int] = {}
    floor = 0
    for kind in TITLES:
        for node in nodes:
            if node.kind == kind:
                before = [depth[parent] for parent in node.parents if parent in keys]
                depth[node.key] = max([floor, *(1 + level for level in before)])
        floor = 1 + max(depth.values(), default=-1)
    last = max(depth.values())
    for node in nodes:
        if node.kind == "release":
            depth[node.key] = last
    levels = sorted(set(depth.values()))
    columns = [[node for node in nodes if depth[node.key] == level] for level in levels]
    return _untangled(columns)


def _untangled(columns: list[list[NodeWords]]) -> list[list[NodeWords]]:
    """Each column sorted by the average height of its nodes' neighbours, in a few sweeps to and fro."""
    children: dict[str, list[str]] = {}
    for column in columns:
        for node in column:
            for parent in node.parents:
                children.setdefault(parent, []).append(node.key)
    for sweep in range(6):
        at = {node.key: (i + 0.5) / len(column) for column in columns for i, node in enumerate(column)}

        def height(node: NodeWords, at: dict[str, float] = at, forwards: bool = sweep % 2 == 0) -> float:
            near = node.parents if forwards else children.get(node.key, [])
            return sum(at[key] for key in near) / len(near) if near else at[node.key]

        columns = [sorted(column, key=height) for column in columns]
    return columns


def _places(columns: list[list[NodeWords]]) -> tuple[dict[str, tuple[float, float, float, float]], float, float]:
    """(x, y, width, height) by key, and the size of the whole."""
    heights = [sum(_height(node) + GAP for node in column) - GAP for column in columns]
    tallest, x = max(heights), 4.0
    places = {}
    for column, height in zip(columns, heights, strict=True):
        lines = [line for node in column for line in _lines(node)] + [TITLES[column[0].kind]]
        width = 2 * PADDING + CHARACTER * max(len(line) for line in lines)
        y = TOP + 0.5 * (tallest - height)
        for node in column:
            places[node.key] = (x, y, width, _height(node))
            y += _height(node) + GAP
        x += width + BETWEEN
    return places, x - BETWEEN + 4.0, TOP + tallest + 6.0


def _lines(node: NodeWords) -> list[str]:
    return [_short(line) for line in (node.name, node.law, node.note) if line]


def _height(node: NodeWords) -> float:
    return LINE * len(_lines(node)) + PADDING


def _short(line: str) -> str:
    return line if len(line) <= WIDEST else line[: WIDEST - 1] + "…"


def _box(node: NodeWords, x: float, y: float, width: float, height: float) -> Html:
    rounding = height / 2 if node.kind == "parameter" else 4.0
    shapes = [tag("rect", x=_f(x), y=_f(y), width=_f(width), height=_f(height), rx=_f(rounding))]
    if node.kind == "release":  # a second frame: recognised without colour
        shapes.append(
            tag("rect", x=_f(x + 3), y=_f(y + 3), width=_f(width - 6), height=_f(height - 6), rx="2", class_="inner")
        )
    for number, line in enumerate(_lines(node)):
        place = {"x": _f(x + width / 2), "y": _f(y + PADDING / 2 + LINE * (number + 0.72))}
        shapes.append(tag("text", line, class_="name" if number == 0 else "law", **place))
    return tag("g", *shapes, class_=node.kind)


def _edge(start: tuple[float, float, float, float], end: tuple[float, float, float, float]) -> Html:
    x0, y0 = start[0] + start[2], start[1] + start[3] / 2
    x1, y1 = end[0] - 3, end[1] + end[3] / 2
    bend = max(0.5 * (x1 - x0), 20.0)
    path = f"M{_f(x0)} {_f(y0)} C{_f(x0 + bend)} {_f(y0)} {_f(x1 - bend)} {_f(y1)} {_f(x1)} {_f(y1)}"
    return tag("path", d=path, class_="edge", marker_end="url(#arrow)")


def _arrowhead() -> Html:
    tip = tag("path", d="M0 0 L8 4 L0 8 z", class_="tip")
    size = {"viewBox": "0 0 8 8", "refX": "7", "refY": "4", "markerWidth": "8", "markerHeight": "8"}
    return tag("defs", tag("marker", tip, id="arrow", orient="auto", markerUnits="userSpaceOnUse", **size))


def _f(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def described(nodes: Sequence[NodeWords]) -> Html:
    """The nodes in sentences, as a list."""
    return tag("ul", joined(tag("li", node.sentence) for node in nodes))
