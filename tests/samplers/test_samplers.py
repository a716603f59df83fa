"""Every sampler against every target it applies to: means, variances and evidence within Monte Carlo error."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, LIMIT, agrees, variance_agrees, z_scores
from numpyro.distributions import transforms
from sampler_table import SAMPLERS, TARGETS, compared, problem
from scipy import stats
from targets import briefly, count_model, count_release, lalonde_model, lalonde_release

import noisewise as nw
from noisewise import samplers
from noisewise.inference.problem import Problem
from noisewise.samplers.rejection import plan_streams

DIVIDED = {"statistic-of-statistic"}
"""Targets whose default plan of rejection has several merges. For the others "joint" is the same plan."""


def cases():
    """Every sampler with its targets, those of one target together: they share its model."""
    for target in TARGETS:
        for name, row in SAMPLERS.items():
            if target in row.default or target in row.more:
                marks = [] if target in row.default else [pytest.mark.long]
                quick = [pytest.mark.quick] if target == row.default[0] else []
                yield pytest.param(row, target, id=f"{name}-{target}", marks=marks + quick)


def outline(streams):
    """All that a plan of rejection consists of."""
    return [(each.index, each.rows, each.work, each.label, each.counted, outline(each.children)) for each in streams]


@pytest.mark.quick
def test_every_public_sampler_has_a_row():
    rows = {type(row.sampler).__name__ for row in SAMPLERS.values() if row.sampler is not None}
    assert rows == set(samplers.__all__)
    assert all(set(row.default) | set(row.more) <= set(TARGETS) for row in SAMPLERS.values())


@pytest.mark.parametrize("target", TARGETS)
def test_plans_of_rejection_differ_where_there_are_several_merges(target):
    model, release, _ = problem(target)
    divided, joint = (outline(plan_streams(Problem(model, release), joint=joint)) for joint in (False, True))
    assert (divided == joint) == (target not in DIVIDED)


@pytest.mark.parametrize(("row", "target"), list(cases()))
def test_posterior_and_evidence_are_exact(row, target, seed):
    model, release, truth = problem(target)
    draws = row.few or TARGETS[target].draws
    posterior = nw.sample(model, release, row.small, draws=draws, seed=seed, on_failure="return")
    # chains as short as these may not be sure that they have mixed; their errors are right all the same
    assert posterior.status == "complete" or posterior.chains
    assert len(posterior) >= draws
    assert set(posterior.draws) == set(truth) - {"log_evidence"}
    moments, evidence = compared(posterior, truth)
    assert moments < 1.0
    assert evidence is None or evidence < 1.0


@pytest.mark.parametrize("case", briefly(["true_statistic", "noisy_a"], ["noisy_a"]))
def test_lalonde_matches_its_reference(case, lalonde_reference, seed):
    entry = lalonde_reference[case]
    posterior = nw.sample(lalonde_model(), lalonde_release(entry["released"]), draws=20_000, seed=seed)
    values = {
        "tau": posterior["tau"],
        "mu": posterior["mu"],
        "sigma_t_squared": posterior["sigma_t"] ** 2,
        "sigma_c_squared": posterior["sigma_c"] ** 2,
    }
    for name, truth in entry["posterior"].items():
        assert agrees(values[name], truth["mean"], truth["mcse_of_mean"]), name
        reference_size = (truth["sd"] / truth["mcse_of_mean"]) ** 2
        for level, quantile in truth["quantiles"].items():
            below = np.mean(values[name] <= quantile)
            p = float(level)
            # the reference is Monte Carlo too: its own error in the level counts
            error = np.sqrt(p * (1 - p) * (1 / len(values[name]) + 1 / reference_size))
            assert abs(below - p) < LIMIT * error, (name, level)


def test_joint_and_divided_plans_agree_on_lalonde(seed, lalonde_reference):
    release = lalonde_release(lalonde_reference["noisy_a"]["released"])
    joint = nw.sample(lalonde_model(), release, nw.Rejection(plan="joint"), draws=500, seed=seed)
    divided = nw.sample(lalonde_model(), release, nw.Rejection(), draws=20_000, seed=seed + 1)
    for name in joint.draws:
        error = divided[name].std() / np.sqrt(len(divided))
        assert agrees(joint[name], divided[name].mean(), error), name
    difference = joint.log_evidence - divided.log_evidence
    assert abs(difference) < LIMIT * np.hypot(joint.log_evidence_se, divided.log_evidence_se)
    assert divided.proposals / len(divided) < 0.1 * joint.proposals / len(joint)  # costs add, not multiply


def test_count_quantiles_and_acceptance(count_reference, seed):
    for alpha, entry in count_reference["by_alpha"].items():
        draws = 2_000 if alpha in "25" else 20_000
        posterior = nw.sample(count_model(float(alpha)), count_release(), nw.Rejection(), draws=draws, seed=seed)
        for level, truth in entry["quantiles"].items():
            assert agrees(posterior["theta"] <= truth, float(level)), (alpha, level)
        relative = posterior.acceptance_rate / entry["acceptance_rate"] - 1
        assert abs(relative) < LIMIT / np.sqrt(draws), alpha
        assert variance_agrees(posterior["theta"], entry["sd"] ** 2)


@pytest.mark.quick
def test_wrong_noise_scale_is_caught(count_reference, seed):
    """Negative control: a scale 20% off must fail the very check the right one passes."""
    truth = count_reference["by_alpha"]["25"]["mean"]
    release = nw.Release(count=nw.Laplace(scale=6.0).released(37.4))
    right = nw.sample(count_model(), count_release(), nw.Rejection(), draws=50_000, seed=seed)
    wrong = nw.sample(count_model(), release, nw.Rejection(), draws=50_000, seed=seed)
    assert agrees(right["theta"], truth)
    assert not agrees(wrong["theta"], truth)


def test_dropped_weights_are_caught(count_reference, seed):
    posterior = nw.sample(count_model(), count_release(), nw.Importance(), draws=20_000, seed=seed)
    assert not agrees(posterior["theta"], count_reference["by_alpha"]["25"]["mean"])


def test_naive_fit_is_the_conjugate_posterior(count_reference, seed):
    for alpha in ("25", "50"):
        entry = count_reference["by_alpha"][alpha]
        naive = nw.sample(count_model(float(alpha)), count_release().naive(), draws=20_000, seed=seed)
        assert type(naive.sampler) is nw.Importance
        of_mean, of_variance = z_scores(naive, "theta", entry["naive_mean"], entry["naive_sd"] ** 2)
        assert abs(of_mean) < LIMIT
        assert abs(of_variance) < LIMIT


def test_importance_is_consistent(count_reference, seed):
    """Section 3: the weighted average nears E(a | s_dp), and averages of a hundredth of the rows spread ten times as
    far as its own standard error says of the whole."""
    truth = count_reference["by_alpha"]["2"]["mean"]
    posterior = nw.sample(count_model(2.0), count_release(), nw.Importance(), draws=50_000, seed=seed)
    summary = posterior.summary().loc["theta"]
    assert abs(summary["mean"] - truth) < LIMIT * summary["mcse"]
    weights, theta = (column.reshape(100, -1) for column in (posterior.weights, posterior["theta"]))
    averages = (weights * theta).sum(axis=1) / weights.sum(axis=1)
    squares = 99 * averages.var(ddof=1) / (10 * summary["mcse"]) ** 2  # chi-square, for averages close to normal
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 99)
    assert low < squares < high


def test_choice_is_recorded(seed):
    posterior = nw.sample(count_model(), count_release(), draws=100, seed=seed)
    assert posterior.sampler == nw.Rejection()
    assert "bounded density" in posterior.reason
    replay = nw.sample(count_model(), count_release(), posterior.sampler, draws=100, seed=posterior.seed)
    assert np.array_equal(replay["theta"], posterior["theta"])


def test_noise_free_statistics_respect_a_support_that_moves(seed):
    """top ~ Uniform(0, theta) seen at 5: no mass below 5, and a density proportional to prior / theta above."""
    model = nw.Model(prior={"theta": dist.Gamma(2.0, 0.5)}, statistics={"top": lambda theta: dist.Uniform(0.0, theta)})
    posterior = nw.sample(model, nw.Release(top=nw.Exact().released(5.0)), draws=20_000, seed=seed)
    assert posterior["theta"][posterior.weights > 0].min() > 5.0
    # theta - 5 is exponential with rate 1/2
    of_mean, of_variance = z_scores(posterior, "theta", 7.0, 4.0)
    assert abs(of_mean) < LIMIT
    assert abs(of_variance) < LIMIT
    assert abs(posterior.log_evidence - np.log(0.5 * np.exp(-2.5))) < LIMIT * posterior.log_evidence_se


def test_naive_and_exact_fits_share_no_random_numbers(seed):
    found = nw.compare(count_model(), count_release(), draws=1_000, seed=seed)
    assert not np.intersect1d(found.exact["theta"], found.naive["theta"]).size


MOVING = {
    "shifted": (
        lambda theta: dist.TransformedDistribution(dist.Exponential(1.0), transforms.AffineTransform(theta, 1.0)),
        2.0,
        lambda theta: np.where(theta <= 2.0, np.exp(theta - 2.0), 0.0),
    ),
    "scaled": (
        lambda theta: dist.TransformedDistribution(dist.Uniform(0.0, 1.0), transforms.AffineTransform(0.0, theta)),
        2.0,
        lambda theta: np.where(theta >= 2.0, 1.0 / theta, 0.0),
    ),
    "independent-discrete": (
        lambda theta: dist.DiscreteUniform(0, jnp.floor(theta).astype(int)).expand([3]).to_event(1),
        [3, 1, 2],
        lambda theta: np.where(theta >= 3.0, 1.0 / (np.floor(theta) + 1.0) ** 3, 0.0),
    ),
    "categorical": (
        lambda theta: dist.Categorical(jnp.stack([theta, 5.0 - theta]) / 5.0),
        1,
        lambda theta: (5.0 - theta) / 5.0,
    ),
}


@pytest.mark.parametrize(("law", "value", "likelihood"), MOVING.values(), ids=MOVING)
def test_noise_free_laws_through_their_wrappers(law, value, likelihood, seed):
    """theta ~ Uniform(0, 5): mean and evidence by quadrature over the likelihood."""
    model = nw.Model(prior={"theta": dist.Uniform(0.0, 5.0)}, statistics={"s": law})
    posterior = nw.sample(model, nw.Release(s=nw.Exact().released(value)), nw.Importance(), draws=20_000, seed=seed)
    grid = (np.arange(50_000) + 0.5) * 5.0 / 50_000
    weight = likelihood(grid)
    of_mean, _ = z_scores(posterior, "theta", np.sum(weight * grid) / weight.sum(), 1.0)
    assert abs(of_mean) < LIMIT
    assert abs(posterior.log_evidence - np.log(weight.mean())) < LIMIT * posterior.log_evidence_se
