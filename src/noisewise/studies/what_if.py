"""The posterior had the noise been another: draws weighed again, or drawn anew where weights fail."""

from dataclasses import replace
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.diagnostics import weights
from noisewise.engine import Engine
from noisewise.errors import refusal
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Mechanism
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.release import Release
from noisewise.results.posterior import Posterior
from noisewise.samplers.sample import sample
from noisewise.samplers.smc import has_bounds

WHO = "what_if"
LEAST = 400.0
"""Least effective number of the weighed draws."""
LOOKED_AT = 1024
"""Prior rows at which noise is checked for an edge."""


def what_if(
    posterior: Posterior,
    model: Model | None = None,
    release: Release | None = None,
    *,
    seed: int | None = None,
    engine: Engine | None = None,
    **mechanisms: Mechanism,
) -> Posterior:
    """The posterior had other mechanisms published the same values: `what_if(posterior, count=nw.Laplace(scale=6.0))`.

    A posterior that was read from a file needs the `model` and the `release` that its draws come from. The draws of the
    confidential statistics are weighed by the ratio of the two noise densities. Where the weights fail their checks
    (k-hat, effective size), or the first noise could not reach all confidential values (none, or bounded noise),
    `nw.sample` runs anew, by `seed` or the posterior's. `reason` says which it was.
    """
    before = posterior.problem_of(WHO, model, release) if isinstance(posterior, Posterior) else None
    if before is None:
        raise refusal(WHO, "posterior", "must be a Posterior", posterior, "Give what nw.sample returned.")
    if seed is not None:
        seed = checks.integer(WHO, "seed", seed, least=0, advice="Give a whole number from 0 on.")
    after = Problem(before.model, _changed(before.release, mechanisms))
    weighed, why = _weighed(posterior, before, after)
    if weighed is not None:
        return weighed
    again = sample(
        after.model, after.release, draws=len(posterior), seed=posterior.seed if seed is None else seed, engine=engine
    )
    return replace(again, reason=f"sampled anew, since {why}; {again.reason}")


def _changed(release: Release, mechanisms: dict[str, Mechanism]) -> Release:
    """The same published values by other mechanisms."""
    if not mechanisms:
        raise refusal(WHO, "mechanisms", "must name at least one", {}, "Give count=nw.Laplace(scale=6.0).")
    for name, mechanism in mechanisms.items():
        checks.known_name(WHO, name, name, release, "must be a released statistic")
        if not isinstance(mechanism, Mechanism):
            raise refusal(WHO, name, "must be a mechanism", mechanism, "Give count=nw.Laplace(scale=6.0).")
    return Release(
        {
            name: replace(item, mechanism=mechanisms[name]) if name in mechanisms else item
            for name, item in release.items()
        }
    )


def _weighed(posterior: Posterior, before: Problem, after: Problem) -> tuple[Posterior | None, str]:
    """The posterior weighed again; or None, and why the weights cannot be used.

    Joint posteriors of parameters and statistics differ by the factor eta'(s_dp | s) / eta(s_dp | s) alone.
    """
    if posterior.status != "complete":
        return None, f"the draws ended with '{posterior.status}'"
    if _has_edge(before, after):
        return None, "the first noise could not reach all confidential values"
    independent = _independent(posterior)
    draws = {name: values[independent] for name, values in posterior.draws.items()}
    ratio = after.log_eta_of_all(draws) - before.log_eta_of_all(draws)
    base = np.zeros(len(independent)) if posterior.log_weights is None else posterior.log_weights[independent]
    log_weights = np.where(base > -np.inf, base + ratio, -np.inf)
    status, message, numbers = weights.judge_weights(log_weights, LEAST)
    if status != "complete":
        return None, f"weights do not do: {message}"
    return replace(
        posterior,
        draws=draws,
        log_weights=log_weights,
        release_hash=after.release.hash,
        problem=after,
        diagnostics=numbers,
        chains=None,
        superchains=None,
        islands=None,
        acceptance_rate=None,
        reason=f"weighed again, k-hat {numbers['pareto_k']:.2f}, from: {posterior.reason}",
        **_evidence(posterior, base, log_weights),
    ), ""


def _has_edge(before: Problem, after: Problem) -> bool:
    """Whether a mechanism that is changed could not have published its value, had the statistic been another.

    Then the draws lie within an edge that the other mechanism need not have, and no weight would show it. Bounded noise
    has an edge; for other mechanisms, rows of the prior are looked at.
    """
    changed = [name for name in before.release if before.release[name] != after.release[name]]
    first = [before.release[name] for name in changed]
    if any(has_bounds(item.mechanism, item.value) for item in first):
        return True
    rows = before.model.simulate(LOOKED_AT, 0)
    return any(bool(np.any(before.log_eta(name, rows) == -np.inf)) for name in changed)


def _independent(posterior: Posterior) -> Array:
    """Draws that may stand for independent ones: all, or of chains and islands the least effective number."""
    size = len(posterior)
    if posterior.chains is None and posterior.islands is None:
        return np.arange(size)
    worth = [value for value in posterior.ess.values() if not np.isnan(value)]
    count = int(np.clip(min(worth, default=1.0), 1, size))
    return (np.arange(count) * size // count).astype(int)


def _evidence(posterior: Posterior, base: Array, log_weights: Array) -> dict[str, Any]:
    """Evidence times the average ratio. Errors of the two are added: they come from the same draws."""
    if posterior.log_evidence is None or posterior.log_evidence_se is None:
        return {"log_evidence": None, "log_evidence_se": None}
    ratio = weights.log_mean(log_weights) - weights.log_mean(base)
    first, second = weights.normalised(base), weights.normalised(log_weights)
    error = float(np.sqrt(np.sum((second - first) ** 2)))
    return {"log_evidence": posterior.log_evidence + ratio, "log_evidence_se": posterior.log_evidence_se + error}
