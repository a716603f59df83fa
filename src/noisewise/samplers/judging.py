"""What a run amounts to: the result that every sampler returns, and the status of draws from Markov chains."""

import math
import warnings
from collections.abc import Collection
from typing import Any

import numpy as np

from noisewise.axes import Axes
from noisewise.diagnostics import chains as diagnostics
from noisewise.errors import NoisewiseWarning
from noisewise.inference.problem import Problem
from noisewise.inference.settings import Sampler
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.results.labels import NUMBERED, labels_of
from noisewise.results.naming import Naming
from noisewise.results.posterior import Posterior

SCREENED = 256
"""Most scalars that are fully diagnosed. Of more, those whose chains differ most in their means are chosen."""
LONGER, LONGEST = 4, 64
"""By how many times chains that do not agree are made longer, and the most steps behind one draw."""
SHORTEST = 8
"""Draws of a chain below which its halves tell nothing of its autocorrelation."""


class OutOfTime(Exception):
    """The sampler's `max_seconds` are over."""


def posterior_of(
    sampler: Sampler,
    problem: Problem,
    seed: int,
    columns: dict[str, Array],
    left_out: Collection[str] = (),
    **fields: Any,
) -> Posterior:
    """A posterior of the problem's parameters and needed statistics from columns of draws; `fields` as Posterior's.

    Statistics that are `left_out` have no draws, nor have quantities derived from them.
    """
    model = problem.model
    names = [*model.parameters, *(n for n in model.statistics if n in problem.needed and n not in left_out)]
    empty = {name: np.empty((0, *model.shape(name)), model.dtype(name)) for name in names}
    draws = {name: columns.get(name, empty[name]) for name in names}
    taken = {name for names in model.derived_from.values() for name in names}
    draws |= {name: np.asarray(draws[name]) for name in taken if name in draws}  # fetched from an accelerator
    computed = derived_of(model, draws)
    return Posterior(
        draws=draws | computed,
        parameters=model.parameters,
        released={name: item.value for name, item in problem.release.items()},
        release_hash=problem.release.hash,
        sampler=sampler,
        seed=seed,
        axes=problem.axes.only([*names, *computed]),
        derived=tuple(computed),
        naming=Naming.of_release(problem.release),
        problem=problem,
        **fields,
    )


def derived_of(model: Model, draws: dict[str, Array]) -> dict[str, Array]:
    """The model's derived quantities at every draw. One that is not finite everywhere is left out, with a warning."""
    if not model.derived or not len(next(iter(draws.values()))):
        return {}
    derived = model.derive(draws)
    for name in list(derived):
        if not np.all(np.isfinite(derived[name])):
            cause = f"the derived quantity '{name}' is not finite at every draw, and is left out."
            warnings.warn(NoisewiseWarning(cause, "sample"), stacklevel=2)
            del derived[name]
    return derived


def judge_chains(
    columns: dict[str, Array], chains: int, superchains: int | None, min_ess: float, axes: Axes = NUMBERED
) -> tuple[str, str, dict[str, Any]]:
    """(status, message, diagnostics) of draws that come chain by chain: stuck, disagreeing, too few, or complete."""
    joined = np.concatenate([diagnostics.by_chain(values, chains) for values in columns.values()], axis=2)
    labels = [label for name, values in columns.items() for label in labels_of(name, values.shape[1:], axes)]
    if joined.shape[1] < SHORTEST:
        message = (
            f"{chains} chains of {joined.shape[1]} draws each are too short to be judged. Ask for at least "
            f"{max(SHORTEST * chains, math.ceil(min_ess))} draws."
        )
        return "low_ess", message, {}
    still = diagnostics.stuck(joined)
    numbers: dict[str, Any] = {"stuck_chains": int(still.sum())}
    if still.any():
        message = (
            f"{int(still.sum())} of {chains} chains never moved (the first is chain {int(np.argmax(still))}), so their "
            "draws stand for nothing. Run longer chains, or use another sampler."
        )
        return "stuck", message, numbers
    joined, labels = _varying(joined, labels)
    if not labels:
        return "complete", "", numbers
    # NaN where a scalar is constant but for a few draws: no evidence against the chains.
    agreement = np.nan_to_num(diagnostics.r_hat(joined, superchains), nan=1.0, posinf=np.inf)
    total = float(joined.shape[0] * joined.shape[1])
    size, tail = (np.nan_to_num(f(joined), nan=total) for f in (diagnostics.bulk_size, diagnostics.tail_size))
    apart, least = int(np.argmax(agreement)), int(np.argmin(size))
    numbers |= {"r_hat": float(agreement[apart]), "r_hat_of": labels[apart]}
    numbers |= {"ess_bulk": float(size[least]), "ess_bulk_of": labels[least], "ess_tail": float(tail.min())}
    kind = "nested R-hat" if superchains else "R-hat"
    if agreement[apart] > diagnostics.LIMIT:
        message = (
            f"the {chains} chains disagree about {labels[apart]}: {kind} {agreement[apart]:.4f} is above "
            f"{diagnostics.LIMIT}. Ask for more draws or a longer warm-up; if that does not help, use another sampler."
        )
        return "disagree", message, numbers
    if size[least] < min_ess:
        message = (
            f"the draws of {labels[least]} are worth {size[least]:.0f} independent ones, fewer than "
            f"min_ess={min_ess:g}. Ask for more draws."
        )
        return "low_ess", message, numbers
    return "complete", "", numbers


def _varying(joined: Array, labels: list[str]) -> tuple[Array, list[str]]:
    """Scalars that take more than one value; the most suspicious of them where there are very many."""
    flat = joined.reshape(-1, joined.shape[2])
    columns = np.flatnonzero(flat.max(axis=0) > flat.min(axis=0))
    if len(columns) > SCREENED:
        means, within = joined.mean(axis=1)[:, columns], joined.var(axis=(0, 1))[columns]
        columns = columns[np.argsort(-means.var(axis=0) / within, kind="stable")[:SCREENED]]
    return joined[:, :, columns], [labels[index] for index in columns]
