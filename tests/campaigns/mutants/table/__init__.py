"""The table of mutants: name in words, and what is changed where.

Those of mechanisms come from the files of `tests/helpers/families`, those of samplers from their rows in
`tests/helpers/sampler_table.py`; those of all other files stand here, room by room.
"""

from mechanism_case import families
from sampler_table import SAMPLERS

from mutants.table import everyday, inference, likelihood, mechanisms, model, results, samplers

ROOMS = (inference, mechanisms, model, samplers, likelihood, results, everyday)
OF_MECHANISMS = [family.MUTANTS for family in families()]
OF_SAMPLERS = [row.mutants for row in SAMPLERS.values()]
OF_ROOMS = [part for room in ROOMS for name, part in vars(room).items() if name.isupper() and isinstance(part, dict)]
MUTANTS = {name: mutant for part in (*OF_MECHANISMS, *OF_SAMPLERS, *OF_ROOMS) for name, mutant in part.items()}
