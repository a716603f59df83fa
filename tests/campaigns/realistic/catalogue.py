"""Every problem, by name."""

from realistic import counts, hierarchies, means, modes, regressions, shares, sums, tables
from realistic.problem import PROBLEMS

__all__ = ["PROBLEMS", "counts", "hierarchies", "means", "modes", "regressions", "shares", "sums", "tables"]
