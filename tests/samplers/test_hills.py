"""Hills far narrower than the search: climbed to from rows on their slopes, and missed by no share of the draws.

Derivations: docs/derivations/importance.md, docs/derivations/conditional.md.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from targets import count_model, count_release

import noisewise as nw
from noisewise.diagnostics import weights
from noisewise.engine import Threads
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.mechanisms import GeneralizedCauchy
from noisewise.samplers.choosing import conflict, second_look
from noisewise.samplers.choosing.probe import probe_of
from noisewise.samplers.proposals import hills, pilot, proposal
from noisewise.samplers.proposals.adapted import search
from noisewise.samplers.proposals.collapsed import WeighCollapsed
from noisewise.samplers.proposals.memory import Memory, Round
from noisewise.samplers.proposals.mixture import StudentMixture

COLLAPSED = nw.Importance(proposal="adapted", collapse=True)


@cache
def three_hills():
    """t near 1, or near 24 on either side: hills of 0.38, 0.49 and 0.13 of the posterior, the last two 0.03 wide."""
    model = nw.Model({"t": dist.Laplace(1.0, 1.5)}, {"x": lambda t: dist.Normal(t**2, 0.7)})
    return Problem(model, nw.Release(x=GeneralizedCauchy(power=3.0, scale=0.7).released(582.0)))


def search_rows(problem, rows, seed):
    """Rows of the search law."""
    space, rng = proposal.space_of(problem.model), np.random.default_rng(seed)
    law = search(space, problem.model.draw(rng, list(problem.model.parameters), 1024))
    ground = hills.Ground(problem, space, Threads(1))
    memory = Memory(space, (), rows)
    memory.add(*WeighCollapsed(problem, law).looked_at(rng, rows, lambda: None)[:2], law)
    return rng, ground, memory.rounds[0]


def test_every_top_is_climbed_to_from_the_slopes(seed):
    """No row of the search is on the narrow hills: those that are within ten of their widths are taken out."""
    problem = three_hills()
    rng, ground, searched = search_rows(problem, 2048, seed)
    off = np.abs(np.abs(searched.free[:, 0]) - 24.12) > 0.3
    law = hills.hills(rng, ground, replace(searched, log_weights=np.where(off, searched.log_weights, -np.inf)))
    tops = np.sort(law.centres[:, 0])
    assert tops[[0, -1]] == pytest.approx([-24.125, 24.125], abs=0.05)
    assert np.abs(tops[1:-1] - 1.0).min() < 1.5
    narrow = law.factors[np.abs(np.abs(law.centres[:, 0]) - 24.125) < 0.05, 0, 0]
    assert len(narrow) == 2
    assert np.all((narrow > 0.01) & (narrow < 0.1))


def test_a_climber_is_spread_as_the_hill_is(seed):
    """A normal hill, asked of two starts: one is six of its own widths away, one at the top and far too narrow."""

    ground = given_ground(lambda free: -0.5 * np.square((free - [3.0, -2.0]) / [0.1, 0.4]).sum(axis=1))
    centres, factors = np.array([[9.0, 3.0], [3.0, -2.0]]), np.stack([np.eye(2), 1e-4 * np.eye(2)])
    starts = hills.Climbers(centres, factors, ground.heights(centres, {}), {})
    none = hills.Climbers(centres[:0], factors[:0], np.empty(0), {})
    climbed, left = hills._climbed(np.random.default_rng(seed), ground, none, starts, 10**6)
    assert 0 < left < 10**6
    for centre, factor in zip(climbed.centres, climbed.factors, strict=True):
        assert np.all(np.abs(centre - [3.0, -2.0]) < [0.1, 0.4])
        spread = np.sqrt(np.diag(factor @ factor.T))
        assert np.all((spread > 0.2 * np.array([0.1, 0.4])) & (spread < 3.0 * np.array([0.1, 0.4])))


def test_draws_without_a_hill_between_others_are_not_complete(seed, monkeypatch):
    """Nothing lies beyond the outermost draws, and chains have no evidence: the hills' shares say it."""
    problem = three_hills()
    monkeypatch.setattr(second_look, "MOST_ROWS", 2**12)
    monkeypatch.setattr(pilot, "ROUND", 2**11)
    posterior = COLLAPSED.run(problem, 2_000, seed, Threads(1), Progress(False, ""))
    found = second_look._searched(problem, posterior, probe_of(problem, seed, Threads(1)), Threads(1))
    assert weights.effective_size(found.log_weights) > 10 * second_look.ENOUGH
    index = weights.systematic(np.random.default_rng(seed), found.log_weights, 2_000)
    draws = {name: found.rows[name][index] for name in ("t", "x")}

    def told(chosen):
        kept = {name: np.resize(column[chosen], 2_000) for name, column in draws.items()}
        drawn = replace(posterior, draws=kept, log_evidence=None, log_weights=None)
        return second_look._missed(problem, drawn, found)

    assert told(np.ones(2_000, bool)) is None
    without = told(np.abs(draws["t"]) > 10.0)
    assert without is not None
    assert "of the posterior lies where 0" in without
    assert -3.0 < float(without.rsplit("t near ")[1]) < 5.0


class Given(hills.Ground):
    """A log density that is written down."""

    density: Any

    def heights(self, free, whole):
        return self.density(free)

    @property
    def allowed(self):
        return 10**6


def given_ground(density):
    problem = three_hills()
    ground = Given(problem, proposal.space_of(problem.model), Threads(1))
    object.__setattr__(ground, "density", density)
    return ground


def wide_rows(rng, density, size, width, count=4096):
    """Rows of a wide normal law as a search would give them."""
    free = width * rng.standard_normal((count, size))
    log_prior = -0.5 * np.square(free / width).sum(axis=1)
    return Round(None, density(free) - log_prior, free, {}, log_prior, {}, np.zeros(count, dtype=int))


@pytest.mark.parametrize("away", [3.0, 6.0])
def test_a_spike_on_a_wide_hill_is_a_hill_of_its_own(away, seed):
    """A slab of standard deviation 3, and on its side a spike a thousandth wide, whose slopes show 0.03 from it."""

    def density(free):
        slab = -0.5 * np.square(free[:, 0] / 3.0)
        return np.logaddexp(slab, 14.0 - 2.0 * np.log1p(np.square((free[:, 0] - away) / 1e-3)))

    rng = np.random.default_rng(seed)
    law = hills.hills(rng, given_ground(density), wide_rows(rng, density, 1, 20.0))
    assert np.min(np.abs(law.centres[:, 0] - away)) < 0.01


def test_a_ridge_thinner_than_floating_point_can_factor_is_climbed(seed):
    def density(free):
        return -0.5 * np.square((free[:, 0] + free[:, 1]) / 1e-4) - 0.5 * np.square(free / 1e5).sum(axis=1)

    rng = np.random.default_rng(seed)
    law = hills.hills(rng, given_ground(density), wide_rows(rng, density, 2, 1e5))
    assert np.all(np.isfinite(law.factors))


def test_every_one_of_very_many_components_is_drawn_from(seed):
    count = 200
    law = StudentMixture(np.full(count, 1.0 / count), np.arange(count)[:, None] * 100.0, np.full((count, 1, 1), 0.01))
    drawn = np.rint(law.draw(np.random.default_rng(seed), 100 * count)[:, 0] / 100.0)
    expected = 100.0
    assert stats.chisquare(np.bincount(drawn.astype(int), minlength=count), expected).pvalue > 1e-6


def test_shares_of_chains_have_the_errors_of_chains(seed):
    """Four chains that stay on a hill for hundreds of draws are right, and say little of its share."""
    rng, length = np.random.default_rng(seed), 2_500
    jumps = rng.random((4, length)) < 1.0 / 250.0
    side = (np.cumsum(jumps, axis=1) % 2 == rng.integers(2, size=(4, 1))).ravel()
    posterior = nw.sample(count_model(), count_release(), nw.Rejection(), draws=10, seed=seed)
    chained = replace(posterior, draws={"theta": side * 1.0, "count": side * 1.0}, chains=4, diagnostics={})
    own, of_chains = second_look._share_drawn(chained, side, 0.5)
    assert own == side.mean()
    assert of_chains > 30.0 * second_look._share_drawn(replace(chained, chains=None), side, 0.5)[1]


def test_one_statistic_far_out_among_others_is_surprising():
    """Of 199 simulated releases none has x as far out; as a whole, two are as unlikely."""
    assert conflict.as_surprising({"x": 0.005, "y": 0.135, "release": 0.015}) == 0.0
    assert conflict.as_surprising({"x": 0.3, "y": 0.4, "release": 0.25}) == pytest.approx(49.0 / 199.0)
    assert conflict.as_surprising({"x": 0.3}) == pytest.approx(59.0 / 199.0)
    assert conflict.as_surprising({}) == 0.0
