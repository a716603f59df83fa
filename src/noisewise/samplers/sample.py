"""`sample`: check the request, choose a sampler where none is named, run it, and fall back where it fails."""

import logging
import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from noisewise import checks
from noisewise.checkpoint.log import NOTHING, Log
from noisewise.checkpoint.opening import opened, settings_of
from noisewise.engine import Engine, Threads, terminable
from noisewise.errors import InferenceError, InputError, NoisewiseWarning, WrongMechanism, refusal
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress, say
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.settings import Sampler
from noisewise.model import Model
from noisewise.release import Release
from noisewise.results.posterior import Posterior
from noisewise.samplers.augmentation import Augmentation
from noisewise.samplers.choosing import choice
from noisewise.samplers.choosing.probe import (
    COLLAPSED,
    MOST_ADAPTED,
    MOST_SUMMED,
    Probe,
    dear,
    explains,
    noise_free,
    probe_of,
    probe_rows,
)
from noisewise.samplers.choosing.reruns import EXPLANATIONS, better, reruns_after
from noisewise.samplers.choosing.second_look import looked_again
from noisewise.samplers.importance import Importance
from noisewise.samplers.integrated import integrated, with_layers
from noisewise.samplers.nuts import NUTS
from noisewise.samplers.proposals.collapsed import Collapse
from noisewise.samplers.proposals.pilot import PilotPlan
from noisewise.samplers.rejection import Rejection

ADVICE = "Leave it out, and one that applies is chosen."
FAR = "the prior has counts too large for 64 bits, or other numbers beyond range, so nothing is simulated there: "
"""Why samplers that simulate draws of the prior are out, where it reaches as far as that of a log rate may."""
WITHOUT_PRIOR_DRAWS = (
    (COLLAPSED, "rows are weighted by the exact likelihood of the release, from a proposal fitted in pilot rounds"),
    (NUTS(), "gradient-based Markov chains over parameters and latent statistics"),
    (Augmentation(), "Markov chains that draw parameters and confidential statistics in turn"),
)
"""Samplers that need no simulation at far draws of the prior, in the order in which they are tried, and why."""
INSTEAD = (
    "Where numbers are beyond range at far draws only, nw.Importance(proposal='adapted', collapse=True), nw.NUTS() and "
    "nw.Augmentation() do without such draws; nw.sample without a sampler tries all three. Where none of them applies, "
    "give a prior that does not reach so far."
)
"""Advice where a sampler that simulates draws of the prior cannot."""
FROM_PRIOR = (Rejection(), Importance())
"""Samplers that evaluate the model at draws of its prior only."""

logger = logging.getLogger("noisewise")


def sample(
    model: Model,
    release: Release,
    sampler: Sampler | None = None,
    *,
    draws: int,
    seed: int,
    engine: Engine | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_failure: str = "raise",
) -> Posterior:
    """Draw from the exact posterior of the model's parameters and confidential statistics given the release.

    Without a `sampler`, one is chosen by `nw.forecast`'s rules and `posterior.reason` says why; where its run misses
    what was forecast, the next is tried. `seed` decides every number: threads, processes and clusters give the same
    draws, an accelerator its own. `posterior.sampler` with `posterior.seed` replays the run. `progress` is a bar: True,
    False, or None for terminals and notebooks only. `checkpoint` is a file in which the run keeps what it has done;
    called again after an interruption it goes on from there, to the same draws. A run that cannot deliver raises
    `InferenceError` with the partial result, or returns it with `on_failure="return"`.
    """
    draws = checks.integer("sample", "draws", draws, least=1, advice="Write 10_000, not 1e4.")
    seed = checks.integer("sample", "seed", seed, least=0, advice="Give a whole number from 0 on, for example 1.")
    checks.choice("sample", "on_failure", on_failure, ["raise", "return"])
    if progress is not None and not isinstance(progress, bool):
        raise refusal("sample", "progress", "must be True, False or None", progress, "Leave it out if unsure.")
    if engine is not None and (not isinstance(engine, Engine)):
        raise refusal("sample", "engine", "must be an engine", engine, "For example nw.Threads(2).")
    problem = Problem(model, release)
    engine_used = engine or Threads()
    if sampler is not None and not isinstance(sampler, Sampler):
        raise refusal("sample", "sampler", "must be a sampler", sampler, "For example nw.Rejection().")
    extra = {} if sampler is not None else {"draws": draws}  # the choice of a sampler depends on them
    with terminable() as results, opened("sample", checkpoint, problem, sampler, seed, engine_used, **extra) as log:
        log.put(None, "begin")
        smaller = integrated(problem, sampler)
        if sampler is None:
            posterior = _sample_by_choice(smaller, draws, seed, engine_used, progress, log)
        else:
            posterior = _run(smaller, sampler, draws, seed, engine_used, progress, "asked for", log.within(0))
            posterior = looked_again(posterior, smaller, seed, engine_used)
        posterior = with_layers(posterior, problem, engine_used)
        results.append(posterior)
        log.put({"status": posterior.status}, "end")
    if posterior.status != "complete" and on_failure == "raise":
        raise InferenceError(posterior.message, posterior, who=type(posterior.sampler).__name__)
    return posterior


def _run(
    problem: Problem,
    sampler: Sampler,
    draws: int,
    seed: int,
    engine: Engine,
    progress: bool | None,
    reason: str,
    log: Log = NOTHING,
    pilot: PilotPlan | None = None,
) -> Posterior:
    """One sampler's run, with the `pilot` of this seed where it has been made already."""
    reason_against = sampler.unfit(problem)
    if reason_against is not None:
        name = type(sampler).__name__
        raise refusal("sample", "sampler", f"must apply to model and release; {name} {reason_against}", name, ADVICE)
    bar = Progress(progress, type(sampler).__name__)
    log.put(settings_of(sampler), "run")
    made: dict[str, Any] = {} if pilot is None else {"pilot": pilot}
    try:
        posterior = sampler.run(problem, draws, seed, engine, bar, log, **made)
    except InputError as error:
        if not error.beyond_range:
            raise
        raise error.advising(INSTEAD) from error
    object.__setattr__(posterior, "reason", reason)
    choice.has_run(problem.model).add(choice.label(sampler))
    return posterior


def _sample_by_choice(
    problem: Problem, draws: int, seed: int, engine: Engine, progress: bool | None, log: Log
) -> Posterior:
    """Try rejection for as long as a probe would take; else run the probe, and go down its ranking."""
    spared, beyond = choice.sparing(problem), None
    probe: Probe | None = None
    try:
        posterior = None if spared else _tried_at_once(problem, draws, seed, engine)
        if posterior is not None:
            logger.info("Rejection: %s", posterior.reason)
            return posterior
        probe = None if spared else probe_of(problem, seed, engine)
    except InputError as error:
        beyond, posterior = error, None
        if not error.beyond_range:
            raise
        _refuse_mistakes(problem, seed)
    steps: list[str] = []
    before = ""
    first_error: InferenceError | InputError | None = None
    again: list[tuple[choice.Estimate, str]] = []
    if probe is not None:
        ranked = _candidates(probe, draws, seed, engine)
    elif spared:
        ranked = iter([(spared, spared.note)])
    else:
        ranked = _without_prior_draws(problem)
    candidates = _with_reruns(ranked, again)
    for number, (estimate, reason) in enumerate(candidates):
        sampler = estimate.sampler
        logger.info("%s: %s", type(sampler).__name__, reason)
        if number:
            say(progress, f"{before} fell short; trying another way: {type(sampler).__name__}")
        before = type(sampler).__name__
        # A fallback starts on new streams: it was called for by what the run before it drew.
        own_seed = seed if number == 0 else int(generator(seed, Purpose.FALLBACK, number).integers(2**53))
        history, pilot = "; ".join([*steps, reason]), estimate.pilot if own_seed == seed else None
        try:
            latest = _run(problem, sampler, draws, own_seed, engine, progress, history, log.within(number), pilot)
        except (InferenceError, InputError) as error:  # nowhere to start from, or beyond range: the next may find a way
            far = error if isinstance(error, InputError) and error.beyond_range else None
            if (sampler in FROM_PRIOR and not far) or isinstance(error, WrongMechanism):
                raise  # the model fails at draws of its own prior: no sampler's way round makes it right
            logger.info("%s", error)
            if far is not None and beyond is None:
                beyond = far
                again += reversed(list(_without_prior_draws(problem)))
            if posterior is not None and posterior.status == "complete":  # with larger steps: the best there is
                break
            first_error = first_error or error
            steps.append(f"{type(sampler).__name__} ({reason}) could not go on")
            continue
        latest = looked_again(latest, problem, seed, engine, probe)
        held = posterior is not None and posterior.status == "complete"
        posterior, reruns = better(posterior, latest), reruns_after(estimate, latest, reason, draws)
        if reruns is None or (held and not reruns.again):
            break
        again += reruns.again
        steps.append(reruns.step)
        logger.info("%s ended with '%s': %s", type(sampler).__name__, latest.status, latest.message)
    if posterior is None and first_error is None and beyond is not None:
        raise beyond.advising(INSTEAD)
    if posterior is None:
        raise first_error or InferenceError(
            "no sampler could start. Check the model against the release.", who="sample"
        )
    return posterior


def _candidates(probe: Probe, draws: int, seed: int, engine: Engine) -> Iterator[tuple[choice.Estimate, str]]:
    """Samplers in the order of the forecast, each with why; the full ranking is made only when it comes to that."""
    first = choice.settled(probe, draws)
    if first:
        yield first[0], choice.reason_for(first, probe)
    collapsed = None
    if not first:
        first, collapsed = choice.by_likelihood(probe, draws, seed, engine)
        if first:
            yield first[0], choice.reason_for(first, probe)
    ranking = choice.ranked_estimates(probe, draws, seed, engine, collapsed)
    if not ranking:
        raise _nothing_applies(probe.problem)
    for number, estimate in enumerate(ranking):
        if number and estimate.work > choice.MOST_FALLBACK:
            continue
        if not first or estimate.sampler != first[0].sampler:
            why = choice.reason_for(ranking, probe) if number == 0 else f"the next in the forecast: {estimate.note}"
            yield estimate, why
        if number == 0 and explains(probe):
            yield choice.Estimate(COLLAPSED, 0.0, 1.0, EXPLANATIONS), EXPLANATIONS


def _refuse_mistakes(problem: Problem, seed: int) -> None:
    """Look at draws of the prior that are in range: laws that fail there are mistakes, which no sampler makes right."""
    try:
        problem.model.drawable(generator(seed, Purpose.CHOICE), problem.model.order, probe_rows(problem))
    except InputError as error:
        if not error.beyond_range:
            raise


def _without_prior_draws(problem: Problem) -> Iterator[tuple[choice.Estimate, str]]:
    """What applies of the samplers that can go on where the prior cannot be simulated.

    Where there are too many unknowns for a fitted proposal, or sums are too long for it, chains come first.
    """
    model = problem.model
    unknowns = sum(max(1, math.prod(model.shape(name))) for name in model.parameters)
    fitting = [one for one in WITHOUT_PRIOR_DRAWS if one[0].unfit(problem) is None]
    many = (
        unknowns > MOST_ADAPTED
        or dear(problem)
        or (COLLAPSED.unfit(problem) is None and Collapse.of(problem).work > MOST_SUMMED)
    )
    fitting.sort(key=lambda one: bool(many and one[0] == COLLAPSED))
    for sampler, note in fitting:
        yield choice.Estimate(sampler, 0.0, 1.0, FAR + note), FAR + note


def _with_reruns(
    candidates: Iterator[tuple[choice.Estimate, str]], again: list[tuple[choice.Estimate, str]]
) -> Iterator[tuple[choice.Estimate, str]]:
    """Each candidate, and after it the estimates that its run has added to `again`."""
    for candidate in candidates:
        yield candidate
        while again:
            yield again.pop()


def _tried_at_once(problem: Problem, draws: int, seed: int, engine: Engine) -> Posterior | None:
    """Rejection's result, if it costs no more than a probe would; else None."""
    limit = choice.trial_limit(problem)
    if draws > limit or Rejection().unfit(problem) is not None or noise_free(problem) is not None:
        return None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", NoisewiseWarning)
        posterior = Rejection(max_proposals=limit).run(problem, draws, seed, engine, Progress(False, "Rejection"))
    for warning in warned:
        if posterior.status == "complete" or warning.category is not NoisewiseWarning:  # an early end is no news
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if posterior.status == "interrupted":
        return replace(posterior, reason="interrupted while the sampler was being chosen")
    if posterior.status != "complete":
        return None
    reason = (
        "every released value has noise of bounded density, and rejection gave the independent exact draws at once, "
        f"from {posterior.proposals:,} simulated rows"
    )
    choice.has_run(problem.model).add(choice.label(Rejection()))
    return replace(posterior, sampler=Rejection(), reason=reason)


def _nothing_applies(problem: Problem) -> InputError:
    samplers = choice.public_samplers().items()
    against = "; ".join(f"{name} {why}" for name, cls in samplers if (why := cls().unfit(problem)) is not None)
    rule = f"must allow some sampler to apply; {against}"
    return refusal("sample", "release", rule, sorted(problem.release), "Give noise, or a law with a density.")


def forecast_of(problem: Problem, draws: int, seed: int, engine: Engine) -> tuple[list[choice.Estimate], str, Probe]:
    """Every sampler that applies, best first; why the first, which `sample` would choose; and the probe behind it."""
    probe = probe_of(problem, seed, engine)
    ranking = choice.ranked_estimates(probe, draws, seed, engine)
    if not ranking:
        raise _nothing_applies(problem)
    return ranking, choice.reason_for(ranking, probe), probe
