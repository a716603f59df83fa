"""Every Python block of the README and the docs runs, page by page, and prints what the page says it prints."""

import os
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from exactness import FALSE_ALARM
from scipy import stats

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if "derivations" not in page.parts)]
DATA = sorted((ROOT / "docs/data").iterdir())
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


def name_of(page):
    return page.relative_to(ROOT).as_posix()


SLOW = (
    *("augmentation", "augmentation-totals", "smc", "nuts", "likelihood", "likelihood-intervals", "likelihood-scale"),
    *("census-tracts", "county-counts", "noise-on-every-row", "choosing-epsilon", "regression", "model-check"),
    *("randomised-response", "numpyro-model", "withheld-days", "two-counties", "measurements"),
    *("two-arm-trial", "county-regression", "line-from-sums", "which-release", "answers", "processed", "everyday"),
    *("noisy-mean", "engines", "calibrate", "labels", "how-to-choose", "importance", "messages", "report", "response"),
    *("model-language", "design"),
)
"""Pages whose blocks run only with --long (`make test-long`)."""
RUN = [
    pytest.param(page, marks=[pytest.mark.long] * (page.stem in SLOW) + [pytest.mark.quick] * (page.stem == "README"))
    for page in PAGES
]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_code_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    for file in DATA:  # what a page offers for download lies beside the reader
        shutil.copy(file, tmp_path)
    namespace = {"__name__": "__main__"}
    printed = ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, (kind, block) in enumerate(BLOCK.findall(page.read_text())):
            if kind == "python":
                exec(compile(block, f"{page.name}, block {number + 1}", "exec"), namespace)
                printed = capsys.readouterr().out
            else:  # output shown in a page is what the block before it prints
                assert block.split() == printed.split(), f"{page.name}, block {number + 1}"


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], ids=name_of)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert os.path.exists(page.parent / target), f"{page.name} links to {target}"


def test_printed_output_can_be_brought_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import printed

    page = (
        "A\n\n```python\nx = 2\nprint(x)\n```\n\n```text\n{}\n```\n\n```python\nprint(x + 1)\n```\n\n```text\n3\n```\n"
    )
    assert printed.brought_up_to_date(page.format(1), "page") == page.format(2)
    assert printed.brought_up_to_date(page.format(2), "page") == page.format(2)


@pytest.mark.long
@pytest.mark.parametrize("page", sorted((ROOT / "docs/tutorials").glob("no-code-*.md")), ids=name_of)
def test_pages_without_code_show_what_their_commands_print(page, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    monkeypatch.chdir(tmp_path)
    import printed

    assert printed.typed_anew(page.read_text()).split() == page.read_text().split()


def blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def test_commands_and_targets_that_pages_name_exist():
    from noisewise.cli import app

    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        typed = "\n".join(_commands(page))
        named = set(re.findall(r"^(?:\$ )?(?:python -m )?noisewise ([a-z]+)(?![a-z,])", typed, re.MULTILINE))
        made = set(re.findall(r"^make ([a-z][\w-]*)", typed, re.MULTILINE))
        assert named <= commands, f"{page.name}: {named - commands}"
        assert made <= targets, f"{page.name}: {made - targets}"


def _commands(page):
    """What a page tells the reader to type: lines of shell blocks, and code within the text."""
    text = page.read_text()
    shell = re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [line for block in shell for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", prose)


def test_analyses_in_the_docs_are_read():
    from noisewise.analysis import Analysis

    whole, sums = blocks("docs/analysis-file.md", "toml")
    assert list(Analysis.from_text(whole, "whole.toml").model.statistics) == ["count"]
    around = """
[parameters]
mu = "Normal(3, 1)"
sigma = "HalfNormal(1)"
[release.income]
value = 3000.0
mechanism = "Laplace"
scale = 60.0
"""
    assert list(Analysis.from_text(around + sums, "sums.toml").model.statistics) == ["income"]


def test_designs_in_the_docs_are_read():
    from noisewise.analysis import DesignFile

    whole, people = blocks("docs/design.md", "toml")
    assert DesignFile.from_text(whole).design.options["budgets"] == (0.05, 2.0)
    asked = whole.replace("budgets = [0.05, 2.0]", "").replace('"Poisson(theta)"', '"Poisson(n * theta / 50)"')
    assert DesignFile.from_text(asked + people).design.people["sizes"] == (50, 5000)


def test_the_plan_in_the_docs_makes_a_release(tmp_path):
    pytest.importorskip("opendp")
    from noisewise import curator

    [plan] = blocks("docs/curators.md", "toml")
    (tmp_path / "plan.toml").write_text(plan)
    rows = ["smokes,age,region,ever_used", "yes,30,north,no", "no,51,west,yes", "no,44,south,no"]
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")
    release = curator.release_file(tmp_path / "people.csv", tmp_path / "plan.toml")
    assert list(release) == ["smokers", "age", "regions", "drugs"]


def test_the_example_of_a_mechanism_is_one(seed):
    """CONTRIBUTING's logistic noise: its sampler has its density, and its supremum bounds it."""
    namespace = {}
    exec(compile(blocks("CONTRIBUTING.md", "python")[0], "CONTRIBUTING.md", "exec"), namespace)
    noise = namespace["Logistic"](epsilon=0.5, sensitivity=1.0)
    assert noise.scale == 2.0
    drawn = noise.sample(np.random.default_rng(seed), np.full(20_000, 3.0))
    assert stats.kstest(drawn, stats.logistic(3.0, 2.0).cdf).pvalue > FALSE_ALARM
    points = np.linspace(-20.0, 20.0, 41)
    assert noise.log_prob(points, 3.0) == pytest.approx(stats.logistic(3.0, 2.0).logpdf(points))
    assert np.all(noise.log_prob(points, 3.0) <= noise.log_sup(points) + 1e-12)


def test_the_message_in_contributing_is_the_one_given():
    import noisewise as nw

    [shown] = [block for block in blocks("CONTRIBUTING.md", "text") if block.startswith("Laplace")]
    with pytest.raises(nw.InputError) as caught:
        nw.Laplace(scale=-1.0)
    assert str(caught.value) == shown.strip()


def test_the_readme_tells_what_the_demo_prints():
    """The sentence under the picture, number by number."""
    import noisewise as nw
    from noisewise.paper import count

    found = nw.compare(count.count_model(25.0), count.published_count(), draws=10_000, seed=1)
    line, readme = found.table().loc["theta"], (ROOT / "README.md").read_text()
    low, high = found.exact.interval(0.95)["count"]
    for told in (
        f"a 95% interval for the rate of {line['naive 2.5%']:.1f} to {line['naive 97.5%']:.1f}.",
        f"{line['exact 2.5%']:.1f} to {line['exact 97.5%']:.1f}: {line['wider']:.2f} times as wide",
        f"with its centre {-line['shift']:.2f} naive standard deviations lower",
        f"95% interval of the confidential count is {low:.0f} to {high:.0f}.",
    ):
        assert told in readme, told


def test_derivations_and_code_name_each_other():
    for page in (ROOT / "docs/derivations").glob("*.md"):
        sources = re.findall(r"\]\(\.\./\.\./(src/noisewise/[\w/]+\.py)\)", page.read_text())
        if page.name == "index.md":
            continue
        assert sources, f"{page.name} names no source file"
        naming = [source for source in sources if f"docs/derivations/{page.name}" in (ROOT / source).read_text()]
        assert naming, f"none of {sources} names {page.name}"


def test_every_derivation_is_listed():
    """In the index, or in the row of its sampler."""
    index, overview = ((ROOT / "docs" / page).read_text() for page in ("derivations/index.md", "samplers.md"))
    pages = [page.name for page in (ROOT / "docs/derivations").glob("*.md") if page.name != "index.md"]
    assert not [name for name in pages if f"({name})" not in index and f"(derivations/{name})" not in overview]


def test_every_mechanism_is_documented():
    from noisewise.mechanisms import CATALOGUE

    pages = [ROOT / "docs/mechanisms.md", *(ROOT / "docs/mechanisms").glob("*.md")]
    text = "".join(page.read_text() for page in pages)
    own = [name for name, kind in CATALOGUE.items() if kind.__module__.startswith("noisewise.")]
    assert not [name for name in own if name not in text]


def test_every_public_name_is_in_the_reference(monkeypatch):
    import noisewise as nw
    from noisewise.mechanisms import CATALOGUE

    monkeypatch.syspath_prepend(ROOT / "docs" / "theme")
    hooks = pytest.importorskip("hooks", reason="mkdocs is in the dev extra")
    reference = "".join(hooks.listed(page.read_text()) + "\n" for page in (ROOT / "docs/reference").glob("*.md"))
    stated = set(re.findall(r"^::: noisewise\.(?:\w+\.)*(\w+)$", reference, re.MULTILINE))
    stated |= set(re.findall(r"\w+Error|\w+Warning", reference))
    assert set(nw.__all__) - {"__version__", "mechanisms", "sources"} <= stated
    assert {name for name, kind in CATALOGUE.items() if kind.__module__.startswith("noisewise.")} <= stated


def test_every_sampler_has_its_page_with_claim_assumptions_and_proof():
    pages = list((ROOT / "docs/samplers").glob("*.md"))
    assert len(pages) >= 8
    overview = (ROOT / "docs/samplers.md").read_text()
    for page in pages:
        text = page.read_text()
        assert all(word in text for word in ("**Claim.**", "**Assumptions.**", "**Use it**", "(../derivations/")), page
        assert f"(samplers/{page.name})" in overview


def test_made_up_files_are_what_their_scripts_make(tmp_path, monkeypatch):
    import pandas as pd

    monkeypatch.syspath_prepend(ROOT / "scripts")
    import county_file
    import tract_file

    county_file.main(tmp_path)
    tract_file.main(tmp_path)
    made = sorted(tmp_path.iterdir())
    published = ["census-pl94-person-scales.csv", "wikimedia-views-australia.csv"]
    assert sorted([*published, *(file.name for file in made)]) == [file.name for file in DATA]
    for file in made:
        if file.suffix == ".parquet":  # its bytes tell the version of the package that wrote it
            pd.testing.assert_frame_equal(pd.read_parquet(file), pd.read_parquet(ROOT / "docs/data" / file.name))
        else:
            assert file.read_text() == (ROOT / "docs/data" / file.name).read_text()
