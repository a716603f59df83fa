"""How a run can end: the one table of statuses of posteriors, fits and designs, and what each means.

Results refuse a status that is not in it. docs/messages.md lists them with what to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from noisewise import checks

Worth = Literal["usable", "doubtful", "unusable"]


@dataclass(frozen=True)
class Status:
    """One way in which a run can end."""

    name: str
    meaning: str
    """One sentence for a person."""
    numbers: Worth
    another: bool = False
    """Whether another sampler is worth trying: the run missed its forecast."""
    exit_code: int = 1
    """The exit code of the command line; a run that a signal ended may have another."""


def _table(*rows: Status) -> Mapping[str, Status]:
    return MappingProxyType({row.name: row for row in rows})


POSTERIOR = _table(
    Status("complete", "All draws are there and pass their checks.", "usable", exit_code=0),
    Status("max_proposals", "The run reached its limit of proposals.", "doubtful", another=True),
    Status("max_seconds", "The run reached its limit of time.", "doubtful"),
    Status("interrupted", "The run was interrupted.", "doubtful", exit_code=130),
    Status("low_ess", "The draws are worth fewer than were asked for.", "doubtful", another=True),
    Status("hopeless", "The sampler found no place from which the release could have come.", "unusable", another=True),
    Status("no_weight", "No draw could have given the release.", "unusable", another=True),
    Status("high_k", "A few draws carry nearly all the weight.", "unusable", another=True),
    Status("stuck", "Some chains never moved.", "unusable", another=True),
    Status("disagree", "The chains do not agree with each other.", "unusable", another=True),
    Status("unseen", "A search found part of the answer where no draw is.", "unusable", another=True),
    Status("divergent", "Parts of the answer may be missing.", "unusable", another=True),
)
"""Statuses of a sampler's run, by name."""

FIT = _table(
    Status("converged", "The climb ended at a maximum.", "usable", exit_code=0),
    Status("boundary", "The estimate runs to the edge of what a parameter can be.", "unusable"),
    Status(
        "flat",
        "The likelihood has no single top: some combination of the parameters cannot be told from this release.",
        "unusable",
    ),
    Status("stalled", "The climb stopped before the top.", "unusable"),
    Status("rough", "The simulation is too rough to tell where the top is.", "unusable"),
    Status("thin", "Too few of the simulated values carry the weight to tell where the top is.", "unusable"),
    Status(
        "inexact", "Sums or integrals over the confidential values are not accurate enough to build on.", "unusable"
    ),
    Status("max_iterations", "The climb reached its limit of steps.", "unusable"),
    Status("interrupted", "The climb was interrupted.", "unusable", exit_code=130),
)
"""Statuses of an estimator's climb, by name."""


DESIGN = _table(
    Status("complete", "The budget, the number of people or the split is found.", "usable", exit_code=0),
    Status("everywhere", "All that was looked at reaches the goal.", "usable", exit_code=0),
    Status("nowhere", "Nothing that was looked at reaches the goal.", "unusable"),
    Status("noisy", "The Monte Carlo error is larger than asked for.", "doubtful", exit_code=0),
    Status("edge", "A share of the budget is as small as it may be.", "usable", exit_code=0),
    Status("tied", "Another candidate cannot be told from the best.", "usable", exit_code=0),
)
"""Statuses of a search for a budget, a number of people or a split, by name."""


def check_status(who: str, name: str, table: Mapping[str, Status]) -> None:
    """Refuse a status that is not in the table."""
    checks.known_name(who, "status", name, table, "must be a known status")
