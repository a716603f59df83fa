"""Named functions as a graph: what a function depends on, and an order in which all can be computed."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from numpyro.distributions import Distribution

from noisewise.errors import refusal
from noisewise.model.law import constant_law

Poll = Callable[[], None]
"""Called now and then by long work: it raises when the run is over."""


def function_of(names: Iterable[str], run: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    """`run` of values by name, as a function that shows these names for its arguments."""

    def function(**values: Any) -> Any:
        return run(values)

    kind = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    function.__signature__ = signature  # type: ignore[attr-defined]  # as `inspect` looks for it
    return function


def dependencies(who: str, function: Callable[..., Any]) -> tuple[str, ...]:
    """The names `function` depends on: its arguments without a default."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise refusal(who, "function", "must show its argument names", function, "Use a def or a lambda.") from None
    for parameter in parameters:
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD and parameter.kind is not parameter.KEYWORD_ONLY:
            rule = "must name every argument (no *args, **kwargs or positional-only)"
            raise refusal(who, "function", rule, str(parameter), "Its argument names are what it depends on.")
    return tuple(p.name for p in parameters if p.default is p.empty)


def as_function(who: str, law: Any) -> Callable[..., Any]:
    """`law` as a function: a distribution becomes one without arguments, a function stays itself."""
    if isinstance(law, Distribution):
        return constant_law(law, who)
    if isinstance(law, type) or not callable(law):
        rule = "must be a NumPyro distribution or a function that returns one"
        raise refusal(who, "law", rule, law, "For example dist.Gamma(25.0, 1.0).")
    return law


def ordered(who: str, edges: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Names so that each comes after those it depends on (names not in `edges` are ignored); a cycle is refused.

    The order decides the draws of a seed, so it is made here, depth first; `graphlib` promises none.
    """
    result: list[str] = []
    state: dict[str, str] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if state.get(name) == "done" or name not in edges:
            return
        if name in path:
            cycle = " -> ".join([*path[path.index(name) :], name])
            raise refusal(who, name, "must not depend on itself", cycle, "Break the cycle.")
        for parent in edges[name]:
            visit(parent, (*path, name))
        state[name] = "done"
        result.append(name)

    for name in edges:
        visit(name, ())
    return result
