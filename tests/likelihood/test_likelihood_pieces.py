"""Very many rows of any law, in pieces: the same numbers as the whole, from climbs on some rows and Newton on all."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees
from scipy import integrate, stats

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step import entries_in_pieces
from noisewise.likelihood.e_step.by_weight import Importance, mixture
from noisewise.likelihood.e_step.cloud import Clouds, exact_cloud, weighted
from noisewise.likelihood.e_step.entries_in_pieces import Piece, divides
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.fit import chosen
from noisewise.likelihood.m_step.coordinates import Coordinates
from noisewise.likelihood.m_step.maximise import Objective

X = np.linspace(0.5, 2.0, 23)
PRIOR = {"a": dist.Gamma(2.0, 1.0), "b": dist.Gamma(2.0, 1.0)}
VALUES = {"a": np.asarray(1.3), "b": np.asarray(0.9)}
LAPLACE, LATTICE = nw.Laplace(scale=np.linspace(0.2, 3.0, 23)), nw.DiscreteLaplace(scale=1.5)
GRID = np.arange(6.0).reshape(2, 3)


def affine(a, b):
    return dist.transforms.AffineTransform(a * jnp.asarray(X), b)


LAWS = {
    "StudentT": (lambda a, b: dist.StudentT(4.0, a * X, b), LAPLACE),
    "Weibull": (lambda a, b: dist.Weibull(a * X, b).to_event(1), LAPLACE),
    "expanded": (lambda a, b: dist.Logistic(a, b).expand([23]), LAPLACE),
    "truncated": (lambda a, b: dist.TruncatedNormal(a * X, b, low=0.0), LAPLACE),
    "transformed": (
        lambda a, b: dist.TransformedDistribution(dist.StudentT(5.0, jnp.zeros(23)), affine(a, b)),
        LAPLACE,
    ),
    "Binomial": (lambda a, b: dist.Binomial(6, a * X / (a * X + b)), LATTICE),
    "table": (lambda a, b: dist.Gumbel(a * GRID, b), nw.Gaussian(scale=np.array([0.5, 1.0, 2.0]))),
}


def part_of(law, mechanism, released=None):
    """Of a release that is drawn, if none is given."""
    model = nw.Model(prior=PRIOR, statistics={"s": law})
    if released is None:
        rng = np.random.default_rng(0)
        s = model.draw(rng, ["s"], 1, {name: value[None] for name, value in VALUES.items()})["s"][0]
        released = mechanism.sample(rng, s)
    release = nw.Release(s=mechanism.released(released))
    (part,) = parts_of(Problem(model, release))
    return part


def columns(cloud, start, step):
    """The cloud of every `step`th entry."""
    flat = cloud.values.reshape(len(cloud.values), -1)
    return type(cloud)(flat[:, start::step], cloud.weights[:, start::step], cloud.log_likelihoods[start::step])


@pytest.mark.long
@pytest.mark.parametrize("name", LAWS)
def test_pieces_add_up_to_the_whole(name, seed):
    """Density, noise, score and information; negative control: a piece that is taken to begin elsewhere."""
    part = part_of(*LAWS[name])
    assert divides(part, VALUES)
    s = part.draw(np.random.default_rng(seed), VALUES, 6)
    whole = weighted(s, part.log_eta(s))
    own = [Piece(part, start, 4) for start in range(4)]
    for start, piece in enumerate(own):
        mine = s.reshape(6, -1)[:, start::4]
        assert piece.log_prob_many(VALUES, mine) == pytest.approx(part.log_prob_many(VALUES, s)[:, start::4], rel=1e-12)
        assert np.array_equal(piece.log_eta(mine), part.log_eta(s)[:, start::4])
        for ours, all_ends in zip(piece.bounds(VALUES), part.bounds(VALUES), strict=True):
            assert np.array_equal(ours, all_ends.reshape(-1)[start::4])
    coordinates = Coordinates(part.model)
    free = coordinates.free_from(VALUES)
    clouds = [columns(whole, start, 4) for start in range(4)]
    truth, found = Objective([part], coordinates), Objective(own, coordinates)
    for ours, theirs in zip(found.q(free, clouds), truth.q(free, [whole]), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-10, abs=1e-10)
    ours, theirs = found.score_and_information(free, clouds), truth.score_and_information(free, [whole])
    for field in (
        "score",
        "information",
        "noise",
        "complete",
        "information_noise",
        "bias",
        "information_bias",
        "cross",
    ):
        assert getattr(ours, field) == pytest.approx(getattr(theirs, field), rel=1e-8, abs=1e-8)
    if name != "expanded":
        own[1].place = np.int64(2)
        assert not np.allclose(found.q(free, clouds)[0], truth.q(free, [whole])[0], rtol=1e-6)


def test_a_piece_keeps_noise_of_its_own():
    """What the whole has computed of its noise is of other entries."""
    part = part_of(*LAWS["Binomial"])
    whole = exact_cloud(part, VALUES)
    for start in range(4):
        piece = exact_cloud(Piece(part, start, 4), VALUES)
        assert piece.log_likelihoods == pytest.approx(whole.log_likelihoods[start::4], rel=1e-12)


def test_values_of_a_piece_have_its_law(seed):
    """Drawn entry by entry: each has the mean and variance of its own."""
    part = part_of(lambda a, b: dist.Gumbel(a * X, b), LAPLACE)
    s = Piece(part, 2, 5).draw(np.random.default_rng(seed), VALUES, 4_000)
    law = stats.gumbel_r(1.3 * X[2::5], 0.9)
    assert agrees(s, law.mean())
    assert agrees((s - law.mean()) ** 2, law.var())
    assert not agrees(s, stats.gumbel_r(1.3 * X[1::5], 0.9).mean())


def test_a_law_that_is_not_made_from_its_fields_stays_whole():
    """JAX's own sampler, or a constructor that takes something else."""

    def mixture(a, b):
        peaks = dist.Normal(jnp.stack([a * X, b * X], axis=-1), 1.0)
        return dist.MixtureSameFamily(dist.Categorical(jnp.full((23, 2), 0.5)), peaks)

    for law, mechanism in ((mixture, LAPLACE), (lambda a, b: dist.ZeroInflatedPoisson(0.2, a * X * b), LATTICE)):
        part = part_of(law, mechanism, np.arange(23))
        assert part.by_entry
        assert not divides(part, VALUES)


# Whole fits -----------------------------------------------------------------------------------------------------------


def heavy_rows(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, n)
    y = 1.0 + 2.0 * x + 1.5 * rng.standard_t(4.0, n) + rng.laplace(0.0, 1.0, n)
    model = nw.Model(
        prior={"a": dist.Normal(0.0, 10.0), "b": dist.Normal(0.0, 10.0), "sigma": dist.HalfNormal(10.0)},
        statistics={"y": lambda a, b, sigma: dist.StudentT(4.0, a + b * jnp.asarray(x), sigma)},
    )
    return model, nw.Release(y=nw.Laplace(scale=1.0).released(y)), {"a": 0.5, "b": 1.5, "sigma": 1.2}


def in_small_pieces(monkeypatch):
    """Small problems take the road of large ones."""
    for name, size in {"HELD": 0, "PIECE": 2**14, "ENTRIES": 16}.items():
        monkeypatch.setattr(entries_in_pieces, name, size)


@pytest.mark.long  # that pieces add up to the whole is seen by default, term by term
def test_em_in_pieces_is_em(seed, monkeypatch):
    model, release, start = heavy_rows(256, seed)
    exact = nw.fit(model, release, nw.EM(accelerate=True), start=start)
    in_small_pieces(monkeypatch)
    fit = nw.fit(model, release, nw.EM(accelerate=True), start=start)
    assert fit.log_likelihood == pytest.approx(exact.log_likelihood, abs=1e-7)
    for name in start:
        assert fit.estimate[name] == pytest.approx(float(exact.estimate[name]), abs=1e-6)
    assert fit.information == pytest.approx(exact.information, rel=1e-5, abs=1e-4)
    some = [step["log_likelihood"] for step in fit.trace]
    assert some[0] > 0.5 * exact.log_likelihood > some[-1]  # the climb is on some rows


def height_of_both(y, count):
    """The log likelihood by panels of Gauss and Legendre that end at the noise's kink, and by a sum."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    steps = np.concatenate([[0.0], np.geomspace(0.3, 100.0, 20)])
    ends = np.concatenate([-steps[:0:-1], steps])
    half = 0.5 * np.diff(ends)[:, None]
    away = (ends[:-1, None] + half * (1.0 + nodes)).ravel()  # of the confidential value from the released one
    mass = (half * weights).ravel() * stats.laplace.pdf(away)
    k = np.arange(200)
    noise = np.tanh(0.25) * np.exp(-np.abs(count - k) / 2.0)
    constant = stats.t.pdf(0.0, 4.0)

    def height(a):
        density = constant * (1.0 + (y[:, None] + away - a) ** 2 / 4.0) ** -2.5
        return np.log(density @ mass).sum() + np.log(stats.poisson.pmf(k, 4.0 * a) @ noise)

    return height


def test_rows_and_other_statistics_together(seed, monkeypatch):
    """A statistic that is cut beside one that is not: likelihood, score and information are those of both."""
    rng = np.random.default_rng(seed)
    y = 2.0 + rng.standard_t(4.0, 96) + rng.laplace(0.0, 1.0, 96)
    release = nw.Release(y=nw.Laplace(scale=1.0).released(y), count=nw.DiscreteLaplace(scale=2.0).released(9))
    laws = {"y": lambda a: dist.StudentT(4.0, a, 1.0).expand([96]), "count": lambda a: dist.Poisson(4.0 * a)}
    model = nw.Model(prior={"a": dist.Gamma(2.0, 1.0)}, statistics=laws)
    in_small_pieces(monkeypatch)
    fit = nw.fit(model, release, nw.EM(accelerate=True), start={"a": 1.5})
    height, top = height_of_both(y, 9), float(fit.estimate["a"])
    around = np.array([height(top + k * 1e-2) for k in (-2, -1, 0, 1, 2)])
    slope, bend = around @ [1, -8, 0, 8, -1] / 12e-2, around @ [-1, 16, -30, 16, -1] / 12e-4
    assert fit.log_likelihood == pytest.approx(around[2], abs=1e-8)
    assert abs(slope / bend) < 1e-6
    assert fit.information.item() == pytest.approx(-bend, rel=1e-6)


@pytest.mark.long
def test_mcem_in_pieces_agrees_with_em_and_resumes(monkeypatch, seed, tmp_path):
    in_small_pieces(monkeypatch)
    model, release, start = heavy_rows(128, seed)
    settings = nw.MCEM("mixture", nw.Staged(tolerances=(1e-2,), sizes=(400,), cap=4), final=512)
    fit = nw.fit(model, release, settings, start=start, seed=seed, checkpoint=tmp_path / "fit", engine=nw.Threads(1))
    exact = nw.fit(model, release, nw.EM(accelerate=True), start=start)
    for name, error in fit.monte_carlo_error.items():
        assert LIMIT * error < exact.standard_error[name]
        assert abs(fit.estimate[name] - exact.estimate[name]) < LIMIT * error
    assert np.all(np.abs(fit.information - exact.information) < LIMIT * fit.information_error + 1e-6)
    again = nw.fit(model, release, settings, start=start, seed=seed, checkpoint=tmp_path / "fit")
    assert all(fit.estimate[name] == again.estimate[name] for name in start)


@pytest.mark.long
def test_a_hundred_thousand_heavy_rows(seed):
    """No patches: the size alone decides."""
    model, release, start = heavy_rows(100_000, seed)
    fit = nw.fit(model, release, nw.EM(accelerate=True), start=start)
    assert fit.diagnostics["neglected"] < 100_000 * 1e-10  # of all rows together
    for name, truth in {"a": 1.0, "b": 2.0, "sigma": 1.5}.items():
        assert abs(fit.estimate[name] - truth) < LIMIT * fit.standard_error[name]
    some = nw.fit(*heavy_rows(100, seed)[:2], nw.EM(accelerate=True), start=start)
    for name in start:  # errors fall with the root of the rows
        assert fit.standard_error[name] == pytest.approx(some.standard_error[name] * 1000**-0.5, rel=0.5)


# Proposals from law and noise -----------------------------------------------------------------------------------------


def test_a_mixture_of_law_and_noise_gives_the_likelihood(seed):
    """Of a row far out too, where no value from the law has any weight; negative control: weights of the law alone."""
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 10.0)}, statistics={"y": lambda mu: dist.StudentT(4.0, mu, 1.0).expand([3])}
    )
    released = np.array([0.3, 4.0, 40.0])
    (part,) = parts_of(Problem(model, nw.Release(y=nw.Laplace(scale=0.5).released(released))))
    values = {"mu": np.asarray(0.2)}

    def likelihood(y):
        def integrand(s):
            return stats.t.pdf(s, 4.0, 0.2) * stats.laplace.pdf(y, s, 0.5)

        return sum(integrate.quad(integrand, low, low + 5.0, points=[y, 0.2])[0] for low in range(-30, 60, 5))

    truth = np.array([likelihood(y) for y in released])
    rng = np.random.default_rng(seed)
    s = part.draw(rng, values, 40_000)
    assert np.min(weighted(s, part.log_eta(s)).sizes) < 20
    s, log_weights = mixture(part, values, rng, s)
    assert np.min(weighted(s, log_weights).sizes) > 2_000
    assert agrees(np.exp(log_weights), truth)
    assert not agrees(np.exp(part.log_eta(s)), truth)


# Slow climbs ----------------------------------------------------------------------------------------------------------


def table(n=500):
    model = nw.Model(
        prior={"share": dist.Dirichlet(np.ones(4))}, statistics={"counts": lambda share: dist.Multinomial(n, share)}
    )
    return model, nw.Release(counts=nw.DiscreteLaplace(scale=4.0).released([103, 188, 151, 66]))


@pytest.mark.long
def test_from_far_out_more_noise_shows_the_way(seed, monkeypatch):
    """Where a few values have all the weight the noise is taken wider; negative control: else samples grow."""
    model, release = table()
    start = {"share": [0.7, 0.05, 0.05, 0.2]}
    settings = nw.MCEM(schedule=nw.Ascent(most=100_000), final=20_000)
    fit = nw.fit(model, release, settings, start=start, seed=seed)
    assert fit.status == "converged"
    assert max(step["size"] for step in fit.trace) < 50_000
    near = nw.fit(model, release, settings, start={"share": [0.2, 0.37, 0.3, 0.13]}, seed=seed + 1)
    error = np.hypot(fit.monte_carlo_error["share"], near.monte_carlo_error["share"])
    assert np.all(np.abs(fit.estimate["share"] - near.estimate["share"]) < LIMIT * error)
    monkeypatch.setattr(Importance, "eases", False)
    slow = nw.fit(model, release, settings, start=start, seed=seed, on_failure="return")
    assert max(step["size"] for step in slow.trace) == 100_000


def test_without_an_estimator_the_one_that_applies_is_taken(seed):
    model, release = table(20)
    small = nw.Release(counts=nw.DiscreteLaplace(scale=4.0).released([4, 7, 6, 3]))
    with pytest.raises(nw.InputError, match=r"'seed' must be.*MCEM simulates"):
        nw.fit(model, small, start={"share": [0.2, 0.3, 0.3, 0.2]})
    assert isinstance(chosen(Problem(model, release)), nw.MCEM)
    assert isinstance(chosen(Problem(model, small.naive())), nw.EM)
    count = nw.Model(prior={"theta": dist.Gamma(2.0, 1.0)}, statistics={"y": lambda theta: dist.Poisson(theta)})
    fit = nw.fit(count, nw.Release(y=nw.Laplace(scale=2.0).released(5.0)), start={"theta": 3.0})
    assert isinstance(fit.estimator, nw.EM)


STARTS = {"near": {"mu": 3.8, "tau": -0.7, "sigma": 4.0}, "wide": {"mu": 3.9, "tau": -0.2, "sigma": 15.0}}


@pytest.mark.long  # a spread that runs to zero beside a mean is seen by default
@pytest.mark.parametrize("start", STARTS)
def test_what_is_not_at_the_edge_is_at_its_best_there(start):
    """Two means say nothing of the spread, which runs to zero; the others are where they would be without it."""
    model = nw.Model(
        prior={"mu": dist.Normal(5.0, 5.0), "tau": dist.Normal(0.0, 5.0), "sigma": dist.HalfNormal(10.0)},
        statistics={
            "control": lambda mu, sigma: dist.Normal(mu, sigma / jnp.sqrt(260.0)),
            "treated": lambda mu, tau, sigma: dist.Normal(mu + tau, sigma / jnp.sqrt(185.0)),
        },
    )
    noise = {"control": nw.Laplace(scale=0.23).released(4.61), "treated": nw.Laplace(scale=0.324).released(6.48)}
    fit = nw.fit(model, nw.Release(noise), start=STARTS[start], on_failure="return")
    assert fit.status == "boundary"
    assert "'sigma'" in fit.message
    assert fit.estimate["mu"] == pytest.approx(4.61, abs=1e-5)
    assert fit.estimate["tau"] == pytest.approx(1.87, abs=1e-5)
    assert fit.log_likelihood == pytest.approx(-np.log(4 * 0.23 * 0.324), abs=1e-4)


def test_clouds_that_are_not_held_are_made_anew_and_seen_once():
    made = []

    def make(index):
        made.append(index)
        return weighted(np.arange(3.0)[:, None] + index, np.zeros((3, 1)))

    part = part_of(*LAWS["StudentT"])
    for held, passes in ((True, 1), (False, 2)):
        made.clear()
        clouds = Clouds([part, part], make, held)
        for _ in range(2):
            assert [cloud.values[0, 0] for cloud in clouds] == [0.0, 1.0]
        assert clouds.log_likelihood == pytest.approx(2 * np.log(3.0))
        assert clouds.sizes["s"].tolist() == [3.0, 3.0]
        assert made == [0, 1] * passes
    assert exact_cloud(part, VALUES).sizes.shape == (23,)
