"""Private selection: the release is the index of one of k candidates, the confidential statistic their k scores."""

from abc import abstractmethod
from typing import Any

import numpy as np

from noisewise.errors import refusal
from noisewise.mechanisms.additive import scale_and_guarantee
from noisewise.mechanisms.base import BUDGET, POSITIVE, Mechanism, kept_whole
from noisewise.mechanisms.discrete import whole_numbers
from noisewise.numerics import namespace


class Selection(Mechanism):
    """Selects index i with a probability that depends on (scores - largest score) / scale alone.

    Scores along the last axis of the confidential statistic; the release has one axis less. A score may be -inf: that
    candidate is never selected. Subclasses give `log_choice` and `choose`.
    Calibration: scale = 2 sensitivity / epsilon, or sensitivity / epsilon where `monotone` (replacing a record moves
    all scores the same way), `sensitivity` being the largest change of a score (linf norm).
    Supremum: 1, approached as the released candidate's score rises above all others.
    """

    arguments = {"scale": POSITIVE, "epsilon": BUDGET, "sensitivity": BUDGET, "monotone": {"type": "boolean"}}
    alternatives = (("scale",), ("epsilon", "sensitivity"))
    measure = "atoms"
    supremum = "approached"
    scale: Any

    @abstractmethod
    def log_choice(self, xp: Any, gaps: Any, own: Any) -> Any:
        """log P(the one candidate marked in `own`); `gaps` = (scores - largest) / scale <= 0 along the last axis."""

    @abstractmethod
    def choose(self, rng: np.random.Generator, gaps: Any) -> Any:
        """One index per row of `gaps`."""

    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        if np.isnan(confidential).any():
            who = f"{type(self).__name__}.sample"
            raise refusal(who, "confidential", "must not hold NaN", confidential, "Every candidate needs a score.")
        return self.choose(rng, self._gaps(np, confidential))

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """log probability of the selected index; -inf where there is no such candidate."""
        xp = namespace(released, confidential, self)
        gaps = self._gaps(xp, confidential)
        own = xp.asarray(released)[..., None] == xp.arange(gaps.shape[-1])
        # An index that is no candidate, or is never selected, gives way to the best one; its probability is masked.
        possible = xp.any(own & (gaps > -xp.inf), axis=-1, keepdims=True)
        own = xp.where(possible, own, gaps == 0.0)
        own = own & (xp.cumsum(own, axis=-1) == 1)
        lead = np.broadcast_shapes(own.shape, gaps.shape)
        log_choice = self.log_choice(xp, xp.broadcast_to(gaps, lead), xp.broadcast_to(own, lead))
        return xp.where(possible[..., 0], xp.minimum(log_choice, 0.0), -xp.inf)

    def log_sup(self, released: Any) -> Any:
        """0: no probability exceeds one."""
        return namespace(released).zeros_like(released, dtype=float)

    def _gaps(self, xp: Any, scores: Any) -> Any:
        scores = xp.asarray(scores, dtype=float)
        top = xp.max(scores, axis=-1, keepdims=True)
        below = xp.where(xp.isfinite(top), scores - xp.where(xp.isfinite(top), top, 0.0), -xp.inf)
        return xp.where(scores == top, 0.0, below) / xp.asarray(self.scale)[..., None]

    def check_released(self, value: Any) -> Any:
        """Indices from 0, kept as int64."""
        who = f"{type(self).__name__}.released"
        indices = whole_numbers(who, "value", value)
        if np.any(indices < 0):
            raise refusal(who, "value", "must be indices from 0", value, "Number the candidates from 0.")
        super().check_released(indices)
        return kept_whole(indices)

    def beyond(self, released: Any, confidential: tuple[int, ...]) -> str | None:
        """Indices must be those of the scores."""
        return None if np.all(np.asarray(released) < confidential[-1]) else beyond_scores(confidential)

    def misfit(self, released: tuple[int, ...], confidential: tuple[int, ...]) -> str | None:
        """One more axis than the release, of scores."""
        if confidential and confidential[:-1] == released:
            return None
        return f"must have shape {(*released, 'k')}, a vector of k scores for each selection"


def calibrated(who: str, scale: Any, epsilon: Any, sensitivity: Any, monotone: Any) -> dict[str, Any]:
    """Arguments for `_freeze`: the scale as given, or 2 sensitivity / epsilon, or half of that if monotone."""
    if not isinstance(monotone, (bool, np.bool_)):
        raise refusal(who, "monotone", "must be True or False", monotone, "Leave it out if scores can move both ways.")
    if monotone and scale is not None:
        raise refusal(who, "monotone", "must come together with a budget", monotone, "Give epsilon and sensitivity.")
    factor = 1.0 if monotone else 2.0
    return scale_and_guarantee(
        who,
        scale,
        sensitivity,
        {"epsilon": epsilon},
        norm="linf",
        rule=lambda change, epsilon: factor * change / epsilon,
    )


def largest(noise: Any, gaps: Any) -> Any:
    """Index of the largest noisy score; candidates at -inf never win."""
    return np.argmax(np.where(gaps > -np.inf, gaps + noise, -np.inf), axis=-1)


def selection_of(who: str, value: Any) -> Selection:
    """`value` if it selects one candidate."""
    if not isinstance(value, Selection):
        advice = "Give ExponentialMechanism, ReportNoisyMax or PermuteAndFlip."
        raise refusal(who, "selection", "must be a mechanism that selects one candidate", value, advice)
    if np.ndim(value.scale):
        raise refusal(who, "selection", "must have a single scale", value, "Give one number.")
    return value


def beyond_scores(confidential: tuple[int, ...]) -> str:
    """The rule broken by an index that belongs to no score."""
    return f"must hold indices from 0 to {confidential[-1] - 1}, one of the model's {confidential[-1]} scores"
