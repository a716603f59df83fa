"""Releases from tables: every column reaches its place, withheld rows stay, and what is wrong is named."""

import math

import numpy as np
import pandas as pd
import pytest

import noisewise as nw
from noisewise.mechanisms import Clipped, Thresholded

COUNTIES = {"county": ["01001", "01003", "NA"], "count": [31, -4, 12], "sigma": [3.0, 10.0, 7.5], "shares": [1, 2, 4]}
FRAME = pd.DataFrame(COUNTIES)


def read(table=FRAME, **changes):
    return nw.Release.from_table(
        table, **{"value": "count", "mechanism": "DiscreteGaussian", "index": "county", "scale": "sigma"} | changes
    )


def files(folder):
    FRAME.to_csv(folder / "t.csv", index=False)
    FRAME.to_csv(folder / "t.tsv.gz", index=False, sep="\t")
    FRAME.to_parquet(folder / "t.parquet")
    return [folder / "t.csv", str(folder / "t.tsv.gz"), folder / "t.parquet"]


@pytest.mark.quick
def test_frames_dicts_and_files_give_the_same_release(tmp_path):
    polars = pytest.importorskip("polars")
    direct = nw.DiscreteGaussian(scale=COUNTIES["sigma"]).released(
        COUNTIES["count"], coords={"county": COUNTIES["county"]}
    )
    for table in (FRAME, COUNTIES, polars.DataFrame(COUNTIES), FRAME.convert_dtypes(), *files(tmp_path)):
        release = read(table)
        assert list(release) == ["count"]
        assert release["count"] == direct
        assert list(release["count"].coords["county"]) == ["01001", "01003", "NA"]


def test_a_file_gives_numbers_bit_by_bit(tmp_path):
    frame = pd.DataFrame({"x": [0.1 + 0.2, 1 / 3, 1e-300 * np.pi], "s": [1 / 7, 2.0, 3.3]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    item = nw.Release.from_table(tmp_path / "t.csv", value="x", mechanism="Laplace", scale="s")["x"]
    assert np.array_equal(item.value, frame["x"])
    assert np.array_equal(item.mechanism.scale, frame["s"])


def variance_of(mechanism):
    z = np.arange(-3_000, 3_001)
    chance = np.exp(mechanism.log_prob(z, np.zeros_like(z)))
    return (chance * z**2).sum() / chance.sum()


def test_the_noise_is_what_the_columns_state():
    rows = {"n": [1, 2], "v": [18.0, 2.0], "e": [0.1, 0.5]}
    told = {"table": rows, "value": "n"}

    def scale(mechanism, **noise):
        return nw.Release.from_table(**told, mechanism=mechanism, **noise)["n"].mechanism.scale

    assert np.allclose(scale("Laplace", variance="v"), [3.0, 1.0], rtol=1e-15)
    assert np.allclose(scale(nw.Gaussian, variance="v") ** 2, [18.0, 2.0], rtol=1e-15)
    assert np.allclose(scale("Laplace", epsilon="e", sensitivity=2.0), [20.0, 4.0], rtol=1e-15)
    assert np.allclose(scale("DiscreteGaussian", rho="e", sensitivity=1), [1 / math.sqrt(0.2), 1.0], rtol=1e-15)
    for variance, size in zip([18.0, 2.0], scale("DiscreteLaplace", variance="v"), strict=True):
        assert variance_of(nw.DiscreteLaplace(scale=size)) == pytest.approx(variance, rel=1e-12)
    assert variance_of(nw.DiscreteGaussian(scale=math.sqrt(18.0))) == pytest.approx(18.0, rel=1e-12)
    budget = nw.Release.from_table(**told, mechanism="DiscreteLaplace", epsilon=0.5, sensitivity=1)
    assert budget.guarantee.epsilon == 0.5
    whole = Clipped(nw.DiscreteLaplace(scale=2.0), low=0)
    assert nw.Release.from_table(**told, mechanism=whole)["n"] == whole.released([1, 2])


def test_a_column_of_one_number_is_that_number():
    assert read(FRAME.assign(sigma=3.0))["count"].mechanism.scale == 3.0


VIEWS = pd.DataFrame({"day": ["2021-09-23", "2021-09-22"], "views": [1661, 7782]})
DAYS = pd.date_range("2021-09-22", periods=4)


def read_views(**changes):
    settings = {"value": "views", "mechanism": "DiscreteLaplace", "scale": 30, "index": "day", "threshold": 450}
    return nw.Release.from_table(VIEWS, **settings | {"expected": DAYS} | changes)


@pytest.mark.quick
def test_rows_that_are_expected_and_absent_are_withheld():
    item = read_views()["views"]
    law = Thresholded(nw.DiscreteLaplace(scale=30.0), 450)
    days = [day.date().isoformat() for day in DAYS]
    assert item == law.released([7782, 1661, "suppressed", "suppressed"], coords={"day": days})
    assert list(item.coords["day"]) == days
    assert read_views(expected=days) == read_views(expected=[day.date() for day in DAYS]) == read_views()


def test_without_expected_absence_means_nothing():
    item = read_views(expected=None)["views"]
    assert list(item.coords["day"]) == ["2021-09-23", "2021-09-22"]
    assert np.array_equal(item.value, [1661, 7782])


def test_the_word_suppressed_is_a_withheld_value_where_there_is_a_threshold(tmp_path):
    frame = pd.DataFrame({"day": ["a", "b"], "views": [500, "suppressed"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    settings = {"value": "views", "mechanism": "DiscreteLaplace", "scale": 30.0, "index": "day"}
    for table in (frame, tmp_path / "t.csv"):
        item = nw.Release.from_table(table, threshold=450, **settings)["views"]
        assert np.array_equal(item.value, [500, np.nan], equal_nan=True)
    with pytest.raises(nw.InputError, match="'views' in row 1 must be a finite number; got 'suppressed'"):
        nw.Release.from_table(frame, **settings)


def test_thresholds_may_be_a_column():
    table = {"n": [5, 9], "least": [5, 8]}
    item = nw.Release.from_table(table, value="n", mechanism="Laplace", scale=1.0, threshold="least")["n"]
    assert np.array_equal(item.mechanism.threshold, [5, 8])


def test_several_index_columns_are_several_axes():
    grid = pd.DataFrame(
        [(a, b, 10 * i + j) for j, b in enumerate("xyz") for i, a in enumerate("pq")], columns=list("abn")
    )
    settings = {"value": "n", "mechanism": "Gaussian", "index": ["a", "b"], "scale": "s"}
    shuffled = grid.assign(s=grid["n"] + 1.0).sample(frac=1.0, random_state=1).sort_values(["b"], kind="stable")
    item = nw.Release.from_table(shuffled, **settings)["n"]
    for (i, a), (j, b) in [
        ((i, a), (j, b)) for i, a in enumerate(item.coords["a"]) for j, b in enumerate(item.coords["b"])
    ]:
        expected = 10 * "pq".index(a) + "xyz".index(b)
        assert item.value[i, j] == expected
        assert item.mechanism.scale[i, j] == expected + 1.0
    part = nw.Release.from_table(
        grid[grid["n"] >= 10],
        **settings | {"scale": 2.0, "threshold": 10.0, "expected": {"a": ["p", "q"], "b": ["x", "y", "z"]}},
    )["n"]
    assert np.array_equal(part.value, [[np.nan] * 3, [10, 11, 12]], equal_nan=True)


def test_statistics_by_a_column_have_their_own_rows():
    table = {"query": ["men", "women", "men"], "area": ["a", "a", "b"], "n": [1, 2, 3], "s": [1.0, 2.0, 4.0]}
    release = nw.Release.from_table(
        table, value="n", mechanism="DiscreteGaussian", index="area", scale="s", statistic="query"
    )
    assert list(release) == ["men", "women"]
    assert release["men"] == nw.DiscreteGaussian(scale=[1.0, 4.0]).released([1, 3], coords={"area": ["a", "b"]})
    assert release["women"] == nw.DiscreteGaussian(scale=2.0).released([2], coords={"area": ["a"]})


MALFORMED = {
    "a negative scale": (FRAME.assign(sigma=[1.0, -2.0, 1.0]), {}, "'sigma' in row 1 must be positive; got -2.0"),
    "a scale that is not there": (FRAME.assign(sigma=[1.0, 2.0, None]), {}, "'sigma' in row 2 must be a finite number"),
    "no value": (FRAME.assign(count=[1, np.nan, 2]), {}, "'count' in row 1 must be a finite number; got nan"),
    "text": (FRAME.assign(count=[1, "twelve", 2]), {}, "'count' in row 1 must be a finite number; got 'twelve'"),
    "not whole": (FRAME.assign(count=[1, 2, 2.5]), {}, "'count' in row 2 must be a whole number; got 2.5"),
    "a label twice": (FRAME.assign(county=["a", "b", "a"]), {}, "'county' in row 2 must not repeat the labels"),
    "no label": (FRAME.assign(county=["a", None, "c"]), {}, "'county' in row 1 must not be empty"),
    "no such column": (FRAME, {"scale": "sigmas"}, "Did you mean 'sigma'?"),
    "no rows": (FRAME[:0], {}, "must have at least one row"),
    "below the threshold": (FRAME, {"threshold": 0}, "'count' in row 1 must not be below the threshold; got -4"),
    "an unexpected label": (FRAME, {"threshold": -9, "expected": ["01001", "NA"]}, "'county' in row 1 must be one of"),
    "absent without a threshold": (FRAME, {"expected": [*COUNTIES["county"], "x"]}, "without a threshold"),
    "noise of absent rows": (
        FRAME,
        {"threshold": -9, "expected": [*COUNTIES["county"], "x"]},
        "since theirs is unknown",
    ),
    "an incomplete grid": (FRAME, {"index": ["county", "shares"]}, "must have a row for each of the 9 combinations"),
    "no noise": (FRAME, {"scale": None}, "must come with one size of its noise"),
    "two sizes": (FRAME, {"variance": 2.0}, "must come with one size of its noise"),
    "a budget without sensitivity": (FRAME, {"scale": None, "rho": 0.1}, "'sensitivity' must come with a budget"),
    "a budget of another law": (
        FRAME,
        {"scale": None, "epsilon": 1, "sensitivity": 1},
        "give scale or variance or rho",
    ),
    "an unknown law": (FRAME, {"mechanism": "Laplase"}, "Did you mean 'Laplace'?"),
    "an unknown argument": (FRAME, {"sigma": 3.0}, "'sigma' is not an argument"),
    "a name that is none": (FRAME.rename(columns={"count": "the count"}), {"value": "the count"}, "Python arguments"),
    "not a table": (7, {}, "'table' must be a table"),
    "NA": (FRAME.assign(count=pd.array([1, None, 2], "Int64")), {"threshold": -9}, "'count' in row 1 must be a finite"),
    "a time": (
        FRAME.assign(sigma=pd.to_timedelta([1, 2, 3], "s")),
        {},
        "'sigma' in row 0 must be a number, not a time",
    ),
    "thousands": (FRAME.assign(count=["1", "1,204", "2"]), {}, "Write it without separators of thousands."),
    "underscores": (FRAME.assign(count=["1", "1_000", "2"]), {}, "'count' in row 1 must be a finite number"),
    "labels that are fractions": (FRAME.assign(county=[1.0, 2.0, 3.0]), {}, "'county' in row 0 must be a word"),
    "a date and then a list": (
        FRAME.assign(county=[pd.Timestamp("2020-01-01"), "b", ("c",)]),
        {},
        "'county' in row 2 must be a word, a whole number or a date",
    ),
    "an index that is none": (FRAME, {"index": 5}, "must be names of columns"),
    "expected without an order": (FRAME, {"threshold": -9, "expected": {"a"}}, "must be lists of labels"),
    "expected twice": (FRAME, {"threshold": -9, "expected": ["a"] * 50_000}, "must not hold a label twice; got 'a'"),
    "noise by place": (FRAME, {"scale": None, "mechanism": nw.Laplace(scale=[1.0, 2.0, 3.0])}, "one number for each"),
    "below its own threshold": (
        FRAME,
        {"scale": None, "mechanism": nw.mechanisms.Thresholded(nw.DiscreteGaussian(scale=2.0), 0)},
        "'count' in row 1 must not be below the threshold; got -4",
    ),
    "another file": ("table.xlsx", {}, "must end in .csv"),
    "no file": ("table.csv", {}, "must be an existing file"),
}


SPOILT = {
    "more fields than the header": "c,v\na,1,5\nb,2,6\n",
    "one line that is longer": "c,v\na,1\nb,2,3\n",
    "two columns of one name": "c,v,v\na,1,5\nb,2,6\n",
}


@pytest.mark.parametrize("text", SPOILT.values(), ids=SPOILT)
def test_files_whose_columns_could_be_mistaken_are_refused(text, tmp_path):
    file = tmp_path / "table.CSV"
    file.write_text(text)
    with pytest.raises(nw.InputError, match="table"):
        nw.Release.from_table(file, value="v", index="c", mechanism="Laplace", scale=1.0)


@pytest.mark.parametrize("cut", [20, 40])
def test_a_packed_file_that_is_cut_short_is_refused(cut, tmp_path):
    import gzip

    file = tmp_path / "table.csv.gz"
    file.write_bytes(gzip.compress(b"c,v\n" + b"a,1\n" * 5_000)[:cut])
    with pytest.raises(nw.InputError, match="cannot be read"):
        nw.Release.from_table(file, value="v", index="c", mechanism="Laplace", scale=1.0)


NOISE = {"mechanism": "DiscreteLaplace", "scale": 2.0, "threshold": 5.0}


def test_all_of_a_statistic_may_have_been_withheld():
    table = pd.DataFrame({"q": ["men", "men"], "c": ["a", "b"], "v": [7, 9]})
    expected = {"c": ["a", "b"], "q": ["men", "women"]}
    release = nw.Release.from_table(table, value="v", index="c", statistic="q", expected=expected, **NOISE)
    assert list(release) == ["men", "women"]
    assert np.isnan(release["women"].value).all()
    expected["q"] = ["women"]
    with pytest.raises(nw.InputError, match="'q' in row 0 must be one of the expected statistics"):
        nw.Release.from_table(table, value="v", index="c", statistic="q", expected=expected, **NOISE)
    silence = nw.Release.from_table(table[:0], value="v", index="c", expected=["a", "b"], **NOISE)
    assert np.isnan(silence["v"].value).all()


def test_a_column_of_budgets_is_no_guarantee_of_the_table():
    table = pd.DataFrame({"c": ["a", "b"], "v": [7.0, 9.0], "e": [1.0, 1.0]})
    how = {"value": "v", "index": "c", "mechanism": "Laplace", "sensitivity": 2.0}
    column = nw.Release.from_table(table, epsilon="e", **how)
    number = nw.Release.from_table(table, epsilon=1.0, **how)
    assert number.guarantee.epsilon == 1.0
    assert column["v"].mechanism == nw.Laplace(scale=2.0)
    assert column["v"].mechanism.guarantee is None


def test_times_have_one_spelling_everywhere():
    times = pd.to_datetime(["2020-01-01T00:00", "2020-01-01T01:00"])
    table = pd.DataFrame({"t": times, "v": [7.0, 9.0]})
    read = nw.Release.from_table(table, value="v", index="t", mechanism="Laplace", scale=1.0)["v"]
    assert read == nw.Laplace(scale=1.0).released(table.set_index("t")["v"])
    objects = table.assign(t=table["t"].astype(object))
    assert nw.Release.from_table(objects, value="v", index="t", mechanism="Laplace", scale=1.0)["v"] == read
    whole = nw.Release.from_table(
        objects[:1],
        value="v",
        index="t",
        mechanism="Laplace",
        scale=1.0,
        expected=pd.date_range("2020-01-01", periods=1),
    )
    assert list(whole["v"].coords["t"]) == ["2020-01-01"]


@pytest.mark.parametrize("case", MALFORMED.values(), ids=MALFORMED)
def test_what_is_wrong_is_named(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table, changes, words = case
    with pytest.raises(nw.InputError) as caught:
        read(table, **changes)
    assert words in str(caught.value)


def test_a_parquet_file_without_its_package_names_the_extra(tmp_path, monkeypatch):
    import sys

    [*_, file] = files(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(nw.InputError, match=r"noisewise\[parquet\]"):
        read(file)


@pytest.mark.alone
@pytest.mark.parametrize("rows", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_million_rows_in_seconds_and_little_memory(rows, tmp_path):
    """In a process of its own, so that its memory is its own; each row has its own noise."""
    import subprocess
    import sys

    script = """
import resource, sys, time
import numpy as np, pandas as pd
import noisewise as nw
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
settings = {"value": "n", "mechanism": "DiscreteGaussian", "index": "area", "variance": "v", "threshold": -50}
release = nw.Release.from_table(sys.argv[1], **settings)
read = time.perf_counter() - start
release.save(sys.argv[2])
again = nw.Release.load(sys.argv[2])
both = time.perf_counter() - start
assert np.array_equal(again["n"].value, release["n"].value)
assert np.array_equal(again["n"].mechanism.base.scale, release["n"].mechanism.base.scale)
assert again["n"].coords == release["n"].coords
print(read, both, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"area": [f"{i:012d}" for i in range(rows)], "n": rng.integers(-50, 500, rows)})
    frame.assign(v=rng.uniform(1.0, 9.0, rows)).to_csv(tmp_path / "t.csv", index=False)
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "t.csv", tmp_path / "t.json"],
        capture_output=True,
        text=True,
        check=True,
    )
    read_in, saved_and_loaded, gigabytes = map(float, done.stdout.split())
    assert read_in < 10.0 * rows / 1_000_000
    assert saved_and_loaded < 30.0 * rows / 1_000_000
    assert gigabytes < 1.0


LONG = 5_000


def long_release(seed):
    rng = np.random.default_rng(seed)
    scale = rng.uniform(1.0, 9.0, LONG)
    noisy = np.where(rng.random(LONG) < 0.5, np.nan, rng.normal(100.0, 9.0, LONG) + 60.0)
    return nw.Release(
        counts=nw.DiscreteGaussian(scale=scale).released(rng.integers(-(2**53), 2**53, LONG)),
        withheld=Thresholded(nw.Laplace(scale=scale), 10.0).released(noisy, coords={"area": np.arange(LONG)}),
        table=nw.Gaussian(scale=3.0).released(rng.normal(size=(100, LONG // 100))),
    )


def test_long_arrays_are_packed_in_the_file_and_come_back_bit_by_bit(tmp_path, seed):
    import jsonschema

    from noisewise.release.schema import schema

    release = long_release(seed)
    release.save(tmp_path / "long.json")
    content = release.to_dict()
    assert content["version"] == 2
    assert content["statistics"]["counts"]["scale"]["shape"] == [LONG]
    assert isinstance(content["statistics"]["table"]["scale"], float)
    jsonschema.Draft202012Validator(schema()).validate(
        content | {"statistics": {name: content["statistics"][name] for name in ("counts", "table")}}
    )
    again = nw.Release.load(tmp_path / "long.json")
    assert again == release
    assert again.hash == release.hash
    for name, item in release.items():
        assert again[name].value.tobytes() == item.value.tobytes()
        assert again[name].value.dtype == item.value.dtype
    assert len(repr(release)) < 5_000


SPOILT = {
    "kind": ({"packed": "float32"}, "must have packed (float64 or int64)"),
    "shape": ({"shape": [0]}, "'shape' must be a list of positive whole numbers"),
    "length": ({"shape": [LONG - 1]}, "bytes, eight for each number"),
    "base64": ({"data": "***"}, "must be base64"),
    "more": ({"more": 1}, "must have packed"),
}


@pytest.mark.parametrize("case", SPOILT.values(), ids=SPOILT)
def test_spoilt_packed_arrays_are_refused_with_their_place(case, seed):
    changes, words = case
    content = long_release(seed).to_dict()
    entry = content["statistics"]["counts"]
    with pytest.raises(nw.InputError) as caught:
        nw.Release.from_dict(content | {"statistics": {"counts": entry | {"value": entry["value"] | changes}}})
    assert words in str(caught.value)
    assert "statistics.counts.value" in str(caught.value)


def test_packed_arrays_belong_to_version_2(seed):
    content = long_release(seed).to_dict()
    entry = content["statistics"]["counts"]
    with pytest.raises(nw.InputError, match="belongs to version 2"):
        nw.Release.from_dict(content | {"version": 1, "statistics": {"counts": entry}})
