"""Sums over records of plain arithmetic, by NumPy in the calling thread.

XLA copies what it is given, hands the work to threads of its own and adds one number after the other. A clamped sum is
a comparison or two and an addition for each record: NumPy does that at once on records that are still in the cache.
Only operations that IEEE 754 rounds correctly are taken, so contributions are the same numbers either way, but for a
factor that all records share, which is applied to their sum. Sums along a row of records are NumPy's, in an order that
depends on the number of records alone. See docs/derivations/totals.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.extend.core
import numpy as np

from noisewise.numerics.namespaces import Array, Values
from noisewise.numerics.numpy_programs import ARITHMETIC, REAL_ONLY, operation_of
from noisewise.numerics.precision import double
from noisewise.numerics.scratch import Scratch

Program = Callable[[Values, Array | None], Array]

SCRATCH = Scratch()
RECORDS = 1
"""The axis of records in contributions by row and record."""
FEW = 128
"""Up to this many records NumPy's sums are not yet pairwise, and `einsum` takes a quarter of the time."""
MOST_STEPS = 40
"""Longer programs are worth compiling, even for numbers in the cache."""
# fmt: off
COMPARISONS = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}
# fmt: on
VIEWS = ("reshape", "broadcast_in_dim", "squeeze", "slice", "transpose", "convert_element_type")
CALLS = ("jit", "pjit", "closed_call")


@dataclass(eq=False)
class Node:
    """One array of the program: the operation that makes it from others; None for an input or a constant."""

    operation: Callable[..., Any] | None = None
    """Takes a list of arrays; where `fills`, the arrays one by one, and `out`."""
    inputs: tuple["Node", ...] = ()
    step: Any = None
    known: Any = None
    fills: bool = False

    @property
    def kind(self) -> str:
        """The name of the operation."""
        return self.step.primitive.name if self.step is not None else ""

    @property
    def views(self) -> bool:
        """Whether it may share its argument's memory."""
        return self.kind in VIEWS


class NotPlain(Exception):
    """The program is more than plain arithmetic."""


class PlainSums:
    """Sums over records of f(values), the contributions by row and record; `build()` returns the function f.

    A program is made for each shape of the values, which takes a few milliseconds; none where the function is more than
    arithmetic. The names of values must always come in the same order. Programs are not pickled.
    """

    def __init__(self, build: Callable[[], Callable[[Values], Any]]) -> None:
        self._build, self._programs = build, dict[Any, Program | None]()

    def __getstate__(self) -> Any:
        return self._build

    def __setstate__(self, build: Any) -> None:
        PlainSums.__init__(self, build)

    def __call__(self, values: Values, counted: Array | None = None) -> Array:
        """By row, the sum over the records that are `counted`, marked by row and record; None for all.

        There must be a program for such values.
        """
        program = self.program(values)
        assert program is not None
        return program(values, counted)

    def program(self, values: Values) -> "Program | None":
        """The program for values of such shapes; None where the function is more than arithmetic."""
        key = tuple([value.shape for value in values.values()])
        if key not in self._programs:
            with double():
                self._programs[key] = _program(self._build(), values)
        return self._programs[key]


def _program(function: Callable[[Values], Any], values: Values, factor_last: bool = True) -> Program | None:
    """The program, or None where the function is more than arithmetic.

    With `factor_last`, a number by which every record is multiplied or divided is applied to the sum instead; where
    the result is not finite, it is applied record by record after all.
    """
    traced = jax.make_jaxpr(function)(values)
    names = sorted(values)  # the order in which JAX takes a dict apart
    inputs = [Node() for _ in names]
    try:
        (output,) = _nodes(traced.jaxpr, inputs, traced.consts)
        parts = _added_apart(output, RECORDS, factor_last)
        steps = _in_order(parts.leaves)
    except NotPlain:
        return None
    if len(steps) > MOST_STEPS:
        return None

    places = _places(steps, parts.leaves)
    shapes: Values = {name: jax.ShapeDtypeStruct(one.shape, one.dtype) for name, one in values.items()}

    def run(values: Values, counted: Array | None) -> Array:
        made = {node: np.asarray(values[name]) for node, name in zip(inputs, names, strict=True)}

        def value(node: Node) -> Any:
            return made[node] if node.known is None else node.known

        with np.errstate(all="ignore"):
            for node in steps:
                given = [value(one) for one in node.inputs]
                assert node.operation is not None
                made[node] = (
                    node.operation(*given, out=SCRATCH.array(*places[node]))
                    if node in places
                    else node.operation(given)
                )
            summed = parts.put_together(lambda node: _added(value(node), counted))
        if not parts.factored or np.all(np.isfinite(summed)):
            return summed
        return one_by_one()(values, counted)

    @cache
    def one_by_one() -> Program:
        with double():
            program = _program(function, shapes, factor_last=False)
        assert program is not None
        return program

    return run


def _places(steps: Sequence[Node], leaves: Sequence[Node]) -> dict[Node, tuple[int, tuple[int, ...], Any]]:
    """For each node that fills scratch memory: place, shape and type; a place that is no longer read is reused."""
    owner: dict[Node, Node] = {}
    last: dict[Node, int] = {}
    for number, node in enumerate(steps):
        for one in node.inputs:
            last[owner.get(one, one)] = number
        owner[node] = owner.get(node.inputs[0], node.inputs[0]) if node.views else node
    last |= {owner.get(leaf, leaf): len(steps) for leaf in leaves}
    places: dict[Node, tuple[int, tuple[int, ...], Any]] = {}
    for number, node in enumerate(steps):
        if node.fills:  # never in place of its own arguments: those are read until the step is over
            taken = {places[one][0] for one, when in last.items() if when >= number and one in places}
            aval = node.step.outvars[0].aval
            free = next(place for place in range(len(steps)) if place not in taken)
            places[node] = (free, aval.shape, aval.dtype)
    return places


def _added(contributions: Any, counted: Any) -> Any:
    """By row, the sum over records."""
    if counted is not None:
        places = counted.reshape(counted.shape + (1,) * (np.ndim(contributions) - 2))
        contributions = np.where(places, contributions, 0)
    if np.ndim(contributions) == 2 and contributions.shape[RECORDS] <= FEW:
        return np.einsum("ij->i", contributions)
    return np.sum(contributions, axis=RECORDS)


def _nodes(program: Any, inputs: Sequence[Node], constants: Sequence[Any]) -> list[Node]:
    """The outputs of a traced program as nodes above `inputs`; programs that it calls are taken apart."""
    here: dict[Any, Node] = dict(zip(program.invars, inputs, strict=True))
    here |= {variable: Node(known=np.array(one)) for variable, one in zip(program.constvars, constants, strict=True)}

    def node(variable: Any) -> Node:
        known = isinstance(variable, jax.extend.core.Literal)
        return Node(known=np.asarray(variable.val)) if known else here[variable]

    for step in program.eqns:
        given = [node(variable) for variable in step.invars]
        if step.primitive.name in CALLS and "jaxpr" in step.params:
            inner = step.params["jaxpr"]
            here.update(zip(step.outvars, _nodes(inner.jaxpr, given, inner.consts), strict=True))
        else:
            here[step.outvars[0]] = _clipped(step, given) or _node(step, given)
    return [node(variable) for variable in program.outvars]


def _node(step: Any, given: list[Node]) -> Node:
    ufunc = _ufunc(step)
    operation = ufunc if ufunc is not None else _operation(step)
    return Node(operation, tuple(given), step, fills=ufunc is not None)


def _clipped(step: Any, given: list[Node]) -> Node | None:
    """min(high, max(low, array)) for numbers `low` and `high` as one `np.clip`, in half the time; else None."""
    if step.primitive.name != "min" or step.invars[0].aval.dtype.kind != "f":
        return None
    high, inside = (given[0], given[1]) if _is_number(given[0]) else (given[1], given[0])
    if inside.kind != "max" or not _is_number(high):
        return None
    low, array = inside.inputs if _is_number(inside.inputs[0]) else inside.inputs[::-1]
    return Node(np.clip, (array, low, high), step, fills=True) if _is_number(low) else None


def _is_number(node: Node) -> bool:
    """Whether it is a single number written into the program, perhaps as another type."""
    if node.kind == "convert_element_type":
        return _is_number(node.inputs[0])
    return node.known is not None and node.known.ndim == 0


def _in_order(ends: Sequence[Node]) -> list[Node]:
    """Every node that `ends` are made of, each after those that it needs."""
    nodes: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node in nodes or node.step is None:
            return
        if node.operation is None:
            raise NotPlain
        for one in node.inputs:
            visit(one)
        nodes[node] = None

    for node in ends:
        visit(node)
    return list(nodes)


# Sums ------------------------------------------------------------------------------------------------------


@dataclass
class SummedParts:
    """A sum over one axis, as sums of arrays ("leaves") that are put together afterwards."""

    leaves: list[Node]
    put_together: Callable[[Callable[[Node], Any]], Any]
    """(function from a leaf to its sum over records) -> the whole sum."""
    factored: bool = False
    """Whether a factor that all records share is applied to the sum."""


def _added_apart(node: Node, axis: int, factor_last: bool) -> SummedParts:
    """The sum of `node` over `axis`, from the arrays it was stacked from: no stack of records is ever made."""
    scaled = _scaled(node) if factor_last else None
    if scaled is not None:
        array, scale = scaled
        parts = _added_apart(array, axis, factor_last=False)
        return SummedParts(parts.leaves, lambda summed: scale(parts.put_together(summed)), factored=True)
    if node.kind == "transpose":
        order = node.step.params["permutation"]
        axes_left = [old - (old > order[axis]) for new, old in enumerate(order) if new != axis]
        untransposed = _added_apart(node.inputs[0], order[axis], factor_last)
        return _moved(untransposed, lambda summed: np.transpose(summed, axes_left))
    if node.kind in ("stack", "concatenate"):
        place = node.step.params["axis" if node.kind == "stack" else "dimension"]
        if place != axis:
            inside = axis - (node.kind == "stack" and place < axis)
            join = np.stack if node.kind == "stack" else np.concatenate
            pieces = [_added_apart(one, inside, factor_last) for one in node.inputs]
            return _joined(pieces, join, place - (axis < place))
    if node.kind == "broadcast_in_dim" and len(node.inputs) == 1:
        places, shape = list(node.step.params["broadcast_dimensions"]), node.step.params["shape"]
        if axis in places and len(places) > 1 and np.prod(node.step.invars[0].aval.shape) == np.prod(shape):
            rest = tuple(size for number, size in enumerate(shape) if number != axis)
            summed = _added_apart(node.inputs[0], places.index(axis), factor_last)
            return _moved(summed, lambda value: np.reshape(value, rest))
    if axis != RECORDS:
        raise NotPlain
    return SummedParts([node], lambda summed: summed(node))


def _scaled(node: Node) -> tuple[Node, Callable[[Any], Any]] | None:
    """The array that is multiplied or divided by a factor, and how to apply the factor to its sum; else None."""
    if node.kind not in ("mul", "div") or not node.fills or node.step.outvars[0].aval.dtype.kind != "f":
        return None
    first, second = node.inputs
    if _is_factor(second):
        number = second.known
        return first, (lambda summed: summed * number) if node.kind == "mul" else (lambda summed: summed / number)
    if node.kind == "mul" and _is_factor(first):
        return second, lambda summed: first.known * summed
    return None


def _is_factor(node: Node) -> bool:
    """Whether it is a real constant, finite and not zero, which may be taken out of a sum."""
    known = node.known
    return (
        known is not None and known.ndim == 0 and known.dtype == np.float64 and bool(np.isfinite(known) & (known != 0))
    )


def _moved(parts: SummedParts, move: Callable[[Any], Any]) -> SummedParts:
    return SummedParts(parts.leaves, lambda summed: move(parts.put_together(summed)), parts.factored)


def _joined(pieces: list[SummedParts], join: Any, axis: int) -> SummedParts:
    leaves = [leaf for piece in pieces for leaf in piece.leaves]
    factored = any(piece.factored for piece in pieces)
    return SummedParts(leaves, lambda summed: join([one.put_together(summed) for one in pieces], axis=axis), factored)


# Operations ------------------------------------------------------------------------------------------------


def _ufunc(step: Any) -> Callable[..., Any] | None:
    """The NumPy ufunc that does a step on numbers; None where there is none."""
    name, kinds = step.primitive.name, {variable.aval.dtype.kind for variable in step.invars}
    if kinds == {"f"} and name in REAL_ONLY:
        return REAL_ONLY[name]
    if kinds == {"f"} and (name == "square" or (name == "integer_pow" and step.params["y"] == 2)):
        return np.square
    return ARITHMETIC.get(name) if kinds <= {"f", "i"} else None


def _operation(step: Any) -> Callable[[list[Any]], Any] | None:
    """A step as a function of the list of its arguments; None for all but arithmetic, comparisons and reordering."""
    name, params = step.primitive.name, step.params
    kinds = {variable.aval.dtype.kind for variable in step.invars}
    if name in COMPARISONS:
        return lambda values: COMPARISONS[name](*values)
    if name == "select_n" and step.invars[0].aval.dtype.kind == "b" and len(step.invars) == 3:
        return lambda values: np.where(values[0], values[2], values[1])
    if name == "clamp" and kinds <= {"f", "i"}:  # as XLA defines it
        return lambda values: np.minimum(np.maximum(values[1], values[0]), values[2])
    if name == "convert_element_type" and kinds <= {"b", "i"} and np.dtype(params["new_dtype"]) in (np.int64, float):
        return lambda values: np.asarray(values[0], dtype=params["new_dtype"])
    if name == "stack":
        return lambda values: np.stack(values, axis=params["axis"])
    if name == "concatenate":
        return lambda values: np.concatenate(values, axis=params["dimension"])
    if name == "transpose":
        return lambda values: np.transpose(values[0], params["permutation"])
    if name == "squeeze":
        return lambda values: np.reshape(values[0], step.outvars[0].aval.shape)
    if name == "slice" and params["strides"] is None:
        cut = tuple(map(slice, params["start_indices"], params["limit_indices"]))
        return lambda values: values[0][cut]
    return operation_of(step)
