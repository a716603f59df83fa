"""A model as Python text: what an everyday function writes, runs to make its `Model`, and leaves in `model.code`."""

import ast
import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpyro.distributions as dist

from noisewise.errors import refusal
from noisewise.model import Model

WIDTH = 118
CALLS = {
    "nw": {"Model", "Total"},
    "np": {"array"},
    "jnp": {"clip", "exp", "log", "ones", "stack"},
    "dist": set(dist.__all__),
    "": {"expand", "reshape", "sum", "to_event"},
}
"""Functions that may be called, by module; under "", methods that may be called on anything else."""
PLAIN = (
    *(
        ast.Module,
        ast.Assign,
        ast.Expr,
        ast.FunctionDef,
        ast.Return,
        ast.Lambda,
        ast.arguments,
        ast.arg,
        ast.Import,
        ast.alias,
    ),
    *(ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.Subscript, ast.Constant, ast.Dict, ast.List, ast.Tuple),
    *(ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context),
)
"""The Python that models are written in."""
IMPORTS = {
    "jnp.": "import jax.numpy as jnp",
    "np.": "import numpy as np",
    "dist.": "import numpyro.distributions as dist",
}


@dataclass(frozen=True)
class Written:
    """The parts of a model as text. Names neither of parameters nor in the release are the function's `own`."""

    prior: Mapping[str, str]
    statistics: Mapping[str, str]
    derived: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    """Arrays and functions that stand before the model."""
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    coords: Mapping[str, list[Any]] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    """Names of record fields, and of statistics that were not released."""
    quantity: str = ""
    """The parameter that the question is about."""

    @property
    def text(self) -> str:
        """Python that makes the model, and calls it `model`."""
        arguments = [_dictionary("prior", self.prior), _dictionary("statistics", self.statistics)]
        arguments += [_dictionary("derived", self.derived)] if self.derived else []
        arguments += [f"    {name}={quoted(value)},\n" for name, value in self._labels.items() if value]
        body = "".join(f"{part}\n" for part in [*self.before, f"model = nw.Model(\n{''.join(arguments)})"])
        used = [line for mark, line in IMPORTS.items() if mark in body.replace("jnp.", "" if mark == "np." else "jnp.")]
        return "\n".join([*used, "", "import noisewise as nw", "", body])

    @property
    def _labels(self) -> dict[str, dict[str, Any]]:
        return {"dims": dict(self.dims), "coords": {axis: list(labels) for axis, labels in self.coords.items()}}

    def model(self) -> Model:
        """The model that the text makes; `model.code` is the text."""
        namespace: dict[str, Any] = {"__name__": "everyday"}
        exec(compile(harmless(self.text), "<everyday>", "exec"), namespace)
        model: Model = namespace["model"]
        model.code = Code.of(self)
        return model

    def renamed(self, ending: str) -> "Written":
        """The same with `ending` on every name that the release does not have."""
        names = {name: f"{name}_{ending}" for name in (*self.prior, *self.own)}

        def changed(part: Mapping[str, str]) -> dict[str, str]:
            return {names.get(name, name): _renamed(text, names) for name, text in part.items()}

        return replace(
            self,
            prior=changed(self.prior),
            statistics=changed(self.statistics),
            own=tuple(names[name] for name in self.own),
            quantity=names[self.quantity],
        )


class Code(str):
    """The text of a model; `parts` holds the parts that it was put together from."""

    parts: Written

    @classmethod
    def of(cls, written: Written) -> "Code":
        """The text of a model from its parts."""
        code = cls(written.text)
        code.parts = written
        return code


def harmless(text: str) -> ast.Module:
    """The parsed text of a model; refused if it does anything but call laws and arithmetic.

    Names and labels come from releases, and a release is data: nothing written in one may ever run. Names are
    identifiers and labels are quoted, so nothing can; this makes sure of it.
    """
    tree = ast.parse(text)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        allowed = isinstance(node, PLAIN)
        if isinstance(node, ast.Import):
            allowed = ast.unparse(node) in {*IMPORTS.values(), "import noisewise as nw"}
        elif isinstance(node, ast.FunctionDef):
            allowed = not node.decorator_list
        elif isinstance(node, ast.Call):
            allowed = isinstance(node.func, ast.Attribute)
        elif isinstance(node, ast.Attribute):
            module = node.value.id if isinstance(node.value, ast.Name) and node.value.id in CALLS else ""
            allowed = id(node) in called and node.attr in CALLS[module]
        if not allowed:
            rule, advice = "must only call laws and arithmetic", "Write the model by hand, with nw.Model."
            raise refusal("everyday models", "code", rule, ast.unparse(node), advice)
    return tree


class _Names(ast.NodeTransformer):
    """Names in an expression changed where they are read, where they are arguments, and where they are text."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self.names.get(node.arg, node.arg))

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(self.names.get(node.value, node.value) if isinstance(node.value, str) else node.value)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    return ast.unparse(_Names(names).visit(ast.parse(text, mode="eval")))


def _dictionary(argument: str, entries: Mapping[str, str]) -> str:
    lines = "".join(textwrap.indent(f'"{name}": {text},\n', " " * 8) for name, text in entries.items())
    return f"    {argument}={{\n{lines}    }},\n"


def quoted(value: Any) -> str:
    """Names, labels, and dicts, lists and tuples of them, as Python with double quotes."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(key)}: {quoted(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(quoted, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside},)"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def array(values: Any) -> str:
    """An array as Python, all digits."""
    return f"np.array({np.asarray(values).tolist()!r})"


def named_array(name: str, values: Any) -> str:
    """An assignment of an array to a name, on as many lines as it takes."""
    return textwrap.fill(
        f"{name} = {array(values)}", WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def in_three_digits(value: float) -> str:
    """A number as text, rounded to three digits, for default priors: they are a choice, and are printed."""
    return repr(float(f"{value:.3g}"))
