"""The key of every stream of random numbers, in one place.

A stream's key is the seed with a sequence of whole numbers. The sequence begins with the numbers of a `Purpose`, and
goes on with an index, such as a chain's number, or a stream's and a block's. Streams of different keys are independent,
and no two uses have the same key, so no random number is used twice.
"""

from enum import Enum

import numpy as np

Prefix = tuple[int, ...]

AFTER_BLOCKS = 2**31
"""Stands in a key for the block's number, for draws made once all blocks have come: no stream has so many blocks."""
AFTER_ROUND = 2**20
"""Stands in a key for the block's number, for draws that a pilot's round makes after its blocks."""


class Purpose(Enum):
    """What random numbers are for: the numbers with which a key begins. No purpose's numbers begin with another's.

    The numbers decide the draws of every seed, so they stay as they are. Add a purpose with a number of its own.
    """

    PROPOSALS = (0,)
    """Values that a sampler accepts or rejects: stream, block."""
    WEIGHTED = (1,)
    """Values that importance sampling weighs: stream, block."""
    PILOT = (2,)
    """Pilot runs that choose starts, proposals or temperatures: nothing, or round, block; or climbs between."""
    WARMUP = (3,)
    """Walks by which chains are tuned: stretch, group of chains."""
    CHAINS = (4,)
    """Walks whose states are kept: chain, or attempt and chain, or stretch and group of chains."""
    PARTICLES = (5,)
    """Particles that begin a sequence of laws: block."""
    RESAMPLING = (6,)
    """Which particles, or draws, go on: step, or attempt."""
    CHOICE = (7, 0)
    """The prior rows by which `nw.sample` chooses a sampler."""
    FALLBACK = (7, 1)
    """The seed of a sampler that is tried after another has failed: its place in the ranking."""
    CONFLICT_PILOT = (7, 2)
    """The prior rows by which the prior predictive density is estimated."""
    CONFLICT = (7, 3)
    """Simulated releases with which the one at hand is compared, to see whether the prior disagrees with it."""
    OTHER_RELEASES = (7, 5)
    """Releases that the page simulates at another budget."""
    OTHER_NOISE = (7, 6)
    """Rows that the page weighs again for other noise."""
    PAGE_FALLBACK = (7, 7)
    """The seed of a sampler that the page tries after another has failed: its place in the list."""
    SECOND_LOOK = (7, 8)
    """Rows of a search for what draws may have missed, and climbs from them: attempt, block."""
    PREDICTIVE = (7, 9)
    """Releases simulated from a posterior's draws."""
    LAYERS = (7, 10)
    """Parameters that were integrated out, drawn given all else: the layer's place, and the block after the first."""
    EQUAL_WEIGHTS = (7, 11)
    """Which of a posterior's weighted draws are taken, and in which order, where equal weights are asked for."""
    CALIBRATION_TRUTHS = (8, 0)
    """True values and releases of a calibration: block."""
    CALIBRATION_SEED = (8, 1)
    """The seed of one of a calibration's runs: replicate."""
    CALIBRATION_RANKS = (8, 2)
    """The truth's place among draws of equal value, and which draws are compared: replicate."""
    DESIGN_TRUTHS = (8, 3)
    """True values of releases that a design simulates: batch."""
    DESIGN_POOL = (8, 4)
    """Prior rows that a design weighs for each of a batch's releases: batch."""
    DESIGN_NOISE = (8, 5)
    """Noise of a design's releases, the same at every budget: batch, statistic."""
    DESIGN_SEED = (8, 6)
    """The seed of a posterior that a design has to sample: batch, replicate, budget's place."""
    STARTS = (900,)
    """Where chains and climbs begin: nothing, or attempt, or group of chains."""
    BOOTSTRAP = (901,)
    """A simulated release, and the seed of the fit to it: replicate."""
    HEIGHT = (980,)
    """Totals by which a likelihood is estimated where chains do not give it: part, block."""
    CHECK = (990,)
    """Values by which a checkpoint is recognised as one of the same model: part, block."""
    MEASUREMENT = (999,)
    """Values at the top of the likelihood, the number above less by one at each of five attempts: part, block."""
    E_STEP = (1_000,)
    """Values of an E-step, the number above greater by one at each iteration: part, block."""

    def step(self, number: int) -> Prefix:
        """The beginning of the keys of repetition `number`, where repetitions have numbers of their own."""
        if self not in STEPS:
            raise ValueError(f"{self} has one number for all repetitions")
        return (self.value[0] + STEPS[self] * number,)


STEPS = {Purpose.E_STEP: 1, Purpose.MEASUREMENT: -1}
"""Purposes whose repetitions have numbers of their own, and by how much each differs from the one before."""


def key(seed: int, purpose: Purpose | Prefix, *index: int) -> np.random.SeedSequence:
    """The key of one stream: all random numbers come from such keys, except in fixed looks at a model."""
    prefix = purpose.value if isinstance(purpose, Purpose) else purpose
    return np.random.SeedSequence(seed, spawn_key=(*prefix, *index))


def following(first: np.random.SeedSequence, skipped: int, count: int) -> list[np.random.SeedSequence]:
    """The keys of `count` consecutive blocks, the first of them `skipped` blocks after that of `first`."""
    *whose, block = first.spawn_key
    seed: int = first.entropy  # type: ignore[assignment]  # a number, since `key` gave one
    return [first if n == 0 else key(seed, tuple(whose), block + n) for n in range(skipped, skipped + count)]


def generator(seed: int, purpose: Purpose | Prefix, *index: int) -> np.random.Generator:
    """The random numbers of one piece of work."""
    return np.random.default_rng(key(seed, purpose, *index))
