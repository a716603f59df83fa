"""The sections of the report, one function each, and the page around them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from noisewise._version import __version__
from noisewise.report import figures, graph, noise, words
from noisewise.report.markup import NONE, Html, bullets, joined, listed, number, paragraphs, table, tag, whole
from noisewise.report.model_words import nodes_of

if TYPE_CHECKING:
    from noisewise.report import Report
    from noisewise.report.likelihood import FitReport

    Either: TypeAlias = Report | FitReport

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""No script, no image or font from elsewhere, no form: told to the browser itself."""
MOST_ROWS = 60
MOST_SENTENCES = 8
MARKS = {"good": "✓", "note": "i", "look": "!", "bad": "✗"}
MARK_NAMES = {"good": "fine", "note": "note", "look": "look again", "bad": "wrong"}

NUMBERS = ("answer", "naive", "cost")
WARNING = tag(
    "p", tag("strong", f"{MARKS['bad']} These numbers should not be used: see the verdict."), class_="warning"
)
"""Stands over the sections of numbers where the verdict is that bad."""


def page(report: "Report") -> str:
    """The whole HTML file of a posterior's report."""
    return around(report, SECTIONS)


def around(report: "Either", makers: "Sequence[Callable[[Any], Section | None]]") -> str:
    """The whole HTML file: head, links, the sections that there are, foot."""
    title = report.title.strip() or "What a private release tells"
    sections = [found for found in (section(report) for section in makers) if found is not None]
    links = [tag("li", tag("a", heading, href=f"#{key}")) for key, heading, _ in sections]
    parts = [
        tag(
            "section",
            tag("h2", heading, id=f"{key}-title"),
            WARNING if report.verdict.state == "bad" and key in NUMBERS else None,
            body,
            id=key,
            aria_labelledby=f"{key}-title",
        )
        for key, heading, body in sections
    ]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"noisewise {__version__}"),
        tag("title", f"{title}: report"),
        tag("style", Html(resources.files("noisewise.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    body = tag(
        "body",
        tag("a", "Skip to the report", href="#content", class_="skip"),
        tag("header", tag("p", "Report of an exact analysis of a private release", class_="kicker"), tag("h1", title)),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag("main", *parts, id="content", tabindex="-1"),
        tag("footer", tag("p", _made(report))),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en-GB')}\n"


def _made(report: "Either") -> str:
    when = f"Run finished {report.finished}. " if report.finished else ""
    held = "This file holds everything it shows; it loads nothing and runs nothing."
    return f"{when}Written by noisewise {__version__}. {held}"


Section = tuple[str, str, Html]


def _question(report: "Report") -> Section:
    return question(report, _answers)


def question(report: "Either", answers_of: Callable[[Any], list[str]]) -> Section:
    """The question, the verdict and, unless that is bad, the short answer."""
    asked = paragraphs(report.question) if report.question.strip() else tag("p", _default_question(report))
    verdict = report.verdict
    box = tag(
        "div",
        tag("p", tag("strong", f"{MARKS[verdict.state]} Verdict: {verdict.title}"), class_="verdict-title"),
        tag("p", verdict.told),
        class_=f"verdict {verdict.state}",
    )
    answers = [] if verdict.state == "bad" else answers_of(report)
    short = joined([tag("h3", "The short answer"), bullets(answers)]) if answers else None
    return "question", "The question", joined([asked, box, short])


def _default_question(report: "Either") -> str:
    sought = listed(list(report.model.parameters)) or "the confidential statistics"
    return (
        f"What do the published values of {listed(list(report.release))} tell about {sought}, their privacy noise "
        "taken into account?"
    )


def _answers(report: "Report") -> list[str]:
    table_of = report.summary
    low, high = table_of.columns[2:4]
    found = []
    for label, row in list(table_of.iterrows())[:MOST_SENTENCES]:
        name = str(label).split("[")[0]
        kind = "" if name in report.posterior.parameters else ", confidential,"
        interval = f"between {number(row[low])} and {number(row[high])} with probability {100 * report.level:g}%"
        found.append(f"{label}{kind} is about {number(row['mean'])}: {interval}.")
    return found


def published(report: "Either") -> Section:
    """What was published, with which noise and which promise."""
    sentences = bullets(noise.sentence(name, item) for name, item in report.release.items())
    rows = []
    for name, item in report.release.items():
        for index in np.ndindex(item.shape):
            label = name + (f"[{','.join(map(str, index))}]" if index else "")
            value = np.asarray(item.value)[index]
            rows.append((label, "withheld" if np.isnan(value) else whole(value, 6), type(item.mechanism).__name__))
    values = long_table("Published values", ("Statistic", "Value", "Mechanism"), rows, "published-table")
    promised = bullets(words.guarantees(report.release))
    return (
        "published",
        "What was published",
        joined([sentences, values, tag("h3", "What privacy was promised"), promised]),
    )


def long_table(caption: str, columns: Iterable[str], rows: list[Any], key: str) -> Html:
    """A table of the first rows; a long one says what is left out."""
    shown = table(caption, list(columns), rows[:MOST_ROWS], key)
    left = len(rows) - MOST_ROWS
    note = f"{left:,} more rows are in the files of the analysis." if left > 0 else None
    return joined([shown, tag("p", note, class_="quiet") if note else None])


def model(report: "Either") -> Section:
    """The model as a graph and in sentences."""
    nodes = nodes_of(report.model, report.release, report.content)
    picture = tag(
        "div", graph.graph(nodes), class_="scroll", role="region", aria_label="Graph of the model", tabindex="0"
    )
    caption = (
        "From left to right: what is unknown, what the curator computed and kept, and what was published. "
        "An arrow says that the one depends on the other. Double frames are published."
    )
    drawn = tag("figure", picture, tag("figcaption", caption))
    return "model", "The model", joined([drawn, tag("h3", "The model in words"), graph.described(nodes)])


def _answer(report: "Report") -> Section | None:
    if not report.has_answer:
        return None
    summary = report.summary
    low, high = summary.columns[2:4]
    rows = []
    for label, row in summary.iterrows():
        known = str(label).split("[")[0] in report.posterior.parameters
        kind = "parameter" if known else "confidential statistic"
        rows.append((label, kind, *(number(row[column], 4) for column in ("mean", "sd", low, high))))
    columns = ("Quantity", "Kind", "Mean", "Standard deviation", str(low), str(high))
    told = (
        f"Given the model, the published values and the noise, each quantity lies within its interval with probability "
        f"{100 * report.level:g}%. That holds for the confidential statistics too: what the curator knows and did not "
        "publish."
    )
    shown = long_table(f"Exact answers, with {100 * report.level:g}% intervals", columns, rows, "answer-table")
    fitted = _fitted(report)
    return "answer", "The answer", joined([tag("p", told), shown, _pictures(report), fitted])


def _pictures(report: "Report") -> Html:
    drawn = figures.panels(report.posterior, report.naive, report.before, report.level)
    each = [
        tag("figure", svg, tag("figcaption", tag("strong", label), f". {told}"), class_="card")
        for label, svg, told in drawn
    ]
    keys = [("exact", "exact: counts the noise"), ("prior", "prior: before the release")]
    if report.naive is not None:
        keys.insert(1, ("naive", "naive: ignores the noise"))
    legend = [tag("li", tag("span", "", class_=f"key {kind}", aria_hidden="true"), told) for kind, told in keys]
    legend.append(tag("li", tag("span", "◆", class_="key mark", aria_hidden="true"), "published value"))
    bars = f"Bars under the curves are {100 * report.level:g}% intervals, dots are means."
    return joined(
        [tag("h3", "Pictures"), tag("ul", *legend, class_="legend"), tag("p", bars), tag("div", *each, class_="grid")]
    )


def _fitted(report: "Report") -> Html | None:
    if report.fit is None:
        return None
    summary = report.fit.summary(report.level)
    rows = [(label, *(number(value, 4) for value in row)) for label, row in summary.iterrows()]
    columns = ("Parameter", *(str(column).capitalize() for column in summary.columns))
    told = (
        f"Maximum likelihood uses the priors only for the range of the parameters. Its status is {report.fit.status}. "
        f"{report.fit.message}"
    )
    return joined(
        [
            tag("h3", "Maximum likelihood"),
            tag("p", told),
            long_table("Estimates that count the noise", columns, rows, "fit"),
        ]
    )


def _naive(report: "Report") -> Section | None:
    compared = report.comparison
    heading = "Naive beside exact"
    if compared is None:
        if not report.has_answer:
            return None
        return (
            "naive",
            heading,
            tag("p", f"There is no naive analysis to set beside the exact one: {why_not(report)}."),
        )
    found = compared.table(report.level)
    intro = (
        "The naive analysis takes each published value for the confidential one, as if it carried no noise. It is here "
        "to show what that mistake would claim; only the exact analysis is right."
    )
    sentences = [words.beside(str(label), row, report.level) for label, row in list(found.iterrows())[:MOST_SENTENCES]]
    rows = [(label, *(number(value, 4) for value in row)) for label, row in found.iterrows()]
    titles = ("Parameter", *(column_title(str(column)) for column in found.columns))
    note = (
        "Wider: the exact interval's width over the naive one's. Shift: the exact mean less the naive one, in naive "
        "standard deviations (SD)."
    )
    doubt = None
    if report.naive is not None and report.naive.status != "complete":
        doubt = tag("p", f"The naive analysis itself fell short: {report.naive.message}")
    shown = long_table("Naive and exact answers", titles, rows, "naive-table")
    return "naive", heading, joined([tag("p", intro), bullets(sentences), doubt, shown, tag("p", note, class_="quiet")])


def why_not(report: "Either") -> str:
    """Why there is no naive analysis, in words of the reader where they are known."""
    silent = [name for name in report.release if not report.model.has_density(name)]
    if silent:
        return f"the model can simulate {listed(silent)} but has no formula to fit a value taken at its word"
    message = report.naive.message if report.naive is not None else "it was not asked for"
    return (report.no_naive or message).rstrip(".")


def column_title(column: str) -> str:
    """A pandas column's name as a table's heading."""
    return column[:1].upper() + column[1:].replace(" sd", " SD")


def _trust(report: "Report") -> Section:
    posterior = report.posterior
    how = f"The sampler was {type(posterior.sampler).__name__}."
    if posterior.reason:
        how = f"The sampler was {type(posterior.sampler).__name__}, chosen because: {posterior.reason.rstrip('.')}."
    if posterior.acceptance_rate is not None and np.isfinite(posterior.acceptance_rate):
        how += f" It accepted {number(100 * posterior.acceptance_rate, 2)}% of its proposals."
    return trust(report, how)


def trust(report: "Either", how: str) -> Section:
    """The verdict, each check behind it, and how it was computed."""
    verdict = report.verdict
    items = [
        tag(
            "li",
            tag("strong", f"{MARKS[check.state]} {check.title} ({MARK_NAMES[check.state]}). "),
            check.told,
            class_=check.state,
        )
        for check in verdict.checks
    ]
    lead = tag("p", tag("strong", f"{verdict.title}. "), verdict.told)
    return "trust", "Can it be trusted?", joined([lead, tag("ul", *items, class_="checks"), tag("p", how)])


def _cost(report: "Report") -> Section | None:
    if not report.lost:
        return None
    told = [words.cost(each, report.level) for each in report.lost[:MOST_SENTENCES]]
    rows = []
    for each in report.lost:
        share = NONE if each.noise_share is None else f"{number(100 * each.noise_share, 2)}%"
        change = NONE if not np.isfinite(each.narrowed) else f"{number(100 * each.narrowed, 2)}%"
        rows.append((each.label, share, f"{number(each.before[0])} to {number(each.before[1])}", change))
    columns = ("Parameter", "Variance due to the noise, at least about", "Prior interval", "Narrowed by the release")
    shown = long_table("What privacy cost", columns, rows, "cost-table")
    kept = None
    if report.fit is not None and report.fit.efficiency:
        pairs = [
            f"{name} {listed([number(100 * float(value), 2) + '%' for value in np.ravel(share)[:6]])}"
            for name, share in report.fit.efficiency.items()
        ]
        kept = tag("p", f"Of the information in the confidential statistics, the release keeps: {listed(pairs)}.")
    return "cost", "What privacy cost", joined([bullets(told), shown, kept])


def cite(report: "Either") -> Section:
    """The software and the paper."""
    link = tag("a", f"doi:{words.DOI}", href=f"https://doi.org/{words.DOI}")
    paper = joined([f"{words.PAPER} ", link])
    return (
        "cite",
        "How to cite",
        joined([tag("p", "The software, and the paper whose method it is:"), bullets([words.SOFTWARE, paper])]),
    )


def _replay(report: "Report") -> Section:
    posterior = report.posterior
    command = report.replay or (
        f"noisewise.sample(model, release, {posterior.sampler!r}, draws={len(posterior)}, seed={posterior.seed})"
    )
    facts = [
        ("Seed", str(posterior.seed)),
        ("Draws", f"{len(posterior):,}"),
        ("Sampler", repr(posterior.sampler)),
    ]
    return replay(report, command, facts, posterior.versions)


def replay(report: "Either", command: str, facts: list[tuple[str, str]], versions: Mapping[str, str]) -> Section:
    """The command, what the run was made with, and the inputs in full."""
    lead = "The same inputs, seed and versions give the same numbers on the same kind of processor:"
    facts = [
        *facts,
        ("Release (SHA-256)", report.release.hash),
        *((f"Version of {name}", version) for name, version in versions.items()),
    ]
    inputs = dict(report.inputs) or {"release.json": _release_text(report)}
    files = [
        tag(
            "details", tag("summary", PurePath(name).name), _code(content, f"The file {PurePath(name).name}"), open=True
        )
        for name, content in inputs.items()
    ]
    body = [tag("p", lead), _code(command, "Command"), table("The run", ("What", "Value"), facts, "run-table")]
    return "replay", "How to replay", joined([*body, tag("h3", "Inputs"), *files])


def _release_text(report: "Either") -> str:
    import json

    return json.dumps(report.release.to_dict(), indent=2)


def _code(content: str, name: str) -> Html:
    return tag("pre", tag("code", content), tabindex="0", role="region", aria_label=name)


SECTIONS = (_question, published, model, _answer, _naive, _trust, _cost, cite, _replay)
"""In the order of reading; a section that has nothing to say returns None."""
