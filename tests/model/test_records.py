"""Records drawn in parts: the same variates as at once, and every record once."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from targets import briefly

import noisewise as nw
from noisewise.model import records
from noisewise.model.law import Law
from noisewise.model.total import chunk_of
from noisewise.model.variates import VARIATES
from noisewise.numerics.normal_pairs import fill_with_normals

LAWS = {
    "Normal": lambda: dist.Normal(0.3, 1.2),
    "LogNormal": lambda: dist.LogNormal(0.3, 0.2),
    "HalfNormal": lambda: dist.HalfNormal(2.0),
    "StudentT": lambda: dist.StudentT(3.0, 0.0, 1.0),
    "Gamma": lambda: dist.Gamma(0.7, 2.0),
    "Exponential": lambda: dist.Exponential(2.0),
    "Uniform": lambda: dist.Uniform(-1.0, 3.0),
    "Beta": lambda: dist.Beta(0.5, 2.0),
    "Poisson": lambda: dist.Poisson(30.0),
    "BinomialProbs": lambda: dist.Binomial(40, 0.4),
    "BernoulliProbs": lambda: dist.Bernoulli(0.4),
    "CategoricalProbs": lambda: dist.Categorical(jnp.array([0.2, 0.5, 0.3])),
    "MultinomialProbs": lambda: dist.Multinomial(5, jnp.array([0.2, 0.5, 0.3])),
    "MultivariateNormal": lambda: dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)),
    "TwoSidedTruncatedDistribution": lambda: dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0),
    "GammaPoisson": lambda: dist.GammaPoisson(2.0, 0.3),
    "BetaBinomial": lambda: dist.BetaBinomial(2.0, 3.0, 10),
    "Dirichlet": lambda: dist.Dirichlet(jnp.array([0.5, 1.0, 2.0])),
    "ZeroInflatedPoisson": lambda: dist.ZeroInflatedPoisson(0.3, 2.0),
}


@pytest.mark.parametrize("name", briefly(LAWS, ["Normal", "BinomialProbs", "CategoricalProbs", "GammaPoisson"]))
def test_parts_are_the_same_variates_wherever_the_table_says_so(name, seed, monkeypatch):
    monkeypatch.setattr(records, "PART", 20)
    law = Law("Model: record 'x'", LAWS[name], (), {})
    one, other = np.random.default_rng(seed), np.random.default_rng(seed)
    made = records.Records({"x": law}, {}, 40, 5)
    assert len(made.parts) >= 10
    for _ in range(2):
        whole = law.draw(one, {}, 40, records=5)
        parts = np.concatenate([fields["x"].copy() for _, fields in made.draw(other, whole=False)])
        assert np.array_equal(parts, whole)
    if not VARIATES[name].in_parts:  # two passes over the entries: in parts they would be others
        one, other = np.random.default_rng(seed), np.random.default_rng(seed)
        pieces = [law.draw(one, {}, 20, records=5) for _ in range(2)]
        assert not np.array_equal(np.concatenate(pieces), law.draw(other, {}, 40, records=5))


def products(x, y):
    x, y = jnp.clip(x, -1.0, 1.0), jnp.clip(y, -1.0, 2.0)
    return jnp.stack([x, y, x * y, (x - y) ** 2, jnp.where(x > y, x, 0.0)])


RECORD = {"x": lambda mu: dist.Normal(mu, 1.0), "y": lambda x, mu: dist.Normal(mu - x, 0.5)}


def normals(rng, rows, chunk):
    """Standard normal numbers of all rows, in the parts that one field has."""
    numbers = np.empty((rows, chunk))
    count = -(-rows // max(1, records.PART // chunk))
    edges = [round(rows * edge / count) for edge in range(count + 1)]
    for low, high in pairwise(edges):
        fill_with_normals(rng, numbers[low:high])
    return numbers


def by_hand(total, rng, mu, n):
    """All records at once, field by field, chunk by chunk, added by themselves."""
    rows, known = len(mu), total.total.n if isinstance(total.total.n, int) else None
    chunk = chunk_of(rows, known)
    added = np.zeros((rows, 5))
    for start in range(0, int(n.max()), chunk):
        x = mu[:, None] + normals(rng, rows, chunk)
        y = mu[:, None] - x + 0.5 * normals(rng, rows, chunk)
        a, b = np.clip(x, -1.0, 1.0), np.clip(y, -1.0, 2.0)
        kept = start + np.arange(chunk) < n[:, None]
        for entry, one in enumerate((a, b, a * b, (a - b) ** 2, np.where(a > b, a, 0.0))):
            added[:, entry] += np.where(kept, one, 0.0).sum(axis=1)
    return added


@pytest.mark.parametrize("n", [3, 100, 701, "size"])
def test_totals_are_those_of_records_drawn_whole_and_added_by_hand(n, seed):
    """Numbers of records below, at and beyond what is drawn at a time, and one that varies."""
    total = nw.Total(RECORD, products, n)
    structs = {"mu": jax.ShapeDtypeStruct((), np.float64), "size": jax.ShapeDtypeStruct((), np.int64)}
    bound = total.bind("Model: statistics 't'", {name: structs[name] for name in total.parents})
    assert bound.known is None
    assert bound._plain is not None
    rows = 1_000
    mu, sizes = np.linspace(-1.0, 1.0, rows), 65 + np.arange(rows) % 65
    drawn = bound.draw(np.random.default_rng(seed), {"mu": mu, "size": sizes}, rows, lambda: None)
    truth = by_hand(bound, np.random.default_rng(seed), mu, sizes if n == "size" else np.full(rows, n))
    assert np.allclose(drawn, truth, rtol=1e-12, atol=1e-10)


def test_what_a_part_leaves_in_memory_does_not_show(seed):
    """The second block overwrites the memory of the first, and not its totals."""
    bound = nw.Total({"x": dist.Normal(0.0, 1.0)}, lambda x: jnp.clip(x, -1.0, 2.0), 50).bind("t", {})
    first = bound.draw(np.random.default_rng(seed), {}, 300, lambda: None)
    kept = first.copy()
    bound.draw(np.random.default_rng([seed, 1]), {}, 300, lambda: None)
    assert np.array_equal(first, kept)


def test_more_than_arithmetic_is_left_to_jax(seed):
    bound = nw.Total({"x": dist.Normal(0.0, 1.0)}, lambda x: jnp.tanh(x), 70).bind("t", {})
    assert bound._plain is None
    drawn = bound.draw(np.random.default_rng(seed), {}, 100, lambda: None)
    truth = np.tanh(normals(np.random.default_rng(seed), 100, 70)).sum(axis=1)
    assert np.allclose(drawn, truth)
