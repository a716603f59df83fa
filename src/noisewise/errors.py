"""What noisewise raises and warns with.

A user's mistake is an `InputError` whose message says who refuses, which argument, the rule, the value
found and what to do. A run that could not deliver what was asked is an `InferenceError` that carries the
partial result.
"""

from typing import Any


class NoisewiseError(Exception):
    """Base of every error the library raises on purpose."""


class InputError(NoisewiseError, ValueError):
    """An argument, a file or a model that cannot be honoured."""


class InferenceError(NoisewiseError, RuntimeError):
    """A run that ended without what was asked for; `result` holds what it has."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class WrongMechanism(InferenceError):
    """A mechanism whose bound on its density is exceeded: no sampler could be trusted with it."""

    @classmethod
    def exceeding(cls, mechanism: object, name: str, excess: float) -> "WrongMechanism":
        """The message, for a released statistic."""
        return cls(
            f"sample: {type(mechanism).__name__}.log_sup must bound log_prob for release['{name}']; "
            f"exceeded by {excess:.3g}. The mechanism is wrong: its draws would not be exact."
        )


class NoisewiseWarning(UserWarning):
    """Something legal that is probably not what was meant."""


def refusal(who: str, argument: str, rule: str, value: object, advice: str) -> InputError:
    """The one form of message for bad input."""
    who, argument, rule, advice = (shortened(text, 2_000) for text in (who, argument, rule, advice))
    return InputError(f"{who}: '{argument}' {rule}; got {shortened(repr(value), 200)}. {advice}")


def shortened(text: str, most: int) -> str:
    """`text`, cut where it is longer: files may hold words of any length."""
    return text if len(text) <= most else text[: most - 3] + "..."
