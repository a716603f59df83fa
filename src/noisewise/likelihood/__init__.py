"""Maximum likelihood from a release: exact for model and noise together."""

from typing import Any

from noisewise import checks
from noisewise.engine import Engine, Threads
from noisewise.errors import InferenceError, refusal
from noisewise.fit import Fit
from noisewise.likelihood.coordinates import Coordinates
from noisewise.likelihood.em import EM
from noisewise.likelihood.mcem import MCEM, Ascent, Staged
from noisewise.model import Model
from noisewise.progress import Progress
from noisewise.release import Release
from noisewise.samplers.problem import Problem
from noisewise.settings import Estimator


def fit(
    model: Model,
    release: Release,
    estimator: Estimator | None = None,
    *,
    start: dict[str, Any],
    seed: int | None = None,
    engine: Engine | None = None,
    progress: bool | None = None,
    on_failure: str = "raise",
) -> Fit:
    """The maximum likelihood estimate of the model's parameters given the release, with its standard errors.

    Prior densities are ignored; the prior's support is the parameter space. `EM()` (the default) is exact and needs
    no seed; `MCEM()` works for any law with a density.
    """
    if estimator is None:
        estimator = EM()
    if not isinstance(estimator, Estimator):
        raise refusal("fit", "estimator", "must be an estimator", estimator, "For example nw.EM() or nw.MCEM().")
    checks.choice("fit", "on_failure", on_failure, ["raise", "return"])
    if seed is not None or not isinstance(estimator, EM):
        seed = checks.integer("fit", "seed", seed, least=0, advice="Give a whole number from 0 on, for example 1.")
    problem = Problem(model, release)
    begin = Coordinates(model).check_start(start)
    bar = Progress(progress, type(estimator).__name__)
    found: Fit = estimator.run(problem, begin, seed, engine or Threads(), bar)  # type: ignore[attr-defined]
    if found.status != "converged" and on_failure == "raise":
        raise InferenceError(f"{type(estimator).__name__}: {found.message}", found)
    return found


__all__ = ["EM", "MCEM", "Ascent", "Staged", "fit"]
