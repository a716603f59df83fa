"""When a release is called surprising under the prior: its tail probability among releases that the prior expects."""

from collections.abc import Mapping

SURPRISING = 0.02
"""A tail probability below this is called a conflict."""


def whole_release(tails: Mapping[str, float]) -> tuple[str, float]:
    """Name and value of the tail probability that decides: that of the whole release, or of its only statistic.

    The smallest of many would be small under a right model too: of thirty, it is below 0.02 nearly every other time.
    """
    name = "release" if "release" in tails else next(iter(tails))
    return name, tails[name]
