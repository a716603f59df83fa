"""Objective perturbation; one-dimensional laws and histograms are in `test_objective.py`.

Targets by enumeration of data sets, the slope by quadrature.
"""

import itertools
from itertools import product

import numpy as np
import numpyro.distributions as dist
from mechanism_case import Case
from mutant import Mutant
from privacy_audit import Pair
from scipy import special, stats
from targets import Target

import noisewise as nw
from noisewise.mechanisms.objective_perturbation import ObjectivePerturbation


def data(rng, rows, records, features, *, bound=1.0, label=None):
    """Data sets in the domain: interior points, points on its edge, and equal records."""
    x = rng.standard_normal((rows, records, features))
    x *= bound / np.linalg.norm(x, axis=-1, keepdims=True)
    x[: rows // 2] *= rng.uniform(0, 1, (rows // 2, records, 1))
    signs = rng.choice([-1.0, 1.0], (rows, records, 1))
    y = signs if label is None else label * signs * rng.uniform(0, 1, (rows, records, 1)) ** 0.2
    found = np.concatenate([x, y], axis=-1)
    found[-rows // 4 :] = found[-rows // 4 :, :1]
    return found


def domain(records, features, **bounds):
    return lambda rng, size: data(rng, size, records, features, **bounds)


def one(records, features, **bounds):
    return data(np.random.default_rng(7), 3, records, features, **bounds)[0]


LOGISTIC = dict(loss="logistic", n=6)
LINEAR = dict(loss="linear", n=5, feature_bound=2.0, label_bound=3.0)

# `nearby` has less noise and more ridge, so that its density falls faster; another ridge makes another Hessian, so that
# the determinant does not cancel in the ratio.
CASES = [
    Case(
        "objective-logistic-laplace",
        ObjectivePerturbation(2.0, ridge=1.0, **LOGISTIC),
        one(6, 2),
        domain(6, 2),
        nearby=ObjectivePerturbation(1.6, ridge=1.3, **LOGISTIC),
        wrong=ObjectivePerturbation(2.1, ridge=1.0, **LOGISTIC),
        draws=30_000,
    ),
    Case(
        "objective-logistic-gaussian",
        ObjectivePerturbation(1.5, ridge=0.8, noise="gaussian", **LOGISTIC),
        one(6, 3),
        domain(6, 3),
        nearby=ObjectivePerturbation(1.2, ridge=1.0, noise="gaussian", **LOGISTIC),
        wrong=ObjectivePerturbation(1.6, ridge=0.8, noise="gaussian", **LOGISTIC),
        draws=30_000,
    ),
    Case(
        "objective-linear-laplace",
        ObjectivePerturbation(2.0, ridge=1.0, **LINEAR),
        one(5, 2, bound=2.0, label=3.0),
        domain(5, 2, bound=2.0, label=3.0),
        nearby=ObjectivePerturbation(1.6, ridge=1.3, **LINEAR),
        wrong=ObjectivePerturbation(2.0, ridge=1.5, **LINEAR),
        draws=30_000,
    ),
    Case(
        "objective-linear-gaussian",
        ObjectivePerturbation(3.0, ridge=1.0, noise="gaussian", **LINEAR),
        one(5, 1, bound=2.0, label=3.0),
        domain(5, 1, bound=2.0, label=3.0),
        nearby=ObjectivePerturbation(2.4, ridge=1.3, noise="gaussian", **LINEAR),
        wrong=ObjectivePerturbation(3.15, ridge=1.0, noise="gaussian", **LINEAR),
        draws=30_000,
    ),
]


# End to end: problems with their exact answers ----------------------------------------------------------------------

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


# Worst neighbours of every budget -------------------------------------------------------------------------------------


def audits(audit):
    """Tell `audit` of every budget: name, mechanism, pairs of laws."""
    for epsilon, ridge in product((0.5, 2.0), (0.05, 1.0, 20.0)):
        for extra in (dict(noise="laplace"), dict(noise="gaussian", delta=1e-3)):
            mechanism = ObjectivePerturbation(loss="logistic", ridge=ridge, n=2, epsilon=epsilon, **extra)
            reach = 45.0 * mechanism.scale / mechanism.ridge
            pairs = []
            for old, new, rest in (
                ([1.0, 1.0], [1.0, -1.0], [0.0, 1.0]),
                ([1.0, 1.0], [0.0, 1.0], [1.0, 1.0]),
                ([1.0, 1.0], [-1.0, 1.0], [0.5, -1.0]),
                ([1.0, -1.0], [0.3, 1.0], [1.0, -1.0]),
            ):

                def law(record, mechanism=mechanism, rest=rest):
                    return lambda b: mechanism.log_prob(b[:, None], np.array([record, rest]))

                near = np.linspace(-20.0, 20.0, 161)
                edges = np.unique(np.concatenate([[-reach - 20.0, reach + 20.0], near]))
                pairs.append(Pair(law(old), law(new), edges=edges, panels=12))
            label = f"objective-{extra['noise']}-{epsilon}-{ridge}"
            audit(label, mechanism, *pairs, tight=False)


# Mistakes that the tests must catch -----------------------------------------------------------------------------------

OBJECTIVE = "mechanisms/test_objective.py"

MUTANTS = {
    "a perturbed objective is released without its Jacobian": Mutant(
        "mechanisms/objective_perturbation.py",
        "return self._noise_log_prob(xp, _norm(xp, gradient), released.shape[-1]) + log_det",
        "return self._noise_log_prob(xp, _norm(xp, gradient), released.shape[-1]) + 0.0 * log_det",
        f"{OBJECTIVE}::test_one_coefficient",
    ),
    "a perturbed objective spends its budget on the noise alone": Mutant(
        "mechanisms/objective_perturbation.py",
        "remaining = epsilon - 2.0 * math.log1p(0.25 * bound**2 / ridge)",
        "remaining = epsilon",
        f"{OBJECTIVE}::test_laplace_budget_is_kept",
    ),
}
