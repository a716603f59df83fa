"""Draws that stay on an accelerator until somebody asks for them, and what is told of them there; tried on the CPU."""

import copy
import gc
import itertools
import os
import pickle
import signal
import threading
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from targets import count_model, count_release

import noisewise as nw
from noisewise.diagnostics import tails, weights
from noisewise.engine import device as device_engine
from noisewise.model.on_device import held as held_module
from noisewise.model.on_device.held import GrowingColumn, Held, rows_or_more
from noisewise.numerics import double
from noisewise.results import intervals, on_device
from noisewise.results.drawn import Drawn, where_they_are
from noisewise.samplers import rejection

DRAWS, ROWS = 5_000, 2**12
OF_SD, OF_MEAN = 1e-12, 1e-14
"""What results/on_device.py claims of means and standard deviations."""


@pytest.fixture(autouse=True)
def few_are_worth_staying(monkeypatch):
    monkeypatch.setattr(rejection, "WORTH_STAYING", 1)


@pytest.fixture
def fetched(monkeypatch):
    """Bytes of what comes from the device, one entry for each fetch."""
    sizes, real = [], held_module.to_host

    def counted(arrays):
        sizes.append(sum(array.nbytes for array in jax.tree.leaves(arrays)))
        return real(arrays)

    monkeypatch.setattr(held_module, "to_host", counted)
    monkeypatch.setattr(on_device, "to_host", counted)
    return sizes


@cache
def two_groups():
    """Two roots; one of them has a vector and a whole number."""
    model = nw.Model(
        {"a": dist.Normal(2.0, 2.0), "n": dist.Poisson(3.0)},
        {"pair": lambda a: dist.Normal(a, 1.0).expand([2]), "count": lambda n: dist.Poisson(1.0 + n)},
    )
    noise = nw.Laplace(scale=1.0)
    return model, nw.Release(pair=noise.released(np.array([1.0, 0.5])), count=noise.released(2.0))


def drawn(seed, problem=None, sampler=None, draws=DRAWS, **options):
    given = {"engine": nw.Device("cpu", rows=ROWS), "on_failure": "return", "seed": seed, "draws": draws}
    return nw.sample(*(problem or two_groups()), sampler or nw.Rejection(), **given | options)


def stays(posterior):
    return {name: isinstance(column, Held) for name, column in where_they_are(posterior.draws).items()}


def fetched_at_once(seed, **options):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rejection, "WORTH_STAYING", 10**9)
        posterior = drawn(seed, **options)
    assert not any(stays(posterior).values())
    return posterior


plain_draws = cache(fetched_at_once)
"""One for all tests, which only read it."""


def close(found, expected, mean, sd):
    return np.all(np.abs(found - expected) <= OF_SD * sd + OF_MEAN * np.abs(mean))


def test_draws_are_those_that_are_fetched_at_once(seed, fetched):
    stayed = drawn(seed)
    assert stays(stayed) == dict.fromkeys(["a", "n", "pair", "count"], True)
    assert len(stayed) == DRAWS
    fetched.clear()
    first = stayed["pair"]
    assert fetched == [rows_or_more(DRAWS) * 2 * 8]
    assert stayed["pair"] is first
    assert len(fetched) == 1
    assert stays(stayed) == {"a": True, "n": True, "pair": False, "count": True}
    plain = plain_draws(seed)
    assert list(stayed.draws) == list(plain.draws)
    for name in plain.draws:
        np.testing.assert_array_equal(stayed[name], plain[name])
        assert stayed[name].dtype == plain[name].dtype
        assert not stayed[name].flags.writeable
    assert stayed.log_evidence == plain.log_evidence
    assert stayed.proposals == plain.proposals


def test_a_summary_fetches_a_few_numbers(seed, fetched):
    stayed = drawn(seed)
    fetched.clear()
    summary, text, ess = stayed.summary(), repr(stayed), stayed.ess
    central, shortest = stayed.interval(0.9), stayed.interval(0.9, "hdi")
    assert stayed._repr_html_()
    assert all(stays(stayed).values())
    assert 0 < sum(fetched) < 200 * 8 * 5  # five scalars
    plain = plain_draws(seed)
    expected = plain.summary()
    assert list(summary.index) == list(expected.index)
    assert list(summary.columns) == list(expected.columns)
    for column in summary.columns:
        if column in ("mean", "sd", "mcse"):
            assert close(summary[column], expected[column], expected["mean"], expected["sd"])
        else:
            np.testing.assert_array_equal(summary[column], expected[column])
    assert text == repr(plain)
    assert ess == plain.ess
    for name in plain.draws:
        np.testing.assert_array_equal(central[name], plain.interval(0.9)[name])
        np.testing.assert_array_equal(shortest[name], plain.interval(0.9, "hdi")[name])
        np.testing.assert_array_equal(stayed.interval(simultaneous=True)[name], plain.interval(simultaneous=True)[name])


def padded(values, beyond=7.5, rows=None):
    """Values on the device in an array that goes on after them, up to so many rows."""
    rest = np.full((300 if rows is None else rows - len(values), *values.shape[1:]), beyond).astype(values.dtype)
    with double():
        return Held([(jax.numpy.asarray(np.concatenate([values, rest])), 0, len(values))])


def columns(seed):
    rng = np.random.default_rng(seed)
    return {
        "skewed": rng.gamma(0.3, size=4_001),
        "far from zero": 1e9 + rng.normal(size=(3_000, 2)),
        "whole": rng.poisson(1.5, size=5_000),
        "ties": np.repeat(rng.normal(size=40), 50),
        "matrix": rng.normal(size=(1_000, 2, 3)) * 10.0 ** np.arange(3),
        "heavy": np.column_stack([rng.standard_cauchy(6_000), rng.normal(size=6_000)]),
        "heavy to one side": rng.pareto(0.8, size=9_000),
        "few": rng.standard_cauchy(tails.LEAST),
        "too few": rng.standard_cauchy(tails.LEAST - 1),
        "one": rng.normal(size=1),
        "two": rng.normal(size=2),
        "infinite": np.append(rng.standard_cauchy(2_000), np.inf)[:, None] * np.array([1.0, 0.0 + 1.0]),
    }


LEVELS = [0.0, 0.025, 1 / 3, 0.5, 0.975, 1.0]


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", list(columns(0)))
def test_what_is_told_there_is_what_numpy_tells(name, seed):
    values = columns(seed)[name]
    column, numbers = padded(values, rows=10_000), values.astype(float)
    mean, sd = on_device.mean_and_sd(column)
    expected = weights.mean_and_sd(numbers, None)
    if name == "infinite":
        np.testing.assert_array_equal([mean, sd], expected)
    else:
        exact = np.mean(numbers.astype(np.longdouble), axis=0).astype(float)
        spread = np.nan_to_num(expected[1])
        assert close(mean, exact, exact, spread)
        assert close(mean, expected[0], exact, spread)
        assert close(np.nan_to_num(sd), spread, exact, spread)
    np.testing.assert_array_equal(on_device.quantiles(column, LEVELS), np.quantile(numbers, LEVELS, axis=0))
    np.testing.assert_array_equal(on_device.heavy_tails(column), tails.heavy_tails(numbers))
    for level in (0.5, 0.9):
        np.testing.assert_array_equal(on_device.central(column, level), intervals.central(numbers, None, level))
        np.testing.assert_array_equal(on_device.shortest(column, level), intervals.shortest(numbers, None, level))
    assert np.any(on_device.heavy_tails(column) > tails.HEAVY) or name not in ("heavy", "heavy to one side")


def test_means_of_many_are_sums_of_sums(seed):
    """Sixteen of them. Negative control: a running sum has more rounding."""
    values = 1.0 + np.random.default_rng(seed).random((2**17, 16))
    mean, sd = on_device.mean_and_sd(padded(values))
    exact = np.mean(values.astype(np.longdouble), axis=0).astype(float)
    assert close(mean, exact, 0.0, sd / 100.0)
    assert not close(np.cumsum(values, axis=0)[-1] / len(values), exact, 0.0, sd / 100.0)


def test_rows_beyond_the_draws_would_be_noticed(seed):
    """Negative control: the whole of the longer array, as if it were draws."""
    values = np.random.default_rng(seed).gamma(2.0, size=4_000)
    array = padded(values, beyond=0.0).first_rows_of()
    wrong = Held([(array, 0, len(array))])
    mean, sd = weights.mean_and_sd(values, None)
    assert not close(on_device.mean_and_sd(wrong)[0], mean, mean, sd)
    assert not close(on_device.mean_and_sd(wrong)[1], sd, mean, sd)
    assert not np.array_equal(on_device.quantiles(wrong, LEVELS), np.quantile(values, LEVELS))
    assert not np.array_equal(on_device.shortest(wrong, 0.9), intervals.shortest(values, None, 0.9))


def test_a_room_holds_the_rows_of_its_pieces_and_nothing_else(seed):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(size, 2)) for size in (700, 1, 1_500, 30)]
    room = GrowingColumn(6_000, padded(parts[0]))
    for part in parts:
        room.put(padded(part)[len(part) // 3 : -1], room.filled)
    plain = np.concatenate([part[len(part) // 3 : -1] for part in parts])
    np.testing.assert_array_equal(np.asarray(room[: len(plain)]), plain)
    rows = room[:900]
    np.testing.assert_array_equal(np.asarray(rows), plain[:900])
    assert len(rows.first_rows_of()) == rows_or_more(len(rows)) < rows_or_more(6_000)
    assert [rows_or_more(rows) for rows in (0, 1, 1024, 1025, 10**8)] == [1024, 1024, 1024, 2048, 100_663_296]


def test_long_columns_are_fetched_part_by_part(monkeypatch, fetched, seed):
    values = np.random.default_rng(seed).normal(size=(5_000, 2))
    monkeypatch.setattr(held_module, "PART", 3_000)
    np.testing.assert_array_equal(np.asarray(padded(values)), values)
    assert max(fetched) <= 3_000 * 8
    np.testing.assert_array_equal(np.asarray(padded(values)[1_234:4_999]), values[1_234:4_999])


def test_nothing_of_the_blocks_is_left(seed):
    gc.collect()
    gc.freeze()  # what has been there before is not looked at again
    before = jax.live_arrays()
    others = {id(array) for array in before}

    def left():
        gc.collect()
        return sum(array.nbytes for array in jax.live_arrays() if id(array) not in others)

    posterior = drawn(seed)
    assert left() == 5 * 8 * rows_or_more(DRAWS)
    posterior.summary()
    assert left() == 5 * 8 * rows_or_more(DRAWS)
    assert len(posterior["a"]) == DRAWS
    assert left() == 4 * 8 * rows_or_more(DRAWS)
    del posterior
    assert left() == 0


@pytest.mark.parametrize("form", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy], ids=["pickle", "copy"])
def test_pickles_and_copies_hold_arrays(form, seed):
    stayed = drawn(seed)
    other = form(stayed)
    assert not any(stays(other).values())
    for name in stayed.draws:
        np.testing.assert_array_equal(other[name], stayed[name])


def test_files_and_tables_have_the_numbers(seed, tmp_path):
    stayed = drawn(seed)
    stayed.save(tmp_path / "posterior.nc")
    plain = plain_draws(seed)
    loaded = nw.Posterior.load(tmp_path / "posterior.nc")
    for name in plain.draws:
        np.testing.assert_array_equal(loaded[name], plain[name])
    assert drawn(seed).to_pandas().equals(plain.to_pandas())
    with pytest.raises(TypeError):
        stayed.draws["a"] = plain["a"]


def test_draws_are_a_dict_as_always(seed):
    """Where scripts and other packages take them for one."""
    plain, held = plain_draws(seed), where_they_are(drawn(seed).draws)
    scalars = ["a", "n", "count"]

    def of_scalars():
        return Drawn({name: column for name, column in held.items() if name in scalars})

    table = pd.DataFrame({name: plain[name] for name in scalars})
    for make in (pd.DataFrame, lambda draws: pd.DataFrame(dict(draws)), lambda draws: pd.DataFrame({**draws})):
        assert make(of_scalars()).equals(table[list(of_scalars())])
    assert pd.DataFrame(of_scalars().copy())["a"].equals(table["a"])
    assert set({"b": 1.0} | of_scalars()) == {"b", *scalars}
    assert "on the accelerator: a" in repr(of_scalars())
    stayed = drawn(seed).draws
    assert isinstance(stayed, dict)
    assert stayed.get("none") is None
    np.testing.assert_array_equal(stayed.get("a"), plain["a"])
    assert all(isinstance(column, np.ndarray) for column in stayed.values())
    with pytest.raises(TypeError, match="copy it to a dict of your own"):
        stayed["a"] = plain["a"]


def test_a_column_that_was_cut_short_is_put_there_again(monkeypatch):
    """By a second Ctrl-C, which waits for nothing: rows of one draw stay side by side."""
    pieces, calls, real = [Held([(jnp.arange(4.0 * n, 4.0 * n + 4.0), 0, 4)]) for n in range(3)], [], held_module._put

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    column = GrowingColumn(12, pieces[0])
    column.put(pieces[0], 0)
    monkeypatch.setattr(held_module, "_put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        column.put(np.concatenate(pieces[1:]), 4)
    column.put(np.concatenate(pieces[1:]), 4)
    np.testing.assert_array_equal(np.asarray(column[:12]), np.arange(12.0))


def test_a_device_that_is_full_leaves_the_draws_here(seed, monkeypatch):
    plain = plain_draws(seed)

    def full(*arguments):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")

    monkeypatch.setattr(GrowingColumn, "__init__", full)
    fetched = drawn(seed)
    assert not any(stays(fetched).values())
    for name in plain.draws:
        np.testing.assert_array_equal(fetched[name], plain[name])


SQUARE = {"square": lambda theta: theta**2}


def test_only_what_a_function_takes_is_fetched(seed):
    stayed = drawn(seed)
    assert stayed.expect(lambda n: n >= 0) == 1.0
    assert stays(stayed) == {"a": True, "n": False, "pair": True, "count": True}
    more = stayed.derive(double=lambda n: 2.0 * n).described(labels={"a": "A"})
    assert stays(more) == {"a": True, "n": False, "pair": True, "count": True, "double": False}
    assert more.summary().loc["double", "mean"] == pytest.approx(2.0 * stayed.summary().loc["n", "mean"], rel=1e-12)
    model = nw.Model({"theta": dist.Gamma(25.0, 1.0)}, {"count": lambda theta: dist.Poisson(theta)}, derived=SQUARE)
    own = drawn(seed, (model, count_release()))
    assert stays(own) == {"theta": False, "count": True, "square": False}
    np.testing.assert_allclose(own["square"], own["theta"] ** 2, rtol=1e-12)


def test_another_thread_tells_the_same(seed):
    stayed, tables = drawn(seed), []
    thread = threading.Thread(target=lambda: tables.append(stayed.summary()))
    thread.start()
    thread.join()
    assert tables[0].equals(stayed.summary())
    assert all(stays(stayed).values())


def test_a_run_that_ends_early_leaves_what_it_has(seed):
    limited = nw.Rejection(max_proposals=3 * ROWS)
    problem = count_model(), count_release()
    stayed = drawn(seed, problem, limited, draws=10**5)
    assert stayed.status == "max_proposals"
    assert all(stays(stayed).values())
    assert all(
        len(column.first_rows_of()) == rows_or_more(len(stayed)) for column in where_they_are(stayed.draws).values()
    )
    plain = fetched_at_once(seed, problem=problem, sampler=limited, draws=10**5)
    assert (stayed.status, stayed.message, len(stayed)) == (plain.status, plain.message, len(plain))
    np.testing.assert_array_equal(stayed["theta"], plain["theta"])


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_leaves_the_first_draws_there(seed, monkeypatch):
    calls, real = itertools.count(), rejection.accept

    def interrupting(*given):
        if next(calls) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*given)

    monkeypatch.setattr(rejection, "accept", interrupting)
    problem = count_model(), count_release()
    stayed = drawn(seed, problem, draws=10**6)
    assert stayed.status == "interrupted"
    assert all(stays(stayed).values())
    assert 0 < len(stayed) < 10**6
    assert all(
        len(column.first_rows_of()) == rows_or_more(len(stayed)) for column in where_they_are(stayed.draws).values()
    )
    plain = fetched_at_once(seed, problem=problem, draws=len(stayed))
    np.testing.assert_array_equal(stayed["theta"], plain["theta"])


def test_what_does_not_stay(seed, tmp_path, monkeypatch):
    """Logged, in single precision, few, weighted, or too many for the memory."""
    problem = count_model(), count_release()
    assert all(stays(drawn(seed, problem)).values())
    assert not any(stays(drawn(seed, problem, checkpoint=tmp_path / "run")).values())
    assert not any(stays(drawn(seed, problem, engine=nw.Device("cpu", precision="single", rows=ROWS))).values())
    assert not any(stays(drawn(seed, problem, engine=nw.Threads(1))).values())
    assert not any(stays(drawn(seed, problem, nw.Importance())).values())
    monkeypatch.setattr(device_engine, "memory", lambda: (4 * 5 * 8 * rows_or_more(DRAWS), 10**9))
    assert all(stays(drawn(seed)).values())
    monkeypatch.setattr(device_engine, "memory", lambda: (4 * 5 * 8 * rows_or_more(DRAWS) - 4, 10**9))
    assert not any(stays(drawn(seed)).values())
    monkeypatch.setattr(device_engine, "memory", lambda: None)
    assert not any(stays(drawn(seed)).values())


@pytest.mark.parametrize("cause", ["RESOURCE_EXHAUSTED: Out of memory", "INTERNAL: a mistake"])
def test_without_memory_to_sort_the_draws_are_fetched(cause, seed, monkeypatch):
    def failing(*given, **options):
        raise jax.errors.JaxRuntimeError(cause)

    stayed = drawn(seed)
    monkeypatch.setattr(on_device, "quantiles", failing)
    if "memory" not in cause:  # a mistake is not hidden
        with pytest.raises(jax.errors.JaxRuntimeError, match="mistake"):
            stayed.summary()
        return
    summary = stayed.summary(level=0.5)
    assert not any(stays(stayed).values())
    assert summary.loc["a", "25%"] == np.quantile(stayed["a"], 0.25)
