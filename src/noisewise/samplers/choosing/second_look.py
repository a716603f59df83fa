"""A second look for posterior mass where no draw is, in case prior draws cannot have seen it.

Whatever sampler gave the draws, it began with draws of the prior. Where those may have missed a region that matters
(`Probe.unseen`), rows of a law that reaches far beyond the prior are weighed, by the exact likelihood where that is
known. Derivation: docs/derivations/conditional.md.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from noisewise.diagnostics import weights
from noisewise.engine import Engine, gather
from noisewise.errors import InputError
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.streams import Columns
from noisewise.model.graph import Poll
from noisewise.numerics import Array
from noisewise.results.labels import labels_of
from noisewise.results.posterior import Posterior
from noisewise.samplers.choosing.probe import MOST_UNSEEN, Probe, collapses, dear, percent, probe_of
from noisewise.samplers.importance_rejection import ImportanceRejection
from noisewise.samplers.proposals import proposal as proposals
from noisewise.samplers.proposals.adapted import search
from noisewise.samplers.proposals.collapsed import WIDENINGS, Collapse, WeighCollapsed, Widened, doubled, too_narrow
from noisewise.samplers.proposals.many_rows import are_many
from noisewise.samplers.proposals.pilot import LEAST_ROUND
from noisewise.samplers.proposals.weighted_candidates import Weigh, block_rows
from noisewise.samplers.rejection import Rejection

INDEPENDENT = (Rejection, ImportanceRejection)
"""Samplers whose draws are independent draws of the posterior: they have missed nothing but by chance."""
OUTSIDE = 0.1
"""Share of the posterior beyond the outermost draws from which they are refused.

The search's estimate of the mass there is unbiased and not negative, so that it exceeds a hundred times the true one
once in a hundred times at most (Markov): draws that leave out a thousandth are refused with probability 1/100 or less.
"""
OUTERMOST = (0.0005, 0.9995)
"""Quantiles between which draws are taken to lie; of several scalars, each leaves out its part of a thousandth."""
ENOUGH = 50.0
"""Effective rows of the search from which their shares tell something. One nearest miss would stand for all."""
INNER, MOVED = (0.05, 0.95), 0.2
"""Quantiles of the draws, and the share of the posterior that may lie beyond them: a tenth, if all is right."""
MOST_ROWS, SUMMED = 2**16, 2**26
"""Rows of the search, at most, and values that their sums may run over."""
CERTAIN = 4.0
"""Standard errors by which a difference must stand out."""


def looked_again(
    posterior: Posterior, problem: Problem, seed: int, engine: Engine, probe: Probe | None = None
) -> Posterior:
    """The posterior; with status "unseen" where a search finds mass that its draws have missed.

    `probe` is one already made with this seed. There is no look where noise densities are dear, or rows very many.
    """
    independent = isinstance(posterior.sampler, INDEPENDENT)
    if posterior.status != "complete" or independent or dear(problem) or are_many(problem):
        return posterior
    try:
        probe = probe or probe_of(problem, seed, engine)
        posterior = replace(posterior, diagnostics={**posterior.diagnostics, "unseen": probe.unseen})
        if probe.unseen <= MOST_UNSEEN or proposals.unfit(problem.model, "adapted") is not None:
            return posterior
        rows, log_weights = _searched(problem, probe, engine)
    except InputError:  # it reaches where the model cannot be drawn from
        return posterior
    except KeyboardInterrupt:
        message = "interrupted while it was looked for what the draws may have missed. All draws are there."
        return replace(posterior, status="interrupted", message=message)
    if not np.any(log_weights > -np.inf):
        return posterior
    missed = _missed(problem, posterior, rows, log_weights)
    if missed is None:
        return posterior
    message = (
        f"the release is surprising under the prior, and a search beyond it found that {missed}. Check prior and "
        "release; where both are right, use another sampler."
    )
    return replace(posterior, status="unseen", message=message)


def _searched(problem: Problem, probe: Probe, engine: Engine) -> tuple[Columns, Array]:
    """Parameters and log weights of rows of the search law; none where there is no such law, or no exact weight."""
    model, seed = problem.model, probe.seed
    law = search(proposals.space_of(model), probe.values)
    if law is None:
        return {}, np.empty(0)
    if not collapses(probe):
        columns = _weighed(Weigh(problem, law), block_rows(problem), _how_many(probe.cells), seed, 0, engine)
        return columns, columns["log_weights"]
    widened: Widened = ()
    for attempt in range(WIDENINGS):
        collapse = Collapse.of(problem, widened)
        if collapse.target.excess():
            break
        weigh, total = WeighCollapsed(problem, law, widened), _how_many(collapse.work)
        columns = _weighed(weigh, collapse.rows, total, seed, attempt, engine)
        wider = too_narrow(collapse, columns["log_weights"], columns["neglected"])
        if not wider:
            return columns, columns["log_weights"]
        widened = doubled(widened, wider)
    return {}, np.empty(0)


def _how_many(cells: float) -> int:
    """Rows of the search, by the numbers that one of them takes."""
    return min(MOST_ROWS, max(LEAST_ROUND, int(SUMMED / cells)))


def _weighed(weigh: Weigh | WeighCollapsed, rows: int, total: int, seed: int, attempt: int, engine: Engine) -> Columns:
    works = [partial(_block, weigh, rows, seed, attempt, block) for block in range(max(1, total // rows))]
    parts = gather(engine, works, portable=True)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _block(weigh: Weigh | WeighCollapsed, rows: int, seed: int, attempt: int, block: int, poll: Poll) -> Columns:
    return weigh(generator(seed, Purpose.SECOND_LOOK, attempt, block), {}, rows, poll)[0]


def _missed(problem: Problem, posterior: Posterior, rows: Columns, log_weights: Array) -> str | None:
    """What the search knows better than the draws, in words: mass beyond them, mass elsewhere, or more evidence."""
    weight, enough = weights.normalised(log_weights), weights.effective_size(log_weights) >= ENOUGH
    own = posterior.log_evidence
    log_evidence = max(weights.log_mean(log_weights), -math.inf if own is None else own)
    away, place = _beyond(problem, posterior, rows, weight, OUTERMOST)
    beyond = np.where(away.any(axis=1), log_weights, -np.inf)
    share = math.exp(weights.log_mean(beyond) - log_evidence) if np.any(beyond > -np.inf) else 0.0
    if share > OUTSIDE and (own is not None or enough):
        return f"about {percent(share)} of the posterior lies where no draw is: {place}"
    away, place = _beyond(problem, posterior, rows, weight, INNER)
    shares = weight @ away
    errors = np.sqrt(np.square(weight) @ np.square(away - shares))
    if enough and np.any(shares - CERTAIN * errors > MOVED):
        return f"about {percent(shares.max())} of the posterior lies where a tenth of the draws is: {place}"
    if own is not None:
        error = math.hypot(weights.log_mean_se(log_weights), posterior.log_evidence_se or 0.0)
        more = weights.log_mean(log_weights) - own
        if more - CERTAIN * error > -math.log1p(-OUTSIDE):
            return f"the evidence is exp({more:.2g}) times that of the draws, so that they miss part of the posterior"
    return None


def _beyond(
    problem: Problem, posterior: Posterior, rows: Columns, weight: Array, edges: tuple[float, float]
) -> tuple[Array, str]:
    """Which rows lie beyond these quantiles of the draws, scalar by scalar; and where the heaviest is, in words."""
    model, away, places = problem.model, [], []
    scalars = sum(max(1, math.prod(model.shape(name))) for name in model.parameters)
    outermost = edges == OUTERMOST
    if outermost:
        edges = (edges[0] / scalars, 1.0 - edges[0] / scalars)
    for name in model.parameters:
        drawn = np.asarray(posterior.draws[name], float).reshape(len(posterior), -1)
        values = np.asarray(rows[name], float).reshape(len(weight), -1)
        low, high = weights.quantiles(drawn, posterior.weights, list(edges))
        for entry, label in enumerate(labels_of(name, model.shape(name))):
            beyond = (values[:, entry] < low[entry]) | (values[:, entry] > high[entry])
            if model.is_discrete(name) and outermost:
                beyond |= ~np.isin(values[:, entry], drawn[:, entry])
            heaviest = int(np.argmax(np.where(beyond, weight, -1.0)))
            away.append(beyond)
            places.append((float(weight[beyond].sum()), f"{label} near {values[heaviest, entry]:.4g}"))
    return np.stack(away, axis=1), max(places)[1]
