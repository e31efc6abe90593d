"""Benchmarks: they print JSON and a table, report ratios of one run, assert no absolute time."""
