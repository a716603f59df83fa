"""Privacy guarantees: what a mechanism was calibrated to, and how guarantees compose."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Self

from scipy.special import log_ndtr

from noisewise import checks
from noisewise.errors import InputError, refusal

NEIGHBOURS = ["add-remove", "replace-one"]
"""The relations between neighbours: one record more or fewer; or as many records, one of them different."""

ZERO = ("epsilon", "rho")
"""Budgets that may be zero: such a release does not depend on the data."""


@dataclass(frozen=True)
class Guarantee:
    """The privacy guarantee that a mechanism was calibrated to; a field that was not stated is None.

    One of: `epsilon` (pure), `epsilon` with `delta`, `rho` (zCDP), `mu` (GDP). `neighbours` is the relation between
    data sets that it speaks of. An `epsilon` (or `rho`) of 0 says that the release does not depend on the data.
    `sensitivity` is in the named `norm`: that of the whole released value, or of one part of it where
    `Mechanism.record_parts` counts parts.
    """

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mu: float | None = None
    sensitivity: float | None = None
    norm: str | None = None
    neighbours: str | None = None
    dimension: int | None = field(default=None, repr=False)
    """For how many released entries the calibration was made, where that matters (smooth sensitivity)."""

    choices: ClassVar[dict[str, list[str]]] = {"norm": ["l1", "l2", "linf"], "neighbours": NEIGHBOURS}

    def __post_init__(self) -> None:
        who, advice = "Guarantee", "Leave it out if it is not known."
        for key in ("epsilon", "delta", "rho", "mu", "sensitivity"):
            if getattr(self, key) is not None:
                object.__setattr__(self, key, _budget(who, key, getattr(self, key), advice))
        if self.delta is not None and self.delta >= 1.0:
            raise refusal(who, "delta", "must be below 1", self.delta, "Such a guarantee says nothing.")
        if self.neighbours is not None:
            checks.choice(who, "neighbours", self.neighbours, NEIGHBOURS)
        if self.dimension is not None:
            object.__setattr__(
                self, "dimension", checks.integer(who, "dimension", self.dimension, least=1, advice=advice)
            )

    def to_dict(self) -> dict[str, Any]:
        """The stated fields only."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, entry: Any, where: str) -> Self:
        """A guarantee from a file's object; `where` locates it for the message."""
        names = list(cls.__dataclass_fields__)
        if not isinstance(entry, dict):
            raise refusal(where, "guarantee", "must be an object", entry, f"Give any of {', '.join(names)}.")
        for key, value in entry.items():
            if key not in names:
                raise refusal(where, key, "is not a field of a guarantee", value, checks.nearest(key, names))
            if key in cls.choices:
                checks.choice(where, key, value, cls.choices[key])
            else:
                _budget(where, key, value, "Leave it out if it is not known.")
        try:
            return cls(**entry)
        except InputError as error:
            raise error.within(where) from None

    # Composition ----------------------------------------------------------------------------------------------

    def __add__(self, other: object) -> "Guarantee":
        return Guarantee.compose([self, other]) if isinstance(other, Guarantee) else NotImplemented

    @classmethod
    def compose(cls, guarantees: "Iterable[Guarantee]") -> "Guarantee":
        """The guarantee of publishing all, each computed from all the records (sequential composition).

        epsilon and delta add (Dwork et al. 2006), rho adds (Bun and Steinke 2016), mu adds in quadrature (Dong, Roth
        and Su 2022). Guarantees of one kind compose to that kind. Different kinds are first brought to rho, where an
        exact implication leads there: pure epsilon gives rho = epsilon^2 / 2 and mu gives rho = mu^2 / 2. A guarantee
        with delta implies no finite rho, so it composes only with others in epsilon; `approximate` brings rho and mu
        to epsilon.
        """
        who = "Guarantee.compose"
        parts, neighbours = _common(who, guarantees)
        budget: dict[str, Any]
        match parts[0].kind:
            case "mu":
                budget = {"mu": math.sqrt(sum(_stated(part.mu) ** 2 for part in parts))}
            case "rho":
                budget = {"rho": sum(_stated(part.rho) for part in parts)}
            case _:
                budget = {"epsilon": sum(_stated(part.epsilon) for part in parts)}
                deltas = [part.delta for part in parts if part.delta is not None]
                if deltas:
                    budget["delta"] = sum(deltas)
                    if budget["delta"] >= 1.0:
                        advice = "Such a guarantee says nothing: spend less, or account in rho or mu."
                        raise refusal(who, "delta", "must add up to less than 1", budget["delta"], advice)
        return cls(**budget, norm=None, neighbours=neighbours)

    @classmethod
    def parallel(cls, guarantees: "Iterable[Guarantee]", *, public_groups: bool = False) -> "Guarantee":
        """The guarantee of publishing all, each computed from its own disjoint group of records: the largest of each.

        A record added or removed changes one group. A record replaced may leave one group and enter another, so under
        replace-one this holds only where everybody's group is public and cannot change: say so by `public_groups`.
        """
        who = "Guarantee.parallel"
        parts, neighbours = _common(who, guarantees)
        if neighbours != "add-remove" and not public_groups:
            rule = "must be 'add-remove', unless the groups are public"
            advice = "A replaced record may change group: pass public_groups=True if it cannot, or use compose."
            raise refusal(who, "neighbours", rule, neighbours, advice)
        budget = {}
        for name in ("epsilon", "delta", "rho", "mu"):
            values = [value for part in parts if (value := getattr(part, name)) is not None]
            if values:
                budget[name] = max(values)
        return cls(**budget, norm=None, neighbours=neighbours)

    @property
    def kind(self) -> str:
        """'mu', 'rho', 'approximate' (epsilon with delta), 'pure', or 'none' where no budget is stated.

        Where a file states more than one budget, the one that composes most tightly counts: mu, then rho, then epsilon.
        """
        if self.mu is not None:
            return "mu"
        if self.rho is not None:
            return "rho"
        if self.epsilon is None:
            return "none"
        return "pure" if self.delta is None else "approximate"

    def concentrated(self) -> "Guarantee":
        """The implied zCDP guarantee: mu^2 / 2 from mu-GDP, epsilon^2 / 2 from pure epsilon-DP.

        Rényi divergences of a mu-GDP pair are at most those of N(0, 1) and N(mu, 1), which are order mu^2 / 2 (Dong,
        Roth and Su 2022). For pure epsilon see Bun and Steinke (2016), Proposition 1.4.
        """
        match self.kind:
            case "rho":
                rho = _stated(self.rho)
            case "mu":
                rho = 0.5 * _stated(self.mu) ** 2
            case "pure":
                rho = 0.5 * _stated(self.epsilon) ** 2
            case _:
                advice = "No finite rho follows from it; convert the others with approximate(delta) instead."
                raise refusal("Guarantee.concentrated", "guarantee", "must be rho, mu or pure epsilon", self, advice)
        return replace(self, epsilon=None, delta=None, mu=None, rho=rho)

    def approximate(self, delta: float) -> "Guarantee":
        """The implied (epsilon, delta) guarantee of a stated mu or rho.

        From mu: the epsilon at which delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), exact (Dong,
        Roth and Su 2022, Corollary 1). From rho: epsilon = rho + 2 sqrt(rho log(1/delta)) (Bun and Steinke 2016,
        Proposition 1.3), somewhat more than needed.
        """
        who = "Guarantee.approximate"
        delta = checks.positive_number(who, "delta", delta, "Give a small probability.")
        if delta >= 1.0:
            raise refusal(who, "delta", "must be below 1", delta, "Give a small probability.")
        match self.kind:
            case "mu":
                epsilon = _epsilon_of_mu(_stated(self.mu), delta)
                if epsilon == 0.0:
                    advice = "Give a smaller delta."
                    raise refusal(who, "delta", "must be below that of epsilon = 0", delta, advice)
            case "rho":
                rho = _stated(self.rho)
                epsilon = rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))
            case _:
                raise refusal(who, "guarantee", "must be rho or mu", self, "It is in epsilon already.")
        return replace(self, epsilon=epsilon, delta=delta, mu=None, rho=None)


def _common(who: str, guarantees: Iterable[Guarantee]) -> tuple[list[Guarantee], str | None]:
    """The guarantees brought to one kind, and the relation that they share; refused where there is none."""
    parts = list(guarantees)
    if not parts or not all(isinstance(part, Guarantee) for part in parts):
        rule = "must be a non-empty list of guarantees"
        raise refusal(who, "guarantees", rule, parts, "Give what mechanism.guarantee holds.")
    for part in parts:
        if part.kind == "none":
            raise refusal(who, "guarantees", "must each state a budget", part, "Give epsilon, rho or mu.")
    relations = {part.neighbours for part in parts}
    if len(relations) > 1:
        rule = "must be the same neighbour relation in all"
        advice = "Calibrate all to one relation, and state it in each: mechanism.under('replace-one')."
        raise refusal(who, "neighbours", rule, sorted(str(relation) for relation in relations), advice)
    kinds = {part.kind for part in parts}
    if len(kinds) > 1 and not kinds <= {"pure", "approximate"}:
        if "approximate" in kinds:
            rule = "must not mix delta with rho or mu"
            advice = "Bring rho and mu to epsilon first: guarantee.approximate(delta)."
            raise refusal(who, "guarantees", rule, sorted(kinds), advice)
        parts = [part.concentrated() for part in parts]
    return parts, relations.pop()


def _budget(who: str, key: str, value: Any, advice: str) -> float:
    """A positive number; epsilon and rho may be zero."""
    if key in ZERO and isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0:
        return 0.0
    return checks.positive_number(who, key, value, advice)


def _stated(value: float | None) -> float:
    assert value is not None  # `kind` says which fields are stated
    return value


def _epsilon_of_mu(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 for which mu-GDP is (epsilon, delta)-DP."""
    from scipy.optimize import brentq

    def excess(epsilon: float) -> float:
        first = float(log_ndtr(0.5 * mu - epsilon / mu))
        second = epsilon + float(log_ndtr(-0.5 * mu - epsilon / mu))
        log_delta = first + math.log(-math.expm1(second - first)) if second < first else -math.inf
        return max(log_delta, -1e6) - math.log(delta)

    if excess(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while excess(high) > 0.0:
        high *= 2.0
    epsilon = float(brentq(excess, 0.0, high, xtol=1e-15, rtol=1e-14))
    while excess(epsilon) > 0.0:  # root finding stops on either side: step to the private one
        epsilon *= 1.0 + 1e-13
    return epsilon
