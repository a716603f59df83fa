"""Digests of the draws that every sampler and estimator gives for one seed: what a change of layout must not alter.

    export PYTHONPATH=tests/helpers
    python tests/campaigns/same_draws.py            compares with those of this environment
    python tests/campaigns/same_draws.py --write    writes these anew; the commit says which digests changed, and why
    python tests/campaigns/same_draws.py --new      writes those of runs that have none yet (`make catalogue`)

A digest is of every bit, so it holds for one set of versions and one kind of processor: an environment. The file,
tests/reference/draws.json, has an entry for each environment that somebody has written it in. What is seen to have
changed in one is known to be stale in the others, and is dropped from their entries. So before a change is made in an
environment that the file does not have, write its entry.

The first draws of a few runs, tests/reference/first_draws.json, are compared within rounding, so in every environment.
"""

import argparse
import hashlib
import json
import platform
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jaxlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy
from sampler_table import SAMPLERS, Row

import noisewise as nw
from noisewise.likelihood.e_step.table import E_STEPS
from noisewise.likelihood.intervals import bootstrap

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
FILE = REFERENCE / "draws.json"
FIRST = REFERENCE / "first_draws.json"
FIRST_ROWS = 8
PLAIN = ("Rejection: count", "Importance: count", "simulate: hierarchy")
"""Runs of NumPy's variates and plain arithmetic alone: another processor alters the last digits and no more. A chain
may branch where these differ, and then goes elsewhere."""
Digests = dict[str, str]
Entry = dict[str, dict[str, str]]


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
    for label, row in SAMPLERS.items():
        for name in row.digests:
            model, release = problems[name]

            def run(model: Any = model, release: Any = release, row: Row = row) -> Any:
                told = {"draws": row.digested, "seed": 7, "on_failure": "return", "progress": False}
                found = nw.sample(model, release, row.sampler, **told)
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


def compute(known: Iterable[str] = ()) -> Digests:
    """Every digest by the name of its run, but for those that are known."""
    return {name: digest(run()) for name, run in runs() if name not in known}


def entries() -> list[Entry]:
    """What the file has, one entry for each environment."""
    return list(json.loads(FILE.read_text()))


def digests_in(present: dict[str, str], written: list[Entry]) -> Digests | None:
    """The digests that were written in an environment; None where there are none of it."""
    return next((entry["digests"] for entry in written if entry["environment"] == present), None)


def with_entry(written: list[Entry], present: dict[str, str], digests: Digests) -> list[Entry]:
    """All entries, that of the present environment replaced or added.

    From the others goes what is known to be stale: digests that have changed here, and those of runs that are no more.
    """
    before = digests_in(present, written) or {}
    stale = {name for name, value in before.items() if digests.get(name) != value}
    others = [
        entry | {"digests": {name: value for name, value in entry["digests"].items() if name in digests.keys() - stale}}
        for entry in written
        if entry["environment"] != present
    ]
    return [*others, {"environment": present, "digests": digests}]


def with_new(written: list[Entry], present: dict[str, str], digests: Digests) -> list[Entry]:
    """All entries, with digests of runs that are new in that of the present environment."""
    others = [entry for entry in written if entry["environment"] != present]
    return [*others, {"environment": present, "digests": (digests_in(present, written) or {}) | digests}]


def numpy_series() -> str:
    """NumPy's version in two numbers. A generator's variates may change between such versions, by its own rules."""
    return ".".join(np.__version__.split(".")[:2])


def first_draws(name: str) -> dict[str, list[Any]]:
    """The first rows of a run's columns."""
    columns = {key: value for key, value in dict(runs())[name]().items() if isinstance(value, np.ndarray)}
    return {key: value[:FIRST_ROWS].tolist() for key, value in columns.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--new", action="store_true")
    arguments = parser.parse_args()
    present = environment()
    if arguments.new:
        if digests := compute(known={name for entry in entries() for name in entry["digests"]}):
            FILE.write_text(json.dumps(with_new(entries(), present, digests), indent=2) + "\n")
            print("\n".join(f"written: the digest of {name}" for name in digests))
        return
    digests = compute()
    written = digests_in(present, entries())
    if written is None:
        print(f"the file has no digests of this environment: {present}")
    else:
        changed = sorted(name for name in {*digests, *written} if digests.get(name) != written.get(name))
        print("\n".join(changed) or f"{len(digests)} digests, all the same")
    if arguments.write:
        FILE.write_text(json.dumps(with_entry(entries(), present, digests), indent=2) + "\n")
        first = {"numpy": numpy_series(), "runs": {name: first_draws(name) for name in PLAIN}}
        FIRST.write_text(json.dumps(first, indent=1) + "\n")


if __name__ == "__main__":
    main()
