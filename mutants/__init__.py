"""Brokers with a planted bug, to prove that the harness would notice a real one.

Production code has no switch for any of this and never imports this package: a mutant replaces
methods of its classes from outside, before the broker starts.
"""
