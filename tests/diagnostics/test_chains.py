"""Diagnostics of dependent draws, against ArviZ and against processes whose answers are known."""

import arviz_stats  # noqa: F401
import numpy as np
import pytest
from arviz_stats.base import array_stats
from targets import count_model, count_release

import noisewise as nw
from noisewise.diagnostics import chains
from noisewise.results.posterior import Posterior
from noisewise.samplers.judging import judge_chains


def autoregressive(seed, count, length, correlation, scalars=1):
    rng = np.random.default_rng(seed)
    x = np.empty((count, length, scalars))
    x[:, 0] = rng.normal(size=(count, scalars)) / np.sqrt(1 - correlation**2)
    for t in range(1, length):
        x[:, t] = correlation * x[:, t - 1] + rng.normal(size=(count, scalars))
    return x


def columns(x):
    return {"theta": x.reshape(-1, *x.shape[2:])}


@pytest.mark.quick
@pytest.mark.parametrize("correlation", [0.0, 0.8, -0.5])
def test_sizes_and_r_hat_are_those_of_arviz(correlation, seed):
    x = autoregressive(seed, 6, 400, correlation, scalars=3)
    close = 0.02 if correlation >= 0 else 0.1  # antithetic chains: their last term of the sequence is cut otherwise
    x[..., 1] = np.exp(x[..., 1])  # skew
    x[..., 2] = np.round(x[..., 2])  # ties
    for k in range(3):
        one = x[:, :, k]
        assert chains.bulk_size(x)[k] == pytest.approx(array_stats.ess(one, method="bulk"), rel=close)
        tail = array_stats.ess(one, method="tail", prob=(0.05, 0.95))
        assert chains.tail_size(x)[k] == pytest.approx(tail, rel=close)
        assert chains.effective_size(chains.halves(x))[k] == pytest.approx(
            array_stats.ess(one, method="mean"), rel=close
        )
        assert chains.r_hat(x)[k] == pytest.approx(array_stats.rhat(one), rel=1e-6)


def test_effective_size_is_that_of_the_process(seed):
    """An AR(1) process is worth (1 - rho)/(1 + rho) of its draws."""
    x = autoregressive(seed, 64, 1000, 0.6)
    assert chains.effective_size(x)[0] / x.size == pytest.approx(0.25, rel=0.1)


def test_nested_r_hat_asks_whether_superchains_agree(seed):
    x = autoregressive(seed, 256, 40, 0.5)
    assert chains.r_hat(x, 16)[0] < 1.01
    apart = x + np.repeat(np.random.default_rng(seed).normal(size=16), 16)[:, None, None]
    assert chains.r_hat(apart, 16)[0] > 1.2
    # chains that differ one by one, not by start, do not count as disagreement of starts
    means = x.mean(axis=1).reshape(16, 16)
    expected = np.sqrt(
        1
        + means.mean(axis=1).var(ddof=1)
        / (means.var(axis=1, ddof=1) + x.var(axis=1, ddof=1).reshape(16, 16).mean(axis=1)).mean()
    )
    assert chains._r_hat(x, 16)[0] == pytest.approx(expected, rel=1e-9)


def test_islands_are_judged_by_their_means(seed):
    rng = np.random.default_rng(seed)
    independent = rng.normal(size=(400, 50, 1))
    assert chains.island_size(independent)[0] == pytest.approx(20_000, rel=0.4)
    copies = np.repeat(rng.normal(size=(400, 5, 1)), 10, axis=1)  # each particle ten times
    assert chains.island_size(copies)[0] == pytest.approx(2_000, rel=0.4)


def test_verdicts(seed):
    x = autoregressive(seed, 4, 2_000, 0.3)
    assert judge_chains(columns(x), 4, None, 400.0)[0] == "complete"
    still = x.copy()
    still[2] = 1.0
    status, message, numbers = judge_chains(columns(still), 4, None, 400.0)
    assert (status, numbers["stuck_chains"]) == ("stuck", 1)
    assert "chain 2" in message
    status, message, numbers = judge_chains(columns(x + np.arange(4)[:, None, None]), 4, None, 400.0)
    assert status == "disagree"
    assert numbers["r_hat"] > 1.1
    assert "theta[0]" in message
    assert judge_chains(columns(x), 4, None, 1e5)[0] == "low_ess"


@pytest.mark.parametrize("length", [1, 2, 4, 7])
def test_chains_too_short_to_judge_are_low_on_draws(length, seed):
    status, message, numbers = judge_chains(columns(autoregressive(seed, 4, length, 0.3)), 4, None, 1.0)
    assert status == "low_ess"
    assert f"4 chains of {length} draws" in message
    assert "at least 32 draws" in message
    assert numbers == {}
    found = chains.r_hat(autoregressive(seed, 4, length, 0.3))
    assert np.isnan(found[0]) == (length < 4)  # halves of one draw have no spread


def test_a_scalar_that_hardly_varies_is_no_trouble(seed):
    """It varies in the one draw that both halves leave out: no size, no R-hat, and nothing to complain of."""
    x = autoregressive(seed, 4, 801, 0.0, scalars=2)
    x[..., 1] = 0.0
    x[0, 400, 1] = 1.0
    assert judge_chains(columns(x), 4, None, 400.0)[0] == "complete"
    assert judge_chains(columns(x[..., 1:]), 4, None, 400.0)[0] == "stuck"


def test_many_scalars_are_screened_for_the_worst(seed):
    x = autoregressive(seed, 4, 500, 0.0, scalars=600)
    x[0, :, 417] += 1.0
    status, message, _ = judge_chains(columns(x), 4, None, 100.0)
    assert status == "disagree"
    assert "theta[417]" in message


def posterior_of(x, seed):
    fields = dict(parameters=("theta",), released={"count": 37.4}, release_hash=count_release().hash)
    return Posterior(draws=columns(x), sampler=nw.Rejection(), seed=seed, chains=len(x), **fields)


def test_the_worst_entry_speaks_for_a_vector(seed):
    """One entry disagrees, another is slow, and neither comes first."""
    x = autoregressive(seed, 4, 1_000, 0.0, scalars=4)
    x[..., 2] = autoregressive(seed + 1, 4, 1_000, 0.9)[..., 0]
    x[0, :, 1] += 1.0
    status, message, numbers = judge_chains(columns(x), 4, None, 100.0)
    assert status == "disagree"
    assert numbers["r_hat_of"] == "theta[1]"
    assert "theta[1]" in message
    posterior = posterior_of(x, seed)
    assert posterior.r_hat["theta"] == pytest.approx(chains.r_hat(x).max())
    assert posterior.r_hat["theta"] > 1.05
    assert posterior.ess["theta"] == pytest.approx(chains.bulk_size(x).min())
    slow = x[..., [0, 2, 3]]
    status, message, numbers = judge_chains(columns(slow), 4, None, 2_000.0)
    assert (status, numbers["ess_bulk_of"]) == ("low_ess", "theta[1]")


def test_errors_of_means_of_chains_are_their_errors(seed):
    """Squared normal scores of 400 means, each over chains that are worth a quarter of their draws, average to one."""
    x = autoregressive(seed, 8, 400, 0.6, scalars=400)
    table = posterior_of(x, seed).summary()
    scores = table["mean"].to_numpy() / table["mcse"].to_numpy()
    # the size of such chains is found to some percent; as if independent, the average would be four
    assert abs(np.mean(scores**2) - 1.0) < 0.15 + 4.9 * np.sqrt(2.0 / 400)


@pytest.fixture
def from_chains(seed):
    x = autoregressive(seed, 4, 500, 0.5)[..., 0]
    draws = {"theta": x.ravel(), "count": np.round(x).astype(int).ravel()}
    fields = dict(parameters=("theta",), released={"count": 37.4}, release_hash=count_release().hash)
    return Posterior(draws=draws, sampler=nw.Rejection(), seed=seed, chains=4, **fields)


def test_a_posterior_of_chains_tells_their_precision(from_chains):
    table = from_chains.summary()
    assert list(table.columns[-4:]) == ["ess", "mcse", "ess_tail", "r_hat"]
    assert from_chains.ess["theta"] == pytest.approx(table.loc["theta", "ess"])
    assert 400 < from_chains.ess["theta"] < 1_100  # a third of 2,000, give or take
    assert from_chains.r_hat["theta"] == pytest.approx(table.loc["theta", "r_hat"])
    assert "4 chains" in repr(from_chains)


def test_chains_keep_their_shape_in_arviz_and_in_files(from_chains, tmp_path):
    tree = from_chains.to_arviz()
    assert dict(tree["posterior"].sizes) == {"chain": 4, "draw": 500}
    assert np.array_equal(tree["posterior"]["theta"].values.ravel(), from_chains["theta"])
    from_chains.save(tmp_path / "run.nc")
    again = Posterior.load(tmp_path / "run.nc")
    assert (again.chains, again.superchains, again.islands) == (4, None, None)
    assert np.array_equal(again["theta"], from_chains["theta"])
    assert again.ess == from_chains.ess


def test_independent_draws_have_no_r_hat(seed):
    posterior = nw.sample(count_model(), count_release(), nw.Rejection(), draws=500, seed=seed)
    assert posterior.r_hat is None
    assert "r_hat" not in posterior.summary()


def test_equal_values_share_their_ranks():
    from scipy.stats import rankdata

    for values in (np.array([3.0, 1.0, 3.0, 3.0, -2.0]), np.random.default_rng(1).poisson(3, 200) * 1.0, np.ones(1)):
        np.testing.assert_array_equal(chains.average_ranks(values), rankdata(values))
    assert np.isnan(chains.average_ranks(np.array([1.0, np.nan]))).all()
