"""Every problem, by name."""

from realistic import counts, shares, tables
from realistic.problem import PROBLEMS

__all__ = ["PROBLEMS", "counts", "shares", "tables"]
