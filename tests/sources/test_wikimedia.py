"""Daily files of page views in their true form: the law of each day, and absence that means something."""

import math

import numpy as np
import pytest
from published_files import write_views

import noisewise as nw
from noisewise.mechanisms import Thresholded

QUAKE, CYCLONE = "2021_Mansfield_earthquake", "Cyclone_Alfred"


def australian(**views):
    """Rows of a day: pages of Australia, and others that must not be taken for them."""
    return [
        ("Austria", "AT", "en.wikipedia", QUAKE, 999),
        ("Australia", "AU", "de.wikipedia", QUAKE, 998),
        ("Australia", "AU", "en.wikipedia", 'A_"quoted"_title', 5_000),
        *(("Australia", "AU", "en.wikipedia", title, count) for title, count in views.items()),
    ]


def read(folder, **changes):
    return nw.sources.wikimedia(folder, **{"pages": "2021 Mansfield earthquake", "country": "Australia"} | changes)


@pytest.mark.quick
def test_a_page_without_a_row_was_withheld(tmp_path):
    write_views(tmp_path, "2021-09-22", australian(**{QUAKE: 7782, CYCLONE: 451}))
    write_views(tmp_path, "2021-09-23", australian(**{QUAKE: 450}))
    write_views(tmp_path, "2021-09-24", australian(**{CYCLONE: 500}))
    days = ["2021-09-22", "2021-09-23", "2021-09-24"]
    law = Thresholded(nw.DiscreteLaplace(scale=30.0), 450)
    release = read(tmp_path)
    expected = law.released([7782, 450, "suppressed"], coords={"day": days})
    assert release["views"] == expected.described("Views a day, historical data set", unit="views")
    assert release.about["source"] == "Wikimedia Foundation"
    assert release.about["licence"].endswith("zero/1.0/")
    two = read(tmp_path, pages=["Cyclone Alfred", QUAKE], country="au")["views"]
    assert list(two.coords) == ["page", "day"]
    assert list(two.coords["page"]) == [CYCLONE, QUAKE]
    assert np.array_equal(two.value, [[451, np.nan, 500], [7782, 450, np.nan]], equal_nan=True)
    part = read(tmp_path, days=["2021-09-24"])["views"]
    assert list(part.coords["day"]) == ["2021-09-24"]


def test_titles_are_found_as_people_spell_them(tmp_path):
    write_views(tmp_path, "2021-09-22", australian(**{QUAKE: 7782, "É_x": 500}))
    for spelt in ("2021 Mansfield earthquake", f" {QUAKE} "):
        assert read(tmp_path, pages=spelt)["views"].value.tolist() == [7782]
    assert read(tmp_path, pages="e\u0301 x")["views"].value.tolist() == [500]
    assert np.isnan(read(tmp_path, pages="Withheld everywhere", unseen=True)["views"].value).all()


def test_other_risks_than_the_lowest_have_a_first_day(tmp_path):
    for day in ("2024-02-14", "2024-02-15"):
        write_views(tmp_path, day, australian(**{QUAKE: 7782}))
    assert read(tmp_path, days=np.array(["2024-02-15"], "M8[D]"), risk="medium")["views"].mechanism.threshold == 550
    with pytest.raises(nw.InputError, match="must be lowest before 2024-02-15"):
        read(tmp_path, risk="medium")


def test_a_file_that_is_named_otherwise_is_not_passed_over(tmp_path):
    write_views(tmp_path, "2021-09-22", australian(**{QUAKE: 7782}))
    (tmp_path / "22-09-2021.tsv").write_text("")
    (tmp_path / "README.md").write_text("")
    with pytest.raises(nw.InputError, match=r"must be named by a day.*22-09-2021"):
        read(tmp_path)


def test_each_day_has_the_noise_of_its_time(tmp_path):
    days = {"2016-05-01": 3_500, "2017-02-08": 4_000, "2017-02-09": 450, "2023-02-05": 451, "2023-02-06": 90}
    for day, views in days.items():
        write_views(tmp_path, day, australian(**{QUAKE: views}), fields=6 if day < "2017-02-09" else 7)
    write_views(tmp_path, "2023-06-19", australian(**{QUAKE: 452}))  # made later in the way of the time before
    release = read(tmp_path)
    laws = {}
    for name, item in release.items():
        noise = item.mechanism.base
        laws[name] = (type(noise), noise.scale, item.mechanism.threshold, item.value.tolist())
    assert laws == {
        "views_pre_2017": (nw.DiscreteLaplace, 300.0, 3500.0, [3_500, 4_000]),
        "views_historical": (nw.DiscreteLaplace, 30.0, 450.0, [450, 451, 452]),
        "views_current": (nw.DiscreteGaussian, math.sqrt(10 / (2 * 0.01505)), 90.0, [90]),
    }
    assert list(release["views_historical"].coords["day"]) == ["2017-02-09", "2023-02-05", "2023-06-19"]
    assert release["views_current"].mechanism.base.scale == pytest.approx(18.227, abs=5e-4)


def test_the_noise_of_countries_at_risk_must_be_said(tmp_path):
    write_views(tmp_path, "2024-03-01", [("Egypt", "EG", "en.wikipedia", QUAKE, 1_200)])
    with pytest.raises(nw.InputError, match="'risk' must be given for this country"):
        read(tmp_path, country="Egypt")
    higher = read(tmp_path, country="Egypt", risk="higher")["views"].mechanism
    assert higher.threshold == 1000
    assert higher.base.scale == pytest.approx(352.5 / 1.96, rel=1e-3)  # the data sets' README states 95% intervals
    medium = read(tmp_path, country="Egypt", risk="medium")["views"].mechanism
    assert medium.threshold == 550
    assert medium.base.scale == pytest.approx(176.5 / 1.96, rel=1e-3)


def test_files_that_say_nothing_of_the_country_are_refused(tmp_path):
    """Then absence does not mean that a page was withheld."""
    write_views(tmp_path, "2024-03-01", [("Austria", "AT", "en.wikipedia", QUAKE, 999)])
    with pytest.raises(nw.InputError, match=r"must have rows in 2024-03-01\.tsv"):
        read(tmp_path)
    write_views(tmp_path, "2023-05-01", [("United States", "US", "en.wikipedia", QUAKE, 999)])
    with pytest.raises(nw.InputError, match="either of two was used for the United States"):
        read(tmp_path, country="US", days=["2023-05-01"])


REFUSED = {
    "day": ({"days": ["2021-09-23"]}, "must be days whose files are there"),
    "no day": ({"days": ["yesterday"]}, "must be days such as"),
    "risk": ({"risk": "low"}, "'risk' must be one of"),
    "pages": ({"pages": []}, "must be a title"),
    "page twice": ({"pages": [QUAKE, "2021 Mansfield earthquake"]}, "must name each page once"),
    "country": ({"country": None}, "'country' must be a word"),
    "folder": ({"folder": "nowhere"}, "must be an existing file or folder"),
    "no path": ({"folder": 3}, "must be a folder, or a list of daily files"),
    "bytes": ({"folder": b"w"}, "must be a folder, or a list of daily files"),
    "numbers": ({"folder": [3]}, "must be a folder, or a list of daily files"),
    "days": ({"days": 3}, "must be a list of days"),
    "no days": ({"days": []}, "must name at least one day"),
    "a title that is nowhere": ({"pages": "2021 Mansfeld earthquake"}, "Check its spelling"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_wrong_requests_are_refused(tmp_path, case):
    write_views(tmp_path, "2021-09-22", australian(**{QUAKE: 7782}))
    changes, words = case
    with pytest.raises(nw.InputError) as caught:
        read(**{"folder": tmp_path} | changes)
    assert words in str(caught.value)


ROW = f"Australia\tAU\ten.wikipedia\t1\t{QUAKE}\tQ1\t"
SPOILT = {
    "fields": ("2021-09-22.tsv", "Australia\tAU\ten.wikipedia\n", "'2021-09-22.tsv, line 1' must have 7 fields a line"),
    "count": ("2021-09-22.tsv", ROW + "many\n", "'2021-09-22.tsv, line 1' must end in a whole number"),
    "twice": ("2021-09-22.tsv", (ROW + "700\n") * 2, "line 2 has it again"),
    "below": ("2021-09-22.tsv", ROW + "449\n", "must be at least 450 on 2021-09-22"),
    "too early": ("2014-01-01.tsv", "", "must be named by a day from 2015-07-01 on"),
    "bytes": ("2021-09-22.tsv.gz", "no", "must be a text file"),
    "impossible": ("2021-02-30.tsv", "", "must be named by a day"),
}


@pytest.mark.parametrize("case", SPOILT.values(), ids=SPOILT)
def test_spoilt_files_are_refused(tmp_path, case):
    name, text, words = case
    (tmp_path / name).write_text(text)
    with pytest.raises(nw.InputError) as caught:
        read([tmp_path / name])
    assert words in str(caught.value)


def test_a_day_has_one_file(tmp_path):
    for folder in ("a", "b"):
        write_views(tmp_path / folder, "2021-09-22", australian(**{QUAKE: 500}))
    with pytest.raises(nw.InputError, match="must have one file a day"):
        read([tmp_path / "a/2021-09-22.tsv", tmp_path / "b/2021-09-22.tsv"])
