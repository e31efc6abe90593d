"""Pulls that wait for messages, and what they filter by."""
