"""Engines: where blocks of work run. They know nothing of what is computed. See docs/engines.md."""

from noisewise.engine.base import Broken, Engine, Source, Stopped, Task, drive, gather
from noisewise.engine.dask import Dask
from noisewise.engine.device import Device
from noisewise.engine.machine import processors, total_memory
from noisewise.engine.processes import Processes
from noisewise.engine.signals import Terminated, terminable
from noisewise.engine.threads import Threads

__all__ = [
    "Broken",
    "Dask",
    "Device",
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
