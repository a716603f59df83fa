"""The law of a release with its confidential statistic integrated out, in a PyMC model. Needs `noisewise[pymc]`.

    with pm.Model():
        rate = pm.Gamma("rate", 25.0, 1.0)
        Privatised("released", pm.Poisson.dist(rate), nw.Laplace(scale=5.0), observed=37.4)

The density is that of `noisewise.Privatised`, computed by JAX in 64 bits; PyTensor sees it as one operation with its
derivatives. Derivation: docs/derivations/conditional.md.
"""

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from noisewise.errors import refusal
from noisewise.inference import privatised
from noisewise.mechanisms import Mechanism
from noisewise.numerics import double

try:
    import pymc as pm
    import pytensor.tensor as pt
    from pytensor.gradient import DisconnectedType, disconnected_type, grad_undefined
    from pytensor.graph.basic import Constant
    from pytensor.link.jax.ops import JAXOp
except ImportError:
    advice = "Run pip install 'noisewise[pymc]'."
    raise refusal("noisewise.pymc", "pymc", "must be installed", None, advice) from None

__all__ = ["Privatised"]

_PROCESS = os.getpid()
LAWS: dict[str, Callable[..., dist.Distribution]] = {
    "bernoulli": lambda p: dist.BernoulliProbs(p),
    "beta": lambda a, b: dist.Beta(a, b),
    "beta_binomial": lambda n, a, b: dist.BetaBinomial(a, b, n),
    "binomial": lambda n, p: dist.BinomialProbs(p, n),
    "cauchy": lambda loc, scale: dist.Cauchy(loc, scale),
    "exponential": lambda scale: dist.Exponential(1.0 / scale),
    "gamma": lambda shape, scale: dist.Gamma(shape, 1.0 / scale),
    "gumbel": lambda loc, scale: dist.Gumbel(loc, scale),
    "halfcauchy": lambda scale: dist.HalfCauchy(scale),
    "halfnormal": lambda _, scale: dist.HalfNormal(scale),
    "invgamma": lambda shape, rate: dist.InverseGamma(shape, rate),
    "laplace": lambda loc, scale: dist.Laplace(loc, scale),
    "logistic": lambda loc, scale: dist.Logistic(loc, scale),
    "lognormal": lambda loc, scale: dist.LogNormal(loc, scale),
    "negative_binomial": lambda n, p: dist.GammaPoisson(n, p / (1.0 - p)),
    "normal": lambda loc, scale: dist.Normal(loc, scale),
    "pareto": lambda alpha, least: dist.Pareto(least, alpha),
    "poisson": lambda rate: dist.Poisson(rate),
    "t": lambda nu, loc, scale: dist.StudentT(nu, loc, scale),
    "uniform": lambda low, high: dist.Uniform(low, high),
    "weibull": lambda shape, scale: dist.Weibull(scale, shape),
}
"""NumPyro's distributions by the names of PyTensor's random variables: functions of PyTensor's parameters."""


def Privatised(name: str, law: Any, mechanism: Mechanism, *, observed: Any = None, **options: Any) -> Any:
    """What `mechanism` releases of a statistic with the given `law`, as a variable of a PyMC model.

    `law` is a distribution of PyMC, made by `.dist`. `observed` is the published value; `options` are those of every
    PyMC variable, such as `dims`.
    """
    who = "noisewise.pymc.Privatised"
    if not isinstance(mechanism, Mechanism):
        raise refusal(who, "mechanism", "must be a mechanism", mechanism, "Give, for example, nw.Laplace(scale=2.0).")
    op: Any = getattr(getattr(law, "owner", None), "op", None)
    if not hasattr(op, "dist_params") or op.name not in LAWS:
        kind = type(op).__name__ if op is not None else law
        advice = f"Give, for example, pm.Poisson.dist(rate). Known here: {', '.join(sorted(LAWS))}."
        raise refusal(who, "law", "must be a PyMC distribution that is known here, made by .dist", kind, advice)
    if observed is not None and not hasattr(observed, "owner") and np.any(np.isnan(np.asarray(observed, dtype=float))):
        advice = "PyMC takes NaN for a value to be imputed. For withheld values use nw.Privatised in NumPyro."
        raise refusal(who, "observed", "must have no NaN", observed, advice)
    make, parameters = LAWS[op.name], op.dist_params(law.owner)
    with numpyro.validation_enabled(False):  # refused here, whatever the parameters, where there is no such density
        whole = privatised.Privatised(make(*(jnp.ones(()) for _ in parameters)), mechanism).support.is_discrete
    if observed is None and not {"dims", "shape"} & set(options):
        options["shape"] = law.shape

    def logp(value: Any, *parameters: Any) -> Any:
        return _log_density(make, mechanism, value, parameters)

    def random(*parameters: Any, rng: np.random.Generator, size: Any = None) -> Any:
        return _simulate(make, mechanism, parameters, rng, size)

    kind = {"dtype": "int64" if whole else "float64", "signature": ",".join(["()"] * len(parameters)) + "->()"}
    return pm.CustomDist(name, *parameters, logp=logp, random=random, observed=observed, **kind, **options)


def _simulate(make: Any, mechanism: Mechanism, parameters: Any, rng: np.random.Generator, size: Any) -> Any:
    """A simulated release: the statistic by JAX, the noise by the mechanism itself."""
    key = jax.random.key(int(rng.integers(2**31)))
    with double():
        law = make(*(jnp.asarray(one, float) for one in parameters))
        law = law if size is None else law.expand(tuple(size))
        statistic = np.asarray(law.sample(key))
    return np.asarray(mechanism.sample(rng, statistic))


def _log_density(make: Any, mechanism: Mechanism, value: Any, parameters: Any) -> Any:
    """log density entry by entry, as a PyTensor operation on the parameters, broadcast to the shape of the entries.

    A value that is known is a constant of the operation: then sums may use a table of the noise.
    """
    known = np.asarray(value.data) if isinstance(value, Constant) else None
    value, *parameters = pt.broadcast_arrays(value, *parameters)
    inputs = [pt.cast(one, "float64") for one in (parameters if known is not None else [value, *parameters])]

    def log_prob(*inputs: Any) -> Any:
        released, given = (known, inputs) if known is not None else (inputs[0], inputs[1:])
        return privatised.Privatised(make(*given), mechanism, validate_args=False).log_prob(released)

    def with_slopes(*inputs: Any) -> Any:
        log_density, pull = jax.vjp(log_prob, *inputs)
        return log_density, *pull(jnp.ones_like(log_density))

    kind = value.type.clone(dtype="float64")
    return _Entries([one.type for one in inputs], [kind] * (1 + len(inputs)), with_slopes, name="privatised")(*inputs)[
        0
    ]


class _Entries(JAXOp):
    """A function of each entry with its derivatives: the first output is its value, each other a derivative."""

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        """Compute in 64 bits, whatever JAX is set to elsewhere; refused in a forked process."""
        if os.getpid() != _PROCESS:
            rule = "must not be fork: JAX does not work in forked processes"
            advice = "Give pm.sample cores=1, mp_ctx='spawn', or nuts_sampler='numpyro'."
            raise refusal("noisewise.pymc", "mp_ctx", rule, "fork", advice)
        with double():
            super().perform(node, inputs, outputs)

    def grad(self, inputs: Any, output_gradients: Any) -> Any:
        """The gradient of the value times the derivatives; second derivatives are not defined."""
        above, *others = output_gradients
        if any(not isinstance(one.type, DisconnectedType) for one in others):
            return [grad_undefined(self, i, one, "second derivatives") for i, one in enumerate(inputs)]
        if isinstance(above.type, DisconnectedType):
            return [disconnected_type() for _ in inputs]
        return [above * slope for slope in self(*inputs)[1:]]
