"""The analyst's model: priors, and how each confidential statistic arises from the parameters."""

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro
from numpyro.distributions import Distribution

from noisewise import checks
from noisewise.axes import Axes, Coords
from noisewise.errors import InputError, NoisewiseWarning, Place, refusal
from noisewise.frozen import FrozenDict
from noisewise.model import derived as derivation
from noisewise.model.from_numpyro import read
from noisewise.model.graph import Poll, as_function, dependencies, ordered
from noisewise.model.law import Law
from noisewise.model.layers import Integrated, Layer, layers_of
from noisewise.model.on_device.draws import on_accelerator, simulate
from noisewise.model.simulator import BoundSimulator, Simulator
from noisewise.model.total import BoundTotal, Total
from noisewise.model.wrappers import peel, unchecked
from noisewise.notebook import html_table
from noisewise.numerics import Array, Values, double

Node = Law | BoundTotal | BoundSimulator
TRIALS = 16
"""Draws tried of a law, when the model is made, before it is left untried."""
SKETCHED = 256
"""Draws among which some are looked for that are not beyond range."""


class Model:
    """Prior and statistics, by name.

    `prior`: each a proper NumPyro distribution, or a function of other parameters returning one.
    `statistics`: each a function of parameters and earlier statistics returning a distribution, a `Total`
    or a `Simulator`. Functions are written for one value of each argument, in `jax.numpy`; their argument
    names are what they depend on. The model knows nothing of privacy.

    `dims` names axes, `{"rate": ("county",)}`: labels that a released statistic has along an axis hold for everything
    here with an axis of that name. `coords` gives labels along axes that no released statistic has.

    `derived` names quantities computed from parameters and statistics, `{"difference": lambda p1, p2: p1 - p2}`: every
    posterior of the model has them beside its draws.
    """

    sent_once = True
    """Sent to another process once: one copy serves all blocks."""
    code: str = ""
    """The Python that makes the model, where an everyday function such as `nw.mean_of` wrote it."""

    def __init__(
        self,
        prior: Mapping[str, Any],
        statistics: Mapping[str, Any],
        *,
        dims: Mapping[str, tuple[str, ...]] | None = None,
        coords: Coords | None = None,
        derived: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        for argument, laws in (("prior", prior), ("statistics", statistics)):
            if not isinstance(laws, Mapping):
                raise refusal(
                    "Model",
                    argument,
                    "must be a dict of names",
                    laws,
                    "Give {'theta': dist.Gamma(25.0, 1.0)}.",
                )
            for name in laws:
                checks.name("Model", argument, name)
        if not statistics:
            raise refusal("Model", "statistics", "must hold at least one", statistics, "Name what was released.")
        self.parameters = tuple(prior)
        self.statistics = tuple(statistics)
        self._refuse_duplicates(statistics)
        self._edges, bodies = self._graph(prior, statistics)
        self._order = ordered("Model", self._edges)
        self._nodes: dict[str, Node] = {}
        self._trial: dict[str, Any] = {}
        self.added: Mapping[str, Any] = {}
        """Statistics that `extended` has added, each with its key."""
        self.layers: tuple[Layer, ...] = ()
        """Parameters that `integrated` has integrated out."""
        self._extended: dict[Any, Model] = {}
        self.compiled: dict[Any, Any] = {}
        """What samplers and fits made for this model once, not at every call: programs, and facts that take a look."""
        for name in self._order:
            self._nodes[name] = self._bind(name, bodies[name])
            self._try(name)
        self.derived = dict(derived or {})
        """Functions of quantities that posteriors of this model have beside parameters and statistics, by name."""
        self.derived_from, self._derived_shapes = self._derivable()
        self.axes = self._axes(dims or {}, coords or {})
        self._warn_of_unused()

    @classmethod
    def from_numpyro(cls, function: Any, *args: Any, statistics: Iterable[str], **kwargs: Any) -> "Model":
        """A NumPyro model function as a `Model`: its unobserved sites are parameters, but for those named `statistics`.

        `args` and `kwargs` are those of the function. Plates name the axes of the sites in them. Its deterministic
        sites are derived quantities. What cannot be represented is refused by the name of its site: factors, observed
        sites, control flow on values.
        """
        parts = read(function, args, kwargs, statistics)
        return cls(parts.prior, parts.statistics, dims=parts.dims, derived=parts.derived)

    def derive(self, values: Values) -> dict[str, Array]:
        """The derived quantities whose arguments are among `values`, at each row of these."""
        columns: dict[str, Array] = dict(values)
        for name, needed in self.derived_from.items():
            if all(argument in columns for argument in needed):
                given = {argument: np.asarray(columns[argument]) for argument in needed}
                count = len(next(iter(values.values())))
                columns[name] = derivation.column("Model.derive", name, self.derived[name], given, count)
        return {name: columns[name] for name in self.derived if name in columns}

    def _derivable(self) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[int, ...]]]:
        """What each derived quantity is computed from, and its shape, seen at one value of each."""
        if not self.derived:
            return {}, {}
        values = {name: self._trial.get(name, np.ones(self.shape(name), self.dtype(name))) for name in self._order}
        takes = derivation.arguments("Model", self.derived, values)
        for name, needed in takes.items():
            row = {argument: np.asarray(values[argument])[()] for argument in needed}
            values[name] = derivation.value_at("Model", name, self.derived[name], row)
        return takes, {name: values[name].shape for name in takes}

    def _axes(self, dims: Any, coords: Any) -> Axes:
        if not isinstance(dims, Mapping):
            raise refusal("Model", "dims", "must be a dict of names", dims, 'Give dims={"rate": ("county",)}.')
        shapes = self.shapes
        own = Axes(FrozenDict({name: dims[name] for name in dims if name in self._order}))
        named = derivation.axes_of("Model", self.derived_from, shapes, own, dims)
        return Axes.of("Model", named.dims, coords, shapes)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of one value of every parameter, statistic and derived quantity."""
        return {name: self.shape(name) for name in self._order} | self._derived_shapes

    def _refuse_duplicates(self, statistics: Mapping[str, Any]) -> None:
        """Refuse a name given to two things. Fields of different totals may share one: no function reads both."""
        fields = {field for body in statistics.values() if isinstance(body, Total) for field in body.record}
        for name in [*self.statistics, *fields]:
            if name in self.parameters or (name in fields and name in self.statistics):
                rule = "must not be used twice among parameters, statistics and record fields"
                raise refusal("Model", name, rule, name, "Rename one of them.")

    def _graph(
        self, prior: Mapping[str, Any], statistics: Mapping[str, Any]
    ) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
        edges: dict[str, tuple[str, ...]] = {}
        bodies: dict[str, Any] = {}
        for kind, group in (("prior", prior), ("statistics", statistics)):
            for name, body in group.items():
                who = Place.of(kind, name, root="Model")
                if kind == "prior" or not isinstance(body, (Total, Simulator)):
                    body = as_function(who, body)
                    edges[name] = dependencies(who, body)
                else:
                    edges[name] = body.parents
                bodies[name] = body
                allowed = self.parameters if kind == "prior" else self.parameters + self.statistics
                for parent in edges[name]:
                    if parent not in allowed:
                        needed = "parameter" if kind == "prior" else "parameter or statistic"
                        raise refusal(
                            who,
                            parent,
                            f"must be a {needed} of the model",
                            parent,
                            checks.nearest(parent, allowed),
                        )
        return edges, bodies

    def _bind(self, name: str, body: Any) -> Node:
        who = Place.of("prior" if name in self.parameters else "statistics", name, root="Model")
        structs = {parent: self._nodes[parent].struct for parent in self._edges[name]}
        if isinstance(body, Total):
            return body.bind(who, structs)
        if isinstance(body, Simulator):
            return body.bind(who, self.sketched(self.ancestors(name), 2))
        return Law(who, body, self._edges[name], structs)

    def _try(self, name: str) -> None:
        """Draw once from a law, so that one that cannot be drawn from at all is refused now.

        Where its numbers are beyond range there, at other values of what it depends on; if at none, nothing is known.
        """
        law = self._nodes[name]
        if not isinstance(law, Law) or any(parent not in self._trial for parent in law.parents):
            return
        rng = np.random.default_rng(0)
        for attempt in range(TRIALS):
            tried = dict(self._trial)
            try:
                for other in [*(self.ancestors(name) if attempt else ()), name]:
                    tried[other] = self.law(other).trial(rng, tried)
            except InputError as error:
                if not error.beyond_range:
                    raise
            else:
                self._trial = tried
                return

    def _warn_of_unused(self) -> None:
        used = {parent for parents in self._edges.values() for parent in parents}
        for name in self.parameters:
            if name not in used:
                cause = (
                    f"parameter '{name}' is used by no statistic; its posterior is its prior. "
                    "Remove it, or name it in the function that needs it."
                )
                warnings.warn(NoisewiseWarning(cause, "Model"), stacklevel=3)

    def extended(self, added: Mapping[str, tuple[Any, str, Callable[[Any], Distribution]]]) -> "Model":
        """The same model with more statistics: each a key, the name it depends on, and a function of its value.

        The same keys give the same model object, so that its programs are compiled once.
        """
        added_keys = tuple((name, key) for name, (key, _, _) in added.items())
        if added_keys not in self._extended:
            model = copy.copy(self)
            model.statistics = (*self.statistics, *added)
            model.added = {**self.added, **dict(added_keys)}
            model._extended, model.compiled = {}, {}
            model._nodes, model._trial = dict(self._nodes), dict(self._trial)
            model._edges = {**self._edges, **{name: (parent,) for name, (_, parent, _) in added.items()}}
            model._order = [*self._order, *added]
            for name, (_, parent, function) in added.items():
                model._nodes[name] = model._bind(name, partial(_of_one, function, parent))
            self._extended[added_keys] = model
        return self._extended[added_keys]

    def integrated(self, kept: Iterable[str], first: bool = False) -> "Model":
        """The model with its layers integrated out; itself where there are none.

        Layers that are in `kept`, or are read by a statistic in `kept`, stay. A model without its layers has no derived
        quantities: those may depend on a layer. With `first`, parameters that depend on nothing count as layers too.
        """
        key = ("integrated", frozenset(kept), first)
        if key not in self._extended:
            layers = [
                layer
                for layer in layers_of(self._nodes, self._edges, self.parameters, first)
                if layer.statistic in self.statistics and not {layer.name, layer.statistic} & key[1]
            ]
            self._extended[key] = self._without(layers) if layers else self
        return self._extended[key]

    def _without(self, layers: list[Layer]) -> "Model":
        model = self.restricted({layer.name for layer in layers})
        model.layers = tuple(layers)
        for layer in layers:
            model._edges[layer.statistic] = layer.parents
            structs = {parent: model._nodes[parent].struct for parent in layer.parents}
            model._nodes[layer.statistic] = Integrated(layer, model.place(layer.statistic), structs)
        return model

    def restricted(self, gone: Iterable[str]) -> "Model":
        """The model without these names, which nothing that stays reads, and without derived quantities."""
        gone, model = set(gone), copy.copy(self)
        model.layers = tuple(layer for layer in self.layers if layer.statistic not in gone)
        model._extended, model.compiled = {}, {}
        model.derived, model.derived_from, model._derived_shapes = {}, {}, {}
        model.parameters = tuple(name for name in self.parameters if name not in gone)
        model.statistics = tuple(name for name in self.statistics if name not in gone)
        model._order = [name for name in self._order if name not in gone]
        model._nodes = {name: self._nodes[name] for name in model._order}
        model._trial = {name: value for name, value in self._trial.items() if name not in gone}
        model._edges = {name: self._edges[name] for name in model._order}
        model.axes = self.axes.only(model._order)
        return model

    def place(self, name: str) -> Place:
        """Where a parameter or a statistic stands in the model, for a message."""
        return Place(f"Model['{name}']", ("prior" if name in self.parameters else "statistics", name))

    # What the samplers ask ---------------------------------------------------------------------------

    def parents(self, name: str) -> tuple[str, ...]:
        """What `name` depends on directly."""
        return self._edges[name]

    def ancestors(self, *names: str) -> list[str]:
        """All that the names depend on, in an order in which they can be drawn; not the names themselves."""
        reached: set[str] = set()
        pending = [parent for name in names for parent in self._edges[name]]
        while pending:
            name = pending.pop()
            if name not in reached:
                reached.add(name)
                pending.extend(self._edges[name])
        return [name for name in self._order if name in reached]

    @property
    def order(self) -> list[str]:
        """Every name, each after those it depends on."""
        return list(self._order)

    def node(self, name: str) -> Node:
        """What stands behind a name: a law, a sum over records or a simulator."""
        return self._nodes[name]

    def total(self, name: str) -> BoundTotal | None:
        """The statistic `name` if it is a `Total`."""
        node = self._nodes[name]
        return node if isinstance(node, BoundTotal) else None

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one value of a parameter or statistic."""
        return tuple(self._nodes[name].struct.shape)

    def dtype(self, name: str) -> np.dtype[Any]:
        """int64 for whole-numbered values, else float64."""
        return np.dtype(self._nodes[name].struct.dtype)

    def is_discrete(self, name: str) -> bool:
        """Whether its values are whole numbers."""
        return self.dtype(name).kind == "i"

    def law(self, name: str) -> Law:
        """The law of a parameter or of a statistic that has one."""
        node = self._nodes[name]
        assert isinstance(node, Law)
        return node

    def law_at(self, name: str, values: Values) -> Distribution:
        """The law of `name` at one value of each parent, without NumPyro's checks; traceable."""
        law = self.law(name)
        return unchecked(law.function(**{parent: values[parent] for parent in law.parents}))

    def row(self, names: Iterable[str]) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape and type of one row of each name, for tracing."""
        return {name: jax.ShapeDtypeStruct((1, *self.shape(name)), self.dtype(name)) for name in names}

    def example(self, name: str) -> Distribution | None:
        """The law of `name` at one drawn value of each parent; None where one depends on a total or a simulator."""
        law = self.law(name)
        if any(parent not in self._trial for parent in law.parents):
            return None
        with double(), numpyro.validation_enabled(False):
            return law.at(jax.device_put({parent: self._trial[parent] for parent in law.parents}))

    def has_density(self, name: str) -> bool:
        """Whether its law can be evaluated, not only simulated."""
        return isinstance(self._nodes[name], Law)

    def simulates_on_accelerator(self, names: Iterable[str]) -> bool:
        """Whether all of `names` can be drawn by a compiled program: Python simulators cannot."""
        return not any(isinstance(self._nodes[name], BoundSimulator) for name in names)

    def acts_row_by_row(self, names: Iterable[str]) -> bool:
        """Whether all `names` are laws, for which `draw` takes the generators of several blocks side by side."""
        return all(isinstance(self._nodes[name], Law) for name in names)

    def cost_of_row(self, name: str) -> int:
        """A rough count of numbers handled per row, to choose block sizes by."""
        node = self._nodes[name]
        if isinstance(node, BoundTotal) and node.known is not None:
            return max(self._width(name), node.known.work)
        return self.latent_of_row(name)

    def latent_of_row(self, name: str) -> int:
        """As `cost_of_row`, with a total's records (256 at most), whether or not a simulation needs them."""
        node = self._nodes[name]
        if isinstance(node, BoundSimulator) and not node.simulator.batched:
            return max(self._width(name), 512)
        if not isinstance(node, BoundTotal):
            return self._width(name)
        records = node.total.n if isinstance(node.total.n, int) else 64
        return self._width(name) * min(records, 256)

    def block_cost_of_row(self, name: str) -> int:
        """As `cost_of_row`, with every record that is simulated: here their number has no limit."""
        node = self._nodes[name]
        if isinstance(node, BoundTotal) and node.known is None and isinstance(node.total.n, int):
            return self._width(name) * node.total.n
        return self.cost_of_row(name)

    def _width(self, name: str) -> int:
        return max(1, int(np.prod(self.shape(name))))

    def draw(
        self,
        rng: np.random.Generator,
        names: list[str],
        rows: int,
        given: Values | None = None,
        poll: Poll = lambda: None,
    ) -> dict[str, Array]:
        """The `given` values, and beside them `rows` draws of each of `names`, which must come after their parents."""
        if on_accelerator() and self.simulates_on_accelerator(names):
            return simulate(self, rng, names, rows, given or {}, poll)
        values = dict(given or {})
        with np.errstate(over="ignore", under="ignore"):  # a variate beyond range is infinite, or zero
            for name in names:
                node = self._nodes[name]
                if isinstance(node, Law):
                    values[name] = node.draw(rng, values, rows)
                else:
                    values[name] = node.draw(rng, values, rows, poll)
                self._refuse_nan(name, values)
        return values

    def drawable(
        self,
        rng: np.random.Generator,
        names: list[str],
        rows: int,
        given: Values | None = None,
        poll: Poll = lambda: None,
    ) -> tuple[dict[str, Array], Array]:
        """As `draw` where all rows can be drawn; else without those where a law is beyond range, and which these are.

        They hold copies of rows that can be drawn. So they serve for looks and for starts, and are no sample of the
        prior. Refused where no row can be drawn.
        """
        values, possible = dict(given or {}), np.ones(rows, bool)
        pending = list(names)
        while pending:
            try:
                values = self.draw(rng, pending[:1], rows, values, poll)
                pending = pending[1:]
            except InputError as error:
                where = getattr(error.__cause__, "where", np.zeros(0))
                if not error.beyond_range or len(where) != rows:
                    raise
                wrong = where.reshape(rows, -1).any(axis=1)
                if wrong.all():
                    raise
                index = np.arange(rows)
                index[wrong] = np.resize(np.flatnonzero(~wrong), int(wrong.sum()))
                possible &= ~wrong
                values = {name: np.asarray(column)[index] for name, column in values.items()}
        return values, possible

    def sketched(self, names: list[str], rows: int) -> dict[str, Array]:
        """A few draws of the names, always the same, to look at; of those that can be drawn, where some cannot."""
        try:
            return self.draw(np.random.default_rng(0), names, rows)
        except InputError as error:
            if not error.beyond_range:
                raise
        drawn, possible = self.drawable(np.random.default_rng(0), names, max(rows, SKETCHED))
        first = np.resize(np.flatnonzero(possible), rows)
        return {name: column[first] for name, column in drawn.items()}

    def _refuse_nan(self, name: str, values: Values) -> None:
        drawn = values[name]
        if drawn.dtype.kind != "f" or not np.isnan(drawn.sum()) or not np.isnan(drawn).any():
            return
        row = int(np.argmax(np.isnan(drawn).reshape(len(drawn), -1).any(axis=1)))
        at = ", ".join(f"{parent}={np.asarray(values[parent][row]).tolist()}" for parent in self._edges[name])
        advice = "Check the function and its priors' range."
        raise InputError(f"a draw is NaN{' at ' + at if at else ''}. {advice}", who=self.place(name), advice=advice)

    def log_prob(self, name: str, value: Any, values: Values) -> Array:
        """log density of a law's `value`, for each row of its parents' values."""
        node = self._nodes[name]
        if not isinstance(node, Law):
            kind = type(node).__name__.removeprefix("Bound")
            advice = "Use a sampler that only simulates, such as Rejection."
            raise refusal("Model.log_prob", name, "must be a statistic with a density", kind, advice)
        return node.log_prob(value, values)

    def simulate(self, draws: int, seed: int) -> dict[str, Array]:
        """Draws of every parameter and statistic from the prior: the prior predictive."""
        draws = checks.integer("Model.simulate", "draws", draws, least=1, advice="Ask for at least one.")
        seed = checks.integer("Model.simulate", "seed", seed, least=0, advice="Give a whole number from 0 on.")
        rows = 4096
        blocks = [self.draw(prior_generator(seed, block), self._order, rows) for block in range(-(-draws // rows))]
        return {name: np.concatenate([block[name] for block in blocks])[:draws] for name in self._order}

    def __getstate__(self) -> dict[str, Any]:
        """All but `compiled`: programs stay with the process that compiled them."""
        return {**self.__dict__, "compiled": {}, "_extended": {}}

    def __repr__(self) -> str:
        lines = [f"{name}({', '.join(self._edges[name])})" for name in self._order]
        return f"Model(prior: {', '.join(lines[: len(self.parameters)])}; statistics: {', '.join(self.statistics)})"

    def _repr_html_(self) -> str:
        rows = [
            (name, "parameter" if name in self.parameters else "confidential statistic", *self._described(name))
            for name in self._order
        ]
        rows += [(name, "derived", "computed", ", ".join(needed)) for name, needed in self.derived_from.items()]
        return f"<div><p><strong>Model</strong></p>{html_table(('name', 'kind', 'law', 'given'), rows)}</div>"

    def _described(self, name: str) -> tuple[str, str]:
        """The law in a word or two, and what it depends on."""
        node = self._nodes[name]
        if isinstance(node, BoundTotal):
            law = f"sum over {node.total.n} records"
        elif isinstance(node, BoundSimulator):
            law = "simulated"
        else:
            example = self.example(name)
            law = "a law" if example is None else type(peel(example)[0]).__name__
        shape = self.shape(name)
        return law + (f", {' by '.join(map(str, shape))}" if shape else ""), ", ".join(self._edges[name]) or "nothing"


def _of_one(function: Callable[[Any], Distribution], parent: str, **values: Any) -> Distribution:
    return function(values[parent])


def prior_generator(seed: int, block: int) -> np.random.Generator:
    """Random numbers of a block of prior draws.

    The streams of algorithms have other keys. A `SeedSequence` fills a pool of four 32-bit words with the seed, the
    block and zeros; for a stream, the numbers of its `Purpose` come after these four words and are mixed into the pool.
    So a seed below 2**96 leaves a word for the block, and no stream has the key of its prior draws. From 2**96 on the
    block is the fifth word itself: there block 900 of prior draws begins as the streams of `Purpose.STARTS` do.
    """
    return np.random.default_rng([seed, block])
