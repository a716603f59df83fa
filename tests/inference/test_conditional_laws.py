"""What tracing tells of laws: the facts that hold for all parameters, and that asking for them compiles nothing."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import noisewise as nw
from noisewise.inference.conditional.laws import constant_bounds, constant_of, fixed_numbers, sketch_of

X = np.linspace(-1.0, 1.0, 5)


def model_of(law):
    prior = {"a": dist.Normal(0.0, 1.0), "n": dist.DiscreteUniform(3, 9)}
    return nw.Model({name: prior[name] for name in inspect.signature(law).parameters}, {"s": law})


LAWS = {
    # name: (law, attribute, its constant value or None, ends of the support)
    "known n": (lambda a: dist.Binomial(12, jax.nn.sigmoid(a)), "total_count", 12, (0.0, 12.0)),
    "n by arithmetic": (lambda a: dist.Binomial(jnp.asarray(6) * 2, jax.nn.sigmoid(a)), "total_count", 12, (0.0, 12.0)),
    "n that moves": (lambda a, n: dist.Binomial(n, jax.nn.sigmoid(a)), "total_count", None, (0.0, np.inf)),
    "compiled": (jax.jit(lambda a: dist.Binomial(12, jax.nn.sigmoid(a))), "total_count", 12, (0.0, 12.0)),
    "its own derivative": (
        lambda a: dist.Binomial(jax.nn.relu(jnp.asarray(12.0)).astype(int), jax.nn.sigmoid(a)),
        *("total_count", 12, (0.0, 12.0)),
    ),
    "no parents": (lambda: dist.Binomial(7, 0.3), "total_count", 7, (0.0, 7.0)),
    "no such attribute": (lambda a: dist.Poisson(jnp.exp(a)), "total_count", None, (0.0, np.inf)),
    "an end that moves": (lambda a: dist.Uniform(a, 5.0), "high", 5.0, (-np.inf, 5.0)),
}


@pytest.mark.parametrize(("law", "attribute", "value", "ends"), LAWS.values(), ids=LAWS.keys())
def test_facts_that_hold_for_all_parameters(law, attribute, value, ends):
    model = model_of(law)
    assert constant_of(model, "s", attribute) == value
    np.testing.assert_array_equal(constant_bounds(model, "s"), ends)


def test_asking_compiles_nothing():
    model = model_of(lambda a: dist.Poisson(jnp.exp(a + X * 0.731)).to_event(1))
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    assert constant_bounds(model, "s")[0].tolist() == [0.0] * 5
    assert fixed_numbers(model, "s", lambda law: [law.base_dist.rate]) == [None]
    assert sketch_of(model, "s", lambda law: jnp.shape(law.base_dist.log_prob(jnp.zeros(5)))) == (5,)
    assert compiled == []
