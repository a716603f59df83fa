"""Section 5.2 of the paper: the Lalonde experiment. Figure 3."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import noisewise as nw
from noisewise import datasets
from noisewise.diagnostics import chains
from noisewise.numerics import Array
from noisewise.paper.exact import Grid, Lalonde, Noiseless
from noisewise.paper.numbers import Number, quantile_limits

Progress = Callable[[str], None]

LEVELS = (0.01, 0.25, 0.5, 0.75, 0.99)
QUANTITIES = ("tau", "mu", "sigma_t_squared", "sigma_c_squared")
STATISTICS = ("mean_t", "mean_c", "var_t", "var_c")
SCALES = (3.0, 3.0, 6.0, 6.0)
ANALYSES = ("confidential", "naive", "exact")
"""The three rows of the figure."""


def groups_model() -> nw.Model:
    """Two normal groups through their means and variances, in thousand dollars; priors are on standard deviations."""
    return nw.Model(
        prior={
            "tau": dist.Normal(0.0, 5.0),
            "mu": dist.Normal(4.0, 5.0),
            "sigma_t": dist.Gamma(2.0, 0.2),
            "sigma_c": dist.Gamma(2.0, 0.2),
        },
        statistics={
            "mean_t": lambda mu, tau, sigma_t: dist.Normal(mu + tau, sigma_t / jnp.sqrt(185.0)),
            "mean_c": lambda mu, sigma_c: dist.Normal(mu, sigma_c / jnp.sqrt(260.0)),
            "var_t": lambda sigma_t: dist.Gamma(184 / 2, 184 / (2 * sigma_t**2)),
            "var_c": lambda sigma_c: dist.Gamma(259 / 2, 259 / (2 * sigma_c**2)),
        },
    )


def published_statistics(values: Any) -> nw.Release:
    """The four statistics, published with the paper's Laplace noise."""
    pairs = zip(STATISTICS, SCALES, values, strict=True)
    return nw.Release({name: nw.Laplace(scale=scale).released(float(value)) for name, scale, value in pairs})


def realisations(count: int, seed: int) -> list[nw.Release]:
    """Privatised releases of the confidential statistics; variances that noise made negative have no naive fit."""
    confidential = datasets.lalonde().statistics()
    rng = np.random.default_rng(seed)  # a curator's: no inference shares it
    releases: list[nw.Release] = []
    while len(releases) < count:
        noisy = [
            float(nw.Laplace(scale=scale).sample(rng, confidential[name]))
            for name, scale in zip(STATISTICS, SCALES, strict=True)
        ]
        if min(noisy[2:]) > 0.0:
            releases.append(published_statistics(noisy))
    return releases


def quantities(posterior: nw.Posterior) -> dict[str, Array]:
    """The paper's four parameters, variances instead of standard deviations."""
    return {
        "tau": posterior["tau"],
        "mu": posterior["mu"],
        "sigma_t_squared": posterior["sigma_t"] ** 2,
        "sigma_c_squared": posterior["sigma_c"] ** 2,
    }


@dataclass(frozen=True)
class Fitted:
    """Posteriors by analysis (confidential, naive, exact) and fit, and the releases behind the last two."""

    posteriors: dict[str, list[nw.Posterior]]
    releases: list[nw.Release]

    @cached_property
    def quantiles(self) -> dict[str, dict[str, Array]]:
        """By analysis, quantity, fit and level."""
        quantiles = {}
        for analysis, posteriors in self.posteriors.items():
            columns = [quantities(posterior) for posterior in posteriors]
            quantiles[analysis] = {
                name: np.stack([np.quantile(column[name], LEVELS) for column in columns]) for name in QUANTITIES
            }
        return quantiles

    def exact(self, analysis: str, fit: int) -> dict[str, Grid]:
        """The posterior of one fit by quadrature."""
        if analysis == "confidential":
            return self._confidential
        values = tuple(float(self.releases[fit][name].value) for name in STATISTICS)
        return _by_quadrature(Lalonde if analysis == "exact" else Noiseless, values)

    @cached_property
    def _confidential(self) -> dict[str, Grid]:
        statistics = datasets.lalonde().statistics()
        return _by_quadrature(Noiseless, tuple(statistics[name] for name in STATISTICS))

    def rows(self) -> list[dict[str, Any]]:
        """As plain data."""
        rows = []
        for analysis, by_name in self.quantiles.items():
            for name, values in by_name.items():
                for number, levels in enumerate(values):
                    labelled = {f"{100 * level:g}%": float(x) for level, x in zip(LEVELS, levels, strict=True)}
                    rows.append({"analysis": analysis, "parameter": name, "fit": number + 1, **labelled})
        return rows


@cache  # seconds each
def _by_quadrature(kind: type[Lalonde] | type[Noiseless], values: tuple[float, ...]) -> dict[str, Grid]:
    return kind(values).posterior


def fits(count: int, draws: int, seed: int, progress: Progress) -> Fitted:
    """Ten fits to the confidential statistics, ten naive and ten exact ones to the same ten releases."""
    groups = groups_model()
    releases = realisations(count, seed)
    confidential = datasets.lalonde().statistics()
    truth = nw.Release({name: nw.Exact().released(confidential[name]) for name in STATISTICS})
    posteriors: dict[str, list[nw.Posterior]] = {analysis: [] for analysis in ANALYSES}
    for number, noisy in enumerate(releases):
        progress(f"Figure 3: fits {number + 1} of {count}, confidential, naive and exact")
        common: dict[str, Any] = {"draws": draws, "seed": seed + number, "progress": False}
        posteriors["confidential"].append(nw.sample(groups, truth, nw.NUTS(), **common))
        posteriors["naive"].append(nw.sample(groups, noisy.naive(), nw.NUTS(), **common))
        posteriors["exact"].append(nw.sample(groups, noisy, nw.Rejection(), **common))
    return Fitted(posteriors, releases)


def numbers(fitted: Fitted, progress: Progress = lambda text: None) -> list[Number]:
    """Every quantile of every fit beside quadrature."""
    numbers = []
    for analysis, posteriors in fitted.posteriors.items():
        progress(f"Figure 3: {analysis} fits beside quadrature")
        for fit, posterior in enumerate(posteriors):
            exact = fitted.exact(analysis, fit)
            for name, values in quantities(posterior).items():
                label = f"fit {fit + 1}, {analysis}, {name}"
                numbers += [_quantile(label, level, values, posterior.chains, exact[name]) for level in LEVELS]
    return numbers


def _quantile(label: str, level: float, values: Array, chained: int | None, exact: Grid) -> Number:
    """One quantile; draws of chains count by their effective number for that quantile."""
    truth = exact.quantile(level)
    size = float(len(values))
    if chained is not None:
        below = chains.by_chain((values <= truth) * 1.0, chained)
        size = min(size, float(chains.effective_size(chains.halves(below))[0]))
    low, high = (exact.quantile(limit) for limit in quantile_limits(level, size))
    spread = np.sqrt(level * (1 - level) / size)
    error = 0.5 * (exact.quantile(min(level + spread, 1.0)) - exact.quantile(max(level - spread, 0.0)))
    ours = float(np.quantile(values, level))
    return Number("Figure 3", f"{label}: {100 * level:g}% quantile", ours, error, truth, limits=(low, high))
