"""Posteriors given a private selection, by enumeration of the confidential scores or records."""

from functools import cache
from itertools import pairwise, permutations, product

import numpy as np
import numpyro.distributions as dist
from cases_response import tables
from scipy import integrate, stats
from targets import Target, _beta_variance, _moments, _normalise
from targets_response import _dirichlet

import noisewise as nw
from noisewise.mechanisms.exponential import ExponentialMechanism
from noisewise.mechanisms.noisy_max import PermuteAndFlip, ReportNoisyMax
from noisewise.mechanisms.quantile import PrivateQuantile
from noisewise.mechanisms.top_selection import TopSelection

ALPHA, N, SCALE = (1.0, 2.0, 1.5), 8, 1.5


# Selection probabilities by routes of their own ----------------------------------------------------------------------


def by_softmax(scores, index):
    weight = np.exp((scores - scores.max()) / SCALE)
    return weight[index] / weight.sum()


def by_integral(noise):
    """P(the index has the largest score plus noise), by adaptive quadrature between the kinks."""

    def probability(scores, index):
        place = np.asarray(scores) / SCALE

        def integrand(x):
            others = np.delete(place, index)
            return noise.pdf(x - place[index]) * np.prod(noise.cdf(x - others))

        cuts = np.unique([place.min() - 40, *place, place.max() + 40])
        pieces = pairwise(cuts)
        return sum(integrate.quad(integrand, *piece, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for piece in pieces)

    return probability


def by_orders(scores, index):
    """Permute-and-flip, written out: every order of the candidates, every stop."""
    accept = np.exp((scores - scores.max()) / SCALE)
    orders = list(permutations(range(len(scores))))
    total = 0.0
    for order in orders:
        before = order[: order.index(index)]
        total += np.prod([1 - accept[other] for other in before]) * accept[index]
    return total / len(orders)


def two_rounds(single):
    def probability(scores, pair):
        rest = np.delete(scores, pair[0])
        second = pair[1] - (pair[1] > pair[0])
        return single(scores, pair[0]) * single(rest, second)

    return probability


def _problem(mechanism, released):
    model = nw.Model(
        prior={"share": dist.Dirichlet(np.array(ALPHA))},
        statistics={"votes": lambda share: dist.Multinomial(N, share)},
    )
    return model, nw.Release(votes=mechanism.released(released))


def _solution(probability, released):
    cells = tables(N, 3)
    chance = np.array([probability(row.astype(float), released) for row in cells])
    log_joint = stats.dirichlet_multinomial.logpmf(cells, np.array(ALPHA), N) + np.log(chance)
    return _dirichlet(ALPHA, cells, log_joint, "votes")


def selecting(name, mechanism, probability, released=0):
    solve = cache(lambda: _solution(probability, released))
    return Target(name, lambda: _problem(mechanism, released), solve, draws=20_000)


# Quantile ------------------------------------------------------------------------------------------------------------

QUANTILE = PrivateQuantile(0.75, -1.0, 6.0, 3, scale=1.5)
POINT = 2.6


def _quantile_problem():
    model = nw.Model(prior={"p": dist.Beta(2.0, 3.0)}, statistics={"scores": lambda p: dist.Binomial(4, p).expand([3])})
    return model, nw.Release(scores=QUANTILE.released(POINT))


def _quantile_solution():
    rows = np.array(list(product(range(5), repeat=3)))
    yes = rows.sum(axis=1)
    # prod Binomial(4, x) integrated over Beta(2, 3) is a beta-binomial of the sum, shared out by binomial coefficients
    log_joint = stats.betabinom.logpmf(yes, 12, 2.0, 3.0) - stats.binom.logpmf(yes, 12, 0.5)
    log_joint = log_joint + stats.binom.logpmf(rows, 4, 0.5).sum(axis=1)
    density = []
    for row in rows:
        weigh = lambda point, row=row: np.exp(-abs((row < point).sum() - 2.25) / 1.5)  # noqa: E731
        cuts = np.unique([-1, *row, 6])
        total = sum((high - low) * weigh((low + high) / 2) for low, high in pairwise(cuts))
        density.append(weigh(POINT) / total)
    weight, log_evidence = _normalise(log_joint + np.log(density))
    mean, variance = (2.0 + yes) / 17.0, _beta_variance(2.0 + yes, 15.0 - yes)
    found = _moments(weight, {"p": (mean, variance), "scores": (rows, 0 * rows)})
    return found | {"log_evidence": log_evidence}


TARGETS = [
    selecting("exponential-mechanism", ExponentialMechanism(scale=SCALE), by_softmax),
    selecting("noisy-max-laplace", ReportNoisyMax(scale=SCALE), by_integral(stats.laplace)),
    selecting("noisy-max-gumbel", ReportNoisyMax(scale=SCALE, noise="gumbel"), by_integral(stats.gumbel_r), 2),
    selecting("noisy-max-exponential", ReportNoisyMax(scale=SCALE, noise="exponential"), by_integral(stats.expon)),
    selecting("permute-and-flip", PermuteAndFlip(scale=SCALE), by_orders),
    selecting("top-selection", TopSelection(PermuteAndFlip(scale=SCALE), top=2), two_rounds(by_orders), (2, 0)),
    Target("private-quantile", _quantile_problem, _quantile_solution, draws=20_000),
]
