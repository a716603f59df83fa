"""What is kept of a run while it runs: the file, a run's view of it, and what `noisewise status` tells."""

from noisewise.checkpoint.inspection import describe, inspect

__all__ = ["describe", "inspect"]
