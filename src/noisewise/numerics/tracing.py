"""What a traced JAX program's outputs depend on."""

from typing import Any


def depending(program: Any) -> set[int]:
    """Identities of a traced program's variables that its inputs enter; a step's every output on its every input."""
    moving = {id(variable) for variable in program.invars}
    for step in program.eqns:
        if any(id(variable) in moving for variable in step.invars):
            moving.update(id(variable) for variable in step.outvars)
    return moving


def depends(program: Any) -> bool:
    """Whether any output may depend on any input; a step that reads one input counts as depending on it whole."""
    moving = depending(program)
    return any(id(variable) in moving for variable in program.outvars)
