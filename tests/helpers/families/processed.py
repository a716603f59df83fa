"""Post-processed releases, clamped values, projected noise, products; nests are tested further in `test_processed.py`.

Targets by enumeration of counts, or by closed forms for normal statistics.
"""

import numpy as np
import numpyro.distributions as dist
from mechanism_case import Case
from mutant import Mutant
from privacy_audit import Pair
from scipy import special, stats
from targets import Target, _log_discrete_laplace, _mixture, _moments, _normalise, count_model

import noisewise as nw
from noisewise.mechanisms.affine import Affine
from noisewise.mechanisms.clamped import Clamped
from noisewise.mechanisms.clipped import Clipped
from noisewise.mechanisms.product import Product
from noisewise.mechanisms.projected import Projected
from noisewise.mechanisms.rounded import Rounded
from noisewise.mechanisms.thresholded import Thresholded

MATRIX, TOTALS = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]]), np.array([3.5, 7.0])
VECTOR = np.array([1.5, -2.0, 4.0, 3.0])


def near(centre, spread):
    return lambda rng, size: np.append(centre + spread * rng.standard_cauchy(size - 2), [1e300, -1e300])


def whole(centre, spread):
    return lambda rng, size: np.append(centre + np.round(spread * rng.standard_normal(size - 2)), [1e15, -1e15])


def beyond(low, high, inside=lambda released: released):
    """Far out for a released value at an end; `inside` otherwise."""
    return lambda released: -1e4 if released <= low else 1e4 if released >= high else inside(released)


def on_the_set(rng, size):
    """Vectors that meet the totals, some far out."""
    null = np.linalg.svd(MATRIX)[2][2:]
    away = np.append(rng.standard_cauchy((size - 2, 2)), [[1e150, 0.0], [1e5, -1e150]], axis=0)
    return VECTOR + away @ null


def mixed_rows(rng, size):
    rows = [3.25, 4.0, 1.5] + [2.0, 0.0, 2.0] * rng.standard_cauchy((size, 3))
    rows[:, 1] += np.round(4 * rng.standard_normal(size))
    return rows


def three_parts(first, second, third):
    return Product(
        [nw.Laplace(scale=first), nw.DiscreteLaplace(scale=second), Clipped(nw.Gaussian(scale=third), 0.0, 4.0)]
    )


# Rounding half down, by way of the negative: only ties tell it from half up.
half_down = Affine(Rounded(Affine(nw.DiscreteLaplace(scale=3.0), factor=-1.0), 4.0), factor=-1.0)

CASES = [
    Case(
        "rounded",
        Rounded(nw.Laplace(epsilon=0.5, sensitivity=1.0), 1.5),
        3.25,
        near(3.0, 2.0),
        attains=lambda released: released,
        points=1.5 * np.arange(-40, 46),
        wrong=Rounded(nw.Laplace(scale=2.06), 1.5),
    ),
    Case(
        "rounded-integers-with-ties",
        Rounded(nw.DiscreteLaplace(scale=3.0), 4.0),
        3,
        whole(3, 5),
        attains=lambda released: released,
        points=4.0 * np.arange(-30, 31),
        wrong=half_down,
    ),
    Case(
        "rounded-clipped",
        Rounded(Clipped(nw.Laplace(scale=2.0), -1.0, 2.5), 1.0),
        0.3,
        near(0.0, 2.0),
        attains=beyond(-1.0, 3.0),
        points=np.arange(-1.0, 4.0),
        wrong=Rounded(Clipped(nw.Laplace(scale=2.0), -1.0, 2.4), 1.0),
    ),
    Case(
        "clipped",
        Clipped(nw.Laplace(scale=2.0), 0.0, 10.0),
        3.25,
        near(3.0, 2.0),
        attains=beyond(0.0, 10.0),
        pieces=((0.0, 3.25), (3.25, 10.0)),
        atoms=(0.0, 10.0),
        wrong=Clipped(nw.Laplace(scale=2.06), 0.0, 10.0),
    ),
    Case(
        "clipped-integers",
        Clipped(nw.DiscreteLaplace(scale=3.0), low=0.0),
        4,
        whole(4, 5),
        attains=beyond(0.0, np.inf),
        points=np.arange(0.0, 105.0),
        wrong=Clipped(nw.DiscreteLaplace(scale=3.0), low=-1.0),
    ),
    Case(
        "clipped-rounded",
        Clipped(Rounded(nw.Gaussian(scale=1.5), 1.0), -1.3, 2.0),
        0.3,
        near(0.0, 2.0),
        attains=beyond(-1.3, 2.0),
        points=np.array([-1.3, -1.0, 0.0, 1.0, 2.0]),
        wrong=Clipped(Rounded(nw.Gaussian(scale=1.5), 1.0), -1.0, 2.0),
    ),
    Case(
        "thresholded",
        Thresholded(nw.Gaussian(scale=1.5), 2.0),
        1.25,
        near(1.0, 2.0),
        attains=lambda released: -1e4 if np.isnan(released) else released,
        pieces=((2.0, 15.0),),
        atoms=(np.nan,),
        wrong=Thresholded(nw.Gaussian(scale=1.5), 2.05),
    ),
    Case(
        "thresholded-absent-when-zero",
        Thresholded(nw.DiscreteLaplace(scale=2.0), 4.0, absent_when_zero=True),
        3,
        whole(2, 3),
        attains=lambda released: 0 if np.isnan(released) else released,
        points=np.append(np.nan, np.arange(4.0, 70.0)),
        wrong=Thresholded(nw.DiscreteLaplace(scale=2.0), 5.0),
    ),
    Case(
        "thresholded-of-zero",
        Thresholded(nw.DiscreteLaplace(scale=2.0), 4.0, absent_when_zero=True),
        0,
        whole(2, 3),
        attains=lambda released: 0,
        points=np.append(np.nan, np.arange(4.0, 70.0)),
        wrong=Thresholded(nw.DiscreteLaplace(scale=2.0), 4.0),
    ),
    Case(
        "affine",
        Affine(nw.Laplace(scale=2.0), 1.0, -0.5),
        3.25,
        near(3.0, 2.0),
        attains=lambda released: (released - 1.0) / -0.5,
        pieces=((-31.0, -0.625), (-0.625, 29.0)),
        wrong=Affine(nw.Laplace(scale=2.0), 1.0, -0.515),
    ),
    Case(
        "affine-integers",
        Affine(nw.DiscreteGaussian(scale=2.5), 0.3, -0.1),
        -3,
        whole(-3, 4),
        attains=lambda released: np.round((released - 0.3) / -0.1),
        points=0.3 + -0.1 * np.arange(-30, 25),
        wrong=Affine(nw.DiscreteGaussian(scale=2.56), 0.3, -0.1),
    ),
    Case(
        "affine-clipped",
        Affine(Clipped(nw.Laplace(scale=2.0), 0.0, 10.0), 1.0, 2.0),
        3.25,
        near(3.0, 2.0),
        attains=beyond(1.0, 21.0, lambda released: (released - 1.0) / 2.0),
        pieces=((1.0, 7.5), (7.5, 21.0)),
        atoms=(1.0, 21.0),
        wrong=Affine(Clipped(nw.Laplace(scale=2.06), 0.0, 10.0), 1.0, 2.0),
    ),
    Case(
        "clamped",
        Clamped(nw.Laplace(epsilon=0.2, sensitivity=10.0), 0.0, 10.0),
        13.0,
        near(3.0, 20.0),
        attains=lambda released: np.clip(released, 0.0, 10.0),
        pieces=((-1400.0, 10.0), (10.0, 1420.0)),
        wrong=Clamped(nw.Laplace(scale=50.0), 0.0, 11.5),
    ),
    Case(
        "clamped-inside",
        Clamped(nw.Gaussian(scale=1.5), -1.0, 10.0),
        3.25,
        near(3.0, 2.0),
        attains=lambda released: np.clip(released, -1.0, 10.0),
        pieces=((-12.0, 3.25), (3.25, 18.5)),
        wrong=Clamped(nw.Gaussian(scale=1.5), -1.0, 3.2),
    ),
    Case(
        "clamped-integers",
        Clamped(nw.DiscreteLaplace(scale=3.0), 0, 4),
        9,
        whole(4, 5),
        attains=lambda released: np.clip(released, 0, 4),
        points=np.arange(-96, 105),
        wrong=Clamped(nw.DiscreteLaplace(scale=3.0), 0, 5),
    ),
    Case(
        "clamped-rounded",
        Clamped(Rounded(nw.Laplace(scale=2.0), 1.5), 0.0, 5.0),
        -7.0,
        near(3.0, 4.0),
        points=1.5 * np.arange(-40, 41),
        wrong=Clamped(Rounded(nw.Laplace(scale=2.0), 1.5), -0.1, 5.0),
    ),
    Case(
        "projected",
        Projected(2.0, MATRIX, TOTALS),
        VECTOR,
        on_the_set,
        attains=lambda released: released,
        nearby=Projected(1.0, MATRIX, TOTALS),
        wrong=Projected(2.06, MATRIX, TOTALS),
    ),
    Case(
        "product",
        three_parts(2.0, 3.0, 1.5),
        np.array([3.25, 4.0, 1.5]),
        mixed_rows,
        attains=lambda released: np.append(released[:2], beyond(0.0, 4.0)(released[2])),
        nearby=three_parts(1.2, 2.0, 1.0),
        wrong=three_parts(2.1, 3.0, 1.5),
    ),
]


# End to end: problems with their exact answers ----------------------------------------------------------------------

COUNT = np.arange(301)


def count(name, mechanism, released, log_noise, alpha=25.0):
    """theta ~ Gamma(alpha, 1), a Poisson count, a release; `log_noise` is log P(release | count), by hand."""

    def solve():
        with np.errstate(divide="ignore"):
            log_joint = stats.nbinom.logpmf(COUNT, alpha, 0.5) + log_noise(COUNT)
        return _mixture(log_joint, COUNT, (alpha + COUNT) / 2.0, (alpha + COUNT) / 4.0, "theta", "count")

    return Target(name, lambda: (count_model(alpha), nw.Release(count=mechanism.released(released))), solve)


def laplace_between(low, high, scale):
    return lambda s: np.log(stats.laplace.cdf(high, s, scale) - stats.laplace.cdf(low, s, scale))


def discrete_sum(values, scale):
    """log P(s + z among `values`), z discrete Laplace."""
    return lambda s: special.logsumexp(_log_discrete_laplace(np.asarray(values)[:, None] - s, scale), axis=0)


def absent(s):
    """Withheld below 4, and for certain where the count is 0."""
    return np.where(s == 0, 0.0, discrete_sum(np.arange(-200, 4), 2.0)(s))


# A normal statistic: mu ~ N(0, 1), s ~ N(mu, 1), noise z ~ N(0, 1); x = s + z has variance 3 -------------------------


def _normal_problem(mechanism, released):
    model = nw.Model(prior={"mu": dist.Normal(0.0, 1.0)}, statistics={"s": lambda mu: dist.Normal(mu, 1.0)})
    return model, nw.Release(s=mechanism.released(released))


def _normal_solution(low, high):
    """Given low <= x < high: mu and s regress on x with slopes 1/3 and 2/3."""
    root = np.sqrt(3.0)
    cut = stats.truncnorm(low / root, high / root, scale=root)
    found = {}
    for name, slope, variance in (("mu", 1 / 3, 1.0), ("s", 2 / 3, 2.0)):
        found[name] = (slope * cut.mean(), variance - 3 * slope**2 + slope**2 * cut.var())
    mass = stats.norm.cdf(high, 0, root) - stats.norm.cdf(low, 0, root)
    return found | {"log_evidence": float(np.log(mass))}


def _normal_by_quadrature(log_noise):
    """s is normal with variance 2 before the release, on a fine grid; mu regresses on s with slope 1/2."""
    s = np.linspace(-15.0, 15.0, 600_001)
    weight, log_sum = _normalise(stats.norm.logpdf(s, 0.0, np.sqrt(2.0)) + log_noise(s))
    mean = np.sum(weight * s)
    variance = np.sum(weight * (s - mean) ** 2)
    found = {"mu": (0.5 * mean, 0.5 + 0.25 * variance), "s": (mean, variance)}
    return found | {"log_evidence": float(log_sum + np.log(s[1] - s[0]))}


# A table with a known total -------------------------------------------------------------------------------------------

ALPHA = np.array([1.0, 2.0, 3.0])
CELLS = np.array([(i, j, 15 - i - j) for i in range(16) for j in range(16 - i)])


def _table_model():
    return nw.Model(
        prior={"share": dist.Dirichlet(ALPHA)}, statistics={"cells": lambda share: dist.Multinomial(15, share)}
    )


def _table_solution(log_noise):
    weight, log_evidence = _normalise(stats.dirichlet_multinomial.logpmf(CELLS, ALPHA, 15) + log_noise(CELLS))
    shape = ALPHA + CELLS
    total = shape.sum(axis=1, keepdims=True)
    variance = shape * (total - shape) / (total**2 * (total + 1))
    found = _moments(weight, {"share": (shape / total, variance), "cells": (CELLS, 0 * CELLS)})
    return found | {"log_evidence": log_evidence}


def _projected_problem():
    # The second row says the same as the first: it is dropped.
    mechanism = Projected(1.5, [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]], [15.0, 30.0])
    return _table_model(), nw.Release(cells=mechanism.released([7.75, 1.5, 5.75]))


def _projected_noise(cells):
    """Two coordinates on an orthonormal basis of the plane, each with normal noise."""
    basis = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
    return stats.norm.logpdf(np.array([7.75, 1.5, 5.75]) @ basis.T, cells @ basis.T, 1.5).sum(axis=1)


def _product_problem():
    parts = [nw.Laplace(scale=1.0), Thresholded(nw.DiscreteLaplace(scale=2.0), 3), Rounded(nw.Gaussian(scale=1.5), 2.0)]
    return _table_model(), nw.Release(cells=Product(parts).released([7.25, "suppressed", 6.0]))


def _product_noise(cells):
    first, second, third = cells.T
    edges = stats.norm.cdf([[7.0], [5.0]], third, 1.5)
    return (
        stats.laplace.logpdf(7.25, first, 1.0)
        + discrete_sum(np.arange(-200, 3), 2.0)(second)
        + np.log(edges[0] - edges[1])
    )


LAPLACE, DISCRETE = nw.Laplace(scale=5.0), nw.DiscreteLaplace(scale=2.0)

TARGETS = [
    count("rounded", Rounded(LAPLACE, 10.0), 40.0, laplace_between(35.0, 45.0, 5.0)),
    count("rounded-integers", Rounded(DISCRETE, 4.0), 28, discrete_sum([26, 27, 28, 29], 2.0)),
    count("clipped-at-an-end", Clipped(LAPLACE, 0.0, 30.0), 30.0, laplace_between(30.0, np.inf, 5.0)),
    count("clipped-inside", Clipped(LAPLACE, 0.0, 30.0), 27.5, lambda s: stats.laplace.logpdf(27.5, s, 5.0)),
    count("suppressed", Thresholded(LAPLACE, 22.0), "suppressed", laplace_between(-np.inf, 22.0, 5.0)),
    count("suppressed-or-absent", Thresholded(DISCRETE, 4, absent_when_zero=True), "suppressed", absent, alpha=2.0),
    count(
        "affine-of-clipped-of-rounded",  # 50 - 2 x at 10: x is 20 or clipped to it, from 17.5 or more before rounding
        Affine(Clipped(Rounded(LAPLACE, 5.0), 0.0, 20.0), 50.0, -2.0),
        10.0,
        laplace_between(17.5, np.inf, 5.0),
    ),
    count("affine", Affine(LAPLACE, 1.0, -0.5), -13.0, lambda s: stats.laplace.logpdf(28.0, s, 5.0) + np.log(2.0)),
    count("clamped", Clamped(LAPLACE, 0.0, 30.0), 33.5, lambda s: stats.laplace.logpdf(33.5, np.minimum(s, 30), 5.0)),
    count(
        "clamped-integers", Clamped(DISCRETE, 22, 26), 25, lambda s: _log_discrete_laplace(25 - np.clip(s, 22, 26), 2.0)
    ),
    Target(
        "normal-clamped",
        lambda: _normal_problem(Clamped(nw.Laplace(scale=0.5), -1.0, 0.75), 1.2),
        lambda: _normal_by_quadrature(lambda s: stats.laplace.logpdf(1.2, np.clip(s, -1.0, 0.75), 0.5)),
    ),
    Target(
        "normal-suppressed",
        lambda: _normal_problem(Thresholded(nw.Gaussian(scale=1.0), 0.75), "suppressed"),
        lambda: _normal_solution(-np.inf, 0.75),
    ),
    Target(
        "normal-rounded-of-affine",  # r = 1: 0.5 <= 0.25 - x < 1.5
        lambda: _normal_problem(Rounded(Affine(nw.Gaussian(scale=1.0), 0.25, -1.0), 1.0), 1.0),
        lambda: _normal_solution(-1.25, -0.25),
    ),
    Target("projected", _projected_problem, lambda: _table_solution(_projected_noise)),
    Target("product", _product_problem, lambda: _table_solution(_product_noise)),
]


# Worst neighbours of every budget -------------------------------------------------------------------------------------


def audits(audit):
    """Tell `audit` of every budget: name, mechanism, pairs of laws."""
    for budget in (dict(epsilon=1.0, delta=1e-3), dict(rho=0.3), dict(mu=0.8)):
        # neighbours that agree on the total: the law lives on a line
        mechanism = Projected(matrix=[[1.0, 1.0]], totals=[3.0], **budget, sensitivity=1.0)
        direction, middle = np.array([1.0, -1.0]) / np.sqrt(2.0), np.array([1.0, 2.0])

        def on_line(s, mechanism=mechanism, direction=direction, middle=middle):
            return lambda t: mechanism.log_prob(middle + t[:, None] * direction, s)

        edges = [-130.0, 130.0]
        pair = Pair(on_line(middle), on_line(middle + direction), edges=edges, panels=1500)
        audit(f"projected-{'-'.join(budget)}", mechanism, pair)


# Mistakes that the tests must catch -----------------------------------------------------------------------------------

CATALOGUE = "mechanisms/test_catalogue.py"
PROCESSED = "mechanisms/test_processed.py"

MUTANTS = {
    "scaling a release leaves its density as it was": Mutant(
        "mechanisms/affine.py",
        "return xp.where(self.inner.atomic(inside), 0.0, xp.log(xp.abs(self.factor)))",
        "return xp.where(self.inner.atomic(inside), 0.0, 0.0 * xp.abs(self.factor))",
        f"{PROCESSED}::test_affine_scales_densities_and_leaves_probabilities",
    ),
    "the atom at the upper end of clipping leaves out the end itself": Mutant(
        "mechanisms/clipped.py",
        "between((self.high, False), (xp.inf, False))",
        "between((self.high, True), (xp.inf, False))",
        f"{PROCESSED}::test_nests_on_the_integers_match_enumeration",
    ),
    "values are clamped from one side": Mutant(
        "mechanisms/clamped.py",
        "clamped = xp.clip(confidential, self.low, self.high)",
        "clamped = xp.maximum(confidential, self.low)",
        "mechanisms/test_clamped.py::test_values_beyond_a_bound_are_alike",
    ),
    "a cell of rounding is one step to one side": Mutant(
        "mechanisms/rounded.py",
        "return ((index - 0.5) * self.step, False), ((index + 0.5) * self.step, False)",
        "return (index * self.step, False), ((index + 1.0) * self.step, False)",
        f"{PROCESSED}::test_nests_on_the_integers_match_enumeration",
    ),
    "a withheld value says that the noisy one was at most the threshold": Mutant(
        "mechanisms/thresholded.py",
        "log_below = self.inner.log_between((-xp.inf, False), (self.threshold, False), confidential, inputs)",
        "log_below = self.inner.log_between((-xp.inf, False), (self.threshold, True), confidential, inputs)",
        f"{PROCESSED}::test_nests_on_the_integers_match_enumeration",
    ),
    "an interval of processed values is not mapped back": Mutant(
        "mechanisms/processed.py",
        "return self.inner.log_between(*self.preimage(start, stop), confidential, inputs)",
        "return self.inner.log_between(start, stop, confidential, inputs)",
        f"{PROCESSED}::test_nests_on_the_integers_match_enumeration",
    ),
    "every part of a product gets the noise of the first entry": Mutant(
        "mechanisms/product.py",
        "lambda part, index, own: part.sample(rng, confidential[..., index], **own), inputs), -1",
        "lambda part, index, own: part.sample(rng, confidential[..., 0], **own), inputs), -1",
        f"{PROCESSED}::test_product_draws_entries_independently {CATALOGUE}::test_sampler_follows_the_density",
    ),
    "the budget of a product is that of its last part": Mutant(
        "mechanisms/product.py",
        "total += guarantee.epsilon",
        "total = guarantee.epsilon",
        f"{PROCESSED}::test_the_budget_of_a_product_is_the_sum_of_its_parts",
    ),
    "projected noise is as high as noise in all dimensions": Mutant(
        "mechanisms/projected.py",
        "return -self.dimension * (0.5 * math.log(2.0 * math.pi) + xp.log(self.scale))",
        "return -np.shape(self.matrix)[1] * (0.5 * math.log(2.0 * math.pi) + xp.log(self.scale))",
        f"{PROCESSED}::test_projected_is_the_projection_of_gaussian_noise",
    ),
}
