"""Clients that do what users do every day, and no other client of a run does."""
