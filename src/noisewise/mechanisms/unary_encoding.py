"""Unary encoding: a category as a row of bits, each reported with noise (RAPPOR; Wang, Blocki, Li and Jha 2017)."""

import math
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.base import BUDGET, Mechanism, kept_whole
from noisewise.mechanisms.discrete import whole_numbers
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.numerics import namespace

LARGEST_EPSILON = 30.0
"""Beyond this, 1 - keep loses more than ten of its digits."""
_ADVICE = "Give keep and add, or epsilon with encoding 'symmetric' or 'optimised'."
_CHANCE = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}


class UnaryEncoding(Mechanism):
    """A category c of k becomes k bits, all zero but bit c; each bit is then reported independently.

    A one stays a one with probability `keep`, a zero becomes a one with probability `add`. The confidential statistic
    is an array of categories 0 ... k-1; the release has one more axis, of k bits.
    P(bits | c) = prod_j keep^b (1 - keep)^(1 - b) for j = c, add^b (1 - add)^(1 - b) otherwise, b the reported bit.

    Calibration, for replacing one record: epsilon = |logit(keep) - logit(add)|, two bits being different. From
    `epsilon`, `encoding="symmetric"`: keep = e^(epsilon/2) / (1 + e^(epsilon/2)), add = 1 - keep (basic RAPPOR;
    Erlingsson, Pihur and Korolova 2014); `encoding="optimised"`: keep = 1/2, add = 1 / (1 + e^epsilon) (Wang et al.
    2017).
    Sampler: independent Bernoulli bits. Supremum: the best category for the reported bits, attained.
    The guarantee is that of one category; several of one record compose (`record_parts`).
    For records that are themselves rows of bits, any number of them ones, use `RandomizedResponse`, bit by bit.
    """

    fields = ("keep", "add")
    static = ("categories",)
    arguments = {
        "categories": {"type": "integer", "minimum": 2},
        "keep": _CHANCE,
        "add": _CHANCE,
        "epsilon": BUDGET,
        "encoding": {"enum": ["symmetric", "optimised"]},
    }
    alternatives = (("categories", "keep", "add"), ("categories", "epsilon"))
    event_dim = 1
    measure = "atoms"
    supremum = "attained"
    integers = True
    categories: int
    keep: Any
    add: Any

    def __init__(
        self, categories: Any, *, keep: Any = None, add: Any = None, epsilon: Any = None, encoding: Any = None
    ) -> None:
        who = type(self).__name__
        categories = checks.integer(who, "categories", categories, least=2, advice="Give how many there are.")
        if epsilon is None:
            if encoding is not None:
                raise refusal(who, "encoding", "must come together with epsilon", encoding, _ADVICE)
            keep, add = (_chance(who, name, value) for name, value in (("keep", keep), ("add", add)))
            budget = abs(math.log(keep) - math.log1p(-keep) - math.log(add) + math.log1p(-add))
        else:
            if keep is not None or add is not None:
                raise refusal(who, "epsilon", "must not come together with keep or add", epsilon, _ADVICE)
            budget = checks.positive_number(who, "epsilon", epsilon, _ADVICE)
            if budget > LARGEST_EPSILON:
                rule = f"must be at most {LARGEST_EPSILON:g}, or 1 - keep is lost in rounding"
                raise refusal(who, "epsilon", rule, epsilon, "Such a release is hardly private.")
            kind = checks.choice(who, "encoding", encoding or "symmetric", ["symmetric", "optimised"])
            if kind == "symmetric":
                keep, add = 1.0 / (1.0 + math.exp(-0.5 * budget)), 1.0 / (1.0 + math.exp(0.5 * budget))
            else:
                keep, add = 0.5, 1.0 / (1.0 + math.exp(budget))
        self._freeze(Guarantee(epsilon=budget, neighbours="replace-one"), categories=categories, keep=keep, add=add)

    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        true = whole_numbers("UnaryEncoding.sample", "confidential", confidential)
        if np.any((true < 0) | (true >= self.categories)):
            rule = f"must hold categories 0 to {self.categories - 1}"
            raise refusal("UnaryEncoding.sample", "confidential", rule, confidential, "Number them from 0.")
        own = true[..., None] == np.arange(self.categories)
        return (rng.random(own.shape) < np.where(own, self.keep, self.add)).astype(np.int64)

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """Sum over the bits; -inf where a bit is not 0 or 1, or the confidential value is no category."""
        xp = namespace(released, confidential, self)
        released, confidential = xp.asarray(released), xp.asarray(confidential)
        own = confidential[..., None] == xp.arange(self.categories)
        as_one, as_zero = self._bits(xp, released)
        log_prob = xp.sum(xp.where(own, as_one, as_zero), axis=-1)
        possible = xp.all((released == 0) | (released == 1), axis=-1) & xp.any(own, axis=-1)
        return xp.where(possible, log_prob, -xp.inf)

    def log_sup(self, released: Any) -> Any:
        """log probability given the category that the bits favour most; attained there."""
        xp = namespace(released, self)
        as_one, as_zero = self._bits(xp, xp.asarray(released))
        return xp.sum(as_zero, axis=-1) + xp.max(as_one - as_zero, axis=-1)

    def _bits(self, xp: Any, released: Any) -> tuple[Any, Any]:
        """log probability of each reported bit, if it was a one and if it was a zero."""
        return (
            xp.where(released == 1, xp.log(self.keep), xp.log1p(-self.keep)),
            xp.where(released == 1, xp.log(self.add), xp.log1p(-self.add)),
        )

    def check_released(self, value: Any) -> Any:
        """Bits, kept as int64, k of them along the last axis."""
        who = "UnaryEncoding.released"
        bits = whole_numbers(who, "value", value)
        if bits.ndim == 0 or bits.shape[-1] != self.categories or np.any((bits < 0) | (bits > 1)):
            rule = f"must be bits, {self.categories} along the last axis"
            raise refusal(who, "value", rule, value, "Give one row of bits per record.")
        return kept_whole(bits)

    def impossible(self, confidential: Any) -> str | None:
        """Records must be categories."""
        categories = np.asarray(confidential)
        inside = np.all((categories >= 0) & (categories < self.categories))
        return None if inside else f"must hold categories 0 to {self.categories - 1} by construction"

    def record_parts(self, shape: tuple[int, ...]) -> int:
        """The first axis numbers the records, the last the bits; those between number a record's categories."""
        return math.prod(shape[1:-1])

    def misfit(self, released: tuple[int, ...], confidential: tuple[int, ...]) -> str | None:
        """One category for each row of bits."""
        expected = released[:-1]
        return None if confidential == expected else f"must have shape {expected}, one category per row of bits"


def _chance(who: str, name: str, value: Any) -> float:
    if value is None:
        raise refusal(who, name, "must be given when there is no epsilon", value, _ADVICE)
    chance = checks.positive_number(who, name, value, _ADVICE)
    if chance >= 1.0:
        raise refusal(who, name, "must lie strictly between 0 and 1", value, "Otherwise a report gives the bit away.")
    return chance
