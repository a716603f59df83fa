"""Naive beside exact: the figures of the table are what they say, and the naive fit is right or says that it is not."""

import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT
from targets import count_model, count_release

import noisewise as nw
from noisewise.samplers import NUTS, Importance


def test_the_table_tells_how_much_wider_and_how_far(count_reference, seed):
    entry = count_reference["by_alpha"]["25"]
    found = nw.compare(count_model(), count_release(), draws=20_000, seed=seed)
    row = found.table().loc["theta"]
    width = row["exact 97.5%"] - row["exact 2.5%"]
    assert row["wider"] == pytest.approx(width / (row["naive 97.5%"] - row["naive 2.5%"]))
    assert row["shift"] == pytest.approx((row["exact mean"] - row["naive mean"]) / row["naive sd"])
    truth = (entry["mean"] - entry["naive_mean"]) / entry["naive_sd"]
    assert abs(row["shift"] - truth) < 0.1
    assert isinstance(found.naive.sampler, Importance)


def test_poor_weights_give_way_to_chains(seed):
    """A prior far wider than the naive posterior: few of its draws carry weight, and NUTS takes over."""
    model = nw.Model(prior={"mu": dist.Normal(0.0, 1000.0)}, statistics={"s": lambda mu: dist.Normal(mu, 0.5)})
    release = nw.Release(s=nw.Laplace(scale=200.0).released(3.0))
    found = nw.compare(model, release, nw.Rejection(), draws=2_000, seed=seed)
    assert isinstance(found.naive.sampler, NUTS)
    assert found.naive.status == "complete"
    summary = found.naive.summary().loc["mu"]
    assert abs(summary["mean"] - 3.0) < LIMIT * summary["mcse"]
    assert summary["sd"] == pytest.approx(0.5, rel=0.15)
    assert found.table().loc["mu", "wider"] > 20
    labels = {text.get_text() for text in found.plot().legends[0].get_texts()}
    assert {"exact posterior", "naive posterior", "prior"} <= labels


def test_the_sampler_asked_for_is_the_exact_one(seed):
    found = nw.compare(count_model(), count_release(), nw.Rejection(plan="joint"), draws=500, seed=seed)
    assert found.exact.sampler == nw.Rejection(plan="joint")
    assert np.isfinite(found.table().to_numpy()).all()
