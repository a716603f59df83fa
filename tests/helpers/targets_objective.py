"""Posteriors from coefficients released by objective perturbation: data sets enumerated, the slope by quadrature."""

import itertools

import numpy as np
import numpyro.distributions as dist
from scipy import special, stats
from targets import Target

import noisewise as nw
from noisewise.mechanisms.objective_perturbation import ObjectivePerturbation

FEATURES = np.array([-1.0, 0.5])
SHARE = 0.4  # of records with the second feature
RECORDS = 3


def _simulate(rng, slope):
    """Data sets of RECORDS rows: a feature, and a label -1 or 1 by the logistic model."""
    x = FEATURES[(rng.random((len(slope), RECORDS)) < SHARE).astype(int)]
    y = np.where(rng.random(x.shape) < special.expit(slope[:, None] * x), 1.0, -1.0)
    return np.stack([x, y], axis=-1)


def _problem(mechanism, released):
    model = nw.Model(
        prior={"slope": dist.Normal(0.5, 1.5)},
        statistics={"data": nw.Simulator(_simulate, batched=True)},
    )
    return model, nw.Release(data=mechanism.released(released))


def _solution(log_density):
    """`log_density(data)`: of the released coefficient, written independently of the library."""
    slope = np.linspace(-12.0, 13.0, 2_001)
    log_prior = stats.norm.logpdf(slope, 0.5, 1.5) + np.log(slope[1] - slope[0])
    kinds = list(itertools.product((0, 1), (-1.0, 1.0)))
    sets = np.array([[(FEATURES[k], y) for k, y in rows] for rows in itertools.product(kinds, repeat=RECORDS)])
    x, y = sets[..., 0], sets[..., 1]
    log_x = np.log(np.where(x == FEATURES[1], SHARE, 1 - SHARE)).sum(axis=1)
    log_y = special.log_expit(slope[:, None, None] * x * y).sum(axis=2)
    log_joint = log_prior[:, None] + log_y + log_x + np.array([log_density(rows) for rows in sets])
    log_evidence = float(special.logsumexp(log_joint))
    weight = np.exp(log_joint - log_evidence)

    def moments(values, w):
        w = w.reshape(w.shape + (1,) * (values.ndim - 1))
        mean = (w * values).sum(axis=0)
        return mean, (w * (values - mean) ** 2).sum(axis=0)

    return {
        "slope": moments(slope, weight.sum(axis=1)),
        "data": moments(sets, weight.sum(axis=0)),
        "log_evidence": log_evidence,
    }


def _logistic(rows):
    """exp(-|v| / 1.5) / 3, times the second derivative, at b = 1.7 and ridge 0.8."""
    x, y = rows.T
    p = 1 / (1 + np.exp(-1.7 * x))
    v = -(np.sum((p - (y + 1) / 2) * x) + 0.8 * 1.7)
    return -np.abs(v) / 1.5 - np.log(3.0) + np.log(np.sum(p * (1 - p) * x**2) + 0.8)


def _linear(rows):
    """Normal noise of scale 0.9 at b = 1.1, ridge 0.5."""
    x, y = rows.T
    v = np.sum(x * y) - (np.sum(x * x) + 0.5) * 1.1
    return stats.norm.logpdf(v, 0.0, 0.9) + np.log(np.sum(x * x) + 0.5)


TARGETS = [
    Target(
        "objective-logistic",
        lambda: _problem(ObjectivePerturbation(1.5, loss="logistic", ridge=0.8, n=RECORDS), [1.7]),
        lambda: _solution(_logistic),
    ),
    Target(
        "objective-linear",
        lambda: _problem(
            ObjectivePerturbation(0.9, loss="linear", noise="gaussian", ridge=0.5, n=RECORDS, label_bound=1.0),
            [1.1],
        ),
        lambda: _solution(_linear),
    ),
]
