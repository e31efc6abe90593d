"""Clients that are not polite: they make their own frames, and may send anything."""
