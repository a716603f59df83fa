"""Models compared by how well they predicted the release: Bayes factors and probabilities, with Monte Carlo errors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.numerics import Array
from noisewise.results.posterior import Posterior

WHO = "evidence"
GIVERS = ("Rejection", "Importance", "ImportanceRejection", "SMC")
"""Samplers whose runs estimate the evidence."""


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """Log evidence by model: the log density of the release, parameters and statistics integrated out."""

    log_evidence: Mapping[str, float]
    standard_error: Mapping[str, float]
    """Monte Carlo errors of the log evidences."""
    prior: Mapping[str, float]
    """Probabilities of the models before the release."""
    seed: Mapping[str, int] = field(default_factory=dict)
    """Seeds of the runs. Runs of one seed may share random numbers, so their errors are taken to add up."""

    def bayes_factor(self, model: str, other: str) -> tuple[float, float]:
        """How much more probable `model` made the release than `other`, and the Monte Carlo error of that ratio."""
        for name in (model, other):
            checks.choice("Evidence.bayes_factor", "model", name, self.log_evidence)
        with np.errstate(over="ignore"):  # infinite beyond the largest number there is
            ratio = float(np.exp(self.log_evidence[model] - self.log_evidence[other]))
        error = 0.0 if model == other else float(self._combined({model: 1.0, other: -1.0}))
        return ratio, ratio * error

    def _combined(self, slopes: Mapping[str, Any]) -> Any:
        """Error of a sum of log evidences times `slopes`: within runs of one seed, bounded by the sum of their errors.

        The standard deviation of a sum is at most the sum of standard deviations, however the terms depend on each
        other (Minkowski). Runs of different seeds are independent, so that their squares add up.
        """
        by_seed: dict[Any, Any] = {}
        for name, slope in slopes.items():
            group = self.seed.get(name, name)
            by_seed[group] = by_seed.get(group, 0.0) + np.abs(slope) * self.standard_error[name]
        return np.sqrt(sum(error**2 for error in by_seed.values()))

    @property
    def shared(self) -> str:
        """What to say of runs that have a seed in common; empty where there are none."""
        seeds = list(self.seed.values())
        names = [f"'{name}'" for name, seed in self.seed.items() if seeds.count(seed) > 1]
        if not names:
            return ""
        return (
            f"Runs of one seed ({', '.join(names)}) may share random numbers, so their errors are taken to add up; "
            "with a seed for each model they would be smaller."
        )

    @property
    def probability(self) -> dict[str, tuple[float, float]]:
        """Probabilities of the models after the release, each with its Monte Carlo error.

        p_i is proportional to prior_i exp(l_i), so d p_i / d l_j = p_i (1[i = j] - p_j): the delta method.
        """
        names = list(self.log_evidence)
        logs = np.array([self.log_evidence[name] + math.log(self.prior[name]) for name in names])
        chance = np.exp(logs - logs.max())
        chance /= chance.sum()
        slopes = chance[:, None] * (np.eye(len(names)) - chance)
        errors: Array = self._combined(dict(zip(names, slopes.T, strict=True)))
        return {name: (float(p), float(e)) for name, p, e in zip(names, chance, errors, strict=True)}

    def table(self) -> Any:
        """A pandas table, the most probable model first; Bayes factors are against that one."""
        import pandas as pd

        chances = self.probability
        names = sorted(chances, key=lambda name: -chances[name][0])
        factors = {name: self.bayes_factor(name, names[0]) for name in names}
        columns = {
            "log evidence": [self.log_evidence[name] for name in names],
            "mcse log evidence": [self.standard_error[name] for name in names],
            "Bayes factor": [factors[name][0] for name in names],
            "mcse Bayes factor": [factors[name][1] for name in names],
            "probability": [chances[name][0] for name in names],
            "mcse probability": [chances[name][1] for name in names],
        }
        return pd.DataFrame(columns, index=names)

    def __repr__(self) -> str:
        note = f"\n{self.shared}" if self.shared else ""
        return f"Evidence\n{self.table().to_string(float_format=lambda x: f'{x:.4g}')}{note}"

    def _repr_html_(self) -> str:
        note = f"<p>{escape(self.shared)}</p>" if self.shared else ""
        return f"<div>{self.table().to_html(float_format=lambda x: f'{x:.4g}')}{note}</div>"


def evidence(posteriors: Mapping[str, Posterior], prior: Mapping[str, float] | None = None) -> Evidence:
    """Compare models of one release: `nw.evidence({"poisson": first, "negative binomial": second})`.

    Each posterior must come from a complete run of a sampler that estimates the evidence. `prior` gives the models'
    probabilities before the release, equal ones if left out. Bayes factors depend on the priors of the parameters: wide
    ones are paid for. Give each model's run a seed of its own: errors of runs that share random numbers are bounded by
    their sum, those of independent ones are smaller.
    """
    if not isinstance(posteriors, Mapping) or len(posteriors) < 2:
        advice = 'Give {"poisson": first, "negative binomial": second}.'
        raise refusal(WHO, "posteriors", "must be a dict of at least two posteriors", posteriors, advice)
    known = {name: _evidence(name, posterior) for name, posterior in posteriors.items()}
    first, *others = posteriors
    for name in others:
        if posteriors[name].release_hash != posteriors[first].release_hash:
            rule = f"must be a posterior of the same release as '{first}'"
            raise refusal(WHO, name, rule, posteriors[name].release_hash, "Sample all models with one release.")
    return Evidence(
        {name: log_evidence for name, (log_evidence, _) in known.items()},
        {name: error for name, (_, error) in known.items()},
        _prior(posteriors, prior),
        {name: posterior.seed for name, posterior in posteriors.items()},
    )


def _evidence(name: str, posterior: Any) -> tuple[float, float]:
    """The log of the evidence and its standard error; refused where they are not known."""
    if not isinstance(posterior, Posterior):
        raise refusal(WHO, name, "must be a Posterior", posterior, "Give what nw.sample returned.")
    if posterior.status != "complete":
        raise refusal(WHO, name, "must come from a complete run", posterior.status, posterior.message or "Run again.")
    log_evidence, error = posterior.log_evidence, posterior.log_evidence_se
    if log_evidence is None or error is None or not (math.isfinite(log_evidence) and math.isfinite(error)):
        advice = "Sample with " + ", ".join(f"nw.{giver}()" for giver in GIVERS[:-1]) + f" or nw.{GIVERS[-1]}()."
        rule = "must come from a sampler that estimates the evidence"
        raise refusal(WHO, name, rule, type(posterior.sampler).__name__, advice, instead=GIVERS)
    return float(log_evidence), float(error)


def _prior(posteriors: Mapping[str, Posterior], prior: Any) -> dict[str, float]:
    if prior is None:
        return dict.fromkeys(posteriors, 1.0 / len(posteriors))
    advice = 'Give {"poisson": 0.5, "negative binomial": 0.5}.'
    if not isinstance(prior, Mapping) or set(prior) != set(posteriors):
        raise refusal(WHO, "prior", "must have a probability for each model", prior, advice)
    chances = {name: checks.positive_number(WHO, "prior", prior[name], advice) for name in posteriors}
    if abs(sum(chances.values()) - 1.0) > 1e-9:
        raise refusal(WHO, "prior", "must sum to one", sum(chances.values()), advice)
    return chances
