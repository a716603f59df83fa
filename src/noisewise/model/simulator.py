"""Statistics simulated by any Python callable: no density, only draws."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from noisewise.errors import InferenceError, InputError, refusal
from noisewise.model.graph import Poll, dependencies
from noisewise.numerics import Array, Values

REPEATS, SECONDS = 16, 0.1
"""Generators with each of which a simulator is called twice, at most; seconds after which no further one is tried."""


class Simulator:
    """A statistic simulated by any Python callable `f(rng, **parents)`.

    `rng` is a NumPy generator and the only source of randomness it may use. With `batched`, the parents are
    arrays over rows and it returns one row each; otherwise it is called row by row.
    """

    def __init__(self, f: Callable[..., Any], batched: bool = False) -> None:
        if not callable(f):
            raise refusal("Simulator", "f", "must be callable", f, "Give a function f(rng, theta).")
        names = dependencies("Simulator", f)
        if not names or names[0] != "rng":
            raise refusal("Simulator", "f", "must take 'rng' as its first argument", names, "Write f(rng, theta).")
        if not isinstance(batched, bool):
            raise refusal("Simulator", "batched", "must be True or False", batched, "Leave it out if unsure.")
        self.f, self.batched, self.parents = f, batched, names[1:]

    def bind(self, who: str, trial: Values) -> "BoundSimulator":
        """The simulator in a model; `trial` holds two rows of its parents, to learn its shape."""
        return BoundSimulator(self, who, trial)


class BoundSimulator:
    """A `Simulator` whose shape and type are known from one trial."""

    def __init__(self, simulator: Simulator, who: str, trial: Values) -> None:
        self.who, self.simulator, self.parents = who, simulator, simulator.parents
        self.shape: tuple[int, ...] | None = None
        self.discrete = False
        simulated = self.draw(np.random.default_rng(0), trial, 2, lambda: None)
        self.shape = simulated.shape[1:]
        self.discrete = simulated.dtype.kind in "iub"
        self.struct = jax.ShapeDtypeStruct(self.shape, np.int64 if self.discrete else np.float64)
        self._refuse_own_randomness(trial, simulated)

    def _refuse_own_randomness(self, trial: Values, first: Array) -> None:
        """The same generator and parents must give the same values, else draws depend on threads and on history."""
        end = time.monotonic() + SECONDS
        for seed in range(REPEATS):
            try:
                once = first if seed == 0 else self.draw(np.random.default_rng(seed), trial, 2, lambda: None)
                again = self.draw(np.random.default_rng(seed), trial, 2, lambda: None)
            except (InferenceError, InputError):  # not a matter of randomness: reported if a run meets it
                return
            if not np.array_equal(once, again):
                rule = "must draw all its random numbers from 'rng', and remember nothing: the same generator gave"
                advice = "Replace np.random and generators of its own by rng; then a seed decides every draw."
                values = [np.asarray(one).tolist() for one in (once, again)]
                raise refusal(self.who, "simulator", f"{rule} other values when called again", values, advice)
            if time.monotonic() > end:
                return

    def draw(self, rng: np.random.Generator, values: Values, rows: int, poll: Poll) -> Array:
        """One simulated statistic per row."""
        arguments = {name: read_only(values[name]) for name in self.parents}
        if self.simulator.batched:
            poll()
            return self._checked(self._call(rng, arguments, None), (rows,), arguments, None)
        results = []
        for row in range(rows):
            poll()
            row_arguments = {name: value[row] for name, value in arguments.items()}
            results.append(self._checked(self._call(rng, row_arguments, row), (), row_arguments, row))
        return np.stack(results)

    def _call(self, rng: np.random.Generator, arguments: Values, row: int | None) -> Any:
        try:
            return self.simulator.f(rng, **arguments)
        except Exception as error:
            raise InferenceError(
                f"the simulator raised {type(error).__name__}: {error}{self._at(arguments, row)}. "
                "Make it return a value for every parameter the prior allows.",
                who=self.who,
            ) from error

    def _tells(self, arguments: Values, row: int | None, **_: Any) -> str:
        """What an engine reports of a call that does not return."""
        rows = f" in a batch of {len(next(iter(arguments.values())))} rows" if row is None and arguments else ""
        return f"{self.who}: the simulator is running{self._at(arguments, row)}{rows}"

    _call.tells = _tells  # type: ignore[attr-defined]  # a mark on a function

    def _checked(self, result: Any, lead: tuple[int, ...], arguments: Values, row: int | None) -> Array:
        advice = "Return a number or an array of numbers, always of one shape."
        array = np.asarray(result)
        shape = f"shape {(*lead, *self.shape)}" if self.shape is not None else f"one row per parameter, {lead}"
        wrong = array.shape != (*lead, *self.shape) if self.shape is not None else array.shape[: len(lead)] != lead
        if array.dtype.kind not in "iufb" or wrong:
            rule = f"must return numbers of {shape}{self._at(arguments, row)}"
            raise refusal(self.who, "simulator", rule, result, advice)
        if np.isnan(array).any():
            rule = f"must not return NaN{self._at(arguments, row)}"
            raise refusal(self.who, "simulator", rule, result, "A failed simulation cannot be dropped without bias.")
        whole = array.dtype.kind in "iub"
        if self.shape is not None and self.discrete and not whole:
            rule = f"must return whole numbers, as in its trial{self._at(arguments, row)}"
            raise refusal(
                self.who, "simulator", rule, result, "Return one type always: float(...) if it can be a fraction."
            )
        if self.shape is None:
            return array  # the trial itself: its type decides
        if array.dtype.kind == "u" and np.any(array > np.iinfo(np.int64).max):
            raise refusal(self.who, "simulator", "must return numbers below 2**63", result, advice)
        return array.astype(np.int64 if self.discrete else np.float64)

    @staticmethod
    def _at(arguments: Values, row: int | None) -> str:
        if row is None:
            return ""
        return " at " + ", ".join(f"{name}={np.asarray(value).tolist()}" for name, value in arguments.items())


def read_only(values: Any) -> Array:
    """A view that cannot be written to."""
    view = np.asarray(values).view()
    view.flags.writeable = False
    return view
