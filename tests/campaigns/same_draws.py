"""Digests of the draws that every sampler and estimator gives for one seed: what a change of layout must not alter.

    python tests/campaigns/same_draws.py            compares with tests/reference/draws.json
    python tests/campaigns/same_draws.py --write    writes it anew; the commit says which digests changed, and why

A digest is of every bit, so it holds for one set of versions and one kind of processor; the file names both.
"""

import argparse
import hashlib
import json
import platform
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jaxlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy

import noisewise as nw
from noisewise.likelihood.e_step.table import E_STEPS
from noisewise.likelihood.intervals import bootstrap

FILE = Path(__file__).resolve().parents[1] / "reference" / "draws.json"


@cache
def count() -> tuple[nw.Model, nw.Release]:
    model = nw.Model({"theta": dist.Gamma(25.0, 1.0)}, {"count": lambda theta: dist.Poisson(theta)})
    return model, nw.Release(count=nw.Laplace(epsilon=0.2, sensitivity=1.0).released(37.4))


@cache
def clamped_mean() -> tuple[nw.Model, nw.Release]:
    total = nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: jnp.clip(x, -2.0, 2.0), n=30)
    model = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"total": total})
    return model, nw.Release(total=nw.Laplace(scale=4.0).released(11.5))


@cache
def hierarchy() -> tuple[nw.Model, nw.Release]:
    model = nw.Model(
        {"spread": dist.HalfNormal(1.0), "rate": lambda spread: dist.LogNormal(1.0, spread).expand([4])},
        {"counts": lambda rate: dist.Poisson(rate), "share": lambda rate: dist.Normal(rate[0], 1.0)},
    )
    counts = nw.DiscreteLaplace(scale=1.5).released(np.array([2, 5, -1, 4]))
    return model, nw.Release(counts=counts, share=nw.Gaussian(scale=1.0).released(2.5))


@cache
def survey() -> tuple[nw.Model, nw.Release]:
    model = nw.Model({"p": dist.Dirichlet(jnp.ones(3))}, {"table": lambda p: dist.Multinomial(40, p)})
    return model, nw.Release(
        table=nw.RandomizedResponse(epsilon=1.0, categories=3, on="counts", n=40).released(np.array([20, 12, 8]))
    )


@cache
def means() -> tuple[nw.Model, nw.Release]:
    model = nw.Model(
        {"mu": dist.Normal(0.0, 10.0), "sigma": dist.LogNormal(0.0, 1.0)},
        {"x": lambda mu, sigma: dist.Normal(mu, sigma).expand([6])},
    )
    return model, nw.Release(x=nw.Laplace(scale=0.5).released(np.array([1.0, 2.5, -0.3, 4.0, 1.7, 2.2])))


def runs() -> Iterator[tuple[str, Callable[[], Any]]]:
    """(name, what to run) for every sampler and estimator on problems that it takes."""
    problems = {"count": count(), "clamped mean": clamped_mean(), "hierarchy": hierarchy(), "survey": survey()}
    problems["means"] = means()
    samplers: list[tuple[str, Any, int, tuple[str, ...]]] = [
        ("chosen", None, 800, ("count", "clamped mean", "hierarchy", "survey")),
        ("Rejection", nw.Rejection(), 3000, ("count", "clamped mean", "hierarchy")),
        ("Rejection joint", nw.Rejection(plan="joint"), 500, ("count", "hierarchy")),
        ("Importance", nw.Importance(), 3000, ("count", "clamped mean", "hierarchy")),
        ("ImportanceRejection", nw.ImportanceRejection(), 1000, ("count", "hierarchy")),
        ("RejectionControl", nw.RejectionControl(), 1000, ("count", "hierarchy")),
        ("MCMC", nw.MCMC(), 1000, ("count", "hierarchy")),
        ("SMC", nw.SMC(), 1000, ("count", "hierarchy")),
        ("Augmentation", nw.Augmentation(), 1000, ("count", "clamped mean", "hierarchy", "survey")),
        ("NUTS", nw.NUTS(), 800, ("count", "hierarchy")),
    ]
    for label, sampler, draws, names in samplers:
        for name in names:
            model, release = problems[name]

            def run(model: Any = model, release: Any = release, sampler: Any = sampler, draws: int = draws) -> Any:
                found = nw.sample(model, release, sampler, draws=draws, seed=7, on_failure="return", progress=False)
                return {**found.draws, "log_weights": found.log_weights, "status": found.status}

            yield f"{label}: {name}", run
    estimators: list[tuple[str, Any, tuple[str, ...]]] = [
        ("EM", nw.EM(), ("count", "means")),
        *(
            (f"MCEM {e_step}", nw.MCEM(e_step=e_step, final=20_000), ("count",))
            for e_step in E_STEPS
            if e_step != "augmented"
        ),
        ("MCEM importance", nw.MCEM(final=20_000), ("means", "clamped mean")),
        ("MCEM augmented", nw.MCEM(e_step="augmented", final=20_000), ("clamped mean",)),
    ]
    for label, estimator, names in estimators:
        for name in names:
            model, release = problems[name]

            def fit(model: Any = model, release: Any = release, estimator: Any = estimator) -> Any:
                found = nw.fit(model, release, estimator, seed=7, on_failure="return", progress=False)
                numbers = {"covariance": found.covariance, "score": found.score, "height": found.log_likelihood}
                return {**found.estimate, **numbers, "status": found.status}

            yield f"{label}: {name}", fit
    model, release = problems["count"]

    def refitted() -> Any:
        start = nw.fit(model, release, nw.EM(), progress=False)
        return bootstrap(model, release, start, draws=8, seed=7).estimates

    yield "bootstrap: count", refitted
    yield "forecast: count", lambda: nw.forecast(model, release, seed=7).acceptance
    yield "simulate: hierarchy", lambda: problems["hierarchy"][0].simulate(50, 7)


def digest(value: Any) -> str:
    """SHA-256 over names, types, shapes and bits."""
    found = hashlib.sha256()

    def add(one: Any) -> None:
        if isinstance(one, dict):
            for name in sorted(one):
                found.update(name.encode())
                add(one[name])
        elif one is None or isinstance(one, str):
            found.update(repr(one).encode())
        else:
            array = np.ascontiguousarray(one)
            found.update(f"{array.dtype.str}{array.shape}".encode())
            found.update(array.tobytes())

    add(value)
    return found.hexdigest()[:16]


def environment() -> dict[str, str]:
    """What decides the last bit beside the seed."""
    flags = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line.split(":")[1].strip() for line in lines if line.startswith(("flags", "Features"))), "")
    versions = {"numpy": np, "scipy": scipy, "jaxlib": jaxlib, "numpyro": numpyro}
    processor = hashlib.sha256(" ".join(sorted(flags.split())).encode()).hexdigest()[:16]
    found = {name: module.__version__ for name, module in versions.items()}
    return found | {"machine": platform.machine(), "processor's instructions": processor}


def compute() -> dict[str, str]:
    """Every digest, by the name of its run."""
    return {name: digest(run()) for name, run in runs()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found = compute()
    if arguments.write:
        FILE.write_text(json.dumps({"environment": environment(), "digests": found}, indent=2) + "\n")
        return
    kept = json.loads(FILE.read_text())
    other = {name: value for name, value in environment().items() if kept["environment"].get(name) != value}
    if other:
        print(f"another environment than the file's: {other}")
    changed = sorted(name for name in {*found, *kept["digests"]} if found.get(name) != kept["digests"].get(name))
    print("\n".join(changed) or f"{len(found)} digests, all the same")


if __name__ == "__main__":
    main()
