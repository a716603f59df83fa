"""The iterations of a climb: their trace, for the fit, and their records, for the checkpoint."""

from typing import Any

import numpy as np

from noisewise.checkpoint.log import Log
from noisewise.errors import InferenceError, InputError
from noisewise.likelihood.monte_carlo.position import Position
from noisewise.numerics import Array

Place = dict[str, Any]
"""The place in a schedule: what it needs to go on with the next iteration."""


class Iterations:
    """The trace of a run, kept in its log, from which an interrupted run takes up where it was.

    Keys of the log: "starts", numbers of the model; "iteration" and its number; "climbed", the end of the climb;
    "settling", the attempt under way at the top. A climb that begins again with all pieces has its keys under "all".
    """

    def __init__(self, position: Position, log: Log, most: int) -> None:
        self.position, self.log, self.most = position, log, most
        self.trace: list[dict[str, Any]] = []

    def check(self) -> None:
        """Refuse a log that was begun with a model that gives other numbers."""
        if not self.log:
            return
        try:
            self.log.same(self.position.look(), "starts")
        except InputError as error:  # not a matter of this start, which another could make good
            raise InferenceError(error.cause, who=error.who, headline=error.headline) from None

    def begin_again(self) -> None:
        """Forget the climb so far, and log the next one under keys of its own."""
        self.trace, self.log = [], self.log.within("all")

    # The climb --------------------------------------------------------------------------------------------------------

    def resumed(self, place: Place) -> Place:
        """Take up the iterations in the log: the place in the schedule after them, `place` where there are none."""
        position, last = self.position, None
        while (record := self.log.get("iteration", len(self.trace) + 1)) is not None:
            self._refuse_misfit(record["row"], record["free"])
            self.trace.append(record["row"])
            place, position.free, last = record["place"], record["free"], record
        if last is not None and last["made"] is not None:
            position.resume(last["made"], last["simulated"])
        return place

    def _refuse_misfit(self, row: dict[str, Any], free: Array) -> None:
        """Refuse an iteration that cannot be of this fit: a climb from there would lead nowhere."""
        own = self.position.free
        shapes = {name: np.shape(value) for name, value in self.position.values.items()}
        good = free.shape == own.shape and free.dtype == own.dtype and bool(np.all(np.isfinite(free)))
        if not good or any(np.shape(row[name]) != shape for name, shape in shapes.items()):
            raise self.log.refusal(f"iteration {len(self.trace) + 1} has parameters of another shape")

    def save(self, **place: Any) -> None:
        """Keep the iteration that ended, and the place in the schedule that comes next."""
        position, number = self.position, len(self.trace)
        record = {"row": self.trace[-1], "free": position.free, "simulated": position.simulated, "made": position.made}
        self.log.put(record | {"place": place, "done": number, "total": self.most}, "iteration", number)

    def end(self) -> tuple[str, str] | None:
        """Status and message of the climb, with its end restored from the log; None where the log has no end."""
        record = self.log.get("climbed")
        if record is None:
            return None
        self.trace, self.position.free, self.position.simulated = (
            record[name] for name in ("trace", "free", "simulated")
        )
        return record["status"], record["message"]

    def save_end(self, status: str, message: str) -> None:
        """Keep the end of the climb."""
        record = {"status": status, "message": message, "trace": self.trace}
        self.log.put(record | {"free": self.position.free, "simulated": self.position.simulated}, "climbed")

    # The top ----------------------------------------------------------------------------------------------------------

    def first_attempt(self) -> int:
        """The attempt at the top that was under way, or the first; the position is where it began."""
        record = self.log.get("settling")
        if record is None:
            return 0
        self.position.free, self.position.simulated = record["free"], record["simulated"]
        return max(0, record["attempt"])

    def save_attempt(self, attempt: int) -> None:
        """Log that an attempt begins here."""
        record = {"attempt": attempt, "free": self.position.free, "simulated": self.position.simulated}
        self.log.put(record, "settling")
