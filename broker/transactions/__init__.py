"""Transactions: halves that wait for their end, and what the leader does about them."""
