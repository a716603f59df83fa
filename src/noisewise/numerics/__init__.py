"""The seam between NumPy and JAX: one namespace for both, compiled programs, and 64-bit JAX as a context."""

from noisewise.numerics.compiled import Compiled, Tally, operations, tally
from noisewise.numerics.namespaces import Array, Values, log_mills, log_ndtr, log_ndtr_near, namespace, special
from noisewise.numerics.precision import Placement, double, placed, placement, single
from noisewise.numerics.side_by_side import SideBySide, blocks_of

__all__ = [
    "Array",
    "Compiled",
    "Placement",
    "SideBySide",
    "Tally",
    "Values",
    "blocks_of",
    "double",
    "log_mills",
    "log_ndtr",
    "log_ndtr_near",
    "namespace",
    "operations",
    "placed",
    "placement",
    "single",
    "special",
    "tally",
]
