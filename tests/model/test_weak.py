"""A weak law of counts: every number up to the bound, the bound too, all alike."""

import numpy as np
import pytest
from exactness import counts_agree

import noisewise as nw


def test_every_count_up_to_the_bound_comes_alike(seed):
    law = nw.counts_up_to(4, shape=(2, 3))
    assert law.event_shape == (2, 3)
    model = nw.Model({}, {"cells": law})
    drawn = model.simulate(4096, seed)["cells"]
    assert counts_agree(np.bincount(drawn.ravel(), minlength=6), [0.2] * 5 + [0.0])
    each = nw.Model({}, {"cells": nw.counts_up_to(np.array([[1, 0], [2, 3]]))}).simulate(4096, seed)["cells"]
    assert each.max(axis=0).tolist() == [[1, 0], [2, 3]]
    with pytest.raises(nw.InputError, match="must be whole numbers from 0 on"):
        nw.counts_up_to(np.array([1.5, 2.0]))
    with pytest.raises(nw.InputError, match="must be that of the bounds"):
        nw.counts_up_to(np.array([1, 2]), shape=(3,))
    for most, shape in ((0, 2), (2.5, 2), (3, (0,))):
        with pytest.raises(nw.InputError, match="must be a whole number"):
            nw.counts_up_to(most, shape)
