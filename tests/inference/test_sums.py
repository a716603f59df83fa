"""Sums over windows: by powers, by one expression and term by term they are the same, and draws invert them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from targets import briefly

import noisewise as nw
from noisewise.inference.conditional import powers, sums
from noisewise.inference.conditional.marginal import pick
from noisewise.inference.problem import Problem
from noisewise.numerics import double
from noisewise.samplers.proposals.collapsed import Collapse

ROWS, POINTS, ENTRIES = 40, 75, 3


def terms(points=POINTS, spread=3.0):
    """Terms of many rows: some points are impossible, one entry is impossible altogether, some rows lie far out."""
    rng = np.random.default_rng(3)
    table = rng.normal(0.0, spread, (points, ENTRIES))
    table[rng.random(table.shape) < 0.2] = -np.inf
    table[:, 2] = -np.inf
    share = np.linspace(0.0, 1.0, points)[:, None]
    first, last = rng.normal(0.0, 5.0, (2, ROWS, ENTRIES))
    first[0], last[1] = -2000.0, 3000.0
    logs = table + (1.0 - share) * first[:, None] + share * last[:, None]
    return table, share, first, last, rng.random((ROWS, ENTRIES)), logs


def by_powers(table, first, last, uniform, skipped=0, length=POINTS - 1):
    """log sums, the same with draws, numbers drawn, whether digits are left, and lower bounds: for each row."""
    number = np.full(ENTRIES, 1)
    held = powers.powers_of(table, skipped * number, length * number)

    def one(first, last, uniform, held):
        tilt = powers.tilted(held, first, last)
        return (
            powers.log_total(held, tilt),
            *powers.drawn_number(held, tilt, uniform),
            powers.log_total(held, tilt, 0.0),
        )

    with double():
        return [np.asarray(part) for part in jax.jit(jax.vmap(one, (0, 0, 0, None)))(first, last, uniform, held)]


@pytest.mark.parametrize("points", [1, 5, 32, POINTS])
def test_a_sum_by_powers_is_the_sum(points):
    table, _, first, last, uniform, logs = terms(points)
    if points == 1:
        last, logs = first, table + first[:, None]
    log_sums, with_draws, _, sure, least = by_powers(table, first, last, uniform, length=points - 1)
    truth = logsumexp(logs, axis=1)
    assert np.allclose(log_sums[sure], truth[sure], rtol=1e-13, atol=1e-13)
    assert np.allclose(with_draws[sure], truth[sure], rtol=1e-13, atol=1e-13)
    assert np.array_equal(least, np.where(sure, log_sums, -np.inf))
    assert np.all(log_sums >= np.where(sure, -np.inf, truth))
    assert np.all(log_sums[:, 2] == -np.inf)
    steep = np.arange(ROWS)[:, None] < 2  # so much that one impossible point at the end leaves no digits
    assert np.all((sure | steep | ~np.isfinite(truth))[:, :2])


def test_only_the_terms_that_are_there_count():
    """A window that begins before the support, and ends after it."""
    table, _, first, last, uniform, _ = terms()
    skipped, length = 7, 50
    logs = table[skipped : skipped + length + 1] + np.linspace(first, last, length + 1).swapaxes(0, 1)
    log_sums, _, number, *_ = by_powers(table, first, last, uniform, skipped, length)
    assert np.allclose(log_sums[:, :2], logsumexp(logs[..., :2], axis=1), rtol=1e-13, atol=1e-13)
    assert number[:, :2].min() >= 0
    assert number[:, :2].max() <= length


def test_a_draw_by_powers_is_the_quantile_of_the_terms():
    """Counted from the low end where the affine part falls, and from the high end where it rises."""
    table, _, first, last, uniform, logs = terms(spread=1.0)
    number = by_powers(table, first, last, uniform)[2][:, :2]
    logs = logs[..., :2]
    chances = np.exp(logs - logsumexp(logs, axis=1)[:, None])
    down = (last > first)[:, None, :2]
    passed = np.cumsum(np.where(down, chances[:, ::-1], chances), axis=1)
    steps = np.minimum((passed <= uniform[:, None, :2]).sum(axis=1), POINTS - 1)
    assert np.array_equal(number, np.where(down[:, 0], POINTS - 1 - steps, steps))
    assert np.all(np.take_along_axis(chances, number[:, None], axis=1) > 0.0)
    assert len(np.unique(number)) > POINTS // 3


@pytest.mark.parametrize("points", [1, 2, 48, POINTS])
def test_a_draw_looked_up_is_the_quantile_of_its_column(points):
    """Terms of zero at either end and in between are never drawn, whatever the number."""
    rng = np.random.default_rng(5)
    columns, which = rng.exponential(size=(points, 4)), np.array([0, 2, 2, 1, 0])
    columns[rng.random(columns.shape) < 0.3] = 0.0
    columns[points // 2] = 1.0
    columns[points // 2 + 1 :, 0] = 0.0
    shares, uniform = rng.exponential(size=(ROWS, points)), rng.random((ROWS, len(which)))
    uniform[0], uniform[1] = 0.0, 1.0 - 2.0**-53
    with double():
        program = jax.jit(jax.vmap(powers.looked_up, (0, None, None, 0)))
        whole, place = (np.asarray(part) for part in program(shares, columns, which, uniform))
    terms_of = shares[:, :, None] * columns
    assert np.allclose(whole, terms_of.sum(axis=1), rtol=1e-13)
    passed = np.cumsum(terms_of, axis=1)
    assert np.array_equal(place, (passed[..., which] <= (uniform * passed[:, -1, which])[:, None]).sum(axis=1))
    assert np.all(np.take_along_axis(terms_of[..., which], place[:, None], axis=1) > 0.0)


def test_a_sum_whose_digits_are_lost_is_bounded_and_said_to_be():
    """All weight is at one end, and the parameters at hand lead to the other: terms there are below every number."""
    points = powers.RUN
    table = np.where(np.arange(points)[:, None] > points - 5, 0.0, -900.0) + np.zeros(ENTRIES)
    first, last = np.full((1, ENTRIES), 0.0), np.full((1, ENTRIES), -2000.0)
    truth = logsumexp(table + np.linspace(first[0], last[0], points), axis=0)
    log_sums, _, _, sure, least = by_powers(table, first, last, np.full((1, ENTRIES), 0.5), length=points - 1)
    assert np.all(log_sums[0] >= truth)
    assert np.all(least[0] <= truth)
    assert not sure.any()


def test_a_slope_without_end_leaves_the_term_at_its_end():
    table, *_ = terms()
    table[0, 0] = 1.5
    log_sums = by_powers(table, np.zeros((1, ENTRIES)), np.full((1, ENTRIES), -np.inf), np.full((1, ENTRIES), 0.5))[0]
    assert log_sums[0, 0] == pytest.approx(1.5, rel=1e-15)


def test_with_derivatives_a_tilted_sum_is_the_same():
    table, share, first, last, _, logs = terms()
    with double():
        values, slopes = jax.jit(
            jax.vmap(jax.value_and_grad(lambda *at: sums.tilted(*at)[:2].sum(), (2, 3)), in_axes=(None, None, 0, 0))
        )(table, share, first, last)
        values, slopes = np.asarray(values), np.asarray(slopes)
    logs = logs[..., :2]
    truth = logsumexp(logs, axis=1)
    assert np.allclose(values, truth.sum(axis=1), rtol=1e-13)
    mean = np.sum(share * np.exp(logs - truth[:, None]), axis=1)
    assert np.allclose(slopes[1][:, :2], mean, rtol=1e-11, atol=1e-13)
    assert np.allclose(slopes[0][:, :2], 1.0 - mean, rtol=1e-11, atol=1e-13)


def test_a_draw_from_terms_is_their_quantile():
    *_, uniform, logs = terms()
    with double():
        found = np.asarray(jax.jit(jax.vmap(pick))(logs, uniform))[:, :2]
    logs = logs[..., :2]
    passed = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
    assert np.array_equal(found, (passed <= uniform[:, None, :2] * passed[:, -1:]).sum(axis=1))
    assert np.all(np.isfinite(np.take_along_axis(logs, found[:, None], axis=1)))


LAWS = {
    "Poisson": lambda u: dist.Poisson(jnp.exp(u + jnp.arange(3.0))),
    "binomial": lambda u: dist.Binomial(jnp.array([9, 40, 300]), logits=u),
    "one law": lambda u: dist.Poisson(jnp.exp(u)).expand([5]),
    "negative binomial": lambda u: dist.NegativeBinomial2(jnp.exp(u + jnp.arange(3.0)), 4.0),
}


@pytest.mark.parametrize("law", briefly(LAWS, ["binomial", "one law"]))
def test_one_program_weighs_as_the_terms_in_logs_do(law):
    """A window that was doubled is summed in logs, term by term: the likelihood is the same, and so are the draws'."""
    model = nw.Model({"u": dist.Normal(1.0, 1.0)}, {"count": LAWS[law]})
    released = np.array([4, 1, 0, 3, 2]) if law == "one law" else np.array([6, 9, 20])
    problem = Problem(model, nw.Release(count=nw.DiscreteLaplace(scale=2.0).released(released)))
    collapse, in_logs = Collapse(problem), Collapse(problem, ((("count",), 1),))
    assert collapse.target.draws_as_it_weighs
    assert not in_logs.target.draws_as_it_weighs
    rows = 2_000
    values = {"u": np.linspace(-4.0, 6.0, rows)}
    drawn, void, log_likelihood = collapse.complete(np.random.default_rng(1), values, rows)
    again, *_, expected = in_logs.complete(np.random.default_rng(2), values, rows)
    inside = np.sum(void, axis=1) < 1e-12  # elsewhere both are bounds, of windows of two lengths
    assert inside.sum() > rows // 3
    assert np.allclose(log_likelihood[inside], expected[inside], rtol=1e-11)
    assert np.array_equal(log_likelihood, collapse.log_likelihood(values, rows))
    with double():
        bounds = jax.jit(jax.vmap(collapse.target.log_likelihood, (0, None)))(values, collapse.data)
    assert np.allclose(log_likelihood, np.asarray(bounds), rtol=1e-11)
    assert law == "negative binomial" or np.any(np.sum(void, axis=1) > 0.5)  # whose tail is as long as its window
    for power in (1, 2):
        away = (drawn["count"] * 1.0) ** power - (again["count"] * 1.0) ** power
        assert np.all(np.abs(away[inside].mean(axis=0)) < 5.4 * away[inside].std(axis=0) / np.sqrt(inside.sum()))
