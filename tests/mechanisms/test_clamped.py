"""Values clamped before their noise: the law beyond the bounds, what is kept of the base, what is refused."""

import numpy as np
import pytest
from scipy import stats

import noisewise as nw
from noisewise.mechanisms import Clamped, LatentScale, Rounded, Thresholded
from noisewise.release.privacy import of_all_entries

LAPLACE = nw.Laplace(scale=2.0)


def test_values_beyond_a_bound_are_alike():
    mechanism, s = Clamped(LAPLACE, 0.0, 10.0), np.array([-1e6, -1.0, 0.0, 3.0, 10.0, 11.0, 1e6])
    expected = stats.laplace.logpdf(4.5, [0, 0, 0, 3, 10, 10, 10], 2.0)
    assert mechanism.log_prob(4.5, s) == pytest.approx(expected)
    assert mechanism.log_sup(np.array([-4.0, 4.5, 14.0])) == pytest.approx(stats.laplace.logpdf([4, 0, 4], 0.0, 2.0))


def test_bounds_may_differ_by_entry():
    mechanism = Clamped(LAPLACE, np.array([0.0, 5.0]), 10.0)
    assert mechanism.clamp(np.array([[-3.0, -3.0], [20.0, 20.0]])).tolist() == [[0.0, 5.0], [10.0, 10.0]]
    with pytest.raises(nw.InputError, match=r"'value' must have a shape that 'low' of shape \(2,\) broadcasts to"):
        mechanism.released([1.0, 2.0, 3.0])


def test_whole_numbers_stay_whole():
    mechanism = Clamped(nw.DiscreteLaplace(scale=2.0), 0, 5)
    drawn = mechanism.sample(np.random.default_rng(1), np.array([9, -4]))
    assert drawn.dtype.kind == "i"
    assert mechanism.integers


def test_what_the_base_reads_and_can_release_goes_through():
    latent = Clamped(Rounded(LatentScale(nw.Laplace(scale=1.0), "spread", 0.5), 1.0), 0.0, 4.0)
    assert latent.inputs == ("spread",)
    assert latent.log_prob(2.0, 9.0, spread=2.0) == latent.base.log_prob(2.0, 4.0, spread=2.0)
    withheld = Clamped(Thresholded(LAPLACE, 5.0), 0.0, 20.0)
    release = nw.Release(x=withheld.released(["suppressed", 8.0]))
    assert np.isnan(release["x"].value[0])
    assert nw.Release.from_dict(release.to_dict()) == release
    with pytest.raises(nw.InputError, match="must be"):
        withheld.released(3.0)


def test_its_guarantee_is_that_of_the_base():
    mechanism = Clamped(nw.Laplace(epsilon=0.5, sensitivity=80.0), 0.0, 80.0)
    assert mechanism.guarantee == mechanism.base.guarantee
    assert of_all_entries(mechanism, (3,)) == of_all_entries(mechanism.base, (3,))


REFUSED = {
    "no mechanism": (lambda: Clamped(3.0, 0, 1), "'base' must be a mechanism"),
    "a vector's noise": (
        lambda: Clamped(nw.mechanisms.KNorm("l2", 1.0, dimension=2), 0, 1),
        "'base' must act entry by entry",
    ),
    "no noise": (lambda: Clamped(nw.Exact(), 0, 1), "'base' must add noise to numbers"),
    "twice": (lambda: Clamped(Clamped(LAPLACE, 0, 1), 0, 1), "'base' must add noise to numbers"),
    "endless": (lambda: Clamped(LAPLACE, 0, np.inf), "'high' must be finite"),
    "the wrong way round": (lambda: Clamped(LAPLACE, 1, 0), "'low' must be below high=0.0; got 1.0"),
    "words": (lambda: Clamped(LAPLACE, "a", 1), "'low' must be a number"),
    "parts of integers": (
        lambda: Clamped(nw.DiscreteLaplace(scale=1.0), 0, 2.5),
        "'high' must be whole numbers for DiscreteLaplace; got 2.5",
    ),
    "other shapes": (lambda: Clamped(LAPLACE, np.zeros(2), np.ones(3)), "'high' must have the shape of low"),
    "inside a wrapper": (lambda: Rounded(Clamped(LAPLACE, 0, 1), 1.0), "'base' must be noise whose intervals"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    make, message = REFUSED[case]
    with pytest.raises(nw.InputError, match=message):
        make()
