"""paper.html: paper, ours and exact side by side, in one file that needs no network."""

from html import escape
from typing import Any

from noisewise.paper.numbers import FALSE_ALARM, Number

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
th:first-child, td:first-child, .good, .bad, th.verdict { text-align: left; }
td:first-child { white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
@media print { body { max-width: none; } figure, tr { break-inside: avoid; } }
"""


def table_of_rows(rows: list[dict[str, Any]]) -> str:
    """An HTML table of plain rows."""
    head = "".join(f"<th scope='col' class='{'verdict' * (name == 'verdict')}'>{escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(_cell(name, value) for name, value in row.items()) + "</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _cell(name: str, value: Any) -> str:
    if name == "verdict":
        kind = "bad" if "DIFFER" in str(value) else "good"
        return f"<td class='{kind}'>{escape(str(value))}</td>"
    shown = "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
    return f"<td>{escape(shown)}</td>"


def numbers_table(numbers: list[Number]) -> str:
    """Numbers with their verdicts; columns that would be empty are left out."""
    rows = [number.row() for number in numbers]
    empty = {key for key in rows[0] if all(row[key] is None for row in rows)} | {"section"}
    named = {"label": "", "error": "Monte Carlo error"}
    return table_of_rows([{named.get(key, key): item for key, item in row.items() if key not in empty} for row in rows])


def figure(svg: str, caption: str, description: str) -> str:
    """An inline picture with its caption; `description` is read out where it cannot be seen."""
    inline = svg[svg.index("<svg") :].replace(
        "<svg", f"<svg role='img' aria-label='{escape(description, quote=True)}'", 1
    )
    return f"<figure>{inline}<figcaption>{escape(caption)}</figcaption></figure>"


HISTOGRAM = (
    "Histogram: exact draws by rejection. Green: the analytic posterior. Red, dotted: the naive posterior, which takes "
    "37.4 for the count. Blue, dashed: the prior. Diamond: the release."
)
CLIMB = "Monte Carlo EM from theta = 1 in three stages of growing sample size, and its distance from the exact maximum."
BOXES = (
    "Boxes at the 1, 25, 50, 75 and 99% posterior quantiles. Top: fits to the confidential statistics. Middle: naive "
    "fits to privatised releases. Bottom: exact fits to the same releases."
)


def document(numbers: list[Number], rates: list[dict[str, Any]], pictures: dict[str, str], footer: str) -> str:
    """The whole document: every number beside the paper's and the exact one, and the figures as inline SVG."""
    by_section = {
        section: [n for n in numbers if n.section == section] for section in dict.fromkeys(n.section for n in numbers)
    }
    note = "The paper's s.e. is the standard deviation over repetitions of 10,000 proposals; so is ours."
    described = "Posterior histogram with analytic posterior, naive posterior and prior"
    climb = numbers_table(by_section["Maximum likelihood"]) + figure(pictures["stages"], CLIMB, CLIMB)
    first = [number for number in by_section["Figure 3"] if number.label.startswith("fit 1,") or not number.holds]
    sections = [
        ("Verdict", _verdict(numbers)),
        ("Figure 1", figure(pictures["figure-1"], HISTOGRAM, described)),
        ("Figure 2", figure(pictures["figure-2"], HISTOGRAM, described)),
        ("Figures 1 and 2 in numbers", numbers_table(by_section["Figures 1 and 2"])),
        (
            "Table 1: acceptance rate of Algorithm 1",
            table_of_rows(rates) + _note(note) + numbers_table(by_section["Table 1"]),
        ),
        ("Maximum likelihood", climb),
        ("Figure 3: the Lalonde experiment", figure(pictures["figure-3"], BOXES, BOXES)),
        ("Figure 3 in numbers", _note(_counted(by_section["Figure 3"])) + numbers_table(first)),
    ]
    return _document("Gong (2022), recomputed", sections, footer)


def _verdict(numbers: list[Number]) -> str:
    """The verdict on all numbers, with a table of those that do not agree."""
    wrong = [number for number in numbers if not number.holds]
    headline = "NOT every number" if wrong else "Every number"
    sentences = (
        f"<p><strong>{headline} of ours is within its Monte Carlo error of the exact value</strong> ({len(numbers)} "
        f"numbers; limits that a right one leaves once in {1 / FALSE_ALARM:,.0f} times). Exact values come from "
        "quadrature and use no sampler of the library. The paper's numbers are allowed their own standard errors and "
        "their rounding.</p>"
    )
    return sentences + (numbers_table(wrong) if wrong else "")


def _counted(numbers: list[Number]) -> str:
    right = sum(number.holds for number in numbers)
    return (
        f"{right} of {len(numbers)} quantiles are within their Monte Carlo error of quadrature. Below: those of the "
        "first fit of each row; all of them are in numbers.csv. The paper prints none."
    )


def _note(text: str) -> str:
    return f"<p class='note'>{escape(text)}</p>"


def _document(title: str, sections: list[tuple[str, str]], footer: str) -> str:
    body = "".join(f"<section><h2>{escape(heading)}</h2>{content}</section>" for heading, content in sections)
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
        f"content='width=device-width, initial-scale=1'><title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}{_note(footer)}</body></html>\n"
    )
