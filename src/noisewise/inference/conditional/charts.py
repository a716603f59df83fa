"""One entry's law and noise in a coordinate t on the whole line, and what is integrated there; traceable.

The coordinate is s itself, log s for positive laws, the logit for shares. Derivation: docs/likelihood-scale.md.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from noisewise.numerics import Values, namespace


def to_s(chart: str, t: Any) -> Any:
    """The statistic at a coordinate."""
    if chart == "real":
        return t
    return jnp.exp(t) if chart == "positive" else jax.nn.sigmoid(t)


def log_jacobian(chart: str, t: Any) -> Any:
    """log ds/dt."""
    if chart == "real":
        return 0.0
    return t if chart == "positive" else jax.nn.log_sigmoid(t) + jax.nn.log_sigmoid(-t)


def to_t(chart: str, s: Any) -> Any:
    """The coordinate of a statistic, in NumPy or JAX; NaN outside the support."""
    if chart == "real":
        return s
    xp = namespace(s)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = xp.log(s) if chart == "positive" else xp.log(s) - xp.log1p(-s)
    return xp.where(xp.isfinite(t), t, xp.nan)


def law_of(kind: str, attributes: Values) -> Any:
    """The law anew from its attributes, so that it can be evaluated for some entries only."""
    made = getattr(dist, kind)
    made = dist.GammaPoisson if issubclass(made, dist.GammaPoisson) else made  # others take other arguments
    return made(**attributes, validate_args=False)
