"""One seed gives one sequence of draws, from one version to the next: digests of every sampler and estimator."""

import json

import pytest
import same_draws
from targets import briefly

KEPT = json.loads(same_draws.FILE.read_text())
RUNS = dict(same_draws.runs())
BRIEFLY = [name for name in RUNS if "count" in name or name == "simulate: hierarchy"]
"""Every sampler and every estimator once."""


@pytest.mark.quick
def test_every_digest_is_of_a_run_there_is():
    assert set(RUNS) == set(KEPT["digests"])


@pytest.mark.bits
@pytest.mark.parametrize("name", briefly(RUNS, BRIEFLY))
def test_draws_are_those_of_the_version_before(name):
    """Where a change is meant, write the digests anew and say in the commit which changed, and why."""
    if same_draws.environment() != KEPT["environment"]:
        pytest.skip("digests are of every bit: of other versions, or another kind of processor, they say nothing")
    assert same_draws.digest(RUNS[name]()) == KEPT["digests"][name]


def test_a_draw_that_differs_in_its_last_bit_is_noticed():
    values = RUNS["simulate: hierarchy"]()
    moved = {**values, "rate": values["rate"].copy()}
    moved["rate"][3, 1] *= 1.0 + 2.0**-52
    assert same_draws.digest(moved) != same_draws.digest(values)
