"""Quantities computed from the draws of a posterior, or from a likelihood estimate."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noisewise.errors import refusal
from noisewise.model import derived

if TYPE_CHECKING:
    from noisewise.results.posterior import Posterior


def derive(posterior: "Posterior", functions: Mapping[str, Callable[..., Any]], dims: Any) -> "Posterior":
    """The posterior with a function of its draws under each name."""
    who = "Posterior.derive"
    if len(posterior) == 0:
        raise refusal(who, "posterior", "must hold draws", 0, posterior.message or "Draw first.")
    columns = derived.evaluated(who, functions, posterior.draws)
    draws = {**posterior.draws, **columns}
    takes = derived.arguments(who, functions, posterior.draws)
    shapes = {name: values.shape[1:] for name, values in draws.items()}
    axes = derived.axes_of(who, takes, shapes, posterior.axes, dims)
    return replace(posterior, draws=draws, derived=(*posterior.derived, *columns), axes=axes)
