"""E-steps: the confidential statistic given release and parameters, as weighted clouds of values."""
