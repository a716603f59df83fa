"""Labels of entries: taken with released values, carried to every result, and refused where they do not fit."""

import datetime
import json
import pickle

import jsonschema
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import noisewise as nw
from noisewise.axes import Axes
from noisewise.inference.problem import Problem
from noisewise.likelihood import profile_interval
from noisewise.release.schema import schema
from noisewise.results.fit_file import from_data, to_data
from noisewise.results.labels import label_of, labels_of

COUNTIES = ("Bronx", "Kings", "Île, the")
SEXES = (1, 2)
LAPLACE = nw.Laplace(epsilon=1.0, sensitivity=1.0)
TABLE = np.array([[31.0, 29.5], [12.0, 14.0], [44.0, 40.5]])


def labelled_release():
    return nw.Release(cases=LAPLACE.released(TABLE, coords={"county": COUNTIES, "sex": SEXES}))


def model(**named):
    return nw.Model(
        prior={"rate": dist.Gamma(2.0, 0.1).expand([3]), "ratio": dist.LogNormal(0.0, 0.2).expand([2])},
        statistics={"cases": lambda rate, ratio: dist.Poisson(rate[:, None] * ratio)},
        **named,
    )


@pytest.fixture(scope="module")
def posterior():
    named = model(dims={"rate": ("county",), "ratio": ("sex",)})
    return nw.sample(named, labelled_release(), nw.Importance(), draws=600, seed=1, on_failure="return")


# Taking labels ---------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_labels_come_with_the_value_in_four_ways():
    given = LAPLACE.released(TABLE, coords={"county": COUNTIES, "sex": SEXES})
    assert given.coords == {"county": COUNTIES, "sex": SEXES}
    frame = pd.DataFrame(TABLE, pd.Index(COUNTIES, name="county"), pd.Index(SEXES, name="sex"))
    assert LAPLACE.released(frame.stack()) == given
    assert LAPLACE.released(frame) == given
    assert LAPLACE.released(frame.T).coords == {"sex": SEXES, "county": COUNTIES}
    array = xr.DataArray(TABLE, {"county": list(COUNTIES), "sex": list(SEXES)}, ("county", "sex"))
    assert LAPLACE.released(array) == given
    assert pickle.loads(pickle.dumps(given)) == given
    assert LAPLACE.released(TABLE) != given
    assert LAPLACE.released(TABLE).with_coords({"county": COUNTIES, "sex": SEXES}) == given
    assert LAPLACE.released(TABLE.T, coords={"sex": SEXES, "county": COUNTIES}) != given


def test_a_series_of_several_levels_may_come_in_any_order():
    frame = pd.DataFrame(TABLE, pd.Index(COUNTIES, name="county"), pd.Index(SEXES, name="sex"))
    shuffled = frame.stack().iloc[[5, 0, 3, 1, 2, 4]]
    item = LAPLACE.released(shuffled)
    for county in COUNTIES:
        for sex in SEXES:
            place = item.coords["county"].index(county), item.coords["sex"].index(sex)
            assert item.value[place] == frame.loc[county, sex]


def test_days_are_labels():
    days = pd.date_range("2023-02-06", periods=3, name="day")
    expected = {"day": ("2023-02-06", "2023-02-07", "2023-02-08")}
    assert LAPLACE.released(pd.Series([1.0, 2.0, 3.0], days)).coords == expected
    assert (
        LAPLACE.released([1.0, 2.0, 3.0], {"day": [datetime.date(2023, 2, day) for day in (6, 7, 8)]}).coords
        == expected
    )
    array = xr.DataArray([1.0, 2.0, 3.0], {"day": days}, ("day",))
    assert LAPLACE.released(array).coords == expected


def test_numbers_without_a_name_are_no_labels():
    assert LAPLACE.released(pd.Series([1.0, 2.0])).coords == {}
    with pytest.raises(nw.InputError, match=r"must name the axes of its index.*rename_axis.*reset_index"):
        LAPLACE.released(pd.Series([1.0, 2.0], index=[36005, 36047]))
    twice = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["x", "x"])
    with pytest.raises(nw.InputError, match="differently"):
        LAPLACE.released(pd.Series(range(4), index=twice))


@pytest.mark.parametrize("word", ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "New\u00a0York"])
def test_joiners_and_hard_spaces_belong_into_words(word):
    assert list(LAPLACE.released([1.0, 2.0], {"x": [word, "b"]}).coords["x"]) == [word, "b"]


@pytest.mark.parametrize("labels", [{"a", "b"}, ["a\n", "b"], ["\u202ea", "b"], ["\x1b[1m", "b"]])
def test_labels_without_an_order_or_with_control_characters_are_refused(labels):
    with pytest.raises(nw.InputError, match="must be"):
        LAPLACE.released([1.0, 2.0], {"x": labels})


PAIRS = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["letter", "number"])
REFUSED = {
    "too few": (
        lambda: LAPLACE.released([1.0, 2.0], {"county": ["a"]}),
        r"coords\['county'\].*along 'county', 2.*got 1",
    ),
    "repeated": (lambda: LAPLACE.released([1.0, 2.0], {"county": ["a", "a"]}), r"coords\['county'\].*twice; got 'a'"),
    "missing": (lambda: LAPLACE.released([1.0, 2.0], {"county": ["a", None]}), r"coords\['county'\].*got None"),
    "not a number": (lambda: LAPLACE.released([1.0, 2.0], {"c": ["a", float("nan")]}), r"coords\['c'\].*got nan"),
    "empty": (lambda: LAPLACE.released([1.0, 2.0], {"county": ["a", ""]}), r"coords\['county'\].*got ''"),
    "a line's end": (lambda: LAPLACE.released([1.0, 2.0], {"county": ["a", "b\n"]}), "can be printed"),
    "true": (lambda: LAPLACE.released([1.0, 2.0], {"county": [True, False]}), "got True"),
    "of two kinds": (lambda: LAPLACE.released([1.0, 2.0], {"county": ["1", 2]}), "not both; got 2"),
    "one word": (lambda: LAPLACE.released([1.0, 2.0], {"county": "ab"}), "list of labels"),
    "too few axes": (lambda: LAPLACE.released(TABLE, {"county": COUNTIES}), "each axis of the value, 2"),
    "of a number": (lambda: LAPLACE.released(1.0, {"county": ["a"]}), "single number has none"),
    "no dict": (lambda: LAPLACE.released([1.0], ["a"]), "'coords' must be a dict"),
    "reserved": (lambda: LAPLACE.released([1.0], {"chain": ["a"]}), "reserved"),
    "unnamed": (lambda: LAPLACE.released(pd.Series({"a": 1.0})), "name the axes.*rename_axis"),
    "absent pair": (
        lambda: LAPLACE.released(pd.Series([1.0, 2.0, 3.0], PAIRS)),
        "missing; got {'letter': 'b', 'number': 2}",
    ),
    "double pair": (
        lambda: LAPLACE.released(pd.Series([1.0, 2.0], PAIRS[[0, 0]])),
        "once; got {'letter': 'a', 'number': 1}",
    ),
    "bare axis": (lambda: LAPLACE.released(xr.DataArray([1.0], dims="x")), "labels along each axis; got 'x'"),
    "both": (
        lambda: LAPLACE.released(pd.Series([1.0], pd.Index(["a"], name="x")), {"x": ["a"]}),
        "must be left out",
    ),
    "unnamed frame": (lambda: LAPLACE.released(pd.DataFrame(TABLE, COUNTIES, SEXES)), "must name the axes of its rows"),
    "levels": (
        lambda: LAPLACE.released(pd.DataFrame(TABLE, pd.MultiIndex.from_product([COUNTIES, ["a"]]), SEXES)),
        "one level of rows and one of columns",
    ),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_labels_that_do_not_fit_are_refused(make, message):
    with pytest.raises(nw.InputError, match=message):
        make()


# The release file ------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_labels_are_in_the_file(tmp_path):
    release = labelled_release()
    release.save(tmp_path / "release.json")
    again = nw.Release.load(tmp_path / "release.json")
    assert again == release
    assert again.hash == release.hash
    jsonschema.Draft202012Validator(schema()).validate(release.to_dict())
    assert release.to_dict()["version"] == 2
    plain = nw.Release(cases=LAPLACE.released(TABLE))
    assert plain.to_dict()["version"] == 1, "a file without labels can be read by earlier versions"
    assert plain.hash != release.hash
    turned = LAPLACE.released(np.ones((2, 2)), {"a": SEXES, "b": SEXES})
    other = LAPLACE.released(np.ones((2, 2)), {"b": SEXES, "a": SEXES})
    assert nw.Release(x=turned).hash != nw.Release(x=other).hash
    assert release.naive()["cases"].coords == release["cases"].coords


BAD_AXES = {
    "no list": ({"county": ["a", "b"]}, "statistics.x.axes.*list of axes"),
    "further key": ([{"name": "county", "labels": ["a", "b"], "unit": 1}], "each with name and labels"),
    "repeated": ([{"name": "county", "labels": ["a", "a"]}], r"statistics.x.axes.*'county'.*twice; got 'a'"),
    "short": ([{"name": "county", "labels": ["a"]}], "along 'county', 2"),
    "no words": ([{"name": "county", "labels": [1.5, 2.5]}], "whole numbers or dates; got 1.5"),
    "two of a name": ([{"name": "county", "labels": ["a", "b"]}] * 2, "name of its own"),
}


@pytest.mark.parametrize(("axes", "message"), BAD_AXES.values(), ids=BAD_AXES)
def test_bad_axes_in_a_file_say_where(axes, message):
    entry = {"value": [1.0, 2.0], "mechanism": "Laplace", "scale": 1.0, "axes": axes}
    with pytest.raises(nw.InputError, match=message):
        nw.Release.from_dict({"format": "noisewise-release", "version": 2, "statistics": {"x": entry}})


def test_version_1_has_no_axes():
    entry = {"value": [1.0], "mechanism": "Laplace", "scale": 1.0, "axes": [{"name": "county", "labels": ["a"]}]}
    with pytest.raises(nw.InputError, match="'axes' belongs to version 2"):
        nw.Release.from_dict({"format": "noisewise-release", "version": 1, "statistics": {"x": entry}})


# Model and release together --------------------------------------------------------------------------------------


@pytest.mark.quick
def test_labels_reach_what_names_their_axis():
    axes = Problem(model(dims={"rate": ("county",)}), labelled_release()).axes
    assert dict(axes.dims) == {"rate": ("county",), "cases": ("county", "sex")}
    assert axes.coords == {"county": COUNTIES, "sex": SEXES}
    assert label_of("cases", (1, 0), axes) == "cases[Kings,1]"
    assert label_of("cases", (2, 0), axes) == "cases['Île, the',1]", "a comma inside is not one between"
    assert labels_of("rate", (3,), axes) == ["rate[Bronx]", "rate[Kings]", "rate[Île, the]"]
    assert labels_of("ratio", (2,), axes) == ["ratio[0]", "ratio[1]"], "it names no axis"


def test_axes_that_no_release_has_are_labelled_in_the_model():
    named = model(dims={"ratio": ("sex",)}, coords={"sex": ["f", "m"]})
    axes = Problem(named, nw.Release(cases=LAPLACE.released(TABLE))).axes
    assert labels_of("ratio", (2,), axes) == ["ratio[f]", "ratio[m]"]
    bare = Problem(model(dims={"ratio": ("sex",)}), nw.Release(cases=LAPLACE.released(TABLE))).axes
    assert labels_of("ratio", (2,), bare) == ["ratio[0]", "ratio[1]"]


MISFITS = {
    "unknown name": (lambda: model(dims={"rates": ("county",)}), "'dims'.*got 'rates'.*rate"),
    "too many axes": (lambda: model(dims={"rate": ("county", "sex")}), r"dims\['rate'\].*1 different names"),
    "axis named like a parameter": (lambda: model(dims={"rate": ("ratio",)}), "like a parameter or statistic"),
    "labels of no axis": (lambda: model(coords={"county": COUNTIES}), "'coords' must be of axes.*got 'county'"),
    "two lengths": (
        lambda: model(dims={"rate": ("x",), "ratio": ("x",)}),
        "'ratio' must be as long along 'x' as 'rate'",
    ),
    "other names": (
        lambda: Problem(model(dims={"cases": ("sex", "county")}), labelled_release()),
        r"dims\['cases'\].*\('county', 'sex'\)",
    ),
    "other length": (lambda: Problem(model(dims={"rate": ("sex",)}), labelled_release()), "as long along 'sex'"),
    "other labels": (
        lambda: Problem(model(dims={"ratio": ("sex",)}, coords={"sex": [1, 3]}), labelled_release()),
        r"release\['cases'\].*along 'sex'.*got 2",
    ),
}


@pytest.mark.parametrize(("make", "message"), MISFITS.values(), ids=MISFITS)
def test_axes_that_do_not_agree_are_refused(make, message):
    with pytest.raises(nw.InputError, match=message):
        make()


# Results ---------------------------------------------------------------------------------------------------------


def test_tables_name_entries(posterior):
    index = list(posterior.summary().index)
    assert index[:5] == ["rate[Bronx]", "rate[Kings]", "rate[Île, the]", "ratio[1]", "ratio[2]"]
    assert index[5] == "cases[Bronx,1]"
    assert list(posterior.to_pandas().columns)[:-1] == index
    assert type(posterior["rate"]) is np.ndarray


def test_entries_are_selected_by_label(posterior):
    assert np.array_equal(posterior.select("rate", county="Kings"), posterior["rate"][:, 1])
    assert np.array_equal(posterior.select("cases", sex=2), posterior["cases"][:, :, 1])
    assert np.array_equal(posterior.select("cases", sex=2, county="Bronx"), posterior["cases"][:, 0, 1])
    assert np.array_equal(posterior.select("cases", county=["Kings", "Bronx"], sex=1), posterior["cases"][:, [1, 0], 0])
    with pytest.raises(nw.InputError, match=r"'county' must be a label.*got 'Kinks'\. Did you mean 'Kings'"):
        posterior.select("rate", county="Kinks")
    with pytest.raises(nw.InputError, match="'sex' must be an axis of 'rate'"):
        posterior.select("rate", sex=1)
    with pytest.raises(KeyError, match="rates"):
        posterior.select("rates", county="Kings")


def test_xarray_has_axes_and_labels(posterior, tmp_path):
    posterior.save(tmp_path / "run.nc")
    again = nw.Posterior.load(tmp_path / "run.nc")
    assert again.axes == posterior.axes
    for result in (posterior, again):
        dataset = result.to_xarray()
        assert dataset["cases"].dims == ("chain", "draw", "county", "sex")
        assert dataset["rate"].dims == ("chain", "draw", "county")
        assert tuple(dataset["county"].values) == COUNTIES
        assert tuple(dataset["sex"].values) == SEXES
    tree = posterior.to_arviz()
    assert tree["observed_data"]["cases"].sel(county="Kings", sex=2) == 14.0
    stored = xr.load_datatree(tmp_path / "run.nc", engine="h5netcdf")["posterior"]
    assert list(map(str, stored["county"].values)) == list(COUNTIES)
    chosen = stored["rate"].sel(county="Kings").values.ravel()
    assert np.array_equal(chosen, posterior.select("rate", county="Kings"))


def test_files_without_labels_are_as_before(tmp_path):
    plain = nw.Model({"theta": dist.Gamma(2.0, 1.0)}, {"count": lambda theta: dist.Poisson(theta)})
    posterior = nw.sample(plain, nw.Release(count=LAPLACE.released(2.0)), nw.Rejection(), draws=10, seed=1)
    posterior.save(tmp_path / "run.nc")
    assert "dims" not in xr.load_datatree(tmp_path / "run.nc", engine="h5netcdf").attrs["noisewise"]
    assert nw.Posterior.load(tmp_path / "run.nc").axes == Axes()


def test_labels_do_not_change_a_draw(posterior):
    release = nw.Release(cases=LAPLACE.released(TABLE))
    plain = nw.sample(model(), release, nw.Importance(), draws=600, seed=1, on_failure="return")
    assert np.array_equal(plain["rate"], posterior["rate"])
    assert np.array_equal(plain.log_weights, posterior.log_weights)


def test_a_fit_names_entries():
    named = nw.Model(
        {"rate": dist.Gamma(2.0, 0.1).expand([3])},
        {"cases": lambda rate: dist.Poisson(rate)},
        dims={"rate": ("county",)},
    )
    release = nw.Release(cases=LAPLACE.released(TABLE[:, 0], {"county": COUNTIES}))
    fit = nw.fit(named, release, nw.EM(), start={"rate": TABLE[:, 0]}, seed=1)
    assert list(fit.summary().index) == ["rate[Bronx]", "rate[Kings]", "rate[Île, the]"]
    assert fit.select("rate", county="Kings") == fit.estimate["rate"][1]
    again = from_data(json.loads(json.dumps(to_data(fit), default=np.ndarray.tolist)), fit.estimator, "fit.json")
    assert again.axes == fit.axes
    low, high = profile_interval(named, release, fit, "rate[Île, the]")
    assert low < fit.estimate["rate"][2] < high
