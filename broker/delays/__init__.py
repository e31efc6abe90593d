"""Delayed messages: how they are put by, and how they are delivered when they are due."""
