"""Clouds by simulation: what they are worth, and how they are joined, halved and eased.

Derivations: docs/derivations/likelihood.md.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.special import logsumexp

from noisewise.likelihood.e_step.cloud import Cloud, Clouds, weighted
from noisewise.likelihood.e_step.released_law import Part

FEW = 100.0
"""With fewer effective values a sample does not know its own error: one value, say, shows no spread at all."""
SOME = 2**18
"""Numbers from which the information's slope is estimated: few, since only an error depends on it."""


def thin(clouds: Clouds) -> bool:
    """Whether some statistic has too few effective values, over all its entries, for its error to be known."""
    return any(np.sum(sizes) < FEW for sizes in clouds.sizes.values())


def smallest(clouds: Clouds) -> float:
    """The fewest effective values that an entry has; statistics known exactly do not count."""
    return min((float(sizes.min()) for sizes in clouds.sizes.values()), default=math.inf)


def is_even(new: Clouds, old: Clouds) -> bool:
    """Whether clouds that were moved have at least half of the effective size that they had."""
    before = old.sizes
    return all(sizes.min() >= 0.5 * before[name].min() for name, sizes in new.sizes.items())


def log_likelihood_error(clouds: Clouds) -> tuple[float, float]:
    """By how much the log of an average is too low on average, and its error, by the delta method to second order.

    Both are zero where all weights are equal.
    """
    first, second = 0.0, 0.0
    for cloud in clouds:
        variances = np.maximum(np.sum(cloud.weights**2, axis=0) - 1.0 / len(cloud.values), 0.0)
        first, second = first + float(np.sum(variances)), second + float(np.sum(variances**2))
    return 0.5 * first, math.hypot(math.sqrt(first), second)


def joined_clouds(first: Cloud, second: Cloud, size: int, more: int) -> Cloud:
    """Two clouds of one law as one: each weighs as much as its share of the simulations times its likelihood."""
    if len(first.values) == 1:
        return first
    if first.groups:
        size, more = len(first.values), len(second.values)
    logs = np.stack([math.log(size) + first.log_likelihoods, math.log(more) + second.log_likelihoods])
    logs -= math.log(size + more)
    total = logsumexp(logs, axis=0)
    weights = np.concatenate([first.weights * np.exp(logs[0] - total), second.weights * np.exp(logs[1] - total)])
    worth = (size * first.worth + more * second.worth) / (size + more)
    whole = Cloud(np.concatenate([first.values, second.values]), weights, total)
    return replace(whole, groups=first.groups, worth=worth, at_rest=first.at_rest and second.at_rest)


def eased(clouds: Clouds) -> Clouds:
    """Thin clouds with their weights to a power below one, at which they are no longer thin.

    Far from the release a few values have all the weight. With more noise many would share it, and show the way.
    """
    low, high = 0.0, 1.0
    for _ in range(20):
        power = 0.5 * (low + high)
        low, high = (low, power) if thin(clouds.changed(partial(tempered, power=power))) else (power, high)
    return clouds.changed(partial(tempered, power=low))


def tempered(part: Part, cloud: Cloud, power: float) -> Cloud:
    """Weights to a power: as if there were more noise."""
    if len(cloud.values) == 1:
        return cloud
    with np.errstate(divide="ignore", invalid="ignore"):
        log_weights = np.where(cloud.weights > 0, power * np.log(cloud.weights), -np.inf)
        return cloud.again(weighted(cloud.values, log_weights))


def both(first: Clouds, second: Clouds, size: int, more: int) -> Clouds:
    """`joined_clouds`, part by part."""
    return Clouds(first.parts, lambda i: joined_clouds(first[i], second[i], size, more), first.held)


def first_half(part: Part, cloud: Cloud) -> Cloud:
    """Half of the values by themselves."""
    return _some(cloud, slice(None, _half(cloud)))


def second_half(part: Part, cloud: Cloud) -> Cloud:
    """The other half."""
    return _some(cloud, slice(_half(cloud), None))


def _half(cloud: Cloud) -> int:
    """Half the number of values, so that every group has as many in it."""
    each = max(1, cloud.groups)
    return len(cloud.values) // each // 2 * each


def some_of(part: Part, cloud: Cloud, share: float) -> Cloud:
    """The first values: as many as have `SOME` numbers, or that share of all if it is more."""
    each = max(1, cloud.groups)
    count = each * math.ceil(max(SOME // part.numbers, share * len(cloud.values)) / each)
    return cloud if count >= len(cloud.values) else _some(cloud, slice(None, count))


def _some(cloud: Cloud, chosen: slice) -> Cloud:
    if len(cloud.values) == 1:
        return cloud
    with np.errstate(divide="ignore"):
        return cloud.again(weighted(cloud.values[chosen], np.log(cloud.weights[chosen])))
