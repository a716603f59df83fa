"""The everyday mechanisms.

Their targets are in `targets.py`; scales and budgets are tested further in `test_mechanisms.py`.
"""

import numpy as np
from mechanism_case import Case
from mutant import Mutant
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


# Mistakes that the tests must catch -----------------------------------------------------------------------------------

LAWS = "mechanisms/test_mechanisms.py"

MUTANTS = {
    "Laplace noise has density exp(-|z|/scale)/scale": Mutant(
        "mechanisms/laplace.py",
        "return -xp.abs(z) / self.scale - xp.log(2.0 * self.scale)",
        "return -xp.abs(z) / self.scale - xp.log(self.scale)",
        f"{LAWS}::test_density_has_mass_one",
    ),
    "Laplace noise is drawn at half its scale": Mutant(
        "mechanisms/laplace.py",
        "return self.scale * rng.laplace(size=shape)",
        "return 0.5 * self.scale * rng.laplace(size=shape)",
        f"{LAWS}::test_sampler_follows_density",
    ),
    "Gaussian noise for rho has variance sensitivity / (2 rho)": Mutant(
        "mechanisms/gaussian.py",
        'return sensitivity / math.sqrt(2.0 * budget["rho"])',
        'return math.sqrt(sensitivity / (2.0 * budget["rho"]))',
        f"{LAWS}::test_rho_is_met",
    ),
    "the delta of Gaussian noise lacks its second term": Mutant(
        "mechanisms/gaussian.py",
        "second = epsilon + log_ndtr(-0.5 / scale - epsilon * scale)",
        "second = epsilon + log_ndtr(-5.0 / scale - epsilon * scale)",
        f"{LAWS}::test_gaussian_epsilon_delta_is_met_and_nearly_attained",
    ),
    "a geometric difference is drawn with its terms dependent": Mutant(
        "mechanisms/discrete_laplace.py",
        "return rng.geometric(success, shape) - rng.geometric(success, shape)",
        "return rng.geometric(success, shape) - rng.poisson(1.0 / success, shape)",
        f"{LAWS}::test_sampler_follows_density",
    ),
    "discrete Laplace noise is normalised as if continuous": Mutant(
        "mechanisms/discrete_laplace.py",
        "return xp.log(-xp.expm1(decay)) - xp.log1p(xp.exp(decay)) - xp.abs(z) / self.scale",
        "return -xp.log(2.0 * self.scale) - xp.abs(z) / self.scale",
        f"{LAWS}::test_density_has_mass_one",
    ),
    "discrete Gaussian noise is normalised as if continuous": Mutant(
        "mechanisms/discrete_gaussian.py",
        "return xp.where(scale < 0.5, direct, xp.log(scale) + 0.5 * math.log(2.0 * math.pi) + dual)",
        "return xp.log(scale) + 0.5 * math.log(2.0 * math.pi) + 0.0 * (direct + dual)",
        f"{LAWS}::test_discrete_gaussian_normaliser",
    ),
    "discrete Gaussian noise is accepted without the shift of its envelope": Mutant(
        "mechanisms/discrete_gaussian.py",
        "excess = (np.abs(proposal) - s * s / t) / s",
        "excess = np.abs(proposal) / s",
        f"{LAWS}::test_sampler_follows_density",
    ),
    "without noise, any value could have been released": Mutant(
        "mechanisms/exact.py",
        "return xp.where(released == xp.asarray(confidential), 0.0, -xp.inf)",
        "return xp.where(released == xp.asarray(confidential), 0.0, 0.0)",
        f"{LAWS}::test_exact_elsewhere_is_minus_infinity",
    ),
    "a declared range leaves out its upper end": Mutant(
        "mechanisms/within.py",
        "held = held & (xp.asarray(confidential) <= self.high)",
        "held = held & (xp.asarray(confidential) < self.high)",
        "mechanisms/test_catalogue.py::test_supremum_is_attained_or_approached_as_claimed",
    ),
}
