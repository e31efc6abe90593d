"""Faults as operations: each knows how to apply itself, how to be undone, and what proves it."""
