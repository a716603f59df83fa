"""Many matrices factored or solved by one program: a few at a time, which never waits for itself.

JAX hands many matrices to LAPACK in parts, as tasks for the threads that run the program, and one of these threads
waits for them. Where as many such operations are under way as there are threads, in one program or in several, all
wait, forever: with JAX 0.10 on two processors, a Gaussian process did. Few matrices are done by the thread that meets
them. So a traced program is written again, with a loop in place of each such operation.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal

WAITS = jax.__version_info__ < (0, 11, 2)
"""Whether this version of JAX makes such tasks."""
FACTORING = {"cholesky", "triangular_solve", "lu", "eigh", "eig", "svd", "qr", "geqrf", "householder_product", "schur"}
"""JAX's operations on matrices that are LAPACK's on the processor."""
CALLS = {
    **dict.fromkeys(("jit", "pjit", "remat2", "checkpoint"), "jaxpr"),
    **dict.fromkeys(("closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
}
"""JAX's ways to call a function that has been traced, and what holds it: derivatives have been taken by then."""
ALL_AT_ONCE = 2**17
"""Work of the matrices that are done at once, a matrix of size k counting k^3: tasks were seen from 2^20 on."""
DEAR = dict.fromkeys(("eigh", "eig", "svd", "schur"), 32)
"""How many times the work these operations are."""


def steps_of(program: Any) -> Iterator[Any]:
    """The steps of a traced program, those of programs within it included."""
    for step in program.eqns:
        yield step
        for value in step.params.values():
            for part in value if isinstance(value, (tuple, list)) else [value]:
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from steps_of(inner)


def factors_many(program: Any) -> bool:
    """Whether a traced program has an operation on many matrices."""
    return any(_at_a_time(step) for step in steps_of(program))


def few_at_a_time(traced: Any) -> Callable[..., Any]:
    """The function behind a `jax.stages.Traced`, with operations on many matrices done a few at a time."""

    def function(*arguments: Any) -> Any:
        results = _evaluated(traced.jaxpr.jaxpr, traced.jaxpr.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(traced.out_info), results)

    return function


def _at_a_time(step: Any) -> int:
    """How many matrices the step may do at once; 0 where it may do all."""
    if step.primitive.name not in FACTORING:
        return 0
    shape = max((number.aval.shape for number in step.invars), key=math.prod)
    work = max(1, *shape[-2:]) ** 3 * DEAR.get(step.primitive.name, 1)
    few = max(1, ALL_AT_ONCE // work)
    return few if math.prod(shape[:-2]) > few else 0


def _evaluated(program: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    known = dict(zip([*program.constvars, *program.invars], [*constants, *arguments], strict=True))
    for step in program.eqns:
        inputs = [one.val if isinstance(one, Literal) else known[one] for one in step.invars]
        few = _at_a_time(step)
        results = _in_turns(step, inputs, few) if few else _as_it_is(step, inputs)
        known.update(zip(step.outvars, results, strict=True))
    return [one.val if isinstance(one, Literal) else known[one] for one in program.outvars]


def _in_turns(step: Any, inputs: list[Any], few: int) -> list[Any]:
    lead = inputs[0].shape[:-2]
    flat = [one.reshape(-1, *one.shape[len(lead) :]) for one in inputs]
    results = jax.lax.map(lambda each: _bound(step, each, step.params), flat, batch_size=few)
    return [one.reshape(*lead, *one.shape[1:]) for one in results]


def _as_it_is(step: Any, inputs: list[Any]) -> list[Any]:
    """The step, with what is within it written again where it has operations on many matrices."""
    if step.primitive.name in CALLS:
        called = step.params[CALLS[step.primitive.name]]
        return _evaluated(getattr(called, "jaxpr", called), getattr(called, "consts", ()), inputs)

    return _bound(step, inputs, {name: _again(value) for name, value in step.params.items()})


def _again(value: Any) -> Any:
    """A step's parameter, with traced programs written again where they have operations on many matrices."""
    if isinstance(value, tuple) and any(isinstance(part, ClosedJaxpr) for part in value):
        parts = map(_again, value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if not isinstance(value, ClosedJaxpr) or not factors_many(value.jaxpr):
        return value
    structs = [jax.ShapeDtypeStruct(one.shape, one.dtype, weak_type=one.weak_type) for one in value.in_avals]
    return jax.make_jaxpr(lambda *inner: _evaluated(value.jaxpr, value.consts, inner))(*structs)


def _bound(step: Any, inputs: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    results = step.primitive.bind(*inputs, **params)
    return list(results) if step.primitive.multiple_results else [results]
