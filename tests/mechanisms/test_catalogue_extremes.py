"""What once went wrong in the catalogue, and the far ends of its laws."""

import inspect
import itertools

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from mechanism_case import all_cases
from scipy.integrate import quad
from scipy.special import logsumexp

import noisewise as nw
from noisewise import mechanisms as m
from noisewise import sensitivity
from noisewise.mechanisms.discrete_gaussian import _log_normaliser
from noisewise.numerics import double, log_ndtr

FINE = [
    m.Laplace(scale=1.0),
    m.Gaussian(scale=1.0),
    m.GeneralizedCauchy(4.0, 1.0),
    m.GeneralizedCauchy(1.05, 1.0),
    m.Staircase(1.0, 1.0, 0.004),
    m.Tulap(1.0, 0.01),
    m.TruncatedLaplace(scale=1.0, bound=5.0),
]


@jax.jit
def log_prob_at_zero(mechanism, s):
    """Compiled once per kind of mechanism."""
    return mechanism.log_prob(0.0, s)


@pytest.mark.parametrize(
    "base", [pytest.param(base, marks=[pytest.mark.long] * (base is not FINE[0])) for base in FINE], ids=repr
)
def test_rounding_to_a_fine_step_is_the_density_times_the_step(base):
    s = np.array([0.3, -20.1, 20.1, 200.7])
    for step in (1e-3, 1e-6, 1e-9, 1e-12, 1e-15, 1e-100):
        rounded = m.Rounded(base, step)
        expected = base.log_prob(0.0, s) + np.log(step)
        np.testing.assert_allclose(rounded.log_prob(0.0, s), expected, atol=2 * step**2 + 1e-11)
        with double():
            np.testing.assert_allclose(np.asarray(log_prob_at_zero(rounded, s)), expected, atol=2 * step**2 + 1e-10)
        assert rounded.log_sup(0.0) == pytest.approx(base.log_sup(0.0) + np.log(step), abs=3 * step)


@pytest.mark.parametrize("base", FINE, ids=repr)
def test_rounded_cells_add_up_across_kinks_and_edges(base):
    """Cells of a fine step, about zero and about the edges, have the mass of the interval they make up."""
    step, index = 1e-4, np.arange(-60, 61)
    edges = {m.Staircase: [0.004, 1.004, -2.004], m.Tulap: [0.5, -1.5, float(m.Tulap(1.0, 0.01)._bound(np))]}
    for edge in [0.0, *edges.get(type(base), [5.0, -5.0])]:
        s = 0.00003 - edge
        whole = base.log_interval(-60.5 * step, 60.5 * step, s)
        rounding = 1e-12 + 1e-15 * np.exp(-whole)  # of the one wide interval
        assert logsumexp(m.Rounded(base, step).log_prob(step * index, s)) == pytest.approx(whole, abs=rounding)


@pytest.mark.parametrize("power", [1.001, 1.05, 1.5, 2.5])
def test_fine_steps_of_noise_that_is_not_smooth_at_zero(power):
    base = m.GeneralizedCauchy(power, 1.0)
    for step in (0.0099, 1e-3, 1e-5):
        for s in step * np.array([0.0, 0.3, 0.5, 1.2, 4.3, 5.0, 9.0]):
            ends = sorted({-0.5 * step - s, min(0.0, 0.5 * step - s), 0.5 * step - s})
            parts = [
                quad(lambda z: np.exp(base.noise_log_prob(z)), low, high, epsabs=0, epsrel=1e-13)[0]
                for low, high in itertools.pairwise(ends)
            ]
            assert m.Rounded(base, step).log_prob(0.0, s) == pytest.approx(np.log(sum(parts)), abs=2e-11)


@pytest.mark.parametrize("scale", [0.2, 0.5, 1.0, 3.0, 13.9, 14.1, 20.0, 50.0, 300.0, 5000.0])
def test_discrete_gaussian_tails(scale):
    noise = m.DiscreteGaussian(scale=scale)
    for start in {1, 2, 5, int(scale) + 1, int(3 * scale) + 1, int(10 * scale) + 3, int(0.26 * scale**2) + 1}:
        k = np.arange(start, start + int(45 * scale) + 400, dtype=float)
        expected = logsumexp(-0.5 * (k / scale) ** 2) - _log_normaliser(np, scale)
        assert noise.noise_log_cdf(-float(start)) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert noise.noise_log_cdf(1e300) == 0.0
    assert np.exp(noise.noise_log_cdf(0.0)) + np.exp(noise.noise_log_cdf(-1.0)) == pytest.approx(1.0)


def test_census_counts_can_be_rounded_clipped_and_suppressed():
    noise = m.DiscreteGaussian(scale=3.0)
    for mechanism in (m.Rounded(noise, 5.0), m.Clipped(noise, low=0.0), m.Thresholded(noise, 10.0)):
        values = np.arange(-100.0, 160.0)
        released = values[np.isfinite(mechanism.log_sup(values))]
        total = np.exp(mechanism.log_prob(released, 12)).sum()
        if mechanism.measure == "atoms" and isinstance(mechanism, m.Thresholded):
            total += np.exp(mechanism.log_prob(np.nan, 12))
        assert total == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("factor", [10.0, -1.0, 1e-2, -1e-4])
@pytest.mark.parametrize("shift", [0.0, 5.2258863639760555, -110596.96451719681, 1e6])
def test_affine_keeps_the_atoms_of_what_it_wraps(shift, factor):
    clipped = m.Affine(m.Clipped(m.Laplace(scale=1.0), 0.0, 10.0), shift=shift, factor=factor)
    counts = m.Affine(m.DiscreteLaplace(scale=2.0), shift=shift, factor=factor)
    rng = np.random.default_rng(1)
    for far in (-100.0, 100.0):
        released = clipped.sample(rng, np.array([far]))
        assert clipped.log_prob(released, np.array([far])) == pytest.approx(0.0, abs=1e-9)
        assert clipped.released(released).value == released
    drawn = counts.sample(rng, np.full(50, 7))
    assert np.all(counts.log_prob(drawn, np.full(50, 7)) > -60.0)


def test_log_ndtr_of_both_libraries():
    from scipy.special import log_ndtr as reference

    z = np.linspace(-60.0, 8.0, 2001)
    with double():
        np.testing.assert_allclose(np.asarray(jax.jit(log_ndtr)(z)), reference(z), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_a_missing_argument_is_named_with_its_place(case):
    entry = case.mechanism.to_dict()
    entry.pop("guarantee", None)
    required = [n for n, p in inspect.signature(type(case.mechanism)).parameters.items() if p.default is p.empty]
    for name in required:
        broken = {key: value for key, value in entry.items() if key != name} | {"value": 1}
        content = {"format": "noisewise-release", "version": 1, "statistics": {"x": broken}}
        with pytest.raises(nw.InputError, match=rf"statistics\.x: '{name}' is missing"):
            nw.Release.from_dict(content)


def test_guarantees_of_more_entries_than_they_were_made_for():
    smooth = m.smooth.cauchy(1.0, neighbours="replace-one")
    assert nw.Release(x=smooth.latent("t", 0.1).released(1.0)).guarantee.epsilon == 1.0
    assert nw.Release(x=smooth.latent("t", 0.1).released([1.0, 2.0])).guarantee is None
    wide = m.smooth.cauchy(1.0, dimension=2, neighbours="replace-one")
    assert nw.Release(x=wide.latent("t", 0.1).released([1.0, 2.0])).guarantee.epsilon == 1.0
    rows = m.Product([m.Staircase(1.0, 1.0)] * 2)
    for mechanism in (rows, m.Affine(rows, factor=2.0)):
        assert nw.Release(x=mechanism.released(np.zeros((3, 2)))).guarantee.epsilon == pytest.approx(6.0)


def test_a_guarantee_stated_for_a_whole_product_counts_where_the_parts_state_none():
    entry = m.Product([m.Laplace(scale=1.0), m.Gaussian(scale=2.0)]).to_dict()
    stated = {"epsilon": 1.0, "delta": 1e-6, "neighbours": "add-remove"}
    entry |= {"value": [1.0, 2.0], "guarantee": stated}
    content = {"format": "noisewise-release", "version": 1, "statistics": {"x": entry}}
    assert nw.Release.from_dict(content).guarantee.to_dict() == stated


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_masked_arrays_are_refused(case, seed):
    """NumPy would drop the mask, and publish what it hides."""
    value = np.ma.masked_array(case.sample(case.mechanism, np.random.default_rng(seed), 3))
    value[0] = np.ma.masked
    with pytest.raises(nw.InputError, match=r"released: 'value' must not be a masked array"):
        case.mechanism.released(value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: m.Guarantee(epsilon=-1.0), "'epsilon' must be positive"),
        (lambda: m.Guarantee(epsilon=1.0, delta=2.0), "'delta' must be below 1"),
        (lambda: m.Guarantee(epsilon=1.0, neighbours="both"), "'neighbours' must be one of"),
        (
            lambda: m.Laplace.from_dict({"epsilon": 1.0, "sensitivity": 1.0, "guarantee": {"epsilon": 0.01}}, "x"),
            "'epsilon' must agree with the budget",
        ),
        (
            lambda: sensitivity.by_enumeration(
                lambda x: x.mean() if len(x) else np.nan, [0, 1], 2, neighbours="add-remove"
            ),
            "must give a number for every data set",
        ),
        (
            lambda: sensitivity.local_by_enumeration(np.mean, [0, 7], [0, 1], neighbours="replace-one"),
            "must be positions from 0 to 1",
        ),
        (
            lambda: nw.ExponentialMechanism(scale=1.0).sample(np.random.default_rng(1), np.array([1.0, np.nan])),
            "must not hold NaN",
        ),
        (lambda: m.Thresholded(m.Laplace(scale=1.0), 3.0).released([]), "must not be empty"),
        (lambda: m.KNorm("l1", 1.0, dimension=2).released(np.zeros((0, 2))), "must not be empty"),
        (lambda: m.MultivariateGaussian(np.eye(2)).released(np.zeros((0, 2))), "must not be empty"),
        (lambda: m.Projected(1.0, [[1.0, 1.0]], [4.0]).released(np.zeros((0, 2))), "must not be empty"),
        (
            lambda: m.KNorm("ellipsoid", 1.0, matrix=np.eye(2), dimension=np.array([2, 2])),
            "KNorm: 'dimension' must be a whole number",
        ),
        (
            lambda: m.KNorm("ellipsoid", 1.0, matrix=np.eye(2), dimension=3),
            "KNorm: 'dimension' must be the matrix's number of columns, 2; got 3",
        ),
        (
            lambda: m.ObjectivePerturbation(1.0, loss="logistic", ridge=1.0, n=3, label_bound=np.array([1, 2])),
            "'label_bound' must be a single number",
        ),
        (lambda: m.Guarantee(mu=0.0), "'mu' must be positive"),
        (lambda: m.Guarantee(epsilon=1.0, delta=0.0), "'delta' must be positive"),
    ],
)
def test_nonsense_is_refused(make, message):
    with pytest.raises(nw.InputError, match=message):
        make()


def scores_model(k=3):
    return nw.Model(prior={"a": dist.Normal(0.0, 1.0)}, statistics={"x": lambda a: dist.Normal(a, 1.0).expand([k])})


@pytest.mark.parametrize(
    ("model", "released", "message"),
    [
        (scores_model(), nw.ExponentialMechanism(scale=1.0).released(7), "indices from 0 to 2"),
        (scores_model(), m.TopSelection(nw.ExponentialMechanism(scale=1.0), 2).released([3, 1]), "indices from 0 to 2"),
        (scores_model(2), m.Product([m.Exact(), m.Laplace(scale=1.0)]).released([1.0, 2.0]), "entries without noise"),
        (
            nw.Model(prior={"t": dist.Gamma(2.0, 1.0)}, statistics={"x": lambda t: dist.Poisson(t).expand([4])}),
            nw.RandomizedResponse(epsilon=1.0).released([0, 1, 1, 0]),
            "must hold categories 0 to 1 by construction",
        ),
        (
            nw.Model(prior={"t": dist.Gamma(2.0, 1.0)}, statistics={"x": lambda t: dist.Poisson(t).expand([2])}),
            m.Projected(scale=1.0, matrix=[[1.0, 1.0]], totals=[4.0]).released([1.5, 2.5]),
            "must meet the totals",
        ),
    ],
)
def test_impossible_models_are_refused_at_once(model, released, message, seed):
    with pytest.raises(nw.InputError, match=message):
        nw.sample(model, nw.Release(x=released), draws=10, seed=seed)


def test_unary_encoding_of_counts_is_randomised_response_bit_by_bit(seed):
    """Totals of reported bits given category counts: per bit, keeps of its own records plus additions of the others."""
    from scipy import stats

    n, keep, add = 6, 0.7, 0.2
    channel = [[1 - add, add], [1 - keep, keep]]
    mechanism = nw.RandomizedResponse(channel=channel, on="counts", n=n)
    counts, reported = np.array([1, 2, 3]), np.array([2, 1, 4])
    found = mechanism.log_prob(np.stack([n - reported, reported], -1), np.stack([n - counts, counts], -1))
    for own, bits, value in zip(counts, reported, found, strict=True):
        mass = sum(stats.binom.pmf(j, own, keep) * stats.binom.pmf(bits - j, n - own, add) for j in range(own + 1))
        assert value == pytest.approx(np.log(mass), abs=1e-12)
