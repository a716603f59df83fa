"""E-steps that keep values from the model by chance: by rejection, by resampling, or by a Metropolis chain."""

import math

import numpy as np

from noisewise.likelihood.e_step.cloud import Cloud, weighted
from noisewise.likelihood.e_step.contract import EStep
from noisewise.likelihood.e_step.released_law import Part
from noisewise.numerics import Array


class Rejection(EStep):
    """Weight one where a proposal is accepted with probability eta / sup, else zero."""

    name = "rejection"

    def weigh(self, rng: np.random.Generator, part: Part, s: Array, log_weights: Array) -> Cloud:
        """Accepted values; for an entry without any, its likeliest value."""
        if len(s) == 1:
            return _by_weight(s, log_weights)
        log_sup = part.log_sup()
        accepted = rng.standard_exponential(log_weights.shape) >= log_sup - log_weights
        accepted[np.argmax(log_weights, axis=0), np.arange(log_weights.shape[1])] |= ~accepted.any(axis=0)
        counts = accepted.sum(axis=0)
        return Cloud(s, accepted / counts, np.log(counts / len(s)) + log_sup)


class Resampled(EStep):
    """An equally weighted sample drawn by weight, systematically, entry by entry."""

    name = "resampled"

    def weigh(self, rng: np.random.Generator, part: Part, s: Array, log_weights: Array) -> Cloud:
        """Values by how often they are drawn."""
        cloud = _by_weight(s, log_weights)
        points = (rng.random(cloud.weights.shape[1]) + np.arange(len(s))[:, None]) / len(s)
        counts = np.empty_like(cloud.weights)
        for entry in range(cloud.weights.shape[1]):
            index = np.searchsorted(np.cumsum(cloud.weights[:, entry]), points[:, entry])
            counts[:, entry] = np.bincount(np.minimum(index, len(s) - 1), minlength=len(s))
        return Cloud(s, counts / len(s), cloud.log_likelihoods)


class Markov(EStep):
    """An independence Metropolis chain for every entry, with proposals from the model."""

    name = "markov"

    def weigh(self, rng: np.random.Generator, part: Part, s: Array, log_weights: Array) -> Cloud:
        """Values by the time that the chain stays at them."""
        if len(s) == 1:
            return _by_weight(s, log_weights)
        length, entries = log_weights.shape
        thresholds = -rng.standard_exponential((length, entries))
        state = np.argmax(log_weights[: max(1, length // 100)], axis=0)  # starts where the chain would soon be
        spent = np.zeros((length, entries))
        columns = np.arange(entries)
        for step in range(length):
            accepted = log_weights[step] - log_weights[state, columns] >= thresholds[step]
            state = np.where(accepted, step, state)
            spent[state, columns] += 1.0
        return Cloud(s, spent / length, _by_weight(s, log_weights).log_likelihoods)

    def independent(self, terms: Array) -> Array:
        """Batch means: terms of a chain depend on each other."""
        return in_batches(terms)


def in_batches(terms: Array) -> Array:
    """Sums over about sqrt(length) stretches of a chain's terms: their squares add up to the variance of the total.

    Neighbouring terms of a chain depend on each other, whole stretches hardly. The factor is there because all terms
    sum to zero.
    """
    length = len(terms)
    batches = math.isqrt(length)
    if batches < 2:
        return terms
    starts = np.linspace(0, length, batches, endpoint=False).astype(int)
    sums: Array = np.add.reduceat(terms, starts, axis=0) * math.sqrt(batches / (batches - 1))
    return sums


def _by_weight(s: Array, log_weights: Array) -> Cloud:
    return weighted(s, log_weights - math.log(len(s)))
