"""Posteriors: immutable, complete, readable by other tools, the same after a file."""

import copy
import pickle

import numpy as np
import numpyro.distributions as dist
import pytest
from targets import count_model, count_release

import noisewise as nw


@pytest.fixture(scope="module")
def plain():
    return nw.sample(count_model(), count_release(), nw.Rejection(), draws=2_000, seed=7)


@pytest.fixture(scope="module")
def weighted():
    return nw.sample(count_model(), count_release().naive(), nw.Importance(), draws=5_000, seed=7)


@pytest.fixture(scope="module")
def vector():
    model = nw.Model(
        prior={"share": dist.Dirichlet(np.ones(3))},
        statistics={"cells": lambda share: dist.Multinomial(15, share)},
    )
    release = nw.Release(cells=nw.DiscreteGaussian(scale=2.0).released([7, 2, 5]))
    return nw.sample(model, release, nw.Rejection(), draws=500, seed=7)


@pytest.mark.quick
def test_what_it_carries(plain):
    assert len(plain) == 2_000
    assert plain["theta"].shape == plain["count"].shape == (2_000,)
    assert plain["count"].dtype == np.int64
    assert plain.parameters == ("theta",)
    assert plain.statistics == ("count",)
    assert plain.ess == {"theta": 2_000.0, "count": 2_000.0}
    assert plain.release_hash == count_release().hash
    assert plain.seed == 7
    assert plain.status == "complete"
    assert set(plain.versions) >= {"noisewise", "numpy", "jax", "numpyro", "python"}
    assert plain.log_weights is None
    assert "theta" in plain
    assert plain.proposals > len(plain)


def test_it_cannot_be_changed(plain):
    with pytest.raises(ValueError, match="read-only"):
        plain["theta"][0] = 1.0
    with pytest.raises(AttributeError):
        plain.seed = 8
    with pytest.raises(TypeError):
        plain.draws["theta"] = 1
    with pytest.raises(TypeError):
        plain.diagnostics["merges"][0]["accepted"] = -1
    with pytest.raises(TypeError):
        plain.versions.update(numpy="0")
    with pytest.raises(KeyError, match="Did you mean 'theta'"):
        plain["thetta"]


def test_weights_cannot_be_changed(weighted):
    with pytest.raises(ValueError, match="read-only"):
        weighted.weights[:] = 0.0


def test_it_can_be_copied_and_pickled(plain, weighted):
    for posterior in (plain, weighted):
        for again in (pickle.loads(pickle.dumps(posterior)), copy.deepcopy(posterior)):
            assert np.array_equal(again["theta"], posterior["theta"])
            assert again.diagnostics == posterior.diagnostics
            assert again.sampler == posterior.sampler


def test_settings_from_numpy_can_be_saved(tmp_path):
    sampler = nw.Rejection(max_proposals=np.int64(10**6), max_seconds=np.float32(60.0))
    nw.sample(count_model(), count_release(), sampler, draws=np.int64(100), seed=np.int64(3)).save(tmp_path / "run.nc")
    assert nw.Posterior.load(tmp_path / "run.nc").sampler.max_proposals == 10**6


def test_summary_of_plain_draws(plain):
    row = plain.summary().loc["theta"]
    assert row["mean"] == pytest.approx(plain["theta"].mean())
    assert row["sd"] == pytest.approx(plain["theta"].std(ddof=1))
    assert row["2.5%"] == pytest.approx(np.quantile(plain["theta"], 0.025))
    assert row["mcse"] == pytest.approx(plain["theta"].std(ddof=1) / np.sqrt(2_000))
    assert list(plain.summary(0.5).columns)[2:4] == ["25%", "75%"]
    low, high = plain.interval(0.5)["theta"]
    assert low == pytest.approx(np.quantile(plain["theta"], 0.25))
    assert high == pytest.approx(np.quantile(plain["theta"], 0.75))


@pytest.mark.quick
def test_summary_of_weighted_draws(weighted):
    weight = np.exp(weighted.log_weights - weighted.log_weights.max())
    weight /= weight.sum()
    row = weighted.summary().loc["theta"]
    assert row["mean"] == pytest.approx(weight @ weighted["theta"])
    assert row["ess"] == pytest.approx(1 / np.sum(weight**2))
    assert np.sum(weight[weighted["theta"] <= row["97.5%"]]) == pytest.approx(0.975, abs=1e-3)
    assert "log_weight" in weighted.to_pandas()


def test_vectors_have_a_row_per_entry(vector):
    assert list(vector.summary().index) == [f"{n}[{i}]" for n in ("share", "cells") for i in range(3)]
    assert list(vector.to_pandas().columns) == list(vector.summary().index)
    assert vector.interval()["share"][0].shape == (3,)


def test_arviz_reads_it(plain, vector):
    arviz_stats = pytest.importorskip("arviz_stats")
    tree = plain.to_arviz()
    assert tree["posterior"]["theta"].dims == ("chain", "draw")
    assert float(tree["observed_data"]["count"]) == 37.4
    table = arviz_stats.summary(tree, round_to="none")
    assert float(table.loc["theta", "mean"]) == pytest.approx(plain["theta"].mean())
    assert vector.to_arviz()["posterior"]["share"].dims == ("chain", "draw", "share_dim_0")


def test_arviz_of_weighted_draws_is_resampled_and_says_so(weighted):
    tree = weighted.to_arviz()
    assert "resampling" in tree.attrs["resampled"]
    mean = float(tree["posterior"]["theta"].mean())
    assert mean == pytest.approx(weighted.summary().loc["theta", "mean"], abs=0.05)


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["plain", "weighted", "vector"])
def test_files_give_it_back(kind, request, tmp_path):
    posterior = request.getfixturevalue(kind)
    path = tmp_path / "run.nc"
    posterior.save(path)
    again = nw.Posterior.load(path)
    assert list(again.draws) == list(posterior.draws)
    assert list(posterior) == list(posterior.draws)
    for name in posterior:
        assert np.array_equal(again[name], posterior[name])
        assert again[name].dtype == posterior[name].dtype
    if posterior.log_weights is not None:
        assert np.array_equal(again.log_weights, posterior.log_weights)
    for field in ("sampler", "seed", "status", "reason", "release_hash", "acceptance_rate", "proposals"):
        assert getattr(again, field) == getattr(posterior, field)
    assert again.log_evidence == posterior.log_evidence
    assert dict(again.versions) == dict(posterior.versions)
    assert dict(again.diagnostics) == dict(posterior.diagnostics)
    assert again.summary().equals(posterior.summary())


def test_other_files_are_refused(tmp_path):
    with pytest.raises(nw.InputError, match="must be an existing file"):
        nw.Posterior.load(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("hello")
    with pytest.raises(nw.InputError, match=r"text\.nc: not a posterior"):
        nw.Posterior.load(tmp_path / "text.nc")
    import xarray as xr

    xr.Dataset({"a": 1}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(nw.InputError, match=r"other\.nc: not a posterior"):
        nw.Posterior.load(tmp_path / "other.nc")


def test_displays(plain, weighted):
    assert "2,000 draws by Rejection" in repr(plain)
    assert "theta" in repr(plain)
    assert "<table" in plain._repr_html_()
    assert "effective" in weighted._repr_html_()


def test_empty_posterior_displays_and_saves(tmp_path):
    model = nw.Model(prior={"m": dist.Normal(0.0, 1.0)}, statistics={"s": lambda m: dist.Normal(m, 1.0)})
    release = nw.Release(s=nw.Laplace(scale=0.01).released(30.0))
    empty = nw.sample(model, release, nw.Rejection(max_proposals=1000), draws=10, seed=1, on_failure="return")
    assert len(empty) == 0
    assert empty["m"].shape == (0,)
    assert "max_proposals" in repr(empty)
    assert "<p>" in empty._repr_html_()
    assert empty.summary().isna()["mean"].all()
    assert np.isnan(empty.interval()["m"][0])
    with pytest.raises(nw.InputError, match="must hold at least two draws"):
        nw.plot(empty)
    with pytest.raises(nw.InputError, match="'path' must be writable"):
        empty.save("/nonexistent/run.nc")
    empty.save(tmp_path / "empty.nc")
    assert len(nw.Posterior.load(tmp_path / "empty.nc")) == 0


@pytest.mark.parametrize("level", [0, 1, -0.5, "95%"])
def test_levels_are_checked(plain, level):
    with pytest.raises(nw.InputError, match="'level' must lie between 0 and 1"):
        plain.summary(level)


def test_comparison(plain):
    found = nw.compare(count_model(), count_release(), draws=20_000, seed=3)
    row = found.table().loc["theta"]
    assert row["naive sd"] < row["exact sd"]
    assert row["wider"] > 1.1
    assert row["shift"] < -0.5
    assert "theta" in repr(found)
    assert "<table" in found._repr_html_()
    assert found.plot() is not None


def test_comparison_without_a_naive_analysis():
    """A total has no density: the exact side is there all the same, with the reason."""
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 1.0)},
        statistics={"t": nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: x, n=5)},
    )
    found = nw.compare(model, nw.Release(t=nw.Laplace(scale=3.0).released(4.0)), draws=500, seed=1)
    assert found.naive is None
    assert "needs the density" in found.reason
    assert list(found.table().columns) == ["exact mean", "exact sd", "exact 2.5%", "exact 97.5%"]
    assert "No naive analysis" in repr(found)
    negative = nw.compare(count_model(), nw.Release(count=nw.Laplace(scale=5.0).released(-1.5)), draws=100, seed=1)
    assert "negative count" in negative.reason


def test_expectations_count_the_weights(plain, weighted):
    assert plain.expect(lambda theta: theta) == pytest.approx(plain["theta"].mean())
    assert weighted.expect(lambda theta: theta) == pytest.approx(weighted.summary().loc["theta", "mean"])
    assert weighted.expect(lambda theta: theta <= 30.0) != pytest.approx((weighted["theta"] <= 30.0).mean(), abs=0.01)
    with pytest.raises(nw.InputError, match="one value per draw"):
        plain.expect(lambda theta: 1.0)
    with pytest.raises(KeyError, match="theta"):
        plain.expect(lambda thta: thta)


# Moments that do not exist ------------------------------------------------------------------------------------------


def clipped_problem(prior):
    """The release only says that the statistic is large: the posterior's tail is the prior's."""
    model = nw.Model(prior={"theta": prior}, statistics={"x": lambda theta: dist.Normal(theta, 1.0)})
    noise = nw.mechanisms.Clipped(nw.Laplace(scale=1.0), low=-5.0, high=5.0)
    return model, nw.Release(x=noise.released(5.0))


def test_a_mean_that_does_not_exist_is_not_printed(seed):
    posterior = nw.sample(*clipped_problem(dist.Cauchy(0.0, 1.0)), nw.Rejection(), draws=4_000, seed=seed)
    table = posterior.summary()
    assert table[["mean", "sd", "mcse"]].isna().all(axis=None)
    assert np.isfinite(table[["2.5%", "97.5%", "median", "ess"]]).all(axis=None)
    assert table["median"]["theta"] == np.median(posterior["theta"])
    assert set(posterior.heavy_tails) == {"theta", "x"}
    assert "No mean, standard deviation or Monte Carlo error is given for theta" in repr(posterior)
    assert "Quantiles exist" in posterior._repr_html_()


@pytest.mark.parametrize("prior", [dist.Normal(0.0, 3.0), dist.StudentT(5.0, 0.0, 1.0)], ids=["normal", "t"])
def test_ordinary_posteriors_keep_their_moments(prior, seed):
    posterior = nw.sample(*clipped_problem(prior), nw.Rejection(), draws=4_000, seed=seed)
    table = posterior.summary()
    assert np.isfinite(table).all(axis=None)
    assert "median" not in table
    assert posterior.heavy_tails == {}
    assert posterior.without_moments == ""
    assert table["mean"]["theta"] == pytest.approx(posterior["theta"].mean())


def test_heavy_weights_are_not_heavy_tails():
    """Weighted draws of a normal law: few are worth much, but the law they stand for has its moments."""
    rng = np.random.default_rng(0)
    draws = 10.0 * rng.standard_cauchy(40_000)
    logs = -0.5 * draws**2 + np.log1p((draws / 10.0) ** 2)
    shared = {"parameters": ("x",), "released": {}, "release_hash": "", "sampler": nw.Importance(), "seed": 0}
    assert nw.Posterior(draws={"x": draws}, log_weights=logs, **shared).heavy_tails == {}
    assert set(nw.Posterior(draws={"x": draws}, log_weights=np.zeros(40_000), **shared).heavy_tails) == {"x"}


def test_notebooks_show_model_release_and_results_as_tables_of_numbers_for_people():
    model = nw.Model(
        prior={"theta": dist.Gamma(25.0, 1.0)},
        statistics={"count": lambda theta: dist.Poisson(theta)},
        derived={"double": lambda theta: 2 * theta},
    )
    release = nw.Release(count=nw.Laplace(epsilon=0.2, sensitivity=1.0).released(37.4))
    shown = model._repr_html_()
    for cell in ("theta", "Gamma", "confidential statistic", "Poisson", "double", "computed"):
        assert f">{cell}</td>" in shown
    assert "37.4" in release._repr_html_()
    assert "Laplace(" in release._repr_html_()
    posterior = nw.sample(model, release, nw.Rejection(), draws=10_000, seed=1)
    assert "10,000" in posterior._repr_html_()
    assert "1e+04" not in posterior._repr_html_()


def test_a_file_is_what_xarray_would_write(weighted, vector, tmp_path):
    """Truth values, whole numbers, labels that are texts, weights: xarray writes its own tree, and reads the same."""
    import xarray as xr

    release = nw.Release(count=nw.Laplace(scale=2.0).released([3.0, 5.0], coords={"place": ["ab", "c\u00f6d"]}))
    model = nw.Model(
        {"rate": dist.Gamma(4.0, 1.0).expand([2])},
        {"count": lambda rate: dist.Poisson(rate)},
        dims={"rate": ("place",), "count": ("place",)},
        derived={"many": lambda count: count > 3},
    )
    labelled = nw.sample(model, release, nw.Rejection(), draws=40, seed=7)
    for posterior in (weighted, vector, labelled):
        posterior.save(tmp_path / "own.nc")
        tree = posterior._tree(posterior.draws, {}, posterior.naming)
        tree.to_netcdf(tmp_path / "xarray.nc", engine="h5netcdf")
        own, other = (xr.load_datatree(tmp_path / name, engine="h5netcdf") for name in ("own.nc", "xarray.nc"))
        for group in ("posterior", "observed_data"):
            own[group].attrs.clear()
            xr.testing.assert_identical(own[group].to_dataset(), other[group].to_dataset())
    assert own["posterior"]["many"].dtype == bool
