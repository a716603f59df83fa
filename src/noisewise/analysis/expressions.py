"""Expressions of analysis files: `Normal(mu + tau, sigma / sqrt(185))` as a function, by a small whitelist grammar.

The text is parsed by Python's `ast` and every node is translated by hand: numbers, names, arithmetic, comparisons
inside `where`, calls of the functions and laws in vocabulary.py, lists, whole-numbered subscripts. Nothing is ever
evaluated as code; whatever is not named here is refused, with its place.
"""

import ast
import difflib
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np

from noisewise.analysis.vocabulary import COUNTED, FUNCTIONS, LAWS, MOST_ENTRIES, broken_rule, missing_of, parameters_of
from noisewise.errors import InputError
from noisewise.model.graph import function_of
from noisewise.numerics import Values

LONGEST = 2_000
"""Characters of an expression."""
DEEPEST = 100
"""Levels of nesting; a sum of n terms has n."""
WHOLE = 2**53
"""Whole numbers up to here are exact in double precision."""
Constants = Mapping[str, int | float]
CONSTANTS: Constants = {"pi": math.pi}
EXAMPLE = "For example Normal(mu, 2 * sigma)."
SYNONYMS = {
    **dict.fromkeys(("sd", "std", "stdev", "sigma"), ("scale",)),
    **dict.fromkeys(("mean", "mu", "average"), ("loc",)),
    **dict.fromkeys(("p", "prob", "probability"), ("probs",)),
    "n": ("total_count", "Normal"),
    "lambda": ("rate",),
    "shape": ("concentration",),
    "exp": ("Exponential",),
    "ln": ("log",),
    "bin": ("Binomial",),
    "t": ("StudentT",),
}
"""What people call things elsewhere, and what they are called here."""

Run = Callable[[Values], Any]


class ExpressionError(InputError):
    """A part of an expression that cannot be honoured; `start` and `end` are its characters in the text."""

    def __init__(self, cause: str, start: int, end: int, label: Any = None) -> None:
        super().__init__(cause)
        self.start, self.end, self.label = start, end, label


@dataclass(frozen=True)
class Expression:
    """A parsed expression: its text, the names it depends on, and how it is computed from their values."""

    text: str
    names: tuple[str, ...]
    run: Run

    def divided_by(self, n: int) -> "Expression":
        """The expression divided by n."""
        return Expression(self.text, self.names, lambda values: self.run(values) / n)

    def function(self) -> Callable[..., Any]:
        """A function whose arguments are the names, as `nw.Model` and `nw.Total` take it."""
        return function_of(self.names, self.run)


@dataclass(frozen=True)
class _Piece:
    """A translated node. `value` holds the number (or list of numbers) where it depends on no name."""

    run: Run
    value: Any = None

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, (int, float))


def together(parts: Iterable[Expression]) -> Callable[..., Any]:
    """A function that returns the values of several expressions as one vector."""
    expressions = tuple(parts)
    names = tuple(dict.fromkeys(name for part in expressions for name in part.names))
    return function_of(names, lambda values: jnp.stack([jnp.asarray(part.run(values)) for part in expressions]))


def parse_law(text: str, known: Iterable[str], label: Any = None, constants: Constants = CONSTANTS) -> Expression:
    """A law such as `Normal(mu, 1)`. `known` are the names it may use; `label` comes back with errors."""
    parser = _Parser(text, known, label, constants)
    return parser.finish(parser.law(parser.root))


def parse_number(text: str, known: Iterable[str], label: Any = None, constants: Constants = CONSTANTS) -> Expression:
    """A number or array such as `clip(x, 0, 1)`."""
    parser = _Parser(text, known, label, constants)
    return parser.finish(parser.number(parser.root, 0).run)


def parse_answer(text: str, known: Iterable[str], label: Any = None, constants: Constants = CONSTANTS) -> Expression:
    """What is asked for: a number or array such as `mu_1 - mu_2`, or a condition such as `treated > control`."""
    parser = _Parser(text, known, label, constants)
    expression = parser.finish(parser.number(parser.root, 0, condition=True).run)
    if not expression.names:
        raise parser.error(parser.root, f"must use a parameter or a statistic. {_near('', known)}")
    return expression


class _Parser:
    """Translates one expression; every refusal carries the place."""

    def __init__(self, text: str, known: Iterable[str], label: Any, constants: Constants) -> None:
        self.text, self.label, self.known, self.constants = text, label, set(known), constants
        self.used: dict[str, None] = {}
        # Positions stay: every kind of blank becomes one space, and only leading ones are taken off.
        flat = "".join(" " if character in "\n\r\t" else character for character in text)
        self.shift = len(flat) - len(flat.lstrip(" "))
        self.flat = flat[self.shift :]
        self.root = self._tree()

    def finish(self, run: Run) -> Expression:
        return Expression(self.text, tuple(self.used), run)

    # Places and refusals -----------------------------------------------------------------------------

    def error(self, node: ast.AST | None, cause: str) -> ExpressionError:
        start, end = self.shift, len(self.text)
        if node is not None and hasattr(node, "col_offset"):
            encoded = self.flat.encode()
            start = self.shift + len(encoded[: node.col_offset].decode(errors="replace"))
            last: int = node.end_col_offset  # type: ignore[attr-defined]  # comes with col_offset
            end = self.shift + len(encoded[:last].decode(errors="replace"))
        return ExpressionError(cause, start, end, self.label)

    def _tree(self) -> ast.AST:
        if not self.flat.strip():
            raise self.error(None, f"the expression is empty. {EXAMPLE}")
        if len(self.text) > LONGEST:
            raise self.error(None, f"the expression is longer than {LONGEST} characters. Split it.")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self.flat, mode="eval").body
        except SyntaxError as error:
            place = self.shift + error.offset - 1 if error.offset and error.lineno == 1 else len(self.text.rstrip())
            gap = "between two parts there must be a comma, or a sign such as *"
            message = (error.msg or "invalid syntax").replace("Perhaps you forgot a comma?", gap).replace(". b", ": b")
            raise ExpressionError(f"not an expression: {message}. {EXAMPLE}", place, place + 1, self.label) from None
        except (ValueError, MemoryError, RecursionError):
            raise self.error(None, "the expression is nested too deeply, or holds odd characters. Split it.") from None

    # Laws --------------------------------------------------------------------------------------------

    def law(self, node: ast.AST) -> Run:
        if not isinstance(node, ast.Call):
            raise self.error(node, f"must be a law. {EXAMPLE}")
        name = self._called(node, "a law", LAWS)
        parameters = list(parameters_of(name))
        arguments, places = self._arguments(node, name, parameters)
        size = self._size(node)
        lacking = missing_of(name, set(arguments))
        if lacking is not None:
            raise self.error(node, f"{name} {lacking}. Its arguments: {', '.join(parameters)}.")
        for argument, piece in arguments.items():
            rule = None if piece.value is None else broken_rule(name, argument, piece.value)
            if rule is not None:
                raise self.error(places[argument], f"'{argument}' of {name} {rule}; got {piece.value}.")
        make, runs = LAWS[name], {argument: _as_parameter(argument, piece) for argument, piece in arguments.items()}

        def build(values: Values) -> Any:
            distribution = make(**{argument: run(values) for argument, run in runs.items()}, validate_args=False)
            return distribution if size is None else distribution.expand((size, *distribution.batch_shape))

        return self._guarded(node, build)

    def _arguments(
        self, node: ast.Call, law: str, parameters: list[str]
    ) -> tuple[dict[str, _Piece], dict[str, ast.AST]]:
        positional = [n for n, p in parameters_of(law).items() if p.kind is not p.KEYWORD_ONLY]
        pieces: dict[str, _Piece] = {}
        places: dict[str, ast.AST] = {}
        pairs: list[tuple[str, ast.AST, ast.AST]] = []  # argument, value, where to point
        for number, value in enumerate(node.args):
            if number >= len(positional):
                listed = ", ".join(parameters)
                raise self.error(value, f"{law} takes at most {len(positional)} unnamed arguments: {listed}.")
            pairs.append((positional[number], value, value))
        for keyword in node.keywords:
            if keyword.arg == "size":
                continue
            if keyword.arg is None:
                raise self.error(keyword, f"write the arguments of {law} out: {', '.join(parameters)}.")
            if keyword.arg not in parameters:
                near = _near(keyword.arg, [*parameters, "size"])
                raise self.error(keyword, f"'{keyword.arg}' is not an argument of {law}. {near}")
            pairs.append((keyword.arg, keyword.value, keyword))
        for argument, value_node, place in pairs:
            if argument in pieces:
                raise self.error(place, f"'{argument}' of {law} is given twice.")
            pieces[argument], places[argument] = self.number(value_node, 1), value_node
        return pieces, places

    def _size(self, node: ast.Call) -> int | None:
        keywords = [keyword for keyword in node.keywords if keyword.arg == "size"]
        if not keywords:
            return None
        if len(keywords) > 1:
            raise self.error(keywords[1], "'size' is given twice.")
        value = self.number(keywords[0].value, 1).value
        if not isinstance(value, int) or not 1 <= value <= MOST_ENTRIES:
            raise self.error(keywords[0].value, f"'size' must be a whole number from 1 to {MOST_ENTRIES:,}.")
        return value

    def _called(self, node: ast.Call, what: str, table: Mapping[str, Any]) -> str:
        if not isinstance(node.func, ast.Name):
            raise self.error(node.func, f"must be {what} by its plain name, without dots. {EXAMPLE}")
        name = node.func.id
        if name in table:
            return name
        if name in FUNCTIONS:
            raise self.error(node.func, f"'{name}' is a function, and {what} must stand here. {EXAMPLE}")
        if name in LAWS:
            advice = "Give it a line of its own, and use that name here."
            raise self.error(node.func, f"'{name}' is a law, and a number must stand here. {advice}")
        raise self.error(node.func, f"'{name}' is not {what}. {_near(name, table)}")

    # Numbers -----------------------------------------------------------------------------------------

    def number(self, node: ast.AST, depth: int, condition: bool = False) -> _Piece:
        if depth > DEEPEST:
            raise self.error(node, f"the expression is nested more than {DEEPEST} deep. Split it.")
        if condition and isinstance(node, (ast.Compare, ast.BoolOp)):
            return self._condition(node, depth)
        if condition and isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.number(node.operand, depth + 1, True).run
            return _Piece(lambda values: jnp.logical_not(inner(values)))
        translate = _TRANSLATED.get(type(node))
        if translate is None:
            raise self.error(node, _REFUSED.get(type(node), "this is not part of the grammar of expressions") + ".")
        return translate(self, node, depth)

    def _constant(self, node: ast.Constant, depth: int) -> _Piece:
        value = node.value
        if isinstance(value, (bool, str, bytes, complex)) or value is None or value is ...:
            raise self.error(node, "only plain numbers can stand here, no text, no true or false.")
        if isinstance(value, int) and value > WHOLE:
            raise self.error(node, "whole numbers must not exceed 2**53. Write a decimal number, such as 1e20.")
        if not math.isfinite(value):
            raise self.error(node, "the number is too large.")
        return _plain(value)

    def _name(self, node: ast.Name, depth: int) -> _Piece:
        name = node.id
        if name not in self.known and name in self.constants:
            return _plain(self.constants[name])
        if name not in self.known:
            near = _near(name, self.known)
            if name in FUNCTIONS or name in LAWS:
                raise self.error(node, f"'{name}' needs arguments, in brackets. {near}")
            raise self.error(node, f"'{name}' is not a name that can be used here. {near}")
        self.used[name] = None
        return _Piece(lambda values: values[name])

    def _unary(self, node: ast.UnaryOp, depth: int) -> _Piece:
        inner = self.number(node.operand, depth + 1)
        if isinstance(node.op, ast.UAdd):
            return inner
        if not isinstance(node.op, ast.USub):
            raise self.error(node, "'not' and '~' can only stand in a condition, as of where().")
        return _plain(-inner.value) if inner.is_number else _Piece(lambda values: -inner.run(values))

    def _binary(self, node: ast.BinOp, depth: int) -> _Piece:
        operation = _OPERATIONS.get(type(node.op))
        if operation is None:
            raise self.error(node, "only + - * / and ** (power) combine numbers. Use where() for conditions.")
        left, right = self.number(node.left, depth + 1), self.number(node.right, depth + 1)
        if isinstance(node.op, ast.Div) and right.is_number and right.value == 0:
            raise self.error(node.right, "division by zero.")
        if left.is_number and right.is_number:
            return self._folded(node, lambda: operation(left.value, right.value))
        return _Piece(self._guarded(node, lambda values: operation(left.run(values), right.run(values))))

    def _folded(self, node: ast.AST, compute: Callable[[], Any]) -> _Piece:
        """Arithmetic of plain numbers, done now in double precision."""
        try:
            with np.errstate(all="ignore"):
                value = compute()
        except ZeroDivisionError:  # a negative power of zero
            raise self.error(node, "division by zero.") from None
        except OverflowError:
            raise self.error(node, "the number is too large.") from None
        if isinstance(value, complex) or math.isnan(value):
            raise self.error(node, "this is not a real number.")
        if math.isinf(value) or (isinstance(value, int) and abs(value) > WHOLE):
            raise self.error(node, "the number is too large, or not finite.")
        return _plain(value)

    def _list(self, node: ast.List | ast.Tuple, depth: int) -> _Piece:
        if isinstance(node, ast.Tuple):
            raise self.error(node, "lists are written in square brackets, [1, 2].")
        if not node.elts:
            raise self.error(node, "a list must not be empty.")
        parts = [self.number(part, depth + 1) for part in node.elts]
        run = self._guarded(node, lambda values: FUNCTIONS["stack"].run(*(part.run(values) for part in parts)))
        if any(part.value is None for part in parts):
            return _Piece(run)
        if len({np.shape(part.value) for part in parts}) > 1:
            raise self.error(node, "the rows of a matrix must be equally long.")
        return _Piece(run, [part.value for part in parts])

    def _subscript(self, node: ast.Subscript, depth: int) -> _Piece:
        inner = self.number(node.value, depth + 1)
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        index: list[int] = []
        for part in inside:
            value = None if isinstance(part, ast.Slice) else self.number(part, depth + 1).value
            if not isinstance(value, int):
                raise self.error(part, "a subscript must be a whole number; the first entry is [0].")
            index.append(value)

        def pick(values: Values) -> Any:
            array = jnp.asarray(inner.run(values))
            fits = len(index) <= array.ndim
            if not fits or any(not -n <= i < n for i, n in zip(index, array.shape, strict=False)):
                raise self.error(node, f"the subscript is outside: the value has shape {array.shape}, counted from 0.")
            return array[tuple(index)]

        return _Piece(pick)

    def _call(self, node: ast.Call, depth: int) -> _Piece:
        name = self._called(node, "a function", FUNCTIONS)
        function = FUNCTIONS[name]
        if node.keywords:
            raise self.error(node.keywords[0], f"{name} takes no named arguments.")
        if not function.least <= len(node.args) <= function.most:
            count = str(function.least) if function.least == function.most else f"at least {function.least}"
            raise self.error(node, f"{name} takes {count} argument(s), got {len(node.args)}.")
        parts = [self.number(argument, depth + 1, name == "where" and i == 0) for i, argument in enumerate(node.args)]
        if function.on_numbers is not None and all(part.is_number for part in parts):
            on_numbers = function.on_numbers
            return self._folded(node, lambda: on_numbers(*(part.value for part in parts)).item())
        return _Piece(self._guarded(node, lambda values: function.run(*(part.run(values) for part in parts))))

    def _condition(self, node: ast.Compare | ast.BoolOp, depth: int) -> _Piece:
        if isinstance(node, ast.BoolOp):
            joined: Callable[..., Any] = jnp.logical_and if isinstance(node.op, ast.And) else jnp.logical_or
            parts = [self.number(part, depth + 1, True).run for part in node.values]
            return _Piece(lambda values: reduce(joined, [part(values) for part in parts]))
        for sign in node.ops:
            if type(sign) not in _COMPARISONS:
                raise self.error(node, "only < <= > >= == and != compare numbers.")
        sides = [self.number(side, depth + 1).run for side in (node.left, *node.comparators)]
        signs = [_COMPARISONS[type(sign)] for sign in node.ops]

        def compare(values: Values) -> Any:
            compared = [side(values) for side in sides]
            pairs = zip(signs, compared[:-1], compared[1:], strict=True)
            return reduce(jnp.logical_and, [sign(left, right) for sign, left, right in pairs])

        return _Piece(self._guarded(node, compare))

    def _guarded(self, node: ast.AST, run: Run) -> Run:
        """`run`, but errors of JAX or NumPyro, such as shapes that do not fit, are raised with the place of `node`."""

        def guarded(values: Values) -> Any:
            try:
                return run(values)
            except ExpressionError:
                raise
            except (TypeError, ValueError, AssertionError) as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise self.error(node, f"cannot be computed: {reason.rstrip('.')}.") from None

        return guarded


def _near(word: Any, known: Iterable[str]) -> str:
    """Advice that names the nearest known word, whatever its capitals or usual synonyms, or else all known words."""
    words = sorted(known)
    lowered = {candidate.lower(): candidate for candidate in reversed(words)}
    close = [candidate for candidate in SYNONYMS.get(str(word).lower(), ()) if candidate in words]
    close += [lowered[candidate] for candidate in difflib.get_close_matches(str(word).lower(), lowered, n=1)]
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(words) or 'none'}."


def _plain(value: Any) -> _Piece:
    return _Piece(lambda values: value, value)


def _as_parameter(argument: str, piece: _Piece) -> Run:
    """A law's parameter: plain whole numbers become decimal ones, except where the law counts with them."""
    if piece.value is None or argument in COUNTED:
        return piece.run
    if piece.is_number:
        decimal = float(piece.value)
        return lambda values: decimal
    return lambda values: jnp.asarray(piece.value, dtype=float)


def _power(base: Any, exponent: Any) -> Any:
    """Powers in floating point first, so that 10**10**10 overflows at once instead of filling the memory."""
    if isinstance(base, (int, float)) and isinstance(exponent, (int, float)):
        rough = float(base) ** float(exponent)
        whole = isinstance(base, int) and isinstance(exponent, int) and exponent >= 0 and abs(rough) <= WHOLE
        return base**exponent if whole else rough
    if isinstance(exponent, int) and 0 <= exponent <= 64:
        return base**exponent
    return jnp.power(jnp.asarray(base, dtype=float), exponent)


_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
    ast.Pow: _power,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: lambda left, right: jnp.less(left, right),
    ast.LtE: lambda left, right: jnp.less_equal(left, right),
    ast.Gt: lambda left, right: jnp.greater(left, right),
    ast.GtE: lambda left, right: jnp.greater_equal(left, right),
    ast.Eq: lambda left, right: jnp.equal(left, right),
    ast.NotEq: lambda left, right: jnp.not_equal(left, right),
}
_TRANSLATED: dict[type[ast.AST], Callable[[_Parser, Any, int], _Piece]] = {
    ast.Constant: _Parser._constant,
    ast.Name: _Parser._name,
    ast.UnaryOp: _Parser._unary,
    ast.BinOp: _Parser._binary,
    ast.List: _Parser._list,
    ast.Tuple: _Parser._list,
    ast.Subscript: _Parser._subscript,
    ast.Call: _Parser._call,
}
_REFUSED: dict[type[ast.AST], str] = {
    ast.Attribute: "dots are not allowed: use plain names",
    ast.Lambda: "functions cannot be defined in an expression",
    ast.Compare: "a comparison can only stand in where(), as in where(x > 3, 1, 0)",
    ast.BoolOp: "'and' and 'or' can only stand in a condition of where()",
    ast.IfExp: "'if' is not allowed: use where(condition, a, b)",
    ast.ListComp: "loops are not allowed: write the list out",
    ast.GeneratorExp: "loops are not allowed: write the list out",
    ast.JoinedStr: "text cannot stand in an expression",
    ast.Dict: "braces are not allowed",
    ast.Set: "braces are not allowed",
    ast.Starred: "a star can only multiply",
    ast.NamedExpr: "names cannot be given inside an expression",
}
