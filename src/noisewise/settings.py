"""Frozen settings of one algorithm: the base that samplers share, and their way to and from files."""

from dataclasses import asdict
from typing import Any, ClassVar

from noisewise import checks
from noisewise.errors import refusal


class Sampler:
    """Settings of one sampling algorithm. Subclasses are frozen dataclasses with a `run` method.

    `unfit(problem)` says why the algorithm does not apply to a model and release, or None where it does.
    """

    known: ClassVar[dict[str, type["Sampler"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Sampler.known[cls.__name__] = cls

    def unfit(self, problem: Any) -> str | None:
        """Why this algorithm does not apply, as the end of a sentence about it; None where it does."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Name and settings as plain data."""
        return {"name": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]

    @staticmethod
    def from_dict(entry: dict[str, Any]) -> "Sampler":
        """The sampler that `to_dict` described."""
        settings = dict(entry)
        name = settings.pop("name")
        if name not in Sampler.known:
            raise refusal("Sampler", "name", "must be a known sampler", name, checks.nearest(name, Sampler.known))
        return Sampler.known[name](**settings)


class Estimator:
    """Settings of one maximum likelihood algorithm. Subclasses are frozen dataclasses with a `run` method."""
