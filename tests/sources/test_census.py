"""Noisy measurement files in their true form: every count in its place, and what is not known is refused."""

import math

import numpy as np
import pytest
from published_files import DHC, HOUSEHOLDS, PERSONS, measurement, write_measurements

import noisewise as nw
from noisewise.sources.census_codes import PRODUCTS, STATES

pytest.importorskip("pyarrow")

COUNTIES = ["050100011", "050100031", "150100011"]  # the last of an American Indian area
WHOLE = dict.fromkeys(PERSONS, "detailed")


def person_rows(geocode, seed):
    rng = np.random.default_rng([seed, int(geocode)])
    both = {"hispanic": "hispanic", "cenrace": "cenrace"}
    return [
        measurement(geocode, "total_dpq", {}, (1, 1, 1, 1), rng.integers(50, 9_000), 4.7016274),
        measurement(geocode, "hispanic * cenrace_dpq", both, (1, 1, 2, 63), rng.integers(-30, 400, 126), 524.90312),
        measurement(geocode, "detailed_dpq", WHOLE, (8, 2, 2, 63), rng.integers(-9, 90, 2016), 20.5),
        measurement(
            geocode, "hhinstlevels_dpq", {"hhgq": "hhinstlevels"}, (3, 1, 1, 1), rng.integers(-9, 90, 3), 1469.7
        ),
    ]


def constraints(geocode):
    nursing = {"hhgq": "gqNursingTotal", "votingage": "nonvoting"}
    return [
        measurement(geocode, "nurse_nva_0_con", nursing, (1, 1, 1, 1), [0], 0.0, "="),
        measurement(geocode, "hhgq_total_lb_con", {"hhgq": "hhgq"}, (8, 1, 1, 1), [0, 5, 0, 20, 0, 0, 0, 0], 0.0, ">="),
    ]


@pytest.fixture
def persons(tmp_path, seed):
    """The redistricting file of persons, as it is laid out: counties of two states, and a state."""
    root = tmp_path / "US_Person_PL_PROD"
    for state in ("050", "150", "033"):
        codes = [code for code in [*COUNTIES, "033100011"] if code.startswith(state)]
        rows = [row for code in codes for row in person_rows(code, seed)]
        write_measurements(root / "County.parquet/DPQuery" / f"State={int(state)}" / "part-0.parquet", rows)
    held = [row for code in COUNTIES[:2] for row in constraints(code)]
    write_measurements(root / "County.parquet/Constraint/State=50/part-0.parquet", held, signs=True)
    write_measurements(root / "State.parquet/DPQuery/State=50/part-0.parquet", person_rows("050", seed))
    return root


@pytest.mark.quick
def test_counts_come_with_their_scale_and_their_labels(persons, seed):
    release = nw.sources.census_nmf(persons, level="County", query=["total", "hispanic * cenrace"], state="VT")
    assert list(release) == ["total", "by_hispanic_cenrace"]
    total, cells = release["total"], release["by_hispanic_cenrace"]
    assert list(total.coords) == ["geocode"]
    assert list(total.coords["geocode"]) == COUNTIES
    assert isinstance(total.mechanism, nw.DiscreteGaussian)
    assert total.mechanism.scale == math.sqrt(np.float32(4.7016274))
    assert cells.shape == (3, 2, 63)
    assert list(cells.coords) == ["geocode", "hispanic", "cenrace"]
    for place, code in enumerate(COUNTIES):
        rows = person_rows(code, seed)
        assert total.value[place] == rows[0]["value"][0]
        assert cells.value[place].ravel().tolist() == rows[1]["value"]
    races = cells.coords["cenrace"]
    assert [races[0], races[6], races[20]] == ["white", "white-black", "nhopi-sor"]


def test_states_areas_and_levels_are_kept_apart(persons):
    def areas(path=persons, **wanted):
        release = nw.sources.census_nmf(path, query="total", **wanted)
        return list(release["total"].coords["geocode"])

    assert areas(level="county") == ["033100011", *COUNTIES]
    assert areas(level="County", state=33) == ["033100011"]
    assert areas(level="State", state="50") == ["050"]
    assert areas(level="County", areas="050") == COUNTIES[:2]
    assert areas(level="County", areas=[COUNTIES[1], "033100011"]) == ["033100011", COUNTIES[1]]
    folder = persons / "County.parquet/DPQuery/State=50"
    assert areas(folder, level="County") == COUNTIES[:2]
    assert areas(folder / "part-0.parquet", level="County", areas=COUNTIES[0]) == COUNTIES[:1]


def test_detailed_counts_have_one_axis_for_each_attribute(persons, seed):
    item = nw.sources.census_nmf(persons, level="State", query="detailed")["detailed"]
    assert list(item.coords) == ["geocode", *PERSONS]
    assert item.shape == (1, 8, 2, 2, 63)
    assert item.value.ravel().tolist() == person_rows("050", seed)[2]["value"]
    groups = nw.sources.census_nmf(persons, level="State", query="hhinstlevels")["by_hhinstlevels"]
    assert list(groups.coords["hhgq"]) == ["household", "institutional", "noninstitutional"]


def test_scales_may_differ_between_areas(tmp_path):
    groupings, shape = {"hispanic": "hispanic"}, (1, 1, 2, 1)
    pairs = zip(COUNTIES, (4.0, 9.0, 16.0), strict=True)
    rows = [measurement(code, "hispanic_dpq", groupings, shape, [3, 4], variance) for code, variance in pairs]
    write_measurements(tmp_path / "County.parquet", rows)
    item = nw.sources.census_nmf(tmp_path / "County.parquet", level="County", query="hispanic")["by_hispanic"]
    assert item.mechanism.scale.tolist() == [[2.0], [3.0], [4.0]]
    assert item.mechanism.log_prob(item.value, item.value)[2, 0] == nw.DiscreteGaussian(scale=4.0).log_prob(4, 4)


def test_constraints_that_fix_a_value_are_exact_and_bounds_are_refused(persons):
    item = nw.sources.census_nmf(persons, level="County", query="nurse_nva_0_con")["nurse_nva_0_con"]
    assert item.mechanism == nw.Exact()
    assert item.value.ravel().tolist() == [0, 0]
    with pytest.raises(nw.InputError, match="must not be a bound"):
        nw.sources.census_nmf(persons, level="County", query="hhgq_total_lb_con")


def test_housing_units_and_dhc_persons(tmp_path, seed):
    units = [measurement("050", "detailed_dpq", {"h1": "detailed"}, (2,), [30, 80], 25.0)]
    write_measurements(tmp_path / "US_Unit_PL_PROD/State.parquet/DPQuery/State=50/p.parquet", units, ("h1",))
    item = nw.sources.census_nmf(tmp_path, level="State", query="detailed")["detailed"]
    assert item.mechanism == nw.DiscreteGaussian(scale=5.0)
    assert item.value.tolist() == [[30, 80]]
    assert list(item.coords["h1"]) == ["vacant", "occupied"]
    groupings = {"relgq": "relgq_4_groups", "age": "age_18_64_116"}
    value = np.random.default_rng(seed).integers(0, 9, (4, 1, 3, 1, 1))
    rows = [measurement("050", "age_18_64_116 * relgq_4_groups_dpq", groupings, value.shape, value, 9.0)]
    write_measurements(tmp_path / "dhc/State.parquet/DPQuery/State=050/p.parquet", rows, DHC)
    name = "age_18_64_116*relgq_4_groups"
    item = nw.sources.census_nmf(tmp_path / "dhc", level="State", query=name)["by_age_18_64_116_relgq_4_groups"]
    assert list(item.coords) == ["geocode", "relgq", "age"]  # axes in the order of the counts, not of the name
    assert list(item.coords["age"]) == ["0-17", "18-64", "65-115"]
    assert np.array_equal(item.value[0], value[:, 0, :, 0, 0])


def test_dhc_households_and_units(tmp_path, seed):
    """Households and units are two tables of one file, whose rows leave out each other's attributes."""
    value = np.random.default_rng(seed).integers(-5, 90, (3, 13))
    groupings = {"hhtenshort_3lev": "hhtenshort_3lev", "hhtype_dhch": "family_nonfamily_size"}
    query = "hhtenshort_3lev * family_nonfamily_size"
    rows = [
        measurement("050", f"{query}_dpq", groupings, (1, 1, 1, 1, 1, 3, 13), value, 9.0),
        measurement("050", "tenvacgq_dpq", {"tenvacgq": "tenvacgq"}, (35,), range(35), 4.0),
    ]
    write_measurements(tmp_path / "State.parquet", rows, HOUSEHOLDS)
    release = nw.sources.census_nmf(tmp_path / "State.parquet", level="State", query=[query, "tenvacgq"])
    item = release["by_hhtenshort_3lev_family_nonfamily_size"]
    assert list(item.coords) == ["geocode", "hhtenshort_3lev", "hhtype_dhch"]
    assert np.array_equal(item.value[0], value)
    assert [item.coords["hhtype_dhch"][place] for place in (0, 6, 12)] == [
        *("family of 2", "nonfamily of 1", "nonfamily of 7 or more"),
    ]
    units = release["by_tenvacgq"]
    assert [units.coords["tenvacgq"][place] for place in (2, 4, 11, 34)] == [
        *("rented", "vacant: for rent", "GQ 101", "GQ 997"),
    ]
    assert units.value[0, 34] == 34
    assert release.about["privacy_unit"] == "a housing unit"


def test_a_release_says_where_it_is_from(persons, tmp_path):
    release = nw.sources.census_nmf(persons, level="County", query="total")
    assert release.about["source"] == "U.S. Census Bureau"
    assert release.about["privacy_unit"] == "a person"
    assert "redistricting (PL 94-171), persons" in release.about["title"]
    assert dict(release["total"].about) == {"description": "Query total_dpq", "unit": "persons"}
    release.save(tmp_path / "release.json")
    assert nw.Release.load(tmp_path / "release.json") == release


def test_a_model_takes_the_release_with_its_labels(persons):
    """Statistics and axes have names of their own, or a model could not have both."""
    import numpyro.distributions as dist

    release = nw.sources.census_nmf(persons, level="County", query="hhinstlevels", areas="050")
    model = nw.Model(
        prior={"rate": dist.Gamma(4.0, 0.1).expand([2, 3])},
        statistics={"by_hhinstlevels": lambda rate: dist.Poisson(rate)},
        dims={"rate": ("geocode", "hhgq")},
    )
    posterior = nw.sample(model, release, nw.Importance(), draws=50, seed=1, on_failure="return")
    assert list(posterior.axes.dims["by_hhinstlevels"]) == ["geocode", "hhgq"]
    assert list(posterior.axes.coords["hhgq"]) == ["household", "institutional", "noninstitutional"]


def test_the_code_book_divides_what_it_groups():
    persons, units, dhc, households, kinds, both = PRODUCTS.values()
    assert [len(persons[name]["detailed"]) for name in persons] == [8, 2, 2, 63]
    assert [len(units[name]["detailed"]) for name in units] == [2]
    assert [len(dhc[name]["detailed"]) for name in dhc] == [42, 2, 116, 2, 63]
    assert [len(households[name]["detailed"]) for name in households] == [2, 9, 2, 7, 4, 3, 522]
    assert len(kinds["tenvacgq"]["detailed"]) == 35
    assert both == households | kinds
    lengths = {"multig": 2, "coupled_hh_type": 5, "partner_type_own_child_status": 6, "family_nonfamily_size": 13}
    assert {word: len(households["hhtype_dhch"][word]) for word in lengths} == lengths
    lengths = {"age_18_64_116": 3, "age_10_groups": 10, "age_38_groups": 38, "age_40_groups": 40, "votingage": 2}
    assert {word: len(dhc["age"][word]) for word in lengths} == lengths
    lengths = {"relgq_4_groups": 4, "popSehsdTargetsRelship": 19, "relship_and_eight_level_GQ": 25, "gqlevels": 25}
    assert {word: len(dhc["relgq"][word]) for word in lengths} == lengths
    for axes in PRODUCTS.values():
        assert all(len(set(labels)) == len(labels) for grouping in axes.values() for labels in grouping.values())
    assert (STATES["VT"], STATES["CA"], STATES["PR"], len(STATES)) == (50, 6, 72, 52)
    for word in ("age_10_groups", "age_38_groups", "age_40_groups"):
        ends = [[int(end) for end in label.split("-")] for label in dhc["age"][word]]
        assert [age for end in ends for age in range(end[0], end[-1] + 1)] == list(range(116))


REFUSED = {
    "level": ({"level": "parish"}, "Levels are US, State, County"),
    "level not there": ({"level": "Tract"}, "It has County, State"),
    "query": ({"query": "totals"}, "Did you mean 'total_dpq'?"),
    "no query": ({"query": []}, "must be a name, or a list of names"),
    "state": ({"state": "ZZ"}, "FIPS number or abbreviation"),
    "state without rows": ({"state": "NY"}, "must have been measured"),
    "areas": ({"areas": [5]}, "must be a geocode's beginning"),
    "no areas": ({"areas": 5}, "must be a geocode's beginning"),
    "an area that is not there": ({"areas": [COUNTIES[0], "999999"]}, "must be geocodes of the level County"),
    "a query that is none": ({"query": 5}, "must be a name, or a list of names"),
    "half a state": ({"state": 50.7}, "FIPS number or abbreviation"),
    "another state": ({"state": "NY"}, "Check state and areas"),
    "path": ({"path": "nowhere"}, "must be an existing file or folder"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_is_not_there_is_refused(persons, case):
    changes, words = case
    with pytest.raises(nw.InputError) as caught:
        nw.sources.census_nmf(**{"path": persons, "level": "County", "query": "total"} | changes)
    assert words in str(caught.value)


def good(**changes):
    row = measurement("050", "hispanic_dpq", {"hispanic": "hispanic"}, (1, 1, 2, 1), [3, 4], 4.0)
    return row | changes


SPOILT = {
    "grouping": ([good(groupings={"hispanic": "hispanics"})], {}, "must group by hispanic in a way that is known"),
    "counts": ([good(value=[1, 2, 3])], {}, "must have 2 counts for 'hispanic_dpq' in area 050"),
    "shape": ([good(query_shape=[1, 1, 1, 1])], {}, "as its groupings and its query_shape say"),
    "variance": ([good(variance=0.0)], {}, "'variance' must be positive, for 'hispanic_dpq' in area 050"),
    "no variance": ([good(variance=None)], {}, "'variance' must be positive"),
    "twice": ([good(), good()], {}, "must measure 'hispanic_dpq' once in each area"),
    "product": ([good()], {"attributes": ("hispanic", "hhtype")}, "must be of a product whose attributes are known"),
    "constraint": (
        [good(), good(geocode="033", variance=0.0, sign="=")],
        {"signs": True},
        "either noisy or a constraint in all of them",
    ),
    "another level": ([good(geocode="050100011")], {}, "must be a geocode of the level State"),
    "no geocode": ([good(geocode=None)], {}, "must be a geocode of the level State"),
    "unlike": ([good(), good(geocode="033", groupings={}, query_shape=[1], value=[4])], {}, "grouped alike"),
}


@pytest.mark.parametrize("case", SPOILT.values(), ids=SPOILT)
def test_spoilt_files_are_refused(tmp_path, case):
    rows, how, words = case
    write_measurements(tmp_path / "State.parquet", rows, **how)
    with pytest.raises(nw.InputError) as caught:
        nw.sources.census_nmf(tmp_path / "State.parquet", level="State", query="hispanic")
    assert words in str(caught.value)


def test_other_files_are_refused(tmp_path):
    import pandas as pd

    pd.DataFrame({"geocode": ["1"], "n": [2]}).to_parquet(tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text("no")
    for name, words in (("other.parquet", "must have the columns"), ("text.parquet", "must hold Parquet files")):
        with pytest.raises(nw.InputError, match=words):
            nw.sources.census_nmf(tmp_path / name, level="State", query="total")
    for product in ("US_Person_PL_PROD", "PR_Person_PL_PROD"):
        write_measurements(tmp_path / "both" / product / "State.parquet", [good()])
    with pytest.raises(nw.InputError, match="must be the folder of one product"):
        nw.sources.census_nmf(tmp_path / "both", level="State", query="hispanic")
