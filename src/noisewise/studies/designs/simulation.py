"""What analysts would conclude from simulated releases: posteriors by weighted prior rows, or sampled where need be.

Releases come in batches. A batch has its own true values, its own noise (from the same random numbers at every budget)
and its own rows of the prior. Weighed by the noise density, these rows represent the posterior of each of the batch's
releases. Averages of batches are independent, so their scatter gives the Monte Carlo error.
docs/derivations/design.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from noisewise.checkpoint.log import Log, fingerprint
from noisewise.checkpoint.opening import numbers_of
from noisewise.diagnostics import weights
from noisewise.engine import Engine
from noisewise.errors import InferenceError
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.mechanisms import Exact, Mechanism
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.release import Release
from noisewise.results.goal import Goal
from noisewise.results.posterior import Posterior
from noisewise.samplers.sample import sample
from noisewise.studies.designs.counts import Mechanisms, Table, common_place, counted, is_by_entry, log_prob
from noisewise.studies.designs.run import PER_BATCH, StudyRun
from noisewise.studies.designs.shares import ShareOfTable

ROWS = 2**14
"""Prior rows of a batch, at most."""
NUMBERS = 2**26
"""Numbers in the kept rows beyond which no further batch is kept."""
ENOUGH = 400.0
"""Effective rows that a posterior must have: the width of its 95% interval is then off by less than 1% on average."""
ENOUGH_NODES = 100.0
"""Effective nodes that a posterior must have, which have no Monte Carlo error: an interval's ends are then within a
twentieth of a standard deviation of their exact places."""
LARGEST_SHARE = 0.01
"""Largest share of the weight that one more row may be able to take, where the noise density is bounded."""
DRAWS = 4_000
"""Draws of a posterior that has to be sampled."""

Source = Callable[[int], tuple[dict[str, Array], "Rows | None"]]
"""By a batch's number, the true values of its releases, and rows to weigh for them (None: rows of the prior)."""
Drawn = Callable[[Release, int], Posterior]
"""A function that samples the posterior of a release, by a seed."""


@dataclass
class Rows:
    """Values to be weighed: draws whose density is proportional to the prior's times exp(`log_base`), or nodes."""

    values: dict[str, Array]
    log_base: Array | None = None
    """None: rows of the prior."""
    counts: Mapping[str, list[Table]] = field(default_factory=dict)
    """For each statistic summed out, and each of its places: the possible values, and their probabilities by row."""
    are_nodes: bool = False
    """Whether the rows are nodes of a quadrature, which cover the prior without gaps."""
    worth: float = 1.0
    """Effective number of rows over their number: below 1 where rows are dependent."""

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    @property
    def size(self) -> int:
        """How many numbers the rows hold, with their tables of probabilities."""
        tables = [chance for pairs in self.counts.values() for _, chance in pairs]
        return sum(column.size for column in (*self.values.values(), *tables))

    def by(self, target: Goal) -> tuple[Array, Array]:
        """Indices that sort the rows by the target's quantity, and the sorted values."""
        if target.of not in self._ordered:
            column = target.column(self.values)
            order = np.argsort(column, kind="stable")
            self._ordered[target.of] = order, column[order]
        return self._ordered[target.of]

    def distinct(self, name: str) -> tuple[Array, Array] | None:
        """Distinct values of a scalar statistic, and which of them each row has; None for an array or many values."""
        if name not in self._distinct:
            values = self.values[name]
            unique = np.unique(values, return_inverse=True) if values.ndim == 1 else None
            self._distinct[name] = None if unique is None or len(unique[0]) > len(values) // 4 else unique
        return self._distinct[name]

    @cached_property
    def _distinct(self) -> dict[str, Any]:
        return {}

    @cached_property
    def _ordered(self) -> dict[str, tuple[Array, Array]]:
        return {}


@dataclass(frozen=True)
class Case:
    """One simulated release, the true quantities, and densities that are computed already at the prior's rows."""

    mechanisms: Mechanisms
    released: dict[str, Any]
    summed_out: dict[str, tuple[Array, float]]
    """For each statistic summed out: the log density of its release at each row, and a bound of it."""
    truths: tuple[float, ...]
    """The true value of each target's quantity."""
    key: tuple[int, ...]


@dataclass
class Simulation:
    """Targets of simulated releases, batch by batch."""

    model: Model
    targets: tuple[Goal, ...]
    """All are measured on the same posteriors; true parameters are those that the first one states, or the prior's."""
    seed: int
    engine: Engine | None = None
    most_batches: int = 32
    """Batches whose rows are kept, at most; others are made again when they are asked for."""
    source: Source | None = None
    """Where true values come from; None: from the prior, or at the stated truth."""
    sampler: Drawn | None = None
    """Samples a posterior that no rows at hand can represent; None: `nw.sample` does."""
    run: StudyRun = field(default_factory=StudyRun)
    scope: int = 0
    """Its number among the simulations of the run."""
    sampled: int = 0
    """Posteriors that had to be sampled, since no rows at hand could be weighed."""
    weighed: int = 0
    _batches: dict[int, Rows] = field(default_factory=dict)
    _is_confirmed: bool = False

    def __post_init__(self) -> None:
        self._place = common_place(self.model, self.targets)
        self._counted = {one.name: one for one in counted(self.model, self.targets, self._place)}
        self._share = ShareOfTable.of(self.model, self.targets)

    def means(self, mechanisms: Mechanisms, first: int, last: int) -> Array:
        """The first target's average over the releases of each batch, for batches from `first` to before `last`."""
        return self.curve([mechanisms], first, last)[0]

    def curve(self, plans: list[Mechanisms], first: int, last: int) -> Array:
        """As `means`, a row for each plan; those with more noise come first, so that their rows serve the next."""
        values_by_plan = np.empty((len(plans), last - first))
        for batch in range(first, last):
            values_by_plan[:, batch - first] = self.values(plans, batch)[0].mean(axis=1)
        return values_by_plan

    def values(self, plans: list[Mechanisms], batch: int) -> Array:
        """Every target of every plan and release of one batch; from the checkpoint, where it has them.

        The first values that the checkpoint has are computed again all the same, and must be equal.
        """
        key = ("batch", _digest(plans), batch) if self._log else ()
        has = self._log.has(*key)
        if has and self._is_confirmed:
            stored = self._log.get(*key)
            self.sampled += stored["sampled"]
            values = stored["values"]
        else:
            before = self.sampled
            values = self._computed(plans, batch)
            record = {"values": values, "sampled": self.sampled - before}
            if has:
                self._log.confirm(record, *key)
            else:
                self._log.put(record, *key)
            self._is_confirmed = True
        self.run.tell(len(plans) * PER_BATCH)
        return np.asarray(values)

    def forget(self) -> None:
        """Let go of the rows of all batches; those that are asked for again are made again."""
        self._batches.clear()

    @cached_property
    def _log(self) -> Log:
        log = self.run.log.within(self.scope)
        if log:
            log.same(numbers_of(self.model), "model")
        return log

    def _computed(self, plans: list[Mechanisms], batch: int) -> Array:
        truths = self._truths_of(batch)
        noisy = [self._released(truths, mechanisms, batch) for mechanisms in plans]
        pool, summed = self._summed_out(batch, plans, noisy)
        values = np.empty((len(self.targets), len(plans), PER_BATCH))
        for row in range(PER_BATCH):
            one_truth = {name: column[row : row + 1] for name, column in truths.items()}
            known_truths = tuple(float(target.column(one_truth)[0]) for target in self.targets)
            rows = pool
            for place, (mechanisms, released) in enumerate(zip(plans, noisy, strict=True)):
                one = {name: column[row] for name, column in released.items()}
                known = {name: (table[:, place, row], top[place, row]) for name, (table, top) in summed.items()}
                case = Case(mechanisms, one, known, known_truths, (batch, row, place))
                rows, values[:, place, row] = self._measured(rows, pool, case)
        return values

    def _summed_out(
        self, batch: int, plans: list[Mechanisms], noisy: list[dict[str, Array]]
    ) -> tuple[Rows, dict[str, tuple[Array, Array]]]:
        """Rows, and for statistics summed out the log density of the releases at each row, with its bound."""
        share = self._share
        if share is not None and all(list(plan) == [share.table] and share.serves(plan) for plan in plans):
            return self._shares, {share.table: share.log_density(plans, noisy)}
        pool = self._rows_of(batch)
        return pool, {
            name: self._counted[name].log_density(tables, plans, noisy)
            for name, tables in pool.counts.items()
            if all(self._counted[name].serves(plan, self._place) for plan in plans)
        }

    @cached_property
    def _shares(self) -> Rows:
        """The rows of a share of a table, the same for every batch."""
        assert self._share is not None
        return Rows(dict(self._share.values), are_nodes=True)

    # One batch --------------------------------------------------------------------------------------------------

    def _truths_of(self, batch: int) -> dict[str, Array]:
        """True values of a batch, derived quantities among them."""
        truths = self._given(batch)[0]
        return truths | self.model.derive(truths)

    def _rows_of(self, batch: int) -> Rows:
        """Rows of a batch, derived quantities among them."""
        if batch not in self._batches:
            pool = self._given(batch)[1] or self._pool(batch)
            if len(self._batches) >= self.most_batches or sum(one.size for one in self._batches.values()) > NUMBERS:
                return pool
            self._batches[batch] = pool
        return self._batches[batch]

    def _given(self, batch: int) -> tuple[dict[str, Array], Rows | None]:
        return self._truths(batch) if self.source is None else self.source(batch)

    def _truths(self, batch: int) -> tuple[dict[str, Array], None]:
        """True values from the prior, or from the model at the stated truth."""
        rng = generator(self.seed, Purpose.DESIGN_TRUTHS, batch)
        stated = self.targets[0].truth or {}
        given = {name: np.broadcast_to(value, (PER_BATCH, *value.shape)) for name, value in stated.items()}
        return self.model.draw(rng, [n for n in self.model.order if n not in given], PER_BATCH, given), None

    def _pool(self, batch: int) -> Rows:
        """Prior rows, with the probabilities of the counts that are summed out."""
        model = self.model
        values = model.draw(generator(self.seed, Purpose.DESIGN_POOL, batch), list(model.order), ROWS)
        values |= model.derive(values)
        counts: dict[str, list[Table]] = {}
        for name, one in self._counted.items():
            tables = one.tables(values)
            if tables is not None:
                counts[name] = tables
                rows = len(tables[0][1])
                values = {other: column[:rows] for other, column in values.items()}
        rows = len(next(iter(values.values())))
        counts = {name: [(each, chance[:rows]) for each, chance in tables] for name, tables in counts.items()}
        return Rows(values, counts=counts)

    def _released(self, truths: dict[str, Array], mechanisms: Mechanisms, batch: int) -> dict[str, Array]:
        """Simulated releases of a batch: the same random numbers whatever the budget."""
        released = {}
        for place, (name, mechanism) in enumerate(sorted(mechanisms.items())):
            rng = generator(self.seed, Purpose.DESIGN_NOISE, batch, place)
            extra = {other: truths[other] for other in mechanism.inputs}
            released[name] = np.asarray(mechanism.sample(rng, truths[name], **extra))
        return released

    # One posterior ----------------------------------------------------------------------------------------------

    def _measured(self, rows: Rows, pool: Rows, case: Case) -> tuple[Rows, list[float]]:
        """Targets of one posterior, and the rows that the next may try besides the pool."""
        used, weight = self.posterior([pool] if rows is pool else [pool, rows], case)
        measured = []
        for target, truth in zip(self.targets, case.truths, strict=True):
            order, ordered = used.by(target)
            measured.append(target.measured(ordered, weight[order], truth))
        return (rows if used is pool else used), measured

    def posterior(self, candidates: list[Rows], case: Case) -> tuple[Rows, Array]:
        """Rows and weights that represent the posterior of a release: the first that serve, or fresh draws."""
        for rows in candidates:
            weight = self._weight(rows, case)
            if weight is not None:
                self.weighed += 1
                return rows, weight
        fresh = self._sampled(case)
        self.sampled += 1
        return fresh, np.full(len(fresh), 1.0 / len(fresh))

    def _weight(self, rows: Rows, case: Case) -> Array | None:
        """Weights by which the rows represent the posterior; None if too few carry them, or one more could upset it."""
        log_weight = self._log_eta(rows, case)
        if rows.log_base is not None:
            with np.errstate(invalid="ignore"):
                log_weight = np.where(log_weight > -np.inf, log_weight - rows.log_base, -np.inf)
        top = float(np.max(log_weight))
        if not np.isfinite(top):
            return None
        weight = np.exp(log_weight - top)
        total = float(weight.sum())
        enough = ENOUGH_NODES if rows.are_nodes else ENOUGH
        if rows.worth * total**2 < enough * float(np.square(weight).sum()):
            return None
        if rows.are_nodes:
            return np.asarray(weight / total)
        bound = self._log_sup(case) if rows.log_base is None else np.inf
        if np.isfinite(bound):
            if np.exp(bound - top) > LARGEST_SHARE * total:
                return None
        elif weights.pareto_k(log_weight) > weights.LARGEST_K:
            return None
        return np.asarray(weight / total)

    def _log_eta(self, rows: Rows, case: Case) -> Array:
        """log density of a release at each row; of a statistic without noise, its law's own density at that value."""
        size = len(rows)
        released = case.released
        without_noise = {name for name, mechanism in case.mechanisms.items() if isinstance(mechanism, Exact)}
        exact = {name: np.broadcast_to(released[name], (size, *np.shape(released[name]))) for name in without_noise}
        total: Any = 0.0
        for name, mechanism in case.mechanisms.items():
            if rows.log_base is None and name in case.summed_out:
                total = total + case.summed_out[name][0]
                continue
            if name in exact:
                total = total + log_prob(self.model, name, exact[name], rows.values | exact)
                continue
            distinct = rows.distinct(name) if not mechanism.inputs else None
            values = rows.values[name] if distinct is None else distinct[0]
            extra = {other: rows.values[other] for other in mechanism.inputs}
            with np.errstate(over="ignore", under="ignore"):
                entries = np.asarray(mechanism.log_prob(released[name], values, **extra)).reshape(len(values), -1)
            log_eta = self._of_interest(entries, case)
            total = total + (log_eta if distinct is None else log_eta[distinct[1]])
        return np.asarray(total)

    def _of_interest(self, entries: Array, case: Case) -> Array:
        """For each row the sum of its entries, or only the entry that the targets are about."""
        if self._place is not None and all(map(is_by_entry, case.mechanisms.values())):
            return np.asarray(entries[:, self._place])
        return np.asarray(entries[:, 0] if entries.shape[1] == 1 else entries.sum(axis=1))

    def _log_sup(self, case: Case) -> float:
        """Certified bound of the release's density; infinite where a statistic has no noise."""
        if any(isinstance(mechanism, Exact) for mechanism in case.mechanisms.values()):
            return np.inf
        total = 0.0
        for name, mechanism in case.mechanisms.items():
            if name in case.summed_out:
                total += case.summed_out[name][1]
            else:
                entries = np.broadcast_to(mechanism.log_sup(case.released[name]), np.shape(case.released[name]))
                total += float(self._of_interest(entries.reshape(1, -1), case)[0])
        return total

    def _sampled(self, case: Case) -> Rows:
        """Draws of the posterior, by `nw.sample`."""
        release = release_of(case.mechanisms, case.released)
        seed = int(generator(self.seed, Purpose.DESIGN_SEED, *case.key).integers(2**62))
        posterior = (self.sampler or self._sample)(release, seed)
        if posterior.status != "complete":
            message = f"the posterior of a simulated release could not be had ({posterior.message})."
            raise InferenceError(f"{message} Narrow the priors, or the range of budgets.", posterior, who="design")
        draws = {name: posterior[name] for name in (*self.model.order, *self.model.derived)}
        if posterior.log_weights is not None:
            rng = generator(self.seed, Purpose.DESIGN_SEED, *case.key, 1)
            resampled = weights.systematic(rng, posterior.log_weights, DRAWS)
            draws = {name: values[resampled] for name, values in draws.items()}
        rows = Rows(draws)
        rows.log_base = np.zeros(len(rows))  # no rows of the prior: nothing is summed out for them
        rows.log_base = self._log_eta(rows, case)
        return rows

    def _sample(self, release: Release, seed: int) -> Posterior:
        common: dict[str, Any] = {"draws": DRAWS, "engine": self.engine, "progress": False, "on_failure": "return"}
        return sample(self.model, release, seed=seed, **common)


def release_of(mechanisms: Mechanisms, released: Mapping[str, Any]) -> Release:
    """Simulated values as a release."""
    return Release({name: mechanism.released(released[name]) for name, mechanism in mechanisms.items()})


def _digest(plans: list[Mechanisms]) -> str:
    """A hash of the plans, by which the values of their releases are found in a checkpoint."""
    return fingerprint([{name: mechanism.to_dict() for name, mechanism in plan.items()} for plan in plans])


def checked_problem(model: Model, mechanisms: Mechanisms) -> Problem:
    """The problem of a simulated release; mechanisms that do not fit the model are refused, as by `nw.sample`."""
    values = model.draw(generator(0, Purpose.DESIGN_TRUTHS, 0), list(model.order), PER_BATCH)
    rng = generator(0, Purpose.DESIGN_NOISE, 0)
    released = {}
    for name, mechanism in mechanisms.items():
        extra = {other: values[other] for other in mechanism.inputs}
        released[name] = np.asarray(mechanism.sample(rng, values[name], **extra))[0]
    return Problem(model, release_of(mechanisms, released))


def floor_of(model: Model, names: list[str], target: Goal) -> dict[str, Mechanism] | None:
    """Mechanisms that publish the confidential statistics as they are; None where that posterior cannot be computed.

    Each needs a density, and neither the target's quantity nor another statistic may depend on any of them.
    """
    roots = {target.name} if target.name in model.order else _roots(model, target.name)
    behind = {root for name in roots for root in [name, *model.ancestors(name)]}
    after = [name for name in model.statistics if name not in names and set(model.ancestors(name)) & set(names)]
    if behind & set(names) or after or not all(model.has_density(name) for name in names):
        return None
    return {name: Exact() for name in names}


def _roots(model: Model, derived: str) -> set[str]:
    roots: set[str] = set()
    for name in model.derived_from[derived]:
        roots |= _roots(model, name) if name in model.derived else {name}
    return roots
