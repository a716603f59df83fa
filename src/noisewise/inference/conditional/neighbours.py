"""Laws of counts whose neighbouring probabilities have a known ratio, to all digits where they themselves have none.

The ratio is that of Katz's laws, pi(k + 1) / pi(k) = x (c + d k) / (k + 1), or a product of two such factors. A factor
moves one way only in k. Derivation: docs/derivations/conditional.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import (
    BinomialLogits,
    BinomialProbs,
    Distribution,
    GammaPoisson,
    GeometricLogits,
    GeometricProbs,
    Poisson,
)


@dataclass(frozen=True)
class Katz:
    """A family of Katz's: its parameters, its law, x and c, which are functions of these and of the largest value, d.

    They are the Poisson, binomial, negative binomial and geometric laws (Katz 1965).
    """

    parameters: tuple[str, ...]
    law: Callable[..., Distribution]
    log_x: Callable[..., Any]
    c: Callable[..., Any]
    d: int

    def of(self, law: Any) -> tuple[Any, ...]:
        """The arguments of the functions, of a law of this family."""
        return (*(getattr(law, name) for name in self.parameters), law.total_count if self.d < 0 else 0)

    def log_ratio(self, law: Any, k: Any) -> Any:
        """log of pi(k + 1) / pi(k), for k in the support."""
        arguments = self.of(law)
        return self.log_x(*arguments) + jnp.log(self.c(*arguments) + self.d * k) - jnp.log(k + 1.0)

    def log_limit(self, law: Any) -> Any:
        """log of the ratio far out, or at the support's end; -inf where it falls to zero."""
        return self.log_x(*self.of(law)) + (0.0 if self.d > 0 else -jnp.inf)


_POISSON = Katz(
    ("rate",), lambda rate, _: Poisson(rate), lambda rate, _: jnp.log(rate), lambda rate, _: jnp.ones_like(rate), 0
)
_NEGATIVE_BINOMIAL = Katz(
    ("concentration", "rate"),
    lambda concentration, rate, _: GammaPoisson(concentration, rate),
    lambda concentration, rate, _: -jnp.log1p(rate),
    lambda concentration, rate, _: concentration,
    1,
)
FAMILIES = {
    "Poisson": _POISSON,
    "BinomialProbs": Katz(
        ("probs",),
        lambda probs, n: BinomialProbs(probs, n),
        lambda probs, n: jnp.log(probs) - jnp.log1p(-probs),
        lambda probs, n: n * jnp.ones_like(probs),
        -1,
    ),
    "BinomialLogits": Katz(
        ("logits",),
        lambda logits, n: BinomialLogits(logits, n),
        lambda logits, n: logits,
        lambda logits, n: n * jnp.ones_like(logits),
        -1,
    ),
    **dict.fromkeys(
        ("GammaPoisson", "NegativeBinomial2", "NegativeBinomialProbs", "NegativeBinomialLogits"), _NEGATIVE_BINOMIAL
    ),
    "GeometricProbs": Katz(
        ("probs",),
        lambda probs, _: GeometricProbs(probs),
        lambda probs, _: jnp.log1p(-probs),
        lambda probs, _: jnp.ones_like(probs),
        1,
    ),
    "GeometricLogits": Katz(
        ("logits",),
        lambda logits, _: GeometricLogits(logits),
        lambda logits, _: -jax.nn.softplus(logits),
        lambda logits, _: jnp.ones_like(logits),
        1,
    ),
}
"""By the name of the class."""


@dataclass(frozen=True)
class Factors:
    """The logs of the factors that make the ratio: for a step up from k, and for the last step up of all."""

    at: Callable[[Any, Any], tuple[Any, ...]]
    last: Callable[[Any], tuple[Any, ...]]


def _of_katz(family: Katz) -> Factors:
    return Factors(lambda law, k: (family.log_ratio(law, k),), lambda law: (family.log_limit(law),))


def _beta_binomial(law: Any, k: Any) -> tuple[Any, ...]:
    left = law.total_count - k
    return (
        jnp.log(left) - jnp.log(law.concentration0 + left - 1.0),
        jnp.log(law.concentration1 + k) - jnp.log(k + 1.0),
    )


FACTORS = {
    **{kind: _of_katz(family) for kind, family in FAMILIES.items()},
    "BetaBinomial": Factors(_beta_binomial, lambda law: _beta_binomial(law, law.total_count - 1.0)),
}
"""By the name of the class."""
