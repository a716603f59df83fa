"""What noisewise raises and warns with.

A user's mistake raises an `InputError`. Its message says which function refuses which argument, by what rule, which
value it got and what to do. Each of these parts is also a field, so that no program needs to parse the text. A run that
could not deliver what was asked raises an `InferenceError`, which carries the partial result.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

Path = tuple[str | int, ...]


class Place(str):
    """A place inside a model or a release: the string names it in words, `path` as a tuple of keys.

    `path` is empty for words that name no such place.
    """

    path: Path

    def __new__(cls, words: str, path: Path = ()) -> Self:
        """`words` with the path they stand for."""
        place = super().__new__(cls, words)
        place.path = path
        return place

    @classmethod
    def of(cls, *path: str, root: str = "") -> Self:
        """`Place.of("statistics", "x", "record", "y", root="Model")`: Model.statistics['x'].record['y']."""
        words = ".".join(f"{group}['{name}']" for group, name in zip(path[::2], path[1::2], strict=True))
        return cls(f"{root}.{words}" if root else words, path)

    @classmethod
    def below(cls, place: str, key: str | int) -> Self:
        """The place of one key, or of one entry of a list, below `place`."""
        return cls(f"{place}[{key}]" if isinstance(key, int) else f"{place}.{key}", (*path_of(place), key))


def in_a_line(error: Exception) -> str:
    """An exception of other code: its kind, and the first line of what it says, ended by one full stop."""
    first = str(error).partition("\n")[0].rstrip(". ")
    return f"{type(error).__name__}: {first}." if first else f"{type(error).__name__}."


def path_of(place: str | None) -> Path:
    """The path of a place; empty for a plain string."""
    return place.path if isinstance(place, Place) else ()


class NoisewiseError(Exception):
    """Base of every error the library raises on purpose."""

    who: str | None = None
    """The part of the library, or the file, that the message begins with."""

    def __init__(self, cause: str, who: str | None = None) -> None:
        super().__init__(cause if who is None else f"{who}: {cause}")
        self.cause, self.who = cause, who

    @property
    def headline(self) -> str:
        """What went wrong, without the numbers of this one occasion: the same words for the same reason."""
        return str(self)

    def __reduce__(self) -> Any:
        """Errors travel between processes with all their fields, whatever the constructor takes."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[NoisewiseError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> NoisewiseError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error


class InputError(NoisewiseError, ValueError):
    """An argument, a file or a model that cannot be honoured.

    `who` names the function that refuses; `cause` is the message without that name. `argument`, `rule`, `value` (as
    shown) and `advice` are the parts of the cause; a part that the message lacks is None. `reason` is the cause without
    the names of the callers that passed the refusal on (`within`). `instead` names what in the library would serve.
    `beyond_range` says that a law cannot be drawn from where its numbers are too large or too small for 64 bits, which
    is no mistake in itself.
    """

    beyond_range: bool = False

    def __init__(
        self,
        cause: str,
        *,
        who: str | None = None,
        argument: str | None = None,
        rule: str | None = None,
        value: str | None = None,
        advice: str | None = None,
        instead: tuple[str, ...] = (),
        reason: str | None = None,
    ) -> None:
        super().__init__(cause, who)
        self.reason = cause if reason is None else reason
        self.argument, self.rule = argument, rule
        self.value, self.advice, self.instead = value, advice, instead

    @property
    def path(self) -> Path:
        """Where in a model or a release, as ("statistics", "x", "record", "y"); () where no such place is meant."""
        return path_of(self.argument) or path_of(self.who)

    @property
    def headline(self) -> str:
        """Who refuses which argument, by which rule."""
        return str(self) if self.rule is None else f"{self.who}: '{self.argument}' {self.rule}"

    def within(self, who: str) -> "InputError":
        """The same refusal, passed on by `who`: the message begins with that name."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in ("argument", "rule", "value", "advice")}
        return self._again(InputError(str(self), who=who, **parts, instead=self.instead, reason=self.reason))

    def advising(self, *sentences: str) -> "InputError":
        """The same refusal with more advice."""
        if not sentences:
            return self
        parts: dict[str, Any] = {name: getattr(self, name) for name in ("who", "argument", "rule", "value")}
        advice = " ".join(sentence for sentence in (self.advice, *sentences) if sentence)
        reason = " ".join([self.reason, *sentences])
        cause = " ".join([self.cause, *sentences])
        return self._again(InputError(cause, **parts, advice=advice, instead=self.instead, reason=reason))

    def _again(self, other: "InputError") -> "InputError":
        other.beyond_range = self.beyond_range
        return other


class InferenceError(NoisewiseError, RuntimeError):
    """A run that ended without what was asked for; `result` holds what was computed, if anything.

    `who` names what ended; `cause` is the message without that name.
    """

    def __init__(self, cause: str, result: Any = None, *, who: str | None = None, headline: str | None = None) -> None:
        super().__init__(cause, who)
        self.result, self._headline = result, headline

    @property
    def headline(self) -> str:
        """What went wrong, without the numbers of this one occasion."""
        return str(self) if self._headline is None else self._headline


class WrongMechanism(InferenceError):
    """A mechanism whose bound on its density is exceeded: no sampler could be trusted with it."""

    @classmethod
    def exceeding(cls, mechanism: object, name: str, excess: float) -> "WrongMechanism":
        """The error for the released statistic `name`, whose bound was exceeded by `excess`."""
        rule = f"{type(mechanism).__name__}.log_sup must bound log_prob for release['{name}']"
        end = "The mechanism is wrong: its draws would not be exact."
        return cls(f"{rule}; exceeded by {excess:.3g}. {end}", who="sample", headline=f"sample: {rule}")


class Unwritten(NoisewiseError):
    """Results were computed but could not be written; `saved` says where they are, `__cause__` what went wrong."""

    def __init__(self, saved: str) -> None:
        super().__init__(f"The results could not be written. {saved}")
        self.saved = saved


class NoisewiseWarning(UserWarning):
    """Something legal that is probably not what was meant.

    `who` names the function that warns; `cause` is the message without that name.
    """

    def __init__(self, cause: str, who: str | None = None) -> None:
        super().__init__(cause if who is None else f"{who}: {cause}")
        self.cause, self.who = cause, who


def refusal(
    who: str, argument: str, rule: str, value: object, advice: str, *, instead: tuple[str, ...] = ()
) -> InputError:
    """An `InputError` for bad input, in the one form of message that all of them have."""
    shown = shortened(repr(value), 200)
    who, argument, rule, advice = (shortened(text, 2_000) for text in (who, argument, rule, advice))
    cause = f"'{argument}' {rule}; got {shown}. {advice}"
    return InputError(cause, who=who, argument=argument, rule=rule, value=shown, advice=advice, instead=instead)


@contextmanager
def writable(
    who: str, path: object, argument: str = "path", advice: str = "Check that the folder exists and can be written to."
) -> Iterator[None]:
    """A context in which `path` is written to: an `OSError` inside it becomes a refusal of `argument`."""
    try:
        yield
    except OSError as error:
        raise refusal(who, argument, f"must be writable ({error})", str(path), advice) from None


def shortened(text: str, most: int) -> str:
    """`text`, cut to `most` characters where it is longer: files may hold words of any length."""
    return text if len(text) <= most else text[: most - 3] + "..."
