"""The table of mutants: name in words, and what is changed where. Each room's module has its own part."""

from mutants.table import everyday, inference, likelihood, mechanisms, model, results, samplers

ROOMS = (inference, mechanisms, model, samplers, likelihood, results, everyday)
MUTANTS = {
    name: mutant
    for room in ROOMS
    for part, mutants in vars(room).items()
    if part.isupper() and isinstance(mutants, dict)
    for name, mutant in mutants.items()
}
