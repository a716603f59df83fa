"""Objective perturbation: laws in one and two dimensions by quadrature, bounds, budgets audited, refusals."""

import itertools
import math

import jsonschema
import numpy as np
import pytest
from exactness import counts_agree
from families.objective import data, one
from scipy import optimize
from scipy.special import roots_legendre
from targets import briefly

import noisewise as nw
from noisewise.mechanisms.objective_perturbation import ObjectivePerturbation
from noisewise.release.schema import current_schema

BOUNDS = {"logistic": {}, "linear": dict(bound=1.5, label=2.0)}


def make(loss, noise, scale=1.2, ridge=0.7, records=4):
    bounds = {} if loss == "logistic" else dict(feature_bound=1.5, label_bound=2.0)
    return ObjectivePerturbation(scale, loss=loss, noise=noise, ridge=ridge, n=records, **bounds)


def centre(mechanism, rows):
    """The noise-free estimate, by a general optimiser."""
    x, y = rows[:, :-1], rows[:, -1]

    def objective(b):
        fitted = x @ b
        losses = np.logaddexp(0, -y * fitted) if mechanism.loss == "logistic" else (y - fitted) ** 2 / 2
        return losses.sum() + mechanism.ridge * (b @ b) / 2

    return optimize.minimize(objective, np.zeros(x.shape[1]), method="BFGS", options=dict(gtol=1e-9)).x


LAWS = list(itertools.product(("logistic", "linear"), ("laplace", "gaussian")))
every_law = pytest.mark.parametrize(("loss", "noise"), LAWS)


@every_law
def test_one_coefficient(loss, noise, seed):
    """Mass one over intervals on both sides of the noise-free estimate, and draws that follow the cells."""
    mechanism, rows = make(loss, noise), one(4, 1, **BOUNDS[loss])
    middle = centre(mechanism, rows)[0]
    spread = 45.0 * mechanism.scale / mechanism.ridge
    cuts = np.concatenate([middle - np.geomspace(spread, 1e-2, 60), [middle], middle + np.geomspace(1e-2, spread, 60)])
    nodes, weights = roots_legendre(16)
    half = np.diff(cuts)[:, None] / 2
    at = cuts[:-1, None] + half * (1 + nodes)
    masses = (np.exp(mechanism.log_prob(at[..., None], rows)) * weights * half).sum(axis=1)
    # BFGS finds the cusp to about 1e-8, which costs as much mass.
    assert masses.sum() == pytest.approx(1.0, abs=1e-7)
    drawn = mechanism.sample(np.random.default_rng(seed), np.broadcast_to(rows, (80_000, 4, 2)))
    observed = np.histogram(drawn[:, 0], cuts)[0]
    assert counts_agree(np.append(observed, 80_000 - observed.sum()), np.append(masses, max(1 - masses.sum(), 0)))


@every_law
def test_two_coefficients(loss, noise, seed):
    """The same in polar cells around the noise-free estimate."""
    mechanism, rows = make(loss, noise), one(4, 2, **BOUNDS[loss])
    middle = centre(mechanism, rows)
    radii = np.concatenate([[0.0], np.geomspace(0.1, 60.0 * mechanism.scale / mechanism.ridge, 30)])
    per_sector, sectors = 24, 12
    nodes, weights = roots_legendre(16)
    across, across_weights = roots_legendre(per_sector)
    half = np.diff(radii)[:, None] / 2
    r = radii[:-1, None] + half * (1 + nodes)
    width = 2 * np.pi / sectors
    angle = -np.pi + width * (np.arange(sectors)[:, None] + (1 + across) / 2)
    at = middle + r[..., None, None, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    density = np.exp(mechanism.log_prob(at, rows))
    masses = np.einsum("crsa,cr,a->cs", density, r * weights * half, across_weights * width / 2)
    assert masses.sum() == pytest.approx(1.0, abs=1e-7)
    drawn = mechanism.sample(np.random.default_rng(seed), np.broadcast_to(rows, (50_000, 4, 3))) - middle
    observed = np.histogram2d(
        np.hypot(*drawn.T), np.arctan2(drawn[:, 1], drawn[:, 0]), [radii, np.linspace(-np.pi, np.pi, sectors + 1)]
    )[0]
    assert counts_agree(np.append(observed, 50_000 - observed.sum()), np.append(masses, max(1 - masses.sum(), 0)))


@every_law
def test_draws_with_little_noise_are_the_estimate(loss, noise, seed):
    mechanism, rows = make(loss, noise, scale=1e-8), data(np.random.default_rng(seed), 5, 4, 3, **BOUNDS[loss])
    drawn = mechanism.sample(np.random.default_rng(seed), rows)
    for found, each in zip(drawn, rows, strict=True):
        np.testing.assert_allclose(found, centre(mechanism, each), atol=1e-6)


def test_negative_control_without_the_jacobian_the_mass_is_wrong():
    """Dropping det H, the density of the noise alone does not integrate to one over b."""
    mechanism, rows = make("logistic", "gaussian"), one(4, 1)
    b = np.linspace(-40.0, 40.0, 400_001)
    x = rows[:, 0]
    weight = np.exp(-np.logaddexp(0, b[:, None] * x) - np.logaddexp(0, -b[:, None] * x))
    bare = mechanism.log_prob(b[:, None], rows) - np.log((weight * x * x).sum(axis=1) + mechanism.ridge)
    assert abs(np.exp(bare).sum() * (b[1] - b[0]) - 1) > 0.05


# The bound ------------------------------------------------------------------------------------------------------------


@every_law
@pytest.mark.parametrize("features", [1, 2, 4])
def test_bound_is_never_exceeded_and_of_the_right_size(loss, noise, features, seed):
    rng = np.random.default_rng(seed)
    mechanism = make(loss, noise, scale=0.7, ridge=0.5)
    rows = data(rng, 20_000, 4, features, **BOUNDS[loss])
    gaps = []
    for size in (0.0, 1e-3, 0.1, 1.0, 3.0, 30.0):
        b = rng.standard_normal(features)
        b *= size / np.linalg.norm(b)
        gaps.append(mechanism.log_sup(b) - mechanism.log_prob(b, rows).max())
        assert gaps[-1] >= 0
    if features == 1:  # in one dimension the two halves of the bound can nearly be met together
        assert min(gaps) < 0.2


def test_bound_in_one_dimension_against_a_search():
    """All that matters of one record is y x; on a grid of it the best density stays below the bound, and near it."""
    mechanism = ObjectivePerturbation(0.8, loss="logistic", ridge=0.6, n=2)
    x = np.linspace(-1.0, 1.0, 201)
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2, 1)
    rows = np.concatenate([grid, np.ones_like(grid)], axis=-1)
    for b in (-5.0, -0.4, 0.0, 0.2, 1.0, 4.0):
        gap = mechanism.log_sup(np.array([b])) - mechanism.log_prob(np.array([b]), rows).max()
        assert 0 <= gap < 0.35


@every_law
def test_extremes(loss, noise, seed):
    rng = np.random.default_rng(seed)
    rows = data(rng, 50, 4, 2, **BOUNDS[loss])
    for scale, ridge in itertools.product((1e-8, 1e8), (1e-8, 1.0, 1e8)):
        mechanism = make(loss, noise, scale=scale, ridge=ridge)
        drawn = mechanism.sample(rng, rows)
        found = mechanism.log_prob(drawn, rows)
        assert np.isfinite(found).all()
        assert (found <= mechanism.log_sup(drawn) + 1e-9).all()


@every_law
def test_far_tails(loss, noise):
    """Far out the data hardly matter in the logistic law: v = -ridge b, up to 4 records' gradients."""
    mechanism, rows = make(loss, noise, scale=1.0, ridge=1.0), one(4, 1, **BOUNDS[loss])
    for b in (1e5, -1e5, 1e150):
        with np.errstate(over="ignore"):
            found = mechanism.log_prob(np.array([b]), rows)
            sup = mechanism.log_sup(np.array([b]))
        assert not np.isnan(found)
        assert found <= sup <= 10
        if b < 1e6:
            curvature = 1.0 if loss == "logistic" else 1.0 + (rows[:, 0] ** 2).sum()
            expected = -curvature * abs(b) if noise == "laplace" else -0.5 * (curvature * b) ** 2
            assert found == pytest.approx(expected, rel=1e-3)


# Budgets --------------------------------------------------------------------------------------------------------------


def neighbours(records):
    """Data sets of one feature that differ in their first record, in the signs and sizes that matter."""
    others = [np.array([[x, 1.0]] * (records - 1)).reshape(-1, 2) for x in (1.0, -1.0, 0.0, 0.4)]
    for rest, first, second in itertools.product(others, (-1.0, 0.0, 0.3, 1.0), (-1.0, 0.0, 0.3, 1.0)):
        if first != second:
            yield np.vstack([[[first, 1.0]], rest]), np.vstack([[[second, 1.0]], rest])


def hockey_stick(mechanism, epsilon):
    """The largest delta over the neighbours above, and the largest log ratio of densities, by a fine sum."""
    spread = 40.0 * mechanism.scale / mechanism.ridge
    b = np.concatenate([-np.geomspace(spread, 1e-4, 10_000), np.geomspace(1e-4, spread, 10_000)])
    width = np.gradient(b)
    delta, loss = 0.0, 0.0
    laws = {}  # a data set has many neighbours
    for pair in neighbours(mechanism.n):
        for rows in pair:
            if rows.tobytes() not in laws:
                laws[rows.tobytes()] = mechanism.log_prob(b[:, None], rows)
        p, q = (laws[rows.tobytes()] for rows in pair)
        delta = max(delta, np.sum(np.maximum(np.exp(p) - np.exp(epsilon + q), 0.0) * width))
        loss = max(loss, np.max(p - q))
    return delta, loss


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("ridge", briefly([0.05, 0.5, 5.0], [0.5]))
def test_laplace_budget_is_kept(epsilon, ridge):
    mechanism = ObjectivePerturbation(loss="logistic", ridge=ridge, n=3, epsilon=epsilon)
    assert mechanism.guarantee.epsilon == epsilon
    delta, loss = hockey_stick(mechanism, epsilon)
    assert delta == 0.0
    # In one dimension gradients differ by B at most, not 2 B, so about half of the budget is used.
    assert 0.35 * epsilon < loss <= epsilon


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("ridge", briefly([0.05, 0.5, 5.0], [0.5]))
def test_gaussian_budget_is_kept(epsilon, ridge):
    mechanism = ObjectivePerturbation(loss="logistic", noise="gaussian", ridge=ridge, n=3, epsilon=epsilon, delta=1e-3)
    assert hockey_stick(mechanism, epsilon)[0] <= 1e-3


@pytest.mark.parametrize(("noise", "delta", "factor"), [("laplace", {}, 3), ("gaussian", dict(delta=1e-3), 6)])
def test_negative_control_less_noise_breaks_the_budget(noise, delta, factor):
    given = dict(loss="logistic", noise=noise, ridge=5.0, n=3)
    kept = ObjectivePerturbation(epsilon=1.0, **given, **delta)
    less = ObjectivePerturbation(kept.scale / factor, **given)
    assert hockey_stick(less, 1.0)[0] > 1e-3


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_two_dimensional_budget(noise, seed):
    """Random and opposite neighbours in the plane: the mean of (p - e^epsilon q)+ over a grid of b."""
    rng = np.random.default_rng(seed)
    delta = {} if noise == "laplace" else dict(delta=1e-3)
    mechanism = ObjectivePerturbation(loss="logistic", noise=noise, ridge=1.0, n=3, epsilon=1.0, **delta)
    side = np.linspace(-1, 1, 161) ** 3 * 30 * mechanism.scale / mechanism.ridge
    b = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1)
    area = np.outer(np.gradient(side), np.gradient(side))
    for trial in range(6):
        rows = data(rng, 8, 3, 2)[trial % 8]
        other = rows.copy()
        other[0, :2] = -rows[0, :2] if trial % 2 else data(rng, 8, 3, 2)[0, 0, :2]
        p, q = mechanism.log_prob(b, rows), mechanism.log_prob(b, other)
        if noise == "laplace":
            assert np.max(p - q) <= 1.0
        else:
            assert np.sum(np.maximum(np.exp(p) - np.exp(1.0 + q), 0.0) * area) <= 1e-3


def test_budget_in_the_published_form():
    """Chaudhuri et al.: averages, Lambda = ridge / n, c = 1/4; density exp(-epsilon' |v| / 2)."""
    n, ridge, epsilon = 50, 2.0, 1.5
    ratio = 0.25 / (n * (ridge / n))
    left = epsilon - math.log(1 + 2 * ratio + ratio**2)
    found = ObjectivePerturbation(loss="logistic", ridge=ridge, n=n, epsilon=epsilon)
    assert found.scale == pytest.approx(2 / left)
    assert found.ridge == ridge
    # Too little ridge for the budget: more is added, and half the budget goes to the noise.
    found = ObjectivePerturbation(loss="logistic", ridge=1e-3, n=n, epsilon=epsilon)
    added = 0.25 / (n * (math.exp(epsilon / 4) - 1)) - 1e-3 / n
    assert found.ridge == pytest.approx(n * (1e-3 / n + added))
    assert found.scale == pytest.approx(4 / epsilon)


def test_budget_scales_with_the_features():
    """Features k times as large with the ridge k^2 times are the same problem in b / k."""
    small = ObjectivePerturbation(loss="logistic", ridge=0.7, n=5, epsilon=1.0)
    large = ObjectivePerturbation(loss="logistic", ridge=0.7 * 9, n=5, epsilon=1.0, feature_bound=3.0)
    assert large.scale == pytest.approx(3 * small.scale)
    rows = one(5, 2)
    wide = rows * [3.0, 3.0, 1.0]
    b = np.array([0.4, -1.1])
    assert large.log_prob(b / 3, wide) == pytest.approx(small.log_prob(b, rows) + 2 * math.log(3))
    assert large.log_sup(b / 3) == pytest.approx(small.log_sup(b) + 2 * math.log(3))


# Shapes, files, refusals --------------------------------------------------------------------------------------------


def test_shapes():
    mechanism = make("logistic", "laplace")
    rows = data(np.random.default_rng(1), 6, 4, 2).reshape(3, 2, 4, 3)
    assert mechanism.sample(np.random.default_rng(1), rows).shape == (3, 2, 2)
    assert mechanism.sample(np.random.default_rng(1), rows[0, 0]).shape == (2,)
    b = np.array([[0.1, 0.2], [0.3, -0.4]])
    assert mechanism.log_prob(b, rows).shape == (3, 2)
    assert mechanism.log_prob(b[0], rows[0, 0]).shape == ()
    assert mechanism.log_sup(b).shape == (2,)
    assert mechanism.misfit((2,), (4, 3)) is None
    assert "(4, 3)" in mechanism.misfit((2,), (3, 3))
    assert "(4, 3)" in mechanism.misfit((2,), (4, 2))


def test_file():
    mechanism = ObjectivePerturbation(loss="logistic", noise="gaussian", ridge=0.1, n=9, epsilon=1.0, delta=1e-6)
    release = nw.Release(b=mechanism.released([0.5, -0.25]))
    content = release.to_dict()
    jsonschema.Draft202012Validator(current_schema()).validate(content)
    again = nw.Release.from_dict(content)
    assert again == release
    assert again["b"].mechanism.guarantee == mechanism.guarantee
    budget = {"mechanism": "ObjectivePerturbation", "loss": "logistic", "ridge": 0.1, "n": 9, "epsilon": 2.0}
    content["statistics"]["b"] = {"value": [0.5]} | budget
    jsonschema.Draft202012Validator(current_schema()).validate(content)
    assert nw.Release.from_dict(content)["b"].mechanism.guarantee.epsilon == 2.0


GOOD = dict(scale=1.0, loss="logistic", ridge=1.0, n=4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(loss="hinge"), ["'loss'", "'logistic', 'linear'", "'hinge'"]),
        (dict(noise="cauchy"), ["'noise'", "'laplace', 'gaussian'", "'cauchy'"]),
        (dict(ridge=0.0), ["'ridge'", "positive", "0.0"]),
        (dict(ridge=[1.0, 2.0]), ["'ridge'", "single"]),
        (dict(n=2.5), ["'n'", "2.5"]),
        (dict(n=0), ["'n'", "at least 1", "0"]),
        (dict(scale=-1.0), ["'scale'", "positive", "-1.0"]),
        (dict(scale=None), ["'scale'", "None", "epsilon"]),
        (dict(epsilon=1.0), ["'scale'", "together", "1.0"]),
        (dict(feature_bound=math.inf), ["'feature_bound'", "finite", "inf"]),
        (dict(label_bound=2.0), ["'label_bound'", "must be 1", "2.0"]),
        (dict(loss="linear"), ["'label_bound'", "None"]),
        (dict(scale=None, epsilon=1.0, delta=0.1), ["'delta'", "Laplace", "0.1"]),
        (dict(scale=None, epsilon=1.0, noise="gaussian"), ["'delta'", "None"]),
        (dict(scale=None, epsilon=1.0, noise="gaussian", delta=1.5), ["'delta'", "below 1", "1.5"]),
        (dict(scale=None, epsilon=1.0, loss="linear", label_bound=1.0), ["'epsilon'", "linear", "1.0", "scale"]),
    ],
)
def test_refusals(changes, words):
    with pytest.raises(nw.InputError) as caught:
        ObjectivePerturbation(**(GOOD | changes))
    for word in ["ObjectivePerturbation:", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("value", [0.5, [[0.5]], [], [np.nan]])
def test_released_values_are_vectors(value):
    with pytest.raises(nw.InputError, match=r"ObjectivePerturbation\.released: 'value' must"):
        ObjectivePerturbation(**GOOD).released(value)


@pytest.mark.parametrize(
    ("loss", "change", "words"),
    [
        ("logistic", ((0, 0), 1.5), "features of norm at most 1; got 1.5"),
        ("logistic", ((1, 1), 0.0), "labels -1 and 1; got 0.0"),
        ("linear", ((1, 1), -2.5), "labels of size at most 2; got 2.5"),
        ("linear", ((1, 0), np.nan), "features of norm at most 1.5; got nan"),
    ],
)
def test_data_outside_the_domain_are_refused(loss, change, words):
    mechanism, rows = make(loss, "laplace"), one(4, 1, **BOUNDS[loss])
    index, value = change
    rows[index] = value
    for attempt in (
        lambda: mechanism.log_prob(np.array([0.3]), rows),
        lambda: mechanism.sample(np.random.default_rng(1), rows),
    ):
        with pytest.raises(nw.InputError, match="'confidential' must have") as caught:
            attempt()
        assert words in str(caught.value)


def test_data_of_another_shape_are_refused():
    with pytest.raises(nw.InputError, match=r"shape \(4, 3\); got 'shape \(4, 2\)'"):
        make("logistic", "laplace").log_prob(np.array([0.3, 0.1]), one(4, 1))
