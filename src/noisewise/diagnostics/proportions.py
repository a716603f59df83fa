"""Wilson's interval for a proportion, from the share of trials in which something was seen.

E. B. Wilson (1927). Probable inference, the law of succession, and statistical inference. JASA 22, 209-212.
"""

import math

Z95 = 1.959963984540054
"""Standard errors on each side of a 95% interval."""


def wilson(share: float, size: float, z: float = Z95) -> tuple[float, float]:
    """The proportions p with |share - p| <= z sqrt(p (1 - p) / size): within [0, 1], and never of width zero.

    Both ends solve a quadratic equation. `size` is the number of trials, and need not be whole.
    """
    middle = share + z * z / (2.0 * size)
    reach = z * math.sqrt(share * (1.0 - share) / size + z * z / (4.0 * size * size))
    whole = 1.0 + z * z / size
    low = 0.0 if share <= 0.0 else (middle - reach) / whole
    high = 1.0 if share >= 1.0 else (middle + reach) / whole
    return max(low, 0.0), min(high, 1.0)
