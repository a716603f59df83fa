"""noisewise: exact statistical inference from differentially private releases.

A curator's mechanism and an analyst's model meet in one number, log eta(s_dp | s); everything else follows.
"""

from noisewise import mechanisms
from noisewise._version import __version__
from noisewise.calibrate import Calibration, calibrate
from noisewise.compare import Comparison, compare
from noisewise.device import Device
from noisewise.engine import Dask, Processes, Threads
from noisewise.errors import InferenceError, InputError, NoisewiseError, NoisewiseWarning
from noisewise.fit import Fit
from noisewise.forecast import Forecast, forecast
from noisewise.likelihood import EM, MCEM, Ascent, Staged, fit
from noisewise.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    RandomizedResponse,
)
from noisewise.model import Model
from noisewise.plots import plot
from noisewise.posterior import Posterior
from noisewise.release import Release
from noisewise.samplers import (
    MCMC,
    NUTS,
    SMC,
    Augmentation,
    Importance,
    ImportanceRejection,
    Rejection,
    RejectionControl,
    sample,
)
from noisewise.statistics import Simulator, Total
from noisewise.trace_plot import plot_trace

__all__ = [
    "EM",
    "MCEM",
    "MCMC",
    "NUTS",
    "SMC",
    "Ascent",
    "Augmentation",
    "Calibration",
    "Comparison",
    "Dask",
    "Device",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "ExponentialMechanism",
    "Fit",
    "Forecast",
    "Gaussian",
    "Importance",
    "ImportanceRejection",
    "InferenceError",
    "InputError",
    "Laplace",
    "Model",
    "NoisewiseError",
    "NoisewiseWarning",
    "Posterior",
    "Processes",
    "RandomizedResponse",
    "Rejection",
    "RejectionControl",
    "Release",
    "Simulator",
    "Staged",
    "Threads",
    "Total",
    "__version__",
    "calibrate",
    "compare",
    "fit",
    "forecast",
    "mechanisms",
    "plot",
    "plot_trace",
    "sample",
]
