"""Regressions by formula: the models one would write by hand, and posteriors by brute force on a grid."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from exactness import LIMIT, z_scores
from realistic.quadrature import integrate
from scipy import stats
from scipy.interpolate import CubicSpline
from scipy.special import expit, gammaln, log_ndtr
from written_models import assert_same, draws_of

import noisewise as nw
from noisewise.mechanisms import Clamped

RNG = np.random.default_rng(5)
COUNTIES = pd.DataFrame(
    {
        "county": [f"c{i}" for i in range(8)],
        "x": RNG.normal(size=8).round(2),
        "people": RNG.uniform(0.5, 4.0, 8).round(2),
        "homes": [12, 9, 30, 7, 15, 11, 8, 21],
        "region": ["north", "south"] * 4,
    }
)
CASES = nw.DiscreteLaplace(scale=2.0).released(RNG.integers(0, 12, 8), coords={"county": COUNTIES["county"]})
RELEASE = nw.Release(cases=CASES)
DESIGN = np.column_stack([np.ones(8), COUNTIES["x"]])
SPREAD_OF_X = 1 / COUNTIES["x"].to_numpy().std()
SPREAD = float(f"{SPREAD_OF_X:.3g}")

COLLAPSED = nw.Importance(proposal="adapted", collapse=True)
"""What would be chosen, without the choice."""


def about(**laws):
    """The same from proposals that are given, without the rounds that find them."""
    return nw.Importance(proposal=laws, collapse=True)


def grouped_by_hand():
    offset, place = np.log(COUNTIES["people"].to_numpy()), np.arange(8) % 2
    return nw.Model(
        {
            "beta": lambda: dist.Normal(0.0, np.array([5.0, SPREAD])),
            "region_sd": dist.HalfNormal(1.0),
            "region_effect": lambda region_sd: dist.Normal(0.0, region_sd).expand([2]),
        },
        {"cases": lambda beta, region_effect: dist.Poisson(jnp.exp(offset + DESIGN @ beta + region_effect[place]))},
    )


def test_counts_with_offset_and_groups_are_the_model_by_hand():
    model = nw.regression("cases ~ x + offset(log(people)) + (1 | region)", RELEASE, family="poisson", data=COUNTIES)
    assert_same(model, grouped_by_hand(), RELEASE)
    assert model.axes.coords["term"] == ("Intercept", "x")
    assert model.axes.coords["region"] == ("north", "south")


def test_counts_out_of_a_number_are_the_model_by_hand():
    model = nw.regression(
        "cases ~ x", RELEASE, family="binomial", data=COUNTIES, n="homes", prior={"beta": dist.Normal(0.0, 1.5)}
    )
    homes = COUNTIES["homes"].to_numpy()
    hand = nw.Model(
        {"beta": dist.Normal(0.0, 1.5).expand([2])},
        {"cases": lambda beta: dist.Binomial(homes, logits=DESIGN @ beta)},
    )
    assert_same(model, hand, RELEASE)


def test_clamped_numbers_by_row_are_the_model_by_hand():
    """Numbers between 0 and 10: the width of the bounds is the scale of all priors."""
    release = nw.Release(y=Clamped(nw.Laplace(scale=2.0), 0, 10).released(np.linspace(-3.0, 14.0, 8)))
    model = nw.regression("y ~ x + (1 | region)", release, family="gaussian", data=COUNTIES)
    place = np.arange(8) % 2
    hand = nw.Model(
        {
            "beta": lambda: dist.Normal(np.array([5.0, 0.0]), np.array([10.0, float(f"{5 * SPREAD_OF_X:.3g}")])),
            "sigma": dist.HalfNormal(5.0),
            "region_sd": dist.HalfNormal(5.0),
            "region_effect": lambda region_sd: dist.Normal(0.0, region_sd).expand([2]),
        },
        {"y": lambda beta, sigma, region_effect: dist.Normal(DESIGN @ beta + region_effect[place], sigma)},
    )
    assert_same(model, hand, release)


def test_numbers_that_were_not_clamped_are_the_model_by_hand():
    release = nw.Release(y=nw.Gaussian(scale=2.0).released(np.linspace(-3.0, 14.0, 8)))
    prior = {"beta": dist.Normal(0.0, 5.0), "sigma": dist.HalfNormal(3.0)}
    model = nw.regression("y ~ x", release, family="gaussian", data=COUNTIES, prior=prior)
    hand = nw.Model(
        {"beta": dist.Normal(0.0, 5.0).expand([2]), "sigma": dist.HalfNormal(3.0)},
        {"y": lambda beta, sigma: dist.Normal(DESIGN @ beta, sigma)},
    )
    assert_same(model, hand, release)


def test_rows_are_matched_by_label():
    shuffled = COUNTIES.iloc[::-1]
    model = nw.regression("cases ~ x + offset(log(people)) + (1 | region)", RELEASE, family="poisson", data=shuffled)
    same, hand = draws_of(model, RELEASE), draws_of(grouped_by_hand(), RELEASE)
    assert all(np.array_equal(same[name], hand[name]) for name in hand)
    unlabelled = nw.Release(cases=CASES.mechanism.released(CASES.value))
    other = nw.regression("cases ~ x + offset(log(people)) + (1 | region)", unlabelled, family="poisson", data=shuffled)
    assert not np.array_equal(draws_of(other, unlabelled)["weights"], hand["weights"])


def test_an_index_of_labels_says_which_row_is_which():
    """Without a name too; other words than the labels are refused, numbers in a row mean nothing."""
    formula = "cases ~ x + offset(log(people)) + (1 | region)"
    shuffled = COUNTIES.iloc[::-1].set_index("county")
    expected = nw.regression(formula, RELEASE, family="poisson", data=COUNTIES).code
    for index in ("county", None):
        assert nw.regression(formula, RELEASE, family="poisson", data=shuffled.rename_axis(index)).code == expected
    with pytest.raises(nw.InputError, match="each label of the outcome once; got 'c0'"):
        nw.regression(formula, RELEASE, family="poisson", data=shuffled.rename_axis(None).rename(index={"c0": "c00"}))
    numbered = nw.Release(cases=CASES.mechanism.released(CASES.value, coords={"county": [11, 10, 9, 8, 7, 6, 5, 4]}))
    by_number = COUNTIES.drop(columns="county").set_axis([11, 10, 9, 8, 7, 6, 5, 4])
    one, other = (nw.regression("cases ~ x", numbered, family="poisson", data=d) for d in (by_number, by_number[::-1]))
    assert one.code == other.code


def test_trials_go_with_their_rows():
    given = {"family": "binomial", "prior": {"beta": dist.Normal(0.0, 1.5)}}
    expected = nw.regression("cases ~ x", RELEASE, data=COUNTIES, n="homes", **given).code
    shuffled = COUNTIES.iloc[::-1]
    for n in (shuffled["homes"], shuffled["homes"].tolist(), "homes"):
        assert nw.regression("cases ~ x", RELEASE, data=shuffled, n=n, **given).code == expected


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("log(people) - log(1000)", np.log(COUNTIES["people"]) - np.log(1000.0)),
        ("2 * log(people)", 2 * np.log(COUNTIES["people"])),
        ("log(people) + x", np.log(COUNTIES["people"]) + COUNTIES["x"]),
    ],
    ids=["minus", "times", "plus"],
)
def test_an_offset_is_arithmetic(written, value):
    """Where a sign would add or leave out terms of a formula."""
    model = nw.regression(f"cases ~ offset({written})", RELEASE, family="poisson", data=COUNTIES)
    design, offset = np.ones((8, 1)), value.to_numpy()
    hand = nw.Model(
        {"beta": lambda: dist.Normal(0.0, np.array([5.0]))},
        {"cases": lambda beta: dist.Poisson(jnp.exp(offset + design @ beta))},
    )
    assert_same(model, hand, RELEASE)


def test_levels_without_an_intercept_have_its_prior():
    """Each is a level of the outcome, so slopes' priors about zero would not be weak."""
    release = nw.Release(y=Clamped(nw.Laplace(scale=2.0), 100, 200).released(np.linspace(100.0, 200.0, 8)))
    slope = float(f"{50 * SPREAD_OF_X:.3g}")
    for terms in ("0 + C(region) + x", "x - 1 + region"):
        code = nw.regression(f"y ~ {terms}", release, data=COUNTIES).code
        levels = [150.0, 150.0, 0.0], [100.0, 100.0, slope]
        if terms.startswith("x"):
            levels = [0.0, 150.0, 150.0], [slope, 100.0, 100.0]
        assert f"dist.Normal(np.array({levels[0]}), np.array({levels[1]}))" in code
    code = nw.regression("cases ~ 0 + region", RELEASE, family="poisson", data=COUNTIES).code
    assert "dist.Normal(0.0, np.array([5.0, 5.0]))" in code
    assert "np.array([5.0, 2.0])" in nw.regression("cases ~ region", RELEASE, family="poisson", data=COUNTIES).code


def test_a_common_level_and_columns_in_other_units_are_no_reason_to_refuse():
    """An indicator of nearly all rows lies far from zero in its standard deviations, and so near to it all the same."""
    release = nw.Release(cases=nw.DiscreteLaplace(scale=2.0).released(np.arange(20)))
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {"g": ["a"] + ["b"] * 19, "large": 1e9 * rng.normal(size=20), "small": 1e-9 * np.arange(-9, 11)}
    )
    model = nw.regression("cases ~ g + large + small", release, family="poisson", data=table)
    assert model.axes.coords["term"] == ("Intercept", "g[T.b]", "large", "small")


def test_a_name_in_backticks_may_hold_signs():
    table = COUNTIES.rename(columns={"x": "a + (b"})
    model = nw.regression("cases ~ `a + (b`", RELEASE, family="poisson", data=table)
    assert model.axes.coords["term"] == ("Intercept", "a + (b")


def test_a_group_for_every_row_has_the_labels_of_the_rows():
    model = nw.regression("cases ~ x + (1 | county)", RELEASE, family="poisson", data=COUNTIES)
    posterior = nw.sample(model, RELEASE, nw.Importance(), draws=50, seed=1, on_failure="return")
    assert "county_effect[c3]" in posterior.summary().index


# Lines from sums --------------------------------------------------------------------------------------------------

PRODUCTS = ["x", "y", "x*x", "x*y", "y*y"]
VALUES = np.array([75.4, 103.0, 44.9, 61.9, 100.8])
NOISE = nw.Laplace(scale=7.25 / 3)
SUMS = nw.Release(sums=NOISE.released(VALUES, coords={"product": PRODUCTS}))
BOUNDS = {"x": (0.0, 1.0), "y": (0.0, 1.5)}


def five(x, y):
    x, y = jnp.clip(x, 0.0, 1.0), jnp.clip(y, 0.0, 1.5)
    return jnp.stack([x, y, x * x, x * y, y * y])


def line_by_hand(statistics=lambda total: {"sums": total}, n=150, contribution=five, **laws):
    record = {
        "x": laws.get("x", dist.Beta(2.0, 2.0)),
        "y": lambda x, beta, sigma: dist.Normal(beta[0] + beta[1] * x, sigma),
    }
    prior = {
        "beta": lambda: dist.Normal(np.array([0.75, 0.0]), np.array([1.68, 1.5])),
        "sigma": dist.HalfNormal(0.75),
        **laws.get("prior", {}),
    }
    return nw.Model(prior, statistics(nw.Total(record, contribution, n=n)))


def test_a_line_from_labelled_sums_is_the_model_by_hand():
    """The regression of Ju, Awan, Gong and Rao (2022): clamped cross-products, the law of the covariate known."""
    model = nw.regression("y ~ x", SUMS, n=150, bounds=BOUNDS, covariates={"x": dist.Beta(2.0, 2.0)})
    assert_same(model, line_by_hand(), SUMS)


def test_a_line_from_entries_of_their_own_is_the_model_by_hand():
    """X'X with the number of people in its corner, X'y and y'y, each an entry; the covariate's law is named."""
    release = nw.Release(
        xtx=NOISE.released(np.array([[148.0, 75.4], [75.0, 44.9]]), coords={"row": ["1", "x"], "column": ["1", "x"]}),
        xty=NOISE.released([103.0, 61.9], coords={"with_y": ["y", "x*y"]}),
        yty=NOISE.released(100.8),
    )
    products = {"xtx": [["1", "x"], ["x", "x**2"]], "xty": ["y", "x*y"], "yty": "y*y"}
    model = nw.regression("y ~ x", release, most=200, bounds=BOUNDS, products=products)

    def six(x, y):
        x, y = jnp.clip(x, 0.0, 1.0), jnp.clip(y, 0.0, 1.5)
        return jnp.stack([1.0, x, x * x, y, x * y, y * y])

    hand = line_by_hand(
        lambda total: {
            "how_many": dist.DiscreteUniform(1, 200),
            "totals": total,
            "xtx": lambda totals: dist.Delta(totals[np.array([[0, 1], [1, 2]])]),
            "xty": lambda totals: dist.Delta(totals[np.array([3, 4])]),
            "yty": lambda totals: dist.Delta(totals[5]),
        },
        n="how_many",
        contribution=six,
        x=lambda x_mean, x_sd: dist.Normal(x_mean, x_sd),
        prior={"x_mean": dist.Normal(0.5, 1.0), "x_sd": dist.HalfNormal(0.5)},
    )
    assert_same(model, hand, release)
    labelled = nw.regression("y ~ x", release.drop("yty"), most=200, bounds=BOUNDS)
    assert labelled.statistics == ("how_many", "totals", "xtx", "xty")


def test_products_of_covariates_and_no_intercept():
    release = nw.Release(a=NOISE.released(1.0), people=NOISE.released(4.0))
    bounds = {"x": (0, 2), "z": (-1, 1), "y": (0, 8)}
    model = nw.regression(
        "y ~ 0 + x + x:z",
        release,
        n="people",
        most=9,
        bounds=bounds,
        products={"a": "z*y*x"},
        covariates={"z": "Normal"},
    )
    total = model.total("a").total
    assert model.axes.coords["term"] == ("x", "x:z")
    assert float(total.contribution(x=3.0, z=0.5, y=9.0)) == 2.0 * 0.5 * 8.0
    law = total.record["y"](x=2.0, z=0.5, beta=np.array([3.0, 5.0]), sigma=0.1)
    assert float(law.loc) == pytest.approx(2.0 * 3.0 + 2.0 * 0.5 * 5.0)
    assert total.n == "people"


def test_priors_of_products_count_where_the_others_lie():
    """z lies at 100: where it is zero, the slope of x differs by 100 times the coefficient of x:z."""
    bounds = {"x": (0, 2), "z": (99, 101), "y": (0, 8)}
    release = nw.Release(a=NOISE.released(1.0))
    code = nw.regression("y ~ x * z", release, n=10, bounds=bounds, products={"a": "x*y"}).code
    spreads = [
        np.hypot(8, np.hypot(4 * 1, np.hypot(4 * 100, 2 * 1 * 100))),
        np.hypot(4, 2 * 100),
        np.hypot(4, 2 * 1),
        2,
    ]
    assert f"np.array([4.0, 0.0, 0.0, 0.0]), np.array({[float(f'{s:.3g}') for s in spreads]})" in code


@pytest.mark.long
def test_the_line_of_the_tutorial_has_one_posterior_however_its_sums_were_published():
    """The default sampler, from one labelled entry and from five."""
    apart = nw.Release({f"s{i}": NOISE.released(value) for i, value in enumerate(VALUES)})
    stated = {f"s{i}": product for i, product in enumerate(PRODUCTS)}
    common = {"n": 150, "bounds": BOUNDS, "covariates": {"x": dist.Beta(2.0, 2.0)}}
    hand = nw.sample(line_by_hand(), SUMS, draws=4_000, seed=1)
    whole = nw.sample(nw.regression("y ~ x", SUMS, **common), SUMS, draws=4_000, seed=1)
    parts = nw.sample(nw.regression("y ~ x", apart, products=stated, **common), apart, draws=4_000, seed=1)
    assert np.array_equal(hand["beta"], whole["beta"])
    one, other = (posterior.summary().loc["beta[x]"] for posterior in (whole, parts))
    assert abs(one["mean"] - other["mean"]) < LIMIT * np.hypot(one["mcse"], other["mcse"])


# Against brute force ----------------------------------------------------------------------------------------------


class Seen(dict):
    """One coefficient, as a posterior has it."""

    def __init__(self, posterior, place):
        super().__init__(value=posterior["beta"][:, place])
        self.weights = posterior.weights


def grid_moments(height, ends):
    """Mean and variance of two coefficients with the log density `height(a, b)`, on grids that are refined."""
    truth = integrate(lambda a, b: (height(a, b), {"a": a, "b": b}), ends, first=41, tolerance=1e-3, at_once=2**10)
    return [(truth.moments[name][0], truth.moments[name][1] ** 2) for name in ("a", "b")]


def off(posterior, truth):
    """The largest z-score of means and variances of both coefficients."""
    return max(np.abs(z_scores(Seen(posterior, i), "value", *truth[i])).max() for i in (0, 1))


def poisson_height(x, people, released, scale, prior):
    k = np.arange(3.0 * released.max() + 60.0)
    noise = np.exp(-np.abs(released[:, None] - k) / scale)  # constants do not matter

    def height(a, b):
        total = stats.norm.logpdf(a, 0.0, prior[0]) + stats.norm.logpdf(b, 0.0, prior[1])
        for i in range(len(x)):
            log_rate = (np.log(people[i]) + a + b * x[i])[:, None]
            total += np.log(np.exp(k * log_rate - np.exp(log_rate) - gammaln(k + 1)) @ noise[i])
        return total

    return height


def counties(number):
    rng = np.random.default_rng(21)
    people, x = rng.uniform(0.3, 4.0, number).round(2), rng.normal(size=number).round(2)
    released = rng.poisson(people * np.exp(2.0 + 0.4 * x)) + rng.geometric(0.3, number) - rng.geometric(0.3, number)
    return pd.DataFrame({"people": people, "x": x}), released


@pytest.mark.parametrize("number", [6, pytest.param(30, marks=pytest.mark.long)])
def test_counties_against_a_grid(number):
    table, released = counties(number)
    scale = -1 / np.log(0.7)
    release = nw.Release(cases=nw.DiscreteLaplace(scale=scale).released(released))
    model = nw.regression("cases ~ x + offset(log(people))", release, family="poisson", data=table)
    sampler = about(beta=dist.Normal(np.array([2.1, 0.2]), 0.2)) if number < 30 else None
    posterior = nw.sample(model, release, sampler, draws=2_000, seed=1)
    x, people = table["x"].to_numpy(), table["people"].to_numpy()
    prior = (5.0, float(f"{1 / x.std():.3g}"))
    ends = [(-3.0, 5.0), (-5.0, 5.0)] if number < 30 else [(1.3, 2.6), (-0.4, 1.1)]
    assert off(posterior, grid_moments(poisson_height(x, people, released, scale, prior), ends)) < LIMIT
    naive = poisson_height(x, people, released, scale / 10, prior)  # as if there were less noise
    assert off(posterior, grid_moments(naive, ends)) > LIMIT


def answers(number):
    rng = np.random.default_rng(3)
    x = rng.normal(size=number)
    yes = rng.random(number) < expit(0.3 + 0.8 * x)
    return x, np.where(rng.random(number) < 0.25, ~yes, yes).astype(int)


def answers_height(x, told, keep, prior):
    def height(a, b):
        p = expit(a[:, None] + b[:, None] * x)
        reported = keep * p + (1 - keep) * (1 - p)
        log_prior = stats.norm.logpdf(a, 0.0, prior[0]) + stats.norm.logpdf(b, 0.0, prior[1])
        return log_prior + np.log(np.where(told == 1, reported, 1 - reported)).sum(axis=1)

    return height


@pytest.mark.parametrize("number", [60, pytest.param(5_000, marks=pytest.mark.long)])
def test_randomised_answers_against_a_grid(number):
    """By `sample`, and by `fit`, whose estimate is the top of the likelihood."""
    x, told = answers(number)
    release = nw.Release(yes=nw.RandomizedResponse(keep=0.75).released(told))
    given = {"beta": dist.Normal(0.0, 1.0)} if number < 5_000 else None
    model = nw.regression("yes ~ x", release, family="bernoulli", data={"x": x}, prior=given)
    sampler = about(beta=dist.Normal(0.7, np.full(2, 0.5))) if given else COLLAPSED
    posterior = nw.sample(model, release, sampler, draws=2_000, seed=1)
    prior = (1.0, 1.0) if given else (2.5, float(f"{2.5 / x.std():.3g}"))
    ends = [(-8.0, 8.0), (-8.0, 8.0)] if number < 5_000 else [(-0.4, 1.2), (0.1, 1.7)]
    assert off(posterior, grid_moments(answers_height(x, told, 0.75, prior), ends)) < LIMIT
    assert off(posterior, grid_moments(answers_height(x, told, 0.95, prior), ends)) > LIMIT
    fit = nw.fit(model, release, start={"beta": np.zeros(2)}, seed=1)
    estimate, height = fit.estimate["beta"], answers_height(x, told, 0.75, (1e6, 1e6))
    around = estimate + 1e-3 * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1], [1, -1], [-1, 1]])
    assert np.argmax(height(*around.T)) == 0


def grid_of(height, *axes):
    """Normalised weights of a log density on a grid, and the coordinates there."""
    points = np.meshgrid(*axes, indexing="ij")
    logs = height(*points)
    weights = np.exp(logs - logs.max())
    return weights / weights.sum(), points


def agrees_on(posterior, values, weights, coordinate):
    """Whether draws have mean and variance of a coordinate of a grid."""
    seen = Seen(posterior, 0)
    seen["value"] = values
    mean = np.sum(weights * coordinate)
    return np.abs(z_scores(seen, "value", mean, np.sum(weights * (coordinate - mean) ** 2))).max() < LIMIT


def test_groups_against_brute_force():
    """(1 | region): effects integrated out by the trapezoidal rule, then intercept and spread on a grid."""
    scale, released = 1.5, np.array([2, 4, 3, 11, 14, 9])
    release = nw.Release(cases=nw.DiscreteLaplace(scale=scale).released(released))
    table = {"region": ["north"] * 3 + ["south"] * 3}
    prior = {"beta": dist.Normal(1.0, 1.0)}
    model = nw.regression("cases ~ 1 + (1 | region)", release, family="poisson", data=table, prior=prior)
    sampler = about(
        beta=dist.Normal(1.6, np.full(1, 0.6)),
        region_sd=dist.HalfNormal(1.2),
        region_effect=lambda beta: dist.Normal(np.array([1.1, 2.4]) - beta, np.array([0.5, 0.25])),
    )
    posterior = nw.sample(model, release, sampler, draws=2_000, seed=1)
    k = np.arange(100.0)
    fine = np.linspace(-40.0, 12.0, 2601)
    terms = np.exp(k * fine[:, None] - np.exp(fine)[:, None] - gammaln(k + 1))
    with np.errstate(divide="ignore"):
        of_row = [np.log(terms @ np.exp(-np.abs(r - k) / scale)) for r in released]
    of_region = [CubicSpline(fine, np.maximum(sum(of_row[i : i + 3]), -1e4)) for i in (0, 3)]
    z = np.linspace(-6.0, 6.0, 61)

    def region(a, log_sd, which, power=0):
        """The integral over one region's effect z sd, or that of a power of the effect."""
        effect = np.exp(log_sd)[..., None] * z
        density = np.exp(of_region[which](a[..., None] + effect) + stats.norm.logpdf(z))
        return np.sum(density * effect**power, axis=-1)

    def height(a, log_sd):
        prior = stats.norm.logpdf(a, 1.0, 1.0) + stats.halfnorm.logpdf(np.exp(log_sd)) + log_sd
        return prior + np.log(region(a, log_sd, 0)) + np.log(region(a, log_sd, 1))

    weights, (a, log_sd) = grid_of(height, np.linspace(-3.0, 5.0, 81), np.linspace(-9.0, 1.7, 61))
    assert agrees_on(posterior, posterior["beta"][:, 0], weights, a)
    assert agrees_on(posterior, posterior["region_sd"], weights, np.exp(log_sd))
    south = np.sum(weights * region(a, log_sd, 1, 1) / region(a, log_sd, 1))
    summary = posterior.summary().loc["region_effect[south]"]
    assert abs(summary["mean"] - south) < LIMIT * summary["mcse"]
    common, (b,) = grid_of(lambda a: of_region[0](a) + of_region[1](a) + stats.norm.logpdf(a, 1.0, 1.0), a[:, 0])
    assert not agrees_on(posterior, posterior["beta"][:, 0], common, b)  # as if there were no groups


def numbers_height(row, prior_sigma=5.0):
    """log density of intercept and log sigma, `row(a, sigma)` being that of all rows."""

    def height(a, log_sigma):
        sigma = np.exp(log_sigma)
        prior = stats.norm.logpdf(a, 5.0, 10.0) + stats.halfnorm.logpdf(sigma, scale=prior_sigma) + log_sigma
        return prior + row(a, sigma)

    return height


AXES = np.linspace(-25.0, 40.0, 131), np.linspace(-4.0, 3.5, 51)


def test_numbers_by_row_against_a_grid():
    """A normal plus a Laplace variate has a density in closed form."""
    released = np.array([9.1, 11.3, 10.4, 6.2, 9.8, 10.9, 8.0, 10.2, 3.9, 9.5])
    release = nw.Release(y=nw.Laplace(scale=2.0).released(released))
    prior = {"beta": dist.Normal(5.0, 10.0), "sigma": dist.HalfNormal(5.0)}
    model = nw.regression("y ~ 1", release, family="gaussian", data={"x": np.zeros(10)}, prior=prior)
    sampler = about(beta=dist.Normal(9.3, np.full(1, 1.2)), sigma=dist.HalfNormal(1.8))
    posterior = nw.sample(model, release, sampler, draws=2_000, seed=1)

    def rows(a, sigma, scale=2.0):
        r, b = released.reshape(-1, 1, 1) - a, sigma / scale
        halves = [s * r / scale + 0.5 * b * b + log_ndtr(-s * r / sigma - b) for s in (1, -1)]
        return np.sum(np.logaddexp(*halves) - np.log(2 * scale), axis=0)

    weights, (a, log_sigma) = grid_of(numbers_height(rows), *AXES)
    assert agrees_on(posterior, posterior["beta"][:, 0], weights, a)
    assert agrees_on(posterior, posterior["sigma"], weights, np.exp(log_sigma))
    weights, _ = grid_of(numbers_height(lambda a, sigma: rows(a, sigma, 0.5)), *AXES)
    assert not agrees_on(posterior, posterior["sigma"], weights, np.exp(log_sigma))  # as if there were less noise


LOW, HIGH = 0.0, 10.0
NEAR_THE_TOP = np.array([9.1, 11.3, 4.4, 12.2, 10.1])


def clamped_rows(a, sigma, clamped=True):
    """log density of all rows: normal mass at both bounds, and an integral between them."""
    y, step = np.linspace(LOW, HIGH, 201, retstep=True)
    a, sigma = np.broadcast_arrays(a, sigma)
    between = np.exp(-0.5 * ((y - a[..., None]) / sigma[..., None]) ** 2) / (np.sqrt(2.0 * np.pi) * sigma[..., None])
    between *= np.where((y == LOW) | (y == HIGH), 0.5, 1.0) * step
    below, above = stats.norm.cdf(LOW, a, sigma), stats.norm.sf(HIGH, a, sigma)
    total = 0.0
    for noise in np.exp(-np.abs(NEAR_THE_TOP[:, None] - y)):
        ends = below * noise[0] + above * noise[-1] if clamped else 0.0
        total = total + np.log(between @ noise + ends + 1e-300)
    return total


@cache
def clamped_model():
    release = nw.Release(y=Clamped(nw.Laplace(scale=1.0), LOW, HIGH).released(NEAR_THE_TOP))
    return nw.regression("y ~ 1", release, family="gaussian", data={"x": np.zeros(5)}), release


def test_clamped_numbers_against_a_grid():
    sampler = about(beta=lambda sigma: dist.Normal(10.0 + sigma, 2.0 + sigma).expand([1]), sigma=dist.HalfNormal(6.0))
    posterior = nw.sample(*clamped_model(), sampler, draws=2_000, seed=1)
    weights, (a, log_sigma) = grid_of(numbers_height(clamped_rows), *AXES)
    assert agrees_on(posterior, posterior["beta"][:, 0], weights, a)
    assert agrees_on(posterior, posterior["sigma"], weights, np.exp(log_sigma))
    weights, _ = grid_of(numbers_height(lambda a, sigma: clamped_rows(a, sigma, clamped=False)), *AXES)
    assert not agrees_on(posterior, posterior["beta"][:, 0], weights, a)  # as if values beyond did not count


@pytest.mark.long
def test_the_likelihood_of_clamped_numbers_has_its_top_at_the_fit():
    fit = nw.fit(*clamped_model(), seed=1)
    estimate = np.array([fit.estimate["beta"][0], fit.estimate["sigma"]])
    around = estimate + 0.02 * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1], [1, -1], [-1, 1]])
    assert np.argmax(clamped_rows(*around.T)) == 0
