"""Sums over entries that all have one law: the same numbers as entry by entry, and nothing unsaid where they vanish."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import counts_agree
from targets import brief_rows

import noisewise as nw
from noisewise.inference.conditional.sums import SMALLEST, Sum
from noisewise.inference.problem import Problem
from noisewise.numerics import double

PUBLISHED = np.array([3, 11, -2, 6, 14, 0])
LAWS = {
    "poisson": lambda a, b: dist.Poisson(a).expand([6]),
    "negative binomial": lambda a, b: dist.GammaPoisson(a, b).expand([6]),
    "binomial": lambda a, b: dist.Binomial(50, jax.nn.sigmoid(a - b)).expand([6]),
    "zero inflated": lambda a, b: dist.ZeroInflatedPoisson(b / (1.0 + b), a).expand([6]),
    "rows and columns": lambda a, b: dist.GammaPoisson(a, b).expand([2, 3]).to_event(2),
}
NOISES = {
    "laplace": nw.Laplace(scale=3.0),
    "discrete": nw.DiscreteGaussian(scale=2.0),
    "by entry": nw.DiscreteLaplace(scale=np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])),
    "withheld": nw.mechanisms.Thresholded(nw.DiscreteLaplace(scale=2.0), threshold=5),
}


def sums(law, noise):
    """The sum over all entries at once, and entry by entry."""
    shape = (2, 3) if law == "rows and columns" else (6,)
    mechanism = NOISES[noise]
    if noise == "by entry":
        mechanism = nw.DiscreteLaplace(scale=np.reshape(mechanism.scale, shape))
    released = PUBLISHED.reshape(shape) * (1.0 if noise == "laplace" else 1)
    if noise == "withheld":
        released = np.where(released >= 5, released, np.nan)
    model = nw.Model({"a": dist.Gamma(5.0, 1.0), "b": dist.Gamma(2.0, 1.0)}, {"s": LAWS[law]})
    problem = Problem(model, nw.Release(s=mechanism.released(released)))
    together, apart = Sum(problem, ("s",), 0), Sum(problem, ("s",), 0)
    apart.span = 0
    return together, apart


PAIRS = {f"{law}-discrete": (law, "discrete") for law in LAWS} | {
    f"poisson-{name}": ("poisson", name) for name in NOISES
}
BRIEFLY = ["zero inflated-discrete", "rows and columns-discrete", "poisson-by entry", "poisson-withheld"]


@pytest.mark.parametrize(("law", "noise"), brief_rows(PAIRS, BRIEFLY))
def test_values_and_slopes_are_those_of_every_entry(law, noise):
    together, apart = sums(law, noise)
    assert together.span
    with double():
        tables = together.tables(), apart.tables()
        items = {"s": (together.problem.release["s"].mechanism, together.problem.release["s"].value)}
        programs = [
            jax.jit(
                jax.value_and_grad(
                    lambda at, one=one, table=table: one.log_bound(dict(zip("ab", at, strict=True)), items, table)
                )
            )
            for one, table in zip((together, apart), tables, strict=True)
        ]
        for a, b in ((4.0, 0.7), (7.0, 0.8)):
            found = [program(jnp.array([a, b])) for program in programs]
            assert float(found[0][0]) == pytest.approx(float(found[1][0]), rel=1e-10)
            assert np.allclose(found[0][1], found[1][1], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("noise", "widened"),
    [
        (nw.DiscreteGaussian(scale=2.0), 0),
        pytest.param(nw.DiscreteGaussian(scale=2.0), 1, marks=pytest.mark.long),
        pytest.param(nw.DiscreteLaplace(scale=np.repeat([1.0, 3.0], 20)), 0, marks=pytest.mark.long),
        (nw.DiscreteLaplace(scale=np.repeat([1.0, 3.0], 20)), 1),
    ],
)
def test_what_was_released_often_is_summed_once(noise, widened):
    """Forty entries of five values; under noise of two scales, of eight."""
    published = np.tile([3, 7, -2, 7, 25, 7, 3, 0], 5)
    model = nw.Model({"a": dist.Gamma(5.0, 1.0)}, {"s": lambda a: dist.Poisson(a).expand([40])})
    problem = Problem(model, nw.Release(s=noise.released(published)))
    together, apart = Sum(problem, ("s",), 0), Sum(problem, ("s",), widened)
    apart.span = 0
    with double():
        tables = together.tables()
        assert tables["different"]["noise"].shape[1] == (16 if np.ndim(noise.scale) else 8)
        assert tables["times"].sum() == 40
        items = {"s": (noise, published)}
        programs = [
            jax.jit(jax.value_and_grad(lambda a, one=one, by=by: one.log_bound({"a": a}, items, by)))
            for one, by in ((together, tables), (apart, apart.tables()))
        ]
        for a in (4.0, 7.5):
            once, each = (program(a) for program in programs)
            assert np.isclose(once[0], each[0], rtol=1e-10)
            assert np.isclose(once[1], each[1], rtol=1e-7)


def test_what_was_released_often_is_drawn_from_one_table():
    """Draws, bounds and void shares are those of every entry by itself, also where the windows leave much out."""
    published = np.tile([3, 7, -2, 7, 25, 7, 3, 0], 5)
    noise = nw.DiscreteGaussian(scale=2.0)
    model = nw.Model({"a": dist.Gamma(5.0, 1.0)}, {"s": lambda a: dist.Poisson(a).expand([40])})
    sum_ = Sum(Problem(model, nw.Release(s=noise.released(published))), ("s",), 0)
    tables = sum_.tables()
    apart = {name: table for name, table in tables.items() if name not in ("different", "times", "which")}
    rng = np.random.default_rng(2)
    rates, uniform = np.concatenate([rng.gamma(5.0, 1.0, 500), np.geomspace(1e-3, 1e3, 500)]), rng.random((1_000, 40))
    with double():
        of = [lambda a, u, by=by: sum_.conditional({"a": a}, {}, by, u) for by in (tables, apart)]
        found = [jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(rates, uniform)) for one in of]
    (drawn, bound, void), (each, bound_of_each, void_of_each) = found
    assert np.array_equal(drawn["s"], each["s"])
    assert np.allclose(bound, bound_of_each, rtol=1e-12)
    assert np.allclose(void, void_of_each, rtol=1e-9, atol=1e-15)
    assert np.max(void) > 1.0


def test_draws_are_those_of_every_entry():
    together, apart = sums("negative binomial", "discrete")
    values = {"a": 4.0, "b": 0.3}
    with double():
        tables = together.tables()
        uniform = np.random.default_rng(0).random((10_000, 6))
        drawn, _, void = jax.jit(jax.vmap(lambda u: together.conditional(values, {}, tables, u)))(uniform)
        by_entry = apart.tables()
        terms = np.asarray(jax.jit(lambda: sum(apart.log_terms(values, {}, by_entry)))())
    assert np.max(np.asarray(void)) < 1e-10
    start = apart.starts()["s"]
    for entry in range(6):
        shares = np.exp(terms[:, entry])
        counts = np.bincount(np.asarray(drawn["s"])[:, entry] - start[entry], minlength=len(shares))
        assert counts_agree(counts[: len(shares)], shares / shares.sum())


FAR = np.array([3, 11, 0, 6, 900, 0])


def test_what_vanishes_is_void():
    # A rate at which the release has probability e^-2000: below all numbers beside the law's own top
    model = nw.Model({"a": dist.Gamma(5.0, 1.0)}, {"s": lambda a: dist.Poisson(a).expand([6])})
    problem = Problem(model, nw.Release(s=nw.DiscreteLaplace(scale=0.5).released(FAR)))
    one = Sum(problem, ("s",), 0)
    assert one.span
    with double():
        tables = one.tables()
        apart = Sum(problem, ("s",), 1)
        by_entry, at, half = apart.tables(), {"a": 1.0}, np.full(6, 0.5)
        bound, (_, _, void), exact = jax.jit(
            lambda: (
                one.log_bound(at, {}, tables),
                one.conditional(at, {}, tables, half),
                apart.log_bound(at, {}, by_entry),
            )
        )()
        bound, void, exact = map(float, (bound, void, exact))
    assert not apart.span, "windows that were too narrow once are summed in logs"
    assert bound >= exact
    assert bound >= np.log(SMALLEST)
    assert void >= 1.0 - 1e-12
