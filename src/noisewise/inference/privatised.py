"""The law of a release with its confidential statistic integrated out, as a NumPyro distribution.

    numpyro.sample("released", nw.Privatised(dist.Poisson(rate), nw.Laplace(scale=2.0)), obs=37.4)

in any NumPyro model: its density is the likelihood of the parameters. Derivation: docs/derivations/conditional.md.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from noisewise import checks
from noisewise.errors import refusal
from noisewise.inference.conditional import entry, noise
from noisewise.mechanisms import Exact, Mechanism, Product, RandomizedResponse
from noisewise.mechanisms.processed import shapes
from noisewise.mechanisms.wrapper import Wrapper

_ADVICE = "Write the statistic as nw.Model(...) and use nw.sample, whose samplers need no such integral."


class _Numbers(constraints.Constraint):
    """Finite numbers, or NaN for what was withheld."""

    def __call__(self, x: Any) -> Any:
        return ~jnp.isinf(x)

    def tree_flatten(self) -> Any:
        return (), ((), {})

    @property
    def is_discrete(self) -> bool:
        return False


class _Integers(_Numbers):
    """Whole numbers, of either sign."""

    def __call__(self, x: Any) -> Any:
        return (jnp.floor(x) == x) & ~jnp.isinf(x)

    @property
    def is_discrete(self) -> bool:
        return True


class Privatised(Distribution):
    """What `mechanism` releases of a statistic with the given `law`: m(r) = integral of law(s) mechanism(r | s) ds.

    `log_prob` is exact: a closed form where there is one, else a sum or an integral; `neglected` says what these may
    have left out. Entries of the statistic must be independent, and the mechanism must act on each of them alone.
    `window` sets how many values a sum over whole numbers has, where the number chosen by default will not do.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    pytree_data_fields = ("law", "mechanism")
    pytree_aux_fields = ("_route",)

    def __init__(
        self, law: Distribution, mechanism: Mechanism, *, window: int | None = None, validate_args: bool | None = None
    ) -> None:
        who = "Privatised"
        if not isinstance(law, Distribution):
            raise refusal(who, "law", "must be a NumPyro distribution", law, "Give, for example, dist.Poisson(rate).")
        if not isinstance(mechanism, Mechanism):
            advice = "Give, for example, nw.Laplace(scale=2.0)."
            raise refusal(who, "mechanism", "must be a mechanism", mechanism, advice)
        if window is not None:
            window = checks.integer(who, "window", window, least=2, advice="Give how many values a sum has.")
        objection = entry.unfit(law, mechanism)
        if objection is not None:
            rule = f"must be a statistic that can be integrated out entry by entry; {objection}"
            raise refusal(who, "law", rule, type(law).__name__, _ADVICE)
        try:
            shape = np.broadcast_shapes(law.shape(), *(own for _, own in shapes(mechanism)))
        except ValueError:
            rule = f"must have parameters that broadcast to the shape {law.shape()} of the law"
            raise refusal(who, "mechanism", rule, mechanism, "Give one, or one per entry.") from None
        self.law, self.mechanism = law, mechanism
        self._route = entry.route(law, mechanism, window)
        batch = shape[: len(shape) - law.event_dim]
        super().__init__(batch, law.event_shape, validate_args=validate_args)

    @property
    def support(self) -> Any:
        """Whole numbers, numbers, or numbers and NaN where values may be withheld."""
        mechanism = self.mechanism
        if isinstance(mechanism, Exact):
            return self.law.support
        if isinstance(mechanism, RandomizedResponse):
            highest = mechanism.n if mechanism.on == "ones" else len(mechanism.channel[0]) - 1
            one: Any = constraints.integer_interval(0, highest)
        elif mechanism.measure == "lattice":
            one = _Integers()
        elif isinstance(mechanism, (Wrapper, Product)):
            one = _Numbers()
        else:
            one = constraints.real
        return constraints.independent(one, self.event_dim) if self.event_dim else one

    @validate_sample
    def log_prob(self, value: Any) -> Any:
        """log density of the release, with the statistic integrated out."""
        # Of a sum the upper bound is used, which is the same where nothing is missing. A sum cut short would drive
        # chains away, unseen, from parameters at which it is too short.
        return self._by_event(entry.log_bound(self.law, self.mechanism, self._broadcast(value), self._route))

    def neglected(self, value: Any) -> Any:
        """What `log_prob` may have left out, as a share of the density: a bound for sums, an estimate for integrals."""
        shares = self._marginal(value).share
        return jnp.max(shares, axis=tuple(range(-self.event_dim, 0))) if self.event_dim else shares

    def _marginal(self, value: Any) -> entry.Marginal:
        return entry.log_marginal(self.law, self.mechanism, self._broadcast(value), self._route)

    def _broadcast(self, value: Any) -> Any:
        """The value in the law's shape; by NumPy where it is known while a program is traced: it stays known."""
        xp = jnp if isinstance(value, jax.core.Tracer) else np
        return xp.broadcast_to(value, jnp.broadcast_shapes(jnp.shape(value), self.shape()))

    def _by_event(self, log_density: Any) -> Any:
        return jnp.sum(log_density, axis=tuple(range(-self.event_dim, 0))) if self.event_dim else log_density

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """A simulated release: the statistic from its law, then noise."""
        objection = noise.unfit(self.mechanism)
        if objection is not None:
            raise refusal("Privatised.sample", "mechanism", objection, self.mechanism, _ADVICE)
        first, second = jax.random.split(key)
        shape = (*sample_shape, *self.shape())
        law = self.law.expand(self.batch_shape) if self.law.batch_shape != self.batch_shape else self.law
        return noise.released(second, self.mechanism, jnp.broadcast_to(law.sample(first, sample_shape), shape))

    def confidential(self, key: Any, value: Any) -> Any:
        """The statistic given its release: exact draws, one for every entry of `value` and of the law."""
        shape = jnp.broadcast_shapes(jnp.shape(value), self.shape())
        return self.drawn(jax.random.uniform(key, shape, jnp.result_type(float)), jnp.broadcast_to(value, shape))

    def drawn(self, uniform: Any, value: Any) -> Any:
        """`confidential` by inversion of uniform variates of the same shape as `value`."""
        return entry.draw(uniform, self.law, self.mechanism, value, self._route)
