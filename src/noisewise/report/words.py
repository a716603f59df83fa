"""Sentences of the report: the privacy guarantee, naive beside exact, what privacy cost, how to cite."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from noisewise._version import __version__
from noisewise.errors import InputError
from noisewise.mechanisms import Guarantee
from noisewise.release import Release
from noisewise.report.markup import listed, number, whole
from noisewise.results.goal import Goal
from noisewise.results.information import Lost
from noisewise.results.naming import Naming

SOFTWARE = (
    f"The noisewise developers. noisewise: exact statistical inference from differentially private releases, version "
    f"{__version__}."
)
PAPER = (
    "Gong, Ruobin (2022). Exact Inference with Approximate Computation for Differentially Private Data via "
    "Perturbations. Journal of Privacy and Confidentiality 12(2)."
)
DOI = "10.29012/jpc.797"


def guarantees(release: Release) -> list[str]:
    """What was promised about privacy: of the whole where that is known, and of each statistic that states one."""
    stated = {name: release.guarantee_of(name) for name in release}
    known = {name: guarantee for name, guarantee in stated.items() if guarantee is not None}
    try:
        whole_of = release.guarantee
    except InputError as error:
        whole_of = None
        problem = f"The statistics' guarantees do not add up to one for the whole: {error}"
    else:
        problem = "No guarantee is stated for the release as a whole."
    if not known and whole_of is None:
        return ["The release states no privacy guarantee: it gives the noise alone, which is all that inference needs."]
    rest = release.left_out
    others = f", with {listed(list(rest))}, which {'is' if len(rest) == 1 else 'are'} not used here," if rest else ""
    together = f"All of it together{others}"
    sentences = [f"{together} {_guarantee(whole_of)}" if whole_of is not None else problem]
    groups = release.to_dict().get("disjoint", {}).get("groups", [])
    if groups and whole_of is not None:
        apart = listed([listed(group) for group in groups])
        sentences.append(f"The records behind {apart} have nobody in common, so that their guarantees do not add up.")
    if len(release) > 1 or whole_of is None:
        sentences += [f"{name} by itself {_guarantee(guarantee)}" for name, guarantee in known.items()]
    return sentences


def _guarantee(guarantee: Guarantee) -> str:
    neighbours = {
        "add-remove": "with and without any one record",
        "replace-one": "whatever any one record holds",
        None: "with one record changed (how, is not stated)",
    }[guarantee.neighbours]
    match guarantee.kind:
        case "mu":
            return (
                f"is {whole(guarantee.mu)}-GDP: {neighbours}, telling the two data sets apart is no easier than "
                f"telling a single draw of a standard normal law from one with mean {whole(guarantee.mu)}."
            )
        case "rho":
            return f"is {whole(guarantee.rho)}-zCDP (zero-concentrated differential privacy), {neighbours}."
        case "approximate":
            return (
                f"is ({whole(guarantee.epsilon)}, {whole(guarantee.delta)})-differentially private: {neighbours}, the "
                f"probability of any outcome changes by a factor of at most {_factor(guarantee.epsilon)}, plus at most "
                f"{whole(guarantee.delta)}."
            )
        case _:
            return (
                f"is {whole(guarantee.epsilon)}-differentially private: {neighbours}, the probability of any outcome "
                f"changes by a factor of at most {_factor(guarantee.epsilon)}."
            )


def _factor(epsilon: float | None) -> str:
    assert epsilon is not None
    return number(math.exp(epsilon)) if epsilon < 20 else f"exp({whole(epsilon)})"


def in_sentence(label: str) -> str:
    """A label as it stands within a sentence: "The number of cases" becomes "the number of cases"."""
    return f"the {label[4:]}" if label.startswith("The ") else label


def named(target: Goal, naming: Naming) -> Goal:
    """A design's target, with what people call its quantity in place of its name."""
    return replace(target, called=in_sentence(naming.called(target.of)))


def beside(label: str, row: Any, level: float) -> str:
    """One row of a comparison's table in words."""
    ends = [column for column in row.index if column.endswith("%")]
    naive, exact = ([row[column] for column in ends if column.startswith(kind)] for kind in ("naive", "exact"))
    width, shift = float(row["wider"]), float(row["shift"])
    label = in_sentence(label)
    claimed = f"at {number(naive[0])}" if naive[0] == naive[1] else f"between {number(naive[0])} and {number(naive[1])}"
    sentence = (
        f"Read without the noise, the published values put {label} {claimed}. "
        f"With it, {label} lies between {number(exact[0])} and {number(exact[1])} (probability {100 * level:g}%)"
    )
    if not np.isfinite(width) or not np.isfinite(shift):
        return sentence + "."
    if width > 1.05:
        size = f"{number(width, 2)} times as wide"
    elif width < 0.95:
        size = f"narrower, {number(width, 2)} times as wide"
    else:
        size = "about as wide"
    return f"{sentence}: {size}, {_shift(shift)}."


def _shift(shift: float, unit: str = "standard deviation") -> str:
    if abs(shift) < 0.1:
        return "in about the same place"
    side = "higher" if shift > 0 else "lower"
    units = unit if number(abs(shift), 2) == "1.0" else f"{unit}s"
    return f"and its centre is {number(abs(shift), 2)} naive {units} {side}"


def estimates(label: str, row: Any) -> str:
    """One row of `Fit.beside` in words."""
    naive, exact = ((row[f"{kind} estimate"], row[f"{kind} standard error"]) for kind in ("naive", "exact"))
    label = in_sentence(label)
    sentence = (
        f"Read without the noise, the published values put {label} at {number(naive[0])}, give or take "
        f"{number(naive[1])}. With it, the estimate is {number(exact[0])}, give or take {number(exact[1])}"
    )
    wider, shift = float(row["wider"]), float(row["shift"])
    if not np.isfinite(wider) or not np.isfinite(shift):
        return sentence + "."
    size = "about as sure" if 0.95 <= wider <= 1.05 else f"{number(wider, 2)} times the naive standard error"
    return f"{sentence}: {size}, {_shift(shift, 'standard error')}."


def information_kept(label: str, share: float) -> str:
    """How much of the information in the confidential statistics the release keeps, in words."""
    if not 0.0 < share <= 1.0 + 1e-6:
        return ""
    if share > 0.99:
        return f"The noise cost hardly any information about {label}."
    return (
        f"The release keeps about {number(100 * share, 2)}% of the information about {label} that the confidential "
        f"statistics hold: the standard error is {number(share**-0.5, 2)} times what it would be without noise."
    )


def cost(loss: Lost, level: float) -> str:
    """What privacy cost for one parameter."""
    sentences = ""
    if loss.noise_share is not None:
        share = 100 * loss.noise_share
        if share < 1:
            sentences = f"Hardly anything of what is unknown about {loss.label} is due to the noise. "
        else:
            sentences = (
                f"About {number(share, 2)}% of the variance left in {loss.label}, or more, is due to the noise: it "
                "would go, on average, if the confidential statistics themselves were published. "
            )
    if not np.isfinite(loss.narrowed):
        return sentences.strip() or f"{loss.label} does not vary."
    before = f"from {number(loss.before[0])} to {number(loss.before[1])}"
    change = 100 * loss.narrowed
    if change > 2:
        moved = f"the release narrowed it by {number(change, 2)}%"
    elif change < -2:
        moved = f"after the release it is {number(-change, 2)}% wider"
    else:
        moved = "the release left its width as it was"
    return f"{sentences}Before the release its {100 * level:g}% interval went {before}; {moved}."
