"""`nw.allocate(..., over=...)`: clamping bounds, bins, and how often to measure, against answers found without it."""

import math
from dataclasses import dataclass, field
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, agrees
from jax.scipy import stats as jax_stats
from scipy import optimize, stats

import noisewise as nw
from noisewise.results.goal import Goal
from noisewise.studies.designs.candidates import Way
from noisewise.studies.designs.open_plan import OpenPlan

TAU, SIGMA, DELTA = 2.0, 0.5, 0.3


# How often to measure -----------------------------------------------------------------------------------------------


@cache
def waves_model(waves):
    """Each wave asks a fresh sample: a mean of its own."""
    return nw.Model(
        prior={"mu": dist.Normal(0.0, TAU)},
        statistics={"means": lambda mu: dist.Normal(mu, SIGMA).expand([waves]).to_event(1)},
    )


def waves_plan(waves):
    """All waves together spend rho: one person in all of them moves the vector by sqrt(waves) DELTA."""
    return {"means": lambda rho: nw.Gaussian(rho=rho, sensitivity=DELTA * math.sqrt(waves))}


def waves_sd(waves, rho):
    each = SIGMA**2 + waves * DELTA**2 / (2 * rho)
    return (TAU**-2 + waves / each) ** -0.5


@pytest.mark.quick
def test_how_often_to_measure_in_closed_form():
    found = nw.allocate(waves_model, waves_plan, rho=0.1, target={"sd": "mu"}, over={"waves": [1, 2, 8, 4]})
    assert found.choice == {"waves": 8}
    assert found.closed
    assert found.status == "complete"
    assert found.shares == {"means": 1.0}
    for one in found.candidates:
        assert one.value == pytest.approx(waves_sd(one.choice["waves"], 0.1), rel=1e-9)
        assert one.worse == pytest.approx(waves_sd(one.choice["waves"], 0.1) - waves_sd(8, 0.1), abs=1e-12)
        assert one.is_best == (one.choice["waves"] == 8)
    assert found.value == pytest.approx(waves_sd(8, 0.1))
    assert "At rho = 0.1, waves = 8 does best." in found.headline()
    assert "with waves = 4 worse by" in repr(found)
    assert list(found.candidate_table()["waves"]) == [1, 2, 8, 4]


def test_once_with_all_or_often_with_a_part_of_a_gaussian_budget_is_all_the_same():
    """The average of k values, each with a k-th of rho, has the very noise of one with all of it."""

    def plan(times):
        def averaged(rho):
            return nw.Gaussian(scale=nw.Gaussian(rho=rho / times, sensitivity=DELTA).scale / math.sqrt(times))

        return {"mean": averaged}

    model = nw.Model(prior={"mu": dist.Normal(0.0, TAU)}, statistics={"mean": lambda mu: dist.Normal(mu, SIGMA)})
    with pytest.raises(nw.InferenceError, match=r"does not tell one times from another at rho = 0\.1\. Ask") as caught:
        nw.allocate(model, plan, rho=0.1, target={"sd": "mu"}, over={"times": [1, 2, 5]})
    values = {one.value for one in caught.value.result}
    assert max(values) == pytest.approx(min(values))


def test_each_candidate_is_split_as_suits_it():
    """Two statistics, of which one has a sensitivity that the choice decides."""
    model = nw.Model(
        prior={"a": dist.Normal(0.0, 2.0), "b": dist.Normal(0.0, 2.0)},
        statistics={"x": lambda a: dist.Normal(a, 0.2), "y": lambda b: dist.Normal(b, 0.2)},
        derived={"gap": lambda a, b: a - b},
    )

    def plan(bound):
        return {
            "x": lambda rho: nw.Gaussian(rho=rho, sensitivity=0.2),
            "y": lambda rho: nw.Gaussian(rho=rho, sensitivity=bound),
        }

    def sd(share, bound):
        noise = 0.2**2 / (2 * 0.5 * share), bound**2 / (2 * 0.5 * (1 - share))
        return math.sqrt(sum(1 / (1 / 4.0 + 1 / (0.04 + each)) for each in noise))

    found = nw.allocate(model, plan, rho=0.5, target={"sd": "gap"}, over={"bound": [0.4, 1.2]})
    assert found.choice == {"bound": 0.4}
    for one in found.candidates:
        bound = one.choice["bound"]
        best = optimize.minimize_scalar(lambda w, bound=bound: sd(w, bound), bounds=(0.01, 0.99), method="bounded")
        assert one.shares["x"] == pytest.approx(best.x, abs=2e-3)
        assert one.value == pytest.approx(best.fun, rel=1e-6)
    assert "Of rho = 0.5: x " in found.headline()
    assert list(found.table().index) == ["x", "y"]
    assert "share of x" in found.candidate_table()


# Clamping -------------------------------------------------------------------------------------------------------------

PEOPLE, SPREAD, PRIOR = 200, 1.0, 0.7


def clamped(mu, bound, cdf, pdf, sqrt):
    """Mean and standard deviation of the mean of N(mu, 1) clamped to [-bound, bound], over so many people."""
    low, high = -bound - mu, bound - mu
    inside, slope = cdf(high) - cdf(low), pdf(low) - pdf(high)
    mean = bound * (1.0 - cdf(high) - cdf(low)) + mu * inside + slope
    square = bound**2 * (1.0 - inside) + (mu**2 + 1.0) * inside + 2.0 * mu * slope + low * pdf(low) - high * pdf(high)
    return mean, sqrt((square - mean**2) / PEOPLE)


def clamped_model(bound):
    def law(mu):
        return dist.Normal(*clamped(mu, bound, jax_stats.norm.cdf, jax_stats.norm.pdf, jnp.sqrt))

    return nw.Model(prior={"mu": dist.Normal(0.0, PRIOR)}, statistics={"mean": law})


def clamped_plan(bound):
    return {"mean": lambda rho: nw.Gaussian(rho=rho, sensitivity=2.0 * bound / PEOPLE)}


def clamped_sd(bound, rho):
    """The average posterior standard deviation, by quadrature over mu and the published mean."""
    mu = np.linspace(-6.0 * PRIOR, 6.0 * PRIOR, 1_201)
    mean, sd = clamped(mu, bound, stats.norm.cdf, stats.norm.pdf, np.sqrt)
    spread = np.hypot(sd, 2.0 * bound / PEOPLE / math.sqrt(2.0 * rho))
    released = np.linspace(-bound - 6.0 * spread.max(), bound + 6.0 * spread.max(), 1_201)
    joint = stats.norm(0.0, PRIOR).pdf(mu)[:, None] * stats.norm(mean[:, None], spread[:, None]).pdf(released)
    mass = joint.sum(axis=0)
    centre = (mu[:, None] * joint).sum(axis=0) / mass
    variance = ((mu[:, None] - centre) ** 2 * joint).sum(axis=0) / mass
    return float(np.sum(np.sqrt(variance) * mass) / np.sum(mass))


@pytest.mark.long
def test_clamping_bounds_against_quadrature(seed):
    """Tight bounds hide who lies beyond, wide ones need much noise; between them is a best one."""
    rho, bounds = 0.1, [0.25, 2.0, 6.0]
    exact = {bound: clamped_sd(bound, rho) for bound in bounds}
    assert min(exact, key=exact.get) == 2.0
    found = nw.allocate(
        clamped_model, clamped_plan, rho=rho, target={"sd": "mu"}, over={"bound": bounds}, replicates=96, seed=seed + 1
    )
    assert not found.closed
    limit = stats.t(96 // 4 - 1).isf(FALSE_ALARM / 2)
    best = exact[found.choice["bound"]]
    for one in found.candidates:
        value = exact[one.choice["bound"]]
        assert abs(one.value - value) < limit * one.error
        assert one.is_best or abs(one.worse - (value - best)) < limit * one.worse_error
    assert found.choice == {"bound": 2.0}
    assert found.candidates[2].is_worse
    assert abs(found.candidates[2].value - best) > limit * found.candidates[2].error, "negative control: another bound"


# Bins -----------------------------------------------------------------------------------------------------------------


def trend_sd(bins, rho):
    """Of a slope, from means by bin of 200 people spread evenly over [-1, 1], a person's value moving by 4 at most."""
    middles = (2.0 * np.arange(bins) + 1.0) / bins - 1.0
    variance = bins / 200 + (4.0 * bins / 200) ** 2 / (2.0 * rho)
    return (1.0 + np.sum(middles**2) / variance) ** -0.5


def test_bins_of_a_trend_in_closed_form():
    def model(bins):
        middles = (2.0 * np.arange(bins) + 1.0) / bins - 1.0
        law = {"means": lambda slope: dist.Normal(slope * middles, math.sqrt(bins / 200)).to_event(1)}
        return nw.Model(prior={"slope": dist.Normal(0.0, 1.0)}, statistics=law)

    def plan(bins):  # a person is in one bin, of a bins-th of the people
        return {"means": lambda rho: nw.Gaussian(rho=rho, sensitivity=4.0 * bins / 200)}

    found = nw.allocate(model, plan, rho=0.8, target={"sd": "slope"}, over={"bins": [2, 4, 8]})
    assert found.closed
    assert found.choice == {"bins": 4}
    for one in found.candidates:
        assert one.value == pytest.approx(trend_sd(one.choice["bins"], 0.8), rel=1e-9)


# Judged on releases that nothing was chosen on ------------------------------------------------------------------------


@dataclass
class Noise:
    """Candidates that are all worth the same: batches of noise."""

    values: np.ndarray
    simulation: "Noise" = field(init=False)
    joint: None = None

    def __post_init__(self):
        self.simulation = self

    def keep(self, run, scope, batches):
        pass

    def forget(self):
        pass

    def means(self, mechanisms, first, last):
        return self.values[first:last]


def test_the_winner_is_judged_on_releases_that_did_not_choose_it(seed):
    """Where all are alike, the others are worse by nothing on average. Negative control: on those that chose."""
    rng = np.random.default_rng(seed)
    model = nw.Model(prior={"mu": dist.Normal(0.0, 1.0)}, statistics={"x": lambda mu: dist.Normal(mu, 1.0)})
    plan = OpenPlan.read("allocate", {"x": lambda rho: nw.Gaussian(rho=rho, sensitivity=1.0)}, model)
    fresh, seen = [], []
    for _ in range(100):
        ways = [Way({}, model, plan, Goal("sd", "mu", (), 0.95), 1.0, 16) for _ in range(4)]
        for way in ways:
            way.setting = Noise(rng.normal(size=32))
            way.search(None, 0, 1.0)
        best = min(ways, key=lambda way: way.seen)
        others = [way for way in ways if way is not best]
        fresh.append(np.mean([way.beside(best, 1.0).worse for way in others]))
        seen.append(np.mean([way.seen - best.seen for way in others]))
    assert agrees(fresh, 0.0)
    assert not agrees(seen, 0.0)


# Refusals -------------------------------------------------------------------------------------------------------------

REFUSED = {
    "no dict": ({"over": [1, 2]}, "'over' must be a dict of names with the values to compare"),
    "one value": ({"over": {"waves": [1]}}, "'over' must leave between 2 and 64 candidates"),
    "no list": ({"over": {"waves": 3}}, "'over' must leave between 2 and 64 candidates"),
    "too many": ({"over": {"waves": list(range(1, 99))}}, "'over' must leave between 2 and 64 candidates"),
    "another argument": ({"over": {"times": [1, 2]}}, "'model' must be a function of times"),
    "nothing that depends on it": (
        {"model": waves_model(1), "plan": waves_plan(1)},
        "'model' must be a function of waves, or the plan must",
    ),
    "no model": ({"model": lambda waves: waves}, "'model' must be a noisewise Model"),
    "two kinds of budgets": (
        {
            "plan": lambda waves: {
                "means": (lambda rho: nw.Gaussian(rho=rho, sensitivity=1.0))
                if waves == 1
                else (lambda epsilon: nw.Laplace(epsilon=epsilon, sensitivity=1.0))
            }
        },
        "'plan' must have the same kind of budget for every candidate",
    ),
    "no function without candidates": ({"over": None}, "'model' must be a noisewise Model"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(changes, message):
    given = {"model": waves_model, "plan": waves_plan, "over": {"waves": [1, 2]}, "rho": 1.0} | changes
    with pytest.raises(nw.InputError, match=message):
        nw.allocate(given.pop("model"), given.pop("plan"), target={"sd": "mu"}, **given)


def test_candidates_that_cannot_be_told_from_the_best_are_said_to_be_tied():
    """Two names, combined in all ways, of which one decides nothing."""
    found = nw.allocate(
        lambda waves, colour: waves_model(waves),
        lambda waves, colour: waves_plan(waves),
        rho=0.1,
        target={"sd": "mu"},
        over={"waves": [1, 8], "colour": ["red", "blue"]},
    )
    assert found.choice["waves"] == 8
    assert found.status == "tied"
    assert len(found.candidates) == 4
    assert "Others do as well, as far as can be seen" in found.headline()
