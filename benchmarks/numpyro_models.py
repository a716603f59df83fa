"""NUTS of NumPyro on `nw.Privatised` beside `nw.NUTS()` and beside the naive fit, in turn within one run.

python benchmarks/numpyro_models.py --write     # some minutes; writes docs/benchmarks.md
python benchmarks/numpyro_models.py --quick     # one short run of each, to see that it works

Effective draws are those of the worst of the parameters that all competitors have, by the autocorrelation of four
chains; seconds include warm-up, not compilation. All in 64 bits, chains in threads of their own, as many at a time as
there are processors: what NumPyro calls parallel, and what `nw.NUTS()` does. The time of one gradient, with the log
density, is that at a draw of the posterior. `nw.NUTS()` integrates the rates out by itself; in a NumPyro model the user
does, by a negative binomial law in place of Gamma and Poisson, and the two parameters that are left, which go together,
are given `dense_mass=True`. With 1,000 rates to sample as well there is no such choice: noise ties each rate to its
release less than the count itself would, rates and their common law move together, and walks are long.
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import page
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import NUTS
from numpyro.infer.util import initialize_model

import noisewise as nw

UNITS, CHAINS = 1_000, 4
WHOLE = nw.DiscreteGaussian(scale=6.0)
LAPLACE = nw.Laplace(scale=5.0)


def released_counts():
    """Counts of a hierarchical model, with noise."""
    rng = np.random.default_rng(0)
    return np.asarray(WHOLE.sample(rng, rng.poisson(rng.gamma(5.0, 4.0, UNITS)))).astype(int)


def count():
    rate = numpyro.sample("rate", dist.Gamma(25.0, 1.0))
    numpyro.sample("released", nw.Privatised(dist.Poisson(rate), LAPLACE), obs=37.4)


def hierarchy(values, law, collapsed):
    """`law` makes of the law of a count that of what is observed; `collapsed` integrates the rates out as well."""
    a, b = numpyro.sample("a", dist.HalfNormal(10.0)), numpyro.sample("b", dist.HalfNormal(1.0))
    with numpyro.plate("units", UNITS):
        if collapsed:
            numpyro.sample("counts", law(dist.GammaPoisson(a, b)), obs=values)
        else:
            numpyro.sample("counts", law(dist.Poisson(numpyro.sample("rate", dist.Gamma(a, b)))), obs=values)


def private(law):
    return nw.Privatised(law, WHOLE)


def naive(law):
    return law


class InNumPyro:
    """NUTS of NumPyro on a model function, whose log density is made once, or each run would compile it anew."""

    def __init__(self, model, *args, dense=False):
        self.model, self.args, self.dense = model, args, dense
        self.chain = None

    def prepare(self, draws, warmup):
        """The log density, and a program that runs the chains: `MCMC.run` would compile both anew every time."""
        found = initialize_model(jax.random.key(0), self.model, model_args=self.args)
        self.free, self.log_density = found.param_info.z, found.potential_fn
        kernel = NUTS(potential_fn=found.potential_fn, dense_mass=self.dense)

        def chain(key, start):
            state = kernel.init(key, warmup, start, (), {})

            def step(state, _):
                state = kernel.sample(state, (), {})
                return state, (state.z, state.num_steps)

            _, (drawn, steps) = jax.lax.scan(step, state, None, length=warmup + draws // CHAINS)
            kept, counted = jax.tree.map(lambda one: one[warmup:], (drawn, steps))
            return kept, jax.vmap(found.postprocess_fn)(kept), counted

        self.chain = jax.jit(chain)

    def __call__(self, seed, draws, warmup):
        """Draws by name, chains first."""
        with jax.enable_x64(True):
            if self.chain is None:
                self.prepare(draws, warmup)
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
                ran = list(threads.map(partial(self.one, seed), range(CHAINS)))
            self.last = jax.tree.map(lambda one: one[-1], ran[0][0])
            self.steps = int(np.sum([steps for _, _, steps in ran]))
            return {name: np.stack([found[name] for _, found, _ in ran]) for name in ran[0][1]}

    def one(self, seed, number):
        """One chain: its states in free coordinates, its draws by name, its gradients."""
        with jax.enable_x64(True):  # a setting of each thread
            rng = np.random.default_rng([seed, number])
            start = {name: rng.uniform(-2.0, 2.0, np.shape(one)) for name, one in self.free.items()}
            return jax.tree.map(np.asarray, self.chain(jax.random.key(CHAINS * seed + number), start))

    def step(self):
        """Milliseconds of one gradient at the end of the last run's first chain."""
        with jax.enable_x64(True):
            program = jax.jit(jax.value_and_grad(self.log_density))
            point = jax.tree.map(jnp.asarray, self.last)
            jax.block_until_ready(program(point))
            times = []
            for _ in range(200):
                start = time.perf_counter()
                jax.block_until_ready(program(point))
                times.append(time.perf_counter() - start)
        return 1e3 * float(np.min(times))


class InNoisewise:
    """`nw.NUTS()` on the same model."""

    def __init__(self, model, release):
        self.model, self.release = model, release

    def __call__(self, seed, draws, warmup):
        """Draws by name, chains first."""
        sampler = nw.NUTS(warmup=warmup, chains=CHAINS)
        found = nw.sample(self.model, self.release, sampler, draws=draws, seed=seed, on_failure="return")
        return {name: found[name].reshape(CHAINS, -1, *found[name].shape[1:]) for name in self.model.parameters}

    def step(self):
        """Not measured: its programs are its own."""
        return np.nan


def problems():
    """By name: the parameters looked at, and the competitors, the first of which the others are compared with."""
    values = released_counts()
    rates = {
        "a": dist.HalfNormal(10.0),
        "b": dist.HalfNormal(1.0),
        "rate": lambda a, b: dist.Gamma(a, b).expand([UNITS]),
    }
    groups = nw.Model(rates, {"counts": lambda rate: dist.Poisson(rate)})
    one = nw.Model({"rate": dist.Gamma(25.0, 1.0)}, {"count": lambda rate: dist.Poisson(rate)})
    several = partial(InNumPyro, hierarchy)
    positive = np.maximum(values, 0)
    return {
        "count": (
            ("rate",),
            {
                "NumPyro's NUTS on nw.Privatised": InNumPyro(count),
                "nw.NUTS()": InNoisewise(one, nw.Release(count=LAPLACE.released(37.4))),
            },
        ),
        "1,000 counts": (
            ("a", "b"),
            {
                "NumPyro's NUTS on nw.Privatised": several(values, private, False),
                "nw.NUTS()": InNoisewise(groups, nw.Release(counts=WHOLE.released(values))),
                "NumPyro's NUTS, naive": several(positive, naive, False),
            },
        ),
        "1,000 counts, rates integrated out": (
            ("a", "b"),
            {
                "NumPyro's NUTS on nw.Privatised": several(values, private, True, dense=True),
                "nw.NUTS()": InNoisewise(groups, nw.Release(counts=WHOLE.released(values))),
                "NumPyro's NUTS, naive": several(positive, naive, True, dense=True),
                "NumPyro's NUTS, naive, rates sampled": several(positive, naive, False),
            },
        ),
    }


def measured(names, sides, runs, draws, warmup):
    """Of every competitor: effective draws per second, gradients per effective draw, milliseconds of one gradient."""
    effective, seconds, steps = ({side: [] for side in sides} for _ in range(3))
    for seed in range(runs + 1):
        for side, run in sides.items():
            start = time.perf_counter()
            found = run(seed, draws, warmup)
            if seed:  # the first run compiles
                seconds[side].append(time.perf_counter() - start)
                effective[side].append(min(float(effective_sample_size(found[name])) for name in names))
                steps[side].append(getattr(run, "steps", np.nan))
    return {
        side: (
            np.sum(effective[side]) / np.sum(seconds[side]),
            np.sum(steps[side]) / np.sum(effective[side]),
            run.step(),
        )
        for side, run in sides.items()
    }


def main():
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--draws", type=int, default=4_000)
    parser.add_argument("--warmup", type=int, default=1_000)
    parser.add_argument("--only", default="", help="part of a problem's name")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    runs, draws, warmup = (1, 400, 100) if given.quick else (given.runs, given.draws, given.warmup)
    table = []
    for problem, (names, sides) in problems().items():
        if given.only not in problem:
            continue
        found = measured(names, sides, runs, draws, warmup)
        first = next(iter(found.values()))[0]
        for side, (rate, gradients, step) in found.items():
            shown = [f"{one:.3g}" if np.isfinite(one) else "" for one in (rate, gradients, step)]
            table.append([problem, side, *shown, f"{first / rate:.2g}"])
            print(" | ".join(table[-1]), flush=True)
        if given.write:  # what there is, after every problem: the last takes longest
            settings = f"--runs {runs} --draws {draws} --warmup {warmup}"
            told = page.measured_by(f"python benchmarks/numpyro_models.py {settings} --write")
            text = ["## Inside NumPyro models", told, NOTE, page.table([HEAD, *table])]
            page.write("numpyro models", "\n\n".join(text))


HEAD = [
    "problem",
    "method",
    "effective draws/s",
    "gradients per effective draw",
    "ms per gradient",
    "Privatised, times",
]
NOTE = " ".join(__doc__.split("\n\n")[-1].split())


if __name__ == "__main__":
    main()
