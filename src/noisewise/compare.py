"""Naive beside exact: what ignoring the noise would have claimed."""

from dataclasses import dataclass
from typing import Any

from noisewise import checks
from noisewise.engine import Engine
from noisewise.model import Model
from noisewise.posterior import Posterior
from noisewise.release import Release
from noisewise.samplers import sample
from noisewise.settings import Sampler


@dataclass(frozen=True)
class Comparison:
    """The exact posterior and the naive one of the same release."""

    model: Model
    release: Release
    exact: Posterior
    naive: Posterior

    def table(self, level: float = 0.95) -> Any:
        """A pandas table of the parameters: both posteriors, how much wider the exact interval, how far the shift.

        `wider` is the ratio of the intervals' widths; `shift` the difference of the means in naive standard
        deviations.
        """
        import pandas as pd

        rows = {}
        exact, naive = self.exact.summary(level), self.naive.summary(level)
        low, high = exact.columns[2:4]
        for name in exact.index:
            if name.split("[")[0] not in self.exact.parameters:
                continue
            a, b = exact.loc[name], naive.loc[name]
            rows[name] = {
                "naive mean": b["mean"],
                "naive sd": b["sd"],
                f"naive {low}": b[low],
                f"naive {high}": b[high],
                "exact mean": a["mean"],
                "exact sd": a["sd"],
                f"exact {low}": a[low],
                f"exact {high}": a[high],
                "wider": (a[high] - a[low]) / (b[high] - b[low]),
                "shift": (a["mean"] - b["mean"]) / b["sd"],
            }
        return pd.DataFrame.from_dict(rows, orient="index")

    def plot(self) -> Any:
        """Exact posterior beside naive and prior, as a matplotlib figure."""
        from noisewise.plots import plot

        return plot(self.exact, prior=self.model, naive=self.naive)

    def __repr__(self) -> str:
        return f"Comparison\n{self.table().to_string(float_format=lambda x: f'{x:.4g}')}"

    def _repr_html_(self) -> str:
        return str(self.table().to_html(float_format=lambda x: f"{x:.4g}"))


def compare(
    model: Model,
    release: Release,
    sampler: Sampler | None = None,
    *,
    draws: int,
    seed: int,
    engine: Engine | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Fit the release exactly and naively (as if it carried no noise), with the same model.

    The naive fit is for comparison only: its draws are weighted, and where they are worth fewer than 400 its
    `status` says so.
    """
    draws = checks.integer("compare", "draws", draws, least=2, advice="Ask for 1000 or more.")
    common: dict[str, Any] = {"seed": seed, "engine": engine, "progress": progress}
    exact = sample(model, release, sampler, draws=draws, **common)
    naive = sample(model, release.naive(), draws=4 * draws, on_failure="return", **common)
    return Comparison(model, release, exact, naive)
