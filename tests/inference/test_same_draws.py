"""One seed gives one sequence of draws, from one version to the next: digests of every sampler and estimator."""

import json

import numpy as np
import pytest
import same_draws
from targets import briefly

ENTRIES = same_draws.entries()
FIRST = json.loads(same_draws.FIRST.read_text())
RUNS = dict(same_draws.runs())
BRIEFLY = [name for name in RUNS if "count" in name or name == "simulate: hierarchy"]
"""Every sampler and every estimator once."""
HERE, THERE = {"processor": "here"}, {"processor": "there"}


@pytest.mark.quick
def test_every_digest_is_of_a_run_there_is():
    assert ENTRIES
    for entry in ENTRIES:
        assert set(entry["digests"]) <= set(RUNS)
        assert set(entry["environment"]) == set(same_draws.environment())
    environments = [entry["environment"] for entry in ENTRIES]
    assert all(environments.count(one) == 1 for one in environments)
    missing = set(RUNS).difference(*(entry["digests"] for entry in ENTRIES))
    assert not missing, "no digest of these runs: run make catalogue"


@pytest.mark.bits
@pytest.mark.parametrize("name", briefly(RUNS, BRIEFLY))
def test_draws_are_those_of_the_version_before(name):
    """Where a change is meant, write the digests anew and say in the commit which changed, and why."""
    digests = same_draws.digests_in(same_draws.environment(), ENTRIES)
    if digests is None:
        pytest.skip("digests are of every bit, and none were written with these versions on this kind of processor")
    if name not in digests:
        pytest.skip("no digest of this run was written with these versions on this kind of processor")
    assert same_draws.digest(RUNS[name]()) == digests[name]


@pytest.mark.parametrize("name", same_draws.PLAIN)
def test_first_draws_are_those_of_the_version_before(name):
    """Within rounding, so on any processor. Negative control: the next seed's would be others, as the next rows are."""
    if same_draws.numpy_series() != FIRST["numpy"]:
        pytest.skip(f"variates of NumPy {FIRST['numpy']} were written, and those of another version may differ")
    written, values = FIRST["runs"][name], RUNS[name]()
    columns = {key for key, column in values.items() if isinstance(column, np.ndarray)}
    assert set(written) == columns
    rows = same_draws.FIRST_ROWS
    for key in columns:
        np.testing.assert_allclose(values[key][:rows], written[key], rtol=1e-8, atol=1e-8)
        assert not np.allclose(values[key][rows : 2 * rows], written[key], rtol=1e-3)


def test_a_draw_that_differs_in_its_last_bit_is_noticed():
    values = RUNS["simulate: hierarchy"]()
    moved = {**values, "rate": values["rate"].copy()}
    moved["rate"][3, 1] *= 1.0 + 2.0**-52
    assert same_draws.digest(moved) != same_draws.digest(values)


# The file of several environments -------------------------------------------------------------------------------------


def test_an_environment_without_an_entry_gets_one_and_leaves_the_others_as_they_are():
    there = {"environment": THERE, "digests": {"a": "1", "b": "2"}}
    entries = same_draws.with_entry([there], HERE, {"a": "3", "b": "4"})
    assert entries == [there, {"environment": HERE, "digests": {"a": "3", "b": "4"}}]
    assert same_draws.digests_in(HERE, entries) == {"a": "3", "b": "4"}
    assert same_draws.digests_in({"processor": "elsewhere"}, entries) is None


def test_a_run_that_is_new_leaves_every_other_digest_as_it_is():
    """Where it is written, and elsewhere."""
    there = {"environment": THERE, "digests": {"a": "1", "b": "2"}}
    here = {"environment": HERE, "digests": {"a": "3"}}
    entries = same_draws.with_new([here, there], HERE, {"new": "4"})
    assert entries == [there, {"environment": HERE, "digests": {"a": "3", "new": "4"}}]
    assert same_draws.with_new([there], HERE, {"new": "4"})[1]["digests"] == {"new": "4"}


def test_what_has_changed_here_is_dropped_elsewhere():
    """So is a run that is no more; one that is new here is new there, too."""
    there = {"environment": THERE, "digests": {"a": "1", "b": "2", "gone": "5"}}
    here = {"environment": HERE, "digests": {"a": "3", "b": "4", "gone": "6"}}
    entries = same_draws.with_entry([here, there], HERE, {"a": "3", "b": "7", "new": "8"})
    assert same_draws.digests_in(THERE, entries) == {"a": "1"}
    assert same_draws.digests_in(HERE, entries) == {"a": "3", "b": "7", "new": "8"}
    assert len(entries) == 2
