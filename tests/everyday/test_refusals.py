"""What everyday functions refuse, in the one form of message: who, which argument, the rule, the value, advice."""

import builtins
import re

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro.distributions import transforms

import noisewise as nw
from noisewise.everyday import priors

FORM = re.compile(r"[\w.\[\]']+: '.+?' .+; got .+\. .+\.", re.DOTALL)
NOISE = nw.Laplace(scale=1.0)
RELEASE = nw.Release(
    total=NOISE.released(5.0),
    mean=NOISE.released(0.5),
    people=NOISE.released(11.0),
    dist=NOISE.released(3.0),
    yes=NOISE.released(4.0),
    cases=NOISE.released(np.arange(4.0), coords={"county": list("abcd")}),
    table=NOISE.released(np.ones((2, 2))),
    sums=NOISE.released(np.ones(2)),
)
DATA = pd.DataFrame(
    {
        "x": [1.0, -1.0, 0.5, 0.2],
        "far": [900.0, 901.0, 902.0, 903.0],
        "g": list("uuvv"),
        "one": list("zzzz"),
        "term": list("abab"),
    }
)
BOUNDS = {"x": (0, 1), "y": (0, 2)}
STATED = NOISE.released(5.0).described(bounds=(0.0, 1.0), records=10)


def mean(**changes):
    return nw.mean_of(RELEASE, **({"sum": "total", "n": 10, "bounds": (0, 1)} | changes))


def counts(formula="cases ~ x", **changes):
    return nw.regression(formula, RELEASE, **({"family": "poisson", "data": DATA} | changes))


def line(formula="y ~ x", **changes):
    given = {"n": 10, "bounds": BOUNDS, "products": {"sums": ["x*y", "x*x"]}} | changes
    return nw.regression(formula, RELEASE, **given)


def share(**changes):
    return nw.share_of(RELEASE, **({"count": "yes", "n": 10} | changes))


CASES = {
    "no release": (lambda: nw.mean_of({"total": 3.0}, "total", n=3, bounds=(0, 1)), "'release' must be a noisewise"),
    "unknown entry": (lambda: mean(sum="toal"), "'sum' must be the name of a released entry.*mean 'total'"),
    "neither sum nor mean": (lambda: mean(sum=None), "'sum' must be given"),
    "sum and mean": (lambda: mean(mean="yes"), "'sum' must be given, or 'mean' in its place"),
    "an entry named like a parameter": (lambda: mean(sum=None, mean="mean"), "'mean' must not be a name.*rename it"),
    "an entry named like a module": (lambda: share(count="dist"), "'count' must not be a name"),
    "an entry twice": (lambda: mean(n="total", most=9), "'n' must not be a name"),
    "a vector as a sum": (lambda: mean(sum="cases"), r"'sum' must be an entry with a single number.*\(4,\)"),
    "no bounds": (lambda: mean(bounds=None), "'bounds' must be the lower and the upper bound"),
    "bounds the wrong way round": (lambda: mean(bounds=(1, 0)), "'bounds' must be the lower"),
    "endless bounds": (lambda: mean(bounds=(0, np.inf)), "'bounds' must be the lower"),
    "negative bounds of positive values": (
        lambda: mean(bounds=(-1, 1), law="Gamma"),
        "'bounds' must not begin below zero for the law 'Gamma'",
    ),
    "other bounds than the release's": (
        lambda: nw.mean_of(nw.Release(total=STATED), "total", n=10, bounds=(0, 2)),
        r"'bounds' must be the bounds that the release states, \(0.0, 1.0\); got \(0, 2\)",
    ),
    "another number than the release's": (
        lambda: nw.mean_of(nw.Release(total=STATED), "total", n=9),
        "'n' must be the number of records that the release states, 10; got 9",
    ),
    "no number at all": (lambda: mean(n=None), "'n' must be a whole number, at least 1; got None"),
    "unknown law": (lambda: mean(law="normal"), "'law' must be one of .*; got 'normal'. Did you mean 'Normal'"),
    "no number": (lambda: mean(n=2.5), "'n' must be a whole number"),
    "noisy number without a limit": (lambda: mean(n="people"), "'most' must be given where the number"),
    "limit of a public number": (lambda: mean(most=7), "'most' belongs to a number that was released"),
    "a mean with a noisy number": (
        lambda: mean(sum=None, mean="yes", n="people", most=20),
        "'n' must be public where the mean was released",
    ),
    "unknown parameter": (lambda: mean(prior={"mu": dist.Normal(0.0, 1.0)}), "'prior' must name parameters"),
    "priors in a list": (lambda: mean(prior=[1]), "'prior' must be a dict of laws"),
    "a prior that is a number": (lambda: mean(prior={"mean": 3.0}), "'law' must be a NumPyro distribution"),
    "a prior that is a function": (lambda: mean(prior={"mean": lambda sd: dist.Normal(0.0, sd)}), "'law' must be"),
    "a prior without code": (
        lambda: mean(
            prior={"mean": dist.TransformedDistribution(dist.Normal(0.0, 1.0), transforms.AffineTransform(1.0, 2.0))}
        ),
        "'law' must be one that can be written as code",
    ),
    "one group": (lambda: nw.difference(a=share()), "'groups' must be two"),
    "a group by hand": (
        lambda: nw.difference(a=share(), b=nw.Model({"p": dist.Beta(1.0, 1.0)}, {"k": lambda p: dist.Binomial(3, p)})),
        "'b' must be a model by mean_of or share_of",
    ),
    "a share and a mean": (lambda: nw.difference(a=share(), b=mean()), "'groups' must be two means, or two shares"),
    "groups of the same entry": (lambda: nw.difference(a=share(), b=share(n=9)), "'groups' must not read the same"),
    "a group that makes a parameter of an entry": (
        lambda: nw.difference(
            a=nw.share_of(nw.Release(share_a=NOISE.released(3.0)), "share_a", n=9), b=share(count="total")
        ),
        r"'groups' must not give a parameter the name of a released entry; got 'share_a'. Name the groups otherwise",
    ),
    "a number as a table": (lambda: nw.table_of(RELEASE, "yes"), "'counts' must be a table"),
    "a total of no table": (
        lambda: nw.table_of(RELEASE, "cases", n="people"),
        r"'n' must measure the sum of 'cases'.*mechanism.of\('cases', sum=True\)",
    ),
    "an unknown total": (lambda: nw.table_of(RELEASE, "cases", n="pepole"), "'n' must be the name of a released entry"),
    "numbers without bounds": (
        lambda: counts(family="gaussian"),
        r"'prior' must be given for numbers that were not clamped.*cases=nw.mechanisms.Clamped\(release\['cases'\]",
    ),
    "numbers with a prior of one parameter": (
        lambda: counts("cases ~ x + (1 | g)", family="gaussian", prior={"beta": dist.Normal(0.0, 1.0)}),
        "Give one for each of beta, sigma, g_sd",
    ),
    "bounds by row": (
        lambda: counts(family="gaussian", bounds={"cases": (0, 1)}),
        r"'bounds' must be said by the release.*cases=nw.mechanisms.Clamped\(release\['cases'\].mechanism, 0, 80\)",
    ),
    "products by row": (
        lambda: counts(family="gaussian", bounds={"cases": (0, 1)}, products={"a": "x"}),
        "'products' has no place where rows are given",
    ),
    "a number by row": (
        lambda: counts(family="gaussian", prior={"beta": dist.Normal(0.0, 1.0), "sigma": dist.HalfNormal(1.0)}, n=3),
        "'n' has no place with the family 'gaussian'",
    ),
    "a total of a table of two axes": (lambda: nw.table_of(RELEASE, "table", n=5), "'n' must be left out"),
    "no formula": (lambda: counts("cases"), "'formula' must have the name of a released entry before"),
    "unknown outcome": (lambda: counts("case ~ x"), "'formula' must be the name of a released entry.*'cases'"),
    "unknown family": (lambda: counts(family="logit"), "'family' must be one of"),
    "unknown column": (lambda: counts("cases ~ xx"), "'formula' must be terms that formulaic can make.*'xx'"),
    "a slope that varies": (lambda: counts("cases ~ (x | g)"), r"\(1 \| region\); got '\(x \| g\)'"),
    "a group within a term": (lambda: counts("cases ~ x:(1 | g)"), r"terms of their own; got 'x:\(1 \| g\)'"),
    "an empty term": (lambda: counts("cases ~ x +"), "must have a term at each side"),
    "two offsets": (lambda: counts("cases ~ offset(x) + offset(g)"), "must have each offset once"),
    "a group twice": (lambda: counts("cases ~ (1 | g) + (1 | g)"), "must have each group once"),
    "a group without a column": (lambda: counts("cases ~ (1 | h)"), "must name groups by columns of data; got 'h'"),
    "a group of one level": (lambda: counts("cases ~ (1 | one)"), "must have groups of two levels or more"),
    "a group with gaps": (lambda: counts("cases ~ (1 | g)", data=DATA.assign(g=["u", None, "v", "v"])), "missing"),
    "an offset of words": (lambda: counts("cases ~ offset(g)"), "must have an offset of one column"),
    "an offset of one word": (lambda: counts("cases ~ offset(one)"), "must have an offset of one column"),
    "groups by the axis of coefficients": (lambda: counts("cases ~ x + (1 | term)"), "must not have groups by 'term'"),
    "groups about nothing": (
        lambda: counts("cases ~ 0 + (1 | g)"),
        r"must have an intercept or a covariate; got '0'. Leave '0 \+' out",
    ),
    "a column that others give": (lambda: counts("cases ~ x + I(2 * x)"), "must not have a column that the others"),
    "a column with gaps": (lambda: counts(data=DATA.assign(x=[1.0, np.nan, 0.0, 2.0])), "formulaic can make"),
    "an endless column": (lambda: counts("cases ~ log(x + 1)"), "must give finite numbers in every row"),
    "a column far from zero": (lambda: counts("cases ~ far"), r"Center it, center\(far\), in the formula"),
    "a product far from zero": (lambda: counts("cases ~ far:far.abs()"), r"Center its covariates, center\(x\),"),
    "labels of many kinds": (lambda: counts(data=DATA.assign(county=["a", 3, None, "d"])), "in its column 'county'"),
    "no data": (lambda: counts(data=None), "'data' must be a table of covariates"),
    "columns of many lengths": (lambda: counts(data={"x": [1], "g": [1, 2]}), "'data' must have columns of one"),
    "too few rows": (lambda: counts(data=DATA.iloc[:3]), "'data' must have one row for each entry"),
    "other labels": (lambda: counts(data=DATA.assign(county=list("abce"))), "'data' must have in its column 'county'"),
    "an outcome of two axes": (lambda: counts("table ~ x"), "'formula' must name an entry with one axis"),
    "bounds of counts": (lambda: counts(bounds=BOUNDS), "'bounds' has no place with the family 'poisson'"),
    "a number of counts": (lambda: counts(n=3), "'n' has no place with the family 'poisson'"),
    "no number of trials": (lambda: counts(family="binomial"), "'n' must be given with the family 'binomial'"),
    "unknown number of trials": (lambda: counts(family="binomial", n="m"), "'n' must name a column of data"),
    "fractional trials": (lambda: counts(family="binomial", n=[1, 2.5, 3, 4]), "'n' must be a whole number"),
    "rows of a line": (lambda: line(data=DATA), "'products' has no place where rows are given"),
    "an offset of a line": (lambda: line("y ~ x + offset(x)"), "must have covariates only, where sums were"),
    "a function of a covariate": (lambda: line("y ~ log(x)"), r"made of covariates' names; got 'log\(x\)'"),
    "a line of nothing": (lambda: line("y ~ 0"), "must have an intercept or a covariate; got '0'"),
    "an outcome named like a parameter": (
        lambda: line("sigma ~ x", bounds={"x": (0, 1), "sigma": (0, 1)}, products={"sums": ["x", "sigma"]}),
        "must not use a name that this model has another use for; got 'sigma'",
    ),
    "a covariate named like a module": (
        lambda: line("y ~ jnp", bounds={"jnp": (0, 1), "y": (0, 1)}, products={"sums": ["jnp", "y"]}),
        "must not use a name that this model has another use for; got 'jnp'",
    ),
    "a power that is none": (lambda: line(products={"sums": ["x", "x^20"]}), "must be products of variables.*'x\\^20'"),
    "a line that cannot be read": (lambda: line("y ~ x + *"), "must be terms that formulaic reads"),
    "no bounds of a line": (lambda: line(bounds=None), "'bounds' must be a dict of bounds by name"),
    "bounds of one variable": (lambda: line(bounds={"x": (0, 1)}), "one is missing; got 'y'"),
    "bounds of another": (lambda: line(bounds=BOUNDS | {"z": (0, 1)}), "'bounds' must be of variables in the formula"),
    "no products": (lambda: line(products={}), "'products' must say which products"),
    "too few products": (lambda: line(products={"sums": ["x"]}), r"'products' must have the shape.*\(2,\)"),
    "products of another": (lambda: line(products={"sums": ["x", "z*y"]}), "must be products of variables.*'z\\*y'"),
    "a number both public and released": (
        lambda: line(products={"sums": ["1", "x"]}),
        "'n' must not be both public and released with noise; got 10",
    ),
    "no number of people": (lambda: line(n=None), "'n' must be given"),
    "no limit of people": (lambda: line(n=None, products={"sums": ["1", "x"]}), "'most' must be a whole number"),
    "laws in a list": (lambda: line(covariates=["Normal"]), "'covariates' must be a dict of laws"),
    "a law of another": (lambda: line(covariates={"z": "Normal"}), "'covariates' must be in the formula; got 'z'"),
    "a Beta law of other bounds": (
        lambda: line(covariates={"x": "Beta"}, bounds={"x": (0, 2), "y": (0, 1)}),
        "'covariates' must not be 'Beta' for bounds other than",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused_in_the_one_form(case):
    call, words = CASES[case]
    with pytest.raises(nw.InputError) as caught:
        call()
    assert FORM.fullmatch(str(caught.value)), str(caught.value)
    assert re.search(words, str(caught.value), re.DOTALL), str(caught.value)


def test_without_formulaic_it_is_said_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("formulaic"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(nw.InputError, match=r"pip install 'noisewise\[formula\]'"):
        counts()


@pytest.mark.parametrize(
    "law",
    [
        dist.Normal(0.0, 2.0),
        dist.Gamma(2.0, np.array([0.5, 1.5])),
        dist.TruncatedNormal(1.0, 2.0, low=0.0, high=5.0),
        dist.TruncatedNormal(1.0, 2.0, low=0.0),
        dist.HalfCauchy(2.0).expand([2, 3]),
        dist.Normal(np.zeros(3), 1.0).to_event(1),
        dist.Dirichlet(np.ones(3)),
        dist.Poisson(4.0),
        dist.DiscreteUniform(2, 9),
    ],
    ids=lambda law: type(law).__name__,
)
def test_laws_are_written_so_that_they_come_back(law):
    text = priors.law("test", law)
    again = eval(text, {"dist": dist, "np": np})
    again = again if isinstance(again, dist.Distribution) else again()
    value = np.full(law.event_shape, 1 / 3) if isinstance(law, dist.Dirichlet) else np.full(law.event_shape, 3.0)
    assert again.shape() == law.shape()
    assert np.array_equal(again.log_prob(value), law.log_prob(value))
