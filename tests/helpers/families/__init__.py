"""Mechanisms by family: cases, targets with exact answers, and audits of budgets, each family in one file."""
