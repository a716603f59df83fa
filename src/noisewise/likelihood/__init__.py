"""Maximum likelihood from a release: one file per estimator; `fit.py` is the verb that runs them."""

from noisewise.likelihood.em import EM
from noisewise.likelihood.intervals import bootstrap, exact_interval, likelihood_ratio_test, profile_interval
from noisewise.likelihood.mcem import MCEM
from noisewise.likelihood.schedules import Ascent, Staged

__all__ = [
    "EM",
    "MCEM",
    "Ascent",
    "Staged",
    "bootstrap",
    "exact_interval",
    "likelihood_ratio_test",
    "profile_interval",
]
