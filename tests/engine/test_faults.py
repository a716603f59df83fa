"""Faults: each ends in an error that says what reproduces it, or in a completed run with the right draws."""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import numpyro.distributions as dist
import pytest

import noisewise as nw
from noisewise.checkpoint import inspect
from noisewise.engine import Dask, Processes, Terminated, Threads, base, failures, gather, terminable, threads
from noisewise.engine import processes as processes_module
from noisewise.engine.signals import deferred_signals

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore:.*no end in sight:noisewise.NoisewiseWarning")  # a busy machine

RELEASE = nw.Release(count=nw.Laplace(scale=2.0).released(7.4))
PRIOR = {"theta": dist.Gamma(5.5, 1.0)}


def away(engine, works, tick=lambda: None):
    """`gather`, in other processes where the engine has them."""
    return gather(engine, works, tick, portable=True)


@pytest.fixture(scope="module")
def engines():
    """One engine of each kind; the cluster is a real one of processes."""
    settings = dict(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50)
    with (
        distributed.LocalCluster(**settings) as cluster,
        distributed.Client(cluster) as client,
        Processes(2) as processes,
    ):
        found = {"threads": Threads(2), "processes": processes, "dask": Dask(client)}
        client.wait_for_workers(2, timeout=120)
        for engine in found.values():
            away(engine, [echo] * 4)  # workers take time to start
        yield found


def echo(poll):
    return os.getpid()


def simulated(simulate, prior=PRIOR):
    return nw.Model(prior, {"count": nw.Simulator(simulate)})


def sample(model, seed, engine, **settings):
    return nw.sample(model, RELEASE, nw.Rejection(), **{"draws": 200, "seed": seed, "engine": engine, **settings})


# Simulators -----------------------------------------------------------------------------------------------------------


def raising(rng, theta):
    if theta > 8.0:
        raise ZeroDivisionError("no records left")
    return int(rng.poisson(theta))


def not_a_number(rng, theta):
    return float("nan") if theta > 8.0 else float(rng.poisson(theta))


def misshapen(rng, theta):
    return np.ones(2) if theta > 8.0 else np.float64(rng.poisson(theta))


FAULTY = {
    "raises": (raising, nw.InferenceError, "the simulator raised ZeroDivisionError: no records left"),
    "NaN": (not_a_number, nw.InputError, "must not return NaN"),
    "shape": (misshapen, nw.InputError, "must return numbers of shape"),
}


@pytest.mark.parametrize("kind", ["threads", "processes", "dask"])
@pytest.mark.parametrize("fault", FAULTY)
def test_a_faulty_simulator_is_named_with_seed_and_parameter(fault, kind, seed, engines):
    simulate, error, told = FAULTY[fault]
    with pytest.raises(error, match=re.escape(told)) as caught:
        sample(simulated(simulate), seed, engines[kind])
    message = str(caught.value)
    theta = float(re.search(r" at theta=(\d+\.\d+)", message)[1])
    assert theta > 8.0
    assert f"seed {seed}, block (" in message
    block = tuple(int(n) for n in re.search(r"block \(([\d, ]+)\)", message)[1].split(","))
    # That block of that seed does meet this parameter value.
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=block))
    model = simulated(lambda rng, theta: 1.0)
    assert theta in model.draw(rng, ["theta"], 4096)["theta"]


def hanging(rng, theta):
    while theta > 8.0:
        time.sleep(0.01)
    return int(rng.poisson(theta))


def test_a_hanging_simulator_is_stopped_and_named(seed):
    with Processes(1, timeout=1.5) as engine:
        away(engine, [echo])
        first = engine.processes
        with pytest.raises(
            nw.InferenceError, match=r"did not end within timeout=1.5 s; Model.statistics\['count'\]"
        ) as caught:
            sample(simulated(hanging), seed, engine)
        assert float(re.search(r"running at theta=(\d+\.\d+)", str(caught.value))[1]) > 8.0
        assert f"seed {seed}, block (" in str(caught.value)
        assert first[0] not in engine.processes
        assert away(engine, [echo]) == engine.processes  # and the engine is as good as new


def test_a_hanging_thread_is_reported_and_left_behind(seed, monkeypatch):
    monkeypatch.setattr(failures, "PATIENCE", 0.3)
    monkeypatch.setattr(threads, "GRACE", 0.3)
    release = threading.Event()

    def stuck(rng, theta):
        if theta > 8.0:
            release.wait(60.0)
        return int(rng.poisson(theta))

    with pytest.warns(nw.NoisewiseWarning, match=r"simulator is running at theta=[\d.]+, in a block begun") as told:
        found = nw.sample(
            simulated(stuck), RELEASE, nw.Rejection(max_seconds=1.0), draws=10**5, seed=seed, on_failure="return"
        )
    release.set()
    assert found.status == "max_seconds"
    assert "use nw.Processes(timeout=...)" in str(told[0].message)
    assert f"seed {seed}" in str(told[0].message)


# Workers --------------------------------------------------------------------------------------------------------------


def plain(rng, theta):
    return int(rng.poisson(theta))


def slow(rng, theta):
    time.sleep(2e-4)
    return plain(rng, theta)


def signalling(flag, pid, number):
    """A simulator that sends, after a while and once among all processes, a signal to `pid`; None for its own."""
    parent, calls = os.getpid(), itertools.count()

    def simulate(rng, theta):
        if next(calls) == 3_000 and (pid is not None or os.getpid() != parent):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
                os.kill(pid or os.getpid(), number)
        return slow(rng, theta)

    return simulate


@pytest.mark.parametrize("kind", ["processes", "dask"])
def test_draws_are_the_same_when_a_worker_is_killed(kind, seed, engines, tmp_path):
    expected = sample(simulated(plain), seed, engines["threads"], draws=2_000)
    model = simulated(signalling(tmp_path / "killed", None, signal.SIGKILL))
    found = sample(model, seed, engines[kind], draws=2_000)
    assert (tmp_path / "killed").exists()
    for name in ("theta", "count"):
        np.testing.assert_array_equal(found[name], expected[name])


class Garbled:
    """Can be sent, and not be read where it arrives."""

    def __init__(self, parent):
        self.parent = parent

    def __reduce__(self):
        return garbled, (self.parent,)


def garbled(parent):
    if os.getpid() == parent:
        raise LookupError("never heard of it")
    return Garbled(parent)


def test_an_answer_that_cannot_be_read_ends_the_run(monkeypatch):
    """With an error, and not in waiting for it."""
    monkeypatch.setattr(processes_module, "MOST_DEATHS", 1)
    parent = os.getpid()
    with Processes(1) as engine, pytest.raises(nw.InferenceError, match="while they ran the same block"):
        away(engine, [lambda poll: Garbled(parent)])


def test_workers_that_cannot_start_are_not_started_for_ever(monkeypatch):
    monkeypatch.setattr(processes_module.sys, "path", ["/nowhere"])
    with Processes(1) as engine, pytest.raises(nw.InferenceError, match="3 workers in a row ended"):
        away(engine, [echo])


def test_a_lost_scheduler_ends_the_run_with_what_it_has(seed, tmp_path):
    settings = dict(n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0")
    cluster = distributed.LocalCluster(**settings, silence_logs=50)
    client = distributed.Client(cluster, timeout=2)
    model = simulated(signalling(tmp_path / "begun", os.getpid(), 0))  # a signal that is none

    def close():
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        cluster.loop.add_callback(cluster.scheduler.close)

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.warns(nw.NoisewiseWarning, match="connection to the scheduler was lost"):
        found = sample(model, seed, Dask(client), draws=10**6, on_failure="return")
    closer.join()
    with pytest.raises(nw.InferenceError, match="scheduler was lost"), pytest.warns(nw.NoisewiseWarning):
        away(Dask(client), [echo])
    for one in (client, cluster):
        with contextlib.suppress(TimeoutError):  # nobody answers any more
            one.close(timeout=0.2)
    cluster.shutdown_on_close = False  # else Dask waits for it, ten seconds, when this process ends
    assert found.status == "interrupted"
    assert len(found) > 0
    expected = sample(simulated(plain), seed, Threads(2), draws=len(found))
    np.testing.assert_array_equal(found["theta"], expected["theta"])


def test_results_that_came_with_an_error_are_kept():
    """Nothing accepted is lost to a failure of something else."""
    kept = []
    tasks = {n: base.Task(lambda poll: None, kept.append) for n in range(3)}
    with pytest.raises(ValueError, match="broken"):
        base._hand_on([(0, "a", None), (1, None, ValueError("broken")), (2, "c", None)], tasks)
    assert kept == ["a", "c"]


def test_results_of_a_run_that_was_cut_off_do_not_disturb_the_next():
    kept = []
    tasks = {1: base.Task(lambda poll: None, kept.append)}
    base._hand_on([(0, "of the run before", None), (1, "a", None)], tasks)
    assert kept == ["a"]
    assert tasks == {}


# Signals and clocks ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_ctrl_c_and_sigterm_end_with_what_has_been_accepted(kind, number, seed, engines, tmp_path):
    before = signal.getsignal(number)
    model = simulated(signalling(tmp_path / "sent", os.getpid(), number))
    try:
        found = sample(model, seed, engines[kind], draws=10**6, on_failure="return")
        assert number == signal.SIGINT
    except Terminated as end:
        found = end.result
        assert number == signal.SIGTERM
    assert found.status == "interrupted"
    assert len(found) > 0
    expected = sample(simulated(plain), seed, engines["threads"], draws=len(found))
    np.testing.assert_array_equal(found["theta"], expected["theta"])
    assert signal.getsignal(number) is before


SCRIPT = """
import atexit, os, signal, sys
import numpyro.distributions as dist
import noisewise as nw

def simulate(rng, theta, calls=[0]):
    calls[0] += 1
    if calls[0] == 30_000:
        os.kill(os.getpid(), signal.SIGTERM)
    return int(rng.poisson(theta))

atexit.register(print, "tidied up")
model = nw.Model({"theta": dist.Gamma(5.5, 1.0)}, {"count": nw.Simulator(simulate)})
release = nw.Release(count=nw.Laplace(scale=2.0).released(7.4))
for seed in (1, 2):
    try:
        nw.sample(model, release, nw.Rejection(), draws=10**6, seed=seed, checkpoint=sys.argv[1], on_failure="return",
                  engine=nw.Threads(2))
    except Exception as error:
        print("goes on", error)
print("goes on")
"""


def test_sigterm_ends_the_process_and_the_checkpoint_has_its_work(tmp_path):
    """Whatever the script does about failures; what it has registered for its end is done."""
    path = tmp_path / "run.nwc"
    command = [sys.executable, "-c", SCRIPT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stdout == "tidied up\n"
    assert "SIGTERM: the run has ended" in done.stderr
    told = inspect(path)
    assert told["ended"] == "interrupted"
    assert told["bad_bytes"] == 0
    ((blocks, survivors),) = told["runs"]["0"]["blocks"].values()
    assert blocks >= 1
    assert survivors > 0


def test_sigterm_outlasts_a_failure_that_comes_with_it(seed):
    """The process ends even where the run fails before the signal is looked at."""

    calls = itertools.count()

    def simulate(rng, theta):
        if next(calls) == 1_000:
            os.kill(os.getpid(), signal.SIGTERM)
            raise ZeroDivisionError
        return int(rng.poisson(theta))

    with pytest.raises(Terminated) as caught:
        sample(simulated(simulate), seed, Threads(1))
    assert caught.value.code == 143
    assert sample(simulated(slow), seed, Threads(1), draws=10).status == "complete"  # and is then forgotten


def test_sigterm_ends_a_fit(seed):
    armed = []

    def law(theta):
        if armed:
            os.kill(os.getpid(), signal.SIGTERM)
            armed.clear()
        return dist.Poisson(theta)

    model = nw.Model(PRIOR, {"count": law})
    armed.append(True)
    with pytest.raises(Terminated):
        nw.fit(model, RELEASE, nw.MCEM(), start={"theta": 5.0}, seed=seed)


def test_handlers_of_the_users_own_are_left_alone():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *given: heard.append(given))
    try:
        with terminable(), deferred_signals() as check:
            os.kill(os.getpid(), signal.SIGTERM)
            check()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(heard) == 1


def receive(number, times):
    for _ in range(times):
        os.kill(os.getpid(), number)
    time.sleep(0.05)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_bookkeeping_and_a_second_does_not(number):
    reached = []

    def twice(times):
        with terminable(), deferred_signals() as check:
            receive(number, times)
            reached.append(times)
            check()
            reached.append("past the check")

    for times in (1, 2):
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else Terminated):
            twice(times)
    assert reached == [1]


def test_sigterm_interrupts_between_blocks_too():
    with pytest.raises(Terminated), terminable():
        receive(signal.SIGTERM, 1)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_jumps_of_the_system_clock_change_nothing(kind, seed, engines, monkeypatch):
    model = simulated(slow)
    expected = sample(model, seed, engines["threads"])
    real, jumps = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: real() + (-1) ** next(jumps) * 1e7)
    found = nw.sample(
        model, RELEASE, nw.Rejection(max_seconds=60.0), draws=200, seed=seed, engine=engines[kind], progress=False
    )
    np.testing.assert_array_equal(found["theta"], expected["theta"])
    assert 0.0 <= found.seconds < 60.0


def deadly(parent, rng, theta):
    if os.getpid() != parent and theta > 8.0:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(rng.poisson(theta))


def test_a_block_that_kills_every_worker_is_named(seed, engines, monkeypatch):
    """The last test of these workers: two of the two are dead afterwards."""
    monkeypatch.setattr(processes_module, "MOST_DEATHS", 2)
    parent = os.getpid()
    model = simulated(lambda rng, theta: deadly(parent, rng, theta))
    with pytest.raises(nw.InferenceError, match=r"2 workers ended .* while they ran the same block") as caught:
        sample(model, seed, engines["processes"])
    assert f"seed {seed}, block (" in str(caught.value)
