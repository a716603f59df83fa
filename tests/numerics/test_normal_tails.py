"""log Phi and its scaled form far out: values and derivatives, to their last digits."""

import jax
import numpy as np
import pytest
from scipy.special import erfcx, log_ndtr

from noisewise import numerics
from noisewise.numerics import double

NEAR = np.array([-14.0, -8.5, -3.0, -1.0, -1e-3, 0.0, 1e-3, 0.7, 3.0, 8.5, 40.0, 1e160])
FAR = np.array([-14.0, -15.5, -20.0, -50.0, -1e3, -1e8])


def derivatives(function, points):
    with double():
        both = jax.jit(jax.vmap(lambda z: (jax.grad(function)(z), jax.hessian(function)(z))))(points)
        return tuple(map(np.asarray, both))


def moments(z):
    """E t and Var t under the density proportional to exp(z t - t^2 / 2) over t > 0, by Gauss and Laguerre.

    They are the first two derivatives of log int exp(z t - t^2 / 2) dt, which is log(exp(z^2 / 2) Phi(z)) up to a
    constant; every term is positive.
    """
    nodes, weights = np.polynomial.laguerre.laggauss(60)
    t = nodes / -z[:, None]
    weights = weights * np.exp(-0.5 * t**2)
    weights /= weights.sum(axis=1, keepdims=True)
    mean = (weights * t).sum(axis=1, keepdims=True)
    return mean[:, 0], (weights * (t - mean) ** 2).sum(axis=1)


def test_log_ndtr_near_and_its_slopes():
    slope = np.sqrt(2.0 / np.pi) / erfcx(-NEAR / np.sqrt(2.0))  # phi / Phi; its own slope is -slope (z + slope)
    with double():
        np.testing.assert_allclose(
            np.asarray(jax.jit(numerics.log_ndtr_near)(NEAR)), log_ndtr(NEAR), rtol=1e-13, atol=0
        )
    first, second = derivatives(numerics.log_ndtr_near, NEAR)
    np.testing.assert_allclose(first, slope, rtol=1e-12, atol=0)
    np.testing.assert_allclose(second[:-1], (-slope * (NEAR + slope))[:-1], rtol=1e-10, atol=1e-300)


@pytest.mark.quick
def test_log_mills_and_its_slopes():
    truth = np.log(0.5 * erfcx(-FAR / np.sqrt(2.0)))
    np.testing.assert_allclose(numerics.log_mills(FAR), truth, rtol=1e-14)
    with double():
        np.testing.assert_allclose(np.asarray(jax.jit(numerics.log_mills)(FAR)), truth, rtol=1e-14)
    first, second = derivatives(numerics.log_mills, FAR)
    mean, variance = moments(FAR)
    np.testing.assert_allclose(first, mean, rtol=1e-12)
    np.testing.assert_allclose(second, variance, rtol=1e-10)
