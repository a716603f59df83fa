"""NumPyro laws beneath their wrappers: what is expanded, transformed, mixed or made independent, and by what."""

from collections.abc import Iterator
from typing import Any

from numpyro.distributions import Distribution
from numpyro.distributions.distribution import ExpandedDistribution, Independent, TransformedDistribution

from noisewise.model.variates import variate_for


def peel(law: Distribution) -> tuple[Distribution, tuple[int, ...], list[Any]]:
    """The innermost law, the shape of one draw of it, and the transforms from it to `law`."""
    shape = law.shape()
    transforms: list[Any] = []
    while variate_for(law) is None:
        if isinstance(law, TransformedDistribution):
            transforms = [*law.transforms, *transforms]
            lead = shape[: len(shape) - len(law.event_shape)]
            shape = lead + law.base_dist.event_shape
            law = law.base_dist
        elif isinstance(law, (Independent, ExpandedDistribution)):
            law = law.base_dist
        else:
            break
    return law, shape, transforms


def kind_of(law: Distribution) -> str:
    """The name of the NumPyro class beneath the wrappers, under which `families` has its facts.

    Empty where the law is transformed, or of a class that is not NumPyro's own.
    """
    base, _, transforms = peel(law)
    return "" if transforms or not type(base).__module__.startswith("numpyro.") else type(base).__name__


def laws_within(law: Distribution) -> Iterator[Distribution]:
    """`law` and every law inside it: what a wrapper wraps, what a mixture mixes."""
    yield law
    for value in vars(law).values():
        for inner in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(inner, Distribution):
                yield from laws_within(inner)


def unchecked(law: Distribution) -> Distribution:
    """`law`, without NumPyro's validation of values, here and in every law inside."""
    for part in laws_within(law):
        part._validate_args = False
    return law
