"""Engines: where blocks of work run. They know nothing of what is computed. See docs/engines.md."""

from noisewise.engine.base import Broken, Engine, Source, Stopped, Task, drive, gather
from noisewise.engine.care import Terminated, processors, terminable, total_memory
from noisewise.engine.cluster import Dask
from noisewise.engine.processes import Processes
from noisewise.engine.threads import Threads

__all__ = [
    "Broken",
    "Dask",
    "Engine",
    "Processes",
    "Source",
    "Stopped",
    "Task",
    "Terminated",
    "Threads",
    "drive",
    "gather",
    "processors",
    "terminable",
    "total_memory",
]
