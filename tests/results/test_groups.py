"""Groups for ArviZ: densities against sums written here, leave-one-out against its exact value, simulations."""

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from scipy import special, stats

import noisewise as nw
from noisewise.errors import InputError

VALUES = np.array([12.5, 7.0, 19.25, 10.0])
SCALE = 3.0
MODEL = nw.Model(
    prior={"rate": dist.Gamma(4.0, 0.5)}, statistics={"count": lambda rate: dist.Poisson(rate).expand((4,))}
)
RELEASE = nw.Release(count=nw.Laplace(scale=SCALE).released(VALUES, coords={"town": ["a", "b", "c", "d"]}))


def log_sums(rate):
    """log likelihood of every entry: (rates, entries)."""
    k = np.arange(150)[:, None, None]
    terms = stats.poisson.logpmf(k, np.reshape(rate, (-1, 1))) + stats.laplace.logpdf(VALUES - k, scale=SCALE)
    return special.logsumexp(terms, axis=0)


@pytest.fixture(scope="module")
def posterior():
    return nw.sample(MODEL, RELEASE, nw.Importance(collapse=True), draws=4000, seed=1)


@pytest.fixture(scope="module")
def tree(posterior):
    return posterior.to_arviz(MODEL, RELEASE, prior=True, posterior_predictive=True)


def test_densities_are_those_of_model_and_release(tree):
    rate = tree["posterior"]["rate"].values.ravel()[:50]
    found = tree["log_likelihood"]["count"]
    assert found.dims == ("chain", "draw", "town")
    assert list(found.town.values) == ["a", "b", "c", "d"]
    assert np.allclose(found.values.reshape(-1, 4)[:50], log_sums(rate), rtol=0, atol=1e-10)
    prior = tree["log_prior"]["rate"].values.ravel()[:50]
    assert np.allclose(prior, stats.gamma.logpdf(rate, 4.0, scale=2.0), rtol=0, atol=1e-10)
    lp = tree["sample_stats"]["lp"].values.ravel()[:50]
    assert np.allclose(lp, log_sums(rate).sum(axis=1) + prior, rtol=0, atol=1e-9)
    assert "not of each person" in tree.attrs["log_likelihood"]


def test_simulations_have_the_law_of_the_model(tree):
    predicted = tree["posterior_predictive"]["count"].values.reshape(-1, 4)
    rate = tree["posterior"]["rate"].values.ravel()
    error = predicted - rate[:, None]
    assert np.all(np.abs(error.mean(axis=0)) < 5.0 * error.std(axis=0) / np.sqrt(len(rate)))
    assert np.isclose(error.var(), rate.mean() + 2.0 * SCALE**2, rtol=0.1)
    simulated = tree["prior"]["rate"].values.ravel()
    assert stats.kstest(simulated, stats.gamma(4.0, scale=2.0).cdf).pvalue > 1e-6


def test_leaving_one_out_is_exact(posterior, tree):
    """The expected log density of each release given the others, by quadrature over the rate.

    Its Monte Carlo error is that of means of 1 / density, to first order. Negative control: nothing is left out.
    """
    arviz_stats = pytest.importorskip("arviz_stats")
    rates = np.linspace(0.01, 60.0, 3000)
    sums = log_sums(rates)
    prior = stats.gamma.logpdf(rates, 4.0, scale=2.0)
    total = special.logsumexp(prior + sums.sum(axis=1))
    truth = sum(total - special.logsumexp(prior + np.delete(sums, i, axis=1).sum(axis=1)) for i in range(4))
    densities = np.exp(tree["log_likelihood"]["count"].values.reshape(-1, 4))
    inverse = 1.0 / densities
    error = (inverse / inverse.mean(axis=0)).sum(axis=1).std() * np.sqrt(np.sum(posterior.weights**2))
    assert abs(arviz_stats.loo(tree).elpd - truth) < LIMIT * error
    assert abs(np.log(densities.mean(axis=0)).sum() - truth) > LIMIT * error
    assert arviz_stats.psense_summary(tree) is not None


@pytest.mark.parametrize("picture", ["plot_loo_pit", "plot_ppc_dist", "plot_ppc_tstat", "plot_psense_dist"])
def test_pictures_of_arviz_are_drawn(tree, picture, tmp_path):
    arviz_plots = pytest.importorskip("arviz_plots")
    try:
        drawn = getattr(arviz_plots, picture)(tree, backend="matplotlib")
    except TypeError as error:  # arviz-plots before 1.0 draws no grid at all with xarray from 2026 on
        if "Passing a Dataset" not in str(error) or int(arviz_plots.__version__.split(".")[0]) > 0:
            raise
        pytest.skip(f"arviz-plots {arviz_plots.__version__} does not work with the xarray that is installed")
    drawn.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_another_release_is_refused(posterior):
    other = nw.Release(count=nw.Laplace(scale=SCALE).released(VALUES + 1.0))
    with pytest.raises(InputError, match="must be the one that the draws come from"):
        posterior.to_arviz(MODEL, other)
    with pytest.raises(InputError, match="must be a noisewise Model"):
        posterior.to_arviz(release=other, prior=True)
    assert "log_likelihood" in posterior.to_arviz(log_likelihood=True)


def test_what_has_no_density_entry_by_entry_is_named():
    model = nw.Model(
        prior={"share": dist.Beta(2.0, 2.0)},
        statistics={"total": nw.Total({"x": lambda share: dist.Bernoulli(share)}, lambda x: x, n=20)},
    )
    release = nw.Release(total=nw.Laplace(scale=1.0).released(12.5))
    tree = nw.sample(model, release, nw.Rejection(), draws=200, seed=1).to_arviz(model, release)
    assert tree.attrs["without_log_likelihood"] == ["total"]
    assert "log_likelihood" not in tree.children
    assert "log_prior" in tree.children
