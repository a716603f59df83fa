"""The same mechanism at another privacy budget: what moving epsilon on the page means."""

from typing import Any

from noisewise.errors import InputError, refusal
from noisewise.mechanisms import Exact, Released
from noisewise.mechanisms.base import CATALOGUE, Mechanism
from noisewise.release import Release

POWERS = {"epsilon": 1, "mu": 1, "rho": 2}
"""How budgets grow when the noise of an additive mechanism shrinks by a factor; delta stays."""
CLOSE = 1e-9


def release_at(release: Release, factor: float) -> Release:
    """The release with every budget multiplied by `factor` (`rho` by its square), the published values unchanged."""
    return Release({name: Released(mechanism_at(item.mechanism, factor), item.value) for name, item in release.items()})


def mechanism_at(mechanism: Mechanism, factor: float) -> Mechanism:
    """The mechanism calibrated to `factor` times its budget; refused where it has no budget to move."""
    if isinstance(mechanism, Exact):
        return mechanism
    entry = mechanism.to_dict()
    stated = entry.pop("guarantee", {})
    inner = {key: value for key, value in vars(mechanism).items() if isinstance(value, Mechanism)}
    if inner:  # what is done to a noisy value afterwards stays as it is
        entry |= {key: _plain(mechanism_at(value, factor)) for key, value in inner.items()}
        return _made(entry)
    if isinstance(entry.get("parts"), list):
        entry["parts"] = [_plain(mechanism_at(part, factor)) for part in mechanism.parts]  # type: ignore[attr-defined]
        return _made(entry)
    found = _recalibrated(mechanism, entry, stated, factor)
    if found is not None:
        return found
    if "scale" in entry and "scale" in mechanism.fields:
        return _made(entry | {"scale": _divided(entry["scale"], factor)})
    name = type(mechanism).__name__
    raise refusal("page", "epsilon", "moves only noise that has a scale or a stated budget", name, "Leave it.")


def _recalibrated(mechanism: Mechanism, entry: dict[str, Any], stated: Any, factor: float) -> Mechanism | None:
    """Built anew from its stated budget, if that gives back the very mechanism at factor 1."""
    known = {**entry, **stated}
    if "channel" in known:
        known["categories"] = len(known["channel"])
    for names in type(mechanism).alternatives:
        budgets = [name for name in names if name in POWERS and name in stated]
        if not budgets or any(name not in known for name in names):
            continue
        other = {each for alternative in type(mechanism).alternatives for each in alternative} - set(names)
        kept = {key: known[key] for key in type(mechanism).arguments if key in known and key not in other}
        moved = kept | {name: known[name] * factor ** POWERS[name] for name in budgets}
        try:
            again = _made({"mechanism": entry["mechanism"], **kept})
            if _same(_plain(again), entry):
                return _made({"mechanism": entry["mechanism"], **moved})
        except InputError:
            continue
    return None


def _made(entry: dict[str, Any]) -> Mechanism:
    arguments = {key: value for key, value in entry.items() if key != "mechanism" and value is not None}
    return CATALOGUE[entry["mechanism"]].from_dict(arguments, "page")


def _plain(mechanism: Mechanism) -> dict[str, Any]:
    entry = mechanism.to_dict()
    entry.pop("guarantee", None)
    return entry


def _divided(scale: Any, factor: float) -> Any:
    return [_divided(part, factor) for part in scale] if isinstance(scale, list) else scale / factor


def _same(one: Any, other: Any) -> bool:
    """Equal data, numbers up to rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return abs(one - other) <= CLOSE * max(abs(one), abs(other))
    return bool(one == other)


def stated_epsilon(release: Release) -> float | None:
    """The one epsilon that every noisy statistic was calibrated to, if there is one."""
    noisy = [item.mechanism for item in release.values() if not isinstance(item.mechanism, Exact)]
    found = {item.guarantee.epsilon if item.guarantee is not None else None for item in noisy}
    return found.pop() if len(found) == 1 else None
