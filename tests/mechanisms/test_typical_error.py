"""How far off noise puts a value, against quantiles of its law."""

import numpy as np
from exactness import LIMIT
from scipy import stats

import noisewise as nw
from noisewise.mechanisms import MultivariateGaussian
from noisewise.mechanisms.typical_error import SIMULATED, typical_error


def test_the_size_of_noise_is_that_of_its_law():
    half, most = typical_error(nw.Laplace(scale=5.0), ())
    np.testing.assert_allclose([half, most], [5 * np.log(2), 5 * np.log(20)], rtol=1e-9)
    half, most = typical_error(nw.Gaussian(scale=[1.0, 3.0]), (2,))
    np.testing.assert_allclose(half, np.array([1, 3]) * stats.norm.ppf(0.75), rtol=1e-9)
    np.testing.assert_allclose(most, np.array([1, 3]) * stats.norm.ppf(0.975), rtol=1e-9)
    mechanism = nw.DiscreteLaplace(scale=3.0)
    z = np.arange(-400, 401)
    probability = np.exp(mechanism.log_prob(z, 0))
    for size, share in zip(typical_error(mechanism, ()), (0.5, 0.95), strict=True):
        assert probability[np.abs(z) <= size].sum() >= share > probability[np.abs(z) < size].sum()


def test_noise_without_a_formula_is_simulated():
    correlated = MultivariateGaussian(covariance=[[4.0, 1.0], [1.0, 4.0]])
    for sizes, share in zip(typical_error(correlated, (2,)), (0.5, 0.95), strict=True):
        exact = 2.0 * stats.norm.ppf((1.0 + share) / 2.0)
        density = 2.0 * stats.norm.pdf(exact, scale=2.0)  # of the noise's size, at its quantile
        error = np.sqrt(share * (1.0 - share) / SIMULATED) / density
        assert np.all(np.abs(sizes - exact) < LIMIT * error)
        assert sizes[0] == sizes[1], "sizes that differ by chance alone are told as one"
