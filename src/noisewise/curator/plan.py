"""What a curator means to publish: a plan of statistics with their budgets, read and checked.

The form of plan files is in docs/curators.md. Nothing here looks at confidential records.
"""

import hashlib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from noisewise import checks
from noisewise.errors import InputError, refusal
from noisewise.mechanisms.guarantee import NEIGHBOURS, Guarantee

KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "count": ((), ("column", "value", "allow")),
    "sum": (("column", "bounds"), ()),
    "mean": (("column", "bounds"), ()),
    "histogram": (("column", "categories"), ("allow",)),
    "answers": (("column", "categories"), ("allow",)),
}
"""Kinds of statistics: the keys each needs, and those it may have beside `kind`, a budget and `mechanism`."""
_ADDITIVE = {"Laplace": "epsilon", "DiscreteLaplace": "epsilon", "Gaussian": "rho", "DiscreteGaussian": "rho"}
CONTINUOUS = ("Laplace", "Gaussian")
_ALLOWED = {
    "count": tuple(_ADDITIVE),
    "sum": tuple(_ADDITIVE),
    "mean": CONTINUOUS,
    "histogram": tuple(_ADDITIVE),
    "answers": ("RandomizedResponse",),
}
ALLOWABLE = {"histogram": ("unlisted", "empty"), "answers": ("empty",), "count": ("empty",)}
"""What a plan may allow, by kind. "unlisted": values of the column that are not listed, and then not counted. "empty":
listed values that never occur."""
KEYS = ("neighbours", "budget", "statistics")


@dataclass(frozen=True)
class Query:
    """One statistic of a plan, checked."""

    where: str
    kind: str
    mechanism: str | None
    budget: float
    pure: bool
    """Whether the budget is epsilon (Laplace noise, randomised response) rather than rho (Gaussian noise)."""
    column: str | None = None
    value: str | None = None
    bounds: tuple[float, float] | None = None
    categories: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    """What is meant although it is usually a slip; see `ALLOWABLE`."""

    @property
    def guarantee(self) -> Guarantee:
        """What publishing it guarantees; the plan states the neighbours."""
        return Guarantee(epsilon=self.budget) if self.pure else Guarantee(rho=self.budget)


@dataclass(frozen=True)
class Plan:
    """All statistics of a plan, checked, with the relation their budgets speak of and the most that may be spent."""

    queries: Mapping[str, Query]
    neighbours: str = "add-remove"
    limit: Guarantee | None = None
    """The plan's `budget`: the statistics together must not exceed it."""
    where: str = "plan"
    hash: str = field(default="", repr=False)
    """SHA-256 of the file, for the ledger."""

    @classmethod
    def of(cls, statistics: Any, *, neighbours: Any = "add-remove", budget: Any = None, where: str = "plan") -> Self:
        """A plan from data as a file holds it."""
        checks.choice(where, "neighbours", neighbours, NEIGHBOURS)
        if not isinstance(statistics, Mapping) or not statistics:
            advice = 'Give {"adults": {"kind": "count", "epsilon": 0.5}}.'
            raise refusal(where, "statistics", "must be a non-empty table", statistics, advice)
        queries = {}
        for name, entry in statistics.items():
            checks.name(where, "statistics", name)
            queries[name] = _query(entry, neighbours, f"{where}: statistics.{name}")
        return cls(queries, neighbours, None if budget is None else stated_limit(where, budget, neighbours), where)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A plan from a TOML file."""
        where = str(path)
        try:
            raw = Path(path).read_bytes()
            content = tomllib.loads(raw.decode("utf-8"))
        except FileNotFoundError:
            raise refusal("release", "plan", "must be an existing file", where, "Check the path.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read as UTF-8 text: {error}. Check the file.", who=where) from None
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise InputError(f"not valid TOML: {reason}. Mend it there.", who=where) from None
        for key in content:
            if key not in KEYS:
                raise refusal(where, key, "is not a key of a plan", content[key], checks.nearest(key, KEYS))
        if "statistics" not in content:
            advice = "Add a table such as [statistics.adults]."
            raise refusal(where, "statistics", "is missing", sorted(content), advice)
        plan = cls.of(**content, where=where)
        return cls(plan.queries, plan.neighbours, plan.limit, where, hashlib.sha256(raw).hexdigest())

    @property
    def guarantee(self) -> Guarantee:
        """What publishing all of it guarantees."""
        return Guarantee.compose(self.guarantees.values())

    @property
    def guarantees(self) -> dict[str, Guarantee]:
        """What publishing each statistic guarantees."""
        return {
            name: Guarantee(epsilon=each.epsilon, rho=each.rho, neighbours=self.neighbours)
            for name, each in ((name, query.guarantee) for name, query in self.queries.items())
        }


def stated_limit(where: str, budget: Any, neighbours: str) -> Guarantee:
    """A limit as a plan or a ledger states it: epsilon, epsilon with delta, or rho."""
    advice = "Give { epsilon = 1.0 }, { epsilon = 1.0, delta = 1e-6 } or { rho = 0.5 }."
    keys = sorted(budget) if isinstance(budget, Mapping) else None
    if keys not in (["epsilon"], ["delta", "epsilon"], ["rho"]):
        raise refusal(where, "budget", "must state epsilon, epsilon and delta, or rho", budget, advice)
    return Guarantee.from_dict({**budget, "neighbours": neighbours}, where)


def _query(entry: Any, neighbours: str, where: str) -> Query:
    if not isinstance(entry, Mapping):
        raise refusal(where, "entry", "must be a table", entry, "Give kind, a budget and what the kind needs.")
    if "kind" not in entry:
        raise refusal(where, "kind", "is missing", sorted(entry), f"Give one of {', '.join(KINDS)}.")
    kind = checks.choice(where, "kind", entry["kind"], KINDS)
    needed, optional = KINDS[kind]
    known = ("kind", "epsilon", "rho", "mechanism", *needed, *optional)
    for key, value in entry.items():
        if key not in known:
            raise refusal(where, key, f"is not a key of a {kind}", value, checks.nearest(key, known))
    for key in needed:
        if key not in entry:
            raise refusal(where, key, f"is missing for a {kind}", sorted(entry), f"A {kind} needs {', '.join(needed)}.")
    if kind == "count" and ("column" in entry) != ("value" in entry):
        raise refusal(where, "value", "must come together with column", sorted(entry), "Count where column is value.")
    if kind == "count" and "column" not in entry and neighbours == "replace-one":
        rule = "must name a column and a value under replace-one neighbours"
        raise refusal(where, "kind", rule, "count", "The number of records is public there.")
    if kind == "mean" and neighbours != "replace-one":
        rule = "must be used with neighbours = 'replace-one', since a mean divides by the number of records"
        raise refusal(where, "kind", rule, "mean", "Or publish a sum and a count.")
    if kind == "answers" and neighbours != "replace-one":
        rule = "must be used with neighbours = 'replace-one', since every record gives an answer"
        raise refusal(where, "kind", rule, "answers", "Their number shows how many records there are.")
    mechanism, budget, pure = _budget(entry, kind, where)
    return Query(
        where,
        kind,
        mechanism,
        budget,
        pure,
        column=_text(entry, "column", where),
        value=word(entry["value"]) if "value" in entry else None,
        bounds=_bounds(entry["bounds"], where) if "bounds" in entry else None,
        categories=_categories(entry["categories"], where) if "categories" in entry else (),
        allow=_allowed(entry, kind, where),
    )


def _budget(entry: Mapping[str, Any], kind: str, where: str) -> tuple[str | None, float, bool]:
    """The mechanism's name, if given; the budget; and whether it is epsilon."""
    budgets = [key for key in ("epsilon", "rho") if key in entry]
    if len(budgets) != 1:
        advice = "epsilon is for Laplace noise and answers, rho for Gaussian noise."
        raise refusal(where, "epsilon", "or rho must be given, exactly one of them", budgets, advice)
    budget = checks.positive_number(where, budgets[0], entry[budgets[0]], "Give one positive number.")
    name = entry.get("mechanism")
    if name is not None:
        checks.choice(
            where, "mechanism", name, _ALLOWED[kind], f"These are for a {kind}; leave it out to let us choose."
        )
    wanted = "epsilon" if kind == "answers" else _ADDITIVE.get(name or "", budgets[0])
    if budgets[0] != wanted:
        raise refusal(where, budgets[0], f"must be {wanted} for {name or kind}", budget, f"Give {wanted}.")
    return name, budget, budgets[0] == "epsilon"


def _text(entry: Mapping[str, Any], key: str, where: str) -> str | None:
    if key not in entry:
        return None
    if not isinstance(entry[key], str):
        raise refusal(where, key, "must be a column's name", entry[key], "Give it in quotes.")
    return str(entry[key])


def _bounds(value: Any, where: str) -> tuple[float, float]:
    rule, advice = "must be two numbers, the lower first", "Records are clamped to them, for example [0, 100]."
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise refusal(where, "bounds", rule, value, advice)
    low, high = (checks.numeric(where, "bounds", bound, advice) for bound in value)
    if not (isinstance(low, float) and isinstance(high, float) and math.isfinite(high - low) and low < high):
        raise refusal(where, "bounds", rule, value, advice)
    return low, high


def _categories(value: Any, where: str) -> tuple[str, ...]:
    words = tuple(map(word, value)) if isinstance(value, (list, tuple)) else ()
    if len(words) < 2 or len(set(words)) < len(words):
        advice = "They decide the order of the release; list all that are public knowledge."
        raise refusal(where, "categories", "must list at least two different values", value, advice)
    return words


def word(value: Any) -> str:
    """A category as text; 2.0 is 2, as a column of whole numbers with gaps is read."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _allowed(entry: Mapping[str, Any], kind: str, where: str) -> tuple[str, ...]:
    known = ALLOWABLE.get(kind, ())
    value = entry.get("allow", [])
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) and one in known for one in value):
        advice = f"For a {kind}: {', '.join(known) or 'nothing'}."
        raise refusal(where, "allow", "must list what is meant although it is usually a slip", value, advice)
    return tuple(value)
