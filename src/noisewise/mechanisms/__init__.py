"""The catalogue of mechanisms: each the exact law of a release given the confidential value."""

from noisewise.mechanisms import smooth
from noisewise.mechanisms.affine import Affine
from noisewise.mechanisms.base import CATALOGUE, Mechanism
from noisewise.mechanisms.clamped import Clamped
from noisewise.mechanisms.clipped import Clipped
from noisewise.mechanisms.discrete_gaussian import DiscreteGaussian
from noisewise.mechanisms.discrete_laplace import DiscreteLaplace
from noisewise.mechanisms.exact import Exact
from noisewise.mechanisms.exponential import ExponentialMechanism
from noisewise.mechanisms.gaussian import Gaussian
from noisewise.mechanisms.generalized_cauchy import GeneralizedCauchy
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.mechanisms.knorm import KNorm
from noisewise.mechanisms.laplace import Laplace
from noisewise.mechanisms.latent_scale import LatentScale
from noisewise.mechanisms.multivariate_gaussian import MultivariateGaussian
from noisewise.mechanisms.noisy_max import PermuteAndFlip, ReportNoisyMax
from noisewise.mechanisms.objective_perturbation import ObjectivePerturbation
from noisewise.mechanisms.product import Product
from noisewise.mechanisms.projected import Projected
from noisewise.mechanisms.quantile import PrivateQuantile
from noisewise.mechanisms.randomized_response import RandomizedResponse
from noisewise.mechanisms.released import Released
from noisewise.mechanisms.rounded import Rounded
from noisewise.mechanisms.staircase import Staircase
from noisewise.mechanisms.thresholded import Thresholded
from noisewise.mechanisms.top_selection import TopSelection
from noisewise.mechanisms.truncated_laplace import TruncatedLaplace
from noisewise.mechanisms.tulap import Tulap
from noisewise.mechanisms.unary_encoding import UnaryEncoding
from noisewise.mechanisms.within import Within

__all__ = [
    "CATALOGUE",
    "Affine",
    "Clamped",
    "Clipped",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "ExponentialMechanism",
    "Gaussian",
    "GeneralizedCauchy",
    "Guarantee",
    "KNorm",
    "Laplace",
    "LatentScale",
    "Mechanism",
    "MultivariateGaussian",
    "ObjectivePerturbation",
    "PermuteAndFlip",
    "PrivateQuantile",
    "Product",
    "Projected",
    "RandomizedResponse",
    "Released",
    "ReportNoisyMax",
    "Rounded",
    "Staircase",
    "Thresholded",
    "TopSelection",
    "TruncatedLaplace",
    "Tulap",
    "UnaryEncoding",
    "Within",
    "smooth",
]
