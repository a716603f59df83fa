"""Maximum likelihood: EM and MCEM against closed forms, quadrature and numerical derivatives."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees, errors_agree
from scipy import optimize, special, stats
from targets import brief_rows, briefly, count_model, count_release

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step.cloud import Cloud, exact_cloud
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.e_step.sufficient import FAMILIES, condensed
from noisewise.likelihood.e_step.table import E_STEPS
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.m_step.maximise import Objective
from noisewise.likelihood.schedules import next_size

START = {"theta": 1.0}


# The paper's count --------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_em_gives_the_papers_numbers(count_reference):
    truth = count_reference["maximum_likelihood"]
    fit = nw.fit(count_model(), count_release(), nw.EM(), start=START)
    assert fit.estimate["theta"] == pytest.approx(truth["estimate"], abs=1e-6)
    assert fit.information[0, 0] == pytest.approx(truth["observed_information"], abs=1e-7)
    assert fit.standard_error["theta"] == pytest.approx(truth["standard_error"], abs=1e-4)
    assert abs(fit.score[0]) < 1e-8
    naive = nw.fit(count_model(), count_release().naive(), start=START)
    assert naive.estimate["theta"] == pytest.approx(truth["naive_estimate"], abs=1e-8)
    assert naive.information[0, 0] == pytest.approx(truth["naive_information"], abs=1e-6)
    assert naive.information[0, 0] / fit.information[0, 0] == pytest.approx(1.69, abs=0.005)
    # a Poisson count has information 1/theta
    assert fit.efficiency["theta"] == pytest.approx(fit.information[0, 0] * truth["estimate"], rel=1e-6)
    assert naive.efficiency["theta"] == pytest.approx(1.0)


SCHEDULES = {"ascent": nw.Ascent(most=50_000), "staged": nw.Staged(sizes=(1_000, 3_000, 10_000), cap=12)}


STEPS = [e_step for e_step in E_STEPS if e_step != "augmented"]
PAIRS = {f"{step}, {schedule}": (step, schedule) for step in STEPS for schedule in SCHEDULES}
BRIEFLY = [name for name, (step, schedule) in PAIRS.items() if schedule == "ascent" or step == "importance"]
COUNT = count_model()
"""One model for all of them, so that it is compiled once."""


@pytest.mark.quick
@pytest.mark.parametrize(("e_step", "schedule"), brief_rows(PAIRS, BRIEFLY))
def test_mcem_agrees_within_its_own_error(e_step, schedule, count_reference, seed):
    truth = count_reference["maximum_likelihood"]
    estimator = nw.MCEM(e_step=e_step, schedule=SCHEDULES[schedule], final=200_000)
    fit = nw.fit(COUNT, count_release(), estimator, start=START, seed=seed)
    error = fit.monte_carlo_error["theta"]
    assert 0.005 < error < 0.02
    assert abs(fit.estimate["theta"] - truth["estimate"]) < LIMIT * error
    assert abs(fit.information[0, 0] - truth["observed_information"]) < LIMIT * fit.information_error[0, 0] + 1e-6
    assert fit.information_error[0, 0] < 0.005 * truth["observed_information"]
    assert fit.status == "converged"
    assert all(step["ess"] <= step["size"] + 1e-6 for step in fit.trace)


@pytest.mark.long
def test_a_sample_of_one_value_does_not_stop_the_climb(monkeypatch, seed):
    """From theta = 1 hardly any proposal is accepted. One value shows no error: negative control, that stops it."""
    estimator = nw.MCEM(e_step="rejection", schedule=nw.Ascent(most=50_000), final=20_000)
    model = count_model()

    def ends():
        fits = [
            nw.fit(model, count_release(), estimator, start=START, seed=seed + i, on_failure="return")
            for i in range(12)
        ]
        return [fit.status == "converged" and len(fit.trace) > 5 for fit in fits]

    assert all(ends())
    for module in ("monte_carlo.measurement", "e_step.simulated"):
        monkeypatch.setattr(f"noisewise.likelihood.{module}.FEW", 0.0)
    assert not all(ends())


@pytest.mark.long
def test_monte_carlo_error_is_honest(count_reference, seed):
    """Over repeated runs the estimate scatters as the error says."""
    truth = count_reference["maximum_likelihood"]["estimate"]
    estimator = nw.MCEM(schedule=nw.Ascent(most=3_000, tolerance=1e-3), final=5_000)
    model = count_model()
    runs = [nw.fit(model, count_release(), estimator, start={"theta": 30.0}, seed=seed + i) for i in range(60)]
    z = np.array([(run.estimate["theta"] - truth) / run.monte_carlo_error["theta"] for run in runs])
    assert agrees(z, 0.0)
    assert errors_agree(z, slack=0.05)
    information = count_reference["maximum_likelihood"]["observed_information"]
    z = np.array([(run.information[0, 0] - information) / run.information_error[0, 0] for run in runs])
    assert agrees(z, 0.0, truth_error=0.2)  # the information bends with the estimate
    assert errors_agree(z, slack=0.2)
    assert not errors_agree(3.0 * z, slack=0.2)


@pytest.mark.quick
def test_mcem_is_the_same_on_any_threads(seed):
    estimator = nw.MCEM(schedule=nw.Ascent(most=20_000), final=20_000)
    fits = [
        nw.fit(count_model(), count_release(), estimator, start=START, seed=seed, engine=nw.Threads(workers))
        for workers in (1, 3)
    ]
    assert fits[0].estimate["theta"] == fits[1].estimate["theta"]


# Other models, against direct maximisation of the convolution ---------------------------------------------------------


def maximum(log_likelihood, start):
    options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 5000}
    return optimize.minimize(lambda x: -log_likelihood(x), start, method="Nelder-Mead", options=options).x


def numerical_information(log_likelihood, x, step=1e-3):
    """Central second differences."""
    found = np.empty((len(x), len(x)))
    steps = np.diag(step * (1 + np.abs(x)))
    for i, a in enumerate(steps):
        for j, b in enumerate(steps):
            stencil = log_likelihood(x + a + b) - log_likelihood(x + a - b)
            stencil += log_likelihood(x - a - b) - log_likelihood(x - a + b)
            found[i, j] = -stencil / (4 * a[i] * b[j])
    return found


RELEASED = np.array([2.1, -0.7, 4.4, 1.9, 3.2, 0.4, 2.8, 6.1])


def convolution(density):
    """Sum over entries of log integral density(s, x) Laplace(released - s; 0.7) ds, by fine Gauss-Legendre panels."""
    nodes, weights = special.roots_legendre(20)
    wide = np.concatenate([-np.geomspace(60.0, 0.1, 16), [0.0], np.geomspace(0.1, 60.0, 16)])
    cuts = np.sort(np.stack([np.concatenate([wide + y, np.geomspace(1e-6, 0.1, 9), [0.0]]) for y in RELEASED]))
    half = np.diff(cuts)[..., None] / 2
    s = (cuts[:, :-1, None] + half * (1 + nodes)).reshape(len(RELEASED), -1)
    mass = (half * weights).reshape(len(RELEASED), -1) * np.exp(-np.abs(s - RELEASED[:, None]) / 0.7) / 1.4

    def log_likelihood(x):
        return np.sum(np.log(np.sum(density(s, x) * mass, axis=1)))

    return log_likelihood


LAWS = {
    "normal": (
        lambda a, b: dist.Normal(a, b).expand([8]),
        lambda s, x: stats.norm.pdf(s, x[0], x[1]),
    ),
    "student": (
        lambda a, b: dist.StudentT(4.0, a, b).expand([8]),
        lambda s, x: stats.t.pdf((s - x[0]) / x[1], 4.0) / x[1],
    ),
    "weibull": (
        lambda a, b: dist.Weibull(a, b).expand([8]),
        lambda s, x: stats.weibull_min.pdf(s, x[1], scale=x[0]),
    ),
}
"""With two parameters each; the last two are no exponential families."""


@pytest.mark.parametrize(("law", "density"), brief_rows(LAWS, ["student"]))
def test_em_maximises_the_convolution(law, density):
    model = nw.Model(prior={"a": dist.Normal(0.0, 10.0), "b": dist.HalfNormal(10.0)}, statistics={"y": law})
    release = nw.Release(y=nw.Laplace(scale=0.7).released(RELEASED))
    fit = nw.fit(model, release, nw.EM(tolerance=1e-9), start={"a": 1.0, "b": 1.0})
    log_likelihood = convolution(density)
    x = np.array([fit.estimate["a"], fit.estimate["b"]])
    assert x == pytest.approx(maximum(log_likelihood, x + 0.05), abs=2e-5)
    assert fit.log_likelihood == pytest.approx(log_likelihood(x), abs=1e-8)
    assert fit.information == pytest.approx(numerical_information(log_likelihood, x), rel=2e-3, abs=2e-3)
    assert abs(fit.information[0, 1]) > 1e-3  # off the diagonal too
    assert fit.diagnostics["neglected"] < 1e-8


@pytest.mark.long
def test_beta_binomial_style_share_with_geometric_noise(seed):
    model = nw.Model(prior={"p": dist.Beta(1.0, 1.0)}, statistics={"yes": lambda p: dist.Binomial(30, p)})
    release = nw.Release(yes=nw.DiscreteLaplace(scale=2.0).released(19))
    s = np.arange(31)

    def log_likelihood(x):
        return special.logsumexp(stats.binom.logpmf(s, 30, x[0]) - np.abs(19 - s) / 2.0)

    truth = maximum(log_likelihood, np.array([0.6]))[0]
    em = nw.fit(model, release, nw.EM(), start={"p": 0.3})
    assert em.estimate["p"] == pytest.approx(truth, abs=1e-6)
    mcem = nw.fit(model, release, nw.MCEM(schedule=nw.Ascent(most=50_000), final=50_000), start={"p": 0.3}, seed=seed)
    assert abs(mcem.estimate["p"] - truth) < LIMIT * mcem.monte_carlo_error["p"]


def test_shares_that_sum_to_one(seed):
    """A multinomial table is not entry by entry: EM refuses it, MCEM fits it, the covariance is that of a simplex."""
    model = nw.Model(
        prior={"share": dist.Dirichlet(np.ones(3))}, statistics={"cells": lambda share: dist.Multinomial(40, share)}
    )
    release = nw.Release(cells=nw.DiscreteGaussian(scale=2.0).released([20, 13, 8]))
    cells = np.array([(i, j, 40 - i - j) for i in range(41) for j in range(41 - i)])
    log_eta = -0.5 * np.sum(((cells - [20, 13, 8]) / 2.0) ** 2, axis=1)

    def log_likelihood(x):
        share = special.softmax(np.append(x, 0.0))
        return special.logsumexp(stats.multinomial.logpmf(cells, 40, share) + log_eta)

    truth = special.softmax(np.append(maximum(log_likelihood, np.zeros(2)), 0.0))
    with pytest.raises(nw.InputError, match="independent entries"):
        nw.fit(model, release, nw.EM(), start={"share": np.ones(3) / 3})
    estimator = nw.MCEM(schedule=nw.Ascent(most=20_000), final=50_000)
    fit = nw.fit(model, release, estimator, start={"share": np.ones(3) / 3}, seed=seed)
    assert np.all(np.abs(fit.estimate["share"] - truth) < LIMIT * fit.monte_carlo_error["share"])
    assert np.allclose(fit.covariance.sum(axis=0), 0.0, atol=1e-10)
    assert fit.estimate["share"].sum() == pytest.approx(1.0)


@pytest.mark.long  # as is seen by default beside its intervals
def test_regression_with_noise_on_the_response_has_its_closed_form():
    """Normal responses with Gaussian noise: weighted least squares with the variances added."""
    x = np.linspace(-1.0, 2.0, 12)
    y = np.array([0.1, -0.4, 0.3, 0.9, 0.7, 1.9, 1.2, 1.8, 2.9, 2.2, 3.1, 3.3])
    model = nw.Model(
        prior={"beta": dist.Normal(0.0, 10.0).expand([2])},
        statistics={"y": lambda beta: dist.Normal(beta[0] + beta[1] * jnp.asarray(x), 0.5)},
    )
    scale = np.linspace(0.2, 1.5, 12)
    fit = nw.fit(model, nw.Release(y=nw.Gaussian(scale=scale).released(y)), start={"beta": np.zeros(2)})
    design = np.column_stack([np.ones(12), x])
    precision = design.T @ (design / (0.25 + scale**2)[:, None])
    assert fit.estimate["beta"] == pytest.approx(
        np.linalg.solve(precision, design.T @ (y / (0.25 + scale**2))), abs=1e-7
    )
    assert fit.information == pytest.approx(precision, rel=1e-7)


@pytest.mark.long
def test_regression_with_noise_on_the_covariates_has_its_closed_form():
    """x ~ N(m, t^2), y = a + b x + e with e ~ N(0, v^2); y is public, x is released with Gaussian noise.

    Given the public y the confidential x is normal, and the likelihood is that of pairs (x_dp, y), normal with
    covariance [[t^2 + h^2, b t^2], [b t^2, b^2 t^2 + v^2]]: errors in variables, whose maximum is not least squares.
    """
    m, t, v, h = 0.5, 1.0, 0.4, 0.7
    x, y = np.array([[-0.9, 1.9, 0.3, 1.4, -0.1, 2.6, 0.8], [-0.2, 2.1, 0.9, 2.4, 0.6, 2.2, 1.4]])

    def x_given_y(a, b):
        total = b**2 * t**2 + v**2
        return dist.Normal(m + b * t**2 * (jnp.asarray(y) - a - b * m) / total, t * v / jnp.sqrt(total))

    model = nw.Model(
        prior={"a": dist.Normal(0.0, 5.0), "b": dist.Normal(0.0, 5.0)},
        statistics={
            "x": x_given_y,
            "y": lambda a, b: dist.Normal(a + b * m, jnp.sqrt(b**2 * t**2 + v**2)).expand([7]),
        },
    )
    release = nw.Release(x=nw.Gaussian(scale=h).released(x), y=nw.Exact().released(y))
    fit = nw.fit(model, release, nw.EM(accelerate=True), start={"a": 0.5, "b": 0.8})

    def log_likelihood(theta):
        a, b = theta
        covariance = [[t**2 + h**2, b * t**2], [b * t**2, b**2 * t**2 + v**2]]
        return stats.multivariate_normal.logpdf(np.column_stack([x, y]), [m, a + b * m], covariance).sum()

    estimate = np.array([fit.estimate["a"], fit.estimate["b"]])
    assert estimate == pytest.approx(maximum(log_likelihood, estimate + 0.1), abs=1e-5)
    assert fit.log_likelihood == pytest.approx(log_likelihood(estimate), abs=1e-8)
    assert fit.information == pytest.approx(numerical_information(log_likelihood, estimate), rel=1e-4)
    assert abs(np.polyfit(x, y, 1)[0] - estimate[1]) > 0.05  # least squares, the mistaken analysis


# Pieces ---------------------------------------------------------------------------------------------------------------


FAMILY_LAWS = {
    "Normal": (lambda a, b: dist.Normal(a, b), lambda rng: rng.normal(size=200)),
    "LogNormal": (lambda a, b: dist.LogNormal(a, b), lambda rng: rng.lognormal(size=200)),
    "Gamma": (lambda a, b: dist.Gamma(a, b), lambda rng: rng.gamma(2.0, size=200)),
    "InverseGamma": (lambda a, b: dist.InverseGamma(a, b), lambda rng: 1 / rng.gamma(2.0, size=200)),
    "Beta": (lambda a, b: dist.Beta(a, b), lambda rng: rng.beta(2.0, 3.0, size=200)),
    "Poisson": (lambda a, b: dist.Poisson(a * b), lambda rng: rng.poisson(4.0, size=200)),
    "Exponential": (lambda a, b: dist.Exponential(a * b), lambda rng: rng.exponential(size=200)),
    "BernoulliProbs": (lambda a, b: dist.Bernoulli(a / (a + b)), lambda rng: rng.integers(0, 2, 200)),
    "BernoulliLogits": (lambda a, b: dist.Bernoulli(logits=a - b), lambda rng: rng.integers(0, 2, 200)),
    "BinomialProbs": (lambda a, b: dist.Binomial(9, a / (a + b)), lambda rng: rng.binomial(9, 0.4, 200)),
    "BinomialLogits": (lambda a, b: dist.Binomial(9, logits=a - b), lambda rng: rng.binomial(9, 0.4, 200)),
    "GeometricProbs": (lambda a, b: dist.Geometric(a / (a + b)), lambda rng: rng.geometric(0.4, 200) - 1),
    "GeometricLogits": (lambda a, b: dist.Geometric(logits=a - b), lambda rng: rng.geometric(0.4, 200) - 1),
    "GammaPoisson": (lambda a, b: dist.GammaPoisson(3.0, a / b), lambda rng: rng.poisson(4.0, 200)),
    "NegativeBinomial2": (lambda a, b: dist.NegativeBinomial2(a * b, 3.0), lambda rng: rng.poisson(4.0, 200)),
    "NegativeBinomialProbs": (
        lambda a, b: dist.NegativeBinomialProbs(3, a / (a + b)),
        lambda rng: rng.poisson(4.0, 200),
    ),
    "NegativeBinomialLogits": (lambda a, b: dist.NegativeBinomialLogits(3, a - b), lambda rng: rng.poisson(4.0, 200)),
    "Chi2": (lambda a, b: dist.Chi2(a + b), lambda rng: rng.chisquare(3.0, 200)),
    "Dirichlet": (lambda a, b: dist.Dirichlet(jnp.stack([a, b, a + b])), lambda rng: rng.dirichlet([1, 2, 3], 200)),
    "MultinomialProbs": (
        lambda a, b: dist.Multinomial(7, jnp.stack([a, b]) / (a + b)),
        lambda rng: rng.multinomial(7, [0.3, 0.7], 200),
    ),
    "MultinomialLogits": (
        lambda a, b: dist.Multinomial(7, logits=jnp.stack([a, b])),
        lambda rng: rng.multinomial(7, [0.3, 0.7], 200),
    ),
}


def test_every_family_is_looked_at():
    assert set(FAMILY_LAWS) == set(FAMILIES)


@pytest.mark.parametrize("slopes", briefly([False, True], [False]), ids=["heights", "gradients"])
@pytest.mark.parametrize("kind", FAMILY_LAWS)
def test_sufficient_statistics_carry_the_whole_of_q(kind, slopes, seed):
    """Q from one or two values differs from Q of the whole cloud by a constant only; its gradient not at all."""
    law, draw = FAMILY_LAWS[kind]
    rng = np.random.default_rng(seed)
    values = draw(rng).astype(float)
    model = nw.Model(prior={"a": dist.Gamma(2.0, 1.0), "b": dist.Gamma(2.0, 1.0)}, statistics={"s": law})
    noise = nw.Laplace(scale=1.0)
    problem = Problem(model, nw.Release(s=noise.released(values[0])))
    (part,) = parts_of(problem)
    assert part.kind == kind
    weights = rng.dirichlet(np.ones(200))[:, None]
    cloud = Cloud(values, weights, np.zeros(1))
    small = condensed(part, cloud)
    assert len(small.values) <= 2
    both = np.concatenate([cloud.values, small.values])  # of one shape, and so of one program
    objective = Objective([part], Coordinates(model))
    differences = []
    for free in rng.normal(size=(5, 2)):
        if slopes or kind == "Normal":  # to compile them takes longer than all the rest
            (full, gradient, _), (few, same_gradient, _) = (objective.q(free, [one]) for one in (cloud, small))
            assert same_gradient == pytest.approx(gradient, rel=1e-8, abs=1e-8)
        else:
            point = dict(zip("ab", np.exp(free), strict=True))
            heights = part.log_prob_many(point, both).reshape(len(both), -1)
            full = np.sum(weights * heights[:200])
            few = np.sum(small.weights * heights[200:])
        differences.append(full - few)
    assert np.ptp(differences) < 1e-8 * (1 + np.max(np.abs(differences)))


def test_sample_sizes_need_the_variance_not_the_squared_error():
    """sigma^2 = size * error^2; using error^2 itself would ask for `size` times too few (negative control)."""
    rise, error, size, lower, power = 0.02, 0.01, 5_000, 0.6745, 0.6745
    right = next_size(rise, error, size, lower, power)
    assert right == int(np.ceil(size * error**2 * (lower + power) ** 2 / rise**2))
    wrong = int(np.ceil(error**2 * (lower + power) ** 2 / rise**2))
    assert right > 1000 * wrong
    # at the size it names, the rise is seen with the power asked for
    new_error = error * np.sqrt(size / right)
    assert stats.norm.cdf(rise / new_error - lower) == pytest.approx(0.75, abs=0.01)


def test_louis_needs_all_its_terms(count_reference):
    """Negative controls: without the outer products, or with weights that do not sum to one, it is wrong."""
    truth = count_reference["maximum_likelihood"]
    problem = Problem(count_model(), count_release())
    (part,) = parts_of(problem)
    coordinates = Coordinates(problem.model)
    objective = Objective([part], coordinates)
    values = {"theta": np.asarray(truth["estimate"])}
    free = coordinates.free_from(values)
    cloud = exact_cloud(part, values)
    louis = objective.score_and_information(free, [cloud])
    score, information, complete_information = louis.score, louis.information, louis.complete
    assert information[0, 0] == pytest.approx(truth["observed_information"], abs=1e-7)
    assert score[0] == pytest.approx(0.0, abs=1e-7)
    s, weight = cloud.values, cloud.weights[:, 0]
    complete = weight @ (s / truth["estimate"] ** 2)
    assert complete_information[0, 0] == pytest.approx(complete, rel=1e-10)
    assert complete == pytest.approx(truth["naive_information"], rel=0.01)  # what dropping the other terms would claim
    unnormalised = Cloud(cloud.values, 2.0 * cloud.weights, cloud.log_likelihoods)
    wrong = objective.score_and_information(free, [unnormalised])
    assert wrong.information[0, 0] != pytest.approx(information[0, 0], rel=0.1)
    away = coordinates.free_from({"theta": np.asarray(30.0)})  # where the score is not zero
    clouds = [exact_cloud(part, {"theta": np.asarray(30.0)})]
    right = objective.score_and_information(away, clouds).score[0]
    s = np.arange(400)
    heights = [special.logsumexp(stats.poisson.logpmf(s, x) - np.abs(37.4 - s) / 5.0) for x in (29.999, 30.001)]
    assert right == pytest.approx(np.diff(heights)[0] / 2e-3, rel=1e-5)
    doubled = [Cloud(clouds[0].values, 2.0 * clouds[0].weights, clouds[0].log_likelihoods)]
    assert objective.score_and_information(away, doubled).score[0] == pytest.approx(2.0 * right)


# Bad input ----------------------------------------------------------------------------------------------------------


def fit_count(**changes):
    arguments = {"start": START} | changes
    return nw.fit(count_model(), count_release(), arguments.pop("estimator", None), **arguments)


REFUSED = {
    "no start": (lambda: fit_count(start={}), "'start' must give a value for each of theta"),
    "start outside": (lambda: fit_count(start={"theta": -1.0}), r"start\['theta'\].*inside the prior's support"),
    "start shape": (lambda: fit_count(start={"theta": [1.0, 2.0]}), r"must have the shape \(\)"),
    "estimator": (lambda: fit_count(estimator="em"), "'estimator' must be an estimator; got 'em'"),
    "no seed": (lambda: fit_count(estimator=nw.MCEM()), "'seed' must be a whole number"),
    "e_step": (lambda: nw.MCEM(e_step="clever"), "'e_step' must be one of 'importance'"),
    "tolerance": (lambda: nw.EM(tolerance=0.0), "'tolerance' must be positive"),
    "hierarchy": (
        lambda: nw.fit(
            nw.Model(
                prior={"a": dist.Gamma(2.0, 1.0), "b": lambda a: dist.Gamma(a, 1.0)},
                statistics={"count": lambda b: dist.Poisson(b)},
            ),
            count_release(),
            start={"a": 1.0, "b": 1.0},
        ),
        r"prior\['b'\].*must not depend on other parameters",
    ),
    "total": (
        lambda: nw.fit(
            nw.Model(
                prior={"p": dist.Beta(1.0, 1.0)},
                statistics={"count": nw.Total({"bit": lambda p: dist.Bernoulli(p)}, lambda bit: bit, 9)},
            ),
            count_release(),
            nw.EM(),
            start={"p": 0.5},
        ),
        r"statistics\['count'\].*must have a density.*Use nw.MCEM\(\)",
    ),
    "level": (lambda: fit_count().interval(95), "'level' must lie between 0 and 1"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(call, message):
    with pytest.raises(nw.InputError, match=message):
        call()


def test_not_converged_is_a_failure_with_its_result():
    with pytest.raises(nw.InferenceError, match="has not converged in max_iterations=3") as caught:
        fit_count(estimator=nw.EM(max_iterations=3))
    assert caught.value.result.status == "max_iterations"
    assert fit_count(estimator=nw.EM(max_iterations=3), on_failure="return").status == "max_iterations"


def test_a_flat_likelihood_says_so():
    """Two rates of which only the product is seen."""
    model = nw.Model(
        prior={"a": dist.Gamma(2.0, 1.0), "b": dist.Gamma(2.0, 1.0)},
        statistics={"count": lambda a, b: dist.Poisson(a * b)},
    )
    fit = nw.fit(model, count_release(), start={"a": 2.0, "b": 3.0}, on_failure="return")
    assert fit.status == "flat"
    assert "not positive definite" in fit.message


def test_displays_and_tables():
    fit = fit_count()
    assert list(fit.summary().columns) == ["estimate", "standard error", "2.5%", "97.5%"]
    low, high = fit.interval(0.9)["theta"]
    assert low < fit.estimate["theta"] < high
    assert "converged" in repr(fit)
    assert "<table" in fit._repr_html_()
    likelihoods = [step["log_likelihood"] for step in fit.trace]
    assert np.all(np.diff(likelihoods) > -1e-12)  # EM never falls
    with pytest.raises(ValueError, match="read-only"):
        fit.covariance[0, 0] = 1.0


def test_the_covariance_of_shares_is_that_of_a_multinomial():
    """Without noise: (diag(p) - p p') / n, which the coordinates of a simplex reach through their Jacobian."""
    model = nw.Model({"p": dist.Dirichlet(jnp.ones(3))}, {"s": lambda p: dist.Multinomial(100, p)})
    found = nw.fit(model, nw.Release(s=nw.Exact().released([20, 50, 30])), nw.EM(), start={"p": [0.3, 0.3, 0.4]})
    p = np.array([0.2, 0.5, 0.3])
    assert found.estimate["p"] == pytest.approx(p, rel=1e-6)
    assert found.covariance == pytest.approx((np.diag(p) - np.outer(p, p)) / 100, rel=1e-5)
