"""A second look for posterior mass where no draws are, in case prior draws have missed it.

Whatever sampler gave the draws, it began with draws of the prior. Where those may have missed a region that matters
(`Probe.unseen`), rows of a law that reaches far beyond the prior are weighed, by the exact likelihood where that is
known. Derivation: docs/derivations/conditional.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from noisewise.diagnostics import chains, weights
from noisewise.engine import Engine, gather
from noisewise.errors import InputError
from noisewise.inference.blocks import Columns
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import AFTER_BLOCKS, Purpose, generator
from noisewise.model.coordinates import Space
from noisewise.model.graph import Poll
from noisewise.numerics import Array
from noisewise.results.labels import labels_of
from noisewise.results.posterior import Posterior
from noisewise.samplers.choosing.probe import MOST_UNSEEN, Probe, collapses, dear, percent, probe_of
from noisewise.samplers.importance_rejection import ImportanceRejection
from noisewise.samplers.proposals import mixture
from noisewise.samplers.proposals import proposal as proposals
from noisewise.samplers.proposals.adapted import Adapted, search, uniform_tables
from noisewise.samplers.proposals.collapsed import WIDENINGS, Collapse, WeighCollapsed, Widened, doubled, too_narrow
from noisewise.samplers.proposals.hills import Ground, hills
from noisewise.samplers.proposals.many_rows import are_many
from noisewise.samplers.proposals.memory import Memory
from noisewise.samplers.proposals.mixture import StudentMixture, mixed_evenly
from noisewise.samplers.proposals.pilot import LEAST_ROUND
from noisewise.samplers.proposals.weighted_candidates import Weigh, block_rows
from noisewise.samplers.rejection import Rejection

INDEPENDENT = (Rejection, ImportanceRejection)
"""Samplers whose draws are independent draws of the posterior: they have missed nothing but by chance."""
OUTSIDE = 0.1
"""Share of the posterior beyond the outermost draws above which the draws are refused.

The search's estimate of the mass there is unbiased and not negative, so that it exceeds a hundred times the true one
once in a hundred times at most (Markov): draws that leave out a thousandth are refused with probability 1/100 or less.
"""
OUTERMOST = (0.0005, 0.9995)
"""Quantiles between which draws are taken to lie; several scalars share the thousandth that is left out."""
ENOUGH = 50.0
"""Effective rows of the search from which on their shares count. Of few, the one nearest would stand for all."""
INNER, MOVED = (0.05, 0.95), 0.2
"""Quantiles of the draws, and the most of the posterior that may lie beyond them, where a tenth should."""
PIECE = 2**16
"""Rows for which the nearest hill is computed at once."""
UNEVEN = 0.02
"""Share of the posterior by which a hill may have too few draws, beyond what errors of both explain."""
MOST_ROWS, SUMMED = 2**16, 2**26
"""Most rows of the search, and most values that their sums run over."""
BEFORE = 2**20
"""Number of the first block of rows that are climbed from: the search has fewer blocks than this."""
CERTAIN = 4.0
"""Standard errors by which a difference must stand out."""


def looked_again(
    posterior: Posterior, problem: Problem, seed: int, engine: Engine, probe: Probe | None = None
) -> Posterior:
    """The posterior; with status "unseen" where a search finds mass that its draws have missed.

    `probe` is one already made with this seed. There is no look where draws are independent, where their run is not
    complete, where noise densities are dear, or where rows are very many.
    """
    independent = isinstance(posterior.sampler, INDEPENDENT)
    if posterior.status != "complete" or independent or dear(problem) or are_many(problem):
        return posterior
    try:
        probe = probe or probe_of(problem, seed, engine)
        posterior = replace(posterior, diagnostics={**posterior.diagnostics, "unseen": probe.unseen})
        if probe.unseen <= MOST_UNSEEN or proposals.unfit(problem.model, "adapted") is not None:
            return posterior
        found = _searched(problem, posterior, probe, engine)
    except InputError:  # the search reaches where the model cannot be drawn from
        return posterior
    except KeyboardInterrupt:
        message = "interrupted while it was looked for what the draws may have missed. All draws are there."
        return replace(posterior, status="interrupted", message=message)
    if not np.any(found.log_weights > -np.inf):
        return posterior
    missed = _missed(problem, posterior, found)
    if missed is None:
        return posterior
    message = (
        f"the release is surprising under the prior, and a search beyond it found that {missed}. Check prior and "
        "release; where both are right, use another sampler."
    )
    return replace(posterior, status="unseen", message=message)


@dataclass(frozen=True, eq=False)
class Found:
    """Rows of the search, by name, with log weights; none where there is no search law, or no exact weight."""

    rows: Columns = field(default_factory=dict)
    log_weights: Array = field(default_factory=lambda: np.empty(0))
    hills: StudentMixture | None = None
    """Laws about the draws and the tops that were climbed to, where the likelihood is known."""


def _searched(problem: Problem, posterior: Posterior, probe: Probe, engine: Engine) -> Found:
    """Rows of the search law; where the likelihood is known, with as many about the draws, and about tops found."""
    model, seed = problem.model, probe.seed
    law = search(proposals.space_of(model), probe.values)
    if law is None:
        return Found()
    if not collapses(probe):
        columns = _weighed(Weigh(problem, law), block_rows(problem), _how_many(probe.cells), seed, 0, engine)
        return Found(columns, columns["log_weights"])
    widened: Widened = ()
    own = _own_hills(problem, posterior, seed) if law.mixture is not None else None
    for attempt in range(WIDENINGS):
        collapse = Collapse.of(problem, widened)
        if collapse.target.excess():
            break
        total, known = _how_many(collapse.work), []
        wide = law
        if law.mixture is not None:
            tops = _hills(problem, law, widened, total // 4, seed, attempt, engine)
            known = [one for one in (own, tops) if one is not None]
            wide, total = replace(law, mixture=mixed_evenly(law.mixture, *known)), total // 2
        columns = _weighed(WeighCollapsed(problem, wide, widened), collapse.rows, total, seed, attempt, engine)
        wider = too_narrow(collapse, columns["log_weights"], columns["neglected"])
        if not wider:
            return Found(columns, columns["log_weights"], mixed_evenly(*known) if known else None)
        widened = doubled(widened, wider)
    return Found()


def _hills(
    problem: Problem, law: Adapted, widened: Widened, total: int, seed: int, attempt: int, engine: Engine
) -> StudentMixture | None:
    """Laws about the tops that climbs from rows of the search law lead to."""
    ground = Ground(problem, law.space, engine, widened)
    memory = Memory(law.space, tuple(law.tables), ground.rows)
    weigh, blocks = WeighCollapsed(problem, law, widened), range(max(1, total // ground.rows))
    works = [partial(_looked_at, weigh, ground.rows, seed, attempt, BEFORE + block) for block in blocks]
    parts = gather(engine, works, portable=True)
    columns = {name: np.concatenate([part[0][name] for part in parts]) for name in parts[0][0]}
    memory.add(columns, np.concatenate([part[1] for part in parts]), law)
    return hills(generator(seed, Purpose.SECOND_LOOK, attempt, AFTER_BLOCKS), ground, memory.rounds[0])


def _looked_at(
    weigh: WeighCollapsed, rows: int, seed: int, attempt: int, block: int, poll: Poll
) -> tuple[Columns, Array, Array]:
    return weigh.looked_at(generator(seed, Purpose.SECOND_LOOK, attempt, block), rows, poll)


def _own_hills(problem: Problem, posterior: Posterior, seed: int) -> StudentMixture | None:
    """A law fitted to the draws: the search looks at their region too, so that shares can be compared."""
    rng = generator(seed, Purpose.SECOND_LOOK, AFTER_BLOCKS)
    index = weights.systematic(rng, _log_weights(posterior), mixture.POINTS)
    free = proposals.space_of(problem.model).free_from({n: posterior.draws[n][index] for n in problem.model.parameters})
    free = free[np.isfinite(free).all(axis=1)]
    numbers = posterior.diagnostics
    size = min(float(numbers.get("ess", numbers.get("ess_bulk", len(posterior)))), float(len(free)))
    if size <= 10 * free.shape[1]:
        return None
    return mixture.fitted_mixture(rng, free, size, **mixture.FINE).inflated()


def _log_weights(posterior: Posterior) -> Array:
    return np.zeros(len(posterior)) if posterior.log_weights is None else posterior.log_weights


def _how_many(cells: float) -> int:
    """Rows of the search, by the numbers that one of them takes."""
    return min(MOST_ROWS, max(LEAST_ROUND, int(SUMMED / cells)))


def _weighed(weigh: Weigh | WeighCollapsed, rows: int, total: int, seed: int, attempt: int, engine: Engine) -> Columns:
    works = [partial(_block, weigh, rows, seed, attempt, block) for block in range(max(1, total // rows))]
    parts = gather(engine, works, portable=True)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _block(weigh: Weigh | WeighCollapsed, rows: int, seed: int, attempt: int, block: int, poll: Poll) -> Columns:
    return weigh(generator(seed, Purpose.SECOND_LOOK, attempt, block), {}, rows, poll)[0]


def _missed(problem: Problem, posterior: Posterior, found: Found) -> str | None:
    """What the search shows the draws to have missed, in words: mass beyond them, elsewhere, on a hill; or evidence."""
    rows, log_weights = found.rows, found.log_weights
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
    if enough and found.hills is not None and not _unlisted(problem):
        scale = math.exp(weights.log_mean(log_weights) - log_evidence)
        uneven = _uneven(problem, posterior, rows, weight, found.hills, scale)
        if uneven is not None:
            return uneven
    if own is not None:
        error = math.hypot(weights.log_mean_se(log_weights), posterior.log_evidence_se or 0.0)
        more = weights.log_mean(log_weights) - own
        if more - CERTAIN * error > -math.log1p(-OUTSIDE):
            return f"the evidence is exp({more:.2g}) times that of the draws, so that they miss part of the posterior"
    return None


def _unlisted(problem: Problem) -> bool:
    """Whether a search draws some whole numbers from the prior alone: it may then miss what draws have seen."""
    model = problem.model
    return any(model.is_discrete(name) and name not in uniform_tables(model) for name in model.parameters)


def _uneven(
    problem: Problem, posterior: Posterior, rows: Columns, weight: Array, tops: StudentMixture, scale: float
) -> str | None:
    """A hill with a larger share of the posterior than of the draws, in words; None where all shares agree.

    Whatever the hills are, the points nearest to each are a part of the parameter space, with one true share. `scale`
    is the share of the evidence that the search has seen.
    """
    space, count = proposals.space_of(problem.model), len(tops.shares)
    nearest = _nearest(tops, space, rows)[:, None] == np.arange(count)
    share = np.minimum(weight @ nearest, 1.0)
    hill_of = _nearest(tops, space, posterior.draws)
    # hill by hill: draws may be millions
    told = [_share_drawn(posterior, hill_of == hill, share[hill]) for hill in range(count)]
    own, variance = np.array([one[0] for one in told]), np.array([one[1] for one in told])
    error = np.sqrt(np.square(weight) @ np.square(nearest - share) + variance)
    share = scale * share
    worst = int(np.argmax(share - own - CERTAIN * error))
    if share[worst] - own[worst] - CERTAIN * error[worst] <= UNEVEN:
        return None
    member = np.flatnonzero(nearest[:, worst] & (weight > 0.0))
    free = space.free_from({name: rows[name][member] for name in problem.model.parameters})
    top = member[int(np.argmax(tops.log_parts(free)[worst]))]
    model, places = problem.model, []
    for name in model.parameters:
        values = np.ravel(np.asarray(rows[name][top], float))
        labels = labels_of(name, model.shape(name))
        places += [f"{label} near {value:.4g}" for label, value in zip(labels, values, strict=True)]
    shares = f"about {percent(share[worst])} of the posterior lies where {percent(own[worst])} of the draws is"
    return f"{shares}: {', '.join(places)}"


def _nearest(tops: StudentMixture, space: Space, values: Mapping[str, Array]) -> Array:
    """The number of the hill that each row is nearest to, piece by piece: rows may be millions."""
    count = len(values[space.model.parameters[0]])
    pieces = [slice(start, start + PIECE) for start in range(0, count, PIECE)]
    names = space.model.parameters
    return np.concatenate(
        [np.argmax(tops.log_parts(space.free_from({n: values[n][piece] for n in names})), axis=0) for piece in pieces]
    )


def _share_drawn(posterior: Posterior, on_hill: Array, share: float) -> tuple[float, float]:
    """A hill's share of the draws, and its variance if `share` is right.

    The variance is by the weights, by how chains or islands of particles differ and go from hill to hill, or as of
    independent draws.
    """
    even, count = share * (1.0 - share), len(posterior)
    if posterior.log_weights is not None:
        weight = weights.normalised(posterior.log_weights)
        own = float(weight @ on_hill)
        return own, max(even * float(weight @ weight), float(np.square(weight) @ np.square(on_hill - own)))
    own, size = float(on_hill.mean()), float(count)
    if posterior.chains is not None:
        sizes = chains.effective_size(chains.halves(chains.by_chain(on_hill, posterior.chains)))
        size = min(float(np.nan_to_num(sizes[0], nan=count)), float(posterior.diagnostics.get("ess_bulk", count)))
    elif posterior.islands is not None:
        size = float(np.nan_to_num(chains.island_size(chains.by_chain(on_hill, posterior.islands))[0], nan=count))
    return own, even / max(min(size, float(count)), 1.0)


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
