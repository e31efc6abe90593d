"""Consume queues: their units, their files, and where they start."""
