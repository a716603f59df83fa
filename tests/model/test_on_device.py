"""Laws as an accelerator draws them, one by one, beside those of the processor; totals and names drawn there.

The processor's variates are compared with densities in test_variates.py. Here both are cut into the same cells: with
equal laws the cells' counts differ by chance alone.
"""

from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import FALSE_ALARM, agrees, variance_agrees
from scipy import stats
from targets import briefly

import noisewise as nw
from noisewise.model.on_device.draws import simulate
from noisewise.model.on_device.gamma import log_gamma_variates, standard_gamma
from noisewise.model.on_device.held import Held
from noisewise.model.on_device.poisson import COARSE_CELLS, FINE_CELLS, UNIT, alias_tables, poisson
from noisewise.model.on_device.variates import DRAWS
from noisewise.model.variates import VARIATES
from noisewise.numerics import double

ROWS = 20_000
SHARES = np.array([0.2, 0.5, 0.3])
LOCATED, GAMMA = dict(loc=1.0, scale=2.0), dict(concentration=2.5, rate=0.5)
ATTRIBUTES = {
    **dict.fromkeys(["Normal", "Cauchy", "Laplace", "Logistic", "Gumbel"], LOCATED),
    "LogNormal": dict(loc=0.5, scale=0.75),
    "HalfNormal": dict(scale=3.0),
    "HalfCauchy": dict(scale=0.5),
    "StudentT": dict(df=3.5, **LOCATED),
    "Exponential": dict(rate=4.0),
    "Gamma": GAMMA,
    "InverseGamma": GAMMA,
    "Chi2": dict(df=3.0),
    "Beta": dict(concentration1=0.7, concentration0=2.0),
    "Uniform": dict(low=-2.0, high=5.0),
    "Weibull": dict(scale=2.0, concentration=1.5),
    "Pareto": dict(scale=2.0, alpha=3.0),
    "TwoSidedTruncatedDistribution": dict(low=-0.5, high=2.0, **LOCATED),
    "LeftTruncatedDistribution": dict(low=2.0, **LOCATED),
    "RightTruncatedDistribution": dict(high=0.5, **LOCATED),
    "Dirichlet": dict(concentration=np.array([0.4, 2.0, 1.0])),
    "MultivariateNormal": dict(loc=np.array([1.0, -1.0]), scale_tril=np.array([[2.0, 0.0], [-1.5, 0.5]])),
    "BernoulliProbs": dict(probs=0.3),
    "BernoulliLogits": dict(logits=-0.7),
    "BinomialProbs": dict(probs=0.3, total_count=np.int64(9)),
    "BinomialLogits": dict(logits=-0.7, total_count=np.int64(9)),
    "BetaBinomial": dict(concentration1=2.0, concentration0=3.0, total_count=np.int64(9)),
    "MultinomialProbs": dict(probs=SHARES, total_count=np.int64(9)),
    "MultinomialLogits": dict(logits=np.log(SHARES) + 3.0, total_count=np.int64(9)),
    "CategoricalProbs": dict(probs=SHARES),
    "CategoricalLogits": dict(logits=np.log(SHARES) + 3.0),
    "Poisson": dict(rate=3.5),
    **dict.fromkeys(["GammaPoisson", "NegativeBinomial2", "NegativeBinomialProbs", "NegativeBinomialLogits"], GAMMA),
    "GeometricProbs": dict(probs=0.25),
    "GeometricLogits": dict(logits=-1.0),
    "ZeroInflatedPoisson": dict(gate=0.4, rate=5.0),
    "Delta": dict(v=1.5),
}
"""What each law is made of, entry by entry, as both tables of variates take it."""


def sums(drawn):
    """Every entry of a draw, and the weighted sum of them, which sees how they depend on each other."""
    flat = np.asarray(drawn, float).reshape(len(drawn), -1)
    return np.column_stack([flat, flat @ np.arange(1.0, flat.shape[1] + 1.0)])


def same_law(first, second):
    """Whether two samples fall into the same cells, but for chance: Pearson's test, one false alarm in a million."""
    p_values = []
    for one, other in zip(sums(first).T, sums(second).T, strict=True):
        cells = np.unique(np.quantile(np.concatenate([one, other]), np.linspace(0.0, 1.0, 21)))
        index = [np.searchsorted(cells, column, side="left") for column in (one, other)]
        table = np.array([np.bincount(column, minlength=len(cells)) for column in index])
        table = table[:, table.sum(axis=0) > 20]
        if table.shape[1] > 1:
            p_values.append(stats.chi2_contingency(table, correction=False)[1])
    return min(p_values, default=1.0) > FALSE_ALARM / max(1, len(p_values))


def on_device(name, seed):
    attributes = ATTRIBUTES[name]
    with double():
        arrays = {key: jax.numpy.asarray(value) for key, value in attributes.items()}
        axes = VARIATES[name].axes
        wide = {
            key: jax.numpy.broadcast_to(one, (ROWS, *one.shape[one.ndim - axes.get(key, 0) :]))
            for key, one in arrays.items()
        }
        return np.asarray(jax.jit(lambda key, given: DRAWS[name](key, (ROWS,), **given))(jax.random.key(seed), wide))


EVERY = list({DRAWS[name]: name for name in sorted(DRAWS, reverse=True)}.values())
BRIEFLY = [name for name in EVERY if not name.endswith("Logits") or name.replace("Logits", "Probs") not in EVERY]
"""Laws by logits are drawn as those by the probabilities that these give."""


@pytest.mark.parametrize("name", briefly(EVERY, BRIEFLY))
def test_every_law_is_drawn_as_on_the_processor(name, seed):
    drawn = on_device(name, seed)
    plain = VARIATES[name](
        np.random.default_rng(seed), (ROWS,), {k: np.asarray(v) for k, v in ATTRIBUTES[name].items()}
    )
    assert drawn.shape == plain.shape
    assert same_law(drawn, plain)


@pytest.mark.parametrize(("step", "cells"), [(1, FINE_CELLS), (UNIT, COARSE_CELLS)])
def test_alias_tables_hold_poisson_laws_to_the_last_of_64_bits(step, cells):
    """How many random words choose each value, beside its probability in 60 decimal digits."""
    tables = alias_tables(step, cells)
    room = 2**64 // cells
    for number in range(UNIT):
        cut, other = (part[number * cells : (number + 1) * cells].tolist() for part in tables[1:])
        words = list(cut)
        for cell in range(cells):
            words[other[cell]] += room - cut[cell]
        assert sum(words) == 2**64
        rate, lowest = step * number, int(tables.lowest[number])
        with localcontext(prec=60):
            probability = (-Decimal(rate)).exp()
            for k in range(lowest + cells):
                if k >= lowest:  # the value of most, the rate, has what the others' rounding left
                    assert abs(words[k - lowest] - probability * 2**64) <= (cells if k == rate else 1)
                probability *= Decimal(rate) / (k + 1)


CONCENTRATIONS = np.array([0.05, 0.7, 1.0, 2.5, 92.0, 1e7])


def test_gamma_variates_follow_their_law_at_every_concentration(seed):
    wide = np.repeat(CONCENTRATIONS[:, None], ROWS, axis=1)
    with double():
        both = jax.jit(lambda key, a: (standard_gamma(key, a, a.shape), log_gamma_variates(key, a, a.shape)))
        plain, logs = map(np.asarray, both(jax.random.key(seed), wide))
    for row, concentration in enumerate(CONCENTRATIONS):
        law = stats.gamma(concentration)
        for drawn in (plain[row], np.exp(logs[row])):
            assert stats.kstest(drawn, law.cdf).pvalue > FALSE_ALARM
        wrong = 1.1 * plain[row]  # which for a concentration of 0.05 changes next to nothing
        assert concentration < 0.5 or stats.kstest(wrong, law.cdf).pvalue < FALSE_ALARM


def test_parameters_that_make_no_sense_do_not_hang():
    """Their rules refuse them; until then no loop may wait for them."""
    senseless = np.array([np.nan, np.inf, -1.0, 0.0, 2.5])
    with double():
        gamma = jax.jit(lambda key, a: standard_gamma(key, a, a.shape))(jax.random.key(0), senseless)
        counts = jax.jit(lambda key, rate: poisson(key, rate, rate.shape))(jax.random.key(0), senseless)
    assert np.isfinite(np.asarray(gamma)[-1])
    assert 0 <= np.asarray(counts)[-1] < 30


def test_columns_that_stay_there_are_cut_and_joined_like_arrays():
    arrays = [np.arange(20.0).reshape(10, 2), 100.0 + np.arange(12.0).reshape(6, 2)]
    with double():
        one, other = (Held([(jax.numpy.asarray(array), 1, len(array) - 1)]) for array in arrays)
        held = np.concatenate([one[2:], other[:3], one[:0], other[3:]])
        plain = np.concatenate([arrays[0][3:-1], arrays[1][1:4], arrays[1][4:-1]])
        assert held.shape == plain.shape
        assert held.nbytes == plain.nbytes
        np.testing.assert_array_equal(held, plain)
        np.testing.assert_array_equal(held.joined(), plain)
        np.testing.assert_array_equal(held[4:9].joined(), plain[4:9])
        np.testing.assert_array_equal(held[5], plain[5])


def test_other_laws_are_told_apart(seed):
    """Negative controls: a spread that is a tenth off, and entries that no longer depend on each other."""
    drawn = on_device("Normal", seed)
    assert not same_law(drawn, 1.1 * (drawn - 1.0) + 1.0)
    pairs = on_device("MultivariateNormal", seed)
    assert not same_law(pairs, np.column_stack([pairs[:, 0], np.roll(pairs[:, 1], 1)]))


def drawn_there(model, names, seed, given=None):
    rng = np.random.default_rng(seed)
    return simulate(model, rng, names, ROWS, given or {}, lambda: None)


def test_names_and_records_have_random_numbers_of_their_own(seed):
    model = nw.Model(
        {"a": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 1.0), "n": dist.Poisson(2.0)},
        {
            "few": nw.Total({"x": lambda a: dist.Normal(a, 1.0), "y": lambda x: dist.Normal(x, 1.0)}, lambda y: y, n=3),
            "some": nw.Total({"z": lambda b: dist.Exponential(1.0 + 0.0 * b)}, lambda z: z, n="n"),
        },
    )
    drawn = drawn_there(model, model.order, seed)
    assert agrees(drawn["a"] * drawn["b"], 0.0)
    assert agrees(drawn["few"], 0.0)
    assert variance_agrees(drawn["few"], 9.0 + 3.0 * 2.0)
    assert agrees(drawn["some"] - drawn["n"], 0.0)
    assert variance_agrees(drawn["some"], 2.0 * 2.0)  # of a sum of Poisson many: the rate times the second moment
    assert np.all(drawn["some"][drawn["n"] == 0] == 0.0)


KNOWN = {
    "normal": ({"x": lambda a: dist.Normal(a, 2.0), "y": lambda x: dist.Normal(1.0 - x, 0.5)}, lambda x, y: x + 2 * y),
    "two at once": ({"x": lambda a: dist.MultivariateNormal(jnp.stack([a, 1.0]), jnp.eye(2) + 0.5)}, lambda x: x),
    "bits": ({"x": lambda a: dist.Bernoulli(logits=a)}, lambda x: 1 - x),
    "times": ({"x": lambda a: dist.Gamma(jnp.exp(a), 2.0)}, lambda x: x),
    "counts": ({"x": lambda a: dist.Multinomial(3, jnp.array([0.2, 0.5, 0.3]))}, lambda x, a: x * a),
    "squares": (
        {"x": lambda a: dist.Normal(a, 2.0), "y": lambda x: dist.Normal(x, 1.0)},
        lambda x, y: jnp.stack([x * y, x * x]),
    ),
    "categories": (
        {"x": dist.Bernoulli(0.3), "y": lambda x, a: dist.Categorical(logits=jnp.stack([a, 0.0 * a, x + 0.0 * a]))},
        lambda x, y: jnp.stack([x * y, jnp.minimum(y, 1)]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", briefly(KNOWN, ["normal", "squares", "categories"]))
def test_sums_by_their_own_law_are_drawn_as_on_the_processor(name, seed):
    model = nw.Model(
        {"a": dist.Uniform(-1.0, 1.0), "n": dist.DiscreteUniform(0, 20)}, {"t": nw.Total(*KNOWN[name], n="n")}
    )
    assert model.node("t").known is not None
    given = {"a": np.linspace(-1.0, 1.0, ROWS), "n": np.arange(ROWS) % 4}
    there = drawn_there(model, ["t"], seed, given)["t"]
    here = model.draw(np.random.default_rng([seed, 1]), ["t"], ROWS, given)["t"]
    assert there.dtype == here.dtype
    assert np.all(there[given["n"] == 0] == 0)
    for number in (1, 2, 3):
        assert same_law(there[given["n"] == number], here[given["n"] == number])
