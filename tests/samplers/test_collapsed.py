"""Parameters weighed by the exact likelihood of the release; statistics integrated out, and drawn afterwards."""

import math
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees, z_scores
from sampler_table import problem
from scipy import integrate, stats
from targets import count_model, count_release, new_count_model

import noisewise as nw
from noisewise.inference.conditional import normal
from noisewise.inference.problem import Problem
from noisewise.samplers.choosing import choice, second_look
from noisewise.samplers.proposals import collapsed, pilot

EXP = dist.transforms.ExpTransform()
COLLAPSED = nw.Importance(proposal="adapted", collapse=True)
ROWS = np.array([1.0, 2.5, -0.3, 4.0, 1.7, 2.2])


@cache
def noisy_rows(mu=10.0, unit=1.0):
    """Six values of a normal law under Laplace noise: two parameters; simulation hardly ever meets all six."""
    model = nw.Model(
        {"mu": dist.Normal(0.0, mu * unit), "sigma": dist.HalfNormal(2.0 * unit)},
        {"x": lambda mu, sigma: dist.Normal(mu, sigma).expand([6])},
    )
    return model, nw.Release(x=nw.Laplace(scale=0.5 * unit).released(ROWS * unit))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of fewer rows, and fewer of them in a round of a pilot."""
    monkeypatch.setattr(collapsed, "ROWS", 2**11)
    monkeypatch.setattr(pilot, "ROUND", 2**12)


@pytest.fixture
def short_looks(monkeypatch):
    """Second looks at fewer rows."""
    monkeypatch.setattr(second_look, "MOST_ROWS", 2**13)


@cache
def by_quadrature():
    """Posterior means and variances of mu and sigma, and the log evidence, on a fine grid of both."""
    mu, sigma = np.linspace(-8.0, 12.0, 161), np.linspace(1e-3, 12.0, 241)
    m, s = np.meshgrid(mu, sigma, indexing="ij")
    log = stats.norm.logpdf(m, 0.0, 10.0) + stats.halfnorm.logpdf(s, scale=2.0)
    mechanism = nw.Laplace(scale=0.5)
    log = log + sum(normal.log_marginal(mechanism, value, m, s) for value in ROWS)
    top = log.max()

    def total(f):
        return integrate.simpson(integrate.simpson(f * np.exp(log - top), x=sigma, axis=1), x=mu)

    mass = total(1.0)
    truth = {}
    for name, grid in (("mu", m), ("sigma", s)):
        mean = total(grid) / mass
        truth[name] = (mean, total((grid - mean) ** 2) / mass)
    return truth, top + math.log(mass)


def test_noisy_rows_of_a_normal_law_by_default(seed):
    """Nothing but a seed; all that came before the likelihood was known failed here."""
    truth, log_evidence = by_quadrature()
    posterior = nw.sample(*noisy_rows(), draws=2_000, seed=seed)
    assert (posterior.status, posterior.sampler) == ("complete", COLLAPSED)
    for name, (mean, variance) in truth.items():
        assert np.all(np.abs(z_scores(posterior, name, mean, variance)) < LIMIT)
    assert abs(posterior.log_evidence - log_evidence) < LIMIT * posterior.log_evidence_se


@pytest.mark.parametrize("unit", [1e-9, pytest.param(1e9, marks=pytest.mark.long)])
def test_units_change_nothing(unit, seed):
    truth, log_evidence = by_quadrature()
    other = nw.sample(*noisy_rows(unit=unit), COLLAPSED, draws=2_000, seed=seed)
    assert abs(other.log_evidence + 6 * math.log(unit) - log_evidence) < LIMIT * other.log_evidence_se
    mean, variance = truth["mu"]
    assert np.all(np.abs(z_scores(other, "mu", mean * unit, variance * unit**2)) < LIMIT)


def test_what_prior_draws_never_show_is_found(seed, short_looks):
    """Beta(1, 1e5) hardly ever lets the count be other than 0; the release says it is about 50.

    Weights of simulated counts are all alike and all of exp(-50). Exactly: m(r | p) = (1 - p) exp(-50.3) / 2 + p c,
    with c the mean noise density over a Poisson law; E p = 1 / 100001.
    """
    model = nw.Model({"p": dist.Beta(1.0, 1e5)}, {"c": lambda p: dist.ZeroInflatedPoisson(1.0 - p, 50.0)})
    release = nw.Release(c=nw.Laplace(scale=1.0).released(50.3))
    counts = np.arange(0, 400)
    c = np.sum(stats.poisson.pmf(counts, 50.0) * 0.5 * np.exp(-np.abs(50.3 - counts)))
    share = 1 / 100_001
    evidence = (1 - share) * math.exp(-50.3) / 2 + share * c
    posterior = nw.sample(model, release, draws=1_000, seed=seed)
    assert posterior.status == "complete"
    assert np.all(posterior["c"] > 0)  # with probability 1 - 2e-16 each
    assert abs(posterior.log_evidence - math.log(evidence)) < LIMIT * posterior.log_evidence_se
    # The control: even weights, all wrong. A second look says so.
    blind = nw.sample(model, release, nw.Importance(), draws=1_000, seed=seed, on_failure="return")
    assert abs(blind.log_evidence - math.log(evidence)) > 30
    assert blind.status == "unseen"


@pytest.mark.parametrize("number", [4, pytest.param(12, marks=pytest.mark.long)])
def test_many_counts_of_one_rate_by_default(number, seed):
    """Twelve statistics of one Poisson rate: chains of merges never ended. The truth by quadrature and enumeration."""
    values = [3, 14, 7, -1, 22, 9, 5, 31, 2, 11, 6, 17][:number]
    model = nw.Model({"rate": dist.Gamma(2.0, 0.2)}, {f"c{i}": lambda rate: dist.Poisson(rate) for i in range(number)})
    mechanism = nw.DiscreteLaplace(scale=2.0)
    release = nw.Release({f"c{i}": mechanism.released(value) for i, value in enumerate(values)})
    rate, counts = np.linspace(1e-6, 40.0, 4001), np.arange(0, 200)
    pmf = stats.poisson.pmf(counts, rate[:, None])
    log = stats.gamma.logpdf(rate, 2.0, scale=5.0)
    for value in values:
        log = log + np.log(pmf @ np.exp(np.asarray(mechanism.log_prob(value, counts))))
    weight = np.exp(log - log.max())
    mean = np.sum(rate * weight) / weight.sum()
    variance = np.sum((rate - mean) ** 2 * weight) / weight.sum()
    posterior = nw.sample(model, release, draws=4_000, seed=seed)
    assert posterior.status == "complete"
    assert np.all(np.abs(z_scores(posterior, "rate", mean, variance)) < LIMIT)


def test_windows_that_leave_too_much_out_are_widened(seed, monkeypatch):
    """Noise windows of exp(-1) of the density: the first run is discarded. Control: kept, its evidence is wrong."""
    monkeypatch.setattr("noisewise.inference.conditional.windows.FALL", 1.0)
    model, exact = new_count_model(), problem("count-25")[2]["log_evidence"]
    posterior = nw.sample(model, count_release(), COLLAPSED, draws=4_000, seed=seed)
    assert posterior.diagnostics["widened"] > 0
    assert posterior.diagnostics["neglected"] <= collapsed.NEGLECTED
    assert abs(posterior.log_evidence - exact) < LIMIT * posterior.log_evidence_se
    monkeypatch.setattr(collapsed, "too_narrow", lambda *given: [])
    wrong = nw.sample(model, count_release(), COLLAPSED, draws=4_000, seed=seed)
    assert abs(wrong.log_evidence - exact) > LIMIT * wrong.log_evidence_se


def test_windows_far_from_what_is_likely_are_noticed(seed, short_looks):
    """50 noise scales from all that the prior allows: the noise did it.

    Below the release its density grows as exp(s), so the posterior is Gamma(1.5, rate - (e - 1)).
    """
    rate, left = 20.0, 20.0 - math.expm1(1.0)
    model = nw.Model({"lam": dist.Gamma(1.5, rate)}, {"count": lambda lam: dist.Poisson(lam)})
    release = nw.Release(count=nw.Laplace(scale=1.0).released(50.0))
    posterior = nw.sample(model, release, COLLAPSED, draws=4_000, seed=seed)
    assert posterior.diagnostics["widened"] > 0
    assert np.all(np.abs(z_scores(posterior, "lam", 1.5 / left, 1.5 / left**2)) < LIMIT)
    log_evidence = -50.0 - math.log(2.0) + 1.5 * math.log(rate / left)
    assert abs(posterior.log_evidence - log_evidence) < LIMIT * posterior.log_evidence_se


def test_any_engine_gives_the_same_draws(seed):
    model, release = noisy_rows()
    given = {"draws": 5_000, "seed": seed, "on_failure": "return"}
    here, there = (nw.sample(model, release, COLLAPSED, engine=nw.Threads(number), **given) for number in (1, 3))
    assert all(np.array_equal(here[name], there[name]) for name in here.draws)


def test_a_checkpoint_resumes_it(tmp_path, seed):
    model, release = noisy_rows()
    given = {"draws": 5_000, "seed": seed, "checkpoint": tmp_path / "run.nwc", "on_failure": "return"}
    first, again = (nw.sample(model, release, COLLAPSED, **given) for _ in range(2))
    assert np.array_equal(first["x"], again["x"])
    assert np.array_equal(first.log_weights, again.log_weights)


def total(model_of=lambda mu: dist.Normal(mu, 1.0)):
    record = {"z": model_of}
    return nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"x": nw.Total(record, lambda z: jnp.clip(z, -1, 1), n=5)})


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (total(), "cannot integrate out 'x', which is a Total or Simulator"),
        (
            nw.Model(
                {"mu": dist.Normal(0.0, 1.0)}, {"x": lambda mu: dist.TransformedDistribution(dist.Normal(mu), EXP)}
            ),
            "cannot integrate out 'x': no rule for its law and noise is known here",
        ),
    ],
)
def test_what_cannot_be_integrated_out_is_refused(model, reason):
    release = nw.Release(x=nw.Laplace(scale=1.0).released(0.5))
    with pytest.raises(nw.InputError, match=reason):
        nw.sample(model, release, COLLAPSED, draws=100, seed=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"collapse": 1}, "Importance: 'collapse' must be True or False; got 1"),
        ({"collapse": True, "simulations": 3}, "Importance: 'simulations' must be 1 where statistics are integrated"),
    ],
)
def test_settings_are_checked(given, message):
    with pytest.raises(nw.InputError, match=message):
        nw.Importance(**given)


def test_settings_go_to_files_and_back():
    assert nw.Importance.from_dict(COLLAPSED.to_dict()) == COLLAPSED
    older = {key: value for key, value in COLLAPSED.to_dict().items() if key != "collapse"}
    assert nw.Importance.from_dict(older) == nw.Importance(proposal="adapted")


def answers(number, rng):
    """A logistic regression of randomised answers."""
    x = rng.normal(size=number)
    told = rng.integers(0, 2, number)
    model = nw.Model(
        {"beta": dist.Normal(0.0, 1.0).expand([2])}, {"yes": lambda beta: dist.Bernoulli(logits=beta[0] + beta[1] * x)}
    )
    return x, told, Problem(model, nw.Release(yes=nw.RandomizedResponse(keep=0.75).released(told)))


def test_answers_have_the_likelihood_of_their_channel_and_nothing_beyond(seed):
    """Sums over yes and no hold every value; sums over counts do not."""
    x, told, problem = answers(50, np.random.default_rng(seed))
    collapse = collapsed.Collapse.of(problem)
    beta = np.array([[0.3, -0.8], [2.0, 5.0]])
    p = 1 / (1 + np.exp(-(beta[:, :1] + beta[:, 1:] * x)))
    reported = 0.25 + 0.5 * np.where(told == 1, p, 1 - p)
    assert collapse.log_likelihood({"beta": beta}, 2) == pytest.approx(np.log(reported).sum(axis=1), rel=1e-12)
    assert [total.whole for total in collapse.target.sums] == [True]
    counts = collapsed.Collapse.of(Problem(count_model(25.0), count_release()))
    assert [total.whole for total in counts.target.sums] == [False]


WITHOUT_PARAMETERS = {
    "a sum": (dist.Binomial(20, 0.3), nw.DiscreteLaplace(scale=2.0).released(11)),
    "an integral": (dist.Gamma(3.0, 1.0), nw.Laplace(scale=1.0).released(2.5)),
}


@pytest.mark.parametrize("case", WITHOUT_PARAMETERS)
def test_without_parameters_the_evidence_is_the_release_s_probability(case, seed):
    """One number for all rows: their weights are one."""
    law, item = WITHOUT_PARAMETERS[case]
    posterior = nw.sample(nw.Model({}, {"s": lambda: law}), nw.Release(s=item), COLLAPSED, draws=2_000, seed=seed)
    if case == "a sum":
        values = np.arange(21)
        terms = stats.binom.pmf(values, 20, 0.3) * np.tanh(0.25) * np.exp(-np.abs(11 - values) / 2.0)
        evidence, first = terms.sum(), terms @ values
    else:

        def density(s, power):
            return s**power * stats.gamma.pdf(s, 3.0) * stats.laplace.pdf(2.5 - s)

        evidence, first = (integrate.quad(density, 0.0, 60.0, args=(k,), points=[2.5])[0] for k in (0, 1))
    assert np.isclose(posterior.log_evidence, np.log(evidence), rtol=0, atol=1e-9)
    assert posterior.ess["s"] == pytest.approx(2_000)
    assert agrees(posterior["s"], first / evidence)


def test_without_parameters_a_release_that_cannot_come_about_is_refused():
    release = nw.Release(s=nw.mechanisms.TruncatedLaplace(scale=2.0, bound=10.0).released(40.0))
    model = nw.Model({}, {"s": lambda: dist.Binomial(20, 0.3)})
    for sampler in (COLLAPSED, None):
        with pytest.raises(nw.InferenceError, match="could have given the release"):
            nw.sample(model, release, sampler, draws=1_000, seed=1)


def test_no_thousand_answers_are_simulated_where_they_can_be_summed_out(seed, monkeypatch):
    assert choice.MANY == 1_024
    _, _, problem = answers(20, np.random.default_rng(seed))

    def tried(many):
        monkeypatch.setattr(choice, "MANY", many)  # the same with fewer
        return nw.forecast(problem.model, problem.release, draws=1_000, seed=seed).ranking

    few, many = ({choice.label(one.sampler) for one in tried(number)} for number in (40, 15))
    simulated, summed = "Importance(proposal='adapted')", "Importance(proposal='adapted', collapse=True)"
    assert {simulated, summed} <= few
    assert summed in many
    assert simulated not in many


def test_sums_over_very_many_values_are_not_tried_unasked(seed):
    """Noise of scale 1e4 on ten counts: a hundred thousand values in each sum, and prior draws are worth as many."""
    model = nw.Model({"theta": dist.Gamma(25.0, 1.0)}, {"c": lambda theta: dist.Poisson(theta).expand([10])})
    values = np.random.default_rng(3).laplace(size=10) * 1e4
    posterior = nw.sample(model, nw.Release(c=nw.Laplace(scale=1e4).released(values)), draws=4_000, seed=seed)
    assert (posterior.status, posterior.sampler) == ("complete", nw.Importance())


@pytest.mark.parametrize("collapse", [False, True])
def test_a_value_without_noise_stays_as_it_was_released(collapse, seed):
    """A naive analysis may put a count at 2.5: the law is evaluated there, and that is what the draws say."""
    model = nw.Model({"t": dist.Gamma(2.0, 1.0)}, {"c": lambda t: dist.Poisson(t)})
    release = nw.Release(c=nw.Exact().released(2.5))
    posterior = nw.sample(model, release, nw.Importance(collapse=collapse), draws=4_000, seed=seed)
    assert np.all(posterior["c"] == 2.5)
    assert np.all(np.abs(z_scores(posterior, "t", 4.5 / 2.0, 4.5 / 4.0)) < LIMIT)
