"""Private selection: exponential mechanism, noisy max, permute-and-flip, top lists, quantiles.

Targets by enumeration of the confidential scores or records.
"""

from functools import cache
from itertools import pairwise, permutations, product

import numpy as np
import numpyro.distributions as dist
from mechanism_case import Case
from mutant import Mutant
from privacy_audit import Pair, pair_of
from scipy import special, stats
from targets import Target, _beta_variance, _moments, _normalise

import noisewise as nw
from families.response import _dirichlet, tables
from noisewise.mechanisms.exponential import ExponentialMechanism
from noisewise.mechanisms.noisy_max import PermuteAndFlip, ReportNoisyMax
from noisewise.mechanisms.quantile import PrivateQuantile
from noisewise.mechanisms.top_selection import TopSelection

SCORES = np.array([0.0, 1.5, -2.0, 1.0])


def scattered(rng, size):
    """Scores near and far apart, equal ones, and one that rules a candidate out."""
    rows = rng.standard_normal((size, 4)) * np.exp(rng.uniform(-5, 8, (size, 1)))
    rows[0], rows[1], rows[2] = 0.0, [1e300, 0.0, 0.0, -1e300], [0.0, -np.inf, 1.0, 1.0]
    return rows


def raised(released):
    return np.where(np.arange(4) == released, 0.0, -50.0)


def selecting(name, make, scale=1.5, off=1.53):
    return Case(
        name, make(scale), SCORES, scattered, attains=raised, points=np.arange(4), wrong=make(off), draws=400_000
    )


def spread(released):
    return np.select([np.arange(4) == released[0], np.arange(4) == released[1]], [0.0, -50.0], -100.0)


RECORDS = np.array([2.5, -3.0, 0.5, 0.5, 4.0])
EDGES = (-1.0, 0.5, 2.5, 3.0)  # after clamping to [-1, 3]


def squeezed(released):
    """One record just below the release, four just above: the rank next to 0.3 * 5."""
    return np.array([np.nextafter(released, -np.inf), *[np.nextafter(released, np.inf)] * 4])


CASES = [
    selecting("exponential-mechanism", lambda scale: ExponentialMechanism(scale=scale)),
    selecting("noisy-max-laplace", lambda scale: ReportNoisyMax(scale=scale)),
    selecting("noisy-max-gumbel", lambda scale: ReportNoisyMax(scale=scale, noise="gumbel")),
    selecting("noisy-max-exponential", lambda scale: ReportNoisyMax(scale=scale, noise="exponential")),
    selecting("permute-and-flip", lambda scale: PermuteAndFlip(scale=scale)),
    Case(
        "top-selection",
        TopSelection(PermuteAndFlip(epsilon=1.5, sensitivity=1.0), top=2),
        SCORES,
        scattered,
        attains=spread,
        points=np.array(list(permutations(range(4), 2))),
        wrong=TopSelection(PermuteAndFlip(epsilon=1.55, sensitivity=1.0), top=2),
    ),
    Case(
        "private-quantile",
        PrivateQuantile(0.3, -1.0, 3.0, 5, scale=2.0),
        RECORDS,
        lambda rng, size: np.concatenate([rng.normal(1.0, 2.0, (size - 2, 5)), [[1e300] * 5], [[0.5] * 5]]),
        attains=squeezed,
        pieces=tuple(pairwise(EDGES)),
        wrong=PrivateQuantile(0.3, -1.0, 3.0, 5, scale=2.3),
    ),
]


# End to end: problems with their exact answers ----------------------------------------------------------------------

ALPHA, N, SCALE = (1.0, 2.0, 1.5), 8, 1.5


# Selection probabilities by routes of their own ----------------------------------------------------------------------


def by_softmax(scores, index):
    weight = np.exp((scores - scores.max()) / SCALE)
    return weight[index] / weight.sum()


def by_integral(noise):
    """P(the index has the largest score plus noise), by Gauss-Legendre panels between the kinks."""
    node, weight = special.roots_legendre(24)

    def probability(scores, index):
        place = np.asarray(scores) / SCALE
        edges = np.unique([*np.arange(place.min() - 40, place.max() + 41, 2.0), *place])
        half = np.diff(edges)[:, None] / 2
        x = edges[:-1, None] + half * (1 + node)
        others = np.delete(place, index)[:, None, None]
        return np.sum(half * weight * noise.pdf(x - place[index]) * np.prod(noise.cdf(x - others), axis=0))

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


def _selected(name, mechanism, probability, released=0):
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
    _selected("exponential-mechanism", ExponentialMechanism(scale=SCALE), by_softmax),
    _selected("noisy-max-laplace", ReportNoisyMax(scale=SCALE), by_integral(stats.laplace)),
    _selected("noisy-max-gumbel", ReportNoisyMax(scale=SCALE, noise="gumbel"), by_integral(stats.gumbel_r), 2),
    _selected("noisy-max-exponential", ReportNoisyMax(scale=SCALE, noise="exponential"), by_integral(stats.expon)),
    _selected("permute-and-flip", PermuteAndFlip(scale=SCALE), by_orders),
    _selected("top-selection", TopSelection(PermuteAndFlip(scale=SCALE), top=2), two_rounds(by_orders), (2, 0)),
    Target("private-quantile", _quantile_problem, _quantile_solution, draws=20_000),
]


# Worst neighbours of every budget -------------------------------------------------------------------------------------

AUDITED = [np.array(scores) for scores in ([0.0, 0.0, 0.0], [5.0, 1.0, 0.0], [0.0, 40.0, 39.0], [80.0, 0.0, 79.0])]
MOVES = [np.array(move) for move in product((-1.0, 0.0, 1.0), repeat=3)]


def selections(mechanism, monotone, outcomes=None):
    """All moves of three scores by the sensitivity, or only the upward ones."""
    outcomes = np.arange(3) if outcomes is None else outcomes
    moves = [move for move in MOVES if not monotone or move.min() >= 0]
    return [pair_of(mechanism, scores, scores + move, points=outcomes) for scores, move in product(AUDITED, moves)]


def audits(audit):
    """Tell `audit` of every budget: name, mechanism, pairs of laws."""
    for epsilon, monotone in product((0.1, 1.0, 4.0), (False, True)):
        budget = dict(epsilon=epsilon, sensitivity=1.0, monotone=monotone)
        label = f"{epsilon}{'-monotone' if monotone else ''}"
        for kind in (
            ExponentialMechanism(**budget),
            PermuteAndFlip(**budget),
            *(ReportNoisyMax(noise=noise, **budget) for noise in ("laplace", "gumbel", "exponential")),
        ):
            name = type(kind).__name__ + getattr(kind, "noise", "")
            audit(f"{name}-{label}", kind, *selections(kind, monotone), slack=0.02)
        mechanism = TopSelection(ExponentialMechanism(**budget), top=2)
        orders = np.array([(i, j) for i in range(3) for j in range(3) if i != j])
        audit(f"top-two-{label}", mechanism, *selections(mechanism, monotone, orders), tight=False)

    for epsilon, quantile in product((0.1, 1.0, 4.0), (0.0, 0.3, 0.5)):
        mechanism = PrivateQuantile(quantile, 0.0, 10.0, 4, epsilon=epsilon)
        pairs = []
        for records in ([5.0, 5.0, 5.0, 5.0], [1.0, 2.0, 8.0, 9.0], [0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 0.0, 0.0]):
            for new in (0.0, 5.0, 10.0):
                other = [*records[:-1], new]
                pairs.append(pair_of(mechanism, records, other, points=np.linspace(0.0, 10.0, 201)[1:-1]))
                pairs.append(pair_of(mechanism, records, [new, *records[1:]], points=np.linspace(0.0, 10.0, 201)[1:-1]))
        audit(f"private-quantile-{epsilon}-{quantile}", mechanism, *pairs, tight=False)

    for epsilon, quantile in product((0.1, 1.0, 4.0), (0.0, 0.3, 0.5)):  # one record more: the laws for n and for n + 1
        change = max(quantile, 1.0 - quantile)
        less, more = (PrivateQuantile(quantile, 0.0, 10.0, n, epsilon=epsilon, sensitivity=change) for n in (4, 5))
        inside, pairs = np.linspace(0.0, 10.0, 201)[1:-1], []
        for records in ([5.0, 5.0, 5.0, 5.0], [1.0, 2.0, 8.0, 9.0], [0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 0.0, 0.0]):
            for new in (0.0, 5.0, 10.0):
                one, other = pair_of(less, records, records), pair_of(more, [*records, new], [*records, new])
                pairs.append(Pair(one.log_p, other.log_p, points=inside))
        audit(f"private-quantile-added-{epsilon}-{quantile}", less, *pairs, tight=False)


# Mistakes that the tests must catch -----------------------------------------------------------------------------------

CATALOGUE = "mechanisms/test_catalogue.py"
CHOICES = "mechanisms/test_selection.py"

MUTANTS = {
    "the exponential mechanism weighs scores by half": Mutant(
        "mechanisms/exponential.py",
        "return xp.sum(xp.where(own, gaps, 0.0), axis=-1) - log_sum(xp, gaps, axis=-1)",
        "return 0.5 * xp.sum(xp.where(own, gaps, 0.0), axis=-1) - log_sum(xp, 0.5 * gaps, axis=-1)",
        f"{CATALOGUE}::test_sampler_follows_the_density",
    ),
    "selections of monotone scores are calibrated as the others": Mutant(
        "mechanisms/selection.py",
        "factor = 1.0 if monotone else 2.0",
        "factor = 1.0",
        f"{CHOICES}::test_budgets_hold_and_are_nearly_attained",
    ),
    "the noisy maximum forgets candidates that lie far below": Mutant(
        "mechanisms/noisy_max.py",
        "share = xp.where(is_below, 0.5 * xp.exp(-behind), 0.0)",
        "share = xp.where(is_below & (behind < 1.0), 0.5 * xp.exp(-behind), 0.0)",
        f"{CHOICES}::test_probabilities_sum_to_one {CHOICES}::test_laplace_against_quadrature",
    ),
    "permute and flip accepts every candidate that it meets": Mutant(
        "mechanisms/noisy_max.py",
        "return np.argmin(np.where(coin < np.exp(gaps), time, 2.0), axis=-1)",
        "return np.argmin(np.where(coin < np.exp(0.5 * gaps), time, 2.0), axis=-1)",
        f"{CATALOGUE}::test_sampler_follows_the_density",
    ),
    "several selections spend the budget of one": Mutant(
        "mechanisms/top_selection.py",
        "guarantee = replace(round_guarantee, epsilon=top * round_guarantee.epsilon)",
        "guarantee = round_guarantee",
        f"{CHOICES}::test_top_list_spends_the_budget_once_per_round",
    ),
    "a candidate that was selected may be selected again": Mutant(
        "mechanisms/top_selection.py",
        "scores = _without(np, scores, chosen[-1])",
        "scores = scores + 0.0",
        f"{CATALOGUE}::test_sampler_follows_the_density",
    ),
    "the private quantile counts records up to its own place": Mutant(
        "mechanisms/quantile.py",
        "rank = xp.sum(edges[..., 1:-1] < released[..., None], axis=-1)",
        "rank = xp.sum(edges[..., 1:-1] < released[..., None], axis=-1) + 1",
        f"{CHOICES}::test_quantile_density_by_hand",
    ),
    "a private quantile has half the noise it needs": Mutant(
        "mechanisms/quantile.py",
        "scale = 2.0 * change / epsilon",
        "scale = change / epsilon",
        f"{CHOICES}::test_quantile_budgets_hold",
    ),
}
