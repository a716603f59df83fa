"""Kill workers of the engines at random moments, and see that no draw is lost or altered.

    python tests/campaigns/chaos_engines.py [kills] [seed]

Run by `make chaos`. Runs of `Processes`, and on a cluster of Dask processes, lose a worker every now and then; each
must end with exactly the draws that threads give, where nobody is killed.
"""

import os
import signal
import sys
import threading
import time

import numpy as np
import numpyro.distributions as dist

import noisewise as nw
from noisewise.engine import Dask, Processes, Threads

KILLS = 25
DESERTED = 45.0
"""Seconds without a worker after which its cluster gets another."""


def simulate(rng, theta):
    """Slow enough for kills to find blocks under way."""
    time.sleep(5e-4)
    return rng.poisson(theta) + rng.normal()


def problem():
    """A simulator beside a law and a total, so that streams merge."""
    total = nw.Total({"x": lambda rate: dist.Exponential(rate)}, lambda x: x.clip(0.0, 3.0), n=20)
    model = nw.Model(
        {"theta": dist.Gamma(5.5, 1.0), "rate": dist.Gamma(3.0, 2.0)},
        {"count": nw.Simulator(simulate), "sum": total},
    )
    return model, nw.Release(count=nw.Laplace(scale=2.0).released(7.4), sum=nw.Laplace(scale=1.0).released(12.0))


class Killer:
    """Kills one of the processes that `workers()` names, after a random time, again and again.

    `workers()` names processes that are ready for work, so that runs get somewhere in between.
    """

    def __init__(self, workers, kills, rng):
        self.workers, self.left, self.rng, self.killed = workers, kills, rng, []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.stop.wait(self.rng.uniform(0.2, 2.5)):
            alive = self.workers()
            if alive and self.left:
                pid = int(self.rng.choice(alive))
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.killed.append(pid)
                self.left -= 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.stop.set()
        self.thread.join()


def differences(found, expected):
    """Draws that are missing, too many or different."""
    if len(found) != len(expected):
        return abs(len(found) - len(expected))
    return sum(int(np.any(found[name] != expected[name])) for name in expected.draws)


def campaign(name, engine, workers, kills, rng, draws=1_500):
    """Runs until `kills` workers have been killed; (runs, kills, differences)."""
    model, release = problem()
    runs = killed = wrong = 0
    while killed < kills:
        seed = int(rng.integers(2**31))
        expected = nw.sample(model, release, nw.Rejection(), draws=draws, seed=seed, engine=Threads(2))
        with Killer(workers, kills - killed, rng) as killer:
            found = nw.sample(model, release, nw.Rejection(), draws=draws, seed=seed, engine=engine)
        runs, killed, wrong = runs + 1, killed + len(killer.killed), wrong + differences(found, expected)
        told = f"{name}: run {runs} with seed {seed}, {len(killer.killed)} workers killed, {wrong} differences"
        print(told, flush=True)
    return runs, killed, wrong


def on_processes(kills, rng):
    with Processes(2) as engine:

        def workers():
            return [worker.process.pid for worker in list(engine._crew.workers) if worker.ready]

        return campaign("Processes", engine, workers, kills, rng)


def on_dask(kills, rng):
    import distributed

    settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**settings, silence_logs=50) as cluster, distributed.Client(cluster) as client:
        seen = [time.monotonic()]

        def workers():
            """Those that the scheduler knows: Dask's nanny does not replace a worker that dies while it starts.

            Where all nannies have given up, a new worker is hired, or the run would wait for ever.
            """
            nannies = [nanny for nanny in list(cluster.workers.values()) if nanny.process is not None]
            found = [nanny.pid for nanny in nannies if nanny.worker_address in cluster.scheduler.workers]
            if found:
                seen[0] = time.monotonic()
            elif time.monotonic() - seen[0] > DESERTED:
                seen[0] = time.monotonic()
                print("Dask: no worker is left; another is hired", flush=True)
                cluster.scale(len(cluster.worker_spec) + 1)
            return found

        return campaign("Dask", Dask(client), workers, kills, rng)


def tally(kills=KILLS, seed=None):
    """Kills and differences by engine."""
    seed = int(time.time_ns() % 2**32) if seed is None else seed
    print(f"chaos_engines: {kills} kills, seed {seed}", flush=True)
    rng = np.random.default_rng(seed)
    first = kills // 2
    return {"Processes": on_processes(kills - first, rng), "Dask": on_dask(first, rng)}


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    found = tally(kills, int(sys.argv[2]) if len(sys.argv) > 2 else None)
    for name, (runs, killed, wrong) in found.items():
        print(f"{name:<10} {runs:>3} runs, {killed:>3} workers killed, {wrong} draws lost or altered")
    sys.exit(any(wrong for _, _, wrong in found.values()))


if __name__ == "__main__":
    main()
