"""Small public data sets, packaged with their provenance."""

import csv
from dataclasses import dataclass
from importlib import resources

import numpy as np

from noisewise.numerics import Array


@dataclass(frozen=True)
class Lalonde:
    """The National Supported Work experiment: who was treated, and earnings in 1978.

    445 men, 185 treated and 260 controls: the experimental sample of Dehejia and Wahba (1999) from the
    demonstration that LaLonde (1986) studied, as distributed in the Python package `causaldata` (MIT licence). Two
    of its columns are kept.

    R. LaLonde (1986), Evaluating the econometric evaluations of training programs with experimental data, American
    Economic Review 76. R. Dehejia and S. Wahba (1999), Causal effects in nonexperimental studies, JASA 94.
    """

    treated: Array
    """True for the treated."""
    earnings: Array
    """In 1978, in dollars."""

    def statistics(self) -> dict[str, float]:
        """Mean and variance by group, in thousand dollars: sufficient for two normal groups."""
        thousands = self.earnings / 1000.0
        statistics: dict[str, float] = {}
        for suffix, group in (("t", thousands[self.treated]), ("c", thousands[~self.treated])):
            statistics |= {f"mean_{suffix}": float(group.mean()), f"var_{suffix}": float(group.var(ddof=1))}
        return statistics


def lalonde() -> Lalonde:
    """Read the packaged file."""
    text = resources.files("noisewise.datasets").joinpath("lalonde_nsw.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    treated = np.array([row["treat"] == "1" for row in rows])
    return Lalonde(treated, np.array([float(row["re78"]) for row in rows]))
