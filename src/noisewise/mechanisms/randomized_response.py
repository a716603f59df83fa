"""Randomised response through any channel (Warner 1965), on records or on their counts."""

import math
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms import reported_counts
from noisewise.mechanisms.base import BUDGET, Measure, Mechanism, Supremum, kept_whole
from noisewise.mechanisms.discrete import log, whole_numbers
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.numerics import namespace

LARGEST_EPSILON = 700.0
"""Beyond this, the probability of a changed answer is below the smallest floating-point number."""
_ADVICE = "Give channel, or keep, or epsilon (with categories, 2 if left out)."


class RandomizedResponse(Mechanism):
    """Each record of true category i is reported as j with probability `channel[i, j]`, independently.

    `on="records"`: the confidential statistic is an array of categories 0 ... k-1, the release one of the same shape.
    P(s_dp | s) = channel[s, s_dp] entry by entry. Supremum: the largest entry of the reported column, attained.
    `on="counts"`: the statistic is the k counts of n records' true categories, the release the m counts of reported
    ones, `n` being public. The reported counts are sum_i Multinomial(s_i, channel[i]); `reported_counts` gives the
    exact probability and its bound: attained when two categories are reported, a product of such bounds otherwise.
    `on="ones"`: the statistic is the number of ones (yes) among n records, the release the number of reported ones,
    entry by entry; the same law, of two categories, with the zeros left out.

    Arguments: `channel` (k rows, m columns, rows summing to one); or `keep`, the probability that the true one of
    `categories` is reported, the others being equally likely; or `epsilon`, with keep = e^epsilon / (e^epsilon + k - 1)
    (Kairouz, Bonawitz and Ramage 2016). Guarantee: epsilon is the largest log ratio within a column, for replacing one
    record; 0 where all rows are equal, none where a report rules out a category. It is that of one answer: on a matrix
    of answers, rows being records, a record's answers compose (`record_parts`). Sampler: inverse
    distribution function for records, multinomials for counts.
    """

    fields = ()
    static = ("channel", "on", "n")
    arguments = {
        "channel": {"type": "array", "items": {"type": "array", "items": {"type": "number", "minimum": 0}}},
        "keep": {"type": "number", "minimum": 0, "maximum": 1},
        "epsilon": BUDGET,
        "categories": {"type": "integer", "minimum": 2},
        "on": {"enum": ["records", "counts", "ones"]},
        "n": {"type": "integer", "minimum": 1},
    }
    alternatives = (("channel",), ("keep",), ("epsilon",))
    integers = True
    channel: tuple[tuple[float, ...], ...]
    on: str
    n: int | None

    def __init__(
        self,
        channel: Any = None,
        *,
        keep: Any = None,
        epsilon: Any = None,
        categories: Any = None,
        on: str = "records",
        n: Any = None,
    ) -> None:
        who = type(self).__name__
        checks.choice(who, "on", on, ["records", "counts", "ones"])
        alternatives = {"channel": channel, "keep": keep, "epsilon": epsilon}
        if sum(value is not None for value in alternatives.values()) != 1:
            rule = "or keep, or epsilon must be given, exactly one of them"
            raise refusal(who, "channel", rule, alternatives, _ADVICE)
        table = _channel(who, channel, keep, epsilon, categories)
        guarantee = (
            Guarantee(epsilon=float(epsilon), neighbours="replace-one") if epsilon is not None else _guarantee(table)
        )
        if on == "ones" and table.shape != (2, 2):
            advice = "Give on='counts', and the counts of all categories."
            raise refusal(who, "on", "must be 'counts' where there are more than two categories", on, advice)
        if on != "records":
            advice = "Give the number of records, which this mechanism does not protect."
            n = checks.integer(who, "n", n, least=1, advice=advice)
            _check_size(who, table, n)
        elif n is not None:
            raise refusal(who, "n", "must come with on='counts' or on='ones' only", n, "Leave it out.")
        self._freeze(guarantee, channel=tuple(map(tuple, table.tolist())), on=on, n=n)

    @property
    def event_dim(self) -> int:
        """1 on counts, else 0."""
        return int(self.on == "counts")

    @property
    def measure(self) -> Measure:
        """Counting measure, on the categories or on the integers."""
        return "atoms" if self.on == "records" else "lattice"

    @property
    def supremum(self) -> Supremum:
        """Attained, but for counts of more than two reported categories."""
        return "bound" if self.on == "counts" and len(self.channel[0]) > 2 else "attained"

    @property
    def work(self) -> float:
        """Numbers handled for one `log_prob`, where that is more than the entries."""
        return 0.0 if self.n is None else reported_counts.work(np.array(self.channel), self.n)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a file; no `n` on records."""
        return {key: value for key, value in super().to_dict().items() if value is not None}

    # The law --------------------------------------------------------------------------------------------------------

    def sample(self, rng: np.random.Generator, confidential: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        table = np.array(self.channel)
        true = whole_numbers("RandomizedResponse.sample", "confidential", confidential)
        if self.on == "ones":
            _check_ones("RandomizedResponse.sample", "confidential", true, self.n)
            return rng.binomial(true, table[1, 1]) + rng.binomial(self.n - true, table[0, 1])
        if self.on == "counts":
            _check_counts(true, table.shape[0], self.n)
            parts = [rng.multinomial(true[..., row], table[row]) for row in range(table.shape[0])]
            return np.sum(parts, axis=0)
        if np.any((true < 0) | (true >= table.shape[0])):
            rule = f"must hold categories 0 to {table.shape[0] - 1}"
            raise refusal("RandomizedResponse.sample", "confidential", rule, confidential, "Number them from 0.")
        return draw(rng, table, true)

    def log_prob(self, released: Any, confidential: Any) -> Any:
        """log channel entry, or the log probability of the reported counts; -inf off the categories."""
        table = np.array(self.channel)
        if self.on == "counts":
            assert self.n is not None
            return reported_counts.log_prob(table, self.n, released, confidential)
        if self.on == "ones":
            assert self.n is not None
            both = (self._with_zeros(released), self._with_zeros(confidential))
            return reported_counts.log_prob(table, self.n, *both)
        xp = namespace(released, confidential)
        row, is_category = _index(xp, confidential, table.shape[0])
        column, possible = _index(xp, released, table.shape[1])
        return xp.where(is_category & possible, xp.asarray(log(np, table))[row, column], -xp.inf)

    def log_sup(self, released: Any) -> Any:
        """log of the largest entry in the reported column, or the bound for counts."""
        table = np.array(self.channel)
        if self.on == "counts":
            assert self.n is not None
            return reported_counts.log_sup(table, self.n, released)
        if self.on == "ones":
            assert self.n is not None
            return reported_counts.log_sup(table, self.n, self._with_zeros(released))
        xp = namespace(released)
        column, possible = _index(xp, released, table.shape[1])
        return xp.where(possible, xp.asarray(log(np, table.max(axis=0)))[column], -xp.inf)

    def _with_zeros(self, ones: Any) -> Any:
        """Counts of both categories, along a new last axis."""
        xp = namespace(ones)
        ones = xp.asarray(ones)
        return xp.stack([self.n - ones, ones], axis=-1)

    # Released values ------------------------------------------------------------------------------------------------

    def check_released(self, value: Any) -> Any:
        """Categories that the channel can report, or counts of them, kept as int64."""
        who = "RandomizedResponse.released"
        reports = whole_numbers(who, "value", value)
        possible = np.array(self.channel).max(axis=0) > 0
        if self.on == "counts":
            if reports.ndim == 0 or reports.shape[-1] != len(possible):
                rule = f"must have {len(possible)} counts along the last axis"
                raise refusal(who, "value", rule, value, "Give one count per reported category.")
            if np.any(reports < 0) or np.any(reports.sum(axis=-1) != self.n):
                raise refusal(who, "value", f"must be counts that sum to n = {self.n}", value, "Check value and n.")
            if np.any(reports[..., ~possible] > 0):
                rule = "must be zero where the channel never reports"
                raise refusal(who, "value", rule, value, "Check the channel.")
        elif self.on == "ones":
            _check_ones(who, "value", reports, self.n)
        elif np.any((reports < 0) | (reports >= len(possible))) or not np.all(possible[reports]):
            rule = f"must be categories 0 to {len(possible) - 1} that the channel can report"
            raise refusal(who, "value", rule, value, "Number the reported categories from 0.")
        return kept_whole(reports)

    def impossible(self, confidential: Any) -> str | None:
        """Records must be categories of the channel, and numbers of ones at most `n`."""
        categories = len(self.channel)
        if self.on == "ones":
            inside = np.all((np.asarray(confidential) >= 0) & (np.asarray(confidential) <= self.n))
            return None if inside else f"must be numbers of ones among n = {self.n} by construction"
        if self.on == "counts" or np.all((np.asarray(confidential) >= 0) & (np.asarray(confidential) < categories)):
            return None
        return f"must hold categories 0 to {categories - 1} by construction"

    def record_parts(self, shape: tuple[int, ...]) -> int:
        """How many answers a record may give: those along the axes after the first, or one to each table or number."""
        return math.prod({"records": shape[1:], "counts": shape[:-1], "ones": shape}[self.on])

    def misfit(self, released: tuple[int, ...], confidential: tuple[int, ...]) -> str | None:
        """Shapes must agree; for counts, except in the number of categories on the last axis."""
        if self.on != "counts":
            return super().misfit(released, confidential)
        expected = (*released[:-1], len(self.channel))
        return None if confidential == expected else f"must have shape {expected}, counts of the true categories"


def draw(rng: np.random.Generator, table: Any, true: Any) -> Any:
    """One reported category per true one: how many steps of its row's distribution function a uniform has passed."""
    passed = np.cumsum(table, axis=1)
    after = np.cumsum(table[:, ::-1], axis=1)[:, ::-1]
    passed[:, :-1][after[:, 1:] == 0] = 1.0  # no later column is possible: rounding must not lead to one
    uniform = rng.random(true.shape)
    reported = np.zeros(true.shape, dtype=np.int64)
    for column in range(table.shape[1] - 1):
        reported += uniform >= passed[true, column]
    return reported


def _channel(who: str, channel: Any, keep: Any, epsilon: Any, categories: Any) -> Any:
    if channel is not None:
        if categories is not None:
            raise refusal(who, "categories", "must not come together with channel", categories, _ADVICE)
        return _check_channel(who, channel)
    advice = "Give how many categories there are."
    size = 2 if categories is None else checks.integer(who, "categories", categories, least=2, advice=advice)
    if keep is not None:
        share = checks.numeric(who, "keep", keep, "Give one probability.")
        if not isinstance(share, float) or not 0.0 <= share <= 1.0:
            raise refusal(who, "keep", "must be one probability between 0 and 1", keep, "Give the share that is kept.")
        change = (1.0 - share) / (size - 1)
    else:
        budget = checks.positive_number(who, "epsilon", epsilon, "Give one positive number.")
        if budget > LARGEST_EPSILON:
            rule = f"must be at most {LARGEST_EPSILON:g}, or a change has probability zero in floating point"
            raise refusal(who, "epsilon", rule, epsilon, "Give the channel's identity matrix if nothing was changed.")
        share = 1.0 / (1.0 + (size - 1) * math.exp(-budget))
        change = share * math.exp(-budget)
    return np.where(np.eye(size, dtype=bool), share, change)


def _check_channel(who: str, channel: Any) -> Any:
    advice = "Rows are true categories, columns reported ones."
    table = checks.numeric(who, "channel", channel, advice)
    if np.ndim(table) != 2 or min(np.shape(table)) < 2:
        raise refusal(who, "channel", "must be a matrix with at least two rows and columns", channel, advice)
    if not np.all(np.isfinite(table)) or np.any(table < 0):
        raise refusal(who, "channel", "must hold probabilities", channel, advice)
    if np.any(np.abs(table.sum(axis=1) - 1.0) > 1e-12):
        raise refusal(who, "channel", "must have rows that sum to 1, to 1e-12", channel, "Give all digits.")
    return table


def _guarantee(table: Any) -> Guarantee | None:
    used = table[:, table.max(axis=0) > 0]
    if np.any(used == 0):
        return None  # some report rules out a category: no finite epsilon
    epsilon = float(np.max(np.log(used.max(axis=0)) - np.log(used.min(axis=0))))
    return Guarantee(epsilon=epsilon, neighbours="replace-one")


def _check_size(who: str, table: Any, n: int) -> None:
    cells = reported_counts.largest_grid(table, n)
    if cells > reported_counts.GRID:
        rule = f"must keep the grid of partial counts within {reported_counts.GRID} cells; here {cells}"
        advice = (
            "This channel has no short cut, and the exact law of counts costs that much. Model the reported counts "
            "as Multinomial(n, share @ channel), released with Exact()."
        )
        raise refusal(who, "n", rule, n, advice)


def _check_counts(true: Any, categories: int, n: int | None) -> None:
    who = "RandomizedResponse.sample"
    if true.ndim == 0 or true.shape[-1] != categories:
        rule = f"must have {categories} counts along the last axis"
        raise refusal(who, "confidential", rule, true, "Give one count per true category.")
    if np.any(true < 0) or np.any(true.sum(axis=-1) != n):
        raise refusal(who, "confidential", f"must be counts that sum to n = {n}", true, "Check the model and n.")


def _check_ones(who: str, argument: str, ones: Any, n: int | None) -> None:
    if np.any((ones < 0) | (ones > n)):
        raise refusal(who, argument, f"must be numbers of ones among n = {n}", ones, "Check it, and n.")


def _index(xp: Any, value: Any, size: int) -> tuple[Any, Any]:
    """`value` as an index below `size`, and where it is one."""
    index = xp.clip(value, 0, size - 1).astype(int)
    return index, index == value
