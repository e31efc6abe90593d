"""Clients that ask for what a broker can do, and others of a run do not."""
