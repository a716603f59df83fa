"""The law of the confidential statistic given parameters and release: its normaliser, the likelihood, and its draws."""
