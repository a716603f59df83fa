"""What a traced JAX program's outputs depend on."""

from typing import Any


def depending(program: Any) -> set[int]:
    """The variables of a traced program that depend on its inputs, by `id`.

    Every output of a step counts as depending on every input of that step.
    """
    moving = {id(variable) for variable in program.invars}
    for step in program.eqns:
        if any(id(variable) in moving for variable in step.invars):
            moving.update(id(variable) for variable in step.outvars)
    return moving


def depends(program: Any) -> bool:
    """Whether any output may depend on any input, by the rule of `depending`."""
    moving = depending(program)
    return any(id(variable) in moving for variable in program.outvars)


def sources(program: Any) -> list[set[int]]:
    """For each output, the numbers of the inputs that it may depend on, by the rule of `depending`."""
    reached = {id(variable): {index} for index, variable in enumerate(program.invars)}
    for step in program.eqns:
        entering = set[int]().union(*(reached.get(id(variable), set()) for variable in step.invars))
        for variable in step.outvars:
            reached[id(variable)] = entering
    return [reached.get(id(variable), set()) for variable in program.outvars]
