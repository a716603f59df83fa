"""The form beside the analysis file: what stands in the file, and the file with a number of it changed in place."""

import copy
import tomllib
from dataclasses import dataclass, field
from typing import Any

from noisewise.analysis import Analysis, DesignFile
from noisewise.analysis import toml as toml_text
from noisewise.analysis.expected import law_between, short, typed_ends
from noisewise.errors import InputError, Path
from noisewise.model.prior import prior_spread
from noisewise.results.naming import Naming

NOISE = ("epsilon", "scale", "rho", "mu", "keep")
"""Arguments that say how much noise there is; the form shows the first of these that a statistic states."""
BY_HAND = "This cannot be changed by the form: change it in the analysis file."


@dataclass(frozen=True)
class PageForm:
    """What the form shows of a file that is in order."""

    values: dict[str, str] = field(default_factory=dict)
    """Published values by statistic, as the file has them."""
    noise: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By statistic: which argument says how much noise, and its value."""
    priors: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By parameter: the ends of the middle 95% of its prior."""
    called: dict[str, str] = field(default_factory=dict)
    """What people call the statistics and parameters, with their names in the file."""


def form_of_analysis(analysis: Analysis | DesignFile) -> PageForm:
    """The form of an analysis: priors, and values and noise if the file itself holds them; of a plan, its priors."""
    stated = analysis.content.get("release")
    entries = stated if isinstance(stated, dict) and isinstance(analysis, Analysis) else {}
    values = {name: _shown(entries[name]["value"]) for name in entries if _has(entries, name, "value")}
    noise: dict[str, tuple[str, str]] = {}
    for name in values:
        key = next((key for key in NOISE if _has(entries, name, key)), None)
        if key is not None:
            noise[name] = (key, _shown(entries[name][key]))
    model = analysis.model
    plain = [name for name in model.parameters if not model.parents(name) and model.shape(name) == ()]
    priors = {name: _between(model, name, analysis.content["parameters"].get(name)) for name in plain}
    naming = Naming.of(analysis.content)
    return PageForm(values, noise, priors, {name: naming.listed(name) for name in (*values, *priors)})


def _has(entries: dict[str, Any], name: str, key: str) -> bool:
    return isinstance(entries.get(name), dict) and key in entries[name]


def _between(model: Any, name: str, law: Any) -> tuple[str, str]:
    """The ends of the middle 95% of a prior: the numbers that were typed, if the law was made from two numbers."""
    prior = prior_spread(model, name)
    return typed_ends(prior.low, prior.high, str(law)) or (short(prior.low), short(prior.high))


def _shown(value: Any) -> str:
    return toml_text.written(value)


def with_value(text: str, statistic: str, key: str, typed: str) -> str:
    """The file with `value`, or an argument of the noise, of a released statistic changed."""
    return replaced(text, ("release", statistic, key), typed.strip())


def with_prior(text: str, parameter: str, low: str, high: str) -> str:
    """The file with the prior whose middle 95% lies between the two ends."""
    try:
        ends = float(low), float(high)
    except ValueError:
        advice = "Give two numbers, the smaller first, without commas: between 16.5 and 36000."
        raise InputError(advice) from None
    present = toml_text.from_toml(text, "analysis file").at(("parameters", parameter))
    return replaced(text, ("parameters", parameter), f'"{law_between(*ends, str(present))}"')


def replaced(text: str, path: Path, new: str) -> str:
    """`text` with the value at `path` written as `new`; every other character stays."""
    document = toml_text.from_toml(text, "analysis file")
    place = document.places.get(path)
    if place is None:
        raise InputError(BY_HAND)
    end = _end(document.text, place)
    changed = document.text[: place.value] + new + document.text[end:]
    try:
        after = tomllib.loads(changed)
        wanted = copy.deepcopy(document.content)
        inner: Any = wanted
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = tomllib.loads(f"x = {new}")["x"]
    except (ValueError, RecursionError):
        raise InputError("Give a number such as 37.4, or a list such as [103, 188].") from None
    if after != wanted:
        raise InputError(BY_HAND)
    return changed


def _end(text: str, place: toml_text.Offsets) -> int:
    """Where the value ends: behind its quotation mark or last bracket, or at the end of the word."""
    if place.characters:
        return place.characters[-1] + 1
    closing = {"[": "]", "{": "}"}.get(text[place.value])
    if closing is None:
        at = place.value
        while at < len(text) and text[at] not in " \t\n,]}#":
            at += 1
        return at
    depth = 0
    for at in range(place.value, len(text)):
        depth += (text[at] == text[place.value]) - (text[at] == closing)
        if depth == 0:
            return at + 1
    return len(text)
