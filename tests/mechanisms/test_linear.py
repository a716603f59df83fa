"""Linear measurements: long matrices by their entries, entries given twice, what is no matrix."""

import numpy as np
import pytest
from scipy.sparse import coo_array

import noisewise as nw
from noisewise.mechanisms.linear import Linear, Matrix
from noisewise.numerics import double


@pytest.mark.parametrize("columns", [30, 3000])
def test_products_are_those_of_the_array(columns, seed):
    rng = np.random.default_rng(seed)
    dense = rng.integers(-2, 3, (7, columns))
    vector = rng.integers(0, 100, columns)
    with double():
        product = np.asarray(Matrix.of("test", dense).times(np.asarray(vector)))
    assert np.array_equal(product, dense @ vector)


def test_entries_of_one_place_add_up():
    twice = coo_array(([1, 2, 1, -1], ([0, 0, 1, 1], [2, 2, 0, 1])), shape=(2, 3))
    assert Matrix.of("test", twice).dense.tolist() == [[0, 0, 3], [1, -1, 0]]
    with pytest.raises(nw.InputError, match="something in every row"):
        Matrix.of("test", [[1, 0], [0, 0]])
    for odd in ([1, 2], [[1, 2], [3]], [["a"]], [[2.0**40]]):
        with pytest.raises(nw.InputError, match="matrix of whole numbers"):
            Matrix.of("test", odd)


def test_sums_over_axes_are_matrices():
    table = np.arange(24).reshape(2, 3, 4)
    for axes, expected in ((("b",), table.sum(axis=1)), ((0, -1), table.sum(axis=(0, 2)))):
        matrix, shape = Linear("cells", None, axes).matrix_for("test", table.shape, ("a", "b", "c"))
        assert np.array_equal((matrix.dense @ table.ravel()).reshape(shape), expected)
    with pytest.raises(nw.InputError, match="must name or number the axes"):
        nw.Exact().of("cells", axes=("a", "a"))
    with pytest.raises(nw.InputError, match="True or False"):
        nw.Exact().of("cells", sum="a")
