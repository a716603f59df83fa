"""Priors in words, against quantiles by SciPy."""

import numpyro.distributions as dist
import pytest
from scipy import stats

import noisewise as nw
from noisewise.report.markup import MINUS
from noisewise.report.prior_words import prior_in_words

LAWS = {
    "gamma": (dist.Gamma(25.0, 1.0), "mean 25; 95% between 16 and 36"),
    "normal": (dist.Normal(0.0, 5.0), f"mean 0; 95% between {MINUS}10 and 10"),
    "half-normal": (dist.HalfNormal(1.0), "mean 0.80; 95% between 0.031 and 2.2"),
    "no mean": (dist.HalfCauchy(1.1), "median 1.1; 95% between 0.043 and 28"),
    "drawn": (dist.Poisson(100.0), "mean 100; 95% between 81 and 120"),
    "one value": (dist.Delta(3.0), "always 3.00"),
    "entries": (dist.Normal(0.0, 1.0).expand([3]), ""),
}


@pytest.mark.parametrize("name", LAWS)
def test_mean_and_middle_are_said(name):
    law, words = LAWS[name]
    model = nw.Model(prior={"p": law}, statistics={"s": lambda p: dist.Normal(p, 1.0)})
    assert prior_in_words(model, "p") == words


def test_the_words_are_those_of_scipy():
    low, high = stats.gamma(25).ppf([0.025, 0.975])
    assert (round(low), round(high)) == (16, 36)
    low, high = stats.poisson(100).ppf([0.025, 0.975])
    assert (low, high) == (81, 120)


def test_a_law_of_other_parameters_is_drawn_with_them():
    model = nw.Model(
        prior={"a": dist.Normal(100.0, 3.0), "b": lambda a: dist.Normal(a, 4.0)},
        statistics={"s": lambda b: dist.Normal(b, 1.0)},
    )
    assert prior_in_words(model, "b") == "mean 100; 95% between 90 and 110"
