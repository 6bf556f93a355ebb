"""Measurements: each is a command, prints its figures, and asserts nothing by the clock."""
