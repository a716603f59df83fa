"""Streams of fixed-size blocks: exact draws in an order that no scheduler can change.

A stream turns proposals into survivors, block by block. Block b draws from its own random stream, derived
from (seed, purpose, stream, b), and consumes rows [b B, (b + 1) B) of each child stream. Survivors are
joined in block order. Scheduling decides only when a block runs, so one seed gives one result for any number
of threads, and fewer draws are a prefix of more. See docs/derivations/rejection.md.
"""

import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import chdtri

from noisewise.checkpoint.log import NOTHING, Log, fingerprint
from noisewise.engine import Broken, Engine, Task, total_memory
from noisewise.errors import NoisewiseWarning, refusal
from noisewise.inference import randomness
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Prefix, Purpose
from noisewise.numerics import Array

Columns = dict[str, Array]
Work = Callable[[np.random.Generator, Columns, int, Callable[[], None]], tuple[Columns, Array]]
"""(rng, inputs, rows, poll) -> (survivors by name, their positions among the rows)."""


FAIR_TRIAL = 2**17
"""Proposals of one stream before it may be called hopeless."""
AHEAD = 16
"""Blocks of one stream that may be under way or wait for a slow one, for each that the engine takes at a time."""
WAITING = 1 / 16
"""Share of the machine's memory that blocks of one stream may fill while they wait."""
MOST_HELD = 64
"""Blocks held back, at most, until the log is known to be this run's; further ones are not logged."""
LONG = 600.0
"""Seconds still to go, at the present rate, that deserve a warning."""
NEXT_TO_NOTHING = 10
"""Survivors below which a stream that cannot finish in its budget is hopeless; above, the budget buys something."""


@dataclass(eq=False)
class Stream:
    """Survivors of one step, in block order. `index` numbers it within the run."""

    index: int
    rows: int
    work: Work
    label: str
    children: list["Stream"] = field(default_factory=list)
    counted: bool = True
    """Whether its proposals count as work (False for plain draws from a prior)."""

    launched: int = 0
    absorbed: int = 0
    accepted: int = 0
    _early: dict[int, tuple[Columns, Array]] = field(default_factory=dict)
    _early_bytes: int = 0
    _ready: deque[Columns] = field(default_factory=deque)
    _ready_rows: int = 0
    _positions: deque[tuple[int, int, Array]] = field(default_factory=deque)

    @property
    def proposals(self) -> int:
        """Proposals made so far, in whole blocks and in order."""
        return self.absorbed * self.rows

    def below(self) -> list["Stream"]:
        """Every stream of this tree, children first."""
        return [*(stream for child in self.children for stream in child.below()), self]

    def next_stream(self) -> "Stream":
        """This stream if the rows for its next block are there, else the descendant that must supply them first."""
        for child in self.children:
            if child._ready_rows < self.rows:
                return child.next_stream()
        return self

    def must_wait(self, blocks: int, most_bytes: float) -> bool:
        """Whether so many blocks or bytes have come, or are under way, ahead of one that is late."""
        return self.launched - self.absorbed >= blocks or self._early_bytes > most_bytes

    def next_task(self, seed: int, purpose: Purpose | Prefix) -> Task:
        """The next block; each row it takes from a child is taken once."""
        inputs: Columns = {}
        for child in self.children:
            inputs |= child.take(self.rows)
        block = self.launched
        self.launched += 1
        key = randomness.key(seed, purpose, self.index, block)
        return Task(partial(_run_block, self.work, key, inputs, self.rows), partial(self._done, block))

    def _done(self, block: int, result: tuple[Columns, Array]) -> None:
        self._early[block] = result
        self._early_bytes += _size(result)

    def absorb(self) -> bool:
        """Take in the next block in order, if it has arrived."""
        if self.absorbed not in self._early:
            return False
        columns, positions = result = self._early.pop(self.absorbed)
        self._early_bytes -= _size(result)
        if len(positions):
            self._positions.append((self.accepted, self.absorbed, positions.astype(np.int32)))
            self._ready.append(columns)
            self._ready_rows += len(positions)
        self.absorbed += 1
        self.accepted += len(positions)
        return True

    def take(self, rows: int) -> Columns:
        """The next `rows` survivors, each once (fewer only if fewer are ready)."""
        parts: list[Columns] = []
        missing = min(rows, self._ready_rows)
        self._ready_rows -= missing
        while missing:
            chunk = self._ready.popleft()
            size = len(next(iter(chunk.values())))
            if size > missing:
                self._ready.appendleft({name: column[missing:] for name, column in chunk.items()})
                chunk, size = {name: column[:missing] for name, column in chunk.items()}, missing
            parts.append(chunk)
            missing -= size
        if len(parts) <= 1:
            return parts[0] if parts else {}
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def prune(self, spans: list[tuple[float, float]]) -> None:
        """Drop the positions of survivors outside the given spans of rows: no tally will ask for them again."""
        self._positions = deque(
            entry
            for entry in self._positions
            if any(low < entry[0] + len(entry[2]) and entry[0] < high for low, high in spans)
        )
        below: list[tuple[float, float]] = [
            (block * self.rows, (block + 1) * self.rows) for _, block, _ in self._positions
        ]
        below.append((self.absorbed * self.rows - 1, float("inf")))  # the last row used: asked for until the next block
        for child in self.children:
            child.prune(below)

    def proposals_until(self, survivors: int) -> int:
        """Proposals up to and with the given survivor; all made so far if it has not come yet."""
        if survivors == 0:
            return 0
        for first, block, positions in reversed(self._positions):
            if first < survivors <= first + len(positions):
                return block * self.rows + int(positions[survivors - 1 - first]) + 1
        return self.proposals

    def tally(self, survivors: int) -> list[tuple["Stream", int, int]]:
        """(stream, survivors used, proposals for them) for this stream and all below it.

        A survivor of a child is used for every proposal here, up to the one that gave the last survivor used.
        """
        proposals = self.proposals_until(survivors)
        below = [entry for child in self.children for entry in child.tally(proposals)]
        return [*below, (self, survivors, proposals)]


def _size(result: tuple[Columns, Array]) -> int:
    """Bytes of a block's survivors."""
    return result[1].nbytes + sum(column.nbytes for column in result[0].values())


def _run_block(
    work: Work, key: np.random.SeedSequence, inputs: Columns, rows: int, poll: Callable[[], None]
) -> tuple[Columns, Array]:
    return work(np.random.default_rng(key), inputs, rows, poll)


@dataclass
class Outcome:
    """What a run of streams gave: columns, how it ended, and the tally behind them."""

    columns: Columns
    draws: int
    status: str
    message: str
    tally: list[tuple[Stream, int, int]]
    seconds: float

    @property
    def proposals(self) -> int:
        """Proposals behind the draws returned, over all streams."""
        return sum(proposals for stream, _, proposals in self.tally if stream.counted)


@dataclass
class Budget:
    """Limits of a run; None is no limit."""

    max_proposals: int | None = None
    max_seconds: float | None = None


class StreamsRun:
    """Pulls `draws` rows from each root stream; a `Source` for an engine."""

    def __init__(
        self,
        roots: Sequence[Stream],
        draws: int,
        seed: int,
        purpose: Purpose | Prefix,
        budget: Budget,
        progress: Progress,
        log: Log = NOTHING,
    ) -> None:
        self.roots, self.draws, self.seed, self.purpose = roots, draws, seed, purpose
        self.budget, self.progress, self.log = budget, progress, log
        self.forms: dict[int, dict[str, Any]] = {}
        """By stream, the form of its blocks that the log has agreed to."""
        self.most_bytes = WAITING * total_memory()
        self.filled = [0] * len(roots)
        self.columns: list[Columns] = [{} for _ in roots]
        self.streams = [stream for root in roots for stream in root.below()]
        self.wanted = {child.index: stream.rows for stream in self.streams for child in stream.children}
        """By stream, the survivors that the first block of its parent takes."""
        self.unchecked = log.below("block") & {stream.index for stream in self.streams}
        """Streams of which the log has blocks: the first of each is computed again, and compared."""
        self.unsure = set(self.unchecked)
        """Those of them whose block is yet to be compared; until all have been, nothing is added to the log."""
        self.held: list[tuple[Any, int, int]] = []
        """Blocks that wait for that: (entry, stream, number)."""
        self.pruned_to = 0
        """Blocks of positions that the last pruning left."""
        self.status, self.message, self.warned = "complete", "", False
        self.start = time.monotonic()
        self.pace: tuple[float, int] | None = None
        """Seconds and draws when the first blocks had come."""

    # The engine's side -------------------------------------------------------------------------------

    def next_task(self, most: int) -> Task | None:
        """Work for the root that lacks most rows; blocks that the log has are taken from there."""
        while not self.finished:
            root = self.roots[self.filled.index(min(self.filled))]
            stream = root.next_stream()
            if stream.must_wait(AHEAD * most, self.most_bytes):
                return None
            block = stream.launched
            task = stream.next_task(self.seed, self.purpose)
            logged = self.log.has("block", stream.index, block)
            if not logged or stream.index in self.unchecked:
                self.unchecked -= {stream.index} if logged else set()
                return replace(task, done=partial(self._ran, stream, block, task.done))
            self._done(stream, task.done, read_block(self.log, stream, block))
        return None

    @property
    def finished(self) -> bool:
        """Whether nothing more is wanted."""
        return self.status != "complete" or min(self.filled) >= self.draws

    def _ran(self, stream: Stream, block: int, done: Callable[[Any], None], result: tuple[Columns, Array]) -> None:
        """Log a block that has been computed; or compare it with the one in the log, once for each stream."""
        if self.log and stream.counted:
            entry, form = as_entry(stream, *result), kinds_and_shapes(result[0])
            if self.forms.get(stream.index) != form:
                self.log.same(form, "form", stream.index)
                self.forms[stream.index] = form
            self._keep(entry, stream.index, block)
        self._done(stream, done, result)

    def _keep(self, entry: dict[str, Any], stream: int, block: int) -> None:
        if self.log.has("block", stream, block):
            self.log.confirm(entry, "block", stream, block)
            self.unsure.discard(stream)
            self.log.forget("block", stream, block)
        elif len(self.held) < MOST_HELD:
            self.held.append((entry, stream, block))
        while self.held and not self.unsure:
            entry, stream, block = self.held.pop(0)
            self.log.put(entry, "block", stream, block)
            self.log.forget("block", stream, block)

    def _done(self, stream: Stream, done: Callable[[Any], None], result: Any) -> None:
        done(result)
        # Block by block, so that every check sees the same counts however the blocks arrived.
        while self.status == "complete" and stream.absorb():
            before = min(self.filled)
            self._collect()
            self._check_counts(stream)
            self._prune(before)

    def _prune(self, filled: int) -> None:
        """Drop positions that no tally will ask for, whenever there are twice as many as the last pruning left."""
        positions = sum(len(stream._positions) for stream in self.streams)
        if positions > 2 * self.pruned_to + 64:
            for root in self.roots:
                root.prune([(filled - 1, float("inf"))])
            self.pruned_to = sum(len(stream._positions) for stream in self.streams)

    def tick(self) -> None:
        """Show progress; stop by the clock when asked to."""
        seconds = time.monotonic() - self.start
        self.progress.update(min(self.filled), self.draws, lambda: sum(s.proposals for s in self.streams if s.counted))
        self._warn_of_a_long_run(seconds)
        limit = self.budget.max_seconds
        if limit is not None and seconds > limit and not self.finished:
            self._end(
                "max_seconds",
                f"stopped by the clock after max_seconds={limit:g} with {min(self.filled)} of {self.draws} draws "
                f"({self._counts()}). Stopping by the clock favours parameters that are quick to simulate, so "
                "draws may be biased. Raise max_seconds, or limit max_proposals instead.",
            )

    # Bookkeeping, all in the calling thread --------------------------------------------------------------

    def _collect(self) -> None:
        """Move ready rows of the roots into arrays of the final size."""
        for number, root in enumerate(self.roots):
            room = self.draws - self.filled[number]
            rows = root.take(room)
            if not rows:
                continue
            columns, start = self.columns[number], self.filled[number]
            for name, part in rows.items():
                if name not in columns:
                    columns[name] = _room(name, (self.draws, *part.shape[1:]), part.dtype)
                columns[name][start : start + len(part)] = part
            self.filled[number] = start + len(part)

    def _check_counts(self, stream: Stream) -> None:
        """Keep to `max_proposals`: the result is the most draws whose own work fits, on any number of threads."""
        limit = self.budget.max_proposals
        if limit is None:
            return
        if stream.counted and stream.proposals > limit and stream.accepted < self.wanted.get(stream.index, 0):
            self.filled = [0] * len(self.roots)
            self._end(
                "max_proposals",
                f"max_proposals={limit} allowed no draws: {stream.accepted} of {stream.proposals} proposals for "
                f"{stream.label} were accepted, too few for the next statistic to begin ({self._counts()}). Raise it, "
                "use a prior that agrees better with the release, or a sampler that weights instead of rejecting.",
            )
            return
        draws = min(self.filled)
        proposals = sum(each.proposals for each in self.streams if each.counted)
        if proposals > limit and self._work_for(min(draws + 1, self.draws)) > limit:
            while draws > 0 and self._work_for(draws) > limit:
                draws -= 1
            self.filled = [draws] * len(self.roots)
            self._end(
                "max_proposals",
                f"max_proposals={limit} allowed {draws} of {self.draws} draws ({self._counts()}). Raise it, ask for "
                "fewer draws, or use a prior that agrees better with the release.",
            )
        elif draws < self.draws:
            self._check_hope(stream, limit)

    def _work_for(self, draws: int) -> int:
        return sum(n for root in self.roots for stream, _, n in root.tally(draws) if stream.counted)

    def _check_hope(self, stream: Stream, limit: int) -> None:
        """Warn early where even an optimistic rate cannot finish within the budget; end if next to nothing survives."""
        power_of_two = stream.absorbed & (stream.absorbed - 1) == 0
        if stream.proposals < FAIR_TRIAL or not power_of_two:
            return
        # Exact Poisson upper limit, too low at one look in a million; looks are few, at powers of two.
        rate = min(1.0, 0.5 * float(chdtri(2 * (stream.accepted + 1), 1e-6)) / stream.proposals)
        if self.draws / rate <= limit:
            return
        message = (
            f"{stream.accepted} of the first {stream.proposals} proposals for {stream.label} were accepted "
            f"(a rate of at most {rate:.2g}), so {self.draws} draws need more than max_proposals={limit}. Prior and "
            "release disagree, or the noise is small: check the prior, ask for fewer draws, raise max_proposals, or "
            "use a sampler that weights instead of rejecting."
        )
        if stream.accepted < NEXT_TO_NOTHING:
            self.filled = [0] * len(self.roots)
            self._end("hopeless", message)
        else:
            self._warn(message)

    def _counts(self) -> str:
        counted = [stream for stream in self.streams if stream.counted]
        return "; ".join(f"{s.accepted} of {s.proposals} proposals accepted for {s.label}" for s in counted)

    def _warn_of_a_long_run(self, seconds: float) -> None:
        """Warn of a run that will take long, at the rate since the first blocks came. No draw depends on it."""
        if self.warned or self.finished or not any(stream.absorbed for stream in self.streams):
            return
        done = min(self.filled)
        if self.pace is None:  # workers may take long to start, and programs to compile
            self.pace = seconds, done
        since, done_then = self.pace
        if seconds - since < 10.0:
            return
        if done > done_then:
            left = (seconds - since) * (self.draws - done) / (done - done_then)
        else:
            left = seconds * (self.draws - done) / done if done else np.inf
        if left > LONG:
            outlook = f"about {left / 60:.0f} minutes to go" if left < np.inf else "no end in sight"
            self._warn(f"{done} of {self.draws} draws after {seconds:.0f} s ({self._counts()}): {outlook}.")

    def _warn(self, message: str) -> None:
        if not self.warned:
            self.warned = True
            warnings.warn(NoisewiseWarning(message, "sample"), stacklevel=2)

    def _end(self, status: str, message: str) -> None:
        self.status, self.message = status, message

    def describe(self) -> None:
        """Note in the log what its blocks belong to, for `noisewise status`."""
        streams = {str(s.index): {"label": s.label, "rows": s.rows} for s in self.streams if s.counted}
        roots = [root.index for root in self.roots if root.counted]
        self.log.put({"streams": streams, "roots": roots, "draws": self.draws}, "streams")

    def outcome(self) -> Outcome:
        """The draws present, the same number from each root."""
        draws = min(min(self.filled), self.draws)
        columns = {name: column[:draws] for part in self.columns for name, column in part.items()} if draws else {}
        tally = [entry for root in self.roots for entry in root.tally(draws)]
        if draws == 0:  # nothing to return: what was tried is all there is to tell
            tally = [(stream, stream.accepted, stream.proposals) for stream in self.streams]
        return Outcome(columns, draws, self.status, self.message, tally, time.monotonic() - self.start)


# Blocks in a log ------------------------------------------------------------------------------------------------------


def as_entry(stream: Stream, columns: Columns, positions: Array) -> dict[str, Any]:
    """A block's survivors and their positions; these are left out where every row survived."""
    places = None if len(positions) == stream.rows else positions.astype(np.int32)
    return {"n": len(positions), "positions": places, "columns": columns}


def kinds_and_shapes(columns: Columns) -> dict[str, Any]:
    """Kinds of numbers and shapes, by name."""
    return {name: [column.dtype.str, list(column.shape[1:])] for name, column in columns.items()}


def read_block(log: Log, stream: Stream, block: int) -> tuple[Columns, Array]:
    """A block from the log."""
    entry = log.get("block", stream.index, block)
    log.forget("block", stream.index, block)
    try:
        columns, places, count = entry["columns"], entry["positions"], entry["n"]
        positions = np.arange(stream.rows, dtype=np.int32) if places is None else places
        sound = len(positions) == count and all(len(column) == count for column in columns.values())
        sound = sound and fingerprint(kinds_and_shapes(columns)) == log.get("form", stream.index)
        sound = sound and positions.ndim == 1 and bool(np.all(np.diff(positions) > 0))
        if sound and (count == 0 or (columns and positions[0] >= 0 and positions[-1] < stream.rows)):
            return columns, positions
    except (KeyError, TypeError, AttributeError):
        pass
    raise log.refusal(f"block {block} of {stream.label} has no survivors and positions that fit")


def _room(name: str, shape: tuple[int, ...], dtype: Any) -> Array:
    try:
        return np.empty(shape, dtype=dtype)
    except MemoryError:
        advice = "Ask for fewer draws, or run in parts with different seeds."
        raise refusal("sample", "draws", f"must fit in memory (here for '{name}')", shape[0], advice) from None


def run(
    roots: Sequence[Stream],
    draws: int,
    seed: int,
    purpose: Purpose | Prefix,
    *,
    engine: Engine,
    progress: Progress,
    budget: Budget | None = None,
    log: Log = NOTHING,
) -> Outcome:
    """`draws` rows of each root, on `engine`. Ctrl-C ends with what has been accepted. `log` keeps every block."""
    source = StreamsRun(roots, draws, seed, purpose, budget or Budget(), progress, log)
    source.describe()
    try:
        with progress:
            engine.execute(source)
    except KeyboardInterrupt as stop:
        cause = f" ({stop})" if isinstance(stop, Broken) else ""
        state = f"interrupted{cause} with {min(source.filled)} of {draws} draws ({source._counts()})"
        bias = "Draws of a run that was cut short by hand may favour parameters that are quick to simulate."
        source._end("interrupted", f"{state}. {bias}")
    return source.outcome()
