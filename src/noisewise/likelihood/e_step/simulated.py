"""Clouds by simulation: variants of the E-step, what they are worth, and how they are joined, halved and eased.

Derivations: docs/derivations/likelihood.md.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import logsumexp

from noisewise.likelihood.e_step.cloud import Cloud, Clouds, weighted
from noisewise.likelihood.e_step.independent_parts import Part
from noisewise.mechanisms.additive import Additive, Lattice
from noisewise.numerics import Array

Values = dict[str, Any]

FEW = 100.0
"""Effective values below which a sample knows nothing of its own error: one value has no spread, whatever it is."""
SOME = 2**18
"""Numbers from which the information's slope is taken, which only an error rests on."""


def thin(clouds: Clouds) -> bool:
    """Whether a simulated statistic has too few effective values, over all its entries, to tell its error."""
    return any(np.sum(sizes) < FEW for sizes in clouds.sizes.values())


def smallest(clouds: Clouds) -> float:
    """The effective size of the entry that has fewest values; what is known exactly, one value, does not count."""
    return min((float(sizes.min()) for sizes in clouds.sizes.values()), default=math.inf)


def is_even(new: Clouds, old: Clouds) -> bool:
    """Whether clouds that were moved have at least half of the effective size that they had."""
    before = old.sizes
    return all(sizes.min() >= 0.5 * before[name].min() for name, sizes in new.sizes.items())


def log_likelihood_error(clouds: Clouds) -> tuple[float, float]:
    """What the log of an average lacks on average, and its error: both by the delta method, with the next order added.

    Weights of equal size have neither.
    """
    first, second = 0.0, 0.0
    for cloud in clouds:
        variances = np.maximum(np.sum(cloud.weights**2, axis=0) - 1.0 / len(cloud.values), 0.0)
        first, second = first + float(np.sum(variances)), second + float(np.sum(variances**2))
    return 0.5 * first, math.hypot(math.sqrt(first), second)


def in_batches(terms: Array) -> Array:
    """Sums over about sqrt(length) stretches of a chain's terms: their squares add up to the variance of the total.

    Terms of a chain hang together, those of stretches hardly; terms sum to zero, hence the factor.
    """
    length = len(terms)
    batches = math.isqrt(length)
    if batches < 2:
        return terms
    starts = np.linspace(0, length, batches, endpoint=False).astype(int)
    found: Array = np.add.reduceat(terms, starts, axis=0) * math.sqrt(batches / (batches - 1))
    return found


def joined(first: Cloud, second: Cloud, size: int, more: int) -> Cloud:
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
    """Thin clouds with the noise density to a power below one, at which they are no longer thin.

    Far from the release a few values have all the weight. More noise would leave it to many, and they show the way.
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
    """`joined`, part by part."""
    return Clouds(first.parts, lambda i: joined(first[i], second[i], size, more), first.held)


def first_half(part: Part, cloud: Cloud) -> Cloud:
    """Half of the values by themselves."""
    return _some(cloud, slice(None, _half(cloud)))


def second_half(part: Part, cloud: Cloud) -> Cloud:
    """The other half."""
    return _some(cloud, slice(_half(cloud), None))


def _half(cloud: Cloud) -> int:
    """Of the values, with as many of every group."""
    each = max(1, cloud.groups)
    return len(cloud.values) // each // 2 * each


def some_of(part: Part, cloud: Cloud, share: float) -> Cloud:
    """The first values, `SOME` numbers of them or that share."""
    each = max(1, cloud.groups)
    count = each * math.ceil(max(SOME // part.numbers, share * len(cloud.values)) / each)
    return cloud if count >= len(cloud.values) else _some(cloud, slice(None, count))


def _some(cloud: Cloud, kept: slice) -> Cloud:
    if len(cloud.values) == 1:
        return cloud
    with np.errstate(divide="ignore"):
        return cloud.again(weighted(cloud.values[kept], np.log(cloud.weights[kept])))


def mixes(part: Part) -> bool:
    """Whether values may also be proposed as the release less noise, of the same kind as the statistic's."""
    mechanism = part.mechanism
    return part.by_entry and isinstance(mechanism, Additive) and part.discrete == isinstance(mechanism, Lattice)


def mixture(rng: np.random.Generator, part: Part, values: Values, s: Array) -> tuple[Array, Array]:
    """Values of `s`, each with probability one half replaced by the release less noise, and their log weights.

    That is a sample of (pi + eta) / 2, eta seen as a function of s, so the weight is pi eta over that. Where the law
    hardly reaches the release, the noise does. Each value has its own coin: with just half of either kind the values
    of an entry would not be independent, and the bias and error of their weighted mean not what they are taken for.
    """
    noise = part.mechanism.sample(rng, np.zeros(s.shape, dtype=int if part.discrete else float))
    s = np.where(rng.random(s.shape) < 0.5, part.item.value - noise, s)
    low, high = (np.reshape(end, -1) for end in part.bounds(values))
    flat = s.reshape(len(s), -1)
    log_pi = np.where((flat >= low) & (flat <= high), part.log_prob_many(values, s), -np.inf)
    log_eta = part.log_eta(s)
    with np.errstate(invalid="ignore"):
        found = log_pi + log_eta - np.logaddexp(log_pi, log_eta) + math.log(2.0)
    return s, np.where(np.isnan(found), -np.inf, found)


# Variants of the E-step: (rng, part, simulated s, log eta) -> cloud ---------------------------------------------------


def _importance(rng: np.random.Generator, part: Part, s: Array, log_eta: Array) -> Cloud:
    """Weights eta (the paper's Algorithm 3)."""
    return weighted(s, log_eta - math.log(len(s)))


def _rejection(rng: np.random.Generator, part: Part, s: Array, log_eta: Array) -> Cloud:
    """Weight one where a proposal is accepted with probability eta / sup, else zero."""
    if len(s) == 1:
        return _importance(rng, part, s, log_eta)
    log_sup = np.asarray(part.mechanism.log_sup(part.item.value), float).reshape(-1)
    log_sup = np.broadcast_to(log_sup, log_eta.shape[1]) if part.by_entry else log_sup.sum(keepdims=True)
    kept = rng.standard_exponential(log_eta.shape) >= log_sup - log_eta
    kept[np.argmax(log_eta, axis=0), np.arange(log_eta.shape[1])] |= ~kept.any(axis=0)
    counts = kept.sum(axis=0)
    return Cloud(s, kept / counts, np.log(counts / len(s)) + log_sup)


def _resampled(rng: np.random.Generator, part: Part, s: Array, log_eta: Array) -> Cloud:
    """An equally weighted sample drawn by weight, systematically, entry by entry."""
    cloud = _importance(rng, part, s, log_eta)
    points = (rng.random(cloud.weights.shape[1]) + np.arange(len(s))[:, None]) / len(s)
    counts = np.empty_like(cloud.weights)
    for entry in range(cloud.weights.shape[1]):
        index = np.searchsorted(np.cumsum(cloud.weights[:, entry]), points[:, entry])
        counts[:, entry] = np.bincount(np.minimum(index, len(s) - 1), minlength=len(s))
    return Cloud(s, counts / len(s), cloud.log_likelihoods)


def _markov(rng: np.random.Generator, part: Part, s: Array, log_eta: Array) -> Cloud:
    """An independence Metropolis chain per entry, proposals from the model: weight by time spent."""
    if len(s) == 1:
        return _importance(rng, part, s, log_eta)
    length, entries = log_eta.shape
    thresholds = -rng.standard_exponential((length, entries))
    state = np.argmax(log_eta[: max(1, length // 100)], axis=0)  # starts where the chain would soon be
    spent = np.zeros((length, entries))
    columns = np.arange(entries)
    for step in range(length):
        accepted = log_eta[step] - log_eta[state, columns] >= thresholds[step]
        state = np.where(accepted, step, state)
        spent[state, columns] += 1.0
    return Cloud(s, spent / length, _importance(rng, part, s, log_eta).log_likelihoods)


VARIANTS = {
    "importance": _importance,
    "mixture": _importance,
    "augmented": _importance,
    "rejection": _rejection,
    "resampled": _resampled,
    "markov": _markov,
}
