"""Panels for the integrals of very many rows: where each row's integrand matters, found once and kept; traceable.

Every row's integrand pi(s) eta(r | s) ds/dt is evaluated at points about the release and about the law. A window
reaches to where its log has fallen by `DEEP` from the top, and is cut into panels where the noise has its kink and
where law and noise have most of their mass. Derivation: docs/likelihood-scale.md.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.inference.conditional.charts import law_of, log_jacobian, to_s, to_t

DEEP = 28.0
"""A window reaches to where the log integrand has fallen by this much: e^-28 is 7e-13."""
POWERS = np.concatenate([[0.0], 2.0 ** np.arange(-1, 11)])
"""Distances from release and law at which the integrand is evaluated, in units of their scales."""
CLOSER = 2
"""Rounds in which the window is narrowed, each by seventeen points of it."""
FAR_NOISE, FAR_LAW = 6.0, 4.0
"""Scales of the noise about the release, and spreads of the law about its centre, at which panels end."""


def log_noise(chart: str, mechanism: Any, released: Any, t: Any) -> Any:
    """log of the noise density times ds/dt."""
    return mechanism.log_prob(released, to_s(chart, t)) + log_jacobian(chart, t)


def log_integrand(kind: str, chart: str, given: Any, t: Any) -> Any:
    """log pi(s) + log eta(r | s) + log ds/dt; a formula beyond its range counts as no mass."""
    attributes, mechanism, released = given
    both = law_of(kind, attributes).log_prob(to_s(chart, t)) + log_noise(chart, mechanism, released, t)
    return jnp.where(both < jnp.inf, both, -jnp.inf)


def panel_edges(kind: str, chart: str, given: Any, centre: Any, spread: Any, scale: Any) -> tuple[Any, Any, Any]:
    """Edges of every row's panels, (panels + 1, rows); the largest log integrand seen; log of the mass outside, about.

    `centre` and `spread` are those of the law in the chart's coordinate, `scale` is the noise's own.
    """
    released = jnp.broadcast_to(given[2], centre.shape)
    own = to_t(chart, released)
    kink = jnp.where(jnp.isnan(own), centre, own)

    def about_release(power: Any) -> Any:
        place = to_t(chart, released + power * scale)
        return jnp.where(jnp.isnan(place), centre, place)

    steps = np.concatenate([-POWERS, POWERS])
    points = [*(about_release(step) for step in steps), *(centre + step * spread for step in steps)]
    low, high, top = _hull(kind, chart, given, jnp.stack(points))
    for _ in range(CLOSER):
        points = [low + (high - low) * (step / 16) for step in range(17)]
        points += [jnp.clip(special, low, high) for special in (kink, centre)]
        low, high, top = _hull(kind, chart, given, jnp.stack(points))
    inner = [*_cuts(kink, low, high), *(about_release(side * FAR_NOISE) for side in (-1.0, 1.0))]
    inner += [centre, *(centre + side * FAR_LAW * spread for side in (-1.0, 1.0))]
    edges = jnp.sort(jnp.stack([low, *(jnp.clip(one, low, high) for one in inner), high]), axis=0)
    ends = jnp.logaddexp(*(log_integrand(kind, chart, given, end) for end in (low, high)))
    return edges, top, ends + jnp.log(high - low)


def _hull(kind: str, chart: str, given: Any, points: Any) -> tuple[Any, Any, Any]:
    """(low, high, top): the points next outside those within `DEEP` of the largest log integrand, and that largest."""
    logs = jax.lax.map(lambda t: log_integrand(kind, chart, given, t), points)
    logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    top = jnp.max(logs, axis=0)
    is_high = logs >= top - DEEP
    low = jnp.min(jnp.where(is_high, points, jnp.inf), axis=0)
    high = jnp.max(jnp.where(is_high, points, -jnp.inf), axis=0)
    below = jnp.max(jnp.where(points < low, points, -jnp.inf), axis=0)
    above = jnp.min(jnp.where(points > high, points, jnp.inf), axis=0)
    return jnp.where(jnp.isfinite(below), below, low), jnp.where(jnp.isfinite(above), above, high), top


def _cuts(kink: Any, low: Any, high: Any) -> list[Any]:
    """Two cuts: at the kink where it lies inside, else in the middle; and in the middle of the longer side."""
    cut = jnp.where((kink > low) & (kink < high), kink, 0.5 * (low + high))
    return [cut, jnp.where(cut - low > high - cut, 0.5 * (low + cut), 0.5 * (cut + high))]
