"""Checkpoints: the file, a run's view of it, whether it belongs to a run, and what `noisewise status` shows."""

from noisewise.checkpoint.inspection import describe, inspect

__all__ = ["describe", "inspect"]
