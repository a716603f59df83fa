"""Results as tables with fixed columns, side by side, and as Markdown and LaTeX for a paper."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.results.estimated import Estimated
from noisewise.results.labels import labels_of
from noisewise.results.posterior import Posterior

COLUMNS = ("model", "quantity", "label", "kind", "estimate", "sd", "low", "high", "level", "mcse")
"""Columns of every tidy table, in this order."""
LATEX = {character: f"\\{character}" for character in "&%$#_{}"}
LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
Result = Posterior | Estimated


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Estimates and intervals of one or several results.

    `frame` is tidy: a row for each scalar of each model, columns as in `COLUMNS`. `estimate` is the posterior mean (the
    median where there is no mean) or the maximum likelihood estimate, `sd` the posterior standard deviation or the
    standard error, `low` and `high` the equal-tailed or Wald interval, `mcse` the Monte Carlo error of the estimate.
    The estimate of a truth value is its probability, which has no interval.
    """

    frame: Any

    def wide(self) -> Any:
        """A pandas table of text: a row for each quantity, a column for each model, as 0.11 (0.01 to 0.20).

        Numbers have the digits that two figures of the standard deviation have.
        """
        import pandas as pd

        models = list(dict.fromkeys(self.frame["model"]))
        labels = list(dict.fromkeys(self.frame["label"]))
        cells = {(row["model"], row["label"]): _cell(row) for _, row in self.frame.iterrows()}
        columns = {model: [cells.get((model, label), "") for label in labels] for model in models}
        return pd.DataFrame(columns, index=labels)

    def to_markdown(self) -> str:
        """The wide table in Markdown."""
        return markdown(self.wide())

    def to_latex(self) -> str:
        """The wide table in LaTeX, with the rules of the package booktabs."""
        return latex(self.wide())

    def __repr__(self) -> str:
        return str(self.wide().to_string())

    def _repr_html_(self) -> str:
        return str(self.wide().to_html())


def table(
    results: Mapping[str, Result] | Sequence[Result],
    *,
    names: Sequence[str] | None = None,
    level: float = 0.95,
) -> Table:
    """Results side by side: `nw.table({"naive": naive, "exact": exact, "likelihood": fit})`.

    Results are posteriors, fits and `fit.derive(...)`. `names` chooses quantities, else parameters and derived ones.
    """
    import pandas as pd

    named = _named(results)
    wanted = [names] if isinstance(names, str) else names
    frames = [_rows(model, result, wanted, checks.level("table", level)) for model, result in named.items()]
    rows = [row for frame in frames for row in frame]
    if not rows:
        advice = checks.nearest(str(wanted), {name for result in named.values() for name in _all_of(result)})
        raise refusal("table", "names", "must name what some result has", wanted, advice)
    return Table(pd.DataFrame(rows, columns=list(COLUMNS)))


def _named(results: Any) -> dict[str, Result]:
    if isinstance(results, (Posterior, Estimated)):
        results = [results]
    if not isinstance(results, Mapping) and isinstance(results, Sequence) and len(results):
        results = {f"model {number}" if len(results) > 1 else "": each for number, each in enumerate(results, 1)}
    advice = 'Give {"naive": naive, "exact": exact}.'
    if not isinstance(results, Mapping) or not results:
        raise refusal("table", "results", "must be a dict or a list of results", results, advice)
    for name, result in results.items():
        if not isinstance(result, (Posterior, Estimated)):
            raise refusal("table", str(name), "must be a posterior or a fit", result, advice)
    return {str(name): result for name, result in results.items()}


def _all_of(result: Result) -> list[str]:
    return list(result.draws if isinstance(result, Posterior) else result.estimate)


def _rows(model: str, result: Result, names: Sequence[str] | None, level: float) -> list[dict[str, Any]]:
    known = (*result.parameters, *result.derived) if isinstance(result, Posterior) else tuple(result.estimate)
    wanted = known if names is None else [name for name in names if name in _all_of(result)]
    summary = result.summary(level)
    low, high = (summary.columns[at] for at in (2, 3))
    rows = []
    for name in wanted:
        is_posterior = isinstance(result, Posterior)
        values = result[name] if isinstance(result, Posterior) else np.asarray(result.estimate[name])
        kind = _kind(result, name, values)
        for label in labels_of(name, values.shape[1:] if is_posterior else values.shape, result.axes):
            line = summary.loc[label]
            centre = line["mean" if is_posterior else "estimate"]
            row = {"model": model, "quantity": name, "label": label, "kind": kind, "level": level}
            row |= {"estimate": line["median"] if np.isnan(centre) and "median" in line else centre}
            row |= {"sd": line["sd" if is_posterior else "standard error"], "low": line[low], "high": line[high]}
            row |= {"mcse": line.get("mcse" if is_posterior else "Monte Carlo error", np.nan)}
            if kind == "probability":
                row |= dict.fromkeys(("sd", "low", "high"), np.nan)
            rows.append(row)
    return rows


def _kind(result: Result, name: str, values: Any) -> str:
    if isinstance(result, Posterior):
        if values.dtype.kind == "b":
            return "probability"
        return "derived" if name in result.derived else "parameter" if name in result.parameters else "statistic"
    return "parameter" if hasattr(result, "information") else "derived"


def _cell(row: Any) -> str:
    if row["kind"] == "probability":
        digits = 3 if not row["mcse"] > 0 else min(max(-math.floor(math.log10(row["mcse"])), 2), 4)
        return f"{row['estimate']:.{digits}f}"
    digits = decimals(row["sd"], row["low"], row["high"])
    numbers = [f"{row[key]:.{digits}f}" for key in ("estimate", "low", "high")]
    return f"{numbers[0]} ({numbers[1]} to {numbers[2]})"


def decimals(unit: float, low: float = math.nan, high: float = math.nan) -> int:
    """How many decimals show two figures of `unit`, or of a quarter of an interval where `unit` is not positive.

    Four where there is neither.
    """
    unit = unit if unit > 0 else (high - low) / 4.0
    return max(0, 1 - math.floor(math.log10(unit))) if unit > 0 and math.isfinite(unit) else 4


def markdown(texts: Any) -> str:
    """A pandas table of text in Markdown."""
    rows = [["", *texts.columns], ["---"] * (len(texts.columns) + 1)]
    rows += [[label, *cells] for label, cells in zip(texts.index, texts.to_numpy(), strict=True)]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)


def latex(texts: Any) -> str:
    """A pandas table of text in LaTeX, with the rules of the package booktabs."""
    head = " & ".join(["", *map(_latex, texts.columns)])
    body = [
        " & ".join(map(_latex, [label, *cells])) + r" \\"
        for label, cells in zip(texts.index, texts.to_numpy(), strict=True)
    ]
    begin, end = r"\begin{tabular}{l" + "r" * len(texts.columns) + "}", r"\end{tabular}"
    return "\n".join([begin, r"\toprule", head + r" \\", r"\midrule", *body, r"\bottomrule", end])


def _latex(text: Any) -> str:
    return "".join(LATEX.get(character, character) for character in str(text))
