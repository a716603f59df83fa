"""A problem with the layers of its hierarchy integrated out, and its draws with the layers drawn again.

Every sampler works on the smaller problem: on 2 parameters, say, in place of 1,002. Derivation:
docs/derivations/layers.md.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from noisewise.engine import Engine
from noisewise.engine.base import Poll, gather
from noisewise.inference.blocks import Columns
from noisewise.inference.conditional.target import unfit
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.settings import Sampler
from noisewise.mechanisms import Exact
from noisewise.model.layers import Layer
from noisewise.model.on_device.draws import on_accelerator
from noisewise.numerics import Array
from noisewise.results.posterior import Posterior
from noisewise.samplers.judging import posterior_of

AT_ONCE = 2**18
"""Numbers of a layer that one task draws, if that is a row or more."""


def integrated(problem: Problem, sampler: Sampler | None = None) -> Problem:
    """The problem without the layers that `sampler` can do without; the same problem where there are none.

    Tables that are measured several ways and statistics without noise keep their layers, and so does all that a
    mechanism or a proposal reads. On an accelerator laws are drawn as they were written.
    """
    if on_accelerator():
        return problem
    proposal = getattr(sampler, "proposal", None)
    model = problem.model.integrated(_kept(problem) | (set(proposal) if isinstance(proposal, Mapping) else set()))
    if model is problem.model:
        return problem
    smaller = Problem(model, problem.release)
    return problem if unfit(smaller) is not None and unfit(problem) is None else smaller


def wholly_integrated(problem: Problem) -> Problem | None:
    """The problem with every parameter integrated out, so that none is left; None where that cannot be done."""
    if on_accelerator() or problem.model.layers or not problem.model.parameters:
        return None
    model = problem.model.integrated(_kept(problem), first=True)
    return None if model.parameters else Problem(model, problem.release)


def _kept(problem: Problem) -> set[str]:
    """Statistics whose layers stay, and layers that stay themselves."""
    kept = {name for item in problem.release.values() for name in item.mechanism.inputs}
    kept |= {name for name, item in problem.release.items() if isinstance(item.mechanism, Exact)}
    return kept | {measured.statistic for measured in problem.measured.values()}


def with_layers(posterior: Posterior, problem: Problem, engine: Engine) -> Posterior:
    """The posterior of `problem` from that with its layers integrated out: the layers are drawn, row by row."""
    smaller = posterior.problem
    assert smaller is not None
    if smaller is problem or not smaller.model.layers:
        return posterior
    columns = dict(posterior.draws)
    if len(posterior):
        for number, layer in enumerate(smaller.model.layers):
            columns[layer.name] = _drawn(layer, columns, posterior.seed, number, engine)
    whole = posterior_of(posterior.sampler, problem, posterior.seed, columns)
    names = ", ".join(f"'{layer.name}'" for layer in smaller.model.layers)
    reason = f"{posterior.reason}; {names} integrated out in closed form, and drawn given the rest"
    return replace(
        posterior,
        draws=whole.draws,
        parameters=whole.parameters,
        axes=whole.axes,
        derived=whole.derived,
        problem=problem,
        reason=reason,
    )


def _drawn(layer: Layer, columns: Columns, seed: int, number: int, engine: Engine) -> Array:
    """The layer for each row of everything else, block by block; the blocks depend on its shape alone."""
    needed = {name: columns[name] for name in (*layer.parents, layer.statistic)}
    rows = len(needed[layer.statistic])
    each = max(1, AT_ONCE // max(1, math.prod(layer.law.form.shape)))
    drawn = np.empty((rows, *layer.law.form.shape))

    def draw(block: int, _: Poll) -> None:
        start, end = block * each, min((block + 1) * each, rows)
        first = max(0, end - each)  # all blocks have one length, since programs are compiled for each
        rng = generator(seed, Purpose.LAYERS, number, *[block] * (block > 0))
        drawn[start:end] = layer.draw(rng, {name: column[first:end] for name, column in needed.items()}, start - first)

    gather(engine, [partial(draw, block) for block in range(math.ceil(rows / each))])
    return drawn
