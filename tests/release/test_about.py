"""What a release says about itself: kept in the file, checked, and never needed by a law."""

import datetime
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import noisewise as nw
from noisewise.mechanisms import CATALOGUE
from noisewise.release.entries import SINCE_2
from noisewise.release.schema import schema

LAPLACE = nw.Laplace(epsilon=0.5, sensitivity=1.0).under("add-remove")
VERSION_1 = Path(__file__).with_name("version_1.json")


def described():
    smokers = LAPLACE.released([31.0, 12.0], coords={"county": ["Bronx", "Kings"]}).described(
        "Adults who smoke", unit="persons", bounds=(0, 1), records=4312, extra={"question": {"number": 7}}
    )
    return nw.Release(smokers=smokers).described(
        "Health survey 2025",
        description="Counts of smokers.",
        source="Office of Statistics",
        date=datetime.date(2026, 3, 1),
        licence="CC-BY-4.0",
        contact="statistics@example.org",
        privacy_unit="a person",
        extra={"doi": "10.1/2", "pages": [1, 2.5, None]},
    )


@pytest.mark.quick
def test_a_description_is_kept_in_the_file(tmp_path):
    release = described()
    release.save(tmp_path / "release.json")
    again = nw.Release.load(tmp_path / "release.json")
    assert again == release
    assert again.hash == release.hash
    assert again.about["date"] == "2026-03-01"
    assert again.about["extra"] == {"doi": "10.1/2", "pages": [1, 2.5, None]}
    assert again["smokers"].about["bounds"] == (0.0, 1.0)
    assert again["smokers"].about["extra"] == {"question": {"number": 7}}
    content = json.loads((tmp_path / "release.json").read_text())
    assert content["version"] == 2
    validator = jsonschema.Draft202012Validator(schema(), format_checker=jsonschema.FormatChecker())
    validator.validate(content)


def test_what_is_said_twice_is_said_anew_and_the_rest_stays():
    release = described().described(contact="new@example.org")
    assert release.about["contact"] == "new@example.org"
    assert release.about["title"] == "Health survey 2025"
    item = release["smokers"].described(unit="thousands")
    assert item.about["unit"] == "thousands"
    assert item.about["records"] == 4312
    assert item.coords == release["smokers"].coords
    with pytest.raises(TypeError, match="cannot be changed"):
        release.about["title"] = "other"


def test_every_way_of_making_another_keeps_the_description():
    release = nw.Release({**described(), "others": LAPLACE.released(3.0)}).described("Title")
    assert release.with_disjoint(["smokers"], ["others"]).about == {"title": "Title"}
    assert release.select("smokers").about == {"title": "Title"}
    assert release.naive()["smokers"].about["unit"] == "persons"


@pytest.mark.quick
def test_version_1_is_still_read(tmp_path):
    release = nw.Release.load(VERSION_1)
    assert release["north"].value.tolist() == [12, -1]
    assert np.isnan(release["south"].value[1])
    assert release.guarantee.epsilon == 1.0
    assert release.about == {}
    assert release["north"].about == {}
    release.save(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(VERSION_1.read_text())
    jsonschema.Draft202012Validator(schema()).validate(json.loads(VERSION_1.read_text()))


def test_no_mechanism_has_an_argument_of_that_name():
    for kind in CATALOGUE.values():
        assert not (SINCE_2 | {"value"}) & set(kind.arguments), kind


REFUSED = {
    "words": (lambda: LAPLACE.released(1.0).described(""), "'description' must be words"),
    "unit": (lambda: LAPLACE.released(1.0).described(unit=3), "'unit' must be words; got 3"),
    "bounds": (lambda: LAPLACE.released(1.0).described(bounds=(1, 0)), "the first below the second"),
    "one bound": (lambda: LAPLACE.released(1.0).described(bounds=3), "two numbers"),
    "records": (lambda: LAPLACE.released(1.0).described(records=0), "'records' must be a whole number"),
    "extra": (lambda: LAPLACE.released(1.0).described(extra={"x": object()}), "must hold what JSON can"),
    "not finite": (lambda: LAPLACE.released(1.0).described(extra={"x": float("nan")}), "must hold what JSON can"),
    "no dict": (lambda: LAPLACE.released(1.0).described(extra=[1]), "'extra' must be a dict"),
    "date": (lambda: described().described(date="1 March 2026"), "'date' must be a day as YYYY-MM-DD"),
    "no such day": (lambda: described().described(date="2026-02-30"), "'date' must be a day"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_what_says_nothing_is_refused(make, message):
    with pytest.raises(nw.InputError, match=message):
        make()


def altered(change):
    content = json.loads(json.dumps(described().to_dict()))
    change(content)
    return content


BAD_FILES = {
    "unknown field of the release": (lambda c: c.update(author="me"), "'author' is not a field of a release"),
    "unknown field of its description": (
        lambda c: c["about"].update(license="CC0"),
        "about: 'license' is not a field.*Did you mean 'licence'.*extra",
    ),
    "unknown field of a statistic": (
        lambda c: c["statistics"]["smokers"].update(note="x"),
        "'note' is not an argument of Laplace",
    ),
    "unknown field of its description too": (
        lambda c: c["statistics"]["smokers"]["about"].update(note="x"),
        "statistics.smokers.about: 'note' is not a field",
    ),
    "no object": (lambda c: c.update(about="x"), "'about' must be an object"),
    "no object of a statistic": (lambda c: c["statistics"]["smokers"].update(about=[]), "'about' must be an object"),
    "version 1": (
        lambda c: (c.update(version=1), c["statistics"]["smokers"].pop("axes")),
        "'about' belongs to version 2",
    ),
}


@pytest.mark.parametrize(("change", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_unknown_fields_are_refused_by_name(change, message):
    with pytest.raises(nw.InputError, match=message):
        nw.Release.from_dict(altered(change), "release.json")
