"""The release in an analysis file: names of entries, a part of it, and what it says about itself."""

import numpy as np
import pytest

import noisewise as nw
from noisewise.analysis import Analysis, FileError
from noisewise.analysis.release_table import to_table
from noisewise.page.release_text import with_release

MODEL = """
[parameters]
rate = "Gamma([2, 2], 0.1)"

[statistics]
cases = "Poisson(rate)"
"""
RELEASE = """
[release.cases]
value = [31, 12]
mechanism = "Laplace"
scale = 2.0
"""
NAMES = 'names = { region = ["North", "South"] }\n'
DIMS = '[dims]\nrate = ["region"]\n'
OTHER = '[release.others]\nvalue = 3\nmechanism = "Laplace"\nepsilon = 1.0\nsensitivity = 1.0\n'


@pytest.mark.quick
def test_names_label_the_entries():
    analysis = Analysis.from_text(MODEL + DIMS + RELEASE + NAMES)
    assert analysis.release["cases"].coords == {"region": ("North", "South")}
    posterior = nw.sample(analysis.model, analysis.release, nw.Importance(), draws=100, seed=1, on_failure="return")
    assert list(posterior.summary().index) == ["rate[North]", "rate[South]", "cases[North]", "cases[South]"]
    plain = Analysis.from_text(MODEL + RELEASE + 'names = ["North", "South"]\n')
    assert plain.release["cases"].coords == {"cases_entry": ("North", "South")}


def test_a_part_is_used(tmp_path):
    analysis = Analysis.from_text(MODEL + '[release]\nuse = ["cases"]\n' + RELEASE + OTHER)
    assert list(analysis.release) == ["cases"]
    assert analysis.release.left_out == ("others",)
    whole = nw.Release(cases=analysis.release["cases"], others=nw.Laplace(scale=1.0).released(3.0))
    whole.save(tmp_path / "release.json")
    from_file = MODEL + '[release]\nfile = "release.json"\nuse = ["cases"]\n'
    assert list(Analysis.from_text(from_file, folder=tmp_path).release) == ["cases"]
    with pytest.raises(FileError, match=r"'others' of the release is not a statistic.*name the others in 'use'"):
        Analysis.from_text(MODEL + '[release]\nfile = "release.json"\n', folder=tmp_path)


def described(tmp_path):
    item = nw.Laplace(epsilon=0.5, sensitivity=1.0).released([31.0, 12.0], coords={"region": ["North", "South"]})
    other = nw.Laplace(epsilon=1.0, sensitivity=1.0).released(3.0)
    item = item.described("Cases", unit="persons", bounds=(0, 1), extra={"nothing": [None, {"a": None}]})
    release = nw.Release(cases=item, others=other).described("Health", date="2026-03-01", extra={"x": None})
    release.save(tmp_path / "release.json")
    return release


def test_a_rewritten_file_holds_the_same_release(tmp_path):
    release = described(tmp_path)
    text = MODEL + DIMS + '[release]\nfile = "release.json"\nuse = ["cases"]\n'
    analysis = Analysis.from_text(text, folder=tmp_path)
    again = Analysis.from_text(analysis.to_text())
    assert again.release == analysis.release == release.select("cases")
    assert again.release.hash == analysis.release.hash
    assert again.model.axes == analysis.model.axes
    twice = Analysis.from_text(again.to_text())
    assert twice.release == analysis.release


def test_the_page_puts_it_in_as_it_is(tmp_path):
    release = described(tmp_path).select("cases")
    text = with_release(MODEL + RELEASE, release)
    assert Analysis.from_text(text).release == release
    assert to_table(release)["cases"]["names"] == {"region": ["North", "South"]}


REFUSED = {
    "too few names": (MODEL + RELEASE + 'names = ["North"]\n', "along 'cases_entry', 2", "names = "),
    "a name twice": (MODEL + RELEASE + 'names = { region = ["N", "N"] }\n', "twice; got 'N'", "names = "),
    "an axis of nothing": (
        MODEL + RELEASE + NAMES + '[dims]\nrates = ["region"]\n',
        "'rates' is not a para",
        "rates = ",
    ),
    "too many axes": (MODEL + RELEASE + NAMES + '[dims]\nrate = ["a", "b"]\n', "a tuple of 1 different", 'rate = ["a'),
    "use of nothing": (MODEL + "[release]\nuse = []\n" + RELEASE, "must be a list of statistics", "use = "),
    "use of another": (MODEL + '[release]\nuse = ["cuses"]\n' + RELEASE, "'cuses' is not a statistic of", "use = "),
    "an unknown word": (MODEL + RELEASE + '[release.cases.about]\nnote = "x"\n', "'note' is not a field", "note = "),
    "an unknown word of all": (MODEL + RELEASE + '[release.about]\nnote = "x"\n', "'note' is not a field", "note = "),
    "one not used is read": (
        MODEL + '[release]\nuse = ["cases"]\n' + RELEASE + OTHER.replace("Laplace", "Laplac"),
        "'Laplac' is not a mechanism",
        'mechanism = "Laplac"',
    ),
}


@pytest.mark.parametrize(("text", "cause", "line"), REFUSED.values(), ids=REFUSED)
def test_mistakes_are_refused_where_they_stand(text, cause, line):
    with pytest.raises(FileError) as caught:
        Analysis.from_text(text, "study.toml")
    assert cause in caught.value.cause
    assert text.split("\n")[caught.value.line - 1].startswith(line)


def test_names_do_not_change_a_draw():
    settings = {"draws": 50, "seed": 2, "on_failure": "return"}
    named = Analysis.from_text(MODEL + DIMS + RELEASE + NAMES)
    plain = Analysis.from_text(MODEL + RELEASE)
    first = nw.sample(named.model, named.release, nw.Importance(), **settings)
    second = nw.sample(plain.model, plain.release, nw.Importance(), **settings)
    assert np.array_equal(first["rate"], second["rate"])
