"""The confidential statistic given parameters and release: its normaliser, which is the likelihood, and its draws."""
