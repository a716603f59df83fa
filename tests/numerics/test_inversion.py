"""Draws from finite laws by a guide: the very numbers of inverted sums, at every uniform number."""

import numpy as np
import pytest

from noisewise.numerics import inversion
from noisewise.numerics.inversion import Inversion

SHAPES = {
    "one law": (1_000, 1),
    "one value": (1, 3),
    "many laws": (40, 300),
    "more values than cells": (50_000, 2),
}


def weights_of(rng, values, laws):
    """Positive weights of all sizes, and zeros: at both ends, between, in runs."""
    weights = rng.gamma(0.05, size=(values, laws))
    weights[rng.random((values, laws)) < 0.3] = 0.0
    weights[: values // 5, 0] = 0.0
    weights[-(values // 5) - 1 :, -1] = 0.0
    weights[rng.integers(values, size=laws), np.arange(laws)] = 1.0
    return weights


def uniform_numbers(rng, weights, rows):
    """Any; 0 and the largest below 1; the sums themselves, and their neighbours; the edges of cells, and theirs."""
    sums = np.cumsum(weights, axis=0)
    special = (sums / sums[-1])[rng.integers(len(weights), size=rows), :]
    edges = rng.integers(inversion.CELLS, size=(rows, weights.shape[1])) / inversion.CELLS
    ends = np.repeat([[0.0], [np.nextafter(1.0, 0.0)]], weights.shape[1], axis=1)
    beside = [np.nextafter(special, 0.0), special, np.nextafter(special, 1.0), np.nextafter(edges, 0.0), edges, ends]
    uniform = np.concatenate([rng.random((rows, weights.shape[1])), *beside])
    return np.minimum(uniform, np.nextafter(1.0, 0.0))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_number_is_how_many_sums_are_at_most_the_uniform_number(shape, seed):
    """By counting, law by law."""
    rng = np.random.default_rng(seed)
    weights = weights_of(rng, *shape)
    uniform = uniform_numbers(rng, weights, 300)
    sums = np.cumsum(weights, axis=0)
    counted = [np.searchsorted(sums[:, law] / sums[-1, law], uniform[:, law], side="right") for law in range(shape[1])]
    numbers = Inversion(weights)(uniform)
    assert np.array_equal(numbers, np.stack(counted, axis=1))
    assert np.all(weights[numbers, np.arange(shape[1])] > 0)


def test_a_law_of_its_own_size_is_kept_within_bounds(monkeypatch):
    """Very many laws share the cells; each has some."""
    monkeypatch.setattr(inversion, "MOST", 2**14)
    few, many = Inversion(np.ones((3, 1))), Inversion(np.ones((3, 2**11)))
    assert few(np.array([[0.0], [0.5], [0.99]])).ravel().tolist() == [0, 1, 2]
    assert many(np.full((1, 2**11), 0.5)).tolist() == [[1] * 2**11]
