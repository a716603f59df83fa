"""Parts of a release: what is left out is not looked at, and the guarantee stays that of the whole."""

import jsonschema
import numpy as np
import numpyro.distributions as dist
import pytest

import noisewise as nw
from noisewise.release.schema import schema
from noisewise.report.words import guarantees

RELEASE = nw.Release(
    north=nw.Laplace(epsilon=0.5, sensitivity=1.0).under("add-remove").released(12.0),
    south=nw.Laplace(epsilon=1.0, sensitivity=1.0).under("add-remove").released(7.0),
    total=nw.Laplace(epsilon=0.25, sensitivity=1.0).under("add-remove").released(20.0),
).described("Cases by region")
MODEL = nw.Model({"rate": dist.Gamma(2.0, 0.2)}, {"north": lambda rate: dist.Poisson(rate)})


@pytest.mark.quick
def test_a_part_remembers_the_whole(tmp_path):
    part = RELEASE.select("north")
    assert list(part) == ["north"]
    assert part.left_out == ("south", "total")
    assert part.guarantee == RELEASE.guarantee
    assert part.guarantee.epsilon == 1.75
    assert part.guarantee_of("north").epsilon == 0.5
    assert part.about == RELEASE.about
    assert RELEASE.drop("south", "total") == part
    assert RELEASE.select("north", "south").select("north") == part, "the whole is the whole, however one gets there"
    assert part != nw.Release(north=RELEASE["north"])
    part.save(tmp_path / "part.json")
    again = nw.Release.load(tmp_path / "part.json")
    assert again == part
    assert again.guarantee == RELEASE.guarantee
    jsonschema.Draft202012Validator(schema()).validate(part.to_dict())
    assert "with south and total, which are not used here" in guarantees(part)[0]


def test_a_part_keeps_the_order_and_a_whole_is_itself():
    assert list(RELEASE.select("total", "north")) == ["north", "total"]
    assert RELEASE.select("total", "south", "north") is RELEASE
    assert RELEASE.drop() is RELEASE
    assert RELEASE.select(["total", "north"]) == RELEASE.select("total", "north") == RELEASE.drop(["south"])
    with pytest.raises(nw.InputError, match="must be of released statistics"):
        RELEASE.select([["north"]])
    assert RELEASE.left_out == ()


def test_groups_are_cut_down_with_the_part():
    grouped = RELEASE.with_disjoint(["north", "total"], ["south"])
    assert grouped.guarantee.epsilon == 1.0
    assert grouped.select("north", "south").guarantee.epsilon == 1.0
    assert grouped.select("north", "south").to_dict()["disjoint"]["groups"] == [["north"], ["south"]]
    assert "disjoint" not in grouped.select("north", "total").to_dict()


def test_what_does_not_compose_has_no_guarantee():
    mixed = nw.Release(a=nw.Laplace(epsilon=1.0, sensitivity=1.0).released(1.0), b=nw.Laplace(scale=1.0).released(2.0))
    assert mixed.guarantee is None
    assert mixed.select("a").guarantee is None, "the whole states none, whatever its part states"
    assert mixed.select("a").guarantee_of("a").epsilon == 1.0


def test_inference_does_not_look_at_the_rest():
    alone = nw.sample(MODEL, nw.Release(north=RELEASE["north"]), nw.Rejection(), draws=50, seed=3)
    part = nw.sample(MODEL, RELEASE.select("north"), nw.Rejection(), draws=50, seed=3)
    assert np.array_equal(alone["rate"], part["rate"])
    with pytest.raises(nw.InputError, match="must name statistics of the model; got 'south'"):
        nw.sample(MODEL, RELEASE, nw.Rejection(), draws=50, seed=3)


REFUSED = {
    "unknown": (lambda: RELEASE.select("nort"), "Release.select.*got 'nort'. Did you mean 'north'"),
    "nothing": (lambda: RELEASE.select(), "at least one"),
    "unknown to drop": (lambda: RELEASE.drop("west"), "Release.drop.*got 'west'"),
    "everything": (lambda: RELEASE.drop("north", "south", "total"), "must leave at least one"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_parts_that_cannot_be_are_refused(make, message):
    with pytest.raises(nw.InputError, match=message):
        make()


BAD_WHOLES = {
    "no object": (["north", "south"], "part_of.*must name"),
    "without the part": ({"statistics": ["south", "total"]}, "must name these statistics"),
    "nothing left out": ({"statistics": ["north"]}, "and others"),
    "further field": ({"statistics": ["north", "south"], "note": 1}, "must name"),
    "bad guarantee": ({"statistics": ["north", "south"], "guarantee": {"eps": 1}}, "part_of.*'eps' is not a field"),
}


@pytest.mark.parametrize(("whole", "message"), BAD_WHOLES.values(), ids=BAD_WHOLES)
def test_bad_wholes_in_a_file_say_where(whole, message):
    content = RELEASE.select("north").to_dict() | {"part_of": whole}
    with pytest.raises(nw.InputError, match=message):
        nw.Release.from_dict(content, "release.json")
