"""HTML by a few functions: whatever is not made here is text, and escaped."""

import html
import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from noisewise.errors import writable

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Characters that no HTML file may hold, and those that would turn the direction of the text around them."""
VOID = ("meta", "br")
MINUS, NONE = "\u2212", "\u2014"
"""A minus sign; a dash where there is no number."""


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: Any) -> Html:
    """Any value as escaped text; HTML as it is."""
    return value if isinstance(value, Html) else Html(html.escape(CONTROL.sub("\ufffd", str(value)), quote=True))


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element. `class_="a"` is class, `aria_label` is aria-label; attributes that are None or False are left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text("" if value is True else value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inner = "" if name in VOID else f"{joined(children)}</{name}>"
    return Html(f"<{name}{written}>{inner}")


def joined(children: Iterable[Any]) -> Html:
    """Children one after the other; None is nothing."""
    return Html("".join(text(child) for child in children if child is not None))


def paragraphs(value: str) -> Html:
    """A user's text: blank lines part paragraphs, single ones break lines."""
    blocks = [block for block in re.split(r"\n\s*\n", value.strip()) if block.strip()]

    def lines(block: str) -> list[Any]:
        parts: list[Any] = []
        for line in block.splitlines():
            parts += [tag("br"), line] if parts else [line]
        return parts

    return joined(tag("p", *lines(block)) for block in blocks)


def bullets(items: Iterable[Any]) -> Html:
    """A list, or nothing."""
    elements = [tag("li", item) for item in items]
    return tag("ul", *elements) if elements else Html("")


def code(content: str, name: str) -> Html:
    """A file or a command as it is typed; where it is wide, it scrolls by itself."""
    return tag("pre", tag("code", content), tabindex="0", role="region", aria_label=name)


def html_table_of(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], key: str) -> Html:
    """A table that scrolls inside itself where the page is narrow; the first column names the row."""
    head = tag("tr", *(tag("th", column, scope="col") for column in columns))
    body = [
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell, class_=_kind(cell)) for cell in row[1:]))
        for row in rows
    ]
    inner = tag("table", tag("caption", caption, id=key), tag("thead", head), tag("tbody", *body))
    return tag("div", inner, class_="scroll", role="region", aria_labelledby=key, tabindex="0")


def _kind(cell: Any) -> str | None:
    return "number" if re.fullmatch(rf"[{MINUS}\d.,e% to{NONE}]*", str(cell)) else None


def number(value: Any, digits: int = 3) -> str:
    """A number for reading: significant digits, a true minus sign."""
    value = float(value)
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e7 or size < 1e-4:
        shown = f"{value:.{digits - 1}e}"
        mantissa, _, power = shown.partition("e")
        shown = f"{mantissa}e{int(power)}"
    else:
        places = max(0, digits - 1 - math.floor(math.log10(size)))
        shown = f"{value:,.{places}f}"
    return shown.replace("-", MINUS)


def whole(value: Any, digits: int = 3) -> str:
    """As `number`; a whole number keeps all its digits and gets no decimal point."""
    value = float(value)
    if value.is_integer() and abs(value) < 1e15:
        return f"{int(value):,}".replace("-", MINUS)
    if abs(value) >= 1e-4 and abs(value) < 1e7 and len(f"{value:.6g}") <= 8:
        return f"{value:.6g}".replace("-", MINUS)
    return number(value, digits)


def listed(items: Sequence[str], last: str = "and") -> str:
    """'a', 'a and b', 'a, b and c'."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else ""


def saved(source: str, path: str | os.PathLike[str], who: str) -> Path:
    """Write a page to a file."""
    with writable(who, path):
        Path(path).write_text(source, encoding="utf-8")
    return Path(path)
