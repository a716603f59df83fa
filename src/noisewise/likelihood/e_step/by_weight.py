"""E-steps whose weights are densities: of values from the model, from model and noise, or from the step before."""

import math
from functools import partial

import numpy as np

from noisewise.likelihood.e_step.cloud import Cloud, weighted
from noisewise.likelihood.e_step.contract import Drawing, EStep, from_model
from noisewise.likelihood.e_step.released_law import Part
from noisewise.mechanisms.additive import Additive, Lattice
from noisewise.numerics import Array, Values


class Importance(EStep):
    """Values from the model with weights eta (the paper's Algorithm 3)."""

    name = "importance"
    eases = True

    def weigh(self, rng: np.random.Generator, part: Part, s: Array, log_weights: Array) -> Cloud:
        """Values with their weights."""
        return weighted(s, log_weights - math.log(len(s)))


class Recycled(Importance):
    """As `Importance`, but the last cloud, moved to the new parameters, serves until it is too uneven."""

    name = "recycled"
    recycles = True


class Mixture(Importance):
    """Values from the model or, by the toss of a coin, the release less noise: for rows that the law hardly reaches."""

    name = "mixture"
    measures = True

    def draw(self, drawing: Drawing, part: Part, values: Values, number: int, size: int) -> tuple[Array, Array]:
        """Values from both, where the release less noise is of the statistic's kind."""
        weigh = partial(mixture, part, values) if mixes(part) else None
        return from_model(drawing, part, values, number, size, weigh)


def mixes(part: Part) -> bool:
    """Whether values may also be proposed as the release less noise, of the same kind as the statistic's."""
    mechanism = part.mechanism
    return part.by_entry and isinstance(mechanism, Additive) and part.discrete == isinstance(mechanism, Lattice)


def mixture(part: Part, values: Values, rng: np.random.Generator, s: Array) -> tuple[Array, Array]:
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
        log_weights = log_pi + log_eta - np.logaddexp(log_pi, log_eta) + math.log(2.0)
    return s, np.where(np.isnan(log_weights), -np.inf, log_weights)
