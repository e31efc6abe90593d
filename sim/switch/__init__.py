"""Runs of brokers whose role controllers say, and of these, with unchanged production code."""
