"""Runs of streams whose blocks are fixed beforehand: exact draws in an order that no scheduler can change.

Scheduling decides only when a block runs, so one seed gives one result for any number of threads, and fewer draws are a
prefix of more. See docs/derivations/rejection.md.
"""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import chdtri

from noisewise.checkpoint.log import NOTHING, Log, fingerprint
from noisewise.engine import Broken, Engine, Task, total_memory
from noisewise.errors import NoisewiseWarning, refusal
from noisewise.inference.blocks import Columns, Found, Survivors, by_block
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Prefix, Purpose
from noisewise.inference.stream import NEVER, SETTLED, Stream
from noisewise.model.on_device.held import GrowingColumn, Held
from noisewise.numerics import Array

FAIR_TRIAL = 2**17
"""Proposals of one stream before it may be called hopeless."""
AHEAD = 16
"""Blocks of one stream that may be under way or wait for a slow one, per block that the engine takes at a time."""
WAITING = 1 / 16
"""Share of the machine's memory that blocks of one stream may fill while they wait."""
MANY = 32
"""Tasks at a time from which on as many blocks as allowed are evaluated together; with few tasks, an eighth."""
UNSEEN, KNOWN = 0.25, 1_000
"""Share of proposals assumed to survive before any block has come; survivors from which on the share is known."""
LEAST_SHARE = 0.25
"""The least blocks of a task, as a share of those that may be evaluated together, if so many are still wanted."""
COPIED = 2**17
"""Rows of a root that are copied at a time, at least."""
MOST_HELD = 64
"""Blocks held back, at most, until the log is known to be this run's; further ones are not logged."""
LONG = 600.0
"""Seconds still to go, at the present rate, that deserve a warning."""
NEXT_TO_NOTHING = 10
"""Survivors below which a stream that cannot finish in its budget is hopeless; above, the budget buys something."""


@dataclass
class Outcome:
    """What a run of streams gave: columns, how it ended, and its tally of (stream, survivors used, proposals)."""

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
        handful: int = 1,
    ) -> None:
        self.roots, self.draws, self.seed, self.purpose = roots, draws, seed, purpose
        self.handful = handful
        """The most evaluations, of blocks evaluated together, that a task has; 0 where every task is one block."""
        self.budget, self.progress, self.log = budget, progress, log
        self.forms: dict[int, dict[str, Any]] = {}
        """By stream, the form of its blocks (`kinds_and_shapes`) that has been compared with the log's."""
        self.most_bytes = WAITING * total_memory()
        self.filled = [0] * len(roots)
        self.columns: list[dict[str, Any]] = [{} for _ in roots]
        """By root, arrays of the final size, here or on an accelerator."""
        self.loose: list[list[Columns]] = [[] for _ in roots]
        """By root, pieces that are still to be moved into its columns."""
        self.loose_rows, self.placed = [0] * len(roots), [0] * len(roots)
        self.streams = [stream for root in roots for stream in root.below()]
        self._settle()
        self.wanted = {child.index: stream.rows for stream in self.streams for child in stream.children}
        """By stream, the survivors that the first block of its parent takes."""
        self.parents = {child.index: stream for stream in self.streams for child in stream.children}
        self.unchecked = log.below("block") & {stream.index for stream in self.streams}
        """Streams of which the log has blocks: the first of each is computed again, and compared."""
        self.unsure = set(self.unchecked)
        """Those of them whose block is yet to be compared; until all have been, nothing is added to the log."""
        self.held: list[tuple[Any, int, int]] = []
        """Blocks to be added to the log after these comparisons: (entry, stream, number)."""
        self.pruned_to = 0
        """Blocks of positions that the last pruning left."""
        self.status, self.message, self.warned = "complete", "", False
        self.start = time.monotonic()
        self.pace: tuple[float, int] | None = None
        """Seconds and draws when the first blocks had come."""

    def _settle(self) -> None:
        """Let blocks grow from the number on that the log states; a log that states none has no larger blocks."""
        before = self.log.get("streams")
        settled = SETTLED if before is None else before.get("settled", NEVER)
        if type(settled) is not int or settled < 1:
            raise self.log.refusal(f"its blocks are larger from the {settled!r}th on")
        for stream in self.streams:
            stream.settled = settled

    # The engine's side -------------------------------------------------------------------------------

    def next_task(self, most: int) -> Task | None:
        """Work for the root that lacks most rows, or None for now; blocks that the log has are read from there."""
        while not self.finished:
            root = self.roots[self.filled.index(min(self.filled))]
            stream = root.next_stream(partial(self._size_of_task, most=most))
            together, largest = self._together(stream, most), self._largest_task(stream, most)
            if stream.must_wait(AHEAD * most * largest, self.most_bytes) or self._may_suffice(stream):
                return None
            block = stream.launched
            logged = self.log.has("block", stream.index, block)
            if logged and stream.index not in self.unchecked:
                stream.next_task(self.seed, self.purpose)
                self._done(stream, block, read_block(self.log, stream, block))
                continue
            self.unchecked -= {stream.index} if logged else set()
            blocks = 1 if logged else self._unlogged(stream, self._size_of_task(stream, most))
            task = stream.next_task(self.seed, self.purpose, blocks, together)
            return replace(task, done=partial(self._ran, stream, block))
        return None

    def _together(self, stream: Stream, most: int) -> int:
        """Blocks that are evaluated together now: the more tasks at a time, the more they wait for the interpreter."""
        if self.handful == 0:
            return 1
        share = 0.125 if self.handful > 1 else min(1.0, max(0.125, most / MANY))
        return max(1, int(share * stream.together * stream.rows / stream.rows_of(stream.launched)))

    def _largest_task(self, stream: Stream, most: int) -> int:
        """The most blocks of a task: one where a block takes long beside its hand-over, as a simulator's does."""
        return 1 if stream.together == 1 else stream.alike(max(1, self.handful * self._together(stream, most)))

    def _size_of_task(self, stream: Stream, most: int) -> int:
        """Blocks of the next task: a share of those still expected to be wanted, so that tasks end at about one time.

        But no fewer than `LEAST_SHARE` of what may be evaluated together, as long as there are four such tasks: the
        threads of light tasks wait for the interpreter, and for each other, most of the time.
        """
        largest = self._largest_task(stream, most)
        if largest == 1:
            return 1
        shares = most if self.handful == 1 else max(1, most // 2)
        expected = self._expected(stream)
        least = min(expected // 4, int(LEAST_SHARE * self._together(stream, most)))
        return max(1, min(largest, max(least, expected // shares)))

    def _unlogged(self, stream: Stream, blocks: int) -> int:
        """How many of the next `blocks` blocks come before the first that the log has; at least one."""
        logged = (n for n in range(1, blocks) if self.log.has("block", stream.index, stream.launched + n))
        return next(logged, blocks)

    def _may_suffice(self, stream: Stream) -> bool:
        """Whether light blocks under way are expected to suffice: others would only be in their way.

        Where handing a block over takes long, they are expected to suffice even before the share of survivors is known.
        """
        if stream.together == 1 or stream.under_way == 0 or self._expected(stream) > 0:
            return False
        return self.handful > 1 or stream.accepted >= KNOWN

    def _expected(self, stream: Stream) -> int:
        """Blocks that are wanted beyond those under way, at the share of survivors so far."""
        parent = self.parents.get(stream.index)
        if parent is None:
            wanted = self.draws - self.filled[self.roots.index(stream)]
        else:
            wanted = self._expected(parent) * parent.rows_of(parent.launched) - stream._ready_rows
        unseen = UNSEEN if self.handful == 1 else 1.0  # of large tasks too few are better than too many
        rate = (stream.accepted + 1) / stream.proposals if stream.absorbed else unseen
        under_way = stream.start_of(stream.launched) - stream.proposals
        return max(0, math.ceil((wanted / rate - under_way) / stream.rows_of(stream.launched)))

    @property
    def finished(self) -> bool:
        """Whether nothing more is wanted."""
        return self.status != "complete" or min(self.filled) >= self.draws

    def _ran(self, stream: Stream, first: int, results: list[Found]) -> None:
        """Take in computed blocks, and log them; once for each stream, compare a block with the one in the log."""
        for block, result in enumerate(by_block(results), first):
            if self.log and stream.counted:
                entry, form = as_entry(stream, block, *result), kinds_and_shapes(result[0])
                if self.forms.get(stream.index) != form:
                    self.log.same(form, "form", stream.index)
                    self.forms[stream.index] = form
                self._keep(entry, stream.index, block)
            self._done(stream, block, result)

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

    def _done(self, stream: Stream, block: int, result: Survivors) -> None:
        stream._done(block, result)
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
        """Take ready rows of the roots, to be put into their arrays soon: few long copies, not one for each block."""
        for number, root in enumerate(self.roots):
            for piece in root.take(self.draws - self.filled[number]):
                size = len(next(iter(piece.values())))
                self.filled[number] += size
                self.loose_rows[number] += size
                self.loose[number].append(piece)
            if self.loose_rows[number] >= COPIED or not self.placed[number]:
                self._put_away(number)

    def _put_away(self, number: int) -> None:
        """Move the rows taken from a root into arrays of the final size, on the device that has the rows."""
        pieces, columns = self.loose[number], self.columns[number]
        start = self.placed[number]
        for name, first in pieces[0].items() if pieces else ():
            if name not in columns:
                there = GrowingColumn.of(self.draws, first) if isinstance(first, Held) else None
                columns[name] = there or _room(name, (self.draws, *first.shape[1:]), first.dtype)
            if isinstance(columns[name], GrowingColumn):
                columns[name].put(np.concatenate([piece[name] for piece in pieces]), start)
                continue
            place = columns[name][start : start + self.loose_rows[number]]
            np.concatenate([np.asarray(piece[name]) for piece in pieces], out=place)
        self.placed[number] += self.loose_rows[number]
        self.loose[number], self.loose_rows[number] = [], 0

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
        rows, before = stream.proposals // stream.rows, stream.start_of(stream.absorbed - 1) // stream.rows
        if stream.proposals < FAIR_TRIAL or rows.bit_length() == before.bit_length():
            return
        # Exact Poisson upper limit, too low at one look in a million; looks are few, one per doubling of proposals.
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
        """Note in the log its blocks' streams, for `noisewise status`, and from which number on blocks are larger."""
        streams = {
            str(s.index): {"label": s.label, "rows": s.rows, "growth": s.growth} for s in self.streams if s.counted
        }
        roots = [root.index for root in self.roots if root.counted]
        about = {"streams": streams, "roots": roots, "draws": self.draws, "settled": self.streams[0].settled}
        self.log.put(about, "streams", needed=True)

    def outcome(self) -> Outcome:
        """The draws present, the same number from each root."""
        for number in range(len(self.roots)):
            self._put_away(number)
        draws = min(min(self.filled), self.draws)
        columns = {name: column[:draws] for part in self.columns for name, column in part.items()} if draws else {}
        tally = [entry for root in self.roots for entry in root.tally(draws)]
        if draws == 0:  # no draw to count up to: tally all that was tried
            tally = [(stream, stream.accepted, stream.proposals) for stream in self.streams]
        return Outcome(columns, draws, self.status, self.message, tally, time.monotonic() - self.start)


# Blocks in a log ------------------------------------------------------------------------------------------------------


def as_entry(stream: Stream, block: int, columns: Columns, positions: Array) -> dict[str, Any]:
    """A block as the log keeps it: its survivors and their positions, which are None where every row survived."""
    rows = stream.rows_of(block)
    places = None if len(positions) == rows else positions.astype(np.int32)
    larger = {"rows": rows} if rows != stream.rows else {}
    return {"n": len(positions), "positions": places, "columns": columns, **larger}


def kinds_and_shapes(columns: Columns) -> dict[str, Any]:
    """Each column's type of numbers and the shape of its rows, by name."""
    return {name: [column.dtype.str, list(column.shape[1:])] for name, column in columns.items()}


def read_block(log: Log, stream: Stream, block: int) -> Survivors:
    """A block from the log; refused where it does not fit the stream."""
    entry = log.get("block", stream.index, block)
    log.forget("block", stream.index, block)
    try:
        columns, places, count = entry["columns"], entry["positions"], entry["n"]
        rows = entry.get("rows", stream.rows)
        positions = np.arange(rows, dtype=np.int32) if places is None else places
        sound = rows == stream.rows_of(block)
        sound = sound and len(positions) == count and all(len(column) == count for column in columns.values())
        sound = sound and fingerprint(kinds_and_shapes(columns)) == log.get("form", stream.index)
        sound = sound and positions.ndim == 1 and bool(np.all(np.diff(positions) > 0))
        if sound and (count == 0 or (columns and positions[0] >= 0 and positions[-1] < rows)):
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
    """Run the streams on `engine` until every root has `draws` rows.

    Ctrl-C ends the run with the rows accepted so far. `log` keeps every block.
    """
    source = StreamsRun(roots, draws, seed, purpose, budget or Budget(), progress, log, engine.handful)
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
