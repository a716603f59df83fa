"""Totals drawn by their own law: recognised by structure alone, and the law of the simulated sum."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import agrees, counts_agree, quantile_agrees, variance_agrees
from scipy import stats
from targets import brief_rows, briefly

import noisewise as nw
from noisewise.errors import InputError
from noisewise.model.sums import Added, Scattered, Tallied, scattered

SCALAR = jax.ShapeDtypeStruct((), np.float64)
MU, SPREAD = 0.3, 1.2


def normal(mu, spread):
    return dist.Normal(mu, spread)


def bit(spread):
    return dist.Bernoulli(spread / (1.0 + spread))


def three(mu):
    return dist.Categorical(logits=jnp.stack([mu, 0.0 * mu, 1.0 + 0.0 * mu]))


def follower(x, mu):
    return dist.Normal(mu - 2.0 * x, 0.5)


def after_bit(x, mu):
    return dist.Categorical(logits=jnp.stack([mu, 0.0 * mu, x + 0.0 * mu]))


def vector(mu):
    return dist.Normal(mu, jnp.array([1.0, 2.0, 3.0])).to_event(1)


def pair(mu):
    return dist.MultivariateNormal(jnp.stack([mu, 1.0]), jnp.array([[2.0, 1.0], [1.0, 1.0]]))


KNOWN = {
    # name: (record, contribution, how it is known)
    "normal": ({"x": normal}, lambda x: 2.0 * x - 1.0, Added),
    "normal, by a parameter": ({"x": normal}, lambda x, mu: jnp.where(mu > 0, -x, x) / mu, Added),
    "two normals": ({"x": normal, "y": follower}, lambda x, y: jnp.stack([x, y, x - 3.0 * y]), Added),
    "vector": ({"x": vector}, lambda x: jnp.stack([jnp.sum(x), x[1]]), Added),
    "two at once": ({"x": pair}, lambda x: x, Added),
    "two at once, one more": (
        {"x": pair, "y": lambda x, spread: dist.Normal(x[0] - x[1], spread)},
        lambda x, y: x * 2.0 - y,
        Added,
    ),
    "Cauchy": ({"x": lambda mu: dist.Cauchy(mu, 0.5)}, lambda x: x, Added),
    "a point": ({"x": normal, "y": lambda x: dist.Delta(3.0 * x - 1.0)}, lambda x, y: x + y, Added),
    "bits": ({"x": bit}, lambda x: 1 - x, Added),
    "bits by logits": ({"x": lambda mu: dist.Bernoulli(logits=mu)}, lambda x: x, Added),
    "Poisson": ({"x": lambda spread: dist.Poisson(spread)}, lambda x: 3 * x + 1, Added),
    "exponential": ({"x": lambda spread: dist.Exponential(spread)}, lambda x: x, Added),
    "gamma": ({"x": lambda spread: dist.Gamma(spread, 2.0)}, lambda x: x / 7, Added),
    "chi-square": ({"x": lambda spread: dist.Chi2(spread)}, lambda x: x, Added),
    "binomial": ({"x": lambda spread: dist.Binomial(4, spread / 3.0)}, lambda x: x, Added),
    "multinomial": (
        {"x": lambda spread: dist.Multinomial(4, jnp.stack([spread, 3.0 - spread]) / 3.0)},
        lambda x: x,
        Added,
    ),
    "negative binomial": ({"x": lambda spread: dist.NegativeBinomial2(spread, 2.0)}, lambda x: x, Added),
    "geometric": ({"x": lambda spread: dist.Geometric(spread / 3.0)}, lambda x: x, Added),
    "bit and normal": ({"x": bit, "y": lambda x: dist.Normal(2.0 * x, 1.0)}, lambda x, y: jnp.stack([x, y]), Added),
    "squares": ({"x": normal}, lambda x: jnp.stack([x, x**2]), Scattered),
    "regression": (
        {"x": normal, "y": follower},
        lambda x, y: jnp.stack([x, y, x * y, x * x, (y - 1.0) ** 2]),
        Scattered,
    ),
    "a bent place": ({"x": normal, "y": lambda x: dist.Normal(x**2, 0.5)}, lambda x, y: x - y, Scattered),
    "outer product": ({"x": vector}, lambda x: jnp.outer(x, x), Scattered),
    "categories": ({"x": three}, lambda x: jnp.arange(3) == x, Tallied),
    "two of categories": (
        {"x": bit, "y": after_bit},
        lambda x, y: jnp.stack([jnp.minimum(x + y, 2), jnp.where(y == 2, 1, 0)]),
        Tallied,
    ),
    "bits, bent": ({"x": bit}, lambda x, mu: jnp.exp(mu * x), Tallied),
}  # fmt: skip
SIMULATED = {
    "clamped": ({"x": normal}, lambda x: jnp.clip(x, 0.0, 1.0)),
    "absolute": ({"x": normal}, lambda x: jnp.abs(x)),
    "cubic": ({"x": normal}, lambda x: x**3),
    "chosen by the record": ({"x": normal}, lambda x: jnp.where(x > 0, 2.0 * x, x)),
    "rounded": ({"x": normal}, lambda x: x.astype(int)),
    "in 32 bits": ({"x": normal}, lambda x: x.astype(jnp.float32)),
    "divided as whole numbers": ({"x": lambda spread: dist.Poisson(spread)}, lambda x: jax.lax.div(x, 2)),
    "squared counts": ({"x": lambda spread: dist.Poisson(spread)}, lambda x: x * x),
    "a divisor": ({"x": normal}, lambda x: 1.0 / x),
    "log-normal": ({"x": lambda mu: dist.LogNormal(mu, 1.0)}, lambda x: x),
    "a scale of the record": ({"x": normal, "y": lambda x: dist.Normal(0.0, jnp.exp(x))}, lambda x, y: x + y),
    "a linear scale of the record": ({"x": normal, "y": lambda x: dist.Normal(0.0, x)}, lambda y: y),
    "a rate of the record": ({"x": bit, "y": lambda x: dist.Poisson(1.0 + x)}, lambda x, y: x + y),
    "a chance of the record": ({"x": normal, "y": lambda x: dist.Bernoulli(logits=x)}, lambda x, y: x + y),
    "a bent place of bits": ({"x": bit, "y": lambda x: dist.Normal(x * x, 1.0)}, lambda y: y),
    "a transformed law": (
        {"x": lambda mu: dist.TransformedDistribution(dist.Normal(mu, 1.0), dist.transforms.ExpTransform())},
        lambda x: x,
    ),
    "truncated": ({"x": lambda mu: dist.TruncatedNormal(mu, 1.0, low=0.0)}, lambda x: x),
}


def bound(record, contribution, n=60):
    total = nw.Total(record, contribution, n)
    structs = {name: jax.ShapeDtypeStruct((), np.int64) if name == n else SCALAR for name in total.parents}
    return total.bind("Model: statistics 't'", structs)


@cache
def known(name, n=60):
    record, contribution, _ = KNOWN[name]
    return bound(record, contribution, n)


def drawn(total, rng, rows, sizes=None, simulated=False):
    given = {"mu": np.full(rows, MU), "spread": np.full(rows, SPREAD)} | ({} if sizes is None else {"size": sizes})
    given = {name: given[name] for name in total.parents}
    if simulated:
        return total.simulated(rng, given, total.sizes(given, rows), lambda: None)
    return total.draw(rng, given, rows, lambda: None)


def moments(values, centre):
    """First and second moments about `centre`, products of entries among them."""
    flat = values.reshape(len(values), -1) - centre
    products = flat[:, :, None] * flat[:, None, :]
    return np.concatenate([flat, products.reshape(len(values), -1)], axis=1)


@pytest.mark.parametrize(("record", "contribution", "how"), brief_rows(KNOWN, list(KNOWN)))
def test_what_is_known_is_told_from_the_programs(record, contribution, how):
    assert type(bound(record, contribution).known) is how


@pytest.mark.parametrize(("record", "contribution"), brief_rows(SIMULATED, list(SIMULATED)))
def test_what_is_not_known_is_simulated(record, contribution):
    assert bound(record, contribution).known is None


@pytest.mark.parametrize(
    "name", briefly([n for n in KNOWN if n != "Cauchy"], ["two normals", "regression", "two of categories"])
)
def test_it_is_the_law_of_simulated_sums(name, seed):
    total = known(name)
    rows, rng = 6_000, np.random.default_rng(seed)
    fast, slow = drawn(total, rng, rows), drawn(total, rng, rows, simulated=True)
    assert fast.dtype == slow.dtype
    assert fast.shape == slow.shape
    centre = slow.reshape(rows, -1).mean(axis=0)
    truth = moments(slow, centre)
    error = truth.std(axis=0, ddof=1) / np.sqrt(rows) + 1e-9 * np.abs(truth).max()
    assert agrees(moments(fast, centre) + 1e-12 * rng.standard_normal(truth.shape), truth.mean(axis=0), error)


@pytest.mark.quick
def test_sums_of_bits_counts_and_times_have_the_laws_of_the_books(seed):
    rng, rows, n = np.random.default_rng(seed), 20_000, 60
    zeros = drawn(known("bits"), rng, rows)
    law = stats.binom(n, 1.0 - SPREAD / (1.0 + SPREAD))
    assert counts_agree(np.bincount(zeros, minlength=n + 1), law.pmf(np.arange(n + 1)))
    thrice = drawn(known("Poisson"), rng, rows)
    assert np.all((thrice - n) % 3 == 0)
    most = 200
    assert counts_agree(np.bincount((thrice - n) // 3, minlength=most), stats.poisson(n * SPREAD).pmf(np.arange(most)))
    fails, chance = drawn(known("geometric"), rng, rows), SPREAD / 3.0
    assert counts_agree(np.bincount(fails, minlength=500)[:500], stats.nbinom(n, chance).pmf(np.arange(500)))
    for name, truth in {
        "gamma": stats.gamma(n * SPREAD, scale=1.0 / 14.0),
        "exponential": stats.gamma(n, scale=1.0 / SPREAD),
        "chi-square": stats.chi2(n * SPREAD),
        "Cauchy": stats.cauchy(n * MU, 0.5 * n),
        "normal": stats.norm(2.0 * n * MU - n, 2.0 * SPREAD * np.sqrt(n)),
    }.items():
        values = drawn(known(name), rng, rows)
        assert all(quantile_agrees(values, level, truth.ppf(level)) for level in (0.02, 0.3, 0.5, 0.9)), name


def spread_of(values, n):
    """The scatter about the mean, over the variance: chi-square of n - 1."""
    return (values[:, 1] - values[:, 0] ** 2 / n) / SPREAD**2


def test_sum_and_sum_of_squares_are_normal_and_chi_square(seed):
    rows, n = 20_000, 60
    values = drawn(known("squares"), np.random.default_rng(seed), rows)
    scatter, law = spread_of(values, n), stats.chi2(n - 1)
    assert agrees(values[:, 0], n * MU)
    assert variance_agrees(values[:, 0], n * SPREAD**2)
    assert all(quantile_agrees(scatter, level, law.ppf(level)) for level in (0.02, 0.3, 0.5, 0.9))
    assert agrees((values[:, 0] - n * MU) * (scatter - law.mean()), 0.0)  # independent


def test_one_degree_of_freedom_too_many_is_noticed(seed, monkeypatch):
    right = scattered.scatter_root
    monkeypatch.setattr(scattered, "scatter_root", lambda rng, freedom, size: right(rng, freedom + 1, size))
    scatter = spread_of(drawn(known("squares"), np.random.default_rng(seed), 20_000), 60)
    assert not agrees(scatter, 59.0)


@pytest.mark.parametrize("freedom", [1, 2, 3, 7])
def test_the_scatter_is_wishart_below_full_rank_too(freedom, seed):
    """Against the scatter of standard normal vectors, entry by entry and squared."""
    rng, rows, size = np.random.default_rng(seed), 20_000, 3
    root = scattered.scatter_root(rng, np.full(rows, freedom), size)
    vectors = rng.standard_normal((rows, freedom, size))
    ours, truth = root @ root.transpose(0, 2, 1), vectors.transpose(0, 2, 1) @ vectors
    if freedom < size:
        assert np.allclose(np.linalg.det(ours), 0.0, atol=1e-9)
    centre = freedom * np.eye(size).ravel()
    theirs = moments(truth, centre)
    assert agrees(moments(ours, centre), theirs.mean(axis=0), theirs.std(axis=0) / np.sqrt(rows))


def test_categories_have_the_probabilities_of_all_records_enumerated(seed):
    """Two records: every pair of them, with its probability."""
    total = known("two of categories", n=2)
    assert isinstance(total.known, Tallied)
    p = SPREAD / (1.0 + SPREAD)
    chances: dict[tuple[int, int], float] = {}
    for x in (0, 1):
        weights = np.exp([MU, 0.0, x])
        for y in range(3):
            pair = (min(x + y, 2), int(y == 2))
            chances[pair] = chances.get(pair, 0.0) + (p if x else 1.0 - p) * weights[y] / weights.sum()
    truth: dict[tuple[int, int], float] = {}
    for first, a in chances.items():
        for second, b in chances.items():
            key = (first[0] + second[0], first[1] + second[1])
            truth[key] = truth.get(key, 0.0) + a * b
    values = [tuple(row) for row in drawn(total, np.random.default_rng(seed), 20_000).tolist()]
    assert set(values) <= set(truth)
    assert counts_agree([values.count(key) for key in truth], list(truth.values()))


@pytest.mark.parametrize("name", ["normal", "exponential", "squares", "categories"])
def test_a_number_of_records_that_varies_may_be_nothing(name, seed):
    total = known(name, n="size")
    assert total.known is not None
    sizes = np.arange(4_000) % 4
    values = drawn(total, np.random.default_rng(seed), len(sizes), sizes).reshape(len(sizes), -1)
    assert np.all(values[sizes == 0] == 0.0)
    if name == "squares":  # one record: its square; two: more than half the square of their sum
        assert np.allclose(values[sizes == 1, 1], values[sizes == 1, 0] ** 2)
        assert np.all(values[sizes == 2, 1] > 0.5 * values[sizes == 2, 0] ** 2)
    again = drawn(total, np.random.default_rng([seed, 1]), len(sizes), sizes, simulated=True).reshape(len(sizes), -1)
    for size in (1, 2, 3):
        slow, fast = again[sizes == size], values[sizes == size]
        assert agrees(fast, slow.mean(axis=0), slow.std(axis=0) / np.sqrt(len(slow)))


def test_a_few_records_of_many_numbers_are_simulated():
    record, contribution, _ = KNOWN["outer product"]
    assert bound(record, contribution, n=5).known is None
    assert bound(*KNOWN["categories"][:2], n=1).known is not None


def test_a_law_out_of_its_domain_is_refused_as_in_simulation(seed):
    total = bound({"x": lambda mu: dist.Normal(0.0, mu)}, lambda x: x**2)
    assert isinstance(total.known, Scattered)
    with pytest.raises(InputError, match="mu=-1"):
        total.draw(np.random.default_rng(seed), {"mu": np.array([1.0, -1.0])}, 2, lambda: None)


def test_a_law_that_no_record_meets_may_be_out_of_its_domain(seed):
    """Nobody is 1, and of those a chance would be 2."""
    total = bound({"x": dist.Bernoulli(0.0), "y": lambda x, mu: dist.Bernoulli(2.0 * x + mu)}, lambda x, y: x + y)
    assert isinstance(total.known, Tallied)
    drawn = total.draw(np.random.default_rng(seed), {"mu": np.full(2_000, 0.25)}, 2_000, lambda: None)
    assert agrees(drawn, 15.0)


def test_posteriors_are_those_of_the_simulated_total(seed):
    """A sum of bits with Laplace noise, against the binomial by quadrature."""
    total = nw.Total({"x": lambda p: dist.Bernoulli(p)}, lambda x: x, 40)
    model = nw.Model({"p": dist.Beta(2.0, 3.0)}, {"t": total})
    release = nw.Release(t=nw.Laplace(scale=2.0).released(13.4))
    found = nw.sample(model, release, nw.Rejection(), draws=4_000, seed=seed, progress=False)
    counts = np.arange(41)
    weight = stats.betabinom(40, 2.0, 3.0).pmf(counts) * stats.laplace(13.4, 2.0).pdf(counts)
    weight /= weight.sum()
    assert counts_agree(np.bincount(found["t"], minlength=41), weight)
    assert agrees(found["p"], float(weight @ ((2.0 + counts) / 45.0)))


def test_a_mean_of_no_records_is_nothing(seed):
    mean = nw.Total({"x": dist.Normal(0.0, 1.0)}, lambda x, n: x / n, n="n")
    model = nw.Model({"n": dist.DiscreteUniform(0, 3)}, {"t": mean})
    assert type(model.node("t").known) is Added
    drawn = model.draw(np.random.default_rng(seed), ["t"], 4, {"n": np.arange(4)})["t"]
    assert drawn[0] == 0.0
    assert np.all(np.isfinite(drawn))


def test_more_trials_than_64_bits_hold_are_refused(seed):
    total = nw.Total({"x": lambda p: dist.Binomial(10**10, p)}, lambda x: x, n=10**10)
    model = nw.Model({"p": dist.Beta(2.0, 2.0)}, {"t": total})
    assert type(model.node("t").known) is Added
    with pytest.raises(InputError, match="'total_count' of all records must be at most"):
        model.draw(np.random.default_rng(seed), ["t"], 2, {"p": np.array([0.3, 0.4])})


def test_a_records_law_out_of_its_domain_is_named_once_with_its_value(seed):
    total = nw.Total({"x": lambda mu: dist.Poisson(mu)}, lambda x: x, n=50)
    model = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"t": total})
    with pytest.raises(InputError, match=r"cannot be drawn from at mu=-0\.5: 'rate' must be") as caught:
        model.draw(np.random.default_rng(seed), ["t"], 2, {"mu": np.array([0.5, -0.5])})
    assert str(caught.value).count("cannot be drawn") == 1
