"""Parts of `nw.design`, `nw.allocate` and `nw.sample_size`: plans, targets, closed forms, simulations, the search."""
