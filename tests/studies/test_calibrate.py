"""Simulation-based calibration: right samplers pass, broken ones fail, and the test of uniformity is exact."""

import importlib
from dataclasses import dataclass, replace
from functools import cache

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, LIMIT, agrees
from scipy import stats

import noisewise as nw
from noisewise.checkpoint.log import NOTHING
from noisewise.diagnostics import uniformity, weights
from noisewise.inference.problem import Problem
from noisewise.mechanisms import LatentScale
from noisewise.samplers import rejection
from noisewise.studies.calibrate import Calibration, calibrate

module = importlib.import_module("noisewise.studies.calibrate")  # its name is the verb's, too
NAMES = "abcd"
MECHANISMS = {name: nw.Laplace(scale=4.0) for name in NAMES}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Replicates want few draws each: small blocks, for speed only."""
    monkeypatch.setattr(rejection, "LEAF_ROWS", 2048)


@cache
def four_counts():
    """Asymmetric, discrete, and wide beside the noise, so that the noise's scale matters."""
    return nw.Model(
        prior={f"rate_{name}": dist.Gamma(2.0, 0.2) for name in NAMES},
        statistics={
            "a": lambda rate_a: dist.Poisson(rate_a),
            "b": lambda rate_b: dist.Poisson(rate_b),
            "c": lambda rate_c: dist.Poisson(rate_c),
            "d": lambda rate_d: dist.Poisson(rate_d),
        },
    )


@cache
def one_count():
    return nw.Model(prior={"x": dist.Gamma(2.0, 0.2)}, statistics={"s": lambda x: dist.Poisson(x)})


ONE = {"s": nw.Laplace(scale=4.0)}


@dataclass(frozen=True)
class WrongScale(nw.Rejection):
    """Believes the noise to be `factor` times as wide."""

    factor: float = 0.7

    def run(self, problem, draws, seed, engine, progress, log=NOTHING):
        believed = {
            name: nw.Laplace(scale=self.factor * item.mechanism.scale).released(item.value)
            for name, item in problem.release.items()
        }
        return super().run(Problem(problem.model, nw.Release(believed)), draws, seed, engine, progress, log)


@dataclass(frozen=True)
class Shifted(nw.Rejection):
    """Adds a third of a standard deviation to every parameter."""

    def run(self, problem, draws, seed, engine, progress, log=NOTHING):
        found = super().run(problem, draws, seed, engine, progress, log)
        moved = {name: x + x.std() / 3 if name in found.parameters else x for name, x in found.draws.items()}
        return replace(found, draws=moved)


@dataclass(frozen=True)
class Flipped(nw.Rejection):
    """Sees the mirror image of the noise: a sign error, which only an asymmetric target shows."""

    def run(self, problem, draws, seed, engine, progress, log=NOTHING):
        (name,) = problem.release
        low = problem.release[name].value
        mirrored = nw.Release({name: problem.release[name].mechanism.released(2 * 10.0 - low)})
        return super().run(Problem(problem.model, mirrored), draws, seed, engine, progress, log)


@dataclass(frozen=True)
class Prior(nw.Rejection):
    """Ignores the release: ranks of the parameters are uniform all the same, those of log eta are not."""

    def run(self, problem, draws, seed, engine, progress, log=NOTHING):
        found = super().run(problem, draws, seed, engine, progress, log)
        values = problem.model.simulate(len(found), seed % 2**32)
        return replace(found, draws={name: values[name] for name in found.draws})


@pytest.mark.quick
def test_right_samplers_pass(seed):
    found = calibrate(four_counts(), MECHANISMS, nw.Rejection(), replicates=40, draws=200, seed=seed)
    assert found.p_value > FALSE_ALARM
    assert not found.failures
    assert found.replicates == 40
    assert set(found.positions) == {*NAMES, *(f"rate_{name}" for name in NAMES), "log eta"}
    found = calibrate(one_count(), ONE, nw.Importance(min_ess=20.0), replicates=40, draws=4_000, seed=seed)
    assert found.p_value > FALSE_ALARM
    assert len(found.failures) <= stats.binom.isf(FALSE_ALARM, 40, far_out(4_000, 20.0))
    assert {failure["status"] for failure in found.failures} <= {"high_k", "low_ess"}


def far_out(draws, min_ess):
    """Probability of a release so far out in the prior predictive that weighted draws may fail, by enumeration.

    They fail only with fewer than `min_ess` effective ones, or with an average weight so small that the largest
    possible weight is more than LARGEST_SHARE of the sum; both as far off their expectation as LIMIT errors.
    """
    s, released, step = np.arange(600), np.arange(-80.0, 400.0, 0.25), 0.25
    eta = stats.laplace.pdf(released[:, None], s, 4.0)
    prior = stats.nbinom.pmf(s, 2.0, 1.0 / 6.0)
    mean, square = eta @ prior, eta**2 @ prior
    effective = draws * mean**2 / square
    least = mean * np.maximum(1.0 - LIMIT / np.sqrt(effective), 0.0)
    fails = (least <= eta.max() / (draws * weights.LARGEST_SHARE)) | (effective < 2.0 * min_ess)
    return step * mean[fails].sum()


BROKEN = {"0.7": WrongScale(), "1.3": WrongScale(factor=1.3), "shift": Shifted()}


@pytest.mark.long
@pytest.mark.parametrize("kind", BROKEN)
def test_broken_samplers_fail(kind, seed):
    broken = BROKEN[kind]
    found = calibrate(four_counts(), MECHANISMS, broken, replicates=320, draws=200, seed=seed)
    assert found.p_value < FALSE_ALARM
    assert found.verdict == "miscalibrated"
    assert not found.passed
    table = found.table()
    if isinstance(broken, Shifted):
        assert set(table["reading"]) <= {"draws too high", ""}
        assert (table["reading"] == "draws too high").sum() >= 3
    else:
        assert table.loc["log eta", "p_value"] == table["p_value"].min()


@pytest.mark.long
def test_a_sign_error_fails(seed):
    assert calibrate(one_count(), ONE, Flipped(), replicates=300, draws=200, seed=seed).p_value < FALSE_ALARM


def test_only_log_eta_sees_that_the_release_is_ignored(seed):
    found = calibrate(four_counts(), MECHANISMS, Prior(), replicates=50, draws=200, seed=seed)
    others = [p for label, p in found.p_values.items() if label != "log eta"]
    assert min(others) > FALSE_ALARM
    assert found.p_values["log eta"] < FALSE_ALARM


def test_the_test_of_uniformity_keeps_its_level(seed):
    rng = np.random.default_rng(seed)
    for size in (25, 120):
        found = np.array([uniformity.p_value(rng.random(size)) for _ in range(1_000)])
        for level in (0.01, 0.1, 0.5):
            share = np.mean(found <= level)
            error = np.sqrt(level * (1 - level) / len(found))
            assert share < level + LIMIT * error  # valid
            assert share > 0.6 * level - LIMIT * error  # and not needlessly conservative


def test_the_bands_hold_at_their_level(seed):
    rng = np.random.default_rng(seed)
    z, low, high = uniformity.bands(80, 0.1)
    sorted_samples = np.sort(rng.random((4_000, 80)), axis=1)
    ecdf = np.array([np.searchsorted(row, z, side="right") for row in sorted_samples]) / 80
    left = np.any((ecdf < low - 1e-12) | (ecdf > high + 1e-12), axis=1)
    assert left.mean() < 0.1 + LIMIT * np.sqrt(0.09 / 4_000)
    assert left.mean() > 0.05


def test_the_probability_of_staying_within_bands_is_exact():
    """Three values and any bands: against enumeration over the multinomial counts of the grid's intervals."""
    size = 3
    grid, tails = uniformity._tails(size)
    width = len(grid) + 1
    for threshold in (0.01, 0.1, 0.3):
        total = 0.0
        for cells in np.ndindex(*[width] * size):
            counts = np.array([sum(cell < i + 1 for cell in cells) for i in range(len(grid))])
            total += float(np.all(tails[counts, np.arange(len(grid))] > threshold)) / width**size
        assert uniformity._inside(size, threshold) == pytest.approx(total, abs=1e-12)


@pytest.mark.quick
def test_tail_probabilities_are_binomial():
    grid, tails = uniformity._tails(30)
    n = np.arange(31)[:, None]
    truth = 2 * np.minimum(stats.binom.cdf(n, 30, grid), stats.binom.sf(n - 1, 30, grid))
    assert np.allclose(tails, np.minimum(truth, 1.0), rtol=1e-9)


def test_ties_are_randomised(seed):
    """A binary statistic ties with half of the draws: positions must be uniform all the same."""
    model = nw.Model(prior={"p": dist.Beta(2.0, 1.0)}, statistics={"yes": lambda p: dist.Bernoulli(p)})
    found = calibrate(model, {"yes": nw.Laplace(scale=1.0)}, nw.Rejection(), replicates=120, draws=20, seed=seed)
    assert found.p_value > FALSE_ALARM
    assert agrees(found.positions["yes"], 0.5)
    assert agrees((found.positions["yes"] - 0.5) ** 2, 1 / 12)


def test_failed_replicates_are_counted_and_refuse_a_pass(seed):
    sampler = nw.Rejection(max_proposals=6_000)
    found = calibrate(one_count(), {"s": nw.Laplace(scale=2.0)}, sampler, replicates=60, draws=300, seed=seed)
    assert 0 < len(found.failures) < 60
    assert found.replicates == 60
    assert found.verdict == "failed"
    assert not found.passed
    first = found.failures[0]
    assert first["status"] == "max_proposals"
    assert "failed" in repr(found)
    assert "6000" in repr(found)


@pytest.mark.quick
def test_more_replicates_continue_the_same_sequence(seed):
    model = four_counts()
    few, many = (calibrate(model, MECHANISMS, nw.Rejection(), replicates=n, draws=50, seed=seed) for n in (12, 30))
    for label, values in few.positions.items():
        assert np.array_equal(values, many.positions[label][:12])


def test_replicates_compile_nothing_new(seed):
    model = four_counts()
    calibrate(model, MECHANISMS, nw.Rejection(), replicates=10, draws=50, seed=seed)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
    try:
        calibrate(model, MECHANISMS, nw.Rejection(), replicates=30, draws=50, seed=seed + 1)
    finally:
        jax.monitoring.clear_event_listeners()
    assert not [event for event in compiled if "compile" in event]


@pytest.mark.long
def test_vectors_latent_scales_and_statistics_without_noise(seed):
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 2.0).expand([2])},
        statistics={
            "spread": lambda mu: dist.Gamma(2.0, 1.0),
            "s": lambda mu: dist.Normal(mu, 1.0),
            "n": lambda mu: dist.Normal(mu[0], 1.0),
        },
    )
    mechanisms = {"s": LatentScale(nw.Laplace(scale=1.0), "spread", 0.5), "n": nw.Exact()}
    found = calibrate(model, mechanisms, nw.Importance(min_ess=20.0), replicates=60, draws=2_000, seed=seed)
    assert set(found.positions) == {"mu[0]", "mu[1]", "spread", "s[0]", "s[1]", "log eta"}
    assert found.p_value > FALSE_ALARM


def test_dependent_draws_are_thinned_to_what_they_are_worth(seed):
    """Sticky chains: each draw repeated ten times. Ranks among a thinned few are uniform."""

    @dataclass(frozen=True)
    class Sticky(nw.Rejection):
        def run(self, problem, draws, seed, engine, progress, log=NOTHING):
            found = super().run(problem, draws // 10, seed, engine, progress, log)
            return replace(found, draws={n: np.repeat(x, 10, axis=0) for n, x in found.draws.items()}, chains=4)

    model = nw.Model(prior={"x": dist.Gamma(2.0, 0.2)}, statistics={"s": lambda x: dist.Normal(x, 1.0)})
    found = calibrate(model, {"s": nw.Laplace(scale=4.0)}, Sticky(), replicates=50, draws=2_000, seed=seed)
    assert found.p_value > FALSE_ALARM
    assert found.sizes.max() <= module.MOST_RANKED
    assert np.median(found.sizes) > 50


def test_weighted_draws_are_resampled(seed, monkeypatch):
    """Negative control: the same rows without their weights must fail."""
    model = one_count()
    right = calibrate(model, ONE, nw.Importance(min_ess=1.0), replicates=70, draws=400, seed=seed)
    assert right.p_value > FALSE_ALARM
    monkeypatch.setattr(module, "exchangeable", lambda rng, posterior, log_eta: np.arange(len(posterior)))
    wrong = calibrate(model, ONE, nw.Importance(min_ess=1.0), replicates=70, draws=400, seed=seed)
    assert wrong.p_value < FALSE_ALARM


def test_a_verdict_over_many_quantities_counts_their_number(seed):
    """One quantity in twenty is below five percent by chance: the p-value of all is that of the worst, twenty times."""
    rng = np.random.default_rng(seed)
    positions = {f"x[{i}]": rng.random(50) for i in range(20)}
    positions["x[3]"] = rng.random(50) ** 4.0
    found = Calibration(positions, np.full(50, 100), (), None, 100, seed, 50)
    worst = min(found.p_values.values())
    assert worst < 0.05
    assert found.p_value == pytest.approx(min(1.0, 20 * worst), rel=1e-9, abs=0.0)


def test_picture_and_table(seed):
    found = calibrate(four_counts(), MECHANISMS, nw.Rejection(), replicates=20, draws=50, seed=seed)
    assert len(found.plot().axes) == 9
    assert list(found.table().columns) == ["p_value", "mean", "spread", "reading"]
    assert "<table" in found._repr_html_()


def test_interruption_keeps_what_is_there(seed, monkeypatch):
    real, calls = module.sample, []

    def interrupted(*arguments, **named):
        calls.append(1)
        found = real(*arguments, **named)
        return replace(found, status="interrupted") if len(calls) == 5 else found

    monkeypatch.setattr(module, "sample", interrupted)
    found = calibrate(four_counts(), MECHANISMS, nw.Rejection(), replicates=20, draws=50, seed=seed)
    assert found.replicates == 4
    assert "interrupted before 20" in repr(found)


REFUSED = {
    "model": (lambda m: calibrate("m", MECHANISMS, nw.Rejection()), "'model' must be"),
    "mechanisms": (lambda m: calibrate(m, nw.Laplace(scale=1.0), nw.Rejection()), "'mechanisms' must be a dict"),
    "unknown": (lambda m: calibrate(m, {"e": nw.Laplace(scale=1.0)}, nw.Rejection()), "must name statistics"),
    "a number": (lambda m: calibrate(m, {"a": 1.0}, nw.Rejection()), "must be a mechanism"),
    "missing": (lambda m: calibrate(m, {"a": nw.Laplace(scale=1.0)}, nw.Rejection()), "must be released"),
    "replicates": (lambda m: calibrate(m, MECHANISMS, nw.Rejection(), replicates=1), "'replicates'"),
    "sampler": (lambda m: calibrate(m, MECHANISMS, "best"), "must be a sampler"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(call, message):
    with pytest.raises(nw.InputError, match=message):
        call(four_counts())


def test_a_release_gives_mechanisms_and_labels(seed):
    """Its values are not looked at: the same positions as by its mechanisms, with the labels as names."""
    model = nw.Model(
        prior={"rate": dist.Gamma(2.0, 0.2).expand([2])},
        statistics={"cases": lambda rate: dist.Poisson(rate)},
        dims={"rate": ("county",)},
    )
    labelled = nw.Laplace(scale=4.0).released([5.0, 7.0], coords={"county": ["Bronx", "Kings"]})
    how = {"replicates": 10, "draws": 20, "seed": seed}
    found = calibrate(model, nw.Release(cases=labelled), nw.Rejection(), **how)
    assert list(found.positions) == ["rate[Bronx]", "rate[Kings]", "cases[Bronx]", "cases[Kings]", module.LOG_ETA]
    plain = calibrate(model, {"cases": nw.Laplace(scale=4.0)}, nw.Rejection(), **how)
    assert all(
        np.array_equal(ours, theirs)
        for ours, theirs in zip(found.positions.values(), plain.positions.values(), strict=True)
    )
