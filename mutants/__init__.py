"""Planted bugs, to prove that tests, simulator and harness would notice real ones.

Production code has no switch for any of this and never imports this package: a mutant exchanges
functions of its modules from outside, before the program (or the simulation) starts.
"""
