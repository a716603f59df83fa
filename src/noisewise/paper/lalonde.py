"""Section 5.2 of the paper: the Lalonde experiment. Figure 3."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import noisewise as nw
from noisewise import datasets
from noisewise.paper.exact import Lalonde
from noisewise.paper.numbers import Number

Array = np.ndarray[Any, Any]
Progress = Callable[[str], None]

LEVELS = (0.01, 0.25, 0.5, 0.75, 0.99)
QUANTITIES = ("tau", "mu", "sigma_t_squared", "sigma_c_squared")
STATISTICS = ("mean_t", "mean_c", "var_t", "var_c")
SCALES = (3.0, 3.0, 6.0, 6.0)
ROWS = ("confidential", "naive", "exact")


def model() -> nw.Model:
    """Two normal groups through their means and variances, in thousand dollars; standard deviations have the priors."""
    import jax.numpy as jnp
    import numpyro.distributions as dist

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


def release(values: Any) -> nw.Release:
    """The four statistics, published with the paper's Laplace noise."""
    pairs = zip(STATISTICS, SCALES, values, strict=True)
    return nw.Release({name: nw.Laplace(scale=scale).released(float(value)) for name, scale, value in pairs})


def realisations(count: int, seed: int) -> list[nw.Release]:
    """Privatised releases of the confidential statistics; variances that noise made negative have no naive fit."""
    confidential = datasets.lalonde().statistics()
    rng = np.random.default_rng(seed)
    found: list[nw.Release] = []
    while len(found) < count:
        noisy = [
            float(nw.Laplace(scale=scale).sample(rng, confidential[name]))
            for name, scale in zip(STATISTICS, SCALES, strict=True)
        ]
        if min(noisy[2:]) > 0.0:
            found.append(release(noisy))
    return found


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
    """Quantiles by row (confidential, naive, exact), quantity, fit and level."""

    quantiles: dict[str, dict[str, Array]]
    releases: list[nw.Release]
    last: list[nw.Posterior]
    """The exact posteriors."""

    def rows(self) -> list[dict[str, Any]]:
        """As plain data."""
        found = []
        for row, by_name in self.quantiles.items():
            for name, values in by_name.items():
                for number, levels in enumerate(values):
                    labelled = {f"{100 * level:g}%": float(x) for level, x in zip(LEVELS, levels, strict=True)}
                    found.append({"analysis": row, "parameter": name, "fit": number + 1, **labelled})
        return found


def fits(count: int, draws: int, seed: int, progress: Progress) -> Fitted:
    """Ten fits to the confidential statistics, ten naive and ten exact ones to the same ten releases."""
    one = model()
    releases = realisations(count, seed)
    confidential = datasets.lalonde().statistics()
    truth = nw.Release({name: nw.Exact().released(confidential[name]) for name in STATISTICS})
    found: dict[str, dict[str, list[Array]]] = {row: {name: [] for name in QUANTITIES} for row in ROWS}
    last = []
    sampler = nw.NUTS()
    for number, noisy in enumerate(releases):
        progress(f"Figure 3: fits {number + 1} of {count}, confidential, naive and exact")
        common: dict[str, Any] = {"draws": draws, "seed": seed + number, "progress": False}
        by_row = {
            "confidential": nw.sample(one, truth, sampler, **common),
            "naive": nw.sample(one, noisy.naive(), sampler, **common),
            "exact": nw.sample(one, noisy, nw.Rejection(), **common),
        }
        last.append(by_row["exact"])
        for row, posterior in by_row.items():
            for name, values in quantities(posterior).items():
                found[row][name].append(np.quantile(values, LEVELS))
    stacked = {row: {name: np.stack(parts) for name, parts in by_name.items()} for row, by_name in found.items()}
    return Fitted(stacked, releases, last)


def numbers(found: Fitted) -> list[Number]:
    """The first exact fit's quantiles beside quadrature; errors from the exact density at each quantile."""
    made = []
    released = tuple(float(found.releases[0][name].value) for name in STATISTICS)
    exact = Lalonde(released).posterior
    for name, values in quantities(found.last[0]).items():
        for level in LEVELS:
            quantile = exact[name].quantile(level)
            step = 1e-3 * (exact[name].quantile(0.75) - exact[name].quantile(0.25)) + 1e-9
            slope = np.interp(quantile + np.array([-step, step]), exact[name].points, exact[name].cdf)
            density = float(slope[1] - slope[0]) / (2 * step)
            error = np.sqrt(level * (1 - level) / len(values)) / density
            label = f"release 1, {name}: {100 * level:g}% quantile"
            made.append(Number("Figure 3", label, float(np.quantile(values, level)), float(error), quantile))
    return made
