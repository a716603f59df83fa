"""What it means for Monte Carlo output to agree with the truth, at a stated false-alarm rate.

Every check raises an alarm on correct code with probability FALSE_ALARM. The suite holds well under a thousand
such checks, so a correct library fails it with probability below one in a thousand.
"""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-6
LIMIT = float(stats.norm.isf(FALSE_ALARM / 2))
"""|z| beyond this is an alarm: about 4.9."""


def z_of_mean(values, truth, truth_error=0.0):
    """z-scores of the mean over the first axis of independent `values` against `truth`."""
    values = np.asarray(values, dtype=float)
    error = np.hypot(values.std(axis=0, ddof=1) / np.sqrt(len(values)), truth_error)
    return (values.mean(axis=0) - truth) / error


def agrees(values, truth, truth_error=0.0):
    """Whether the mean of independent values is within Monte Carlo error of the truth."""
    return bool(np.all(np.abs(z_of_mean(values, truth, truth_error)) < LIMIT))


def quantile_agrees(values, level, truth):
    """Whether the share of independent values at or below `truth` is `level`, within Monte Carlo error."""
    return agrees(np.asarray(values) <= truth, level)


def variance_agrees(values, truth):
    """Whether the mean squared deviation of independent values is `truth`, within Monte Carlo error."""
    values = np.asarray(values, dtype=float)
    return agrees((values - values.mean(axis=0)) ** 2, truth)


def errors_agree(z, slack=0.0):
    """Whether estimates scatter as their errors say: `z`, (estimate - truth) / error, has a mean square of 1.

    By the law of a sum of squares, in both tails; `agrees(z**2, 1.0)` is no such check, since the spread of scores that
    are all too large excuses them. `slack`: the share by which the errors may be off, being approximate themselves.
    """
    z = np.asarray(z, dtype=float)
    low, high = stats.chi2(len(z)).ppf([FALSE_ALARM / 2, 1.0 - FALSE_ALARM / 2])
    squares = np.sum(z**2, axis=0)
    return bool(np.all((low * (1.0 - slack) ** 2 < squares) & (squares < high * (1.0 + slack) ** 2)))


def counts_agree(observed, probabilities):
    """Pearson's test of observed counts against probabilities; cells expected below 10 are pooled."""
    observed, probabilities = np.asarray(observed, dtype=float), np.asarray(probabilities, dtype=float)
    total = observed.sum()
    expected = probabilities * total
    small = expected < 10
    rest = max(1.0 - probabilities[~small].sum(), 0.0) * total
    observed = np.append(observed[~small], observed[small].sum())
    expected = np.append(expected[~small], rest)
    if expected[-1] < 10:  # too rare to test by a Gaussian limit: an exact tail probability
        tail = stats.poisson.sf(observed[-1] - 1, max(expected[-1], 1e-12))
        if observed[-1] > 0 and tail < FALSE_ALARM:
            return False
        observed, expected = observed[:-1], expected[:-1]
    statistic = np.sum((observed - expected) ** 2 / expected)
    return bool(stats.chi2.sf(statistic, max(len(expected) - 1, 1)) > FALSE_ALARM)


def z_scores(posterior, name, truth, variance):
    """z of mean and of variance, for plain or weighted draws (delta method)."""
    values = posterior[name].astype(float)
    weight = np.full(len(values), 1 / len(values)) if posterior.weights is None else posterior.weights

    def z(terms):
        return np.tensordot(weight, terms, axes=1) / np.sqrt(np.tensordot(weight**2, terms**2, axes=1))

    return z(values - truth), z((values - truth) ** 2 - variance)
