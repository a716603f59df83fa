"""paper.html: paper, ours and exact side by side, in one file that needs no network."""

from html import escape
from typing import Any

from noisewise.paper.numbers import Number

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --line: #d0d0d0; --good: #117733; --bad: #b00020; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181c; --line: #444; --good: #6fce91; --bad: #ff8a80; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
figure { margin: 1.2rem 0; } figure svg { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
figcaption, .note { font-size: 0.9rem; opacity: 0.85; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child, td:last-child, th:last-child { text-align: left; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
@media print { body { max-width: none; } figure, tr { break-inside: avoid; } }
"""


def table(rows: list[dict[str, Any]]) -> str:
    """An HTML table of plain rows."""
    head = "".join(f"<th scope='col'>{escape(str(name))}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(_cell(name, value) for name, value in row.items()) + "</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _cell(name: str, value: Any) -> str:
    if name == "verdict":
        kind = "bad" if "DIFFER" in str(value) else "good"
        return f"<td class='{kind}'>{escape(str(value))}</td>"
    shown = "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
    return f"<td>{escape(shown)}</td>"


def number_rows(numbers: list[Number], section: str) -> list[dict[str, Any]]:
    """One section's numbers as rows."""
    rows = [number.row() for number in numbers if number.section == section]
    return [{("Monte Carlo error" if key == "error" else key): item for key, item in row.items()} for row in rows]


def figure(svg: str, caption: str, description: str) -> str:
    """An inline picture with its caption; `description` is read out where it cannot be seen."""
    inline = svg[svg.index("<svg") :].replace(
        "<svg", f"<svg role='img' aria-label='{escape(description, quote=True)}'", 1
    )
    return f"<figure>{inline}<figcaption>{escape(caption)}</figcaption></figure>"


def page(title: str, sections: list[tuple[str, str]], footer: str) -> str:
    """The whole document."""
    body = "".join(f"<section><h2>{escape(heading)}</h2>{content}</section>" for heading, content in sections)
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
        f"content='width=device-width, initial-scale=1'><title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}<p class='note'>{escape(footer)}</p></body></html>\n"
    )
