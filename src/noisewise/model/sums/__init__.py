"""Totals whose own law is known: drawn at once, whatever the number of records.

Three cases, recognised from the traced programs of laws and contribution, never from numbers. Contributions that are
affine in fields of laws that add up: normal, Poisson, gamma and their kin. Contributions of degree two in normal
fields: from mean and scatter of the records, which are normal and Wishart. Records of a few categories: the numbers in
each are multinomial, whatever they contribute. Where none applies, records are simulated. Proofs:
docs/derivations/totals.md.
"""

import math

from noisewise.model.sums.added import Added
from noisewise.model.sums.scattered import Scattered
from noisewise.model.sums.summand import KnownSum, Summand
from noisewise.model.sums.tallied import Tallied

__all__ = ["Added", "KnownSum", "Scattered", "Summand", "Tallied", "law_of_sum"]


def law_of_sum(summand: Summand, n: int | None) -> KnownSum | None:
    """The law of the sum over `n` records (None: a number that varies); None where it is unknown or takes more work.

    Where it is None, records are simulated.
    """
    enough = math.inf if n is None else n
    added = Added.of(summand)
    if added is not None:
        return added
    scattered = Scattered.of(summand)
    if scattered is not None and scattered.work <= enough:
        return scattered
    tallied = Tallied.of(summand)
    return tallied if tallied is not None and tallied.work <= 4 * enough else None
