"""Checkpoints: after any interruption the same draws, bit by bit; what is not this run's is refused; files are data."""

import errno
import io
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
from functools import cache
from importlib import metadata
from pathlib import Path

import chaos
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from targets import briefly, count_model, count_release, lalonde_model, lalonde_release

import noisewise as nw
from noisewise.checkpoint import describe, inspect, opening
from noisewise.checkpoint import file as journal
from noisewise.checkpoint import log as resume
from noisewise.errors import InferenceError, InputError, NoisewiseWarning
from noisewise.inference import streams
from noisewise.inference.problem import Problem
from noisewise.likelihood.schedules import Staged
from noisewise.samplers import rejection

RELEASED = (7.9, 3.1, 66.0, 27.5)


@cache
def count():
    return count_model(), count_release()


@cache
def lalonde():
    return lalonde_model(), lalonde_release(RELEASED)


@cache
def clamped_total():
    model = nw.Model(
        prior={"mu": dist.Normal(0.0, 2.0)},
        statistics={"sum": nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: x.clip(-3.0, 3.0), n=20)},
    )
    return model, nw.Release(sum=nw.Laplace(scale=3.0).released(11.0))


@cache
def groups():
    """A hierarchy whose statistic is moved entry by entry, and whose hyperparameters need gradients."""
    model = nw.Model(
        prior={"spread": dist.HalfNormal(1.0), "rate": lambda spread: dist.LogNormal(1.0, spread).expand([3])},
        statistics={"counts": lambda rate: dist.Poisson(rate)},
    )
    return model, nw.Release(counts=nw.Laplace(scale=2.0).released(np.array([3.0, 1.0, 7.0])))


RUNS = {
    "Rejection, several streams": (lalonde, nw.Rejection(), 500),
    "Rejection, jointly": (count, nw.Rejection(plan="joint"), 30_000),
    "Importance": (count, nw.Importance(), 60_000),
    "Importance, adapted": (count, nw.Importance(proposal="adapted", simulations=None), 20_000),
    "ImportanceRejection": (count, nw.ImportanceRejection(), 20_000),
    "RejectionControl": (count, nw.RejectionControl(), 20_000),
    "MCMC": (count, nw.MCMC(chains=16, warmup=32), 800),
    "SMC": (count, nw.SMC(islands=4, keep=0.9), 1_000),
    "Augmentation, one law": (count, nw.Augmentation(chains=16, warmup=24), 320),
    "Augmentation, records": (clamped_total, nw.Augmentation(chains=16, warmup=40), 640),
    "Augmentation, hierarchy": (groups, nw.Augmentation(chains=16, warmup=40), 640),
    "NUTS": (count, nw.NUTS(chains=2, warmup=50), 100),
    "chosen": (lalonde, None, 1_500),
}


@pytest.fixture
def often(monkeypatch):
    """States of chains after every step; no waiting for the disk; versions, and what a model is known by, once."""
    monkeypatch.setattr(metadata, "version", cache(metadata.version))
    monkeypatch.setattr(opening, "numbers_of", cache(opening.numbers_of))
    monkeypatch.setattr(resume, "EVERY", 0.0)
    monkeypatch.setattr(resume, "RATE", 1e15)
    monkeypatch.setattr(os, "fsync", lambda number: None)


def sampled(make, sampler, draws, seed, path=None, threads=2):
    engine = nw.Threads(threads)
    return nw.sample(*make(), sampler, draws=draws, seed=seed, engine=engine, checkpoint=path, on_failure="return")


@cache
def peaceful(name, seed):
    """The draws of one of these runs, nothing having happened to it."""
    return sampled(*RUNS[name], seed)


@cache
def kept(name, seed):
    """The file of such a run; it was no hindrance to it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.nwc"
        assert equal(peaceful(name, seed), sampled(*RUNS[name], seed, path))
        return path.read_bytes()


def equal(one, other):
    """Every draw and every number that is no time, bit by bit."""
    arrays = [*one.draws] == [*other.draws] and all(np.array_equal(one[name], other[name]) for name in one.draws)
    weights = (one.log_weights is None) == (other.log_weights is None) and (
        one.log_weights is None or np.array_equal(one.log_weights, other.log_weights)
    )
    numbers = ("status", "message", "proposals", "acceptance_rate", "log_evidence", "log_evidence_se")
    return arrays and weights and all(repr(getattr(one, n)) == repr(getattr(other, n)) for n in numbers)


def cut(source, target, size):
    shutil.copyfile(source, target)
    os.truncate(target, size)


def resumed(*arguments, **keywords):
    """A run whose checkpoint may have been cut, which it says."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*was cut short or damaged.*", NoisewiseWarning)
        return sampled(*arguments, **keywords)


def header_size(path):
    with open(path, "rb") as file:
        return next(journal.records(file))[3]


# The same draws ---------------------------------------------------------------------------------------------------


BRIEFLY = [name for name in RUNS if name not in ("Augmentation, records", "Augmentation, hierarchy", "chosen")]


@pytest.mark.parametrize("name", briefly(RUNS, BRIEFLY))
def test_a_run_cut_anywhere_ends_with_the_same_draws(name, seed, tmp_path, often):
    make, sampler, draws = RUNS[name]
    peace, whole, part = peaceful(name, seed), tmp_path / "whole.nwc", tmp_path / "part.nwc"
    whole.write_bytes(kept(name, seed))
    size, least = whole.stat().st_size, header_size(whole)
    rng = np.random.default_rng(seed)
    for threads, place in zip((1, 2, 3), [*rng.uniform(least, size, 2), size], strict=True):
        cut(whole, part, int(place))
        assert equal(peace, resumed(make, sampler, draws, seed, part, threads))
    assert "ended:    " + peace.status in describe(part)


@pytest.mark.parametrize(
    "estimator",
    [
        pytest.param(nw.MCEM(final=5_000), marks=pytest.mark.long),
        nw.MCEM(e_step="recycled", final=1_000),
        pytest.param(
            nw.MCEM(schedule=Staged(tolerances=(1e-2, 1e-3), sizes=(100, 1_000), cap=5), final=5_000),
            marks=pytest.mark.long,
        ),
    ],
    ids=["ascent", "recycled", "staged"],
)
def test_a_fit_cut_anywhere_ends_at_the_same_estimate(estimator, seed, tmp_path, often):
    def fitted(path=None):
        return nw.fit(*count(), estimator, start={"theta": 3.0}, seed=seed, checkpoint=path, on_failure="return")

    peace, whole, part = fitted(), tmp_path / "whole.nwc", tmp_path / "part.nwc"
    assert repr(fitted(whole)) == repr(peace)
    for place in np.random.default_rng(seed).uniform(header_size(whole), whole.stat().st_size, 2):
        cut(whole, part, int(place))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoisewiseWarning)
            found = fitted(part)
        assert found.estimate == peace.estimate
        assert np.array_equal(found.covariance, peace.covariance)
        assert [row["theta"] for row in found.trace] == [row["theta"] for row in peace.trace]
        assert found.diagnostics["simulated"] == peace.diagnostics["simulated"]


def test_a_fit_by_augmented_records_cut_anywhere_ends_at_the_same_estimate(seed, tmp_path, often):
    estimator = nw.MCEM(e_step="augmented", schedule=nw.Ascent(start=64, most=128), final=256, max_iterations=4)
    model, release = clamped_total()

    def fitted(path=None):
        return nw.fit(model, release, estimator, start={"mu": 0.2}, seed=seed, checkpoint=path, on_failure="return")

    peace, whole, part = fitted(), tmp_path / "whole.nwc", tmp_path / "part.nwc"
    assert repr(fitted(whole)) == repr(peace)
    for place in np.random.default_rng(seed).uniform(header_size(whole), whole.stat().st_size, 2):
        cut(whole, part, int(place))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoisewiseWarning)
            found = fitted(part)
        assert found.estimate == peace.estimate
        assert found.log_likelihood == peace.log_likelihood
        assert np.array_equal(found.covariance, peace.covariance)
        assert [row["mu"] for row in found.trace] == [row["mu"] for row in peace.trace]


def small_blocks(monkeypatch, rows=64):
    monkeypatch.setattr(rejection, "LEAF_ROWS", rows)


@pytest.mark.parametrize("step", briefly([1, 17], [17]))
def test_a_file_cut_at_every_byte_is_recovered_or_refused(step, seed, tmp_path, monkeypatch, often):
    small_blocks(monkeypatch)
    whole, part = tmp_path / "whole.nwc", tmp_path / "part.nwc"
    peace = sampled(count, nw.Rejection(), 12, seed, whole, 1)
    size, least = whole.stat().st_size, header_size(whole)
    assert least < size < 6_000
    for place in [*range(1, size, step), least - 1, least, size]:
        cut(whole, part, place)
        if place < least:
            with pytest.raises(InputError, match=r"damaged header|must be a checkpoint of noisewise"):
                sampled(count, nw.Rejection(), 12, seed, part, 1)
        else:
            assert equal(peace, resumed(count, nw.Rejection(), 12, seed, part, 1)), place


def test_a_flipped_bit_is_recovered_or_refused(seed, tmp_path, monkeypatch, often):
    small_blocks(monkeypatch)
    whole, part = tmp_path / "whole.nwc", tmp_path / "part.nwc"
    peace = sampled(count, nw.Rejection(), 60, seed, whole, 1)
    least, content = header_size(whole), whole.read_bytes()
    rng = np.random.default_rng(seed)
    for _ in range(100):
        place = int(rng.integers(len(content)))
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        part.write_bytes(changed)
        if place < least:
            with pytest.raises(InputError, match=r"damaged header|must be a checkpoint of noisewise"):
                sampled(count, nw.Rejection(), 60, seed, part, 1)
        else:
            with pytest.warns(NoisewiseWarning, match="do not hold and are left out"):
                assert equal(peace, sampled(count, nw.Rejection(), 60, seed, part, 1))


@pytest.mark.long
@pytest.mark.parametrize("name", ["rejection", "mcmc"])
def test_a_killed_process_goes_on_to_the_same_draws(name, seed, tmp_path, monkeypatch):
    monkeypatch.setattr(rejection, "LEAF_ROWS", rejection.LEAF_ROWS)  # which the cases change
    peace = chaos.cases()[name](seed=seed, progress=False)
    found, kills = chaos.endure(name, seed, np.random.default_rng(seed), 1, tmp_path)
    assert kills <= 1
    assert all(np.array_equal(found[key], peace[key]) for key in peace)


@pytest.mark.parametrize("sampler", briefly([nw.Rejection(), nw.Importance()], [nw.Rejection()]), ids=str)
def test_a_run_on_a_device_cut_anywhere_ends_with_the_same_draws(sampler, seed, tmp_path, often):
    whole, part = tmp_path / "whole.nwc", tmp_path / "part.nwc"

    def run(path):
        given = dict(draws=1_500, seed=seed, engine=nw.Device("cpu", rows=2**10), checkpoint=path, on_failure="return")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*was cut short or damaged.*", NoisewiseWarning)
            return nw.sample(*count(), sampler, **given)

    peace = run(None)
    assert equal(peace, run(whole))
    for place in np.random.default_rng(seed).uniform(header_size(whole), whole.stat().st_size, 2):
        cut(whole, part, int(place))
        assert equal(peace, run(part))


def test_a_record_at_the_place_of_another_does_not_hold(tmp_path):
    """As where a disk has written a page to a wrong place."""
    path = tmp_path / "run.nwc"
    held = journal.Journal.open("sample", path, {})
    for number in range(3):
        held.write(("block", number), np.full(50, float(number)))
    first, second, third = (held.offsets["block", number] for number in range(3))
    held.close()
    whole = path.read_bytes()
    assert second - first == third - second
    path.write_bytes(whole[:second] + whole[first:second] + whole[third:])
    with pytest.warns(NoisewiseWarning, match="do not hold and are left out"):
        held = journal.Journal.open("sample", path, {})
    assert [held.has(("block", number)) for number in range(3)] == [True, False, False]
    held.close()


class Deadly(io.FileIO):
    """A file that writes in two pieces; `step` is called before, between and after them."""

    def write(self, content):
        half = len(content) // 2
        Deadly.step()
        super().write(content[:half])
        Deadly.step()
        super().write(content[half:])
        Deadly.step()
        return len(content)

    def truncate(self, size=None):
        Deadly.step()
        return super().truncate(size)


def dying(step, path, pipe, values):
    """In a forked process: write a journal, and be killed at that step of it; tells of every record that is kept."""
    left = iter(range(step))
    Deadly.step = lambda: next(left, None) is not None or os.kill(os.getpid(), signal.SIGKILL)
    real = {name: getattr(os, name) for name in ("fsync", "replace")}
    for name, function in real.items():
        setattr(os, name, lambda *given, function=function: (Deadly.step(), function(*given), Deadly.step()))
    journal.open = lambda name, mode, buffering=0, opener=None: (io.open if mode == "rb" else Deadly)(
        name, mode, opener=opener
    )
    held = journal.Journal.open("sample", path, {"seed": 1})
    for number, value in enumerate(values):
        if not held.has((number,)):
            held.write((number,), value)
        os.write(pipe, b".")
    os._exit(0)


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_kill_at_every_step_of_writing_loses_only_what_was_being_written(tmp_path, monkeypatch):
    """Killed once at every step of a first run; and at every step of a second, which goes on from a cut file."""
    monkeypatch.setattr(journal, "SYNC", 0.0)
    values = [{"x": np.arange(5.0) + number, "n": number} for number in range(2)]
    steps = 0
    for begun in (False, True):
        for step in range(1_000):
            path = tmp_path / f"{begun}-{step}.nwc"
            if begun:
                cut(tmp_path / "whole.nwc", path, (tmp_path / "whole.nwc").stat().st_size - 100)
            ours, theirs = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        dying(step, path, theirs, values)
                finally:
                    os._exit(1)
            os.close(theirs)
            status, kept = os.waitpid(pid, 0)[1], len(os.read(ours, 100))
            os.close(ours)
            assert status in (0, signal.SIGKILL)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NoisewiseWarning)
                held = journal.Journal.open("sample", path, {"seed": 1})
            found = [number for number in range(2) if held.has((number,))]
            assert found == list(range(len(found)))
            kept = max(kept, 1 if begun else 0)  # the others stood in the part of the file that was not cut off
            assert kept <= len(found) <= kept + 1
            assert all(resume.fingerprint(held.read((n,))) == resume.fingerprint(values[n]) for n in found)
            assert not path.with_suffix(".nwc.new").exists()
            held.close()
            if status == 0:
                shutil.copyfile(path, tmp_path / "whole.nwc")
                break
            steps += 1
    assert steps > 20


def test_no_block_is_computed_twice_but_the_first_of_each_stream(seed, tmp_path, monkeypatch, often):
    """Whatever the scheduler has in hand beyond them when a run ends."""
    small_blocks(monkeypatch, 512)
    computed = []
    take_in = streams.StreamsRun._ran

    def noted(self, stream, first, results):
        if stream.counted:
            blocks = sum(len(ends) for _, _, ends in results)
            computed.extend((stream.label, first + number) for number in range(blocks))
        take_in(self, stream, first, results)

    monkeypatch.setattr(streams.StreamsRun, "_ran", noted)
    path = tmp_path / "run.nwc"
    sampled(lalonde, nw.Rejection(), 300, seed, path)
    logged = set(computed)
    computed.clear()
    sampled(lalonde, nw.Rejection(), 300, seed, path)
    labels = {label for label, _ in logged}
    assert len(labels) > 1
    assert len(logged) > 10 * len(labels)
    assert sorted(block for block in computed if block in logged) == sorted((label, 0) for label in labels)


COUNTED = """
import os, signal, sys
import numpyro.distributions as dist
import noisewise as nw

calls = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def simulate(rng, theta):
    os.write(calls, b".")
    if os.fstat(calls).st_size == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return int(rng.poisson(theta))

model = nw.Model({"theta": dist.Gamma(25.0, 1.0)}, {"count": nw.Simulator(simulate)})
release = nw.Release(count=nw.Laplace(scale=5.0).released(37.4))
nw.sample(model, release, nw.Rejection(), draws=8_000, seed=1, engine=nw.Threads(2), checkpoint=sys.argv[1])
"""


@pytest.mark.long
def test_a_kill_costs_no_more_than_the_blocks_in_hand(tmp_path):
    """What was simulated before is in the file, but for two blocks for each thread: one in hand, one on its way."""
    path, calls = tmp_path / "run.nwc", tmp_path / "calls"

    def run(most):
        calls.unlink(missing_ok=True)
        command = [sys.executable, "-c", COUNTED, str(path), str(calls), str(most)]
        return subprocess.run(command, capture_output=True, timeout=300, check=False).returncode, calls.stat().st_size

    assert run(30_000) == (-signal.SIGKILL, 30_000)
    told = inspect(path)["runs"]["0"]
    rows, kept = told["streams"]["streams"]["0"]["rows"], told["blocks"]["0"][0]
    assert kept * rows >= 30_000 - 4 * rows > 20_000
    resumed_code, again = run(0)
    path.unlink()
    whole_code, whole = run(0)
    assert resumed_code == whole_code == 0
    # The first block is computed again as a check, and what is under way at the end differs.
    assert again <= whole - (kept - 1) * rows + 4 * rows


def test_swapping_two_blocks_is_seen_by_these_tests(seed, tmp_path, monkeypatch, often):
    """A negative control: taken in another order, the blocks give other draws."""
    small_blocks(monkeypatch)
    path = tmp_path / "run.nwc"
    peace = sampled(count, nw.Rejection(), 60, seed, path, 1)
    read = streams.read_block
    other = {1: 2, 2: 1}
    monkeypatch.setattr(streams, "read_block", lambda log, s, block: read(log, s, other.get(block, block)))
    assert not equal(peace, sampled(count, nw.Rejection(), 60, seed, path, 1))


def test_a_chain_that_forgot_its_random_numbers_is_seen_by_these_tests(seed, tmp_path, monkeypatch, often):
    """A negative control: with the generator begun anew, a resumed chain gives other draws."""
    whole, part = tmp_path / "whole.nwc", tmp_path / "part.nwc"
    make, sampler, draws = RUNS["Augmentation, one law"]
    peace = peaceful("Augmentation, one law", seed)
    whole.write_bytes(kept("Augmentation, one law", seed))
    cut(whole, part, whole.stat().st_size * 2 // 3)
    unpack = journal.unpack

    def forgetful(data, *rest):
        return np.random.default_rng(0) if isinstance(data, dict) and "g" in data else unpack(data, *rest)

    monkeypatch.setattr(journal, "unpack", forgetful)
    assert not equal(peace, resumed(make, sampler, draws, seed, part))


def test_states_are_saved_no_more_often_than_said(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(resume.time, "monotonic", lambda: now[0])
    held = journal.Journal.open("sample", tmp_path / "run.nwc", {})
    log = resume.Log(held).within("group", 0)
    saved = []
    for step in range(200):
        now[0] += 0.5
        if log.due():
            log.save({"state": np.zeros(2**16), "rows": np.zeros(2**18), "step": step}, step)
            saved.append(step)
    held.close()
    assert np.all(np.diff(saved) == 16)  # 8 s, for 8 times 2^16 bytes
    assert not resume.Log().due()


def test_a_record_is_the_same_in_one_piece_and_in_several(tmp_path, monkeypatch):
    values = [np.arange(1_000.0), {"x": np.arange(999, dtype=np.int8), "y": np.zeros((0, 3))}, "no array"]
    for name, joined in (("one", 2**24), ("several", -1)):
        monkeypatch.setattr(journal, "JOINED", joined)
        held = journal.Journal.open("sample", tmp_path / name, {"seed": 1})
        for number, value in enumerate(values):
            held.write((number,), value)
            assert resume.fingerprint(held.read((number,))) == resume.fingerprint(value)
        held.close()
    assert (tmp_path / "one").read_bytes() == (tmp_path / "several").read_bytes()


@pytest.mark.parametrize(("seconds", "times"), [([0.1, 0.1], 0), ([0.7, 0.7, 0.7], 2), ([5.0], 2)])
def test_the_disk_is_asked_once_a_second_and_at_the_end_of_all_but_short_runs(seconds, times, tmp_path, monkeypatch):
    now, asked = [100.0], []
    monkeypatch.setattr(journal.time, "monotonic", lambda: now[0])
    held = journal.Journal.open("sample", tmp_path / "run.nwc", {})
    monkeypatch.setattr(os, "fsync", asked.append)
    for step in seconds:
        now[0] += step
        held.write(("x",), 1)
    held.close()
    assert len(asked) == times


def fragile(monkeypatch, fails):
    """Writing a record fails, as on a full disk, where `fails(key)`; it is tried again at once."""
    append = journal._append

    def sometimes(held, key, value):
        if key != ("header",) and fails(key):
            raise OSError(errno.ENOSPC, "No space left on device")
        append(held, key, value)

    monkeypatch.setattr(journal, "_append", sometimes)
    monkeypatch.setattr(journal, "AGAIN", 0.0)


SOME = ["Rejection, several streams", "Importance, adapted", "MCMC", "SMC", "Augmentation, one law"]


@pytest.mark.filterwarnings("ignore:.*cannot be written:noisewise.NoisewiseWarning")
@pytest.mark.parametrize("name", briefly(SOME, ["Rejection, several streams", "MCMC"]))
def test_a_file_with_gaps_gives_the_same_draws(name, seed, tmp_path, monkeypatch, often):
    """A disk that is full now and then keeps some records and not others."""
    make, sampler, draws = RUNS[name]
    peace, path = peaceful(name, seed), tmp_path / "run.nwc"
    rng = np.random.default_rng(seed)
    with monkeypatch.context() as patch:
        fragile(patch, lambda key: rng.random() < 0.5)
        assert equal(peace, sampled(make, sampler, draws, seed, path))
    assert equal(peace, sampled(make, sampler, draws, seed, path, 3))


@pytest.mark.filterwarnings("ignore:.*cannot be written:noisewise.NoisewiseWarning")
def test_a_file_with_gaps_gives_the_same_fit(seed, tmp_path, monkeypatch, often):
    def fitted(path=None):
        return nw.fit(*count(), nw.MCEM(final=5_000), start={"theta": 3.0}, seed=seed, checkpoint=path)

    peace, rng = fitted(), np.random.default_rng(seed)
    with monkeypatch.context() as patch:
        fragile(patch, lambda key: rng.random() < 0.5 or "climbed" in key)
        assert repr(fitted(tmp_path / "run.nwc")) == repr(peace)
    found = fitted(tmp_path / "run.nwc")
    assert found.estimate == peace.estimate
    assert np.array_equal(found.covariance, peace.covariance)


@pytest.mark.filterwarnings("ignore:.*cannot be written:noisewise.NoisewiseWarning")
def test_a_changed_simulator_is_seen_though_the_first_block_was_not_kept(seed, tmp_path, monkeypatch, often):
    def run(factor):
        law = nw.Simulator(lambda rng, theta: rng.poisson(factor * theta))
        model = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": law})
        given = dict(draws=300, seed=seed, engine=nw.Threads(1), checkpoint=tmp_path / "run.nwc")
        return nw.sample(model, count()[1], nw.Rejection(), **given)

    with monkeypatch.context() as patch:
        fragile(patch, lambda key: key == (0, "block", 0, 0))
        first = run(1.0)
    assert inspect(tmp_path / "run.nwc")["runs"]["0"]["blocks"]
    with pytest.raises(InputError, match="functions or data give other numbers"):
        run(1.1)
    assert equal(first, run(1.0))


@pytest.mark.filterwarnings("ignore:.*cannot be written:noisewise.NoisewiseWarning")
def test_what_says_whose_a_file_is_comes_before_all_else(seed, tmp_path, monkeypatch, often):
    """The length of the chains could not be kept at first: it is there before any piece of them is."""
    times, path = [0], tmp_path / "run.nwc"

    def fails(key):
        times[0] += key == (0, "agreed", "draws")
        return key == (0, "agreed", "draws") and times[0] <= 3

    with monkeypatch.context() as patch:
        fragile(patch, fails)
        sampled(count, nw.MCMC(chains=16, warmup=16), 400, seed, path)
    assert times[0] == 4
    with path.open("rb") as file:
        keys = [key for _, key, _, _ in journal.records(file)]
    assert keys.index((0, "agreed", "draws")) < min(n for n, key in enumerate(keys) if "draws" in key[1:2])
    with pytest.raises(InputError, match="draws is 400 there and 800 here"):
        sampled(count, nw.MCMC(chains=16, warmup=16), 800, seed, path)


def test_a_pilot_of_another_simulator_is_refused(seed, tmp_path, often):
    """Killed in the pilot, when no block of the run itself was there to compare."""
    whole, part = tmp_path / "whole.nwc", tmp_path / "part.nwc"

    def run(path, factor):
        law = nw.Simulator(lambda rng, theta: rng.poisson(factor * theta), batched=True)
        model = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": law})
        sampler = nw.Importance(proposal="adapted", simulations=None)
        return nw.sample(model, count()[1], sampler, draws=2_000, seed=seed, checkpoint=path)

    peace = run(whole, 1.0)
    with whole.open("rb") as file:
        ends = [end for _, key, _, end in journal.records(file) if "pilot" in key]
    cut(whole, part, ends[1])
    with pytest.raises(InputError, match="functions or data give other numbers"):
        run(part, 1.1)
    assert equal(peace, run(part, 1.0))  # of the other nothing stayed in the file


def test_constants_that_are_no_numbers_are_no_difference(seed, tmp_path, often):
    """A model may hold NaN, for what was not observed; it is equal to itself."""
    seen = np.array([1.0, np.nan, 3.0])
    law = lambda theta, x=seen: dist.Poisson(theta * jnp.nansum(x))  # noqa: E731
    problem = nw.Model(prior={"theta": dist.Gamma(25.0, 4.0)}, statistics={"count": law}), count_release()
    whole, part = tmp_path / "whole.nwc", tmp_path / "part.nwc"
    for sampler in (nw.Rejection(), nw.MCMC(chains=16, warmup=16)):
        peace = sampled(lambda: problem, sampler, 400, seed, whole)
        cut(whole, part, whole.stat().st_size * 2 // 3)
        assert equal(peace, resumed(lambda: problem, sampler, 400, seed, part))
        whole.unlink()


# More of the same -------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_a_longer_run_goes_on_from_a_shorter_one(seed, tmp_path, often):
    path = tmp_path / "run.nwc"
    short = sampled(count, nw.Rejection(), 5_000, seed, path)
    long = sampled(count, nw.Rejection(), 50_000, seed, path)
    assert np.array_equal(short["theta"], long["theta"][:5_000])
    assert equal(long, sampled(count, nw.Rejection(), 50_000, seed))
    assert equal(short, sampled(count, nw.Rejection(), 5_000, seed, path))


def test_a_run_that_spent_its_budget_goes_on_with_a_larger_one(seed, tmp_path, often):
    path = tmp_path / "run.nwc"
    with pytest.warns(NoisewiseWarning, match="need more than max_proposals"):
        assert sampled(count, nw.Rejection(max_proposals=200_000), 50_000, seed, path).status == "max_proposals"
    assert equal(sampled(count, nw.Rejection(), 50_000, seed, path), sampled(count, nw.Rejection(), 50_000, seed))


def test_chains_of_another_length_are_refused(seed, tmp_path, often):
    path = tmp_path / "run.nwc"
    sampled(count, nw.MCMC(chains=16, warmup=16), 400, seed, path)
    with pytest.raises(InputError, match="draws is 400 there and 800 here"):
        sampled(count, nw.MCMC(chains=16, warmup=16), 800, seed, path)


# Another run's checkpoint -----------------------------------------------------------------------------------------


def other_model(prior=None, law=None, name="theta"):
    law = law or {"theta": lambda theta: dist.Poisson(theta), "rate": lambda rate: dist.Poisson(rate)}[name]
    return nw.Model(prior={name: prior or dist.Gamma(25.0, 1.0)}, statistics={"count": law})


DIFFERENT = {
    "seed": (lambda: {"seed": 2}, r"seed is 1 there and 2 here"),
    "sampler": (lambda: {"sampler": nw.Importance()}, r"sampler\['name'\] is Rejection there and Importance here"),
    "setting": (lambda: {"sampler": nw.Rejection(plan="joint")}, r"sampler\['plan'\] is divide there and joint here"),
    "release": (lambda: {"release": nw.Release(count=nw.Laplace(scale=5.0).released(36.0))}, r"release is \w+"),
    "name": (lambda: {"model": other_model(name="rate")}, r"model\['rate'\] is missing there"),
    "prior": (lambda: {"model": other_model(dist.Gamma(26.0, 1.0))}, "functions or data give other numbers"),
    "law": (
        lambda: {"model": other_model(law=lambda theta: dist.Poisson(1.001 * theta))},
        "functions or data give other numbers",
    ),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_checkpoint_of_another_run_is_refused_with_the_difference(what, tmp_path, often):
    path = tmp_path / "run.nwc"
    settings = {"model": count()[0], "release": count()[1], "sampler": nw.Rejection(), "seed": 1}

    def run(**changed):
        return nw.sample(**{**settings, **changed}, draws=5_000, checkpoint=path)

    run()
    content = path.read_bytes()
    changed, message = DIFFERENT[what]
    with pytest.raises(InputError, match=message):
        run(**changed())
    assert path.read_bytes()[: len(content)] == content


WALKING = {
    "MCMC": nw.MCMC(chains=16, warmup=16),
    "SMC": nw.SMC(),
    "Augmentation": nw.Augmentation(),
    "NUTS": nw.NUTS(warmup=50),
}


@pytest.mark.parametrize("sampler", briefly(WALKING, ["MCMC", "SMC"]))
def test_chains_of_a_model_that_changed_are_refused(sampler, seed, tmp_path, often):
    path = tmp_path / "run.nwc"
    sampler = WALKING[sampler]
    nw.sample(*count(), sampler, draws=400, seed=seed, checkpoint=path, on_failure="return")
    with pytest.raises(InputError, match="functions or data give other numbers"):
        nw.sample(other_model(dist.Gamma(25.0, 1.01)), count()[1], sampler, draws=400, seed=seed, checkpoint=path)


@pytest.mark.parametrize("name", briefly(["Rejection", "MCMC", "SMC", "Augmentation"], ["Rejection", "MCMC"]))
def test_a_constant_changed_in_its_last_digits_is_seen(name, seed, tmp_path, often):
    """Even where every whole number that is drawn stays the same."""
    path, sampler = tmp_path / "run.nwc", WALKING.get(name, nw.Rejection())
    nw.sample(other_model(), count()[1], sampler, draws=400, seed=seed, checkpoint=path, on_failure="return")
    changed = other_model(law=lambda theta: dist.Poisson((1.0 + 1e-12) * theta))
    with pytest.raises(InputError, match="functions or data give other numbers"):
        nw.sample(changed, count()[1], sampler, draws=400, seed=seed, checkpoint=path)


def test_a_fit_of_a_model_that_changed_is_refused(seed, tmp_path, often):
    path = tmp_path / "run.nwc"
    nw.fit(*count(), nw.MCEM(final=1_000), start={"theta": 30.0}, seed=seed, checkpoint=path)
    model = other_model(law=lambda theta: dist.Poisson(1.01 * theta))
    with pytest.raises(InferenceError, match="functions or data give other numbers"):
        nw.fit(model, count()[1], nw.MCEM(final=1_000), start={"theta": 30.0}, seed=seed, checkpoint=path)
    with pytest.raises(InputError, match="for estimators that simulate"):
        nw.fit(*count(), nw.EM(), checkpoint=path)


def test_another_version_is_refused(seed, tmp_path, monkeypatch, often):
    path = tmp_path / "run.nwc"
    sampled(count, nw.Rejection(), 100, seed, path)
    versions = opening.current_versions()
    monkeypatch.setattr(opening, "current_versions", lambda: {**versions, "jax": "9.9.9"})
    with pytest.raises(InputError, match=r"versions\['jax'\] is .* there and 9\.9\.9 here"):
        sampled(count, nw.Rejection(), 100, seed, path)


def test_an_accelerator_is_another_kind_of_engine(seed, tmp_path, often):
    path = tmp_path / "run.nwc"
    sampled(count, nw.Rejection(), 100, seed, path)
    with pytest.raises(InputError, match="engine is processors there and"):
        nw.sample(*count(), nw.Rejection(), draws=100, seed=seed, engine=nw.Device("cpu", rows=1024), checkpoint=path)


# Files and disks --------------------------------------------------------------------------------------------------


def test_two_runs_cannot_share_a_checkpoint(seed, tmp_path, often):
    path = tmp_path / "run.nwc"
    sampled(count, nw.Rejection(), 100, seed, path)
    held = journal.Journal.open("sample", path, {})
    try:
        with pytest.raises(InputError, match="must not be in use by another run"):
            sampled(count, nw.Rejection(), 100, seed, path)
        assert "complete" in describe(path)  # looking is allowed
    finally:
        held.close()
    sampled(count, nw.Rejection(), 100, seed, path)


def test_of_two_runs_that_begin_at_once_one_has_the_file(tmp_path):
    for number in range(30):
        path, found, barrier = tmp_path / f"{number}.nwc", [], threading.Barrier(3)

        def begin(path=path, found=found, barrier=barrier):
            barrier.wait()
            try:
                found.append(journal.Journal.open("sample", path, {"seed": 1}))
            except InputError as error:
                found.append(str(error))

        threads = [threading.Thread(target=begin) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (held,) = [one for one in found if isinstance(one, journal.Journal)]
        assert all("must not be in use by another run" in one for one in found if one is not held)
        assert held.write(("x",), 1)
        held.close()
        assert {one.name for one in tmp_path.iterdir()} == {f"{done}.nwc" for done in range(number + 1)}


def test_a_file_that_is_changed_while_it_is_open_is_refused(tmp_path):
    """A draw is never read from what has been cut off or overwritten under a run."""
    path = tmp_path / "run.nwc"
    held = journal.Journal.open("sample", path, {})
    for number in range(3):
        held.write((number,), np.arange(100.0))
    held.close()
    held = journal.Journal.open("sample", path, {})
    with path.open("r+b") as file:
        file.seek(held.offsets[0,] + 300)
        file.write(b"other")
    os.truncate(path, held.offsets[2,] + 400)
    assert held.read((1,)).sum() == 4950.0
    for number in (0, 2):
        with pytest.raises(InputError, match="the file was changed after this run had opened it"):
            held.read((number,))
    held.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become nobody")
def test_a_folder_that_is_read_only_is_refused_at_once(seed):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        os.seteuid(65534)
        try:
            with pytest.raises(InputError, match=r"read and written \(Permission denied\)"):
                sampled(count, nw.Rejection(), 100, seed, os.path.join(folder, "run.nwc"))
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("name", ["Importance", "Augmentation, one law"])
def test_a_full_disk_costs_no_draw(name, seed, tmp_path, often, monkeypatch):
    make, sampler, draws = RUNS[name]
    # blocks that nobody needed any more may be in a file too, up to three times as many as those that were needed
    peace, path, limit = peaceful(name, seed), tmp_path / "run.nwc", len(kept(name, seed)) // 8
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.warns(NoisewiseWarning, match="cannot be written"):
            assert equal(peace, sampled(make, sampler, draws, seed, path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert header_size(path) < path.stat().st_size <= limit
    assert equal(peace, sampled(make, sampler, draws, seed, path))  # without a warning: what is there is good


def test_places_that_cannot_be_written_are_refused(seed, tmp_path):
    (tmp_path / "file").write_text("x")
    for place in ("/proc/run.nwc", tmp_path / "none" / "run.nwc", tmp_path, tmp_path / "file" / "run.nwc"):
        with pytest.raises(InputError, match="'checkpoint' must be a file that can be read and written"):
            sampled(count, nw.Rejection(), 100, seed, place)
    with pytest.raises(InputError, match="must be a checkpoint of noisewise"):
        sampled(count, nw.Rejection(), 100, seed, tmp_path / "file")
    for wrong in (3, ""):
        with pytest.raises(InputError, match="'checkpoint' must be a file's path"):
            sampled(count, nw.Rejection(), 100, seed, wrong)
    assert not list(tmp_path.glob("*.new"))


def test_a_pipe_or_device_is_refused_and_not_replaced(seed, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="it is no plain file"):
        sampled(count, nw.Rejection(), 100, seed, tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_stays_one_and_the_file_is_made_where_it_points(seed, tmp_path, often):
    """As where a link leads to a larger disk, and the file is yet to be made."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "run.nwc").symlink_to(tmp_path / "disk" / "run.nwc")
    for _ in range(2):
        sampled(count, nw.Rejection(), 100, seed, tmp_path / "run.nwc")
        assert (tmp_path / "run.nwc").is_symlink()
        assert [one.name for one in (tmp_path / "disk").iterdir()] == ["run.nwc"]


def test_a_draft_is_not_made_through_a_link_of_somebody_else(seed, tmp_path, often):
    (tmp_path / "theirs").write_text("precious")
    (tmp_path / "run.nwc.new").symlink_to(tmp_path / "theirs")
    with pytest.raises(InputError, match="must be a file that can be read and written"):
        sampled(count, nw.Rejection(), 100, seed, tmp_path / "run.nwc")
    assert (tmp_path / "theirs").read_text() == "precious"


class Reluctant(io.FileIO):
    """A file on a disk elsewhere, which says only at the end that it is full."""

    def close(self):
        failing = not self.closed
        super().close()
        if failing:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_a_disk_that_fails_at_the_end_costs_no_draw(seed, tmp_path, often, monkeypatch):
    peace, path = sampled(count, nw.Rejection(), 100, seed), tmp_path / "run.nwc"
    sampled(count, nw.Rejection(), 100, seed, path)
    real = journal.Journal.open

    def opened(*given):
        held = real(*given)
        held.file.close()
        held.file = Reluctant(path, "r+b")
        return held

    monkeypatch.setattr(journal.Journal, "open", opened)
    with pytest.warns(NoisewiseWarning, match=r"cannot be written \(Disk quota exceeded\)"):
        assert equal(peace, sampled(count, nw.Rejection(), 100, seed, path))


def test_a_record_that_could_not_be_read_is_not_written(tmp_path, monkeypatch):
    """What came after it would be lost with it."""
    monkeypatch.setattr(journal, "MOST_TEXT", 1_000)
    held = journal.Journal.open("sample", tmp_path / "run.nwc", {})
    with pytest.warns(NoisewiseWarning, match="more than 1,000 bytes of text"):
        assert not held.write(("long",), "x" * 1_000)
    monkeypatch.setattr(held, "_blocked_until", 0.0)
    assert held.write(("short",), "x")
    held.close()
    held = journal.Journal.open("sample", tmp_path / "run.nwc", {})
    assert held.has(("short",))
    held.close()


def test_a_file_system_without_locks_is_told_of(seed, tmp_path, monkeypatch, often):
    def no_locks(*given):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(journal.fcntl, "flock", no_locks)
    with pytest.warns(NoisewiseWarning, match=r"cannot be locked here \(No locks available\)"):
        sampled(count, nw.Rejection(), 100, seed, tmp_path / "run.nwc")


def test_blocks_before_a_failure_are_kept_and_a_mended_simulator_goes_on_from_them(seed, tmp_path, monkeypatch, often):
    """Nothing accepted is lost to a simulator that raises; going on computes no block that is there, but the first."""
    small_blocks(monkeypatch, 512)
    calls, worst, path = [0], [5_000], tmp_path / "run.nwc"

    def simulate(rng, theta):
        calls[0] += 1
        if calls[0] == worst[0]:
            raise ZeroDivisionError("no records left")
        return rng.poisson(theta)

    def run(path):
        calls[0] = 0
        given = dict(draws=1_500, seed=seed, engine=nw.Threads(1), checkpoint=path)
        return nw.sample(model, count()[1], nw.Rejection(), **given), calls[0]

    model = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": nw.Simulator(simulate)})
    with pytest.raises(InferenceError, match=rf"no records left at theta=[\d.]+.*seed {seed}, block \("):
        run(path)
    told = inspect(path)["runs"]["0"]
    ((blocks, survivors),) = told["blocks"].values()
    rows = told["streams"]["streams"]["0"]["rows"]
    before = (worst[0] - 1) // rows
    assert 5 <= before <= blocks <= before + 1  # the next may have come together with the failure
    assert survivors > 0
    worst[0] = -1
    (found, again), (expected, whole) = run(path), run(None)
    assert equal(found, expected)
    assert again <= whole - (blocks - 1) * rows + 2 * rows  # what the thread had in hand when it ended


def test_a_half_made_file_never_gets_the_name(seed, tmp_path, monkeypatch):
    def fails(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(InputError, match="No space left"):
        sampled(count, nw.Rejection(), 100, seed, tmp_path / "run.nwc")
    monkeypatch.undo()
    assert not (tmp_path / "run.nwc").exists()
    sampled(count, nw.Rejection(), 100, seed, tmp_path / "run.nwc")


def test_progress_can_be_read_from_the_file(seed, tmp_path, often):
    path, part = tmp_path / "run.nwc", tmp_path / "part.nwc"
    sampled(count, nw.Rejection(), 30_000, seed, path)
    told = describe(path)
    assert "Checkpoint of nw.sample with Rejection, seed" in told
    assert "of 30,000 draws kept for 'count'" in told
    assert "all of them good" in told
    cut(path, part, path.stat().st_size - 10)
    told = inspect(part)
    assert told["bad_bytes"] > 0
    assert told["ended"] is None
    assert told["seed"] == seed
    with pytest.raises(InputError, match="must be a file that can be read"):
        describe(tmp_path / "none.nwc")


# Data, never code -------------------------------------------------------------------------------------------------


WHOLE = [(0, 128), (0, 129), (-129, 0), (-(2**15), 2**15), (0, 2**16), (-(2**31), 2**31), (0, 2**40), (0, 2**63 - 1)]
"""Ranges of whole numbers at the edges of what one, two, four and eight bytes hold."""


def test_values_come_back_as_they_were(seed):
    rng = np.random.default_rng(seed)
    rng.standard_normal(7)
    value = {
        "numbers": [1, -(2**70), 2.5, float("inf"), None, True, "x"],
        "arrays": (rng.standard_normal((3, 4)), np.asfortranarray(rng.standard_normal((3, 4))), np.zeros((0, 2))),
        "kinds": [np.float32(0.1), np.array(3, np.uint8), np.array([True]), np.arange(3, dtype=">i4")],
        "counts": [rng.integers(low, high, (200, 2)) for low, high in WHOLE]
        + [np.asfortranarray(np.ones((300, 2), int))],
        "rng": rng,
    }
    arrays = []
    data = json.loads(json.dumps(journal.pack(value, arrays)))
    body = bytearray(b"".join(bytes(part) for part in journal.bytes_of(arrays)))
    found = journal.unpack(data, journal._arrays_of(journal.array_forms(arrays), body), {})
    assert resume.fingerprint(found) == resume.fingerprint(value)
    assert found["arrays"][1].flags.f_contiguous
    assert found["rng"].random() == rng.random()
    for refused in (jnp.zeros(2), np.array(["a"]), np.array([1j]), object()):
        with pytest.raises(TypeError):
            journal.pack(refused, [])


def test_whole_numbers_are_kept_in_as_few_bytes_as_hold_them():
    for (low, high), size in zip(WHOLE, (1, 2, 2, 2, 4, 4, 8, 8), strict=True):
        arrays = []
        journal.pack(np.resize([low, high - 1], 1_000), arrays)
        assert arrays[0].itemsize == size


def forged(path, key, text, body=b""):
    """Append a record with a right checksum and any content."""
    offset = path.stat().st_size
    checksum = journal._checksum(offset, text, len(body), [body])
    with path.open("ab") as file:
        file.write(journal.FRAME.pack(len(text), len(body), checksum) + text + body)


def test_forged_records_end_in_refusals(seed, tmp_path, monkeypatch, often):
    """Records with right checksums and wrong contents: no classes but those expected, no sizes beyond the file."""
    small_blocks(monkeypatch)
    whole, part = tmp_path / "whole.nwc", tmp_path / "part.nwc"
    peace = sampled(count, nw.Rejection(), 60, seed, whole, 1)
    values = [
        {"d": {"n": 1, "positions": {"a": 0}, "columns": {"d": {"theta": {"a": 0}, "count": {"a": 0}}}}},
        {"d": {"n": 2, "positions": {"a": 9}, "columns": {"d": {}}}},
        {"d": {"n": "1", "positions": None, "columns": {"d": {"theta": 3}}}},
        {"c": "Popen", "d": {"args": "true"}},
        {"g": {"bit_generator": "PCG64", "state": "no"}},
        {"g": {"bit_generator": "PCG64", "state": {"state": 10**60, "inc": 1}, "has_uint32": 0, "uinteger": 0}},
        {"a": 0, "as": "<f8,("},
        {"t": 3},
        [[[]]],
        7,
        None,
    ]
    arrays = [[], [["<f8", [1], "C"]], [["<f8", [2**60], "C"]], [["|O", [1], "C"]], [["<f8", [-1], "C"]], 3]
    arrays += [[["f8,(", [1], "C"]], [["8" * 5000, [1], "C"]], [[{}, [1], "C"]]]  # NumPy parses such names
    for value in values:
        for described in arrays:
            shutil.copyfile(whole, part)
            text = json.dumps({"k": [0, "block", 0, 2], "v": value, "a": described}).encode()
            forged(part, None, text, struct.pack("<d", 1.0))
            describe(part)
            with pytest.raises(InputError, match="does not hold what this run would have written"):
                sampled(count, nw.Rejection(), 60, seed, part, 1)
    for text in (
        b"[" * 100_000,
        b'{"k": [[]], "v": 1}',
        b'{"k": {}}',
        b"\xff",
        b'{"v": ' + b"9" * 5_000 + b"}",
        b"NaN",
    ):
        shutil.copyfile(whole, part)
        forged(part, None, text)
        assert equal(peace, resumed(count, nw.Rejection(), 60, seed, part, 1))


def altered(path, name, change):
    """Cut the file before the last record of that name, and put a changed one in its place, with a right checksum."""
    with path.open("rb") as file:
        offset = [offset for offset, key, _, _ in journal.records(file) if name in key][-1]
        file.seek(offset)
        text_size, body_size, _ = journal.FRAME.unpack(file.read(journal.FRAME.size))
        told, body = json.loads(file.read(text_size)), file.read(body_size)
    os.truncate(path, offset)
    change(told)
    forged(path, None, json.dumps(told).encode(), body)


def test_copies_of_one_array_are_not_made(tmp_path):
    """Forged: ten megabytes that are to be a thousand times eighty."""
    path, arrays = tmp_path / "run.nwc", json.dumps([["|i1", [10**7], "C"]])
    path.write_bytes(journal.MAGIC)
    value = json.dumps({"d": {"x": [{"a": 0, "as": "<i8"}] * 1_000}})
    forged(path, None, f'{{"k": ["header"], "v": {value}, "a": {arrays}}}'.encode(), bytes(10**7))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="damaged header"):
        describe(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**19  # in units of 1,024 bytes


def test_what_a_file_says_does_not_command_a_terminal(tmp_path):
    path = tmp_path / "run.nwc"
    path.write_bytes(journal.MAGIC)
    said = {"for": "\x1b]0;x\x07", "seed": "1\n\x1b[2J", "model": {"d": {"a\r" * 10_000: 1}}, "begun": "x" * 10**6}
    forged(path, None, json.dumps({"k": ["header"], "v": {"d": said}, "a": []}).encode())
    forged(path, None, json.dumps({"k": ["end"], "v": {"d": {"status": "\x9b"}}, "a": []}).encode())
    told = describe(path)
    assert len(told) < 3_000
    assert len(told.splitlines()) == 5
    assert all(letter.isprintable() or letter == "\n" for letter in told)


def test_a_forged_number_of_sweeps_is_refused_and_not_swept(seed, tmp_path, often):
    path = tmp_path / "run.nwc"
    make, sampler, draws = RUNS["SMC"]
    path.write_bytes(kept("SMC", seed))
    altered(path, "pilot", lambda told: told["v"]["d"]["stages"][-1]["d"].update(sweeps=10**20))
    with pytest.raises(InputError, match="more sweeps than any can have"):
        sampled(make, sampler, draws, seed, path)


@pytest.mark.parametrize("place", [["<f8", [], "C"], ["<i8", [1], "C"]], ids=["shape", "kind"])
def test_a_forged_iteration_is_refused_and_not_climbed_from(place, seed, tmp_path, often):
    path = tmp_path / "run.nwc"

    def fitted():
        return nw.fit(*count(), nw.MCEM(final=1_000), start={"theta": 30.0}, seed=seed, checkpoint=path)

    fitted()
    altered(path, "iteration", lambda told: told["a"].__setitem__(told["v"]["d"]["free"]["a"], place))
    with pytest.raises((InputError, InferenceError), match="has parameters of another shape"):
        fitted()


def test_a_state_that_does_not_fit_is_refused_and_other_failures_are_told_as_they_are(tmp_path):
    problem = Problem(*count())

    def fail():
        with opening.opened("sample", tmp_path / "run.nwc", problem, nw.Rejection(), 1, nw.Threads()):
            raise TypeError("unsized")

    with pytest.raises(TypeError, match="unsized"):  # nothing was read
        fail()
    with pytest.raises(InputError, match="going on from it raised TypeError: unsized"):
        fail()


def test_random_bytes_end_in_refusals(seed, tmp_path):
    path = tmp_path / "run.nwc"
    rng = np.random.default_rng(seed)
    for number in range(1_000):
        content = rng.bytes(int(rng.integers(0, 400)))
        path.write_bytes(journal.MAGIC + content if number % 2 else content)
        with pytest.raises(InputError):
            describe(path)
