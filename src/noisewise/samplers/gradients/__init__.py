"""Densities with gradients, for `NUTS`: confidential statistics summed or integrated out."""
