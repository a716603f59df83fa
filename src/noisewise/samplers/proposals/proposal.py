"""Proposals for the parameters: the prior, the user's own laws, or a mixture of Student laws fitted to pilot draws.

Each gives parameter values with log pi0(theta) - log g(theta). The proposal g keeps a share of the prior, so that no
weight is more than 1/share times what it would be from the prior. Derivation: docs/derivations/importance.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import Distribution

from noisewise import checks
from noisewise.errors import refusal
from noisewise.inference.blocks import Columns
from noisewise.model import Model
from noisewise.model.atoms import has_atoms
from noisewise.model.coordinates import Space
from noisewise.model.graph import as_function, dependencies, ordered
from noisewise.model.law import Law, log_density
from noisewise.numerics import Array, Compiled, double
from noisewise.numerics.tracing import in_rows, seen

Poll = Callable[[], None]

LEAST_SHARE = 0.1
FAINTEST = -700.0
"""log pi0 / g below which a weight counts as zero: heavy tails reach where nothing can be simulated."""


class Proposal(Protocol):
    """A law of the parameters to draw candidates from."""

    @property
    def share(self) -> float:
        """The prior's share of it."""

    def __call__(self, rng: np.random.Generator, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """Parameter values by name, and log pi0 - log g of each row (-inf off the prior's support)."""


class Proposing(Protocol):
    """Settings of a sampler that draws its parameters from a proposal."""

    @property
    def proposal(self) -> Any:
        """None for the prior, "adapted", or laws by parameter."""

    @property
    def prior_share(self) -> float:
        """The prior's share in an adapted or given proposal."""


def made_once(model: Model, key: Any, make: Callable[[], Any]) -> Any:
    """What `make` gives, made once for a model and kept with its programs: another call traces and compiles nothing."""
    programs: dict[Any, Any] = model.compiled
    key = ("proposal", key)
    if key not in programs:
        programs[key] = make()
    return programs[key]


def space_of(model: Model) -> Space:
    """The model's unconstrained space."""
    space: Space = made_once(model, "space", lambda: Space(model))
    return space


def drawn_in_order(model: Model) -> list[str]:
    """The parameters, each after those it depends on."""
    return [name for name in model.order if name in model.parameters]


@dataclass(frozen=True)
class FromPrior:
    """The prior itself."""

    model: Model
    share: float = 1.0

    def __call__(self, rng: np.random.Generator, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """Draws of the prior; every ratio is one."""
        return self.model.draw(rng, drawn_in_order(self.model), rows, {}, poll), np.zeros(rows)


def blend(rng: np.random.Generator, model: Model, rows: int, share: float, poll: Poll) -> tuple[Array, Columns]:
    """Which rows come from the prior (each with probability `share`, independently), and their values.

    The prior is drawn in batches of one size, so that nothing is compiled anew, and at least one row of it is there.
    """
    chosen = np.flatnonzero(rng.random(rows) < share)
    batch = min(rows, max(1, math.ceil(1.25 * share * rows)))
    names = drawn_in_order(model)
    parts = [model.draw(rng, names, batch, {}, poll) for _ in range(max(1, -(-len(chosen) // batch)))]
    return chosen, {name: np.concatenate([part[name] for part in parts]) for name in names}


def mixed_with_prior(
    values: Columns, prior: Columns, chosen: Array, log_gain: Array, share: float
) -> tuple[Columns, Array]:
    """Put the prior's rows in place; log pi0/g from log_gain = log q - log pi0, for g = share pi0 + (1 - share) q.

    Rows that q put outside the prior's support, or where the prior is below exp(-700) of g, have weight zero; they get
    a value that can be simulated from.
    """
    log_ratio = -np.logaddexp(math.log(share), math.log1p(-share) + log_gain)
    log_ratio[log_ratio < FAINTEST] = -np.inf
    outside = np.flatnonzero(log_ratio == -np.inf)
    placed: Columns = {}
    for name, column in prior.items():
        whole = np.array(values[name])
        whole[outside] = column[0]
        whole[chosen] = column[: len(chosen)]
        placed[name] = whole
    return placed, log_ratio


# The user's own laws -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """share * prior + (1 - share) * the user's laws; parameters without one follow the prior given the others."""

    model: Model
    laws: dict[str, Law]
    order: tuple[str, ...]
    share: float
    density: Compiled = field(compare=False)
    priors: dict[str, Compiled] = field(compare=False)
    """Prior densities of those proposed parameters that other parameters are drawn given."""

    def __call__(self, rng: np.random.Generator, rows: int, poll: Poll) -> tuple[Columns, Array]:
        """Draws of the defensive mixture with their density ratios."""
        chosen, prior = blend(rng, self.model, rows, self.share, poll)
        values: Columns = {}
        outside = np.zeros(rows, bool)
        for name in self.order:
            if name in self.laws:
                values[name] = np.array(self.laws[name].draw(rng, values, rows))
                outside |= self._moved_inside(name, values, prior)
            else:
                values[name] = np.array(self.model.draw(rng, [name], rows, values, poll)[name])
        outside[chosen] = False
        for name, column in prior.items():
            values[name][chosen] = column[: len(chosen)]
        with double():
            log_gain = np.array(self.density(values))
        log_gain[outside] = np.inf
        return mixed_with_prior(values, prior, chosen, log_gain, self.share)

    def _moved_inside(self, name: str, values: Columns, prior: Columns) -> Array:
        """Rows off the prior's support, of weight zero: they get a value given which other parameters can be drawn."""
        if name not in self.priors:
            return np.zeros(len(values[name]), bool)
        with double():
            off = ~(np.asarray(self.priors[name](values)) > -np.inf)
        values[name][off] = prior[name][0]
        return off


def given_proposal(who: str, model: Model, proposed: Mapping[str, Any], share: float) -> Given:
    """The user's laws, checked against the model."""
    key = (*((name, id(law)) for name, law in proposed.items()), share)
    # The laws are kept too, so that their ids stay theirs.
    laws_and_proposal = made_once(model, key, lambda: (dict(proposed), _given_proposal(who, model, proposed, share)))
    proposal: Given = laws_and_proposal[1]
    return proposal


def _given_proposal(who: str, model: Model, proposed: Mapping[str, Any], share: float) -> Given:
    edges: dict[str, tuple[str, ...]] = {}
    functions: dict[str, Callable[..., Distribution]] = {}
    for name, body in proposed.items():
        what = f"{who}.proposal['{name}']"
        if name not in model.parameters:
            rule = "must name parameters of the model"
            raise refusal(who, "proposal", rule, name, checks.nearest(name, model.parameters))
        functions[name] = as_function(what, body)
        edges[name] = dependencies(what, functions[name])
        for parent in edges[name]:
            if parent not in model.parameters:
                advice = checks.nearest(parent, model.parameters)
                raise refusal(what, parent, "must be a parameter of the model", parent, advice)
    order = ordered(f"{who}.proposal", {name: edges.get(name, model.parents(name)) for name in model.parameters})
    known = {name: jax.ShapeDtypeStruct(model.shape(name), model.dtype(name)) for name in model.parameters}
    laws: dict[str, Law] = {}
    for name, function in functions.items():
        what = f"{who}.proposal['{name}']"
        laws[name] = Law(what, function, edges[name], {parent: known[parent] for parent in edges[name]})
        struct, wanted = laws[name].struct, known[name]
        if struct.shape != wanted.shape or struct.dtype != wanted.dtype:
            rule = f"must give values like the prior's, of shape {wanted.shape} and type {wanted.dtype}"
            raise refusal(what, "law", rule, f"shape {struct.shape}, type {struct.dtype}", "Change the law.")
        if law_has_atoms(laws[name], known) or law_has_atoms(model.law(name), known):
            rule = "must have a density, as must the prior"
            raise refusal(what, "law", rule, "a Delta law", "Leave this parameter to its prior.")
    density = Compiled(lambda: jax.vmap(_log_gain(model, laws)))
    return Given(model, laws, tuple(order), share, density, _followed(model, laws, list(order)))


def _followed(model: Model, laws: dict[str, Law], order: list[str]) -> dict[str, Compiled]:
    """Prior densities of proposed parameters that others are drawn given, where their own parents are drawn by then."""
    names = {parent for name in model.parameters if name not in laws for parent in model.parents(name)} & set(laws)
    known = [name for name in names if set(model.parents(name)) <= set(order[: order.index(name)])]
    return {name: Compiled(partial(jax.vmap, partial(_density, model.law(name), name))) for name in known}


def _density(law: Law, name: str, values: Any) -> Any:
    return log_density(law.function(**{parent: values[parent] for parent in law.parents}), values[name])


def _log_gain(model: Model, laws: dict[str, Law]) -> Callable[[Any], Any]:
    """log q - log pi0 at one value of the parameters; parameters without a law of their own cancel."""

    def log_gain(values: Any) -> Any:
        log_q = sum(_density(law, name, values) for name, law in laws.items())
        log_prior = sum(_density(model.law(name), name, values) for name in laws)
        return jnp.where(log_prior == -jnp.inf, jnp.inf, log_q - log_prior)

    return log_gain


def law_has_atoms(law: Law, known: Mapping[str, Any]) -> bool:
    """Whether a law of real numbers gives some of them positive probability, so that it has no density."""
    rows = in_rows({name: known[name] for name in law.parents})
    return seen(lambda values: has_atoms(law.function(**values)), rows) and not law.form.discrete


# Settings ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NotKept:
    """A law that a file describes but cannot restore: functions are never read from files."""

    text: str


def checked_proposal(who: str, proposal: Any) -> Any:
    """`proposal` as a setting: None, "adapted", or a dict of laws (plain data becomes laws again)."""
    if proposal is None or (isinstance(proposal, str) and proposal == "adapted"):
        return proposal
    advice = "Give None for the prior, 'adapted', or for example {'theta': dist.Gamma(30.0, 1.0)}."
    if not isinstance(proposal, Mapping) or not proposal:
        raise refusal(who, "proposal", "must be None, 'adapted' or a dict of laws", proposal, advice)
    laws = {name: _law_from(law) for name, law in proposal.items()}
    for name, law in laws.items():
        if not isinstance(law, NotKept):
            as_function(f"{who}.proposal['{name}']", law)
    return laws


def as_data(proposal: Any) -> Any:
    """A proposal as plain data: laws of numbers by their fields, anything else by a description."""
    if not isinstance(proposal, Mapping):
        return proposal
    return {name: _data_of(law) for name, law in proposal.items()}


def _data_of(law: Any) -> dict[str, Any]:
    if isinstance(law, NotKept):
        return {"text": law.text}
    if not isinstance(law, Distribution):
        return {"text": f"function of ({', '.join(dependencies('proposal', law))})"}
    kind = type(law)
    names = [name for name in kind.arg_constraints if name in vars(law)]
    fields = {name: np.asarray(vars(law)[name]).tolist() for name in names}
    try:
        rebuilt = kind(**{name: np.asarray(value) for name, value in fields.items()})
        same = rebuilt.shape() == law.shape() and getattr(dist, kind.__name__, None) is kind
    except Exception:  # a law made from more than its fields
        same = False
    return {"law": kind.__name__, "fields": fields} if same else {"text": kind.__name__}


def _law_from(entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    if "text" in entry:
        return NotKept(str(entry["text"]))
    kind = getattr(dist, str(entry.get("law")), None)
    if not (isinstance(kind, type) and issubclass(kind, Distribution)):
        raise refusal("proposal", "law", "must be a law of NumPyro", entry, "For example dist.Gamma(30.0, 1.0).")
    return kind(**{name: np.asarray(value) if np.ndim(value) else value for name, value in entry["fields"].items()})


def unfit(model: Model, proposal: Any) -> str | None:
    """Why the proposal does not go with the model, as the end of a sentence."""
    if proposal == "adapted":
        known = {name: jax.ShapeDtypeStruct(model.shape(name), model.dtype(name)) for name in model.parameters}
        for name in model.parameters:
            if made_once(model, ("atoms", name), partial(law_has_atoms, model.law(name), known)):
                return f"cannot adapt: the prior of '{name}' has atoms, so it has no density to propose by"
        try:
            space_of(model)
        except NotImplementedError as error:
            return f"cannot adapt: a prior's support has no unconstrained coordinates ({error})"
    if isinstance(proposal, Mapping):
        for name, law in proposal.items():
            if isinstance(law, NotKept):
                return f"needs its proposal for '{name}' again: files keep no functions ({law.text})"
    return None


def checked_share(who: str, share: Any) -> float:
    """The prior's share of a proposal, at least 0.1."""
    advice = "The default, 0.1, keeps every weight below ten times the prior's own."
    number = checks.positive_number(who, "prior_share", share, advice)
    if not LEAST_SHARE <= number < 1.0:
        raise refusal(who, "prior_share", "must be at least 0.1 and below 1", share, advice)
    return number
