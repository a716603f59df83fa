"""Samplers of the exact posterior, and the verb that runs them."""

import logging
from typing import Any

from noisewise import checks
from noisewise.engine import Engine, Threads
from noisewise.errors import InferenceError, refusal
from noisewise.mechanisms import Exact
from noisewise.model import Model
from noisewise.posterior import Posterior
from noisewise.progress import Progress
from noisewise.release import Release
from noisewise.samplers.importance import Importance
from noisewise.samplers.problem import Problem
from noisewise.samplers.rejection import Rejection
from noisewise.settings import Sampler

ADVICE = "Leave it out, and one that applies is chosen."

logger = logging.getLogger("noisewise")


def sample(
    model: Model,
    release: Release,
    sampler: Sampler | None = None,
    *,
    draws: int,
    seed: int,
    engine: Engine | None = None,
    checkpoint: None = None,
    progress: bool | None = None,
    on_failure: str = "raise",
) -> Posterior:
    """Draw from the exact posterior of the model's parameters and confidential statistics given the release.

    Without a `sampler`, one is chosen and `posterior.reason` says why. `seed` decides every number, whatever
    the `engine`. `progress` is a bar: True, False, or None for terminals and notebooks only. A run that cannot
    deliver raises `InferenceError` with the partial result, or returns it with `on_failure="return"`.
    """
    draws = checks.integer("sample", "draws", draws, least=1, advice="Write 10_000, not 1e4.")
    seed = checks.integer("sample", "seed", seed, least=0, advice="Give a whole number from 0 on, for example 1.")
    checks.choice("sample", "on_failure", on_failure, ["raise", "return"])
    if progress is not None and not isinstance(progress, bool):
        raise refusal("sample", "progress", "must be True, False or None", progress, "Leave it out if unsure.")
    if checkpoint is not None:
        raise refusal("sample", "checkpoint", "cannot be kept by this version", checkpoint, "Leave it out.")
    if engine is not None and (isinstance(engine, type) or not hasattr(engine, "execute")):
        raise refusal("sample", "engine", "must be an engine", engine, "For example nw.Threads(2).")
    problem = Problem(model, release)
    reason = "asked for"
    if sampler is None:
        sampler, reason = choose(problem)
        logger.info("%s: %s", type(sampler).__name__, reason)
    elif not isinstance(sampler, Sampler):
        raise refusal("sample", "sampler", "must be a sampler", sampler, "For example nw.Rejection().")
    reason_against = sampler.unfit(problem)
    if reason_against is not None:
        name = type(sampler).__name__
        raise refusal("sample", "sampler", f"must apply to model and release; {name} {reason_against}", name, ADVICE)
    bar = Progress(progress, type(sampler).__name__)
    posterior: Any = sampler.run(problem, draws, seed, engine or Threads(), bar)  # type: ignore[attr-defined]
    object.__setattr__(posterior, "reason", reason)
    if posterior.status != "complete" and on_failure == "raise":
        raise InferenceError(f"{type(sampler).__name__}: {posterior.message}", posterior)
    return posterior


def choose(problem: Problem) -> tuple[Sampler, str]:
    """A sampler for the problem, and why."""
    for name, item in problem.release.items():
        if isinstance(item.mechanism, Exact) and not problem.model.is_discrete(name):
            return (
                Importance(),
                f"'{name}' is continuous and has no noise, so its own density must weigh the draws",
            )
        if isinstance(item.mechanism, Exact) and problem.model.has_density(name):
            return Importance(), f"'{name}' has no noise, and weighting by its density wastes no draw"
    return Rejection(), "every released value has noise of bounded density: independent exact draws"


__all__ = ["Importance", "Rejection", "choose", "sample"]
