"""The model as named nodes with their laws in words: what the graph draws and the text alternative says."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpyro.distributions.distribution import ExpandedDistribution, Independent

from noisewise.model import Model, Total
from noisewise.model.law import Law
from noisewise.model.total import BoundTotal
from noisewise.numerics import double
from noisewise.release import Release
from noisewise.report.markup import listed, whole
from noisewise.report.prior_words import prior_in_words

CLAMPS = {"clip", "clamp", "minimum", "maximum", "min", "max"}
"""Functions that a contribution clamps with."""


@dataclass(frozen=True)
class NodeWords:
    """A parameter, a confidential statistic, or a published value."""

    key: str
    name: str
    kind: str
    """parameter, statistic or release."""
    law: str
    """Where it comes from, in a few words."""
    parents: tuple[str, ...] = ()
    note: str = ""
    """Clamping, where there is any."""
    sentence: str = field(default="", compare=False)


def words_of_nodes(model: Model, release: Release, content: Mapping[str, Any]) -> list[NodeWords]:
    """Every node, parents first. `content` holds an analysis file's tables, empty where the model is written in Python.

    Keys differ from names, because a statistic and its published value share a name.
    """
    nodes = [_node(model, name, content) for name in model.order]
    for name, item in release.items():
        kind = type(item.mechanism).__name__
        clear = kind in ("Exact", "Within")
        noise = "no noise" if clear else kind
        own = name if item.of is None else item.of.statistic
        needs = (f"s:{own}", *(_key(model, input_name) for input_name in item.mechanism.inputs))
        shown = whole(item.value) if np.ndim(item.value) == 0 and not np.isnan(item.value) else ""
        shown = shown or ("withheld" if np.ndim(item.value) == 0 else f"{int(np.size(item.value)):,} values")
        of = "" if own == name else f", measured of {own},"
        sentence = f"{name}{of} was published: {shown}, {'without noise' if clear else f'made noisy by {kind}'}."
        nodes.append(NodeWords(f"r:{name}", name, "release", f"{noise}: {shown}", needs, sentence=sentence))
    return nodes


def _key(model: Model, name: str) -> str:
    return f"{'p' if name in model.parameters else 's'}:{name}"


def _node(model: Model, name: str, content: Mapping[str, Any]) -> NodeWords:
    parents = model.parents(name)
    parameter = name in model.parameters
    node = model.node(name)
    law, note = "", ""
    if isinstance(node, BoundTotal):
        law, note, sentence = _total(name, node.total, content)
    elif isinstance(node, Law):
        stated = content.get("parameters" if parameter else "statistics", {}).get(name)
        law = stated if isinstance(stated, str) else law_name(model, name)
        before = prior_in_words(model, name) if parameter else ""
        prior = f"{law}: {before}" if before else law
        sentence = f"{name}, unknown, has the prior {prior}." if parameter else f"{name}, confidential, follows {law}."
    else:
        law = "simulated by a program"
        sentence = f"{name}, confidential, is simulated by a program that is given {listed(parents) or 'nothing'}."
    kind = "parameter" if parameter else "statistic"
    return NodeWords(
        _key(model, name), name, kind, law, tuple(_key(model, parent) for parent in parents), note, sentence
    )


def _total(name: str, total: Total, content: Mapping[str, Any]) -> tuple[str, str, str]:
    """(law, clamping, sentence) of a sum or mean over records."""
    kind = "means" if name in content.get("means", {}) else "totals"
    stated = content.get(kind, {}).get(name, {})
    n = total.n if isinstance(total.n, str) else f"{total.n:,}"
    law = f"{'mean' if kind == 'means' else 'sum'} over {n} records"
    contribution = stated.get("contribution")
    texts = [contribution] if isinstance(contribution, str) else list(contribution or ())
    used = set(re.findall(r"\w+", " ".join(texts))) if texts else set(_called(total.contribution))
    clamped = bool(used & CLAMPS)
    sentence = f"{name}, confidential, is a {law}"
    if texts:
        sentence += f" of {listed(texts)}"
    record = stated.get("record", {})
    if record:
        sentence += ", with " + listed([f"{key} ~ {value}" for key, value in record.items()])
    sentence += ". What a record adds is clamped, as the curator did." if clamped else ". Nothing is clamped."
    return law, "clamped" if clamped else "not clamped", sentence


def _called(function: Any) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
    return code.co_names if code is not None else ()


def law_name(model: Model, name: str) -> str:
    """The law's name; with its numbers where it depends on nothing and they are few."""
    law = model.law(name)
    parents = ", ".join(law.parents)
    distribution = model.example(name)
    if distribution is None:
        return f"a law given {parents}"
    with double():
        while isinstance(distribution, (Independent, ExpandedDistribution)):
            distribution = distribution.base_dist
        kind = type(distribution).__name__
        numbers = {
            key: np.asarray(vars(distribution)[key])
            for key in distribution.arg_constraints
            if key in vars(distribution)
        }
    shape = model.shape(name)
    times = f", {' by '.join(map(str, shape))} values" if shape else ""
    if law.parents:
        return f"{kind} given {parents}{times}"
    short = {key: value for key, value in numbers.items() if value.size <= 4 and value.dtype.kind in "if"}
    if len(short) < len(numbers) or not numbers:
        return f"{kind}{times}"
    shown = ", ".join(f"{key} {listed([whole(entry) for entry in np.unique(value)])}" for key, value in short.items())
    return f"{kind} ({shown}){times}"
