"""The catalogue of mechanisms: each the exact law of a release given the confidential value."""

from noisewise.mechanisms.base import CATALOGUE, Mechanism, Released
from noisewise.mechanisms.discrete_gaussian import DiscreteGaussian
from noisewise.mechanisms.discrete_laplace import DiscreteLaplace
from noisewise.mechanisms.exact import Exact
from noisewise.mechanisms.gaussian import Gaussian
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.mechanisms.laplace import Laplace

__all__ = [
    "CATALOGUE",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "Gaussian",
    "Guarantee",
    "Laplace",
    "Mechanism",
    "Released",
]
