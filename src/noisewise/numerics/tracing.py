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
