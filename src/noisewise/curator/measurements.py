"""OpenDP's JSON serialisation of measurements, `dp.serialize(measurement)`, read into a `Release`.

The text names the functions that made the measurement, with their arguments. OpenDP reads it back by calling them;
here it is data, from which the law of the noise is taken. Functions whose law is not known are refused.
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.curator.rounding import as_rounded
from noisewise.errors import InputError, refusal
from noisewise.mechanisms import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Released
from noisewise.mechanisms.base import Mechanism
from noisewise.mechanisms.clipped import Clipped
from noisewise.mechanisms.exponential import ExponentialMechanism
from noisewise.mechanisms.noisy_max import PermuteAndFlip
from noisewise.mechanisms.randomized_response import RandomizedResponse
from noisewise.mechanisms.top_selection import TopSelection
from noisewise.mechanisms.tulap import Tulap
from noisewise.release import Release

WHO = "from_opendp_json"
VERSION = "0.16."
"""The versions whose measurements were compared with our laws: docs/curators.md has the table."""
COMPOSED = ("make_composition", "make_basic_composition")
SAME_LAW = (
    *("make_pureDP_to_zCDP", "make_zCDP_to_approxDP", "make_fix_delta", "make_approximate"),
    "make_fixed_approxDP_to_approxDP",
)
"""Functions that state the guarantee in another way, and leave the noise alone."""
ADDITIVE: dict[str, tuple[Any, Any]] = {
    "make_laplace": (DiscreteLaplace, Laplace),
    "make_geometric": (DiscreteLaplace, None),
    "make_gaussian": (DiscreteGaussian, Gaussian),
}
"""The law on whole numbers, and that on floats."""
TYPED = {
    **dict.fromkeys(("make_count", "make_count_distinct"), "TO"),
    **dict.fromkeys(("make_cast", "make_cast_default", "make_cast_inherent", "make_count_by_categories"), "TOA"),
}
"""Transformations that state the type of their output, and the argument that holds it."""
KEEP_TYPE = (
    *("make_clamp", "make_sum", "make_mean", "make_variance", "make_sum_of_squared_deviations", "make_resize"),
    *("make_impute_constant", "make_identity", "make_unordered", "make_ordered_random"),
    *("make_metric_bounded", "make_metric_unbounded"),
)
Node = dict[str, Any]


def from_opendp_json(measurement: Any, values: Mapping[str, Any]) -> Release:
    """A release from the JSON text that OpenDP's `dp.serialize` gives of a measurement, and the published values.

    `measurement` is the text, or the path of a file with it. `values` is a dict from the name of a statistic to its
    published value; for a composition, one for each of its measurements, in their order. Answers to randomised response
    may be a list of words, one for each person. The bounds of clamping and the number of records, where it is
    public, are kept as descriptions.
    """
    parts = _parts(_call(_read(measurement)))
    if not isinstance(values, Mapping) or len(values) != len(parts):
        rule = f"must be a dict with one value for each measurement, in their order ({len(parts)} here)"
        given = list(values) if isinstance(values, Mapping) else values
        raise refusal(WHO, "values", rule, given, 'Give {"count": 103}, say.')
    named = zip(values.items(), parts, strict=True)
    return Release({name: _released(name, *part, value) for (name, value), part in named})


def _read(measurement: Any) -> Any:
    advice = "Give dp.serialize(measurement), or the path of a file with it."
    try:
        text = Path(measurement).read_text(encoding="utf-8") if isinstance(measurement, os.PathLike) else measurement
        return json.loads(text)
    except (OSError, TypeError, ValueError, RecursionError) as error:
        raise refusal(WHO, "measurement", f"must be JSON text ({error})", measurement, advice) from None


def _call(content: Any) -> Node:
    """The content, checked to be a call of one of OpenDP's functions in a known version."""
    if not isinstance(content, dict) or not isinstance(content.get("__function__"), str):
        raise refusal(WHO, "measurement", "must be a call of OpenDP's", content, "Give dp.serialize(measurement).")
    version = content.get("__version__")
    if not isinstance(version, str) or not version.startswith(VERSION):
        advice = f"Laws were compared with version {VERSION}x: describe the noise by hand if you know it."
        raise refusal(WHO, "measurement", "must be of a version that is known", version, advice)
    if not isinstance(content.get("__kwargs__"), dict):
        rule = "must have the arguments of each call"
        raise refusal(WHO, "measurement", rule, content["__function__"], "Give dp.serialize(measurement).")
    return content


def _argument(node: Node, name: str) -> Any:
    if name not in node["__kwargs__"]:
        rule = f"must have the argument {name} of {node['__function__']}"
        raise refusal(WHO, "measurement", rule, sorted(node["__kwargs__"]), "Give dp.serialize(measurement).")
    value = node["__kwargs__"][name]
    return value["__tuple__"] if isinstance(value, dict) and "__tuple__" in value else value


def _parts(node: Node) -> list[tuple[Node, dict[str, Any]]]:
    """The parts of a composition, each with what is known of its records; any other measurement is its only part."""
    function = node["__function__"]
    if function in SAME_LAW:
        return _parts(_call(_argument(node, "measurement")))
    if function in COMPOSED:
        return [part for each in _argument(node, "measurements") for part in _parts(_call(each))]
    if function == "make_chain_mt":
        known = _about(_call(_argument(node, "transformation0")))
        return [(inner, known | said) for inner, said in _parts(_call(_argument(node, "measurement1")))]
    return [(node, {})]


def _released(name: str, node: Node, said: dict[str, Any], value: Any) -> Released:
    function = node["__function__"]
    law = _noisy if function in ADDITIVE else OTHERS.get(function)
    if law is None:
        advice = f"Known are {', '.join([*ADDITIVE, *OTHERS])}; docs/curators.md has their laws."
        raise refusal(WHO, name, "must be a measurement whose law is known", function, advice)
    try:
        item = law(node, value)
    except InputError as error:
        raise error.within(name) from None
    return item.described(**said) if said else item


# Noise -----------------------------------------------------------------------------------------------------------


def _noisy(node: Node, value: Any) -> Released:
    """Additive noise. OpenDP clamps whole numbers to the ends of their type; zero is an end of unsigned ones."""
    function, kind = node["__function__"], _type(_argument(node, "input_domain"))
    if node["__kwargs__"].get("k") is not None:
        advice = "The value then lies on a grid: see 'Lattices and rounding' on the page for curators."
        raise refusal(WHO, "measurement", "must not have a grid of its own (k)", _argument(node, "k"), advice)
    scale = _number(node, "scale")
    on_integers, on_floats = ADDITIVE[function]
    if kind in ("f32", "f64"):
        if on_floats is None:
            raise refusal(WHO, "measurement", f"must not apply {function} to floats", kind, "Check the text.")
        array = np.asarray(value, np.float32 if kind == "f32" else np.float64)
        return as_rounded(on_floats(scale=scale), array).released(array.astype(np.float64))
    low, high = _argument(node, "bounds") if node["__kwargs__"].get("bounds") else _ends(kind)
    mechanism: Mechanism = on_integers(scale=scale)
    if node["__kwargs__"].get("bounds") or low == 0 or np.any((np.asarray(value) <= low) | (np.asarray(value) >= high)):
        mechanism = Clipped(mechanism, low=low, high=high if high < 2**53 else None)
    return mechanism.released(value)


def _ends(kind: str) -> tuple[int, int]:
    """The least and largest number of a type such as i32, u8 or usize."""
    bits = 64 if kind.endswith("size") else int(kind[1:]) if kind[1:].isdigit() else 0
    if kind[:1] not in ("i", "u") or bits not in (8, 16, 32, 64, 128):
        raise refusal(WHO, "measurement", "must add noise to whole numbers or floats", kind, "Check the text.")
    return (0, 2**bits - 1) if kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _canonical(node: Node, value: Any) -> Released:
    epsilon, delta = _argument(node, "d_out")
    return Tulap(epsilon, delta, sensitivity=_number(node, "d_in")).released(value)


def _coin(node: Node, value: Any) -> Released:
    return RandomizedResponse(keep=_number(node, "prob")).released(np.asarray(value).astype(np.int64))


def _answers(node: Node, value: Any) -> Released:
    categories = list(_argument(node, "categories"))
    place = {category: index for index, category in enumerate(categories)}
    single = np.ndim(value) == 0
    words = [value] if single else list(value)
    for word in words:
        checks.known_name(WHO, "values", word, place, f"must be among {categories}")
    indices = np.array([place[word] for word in words], dtype=np.int64)
    mechanism = RandomizedResponse(keep=_number(node, "prob"), categories=len(categories))
    return mechanism.released(indices[0] if single else indices)


def _bits(node: Node, value: Any) -> Released:
    """`f` is the share of bits that a fair coin replaces."""
    return RandomizedResponse(keep=1.0 - _number(node, "f") / 2.0).released(np.asarray(value).astype(np.int64))


def _selected(node: Node, value: Any) -> Released:
    if _argument(node, "negate"):
        advice = "Describe the selection of the least by hand: its scores change sign."
        raise refusal(WHO, "measurement", "must select the largest score", "negate", advice)
    measure = _call(_argument(node, "output_measure"))["__function__"]
    laws: dict[str, Any] = {
        "max_divergence": PermuteAndFlip,
        "zero_concentrated_divergence": ExponentialMechanism,
    }
    checks.choice(WHO, "output_measure", measure, laws)
    selection = laws[measure](scale=_number(node, "scale"))
    if node["__function__"] == "make_noisy_max":
        return selection.released(value)
    return TopSelection(selection, int(_number(node, "k"))).released(value)


OTHERS = {
    "make_canonical_noise": _canonical,
    "make_randomized_response_bool": _coin,
    "make_randomized_response": _answers,
    "make_randomized_response_bitvec": _bits,
    "make_noisy_max": _selected,
    "make_noisy_top_k": _selected,
}


def _number(node: Node, name: str) -> float:
    number = _argument(node, name)
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
        raise refusal(WHO, name, "must be a number", number, "Check the text.")
    return float(number)


# Domains ---------------------------------------------------------------------------------------------------------


def _type(domain: Any) -> str:
    """The type of the numbers in a domain."""
    node = _call(domain)
    function = node["__function__"]
    if function == "atom_domain":
        return str(_argument(node, "T"))
    if function == "vector_domain":
        return _type(_argument(node, "atom_domain"))
    if function in ("transformation_output_domain", "measurement_input_domain"):
        made = _call(_argument(node, "this"))
        return _given(made) if function.startswith("transformation") else _type(_argument(made, "input_domain"))
    advice = "Describe the noise by hand: the page for curators has the laws."
    raise refusal(WHO, "measurement", "must be on numbers or lists of them", function, advice)


def _given(transformation: Node) -> str:
    """The type of the numbers that a transformation returns."""
    function = transformation["__function__"]
    if function == "make_chain_tt":
        return _given(_call(_argument(transformation, "transformation1")))
    if function in TYPED:
        return str(_argument(transformation, TYPED[function]))
    if function in KEEP_TYPE:
        return _type(_argument(transformation, "input_domain"))
    advice = f"Known are {', '.join([*TYPED, *KEEP_TYPE])}."
    raise refusal(WHO, "measurement", "must have transformations that are known", function, advice)


def _about(transformation: Node) -> dict[str, Any]:
    """The bounds that records were clamped to, and their number where the domain states it."""
    said: dict[str, Any] = {}
    for step in reversed(_steps(transformation)):  # from the first step on: a later one overrides
        function, domain = step["__function__"], step["__kwargs__"].get("input_domain")
        if function == "make_clamp":
            said["bounds"] = tuple(_argument(step, "bounds"))
        if function == "make_resize":
            said["records"] = int(_number(step, "size"))
        vector = _vector(domain)
        if vector is not None:
            atoms = _argument(_call(_argument(vector, "atom_domain")), "bounds")
            said |= {"bounds": tuple(atoms)} if atoms else {}
            said |= {"records": int(_argument(vector, "size"))} if _argument(vector, "size") is not None else {}
    return said


def _steps(transformation: Node) -> list[Node]:
    """The steps of a transformation, the last one first."""
    if transformation["__function__"] != "make_chain_tt":
        return [transformation]
    return [
        step
        for name in ("transformation1", "transformation0")
        for step in _steps(_call(_argument(transformation, name)))
    ]


def _vector(domain: Any) -> Node | None:
    """The domain, if it is one of lists and is written out; else None."""
    node = _call(domain) if isinstance(domain, dict) else None
    if node is None or node["__function__"] != "vector_domain":
        return None
    atoms = _call(_argument(node, "atom_domain"))
    return node if atoms["__function__"] == "atom_domain" else None
