"""A release in words, for the terminal: where it comes from, what was published, what privacy was promised."""

import textwrap
from collections.abc import Sequence

from noisewise.mechanisms import Released
from noisewise.release import Release
from noisewise.report import noise, words
from noisewise.report.markup import listed

WIDTH = 100
LINES = {
    "source": "Source",
    "date": "Published",
    "licence": "Licence",
    "contact": "Contact",
    "privacy_unit": "Unit of privacy",
}
SHOWN = 6
"""Labels listed one by one."""


def described(release: Release) -> str:
    """All that the release says about itself; published values are left to the file."""
    said = release.about
    head = [said[key] for key in ("title", "description") if key in said] or ["A release without a title."]
    lines = [f"{title}: {said[key]}" for key, title in LINES.items() if key in said]
    blocks = ["\n\n".join(map(_wrapped, head)), "\n".join(lines), _block("What was published", published(release))]
    blocks.append(_block("What privacy was promised", promised(release)))
    if "extra" in said:
        blocks.append(f"Further fields: {listed(list(said['extra']))}.")
    return "\n\n".join(block for block in blocks if block) + "\n"


def published(release: Release) -> list[str]:
    """What each statistic is, and what was done to it."""
    return [" ".join(sentences_about(name, item)) for name, item in release.items()]


def promised(release: Release) -> list[str]:
    """The guarantee, of the whole and of its parts, and whose record it speaks of."""
    unit = release.about.get("privacy_unit")
    return [*words.guarantees(release), *([f"A record is that of {unit}."] if unit else [])]


def sentences_about(name: str, item: Released) -> list[str]:
    """What one statistic is, which entries it has, and what was done to it."""
    said = item.about
    what = [said["description"]] if "description" in said else []
    along = [f"{axis} ({_some(labels)})" for axis, labels in item.coords.items()]
    what += [f"entries by {listed(along)}"] if along else []
    what += [f"in {said['unit']}"] if "unit" in said else []
    sentences = [_ended(f"{name}: {'; '.join(what)}")] if what else []
    sentences.append(noise.sentence(name, item))
    if "bounds" in said:
        low, high = said["bounds"]
        sentences.append(f"Each record was first clamped to {low:g} to {high:g}.")
    if "records" in said:
        sentences.append(f"There were {said['records']:,} records.")
    return sentences


def _some(labels: Sequence[object]) -> str:
    shown = [str(label) for label in labels]
    if len(shown) <= SHOWN:
        return ", ".join(shown)
    return f"{len(shown):,}: {', '.join(shown[: SHOWN - 2])}, ..., {shown[-1]}"


def _ended(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _block(title: str, sentences: list[str]) -> str:
    return "\n".join([title, *(_wrapped(sentence, "  - ", "    ") for sentence in sentences)])


def _wrapped(text: str, first: str = "", others: str = "") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
