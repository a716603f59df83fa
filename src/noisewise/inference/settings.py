"""Frozen settings of one algorithm: the base that samplers share, and their way to and from files."""

import json
from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from noisewise import checks
from noisewise.checkpoint.log import NOTHING, Log
from noisewise.engine import Engine
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress, Steps
from noisewise.numerics import Array

if TYPE_CHECKING:
    from noisewise.results.fit import Fit
    from noisewise.results.posterior import Posterior


class Sampler(ABC):
    """Settings of one sampling algorithm. Subclasses are frozen dataclasses with a `run` method.

    `unfit(problem)` says why the algorithm does not apply to a model and release, or None where it does.
    """

    known: ClassVar[dict[str, type["Sampler"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Sampler.known[cls.__name__] = cls

    def __post_init__(self) -> None:
        """Check the budgets that the algorithm has; subclasses check the rest."""
        who = type(self).__name__
        if hasattr(self, "min_ess"):
            self._keep(min_ess=checks.positive_number(who, "min_ess", self.min_ess, "The default is 400."))
        if (limit := getattr(self, "max_seconds", None)) is not None:
            self._keep(max_seconds=checks.positive_number(who, "max_seconds", limit, "Or None for no limit."))
        self._whole("max_proposals", 1, "Write 10**6, not 1e6; or None for no limit.", optional=True)

    def _whole(self, name: str, least: int, advice: str, *, optional: bool = False) -> None:
        """Check that a setting is a whole number of at least `least`; an `optional` one may be None or absent."""
        value = getattr(self, name, None)
        if value is not None or not optional:
            self._keep(**{name: checks.integer(type(self).__name__, name, value, least=least, advice=advice)})

    def _keep(self, **settings: Any) -> None:
        """Store settings in their checked form; only while the sampler is constructed."""
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    @abstractmethod
    def run(
        self, problem: Problem, draws: int, seed: int, engine: Engine, progress: Progress, log: Log = NOTHING
    ) -> "Posterior":
        """Draw `draws` rows from the posterior of a problem that the algorithm is fit for.

        Random numbers depend on `seed` and a purpose, never on scheduling. Work runs on `engine`. `log` keeps finished
        work, so that an interrupted run can go on; without a checkpoint it keeps nothing. A run that falls short
        returns the draws it has, with a status that says so.
        """

    def unfit(self, problem: Problem) -> str | None:
        """Why this algorithm does not apply, as the end of a sentence about it; None where it does."""
        return None

    def longer(self) -> "Sampler | None":
        """Settings with more work behind each draw, for chains that disagree or mix slowly; None if there are none."""
        return None

    def finer(self) -> "Sampler | None":
        """Settings with smaller steps, for chains some of whose steps went astray; None if there are none."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Name and settings as plain data."""
        return {"name": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]  # a dataclass in subclasses

    def identity(self) -> dict[str, Any]:
        """Name and settings as a checkpoint keeps them, to recognise the run."""
        return self.to_dict()

    @staticmethod
    def from_dict(entry: dict[str, Any]) -> "Sampler":
        """The sampler that `to_dict` described."""
        settings = dict(entry)
        name = settings.pop("name")
        checks.known_name("Sampler", "name", name, Sampler.known, "must be a known sampler")
        return Sampler.known[name](**settings)


class Estimator(ABC):
    """Settings of one maximum likelihood algorithm. Subclasses are frozen dataclasses with a `run` method.

    `unfit(problem)` says why the algorithm does not apply to a model and release, or None where it does.
    """

    simulates: ClassVar[bool] = False
    """Whether it draws random numbers: then a seed must be given, and a checkpoint can keep what it has done."""

    @abstractmethod
    def run(
        self,
        problem: Problem,
        start: dict[str, Array],
        seed: int | None,
        engine: Engine,
        progress: Steps,
        log: Log = NOTHING,
    ) -> "Fit":
        """The maximum that a climb from `start` leads to. `seed` is a number where the algorithm simulates."""

    def unfit(self, problem: Problem) -> str | None:
        """Why this algorithm does not apply, as the end of a sentence about it; None where it does."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Name and settings as plain data."""
        return {"name": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]  # a dataclass in subclasses

    def identity(self) -> dict[str, Any]:
        """Name and settings as a checkpoint keeps them, to recognise the run."""
        return {"name": type(self).__name__, **{name: repr(value) for name, value in vars(self).items()}}


def method_in_words(method: Sampler | Estimator) -> str:
    """The method's name and its plain settings that are not the defaults: 'Rejection with max_proposals = 5000'."""
    default = vars(type(method)())
    changed = {name: value for name, value in vars(method).items() if value != default[name]}
    plain = {name: value for name, value in changed.items() if isinstance(value, (str, bool, int, float))}
    settings = ", ".join(f"{name} = {json.dumps(value)}" for name, value in plain.items())
    return type(method).__name__ + (f" with {settings}" if settings else "")
