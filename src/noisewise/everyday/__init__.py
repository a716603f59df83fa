"""Everyday questions in a few lines: means, shares, differences, tables and regressions, each an ordinary `Model`."""

from noisewise.everyday.differences import difference
from noisewise.everyday.means import mean_of
from noisewise.everyday.regressions import regression
from noisewise.everyday.shares import share_of
from noisewise.everyday.tables import table_of

__all__ = ["difference", "mean_of", "regression", "share_of", "table_of"]
