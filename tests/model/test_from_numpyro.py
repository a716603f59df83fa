"""NumPyro model functions as models: the same as written by hand, draw by draw; refusals by the name of the site."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from targets import briefly

import noisewise as nw
from noisewise.errors import InputError

X = np.array([0.5, -1.0, 2.0])


def regression(x):
    level = numpyro.sample("level", dist.Normal(1.0, 0.5))
    spread = numpyro.sample("spread", dist.HalfNormal(0.5))
    slope = numpyro.sample("slope", dist.Normal(0.0, 0.3))
    with numpyro.plate("county", len(x)):
        effect = numpyro.sample("effect", dist.Normal(level, spread))
        rate = numpyro.deterministic("rate", jnp.exp(effect + slope * x))
        numpyro.sample("count", dist.Poisson(rate))


def by_hand():
    return nw.Model(
        prior={
            "level": dist.Normal(1.0, 0.5),
            "spread": dist.HalfNormal(0.5),
            "slope": dist.Normal(0.0, 0.3),
            "effect": lambda level, spread: dist.Normal(level, spread).expand((3,)),
        },
        statistics={"count": lambda slope, effect: dist.Poisson(jnp.exp(effect + slope * X))},
    )


def test_it_is_the_model_written_by_hand():
    model, hand = nw.Model.from_numpyro(regression, X, statistics=["count"]), by_hand()
    assert model.parameters == hand.parameters
    assert {name: set(model.parents(name)) for name in model.order} == {
        name: set(hand.parents(name)) for name in hand.order
    }
    ours, theirs = model.simulate(500, seed=3), hand.simulate(500, seed=3)
    assert all(np.array_equal(ours[name], theirs[name]) for name in hand.order)


def test_plates_name_axes_and_deterministic_sites_are_derived():
    model = nw.Model.from_numpyro(regression, X, statistics=["count"])
    assert dict(model.axes.dims) == {"effect": ("county",), "count": ("county",), "rate": ("county",)}
    rows = model.simulate(50, seed=3)
    derived = model.derive(rows)
    assert list(derived) == ["rate"]
    assert np.allclose(derived["rate"], np.exp(rows["effect"] + rows["slope"][:, None] * X), rtol=1e-12)
    assert by_hand().derive(rows) == {}


@pytest.mark.parametrize("collapse", briefly([False, True], [False]))
def test_samplers_give_the_draws_of_the_model_by_hand(collapse):
    release = nw.Release({"count": nw.DiscreteLaplace(scale=3.0).released([5, 2, 9])})
    sampler = nw.Importance(collapse=collapse)
    posteriors = [
        nw.sample(model, release, draws=500, seed=1, sampler=sampler, on_failure="return")
        for model in (nw.Model.from_numpyro(regression, X, statistics=["count"]), by_hand())
    ]
    for name in ("level", "effect", "count"):
        assert np.array_equal(posteriors[0].draws[name], posteriors[1].draws[name])


def test_nested_plates_and_vectors():
    def nested():
        shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(2)))
        with numpyro.plate("region", 3, dim=-2):
            level = numpyro.sample("level", dist.Gamma(2.0, 0.5))
            with numpyro.plate("age", 2, dim=-1):
                numpyro.sample("count", dist.Poisson(10.0 * level * shares))

    model = nw.Model.from_numpyro(nested, statistics=["count"])
    assert model.shape("level") == (3, 1)
    assert model.shape("count") == (3, 2)
    assert dict(model.axes.dims) == {"count": ("region", "age")}
    assert set(model.parents("count")) == {"level", "shares"}


def with_factor():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.factor("penalty", -rate)
    numpyro.sample("count", dist.Poisson(rate))


def with_data():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("seen", dist.Poisson(rate), obs=3)
    numpyro.sample("count", dist.Poisson(rate))


def with_branch():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("count", dist.Poisson(1.0 if rate > 2.0 else rate))


def with_param():
    rate = numpyro.param("rate", 2.0)
    numpyro.sample("count", dist.Poisson(rate))


def with_subsample():
    with numpyro.plate("county", 4, subsample_size=2):
        numpyro.sample("count", dist.Poisson(3.0))


def with_scale():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.handlers.scale(scale=2.0):
        numpyro.sample("count", dist.Poisson(rate))


def with_scale_of_one():
    with numpyro.handlers.scale(scale=1.0):
        numpyro.sample("count", dist.Poisson(3.0))


def with_scan():
    def step(level, _):
        level = numpyro.sample("level", dist.Normal(level, 0.3))
        return level, level

    scan(step, 1.0, None, length=3)
    numpyro.sample("count", dist.Poisson(3.0))


def with_release():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("count", dist.Poisson(rate), obs=3)


def with_state():
    held = numpyro.primitives.mutable("held", {"seen": 0.0})
    numpyro.sample("count", dist.Poisson(3.0 + held["seen"]))


@pytest.mark.parametrize(
    ("function", "site", "said"),
    [
        (with_scan, "level", "inside scan or cond"),
        (with_release, "count", "is observed: call the function so that obs is None"),
        (with_state, "held", "is mutable"),
        (with_factor, "penalty", "is a factor"),
        (with_data, "seen", "is observed"),
        (with_branch, "count", "control flow"),
        (with_param, "rate", "is a param"),
        (with_subsample, "county", "subsample"),
        (with_scale, "count", "is scaled"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name(function, site, said):
    with pytest.raises(InputError, match=said) as caught:
        nw.Model.from_numpyro(function, statistics=["count"])
    assert f"'{site}'" in str(caught.value)


def test_a_scale_of_one_is_none():
    assert tuple(nw.Model.from_numpyro(with_scale_of_one, statistics=["count"]).statistics) == ("count",)


def test_statistics_must_be_sites():
    with pytest.raises(InputError, match="must be sites of the function"):
        nw.Model.from_numpyro(regression, X, statistics=["counts"])
    with pytest.raises(InputError, match="list of names"):
        nw.Model.from_numpyro(regression, X, statistics="count")
    with pytest.raises(InputError, match="must be a NumPyro model function"):
        nw.Model.from_numpyro(3, statistics=["count"])
