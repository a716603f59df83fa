"""Statistical mistakes, planted one by one: do the tests catch them? `make mutants`."""
