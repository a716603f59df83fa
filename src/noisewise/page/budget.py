"""The same mechanism at another privacy budget: what moving epsilon on the page means."""

from dataclasses import replace
from typing import Any

from noisewise.errors import InputError, refusal
from noisewise.mechanisms import Exact, Within
from noisewise.mechanisms.base import CATALOGUE, Mechanism
from noisewise.release import Release

POWERS = {"epsilon": 1, "mu": 1, "rho": 2}
"""How budgets grow when the noise of an additive mechanism shrinks by a factor; delta stays."""
CLOSE = 1e-9


def release_at(release: Release, factor: float) -> Release:
    """The release with every budget multiplied by `factor` (`rho` by its square), the published values unchanged."""
    return Release(
        {name: replace(item, mechanism=mechanism_at(item.mechanism, factor)) for name, item in release.items()}
    )


def mechanism_at(mechanism: Mechanism, factor: float) -> Mechanism:
    """The mechanism calibrated to `factor` times its budget; refused where it has no budget to move."""
    if isinstance(mechanism, (Exact, Within)):
        return mechanism
    entry = mechanism.to_dict()
    stated = entry.pop("guarantee", {})
    inner = {key: value for key, value in vars(mechanism).items() if isinstance(value, Mechanism)}
    if inner:  # a wrapper such as Rounded stays as it is: only the mechanism inside it moves
        entry |= {key: _plain(mechanism_at(value, factor)) for key, value in inner.items()}
        return _mechanism_of(entry)
    if isinstance(entry.get("parts"), list):
        entry["parts"] = [_plain(mechanism_at(part, factor)) for part in vars(mechanism)["parts"]]
        return _mechanism_of(entry)
    recalibrated = _recalibrated(mechanism, entry, stated, factor)
    if recalibrated is not None:
        return recalibrated
    if "scale" in entry and "scale" in mechanism.fields:
        return _mechanism_of(entry | {"scale": _divided(entry["scale"], factor)})
    name = type(mechanism).__name__
    raise refusal("page", "epsilon", "moves only noise that has a scale or a stated budget", name, "Leave it.")


def _recalibrated(mechanism: Mechanism, entry: dict[str, Any], stated: Any, factor: float) -> Mechanism | None:
    """The mechanism built anew from its stated budget times `factor`; None unless factor 1 gives the very same one."""
    values = {**entry, **stated}
    if "channel" in values:
        values["categories"] = len(values["channel"])
    for names in type(mechanism).alternatives:
        budgets = [name for name in names if name in POWERS and name in stated]
        if not budgets or any(name not in values for name in names):
            continue
        unused = {argument for alternative in type(mechanism).alternatives for argument in alternative} - set(names)
        arguments = {key: values[key] for key in type(mechanism).arguments if key in values and key not in unused}
        moved = arguments | {name: values[name] * factor ** POWERS[name] for name in budgets}
        try:
            again = _mechanism_of({"mechanism": entry["mechanism"], **arguments})
            if _same(_plain(again), entry):
                return _mechanism_of({"mechanism": entry["mechanism"], **moved})
        except InputError:
            continue
    return None


def _mechanism_of(entry: dict[str, Any]) -> Mechanism:
    arguments = {key: value for key, value in entry.items() if key != "mechanism" and value is not None}
    return CATALOGUE[entry["mechanism"]].from_dict(arguments, "page")


def _plain(mechanism: Mechanism) -> dict[str, Any]:
    entry = mechanism.to_dict()
    entry.pop("guarantee", None)
    return entry


def _divided(scale: Any, factor: float) -> Any:
    return [_divided(part, factor) for part in scale] if isinstance(scale, list) else scale / factor


def _same(left: Any, right: Any) -> bool:
    """Equal data, numbers up to rounding."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return abs(left - right) <= CLOSE * max(abs(left), abs(right))
    return bool(left == right)


def stated_epsilon(release: Release) -> float | None:
    """The one epsilon that every noisy statistic was calibrated to, if there is one."""
    noisy = [item.mechanism for item in release.values() if not isinstance(item.mechanism, (Exact, Within))]
    epsilons = {item.guarantee.epsilon if item.guarantee is not None else None for item in noisy}
    return epsilons.pop() if len(epsilons) == 1 else None
