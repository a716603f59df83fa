"""Tables for papers: fixed columns, the digits that a number deserves, Markdown and LaTeX that others can read."""

import re
import sys

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from posteriors import rates

import noisewise as nw
from noisewise.results.tidy import COLUMNS


@pytest.fixture
def exact():
    return rates()


@pytest.fixture(scope="module")
def fit():
    model = nw.Model({"p_1": dist.Beta(1.0, 1.0)}, {"yes": lambda p_1: dist.Binomial(100, p_1)})
    return nw.fit(model, nw.Release(yes=nw.Exact().released(40)), start={"p_1": 0.5})


def test_columns_are_fixed_and_numbers_are_those_of_the_summary(exact, fit):
    frame = nw.table({"exact": exact, "likelihood": fit}).frame
    assert tuple(frame.columns) == COLUMNS
    assert list(frame["label"]) == ["rate[A&B]", "rate[C|D]", "p_1", "large", "p_1"]
    assert list(frame["kind"]) == ["parameter"] * 3 + ["probability", "parameter"]
    summary, last = exact.summary().loc["rate[C|D]"], frame.iloc[4]
    row = frame.iloc[1]
    assert (row["estimate"], row["sd"], row["mcse"]) == (summary["mean"], summary["sd"], summary["mcse"])
    assert (row["low"], row["high"]) == tuple(end[1] for end in exact.interval()["rate"])
    assert (last["estimate"], last["sd"]) == (fit.estimate["p_1"], fit.standard_error["p_1"])
    assert np.isnan(frame.iloc[3]["low"])


def test_numbers_have_two_figures_of_their_standard_deviation(exact):
    wide = nw.table(exact, level=0.9).wide()[""]
    low, high = (float(end[1]) for end in exact.interval(0.9)["rate"])
    assert wide["rate[C|D]"] == f"{exact['rate'][:, 1].mean():.0f} ({low:.0f} to {high:.0f})"
    assert wide["rate[A&B]"].startswith(f"{exact['rate'][:, 0].mean():.2f} (")
    assert wide["p_1"].startswith(f"{exact['p_1'].mean():.3f} (")
    assert wide["large"] == f"{exact['large'].mean():.3f}"


def test_the_style_of_a_summary_shows_what_a_paper_prints(exact, fit):
    summary = exact.summary()
    assert type(summary.round(2)) is pd.DataFrame  # what is computed from it is a plain table
    rows = re.findall("<tr>(.*?)</tr>", summary.style.to_html(), re.DOTALL)
    head, *cells = [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
    assert head[1:] == list(summary.columns)
    assert [label for label, *_ in cells] == list(summary.index)
    shown = pd.DataFrame([numbers for _, *numbers in cells], index=summary.index, columns=summary.columns)
    row = summary.loc["rate[C|D]"]
    assert list(shown.loc["rate[C|D]"])[:5] == [f"{row[i]:.0f}" for i in ("mean", "sd", "2.5%", "97.5%")] + ["4,000"]
    assert shown.loc["rate[A&B]", "mean"] == f"{exact['rate'][:, 0].mean():.2f}"
    assert shown.loc["p_1", "sd"] == f"{exact['p_1'].std(ddof=0):.3f}"
    assert shown.loc["p_1", "mcse"] == f"{summary.loc['p_1', 'mcse']:.5f}"  # two figures of 0.00077
    assert f"{fit.standard_error['p_1']:.3f}" in fit.summary().style.to_html()


def test_a_summary_in_markdown_and_latex_has_the_numbers_of_its_style(exact, fit):
    summary = exact.summary()
    row = summary.loc["rate[C|D]"]
    cells = [f"{row[i]:.0f}" for i in ("mean", "sd", "2.5%", "97.5%")] + ["4,000", f"{row['mcse']:.2f}"]
    lines = summary.to_markdown().splitlines()
    assert lines[0] == "|  | " + " | ".join(summary.columns) + " |"
    assert lines[3] == "| rate[C\\|D] | " + " | ".join(cells) + " |"
    latex = summary.to_latex()
    assert r" & mean & sd & 2.5\% & 97.5\% & ess & mcse \\" in latex
    assert r"p\_1 & " in latex
    assert r"rate[A\&B] & " in latex
    assert f"{fit.standard_error['p_1']:.3f}" in fit.summary().to_latex()
    assert summary.to_latex(float_format="%.1f") == pd.DataFrame(summary).to_latex(float_format="%.1f")


def test_style_of_chains_and_of_what_has_no_mean():
    told = {"released": {}, "release_hash": "", "sampler": nw.Rejection(), "seed": 1, "chains": 4}
    x = np.random.default_rng(2).standard_cauchy(4_000)
    posterior = nw.Posterior({"x": 1_000.0 * x}, ("x",), **told)
    shown = posterior.summary().style.to_html()
    assert ">1.00<" in shown
    assert "nan" not in shown
    assert f">{posterior.interval()['x'][0]:.0f}<" in shown  # thousands have no four decimals, without an sd too


def test_style_without_jinja_says_what_to_install(exact, monkeypatch):
    summary = exact.summary()
    monkeypatch.setitem(sys.modules, "pandas.io.formats.style", None)
    with pytest.raises(nw.InputError, match="pip install jinja2"):
        _ = summary.style


def test_results_lie_side_by_side(exact, fit):
    wide = nw.table([exact, fit, fit.derive(odds=lambda p_1: p_1 / (1 - p_1))]).wide()
    assert list(wide.columns) == ["model 1", "model 2", "model 3"]
    assert wide.loc["p_1", "model 3"] == ""
    assert wide.loc["odds", "model 3"].startswith("0.67 (")
    assert list(nw.table({"a": exact, "b": fit}, names="p_1").wide().index) == ["p_1"]


def test_markdown_can_be_read_back(exact, fit):
    lines = nw.table({"exact": exact, "likelihood": fit}).to_markdown().splitlines()
    assert lines[0] == "|  | exact | likelihood |"
    assert lines[1] == "| --- | --- | --- |"
    assert len(lines) == 6
    assert all(line.replace("\\|", "").count("|") == 4 for line in lines)
    assert lines[3].startswith("| rate[C\\|D] |")


def test_latex_is_escaped(exact):
    text = nw.table({"100% exact": exact}).to_latex()
    assert r"rate[A\&B] & " in text
    assert r"p\_1 & " in text
    assert r"100\% exact \\" in text
    assert text.startswith("\\begin{tabular}{lr}\n\\toprule")
    assert text.endswith("\\bottomrule\n\\end{tabular}")
    assert text.count(r" \\") == 5


def test_quantities_without_a_mean_have_their_median():
    told = {"released": {}, "release_hash": "", "sampler": nw.Rejection(), "seed": 1}
    x = np.random.default_rng(2).standard_cauchy(4_000)
    found = nw.table(nw.Posterior({"x": x}, ("x",), **told))
    assert found.frame.loc[0, "estimate"] == np.median(x)
    assert "nan" not in found.to_markdown()


REFUSED = {
    "nothing": (lambda p: nw.table({}), "must be a dict or a list of results"),
    "number": (lambda p: nw.table({"a": 3}), "must be a posterior or a fit"),
    "names": (lambda p: nw.table(p, names=["rat"]), "must name what some result has"),
    "level": (lambda p: nw.table(p, level=95), "'level' must lie between 0 and 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_result_is_refused(case, exact):
    ask, message = REFUSED[case]
    with pytest.raises(nw.InputError) as caught:
        ask(exact)
    assert message in str(caught.value)
