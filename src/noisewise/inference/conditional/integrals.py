"""A statistic integrated out entry by entry, whatever the parameters, and drawn once they are known.

Continuous ones by quadrature; whole numbers over windows that follow the parameters at hand, where a window that serves
all of them (sums.py) would be too long. Derivation: docs/derivations/conditional.md.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from noisewise.inference.conditional import entry
from noisewise.inference.conditional.laws import look_at, sketch_of
from noisewise.inference.conditional.sums import MOST_CELLS
from noisewise.inference.problem import Problem
from noisewise.model.coordinates import Space
from noisewise.model.masses import entries
from noisewise.numerics import Values

NODES, MIXED = 2**11, 2**5
"""About how many values of law and noise the integral of one entry takes, and numbers the closed form of a mixture."""


@dataclass(frozen=True)
class Integral:
    """One statistic under noise of its own, both entry by entry."""

    space: Space
    name: str
    by: entry.Route

    @staticmethod
    def of(problem: Problem, space: Space, name: str, widened: int = 0) -> "Integral | None":
        """The integral over a statistic that nothing but its own noise reads; None where it cannot be had.

        Windows are doubled `widened` times.
        """
        item = problem.release[name]
        mechanism, shape = item.mechanism, problem.model.shape(name)

        def fits(law: Any) -> bool:
            if entry.unfit(law, mechanism) is not None or jnp.shape(item.value) != shape:
                return False
            return jnp.shape(entries(law, jnp.zeros(shape, problem.model.dtype(name)))) == shape

        if not sketch_of(problem.model, name, fits):
            return None
        by = look_at(problem.model, name, lambda law: entry.route(law, mechanism))
        if widened and not by.whole:
            by = look_at(problem.model, name, lambda law: entry.route(law, mechanism, by.size * 2**widened))
        return Integral(space, name, by)

    @property
    def names(self) -> tuple[str, ...]:
        """What is integrated out."""
        return (self.name,)

    @property
    def entries(self) -> int:
        """Separate integrals."""
        return int(np.prod(self.space.model.shape(self.name)))

    @property
    def bounded(self) -> bool:
        """Whether what may be missing is bounded, as with windows; by quadrature it is only estimated."""
        return self.by.way == "window"

    @property
    def cells(self) -> int:
        """Values that one row's integrals run over."""
        return self.entries * {"window": self.by.size, "mixed": MIXED}.get(self.by.way, NODES)

    def excess(self) -> str | None:
        """Why there are too many values to sum over, or None."""
        if self.cells <= MOST_CELLS:
            return None
        return f"would sum '{self.name}' over {self.by.size} values in each of {self.entries} entries"

    def log_kept(self, values: Values, items: Any) -> Any:
        """log density of the release, or an upper bound of it where a window may leave something out; traceable."""
        marginal = self._marginal(values, items)
        return jnp.sum(marginal.log_bound if self.bounded else marginal.log_kept)

    def completed(self, values: Values, items: Any, uniform: Any) -> tuple[Any, Any]:
        """A draw of the statistic for one uniform number per entry, and what may be missing, as a share."""
        mechanism, value = items[self.name]
        shape = self.space.model.shape(self.name)
        law = self.space.model.law_at(self.name, values)
        drawn = entry.draw(uniform.reshape(shape), law, mechanism, value, self.by)
        return drawn, jnp.sum(self._marginal(values, items).share)

    def _marginal(self, values: Values, items: Any) -> entry.Marginal:
        mechanism, value = items[self.name]
        return entry.log_marginal(self.space.model.law_at(self.name, values), mechanism, value, self.by)
