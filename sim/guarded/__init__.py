"""Brokers with access control, and a machine that asks them as accounts do."""
