"""M-steps: the expected log likelihood and its maximum, in unconstrained coordinates."""
