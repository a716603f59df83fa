"""From when on a release is called surprising under the prior, given where it lies among releases that it expects."""

from collections.abc import Mapping

SURPRISING = 0.02
"""A tail probability below this is called a conflict."""


def whole_release(tails: Mapping[str, float]) -> tuple[str, float]:
    """The one tail probability that decides, by name: that of the whole release, or of its only statistic.

    The smallest of many would be small for a right model too: of thirty below 0.02 nearly every other time.
    """
    name = "release" if "release" in tails else next(iter(tails))
    return name, tails[name]
