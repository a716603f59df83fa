"""Derived quantities: those of the draws, by closed forms; what cannot be computed is refused."""

import math

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from exactness import agrees
from scipy import stats
from scipy.signal import lfilter

import noisewise as nw
from noisewise.errors import NoisewiseWarning


def two_arms(derived=None, dims=None):
    """Two shares with uniform priors, released as exact counts: independent beta posteriors."""
    return nw.Model(
        prior={"p1": dist.Beta(1.0, 1.0), "p2": dist.Beta(1.0, 1.0)},
        statistics={"yes1": lambda p1: dist.Binomial(20, p1), "yes2": lambda p2: dist.Binomial(30, p2)},
        derived=derived,
        dims=dims,
    )


RELEASE = nw.Release(yes1=nw.Exact().released(13), yes2=nw.Exact().released(11))
P1, P2 = stats.beta(14, 8), stats.beta(12, 20)
GAP = P1.mean() - P2.mean()
GRID = (np.arange(20_000) + 0.5) / 20_000
BETTER = float(np.mean(P2.cdf(P1.ppf(GRID))))
FUNCTIONS = {"gap": lambda p1, p2: p1 - p2, "better": lambda p1, p2: p1 > p2}


@pytest.fixture(scope="module")
def trial():
    return nw.sample(two_arms(), RELEASE, nw.Rejection(), draws=2_000, seed=3).derive(**FUNCTIONS)


@pytest.fixture(scope="module")
def weighted():
    return nw.sample(two_arms(), RELEASE, nw.Importance(), draws=20_000, seed=3)


@pytest.fixture(scope="module")
def counties():
    names = {"county": ["Bronx", "Kings", "Queens"]}
    release = nw.Release(count=nw.DiscreteLaplace(scale=5.0).released([7, 19, 30], coords=names))
    model = nw.Model(
        {"rate": dist.Gamma(np.full(3, 2.0), 0.1)},
        {"count": lambda rate: dist.Poisson(rate)},
        dims={"rate": ("county",)},
        derived={"share": lambda rate: rate / rate.sum()},
    )
    return nw.sample(model, release, nw.Rejection(), draws=400, seed=3)


@pytest.mark.quick
def test_a_difference_and_its_probability_are_those_of_the_closed_form(trial):
    table = trial.summary()
    sd = math.sqrt(P1.var() + P2.var())
    assert agrees(trial["gap"], GAP)
    assert table.loc["gap", "mcse"] == pytest.approx(sd / math.sqrt(2_000), rel=0.1)
    assert trial["better"].dtype == bool
    assert agrees(trial["better"].astype(float), BETTER)
    assert not agrees((trial["p2"] > trial["p1"]).astype(float), BETTER)
    error = math.sqrt(BETTER * (1 - BETTER) / 2_000)
    assert table.loc["better", "mcse"] == pytest.approx(error, rel=0.3)


def test_weights_count(weighted):
    derived = weighted.derive(**FUNCTIONS)
    row = derived.summary().loc["better"]
    assert abs(row["mean"] - BETTER) < 5.0 * row["mcse"]
    assert abs(derived["better"].mean() - BETTER) > 20.0 * row["mcse"]  # forgotten, they are seen to matter
    assert derived.log_weights is not None


def test_chains_count():
    """Truth values of dependent draws have larger errors than independent ones: of a walk with correlation 0.9."""
    rng = np.random.default_rng(3)
    steps = rng.normal(size=(4, 4_000)) * math.sqrt(1.0 - 0.9**2)
    x = np.stack([lfilter([1.0], [1.0, -0.9], chain) for chain in steps])[:, 1_000:].reshape(-1)
    told = {"released": {}, "release_hash": "", "sampler": nw.NUTS(), "seed": 1, "chains": 4}
    posterior = nw.Posterior({"x": x}, ("x",), **told).derive(positive=lambda x: x > 0.0)
    row = posterior.summary().loc["positive"]
    independent = 0.5 / math.sqrt(len(x))
    # of sign(x): lags k have correlation (2 / pi) asin(0.9^k)
    lags = 0.9 ** np.arange(1, 300)
    exact = independent * math.sqrt(1.0 + 2.0 * np.sum(2.0 / math.pi * np.arcsin(lags)))
    assert row["mcse"] == pytest.approx(exact, rel=0.3)
    assert abs(row["mean"] - 0.5) < 5.0 * exact
    assert {"ess_tail", "r_hat"} <= set(posterior.summary())


def test_what_it_is_and_is_not(trial):
    assert trial.derived == ("gap", "better")
    assert trial.parameters == ("p1", "p2")
    assert trial.statistics == ("yes1", "yes2")
    again = trial.derive(twice=lambda gap: 2 * gap, four=lambda twice: 2 * twice)
    assert again.derived == ("gap", "better", "twice", "four")
    assert np.allclose(again["four"], 4 * trial["gap"])
    assert "twice" not in trial


def test_functions_of_numpy_and_with_branches_are_called_draw_by_draw(trial):
    plain = trial.derive(
        logit=lambda p1: math.log(p1 / (1 - p1)),
        larger=lambda p1, p2: p1 if p1 > p2 else p2,
        one=lambda: 1.5,
    )
    assert np.allclose(plain["logit"], np.log(trial["p1"] / (1 - trial["p1"])))
    assert np.array_equal(plain["larger"], np.maximum(trial["p1"], trial["p2"]))
    assert np.all(plain["one"] == 1.5)


def test_functions_that_count_up_to_a_draw_are_called_draw_by_draw():
    told = {"released": {}, "release_hash": "", "sampler": nw.Rejection(), "seed": 1}
    posterior = nw.Posterior({"count": np.array([0, 3, 2])}, ("count",), **told)
    found = posterior.derive(
        total=lambda count: sum(k for k in range(count + 1)), fee=lambda count: [0.0, 1.5, 2.5, 9.0][count]
    )
    assert found["total"].tolist() == [0, 6, 3]
    assert found["fee"].tolist() == [0.0, 9.0, 2.5]


def test_labels_carry_over_to_arrays_of_the_same_shape(counties):
    assert counties.derived == ("share",)
    assert list(counties.summary().index[-3:]) == ["share[Bronx]", "share[Kings]", "share[Queens]"]
    more = counties.derive(top=lambda rate: rate == rate.max(), pair=lambda rate: rate[:2])
    assert "top[Kings]" in more.summary().index
    assert "pair[0]" in more.summary().index
    assert np.allclose(more.select("share", county="Kings"), counties["rate"][:, 1] / counties["rate"].sum(axis=1))
    named = counties.derive(dims={"pair": ("two",)}, pair=lambda rate: rate[:2])
    assert named.to_xarray()["pair"].dims == ("chain", "draw", "two")


def test_they_are_in_files_and_other_tools_as_parameters_are(counties, trial, tmp_path):
    for posterior in (counties, trial):
        posterior.save(tmp_path / "run.nc")
        again = nw.Posterior.load(tmp_path / "run.nc")
        assert again.derived == posterior.derived
        assert again.statistics == posterior.statistics
        assert again.axes == posterior.axes
        assert all(np.array_equal(again[name], posterior[name]) for name in posterior.draws)
        assert again.summary().equals(posterior.summary())
    tree = trial.to_arviz(two_arms(), RELEASE, prior=True)
    assert tree["posterior"]["gap"].shape == (1, 2_000)
    assert "gap" not in tree["prior"]
    assert nw.plot(trial).axes[-1].get_xlabel() == "better"


def test_a_model_s_own_travel_with_it():
    model = two_arms(derived=FUNCTIONS)
    posterior = nw.sample(model, RELEASE, nw.Rejection(), draws=200, seed=3)
    assert posterior.derived == ("gap", "better")
    assert np.allclose(posterior["gap"], posterior["p1"] - posterior["p2"])
    assert "gap" in posterior.to_arviz(model, RELEASE, prior=True)["prior"]
    drawn = model.simulate(50, seed=1)
    assert np.allclose(model.derive(drawn)["gap"], drawn["p1"] - drawn["p2"])
    assert "prior" in nw.plot(posterior, names=["gap"], prior=model).legends[0].get_texts()[-1].get_text()


def test_deterministic_sites_are_derived_quantities():
    def function():
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        numpyro.deterministic("rate", 10.0 * 2.0**level)
        numpyro.sample("count", dist.Poisson(10.0 * 2.0**level))

    model = nw.Model.from_numpyro(function, statistics=["count"])
    posterior = nw.sample(
        model, nw.Release(count=nw.Laplace(scale=2.0).released(12.0)), nw.Rejection(), draws=100, seed=3
    )
    assert posterior.derived == ("rate",)
    assert np.allclose(posterior["rate"], 10.0 * 2.0 ** posterior["level"])


def test_one_that_is_not_finite_is_left_out_of_a_finished_run():
    model = two_arms(derived={"ratio": lambda p1, yes1: p1 / (yes1 - 13), "gap": FUNCTIONS["gap"]})
    with pytest.warns(nw.NoisewiseWarning, match="'ratio' is not finite"):
        posterior = nw.sample(model, RELEASE, nw.Rejection(), draws=50, seed=3)
    assert posterior.derived == ("gap",)


REFUSED = {
    "argument": ({"odd": lambda p1, p3: p1 - p3}, "must take what is known by name; got 'p3'"),
    "name": ({"p1": lambda p2: p2}, "'p1' must be a new name"),
    "cycle": ({"a": lambda b: b, "b": lambda a: a}, "must not depend on itself"),
    "function": ({"odd": 3.0}, "'odd' must be a function"),
    "nothing": ({}, "must name at least one function"),
    "identifier": ({"a b": lambda p1: p1}, "must be names that can be Python arguments"),
    "text": ({"odd": lambda p1: "large"}, "must give a number"),
    "infinite": ({"odd": lambda p1, yes1: p1 / (yes1 - 13)}, "must be finite at every draw; 2000 of 2000"),
    "fails": ({"odd": lambda p1: p1.nothing}, "the function of 'odd' fails: AttributeError"),
    "random": ({"odd": lambda p1: p1 + np.random.default_rng().normal()}, "must give the same value"),
    "ragged": ({"odd": lambda p1: np.zeros(1 + int(p1 > 0.6))}, "must give values of one shape"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_computed_is_refused(case, trial):
    functions, message = REFUSED[case]
    with pytest.raises(nw.InputError) as caught:
        trial.derive(**functions)
    assert message in str(caught.value)


def test_a_model_refuses_what_it_cannot_compute():
    with pytest.raises(nw.InputError, match="must take what is known by name; got 'q'"):
        two_arms(derived={"gap": lambda p1, q: p1 - q})
    with pytest.raises(nw.InputError, match="'yes1' must be a new name"):
        two_arms(derived={"yes1": lambda p1: p1})


def test_arviz_summarises_truth_values(trial):
    arviz_stats = pytest.importorskip("arviz_stats")
    table = arviz_stats.summary(trial.to_arviz(), var_names=["better"], round_to="none")
    assert float(table.loc["better", "mean"]) == pytest.approx(trial["better"].mean())


def test_what_is_left_out_is_told_where_nothing_is_set():
    """The trial of rejection, which may end early without a word, does not swallow what its result lacks."""
    model = nw.Model(
        {"a": dist.Gamma(1.0, 0.5)}, {"x": lambda a: dist.Poisson(a)}, derived={"inverse": lambda x: 1.0 / x}
    )
    release = nw.Release(x=nw.DiscreteLaplace(scale=2.0).released(2))
    with pytest.warns(NoisewiseWarning, match="'inverse' is not finite at every draw"):
        posterior = nw.sample(model, release, draws=100, seed=1)
    assert "inverse" not in posterior.derived
