"""The accelerator engine: blocks of work on a GPU. What runs there is in samplers and in model/on_device."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax

from noisewise import checks
from noisewise.engine.base import Engine, Source, drive
from noisewise.engine.machine import memory
from noisewise.engine.threads import ThreadCrew
from noisewise.errors import refusal
from noisewise.numerics import Placement, placed

STAYING = 0.25
"""Share of a device's free memory that results may fill: sorting them takes twice as much in addition."""


@dataclass(frozen=True)
class Device(Engine):
    """Blocks on an accelerator, the first that JAX finds, or the first of `platform` ("gpu", "tpu", "cpu").

    `precision` is "double", or "single" for more speed where seven digits of every variate will do: normal variates
    then end at 5.4 standard deviations, and counts are right to about 10^4. Acceptance has 64 random bits in both.
    `rows` is how many proposals a block of scalars holds.
    """

    platform: str | None = None
    precision: str = "double"
    rows: int = 2**24
    handful = 0

    keeps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.choice("Device", "precision", self.precision, ["double", "single"])
        checks.integer("Device", "rows", self.rows, least=2**10, advice="The default is 2**24.")
        if self.platform is not None and not isinstance(self.platform, str):
            raise refusal("Device", "platform", "must be a platform's name", self.platform, "For example 'gpu'.")

    @property
    def block_rows(self) -> int:
        """Large blocks: a program's start costs as much as a million rows."""
        return self.rows

    @property
    def kind(self) -> str:
        """What decides the numbers: the device, its precision, and how many rows share a key."""
        return f"{self.placement.device.device_kind}, {self.precision} precision, blocks of {self.rows}"

    @property
    def placement(self) -> Placement:
        """The device itself; refused where there is none."""
        try:
            devices = jax.devices(self.platform) if self.platform else jax.devices()
        except RuntimeError as error:
            why = str(error).splitlines()[0]
            raise refusal("Device", "platform", f"must be there ({why})", self.platform, "Use nw.Threads().") from None
        if self.platform is None and devices[0].platform == "cpu":
            advice = "Install JAX for your accelerator, use nw.Threads(), or say platform='cpu' to try it out."
            raise refusal("Device", "platform", "must be an accelerator", "cpu only", advice)
        return Placement(devices[0], self.precision == "single")

    @property
    def staying_bytes(self) -> float:
        """A share of the device's memory that is free; none for results in single precision, which are widened here."""
        if self.precision == "single":
            return 0.0
        used = self.placement.device.memory_stats()
        if used:
            return STAYING * max(0, used.get("bytes_limit", 0) - used.get("bytes_in_use", 0))
        here = memory()  # a processor that stands for a device has the machine's memory
        return STAYING * here[0] if here is not None and self.placement.device.platform == "cpu" else 0.0

    def execute(self, source: Source) -> None:
        """Two blocks at a time: one computes while the other's survivors are fetched."""
        drive(source, ThreadCrew(2, partial(placed, self.placement)))
