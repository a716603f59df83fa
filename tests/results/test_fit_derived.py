"""Functions of a likelihood estimate: the delta method against closed forms; intervals of whole vectors."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import noisewise as nw

MODEL = nw.Model(
    prior={"p1": dist.Beta(1.0, 1.0), "p2": dist.Beta(1.0, 1.0)},
    statistics={"yes1": lambda p1: dist.Binomial(200, p1), "yes2": lambda p2: dist.Binomial(300, p2)},
)
RELEASE = nw.Release(yes1=nw.Exact().released(130), yes2=nw.Exact().released(120))
V1, V2 = 0.65 * 0.35 / 200, 0.4 * 0.6 / 300


@pytest.fixture(scope="module")
def fit():
    return nw.fit(MODEL, RELEASE, start={"p1": 0.5, "p2": 0.5})


def vector_fit(covariance):
    size = len(covariance)
    told = {"information": None, "score": np.zeros(size), "log_likelihood": 0.0, "estimator": nw.EM(), "seed": None}
    labels = tuple(f"x[{i}]" for i in range(size))
    return nw.Fit({"x": np.arange(size) * 1.0}, labels, covariance, release_hash="", **told)


@pytest.mark.quick
def test_standard_errors_are_those_of_the_closed_form(fit):
    found = fit.derive(
        gap=lambda p1, p2: p1 - p2,
        log_odds=lambda p1: jnp.log(p1 / (1 - p1)),
        ratio=lambda p1, p2: p1 / p2,
        twice=lambda gap: 2 * gap,
        both=lambda p1, p2: jnp.stack([p1, p1 + p2]),
    )
    assert found.estimate["gap"] == pytest.approx(0.25, abs=1e-6)
    assert found.standard_error["gap"] == pytest.approx(math.sqrt(V1 + V2), rel=1e-4)
    assert found.standard_error["twice"] == pytest.approx(2 * math.sqrt(V1 + V2), rel=1e-4)
    assert found.standard_error["log_odds"] == pytest.approx(1 / math.sqrt(200 * 0.65 * 0.35), rel=1e-4)
    ratio = 0.65 / 0.4
    assert found.standard_error["ratio"] == pytest.approx(ratio * math.sqrt(V1 / 0.65**2 + V2 / 0.4**2), rel=1e-4)
    low, high = found.interval(0.9)["gap"]
    z = stats.norm.isf(0.05)
    assert (low, high) == pytest.approx((0.25 - z * math.sqrt(V1 + V2), 0.25 + z * math.sqrt(V1 + V2)), rel=1e-4)
    at = [found.labels.index(label) for label in ("gap", "both[1]")]
    assert found.covariance[at[0], at[1]] == pytest.approx(V1 - V2, rel=1e-3)  # of p1 - p2 with p1 + p2
    assert list(found.summary().index) == ["gap", "log_odds", "ratio", "twice", "both[0]", "both[1]"]
    assert "ratio" in repr(found)


def test_a_nonlinear_function_is_linearised_and_no_more(fit):
    """Of a square at 0.65 the delta method says 2 * 0.65 standard errors; draws say a little more."""
    error = float(fit.derive(square=lambda p1: p1**2).standard_error["square"])
    draws = np.random.default_rng(1).normal(0.65, math.sqrt(V1), 400_000) ** 2
    assert error == pytest.approx(2 * 0.65 * math.sqrt(V1), rel=1e-4)
    assert error == pytest.approx(draws.std(), rel=0.01)


def test_monte_carlo_errors_are_bounded_by_their_sum():
    fit = vector_fit(np.eye(3))
    object.__setattr__(fit, "monte_carlo_error", {"x": np.array([0.1, 0.2, 0.3])})
    found = fit.derive(total=lambda x: x[0] - 2 * x[2])
    assert found.monte_carlo_error["total"] == pytest.approx(0.7)


def test_simultaneous_intervals_hold_all_entries_as_often_as_they_say():
    """By counting: exactly for independent estimates, at least so for correlated ones, and one by one much less."""
    rng = np.random.default_rng(5)
    mix = np.eye(8) + 0.7
    for root, exact in ((np.diag(np.arange(1.0, 9.0)), True), (mix, False)):
        fit = vector_fit(root @ root.T)
        errors = rng.normal(size=(100_000, 8)) @ root.T
        shares = []
        for simultaneous in (True, False):
            low, high = fit.interval(0.9, simultaneous=simultaneous)["x"]
            within = (errors >= low - fit.estimate["x"]) & (errors <= high - fit.estimate["x"])
            shares.append(np.mean(np.all(within, axis=1)))
        slack = 5 * math.sqrt(0.9 * 0.1 / 100_000)
        assert shares[0] > 0.9 - slack
        assert not exact or shares[0] < 0.9 + slack
        assert shares[1] < 0.9 - slack


def test_intervals_of_estimates_are_of_one_kind():
    fit = vector_fit(np.eye(2))
    assert np.array_equal(fit.interval(0.9, "equal-tailed")["x"], fit.interval(0.9)["x"])
    with pytest.raises(nw.InputError, match="'kind' must be 'equal-tailed': estimates have no density; got 'hdi'"):
        fit.interval(kind="hdi")


def test_entries_that_are_flat_have_no_standard_error_and_the_others_have_theirs():
    """Differences from the first of three independent estimates, with variances 1, 4 and 9."""
    fit = vector_fit(np.diag([1.0, 4.0, 9.0]))
    found = fit.derive(gap=lambda x: x - x[0], last=lambda x: x[2])
    assert found.estimate["gap"].tolist() == [0.0, 1.0, 2.0]
    assert np.allclose(found.standard_error["gap"], [np.nan, math.sqrt(5.0), math.sqrt(10.0)], equal_nan=True)
    assert found.standard_error["last"] == pytest.approx(3.0)
    at = [found.labels.index(label) for label in ("gap[1]", "gap[2]")]
    assert found.covariance[at[0], at[1]] == pytest.approx(1.0)  # of x0, which both subtract
    assert found.message.startswith("No standard error for gap[0]: ")
    assert found.message in repr(found)
    assert fit.derive(last=lambda x: x[2]).message == ""


def test_labels_carry_over():
    fit = vector_fit(np.eye(2))
    axes = nw.axes.Axes.of("test", {"x": ("county",)}, {"county": ["Bronx", "Kings"]}, {"x": (2,)})
    object.__setattr__(fit, "axes", axes)
    assert fit.derive(share=lambda x: x / x.sum()).labels == ("share[Bronx]", "share[Kings]")


REFUSED = {
    "argument": ({"gap": lambda p3: p3}, "must take what is known by name"),
    "name": ({"p1": lambda p2: p2}, "must be a new name"),
    "truth": ({"better": lambda p1, p2: p1 > p2}, "must be a number: an estimate is no chance"),
    "python": ({"log": lambda p1: math.log(p1)}, "must be functions that JAX can differentiate"),
    "flat": ({"whole": lambda p1: jnp.round(p1)}, "must change with the parameters"),
    "infinite": ({"odd": lambda p1: 1 / (p1 - p1)}, "must be finite"),
    "flat and infinite": ({"odd": lambda p1: jnp.stack([p1, 1 / (p1 - p1)])}, "must be finite"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_delta_method_cannot_say_is_refused(case, fit):
    functions, message = REFUSED[case]
    with pytest.raises(nw.InputError) as caught:
        fit.derive(**functions)
    assert message in str(caught.value)


def test_a_fit_that_has_not_converged_has_none():
    fit = vector_fit(np.eye(2))
    object.__setattr__(fit, "status", "flat")
    with pytest.raises(nw.InputError, match="must have converged"):
        fit.derive(first=lambda x: x[0])


def test_a_models_derived_quantities_come_with_reasons_for_those_that_have_no_estimate():
    from noisewise.results.derived import answers

    asked = {"double": lambda rate: 2 * rate, "more": lambda double: double + 1, "many": lambda rate: rate > 3}
    asked |= {"hidden": lambda count: count, "beyond": lambda hidden: hidden + 1}
    model = nw.Model(
        prior={"rate": dist.Gamma(25.0, 1.0)}, statistics={"count": lambda rate: dist.Poisson(rate)}, derived=asked
    )
    release = nw.Release(count=nw.Laplace(scale=5.0).released(37.4))
    fit = nw.fit(model, release, start={"rate": 30.0})
    found, missing = answers(fit, model)
    assert found.labels == ("double", "more")
    assert float(found.standard_error["more"]) == pytest.approx(2 * float(fit.standard_error["rate"]))
    assert missing == {
        "many": "it asks for a probability, and an estimate has none",
        "hidden": "'count' is confidential",
        "beyond": "'hidden' is itself not estimated",
    }
