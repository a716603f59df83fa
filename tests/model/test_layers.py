"""Layers of a hierarchy: the closed forms by Bayes' rule, and what is recognised as a layer."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import noisewise as nw
from noisewise.model.masses import entries
from noisewise.numerics import double

UNITS = 3
EXPOSURE = np.array([0.5, 20.0, 3.0])
TRIALS = np.array([1, 40, 7])


def counts(prior=lambda a, b: dist.Gamma(a, b).expand([UNITS]), reader=lambda layer: dist.Poisson(layer * EXPOSURE)):
    return nw.Model({"a": dist.Gamma(3.0, 1.0), "b": dist.Gamma(2.0, 1.0), "layer": prior}, {"s": reader})


def shares():
    return nw.Model(
        {
            "a": dist.Gamma(3.0, 1.0),
            "b": dist.Gamma(2.0, 1.0),
            "layer": lambda a, b: dist.Beta(a, b).expand([UNITS]).to_event(1),
        },
        {"s": lambda layer: dist.Binomial(TRIALS, layer)},
    )


def means():
    return nw.Model(
        {
            "a": dist.Normal(3.0, 1.0),
            "b": dist.Gamma(2.0, 1.0),
            "layer": lambda a, b: dist.Normal(a, b).expand([UNITS]),
        },
        {"s": lambda layer, b: dist.Normal(7.0 * b - layer * EXPOSURE / 2.0, 1.5 * b)},
    )


def exponential():
    return counts(prior=lambda a, b: dist.Exponential(a * b).expand([UNITS]))


CLOSED = {"counts": counts, "exponential": exponential, "shares": shares, "means": means}
GIVEN = {
    "counts": lambda first, second: stats.gamma(first, scale=1.0 / second),
    "exponential": lambda first, second: stats.gamma(first, scale=1.0 / second),
    "shares": stats.beta,
    "means": stats.norm,
}


@pytest.fixture(scope="module", params=CLOSED)
def case(request):
    model = CLOSED[request.param]()
    return request.param, model, model.integrated(())


def test_bayes_rule_holds_at_any_values(case):
    # pi0(layer) pi(s | layer) = q(s) p(layer | s), and p is SciPy's: so q is the integral, and both closed forms hold
    kind, model, smaller = case
    (layer,) = smaller.layers
    rows = model.simulate(50, seed=1)
    first, second = layer.numbers(rows)
    # NumPyro's own formulas for the negative binomial and the beta-binomial law have seven digits
    with double():
        q = jax.jit(jax.vmap(lambda row: entries(smaller.law_at("s", row), row["s"]).sum()))(rows)
    for value in (rows["layer"], model.simulate(50, seed=2)["layer"]):  # behind `s`, and not
        at = rows | {"layer": value}
        joint = model.log_prob("layer", value, at) + model.log_prob("s", rows["s"], at)
        conditional = GIVEN[kind](first, second).logpdf(value).sum(axis=1)
        assert np.allclose(joint, np.asarray(q) + conditional, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", CLOSED)
def test_the_statistic_is_simulated_as_before(kind):
    model = CLOSED[kind]()
    before, after = (one.simulate(20_000, seed=seed)["s"] for one, seed in ((model, 1), (model.integrated(()), 2)))
    for unit in range(UNITS):
        values = np.unique(np.concatenate([before[:, unit], after[:, unit]]))
        if len(values) > 40:
            assert stats.ks_2samp(before[:, unit], after[:, unit]).pvalue > 1e-6
        else:
            counts = [[np.sum(side[:, unit] == value) for value in values] for side in (before, after)]
            assert stats.chi2_contingency(counts).pvalue > 1e-6


def test_layers_are_drawn_from_their_law(case):
    kind, model, smaller = case
    (layer,) = smaller.layers
    row = {name: np.repeat(values[:1], 20_000, axis=0) for name, values in model.simulate(1, seed=4).items()}
    drawn = layer.draw(np.random.default_rng(5), row)
    first, second = (one[0] for one in layer.numbers(row))
    assert drawn.shape == (20_000, UNITS)
    for unit in range(UNITS):
        assert stats.kstest(drawn[:, unit], GIVEN[kind](first[unit], second[unit]).cdf).pvalue > 1e-6


def test_the_smaller_model_has_the_rest(case):
    _, model, smaller = case
    assert set(smaller.parameters) == set(model.parameters) - {"layer"}
    assert smaller.statistics == model.statistics
    assert smaller.shape("s") == (UNITS,)
    assert model.integrated(()) is smaller, "made once, with its programs"
    assert smaller.integrated(()) is smaller


REGION = np.array([0, 1, 1])
NOT_LAYERS = {
    "an entry read twice": lambda layer: dist.Poisson(layer[REGION] * EXPOSURE),
    "entries out of place": lambda layer: dist.Poisson(layer[::-1] * EXPOSURE),
    "a power": lambda layer: dist.Poisson(layer**2),
    "an offset": lambda layer: dist.Poisson(layer + 1.0),
    "a quotient by it": lambda layer: dist.Poisson(1.0 / layer),
    "rounded": lambda layer: dist.Poisson(layer.astype(int) * EXPOSURE),
    "a sum": lambda layer: dist.Poisson(jnp.cumsum(layer)),
    "twice": lambda layer: dist.Poisson(layer * layer),
    "a choice": lambda layer: dist.Poisson(jnp.where(layer > 1.0, layer, 1.0)),
    "another law": lambda layer: dist.Geometric(1.0 / (1.0 + layer)),
    "another attribute too": lambda layer: dist.ZeroInflatedPoisson(layer / (1.0 + layer), layer),
}


@pytest.mark.parametrize("why", NOT_LAYERS)
def test_what_is_bent_or_out_of_place_stays(why):
    model = counts(reader=NOT_LAYERS[why])
    assert model.integrated(()) is model


def test_one_value_for_all_units_stays():
    model = counts(prior=lambda a, b: dist.Gamma(a, b), reader=lambda layer: dist.Poisson(layer * EXPOSURE))
    assert model.integrated(()) is model


def test_what_something_else_reads_stays():
    law, reader = (lambda a: dist.Gamma(a, 1.0).expand([UNITS])), lambda layer: dist.Poisson(layer)
    prior = {"a": dist.Gamma(3.0, 1.0), "layer": law}
    two = nw.Model(prior, {"s": reader, "other": lambda layer: dist.Poisson(layer.sum())})
    above = nw.Model(
        prior | {"c": lambda layer: dist.Gamma(layer.sum(), 1.0)}, {"s": lambda layer, c: dist.Poisson(layer)}
    )
    alone = nw.Model({"layer": dist.Gamma(2.0, 1.0).expand([UNITS])}, {"s": reader})
    kept = nw.Model(prior, {"s": reader})
    assert all(model.integrated(()) is model for model in (two, above, alone))
    assert kept.integrated(["layer"]) is kept.integrated(["s"]) is kept
    assert kept.integrated(()) is not kept


def test_the_statistic_keeps_one_layer_where_two_would_do():
    model = nw.Model(
        {
            "a": dist.Normal(0.0, 1.0),
            "first": lambda a: dist.Normal(a, 1.0).expand([UNITS]),
            "second": lambda a: dist.Normal(a, 2.0).expand([UNITS]),
        },
        {"s": lambda first, second: dist.Normal(first + second, 1.0)},
    )
    smaller = model.integrated(())
    assert smaller.parameters == ("a", "second")
    assert [layer.name for layer in smaller.layers] == ["first"]
