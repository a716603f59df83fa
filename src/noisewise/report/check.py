"""The section on the model's fit: published values beside releases that the fitted model would publish."""

from typing import Any

import numpy as np

from noisewise.plots import replicates as plots
from noisewise.report import figures, page
from noisewise.report.markup import Html, joined, number, tag
from noisewise.report.page import Section
from noisewise.results.replicates import Replicates

MOST = 20
"""Values in the picture: those with the smallest p-values."""
SURPRISING = 0.01
LEAD = (
    "From the fitted model, releases were drawn anew: parameters from the posterior, then new confidential statistics, "
    "then new noise. A value that lies far out among them is one that the model does not explain."
)
NOTE = (
    "p is twice the smaller of the chances that a replicate lies at or below, and at or above, the published value. "
    "The release was also used to fit the model, so a small p speaks against the model; a large one says little for it."
)


def section(replicates: Replicates) -> Section | None:
    """A sentence, a picture and a table of predictive p-values; None where no value can be compared."""
    table, spread = plots.rows(replicates, MOST)
    if table.empty:
        return None
    rows = [*_features(replicates), *replicates.p_values().dropna().iterrows()]
    cells = [
        (label, *(number(row[key], 4) for key in ("published", "mean", "sd")), _p(row["p"])) for label, row in rows
    ]
    columns = ("Value", "Published", "Mean of replicates", "Standard deviation of replicates", "p")
    shown = page.long_table("Published values among replicated releases", columns, cells, "check-table")
    parts = [tag("p", LEAD), tag("p", _said(rows)), _picture(table, spread), shown, tag("p", NOTE, class_="quiet")]
    return "check", "Does the model fit?", joined(parts)


def _features(replicates: Replicates) -> list[Any]:
    """Rows for the spread and the largest entry of each statistic with three or more entries, none ever withheld."""
    columns, published = {}, {}
    for name, value in replicates.posterior.released.items():
        draws = replicates.draws[name]
        if np.size(value) >= 3 and np.all(np.isfinite(value)) and np.all(np.isfinite(draws)):
            flat = draws.reshape(len(draws), -1).astype(float)
            for title, function in (("spread of", np.std), ("largest of", np.max)):
                columns[f"{title} {name}"] = function(flat, axis=1)
                published[f"{title} {name}"] = np.asarray(function(np.asarray(value, float)))
    return list(replicates.compared(columns, published).iterrows()) if columns else []


def _said(rows: list[Any]) -> str:
    small = [str(label) for label, row in rows if row["p"] < SURPRISING]
    if not small:
        return f"Of {len(rows)} values, none has p below {SURPRISING:g}: nothing here speaks against the model."
    expected = SURPRISING * len(rows)
    named = ", ".join(small[: page.MOST_SENTENCES]) + (" and others" if len(small) > page.MOST_SENTENCES else "")
    chance = f" (about {number(expected, 2)} of that many would by chance)" if expected >= 0.5 else ""
    return f"Of {len(rows)} values, {len(small)} have p below {SURPRISING:g}{chance}: {named}."


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else number(p, 2)


def _picture(table: Any, spread: Any) -> Html:
    with figures.small_axis(0.35 * len(table) + 0.9, width=8.0) as (axis, drawn):
        plots.bars(axis, table, spread)
    words = " ".join(f"{label}: p {_p(row['p'])}." for label, row in table.iterrows())
    picture = figures.inline(drawn[0], "check", "Published values among replicates", words)
    caption = "Bars hold 50% and 95% of the replicates; a diamond is the published value, red where p is below 0.05."
    return tag("figure", picture, tag("figcaption", caption), class_="card")
