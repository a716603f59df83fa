"""A normal statistic measured several ways with Gaussian noise, in closed form.

    s ~ Normal(mu, Sigma),  r = A s + e,  e ~ Normal(0, D):   r ~ Normal(A mu, A Sigma A' + D),
    and  s' + K (r - A s' - e')  is s given r, for s' and e' drawn afresh and K = Sigma A' (A Sigma A' + D)^-1.

All measurements are stacked in r. Derivation: docs/derivations/conditional.md.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.inference.problem import Problem
from noisewise.mechanisms import Gaussian, Mechanism
from noisewise.model.wrappers import peel
from noisewise.numerics import Array, Compiled, Values, double

NORMAL = ("Normal", "MultivariateNormal")
"""Laws with a closed form."""
MOST = 256
"""Most entries, and most measured values, with which a covariance is factorised at every evaluation."""


class MeasuredNormal:
    """The law of all measurements of a normal statistic, and of the statistic given them."""

    def __init__(self, problem: Problem, name: str) -> None:
        self.problem, self.model, self.name = problem, problem.model, name
        self.measurements = problem.measurements_of(name)
        self.matrix = np.concatenate([matrix.dense for matrix, _, _ in self.measurements.values()]).astype(float)
        self.normal = self.model.law(name).form.kind == "Normal"

    @staticmethod
    def applies(problem: Problem, name: str, most: int = MOST) -> bool:
        """Whether law and noise are normal, and only measurements depend on the statistic."""
        model, measured = problem.model, problem.measured
        if model.is_discrete(name) or not model.has_density(name) or model.law(name).form.kind not in NORMAL:
            return False
        if model.law(name).form.kind != "Normal" and len(model.shape(name)) > 1:
            return False
        children = [other for other in model.statistics if name in model.parents(other) and other not in measured]
        if children or any(name in item.mechanism.inputs for item in problem.release.values()):
            return False
        measurements = problem.measurements_of(name).values()
        small = max(int(np.prod(model.shape(name))), sum(matrix.shape[0] for matrix, _, _ in measurements)) <= most
        return small and all(type(mechanism) is Gaussian for _, mechanism, _ in measurements)

    @property
    def cells(self) -> int:
        """Numbers handled for the density at one row of parameters."""
        rows, entries = self.matrix.shape
        return rows * (rows + entries)

    def released(self) -> tuple[Array, Array]:
        """All measured values, and the scales of their noise."""
        values = [np.ravel(value).astype(float) for _, _, value in self.measurements.values()]
        scales = [
            np.broadcast_to(np.asarray(_scale_of(mechanism), float), np.shape(value)).ravel()
            for _, mechanism, value in self.measurements.values()
        ]
        return np.concatenate(values), np.concatenate(scales)

    def moments(self, values: Values) -> tuple[Any, Any]:
        """Mean, and a root of the covariance, of the statistic's entries; traceable."""
        law, size = peel(self.model.law_at(self.name, values))[0], self.matrix.shape[1]
        mean = jnp.broadcast_to(law.loc, self.model.shape(self.name)).reshape(-1)
        if self.normal:
            return mean, jnp.diag(jnp.broadcast_to(law.scale, self.model.shape(self.name)).reshape(-1))
        return mean, jnp.broadcast_to(law.scale_tril, (size, size))

    def log_kept(self, values: Values, released: Any) -> Any:
        """log density of all measured values; traceable. `released` is what the method of that name returns."""
        r, scale = released
        mean, root = self.moments(values)
        lower = jnp.linalg.cholesky(self._covariance(root, scale))
        z = jax.scipy.linalg.solve_triangular(lower, r - self.matrix @ mean, lower=True)
        return -0.5 * z @ z - jnp.sum(jnp.log(jnp.diag(lower))) - 0.5 * len(z) * np.log(2.0 * np.pi)

    def completed(self, values: Values, released: Any, fresh: tuple[Any, Any]) -> Any:
        """The statistic given its measurements, from standard normal numbers for statistic and noise; traceable."""
        r, scale = released
        mean, root = self.moments(values)
        s = mean + root @ fresh[0]
        off = r - self.matrix @ s - scale * fresh[1]
        return (s + root @ (root.T @ (self.matrix.T @ self._solved(root, scale, off)))).reshape(
            self.model.shape(self.name)
        )

    def given(self, values: Values, released: Any) -> tuple[Any, Any]:
        """Mean and covariance of the statistic's entries given its measurements; traceable."""
        r, scale = released
        mean, root = self.moments(values)
        cross = self.matrix @ root @ root.T
        gain = self._solved(root, scale, cross).T
        left = jnp.eye(len(mean)) - gain @ self.matrix
        covariance = left @ root @ root.T @ left.T + (gain * scale**2) @ gain.T
        return mean + gain @ (r - self.matrix @ mean), covariance

    def _covariance(self, root: Any, scale: Any) -> Any:
        measured = self.matrix @ root
        return measured @ measured.T + jnp.diag(scale**2)

    def _solved(self, root: Any, scale: Any, right: Any) -> Any:
        return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(self._covariance(root, scale)), True), right)

    def drawn(self, rng: np.random.Generator, given: Mapping[str, Array], rows: int) -> Array:
        """One draw of the statistic given its measurements for each row of its parents."""
        fresh = (rng.standard_normal((rows, self.matrix.shape[1])), rng.standard_normal((rows, len(self.matrix))))
        key = ("measured normal", self.name, tuple(self.measurements))
        program = self.model.compiled.setdefault(key, Compiled(lambda: jax.vmap(self.completed, in_axes=(0, None, 0))))
        with double():
            return np.asarray(program(given, self.released(), fresh))


def _scale_of(mechanism: Mechanism) -> Any:
    assert isinstance(mechanism, Gaussian)
    return mechanism.scale
