"""Maximum likelihood in practice: several starts, boundaries, Ctrl-C, acceleration, totals."""

import json
from functools import cache
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees
from scipy import optimize, special, stats
from targets import REFERENCE, briefly, count_model, count_release

import noisewise as nw
from noisewise.engine import Engine
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step.cloud import Cloud, Clouds, exact_cloud, inexact
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.e_step.simulated_records import MOST_NUMBERS
from noisewise.likelihood.e_step.table import E_STEPS
from noisewise.likelihood.em import LOOK, ExactAscent

START = {"theta": 1.0}
COUNT = count_model()
QUICK = nw.MCEM(schedule=nw.Ascent(most=4_000), final=20_000)


# Several starts -----------------------------------------------------------------------------------------------------


@cache
def two_humps():
    """Only the square of theta is seen well; its sign, dimly."""
    model = nw.Model(
        prior={"theta": dist.Normal(0.0, 2.0)},
        statistics={
            "square": lambda theta: dist.Normal(theta**2, 1.0),
            "sign": lambda theta: dist.Normal(theta, np.sqrt(4.75)),
        },
    )
    noise = nw.Gaussian(scale=0.5)  # little beside the laws' spread: EM is there in a few steps
    return model, nw.Release(square=noise.released(4.0), sign=noise.released(1.0))


def test_the_highest_of_several_maxima_wins_and_the_others_are_told():
    model, release = two_humps()

    def height(x):
        return stats.norm.logpdf(4.0, x**2, np.sqrt(1.25)) + stats.norm.logpdf(1.0, x, np.sqrt(5.0))

    tops = [optimize.minimize_scalar(lambda x: -height(x), bounds=ends).x for ends in ((-3, -1), (1, 3))]
    fit = nw.fit(model, release, start=[{"theta": -1.0}, {"theta": 1.5}, {"theta": -2.5}])
    assert fit.status == "converged"
    assert fit.estimate["theta"] == pytest.approx(tops[1], abs=1e-5)
    assert fit.log_likelihood == pytest.approx(height(tops[1]), abs=1e-8)
    assert fit.diagnostics["multimodal"]
    assert "multimodal: 2 of 3 starts ended at another maximum" in fit.message
    ends = fit.diagnostics["starts"]
    assert [end["estimate"]["theta"] for end in ends] == pytest.approx([tops[0], tops[1], tops[0]], abs=1e-5)
    assert ends[0]["log_likelihood"] == pytest.approx(height(tops[0]), abs=1e-8)
    one = nw.fit(model, release, start={"theta": -1.0})
    assert one.estimate["theta"] == pytest.approx(tops[0], abs=1e-5)
    assert not one.diagnostics["multimodal"]


@pytest.mark.long
def test_simulated_maxima_are_told_apart_by_their_errors(seed):
    model, release = two_humps()
    fit = nw.fit(model, release, QUICK, start=[{"theta": -2.0}, {"theta": 2.0}, {"theta": 1.5}], seed=seed)
    assert fit.diagnostics["multimodal"]
    assert "multimodal: 1 of 3" in fit.message
    assert fit.estimate["theta"] > 0
    same = nw.fit(model, release, QUICK, start=[{"theta": 2.0}, {"theta": 1.5}], seed=seed)
    assert not same.diagnostics["multimodal"]


def test_without_a_start_the_prior_gives_three_or_more():
    fits = [nw.fit(COUNT, count_release(), nw.EM(accelerate=True)) for _ in range(2)]
    starts = [[end["start"]["theta"] for end in fit.diagnostics["starts"]] for fit in fits]
    assert len(set(map(float, starts[0]))) in (3, 4)
    assert starts[0] == starts[1]
    assert fits[0].estimate["theta"] == fits[1].estimate["theta"]
    assert not fits[0].diagnostics["multimodal"]
    other = nw.fit(COUNT, count_release(), nw.EM(accelerate=True), seed=7)
    assert other.diagnostics["starts"][0]["start"]["theta"] != starts[0][0]
    assert other.estimate["theta"] == pytest.approx(float(fits[0].estimate["theta"]), abs=1e-6)


def test_a_hopeless_start_is_passed_over(monkeypatch):
    """From a start too far out for an exact sum the fit is refused; another start does."""

    def refusing(part, values):
        if values["theta"] > 1e6:
            raise nw.InputError("EM: too far out")
        return exact_cloud(part, values)

    monkeypatch.setattr("noisewise.likelihood.e_step.by_rows.exact_cloud", refusing)
    fit = nw.fit(COUNT, count_release(), start=[{"theta": 1e8}, START])
    assert fit.status == "converged"
    assert [end["status"] for end in fit.diagnostics["starts"]] == ["refused", "converged"]
    with pytest.raises(nw.InputError, match="too far out"):
        nw.fit(COUNT, count_release(), start=[{"theta": 1e8}])


# Boundaries -----------------------------------------------------------------------------------------------------------


ESTIMATORS = {
    "em": nw.EM(),
    "accelerated": nw.EM(accelerate=True),
    "ascent": QUICK,
    "staged": nw.MCEM(schedule=nw.Staged(sizes=(500, 1_000, 2_000), cap=12), final=10_000),
}


@pytest.mark.parametrize("name", briefly(ESTIMATORS, ["em", "ascent"]))
def test_an_estimate_that_runs_to_the_edge_says_so(name, seed):
    """A negative release of a count: the rate runs to zero."""
    release = nw.Release(count=nw.Laplace(scale=5.0).released(-20.0))
    with pytest.raises(nw.InferenceError, match="estimate of 'theta' runs to the edge of its space") as caught:
        nw.fit(COUNT, release, ESTIMATORS[name], start=START, seed=seed)
    assert caught.value.result.status == "boundary"
    assert caught.value.result.estimate["theta"] < 0.5


@pytest.mark.long
def test_a_share_at_the_edge_is_found_and_a_large_estimate_is_no_edge():
    """Only parameters with an edge have one, and a maximum far out is still a maximum."""
    model = nw.Model(prior={"p": dist.Beta(1.0, 1.0)}, statistics={"yes": lambda p: dist.Binomial(30, p)})
    high = nw.Release(yes=nw.DiscreteLaplace(scale=2.0).released(36))
    fit = nw.fit(model, high, start={"p": 0.5}, on_failure="return")
    assert fit.status == "boundary"
    assert "'p'" in fit.message
    millions = nw.Model(
        prior={"rate": dist.Gamma(2.0, 1e-7)}, statistics={"y": lambda rate: dist.Gamma(50.0, 50 / rate)}
    )
    fit = nw.fit(millions, nw.Release(y=nw.Laplace(scale=1e5).released(8e6)), start={"rate": 5e6})
    assert fit.status == "converged"
    assert fit.estimate["rate"] == pytest.approx(8e6, rel=0.05)  # a free coordinate of 15.9
    line = nw.Model(prior={"mean": dist.Normal(0.0, 100.0)}, statistics={"y": lambda mean: dist.Normal(mean, 1.0)})
    fit = nw.fit(line, nw.Release(y=nw.Laplace(scale=1.0).released(90.0)), start={"mean": 80.0})
    assert fit.status == "converged"
    assert fit.estimate["mean"] == pytest.approx(90.0, abs=1e-4)


def test_a_share_whose_steps_leap_to_the_edge_is_there():
    """50 people and a release of -4: less likely by 4e-6 at a share of 1e-7 than where the steps have got to."""
    model = nw.Model(prior={"p": dist.Beta(1.0, 1.0)}, statistics={"yes": lambda p: dist.Binomial(50, p)})
    fit = nw.fit(model, nw.Release(yes=nw.Laplace(scale=2.0).released(-4.0)), on_failure="return")
    assert fit.status == "boundary"
    assert fit.log_likelihood == pytest.approx(stats.laplace.logpdf(-4.0, scale=2.0), abs=1e-6)


def test_a_negative_binomial_law_without_overdispersion_has_the_likelihood_of_its_limit():
    """Counts closer together than Poisson ones: concentrations run off to where NumPyro's formula has no digits."""
    released = np.array([14.2, 16.2, 15.2])
    model = nw.Model(
        prior={"m": dist.Gamma(1.0, 0.1), "c": dist.LogNormal(3.0, 3.0)},
        statistics={"y": lambda m, c: dist.NegativeBinomial2(m, c).expand([3])},
    )
    release = nw.Release(y=nw.Laplace(scale=1.0).released(released))
    fit = nw.fit(model, release, start={"m": 15.0, "c": 50.0}, on_failure="return")
    assert fit.status == "boundary"
    assert fit.diagnostics["iterations"] <= LOOK
    counts = np.arange(100)
    noise = stats.laplace.pdf(released[:, None] - counts)
    means = np.linspace(14.0, 16.0, 2001)
    limits = np.log(noise @ stats.poisson.pmf(counts[:, None], means)).sum(axis=0)
    assert fit.log_likelihood == pytest.approx(limits.max(), abs=1e-6)
    assert fit.estimate["m"] == pytest.approx(means[np.argmax(limits)], abs=2e-3)


@cache
def normal_rows():
    """Eight rows, a place and a spread."""
    return nw.Model(
        prior={"a": dist.Normal(0.0, 10.0), "b": dist.HalfNormal(10.0)},
        statistics={"y": lambda a, b: dist.Normal(a, b).expand([8])},
    )


@pytest.mark.parametrize("accelerate", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_spread_that_the_noise_explains_runs_to_zero(accelerate, monkeypatch):
    """Rows closer together than the noise: EM's steps shrink with it; the other parameter still finds its place."""
    released = np.array([0.4, 1.9, -0.8, 1.1, 2.3, 0.1, 0.9, 1.6])
    model = normal_rows()
    release = nw.Release(y=nw.Gaussian(scale=2.0).released(released))
    start = {"a": 0.5, "b": 1.0}
    fit = nw.fit(model, release, nw.EM(accelerate=accelerate), start=start, on_failure="return")
    assert fit.status == "boundary"
    assert "'b'" in fit.message
    assert fit.diagnostics["iterations"] < 80
    assert fit.estimate["b"] < 1e-6
    assert fit.estimate["a"] == pytest.approx(released.mean(), abs=1e-4)  # its standard error is 0.8
    assert fit.log_likelihood == pytest.approx(stats.norm.logpdf(released, released.mean(), 2.0).sum(), abs=1e-6)
    monkeypatch.setattr("noisewise.likelihood.em.LOOK", 10**6)  # negative control: without looking ahead
    slow = nw.fit(model, release, nw.EM(max_iterations=80), start=start, on_failure="return")
    assert slow.status == "max_iterations"


# Quadrature that does not see -------------------------------------------------------------------------------------


def spike_and_slab(width):
    """A third of the values are zero but for `width`, the others normal about mu."""

    def law(mu):
        peaks = dist.Normal(jnp.stack([0.0 * mu, mu]), jnp.array([width, 1.0]))
        return dist.MixtureSameFamily(dist.Categorical(jnp.array([0.3, 0.7])), peaks)

    return nw.Model(prior={"mu": dist.Normal(0.0, 5.0)}, statistics={"y": law})


def test_what_is_left_out_adds_up_over_entries_and_pieces():
    """A hair too much in each of a million rows is too much in all. Negative control: the worst row alone is good."""

    def clouds_with(error):
        def make(index):
            return Cloud(np.zeros((1, 500_000)), np.ones((1, 500_000)), np.zeros(500_000), np.full(500_000, error))

        return Clouds(["one half", "the other"], make, held=False)

    worst, total = clouds_with(1e-9).neglected
    assert (worst, total) == (1e-9, pytest.approx(1e-3))
    assert "may be off by 0.001 in the log likelihood" in inexact(worst, total)
    assert inexact(worst, worst) == ""
    assert inexact(*clouds_with(4e-11).neglected) == ""


def test_every_way_to_a_cloud_says_how_far_each_entry_may_be_off(monkeypatch):
    """Sums and integrals, held and streamed; the log likelihood beside a finer one is as near as they say together."""
    rows = np.linspace(-2.0, 6.0, 300)
    noise = nw.Laplace(scale=1.0)
    laws = {
        "held integral": (lambda mu: dist.StudentT(3.0, mu, 1.0).expand([100]), noise.released(rows[::3])),
        "streamed integral": (lambda mu: dist.Normal(mu, 1.0).expand([300]), noise.released(rows)),
        "sum": (lambda mu: dist.Poisson(jnp.exp(mu)).expand([300]), noise.released(rows)),
    }
    for law, released in laws.values():
        model = nw.Model(prior={"mu": dist.Normal(0.0, 5.0)}, statistics={"y": law})

        def found(model=model, released=released):
            (part,) = parts_of(Problem(model, nw.Release(y=released)))
            return exact_cloud(part, {"mu": np.asarray(0.5)})

        cloud = found()
        assert cloud.neglected.shape == cloud.log_likelihoods.shape
        with monkeypatch.context() as finer:
            finer.setattr("noisewise.likelihood.e_step.cloud.NEGLECTED", 1e-14)
            finer.setattr("noisewise.likelihood.e_step.streamed.NEGLECTED", 1e-14)
            finer.setattr("noisewise.likelihood.e_step.streamed.DEEP", 33.0)
            best = found()
        assert abs(best.log_likelihood - cloud.log_likelihood) <= cloud.neglected.sum() + 1e-12 * len(rows)
        assert 0 < cloud.neglected.max() <= 1e-10


@pytest.mark.long
def test_a_peak_between_the_nodes_is_not_passed_over(monkeypatch):
    """Two orders that both miss a peak agree; the law's mass shows that it is missing. Negative control: unseen."""
    release = nw.Release(y=nw.Laplace(scale=1.0).released(2.3))
    s, weights = special.roots_legendre(400)
    s, weights = np.concatenate([2.3 - 6.0 * (1 + s), 2.3 + 6.0 * (1 + s)]), np.tile(6.0 * weights, 2)

    def log_likelihood(mu):
        slab = np.sum(weights * stats.norm.pdf(s, mu) * stats.laplace.pdf(2.3 - s))
        return np.log(0.3 * stats.laplace.pdf(2.3) + 0.7 * slab)

    def cloud_at(width, mu):
        (part,) = parts_of(Problem(spike_and_slab(width), release))
        return exact_cloud(part, {"mu": np.asarray(mu)})

    wide, narrow = cloud_at(1e-2, 2.5), cloud_at(1e-6, 2.5)
    assert wide.log_likelihood == pytest.approx(log_likelihood(2.5), abs=1e-4)  # nearly a point
    (in_wide,), (in_narrow,) = wide.neglected, narrow.neglected
    assert inexact(in_wide, in_wide) == ""
    assert in_narrow == pytest.approx(0.3, abs=0.02)
    assert "may be off by 0.3 of an entry's" in inexact(in_narrow, in_narrow)
    monkeypatch.setattr("noisewise.likelihood.e_step.cloud._missed", lambda mass, outside: np.zeros(1))
    unseen = cloud_at(1e-6, 2.5)
    assert inexact(*unseen.neglected, *unseen.neglected) == ""
    assert unseen.log_likelihood < log_likelihood(2.5) - 0.05


@pytest.mark.long
def test_nothing_is_built_on_an_integral_that_is_off():
    release = nw.Release(y=nw.Laplace(scale=1.0).released(2.3))
    model = spike_and_slab(1e-6)
    fit = nw.fit(model, release, nw.EM(accelerate=True), start={"mu": 1.5}, on_failure="return")
    assert fit.status == "inexact"
    with pytest.raises(nw.InferenceError, match="profile_interval: the sums or integrals"):
        nw.likelihood.profile_interval(model, release, fit, "mu")


# Ctrl-C and progress --------------------------------------------------------------------------------------------------


class Interrupted(Engine):
    """An engine on which the user presses Ctrl-C during the given piece of work."""

    def __init__(self, at):
        self.left, self.inner = at, nw.Threads(1)

    def execute(self, source):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        self.inner.execute(source)


@pytest.mark.parametrize("at", [1, 4])
def test_ctrl_c_ends_simulation_with_the_current_state(at, seed):
    with pytest.raises(nw.InferenceError, match="interrupted after") as caught:
        nw.fit(COUNT, count_release(), QUICK, start={"theta": 30.0}, seed=seed, engine=Interrupted(at))
    result = caught.value.result
    assert result.status == "interrupted"
    assert len(result.trace) < at
    assert 20.0 < result.estimate["theta"] < 50.0


def test_ctrl_c_ends_em_with_the_best_so_far(monkeypatch):
    calls = []

    def pressed(part, values):
        calls.append(values)
        if len(calls) == 60:
            raise KeyboardInterrupt
        return exact_cloud(part, values)

    monkeypatch.setattr("noisewise.likelihood.e_step.by_rows.exact_cloud", pressed)
    starts = [START, {"theta": 3.0}, {"theta": 5.0}]
    fit = nw.fit(COUNT, count_release(), start=starts, on_failure="return")
    assert fit.status == "interrupted"
    assert fit.message.startswith("interrupted in start 2 of 3")
    assert fit.estimate["theta"] == pytest.approx(37.237, abs=1e-3)  # the first start had ended
    assert [end["status"] for end in fit.diagnostics["starts"]] == ["converged", "interrupted"]


@pytest.mark.parametrize(("estimator", "note"), [(nw.EM(), "log likelihood"), (QUICK, "measuring")])
def test_progress_shows_iterations(estimator, note, monkeypatch, capsys, seed):
    monkeypatch.setattr("noisewise.inference.progress.SHOW_AFTER", 0.0)
    monkeypatch.setattr("noisewise.inference.progress.REFRESH", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    nw.fit(COUNT, count_release(), estimator, start={"theta": 30.0}, seed=seed, progress=True)
    shown = capsys.readouterr().err
    assert type(estimator).__name__ in shown
    assert "iteration" in shown
    assert note in shown
    nw.fit(COUNT, count_release(), estimator, start={"theta": 30.0}, seed=seed, progress=False)
    assert capsys.readouterr().err == ""


# Acceleration ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", briefly([5.0, 20.0], [5.0]))
def test_newton_steps_near_the_top_save_iterations_and_never_fall(scale, monkeypatch):
    monkeypatch.setattr("noisewise.likelihood.em.SLOW", 10**6)  # else a long climb is helped in any case
    release = nw.Release(count=nw.Laplace(scale=scale).released(37.4))
    plain = nw.fit(COUNT, release, nw.EM(), start=START)
    fast = nw.fit(COUNT, release, nw.EM(accelerate=True), start=START)
    assert fast.estimate["theta"] == pytest.approx(float(plain.estimate["theta"]), abs=1e-5)
    assert fast.diagnostics["iterations"] < 0.7 * plain.diagnostics["iterations"]
    heights = [step["log_likelihood"] for step in fast.trace]
    assert np.all(np.diff(heights) > -1e-10)
    assert any(step.get("newton") for step in fast.trace)
    assert not any(step.get("newton") for step in plain.trace)
    assert fast.diagnostics["standard_errors_left"] <= plain.diagnostics["standard_errors_left"] + 1e-12


def test_acceleration_in_two_dimensions():
    released = np.array([2.1, -0.7, 4.4, 1.9, 3.2, 0.4, 2.8, 6.1])
    model = normal_rows()
    release = nw.Release(y=nw.Laplace(scale=1.0).released(released))
    plain = nw.fit(model, release, nw.EM(tolerance=1e-9), start={"a": 1.0, "b": 1.0})
    fast = nw.fit(model, release, nw.EM(tolerance=1e-9, accelerate=True), start={"a": 1.0, "b": 1.0})
    for name in ("a", "b"):
        assert fast.estimate[name] == pytest.approx(float(plain.estimate[name]), abs=1e-6)
    assert fast.diagnostics["iterations"] < 0.5 * plain.diagnostics["iterations"]


def test_the_score_can_stop_a_run(count_reference):
    truth = count_reference["maximum_likelihood"]
    fit = nw.fit(COUNT, count_release(), nw.EM(score_tolerance=1e-3), start=START)
    assert fit.status == "converged"
    assert fit.diagnostics["standard_errors_left"] <= 1e-3
    assert 0 < abs(fit.estimate["theta"] - truth["estimate"]) < 1.1e-3 * truth["standard_error"]


# Beside the naive fit, and pictures -----------------------------------------------------------------------------------


def test_beside_the_naive_fit(count_reference):
    truth = count_reference["maximum_likelihood"]
    fit, naive = (nw.fit(COUNT, r, start={"theta": 35.0}) for r in (count_release(), count_release().naive()))
    row = fit.beside(naive).loc["theta"]
    assert row["naive estimate"] == pytest.approx(truth["naive_estimate"])
    assert row["exact estimate"] == pytest.approx(truth["estimate"], abs=1e-5)
    assert row["information ratio"] == pytest.approx(
        truth["naive_information"] / truth["observed_information"], rel=1e-5
    )
    assert row["wider"] == pytest.approx(np.sqrt(row["information ratio"]))
    assert row["shift"] == pytest.approx((truth["estimate"] - 37.4) * np.sqrt(truth["naive_information"]), rel=1e-4)


# Totals ---------------------------------------------------------------------------------------------------------------


@cache
def normal_total(n=20):
    return nw.Model(
        prior={"mu": dist.Normal(0.0, 5.0)},
        statistics={"total": nw.Total({"x": lambda mu: dist.Normal(mu, 2.0)}, lambda x: x, n)},
    )


TOTAL_RELEASE = nw.Release(total=nw.Gaussian(scale=6.0).released(31.0))


@pytest.mark.long
def test_a_total_of_normal_records_has_its_closed_form(seed):
    """The release is Normal(n mu, n 4 + 36). Negative control: without the noise the information would be n / 4."""
    model = normal_total()
    settings = nw.MCEM(schedule=nw.Ascent(start=500, most=500), final=3_000)
    fits = [nw.fit(model, TOTAL_RELEASE, settings, start={"mu": 1.5}, seed=seed + i) for i in range(60)]
    informations = [fit.information[0, 0] for fit in fits]
    assert agrees([fit.estimate["mu"] for fit in fits], 31.0 / 20)
    assert agrees(informations, 400 / (20 * 4 + 36))
    assert not agrees(informations, 20 / 4)
    assert agrees([fit.efficiency["mu"] for fit in fits], 80 / 116)
    assert agrees([fit.log_likelihood for fit in fits], stats.norm.logpdf(31.0, 31.0, np.sqrt(116)))
    assert all(abs(fit.estimate["mu"] - 31.0 / 20) < LIMIT * fit.monte_carlo_error["mu"] for fit in fits)


@pytest.mark.long
def test_a_total_of_bits_is_a_binomial_count(seed):
    release = nw.Release(yes=nw.DiscreteLaplace(scale=2.0).released(8))
    bits = nw.Model(
        prior={"p": dist.Beta(1.0, 1.0)},
        statistics={"yes": nw.Total({"bit": lambda p: dist.Bernoulli(p)}, lambda bit: bit, 12)},
    )
    count = nw.Model(prior={"p": dist.Beta(1.0, 1.0)}, statistics={"yes": lambda p: dist.Binomial(12, p)})
    truth = nw.fit(count, release, start={"p": 0.5})
    for number, e_step in enumerate(E_STEPS):
        settings = nw.MCEM(e_step=e_step, schedule=nw.Ascent(start=1_000, most=1_000), final=30_000)
        fit = nw.fit(bits, release, settings, start={"p": 0.6}, seed=seed + number)
        assert abs(fit.estimate["p"] - truth.estimate["p"]) < LIMIT * fit.monte_carlo_error["p"]
        assert 0 < fit.monte_carlo_error["p"] < 0.003


@pytest.mark.long
def test_totals_and_laws_together_with_fields_that_carry_no_parameter(seed):
    """y + 2 x is Normal(beta, 9 + 1), so that the total and the law are two normal measurements of beta."""
    n, total, hint = 30, 24.0, 0.3
    record = {"x": dist.Normal(0.0, 1.0), "y": lambda x, beta: dist.Normal(beta + x, 1.0)}
    model = nw.Model(
        prior={"beta": dist.Normal(0.0, 5.0)},
        statistics={
            "total": nw.Total(record, lambda x, y: y + 2.0 * x, n),
            "hint": lambda beta: dist.Normal(beta, 0.4),
        },
    )
    noise = nw.Gaussian(scale=6.0).released(total)
    release = nw.Release(total=noise, hint=nw.Gaussian(scale=0.3).released(hint))
    settings = nw.MCEM(schedule=nw.Ascent(most=4_000), final=40_000)
    fit = nw.fit(model, release, settings, start={"beta": 0.5}, seed=seed)
    first, second = n**2 / (10 * n + 36), 1 / (0.3**2 + 0.4**2)
    truth = (first * total / n + second * hint) / (first + second)
    error = fit.monte_carlo_error["beta"]
    assert abs(fit.estimate["beta"] - truth) < LIMIT * error
    assert LIMIT * error < 0.1 * abs(total / n - hint)  # sharp enough to tell wrong weights


@pytest.mark.long  # test_mcem_augmented.py has the same of totals by chains, test_likelihood.py of laws
def test_totals_are_the_same_on_any_threads(seed):
    settings, model = nw.MCEM(schedule=nw.Ascent(most=1_000), final=5_000), normal_total()
    fits = [
        nw.fit(model, TOTAL_RELEASE, settings, start={"mu": 1.0}, seed=seed, engine=nw.Threads(workers))
        for workers in (1, 3)
    ]
    assert fits[0].estimate["mu"] == fits[1].estimate["mu"]


# Randomised response --------------------------------------------------------------------------------------------------


def test_randomised_response_reference():
    truth = json.loads((REFERENCE / "randomized_response_2x2.json").read_text())
    keep = np.array([[0.75, 0.25], [0.25, 0.75]])
    channel = np.kron(keep, keep)
    model = nw.Model(
        prior={"share": dist.Dirichlet(np.ones(4))},
        statistics={"reported": lambda share: dist.Multinomial(400, share @ jnp.asarray(channel))},
    )
    release = nw.Release(reported=nw.Exact().released(truth["released"]))
    fit = nw.fit(model, release, start=[{"share": np.ones(4) / 4}, {"share": [0.4, 0.3, 0.2, 0.1]}])
    assert fit.estimate["share"] == pytest.approx(truth["mle"], abs=1e-6)
    assert fit.standard_error["share"] == pytest.approx(truth["mle_standard_error"], abs=5.1e-5)
    assert not fit.diagnostics["multimodal"]


# Bad input ------------------------------------------------------------------------------------------------------------


def fit_exactly(law, value):
    """Beside a statistic that alone would give it a top."""
    model = nw.Model(prior={"a": dist.Gamma(2.0, 1.0)}, statistics={"s": law, "y": lambda a: dist.Normal(a, 1.0)})
    release = nw.Release(s=nw.Exact().released(value), y=nw.Gaussian(scale=0.5).released(4.0))
    return nw.fit(model, release, start={"a": 5.0})


def test_exact_angles_may_be_of_any_turn():
    """The formula of an angle's law goes round; ends that are constants of an array are no parameters."""
    double = dist.transforms.AffineTransform(0.0, 2.0)
    model = nw.Model(
        prior={"a": dist.Normal(0.0, 2.0)},
        statistics={
            "angle": lambda a: dist.VonMises(a, 1.0),
            "share": lambda: dist.TransformedDistribution(dist.Uniform(0.0, jnp.ones(3)), double),
        },
    )
    share = nw.Exact().released([0.5, 1.0, 1.5])
    turns = [nw.Release(angle=nw.Exact().released(one), share=share) for one in (4.0, 4.0 - 2.0 * np.pi)]
    fits = [nw.fit(model, release, start={"a": -1.0}) for release in turns]
    assert [fit.status for fit in fits] == ["converged"] * 2
    assert fits[0].estimate["a"] == pytest.approx(4.0 - 2.0 * np.pi, abs=1e-6)
    assert fits[0].log_likelihood == pytest.approx(fits[1].log_likelihood)


def fit_total(record=None, contribution=lambda x: x, n=20, mechanism=None, **prior):
    record = record or {"x": lambda mu: dist.Normal(mu, 2.0)}
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 5.0), **prior}, statistics={"total": nw.Total(record, contribution, n)}
    )
    release = nw.Release(total=(mechanism or nw.Gaussian(scale=6.0)).released(31.0))
    return nw.fit(model, release, QUICK, start={"mu": 1.0}, seed=1)


REFUSED = {
    "empty list": (lambda: nw.fit(COUNT, count_release(), start=[]), "'start' must be a dict of values, or a"),
    "list of numbers": (lambda: nw.fit(COUNT, count_release(), start=[1.0]), "must give a value for each of"),
    "accelerate": (lambda: nw.EM(accelerate="yes"), "'accelerate' must be True or False"),
    "score tolerance": (lambda: nw.EM(score_tolerance=-1.0), "'score_tolerance' must be positive"),
    "beside": (lambda: nw.fit(COUNT, count_release(), start=START).beside(3), "a fit of the same parameters"),
    "moving contribution": (
        lambda: fit_total(contribution=lambda x, mu: x - mu),
        "a contribution of record fields alone",
    ),
    "exact beyond the support": (
        lambda: fit_exactly(lambda a: dist.Exponential(a), -1.0),
        "must lie within the support of its law where it has no noise",
    ),
    "exact, moving support": (
        lambda: fit_exactly(lambda a: dist.Uniform(0.0, a), 3.9),
        "a support that does not depend on the parameters",
    ),
    "exact total": (lambda: fit_total(mechanism=nw.Exact()), "must carry noise if it is a Total"),
    "too many records": (lambda: fit_total(n=MOST_NUMBERS), "records to be simulated whole"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(call, message):
    with pytest.raises(nw.InputError, match=message):
        call()


@pytest.mark.parametrize(("height", "taken"), [(-4.5, False), (-4.0, True), (-3.5, True)])
def test_a_step_of_newtons_that_falls_is_not_taken(height, taken):
    there = SimpleNamespace(log_likelihood=height)
    ascent = SimpleNamespace(newton=True, surface=SimpleNamespace(clouds=lambda free: there))
    assert (ExactAscent._safe(ascent, np.zeros(1), -4.0) is there) == taken
