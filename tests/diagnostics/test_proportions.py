"""Wilson's interval of a proportion: against SciPy's, its equation, and its coverage by enumeration."""

import numpy as np
import pytest
from scipy import stats

from noisewise.diagnostics.proportions import Z95, wilson


@pytest.mark.quick
@pytest.mark.parametrize(("seen", "size"), [(0, 64), (1, 64), (13, 64), (63, 64), (64, 64), (2, 5)])
def test_the_interval_is_scipys(seen, size):
    expected = stats.binomtest(seen, size).proportion_ci(0.95, method="wilson")
    assert wilson(seen / size, size) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_it_stays_within_0_and_1_and_always_has_a_width():
    for size in (1, 4, 64, 10_000, 3.7):
        for share in (0.0, 1e-12, 0.3, 1.0 - 1e-12, 1.0):
            low, high = wilson(share, size)
            assert 0.0 <= low <= share <= high <= 1.0
            assert high > low
    low, high = wilson(0.2, 50)
    for end in (low, high):
        assert abs(0.2 - end) == pytest.approx(Z95 * np.sqrt(end * (1 - end) / 50))


def test_it_covers_about_95_percent_where_the_plain_interval_does_not():
    """By enumeration: of 64 releases, at chances near 0. Negative control: two standard errors on each side."""
    size, seen = 64, np.arange(65)
    intervals = np.array([wilson(k / size, size) for k in seen])
    shares = seen / size
    reach = Z95 * np.sqrt(shares * (1 - shares) / size)
    covered, plain = [], []
    for chance in np.linspace(0.005, 0.05, 10):
        weight = stats.binom(size, chance).pmf(seen)
        covered.append(weight @ ((intervals[:, 0] <= chance) & (chance <= intervals[:, 1])))
        plain.append(weight @ (np.abs(shares - chance) <= reach))
    assert np.mean(covered) > 0.94
    assert np.mean(plain) < 0.85
