"""The results of a run, in memory. The folder, the report and the terminal are made from them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noisewise.analysis import Analysis
from noisewise.inference.status import FIT, POSTERIOR, Status
from noisewise.report.likelihood import with_answers
from noisewise.report.short_answer import in_order
from noisewise.results.fit import Fit
from noisewise.results.posterior import Posterior
from noisewise.studies.compare import Comparison
from noisewise.workflow.expectations import Expectations


@dataclass(frozen=True)
class Results:
    """The posterior or the likelihood fit of a run, and the naive one where there is one."""

    analysis: Analysis
    command: str
    posterior: Posterior | None = None
    naive: Posterior | None = None
    no_naive: str = ""
    """Why there is no naive analysis, where there is none."""
    fit: Fit | None = None
    naive_fit: Fit | None = None
    ended: int = 0
    """The exit status that a signal asked for during the run: 130 on Ctrl-C, 143 on SIGTERM, 0 where none came."""
    expected: Expectations | None = None
    """What the prior expected of the release; None where it was not looked at yet."""
    fault: Exception | None = None
    """An unexpected error of the naive analysis, which leaves the exact one as it is."""

    @property
    def exact(self) -> Posterior | Fit:
        """The posterior or the fit: what counts the noise."""
        result = self.posterior if self.posterior is not None else self.fit
        assert result is not None
        return result

    @property
    def end(self) -> Status:
        """How the run ended."""
        return (FIT if isinstance(self.exact, Fit) else POSTERIOR)[self.exact.status]

    @property
    def comparison(self) -> Comparison | None:
        """Naive beside exact, where there are both."""
        if self.posterior is None or self.naive is None:
            return None
        return Comparison(self.analysis.model, self.analysis.release, self.posterior, self.naive)

    def compared(self) -> Any:
        """A pandas table of naive beside exact; None where there is no naive analysis."""
        if self.fit is not None and self.naive_fit is not None:
            return self.fit.beside(self.naive_fit)
        comparison = self.comparison
        return None if comparison is None else comparison.table(self.analysis.settings.level)

    def table(self) -> Any:
        """A pandas table of every quantity, with the quantities asked for first."""
        exact, level = self.exact, self.analysis.settings.level
        if isinstance(exact, Posterior):
            return in_order(exact, exact.summary(level))
        return with_answers(exact, self.analysis.model, level)

    def summary(self) -> dict[str, Any]:
        """The content of `summary.json`: status, and one entry per number of interest."""
        exact, level = self.exact, self.analysis.settings.level
        table = self.table()
        content = {
            "status": exact.status,
            "message": exact.message,
            "level": level,
            "seed": self.analysis.settings.seed,
        }
        if isinstance(exact, Posterior):
            content |= {"draws": len(exact), "acceptance_rate": exact.acceptance_rate, "reason": exact.reason}
            content |= {"answers": list(exact.derived)} if exact.derived else {}
            content |= {"log_evidence": exact.log_evidence, "log_evidence_se": exact.log_evidence_se}
        else:
            content |= {"log_likelihood": exact.log_likelihood, "efficiency": exact.efficiency}
        rows = {str(label): {str(key): value for key, value in row.items()} for label, row in table.iterrows()}
        content["quantities"] = rows
        compared = self.compared()
        if compared is not None:
            content["naive"] = {str(label): dict(row) for label, row in compared.iterrows()}
        elif self.no_naive:
            content["no_naive"] = self.no_naive
        return dict(plain(content))


def plain(value: Any) -> Any:
    """Plain data for JSON: a number that is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)
