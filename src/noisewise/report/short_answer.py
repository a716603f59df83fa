"""The short answer in sentences: the quantities asked for, beside the naive answer, and the prior's part.

The report, the page and the terminal all show it. The quantities asked for are the derived ones: [answers] in a file.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from noisewise.inference.status import POSTERIOR
from noisewise.report.markup import number, whole
from noisewise.report.words import in_sentence, named
from noisewise.results.goal import Goal
from noisewise.results.labels import label_of, owner_of
from noisewise.results.posterior import Posterior

MOST = 8
"""Quantities in sentences, at most; the table has all."""
MOST_OF_PRIOR = 3
"""Sentences, at most, on how far the release changed what the prior said."""
MOVED = 0.25
"""Standard deviations of the prior that count as a move."""


def in_order(posterior: Posterior, table: Any) -> Any:
    """A table by quantity, with the quantities asked for first."""
    first = [label for label in table.index if _name(label) in posterior.derived]
    return table.loc[[*first, *(label for label in table.index if _name(label) not in posterior.derived)]]


def sentences(report: Any) -> list[str]:
    """Sentences on the quantities asked for, or on all where none was, and on how much of each is prior."""
    posterior = report.posterior
    table = in_order(posterior, report.summary)
    asked = [label for label in table.index if not posterior.derived or _name(label) in posterior.derived]
    naive = report.comparison.naive.summary(report.level) if report.comparison is not None else None
    said = [_answer(report, str(label), table.loc[label], naive) for label in asked[:MOST]]
    if len(asked) > MOST:
        said.append(f"{len(asked) - MOST:,} more are in the table of answers.")
    first = {_name(label): str(label) for label in reversed(asked)}
    parts = [_prior_part(report, first[name]) for name in dict.fromkeys(map(_name, asked))]
    doubt = naive_doubt(report)
    said += planned(report)
    return said + ([doubt] if doubt else []) + [part for part in parts if part][:MOST_OF_PRIOR]


def planned(report: Any) -> list[str]:
    """The target that the release was designed for, where the file states one, beside what was reached."""
    content = (report.content or {}).get("design")
    if not content:
        return []
    target = named(Goal.read("report", content["target"], report.model, report.level), report.naming)
    row = report.summary.loc[label_of(target.name, target.index, report.posterior.axes)]
    low, high = float(row.iloc[2]), float(row.iloc[3])
    asked = f"The release was designed for a {target.words} of at {'most' if target.falls else 'least'} {target.goal:g}"
    if target.kind in ("width", "sd"):
        reached = high - low if target.kind == "width" else float(row["sd"])
        return [f"{asked}, on average; here it is {number(reached)}."] if np.isfinite(reached) else []
    if target.kind == "power":
        told = "excludes" if low > target.against or high < target.against else "does not exclude"
        return [f"{asked}; here the interval {told} it."]
    column = target.column(report.posterior.draws)
    weight = report.posterior.weights
    above = float(np.average(column > target.against, weights=weight))
    return [f"{asked}; here the chance that it is above is {percent(above)}."]


def naive_doubt(report: Any) -> str:
    """A warning where the naive run itself fell short, else empty; it goes wherever the naive numbers are used."""
    if report.comparison is None or POSTERIOR[report.naive.status].numbers == "usable":
        return ""
    meaning = POSTERIOR[report.naive.status].meaning
    return f"Take what ignoring the noise would have said with care: that run itself fell short. {meaning}"


def _answer(report: Any, label: str, row: Any, naive: Any) -> str:
    posterior, level, name = report.posterior, report.level, _name(label)
    called, unit = report.naming.called(label), report.naming.unit(label)
    kind = ", confidential," if name in posterior.statistics else ""
    beside = (
        naive.loc[label] if naive is not None and name not in posterior.statistics and label in naive.index else None
    )
    if posterior[name].dtype.kind == "b":
        without = "" if beside is None else f" (ignoring the noise: {percent(beside['mean'], beside['ess'])})"
        return f"{called}: probability {percent(row['mean'], row['ess'])}{without}."
    low, high = row.index[2:4]
    shown = _counted if posterior[name].dtype.kind in "iu" else number
    centre = row["median"] if label in posterior.heavy_tails else row["mean"]
    interval = f"between {shown(row[low])} and {shown(row[high])}{unit} with probability {100 * level:g}%"
    without = "" if beside is None else f" (ignoring the noise: {_between(shown, beside[low], beside[high])})"
    return f"{called}{kind} is about {shown(centre)}{unit}: {interval}{without}."


def _prior_part(report: Any, label: str) -> str:
    """How far the release moved and narrowed the prior of a quantity; empty where there is nothing to say."""
    name, posterior = _name(label), report.posterior
    if name not in report.before or posterior[name].dtype.kind == "b" or name in posterior.statistics:
        return ""
    tails = [(1 - report.level) / 2, (1 + report.level) / 2]
    rows = [str(row) for row in report.summary.index if _name(row) == name]
    columns = report.before[name].astype(float).reshape(len(report.before[name]), -1)
    low, high = np.quantile(columns[:, rows.index(label)], tails)
    row = report.summary.loc[label]
    after = row.iloc[3] - row.iloc[2]
    if not np.isfinite(high - low) or high <= low or not np.isfinite(after):
        return ""
    prior = columns[:, rows.index(label)]
    moved = float((row["mean"] - prior.mean()) / prior.std()) if np.isfinite(row["mean"]) else float("nan")
    shown = _counted if posterior[name].dtype.kind in "iu" else number
    centres = f"from {shown(_as_known(prior))} to {shown(row['mean'])}" if np.isfinite(row["mean"]) else ""
    told = _told(after / (high - low), moved, centres)
    called, unit = in_sentence(report.naming.called(label)), report.naming.unit(label)
    return f"Before the release, the prior put {called} between {shown(low)} and {shown(high)}{unit}; {told}."


def _as_known(draws: Any) -> float:
    """The mean of draws, rounded to a power of ten above three of its Monte Carlo errors: it is not known better."""
    error = 3.0 * float(draws.std()) / len(draws) ** 0.5
    step = 10.0 ** np.ceil(np.log10(error)) if 0 < error < np.inf else 0.0
    return float(step * np.round(draws.mean() / step)) if step else float(draws.mean())


def _told(kept: float, moved: float, centres: str) -> str:
    """What the release did: `kept` is the share of the width, `moved` in standard deviations of the prior."""
    changes = []
    if abs(moved) >= MOVED:
        changes.append(f"moved the centre {centres}")
    if abs(1 - kept) > 0.02:
        way = "narrowed" if kept < 1 else "widened"
        changes.append(f"{way} the interval by {number(100 * abs(1 - kept), 2)}%")
    if not changes:
        return "the release hardly changed that: this answer is the prior's"
    told = f"the release {' and '.join(changes)}"
    if kept < 0.5 or not abs(moved) < MOVED:
        return told
    return f"{told}: {'nearly all' if kept > 0.9 else 'much'} of this answer is the prior"


def _between(shown: Callable[[Any], str], low: Any, high: Any) -> str:
    """An interval in words; a single number where both ends are equal."""
    return shown(low) if low == high else f"{shown(low)} to {shown(high)}"


def _counted(value: Any) -> str:
    """A count, rounded to a whole number; a small one that is not whole, such as a mean, keeps two digits."""
    value = float(value)
    return whole(round(value)) if abs(value) >= 10 or value.is_integer() else number(value, 2)


def percent(share: Any, size: float = math.inf) -> str:
    """A probability as a percentage; what is nearly sure is not called sure.

    Where all of `size` effective draws agree, the outcome they have missed has a probability of at most 3 / size, with
    95% certainty: (1 - 3 / size)^size is about exp(-3).
    """
    share = float(share)
    least = max(0.001, 3.0 / size) if share in (0.0, 1.0) else 0.001
    if share < 0.001:
        return f"less than {100 * least:.2g}%"
    if share > 0.999:
        return f"more than {100 * (1 - least):.3g}%"
    return f"{number(100 * share, 3)}%"


def _name(label: Any) -> str:
    return owner_of(str(label))
