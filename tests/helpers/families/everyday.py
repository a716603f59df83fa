"""The everyday mechanisms.

Their targets are in `targets.py`; scales and budgets are tested further in `test_mechanisms.py`.
"""

import numpy as np
from mechanism_case import Case
from privacy_audit import PLANE, cloud, pair_of, plane

import noisewise as nw


def near(centre, spread):
    return lambda rng, size: np.append(centre + spread * rng.standard_cauchy(size - 2), [1e300, -1e300])


def whole(centre, spread):
    return lambda rng, size: np.append(centre + np.round(spread * rng.standard_normal(size - 2)), [1e15, -1e15])


CASES = [
    Case(
        "laplace",
        nw.Laplace(scale=2.0),
        3.25,
        near(3.0, 2.0),
        attains=lambda released: released,
        pieces=((-57.0, 3.25), (3.25, 63.0)),
        wrong=nw.Laplace(scale=2.06),
    ),
    Case(
        "gaussian",
        nw.Gaussian(scale=1.5),
        -7.75,
        near(-7.0, 2.0),
        attains=lambda released: released,
        pieces=((-20.0, -7.75), (-7.75, 5.0)),
        wrong=nw.Gaussian(scale=1.53),
    ),
    Case(
        "discrete-laplace",
        nw.DiscreteLaplace(scale=3.0),
        4,
        whole(4, 5),
        attains=lambda released: released,
        points=np.arange(-96, 105),
        wrong=nw.DiscreteLaplace(scale=3.1),
    ),
    Case(
        "discrete-gaussian",
        nw.DiscreteGaussian(scale=2.5),
        -3,
        whole(-3, 4),
        attains=lambda released: released,
        points=np.arange(-30, 25),
        wrong=nw.DiscreteGaussian(scale=2.56),
    ),
    Case(
        "exact",
        nw.Exact(),
        5.0,
        lambda rng, size: np.append(rng.integers(0, 9, size - 1), 5.0),
        attains=lambda released: released,
        points=np.arange(0.0, 9.0),
        wrong=nw.DiscreteLaplace(scale=0.2),
    ),
    Case(
        "within",
        nw.Within(low=2.0, high=5.5),
        5.0,
        whole(4, 5),
        attains=lambda released: np.where(released == 1, 5.5, 1.5),
        points=np.arange(2),
        wrong=nw.Within(high=4.5),
    ),
]


# Worst neighbours of every budget -------------------------------------------------------------------------------------


def audits(audit):
    """Tell `audit` of every budget: name, mechanism, pairs of laws."""
    for epsilon in (0.05, 0.7, 5.0):
        mechanism = nw.Laplace(epsilon=epsilon, sensitivity=2.0)
        reach = 40 * mechanism.scale
        audit(f"laplace-{epsilon}", mechanism, pair_of(mechanism, 0.0, 2.0, edges=[-reach, 0.0, 2.0, 2.0 + reach]))
        for shift in (1, 3):
            mechanism = nw.DiscreteLaplace(epsilon=epsilon, sensitivity=float(shift))
            points = np.arange(-int(40 * mechanism.scale) - 9, int(40 * mechanism.scale) + 10)
            audit(f"discrete-laplace-{epsilon}-{shift}", mechanism, pair_of(mechanism, 0, shift, points=points))

    for number, budget in enumerate(
        [dict(epsilon=e, delta=d) for e in (0.05, 1.0, 6.0) for d in (1e-2, 1e-6, 1e-9)]
        + [dict(rho=r) for r in (1e-3, 0.3, 4.0)]
        + [dict(mu=m) for m in (0.05, 0.8, 4.0)]
    ):
        mechanism = nw.Gaussian(**budget, sensitivity=2.0)
        # Rényi divergences of high order live far out in the tail: at -order * shift
        reach = (12.0 + 110.0 * 2.0 / mechanism.scale) * mechanism.scale
        audit(f"gaussian-{number}", mechanism, pair_of(mechanism, 0.0, 2.0, edges=[-reach, 2.0 + reach], panels=1500))

    for rho, shift in ((0.5, 1), (0.05, 1), (0.05, 2), (0.005, 3)):
        mechanism = nw.DiscreteGaussian(rho=rho, sensitivity=float(shift))
        points = np.arange(-int(12 * mechanism.scale) - 101 * shift, int(12 * mechanism.scale) + 102 * shift)
        audit(f"discrete-gaussian-{rho}-{shift}", mechanism, pair_of(mechanism, 0, shift, points=points), slack=1e-3)

    mechanism = nw.Laplace(epsilon=0.7, sensitivity=2.0)
    audit("laplace-l1", mechanism, *cloud(mechanism, [0.6, 1.4], [-2.0, 0.0], [1.0, -1.0]))

    for budget in (dict(epsilon=1.0, delta=1e-3), dict(rho=0.3), dict(mu=0.8)):
        mechanism = nw.Gaussian(**budget, sensitivity=1.0)
        h = mechanism.scale
        ends = [-8 * h - 1, 8 * h + 1] if "rho" not in budget else [-22.0, 22.0]
        settings = dict(grid=plane(ends, ends, panels=20), orders=(1.01, 1.5, 2.0, 5.0, 10.0))
        pair = pair_of(mechanism, [0.0, 0.0], [0.6, 0.8], **settings)
        audit(f"gaussian-l2-{'-'.join(budget)}", mechanism, pair, slack=PLANE)
