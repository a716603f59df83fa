"""Intervals and tests: profile, exact, bootstrap."""

from noisewise.likelihood.intervals.profile import exact_interval, likelihood_ratio_test, profile_interval
from noisewise.likelihood.intervals.refits import bootstrap

__all__ = ["bootstrap", "exact_interval", "likelihood_ratio_test", "profile_interval"]
