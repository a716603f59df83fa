"""Sums by ratios: the same as sums written here, with their derivatives, near the release and far from it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats
from targets import brief_rows, briefly

import noisewise as nw
from noisewise.inference.conditional import entry, ratios
from noisewise.numerics import double

EXACT = 1e-10
LAPLACE = nw.Laplace(scale=2.0)
RELEASED = np.array([-4, 0, 3, 9, 31])
NOISES = {
    "Laplace": (nw.Laplace(scale=2.0), lambda z: -np.abs(z) / 2.0 - np.log(4.0)),
    "Gaussian": (nw.Gaussian(scale=3.0), lambda z: stats.norm.logpdf(z, scale=3.0)),
    "DiscreteLaplace": (nw.DiscreteLaplace(scale=1.5), lambda z: -np.abs(z) / 1.5 + np.log(np.tanh(1.0 / 3.0))),
    "DiscreteGaussian": (
        nw.DiscreteGaussian(scale=2.0),
        lambda z: -(z**2) / 8.0 - special.logsumexp(-(np.arange(-99, 100) ** 2) / 8.0),
    ),
}
LAWS = {
    "Poisson": (lambda t: dist.Poisson(jnp.exp(t)), lambda k, t: stats.poisson.logpmf(k, np.exp(t)), (2.1, 6.0)),
    "BinomialProbs": (
        lambda t: dist.Binomial(300, probs=jax.nn.sigmoid(t)),
        lambda k, t: stats.binom.logpmf(k, 300, special.expit(t)),
        (-3.0, 1.0),
    ),
    "BinomialLogits": (
        lambda t: dist.Binomial(300, logits=t),
        lambda k, t: stats.binom.logpmf(k, 300, special.expit(t)),
        (-3.5, 2.0),
    ),
    "NegativeBinomial2": (
        lambda t: dist.NegativeBinomial2(9.0, jnp.exp(t)),
        lambda k, t: stats.nbinom.logpmf(k, np.exp(t), np.exp(t) / (np.exp(t) + 9.0)),
        (0.7, -1.5),
    ),
    "GammaPoisson": (
        lambda t: dist.GammaPoisson(3.0, jnp.exp(t)),
        lambda k, t: stats.nbinom.logpmf(k, 3.0, np.exp(t) / (1.0 + np.exp(t))),
        (-1.0, -6.0),
    ),
}
"""Law here and in SciPy as functions of one number; that number where the table serves, and another."""


def by_hand(law, noise, t, released=RELEASED, terms=1_500):
    k = np.arange(terms)[:, None]
    with np.errstate(divide="ignore"):
        return special.logsumexp(law(k, t) + noise(released - k), axis=0)


def value(make, mechanism, apart=False):
    """The entries have one law, or each has its own, which happens to be the same."""

    def at(t):
        one = nw.Privatised(make(jnp.broadcast_to(t, RELEASED.shape) if apart else t), mechanism)
        assert one._route.width
        return one.log_prob(RELEASED.copy())  # of an array in a program of 32 bits, JAX would not make one of 64

    return at


WAYS = {"one law": False, "own laws": True}
PAIRS = {f"{law} and {noise}, {way}": (law, noise, WAYS[way]) for law in LAWS for noise in NOISES for way in WAYS}
BRIEF = (
    "Poisson and DiscreteGaussian, one law",
    "BinomialProbs and Laplace, own laws",
)


@pytest.mark.parametrize(("law", "noise", "apart"), brief_rows(PAIRS, BRIEF))
def test_value_and_slope_are_those_of_the_sum(law, noise, apart):
    make, log_law, places = LAWS[law]
    mechanism, log_noise = NOISES[noise]
    with double():
        way = value(make, mechanism, apart)
        both = jax.jit(lambda t: jax.jvp(way, (t,), (1.0,)))
        for t in places:
            step = 1e-4
            around = [by_hand(log_law, log_noise, t + m * step) for m in (-2, -1, 1, 2)]
            difference = (around[0] - 8 * around[1] + 8 * around[2] - around[3]) / (12 * step)
            found, slope = both(t)
            assert np.allclose(found, by_hand(log_law, log_noise, t), rtol=0, atol=EXACT)
            assert np.allclose(slope, difference, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("alike", [True, False], ids=["one law", "own laws"])
def test_the_table_serves_near_the_release_and_says_where_it_does_not(alike):
    """Where it claims to serve, its sum is right; at rates far from the release it does not claim to."""
    _, log_law, _ = LAWS["Poisson"]
    mechanism, log_noise = NOISES["DiscreteGaussian"]
    with double():
        width = ratios.width("Poisson", mechanism)
        table, _ = ratios.noise_table("Poisson", mechanism, RELEASED, 0, width, alike)
        assert np.ndim(table.start) == (0 if alike else 1)
        program = jax.jit(
            lambda rate: ratios._tabulated("Poisson", (jnp.full(np.shape(table.start), rate),), table)[::2]
        )
        places = np.linspace(-3.0, 9.0, 25)
        found, fits = (np.stack(part) for part in zip(*(program(np.exp(t)) for t in places), strict=True))
    off = np.abs(found - np.stack([by_hand(log_law, log_noise, t, terms=20_000) for t in places]))
    assert np.all(off[fits] < EXACT)
    assert np.all(fits[np.abs(places - 2.0) < 1.0, :4])
    assert not np.any(fits[places > 8.0, 4 if alike else 3 :])  # what the last one's window adds serves the others
    assert np.any(off[~fits] > 1.0)


def test_value_and_slope_of_negative_binomial_laws_from_the_table():
    """Where it serves: the whole way, with windows that follow, takes seconds to compile."""
    _, log_law, (t, _) = LAWS["NegativeBinomial2"]
    mechanism, log_noise = NOISES["Gaussian"]
    with double():
        width = ratios.width("NegativeBinomial2", mechanism)
        table, _ = ratios.noise_table("NegativeBinomial2", mechanism, RELEASED, 0, width, True)

        def program(t):
            size = jnp.exp(t) * jnp.ones(np.shape(table.start))
            value, (by_size, by_rate), fits = ratios._tabulated("NegativeBinomial2", (size, size / 9.0), table)
            return value, (by_size + by_rate / 9.0) * size, fits

        found, slope, fits = map(np.asarray, jax.jit(program)(t))
    step = 1e-4
    around = [by_hand(log_law, log_noise, t + m * step) for m in (-2, -1, 0, 1, 2)]
    assert np.all(fits)
    assert np.allclose(found, around[2], rtol=0, atol=EXACT)
    assert np.allclose(slope, np.dot([1, -8, 0, 8, -1], around) / (12 * step), rtol=1e-7, atol=1e-7)


MODES = {"forward over reverse": jax.hessian, "reverse over reverse": lambda total: jax.grad(jax.grad(total))}


@pytest.mark.parametrize("mode", briefly(MODES, ["forward over reverse"]))
@pytest.mark.parametrize("law", briefly(["Poisson", "NegativeBinomial2"], ["Poisson"]))
def test_second_derivatives_in_either_mode(law, mode):
    make, log_law, (t, _) = LAWS[law]
    mechanism, log_noise = NOISES["Laplace"]

    def total(t):
        return value(make, mechanism)(t).sum()

    with double():
        twice = jax.jit(MODES[mode](total))(t)
    step = 1e-3
    around = [by_hand(log_law, log_noise, t + m * step).sum() for m in (-2, -1, 0, 1, 2)]
    difference = np.dot([-1, 16, -30, 16, -1], around) / (12 * step**2)
    assert np.isclose(twice, difference, rtol=1e-5)


@cache
def side_by_side():
    """Of one compiled program, for as many places as both tests have."""
    return jax.jit(jax.vmap(value(LAWS["Poisson"][0], NOISES["DiscreteGaussian"][0])))


def test_few_digits_left_of_an_entry_far_from_the_others_are_noticed():
    """Where the law has hardly any mass about one entry, a product in 32 bits would lose it, or most of its digits."""
    places = np.linspace(-4.0, 0.0, 60)
    found = side_by_side()(places)
    truth = np.stack([by_hand(LAWS["Poisson"][1], NOISES["DiscreteGaussian"][1], t) for t in places])
    assert truth[0, -1] < -100.0 < -80.0 < truth[-1, -1]
    assert np.allclose(found, truth, rtol=3e-5)


def test_what_was_released_often_is_summed_once():
    """Two rows of entries of one law: each in its place, with its own slope."""
    released = np.array([[7, 3, 3, 12], [12, 3, 7, 0]])
    k = np.arange(200.0)

    def log_prob(rate):
        return nw.Privatised(dist.Poisson(rate).expand([2, 4]), nw.DiscreteLaplace(scale=2.0)).log_prob(released)

    with double():
        found, slope = jax.jit(lambda rate: jax.jvp(log_prob, (rate,), (1.0,)))(6.0)
    noise = np.log(np.tanh(0.25)) - np.abs(released[..., None] - k) / 2.0
    terms = stats.poisson(6.0).logpmf(k) + noise
    expected = special.logsumexp(terms, axis=-1)
    mean = np.sum(np.exp(terms - expected[..., None]) * k, axis=-1)
    assert np.allclose(found, expected, rtol=1e-12)
    assert np.allclose(slope, mean / 6.0 - 1.0, rtol=1e-10)


def test_releases_far_apart_keep_windows_of_their_own():
    """A window for all would be as long as they are apart; in groups of equal ones it is worth its length."""
    far = np.array([3.0, 9.0, 400.0, 2000.0])
    with double():
        width = ratios.width("Poisson", LAPLACE)
        table, _ = ratios.noise_table("Poisson", LAPLACE, far, 0, width, True)
        found = jax.jit(lambda t: nw.Privatised(dist.Poisson(t), LAPLACE).log_prob(far))(300.0)
    assert np.shape(table.start) == far.shape
    expected = by_hand(lambda k, t: stats.poisson.logpmf(k, t), NOISES["Laplace"][1], 300.0, far)
    assert np.allclose(found, expected, rtol=0, atol=EXACT)


def test_side_by_side_and_in_32_bits():
    places = np.linspace(0.5, 8.0, 60)  # of these the last need windows that follow
    make, log_law, _ = LAWS["Poisson"]

    def truth(noise, t):
        return by_hand(log_law, NOISES[noise][1], t, terms=6_000)

    narrow = side_by_side()(places)
    assert narrow.dtype == np.float32
    assert np.allclose(narrow, np.stack([truth("DiscreteGaussian", t) for t in places]), rtol=3e-5)
    total, places, step = value(make, LAPLACE), np.array([0.5, 2.1, 8.0]), 1e-4
    with double():
        found, slopes = jax.jit(jax.vmap(jax.value_and_grad(lambda t: total(t).sum())))(places)
    sums = [[truth("Laplace", t + m * step).sum() for m in (-2, -1, 0, 1, 2)] for t in places]
    assert np.allclose(found, [each[2] for each in sums], rtol=0, atol=EXACT)
    assert np.allclose(slopes, np.array(sums) @ [1, -8, 0, 8, -1] / (12 * step), rtol=1e-6)


def left_and_kept():
    """More entries that leave the table than are gathered at a time, among others that fit."""
    number = 2 * ratios.TOGETHER + 7
    rng = np.random.default_rng(4)
    released, scales = rng.integers(0, 30, number), rng.uniform(0.5, 3.0, number)
    return released, scales, np.where(np.arange(number) % 8 == 0, 9.0, rng.uniform(200.0, 400.0, number))


def sums_and_slopes(released, scales, rates):
    k = np.arange(800)[:, None]
    terms = stats.poisson.logpmf(k, rates) - np.abs(released - k) / scales - np.log(2.0 * scales)
    truth = special.logsumexp(terms, axis=0)
    return truth, (np.exp(terms - truth) * (k / rates - 1.0)).sum(axis=0)


def test_entries_that_leave_the_table_are_done_again_whatever_their_number():
    """Each with a noise scale of its own."""
    released, scales, rates = left_and_kept()
    truth, slopes = sums_and_slopes(released, scales, rates)
    with double():
        law = jax.jit(lambda rates: nw.Privatised(dist.Poisson(rates), nw.Laplace(scale=scales)).log_prob(released))
        found, slope = jax.jvp(law, (rates,), (np.ones(len(rates)),))
    assert np.allclose(found, truth, rtol=0, atol=EXACT)
    assert np.allclose(slope, slopes, rtol=1e-9, atol=EXACT)


@pytest.mark.long
def test_entries_that_leave_the_table_are_done_again_in_32_bits():
    released, _, rates = left_and_kept()
    narrow = jax.jit(jax.grad(lambda rates: nw.Privatised(dist.Poisson(rates), LAPLACE).log_prob(released).sum()))
    _, slopes = sums_and_slopes(released, 2.0, rates)
    assert np.allclose(narrow(rates.astype(np.float32)), slopes, rtol=1e-3, atol=1e-4)


@pytest.mark.long
def test_entries_that_leave_the_table_are_done_again_side_by_side():
    released, scales, rates = left_and_kept()
    truth, slopes = sums_and_slopes(released, scales, rates)
    with double():
        law = jax.vmap(lambda rates: nw.Privatised(dist.Poisson(rates), nw.Laplace(scale=scales)).log_prob(released))
        both = np.stack([rates, rates[::-1]])
        found, slope = jax.jit(lambda both: jax.jvp(law, (both,), (jnp.ones(both.shape),)))(both)
    assert np.allclose(found[0], truth, rtol=0, atol=EXACT)
    assert np.allclose(slope[0], slopes, rtol=1e-9, atol=EXACT)


def test_what_has_no_table_goes_as_before():
    """Release or mechanism traced, a window of the caller's own, other noise: the same numbers by enumeration."""
    rate, mechanism = 7.0, nw.Laplace(scale=2.0)
    with double():
        expected = by_hand(lambda k, t: stats.poisson.logpmf(k, t), NOISES["Laplace"][1], rate)
        traced = jax.jit(lambda rate, r: nw.Privatised(dist.Poisson(rate), mechanism).log_prob(r))(rate, RELEASED)
        own = jax.jit(lambda rate: nw.Privatised(dist.Poisson(rate), mechanism, window=400).log_prob(RELEASED))(rate)
        noise = jax.jit(lambda noise: nw.Privatised(dist.Poisson(rate), noise).log_prob(RELEASED))(mechanism)
        assert entry.route(dist.Bernoulli(0.5), mechanism).width == 0
        for found in (traced, own, noise):
            assert np.allclose(found, expected, rtol=0, atol=EXACT)


def test_one_noise_scale_for_each_entry_and_scalar_parameters():
    scales = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    with double():
        law = jax.jit(lambda t: nw.Privatised(dist.Poisson(t), nw.Laplace(scale=scales)).log_prob(RELEASED))
        found = law(6.0)
    expected = [
        by_hand(lambda k, t: stats.poisson.logpmf(k, t), lambda z, s=s: stats.laplace.logpdf(z, scale=s), 6.0, r)
        for s, r in zip(scales, RELEASED[:, None], strict=True)
    ]
    assert np.allclose(found, np.ravel(expected), rtol=0, atol=EXACT)
