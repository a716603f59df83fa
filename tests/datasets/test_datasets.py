"""Packaged data sets are those that were published."""

import pytest

from noisewise import datasets


def test_the_data_set_is_the_papers():
    sample = datasets.lalonde()
    assert (sample.treated.sum(), (~sample.treated).sum()) == (185, 260)
    assert sample.earnings.max() == pytest.approx(60_300, abs=50)  # "the maximum ... is $60.3k"
    found = sample.statistics()
    assert found["mean_t"] == pytest.approx(6.3491435)
    assert found["mean_c"] == pytest.approx(4.554801, abs=1e-6)
    assert found["var_t"] == pytest.approx(61.89601, abs=1e-4)
    assert found["var_c"] == pytest.approx(30.072458, abs=1e-4)
