"""A table of whole numbers measured several ways: which tables are possible, and moves that reach all of them."""
