"""Free coordinates: there and back, and the laws whose mass lies where there are none."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, z_of_mean
from scipy import special, stats
from targets import briefly

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.model.coordinates import Chart, Space, unwalkable
from noisewise.numerics import double
from noisewise.samplers import augmentation, mcmc

WALKERS = (nw.MCMC(), nw.SMC(), nw.Augmentation(), nw.NUTS())


def model_of(**prior):
    return nw.Model(prior=prior, statistics={"s": lambda x: dist.Normal(0.0 * x.sum(), 1.0)})


REACHED = {
    "Jeffreys": dict(x=dist.Beta(0.5, 0.5)),
    "Gamma": dict(x=dist.Gamma(0.1, 0.1)),
    "simplex": dict(x=dist.Dirichlet(np.full(3, 0.5))),
    "moving support": dict(top=dist.Gamma(2.0, 1.0), x=lambda top: dist.Uniform(-top, top)),
    "point": dict(y=dist.Normal(0.0, 1.0), x=lambda y: dist.Delta(2.0 * y)),
}
LOST = {
    "Beta": dict(x=dist.Beta(0.01, 0.01)),
    "Gamma": dict(x=dist.Gamma(0.001, 0.001)),
    "simplex": dict(x=dist.Dirichlet(np.full(3, 0.02))),
    "of many": dict(x=dist.Beta(1.0, 0.05).expand([200])),
}


@pytest.mark.parametrize("name", briefly(REACHED, ["Jeffreys", "simplex", "moving support", "point"]))
def test_coordinates_lead_back(name):
    model = model_of(**REACHED[name])
    assert unwalkable(model) is None
    space, values = Space(model), model.simulate(200, 1)
    again, density = space.points(space.free_from(values), values)
    assert np.all(np.isfinite(density))
    for name in space.names:
        assert np.allclose(again[name], values[name], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", briefly(LOST, ["Gamma", "of many"]))
def test_priors_beyond_coordinates_are_refused_by_all_that_walk(name):
    model = model_of(**LOST[name])
    problem = Problem(model, nw.Release(s=nw.Laplace(scale=1.0).released(0.3)))
    for sampler in WALKERS:
        assert "of the prior of 'x' lies at the edge of floating point" in sampler.unfit(problem)
    assert nw.Rejection().unfit(problem) is None
    assert nw.Importance("adapted").unfit(problem) is None


def with_zeros(share, law):
    """Zero with probability `share`, else a draw of `law`."""
    shares = dist.Categorical(jnp.stack([share, 1.0 - share]))
    return dist.MixtureGeneral(shares, [dist.Delta(0.0), law], support=dist.constraints.real)


ATOMS = {
    "spike and slab": dict(x=with_zeros(0.5, dist.Normal(0.0, 2.0))),
    "of many": dict(y=dist.Gamma(2.0, 1.0), x=lambda y: with_zeros(0.3, dist.LogNormal(0.0, y)).expand([3])),
}
HALVES = dist.Categorical(np.array([0.5, 0.5]))
ATOMS["counts mixed in"] = dict(
    x=dist.MixtureGeneral(HALVES, [dist.Poisson(1.0), dist.Normal(0.0, 1.0)], support=dist.constraints.real)
)
if hasattr(dist, "HurdleGamma"):
    ATOMS["hurdle"] = dict(x=dist.HurdleGamma(0.3, 2.0, 1.0))


@pytest.mark.parametrize("name", briefly(ATOMS, ["of many", "counts mixed in"]))
def test_priors_with_atoms_are_refused_by_all_that_compare_densities(name):
    problem = Problem(model_of(**ATOMS[name]), nw.Release(s=nw.Laplace(scale=1.0).released(0.3)))
    for sampler in (*WALKERS, nw.Importance("adapted"), nw.ImportanceRejection()):
        assert "has atoms" in sampler.unfit(problem)
    assert nw.Rejection().unfit(problem) is None
    assert nw.Importance().unfit(problem) is None


def spike_and_slab():
    """An effect that may be none; its posterior mean by quadrature."""
    model = nw.Model(prior=ATOMS["spike and slab"], statistics={"s": lambda x: dist.Normal(x, 1.0)})
    release = nw.Release(s=nw.Laplace(scale=0.5).released(1.0))
    s, x = np.linspace(-15.0, 17.0, 3201), np.linspace(-12.0, 12.0, 961)

    def likelihood(x):
        return np.trapezoid(stats.norm.pdf(s, x, 1.0) * stats.laplace.pdf(s, 1.0, 0.5), s)

    slab = stats.norm.pdf(x, 0.0, 2.0) * np.array([likelihood(one) for one in x])
    return model, release, np.trapezoid(x * slab, x) / (np.trapezoid(slab, x) + likelihood(0.0))


@pytest.mark.long
def test_chains_on_a_prior_with_atoms_would_be_wrong(seed, monkeypatch):
    model, release, truth = spike_and_slab()
    right = nw.sample(model, release, nw.Rejection(), draws=20_000, seed=seed)
    assert abs(z_of_mean(right["x"], truth)) < LIMIT
    monkeypatch.setattr(augmentation, "unwalkable", lambda model, statistics: None)
    sampler = nw.Augmentation(chains=64, warmup=60)
    wrong = nw.sample(model, release, sampler, draws=3_200, seed=seed, on_failure="return")
    assert abs(z_of_mean(wrong["x"].reshape(16, -1).mean(axis=1), truth)) > stats.t.isf(5e-7, 15)


def scaled(law, loc, scale):
    return dist.TransformedDistribution(law, dist.transforms.AffineTransform(loc, scale))


UNWALKED = {
    "atoms": (lambda x: with_zeros(x, dist.Exponential(0.5)), "has atoms"),
    "share of a count": (lambda x: scaled(dist.Binomial(4, x), 0.0, 0.25), "has atoms"),
    "edge": (lambda x: dist.Beta(0.1 * x, 0.1 * (1.0 - x)), "of the law of 's' lies at the edge"),
}


@pytest.mark.parametrize("law", UNWALKED.values(), ids=UNWALKED)
def test_statistics_beyond_coordinates_are_only_simulated(law):
    model = nw.Model({"x": dist.Beta(2.0, 2.0)}, {"s": law[0]})
    problem = Problem(model, nw.Release(s=nw.Laplace(scale=0.5).released(0.8)))
    for sampler in (nw.Augmentation(), nw.NUTS()):
        assert law[1] in sampler.unfit(problem)
    for sampler in (nw.MCMC(), nw.SMC(), nw.Rejection(), nw.Importance("adapted")):
        assert sampler.unfit(problem) is None


def test_chains_that_simulate_a_statistic_with_atoms_are_exact(seed):
    """Several simulations for each step, of a law that only JAX draws; the truth by quadrature."""
    model = nw.Model({"x": dist.Beta(2.0, 2.0)}, {"s": UNWALKED["atoms"][0]})
    release = nw.Release(s=nw.Laplace(scale=0.7).released(0.6))
    s, x = np.linspace(0.0, 100.0, 100_001), (np.arange(2000) + 0.5) / 2000
    some = stats.expon.pdf(s, scale=2.0) * stats.laplace.pdf(s, 0.6, 0.7)
    none, positive = stats.laplace.pdf(0.0, 0.6, 0.7), np.trapezoid(some, s)
    weight = stats.beta.pdf(x, 2.0, 2.0) * (x * none + (1.0 - x) * positive)
    mean = stats.beta.pdf(x, 2.0, 2.0) @ (1.0 - x) * np.trapezoid(s * some, s) / weight.sum()
    posterior = nw.sample(model, release, nw.MCMC(warmup=64), draws=4_096, seed=seed, on_failure="return")
    for name, truth in (("x", weight @ x / weight.sum()), ("s", mean)):
        by_start = posterior[name].reshape(16, -1).mean(axis=1)
        assert abs(z_of_mean(by_start, truth)) < stats.t.isf(5e-7, 15)


def at_the_mean(mu):
    """Half at the mean itself, half about it."""
    parts = [dist.Delta(mu), dist.Normal(mu, 1.0)]
    return dist.MixtureGeneral(HALVES, parts, support=dist.constraints.real)


def test_atoms_that_move_with_a_parameter_are_never_conditioned_on():
    """Given s = 0.3 the mean is 0.3 with positive probability, which no draw of the prior ever is."""
    prior = {"mu": dist.Normal(0.0, 1.0)}
    exact = nw.Release(s=nw.Exact().released(0.3))
    moving, shifted, still = (
        Problem(nw.Model(prior, {"s": law}), exact)
        for law in (
            at_the_mean,
            lambda mu: scaled(with_zeros(0.5, dist.Normal(0.0, 1.0)), mu, 1.0),
            lambda mu: with_zeros(0.5, dist.Normal(mu, 1.0)),
        )
    )
    for sampler in (nw.Importance(), nw.RejectionControl(), nw.Augmentation(), nw.NUTS()):
        assert "an atom that moves" in sampler.unfit(moving)
        assert "an atom that moves" in sampler.unfit(shifted)
        assert sampler.unfit(still) is None


def test_records_with_atoms_that_move_are_not_held_while_the_parameter_walks():
    laws = (at_the_mean, lambda mu: with_zeros(0.5, dist.Normal(mu, 1.0)))
    for law, told in zip(laws, ("an atom that moves", "None"), strict=True):
        total = nw.Total({"x": law}, lambda x: x, n=3)
        model = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"t": total})
        problem = Problem(model, nw.Release(t=nw.Laplace(scale=1.0).released(3.0)))
        assert told in str(nw.Augmentation().unfit(problem))
        assert nw.MCMC().unfit(problem) is None


def spiked():
    """Nearly all or nearly none say yes; the posterior mean of p by enumeration over the count."""
    model = nw.Model(prior={"p": dist.Beta(0.01, 0.01)}, statistics={"yes": lambda p: dist.Binomial(10, p)})
    release = nw.Release(yes=nw.Laplace(scale=2.0).released(8.0))
    s = np.arange(11)
    log_weight = stats.betabinom.logpmf(s, 10, 0.01, 0.01) - np.abs(8.0 - s) / 2.0
    weight = np.exp(log_weight - special.logsumexp(log_weight))
    return model, release, weight @ ((0.01 + s) / 10.02)


def test_chains_on_such_a_prior_would_be_wrong(seed, monkeypatch):
    """Why they are refused: rejection is right, chains let through are not."""
    model, release, truth = spiked()
    right = nw.sample(model, release, nw.Rejection(), draws=20_000, seed=seed)
    assert abs(z_of_mean(right["p"], truth)) < LIMIT
    monkeypatch.setattr(mcmc, "unwalkable", lambda model: None)
    wrong = nw.sample(model, release, nw.MCMC(warmup=64), draws=4096, seed=seed, on_failure="return")
    assert abs(z_of_mean(wrong["p"].reshape(16, -1).mean(axis=1), truth)) > stats.t.isf(5e-7, 15)


@cache
def nested():
    """A positive scale, a value between it and ten times it, and shares: three names, four coordinates."""
    prior = {
        "scale": dist.Gamma(2.0, 1.0),
        "inside": lambda scale: dist.Uniform(scale, 10.0 * scale),
        "known": dist.Delta(3.0),
        "shares": dist.Dirichlet(np.ones(3)),
    }
    return nw.Model(prior, {"s": lambda inside, known, shares: dist.Normal(inside * known + shares[0], 1.0)})


def test_a_chart_leads_back_and_its_jacobian_is_that_of_the_map():
    chart = Chart(nested(), ("shares", "inside", "scale", "known"))
    assert chart.names == ("scale", "inside", "known", "shares")
    assert chart.size == 4
    free = np.array([0.3, -0.7, 0.5, -0.2])
    with double():

        @jax.jit
        def there_and_back(free):
            values, log_jacobian = chart.point(free, {})
            return values, log_jacobian, chart.free(values), jax.jacfwd(lambda u: chart.point(u, {})[0])(free)

        values, log_jacobian, back, slopes = jax.tree.map(np.asarray, there_and_back(free))
    slope, shares = np.stack([slopes["scale"], slopes["inside"]]), slopes["shares"][:2]
    assert float(values["known"]) == 3.0
    np.testing.assert_allclose(back, free, rtol=1e-12)
    volume = np.linalg.det(slope[:, :2]) * np.linalg.det(shares[:, 2:])
    np.testing.assert_allclose(float(log_jacobian), np.log(np.abs(volume)), rtol=1e-12)


def test_where_supports_alone_count_a_point_has_a_coordinate():
    assert Chart(nested(), ("known",)).size == 0
    assert Chart(nested(), ("known",), supports=True).size == 1


# Coordinates of hierarchies -------------------------------------------------------------------------------------------

HIERARCHIES = {
    "Normal": dict(m=dist.Normal(3.0, 2.0), t=dist.Gamma(2.0, 1.0), x=lambda m, t: dist.Normal(m, t).expand([3])),
    "vectors": dict(m=dist.Normal(0.0, 2.0).expand([3]), t=dist.Gamma(2.0, 1.0), x=lambda m, t: dist.Normal(m, t)),
    "LogNormal": dict(m=dist.Normal(0.0, 0.5), t=dist.Gamma(5.0, 5.0), x=lambda m, t: dist.LogNormal(m, t).expand([3])),
    "of three levels": dict(
        t=dist.Gamma(2.0, 1.0),
        m=lambda t: dist.Laplace(1.0, t),
        x=lambda m, t: dist.StudentT(4.0, 2.0 * m, t).expand([3]).to_event(1),
    ),
}


@pytest.mark.parametrize("name", briefly(HIERARCHIES, ["vectors", "of three levels"]))
def test_centring_moves_coordinates_and_not_the_law(name):
    """At any part, values lead back, and densities differ by the Jacobian, taken here from the whole matrix."""
    model = model_of(**HIERARCHIES[name])
    space = Space(model)
    located = space.chart.located
    assert located == tuple(name for name in ("m", "x") if model.parents(name))
    row = {name: value[0] for name, value in model.simulate(1, 5).items() if name in space.names}
    with double():
        plain = jax.jit(lambda row: space.point(space.chart.free(row), {})[1])(row)

        @jax.jit
        def there_and_back(row, centring):
            moved = space.chart.free(row, centring)
            turn = jax.jacobian(lambda free: space.chart.free(space.point(free, {}, centring)[0]))(moved)
            return *space.point(moved, {}, centring), jnp.linalg.slogdet(turn)[1]

        for part in (0.0, 0.3, 1.0):
            centring = {
                name: jnp.linspace(part, 1.0 - part, 3)[: max(1, row[name].size)].reshape(row[name].shape)
                for name in located
            }
            values, density, turned = there_and_back(row, centring)
            for name in row:
                assert np.allclose(values[name], row[name], rtol=1e-12)
            assert np.isclose(density, plain + turned, rtol=1e-11)


def test_centring_is_between_the_value_and_its_standardised_self():
    model = model_of(**HIERARCHIES["Normal"])
    chart = Space(model).chart
    row = {name: value[0] for name, value in model.simulate(1, 5).items() if name in chart.names}
    with double():
        free = jax.jit(lambda part: chart.free(row, {"x": jnp.full(3, part)})[-3:])
        moved = {part: np.asarray(free(part)) for part in (0.0, 0.3, 1.0)}
    assert np.array_equal(moved[1.0], row["x"])
    assert np.allclose(moved[0.0], (row["x"] - row["m"]) / row["t"], rtol=1e-12)
    assert np.allclose(moved[0.3], 0.3 * row["m"] + (row["x"] - row["m"]) * row["t"] ** -0.7, rtol=1e-12)


def test_a_scale_below_the_last_digit_of_the_location_leaves_the_density_right():
    """The value has then lost what it would be computed from; chains had found an endless well there."""
    space = Space(model_of(**HIERARCHIES["Normal"]))
    m, log_t, w = 2.0, -400.0, np.array([-2.0, 0.1, 1.5])
    pieces = {"m": m, "t": log_t, "x": w}
    free = np.concatenate([np.ravel(pieces[name]) for name in space.names])
    point = jax.jit(lambda free, part: space.point(free, {}, {"x": jnp.full(3, part)}))
    for part in (0.0, 0.5):
        with double():
            values, density = point(free, part)
        prior = stats.norm.logpdf(m, 3.0, 2.0) + stats.gamma.logpdf(np.exp(log_t), 2.0) + log_t
        standard = (w - part * m) * np.exp(-part * log_t)
        expected = prior + np.sum(stats.norm.logpdf(standard)) - 3 * part * log_t
        assert np.array_equal(values["x"], np.full(3, m))
        assert np.isclose(density, expected, rtol=1e-12)


def test_laws_without_location_and_scale_of_others_are_left_alone():
    prior = dict(a=dist.Gamma(2.0, 1.0), x=lambda a: dist.Gamma(a, 1.0), y=dist.Normal(0.0, 1.0))
    model = nw.Model(prior, {"s": lambda x, y: dist.Normal(x + y, 1.0)})
    assert Space(model).chart.located == ()
    held = dict(a=dist.Gamma(2.0, 1.0), x=lambda a: dist.TruncatedNormal(a, 1.0, low=0.0))
    assert Space(nw.Model(held, {"s": lambda x: dist.Normal(x, 1.0)})).chart.located == ()
