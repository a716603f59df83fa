"""The ordered list of the best candidates, selected one after the other."""

from dataclasses import replace
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.base import MECHANISM, Mechanism, kept_whole
from noisewise.mechanisms.discrete import whole_numbers
from noisewise.mechanisms.selection import Selection, beyond_scores, selection_of
from noisewise.numerics import namespace


class TopSelection(Mechanism):
    """`top` rounds of a `selection` with fresh noise, each among the candidates not selected before ("peeling").

    The release is the indices in the order of selection: P(i_1, ..., i_top) is the product of the rounds'
    probabilities. With Gumbel noise it is also the law of the `top` largest noisy scores of one single draw, in order
    (Plackett-Luce; Durfee and Rogers 2019). For other noise the two differ, and lists from a single draw are not
    covered: their law has no such product. OpenDP's noisy top k is peeling with permute-and-flip, or Gumbel noise.
    Calibration: the selection's epsilon is spent once per round, top * epsilon in all.
    Sampler: round by round. Supremum: 1, approached as the scores spread out in the released order.
    """

    fields = ("selection",)
    static = ("top",)
    arguments = {"selection": MECHANISM, "top": {"type": "integer", "minimum": 1}}
    alternatives = (("selection", "top"),)
    event_dim = 1
    measure = "atoms"
    supremum = "approached"
    selection: Selection
    top: int

    def __init__(self, selection: Any, top: Any) -> None:
        selection = selection_of("TopSelection", selection)
        top = checks.integer("TopSelection", "top", top, least=1, advice="Give the length of the released list.")
        round_guarantee, guarantee = selection.guarantee, None
        if round_guarantee is not None and round_guarantee.epsilon is not None:
            guarantee = replace(round_guarantee, epsilon=top * round_guarantee.epsilon)
        self._freeze(guarantee, selection=selection, top=top)

    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        scores = np.asarray(confidential, dtype=float)
        if scores.shape[-1] < self.top:
            rule = f"must hold at least top = {self.top} scores along the last axis"
            raise refusal("TopSelection.sample", "confidential", rule, confidential, "Lower top.")
        chosen = []
        for _ in range(self.top):
            chosen.append(self.selection.sample(rng, scores))
            scores = _without(np, scores, chosen[-1])
        return np.stack(chosen, axis=-1)

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """Sum over the rounds; -inf where an index comes twice."""
        xp = namespace(released, confidential, self)
        released, scores = xp.asarray(released), xp.asarray(confidential, dtype=float)
        total: Any = 0.0
        gone: Any = xp.zeros(scores.shape[-1], dtype=bool)
        for place in range(self.top):
            index = released[..., place]
            again = xp.any(gone & (index[..., None] == xp.arange(scores.shape[-1])), axis=-1)
            total = total + xp.where(again, -xp.inf, self.selection.log_prob(index, scores))
            gone = gone | (index[..., None] == xp.arange(scores.shape[-1]))
            scores = _without(xp, scores, index)
        return total

    def log_sup(self, released: Any) -> Any:
        """0: no probability exceeds one."""
        xp = namespace(released)
        return xp.zeros(np.shape(released)[:-1])

    def check_released(self, value: Any) -> Any:
        """Different indices from 0, `top` of them along the last axis, kept as int64."""
        who = "TopSelection.released"
        indices = whole_numbers(who, "value", value)
        if indices.ndim == 0 or indices.shape[-1] != self.top:
            raise refusal(who, "value", f"must have {self.top} indices along the last axis", value, "Check top.")
        ordered = np.sort(indices, axis=-1)
        if np.any(indices < 0) or np.any(ordered[..., 1:] == ordered[..., :-1]):
            raise refusal(who, "value", "must be different indices from 0", value, "No candidate is selected twice.")
        return kept_whole(indices)

    def beyond(self, released: Any, confidential: tuple[int, ...]) -> str | None:
        """Indices must be those of the scores."""
        return None if np.all(np.asarray(released) < confidential[-1]) else beyond_scores(confidential)

    def misfit(self, released: tuple[int, ...], confidential: tuple[int, ...]) -> str | None:
        """The last axis holds the scores, at least `top` of them."""
        if confidential and confidential[:-1] == released[:-1] and confidential[-1] >= self.top:
            return None
        return f"must have shape {(*released[:-1], 'k')} with k >= {self.top} scores"


def _without(xp: Any, scores: Any, index: Any) -> Any:
    """The scores with that of the selected candidate at -inf, so that it cannot be selected again."""
    return xp.where(xp.asarray(index)[..., None] == xp.arange(scores.shape[-1]), -xp.inf, scores)
