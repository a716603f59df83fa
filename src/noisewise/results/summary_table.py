"""The table that `summary()` gives: a pandas table whose `style` shows numbers as a paper prints them."""

from typing import Any

import pandas as pd

from noisewise.errors import refusal
from noisewise.results.tidy import decimals

SPREADS = ("sd", "standard error")
"""Columns whose two leading figures say how many digits the numbers of a row have."""
ERRORS = ("mcse", "Monte Carlo error")
COUNTS = ("ess", "ess_tail")
RULES = [
    {"selector": "", "props": "border-collapse: collapse; border-top: 2px solid; border-bottom: 2px solid"},
    {"selector": "thead th", "props": "border-bottom: 1px solid; text-align: right; padding: 2px 10px"},
    {"selector": "tbody th", "props": "text-align: left; font-weight: normal; padding: 2px 10px"},
    {"selector": "td", "props": "text-align: right; padding: 2px 10px"},
]
"""Lines above, below and under the head, and nowhere else."""


class SummaryTable(pd.DataFrame):
    """A pandas table. What is picked or computed from it is a plain one."""

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    @property
    def style(self) -> Any:
        """A pandas `Styler` for a paper: `posterior.summary().style`, or `.style.to_html()`.

        Estimate, spread and interval have the digits that two figures of the spread have; Monte Carlo errors have two
        figures, effective draws are whole, R-hat has two decimals.
        """
        try:
            from pandas.io.formats.style import Styler
        except ImportError:
            raise refusal("summary", "style", "needs Jinja2", None, "Run pip install jinja2.") from None
        shown: Any = Styler(pd.DataFrame(self)).format(na_rep="")
        wide = [name for name in self.columns if name not in (*ERRORS, *COUNTS, "r_hat")]
        [spread] = [name for name in SPREADS if name in self.columns]
        for label in self.index:
            digits = decimals(self.loc[label, spread], *self.loc[label].iloc[2:4])  # the ends of the interval
            shown = shown.format(precision=digits, na_rep="", subset=([label], wide))
            for name in (name for name in ERRORS if name in self.columns):
                digits = decimals(self.loc[label, name])
                shown = shown.format(precision=digits, na_rep="", subset=([label], [name]))
        whole = [name for name in COUNTS if name in self.columns]
        shown = shown.format(precision=0, thousands=",", na_rep="", subset=whole)
        if "r_hat" in self.columns:
            shown = shown.format(precision=2, na_rep="", subset=["r_hat"])
        return shown.set_table_styles(RULES)
