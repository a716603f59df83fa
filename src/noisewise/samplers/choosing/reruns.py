"""What follows a run of `nw.sample`: it is the last, or is made again in another way, or another sampler takes over."""

import math
from dataclasses import dataclass, replace

from noisewise.inference.settings import Sampler
from noisewise.inference.status import POSTERIOR
from noisewise.results.posterior import Posterior
from noisewise.samplers.choosing.choice import MOST_FALLBACK, SAFETY, Estimate
from noisewise.samplers.judging import LONGER

NEARLY = 1.1
"""R-hat below which longer chains are expected to agree."""
SOME_DIVERGE = 0.001
"""Share of divergent transitions from which on a complete run is tried again with smaller steps."""
MOST_AGAIN = 2.0**30
"""Most work, a minute of it, of such a trial."""
EXPLANATIONS = "several explanations have proposals of their own, weighed apart by the exact likelihood"
"""Why what fits proposals follows chains that may each have kept to one explanation of the release."""
ANEW = ("the same from another search", "the same from a third search")
"""Why a sampler whose proposal had missed a part of the posterior runs again."""

Rerun = tuple[Estimate, str]
"""The estimate of a run, and why it is made."""


@dataclass(frozen=True)
class Reruns:
    """Why a run is not the last one, and what to run before the next sampler in the forecast: nothing, or it again."""

    step: str
    again: list[Rerun]


def reruns_after(estimate: Estimate, posterior: Posterior, reason: str, draws: int) -> Reruns | None:
    """What follows the run that `estimate` and `reason` called for; None where it is the last."""
    run = f"{type(estimate.sampler).__name__} ({reason})"
    if posterior.status == "complete" and (finer := _finer(estimate, posterior)):
        return Reruns(f"{run} was put aside, since {posterior.diagnostics['divergences']} transitions diverged", finer)
    if not _worth_another(posterior, draws):
        return None
    again = _again(estimate, posterior) or _searching_anew(estimate, posterior, reason)
    return Reruns(f"{run} ended with '{posterior.status}' and was discarded", again)


def better(held: Posterior | None, latest: Posterior) -> Posterior:
    """The one to return of the best result so far and the latest: a complete one, or one that no other improves on."""
    if held is None or latest.status == "complete":
        return latest
    if held.status == "complete":
        return held
    return replace(held, reason=latest.reason) if POSTERIOR[latest.status].another else latest


def _again(estimate: Estimate, posterior: Posterior) -> list[Rerun]:
    """The same chains with smaller steps, where some diverged; or longer ones, where they had nearly met; or nothing.

    Divergences come first: chains that avoid a place agree with each other however long they are.
    """
    diverged = posterior.diagnostics.get("divergences", 0) > 0
    nearly = float(posterior.diagnostics.get("r_hat", math.inf)) < NEARLY
    apart = posterior.status in ("disagree", "low_ess") and nearly
    if posterior.status == "divergent" or (apart and diverged):
        finer = _with_smaller_steps(estimate, posterior.sampler, MOST_FALLBACK)
        if finer:
            return finer
    if apart and (longer := posterior.sampler.longer()):
        return _within_means(estimate, longer, LONGER, f"the same chains, {LONGER} times as long", MOST_FALLBACK)
    return []


def _finer(estimate: Estimate, posterior: Posterior) -> list[Rerun]:
    """Smaller steps in place of a complete run in which some transitions diverged, where these take a minute at most.

    A few in a thousand are no verdict, but may stand where a part of the posterior is missing.
    """
    iterations = len(posterior) * (getattr(posterior.sampler, "thin", None) or 1)
    if posterior.diagnostics.get("divergences", 0) <= SOME_DIVERGE * iterations:
        return []
    return _with_smaller_steps(estimate, posterior.sampler, MOST_AGAIN)


def _with_smaller_steps(estimate: Estimate, sampler: Sampler, most: float) -> list[Rerun]:
    finer = sampler.finer()
    return _within_means(estimate, finer, 2, "the same chains with smaller steps", most) if finer else []


def _within_means(estimate: Estimate, sampler: Sampler, times: int, reason: str, most: float) -> list[Rerun]:
    """The estimate of this sampler, which takes so many times the work, and the reason for it, unless that is dear."""
    # `work` is that of as many effective draws as were asked for; the chains give as many rows
    if times * estimate.work * estimate.efficiency > most:
        return []
    return [(replace(estimate, sampler=sampler, work=times * estimate.work, pilot=None), reason)]


def _searching_anew(estimate: Estimate, posterior: Posterior, reason: str) -> list[Rerun]:
    """The same sampler with another search, where its fitted proposal had missed a part, or a tail; twice at most.

    Of many unknowns with several explanations, a proposal that is worth little has missed its aim, too.
    """
    amiss = ("unseen", "high_k", "low_ess") if estimate.note == EXPLANATIONS else ("unseen", "high_k")
    missed = posterior.status in amiss and getattr(posterior.sampler, "collapse", False)
    if not missed or reason == ANEW[-1] or estimate.work > MOST_FALLBACK:
        return []
    following = ANEW[ANEW.index(reason) + 1] if reason in ANEW else ANEW[0]
    return [(replace(estimate, pilot=None), following)]


def _worth_another(posterior: Posterior, draws: int) -> bool:
    """Whether another sampler could do better than a run that ended like this."""
    if posterior.status == "low_ess":  # too few draws asked for are too few by any sampler's measure
        return draws >= SAFETY * float(getattr(posterior.sampler, "min_ess", 0.0))
    return POSTERIOR[posterior.status].another
