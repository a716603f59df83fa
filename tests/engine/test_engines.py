"""Engines: the same draws from threads, processes and a real cluster; bounded work in flight; work that travels."""

import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import weakref
from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from targets import briefly

import noisewise as nw
from noisewise.engine import Broken, Dask, Engine, Processes, Stopped, Task, Threads, gather, machine, threads
from noisewise.engine import dask as cluster
from noisewise.engine import transport as shipping
from noisewise.inference.problem import Problem
from noisewise.model import Model
from noisewise.numerics import Compiled, double
from noisewise.samplers import ImportanceRejection

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore:.*no end in sight:noisewise.NoisewiseWarning")  # a busy machine


def away(engine, works, tick=lambda: None):
    """`gather`, in other processes where the engine has them."""
    return gather(engine, works, tick, portable=True)


@pytest.fixture(scope="module")
def client():
    """A real cluster of two worker processes."""
    settings = dict(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50)
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as found:
        yield found


@pytest.fixture(scope="module")
def processes():
    with Processes(2) as engine:
        away(engine, [partial(squared, number) for number in range(4)])  # workers take time to start
        yield engine


def count_problem():
    model = nw.Model({"theta": dist.Gamma(25.1, 1.0)}, {"count": lambda theta: dist.Poisson(theta)})
    return model, nw.Release(count=nw.Laplace(scale=5.0).released(37.4))


def regression_problem():
    """Two independent groups, a hierarchy, and a clamped total whose records depend on a parameter."""
    weights = np.asarray(jnp.asarray([0.1, 0.7]))  # 32 bits, as an analyst would have it

    def contribution(x, y, w=weights):
        return jnp.stack([w[0] * jnp.clip(x, -1, 1), w[1] * jnp.clip(x * y, -2, 2)])

    total = nw.Total({"x": dist.Normal(0.1, 1.0), "y": lambda x, beta: dist.Normal(beta * x, 1.0)}, contribution, n=30)
    model = nw.Model(
        {"spread": dist.HalfNormal(1.3), "beta": lambda spread: dist.Normal(0.2, spread), "rate": dist.Gamma(3.3, 0.7)},
        {"sums": total, "visits": lambda rate: dist.Poisson(rate)},
    )
    noise = nw.Laplace(scale=2.0)
    return model, nw.Release(sums=noise.released([1.0, 5.0]), visits=nw.DiscreteLaplace(scale=1.5).released(4))


def slow_count(rng, theta):
    return int(rng.poisson(theta))


def simulator_problem():
    model = nw.Model({"theta": dist.Gamma(5.5, 1.0)}, {"count": nw.Simulator(slow_count)})
    return model, nw.Release(count=nw.Laplace(scale=2.0).released(7.4))


PROBLEMS = {"count": count_problem, "regression": regression_problem, "simulator": simulator_problem}


def same(one, other):
    assert one.status == other.status
    assert one.proposals == other.proposals
    for name in one.draws:
        np.testing.assert_array_equal(one[name], other[name])
    if one.log_weights is not None:
        np.testing.assert_array_equal(one.log_weights, other.log_weights)


@pytest.mark.parametrize("case", PROBLEMS)
def test_processes_and_clusters_give_the_draws_of_threads(case, seed, client, processes):
    model, release = PROBLEMS[case]()
    draws = 3_000 if case == "count" else 400
    by_threads = nw.sample(model, release, nw.Rejection(), draws=draws, seed=seed, engine=Threads(1))
    for engine in (processes, Dask(client), Dask(client, in_flight=1)):
        same(by_threads, nw.sample(model, release, nw.Rejection(), draws=draws, seed=seed, engine=engine))


PILOTS = [nw.Importance("adapted", simulations=None), ImportanceRejection(), None]


@pytest.mark.parametrize("sampler", briefly(PILOTS, [PILOTS[0], None]), ids=str)
def test_pilots_and_weights_travel_too(sampler, seed, client, processes):
    model, release = count_problem()
    by_threads = nw.sample(model, release, sampler, draws=2_000, seed=seed, engine=Threads(2))
    for engine in (processes, Dask(client)):
        same(by_threads, nw.sample(model, release, sampler, draws=2_000, seed=seed, engine=engine))


def test_a_checkpoint_goes_from_engine_to_engine(seed, client, processes, tmp_path):
    model, release = count_problem()
    whole, part = tmp_path / "whole.nwc", tmp_path / "part.nwc"

    def run(engine, path):
        return nw.sample(model, release, nw.Rejection(), draws=60_000, seed=seed, engine=engine, checkpoint=path)

    by_threads = run(Threads(2), whole)
    size = whole.stat().st_size
    for engine, share in ((processes, 0.3), (Dask(client), 0.5), (Threads(1), 0.7)):
        shutil.copyfile(whole, part)
        os.truncate(part, int(share * size))
        with pytest.warns(nw.NoisewiseWarning, match="was cut short or damaged"):
            same(by_threads, run(engine, part))


def test_the_current_client_is_the_default(seed, client):
    model, release = count_problem()
    by_threads = nw.sample(model, release, nw.Rejection(), draws=100, seed=seed)
    with client.as_current():
        same(by_threads, nw.sample(model, release, nw.Rejection(), draws=100, seed=seed, engine=Dask()))


# Bounds ---------------------------------------------------------------------------------------------------------------


class Counting:
    """A source of many small tasks that notes how many are in flight."""

    def __init__(self, size=40):
        self.size, self.launched, self.ended, self.most, self.results = size, 0, 0, 0, {}

    def next_task(self, most):
        if self.launched == self.size:
            return None
        number = self.launched
        self.launched += 1
        self.most = max(self.most, self.launched - self.ended)
        return Task(partial(squared, number), partial(self.done, number))

    def done(self, number, result):
        self.results[number] = result
        self.ended += 1

    @property
    def finished(self):
        return self.ended == self.size

    def tick(self):
        pass


def squared(number, poll):
    poll()
    return number**2


def test_blocks_in_flight_are_bounded(client, processes):
    for engine, most in ((Threads(3), 6), (processes, 4), (Dask(client), 4), (Dask(client, in_flight=3), 3)):
        source = Counting()
        engine.execute(source)
        assert source.results == {number: number**2 for number in range(40)}
        assert 1 < source.most <= most


def test_short_memory_lowers_blocks_in_flight_and_changes_no_draw(seed, monkeypatch):
    model, release = count_problem()
    plenty = nw.sample(model, release, nw.Rejection(), draws=20_000, seed=seed, engine=Threads(4))
    monkeypatch.setattr(machine, "_recent_memory", lambda tick: (2**20, 2**30))
    with pytest.warns(nw.NoisewiseWarning, match=r"memory is short \(1 MiB left\)"):
        short = nw.sample(model, release, nw.Rejection(), draws=20_000, seed=seed, engine=Threads(4))
    same(plenty, short)


def test_memory_sets_the_room_and_it_comes_back(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(machine.time, "monotonic", lambda: clock[0])
    room, found = machine.Room(), []

    def look(available):
        monkeypatch.setattr(machine, "memory", lambda: (available, 1000))
        clock[0] += 0.2
        found.append(room(8))

    look(900)
    look(900)
    with pytest.warns(nw.NoisewiseWarning, match="memory is short"):
        look(20)
    for available in [20, 20, 120, 900, 900, 900]:
        look(available)
    assert found == [8, 8, 4, 2, 1, 1, 2, 3, 4]


def test_files_that_can_be_given_up_do_not_count_as_used_memory(monkeypatch, tmp_path):
    """A container counts cached files as used, those of a checkpoint among them."""
    for name, text in (("max", "1000"), ("current", "990"), ("stat", "anon 190\ninactive_file 700\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr(machine, "GROUP", tmp_path)
    monkeypatch.setattr(machine, "_machine_memory", lambda: (50_000, 100_000))
    assert machine.memory() == (710, 1000)
    (tmp_path / "memory.stat").unlink()
    assert machine.memory() == (10, 1000)
    (tmp_path / "memory.max").write_text("max")
    assert machine.memory() == (50_000, 100_000)


@pytest.mark.quick
def test_this_machine_says_how_much_memory_it_has():
    available, total = machine.memory()
    assert 0 < available <= total


# Work that travels ----------------------------------------------------------------------------------------------------


def test_a_model_travels_once_and_blocks_are_small(seed):
    problem = Problem(*regression_problem())
    works = [partial(drawn, problem, np.random.SeedSequence(seed, spawn_key=(0, 0, block))) for block in range(2)]
    (first, books), (second, again) = (shipping.encode("test", work) for work in works)
    assert books.keys() == again.keys()
    assert len(books) == 2  # a model and a release
    assert max(len(first), len(second)) < 2_000 < max(map(len, books.values()))
    kind, values = shipping.perform(first, books, lambda: None)
    assert kind == "done"
    kind, values_again = shipping.perform(first, {}, lambda: None)  # the model is known by now
    for name, value in works[0](lambda: None).items():
        np.testing.assert_array_equal(value, values[name])
        np.testing.assert_array_equal(value, values_again[name])


def test_a_model_that_never_came_is_asked_for():
    content, _ = shipping.encode("test", partial(drawn, Problem(*count_problem()), np.random.SeedSequence(1)))
    assert shipping.perform(content, {}, lambda: None)[0] == "missing"


def drawn(problem, key, poll):
    return problem.model.draw(np.random.default_rng(key), problem.model.order, 64, {}, poll)


def test_arrays_keep_their_64_bits_on_the_way():
    with double():
        value = jnp.asarray(0.1)
    content, _ = shipping.encode("test", partial(squared, value))
    assert shipping.decode(content, {}).args[0].dtype == np.float64
    assert pickle.loads(pickle.dumps(value)).dtype == np.float32  # what would have become of it outside `double`


@pytest.mark.quick
def test_a_pickled_model_leaves_its_programs_behind_and_draws_the_same():
    model, _ = regression_problem()
    drawn_here = model.simulate(100, 3)
    model.compiled["something"] = Compiled(lambda: jnp.sin)
    content, books = shipping.encode("test", partial(squared, model))
    copy = shipping.decode(content, books).args[0]
    assert isinstance(copy, Model)
    assert copy.compiled == {}
    for name, values in copy.simulate(100, 3).items():
        np.testing.assert_array_equal(values, drawn_here[name])


def test_threads_that_want_one_program_compile_it_once():
    built = []

    def build():
        built.append(1)
        return lambda x: jnp.cumsum(jnp.sin(x))

    program, barrier = Compiled(build), threading.Barrier(4)

    def use(poll):
        barrier.wait()
        with double():
            return np.asarray(program(np.arange(5.0)))

    results = gather(Threads(4), [use] * 4)
    assert len(built) == 1
    assert all(np.array_equal(result, results[0]) for result in results)


def test_work_that_shares_memory_stays_here(client, processes):
    seen = []
    for engine in (processes, Dask(client)):
        assert gather(engine, [lambda poll, n=n: seen.append(n) or n for n in range(3)]) == [0, 1, 2]
    assert sorted(seen) == [0, 0, 1, 1, 2, 2]


def test_work_that_travels_may_be_any_closure(client, processes):
    base = np.arange(3)
    for engine in (processes, Dask(client)):
        found = away(engine, [lambda poll, n=n: base + n for n in range(3)])
        np.testing.assert_array_equal(found, base + np.arange(3)[:, None])


def test_work_that_cannot_travel_is_refused(processes):
    lock = threading.Lock()
    with pytest.raises(nw.InputError, match="must be able to send its work to another process; TypeError"):
        away(processes, [lambda poll: lock])


# Life of workers ------------------------------------------------------------------------------------------------------


def test_workers_stay_for_the_next_run_and_end_with_the_engine(seed):
    model, release = count_problem()
    with Processes(1) as engine:
        away(engine, [partial(squared, 1)])
        first = engine.processes
        nw.sample(model, release, nw.Rejection(), draws=50, seed=seed, engine=engine)
        assert engine.processes == first
        workers = list(engine._crew.workers)
    assert engine.processes == []
    assert all(worker.process.poll() is not None for worker in workers)


def test_two_runs_may_share_the_workers(processes):
    found = {}

    def run(first):
        found[first] = away(processes, [partial(squared, first + n) for n in range(20)])

    threads = [threading.Thread(target=run, args=[first]) for first in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {first: [(first + n) ** 2 for n in range(20)] for first in (0, 100)}


def test_scripts_need_no_guard_and_workers_print_elsewhere(tmp_path):
    """Workers do not import the script, and what a simulator prints does not disturb them."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpyro.distributions as dist\n"
        "import noisewise as nw\n"
        "from noisewise.engine import Processes\n"
        "def simulate(rng, theta):\n"
        "    print('hello')\n"
        "    return int(rng.poisson(theta))\n"
        "model = nw.Model({'theta': dist.Gamma(5.0, 1.0)}, {'count': nw.Simulator(simulate)})\n"
        "release = nw.Release(count=nw.Laplace(scale=2.0).released(7.4))\n"
        "found = nw.sample(model, release, nw.Rejection(), draws=20, seed=1, engine=Processes(1))\n"
        "print(len(found['theta']), 'draws')\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.endswith("20 draws\n"), done.stderr[-2000:]


def test_blocks_no_longer_wanted_stop(client, processes):
    for engine in (Threads(2), processes, Dask(client)):

        class Ended(Exception):
            pass

        def tick(ended=Ended):
            raise ended

        with pytest.raises(Ended):
            away(engine, [partial(endless, 0.01)] * 2, tick)
        assert away(engine, [partial(squared, 3)]) == [9]


def endless(pause, poll):
    import time

    while True:
        time.sleep(pause)
        poll()


def test_poll_raises_only_when_the_run_is_over():
    assert gather(Threads(1), [partial(squared, 2)]) == [4]
    with pytest.raises(Stopped):
        raise Stopped


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Dask(3), "'client' must be a dask.distributed.Client, or None"),
        (lambda: Dask(in_flight=0), "'in_flight' must be a whole number, at least 1"),
        (lambda: Processes(0), "'workers' must be a whole number, at least 1"),
        (lambda: Processes(timeout=-1.0), "'timeout' must be"),
    ],
)
def test_bad_settings_are_refused(make, rule):
    with pytest.raises(nw.InputError, match=rule):
        make()


def test_no_client_is_refused(monkeypatch):
    def none():
        raise ValueError("No clients found")

    monkeypatch.setattr(distributed, "default_client", none)
    with pytest.raises(nw.InputError, match="'client' must be there"):
        Dask().execute(Counting())


@pytest.mark.parametrize("name", ["noisewise", "numpy", "scipy", "jax", "numpyro", "python", "processor"])
def test_other_versions_are_refused(name, client, monkeypatch):
    here = shipping.versions()
    monkeypatch.setattr("noisewise.engine.dask.versions", lambda: {**here, name: "0.0.1"})
    with pytest.raises(nw.InferenceError, match=re.escape(f"client ({name} {here[name]} there, 0.0.1 here)")):
        Dask(client).execute(Counting())


def test_workers_without_noisewise_are_refused_and_not_broken(client, monkeypatch):
    """They would go down with the first block, and the run wait for others."""
    monkeypatch.setattr(cluster, "_met", weakref.WeakKeyDictionary())

    def exchange(here, there):
        import sys

        sys.modules[here], sys.modules[there] = sys.modules.get(there), sys.modules.get(here)

    client.run(lambda: __import__("noisewise") and None)
    client.run(exchange, "noisewise", "hidden")
    try:
        with pytest.raises(nw.InferenceError, match=r"the worker tcp://\S+ cannot import noisewise \(import of"):
            Dask(client).execute(Counting())
    finally:
        client.run(exchange, "noisewise", "hidden")
    source = Counting()
    Dask(client, in_flight=3).execute(source)
    assert len(source.results) == 40


def test_a_client_that_closes_between_two_looks_ends_the_run_as_a_lost_scheduler_does():
    """So that what has been accepted is returned, and not lost to an error."""
    settings = dict(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50)
    with distributed.LocalCluster(**settings) as cluster:
        client = distributed.Client(cluster)

        class Closing(Counting):
            def next_task(self, most):
                if self.launched == 1:
                    client.close()
                return super().next_task(most)

        with pytest.warns(nw.NoisewiseWarning, match="connection to the scheduler was lost"), pytest.raises(Broken):
            Dask(client).execute(Closing())


def test_many_threads_have_short_turns_with_the_interpreter_and_leave_it_as_it_was():
    before, seen = sys.getswitchinterval(), []
    for workers in (2, threads.MANY):
        seen.append(gather(Threads(workers), [lambda poll: sys.getswitchinterval()])[0])
        assert sys.getswitchinterval() == before
    assert seen == pytest.approx([before, threads.TURN])


def test_turns_stay_short_until_the_last_of_several_runs_ends():
    before = sys.getswitchinterval()
    first, second = threads.short_turns(), threads.short_turns()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(threads.TURN)
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == before


def test_an_engine_states_what_it_wants_as_it_likes():
    class Mine(Engine):
        def __init__(self, rows):
            self.block_rows = rows

        def execute(self, source):
            raise NotImplementedError

    assert Mine(1_024).block_rows == 1_024
    assert Engine.block_rows is None
    assert nw.Laplace.event_dim == 0  # mechanisms likewise
