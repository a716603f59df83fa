"""The model language: what it reads from functions, and what it refuses at construction."""

import re
import time
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import agrees, variance_agrees
from targets import brief_rows

import noisewise as nw
from noisewise.model.total import chunk_of

GAMMA = dist.Gamma(25.0, 1.0)


def poisson(theta):
    return dist.Poisson(theta)


@pytest.mark.quick
def test_graph_is_read_from_argument_names():
    constant = 3.0
    model = nw.Model(
        prior={"rate": lambda spread: dist.LogNormal(0.0, spread).expand([5]), "spread": dist.HalfNormal(1.0)},
        statistics={
            "late": lambda early, rate: dist.Normal(early + rate.sum(), 1.0),
            "early": lambda rate, c=constant: dist.Normal(c * rate[0], 1.0),
        },
    )
    assert model.parents("rate") == ("spread",)
    assert model.parents("early") == ("rate",)
    assert model.order.index("spread") < model.order.index("rate") < model.order.index("early")
    assert model.order.index("early") < model.order.index("late")
    assert model.ancestors("late") == ["spread", "rate", "early"]
    assert model.shape("rate") == (5,)
    assert not model.is_discrete("rate")
    assert "late" in repr(model)


def test_vector_parameters_and_laws_of_every_shape(seed):
    model = nw.Model(
        prior={
            "beta": dist.MultivariateNormal(np.zeros(3), 2.0 * np.eye(3)),
            "matrix": dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2),
        },
        statistics={"y": lambda beta, matrix: dist.Normal(matrix @ beta, 1.0).to_event(1)},
    )
    draws = model.simulate(20_000, seed)
    assert draws["matrix"].shape == (20_000, 2, 3)
    assert draws["y"].shape == (20_000, 2)
    assert agrees(draws["y"], 0.0)
    assert variance_agrees(draws["y"], 3 * 2.0 + 1.0)  # sum of three independent products, plus noise


@pytest.mark.quick
def test_total_moments_with_two_fields_and_unknown_n(seed):
    model = nw.Model(
        prior={"size": dist.Poisson(90.0), "slope": dist.Normal(1.0, 0.1)},
        statistics={
            "cross": nw.Total(
                record={"x": dist.Normal(0.0, 1.0), "y": lambda x, slope: dist.Normal(slope * x, 1.0)},
                contribution=lambda x, y: jnp.stack([jnp.clip(x * y, -99.0, 99.0), x * x, jnp.ones_like(x)]),
                n="size",
            )
        },
    )
    draws = model.simulate(8_000, seed)
    assert np.array_equal(draws["cross"][:, 2], draws["size"])  # the masked sum counts exactly n records
    assert agrees(draws["cross"], [90.0, 90.0, 90.0])


@pytest.mark.parametrize("n", [1, 64, 65, 700])
def test_totals_in_chunks_have_every_record_once(n, seed):
    """At the edge of a chunk, before and beyond it: records are counted by themselves, and no chunk comes twice."""
    total = nw.Total({"x": dist.Normal(0.0, 1.0)}, lambda x: jnp.stack([jnp.ones_like(x), jnp.clip(x, -9.0, 9.0)]), n)
    model = nw.Model({}, {"t": total})
    assert model.node("t").known is None
    assert chunk_of(4096, n) <= 64
    drawn = model.draw(np.random.default_rng(seed), ["t"], 4096)["t"]
    assert np.all(drawn[:, 0] == n)
    assert variance_agrees(drawn[:, 1], n)


def test_rows_of_few_records_are_added_by_themselves(seed):
    """Every row takes as long as the longest of those that it is added with."""
    total = nw.Total({"x": dist.Normal(0.0, 1.0)}, lambda x: jnp.stack([jnp.ones_like(x), jnp.clip(x, -9.0, 9.0)]), "n")
    model = nw.Model({"n": dist.Poisson(1.0)}, {"t": total})
    n = np.repeat([0, 3, 100, 2000], [500, 500, 1000, 3])
    n = np.random.default_rng(seed).permutation(n)
    bound, looked = model.total("t"), []
    drawn = bound.simulated(np.random.default_rng(seed), {"n": n}, n, lambda: looked.append(1))
    assert np.all(drawn[:, 0] == n)
    assert variance_agrees(drawn[n == 100, 1], 100)
    assert len(looked) < 50  # parts of 64 records: 32 for each row otherwise, with draws for all rows


@pytest.mark.parametrize("batched", [True, False])
def test_every_row_of_a_simulator_has_its_own_parameters(batched, seed):
    model = nw.Model({"x": dist.Normal(0.0, 1.0)}, {"s": nw.Simulator(lambda rng, x: 2.0 * x, batched=batched)})
    drawn = model.simulate(100, seed)
    assert np.array_equal(drawn["s"], 2.0 * drawn["x"])


def test_simulated_rows_never_repeat():
    drawn = nw.Model({"x": dist.Normal(0.0, 1.0)}, {"s": lambda x: dist.Normal(x, 1.0)}).simulate(20_000, 1)
    assert all(len(np.unique(column)) == 20_000 for column in drawn.values())


def test_n_of_zero_gives_an_empty_sum(seed):
    model = nw.Model(
        prior={"size": dist.Poisson(0.3)},
        statistics={"t": nw.Total({"x": dist.Normal(5.0, 1.0)}, lambda x: x, "size")},
    )
    draws = model.simulate(2_000, seed)
    assert np.all(draws["t"][draws["size"] == 0] == 0.0)
    assert np.all(draws["t"][draws["size"] > 0] != 0.0)


@pytest.mark.quick
def test_simulators_row_by_row_and_batched(seed):
    def one(rng, theta):
        return rng.normal(theta, 1.0, size=2)

    def many(rng, theta):
        return rng.normal(theta[:, None], 1.0, size=(len(theta), 2))

    for simulator in (nw.Simulator(one), nw.Simulator(many, batched=True)):
        model = nw.Model(prior={"theta": dist.Normal(3.0, 1.0)}, statistics={"s": simulator})
        assert model.shape("s") == (2,)
        assert agrees(model.simulate(5_000, seed)["s"], 3.0)


def test_a_constant_function_is_made_in_64_bits(seed):
    model = nw.Model(
        prior={"p": lambda: dist.NegativeBinomial2(3.0, 2.0)}, statistics={"s": lambda p: dist.Normal(p, 1.0)}
    )
    assert agrees(model.simulate(20_000, seed)["p"], 3.0)


def test_a_32_bit_constant_in_a_function_is_named():
    weights = jnp.array([0.1, 0.2])
    with pytest.warns(nw.NoisewiseWarning, match=r"Model\.statistics\['s'\]: holds 32-bit"):
        nw.Model(prior={"a": GAMMA}, statistics={"s": lambda a: dist.Normal(jnp.sum(a * weights), 1.0)})


def test_unused_parameter_is_a_warning():
    with pytest.warns(nw.NoisewiseWarning, match="'idle' is used by no statistic"):
        nw.Model(prior={"theta": GAMMA, "idle": GAMMA}, statistics={"count": poisson})


REFUSED = {
    "unknown name": (dict(prior={"theta": GAMMA}, statistics={"count": lambda thetta: None}), "Did you mean 'theta'"),
    "prior reads statistic": (
        dict(prior={"theta": lambda count: dist.Gamma(count, 1.0)}, statistics={"count": poisson}),
        "must be a parameter of the model",
    ),
    "cycle in the prior": (
        dict(
            prior={"a": lambda b: dist.Normal(b, 1.0), "b": lambda a: dist.Normal(a, 1.0)},
            statistics={"s": lambda a: dist.Normal(a, 1.0)},
        ),
        "a -> b -> a",
    ),
    "cycle in the statistics": (
        dict(
            prior={"a": GAMMA},
            statistics={"s": lambda a, t: dist.Normal(t, a), "t": lambda s: dist.Normal(s, 1.0)},
        ),
        "s -> t -> s",
    ),
    "improper": (
        dict(prior={"theta": dist.ImproperUniform(dist.constraints.real, (), ())}, statistics={"count": poisson}),
        r"prior\['theta'\]: ImproperUniform is improper",
    ),
    "infinite bounds": (
        dict(prior={"theta": dist.Uniform(0.0, np.inf)}, statistics={"count": poisson}),
        "'high' must be finite, got inf",
    ),
    "negative rate": (
        dict(prior={"theta": dist.Gamma(-1.0, 1.0, validate_args=False)}, statistics={"count": poisson}),
        r"prior\['theta'\].*'concentration' must be positive and finite, got -1.0",
    ),
    "returns a number": (
        dict(prior={"theta": GAMMA}, statistics={"count": lambda theta: theta * 2}),
        r"statistics\['count'\]: the function must return a NumPyro distribution",
    ),
    "returns nothing": (
        dict(prior={"theta": GAMMA}, statistics={"count": lambda theta: None}),
        "must return a NumPyro distribution; got NoneType",
    ),
    "branches on a value": (
        dict(prior={"theta": GAMMA}, statistics={"count": lambda theta: dist.Poisson(1.0 if theta > 1 else 2.0)}),
        "jnp.where in place of if",
    ),
    "raises": (
        dict(prior={"theta": GAMMA}, statistics={"count": lambda theta: dist.Poisson(theta.nope)}),
        r"statistics\['count'\]: .* raised AttributeError",
    ),
    "star arguments": (dict(prior={"theta": GAMMA}, statistics={"count": lambda *theta: None}), r"no \*args"),
    "keyword arguments": (dict(prior={"theta": GAMMA}, statistics={"count": lambda **theta: None}), r"\*\*kwargs"),
    "positional only": (
        dict(prior={"theta": GAMMA}, statistics={"count": eval("lambda theta, /: None")}),
        "positional-only",
    ),
    "no dict": (dict(prior=[GAMMA], statistics={"count": poisson}), "'prior' must be a dict"),
    "no statistics": (dict(prior={"theta": GAMMA}, statistics={}), "'statistics' must hold at least one"),
    "not a law": (dict(prior={"theta": 3.0}, statistics={"count": poisson}), r"prior\['theta'\]: 'law' must be"),
    "a class": (dict(prior={"theta": dist.Gamma}, statistics={"count": poisson}), "must be a NumPyro distribution"),
    "reserved name": (dict(prior={"draw": GAMMA}, statistics={"count": poisson}), "reserved names"),
    "arviz dimension": (dict(prior={"x_dim_0": GAMMA}, statistics={"count": poisson}), "reserved names"),
    "slash": (dict(prior={"a/b": GAMMA}, statistics={"count": poisson}), "must be names"),
    "same name twice": (dict(prior={"theta": GAMMA}, statistics={"theta": poisson}), "must not be used twice"),
    "record field clashes": (
        dict(prior={"theta": GAMMA}, statistics={"t": nw.Total({"theta": GAMMA}, lambda theta: theta, 3)}),
        "must not be used twice",
    ),
    "n is a vector": (
        dict(
            prior={"size": dist.Poisson(np.array([1.0, 2.0]))},
            statistics={"t": nw.Total({"x": GAMMA}, lambda x: x, "size")},
        ),
        "'n' must name a single whole number",
    ),
    "n is continuous": (
        dict(prior={"size": GAMMA}, statistics={"t": nw.Total({"x": GAMMA}, lambda x: x, "size")}),
        "'n' must name a single whole number",
    ),
    "infinite bounds from a function": (
        dict(
            prior={"a": dist.Normal(0.0, 1.0), "b": lambda a: dist.Uniform(a, jnp.inf)},
            statistics={"s": lambda b: dist.Normal(b, 1.0)},
        ),
        r"prior\['b'\].* at a=.*'high' must be finite, got inf",
    ),
    "compatibility character": (dict(prior={"\u00b5": GAMMA}, statistics={"count": poisson}), "as Python reads them"),
    "unknown n": (
        dict(prior={"theta": GAMMA}, statistics={"t": nw.Total({"x": GAMMA}, lambda x: x, "size")}),
        "must be a parameter or statistic of the model",
    ),
    "contribution raises": (
        dict(prior={"a": GAMMA}, statistics={"t": nw.Total({"x": GAMMA}, lambda x, a: x + {}, 3)}),
        "'contribution' must run on one record",
    ),
    "contribution uses NumPy": (
        dict(prior={"a": GAMMA}, statistics={"t": nw.Total({"x": GAMMA}, lambda x: np.clip(x, 0.0, 1.0), 3)}),
        r"it raised TracerArrayConversionError: [^\n]+\. Use jnp functions, and jnp\.where in place of if\.$",
    ),
    "simulator raises": (
        dict(prior={"a": GAMMA}, statistics={"t": nw.Simulator(lambda rng, a: 1 / 0)}),
        r"statistics\['t'\]: the simulator raised ZeroDivisionError",
    ),
    "simulator returns text": (
        dict(prior={"a": GAMMA}, statistics={"t": nw.Simulator(lambda rng, a: "x")}),
        "must return numbers",
    ),
    "simulator returns NaN": (
        dict(prior={"a": GAMMA}, statistics={"t": nw.Simulator(lambda rng, a: np.nan)}),
        "must not return NaN",
    ),
    "batched simulator loses rows": (
        dict(prior={"a": GAMMA}, statistics={"t": nw.Simulator(lambda rng, a: 1.0, batched=True)}),
        "must return numbers of one row per parameter",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_at_construction(arguments, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nw.NoisewiseWarning)
        with pytest.raises(nw.NoisewiseError, match=message) as caught:
            nw.Model(**arguments)
    assert re.match(r"(Model|Total|Simulator)\b", str(caught.value)), "the message must say who"


TOTALS = {
    "empty record": (dict(record={}, contribution=lambda x: x, n=3), "'record' must be a non-empty dict"),
    "no function": (dict(record={"x": GAMMA}, contribution=3, n=3), "'contribution' must be a function"),
    "zero n": (dict(record={"x": GAMMA}, contribution=lambda x: x, n=0), "'n' must be a whole number, at least 1"),
    "float n": (dict(record={"x": GAMMA}, contribution=lambda x: x, n=3.0), "'n' must be a whole number"),
    "no field used": (dict(record={"x": GAMMA}, contribution=lambda a: a, n=3), "at least one record field"),
    "cycle": (
        dict(record={"x": lambda y: None, "y": lambda x: None}, contribution=lambda x: x, n=3),
        "x -> y -> x",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), TOTALS.values(), ids=TOTALS)
def test_totals_refused(arguments, message):
    with pytest.raises(nw.InputError, match=message):
        nw.Total(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3,), "'f' must be callable"),
        ((lambda theta: theta,), "'rng' as its first argument"),
        ((lambda rng: 1, "yes"), "'batched' must be True or False"),
    ],
)
def test_simulators_refused(arguments, message):
    with pytest.raises(nw.InputError, match=message):
        nw.Simulator(*arguments)


def test_bad_values_at_run_time_name_the_parents(seed):
    model = nw.Model(prior={"a": dist.Normal(2.0, 1.0)}, statistics={"s": lambda a: dist.Poisson(a)})
    with pytest.raises(nw.InputError, match=r"statistics\['s'\]: .* at a=-\d.*'rate' must be non-negative") as caught:
        model.simulate(100, seed)
    at = float(re.search(r"at a=([^:]+):", str(caught.value)).group(1))
    assert f"got {at}" in str(caught.value)


def test_nan_from_a_law_is_an_error_that_names_the_parents(seed):
    model = nw.Model(
        prior={"a": dist.Normal(0.0, 1.0)},
        statistics={"t": nw.Total({"x": dist.Normal(0.0, 1.0)}, lambda x, a: x + jnp.sqrt(a), 3)},
    )
    with pytest.raises(nw.InputError, match=r"Model\['t'\]: a draw is NaN at a=-"):
        model.simulate(100, seed)


def test_negative_n_is_refused(seed):
    model = nw.Model(
        prior={"size": lambda: dist.DiscreteUniform(-5, 5)},
        statistics={"t": nw.Total({"x": GAMMA}, lambda x: x, "size")},
    )
    with pytest.raises(nw.InputError, match="'n' must not be negative, as 'size' gives it; got -5"):
        model.simulate(1_000, seed)


def test_probabilities_are_clipped_by_rounding_errors_only(seed):
    model = nw.Model(
        prior={"p": dist.Beta(1.0, 1.0)}, statistics={"s": lambda p: dist.Binomial(5, jnp.where(p > 0.5, 1 + 1e-9, p))}
    )
    assert model.simulate(100, seed)["s"].max() == 5


# What once went wrong -------------------------------------------------------------------------------------------


def counted_by(simulate, seed, released=5):
    model = nw.Model(prior={"theta": dist.Gamma(5.0, 1.0)}, statistics={"s": nw.Simulator(simulate, batched=True)})
    return nw.sample(model, nw.Release(s=nw.DiscreteLaplace(scale=2.0).released(released)), draws=5_000, seed=seed)


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.int16, bool, np.int64])
def test_every_integer_type_of_a_simulator_counts_alike(kind, seed):
    """An unsigned difference must not wrap around."""
    as_int64 = counted_by(lambda rng, theta: (rng.poisson(theta) % 2).astype(np.int64), seed)
    as_given = counted_by(lambda rng, theta: (rng.poisson(theta) % 2).astype(kind), seed)
    assert as_given["s"].dtype == np.int64
    assert np.array_equal(as_given["theta"], as_int64["theta"])


def test_a_simulator_that_turns_to_fractions_is_refused(seed):
    with pytest.raises(nw.InputError, match="must return whole numbers, as in its trial"):
        counted_by(lambda rng, theta: np.zeros(len(theta), int) if len(theta) < 3 else np.full(len(theta), 0.5), seed)


def test_a_simulator_cannot_change_its_parents(seed):
    def meddle(rng, theta):
        theta *= 0.0
        return rng.poisson(theta)

    with pytest.raises(nw.InferenceError, match=r"simulator raised ValueError: .*read-only"):
        counted_by(meddle, seed)


def test_options_of_a_prior_that_are_no_parameters_are_kept():
    model = nw.Model(
        prior={"walk": dist.GaussianRandomWalk(1.0, num_steps=10)},
        statistics={"s": lambda walk: dist.Normal(walk.sum(), 1.0)},
    )
    assert model.shape("walk") == (10,)


@pytest.mark.parametrize(
    "law",
    [
        lambda: dist.DiscreteUniform(2, 7),
        pytest.param(lambda: dist.MultivariateNormal(covariance_matrix=np.eye(2)), marks=pytest.mark.long),
        lambda: dist.MultivariateNormal(0.0, scale_tril=np.eye(2)),
        lambda: dist.TruncatedCauchy(0.0, 1.0, low=0.0),
        pytest.param(lambda: dist.WishartCholesky(5.0, np.eye(2)), marks=pytest.mark.long),
        pytest.param(lambda: dist.LKJCholesky(2, 1.0), marks=pytest.mark.long),
        lambda: dist.OrderedLogistic(0.3, np.array([-1.0, 1.0])),
    ],
)
def test_laws_of_other_kinds_draw_too(law, seed):
    model = nw.Model(prior={"a": law}, statistics={"s": lambda a: dist.Normal(jnp.sum(a), 1.0)})
    assert np.isfinite(model.simulate(100, seed)["a"]).all()


def test_the_users_own_jax_works_afterwards(seed):
    """Tracing a function that closes over a NumPy array must not break 32-bit use of the same array."""
    x = np.array([1.5])
    model = nw.Model(prior={"t": dist.Gamma(2.0, 1.0)}, statistics={"s": lambda t: dist.Normal(t * jnp.log(x), 1.0)})
    nw.sample(model, nw.Release(s=nw.Laplace(scale=1.0).released([1.0])), draws=100, seed=seed)
    assert jnp.log(x).dtype == np.float32
    record = {"y": lambda t: dist.Normal(t * jnp.sin(x), 1.0)}
    total = nw.Total(record, lambda y: y * jnp.exp(x), n=3)
    nw.Model(prior={"t": dist.Gamma(2.0, 1.0)}, statistics={"s": total}).simulate(10, seed)
    assert jnp.sin(x).dtype == jnp.exp(x).dtype == np.float32


# Randomness of their own --------------------------------------------------------------------------------------------

OWN = np.random.default_rng(5)
CALLS = []


def remembers(rng, theta):
    CALLS.append(theta)
    return float(len(CALLS))


OWN_RANDOMNESS = {
    "np.random": nw.Simulator(lambda rng, theta: np.random.normal(theta)),  # noqa: NPY002
    "a generator of its own": nw.Simulator(lambda rng, theta: int(OWN.poisson(theta))),
    "in one call of three": nw.Simulator(lambda rng, theta: OWN.normal() if rng.random() < 1 / 3 else 0.0),
    "in batches": nw.Simulator(lambda rng, theta: theta + OWN.normal(size=len(theta)), batched=True),
    "memory": nw.Simulator(remembers),
}


@pytest.mark.parametrize("kind", OWN_RANDOMNESS)
def test_simulators_with_randomness_of_their_own_are_refused(kind):
    with pytest.raises(nw.InputError, match="must draw all its random numbers from 'rng'"):
        nw.Model(prior={"theta": GAMMA}, statistics={"s": OWN_RANDOMNESS[kind]})


def test_a_slow_simulator_is_called_twice_only():
    calls = []

    def slow(rng, theta):
        calls.append(theta)
        time.sleep(0.06)
        return rng.normal(theta)

    nw.Model(prior={"theta": GAMMA}, statistics={"s": nw.Simulator(slow)})
    assert len(calls) == 4  # two rows each time


X = np.random.default_rng(21).normal(size=(40, 12))


def test_a_model_is_made_though_a_trial_draw_is_beyond_range():
    """Twelve coefficients from Normal(0, 10): hardly a draw at which all forty rates are below 9e18."""
    model = nw.Model({"b": dist.Normal(0.0, 10.0).expand([12])}, {"y": lambda b: dist.Poisson(jnp.exp(X @ b))})
    assert model.shape("y") == (40,)
    with pytest.raises(nw.InputError, match="'rate' must be non-negative"):
        nw.Model({"b": dist.Normal(0.0, 10.0).expand([12])}, {"y": lambda b: dist.Poisson(-jnp.exp(X @ b))})


VAGUE = {"a": dist.Normal(0.0, 300.0), "v": dist.InverseGamma(0.001, 0.001)}
FAR = {  # (law, whether its numbers leave the range by degrees)
    "an infinite rate": (lambda a, v: dist.Poisson(jnp.exp(a) + 0.0 * jnp.log(1.0 + 1.0 / v)), True),
    "a rate over nothing": (lambda a, v: dist.Poisson(jnp.exp(a / 1e3) / (a > 0.0) + 0.0 * jnp.exp(-v)), False),
    "an infinite variance": (lambda a, v: dist.Normal(a, jnp.sqrt(v)), True),
    "a precision of zero": (lambda a, v: dist.Normal(a, 1.0 / jnp.sqrt(1.0 / v)), True),
    "a scale that is nothing": (lambda a, v: dist.Normal(jnp.exp(-v), jnp.where(a > 0.0, 1.0, 0.0)), False),
    "a scale that was cut off": (lambda a, v: dist.Normal(jnp.exp(-v), jnp.maximum(a, 0.0)), False),
    "always nothing": (lambda a, v: dist.Normal(jnp.exp(-v), 0.0 * a), False),
}


@pytest.mark.parametrize(("law", "far"), brief_rows(FAR, ["an infinite variance", "a rate over nothing"]))
def test_numbers_beyond_range_are_told_from_mistakes(law, far, seed):
    with pytest.raises(nw.InputError, match="cannot be drawn from") as caught:
        nw.Model(VAGUE, {"y": law}).simulate(4_000, seed)
    assert caught.value.beyond_range == far
    assert caught.value.within("f").beyond_range == caught.value.advising("Do.").beyond_range == far


def test_rows_beyond_range_give_way_to_others(seed):
    model = nw.Model({"a": dist.Normal(0.0, 30.0)}, {"y": lambda a: dist.Poisson(jnp.exp(a))})
    values, possible = model.drawable(np.random.default_rng(seed), model.order, 1_000)
    first = model.draw(np.random.default_rng(seed), ["a"], 1_000)["a"]
    np.testing.assert_array_equal(possible, np.exp(first) < 9e18)
    assert 0 < possible.sum() < 1_000
    np.testing.assert_array_equal(values["a"][possible], first[possible])
    assert np.isin(values["a"][~possible], first[possible]).all()
    negative = nw.Model({"a": dist.Normal(0.0, 30.0)}, {"y": lambda a: dist.Poisson(jnp.exp(a) - 1.0)})
    with pytest.raises(nw.InputError, match="non-negative"):
        negative.drawable(np.random.default_rng(seed), negative.order, 1_000)


def test_a_message_shows_few_numbers_and_how_many_draws_fail(seed):
    model = nw.Model({"b": dist.Normal(0.0, 10.0).expand([12])}, {"y": lambda b: dist.Poisson(jnp.exp(X @ b))})
    with pytest.raises(
        nw.InputError, match=r"at b=\[[^\]]*, \.\.\.\] \(12 entries\): .* of 4096 draws fail\)"
    ) as caught:
        model.simulate(100, seed)
    assert len(str(caught.value)) < 300
