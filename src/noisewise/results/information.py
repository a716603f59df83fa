"""What the noise cost: how much uncertainty would go if the confidential statistics were published."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from noisewise.diagnostics import weights
from noisewise.mechanisms import Exact, Within
from noisewise.numerics import Array
from noisewise.release import Release
from noisewise.results.labels import label_of
from noisewise.results.posterior import Posterior

PER_COLUMN = 20
"""Effective draws per regressor that the regression needs."""


@dataclass(frozen=True)
class Lost:
    """What privacy cost for one scalar."""

    label: str
    noise_share: float | None
    """At least this share of the posterior variance is due to the noise."""
    before: tuple[float, float]
    after: tuple[float, float]
    """Central intervals of prior and posterior."""

    @property
    def narrowed(self) -> float:
        """By which share the interval became narrower; negative where it became wider."""
        width = self.before[1] - self.before[0]
        return 1.0 - (self.after[1] - self.after[0]) / width if width > 0 else float("nan")


def lost(posterior: Posterior, release: Release, before: Mapping[str, Array], level: float) -> list[Lost]:
    """What privacy cost, for every scalar parameter.

    By the law of total variance, with s the confidential statistics,

        Var(theta | release) = E[Var(theta | s) | release] + Var(E[theta | s] | release):

    the second term is what publishing s itself would save, on average. The best linear predictor of theta from s has no
    more variance than E[theta | s], so the regression's R^2 over the posterior's draws bounds that share from below.
    """
    columns = _statistics(posterior, release)
    tails = [(1 - level) / 2, (1 + level) / 2]
    losses = []
    for name in posterior.parameters:
        values = posterior[name].astype(float)
        ends = weights.quantiles(values, posterior.weights, tails)
        prior = np.quantile(before[name].astype(float), tails, axis=0)
        for index in np.ndindex(values.shape[1:]):
            label = label_of(name, index, posterior.axes)
            heavy = label in posterior.heavy_tails  # no variance to have a share of
            share = None if heavy else _share(values[(slice(None), *index)], columns, posterior, name)
            pairs = [(float(low[index]), float(high[index])) for low, high in (prior, ends)]
            losses.append(Lost(label, share, pairs[0], pairs[1]))
    return losses


def _statistics(posterior: Posterior, release: Release) -> Array:
    """Draws of the released, noisy statistics that vary, one column per scalar."""
    noisy = [
        posterior[name].reshape(len(posterior), -1).astype(float)
        for name, item in release.items()
        if name in posterior and not isinstance(item.mechanism, (Exact, Within))
    ]
    joined = np.concatenate(noisy, axis=1) if noisy else np.empty((len(posterior), 0))
    joined = joined[:, np.all(np.isfinite(joined), axis=0)]
    return joined[:, joined.max(axis=0) > joined.min(axis=0)]


def _share(values: Array, columns: Array, posterior: Posterior, name: str) -> float | None:
    """Adjusted R^2 of the (weighted) regression on the columns; None where the draws are too few to tell."""
    size = posterior.ess[name]
    width = columns.shape[1]
    if width == 0 or not np.isfinite(size) or size < PER_COLUMN * (width + 1):
        return None
    weight = np.full(len(values), 1.0 / len(values)) if posterior.weights is None else posterior.weights
    centred, target = columns - weight @ columns, values - weight @ values
    total = float(weight @ target**2)
    if not 0.0 < total < np.inf:
        return None
    spread = np.sqrt(weight @ centred**2)
    centred = centred[:, spread > 0] / spread[spread > 0]
    root = np.sqrt(weight)
    fitted = centred @ np.linalg.lstsq(centred * root[:, None], target * root, rcond=1e-10)[0]
    raw = 1.0 - float(weight @ (target - fitted) ** 2) / total
    return float(np.clip(1.0 - (1.0 - raw) * (size - 1.0) / (size - width - 1.0), 0.0, 1.0))
