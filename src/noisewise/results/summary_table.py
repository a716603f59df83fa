"""The table that `summary()` gives: a pandas table that `style`, Markdown and LaTeX show as a paper prints numbers."""

from typing import Any

import pandas as pd

from noisewise.errors import refusal
from noisewise.results.tidy import decimals, latex, markdown

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
    """The pandas table of `summary()`. Parts of it, and tables computed from it, are plain pandas tables."""

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
        for label in self.index:
            digits = self._digits(label)
            for precision in set(digits.values()):
                names = [name for name in self.columns if digits[name] == precision]
                shown = shown.format(precision=precision, na_rep="", subset=([label], names))
        whole = [name for name in COUNTS if name in self.columns]
        shown = shown.format(precision=0, thousands=",", na_rep="", subset=whole)
        return shown.set_table_styles(RULES)

    def to_markdown(self, *args: Any, **options: Any) -> Any:
        """The table in Markdown with the numbers of `style`; with arguments, as pandas writes it."""
        return super().to_markdown(*args, **options) if args or options else markdown(self._printed())

    def to_latex(self, *args: Any, **options: Any) -> Any:
        """The table in LaTeX (booktabs) with the numbers of `style`; with arguments, as pandas writes it."""
        return super().to_latex(*args, **options) if args or options else latex(self._printed())

    def _digits(self, label: Any) -> dict[str, int]:
        """Decimals of the numbers of a row, by column."""
        row = self.loc[label]
        [spread] = [name for name in SPREADS if name in self.columns]
        digits = dict.fromkeys(self.columns, decimals(row[spread], *row.iloc[2:4]))  # the ends of the interval
        digits |= {name: decimals(row[name]) for name in ERRORS if name in self.columns}
        return digits | dict.fromkeys(COUNTS, 0) | {"r_hat": 2}

    def _printed(self) -> pd.DataFrame:
        """The table as text."""
        rows = {}
        for label in self.index:
            digits = self._digits(label)
            marks = {name: "," if name in COUNTS else "" for name in self.columns}
            pairs = [(name, self.loc[label, name]) for name in self.columns]
            rows[label] = ["" if pd.isna(x) else f"{x:{marks[name]}.{digits[name]}f}" for name, x in pairs]
        return pd.DataFrame.from_dict(rows, orient="index", columns=list(self.columns))
