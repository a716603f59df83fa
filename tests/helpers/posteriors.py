"""Posteriors made without a run, for tests of tables and pictures."""

from functools import cache

import numpy as np

import noisewise as nw
from noisewise.axes import Axes

TOLD = {"released": {"stay": 31.0}, "release_hash": "", "sampler": nw.Rejection(), "seed": 1}


@cache
def rates():
    """Two rates by county, with labels that Markdown and LaTeX would read as signs of their own; a share; a chance."""
    rng = np.random.default_rng(2)
    draws = {"rate": rng.normal([10.0, 2_000.0], [0.5, 40.0], size=(4_000, 2)), "p_1": rng.beta(40, 60, 4_000)}
    axes = Axes.of("test", {"rate": ("county",)}, {"county": ["A&B", "C|D"]}, {"rate": (2,), "p_1": ()})
    posterior = nw.Posterior(draws, ("rate", "p_1"), axes=axes, **(TOLD | {"released": {}}))
    return posterior.derive(large=lambda p_1: p_1 > 0.4)


@cache
def cases():
    """Two rates by county and their ratio, with labels and units in which a $ is no formula."""
    rng = np.random.default_rng(1)
    axes = Axes.of("test", {"rate": ("county",)}, {"county": ["Bronx", "$Kings"]}, {"rate": (2,)})
    draws = {"stay": rng.normal(30.0, 2.0, 400), "rate": rng.gamma(4.0, 1.0, (400, 2))}
    plain = nw.Posterior(draws, ("rate",), axes=axes, **TOLD)
    derived = plain.derive(ratio=lambda rate: rate[0] / rate[1], more=lambda rate: rate[0] > rate[1], one=lambda: 1.0)
    return derived.described(labels={"rate": "Cases", "ratio": "Ratio of rates"}, units={"rate": "per $1,000"})
