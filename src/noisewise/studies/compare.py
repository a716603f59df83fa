"""Naive beside exact: what ignoring the noise would have claimed."""

from dataclasses import dataclass
from html import escape
from typing import Any

from noisewise import checks
from noisewise.engine import Engine
from noisewise.errors import NoisewiseError
from noisewise.inference.problem import Problem
from noisewise.inference.settings import Sampler
from noisewise.model import Model
from noisewise.notebook import for_people
from noisewise.plots.posterior import plot
from noisewise.release import Release
from noisewise.results.beside import Beside
from noisewise.results.posterior import Posterior
from noisewise.samplers import NUTS, Importance
from noisewise.samplers.sample import sample


@dataclass(frozen=True)
class Comparison:
    """The exact posterior and the naive one of the same release."""

    model: Model
    release: Release
    exact: Posterior
    naive: Posterior | None
    reason: str = ""
    """Why there is no naive posterior, where there is none."""

    def table(self, level: float = 0.95) -> Any:
        """A pandas table of parameters and derived quantities: naive and exact posterior, and how they differ.

        `wider` is the ratio of the intervals' widths; `shift` the difference of the means in naive standard
        deviations; both are NaN where the naive analysis knows the value (a statistic, taken as published). Truth
        values, which have no interval, are left out.
        """
        return Beside(self.exact, self.naive).table(level)

    def plot(self) -> Any:
        """Exact posterior beside naive and prior, as a matplotlib figure."""
        return plot(self.exact, prior=self.model, naive=self.naive)

    def __repr__(self) -> str:
        note = f"\nNo naive analysis: {self.reason}" if self.reason else ""
        return f"Comparison\n{self.table().to_string(float_format=lambda x: f'{x:.4g}')}{note}"

    def _repr_html_(self) -> str:
        note = f"<p>No naive analysis: {escape(self.reason)}</p>" if self.reason else ""
        return f"<div><p><strong>Comparison</strong></p>{self.table().to_html(float_format=for_people)}{note}</div>"


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

    The naive fit is for comparison only: weighted draws of the prior or, where these are worth too little, Markov
    chains (`NUTS`); its `status` says whether even those fell short. Where the model has no naive analysis (a `Total`,
    a negative count) `naive` is None and `reason` says why.
    """
    draws = checks.integer("compare", "draws", draws, least=2, advice="Ask for 1000 or more.")
    common: dict[str, Any] = {"seed": seed, "engine": engine, "progress": progress}
    naive, reason = naive_posterior(model, release, draws=draws, **common)
    exact = sample(model, release, sampler, draws=draws, **common)
    return Comparison(model, release, exact, naive, reason)


def naive_posterior(
    model: Model,
    release: Release,
    *,
    draws: int,
    seed: int,
    engine: Engine | None = None,
    progress: bool | None = None,
) -> tuple[Posterior | None, str]:
    """The posterior had the published values carried no noise; or None, and why there is none.

    Ctrl-C ends it: half a naive analysis is of no use.
    """
    try:
        against = Importance().unfit(Problem(model, release.naive()))
        if against is not None:
            return None, f"as if there were no noise, it {against}"
        posterior = _weighted_or_chains(
            model, release.naive(), draws, {"seed": seed, "engine": engine, "progress": progress}
        )
    except NoisewiseError as error:  # a statistic without a density, say
        return None, error.cause
    if posterior.status == "interrupted":
        raise KeyboardInterrupt
    return (None, posterior.message) if posterior.status == "no_weight" else (posterior, "")


def _weighted_or_chains(model: Model, release: Release, draws: int, common: dict[str, Any]) -> Posterior:
    """Weighted draws of the prior; where few of them carry the weight, Markov chains, if those fare better."""
    weighted = sample(model, release, Importance(), draws=4 * draws, on_failure="return", **common)
    if weighted.status in ("low_ess", "high_k") and NUTS().unfit(Problem(model, release)) is None:
        chains = sample(model, release, NUTS(), draws=draws, on_failure="return", **common)
        if chains.status in ("complete", "interrupted") or min(chains.ess.values()) > min(weighted.ess.values()):
            return chains
    return weighted
