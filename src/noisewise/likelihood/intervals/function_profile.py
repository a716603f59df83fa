"""Profile-likelihood intervals of a function of the parameters: l_g(c) is the largest likelihood where g is c.

    {c: 2 (l_max - max {l(theta): g(theta) = c}) <= chi-square quantile}

Each maximum is found by sequential quadratic programming, in coordinates in which the likelihood is about round, and
counts only if its gradient is a multiple of that of g there (Lagrange). Derivation: docs/derivations/likelihood.md.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.errors import InferenceError, refusal
from noisewise.likelihood.intervals.scalar_interval import Interval
from noisewise.likelihood.observed import Observed, positive_inverse
from noisewise.model import derived
from noisewise.numerics import Array, double

NEVER = 1e10
"""The fall of the log likelihood, by convention, where it cannot be computed."""
SLOPE = 1e-4
"""Most that may be left of the gradient, in standard errors: the maximum is then wrong by half its square."""


class Quantity:
    """A function g of the parameters with its gradient, in coordinates z: the top of the likelihood is z = 0."""

    def __init__(self, who: str, observed: Observed, function: Callable[..., Any]) -> None:
        self.observed = observed
        point = observed.coordinates.values(observed.free)
        (takes,) = derived.arguments(who, {"function": function}, point).values()
        self.label = _name(function, takes)
        first = derived.value_at(who, "function", function, {name: point[name] for name in takes})
        if first.ndim or first.dtype.kind == "b":
            advice = "Give a function with one number as its value, such as lambda p1, p2: p1 - p2."
            raise refusal(who, "name", "must be one number, where it is a function", first.tolist(), advice)
        self.root = np.linalg.cholesky(positive_inverse(observed.curvature(observed.free)))

        def at(free: Any) -> Any:
            values = observed.coordinates.constrained(free)
            return jnp.asarray(function(**{name: values[name] for name in takes}), float)

        self._both = jax.jit(jax.value_and_grad(at))
        try:
            self.estimate, slope = self.at(np.zeros(len(self.root)))
        except derived.UNTRACEABLE:
            advice = "Write it in jax.numpy, without if on values."
            raise refusal(who, "name", "must be a function that JAX can differentiate", self.label, advice) from None
        self.error = float(np.linalg.norm(slope))
        """Standard error by the delta method: in these coordinates the information is the identity."""
        if not np.isfinite(self.estimate) or not 0.0 < self.error < np.inf:
            rule = "must be finite, and change with the parameters, at the estimate"
            raise refusal(who, "name", rule, self.estimate, "Ask for it on another scale.")

    def free(self, z: Array) -> Array:
        """Free coordinates of the parameters."""
        return self.observed.free + self.root @ z

    def at(self, z: Array) -> tuple[float, Array]:
        """g, and its gradient."""
        with double():
            value, slope = self._both(jnp.asarray(self.free(z)))
        return float(value), self.root.T @ np.asarray(slope)

    def fall(self, z: Array) -> tuple[float, Array]:
        """By how much the log likelihood is below its top, and the gradient of that."""
        value, slope = self.observed.at(self.free(z))
        if not np.isfinite(value):
            return NEVER, np.zeros(len(z))
        return self.observed.top - value, -(self.root.T @ slope)

    def profile(self, c: float, start: Array) -> tuple[float, Array]:
        """The least fall where g is c, and where that is."""
        from scipy.optimize import minimize

        meets = {
            "type": "eq",
            "fun": lambda z: (self.at(z)[0] - c) / self.error,
            "jac": lambda z: self.at(z)[1] / self.error,
        }
        for begin in (start, np.zeros_like(start)):
            z = minimize(
                self.fall, begin, jac=True, constraints=meets, method="SLSQP", options={"ftol": 1e-14, "maxiter": 500}
            ).x
            if self._is_maximum(c, z):
                fall = self.fall(z)[0]
                self.observed.refuse_higher(self.free(z), self.observed.top - fall)
                return fall, z
        raise InferenceError(
            f"no maximum of the likelihood was found where {self.label} is {c:.6g}: perhaps no "
            "parameters give this value. Use the bootstrap, or ask for the function on another scale.",
            who="profile_interval",
        )

    def _is_maximum(self, c: float, z: Array) -> bool:
        """Whether g is c there, and the gradient of the likelihood a multiple of that of g."""
        if not np.all(np.isfinite(z)):
            return False
        (value, along), (fall, slope) = self.at(z), self.fall(z)
        left = slope - along * (along @ slope) / max(float(along @ along), 1e-300)
        return fall < NEVER and abs(value - c) < 1e-8 * self.error and float(np.linalg.norm(left)) < SLOPE


def function_interval(
    who: str, observed: Observed, function: Callable[..., Any], level: float, most: float
) -> Interval:
    """Ends on either side of the estimate where twice the fall first exceeds `most`; steps outwards double."""
    quantity = Quantity(who, observed, function)
    ends = [_end(quantity, side, most) for side in (-1.0, 1.0)]
    said = [
        f"The {name} end is unbounded: the release does not rule out any such value."
        for name, (_, kind) in zip(("low", "high"), ends, strict=True)
        if kind == "unbounded"
    ]
    (low, low_end), (high, high_end) = ends
    return Interval(quantity.label, "profile likelihood", level, low, high, low_end, high_end, " ".join(said))


def _end(quantity: Quantity, side: float, most: float) -> tuple[float, str]:
    from scipy.optimize import brentq

    latest = np.zeros(len(quantity.root))  # the last maximum: a warm start for the next

    def criterion(c: float) -> float:
        fall, latest[:] = quantity.profile(c, latest)
        return 2.0 * fall - most

    inside = quantity.estimate
    for doubling in range(40):
        outside = quantity.estimate + side * quantity.error * 2.0**doubling
        if criterion(outside) > 0.0:
            root = float(brentq(criterion, inside, outside, xtol=1e-9 * quantity.error, rtol=1e-13))
            return root, "crossing"
        inside = outside
    return side * np.inf, "unbounded"


def _name(function: Callable[..., Any], takes: tuple[str, ...]) -> str:
    name = getattr(function, "__name__", "<lambda>")
    return name if name.isidentifier() else f"the function of {', '.join(takes)}"
