"""Tables measured several ways: every table with its exact probability, steps broken on purpose, what is refused."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import agrees, counts_agree
from measured_tables import enumerated, log_law_of, margins, model_of, moved, tallied
from scipy import stats
from scipy.sparse import csr_array
from scipy.special import gammaln

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.inference.tables import directions, lattice
from noisewise.inference.tables.fibres import Unknown, fibre_of
from noisewise.mechanisms import Clipped, GeneralizedCauchy, Rounded, Staircase, Thresholded, TruncatedLaplace, Tulap
from noisewise.numerics import double
from noisewise.samplers.augmentation import Augmentation
from noisewise.samplers.choosing import choice
from noisewise.samplers.choosing.probe import probe_of

MEAN = np.array([[2.0, 1.0], [0.6, 1.5]])
WIDE = np.array([[1.0, 0.6, 0.4], [0.3, 1.2, 0.8]])
ZERO = np.array([[0, 0, 1, 0]])
ROW, COLUMN = margins((2, 2))
ROW3, COLUMN3 = margins((2, 3))
ALL, ALL3 = np.ones((1, 4), int), np.ones((1, 6), int)
NOISE = nw.DiscreteGaussian(scale=1.5)


def measured(mechanism, matrix, value):
    return mechanism.of("cells", matrix=matrix).released(value)


CASES = {
    "total noisy": ("Poisson", MEAN, {"cell": (NOISE, np.eye(4, dtype=int), [3, 0, 2, 1]), "all": (NOISE, ALL, [7])}),
    "total exact": (
        "Poisson",
        MEAN,
        {"cell": (NOISE, np.eye(4, dtype=int), [3, 0, 2, 1]), "all": (nw.Exact(), ALL, [6])},
    ),
    "rows exact, column noisy": (
        *("NegativeBinomial2", MEAN),
        {"rows": (nw.Exact(), ROW, [4, 2]), "columns": (nw.DiscreteLaplace(scale=0.8), COLUMN, [3, 1])},
    ),
    "both margins exact": (
        *("Poisson", WIDE),
        {
            "rows": (nw.Exact(), ROW3, [4, 5]),
            "columns": (nw.Exact(), COLUMN3, [3, 4, 2]),
            "all": (nw.Exact(), ALL3, [9]),
        },
    ),
    "structural zero": (
        *("Poisson", MEAN),
        {
            "none": (nw.Exact(), ZERO, [0]),
            "all": (nw.Exact(), ALL, [5]),
            "rows": (nw.Laplace(scale=0.7), ROW, [2.2, 3.6]),
        },
    ),
    "bounded cells, total exact": (
        *("Binomial", MEAN),
        {"all": (nw.Exact(), ALL, [11]), "rows": (nw.Gaussian(scale=1.0), ROW, [6.3, 4.0])},
    ),
    "uniform prior": ("DiscreteUniform", MEAN, {"rows": (NOISE, ROW, [4, 2]), "columns": (NOISE, COLUMN, [5, 3])}),
    "Staircase": ("Poisson", MEAN, {"rows": (Staircase(epsilon=1.0, sensitivity=1.0), ROW, [3.4, 1.1])}),
    "bounds of single cells": (
        *("bounded", MEAN),
        {"rows": (NOISE, ROW, [4, 2]), "all": (nw.Exact(), ALL, [7])},
    ),
    "rounded": ("Poisson", MEAN, {"rows": (Rounded(nw.Laplace(scale=0.8), step=2.0), ROW, [4.0, 2.0])}),
    "clipped": ("Poisson", MEAN, {"rows": (Clipped(nw.DiscreteLaplace(scale=0.8), low=0, high=5), ROW, [5, 0])}),
    "withheld": (
        *("Poisson", MEAN),
        {"cell": (Thresholded(NOISE, 3), np.eye(4, dtype=int), [4, "suppressed", 3, "suppressed"])},
    ),
    "Tulap": ("Poisson", MEAN, {"rows": (Tulap(epsilon=1.0, delta=1e-3, sensitivity=1), ROW, [3.4, 1.1])}),
    "truncated Laplace": ("Poisson", MEAN, {"rows": (TruncatedLaplace(scale=1.0, bound=1.4), ROW, [3.4, 0.9])}),
    "discrete Laplace": ("Poisson", MEAN, {"rows": (nw.DiscreteLaplace(scale=0.8), ROW, [3, 1])}),
    "Cauchy": ("Poisson", MEAN, {"rows": (GeneralizedCauchy(scale=1.0, power=3), ROW, [3.4, 1.1])}),
    "differences": ("Poisson", MEAN, {"gap": (NOISE, [[1, -1, 0, 0], [2, 0, -1, 1]], [3, 2])}),
}


def prepared(case, exact_as=None):
    law, mean, parts = CASES[case]
    parts = {n: (exact_as if exact_as and isinstance(m, nw.Exact) else m, a, v) for n, (m, a, v) in parts.items()}
    release = nw.Release({name: measured(*part) for name, part in parts.items()})
    return model_of(law, mean), release


def truth(case):
    law, mean, parts = CASES[case]
    _, release = prepared(case)
    matrices = {name: np.asarray(matrix) for name, (_, matrix, _) in parts.items()}
    return enumerated(log_law_of(law, mean), release, matrices, 12 if mean.size == 4 else 5)


def right(case, found):
    tables, chance = truth(case)
    return counts_agree(tallied(found, tables), np.append(chance, 0.0))


OFTEN = ("total noisy", "total exact", "both margins exact", "structural zero")
"""Cases that every run of the tests looks at."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.long] * (case not in OFTEN)) for case in CASES],
    ids=[case.replace(" ", "_") for case in CASES],
)
def test_every_table_comes_as_often_as_it_should(case, seed):
    found = moved(*prepared(case), seed)
    assert right(case, found)


class OneTooShort:
    """Random numbers that never place a window at its last place: it ends one short of there."""

    def __init__(self, rng):
        self.rng = rng

    def __getattr__(self, name):
        return getattr(self.rng, name)

    def integers(self, low, high, size):
        return self.rng.integers(low, min(high - 1, 2), size)


def test_a_window_that_is_one_too_short_is_caught(seed):
    assert not right("total noisy", moved(*prepared("total noisy"), seed, broken=OneTooShort))


def test_a_missing_basic_move_is_caught(seed, monkeypatch):
    swaps = directions._swaps
    monkeypatch.setattr(directions, "_swaps", lambda fibre: swaps(fibre)[:1])
    assert not right("both margins exact", moved(*prepared("both margins exact"), seed))


def test_an_exact_total_treated_as_noisy_is_caught(seed):
    found = moved(*prepared("total exact", exact_as=nw.DiscreteGaussian(scale=0.6)), seed)
    assert not right("total exact", found)


def test_multinomial_tables_keep_their_sums(seed):
    model = nw.Model({}, {"cells": lambda: dist.Multinomial(6, probs=jnp.array([0.4, 0.1, 0.2, 0.3]))})
    release = nw.Release(rows=measured(nw.DiscreteLaplace(scale=1.0), ROW, [4, 1]))

    def log_law(tables):
        return stats.multinomial.logpmf(tables, 6, [0.4, 0.1, 0.2, 0.3])

    tables, chance = enumerated(log_law, release, {"rows": ROW}, 6)
    assert counts_agree(tallied(moved(model, release, seed), tables), np.append(chance, 0.0))


ALONG = {
    "Poisson": lambda: dist.Poisson(jnp.array([2.5, 0.0, 700.0])),
    "NegativeBinomial2": lambda: dist.NegativeBinomial2(jnp.array([2.5, 1e-9, 700.0]), 1.7),
    "MultinomialProbs": lambda: dist.Multinomial(900, probs=jnp.array([0.3, 0.0, 0.7])),
    "MultinomialLogits": lambda: dist.Multinomial(900, logits=jnp.array([-900.0, -3e4, 3.0])),
    "Binomial": lambda: dist.Binomial(6, jnp.array([0.3, 0.0, 0.7])),
}


@pytest.mark.parametrize("name", ALONG)
def test_laws_along_a_direction_are_their_densities(name):
    """By ratios of neighbours or not, up to a constant of the direction; impossible counts are impossible."""
    cells, gains = np.array([[0, 2], [2, 0], [1, 1], [0, 0]]), np.array([[1, -1], [1, 0], [1, 0], [-1, 0]])
    steps = np.arange(-5, 11)[:, None, None]
    with double():
        law = ALONG[name]()
        counts = np.array([[3, 4], [2, 0], [0, 0], [5, 5]]) + steps * gains * 1.0

        @jax.jit
        def both(counts):
            along = lattice._log_law_along(law, (3,), cells, counts, gains)
            return along, lattice.cell_log_prob(law, (3,), cells, counts)

        along, each = both(counts)
    found, wanted = np.asarray(along), np.where(gains == 0, 0.0, each).sum(axis=-1)
    possible = np.isfinite(wanted)
    assert np.array_equal(np.isfinite(found), possible)
    gap = np.where(possible, found - np.where(possible, wanted, 0.0), np.nan)
    assert np.nanmax(np.nanmax(gap, axis=0) - np.nanmin(gap, axis=0)) < 1e-10


# With parameters, by every route --------------------------------------------------------------------------------------

WEIGHTS = np.array([1.0, 0.5, 0.7, 0.3])


@cache
def with_rate():
    model = nw.Model(
        {"rate": dist.Gamma(4.0, 1.0)}, {"cells": lambda rate: dist.Poisson(rate * jnp.asarray(WEIGHTS)).to_event(1)}
    )
    release = nw.Release(
        detailed=nw.DiscreteGaussian(scale=2.0).of("cells").released([5, 1, 4, 2]),
        by=nw.DiscreteLaplace(scale=1.0).of("cells", matrix=ROW).released([7, 4]),
        total=nw.Exact().of("cells", sum=True).released(11),
    )
    return model, release


def means_with_rate():
    """Posterior means of cells and rate: the rate is integrated out of each table by conjugacy."""

    def log_law(tables):
        total = tables.sum(axis=1)
        logs = tables @ np.log(WEIGHTS) - gammaln(tables + 1.0).sum(axis=1)
        return logs + gammaln(4.0 + total) - (4.0 + total) * np.log(1.0 + WEIGHTS.sum())

    _, release = with_rate()
    matrices = {"detailed": np.eye(4, dtype=int), "by": ROW, "total": ALL}
    tables, chance = enumerated(log_law, release, matrices, 12)
    return chance @ tables, chance @ ((4.0 + tables.sum(axis=1)) / (1.0 + WEIGHTS.sum()))


CHAINS_OF_TABLES = nw.Augmentation(chains=128, warmup=40)


@pytest.mark.parametrize(
    ("sampler", "engine"),
    [(nw.Rejection(), None), (CHAINS_OF_TABLES, None), (CHAINS_OF_TABLES, nw.Device(platform="cpu"))],
    ids=["rejection", "chains", "chains as on an accelerator"],
)
def test_parameters_and_cells_against_enumeration(sampler, engine, seed):
    posterior = nw.sample(*with_rate(), sampler, draws=3200, seed=seed, engine=engine)
    cells, rate = means_with_rate()
    chains = 128 if isinstance(sampler, Augmentation) else 3200
    by_chain = {name: posterior[name].reshape(chains, 3200 // chains, -1).mean(axis=1) for name in ("cells", "rate")}
    assert agrees(by_chain["cells"], cells)
    assert agrees(by_chain["rate"], [rate])
    assert np.all(posterior["total"] == 11)
    assert np.array_equal(posterior["by"], posterior["cells"] @ ROW.T)


@pytest.mark.long
def test_particles_take_measured_tables(seed):
    """The exact total is approached through ever narrower noise: docs/derivations/smc.md."""
    posterior = nw.sample(*with_rate(), nw.SMC(), draws=8_000, seed=seed)
    assert posterior.status == "complete"
    assert np.all(posterior["cells"].sum(axis=1) == 11)
    cells, rate = means_with_rate()
    summary = posterior.summary().loc[[*(f"cells[{i}]" for i in range(4)), "rate"]]
    z = (summary["mean"] - [*cells, rate]) / (summary["sd"] / np.sqrt(summary["ess"]))
    assert np.all(np.abs(z) < 5.5)


CONTINUOUS = {
    "chains": nw.Augmentation(chains=128, warmup=20),
    "collapsed": nw.Importance(proposal="adapted", collapse=True),
    "NUTS": nw.NUTS(chains=4, warmup=200),
}


@pytest.mark.parametrize(
    "which",
    ["chains", "collapsed", pytest.param("NUTS", marks=pytest.mark.long), pytest.param("none", marks=pytest.mark.long)],
)
def test_a_continuous_statistic_measured_twice_has_its_closed_form(which, seed):
    """Normal law and normal noise: precisions add up."""
    model = nw.Model(
        {"mean": dist.Normal(0.0, 3.0)}, {"x": lambda mean: dist.Normal(mean, 1.0).expand([3]).to_event(1)}
    )
    release = nw.Release(
        each=nw.Gaussian(scale=0.8).of("x").released([1.0, 2.0, 4.0]),
        first=nw.Gaussian(scale=0.3).of("x", matrix=[[1, 1, 0]]).released([2.4]),
    )
    matrix = np.vstack([np.eye(3), [[1, 1, 0]]])
    prior = np.eye(3) + 9.0
    noise = np.diag([0.64, 0.64, 0.64, 0.09])
    gain = prior @ matrix.T @ np.linalg.inv(matrix @ prior @ matrix.T + noise)
    posterior = nw.sample(model, release, CONTINUOUS.get(which), draws=6400, seed=seed)
    assert np.allclose(posterior["first"][:, 0], posterior["x"][:, :2].sum(axis=1))
    mean, covariance = gain @ [1.0, 2.0, 4.0, 2.4], prior - gain @ matrix @ prior
    if posterior.weights is not None:
        centred = posterior["x"] - mean
        assert agrees(posterior.weights[:, None] * centred * 6400, 0.0)
        assert agrees(
            posterior.weights[:, None, None] * (centred[:, :, None] * centred[:, None] - covariance) * 6400, 0.0
        )
    else:
        chains = posterior.chains or 6400
        each = posterior["x"].reshape(chains, -1, 3)
        spreads = np.sqrt(np.diag(covariance) / posterior.summary().loc[["x[0]", "x[1]", "x[2]"], "ess"])
        assert np.all(np.abs(each.mean(axis=(0, 1)) - mean) < 5.5 * spreads)
        centred = each - mean
        assert agrees((centred[..., None] * centred[..., None, :]).mean(axis=1), covariance) or chains < 16


@pytest.mark.long
def test_a_continuous_statistic_under_other_noise_by_gradients(seed):
    """Laplace noise on a sum has no closed form: x is sampled, and every measurement weighs it."""
    model = nw.Model(
        {"mean": dist.Normal(0.0, 3.0)}, {"x": lambda mean: dist.Normal(mean, 1.0).expand([2]).to_event(1)}
    )
    release = nw.Release(
        each=nw.Gaussian(scale=0.8).of("x").released([1.0, 2.0]),
        total=nw.Laplace(scale=0.3).of("x", sum=True).released(4.4),
    )
    axis = np.linspace(-4.0, 8.0, 601)
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    logs = stats.multivariate_normal.logpdf(x, np.zeros(2), np.eye(2) + 9.0)
    logs = logs + stats.norm.logpdf([1.0, 2.0], x, 0.8).sum(axis=-1) + stats.laplace.logpdf(4.4, x.sum(axis=-1), 0.3)
    chance = np.exp(logs - logs.max())
    mean = np.einsum("ij,ijk->k", chance, x) / chance.sum()
    posterior = nw.sample(model, release, nw.NUTS(), draws=8000, seed=seed)
    summary = posterior.summary().loc[["x[0]", "x[1]"]]
    assert np.all(np.abs(summary["mean"] - mean) < 5.5 * summary["sd"] / np.sqrt(summary["ess"]))


@pytest.mark.long
def test_two_tables_of_one_rate_against_enumeration(seed):
    """One is measured by cell and total, the other, with a cell that must be empty, by its noisy sum only."""
    weights = {"a": np.array([1.0, 0.5]), "b": np.array([0.7, 0.3, 2.0])}
    model = nw.Model(
        {"rate": dist.Gamma(4.0, 1.0)},
        {
            name: lambda rate, own=own: dist.Poisson(rate * jnp.asarray(own)).to_event(1)
            for name, own in weights.items()
        },
    )
    parts = {
        "each": (NOISE.of("a").released([4, 2]), np.eye(5, dtype=int)[:2]),
        "sum": (nw.Exact().of("a", sum=True).released(5), np.array([[1, 1, 0, 0, 0]])),
        "other": (nw.DiscreteLaplace(scale=0.8).of("b", sum=True).released(4), np.array([[0, 0, 1, 1, 1]])),
        "none": (nw.Exact().of("b", matrix=[[0, 0, 1]]).released([0]), np.array([[0, 0, 0, 0, 1]])),
    }
    release = nw.Release({name: item for name, (item, _) in parts.items()})
    own = np.concatenate(list(weights.values()))

    def log_law(tables):
        total = tables.sum(axis=1)
        logs = tables @ np.log(own) - gammaln(tables + 1.0).sum(axis=1)
        return logs + gammaln(4.0 + total) - (4.0 + total) * np.log(1.0 + own.sum())

    flat = {n: item.mechanism.released(np.atleast_1d(item.value)) for n, (item, _) in parts.items()}
    tables, chance = enumerated(log_law, flat, {name: matrix for name, (_, matrix) in parts.items()}, 11)
    posterior = nw.sample(model, release, nw.Augmentation(chains=128), draws=6400, seed=seed)
    found = np.concatenate([posterior["a"], posterior["b"]], axis=1).reshape(128, 50, 5).mean(axis=1)
    assert agrees(found[:, :4], (chance @ tables)[:4])
    assert np.all(found[:, 4] == 0.0)
    rate = chance @ ((4.0 + tables.sum(axis=1)) / (1.0 + own.sum()))
    assert agrees(posterior["rate"].reshape(128, 50).mean(axis=1), rate)


# The choice of a sampler ----------------------------------------------------------------------------------------------


@cache
def of_the_census(law=dist.Poisson):
    """A table of eight cells as in the documentation: each cell, its halves with labels, and its exact total."""
    halves = np.kron(np.eye(2, dtype=int), np.ones((1, 4), dtype=int))
    cells = np.array([310, 120, 40, 530, 200, 301, 23, 250])
    model = nw.Model(
        {"share": dist.Dirichlet(jnp.ones(8)), "rate": dist.Gamma(2.0, 0.01)},
        {"cells": lambda share, rate: law(rate * share).to_event(1)},
    )
    release = nw.Release(
        detailed=nw.DiscreteGaussian(variance=19.5).of("cells").released(cells + 3),
        by_age=nw.DiscreteGaussian(variance=4.7)
        .of("cells", matrix=csr_array(halves))
        .released(halves @ cells - 2, {"age": ["child", "adult"]}),
        total=nw.Exact().of("cells", sum=True).released(int(cells.sum())),
    )
    return model, release


def test_tables_that_no_simulated_one_agrees_with_are_moved(seed):
    problem = Problem(*of_the_census())
    assert problem.axes.dims["by_age"] == ("age",)
    probe = probe_of(problem, seed, nw.Threads(1))
    ranking = choice.settled(probe, 4000)
    assert ranking[0].sampler == nw.Augmentation()
    assert "hardly ever agree" in choice.reason_for(ranking, probe)


@pytest.mark.long
def test_without_a_sampler_large_tables_complete(seed):
    posterior = nw.sample(*of_the_census(), draws=4000, seed=seed)
    assert isinstance(posterior.sampler, nw.Augmentation)
    assert np.all(posterior["cells"].sum(axis=1) == 1774)
    assert {"by_age[child]", "by_age[adult]", "total"} <= set(posterior.summary().index)


# Refusals -------------------------------------------------------------------------------------------------------------


def test_what_may_not_be_reached_is_refused():
    cells = np.arange(6)
    ones = np.ones(3, dtype=int)
    overlap = [(cells[:3], ones, 4), (cells[2:5], ones, 4), (cells[[0, 2, 4]], ones, 4)]
    with pytest.raises(Unknown, match="more than two ways"):
        fibre_of(overlap, 6)
    with pytest.raises(Unknown, match="overlap in part"):
        fibre_of(overlap[:2], 6)
    with pytest.raises(Unknown, match="coefficients that differ"):
        fibre_of([(cells[:2], np.array([1, 2]), 4)], 6)
    with pytest.raises(Unknown, match="no table of counts"):
        fibre_of([(cells[:3], ones, 4), (cells[:1], np.array([1]), 5), (cells[1:3], np.array([1, 1]), 3)], 6)
    lines = [*cells.reshape(2, 3), *cells.reshape(2, 3).T]
    margins_of = [(line, np.ones(len(line), dtype=int), len(line)) for line in lines]
    assert fibre_of(margins_of, 6).crossed
    with pytest.raises(Unknown, match="may not all reach"):
        fibre_of([(cells[:1], np.array([1]), 0), *margins_of_nine()], 9)


def margins_of_nine():
    """Margins of a 3 x 3 table."""
    table = np.arange(9).reshape(3, 3)
    return [(line, np.ones(3, dtype=int), 4) for line in (*table, *table.T)]


def test_nested_sums_are_those_of_blocks():
    cells = np.arange(6)
    nested = [(cells, 9), (cells[:4], 7), (cells[:2], 3)]
    fibre = fibre_of([(part, np.ones(len(part), dtype=int), value) for part, value in nested], 6)
    assert fibre.first.tolist() == [0, 0, 1, 1, 2, 2]
    assert fibre.sums[0].tolist() == [3, 4, 2]
    assert not fibre.crossed


def test_noise_that_may_rule_tables_out_is_refused():
    """Noise with a bound leaves ranges of the sums possible, as declared bounds do: these must be understood."""
    model = model_of("Poisson", MEAN)
    for bounded in (TruncatedLaplace(epsilon=1.0, delta=1e-3, sensitivity=1.0), Tulap(epsilon=1.0, delta=0.1)):
        rows, columns = measured(bounded, ROW, [13.0, 12.0]), measured(bounded, COLUMN, [13.0, 12.0])
        assert Augmentation().unfit(Problem(model, nw.Release(rows=rows))) is None
        assert "sums that overlap" in Augmentation().unfit(Problem(model, nw.Release(rows=rows, columns=columns)))
        rounded = measured(Rounded(bounded, step=1.0), ROW, [3.0, 2.0])
        assert "may rule some out" in Augmentation().unfit(Problem(model, nw.Release(rows=rounded)))
    endless = measured(Tulap(epsilon=1.0), ROW, [3.0, 2.0])
    assert Augmentation().unfit(Problem(model, nw.Release(rows=endless))) is None


def test_a_bound_of_noise_ends_at_the_last_sum_that_is_possible():
    """Between 3.4 and 1 lies 2.4, but for rounding errors; with noise to 2.4, 2.5 or none at all."""
    for bound in (2.4, np.nextafter(2.4, 0.0), np.nextafter(2.4, 3.0), 2.5, 0.1, [0.5, np.inf]):
        mechanism = TruncatedLaplace(scale=1.0, bound=2.4)
        object.__setattr__(mechanism, "bound", np.asarray(bound))
        value = np.full(np.shape(bound) or (1,), 3.4)
        low, high = lattice._reached(mechanism, value)
        sums = np.arange(-20.0, 30.0)[:, None]
        possible = np.asarray(mechanism.log_prob(value, sums)) > -np.inf
        assert np.array_equal(possible, (low <= sums) & (sums <= high))


def test_cells_that_exact_measurements_determine_stand_still():
    fibre = fibre_of([(np.array([0, 1]), np.array([1, 1]), 4), (np.array([0]), np.array([2]), 6)], 3)
    assert fibre.fixed.tolist() == [3, 1, -1]


def test_directions_of_a_batch_share_nothing():
    rng = np.random.default_rng(0)
    size, sums = 48, []
    for width in (1, 4, 8, 48):
        sums.append(directions.csc_array(np.kron(np.eye(size // width, dtype=int), np.ones((1, width), dtype=int))))
    scale = np.ones(sum(matrix.shape[0] for matrix in sums))
    found = directions.families(fibre_of([], size), directions.Sums(sums, scale), rng)
    noisy = np.vstack([matrix.toarray() for matrix in sums])
    for family in found:
        for cells, gains in zip(family.cells, family.gains, strict=True):
            moves = np.zeros((len(cells), size), dtype=int)
            np.add.at(moves, (np.arange(len(cells))[:, None], cells), gains)
            touched = np.concatenate([moves != 0, (moves @ noisy.T) != 0], axis=1)
            assert np.all(touched.sum(axis=0) <= 1)
    single = [family for family in found if family.cells.shape[2] == 1]
    moving = sum(np.count_nonzero(family.gains) for family in single)
    assert moving == size  # every cell moves by itself


# Large counts ---------------------------------------------------------------------------------------------------------


def test_large_counts_under_a_flat_law_are_generalised_least_squares(seed):
    """Far from zero, under a flat law and normal noise, the posterior is normal: least squares and its covariance."""
    scale = {"cell": 4.0, "rows": 3.0, "columns": 2.0}
    matrices = {"cell": np.eye(4, dtype=int), "rows": ROW, "columns": COLUMN}
    values = {"cell": [403.2, 297.5, 511.0, 350.1], "rows": [706.0, 858.9], "columns": [910, 650]}
    model = nw.Model({}, {"cells": nw.counts_up_to(2_000, shape=(4,))})
    parts = {name: measured(nw.Gaussian(scale=scale[name]), matrices[name], values[name]) for name in scale}
    found = moved(model, nw.Release(parts), seed, chains=1000, sweeps=40).astype(float)
    design = np.vstack(list(matrices.values()))
    weight = np.concatenate([np.full(len(matrices[name]), scale[name] ** -2.0) for name in scale])
    covariance = np.linalg.inv(design.T @ (weight[:, None] * design))
    estimate = covariance @ design.T @ (weight * np.concatenate([values[name] for name in scale]))
    assert agrees(found, estimate)
    centred = found - estimate
    assert agrees(centred[:, :, None] * centred[:, None, :], covariance)
    assert not agrees(centred[:, :, None] * centred[:, None, :], np.diag(np.diag(covariance)))
