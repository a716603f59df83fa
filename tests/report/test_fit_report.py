"""The report of a likelihood fit: its numbers are the fit's, a fit that failed says so, and files give it back."""

import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from targets import count_model, count_release
from test_report import HOSTILE, Outline

import noisewise as nw
from noisewise.analysis import Analysis, starter
from noisewise.errors import InputError
from noisewise.inference.status import FIT
from noisewise.report.likelihood import FitReport, judge
from noisewise.report.markup import number
from noisewise.results import fit_file
from noisewise.results.fit import Fit
from noisewise.workflow.reporting import report_of, write, write_report
from noisewise.workflow.results import plain
from noisewise.workflow.run import NOT_ASKED, fit_results


@pytest.fixture(scope="module")
def fits():
    """Exact and naive fit of the count."""
    return tuple(nw.fit(count_model(), release, start={"theta": 30.0}) for release in (RELEASE, RELEASE.naive()))


RELEASE = count_release()


def said(report):
    return " ".join(Outline(report.html()).words)


def test_the_numbers_are_those_of_the_fits(fits):
    exact, naive = fits
    told = said(FitReport(count_model(), RELEASE, exact, naive=naive, level=0.9))
    for value in (*exact.summary(0.9).loc["theta"], *exact.beside(naive).loc["theta"]):
        assert number(value, 4) in told
    kept = float(exact.efficiency["theta"])
    assert f"keeps about {number(100 * kept, 2)}% of the information about theta" in told
    assert f"{number(kept**-0.5, 2)} times what it would be without noise" in told
    assert "90% interval" in told
    assert "Trust it" in told
    assert "up to rounding" in told


def test_none_but_convergence_is_trusted(fits):
    assert judge(fits[0], 0.95).state == "good"
    others = {name: status for name, status in FIT.items() if name != "converged"}
    for name, status in others.items():
        verdict = judge(replace(fits[0], status=name), 0.95)
        assert verdict.state == "bad"
        assert verdict.checks[0].explanation.startswith(status.meaning)


def test_a_fit_that_failed_is_marked_and_claims_nothing(fits):
    bad = replace(fits[0], status="boundary", message="the estimate of 'theta' runs to the edge.")
    source = FitReport(count_model(), RELEASE, bad, naive=fits[1]).html()
    assert "Do not use" in source
    assert "The estimate of &#x27;theta&#x27; runs to the edge." in source
    assert "short answer" not in source
    assert 'id="cost"' not in source
    assert source.count("These numbers should not be used") == 2  # over the answer, and over naive beside exact


def test_rough_simulation_and_several_tops_need_a_second_look(fits):
    exact, error = fits[0], fits[0].standard_error["theta"]
    assert judge(replace(exact, monte_carlo_error={"theta": 0.01 * error}), 0.95).state == "good"
    assert judge(replace(exact, monte_carlo_error={"theta": 0.5 * error}), 0.95).state == "look"
    several = replace(
        exact, diagnostics={**exact.diagnostics, "multimodal": True}, message="multimodal: 1 of 2 starts."
    )
    assert judge(several, 0.95).state == "look"


def test_standard_errors_that_do_not_exist_do_not_break_it(fits):
    flat = replace(fits[0], covariance=np.full((1, 1), np.nan), status="flat", efficiency={"theta": np.nan})
    source = FitReport(count_model(), RELEASE, flat, naive=fits[1]).html()
    assert 'id="panel0-title"' not in source
    assert "no single top" in source


def test_an_entry_that_is_flat_is_told_without_an_interval(fits):
    """Of two answers in one array, the first is the same whatever the parameters are."""
    asked = nw.Model(
        prior={"theta": dist.Gamma(25.0, 1.0)},
        statistics={"count": lambda theta: dist.Poisson(theta)},
        derived={"more": lambda theta: jnp.stack([theta - theta, 2 * theta])},
    )
    source = FitReport(asked, RELEASE, fits[0], naive=fits[1]).html()
    assert "more[0] is estimated at 0, without an interval: at the estimate it does not change" in source
    assert "more[1] is estimated at" in source


def test_text_stays_text_and_the_page_is_whole(fits):
    given = dict(question=HOSTILE, title=HOSTILE, inputs={HOSTILE: HOSTILE}, replay=HOSTILE, finished=HOSTILE)
    bad = replace(fits[0], message=HOSTILE, status="stalled")
    source = FitReport(count_model(), RELEASE, bad, no_naive=HOSTILE, **given).html()
    assert "<script" not in source
    outline = Outline(source)
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = [attributes["aria-labelledby"] for _, attributes in outline.elements if "aria-labelledby" in attributes]
    assert {each for value in named for each in value.split()} <= set(ids)


def test_parts_that_do_not_belong_together_are_refused(fits):
    with pytest.raises(InputError, match="'fit' must be of this release"):
        FitReport(count_model(), RELEASE.naive(), fits[0])
    with pytest.raises(InputError, match="'fit' must be a Fit"):
        FitReport(count_model(), RELEASE, "fit")
    with pytest.raises(InputError, match="'level'"):
        FitReport(count_model(), RELEASE, fits[0], level=1.0)


# Files --------------------------------------------------------------------------------------------------------------


def written(fit):
    return json.loads(json.dumps(plain(fit_file.to_data(fit)), allow_nan=False))


def test_a_fit_comes_back_from_its_data():
    """Vectors, entries that are not numbers, no information, Monte Carlo errors."""
    shares, estimator = np.array([0.5, 0.3, 0.2]), nw.MCEM()
    fit = Fit(
        {"p": shares, "size": np.array(40.0)},
        ("p[0]", "p[1]", "p[2]", "size"),
        covariance=np.diag([0.1, 0.2, np.nan, 4.0]),
        information=None,
        score=np.array([1e-300, 0.1 + 0.2]),
        log_likelihood=-np.inf,
        estimator=estimator,
        seed=7,
        release_hash="abc",
        status="flat",
        message="flat.",
        efficiency={"p": shares, "size": np.array(np.inf)},
        monte_carlo_error={"p": shares / 100, "size": np.array(0.1)},
        trace=({"iteration": 0, "p": shares, "size": np.array(39.0)},),
    )
    again = fit_file.from_data(written(fit), estimator, "fit.json")
    assert again.summary().equals(fit.summary())
    assert (again.labels, again.status, again.message, again.seed) == (fit.labels, "flat", "flat.", 7)
    assert again.information is None
    assert np.isnan(again.log_likelihood)  # JSON holds numbers only
    np.testing.assert_array_equal(again.score, fit.score)
    np.testing.assert_array_equal(again.trace[0]["p"], shares)
    np.testing.assert_array_equal(again.efficiency["p"], shares)


WRONG = [
    (key, value)
    for key in ("format", "labels", "estimate", "covariance", "trace", "status", "versions")
    for value in (None, 3, "x", [], {"theta": "x"})
    if (key, str(value)) not in [("trace", "[]"), ("status", "x"), ("versions", "{'theta': 'x'}")]
]


def test_data_that_is_no_fit_is_refused(fits):
    content = written(fits[0])
    fit_file.from_data(content, nw.EM(), "fit.json")
    for key, value in WRONG:
        with pytest.raises(InputError, match=r"fit\.json: not a fit"):
            fit_file.from_data(content | {key: value}, nw.EM(), "fit.json")


def test_a_folder_of_a_fit_gets_its_report(tmp_path):
    analysis = Analysis.from_text(starter("count") + "\n[likelihood]\nstart = { theta = 30.0 }\n", "count.toml")
    results = fit_results(analysis, "mle", progress=False)
    folder = tmp_path / "count-mle"
    write(results, folder)
    source = (folder / "report.html").read_text(encoding="utf-8")
    assert "A privatised count" in source
    assert "noisewise mle analysis.toml" in source
    assert write_report(folder).read_text(encoding="utf-8") == source
    found = report_of(folder)
    assert isinstance(found, FitReport)
    assert found.fit.beside(found.naive).equals(results.compared())
    assert number(float(results.naive_fit.estimate["theta"]), 4) in source
    (folder / "fit.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        write_report(folder)


def test_a_fit_without_a_naive_one_says_why(fits):
    told = said(FitReport(count_model(), RELEASE, fits[0], no_naive=NOT_ASKED))
    assert "There is no naive analysis to set beside the exact one: it was not asked for." in told
