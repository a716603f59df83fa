"""Weights: sums without overflow, and Pareto k-hat against ArviZ, with ties and zeros."""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from exactness import agrees, counts_agree

from noisewise.diagnostics import weights


def pareto_logs(k, size, seed):
    return np.log1p(np.random.default_rng(seed).pareto(1.0 / k, size))


@pytest.mark.quick
@pytest.mark.parametrize("k", [0.2, 0.5, 0.7, 1.0])
def test_k_hat_is_arviz_own(k, seed):
    logs = pareto_logs(k, 20_000, seed)
    assert abs(weights.pareto_k(logs) - array_stats.psislw(-logs)[1]) < 0.01  # ArviZ takes log likelihoods


def test_the_fit_is_arviz_own_to_rounding(seed):
    excess = np.sort(np.random.default_rng(seed).pareto(2.0, 500))
    assert weights.fit_pareto(excess) == pytest.approx(array_stats._gpdfit(excess)[0], rel=1e-10)


def test_k_hat_finds_the_shape_of_a_pareto_law(seed):
    for k in (0.3, 0.9):
        found = weights.pareto_k(pareto_logs(k, 10**6, seed))
        assert abs(found - k) < 4.9 * (1 + k) / np.sqrt(3000)  # asymptotic error of the largest 3,000


def test_k_hat_of_very_many_is_that_of_a_full_sort(seed, monkeypatch):
    logs = pareto_logs(0.5, 500_000, seed)
    quick = weights.pareto_k(logs)
    monkeypatch.setattr(weights, "CHUNK", 10**9)
    assert quick == weights.pareto_k(logs)


def test_tied_and_zero_weights_raise_no_false_alarm(seed):
    rng = np.random.default_rng(seed)
    for logs in (
        np.zeros(1_000),
        np.r_[np.zeros(100), np.full(2_000, -1.0)],  # equal excesses: a point of the fit's grid is exactly zero
        np.where(rng.random(10_000) < 0.5, 0.0, -np.inf),
        np.where(rng.random(10_000) < 0.5, 0.0, -1.0) + 1e-14 * rng.normal(size=10_000),  # equal but for rounding
        np.where(rng.random(10_000) < 0.01, 0.0, -3.0),  # fewer above the cut than the tail wants
        -np.abs(37.4 - rng.poisson(35.0, 10_000)) / 5.0,  # whole-numbered statistics: some forty distinct weights
        -np.abs(0.4 - rng.poisson(3.0, 10_000)) / 0.5,
    ):
        assert weights.pareto_k(logs) < weights.LARGEST_K


def test_a_few_dominating_weights_are_refused(seed):
    logs = pareto_logs(1.2, 20_000, seed)
    status, message, numbers = weights.judge_weights(logs, min_ess=1.0)
    assert status == "high_k"
    assert numbers["pareto_k"] > 0.7
    assert "k-hat" in message
    assert weights.pareto_k(np.zeros(10)) == np.inf  # too few to tell
    assert (
        weights.judge_weights(logs, 1.0, log_bound=logs.max() + 1.0)[0] == "high_k"
    )  # a bound far above what most have


def test_a_bound_in_sight_overrules_the_tail(seed):
    """Weights of two sizes, the larger tied but for a little: nothing above them can have stayed unseen."""
    rng = np.random.default_rng(seed)
    logs = np.where(rng.random(20_000) < 0.01, np.log(30.0 * rng.random(20_000) ** 4 + 1.0), 0.0)
    bound = np.log(31.0)
    assert weights.judge_weights(logs, 1.0, bound)[2]["largest_share"] == pytest.approx(31.0 / np.exp(logs).sum())
    for far in (bound, bound + np.log(0.009 * np.exp(logs).sum() / 31.0)):
        assert weights.judge_weights(logs, 1.0, far)[0] == "complete"
    heavy = pareto_logs(1.2, 20_000, seed)
    share = heavy.max() - np.log(np.exp(heavy).sum())
    assert weights.judge_weights(heavy, 1.0, heavy.max() - share + np.log(0.011))[0] == "high_k"


def test_statuses_come_in_order():
    assert weights.judge_weights(np.full(100, -np.inf), 1.0)[0] == "no_weight"
    assert weights.judge_weights(np.zeros(100), 101.0)[0] == "low_ess"
    assert weights.judge_weights(np.zeros(100), 100.0)[0] == "complete"
    assert weights.judge_weights(np.empty(0), 1.0)[0] == "no_weight"


def test_sums_are_those_of_plain_arithmetic(seed):
    logs = np.random.default_rng(seed).normal(size=200_000)
    plain = np.exp(logs)
    assert weights.log_mean(logs) == pytest.approx(np.log(plain.mean()), rel=1e-12)
    assert weights.effective_size(logs) == pytest.approx(plain.sum() ** 2 / (plain**2).sum(), rel=1e-12)
    error = plain.std(ddof=1) / plain.mean() / np.sqrt(len(plain))
    assert weights.log_mean_se(logs) == pytest.approx(error, rel=1e-9)
    assert weights.log_mean(logs - 2_000.0) == pytest.approx(np.log(plain.mean()) - 2_000.0, rel=1e-12)


def test_flattened_weights_are_worth_what_was_asked_and_zero_ones_stay_zero(seed):
    logs = np.append(20.0 * np.random.default_rng(seed).standard_normal(500), -np.inf)
    power = weights.flattening(logs, 50.0)
    flat = weights.flattened(logs, power)
    assert 0.0 < power < 1.0
    assert 50.0 <= weights.effective_size(flat) < 50.0 + 1e-6
    assert flat[-1] == -np.inf
    assert weights.flattening(np.zeros(60), 50.0) == 1.0  # nothing to flatten


def test_rows_drawn_by_flattened_weights_are_of_the_first_power_that_leaves_enough(seed):
    logs = np.array([0.0, -2.0, -8.0])
    sizes = [weights.effective_size(0.7**k * logs) for k in range(6)]
    least = 0.5 * (sizes[2] + sizes[3])  # the third power is the first with enough
    index = weights.draw_flattened(np.random.default_rng(seed), logs, 40_000, least)
    assert counts_agree(np.bincount(index), weights.normalised(0.7**3 * logs))
    assert not counts_agree(np.bincount(index), weights.normalised(0.7**2 * logs))


def test_systematic_resampling_is_unbiased(seed):
    """On average over its one uniform every row is taken as often as its weight says, and never by a whole more."""
    rng, size = np.random.default_rng(seed), 10
    shares = np.array([0.03, 0.17, 0.0, 0.42, 0.38])
    with np.errstate(divide="ignore"):
        logs = np.log(shares) + 500.0
    counts = np.array([np.bincount(weights.systematic(rng, logs, size), minlength=5) for _ in range(4_000)])
    assert agrees(counts[:, shares > 0], size * shares[shares > 0])
    assert np.all(np.abs(counts - size * shares) < 1.0)


def test_the_error_of_a_weighted_mean_is_the_spread_between_samples(seed):
    """Squared normal scores of means of independent weighted samples have mean one; a wrong error would be off by 3."""
    rng = np.random.default_rng(seed)
    scores = []
    for _ in range(600):
        x = rng.standard_normal(2_000)
        share = weights.normalised(0.8 * x)  # of Normal(0.8, 1), by draws of Normal(0, 1)
        scores.append((share @ x - 0.8) / weights.standard_error(x, share))
    # relative weights vary by exp(0.64) - 1: the error of an error over 2,000 rows is some percent, its square less
    assert abs(np.mean(np.square(scores)) - 1.0) < 0.05 + 4.9 * np.sqrt(2.0 / 600)


def test_an_infinite_value_without_weight_changes_nothing():
    values, shares = np.array([1.0, 4.0, np.inf]), np.array([0.25, 0.75, 0.0])
    assert weights.mean_and_sd(values, shares) == weights.mean_and_sd(values[:2], shares[:2])
    assert weights.standard_error(values, shares) == weights.standard_error(values[:2], shares[:2])
    with np.errstate(invalid="ignore"):
        assert np.isinf(weights.mean_and_sd(values, shares[::-1])[0])
