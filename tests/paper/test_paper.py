"""The paper's results: exact values against independent ones, and a reduced run held to its Monte Carlo errors."""

import json
from dataclasses import replace
from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pytest
from exactness import LIMIT, agrees
from matplotlib.figure import Figure
from scipy import special, stats
from targets import briefly

import noisewise as nw
from noisewise.paper import REDUCED, count, exact, figures, lalonde, reproduce, write
from noisewise.paper.numbers import FALSE_ALARM, Number, quantile_limits, share_limits, spread_limits


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


by_alpha = cache(exact.Count)
"""One of each for all tests: its moments are integrals that take half a second."""


def test_quadrature_is_the_reference(count_reference):
    for alpha, entry in count_reference["by_alpha"].items():
        found = by_alpha(alpha=float(alpha))
        assert np.log(found.evidence) == pytest.approx(entry["log_evidence"], abs=1e-10)
        assert found.acceptance_rate == pytest.approx(entry["acceptance_rate"], rel=1e-10)
        assert found.mean == pytest.approx(entry["mean"], rel=1e-10)
        assert found.sd == pytest.approx(entry["sd"], rel=1e-10)
        for level, quantile in entry["quantiles"].items():
            assert float(found.cdf(quantile)) == pytest.approx(float(level), abs=1e-6)
    estimate, information = by_alpha().maximum
    assert estimate == pytest.approx(count_reference["maximum_likelihood"]["estimate"], abs=1e-6)
    assert information == pytest.approx(count_reference["maximum_likelihood"]["observed_information"], rel=1e-5)


@pytest.mark.parametrize("alpha", [2.0, 25.0, 75.0])
def test_quadrature_is_the_sum_over_the_confidential_count(alpha):
    """Another way: the count is negative binomial, and theta given the count is Gamma(alpha + count, 2)."""
    s = np.arange(2_000)
    weight = stats.nbinom.pmf(s, alpha, 0.5) * 0.1 * np.exp(-0.2 * np.abs(37.4 - s))
    found = by_alpha(alpha=alpha)
    assert found.evidence == pytest.approx(weight.sum(), rel=1e-11)
    weight /= weight.sum()
    shape, mean = alpha + s, found.mean
    assert mean == pytest.approx(weight @ (shape / 2), rel=1e-11)
    assert found.sd**2 == pytest.approx(weight @ (shape / 4 + (shape / 2 - mean) ** 2), rel=1e-10)
    gap = shape / 2 - mean
    fourth = 3 * shape * (shape + 2) / 16 + 4 * gap * (shape / 4) + 6 * gap**2 * (shape / 4) + gap**4
    assert found.kurtosis == pytest.approx(weight @ fourth / found.sd**4 - 3, abs=1e-9)


@cache
def by_quadrature(released):
    return exact.Lalonde(released).posterior


@pytest.mark.parametrize("case", briefly(["true_statistic", "noisy_a"], ["true_statistic"]))
def test_lalonde_by_quadrature_is_the_reference(case, lalonde_reference):
    entry = lalonde_reference[case]
    found = by_quadrature(tuple(entry["released"]))
    for name, truth in entry["posterior"].items():
        assert abs(found[name].mean - truth["mean"]) < 4.9 * truth["mcse_of_mean"], name
        size = (truth["sd"] / truth["mcse_of_mean"]) ** 2
        for level, quantile in truth["quantiles"].items():
            reached = np.interp(quantile, found[name].points, found[name].cdf)
            p = float(level)
            assert abs(reached - p) < 4.9 * np.sqrt(p * (1 - p) / size) + 1e-5, (name, level)


def test_lalonde_without_noise_by_quadrature(seed):
    """By importance sampling from the posterior under flat priors, which weights turn into the paper's."""
    observed, sizes, n = (6.3491435, 4.554801, 61.89601, 30.072458), (185, 260), 400_000
    rng = np.random.default_rng(seed)
    sigma = [
        np.sqrt(variance * (size - 1) / rng.chisquare(size - 1, n))
        for variance, size in zip(observed[2:], sizes, strict=True)
    ]
    means = [rng.normal(observed[i], sigma[i] / np.sqrt(sizes[i])) for i in (0, 1)]
    tau, mu = means[0] - means[1], means[1]
    log_weight = stats.norm.logpdf(tau, 0, 5) + stats.norm.logpdf(mu, 4, 5)
    log_weight += sum(np.log(one) + stats.gamma.logpdf(one, 2, scale=5) for one in sigma)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    found = exact.Noiseless(observed).posterior
    values = {"tau": tau, "mu": mu, "sigma_t_squared": sigma[0] ** 2, "sigma_c_squared": sigma[1] ** 2}
    for name, column in values.items():
        for level in lalonde.LEVELS:
            below = column <= found[name].quantile(level)
            share = weight @ below
            error = np.sqrt(weight**2 @ (below - share) ** 2)
            assert abs(share - level) < LIMIT * error, (name, level)


@pytest.mark.parametrize("case", briefly(["true_statistic", "noisy_a"], ["noisy_a"]))
def test_exact_fits_match_the_reference(case, lalonde_reference, seed):
    entry = lalonde_reference[case]
    posterior = nw.sample(
        lalonde.groups_model(), lalonde.published_statistics(entry["released"]), nw.Rejection(), draws=20_000, seed=seed
    )
    for name, values in lalonde.quantities(posterior).items():
        truth = entry["posterior"][name]
        assert agrees(values, truth["mean"], truth["mcse_of_mean"]), name
        size = (truth["sd"] / truth["mcse_of_mean"]) ** 2
        for level, quantile in truth["quantiles"].items():
            below = values <= quantile
            p = float(level)
            assert abs(below.mean() - p) < LIMIT * np.sqrt(p * (1 - p) * (1 / size + 1 / len(values))), (name, level)


def test_verdicts():
    right = Number("s", "x", ours=1.001, error=0.001, exact=1.0, paper=1.02, printed=0.01, paper_error=0.01)
    assert right.verdict == "ours agrees with the exact value; the paper agrees"
    assert right.holds
    assert not replace(right, ours=1.01).holds
    assert "the paper differs" in replace(right, paper=1.2).verdict


def test_limits_are_left_once_in_a_million():
    low, high = share_limits(9.3e-4, 40_000)
    count = stats.binom(40_000, 9.3e-4)
    for tail in (count.cdf(low * 40_000 - 0.5), count.sf(high * 40_000 + 0.5)):
        assert 0 < tail <= FALSE_ALARM / 2
    for level, draws in [(0.01, 2_000), (0.5, 301), (0.99, 10_000)]:
        low, high = quantile_limits(level, draws)
        rank = 1 + level * (draws - 1)
        # the k-th of n uniform variates is below x if at least k of them are
        assert stats.binom.sf(np.floor(rank) - 1, draws, low) == pytest.approx(FALSE_ALARM / 2, rel=1e-6)
        assert stats.binom.cdf(np.ceil(rank) - 1, draws, high) == pytest.approx(FALSE_ALARM / 2, rel=1e-6)
    low, high = spread_limits(2.0, 0.0, 20)
    assert stats.chi2.cdf(19 * (low / 2) ** 2, 19) == pytest.approx(FALSE_ALARM / 2, rel=1e-6)
    assert stats.chi2.sf(19 * (high / 2) ** 2, 19) == pytest.approx(FALSE_ALARM / 2, rel=1e-6)


SHORTER = nw.Staged(sizes=(10**3, 10**4), tolerances=(1e-2, 1e-3))
SMALL = replace(REDUCED, draws=500, repetitions=2, staged=SHORTER, fits=1)
"""As a reduced run, with a shorter climb and one fit of each kind."""


@pytest.fixture(scope="module")
def reduced(request):
    told = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(count, "Count", by_alpha)
        found = reproduce(SMALL, seed=3 + request.config.getoption("--seed-offset"), progress=told.append)
    assert len(told) > 10
    return found


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
    assert sum(number.section == "Figure 3" for number in reduced.numbers) == 3 * SMALL.fits * 20


def test_a_wrong_number_would_be_caught(reduced):
    """Negative controls: the naive posterior's mean in place of the exact one's, draws of the wrong posterior, naive
    fits that claim to be exact and exact ones that claim to be naive."""
    number = next(n for n in reduced.numbers if n.label == "Gamma(25, 1): posterior mean")
    assert not replace(number, ours=(25 + 37.4) / 2).holds
    wrong = replace(reduced.panels[25.0], draws=reduced.panels[50.0].draws)
    assert not all(n.holds for n in count.figure_numbers({25.0: wrong}))
    posteriors = reduced.lalonde.posteriors
    swapped = replace(reduced.lalonde, posteriors={"naive": posteriors["exact"][:1], "exact": posteriors["naive"][:1]})
    caught = {n.label.split(":")[0] for n in lalonde.numbers(swapped) if not n.holds}
    assert len(caught) == 8  # every parameter, both ways


def test_figure_3_shows_what_the_paper_says(reduced, lalonde_reference):
    """Exact fits are wider than naive ones for every parameter; at the confidential values tau is positive, and from a
    release with the same values nothing can be said of its sign."""
    found = reduced.lalonde.quantiles
    for name in lalonde.QUANTITIES:
        width = {analysis: found[analysis][name][:, 4] - found[analysis][name][:, 0] for analysis in found}
        assert np.all(width["exact"] > width["naive"])
    values = tuple(lalonde_reference["true_statistic"]["released"])
    assert exact.Noiseless(values).posterior["tau"].quantile(0.01) > 0
    private = by_quadrature(values)["tau"]
    assert private.quantile(0.25) < 0 < private.quantile(0.75)


def test_each_fit_of_figure_3_is_labelled_once(reduced):
    figure = figures.lalonde_figure(reduced.lalonde)
    labels = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    plt.close(figure)
    assert labels == [str(fit + 1) for fit in range(SMALL.fits)]


def test_everything_is_written(reduced, tmp_path, monkeypatch):
    """One picture as a bitmap too: to draw each of them twice takes as long as all else here."""
    save = Figure.savefig

    def bitmap_once(figure, file, **settings):
        if file.name in ("figure-2.png", "figure-3.png", "stages.png"):
            file.touch()
        else:
            save(figure, file, **settings)

    monkeypatch.setattr(Figure, "savefig", bitmap_once)
    written = write(reduced, tmp_path / "out")
    names = {path.name for path in written}
    for stem in ("figure-1", "figure-2", "figure-3", "stages"):
        assert {f"{stem}.png", f"{stem}.svg"} <= names
    rows = json.loads((tmp_path / "out" / "table-1.json").read_text())
    assert [row["prior"] for row in rows] == [f"Gamma({alpha}, 1)" for alpha in (2, 5, 25, 50, 75)]
    assert (tmp_path / "out" / "figure-1.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out" / "paper.html").read_text()
    assert "<strong>Every number of ours" in page
    for outside in ("http://", "https://", "<script", "src="):
        kept = (
            page.replace("http://www.w3.org/", "")
            .replace("http://purl.org/", "")
            .replace("http://creativecommons.org/", "")
        )
        kept = kept.replace("https://matplotlib.org", "")
        assert outside not in kept, outside
    assert page.count("role='img'") == 4


def test_the_page_says_what_is_wrong(reduced):
    from noisewise.paper import page

    wrong = replace(reduced.numbers[0], ours=1e3)
    pictures = dict.fromkeys(("figure-1", "figure-2", "figure-3", "stages"), "<svg></svg>")
    text = page.document([wrong, *reduced.numbers[1:]], [rate.row() for rate in reduced.rates], pictures, "")
    assert "<strong>NOT every number of ours" in text
    assert "OURS DIFFERS" in text


def test_a_folder_that_cannot_be_written_is_refused(reduced, tmp_path, monkeypatch):
    monkeypatch.setattr("noisewise.paper._pictures", lambda found: {"figure-1": plt.figure()})
    (tmp_path / "file").write_text("")
    with pytest.raises(nw.InputError, match=r"paper: 'out' must be a folder"):
        write(reduced, tmp_path / "file")
    (tmp_path / "out" / "figure-1.png").mkdir(parents=True)
    with pytest.raises(nw.InputError, match=r"paper: 'out' must be a folder"):
        write(reduced, tmp_path / "out")
