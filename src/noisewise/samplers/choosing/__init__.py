"""Which sampler applies, what each would cost, and which is chosen."""
