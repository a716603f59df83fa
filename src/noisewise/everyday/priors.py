"""Priors of everyday models: the defaults that a function states, and those the analyst gives in their place."""

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import Distribution

from noisewise import checks
from noisewise.errors import refusal
from noisewise.everyday.written import array
from noisewise.model.law import constant_law

Shapes = Mapping[str, tuple[int, ...]]


def with_given(who: str, default: Mapping[str, str], given: Any, shapes: Shapes | None = None) -> dict[str, str]:
    """Default priors as text, or in their place those that were given.

    `shapes` are the shapes of vector parameters, for which a given law of one number is repeated.
    """
    if given is None:
        return dict(default)
    if not isinstance(given, Mapping):
        raise refusal(who, "prior", "must be a dict of laws", given, 'Give prior={"mean": dist.Normal(50.0, 20.0)}.')
    for name in given:
        checks.known_name(who, "prior", name, default, "must name parameters of this model")
    return {
        name: text if name not in given else law(f"{who}.prior['{name}']", given[name], (shapes or {}).get(name, ()))
        for name, text in default.items()
    }


def law(who: str, given: Any, shape: tuple[int, ...] = ()) -> str:
    """A NumPyro law as the Python that makes it."""
    advice = "Give a law such as dist.Normal(0.0, 1.0); for functions, take print(model.code) and change it there."
    if not isinstance(given, Distribution):
        raise refusal(who, "law", "must be a NumPyro distribution", given, advice)
    text = _written(given)
    if text is None:
        raise refusal(who, "law", "must be one that can be written as code", type(given).__name__, advice)
    if shape and given.batch_shape == () and given.event_shape == ():
        text = f"{text}.expand({list(shape)})"
    constant_law(given, who)  # warns of arrays that were rounded to 32 bits before they came here
    return f"lambda: {text}" if "np.array" in text else text


def _written(given: Distribution) -> str | None:
    """A law as text that gives the same law back; None where this does not succeed."""
    kind = type(given).__name__
    if isinstance(given, dist.ExpandedDistribution):
        base = _written(given.base_dist)
        return base and f"{base}.expand({list(given.batch_shape)})"
    if isinstance(given, dist.Independent):
        base = _written(given.base_dist)
        return base and f"{base}.to_event({given.reinterpreted_batch_ndims})"
    arguments = [name for name in inspect.signature(type(given)).parameters if hasattr(given, name)]
    values = {name: getattr(given, name) for name in arguments if name != "validate_args"}
    texts = {name: _value(value) for name, value in values.items()}
    if getattr(dist, kind, None) is not type(given) or None in texts.values():
        return None
    try:
        again = type(given)(**values)
    except Exception:  # whatever its constructor makes of these arguments
        return None
    alike = all(getattr(again, name) == getattr(given, name) for name in ("__class__", "batch_shape", "event_shape"))
    leaves = [jax.tree.leaves(one) for one in (again, given)]
    same = alike and len(leaves[0]) == len(leaves[1]) and all(map(np.array_equal, *leaves))
    return f"dist.{kind}({', '.join(f'{name}={text}' for name, text in texts.items())})" if same else None


def _value(value: Any) -> str | None:
    if isinstance(value, Distribution):
        return _written(value)
    if isinstance(value, (int, float, np.ndarray, np.generic, jax.Array)):
        return array(value) if np.ndim(value) else repr(np.asarray(value).tolist())
    return None
