"""The settings of an analysis file: sampler, draws, seed, level; estimator and its starting points."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from noisewise import checks
from noisewise.analysis.mistakes import cause_in_words
from noisewise.analysis.toml import Document
from noisewise.errors import InputError, Path
from noisewise.inference.settings import Estimator, Sampler
from noisewise.likelihood import EM, MCEM
from noisewise.samplers.choosing.choice import public_samplers

ESTIMATORS: dict[str, type[Estimator]] = {"EM": EM, "MCEM": MCEM}


@dataclass(frozen=True)
class Settings:
    """How to run an analysis."""

    method: Sampler | None = None
    """None: chosen by `nw.sample`."""
    draws: int = 10_000
    seed: int = 1
    level: float = 0.95
    estimator: Estimator | None = None
    """None: chosen by `nw.fit`, `EM()` where it applies."""
    start: Any = None


def read_settings(document: Document, parameters: tuple[str, ...]) -> Settings:
    """The tables [inference] and [likelihood]."""
    settings: dict[str, Any] = {}
    inference = table_at(document, ("inference",), ("method", "draws", "seed", "level"))
    if "method" in inference:
        settings["method"] = _algorithm(document, ("inference", "method"), inference["method"], public_samplers())
    for name, least in (("draws", 1), ("seed", 0)):
        if name in inference:
            value = inference[name]
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
                cause = f"'{name}' must be a whole number, at least {least}; got {value!r}."
                if isinstance(value, float) and value.is_integer() and least <= value < 2**53:
                    cause += f" Write {int(value)}."
                raise document.error(("inference", name), cause)
            settings[name] = value
    if "level" in inference:
        level = inference["level"]
        if not checks.is_level(level):
            cause = f"'level' must lie between 0 and 1, as 0.95 for 95% intervals; got {level!r}."
            raise document.error(("inference", "level"), cause)
        settings["level"] = float(level)
    likelihood = table_at(document, ("likelihood",), ("method", "start"))
    if "method" in likelihood:
        settings["estimator"] = _algorithm(document, ("likelihood", "method"), likelihood["method"], ESTIMATORS)
    if "start" in likelihood:
        settings["start"] = _start(document, likelihood["start"], parameters)
    return Settings(**settings)


def table_at(document: Document, path: Path, keys: tuple[str, ...] | None) -> dict[str, Any]:
    """The table at `path`, empty where there is none; other keys than `keys` are refused."""
    value: Any = document.content
    for name in path:
        value = value.get(name, {})
    if not isinstance(value, dict):
        name = ".".join(map(str, path))
        raise document.error(path, f"'{path[-1]}' must be a table: write [{name}] on a line of its own.", key=True)
    for key in value:
        if keys is not None and key not in keys:
            name = ".".join(map(str, path))
            raise document.error(
                (*path, key), f"'{key}' does not belong in [{name}]. {checks.nearest(key, keys)}", key=True
            )
    return value


def _algorithm(document: Document, path: Path, stated: Any, methods: Mapping[str, Any]) -> Any:
    """A sampler or estimator by name, or by a table of name and settings."""
    is_table = isinstance(stated, dict)
    name = stated.get("name") if is_table else stated
    place = (*path, "name") if is_table else path
    if not isinstance(name, str):
        raise document.error(place, f"must name a method. {checks.nearest('', methods)}")
    if name not in methods:
        raise document.error(place, f"'{name}' is not a method. {checks.nearest(name, methods)}")
    settings = {key: value for key, value in stated.items() if key != "name"} if is_table else {}
    allowed = [field.name for field in fields(methods[name])]
    for key, value in settings.items():
        if key not in allowed:
            cause = f"'{key}' is not a setting of {name}. {checks.nearest(key, allowed)}"
            raise document.error((*path, key), cause, key=True)
        if isinstance(value, dict) or (not isinstance(value, (bool, int, float, str, list))):
            raise document.error((*path, key), f"'{key}' of {name} must be a number, a word or a list of numbers here.")
        settings[key] = tuple(value) if isinstance(value, list) else value
    try:
        return methods[name](**settings)
    except InputError as error:
        raise document.error(argument_below(document, path, error), cause_in_words(error)) from None
    except (TypeError, ValueError) as error:
        raise document.error(path, f"{name} cannot be set up so: {error}.") from None


def _start(document: Document, start: Any, parameters: tuple[str, ...]) -> Any:
    several = isinstance(start, list)
    for number, point in enumerate(start if several else [start]):
        path: Path = ("likelihood", "start", number) if several else ("likelihood", "start")
        if not isinstance(point, dict):
            raise document.error(path, "'start' must hold a value for every parameter, as { theta = 25.0 }.")
        for name, value in point.items():
            if name not in parameters:
                cause = f"'{name}' is not a parameter. {checks.nearest(name, parameters)}"
                raise document.error((*path, name), cause, key=True)
            if not all_numbers(value):
                raise document.error((*path, name), f"'{name}' must start at a number or a list of numbers.")
        for name in parameters:
            if name not in point:
                raise document.error(path, f"'start' must hold a value for '{name}' too.")
    return start


def all_numbers(value: Any) -> bool:
    """Whether `value` is a number or nested lists of them."""
    if isinstance(value, list):
        return bool(value) and all(map(all_numbers, value))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def argument_below(document: Document, path: Path, error: InputError) -> Path:
    """The place of the argument that is refused, if it is a key below `path`; else `path` itself."""
    place = (*path, str(error.argument))
    return place if place in document.places else path
