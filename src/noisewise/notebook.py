"""How results look in a notebook: small tables in HTML, with numbers for people."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def for_people(number: float) -> str:
    """A number for people, 10,000 rather than 1e+04: four significant digits, or all before the decimal point."""
    return f"{number:,.0f}" if 999.95 <= abs(number) < 1e12 else f"{number:.4g}"


def html_table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in HTML; its heads and cells are taken as text, and escaped."""
    head = "".join(f"<th style='text-align:left'>{escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
