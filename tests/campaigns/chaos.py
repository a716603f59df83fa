"""A campaign of kill -9 against checkpointed runs: none may lose or alter a draw.

    python tests/campaigns/chaos.py [kills] [seed]

Run by `make chaos`. Every case runs once in peace. Then it runs with a checkpoint in a process of its own, which is
killed at random moments, in the middle of writes too, and started again on another number of threads, or on processes,
until it comes to its end. What it returns then must be equal to the peaceful run's, bit by bit. Cases of the
accelerator engine, which run on the CPU as a device, stay on it.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WAIT = 300.0
"""Seconds after which a run is taken for hung."""


def cases():
    """By name: a function of keyword arguments that runs, and returns arrays."""
    import numpyro.distributions as dist
    from targets import count_model, count_release, lalonde_model, lalonde_release

    import noisewise as nw
    from noisewise.samplers import rejection

    rejection.LEAF_ROWS = 2**11  # many blocks, so that there are many moments to be killed at

    def slow(rng, theta):
        time.sleep(1e-4)
        return rng.poisson(theta)

    simulator = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": nw.Simulator(slow)})
    total = nw.Model(
        prior={"mu": dist.Normal(0.0, 2.0)},
        statistics={"sum": nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: x.clip(-3.0, 3.0), n=40)},
    )
    sums = nw.Release(sum=nw.Laplace(scale=3.0).released(31.0))
    device = nw.Device("cpu", rows=2**13)
    lalonde = lalonde_model(), lalonde_release((7.9, 3.1, 66.0, 27.5))
    count = count_model(), count_release()

    def sampled(model, release, sampler, draws, **fixed):
        def run(**keywords):
            found = nw.sample(model, release, sampler, draws=draws, on_failure="return", **{**keywords, **fixed})
            more = {} if found.log_weights is None else {"log_weights": found.log_weights}
            told = {"numbers": np.array([found.proposals, found.log_evidence or 0.0, found.acceptance_rate or 0.0])}
            return {**{name: np.asarray(found[name]) for name in found.draws}, **more, **told}

        return run

    def fitted(model, release, estimator, **fixed):
        def run(**keywords):
            settings = {"start": {"theta": 3.0}, "on_failure": "return", **keywords, **fixed}
            found = nw.fit(model, release, estimator, **settings)
            rows = np.array([row["theta"] for row in found.trace])
            return {"estimate": found.estimate["theta"], "covariance": found.covariance, "trace": rows}

        return run

    return {
        "rejection": sampled(*lalonde, nw.Rejection(), 1_500),
        "simulator": sampled(simulator, count[1], nw.Rejection(), 1_000),
        "importance": sampled(*count, nw.Importance(), 400_000),
        "importance-rejection": sampled(*count, nw.ImportanceRejection(), 60_000),
        "rejection-control": sampled(*count, nw.RejectionControl(proposal="adapted"), 60_000),
        "mcmc": sampled(*count, nw.MCMC(), 100_000),
        "smc": sampled(*count, nw.SMC(keep=0.9), 30_000),
        "augmentation": sampled(total, sums, nw.Augmentation(), 20_000),
        "augmentation-lalonde": sampled(*lalonde, nw.Augmentation(), 20_000),
        "nuts": sampled(*count, nw.NUTS(), 12_000),
        "chosen": sampled(*lalonde, None, 4_000),
        "mcem": fitted(*count, nw.MCEM(final=50_000)),
        "device-rejection": sampled(*lalonde, nw.Rejection(), 3_000, engine=device),
        "device-importance": sampled(*count, nw.Importance(), 400_000, engine=device),
        "device-mcmc": sampled(*count, nw.MCMC(), 100_000, engine=device),
        "device-mcem": fitted(*count, nw.MCEM(final=50_000), engine=device),
    }


def engine_of(words):
    """ "threads 2" or "processes 1" as an engine."""
    import noisewise as nw
    from noisewise.engine import Processes

    kind, size = words.split()
    return {"threads": nw.Threads, "processes": Processes}[kind](int(size))


def any_engine(rng):
    """One of those that give the same draws, in words."""
    return f"processes {rng.integers(1, 3)}" if rng.random() < 0.2 else f"threads {rng.integers(1, 4)}"


def child(name, seed, engine, path, out):
    """One run in a process of its own; states are saved as often as can be."""
    from noisewise.checkpoint import log as resume

    resume.EVERY, resume.RATE = 0.02, 2.0**30
    found = cases()[name](seed=seed, engine=engine_of(engine), checkpoint=path, progress=False)
    np.savez(out + ".part.npz", **found)
    os.replace(out + ".part.npz", out)


def start(name, seed, engine, path, out):
    """The process of `child`."""
    command = [sys.executable, "-W", "ignore", __file__, "child", name, str(seed), engine, str(path), str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill_while_writing(process, path, rng):
    """Kill it a random while after its file has grown; False where it came to its end before."""
    size = path.stat().st_size if path.exists() else 0
    began = time.monotonic()
    while not path.exists() or path.stat().st_size <= max(size, 4096):
        if process.poll() is not None:
            return False
        if time.monotonic() - began > WAIT:
            process.kill()
            raise TimeoutError("a run hung")
        time.sleep(0.002)
    time.sleep(float(rng.exponential(0.1)))
    if process.poll() is not None:
        return False
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()
    return True


def finish(process):
    """Wait for the end, which must be a good one."""
    told = process.communicate(timeout=WAIT)[1].decode()
    if process.returncode != 0:
        raise RuntimeError(told)


def endure(name, seed, rng, kills, folder):
    """Run a case through `kills` kills at most: (what it gives, kills there were)."""
    path, out = Path(folder) / f"{name}.nwc", Path(folder) / f"{name}.npz"
    done = 0
    while done < kills:
        process = start(name, seed, any_engine(rng), path, out)
        if not kill_while_writing(process, path, rng):
            finish(process)
            break
        done += 1
        if rng.random() < 0.3:  # as if the machine had lost the last pages too
            with path.open("r+b") as file:
                file.truncate(max(4096, path.stat().st_size - int(rng.integers(1, 2000))))
    if not out.exists():
        finish(start(name, seed, any_engine(rng), path, out))
    with np.load(out) as found:
        return dict(found), done


def main(kills, seed):
    """The campaign; exits with 1 where anything differs."""
    rng = np.random.default_rng(seed)
    runs, total, wrong, rounds = cases(), 0, 0, 0
    print(f"chaos: {kills} kills, seed {seed}", flush=True)
    peace = {}
    with tempfile.TemporaryDirectory() as folder:
        while total < kills:
            for number, (name, run) in enumerate(runs.items()):
                share = -(-(kills - total) // (len(runs) - number))
                if not share:
                    break
                if name not in peace:
                    peace[name] = run(seed=seed, progress=False)
                inner = Path(folder) / str(rounds)
                inner.mkdir(exist_ok=True)
                found, done = endure(name, seed, rng, share, inner)
                same = sorted(found) == sorted(peace[name]) and all(
                    np.array_equal(found[key], peace[name][key], equal_nan=True) for key in found
                )
                total, wrong = total + done, wrong + (not same)
                print(f"{name:22} {done} kills, {'the same draws' if same else 'DIFFERENT'}", flush=True)
            rounds += 1
    print(f"{total} kills, {wrong} runs with lost or altered draws", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers")]
    import warnings

    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], int(sys.argv[3]), *sys.argv[4:7])
    else:
        numbers = [int(argument) for argument in sys.argv[1:]]
        sys.exit(main(*(numbers + [30, 1][len(numbers) :])))
