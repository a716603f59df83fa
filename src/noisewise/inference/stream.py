"""A stream of blocks: proposals become survivors, block by block, and survivors are joined in block order.

Block b draws from its own random stream, derived from (seed, purpose, stream, b), and consumes the next rows of each
child stream. What a stream counts therefore depends on no scheduler. See docs/derivations/rejection.md.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from noisewise.engine import Task
from noisewise.inference import randomness
from noisewise.inference.blocks import Columns, Found, Survivors, Work, by_block, run_blocks
from noisewise.inference.randomness import Prefix, Purpose
from noisewise.numerics import Array

SETTLED = 64
"""Blocks after which a stream's blocks may be larger: short runs wait for small blocks, long runs make fewer calls."""
NEVER = 2**62


@dataclass(eq=False)
class Stream:
    """One step of a run, such as draws from a prior or a rejection: its survivors, in block order.

    `index` numbers the stream within the run.
    """

    index: int
    rows: int
    """Rows of a block, or of each of the first `settled` blocks where later ones are larger."""
    work: Work
    label: str
    children: list["Stream"] = field(default_factory=list)
    counted: bool = True
    """Whether its proposals count as work (False for plain draws from a prior)."""
    together: int = 1
    """The most blocks that `work` may be given at a time, with their generators side by side."""
    growth: int = 1
    """Factor by which later blocks have more rows: with fewer calls, threads wait less for the interpreter."""
    settled: int = SETTLED
    """Number of blocks before the larger ones."""

    launched: int = 0
    absorbed: int = 0
    accepted: int = 0
    _early: dict[int, Survivors] = field(default_factory=dict)
    _early_bytes: int = 0
    _ready: deque[Columns] = field(default_factory=deque)
    _ready_rows: int = 0
    _positions: deque[tuple[int, int, Array]] = field(default_factory=deque)

    @property
    def proposals(self) -> int:
        """Proposals made so far, in whole blocks and in order."""
        return self.start_of(self.absorbed)

    def rows_of(self, block: int) -> int:
        """Rows of one block."""
        return self.rows if block < self.settled else self.rows * self.growth

    def start_of(self, block: int) -> int:
        """Rows of all blocks before it."""
        return self.rows * (min(block, self.settled) + self.growth * max(block - self.settled, 0))

    def alike(self, blocks: int) -> int:
        """How many of the next `blocks` blocks have as many rows as the very next one."""
        return min(blocks, self.settled - self.launched) if self.launched < self.settled else blocks

    def below(self) -> list["Stream"]:
        """Every stream of this tree, children first."""
        return [*(stream for child in self.children for stream in child.below()), self]

    def next_stream(self, size: Callable[["Stream"], int] = lambda stream: 1) -> "Stream":
        """This stream if the rows for its next task are there, else the descendant that must supply them first.

        `size` says how many blocks a stream's task ought to have.
        """
        for child in self.children:
            if child._ready_rows < size(self) * self.rows_of(self.launched):
                return child.next_stream(size)
        return self

    def must_wait(self, blocks: int, most_bytes: float) -> bool:
        """Whether a late block holds up too much: `blocks` blocks begun, or more than `most_bytes` that have come."""
        return self.launched - self.absorbed >= blocks or self._early_bytes > most_bytes

    @property
    def stays(self) -> bool:
        """Whether rows take longer to send elsewhere than to work on: plain laws of rows that are here already."""
        return self.together > 1 and bool(self.children)

    @property
    def under_way(self) -> int:
        """Blocks that have begun, or wait for one before them."""
        return self.launched - self.absorbed

    def next_task(self, seed: int, purpose: Purpose | Prefix, blocks: int = 1, together: int = 1) -> Task:
        """A task of the next `blocks` blocks, `together` of them evaluated at a time; it uses up the rows it takes."""
        first, rows = self.launched, self.rows_of(self.launched)
        inputs = [child.take(blocks * rows) for child in self.children]
        self.launched += blocks
        key = randomness.key(seed, purpose, self.index, first)
        work = partial(run_blocks, self.work, key, inputs, rows, blocks, together)
        return Task(work, partial(self._arrived, first), portable=not self.stays)

    def _arrived(self, first: int, results: list[Found]) -> None:
        for block, result in enumerate(by_block(results), first):
            self._done(block, result)

    def _done(self, block: int, result: Survivors) -> None:
        self._early[block] = result
        self._early_bytes += _size(result)

    def absorb(self) -> bool:
        """Take in the next block in order if it has arrived; return whether it had."""
        if self.absorbed not in self._early:
            return False
        columns, positions = result = self._early.pop(self.absorbed)
        self._early_bytes -= _size(result)
        if len(positions):
            self._positions.append((self.accepted, self.absorbed, positions.astype(np.int32, copy=False)))
            self._ready.append(columns)
            self._ready_rows += len(positions)
        self.absorbed += 1
        self.accepted += len(positions)
        return True

    def take(self, rows: int) -> list[Columns]:
        """The next `rows` survivors, each once (fewer only if fewer are ready), in pieces."""
        pieces: list[Columns] = []
        missing = min(rows, self._ready_rows)
        self._ready_rows -= missing
        while missing:
            piece = self._ready.popleft()
            size = len(next(iter(piece.values())))
            if size > missing:
                self._ready.appendleft({name: column[missing:] for name, column in piece.items()})
                piece, size = {name: column[:missing] for name, column in piece.items()}, missing
            pieces.append(piece)
            missing -= size
        return pieces

    def prune(self, spans: list[tuple[float, float]]) -> None:
        """Drop the positions of survivors outside the given spans of rows: no tally will ask for them again.

        Spans and positions are both in order, so one pass through each will do.
        """
        wanted: deque[tuple[int, int, Array]] = deque()
        spans_left = iter(spans)
        low, high = next(spans_left)
        for entry in self._positions:
            first, end = entry[0], entry[0] + len(entry[2])
            while high <= first and (span := next(spans_left, None)) is not None:
                low, high = span
            if low < end and first < high:
                wanted.append(entry)
        self._positions = wanted
        below: list[tuple[float, float]] = [
            (self.start_of(block), self.start_of(block + 1)) for _, block, _ in self._positions
        ]
        below.append((self.proposals - 1, float("inf")))  # the last row used: asked for until the next block
        for child in self.children:
            child.prune(below)

    def proposals_until(self, survivors: int) -> int:
        """Proposals up to and with the given survivor; all made so far if it has not come yet."""
        if survivors == 0:
            return 0
        for first, block, positions in reversed(self._positions):
            if first < survivors <= first + len(positions):
                return self.start_of(block) + int(positions[survivors - 1 - first]) + 1
        return self.proposals

    def tally(self, survivors: int) -> list[tuple["Stream", int, int]]:
        """(stream, survivors used, proposals for them) for this stream and all below it.

        A survivor of a child is used for every proposal here, up to the one that gave the last survivor used.
        """
        proposals = self.proposals_until(survivors)
        below = [entry for child in self.children for entry in child.tally(proposals)]
        return [*below, (self, survivors, proposals)]


def _size(result: Survivors) -> int:
    """Bytes of a block's survivors."""
    return result[1].nbytes + sum(column.nbytes for column in result[0].values())
