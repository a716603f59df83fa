"""The report: one self-contained HTML file of an analysis, to read, print and hand on. docs/report.md.

It needs no network and runs no script; its own security policy forbids both. It shows what it is given: it draws
nothing, solves nothing and reads no folder. Numbers beside the answer (of the prior, of the size of the noise, of
what privacy cost) come from the rooms `model`, `mechanisms` and `results`.
"""

from noisewise.report.likelihood import FitReport
from noisewise.report.posterior import Report

__all__ = ["FitReport", "Report"]
