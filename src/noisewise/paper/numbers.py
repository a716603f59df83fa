"""One number of the paper beside ours and the exact one, with a verdict."""

import math
from dataclasses import dataclass
from typing import Any

from scipy.stats import norm

FALSE_ALARM = 1e-6
LIMIT = float(norm.isf(FALSE_ALARM / 2))
"""Standard errors beyond which Monte Carlo error is no explanation: one false alarm in a million numbers."""


@dataclass(frozen=True)
class Number:
    """`ours` has the Monte Carlo standard error `error`; `paper` was printed with steps of `printed`, give or take
    `paper_error`. Paper or exact may be missing."""

    section: str
    label: str
    ours: float
    error: float
    exact: float | None = None
    paper: float | None = None
    printed: float = 0.0
    paper_error: float = 0.0

    @property
    def verdict(self) -> str:
        """Whether ours agrees with the exact value, and the paper's too, each within its own error."""
        told = []
        if self.exact is not None:
            off = abs(self.ours - self.exact)
            allowed = LIMIT * self.error + 1e-6 * abs(self.exact)
            told.append("ours agrees with the exact value" if off <= allowed else "OURS DIFFERS FROM THE EXACT VALUE")
        if self.paper is not None:
            truth, noise = (self.exact, 0.0) if self.exact is not None else (self.ours, self.error)
            allowed = 0.5 * self.printed + LIMIT * math.hypot(self.paper_error, noise)
            agrees = abs(self.paper - truth) <= allowed * (1 + 1e-9)
            told.append("the paper agrees" if agrees else "the paper differs")
        return "; ".join(told)

    @property
    def holds(self) -> bool:
        """Whether ours is within its error of the exact value."""
        return "OURS" not in self.verdict

    def row(self) -> dict[str, Any]:
        """As plain data."""
        kept = ("section", "label", "paper", "ours", "error", "exact", "verdict")
        return {name: getattr(self, name) for name in kept}
