"""Whose a checkpoint is: opened for one run, and refused where another began it. Guarantees: docs/checkpoints.md."""

import datetime
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise._version import current_versions
from noisewise.checkpoint.file import ADVICE, Journal, foreign
from noisewise.checkpoint.inspection import shown
from noisewise.checkpoint.log import NOTHING, Log
from noisewise.engine import Engine
from noisewise.errors import InputError, NoisewiseError, refusal
from noisewise.model import Model

if TYPE_CHECKING:  # the problem is a layer above checkpoints
    from noisewise.inference.problem import Problem

LIMITS = ("max_seconds", "max_proposals", "min_ess")
"""Settings that decide when a run ends, not what it draws: a later run may change them."""
ALGORITHMS = {"sample": "sampler", "fit": "estimator"}
"""What an algorithm is called in the header; designs have none."""
FORMAT = 1
"""Version of the header's format: a checkpoint of another format is refused as one of another run."""
ROWS = 64
"""Draws of the model by which it is recognised."""


@contextmanager
def opened(
    who: str,
    path: str | os.PathLike[str] | None,
    problem: "Problem",
    algorithm: Any,
    seed: int | None,
    engine: Engine,
    **more: Any,
) -> Iterator[Log]:
    """The log of a run, new or to go on with; one that keeps nothing where `path` is None.

    `algorithm` is the sampler or estimator, None where one is to be chosen or, for designs, there is none; `more` is
    what else decides the numbers.
    """
    if path is None:
        yield NOTHING
        return
    if not isinstance(path, (str, os.PathLike)):
        raise refusal(who, "checkpoint", "must be a file's path", path, "For example 'run.nwc'.")
    header = identity(who, problem, algorithm, seed, engine, more)
    journal = Journal.open(who, path, header)
    try:
        if journal.continued:
            _refuse_other(journal, header)
        log = Log(journal)
        if who == "sample":
            log.same(numbers_of(problem.model), "model")
        yield log
    except NoisewiseError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if not journal.continued:
            raise
        raise foreign(who, journal.path, f"going on from it raised {type(error).__name__}: {error}") from error
    finally:
        journal.close()


def identity(
    who: str, problem: "Problem", algorithm: Any, seed: int | None, engine: Engine, more: Mapping[str, Any]
) -> dict[str, Any]:
    """What must be the same for a run to go on, as plain data, and when it was begun."""
    model = problem.model
    names = {
        name: {"shape": list(model.shape(name)), "dtype": str(model.dtype(name)), "parents": list(model.parents(name))}
        for name in model.order
    }
    versions = current_versions()
    versions.pop("python")
    fields = {
        "format": FORMAT,
        "for": who,
        "model": names,
        "release": problem.release.hash,
        "seed": seed,
        **({ALGORITHMS[who]: settings_of(algorithm)} if who in ALGORITHMS else {}),
        "engine": engine.kind,
        **more,
        "versions": versions,
        "processor": platform.machine(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(fields, default=repr))
    return plain | {"begun": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


def settings_of(algorithm: Any) -> dict[str, Any] | None:
    """Name and settings, limits left out."""
    if algorithm is None:
        return None
    return {name: value for name, value in algorithm.identity().items() if name not in LIMITS}


def numbers_of(model: Model) -> dict[str, Any]:
    """A few draws of the laws that depend on laws alone, and densities of those whose draws are whole numbers.

    The densities show a constant that has changed in its last digit, where whole numbers alone may stay the same.
    """
    names: list[str] = []
    for name in model.order:
        if model.has_density(name) and set(model.parents(name)) <= set(names):
            names.append(name)
    rng, values = np.random.default_rng(0), dict[str, Any]()
    for name in tuple(names):
        if name not in names:
            continue
        try:
            values = model.draw(rng, [name], ROWS, values)
        except InputError as error:
            if not error.beyond_range:
                raise
            names = [n for n in names if n != name and name not in model.ancestors(n)]
            values = {n: values[n] for n in names if n in values}
    numbers: dict[str, Any] = {"draws": values}
    for name in names:
        if values[name].dtype.kind in "biu":
            with suppress(NotImplementedError):
                numbers[name] = model.log_prob(name, values[name] if model.parents(name) else values[name][:1], values)
    return numbers


def _refuse_other(journal: Journal, header: dict[str, Any]) -> None:
    """Name the first difference between the run that began the checkpoint and this one."""
    for name, value in header.items():
        before = journal.header.get(name)
        if name != "begun" and before != value:
            what, old, new = _difference(name, before, value)
            rule = f"must be of the same run: {what} is {shown(old)} there and {shown(new)} here"
            raise refusal(journal.who, "checkpoint", rule, journal.path, ADVICE)


def _difference(name: str, before: Any, value: Any) -> tuple[str, Any, Any]:
    """The path to where two pieces of plain data differ first, and what stands there in each."""
    if isinstance(before, dict) and isinstance(value, dict):
        for part in [*value, *before]:
            if before.get(part, "missing") != value.get(part, "missing"):
                return _difference(f"{name}['{part}']", before.get(part, "missing"), value.get(part, "missing"))
    return name, before, value
