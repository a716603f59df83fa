"""The campaign of realistic problems in small: `make realistic` runs all of it."""

import numpy as np
import pytest
from realistic import laws
from realistic.__main__ import run, summary, table_line
from realistic.catalogue import PROBLEMS
from realistic.judge import compared
from realistic.problem import Truth
from realistic.quadrature import SPREAD, Curve, enumerated, integrate, pooled, stretched, summed_out
from scipy import stats

import noisewise as nw

QUICK = ("count_laplace", "share_of_a_thousand", "count_withheld")


# Verdicts -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results():
    """Truth and posterior of a few quick problems."""
    cases = {name: PROBLEMS[name]() for name in QUICK}
    return {
        name: (case, case.truth(), nw.sample(case.model, case.release, draws=4000, seed=20261))
        for name, case in cases.items()
    }


@pytest.mark.quick
@pytest.mark.parametrize("name", QUICK)
def test_quick_problems_are_right(results, name):
    case, truth, posterior = results[name]
    assert max(compared(posterior, truth, case.views).values()) <= 1


@pytest.mark.parametrize("what", ["mean", "sd", "evidence"])
def test_a_shifted_truth_is_called_wrong(results, what):
    case, truth, posterior = results["count_laplace"]
    (mean, sd), shift = truth.moments["theta"], 10 / np.sqrt(4000)
    moved = (mean + shift * sd, sd) if what == "mean" else (mean, sd * (1 + shift)) if what == "sd" else (mean, sd)
    evidence = truth.log_evidence + (0.2 if what == "evidence" else 0.0)
    found = compared(posterior, Truth(truth.moments | {"theta": moved}, evidence), case.views)
    assert found[what if what == "evidence" else f"{what} theta"] > 1
    allowed = Truth({"theta": moved}, evidence, {"theta": (shift * sd, shift * sd)})
    assert what == "evidence" or compared(posterior, allowed, case.views)[f"{what} theta"] <= 1


@pytest.mark.long
def test_a_run_has_a_row_in_the_table(tmp_path):
    """In a process of its own, with a forecast."""
    row = run("count_laplace", 1, tmp_path)
    assert row["result"] == "right"
    assert row["forecast"] == "Rejection"
    assert "count_laplace" in table_line(row)


def test_rows_are_told_and_counted():
    row = {"problem": "count_laplace", "seed": 1, "result": "right", "status": "complete", "seconds": 1.5}
    assert "count_laplace" in table_line(row)
    wrong = row | {"result": "wrong", "seed": 2}
    assert summary([row, wrong]).startswith("1 problems, 2 runs: 1 right, 1 wrong, 0 refused, 0 late, 0 broken")


def test_every_problem_has_a_name_of_its_own():
    assert len(PROBLEMS) >= 64


# Truths ---------------------------------------------------------------------------------------------------


def test_integration_in_one_to_three_dimensions():
    def normal(*x):
        return sum(laws.normal(one - 1.0, 1e-3 * (axis + 1)) for axis, one in enumerate(x)), {"last": x[-1]}

    for dimension in (1, 2, 3):
        found = integrate(normal, [(0.9, 1.1)] * dimension)
        assert found.log_evidence == pytest.approx(0.0, abs=1e-6)
        assert found.moments["last"] == pytest.approx((1.0, 1e-3 * dimension), rel=1e-6)


def test_integration_refuses_a_box_that_cuts_the_density():
    with pytest.raises(AssertionError, match="not fallen off"):
        integrate(lambda x: (laws.normal(x, 1.0), {"x": x}), [(-1.0, 20.0)])


def test_enumeration_and_quadrature_agree():
    """A noisy count of a Poisson rate with a gamma prior: by conjugacy, and over a grid of the rate."""
    by_conjugacy = PROBLEMS["count_laplace"]().truth()
    k = np.arange(401.0)

    def at(u):
        height, count = summed_out(laws.poisson_log_rate(k, u[:, None]), laws.laplace(37.4 - k, 5.0), k)
        return laws.log_gamma(u, 25.0, 1.0) + height, {"theta": np.exp(u), "count": count}

    by_grid = integrate(at, [(-1.0, 6.0)])
    assert by_grid.log_evidence == pytest.approx(by_conjugacy.log_evidence, abs=1e-6)
    for label in ("theta", "count"):
        assert by_grid.moments[label] == pytest.approx(by_conjugacy.moments[label], rel=1e-6)


def test_enumeration_of_two_values():
    found = enumerated(np.log([0.1, 0.3]), {"x": np.array([0.0, 1.0]), "y": (np.array([2.0, 2.0]), 4.0)})
    assert found.log_evidence == pytest.approx(np.log(0.4))
    assert found.moments["x"] == pytest.approx((0.75, np.sqrt(0.75 * 0.25)))
    assert found.moments["y"] == pytest.approx((2.0, 2.0))


LAWS = {
    "discrete laplace": lambda k: laws.discrete_laplace(k - 200.0, 3.0),
    "discrete normal": lambda k: laws.discrete_normal(k - 200.0, 3.0),
    "poisson": lambda k: laws.poisson(k, 12.0),
    "binomial": lambda k: np.where(k <= 30, laws.binomial(np.minimum(k, 30), 30.0, 0.3), -np.inf),
    "beta binomial": lambda k: np.where(k <= 30, laws.beta_binomial(np.minimum(k, 30), 30.0, 2.0, 3.0), -np.inf),
    "negative binomial": lambda k: laws.negative_binomial(k, 5.0, 2.0),
}
DENSITIES = {
    "laplace": lambda x: laws.laplace(x, 1.5),
    "staircase": lambda x: laws.staircase(x, 0.8, 1.0),
    "tulap": lambda x: laws.tulap(x, 0.8),
    "truncated laplace": lambda x: laws.truncated_laplace(x, 2.0, 5.0),
    "generalized cauchy": lambda x: laws.generalized_cauchy(x, 6.0, 1.2),
    "student": lambda x: laws.student(x, 9.0, 1.0, 1.5),
    "normal laplace": lambda x: laws.normal_laplace(x, 1.3, 0.7),
    "log gamma": lambda x: laws.log_gamma(x, 2.0, 0.5),
    "logit beta": lambda x: laws.logit_beta(x, 2.0, 0.5),
    "log half normal": lambda x: laws.log_half_normal(x, 2.0),
}


@pytest.mark.parametrize("name", LAWS)
def test_laws_of_counts_sum_to_one(name):
    assert np.exp(LAWS[name](np.arange(400.0))).sum() == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_integrate_to_one(name):
    x = np.arange(-80.0, 80.0, 2e-4) + 1e-4
    with np.errstate(over="ignore"):
        assert np.exp(DENSITIES[name](x)).sum() * 2e-4 == pytest.approx(1.0, abs=1e-4)


def test_what_lies_below_a_threshold():
    k = np.arange(-60.0, 61.0)
    mass = np.exp(laws.discrete_laplace(k, 2.5))
    for threshold in (-3, 0, 1, 4):
        below = mass[k < threshold].sum()
        assert np.exp(laws.discrete_laplace_below(threshold, 2.5)) == pytest.approx(below, rel=1e-8)
    assert np.exp(laws.laplace_below(np.array([-1.0, 2.0]), 1.5)) == pytest.approx(
        stats.laplace.cdf([-1, 2], scale=1.5)
    )


def test_clamped_sums_without_clamping_are_normal():
    """Bounds that no record reaches: the characteristic function is inverted to a normal density."""
    sums = laws.ClampedSum(-9.0, 9.0, lambda t: np.exp(-2.0 * t**2), 4.0, 400)
    record = laws.clamped_normal(sums, np.array([0.3, -0.2]), np.array([1.0, 0.5]), -9.0, 9.0)
    found = sums.log_density(record, 5, 2.2)
    exact = laws.normal(2.2 - 5 * np.array([0.3, -0.2]), np.sqrt(5 * np.array([1.0, 0.25]) + 4.0))
    assert found == pytest.approx(exact, rel=1e-8)


def test_clamped_sums_have_atoms():
    """Two records that are almost always clamped: atoms at -2, 0 and 2, and noise about them."""
    sums = laws.ClampedSum(-1.0, 1.0, lambda t: np.exp(-0.5 * 0.04 * t**2), 45.0, 900)
    record = laws.clamped_normal(sums, np.array([0.0]), np.array([1e4]), -1.0, 1.0)
    noise = np.exp(laws.normal(2.1 - np.array([-2.0, 0.0, 2.0]), 0.2))
    assert np.exp(sums.log_density(record, 2, 2.1)) == pytest.approx(noise @ [0.25, 0.5, 0.25], rel=1e-3)


def test_pooling_by_quadrature_and_in_closed_form():
    released, sd = np.array([1.0, 3.5, -0.4, 2.2]), np.array([1.0, 0.7, 1.3, 0.9])
    curve = Curve(lambda x: laws.normal(released - x[:, None], sd), -60.0, 60.0, 4001)
    mu, tau = np.array([0.0, 1.5]), np.array([0.01, 2.0])
    height, units = pooled(curve, mu, tau, {"first": 0}, lambda x: x)
    total = tau[:, None] ** 2 + sd**2
    assert height == pytest.approx(laws.normal(released - mu[:, None], np.sqrt(total)).sum(axis=1), rel=1e-7)
    share = tau**2 / total[:, 0]
    assert units["first"][0] == pytest.approx(mu + share * (released[0] - mu), rel=1e-6)
    assert units["first"][1] == pytest.approx(tau**2 * (1 - share), rel=1e-5)
    assert curve.own(np.array([[0.5, 1.0, 2.0, 3.0]]))[0, 2] == pytest.approx(curve(np.array(2.0))[2])


def test_the_stretched_coordinate_keeps_the_density():
    def at(w):
        u, jacobian = stretched(w)
        return laws.log_half_normal(u, 2.0) + jacobian, {"spread": np.exp(u)}

    found = integrate(at, [SPREAD])
    assert found.log_evidence == pytest.approx(0.0, abs=1e-6)
    assert found.moments["spread"] == pytest.approx(tuple(2 * np.array([np.sqrt(2 / np.pi), np.sqrt(1 - 2 / np.pi)])))


@pytest.mark.long
def test_every_truth_can_be_computed():
    for build in PROBLEMS.values():
        truth = build().truth()
        assert truth.moments
        assert all(np.isfinite([mean, sd]).all() and sd >= 0 for mean, sd in truth.moments.values())
