"""Clients that come and go, change their minds, and take leave for others."""
