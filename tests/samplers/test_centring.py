"""Coordinates of hierarchies: which part is chosen, and that the draws stay those of the posterior."""

from functools import cache

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from scipy import stats

import noisewise as nw
from noisewise.samplers.nuts import usual
from noisewise.samplers.walking.centring import best_centring


def standing(information, rows=4_000, entries=20, seed=1):
    """Draws of x, m and t where the release tells so much of x, in units of 1/t^2: the posterior given t is normal."""
    rng = np.random.default_rng(seed)
    t = np.exp(0.8 * rng.normal(size=(rows, 1)))
    m = 2.0 + 0.5 * rng.normal(size=(rows, 1))
    weight = information * t**2 / (1.0 + information * t**2)
    seen = rng.normal(2.0, 1.0, size=entries)
    x = weight * seen + (1 - weight) * m + t * np.sqrt(1 - weight) * rng.normal(size=(rows, entries))
    return x, np.broadcast_to(m, x.shape), np.broadcast_to(t, x.shape)


def test_what_the_release_tells_nothing_of_is_standardised():
    assert np.all(best_centring(*standing(1e-6)) == 0.0)


def test_what_the_release_tells_all_of_is_left_as_it_is():
    assert np.all(best_centring(*standing(1e4)) == 1.0)


def test_between_the_two_lies_a_part():
    parts = [best_centring(*standing(information)).mean() for information in (0.03, 0.3, 3.0)]
    assert 0.0 < parts[0] < parts[1] < parts[2] < 1.0


def test_the_part_is_the_same_in_any_unit():
    x, m, t = standing(0.3)
    for unit in (1e-9, 1e9):
        assert np.array_equal(best_centring(x * unit, m * unit, t * unit), best_centring(x, m, t))


def test_a_location_or_a_scale_that_does_not_move_is_no_regressor():
    x, m, t = standing(0.3)
    still = np.full_like(m, 2.0)
    assert np.all(np.isfinite(best_centring(x, still, t)))
    assert np.all(np.isfinite(best_centring(x, m, np.full_like(t, 3.0))))


@cache
def funnel(number, noise):
    """Normal groups of unknown spread: given the spread all is normal, so the truth is an integral over it."""
    rng = np.random.default_rng(7)
    released = (1.0 + 0.5 * rng.normal(size=number) + noise * rng.normal(size=number)).round(2)
    model = nw.Model(
        {
            "m": dist.Normal(0.0, 3.0),
            "t": dist.HalfNormal(1.0),
            "x": lambda m, t: dist.Normal(m, t).expand([number]),
        },
        {"s": lambda x: dist.Normal(x, 0.3)},
    )
    return model, nw.Release(s=nw.Gaussian(scale=float(noise)).released(released)), released


def truth(released, noise):
    """Mean of t, of m and of the first group: by a sum over t, with m and x in closed form."""
    t = np.linspace(1e-4, 6.0, 20_001)
    own = t**2 + noise**2 + 0.09
    precision = len(released) / own + 1 / 9
    m = released.sum() / own / precision
    log_density = stats.halfnorm.logpdf(t)
    log_density += -0.5 * len(released) * np.log(own) - 0.5 * np.log(precision)
    log_density += -0.5 * ((released**2).sum() / own - m**2 * precision)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    pull = t**2 / own
    return {"t": weight @ t, "m": weight @ m, "x[0]": weight @ (m + pull * (released[0] - m))}


@pytest.mark.parametrize(
    "noise", [pytest.param(0.02, id="much told", marks=pytest.mark.long), pytest.param(3.0, id="little told")]
)
def test_chains_through_a_hierarchy_meet_at_the_posterior(noise, seed):
    """Twelve groups; with large noise chains on the values themselves would stick in the funnel's neck."""
    model, release, released = funnel(12, noise)
    posterior = nw.sample(model, release, nw.NUTS(), draws=4_000, seed=seed)
    assert posterior.status == "complete"
    table, exact = posterior.summary(), truth(released, noise)
    for name, value in exact.items():
        assert abs(table.loc[name, "mean"] - value) < LIMIT * table.loc[name, "mcse"]
    assert posterior.diagnostics["divergences"] < 40


def test_a_hierarchy_resumes_to_the_same_draws(tmp_path, seed):
    model, release, _ = funnel(12, 3.0)
    settings = dict(draws=200, seed=seed, on_failure="return")
    plain = nw.sample(model, release, nw.NUTS(chains=2, warmup=100), **settings)
    kept = nw.sample(model, release, nw.NUTS(chains=2, warmup=100), checkpoint=tmp_path / "run", **settings)
    again = nw.sample(model, release, nw.NUTS(chains=2, warmup=100), checkpoint=tmp_path / "run", **settings)
    for posterior in (kept, again):
        assert np.array_equal(posterior["x"], plain["x"])


def test_mass_matrices_begin_with_the_variances_within_chains(seed):
    """Not those between: chains that have not met yet lie far apart. A coordinate that stands still keeps a step."""
    rng = np.random.default_rng(seed)
    walked = rng.normal(0.0, [2.0, 0.1, 0.0], (4, 100, 3)) + 50.0 * np.arange(4)[:, None, None]
    variances = usual(walked)
    assert variances[:2] == pytest.approx([4.0, 0.01], rel=LIMIT * np.sqrt(2.0 / 396))  # 396 degrees of freedom
    assert 0.0 < variances[2] < 1e-4
