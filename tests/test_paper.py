"""The paper's results: exact values against independent ones, and a reduced run held to its Monte Carlo errors."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from noisewise import datasets
from noisewise.paper import REDUCED, exact, reproduce, write
from noisewise.paper.numbers import Number


@pytest.mark.parametrize("released", [-3.2, -0.4, 0.0, 0.4, 5.0, 37.4, 1e4 + 0.3])
@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_the_analytic_likelihood_is_the_sum_over_counts(released, epsilon):
    theta = np.array([1e-3, 1.0, 10.0, 40.0, 1e3, 1e4, 1.2e4])
    s = np.arange(16_000)
    noise = np.log(0.5 * epsilon) - epsilon * np.abs(released - s)
    by_sum = [special.logsumexp(stats.poisson.logpmf(s, rate) + noise) for rate in theta]
    found = exact.Count(released, epsilon).log_likelihood(theta)
    assert np.all(np.isfinite(found))
    assert found == pytest.approx(np.array(by_sum), rel=1e-9, abs=1e-9)


def test_quadrature_is_the_reference(count_reference):
    for alpha, entry in count_reference["by_alpha"].items():
        found = exact.Count(alpha=float(alpha))
        assert np.log(found.evidence) == pytest.approx(entry["log_evidence"], abs=1e-10)
        assert found.acceptance_rate == pytest.approx(entry["acceptance_rate"], rel=1e-10)
        assert found.mean == pytest.approx(entry["mean"], rel=1e-10)
        assert found.sd == pytest.approx(entry["sd"], rel=1e-10)
        for level, quantile in entry["quantiles"].items():
            assert float(found.cdf(quantile)) == pytest.approx(float(level), abs=1e-6)
    estimate, information = exact.Count().maximum
    assert estimate == pytest.approx(count_reference["maximum_likelihood"]["estimate"], abs=1e-6)
    assert information == pytest.approx(count_reference["maximum_likelihood"]["observed_information"], rel=1e-5)


@pytest.mark.parametrize("case", ["true_statistic", "noisy_a"])
def test_lalonde_by_quadrature_is_the_reference(case, lalonde_reference):
    entry = lalonde_reference[case]
    found = exact.Lalonde(tuple(entry["released"])).posterior
    for name, truth in entry["posterior"].items():
        assert abs(found[name].mean - truth["mean"]) < 4.9 * truth["mcse_of_mean"], name
        size = (truth["sd"] / truth["mcse_of_mean"]) ** 2
        for level, quantile in truth["quantiles"].items():
            reached = np.interp(quantile, found[name].points, found[name].cdf)
            p = float(level)
            assert abs(reached - p) < 4.9 * np.sqrt(p * (1 - p) / size) + 1e-5, (name, level)


def test_the_data_set_is_the_papers():
    sample = datasets.lalonde()
    assert (sample.treated.sum(), (~sample.treated).sum()) == (185, 260)
    assert sample.earnings.max() == pytest.approx(60_300, abs=50)  # "the maximum ... is $60.3k"
    found = sample.statistics()
    assert found["mean_t"] == pytest.approx(6.3491435)
    assert found["mean_c"] == pytest.approx(4.554801, abs=1e-6)
    assert found["var_t"] == pytest.approx(61.89601, abs=1e-4)
    assert found["var_c"] == pytest.approx(30.072458, abs=1e-4)


def test_verdicts():
    right = Number("s", "x", ours=1.001, error=0.001, exact=1.0, paper=1.02, printed=0.01, paper_error=0.01)
    assert right.verdict == "ours agrees with the exact value; the paper agrees"
    assert right.holds
    assert not replace(right, ours=1.01).holds
    assert "the paper differs" in replace(right, paper=1.2).verdict


@pytest.fixture(scope="module")
def reduced():
    return reproduce(REDUCED, seed=3)


@pytest.mark.long
def test_a_reduced_run_holds_the_numbers_to_their_errors(reduced):
    wrong = [number for number in reduced.numbers if not number.holds]
    assert not wrong
    assert reduced.holds
    assert {number.section for number in reduced.numbers} == {
        "Figures 1 and 2",
        "Table 1",
        "Maximum likelihood",
        "Figure 3",
    }
    assert all("the paper agrees" in n.verdict for n in reduced.numbers if n.paper is not None)


@pytest.mark.long
def test_a_wrong_number_would_be_caught(reduced):
    """Negative control: the naive posterior's mean in place of the exact one's."""
    number = next(n for n in reduced.numbers if n.label == "Gamma(25, 1): posterior mean")
    assert not replace(number, ours=(25 + 37.4) / 2).holds


@pytest.mark.long
def test_figure_3_shows_what_the_paper_says(reduced):
    """Exact fits are wider than naive ones for every parameter, and their intervals for tau include zero."""
    found = reduced.lalonde.quantiles
    for name in ("tau", "mu", "sigma_t_squared", "sigma_c_squared"):
        width = {row: np.mean(found[row][name][:, 4] - found[row][name][:, 0]) for row in found}
        assert width["exact"] > 1.5 * width["naive"]
    assert np.all(found["confidential"]["tau"][:, 1] > 0)
    assert np.all(found["exact"]["tau"][:, 0] < 0)


@pytest.mark.long
def test_everything_is_written(reduced, tmp_path):
    written = write(reduced, tmp_path / "out")
    names = {path.name for path in written}
    for stem in ("figure-1", "figure-2", "figure-3", "stages"):
        assert {f"{stem}.png", f"{stem}.svg"} <= names
    rows = json.loads((tmp_path / "out" / "table-1.json").read_text())
    assert [row["prior"] for row in rows] == [f"Gamma({alpha}, 1)" for alpha in (2, 5, 25, 50, 75)]
    page = (tmp_path / "out" / "paper.html").read_text()
    assert "Every number of ours" in page
    for outside in ("http://", "https://", "<script", "src="):
        kept = (
            page.replace("http://www.w3.org/", "")
            .replace("http://purl.org/", "")
            .replace("http://creativecommons.org/", "")
        )
        kept = kept.replace("https://matplotlib.org", "")
        assert outside not in kept, outside
    assert page.count("role='img'") == 4
