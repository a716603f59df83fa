"""Real releases: OpenDP computes the statistic, chooses the scale for the budget and adds the noise.

OpenDP is an optional dependency, imported where it is used. Everything is looked at and calibrated before anything is
drawn; a release from a file is entered in the ledger before its noise exists.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from noisewise.curator.ledger import Ledger
from noisewise.curator.made_up import made_up
from noisewise.curator.plan import CONTINUOUS, Plan, Query
from noisewise.curator.promise import check_within
from noisewise.curator.rounding import as_rounded
from noisewise.curator.table import Table
from noisewise.errors import InputError, refusal
from noisewise.mechanisms import CATALOGUE, Released
from noisewise.mechanisms.randomized_response import RandomizedResponse
from noisewise.release import Release


def release(
    data: Any,
    statistics: Mapping[str, Any],
    *,
    neighbours: str = "add-remove",
    budget: Mapping[str, float] | None = None,
    where: str = "plan",
) -> Release:
    """Draw a release from confidential `data` with OpenDP.

    `data` is a pandas table or a dict of columns; `statistics` says what to publish, by name, in the form of the
    plan files of docs/curators.md. `neighbours` is the relation the budgets speak of: under "add-remove" the number of
    records is secret, under "replace-one" it is public. `budget` is the most that all may spend together, as
    {"epsilon": 1.0}. Every call draws anew, and spends the budgets again; no ledger is kept.
    """
    plan = Plan.of(statistics, neighbours=neighbours, budget=budget, where=where)
    return Prepared.of(plan, Table(data)).draw()


def prepare(data: str | Path, plan: str | Path) -> "Prepared":
    """A release from a CSV file and a TOML plan: read, checked and calibrated, but not drawn yet."""
    ledger = Ledger.beside(data)
    prepared = Prepared.of(Plan.load(plan), Table.read(data), ledger)
    ledger.check(prepared.plan.guarantee)
    return prepared


def release_file(data: str | Path, plan: str | Path, *, out: str = "") -> Release:
    """Draw a release from a CSV file as a TOML plan says; the form of both is in docs/curators.md.

    It is entered in the ledger beside the data, where `out` says what it is for, and refused beyond the ledger's total.
    """
    return prepare(data, plan).draw(out)


@dataclass(frozen=True)
class Prepared:
    """A release that could be drawn: nothing has been spent yet."""

    plan: Plan
    table: Table
    draws: Mapping[str, Callable[[], Released]]
    ledger: Ledger | None = None

    @classmethod
    def of(cls, plan: Plan, table: Table, ledger: Ledger | None = None) -> Self:
        """Check the budget and every column, and calibrate the noise of every statistic."""
        if plan.limit is not None:
            check_within(plan.where, "budget", plan.limit, plan.guarantee, "Spend less, or raise it knowingly.")
        columns = {name: table.prepared(query, plan.neighbours) for name, query in plan.queries.items()}
        dp = _opendp()
        draws = {name: _draw_of(dp, plan.queries[name], data, plan.neighbours) for name, data in columns.items()}
        return cls(plan, table, draws, ledger)

    def draw(self, out: str = "") -> Release:
        """Enter the release in the ledger, then draw it."""
        if self.ledger is not None:
            self.ledger.enter(self.plan, out)
        drawn = {name: draw() for name, draw in self.draws.items()}
        queries = self.plan.queries
        return Release({name: _told(item, queries[name], queries) for name, item in drawn.items()})

    def rehearse(self) -> Release:
        """The same from made-up rows: nothing is spent and nothing is entered."""
        return type(self).of(self.plan, made_up(self.plan, self.table)).draw()


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError:
        advice = "Install it: python -m pip install 'noisewise[opendp]'."
        raise refusal("curator", "opendp", "must be installed to draw releases", "no module opendp", advice) from None
    dp.enable_features("contrib")
    return dp


def _draw_of(dp: Any, query: Query, data: Any, neighbours: str) -> Callable[[], Released]:
    """A function that draws the statistic; its noise is calibrated already."""
    ready = _guarded(
        dp, query, lambda: _answers(dp, query, data) if query.kind == "answers" else _noisy(dp, query, data, neighbours)
    )
    return lambda: _guarded(dp, query, ready)


def _guarded(dp: Any, query: Query, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except dp.OpenDPException as error:  # its text may quote what it was given: name its kind only
        advice = "Check bounds and budget."
        raise refusal(query.where, "entry", "was refused by OpenDP", str(error.variant), advice) from None


def _told(item: Released, query: Query, queries: Mapping[str, Query]) -> Released:
    """The statistic with its bounds, and with the categories as labels where the column can name an axis."""
    if query.bounds is not None:
        item = item.described(bounds=query.bounds)
    along = {
        other.categories for other in queries.values() if (other.kind, other.column) == ("histogram", query.column)
    }
    if query.kind != "histogram" or query.column in queries or len(along) > 1:
        return item
    try:
        return item.with_coords({str(query.column): query.categories})
    except InputError:  # a column such as "home town", or a category that is no word
        return item


def _noisy(dp: Any, query: Query, data: Any, neighbours: str) -> Callable[[], Released]:
    statistic = _statistic(dp, query, data, neighbours)
    noise = dp.m.then_laplace if query.pure else dp.m.then_gaussian
    # Distances count added and removed records: a replaced one is two.
    distance = 1 if neighbours == "add-remove" else 2
    scale = dp.binary_search_param(lambda scale: statistic >> noise(scale=scale), d_in=distance, d_out=query.budget)
    measurement = statistic >> noise(scale=scale)
    floats = data.dtype.kind == "f" or query.mechanism in CONTINUOUS
    name = ("" if floats else "Discrete") + ("Laplace" if query.pure else "Gaussian")
    guarantee = {
        "epsilon" if query.pure else "rho": query.budget,
        "sensitivity": float(statistic.map(distance)),
        "norm": "l1" if query.pure else "l2",
        "neighbours": neighbours,
    }
    mechanism = CATALOGUE[name].from_dict({"scale": float(scale), "guarantee": guarantee}, query.where)

    def draw() -> Released:
        value = measurement(data.tolist())
        return as_rounded(mechanism, value).released(value)

    return draw


def _statistic(dp: Any, query: Query, data: Any, neighbours: str) -> Any:
    """OpenDP's transformation from records to the exact statistic; it knows the sensitivity."""
    size = {"size": len(data)} if neighbours == "replace-one" else {}
    to = "f64" if query.mechanism in CONTINUOUS else "i64"
    if query.kind == "histogram":
        space = dp.vector_domain(dp.atom_domain(T=str), **size), dp.symmetric_distance()
        norm = f"L1Distance<{to}>" if query.pure else "L2Distance<f64>"
        return space >> dp.t.then_count_by_categories(list(query.categories), null_category=False, MO=norm, TOA=to)
    if query.column is None:
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance()
        return space >> dp.t.then_count(TO=to)
    number = int if data.dtype.kind == "i" else float
    low, high = (0.0, 1.0) if query.bounds is None else query.bounds
    atoms = dp.atom_domain(T="i64") if number is int else dp.atom_domain(T=float, nan=False)
    space = dp.vector_domain(atoms, **size), dp.symmetric_distance()
    clamped = space >> dp.t.then_clamp((number(low), number(high)))
    return clamped >> (dp.t.then_mean() if query.kind == "mean" else dp.t.then_sum())


def _answers(dp: Any, query: Query, data: Any) -> Callable[[], Released]:
    """Randomised response, record by record, in the order of the table."""
    others = len(query.categories) - 1
    keep = 1.0 / (1.0 + others * math.exp(-query.budget))

    def make(share: float) -> Any:
        return dp.m.make_randomized_response(list(query.categories), share)

    while make(keep).map(1) > query.budget:  # OpenDP rounds its epsilon up
        keep = math.nextafter(keep, 0.0)
    answer = make(keep)
    place = {word: index for index, word in enumerate(query.categories)}

    def draw() -> Released:
        value = np.array([place[answer(entry)] for entry in data.tolist()], dtype=np.int64)
        return RandomizedResponse(keep=keep, categories=others + 1).released(value)

    return draw
