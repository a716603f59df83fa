"""Designs, allocations and sample sizes: closed forms, simulation against them, fresh simulations, the search."""

import math
from functools import cache

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, agrees, errors_agree
from scipy import optimize, stats
from targets import count_model

import noisewise as nw
from noisewise.mechanisms import Gaussian
from noisewise.results.goal import Goal
from noisewise.studies.designs.gaussian import JointNormal
from noisewise.studies.designs.run import PER_BATCH
from noisewise.studies.designs.search import Curve, falling, least
from noisewise.studies.designs.simulation import Simulation, floor_of
from noisewise.studies.designs.split import judged, searched

Z = stats.norm.ppf(0.975)
TAU, SIGMA, DELTA = 2.0, 0.5, 0.3


@cache
def mean_model():
    return nw.Model(prior={"mu": dist.Normal(0.0, TAU)}, statistics={"mean": lambda mu: dist.Normal(mu, SIGMA)})


def mean_plan():
    return {"mean": lambda rho: nw.Gaussian(rho=rho, sensitivity=DELTA)}


@cache
def two_model():
    """Two groups, whose means differ by what is asked for."""
    return nw.Model(
        prior={"a": dist.Normal(0.0, 2.0), "b": dist.Normal(1.0, 3.0)},
        statistics={"x": lambda a: dist.Normal(a, 0.2), "y": lambda b: dist.Normal(1.0 + 2.0 * b, 0.1)},
        derived={"gap": lambda a, b: a - b},
    )


def two_plan():
    return {
        "x": lambda rho: nw.Gaussian(rho=rho, sensitivity=0.3),
        "y": lambda rho: nw.Gaussian(rho=rho, sensitivity=1.5),
    }


def gap_sd(rho_x, rho_y):
    """Standard deviation of a - b: each group by itself is a conjugate normal."""
    noise_x, noise_y = 0.3**2 / (2 * rho_x), 1.5**2 / (2 * rho_y)
    var_a = 1 / (1 / 4.0 + 1 / (0.04 + noise_x))
    var_b = 1 / (1 / 9.0 + 4.0 / (0.01 + noise_y))
    return math.sqrt(var_a + var_b)


# Closed forms -----------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_the_least_budget_of_a_normal_mean():
    found = nw.design(mean_model(), mean_plan(), target={"sd": "mu", "at_most": 0.8})
    rho = 0.5 * DELTA**2 / (1 / (0.8**-2 - TAU**-2) - SIGMA**2)
    assert found.closed
    assert found.error == 0.0
    assert found.budget == pytest.approx(rho, rel=1e-9)
    assert found.floor == pytest.approx((TAU**-2 + SIGMA**-2) ** -0.5)
    wide = nw.design(mean_model(), mean_plan(), target={"width": "mu", "at_most": 2 * Z * 0.8})
    assert wide.budget == pytest.approx(rho, rel=1e-9)
    assert found.mechanisms["mean"].guarantee.rho == pytest.approx(rho)
    assert found.guarantee.rho == pytest.approx(rho)
    assert "rho = 0.0879 gives a posterior standard deviation of mu at most 0.8 (by closed forms)" in repr(found)


def test_two_statistics_of_unequal_sensitivities():
    found = nw.design(two_model(), two_plan(), target={"sd": "gap", "at_most": 0.5}, shares={"x": 0.3, "y": 0.7})
    rho = optimize.brentq(lambda rho: gap_sd(0.3 * rho, 0.7 * rho) - 0.5, 1e-3, 1e3, xtol=1e-14)
    assert found.budget == pytest.approx(rho, rel=1e-9)
    split = nw.allocate(two_model(), two_plan(), rho=1.0, target={"sd": "gap"})
    best = optimize.minimize_scalar(lambda share: gap_sd(share, 1 - share), bounds=(0.01, 0.99), method="bounded")
    assert split.shares["x"] == pytest.approx(best.x, abs=2e-3)
    assert split.value == pytest.approx(best.fun, rel=1e-6)
    assert split.equal == pytest.approx(gap_sd(0.5, 0.5))
    assert split.status == "complete"
    assert all(abs(slope) < 1e-3 for slope, _ in split.gradient.values())


def by_power(rho, truth):
    """P(interval excludes 0): the posterior mean is shrunken, and normal about the shrunken truth."""
    noisy = SIGMA**2 + DELTA**2 / (2 * rho)
    shrink = TAU**2 / (TAU**2 + noisy)
    sd = math.sqrt(shrink * noisy)
    law = stats.norm(shrink * truth, shrink * math.sqrt(noisy))
    return law.sf(Z * sd) + law.cdf(-Z * sd)


def test_power_in_closed_form():
    target = {"power": "mu", "at_least": 0.5, "truth": {"mu": 1.5}}
    found = nw.design(mean_model(), mean_plan(), target=target)
    assert by_power(found.budget, 1.5) == pytest.approx(0.5, abs=1e-9)
    assert found.closed


def test_a_decisions_error_in_closed_form(seed):
    """Against draws of truth and posterior mean; at a truth, against the tail of the posterior mean."""
    joint = JointNormal.of(mean_model(), {"mean": Gaussian(scale=0.7)}, of({"error": "mu", "above": 0.4}))
    noisy = SIGMA**2 + 0.49
    shrink = TAU**2 / (TAU**2 + noisy)
    rng = np.random.default_rng(seed)
    mu = rng.normal(0.0, TAU, 200_000)
    wrong = (shrink * rng.normal(mu, math.sqrt(noisy)) > 0.4) != (mu > 0.4)
    value = joint.value({"mean": Gaussian(scale=0.7)})
    assert agrees(wrong, value)
    assert not agrees(wrong, 1.1 * value), "negative control"
    joint = JointNormal.of(
        mean_model(), {"mean": Gaussian(scale=0.7)}, of({"error": "mu", "above": 0.4, "truth": {"mu": 1}})
    )
    expected = stats.norm(shrink, shrink * math.sqrt(noisy)).cdf(0.4)
    assert joint.value({"mean": Gaussian(scale=0.7)}) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("prior", "statistic", "noise"),
    [
        (dist.Normal(0.0, 1.0), lambda mu: dist.Normal(mu**2, 1.0), Gaussian(scale=1.0)),
        (dist.Normal(0.0, 1.0), lambda mu: dist.Normal(mu, abs(mu) + 1.0), Gaussian(scale=1.0)),
        (dist.Gamma(2.0, 1.0), lambda mu: dist.Normal(mu, 1.0), Gaussian(scale=1.0)),
        (dist.Normal(0.0, 1.0), lambda mu: dist.Laplace(mu, 1.0), Gaussian(scale=1.0)),
        (dist.Normal(0.0, 1.0), lambda mu: dist.Normal(mu, 1.0), nw.Laplace(scale=1.0)),
    ],
    ids=["a square", "a moving scale", "another prior", "another law", "other noise"],
)
def test_no_closed_form_where_something_is_not_normal(prior, statistic, noise):
    model = nw.Model(prior={"mu": prior}, statistics={"s": statistic})
    assert JointNormal.of(model, {"s": noise}, of({"sd": "mu"}, model)) is None


# Simulation -------------------------------------------------------------------------------------------------------


def of(content, model=None, level=0.95):
    return Goal.read("design", content, model or mean_model(), level, needs_goal=False)


def batch_agrees(values, truth):
    """Whether independent averages of batches have this mean, by their own scatter (Student's t)."""
    t = (np.mean(values) - truth) / (np.std(values, ddof=1) / math.sqrt(len(values)))
    return abs(t) < stats.t(len(values) - 1).isf(FALSE_ALARM / 2)


SIMULATED = [{"sd": "mu"}, {"width": "mu"}, {"power": "mu", "truth": {"mu": 1.5}}, {"error": "mu", "above": 0.4}]


@pytest.mark.parametrize("content", SIMULATED, ids=lambda content: next(iter(content)))
def test_simulation_agrees_with_closed_forms(content, seed):
    model, noise = mean_model(), {"mean": Gaussian(scale=0.7)}
    simulation = Simulation(model, (of(content),), seed)
    values = simulation.means(noise, 0, 48)
    exact = JointNormal.of(model, noise, of(content)).value(noise)
    assert simulation.sampled == 0
    assert batch_agrees(values, exact)
    other = {"mean": Gaussian(scale=1.4)}
    assert not batch_agrees(simulation.means(other, 0, 48), exact), "negative control: another scale"


def test_without_noise_rows_are_weighed_by_the_law(seed):
    model, target = mean_model(), of({"sd": "mu"})
    simulation = Simulation(model, (target,), seed)
    values = simulation.means(floor_of(model, ["mean"], target), 0, 16)
    assert batch_agrees(values, (TAU**-2 + SIGMA**-2) ** -0.5)


def count_intervals(scale, released):
    """Central 95% intervals of the count's rate, and the evidence, by enumeration of counts and quadrature."""
    theta = np.linspace(1e-3, 80.0, 1_601)
    counts = np.arange(0, 130)
    law = stats.poisson.pmf(counts[None, :], theta[:, None])
    eta = stats.laplace(counts[:, None], scale).pdf(released[None, :])
    cdf = np.cumsum(stats.gamma(25.0).pdf(theta)[:, None] * (law @ eta), axis=0)
    low, high = (theta[np.argmax(cdf >= level * cdf[-1], axis=0)] for level in (0.025, 0.975))
    return low, high, cdf[-1]


def count_width(scale):
    """Average width of these intervals over releases."""
    low, high, evidence = count_intervals(scale, np.arange(-60.0, 160.0, 1.0))
    return float(np.sum((high - low) * evidence) / np.sum(evidence))


def test_the_privatised_count_by_enumeration(seed):
    model = count_model()
    simulation = Simulation(model, (of({"width": "theta"}, model),), seed)
    values = simulation.means({"count": nw.Laplace(scale=5.0)}, 0, 16)
    assert batch_agrees(values, count_width(5.0))
    assert not batch_agrees(values, count_width(25.0)), "negative control: another scale"


@pytest.mark.long
def test_rows_that_do_not_do_are_sampled(seed):
    """A prior far wider than the posterior: no prior row is near, and draws of one budget serve the next."""
    model = nw.Model(prior={"mu": dist.Normal(0.0, 1e4)}, statistics={"mean": lambda mu: dist.Normal(mu, SIGMA)})
    target = of({"sd": "mu"}, model)
    simulation = Simulation(model, (target,), seed)
    plans = [{"mean": Gaussian(scale=scale)} for scale in (1.0, 0.9)]
    values = simulation.curve(plans, 0, 2)
    assert 0 < simulation.sampled < 2 * 2 * PER_BATCH
    assert values[0].mean() == pytest.approx(math.hypot(1.0, SIGMA), rel=0.1)


def error_there(found):
    """The Monte Carlo error of the curve at the budget found: by so much the target may be off."""
    nearest = min(found.curve, key=lambda budget: abs(math.log(budget / found.budget)))
    return found.curve[nearest][1]


@pytest.mark.long
def test_the_found_budget_gives_the_width_in_fresh_simulations(seed):
    """400 releases at the budget found, each sampled by `nw.sample`, and compared with what was asked for."""
    model = count_model()
    plan = {"count": lambda epsilon: nw.Laplace(epsilon=epsilon, sensitivity=1.0)}
    found = nw.design(model, plan, target={"width": "theta", "at_most": 16.0}, seed=seed + 1)
    rng = np.random.default_rng(seed + 2)
    widths = []
    for number, count in enumerate(model.simulate(400, seed=seed + 3)["count"]):
        mechanism = found.mechanisms["count"]
        release = nw.Release(count=mechanism.released(mechanism.sample(rng, count)))
        low, high = nw.sample(model, release, draws=4_000, seed=number).interval(0.95)["theta"]
        widths.append(high - low)
    assert agrees(widths, 16.0, truth_error=error_there(found))


@pytest.mark.long
def test_power_against_direct_simulation(seed):
    """400 releases at the truth, each with its posterior by enumeration and quadrature, without the library."""
    model = count_model()
    plan = {"count": lambda epsilon: nw.Laplace(epsilon=epsilon, sensitivity=1.0)}
    target = {"power": "theta", "excludes": 35.0, "at_least": 0.75, "truth": {"theta": 20.0}}
    found = nw.design(model, plan, target=target, tolerance=0.3, budgets=(0.02, 1.0), seed=seed + 1)
    rng = np.random.default_rng(seed + 2)
    released = rng.poisson(20.0, 400) + rng.laplace(0.0, 1.0 / found.budget, 400)
    low, high = count_intervals(1.0 / found.budget, released)[:2]
    assert agrees((low > 35.0) | (high < 35.0), 0.75, truth_error=error_there(found))


# The search -------------------------------------------------------------------------------------------------------


def noisy_curve(rng, spread):
    """1/x with noise that all places share, but for a little of their own."""
    shared = rng.normal(0.0, spread, 4_096)

    def evaluate(places, first, last):
        return np.array([1.0 / x + shared[first:last] + rng.normal(0.0, 0.1 * spread, last - first) for x in places])

    return Curve(evaluate)


def test_the_root_is_as_near_as_its_error_says(seed):
    rng = np.random.default_rng(seed)
    grid = [float(x) for x in np.geomspace(0.1, 10.0, 20)]
    scores = []
    for _ in range(200):
        root = least(noisy_curve(rng, 0.3), grid, 0.5, True, batches=64, most=64, tolerance=1.0)
        scores.append((root.place - 2.0) / root.error)
    assert errors_agree(scores, slack=0.25)
    assert not errors_agree(2.0 * np.array(scores), slack=0.25), "negative control"


def test_the_search_takes_more_until_the_error_is_small(seed):
    rng = np.random.default_rng(seed)
    grid = [float(x) for x in np.geomspace(0.1, 10.0, 20)]
    curve = noisy_curve(rng, 0.5)
    root = least(curve, grid, 0.5, True, batches=16, most=2_048, tolerance=0.05)
    assert root.status == "complete"
    assert root.error <= 0.05 * root.place
    assert max(map(len, curve.batches.values())) > 16
    assert min(map(len, curve.batches.values())) == 16, "places far from the root are not looked at again"
    assert least(noisy_curve(rng, 9.0), grid, 0.5, True, batches=16, most=32, tolerance=0.01).status == "noisy"


def test_a_chance_that_all_releases_agree_on_has_an_error_and_a_band():
    """Of 64 releases none: the chance need not be 0. Widths have no such bounds, and closed forms no error."""

    def constant(value):
        return lambda places, first, last: np.full((len(places), last - first), value)

    power = of({"power": "mu", "truth": {"mu": 1.5}})
    for value, ends in ((0.0, (0.0, 0.0566)), (1.0, (0.9434, 1.0))):
        curve = Curve(constant(value), power)
        curve.look([1.0], 16)
        assert curve.band(1.0) == pytest.approx(ends, abs=1e-4)
        assert curve.error(1.0) == pytest.approx(0.5 / 65.0)
    for target in (None, of({"sd": "mu"})):
        curve = Curve(constant(1.0), target)
        curve.look([1.0], 16)
        assert curve.band(1.0) == (1.0, 1.0)
        assert curve.error(1.0) == 0.0


def test_the_band_of_a_chance_is_as_wide_as_the_scatter_says(seed):
    """A mean of chances, with less scatter than answers yes or no have."""
    values = np.random.default_rng(seed).beta(2.0, 20.0, 64)
    curve = Curve(lambda places, first, last: values[None, first:last], of({"error": "mu", "above": 0.4}))
    curve.look([1.0], 64)
    low, high = curve.band(1.0)
    assert high - low == pytest.approx(2.0 * Z * curve.error(1.0), rel=0.05)
    assert low < curve.mean(1.0) < high


def test_goals_that_all_or_none_meet():
    curve = Curve(lambda places, first, last: np.array([np.full(last - first, 1.0 / x) for x in places]))
    settings = {"batches": 4, "most": 4, "tolerance": 0.1}
    assert least(curve, [1.0, 2.0, 4.0], 1.5, True, **settings).status == "everywhere"
    assert least(curve, [1.0, 2.0, 4.0], 0.1, True, **settings).status == "nowhere"
    assert least(curve, [1.0, 2.0, 4.0], 0.4, True, **settings).place == pytest.approx(2.5, rel=1e-2)


def test_pooling_gives_the_nearest_falling_sequence(seed):
    assert falling(np.array([3.0, 1.0, 2.0, 0.0])).tolist() == [3.0, 1.5, 1.5, 0.0]
    values = np.random.default_rng(seed).normal(size=7)
    best = optimize.minimize(
        lambda x: np.sum((x - values) ** 2),
        np.zeros(7),
        constraints=[{"type": "ineq", "fun": lambda x: x[:-1] - x[1:]}],
    )
    assert falling(values) == pytest.approx(best.x, abs=1e-3)


# Allocations and sample sizes ---------------------------------------------------------------------------------------


def test_a_noisy_split_is_found_and_seen_to_be_stationary(seed):
    """Batches share their noise but for a little: the split is far better known than the value."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(0.0, 0.5, (2, 64))

    def means(shares, shared=first):
        return 1.0 / shares[0] + 4.0 / shares[1] + shared * (1.0 + 0.02 * shares[0])

    def measure(shares):
        return means(shares, second)

    shares = searched(means, 2, 1.0)
    found = judged(measure, shares, 1.0)
    assert shares[0] == pytest.approx(1 / 3, abs=0.02)
    assert found.status == "complete"
    assert found.tells
    assert found.gain == pytest.approx(10.0 - 9.0, abs=0.05)
    assert searched(lambda shares: -means(shares), 2, -1.0)[0] == pytest.approx(1 / 3, abs=0.02)


def test_what_is_gained_is_measured_on_releases_that_the_search_has_not_seen(seed):
    """Where no split is better than another, the gain is zero on average. Negative control: on those it has seen."""
    rng = np.random.default_rng(seed)
    fresh, seen = [], []
    for _ in range(60):
        first, second = rng.normal(size=(2, 16))

        def means(shares, noise=first):
            return 1.0 + noise * (shares[0] - 0.5)

        shares = searched(means, 2, 1.0)
        fresh.append(judged(lambda shares, noise=second: means(shares, noise), shares, 1.0).gain)
        seen.append(judged(means, shares, 1.0).gain)
    assert agrees(fresh, 0.0)
    assert not agrees(seen, 0.0)


def test_all_goes_to_the_smaller_sensitivity_and_it_says_so():
    """One mean measured twice: precisions add, linear in the shares."""
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 10.0)},
        statistics={"x": lambda mu: dist.Normal(mu, 1e-3), "y": lambda mu: dist.Normal(mu, 1e-3)},
    )
    plan = {
        "x": lambda rho: nw.Gaussian(rho=rho, sensitivity=1.0),
        "y": lambda rho: nw.Gaussian(rho=rho, sensitivity=2.0),
    }
    found = nw.allocate(model, plan, rho=0.1, target={"sd": "mu"})
    assert found.status == "edge"
    assert found.shares["x"] > 0.97
    assert "consider leaving that statistic out" in found.headline()


def test_a_target_that_does_not_tell_is_refused():
    with pytest.raises(nw.InferenceError, match="does not tell one split of rho = 1e-09 from another"):
        nw.allocate(two_model(), two_plan(), rho=1e-9, target={"sd": "gap"})


@pytest.mark.long
def test_a_split_by_simulation_is_that_of_the_closed_form(seed):
    """Laplace noise of the same variances, which closed forms do not serve, is split nearly alike."""
    plan = {
        "x": lambda rho: nw.mechanisms.Laplace(scale=0.3 / math.sqrt(4.0 * rho)),
        "y": lambda rho: nw.mechanisms.Laplace(scale=1.5 / math.sqrt(4.0 * rho)),
    }
    found = nw.allocate(two_model(), plan, rho=0.05, target={"sd": "gap"}, replicates=32, seed=seed + 1)
    best = optimize.minimize_scalar(lambda w: gap_sd(0.05 * w, 0.05 * (1 - w)), bounds=(0.01, 0.99), method="bounded")
    assert found.shares["x"] == pytest.approx(best.x, abs=0.08)
    assert found.gain > 3 * found.gain_error
    assert found.status == "complete"


def people_model(n):
    return nw.Model(
        prior={"mu": dist.Normal(0.0, TAU)}, statistics={"mean": lambda mu: dist.Normal(mu, 10.0 / math.sqrt(n))}
    )


def people_plan(n):
    return {"mean": lambda rho: nw.Gaussian(rho=rho, sensitivity=40.0 / n)}


def people_sd(n, rho):
    return (TAU**-2 + 1.0 / (100.0 / n + (40.0 / n) ** 2 / (2 * rho))) ** -0.5


def test_the_number_of_people_in_closed_form():
    target = {"sd": "mu", "at_most": 0.5}
    found = nw.sample_size(people_model, people_plan, target=target, budgets=[0.01, 1.0], sizes=(20, 5_000))
    assert found.closed
    for rho in (0.01, 1.0):
        assert people_sd(found.n[rho], rho) <= 0.5 < people_sd(found.n[rho] - 1, rho)
    assert found.table().shape[1] == 2
    assert "People for a posterior standard deviation of mu at most 0.5" in repr(found)
    with pytest.raises(nw.InferenceError, match=r"more than 30 at rho = 0\.01") as caught:
        nw.sample_size(people_model, people_plan, target=target, budgets=0.01, sizes=(20, 30))
    assert caught.value.result.n == {}


@pytest.mark.long
def test_the_number_of_people_by_simulation(seed):
    """A share of yes: checked by fresh simulations at the number found."""

    def model(n):
        return nw.Model(prior={"share": dist.Beta(2.0, 3.0)}, statistics={"yes": lambda share: dist.Binomial(n, share)})

    plan = {"yes": lambda epsilon: nw.Laplace(epsilon=epsilon, sensitivity=1.0)}
    target = {"width": "share", "at_most": 0.16}
    found = nw.sample_size(model, plan, target=target, budgets=0.5, sizes=(60, 300), replicates=32, seed=seed + 1)
    n = found.n[0.5]
    values = Simulation(model(n), (of(target, model(n)),), seed + 2).means({"yes": nw.Laplace(scale=2.0)}, 0, 32)
    spread = 0.16 * 0.5 * found.error[0.5] / n  # the width falls about as n^(-1/2)
    assert np.mean(values) == pytest.approx(0.16, abs=6 * math.hypot(spread, np.std(values) / math.sqrt(32)))


# The verb ---------------------------------------------------------------------------------------------------------


def test_a_goal_out_of_reach_is_an_error_with_the_curve():
    with pytest.raises(nw.InferenceError, match=r"No rho up to 50 gives .* Without noise it would be 0.4851") as caught:
        nw.design(mean_model(), mean_plan(), target={"sd": "mu", "at_most": 0.4})
    found = caught.value.result
    assert found.budget == math.inf
    assert len(found.curve) == 20
    easy = nw.design(mean_model(), mean_plan(), target={"sd": "mu", "at_most": 1.99999})
    assert easy.status == "everywhere"
    assert easy.budget == pytest.approx(5e-5)


def test_one_seed_gives_one_design_and_pictures():
    model = nw.Model(prior={"mu": dist.Normal(0.0, TAU)}, statistics={"mean": lambda mu: dist.Normal(mu, SIGMA)})
    plan = {"mean": lambda epsilon: nw.Laplace(epsilon=epsilon, sensitivity=DELTA)}
    settings = {"target": {"sd": "mu", "at_most": 1.4}, "replicates": 16, "tolerance": 0.5, "budgets": (0.1, 0.6)}
    first, again = (nw.design(model, plan, **settings, seed=3) for _ in range(2))
    assert first.budget == again.budget
    assert not first.closed
    assert list(first.table().columns) == ["target", "error", "low", "high", "times_floor"]
    assert first._repr_html_().startswith("<div><p>epsilon = ")
    import matplotlib.pyplot as plt

    for picture in (
        first.plot(),
        nw.sample_size(people_model, people_plan, target=settings["target"], budgets=1.0, sizes=(20, 999)).plot(),
    ):
        assert picture.axes[0].get_xscale() == "log"
        plt.close(picture)


def refused(**changes):
    arguments = {"model": mean_model(), "plan": mean_plan(), "target": {"sd": "mu", "at_most": 0.8}} | changes
    return nw.design(arguments.pop("model"), arguments.pop("plan"), **arguments)


REFUSED = {
    "model": (lambda: refused(model=3), "'model' must be a noisewise Model"),
    "no plan": (lambda: refused(plan={}), "'plan' must be a dict of statistics with functions of a budget"),
    "another statistic": (lambda: refused(plan={"means": mean_plan()["mean"]}), "'plan' must name statistics.*'mean'"),
    "two budgets": (lambda: refused(plan={"mean": lambda epsilon, rho: 1}), "must be a function of one budget, named"),
    "no function": (lambda: refused(plan={"mean": 3.0}), "must be a function of a budget or a mechanism"),
    "no mechanism": (lambda: refused(plan={"mean": lambda rho: rho}), "must return a mechanism"),
    "nothing open": (lambda: refused(plan={"mean": Gaussian(scale=1.0)}), "must have functions of one kind of budget"),
    "no target": (lambda: refused(target={"of": "mu"}), "'target' must name one of width, sd, power, error"),
    "no goal": (lambda: refused(target={"sd": "mu"}), "'target' must say at_most"),
    "another part": (lambda: refused(target={"sd": "mu", "at_least": 1}), r"'target\['at_least'\]' is not a part of"),
    "another quantity": (lambda: refused(target={"sd": "nu", "at_most": 1}), "must be of a quantity of the model"),
    "an entry of a number": (lambda: refused(target={"sd": "mu[0]", "at_most": 1}), "must be of one number"),
    "no truth": (lambda: refused(target={"power": "mu", "at_least": 0.8}), "must say at which truth"),
    "half a truth": (
        lambda: refused(target={"power": "mu", "at_least": 0.8, "truth": {}}),
        r"'target\['truth'\]' must name every parameter",
    ),
    "certainty": (lambda: refused(target={"error": "mu", "above": 0, "at_most": 1}), "must be a chance below 1"),
    "no value": (lambda: refused(target={"error": "mu", "at_most": 0.1}), "must say above which value"),
    "budgets": (lambda: refused(budgets=(2.0, 1.0)), "'budgets' must be two numbers, the lower first"),
    "shares": (lambda: refused(shares={"mean": 0.5}), "'shares' must add up to 1"),
    "other shares": (lambda: refused(shares={"x": 1.0}), "'shares' must name the statistics whose budget is open"),
    "replicates": (lambda: refused(replicates=3), "'replicates' must be a whole number, at least 16"),
    "tolerance": (lambda: refused(tolerance=0.0), "'tolerance' must be positive"),
    "engine": (lambda: refused(engine=2), "'engine' must be an engine"),
    "misfit": (
        lambda: refused(plan={"mean": lambda rho: nw.DiscreteGaussian(rho=rho, sensitivity=1)}),
        "must be whole numbers",
    ),
    "one statistic": (
        lambda: nw.allocate(mean_model(), mean_plan(), rho=1.0, target={"sd": "mu"}),
        "'plan' must have at least two statistics",
    ),
    "another budget": (
        lambda: nw.allocate(two_model(), two_plan(), epsilon=1.0, target={"sd": "gap"}),
        "'rho' must be given, and no other budget",
    ),
    "a model that is no function": (
        lambda: nw.sample_size(mean_model(), mean_plan(), target={"sd": "mu", "at_most": 1}, budgets=1.0),
        "'model' must be a function of n",
    ),
    "sizes": (
        lambda: nw.sample_size(people_model, people_plan, target={"sd": "mu", "at_most": 1}, budgets=1.0, sizes=(9, 3)),
        "'sizes' must be two whole numbers",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(call, message):
    with pytest.raises(nw.InputError, match=message):
        call()
