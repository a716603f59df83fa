"""Analysis files: malformed ones give an error with line and cause, good ones give the model a program would."""

import json
import re
import unicodedata

import jax.numpy as jnp
import malformed_analyses as malformed
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from targets import briefly

import noisewise as nw
from noisewise.analysis import Analysis, FileError, starter
from noisewise.analysis import toml as toml_text
from noisewise.analysis.analysis import STARTERS
from noisewise.errors import InputError
from noisewise.report import words
from noisewise.samplers import SMC


def place_of(text):
    """Text without its mark, and line and column of the mark (None where there is none)."""
    at = text.find("¦")
    clean = text.replace("¦", "")
    if at < 0:
        return clean, None
    return clean, (clean.count("\n", 0, at) + 1, at - clean.rfind("\n", 0, at))


def refused(text):
    with pytest.raises(FileError) as caught:
        Analysis.from_text(text, "study.toml")
    return caught.value


def points_at_the_mark(text, cause):
    clean, place = place_of(text)
    error = refused(clean)
    told = str(error).split("\n")
    assert told[0].startswith(f"study.toml, line {error.line}, column {error.column}: ")
    assert cause in error.cause
    # The message shows the very line, and a caret under the place.
    line = clean.split("\n")[error.line - 1]
    assert told[-2].endswith(f"{error.line} | {line}")
    assert told[-1].index("^") == told[-2].index(" | ") + 3 + error.column - 1
    return place is None or (error.line, error.column) == place


def test_there_are_at_least_two_hundred_malformed_files():
    assert len({text for text, _ in malformed.MARKED} | {text for text, *_ in malformed.TYPED}) >= 400
    Analysis.from_text(malformed.GOOD)


@pytest.mark.parametrize("number", range(len(malformed.MARKED)))
def test_a_malformed_file_gives_an_error_that_names_line_column_and_cause(number):
    assert points_at_the_mark(*malformed.MARKED[number])


@pytest.mark.parametrize("number", range(len(malformed.TYPED)))
def test_a_value_of_the_wrong_type_is_refused_on_its_line(number):
    text, _, key = malformed.TYPED[number]
    error = refused(text)
    lines = text.split("\n")
    assert lines[error.line - 1].startswith(f"{key} =")
    assert len(error.cause) > 15


def test_the_check_of_places_notices_a_place_that_is_off_by_one(monkeypatch):
    text, cause = malformed.change('"Poisson(exp(mu))"', '"Poisson(exp(¦nu))"', "'nu'")
    assert points_at_the_mark(text, cause)
    honest = toml_text.Document.error

    def shifted(self, path, cause, *, at=None, key=False):
        return honest(self, path, cause, at=at and at + 1, key=key)

    monkeypatch.setattr(toml_text.Document, "error", shifted)
    assert not points_at_the_mark(text, cause)


# Places -------------------------------------------------------------------------------------------------------------

NASTY = (
    """\
top = 1 # comment with "quotes" and [brackets]
"quoted key" = 'it''s' # not TOML
""".replace("'it''s' # not TOML", "'literal \\ text'")
    + '''\
dotted.inner."x y" = [1, [2, 3], { a = "b", "c.d" = 4 }] # trailing
[table . "with dots.in" ]
multi = """
first \\
   joined "quoted" \\u00e9 end"""
array = [ # comment ]
  "one", 'two',
  """three"""""
]
[[list]]
a = 1
[[list]]
a = 2
[list.inside]
b = inf
'''
)


def values_by_path(content, path=()):
    if isinstance(content, dict):
        for key, value in content.items():
            yield from values_by_path(value, (*path, key))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from values_by_path(value, (*path, number))
    else:
        yield path, content


def test_every_value_of_a_nasty_document_has_its_place():
    document = toml_text.from_toml(NASTY, "nasty")
    found = dict(values_by_path(document.content))
    assert len(found) == 14
    for path, value in found.items():
        place = document.places[path]
        assert place.value < len(NASTY)
        if isinstance(value, str):
            assert len(place.characters) == len(value) + 1, path
            for character, at in zip(value, place.characters, strict=False):
                assert document.text[at] in (character, "\\"), path
        else:
            assert str(value) in document.text[place.value : place.value + 10]


def test_writing_and_reading_gives_the_same_content():
    document = toml_text.from_toml(NASTY, "nasty")
    assert toml_text.from_toml(toml_text.to_toml(document.content), "again").content == document.content


# Good files ---------------------------------------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize("name", STARTERS)
def test_every_starter_is_read_and_written_back_the_same(name):
    analysis = Analysis.from_text(starter(name), name)
    assert not analysis.notes
    again = Analysis.from_text(analysis.to_text(), name)
    assert again.release.hash == analysis.release.hash
    assert again.settings == analysis.settings
    assert (again.title, again.question) == (analysis.title, analysis.question)
    for key, value in analysis.content.items():
        assert value.items() <= again.content[key].items()


@pytest.mark.parametrize("name", briefly(STARTERS, [name for name in STARTERS if name != "histogram"]))
def test_every_starter_runs(name, seed):
    analysis = Analysis.from_text(starter(name), name)
    assert analysis.settings.method is None
    # Chosen, or where the probe of the choice would take long, named: exactness is for others.
    method = {"histogram": SMC(particles=64, min_ess=10), "survey": nw.Importance()}.get(name)
    found = nw.sample(analysis.model, analysis.release, method, draws=1_000, seed=seed, on_failure="return")
    assert found.status == "complete" or name == "survey"
    assert len(found) >= 1_000  # particles come in equal islands
    assert all(np.isfinite(found[each]).all() for each in found.draws)


def test_the_two_groups_of_the_means_starter_spend_one_budget():
    text = starter("means")
    analysis = Analysis.from_text(text, "means")
    assert analysis.release.guarantee.epsilon == 1.0
    told = words.guarantees(analysis.release)
    assert told[0].startswith("All of it together is 1-differentially private")
    assert "mean_control and mean_treated have nobody in common" in told[1]
    # without the table they add up; with groups that are not public they cannot be composed in parallel
    alone = text.replace('[release.disjoint]\ngroups = [["mean_control"], ["mean_treated"]]\npublic = true\n', "")
    assert Analysis.from_text(alone, "means").release.guarantee.epsilon == 2.0
    secret = Analysis.from_text(text.replace("public = true", "public = false"), "means")
    assert "do not add up to one for the whole" in words.guarantees(secret.release)[0]


@pytest.mark.quick
def test_the_count_starter_gives_the_exact_posterior(seed, count_reference):
    analysis = Analysis.from_text(starter("count"), "count")
    found = nw.sample(analysis.model, analysis.release, draws=10_000, seed=seed)
    exact = nw.sample(  # the same question, asked in Python
        nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)}),
        nw.Release(count=nw.Laplace(epsilon=0.2, sensitivity=1.0).released(37.4)),
        draws=10_000,
        seed=seed,
    )
    assert np.array_equal(found["theta"], exact["theta"])
    row = found.summary().loc["theta"]
    assert abs(row["mean"] - count_reference["by_alpha"]["25"]["mean"]) < LIMIT * row["mcse"]


def test_expressions_give_the_draws_of_the_same_model_in_python(seed):
    """Bit by bit: hierarchy, vectors, totals with clamping and a random number of records, subscripts, conditions."""
    text = """
    [parameters]
    size = "Poisson(30)"
    spread = "HalfNormal(1)"
    rate = "Gamma(2 + spread, rate=1/3, size=2)"
    [statistics]
    counts = "Poisson(rate * [1, 2])"
    [totals.sums]
    n = "size"
    contribution = ["clip(x, 0, 3)", "where(x > rate[1] and y == 1, 1, 0)", "exp(-x**2) / sqrt(185)"]
    [totals.sums.record]
    x = "Normal(log(rate[0]), 1)"
    y = "Bernoulli(expit(x))"
    [release.counts]
    value = [5, 9]
    mechanism = "DiscreteLaplace"
    scale = 2.0
    [release.sums]
    value = [20.0, 8.0, 2.0]
    mechanism = "Laplace"
    scale = 5.0
    """
    analysis = Analysis.from_text(text)
    model = nw.Model(
        prior={
            "size": dist.Poisson(30.0),
            "spread": dist.HalfNormal(1.0),
            "rate": lambda spread: dist.Gamma(2 + spread, rate=1 / 3).expand([2]),
        },
        statistics={
            "counts": lambda rate: dist.Poisson(rate * jnp.array([1, 2])),
            "sums": nw.Total(
                record={
                    "x": lambda rate: dist.Normal(jnp.log(rate[0]), 1.0),
                    "y": lambda x: dist.Bernoulli(1 / (1 + jnp.exp(-x))),
                },
                contribution=lambda x, y, rate: jnp.stack(
                    [jnp.clip(x, 0, 3), jnp.where((x > rate[1]) & (y == 1), 1.0, 0.0), jnp.exp(-(x**2)) / 185**0.5]
                ),
                n="size",
            ),
        },
    )
    ours, theirs = analysis.model.simulate(5_000, seed), model.simulate(5_000, seed)
    for name in model.order:
        assert ours[name].dtype == theirs[name].dtype, name
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-12, err_msg=name)


def test_whole_numbered_contributions_make_a_whole_numbered_total():
    text = malformed.GOOD.replace('"clip(x, 0, 1)"', '"where(x > 0.5, 1, 0)"').replace('method = "Rejection"\n', "")
    assert Analysis.from_text(text).model.is_discrete("sums")
    assert not Analysis.from_text(malformed.GOOD).model.is_discrete("sums")


def test_settings_are_read():
    settings = Analysis.from_text(malformed.GOOD).settings
    assert settings.method == nw.Rejection()
    assert (settings.draws, settings.seed, settings.level) == (1000, 1, 0.9)
    assert (settings.estimator, settings.start) == (nw.EM(), {"mu": 0.0, "sigma": 1.0})
    text = malformed.GOOD.replace('method = "Rejection"', 'method = { name = "Importance", min_ess = 100 }')
    assert Analysis.from_text(text).settings.method == nw.Importance(min_ess=100)
    bare = Analysis.from_text(malformed.GOOD.split("[inference]")[0]).settings
    assert (bare.method, bare.draws, bare.seed, bare.level) == (None, 10_000, 1, 0.95)


def test_other_settings_are_taken_over_and_written():
    analysis = Analysis.from_text(malformed.GOOD).with_settings(draws=50, seed=9)
    again = Analysis.from_text(analysis.to_text())
    assert (again.settings.draws, again.settings.seed) == (50, 9)
    assert again.settings.method == nw.Rejection()
    with pytest.raises(InputError, match="'draws' must be a whole number"):
        analysis.with_settings(draws=0)


def test_an_unused_parameter_is_noted():
    text = malformed.GOOD.replace('mu = "Normal(0, 2)"', 'mu = "Normal(0, 2)"\nspare = "Normal(0, 1)"')
    text = text.replace("sigma = 1.0 }", "sigma = 1.0, spare = 0.0 }")
    (told,) = Analysis.from_text(text).notes
    assert "'spare' is used by no statistic" in told


def with_file(tmp_path, reference):
    analysis = Analysis.from_text(malformed.GOOD)
    release = analysis.release.with_disjoint(["count"], ["sums"])
    release.save(tmp_path / "release.json")
    start, end = malformed.GOOD.index("[release.count]"), malformed.GOOD.index("[inference]")
    inner = tmp_path / "inner"
    inner.mkdir()
    path = inner / "study.toml"
    path.write_text(malformed.GOOD[:start] + f'[release]\nfile = "{reference}"\n' + malformed.GOOD[end:])
    return path, release


def test_a_release_file_is_found_from_the_analysis_file_and_written_out(tmp_path):
    path, release = with_file(tmp_path, "../release.json")
    analysis = Analysis.load(path)
    assert analysis.release == release
    assert Analysis.from_text(analysis.to_text()).release.hash == release.hash


def test_a_confined_analysis_cannot_leave_its_folder(tmp_path):
    path, _ = with_file(tmp_path, "../release.json")
    with pytest.raises(FileError, match="line 20, column 8: the release file must lie in the folder"):
        Analysis.load(path, confined=True)
    path.write_text(path.read_text().replace("../release.json", str(tmp_path / "release.json")))
    with pytest.raises(FileError, match="must lie in the folder"):
        Analysis.load(path, confined=True)
    (path.parent / "link.json").symlink_to(tmp_path / "release.json")
    path.write_text(path.read_text().replace(str(tmp_path / "release.json"), "link.json"))
    with pytest.raises(FileError, match="must lie in the folder"):
        Analysis.load(path, confined=True)


def test_a_release_file_that_is_wrong_says_so_at_the_line_that_names_it(tmp_path):
    path, _ = with_file(tmp_path, "../release.json")
    content = json.loads((tmp_path / "release.json").read_text())
    content["statistics"]["sums"]["mechanism"] = "Laplac"
    (tmp_path / "release.json").write_text(json.dumps(content))
    with pytest.raises(FileError, match=r"line 20, column 8: .*must be a known mechanism"):
        Analysis.load(path)


def test_files_from_other_editors_are_read(tmp_path):
    path = tmp_path / "study.toml"
    path.write_bytes(b"\xef\xbb\xbf" + malformed.GOOD.replace("\n", "\r\n").encode())
    assert Analysis.load(path).settings.draws == 1000
    path.write_bytes(malformed.GOOD.replace("A test", "Ein Müll").encode("latin-1"))
    with pytest.raises(FileError, match="line 2, column 15: not UTF-8"):
        Analysis.load(path)
    with pytest.raises(InputError, match="must be an existing file"):
        Analysis.load(tmp_path / "nowhere.toml")


def test_huge_and_deep_files_end_in_an_error_at_once():
    for text in ("a = " + "[" * 5000, "#" * 1_000_001, "a = " + "9" * 5000, "[" + "a." * 5000 + "a]\nb = 1"):
        assert "line 1" in str(refused(text))


PYTHONS = re.compile(r"\b(?:nw|dist|jnp|np)\.|jax|Python|\bdict\b|\bNone\b|\bTrue\b|\bFalse\b|float64")


def test_causes_speak_the_files_language():
    causes = []
    for text, *_ in [*malformed.MARKED[::7], *malformed.MARKED[-60:], *malformed.TYPED[::3]]:
        with pytest.raises(FileError) as caught:
            Analysis.from_text(text.replace("¦", ""))
        causes.append(caught.value.cause)
    assert not [cause for cause in causes if PYTHONS.search(cause)]


ACCENTS = """
[answers]
"größe_über_3" = "größe > 3"
[parameters]
"größe" = "Gamma(25, 5)"
[statistics]
"fälle" = "Poisson(größe)"
[words]
"größe" = "Die Größe"
[release."fälle"]
value = 6.5
mechanism = "Laplace"
scale = 2.0
"""


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names_may_have_accents(form):
    analysis = Analysis.from_text(unicodedata.normalize(form, ACCENTS))
    assert (analysis.model.parameters, analysis.model.statistics) == (("größe",), ("fälle",))
    assert Analysis.from_text(analysis.to_text()).release == analysis.release


@pytest.mark.parametrize("line", ['größe = "Gamma(25, 5)"', '[größe]\nx = "Gamma(25, 5)"'])
def test_an_accent_without_quotation_marks_is_told_the_remedy(line):
    with pytest.raises(FileError, match='stands in quotation marks: "größe"'):
        Analysis.from_text(f"[parameters]\n{line}\n")


TWO_GROUPS = """
[parameters]
a = "LogNormal(3, 0.3)"
b = "LogNormal(3, 0.3)"
[means.first]
n = 4
contribution = "clip(income, 0, 60)"
[means.first.record]
income = "Gamma(2, 2 / a)"
[means.second]
n = 5
contribution = "clip(income, 0, 60)"
[means.second.record]
income = "Gamma(2, 2 / b)"
[release.first]
value = 24.0
mechanism = "Laplace"
scale = 3.0
[release.second]
value = 21.0
mechanism = "Laplace"
scale = 3.0
"""


def test_means_over_records_are_totals_over_n_and_fields_may_share_a_name():
    analysis = Analysis.from_text(TWO_GROUPS)
    totals = Analysis.from_text(TWO_GROUPS.replace("[means.", "[totals."))
    rng = [np.random.default_rng(1) for _ in range(2)]
    drawn, summed = (
        found.model.draw(one, list(found.model.order), 4096) for found, one in zip((analysis, totals), rng, strict=True)
    )
    for name, n in (("first", 4), ("second", 5)):
        np.testing.assert_allclose(drawn[name], summed[name] / n)
    assert abs(np.corrcoef(drawn["first"], drawn["second"])[0, 1]) < LIMIT / np.sqrt(4096), "records of their own"
    clash = TWO_GROUPS.replace("income", "a", 1).replace('income = "Gamma(2, 2 / a)"', 'a = "Gamma(2, 1)"')
    with pytest.raises(FileError, match="'a' is used twice"):
        Analysis.from_text(clash)
    with pytest.raises(FileError, match="'income' depends on itself"):
        Analysis.from_text(TWO_GROUPS.replace('"Gamma(2, 2 / b)"', '"Gamma(2, 2 / income)"'))
    with pytest.raises(FileError, match="model the sum"):
        Analysis.from_text(TWO_GROUPS.replace("n = 5", 'n = "a"'))


RESPONSE = starter("response")


def test_yes_answers_of_randomised_response_are_written_as_people_say_them():
    analysis = Analysis.from_text(RESPONSE)
    assert analysis.release == nw.Release(yes=nw.RandomizedResponse(keep=0.75, on="ones", n=1000).released(462))
    assert Analysis.from_text(analysis.to_text()).release == analysis.release
    by_answer = RESPONSE.replace("value = 462", "value = { never = 310, once = 420, often = 270 }")
    by_answer = by_answer.replace('"Beta(1, 1)"', '"Dirichlet([1, 1, 1])"').replace("Binomial", "Multinomial")
    by_answer = by_answer.replace('"100 * share"', '"100 * share[0]"').replace('"share > 1/3"', '"share[0] > 1/3"')
    found = Analysis.from_text(by_answer)
    mechanism = nw.RandomizedResponse(keep=0.75, categories=3, on="counts", n=1000)
    assert found.release["yes"].mechanism == mechanism
    assert found.release["yes"].coords == {"yes_entry": ("never", "once", "often")}
    assert Analysis.from_text(found.to_text()).release == found.release
    with pytest.raises(FileError, match="numbers of ones among n = 1000"):
        Analysis.from_text(RESPONSE.replace("value = 462", "value = 1462"))
