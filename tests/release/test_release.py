"""Release files: exact round trips, one schema, and refusals that say where."""

import json

import jsonschema
import numpy as np
import pytest

import noisewise as nw
from noisewise.release.schema import schema

EVERYTHING = {
    "count": nw.Laplace(epsilon=0.2, sensitivity=1.0).released(37.4),
    "table": nw.DiscreteGaussian(rho=0.1, sensitivity=1.0).released([[3, -1], [2**53, 0]]),
    "mean": nw.Gaussian(epsilon=1.0, delta=1e-6, sensitivity=0.3).released(0.1 + 0.2),
    "cells": nw.DiscreteLaplace(scale=[1 / 3, 2.0]).released([4, 5]),
    "spread": nw.Gaussian(mu=1.0, sensitivity=1 / 3).released(np.pi * 1e-300),
    "plain": nw.Exact().released([1e308, -0.1]),
    "zcdp": nw.Gaussian(rho=0.5, sensitivity=2.0).released(-1e-5),
}


@pytest.mark.quick
def test_round_trip_is_exact(tmp_path):
    release = nw.Release(EVERYTHING)
    path = tmp_path / "release.json"
    release.save(path)
    again = nw.Release.load(path)
    assert again == release
    assert again.hash == release.hash
    for name, item in release.items():
        assert np.array_equal(np.asarray(again[name].value), np.asarray(item.value))
        assert np.asarray(again[name].value).dtype == np.asarray(item.value).dtype
        assert again[name].mechanism.guarantee == item.mechanism.guarantee
        for field in item.mechanism.fields:
            assert np.array_equal(getattr(again[name].mechanism, field), getattr(item.mechanism, field))


@pytest.mark.quick
def test_files_follow_the_published_schema():
    validator = jsonschema.Draft202012Validator(schema())
    validator.check_schema(schema())
    validator.validate(nw.Release(EVERYTHING).to_dict())
    budget = {"value": 37.4, "mechanism": "Laplace", "epsilon": 0.2, "sensitivity": 1}
    by_hand = {"format": "noisewise-release", "version": 1, "statistics": {"count": budget}}
    validator.validate(by_hand)
    assert nw.Release.from_dict(by_hand)["count"] == EVERYTHING["count"].mechanism.released(37.4)


def test_nothing_else_gets_into_the_file():
    """Only the schema's keys: sampling with confidential values leaves no trace in a mechanism."""
    mechanism = nw.Laplace(scale=2.0)
    secret = 123456.789
    value = mechanism.sample(np.random.default_rng(1), secret)
    text = json.dumps(nw.Release(count=mechanism.released(value)).to_dict())
    assert "123456" not in text.replace(repr(float(value)), "")
    assert set(json.loads(text)["statistics"]["count"]) == {"value", "mechanism", "scale"}
    with pytest.raises(AttributeError):
        mechanism.confidential = secret


def test_a_release_reads_like_a_dict():
    release = nw.Release(EVERYTHING)
    assert list(release) == list(EVERYTHING)
    assert len(release) == len(EVERYTHING)
    assert release["count"].value == 37.4
    assert release["table"].shape == (2, 2)
    assert "Laplace(scale=5.0)" in repr(release)
    assert nw.Release(count=EVERYTHING["count"]) == nw.Release({"count": EVERYTHING["count"]})
    assert hash(release) == hash(nw.Release(EVERYTHING))


def test_naive_keeps_the_values_and_drops_the_noise():
    naive = nw.Release(EVERYTHING).naive()
    assert all(type(item.mechanism) is nw.Exact for item in naive.values())
    assert all(np.array_equal(naive[name].value, EVERYTHING[name].value) for name in EVERYTHING)


def entry(**changes):
    good = {"value": 37.4, "mechanism": "Laplace", "scale": 5.0} | changes
    return {name: value for name, value in good.items() if value is not ...}


BAD_ENTRIES = {
    "unknown mechanism": (entry(mechanism="Laplas"), r"statistics\.count.*Did you mean 'Laplace'"),
    "mechanism not text": (entry(mechanism=3), r"statistics\.count.*known mechanism"),
    "missing value": (entry(value=...), r"statistics\.count: 'value' is missing"),
    "missing mechanism": (entry(mechanism=...), r"statistics\.count: 'mechanism' is missing"),
    "missing scale": (entry(scale=...), r"statistics\.count: Laplace: 'scale' must be given"),
    "negative scale": (entry(scale=-1.0), r"statistics\.count: Laplace: 'scale' must be positive.*got -1\.0"),
    "unknown field": (entry(scal=1.0), r"statistics\.count: 'scal' is not an argument of Laplace.*'scale'"),
    "wrong shape": (entry(value=[1.0, 2.0], scale=[1.0, 2.0, 3.0]), r"statistics\.count\.value.*shape \(3,\)"),
    "ragged value": (entry(value=[[1.0], [1.0, 2.0]]), r"statistics\.count\.value.*number or an array"),
    "text value": (entry(value="37.4"), r"statistics\.count\.value.*number or an array of numbers; got '37\.4'"),
    "null value": (entry(value=None), r"statistics\.count\.value"),
    "true value": (entry(value=True), r"statistics\.count\.value"),
    "NaN": (entry(value=float("nan")), r"statistics\.count\.value.*must be finite; got nan"),
    "infinity": (entry(value=[1.0, float("inf")]), r"statistics\.count\.value.*must be finite"),
    "confidential": (entry(confidential=36), r"'confidential' is not an argument of Laplace"),
    "guarantee not object": (entry(guarantee=3), r"statistics\.count\.guarantee.*must be an object"),
    "guarantee field": (entry(guarantee={"epsilom": 1.0}), r"Did you mean 'epsilon'"),
    "guarantee value": (entry(guarantee={"epsilon": -1.0}), r"'epsilon' must be positive"),
    "guarantee norm": (entry(guarantee={"norm": "l3"}), r"'norm' must be one of"),
    "not an object": (3, r"statistics\.count: 'entry' must be an object"),
    "fractional count": (
        entry(mechanism="DiscreteLaplace"),
        r"statistics\.count\.value.*must be whole numbers; got 37\.4",
    ),
}


@pytest.mark.parametrize(("bad", "message"), BAD_ENTRIES.values(), ids=BAD_ENTRIES)
def test_bad_entries_say_where(bad, message, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"format": "noisewise-release", "version": 1, "statistics": {"count": bad}}))
    with pytest.raises(nw.InputError, match=message) as caught:
        nw.Release.load(path)
    assert str(path) in str(caught.value)


BAD_TEXTS = {
    "not json": ("{", r"line 1, column 2: not valid JSON"),
    "trailing": ('{"format": "noisewise-release",\n "version" 1}', r"line 2, column 12"),
    "list": ("[]", "must be a JSON object"),
    "format": ('{"format": "x", "version": 1, "statistics": {}}', "'format' must be 'noisewise-release'"),
    "version": ('{"format": "noisewise-release", "version": 3, "statistics": {}}', "'version' must be 1 or 2; got 3"),
    "no version": ('{"format": "noisewise-release", "statistics": {}}', "'version' must be 1 or 2; got None"),
    "empty": ('{"format": "noisewise-release", "version": 1, "statistics": {}}', "non-empty object"),
    "extra": ('{"format": "noisewise-release", "version": 1, "raw": 1}', "'raw' is not a field of a release"),
    "duplicate": ('{"format": "a", "format": "b"}', "'format' stands twice"),
    "deep": ("[" * 100_000, "cannot be read as JSON|not valid JSON"),
    "bad name": (
        '{"format": "noisewise-release", "version": 1, "statistics": {"a b": {"value": 1, "mechanism": "Exact"}}}',
        "must be names",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_bad_files_say_where(text, message, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(nw.InputError, match=message):
        nw.Release.load(path)


def test_an_analysis_file_in_place_of_a_release_is_told_apart(tmp_path):
    path = tmp_path / "count.toml"
    path.write_text("[release.count]\nvalue = 37.4\n")
    with pytest.raises(nw.InputError, match=r"give the release file that it names \(\.json\)"):
        nw.Release.load(path)


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(nw.InputError, match="must be an existing file"):
        nw.Release.load(tmp_path / "none.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(nw.InputError, match="UTF-8"):
        nw.Release.load(tmp_path / "binary")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nw.Release(), "at least one released value"),
        (lambda: nw.Release(count=37.4), r"'count' must be a mechanism's released value; got 37\.4"),
        (lambda: nw.Release(37.4), "'values' must be a dict"),
        (lambda: nw.Release({"count": EVERYTHING["count"]}, count=EVERYTHING["count"]), "must be given once"),
        (lambda: nw.Release({"a b": EVERYTHING["count"]}), "must be names"),
    ],
)
def test_bad_releases_are_refused(make, message):
    with pytest.raises(nw.InputError, match=message):
        make()


# The guarantee of a whole release -------------------------------------------------------------------------------------


def test_guarantees_add_up_over_statistics():
    pure = nw.Release(
        a=nw.Laplace(epsilon=0.2, sensitivity=1.0).released(1.0),
        b=nw.DiscreteLaplace(epsilon=0.5, sensitivity=1).released([1, 2]),
    )
    assert pure.guarantee.epsilon == pytest.approx(0.7)
    rho = nw.Release(
        a=nw.Gaussian(rho=0.3, sensitivity=1.0).released(1.0), b=nw.DiscreteGaussian(rho=0.2, sensitivity=1).released(3)
    )
    assert rho.guarantee.rho == pytest.approx(0.5)
    mu = nw.Release(
        a=nw.Gaussian(mu=3.0, sensitivity=1.0).released(1.0), b=nw.Gaussian(mu=4.0, sensitivity=1.0).released(1.0)
    )
    assert mu.guarantee.mu == pytest.approx(5.0)
    approximate = nw.Release(
        a=nw.Gaussian(epsilon=1.0, delta=1e-6, sensitivity=1.0).released(1.0),
        b=nw.Laplace(epsilon=0.5, sensitivity=1.0).released(1.0),
    )
    assert approximate.guarantee.epsilon == pytest.approx(1.5)
    assert approximate.guarantee.delta == pytest.approx(1e-6)
    assert nw.Release(a=nw.Laplace(scale=1.0).released(1.0)).guarantee is None
    assert pure.naive().guarantee is None


def test_guarantees_do_not_add_across_neighbour_relations():
    noise = nw.Laplace(epsilon=0.2, sensitivity=1.0)
    mixed = nw.Release(a=noise.under("add-remove").released(1.0), b=noise.under("replace-one").released(1.0))
    with pytest.raises(nw.InputError, match="neighbour"):
        mixed.guarantee  # noqa: B018
    same = nw.Release(a=noise.under("replace-one").released(1.0), b=noise.under("replace-one").released(1.0))
    assert same.guarantee.neighbours == "replace-one"
    with pytest.raises(nw.InputError, match="'neighbours' must be one of"):
        noise.under("both")
    with pytest.raises(nw.InputError, match="needs a guarantee"):
        nw.Laplace(scale=1.0).under("replace-one")


def test_disjoint_groups_compose_in_parallel_and_survive_files(tmp_path):
    noise = nw.Laplace(epsilon=0.2, sensitivity=1.0).under("add-remove")
    release = nw.Release(north=noise.released(1.0), south=noise.released(2.0), total=noise.released(3.0))
    assert release.guarantee.epsilon == pytest.approx(0.6)
    apart = release.with_disjoint(["north"], ["south"])
    assert apart.guarantee.epsilon == pytest.approx(0.4)
    assert apart != release
    apart.save(tmp_path / "release.json")
    jsonschema.Draft202012Validator(schema()).validate(json.loads((tmp_path / "release.json").read_text()))
    again = nw.Release.load(tmp_path / "release.json")
    assert again == apart
    assert again.guarantee == apart.guarantee
    with pytest.raises(nw.InputError, match="must name released statistics"):
        release.with_disjoint(["north"], ["east"])
    with pytest.raises(nw.InputError, match="at least two lists"):
        release.with_disjoint(["north"])
