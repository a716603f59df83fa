"""Models that were written as code: whether they, what their code makes and a model by hand are the same."""

import numpy as np

import noisewise as nw


def draws_of(model, release):
    """Weighted draws of the prior: cheap, and every law and every noise enters."""
    posterior = nw.sample(model, release, nw.Importance(), draws=300, seed=1, on_failure="return")
    return {**posterior.draws, "weights": posterior.log_weights}


def assert_same(model, hand, release):
    """The model, its printed code and the model by hand give the same draws for the same seed."""
    namespace = {}
    exec(model.code, namespace)
    made, printed, written = (draws_of(one, release) for one in (model, namespace["model"], hand))
    assert set(made) == set(printed) == set(written)
    for name, values in made.items():
        assert np.array_equal(values, printed[name])
        assert np.array_equal(values, written[name])
    assert np.ptp(made["weights"]) > 0.0
