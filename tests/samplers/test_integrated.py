"""Samplers on problems whose layers are integrated out: the posterior is that of the model as written."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from scipy import stats

import noisewise as nw
from noisewise import samplers
from noisewise.mechanisms import LatentScale
from noisewise.samplers.proposals import collapsed

UNITS = 4
NOISE = nw.DiscreteLaplace(scale=2.0)
PUBLISHED = np.array([3, 11, 0, 6])
RELEASE = nw.Release(s=NOISE.released(PUBLISHED))
FAR = nw.Release(s=NOISE.released(PUBLISHED + 1_000))
SAMPLERS = [
    pytest.param(nw.Rejection(), marks=pytest.mark.long),  # what is chosen
    nw.Importance(proposal="adapted", collapse=True),
    pytest.param(nw.NUTS(), marks=pytest.mark.long),
    pytest.param(nw.Augmentation(chains=160, warmup=60), marks=pytest.mark.long),
]


def model(reader=lambda layer: dist.Poisson(layer), **more):
    return nw.Model(
        {"a": dist.Gamma(4.0, 1.0), "layer": lambda a: dist.Gamma(a, 1.0).expand([UNITS])}, {"s": reader}, **more
    )


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of fewer rows."""
    monkeypatch.setattr(collapsed, "ROWS", 2**11)


MODEL = model()
AS_WRITTEN = model(reader=lambda layer: dist.Poisson(jnp.exp(jnp.log(layer))))
"""The same model, in words that are not recognised."""


def exact():
    """Posterior means of a, of every layer's entry and of every count, and the log evidence, by sums and quadrature."""
    grid = np.linspace(1e-3, 30.0, 6_001)
    k = np.arange(0, 80)
    log_noise = np.asarray(NOISE.log_prob(PUBLISHED[:, None], k[None, :]))  # (units, k)
    log_q = stats.nbinom.logpmf(k[None, :], grid[:, None], 0.5)  # (grid, k)
    terms = np.exp(log_q[:, None, :] + log_noise[None])
    m = terms.sum(axis=2)
    weight = np.exp(stats.gamma.logpdf(grid, 4.0)) * m.prod(axis=1)
    evidence = np.trapezoid(weight, grid)
    s = (terms * k).sum(axis=2) / m
    layer = (s + grid[:, None]) / 2.0
    mean = {
        "a": np.trapezoid(weight * grid, grid) / evidence,
        "s": np.trapezoid(weight[:, None] * s, grid, axis=0) / evidence,
        "layer": np.trapezoid(weight[:, None] * layer, grid, axis=0) / evidence,
    }
    return mean, np.log(evidence)


MEAN, LOG_EVIDENCE = exact()


@cache
def sampled(sampler=None):
    return nw.sample(MODEL, RELEASE, sampler, draws=4_000, seed=1, on_failure="return")


@pytest.mark.parametrize("sampler", [None, *SAMPLERS])
def test_the_posterior_is_that_of_quadrature(sampler):
    posterior = sampled(sampler)
    # chains as short as these may not be sure that they have mixed; their errors are right all the same
    assert posterior.status == "complete" or posterior.chains
    assert "'layer' integrated out" in posterior.reason
    assert posterior.parameters == posterior.problem.model.parameters == ("a", "layer")
    summary = posterior.summary()
    for name, truth in MEAN.items():
        labels = [name] if np.ndim(truth) == 0 else [f"{name}[{unit}]" for unit in range(UNITS)]
        for label, value in zip(labels, np.atleast_1d(truth), strict=True):
            assert abs(summary.loc[label, "mean"] - value) < LIMIT * summary.loc[label, "mcse"], label
    if posterior.log_evidence is not None:
        assert abs(posterior.log_evidence - LOG_EVIDENCE) < LIMIT * posterior.log_evidence_se


def test_it_is_the_posterior_of_the_model_as_written():
    ours = sampled()
    written = nw.sample(AS_WRITTEN, RELEASE, ours.sampler, draws=1_500, seed=1)
    assert "integrated out" not in written.reason
    for label in ("a", *(f"layer[{unit}]" for unit in range(UNITS))):
        first, second = ours.summary().loc[label], written.summary().loc[label]
        assert abs(first["mean"] - second["mean"]) < LIMIT * np.hypot(first["mcse"], second["mcse"])
    # a layer with its statistic: their dependence is the draw's own work
    for posterior in (ours, written):
        surprise = posterior["layer"] - (posterior["s"] + posterior["a"][:, None]) / 2.0
        weights = posterior.weights if posterior.weights is not None else np.full(len(surprise), 1.0 / len(surprise))
        error = np.sqrt(np.sum((weights[:, None] * surprise) ** 2, axis=0))
        assert np.all(np.abs(weights @ surprise) < LIMIT * error)
        variance = weights @ (surprise**2 - (posterior["s"] + posterior["a"][:, None]) / 4.0)
        spread = np.sqrt(np.sum((weights[:, None] * surprise**2) ** 2, axis=0))
        assert np.all(np.abs(variance) < LIMIT * spread)


def test_the_same_draws_on_any_engine_and_when_named(tmp_path):
    ours = nw.sample(MODEL, RELEASE, draws=500, seed=3, engine=nw.Threads(2))
    one = nw.sample(MODEL, RELEASE, draws=500, seed=3, engine=nw.Threads(1), checkpoint=tmp_path / "run")
    again = nw.sample(MODEL, RELEASE, ours.sampler, draws=500, seed=ours.seed)
    resumed = nw.sample(MODEL, RELEASE, draws=500, seed=3, checkpoint=tmp_path / "run")
    for other in (one, again, resumed):
        assert all(np.array_equal(ours[name], other[name]) for name in ("a", "layer", "s"))
    assert not np.array_equal(ours["layer"], nw.sample(MODEL, RELEASE, ours.sampler, draws=500, seed=4)["layer"])


def test_labels_and_derived_quantities_are_those_of_the_model():
    labelled = model(dims={"layer": ("place",)}, derived={"largest": lambda layer: layer.max()})
    release = nw.Release(s=NOISE.released(PUBLISHED, coords={"place": ["A", "B", "C", "D"]}))
    posterior = nw.sample(labelled, release, draws=500, seed=1)
    assert "layer[B]" in posterior.summary().index
    assert np.array_equal(posterior["largest"], posterior["layer"].max(axis=1))


def test_a_run_cut_short_returns_whole_rows():
    posterior = nw.sample(MODEL, RELEASE, nw.Rejection(max_proposals=3_000), draws=4_000, seed=1, on_failure="return")
    assert posterior.status == "max_proposals"
    assert 0 < len(posterior) == len(posterior["layer"])
    nothing = nw.sample(MODEL, FAR, nw.Rejection(max_proposals=1), draws=400, seed=1, on_failure="return")
    assert nothing["layer"].shape == (0, UNITS)


def test_what_a_proposal_names_stays():
    proposal = {"layer": lambda a: dist.Gamma(a + 2.0, 1.0).expand([UNITS])}
    posterior = nw.sample(MODEL, RELEASE, nw.Importance(proposal=proposal), draws=2_000, seed=1, on_failure="return")
    assert "integrated out" not in posterior.reason


def test_a_forecast_is_of_the_problem_that_is_sampled():
    forecast = nw.forecast(MODEL, RELEASE, draws=4_000, seed=1)
    assert forecast.choice == sampled().sampler


def test_a_layer_drawn_block_by_block(monkeypatch):
    """Given all else every entry has its gamma law, in every block, the last and shorter one too; blocks are apart."""
    monkeypatch.setattr(samplers.integrated, "AT_ONCE", 300 * UNITS)
    posterior = nw.sample(MODEL, RELEASE, nw.Importance(), draws=2_050, seed=1, on_failure="return")
    rate = 2.0
    at = stats.gamma.cdf(posterior["layer"], posterior["a"][:, None] + posterior["s"], scale=1.0 / rate)
    assert len(np.unique(at)) == at.size
    assert stats.kstest(at.ravel(), "uniform").pvalue > 1e-6
    assert stats.kstest(at[1_800:].ravel(), "uniform").pvalue > 1e-6
    blocks = stats.norm.ppf(at[:1_800]).reshape(6, -1)
    together = np.corrcoef(blocks)[np.triu_indices(6, 1)]
    assert np.all(np.abs(together) < LIMIT / np.sqrt(blocks.shape[1]))
    alone = nw.sample(MODEL, RELEASE, nw.Importance(), draws=2_050, seed=1, on_failure="return", engine=nw.Threads(1))
    assert np.array_equal(alone["layer"], posterior["layer"])


def two():
    """Two layers of one shape behind two statistics."""
    prior = {"a": dist.Gamma(4.0, 1.0)}
    prior |= {name: lambda a: dist.Gamma(a, 1.0).expand([UNITS]) for name in ("first", "second")}
    return nw.Model(prior, {"s": lambda first: dist.Poisson(first), "t": lambda second: dist.Poisson(second)})


def test_two_layers_are_drawn_apart():
    release = nw.Release(s=RELEASE["s"], t=RELEASE["s"])
    posterior = nw.sample(two(), release, nw.Importance(), draws=4_000, seed=1, on_failure="return")
    assert "'first', 'second' integrated out" in posterior.reason
    centred = [
        posterior[n] - (posterior[s] + posterior["a"][:, None]) / 2.0 for n, s in (("first", "s"), ("second", "t"))
    ]
    # given all else every row's are independent, whatever its weight
    products = centred[0] * centred[1]
    assert np.all(np.abs(products.mean(axis=0)) < LIMIT * products.std(axis=0) / np.sqrt(len(products)))


def test_what_a_mechanism_reads_stays():
    noise = LatentScale(nw.Laplace(scale=1.0), statistic="layer", bound=0.5)
    release = nw.Release(s=noise.released(PUBLISHED.astype(float)))
    posterior = nw.sample(MODEL, release, nw.Importance(), draws=200, seed=1, on_failure="return")
    assert "integrated out" not in posterior.reason


def test_what_has_no_noise_keeps_its_layer():
    naive = nw.Release(s=nw.Exact().released(np.maximum(PUBLISHED, 1)))
    posterior = nw.sample(MODEL, naive, nw.Importance(), draws=400, seed=1, on_failure="return")
    assert "integrated out" not in posterior.reason


@pytest.mark.long
def test_the_same_draws_in_other_processes():
    sampler = nw.Importance(min_ess=1.0)
    ours = nw.sample(MODEL, RELEASE, sampler, draws=9_000, seed=1)
    elsewhere = nw.sample(MODEL, RELEASE, sampler, draws=9_000, seed=1, engine=nw.Processes(2))
    assert all(np.array_equal(ours[name], elsewhere[name]) for name in ("a", "layer", "s"))
