"""A NumPyro model function read as prior and statistics: its sites become laws of the sites that they depend on.

The function is run up to a site with values in place of the sites before it; the distribution found there is that
site's law. What it depends on is seen in the traced program.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import Distribution
from numpyro.ops.pytree import PytreeTrace
from numpyro.primitives import Messenger

from noisewise import checks
from noisewise.errors import InputError, refusal
from noisewise.model.graph import function_of
from noisewise.numerics import Array, double
from noisewise.numerics.tracing import sources

WHO = "Model.from_numpyro"
_REFUSED = {
    "param": "is a param, which has no prior: give it one with numpyro.sample",
    "mutable": "is mutable: what it holds changes from run to run",
}


@dataclass(frozen=True)
class Parts:
    """The arguments of `Model`."""

    prior: dict[str, Callable[..., Any]]
    statistics: dict[str, Callable[..., Any]]
    dims: dict[str, tuple[str, ...]]
    derived: dict[str, Callable[..., Any]]


class _Found(Exception):
    """Carries the law of a site out of the function."""


class _Until(Messenger):
    """Runs a function up to a site."""

    def __init__(self, function: Callable[..., Any], site: str) -> None:
        super().__init__(function)
        self.site = site

    def process_message(self, message: dict[str, Any]) -> None:
        """Stop at the site."""
        if message["type"] == "sample" and message["name"] == self.site:
            raise _Found(message["fn"])


class _Flow(Messenger):
    """Refuses scan and cond by the name of a site inside them."""

    def postprocess_message(self, message: dict[str, Any]) -> None:
        """Look at what was traced inside; control flow without sites is a computation like any other."""
        if message["type"] != "control_flow":
            return
        for part in jax.tree.leaves(message["value"], is_leaf=lambda one: isinstance(one, PytreeTrace)):
            if isinstance(part, PytreeTrace) and part.trace:
                raise _refused(next(iter(part.trace)), "is drawn inside scan or cond: write its steps out")


def read(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], statistics: Any) -> Parts:
    """The parts of a NumPyro model function called with the given arguments."""
    if not callable(function):
        raise refusal(WHO, "function", "must be a NumPyro model function", function, "Give the function itself.")
    named = isinstance(statistics, Iterable) and not isinstance(statistics, (str, Mapping))
    if not named or not list(statistics):
        advice = 'Give statistics=["count"], the sites whose values were released with noise.'
        raise refusal(WHO, "statistics", "must be a list of names of sites", statistics, advice)

    # Copies: of arrays that it has met before, JAX may hold a 32-bit version.
    args, kwargs = jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, (args, kwargs))

    def model() -> Any:
        return function(*args, **kwargs)

    with double():
        trace = handlers.trace(_Flow(handlers.seed(model, jax.random.key(0)))).get_trace()
    _refuse(trace, list(statistics))
    sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
    values = {name: np.asarray(site["value"]) for name, site in sites.items()}
    laws = {}
    for index, name in enumerate(sites):
        before = dict(list(values.items())[:index])
        law = partial(_reach, model, name)
        laws[name] = _function(law, name, before, _parents(law, name, before))
    derived = {}
    for name in [name for name, site in trace.items() if site["type"] == "deterministic"]:
        value = partial(_value, model, name)
        derived[name] = _function(value, name, values, _parents(value, name, values))
    return Parts(
        {name: law for name, law in laws.items() if name not in statistics},
        {name: law for name, law in laws.items() if name in statistics},
        {name: axes for name, site in sites.items() if (axes := _axes(site))},
        derived,
    )


def _refuse(trace: Mapping[str, Any], statistics: list[Any]) -> None:
    """Refuse, by the name of its site, whatever cannot be a parameter, statistic or plate."""
    sites = [name for name, site in trace.items() if site["type"] == "sample"]
    for name in statistics:
        checks.known_name(WHO, "statistics", name, sites, "must be sites of the function")
    for name, site in trace.items():
        reason = _REFUSED.get(site["type"])
        if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
            reason = "is a plate that is subsampled: leave subsample_size out"
        if site["type"] == "sample" and type(site["fn"]).__name__ == "Unit":
            reason = "is a factor: it changes the density without drawing anything"
        elif site["type"] == "sample" and site["is_observed"] and name in statistics:
            reason = "is observed: call the function so that obs is None, and put its value in the release"
        elif site["type"] == "sample" and site["is_observed"]:
            reason = "is observed: name it in statistics, call the function with obs None, and release it by Exact()"
        elif (
            site["type"] == "sample" and site.get("scale") is not None and not np.all(np.asarray(site["scale"]) == 1.0)
        ):
            reason = "is scaled: its density counts to a power, and no draws have such a law"
        if reason is not None:
            raise _refused(name, reason)


def _refused(name: str, reason: str) -> InputError:
    return InputError(f"the site '{name}' {reason}.", who=WHO, advice="See docs/model-language.md.")


def _reach(model: Callable[[], Any], name: str, values: Mapping[str, Any]) -> Distribution:
    """The law of a site, given values of the sites before it."""
    run = handlers.substitute(handlers.seed(model, jax.random.key(0)), data=dict(values))
    try:
        _Until(run, name)()
    except _Found as found:
        law: Distribution = found.args[0]
        return law
    raise AssertionError(f"the function ended before the site '{name}'")


def _value(model: Callable[[], Any], name: str, values: Mapping[str, Any]) -> Any:
    """A deterministic site, given values of all sites that are drawn."""
    run = handlers.substitute(handlers.seed(model, jax.random.key(0)), data=dict(values))
    return jnp.asarray(handlers.trace(run).get_trace()[name]["value"])


def _parents(value_of: Callable[[Mapping[str, Any]], Any], name: str, before: Mapping[str, Array]) -> list[str]:
    """The earlier sites whose values enter the law, or the value, of a site."""
    try:
        with double():
            program = jax.make_jaxpr(lambda values: jax.tree.leaves(value_of(values)))(dict(before))
    except (jax.errors.ConcretizationTypeError, jax.errors.NonConcreteBooleanIndexError) as error:
        cause = f"the site '{name}' comes after control flow on values: {str(error).splitlines()[0]}"
        advice = "Write it with jnp.where, or as nw.Model(...)."
        raise InputError(f"{cause} {advice}", who=WHO, advice=advice) from None
    entering = set().union(*sources(program.jaxpr)) if program.jaxpr.outvars else set()
    in_order = sorted(before)  # as JAX lists the entries of a dict
    return [parent for parent in before if in_order.index(parent) in entering]


def _function(
    value_of: Callable[[Mapping[str, Any]], Any], name: str, before: Mapping[str, Array], parents: list[str]
) -> Callable[..., Any]:
    """The law, or value, of a site as a function of its parents; other sites keep their values of the first run."""
    function = function_of(parents, lambda values: value_of({**before, **values}))
    function.__name__ = name
    return function


def _axes(site: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a site's axes where all are plates; else nothing."""
    rank, event = np.ndim(site["value"]), site["fn"].event_dim
    names = {rank - event + frame.dim: frame.name for frame in site["cond_indep_stack"]}
    return tuple(names[axis] for axis in range(rank)) if rank and set(names) == set(range(rank)) else ()
