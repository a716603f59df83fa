"""One worker process of `Processes`: reads work from its standard input, answers on its standard output.

A message is its length and then a pickled tuple. What the analyst's functions print goes to standard error. The process
ends when its input does, that is, with its parent.
"""

import os
import pickle
import signal
import struct
import sys
import threading
from queue import SimpleQueue
from typing import IO, Any

from noisewise.engine.base import Stopped
from noisewise.engine.failures import whereabouts
from noisewise.engine.machine import keep_freed_memory
from noisewise.engine.transport import perform

HEAD = struct.Struct("<Q")


def send(file: IO[bytes], message: tuple[Any, ...]) -> None:
    """Write one message."""
    content = pickle.dumps(message, protocol=5)
    file.write(HEAD.pack(len(content)))
    file.write(content)
    file.flush()


def receive(file: IO[bytes]) -> tuple[Any, ...] | None:
    """Read one message; None where the other side has gone."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    (size,) = HEAD.unpack(head)
    content = file.read(size)
    return pickle.loads(content) if len(content) == size else None


class _Desk:
    """The two threads of a worker: the main one works, the other reads, to hear a stop or a question meanwhile."""

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes]) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self.inbox: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        self.lock, self.stopped, self.main = threading.Lock(), set[int](), threading.get_ident()

    def answer(self, *message: Any) -> None:
        with self.lock:
            send(self.outgoing, message)

    def read(self) -> None:
        while (message := receive(self.incoming)) is not None:
            if message[0] == "stop":
                self.stopped.add(message[1])
            elif message[0] == "where":
                self.answer("at", message[1], whereabouts(self.main))
            else:
                self.inbox.put(message)
        os._exit(0)

    def work(self) -> None:
        keep_freed_memory()
        self.answer("ready")
        while True:
            _, number, content, books = self.inbox.get()

            def poll(number: int = number) -> None:
                if number in self.stopped:
                    raise Stopped

            def begun(number: int = number) -> None:
                self.answer("begun", number)

            kind, value = perform(content, books, poll, begun)
            self.stopped.discard(number)
            self.answer(kind, number, value)


def main() -> None:
    """Serve until the parent goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    sys.stdout.flush()
    desk = _Desk(incoming, outgoing)
    threading.Thread(target=desk.read, daemon=True).start()
    desk.work()
