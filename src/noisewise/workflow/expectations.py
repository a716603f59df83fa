"""Published values beside what the prior expects of them: a typo, or another unit, is seen before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from noisewise.analysis import Analysis
from noisewise.axes import Axes
from noisewise.diagnostics.surprise import SURPRISING, whole_release
from noisewise.engine import Threads
from noisewise.errors import InputError, NoisewiseError
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose
from noisewise.report.markup import number, whole
from noisewise.results.labels import label_of
from noisewise.samplers.choosing.probe import probe_of

FAR = 10.0
"""Widths of the expected range beyond which a published value is taken for a mistake rather than a surprise."""
MOST = 3
"""Published values that are named, at most."""


class Mistaken(InputError):
    """A published value so far from what the prior expects that one of the two must be wrong."""


@dataclass(frozen=True)
class Expectations:
    """What a probe of the prior tells of the release."""

    tails: Mapping[str, float] | None = None
    """Tail probabilities of the release under the prior; None where there is no such check."""
    sentences: tuple[str, ...] = field(default=())
    """On published values outside what the prior expects, where the release is surprising as a whole."""
    mistaken: bool = False
    """Whether a published value lies so far out that it, or the prior, can only be a mistake."""


def expectations(analysis: Analysis) -> Expectations:
    """The release beside what the prior expects of it, as `nw.forecast` finds it with the same seed."""
    try:
        probe = probe_of(
            Problem(analysis.model, analysis.release), analysis.settings.seed, Threads(), Purpose.CONFLICT_PILOT
        )
        tails, ranges = probe.tails, probe.expected
    except NoisewiseError:  # the run goes on, and the report says that this was not checked
        return Expectations()
    if not tails or whole_release(tails)[1] >= SURPRISING:
        return Expectations(tails)
    surprising = []
    for name, (low, high) in ranges.items():
        item = analysis.release[name]
        axes = Axes({name: tuple(item.coords)}, item.coords)
        for index in np.ndindex(item.shape):
            value, ends = float(np.asarray(item.value)[index]), (float(low[index]), float(high[index]))
            away = max(ends[0] - value, value - ends[1])
            if away > 0:  # withheld values, and ranges that are not known, compare as false
                surprising.append((away / max(ends[1] - ends[0], 1e-300), label_of(name, index, axes), value, ends))
    surprising.sort(key=lambda entry: -entry[0])
    texts = tuple(_sentence(label, value, ends, len(analysis.release)) for _, label, value, ends in surprising[:MOST])
    return Expectations(tails, texts, bool(surprising) and surprising[0][0] > FAR)


def refuse_mistakes(expected: Expectations) -> None:
    """Refuse to run on a value that can only be a mistake."""
    if expected.mistaken:
        advice = "Mend the value, or widen the prior."
        raise Mistaken(f"{expected.sentences[0]} {advice}", who="release", advice=advice)


def _sentence(label: str, value: float, ends: tuple[float, float], statistics: int) -> str:
    what = f"You published {whole(value)}" + ("" if statistics == 1 and "[" not in label else f" for {label}")
    return f"{what}; your prior expects {number(ends[0], 2)} to {number(ends[1], 2)}: a typo, or another unit?"
