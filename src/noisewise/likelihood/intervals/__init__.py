"""Intervals and tests: profile, exact, bootstrap."""

from noisewise.likelihood.intervals.parametric_bootstrap import bootstrap
from noisewise.likelihood.intervals.profile import exact_interval, likelihood_ratio_test, profile_interval

__all__ = ["bootstrap", "exact_interval", "likelihood_ratio_test", "profile_interval"]
