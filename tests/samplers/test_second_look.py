"""What prior draws cannot have seen: reported, searched for, and never called complete where it is found.

Exact values by quadrature in each test. Derivation: docs/derivations/conditional.md.
"""

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import noisewise as nw
from noisewise.engine import Threads
from noisewise.inference.problem import Problem
from noisewise.mechanisms import GeneralizedCauchy
from noisewise.samplers.choosing import second_look
from noisewise.samplers.choosing.probe import MOST_UNSEEN, Probe, probe_of
from noisewise.samplers.walking.starts import spread_out

LIMIT = stats.norm.isf(0.5e-6)
"""One false alarm in a million for each comparison."""


@cache
def two_hills():
    """The noise did it (t near 1), or t is near 24 on either side, which the prior thinks of as exp(-15)."""
    model = nw.Model({"t": dist.Laplace(1.0, 1.5)}, {"x": lambda t: dist.Normal(t**2, 0.7)})
    return model, nw.Release(x=GeneralizedCauchy(power=3.0, scale=0.7).released(582.0))


def rare_case():
    model = nw.Model({"z": dist.Bernoulli(2e-5)}, {"x": lambda z: dist.Normal(10.0 * z, jnp.where(z == 1, 0.005, 1.0))})
    return model, nw.Release(x=GeneralizedCauchy(power=2.0, scale=0.01).released(10.0))


def by_quadrature(mechanism, released, mean, sd):
    """The density of the release where the statistic is normal."""
    points = sorted({released, mean, *(mean + sd * np.array([-9.0, -3.0, 3.0, 9.0]))})
    edges = [min(points) - 50.0 * sd, *points, max(points) + 50.0 * sd]
    parts = [
        integrate.quad(lambda s: stats.norm.pdf(s, mean, sd) * math.exp(mechanism.log_prob(released, s)), a, b)[0]
        for a, b in pairwise(edges)
    ]
    return sum(parts)


@pytest.mark.long  # test_collapsed.py has the same of weights that are all alike
@pytest.mark.parametrize("sampler", [nw.Importance(), nw.SMC()], ids=["Importance", "SMC"])
def test_a_hill_that_prior_draws_do_not_reach_is_not_passed_over(sampler, seed):
    """Of the posterior, 62.6% lies beyond |t| = 10. Draws without it are refused, and by default it is found."""
    model, release = two_hills()
    posterior = nw.sample(model, release, sampler, draws=4_000, seed=seed, on_failure="return")
    far = np.average(np.abs(posterior["t"]) > 10.0, weights=posterior.weights)
    assert far < 0.1
    assert posterior.status == "unseen"
    assert "t near" in posterior.message or "evidence" in posterior.message
    assert posterior.diagnostics["unseen"] == 1.0


@pytest.mark.long  # test_collapsed.py finds by default what prior draws never show
def test_by_default_every_hill_is_found(seed):
    """The posterior of t on a grid, the normal statistic integrated out by Gauss and Hermite's rule."""
    model, release = two_hills()
    grid = np.concatenate(
        [np.linspace(-40.0, 40.0, 16_001), np.linspace(23.9, 24.4, 4_001), -np.linspace(23.9, 24.4, 4_001)]
    )
    t = np.unique(grid)
    node, weight = np.polynomial.hermite_e.hermegauss(120)
    s = t[:, None] ** 2 + 0.7 * node
    likelihood = np.exp(release["x"].mechanism.log_prob(582.0, s)) @ weight / math.sqrt(2.0 * math.pi)
    height = stats.laplace.pdf(t, 1.0, 1.5) * likelihood
    evidence = np.trapezoid(height, t)
    far = np.trapezoid(np.where(np.abs(t) > 10.0, height, 0.0), t) / evidence
    mean = np.trapezoid(t * height, t) / evidence
    assert (far, mean) == pytest.approx((0.626, 9.17), abs=0.01)
    posterior = nw.sample(model, release, draws=4_000, seed=seed)
    assert posterior.status == "complete"
    row = posterior.summary().loc["t"]
    assert abs(row["mean"] - mean) < LIMIT * row["mcse"]
    beyond = np.average(np.abs(posterior["t"]) > 10.0, weights=posterior.weights)
    assert abs(beyond - far) < LIMIT * math.sqrt(far * (1.0 - far) / posterior.diagnostics["ess"])
    assert abs(posterior.log_evidence - math.log(evidence)) < LIMIT * posterior.log_evidence_se


@pytest.mark.long
def test_a_rare_case_of_a_whole_number_is_seen(seed):
    """P(z = 1) is 0.94 by quadrature; prior draws have z = 1 once in 50,000. The control: without tables, never."""
    model, release = rare_case()
    mechanism = release["x"].mechanism
    ordinary, rare = by_quadrature(mechanism, 10.0, 0.0, 1.0), by_quadrature(mechanism, 10.0, 10.0, 0.005)
    truth = 2e-5 * rare / (2e-5 * rare + (1 - 2e-5) * ordinary)
    assert 0.93 < truth < 0.95
    posterior = nw.sample(model, release, draws=4_000, seed=seed)
    row = posterior.summary().loc["z"]
    assert abs(row["mean"] - truth) < LIMIT * row["mcse"]
    log_evidence = math.log(2e-5 * rare + (1 - 2e-5) * ordinary)
    assert abs(posterior.log_evidence - log_evidence) < LIMIT * posterior.log_evidence_se
    blind = nw.sample(model, release, nw.Importance(), draws=4_000, seed=seed, on_failure="return")
    assert blind.status in ("unseen", "low_ess")


@cache
def normal_mean():
    return nw.Model({"m": dist.Normal(0.0, 1.0)}, {"x": lambda m: dist.Normal(m, 1.0)})


COLLAPSED = nw.Importance(proposal="adapted", collapse=True)


@pytest.mark.parametrize(
    "sampler",
    [COLLAPSED, nw.NUTS(warmup=300), pytest.param(nw.Augmentation(thin=4), marks=pytest.mark.long)],
    ids=["collapsed", "NUTS", "Augmentation"],
)
def test_a_right_posterior_is_not_refused_under_conflict(sampler, seed, monkeypatch):
    """Eight standard deviations of conflict, all normal: draws of any sampler are those of the closed form."""
    model = normal_mean()
    release = nw.Release(x=nw.Gaussian(scale=1.0).released(8.0 * math.sqrt(3.0)))
    monkeypatch.setattr(second_look, "MOST_ROWS", 2**13)
    posterior = nw.sample(model, release, sampler, draws=4_000, seed=seed)
    assert posterior.diagnostics["unseen"] > MOST_UNSEEN
    row = posterior.summary().loc["m"]
    assert abs(row["mean"] - 8.0 / math.sqrt(3.0)) < LIMIT * row["mcse"]


@pytest.mark.parametrize(
    ("size", "far"),
    [(4, 2.5), pytest.param(2, 4.0, marks=pytest.mark.long), pytest.param(6, 4.5, marks=pytest.mark.long)],
)
def test_a_posterior_that_the_search_hardly_hits_is_not_refused(size, far, seed):
    """Noise of a hundredth of the prior's width, far out in it: of the search only near misses have weight."""
    model = nw.Model(
        {"t": dist.Normal(jnp.zeros(size), 1.0).to_event(1)}, {"s": lambda t: dist.Normal(t, 0.01).to_event(1)}
    )
    release = nw.Release(s=nw.Gaussian(scale=0.01).released(np.full(size, far)))
    posterior = nw.sample(model, release, COLLAPSED, draws=4_000, seed=seed)
    assert posterior.diagnostics["unseen"] > MOST_UNSEEN
    rows = posterior.summary().loc[[f"t[{i}]" for i in range(size)]]
    assert np.all(np.abs(rows["mean"] - far / (1.0 + 2e-4)) < LIMIT * rows["mcse"])


def test_ordinary_releases_need_no_second_look(seed, monkeypatch):
    """A release that the prior expects, with noise far smaller than the prior's width: nothing more is computed."""
    model = nw.Model({"m": dist.Normal(0.0, 1.0)}, {"x": lambda m: dist.Normal(m, 0.001)})
    problem = Problem(model, nw.Release(x=nw.Gaussian(scale=0.001).released(0.3)))
    probe = probe_of(problem, seed, Threads())
    assert probe.unseen <= MOST_UNSEEN
    monkeypatch.setattr(second_look, "_searched", lambda *given: pytest.fail("searched"))
    posterior = nw.sample(model, problem.release, nw.Importance(proposal="adapted"), draws=4_000, seed=seed)
    assert posterior.diagnostics["unseen"] == probe.unseen
    surprising = Problem(model, nw.Release(x=nw.Gaussian(scale=0.001).released(6.0)))
    assert probe_of(surprising, seed, Threads()).unseen > MOST_UNSEEN


def test_the_bound_on_what_goes_unseen_holds(seed):
    """Posterior mass of a region of prior mass e, averaged over the most surprising share p of releases: at most e / p.

    Two normal laws and the region beyond 3: all of it is known. The bound is reached where p is small.
    """
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(200_000)
    release = theta + rng.standard_normal(len(theta))
    surprise = np.abs(release)
    mass = stats.norm.sf((3.0 - release / 2.0) * math.sqrt(2.0))
    region = stats.norm.sf(3.0)
    for p in (1.0, 0.1, 0.01):
        kept = mass[surprise >= np.quantile(surprise, 1.0 - p)]
        error = kept.std() / math.sqrt(len(kept))
        assert kept.mean() - LIMIT * error <= region / p
    assert mass.mean() == pytest.approx(region, abs=LIMIT * mass.std() / math.sqrt(len(mass)))


def test_what_draws_may_have_missed_is_three_over_what_they_accept():
    """A region of prior mass 3/N is missed by N draws once in twenty times; its posterior mass is at most that over
    the share of draws that rejection accepts."""
    probe = Probe(None, 0, {}, {"s": np.log(np.full(1_000, 0.5))})
    assert probe.unseen == pytest.approx(3.0 / (1_000 * 0.5))
    missed = (1.0 - 3.0 / 1_000) ** 1_000
    assert missed == pytest.approx(0.05, abs=1e-3)


@pytest.mark.parametrize(("share", "is_missed"), [(0.05, False), (0.15, True)])
def test_a_share_of_the_posterior_where_no_draw_is_counts_by_its_weight(share, is_missed, seed):
    """Ten of the rows that a search found lie far out. How much they weigh decides, not how many they are."""
    rng, model = np.random.default_rng(seed), nw.Model({"t": dist.Normal(0, 1)}, {"s": lambda t: dist.Normal(t, 1.0)})
    problem = Problem(model, nw.Release(s=nw.Laplace(scale=1.0).released(0.0)))
    posterior = nw.sample(model, problem.release, nw.Rejection(), draws=2_000, seed=seed)
    posterior = replace(posterior, log_evidence=None)
    rows = np.concatenate([rng.choice(posterior["t"], 990), np.full(10, 50.0)])
    log_weights = np.log(np.concatenate([np.full(990, (1.0 - share) / 990), np.full(10, share / 10)]))
    told = second_look._missed(problem, posterior, second_look.Found({"t": rows}, log_weights))
    assert (told is not None and "where no draw is: t near 50" in told) == is_missed


def test_chains_that_start_on_one_hill_of_two_are_not_called_complete():
    """Four seeds: NUTS ends in both hills or says that its chains disagree."""
    model = nw.Model({"t": dist.Normal(0.0, 3.0)}, {"x": lambda t: dist.Normal(t**2, 0.5)})
    release = nw.Release(x=nw.Laplace(scale=0.5).released(9.0))
    for seed in range(4):
        posterior = nw.sample(model, release, nw.NUTS(warmup=200), draws=1_000, seed=seed, on_failure="return")
        share = np.mean(posterior["t"] > 0.0)
        assert posterior.status != "complete" or 0.2 < share < 0.8


def test_starts_lie_on_both_hills(seed):
    rng = np.random.default_rng(seed)
    points = np.concatenate([rng.normal(-9.0, 1.0, (60, 1)), rng.normal(9.0, 1.0, (60, 1)), rng.normal(0, 30, (8, 1))])
    log_weights = -0.5 * (np.abs(points[:, 0]) - 9.0) ** 2
    starts = points[spread_out(points, log_weights, 4), 0]
    assert (starts > 0).any()
    assert (starts < 0).any()
    assert np.all(np.abs(np.abs(starts) - 9.0) < 3.0)
    impossible = np.where(np.arange(128) == 5, 0.0, -np.inf)
    assert spread_out(points, impossible, 4).tolist() == [5, 5, 5, 5]
