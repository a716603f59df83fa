"""The naive posterior beside the exact one: how much wider the exact intervals are, and how far they have moved."""

from dataclasses import dataclass
from typing import Any

from noisewise.results.labels import owner_of
from noisewise.results.posterior import Posterior


@dataclass(frozen=True)
class Beside:
    """Two posteriors of the same release: one that counts the noise and, where there is one, one that ignores it."""

    exact: Posterior
    naive: Posterior | None

    def table(self, level: float = 0.95) -> Any:
        """A pandas table of parameters and derived quantities, as `Comparison.table` describes it."""
        import pandas as pd

        exact = self.exact.summary(level)
        low, high = exact.columns[2:4]
        derived = [name for name in self.exact.derived if self.exact[name].dtype.kind != "b"]
        wanted = (*self.exact.parameters, *derived)
        labels = [label for label in exact.index if owner_of(label) in wanted]
        columns = ["mean", "sd", low, high]
        table = exact.loc[labels, columns].add_prefix("exact ")
        if self.naive is not None:
            naive = self.naive.summary(level)[columns].reindex(labels)
            known = naive[high] == naive[low]
            naive["sd"] = naive["sd"].mask(known, 0.0)  # in place of rounding
            wider = (exact.loc[labels, high] - exact.loc[labels, low]) / (naive[high] - naive[low]).mask(known)
            shift = (exact.loc[labels, "mean"] - naive["mean"]) / naive["sd"].mask(known)
            table = pd.concat([naive.add_prefix("naive "), table, wider.rename("wider"), shift.rename("shift")], axis=1)
        return table
