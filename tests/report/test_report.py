"""The report: what it says is true, what users write stays text, and a real browser shows it to everybody."""

import ast
import graphlib
import itertools
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from browser import PHONE, focus_order, kept, opened, overflow, picture, serious_findings
from matplotlib.figure import Figure
from mechanism_case import all_cases
from targets import brief_rows, briefly, count_model

import noisewise as nw
from noisewise.errors import InputError
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose
from noisewise.inference.status import POSTERIOR
from noisewise.mechanisms import CATALOGUE, Product, Staircase
from noisewise.report import Report, noise, words
from noisewise.report import graph as drawing
from noisewise.report.likelihood import FitReport
from noisewise.report.markup import number, tag, text, whole
from noisewise.report.model_words import words_of_nodes
from noisewise.report.short_answer import percent
from noisewise.report.verdict import judge
from noisewise.results.posterior import Posterior
from noisewise.samplers.choosing.probe import probe_of
from noisewise.workflow.reporting import report_of, write_report

ROOT = Path(__file__).parents[2]
HOSTILE = (
    '</title></style><script>window.hacked = 1</script><img src="https://example.org/x.png" onerror="window.hacked=2">'
    "\n\n\"'><svg onload=window.hacked=3><a href='javascript:window.hacked=4'>{{7*7}} ${7*7} &lt;b&gt; "
    "\x00\x08\ud800 \u202e end"
)


def count_release(value=37.4):
    return nw.Release(count=nw.Laplace(epsilon=0.2, sensitivity=1.0).released(value))


@pytest.fixture(scope="module")
def compared():
    return nw.compare(count_model(), count_release(), draws=2_000, seed=20260)


@pytest.fixture(scope="module")
def report(compared):
    return Report.of(
        compared, title="A privatised count", question="How many are there?\n\nReally?", conflict={"count": 0.2}
    )


def drawn(model, release, columns, **fields):
    """A posterior made of given draws."""
    parameters = tuple(name for name in columns if name in model.parameters)
    released = {name: item.value for name, item in release.items()}
    return Posterior(columns, parameters, released, release.hash, nw.Rejection(), 1, **fields)


class Outline(HTMLParser):
    """Elements with their attributes, and all text."""

    def __init__(self, source):
        super().__init__()
        self.elements, self.words = [], []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


# Markup -------------------------------------------------------------------------------------------------------------


def test_text_is_escaped_and_markup_is_not():
    assert text("<b>&\"'") == "&lt;b&gt;&amp;&quot;&#x27;"
    assert tag("p", "<i>", tag("b", "x"), class_='"') == '<p class="&quot;">&lt;i&gt;<b>x</b></p>'
    assert text("a\x00\ud800b") == "a\ufffd\ufffdb"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (3.4657, "3.47"),
        (-0.5, "\u22120.500"),
        (12345.6, "12,346"),
        (1e-7, "1.00e\u22127"),
        (np.nan, "\u2014"),
    ],
)
def test_numbers_are_shown_for_reading(value, shown):
    assert number(value) == shown


def test_parameters_keep_their_digits():
    assert [whole(each) for each in (5.0, 0.324, 1234567, 0.1 + 0.2)] == ["5", "0.324", "1,234,567", "0.3"]


# What it says of the noise ------------------------------------------------------------------------------------------


def test_every_mechanism_has_a_sentence_of_its_own():
    said = {}
    for kind, case in {type(case.mechanism).__name__: case for case in all_cases()}.items():
        value = case.sample(case.mechanism, np.random.default_rng(0), 1)[0]
        said[kind] = noise.sentence("it", case.mechanism.released(value))
    assert set(said) == {name for name, kind in CATALOGUE.items() if kind.__module__.startswith("noisewise.")}
    assert not [each for each in said.values() if "made noisy by" in each or "the noise of" in each]


def test_the_sentence_of_a_count_is_plain():
    said = noise.sentence("count", count_release()["count"])
    assert (
        said
        == "count got Laplace noise of scale 5: half of the time less than 3.5 off, 19 times out of 20 less than 15."
    )


def test_arrays_are_told_entry_by_entry():
    item = nw.Laplace(scale=[2.0, 12.0]).released([1.0, 2.0])
    assert noise.sentence("sums", item).startswith("Each of the 2 entries of sums got Laplace noise of scale 2 and 12")
    many = nw.Laplace(scale=np.arange(1.0, 31.0)).released(np.zeros(30))
    assert "scale 1 to 30" in noise.sentence("sums", many)
    parts = Product([nw.Laplace(scale=1.0), nw.Exact()]).released([1.0, 2.0])
    assert "entry 1 was published as it is" in noise.sentence("both", parts)


def test_guarantees_are_those_of_the_whole():
    assert "0.2-differentially private" in words.guarantees(count_release())[0]
    assert "at most 1.22" in words.guarantees(count_release())[0]
    two = nw.Release(a=Staircase(epsilon=0.5, sensitivity=1.0).released([1.0, 2.0, 3.0]), b=count_release()["count"])
    said = words.guarantees(two)
    assert "1.7-differentially" in said[0]
    assert "a by itself is 1.5-" in said[1]
    assert "b by itself is 0.2-" in said[2]
    assert "no privacy guarantee" in words.guarantees(nw.Release(a=nw.Laplace(scale=1.0).released(0.0)))[0]
    mixed = nw.Release(a=nw.Laplace(scale=1.0).released(0.0), b=count_release()["count"])
    assert "No guarantee" in words.guarantees(mixed)[0]
    apart = nw.Release(
        a=nw.Gaussian(epsilon=1.0, delta=1e-5, sensitivity=1.0).released(0.0),
        b=nw.Gaussian(rho=0.5, sensitivity=1.0).released(0.0),
    )
    said = words.guarantees(apart)
    assert "do not add up" in said[0]
    assert "plus at most 1.00e\u22125" in said[1]
    assert "0.5-zCDP" in said[2]


# The verdict --------------------------------------------------------------------------------------------------------


def test_statuses_lead_to_verdicts(compared):
    def state(status, **others):
        return judge(replace(compared.exact, status=status, **others), {"count": 0.5}).state

    states = {"usable": "good", "doubtful": "look", "unusable": "bad"}
    assert {name: state(name) for name in POSTERIOR} == {name: states[end.numbers] for name, end in POSTERIOR.items()}


def test_a_message_becomes_a_sentence_and_names_keep_their_letters(compared):
    def explanation(message):
        return judge(replace(compared.exact, status="max_proposals", message=message), None).checks[0].explanation

    assert explanation("nothing more came.").endswith(" Nothing more came.")
    assert explanation("max_proposals=10 allowed 3.").endswith(" max_proposals=10 allowed 3.")


def test_few_draws_and_surprises_need_a_second_look(compared):
    few = replace(compared.exact, draws={name: values[:100] for name, values in compared.exact.draws.items()})
    assert judge(few, None).state == "look"
    surprised = judge(compared.exact, {"count": 0.005})
    assert surprised.state == "look"
    assert "surprising" in surprised.checks[-1].explanation
    assert judge(compared.exact, None).state == "good"
    assert "not checked" in judge(compared.exact, None).checks[-1].explanation


def test_disagreeing_chains_and_heavy_weights_are_bad(compared, seed):
    rng = np.random.default_rng(seed)
    apart = {name: np.sort(values) for name, values in compared.exact.draws.items()}
    verdict = judge(replace(compared.exact, draws=apart, chains=4), None)
    assert verdict.state == "bad"
    assert any("disagree" in check.explanation for check in verdict.checks)
    weighted = replace(compared.exact, log_weights=rng.normal(size=2_000), diagnostics={"pareto_k": 0.9})
    assert judge(weighted, None).state == "bad"
    assert judge(replace(weighted, diagnostics={"pareto_k": 0.1}), None).state == "good"


def test_a_run_without_draws_says_so_and_shows_no_numbers(compared):
    empty = {name: values[:0] for name, values in compared.exact.draws.items()}
    posterior = replace(compared.exact, draws=empty, status="max_proposals", message="nothing was accepted.")
    source = Report(compared.model, compared.release, posterior).html()
    assert "Do not use" in source
    assert "Nothing was accepted." in source
    assert 'id="answer"' not in source
    assert 'id="cost"' not in source
    assert "short answer" not in source


def test_draws_without_weight_or_without_bound_do_not_break_the_report(compared):
    weightless = replace(compared.exact, log_weights=np.full(2_000, -np.inf), status="no_weight", message="no weight.")
    source = Report(compared.model, compared.release, weightless, naive=compared.naive).html()
    assert "draws of no weight" in source
    assert 'id="answer"' not in source
    columns = {"theta": np.append(compared.exact["theta"][1:], np.inf), "count": compared.exact["count"]}
    source = Report(compared.model, compared.release, replace(compared.exact, draws=columns, status="stuck")).html()
    assert source.count('class="panel"') == 1
    assert source.count("These numbers should not be used") == 3


def test_likelihood_estimates_stand_beside_the_posterior(compared):
    fit = nw.fit(compared.model, compared.release, nw.EM(), start={"theta": 30.0})
    said = " ".join(Outline(Report.of(compared, fit=fit).html()).words)
    assert number(fit.estimate["theta"], 4) in said
    assert f"the release keeps: theta {number(100 * fit.efficiency['theta'], 2)}%" in said


# The page -----------------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_the_page_holds_all_it_shows(report):
    source = report.html()
    outline = Outline(source)
    assert not [name for name, _ in outline.elements if name in ("script", "img", "iframe", "link", "object", "form")]
    assert "default-src &#x27;none&#x27;" in source
    fetched = [
        value for _, given in outline.elements for key, value in given.items() if key in ("src", "srcset", "action")
    ]
    assert not fetched
    assert not [key for _, given in outline.elements for key in given if key.startswith("on")]
    links = [given["href"] for name, given in outline.elements if name == "a"]
    assert set(links) - {"#content"} == {f"#{key}" for key in SECTIONS} | {"https://doi.org/10.29012/jpc.797"}
    assert "@import" not in source
    assert "url(http" not in source
    assert source == report.html()


SECTIONS = ("question", "published", "model", "answer", "naive", "trust", "cost", "cite", "replay")


def test_ids_are_unique_and_references_lead_somewhere(report):
    outline = Outline(report.html())
    ids = [given["id"] for _, given in outline.elements if "id" in given]
    assert len(ids) == len(set(ids))
    named = [given[key] for _, given in outline.elements for key in ("aria-labelledby",) if key in given]
    assert {each for value in named for each in value.split()} <= set(ids)
    headings = [int(name[1]) for name, _ in outline.elements if re.fullmatch("h[1-6]", name)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(headings))


def test_the_numbers_are_those_of_the_comparison(report, compared):
    said = " ".join(Outline(report.html()).words)
    table = compared.table()
    for column in table.columns:
        assert number(table.loc["theta", column], 4) in said
    assert "How many are there?" in said
    assert "Really?" in said
    assert f"{number(table.loc['theta', 'wider'], 2)} times as wide" in said
    assert compared.release.hash in said
    assert "seed=20260" in said
    assert all(version in said for version in compared.exact.versions.values())


def test_hostile_text_stays_text(compared):
    exact = replace(compared.exact, status="low_ess", message=HOSTILE, reason=HOSTILE, versions={HOSTILE: HOSTILE})
    naive = replace(compared.naive, status="low_ess", message=HOSTILE)
    given = dict(question=HOSTILE, title=HOSTILE, inputs={HOSTILE: HOSTILE}, replay=HOSTILE, finished=HOSTILE)
    content = {"parameters": {"theta": HOSTILE}, "statistics": {"count": HOSTILE}}
    plain = Report(compared.model, compared.release, compared.exact, naive=compared.naive)
    bad = Report(compared.model, compared.release, exact, naive=naive, content=content, **given)
    source = bad.html()
    source.encode("utf-8")
    kinds = {name for name, _ in Outline(plain.html()).elements} | {"br"}
    assert {name for name, _ in Outline(source).elements} <= kinds
    assert not [key for _, attributes in Outline(source).elements for key in attributes if key.startswith("on")]
    assert "<script" not in source
    assert "onerror=&quot;" in source
    no_naive = Report(compared.model, compared.release, compared.exact, no_naive=HOSTILE).html()
    assert "<script" not in no_naive


def test_without_escaping_hostile_text_would_get_through(compared, monkeypatch):
    monkeypatch.setattr("noisewise.report.markup.html.escape", lambda value, quote: value)
    assert "<script" in Report(compared.model, compared.release, compared.exact, question=HOSTILE).html()


def test_the_citation_is_that_of_the_repository():
    stated = (ROOT / "CITATION.cff").read_text()
    for part in (words.DOI, "Exact Inference with Approximate Computation", "Journal of Privacy and Confidentiality"):
        assert part in stated
    assert "exact statistical inference from differentially private releases" in stated
    assert f"version: {nw.__version__}" in stated
    assert nw.__version__ in words.SOFTWARE


def test_mismatched_parts_are_refused(compared):
    with pytest.raises(InputError, match="'posterior' must be of this release"):
        Report(compared.model, count_release(12.0), compared.exact)
    with pytest.raises(InputError, match="'model' must be a Model"):
        Report("model", compared.release, compared.exact)
    with pytest.raises(InputError, match="'level'"):
        Report(compared.model, compared.release, compared.exact, level=1.5)


# The model as a graph -----------------------------------------------------------------------------------------------


@cache
def wide_model():
    model = nw.Model(
        {
            "spread": dist.HalfNormal(1.0),
            "rate": lambda spread: dist.LogNormal(0.0, spread).expand([3]),
            "beta": dist.Normal(0.0, 2.0),
        },
        {
            "counts": lambda rate: dist.Poisson(rate),
            "sums": nw.Total({"x": lambda beta: dist.Normal(beta, 1.0)}, lambda x: jnp.clip(x, -1.0, 1.0), 20),
            "plain": nw.Total({"u": dist.Normal(0.0, 1.0)}, lambda u, beta: u * beta, 5),
            "other": nw.Simulator(lambda rng, beta: float(rng.normal(beta))),
        },
    )
    release = nw.Release(
        counts=nw.DiscreteLaplace(scale=2.0).released([3, 0, 4]),
        sums=nw.Laplace(scale=1.0).released(2.0),
        plain=nw.Laplace(scale=1.0).released(0.5),
        other=nw.Gaussian(scale=1.0).released(0.5),
    )
    return model, release


def test_the_graph_shows_every_node_once_and_no_boxes_overlap():
    model, release = wide_model()
    nodes = words_of_nodes(model, release, {})
    columns = drawing._columns(nodes)
    assert sorted(node.key for column in columns for node in column) == sorted(node.key for node in nodes)
    places, width, height = drawing._places(columns)
    boxes = list(places.values())
    for i, (x, y, w, h) in enumerate(boxes):
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
        for a, b, c, d in boxes[:i]:
            assert x >= a + c or a >= x + w or y >= b + d or b >= y + h
    for node in nodes:  # arrows go from left to right
        assert all(places[parent][0] + places[parent][2] <= places[node.key][0] for parent in node.parents)
    picture = drawing.graph(nodes)
    assert picture.count('class="edge"') == sum(len(node.parents) for node in nodes)


def test_laws_and_clamping_are_named():
    model, release = wide_model()
    said = {node.key: node.sentence for node in words_of_nodes(model, release, {})}
    assert (
        said["p:spread"] == "spread, unknown, has the prior HalfNormal (scale 1): mean 0.80; 95% between 0.031 and 2.2."
    )
    assert said["p:rate"] == "rate, unknown, has the prior LogNormal given spread, 3 values."
    assert "sum over 20 records" in said["s:sums"]
    assert "is clamped" in said["s:sums"]
    assert "Nothing is clamped" in said["s:plain"]
    assert "simulated by a program" in said["s:other"]
    assert said["r:counts"] == "counts was published: 3 values, made noisy by DiscreteLaplace."


# Many entries, other shapes, folders ----------------------------------------------------------------------------------


def test_long_tables_say_what_is_left_out(seed):
    rng = np.random.default_rng(seed)
    model = nw.Model({"p": dist.Dirichlet(jnp.ones(80))}, {"n": lambda p: dist.Multinomial(500, p)})
    release = nw.Release(n=nw.DiscreteLaplace(scale=1.0).released(rng.poisson(6.0, 80)))
    draws = {"p": rng.dirichlet(np.ones(80), 500), "n": rng.poisson(6.0, (500, 80))}
    source = Report(model, release, drawn(model, release, draws)).html()
    assert "20 more rows" in source
    assert "100 more rows" in source
    assert source.count('class="panel"') == 12


def test_a_release_of_another_shape_than_its_statistic(seed):
    rng = np.random.default_rng(seed)
    model = nw.Model({"m": dist.Normal(0.0, 1.0)}, {"scores": lambda m: dist.Normal(m, 1.0).expand([3])})
    release = nw.Release(scores=nw.ExponentialMechanism(scale=1.0).released(2))
    draws = {"m": rng.normal(size=500), "scores": rng.normal(size=(500, 3))}
    source = Report(model, release, drawn(model, release, draws)).html()
    assert "names a candidate" in source
    assert "Published:" not in source


def test_withheld_values_are_called_so(seed):
    rng = np.random.default_rng(seed)
    mechanism = nw.mechanisms.Thresholded(nw.Laplace(scale=1.0), threshold=5.0)
    model = nw.Model({"m": dist.Normal(0.0, 1.0)}, {"s": lambda m: dist.Normal(m, 1.0)})
    release = nw.Release(s=mechanism.released("suppressed"))
    source = Report(
        model, release, drawn(model, release, {"m": rng.normal(size=500), "s": rng.normal(size=500)})
    ).html()
    assert "withheld" in source
    assert "withheld if below 5" in source


@pytest.fixture(scope="module")
def folder(compared, tmp_path_factory):
    from noisewise.analysis import Analysis, starter
    from noisewise.workflow.reporting import write
    from noisewise.workflow.results import Results

    analysis = Analysis.from_text(starter("count"), "count.toml")
    exact = nw.sample(analysis.model, analysis.release, nw.Rejection(), draws=2_000, seed=1)
    found = Results(analysis, "fit", exact, replace(compared.naive, release_hash=analysis.release.naive().hash))
    folder = tmp_path_factory.mktemp("results") / "count"
    with pytest.MonkeyPatch.context() as patched:  # the folder's picture is another matter: tests/cli
        patched.setattr("noisewise.workflow.folder.plot", lambda *given, **named: Figure())
        write(found, folder)
    return folder


def test_a_results_folder_gets_its_report(folder):
    source = (folder / "report.html").read_text(encoding="utf-8")
    assert "A privatised count" in source
    assert "Gamma(25, 1)" in source
    assert "noisewise fit analysis.toml" in source
    assert "The release is no surprise under the prior" in source
    assert write_report(folder).read_text(encoding="utf-8") == source
    found = report_of(folder)
    assert found.verdict.state == "good"
    probe = probe_of(Problem(found.model, found.release), 1, nw.Threads(), Purpose.CONFLICT_PILOT)
    assert found.conflict == probe.tails


@pytest.mark.long
def test_a_report_finds_of_the_prior_what_a_forecast_finds(folder):
    """A forecast looks at every sampler first."""
    found = report_of(folder)
    assert found.conflict == nw.forecast(found.model, found.release, draws=1_000, seed=1).conflict


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(InputError, match="must be written by 'noisewise fit'"):
        write_report(tmp_path)


# The code -----------------------------------------------------------------------------------------------------------


def _imports(path):
    """Modules and names a file imports, those for type checks included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, each.name) for each in node.names)


def test_imports_of_the_report_point_one_way():
    folder = Path(noise.__file__).parent
    modules = {f"noisewise.report.{path.stem}": path for path in folder.glob("*.py") if path.stem != "__init__"}
    needs = {
        name: {each for pair in _imports(path) for each in (pair[0], ".".join(pair)) if each in modules}
        for name, path in modules.items()
    }
    assert len(list(graphlib.TopologicalSorter(needs).static_order())) == len(modules)


def test_no_private_name_crosses_modules():
    """By text: to parse every file takes a second."""
    several = re.compile(r"^\s*from noisewise[\w.]* import (\([^)]*\)|.*)", re.MULTILINE)

    def private(text):
        return [word for words in several.findall(text) for word in re.findall(r"(?<!as )\b_[a-z]\w*", words)]

    example = "from noisewise.report import a, _b\n    from noisewise import (\n c as _c,\n _d\n)\n"
    assert private(example) == ["_b", "_d"]
    found = {path.name: private(path.read_text(encoding="utf-8")) for path in (ROOT / "src/noisewise").rglob("*.py")}
    assert {name: words for name, words in found.items() if words} == {}


# In a real browser ----------------------------------------------------------------------------------------------------

PAGES = ("good", "hostile", "likelihood")


@pytest.fixture(scope="module")
def pages(report, compared, tmp_path_factory):
    """A good report, and one full of hostile text that may not be used."""
    place = tmp_path_factory.mktemp("pages")
    exact = replace(compared.exact, status="stuck", message=HOSTILE, reason=HOSTILE)
    bad = Report(compared.model, compared.release, exact, question=HOSTILE, title=HOSTILE, inputs={HOSTILE: HOSTILE})
    fits = [
        nw.fit(compared.model, each, start={"theta": 30.0}) for each in (compared.release, compared.release.naive())
    ]
    fitted = FitReport(compared.model, compared.release, fits[0], naive=fits[1], title="A fit")
    found = dict(zip(PAGES, (report, bad, fitted), strict=True))
    return {name: each.save(place / f"{name}.html") for name, each in found.items()}


LOOKS = {f"{scheme}-{name}": (scheme, name) for scheme in ("light", "dark") for name in PAGES}


@pytest.mark.parametrize(
    ("scheme", "name"), brief_rows(LOOKS, ["light-good", "dark-good", "light-hostile", "dark-likelihood"])
)
def test_it_opens_without_errors_requests_or_barriers(chromium, pages, name, scheme, tmp_path):
    with opened(chromium, pages[name], color_scheme=scheme) as watched:
        page = watched.page
        picture(page, kept(f"report-{name}-{scheme}.png", tmp_path), full_page=True)
        assert watched.errors == []
        assert watched.requests == [pages[name].as_uri()]
        assert page.evaluate("typeof window.hacked") == "undefined"
        assert serious_findings(page) == []
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        levels = [int(each) for each in re.findall(r"\d+", background)[:3]]
        assert (sum(levels) < 150) == (scheme == "dark")
        inks = """() => [...document.querySelectorAll("svg text")].map((each) => getComputedStyle(each).fill)"""
        for ink in page.evaluate(inks):  # axe does not look at the text of pictures
            assert (sum(int(each) for each in re.findall(r"\d+", ink)[:3]) > 380) == (scheme == "dark")


def test_axe_finds_barriers_where_there_are_some(chromium, pages, tmp_path):
    broken = tmp_path / "broken.html"
    source = pages["good"].read_text(encoding="utf-8")
    broken.write_text(
        source.replace("--quiet: #57606a", "--quiet: #d8dbe0").replace(' lang="en-GB"', ""), encoding="utf-8"
    )
    with opened(chromium, broken) as watched:
        found = " ".join(serious_findings(watched.page))
    assert "color-contrast" in found
    assert "html-has-lang" in found


@pytest.mark.parametrize("name", briefly(PAGES, ["hostile", "likelihood"]))
def test_a_phone_shows_it_without_sideways_scrolling(chromium, pages, name, tmp_path):
    with opened(chromium, pages[name], viewport=PHONE, device_scale_factor=2, is_mobile=True) as watched:
        picture(watched.page, kept(f"report-{name}-phone.png", tmp_path), full_page=True)
        assert overflow(watched.page) == [0, []]
        assert watched.page.evaluate("document.documentElement.clientWidth") == PHONE["width"]


def test_it_prints(chromium, pages, tmp_path):
    with opened(chromium, pages["good"], color_scheme="dark") as watched:
        path = kept("report.pdf", tmp_path)
        made = watched.page.pdf(path=path, format="A4", margin={"top": "15mm", "bottom": "15mm"})
        assert made.startswith(b"%PDF")
        assert len(made) > 20_000
        watched.page.emulate_media(media="print", color_scheme="dark")
        picture(watched.page, kept("report-print.png", tmp_path), full_page=True)
        assert watched.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not watched.page.locator("nav").is_visible()
        assert watched.page.locator("#replay pre").last.is_visible()


def test_the_keyboard_reaches_everything_in_reading_order(chromium, pages):
    with opened(chromium, pages["good"]) as watched:
        reached = focus_order(watched.page, 60)
        assert reached[0][1] == "Skip to the report"
        assert [place for _, _, place in reached] == sorted(place for _, _, place in reached)
        names = [name for _, name, _ in reached]
        assert names[1] == "The question"
        assert "Graph of the model" in names
        assert "Command" in names
        count = watched.page.locator("a, summary, [tabindex='0']").count()
        assert len(reached) == count
        watched.page.keyboard.press("Shift+Tab")
        watched.page.evaluate("document.activeElement.blur()")
        watched.page.locator(".skip").focus()
        watched.page.keyboard.press("Enter")
        assert watched.page.evaluate("document.activeElement.id") == "content"


@pytest.mark.parametrize(
    ("name", "pictures", "told"),
    [("good", 3, ("Exact: mean", "Naive: mean")), ("likelihood", 4, ("Exact: 37.2", "Naive: 37.4"))],
)
def test_every_picture_has_a_name_and_a_description(chromium, pages, name, pictures, told):
    with opened(chromium, pages[name]) as watched:
        named = watched.page.evaluate(
            """() => [...document.querySelectorAll('svg, img')].map((e) => (e.getAttribute('aria-labelledby') || '')
                .split(' ').map((id) => document.getElementById(id)?.textContent || ''))"""
        )
        assert len(named) == pictures  # the graph, then one for each quantity, then the climb
        assert all(len(texts) == 2 and all(texts) for texts in named)
        assert all(each in named[1][1] for each in told)


# Does the model fit? ------------------------------------------------------------------------------------------------


def test_the_section_on_the_fit_has_the_p_values_of_the_replicates(seed):
    law = lambda theta: dist.Normal(theta, np.ones(4)).to_event(1)  # noqa: E731
    model, value, rng = (
        nw.Model({"theta": dist.Normal(0.0, 3.0)}, {"count": law}),
        [-4.0, 5.0, 1.0, -1.0],
        np.random.default_rng(seed),
    )
    release = nw.Release(count=nw.Gaussian(scale=1.0).released(value))
    sharpness = 1 / 9 + 4 / 2  # all is normal: the posterior in closed form
    theta = rng.normal(sum(value) / 2 / sharpness, sharpness**-0.5, 1_000)
    count = rng.normal((theta[:, None] + value) / 2, 0.5**0.5)
    posterior = drawn(model, release, {"theta": theta, "count": count})
    replicates = posterior.replicate(model, release, seed=1)
    page = Report(model, release, posterior, replicates=replicates).html()
    assert "Does the model fit?" in page
    section = page[page.index('id="check"') :]
    assert "spread of count" in section
    assert "of 6 values" in section.lower()
    for label, row in replicates.p_values().iterrows():
        assert label in section
        assert number(row["mean"], 4) in section
    assert "Does the model fit?" not in Report(model, release, posterior).html()


def test_a_naive_run_that_fell_short_is_said_where_its_numbers_are_used(compared):
    assert not any("fell short" in said for said in Report.of(compared).short)
    doubtful = replace(compared.naive, status="divergent", message="3 divergences")
    said = Report.of(compared, naive=doubtful).short
    assert any("that run itself fell short. Parts of the answer may be missing." in each for each in said)


def test_draws_that_all_agree_do_not_make_sure():
    """Of 300 draws without a miss, one in a hundred may still be missed with probability (1 - 1/100)^300, about 5%."""
    assert percent(1.0) == "more than 99.9%"
    assert percent(0.0, 10_000) == "less than 0.1%"
    assert percent(1.0, 300) == "more than 99%"
    assert percent(0.0, 200) == "less than 1.5%"
    assert (percent(0.9995), percent(0.0005), percent(0.953)) == ("more than 99.9%", "less than 0.1%", "95.3%")
