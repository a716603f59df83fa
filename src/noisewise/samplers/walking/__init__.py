"""Steps of chains and particles on (theta, s)."""
