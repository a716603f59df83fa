"""Verbs that sample repeatedly: forecast, compare, calibrate."""
