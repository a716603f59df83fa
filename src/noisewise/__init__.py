"""noisewise: exact statistical inference from differentially private releases.

A curator's mechanism and an analyst's model meet in one number, log eta(s_dp | s): the log density of the released
value s_dp given the confidential statistic s. Everything else follows.
"""

from noisewise import mechanisms, sources
from noisewise._version import __version__
from noisewise.engine import Dask, Device, Processes, Threads
from noisewise.errors import InferenceError, InputError, NoisewiseError, NoisewiseWarning
from noisewise.everyday import difference, mean_of, regression, share_of, table_of
from noisewise.inference.confidential import confidential
from noisewise.inference.privatised import Privatised
from noisewise.likelihood import EM, MCEM, Ascent, Staged
from noisewise.likelihood.fit import fit
from noisewise.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    RandomizedResponse,
    Within,
)
from noisewise.model import Model, Simulator, Total, counts_up_to
from noisewise.plots.forest import plot_forest
from noisewise.plots.pairs import plot_pairs
from noisewise.plots.posterior import plot
from noisewise.plots.replicates import plot_replicates
from noisewise.plots.trace import plot_trace
from noisewise.release import Release
from noisewise.results.evidence import Evidence, evidence
from noisewise.results.fit import Fit
from noisewise.results.posterior import Posterior
from noisewise.results.replicates import Replicates
from noisewise.results.tidy import Table, table
from noisewise.samplers import (
    MCMC,
    NUTS,
    SMC,
    Augmentation,
    Importance,
    ImportanceRejection,
    Rejection,
    RejectionControl,
)
from noisewise.samplers.sample import sample
from noisewise.studies.allocate import Allocation, allocate
from noisewise.studies.calibrate import Calibration, calibrate
from noisewise.studies.compare import Comparison, compare
from noisewise.studies.design import Design, design
from noisewise.studies.forecast import Forecast, forecast
from noisewise.studies.sample_size import SampleSize, sample_size
from noisewise.studies.what_if import what_if

__all__ = [
    "EM",
    "MCEM",
    "MCMC",
    "NUTS",
    "SMC",
    "Allocation",
    "Ascent",
    "Augmentation",
    "Calibration",
    "Comparison",
    "Dask",
    "Design",
    "Device",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Evidence",
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
    "Privatised",
    "Processes",
    "RandomizedResponse",
    "Rejection",
    "RejectionControl",
    "Release",
    "Replicates",
    "SampleSize",
    "Simulator",
    "Staged",
    "Table",
    "Threads",
    "Total",
    "Within",
    "__version__",
    "allocate",
    "calibrate",
    "compare",
    "confidential",
    "counts_up_to",
    "design",
    "difference",
    "evidence",
    "fit",
    "forecast",
    "mean_of",
    "mechanisms",
    "plot",
    "plot_forest",
    "plot_pairs",
    "plot_replicates",
    "plot_trace",
    "regression",
    "sample",
    "sample_size",
    "share_of",
    "sources",
    "table",
    "table_of",
    "what_if",
]
