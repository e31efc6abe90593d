"""Faults of a simulated run: planned from a seed, applied to the world, undone, witnessed."""
