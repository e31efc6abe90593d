"""Oracles: what must never be, checked after every event that changed a replica."""
