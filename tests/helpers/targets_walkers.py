"""An asymmetric and a bimodal posterior, by quadrature: they catch flipped signs and walkers that stay in one mode."""

import numpy as np
import numpyro.distributions as dist
from scipy import stats
from targets import Target, _moments, _normalise

import noisewise as nw


def _skewed_problem():
    model = nw.Model(
        prior={"theta": dist.LogNormal(0.0, 0.8)}, statistics={"s": lambda theta: dist.Gamma(2.0, 1.0 / theta)}
    )
    return model, nw.Release(s=nw.Laplace(scale=1.0).released(7.0))


def _skewed_solution():
    """A grid over log theta and, by the scale of the Gamma law, over s itself."""
    log_theta = np.linspace(-5.0, 6.0, 221)[:, None]
    s = ((np.arange(2000) + 0.5) * 0.03)[None, :]
    theta = np.exp(log_theta)
    log_joint = (
        stats.norm.logpdf(log_theta, 0.0, 0.8)
        + stats.gamma.logpdf(s, 2.0, scale=theta)
        + stats.laplace.logpdf(7.0, s, 1.0)
    )
    weight, log_sum = _normalise(log_joint)
    nothing = np.zeros_like(log_joint)
    found = _moments(weight, {"theta": (theta + nothing, nothing), "s": (s + nothing, nothing)})
    return found | {"log_evidence": log_sum + np.log(0.05 * 0.03)}


def _bimodal_problem():
    model = nw.Model(prior={"theta": dist.Normal(0.3, 1.5)}, statistics={"s": lambda theta: dist.Normal(theta**2, 0.5)})
    return model, nw.Release(s=nw.Gaussian(scale=0.7).released(4.0))


def _bimodal_solution():
    """Given theta, s and its release are normal; the square hides the sign of theta, the prior prefers one."""
    theta = np.linspace(-8.0, 8.0, 16_001)
    total = 0.5**2 + 0.7**2
    log_joint = stats.norm.logpdf(theta, 0.3, 1.5) + stats.norm.logpdf(4.0, theta**2, np.sqrt(total))
    weight, log_sum = _normalise(log_joint)
    centre = theta**2 + 0.5**2 / total * (4.0 - theta**2)
    spread = np.full_like(theta, 0.5**2 * 0.7**2 / total)
    found = _moments(weight, {"theta": (theta, 0.0 * theta), "s": (centre, spread)})
    return found | {"log_evidence": log_sum + np.log(0.001)}


TARGETS = [
    Target("asymmetric", _skewed_problem, _skewed_solution),
    Target("bimodal", _bimodal_problem, _bimodal_solution),
]
